/* shared_memory.h: threads that store to a device and read from it at the same time, each its own part. */
#ifndef SLUICE_TEST_SHARED_MEMORY_H
#define SLUICE_TEST_SHARED_MEMORY_H

#include <string.h>

#include "backend/backend.h"

enum { SHARED_TASKS = 40, SHARED_BYTES = 300001 }; /* larger than a staging slot, and no multiple of anything */

typedef struct shared_memory {
    const sl_backend *b;
    sl_device *d;
    sl_tier tier;
} shared_memory;

/* Stores its part, reads it back and compares. */
static inline sluice_status store_and_read(void *context, int64_t task, void *scratch)
{
    const shared_memory *m = context;
    sl_span s = { m->tier, (uint64_t)task * SHARED_BYTES, SHARED_BYTES };
    uint8_t *written = scratch, *seen = written + SHARED_BYTES;
    for (int i = 0; i < SHARED_BYTES; i++) written[i] = (uint8_t)(i * 31 + task * 7);
    SL_TRY(m->b->store(m->d, s, written));
    SL_TRY(m->b->download(m->d, seen, s));
    if (memcmp(written, seen, SHARED_BYTES) == 0) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_FAILED, "task %d read other bytes than it stored", (int)task);
}

#endif

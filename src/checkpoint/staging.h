/* staging.h: the buffer of a save or a load: a chunk, aligned for direct I/O, taken for the duration of the work. */
#ifndef SL_CHECKPOINT_STAGING_H
#define SL_CHECKPOINT_STAGING_H

#include "checkpoint/manifest.h"
#include "core/alloc.h"
#include "core/bytes.h"

typedef struct sl_chunk_staging {
    void *memory; /* owned; NULL: not taken */
    char *chunk;  /* SL_CHECKPOINT_CHUNK bytes in it, aligned to SL_FILE_ALIGNMENT */
} sl_chunk_staging;

static inline sluice_status sl_staging_take(sl_chunk_staging *s)
{
    s->memory = sl_alloc(SL_CHECKPOINT_CHUNK + SL_FILE_ALIGNMENT, "checkpoint staging");
    if (s->memory == NULL) return SLUICE_ERR_NO_MEMORY;
    s->chunk = (char *)s->memory + (sl_align_up((uintptr_t)s->memory, SL_FILE_ALIGNMENT) - (uintptr_t)s->memory);
    return SLUICE_OK;
}

/* One that was not taken is fine. */
static inline void sl_staging_free(sl_chunk_staging *s)
{
    sl_free(s->memory);
    s->memory = NULL;
}

#endif

/* alloc.h: the one way to take memory from the C library.
 *
 * Every allocation has a name, is counted, and can be made to fail on demand: the tests fail the nth one for
 * every n. The counters are process-wide (atomics); they are instruments, not state that any code decides by. */
#ifndef SL_CORE_ALLOC_H
#define SL_CORE_ALLOC_H

#include <stddef.h>
#include <stdint.h>

typedef struct sl_alloc_stats {
    uint64_t live_bytes; /* allocated and not yet freed */
    uint64_t live_count;
    uint64_t total_count; /* allocations since the process began */
} sl_alloc_stats;

/* Zeroed memory, 64-byte aligned. NULL on failure, with the message recorded (SLUICE_ERR_NO_MEMORY is the
 * status to return). `name` says what it is for; it must be a string literal. bytes = 0 is served as 1. */
void *sl_alloc(size_t bytes, const char *name);
/* count * each with an overflow check. */
void *sl_alloc_array(size_t count, size_t each, const char *name);
/* Grows to new_bytes, keeping old_bytes; the old block stays valid on failure. New bytes are zero. */
void *sl_realloc(void *p, size_t old_bytes, size_t new_bytes, const char *name);
char *sl_strdup(const char *text, const char *name);
void sl_free(void *p); /* NULL is fine */
/* Instead of sl_free, for a block that the kernel may still write into: a disk was asked to fill it and never answered.
 * It stays allocated, and counted, until the process ends. NULL is fine. */
void sl_alloc_abandon(void *p);

void sl_alloc_get_stats(sl_alloc_stats *out);
/* Test hook: the nth allocation from now fails (1 = the next); with `persistent`, all later ones too. 0: off. */
void sl_alloc_fail_nth(int64_t nth, int persistent);

#endif

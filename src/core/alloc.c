/* alloc.c: named, counted, breakable allocation.
 *
 * Every block has a 64-byte header with its size, so that freeing can keep the count of live bytes. Small blocks come
 * from posix_memalign and end exactly where the request ends, so that the sanitizers see the first byte beyond. Large
 * ones come from calloc and are aligned inside it: their zero pages stay untouched until they are used. What is made of
 * these two functions alone is in alloc_more.c. */
#include "core/alloc.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "core/status.h"

#define BLOCK_ALIGNMENT ((size_t)64)
#define LARGE_BYTES     ((size_t)1 << 20)

/* In front of every block, padded to BLOCK_ALIGNMENT. */
typedef struct block_header {
    void *base; /* what the C library gave */
    size_t bytes;
    const char *name;               /* for whoever looks at a leak in a debugger */
    struct block_header *abandoned; /* the one abandoned before */
} block_header;
_Static_assert(sizeof(block_header) <= BLOCK_ALIGNMENT, "the header fits in front of the block");

static _Atomic uint64_t live_bytes, live_count, total_count;
/* Calls until one fails; 0: none will. */
static _Atomic int64_t fail_countdown;
static _Atomic bool fail_persistent;
/* The last abandoned block: a list that nobody walks, which tells a leak checker that these are no leaks. */
static _Atomic(block_header *) last_abandoned;

/* True when the test hook wants this allocation to fail. */
static bool must_fail(void)
{
    int64_t left = atomic_load(&fail_countdown), next;
    do {
        if (left == 0) return false;
        next = left == 1 && atomic_load(&fail_persistent) ? 1 : left - 1;
    } while (!atomic_compare_exchange_weak(&fail_countdown, &left, next));
    return left == 1;
}

/* Zeroed memory with room for a header in front of the returned block; sets *base to what free() wants. */
static void *take_block(size_t bytes, void **base)
{
    if (bytes >= LARGE_BYTES) {
        char *raw = calloc(1, bytes + 2 * BLOCK_ALIGNMENT);
        *base = raw;
        return raw == NULL ? NULL : raw + (2 * BLOCK_ALIGNMENT - (uintptr_t)raw % BLOCK_ALIGNMENT);
    }
    if (posix_memalign(base, BLOCK_ALIGNMENT, bytes + BLOCK_ALIGNMENT) != 0) return NULL;
    return memset((char *)*base + BLOCK_ALIGNMENT, 0, bytes);
}

static block_header *header_of(void *p)
{
    return (block_header *)((char *)p - BLOCK_ALIGNMENT);
}

void *sl_alloc(size_t bytes, const char *name)
{
    void *base = NULL, *p = NULL;
    if (bytes == 0) bytes = 1;
    if (bytes < SIZE_MAX / 2 && !must_fail()) p = take_block(bytes, &base);
    if (p == NULL) {
        sl_fail(SLUICE_ERR_NO_MEMORY,
                "the system refused %zu bytes of memory for %s; free memory or use a smaller model", bytes, name);
        return NULL;
    }
    *header_of(p) = (block_header){ .base = base, .bytes = bytes, .name = name };
    atomic_fetch_add(&live_bytes, bytes);
    atomic_fetch_add(&live_count, 1);
    atomic_fetch_add(&total_count, 1);
    return p;
}

void sl_free(void *p)
{
    if (p == NULL) return;
    atomic_fetch_sub(&live_bytes, header_of(p)->bytes);
    atomic_fetch_sub(&live_count, 1);
    free(header_of(p)->base);
}

void sl_alloc_abandon(void *p)
{
    if (p == NULL) return;
    block_header *h = header_of(p);
    h->abandoned = atomic_exchange(&last_abandoned, h);
}

void sl_alloc_get_stats(sl_alloc_stats *out)
{
    out->live_bytes = atomic_load(&live_bytes);
    out->live_count = atomic_load(&live_count);
    out->total_count = atomic_load(&total_count);
}

void sl_alloc_fail_nth(int64_t nth, int persistent)
{
    atomic_store(&fail_persistent, persistent != 0);
    atomic_store(&fail_countdown, nth);
}

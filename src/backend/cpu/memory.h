/* memory.h: the mapping behind one arena of the CPU backend: private memory, or a file that other processes map too.
 *
 * Without guard, arenas of SL_HUGE_PAGE bytes and more begin at a multiple of it and ask for huge pages, where the
 * machine offers them and for those that lie in the arena whole. So pages of either size take no more memory than the
 * arena
 * has. */
#ifndef SL_BACKEND_CPU_MEMORY_H
#define SL_BACKEND_CPU_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/thread.h"

#define SL_HUGE_PAGE ((size_t)2 << 20)

/* Under guard: [no access][front, canary][arena, poison][back, canary][no access]; front and back are less than a page,
 * and back is less than SL_ALIGNMENT unless the arena is to begin at a page. Otherwise the arena begins the mapping. With a file the mapping is the file, whole and
 * from its start; other processes can reach what is without access here. */
typedef struct sl_memory {
    uint8_t *mapping; /* NULL: none */
    size_t mapping_bytes;
    uint8_t *base; /* SL_ALIGNMENT-aligned */
    size_t bytes, front_bytes, back_bytes;
    bool shared; /* a file is behind it */
    bool guarded;
} sl_memory;

typedef struct sl_memory_options {
    bool guard;
    bool paged;     /* begins at a page also under guard; its end is then less than a page before no access */
    int file;       /* > 0: behind the mapping; emptied, given its size, not closed */
    uint64_t nodes; /* bit n: NUMA node n. One: preferred; several: pages are dealt out to them; 0: by first touch */
} sl_memory_options;

/* Maps `bytes` > 0 bytes of zeros, or of poison under guard. False with errno, and with nothing mapped, on failure;
 * huge pages and nodes are wishes, whose refusal costs speed alone. */
bool sl_memory_map(sl_memory *m, size_t bytes, const sl_memory_options *o);
/* Touches every page of new memory, which is zero and stays so, with all threads of the pool at once: whoever uses them
 * first, one after the other, waits longer for them. Does nothing under guard, and with one thread. */
void sl_memory_touch(sl_memory *m, sl_pool *pool);
/* Zero-initialised memory is fine. */
void sl_memory_unmap(sl_memory *m);
/* False where something was written between the arena and its guard pages. */
bool sl_memory_is_intact(const sl_memory *m);

/* Whether this machine gives huge pages to large arenas that ask for them, private or shared ones, and why or why not:
 * "transparent", "shmem_enabled is never". */
bool sl_huge_pages_offered(bool shared, char *why, size_t bytes);
/* The same from the text of transparent_hugepage/enabled, or of shmem_enabled for shared ones: "always [madvise]
 * never". NULL: there is no such file. */
bool sl_huge_pages_allowed(const char *setting, bool shared, char *why, size_t bytes);

#endif

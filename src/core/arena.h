/* arena.h: bump allocation for what lives and dies together (a graph, a plan). */
#ifndef SL_CORE_ARENA_H
#define SL_CORE_ARENA_H

#include <stdarg.h>
#include <stddef.h>

typedef struct sl_arena_block sl_arena_block;

typedef struct sl_arena {
    sl_arena_block *blocks; /* owned, newest first; large requests get a block of their own */
    size_t used, capacity;  /* of the newest block */
    const char *name;       /* for the allocator's messages */
} sl_arena;

void sl_arena_init(sl_arena *a, const char *name);            /* allocates nothing */
void *sl_arena_alloc(sl_arena *a, size_t bytes);              /* zeroed, 16-byte aligned; NULL as sl_alloc */
void *sl_arena_array(sl_arena *a, size_t count, size_t each); /* overflow-checked */
char *sl_arena_strdup(sl_arena *a, const char *text);
char *sl_arena_printf(sl_arena *a, const char *format, ...) __attribute__((format(printf, 2, 3)));
void sl_arena_free(sl_arena *a); /* frees all; the arena may be used again */

#endif

/* arena.c: bump allocation in blocks that are all freed at once. */
#include "core/arena.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/bytes.h"
#include "core/status.h"

#define BLOCK_BYTES ((size_t)64 << 10)
#define UNIT        ((size_t)16)

struct sl_arena_block {
    sl_arena_block *older;
    _Alignas(16) unsigned char data[];
};

void sl_arena_init(sl_arena *a, const char *name)
{
    *a = (sl_arena){ .name = name };
}

/* A request that would waste most of a block gets one of its own, put behind the newest so that bumping goes on
 * there. */
static void *alloc_large(sl_arena *a, size_t bytes)
{
    sl_arena_block *b = sl_alloc(sizeof *b + bytes, a->name);
    if (b == NULL) return NULL;
    if (a->blocks == NULL) {
        a->blocks = b; /* used = capacity = 0: full, the next small request starts a new block */
    } else {
        b->older = a->blocks->older;
        a->blocks->older = b;
    }
    return b->data;
}

static bool add_block(sl_arena *a)
{
    sl_arena_block *b = sl_alloc(sizeof *b + BLOCK_BYTES, a->name);
    if (b == NULL) return false;
    b->older = a->blocks;
    a->blocks = b;
    a->used = 0;
    a->capacity = BLOCK_BYTES;
    return true;
}

void *sl_arena_alloc(sl_arena *a, size_t bytes)
{
    if (bytes > SIZE_MAX / 2) {
        sl_fail(SLUICE_ERR_NO_MEMORY, "%zu bytes of memory for %s is more than any machine has", bytes, a->name);
        return NULL;
    }
    bytes = (size_t)sl_align_up(bytes == 0 ? 1 : bytes, UNIT);
    if (bytes > BLOCK_BYTES / 4) return alloc_large(a, bytes);
    if (bytes > a->capacity - a->used && !add_block(a)) return NULL;
    void *p = a->blocks->data + a->used;
    a->used += bytes;
    return p;
}

void *sl_arena_array(sl_arena *a, size_t count, size_t each)
{
    uint64_t bytes;
    if (!sl_mul_u64(count, each, &bytes)) bytes = SIZE_MAX; /* refused below with its message */
    return sl_arena_alloc(a, bytes);
}

char *sl_arena_strdup(sl_arena *a, const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = sl_arena_alloc(a, bytes);
    return copy == NULL ? NULL : memcpy(copy, text, bytes);
}

char *sl_arena_printf(sl_arena *a, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, args);
    char *text = length < 0 ? NULL : sl_arena_alloc(a, (size_t)length + 1);
    if (length < 0) sl_fail(SLUICE_ERR_NO_MEMORY, "a text for %s could not be formatted", a->name);
    if (text != NULL) vsnprintf(text, (size_t)length + 1, format, again);
    va_end(again);
    va_end(args);
    return text;
}

void sl_arena_free(sl_arena *a)
{
    for (sl_arena_block *b = a->blocks, *older; b != NULL; b = older) {
        older = b->older;
        sl_free(b);
    }
    sl_arena_init(a, a->name);
}

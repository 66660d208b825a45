/* live_fit.c: live_fit.h. */
#include "plan/live_fit.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>

#include "core/alloc.h"

/* A new stretch at index `at`. */
static sluice_status insert(sl_live_fit *f, int at, sl_stretch s)
{
    if (f->count == f->capacity) {
        int larger = f->capacity == 0 ? 64 : 2 * f->capacity;
        sl_stretch *grown = sl_realloc(f->taken, (size_t)f->capacity * sizeof s, (size_t)larger * sizeof s,
                                       "plan: bytes of the living");
        if (grown == NULL) return SLUICE_ERR_NO_MEMORY;
        f->taken = grown;
        f->capacity = larger;
    }
    memmove(&f->taken[at + 1], &f->taken[at], (size_t)(f->count - at) * sizeof s);
    f->taken[at] = s;
    f->count++;
    return SLUICE_OK;
}

static void drop(sl_live_fit *f, int at)
{
    f->count--;
    memmove(&f->taken[at], &f->taken[at + 1], (size_t)(f->count - at) * sizeof *f->taken);
}

void sl_live_fit_begin(sl_live_fit *f, uint64_t base)
{
    f->base = base;
    f->count = 0;
}

sluice_status sl_live_fit_place(sl_live_fit *f, uint64_t bytes, uint64_t *offset)
{
    uint64_t at = f->base;
    int i = 0;
    for (; i < f->count && f->taken[i].begin < at + bytes; i++) at = f->taken[i].end;
    bool joins_left = i > 0 && f->taken[i - 1].end == at;
    bool joins_right = i < f->count && f->taken[i].begin == at + bytes;
    *offset = at;
    if (!joins_left && !joins_right) return insert(f, i, (sl_stretch){ at, at + bytes });
    if (!joins_left) {
        f->taken[i].begin = at;
    } else {
        f->taken[i - 1].end = joins_right ? f->taken[i].end : at + bytes;
        if (joins_right) drop(f, i);
    }
    return SLUICE_OK;
}

sluice_status sl_live_fit_release(sl_live_fit *f, uint64_t bytes, uint64_t offset)
{
    int low = 0, high = f->count - 1;
    uint64_t end = offset + bytes;
    while (low < high) { /* the one that ends after the offset */
        int middle = (low + high) / 2;
        if (f->taken[middle].end <= offset)
            low = middle + 1;
        else
            high = middle;
    }
    sl_stretch *s = &f->taken[low];
    assert(f->count > 0 && s->begin <= offset && s->end >= end);
    sl_stretch rest = { end, s->end };
    if (s->begin == offset && s->end == end) {
        drop(f, low);
    } else if (s->begin == offset) {
        s->begin = end;
    } else {
        s->end = offset;
        if (rest.begin < rest.end) return insert(f, low + 1, rest);
    }
    return SLUICE_OK;
}

void sl_live_fit_destroy(sl_live_fit *f)
{
    sl_free(f->taken);
    *f = (sl_live_fit){ .base = 0 };
}

/* first_fit.c: first_fit.h. */
#include "plan/first_fit.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "core/alloc.h"

/* Sets that a life has to do with: of the nodes it consists of and of those above, on both sides of the tree. */
#define MAX_SETS 128

/* ---- a set ---- */

/* Index of the first stretch that ends at `at` or after it. */
static int first_ending(sl_first_fit *f, const sl_stretches *s, uint64_t at)
{
    int low = 0, high = s->count;
    while (low < high) {
        int middle = (low + high) / 2;
        f->looked++;
        if (f->pool[s->first + middle].end < at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Moves a full set to the end of the pool, with room for twice as many. */
static sluice_status grow_set(sl_first_fit *f, sl_stretches *s)
{
    int larger = s->capacity == 0 ? 2 : 2 * s->capacity;
    if (f->pool_count > INT_MAX / 4) return sl_fail(SLUICE_ERR_USAGE, "plan: the model is too large for one plan");
    if (f->pool_count + larger > f->pool_capacity) {
        int capacity = 2 * (f->pool_count + larger);
        sl_stretch *pool = sl_realloc(f->pool, (size_t)f->pool_capacity * sizeof *pool, (size_t)capacity * sizeof *pool,
                                      "plan: placed stretches");
        if (pool == NULL) return SLUICE_ERR_NO_MEMORY;
        f->pool = pool;
        f->pool_capacity = capacity;
    }
    if (s->count > 0) memcpy(&f->pool[f->pool_count], &f->pool[s->first], (size_t)s->count * sizeof *f->pool);
    s->first = f->pool_count;
    s->capacity = larger;
    f->pool_count += larger;
    return SLUICE_OK;
}

/* Adds a stretch, merged with those it meets. */
static sluice_status add_to_set(sl_first_fit *f, sl_stretches *s, sl_stretch new)
{
    int at = first_ending(f, s, new.begin), end = at;
    const sl_stretch *of = s->count > 0 ? &f->pool[s->first] : NULL; /* before the first one there is no pool */
    if (at < s->count && of[at].begin <= new.begin &&of[at].end >= new.end) return SLUICE_OK;
    for (; end < s->count && of[end].begin <= new.end; end++) {
        f->looked++;
        if (of[end].begin < new.begin) new.begin = of[end].begin;
        if (of[end].end > new.end) new.end = of[end].end;
    }
    if (end == at && s->count == s->capacity) SL_TRY(grow_set(f, s));
    sl_stretch *into = &f->pool[s->first];
    if (end != at + 1) memmove(&into[at + 1], &into[end], (size_t)(s->count - end) * sizeof *into);
    s->count += at + 1 - end;
    into[at] = new;
    return SLUICE_OK;
}

/* ---- the tree ---- */

/* The sets `own` of the nodes that [first, last] consists of, and the sets `above` of those above its ends. Some of the
 * latter lie below the former: they too have to do with the life. Returns how many. */
static int sets_of(const sl_first_fit *f, int first, int last, sl_stretches *own, sl_stretches *above,
                   sl_stretches **sets)
{
    int count = 0, left = first + f->times, right = last + f->times;
    for (int a = left, b = right + 1; a < b; a >>= 1, b >>= 1) {
        if ((a & 1) != 0) sets[count++] = &own[a++];
        if ((b & 1) != 0) sets[count++] = &own[--b];
    }
    for (int a = left >> 1, b = right >> 1; a > 0; a >>= 1, b >>= 1) {
        sets[count++] = &above[a];
        if (b != a) sets[count++] = &above[b];
    }
    return count;
}

/* A set on the way up from the lowest offset. */
typedef struct cursor {
    const sl_stretch *next, *end;
} cursor;

/* Moves on to the first stretch that ends after `at`: in steps that double, then by halving the last one. */
static void skip_below(sl_first_fit *f, cursor *c, uint64_t at)
{
    ptrdiff_t step = 1, left = c->end - c->next;
    if (left == 0 || c->next->end > at) return;
    for (; step < left && c->next[step].end <= at; step *= 2) f->looked++;
    const sl_stretch *low = c->next + step / 2 + 1, *high = step < left ? c->next + step : c->end;
    while (low < high) {
        const sl_stretch *middle = low + (high - low) / 2;
        f->looked++;
        if (middle->end <= at)
            low = middle + 1;
        else
            high = middle;
    }
    c->next = low;
}

/* The first offset from `at` on at which one set has nothing for `bytes`. */
static uint64_t pass_set(sl_first_fit *f, cursor *c, uint64_t at, uint64_t bytes)
{
    skip_below(f, c, at);
    f->looked++;
    for (; c->next < c->end && c->next->begin < at + bytes; c->next++) {
        at = c->next->end;
        f->looked++;
    }
    return at;
}

/* The first offset from the base on at which no set has anything for `bytes`. */
static uint64_t lowest_free(sl_first_fit *f, cursor *c, int count, uint64_t bytes)
{
    uint64_t at = f->base, before;
    do {
        before = at;
        for (int k = 0; k < count; k++) {
            at = pass_set(f, &c[k], at, bytes);
            if (c[k].next == c[k].end) c[k--] = c[--count]; /* has nothing more to say */
        }
    } while (at != before);
    return at;
}

sluice_status sl_first_fit_place(sl_first_fit *f, uint64_t bytes, int first, int last, uint64_t *offset)
{
    sl_stretches *sets[MAX_SETS];
    cursor cursors[MAX_SETS];
    int open = 0, count = sets_of(f, first, last, f->touched, f->covered, sets);
    for (int k = 0; k < count; k++)
        if (sets[k]->count > 0)
            cursors[open++] = (cursor){ &f->pool[sets[k]->first], &f->pool[sets[k]->first + sets[k]->count] };
    *offset = lowest_free(f, cursors, open, bytes);
    sl_stretch taken = { *offset, *offset + bytes };
    count = sets_of(f, first, last, f->covered, f->touched, sets);
    for (int k = 0; k < count; k++) SL_TRY(add_to_set(f, sets[k], taken));
    for (int a = first + f->times, b = last + f->times + 1; a < b; a >>= 1, b >>= 1) {
        if ((a & 1) != 0) SL_TRY(add_to_set(f, &f->touched[a++], taken));
        if ((b & 1) != 0) SL_TRY(add_to_set(f, &f->touched[--b], taken));
    }
    return SLUICE_OK;
}

/* ---- life ---- */

sluice_status sl_first_fit_begin(sl_first_fit *f, uint64_t base, int times)
{
    int larger = 1;
    while (larger < times) larger *= 2;
    f->base = base;
    f->times = larger;
    f->pool_count = 0;
    if (2 * larger > f->node_capacity) {
        sl_free(f->covered);
        f->node_capacity = 2 * larger;
        f->covered = sl_alloc_array(2 * (size_t)f->node_capacity, sizeof *f->covered, "plan: tree of lives");
        if (f->covered == NULL) {
            f->node_capacity = 0;
            return SLUICE_ERR_NO_MEMORY;
        }
    } else {
        memset(f->covered, 0, 4 * (size_t)larger * sizeof *f->covered);
    }
    f->touched = f->covered + 2 * larger;
    return SLUICE_OK;
}

void sl_first_fit_destroy(sl_first_fit *f)
{
    sl_free(f->covered);
    sl_free(f->pool);
    *f = (sl_first_fit){ .base = 0 };
}

/* address.c: gives every buffer its offset.
 *
 * Permanent buffers lie at the bottom of their arena. The others are placed largest first at the lowest offset that is
 * free during their whole life; a second attempt in order of birth is kept where it packs tighter. Two buffers may
 * share bytes exactly when their step ranges are disjoint. Because ranges are positions in the list and streams run
 * ahead of it, a step that is the first to use reused bytes must wait for the last users of those bytes on other
 * streams: waits.c derives that from the offsets. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/bytes.h"
#include "plan/passes.h"

typedef struct placed {
    uint64_t begin, end; /* bytes, end rounded up to the alignment */
    int first, last;
} placed;

typedef struct packer {
    sl_plan *p;
    sl_tier tier;
    int *order; /* transient buffers of the tier */
    int count;
    placed *by_offset; /* buffers placed so far, increasing begin */
    int placed_count;
    uint64_t base; /* end of the permanent buffers */
    bool holds;    /* gradients and the norm keep their bytes for the whole step */
} packer;

/* Lowest offset at which the bytes are free during its life. Keeps by_offset sorted. */
static uint64_t place_one(packer *k, const sl_buffer *buffer)
{
    uint64_t bytes = sl_align_up(buffer->bytes, SL_ALIGNMENT), at = k->base;
    bool stays = k->holds && (buffer->kind == SL_BUFFER_GRADIENTS || buffer->kind == SL_BUFFER_NORM);
    const placed life = { .first = stays ? 0 : buffer->first, .last = stays ? INT_MAX : buffer->last }, *b = &life;
    for (int i = 0; i < k->placed_count; i++) {
        const placed *q = &k->by_offset[i];
        if (q->last < b->first || q->first > b->last || q->end <= at) continue;
        if (q->begin >= at + bytes) break;
        at = q->end;
    }
    int i = k->placed_count++;
    for (; i > 0 && k->by_offset[i - 1].begin > at; i--) k->by_offset[i] = k->by_offset[i - 1];
    k->by_offset[i] = (placed){ at, at + bytes, b->first, b->last };
    return at;
}

static uint64_t pack(packer *k, uint64_t *offsets)
{
    uint64_t peak = 0;
    k->placed_count = 0;
    for (int i = 0; i < k->count; i++) {
        const sl_buffer *b = &k->p->buffers[k->order[i]];
        offsets[i] = place_one(k, b);
        if (offsets[i] + b->bytes > peak) peak = offsets[i] + b->bytes;
    }
    return peak;
}

/* qsort has no context argument: the keys travel with the entries. */
typedef struct sort_entry {
    uint64_t bytes;
    int first, last, buffer;
} sort_entry;

static int by_size(const void *a, const void *b)
{
    const sort_entry *x = a, *y = b;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
    if (x->first != y->first) return x->first < y->first ? -1 : 1;
    return x->buffer < y->buffer ? -1 : 1;
}

static int by_birth(const void *a, const void *b)
{
    const sort_entry *x = a, *y = b;
    if (x->first != y->first) return x->first < y->first ? -1 : 1;
    if (x->last != y->last) return x->last > y->last ? -1 : 1;
    return x->buffer < y->buffer ? -1 : 1;
}

static void sort_order(packer *k, sort_entry *entries, int (*compare)(const void *, const void *))
{
    for (int i = 0; i < k->count; i++) {
        const sl_buffer *b = &k->p->buffers[k->order[i]];
        entries[i] = (sort_entry){ b->bytes, b->first, b->last, k->order[i] };
    }
    qsort(entries, (size_t)k->count, sizeof *entries, compare);
    for (int i = 0; i < k->count; i++) k->order[i] = entries[i].buffer;
}

static void place_permanents(packer *k)
{
    uint64_t end = 0, peak = 0;
    for (int i = 0; i < k->p->buffer_count; i++) {
        sl_buffer *b = &k->p->buffers[i];
        if (b->tier != k->tier || !sl_buffer_takes_room(b)) continue;
        if (!b->permanent) {
            k->order[k->count++] = i;
            continue;
        }
        b->offset = end;
        peak = end + b->bytes;
        end = sl_align_up(peak, SL_ALIGNMENT);
    }
    k->base = end;
    k->p->totals.peak[k->tier] = peak;
}

static uint64_t pack_best(packer *k, sort_entry *entries, uint64_t *offsets)
{
    sort_order(k, entries, by_birth);
    uint64_t birth_peak = pack(k, offsets);
    sort_order(k, entries, by_size);
    uint64_t size_peak = pack(k, offsets);
    if (birth_peak < size_peak) {
        sort_order(k, entries, by_birth);
        size_peak = pack(k, offsets);
    }
    return size_peak;
}

/* Gradients and the norm on the host are read by updates that run on into the next training step. A buffer of that step
 * that shared their bytes would have to wait for those updates, so where there is room none does. */
static void pack_tier(packer *k, sort_entry *entries, uint64_t *offsets)
{
    const sl_plan_options *o = &k->p->options;
    place_permanents(k);
    k->holds = k->tier == SL_TIER_HOST && o->budget_together == 0 && k->p->machine.copies_overlap;
    uint64_t peak = pack_best(k, entries, offsets);
    if (k->holds && peak > o->budget[k->tier]) {
        k->holds = false;
        peak = pack_best(k, entries, offsets);
    }
    for (int i = 0; i < k->count; i++) k->p->buffers[k->order[i]].offset = offsets[i];
    if (peak > k->p->totals.peak[k->tier]) k->p->totals.peak[k->tier] = peak;
}

sluice_status sl_plan_address(sl_plan *p)
{
    size_t n = (size_t)p->buffer_count + 1;
    int *order = sl_alloc_array(n, sizeof *order, "plan: address order");
    placed *by_offset = sl_alloc_array(n, sizeof *by_offset, "plan: placed buffers");
    sort_entry *entries = sl_alloc_array(n, sizeof *entries, "plan: sort keys");
    uint64_t *offsets = sl_alloc_array(n, sizeof *offsets, "plan: offsets");
    sluice_status st = order && by_offset && entries && offsets ? SLUICE_OK : SLUICE_ERR_NO_MEMORY;
    for (int t = 0; st == SLUICE_OK && t < SL_TIER_COUNT; t++) {
        packer k = { .p = p, .tier = (sl_tier)t, .order = order, .by_offset = by_offset };
        pack_tier(&k, entries, offsets);
    }
    sl_free(order);
    sl_free(by_offset);
    sl_free(entries);
    sl_free(offsets);
    return st;
}

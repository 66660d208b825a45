/* address.c: gives every buffer its offset.
 *
 * Permanent buffers lie at the bottom of their arena. The others are placed largest first at the lowest offset that is
 * free during their whole life (first_fit.h); an attempt in order of birth (live_fit.h) is kept where it packs tighter. Two buffers may
 * share bytes exactly when their step ranges are disjoint. Because ranges are positions in the list and streams run
 * ahead of it, a step that is the first to use reused bytes must wait for the last users of those bytes on other
 * streams: waits.c derives that from the offsets. */
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/bytes.h"
#include "plan/first_fit.h"
#include "plan/live_fit.h"
#include "plan/passes.h"

typedef struct packer {
    sl_plan *p;
    sl_tier tier;
    int *order; /* transient buffers of the tier */
    int count;
    uint64_t *live;         /* scratch of least_peak */
    int *births;            /* per step: steps up to it at which a transient buffer of the tier is born */
    uint64_t base;          /* end of the permanent buffers */
    bool holds;             /* gradients and the norm keep their bytes for the whole step */
    int *dies, *next_dying; /* scratch of pack_births */
    sl_first_fit fit;
    sl_live_fit live_fit;
} packer;

static uint64_t alignment_of(const packer *k)
{
    return sl_tiers[k->tier].alignment;
}

static uint64_t aligned_bytes(const packer *k, int index)
{
    return sl_align_up(k->p->buffers[k->order[index]].bytes, alignment_of(k));
}

/* Times are counted in births: two lives have a step in common exactly when one of them begins within the other. */
static void count_births(packer *k)
{
    int born = 0;
    memset(k->births, 0, (size_t)k->p->step_count * sizeof *k->births);
    for (int i = 0; i < k->count; i++) k->births[k->p->buffers[k->order[i]].first] = 1;
    for (int i = 0; i < k->p->step_count; i++) k->births[i] = born += k->births[i];
}

/* Lowest offset at which the bytes are free during its life. */
static sluice_status place_one(packer *k, const sl_buffer *b, uint64_t *offset)
{
    bool stays = k->holds && (b->kind == SL_BUFFER_GRADIENTS || b->kind == SL_BUFFER_NORM);
    int first = stays ? 0 : k->births[b->first] - 1;
    int last = (stays ? k->births[k->p->step_count - 1] : k->births[b->last]) - 1;
    return sl_first_fit_place(&k->fit, sl_align_up(b->bytes, alignment_of(k)), first, last, offset);
}

/* Links the buffers by their last steps: dies[step] is the first of them, by its index in `order` plus 1, and
 * next_dying[index] the one after it. */
static void link_deaths(packer *k)
{
    memset(k->dies, 0, ((size_t)k->p->step_count + 1) * sizeof *k->dies);
    for (int i = 0; i < k->count; i++) {
        int last = k->p->buffers[k->order[i]].last;
        k->next_dying[i] = k->dies[last];
        k->dies[last] = i + 1;
    }
}

/* The same as pack for the order of birth, where every buffer lives its own life. */
static sluice_status pack_births(packer *k, uint64_t limit, uint64_t *offsets, uint64_t *peak)
{
    *peak = 0;
    link_deaths(k);
    sl_live_fit_begin(&k->live_fit, k->base);
    for (int i = 0, now = 0; i < k->count && *peak <= limit; i++) {
        const sl_buffer *b = &k->p->buffers[k->order[i]];
        for (; now < b->first; now++)
            for (int dead = k->dies[now]; dead > 0; dead = k->next_dying[dead - 1])
                SL_TRY(sl_live_fit_release(&k->live_fit, aligned_bytes(k, dead - 1), offsets[dead - 1]));
        SL_TRY(sl_live_fit_place(&k->live_fit, aligned_bytes(k, i), &offsets[i]));
        if (offsets[i] + b->bytes > *peak) *peak = offsets[i] + b->bytes;
    }
    return SLUICE_OK;
}

/* In the order of `order`; offsets[i] is that of order[i]. Ends early where the peak is over `limit`. */
static sluice_status pack(packer *k, uint64_t limit, uint64_t *offsets, uint64_t *peak)
{
    *peak = 0;
    if (k->count == 0) return SLUICE_OK;
    SL_TRY(sl_first_fit_begin(&k->fit, k->base, k->births[k->p->step_count - 1]));
    for (int i = 0; i < k->count && *peak <= limit; i++) {
        const sl_buffer *b = &k->p->buffers[k->order[i]];
        SL_TRY(sl_plan_poll(k->p));
        SL_TRY(place_one(k, b, &offsets[i]));
        if (offsets[i] + b->bytes > *peak) *peak = offsets[i] + b->bytes;
    }
    return SLUICE_OK;
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
    k->count = 0;
    uint64_t end = 0, peak = 0;
    for (int i = 0; i < k->p->buffer_count; i++) {
        sl_buffer *b = &k->p->buffers[i];
        if (b->tier != k->tier || !sl_buffer_takes_room(b)) continue;
        if (!b->permanent) {
            k->order[k->count++] = i;
            continue;
        }
        b->offset = b->paged ? sl_align_up(end, SL_DISK_UNIT) : end;
        peak = b->offset + b->bytes;
        end = sl_align_up(peak, alignment_of(k));
    }
    k->base = end;
    k->p->totals.peak[k->tier] = peak;
}

static sluice_status pack_in(packer *k, sort_entry *entries, int (*order)(const void *, const void *), uint64_t limit,
                             uint64_t *offsets, uint64_t *peak)
{
    sort_order(k, entries, order);
    return order == by_birth && !k->holds ? pack_births(k, limit, offsets, peak) : pack(k, limit, offsets, peak);
}

static void keep_offsets(packer *k, const uint64_t *offsets)
{
    for (int i = 0; i < k->count; i++) k->p->buffers[k->order[i]].offset = offsets[i];
}

/* Sets the offsets of the tier's transient buffers. The order of size is given up where it is over that of birth. */
static sluice_status pack_best(packer *k, sort_entry *entries, uint64_t *offsets, uint64_t *peak)
{
    uint64_t birth_peak;
    SL_TRY(pack_in(k, entries, by_birth, UINT64_MAX, offsets, &birth_peak));
    keep_offsets(k, offsets);
    SL_TRY(pack_in(k, entries, by_size, birth_peak, offsets, peak));
    if (*peak <= birth_peak)
        keep_offsets(k, offsets);
    else
        *peak = birth_peak;
    return SLUICE_OK;
}

/* Gradients and the norm on the host are read by updates that run on into the next training step. A buffer of that step
 * that shared their bytes would have to wait for those updates, so where there is room none does. */
static bool may_hold(const packer *k)
{
    return k->tier == SL_TIER_HOST && k->p->options.budget_together == 0 && k->p->machine.copies_overlap;
}

static sluice_status pack_tier(packer *k, sort_entry *entries, uint64_t *offsets)
{
    const sl_plan_options *o = &k->p->options;
    uint64_t peak;
    place_permanents(k);
    count_births(k);
    k->holds = may_hold(k);
    SL_TRY(pack_best(k, entries, offsets, &peak));
    if (k->holds && peak > o->budget[k->tier]) {
        k->holds = false;
        SL_TRY(pack_best(k, entries, offsets, &peak));
    }
    if (peak > k->p->totals.peak[k->tier]) k->p->totals.peak[k->tier] = peak;
    return SLUICE_OK;
}

/* ---- does it fit ---- */

/* Bytes that the tier needs at least: of what lives at its fullest moment, all but the padding of the one on top. */
static uint64_t least_peak(packer *k)
{
    uint64_t *live = k->live, now = 0, most = 0, padding = 0;
    int moment = 0;
    memset(live, 0, ((size_t)k->p->step_count + 1) * sizeof *live);
    for (int i = 0; i < k->count; i++) {
        const sl_buffer *b = &k->p->buffers[k->order[i]];
        live[b->first] += sl_align_up(b->bytes, alignment_of(k));
        live[b->last + 1] -= sl_align_up(b->bytes, alignment_of(k)); /* sums are never negative, though terms wrap */
    }
    for (int i = 0; i < k->p->step_count; i++) {
        now += live[i];
        if (now > most) most = now, moment = i;
    }
    for (int i = 0; i < k->count; i++) {
        const sl_buffer *b = &k->p->buffers[k->order[i]];
        uint64_t over = sl_align_up(b->bytes, alignment_of(k)) - b->bytes;
        if (b->first <= moment && moment <= b->last && over > padding) padding = over;
    }
    return most == 0 ? k->p->totals.peak[k->tier] : k->base + most - padding;
}

/* *fits: one of the packings that pack_tier tries keeps to the budget. Those most likely to do so come first. */
static sluice_status any_fits(packer *k, sort_entry *entries, uint64_t *offsets, bool *fits)
{
    static int (*const orders[])(const void *, const void *) = { by_birth, by_size };
    uint64_t budget = k->p->options.budget[k->tier], peak;
    int both = may_hold(k) ? 2 : 1;
    count_births(k);
    *fits = false;
    for (int i = 0; !*fits && i < 2 * both; i++) {
        k->holds = i / 2 == 1;
        SL_TRY(pack_in(k, entries, orders[i % 2], budget, offsets, &peak));
        *fits = peak <= budget;
    }
    return SLUICE_OK;
}

static sluice_status tier_fits(packer *k, sort_entry *entries, uint64_t *offsets, bool *fits)
{
    uint64_t budget = k->p->options.budget[k->tier];
    place_permanents(k);
    *fits = k->p->totals.peak[k->tier] <= budget && least_peak(k) <= budget;
    return *fits && k->count > 0 ? any_fits(k, entries, offsets, fits) : SLUICE_OK;
}

/* ---- roughly ---- */

/* The packing in order of birth, where it keeps to the budget. Otherwise, where no packing could, the peak is the least
 * that any needs, and the offsets are those in order of birth all the same. */
static sluice_status pack_roughly(packer *k, sort_entry *entries, uint64_t *offsets)
{
    uint64_t budget = k->p->options.budget[k->tier], peak;
    place_permanents(k);
    count_births(k);
    k->holds = may_hold(k);
    SL_TRY(pack_in(k, entries, by_birth, UINT64_MAX, offsets, &peak));
    if (peak > budget && k->holds) {
        k->holds = false;
        SL_TRY(pack_in(k, entries, by_birth, UINT64_MAX, offsets, &peak));
    }
    keep_offsets(k, offsets);
    if (peak > budget) {
        peak = least_peak(k);
        if (peak <= budget) return pack_tier(k, entries, offsets); /* it may fit yet */
    }
    if (peak > k->p->totals.peak[k->tier]) k->p->totals.peak[k->tier] = peak;
    return SLUICE_OK;
}

/* ---- all tiers ---- */

typedef struct scratch {
    sort_entry *entries;
    uint64_t *offsets;
} scratch;

static sluice_status open_packer(packer *k, scratch *s)
{
    size_t n = (size_t)k->p->buffer_count + 1, steps = (size_t)k->p->step_count + 1;
    k->order = sl_alloc_array(n, sizeof *k->order, "plan: address order");
    k->births = sl_alloc_array(steps, sizeof *k->births, "plan: births");
    k->live = sl_alloc_array(steps, sizeof *k->live, "plan: live bytes");
    k->dies = sl_alloc_array(steps, sizeof *k->dies, "plan: deaths");
    k->next_dying = sl_alloc_array(n, sizeof *k->next_dying, "plan: deaths");
    s->entries = sl_alloc_array(n, sizeof *s->entries, "plan: sort keys");
    s->offsets = sl_alloc_array(n, sizeof *s->offsets, "plan: offsets");
    return k->order && k->births && k->live && k->dies && k->next_dying && s->entries && s->offsets
               ? SLUICE_OK
               : SLUICE_ERR_NO_MEMORY;
}

static void close_packer(packer *k, scratch *s)
{
    void *owned[] = { k->order, k->births, k->live, k->dies, k->next_dying, s->entries, s->offsets };
    for (size_t i = 0; i < sizeof owned / sizeof owned[0]; i++) sl_free(owned[i]);
    sl_first_fit_destroy(&k->fit);
    sl_live_fit_destroy(&k->live_fit);
}

static sluice_status address_tiers(sl_plan *p, sluice_status (*tier)(packer *, sort_entry *, uint64_t *))
{
    packer k = { .p = p };
    scratch s = { NULL, NULL };
    sluice_status st = open_packer(&k, &s);
    for (int t = 0; st == SLUICE_OK && t < SL_TIER_COUNT; t++) {
        k.tier = (sl_tier)t;
        st = tier(&k, s.entries, s.offsets);
    }
    close_packer(&k, &s);
    return st;
}

sluice_status sl_plan_address(sl_plan *p)
{
    return address_tiers(p, pack_tier);
}

sluice_status sl_plan_address_roughly(sl_plan *p)
{
    return address_tiers(p, pack_roughly);
}

sluice_status sl_plan_fits(sl_plan *p, bool *fits)
{
    packer k = { .p = p };
    scratch s = { NULL, NULL };
    sluice_status st = open_packer(&k, &s);
    *fits = true;
    for (int t = 0; st == SLUICE_OK && *fits && t < SL_TIER_COUNT; t++) {
        k.tier = (sl_tier)t;
        st = tier_fits(&k, s.entries, s.offsets, fits);
    }
    close_packer(&k, &s);
    return st;
}

/* address.c: gives every buffer its offset.
 *
 * Permanent buffers lie at the bottom of their arena. The others are placed largest first at the lowest offset that is
 * free during their whole life (first_fit.h); an attempt in order of birth (live_fit.h) is kept where it packs tighter. Two buffers may
 * share bytes exactly when their step ranges are disjoint. Because ranges are positions in the list and streams run
 * ahead of it, a step that is the first to use reused bytes must wait for the last users of those bytes on other
 * streams: waits.c derives that from the offsets. */
#include <string.h>

#include "core/alloc.h"
#include "core/bytes.h"
#include "plan/first_fit.h"
#include "plan/live_fit.h"
#include "plan/passes.h"

/* Orders in which transient buffers are placed. */
typedef enum {
    BY_BIRTH, /* of those born in one step, the longest lives first */
    BY_SIZE,  /* the largest first; of one size, by birth */
    ORDER_COUNT
} order_kind;

typedef struct sl_packing {
    sl_plan *p;
    sl_tier tier;
    int *orders[ORDER_COUNT]; /* transient buffers of the tier */
    int *order;               /* the one that is packed in */
    bool sized;               /* orders[BY_SIZE] is sorted */
    bool exact;               /* no tier was packed roughly */
    int *sorting;             /* scratch of sorting: as many buffers again */
    int *sort_counts;         /* and numbers of steps, or of digits */
    int count;
    uint64_t *live;         /* scratch of least_peak */
    int *births;            /* per step: steps up to it at which a transient buffer of the tier is born */
    uint64_t base;          /* end of the permanent buffers */
    bool holds;             /* gradients and the norm keep their bytes for the whole step */
    int *dies, *next_dying; /* scratch of pack_births */
    sl_first_fit fit;
    sl_live_fit live_fit;
    uint64_t *offsets; /* of the packing made last: of order[i] at i */
    size_t buffer_room, step_room;
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

/* Whether its bytes are kept for it from the first step to the last. */
static bool stays(const packer *k, const sl_buffer *b)
{
    return k->holds && (b->kind == SL_BUFFER_GRADIENTS || b->kind == SL_BUFFER_NORM);
}

/* Lowest offset at which the bytes are free during its life. */
static sluice_status place_one(packer *k, const sl_buffer *b, uint64_t *offset)
{
    int first = stays(k, b) ? 0 : k->births[b->first] - 1;
    int last = (stays(k, b) ? k->births[k->p->step_count - 1] : k->births[b->last]) - 1;
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
static sluice_status pack_births(packer *k, uint64_t limit, uint64_t *peak)
{
    uint64_t *offsets = k->offsets;
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

/* In the order of `order`. Ends early where the peak is over `limit`. */
static sluice_status pack(packer *k, uint64_t limit, uint64_t *peak)
{
    *peak = 0;
    if (k->count == 0) return SLUICE_OK;
    SL_TRY(sl_first_fit_begin(&k->fit, k->base, k->births[k->p->step_count - 1]));
    for (int i = 0; i < k->count && *peak <= limit; i++) {
        const sl_buffer *b = &k->p->buffers[k->order[i]];
        SL_TRY(sl_plan_poll(k->p));
        SL_TRY(place_one(k, b, &k->offsets[i]));
        if (k->offsets[i] + b->bytes > *peak) *peak = k->offsets[i] + b->bytes;
    }
    return SLUICE_OK;
}

/* ---- orders ---- */

static void swap_arrays(int **a, int **b)
{
    int *other = *a;
    *a = *b;
    *b = other;
}

/* Sorts a list of buffers by a key of each that is below `keys`, and leaves those of one key in their order. */
static void sort_by_key(packer *k, int **list, int keys, int (*key)(const sl_buffer *b, int argument), int argument)
{
    int *counts = k->sort_counts, at = 0;
    memset(counts, 0, (size_t)keys * sizeof *counts);
    for (int i = 0; i < k->count; i++) counts[key(&k->p->buffers[(*list)[i]], argument)]++;
    for (int i = 0; i < keys; i++) {
        int here = counts[i];
        counts[i] = at;
        at += here;
    }
    for (int i = 0; i < k->count; i++) {
        int buffer = (*list)[i];
        k->sorting[counts[key(&k->p->buffers[buffer], argument)]++] = buffer;
    }
    swap_arrays(list, &k->sorting);
}

static int birth_of(const sl_buffer *b, int unused)
{
    (void)unused;
    return b->first;
}

#define DIGIT_BITS 11
#define DIGITS     (1 << DIGIT_BITS)

/* Larger ones come first. */
static int digit_of(const sl_buffer *b, int shift)
{
    return DIGITS - 1 - (int)(b->bytes >> shift & (DIGITS - 1));
}

/* Few are born in one step. */
static void sort_born_together(packer *k, int *list)
{
    const sl_buffer *buffers = k->p->buffers;
    for (int i = 1; i < k->count; i++) {
        int buffer = list[i], at = i;
        for (; at > 0; at--) {
            const sl_buffer *b = &buffers[buffer], *before = &buffers[list[at - 1]];
            if (before->first != b->first || before->last >= b->last) break;
            list[at] = list[at - 1];
        }
        list[at] = buffer;
    }
}

/* From the list BY_BIRTH in the order of their numbers. */
static void sort_births(packer *k)
{
    sort_by_key(k, &k->orders[BY_BIRTH], k->p->step_count, birth_of, 0);
    memcpy(k->orders[BY_SIZE], k->orders[BY_BIRTH], (size_t)k->count * sizeof *k->order);
    k->sized = false; /* many candidates never ask for it */
    sort_born_together(k, k->orders[BY_BIRTH]);
    k->order = k->orders[BY_BIRTH];
}

/* Digit after digit, without those that are the same in all. */
static void sort_sizes(packer *k)
{
    uint64_t some = 0, all = UINT64_MAX;
    for (int i = 0; i < k->count; i++) {
        uint64_t bytes = k->p->buffers[k->orders[BY_SIZE][i]].bytes;
        some |= bytes;
        all &= bytes;
    }
    for (int shift = 0; shift < 64; shift += DIGIT_BITS)
        if (((some ^ all) >> shift & (DIGITS - 1)) != 0) sort_by_key(k, &k->orders[BY_SIZE], DIGITS, digit_of, shift);
    k->sized = true;
}

static void place_permanents(packer *k)
{
    k->count = 0;
    uint64_t end = 0, peak = 0;
    for (int i = 0; i < k->p->buffer_count; i++) {
        sl_buffer *b = &k->p->buffers[i];
        if (b->tier != k->tier || !sl_buffer_takes_room(b)) continue;
        if (!b->permanent) {
            k->orders[BY_BIRTH][k->count++] = i;
            continue;
        }
        b->offset = b->paged ? sl_align_up(end, SL_DISK_UNIT) : end;
        peak = b->offset + b->bytes;
        end = sl_align_up(peak, alignment_of(k));
    }
    k->base = end;
    k->order = k->orders[BY_BIRTH]; /* not sorted yet */
    k->p->totals.peak[k->tier] = peak;
}

static sluice_status pack_in(packer *k, order_kind order, uint64_t limit, uint64_t *peak)
{
    if (order == BY_SIZE && !k->sized) sort_sizes(k);
    k->order = k->orders[order];
    return order == BY_BIRTH && !k->holds ? pack_births(k, limit, peak) : pack(k, limit, peak);
}

static void keep_offsets(packer *k)
{
    for (int i = 0; i < k->count; i++) k->p->buffers[k->order[i]].offset = k->offsets[i];
}

/* Sets the offsets of the tier's transient buffers. The order of size is given up where it is over that of birth. */
static sluice_status pack_best(packer *k, uint64_t *peak)
{
    uint64_t birth_peak;
    SL_TRY(pack_in(k, BY_BIRTH, UINT64_MAX, &birth_peak));
    keep_offsets(k);
    SL_TRY(pack_in(k, BY_SIZE, birth_peak, peak));
    if (*peak <= birth_peak)
        keep_offsets(k);
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

/* Bytes that the tier needs at least: of what lives at its fullest moment, all but the padding of the one on top. */
static uint64_t least_peak(packer *k)
{
    uint64_t *live = k->live, now = 0, most = 0, padding = 0;
    int moment = 0, end = k->p->step_count;
    memset(live, 0, ((size_t)end + 1) * sizeof *live);
    for (int i = 0; i < k->count; i++) {
        const sl_buffer *b = &k->p->buffers[k->order[i]];
        bool kept = stays(k, b);
        live[kept ? 0 : b->first] += sl_align_up(b->bytes, alignment_of(k));
        /* sums are never negative, though terms wrap */
        live[kept ? end : b->last + 1] -= sl_align_up(b->bytes, alignment_of(k));
    }
    for (int i = 0; i < end; i++) {
        now += live[i];
        if (now > most) most = now, moment = i;
    }
    for (int i = 0; i < k->count; i++) {
        const sl_buffer *b = &k->p->buffers[k->order[i]];
        uint64_t over = sl_align_up(b->bytes, alignment_of(k)) - b->bytes;
        if (((b->first <= moment && moment <= b->last) || stays(k, b)) && over > padding) padding = over;
    }
    return most == 0 ? k->p->totals.peak[k->tier] : k->base + most - padding;
}

/* What every packing of the tier begins with. */
static void open_tier(packer *k)
{
    place_permanents(k);
    count_births(k);
    sort_births(k);
}

/* Where what is held is already over the budget, so is any packing that holds it. */
static bool could_hold(packer *k)
{
    k->holds = may_hold(k);
    return k->holds && least_peak(k) <= k->p->options.budget[k->tier];
}

/* `best` sets the offsets, or the peak alone. */
static sluice_status pack_with(packer *k, sluice_status (*best)(packer *, uint64_t *))
{
    const sl_plan_options *o = &k->p->options;
    uint64_t peak;
    open_tier(k);
    k->holds = could_hold(k);
    SL_TRY(best(k, &peak));
    if (k->holds && peak > o->budget[k->tier]) {
        k->holds = false;
        SL_TRY(best(k, &peak));
    }
    if (peak > k->p->totals.peak[k->tier]) k->p->totals.peak[k->tier] = peak;
    return SLUICE_OK;
}

static sluice_status pack_tier(packer *k)
{
    return pack_with(k, pack_best);
}

/* ---- the peak alone ---- */

/* The peak of pack_best. The order of size is tried only where it may be below that of birth, and no further. */
static sluice_status find_peak(packer *k, uint64_t *peak)
{
    uint64_t smaller;
    SL_TRY(pack_in(k, BY_BIRTH, UINT64_MAX, peak));
    if (k->count == 0 || *peak <= least_peak(k)) return SLUICE_OK;
    SL_TRY(pack_in(k, BY_SIZE, *peak - 1, &smaller));
    if (smaller < *peak) *peak = smaller;
    return SLUICE_OK;
}

static sluice_status measure_tier(packer *k)
{
    return pack_with(k, find_peak);
}

/* No packing of the tier has a lower peak than this. */
static sluice_status bound_tier(packer *k)
{
    place_permanents(k);
    k->holds = false;
    uint64_t peak = least_peak(k);
    if (peak > k->p->totals.peak[k->tier]) k->p->totals.peak[k->tier] = peak;
    return SLUICE_OK;
}

/* ---- does it fit ---- */

/* *fits: one of the packings that pack_tier tries keeps to the budget. Those most likely to do so come first. */
static sluice_status any_fits(packer *k, bool *fits)
{
    uint64_t budget = k->p->options.budget[k->tier], peak;
    int both = could_hold(k) ? 2 : 1;
    count_births(k);
    sort_births(k);
    *fits = false;
    for (int i = 0; !*fits && i < 2 * both; i++) {
        k->holds = i / 2 == 1;
        SL_TRY(pack_in(k, (order_kind)(i % 2), budget, &peak));
        *fits = peak <= budget;
    }
    return SLUICE_OK;
}

static sluice_status tier_fits(packer *k, bool *fits)
{
    uint64_t budget = k->p->options.budget[k->tier];
    place_permanents(k);
    k->holds = false;
    *fits = k->p->totals.peak[k->tier] <= budget && least_peak(k) <= budget;
    return *fits && k->count > 0 ? any_fits(k, fits) : SLUICE_OK;
}

/* ---- roughly ---- */

/* The packing in order of birth, where it keeps to the budget. Otherwise, where no packing could, the peak is the least
 * that any needs, and the offsets are those in order of birth all the same. */
static sluice_status pack_roughly(packer *k)
{
    uint64_t budget = k->p->options.budget[k->tier], peak;
    open_tier(k);
    k->holds = could_hold(k);
    SL_TRY(pack_in(k, BY_BIRTH, UINT64_MAX, &peak));
    if (peak > budget && k->holds) {
        k->holds = false;
        SL_TRY(pack_in(k, BY_BIRTH, UINT64_MAX, &peak));
    }
    keep_offsets(k);
    if (peak > budget) {
        peak = least_peak(k);
        if (peak <= budget) return pack_tier(k); /* it may fit yet */
    }
    if (peak > k->p->totals.peak[k->tier]) k->p->totals.peak[k->tier] = peak;
    return SLUICE_OK;
}

/* Exactly, unless it is over its budget with any offsets: then the peak is the least that they need, and the offsets are those in
 * order of birth. */
static sluice_status pack_within(packer *k)
{
    uint64_t least, peak;
    place_permanents(k);
    k->holds = false;
    least = least_peak(k);
    if (least <= k->p->options.budget[k->tier]) return pack_tier(k);
    k->exact = false;
    count_births(k);
    sort_births(k);
    SL_TRY(pack_in(k, BY_BIRTH, UINT64_MAX, &peak));
    keep_offsets(k);
    if (least > k->p->totals.peak[k->tier]) k->p->totals.peak[k->tier] = least;
    return SLUICE_OK;
}

/* ---- all tiers ---- */

static void free_arrays(packer *k)
{
    void *owned[] = { k->orders[BY_BIRTH], k->orders[BY_SIZE], k->sorting, k->sort_counts, k->births, k->live, k->dies,
                      k->next_dying,       k->offsets };
    for (size_t i = 0; i < sizeof owned / sizeof owned[0]; i++) sl_free(owned[i]);
}

/* Arrays for so many buffers and steps, and some more, as the next candidate may have. */
static sluice_status make_room(packer *k, size_t buffers, size_t steps)
{
    if (buffers <= k->buffer_room && steps <= k->step_room) return SLUICE_OK;
    size_t n = buffers + buffers / 4, m = steps + steps / 4, keys = m > DIGITS ? m : DIGITS;
    free_arrays(k);
    k->buffer_room = k->step_room = 0;
    for (int i = 0; i < ORDER_COUNT; i++) k->orders[i] = sl_alloc_array(n, sizeof *k->order, "plan: address order");
    k->sorting = sl_alloc_array(n, sizeof *k->sorting, "plan: address order");
    k->sort_counts = sl_alloc_array(keys, sizeof *k->sort_counts, "plan: numbers of keys");
    k->births = sl_alloc_array(m, sizeof *k->births, "plan: births");
    k->live = sl_alloc_array(m, sizeof *k->live, "plan: live bytes");
    k->dies = sl_alloc_array(m, sizeof *k->dies, "plan: deaths");
    k->next_dying = sl_alloc_array(n, sizeof *k->next_dying, "plan: deaths");
    k->offsets = sl_alloc_array(n, sizeof *k->offsets, "plan: offsets");
    if (!k->orders[BY_BIRTH] || !k->orders[BY_SIZE] || !k->sorting || !k->sort_counts || !k->births || !k->live ||
        !k->dies || !k->next_dying || !k->offsets)
        return SLUICE_ERR_NO_MEMORY;
    k->buffer_room = n;
    k->step_room = m;
    return SLUICE_OK;
}

/* The plan keeps the packer from candidate to candidate. */
static sluice_status open_packer(sl_plan *p, packer **out)
{
    if (p->packing == NULL) p->packing = sl_alloc(sizeof *p->packing, "plan: packing");
    if (p->packing == NULL) return SLUICE_ERR_NO_MEMORY;
    *out = p->packing;
    p->packing->p = p;
    return make_room(p->packing, (size_t)p->buffer_count + 1, (size_t)p->step_count + 1);
}

void sl_packing_destroy(packer *k)
{
    if (k == NULL) return;
    free_arrays(k);
    sl_first_fit_destroy(&k->fit);
    sl_live_fit_destroy(&k->live_fit);
    sl_free(k);
}

static sluice_status address_tiers(sl_plan *p, sluice_status (*tier)(packer *))
{
    packer *k;
    SL_TRY(open_packer(p, &k));
    for (int t = 0; t < SL_TIER_COUNT; t++) {
        k->tier = (sl_tier)t;
        SL_TRY(tier(k));
    }
    return SLUICE_OK;
}

sluice_status sl_plan_address(sl_plan *p)
{
    return address_tiers(p, pack_tier);
}

sluice_status sl_plan_address_roughly(sl_plan *p)
{
    return address_tiers(p, pack_roughly);
}

sluice_status sl_plan_address_within(sl_plan *p, bool *exact)
{
    packer *k;
    SL_TRY(open_packer(p, &k));
    k->exact = true;
    SL_TRY(address_tiers(p, pack_within));
    *exact = k->exact;
    return SLUICE_OK;
}

sluice_status sl_plan_measure(sl_plan *p)
{
    return address_tiers(p, measure_tier);
}

sluice_status sl_plan_bound(sl_plan *p)
{
    return address_tiers(p, bound_tier);
}

sluice_status sl_plan_fits(sl_plan *p, bool *fits)
{
    packer *k;
    SL_TRY(open_packer(p, &k));
    *fits = true;
    for (int t = 0; *fits && t < SL_TIER_COUNT; t++) {
        k->tier = (sl_tier)t;
        SL_TRY(tier_fits(k, fits));
    }
    return SLUICE_OK;
}

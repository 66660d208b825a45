/* plan.c: runs the passes and owns the result. */
#include "plan/plan.h"

#include <limits.h>
#include <string.h>

#include "core/alloc.h"
#include "core/hash.h"
#include "ir/form.h"
#include "plan/place.h"

/* Makes room for one more of `each` bytes; doubling keeps the number of allocations small. */
static sluice_status grow(void **array, int count, int *capacity, size_t each, const char *name)
{
    if (count < *capacity) return SLUICE_OK;
    if (*capacity > INT_MAX / 2)
        return sl_fail(SLUICE_ERR_USAGE, "%s: more than %d entries; the model is too large for one plan", name,
                       INT_MAX / 2);
    int larger = *capacity == 0 ? 64 : *capacity * 2;
    void *p = sl_realloc(*array, (size_t)*capacity * each, (size_t)larger * each, name);
    if (p == NULL) return SLUICE_ERR_NO_MEMORY;
    *array = p;
    *capacity = larger;
    return SLUICE_OK;
}

int sl_plan_add_buffer(sl_plan *p, const sl_buffer *buffer)
{
    void *array = p->buffers;
    sluice_status st = grow(&array, p->buffer_count, &p->buffer_capacity, sizeof *buffer, "plan: buffers");
    p->buffers = array;
    if (st != SLUICE_OK) return -1;
    p->buffers[p->buffer_count] = *buffer;
    return p->buffer_count++;
}

static sluice_status add_piece(sl_plan *p, sl_piece piece)
{
    void *array = p->pieces;
    sluice_status st = grow(&array, p->piece_count, &p->piece_capacity, sizeof piece, "plan: operands");
    p->pieces = array;
    if (st == SLUICE_OK) p->pieces[p->piece_count++] = piece;
    return st;
}

sluice_status sl_plan_add_step(sl_plan *p, const sl_step *step, const sl_piece *pieces)
{
    void *array = p->steps;
    SL_TRY(sl_plan_poll(p));
    sluice_status st = grow(&array, p->step_count, &p->step_capacity, sizeof *step, "plan: steps");
    p->steps = array;
    SL_TRY(st);
    p->steps[p->step_count] = *step;
    p->steps[p->step_count].first_piece = p->piece_count;
    for (int k = 0; k < sl_step_operands(step); k++) SL_TRY(add_piece(p, pieces[k]));
    p->step_count++;
    return SLUICE_OK;
}

sluice_status sl_plan_add_wait(sl_plan *p, int step)
{
    void *array = p->waits;
    sluice_status st = grow(&array, p->wait_count, &p->wait_capacity, sizeof step, "plan: waits");
    p->waits = array;
    if (st == SLUICE_OK) p->waits[p->wait_count++] = step;
    return st;
}

sluice_status sl_plan_add_part(sl_plan *p, int layer)
{
    void *array = p->parts;
    sluice_status st = grow(&array, p->part_count, &p->part_capacity, sizeof layer, "plan: layers of collectives");
    p->parts = array;
    if (st == SLUICE_OK) p->parts[p->part_count++] = layer;
    return st;
}

/* ---- layer buffers ---- */

/* Bytes of the first `ranges` ranges of this rank's shard, which lie one after the other. */
static uint64_t shard_bytes(const sl_plan *p, sl_form form, int layer, int64_t ranges)
{
    const sl_shards *s = &p->layers[layer].shards;
    uint64_t bytes = 0;
    if (form != SL_FORM_BLOCKS8) { /* elements are alike: no need to walk */
        bool all = ranges >= sl_shard_range_count(s, p->options.rank);
        int64_t elements = all ? sl_shard_elements(s, p->options.rank) : sl_shard_offset(s, ranges);
        return (uint64_t)elements * sl_form_element_bytes(form);
    }
    for (int64_t i = 0; i < ranges; i++) {
        sl_range r = sl_shard_range(s, p->options.rank, i);
        bytes += sl_form_bytes(form, &p->graph->layers[layer], r.first, r.count);
    }
    return bytes;
}

uint64_t sl_plan_form_bytes(const sl_plan *p, sl_form form, int layer, bool shard)
{
    const sl_shards *s = &p->layers[layer].shards;
    if (shard) return shard_bytes(p, form, layer, sl_shard_range_count(s, p->options.rank));
    return sl_form_bytes(form, &p->graph->layers[layer], 0, s->elements);
}

sl_piece sl_plan_range_piece(const sl_plan *p, int buffer, sl_range range)
{
    const sl_buffer *b = &p->buffers[buffer];
    const sl_layer *layer = &p->graph->layers[b->layer];
    const sl_shards *s = &p->layers[b->layer].shards;
    uint64_t at = 0, bytes = sl_form_bytes(b->form, layer, range.first, range.count);
    int64_t begin = 0;
    if (b->shard) {
        int64_t index = sl_shard_range_at(s, p->options.rank, range.first);
        at = shard_bytes(p, b->form, b->layer, index);
        begin = sl_shard_range(s, p->options.rank, index).first;
    }
    return (sl_piece){ buffer, at + sl_form_bytes(b->form, layer, begin, range.first - begin), bytes };
}

/* ---- totals ---- */

/* The step at which a tier holds most: `change` gets the bytes of buffers that are born at each step, less those that
 * died before it. */
static int fullest_moment(const sl_plan *p, sl_tier tier, int64_t *change)
{
    memset(change, 0, ((size_t)p->step_count + 2) * sizeof *change);
    for (int i = 0; i < p->buffer_count; i++) {
        const sl_buffer *b = &p->buffers[i];
        if (b->tier != tier || b->last < 0 || b->permanent) continue;
        change[b->first] += (int64_t)b->bytes;
        change[b->last + 1] -= (int64_t)b->bytes;
    }
    int64_t live = 0, most = -1;
    int moment = 0;
    for (int i = 0; i <= p->step_count; i++) {
        live += change[i];
        if (live > most) most = live, moment = i;
    }
    return moment;
}

static sluice_status sum_memory(sl_plan *p)
{
    int64_t *change = sl_alloc_array((size_t)p->step_count + 2, sizeof *change, "plan: live bytes");
    if (change == NULL) return SLUICE_ERR_NO_MEMORY;
    for (int t = 0; t < SL_TIER_COUNT; t++) {
        uint64_t live = 0, *by_kind = p->totals.by_kind[t];
        int moment = fullest_moment(p, (sl_tier)t, change);
        memset(by_kind, 0, SL_BUFFER_KIND_COUNT * sizeof *by_kind);
        p->totals.naive[t] = 0;
        for (int i = 0; i < p->buffer_count; i++) {
            const sl_buffer *b = &p->buffers[i];
            if (b->tier != (sl_tier)t) continue;
            p->totals.naive[t] += b->bytes;
            if (b->first > moment || moment > b->last) continue;
            by_kind[b->kind] += b->bytes;
            live += b->bytes;
        }
        p->totals.fragmentation[t] = p->totals.peak[t] - live;
    }
    sl_free(change);
    return SLUICE_OK;
}

/* A gradient counts where its update finds it, with the sums it is made from; what only passes through does not. */
static bool is_kept_gradient(const sl_plan *p, int buffer)
{
    const sl_buffer *b = &p->buffers[buffer];
    const sl_layer_place *place = &p->layers[b->layer];
    bool sums = p->options.stage == 0 && place->state == SL_TIER_DEVICE && place->accumulator == buffer;
    return b->permanent || place->gradient == buffer || sums;
}

/* What this rank keeps on its device; staged copies do not count. */
static void sum_state(sl_plan *p)
{
    sl_plan_totals *t = &p->totals;
    t->state_parameters = t->state_gradients = t->state_optimizer = 0;
    for (int i = 0; i < p->buffer_count; i++) {
        const sl_buffer *b = &p->buffers[i];
        if (b->tier != SL_TIER_DEVICE || b->staged) continue;
        if (b->kind == SL_BUFFER_PARAMETERS) t->state_parameters += b->bytes;
        if (b->kind == SL_BUFFER_STATE) t->state_optimizer += b->bytes;
        if (b->kind == SL_BUFFER_GRADIENTS && is_kept_gradient(p, i)) t->state_gradients += b->bytes;
    }
}

/* ---- life ---- */

/* After the placement. */
static sluice_status finish(sl_plan *p)
{
    sl_packing_destroy(p->packing);
    p->packing = NULL;
    SL_TRY(sum_memory(p));
    sum_state(p);
    return sl_plan_verify(p);
}

/* `found`: NULL, or the placement that is to be taken. */
static sluice_status run_passes(sl_plan *p, const sl_usage *u, const sl_candidate *found)
{
    bool again = true;
    SL_TRY(sl_plan_partition(p, u));
    SL_TRY(sl_plan_weigh_layers(p, u));
    /* schedules, addresses and costs every candidate; the last one is the plan */
    if (found != NULL) {
        SL_TRY(sl_plan_place_as(p, u, found));
        return finish(p);
    }
    while (again) {
        SL_TRY(sl_plan_place(p, u));
        SL_TRY(sl_plan_reject(p, finish(p), &again));
    }
    return SLUICE_OK;
}

/* A plan before its passes; destroy both also after a failure. */
static sluice_status open_plan(const sluice_graph *g, const sl_machine *machine, const sl_plan_options *options,
                               sl_plan **out, sl_usage **usage)
{
    *usage = NULL;
    sl_plan *p = *out = sl_alloc(sizeof *p, "plan");
    if (p == NULL) return SLUICE_ERR_NO_MEMORY;
    p->graph = g;
    p->machine = *machine;
    p->options = *options;
    p->layers = sl_alloc_array((size_t)g->layer_count + 1, sizeof *p->layers, "plan: layers");
    p->input_buffers = sl_alloc_array((size_t)g->value_count + 1, sizeof *p->input_buffers, "plan: inputs");
    p->tables = sl_alloc_array((size_t)g->parameter_count + 1, sizeof *p->tables, "plan: tables");
    return p->layers && p->input_buffers && p->tables ? sl_usage_create(g, options->levels, usage)
                                                      : SLUICE_ERR_NO_MEMORY;
}

static sluice_status create(const sluice_graph *g, const sl_machine *machine, const sl_plan_options *options,
                            const sl_candidate *found, sl_plan **out, sl_plan_need *need)
{
    sl_usage *u;
    sl_plan *p;
    sluice_status st = open_plan(g, machine, options, &p, &u);
    if (st == SLUICE_OK) st = run_passes(p, u, found);
    sl_usage_destroy(u);
    if (st == SLUICE_ERR_NO_FIT && need != NULL) *need = p->refused;
    if (st == SLUICE_ERR_NO_FIT) { /* what was looked for to say in its message may have been stopped */
        sluice_status asked = sl_plan_poll(p);
        if (asked != SLUICE_OK) st = asked;
    }
    if (st != SLUICE_OK) {
        sl_plan_destroy(p);
        return st;
    }
    p->options.faults = NULL;
    *out = p;
    return SLUICE_OK;
}

sluice_status sl_plan_create(const sluice_graph *g, const sl_machine *machine, const sl_plan_options *options,
                             sl_plan **out)
{
    return create(g, machine, options, NULL, out, NULL);
}

sluice_status sl_plan_create_or_need(const sluice_graph *g, const sl_machine *machine, const sl_plan_options *options,
                                     sl_plan **out, sl_plan_need *need)
{
    return create(g, machine, options, NULL, out, need);
}

sluice_status sl_plan_create_placed(const sluice_graph *g, const sl_machine *machine, const sl_plan_options *options,
                                    const sl_candidate *placement, sl_plan **out)
{
    return create(g, machine, options, placement, out, NULL);
}

/* The plan of the best placement that can be planned; *out stays NULL where none fits. */
static sluice_status attempt(sl_search *s, const sl_plan_options *options, sl_plan **out, sl_plan_need *need)
{
    bool fits, again = true;
    while (again) {
        sl_candidate found;
        SL_TRY(sl_search_all(s, &found, &fits));
        if (!fits && need != NULL) SL_TRY(sl_search_need(s, false, need, &found, &fits));
        if (!fits) return SLUICE_OK;
        SL_TRY(sl_search_speculate(s, &found));
        sluice_status st = create(s->p->graph, &s->p->machine, options, &found, out, NULL);
        sl_search_place(s, &found);
        SL_TRY(sl_plan_reject(s->p, st, &again));
    }
    return SLUICE_OK;
}

sluice_status sl_plan_attempt(const sluice_graph *g, const sl_machine *machine, const sl_plan_options *options,
                              const sl_candidate *near, sl_plan **out, sl_plan_need *need)
{
    sl_candidate waiting, fast;
    sl_search s;
    sl_usage *u;
    sl_plan *p;
    *out = NULL;
    if (near != NULL) sl_candidate_pair(near, &waiting, &fast);
    sluice_status st = open_plan(g, machine, options, &p, &u);
    if (st == SLUICE_OK) st = sl_plan_partition(p, u);
    if (st == SLUICE_OK) st = sl_plan_weigh_layers(p, u);
    if (st == SLUICE_OK) {
        sl_search_open(&s, p, u);
        s.near = near != NULL ? &waiting : NULL;
        s.near_fast = near != NULL ? &fast : NULL;
        st = attempt(&s, options, out, need);
    }
    sl_usage_destroy(u);
    sl_plan_destroy(p);
    return st;
}

sluice_status sl_plan_create_for_rank(const sl_plan *of, const double *weights, int rank, sl_plan **out)
{
    sl_plan_options options = of->options;
    options.rank = rank;
    options.partition_weights = weights;
    return create(of->graph, &of->machine, &options, &of->placement, out, NULL);
}

sluice_status sl_plan_least(const sluice_graph *g, const sl_machine *machine, const sl_plan_options *options,
                            sl_plan_need *out)
{
    sl_usage *u;
    sl_plan *p;
    sluice_status st = open_plan(g, machine, options, &p, &u);
    if (st == SLUICE_OK) st = sl_plan_partition(p, u);
    if (st == SLUICE_OK) st = sl_plan_weigh_layers(p, u);
    if (st == SLUICE_OK) st = sl_plan_need_of(p, u, out);
    sl_usage_destroy(u);
    sl_plan_destroy(p);
    return st;
}

void sl_plan_destroy(sl_plan *p)
{
    if (p == NULL) return;
    void *owned[] = { p->layers, p->buffers, p->pieces,        p->steps,      p->waits,       p->parts,
                      p->bounds, p->tables,  p->input_buffers, p->value_cuts, p->value_bounds };
    for (size_t i = 0; i < sizeof owned / sizeof owned[0]; i++) sl_free(owned[i]);
    sl_grouping_destroy(p->grouping);
    sl_packing_destroy(p->packing);
    sl_free(p);
}

uint64_t sl_plan_fingerprint(const sl_plan *p)
{
    uint64_t hash = SL_HASH_START;
    for (int k = 0; k < SL_SEGMENT_COUNT; k++) {
        hash = sl_hash_number(hash, k);
        for (int i = 0; i < p->segments[k].step_count; i++) {
            const sl_step *s = &p->steps[p->segments[k].first_step + i];
            if (!sl_is_collective(s)) continue;
            hash = sl_hash_number(sl_hash_number(hash, s->kind), s->input_count);
            hash = sl_hash_number(hash, p->buffers[p->pieces[s->first_piece + s->input_count].buffer].form);
            for (int part = 0; part < s->output_count; part++) {
                int layer = p->parts[s->first_part + part];
                hash = sl_hash_number(sl_hash_number(hash, layer), p->graph->layers[layer].element_count);
                if (s->kind == SL_STEP_GATHER_VALUE) hash = sl_hash_number(hash, p->value_cuts[s->node].elements);
            }
        }
    }
    return hash;
}

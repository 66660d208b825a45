/* partition.c: who owns which piece of every layer's flat buffer.
 *
 * Cuts are at multiples of 1,024 elements, so that no norm leaf is split (exact rule 3). At every stage each element
 * has one owner, who sums its gradient and saves it; the stage decides what else follows the owner. The cut depends on
 * graph, ranks and rule alone, so every rank computes everybody's. Norm leaves are numbered here, layers in graph
 * order, because the numbering must not depend on who computes a leaf. */
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/bytes.h"
#include "core/norm_nodes.h"
#include "ir/form.h"
#include "plan/passes.h"

typedef struct cutter {
    const sl_plan *p;
    int ranks;
    int64_t *load;  /* elements that each rank owns so far */
    double *weight; /* WEIGHTED: sums of the weights of ranks [0, r]; otherwise unused */
    int *order;     /* scratch: ranks or layers */
} cutter;

typedef struct keyed {
    int64_t key;
    int index;
} keyed;

static int by_key(const void *a, const void *b)
{
    const keyed *x = a, *y = b;
    if (x->key != y->key) return x->key < y->key ? -1 : 1;
    return x->index < y->index ? -1 : 1;
}

/* Indices in increasing order of their keys; equal ones by index. */
static sluice_status sort_by(const int64_t *keys, int count, int sign, int *order)
{
    keyed *sorted = sl_alloc_array((size_t)count + 1, sizeof *sorted, "plan: order of owners");
    if (sorted == NULL) return SLUICE_ERR_NO_MEMORY;
    for (int i = 0; i < count; i++) sorted[i] = (keyed){ sign * keys[i], i };
    qsort(sorted, (size_t)count, sizeof *sorted, by_key);
    for (int i = 0; i < count; i++) order[i] = sorted[i].index;
    sl_free(sorted);
    return SLUICE_OK;
}

/* Leaves of the rest in equal parts; the ranks that own least so far take one more each where it does not divide, so
 * that all ranks own the same to within one leaf. */
static sluice_status cut_evenly(cutter *c, int64_t begin, int64_t elements, int64_t *bounds)
{
    int64_t leaves = sl_ceil_div(elements - begin, SL_CUT_ELEMENTS), extra = leaves % c->ranks;
    SL_TRY(sort_by(c->load, c->ranks, 1, c->order));
    for (int r = 0; r < c->ranks; r++) bounds[r + 1] = leaves / c->ranks;
    for (int64_t i = 0; i < extra; i++) bounds[c->order[i] + 1]++;
    bounds[0] = begin;
    for (int r = 0; r < c->ranks; r++) {
        int64_t end = bounds[r] + bounds[r + 1] * SL_CUT_ELEMENTS;
        bounds[r + 1] = end < elements ? end : elements;
    }
    return SLUICE_OK;
}

static void cut_by_weight(const cutter *c, int64_t elements, int64_t *bounds)
{
    int64_t leaves = sl_ceil_div(elements, SL_CUT_ELEMENTS);
    bounds[0] = 0;
    for (int r = 0; r < c->ranks; r++) {
        double share = c->weight[r] / c->weight[c->ranks - 1];
        int64_t end = (int64_t)((double)leaves * share + 0.5) * SL_CUT_ELEMENTS;
        bounds[r + 1] = end < elements && r + 1 < c->ranks ? end : elements;
    }
}

/* The whole layer to the rank that owns least so far. */
static void give_whole(const cutter *c, int64_t elements, int64_t *bounds)
{
    int owner = 0;
    for (int r = 1; r < c->ranks; r++)
        if (c->load[r] < c->load[owner]) owner = r;
    for (int r = 0; r <= c->ranks; r++) bounds[r] = r > owner ? elements : 0;
}

static sluice_status cut_layer(cutter *c, int layer, sl_shards *s, int64_t *bounds)
{
    const sl_plan_options *o = &c->p->options;
    int64_t elements = c->p->graph->layers[layer].element_count;
    *s = (sl_shards){ .rank_count = c->ranks, .elements = elements, .bounds = bounds };
    if (o->partition == SLUICE_PARTITION_BLOCK) {
        int64_t block = o->partition_block > 0 ? o->partition_block : SL_PARTITION_BLOCK;
        s->block = sl_ceil_div(block, SL_CUT_ELEMENTS) * SL_CUT_ELEMENTS;
        s->rounds = elements / (s->block * c->ranks);
    }
    if (o->partition == SLUICE_PARTITION_OWNER)
        give_whole(c, elements, bounds);
    else if (o->partition == SLUICE_PARTITION_WEIGHTED)
        cut_by_weight(c, elements, bounds);
    else
        SL_TRY(cut_evenly(c, s->rounds * s->block * c->ranks, elements, bounds));
    for (int r = 0; r < c->ranks; r++) c->load[r] += sl_shard_elements(s, r);
    return SLUICE_OK;
}

/* Whole layers go to owners largest first: that evens out best. The other rules take the layers as they come. */
static sluice_status cut_layers(cutter *c, sl_plan *p, const int64_t *sizes, int *order)
{
    int count = p->graph->layer_count;
    bool by_size = p->options.partition == SLUICE_PARTITION_OWNER;
    if (by_size) SL_TRY(sort_by(sizes, count, -1, order));
    for (int i = 0; i < count; i++) {
        int layer = by_size ? order[i] : i;
        SL_TRY(cut_layer(c, layer, &p->layers[layer].shards, p->bounds + (int64_t)layer * (c->ranks + 1)));
    }
    return SLUICE_OK;
}

/* ---- what cannot be cut ---- */

static bool needs_whole_parameters(const sluice_graph *g)
{
    for (int n = g->forward_count + g->backward_count; n < g->node_count; n++) {
        if (g->nodes[n].op != SL_OP_UPDATE || g->nodes[n].attrs.update == NULL) continue;
        if (sl_updates[g->nodes[n].attrs.update->kind].whole_parameters) return true;
    }
    return false;
}

bool sl_plan_may_cut(const sluice_graph *g, const sl_plan_options *o)
{
    return o->rank_count == 1 || o->stage == 0 || o->partition == SLUICE_PARTITION_OWNER || !needs_whole_parameters(g);
}

static sluice_status check_options(const sl_plan *p)
{
    const sl_plan_options *o = &p->options;
    if (o->rank_count < 1 || o->rank < 0 || o->rank >= o->rank_count || o->stage < 0 || o->stage > 3)
        return sl_fail(SLUICE_ERR_USAGE, "plan: rank %d of %d at stage %d", o->rank, o->rank_count, o->stage);
    if (!sl_plan_may_cut(p->graph, o))
        return sl_fail(SLUICE_ERR_USAGE,
                       "LAMB and LARS scale a step by norms of whole parameters, which partition "
                       "\"%s\" would cut: set zero_optimization.partition to \"owner\", or stage 0",
                       sl_partition_name(o->partition));
    return SLUICE_OK;
}

const char *sl_partition_name(sluice_partition rule)
{
    static const char *const names[] = { "layer", "block", "owner", "weighted" };
    return (unsigned)rule < sizeof names / sizeof names[0] ? names[rule] : "unknown";
}

static sluice_status sum_weights(const cutter *c, const sl_plan_options *o)
{
    const double *given = o->partition_weights;
    double sum = 0;
    if (o->partition != SLUICE_PARTITION_WEIGHTED) return SLUICE_OK;
    for (int r = 0; r < c->ranks; r++) {
        double weight = given != NULL ? given[r] : 1.0;
        if (!(weight >= 0 && weight < 1e18))
            return sl_fail(SLUICE_ERR_USAGE, "partition weight of rank %d is %g; it must be 0 or more", r, weight);
        c->weight[r] = sum += weight;
    }
    if (sum > 0) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_USAGE, "partition weights are all 0: nobody would own anything");
}

/* ---- the pass ---- */

static void number_leaves(sl_plan *p, const sl_usage *u)
{
    p->leaf_count = 0;
    for (int i = 0; i < p->graph->layer_count; i++) {
        p->layers[i].leaf_first = p->leaf_count;
        if (u->last_gradient_node[i] >= 0)
            p->leaf_count += sl_ceil_div(p->graph->layers[i].element_count, SL_CUT_ELEMENTS);
    }
}

/* Leaves of elements `range`. */
static sl_range leaves_of(sl_range range)
{
    return (sl_range){ range.first / SL_CUT_ELEMENTS, sl_ceil_div(range.count, SL_CUT_ELEMENTS) };
}

/* How many nodes the leaves of every rank make. A rank has one run of leaves in a layer. */
static void number_nodes(sl_plan *p, const sl_usage *u)
{
    int ranks = p->options.rank_count;
    int64_t *bounds = p->bounds + ((int64_t)p->graph->layer_count + 1) * (ranks + 1);
    p->node_count = 0;
    if (!sl_combines_norm(p)) return;
    for (int i = 0; i < p->graph->layer_count; i++, bounds += ranks + 1) {
        sl_layer_place *place = &p->layers[i];
        place->node_first = p->node_count;
        if (u->last_gradient_node[i] < 0) continue;
        bounds[0] = 0;
        for (int r = 0; r < ranks; r++) {
            sl_range run =
                leaves_of((sl_range){ place->shards.bounds[r], place->shards.bounds[r + 1] - place->shards.bounds[r] });
            int64_t first = place->leaf_first + run.first;
            bounds[r + 1] = bounds[r] + sl_norm_node_count(first, first + run.count);
        }
        place->nodes = (sl_shards){ .rank_count = ranks, .elements = bounds[ranks], .bounds = bounds };
        p->node_count += bounds[ranks];
    }
}

static sluice_status partition(cutter *c, sl_plan *p)
{
    int layers = p->graph->layer_count;
    int64_t *sizes = sl_alloc_array((size_t)layers + 1, sizeof *sizes, "plan: layer sizes");
    int *order = sl_alloc_array((size_t)layers + 1, sizeof *order, "plan: layers by size");
    sluice_status st = sizes != NULL && order != NULL ? sum_weights(c, &p->options) : SLUICE_ERR_NO_MEMORY;
    for (int i = 0; st == SLUICE_OK && i < layers; i++) sizes[i] = p->graph->layers[i].element_count;
    if (st == SLUICE_OK) st = cut_layers(c, p, sizes, order);
    sl_free(sizes);
    sl_free(order);
    return st;
}

/* Each rank has one part of what it gathers, all of a size. */
static sluice_status cut_values(sl_plan *p)
{
    const sluice_graph *g = p->graph;
    const int ranks = p->options.rank_count;
    size_t count = 0;
    for (int n = 0; n < g->node_count; n++) count += sl_ops[g->nodes[n].op].gathers;
    if (count == 0 || ranks == 1) return SLUICE_OK;
    p->value_cuts = sl_alloc_array((size_t)g->node_count, sizeof *p->value_cuts, "plan: cuts of values");
    p->value_bounds = sl_alloc_array(count * ((size_t)ranks + 1), sizeof *p->value_bounds, "plan: cuts of values");
    if (p->value_cuts == NULL || p->value_bounds == NULL) return SLUICE_ERR_NO_MEMORY;
    int64_t *bounds = p->value_bounds;
    for (int n = 0; n < g->node_count; n++) {
        if (!sl_ops[g->nodes[n].op].gathers) continue;
        const int64_t elements = sl_shape_elements(&g->values[g->nodes[n].outputs[0]].shape);
        for (int r = 0; r <= ranks; r++) bounds[r] = elements / ranks * r;
        p->value_cuts[n] = (sl_shards){ .rank_count = ranks, .elements = elements, .bounds = bounds };
        bounds += ranks + 1;
    }
    return SLUICE_OK;
}

sluice_status sl_plan_partition(sl_plan *p, const sl_usage *u)
{
    SL_TRY(check_options(p));
    size_t ranks = (size_t)p->options.rank_count;
    cutter c = { .p = p, .ranks = p->options.rank_count };
    c.load = sl_alloc_array(ranks, sizeof *c.load, "plan: owned elements");
    c.weight = sl_alloc_array(ranks, sizeof *c.weight, "plan: rank weights");
    c.order = sl_alloc_array(ranks, sizeof *c.order, "plan: rank order");
    p->bounds = sl_alloc_array(((size_t)p->graph->layer_count + 1) * (ranks + 1) * 2, sizeof *p->bounds, "plan: cuts");
    sluice_status st = c.load != NULL && c.weight != NULL && c.order != NULL && p->bounds != NULL
                           ? partition(&c, p)
                           : SLUICE_ERR_NO_MEMORY;
    sl_free(c.load);
    sl_free(c.weight);
    sl_free(c.order);
    if (st != SLUICE_OK) return st;
    number_leaves(p, u);
    number_nodes(p, u);
    return cut_values(p);
}

int sl_plan_heaviest_rank(const sl_plan *p)
{
    int64_t most = -1;
    int heaviest = 0;
    for (int r = 0; r < p->options.rank_count; r++) {
        int64_t owned = 0;
        for (int i = 0; i < p->graph->layer_count; i++) owned += sl_shard_elements(&p->layers[i].shards, r);
        if (owned > most) most = owned, heaviest = r;
    }
    return heaviest;
}

/* ---- norm ---- */

bool sl_combines_norm(const sl_plan *p)
{
    bool many = p->options.small_norm_nodes || p->leaf_count >= SL_NORM_NODES_FROM;
    return many && sl_cuts_state(p) && p->options.partition != SLUICE_PARTITION_BLOCK;
}

sl_range sl_plan_kept_leaves(const sl_plan *p, int layer)
{
    const sl_shards *s = &p->layers[layer].shards;
    int rank = p->options.rank;
    if (!sl_combines_norm(p)) return leaves_of((sl_range){ 0, s->elements });
    return leaves_of((sl_range){ s->bounds[rank], s->bounds[rank + 1] - s->bounds[rank] });
}

void sl_plan_keep_leaves(sl_plan *p, const sl_usage *u)
{
    p->kept_count = 0;
    for (int i = 0; i < p->graph->layer_count; i++) {
        p->layers[i].leaf_kept = p->kept_count;
        if (u->last_gradient_node[i] >= 0) p->kept_count += sl_plan_kept_leaves(p, i).count;
    }
}

sl_piece sl_plan_leaf_piece(const sl_plan *p, int layer, sl_range leaves, int buffer)
{
    int64_t first = p->layers[layer].leaf_kept + leaves.first - sl_plan_kept_leaves(p, layer).first;
    return (sl_piece){ buffer, (uint64_t)first * sizeof(double), (uint64_t)leaves.count * sizeof(double) };
}

sl_part_cut sl_plan_norm_cut(const sl_plan *p, int layer)
{
    const sl_layer_place *place = &p->layers[layer];
    if (sl_combines_norm(p)) return (sl_part_cut){ &place->nodes, 1, sizeof(sl_norm_node) };
    return (sl_part_cut){ &place->shards, SL_CUT_ELEMENTS, sizeof(double) };
}

sl_part_cut sl_plan_cut_of(const sl_plan *p, sl_step_kind kind, int layer, int node, sl_form form)
{
    if (kind == SL_STEP_GATHER_NORM) return sl_plan_norm_cut(p, layer);
    const sl_shards *shards = kind == SL_STEP_GATHER_VALUE ? &p->value_cuts[node] : &p->layers[layer].shards;
    return (sl_part_cut){ shards, 1, sl_form_element_bytes(form) };
}

/* Elements of a whole are those of contributions, where these go into sums elsewhere. */
sl_part_cut sl_plan_part_cut(const sl_plan *p, const sl_step *s, int k)
{
    const bool reduces = s->kind == SL_STEP_REDUCE_SCATTER && s->input_count > 0;
    const sl_piece whole = p->pieces[s->first_piece + (reduces ? k : s->input_count + k)];
    return sl_plan_cut_of(p, s->kind, p->parts[s->first_part + k], s->node, p->buffers[whole.buffer].form);
}

uint64_t sl_plan_norm_units(const sl_part_cut *part, int rank)
{
    const sl_shards *s = part->shards;
    int64_t rest = s->bounds[rank + 1] - s->bounds[rank];
    return (uint64_t)(s->rounds * (s->block / part->per) + sl_ceil_div(rest, part->per));
}

/* ---- owners of a parameter's elements ---- */

static sl_range run_of(const sl_parameter *q)
{
    return (sl_range){ q->offset, q->count };
}

int64_t sl_plan_table_room(const sl_plan *p, int parameter)
{
    return sl_ceil_div(p->graph->parameters[parameter].table.dim[0], p->options.rank_count);
}

sl_range sl_plan_table_rows(const sl_plan *p, int parameter, int rank)
{
    int64_t room = sl_plan_table_room(p, parameter), rows = p->graph->parameters[parameter].table.dim[0];
    return sl_range_common((sl_range){ room * rank, room }, (sl_range){ 0, rows });
}

int64_t sl_plan_owned_count(const sl_plan *p, int parameter, int rank)
{
    const sl_parameter *q = &p->graph->parameters[parameter];
    if (sl_parameter_is_compact(q)) return sl_plan_table_rows(p, parameter, rank).count > 0;
    const sl_shards *s = &p->layers[q->layer].shards;
    int64_t ranges = sl_shard_range_count(s, rank), first = sl_shard_range_at(s, rank, q->offset), n = first;
    while (n < ranges && sl_range_common(sl_shard_range(s, rank, n), run_of(q)).count > 0) n++;
    return n - first;
}

sl_range sl_plan_owned(const sl_plan *p, int parameter, int rank, int64_t index)
{
    const sl_parameter *q = &p->graph->parameters[parameter];
    if (sl_parameter_is_compact(q)) {
        sl_range rows = sl_plan_table_rows(p, parameter, rank);
        return (sl_range){ rows.first * q->table.dim[1], rows.count * q->table.dim[1] };
    }
    const sl_shards *s = &p->layers[q->layer].shards;
    int64_t at = sl_shard_range_at(s, rank, q->offset) + index;
    sl_range r = sl_range_common(sl_shard_range(s, rank, at), run_of(q));
    return (sl_range){ r.first - q->offset, r.count };
}

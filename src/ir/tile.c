/* tile.c: rewrites a built graph so that no parameter is larger than a limit.
 *
 * First it is decided how each parameter is cut, and everything that cannot be is refused; then the forward nodes are
 * written anew, in order, each op on a cut parameter as one op per tile. Values keep their indices: the first tile
 * takes the place of its whole, the last node of an expanded op writes what the op wrote. So the loss, the output and
 * every node that is only copied need no renaming. The old lists are kept until the new ones are complete. */
#include "ir/tile.h"

#include <inttypes.h>
#include <string.h>

#include "core/alloc.h"
#include "ir/op_rows.h"

enum { NO_OTHER_USE = -1, IS_OUTPUT = -2 };

/* How one parameter is used and cut. */
typedef struct cut {
    int reads;         /* operands that are this parameter or a view of it */
    bool is_table;     /* some embedding looks up its rows */
    int other;         /* a node that cannot read tiles, or one of the enum above */
    int rows, columns; /* blocks along each dimension as stored; 1 and 1: not cut. Vectors: blocks are rows */
    int first;         /* its first tile in tiler.parameters */
} cut;

/* What a graph was before it was rewritten. */
typedef struct saved {
    sl_node *nodes;
    sl_layer *layers;
    int node_count, node_capacity, layer_count, layer_capacity, value_count;
} saved;

typedef struct tiler {
    sluice_graph *g;
    uint64_t limit;
    cut *cuts;                /* per parameter of the untiled graph */
    sl_parameter *parameters; /* the new list */
    int parameter_count;
    int *inputs, *outputs; /* SL_MAX_TILES each: parts of an op's input and output while it is expanded */
    const sl_layer *from;  /* the untiled layer being copied */
    bool in_part;          /* the newest layer is a part of `from` that more nodes may join, not a tile */
    int parts, tiles;      /* layers made of `from` so far */
} tiler;

/* ---- deciding ---- */

static uint64_t parameter_bytes(const tiler *t, int p)
{
    return sl_value_bytes(&t->g->values[t->g->parameters[p].value]);
}

/* Whether it is read as a whole and larger than the limit. A sparse table is never on the device as a whole. */
static bool is_over(const tiler *t, int p)
{
    return parameter_bytes(t, p) > t->limit && t->cuts[p].reads > 0 && !t->g->parameters[p].is_sparse;
}

static bool is_cut(const cut *c)
{
    return c->rows > 1 || c->columns > 1;
}

static void note_read(tiler *t, int node, int input)
{
    const sl_node *n = &t->g->nodes[node];
    int root = t->g->values[n->inputs[input]].storage, p = t->g->values[root].parameter;
    if (p < 0) return;
    cut *c = &t->cuts[p];
    c->reads++;
    sl_tile_rule rule = sl_ops[n->op].tile;
    bool product = rule == SL_TILE_PRODUCT && input >= 1, table = rule == SL_TILE_TABLE && input == 1;
    bool readable = n->inputs[input] == root && (product || table);
    if (!readable && c->other == NO_OTHER_USE) c->other = node;
    if (table) c->is_table = true;
}

static void note_reads(tiler *t)
{
    const sluice_graph *g = t->g;
    for (int p = 0; p < g->parameter_count; p++) t->cuts[p] = (cut){ .other = NO_OTHER_USE, .rows = 1, .columns = 1 };
    for (int n = 0; n < g->forward_count; n++)
        for (int i = 0; i < g->nodes[n].input_count; i++) note_read(t, n, i);
    int output = g->output >= 0 ? g->values[g->values[g->output].storage].parameter : -1;
    if (output >= 0) t->cuts[output].other = IS_OUTPUT;
}

static sluice_status refuse(const tiler *t, int p, const char *why, uint64_t enough)
{
    return sl_fail(SLUICE_ERR_USAGE,
                   "parameter \"%.64s\" has %" PRIu64 " bytes, over memory.tile_bytes %" PRIu64
                   ", and cannot be cut to that: %s; give memory.tile_bytes %" PRIu64 " or more, or 0 for no tiles",
                   t->g->parameters[p].name, parameter_bytes(t, p), t->limit, why, enough);
}

static sluice_status refuse_other(const tiler *t, int p)
{
    char why[192];
    int other = t->cuts[p].other;
    if (other == IS_OUTPUT) return refuse(t, p, "it is the graph's output", parameter_bytes(t, p));
    const sl_node *n = &t->g->nodes[other];
    snprintf(why, sizeof why, "%s \"%.64s\" reads it, and only linear and embedding can read tiles", sl_ops[n->op].name,
             n->name);
    return refuse(t, p, why, parameter_bytes(t, p));
}

static int64_t divide_up(int64_t a, int64_t b)
{
    return a / b + (a % b != 0);
}

/* A linear's weight or an embedding's table, known to be over the limit. */
static sluice_status cut_matrix(tiler *t, int p)
{
    const sl_value *v = &t->g->values[t->g->parameters[p].value];
    cut *c = &t->cuts[p];
    int along = c->is_table ? 1 : 0;
    int64_t slices = v->shape.dim[along], slice = v->shape.dim[1 - along];
    int64_t room = (int64_t)(t->limit / sl_dtype_bytes(v->dtype)); /* elements */
    uint64_t enough = (uint64_t)slice * (uint64_t)divide_up(slices, SL_MAX_TILES) * sl_dtype_bytes(v->dtype);
    if (c->is_table && slice > room)
        return refuse(t, p, "an embedding's table is cut along its columns, and one is larger", enough);
    if (room < 1) return refuse(t, p, "one element is larger", enough);
    int64_t blocks = slice <= room ? divide_up(slices, room / slice) : slices;
    int64_t across = slice <= room ? 1 : divide_up(slice, room);
    char why[96];
    snprintf(why, sizeof why, "that makes over %d tiles", SL_MAX_TILES);
    if (blocks > SL_MAX_TILES || across > SL_MAX_TILES / blocks) return refuse(t, p, why, enough);
    c->rows = (int)(along == 0 ? blocks : across);
    c->columns = (int)(along == 0 ? across : blocks);
    return SLUICE_OK;
}

static sluice_status cut_matrices(tiler *t)
{
    const sluice_graph *g = t->g;
    for (int p = 0; p < g->parameter_count; p++) {
        if (!is_over(t, p)) continue;
        if (t->cuts[p].other != NO_OTHER_USE) return refuse_other(t, p);
        if (g->values[g->parameters[p].value].shape.rank == 2) SL_TRY(cut_matrix(t, p));
    }
    return SLUICE_OK;
}

/* The cut parameter that a node reads tile by tile; -1: none, the node stays as it is. */
static int tiled_operand(const tiler *t, const sl_node *n)
{
    if (sl_ops[n->op].tile <= SL_TILE_NEVER) return -1;
    int p = t->g->values[n->inputs[1]].parameter;
    return p >= 0 && is_cut(&t->cuts[p]) ? p : -1;
}

/* Blocks that the outputs of a linear on this parameter fall into. */
static int output_blocks(const cut *weight, const sl_node *linear)
{
    return linear->attrs.linear.in_out ? weight->columns : weight->rows;
}

/* A bias is cut with its outputs, whatever its size, so that each part lies beside the weights it belongs to. One with
 * other readers stays whole and is split where it is read. */
static void cut_biases(tiler *t)
{
    const sluice_graph *g = t->g;
    for (int n = 0; n < g->forward_count; n++) {
        const sl_node *node = &g->nodes[n];
        int weight = tiled_operand(t, node);
        if (weight < 0 || sl_ops[node->op].tile != SL_TILE_PRODUCT || node->input_count < 3) continue;
        int bias = g->values[node->inputs[2]].parameter;
        if (bias < 0 || t->cuts[bias].reads != 1 || t->cuts[bias].other != NO_OTHER_USE) continue;
        t->cuts[bias].rows = output_blocks(&t->cuts[weight], node);
    }
}

static sluice_status check_vectors(const tiler *t)
{
    for (int p = 0; p < t->g->parameter_count; p++)
        if (is_over(t, p) && !is_cut(&t->cuts[p]))
            return refuse(t, p, "it is a bias that is read whole", parameter_bytes(t, p));
    return SLUICE_OK;
}

static sluice_status decide(tiler *t)
{
    note_reads(t);
    SL_TRY(cut_matrices(t));
    cut_biases(t);
    return check_vectors(t);
}

/* ---- the new parameters ---- */

/* Blocks of a dimension differ by one element at most, longer ones first. */
static int64_t block_start(int64_t size, int blocks, int i)
{
    int64_t longer = size % blocks;
    return size / blocks * i + (i < longer ? i : longer);
}

static int64_t block_size(int64_t size, int blocks, int i)
{
    return size / blocks + (i < size % blocks);
}

static sl_shape tile_shape(const sl_shape *whole, const cut *c, int tile)
{
    sl_shape s = *whole;
    s.dim[0] = block_size(whole->dim[0], c->rows, tile / c->columns);
    if (s.rank > 1) s.dim[1] = block_size(whole->dim[1], c->columns, tile % c->columns);
    return s;
}

/* Appends one tile to the new list. The first one keeps its whole's value, which takes its shape in install(). */
static sluice_status add_tile(tiler *t, int p, int tile)
{
    sluice_graph *g = t->g;
    const cut *c = &t->cuts[p];
    sl_parameter made = g->parameters[p];
    made.whole = made.name;
    made.whole_shape = g->values[made.value].shape;
    sl_shape shape = tile_shape(&made.whole_shape, c, tile);
    made.row0 = block_start(made.whole_shape.dim[0], c->rows, tile / c->columns);
    made.col0 = shape.rank > 1 ? block_start(made.whole_shape.dim[1], c->columns, tile % c->columns) : 0;
    made.count = sl_shape_elements(&shape);
    made.name = sl_arena_printf(&g->arena, "%s.tile%d", made.whole, tile); /* builders give no such names */
    if (made.name == NULL) return SLUICE_ERR_NO_MEMORY;
    if (tile > 0) {
        made.value = sl_graph_add_value(g, SL_VALUE_PARAMETER, g->values[made.value].dtype, &shape, made.name);
        if (made.value < 0) return (sluice_status)-made.value;
    }
    t->parameters[t->parameter_count++] = made;
    return SLUICE_OK;
}

static sluice_status make_parameters(tiler *t)
{
    const sluice_graph *g = t->g;
    size_t count = 0;
    for (int p = 0; p < g->parameter_count; p++) count += (size_t)t->cuts[p].rows * (size_t)t->cuts[p].columns;
    if (count > INT32_MAX / 2) return sl_fail(SLUICE_ERR_USAGE, "memory.tile_bytes makes %zu tiles: raise it", count);
    t->parameters = sl_alloc_array(count, sizeof *t->parameters, "graph parameters");
    if (t->parameters == NULL) return SLUICE_ERR_NO_MEMORY;
    for (int p = 0; p < g->parameter_count; p++) {
        cut *c = &t->cuts[p];
        c->first = t->parameter_count;
        if (!is_cut(c)) t->parameters[t->parameter_count++] = g->parameters[p];
        for (int k = 0; is_cut(c) && k < c->rows * c->columns; k++) SL_TRY(add_tile(t, p, k));
    }
    return SLUICE_OK;
}

static int tile_value(const tiler *t, int p, int row, int column)
{
    return t->parameters[t->cuts[p].first + row * t->cuts[p].columns + column].value;
}

/* ---- the new layers and nodes ---- */

/* `name` is in the graph's arena, or NULL for want of memory. */
static sluice_status open_layer(tiler *t, const char *name)
{
    sluice_graph *g = t->g;
    if (name == NULL) return SLUICE_ERR_NO_MEMORY;
    SL_TRY(sl_grow((void **)&g->layers, &g->layer_capacity, g->layer_count + 1, sizeof *g->layers, "graph layers"));
    g->layers[g->layer_count++] = (sl_layer){ .name = name, .first_node = g->node_count };
    return SLUICE_OK;
}

/* From here on nodes go to a layer for one tile. */
static sluice_status open_tile(tiler *t)
{
    t->in_part = false;
    return open_layer(t, sl_arena_printf(&t->g->arena, "%s.tile%d", t->from->name, t->tiles++));
}

/* From here on nodes go to a layer of what is not tiled. */
static sluice_status open_part(tiler *t)
{
    if (t->in_part) return SLUICE_OK;
    t->in_part = true;
    int part = t->parts++;
    return open_layer(t, part == 0 ? t->from->name : sl_arena_printf(&t->g->arena, "%s.part%d", t->from->name, part));
}

static sluice_status place(tiler *t, const sl_node *node)
{
    sl_node placed = *node;
    placed.layer = t->g->layer_count - 1;
    int index = sl_graph_add_node(t->g, &placed);
    if (index < 0) return (sluice_status)-index;
    t->g->layers[placed.layer].node_count++;
    return SLUICE_OK;
}

/* Places a node with one output. *value < 0: it is made, shaped as `like` with `width` as last dimension, and has the
 * node's name, which is in the arena or NULL for want of memory. */
static sluice_status emit(tiler *t, sl_node *node, int like, int64_t width, int *value)
{
    if (node->name == NULL) return SLUICE_ERR_NO_MEMORY;
    if (*value < 0) {
        sl_shape shape = t->g->values[like].shape;
        shape.dim[shape.rank - 1] = width;
        *value = sl_graph_add_value(t->g, SL_VALUE_ACTIVATION, SLUICE_F32, &shape, node->name);
        if (*value < 0) return (sluice_status) - *value;
    }
    node->phase = SL_PHASE_FORWARD;
    node->forward_of = -1;
    node->output_count = 1;
    for (int i = 1; i < SL_MAX_OUTPUTS; i++) node->outputs[i] = -1;
    node->outputs[0] = *value;
    return place(t, node);
}

/* Block i of `blocks` of x's last dimension. */
static sluice_status emit_split(tiler *t, int x, int blocks, int i, const char *name, int *value)
{
    const sl_shape *s = &t->g->values[x].shape;
    int axis = s->rank - 1;
    int64_t start = block_start(s->dim[axis], blocks, i), size = block_size(s->dim[axis], blocks, i);
    sl_node node = { .op = SL_OP_SPLIT, .name = name, .input_count = 1, .inputs = { x } };
    node.attrs.split.axis = axis;
    node.attrs.split.start = start;
    node.attrs.split.size = size;
    *value = -1;
    return emit(t, &node, x, size, value);
}

static sluice_status emit_concat(tiler *t, const int *parts, int count, const char *name, int *value)
{
    sl_node node = { .op = SL_OP_CONCAT, .name = name, .input_count = count };
    int64_t width = 0;
    for (int i = 0; i < count; i++) {
        node.inputs[i] = parts[i];
        width += sl_shape_last(&t->g->values[parts[i]].shape);
    }
    node.attrs.concat.axis = t->g->values[parts[0]].shape.rank - 1;
    return emit(t, &node, parts[0], width, value);
}

/* Joins the parts in t->outputs along their last dimension into what `node` wrote: eight at a time, as often as that
 * takes. */
static sluice_status join_outputs(tiler *t, const sl_node *node, int count)
{
    int *parts = t->outputs, output = node->outputs[0], joins = 0;
    SL_TRY(open_part(t));
    while (count > SL_MAX_INPUTS) {
        int groups = 0;
        for (int i = 0; i < count; i += SL_MAX_INPUTS) {
            int size = count - i < SL_MAX_INPUTS ? count - i : SL_MAX_INPUTS, joined = -1;
            if (size == 1)
                joined = parts[i];
            else
                SL_TRY(emit_concat(t, parts + i, size, sl_arena_printf(&t->g->arena, "%s.join%d", node->name, joins++),
                                   &joined));
            parts[groups++] = joined;
        }
        count = groups;
    }
    return emit_concat(t, parts, count, node->name, &output);
}

/* An embedding on a table of column tiles: each gives its columns of every row. */
static sluice_status expand_embedding(tiler *t, const sl_node *node, int table)
{
    const cut *c = &t->cuts[table];
    int64_t width = sl_shape_last(&t->g->values[node->outputs[0]].shape);
    for (int j = 0; j < c->columns; j++) {
        sl_node part = *node;
        part.inputs[1] = tile_value(t, table, 0, j);
        part.name = sl_arena_printf(&t->g->arena, "%s.tile%d", node->name, j);
        t->outputs[j] = -1;
        SL_TRY(open_tile(t));
        SL_TRY(emit(t, &part, node->outputs[0], block_size(width, c->columns, j), &t->outputs[j]));
    }
    return join_outputs(t, node, c->columns);
}

/* A linear being expanded: a grid of `outs` blocks of outputs by `ins` blocks of inputs. */
typedef struct expansion {
    const sl_node *node;
    int weight; /* parameter of the untiled graph */
    int outs, ins;
} expansion;

/* The part of the bias that block `out` adds: its own tile, the whole, or a piece of a whole that others read too. */
static sluice_status bias_part(tiler *t, const expansion *e, int out, int *value)
{
    int bias = e->node->inputs[2], p = t->g->values[bias].parameter;
    *value = bias;
    if (e->outs == 1) return SLUICE_OK;
    if (p >= 0 && is_cut(&t->cuts[p])) {
        *value = tile_value(t, p, out, 0);
        return SLUICE_OK;
    }
    return emit_split(t, bias, e->outs, out, sl_arena_printf(&t->g->arena, "%s.bias%d", e->node->name, out), value);
}

/* The input of block `in`. Blocks of outputs share one copy of it, made where it is first needed. */
static sluice_status input_part(tiler *t, const expansion *e, int out, int in, int *value)
{
    if (e->ins > 1 && out == 0)
        SL_TRY(emit_split(t, e->node->inputs[0], e->ins, in,
                          sl_arena_printf(&t->g->arena, "%s.input%d", e->node->name, in), &t->inputs[in]));
    *value = e->ins > 1 ? t->inputs[in] : e->node->inputs[0];
    return SLUICE_OK;
}

/* One tile's linear in a layer of its own, added to the sum of the tiles before it, t->outputs[out], where there are
 * some. The sum follows at once, so that at most two terms exist at a time. */
static sluice_status expand_tile(tiler *t, const expansion *e, int out, int in)
{
    const sl_node *node = e->node;
    bool in_out = node->attrs.linear.in_out, last = e->outs == 1 && in == e->ins - 1;
    int64_t width = block_size(sl_shape_last(&t->g->values[node->outputs[0]].shape), e->outs, out);
    int number = out * e->ins + in, product = -1, sum = last ? node->outputs[0] : -1;
    sl_node part = *node;
    part.input_count = in == 0 ? node->input_count : 2;
    part.inputs[1] = in_out ? tile_value(t, e->weight, in, out) : tile_value(t, e->weight, out, in);
    part.name = sl_arena_printf(&t->g->arena, "%s.tile%d", node->name, number);
    SL_TRY(open_tile(t));
    SL_TRY(input_part(t, e, out, in, &part.inputs[0]));
    if (part.input_count > 2) SL_TRY(bias_part(t, e, out, &part.inputs[2]));
    SL_TRY(emit(t, &part, node->outputs[0], width, &product));
    if (in > 0) {
        sl_node add = { .op = SL_OP_ADD, .input_count = 2, .inputs = { t->outputs[out], product } };
        add.name = last ? node->name : sl_arena_printf(&t->g->arena, "%s.sum%d", node->name, number);
        SL_TRY(emit(t, &add, node->outputs[0], width, &sum));
    }
    t->outputs[out] = in > 0 ? sum : product;
    return SLUICE_OK;
}

static sluice_status expand_linear(tiler *t, const sl_node *node, int weight)
{
    const cut *c = &t->cuts[weight];
    int outs = output_blocks(c, node);
    expansion e = { .node = node, .weight = weight, .outs = outs, .ins = c->rows * c->columns / outs };
    for (int out = 0; out < e.outs; out++)
        for (int in = 0; in < e.ins; in++) SL_TRY(expand_tile(t, &e, out, in));
    return e.outs > 1 ? join_outputs(t, node, e.outs) : SLUICE_OK;
}

static sluice_status rewrite_nodes(tiler *t, const saved *old)
{
    for (int n = 0; n < old->node_count; n++) {
        const sl_node *node = &old->nodes[n];
        if (n == 0 || node->layer != old->nodes[n - 1].layer) {
            t->from = &old->layers[node->layer];
            t->in_part = false;
            t->parts = t->tiles = 0;
        }
        int p = tiled_operand(t, node);
        if (p < 0) {
            SL_TRY(open_part(t));
            SL_TRY(place(t, node));
        } else if (sl_ops[node->op].tile == SL_TILE_PRODUCT) {
            SL_TRY(expand_linear(t, node, p));
        } else {
            SL_TRY(expand_embedding(t, node, p));
        }
    }
    return SLUICE_OK;
}

/* ---- the change as a whole ---- */

/* Takes the nodes and layers out of the graph, so that they are written anew. */
static saved take_out(sluice_graph *g)
{
    saved old = { .nodes = g->nodes,
                  .layers = g->layers,
                  .node_count = g->node_count,
                  .node_capacity = g->node_capacity,
                  .layer_count = g->layer_count,
                  .layer_capacity = g->layer_capacity,
                  .value_count = g->value_count };
    g->nodes = NULL;
    g->layers = NULL;
    g->node_count = g->node_capacity = g->forward_count = g->layer_count = g->layer_capacity = 0;
    for (int v = 0; v < g->value_count; v++) g->values[v].producer = -1;
    return old;
}

/* The graph as it was; names stay in its arena. */
static void put_back(sluice_graph *g, const saved *old)
{
    sl_free(g->nodes);
    sl_free(g->layers);
    g->nodes = old->nodes;
    g->layers = old->layers;
    g->node_count = g->forward_count = old->node_count;
    g->node_capacity = old->node_capacity;
    g->layer_count = old->layer_count;
    g->layer_capacity = old->layer_capacity;
    g->value_count = old->value_count;
    for (int n = 0; n < g->node_count; n++)
        for (int i = 0; i < g->nodes[n].output_count; i++) g->values[g->nodes[n].outputs[i]].producer = n;
}

/* Takes over the new parameters. Nothing can fail from here on. */
static void install(tiler *t, const saved *old)
{
    sluice_graph *g = t->g;
    for (int p = 0; p < g->parameter_count; p++) {
        const cut *c = &t->cuts[p];
        sl_value *v = &g->values[g->parameters[p].value];
        if (!is_cut(c)) continue;
        v->name = t->parameters[c->first].name;
        v->shape = tile_shape(&v->shape, c, 0);
    }
    sl_free(g->parameters);
    g->parameters = t->parameters;
    g->parameter_count = g->parameter_capacity = t->parameter_count;
    g->named_count = 0; /* names are looked through until they are in the table again */
    t->parameters = NULL;
    for (int p = 0; p < g->parameter_count; p++) g->values[g->parameters[p].value].parameter = p;
    sl_free(old->nodes);
    sl_free(old->layers);
}

static sluice_status rewrite(tiler *t)
{
    saved old = take_out(t->g);
    sluice_status st = make_parameters(t);
    if (st == SLUICE_OK) st = rewrite_nodes(t, &old);
    if (st != SLUICE_OK) {
        put_back(t->g, &old);
        return st;
    }
    install(t, &old);
    SL_TRY(sl_graph_name_parameters(t->g));
    return sl_graph_verify(t->g);
}

static bool cuts_any(const tiler *t)
{
    for (int p = 0; p < t->g->parameter_count; p++)
        if (is_cut(&t->cuts[p])) return true;
    return false;
}

sluice_status sl_graph_tile(sluice_graph *g, uint64_t tile_bytes)
{
    SL_TRY(sluice_graph_check(g));
    if (tile_bytes == 0) return SLUICE_OK;
    if (g->finished) return sl_fail(SLUICE_ERR_USAGE, "tiles: the graph belongs to an engine and can no longer change");
    sluice_status st = SLUICE_ERR_NO_MEMORY;
    tiler t = { .g = g, .limit = tile_bytes };
    t.cuts = sl_alloc_array((size_t)g->parameter_count, sizeof *t.cuts, "tile cuts");
    if (t.cuts == NULL) return st;
    t.inputs = sl_alloc_array(2 * SL_MAX_TILES, sizeof *t.inputs, "tile operands");
    if (t.inputs == NULL) goto free_cuts;
    t.outputs = t.inputs + SL_MAX_TILES;
    st = decide(&t);
    if (st == SLUICE_OK && cuts_any(&t)) st = rewrite(&t);
    sl_free(t.parameters); /* NULL once installed */
    sl_free(t.inputs);
free_cuts:
    sl_free(t.cuts);
    return st;
}

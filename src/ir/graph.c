/* graph.c: a graph's lists of values and nodes, and the closing of building.
 *
 * Values and nodes are only ever appended, by builders and by passes alike. sl_graph_finish decides which layer owns
 * each parameter; it runs once, after the last builder, because only then are all uses known. */
#include <limits.h>
#include <string.h>

#include "core/alloc.h"
#include "core/bytes.h"
#include "core/hash.h"
#include "ir/graph.h"
#include "ir/op_rows.h"
#include "ir/sparse.h"

sluice_status sluice_graph_create(sluice_graph **out)
{
    if (out == NULL) return sl_fail(SLUICE_ERR_USAGE, "sluice_graph_create: out is NULL");
    sluice_graph *g = sl_alloc(sizeof *g, "graph");
    if (g == NULL) return SLUICE_ERR_NO_MEMORY;
    sl_arena_init(&g->arena, "graph");
    g->loss = g->output = -1;
    *out = g;
    return SLUICE_OK;
}

void sluice_graph_destroy(sluice_graph *g)
{
    if (g == NULL) return;
    sl_free(g->values);
    sl_free(g->inputs);
    sl_free(g->nodes);
    sl_free(g->parameters);
    sl_free(g->layers);
    sl_free(g->name_slots);
    sl_free(g->running);
    sl_arena_free(&g->arena);
    sl_free(g);
}

sluice_status sluice_graph_check(const sluice_graph *g)
{
    if (g == NULL) return sl_fail(SLUICE_ERR_USAGE, "sluice_graph_check: the graph is NULL");
    if (g->error != SLUICE_OK) return sl_fail(g->error, "%s", g->error_text);
    return SLUICE_OK;
}

sluice_status sl_grow(void **array, int *capacity, int needed, size_t each, const char *what)
{
    if (needed <= *capacity) return SLUICE_OK;
    if (needed > INT_MAX / 2) return sl_fail(SLUICE_ERR_USAGE, "%s: over %d of them", what, INT_MAX / 2);
    int wanted = *capacity < 16 ? 16 : *capacity * 2;
    if (wanted < needed) wanted = needed;
    void *grown = sl_realloc(*array, (size_t)*capacity * each, (size_t)wanted * each, what);
    if (grown == NULL) return SLUICE_ERR_NO_MEMORY;
    *array = grown;
    *capacity = wanted;
    return SLUICE_OK;
}

/* A copy of `name` in the graph's arena, or "<word>_<number>". */
static const char *keep_name(sluice_graph *g, const char *name, const char *word, int number)
{
    return name != NULL ? sl_arena_strdup(&g->arena, name) : sl_arena_printf(&g->arena, "%s_%d", word, number);
}

int sl_graph_add_value(sluice_graph *g, sl_value_kind kind, sluice_dtype dtype, const sl_shape *shape, const char *name)
{
    const char *fault = sl_shape_fault(shape, dtype);
    if (sl_graph_poll(g) != SLUICE_OK) return -(int)SLUICE_ERR_STOPPED;
    if (fault != NULL)
        return -(int)sl_fail(SLUICE_ERR_USAGE, "\"%.64s\": cannot have this shape: %s", name ? name : "value", fault);
    sluice_status st =
        sl_grow((void **)&g->values, &g->value_capacity, g->value_count + 1, sizeof *g->values, "graph values");
    if (st == SLUICE_OK && kind == SL_VALUE_INPUT)
        st = sl_grow((void **)&g->inputs, &g->input_capacity, g->input_count + 1, sizeof *g->inputs, "graph inputs");
    if (st != SLUICE_OK) return -(int)st;
    const char *kept = keep_name(g, name, "value", g->value_count);
    if (kept == NULL) return -(int)SLUICE_ERR_NO_MEMORY;
    int index = g->value_count++;
    g->values[index] = (sl_value){
        .name = kept, .kind = kind, .dtype = dtype, .shape = *shape, .producer = -1, .storage = index, .parameter = -1
    };
    if (kind == SL_VALUE_INPUT) g->inputs[g->input_count++] = index;
    return index;
}

int sl_graph_add_node(sluice_graph *g, const sl_node *node)
{
    sluice_status st = sl_graph_poll(g);
    if (st == SLUICE_OK)
        st = sl_grow((void **)&g->nodes, &g->node_capacity, g->node_count + 1, sizeof *g->nodes, "graph nodes");
    if (st != SLUICE_OK) return -(int)st;
    const char *kept = keep_name(g, node->name, sl_ops[node->op].name, g->node_count);
    if (kept == NULL) return -(int)SLUICE_ERR_NO_MEMORY;
    int index = g->node_count++;
    g->nodes[index] = *node;
    g->nodes[index].name = kept;
    for (int i = 0; i < node->output_count; i++) {
        if (node->outputs[i] < 0) continue;
        sl_value *v = &g->values[node->outputs[i]];
        if (v->producer < 0) v->producer = index;
        if (sl_ops[node->op].view) v->storage = g->values[node->inputs[0]].storage;
        if (v->rows == SL_ROWS_ALL && v->kind == SL_VALUE_ACTIVATION && node->input_count > 0 && v->shape.rank > 0)
            v->rows = g->values[node->inputs[0]].rows;
    }
    if (node->phase == SL_PHASE_FORWARD) g->forward_count++;
    if (node->phase == SL_PHASE_BACKWARD) g->backward_count++;
    return index;
}

int sl_graph_find_input(const sluice_graph *g, const char *name)
{
    for (int i = 0; i < g->input_count; i++)
        if (strcmp(g->values[g->inputs[i]].name, name) == 0) return g->inputs[i];
    return -1;
}

const sl_shape *sl_run_shape(const sluice_graph *g, int value, const int64_t rows[SL_ROWS_COUNT], sl_shape *out)
{
    const sl_value *v = &g->values[value];
    if (v->rows == SL_ROWS_ALL || rows[v->rows] == 0 || rows[v->rows] == g->row_room[v->rows]) return &v->shape;
    *out = v->shape;
    out->dim[0] = out->dim[0] / g->row_room[v->rows] * rows[v->rows];
    return out;
}

unsigned sl_node_outputs(const sluice_graph *g, const sl_node *node, sl_run_kind run)
{
    unsigned outputs = 0;
    for (int k = 0; k < node->output_count; k++) {
        if (node->outputs[k] < 0) continue;
        const bool state = g->values[node->outputs[k]].kind == SL_VALUE_STATE;
        if (run == SL_RUN_EVALUATION && sl_op_serves_backward(node->op, k)) continue;
        if (run == SL_RUN_AGAIN && state && !sl_node_is_frozen_norm(node)) continue; /* which only reads it */
        outputs |= 1u << k;
    }
    return outputs;
}

/* ---- names of parameters ---- */

/* The slot of a name, or the free one where it belongs. At most half of the slots are used. */
static int *name_slot(const sluice_graph *g, int *slots, int count, const char *name)
{
    size_t mask = (size_t)count - 1, i = (size_t)sl_hash_text(name) & mask;
    while (slots[i] > 0 && strcmp(g->parameters[slots[i] - 1].name, name) != 0) i = (i + 1) & mask;
    return &slots[i];
}

sluice_status sl_graph_name_parameters(sluice_graph *g)
{
    int wanted = g->name_slot_count > 0 ? g->name_slot_count : 64;
    while (wanted / 2 <= g->parameter_count) wanted *= 2;
    if (wanted != g->name_slot_count || g->named_count == 0) {
        int *slots = sl_alloc_array((size_t)wanted, sizeof *slots, "graph names");
        if (slots == NULL) return SLUICE_ERR_NO_MEMORY;
        sl_free(g->name_slots);
        g->name_slots = slots;
        g->name_slot_count = wanted;
        g->named_count = 0;
    }
    for (; g->named_count < g->parameter_count; g->named_count++) {
        int *slot = name_slot(g, g->name_slots, g->name_slot_count, g->parameters[g->named_count].name);
        if (*slot == 0) *slot = g->named_count + 1;
    }
    return SLUICE_OK;
}

/* By the table; what it does not name yet is looked through. */
int sl_graph_find_parameter(const sluice_graph *g, const char *name)
{
    int found = g->named_count > 0 ? *name_slot(g, g->name_slots, g->name_slot_count, name) - 1 : -1;
    for (int i = g->named_count; found < 0 && i < g->parameter_count; i++)
        if (strcmp(g->parameters[i].name, name) == 0) found = i;
    return found;
}

bool sl_graph_has_running(const sluice_graph *g, const char *name)
{
    for (int i = 0; i < g->running_count; i++)
        for (int k = 0; k < SL_RUNNING_NAMES; k++)
            if (strcmp(g->running[i].names[k], name) == 0) return true;
    return false;
}

void sl_graph_count_readers(const sluice_graph *g, int *readers)
{
    for (int v = 0; v < g->value_count; v++) readers[v] = 0;
    for (int n = 0; n < g->forward_count; n++)
        for (int i = 0; i < g->nodes[n].input_count; i++) readers[g->nodes[n].inputs[i]]++;
}

int64_t sl_graph_parameter_elements(const sluice_graph *g)
{
    int64_t sum = 0;
    for (int i = 0; i < g->parameter_count; i++) sum += sl_parameter_elements(g, i);
    return sum;
}

/* ---- finish ---- */

enum { UNUSED = -1, SEVERAL = -2 };

/* Where each parameter is used: a building layer, UNUSED or SEVERAL. Views count as uses of what they view. */
static void find_uses(const sluice_graph *g, int *use)
{
    for (int p = 0; p < g->parameter_count; p++) use[p] = UNUSED;
    for (int n = 0; n < g->forward_count; n++) {
        const sl_node *node = &g->nodes[n];
        for (int i = 0; i < node->input_count; i++) {
            int p = g->values[g->values[node->inputs[i]].storage].parameter;
            if (p < 0) continue;
            if (use[p] == UNUSED) use[p] = node->layer;
            if (use[p] != node->layer) use[p] = SEVERAL;
        }
    }
}

static sluice_status check_all_used(const sluice_graph *g, const int *use)
{
    for (int p = 0; p < g->parameter_count; p++)
        if (use[p] == UNUSED)
            return sl_fail(SLUICE_ERR_USAGE, "parameter \"%.64s\" is used by no operation: use it or do not make it",
                           g->parameters[p].name);
    return SLUICE_OK;
}

/* The new order of layers, while it is being made. */
typedef struct layout {
    sl_layer *layers; /* room for every layer that can come to be */
    int count;
    int *home; /* building layer -> new layer; -1: it has no nodes and is dropped */
    const int *use;
} layout;

/* Tied parameters first: they are needed in several places, so they precede all of them. */
static void place_tied(sluice_graph *g, layout *l)
{
    for (int p = 0; p < g->parameter_count; p++) {
        if (l->use[p] != SEVERAL) continue;
        g->parameters[p].layer = l->count;
        l->layers[l->count++] = (sl_layer){ .name = g->parameters[p].name, .trainable = g->parameters[p].trainable };
    }
}

/* One layer without nodes for the frozen parameters of each layer that has some, in the order of those. */
static sluice_status place_frozen(sluice_graph *g, layout *l)
{
    int *target = l->home; /* building layer -> its layer of frozen parameters; -1: none */
    for (int i = 0; i < g->layer_count; i++) target[i] = -1;
    for (int p = 0; p < g->parameter_count; p++)
        if (l->use[p] >= 0 && !g->parameters[p].trainable) target[l->use[p]] = 0;
    for (int i = 0; i < g->layer_count; i++) {
        if (target[i] < 0) continue;
        const char *name = sl_arena_printf(&g->arena, "%s.frozen", g->layers[i].name);
        if (name == NULL) return SLUICE_ERR_NO_MEMORY;
        target[i] = l->count++;
        l->layers[target[i]] = (sl_layer){ .name = name };
    }
    for (int p = 0; p < g->parameter_count; p++)
        if (l->use[p] >= 0 && !g->parameters[p].trainable) g->parameters[p].layer = target[l->use[p]];
    return SLUICE_OK;
}

static void place_node_layers(sluice_graph *g, layout *l)
{
    for (int i = 0; i < g->layer_count; i++) {
        l->home[i] = g->layers[i].node_count > 0 ? l->count : -1;
        if (g->layers[i].node_count > 0) l->layers[l->count++] = g->layers[i];
    }
    for (int p = 0; p < g->parameter_count; p++) {
        sl_parameter *parameter = &g->parameters[p];
        if (l->use[p] == SEVERAL || !parameter->trainable) continue;
        parameter->layer = l->home[l->use[p]];
        l->layers[parameter->layer].trainable = true;
    }
}

/* Offsets in each layer's flat buffer, tight and in creation order, and the parameters grouped by layer. */
static sluice_status lay_out_buffers(sluice_graph *g, layout *l, int *grouped)
{
    int next = 0;
    for (int p = 0; p < g->parameter_count; p++) l->layers[g->parameters[p].layer].parameter_count++;
    for (int i = 0; i < l->count; i++) {
        l->layers[i].first_parameter = next;
        next += l->layers[i].parameter_count;
        l->layers[i].parameter_count = 0; /* counted again as they are listed */
    }
    for (int p = 0; p < g->parameter_count; p++) {
        sl_parameter *parameter = &g->parameters[p];
        sl_layer *layer = &l->layers[parameter->layer];
        parameter->offset = layer->element_count;
        grouped[layer->first_parameter + layer->parameter_count++] = p;
        if (__builtin_add_overflow(layer->element_count, parameter->count, &layer->element_count) ||
            layer->element_count > INT64_MAX / 8)
            return sl_fail(SLUICE_ERR_USAGE, "layer \"%.64s\": its parameters have over 2^60 elements", layer->name);
    }
    return SLUICE_OK;
}

/* The parameter that operand k of a node is, or a view of; -1: none. */
static int parameter_of(const sluice_graph *g, const sl_node *node, int k)
{
    return k < node->input_count ? g->values[g->values[node->inputs[k]].storage].parameter : -1;
}

/* 8 bits are for the moments of matrices in products, which are the bulk of a model. Those of vectors, of position
 * tables and of the tables of embeddings, whose rows are seen rarely, stay f32, also where such a table is the head's
 * matrix. */
static void mark_f32_states(sluice_graph *g)
{
    for (int p = 0; p < g->parameter_count; p++) g->parameters[p].keeps_f32_state = true;
    for (int n = 0; n < g->forward_count; n++) {
        bool product = sl_ops[g->nodes[n].op].rate == SL_CLASS_MATRIX;
        for (int k = 0; product && k < 2; k++) {
            int p = parameter_of(g, &g->nodes[n], k);
            if (p >= 0) g->parameters[p].keeps_f32_state = g->values[g->parameters[p].value].shape.rank < 2;
        }
    }
    for (int n = 0; n < g->forward_count; n++) {
        int table = sl_ops[g->nodes[n].op].tile == SL_TILE_TABLE ? parameter_of(g, &g->nodes[n], 1) : -1;
        if (table >= 0) g->parameters[table].keeps_f32_state = true;
    }
}

/* The blocks that overlap such parameters, in runs: neighbours are joined. */
static sluice_status find_wide_blocks(sluice_graph *g, sl_layer *layer, const int *grouped)
{
    if (layer->parameter_count == 0) return SLUICE_OK;
    sl_range *runs = sl_arena_array(&g->arena, (size_t)layer->parameter_count, sizeof *runs);
    if (runs == NULL) return SLUICE_ERR_NO_MEMORY;
    int count = 0;
    for (int i = 0; i < layer->parameter_count; i++) {
        const sl_parameter *p = &g->parameters[grouped[layer->first_parameter + i]];
        if (!p->keeps_f32_state) continue;
        int64_t first = p->offset / SL_CUT_ELEMENTS, end = sl_ceil_div(p->offset + p->count, SL_CUT_ELEMENTS);
        if (count > 0 && first <= runs[count - 1].first + runs[count - 1].count)
            runs[count - 1].count = end - runs[count - 1].first;
        else
            runs[count++] = (sl_range){ first, end - first };
    }
    layer->wide_blocks = runs;
    layer->wide_block_runs = count;
    return SLUICE_OK;
}

/* Takes over the new layers. Nothing can fail from here on. */
static void install_layout(sluice_graph *g, layout *l, int *grouped, int capacity)
{
    for (int n = 0; n < g->forward_count; n++) g->nodes[n].layer = l->home[g->nodes[n].layer];
    sl_free(g->layers);
    g->layers = l->layers;
    g->layer_count = l->count;
    g->layer_capacity = capacity;
    g->layer_parameters = grouped;
    g->finished = true;
}

static sluice_status assign_layers(sluice_graph *g, int *use, int *home)
{
    find_uses(g, use);
    SL_TRY(check_all_used(g, use));
    /* at most one extra layer per tied parameter and one per layer with frozen ones */
    int capacity = g->parameter_count + g->layer_count;
    int *grouped = sl_arena_array(&g->arena, (size_t)g->parameter_count + 1, sizeof *grouped);
    if (grouped == NULL) return SLUICE_ERR_NO_MEMORY;
    layout l = { .home = home, .use = use };
    l.layers = sl_alloc_array((size_t)capacity, sizeof *l.layers, "graph layers");
    if (l.layers == NULL) return SLUICE_ERR_NO_MEMORY;
    place_tied(g, &l);
    sluice_status st = place_frozen(g, &l);
    if (st == SLUICE_OK) {
        place_node_layers(g, &l);
        st = lay_out_buffers(g, &l, grouped);
    }
    mark_f32_states(g);
    for (int i = 0; i < l.count && st == SLUICE_OK; i++) st = find_wide_blocks(g, &l.layers[i], grouped);
    if (st != SLUICE_OK) {
        sl_free(l.layers);
        return st;
    }
    install_layout(g, &l, grouped, capacity);
    return SLUICE_OK;
}

sluice_status sl_graph_finish(sluice_graph *g)
{
    SL_TRY(sluice_graph_check(g));
    if (g->finished) return SLUICE_OK;
    if (g->node_count == 0) return sl_fail(SLUICE_ERR_USAGE, "the graph has no operations: build a model first");
    int *scratch = sl_alloc_array((size_t)g->parameter_count + (size_t)g->layer_count, sizeof *scratch, "layer layout");
    if (scratch == NULL) return SLUICE_ERR_NO_MEMORY;
    sluice_status st = assign_layers(g, scratch, scratch + g->parameter_count);
    sl_free(scratch);
    if (st != SLUICE_OK) return st;
    return sl_graph_verify(g);
}

/* sl_graph_tile: the tiled graph is the same function of the same numbers, every tile is within the limit and lies in a
 * layer of its own. Whole and tiled graphs run side by side in the interpreter, from equal values. */
#include "ir/tile.h"

#include "core/alloc.h"
#include "support/graph_interpreter.h"
#include "test.h"

static const sluice_init some = { SLUICE_INIT_NORMAL, 1 };

static sluice_value matrix(sluice_graph *g, const char *name, int64_t rows, int64_t columns)
{
    return sluice_parameter(g, name, 2, (int64_t[]){ rows, columns }, some);
}

static sluice_value vector(sluice_graph *g, const char *name, int64_t size)
{
    return sluice_parameter(g, name, 1, &size, some);
}

static sluice_value start(sluice_graph *g, int64_t rows, int64_t width)
{
    return sluice_input(g, "x", SLUICE_F32, 2, (int64_t[]){ rows, width });
}

static void finish_model(sluice_graph *g, sluice_value y)
{
    sluice_set_output(g, y);
    sluice_set_loss(g, sluice_mean(g, sluice_silu(g, y)));
}

static const sl_parameter *find(const sluice_graph *g, const char *name)
{
    int p = sl_graph_find_parameter(g, name);
    if (p < 0) test_fail(__FILE__, __LINE__, "no parameter \"%s\"", name);
    return &g->parameters[p < 0 ? 0 : p];
}

static const sl_shape *shape(const sluice_graph *g, const char *name)
{
    return &g->values[find(g, name)->value].shape;
}

/* ---- whole and tiled, side by side ---- */

/* A number for an element of a named tensor: the same in both graphs. */
static double number(const char *name, int64_t element)
{
    uint64_t h = 1469598103934665603u + (uint64_t)element * 0x9e3779b97f4a7c15u;
    for (; *name != '\0'; name++) h = (h ^ (uint8_t)*name) * 1099511628211u;
    h ^= h >> 29;
    return (double)(h * 0xbf58476d1ce4e5b9u >> 40) / (double)(1 << 23) - 1.0;
}

static void fill(interpreter *in)
{
    const sluice_graph *g = in->graph;
    for (int v = 0; v < g->value_count; v++) {
        if (g->values[v].kind != SL_VALUE_INPUT) continue;
        for (int64_t i = 0; i < sl_shape_elements(&g->values[v].shape); i++) {
            double drawn = number(g->values[v].name, i);
            in->data[v][i] = g->values[v].dtype == SLUICE_I32 ? floor((drawn + 1) * 2) : drawn;
        }
    }
    for (int p = 0; p < g->parameter_count; p++)
        for (int64_t i = 0; i < g->parameters[p].count; i++)
            in->data[g->parameters[p].value][i] = number(sl_whole_name(g, p), sl_parameter_whole_element(g, p, i));
}

static double distance(double a, double b)
{
    return fabs(a - b) / fmax(1, fabs(a));
}

typedef struct difference {
    double output, gradient; /* largest, relative where values are large */
} difference;

/* Every gradient element of the tiled graph against the one of the whole that it is a part of; each of the latter must
 * be met once. */
static double gradient_difference(const interpreter *whole, const interpreter *tiled)
{
    const sluice_graph *w = whole->graph, *t = tiled->graph;
    double worst = 0;
    int64_t met = 0;
    for (int p = 0; p < t->parameter_count; p++) {
        int of = sl_graph_find_parameter(w, sl_whole_name(t, p));
        if (of < 0) return INFINITY;
        if (!t->parameters[p].trainable) continue;
        const double *a = whole->data[w->parameters[of].gradient], *b = tiled->data[t->parameters[p].gradient];
        for (int64_t i = 0; i < t->parameters[p].count; i++, met++)
            worst = fmax(worst, distance(a[sl_parameter_whole_element(t, p, i)], b[i]));
    }
    for (int p = 0; p < w->parameter_count; p++) met -= w->parameters[p].trainable ? w->parameters[p].count : 0;
    return met == 0 ? worst : INFINITY;
}

static void run_both(sluice_graph *whole, sluice_graph *tiled, difference *d)
{
    interpreter a, b;
    interpreter_open(&a, whole);
    interpreter_open(&b, tiled);
    fill(&a);
    fill(&b);
    CHECK(interpreter_run(&a, 0, whole->node_count) && interpreter_run(&b, 0, tiled->node_count));
    for (int64_t i = 0; i < sl_shape_elements(&whole->values[whole->output].shape); i++)
        d->output = fmax(d->output, distance(a.data[whole->output][i], b.data[tiled->output][i]));
    d->gradient = gradient_difference(&a, &b);
    interpreter_close(&a);
    interpreter_close(&b);
}

typedef void build_fn(sluice_graph *g);

/* Builds a model twice, tiles one, and holds the tiles to the limit. NULL on failure. */
static sluice_graph *compare(build_fn *build, uint64_t limit, difference *d)
{
    sluice_graph *whole, *tiled;
    *d = (difference){ 0, INFINITY };
    sluice_graph_create(&whole);
    sluice_graph_create(&tiled);
    build(whole);
    build(tiled);
    sluice_status st = sl_graph_tile(tiled, limit);
    if (st == SLUICE_OK) st = sl_graph_differentiate(tiled);
    if (st == SLUICE_OK) st = sl_graph_differentiate(whole);
    if (st == SLUICE_OK) {
        run_both(whole, tiled, d);
        for (int p = 0; p < tiled->parameter_count; p++)
            CHECK(sl_value_bytes(&tiled->values[tiled->parameters[p].value]) <= limit);
        CHECK_EQ(sl_graph_parameter_elements(whole), sl_graph_parameter_elements(tiled));
    } else {
        test_fail(__FILE__, __LINE__, "%s", sluice_error());
        sluice_graph_destroy(tiled);
        tiled = NULL;
    }
    sluice_graph_destroy(whole);
    return tiled;
}

/* ---- cuts of a linear ---- */

static void build_rows(sluice_graph *g)
{
    sluice_value x = start(g, 3, 4);
    sluice_layer(g, "block");
    finish_model(g, sluice_linear(g, sluice_relu(g, x), 7, "fc"));
}

TEST(tile_rows_keep_the_bits_of_every_output)
{
    difference d;
    sluice_graph *g = compare(build_rows, 2 * 4 * sizeof(float), &d);
    REQUIRE(g != NULL);
    CHECK(d.output == 0);
    CHECK(d.gradient < 1e-12);
    CHECK_EQ(g->parameter_count, 4 + 4);
    CHECK_EQ(shape(g, "fc.weight.tile0")->dim[0], 2);
    CHECK_EQ(shape(g, "fc.weight.tile3")->dim[0], 1);
    CHECK_EQ(shape(g, "fc.weight.tile3")->dim[1], 4);
    CHECK_EQ(find(g, "fc.weight.tile3")->row0, 6);
    CHECK_EQ(shape(g, "fc.bias.tile0")->dim[0], 2);
    CHECK_EQ(find(g, "fc.bias.tile3")->row0, 6);
    CHECK(find(g, "fc.bias.tile3")->is_norm_or_bias && !find(g, "fc.weight.tile3")->is_norm_or_bias);
    sluice_graph_destroy(g);
}

static void build_in_out(sluice_graph *g)
{
    sluice_value x = start(g, 3, 6), w = matrix(g, "w.weight", 6, 4), b = vector(g, "w.bias", 4);
    finish_model(g, sluice_linear_with(g, x, w, b, true));
}

TEST(tile_rows_of_inputs_are_summed_in_order_with_the_bias_first)
{
    difference d;
    sluice_graph *g = compare(build_in_out, 2 * 4 * sizeof(float), &d);
    REQUIRE(g != NULL);
    CHECK(d.output < 1e-12);
    CHECK(d.gradient < 1e-12);
    CHECK_EQ(g->parameter_count, 3 + 1);
    const sl_op expected[] = { SL_OP_SPLIT, SL_OP_LINEAR, SL_OP_SPLIT,  SL_OP_LINEAR,
                               SL_OP_ADD,   SL_OP_SPLIT,  SL_OP_LINEAR, SL_OP_ADD };
    for (int i = 0; i < 8; i++) CHECK_EQ(g->nodes[i].op, expected[i]);
    CHECK_EQ(g->nodes[1].input_count, 3);
    CHECK_EQ(g->nodes[3].input_count, 2);
    CHECK_EQ(g->nodes[4].inputs[0], g->nodes[1].outputs[0]);
    CHECK_EQ(g->nodes[7].outputs[0], g->output);
    CHECK_EQ(find(g, "w.bias")->layer, find(g, "w.weight.tile0")->layer);
    sluice_graph_destroy(g);
}

TEST(tile_columns_are_cut_where_a_row_is_too_large)
{
    difference d;
    build_fn *models[] = { build_rows, build_in_out };
    for (int i = 0; i < 2; i++) {
        sluice_graph *g = compare(models[i], 3 * sizeof(float), &d);
        REQUIRE(g != NULL);
        CHECK(d.output < 1e-12);
        CHECK(d.gradient < 1e-12);
        int first = sl_graph_find_whole(g, i == 0 ? "fc.weight" : "w.weight");
        CHECK_EQ(sl_whole_end(g, first) - first, (i == 0 ? 7 : 6) * 2);
        CHECK_EQ(g->parameters[first + 3].row0, 1);
        CHECK_EQ(g->parameters[first + 3].col0, 2);
        sluice_graph_destroy(g);
    }
}

static void build_wide(sluice_graph *g)
{
    finish_model(g, sluice_linear(g, start(g, 2, 3), 75, "fc"));
}

TEST(tile_concat_of_more_parts_than_it_takes_is_nested)
{
    difference d;
    sluice_graph *g = compare(build_wide, 3 * sizeof(float), &d);
    REQUIRE(g != NULL);
    CHECK(d.output == 0);
    CHECK(d.gradient < 1e-12);
    int joins = 0;
    for (int n = 0; n < g->forward_count; n++) joins += g->nodes[n].op == SL_OP_CONCAT;
    CHECK_EQ(joins, 10 + 2 + 1); /* 75 -> 10 -> 8 and 2 -> 1 */
    sluice_graph_destroy(g);
}

/* ---- embeddings and tied tables ---- */

static sluice_value embed(sluice_graph *g, sluice_value table)
{
    sluice_layer(g, "embed");
    sluice_value ids = sluice_input(g, "ids", SLUICE_I32, 2, (int64_t[]){ 2, 3 });
    return sluice_silu(g, sluice_embedding(g, ids, table));
}

static void build_embedding(sluice_graph *g)
{
    finish_model(g, embed(g, matrix(g, "wte.weight", 5, 6)));
}

TEST(tile_embedding_is_cut_along_columns_and_exact)
{
    difference d;
    sluice_graph *g = compare(build_embedding, 2 * 5 * sizeof(float), &d);
    REQUIRE(g != NULL);
    CHECK(d.output == 0);
    CHECK(d.gradient == 0);
    CHECK_EQ(g->parameter_count, 3);
    CHECK_EQ(shape(g, "wte.weight.tile1")->dim[0], 5);
    CHECK_EQ(shape(g, "wte.weight.tile1")->dim[1], 2);
    CHECK_EQ(find(g, "wte.weight.tile1")->col0, 2);
    sluice_graph_destroy(g);
}

static void build_tied(sluice_graph *g)
{
    sluice_value table = matrix(g, "wte.weight", 5, 6), y = embed(g, table);
    sluice_layer(g, "h");
    y = sluice_linear(g, y, 6, "fc");
    sluice_layer(g, "head");
    finish_model(g, sluice_linear_with(g, y, table, SLUICE_NONE, false));
}

TEST(tile_tied_table_is_read_by_both_uses_from_the_same_tiles)
{
    difference d;
    sluice_graph *g = compare(build_tied, 2 * 5 * sizeof(float), &d);
    REQUIRE(g != NULL);
    CHECK(d.output < 1e-12);
    CHECK(d.gradient < 1e-12);
    int first = sl_graph_find_whole(g, "wte.weight");
    REQUIRE(sl_whole_end(g, first) - first == 3);
    for (int k = 0; k < 3; k++) {
        const sl_parameter *p = &g->parameters[first + k];
        const sl_layer *layer = &g->layers[p->layer];
        CHECK_EQ(layer->node_count, 0);
        CHECK_EQ(layer->parameter_count, 1);
        CHECK_STR(layer->name, p->name);
        int embeddings = 0, linears = 0;
        for (int n = 0; n < g->forward_count; n++) {
            if (g->nodes[n].input_count < 2 || g->nodes[n].inputs[1] != p->value) continue;
            embeddings += g->nodes[n].op == SL_OP_EMBEDDING;
            linears += g->nodes[n].op == SL_OP_LINEAR;
        }
        CHECK_EQ(embeddings, 1);
        CHECK_EQ(linears, 1);
    }
    sluice_graph_destroy(g);
}

/* One weight read as it is and transposed, and one bias read twice. */
static void build_mirrored(sluice_graph *g)
{
    sluice_value x = start(g, 2, 6), w = matrix(g, "w", 6, 6), b = vector(g, "b", 6);
    x = sluice_silu(g, sluice_linear_with(g, x, w, b, false));
    finish_model(g, sluice_linear_with(g, x, w, b, true));
}

TEST(tile_weight_read_in_both_directions_shares_its_tiles)
{
    difference d;
    uint64_t limits[] = { 2 * 6 * sizeof(float), 6 * sizeof(float) };
    for (int i = 0; i < 2; i++) {
        sluice_graph *g = compare(build_mirrored, limits[i], &d);
        REQUIRE(g != NULL);
        CHECK(d.output < 1e-12);
        CHECK(d.gradient < 1e-12);
        CHECK_EQ(g->parameter_count, (i == 0 ? 3 : 6) + 1);
        sluice_graph_destroy(g);
    }
}

/* ---- layers ---- */

static void build_two_cuts(sluice_graph *g)
{
    sluice_value x = start(g, 2, 4);
    sluice_layer(g, "small");
    x = sluice_linear(g, x, 4, "in");
    sluice_layer(g, "block");
    x = sluice_layer_norm(g, x, vector(g, "ln.weight", 4), vector(g, "ln.bias", 4), 1e-5f);
    x = sluice_silu(g, sluice_linear(g, x, 8, "up"));
    x = sluice_linear_with(g, x, matrix(g, "down", 8, 4), SLUICE_NONE, true);
    sluice_layer(g, "end");
    finish_model(g, x);
}

TEST(tile_layers_split_the_one_they_were_in)
{
    static const char *names[] = { "small",       "block",       "block.tile0", "block.tile1",
                                   "block.part1", "block.tile2", "block.tile3", "end" };
    static const int nodes[] = { 1, 1, 1, 1, 2, 2, 3, 2 };
    difference d;
    sluice_graph *g = compare(build_two_cuts, 4 * 4 * sizeof(float), &d);
    REQUIRE(g != NULL);
    CHECK(d.output < 1e-12 && d.gradient < 1e-12);
    REQUIRE(g->layer_count == 8);
    for (int i = 0; i < 8; i++) {
        CHECK_STR(g->layers[i].name, names[i]);
        CHECK_EQ(g->layers[i].node_count, nodes[i]);
    }
    CHECK_EQ(find(g, "up.weight.tile1")->layer, 3);
    CHECK_EQ(find(g, "up.bias.tile1")->layer, 3);
    CHECK_EQ(find(g, "down.tile0")->layer, 5);
    CHECK_EQ(find(g, "in.weight")->layer, 0);
    CHECK(find(g, "in.weight")->whole == NULL);
    sluice_graph_destroy(g);
}

static void build_frozen(sluice_graph *g)
{
    sluice_value x = sluice_linear(g, start(g, 2, 4), 4, "in"), w = matrix(g, "w", 8, 4);
    sluice_freeze(g, w);
    sluice_layer(g, "block");
    finish_model(g, sluice_linear_with(g, x, w, SLUICE_NONE, false));
}

TEST(tile_of_a_frozen_parameter_is_frozen)
{
    difference d;
    sluice_graph *g = compare(build_frozen, 4 * 4 * sizeof(float), &d);
    REQUIRE(g != NULL);
    CHECK(d.output == 0 && d.gradient < 1e-12);
    CHECK(!find(g, "w.tile0")->trainable && !find(g, "w.tile1")->trainable);
    CHECK_STR(g->layers[find(g, "w.tile1")->layer].name, "block.tile1.frozen");
    sluice_graph_destroy(g);
}

static void build_dropout(sluice_graph *g)
{
    finish_model(g, sluice_dropout(g, sluice_linear(g, sluice_dropout(g, start(g, 2, 4), 0.5f), 8, "fc"), 0.5f));
}

TEST(tile_leaves_the_masks_of_dropout_as_they_were)
{
    sluice_graph *g;
    sluice_graph_create(&g);
    build_dropout(g);
    REQUIRE_OK(sl_graph_tile(g, 4 * 4 * sizeof(float)));
    uint32_t masks[2];
    int found = 0;
    for (int n = 0; n < g->forward_count; n++)
        if (g->nodes[n].op == SL_OP_DROPOUT && found < 2) masks[found++] = g->nodes[n].attrs.dropout.op;
    REQUIRE(found == 2);
    CHECK_EQ(masks[0], 0);
    CHECK_EQ(masks[1], 2);
    sluice_graph_destroy(g);
}

TEST(tile_graph_within_the_limit_is_unchanged)
{
    uint64_t limits[] = { 0, 4 * 7 * sizeof(float), UINT64_MAX };
    for (int i = 0; i < 3; i++) {
        sluice_graph *g;
        sluice_graph_create(&g);
        build_rows(g);
        const sl_node *nodes = g->nodes;
        int values = g->value_count;
        REQUIRE_OK(sl_graph_tile(g, limits[i]));
        CHECK(g->nodes == nodes && g->value_count == values);
        CHECK_EQ(g->parameter_count, 2);
        CHECK(find(g, "fc.weight")->whole == NULL);
        CHECK_STR(sl_whole_name(g, 0), "fc.weight");
        CHECK_EQ(sl_whole_shape(g, 0)->dim[0], 7);
        CHECK_EQ(sl_parameter_whole_element(g, 0, 9), 9);
        CHECK_EQ(sl_whole_end(g, 0), 1);
        sl_tile_run run = sl_whole_run(g, 0, 5, 100);
        CHECK(run.parameter == 0 && run.element == 5 && run.count == 23);
        sluice_graph_destroy(g);
    }
}

/* ---- the whole behind the tiles ---- */

/* Walks the whole in runs of at most `most` and checks that they cover each element once, in order. */
static void check_runs(const sluice_graph *g, int first, int64_t most)
{
    int64_t count = sl_shape_elements(sl_whole_shape(g, first)), element = 0;
    int end = sl_whole_end(g, first);
    while (element < count) {
        sl_tile_run run = sl_whole_run(g, first, element, most < count - element ? most : count - element);
        REQUIRE(run.count > 0 && run.parameter >= first && run.parameter < end);
        REQUIRE(run.element >= 0 && run.element + run.count <= g->parameters[run.parameter].count);
        for (int64_t i = 0; i < run.count; i++)
            CHECK_EQ(sl_parameter_whole_element(g, run.parameter, run.element + i), element + i);
        element += run.count;
    }
    CHECK_EQ(element, count);
}

TEST(tile_runs_walk_the_whole_in_order)
{
    uint64_t limits[] = { 12 * sizeof(float), 5 * sizeof(float), 3 * sizeof(float) };
    for (int i = 0; i < 3; i++) {
        sluice_graph *g;
        sluice_graph_create(&g);
        finish_model(g, sluice_linear(g, start(g, 1, 5), 9, "fc"));
        REQUIRE_OK(sl_graph_tile(g, limits[i]));
        for (int p = 0; p < g->parameter_count; p = sl_whole_end(g, p))
            for (int64_t most = 1; most < 50; most += 7) check_runs(g, p, most);
        sluice_graph_destroy(g);
    }
}

TEST(tile_runs_of_full_rows_are_as_long_as_the_tile)
{
    sluice_graph *g;
    sluice_graph_create(&g);
    build_rows(g);
    REQUIRE_OK(sl_graph_tile(g, 2 * 4 * sizeof(float)));
    sl_tile_run run = sl_whole_run(g, sl_graph_find_whole(g, "fc.weight"), 9, 100);
    CHECK_STR(g->parameters[run.parameter].name, "fc.weight.tile1");
    CHECK_EQ(run.element, 1);
    CHECK_EQ(run.count, 7);
    CHECK_EQ(sl_graph_find_whole(g, "fc.weight.tile1"), -1);
    sluice_graph_destroy(g);
}

/* ---- worked examples ---- */

TEST(tile_ten_elements_with_room_for_five_make_five_and_five)
{
    int64_t shapes[3][2] = { { 10, 1 }, { 2, 5 }, { 1, 10 } };
    for (int i = 0; i < 3; i++) {
        sluice_graph *g;
        sluice_graph_create(&g);
        sluice_value x = start(g, 1, shapes[i][1]), w = matrix(g, "W", shapes[i][0], shapes[i][1]);
        finish_model(g, sluice_linear_with(g, x, w, SLUICE_NONE, false));
        REQUIRE_OK(sl_graph_tile(g, 5 * sizeof(float)));
        REQUIRE_OK(sl_graph_differentiate(g));
        REQUIRE(g->parameter_count == 2);
        for (int p = 0; p < 2; p++) {
            CHECK_EQ(g->parameters[p].count, 5);
            CHECK_EQ(g->layers[g->parameters[p].layer].element_count, 5);
        }
        CHECK(g->parameters[0].layer != g->parameters[1].layer);
        sluice_graph_destroy(g);
    }
}

TEST(tile_gradients_of_rows_are_joined_not_added)
{
    sluice_graph *g;
    sluice_graph_create(&g);
    sluice_value x = start(g, 1, 3), w = matrix(g, "W", 2, 3);
    sluice_set_loss(g, sluice_sum(g, sluice_linear_with(g, x, w, SLUICE_NONE, false)));
    REQUIRE_OK(sl_graph_tile(g, 3 * sizeof(float)));
    REQUIRE_OK(sl_graph_differentiate(g));
    REQUIRE(g->parameter_count == 2);
    interpreter in;
    interpreter_open(&in, g);
    for (int i = 0; i < 3; i++) in.data[x][i] = 10 * (i + 1);
    for (int p = 0; p < 2; p++)
        for (int i = 0; i < 3; i++)
            in.data[g->parameters[p].value][i] = (double)(1 + sl_parameter_whole_element(g, p, i));
    CHECK(interpreter_run(&in, 0, g->node_count));
    for (int p = 0; p < 2; p++)
        for (int i = 0; i < 3; i++) {
            CHECK(in.data[g->parameters[p].value][i] == 3 * p + i + 1);
            CHECK(in.data[g->parameters[p].gradient][i] == 10 * (i + 1));
        }
    CHECK(in.data[g->loss][0] == 10 * (1 + 4) + 20 * (2 + 5) + 30 * (3 + 6));
    interpreter_close(&in);
    sluice_graph_destroy(g);
}

/* ---- refusals ---- */

static void build_added(sluice_graph *g)
{
    finish_model(g, sluice_add(g, start(g, 4, 4), matrix(g, "wpe", 4, 4)));
}

static void build_viewed(sluice_graph *g)
{
    sluice_value view = sluice_reshape(g, matrix(g, "w", 2, 8), 2, (int64_t[]){ 4, 4 });
    finish_model(g, sluice_linear_with(g, start(g, 4, 4), view, SLUICE_NONE, false));
}

static void build_output(sluice_graph *g)
{
    sluice_value w = matrix(g, "w", 4, 4);
    finish_model(g, sluice_linear_with(g, start(g, 4, 4), w, SLUICE_NONE, false));
    sluice_set_output(g, w);
}

static void build_shared_bias(sluice_graph *g)
{
    sluice_value x = start(g, 2, 2), b = vector(g, "b", 16);
    sluice_value y = sluice_linear_with(g, x, matrix(g, "w", 16, 2), b, false);
    finish_model(g, sluice_add(g, y, sluice_linear_with(g, x, matrix(g, "v", 16, 2), b, false)));
}

static void build_long(sluice_graph *g)
{
    finish_model(g, sluice_linear_with(g, start(g, 1, 1), matrix(g, "w", 2 * SL_MAX_TILES, 1), SLUICE_NONE, false));
}

static void build_head(sluice_graph *g)
{
    sluice_value targets = sluice_input(g, "targets", SLUICE_I32, 1, (int64_t[]){ 4 });
    sluice_set_loss(g, sluice_linear_cross_entropy(g, start(g, 4, 4), matrix(g, "w", 4, 4), targets, -1));
}

TEST(tile_refusals_name_the_parameter_its_bytes_and_the_limit)
{
    static const struct {
        build_fn *build;
        uint64_t limit;
        const char *message;
    } cases[] = {
        { build_added, 16,
          "parameter \"wpe\" has 64 bytes, over memory.tile_bytes 16, and cannot be cut to that: add \"add_0\" reads "
          "it, "
          "and only linear and embedding can read tiles; give memory.tile_bytes 64 or more" },
        { build_head, 16, "linear_cross_entropy \"linear_cross_entropy_0\" reads it, and only linear and embedding" },
        { build_viewed, 16, "reshape \"reshape_0\" reads it" },
        { build_output, 16,
          "parameter \"w\" has 64 bytes, over memory.tile_bytes 16, and cannot be cut to that: it is" },
        { build_embedding, 16,
          "\"wte.weight\" has 120 bytes, over memory.tile_bytes 16, and cannot be cut to that: an " },
        { build_embedding, 16, "give memory.tile_bytes 20 or more" },
        { build_shared_bias, 60,
          "parameter \"b\" has 64 bytes, over memory.tile_bytes 60, and cannot be cut to that: it" },
        { build_rows, 3, "one element is larger" },
        { build_long, 4, "that makes over 4096 tiles; give memory.tile_bytes 8 or more" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sluice_graph *g;
        sluice_graph_create(&g);
        cases[i].build(g);
        int nodes = g->node_count, values = g->value_count, parameters = g->parameter_count;
        CHECK_EQ(sl_graph_tile(g, cases[i].limit), SLUICE_ERR_USAGE);
        CHECK_CONTAINS(sluice_error(), cases[i].message);
        CHECK(g->node_count == nodes && g->value_count == values && g->parameter_count == parameters);
        CHECK_EQ(sl_graph_differentiate(g), SLUICE_OK);
        sluice_graph_destroy(g);
    }
}

/* 75 outputs of 3 inputs each with room for 5 elements: the bias alone is over the limit. */
TEST(tile_bias_over_the_limit_is_cut_with_its_outputs)
{
    difference d;
    sluice_graph *g = compare(build_wide, 5 * sizeof(float), &d);
    REQUIRE(g != NULL);
    CHECK(d.output == 0);
    CHECK_EQ(find(g, "fc.bias.tile74")->row0, 74);
    CHECK_EQ(find(g, "fc.bias.tile74")->layer, find(g, "fc.weight.tile74")->layer);
    sluice_graph_destroy(g);
}

static void build_tied_with_bias(sluice_graph *g)
{
    sluice_value table = matrix(g, "wte", 16, 4), y = embed(g, table);
    finish_model(g, sluice_linear_with(g, y, table, vector(g, "head.bias", 16), false));
}

TEST(tile_bias_of_uncut_outputs_stays_whole_with_the_first_tile)
{
    difference d;
    sluice_graph *g = compare(build_tied_with_bias, 16 * sizeof(float), &d);
    REQUIRE(g != NULL);
    CHECK(d.output < 1e-12 && d.gradient < 1e-12);
    CHECK_EQ(g->parameter_count, 4 + 1);
    CHECK(find(g, "head.bias")->whole == NULL);
    sluice_graph_destroy(g);
}

/* A bias that is computed has no tiles: it is split where it is read. */
static void build_computed_bias(sluice_graph *g)
{
    sluice_value x = start(g, 2, 4), b = sluice_silu(g, vector(g, "b", 8));
    finish_model(g, sluice_linear_with(g, x, matrix(g, "w", 8, 4), b, false));
}

TEST(tile_computed_bias_is_split)
{
    difference d;
    sluice_graph *g = compare(build_computed_bias, 8 * sizeof(float), &d);
    REQUIRE(g != NULL);
    CHECK(d.output == 0 && d.gradient < 1e-12);
    CHECK_EQ(g->parameter_count, 1 + 4);
    sluice_graph_destroy(g);
}

TEST(tile_refuses_a_finished_graph)
{
    sluice_graph *g;
    sluice_graph_create(&g);
    build_rows(g);
    REQUIRE_OK(sl_graph_finish(g));
    CHECK_EQ(sl_graph_tile(g, 16), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "belongs to an engine");
    sluice_graph_destroy(g);
}

TEST(tile_out_of_memory_leaves_a_graph_that_is_whole_or_tiled)
{
    for (int64_t nth = 1;; nth++) {
        sluice_graph *g;
        sluice_graph_create(&g);
        build_mirrored(g);
        int values = g->value_count, nodes = g->node_count;
        sl_alloc_fail_nth(nth, 0);
        sluice_status st = sl_graph_tile(g, 6 * sizeof(float));
        sl_alloc_fail_nth(0, 0);
        if (st != SLUICE_OK) CHECK_EQ(st, SLUICE_ERR_NO_MEMORY);
        bool whole = g->parameter_count == 2; /* the last allocation is the check of the tiled graph */
        if (whole) CHECK(g->value_count == values && g->node_count == nodes);
        CHECK(whole == (find(g, whole ? "w" : "w.tile0")->whole == NULL));
        REQUIRE_OK(sl_graph_differentiate(g));
        sluice_graph_destroy(g);
        if (st == SLUICE_OK) break;
        REQUIRE(nth < 1000);
    }
}

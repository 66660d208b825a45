/* groups_test.c: layers that are recomputed together from one kept input: the same bits, and as much memory as the plan
 * says, wherever a budget or a setting puts the bounds. */
#include <string.h>

#include "support/matrix.h"
#include "test.h"
#include "train/engine.h"

/* ---- a deep network with batch norms and dropout, on one rank ---- */

enum { BLOCKS = 30, ROWS = 32, FEATURES = 16, CLASSES = 3, MICRO = 2, STEPS = 3 };

static sluice_value block(sluice_graph *g, sluice_value x, int number)
{
    char layer[24], linear[24], norm[24];
    sluice_batch_norm_options o;
    sluice_batch_norm_options_init(&o);
    o.relu = true;
    o.residual = x;
    snprintf(layer, sizeof layer, "block%d", number);
    snprintf(linear, sizeof linear, "fc%d", number);
    snprintf(norm, sizeof norm, "norm%d", number);
    sluice_layer(g, layer);
    return sluice_batch_norm(g, sluice_dropout(g, sluice_linear(g, x, FEATURES, linear), 0.1f), norm, &o);
}

static sluice_status build(sluice_graph **out)
{
    sluice_graph *g;
    SL_TRY(sluice_graph_create(&g));
    sluice_value x = sluice_input(g, "x", SLUICE_F32, 2, (int64_t[]){ ROWS, FEATURES });
    sluice_value target = sluice_input(g, "target", SLUICE_I32, 1, (int64_t[]){ ROWS });
    for (int i = 0; i < BLOCKS; i++) x = block(g, x, i);
    sluice_layer(g, "head");
    sluice_set_loss(g, sluice_cross_entropy(g, sluice_linear(g, x, CLASSES, "head"), target, -1));
    *out = g;
    return sluice_graph_check(g);
}

typedef struct batch {
    float x[ROWS * FEATURES];
    int32_t target[ROWS];
    sluice_array arrays[2];
} batch;

static sluice_batch fill(batch *b, uint32_t number)
{
    for (int i = 0; i < ROWS * FEATURES; i++) b->x[i] = (float)((i * 7919u + number * 104729u) % 1000) / 500.0f - 1.0f;
    for (int i = 0; i < ROWS; i++) b->target[i] = (int32_t)((i * i + (int)number) % CLASSES);
    b->arrays[0] = (sluice_array){ "x", b->x, sizeof b->x };
    b->arrays[1] = (sluice_array){ "target", b->target, sizeof b->target };
    return (sluice_batch){ b->arrays, 2 };
}

typedef struct result {
    char weights[65], state[65];
    uint64_t peak;
    sl_plan_totals totals;
} result;

static void set_options(sluice_options *o)
{
    sluice_options_init(o);
    sluice_optimizer_init(&o->optimizer, SLUICE_ADAMW);
    o->accumulation_steps = MICRO;
    o->seed = 3;
    o->threads = 1;
    o->guard = true;
    o->host_bytes = o->device_bytes = (uint64_t)64 << 20;
}

static sluice_status train(const sluice_options *o, result *out)
{
    batch b[MICRO];
    sluice_batch batches[MICRO];
    sluice_memory planned = { 0 }, observed = { 0 };
    sluice_graph *g = NULL;
    sluice_engine *e = NULL;
    double loss;
    sluice_status st = build(&g);
    if (st == SLUICE_OK) st = sluice_engine_create(g, o, &e);
    for (uint32_t s = 0; st == SLUICE_OK && s < STEPS; s++) {
        for (uint32_t m = 0; m < MICRO; m++) batches[m] = fill(&b[m], s * MICRO + m);
        st = sluice_train_step(e, batches, &loss);
    }
    if (st == SLUICE_OK) st = sluice_hash(e, out->weights, out->state);
    if (st == SLUICE_OK) {
        sluice_planned_peak(e, &planned);
        sluice_observed_peak(e, &observed);
        CHECK_EQ(observed.device, planned.device);
        CHECK_EQ(observed.host, planned.host);
        out->peak = planned.device;
        out->totals = e->plan->totals;
    }
    sluice_engine_destroy(e);
    sluice_graph_destroy(g);
    return st;
}

static void check_same(const result *got, const result *expected)
{
    CHECK_STR(got->weights, expected->weights);
    CHECK_STR(got->state, expected->state);
}

/* Running statistics are in the state's hash: recomputed norms must not count twice. */
TEST(any_number_of_groups_gives_the_same_bits)
{
    static const int numbers[] = { 1, 2, 7, BLOCKS };
    sluice_options o;
    result kept, grouped;
    set_options(&o);
    REQUIRE_OK(train(&o, &kept));
    CHECK_EQ(kept.totals.recomputed_layers, 0);
    o.activations = SLUICE_ACTIVATIONS_RECOMPUTE;
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        for (int way = 0; way < 3; way++) {
            o.checkpoints = numbers[i];
            o.offload_checkpoints = way == 1;
            o.parameters = o.optimizer_state = way == 2 ? SLUICE_PLACE_HOST : SLUICE_PLACE_DEVICE;
            o.levels = way == 2 ? 5 : 0;
            o.prefetch_layers = way == 2 ? (int)i - 1 : -1;
            REQUIRE_OK(train(&o, &grouped));
            CHECK_EQ(grouped.totals.recomputed_groups, numbers[i]);
            CHECK_EQ(grouped.totals.recomputed_layers, BLOCKS);
            check_same(&grouped, &kept);
        }
}

/* Less and less memory and nothing but recomputation to save it with: groups are what fits where single layers do not. */
TEST(a_small_budget_makes_groups_of_the_same_bits)
{
    sluice_options o;
    result kept, alone, grouped;
    uint64_t least = UINT64_MAX;
    int sizes = 0, largest = 1;
    set_options(&o);
    REQUIRE_OK(train(&o, &kept));
    o.parameters = o.optimizer_state = SLUICE_PLACE_DEVICE;
    o.activations = SLUICE_ACTIVATIONS_RECOMPUTE;
    o.checkpoints = BLOCKS;
    REQUIRE_OK(train(&o, &alone));
    check_same(&alone, &kept);
    o.checkpoints = 0;
    for (o.device_bytes = alone.peak - 1; train(&o, &grouped) == SLUICE_OK; o.device_bytes = grouped.peak - 1) {
        CHECK(grouped.totals.recomputed_groups < grouped.totals.recomputed_layers);
        check_same(&grouped, &kept);
        sizes += grouped.totals.largest_group != largest;
        largest = grouped.totals.largest_group;
        least = grouped.peak;
    }
    CHECK_CONTAINS(sluice_error(), "does not fit");
    CHECK(sizes > 1);
    CHECK_THAT(least < alone.peak - 8 * sizeof(float) * ROWS * FEATURES, "%llu bytes alone, %llu in groups",
               (unsigned long long)alone.peak, (unsigned long long)least);
}

/* ---- ranks, stages and precisions ---- */

static const subject deep_gpt = { "deep gpt2",
                                  "{\"type\": \"gpt2\", \"layers\": 40, \"heads\": 2, \"width\": 16, \"context\": 64,"
                                  " \"vocabulary\": \"bytes\", \"dropout\": 0.1}",
                                  "{\"type\": \"text\", \"path\": \"%s/text\", \"validation\": 0}",
                                  "64",
                                  3,
                                  8,
                                  1.8,
                                  17,
                                  NULL };

/* Runs a setting and compares it with the first run of its precision; the bytes it needs on the device. */
static uint64_t run_and_compare(campaign *c, int k, const setting *s, const char *extra, outcome *first)
{
    run_request q = { *s, &matrix_modes[k], c->folder, extra, c->device, c->out, c->subject, { NULL }, false, 0 };
    sluice_status st = matrix_run(&q);
    if (st != SLUICE_OK) {
        test_fail(__FILE__, __LINE__, "%s, %d ranks, stage %d, %s: %s", matrix_modes[k].name, s->ranks, s->stage,
                  extra != NULL ? extra : "kept", sluice_error());
        return 0;
    }
    if (first->weights[0] == '\0') *first = *c->out;
    CHECK_STR(c->out->weights, first->weights);
    CHECK_STR(c->out->state, first->state);
    CHECK_EQ(c->out->end.peak.device, c->out->plan.peak.device);
    CHECK_EQ(c->out->end.peak.host, c->out->plan.peak.host);
    CHECK_EQ(c->out->end.comm_gather, c->out->plan.comm_gather);
    CHECK_EQ(c->out->end.moved_to_device, c->out->plan.moved_to_device);
    return c->out->plan.peak.device;
}

static const setting divided[] = { { 1, 0, NOTHING, 0, 1 },
                                   { 2, 3, NOTHING, 1, 1 },
                                   { 4, 2, OPTIMIZER, 0, 1 },
                                   { 2, 3, OPTIMIZER_AND_PARAMETERS, 0, 1 } };
enum { DIVIDED = sizeof divided / sizeof divided[0] };

/* Single layers need so much; a byte less is had by groups alone, as everything else has its place. */
TEST(budgets_below_single_layers_give_the_same_bits_on_ranks_at_every_stage)
{
    campaign c;
    REQUIRE(matrix_start_of(&c, "cpu", &deep_gpt));
    for (int k = 0; k < MATRIX_MODES; k++) {
        const setting kept = { 1, 0, NOTHING, 0, 0 };
        outcome first = { .skipped = 0 };
        run_and_compare(&c, k, &kept, NULL, &first);
        for (int i = 0; i < DIVIDED; i++) {
            char budget[64];
            if (getenv("LONG") == NULL && i % 2 != k % 2) continue;
            uint64_t alone =
                run_and_compare(&c, k, &divided[i], "activation_checkpointing.number_checkpoints=41", &first);
            snprintf(budget, sizeof budget, "memory.device=%llu", (unsigned long long)alone - 1);
            uint64_t grouped = run_and_compare(&c, k, &divided[i], budget, &first);
            CHECK(grouped < alone);
        }
    }
    matrix_end(&c);
}

TEST(a_residual_network_in_groups_has_the_same_bits_on_ranks)
{
    campaign c;
    REQUIRE(matrix_start_with(&c, "cpu", MATRIX_RESNET));
    for (int k = 0; k < (getenv("LONG") != NULL ? MATRIX_MODES : 2); k++) {
        const setting kept = { 1, 0, NOTHING, 0, 0 };
        outcome first = { .skipped = 0 };
        run_and_compare(&c, k, &kept, NULL, &first);
        run_and_compare(&c, k, &divided[k], "activation_checkpointing.number_checkpoints=3", &first);
        run_and_compare(&c, k, &divided[3], "activation_checkpointing.number_checkpoints=2", &first);
    }
    matrix_end(&c);
}

/* batch_norm_runs.h: small networks with two batch norms, of linears and of convolutions, trained with 4 micro-batches a step
 * on {1, 2, 4} ranks, at every stage, with everything that can be moved or recomputed: the same weights, the same state, the
 * same running statistics on every rank, on the CPU and on a GPU that the ranks share. */
#ifndef SLUICE_TEST_BATCH_NORM_RUNS_H
#define SLUICE_TEST_BATCH_NORM_RUNS_H

#include "support/norm_runs.h"

enum { ROWS = 6, GLOBAL = 4, STEPS = 5 };

/* ---- the network ---- */

static inline sluice_value normed(sluice_graph *g, sluice_value x, const char *name, sluice_value residual)
{
    sluice_batch_norm_options o;
    sluice_batch_norm_options_init(&o);
    o.relu = true;
    o.residual = residual;
    return sluice_batch_norm(g, x, name, &o);
}

static inline sluice_graph *build(bool more)
{
    sluice_graph *g = NULL;
    if (sluice_graph_create(&g) != SLUICE_OK) return NULL;
    sluice_value x = sluice_input(g, "x", SLUICE_F32, 2, (int64_t[]){ ROWS, FEATURES });
    sluice_value target = sluice_input(g, "target", SLUICE_I32, 1, (int64_t[]){ ROWS });
    sluice_layer(g, "first");
    sluice_value h = normed(g, sluice_linear(g, x, CHANNELS, "fc1"), "bn1", SLUICE_NONE);
    sluice_layer(g, "second");
    sluice_value y = normed(g, sluice_linear(g, h, CHANNELS, "fc2"), "bn2", h);
    if (more) y = normed(g, y, "bn3", SLUICE_NONE);
    sluice_layer(g, "head");
    sluice_value logits = sluice_linear(g, y, CLASSES, "fc3");
    sluice_set_output(g, logits);
    sluice_set_loss(g, sluice_cross_entropy(g, logits, target, -1));
    return g;
}

/* A convolution without bias over 3 places of a row. */
static inline sluice_value convolved(sluice_graph *g, sluice_value x, const char *name, int64_t in)
{
    sluice_conv_options o;
    sluice_init init = { SLUICE_INIT_NORMAL, 0.3f };
    sluice_conv_options_init(&o);
    o.padding_w = 1;
    return sluice_conv2d(g, x, sluice_parameter(g, name, 4, (int64_t[]){ CHANNELS, in, 1, 3 }, init), SLUICE_NONE, &o);
}

/* The same rows as images of 1 x FEATURES pixels. */
static inline sluice_graph *build_convolutions(void)
{
    sluice_graph *g = NULL;
    sluice_pool_options pool;
    if (sluice_graph_create(&g) != SLUICE_OK) return NULL;
    sluice_pool_options_init(&pool);
    pool.kernel_h = pool.stride_h = 1;
    pool.kernel_w = pool.stride_w = 2;
    sluice_value x = sluice_input(g, "x", SLUICE_F32, 4, (int64_t[]){ ROWS, 1, FEATURES, 1 });
    sluice_value target = sluice_input(g, "target", SLUICE_I32, 1, (int64_t[]){ ROWS });
    sluice_layer(g, "first");
    sluice_value h = normed(g, convolved(g, x, "conv1.weight", 1), "bn1", SLUICE_NONE);
    h = sluice_max_pool2d(g, h, &pool);
    sluice_layer(g, "second");
    sluice_value y = normed(g, convolved(g, h, "conv2.weight", CHANNELS), "bn2", h);
    sluice_layer(g, "head");
    sluice_value logits = sluice_linear(g, sluice_global_avg_pool(g, y), CLASSES, "fc3");
    sluice_set_output(g, logits);
    sluice_set_loss(g, sluice_cross_entropy(g, logits, target, -1));
    return g;
}

typedef struct rows {
    float x[ROWS * FEATURES];
    int32_t target[ROWS];
    sluice_array arrays[2];
    sluice_batch batch;
} rows;

/* Micro-batch `number` of all, whoever computes it. */
static inline void make_rows(uint32_t number, rows *r)
{
    uint32_t state = number * 2654435761u + 12345u;
    for (int i = 0; i < ROWS * FEATURES; i++) {
        state = state * 1664525u + 1013904223u;
        r->x[i] = (float)(state >> 8) / 8388608.0f + (float)(i % FEATURES);
    }
    for (int i = 0; i < ROWS; i++) r->target[i] = (int32_t)((state >> (8 + i)) % CLASSES);
    r->arrays[0] = (sluice_array){ "x", r->x, sizeof r->x };
    r->arrays[1] = (sluice_array){ "target", r->target, sizeof r->target };
    r->batch = (sluice_batch){ r->arrays, 2 };
}

static inline void base_options(sluice_options *o)
{
    set_norm_options(o, GLOBAL);
}

static inline sluice_status train_steps(sluice_engine *e, int rank, int ranks, int first, int count)
{
    rows r[GLOBAL];
    sluice_batch batches[GLOBAL];
    double loss;
    for (int step = first; step < first + count; step++) {
        for (int m = 0; m < GLOBAL / ranks; m++) {
            make_rows((uint32_t)(step * GLOBAL + m * ranks + rank), &r[m]);
            batches[m] = r[m].batch;
        }
        sluice_status st = sluice_train_step(e, batches, &loss);
        if (st != SLUICE_OK) return st;
    }
    return SLUICE_OK;
}

/* ---- many ways to run it ---- */

typedef struct scenario {
    sluice_options options;
    bool convolves;
    results *results; /* shared with the ranks */
} scenario;

static inline sluice_status use_engine(const scenario *s, sluice_engine *e, int rank, int ranks)
{
    rows r;
    double loss = 0;
    make_rows(77777, &r);
    sluice_status st = train_steps(e, rank, ranks, 0, STEPS);
    if (st == SLUICE_OK) st = read_statistics(e, rank, "bn2", s->results);
    if (st == SLUICE_OK) st = sluice_evaluate(e, &r.batch, &loss);
    return st == SLUICE_OK ? read_end(e, rank, loss, s->results) : st;
}

static inline sluice_status body(void *user, sluice_world *world)
{
    const scenario *s = user;
    sluice_options o = s->options;
    sluice_graph *g = s->convolves ? build_convolutions() : build(false);
    sluice_engine *e = NULL;
    int rank = sluice_world_rank(world), ranks = sluice_world_size(world);
    o.world = world;
    o.accumulation_steps = GLOBAL / ranks;
    sluice_status st = sluice_engine_create(g, &o, &e);
    if (st == SLUICE_OK) st = use_engine(s, e, rank, ranks);
    sluice_engine_destroy(e);
    sluice_graph_destroy(g);
    return st;
}

static inline bool run(scenario *s, int ranks)
{
    if (launch_ranks(body, s, ranks, s->results) == SLUICE_OK) return true;
    test_fail(__FILE__, __LINE__, "%d ranks, stage %d: %s", ranks, s->options.stage, sluice_error());
    return false;
}

/* Ranks, stage, whether parameters and state are on the host, what becomes of activations. */
static const struct {
    int ranks, stage;
    bool host;
    sluice_activations activations;
} ways[] = {
    { 1, 0, false, SLUICE_ACTIVATIONS_KEEP },      { 1, 0, true, SLUICE_ACTIVATIONS_RECOMPUTE },
    { 2, 0, false, SLUICE_ACTIVATIONS_OFFLOAD },   { 2, 1, true, SLUICE_ACTIVATIONS_KEEP },
    { 4, 1, false, SLUICE_ACTIVATIONS_RECOMPUTE }, { 2, 2, false, SLUICE_ACTIVATIONS_RECOMPUTE },
    { 4, 2, true, SLUICE_ACTIVATIONS_OFFLOAD },    { 4, 3, false, SLUICE_ACTIVATIONS_KEEP },
    { 4, 3, true, SLUICE_ACTIVATIONS_RECOMPUTE },
};

static inline void run_all_ways(sluice_device device, sluice_dtype precision, bool convolves, results *first)
{
    scenario s = { .convolves = convolves, .results = share_results() };
    REQUIRE(s.results != MAP_FAILED);
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        base_options(&s.options);
        s.options.precision = precision;
        s.options.device = device;
        s.options.loss_scale.initial_power = 24; /* the first steps overflow */
        s.options.stage = ways[i].stage;
        s.options.parameters = s.options.optimizer_state = ways[i].host ? SLUICE_PLACE_HOST : SLUICE_PLACE_DEVICE;
        s.options.activations = ways[i].activations;
        if (!run(&s, ways[i].ranks)) continue;
        if (i == 0) *first = *s.results;
        check_same_bits(s.results, first, ways[i].ranks, STEPS * GLOBAL);
        CHECK(s.results->evaluated == first->evaluated);
        check_peaks(s.results);
    }
    munmap(s.results, sizeof *s.results);
}

#endif

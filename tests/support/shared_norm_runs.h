/* shared_norm_runs.h: small networks with batch norms over all ranks, of linears and of convolutions. A step has GROUPS groups of
 * SAMPLES samples, which R ranks divide among themselves. */
#ifndef SLUICE_TEST_SHARED_NORM_RUNS_H
#define SLUICE_TEST_SHARED_NORM_RUNS_H

#include "runtime/exec.h"
#include "support/norm_runs.h"
#include "train/engine.h"

enum { SAMPLES = 12, GROUPS = 2, STEPS = 4 };

/* ---- the networks ---- */

typedef struct network {
    bool convolves, all_ranks;
    bool
        elementwise; /* weights multiply each element: what becomes of a sample cannot depend on others but by a norm */
    bool frozen;     /* all but batch norms: no other gradient is a sum over samples */
    int64_t samples;
} network;

static inline sluice_value weights(sluice_graph *g, const network *n, const char *name, int rank, const int64_t *shape)
{
    const sluice_init init = { SLUICE_INIT_NORMAL, 0.4f };
    sluice_value w = sluice_parameter(g, name, rank, shape, init);
    if (n->frozen) sluice_freeze(g, w);
    return w;
}

static inline sluice_value product(sluice_graph *g, const network *n, sluice_value x, const char *name, int64_t in,
                                   int64_t out)
{
    sluice_conv_options o;
    if (n->elementwise) return sluice_multiply(g, x, weights(g, n, name, 1, &out));
    if (!n->convolves)
        return sluice_linear_with(g, x, weights(g, n, name, 2, (int64_t[]){ out, in }), SLUICE_NONE, false);
    sluice_conv_options_init(&o);
    o.padding_w = 1;
    return sluice_conv2d(g, x, weights(g, n, name, 4, (int64_t[]){ out, in, 1, 3 }), SLUICE_NONE, &o);
}

static inline sluice_value normed(sluice_graph *g, const network *n, sluice_value x, const char *name, bool relu,
                                  sluice_value residual)
{
    sluice_batch_norm_options o;
    sluice_batch_norm_options_init(&o);
    o.relu = relu;
    o.residual = residual;
    o.all_ranks = n->all_ranks;
    return sluice_batch_norm(g, x, name, &o);
}

static inline sluice_graph *build_network(const network *n)
{
    sluice_graph *g = NULL;
    const bool images = n->convolves || n->elementwise;
    const int64_t plain[] = { n->samples, FEATURES }, image[] = { n->samples, 1, FEATURES, 1 };
    const int64_t in = images ? 1 : FEATURES;
    if (sluice_graph_create(&g) != SLUICE_OK) return NULL;
    sluice_value x = sluice_input(g, "x", SLUICE_F32, images ? 4 : 2, images ? image : plain);
    sluice_value target = sluice_input(g, "target", SLUICE_I32, 1, &n->samples);
    sluice_layer(g, "first");
    sluice_value h = normed(g, n, product(g, n, x, "w1", in, CHANNELS), "bn1", true, SLUICE_NONE);
    sluice_layer(g, "second");
    sluice_value z = normed(g, n, product(g, n, h, "w2", CHANNELS, CHANNELS), "bn2", false, SLUICE_NONE);
    sluice_value y = normed(g, n, product(g, n, h, "w3", CHANNELS, CHANNELS), "bn3", true, z);
    sluice_layer(g, "head");
    if (images) y = sluice_global_avg_pool(g, y);
    sluice_value logits = y;
    if (!n->elementwise) {
        sluice_value w = weights(g, n, "head", 2, (int64_t[]){ CLASSES, CHANNELS });
        logits = sluice_linear_with(g, y, w, SLUICE_NONE, false);
    }
    sluice_set_output(g, logits);
    sluice_set_loss(g, sluice_cross_entropy(g, logits, target, -1));
    return g;
}

/* ---- data ---- */

typedef struct rows {
    float x[SAMPLES * FEATURES];
    int32_t target[SAMPLES];
    sluice_array arrays[2];
    sluice_batch batch;
} rows;

/* Samples [first, first + count) of group `number`, whoever computes them. */
static inline void make_rows(uint32_t number, int first, int count, rows *r)
{
    for (int i = 0; i < count; i++) {
        uint32_t state = (number * SAMPLES + (uint32_t)(first + i)) * 2654435761u + 12345u;
        for (int k = 0; k < FEATURES; k++) {
            state = state * 1664525u + 1013904223u;
            r->x[i * FEATURES + k] = (float)(state >> 8) / 8388608.0f + (float)k;
        }
        r->target[i] = (int32_t)((state >> 10) % CLASSES);
    }
    r->arrays[0] = (sluice_array){ "x", r->x, (size_t)count * FEATURES * sizeof *r->x };
    r->arrays[1] = (sluice_array){ "target", r->target, (size_t)count * sizeof *r->target };
    r->batch = (sluice_batch){ r->arrays, 2 };
}

/* ---- runs ---- */

typedef struct scenario {
    sluice_options options;
    network network;
    const char *resume; /* folder of checkpoints to go on from; NULL: none */
    const char *save;
    results *results; /* shared with the ranks */
} scenario;

static inline sluice_status train_steps(const scenario *s, sluice_engine *e, int rank, int first)
{
    const int count = (int)s->network.samples;
    rows r[GROUPS];
    sluice_batch batches[GROUPS];
    for (int step = first; step < first + STEPS; step++) {
        for (int m = 0; m < GROUPS; m++) {
            make_rows((uint32_t)(step * GROUPS + m), rank * count, count, &r[m]);
            batches[m] = r[m].batch;
        }
        sluice_status st = sluice_train_step(e, batches, &s->results->loss);
        if (st != SLUICE_OK) return st;
    }
    return SLUICE_OK;
}

static inline sluice_status read_results(const scenario *s, sluice_engine *e, int rank)
{
    results *out = s->results;
    sl_comm_stats comm;
    rows r;
    double loss = 0;
    make_rows(77777, 0, (int)s->network.samples, &r);
    sluice_status st = read_statistics(e, rank, "bn3", out);
    if (st == SLUICE_OK) st = sl_exec_settle(e->exec);
    sl_exec_stats(e->exec, &(sl_device_stats){ 0 }, &comm); /* evaluation gathers parameters, too */
    if (st == SLUICE_OK) st = sluice_evaluate(e, &r.batch, &loss);
    out->sent[rank] = comm.gather_bytes;
    out->predicted[rank] = e->plan->totals.comm_gather * STEPS;
    return st == SLUICE_OK ? read_end(e, rank, loss, out) : st;
}

static inline sluice_status shared_norm_body(void *user, sluice_world *world)
{
    const scenario *s = user;
    sluice_options o = s->options;
    sluice_graph *g = build_network(&s->network);
    sluice_engine *e = NULL;
    uint64_t step = 0;
    const int rank = sluice_world_rank(world);
    o.world = world;
    sluice_status st = sluice_engine_create(g, &o, &e);
    if (st == SLUICE_OK && s->resume != NULL) st = sluice_checkpoint_resume(e, s->resume, &step);
    if (st == SLUICE_OK) st = train_steps(s, e, rank, (int)step);
    if (st == SLUICE_OK && s->save != NULL) st = sluice_checkpoint_save(e, s->save);
    if (st == SLUICE_OK) st = read_results(s, e, rank);
    sluice_engine_destroy(e);
    sluice_graph_destroy(g);
    return st;
}

static inline sluice_status launch_scenario(scenario *s, int ranks)
{
    s->network.samples = SAMPLES / ranks;
    return launch_ranks(shared_norm_body, s, ranks, s->results);
}

static inline bool run_scenario(scenario *s, int ranks)
{
    if (launch_scenario(s, ranks) == SLUICE_OK) return true;
    test_fail(__FILE__, __LINE__, "%d ranks, stage %d: %s", ranks, s->options.stage, sluice_error());
    return false;
}

/* What the plan says beforehand is what happens. */
static inline void check_predictions(const results *r, int ranks)
{
    check_peaks(r);
    for (int i = 0; i < ranks; i++) CHECK_EQ(r->sent[i], r->predicted[i]);
}

static const sluice_dtype precisions[] = { SLUICE_F32, SLUICE_BF16, SLUICE_F16 };

static inline void set_scenario(scenario *s, sluice_device device, sluice_dtype precision, bool convolves)
{
    results *kept = s->results;
    *s = (scenario){ .network = { .convolves = convolves, .all_ranks = true }, .results = kept };
    set_norm_options(&s->options, GROUPS);
    s->options.device = device;
    s->options.precision = precision;
    s->options.loss_scale.initial_power = 20; /* the first steps overflow */
}

/* Stage, whether parameters and state are on the host, what becomes of activations. */
static const struct {
    int stage;
    bool host;
    sluice_activations activations;
    bool offload_checkpoints;
} ways[] = {
    { 0, false, SLUICE_ACTIVATIONS_KEEP, false },      { 0, true, SLUICE_ACTIVATIONS_RECOMPUTE, true },
    { 1, false, SLUICE_ACTIVATIONS_OFFLOAD, false },   { 2, true, SLUICE_ACTIVATIONS_RECOMPUTE, false },
    { 3, false, SLUICE_ACTIVATIONS_RECOMPUTE, false }, { 3, true, SLUICE_ACTIVATIONS_OFFLOAD, false },
};

static inline void run_all_ways(sluice_device device, sluice_dtype precision, bool convolves, int ranks)
{
    scenario s = { .results = share_results() };
    results first = { 0 };
    REQUIRE(s.results != MAP_FAILED);
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        set_scenario(&s, device, precision, convolves);
        s.options.stage = ways[i].stage;
        s.options.parameters = s.options.optimizer_state = ways[i].host ? SLUICE_PLACE_HOST : SLUICE_PLACE_DEVICE;
        s.options.activations = ways[i].activations;
        s.options.offload_checkpoints = ways[i].offload_checkpoints;
        if (!run_scenario(&s, ranks)) continue;
        if (i == 0) first = *s.results;
        check_same_bits(s.results, &first, ranks, STEPS * GROUPS);
        CHECK(s.results->evaluated == first.evaluated);
        check_predictions(s.results, ranks);
    }
    munmap(s.results, sizeof *s.results);
}

/* R ranks with SAMPLES / R samples each, at all stages, are one with SAMPLES: where no gradient but those of batch norms is a sum
 * over samples, in every bit of weights and state. */
static inline void run_all_divisions(sluice_device device, sluice_dtype precision, bool convolves, bool elementwise)
{
    scenario s = { .results = share_results() };
    results first = { 0 };
    REQUIRE(s.results != MAP_FAILED);
    for (int ranks = 1, stage = 0; ranks <= MOST_RANKS; ranks *= stage == 3 ? 2 : 1, stage = (stage + 1) % 4) {
        if (ranks == 1 && stage > 0) continue;
        set_scenario(&s, device, precision, convolves);
        s.network.frozen = true;
        s.network.elementwise = elementwise;
        s.options.stage = stage;
        if (!run_scenario(&s, ranks)) continue;
        if (ranks == 1) first = *s.results;
        check_same_bits(s.results, &first, ranks, STEPS * GROUPS);
        check_predictions(s.results, ranks);
    }
    CHECK(first.mean[0][0] != 0.0f && first.variance[0][0] != 1.0f);
    munmap(s.results, sizeof *s.results);
}

#endif

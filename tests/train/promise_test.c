/* promise_test.c: what every plan promises, over random models, batch sizes and budgets: predicted peak = observed peak
 * to the byte, and the same bits wherever things live. */
#include "support/random_model.h"
#include "test.h"
#include "train/engine.h"

/* Optimizer, accumulation, placement and activation settings; budgets are left at 0. */
static void random_options(random_state *r, sluice_options *o)
{
    sluice_options_init(o);
    sluice_optimizer_init(&o->optimizer, (sluice_optimizer_kind)random_between(r, SLUICE_SGD, SLUICE_LION));
    o->gradient_clipping = (double)random_between(r, 0, 1);
    o->accumulation_steps = (int)random_between(r, 1, 3);
    o->parameters = (sluice_place)random_between(r, SLUICE_PLACE_AUTO, SLUICE_PLACE_HOST);
    o->optimizer_state = (sluice_place)random_between(r, SLUICE_PLACE_AUTO, SLUICE_PLACE_HOST);
    o->activations = (sluice_activations)random_between(r, SLUICE_ACTIVATIONS_AUTO, SLUICE_ACTIVATIONS_SELECTIVE);
    o->offload_checkpoints = random_between(r, 0, 1) == 1;
    o->levels = (int)random_between(r, 0, 3);
    o->prefetch_layers = (int)random_between(r, -1, 2);
    o->evaluation = random_between(r, 0, 1) == 1;
    o->threads = (int)random_between(r, 1, 2);
    o->checkpoints = (int)random_between(r, 0, 3);
    o->delayed_updates = random_between(r, 0, 2) == 0;
    o->delay_warmup = random_between(r, 0, 1);
}

typedef struct outcome {
    sluice_status status;
    sluice_memory planned, observed;
    char weights[65], state[65];
} outcome;

/* `steps` steps of an engine on fixed data, and an evaluation where one is planned. */
static sluice_status run_steps(sluice_engine *e, const random_batch *data, int accumulation, bool evaluate, int steps)
{
    sluice_batch batches[3];
    double loss;
    for (int m = 0; m < accumulation; m++) batches[m] = (sluice_batch){ data[m].arrays, data[m].count };
    for (int s = 0; s < steps; s++) SL_TRY(sluice_train_step(e, batches, &loss));
    if (evaluate) SL_TRY(sluice_evaluate(e, &batches[0], &loss));
    return SLUICE_OK;
}

static void run_engine(uint64_t model_seed, const sluice_options *o, outcome *out)
{
    random_state r = { model_seed };
    sluice_graph *g = NULL;
    sluice_engine *e = NULL;
    random_batch data[3] = { 0 };
    memset(out, 0, sizeof *out);
    out->status = random_graph(&r, &g);
    if (out->status == SLUICE_OK) out->status = sluice_engine_create(g, o, &e);
    for (int m = 0; out->status == SLUICE_OK && m < o->accumulation_steps; m++)
        out->status = random_batch_make(g, model_seed + 100 + (uint64_t)m, &data[m]);
    if (out->status == SLUICE_OK) out->status = run_steps(e, data, o->accumulation_steps, o->evaluation, 2);
    if (out->status == SLUICE_OK) {
        sluice_planned_peak(e, &out->planned);
        sluice_observed_peak(e, &out->observed);
        if (!o->null_backend) out->status = sluice_hash(e, out->weights, out->state);
    }
    for (int m = 0; m < 3; m++) random_batch_free(&data[m]);
    sluice_engine_destroy(e);
    sluice_graph_destroy(g);
}

/* Draws options and a budget between too little and plenty. Returns how often the engine really ran. */
static int check_case(uint64_t seed, bool null_backend)
{
    random_state r = { seed * 7919 + 13 };
    sluice_options o;
    outcome free_run, run;
    random_options(&r, &o);
    o.null_backend = null_backend;
    o.guard = !null_backend;
    o.host_bytes = (uint64_t)1 << 30;
    o.device_bytes = (uint64_t)1 << 30;
    run_engine(seed, &o, &free_run);
    if (free_run.status != SLUICE_OK) {
        test_fail(__FILE__, __LINE__, "seed %d: %s", (int)seed, sluice_error());
        return 0;
    }
    o.device_bytes = free_run.planned.device * (uint64_t)random_between(&r, 30, 110) / 100;
    run_engine(seed, &o, &run);
    const outcome *both[] = { &free_run, &run };
    for (int i = 0; i < 2; i++) {
        if (both[i]->status == SLUICE_ERR_NO_FIT) continue;
        if (both[i]->status != SLUICE_OK) test_fail(__FILE__, __LINE__, "seed %d: %s", (int)seed, sluice_error());
        if (both[i]->planned.device != both[i]->observed.device || both[i]->planned.host != both[i]->observed.host)
            test_fail(__FILE__, __LINE__, "seed %d: planned %llu, %llu; observed %llu, %llu", (int)seed,
                      (unsigned long long)both[i]->planned.device, (unsigned long long)both[i]->planned.host,
                      (unsigned long long)both[i]->observed.device, (unsigned long long)both[i]->observed.host);
        if (both[i]->planned.device > (i == 0 ? (uint64_t)1 << 30 : o.device_bytes))
            test_fail(__FILE__, __LINE__, "seed %d: the plan is over its budget", (int)seed);
    }
    if (run.status != SLUICE_OK) return 1;
    CHECK_STR(run.weights, free_run.weights);
    CHECK_STR(run.state, free_run.state);
    return 2;
}

TEST(predicted_peak_is_observed_peak_over_random_models_and_budgets)
{
    int runs = 0;
    for (uint64_t seed = 1; seed <= 240; seed++) runs += check_case(seed, true);
    CHECK(runs >= 300); /* most of the shrunken budgets must still fit, or the test tests nothing */
}

TEST(predicted_peak_is_observed_peak_when_really_run_under_guard)
{
    int runs = 0;
    for (uint64_t seed = 1001; seed <= 1030; seed++) runs += check_case(seed, false);
    CHECK(runs >= 40);
}

/* ---- the same bits for every placement of one model ---- */

#define MODEL_SEED 4212 /* a transformer of five blocks with a tied embedding */

static void base_options(sluice_options *o)
{
    sluice_options_init(o);
    sluice_optimizer_init(&o->optimizer, SLUICE_ADAMW);
    o->gradient_clipping = 0.5;
    o->accumulation_steps = 2;
    o->seed = 9;
    o->threads = 1;
    o->guard = true;
}

TEST(weights_and_state_do_not_depend_on_placement_threads_levels_or_prefetch)
{
    sluice_options o;
    outcome reference, run;
    int runs = 0;
    base_options(&o);
    run_engine(MODEL_SEED, &o, &reference);
    if (reference.status != SLUICE_OK) test_fail(__FILE__, __LINE__, "%s", sluice_error());
    for (int parameters = SLUICE_PLACE_DEVICE; parameters <= SLUICE_PLACE_HOST; parameters++)
        for (int state = SLUICE_PLACE_DEVICE; state <= SLUICE_PLACE_HOST; state++)
            for (int activations = SLUICE_ACTIVATIONS_KEEP; activations <= SLUICE_ACTIVATIONS_SELECTIVE; activations++)
                for (int levels = 1; levels <= 3; levels++) {
                    o.parameters = (sluice_place)parameters;
                    o.optimizer_state = (sluice_place)state;
                    o.activations = (sluice_activations)activations;
                    o.levels = levels;
                    o.prefetch_layers = levels - 1;
                    o.threads = 1 + levels % 2;
                    o.offload_checkpoints = levels == 2;
                    o.checkpoints = levels - 1;
                    run_engine(MODEL_SEED, &o, &run);
                    if (run.status != SLUICE_OK) test_fail(__FILE__, __LINE__, "%s", sluice_error());
                    CHECK_STR(run.weights, reference.weights);
                    CHECK_STR(run.state, reference.state);
                    runs++;
                }
    CHECK_EQ(runs, 48);
}

TEST(one_weight_off_by_one_unit_in_the_last_place_gives_another_hash)
{
    random_state r = { MODEL_SEED };
    sluice_graph *g;
    sluice_engine *e;
    sluice_options o;
    char before[65], after[65], state[65];
    base_options(&o);
    REQUIRE_OK(random_graph(&r, &g));
    REQUIRE_OK(sluice_engine_create(g, &o, &e));
    REQUIRE_OK(sluice_hash(e, before, state));
    const sl_parameter *q = &g->parameters[0];
    float *w = malloc((size_t)q->count * sizeof *w);
    REQUIRE(w != NULL);
    REQUIRE_OK(sluice_get_parameter(e, q->name, w, (size_t)q->count * sizeof *w));
    w[q->count - 1] = nextafterf(w[q->count - 1], 1e30f);
    REQUIRE_OK(sluice_set_parameter(e, q->name, w, (size_t)q->count * sizeof *w));
    REQUIRE_OK(sluice_hash(e, after, state));
    CHECK(strcmp(before, after) != 0);
    free(w);
    sluice_engine_destroy(e);
    sluice_graph_destroy(g);
}

enum { RESIDENT, RECOMPUTED, STAGED, REFUSED, STAGES };

/* What the plan does in `device` bytes; a refusal says what is missing. */
static int stage_at(const sluice_options *base, uint64_t device)
{
    random_state r = { MODEL_SEED };
    sluice_options o = *base;
    sluice_graph *g;
    sluice_engine *e = NULL;
    int stage = REFUSED;
    o.device_bytes = device;
    o.null_backend = true;
    if (random_graph(&r, &g) != SLUICE_OK) return -1;
    sluice_status st = sluice_engine_create(g, &o, &e);
    if (st == SLUICE_OK) {
        const sl_plan_totals *t = &e->plan->totals;
        bool host = t->host_state_layers + t->host_parameter_layers + t->offloaded_layers > 0;
        stage = host ? STAGED : t->recomputed_layers + t->cheap_layers > 0 ? RECOMPUTED : RESIDENT;
    } else {
        CHECK_EQ(st, SLUICE_ERR_NO_FIT);
        CHECK_CONTAINS(sluice_error(), "are missing");
        CHECK_CONTAINS(sluice_error(), "What would help");
    }
    sluice_engine_destroy(e);
    sluice_graph_destroy(g);
    return stage;
}

/* Less and less memory: what is planned at each, whether it runs to `weights`, and the least that was not refused. */
static uint64_t shrink(const sluice_options *base, uint64_t all, const char *weights, int seen[STAGES])
{
    uint64_t least = all;
    for (uint64_t device = all; device > all / 80; device -= all / 80) {
        int now = stage_at(base, device);
        CHECK(now >= 0);
        if (now < 0 || now == REFUSED) break;
        least = device;
        if (seen[now]++ > 0) continue;
        outcome run;
        sluice_options real = *base;
        real.device_bytes = device;
        run_engine(MODEL_SEED, &real, &run);
        CHECK_EQ(run.status, SLUICE_OK);
        CHECK_STR(run.weights, weights);
    }
    return least;
}

TEST(shrinking_the_device_takes_measures_and_then_refuses)
{
    int alone[STAGES] = { 0 }, with_host[STAGES] = { 0 };
    sluice_options o;
    outcome unlimited;
    base_options(&o);
    run_engine(MODEL_SEED, &o, &unlimited);
    CHECK_EQ(unlimited.status, SLUICE_OK);
    uint64_t all = unlimited.planned.device, least = shrink(&o, all, unlimited.weights, with_host);
    CHECK(with_host[RESIDENT] > 0 && with_host[STAGED] > 0);
    o.activations = SLUICE_ACTIVATIONS_AUTO;
    o.parameters = o.optimizer_state = SLUICE_PLACE_DEVICE;
    o.host_bytes = 1; /* nothing fits there */
    uint64_t least_alone = shrink(&o, all, unlimited.weights, alone);
    CHECK(alone[RESIDENT] > 0 && alone[RECOMPUTED] > 0);
    CHECK_EQ(alone[STAGED], 0);
    CHECK(least < least_alone && least_alone < all);
}

/* ---- the worked example of three levels ---- */

static sluice_status three_layers(sluice_graph **out)
{
    int64_t n = 200;
    sluice_graph *g;
    SL_TRY(sluice_graph_create(&g));
    sluice_value x = sluice_input(g, "x", SLUICE_F32, 1, &n);
    for (int i = 0; i < 3; i++) {
        char name[8];
        snprintf(name, sizeof name, "w%d", i);
        sluice_layer(g, name);
        x = sluice_multiply(g, x, sluice_parameter(g, name, 1, &n, (sluice_init){ SLUICE_INIT_NORMAL, 1.0f }));
    }
    sluice_set_loss(g, sluice_mean(g, x));
    *out = g;
    return sluice_graph_check(g);
}

/* Most bytes of weights on the device at any step, not counting alignment. */
static uint64_t resident_weights(const sl_plan *p)
{
    uint64_t most = 0;
    for (int i = 0; i < p->step_count; i++) {
        uint64_t live = 0;
        for (int b = 0; b < p->buffer_count; b++) {
            const sl_buffer *q = &p->buffers[b];
            if (q->kind == SL_BUFFER_PARAMETERS && q->tier == SL_TIER_DEVICE && q->first <= i && i <= q->last)
                live += q->bytes;
        }
        if (live > most) most = live;
    }
    return most;
}

TEST(three_layers_of_200_in_three_levels_keep_1600_bytes_of_weights_at_once)
{
    const struct {
        int levels, prefetch;
        uint64_t bytes;
    } rows[] = { { 3, 0, 800 }, { 3, 1, 1600 }, { 1, 1, 2400 } };
    char first[65] = "";
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        sluice_graph *g;
        sluice_engine *e;
        sluice_options o;
        float x[200];
        double loss;
        char weights[65], state[65];
        sluice_array a = { "x", x, sizeof x };
        sluice_batch batch = { &a, 1 };
        for (int k = 0; k < 200; k++) x[k] = (float)k / 100;
        REQUIRE_OK(three_layers(&g));
        sluice_options_init(&o);
        sluice_optimizer_init(&o.optimizer, SLUICE_ADAMW);
        o.parameters = o.optimizer_state = SLUICE_PLACE_HOST;
        o.levels = rows[i].levels;
        o.prefetch_layers = rows[i].prefetch;
        REQUIRE_OK(sluice_engine_create(g, &o, &e));
        CHECK_EQ(resident_weights(e->plan), rows[i].bytes);
        for (int s = 0; s < 3; s++) REQUIRE_OK(sluice_train_step(e, &batch, &loss));
        REQUIRE_OK(sluice_hash(e, weights, state));
        if (i == 0) memcpy(first, weights, sizeof first);
        CHECK_STR(weights, first);
        sluice_engine_destroy(e);
        sluice_graph_destroy(g);
    }
}

TEST(calls_out_of_order_are_refused_and_change_nothing)
{
    random_state r = { MODEL_SEED };
    sluice_graph *g;
    sluice_engine *e;
    sluice_options o;
    random_batch data;
    double loss;
    char before[65], after[65], state[65];
    base_options(&o);
    o.evaluation = true;
    REQUIRE_OK(random_graph(&r, &g));
    REQUIRE_OK(sluice_engine_create(g, &o, &e));
    REQUIRE_OK(random_batch_make(g, 5, &data));
    sluice_batch batch = { data.arrays, data.count }, short_batch = { data.arrays, data.count - 1 };
    REQUIRE_OK(sluice_hash(e, before, state));
    CHECK_EQ(sluice_backward(e), SLUICE_ERR_USAGE);
    CHECK_EQ(sluice_step(e), SLUICE_ERR_USAGE);
    CHECK_EQ(sluice_forward(e, &short_batch, &loss), SLUICE_ERR_USAGE);
    REQUIRE_OK(sluice_forward(e, &batch, &loss));
    CHECK_EQ(sluice_forward(e, &batch, &loss), SLUICE_ERR_USAGE);
    CHECK_EQ(sluice_evaluate(e, &batch, &loss), SLUICE_ERR_USAGE);
    REQUIRE_OK(sluice_backward(e));
    CHECK_EQ(sluice_step(e), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "1 of 2");
    REQUIRE_OK(sluice_hash(e, after, state));
    CHECK_STR(after, before);
    random_batch_free(&data);
    sluice_engine_destroy(e);
    sluice_graph_destroy(g);
}

TEST(an_input_that_is_not_finite_is_named_and_leaves_the_weights)
{
    sluice_graph *g;
    sluice_engine *e;
    sluice_options o;
    float x[200];
    double loss;
    char before[65], after[65], state[65], state_after[65];
    sluice_array a = { "x", x, sizeof x };
    sluice_batch batch = { &a, 1 };
    for (int k = 0; k < 200; k++) x[k] = 1;
    x[17] = INFINITY;
    REQUIRE_OK(three_layers(&g));
    sluice_options_init(&o);
    REQUIRE_OK(sluice_engine_create(g, &o, &e));
    REQUIRE_OK(sluice_hash(e, before, state));
    CHECK_EQ(sluice_train_step(e, &batch, &loss), SLUICE_ERR_NUMBERS);
    CHECK_CONTAINS(sluice_error(), "step 1: input \"x\" of micro-batch 0 (rank 0) is infinite at element 17");
    REQUIRE_OK(sluice_hash(e, after, state_after));
    CHECK_STR(after, before);
    CHECK_STR(state_after, state);
    sluice_engine_destroy(e);
    sluice_graph_destroy(g);
}

/* train_ranks_test.c: the same bits on any number of ranks, and what happens when ranks differ or one fails. */
#include <sys/mman.h>

#include "core/status.h"
#include "support/random_model.h"
#include "test.h"
#include "train/engine.h"

#define MODEL_SEED 4212 /* a transformer of five blocks with a tied embedding */
#define GLOBAL     4    /* micro-batches in a step, over all ranks */
#define MOST_RANKS 8

/* What a body leaves behind for the test; in memory that the ranks share. */
typedef struct results {
    char weights[65], state[65];
    double loss, evaluated;
    float first_weight[MOST_RANKS]; /* by rank */
    double norm[MOST_RANKS];
} results;

typedef struct scenario {
    sluice_options options;
    int failing_rank; /* -1: none */
    int micro;        /* micro-batches in a step */
    results *results;
} scenario;

static results *shared_results(void)
{
    void *memory = mmap(NULL, sizeof(results), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return memory != MAP_FAILED ? memory : NULL;
}

static void base_scenario(scenario *s)
{
    *s = (scenario){ .failing_rank = -1, .micro = GLOBAL, .results = shared_results() };
    sluice_options_init(&s->options);
    sluice_optimizer_init(&s->options.optimizer, SLUICE_ADAMW);
    s->options.gradient_clipping = 0.5;
    s->options.seed = 9;
    s->options.threads = 1;
    s->options.evaluation = true;
    s->options.guard = true;
    s->options.device_bytes = s->options.host_bytes = (uint64_t)1 << 28;
}

/* Micro-batch `index` of the run, whichever rank asks for it. */
typedef struct filler {
    const sluice_graph *graph;
    int failing;
} filler;

static sluice_status fill(void *user, uint64_t index, const char *const *names, void *const *buffers,
                          const size_t *bytes, int count)
{
    const filler *f = user;
    random_batch batch;
    if (f->failing && index >= GLOBAL) return sl_fail(SLUICE_ERR_INPUT, "no more data");
    SL_TRY(random_batch_make(f->graph, 100 + index, &batch));
    for (int i = 0; i < count; i++)
        for (int k = 0; k < batch.count; k++)
            if (strcmp(batch.arrays[k].name, names[i]) == 0) memcpy(buffers[i], batch.arrays[k].data, bytes[i]);
    random_batch_free(&batch);
    return SLUICE_OK;
}

/* Two steps, an evaluation, hashes. */
static sluice_status use_engine(const scenario *s, sluice_graph *g, sluice_engine *e, int rank)
{
    filler f = { g, rank == s->failing_rank };
    sluice_data *data;
    random_batch batch;
    double loss, evaluated;
    char weights[65], state[65];
    SL_TRY(sluice_data_from_callback(fill, &f, &data));
    sluice_status st = sluice_fit(e, data, 2, &loss);
    sluice_data_destroy(data);
    SL_TRY(st);
    SL_TRY(random_batch_make(g, 7, &batch));
    st = sluice_evaluate(e, &(sluice_batch){ batch.arrays, batch.count }, &evaluated);
    random_batch_free(&batch);
    SL_TRY(st);
    SL_TRY(sluice_hash(e, weights, state));
    const sl_parameter *q = &g->parameters[0];
    float *values = malloc((size_t)q->count * sizeof *values);
    st = sluice_get_parameter(e, q->name, values, (size_t)q->count * sizeof *values);
    if (st == SLUICE_OK) s->results->first_weight[rank] = values[q->count - 1];
    free(values);
    s->results->norm[rank] = sluice_gradient_norm(e);
    if (rank != 0) return st;
    memcpy(s->results->weights, weights, sizeof weights);
    memcpy(s->results->state, state, sizeof state);
    s->results->loss = loss;
    s->results->evaluated = evaluated;
    return st;
}

static sluice_status run_rank(const scenario *s, sluice_world *world, uint64_t model_seed)
{
    random_state r = { model_seed };
    sluice_options o = s->options;
    sluice_graph *g = NULL;
    sluice_engine *e = NULL;
    o.world = world;
    o.accumulation_steps = s->micro / sluice_world_size(world);
    sluice_status st = random_graph(&r, &g);
    if (st == SLUICE_OK) st = sluice_engine_create(g, &o, &e);
    if (st == SLUICE_OK) st = use_engine(s, g, e, sluice_world_rank(world));
    sluice_engine_destroy(e);
    sluice_graph_destroy(g);
    return st;
}

static sluice_status body(void *user, sluice_world *world)
{
    return run_rank(user, world, MODEL_SEED);
}

static sluice_status launch(int ranks, sluice_status (*run)(void *user, sluice_world *world), void *user)
{
    sluice_launch_options o;
    sluice_launch_options_init(&o);
    o.ranks = ranks;
    o.timeout_seconds = 30;
    return sluice_launch(&o, run, user);
}

static void check_ranks(scenario *s, int ranks, const results *reference)
{
    memset(s->results, 0, sizeof *s->results);
    if (launch(ranks, body, s) != SLUICE_OK)
        test_fail(__FILE__, __LINE__, "%d ranks, stage %d, partition %d: %s", ranks, s->options.stage,
                  (int)s->options.partition, sluice_error());
    CHECK_STR(s->results->weights, reference->weights);
    CHECK_STR(s->results->state, reference->state);
    CHECK(s->results->loss == reference->loss);
    CHECK(s->results->evaluated == reference->evaluated);
    for (int r = 0; r < ranks; r++) {
        CHECK(s->results->first_weight[r] == reference->first_weight[0]);
        CHECK(s->results->norm[r] == reference->norm[0] && reference->norm[0] > 0);
    }
}

TEST(the_loss_of_a_step_is_the_mean_over_its_micro_batches)
{
    random_state r = { MODEL_SEED };
    scenario s;
    sluice_graph *graphs[2];
    sluice_engine *engines[2];
    sluice_data *data;
    double fitted, sum = 0, one;
    base_scenario(&s);
    s.options.accumulation_steps = GLOBAL;
    for (int i = 0; i < 2; i++) {
        r.state = MODEL_SEED;
        REQUIRE_OK(random_graph(&r, &graphs[i]));
        REQUIRE_OK(sluice_engine_create(graphs[i], &s.options, &engines[i]));
    }
    filler f = { graphs[0], 0 };
    REQUIRE_OK(sluice_data_from_callback(fill, &f, &data));
    REQUIRE_OK(sluice_fit(engines[0], data, 1, &fitted));
    for (uint64_t j = 0; j < GLOBAL; j++) {
        random_batch batch;
        REQUIRE_OK(random_batch_make(graphs[1], 100 + j, &batch));
        REQUIRE_OK(sluice_forward(engines[1], &(sluice_batch){ batch.arrays, batch.count }, &one));
        REQUIRE_OK(sluice_backward(engines[1]));
        random_batch_free(&batch);
        sum += one;
    }
    CHECK(fitted == sum / GLOBAL);
    sluice_data_destroy(data);
    for (int i = 0; i < 2; i++) {
        sluice_engine_destroy(engines[i]);
        sluice_graph_destroy(graphs[i]);
    }
}

TEST(every_number_of_ranks_stage_and_partition_gives_the_bits_of_one_rank)
{
    scenario s;
    base_scenario(&s);
    REQUIRE(s.results != NULL);
    REQUIRE_OK(run_rank(&s, NULL, MODEL_SEED));
    results reference = *s.results;
    CHECK_EQ(strlen(reference.weights), 64);
    s.options.partition_block = 2048;
    for (int ranks = 2; ranks <= GLOBAL; ranks += 2)
        for (int stage = 0; stage <= 3; stage++) {
            s.options.stage = stage;
            s.options.partition = (sluice_partition)(stage % 4);
            check_ranks(&s, ranks, &reference);
        }
}

/* Numbers of ranks that cut the norm's leaves anywhere; each has a run of one rank to compare with. */
TEST(every_cut_of_the_norm_over_ranks_gives_its_bits)
{
    static const int numbers[] = { 2, 3, 5, MOST_RANKS };
    static const double weights[MOST_RANKS] = { 3, 1, 0, 2, 7, 0.5, 1, 1 };
    for (int k = 0; k < 4; k++) {
        scenario s;
        base_scenario(&s);
        s.micro = numbers[k];
        REQUIRE(s.results != NULL);
        REQUIRE_OK(run_rank(&s, NULL, MODEL_SEED));
        results reference = *s.results;
        s.options.partition_block = 1024;
        s.options.partition_weights = weights;
        s.options.small_norm_nodes = true;
        for (int i = 0; i < 12; i++) {
            s.options.stage = 1 + i % 3;
            s.options.partition = (sluice_partition)(i / 3);
            check_ranks(&s, numbers[k], &reference);
        }
    }
}

TEST(offload_over_ranks_gives_the_bits_of_one_rank)
{
    static const double weights[] = { 1, 3 };
    scenario s;
    base_scenario(&s);
    REQUIRE(s.results != NULL);
    REQUIRE_OK(run_rank(&s, NULL, MODEL_SEED));
    results reference = *s.results;
    s.options.parameters = s.options.optimizer_state = SLUICE_PLACE_HOST;
    s.options.activations = SLUICE_ACTIVATIONS_RECOMPUTE;
    for (int stage = 1; stage <= 3; stage += 2) {
        s.options.stage = stage;
        s.options.partition = SLUICE_PARTITION_WEIGHTED;
        s.options.partition_weights = weights;
        s.options.keep_gathered = stage == 3;
        s.options.state_ratio = stage == 3 ? 0.5 : 1;
        check_ranks(&s, 2, &reference);
    }
}

/* ---- ranks that differ ---- */

static sluice_status body_with_another_seed(void *user, sluice_world *world)
{
    scenario s = *(const scenario *)user;
    if (sluice_world_rank(world) == 1) s.options.seed = 10;
    return run_rank(&s, world, MODEL_SEED);
}

static sluice_status body_with_another_model(void *user, sluice_world *world)
{
    return run_rank(user, world, sluice_world_rank(world) == 1 ? MODEL_SEED + 1 : MODEL_SEED);
}

TEST(engines_with_different_settings_are_refused_with_both_values)
{
    scenario s;
    base_scenario(&s);
    CHECK_EQ(launch(2, body_with_another_seed, &s), SLUICE_ERR_RANK);
    CHECK_CONTAINS(sluice_error(), "seed: rank 0 has 9, rank 1 has 10");
    CHECK_EQ(launch(2, body_with_another_model, &s), SLUICE_ERR_RANK);
    CHECK_CONTAINS(sluice_error(), "model: rank 0 has ");
}

#define CONFIG                                                                                                         \
    "{\"model\": {\"type\": \"linear\", \"features\": 4}, \"data\": {\"type\": \"regression\", \"samples\": 40}, "     \
    "\"train_batch_size\": 8, \"optimizer\": {\"type\": \"SGD\"}, \"threads\": 1, \"steps\": "

static sluice_status train_file(const char *text, sluice_world *world)
{
    char path[4200];
    sluice_config *c;
    sluice_job_options o;
    snprintf(path, sizeof path, "%s/config-%d.json", test_tmpdir(), sluice_world_rank(world));
    FILE *f = fopen(path, "w");
    fputs(text, f);
    fclose(f);
    SL_TRY(sluice_config_load(path, &c));
    sluice_job_options_init(&o);
    o.world = world;
    sluice_status st = sluice_job_train(c, &o);
    sluice_config_destroy(c);
    return st;
}

static sluice_status body_with_another_file(void *user, sluice_world *world)
{
    (void)user;
    return train_file(sluice_world_rank(world) == 1 ? CONFIG "6}" : CONFIG "5}", world);
}

TEST(jobs_with_different_configurations_are_refused_with_the_first_line_that_differs)
{
    CHECK_EQ(launch(2, body_with_another_file, NULL), SLUICE_ERR_RANK);
    CHECK_CONTAINS(sluice_error(), "configuration: steps: rank 0 has 5, rank 1 has 6");
}

/* ---- a rank that fails ---- */

TEST(a_rank_that_fails_in_a_step_ends_the_job_with_its_failure)
{
    scenario s;
    base_scenario(&s);
    s.failing_rank = 1;
    CHECK_EQ(launch(2, body, &s), SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), "rank 1");
    CHECK_CONTAINS(sluice_error(), "micro-batch 5"); /* its first in the second step */
}

static sluice_status body_with_a_bad_option(void *user, sluice_world *world)
{
    scenario s = *(const scenario *)user;
    if (sluice_world_rank(world) == 1) s.options.gradient_clipping = -1;
    return run_rank(&s, world, MODEL_SEED);
}

TEST(a_rank_that_cannot_be_created_ends_the_creation_on_all)
{
    scenario s;
    base_scenario(&s);
    sluice_status st = launch(2, body_with_a_bad_option, &s);
    CHECK(st != SLUICE_OK);
    CHECK_CONTAINS(sluice_error(), "rank 1");
}

TEST(a_plan_that_does_not_fit_is_that_on_all_ranks)
{
    scenario s;
    base_scenario(&s);
    s.options.device_bytes = s.options.host_bytes = 4096;
    CHECK_EQ(launch(2, body, &s), SLUICE_ERR_NO_FIT);
    CHECK_CONTAINS(sluice_error(), "missing");
}

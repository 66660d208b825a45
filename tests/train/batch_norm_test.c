/* batch_norm_test.c: running statistics are state that is not trained.
 *
 * A small network with two batch norms, trained with 4 micro-batches a step on {1, 2, 4} ranks, at every stage, with
 * everything that can be moved or recomputed, in every precision: the same weights, the same state, the same statistics on
 * every rank. Then resumption, files and the API. */
#include <sys/mman.h>
#include <unistd.h>

#include "core/alloc.h"
#include "format/safetensors.h"
#include "sluice.h"
#include "test.h"

enum { FEATURES = 5, CHANNELS = 20, CLASSES = 3, ROWS = 6, GLOBAL = 4, STEPS = 5, MOST_RANKS = 4 };

/* ---- the network ---- */

static sluice_value normed(sluice_graph *g, sluice_value x, const char *name, sluice_value residual)
{
    sluice_batch_norm_options o;
    sluice_batch_norm_options_init(&o);
    o.relu = true;
    o.residual = residual;
    return sluice_batch_norm(g, x, name, &o);
}

static sluice_graph *build(bool more)
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

typedef struct rows {
    float x[ROWS * FEATURES];
    int32_t target[ROWS];
    sluice_array arrays[2];
    sluice_batch batch;
} rows;

/* Micro-batch `number` of all, whoever computes it. */
static void make_rows(uint32_t number, rows *r)
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

static void base_options(sluice_options *o)
{
    sluice_options_init(o);
    sluice_optimizer_init(&o->optimizer, SLUICE_ADAM);
    o->optimizer.lr = 0.01;
    o->threads = 1;
    o->accumulation_steps = GLOBAL;
    o->evaluation = true;
    o->guard = true;
    o->device_bytes = o->host_bytes = (uint64_t)64 << 20;
}

static sluice_status train_steps(sluice_engine *e, int rank, int ranks, int first, int count)
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

typedef struct results {
    char weights[65], state[65];
    double evaluated;
    float mean[MOST_RANKS][CHANNELS], variance[MOST_RANKS][CHANNELS], batches[MOST_RANKS];
    uint64_t skipped;
    sluice_memory planned, observed;
} results;

typedef struct scenario {
    sluice_options options;
    results *results; /* shared with the ranks */
} scenario;

static sluice_status use_engine(const scenario *s, sluice_engine *e, int rank, int ranks)
{
    results *out = s->results;
    rows r;
    double loss = 0;
    make_rows(77777, &r);
    sluice_status st = train_steps(e, rank, ranks, 0, STEPS);
    if (st == SLUICE_OK) st = sluice_get_parameter(e, "bn1.running_mean", out->mean[rank], sizeof out->mean[rank]);
    if (st == SLUICE_OK)
        st = sluice_get_parameter(e, "bn2.running_var", out->variance[rank], sizeof out->variance[rank]);
    if (st == SLUICE_OK) st = sluice_get_parameter(e, "bn2.num_batches_tracked", &out->batches[rank], sizeof(float));
    if (st == SLUICE_OK) st = sluice_evaluate(e, &r.batch, &loss);
    if (st == SLUICE_OK)
        st = sluice_hash(e, rank == 0 ? out->weights : (char[65]){ 0 }, rank == 0 ? out->state : (char[65]){ 0 });
    if (rank != 0) return st;
    out->evaluated = loss;
    out->skipped = sluice_skipped_steps(e);
    sluice_planned_peak(e, &out->planned);
    sluice_observed_peak(e, &out->observed);
    return st;
}

static sluice_status body(void *user, sluice_world *world)
{
    const scenario *s = user;
    sluice_options o = s->options;
    sluice_graph *g = build(false);
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

static results *share_results(void)
{
    return mmap(NULL, sizeof(results), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

static bool run(scenario *s, int ranks)
{
    sluice_launch_options o;
    sluice_launch_options_init(&o);
    o.ranks = ranks;
    o.timeout_seconds = 60;
    memset(s->results, 0, sizeof *s->results);
    if (sluice_launch(&o, body, s) == SLUICE_OK) return true;
    test_fail(__FILE__, __LINE__, "%d ranks, stage %d: %s", ranks, s->options.stage, sluice_error());
    return false;
}

static void check_same(const results *r, const results *first, int ranks)
{
    CHECK_STR(r->weights, first->weights);
    CHECK_STR(r->state, first->state);
    CHECK(r->evaluated == first->evaluated);
    CHECK_EQ(r->skipped, first->skipped);
    for (int i = 0; i < ranks; i++) {
        CHECK(memcmp(r->mean[i], first->mean[0], sizeof r->mean[i]) == 0);
        CHECK(memcmp(r->variance[i], first->variance[0], sizeof r->variance[i]) == 0);
        CHECK(r->batches[i] == (float)(STEPS * GLOBAL));
    }
    CHECK_EQ(r->observed.device, r->planned.device);
    CHECK_EQ(r->observed.host, r->planned.host);
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

static void run_all_ways(sluice_dtype precision, results *first)
{
    scenario s = { .results = share_results() };
    REQUIRE(s.results != MAP_FAILED);
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        base_options(&s.options);
        s.options.precision = precision;
        s.options.loss_scale.initial_power = 24; /* the first steps overflow */
        s.options.stage = ways[i].stage;
        s.options.parameters = s.options.optimizer_state = ways[i].host ? SLUICE_PLACE_HOST : SLUICE_PLACE_DEVICE;
        s.options.activations = ways[i].activations;
        if (!run(&s, ways[i].ranks)) continue;
        if (i == 0) *first = *s.results;
        check_same(s.results, first, ways[i].ranks);
    }
    munmap(s.results, sizeof *s.results);
}

TEST(every_way_to_run_a_batch_norm_gives_the_same_weights_state_and_statistics)
{
    static const sluice_dtype precisions[] = { SLUICE_F32, SLUICE_BF16, SLUICE_F16 };
    results first[3] = { 0 };
    for (int k = 0; k < 3; k++) {
        run_all_ways(precisions[k], &first[k]);
        for (int other = 0; other < k; other++) CHECK(strcmp(first[k].state, first[other].state) != 0);
    }
    CHECK_EQ(first[0].skipped, 0);
    CHECK(first[2].skipped > 0); /* and all their micro-batches counted */
    CHECK(first[0].mean[0][0] != 0.0f && first[0].variance[0][0] != 1.0f);
}

/* ---- one engine ---- */

typedef struct one {
    sluice_graph *g;
    sluice_engine *e;
} one;

static void open_one(one *o, bool more)
{
    sluice_options options;
    base_options(&options);
    *o = (one){ .g = build(more) };
    REQUIRE_OK(sluice_engine_create(o->g, &options, &o->e));
}

static void close_one(one *o)
{
    sluice_engine_destroy(o->e);
    sluice_graph_destroy(o->g);
}

static void hash_one(const one *o, char weights[65], char state[65])
{
    REQUIRE_OK(sluice_hash(o->e, weights, state));
}

TEST(a_resumed_run_has_the_statistics_of_one_that_was_not_interrupted)
{
    one a, b;
    char weights[2][65], state[2][65], path[4096];
    uint64_t step;
    snprintf(path, sizeof path, "%s/checkpoints", test_tmpdir());
    open_one(&a, false);
    REQUIRE_OK(train_steps(a.e, 0, 1, 0, 3));
    REQUIRE_OK(sluice_checkpoint_save(a.e, path));
    REQUIRE_OK(train_steps(a.e, 0, 1, 3, 3));
    hash_one(&a, weights[0], state[0]);
    open_one(&b, false);
    REQUIRE_OK(sluice_checkpoint_resume(b.e, path, &step));
    CHECK_EQ(step, 3);
    REQUIRE_OK(train_steps(b.e, 0, 1, 3, 3));
    hash_one(&b, weights[1], state[1]);
    CHECK_STR(weights[1], weights[0]);
    CHECK_STR(state[1], state[0]);
    close_one(&a);
    close_one(&b);
}

TEST(one_changed_statistic_changes_the_hash_of_the_state_and_not_of_the_weights)
{
    one a;
    char weights[2][65], state[4][65];
    float mean[CHANNELS], batches = 7;
    open_one(&a, false);
    hash_one(&a, weights[0], state[0]);
    REQUIRE_OK(sluice_get_parameter(a.e, "bn2.running_mean", mean, sizeof mean));
    mean[CHANNELS - 1] += 1e-6f;
    REQUIRE_OK(sluice_set_parameter(a.e, "bn2.running_mean", mean, sizeof mean));
    hash_one(&a, weights[1], state[1]);
    CHECK_STR(weights[1], weights[0]);
    CHECK(strcmp(state[1], state[0]) != 0);
    REQUIRE_OK(sluice_set_parameter(a.e, "bn2.num_batches_tracked", &batches, sizeof batches));
    hash_one(&a, weights[1], state[2]);
    CHECK(strcmp(state[2], state[1]) != 0);
    close_one(&a);
}

TEST(statistics_start_as_pytorch_starts_them_and_evaluation_does_not_change_them)
{
    one a;
    float mean[CHANNELS], variance[CHANNELS], batches;
    rows r;
    double loss[3];
    open_one(&a, false);
    make_rows(5, &r);
    REQUIRE_OK(sluice_evaluate(a.e, &r.batch, &loss[0]));
    REQUIRE_OK(sluice_get_parameter(a.e, "bn1.running_mean", mean, sizeof mean));
    REQUIRE_OK(sluice_get_parameter(a.e, "bn1.running_var", variance, sizeof variance));
    REQUIRE_OK(sluice_get_parameter(a.e, "bn1.num_batches_tracked", &batches, sizeof batches));
    for (int c = 0; c < CHANNELS; c++) CHECK(mean[c] == 0.0f && variance[c] == 1.0f);
    CHECK(batches == 0);
    for (int c = 0; c < CHANNELS; c++) variance[c] = 4.0f;
    REQUIRE_OK(sluice_set_parameter(a.e, "bn1.running_var", variance, sizeof variance));
    REQUIRE_OK(sluice_evaluate(a.e, &r.batch, &loss[1]));
    REQUIRE_OK(sluice_evaluate(a.e, &r.batch, &loss[2]));
    CHECK(loss[1] != loss[0] && loss[2] == loss[1]);
    close_one(&a);
}

TEST(a_step_that_fails_leaves_the_statistics_as_they_were)
{
    one a;
    rows r[GLOBAL];
    sluice_batch batches[GLOBAL];
    char weights[2][65], state[2][65];
    double loss;
    open_one(&a, false);
    REQUIRE_OK(train_steps(a.e, 0, 1, 0, 2));
    hash_one(&a, weights[0], state[0]);
    for (int m = 0; m < GLOBAL; m++) {
        make_rows((uint32_t)m, &r[m]);
        batches[m] = r[m].batch;
    }
    r[2].x[3] = INFINITY;
    CHECK_EQ(sluice_train_step(a.e, batches, &loss), SLUICE_ERR_NUMBERS);
    hash_one(&a, weights[1], state[1]);
    CHECK_STR(weights[1], weights[0]);
    CHECK_STR(state[1], state[0]);
    REQUIRE_OK(train_steps(a.e, 0, 1, 2, 1)); /* and goes on */
    close_one(&a);
}

/* ---- files ---- */

TEST(weights_files_hold_statistics_under_torchvisions_names_and_give_them_back)
{
    one a, b;
    char weights[2][65], path[4096];
    rows r;
    float out[2][ROWS * CLASSES], batches;
    sl_st_file *f = NULL;
    snprintf(path, sizeof path, "%s/w.safetensors", test_tmpdir());
    open_one(&a, false);
    REQUIRE_OK(train_steps(a.e, 0, 1, 0, 2));
    REQUIRE_OK(sluice_save(a.e, path));
    REQUIRE_OK(sl_st_open(path, &f));
    const sl_st_tensor *mean = sl_st_find(f, "bn1.running_mean"), *count = sl_st_find(f, "bn2.num_batches_tracked");
    int64_t counted = 0;
    REQUIRE(mean != NULL && count != NULL);
    CHECK(mean->dtype == SL_ST_F32 && mean->rank == 1 && mean->dim[0] == CHANNELS);
    CHECK(count->dtype == SL_ST_I64 && count->rank == 0);
    REQUIRE_OK(sl_st_read(f, count, 0, 1, &counted));
    CHECK_EQ(counted, 2 * GLOBAL);
    sl_st_close(f);
    open_one(&b, false);
    REQUIRE_OK(sluice_load(b.e, path));
    make_rows(9, &r);
    REQUIRE_OK(sluice_predict(a.e, &r.batch, out[0], sizeof out[0]));
    REQUIRE_OK(sluice_predict(b.e, &r.batch, out[1], sizeof out[1]));
    CHECK(memcmp(out[0], out[1], sizeof out[0]) == 0);
    REQUIRE_OK(sluice_get_parameter(b.e, "bn2.num_batches_tracked", &batches, sizeof batches));
    CHECK(batches == 2 * GLOBAL);
    for (int i = 0; i < 2; i++) {
        char state[65];
        hash_one(i == 0 ? &a : &b, weights[i], state);
    }
    CHECK_STR(weights[1], weights[0]);
    close_one(&a);
    close_one(&b);
}

/* Writes the file at `from` again without the tensors whose names end in `without`, or with `count` in place of counts. */
static void rewrite(const char *from, const char *to, const char *without, int64_t count)
{
    sl_st_file *f = NULL;
    sl_st_writer *w = NULL;
    REQUIRE_OK(sl_st_open(from, &f));
    sl_st_tensor *kept = calloc((size_t)f->tensor_count, sizeof *kept);
    int64_t n = 0;
    for (int64_t i = 0; i < f->tensor_count; i++) {
        const char *name = f->tensors[i].name;
        bool ends = strlen(name) >= strlen(without) && strcmp(name + strlen(name) - strlen(without), without) == 0;
        if (without[0] == '\0' || !ends) kept[n++] = f->tensors[i];
    }
    REQUIRE_OK(sl_st_write_begin(to, kept, n, NULL, 0, &w));
    for (int64_t i = 0; i < n; i++) {
        char *data = calloc(1, (size_t)kept[i].bytes);
        REQUIRE_OK(sl_st_read(f, sl_st_find(f, kept[i].name), 0, sl_st_elements(&kept[i]), data));
        if (kept[i].dtype == SL_ST_I64 && count != 0) memcpy(data, &count, sizeof count);
        REQUIRE_OK(sl_st_write_data(w, data, (size_t)kept[i].bytes));
        free(data);
    }
    REQUIRE_OK(sl_st_write_finish(w));
    free(kept);
    sl_st_close(f);
}

TEST(a_file_without_a_statistic_is_refused_by_its_name_and_one_without_counts_is_not)
{
    one a;
    char path[4096], changed[4200], weights[2][65], state[2][65];
    snprintf(path, sizeof path, "%s/whole.safetensors", test_tmpdir());
    open_one(&a, false);
    REQUIRE_OK(sluice_save(a.e, path));
    snprintf(changed, sizeof changed, "%s.changed", path);
    rewrite(path, changed, "bn2.running_var", 0);
    hash_one(&a, weights[0], state[0]);
    CHECK_EQ(sluice_load(a.e, changed), SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), "bn2.running_var");
    rewrite(path, changed, "", -5);
    CHECK_EQ(sluice_load(a.e, changed), SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), "num_batches_tracked");
    rewrite(path, changed, "num_batches_tracked", 0);
    REQUIRE_OK(sluice_load(a.e, changed));
    hash_one(&a, weights[1], state[1]);
    CHECK_STR(state[1], state[0]);
    close_one(&a);
}

TEST(a_checkpoint_is_exported_with_its_statistics_and_refused_by_a_model_with_others)
{
    one a, b;
    char folder[4096], path[4200], state[2][65], weights[2][65];
    uint64_t step;
    snprintf(folder, sizeof folder, "%s/run", test_tmpdir());
    snprintf(path, sizeof path, "%s.safetensors", folder);
    open_one(&a, false);
    REQUIRE_OK(train_steps(a.e, 0, 1, 0, 2));
    REQUIRE_OK(sluice_checkpoint_save(a.e, folder));
    REQUIRE_OK(sluice_export(folder, path, SLUICE_BF16, 0, NULL));
    float mean[2][CHANNELS];
    open_one(&b, false);
    REQUIRE_OK(sluice_load(b.e, path));
    REQUIRE_OK(sluice_get_parameter(a.e, "bn2.running_mean", mean[0], sizeof mean[0]));
    REQUIRE_OK(sluice_get_parameter(b.e, "bn2.running_mean", mean[1], sizeof mean[1]));
    CHECK(memcmp(mean[0], mean[1], sizeof mean[0]) == 0); /* not rounded with the weights */
    close_one(&b);
    open_one(&b, true);
    hash_one(&b, weights[0], state[0]);
    CHECK(sluice_checkpoint_resume(b.e, folder, &step) != SLUICE_OK);
    hash_one(&b, weights[1], state[1]);
    CHECK_STR(state[1], state[0]);
    close_one(&a);
    close_one(&b);
}

/* ---- refusals ---- */

TEST(training_with_one_row_is_refused_and_says_what_to_do)
{
    sluice_graph *g = NULL;
    sluice_engine *e = NULL;
    sluice_options o;
    base_options(&o);
    REQUIRE_OK(sluice_graph_create(&g));
    sluice_value x = sluice_input(g, "x", SLUICE_F32, 2, (int64_t[]){ 1, FEATURES });
    sluice_set_loss(g, sluice_mean(g, sluice_batch_norm(g, x, "bn", NULL)));
    CHECK(sluice_engine_create(g, &o, &e) != SLUICE_OK);
    CHECK_CONTAINS(sluice_error(), "larger micro-batches");
    CHECK_CONTAINS(sluice_error(), "\"bn\"");
    sluice_graph_destroy(g);
}

TEST(names_of_statistics_belong_to_their_batch_norm)
{
    sluice_graph *g = NULL;
    REQUIRE_OK(sluice_graph_create(&g));
    sluice_value x = sluice_input(g, "x", SLUICE_F32, 2, (int64_t[]){ 4, FEATURES });
    sluice_batch_norm(g, x, "bn", NULL);
    sluice_parameter(g, "bn.running_var", 1, (int64_t[]){ 3 }, (sluice_init){ SLUICE_INIT_ZERO, 0 });
    CHECK(sluice_graph_check(g) != SLUICE_OK);
    CHECK_CONTAINS(sluice_error(), "a running statistic has this name already");
    sluice_graph_destroy(g);
}

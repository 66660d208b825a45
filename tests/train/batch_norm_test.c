/* batch_norm_test.c: running statistics are state that is not trained: the same in every way to run a network, resumed, in
 * files, in hashes and in the API. */
#include "format/safetensors.h"
#include "ir/graph.h"
#include "support/batch_norm_runs.h"

static void run_in_all_precisions(bool convolves)
{
    static const sluice_dtype precisions[] = { SLUICE_F32, SLUICE_BF16, SLUICE_F16 };
    results first[3] = { 0 };
    for (int k = 0; k < 3; k++) {
        run_all_ways(SLUICE_DEVICE_CPU, precisions[k], convolves, &first[k]);
        for (int other = 0; other < k; other++) CHECK(strcmp(first[k].state, first[other].state) != 0);
    }
    CHECK_EQ(first[0].skipped, 0);
    CHECK(first[2].skipped > 0); /* and all their micro-batches counted */
    CHECK(first[0].mean[0][0] != 0.0f && first[0].variance[0][0] != 1.0f);
}

TEST(every_way_to_run_a_batch_norm_gives_the_same_weights_state_and_statistics)
{
    run_in_all_precisions(false);
}

TEST(every_way_to_run_convolutions_with_batch_norms_gives_the_same_weights_state_and_statistics)
{
    run_in_all_precisions(true);
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

/* Writes the file at `from` again without the tensors whose names end in `without`, or with `count` in place of the last count
 * and 3 in place of the others. */
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
        const int64_t number = strncmp(kept[i].name, "bn2.", 4) == 0 ? count : 3;
        if (kept[i].dtype == SL_ST_I64 && count != 0) memcpy(data, &number, sizeof number);
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
    CHECK_CONTAINS(sluice_error(), "bn2.num_batches_tracked");
    hash_one(&a, weights[1], state[1]);
    CHECK_STR(state[1], state[0]); /* not even the counts before it */
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

/* ---- frozen ones ---- */

static void freeze_norm(sluice_graph *g, const char *name)
{
    for (int i = 0; i < g->parameter_count; i++)
        if (strncmp(g->parameters[i].name, name, strlen(name)) == 0) sluice_freeze(g, g->parameters[i].value);
}

/* Statistics as a trained network has them, and not those of the rows of these tests. */
static void set_statistics(sluice_engine *e, const char *norm)
{
    float numbers[CHANNELS], batches = 12;
    char name[64];
    for (int c = 0; c < CHANNELS; c++) numbers[c] = 0.3f * (float)(c % 5) - 0.5f;
    snprintf(name, sizeof name, "%s.running_mean", norm);
    REQUIRE_OK(sluice_set_parameter(e, name, numbers, sizeof numbers));
    for (int c = 0; c < CHANNELS; c++) numbers[c] = 0.5f + 0.25f * (float)(c % 7);
    snprintf(name, sizeof name, "%s.running_var", norm);
    REQUIRE_OK(sluice_set_parameter(e, name, numbers, sizeof numbers));
    snprintf(name, sizeof name, "%s.num_batches_tracked", norm);
    REQUIRE_OK(sluice_set_parameter(e, name, &batches, sizeof batches));
}

typedef struct kept_statistics {
    float mean[CHANNELS], variance[CHANNELS], batches;
} kept_statistics;

static void get_statistics(sluice_engine *e, const char *norm, kept_statistics *out)
{
    char name[64];
    memset(out, 0, sizeof *out);
    snprintf(name, sizeof name, "%s.running_mean", norm);
    REQUIRE_OK(sluice_get_parameter(e, name, out->mean, sizeof out->mean));
    snprintf(name, sizeof name, "%s.running_var", norm);
    REQUIRE_OK(sluice_get_parameter(e, name, out->variance, sizeof out->variance));
    snprintf(name, sizeof name, "%s.num_batches_tracked", norm);
    REQUIRE_OK(sluice_get_parameter(e, name, &out->batches, sizeof out->batches));
}

static void open_frozen(one *o, const sluice_options *options, bool both)
{
    *o = (one){ .g = build(false) };
    freeze_norm(o->g, "bn1.");
    if (both) freeze_norm(o->g, "bn2.");
    REQUIRE_OK(sluice_engine_create(o->g, options, &o->e));
    set_statistics(o->e, "bn1");
    set_statistics(o->e, "bn2");
}

TEST(frozen_batch_norms_train_by_their_running_statistics_and_leave_them_as_they_are)
{
    one a;
    sluice_options o;
    rows r;
    kept_statistics before, after;
    double trained, evaluated;
    base_options(&o);
    open_frozen(&a, &o, true);
    get_statistics(a.e, "bn1", &before);
    make_rows(3, &r);
    REQUIRE_OK(sluice_evaluate(a.e, &r.batch, &evaluated));
    for (int m = 0; m < GLOBAL;
         m++) { /* nothing of the rows matters but each by itself: training sees what evaluation sees */
        REQUIRE_OK(sluice_forward(a.e, &r.batch, &trained));
        REQUIRE_OK(sluice_backward(a.e));
        CHECK(trained == evaluated);
    }
    REQUIRE_OK(sluice_step(a.e));
    REQUIRE_OK(train_steps(a.e, 0, 1, 1, 3));
    get_statistics(a.e, "bn1", &after);
    CHECK(memcmp(&before, &after, sizeof before) == 0);
    get_statistics(a.e, "bn2", &after);
    CHECK(memcmp(&before, &after, sizeof before) == 0); /* it was given the same */
    REQUIRE_OK(sluice_evaluate(a.e, &r.batch, &trained));
    CHECK(trained != evaluated); /* the rest has learned */
    /* others that a caller gives count in training at once */
    for (int c = 0; c < CHANNELS; c++) before.variance[c] *= 9;
    REQUIRE_OK(sluice_set_parameter(a.e, "bn2.running_var", before.variance, sizeof before.variance));
    REQUIRE_OK(sluice_forward(a.e, &r.batch, &evaluated));
    CHECK(trained != evaluated);
    close_one(&a);
}

TEST(only_batch_norms_that_are_wholly_frozen_keep_their_statistics)
{
    one a;
    sluice_options o;
    kept_statistics before, after;
    base_options(&o);
    open_frozen(&a, &o, false);
    get_statistics(a.e, "bn1", &before);
    REQUIRE_OK(train_steps(a.e, 0, 1, 0, 2));
    get_statistics(a.e, "bn1", &after);
    CHECK(memcmp(&before, &after, sizeof before) == 0);
    get_statistics(a.e, "bn2", &after);
    CHECK(after.batches == 12 + 2 * GLOBAL);
    CHECK(memcmp(before.mean, after.mean, sizeof before.mean) != 0);
    close_one(&a);
    a.g = build(false);
    for (int i = 0; i < a.g->parameter_count; i++)
        if (strcmp(a.g->parameters[i].name, "bn1.weight") == 0) sluice_freeze(a.g, a.g->parameters[i].value);
    REQUIRE_OK(sluice_engine_create(a.g, &o, &a.e));
    REQUIRE_OK(train_steps(a.e, 0, 1, 0, 1));
    get_statistics(a.e, "bn1", &after);
    CHECK(after.batches == GLOBAL);
    close_one(&a);
}

/* A step of plain descent leaves the gradient: against differences of evaluation, which computes the same function. */
TEST(gradients_pass_frozen_batch_norms_as_through_fixed_factors)
{
    enum { COUNT = CHANNELS * FEATURES };
    one a;
    sluice_options o;
    rows r;
    float before[COUNT], after[COUNT], moved[COUNT];
    double loss[2];
    base_options(&o);
    sluice_optimizer_init(&o.optimizer, SLUICE_SGD);
    o.optimizer.lr = 1;
    o.accumulation_steps = 1;
    open_frozen(&a, &o, true);
    make_rows(3, &r);
    REQUIRE_OK(sluice_get_parameter(a.e, "fc1.weight", before, sizeof before));
    double step = 2e-3, largest = 0;
    double slopes[COUNT];
    for (int i = 0; i < COUNT; i++) {
        for (int side = 0; side < 2; side++) {
            memcpy(moved, before, sizeof moved);
            moved[i] += (float)(side == 0 ? -step : step);
            REQUIRE_OK(sluice_set_parameter(a.e, "fc1.weight", moved, sizeof moved));
            REQUIRE_OK(sluice_evaluate(a.e, &r.batch, &loss[side]));
        }
        slopes[i] = (loss[1] - loss[0]) / (2 * step);
    }
    REQUIRE_OK(sluice_set_parameter(a.e, "fc1.weight", before, sizeof before));
    REQUIRE_OK(sluice_train_step(a.e, &r.batch, &loss[0]));
    REQUIRE_OK(sluice_get_parameter(a.e, "fc1.weight", after, sizeof after));
    for (int i = 0; i < COUNT; i++) {
        CHECK_NEAR((double)before[i] - (double)after[i], slopes[i], 2e-3);
        if (fabs(slopes[i]) > largest) largest = fabs(slopes[i]);
    }
    CHECK(largest > 0.05);
    close_one(&a);
}

TEST(placement_and_recomputation_of_frozen_batch_norms_change_no_bit)
{
    one a;
    char weights[4][65], state[4][65];
    for (int k = 0; k < 4; k++) {
        sluice_options o;
        base_options(&o);
        o.activations = k == 1 || k == 3 ? SLUICE_ACTIVATIONS_RECOMPUTE
                        : k == 2         ? SLUICE_ACTIVATIONS_OFFLOAD
                                         : SLUICE_ACTIVATIONS_KEEP;
        if (k == 3) o.parameters = o.optimizer_state = SLUICE_PLACE_HOST;
        open_frozen(&a, &o, false);
        REQUIRE_OK(train_steps(a.e, 0, 1, 0, 3));
        hash_one(&a, weights[k], state[k]);
        CHECK_STR(weights[k], weights[0]);
        CHECK_STR(state[k], state[0]);
        close_one(&a);
    }
}

TEST(a_frozen_batch_norm_behind_the_loss_keeps_its_statistics_and_takes_single_rows)
{
    sluice_graph *g = NULL;
    sluice_engine *e = NULL;
    sluice_options o;
    float mean[FEATURES], x[FEATURES] = { 1, 2, 3, 4, 5 };
    int32_t target = 1;
    double loss;
    const sluice_array arrays[] = { { "x", x, sizeof x }, { "target", &target, sizeof target } };
    const sluice_batch batch = { arrays, 2 };
    base_options(&o);
    o.accumulation_steps = 1;
    REQUIRE_OK(sluice_graph_create(&g));
    sluice_value in = sluice_input(g, "x", SLUICE_F32, 2, (int64_t[]){ 1, FEATURES });
    sluice_value right = sluice_input(g, "target", SLUICE_I32, 1, (int64_t[]){ 1 });
    sluice_value h = sluice_batch_norm(g, sluice_linear(g, in, FEATURES, "before"), "inside", NULL);
    sluice_set_loss(g, sluice_cross_entropy(g, sluice_linear(g, h, CLASSES, "fc"), right, -1));
    sluice_set_output(g, sluice_batch_norm(g, in, "behind", NULL));
    freeze_norm(g, "inside.");
    freeze_norm(g, "behind.");
    REQUIRE_OK(sluice_engine_create(g, &o, &e));
    REQUIRE_OK(sluice_train_step(e, &batch, &loss));
    REQUIRE_OK(sluice_get_parameter(e, "behind.running_mean", mean, sizeof mean));
    for (int c = 0; c < FEATURES; c++) CHECK(mean[c] == 0.0f);
    sluice_engine_destroy(e);
    sluice_graph_destroy(g);
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

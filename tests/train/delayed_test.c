/* delayed_test.c: updates that the next step does not see yet (zero_optimization.update "delayed"): the formulas, beside a
 * plain loop in double precision; the same bits wherever things live; checkpoints; what is refused. */
#include <math.h>
#include <sys/mman.h>

#include "config/config.h"
#include "support/config_words.h"
#include "support/matrix.h"
#include "test.h"
#include "train/engine.h"

/* ---- the formulas ---- */

enum { ROWS = 4, FEATURES = 3, WEIGHTS = FEATURES + 1, STEPS = 12, CLIPPED = 5 };

typedef struct regression {
    sluice_graph *graph;
    sluice_engine *engine;
} regression;

static sluice_status open_regression(regression *r, const sluice_options *o)
{
    SL_TRY(sluice_graph_create(&r->graph));
    sluice_value x = sluice_input(r->graph, "x", SLUICE_F32, 2, (int64_t[]){ ROWS, FEATURES });
    sluice_value target = sluice_input(r->graph, "target", SLUICE_F32, 2, (int64_t[]){ ROWS, 1 });
    sluice_set_loss(r->graph, sluice_mse(r->graph, sluice_linear(r->graph, x, 1, "fc"), target));
    return sluice_engine_create(r->graph, o, &r->engine);
}

static void close_regression(regression *r)
{
    sluice_engine_destroy(r->engine);
    sluice_graph_destroy(r->graph);
}

typedef struct batch_data {
    float x[ROWS][FEATURES], target[ROWS];
} batch_data;

static void fill_batch(int step, batch_data *b)
{
    for (int i = 0; i < ROWS; i++) {
        b->target[i] = (float)((i * 5 + step * 3) % 7) - 2;
        for (int k = 0; k < FEATURES; k++) b->x[i][k] = (float)((i * 3 + k * 5 + step * (k + 1)) % 11) / 4 - 1;
    }
}

static sluice_status train_on(sluice_engine *e, const batch_data *b, double *loss)
{
    const sluice_array arrays[] = { { "x", b->x, sizeof b->x }, { "target", b->target, sizeof b->target } };
    return sluice_train_step(e, &(sluice_batch){ arrays, 2 }, loss);
}

/* The mean of squares and its gradient by the weights, of which the bias is the last. */
static double differentiate(const batch_data *b, const double *w, double *gradient)
{
    double loss = 0;
    for (int k = 0; k < WEIGHTS; k++) gradient[k] = 0;
    for (int i = 0; i < ROWS; i++) {
        double error = w[FEATURES] - (double)b->target[i];
        for (int k = 0; k < FEATURES; k++) error += w[k] * (double)b->x[i][k];
        loss += error * error / ROWS;
        for (int k = 0; k < WEIGHTS; k++) gradient[k] += 2 * error * (k < FEATURES ? (double)b->x[i][k] : 1) / ROWS;
    }
    return loss;
}

/* The optimizers, written out. */
typedef struct plain_state {
    double first[WEIGHTS], second[WEIGHTS];
    int step;
} plain_state;

static void update(const sluice_optimizer *o, double lr, plain_state *s, const double *gradient, double *w)
{
    s->step++;
    for (int k = 0; k < WEIGHTS; k++) {
        if (o->kind == SLUICE_SGD) {
            s->first[k] = o->momentum * s->first[k] + gradient[k];
            w[k] -= lr * s->first[k];
            continue;
        }
        s->first[k] = o->beta1 * s->first[k] + (1 - o->beta1) * gradient[k];
        s->second[k] = o->beta2 * s->second[k] + (1 - o->beta2) * gradient[k] * gradient[k];
        double m = s->first[k] / (1 - pow(o->beta1, s->step)), v = s->second[k] / (1 - pow(o->beta2, s->step));
        w[k] -= lr * (m / (sqrt(v) + o->epsilon) + o->weight_decay * w[k]);
    }
}

/* theta_(t+1) = theta_t - U(g_(t-1)), seen from the weights with all updates: what step t reads lacks the newest one. */
static void check_formulas(const sluice_options *o, int warmup)
{
    regression r = { 0 };
    plain_state state = { .step = 0 };
    double newest[WEIGHTS], read[WEIGHTS], before[WEIGHTS], gradient[WEIGHTS], loss;
    float weight[FEATURES], bias;
    int clipped = 0;
    REQUIRE_OK(open_regression(&r, o));
    REQUIRE_OK(sluice_get_parameter(r.engine, "fc.weight", weight, sizeof weight));
    REQUIRE_OK(sluice_get_parameter(r.engine, "fc.bias", &bias, sizeof bias));
    for (int k = 0; k < WEIGHTS; k++) newest[k] = read[k] = k < FEATURES ? (double)weight[k] : (double)bias;
    for (int t = 1; t <= STEPS; t++) {
        batch_data b;
        double lr = 0.02 * t, norm = 0, expected;
        fill_batch(t, &b);
        REQUIRE_OK(sluice_set_learning_rate(r.engine, lr));
        REQUIRE_OK(train_on(r.engine, &b, &loss));
        expected = differentiate(&b, read, gradient);
        CHECK_NEAR(loss, expected, 2e-6 * (1 + expected));
        for (int k = 0; k < WEIGHTS; k++) norm += gradient[k] * gradient[k];
        norm = sqrt(norm);
        CHECK_NEAR(sluice_gradient_norm(r.engine), norm, 2e-6 * (1 + norm));
        if (norm > o->gradient_clipping) clipped++;
        for (int k = 0; k < WEIGHTS && norm > o->gradient_clipping; k++)
            gradient[k] *= o->gradient_clipping / (norm + 1e-6);
        memcpy(before, newest, sizeof before);
        update(&o->optimizer, lr, &state, gradient, newest);
        memcpy(read, t <= warmup ? newest : before, sizeof read);
    }
    CHECK(clipped > 0 && clipped < STEPS);
    REQUIRE_OK(sluice_get_parameter(r.engine, "fc.weight", weight, sizeof weight));
    for (int k = 0; k < FEATURES; k++) CHECK_NEAR(weight[k], newest[k], 2e-6);
    close_regression(&r);
}

static void regression_options(sluice_options *o, sluice_optimizer_kind kind, int warmup)
{
    sluice_options_init(o);
    sluice_optimizer_init(&o->optimizer, kind);
    if (kind == SLUICE_SGD) o->optimizer.momentum = 0.5;
    if (kind == SLUICE_ADAMW) o->optimizer.weight_decay = 0.1;
    o->gradient_clipping = CLIPPED;
    o->seed = 3;
    o->threads = 1;
    o->guard = true;
    o->delayed_updates = true;
    o->delay_warmup = warmup;
}

TEST(a_delayed_run_is_the_plain_loop_in_which_weights_lack_the_newest_update)
{
    static const int warmups[] = { 0, 1, 5, STEPS };
    for (int kind = 0; kind < 2; kind++)
        for (int k = 0; k < 4; k++)
            for (int host = 0; host < 3; host++) {
                sluice_options o;
                regression_options(&o, kind == 0 ? SLUICE_SGD : SLUICE_ADAMW, warmups[k]);
                o.optimizer_state = host > 0 ? SLUICE_PLACE_HOST : SLUICE_PLACE_DEVICE;
                o.parameters = host > 1 ? SLUICE_PLACE_HOST : SLUICE_PLACE_DEVICE;
                check_formulas(&o, warmups[k]);
            }
}

/* With one batch, a loss tells which weights a step has read. */
TEST(a_step_that_is_skipped_puts_nothing_in_flight)
{
    sluice_options o;
    regression r = { 0 };
    batch_data b;
    double losses[STEPS + 2];
    int applied[STEPS + 2] = { 0 }, alternations = 0; /* applied[t]: updates after step t */
    regression_options(&o, SLUICE_SGD, 0);
    o.optimizer.lr = 0.01;
    o.precision = SLUICE_F16;
    o.loss_scale.initial_power = 14;
    o.loss_scale.window = 1; /* doubles after each good step, so that it overflows again and again */
    o.loss_scale.hysteresis = 1;
    REQUIRE_OK(open_regression(&r, &o));
    fill_batch(1, &b);
    for (int t = 1; t <= STEPS; t++) {
        uint64_t skipped = sluice_skipped_steps(r.engine);
        REQUIRE_OK(train_on(r.engine, &b, &losses[t]));
        bool skips = sluice_skipped_steps(r.engine) > skipped;
        applied[t] = applied[t - 1] + !skips;
        alternations += t > 1 && skips && applied[t - 1] > applied[t - 2];
        if (t < 2) continue;
        int now = applied[t >= 2 ? t - 2 : 0], last = applied[t >= 3 ? t - 3 : 0];
        CHECK_THAT((now == last) == (losses[t] == losses[t - 1]),
                   "step %d: loss %.9g after %.9g, updates read %d and %d", t, losses[t], losses[t - 1], now, last);
    }
    CHECK(alternations >= 2 && applied[STEPS] >= 3);
    close_regression(&r);
}

/* Which no micro-batch of had a target. */
TEST(a_step_that_is_passed_over_shows_the_update_before_it)
{
    for (int delayed = 0; delayed < 2; delayed++) {
        sluice_options o;
        regression r = { 0 };
        batch_data b;
        double losses[4];
        regression_options(&o, SLUICE_SGD, delayed == 1 ? 0 : STEPS);
        REQUIRE_OK(open_regression(&r, &o));
        fill_batch(1, &b);
        REQUIRE_OK(train_on(r.engine, &b, &losses[0]));
        REQUIRE_OK(sl_engine_pass_step(r.engine));
        for (int k = 1; k < 4; k++) REQUIRE_OK(train_on(r.engine, &b, &losses[k]));
        CHECK(losses[1] != losses[0]);
        CHECK_EQ(losses[2] == losses[1], delayed);
        CHECK(losses[3] != losses[2]);
        CHECK_EQ(sluice_skipped_steps(r.engine), 1);
        close_regression(&r);
    }
}

/* ---- the same bits wherever things live ---- */

TEST(every_way_to_divide_and_move_delayed_updates_gives_the_same_bits)
{
    static const setting some[] = {
        { 1, 0, NOTHING, 0, 0 },
        { 1, 0, OPTIMIZER, 0, 0 },
        { 1, 3, OPTIMIZER_AND_PARAMETERS, 0, 1 },
        { 2, 0, NOTHING, 0, 0 },
        { 2, 1, OPTIMIZER, 1, 0 },
        { 2, 2, OPTIMIZER_AND_PARAMETERS, 2, 0 },
        { 2, 3, HALF, 1, 1 },
        { 4, 0, OPTIMIZER, 2, 1 },
        { 4, 1, NOTHING, 0, 0 },
        { 4, 2, HALF, 1, 0 },
        { 4, 3, NOTHING, 0, 0 },
        { 4, 3, OPTIMIZER_AND_PARAMETERS, 1, 0 },
        { 4, 1, OPTIMIZER_AND_PARAMETERS, 2, 0 },
    };
    campaign c;
    REQUIRE(matrix_start_with(&c, "cpu", MATRIX_DELAYED));
    for (int k = 0; k < MATRIX_MODES; k++) {
        if (getenv("LONG") != NULL)
            matrix_run_all(&c, k);
        else
            matrix_run_some(&c, k, some, sizeof some / sizeof some[0]);
    }
    run_request prompt = { .s = some[0],
                           .mode = &matrix_modes[0],
                           .folder = c.folder,
                           .extra = "zero_optimization.update=sync",
                           .device = "cpu",
                           .out = c.out,
                           .subject = c.subject };
    REQUIRE_OK(matrix_run(&prompt));
    CHECK(strcmp(c.out->weights, c.weights[0]) != 0);
    prompt.extra = "zero_optimization.delay_warmup=3";
    REQUIRE_OK(matrix_run(&prompt));
    CHECK(strcmp(c.out->weights, c.weights[0]) != 0);
    matrix_end(&c);
}

/* ---- runs from a configuration ---- */

static char folder[4096];

typedef struct record {
    double losses[32];
    int count;
    uint64_t resumed;
    char weights[65], state[65];
} record;

static void on_event(void *user, const sluice_event *event)
{
    record *r = user;
    if (event->kind == SLUICE_EVENT_STEP && r->count < 32) r->losses[r->count++] = event->loss;
    if (event->kind == SLUICE_EVENT_RESUMED) r->resumed = event->step;
    if (event->kind != SLUICE_EVENT_END) return;
    memcpy(r->weights, event->weights_sha256, sizeof r->weights);
    memcpy(r->state, event->state_sha256, sizeof r->state);
}

static void write_config(void)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/config.json", folder);
    FILE *f = fopen(path, "w");
    REQUIRE(f != NULL);
    fprintf(
        f,
        "{\"model\": {\"type\": \"mlp\", \"features\": 6, \"hidden\": [48, 40]}, \"data\": {\"type\": \"regression\", "
        "\"samples\": 40}, \"steps\": 12, \"train_batch_size\": 8, \"train_micro_batch_size_per_gpu\": 2, "
        "\"threads\": 1, \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.01}}, "
        "\"zero_optimization\": {\"update\": \"delayed\", \"delay_warmup\": 3}, "
        "\"checkpoint\": {\"path\": \"%s/run\", \"keep\": 9}}",
        folder);
    fclose(f);
}

static sluice_status load(const char *assignments, sluice_config **out)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/config.json", folder);
    return config_load_words(path, assignments, out);
}

typedef struct job {
    const char *assignments;
    bool resume;
    record *record; /* shared with the ranks */
} job;

static sluice_status run_rank(void *user, sluice_world *world)
{
    const job *j = user;
    sluice_config *c;
    sluice_job_options o;
    SL_TRY(load(j->assignments, &c));
    sluice_job_options_init(&o);
    o.resume = j->resume;
    o.event = on_event;
    o.user = j->record;
    o.world = world;
    sluice_status st = sluice_job_train(c, &o);
    sluice_config_destroy(c);
    return st;
}

static record *shared_record(void)
{
    static record *r;
    if (r == NULL) r = mmap(NULL, sizeof *r, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return r;
}

static sluice_status train(int ranks, const char *assignments, bool resume, record *out)
{
    sluice_launch_options launch;
    job j = { assignments, resume, shared_record() };
    memset(j.record, 0, sizeof *j.record);
    write_config();
    sluice_launch_options_init(&launch);
    launch.ranks = ranks;
    sluice_status st = ranks > 1 ? sluice_launch(&launch, run_rank, &j) : run_rank(&j, NULL);
    *out = *j.record;
    return st;
}

#define OFFLOADED "zero_optimization.offload_optimizer.device=cpu "
#define STREAMED  OFFLOADED "zero_optimization.offload_param.device=cpu "

/* Saved in the warm-up, at its end, with one update in flight, and with many behind it; resumed by other ranks elsewhere. */
TEST(a_delayed_run_that_is_interrupted_goes_on_to_the_same_bits)
{
    static const char *const precisions[] = {
        "", "bf16.enabled=true ",
        "fp16.enabled=true fp16.initial_scale_power=24 fp16.hysteresis=1 fp16.loss_scale_window=2 "
    };
    static const struct {
        int step, ranks, later;
        const char *before, *after;
    } rows[] = {
        { 2, 1, 2, "", "zero_optimization.stage=3 " },
        { 3, 2, 1, "zero_optimization.stage=1 " OFFLOADED, "" },
        { 4, 1, 4, STREAMED, "zero_optimization.stage=2 " },
        { 7, 4, 2, "zero_optimization.stage=3 " STREAMED, "zero_optimization.stage=1 " },
        { 8, 2, 1, "zero_optimization.stage=2 checkpoint.every=2 checkpoint.background=true ", OFFLOADED },
        { 9, 1, 1, OFFLOADED "checkpoint.every=4 checkpoint.background=true ", STREAMED },
    };
    for (size_t p = 0; p < 3; p++) {
        record whole, r;
        char set[512];
        snprintf(folder, sizeof folder, "%s", test_tmpdir());
        snprintf(set, sizeof set, "%scheckpoint.path=", precisions[p]);
        REQUIRE_OK(train(1, set, false, &whole));
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
            snprintf(folder, sizeof folder, "%s", test_tmpdir());
            snprintf(set, sizeof set, "%s%ssteps=%d", precisions[p], rows[i].before, rows[i].step);
            REQUIRE_OK(train(rows[i].ranks, set, false, &r));
            snprintf(set, sizeof set, "%s%s", precisions[p], rows[i].after);
            REQUIRE_OK(train(rows[i].later, set, true, &r));
            CHECK_EQ(r.resumed, rows[i].step);
            CHECK_STR(r.weights, whole.weights);
            CHECK_STR(r.state, whole.state);
            for (int k = 0; k < r.count; k++) CHECK(r.losses[k] == whole.losses[rows[i].step + k]);
        }
    }
}

TEST(a_run_does_not_change_between_delayed_updates_and_others)
{
    record r;
    snprintf(folder, sizeof folder, "%s", test_tmpdir());
    REQUIRE_OK(train(1, "steps=5", false, &r));
    CHECK(train(1, "zero_optimization.update=sync", true, &r) == SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "zero_optimization.update is \"sync\", the checkpoint was made with \"delayed\"");
    CHECK(train(1, "zero_optimization.delay_warmup=4", true, &r) == SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "zero_optimization.delay_warmup is 4, the checkpoint was made with 3");
    snprintf(folder, sizeof folder, "%s", test_tmpdir());
    REQUIRE_OK(train(1, "steps=5 zero_optimization.update=sync", false, &r));
    CHECK(train(1, "", true, &r) == SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "zero_optimization.update is \"delayed\", the checkpoint was made with \"sync\"");
    REQUIRE_OK(train(1, "zero_optimization.update=auto", true, &r));
    CHECK_EQ(r.resumed, 5);
}

TEST(a_negative_warm_up_of_delayed_updates_is_refused)
{
    record r;
    snprintf(folder, sizeof folder, "%s", test_tmpdir());
    CHECK(train(1, "zero_optimization.delay_warmup=-1", false, &r) == SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "zero_optimization.delay_warmup");
}

TEST(sparse_tables_refuse_delayed_updates)
{
    sluice_graph *g;
    sluice_engine *e = NULL;
    sluice_options o;
    REQUIRE_OK(sluice_graph_create(&g));
    sluice_value table =
        sluice_parameter(g, "table", 2, (int64_t[]){ 500, 4 }, (sluice_init){ SLUICE_INIT_NORMAL, 0.5f });
    sluice_value ids = sluice_input(g, "ids", SLUICE_I32, 1, (int64_t[]){ 8 });
    sluice_value target = sluice_input(g, "target", SLUICE_F32, 2, (int64_t[]){ 8, 1 });
    sluice_sparse(g, table, 0);
    sluice_set_loss(g, sluice_mse(g, sluice_linear(g, sluice_embedding(g, ids, table), 1, "fc"), target));
    regression_options(&o, SLUICE_SGD, 0);
    o.optimizer.momentum = 0;
    CHECK_EQ(sluice_engine_create(g, &o, &e), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "\"delayed\" cannot be used with a sparse table, and \"table\" is one");
    sluice_graph_destroy(g);
}

/* numbers_test.c: numbers that are not finite: what is skipped, what ends the run, what it says, and that nothing
 * changes; and loss scaling in real runs. */
#include <sys/mman.h>

#include "test.h"
#include "train/engine.h"

enum { ROWS = 4, FEATURES = 6, OUTPUTS = 3, MICRO = 2 };

/* One micro-batch of a linear model, small enough that nothing overflows on its own. */
typedef struct sample {
    float x[ROWS * FEATURES], target[ROWS * OUTPUTS];
    sluice_array arrays[2];
} sample;

static void make_sample(sample *s, int seed)
{
    for (int i = 0; i < ROWS * FEATURES; i++) s->x[i] = (float)((i * 7 + seed * 5) % 11) / 8 - 0.5f;
    for (int i = 0; i < ROWS * OUTPUTS; i++) s->target[i] = (float)((i * 3 + seed) % 7) / 4 - 0.75f;
    s->arrays[0] = (sluice_array){ "x", s->x, sizeof s->x };
    s->arrays[1] = (sluice_array){ "target", s->target, sizeof s->target };
}

static sluice_batch batch_of(sample *s)
{
    return (sluice_batch){ s->arrays, 2 };
}

static sluice_status linear_graph(sluice_graph **out)
{
    SL_TRY(sluice_graph_create(out));
    sluice_graph *g = *out;
    sluice_value x = sluice_input(g, "x", SLUICE_F32, 2, (int64_t[]){ ROWS, FEATURES });
    sluice_value target = sluice_input(g, "target", SLUICE_F32, 2, (int64_t[]){ ROWS, OUTPUTS });
    sluice_layer(g, "first");
    sluice_value y = sluice_linear(g, x, OUTPUTS, "fc");
    sluice_set_output(g, y);
    sluice_set_loss(g, sluice_mse(g, y, target));
    return sluice_graph_check(g);
}

typedef struct fixture {
    sluice_graph *g;
    sluice_engine *e;
} fixture;

static void options_in(sluice_dtype precision, sluice_options *o)
{
    sluice_options_init(o);
    sluice_optimizer_init(&o->optimizer, SLUICE_ADAMW);
    o->optimizer.lr = 0.01;
    o->precision = precision;
    o->seed = 3;
    o->threads = 1;
    o->evaluation = true;
    o->device_bytes = o->host_bytes = (uint64_t)1 << 24;
    /* the first overflow is one too many */
    o->loss_scale.hysteresis = 1;
    o->loss_scale.initial_power = 0;
}

static sluice_status open_fixture(const sluice_options *o, fixture *f)
{
    *f = (fixture){ .g = NULL };
    SL_TRY(linear_graph(&f->g));
    return sluice_engine_create(f->g, o, &f->e);
}

static void close_fixture(fixture *f)
{
    sluice_engine_destroy(f->e);
    sluice_graph_destroy(f->g);
}

/* Everything that a step may change. */
typedef struct state_image {
    char weights[65], state[65];
    float weight[FEATURES * OUTPUTS], bias[OUTPUTS];
} state_image;

static void take_image(sluice_engine *e, state_image *out)
{
    memset(out, 0, sizeof *out);
    CHECK_EQ(sluice_hash(e, out->weights, out->state), SLUICE_OK);
    CHECK_EQ(sluice_get_parameter(e, "fc.weight", out->weight, sizeof out->weight), SLUICE_OK);
    CHECK_EQ(sluice_get_parameter(e, "fc.bias", out->bias, sizeof out->bias), SLUICE_OK);
}

static void check_unchanged(sluice_engine *e, const state_image *before)
{
    state_image after;
    take_image(e, &after);
    CHECK_STR(after.weights, before->weights);
    CHECK_STR(after.state, before->state);
    CHECK(memcmp(after.weight, before->weight, sizeof after.weight) == 0);
    CHECK(memcmp(after.bias, before->bias, sizeof after.bias) == 0);
}

static const sluice_dtype precisions[] = { SLUICE_F32, SLUICE_BF16, SLUICE_F16 };

/* ---- what ends a run ---- */

TEST(an_input_that_is_not_finite_ends_the_run_in_every_precision_and_is_named)
{
    for (int i = 0; i < 3; i++) {
        sluice_options o;
        fixture f;
        sample s;
        state_image before;
        double loss;
        options_in(precisions[i], &o);
        REQUIRE_OK(open_fixture(&o, &f));
        make_sample(&s, 1);
        sluice_batch batch = batch_of(&s);
        REQUIRE_OK(sluice_train_step(f.e, &batch, &loss));
        take_image(f.e, &before);
        s.x[17] = NAN;
        CHECK_EQ(sluice_train_step(f.e, &batch, &loss), SLUICE_ERR_NUMBERS);
        CHECK_CONTAINS(sluice_error(), "step 2: input \"x\" of micro-batch 0 (rank 0) is NaN at element 17");
        CHECK_CONTAINS(sluice_error(), "the loss was not finite on rank 0");
        check_unchanged(f.e, &before);
        CHECK_EQ(sluice_step_count(f.e), 1);
        s.x[17] = 0; /* and training can go on from there */
        REQUIRE_OK(sluice_train_step(f.e, &batch, &loss));
        CHECK_EQ(sluice_step_count(f.e), 2);
        CHECK_EQ(sluice_skipped_steps(f.e), 0);
        close_fixture(&f);
    }
}

TEST(a_weight_that_is_not_finite_ends_the_run_in_every_precision_and_is_named)
{
    static const float values[] = { NAN, INFINITY, -INFINITY };
    for (int i = 0; i < 3; i++) {
        sluice_options o;
        fixture f;
        sample s;
        state_image before;
        double loss;
        options_in(precisions[i], &o);
        REQUIRE_OK(open_fixture(&o, &f));
        make_sample(&s, 1);
        take_image(f.e, &before);
        before.weight[7] = values[i];
        REQUIRE_OK(sluice_set_parameter(f.e, "fc.weight", before.weight, sizeof before.weight));
        take_image(f.e, &before);
        sluice_batch batch = batch_of(&s);
        CHECK_EQ(sluice_train_step(f.e, &batch, &loss), SLUICE_ERR_NUMBERS);
        CHECK_CONTAINS(sluice_error(), i == 0 ? "weight \"fc.weight\" (layer \"first\", rank 0) was NaN"
                                              : "weight \"fc.weight\" (layer \"first\", rank 0) was infinite");
        CHECK_CONTAINS(sluice_error(), "step 1: ");
        CHECK_CONTAINS(sluice_error(), "at element 7");
        check_unchanged(f.e, &before);
        close_fixture(&f);
    }
}

/* A loss that is finite, of about 1e36, whose gradient is too large for any type: weights that are zero hide how large
 * the input is. */
static void make_overflow(sluice_engine *e, sample *s)
{
    const float weight[FEATURES * OUTPUTS] = { 0 }, bias[OUTPUTS] = { 0 };
    CHECK_EQ(sluice_set_parameter(e, "fc.weight", weight, sizeof weight), SLUICE_OK);
    CHECK_EQ(sluice_set_parameter(e, "fc.bias", bias, sizeof bias), SLUICE_OK);
    make_sample(s, 1);
    s->x[0] = 1e25f;
    s->target[0] = 1e18f;
}

TEST(a_gradient_that_overflows_ends_a_run_in_fp32_and_where_bf16_is_told_so)
{
    for (int i = 0; i < 2; i++) {
        sluice_options o;
        fixture f;
        sample s;
        state_image before;
        double loss;
        options_in(precisions[i], &o);
        o.check_overflow = false;
        REQUIRE_OK(open_fixture(&o, &f));
        make_overflow(f.e, &s);
        take_image(f.e, &before);
        sluice_batch batch = batch_of(&s);
        CHECK_EQ(sluice_train_step(f.e, &batch, &loss), SLUICE_ERR_NUMBERS);
        CHECK_CONTAINS(sluice_error(), "step 1: the gradient of \"fc.weight\"");
        CHECK_CONTAINS(sluice_error(), "(layer \"first\", rank 0) is not finite");
        CHECK(strstr(sluice_error(), "the loss was") == NULL);
        check_unchanged(f.e, &before);
        close_fixture(&f);
    }
}

/* Updates that do not wait for the norm have happened when it turns out not to be finite: only where that was asked
 * for. */
TEST(a_gradient_that_overflows_ends_a_run_with_early_updates_too)
{
    for (int i = 0; i < 2; i++) {
        sluice_options o;
        fixture f;
        sample s;
        double loss;
        options_in(precisions[i], &o);
        o.check_overflow = false;
        o.early_updates = true;
        REQUIRE_OK(open_fixture(&o, &f));
        make_overflow(f.e, &s);
        sluice_batch batch = batch_of(&s);
        CHECK_EQ(sluice_train_step(f.e, &batch, &loss), SLUICE_ERR_NUMBERS);
        CHECK_CONTAINS(sluice_error(), "step 1: the gradient of \"fc.weight\"");
        CHECK_CONTAINS(sluice_error(),
                       "some weights were already updated in this step. To go on, resume from the newest checkpoint");
        close_fixture(&f);
    }
}

TEST(an_overflow_at_the_least_loss_scale_ends_the_run)
{
    sluice_options o;
    fixture f;
    sample s;
    double loss;
    options_in(SLUICE_F16, &o);
    o.loss_scale.initial_power = 2;
    REQUIRE_OK(open_fixture(&o, &f));
    make_sample(&s, 1);
    s.x[3] = 1e6f; /* finite, but not as fp16 */
    sluice_batch batch = batch_of(&s);
    for (int i = 0; i < 2; i++) REQUIRE_OK(sluice_train_step(f.e, &batch, &loss));
    CHECK_EQ(sluice_skipped_steps(f.e), 2);
    CHECK(sluice_current_loss_scale(f.e) == 1);
    CHECK_EQ(sluice_train_step(f.e, &batch, &loss), SLUICE_ERR_NUMBERS);
    CHECK_CONTAINS(sluice_error(), "step 3: ");
    CHECK_CONTAINS(sluice_error(), "the loss scale is at its minimum, 1");
    close_fixture(&f);
}

/* ---- what is skipped ---- */

typedef struct log_lines {
    char text[2048];
    int warnings, notes;
} log_lines;

static void take_line(void *user, sluice_log_level level, const char *line)
{
    log_lines *l = user;
    l->warnings += level == SLUICE_LOG_WARNING;
    l->notes += level == SLUICE_LOG_NOTE;
    strncat(l->text, line, sizeof l->text - strlen(l->text) - 1);
}

/* A step that overflows between two good ones changes nothing but the number of steps: Adam's own count, with which it
 * corrects its moments, does not move. */
static void check_skipped(sluice_dtype precision, sluice_states states)
{
    sluice_options o;
    fixture f, plain;
    sample good, bad;
    state_image before, after, reference;
    double loss;
    log_lines lines = { .warnings = 0 };
    options_in(precision, &o);
    o.states = states;
    o.loss_scale.initial_power = 8;
    o.loss_scale.hysteresis = 2; /* the scale stays */
    o.log = take_line;
    o.log_user = &lines;
    REQUIRE_OK(open_fixture(&o, &f));
    REQUIRE_OK(open_fixture(&o, &plain));
    make_sample(&good, 1);
    make_overflow(f.e, &bad);
    make_overflow(plain.e, &bad);
    sluice_batch good_batch = batch_of(&good), bad_batch = batch_of(&bad);
    take_image(f.e, &before);
    REQUIRE_OK(sluice_train_step(f.e, &bad_batch, &loss));
    check_unchanged(f.e, &before);
    CHECK_EQ(sluice_step_count(f.e), 1);
    CHECK_EQ(sluice_skipped_steps(f.e), 1);
    CHECK(isnan(sluice_gradient_norm(f.e)));
    CHECK_EQ(lines.warnings, precision == SLUICE_BF16);
    CHECK_EQ(lines.notes, precision == SLUICE_F16);
    CHECK_CONTAINS(lines.text, "step 1");
    if (precision == SLUICE_BF16) CHECK_CONTAINS(lines.text, "the gradient of \"fc.weight\"");
    for (int i = 0; i < 3; i++) {
        REQUIRE_OK(sluice_train_step(f.e, &good_batch, &loss));
        REQUIRE_OK(sluice_train_step(plain.e, &good_batch, &loss));
    }
    CHECK_EQ(sluice_step_count(f.e), 4);
    CHECK_EQ(sluice_skipped_steps(f.e), 1);
    take_image(f.e, &after);
    take_image(plain.e, &reference);
    CHECK(strcmp(after.weights, before.weights) != 0);
    if (states == SLUICE_STATES_F32) { /* others round at random, by the number of the step */
        CHECK_STR(after.weights, reference.weights);
        CHECK_STR(after.state, reference.state);
    }
    close_fixture(&f);
    close_fixture(&plain);
}

TEST(a_step_that_is_left_out_changes_neither_weights_nor_moments_nor_their_count)
{
    check_skipped(SLUICE_BF16, SLUICE_STATES_F32);
    check_skipped(SLUICE_F16, SLUICE_STATES_F32);
    check_skipped(SLUICE_BF16, SLUICE_STATES_BF16);
    check_skipped(SLUICE_BF16, SLUICE_STATES_COMPACT);
    check_skipped(SLUICE_F16, SLUICE_STATES_COMPACT);
}

TEST(a_fixed_loss_scale_leaves_steps_out_and_stays)
{
    sluice_options o;
    fixture f;
    sample s;
    double loss;
    options_in(SLUICE_F16, &o);
    o.loss_scale.fixed = 128;
    REQUIRE_OK(open_fixture(&o, &f));
    make_sample(&s, 1);
    s.x[3] = 1e6f;
    sluice_batch batch = batch_of(&s);
    for (int i = 0; i < 4; i++) REQUIRE_OK(sluice_train_step(f.e, &batch, &loss));
    CHECK_EQ(sluice_skipped_steps(f.e), 4);
    CHECK(sluice_current_loss_scale(f.e) == 128);
    close_fixture(&f);
}

/* ---- the loss scale over a run ---- */

/* DeepSpeed's update_scale, written down from its own variables. */
typedef struct reference_scaler {
    double scale;
    int iteration, last_overflow, hysteresis;
} reference_scaler;

static void reference_update(reference_scaler *r, const sluice_loss_scale *o, bool overflow)
{
    if (overflow) {
        if (o->hysteresis == 1 || r->hysteresis == 1)
            r->scale = r->scale / 2 > o->minimum ? r->scale / 2 : o->minimum;
        else
            r->hysteresis--;
        r->last_overflow = r->iteration;
    } else {
        if (o->consecutive) r->hysteresis = o->hysteresis;
        int stable = r->iteration - r->last_overflow - 1;
        if (stable > 0 && stable % o->window == 0) {
            if (!o->consecutive) r->hysteresis = o->hysteresis;
            r->scale *= 2;
        }
    }
    r->iteration++;
}

TEST(the_loss_scale_of_a_run_with_overflows_follows_deepspeeds)
{
    static const char overflows[] = "..x....x.xx........xxxx......x.x....";
    for (int consecutive = 0; consecutive < 2; consecutive++) {
        sluice_options o;
        fixture f;
        sample s;
        double loss;
        uint64_t skipped = 0;
        options_in(SLUICE_F16, &o);
        o.loss_scale = (sluice_loss_scale){
            .initial_power = 6, .window = 3, .hysteresis = 2, .consecutive = consecutive == 1, .minimum = 1
        };
        reference_scaler r = { .scale = 64, .last_overflow = -1, .hysteresis = 2 };
        REQUIRE_OK(open_fixture(&o, &f));
        for (int i = 0; overflows[i] != '\0'; i++) {
            bool bad = overflows[i] == 'x';
            make_sample(&s, i);
            if (bad) s.x[5] = 1e6f;
            sluice_batch batch = batch_of(&s);
            REQUIRE_OK(sluice_train_step(f.e, &batch, &loss));
            skipped += bad;
            reference_update(&r, &o.loss_scale, bad);
            CHECK_EQ(sluice_skipped_steps(f.e), skipped);
            CHECK_NEAR(sluice_current_loss_scale(f.e), r.scale, 0);
        }
        close_fixture(&f);
    }
}

/* ---- two ranks ---- */

typedef struct shared {
    char messages[2][1024];
    char before[2][65], after[2][65];
    uint64_t skipped[2];
    double scale[2];
} shared;

/* What one of the ranks is given in its second micro-batch. */
enum { BAD_INPUT, BAD_WEIGHT, BAD_RANGE, BAD_GRADIENT };

typedef struct scenario {
    sluice_dtype precision;
    int stage, kind;
    const double *weights; /* of the ranks, by which they own; NULL: layers are cut evenly */
    shared *out;
} scenario;

static sluice_status run_pair(const scenario *q, sluice_world *world, fixture *f)
{
    int rank = sluice_world_rank(world);
    sluice_options o;
    sample samples[MICRO];
    sluice_batch batches[MICRO];
    double loss;
    char state[65];
    options_in(q->precision, &o);
    if (q->kind == BAD_RANGE) o.loss_scale.initial_power = 4;
    o.world = world;
    o.stage = q->stage;
    o.small_norm_nodes = q->weights != NULL;
    o.partition = q->weights != NULL ? SLUICE_PARTITION_WEIGHTED : SLUICE_PARTITION_LAYER;
    o.partition_weights = q->weights;
    o.accumulation_steps = MICRO;
    SL_TRY(open_fixture(&o, f));
    for (int m = 0; m < MICRO; m++) {
        make_sample(&samples[m], 2 * m + rank);
        batches[m] = batch_of(&samples[m]);
    }
    SL_TRY(sluice_train_step(f->e, batches, &loss));
    if (q->kind == BAD_WEIGHT) {
        float bias[OUTPUTS] = { 0, NAN, 0 };
        SL_TRY(sluice_set_parameter(f->e, "fc.bias", bias, sizeof bias));
    }
    if (q->kind == BAD_GRADIENT) {
        sample overflow;
        make_overflow(f->e, &overflow); /* the weights on both ranks, the sample on one */
        if (rank == 1) memcpy(samples[1].x, overflow.x, sizeof overflow.x);
        if (rank == 1) memcpy(samples[1].target, overflow.target, sizeof overflow.target);
    }
    if (q->kind != BAD_WEIGHT && q->kind != BAD_GRADIENT && rank == 1)
        samples[1].x[2] = q->kind == BAD_INPUT ? INFINITY : 1e6f;
    SL_TRY(sluice_hash(f->e, q->out->before[rank], state));
    sluice_status st = sluice_train_step(f->e, batches, &loss);
    if (st != SLUICE_OK) snprintf(q->out->messages[rank], sizeof q->out->messages[rank], "%s", sluice_error());
    q->out->skipped[rank] = sluice_skipped_steps(f->e);
    q->out->scale[rank] = sluice_current_loss_scale(f->e);
    if (st == SLUICE_OK || st == SLUICE_ERR_NUMBERS) SL_TRY(sluice_hash(f->e, q->out->after[rank], state));
    return st == SLUICE_ERR_NUMBERS ? SLUICE_OK : st;
}

static sluice_status pair_body(void *user, sluice_world *world)
{
    fixture f;
    sluice_status st = run_pair(user, world, &f);
    close_fixture(&f);
    return st;
}

static void launch_pair(scenario *q)
{
    sluice_launch_options o;
    sluice_launch_options_init(&o);
    o.ranks = 2;
    o.timeout_seconds = 30;
    memset(q->out, 0, sizeof *q->out);
    REQUIRE_OK(sluice_launch(&o, pair_body, q));
    CHECK_STR(q->out->messages[0], q->out->messages[1]);
    CHECK_STR(q->out->after[0], q->out->before[0]);
    CHECK_STR(q->out->after[1], q->out->before[0]);
    CHECK_EQ(q->out->skipped[0], q->out->skipped[1]);
    CHECK(q->out->scale[0] == q->out->scale[1]);
}

static shared *shared_memory(void)
{
    void *memory = mmap(NULL, sizeof(shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return memory != MAP_FAILED ? memory : NULL;
}

TEST(all_ranks_name_the_tensor_and_the_rank_it_was_bad_on)
{
    scenario q = { .out = shared_memory() };
    REQUIRE(q.out != NULL);
    for (int i = 0; i < 3; i++)
        for (q.stage = 0; q.stage <= 3; q.stage += 3) {
            q.precision = precisions[i];
            q.kind = BAD_INPUT;
            launch_pair(&q);
            CHECK_CONTAINS(q.out->messages[0],
                           "step 2: input \"x\" of micro-batch 3 (rank 1) is infinite at element 2");
            CHECK_CONTAINS(q.out->messages[0], "the loss was not finite on rank 1;");
            q.kind = BAD_WEIGHT;
            launch_pair(&q);
            CHECK_CONTAINS(q.out->messages[0], "step 2: weight \"fc.bias\" (layer \"first\", rank ");
            CHECK_CONTAINS(q.out->messages[0], "was NaN before the step, at element 1");
            CHECK_CONTAINS(q.out->messages[0], "the loss was not finite on rank 0, 1;");
        }
    q.precision = SLUICE_F32;
    q.stage = 2;
    q.kind = BAD_GRADIENT;
    launch_pair(&q);
    CHECK_CONTAINS(q.out->messages[0], "step 2: the gradient of \"fc.weight\"");
    CHECK_CONTAINS(q.out->messages[0], "(layer \"first\", rank 0) is not finite; the weights are unchanged");
    static const double only_second[] = { 0, 1 }; /* who alone has norm leaves */
    q.weights = only_second;
    launch_pair(&q);
    CHECK_CONTAINS(q.out->messages[0], "step 2: the gradient of \"fc.weight\"");
    CHECK_CONTAINS(q.out->messages[0], "(layer \"first\", rank 1) is not finite; the weights are unchanged");
}

TEST(an_overflow_on_one_rank_is_left_out_on_all)
{
    scenario q = { .precision = SLUICE_F16, .kind = BAD_RANGE, .out = shared_memory() };
    REQUIRE(q.out != NULL);
    for (q.stage = 0; q.stage <= 3; q.stage++) {
        launch_pair(&q);
        CHECK_STR(q.out->messages[0], "");
        CHECK_EQ(q.out->skipped[0], 1);
        CHECK(q.out->scale[0] == 8);
    }
    q.precision = SLUICE_BF16;
    q.kind = BAD_GRADIENT;
    for (q.stage = 0; q.stage <= 3; q.stage++) {
        launch_pair(&q);
        CHECK_STR(q.out->messages[0], "");
        CHECK_EQ(q.out->skipped[0], 1);
    }
}

/* ---- what the caller sees ---- */

TEST(predictions_are_floats_in_every_precision)
{
    float y[3][ROWS * OUTPUTS];
    for (int i = 0; i < 3; i++) {
        sluice_options o;
        fixture f;
        sample s;
        options_in(precisions[i], &o);
        REQUIRE_OK(open_fixture(&o, &f));
        make_sample(&s, 4);
        sluice_batch batch = batch_of(&s);
        CHECK_EQ(sluice_predict(f.e, &batch, y[i], sizeof y[i] / 2), SLUICE_ERR_USAGE);
        REQUIRE_OK(sluice_predict(f.e, &batch, y[i], sizeof y[i]));
        close_fixture(&f);
        for (int k = 0; k < ROWS * OUTPUTS; k++) CHECK_NEAR(y[i][k], y[0][k], 0.02);
    }
    CHECK(memcmp(y[0], y[1], sizeof y[0]) != 0);
    CHECK(memcmp(y[0], y[2], sizeof y[0]) != 0);
}

TEST(options_that_make_no_sense_are_refused_by_name)
{
    for (int i = 0; i < 8; i++) {
        static const char *const parts[] = { "options.precision",    "options.wire",      "options.states",
                                             "options.states: LAMB", "loss_scale.window", "loss_scale.hysteresis",
                                             "loss_scale.fixed",     "loss_scale.minimum" };
        sluice_options o;
        fixture f;
        options_in(SLUICE_F16, &o);
        if (i == 0) o.precision = SLUICE_I32;
        if (i == 1) o.wire = SLUICE_DTYPE_COUNT;
        if (i == 2) o.states = (sluice_states)7;
        if (i == 3) {
            sluice_optimizer_init(&o.optimizer, SLUICE_LAMB);
            o.states = SLUICE_STATES_COMPACT;
        }
        if (i == 4) o.loss_scale.window = 0;
        if (i == 5) o.loss_scale.hysteresis = 0;
        if (i == 6) o.loss_scale.fixed = NAN;
        if (i == 7) o.loss_scale.minimum = 0;
        CHECK_EQ(open_fixture(&o, &f), SLUICE_ERR_USAGE);
        CHECK_CONTAINS(sluice_error(), parts[i]);
        close_fixture(&f);
    }
}

/* batch_values_test.c: ids and targets that no table has are named before anything is computed, and a loss that is not
 * finite ends a step although its gradient is. Nothing changes, and training can go on. */
#include <sys/mman.h>

#include "test.h"
#include "train/engine.h"

enum { TOKENS = 6, VOCABULARY = 5, WIDTH = 4, MICRO = 3, WIDEST = TOKENS * VOCABULARY };

/* How a model reads its ids and targets. */
enum { PLAIN, RESHAPED, FUSED, KINDS };

typedef struct fixture {
    sluice_graph *g;
    sluice_engine *e;
    int32_t ids[MICRO][TOKENS], targets[MICRO][TOKENS];
    sluice_array arrays[MICRO][2];
    sluice_batch batches[MICRO];
} fixture;

static sluice_status token_graph(int kind, sluice_graph **out)
{
    const sluice_init some = { SLUICE_INIT_NORMAL, 0.5f };
    SL_TRY(sluice_graph_create(out));
    sluice_graph *g = *out;
    sluice_value ids = sluice_input(g, "ids", SLUICE_I32, 2, (int64_t[]){ 2, 3 });
    sluice_value targets = sluice_input(g, "targets", SLUICE_I32, 2, (int64_t[]){ 2, 3 });
    if (kind == RESHAPED) ids = sluice_reshape(g, ids, 1, (int64_t[]){ TOKENS });
    if (kind == RESHAPED) targets = sluice_reshape(g, targets, 1, (int64_t[]){ TOKENS });
    sluice_value table = sluice_parameter(g, "wte.weight", 2, (int64_t[]){ VOCABULARY, WIDTH }, some);
    sluice_value head = sluice_parameter(g, "head", 2, (int64_t[]){ VOCABULARY, WIDTH }, some);
    sluice_value x = sluice_embedding(g, ids, table);
    sluice_value logits = sluice_linear_with(g, x, head, SLUICE_NONE, false);
    sluice_set_output(g, logits);
    sluice_set_loss(g, kind == FUSED ? sluice_linear_cross_entropy(g, x, head, targets, -1)
                                     : sluice_cross_entropy(g, logits, targets, -1));
    return sluice_graph_check(g);
}

static void fill(fixture *f)
{
    for (int m = 0; m < MICRO; m++) {
        for (int i = 0; i < TOKENS; i++) {
            f->ids[m][i] = (i * 3 + m) % VOCABULARY;
            f->targets[m][i] = i == 1 ? -1 : (i + m) % VOCABULARY; /* -1 is ignored */
        }
        f->arrays[m][0] = (sluice_array){ "ids", f->ids[m], sizeof f->ids[m] };
        f->arrays[m][1] = (sluice_array){ "targets", f->targets[m], sizeof f->targets[m] };
        f->batches[m] = (sluice_batch){ f->arrays[m], 2 };
    }
}

static void small_options(sluice_options *o)
{
    sluice_options_init(o);
    o->seed = 3;
    o->threads = 1;
    o->evaluation = true;
    o->accumulation_steps = MICRO;
    o->device_bytes = o->host_bytes = (uint64_t)1 << 24;
}

static sluice_status open_fixture(int kind, fixture *f)
{
    sluice_options o;
    *f = (fixture){ .g = NULL };
    fill(f);
    small_options(&o);
    SL_TRY(token_graph(kind, &f->g));
    return sluice_engine_create(f->g, &o, &f->e);
}

static void close_fixture(fixture *f)
{
    sluice_engine_destroy(f->e);
    sluice_graph_destroy(f->g);
}

static void hash_of(sluice_engine *e, char weights[65], char state[65])
{
    CHECK_EQ(sluice_hash(e, weights, state), SLUICE_OK);
}

static const struct {
    bool target;
    int element;
    int32_t value;
    const char *message;
} bad_values[] = {
    { false, 4, -7, "input \"ids\": element 4 is -7, but the rows of \"wte.weight\" are 0 to 4" },
    { false, 0, VOCABULARY, "input \"ids\": element 0 is 5, but the rows of \"wte.weight\" are 0 to 4" },
    { false, 5, 1 << 30, "input \"ids\": element 5 is 1073741824" },
    { false, 2, INT32_MIN, "input \"ids\": element 2 is -2147483648" },
    { false, 2, -1, "input \"ids\": element 2 is -1" }, /* the targets' ignored index */
    { true, 3, 7, "input \"targets\": element 3 is 7, but " },
    { true, 3, 7, "are 0 to 4, and -1 is ignored" },
    { true, 0, -2, "input \"targets\": element 0 is -2" },
    { true, 5, -100, "input \"targets\": element 5 is -100" },
};

static void check_bad_value(fixture *f, size_t i)
{
    char before[65], after[65], state[65], state_after[65];
    double loss = 77;
    float out[WIDEST];
    int32_t *at = bad_values[i].target ? &f->targets[MICRO - 1][bad_values[i].element]
                                       : &f->ids[MICRO - 1][bad_values[i].element];
    int32_t kept = *at;
    *at = bad_values[i].value;
    hash_of(f->e, before, state);
    /* the last of three micro-batches: nothing of the step has begun */
    CHECK_EQ(sluice_train_step(f->e, f->batches, &loss), SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), bad_values[i].message);
    CHECK_EQ(sluice_forward(f->e, &f->batches[MICRO - 1], &loss), SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), bad_values[i].message);
    CHECK_EQ(sluice_evaluate(f->e, &f->batches[MICRO - 1], &loss), SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), bad_values[i].message);
    CHECK_EQ(sluice_predict(f->e, &f->batches[MICRO - 1], out, sizeof out), SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), bad_values[i].message);
    CHECK(loss == 77);
    *at = kept;
    hash_of(f->e, after, state_after);
    CHECK_STR(after, before);
    CHECK_STR(state_after, state);
}

TEST(ids_and_targets_that_no_table_has_are_named_before_anything_is_computed)
{
    for (int kind = 0; kind < KINDS; kind++) {
        fixture f, plain;
        char a[2][65], b[2][65];
        double loss;
        REQUIRE_OK(open_fixture(kind, &f));
        REQUIRE_OK(open_fixture(kind, &plain));
        REQUIRE_OK(sluice_train_step(f.e, f.batches, &loss));
        REQUIRE_OK(sluice_train_step(plain.e, plain.batches, &loss));
        for (size_t i = 0; i < sizeof bad_values / sizeof bad_values[0]; i++) check_bad_value(&f, i);
        CHECK_EQ(sluice_step_count(f.e), 1);
        for (int s = 0; s < 2; s++) {
            REQUIRE_OK(sluice_train_step(f.e, f.batches, &loss));
            REQUIRE_OK(sluice_train_step(plain.e, plain.batches, &loss));
        }
        hash_of(f.e, a[0], a[1]);
        hash_of(plain.e, b[0], b[1]);
        CHECK_STR(a[0], b[0]);
        CHECK_STR(a[1], b[1]);
        close_fixture(&f);
        close_fixture(&plain);
    }
}

static sluice_status fill_from(void *user, uint64_t index, const char *const *names, void *const *buffers,
                               const size_t *bytes, int count)
{
    const int *bad = user;
    for (int i = 0; i < count; i++) {
        int32_t *values = buffers[i];
        for (size_t k = 0; k < bytes[i] / sizeof *values; k++) values[k] = (int32_t)((index + k) % VOCABULARY);
        if (strcmp(names[i], "ids") == 0 && (int)index == *bad) values[2] = VOCABULARY;
    }
    return SLUICE_OK;
}

TEST(a_data_source_that_gives_a_bad_id_ends_fitting_and_the_step_can_be_done_again)
{
    fixture f, plain;
    sluice_data *d;
    double loss = 0;
    char a[65], b[65], state[65];
    int bad = 4; /* the second micro-batch of the second step */
    REQUIRE_OK(open_fixture(PLAIN, &f));
    REQUIRE_OK(open_fixture(PLAIN, &plain));
    REQUIRE_OK(sluice_data_from_callback(fill_from, &bad, &d));
    CHECK_EQ(sluice_fit(f.e, d, 3, &loss), SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), "input \"ids\": element 2 is 5");
    CHECK_EQ(sluice_step_count(f.e), 1);
    bad = -1;
    REQUIRE_OK(sluice_fit(f.e, d, 2, &loss));
    REQUIRE_OK(sluice_fit(plain.e, d, 3, &loss));
    hash_of(f.e, a, state);
    hash_of(plain.e, b, state);
    CHECK_STR(a, b);
    sluice_data_destroy(d);
    close_fixture(&f);
    close_fixture(&plain);
}

/* ---- positions in documents ---- */

enum { ROWS = 2, LENGTH = 5 };

static sluice_status document_graph(sluice_graph **out)
{
    SL_TRY(sluice_graph_create(out));
    sluice_graph *g = *out;
    sluice_attention_options o;
    sluice_attention_options_init(&o);
    o.heads = 2;
    sluice_value x = sluice_input(g, "x", SLUICE_F32, 3, (int64_t[]){ ROWS, LENGTH, WIDTH });
    sluice_value positions = sluice_input(g, "where", SLUICE_I32, 2, (int64_t[]){ ROWS, LENGTH });
    sluice_value y = sluice_linear(g, x, 3 * WIDTH, "qkv");
    y = sluice_attention_with(g, y, SLUICE_NONE, SLUICE_NONE, positions, &o);
    sluice_set_output(g, y);
    sluice_set_loss(g, sluice_mean(g, y));
    return sluice_graph_check(g);
}

TEST(positions_that_do_not_count_through_documents_are_named_before_anything_is_computed)
{
    static const struct {
        int32_t positions[ROWS * LENGTH];
        const char *message; /* NULL: they are right */
    } rows[] = {
        { { 0, 1, 2, 3, 4, 0, 1, 2, 3, 4 }, NULL },
        { { 0, 0, 0, 1, 0, 0, 1, 2, 0, 1 }, NULL },
        { { 1, 2, 3, 4, 5, 0, 1, 2, 3, 4 }, "\"where\": row 0, element 0 is 1, but a row begins with a document" },
        { { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 }, "\"where\": row 1, element 0 is 5, but a row begins" },
        { { 0, 1, 2, 3, 4, 0, 1, 3, 4, 5 }, "row 1, element 2 is 3, but the one before it is 1" },
        { { 0, 1, 1, 2, 3, 0, 1, 2, 3, 4 }, "row 0, element 2 is 1, but the one before it is 1" },
        { { 0, 1, 2, 3, -1, 0, 1, 2, 3, 4 }, "row 0, element 4 is -1, but the one before it is 3" },
        { { 0, INT32_MIN, 0, 0, 0, 0, 1, 2, 3, 4 }, "row 0, element 1 is -2147483648" },
        { { 0, INT32_MAX, 0, 0, 0, 0, 1, 2, 3, 4 }, "a position is 0 where a document begins" },
    };
    sluice_graph *g;
    sluice_engine *e;
    sluice_options o;
    small_options(&o);
    REQUIRE_OK(document_graph(&g));
    REQUIRE_OK(sluice_engine_create(g, &o, &e));
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        float x[ROWS * LENGTH * WIDTH] = { 1 };
        sluice_array arrays[] = { { "where", rows[i].positions, sizeof rows[i].positions }, { "x", x, sizeof x } };
        sluice_batch batch = { arrays, 2 };
        double loss;
        CHECK_EQ(sluice_evaluate(e, &batch, &loss), rows[i].message == NULL ? SLUICE_OK : SLUICE_ERR_INPUT);
        if (rows[i].message != NULL) CHECK_CONTAINS(sluice_error(), rows[i].message);
    }
    sluice_engine_destroy(e);
    sluice_graph_destroy(g);
}

/* ---- sequences ---- */

enum { CLASSES = 4, LABELS = 3 };

static sluice_status speech_graph(bool zero_infinity, sluice_graph **out)
{
    const sluice_init some = { SLUICE_INIT_NORMAL, 0.5f };
    SL_TRY(sluice_graph_create(out));
    sluice_graph *g = *out;
    sluice_value x = sluice_input(g, "x", SLUICE_F32, 3, (int64_t[]){ ROWS, LENGTH, WIDTH });
    sluice_value labels = sluice_input(g, "labels", SLUICE_I32, 2, (int64_t[]){ ROWS, LABELS });
    sluice_value lengths = sluice_input(g, "lengths", SLUICE_I32, 1, (int64_t[]){ ROWS });
    sluice_value w = sluice_parameter(g, "hh", 2, (int64_t[]){ 3 * WIDTH, WIDTH }, some);
    sluice_value bias = sluice_parameter(g, "hh.bias", 1, (int64_t[]){ 3 * WIDTH }, some);
    sluice_value h = sluice_gru(g, sluice_linear(g, x, 3 * WIDTH, "ih"), w, bias, lengths, false);
    sluice_value logits = sluice_linear(g, h, CLASSES, "head");
    sluice_set_output(g, logits);
    sluice_set_loss(g, sluice_ctc_loss(g, logits, labels, lengths, 0, zero_infinity));
    return sluice_graph_check(g);
}

static void check_speech(sluice_engine *e, const int32_t *labels, const int32_t *lengths, const char *message)
{
    float x[ROWS * LENGTH * WIDTH] = { 1 };
    double loss = NAN;
    sluice_array arrays[] = { { "x", x, sizeof x },
                              { "labels", labels, ROWS * LABELS * sizeof *labels },
                              { "lengths", lengths, ROWS * sizeof *lengths } };
    sluice_batch batch = { arrays, 3 };
    CHECK_EQ(sluice_evaluate(e, &batch, &loss), message == NULL ? SLUICE_OK : SLUICE_ERR_INPUT);
    if (message != NULL)
        CHECK_CONTAINS(sluice_error(), message);
    else
        CHECK(isfinite(loss));
}

TEST(sequences_that_frames_or_classes_do_not_allow_are_named_before_anything_is_computed)
{
    static const struct {
        int32_t labels[ROWS * LABELS], lengths[ROWS];
        const char *message; /* NULL: they are right */
        bool infinite;       /* and right where an infinite loss is passed over */
    } rows[] = {
        { { 1, 2, 3, 3, 3, -1 }, { 5, 3 }, NULL, false },
        { { -1, -1, -1, 1, 1, 1 }, { 0, 5 }, NULL, false },
        { { 1, 2, 3, 1, -1, -1 }, { 5, 6 }, "\"lengths\": element 1 is 6, but gru \"", false },
        { { 1, 2, 3, 1, -1, -1 }, { -1, 5 }, "has sequences of 0 to 5 frames", false },
        { { 1, 4, 3, 1, -1, -1 }, { 5, 5 }, "\"labels\": element 1 is 4", false },
        { { 1, -2, 3, 1, -1, -1 }, { 5, 5 }, "\"labels\": element 1 is -2", false },
        { { 1, 2, 3, 1, 0, -1 }, { 5, 5 }, "row 1, element 1 is 0, the blank of ctc_loss", false },
        { { 1, -1, 3, 1, -1, -1 }, { 5, 5 }, "row 0, element 2 is 3, behind -1", false },
        { { 1, 2, 3, 1, -1, -1 }, { 2, 5 }, "the 3 labels of row 0 need 3 frames", true },
        { { 1, 2, 3, 1, 1, -1 }, { 5, 2 }, "the 2 labels of row 1 need 3 frames", true },
        { { 1, 2, 3, 1, 1, -1 }, { 5, 0 }, "the sequence has 0: ctc_loss \"", true },
    };
    for (int zero = 0; zero < 2; zero++) {
        sluice_graph *g;
        sluice_engine *e;
        sluice_options o;
        small_options(&o);
        REQUIRE_OK(speech_graph(zero == 1, &g));
        REQUIRE_OK(sluice_engine_create(g, &o, &e));
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
            check_speech(e, rows[i].labels, rows[i].lengths, zero == 1 && rows[i].infinite ? NULL : rows[i].message);
        sluice_engine_destroy(e);
        sluice_graph_destroy(g);
    }
}

/* ---- losses ---- */

/* Squares of 1e20 are beyond a float, their derivatives are not. */
static sluice_status far_graph(sluice_graph **out)
{
    const sluice_init one = { SLUICE_INIT_ONE, 0 };
    SL_TRY(sluice_graph_create(out));
    sluice_graph *g = *out;
    sluice_value x = sluice_input(g, "x", SLUICE_F32, 1, (int64_t[]){ WIDTH });
    sluice_value t = sluice_input(g, "t", SLUICE_F32, 1, (int64_t[]){ WIDTH });
    sluice_layer(g, "body");
    sluice_value w = sluice_parameter(g, "w", 1, (int64_t[]){ WIDTH }, one);
    sluice_value y = sluice_multiply(g, x, w);
    sluice_set_output(g, y);
    sluice_layer(g, "head");
    sluice_set_loss(g, sluice_mse(g, y, t));
    return sluice_graph_check(g);
}

typedef struct far_batch {
    float x[WIDTH], t[WIDTH];
    sluice_array arrays[2];
    sluice_batch batch;
} far_batch;

static void make_far(far_batch *b, bool far)
{
    for (int i = 0; i < WIDTH; i++) b->x[i] = 1, b->t[i] = far ? 1e20f : 2;
    b->arrays[0] = (sluice_array){ "x", b->x, sizeof b->x };
    b->arrays[1] = (sluice_array){ "t", b->t, sizeof b->t };
    b->batch = (sluice_batch){ b->arrays, 2 };
}

TEST(a_loss_that_is_not_finite_ends_a_step_whose_gradient_is_finite)
{
    static const sluice_dtype precisions[] = { SLUICE_F32, SLUICE_BF16 };
    for (int i = 0; i < 2; i++) {
        sluice_graph *g;
        sluice_engine *e;
        sluice_options o;
        far_batch far, near;
        char before[65], after[65], state[65], state_after[65];
        double loss = 77;
        float out[WIDTH];
        make_far(&far, true);
        make_far(&near, false);
        small_options(&o);
        o.accumulation_steps = 1;
        o.precision = precisions[i];
        o.wire = SLUICE_F32;
        REQUIRE_OK(far_graph(&g));
        REQUIRE_OK(sluice_engine_create(g, &o, &e));
        REQUIRE_OK(sluice_train_step(e, &near.batch, &loss));
        hash_of(e, before, state);
        loss = 77;
        CHECK_EQ(sluice_train_step(e, &far.batch, &loss), SLUICE_ERR_NUMBERS);
        CHECK_CONTAINS(sluice_error(), "step 2: the loss of micro-batch 0 (layer \"head\", rank 0) is infinite");
        CHECK_CONTAINS(sluice_error(), "the weights are unchanged");
        CHECK(loss == 77);
        CHECK_EQ(sluice_evaluate(e, &far.batch, &loss), SLUICE_ERR_NUMBERS);
        CHECK_CONTAINS(sluice_error(), "sluice_evaluate: the loss (layer \"head\") is infinite");
        CHECK(loss == 77);
        REQUIRE_OK(sluice_predict(e, &far.batch, out, sizeof out));
        far.x[2] = NAN;
        CHECK_EQ(sluice_predict(e, &far.batch, out, sizeof out), SLUICE_ERR_NUMBERS);
        CHECK_CONTAINS(sluice_error(), "sluice_predict: the output is NaN at element 2");
        far.x[2] = 1;
        hash_of(e, after, state_after);
        CHECK_STR(after, before);
        CHECK_STR(state_after, state);
        CHECK_EQ(sluice_step_count(e), 1);
        CHECK_EQ(sluice_skipped_steps(e), 0);
        /* the calls one by one: the step is what is judged */
        REQUIRE_OK(sluice_forward(e, &far.batch, &loss));
        CHECK(isinf(loss));
        REQUIRE_OK(sluice_backward(e));
        CHECK_EQ(sluice_step(e), SLUICE_ERR_NUMBERS);
        REQUIRE_OK(sluice_train_step(e, &near.batch, &loss));
        CHECK_EQ(sluice_step_count(e), 2);
        sluice_engine_destroy(e);
        sluice_graph_destroy(g);
    }
}

/* In fp16 every overflow is left out and lowers the scale, and at the least scale it ends the run. */
TEST(a_loss_that_is_not_finite_is_skipped_in_fp16_while_the_scale_can_fall)
{
    sluice_graph *g;
    sluice_engine *e;
    sluice_options o;
    far_batch far;
    char before[65], after[65], state[65];
    double loss;
    make_far(&far, true);
    small_options(&o);
    o.accumulation_steps = 1;
    o.precision = SLUICE_F16;
    o.wire = SLUICE_F32;
    o.loss_scale.initial_power = 1;
    o.loss_scale.hysteresis = 1;
    REQUIRE_OK(far_graph(&g));
    REQUIRE_OK(sluice_engine_create(g, &o, &e));
    hash_of(e, before, state);
    REQUIRE_OK(sluice_train_step(e, &far.batch, &loss));
    CHECK_EQ(sluice_skipped_steps(e), 1);
    CHECK(sluice_current_loss_scale(e) == 1);
    CHECK_EQ(sluice_train_step(e, &far.batch, &loss), SLUICE_ERR_NUMBERS);
    CHECK_CONTAINS(sluice_error(), "the loss scale is at its minimum, 1");
    hash_of(e, after, state);
    CHECK_STR(after, before);
    sluice_engine_destroy(e);
    sluice_graph_destroy(g);
}

typedef struct shared {
    int statuses[2];
    char messages[2][1024], before[2][65], after[2][65];
} shared;

static sluice_status far_rank(void *user, sluice_world *world)
{
    shared *s = user;
    int rank = sluice_world_rank(world);
    sluice_graph *g;
    sluice_engine *e;
    sluice_options o;
    far_batch b;
    char state[65];
    double loss;
    make_far(&b, rank == 1); /* on one rank alone */
    small_options(&o);
    o.accumulation_steps = 1;
    o.stage = 2;
    o.world = world;
    SL_TRY(far_graph(&g));
    SL_TRY(sluice_engine_create(g, &o, &e));
    SL_TRY(sluice_hash(e, s->before[rank], state));
    SL_TRY(sluice_forward(e, &b.batch, &loss));
    SL_TRY(sluice_backward(e));
    s->statuses[rank] = sluice_step(e);
    snprintf(s->messages[rank], sizeof s->messages[rank], "%s", sluice_error());
    SL_TRY(sluice_hash(e, s->after[rank], state));
    sluice_engine_destroy(e);
    sluice_graph_destroy(g);
    return SLUICE_OK;
}

TEST(a_loss_that_is_not_finite_on_one_rank_ends_the_step_on_all)
{
    sluice_launch_options o;
    shared *s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(s != MAP_FAILED);
    sluice_launch_options_init(&o);
    o.ranks = 2;
    o.timeout_seconds = 30;
    REQUIRE_OK(sluice_launch(&o, far_rank, s));
    for (int r = 0; r < 2; r++) {
        CHECK_EQ(s->statuses[r], SLUICE_ERR_NUMBERS);
        CHECK_CONTAINS(s->messages[r], "the loss of micro-batch 1 (layer \"head\", rank 1) is infinite");
        CHECK_STR(s->after[r], s->before[r]);
    }
    munmap(s, sizeof *s);
}

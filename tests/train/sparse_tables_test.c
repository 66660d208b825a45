/* sparse_test.c: a sparse table gives the bits of a dense one where the rule allows, on any number of ranks and at every
 * stage; the lazy rule is SparseAdam; what a step moves goes by the rows it touches; what cannot be is refused. */
#include <math.h>
#include <sys/mman.h>

#include "core/status.h"
#include "ir/sparse.h"
#include "test.h"
#include "train/engine.h"

enum { BATCH = 6, NAMED = 3, WIDTH = 5, STEPS = 5, GLOBAL = 4 };

/* Two tables of `rows` rows: of the first, rows are looked up twice, by two inputs. */
typedef struct model {
    int64_t rows, most_rows, most_of_second, width;
    bool sparse, frozen;
} model;

static sluice_status build(const model *m, sluice_graph **out)
{
    const sluice_init some = { SLUICE_INIT_NORMAL, 0.5f };
    const int64_t width = m->width > 0 ? m->width : WIDTH;
    SL_TRY(sluice_graph_create(out));
    sluice_graph *g = *out;
    sluice_value a = sluice_input(g, "a", SLUICE_I32, 2, (int64_t[]){ BATCH, NAMED });
    sluice_value b = sluice_input(g, "b", SLUICE_I32, 2, (int64_t[]){ BATCH, NAMED });
    sluice_value c = sluice_input(g, "c", SLUICE_I32, 2, (int64_t[]){ BATCH, NAMED });
    sluice_value y = sluice_input(g, "y", SLUICE_F32, 2, (int64_t[]){ BATCH, 2 });
    sluice_layer(g, "tables");
    sluice_value first = sluice_parameter(g, "first", 2, (int64_t[]){ m->rows, width }, some);
    sluice_value second = sluice_parameter(g, "second", 2, (int64_t[]){ m->rows + 3, width }, some);
    if (m->sparse) {
        sluice_sparse(g, first, m->most_rows);
        sluice_sparse(g, second, m->most_of_second);
    }
    if (m->frozen) sluice_freeze(g, second);
    c = sluice_embedding(g, sluice_reshape(g, c, 1, (int64_t[]){ BATCH * NAMED }), second);
    sluice_value x = sluice_add(g, sluice_embedding(g, a, first), sluice_embedding(g, b, first));
    x = sluice_multiply(g, x, sluice_reshape(g, c, 3, (int64_t[]){ BATCH, NAMED, width }));
    sluice_layer(g, "head");
    x = sluice_linear(g, sluice_reshape(g, x, 2, (int64_t[]){ BATCH, NAMED * width }), 2, "head");
    sluice_set_output(g, x);
    sluice_set_loss(g, sluice_mse(g, x, y));
    return sluice_graph_check(g);
}

/* Micro-batch `index`, whoever asks for it. Rows repeat within a micro-batch, between them and between steps, and are all
 * below what the smallest table has. */
static sluice_status fill(void *user, uint64_t index, const char *const *names, void *const *buffers,
                          const size_t *bytes, int count)
{
    int64_t spread = *(const int64_t *)user;
    for (int i = 0; i < count; i++) {
        int32_t *ids = buffers[i];
        float *numbers = buffers[i];
        uint64_t salt = (uint64_t)names[i][0];
        for (size_t k = 0; k < bytes[i] / 4; k++) {
            uint64_t h = (index * 977 + k * 131 + salt * 7919) * 0x9e3779b97f4a7c15u >> 33;
            if (names[i][0] == 'y')
                numbers[k] = (float)(h % 1000) / 500 - 1;
            else
                ids[k] = (int32_t)(h % (uint64_t)spread);
        }
    }
    return SLUICE_OK;
}

typedef struct result {
    char weights[65], state[65];
    double loss, evaluated;
    sl_row_stats rows;
} result;

typedef struct scenario {
    model model;
    sluice_options options;
    int64_t spread; /* ids are below it */
    int global;     /* micro-batches of all ranks */
    result *result;
} scenario;

static result *shared_result(void)
{
    void *memory = mmap(NULL, sizeof(result), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return memory != MAP_FAILED ? memory : NULL;
}

static void base(scenario *s, sluice_optimizer_kind kind)
{
    *s = (scenario){ .model = { .rows = 40 }, .spread = 40, .global = GLOBAL, .result = shared_result() };
    sluice_options_init(&s->options);
    sluice_optimizer_init(&s->options.optimizer, kind);
    s->options.optimizer.weight_decay = 0;
    s->options.optimizer.lr = 0.05;
    s->options.seed = 11;
    s->options.threads = 1;
    s->options.evaluation = true;
    s->options.guard = true;
    s->options.device_bytes = s->options.host_bytes = (uint64_t)1 << 26;
}

/* A micro-batch in memory. */
typedef struct batch {
    int32_t ids[3][BATCH * NAMED];
    float y[BATCH * 2];
    sluice_array arrays[4];
} batch;

static sluice_batch make_batch(batch *b, uint64_t index, int64_t spread)
{
    static const char *const names[] = { "a", "b", "c", "y" };
    void *const buffers[] = { b->ids[0], b->ids[1], b->ids[2], b->y };
    const size_t bytes[] = { sizeof b->ids[0], sizeof b->ids[1], sizeof b->ids[2], sizeof b->y };
    (void)fill(&spread, index, names, buffers, bytes, 4);
    for (int i = 0; i < 4; i++) b->arrays[i] = (sluice_array){ names[i], buffers[i], bytes[i] };
    return (sluice_batch){ b->arrays, 4 };
}

static sluice_status evaluate(sluice_engine *e, int64_t spread, double *out)
{
    batch b;
    sluice_batch given = make_batch(&b, 999, spread);
    return sluice_evaluate(e, &given, out);
}

static sluice_status use(scenario *s, sluice_engine *e, int rank)
{
    result r = { .loss = 0 };
    sluice_data *data;
    SL_TRY(sluice_data_from_callback(fill, &s->spread, &data));
    sluice_status st = sluice_fit(e, data, STEPS, &r.loss);
    sluice_data_destroy(data);
    SL_TRY(st);
    sl_exec_row_stats(e->exec, &r.rows);
    SL_TRY(evaluate(e, s->spread, &r.evaluated));
    SL_TRY(sluice_hash(e, r.weights, r.state));
    if (rank == 0) *s->result = r;
    return SLUICE_OK;
}

static sluice_status body(void *user, sluice_world *world)
{
    scenario *s = user;
    sluice_options o = s->options;
    sluice_graph *g = NULL;
    sluice_engine *e = NULL;
    o.world = world;
    o.accumulation_steps = s->global / (world != NULL ? sluice_world_size(world) : 1);
    sluice_status st = build(&s->model, &g);
    if (st == SLUICE_OK) st = sluice_engine_create(g, &o, &e);
    if (st == SLUICE_OK) st = use(s, e, world != NULL ? sluice_world_rank(world) : 0);
    sluice_engine_destroy(e);
    sluice_graph_destroy(g);
    return st;
}

static sluice_status run(scenario *s, int ranks)
{
    sluice_launch_options o;
    if (ranks == 1) return body(s, NULL);
    sluice_launch_options_init(&o);
    o.ranks = ranks;
    o.timeout_seconds = 60;
    return sluice_launch(&o, body, s);
}

static void check_equal(scenario *s, int ranks, const result *reference)
{
    memset(s->result, 0, sizeof *s->result);
    if (run(s, ranks) != SLUICE_OK)
        test_fail(__FILE__, __LINE__, "%d ranks, stage %d: %s", ranks, s->options.stage, sluice_error());
    CHECK_STR(s->result->weights, reference->weights);
    CHECK_STR(s->result->state, reference->state);
    CHECK(s->result->loss == reference->loss && reference->loss > 0);
    CHECK(s->result->evaluated == reference->evaluated && reference->evaluated > 0);
}

static void check_kind(sluice_optimizer_kind kind, sluice_dtype precision)
{
    scenario s;
    base(&s, kind);
    s.options.precision = s.options.wire = precision;
    REQUIRE_OK(run(&s, 1));
    result dense = *s.result;
    s.model.sparse = true;
    check_equal(&s, 1, &dense);
    CHECK(s.result->rows.rows > 0 && s.result->rows.sent_bytes == 0);
    for (int stage = 0; stage <= 3; stage++) {
        s.options.stage = stage;
        check_equal(&s, 2, &dense);
    }
    s.options.partition = SLUICE_PARTITION_OWNER;
    check_equal(&s, 2, &dense);
    s.options.partition = SLUICE_PARTITION_BLOCK;
    check_equal(&s, 4, &dense);
}

TEST(sparse_tables_give_the_bits_of_dense_ones_under_sgd)
{
    check_kind(SLUICE_SGD, SLUICE_F32);
}

TEST(sparse_tables_give_the_bits_of_dense_ones_under_adagrad)
{
    check_kind(SLUICE_ADAGRAD, SLUICE_F32);
}

TEST(sparse_tables_give_the_bits_of_dense_ones_in_bf16)
{
    check_kind(SLUICE_ADAGRAD, SLUICE_BF16);
}

TEST(sparse_tables_give_the_bits_of_dense_ones_in_f16)
{
    check_kind(SLUICE_SGD, SLUICE_F16);
}

TEST(a_frozen_sparse_table_is_read_and_stays_as_it_is)
{
    scenario s;
    base(&s, SLUICE_ADAGRAD);
    s.model.frozen = true;
    REQUIRE_OK(run(&s, 1));
    result dense = *s.result;
    s.model.sparse = true;
    check_equal(&s, 1, &dense);
    s.options.stage = 3;
    check_equal(&s, 2, &dense);
}

TEST(sparse_tables_give_the_same_bits_wherever_the_rows_of_a_step_are)
{
    scenario s;
    base(&s, SLUICE_ADAM);
    s.model.sparse = true;
    s.options.gradient_clipping = 0.1;
    REQUIRE_OK(run(&s, 1));
    result reference = *s.result;
    s.options.parameters = s.options.optimizer_state = SLUICE_PLACE_HOST;
    check_equal(&s, 1, &reference);
    for (int stage = 0; stage <= 3; stage++) {
        s.options.stage = stage;
        check_equal(&s, 2, &reference);
    }
}

TEST(sparse_tables_may_have_fewer_rows_than_there_are_ranks)
{
    scenario s;
    base(&s, SLUICE_ADAGRAD);
    s.model.rows = s.spread = 2;
    REQUIRE_OK(run(&s, 1));
    result dense = *s.result;
    s.model.sparse = true;
    s.options.stage = 3;
    check_equal(&s, 4, &dense);
}

TEST(a_device_that_computes_nothing_has_no_rows_to_bring)
{
    scenario s;
    base(&s, SLUICE_ADAGRAD);
    s.model.sparse = true;
    s.options.null_backend = true;
    REQUIRE_OK(run(&s, 1));
    CHECK_EQ(s.result->rows.rows, 0);
    REQUIRE_OK(run(&s, 2));
}

/* What a rank keeps of the rows of a step, and what it updates of them, is more than ranks send at a time. */
TEST(rows_of_sparse_tables_go_between_ranks_in_parts)
{
    scenario s;
    base(&s, SLUICE_ADAGRAD);
    s.model = (model){ .rows = 300, .width = 2048 };
    s.spread = 300;
    s.options.optimizer.lr = 0.001;
    REQUIRE_OK(run(&s, 1));
    result dense = *s.result;
    s.model.sparse = true;
    s.options.stage = 1;
    check_equal(&s, 2, &dense);
    CHECK(s.result->rows.rows / (2 * STEPS) * 2048 / 2 > SL_TABLE_CHUNK);
}

/* ---- the lazy rule ---- */

/* torch.optim.SparseAdam on table rows, in double: moments of the rows of a step alone, corrections by its number. */
static void lazy_adam(const sluice_optimizer *o, int step, const float *before, const float *after,
                      const double *gradient, double *m, double *v)
{
    *m = o->beta1 * *m + (1 - o->beta1) * *gradient;
    *v = o->beta2 * *v + (1 - o->beta2) * *gradient * *gradient;
    double rate = o->lr * sqrt(1 - pow(o->beta2, step)) / (1 - pow(o->beta1, step));
    double wanted = *before - rate * *m / (sqrt(*v) + o->epsilon);
    CHECK_THAT(fabs(wanted - *after) < 2e-6, "step %d: %g is %g, not %g", step, *before, *after, wanted);
}

/* The loss is the sum of the rows that are looked up: the gradient of a row is how often it is. */
TEST(adam_on_a_sparse_table_is_sparse_adam)
{
    enum { ROWS = 7, TIMES = 4 };
    static const int32_t named[TIMES][3] = { { 1, 1, 5 }, { 5, 2, 2 }, { 1, 6, 6 }, { 2, 2, 2 } };
    sluice_graph *g;
    sluice_engine *e;
    sluice_options o;
    float before[ROWS], after[ROWS];
    double m[ROWS] = { 0 }, v[ROWS] = { 0 }, loss;
    sluice_options_init(&o);
    sluice_optimizer_init(&o.optimizer, SLUICE_ADAM);
    o.optimizer.lr = 0.1;
    o.optimizer.epsilon = 0.01; /* large, so that its place in the rule is seen */
    o.threads = 1;
    o.device_bytes = o.host_bytes = (uint64_t)1 << 24;
    REQUIRE_OK(sluice_graph_create(&g));
    sluice_value ids = sluice_input(g, "ids", SLUICE_I32, 1, (int64_t[]){ 3 });
    sluice_value table = sluice_parameter(g, "t", 2, (int64_t[]){ ROWS, 1 }, (sluice_init){ SLUICE_INIT_NORMAL, 1 });
    sluice_sparse(g, table, 0);
    sluice_set_loss(g, sluice_sum(g, sluice_embedding(g, ids, table)));
    REQUIRE_OK(sluice_engine_create(g, &o, &e));
    for (int t = 0; t < TIMES; t++) {
        sluice_array array = { "ids", named[t], sizeof named[t] };
        double gradient[ROWS] = { 0 };
        for (int i = 0; i < 3; i++) gradient[named[t][i]]++;
        REQUIRE_OK(sluice_get_parameter(e, "t", before, sizeof before));
        REQUIRE_OK(sluice_train_step(e, &(sluice_batch){ &array, 1 }, &loss));
        REQUIRE_OK(sluice_get_parameter(e, "t", after, sizeof after));
        for (int r = 0; r < ROWS; r++)
            if (gradient[r] > 0)
                lazy_adam(&o.optimizer, t + 1, &before[r], &after[r], &gradient[r], &m[r], &v[r]);
            else
                CHECK(before[r] == after[r]);
    }
    sluice_engine_destroy(e);
    sluice_graph_destroy(g);
}

/* ---- what moves, and where ---- */

TEST(what_a_step_moves_of_sparse_tables_does_not_depend_on_their_size)
{
    sl_row_stats first = { 0 };
    for (int times = 1; times <= 16; times *= 4) {
        scenario s;
        base(&s, SLUICE_ADAGRAD);
        s.model = (model){ .rows = 40 * times, .sparse = true };
        REQUIRE_OK(run(&s, 2));
        if (times == 1) first = s.result->rows;
        CHECK(s.result->rows.rows > 0 && s.result->rows.rows == first.rows);
        CHECK_EQ(s.result->rows.moved_bytes, first.moved_bytes);
        /* weight and one state slot of each element, there and back */
        CHECK_EQ(s.result->rows.moved_bytes, s.result->rows.rows * WIDTH * sizeof(float) * 2 * 2);
    }
}

/* The tables and their state have 20 times the bytes of the device and more. */
TEST(sparse_tables_may_be_larger_than_the_device)
{
    scenario s;
    base(&s, SLUICE_ADAGRAD);
    s.options.device_bytes = (uint64_t)64 << 10;
    s.options.guard = false;
    s.model = (model){ .rows = 20 * (int64_t)s.options.device_bytes / (WIDTH * 4), .sparse = true };
    REQUIRE_OK(run(&s, 1));
    result one = *s.result;
    s.options.stage = 3;
    check_equal(&s, 2, &one);
    s.model.sparse = false;
    s.options.parameters = s.options.optimizer_state = SLUICE_PLACE_HOST;
    CHECK(run(&s, 1) == SLUICE_ERR_NO_FIT);
}

TEST(a_plan_without_room_for_all_rows_on_the_host_is_refused)
{
    scenario s;
    base(&s, SLUICE_ADAGRAD);
    s.options.host_bytes = (uint64_t)1 << 20;
    s.model = (model){ .rows = (int64_t)1 << 16, .sparse = true };
    CHECK(run(&s, 1) == SLUICE_ERR_NO_FIT);
}

/* ---- refusals ---- */

TEST(a_step_that_touches_more_rows_than_was_said_is_refused)
{
    scenario s;
    base(&s, SLUICE_SGD);
    s.model = (model){ .rows = 40, .most_rows = 8, .sparse = true };
    CHECK(run(&s, 1) == SLUICE_ERR_USAGE);
    CHECK(strstr(sluice_error(), "rows of \"first\"") != NULL && strstr(sluice_error(), "room for 8") != NULL);
    s.spread = 8;
    REQUIRE_OK(run(&s, 1));
    result bounded = *s.result;
    s.model.most_rows = 0;
    check_equal(&s, 1, &bounded);
}

/* Steps of two micro-batches; before the second of each comes one that has too many rows of the second table. */
static sluice_status train_between_refusals(bool refusals, char weights[65])
{
    scenario s;
    sluice_graph *g;
    sluice_engine *e;
    batch b;
    char state[65];
    double loss;
    base(&s, SLUICE_SGD);
    s.model = (model){ .rows = 40, .most_of_second = 8, .sparse = true };
    s.options.accumulation_steps = 2;
    SL_TRY(build(&s.model, &g));
    sluice_status st = sluice_engine_create(g, &s.options, &e);
    for (uint64_t i = 0; st == SLUICE_OK && i < 6; i++) {
        sluice_batch few = make_batch(&b, i, 5);
        if (refusals && i % 2 == 1) {
            batch other;
            sluice_batch many = make_batch(&other, i, 40);
            CHECK(sluice_forward(e, &many, &loss) == SLUICE_ERR_USAGE);
            CHECK(strstr(sluice_error(), "\"second\"") != NULL);
        }
        st = sluice_forward(e, &few, &loss);
        if (st == SLUICE_OK) st = sluice_backward(e);
        if (st == SLUICE_OK && i % 2 == 1) st = sluice_step(e);
    }
    if (st == SLUICE_OK) st = sluice_hash(e, weights, state);
    sluice_engine_destroy(e);
    sluice_graph_destroy(g);
    return st;
}

TEST(a_step_goes_on_behind_a_batch_that_was_refused)
{
    char with[65], without[65];
    REQUIRE_OK(train_between_refusals(false, without));
    REQUIRE_OK(train_between_refusals(true, with));
    CHECK_STR(with, without);
}

static void check_refused(scenario *s, const char *part)
{
    CHECK(run(s, 1) == SLUICE_ERR_USAGE);
    CHECK_THAT(strstr(sluice_error(), part) != NULL, "no \"%s\" in: %s", part, sluice_error());
}

TEST(optimizers_that_change_untouched_rows_are_refused)
{
    scenario s;
    base(&s, SLUICE_LAMB);
    s.model.sparse = true;
    check_refused(&s, "sparse table \"first\"");
    base(&s, SLUICE_SGD);
    s.model.sparse = true;
    s.options.optimizer.momentum = 0.9;
    check_refused(&s, "without momentum");
    base(&s, SLUICE_ADAMW);
    s.model.sparse = true;
    s.options.optimizer.weight_decay = 0.1;
    check_refused(&s, "weight_decay");
    base(&s, SLUICE_ADAM);
    s.model.sparse = true;
    s.options.states = SLUICE_STATES_BF16;
    check_refused(&s, "fp32 states");
}

TEST(a_row_that_a_sparse_table_does_not_have_is_named)
{
    scenario s;
    base(&s, SLUICE_SGD);
    s.model.sparse = true;
    s.spread = 60;
    CHECK(run(&s, 1) == SLUICE_ERR_INPUT);
    CHECK(strstr(sluice_error(), "the rows of \"first\" are 0 to 39") != NULL);
}

/* ---- bags ---- */

enum { BAGS = 3, ROOM = 4 };

/* One step on the sum of squares of the bags' means; ids behind the last end repeat one that is used. */
static sluice_status step_on_bags(bool sparse, const int32_t *ends, float *table)
{
    static const int32_t ids[BAGS * ROOM] = { 5, 2, 2, 9, 7, 5, 5, 5, 5, 5, 5, 5 };
    sluice_graph *g;
    sluice_engine *e = NULL;
    sluice_options o;
    double loss;
    sluice_options_init(&o);
    sluice_optimizer_init(&o.optimizer, SLUICE_SGD);
    o.optimizer.lr = 0.5;
    o.threads = 1;
    o.device_bytes = o.host_bytes = (uint64_t)1 << 24;
    SL_TRY(sluice_graph_create(&g));
    sluice_value in = sluice_input(g, "ids", SLUICE_I32, 2, (int64_t[]){ BAGS, ROOM });
    sluice_value at = sluice_input(g, "ends", SLUICE_I32, 1, (int64_t[]){ BAGS });
    sluice_value t = sluice_parameter(g, "t", 2, (int64_t[]){ 10, 2 }, (sluice_init){ SLUICE_INIT_NORMAL, 1 });
    if (sparse) sluice_sparse(g, t, 0);
    sluice_value y = sluice_embedding_bag(g, in, at, t, true);
    sluice_set_loss(g, sluice_sum(g, sluice_multiply(g, y, y)));
    sluice_array arrays[] = { { "ids", ids, sizeof ids }, { "ends", ends, BAGS * sizeof *ends } };
    sluice_status st = sluice_engine_create(g, &o, &e);
    if (st == SLUICE_OK) st = sluice_train_step(e, &(sluice_batch){ arrays, 2 }, &loss);
    if (st == SLUICE_OK) st = sluice_get_parameter(e, "t", table, 20 * sizeof *table);
    sluice_engine_destroy(e);
    sluice_graph_destroy(g);
    return st;
}

TEST(bags_of_rows_of_a_sparse_table_are_those_of_a_dense_one)
{
    const int32_t ends[BAGS] = { 3, 3, 5 };
    float dense[20], sparse[20];
    REQUIRE_OK(step_on_bags(false, ends, dense));
    REQUIRE_OK(step_on_bags(true, ends, sparse));
    CHECK(memcmp(dense, sparse, sizeof dense) == 0);
}

TEST(ends_of_bags_that_cannot_be_are_refused)
{
    float table[20];
    CHECK(step_on_bags(true, (int32_t[]){ 3, 2, 5 }, table) == SLUICE_ERR_INPUT);
    CHECK(strstr(sluice_error(), "input \"ends\": element 1 is 2") != NULL);
    CHECK(step_on_bags(false, (int32_t[]){ -1, 2, 5 }, table) == SLUICE_ERR_INPUT);
    CHECK(step_on_bags(false, (int32_t[]){ 3, 3, 13 }, table) == SLUICE_ERR_INPUT);
    CHECK(strstr(sluice_error(), "there are 12 rows") != NULL);
}

/* ---- files ---- */

typedef struct resumption {
    scenario s;
    const char *folder;
    int first, more; /* steps before a checkpoint is saved, or after it was resumed; 0: none */
} resumption;

static sluice_status train_some(resumption *q, sluice_engine *e, int rank)
{
    sluice_data *data;
    uint64_t step = 0;
    double loss;
    result r = { .loss = 0 };
    if (q->first == 0) SL_TRY(sluice_checkpoint_resume(e, q->folder, &step));
    SL_TRY(sluice_data_from_callback(fill, &q->s.spread, &data));
    sluice_status st = sluice_fit(e, data, q->first + q->more, &loss);
    sluice_data_destroy(data);
    SL_TRY(st);
    if (q->first > 0 && q->more == 0) SL_TRY(sluice_checkpoint_save(e, q->folder));
    SL_TRY(sluice_hash(e, r.weights, r.state));
    if (rank == 0) *q->s.result = r;
    return SLUICE_OK;
}

static sluice_status resumption_body(void *user, sluice_world *world)
{
    resumption *q = user;
    sluice_options o = q->s.options;
    sluice_graph *g = NULL;
    sluice_engine *e = NULL;
    o.world = world;
    o.accumulation_steps = q->s.global / sluice_world_size(world);
    sluice_status st = build(&q->s.model, &g);
    if (st == SLUICE_OK) st = sluice_engine_create(g, &o, &e);
    if (st == SLUICE_OK) st = train_some(q, e, sluice_world_rank(world));
    sluice_engine_destroy(e);
    sluice_graph_destroy(g);
    return st;
}

static void train_on(resumption *q, int ranks)
{
    sluice_launch_options o;
    sluice_launch_options_init(&o);
    o.ranks = ranks;
    o.timeout_seconds = 60;
    REQUIRE_OK(sluice_launch(&o, resumption_body, q));
}

TEST(sparse_tables_resume_to_the_same_bits_on_other_ranks)
{
    resumption q = { .folder = test_tmpdir(), .first = 2, .more = 3 };
    base(&q.s, SLUICE_ADAM);
    q.s.model.sparse = true;
    train_on(&q, 2);
    result whole = *q.s.result;
    q.s.options.stage = 2;
    q.more = 0;
    train_on(&q, 2);
    CHECK(strcmp(q.s.result->weights, whole.weights) != 0);
    q.first = 0;
    q.more = 3;
    q.s.options.stage = 3;
    train_on(&q, 4);
    CHECK_STR(q.s.result->weights, whole.weights);
    CHECK_STR(q.s.result->state, whole.state);
}

/* Values of a sparse table are those that were set, on all ranks, and weights files have the names and bytes of a dense
 * one. */
TEST(weights_of_sparse_tables_are_saved_and_loaded_as_dense_ones)
{
    char path[512], hashes[2][65], state[65];
    snprintf(path, sizeof path, "%s/weights.safetensors", test_tmpdir());
    for (int i = 0; i < 2; i++) {
        scenario s;
        sluice_graph *g;
        sluice_engine *e;
        base(&s, SLUICE_SGD);
        s.model.sparse = i == 0;
        s.options.seed = (uint64_t)i;
        REQUIRE_OK(build(&s.model, &g));
        REQUIRE_OK(sluice_engine_create(g, &s.options, &e));
        if (i == 0) REQUIRE_OK(sluice_save(e, path));
        if (i == 1) REQUIRE_OK(sluice_load(e, path));
        REQUIRE_OK(sluice_hash(e, hashes[i], state));
        sluice_engine_destroy(e);
        sluice_graph_destroy(g);
    }
    CHECK_STR(hashes[0], hashes[1]);
}

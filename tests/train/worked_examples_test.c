/* worked_examples_test.c: small cases whose numbers can be worked out by hand, on real ranks.
 *
 * Ranks are processes; what they find comes back in memory that they share with the test. */
#include <sys/mman.h>

#include "config/config.h"
#include "core/bytes.h"
#include "core/status.h"
#include "ir/tile.h"
#include "test.h"
#include "train/engine.h"

enum { MAX_RANKS = 4 };

static const char *const rule_names[] = { "layer", "block", "owner", "weighted" };
enum { RULES = sizeof rule_names / sizeof rule_names[0] };

static void *shared_memory(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return memory != MAP_FAILED ? memory : NULL;
}

static sluice_status launch(int ranks, sluice_status (*body)(void *user, sluice_world *world), void *user)
{
    sluice_launch_options o;
    sluice_launch_options_init(&o);
    o.ranks = ranks;
    o.timeout_seconds = 30;
    fflush(NULL);
    return sluice_launch(&o, body, user);
}

static void base_options(sluice_options *o, sluice_optimizer_kind kind, double lr)
{
    sluice_options_init(o);
    sluice_optimizer_init(&o->optimizer, kind);
    o->optimizer.lr = lr;
    o->threads = 1;
    o->guard = true;
    o->device_bytes = o->host_bytes = (uint64_t)1 << 26;
}

/* Standard normal numbers from a fixed seed, by Box and Muller. */
static void fill_normal(uint64_t seed, float *out, int count)
{
    uint64_t s = seed;
    for (int i = 0; i < count; i++) {
        double u[2];
        for (int k = 0; k < 2; k++) {
            s = s * 6364136223846793005u + 1442695040888963407u;
            u[k] = ((double)(s >> 11) + 0.5) / 9007199254740992.0;
        }
        out[i] = (float)(sqrt(-2 * log(u[0])) * cos(6.283185307179586 * u[1]));
    }
}

/* ---- 10-5-3-1 without activations on noise ----
 * 100 samples in batches of 10, for 10 epochs of mean squared error with SGD 0.001. A step is two micro-batches of 5,
 * on one rank or on two. */

enum { NET_STEPS = 100, NET_SAMPLES = 100, NET_MICRO = 5, NET_FEATURES = 10 };

typedef struct net_result {
    char weights[65], state[65];
    double losses[NET_STEPS];
    int64_t parameters;
} net_result;

typedef struct net_case {
    int stage;
    sluice_partition rule;
    net_result *out;
} net_case;

static float net_x[NET_SAMPLES][NET_FEATURES], net_y[NET_SAMPLES];

static sluice_status net_graph(sluice_graph **out)
{
    sluice_graph *g;
    SL_TRY(sluice_graph_create(&g));
    *out = g;
    sluice_layer(g, "first");
    sluice_value x = sluice_input(g, "x", SLUICE_F32, 2, (int64_t[]){ NET_MICRO, NET_FEATURES });
    sluice_value y = sluice_input(g, "y", SLUICE_F32, 2, (int64_t[]){ NET_MICRO, 1 });
    sluice_value hidden = sluice_linear(g, x, 5, "fc1");
    sluice_layer(g, "second");
    hidden = sluice_linear(g, hidden, 3, "fc2");
    sluice_layer(g, "third");
    sluice_set_loss(g, sluice_mse(g, sluice_linear(g, hidden, 1, "fc3"), y));
    return SLUICE_OK;
}

static sluice_status net_train(const net_case *c, sluice_engine *e, sluice_world *world, net_result *out)
{
    int ranks = sluice_world_size(world), rank = sluice_world_rank(world);
    for (int step = 0; step < NET_STEPS; step++) {
        sluice_array arrays[2][2];
        sluice_batch batches[2];
        for (int m = 0; m < 2 / ranks; m++) {
            int first = (step * 2 + m * ranks + rank) * NET_MICRO % NET_SAMPLES;
            arrays[m][0] = (sluice_array){ "x", net_x[first], NET_MICRO * sizeof net_x[0] };
            arrays[m][1] = (sluice_array){ "y", &net_y[first], NET_MICRO * sizeof net_y[0] };
            batches[m] = (sluice_batch){ arrays[m], 2 };
        }
        SL_TRY(sluice_train_step(e, batches, &out->losses[step]));
    }
    for (int i = 0; i < e->graph->parameter_count; i++) out->parameters += e->graph->parameters[i].count;
    SL_TRY(sluice_hash(e, out->weights, out->state));
    if (rank == 0) *c->out = *out;
    return SLUICE_OK;
}

static sluice_status net_body(void *user, sluice_world *world)
{
    static const double weights[] = { 1, 3 };
    const net_case *c = user;
    sluice_options o;
    sluice_graph *g = NULL;
    sluice_engine *e = NULL;
    net_result mine = { .parameters = 0 };
    base_options(&o, SLUICE_SGD, 0.001);
    o.world = world;
    o.stage = c->stage;
    o.partition = c->rule;
    o.partition_weights = weights;
    o.accumulation_steps = 2 / sluice_world_size(world);
    sluice_status st = net_graph(&g);
    if (st == SLUICE_OK) st = sluice_engine_create(g, &o, &e);
    if (st == SLUICE_OK) st = net_train(c, e, world, &mine);
    sluice_engine_destroy(e);
    sluice_graph_destroy(g);
    return st;
}

static double mean_of(const double *values, int count)
{
    double sum = 0;
    for (int i = 0; i < count; i++) sum += values[i];
    return sum / count;
}

static double target_variance(void)
{
    double sum = 0, squares = 0;
    for (int i = 0; i < NET_SAMPLES; i++) sum += net_y[i], squares += (double)net_y[i] * net_y[i];
    return squares / NET_SAMPLES - sum / NET_SAMPLES * (sum / NET_SAMPLES);
}

TEST(a_net_of_77_parameters_ends_alike_on_two_ranks_at_every_stage_and_rule)
{
    net_result *out = shared_memory(sizeof *out), one;
    REQUIRE(out != NULL);
    fill_normal(1, &net_x[0][0], NET_SAMPLES * NET_FEATURES);
    fill_normal(2, net_y, NET_SAMPLES);
    REQUIRE_OK(launch(1, net_body, &(net_case){ 0, SLUICE_PARTITION_LAYER, out }));
    one = *out;
    CHECK_EQ(one.parameters, 77);
    for (int i = 0; i < RULES * 4; i++) {
        net_case c = { i % 4, (sluice_partition)(i / 4), out };
        memset(out, 0, sizeof *out);
        REQUIRE_OK(launch(2, net_body, &c));
        CHECK_STR(out->weights, one.weights);
        CHECK_STR(out->state, one.state);
        CHECK(memcmp(out->losses, one.losses, sizeof one.losses) == 0);
    }
    munmap(out, sizeof *out);
    /* Nothing can be learnt from noise but its mean: the loss falls to the variance of the target, not to 0. The
     * outputs of the first weights add a little to it, and what 76 weights fit by chance takes a little off. */
    double last = mean_of(one.losses + NET_STEPS - 10, 10), first = mean_of(one.losses, 10);
    printf("loss of the first epoch %.3f, of the last %.3f; variance of the target %.3f\n", first, last,
           target_variance());
    CHECK(last < first);
    CHECK_NEAR(last, target_variance(), 0.2 * target_variance());
}

/* ---- one matrix over two ranks ---- */

enum { CUT_MAX = 8 };

typedef struct cut_result {
    uint64_t peak;                       /* on the device */
    uint64_t kept;                       /* bytes of parameters */
    int64_t owned[CUT_MAX];              /* elements, by parameter */
    float fetched[CUT_MAX][8], read[16]; /* of a small W: what this rank has of each tile; the whole, as all read it */
    char refusal[1024];
} cut_result;

typedef struct cut_case {
    int64_t rows, columns;
    uint64_t tile_bytes; /* 0: one piece */
    uint64_t device_bytes;
    sluice_partition rule;
    double weights[MAX_RANKS];
    const float *values; /* of W, row by row; NULL: as they come */
    int steps;
    cut_result *out; /* by rank */
} cut_case;

/* loss = sum over rows r of t[r] * (W x)[r]: row r has the gradient t[r] * x. */
static sluice_status cut_graph(const cut_case *c, sluice_graph **out)
{
    sluice_graph *g;
    SL_TRY(sluice_graph_create(&g));
    *out = g;
    sluice_layer(g, "fc");
    sluice_value x = sluice_input(g, "x", SLUICE_F32, 2, (int64_t[]){ 1, c->columns });
    sluice_value t = sluice_input(g, "t", SLUICE_F32, 2, (int64_t[]){ 1, c->rows });
    sluice_value w =
        sluice_parameter(g, "W", 2, (int64_t[]){ c->rows, c->columns }, (sluice_init){ SLUICE_INIT_NORMAL, 1 });
    sluice_value y = sluice_linear_with(g, x, w, SLUICE_NONE, false);
    sluice_layer(g, "loss");
    sluice_set_loss(g, sluice_sum(g, sluice_multiply(g, y, t)));
    return sl_graph_tile(g, c->tile_bytes);
}

static void count_owned(const sluice_engine *e, int rank, cut_result *out)
{
    const sluice_graph *g = e->graph;
    for (int p = 0; p < g->parameter_count && p < CUT_MAX; p++)
        for (int64_t i = 0; i < sl_plan_owned_count(e->plan, p, rank); i++)
            out->owned[p] += sl_plan_owned(e->plan, p, rank, i).count;
    out->kept = e->plan->totals.state_parameters;
}

static size_t cut_bytes(const cut_case *c)
{
    return (size_t)(c->rows * c->columns) * sizeof(float);
}

static sluice_status cut_store(const cut_case *c, sluice_engine *e)
{
    return c->values != NULL ? sluice_set_parameter(e, "W", c->values, cut_bytes(c)) : SLUICE_OK;
}

static sluice_status cut_look(const cut_case *c, sluice_engine *e, cut_result *out)
{
    const sluice_graph *g = e->graph;
    if (c->values == NULL) return SLUICE_OK;
    for (int p = 0; p < g->parameter_count; p++)
        SL_TRY(sl_exec_fetch(e->exec, p, -1, 0, g->parameters[p].count, out->fetched[p]));
    return sluice_get_parameter(e, "W", out->read, cut_bytes(c));
}

/* Every rank gives x = 1, 2, 3, ... and t = 1, 10, 100, ...: the mean over ranks is each one's gradient. */
static sluice_status cut_steps(const cut_case *c, sluice_engine *e)
{
    static float x[16], t[16];
    double loss;
    for (int i = 0; i < 16; i++) x[i] = (float)(i + 1), t[i] = i == 0 ? 1 : 10 * t[i - 1];
    sluice_array arrays[] = { { "x", x, (size_t)c->columns * sizeof x[0] }, { "t", t, (size_t)c->rows * sizeof t[0] } };
    for (int i = 0; i < c->steps; i++) SL_TRY(sluice_train_step(e, &(sluice_batch){ arrays, 2 }, &loss));
    return SLUICE_OK;
}

static sluice_status cut_body(void *user, sluice_world *world)
{
    const cut_case *c = user;
    int rank = sluice_world_rank(world);
    cut_result *out = &c->out[rank];
    sluice_options o;
    sluice_graph *g = NULL;
    sluice_engine *e = NULL;
    sluice_memory peak;
    base_options(&o, SLUICE_SGD, 1.0);
    o.world = world;
    o.stage = 3;
    o.partition = c->rule;
    o.partition_weights = c->rule == SLUICE_PARTITION_WEIGHTED ? c->weights : NULL;
    o.parameters = o.optimizer_state = SLUICE_PLACE_DEVICE;
    o.activations = SLUICE_ACTIVATIONS_KEEP;
    if (c->device_bytes > 0) o.device_bytes = c->device_bytes;
    sluice_status st = cut_graph(c, &g);
    if (st == SLUICE_OK) st = sluice_engine_create(g, &o, &e);
    if (st == SLUICE_ERR_NO_FIT) snprintf(out->refusal, sizeof out->refusal, "%s", sluice_error());
    if (st == SLUICE_OK) {
        sluice_planned_peak(e, &peak);
        out->peak = peak.device;
        count_owned(e, rank, out);
        st = cut_store(c, e);
    }
    if (st == SLUICE_OK) st = cut_steps(c, e);
    if (st == SLUICE_OK) st = cut_look(c, e, out);
    sluice_engine_destroy(e);
    sluice_graph_destroy(g);
    return st;
}

TEST(ten_elements_over_two_ranks_are_five_and_five)
{
    cut_result *out = shared_memory(2 * sizeof *out);
    REQUIRE(out != NULL);
    /* tiles of at most 20 bytes, whole ones to ranks: a row of 5 each */
    cut_case c = { .rows = 2, .columns = 5, .tile_bytes = 20, .rule = SLUICE_PARTITION_OWNER, .out = out };
    REQUIRE_OK(launch(2, cut_body, &c));
    for (int r = 0; r < 2; r++) {
        CHECK_EQ(out[r].owned[0] + out[r].owned[1], 5);
        CHECK_EQ(out[r].owned[r], 5);
        CHECK_EQ(out[r].kept, 20);
    }
    munmap(out, 2 * sizeof *out);
}

/* Shards are cut at multiples of 1,024 elements, so that the case of 10 elements is played with 10 x 1,024. */
TEST(a_forced_two_to_eight_is_refused_with_what_it_needs_and_has)
{
    char numbers[128];
    cut_result *out = shared_memory(2 * sizeof *out);
    REQUIRE(out != NULL);
    cut_case c = { .rows = 1024, .columns = 10, .rule = SLUICE_PARTITION_WEIGHTED, .weights = { 1, 1 }, .out = out };
    REQUIRE_OK(launch(2, cut_body, &c));
    CHECK_EQ(out[0].owned[0], 5 * 1024);
    CHECK_EQ(out[1].owned[0], 5 * 1024);
    CHECK_EQ(out[0].peak, out[1].peak);
    uint64_t has = out[0].peak; /* room for 5 x 1,024, and not for a byte more */
    c.device_bytes = has;
    REQUIRE_OK(launch(2, cut_body, &c));

    memset(out, 0, 2 * sizeof *out);
    c.weights[0] = 2, c.weights[1] = 8;
    c.device_bytes = 0;
    REQUIRE_OK(launch(2, cut_body, &c));
    CHECK_EQ(out[0].owned[0], 2 * 1024);
    CHECK_EQ(out[1].owned[0], 8 * 1024);
    uint64_t needs = out[1].peak;
    CHECK_EQ(needs - has, 3 * 1024 * 8); /* 3 x 1,024 elements more of the parameter and of its summed gradient */

    c.device_bytes = has;
    CHECK_EQ(launch(2, cut_body, &c), SLUICE_ERR_NO_FIT);
    snprintf(numbers, sizeof numbers, "memory.device has %llu bytes", (unsigned long long)has);
    CHECK_CONTAINS(sluice_error(), numbers);
    snprintf(numbers, sizeof numbers, "needs %llu (", (unsigned long long)needs);
    CHECK_CONTAINS(sluice_error(), numbers);
    CHECK_CONTAINS(sluice_error(), "24576 bytes");
    printf("refusal of 2 : 8: %s\n", sluice_error());
    for (int r = 0; r < 2; r++) CHECK_CONTAINS(out[r].refusal, numbers); /* every rank knows it */
    munmap(out, 2 * sizeof *out);
}

TEST(rows_go_to_ranks_and_the_gradients_of_shards_are_joined)
{
    static const float w[] = { 1, 2, 3, 4, 5, 6 };
    cut_result *out = shared_memory(2 * sizeof *out);
    REQUIRE(out != NULL);
    cut_case c = { .rows = 2, .columns = 3, .tile_bytes = 12, .rule = SLUICE_PARTITION_OWNER, .values = w, .out = out };
    REQUIRE_OK(launch(2, cut_body, &c));
    for (int r = 0; r < 2; r++) {
        static const float nothing[3] = { 0 };
        CHECK(memcmp(out[r].fetched[r], w + 3 * r, 3 * sizeof(float)) == 0);
        CHECK(memcmp(out[r].fetched[1 - r], nothing, sizeof nothing) == 0);
        CHECK(memcmp(out[r].read, w, sizeof w) == 0);
    }
    /* One step of SGD 1.0: row 0 falls by x, row 1 by 10 x. Added, each would fall by 11 x. */
    memset(out, 0, 2 * sizeof *out);
    c.steps = 1;
    REQUIRE_OK(launch(2, cut_body, &c));
    for (int r = 0; r < 2; r++)
        for (int i = 0; i < 6; i++) CHECK_NEAR(out[r].read[i], (double)w[i] - (i < 3 ? 1 : 10) * (i % 3 + 1), 0);
    munmap(out, 2 * sizeof *out);
}

/* ---- Linear(10, 5) with a summed difference as loss ----
 * 100 samples on 4 ranks, 10 steps of SGD 0.01 with the whole set, loss = scale * sum(out - y). The gradient of b is
 * the number of samples, that of W[j,i] the sum of x[:,i]. A rank's micro-batch counts 1/4: with scale 4 the engine's
 * mean over micro-batches is the sum over all samples. */

enum { SUM_SAMPLES = 100, SUM_RANKS = 4, SUM_IN = 10, SUM_OUT = 5, SUM_STEPS = 10 };

typedef struct sum_case {
    float scale;
    int stage;
    float *parameters; /* shared: W, then b, both after the last step */
} sum_case;

static float sum_x[SUM_SAMPLES][SUM_IN], sum_y[SUM_SAMPLES][SUM_OUT];

static sluice_status sum_graph(float scale, sluice_graph **out)
{
    const int64_t batch = SUM_SAMPLES / SUM_RANKS;
    sluice_graph *g;
    sluice_init zero = { SLUICE_INIT_ZERO, 0 };
    SL_TRY(sluice_graph_create(&g));
    *out = g;
    sluice_value x = sluice_input(g, "x", SLUICE_F32, 2, (int64_t[]){ batch, SUM_IN });
    sluice_value y = sluice_input(g, "y", SLUICE_F32, 2, (int64_t[]){ batch, SUM_OUT });
    sluice_value w = sluice_parameter(g, "W", 2, (int64_t[]){ SUM_OUT, SUM_IN }, zero);
    sluice_value b = sluice_parameter(g, "b", 1, (int64_t[]){ SUM_OUT }, zero);
    sluice_value sum = sluice_sum(g, sluice_subtract(g, sluice_linear_with(g, x, w, b, false), y));
    sluice_set_loss(g, scale != 1 ? sluice_scale(g, sum, scale) : sum);
    return SLUICE_OK;
}

static sluice_status sum_train(sluice_engine *e, int rank, float *parameters)
{
    const int first = rank * SUM_SAMPLES / SUM_RANKS;
    sluice_array arrays[] = { { "x", sum_x[first], sizeof sum_x / SUM_RANKS },
                              { "y", sum_y[first], sizeof sum_y / SUM_RANKS } };
    double loss;
    for (int i = 0; i < SUM_STEPS; i++) SL_TRY(sluice_train_step(e, &(sluice_batch){ arrays, 2 }, &loss));
    float w[SUM_OUT * SUM_IN], b[SUM_OUT];
    SL_TRY(sluice_get_parameter(e, "W", w, sizeof w));
    SL_TRY(sluice_get_parameter(e, "b", b, sizeof b));
    if (rank != 0) return SLUICE_OK;
    memcpy(parameters, w, sizeof w);
    memcpy(parameters + SUM_OUT * SUM_IN, b, sizeof b);
    return SLUICE_OK;
}

static sluice_status sum_body(void *user, sluice_world *world)
{
    const sum_case *c = user;
    sluice_options o;
    sluice_graph *g = NULL;
    sluice_engine *e = NULL;
    base_options(&o, SLUICE_SGD, 0.01);
    o.world = world;
    o.stage = c->stage;
    sluice_status st = sum_graph(c->scale, &g);
    if (st == SLUICE_OK) st = sluice_engine_create(g, &o, &e);
    if (st == SLUICE_OK) st = sum_train(e, sluice_world_rank(world), c->parameters);
    sluice_engine_destroy(e);
    sluice_graph_destroy(g);
    return st;
}

/* b is exact in fp32: its gradient is a whole number, 0.01f times it rounds to 1 (or 0.25), and the multiples up to 10
 * are representable. W is not: the sum of 100 products rounds up to 100 times, the ten updates once each. */
static void check_sums(const sum_case *c)
{
    const double mean = c->scale / SUM_RANKS;
    for (int j = 0; j < SUM_OUT; j++) {
        CHECK_NEAR(c->parameters[SUM_OUT * SUM_IN + j], -10.0 * mean, 0);
        for (int i = 0; i < SUM_IN; i++) {
            double sum = 0, size = 0;
            for (int k = 0; k < SUM_SAMPLES; k++) sum += sum_x[k][i], size += fabs(sum_x[k][i]);
            CHECK_NEAR(c->parameters[j * SUM_IN + i], -0.1 * sum * mean, 0.1 * size * mean * (100 + 10) * 0x1p-24);
        }
    }
}

TEST(a_summed_loss_moves_the_bias_by_ten_when_summed_and_by_a_quarter_of_it_when_averaged)
{
    float *parameters = shared_memory((SUM_OUT * SUM_IN + SUM_OUT) * sizeof *parameters);
    REQUIRE(parameters != NULL);
    fill_normal(3, &sum_x[0][0], SUM_SAMPLES * SUM_IN);
    fill_normal(4, &sum_y[0][0], SUM_SAMPLES * SUM_OUT);
    for (int stage = 0; stage <= 3; stage++)
        for (int scale = 1; scale <= 4; scale += 3) {
            sum_case c = { (float)scale, stage, parameters };
            REQUIRE_OK(launch(SUM_RANKS, sum_body, &c));
            check_sums(&c);
        }
    munmap(parameters, (SUM_OUT * SUM_IN + SUM_OUT) * sizeof *parameters);
}

/* ---- three layers of 200 parameters that live on the host ---- */

enum { LEVEL_LAYERS = 3, LEVEL_BYTES = 200 * 4 };

typedef struct level_case {
    int levels, prefetch;
    char weights[65], state[65];
    uint64_t at_once; /* bytes of parameters on the device in the same step, at most */
} level_case;

static sluice_status level_graph(sluice_graph **out)
{
    static const int64_t widths[LEVEL_LAYERS + 1] = { 20, 10, 20, 10 };
    sluice_graph *g;
    char name[16];
    SL_TRY(sluice_graph_create(&g));
    *out = g;
    sluice_value target = SLUICE_NONE, x = SLUICE_NONE;
    for (int i = 0; i < LEVEL_LAYERS; i++) {
        snprintf(name, sizeof name, "h%d", i);
        sluice_layer(g, name);
        if (i == 0) x = sluice_input(g, "x", SLUICE_F32, 2, (int64_t[]){ 4, widths[0] });
        if (i == 0) target = sluice_input(g, "y", SLUICE_F32, 2, (int64_t[]){ 4, widths[LEVEL_LAYERS] });
        sluice_value w = sluice_parameter(g, name, 2, (int64_t[]){ widths[i + 1], widths[i] },
                                          (sluice_init){ SLUICE_INIT_NORMAL, 0.2f });
        x = sluice_linear_with(g, x, w, SLUICE_NONE, false);
    }
    sluice_set_loss(g, sluice_mse(g, x, target));
    return SLUICE_OK;
}

static uint64_t staged_at_once(const sl_plan *p)
{
    uint64_t most = 0;
    for (int step = 0; step < p->step_count; step++) {
        uint64_t live = 0;
        for (int i = 0; i < p->buffer_count; i++) {
            const sl_buffer *b = &p->buffers[i];
            bool weights = b->kind == SL_BUFFER_PARAMETERS && b->tier == SL_TIER_DEVICE;
            if (weights && (b->permanent || (b->first <= step && step <= b->last))) live += b->bytes;
        }
        if (live > most) most = live;
    }
    return most;
}

static sluice_status level_run(level_case *c)
{
    float x[80], y[40];
    double loss;
    sluice_options o;
    sluice_graph *g = NULL;
    sluice_engine *e = NULL;
    base_options(&o, SLUICE_ADAMW, 0.001);
    o.parameters = SLUICE_PLACE_HOST;
    o.levels = c->levels;
    o.prefetch_layers = c->prefetch;
    fill_normal(5, x, 80);
    fill_normal(6, y, 40);
    sluice_array arrays[] = { { "x", x, sizeof x }, { "y", y, sizeof y } };
    sluice_status st = level_graph(&g);
    if (st == SLUICE_OK) st = sluice_engine_create(g, &o, &e);
    for (int i = 0; st == SLUICE_OK && i < 20; i++) st = sluice_train_step(e, &(sluice_batch){ arrays, 2 }, &loss);
    if (st == SLUICE_OK) st = sluice_hash(e, c->weights, c->state);
    if (st == SLUICE_OK) c->at_once = staged_at_once(e->plan);
    sluice_engine_destroy(e);
    sluice_graph_destroy(g);
    return st;
}

TEST(levels_decide_how_much_is_resident_and_change_no_bit)
{
    static const struct {
        int levels, prefetch;
        uint64_t at_once;
    } expected[] = {
        { 3, 0, LEVEL_BYTES },     /* one level of one layer */
        { 3, 1, 2 * LEVEL_BYTES }, /* and the next one on its way */
        { 2, 0, 2 * LEVEL_BYTES }, /* two layers, then one */
        { 2, 1, 3 * LEVEL_BYTES }, { 1, 0, 3 * LEVEL_BYTES }, { 1, 1, 3 * LEVEL_BYTES },
    };
    level_case first = { .levels = 0, .prefetch = -1 };
    REQUIRE_OK(level_run(&first));
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        level_case c = { .levels = expected[i].levels, .prefetch = expected[i].prefetch };
        REQUIRE_OK(level_run(&c));
        CHECK_STR(c.weights, first.weights);
        CHECK_STR(c.state, first.state);
        CHECK_EQ(c.at_once, expected[i].at_once);
    }
}

/* ---- a lopsided model ----
 * 4608-1024-10: 99.8 % of the parameters are in the first matrix. */

enum { BIG_FIRST = 4608 * 1024 + 1024, BIG_PARAMETERS = BIG_FIRST + 1024 * 10 + 10 };

typedef struct big_case {
    const char *config, *rule;
    sluice_event *plan; /* shared */
} big_case;

static void keep_plan(void *user, const sluice_event *e)
{
    if (e->kind == SLUICE_EVENT_PLAN) *(sluice_event *)user = *e;
}

static sluice_status big_body(void *user, sluice_world *world)
{
    const big_case *c = user;
    char set[64];
    sluice_config *config = NULL;
    sluice_job_options o;
    sluice_job_options_init(&o);
    o.event = keep_plan;
    o.user = c->plan;
    o.world = world;
    snprintf(set, sizeof set, "zero_optimization.partition=%s", c->rule);
    sluice_status st = sluice_config_load(c->config, &config);
    if (st == SLUICE_OK) st = sluice_config_set(config, set);
    if (st == SLUICE_OK) st = sluice_job_train(config, &o);
    sluice_config_destroy(config);
    return st;
}

static bool write_big_config(char path[4096])
{
    snprintf(path, 4096, "%s/big.json", test_tmpdir());
    FILE *f = fopen(path, "w");
    if (f == NULL) return false;
    fputs("{\"model\": {\"type\": \"mlp\", \"features\": 4608, \"hidden\": [1024], \"outputs\": 10},\n"
          " \"data\": {\"type\": \"classification\", \"samples\": 4}, \"steps\": 1, \"train_batch_size\": 2,\n"
          " \"optimizer\": {\"type\": \"SGD\", \"params\": {\"lr\": 0.001, \"momentum\": 0.9}}, \"threads\": 1,\n"
          " \"memory\": {\"device\": \"256MiB\", \"host\": \"64MiB\"}, \"zero_optimization\": {\"stage\": 3}}\n",
          f);
    return fclose(f) == 0;
}

TEST(a_lopsided_model_is_even_over_ranks_but_for_whole_layers)
{
    char config[4096];
    sluice_event *plan = shared_memory(sizeof *plan);
    REQUIRE(plan != NULL && write_big_config(config));
    for (int i = 0; i < 3; i++) { /* layer, block, owner */
        memset(plan, 0, sizeof *plan);
        REQUIRE_OK(launch(2, big_body, &(big_case){ config, rule_names[i], plan }));
        CHECK_EQ(plan->parameters, BIG_PARAMETERS);
        bool even = i < 2;
        int64_t most = (int64_t)(plan->state_parameters / 4), fair = (BIG_PARAMETERS + 1) / 2;
        CHECK(!even || (most >= fair && most <= fair + 1024));
        CHECK(even || most == BIG_FIRST);
        CHECK_EQ(plan->state_optimizer, 4 * most); /* momentum */
        printf("%s: the fuller of two ranks keeps %lld of %d parameters\n", rule_names[i], (long long)most,
               BIG_PARAMETERS);
    }
    munmap(plan, sizeof *plan);
}

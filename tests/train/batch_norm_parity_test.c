/* batch_norm_parity_test.c: ten steps of a small network with batch norm give the losses and the running statistics that
 * PyTorch gives (tests/parity/record_batch_norm.py): on one rank, and on ranks that divide each micro-batch among themselves and
 * share its statistics, as PyTorch's SyncBatchNorm does. */
#include "support/parity.h"

enum { FEATURES = 6, CHANNELS = 12, CLASSES = 3, ROWS = 8, MICRO = 2 };

static sluice_value normed(sluice_graph *g, sluice_value x, const char *name, float epsilon, float momentum,
                           sluice_value residual, bool shared)
{
    sluice_batch_norm_options o;
    sluice_batch_norm_options_init(&o);
    o.all_ranks = shared;
    o.epsilon = epsilon;
    o.momentum = momentum;
    o.relu = true;
    o.residual = residual;
    return sluice_batch_norm(g, x, name, &o);
}

/* Each rank has its share of a micro-batch. */
static void build(sluice_graph *g, int ranks)
{
    const bool shared = ranks > 1;
    sluice_value x = sluice_input(g, "x", SLUICE_F32, 2, (int64_t[]){ ROWS / ranks, FEATURES });
    sluice_value target = sluice_input(g, "target", SLUICE_I32, 1, (int64_t[]){ ROWS / ranks });
    sluice_layer(g, "first");
    sluice_value h = normed(g, sluice_linear(g, x, CHANNELS, "fc1"), "norm1", 1e-5f, 0.1f, SLUICE_NONE, shared);
    sluice_layer(g, "second");
    sluice_value y = normed(g, sluice_linear(g, h, CHANNELS, "fc2"), "norm2", 1e-3f, 0.3f, h, shared);
    sluice_layer(g, "head");
    sluice_set_loss(g, sluice_cross_entropy(g, sluice_linear(g, y, CLASSES, "fc3"), target, -1));
}

typedef struct rows {
    float x[ROWS * FEATURES];
    int32_t target[ROWS];
    sluice_array arrays[2];
    sluice_batch batch;
} rows;

static void make_rows(uint32_t number, rows *r)
{
    uint32_t state = lcg(number);
    for (int i = 0; i < ROWS; i++) {
        for (int k = 0; k < FEATURES; k++) {
            state = lcg(state);
            r->x[i * FEATURES + k] = (float)(((state >> 8) / 16777216.0 - 0.5) * 4.0 + 1.0);
        }
        state = lcg(state);
        r->target[i] = (int32_t)((state >> 8) % CLASSES);
    }
    r->arrays[0] = (sluice_array){ "x", r->x, sizeof r->x };
    r->arrays[1] = (sluice_array){ "target", r->target, sizeof r->target };
    r->batch = (sluice_batch){ r->arrays, 2 };
}

/* The share of a rank. */
static void take_share(rows *r, int rank, int ranks)
{
    const int count = ROWS / ranks;
    r->arrays[0] = (sluice_array){ "x", r->x + rank * count * FEATURES, (size_t)(count * FEATURES) * sizeof *r->x };
    r->arrays[1] = (sluice_array){ "target", r->target + rank * count, (size_t)count * sizeof *r->target };
}

static void train(sluice_engine *e, const json_t *losses, int rank, int ranks)
{
    rows r[MICRO];
    for (uint32_t step = 0; step < (uint32_t)json_array_size(losses); step++) {
        double loss, expected = json_real_value(json_array_get(losses, step));
        for (uint32_t m = 0; m < MICRO; m++) {
            make_rows(1 + step * MICRO + m, &r[m]);
            take_share(&r[m], rank, ranks);
        }
        REQUIRE_OK(sluice_train_step(e, (sluice_batch[]){ r[0].batch, r[1].batch }, &loss));
        CHECK_NEAR(loss, expected, 1e-4 * expected);
    }
}

static void check_running(sluice_engine *e, const json_t *buffers)
{
    const char *name;
    json_t *expected;
    int seen = 0;
    json_object_foreach((json_t *)buffers, name, expected)
    {
        float values[CHANNELS];
        size_t count = json_array_size(expected);
        REQUIRE(count <= CHANNELS);
        REQUIRE_OK(sluice_get_parameter(e, name, values, count * sizeof *values));
        for (size_t i = 0; i < count; i++) {
            double want = json_real_value(json_array_get(expected, i));
            if (!(fabs((double)values[i] - want) <= 1e-5 * (1 + fabs(want))))
                test_fail(__FILE__, __LINE__, "%s [%zu] = %.9g, expected %.9g", name, i, (double)values[i], want);
        }
        seen++;
    }
    CHECK_EQ(seen, 6);
}

static void compare(const sluice_options *options, int rank, int ranks)
{
    sluice_graph *g = NULL;
    sluice_engine *e = NULL;
    rows r;
    double loss;
    json_t *record = json_load_file(SLUICE_SOURCE_DIR "/tests/parity/batch_norm.json", 0, NULL);
    REQUIRE(record != NULL);
    REQUIRE_OK(sluice_graph_create(&g));
    build(g, ranks);
    REQUIRE_OK(sluice_engine_create(g, options, &e));
    REQUIRE_OK(set_first_values(e, g));
    train(e, json_object_get(record, "losses"), rank, ranks);
    check_running(e, json_object_get(record, "buffers"));
    make_rows(1000, &r);
    take_share(&r, rank, ranks);
    REQUIRE_OK(sluice_evaluate(e, &r.batch, &loss));
    if (ranks == 1) CHECK_NEAR(loss, json_real_value(json_object_get(record, "evaluated")), 1e-4);
    sluice_engine_destroy(e);
    sluice_graph_destroy(g);
    json_decref(record);
}

static void set_options(sluice_options *o)
{
    sluice_options_init(o);
    sluice_optimizer_init(&o->optimizer, SLUICE_SGD);
    o->optimizer.lr = 0.05;
    o->optimizer.momentum = 0.9;
    o->accumulation_steps = MICRO;
    o->evaluation = true;
    o->device_bytes = o->host_bytes = (uint64_t)256 << 20;
}

TEST(batch_norm_and_its_running_statistics_follow_pytorch)
{
    sluice_options o;
    set_options(&o);
    compare(&o, 0, 1);
}

TEST(batch_norm_follows_pytorch_with_everything_offloaded)
{
    sluice_options o;
    set_options(&o);
    o.parameters = o.optimizer_state = SLUICE_PLACE_HOST;
    o.activations = SLUICE_ACTIVATIONS_RECOMPUTE;
    o.offload_checkpoints = true;
    compare(&o, 0, 1);
}

static sluice_status compare_as_rank(void *user, sluice_world *world)
{
    sluice_options o = *(const sluice_options *)user;
    o.world = world;
    compare(&o, sluice_world_rank(world), sluice_world_size(world));
    return test_failures == 0 ? SLUICE_OK : SLUICE_ERR_FAILED;
}

TEST(batch_norm_over_ranks_follows_pytorch_over_their_batches_together)
{
    static const int stages[] = { 0, 1, 3 };
    for (int ranks = 2; ranks <= 4; ranks *= 2)
        for (int i = 0; i < 3; i++) {
            sluice_options o;
            sluice_launch_options launch;
            sluice_launch_options_init(&launch);
            launch.ranks = ranks;
            set_options(&o);
            o.stage = stages[i];
            o.activations = i == 1 ? SLUICE_ACTIVATIONS_RECOMPUTE : SLUICE_ACTIVATIONS_KEEP;
            REQUIRE_OK(sluice_launch(&launch, compare_as_rank, &o));
        }
}

/* batch_growth_test.c: the rule by which batches grow, counted step by step, and that a step of fewer micro-batches than the
 * plan is made for has the bits of one that is planned so. */
#include "train/batch_growth.h"

#include "core/rng.h"
#include "test.h"
#include "train/engine.h"

TEST(every_step_has_the_size_and_the_place_that_counting_step_by_step_gives)
{
    static const sl_batch_growth rules[] = {
        { 5, 2, 1, 8 }, { 1, 3, 2, 54 }, { 7, 2, 4, 4 }, { 0, 2, 3, 3 }, { 2, 10, 1, 1000 },
    };
    for (size_t k = 0; k < sizeof rules / sizeof rules[0]; k++) {
        const sl_batch_growth *g = &rules[k];
        uint64_t sum = 0;
        int64_t micro = g->first;
        for (uint64_t step = 0; step < 60; step++) {
            if (g->every > 0 && step > 0 && step % (uint64_t)g->every == 0 && micro < g->most) micro *= g->factor;
            CHECK_EQ(sl_growth_at(g, step), micro);
            CHECK_EQ(sl_growth_before(g, step), sum);
            CHECK_EQ(sl_growth_steps(g, (double)sum), step);
            CHECK_EQ(sl_growth_steps(g, (double)sum + 0.5), step + 1);
            sum += (uint64_t)micro;
        }
    }
}

TEST(the_largest_batch_is_the_largest_power_within_the_limit)
{
    CHECK_EQ(sl_growth_most(2, 2, 8, 70), 8);
    CHECK_EQ(sl_growth_most(2, 2, 8, 64), 8);
    CHECK_EQ(sl_growth_most(2, 2, 8, 63), 4);
    CHECK_EQ(sl_growth_most(3, 10, 1, 3), 3);
    CHECK_EQ(sl_growth_most(1, 2, 1, 1000000000000), 549755813888);
}

/* ---- the engine ---- */

enum { ROWS = 6, IN = 7, OUT = 3, MOST = 4, STEPS = 6 };

typedef struct rig {
    sluice_graph *graph;
    sluice_engine *engine;
} rig;

static void open_rig(rig *r, int accumulation)
{
    sluice_options o;
    sluice_options_init(&o);
    sluice_optimizer_init(&o.optimizer, SLUICE_SGD);
    o.optimizer.lr = 0.1;
    o.gradient_clipping = 0.3;
    o.accumulation_steps = accumulation;
    o.threads = 1;
    o.precision = SLUICE_BF16;
    o.device_bytes = o.host_bytes = (uint64_t)1 << 26;
    REQUIRE_OK(sluice_graph_create(&r->graph));
    sluice_value x = sluice_input(r->graph, "x", SLUICE_F32, 2, (int64_t[]){ ROWS, IN });
    sluice_value t = sluice_input(r->graph, "target", SLUICE_F32, 2, (int64_t[]){ ROWS, OUT });
    sluice_set_loss(r->graph, sluice_mse(r->graph, sluice_linear(r->graph, x, OUT, "fc"), t));
    REQUIRE_OK(sluice_engine_create(r->graph, &o, &r->engine));
}

static void close_rig(rig *r)
{
    sluice_engine_destroy(r->engine);
    sluice_graph_destroy(r->graph);
}

/* One step on micro-batches first .. first + count - 1 of an endless sequence. */
static double train_step(sluice_engine *e, uint64_t first, int count)
{
    float x[MOST][ROWS * IN], t[MOST][ROWS * OUT];
    sluice_array arrays[MOST][2];
    sluice_batch batches[MOST];
    double loss = (double)NAN;
    for (int m = 0; m < count; m++) {
        sl_rng random = sl_rng_stream(5, SL_RNG_SHUFFLE, first + (uint64_t)m, 0, 0);
        for (int i = 0; i < ROWS * IN; i++) x[m][i] = (float)sl_rng_permute(&random, (uint64_t)i, 1000) / 500 - 1;
        for (int i = 0; i < ROWS * OUT; i++) t[m][i] = (float)sl_rng_permute(&random, 500 + (uint64_t)i, 1000) / 250;
        arrays[m][0] = (sluice_array){ "x", x[m], sizeof x[m] };
        arrays[m][1] = (sluice_array){ "target", t[m], sizeof t[m] };
        batches[m] = (sluice_batch){ arrays[m], 2 };
    }
    if (sluice_train_step(e, batches, &loss) != SLUICE_OK) test_fail(__FILE__, __LINE__, "%s", sluice_error());
    return loss;
}

static void read_weights(sluice_engine *e, float out[OUT * IN + OUT])
{
    CHECK(sluice_get_parameter(e, "fc.weight", out, OUT * IN * sizeof *out) == SLUICE_OK);
    CHECK(sluice_get_parameter(e, "fc.bias", out + OUT * IN, OUT * sizeof *out) == SLUICE_OK);
}

TEST(a_step_of_fewer_micro_batches_than_planned_has_the_bits_of_one_that_is_planned_so)
{
    static const int sizes[STEPS] = { 1, 1, 2, 2, 4, 1 };
    rig largest;
    uint64_t place = 0;
    open_rig(&largest, MOST);
    for (int s = 0; s < STEPS; s++) {
        rig planned;
        float weights[OUT * IN + OUT], found[OUT * IN + OUT];
        open_rig(&planned, sizes[s]);
        read_weights(largest.engine, weights);
        CHECK(sluice_set_parameter(planned.engine, "fc.weight", weights, OUT * IN * sizeof *weights) == SLUICE_OK);
        CHECK(sluice_set_parameter(planned.engine, "fc.bias", weights + OUT * IN, OUT * sizeof *weights) == SLUICE_OK);
        sl_engine_set_accumulation(largest.engine, sizes[s]);
        double a = train_step(largest.engine, place, sizes[s]), b = train_step(planned.engine, place, sizes[s]);
        CHECK_NEAR(a, b, 0);
        CHECK_NEAR(sluice_gradient_norm(largest.engine), sluice_gradient_norm(planned.engine), 0);
        read_weights(largest.engine, weights);
        read_weights(planned.engine, found);
        CHECK_EQ(memcmp(weights, found, sizeof weights), 0);
        place += (uint64_t)sizes[s];
        close_rig(&planned);
    }
    close_rig(&largest);
}

/* fill_test.c: the first values of weights: what they are, whoever makes them. */
#include "core/hash.h"
#include "core/rng.h"
#include "test.h"
#include "train/engine.h"

/* Parameters of every kind of first value; one is longer than a task, and one a little shorter than a batch of lanes. */
static sluice_graph *make_graph(void)
{
    sluice_graph *g;
    if (sluice_graph_create(&g) != SLUICE_OK) return NULL;
    sluice_value x = sluice_input(g, "x", SLUICE_F32, 2, (int64_t[]){ 2, 600 });
    sluice_value large =
        sluice_parameter(g, "large", 2, (int64_t[]){ 601, 600 }, (sluice_init){ SLUICE_INIT_NORMAL, 0.02f });
    sluice_value bias = sluice_parameter(g, "bias", 1, (int64_t[]){ 601 }, (sluice_init){ SLUICE_INIT_UNIFORM, 0.5f });
    sluice_value one = sluice_parameter(g, "one", 1, (int64_t[]){ 601 }, (sluice_init){ SLUICE_INIT_ONE, 0 });
    sluice_value small = sluice_parameter(g, "small", 1, (int64_t[]){ 601 }, (sluice_init){ SLUICE_INIT_NORMAL, 3 });
    sluice_value y = sluice_linear_with(g, x, large, bias, false);
    sluice_set_loss(g, sluice_mean(g, sluice_multiply(g, sluice_multiply(g, y, one), small)));
    return g;
}

static float expected_value(const sl_parameter *p, uint64_t seed, uint64_t element)
{
    sl_rng r = sl_rng_stream(seed, SL_RNG_INIT, sl_hash_text(p->name), 0, 0);
    switch (p->init.kind) {
    case SLUICE_INIT_NORMAL:
        return p->init.scale * sl_rng_normal(&r, element);
    case SLUICE_INIT_UNIFORM:
        return p->init.scale * (2.0f * sl_rng_uniform(&r, element) - 1.0f);
    default:
        return p->init.kind == SLUICE_INIT_ONE ? 1.0f : 0.0f;
    }
}

static int64_t wrong_values(sluice_engine *e, const sl_parameter *p, uint64_t seed)
{
    float *values = malloc((size_t)p->count * sizeof *values);
    int64_t wrong = 0;
    if (values == NULL || sluice_get_parameter(e, p->name, values, (size_t)p->count * sizeof *values) != SLUICE_OK) {
        free(values);
        return -1;
    }
    for (int64_t i = 0; i < p->count; i++) {
        float expected = expected_value(p, seed, (uint64_t)i);
        wrong += memcmp(&expected, &values[i], sizeof expected) != 0;
    }
    free(values);
    return wrong;
}

TEST(first_values_depend_on_seed_name_and_element_and_on_no_thread)
{
    for (int threads = 1; threads <= 7; threads += 3)
        for (int bf16 = 0; bf16 < 2; bf16++) {
            sluice_graph *g = make_graph();
            sluice_engine *e;
            sluice_options o;
            REQUIRE(g != NULL);
            sluice_options_init(&o);
            o.threads = threads;
            o.seed = 21;
            o.guard = true;
            o.precision = bf16 ? SLUICE_BF16 : SLUICE_F32;
            o.optimizer_state = threads == 4 ? SLUICE_PLACE_HOST : SLUICE_PLACE_DEVICE;
            REQUIRE_OK(sluice_engine_create(g, &o, &e));
            for (int i = 0; i < g->parameter_count; i++) CHECK_EQ(wrong_values(e, &g->parameters[i], 21), 0);
            sluice_engine_destroy(e);
            sluice_graph_destroy(g);
        }
}

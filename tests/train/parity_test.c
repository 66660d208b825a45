/* parity_test.c: fifty steps of a small GPT give the losses that PyTorch gives. tests/parity/README.md describes the
 * case; the formulas below are those of tests/parity/record_gpt.py. */
#include <jansson.h>

#include "model/model.h"
#include "sluice.h"
#include "test.h"

enum { LAYERS = 2, HEADS = 4, WIDTH = 64, CONTEXT = 32, VOCABULARY = 65, BATCH = 4, STEPS = 50 };

static uint32_t lcg(uint32_t state)
{
    return state * 1664525u + 1013904223u;
}

static uint32_t fnv1a(const char *text)
{
    uint32_t state = 2166136261u;
    for (; *text != '\0'; text++) state = (state ^ (unsigned char)*text) * 16777619u;
    return state;
}

static void first_values(const char *name, float *out, int64_t count)
{
    size_t length = strlen(name);
    bool norm_weight = strstr(name, "ln_") != NULL && strcmp(name + length - 7, ".weight") == 0;
    double centre = norm_weight ? 1.0 : 0.0;
    uint32_t state = fnv1a(name);
    for (int64_t i = 0; i < count; i++) {
        state = lcg(state);
        out[i] = (float)(centre + ((state >> 8) / 16777216.0 - 0.5) * 0.1);
    }
}

static void batch_tokens(uint32_t step, int32_t *tokens, int32_t *targets)
{
    uint32_t state = lcg(step);
    for (int r = 0; r < BATCH; r++) {
        state = lcg(state);
        int32_t token = (int32_t)((state >> 8) % VOCABULARY);
        for (int t = 0; t < CONTEXT; t++) {
            state = lcg(state);
            tokens[r * CONTEXT + t] = token;
            token = (token * 5 + 3 + ((state >> 8) % 4 == 0)) % VOCABULARY;
            targets[r * CONTEXT + t] = token;
        }
    }
}

static sluice_status build(sluice_graph *g)
{
    sl_model_info info;
    sl_model_options o = {
        .type = "gpt2", .batch = BATCH, .layers = LAYERS, .heads = HEADS, .width = WIDTH, .context = CONTEXT
    };
    o.vocabulary = VOCABULARY;
    return sl_model_build(g, &o, &info);
}

static sluice_status set_first_values(sluice_engine *e, const sluice_graph *g)
{
    for (int i = 0; i < g->parameter_count; i++) {
        const sl_parameter *p = &g->parameters[i];
        float *values = malloc((size_t)p->count * sizeof *values);
        if (values == NULL) return SLUICE_ERR_NO_MEMORY;
        first_values(p->name, values, p->count);
        sluice_status st = sluice_set_parameter(e, p->name, values, (size_t)p->count * sizeof *values);
        free(values);
        if (st != SLUICE_OK) return st;
    }
    return SLUICE_OK;
}

static void run_steps(sluice_engine *e, const json_t *losses, const json_t *norms)
{
    int32_t tokens[BATCH * CONTEXT], targets[BATCH * CONTEXT];
    sluice_array arrays[] = { { "tokens", tokens, sizeof tokens }, { "targets", targets, sizeof targets } };
    sluice_batch batch = { arrays, 2 };
    for (uint32_t step = 1; step <= STEPS; step++) {
        double loss, expected = json_real_value(json_array_get(losses, step - 1));
        double expected_norm = json_real_value(json_array_get(norms, step - 1));
        batch_tokens(step, tokens, targets);
        REQUIRE_OK(sluice_train_step(e, &batch, &loss));
        CHECK_NEAR(loss, expected, 1e-4 * expected);
        CHECK_NEAR(sluice_gradient_norm(e), expected_norm, 1e-3 * expected_norm);
    }
}

/* The settings of the recorded run; what else is in `o` must not matter. */
static void set_recorded_options(sluice_options *o)
{
    sluice_optimizer_init(&o->optimizer, SLUICE_ADAMW);
    o->optimizer.lr = 1e-3;
    o->optimizer.beta1 = 0.9;
    o->optimizer.beta2 = 0.95;
    o->optimizer.epsilon = 1e-8;
    o->optimizer.weight_decay = 0.1;
    o->gradient_clipping = 1.0;
    o->device_bytes = o->host_bytes = (uint64_t)256 << 20;
}

static void train_and_compare(const sluice_options *o, const json_t *record)
{
    sluice_graph *g = NULL;
    sluice_engine *e = NULL;
    const json_t *losses = json_object_get(record, "losses"), *norms = json_object_get(record, "gradient_norms");
    REQUIRE(json_array_size(losses) == STEPS && json_array_size(norms) == STEPS);
    REQUIRE_OK(sluice_graph_create(&g));
    REQUIRE_OK(build(g));
    REQUIRE_OK(sluice_engine_create(g, o, &e));
    CHECK_EQ(sl_graph_parameter_elements(g), json_integer_value(json_object_get(record, "parameters")));
    REQUIRE_OK(set_first_values(e, g));
    run_steps(e, losses, norms);
    sluice_engine_destroy(e);
    sluice_graph_destroy(g);
}

TEST(small_gpt_follows_pytorch_for_fifty_steps)
{
    sluice_options o;
    json_t *record = json_load_file(SLUICE_SOURCE_DIR "/tests/parity/gpt_losses.json", 0, NULL);
    REQUIRE(record != NULL);
    sluice_options_init(&o);
    set_recorded_options(&o);
    train_and_compare(&o, record);
    json_decref(record);
}

TEST(small_gpt_follows_pytorch_with_everything_offloaded)
{
    sluice_options o;
    json_t *record = json_load_file(SLUICE_SOURCE_DIR "/tests/parity/gpt_losses.json", 0, NULL);
    REQUIRE(record != NULL);
    sluice_options_init(&o);
    set_recorded_options(&o);
    o.parameters = o.optimizer_state = SLUICE_PLACE_HOST;
    o.activations = SLUICE_ACTIVATIONS_RECOMPUTE;
    o.offload_checkpoints = true;
    train_and_compare(&o, record);
    json_decref(record);
}

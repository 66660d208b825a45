/* parity.h: what the runs that are compared with PyTorch's share: first weights and tokens, as tests/parity/README.md
 * describes them and tests/parity/record_gpt.py computes them, and the comparison itself. */
#ifndef SLUICE_TEST_PARITY_H
#define SLUICE_TEST_PARITY_H

#include <jansson.h>

#include "model/model.h"
#include "sluice.h"
#include "test.h"

enum { LAYERS = 2, HEADS = 4, WIDTH = 64, CONTEXT = 32, VOCABULARY = 65, BATCH = 4 };

static inline uint32_t lcg(uint32_t state)
{
    return state * 1664525u + 1013904223u;
}

static inline uint32_t fnv1a(const char *text)
{
    uint32_t state = 2166136261u;
    for (; *text != '\0'; text++) state = (state ^ (unsigned char)*text) * 16777619u;
    return state;
}

static inline void first_values(const char *name, float *out, int64_t count)
{
    size_t length = strlen(name);
    bool norm = strstr(name, "ln_") != NULL || strstr(name, "norm") != NULL;
    double centre = norm && strcmp(name + length - 7, ".weight") == 0 ? 1.0 : 0.0;
    uint32_t state = fnv1a(name);
    for (int64_t i = 0; i < count; i++) {
        state = lcg(state);
        out[i] = (float)(centre + ((state >> 8) / 16777216.0 - 0.5) * 0.1);
    }
}

static inline void batch_tokens(uint32_t step, int32_t *tokens, int32_t *targets)
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

static inline sluice_status set_first_values(sluice_engine *e, const sluice_graph *g)
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

static inline void run_steps(sluice_engine *e, const json_t *losses, const json_t *norms)
{
    int32_t tokens[BATCH * CONTEXT], targets[BATCH * CONTEXT];
    sluice_array arrays[] = { { "tokens", tokens, sizeof tokens }, { "targets", targets, sizeof targets } };
    sluice_batch batch = { arrays, 2 };
    for (uint32_t step = 1; step <= (uint32_t)json_array_size(losses); step++) {
        double loss, expected = json_real_value(json_array_get(losses, step - 1));
        double expected_norm = json_real_value(json_array_get(norms, step - 1));
        batch_tokens(step, tokens, targets);
        REQUIRE_OK(sluice_train_step(e, &batch, &loss));
        CHECK_NEAR(loss, expected, 1e-4 * expected);
        CHECK_NEAR(sluice_gradient_norm(e), expected_norm, 1e-3 * expected_norm);
    }
}

/* The settings of the recorded run; what else is in `o` must not matter. */
static inline void set_recorded_options(sluice_options *o)
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

/* `record` has the numbers of one run of this model. */
static inline void train_and_compare(const sluice_options *o, const sl_model_options *m, const json_t *record)
{
    sluice_graph *g = NULL;
    sluice_engine *e = NULL;
    sl_model_info info;
    const json_t *losses = json_object_get(record, "losses"), *norms = json_object_get(record, "gradient_norms");
    REQUIRE(json_array_size(losses) >= 20 && json_array_size(norms) == json_array_size(losses));
    REQUIRE_OK(sluice_graph_create(&g));
    REQUIRE_OK(sl_model_build(g, m, &info));
    REQUIRE_OK(sluice_engine_create(g, o, &e));
    CHECK_EQ(sl_graph_parameter_elements(g), json_integer_value(json_object_get(record, "parameters")));
    REQUIRE_OK(set_first_values(e, g));
    run_steps(e, losses, norms);
    sluice_engine_destroy(e);
    sluice_graph_destroy(g);
}

#endif

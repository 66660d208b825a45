/* profile_test.c: the numbers of a profile are those of the plan it is of. */
#include "report/profile.h"

#include <jansson.h>

#include "support/planned.h"
#include "test.h"

#define SEED 4212 /* a transformer of five blocks with a tied embedding */

/* Plans a model, offloaded so that all streams of one rank have work, and gives its profile; both are the caller's. */
static json_t *make_profile(planned *fx, bool offloaded, int accumulation)
{
    sl_text text = { .data = NULL };
    json_error_t error;
    memset(fx, 0, sizeof *fx);
    plan_options_default(&fx->options);
    fx->options.accumulation = accumulation;
    if (offloaded) {
        fx->options.parameters = fx->options.state = SLUICE_PLACE_HOST;
        fx->options.activations = SLUICE_ACTIVATIONS_OFFLOAD;
    }
    if (plan_model(fx, SEED) != SLUICE_OK) return NULL;
    const sl_profile_source s = {
        .plan = fx->plan, .device = "a \"device\"", .configuration = "{\"steps\": 3}", .threads = 1
    };
    json_t *root = NULL;
    if (sl_profile_write(&s, &text) == SLUICE_OK)
        root = json_loadb(text.data, text.bytes, JSON_REJECT_DUPLICATES, &error);
    if (root == NULL) test_fail(__FILE__, __LINE__, "no profile: %s", text.data != NULL ? error.text : sluice_error());
    sl_text_free(&text);
    return root;
}

static double number(const json_t *o, const char *key)
{
    return json_number_value(json_object_get(o, key));
}

static double predicted(const json_t *o, const char *key)
{
    return number(json_object_get(o, key), "predicted");
}

static double at(const json_t *list, size_t i)
{
    return json_number_value(json_array_get(list, i));
}

TEST(time_in_which_compute_stands_still_is_the_step_less_compute)
{
    for (int k = 0; k < 4; k++) {
        planned fx;
        json_t *p = make_profile(&fx, k % 2 == 1, 1 + k / 2), *w;
        REQUIRE(p != NULL);
        size_t i;
        const json_t *waits = json_object_get(json_object_get(p, "waits"), "predicted");
        double still = number(waits, "rest_seconds"), step = predicted(p, "step_seconds");
        json_array_foreach(json_object_get(waits, "list"), i, w) still += at(w, 3) > 0 ? at(w, 1) / 1e6 : 0;
        double busy = predicted(json_array_get(json_object_get(p, "streams"), 0), "busy_seconds");
        CHECK(step > 0 && busy > 0);
        CHECK_NEAR(still, step - busy, 0.05 * step);
        CHECK_NEAR(step, fx.plan->totals.step_seconds, 0.05 * step);
        if (k % 2 == 1) CHECK(still > 0);
        json_decref(p);
        planned_free(&fx);
    }
}

/* The live bytes of the largest moment, and of the tenants who are there then. */
static double fullest(const json_t *tier, double *of_tenants)
{
    size_t i, best = 0, k;
    json_t *m, *t;
    double most = -1;
    json_array_foreach(json_object_get(tier, "moments"), i, m)
    {
        double live = 0;
        for (k = 2; k < json_array_size(m); k++) live += at(m, k);
        if (live > most) most = live, best = i;
    }
    double step = at(json_array_get(json_object_get(tier, "moments"), best), 1);
    *of_tenants = 0;
    json_array_foreach(json_object_get(tier, "tenants"), i, t) if (at(t, 3) <= step && step <= at(t, 4)) *of_tenants +=
        at(t, 2);
    return most;
}

TEST(the_fullest_moment_has_the_bytes_of_the_plans_peak_and_names_its_tenants)
{
    enum { MANY = 24 }; /* micro-batches: more moments than a chart shows */
    planned fx;
    json_t *p = make_profile(&fx, true, MANY), *tier;
    size_t t;
    REQUIRE(p != NULL);
    CHECK(sl_trace_length(fx.plan, MANY) > 2000);
    CHECK_EQ(json_array_size(json_object_get(p, "memory")), 2);
    json_array_foreach(json_object_get(p, "memory"), t, tier)
    {
        CHECK(json_array_size(json_object_get(tier, "moments")) <= 600);
        double tenants, most = fullest(tier, &tenants);
        CHECK_NEAR(most, (double)(fx.plan->totals.peak[t] - fx.plan->totals.fragmentation[t]), 0);
        CHECK_NEAR(number(tier, "peak_bytes"), (double)fx.plan->totals.peak[t], 0);
        if (number(tier, "tenants_left_out") < 1) CHECK_NEAR(tenants, most, 0);
    }
    json_decref(p);
    planned_free(&fx);
}

TEST(layers_of_a_profile_add_up_to_the_model)
{
    planned fx;
    json_t *p = make_profile(&fx, true, 1), *layer;
    size_t i;
    double parameters = 0, forward = 0;
    REQUIRE(p != NULL);
    json_array_foreach(json_object_get(p, "layers"), i, layer)
    {
        parameters += number(layer, "parameters");
        forward += predicted(layer, "forward");
    }
    CHECK_EQ(json_array_size(json_object_get(p, "layers")), fx.graph->layer_count);
    CHECK_NEAR(parameters, (double)sl_graph_parameter_elements(fx.graph), 0);
    CHECK(forward > 0);
    CHECK_STR(json_string_value(json_object_get(p, "device")), "a \"device\"");
    CHECK_NEAR(number(json_object_get(p, "configuration"), "steps"), 3, 0);
    json_decref(p);
    planned_free(&fx);
}

TEST(operations_of_a_stream_follow_each_other_and_are_all_told)
{
    planned fx;
    json_t *p = make_profile(&fx, true, 1), *stream, *m;
    size_t i, k;
    double told = 0;
    REQUIRE(p != NULL);
    json_array_foreach(json_object_get(p, "streams"), i, stream)
    {
        double end = 0;
        json_array_foreach(json_object_get(stream, "predicted"), k, m)
        {
            CHECK(at(m, 0) >= end - 1e-3);
            CHECK(at(m, 2) >= 0 && at(m, 2) < (double)json_array_size(json_object_get(p, "names")));
            end = at(m, 0) + at(m, 1);
            told += json_array_size(m) > 4 ? at(m, 4) : 1;
        }
    }
    CHECK_NEAR(told, (double)sl_trace_length(fx.plan, 1), 0);
    json_decref(p);
    planned_free(&fx);
}

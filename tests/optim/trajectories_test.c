/* trajectories_test.c: twenty steps of every optimizer against the recorded ones of PyTorch and DeepSpeed
 * (tests/parity/record_optim.py). */
#include <jansson.h>

#include "support/optim_fixture.h"

#define TOLERANCE 1e-6

static const struct {
    const char *key;
    size_t offset;
} numbers[] = {
    { "lr", offsetof(sluice_optimizer, lr) },
    { "weight_decay", offsetof(sluice_optimizer, weight_decay) },
    { "beta1", offsetof(sluice_optimizer, beta1) },
    { "beta2", offsetof(sluice_optimizer, beta2) },
    { "epsilon", offsetof(sluice_optimizer, epsilon) },
    { "momentum", offsetof(sluice_optimizer, momentum) },
    { "dampening", offsetof(sluice_optimizer, dampening) },
    { "trust", offsetof(sluice_optimizer, trust) },
    { "min_trust", offsetof(sluice_optimizer, min_trust) },
    { "max_trust", offsetof(sluice_optimizer, max_trust) },
};

static json_t *load_record(void)
{
    json_error_t error;
    json_t *root = json_load_file(SLUICE_SOURCE_DIR "/tests/parity/optim.json", 0, &error);
    if (root == NULL) test_fail(__FILE__, __LINE__, "optim.json: %s at line %d", error.text, error.line);
    return root;
}

static void read_options(json_t *c, sl_optim_options *o, sl_group_options *groups)
{
    const char *kind = json_string_value(json_object_get(c, "kind"));
    json_t *fields = json_object_get(c, "fields"), *list = json_object_get(c, "groups");
    for (int k = 0; k < sl_optim_count(); k++)
        if (strcmp(kind, sl_optim_name((sluice_optimizer_kind)k)) == 0)
            sluice_optimizer_init(&o->optimizer, (sluice_optimizer_kind)k);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        json_t *v = json_object_get(fields, numbers[i].key);
        if (v != NULL) *(double *)((char *)&o->optimizer + numbers[i].offset) = json_number_value(v);
    }
    o->optimizer.nesterov = json_is_true(json_object_get(fields, "nesterov"));
    o->optimizer.amsgrad = json_is_true(json_object_get(fields, "amsgrad"));
    o->optimizer.centered = json_is_true(json_object_get(fields, "centered"));
    o->clip = json_number_value(json_object_get(c, "clip"));
    o->groups = groups;
    o->group_count = (int)json_array_size(list);
    for (int i = 0; i < o->group_count; i++) {
        json_t *g = json_array_get(list, (size_t)i);
        groups[i] = (sl_group_options){ json_string_value(json_object_get(g, "pattern")),
                                        json_number_value(json_object_get(g, "lr_scale")),
                                        json_number_value(json_object_get(g, "weight_decay")) };
    }
}

/* The recorded samples of one tensor, each within the tolerance relative to the tensor's largest recorded magnitude or
 * 1e-6 of itself. */
static void compare_samples(const char *what, const float *x, int64_t count, json_t *samples)
{
    size_t k = json_array_size(samples);
    double largest = 0.0;
    for (size_t j = 0; j < k; j++) largest = fmax(largest, fabs(json_number_value(json_array_get(samples, j))));
    for (size_t j = 0; j < k; j++) {
        int64_t i = k > 1 ? (int64_t)j * (count - 1) / (int64_t)(k - 1) : 0;
        double expected = json_number_value(json_array_get(samples, j));
        if (!(fabs((double)x[i] - expected) <= TOLERANCE * largest))
            test_fail(__FILE__, __LINE__, "%s[%lld] = %.9g, expected %.9g", what, (long long)i, (double)x[i], expected);
    }
}

/* Every element counts: their product with a hashed vector, within the tolerance relative to the tensor's norm. */
static void compare_projection(const char *what, const float *x, int64_t count, double expected)
{
    double sum = 0.0, square = 0.0;
    for (int64_t i = 0; i < count; i++) {
        sum += (double)x[i] * (double)hashed(77, (uint32_t)i);
        square += (double)x[i] * (double)x[i];
    }
    if (!(fabs(sum - expected) <= TOLERANCE * sqrt(square)))
        test_fail(__FILE__, __LINE__, "%s: projection %.9g, expected %.9g", what, sum, expected);
}

static void compare_weights(const trainer *t, const char *name, json_t *samples)
{
    for (int p = 0; p < t->graph->parameter_count; p++) {
        const sl_parameter *q = &t->graph->parameters[p];
        char what[128];
        snprintf(what, sizeof what, "%s: %s", name, q->name);
        compare_samples(what, t->weights[q->layer] + q->offset, q->count, json_array_get(samples, (size_t)p));
    }
}

static void compare_end(const trainer *t, const char *name, json_t *c)
{
    compare_weights(t, name, json_object_get(c, "last"));
    for (int p = 0; p < t->graph->parameter_count; p++) {
        const sl_parameter *q = &t->graph->parameters[p];
        char what[128];
        json_t *projections = json_object_get(c, "last_projection");
        snprintf(what, sizeof what, "%s: %s", name, q->name);
        compare_projection(what, t->weights[q->layer] + q->offset, q->count,
                           json_number_value(json_array_get(projections, (size_t)p)));
        for (int s = 0; s < sl_optim_slots(t->optim); s++) {
            const float *x = t->slots[q->layer][s] + q->offset;
            json_t *state = json_array_get(json_object_get(c, "state"), (size_t)s);
            json_t *projection = json_array_get(json_object_get(c, "state_projection"), (size_t)s);
            snprintf(what, sizeof what, "%s: %s %s", name, q->name, sl_optim_slot_name(t->optim, s));
            compare_samples(what, x, q->count, json_array_get(state, (size_t)p));
            compare_projection(what, x, q->count, json_number_value(json_array_get(projection, (size_t)p)));
        }
    }
}

/* The rate of a step: the optimizer's own, or the recorded case's cycle. */
static void cycle_options(json_t *c, double lr, sl_schedule_options *o)
{
    json_t *cycle = json_object_get(c, "schedule");
    sl_schedule_options_init(o, cycle != NULL ? SL_SCHEDULE_ONE_CYCLE : SL_SCHEDULE_CONSTANT, lr);
    if (cycle == NULL) return;
    o->cycle_min_lr = json_number_value(json_object_get(cycle, "cycle_min_lr"));
    o->cycle_max_lr = json_number_value(json_object_get(cycle, "cycle_max_lr"));
    o->cycle_first_step_size = json_integer_value(json_object_get(cycle, "cycle_first_step_size"));
    o->cycle_second_step_size = json_integer_value(json_object_get(cycle, "cycle_second_step_size"));
    o->decay_step_size = json_integer_value(json_object_get(cycle, "decay_step_size"));
    o->decay_lr_rate = json_number_value(json_object_get(cycle, "decay_lr_rate"));
}

static void run_case(json_t *c, int steps, sl_isa isa)
{
    const char *name = json_string_value(json_object_get(c, "name"));
    sl_group_options groups[SL_MAX_GROUPS];
    sl_optim_options options = { 0 };
    sl_schedule_options schedule;
    sl_schedule_state state;
    trainer t;
    read_options(c, &options, groups);
    cycle_options(c, options.optimizer.lr, &schedule);
    sl_schedule_start(&schedule, &state);
    REQUIRE_OK(trainer_open(&t, &options, isa, 1));
    CHECK_EQ(sl_optim_slots(t.optim), json_array_size(json_object_get(c, "slots")));
    for (int s = 0; s < sl_optim_slots(t.optim); s++)
        CHECK_STR(sl_optim_slot_name(t.optim, s),
                  json_string_value(json_array_get(json_object_get(c, "slots"), (size_t)s)));
    trainer_set_weights(&t);
    for (int step = 1; step <= steps; step++) {
        double norm = json_number_value(json_array_get(json_object_get(c, "norms"), (size_t)step - 1));
        uint64_t number = (uint64_t)step;
        trainer_set_gradients(&t, (uint32_t)step);
        trainer_step(&t, number, sl_schedule_lr(&schedule, &state, number), sl_schedule_momentum(&schedule, number));
        CHECK_NEAR(t.norm.norm, norm, 1e-9 * norm);
        CHECK_EQ(t.norm.finite, 1);
        if (step == 1) compare_weights(&t, name, json_object_get(c, "first"));
    }
    compare_end(&t, name, c);
    trainer_close(&t);
}

static void run_kind(const char *kind)
{
    json_t *record = load_record(), *c;
    size_t i, count = 0;
    REQUIRE(record != NULL);
    json_array_foreach(json_object_get(record, "trajectories"), i, c)
    {
        if (strcmp(json_string_value(json_object_get(c, "kind")), kind) != 0) continue;
        run_case(c, (int)json_integer_value(json_object_get(record, "steps")), sl_isa_best());
        count++;
    }
    CHECK(count >= 2);
    json_decref(record);
}

TEST(sgd_follows_torch)
{
    run_kind("SGD");
}

TEST(adagrad_follows_torch)
{
    run_kind("Adagrad");
}

TEST(adam_follows_torch)
{
    run_kind("Adam");
}

TEST(adamw_follows_torch_with_groups_clipping_and_cycled_betas)
{
    run_kind("AdamW");
}

TEST(lamb_follows_deepspeed)
{
    run_kind("LAMB");
}

TEST(lars_follows_its_paper)
{
    run_kind("LARS");
}

TEST(lion_follows_deepspeed)
{
    run_kind("Lion");
}

TEST(rmsprop_follows_torch)
{
    run_kind("RMSprop");
}

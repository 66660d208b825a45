/* lr_schedule_test.c: the rate at every step against DeepSpeed's scheduler classes, driven as its engine drives them. */
#include <jansson.h>

#include "support/optim_fixture.h"

typedef enum { NUMBER, INTEGER, FLAG } field_type;

/* DeepSpeed's and torch's parameter names. */
static const struct {
    const char *key;
    field_type type;
    size_t offset;
} fields[] = {
    { "warmup_min_lr", NUMBER, offsetof(sl_schedule_options, warmup_min_lr) },
    { "warmup_max_lr", NUMBER, offsetof(sl_schedule_options, warmup_max_lr) },
    { "warmup_num_steps", INTEGER, offsetof(sl_schedule_options, warmup_num_steps) },
    { "total_num_steps", INTEGER, offsetof(sl_schedule_options, total_num_steps) },
    { "warmup_min_ratio", NUMBER, offsetof(sl_schedule_options, warmup_min_ratio) },
    { "cos_min_ratio", NUMBER, offsetof(sl_schedule_options, cos_min_ratio) },
    { "lr_range_test_min_lr", NUMBER, offsetof(sl_schedule_options, range_min_lr) },
    { "lr_range_test_step_rate", NUMBER, offsetof(sl_schedule_options, range_step_rate) },
    { "lr_range_test_step_size", INTEGER, offsetof(sl_schedule_options, range_step_size) },
    { "lr_range_test_staircase", FLAG, offsetof(sl_schedule_options, range_staircase) },
    { "cycle_min_lr", NUMBER, offsetof(sl_schedule_options, cycle_min_lr) },
    { "cycle_max_lr", NUMBER, offsetof(sl_schedule_options, cycle_max_lr) },
    { "decay_lr_rate", NUMBER, offsetof(sl_schedule_options, decay_lr_rate) },
    { "cycle_first_step_size", INTEGER, offsetof(sl_schedule_options, cycle_first_step_size) },
    { "cycle_second_step_size", INTEGER, offsetof(sl_schedule_options, cycle_second_step_size) },
    { "cycle_first_stair_count", INTEGER, offsetof(sl_schedule_options, cycle_first_stair_count) },
    { "cycle_second_stair_count", INTEGER, offsetof(sl_schedule_options, cycle_second_stair_count) },
    { "decay_step_size", INTEGER, offsetof(sl_schedule_options, decay_step_size) },
    { "cycle_momentum", FLAG, offsetof(sl_schedule_options, cycle_momentum) },
    { "cycle_min_mom", NUMBER, offsetof(sl_schedule_options, cycle_min_mom) },
    { "cycle_max_mom", NUMBER, offsetof(sl_schedule_options, cycle_max_mom) },
    { "decay_mom_rate", NUMBER, offsetof(sl_schedule_options, decay_mom_rate) },
    { "factor", NUMBER, offsetof(sl_schedule_options, factor) },
    { "threshold", NUMBER, offsetof(sl_schedule_options, threshold) },
    { "min_lr", NUMBER, offsetof(sl_schedule_options, min_lr) },
    { "patience", INTEGER, offsetof(sl_schedule_options, patience) },
    { "cooldown", INTEGER, offsetof(sl_schedule_options, cooldown) },
};

static void read_field(sl_schedule_options *o, const char *key, json_t *value)
{
    if (strcmp(key, "warmup_type") == 0) {
        o->warmup_linear = strcmp(json_string_value(value), "linear") == 0;
        return;
    }
    if (strcmp(key, "threshold_mode") == 0) {
        o->threshold_absolute = strcmp(json_string_value(value), "abs") == 0;
        return;
    }
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        char *field = (char *)o + fields[i].offset;
        if (strcmp(key, fields[i].key) != 0) continue;
        if (fields[i].type == NUMBER) *(double *)field = json_number_value(value);
        if (fields[i].type == INTEGER) *(int64_t *)field = json_integer_value(value);
        if (fields[i].type == FLAG) *(bool *)field = json_is_true(value);
        return;
    }
    test_fail(__FILE__, __LINE__, "no field for %s", key);
}

static void read_schedule(json_t *row, sl_schedule_kind kind, sl_schedule_options *o)
{
    const char *key;
    json_t *value;
    sl_schedule_options_init(o, kind, json_number_value(json_object_get(row, "base_lr")));
    json_object_foreach(json_object_get(row, "params"), key, value) read_field(o, key, value);
    if (sl_schedule_check(o) != SLUICE_OK) test_fail(__FILE__, __LINE__, "%s", sluice_error());
}

static json_t *load_record(void)
{
    json_error_t error;
    json_t *root = json_load_file(SLUICE_SOURCE_DIR "/tests/parity/optim.json", 0, &error);
    if (root == NULL) test_fail(__FILE__, __LINE__, "optim.json: %s at line %d", error.text, error.line);
    return root;
}

static void check_sequence(const char *what, const sl_schedule_options *o, json_t *row)
{
    json_t *rates = json_object_get(row, "lr"), *momenta = json_object_get(row, "momentum");
    sl_schedule_state state;
    sl_schedule_start(o, &state);
    CHECK(json_array_size(rates) > 5);
    for (size_t i = 0; i < json_array_size(rates); i++) {
        double expected = json_number_value(json_array_get(rates, i)), lr = sl_schedule_lr(o, &state, i + 1);
        double momentum = sl_schedule_momentum(o, i + 1);
        if (!(fabs(lr - expected) <= 1e-11 * fabs(expected)))
            test_fail(__FILE__, __LINE__, "%s step %zu: lr %.12g, expected %.12g", what, i + 1, lr, expected);
        if (json_array_size(momenta) == 0) {
            CHECK(momentum < 0.0);
            continue;
        }
        CHECK_NEAR(momentum, json_number_value(json_array_get(momenta, i)), 1e-11);
    }
}

static void check_kind(const char *name, sl_schedule_kind kind)
{
    json_t *record = load_record(), *row;
    size_t i, count = 0;
    REQUIRE(record != NULL);
    json_array_foreach(json_object_get(record, "schedules"), i, row)
    {
        sl_schedule_options o;
        if (strcmp(json_string_value(json_object_get(row, "kind")), name) != 0) continue;
        read_schedule(row, kind, &o);
        check_sequence(name, &o, row);
        count++;
    }
    CHECK(count >= 2);
    json_decref(record);
}

TEST(warmup_follows_deepspeed)
{
    check_kind("WarmupLR", SL_SCHEDULE_WARMUP);
}

TEST(warmup_decay_follows_deepspeed)
{
    check_kind("WarmupDecayLR", SL_SCHEDULE_WARMUP_DECAY);
}

TEST(warmup_cosine_follows_deepspeed)
{
    check_kind("WarmupCosineLR", SL_SCHEDULE_WARMUP_COSINE);
}

TEST(range_test_follows_deepspeed)
{
    check_kind("LRRangeTest", SL_SCHEDULE_RANGE_TEST);
}

TEST(one_cycle_follows_deepspeed_in_rate_and_momentum)
{
    check_kind("OneCycle", SL_SCHEDULE_ONE_CYCLE);
}

TEST(plateau_follows_torch)
{
    json_t *record = load_record(), *row;
    size_t i;
    REQUIRE(record != NULL);
    json_t *losses = json_object_get(record, "losses");
    json_array_foreach(json_object_get(record, "plateaus"), i, row)
    {
        sl_schedule_options o;
        sl_schedule_state s;
        read_schedule(row, SL_SCHEDULE_PLATEAU, &o);
        sl_schedule_start(&o, &s);
        for (size_t k = 0; k < json_array_size(losses); k++) {
            json_t *loss = json_array_get(losses, k);
            double expected = json_number_value(json_array_get(json_object_get(row, "lr"), k));
            sl_schedule_observe(&o, &s, json_is_null(loss) ? NAN : json_number_value(loss));
            CHECK_NEAR(sl_schedule_lr(&o, &s, k + 2), expected, 1e-11 * expected);
        }
    }
    json_decref(record);
}

TEST(a_constant_schedule_ignores_steps_and_losses)
{
    sl_schedule_options o;
    sl_schedule_state s;
    sl_schedule_options_init(&o, SL_SCHEDULE_CONSTANT, 0.25);
    sl_schedule_start(&o, &s);
    for (int i = 0; i < 50; i++) sl_schedule_observe(&o, &s, 1.0);
    CHECK(sl_schedule_lr(&o, &s, 1) == 0.25 && sl_schedule_lr(&o, &s, 1000000) == 0.25);
    CHECK(sl_schedule_momentum(&o, 3) < 0.0);
}

/* One wrong value per row; the message names schedule and parameter. */
TEST(schedule_errors_name_the_parameter)
{
    static const struct {
        sl_schedule_kind kind;
        size_t offset;
        field_type type;
        double value;
        const char *expected;
    } rows[] = {
        { SL_SCHEDULE_WARMUP, offsetof(sl_schedule_options, warmup_num_steps), INTEGER, -1,
          "WarmupLR: warmup_num_steps" },
        { SL_SCHEDULE_WARMUP, offsetof(sl_schedule_options, base_lr), NUMBER, NAN, "WarmupLR: lr" },
        { SL_SCHEDULE_WARMUP_DECAY, offsetof(sl_schedule_options, total_num_steps), INTEGER, 0,
          "WarmupDecayLR: total_num_steps" },
        { SL_SCHEDULE_WARMUP_COSINE, offsetof(sl_schedule_options, cos_min_ratio), NUMBER, -2,
          "WarmupCosineLR: cos_min_ratio" },
        { SL_SCHEDULE_RANGE_TEST, offsetof(sl_schedule_options, range_step_size), INTEGER, -5,
          "lr_range_test_step_size" },
        { SL_SCHEDULE_ONE_CYCLE, offsetof(sl_schedule_options, cycle_min_lr), NUMBER, -1, "cycle_min_lr is missing" },
        { SL_SCHEDULE_PLATEAU, offsetof(sl_schedule_options, factor), NUMBER, 1.0, "ReduceLROnPlateau: factor" },
        { SL_SCHEDULE_PLATEAU, offsetof(sl_schedule_options, patience), INTEGER, -1, "ReduceLROnPlateau: patience" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        sl_schedule_options o;
        sl_schedule_options_init(&o, rows[i].kind, 0.1);
        char *field = (char *)&o + rows[i].offset;
        if (rows[i].type == NUMBER) *(double *)field = rows[i].value;
        if (rows[i].type == INTEGER) *(int64_t *)field = (int64_t)rows[i].value;
        CHECK_EQ(sl_schedule_check(&o), SLUICE_ERR_USAGE);
        CHECK_CONTAINS(sluice_error(), rows[i].expected);
    }
}

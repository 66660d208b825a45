/* loss_scale_test.c: the loss scale at every step against DeepSpeed's (tests/parity/record_loss_scale.py). */
#include "optim/loss_scale.h"

#include <jansson.h>
#include <string.h>

#include "test.h"

static double number(const json_t *row, const char *key)
{
    return json_number_value(json_object_get(row, key));
}

static double at(const json_t *row, const char *key, size_t i)
{
    return json_number_value(json_array_get(json_object_get(row, key), i));
}

static void check_case(const json_t *row)
{
    sluice_loss_scale o = { .initial_power = (int)number(row, "initial_power"),
                            .window = (int)number(row, "window"),
                            .hysteresis = (int)number(row, "hysteresis"),
                            .consecutive = json_is_true(json_object_get(row, "consecutive")),
                            .minimum = number(row, "minimum") };
    const char *steps = json_string_value(json_object_get(row, "steps"));
    int raised = (int)number(row, "raised");
    sl_loss_scaler s;
    sl_loss_scale_start(&o, &s);
    for (int i = 0; steps[i] != '\0'; i++) {
        bool goes_on = sl_loss_scale_update(&o, &s, steps[i] == 'x');
        if (goes_on != (i != raised))
            test_fail(__FILE__, __LINE__, "%s, window %d, hysteresis %d: step %d %s", steps, o.window, o.hysteresis, i,
                      goes_on ? "goes on" : "gives up");
        if (!goes_on || i == raised) break;
        if (s.scale != at(row, "scales", (size_t)i) || s.hysteresis != (int)at(row, "left", (size_t)i))
            test_fail(__FILE__, __LINE__,
                      "%s, window %d, hysteresis %d: scale %g and %d left after step %d, not %g and %g", steps,
                      o.window, o.hysteresis, s.scale, s.hysteresis, i, at(row, "scales", (size_t)i),
                      at(row, "left", (size_t)i));
    }
}

TEST(the_loss_scale_follows_deepspeed_at_every_step)
{
    json_error_t error;
    json_t *record = json_load_file(SLUICE_SOURCE_DIR "/tests/parity/loss_scale.json", 0, &error), *row;
    if (record == NULL) test_fail(__FILE__, __LINE__, "loss_scale.json: %s at line %d", error.text, error.line);
    REQUIRE(record != NULL);
    size_t i, gave_up = 0;
    json_array_foreach(record, i, row)
    {
        check_case(row);
        gave_up += number(row, "raised") >= 0;
    }
    CHECK(json_array_size(record) > 300);
    CHECK(gave_up > 50);
    json_decref(record);
}

TEST(a_scale_at_its_minimum_stays_as_it_was_when_it_would_have_to_fall)
{
    sluice_loss_scale o;
    sl_loss_scale_init(&o);
    o.initial_power = 0;
    o.hysteresis = 1;
    sl_loss_scaler s, before;
    sl_loss_scale_start(&o, &s);
    CHECK(sl_loss_scale_update(&o, &s, false));
    before = s;
    CHECK(!sl_loss_scale_update(&o, &s, true));
    CHECK(memcmp(&s, &before, sizeof s) == 0);
}

TEST(a_fixed_scale_never_changes)
{
    sluice_loss_scale o = { .fixed = 128, .window = 1, .hysteresis = 1, .minimum = 1 };
    sl_loss_scaler s;
    sl_loss_scale_start(&o, &s);
    for (int i = 0; i < 20; i++) {
        CHECK(sl_loss_scale_update(&o, &s, i % 3 == 0));
        CHECK(s.scale == 128);
    }
}

TEST(the_loss_scale_begins_where_deepspeeds_does)
{
    sluice_loss_scale o;
    sl_loss_scaler s;
    sl_loss_scale_init(&o);
    sl_loss_scale_start(&o, &s);
    CHECK(s.scale == 65536);
    CHECK_EQ(s.hysteresis, 2);
    CHECK(o.window == 1000 && o.minimum == 1 && !o.consecutive && o.fixed == 0);
}

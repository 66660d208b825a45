/* drift_test.c: steps that become slower are noticed once, single ones are not. */
#include "train/drift.h"

#include "test.h"

/* So many windows of steps that take `seconds`; the last answer that was not NONE. */
static sl_drift_kind observe(sl_drift *d, int windows, double seconds, double expected)
{
    sl_drift_kind found = SL_DRIFT_NONE;
    for (int i = 0; i < windows * SL_DRIFT_STEPS; i++) {
        sl_drift_kind kind = sl_drift_observe(d, seconds, expected, 0);
        if (kind != SL_DRIFT_NONE) found = kind;
    }
    return found;
}

TEST(steps_that_become_slower_are_noticed_once)
{
    sl_drift d = { .count = 0 };
    CHECK_EQ(observe(&d, 3, 1.0, 1.0), SL_DRIFT_NONE);
    CHECK_EQ(observe(&d, 1, 1.2, 1.0), SL_DRIFT_NONE);
    CHECK_EQ(observe(&d, 1, 1.6, 1.0), SL_DRIFT_SLOWER);
    CHECK_NEAR(d.usual, 1.6, 1e-12);
    CHECK_EQ(observe(&d, 5, 1.6, 1.0), SL_DRIFT_NONE);
    CHECK_EQ(observe(&d, 1, 2.5, 1.0), SL_DRIFT_SLOWER);
}

TEST(steps_that_become_faster_are_the_usual_ones_from_then_on)
{
    sl_drift d = { .count = 0 };
    CHECK_EQ(observe(&d, 1, 2.0, 0), SL_DRIFT_NONE);
    CHECK_EQ(observe(&d, 1, 1.0, 0), SL_DRIFT_NONE);
    CHECK_EQ(observe(&d, 1, 2.0, 0), SL_DRIFT_SLOWER);
}

TEST(a_pace_that_goes_up_and_down_is_told_once)
{
    sl_drift d = { .count = 0 };
    CHECK_EQ(observe(&d, 1, 1.0, 0), SL_DRIFT_NONE);
    CHECK_EQ(observe(&d, 1, 2.0, 0), SL_DRIFT_SLOWER);
    for (int i = 0; i < 5; i++) {
        CHECK_EQ(observe(&d, 1, 1.0, 0), SL_DRIFT_NONE);
        CHECK_EQ(observe(&d, 1, 2.4, 0), SL_DRIFT_NONE);
    }
    CHECK_EQ(observe(&d, 1, 1.0, 0), SL_DRIFT_NONE);
    CHECK_EQ(observe(&d, 1, 2.6, 0), SL_DRIFT_SLOWER); /* far slower than the 2.0 that was told */
}

TEST(first_steps_are_compared_with_a_plan_that_is_trusted)
{
    sl_drift trusted = { .count = 0 }, guessed = { .count = 0 };
    CHECK_EQ(observe(&trusted, 1, 2.0, 1.0), SL_DRIFT_UNEXPECTED);
    CHECK_EQ(observe(&trusted, 4, 2.0, 1.0), SL_DRIFT_NONE);
    CHECK_EQ(observe(&guessed, 4, 2.0, 0), SL_DRIFT_NONE);
}

TEST(single_slow_steps_are_not_noticed)
{
    sl_drift d = { .count = 0 };
    CHECK_EQ(observe(&d, 1, 1.0, 1.0), SL_DRIFT_NONE);
    for (int i = 0; i < 10 * SL_DRIFT_STEPS; i++)
        CHECK_EQ(sl_drift_observe(&d, i % 4 == 0 ? 9.0 : 1.0, 1.0, 0), SL_DRIFT_NONE);
}

TEST(short_steps_are_judged_after_some_seconds_of_them)
{
    sl_drift d = { .count = 0 };
    for (int i = 0; i < 500; i++) CHECK_EQ(sl_drift_observe(&d, 0.01, 0, 5), SL_DRIFT_NONE);
    int told = 0, at = 0;
    for (int i = 1; i <= 400; i++) {
        if (sl_drift_observe(&d, 0.02, 0, 5) != SL_DRIFT_SLOWER) continue;
        told++;
        at = i;
    }
    CHECK_EQ(told, 1);
    CHECK(at >= 240 && at <= 260); /* five seconds of the slower ones */
}

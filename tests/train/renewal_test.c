/* renewal_test.c: when a run changes between its two plans. */
#include <math.h>

#include "test.h"
#include "train/renewal.h"

/* A step takes 1 s on speculation, 0.5 s more where it fails, and 1.4 s without it; 1.2 s by the other plan. So the other one
 * is better from a share of 0.4 on. */
static sl_renewal begun(void)
{
    sl_renewal r;
    sl_renewal_begin(&r, (sl_step_clock){ true, 1, 0.5, 1.4 }, (sl_step_clock){ false, 1.2, 0, 1.2 });
    return r;
}

/* Steps until a change is due where `failing` of every ten fail; 0: none is, up to `most`. */
static int steps_until_due(sl_renewal *r, int failing, uint64_t left, double seconds, int most)
{
    for (int i = 0; i < most; i++)
        if (sl_renewal_pays(sl_renewal_observe(r, i % 10 < failing), left, seconds)) return i + 1;
    return 0;
}

TEST(a_run_that_is_always_clipped_goes_over_to_updates_that_wait_and_back_where_none_is)
{
    sl_renewal r = begun();
    CHECK_EQ(steps_until_due(&r, 10, 1000, 1, 100), SL_SPECULATION_WINDOW);
    sl_renewal_change(&r);
    CHECK(!r.here.speculates);
    CHECK_EQ(steps_until_due(&r, 10, 1000, 1, 1000), 0); /* no more than that */
    r.steps = r.failed = 0;
    CHECK_EQ(steps_until_due(&r, 0, 1000, 1, 1000), 4 * SL_SPECULATION_WINDOW);
    sl_renewal_change(&r);
    CHECK(r.here.speculates);
    CHECK_EQ(steps_until_due(&r, 10, 1000, 1, 1000), 16 * SL_SPECULATION_WINDOW); /* it is not changed to and fro */
}

/* Begun with a plan whose clipped steps are the shortest, a run takes the faster one when none of a window's was clipped, and comes
 * back where many are; each of the two speculates. */
TEST(a_run_whose_steps_are_rarely_clipped_goes_over_to_its_faster_plan_and_back_where_they_are)
{
    const sl_step_clock careful = { true, 1.1, 0.15, 1.2 }, fast = { true, 1, 0.6, 1.7 };
    sl_renewal r;
    sl_renewal_begin(&r, careful, fast);
    CHECK_EQ(steps_until_due(&r, 10, 1000, 1, 1000), 0);
    CHECK_EQ(steps_until_due(&r, 5, 1000, 1, 1000), 0); /* about 1.175 and 1.3 s */
    r.steps = r.failed = 0;
    CHECK_EQ(steps_until_due(&r, 0, 1000, 1, 1000), SL_SPECULATION_WINDOW);
    sl_renewal_change(&r);
    CHECK_NEAR(r.here.seconds, 1, 0);
    CHECK_EQ(steps_until_due(&r, 0, 1000, 1, 1000), 0);
    r.steps = r.failed = 0;
    CHECK_EQ(steps_until_due(&r, 10, 1000, 1, 1000), 4 * SL_SPECULATION_WINDOW);
}

TEST(a_share_of_clipped_steps_that_speculation_pays_for_changes_nothing)
{
    sl_renewal r = begun();
    CHECK_EQ(steps_until_due(&r, 3, 1000, 1, 200), 0);
    CHECK(steps_until_due(&r, 6, 1000, 1, 200) > 0);
}

TEST(a_change_has_to_be_worth_its_time_in_the_steps_that_are_left)
{
    sl_renewal r = begun(); /* saves 0.2 s a step */
    CHECK_EQ(steps_until_due(&r, 10, 99, 10, 200), 0);
    CHECK_EQ(steps_until_due(&r, 10, 1000000, (double)INFINITY, 200), 0);
    r = begun();
    CHECK_EQ(steps_until_due(&r, 10, 101, 10, 200), SL_SPECULATION_WINDOW);
}

TEST(a_run_with_one_plan_keeps_it)
{
    const sl_step_clock waits = { false, 1, 0, 1 }, none = { .seconds = 0 };
    sl_renewal r;
    sl_renewal_begin(&r, waits, none);
    CHECK_EQ(steps_until_due(&r, 10, 1000, 0, 200), 0);
    /* the placement is the best for updates that wait, too */
    sl_renewal_begin(&r, (sl_step_clock){ true, 1, 0.5, 1.4 }, (sl_step_clock){ false, 1.4, 0, 1.4 });
    CHECK_EQ(steps_until_due(&r, 10, 1000000, 0, 200), 0);
}

TEST(speculation_that_saves_nothing_stays_where_no_step_fails)
{
    sl_renewal r;
    sl_renewal_begin(&r, (sl_step_clock){ true, 1.3, 0.5, 1.3 }, (sl_step_clock){ false, 1.2, 0, 1.2 });
    CHECK_EQ(steps_until_due(&r, 0, 1000000, 0, 200), 0);
    CHECK(steps_until_due(&r, 1, 1000000, 0, 200) > 0);
}

/* Where steps fail, that they take longer says nothing of the machine. */
TEST(what_a_step_may_take_follows_from_what_becomes_of_speculation)
{
    sl_renewal r = begun(), none = { .window = 0 };
    CHECK_NEAR(sl_renewal_expected(&none, 3, true), 3, 0);
    CHECK_NEAR(sl_renewal_expected(&r, 3, false), 1, 0);
    CHECK_NEAR(sl_renewal_expected(&r, 3, true), 1.5, 0);
    r.here.redo = 0.1;
    CHECK_NEAR(sl_renewal_expected(&r, 3, true), 1.4, 0);
    sl_renewal_change(&r);
    CHECK_NEAR(sl_renewal_expected(&r, 3, true), 1.2, 0);
}

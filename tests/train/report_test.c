/* report_test.c: what a step of given length amounts to. */
#include "train/report.h"

#include <math.h>

#include "test.h"

TEST(expected_and_measured_mfu_are_of_the_same_peak_where_one_was_measured)
{
    sl_pace p = { .samples = 4, .tokens = 1000, .flops = 1e9, .planned_peak = 1e10 };
    sluice_event planned = { 0 }, seen = { 0 };
    sl_pace_to_event(&p, true, 0.5, &planned);
    sl_pace_to_event(&p, false, 0.5, &seen);
    CHECK_NEAR(planned.mfu, 0.2, 1e-12);
    CHECK(isnan(seen.mfu)); /* no peak was measured */
    p.peak = 2e10;
    sl_pace_to_event(&p, true, 0.5, &planned);
    sl_pace_to_event(&p, false, 0.5, &seen);
    CHECK_NEAR(planned.mfu, 0.1, 1e-12);
    CHECK_NEAR(seen.mfu, planned.mfu, 0);
    CHECK_NEAR(seen.tokens_per_second, 2000, 1e-9);
    CHECK_NEAR(seen.peak_flops, 2e10, 0);
}

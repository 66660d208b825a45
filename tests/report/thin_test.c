/* thin_test.c: what is left of very many steps shows what all of them would. */
#include "report/thin.h"

#include "core/alloc.h"
#include "test.h"

static sl_recorded_step *make_steps(size_t count)
{
    sl_recorded_step *s = calloc(count, sizeof *s);
    for (size_t i = 0; i < count; i++) {
        double x = (double)i;
        s[i] = (sl_recorded_step){ .step = i + 1,
                                   .loss = 5 / (1 + x / 1000) + 0.1 * sin(x * 12.9898),
                                   .lr = 1e-3,
                                   .gradient_norm = 1 + cos(x),
                                   .seconds = 0.01,
                                   .rate = 1000 + (double)(i % 77) };
    }
    return s;
}

TEST(few_steps_are_all_shown)
{
    size_t *kept, count;
    sl_recorded_step *steps = make_steps(SL_THIN_WHOLE);
    REQUIRE_OK(sl_thin_steps(steps, SL_THIN_WHOLE, &kept, &count));
    CHECK_EQ(count, SL_THIN_WHOLE);
    for (size_t i = 0; i < count; i++) CHECK_EQ(kept[i], i);
    sl_free(kept);
    free(steps);
}

TEST(of_very_many_steps_the_extremes_of_every_column_are_shown)
{
    enum { COUNT = 300000, SPIKE = 123456 };
    size_t *kept, count;
    sl_recorded_step *steps = make_steps(COUNT);
    steps[SPIKE].loss = 99;        /* one step among very many */
    steps[SPIKE + 70000].rate = 1; /* and one that was slow */
    steps[200].loss = (double)NAN;
    REQUIRE_OK(sl_thin_steps(steps, COUNT, &kept, &count));
    bool spike = false, slow = false, missing = false;
    CHECK(count < 9 * SL_THIN_COLUMNS + 3);
    CHECK_EQ(kept[0], 0);
    CHECK_EQ(kept[count - 1], COUNT - 1);
    for (size_t i = 0; i < count; i++) {
        if (i > 0) CHECK(kept[i] > kept[i - 1]);
        spike = spike || kept[i] == SPIKE;
        slow = slow || kept[i] == SPIKE + 70000;
        missing = missing || kept[i] == 200;
    }
    CHECK(spike);
    CHECK(slow);
    CHECK(missing);
    sl_free(kept);
    free(steps);
}

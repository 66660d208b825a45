/* random_images_test.c: numbers that are normal, classes that are all there, the same for the same seed. */
#include <math.h>

#include "data/data.h"
#include "test.h"

enum { SIDE = 6, CHANNELS = 2, PIXELS = SIDE * SIDE * CHANNELS, ROWS = 40, CLASSES = 5 };

static sl_data_options options(int64_t seed)
{
    return (sl_data_options){ .type = "random_images",
                              .samples = 1000,
                              .image_size = SIDE,
                              .channels = CHANNELS,
                              .outputs = CLASSES,
                              .validation = 0.1,
                              .seed = seed,
                              .shuffle = true };
}

static sluice_status fill(int64_t seed, uint64_t index, float *x, int32_t *target)
{
    sluice_data *d;
    sl_data_options o = options(seed);
    const sl_data_field fields[] = { { "x", SLUICE_F32, PIXELS, x }, { "target", SLUICE_I32, 1, target } };
    SL_TRY(sl_data_open(&o, 0, 0, &d));
    sluice_status st = d->ops->fill(d, index, ROWS, fields, 2);
    sluice_data_destroy(d);
    return st;
}

TEST(random_images_are_normal_and_of_every_class)
{
    static float x[ROWS * PIXELS];
    int32_t target[ROWS];
    double sum = 0, squares = 0;
    int seen[CLASSES] = { 0 };
    REQUIRE_OK(fill(1, 0, x, target));
    for (int i = 0; i < ROWS * PIXELS; i++) sum += (double)x[i], squares += (double)x[i] * (double)x[i];
    CHECK(fabs(sum / (ROWS * PIXELS)) < 0.1 && fabs(squares / (ROWS * PIXELS) - 1) < 0.15);
    for (int i = 0; i < ROWS; i++) {
        REQUIRE(target[i] >= 0 && target[i] < CLASSES);
        seen[target[i]]++;
    }
    for (int i = 0; i < CLASSES; i++) CHECK(seen[i] > 0);
}

TEST(random_images_depend_on_seed_and_batch_alone)
{
    static float a[ROWS * PIXELS], b[ROWS * PIXELS];
    int32_t target[ROWS];
    REQUIRE_OK(fill(1, 7, a, target));
    REQUIRE_OK(fill(1, 7, b, target));
    CHECK(memcmp(a, b, sizeof a) == 0);
    REQUIRE_OK(fill(2, 7, b, target));
    CHECK(memcmp(a, b, sizeof a) != 0);
    REQUIRE_OK(fill(1, 8, b, target));
    CHECK(memcmp(a, b, sizeof a) != 0);
}

TEST(random_images_without_a_size_or_classes_are_refused)
{
    sluice_data *d;
    sl_data_options o = options(1);
    o.image_size = 0;
    CHECK_EQ(sl_data_open(&o, 0, 0, &d), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "data.image_size is missing");
    o = options(1);
    o.outputs = -1;
    CHECK_EQ(sl_data_open(&o, 0, 0, &d), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "the number of classes");
}

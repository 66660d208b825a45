/* synthetic_test.c: problems made from a seed. */
#include "core/alloc.h"
#include "data/data.h"
#include "test.h"

TEST(regression_without_noise_is_a_linear_map)
{
    enum { ROWS = 6, FEATURES = 2 };
    sluice_data *d;
    float x[ROWS][FEATURES], y[ROWS];
    int64_t valid;
    sl_data_field f[] = { { "x", SLUICE_F32, FEATURES, x }, { "target", SLUICE_F32, 1, y } };
    REQUIRE_OK(sl_data_regression(100, FEATURES, 1, 0.0, 0.0, 3, &d));
    REQUIRE_OK(d->ops->fill_eval(d, SL_SPLIT_TRAIN, 0, ROWS, f, 2, &valid));
    /* w from the first two rows by Cramer's rule predicts the others. */
    double det = (double)x[0][0] * x[1][1] - (double)x[0][1] * x[1][0];
    double w0 = ((double)y[0] * x[1][1] - (double)x[0][1] * y[1]) / det;
    double w1 = ((double)x[0][0] * y[1] - (double)y[0] * x[1][0]) / det;
    for (int i = 2; i < ROWS; i++) CHECK_NEAR(w0 * x[i][0] + w1 * x[i][1], y[i], 1e-4);
    sluice_data_destroy(d);
}

TEST(regression_inputs_are_standard_normal_and_noise_has_its_deviation)
{
    enum { ROWS = 4000 };
    sluice_data *clean, *noisy;
    static float x[ROWS][5], y[ROWS], z[ROWS];
    double mean = 0, square = 0, noise = 0;
    sl_data_field fc[] = { { "x", SLUICE_F32, 5, x }, { "target", SLUICE_F32, 1, y } };
    sl_data_field fn[] = { { "target", SLUICE_F32, 1, z } };
    REQUIRE_OK(sl_data_regression(ROWS, 5, 1, 0.0, 0.0, 1, &clean));
    REQUIRE_OK(sl_data_regression(ROWS, 5, 1, 0.5, 0.0, 1, &noisy));
    REQUIRE_OK(clean->ops->fill(clean, 0, ROWS, fc, 2));
    REQUIRE_OK(noisy->ops->fill(noisy, 0, ROWS, fn, 1));
    for (int i = 0; i < ROWS; i++) {
        for (int j = 0; j < 5; j++) mean += x[i][j], square += (double)x[i][j] * x[i][j];
        noise += ((double)z[i] - y[i]) * ((double)z[i] - y[i]);
    }
    CHECK_NEAR(mean / (5 * ROWS), 0, 0.03);
    CHECK_NEAR(square / (5 * ROWS), 1, 0.05);
    CHECK_NEAR(sqrt(noise / ROWS), 0.5, 0.03);
    sluice_data_destroy(clean);
    sluice_data_destroy(noisy);
}

TEST(regression_targets_have_a_variance_near_one)
{
    enum { ROWS = 500, OUTPUTS = 50 };
    sluice_data *d;
    static float y[ROWS][OUTPUTS];
    double square = 0;
    sl_data_field f = { "target", SLUICE_F32, OUTPUTS, y };
    REQUIRE_OK(sl_data_regression(ROWS, 20, OUTPUTS, 0.0, 0.0, 2, &d));
    REQUIRE_OK(d->ops->fill(d, 0, ROWS, &f, 1));
    for (int i = 0; i < ROWS * OUTPUTS; i++)
        square += (double)y[i / OUTPUTS][i % OUTPUTS] * y[i / OUTPUTS][i % OUTPUTS];
    CHECK_NEAR(square / (ROWS * OUTPUTS), 1, 0.2);
    sluice_data_destroy(d);
}

TEST(classification_is_separable_by_its_cluster_means)
{
    enum { ROWS = 600, FEATURES = 20, CLASSES = 3 };
    sluice_data *d;
    static float x[ROWS][FEATURES];
    static int32_t t[ROWS];
    double means[CLASSES][FEATURES] = { { 0 } };
    int counts[CLASSES] = { 0 }, right = 0;
    sl_data_field f[] = { { "x", SLUICE_F32, FEATURES, x }, { "target", SLUICE_I32, 1, t } };
    REQUIRE_OK(sl_data_classification(ROWS, FEATURES, CLASSES, 0.0, 11, &d));
    REQUIRE_OK(d->ops->fill(d, 0, ROWS, f, 2));
    for (int i = 0; i < ROWS; i++) {
        REQUIRE(t[i] >= 0 && t[i] < CLASSES);
        counts[t[i]]++;
        for (int j = 0; j < FEATURES; j++) means[t[i]][j] += x[i][j];
    }
    for (int c = 0; c < CLASSES; c++) CHECK(counts[c] > 120);
    for (int i = 0; i < ROWS; i++) {
        int best = 0;
        double nearest = INFINITY;
        for (int c = 0; c < CLASSES; c++) {
            double distance = 0;
            for (int j = 0; j < FEATURES; j++) distance += pow(means[c][j] / counts[c] - x[i][j], 2);
            if (distance < nearest) nearest = distance, best = c;
        }
        right += best == t[i];
    }
    CHECK(right > 0.95 * ROWS);
    sluice_data_destroy(d);
}

TEST(the_last_share_of_the_samples_is_kept_from_training)
{
    sluice_data *d;
    float train[90], held[16];
    int64_t valid;
    sl_data_field ft = { "x", SLUICE_F32, 1, train }, fh = { "x", SLUICE_F32, 1, held };
    REQUIRE_OK(sl_data_regression(100, 1, 1, 0.1, 0.1, 4, &d));
    CHECK_EQ(d->ops->samples(d, SL_SPLIT_TRAIN), 90);
    CHECK_EQ(d->ops->samples(d, SL_SPLIT_VALIDATION), 10);
    REQUIRE_OK(d->ops->fill(d, 0, 90, &ft, 1));
    REQUIRE_OK(d->ops->fill_eval(d, SL_SPLIT_VALIDATION, 0, 16, &fh, 1, &valid));
    CHECK_EQ(valid, 10);
    for (int i = 0; i < 90; i++)
        for (int j = 0; j < 10; j++) CHECK(train[i] != held[j]);
    for (int j = 10; j < 16; j++) CHECK(held[j] == held[9]);
    sluice_data_destroy(d);
}

TEST(rows_are_the_same_whether_kept_or_drawn_when_asked_for)
{
    /* 2^30 samples cannot be kept; 1,000 are. The training rows of sample number i agree. */
    sluice_data *kept, *drawn;
    float a[8][3], b[8][3], u[8][2], v[8][2];
    int64_t valid;
    sl_data_field fa[] = { { "x", SLUICE_F32, 3, a }, { "target", SLUICE_F32, 2, u } };
    sl_data_field fb[] = { { "x", SLUICE_F32, 3, b }, { "target", SLUICE_F32, 2, v } };
    REQUIRE_OK(sl_data_regression(1000, 3, 2, 0.1, 0.0, 8, &kept));
    REQUIRE_OK(sl_data_regression(1 << 30, 3, 2, 0.1, 0.0, 8, &drawn));
    CHECK(drawn->ops->memory_bytes(drawn) < 4096);
    CHECK(kept->ops->memory_bytes(kept) >= 1000 * 5 * 4);
    REQUIRE_OK(kept->ops->fill_eval(kept, SL_SPLIT_TRAIN, 500, 8, fa, 2, &valid));
    REQUIRE_OK(drawn->ops->fill_eval(drawn, SL_SPLIT_TRAIN, 500, 8, fb, 2, &valid));
    CHECK(memcmp(a, b, sizeof a) == 0);
    CHECK(memcmp(u, v, sizeof u) == 0);
    sluice_data_destroy(kept);
    sluice_data_destroy(drawn);
}

TEST(identity_of_synthetic_data_follows_every_setting)
{
    sluice_data *d;
    char base[65], other[65];
    REQUIRE_OK(sl_data_regression(100, 3, 2, 0.1, 0.1, 8, &d));
    d->ops->identity(d, base);
    sluice_data_destroy(d);
    const struct {
        int64_t samples, features, outputs;
        double noise, validation;
        uint64_t seed;
    } changed[] = { { 101, 3, 2, 0.1, 0.1, 8 }, { 100, 4, 2, 0.1, 0.1, 8 }, { 100, 3, 3, 0.1, 0.1, 8 },
                    { 100, 3, 2, 0.2, 0.1, 8 }, { 100, 3, 2, 0.1, 0.2, 8 }, { 100, 3, 2, 0.1, 0.1, 9 } };
    for (size_t i = 0; i < sizeof changed / sizeof changed[0]; i++) {
        REQUIRE_OK(sl_data_regression(changed[i].samples, changed[i].features, changed[i].outputs, changed[i].noise,
                                      changed[i].validation, changed[i].seed, &d));
        d->ops->identity(d, other);
        CHECK(strcmp(base, other) != 0);
        sluice_data_destroy(d);
    }
}

TEST(bad_synthetic_settings_name_their_key)
{
    sluice_data *d = NULL;
    CHECK_EQ(sl_data_regression(0, 3, 2, 0.1, 0.1, 8, &d), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "data.samples is 0");
    CHECK_EQ(sl_data_regression(10, -1, 2, 0.1, 0.1, 8, &d), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "data.features is -1");
    CHECK_EQ(sl_data_regression(10, 3, 2, -0.1, 0.1, 8, &d), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "data.noise");
    CHECK_EQ(sl_data_regression(10, 3, 2, 0.1, 1.0, 8, &d), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "data.validation is 1");
    CHECK_EQ(sl_data_regression(10, 3, 2, 0.1, NAN, 8, &d), SLUICE_ERR_USAGE);
    CHECK_EQ(sl_data_regression(1, 3, 2, 0.1, 0.5, 8, &d), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "nothing to train on");
    CHECK_EQ(sl_data_classification(10, 3, 1, 0.1, 8, &d), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "classes");
    CHECK(d == NULL);
}

TEST(regression_data_for_a_classifier_is_refused)
{
    sluice_data *d;
    int32_t t[4];
    sl_data_field f = { "target", SLUICE_I32, 1, t };
    REQUIRE_OK(sl_data_regression(10, 3, 1, 0.1, 0.0, 8, &d));
    CHECK_EQ(d->ops->fill(d, 0, 4, &f, 1), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "\"target\" is i32, the regression data has f32");
    sluice_data_destroy(d);
}

TEST(failed_allocations_of_synthetic_data_leak_nothing)
{
    sl_alloc_stats before, after;
    sluice_data *d;
    int failed = 0;
    sl_alloc_get_stats(&before);
    for (int n = 1; n < 10; n++) {
        sl_alloc_fail_nth(n, 0);
        sluice_status st = sl_data_classification(10, 3, 2, 0.1, 8, &d);
        sl_alloc_fail_nth(0, 0);
        failed += st == SLUICE_ERR_NO_MEMORY;
        if (st == SLUICE_OK) sluice_data_destroy(d);
        sl_alloc_get_stats(&after);
        CHECK_EQ(after.live_bytes, before.live_bytes);
    }
    CHECK_EQ(failed, 4); /* the data set, its centres, two columns of kept rows */
}

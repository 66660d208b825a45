/* log_mel_test.c: loudness of bands against numbers that numpy computed by torchaudio's formulas (tests/fixtures/log_mel). */
#include "data/log_mel.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>

#include "core/status.h"
#include "test.h"

static void make_sound(float *out, int64_t count)
{
    uint32_t state = 1;
    for (int64_t i = 0; i < count; i++) {
        state = state * 1664525 + 1013904223;
        double noise = (double)(state >> 17) / 32768.0 - 0.5;
        out[i] = (float)(noise * (double)(i / 400 % 5) / 8.0 + (double)(i % 37) / 64.0 - 0.25);
    }
}

static void check_case(const json_t *expected)
{
    static float samples[4096], rows[64 * 128];
    int64_t rate = json_integer_value(json_object_get(expected, "rate")),
            bands = json_integer_value(json_object_get(expected, "bands")),
            count = json_integer_value(json_object_get(expected, "samples"));
    const json_t *wanted = json_object_get(expected, "rows");
    sl_log_mel *m;
    REQUIRE_OK(sl_log_mel_create(rate, bands, &m));
    void *scratch = malloc(sl_log_mel_scratch_bytes(m));
    make_sound(samples, count);
    REQUIRE(sl_log_mel_rows(m, count) == (int64_t)json_array_size(wanted) && json_array_size(wanted) < 64);
    sl_log_mel_run(m, samples, count, scratch, rows);
    for (size_t t = 0; t < json_array_size(wanted); t++)
        for (int64_t b = 0; b < bands; b++) {
            double w = json_real_value(json_array_get(json_array_get(wanted, t), (size_t)b));
            double found = (double)rows[(int64_t)t * bands + b];
            CHECK_THAT(fabs(found - w) < 1e-5, "rate %d, row %d, band %d: %.8f, not %.8f", (int)rate, (int)t, (int)b,
                       found, w);
        }
    free(scratch);
    sl_log_mel_destroy(m);
}

TEST(rows_are_those_of_numpy_by_the_formulas_of_torchaudio)
{
    json_t *all = json_load_file(SLUICE_SOURCE_DIR "/tests/fixtures/log_mel/expected.json", 0, NULL);
    const json_t *cases = json_object_get(all, "cases");
    REQUIRE(json_array_size(cases) == 3);
    for (size_t i = 0; i < json_array_size(cases); i++) check_case(json_array_get(cases, i));
    json_decref(all);
}

TEST(a_tone_is_loudest_in_its_band_and_silence_is_the_least_there_is)
{
    enum { RATE = 16000, COUNT = 512, BANDS = 40 };
    float samples[COUNT] = { 0 }, row[BANDS];
    sl_log_mel *m;
    REQUIRE_OK(sl_log_mel_create(RATE, BANDS, &m));
    void *scratch = malloc(sl_log_mel_scratch_bytes(m));
    sl_log_mel_run(m, samples, COUNT, scratch, row);
    for (int b = 0; b < BANDS; b++) CHECK_NEAR(row[b], log(1e-10), 1e-5);
    double mel = 2595.0 * log10(1.0 + 1000.0 / 700.0), most = 2595.0 * log10(1.0 + 8000.0 / 700.0);
    for (int i = 0; i < COUNT; i++) samples[i] = (float)sin(2 * M_PI * 1000.0 * i / RATE);
    sl_log_mel_run(m, samples, COUNT, scratch, row);
    int loudest = 0;
    for (int b = 0; b < BANDS; b++)
        if (row[b] > row[loudest]) loudest = b;
    CHECK_EQ(loudest, (int)lround(mel / (most / (BANDS + 1))) - 1);
    free(scratch);
    sl_log_mel_destroy(m);
}

TEST(rows_need_a_whole_window_and_bands_must_hear_something)
{
    sl_log_mel *m;
    REQUIRE_OK(sl_log_mel_create(16000, 40, &m));
    CHECK_EQ(sl_log_mel_window(m), 512);
    CHECK_EQ(sl_log_mel_rows(m, 511), 0);
    CHECK_EQ(sl_log_mel_rows(m, 512), 1);
    CHECK_EQ(sl_log_mel_rows(m, 671), 1);
    CHECK_EQ(sl_log_mel_rows(m, 672), 2);
    sl_log_mel_destroy(m);
    CHECK_EQ(sl_log_mel_create(16000, 200, &m), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "data.mels is 200: at 16000 samples a second, band ");
    CHECK_EQ(sl_log_mel_create(16000, 0, &m), SLUICE_ERR_USAGE);
    CHECK_EQ(sl_log_mel_create(16000, 513, &m), SLUICE_ERR_USAGE);
}

/* machine_test.c: descriptions of machines as files, and samples made points. */
#include <stdio.h>
#include <string.h>

#include "test.h"
#include "train/measure.h"

static void temporary(char *path, size_t bytes)
{
    snprintf(path, bytes, "%s/machine.json", test_tmpdir());
}

/* Every kind of member, with numbers that six digits hold. */
static void describe(sl_machine_description *d)
{
    *d = (sl_machine_description){ .shared_memory = true, .ranks = 2, .threads = 3, .isa = SL_ISA_AVX2 };
    sl_machine_default(&d->rates);
    d->rates.capacity[SL_TIER_DEVICE] = d->rates.capacity[SL_TIER_HOST] = 123456789012;
    d->rates.kernels_take_turns = true;
    d->rates.kernel_slowdown = 0.25;
    d->rates.move_slowdown = 1.5;
    d->rates.kernels[SL_OP_LINEAR] = (sl_rates){ 2, { { 1e6, 1e-5 }, { 2.5e9, 0.0125 } } };
    d->rates.kernels[SL_OP_UPDATE] = (sl_rates){ 1, { { 28000, 1e-6 } } };
    d->rates.copies[1] = (sl_rates){ 1, { { 4096, 1e-6 } } };
    d->rates.gather = (sl_rates){ 1, { { 4096, 2e-6 } } };
    d->rates.reduce = (sl_rates){ 1, { { 4096, 3e-6 } } };
}

static void check_rates(const sl_rates *a, const sl_rates *b)
{
    CHECK_EQ(a->count, b->count);
    for (int i = 0; i < a->count; i++) {
        CHECK(a->points[i].work == b->points[i].work);
        CHECK(a->points[i].seconds == b->points[i].seconds);
    }
}

TEST(a_machine_file_gives_back_what_was_written)
{
    char path[4200];
    sl_machine_description d, back;
    describe(&d);
    temporary(path, sizeof path);
    REQUIRE_OK(sl_machine_write(path, &d));
    REQUIRE_OK(sl_machine_read(path, &back));
    CHECK_EQ(back.ranks, 2);
    CHECK_EQ(back.threads, 3);
    CHECK_EQ((int)back.isa, (int)SL_ISA_AVX2);
    CHECK(back.shared_memory && back.rates.kernels_take_turns && back.rates.copies_overlap);
    CHECK(back.rates.gemm_flops == d.rates.gemm_flops);
    CHECK(back.rates.kernel_slowdown == 0.25 && back.rates.move_slowdown == 1.5);
    CHECK_EQ(back.rates.capacity[SL_TIER_HOST], 123456789012);
    for (int op = 0; op < SL_OP_COUNT; op++) check_rates(&back.rates.kernels[op], &d.rates.kernels[op]);
    for (int i = 0; i < 2; i++) check_rates(&back.rates.copies[i], &d.rates.copies[i]);
    check_rates(&back.rates.gather, &d.rates.gather);
    check_rates(&back.rates.reduce, &d.rates.reduce);
}

TEST(a_machine_that_was_not_measured_needs_no_points)
{
    char path[4200];
    sl_machine_description d = { .shared_memory = false }, back;
    sl_machine_default(&d.rates);
    temporary(path, sizeof path);
    REQUIRE_OK(sl_machine_write(path, &d));
    REQUIRE_OK(sl_machine_read(path, &back));
    CHECK_EQ(back.ranks, 0);
    CHECK_EQ(back.rates.kernels[SL_OP_LINEAR].count, 0);
    CHECK_EQ(back.rates.kernels_take_turns, false);
}

#define GENERAL                                                                                                        \
    "{\"sluice_machine\": 1, \"gemm_flops\": 1, \"vector_flops\": 1, \"device_bytes_per_second\": 1,"                  \
    "\"update_bytes_per_second\": 1, \"to_device_bytes_per_second\": 1, \"to_host_bytes_per_second\": 1,"              \
    "\"comm_bytes_per_second\": 1, \"link_latency\": 0, \"kernel_latency\": 0, \"comm_latency\": 0,"                   \
    "\"device_bytes\": 1, \"host_bytes\": 1, \"shared_memory\": true, \"copies_overlap\": true"

TEST(mistakes_in_points_are_named_with_line_and_key)
{
    static const struct {
        const char *rest, *line, *message;
    } cases[] = {
        { ",\n\"gather\": []}", ":2:", "gather must be a list of 1 to 8 pairs" },
        { ",\n\n\"to_host\": [[1, 0]]}", ":3:", "to_host must be" },
        { ",\n\"reduce_scatter\": [[1, 1, 1]]}", ":2:", "reduce_scatter must be" },
        { ",\n\"to_device\": [[2, 1], [1, 1]]}", ":2:", "the work increasing" },
        { ",\n\"kernels\": 3}", ":2:", "kernels must be an object" },
        { ",\n\"kernels\": {\n\"linear\": [[1, \"x\"]]}}", ":3:", "kernels.linear must be" },
        { ",\n\"kernels\": {\n\"linaer\": [[1, 1]]}}", ":3:", "unknown key \"kernels.linaer\"" },
        { ",\n\"kernels\": {\"add\": [[1,1],[2,1],[3,1],[4,1],[5,1],[6,1],[7,1],[8,1],[9,1]]}}",
          ":2:", "1 to 8 pairs" },
        { ",\n\"measured_ranks\": 0}", ":2:", "measured_ranks must be a whole number above 0" },
        { ",\n\"instruction_path\": \"sse\"}", ":2:", "instruction_path must be \"scalar\"" },
        { ",\n\"kernel_slowdown\": -1}", ":2:", "kernel_slowdown must be a number, 0 or more" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char path[4200];
        sl_machine_description d;
        temporary(path, sizeof path);
        FILE *f = fopen(path, "w");
        fprintf(f, "%s%s", GENERAL, cases[i].rest);
        fclose(f);
        CHECK_EQ(sl_machine_read(path, &d), SLUICE_ERR_INPUT);
        CHECK_CONTAINS(sluice_error(), cases[i].line);
        CHECK_CONTAINS(sluice_error(), cases[i].message);
    }
}

TEST(samples_become_few_points_of_increasing_work)
{
    sl_samples s = { 0 };
    sl_rates r;
    for (int i = 0; i < 40; i++) {
        int k = i * 17 % 40; /* in no order */
        double work = 1e3 * (k + 1);
        REQUIRE_OK(sl_samples_add(&s, work, work / 1e6));
    }
    sl_samples_to_rates(&s, &r);
    CHECK(r.count > 1 && r.count <= SL_RATE_POINTS);
    for (int i = 0; i < r.count; i++) {
        CHECK_NEAR(r.points[i].work / r.points[i].seconds, 1e6, 1e-3);
        if (i > 0) CHECK(r.points[i].work > r.points[i - 1].work);
    }
    sl_samples_free(&s);
}

TEST(samples_of_the_same_work_become_one_point_of_their_mean_rate)
{
    sl_samples s = { 0 };
    sl_rates r;
    REQUIRE_OK(sl_samples_add(&s, 100, 1));
    REQUIRE_OK(sl_samples_add(&s, 100, 4));
    sl_samples_to_rates(&s, &r);
    CHECK_EQ(r.count, 1);
    CHECK_NEAR(r.points[0].seconds, 2, 1e-12);
    sl_samples_free(&s);
}

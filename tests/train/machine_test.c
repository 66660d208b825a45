/* machine_test.c: descriptions of machines as files, samples made points, where ranks run. */
#include <stdio.h>
#include <string.h>

#include "core/thread.h"
#include "test.h"
#include "train/machine_place.h"
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
    d->rates.gemm_16bit_flops = 1.25e12;
    d->rates.kernels[SL_RATE_F32][SL_OP_LINEAR] = (sl_rates){ 2, { { 1e6, 1e-5 }, { 2.5e9, 0.0125 } } };
    d->rates.kernels[SL_RATE_F32][SL_OP_UPDATE] = (sl_rates){ 1, { { 28000, 1e-6 } } };
    d->rates.kernels[SL_RATE_16BIT][SL_OP_LINEAR] = (sl_rates){ 1, { { 2.5e9, 0.00125 } } };
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
    CHECK(back.rates.gemm_16bit_flops == 1.25e12);
    for (int type = 0; type < SL_RATE_TYPES; type++)
        for (int op = 0; op < SL_OP_COUNT; op++) check_rates(&back.rates.kernels[type][op], &d.rates.kernels[type][op]);
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
    CHECK_EQ(back.rates.kernels[SL_RATE_F32][SL_OP_LINEAR].count, 0);
    CHECK_EQ(back.rates.kernels[SL_RATE_16BIT][SL_OP_LINEAR].count, 0);
    CHECK(back.rates.gemm_16bit_flops == 0);
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
        { ",\n\"kernels_16bit\": {\n\"linear\": []}}", ":3:", "kernels_16bit.linear must be" },
        { ",\n\"kernels_16bit\": {\n\"linaer\": [[1, 1]]}}", ":3:", "unknown key \"kernels_16bit.linaer\"" },
        { ",\n\"gemm_16bit_flops\": 0}", ":2:", "gemm_16bit_flops must be a number above 0" },
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

/* As written before there were rates of 16-bit kernels. */
TEST(a_file_without_16_bit_rates_gives_those_of_f32)
{
    char path[4200];
    sl_machine_description d;
    temporary(path, sizeof path);
    FILE *f = fopen(path, "w");
    fprintf(f, "%s, \"kernels\": {\"linear\": [[1e6, 0.5]]}}", GENERAL);
    fclose(f);
    REQUIRE_OK(sl_machine_read(path, &d));
    const sl_machine *m = &d.rates;
    CHECK(sl_machine_kernel_rates(m, SL_OP_LINEAR, true) == sl_machine_kernel_rates(m, SL_OP_LINEAR, false));
    CHECK(sl_machine_kernel_rates(m, SL_OP_LINEAR, true)->points[0].seconds == 0.5);
    CHECK(sl_machine_gemm_flops(m, true) == 1);
    d.rates.kernels[SL_RATE_16BIT][SL_OP_LINEAR] = (sl_rates){ 1, { { 1e6, 0.25 } } };
    d.rates.gemm_16bit_flops = 7;
    CHECK(sl_machine_kernel_rates(m, SL_OP_LINEAR, true)->points[0].seconds == 0.25);
    CHECK(sl_machine_kernel_rates(m, SL_OP_LINEAR, false)->points[0].seconds == 0.5);
    CHECK(sl_machine_gemm_flops(m, true) == 7 && sl_machine_gemm_flops(m, false) == 1);
}

TEST(by_default_16_bit_products_are_faster_where_there_are_tiles_for_them_and_nowhere_slower)
{
    for (int isa = 0; isa < SL_ISA_COUNT; isa++) {
        sl_machine m;
        sl_machine_describe((sl_isa)isa, 2, &m);
        double narrow = sl_machine_gemm_flops(&m, true), wide = sl_machine_gemm_flops(&m, false);
        CHECK(wide > 0 && narrow >= wide);
        if (isa == SL_ISA_AMX) CHECK(narrow >= 4 * wide);
    }
}

TEST(the_peak_of_products_is_measured_in_every_precision_and_on_every_path)
{
    static const sluice_dtype types[] = { SLUICE_F32, SLUICE_BF16, SLUICE_F16 };
    sl_device_choice cpu;
    REQUIRE_OK(sl_device_choose(SLUICE_DEVICE_CPU, 0, 1, &cpu));
    for (int isa = 0; isa <= (int)sl_isa_best(); isa++)
        for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
            double flops = 0;
            REQUIRE_OK(sl_measured_peak(&cpu, (sl_isa)isa, 1 + (int)i % 2, types[i], &flops));
            CHECK(flops > 1e6 && flops < 1e15);
        }
}

TEST(a_peak_that_cannot_be_measured_is_0)
{
    double flops;
    sl_device_choice cpu;
    REQUIRE_OK(sl_device_choose(SLUICE_DEVICE_CPU, 0, 1, &cpu));
    CHECK(sl_measured_peak(&cpu, sl_isa_best(), 0, SLUICE_F32, &flops) != SLUICE_OK && flops == 0);
    CHECK(sl_measured_peak(&cpu, SL_ISA_COUNT, 1, SLUICE_F32, &flops) != SLUICE_OK && flops == 0);
}

/* ---- where a rank runs ---- */

TEST(ranks_on_the_nodes_of_a_machine_get_their_share_of_it)
{
    sl_rank_place place;
    char text[160];
    if (!sl_topology_built_in()) SKIP("hwloc is not built in");
    setenv("HWLOC_SYNTHETIC", "NUMANode:2 Core:4 PU:1", 1);
    sl_rank_place_choose(5, 1, 2, &place);
    unsetenv("HWLOC_SYNTHETIC");
    CHECK_EQ(place.binding.nodes, 2);
    CHECK(place.cpus >= 1 && place.cpus <= 4);
    sl_memory_describe(&place, false, text, sizeof text);
    CHECK_CONTAINS(text, "huge pages ");
    CHECK_CONTAINS(text, "; NUMA: rank 5 on node 1");
    sl_memory_describe(&place, true, text, sizeof text);
    CHECK(strlen(text) < sizeof text - 1);
}

TEST(a_rank_alone_gets_all_cpus)
{
    sl_rank_place place;
    sl_rank_place_choose(0, 0, 1, &place);
    CHECK_EQ(place.cpus, sl_cpu_count());
    CHECK(!place.binding.threads);
    sl_rank_place_choose(0, 0, 1000, &place);
    CHECK_EQ(place.cpus, 1);
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

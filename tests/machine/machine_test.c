/* machine_test.c: descriptions of machines as files, samples made points, where ranks run. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/thread.h"
#include "machine/device_choice.h"
#include "machine/machine_place.h"
#include "machine/measure.h"
#include "test.h"

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
    d->rates.attention_fraction = 0.5;
    d->rates.update_slowdown = 0.125;
    d->rates.move_update_slowdown = 0.375;
    d->rates.host_kernels[SL_OP_UPDATE] = (sl_rates){ 1, { { 28000, 2e-6 } } };
    for (int i = 0; i < 4; i++) d->rates.narrow_updates[i / 2][i % 2] = (sl_rates){ 1, { { 14000, 1e-6 * (i + 1) } } };
    d->is_cuda = true;
    snprintf(d->gpu, sizeof d->gpu, "GPU \"of\" 2026");
    d->pinnable_bytes = 98765432109;
    d->rates.copies[SL_LINK_TO_HOST] = (sl_rates){ 1, { { 4096, 1e-6 } } };
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
    for (int op = 0; op < SL_OP_COUNT; op++) check_rates(&back.rates.host_kernels[op], &d.rates.host_kernels[op]);
    for (int i = 0; i < 4; i++)
        check_rates(&back.rates.narrow_updates[i / 2][i % 2], &d.rates.narrow_updates[i / 2][i % 2]);
    CHECK(back.rates.attention_fraction == 0.5);
    CHECK(back.rates.update_slowdown == 0.125 && back.rates.move_update_slowdown == 0.375);
    CHECK(back.is_cuda);
    CHECK_STR(back.gpu, "GPU of 2026"); /* as JSON needs no escapes for */
    CHECK_EQ(back.pinnable_bytes, 98765432109);
    for (int i = 0; i < 2; i++) check_rates(&back.rates.copies[i], &d.rates.copies[i]);
    check_rates(&back.rates.gather, &d.rates.gather);
    check_rates(&back.rates.reduce, &d.rates.reduce);
}

TEST(a_machine_that_was_not_measured_needs_no_points)
{
    char path[4200];
    sl_machine_description d = { .shared_memory = false }, back;
    sl_machine_default(&d.rates);
    d.rates.capacity[SL_TIER_DEVICE] = d.rates.capacity[SL_TIER_HOST] = (uint64_t)1 << 30;
    temporary(path, sizeof path);
    REQUIRE_OK(sl_machine_write(path, &d));
    REQUIRE_OK(sl_machine_read(path, &back));
    CHECK_EQ(back.ranks, 0);
    CHECK_EQ(back.rates.kernels[SL_RATE_F32][SL_OP_LINEAR].count, 0);
    CHECK_EQ(back.rates.kernels[SL_RATE_16BIT][SL_OP_LINEAR].count, 0);
    CHECK(back.rates.gemm_16bit_flops == 0);
    CHECK_EQ(back.rates.kernels_take_turns, false);
    CHECK_EQ(back.pinnable_bytes, 0);
    CHECK_STR(back.gpu, "");
    CHECK(!back.is_cuda);
}

#define GENERAL                                                                                                        \
    "{\"sluice_machine\": 1, \"gemm_flops\": 1e9, \"vector_flops\": 1e9, \"device_bytes_per_second\": 1e9,"            \
    "\"update_bytes_per_second\": 1e9, \"to_device_bytes_per_second\": 1e9, \"to_host_bytes_per_second\": 1e9,"        \
    "\"comm_bytes_per_second\": 1e9, \"link_latency\": 0, \"kernel_latency\": 0, \"comm_latency\": 0,"                 \
    "\"device_bytes\": \"1GiB\", \"host_bytes\": \"1GiB\", \"shared_memory\": true, \"copies_overlap\": true"

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
        { ",\n\"update_slowdown\": \"x\"}", ":2:", "update_slowdown must be a number, 0 or more" },
        { ",\n\"gpu\": 7}", ":2:", "gpu must be text of at most 63 bytes" },
        { ",\n\"pinnable_bytes\": -1}", ":2:", "pinnable_bytes must be a whole number of bytes" },
        { ",\n\"host_kernels\": {\n\"update\": 1}}", ":3:", "host_kernels.update must be" },
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

#define ESSENTIAL                                                                                                      \
    "{\"sluice_machine\": 1, \"gemm_flops\": 4e13, \"device_bytes_per_second\": 9e11, \"device_bytes\": \"24GiB\","    \
    "\"host_bytes\": \"64GiB\""

static sluice_status read_text(const char *text, const char *rest, sl_machine_description *d)
{
    char path[4200];
    temporary(path, sizeof path);
    FILE *f = fopen(path, "w");
    fprintf(f, "%s%s", text, rest);
    fclose(f);
    return sl_machine_read(path, d);
}

TEST(four_members_are_enough_and_the_rest_follows_from_them)
{
    sl_machine_description gpu, cpu, told;
    REQUIRE_OK(read_text(ESSENTIAL, ", \"cuda\": true}", &gpu));
    REQUIRE_OK(read_text(ESSENTIAL, "}", &cpu));
    REQUIRE_OK(read_text(ESSENTIAL, ", \"to_host_bytes_per_second\": 5e10, \"shared_memory\": false}", &told));
    CHECK(gpu.is_cuda && !gpu.shared_memory && gpu.rates.copies_overlap);
    CHECK(gpu.rates.vector_flops == 4e13 && gpu.rates.link_bytes_per_second[SL_LINK_TO_DEVICE] == 25e9);
    CHECK(gpu.rates.update_bytes_per_second == 40e9 && gpu.rates.link_latency == 10e-6);
    CHECK(cpu.shared_memory && !cpu.is_cuda && cpu.rates.vector_flops == 5e12);
    CHECK(!told.shared_memory && told.rates.link_bytes_per_second[SL_LINK_TO_DEVICE] == 5e10);
    CHECK(told.rates.comm_bytes_per_second == 2.5e10);
}

TEST(all_that_is_missing_is_named_at_once)
{
    sl_machine_description d;
    CHECK_EQ(read_text("{\"sluice_machine\": 1, \"device_bytes\": 1", "}", &d), SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), "missing: \"gemm_flops\", a number above 0; \"device_bytes_per_second\"");
    CHECK_CONTAINS(sluice_error(), "\"host_bytes\", a whole number of bytes");
    CHECK(strstr(sluice_error(), "\"vector_flops\"") == NULL && strstr(sluice_error(), "\"device_bytes\"") == NULL);
}

TEST(numbers_that_no_machine_has_are_refused)
{
    static const struct {
        const char *rest, *message;
    } cases[] = {
        { ",\n\"gemm_16bit_flops\": 989}", ":2: gemm_16bit_flops is 989, which no machine has; rates are per second" },
        { ",\n\"to_host_bytes_per_second\": 55}", "55 GB/s is 5.5e10" },
        { ",\n\"gemm_16bit_flops\": 1e30}", "is 1e+30, which no machine has" },
        { ",\n\"kernel_latency\": 3}", ":2: kernel_latency is 3, which no machine has; latencies are in seconds" },
        { ",\n\"to_host_bytes_per_second\": -1}", "to_host_bytes_per_second must be a number above 0" },
        { ",\n\"cuda\": true, \"pinnable_bytes\": \"65GiB\"}", "more than the 68719476736 of host_bytes" },
        { ",\n\"attention_fraction\": 60}", ":2: attention_fraction is 60; it is a share" },
    };
    sl_machine_description d;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        CHECK_EQ(read_text(ESSENTIAL, cases[i].rest, &d), SLUICE_ERR_INPUT);
        CHECK_CONTAINS(sluice_error(), cases[i].message);
    }
    CHECK_EQ(read_text("{\"sluice_machine\": 1, \"gemm_flops\": 4e13, \"device_bytes_per_second\": 9e11, "
                       "\"host_bytes\": 0, \"device_bytes\": 24",
                       "}", &d),
             SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), "device_bytes is 24, too little for anything");
}

/* As written before there were rates of GPUs. */
TEST(a_file_of_a_cpu_has_nothing_apart)
{
    char path[4200];
    sl_machine_description d;
    temporary(path, sizeof path);
    FILE *f = fopen(path, "w");
    fprintf(f, "%s, \"kernels\": {\"update\": [[28, 0.5]]}}", GENERAL);
    fclose(f);
    REQUIRE_OK(sl_machine_read(path, &d));
    CHECK(!d.is_cuda && d.rates.update_slowdown == 0 && d.rates.move_update_slowdown == 0);
    CHECK(d.rates.attention_fraction == 1);
    CHECK(sl_machine_update_rates(&d.rates, true, SL_FORM_BLOCKS8)->points[0].seconds == 0.5);
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
    CHECK(sl_machine_gemm_flops(m, true) == 1e9);
    d.rates.kernels[SL_RATE_16BIT][SL_OP_LINEAR] = (sl_rates){ 1, { { 1e6, 0.25 } } };
    d.rates.gemm_16bit_flops = 7;
    CHECK(sl_machine_kernel_rates(m, SL_OP_LINEAR, true)->points[0].seconds == 0.25);
    CHECK(sl_machine_kernel_rates(m, SL_OP_LINEAR, false)->points[0].seconds == 0.5);
    CHECK(sl_machine_gemm_flops(m, true) == 7 && sl_machine_gemm_flops(m, false) == 1e9);
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

TEST(by_default_memory_is_as_fast_as_so_many_threads_can_use)
{
    static const struct {
        int threads;
        double rate;
    } cases[] = { { 1, 10e9 }, { 2, 20e9 }, { 4, 40e9 }, { 8, 85e9 }, { 16, 115e9 }, { 64, 115e9 } };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sl_machine m;
        sl_machine_describe(SL_ISA_AVX2, cases[i].threads, &m);
        CHECK_NEAR(m.update_bytes_per_second, cases[i].rate, 1);
        CHECK_NEAR(m.device_bytes_per_second, cases[i].rate, 1);
    }
}

TEST(by_default_a_gpu_of_the_newest_class_is_as_fast_as_such_ones_were_measured)
{
    const sl_cuda_facts h200 = { .major = 9, .multiprocessors = 132 }, older = { .major = 8, .multiprocessors = 108 };
    sl_machine m, slower;
    sl_machine_describe(SL_ISA_AVX512, 16, &m);
    sl_machine_describe(SL_ISA_AVX512, 1, &slower);
    sl_machine_describe_cuda(&h200, &m);
    sl_machine_describe_cuda(&older, &slower);
    CHECK_NEAR(sl_machine_gemm_flops(&m, true), 713e12, 5e12);
    CHECK_NEAR(m.device_bytes_per_second, 3.83e12, 0.05e12);
    CHECK_NEAR(m.attention_fraction * m.share[SL_OP_ATTENTION], 0.57, 1e-12);
    CHECK(slower.share[SL_OP_ATTENTION] != m.share[SL_OP_ATTENTION] && m.share[SL_OP_DROPOUT] < 1);
    CHECK_NEAR(m.update_bytes_per_second, 115e9, 1);
    CHECK_NEAR(slower.update_bytes_per_second, 22e9, 1);
    CHECK(m.copies_overlap && !m.kernels_take_turns);
    CHECK(m.update_slowdown > 0 && m.move_update_slowdown > 0 && m.kernel_slowdown == 0);
    CHECK(slower.gemm_16bit_flops < m.gemm_16bit_flops);
}

/* Of what was not measured. A file has none; where it says what attention reaches, as older ones do, that holds. */
TEST(a_file_of_a_measured_gpu_has_the_shares_of_its_kind)
{
    static const struct {
        const char *text;
        double conv, attention;
    } cases[] = {
        { ", \"cuda\": true, \"gpu\": \"NVIDIA H200\", \"measured_ranks\": 1}", 0.72, 0.57 },
        { ", \"cuda\": true, \"gpu\": \"NVIDIA A100-SXM4-80GB\", \"measured_ranks\": 1, \"attention_fraction\": 0.5}",
          0.72, 0.5 },
        { ", \"cuda\": true, \"gpu\": \"NVIDIA H200\"}", 0, 0 }, /* told, not measured */
        { ", \"measured_ranks\": 1}", 0, 0 },
    };
    char path[4200];
    temporary(path, sizeof path);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sl_machine_description d;
        FILE *f = fopen(path, "w");
        fprintf(f, "%s%s", GENERAL, cases[i].text);
        fclose(f);
        REQUIRE_OK(sl_machine_read(path, &d));
        const sl_machine *m = &d.rates;
        CHECK_NEAR(m->share[SL_OP_CONV2D], cases[i].conv, 1e-12);
        if (cases[i].attention > 0)
            CHECK_NEAR(m->attention_fraction * m->share[SL_OP_ATTENTION], cases[i].attention, 1e-12);
    }
}

/* On a GPU; a CPU without them computes in f32. */
TEST(products_of_16_bits_that_were_not_measured_are_not_those_of_f32)
{
    sl_machine m = { .gemm_16bit_flops = 7 };
    m.kernels[SL_RATE_F32][SL_OP_CONV2D] = m.kernels[SL_RATE_F32][SL_OP_ADD] = (sl_rates){ 1, { { 1, 1 } } };
    CHECK_EQ(sl_machine_kernel_rates(&m, SL_OP_CONV2D, true)->count, 0);
    CHECK_EQ(sl_machine_kernel_rates(&m, SL_OP_ADD, true)->count, 1);
    m.kernels_take_turns = true;
    CHECK_EQ(sl_machine_kernel_rates(&m, SL_OP_CONV2D, true)->count, 1);
}

/* ---- which kernels are measured ---- */

#define TOKENS(type_, layers_)                                                                                         \
    .type = (type_), .batch = 2, .context = 32, .width = 64, .layers = (layers_), .heads = 4, .vocabulary = 65
#define IMAGES(type_) .type = (type_), .batch = 2, .image = { 32, 32, 3 }, .outputs = 10
#define NUMBERS(activation_, loss_)                                                                                    \
    .type = "mlp", .batch = 8, .features = 32, .hidden = { 20 }, .hidden_count = 1, .outputs = 10,                     \
    .activation = (activation_), .loss = (loss_)

/* What kernels a family has, in the ways in which it is trained. */
static const char *const every_linear[] = { "all-linear" };
/* clang-format off */
static const sl_model_options families[] = {
    { .type = "linear", .batch = 4, .features = 3, .outputs = 2, .bias = true },
    { NUMBERS("relu", "cross_entropy"), .bias = true }, { NUMBERS("gelu", "bce") }, { NUMBERS("silu", "mse") },
    { IMAGES("cnn"), .filters = { 8, 8 }, .filter_count = 2, .kernel = 3, .pool = 2, .hidden = { 32 }, .hidden_count = 1, .dropout = 0.1 },
    { IMAGES("resnet"), .depth = 18, .stem = "cifar" }, { IMAGES("resnet"), .depth = 50, .batch_norm = "all_ranks" },
    { IMAGES("vit"), .patch = 8, .layers = 1, .heads = 4, .width = 64, .dropout = 0.1 },
    { .type = "recommender", .batch = 4, .columns = { 3, 4, 50 }, .bottom = { 8 }, .bottom_count = 1, .top = { 8 }, .top_count = 1,
      .embedding = 4, .sparse = true },
    { .type = "speech", .batch = 2, .speech = { 51, 20, 5 }, .filters = { 4 }, .filter_count = 1, .frame_stride = 2, .layers = 1,
      .width = 8, .outputs = 7, .dropout = 0.1 },
    { TOKENS("bert", 1), .dropout = 0.1 }, { TOKENS("bert", 1), .head = "classifier", .outputs = 2 },
    { TOKENS("gpt2", 1), .dropout = 0.1 }, { TOKENS("gpt2", 1), .packed = true, .logits = true },
    { TOKENS("llama", 1), .lora = { .rank = 4, .targets = every_linear, .target_count = 1, .dropout = 0.1 } },
    { TOKENS("llama", 1), .packed = true, .untied = true }, { TOKENS("mistral", 1) }, { TOKENS("qwen2", 1) }, { TOKENS("qwen3", 1) },
    { TOKENS("phi3", 1) }, { TOKENS("gemma", 1) }, { TOKENS("gemma2", 2) }, { TOKENS("gemma3_text", 7) },
};
/* clang-format on */

typedef struct kernels {
    bool of[SL_RATE_TYPES][SL_OP_COUNT];
} kernels;

static void add_kernels_of(const sl_model_options *o, sluice_dtype precision, kernels *k)
{
    sluice_graph *g;
    sl_model_info info;
    REQUIRE_OK(sluice_graph_create(&g));
    REQUIRE_OK(sl_model_build(g, o, &info));
    REQUIRE_OK(sl_graph_finish(g));
    REQUIRE_OK(sl_graph_lower(g, precision, precision));
    REQUIRE_OK(sl_graph_differentiate(g));
    for (int i = 0; i < g->forward_count + g->backward_count; i++) {
        const sl_node *node = &g->nodes[i];
        if (sl_ops[node->op].view || sl_ops[node->op].cost == NULL) continue;
        const sl_cost cost = sl_ops[node->op].cost(g, node);
        if (cost.flops > 0 || cost.bytes > 0) k->of[sl_node_type(g, node) != SLUICE_F32][node->op] = true;
    }
    sluice_graph_destroy(g);
}

static void add_list(const sl_model_options *list, int count, sluice_dtype precision, kernels *k)
{
    for (int i = 0; i < count; i++) add_kernels_of(&list[i], precision, k);
}

/* So that a machine file knows them all. CAST is measured among the updates. */
TEST(every_kernel_of_every_family_is_measured)
{
    const sl_bench_scale *const scales[] = { &sl_bench_cpu, &sl_bench_gpu };
    const int count = (int)(sizeof families / sizeof families[0]);
    static kernels used;
    for (const char *at = sl_model_names(); *at != '\0'; at += strspn(at, ", ")) {
        const size_t length = strcspn(at, ",");
        bool listed = false;
        for (int i = 0; i < count; i++)
            listed = listed || (strlen(families[i].type) == length && strncmp(families[i].type, at, length) == 0);
        if (!listed) test_fail(__FILE__, __LINE__, "%.*s is in no row above", (int)length, at);
        at += length;
    }
    add_list(families, count, SLUICE_BF16, &used);
    add_list(families, count, SLUICE_F32, &used);
    for (int s = 0; s < 2; s++) {
        kernels measured = { .of = { { false } } };
        add_list(scales[s]->models, scales[s]->model_count, SLUICE_BF16, &measured);
        add_list(scales[s]->wide_models, scales[s]->wide_model_count, SLUICE_F32, &measured);
        add_list(scales[s]->others, scales[s]->other_count, SLUICE_BF16, &measured);
        add_list(scales[s]->others, scales[s]->other_count, SLUICE_F32, &measured);
        for (int op = 0; op < SL_OP_COUNT; op++)
            for (int t = 0; t < SL_RATE_TYPES; t++)
                if (used.of[t][op] && !measured.of[t][op] && op != SL_OP_CAST)
                    test_fail(__FILE__, __LINE__, "%s has no model with %s in %s", s == 0 ? "the CPU" : "the GPU",
                              sl_ops[op].name, t == SL_RATE_F32 ? "f32" : "16 bits");
    }
}

/* ---- measuring as on a GPU, where there is none ---- */

static const sl_model_options tiny_models[] = {
    { .type = "llama",
      .batch = 1,
      .context = 32,
      .width = 64,
      .layers = 1,
      .heads = 2,
      .kv_heads = 1,
      .feed_forward = 64,
      .vocabulary = 128 },
    { .type = "gpt2", .batch = 2, .context = 64, .width = 64, .layers = 1, .heads = 1, .vocabulary = 128 },
};
static const int64_t tiny_flats[] = { 1 << 11, 1 << 15, (int64_t)1 << 33 }; /* the last fits nowhere */
static const uint64_t tiny_copies[] = { 1 << 12, 1 << 20, (uint64_t)1 << 40 };

static const sl_bench_scale tiny_scale = {
    .discrete = true,
    .round_seconds = 100e-6,
    .long_seconds = 1,
    .rounds = 3,
    .long_rounds = 1,
    .most_calls = 64,
    .region = { (uint64_t)128 << 20, (uint64_t)128 << 20 },
    .id_bytes = 1 << 12,
    .ids = 127,
    .node_seconds = 1,
    .models = tiny_models,
    .wide_models = tiny_models,
    .model_count = 2,
    .wide_model_count = 1,
    .weights = SL_FORM_BF16,
    .flats = tiny_flats,
    .flat_count = 3,
    .copies = tiny_copies,
    .copy_count = 3,
    .gemm_side = 128,
    .contention_update = 1 << 16,
    .contention_copy = 1 << 20,
};

static void check_measured(const sl_rates *r, int at_least)
{
    CHECK(r->count >= at_least);
    for (int i = 0; i < r->count; i++) CHECK(r->points[i].seconds > 0 && r->points[i].seconds < 1);
}

static void measure_tiny(const sl_device_choice *device, sl_machine *m)
{
    sl_comm *self;
    uint64_t pinnable = 1;
    sl_machine_describe(sl_isa_best(), 2, m);
    m->kernels_take_turns = false;
    REQUIRE_OK(sl_comm_self_open(&self));
    CHECK_EQ(sl_bench_measure(self, device, &tiny_scale, sl_isa_best(), NULL, m, &pinnable), SLUICE_OK);
    CHECK_EQ(pinnable, 0);
    self->ops->close(self);
}

TEST(a_discrete_device_is_measured_together_with_its_host)
{
    static const sl_op narrow[] = { SL_OP_LINEAR,
                                    SL_OP_LINEAR_GRAD_INPUT,
                                    SL_OP_LINEAR_GRAD_WEIGHT,
                                    SL_OP_ATTENTION,
                                    SL_OP_ATTENTION_GRAD,
                                    SL_OP_LINEAR_CROSS_ENTROPY,
                                    SL_OP_SWIGLU,
                                    SL_OP_SWIGLU_GRAD,
                                    SL_OP_LINEAR_GELU,
                                    SL_OP_RMS_NORM,
                                    SL_OP_LAYER_NORM,
                                    SL_OP_ROTARY,
                                    SL_OP_ADD,
                                    SL_OP_EMBEDDING,
                                    SL_OP_RMS_NORM_GRAD,
                                    SL_OP_LINEAR_GRAD_GELU };
    static const sl_op flats[] = { SL_OP_UPDATE, SL_OP_NORM_LEAVES, SL_OP_NORM_FINISH, SL_OP_ACCUMULATE, SL_OP_CAST };
    sl_device_choice cpu;
    sl_machine m;
    REQUIRE_OK(sl_device_choose(SLUICE_DEVICE_CPU, 0, 1, &cpu));
    measure_tiny(&cpu, &m);
    for (size_t i = 0; i < sizeof narrow / sizeof narrow[0]; i++)
        check_measured(&m.kernels[SL_RATE_16BIT][narrow[i]], 1);
    for (int i = 0; i < 2; i++) { /* the general rate of memory is at least that of the largest of each */
        const sl_rates *r = &m.kernels[SL_RATE_16BIT][i == 0 ? SL_OP_ADD : SL_OP_SWIGLU];
        const sl_rate_point *largest = &r->points[r->count - 1];
        CHECK(r->count > 0 && m.device_bytes_per_second >= largest->work / largest->seconds);
    }
    CHECK_EQ(m.kernels[SL_RATE_F32][SL_OP_GELU].count, 0); /* of the second model, which is too large for f32 */
    for (size_t i = 0; i < sizeof flats / sizeof flats[0]; i++) {
        check_measured(&m.kernels[SL_RATE_F32][flats[i]], 2);
        check_measured(&m.host_kernels[flats[i]], 2);
    }
    CHECK_EQ(m.host_kernels[SL_OP_UPDATE].count, 2);
    for (int i = 0; i < 4; i++) check_measured(&m.narrow_updates[i / 2][i % 2], 2);
    CHECK_EQ(m.copies[SL_LINK_TO_DEVICE].count, 2);
    CHECK_EQ(m.copies[SL_LINK_TO_HOST].count, 2);
    CHECK(m.update_slowdown >= 0 && m.update_slowdown < 1000);
    CHECK(m.move_update_slowdown >= 0 && m.move_slowdown >= 0 && m.kernel_slowdown >= 0);
}

/* ---- how long measuring takes, and what is said of it ---- */

/* Everything that was written to `f`. */
static const char *written(FILE *f)
{
    static char text[8192];
    rewind(f);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    return text;
}

static void measure_with_progress(const sl_bench_scale *scale, FILE *progress, sl_machine *m)
{
    sl_device_choice cpu;
    sl_comm *self;
    uint64_t pinnable;
    REQUIRE_OK(sl_device_choose(SLUICE_DEVICE_CPU, 0, 1, &cpu));
    sl_machine_describe(sl_isa_best(), 2, m);
    m->kernels_take_turns = false;
    REQUIRE_OK(sl_comm_self_open(&self));
    CHECK_EQ(sl_bench_measure(self, &cpu, scale, sl_isa_best(), progress, m, &pinnable), SLUICE_OK);
    self->ops->close(self);
}

TEST(what_is_measured_is_said_group_by_group)
{
    static const char *const groups[] = { "opening the device",        "bf16: llama 1x32, width 64",
                                          "bf16: gpt2 2x64, width 64", "f32: llama 1x32",
                                          "updates on the device",     "updates on the host",
                                          "copies              ",      "GEMMs, copies and updates at once" };
    sl_machine m;
    FILE *f = tmpfile();
    REQUIRE(f != NULL);
    measure_with_progress(&tiny_scale, f, &m);
    const char *text = written(f);
    for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++) CHECK_CONTAINS(text, groups[i]);
    CHECK_CONTAINS(text, " s, ");
    CHECK_CONTAINS(text, " timed, longest ");
    CHECK(strstr(text, "skipped") == NULL);
    fclose(f);
}

/* What matters most is measured all the same: the largest updates and copies. */
TEST(what_there_is_no_time_for_is_left_out_and_said)
{
    sl_bench_scale hurried = tiny_scale;
    sl_machine m;
    FILE *f = tmpfile();
    REQUIRE(f != NULL);
    for (int g = 0; g < SL_BENCH_GROUPS; g++) hurried.group_seconds[g] = 1e-9;
    measure_with_progress(&hurried, f, &m);
    CHECK_CONTAINS(written(f), " skipped for lack of time");
    CHECK_EQ(m.kernels[SL_RATE_16BIT][SL_OP_LINEAR].count, 0);
    CHECK_EQ(m.host_kernels[SL_OP_UPDATE].count, 1);
    CHECK_NEAR(m.host_kernels[SL_OP_UPDATE].points[0].work, 26.0 * 32768, 1e-9);
    CHECK_EQ(m.copies[SL_LINK_TO_DEVICE].count, 1);
    CHECK(m.copies[SL_LINK_TO_DEVICE].points[0].work == 1 << 20 && m.copies[SL_LINK_TO_DEVICE].points[0].seconds > 0);
    CHECK(m.link_bytes_per_second[SL_LINK_TO_DEVICE] > 0 && m.gemm_flops > 0 && m.device_bytes_per_second > 0);
    fclose(f);
}

typedef struct counted_nap {
    double seconds;
    int calls;
} counted_nap;

static sluice_status take_nap(sl_bench *b, void *what)
{
    counted_nap *n = what;
    (void)b;
    for (double end = sl_now() + n->seconds; sl_now() < end;) continue;
    n->calls++;
    return SLUICE_OK;
}

/* How many calls a measurement of one that takes so long has. */
static int calls_of(const sl_bench_scale *scale, bool sustained, double seconds)
{
    sl_bench b = { .scale = *scale, .backend = &sl_cpu_backend, .ranks = 1, .sustained = sustained };
    counted_nap n = { seconds, 0 };
    sl_device_options options = { .threads = 1, .isa = SL_ISA_SCALAR };
    double each;
    CHECK_EQ(sl_cpu_backend.open(&options, &b.device), SLUICE_OK);
    CHECK_EQ(sl_bench_time(&b, NULL, take_nap, &n, &each), SLUICE_OK);
    CHECK(each >= seconds);
    sl_cpu_backend.close(b.device);
    return n.calls;
}

TEST(a_slow_call_is_measured_less_often_and_one_that_is_kept_up_more_often)
{
    sl_bench_scale scale = tiny_scale;
    scale.rounds = 9;
    scale.sample_seconds = 8e-3;
    CHECK(calls_of(&scale, false, 2e-3) <= 2 + 4);
    CHECK_EQ(calls_of(&scale, false, 10e-3), 2);
    scale.sample_seconds = 0;
    CHECK_EQ(calls_of(&scale, false, 2e-3), 2 + 9);
    scale.sustained_from = 1e-3;
    scale.sustained_seconds = 1e-3;
    scale.sustained_calls = 30;
    CHECK(calls_of(&scale, true, 2e-3) >= 30);
    CHECK_EQ(calls_of(&scale, false, 2e-3), 2 + 9);
}

TEST(points_lie_where_the_samples_are)
{
    sl_samples s = { 0 };
    sl_rates r;
    for (int i = 0; i < 40; i++) REQUIRE_OK(sl_samples_add(&s, 1e11 * pow(10, i / 40.0), 1e-3, 1));
    REQUIRE_OK(sl_samples_add(&s, 1e3, 1e-6, 1));
    REQUIRE_OK(sl_samples_to_rates(&s, &r));
    CHECK_EQ(r.count, SL_RATE_POINTS);
    CHECK_NEAR(r.points[0].work, 1e3, 1e-6);
    CHECK(r.points[1].work > 1e11);
    sl_samples_free(&s);
}

/* Work as the plan counts it: 2 bytes of gradient, 8 of the master, moments in and out. */
TEST(the_work_of_a_measured_update_is_what_the_plan_charges)
{
    sl_device_choice cpu;
    sl_machine m;
    REQUIRE_OK(sl_device_choose(SLUICE_DEVICE_CPU, 0, 1, &cpu));
    measure_tiny(&cpu, &m);
    CHECK_NEAR(m.host_kernels[SL_OP_UPDATE].points[1].work, 26.0 * 32768, 1e-9);
    CHECK_NEAR(m.narrow_updates[1][0].points[1].work, 18.0 * 32768, 1e-9);
    CHECK_NEAR(m.narrow_updates[1][1].points[1].work, (10 + 4 * (1 + 4.0 / 1024)) * 32768, 1e-9);
    CHECK_NEAR(m.host_kernels[SL_OP_NORM_LEAVES].points[1].work, 2.0 * 32768 + 32 * 8, 1e-9);
}

TEST(operands_of_a_call_are_adjacent_in_their_region)
{
    sl_bench b = { .scale = tiny_scale };
    uint64_t region = b.scale.region[SL_TIER_DEVICE];
    CHECK(!sl_bench_make_room(&b, SL_TIER_DEVICE, region, 1));
    CHECK(!sl_bench_make_room(&b, SL_TIER_DEVICE, 1, region));
    b.read_at[SL_TIER_DEVICE] = region - 1024;
    CHECK(sl_bench_make_room(&b, SL_TIER_DEVICE, 4000, 0));
    sl_span x = sl_bench_read_span(&b, SL_TIER_DEVICE, 2000), y = sl_bench_read_span(&b, SL_TIER_DEVICE, 2000);
    CHECK_EQ(x.offset, b.scale.id_bytes);
    CHECK_EQ(y.offset, x.offset + 2048);
    sl_span z = sl_bench_written_span(&b, SL_TIER_DEVICE, 1);
    CHECK_EQ(z.offset, b.scale.id_bytes + region);
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
    if (!sl_topology_built_in()) SKIP(hwloc, "hwloc is not built in");
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
        REQUIRE_OK(sl_samples_add(&s, work, work / 1e6, 1));
    }
    REQUIRE_OK(sl_samples_to_rates(&s, &r));
    CHECK(r.count > 1 && r.count <= SL_RATE_POINTS);
    for (int i = 0; i < r.count; i++) {
        CHECK_NEAR(r.points[i].work / r.points[i].seconds, 1e6, 1e-3);
        if (i > 0) CHECK(r.points[i].work > r.points[i - 1].work);
    }
    sl_samples_free(&s);
}

TEST(samples_of_the_same_work_become_one_point_of_what_they_take_in_all)
{
    sl_samples s = { 0 };
    sl_rates r;
    REQUIRE_OK(sl_samples_add(&s, 100, 1, 1));
    REQUIRE_OK(sl_samples_add(&s, 100, 4, 2)); /* two such kernels */
    REQUIRE_OK(sl_samples_to_rates(&s, &r));
    CHECK_EQ(r.count, 1);
    CHECK_NEAR(r.points[0].seconds, 3, 1e-12);
    sl_samples_free(&s);
}

/* Kernels of any shapes, of which each point stands for many: a graph of them is expected to take what they took. */
TEST(points_of_many_samples_take_as_long_as_these)
{
    sl_samples s = { 0 };
    sl_rates r;
    double measured = 0, expected = 0;
    for (int i = 0; i < 40; i++)
        REQUIRE_OK(sl_samples_add(&s, 1e9 * (1 + i * 7 % 40), 1e-3 * (1 + i * 7 % 40) * (1 + i % 5), 1 + i % 3));
    for (int i = 0; i < 40; i++) measured += s.samples[i].times * s.samples[i].seconds;
    REQUIRE_OK(sl_samples_to_rates(&s, &r));
    CHECK_EQ(r.count, SL_RATE_POINTS);
    for (int i = 0; i < 40; i++) expected += s.samples[i].times * sl_rates_seconds(&r, s.samples[i].work, 0);
    CHECK_NEAR(expected / measured, 1, 0.05);
    sl_samples_free(&s);
}

/* ---- budgets ---- */

#define GIB ((uint64_t)1 << 30)

static sl_plan_options told(uint64_t device, uint64_t host)
{
    return (sl_plan_options){ .budget = { device, host } };
}

static void check_budgets(const sl_plan_options *o, uint64_t device, uint64_t host, uint64_t together)
{
    CHECK_EQ(o->budget[SL_TIER_DEVICE], device);
    CHECK_EQ(o->budget[SL_TIER_HOST], host);
    CHECK_EQ(o->budget_together, together);
}

TEST(budgets_that_are_not_told_are_all_there_is)
{
    sl_shortage x;
    sl_plan_options o = told(0, 0);
    sl_machine_budgets(&o, 8 * GIB, &x);
    check_budgets(&o, 8 * GIB, 8 * GIB, 8 * GIB);
    CHECK(x.keys == NULL && o.automatic[SL_TIER_DEVICE] && o.automatic[SL_TIER_HOST]);
    o = told(3 * GIB, 0);
    sl_machine_budgets(&o, 8 * GIB, &x);
    check_budgets(&o, 3 * GIB, 8 * GIB, 8 * GIB);
    CHECK(x.keys == NULL && !o.automatic[SL_TIER_DEVICE] && o.automatic[SL_TIER_HOST]);
}

TEST(a_budget_of_more_than_there_is_stays_and_is_named)
{
    static const struct {
        uint64_t device, host, told;
        const char *keys;
        bool both;
    } cases[] = { { 24 * GIB, 0, 24 * GIB, "memory.device", false },
                  { 24 * GIB, 1, 24 * GIB, "memory.device", false },
                  { 0, 9 * GIB, 9 * GIB, "memory.host", false },
                  { 1, 9 * GIB, 9 * GIB, "memory.host", false },
                  { 24 * GIB, 128 * GIB, 152 * GIB, "memory.device and memory.host", true },
                  { 5 * GIB, 4 * GIB, 9 * GIB, "memory.device and memory.host", true } };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sl_shortage x;
        sl_plan_options o = told(cases[i].device, cases[i].host);
        sl_machine_budgets(&o, 8 * GIB, &x);
        uint64_t device = cases[i].device > 0 ? cases[i].device : 8 * GIB;
        uint64_t host = cases[i].host > 0 ? cases[i].host : 8 * GIB;
        check_budgets(&o, device, host, device + host);
        REQUIRE(x.keys != NULL);
        CHECK_STR(x.keys, cases[i].keys);
        CHECK_EQ(x.told, cases[i].told);
        CHECK_EQ(x.has, 8 * GIB);
        CHECK_EQ(x.both, cases[i].both);
    }
}

TEST(budgets_that_fill_the_machine_are_no_shortage)
{
    sl_shortage x;
    sl_plan_options o = told(5 * GIB, 3 * GIB);
    sl_machine_budgets(&o, 8 * GIB, &x);
    check_budgets(&o, 5 * GIB, 3 * GIB, 8 * GIB);
    CHECK(x.keys == NULL);
}

/* Of a GPU the setting counts what the driver takes, and the arena gets the rest. */
TEST(the_budget_of_a_gpu_includes_what_the_driver_takes_of_it)
{
    const uint64_t taken = SL_CUDA_OVERHEAD_BYTES;
    sl_shortage x;
    sl_plan_options o = told(20 * GIB, 0);
    sl_machine_split_budgets(&o, 20 * GIB - taken, 64 * GIB, &x);
    check_budgets(&o, 20 * GIB - taken, 64 * GIB, 0);
    CHECK(x.keys == NULL);
    CHECK_EQ(o.outside[SL_TIER_DEVICE], taken);
    o = told(20 * GIB + 1, 0);
    sl_machine_split_budgets(&o, 20 * GIB - taken, 64 * GIB, &x);
    check_budgets(&o, 20 * GIB + 1 - taken, 64 * GIB, 0);
    CHECK_STR(x.keys, "memory.device");
    CHECK_EQ(x.told, 20 * GIB + 1);
    CHECK_EQ(x.has, 20 * GIB);
    CHECK(x.on_device);
    o = told(1024, 65 * GIB); /* less than the driver takes: told as it was given */
    sl_machine_split_budgets(&o, 20 * GIB - taken, 64 * GIB, &x);
    check_budgets(&o, 1, 65 * GIB, 0);
    CHECK_EQ(o.told[SL_TIER_DEVICE], 1024);
    CHECK_STR(x.keys, "memory.host");
    CHECK(!x.on_device);
}

TEST(what_a_described_machine_lacks_is_named_likewise)
{
    sl_machine_description d = { .shared_memory = false };
    sl_shortage x;
    d.rates.capacity[SL_TIER_DEVICE] = 20 * GIB;
    d.rates.capacity[SL_TIER_HOST] = 100 * GIB;
    sl_plan_options o = told(19 * GIB, 96 * GIB);
    sl_machine_described_budgets(&o, &d, &x);
    check_budgets(&o, 19 * GIB, 96 * GIB, 0);
    CHECK_STR(x.keys, "memory.host");
    CHECK_EQ(x.has, 95 * GIB);
    d.shared_memory = true;
    o = told(19 * GIB, 1 * GIB);
    sl_machine_described_budgets(&o, &d, &x);
    CHECK_STR(x.keys, "memory.device and memory.host");
}

/* measure_scale.c: what is measured on a CPU and on a GPU: models whose nodes are timed, sizes of the rest. */
#include "machine/measure.h"

static const char *const every_linear[] = { "all-linear" };

#define COUNT(array) ((int)(sizeof(array) / sizeof(array)[0]))
/* Lists of a scale, each with its length. */
#define MODELS(array_)      .models = (array_), .model_count = COUNT(array_)
#define WIDE_MODELS(array_) .wide_models = (array_), .wide_model_count = COUNT(array_)
#define OTHERS(array_)      .others = (array_), .other_count = COUNT(array_)
#define FLATS(array_)       .flats = (array_), .flat_count = COUNT(array_)
#define COPIES(array_)      .copies = (array_), .copy_count = COUNT(array_)
#define COLLECTIVES(array_) .collectives = (array_), .collective_count = COUNT(array_)

/* ---- a CPU ---- */

enum { CPU_IDS = 65 };

#define CPU_GPT(batch_, context_, width_)                                                                              \
    {                                                                                                                  \
        .type = "gpt2", .batch = (batch_), .context = (context_), .width = (width_), .layers = 1,                      \
        .heads = (width_) / 64, .vocabulary = CPU_IDS, .dropout = 0.1                                                  \
    }
#define CPU_MLP(batch_, width_, activation_)                                                                           \
    {                                                                                                                  \
        .type = "mlp", .batch = (batch_), .bias = true, .activation = (activation_), .features = (width_),             \
        .hidden = { (width_) }, .hidden_count = 1, .outputs = (width_)                                                 \
    }

/* Rows of 64 to 1,024, widths of 64 to 1,024. */
static const sl_model_options cpu_models[] = {
    CPU_GPT(1, 64, 64),       CPU_GPT(2, 128, 128),      CPU_GPT(8, 64, 128),        CPU_GPT(4, 128, 256),
    CPU_GPT(4, 256, 512),     CPU_GPT(2, 256, 1024),     CPU_MLP(64, 64, "relu"),    CPU_MLP(256, 128, "relu"),
    CPU_MLP(64, 512, "silu"), CPU_MLP(256, 256, "silu"), CPU_MLP(1024, 256, "silu"), CPU_MLP(256, 1024, "relu"),
};

/* One of every family whose kernels are not all among those above, small: tests/machine/machine_test.c asks for it. */
#define CPU_DECODER(type_, layers_)                                                                                    \
    .type = (type_), .batch = 4, .context = 128, .width = 256, .layers = (layers_), .heads = 4, .kv_heads = 2,         \
    .vocabulary = CPU_IDS
#define CPU_ENCODER                                                                                                    \
    .type = "bert", .batch = 4, .context = 128, .width = 256, .layers = 1, .heads = 4, .vocabulary = CPU_IDS
#define CPU_WIDE(activation_, loss_)                                                                                   \
    .type = "mlp", .batch = 256, .features = 256, .hidden = { 256 }, .hidden_count = 1, .outputs = 256,                \
    .activation = (activation_), .loss = (loss_)
#define PICTURE                                                                                                        \
    {                                                                                                                  \
        32, 32, 3                                                                                                      \
    }
#define ADAPTERS                                                                                                       \
    {                                                                                                                  \
        .rank = 8, .targets = every_linear, .target_count = 1, .dropout = 0.05                                         \
    }
/* clang-format off */
static const sl_model_options cpu_others[] = {
    { CPU_DECODER("llama", 1), .lora = ADAPTERS },
    { CPU_DECODER("qwen3", 1), .logits = true },
    { CPU_DECODER("gemma2", 2), .packed = true },
    { CPU_ENCODER, .dropout = 0.1 },
    { CPU_ENCODER, .head = "classifier", .outputs = 2 },
    { .type = "vit", .batch = 4, .image = PICTURE, .patch = 4, .width = 192, .layers = 1, .heads = 3, .outputs = 10 },
    { .type = "resnet", .batch = 4, .depth = 18, .stem = "cifar", .image = PICTURE, .outputs = 10 },
    { .type = "cnn", .batch = 8, .image = PICTURE, .filters = { 32, 64 }, .filter_count = 2, .kernel = 3, .pool = 2, .outputs = 10 },
    { .type = "speech", .batch = 4, .speech = { 200, 40, 20 }, .filters = { 32 }, .filter_count = 1, .frame_stride = 2,
      .layers = 1, .width = 128, .outputs = 30 },
    { .type = "recommender", .batch = 128, .columns = { 13, 26, 1000 }, .bottom = { 64 }, .bottom_count = 1, .top = { 64 },
      .top_count = 1, .embedding = 16 },
    { CPU_WIDE("gelu", "bce") },
    { CPU_WIDE("relu", "cross_entropy"), .bias = true },
};
/* clang-format on */

static const int64_t cpu_flats[] = { 1 << 12, 1 << 15, 1 << 18, 1 << 20, 3 << 20 };
static const uint64_t cpu_copies[] = { 16 << 10, 256 << 10, 2 << 20, 16 << 20 };

/* What both scales of a CPU have. */
#define CPU_SIZES                                                                                                      \
    .region = { (uint64_t)48 << 20, (uint64_t)48 << 20 }, .ids = CPU_IDS, .weights = SL_FORM_F32, FLATS(cpu_flats),    \
    COPIES(cpu_copies), COLLECTIVES(cpu_copies), .gemm_side = 512,                                                     \
    .contention_copy = (uint64_t)3 << 20 /* takes somewhat less than the GEMM */

const sl_bench_scale sl_bench_cpu = {
    CPU_SIZES,
    .round_seconds = 400e-6,
    .long_seconds = 20e-3,
    .rounds = 9,
    .long_rounds = 4,
    .most_calls = 256,
    .id_bytes = 1 << 16,
    MODELS(cpu_models),
    .group_seconds = { [SL_BENCH_16BIT] = 15, [SL_BENCH_F32] = 15, [SL_BENCH_UPDATES] = 5, [SL_BENCH_COPIES] = 5 },
    WIDE_MODELS(cpu_models),
    OTHERS(cpu_others),
    .contention_tries = 15,
};

/* A step of a graph is long next to a round, so a few rounds are enough. */
const sl_bench_scale sl_bench_cpu_graph = {
    CPU_SIZES,
    .round_seconds = 300e-6,
    .long_seconds = 5e-3,
    .rounds = 7,
    .long_rounds = 3,
    .most_calls = 64,
    .sample_seconds = 60e-3,
    .id_bytes = 1 << 20,
    .group_seconds = { [SL_BENCH_16BIT] = 0.7,
                       [SL_BENCH_F32] = 0.7,
                       [SL_BENCH_UPDATES] = 0.2,
                       [SL_BENCH_COPIES] = 0.1 },
    .node_seconds = 0.5,
    .contention_tries = 3,
};

/* ---- a GPU ---- */

#define GPU_GPT(batch_, context_, width_, dropout_)                                                                    \
    {                                                                                                                  \
        .type = "gpt2", .batch = (batch_), .context = (context_), .width = (width_), .layers = 1,                      \
        .heads = (width_) / 64, .vocabulary = 50304, .dropout = (dropout_)                                             \
    }
#define GPU_LLAMA(batch_, context_, width_, heads_, feed_forward_, vocabulary_)                                        \
    {                                                                                                                  \
        .type = "llama", .batch = (batch_), .context = (context_), .width = (width_), .layers = 1, .heads = (heads_),  \
        .kv_heads = 8, .feed_forward = (feed_forward_), .vocabulary = (vocabulary_)                                    \
    }

#define GPU_BERT(batch_, context_, width_)                                                                             \
    {                                                                                                                  \
        .type = "bert", .batch = (batch_), .context = (context_), .width = (width_), .layers = 1,                      \
        .heads = (width_) / 64, .vocabulary = 30522, .dropout = 0.1                                                    \
    }
#define GPU_RESNET(batch_, depth_, side_)                                                                              \
    {                                                                                                                  \
        .type = "resnet", .batch = (batch_), .depth = (depth_), .image = { (side_), (side_), 3 }, .outputs = 1000      \
    }
/* First what is trained on one such GPU, in the sizes it is trained with: GEMMs of 1e11 to 5e13 operations, heads of
 * 64 and 128, tensors of up to 1 GB. Then smaller ones. */
static const sl_model_options gpu_models[] = {
    GPU_LLAMA(8, 2048, 3072, 24, 8192, 128256),
    GPU_LLAMA(8, 2048, 2048, 32, 8192, 128256),
    GPU_GPT(64, 1024, 768, 0),
    GPU_LLAMA(8, 2048, 4096, 32, 14336, 128256),
    GPU_BERT(64, 512, 768),
    GPU_RESNET(256, 50, 224),
    GPU_RESNET(128, 152, 224),
    GPU_LLAMA(1, 2048, 5120, 40, 15360, 32000),
    GPU_LLAMA(1, 2048, 2048, 32, 8192, 128256),
    GPU_GPT(4, 1024, 768, 0),
    GPU_GPT(1, 256, 256, 0.1),
};
/* f32 is far slower, and does no better in larger sizes. */
static const sl_model_options gpu_wide_models[] = {
    GPU_GPT(16, 1024, 768, 0),
    GPU_LLAMA(1, 2048, 2048, 32, 8192, 128256),
    GPU_LLAMA(1, 512, 1024, 16, 2816, 50304),
    GPU_BERT(16, 512, 768),
    GPU_RESNET(32, 50, 224),
    GPU_GPT(1, 256, 256, 0.1),
};

/* One of every family whose kernels are not all among those above. */
#define GPU_DECODER(type_, layers_)                                                                                    \
    .type = (type_), .batch = 4, .context = 1024, .width = 2048, .layers = (layers_), .heads = 16, .kv_heads = 8,      \
    .vocabulary = 32000
#define GPU_WIDE(activation_, loss_)                                                                                   \
    .type = "mlp", .batch = 4096, .features = 1024, .hidden = { 1024 }, .hidden_count = 1, .outputs = 1024,            \
    .activation = (activation_), .loss = (loss_)
/* clang-format off */
static const sl_model_options gpu_others[] = {
    { GPU_DECODER("llama", 1), .lora = ADAPTERS },
    { GPU_DECODER("qwen3", 1), .logits = true },
    { GPU_DECODER("gemma2", 2), .packed = true },
    { .type = "bert", .batch = 64, .context = 128, .width = 768, .layers = 1, .heads = 12, .vocabulary = 30522,
      .head = "classifier", .outputs = 2 },
    { .type = "vit", .batch = 64, .image = { 224, 224, 3 }, .patch = 16, .width = 768, .layers = 1, .heads = 12, .outputs = 1000 },
    { .type = "cnn", .batch = 1024, .image = PICTURE, .filters = { 64, 128 }, .filter_count = 2, .kernel = 3, .pool = 2,
      .outputs = 10 },
    { .type = "speech", .batch = 64, .speech = { 800, 80, 100 }, .filters = { 64 }, .filter_count = 1, .frame_stride = 2,
      .layers = 1, .width = 512, .outputs = 30 },
    { .type = "recommender", .batch = 4096, .columns = { 13, 26, 10000 }, .bottom = { 512, 256 }, .bottom_count = 2,
      .top = { 512, 256 }, .top_count = 2, .embedding = 64 },
    { GPU_WIDE("silu", "mse") },
    { GPU_WIDE("gelu", "bce") },
    { GPU_WIDE("relu", "cross_entropy"), .bias = true },
};
/* clang-format on */

static const int64_t gpu_flats[] = { 1 << 14, 1 << 18, 1 << 22, 1 << 24, 1 << 26 };
static const uint64_t gpu_copies[] = { 64 << 10, 256 << 10, 1 << 20,   4 << 20,
                                       16 << 20, 64 << 20,  256 << 20, (uint64_t)1 << 30 };
static const uint64_t gpu_collectives[] = { 16 << 10, 256 << 10, 2 << 20, 16 << 20, 128 << 20 };

/* What both scales of a GPU have. */
#define GPU_SIZES                                                                                                      \
    .discrete = true, .id_bytes = 1 << 20, .ids = 31991, .node_seconds = 0.1, .weights = SL_FORM_BF16,                 \
    COLLECTIVES(gpu_collectives)

const sl_bench_scale sl_bench_gpu = {
    GPU_SIZES,
    .round_seconds = 4e-3, /* the end of a round is seen up to 0.1 ms late */
    .long_seconds = 10e-3,
    .rounds = 5,
    .long_rounds = 3,
    .most_calls = 2048,
    .region = { (uint64_t)3584 << 20, (uint64_t)1152 << 20 },
    /* By an H200's rates and the rounds above 28, 8, 1, 2, 1 and 4 s; opening the device, filling its memory, the peaks
     * and loading the libraries' kernels take 5 to 10 s more: about 45 s in all. */
    .group_seconds = { [SL_BENCH_16BIT] = 34,
                       [SL_BENCH_F32] = 9,
                       [SL_BENCH_UPDATES] = 2,
                       [SL_BENCH_HOST_UPDATES] = 3,
                       [SL_BENCH_COPIES] = 3,
                       [SL_BENCH_CONTENTION] = 4 },
    .sample_seconds = 1.5,
    .sustained_from = 0.25e-3,
    .sustained_seconds = 0.4,
    .sustained_calls = 12,
    .sustained_models = 3,
    MODELS(gpu_models),
    WIDE_MODELS(gpu_wide_models),
    OTHERS(gpu_others),
    FLATS(gpu_flats),
    COPIES(gpu_copies),
    .gemm_side = 8192,
    .contention_update = 1 << 24,
    .contention_copy = (uint64_t)64 << 20,
};

static const uint64_t gpu_few_copies[] = { 64 << 10, 1 << 20, 16 << 20, 64 << 20 };

/* Opening the device and pinning memory take about a second more, and so does what products take among the other kernels. */
const sl_bench_scale sl_bench_gpu_graph = {
    GPU_SIZES,
    .round_seconds = 2e-3,
    .long_seconds = 5e-3,
    .rounds = 3,
    .long_rounds = 3,
    .most_calls = 512,
    /* Of the host more than its caches hold: updates and copies meet in its memory. */
    .region = { (uint64_t)512 << 20, (uint64_t)1024 << 20 },
    .group_seconds = { [SL_BENCH_16BIT] = 1,
                       [SL_BENCH_F32] = 0.5,
                       [SL_BENCH_UPDATES] = 0.2,
                       [SL_BENCH_HOST_UPDATES] = 0.3,
                       [SL_BENCH_COPIES] = 0.2,
                       [SL_BENCH_CONTENTION] = 0.5 },
    .sample_seconds = 0.1,
    .mixed_seconds = 0.6,
    .flats = gpu_flats,
    .flat_count = COUNT(gpu_flats) - 1,
    COPIES(gpu_few_copies),
    .gemm_side = 4096,
    .contention_update = 1 << 24,
    .contention_copy = (uint64_t)64 << 20,
};

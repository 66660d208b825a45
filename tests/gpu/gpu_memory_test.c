/* gpu_memory_test.c: what a job takes of a GPU, seen from outside: its arena, and no more beside it than the plan leaves
 * room for. In processes of their own, because they touch CUDA. */
#include <unistd.h>

#include "backend/cuda_plugin.h"
#include "core/bytes.h"
#include "machine/device_choice.h"
#include "model/model.h"
#include "support/gpu.h"
#include "test.h"
#include "train/engine.h"

#define GRAIN ((uint64_t)2 << 20) /* of cudaMalloc */

static uint64_t free_now(const sl_cuda_plugin *plugin)
{
    sl_cuda_facts facts = { .free_bytes = 0 };
    if (plugin->facts(0, &facts) != SLUICE_OK) test_fail(__FILE__, __LINE__, "%s", sluice_error());
    return facts.free_bytes;
}

/* ---- an arena ---- */

static void take_arena(void *user)
{
    const uint64_t sizes[] = { 1, GRAIN, ((uint64_t)1 << 30) + 12345 };
    const sl_cuda_plugin *plugin;
    (void)user;
    REQUIRE_OK(sl_cuda_open_plugin(&plugin));
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        sl_device_options options = { .threads = 1 };
        sl_device *d;
        REQUIRE_OK(plugin->backend->open(&options, &d));
        uint64_t before = free_now(plugin);
        REQUIRE_OK(plugin->backend->reserve(d, SL_TIER_DEVICE, sizes[i]));
        uint64_t after = free_now(plugin);
        /* the smallest may find room in a block that is already taken */
        if (sizes[i] > 1 || after != before) CHECK_EQ(before - after, sl_align_up(sizes[i], GRAIN));
        plugin->backend->close(d);
    }
}

TEST(an_arena_takes_its_bytes_of_a_gpu_and_no_more)
{
    const char *device = gpu_device();
    if (device == NULL || strcmp(device, "cuda") != 0) SKIP(gpu, NO_GPU);
    gpu_in_child(take_arena, NULL);
}

/* ---- a job ---- */

enum { BATCH = 8, CONTEXT = 128, STEPS = 20 };

static const sl_model_options gpt = {
    .type = "gpt2", .batch = BATCH, .layers = 6, .heads = 4, .width = 256, .context = CONTEXT, .vocabulary = 256
};

static sluice_status train_steps(sluice_engine *e, int steps)
{
    static int32_t tokens[BATCH * CONTEXT], targets[BATCH * CONTEXT];
    sluice_array arrays[] = { { "tokens", tokens, sizeof tokens }, { "targets", targets, sizeof targets } };
    sluice_batch batch = { arrays, 2 };
    double loss;
    for (int i = 0; i < BATCH * CONTEXT; i++) tokens[i] = i * 7 % 256, targets[i] = (i * 7 + 7) % 256;
    for (int s = 0; s < steps; s++) SL_TRY(sluice_train_step(e, &batch, &loss));
    return SLUICE_OK;
}

/* free[]: before the engine, with it, after its steps. */
static void check_taken(const sluice_engine *e, const uint64_t free[3])
{
    sl_device_stats stats;
    sl_comm_stats comm;
    uint64_t arena = sl_align_up(e->plan->totals.peak[SL_TIER_DEVICE], GRAIN), taken = free[0] - free[2];
    uint64_t grown = free[1] > free[2] ? free[1] - free[2] : 0;
    usleep(1100000); /* the device asks once a second */
    sl_exec_stats(e->exec, &stats, &comm);
    printf("  of the GPU: arena %llu, overhead %llu when reserved, %llu after %d steps, said to be %llu\n",
           (unsigned long long)arena, (unsigned long long)(free[0] - free[1] - arena),
           (unsigned long long)(taken - arena), STEPS, (unsigned long long)stats.device_overhead);
    CHECK_EQ(stats.observed_peak[SL_TIER_DEVICE], e->plan->totals.peak[SL_TIER_DEVICE]);
    CHECK(free[1] <= free[0] && free[2] <= free[0] && taken >= arena);
    CHECK(stats.device_overhead <= SL_CUDA_OVERHEAD_BYTES);
    /* what grew since the arena was reserved is within what is said, and what is said is what is seen from outside */
    CHECK(grown <= stats.device_overhead);
    CHECK_NEAR((double)(taken - arena), (double)stats.device_overhead, (double)GRAIN);
}

static void run_job(void *user)
{
    const sluice_dtype *precision = user;
    const sl_cuda_plugin *plugin;
    sluice_graph *g;
    sluice_engine *e;
    sluice_options o;
    sl_model_info info;
    uint64_t free[3];
    REQUIRE_OK(sl_cuda_open_plugin(&plugin));
    sluice_options_init(&o);
    sluice_optimizer_init(&o.optimizer, SLUICE_ADAMW);
    o.device = SLUICE_DEVICE_CUDA;
    o.precision = *precision;
    REQUIRE_OK(sluice_graph_create(&g));
    REQUIRE_OK(sl_model_build(g, &gpt, &info));
    free[0] = free_now(plugin);
    REQUIRE_OK(sluice_engine_create(g, &o, &e));
    free[1] = free_now(plugin);
    REQUIRE_OK(train_steps(e, STEPS));
    free[2] = free_now(plugin);
    check_taken(e, free);
    sluice_engine_destroy(e);
    sluice_graph_destroy(g);
}

TEST(a_job_takes_its_arena_and_the_overhead_it_says)
{
    const char *device = gpu_device();
    sluice_dtype precisions[] = { SLUICE_F32, SLUICE_BF16 };
    if (device == NULL || strcmp(device, "cuda") != 0) SKIP(gpu, NO_GPU);
    for (int i = 0; i < 2; i++) gpu_in_child(run_job, &precisions[i]);
}

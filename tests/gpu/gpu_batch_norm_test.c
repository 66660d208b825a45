/* gpu_batch_norm_test.c: batch norm on a GPU that the ranks share: one hash of weights and of state for each precision, and
 * the running statistics of the CPU. */
#include "support/batch_norm_runs.h"
#include "support/gpu.h"

static sluice_device device_named(const char *name)
{
    return strcmp(name, "cuda") == 0 ? SLUICE_DEVICE_CUDA : SLUICE_DEVICE_CPU;
}

static void run_in_all_precisions(const char *device, bool convolves)
{
    static const sluice_dtype precisions[] = { SLUICE_F32, SLUICE_BF16, SLUICE_F16 };
    results first[3] = { 0 };
    for (int k = 0; k < 3; k++) run_all_ways(device_named(device), precisions[k], convolves, &first[k]);
    CHECK_EQ(first[0].skipped, 0);
    CHECK(first[2].skipped > 0);
}

TEST(every_way_to_run_a_batch_norm_gives_the_same_statistics_on_a_gpu)
{
    const char *device = gpu_device();
    if (device == NULL) SKIP(gpu, NO_GPU);
    run_in_all_precisions(device, false);
}

TEST(every_way_to_run_convolutions_with_batch_norms_gives_the_same_statistics_on_a_gpu)
{
    const char *device = gpu_device();
    if (device == NULL) SKIP(gpu, NO_GPU);
    run_in_all_precisions(device, true);
}

TEST(batch_statistics_of_a_gpu_are_those_of_the_cpu)
{
    const char *device = gpu_device();
    results on[2];
    scenario s = { .results = share_results() };
    if (device == NULL) SKIP(gpu, NO_GPU);
    REQUIRE(s.results != MAP_FAILED);
    for (int i = 0; i < 2; i++) {
        base_options(&s.options);
        /* Adam would make steps of its rate from the rounding of gradients that are zero: biases before a batch norm have such */
        sluice_optimizer_init(&s.options.optimizer, SLUICE_SGD);
        s.options.optimizer.lr = 0.01;
        s.options.device = i == 0 ? SLUICE_DEVICE_CPU : device_named(device);
        REQUIRE(run(&s, 2));
        on[i] = *s.results;
    }
    for (int c = 0; c < CHANNELS; c++) {
        CHECK_NEAR(on[1].mean[0][c], on[0].mean[0][c], 1e-4 * (1 + fabs((double)on[0].mean[0][c])));
        CHECK_NEAR(on[1].variance[0][c], on[0].variance[0][c], 1e-4 * (1 + fabs((double)on[0].variance[0][c])));
    }
    CHECK_NEAR(on[1].evaluated, on[0].evaluated, 1e-3);
    munmap(s.results, sizeof *s.results);
}

/* gpu_shared_norm_test.c: batch norms over all ranks, on a GPU that the ranks share: the bits of one rank with all samples, and the
 * same in every way to run them. */
#include "support/gpu.h"
#include "support/shared_norm_runs.h"

static sluice_device device_named(const char *name)
{
    return strcmp(name, "cuda") == 0 ? SLUICE_DEVICE_CUDA : SLUICE_DEVICE_CPU;
}

/* Batch norms alone: products of a GPU may add otherwise where there are other rows. */
TEST(ranks_that_share_batch_statistics_on_a_gpu_give_the_bits_of_one_with_all_samples)
{
    const char *device = gpu_device();
    if (device == NULL) SKIP(gpu, NO_GPU);
    for (int k = 0; k < 3; k++) run_all_divisions(device_named(device), precisions[k], false, true);
}

TEST(every_way_to_run_shared_batch_statistics_on_a_gpu_gives_the_same_bits)
{
    const char *device = gpu_device();
    if (device == NULL) SKIP(gpu, NO_GPU);
    for (int k = 0; k < 3; k++) {
        run_all_ways(device_named(device), precisions[k], false, 2);
        run_all_ways(device_named(device), precisions[k], true, 4);
    }
}

/* gpu_trouble_test.c: a GPU that is not there, or not free: a message that helps, and the exit status. What needs no GPU to
 * be seen is in tests/cli/device_cli_test.c; a kernel that fails, in tests/backend/cuda_device_test.c. */
#include "support/gpu.h"
#include "test.h"

#define MIB ((uint64_t)1 << 20)

/* Not even CUDA itself fits beside another process, nor do four ranks where one does; one that fits has its bits. */
TEST(a_gpu_that_another_process_fills_is_refused_before_the_first_step)
{
    const char *device = gpu_device();
    char folder[4096];
    gpu_run alone, r;
    gpu_hog hog;
    if (device == NULL || strcmp(device, "cuda") != 0) SKIP(gpu, NO_GPU);
    snprintf(folder, sizeof folder, "%s", test_tmpdir());
    gpu_train_well(&alone, folder, device, "");
    REQUIRE(gpu_hog_start(&hog, 256 * MIB));
    gpu_train(&r, folder, device, "");
    CHECK_EQ(r.status, 3);
    CHECK_CONTAINS(r.error, "missing");
    gpu_hog_end(&hog);
    REQUIRE(gpu_hog_start(&hog, 1536 * MIB));
    gpu_train_well(&r, folder, device, "");
    CHECK_STR(r.weights, alone.weights);
    gpu_train(&r, folder, device, "--ranks 4");
    CHECK_EQ(r.status, 3);
    CHECK_CONTAINS(r.error, "missing");
    gpu_hog_end(&hog);
    gpu_train_well(&r, folder, device, ""); /* and all of it is back */
}

#define GIANT                                                                                                          \
    "--set model.width=16384 --set model.heads=128 --set model.layers=64 --set "                                       \
    "zero_optimization.offload_optimizer.device=none --set zero_optimization.offload_param.device=none "

TEST(more_memory_than_the_gpu_has_is_neither_taken_nor_believed)
{
    const char *device = gpu_device();
    char folder[4096];
    gpu_run r;
    if (device == NULL) SKIP(gpu, NO_GPU);
    snprintf(folder, sizeof folder, "%s", test_tmpdir());
    gpu_train(&r, folder, device, "--set memory.device=1000TiB");
    CHECK_EQ(r.status, 3);
    CHECK_EQ(r.steps, 0);
    CHECK_CONTAINS(r.error, "memory.device is 1000.00 TiB");
    CHECK_CONTAINS(r.error, "has only ");
    gpu_train(&r, folder, device, GIANT);
    CHECK_EQ(r.status, 3);
    CHECK_EQ(r.steps, 0);
    CHECK_CONTAINS(r.error, "missing");
}

TEST(a_gpu_that_is_hidden_is_not_used_and_its_absence_is_named)
{
    const char *device = gpu_device();
    char folder[4096];
    gpu_run cpu, r;
    if (device == NULL || strcmp(device, "cuda") != 0) SKIP(gpu, NO_GPU);
    snprintf(folder, sizeof folder, "%s", test_tmpdir());
    gpu_train_well(&cpu, folder, "cpu", "");
    const char *before = getenv("SLUICE_DEVICE"), *visible = getenv("CUDA_VISIBLE_DEVICES");
    char *kept = before != NULL ? strdup(before) : NULL, *kept_visible = visible != NULL ? strdup(visible) : NULL;
    setenv("SLUICE_DEVICE", "auto", 1);
    setenv("CUDA_VISIBLE_DEVICES", "", 1);
    gpu_train(&r, folder, "cuda", "");
    CHECK_EQ(r.status, 2);
    CHECK_CONTAINS(r.error, "the NVIDIA driver finds no GPU (CUDA_VISIBLE_DEVICES is set)");
    gpu_train(&r, folder, "cuda", "--ranks 2");
    CHECK_EQ(r.status, 2);
    gpu_train_well(&r, folder, "auto", "");
    CHECK_STR(r.weights, cpu.weights);
    if (kept_visible != NULL) setenv("CUDA_VISIBLE_DEVICES", kept_visible, 1);
    gpu_train_well(&r, folder, "auto", "");
    CHECK(strcmp(r.weights, cpu.weights) != 0); /* auto takes the GPU that is there */
    if (kept != NULL)
        setenv("SLUICE_DEVICE", kept, 1);
    else
        unsetenv("SLUICE_DEVICE");
    free(kept);
    free(kept_visible);
}

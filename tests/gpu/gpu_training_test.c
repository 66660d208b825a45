/* gpu_training_test.c: training on a GPU: again the same bits, losses near those of the CPU, and checkpoints that do not
 * care where they were made. */
#include "support/gpu.h"
#include "support/run.h"
#include "test.h"

TEST(five_runs_on_a_gpu_end_with_one_hash)
{
    const char *device = gpu_device();
    char folder[4096];
    gpu_run first, again;
    if (device == NULL) SKIP(gpu, NO_GPU);
    snprintf(folder, sizeof folder, "%s", test_tmpdir());
    const char *arguments = "--set bf16.enabled=true --set model.dropout=0.1";
    gpu_train_well(&first, folder, device, arguments);
    CHECK(first.clipped > 0);
    for (int i = 1; i < 5; i++) {
        gpu_train_well(&again, folder, device, arguments);
        CHECK_STR(again.weights, first.weights);
        CHECK_STR(again.state, first.state);
        CHECK(memcmp(again.loss, first.loss, sizeof first.loss) == 0);
    }
    gpu_train_well(&again, folder, device, "--set bf16.enabled=true --set model.dropout=0.1 --set seed=4");
    CHECK(strcmp(again.weights, first.weights) != 0);
}

/* ---- losses ---- */

enum { LONG_STEPS = 80, LAST = 10 };
#define LONG_RUN "--set steps=80 --set optimizer.params.lr=3e-4"

static double mean_of_last(const gpu_run *r)
{
    double sum = 0;
    for (int i = LONG_STEPS - LAST; i < LONG_STEPS; i++) sum += r->loss[i] / LAST;
    return sum;
}

/* Mean distance of two runs' losses. */
static double distance(const gpu_run *a, const gpu_run *b)
{
    double sum = 0;
    for (int i = 0; i < LONG_STEPS; i++) sum += fabs(a->loss[i] - b->loss[i]) / LONG_STEPS;
    return sum;
}

/* fp32 differs in the order of additions alone: another order on the CPU (memory.tile_bytes) moves no loss by more than
 * 3e-7. In bf16 the CPU's own runs of 12 seeds, each with micro-batches of 2 and of 4, are 0.0025 to 0.0045 from fp32
 * in the mean; a learning rate that is off by a twentieth shows 0.047 and more, a master rounded to bf16 0.061, no
 * clipping 0.09. The mean of a few steps tells less: differences grow after step 80, where the last ten of 100 are up
 * to 0.02 apart as they should be, and with a wrong learning rate as little as 0.006. */
TEST(losses_on_a_gpu_follow_those_of_the_cpu)
{
    const char *device = gpu_device();
    char folder[4096];
    gpu_run cpu, same, narrow;
    if (device == NULL) SKIP(gpu, NO_GPU);
    snprintf(folder, sizeof folder, "%s", test_tmpdir());
    gpu_train_well(&cpu, folder, "cpu", LONG_RUN);
    gpu_train_well(&same, folder, device, LONG_RUN);
    gpu_train_well(&narrow, folder, device, LONG_RUN " --set bf16.enabled=true");
    CHECK_EQ(cpu.steps, LONG_STEPS);
    CHECK(mean_of_last(&cpu) < 0.6 * cpu.loss[0]); /* it learns */
    printf("  losses, distance from the CPU's fp32: fp32 %.2g, bf16 %.2g\n", distance(&same, &cpu),
           distance(&narrow, &cpu));
    for (int i = 0; i < LONG_STEPS; i++) CHECK_NEAR(same.loss[i], cpu.loss[i], 1e-4);
    CHECK_NEAR(distance(&narrow, &cpu), 0, 0.015);
    CHECK(strcmp(narrow.weights, same.weights) != 0);
}

/* ---- masks ---- */

#define MASKED                                                                                                         \
    "--set data.type=tokens --set data.path=tokens.bin --set data.dtype=uint16 --set data.mask_path=mask "             \
    "--set model.vocabulary=300 "

static void write_bytes(const char *folder, const char *name, const void *bytes, size_t count)
{
    char path[4400];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    if (f == NULL || fwrite(bytes, 1, count, f) != count || fclose(f) != 0) exit(99);
}

/* In stretches longer than a micro-batch, so that some have no target at all. */
static void write_masked(const char *folder)
{
    enum { TOKENS = 60000 };
    static uint16_t ids[TOKENS];
    static uint8_t mask[TOKENS];
    for (int i = 0; i < TOKENS; i++) {
        ids[i] = (uint16_t)((uint32_t)i * (uint32_t)i / 7 % 300);
        mask[i] = (uint32_t)(i / 300) * 2654435761u % 100 < 40;
    }
    write_bytes(folder, "tokens.bin", ids, sizeof ids);
    write_bytes(folder, "mask", mask, sizeof mask);
}

TEST(masked_micro_batches_weigh_on_a_gpu_as_on_the_cpu_and_on_ranks)
{
    const char *device = gpu_device();
    char folder[4096];
    gpu_run cpu, one, two;
    if (device == NULL) SKIP(gpu, NO_GPU);
    snprintf(folder, sizeof folder, "%s", test_tmpdir());
    write_masked(folder);
    gpu_train_well(&cpu, folder, "cpu", MASKED);
    gpu_train_well(&one, folder, device, MASKED);
    gpu_train_well(&two, folder, device, MASKED "--ranks 2 --set zero_optimization.stage=3");
    CHECK_EQ(one.steps, 12);
    for (int i = 0; i < 12; i++) CHECK_NEAR(one.loss[i], cpu.loss[i], 1e-4);
    CHECK_STR(two.weights, one.weights);
    CHECK(memcmp(two.loss, one.loss, sizeof one.loss) == 0);
    gpu_train_well(&one, folder, device, MASKED "--set bf16.enabled=true");
    gpu_train_well(&two, folder, device, MASKED "--set bf16.enabled=true --ranks 4 --set zero_optimization.stage=2");
    CHECK_STR(two.weights, one.weights);
}

/* ---- checkpoints ---- */

#define OFFLOAD " --set zero_optimization.offload_optimizer.device=cpu --set zero_optimization.offload_param.device=cpu"
#define HALVES  "--set bf16.enabled=true --set model.dropout=0.1 "

/* One run of `device` and `more` in a folder of its own, of 6 steps or continued to 12. */
static void half_run(gpu_run *out, const char *folder, const char *device, const char *run, const char *more)
{
    char arguments[2048];
    snprintf(arguments, sizeof arguments, HALVES "--set checkpoint.path=%s %s", run, more);
    gpu_train_well(out, folder, device, arguments);
}

static void copy_run(const char *folder, const char *from, const char *to)
{
    char command[9000];
    snprintf(command, sizeof command, "cp -r '%s/%s' '%s/%s'", folder, from, folder, to);
    if (system(command) != 0) test_fail(__FILE__, __LINE__, "%s", command);
}

/* Continues a copy of a run of 6 steps and expects the bits of the one that was never stopped. */
static void check_continued(const char *folder, const char *from, const char *device, const char *more,
                            const gpu_run *whole)
{
    static int count;
    char run[32], arguments[1024];
    gpu_run r;
    snprintf(run, sizeof run, "continued-%d", ++count);
    copy_run(folder, from, run);
    snprintf(arguments, sizeof arguments, "--resume %s", more);
    half_run(&r, folder, device, run, arguments);
    CHECK_EQ(r.resumed, 6);
    CHECK_EQ(r.steps, 6);
    CHECK_STR(r.weights, whole->weights);
    CHECK_STR(r.state, whole->state);
}

TEST(a_run_on_a_gpu_goes_on_to_the_same_bits_on_any_number_of_ranks)
{
    const char *device = gpu_device();
    char folder[4096];
    gpu_run whole, half;
    if (device == NULL) SKIP(gpu, NO_GPU);
    snprintf(folder, sizeof folder, "%s", test_tmpdir());
    half_run(&whole, folder, device, "whole", "");
    half_run(&half, folder, device, "half", "--set steps=6");
    CHECK(strcmp(half.weights, whole.weights) != 0);
    check_continued(folder, "half", device, "", &whole);
    check_continued(folder, "half", device, OFFLOAD, &whole);
    check_continued(folder, "half", device, "--ranks 2 --set zero_optimization.stage=2", &whole);
    check_continued(folder, "half", device, "--ranks 4 --set zero_optimization.stage=3" OFFLOAD, &whole);
    half_run(&half, folder, device, "cut", "--ranks 2 --set zero_optimization.stage=3 --set steps=6");
    check_continued(folder, "cut", device, "", &whole);
}

/* Without clipping and the check for overflows updates on the host begin during backward. */
TEST(updates_that_begin_during_backward_give_the_same_bits_on_a_gpu)
{
    const char *device = gpu_device();
    char folder[4096];
    gpu_run late, early;
    if (device == NULL) SKIP(gpu, NO_GPU);
    snprintf(folder, sizeof folder, "%s", test_tmpdir());
    gpu_train_well(&late, folder, device, HALVES "--set gradient_clipping=0" OFFLOAD);
    gpu_train_well(&early, folder, device,
                   HALVES "--set gradient_clipping=0 --set bf16.check_grad_overflow=false" OFFLOAD);
    CHECK_STR(early.weights, late.weights);
    CHECK_STR(early.state, late.state);
}

/* A checkpoint that has no step left to do: what is loaded is what the end says. */
static void check_loaded(const char *folder, const char *device, const char *run, const gpu_run *saved)
{
    gpu_run r;
    half_run(&r, folder, device, run, "--resume --set steps=6");
    CHECK_EQ(r.resumed, 6);
    CHECK_EQ(r.steps, 0);
    CHECK_STR(r.weights, saved->weights);
    CHECK_STR(r.state, saved->state);
}

static void check_kernels(const char *folder, const char *run, const char *kernels)
{
    char arguments[256];
    snprintf(arguments, sizeof arguments, "inspect %s", run);
    run_result r = run_sluice(folder, arguments);
    CHECK_EQ(r.status, 0);
    CHECK_CONTAINS(r.out, kernels);
    run_free(&r);
}

TEST(checkpoints_pass_between_cpu_and_gpu_bit_by_bit)
{
    const char *device = gpu_device();
    char folder[4096];
    gpu_run on_gpu, on_cpu, more;
    if (device == NULL) SKIP(gpu, NO_GPU);
    snprintf(folder, sizeof folder, "%s", test_tmpdir());
    half_run(&on_cpu, folder, "cpu", "of-cpu", "--set steps=6");
    half_run(&on_gpu, folder, device, "of-gpu", "--set steps=6");
    check_kernels(folder, "of-cpu/step-6", "cpu-");
    check_kernels(folder, "of-gpu/step-6", strcmp(device, "cuda") == 0 ? "cuda-sm" : "cpu-");
    check_loaded(folder, device, "of-cpu", &on_cpu);
    check_loaded(folder, "cpu", "of-gpu", &on_gpu);
    half_run(&more, folder, device, "of-cpu", "--resume --set steps=8");
    CHECK_EQ(more.steps, 2);
    half_run(&more, folder, "cpu", "of-gpu", "--resume --set steps=8");
    CHECK_EQ(more.steps, 2);
}

/* fit_cli_test.c: what a refusal says is needed is needed: with so many bytes the same command runs, with one less it is
 * refused in the same words, on any number of ranks and for either tier. */
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "support/run.h"
#include "test.h"

#define MLP                                                                                                            \
    "{\"model\": {\"type\": \"mlp\", \"features\": 12, \"hidden\": [40, 90, 30], \"outputs\": 5},"                     \
    "\"data\": {\"type\": \"classification\", \"samples\": 120, \"validation\": 0.1}, \"steps\": 1,"                   \
    "\"train_micro_batch_size_per_gpu\": 6, \"optimizer\": {\"type\": \"AdamW\"}, \"threads\": 1}"
#define GPT2                                                                                                           \
    "{\"model\": {\"type\": \"gpt2\", \"layers\": 2, \"heads\": 2, \"width\": 32, \"context\": 24,"                    \
    "\"vocabulary\": \"50\"}, \"data\": {\"type\": \"random_tokens\", \"samples\": 120}, \"steps\": 1,"                \
    "\"train_micro_batch_size_per_gpu\": 2, \"optimizer\": {\"type\": \"AdamW\"}, \"threads\": 1}"
#define LLAMA                                                                                                          \
    "{\"model\": {\"type\": \"llama\", \"layers\": 2, \"heads\": 4, \"kv_heads\": 2, \"width\": 32,"                   \
    "\"feed_forward\": 48, \"context\": 16, \"vocabulary\": \"50\"}, \"data\": {\"type\": \"random_tokens\","          \
    "\"samples\": 120}, \"steps\": 1, \"train_micro_batch_size_per_gpu\": 2, \"optimizer\": {\"type\": \"Adam\"},"     \
    "\"threads\": 1}"

typedef struct fit_case {
    const char *model;
    int ranks, stage;
    const char *settings; /* --set arguments */
} fit_case;

#define SUMS   "--set gradient_accumulation_steps=2 "
#define BF16   "--set bf16.enabled=true "
#define LORA   "--set lora.rank=2 --set 'lora.targets=[\"*\"]' "
#define CUT(x) "--set zero_optimization.partition=" x " "

static const fit_case cases[] = {
    { "mlp", 1, 0, "" },
    { "mlp", 2, 1, "" },
    { "mlp", 2, 3, "" },
    { "mlp", 3, 2, SUMS },
    { "mlp", 5, 3, CUT("owner") },
    { "gpt2", 1, 0, SUMS },
    { "gpt2", 2, 3, "" },
    { "gpt2", 3, 2, "" },
    { "gpt2", 3, 2, BF16 },
    { "gpt2", 5, 1, BF16 SUMS },
    { "gpt2", 2, 0, "--set activation_checkpointing.mode=recompute " },
    { "llama", 1, 0, BF16 },
    { "llama", 2, 1, "" },
    { "llama", 3, 3, BF16 SUMS },
    { "llama", 5, 2, "--set memory.levels=2 " },
    { "llama", 2, 3, "--set zero_optimization.offload_param.device=cpu --set memory.prefetch_layers=1 " },
    { "llama", 1, 0, LORA },
    { "llama", 2, 3, LORA },
    { "llama", 3, 1, LORA BF16 },
    { "gpt2", 5, 3, CUT("block") "--set zero_optimization.partition_block=1024 " },
};
enum { CASES = sizeof cases / sizeof cases[0] };

static void prepare(char folder[4096])
{
    snprintf(folder, 4096, "%s", test_tmpdir());
    run_write(folder, "mlp.json", MLP);
    run_write(folder, "gpt2.json", GPT2);
    run_write(folder, "llama.json", LLAMA);
}

static run_result run_case(const char *folder, const char *command, const fit_case *c, uint64_t device, uint64_t host)
{
    char arguments[1024];
    snprintf(arguments, sizeof arguments,
             "%s %s.json --quiet --ranks %d --set zero_optimization.stage=%d %s--set memory.device=%llu --set "
             "memory.host=%llu",
             command, c->model, c->ranks, c->stage, c->settings, (unsigned long long)device, (unsigned long long)host);
    return run_sluice(folder, arguments);
}

/* The bytes that a refusal says `key` needs; 0 where it does not lack any. */
static uint64_t told_need(const char *error, const char *key)
{
    char has[64];
    unsigned long long needs = 0;
    snprintf(has, sizeof has, "%s has ", key);
    const char *at = strstr(error, has), *number = at != NULL ? strstr(at, "needs ") : NULL;
    if (number != NULL) sscanf(number, "needs %llu", &needs);
    return needs;
}

static uint64_t ask(const char *folder, const char *command, const fit_case *c, uint64_t device, uint64_t host,
                    const char *key)
{
    run_result r = run_case(folder, command, c, device, host);
    uint64_t needs = told_need(r.error, key);
    if (r.status != 3 || needs == 0)
        test_fail(__FILE__, __LINE__, "%s on %d ranks, stage %d %s: device %llu, host %llu: %s: status %d: %s",
                  c->model, c->ranks, c->stage, c->settings, (unsigned long long)device, (unsigned long long)host,
                  command, r.status, r.error);
    run_free(&r);
    return needs;
}

static void check_runs(const char *folder, const char *command, const fit_case *c, uint64_t device, uint64_t host)
{
    run_result r = run_case(folder, command, c, device, host);
    CHECK_THAT(r.status == 0, "%s on %d ranks, stage %d %s: device %llu, host %llu: %s: status %d: %s", c->model,
               c->ranks, c->stage, c->settings, (unsigned long long)device, (unsigned long long)host, command, r.status,
               r.error);
    run_free(&r);
}

#define PLENTY ((uint64_t)64 << 20)

/* Of the device with plenty of host memory. */
static uint64_t check_device(const char *folder, const fit_case *c)
{
    uint64_t needs = ask(folder, "plan", c, 1024, PLENTY, "memory.device");
    if (needs == 0) return 0;
    check_runs(folder, "plan", c, needs, PLENTY);
    CHECK_EQ(ask(folder, "plan", c, needs - 1, PLENTY, "memory.device"), needs);
    return needs;
}

/* Of the host beside so much device memory. False: everything fits on the device. */
static bool check_host(const char *folder, const fit_case *c, uint64_t device)
{
    run_result r = run_case(folder, "plan", c, device, 1);
    uint64_t needs = told_need(r.error, "memory.host");
    bool fits = r.status == 0;
    run_free(&r);
    if (fits) return false;
    CHECK_THAT(needs > 0, "%s on %d ranks, device %llu: the host is not told", c->model, c->ranks,
               (unsigned long long)device);
    check_runs(folder, strstr(c->settings, "cuda") != NULL ? "plan" : "train", c, device, needs);
    CHECK_EQ(ask(folder, "plan", c, device, needs - 1, "memory.host"), needs);
    return true;
}

/* The host is asked for beside as little device memory as possible, and beside a quarter more. */
TEST(the_bytes_that_a_refusal_asks_for_are_enough_and_one_less_is_not)
{
    char folder[4096];
    int hosts = 0;
    prepare(folder);
    for (int i = 0; i < CASES; i++) {
        uint64_t device = check_device(folder, &cases[i]);
        hosts += check_host(folder, &cases[i], i % 3 == 0 ? device + device / 4 : device);
    }
    CHECK_THAT(hosts >= CASES - 3, "the host was short in %d of %d cases", hosts, CASES);
}

#define RESNET                                                                                                         \
    "{\"model\": {\"type\": \"resnet\", \"depth\": 18, \"stem\": \"cifar\"}, \"data\": {\"type\": \"random_images\","  \
    "\"samples\": 12, \"outputs\": 4, \"image_size\": 8}, \"steps\": 1, \"train_micro_batch_size_per_gpu\": 3,"        \
    "\"train_batch_size\": 6, \"optimizer\": {\"type\": \"SGD\", \"params\": {\"lr\": 0.001}}, \"threads\": 1}"

/* Of the last pixel the statistics of a norm are as large as its result: they run again by themselves. */
TEST(a_network_whose_norms_see_few_pixels_fits_or_is_refused_with_the_bytes)
{
    const uint64_t plenty = (uint64_t)1 << 30;
    const fit_case c = { "resnet", 1, 0, BF16 };
    char folder[4096];
    snprintf(folder, sizeof folder, "%s", test_tmpdir());
    run_write(folder, "resnet.json", RESNET);
    const uint64_t needs = ask(folder, "plan", &c, 1024, plenty, "memory.device");
    check_runs(folder, "train", &c, needs, plenty);
    CHECK_EQ(ask(folder, "train", &c, needs - 1, plenty, "memory.device"), needs);
}

/* Every rank says the same, so the program prints it once and as it is. */
TEST(ranks_that_train_refuse_with_the_number_of_the_one_that_needs_most)
{
    static const int chosen[] = { 2, 8 };
    char folder[4096];
    prepare(folder);
    for (size_t i = 0; i < sizeof chosen / sizeof chosen[0]; i++) {
        const fit_case *c = &cases[chosen[i]];
        uint64_t needs = ask(folder, "plan", c, 1024, PLENTY, "memory.device");
        CHECK_EQ(ask(folder, "train", c, needs - 1, PLENTY, "memory.device"), needs);
        run_result r = run_case(folder, "train", c, 1024, PLENTY);
        CHECK_THAT(strstr(r.error, "on rank 0: ") == NULL, "%s", r.error);
        run_free(&r);
    }
}

/* Where both tiers are too small both are told, and both together are enough. */
TEST(two_tiers_that_are_too_small_are_both_told)
{
    char folder[4096];
    prepare(folder);
    for (int i = 0; i < CASES; i += 5) {
        run_result r = run_case(folder, "plan", &cases[i], 1024, 1);
        uint64_t device = told_need(r.error, "memory.device"), host = told_need(r.error, "memory.host");
        CHECK_EQ(r.status, 3);
        CHECK(device > 0);
        run_free(&r);
        if (host == 0) host = 1;
        check_runs(folder, "plan", &cases[i], device, host);
        CHECK_EQ(ask(folder, "plan", &cases[i], device - 1, host, "memory.device"), device);
        if (host > 1) CHECK_EQ(ask(folder, "plan", &cases[i], device, host - 1, "memory.host"), host);
    }
}

/* A GPU that is described, so that plans for it are made anywhere. */
#define CARD                                                                                                           \
    "{\"sluice_machine\": 1, \"gemm_flops\": 5e13, \"vector_flops\": 5e13, \"device_bytes_per_second\": 3.8e12,"       \
    "\"update_bytes_per_second\": 1.3e11, \"to_device_bytes_per_second\": 5.5e10, \"to_host_bytes_per_second\": "      \
    "5.5e10, \"comm_bytes_per_second\": 1e10, \"link_latency\": 4e-6, \"kernel_latency\": 3e-6, \"comm_latency\": "    \
    "3e-5, \"device_bytes\": \"80GiB\", \"host_bytes\": \"125GiB\", \"shared_memory\": false, "                        \
    "\"copies_overlap\": true, \"cuda\": true, \"kernels_take_turns\": false}"

/* What is told of a GPU's memory counts what the driver takes of it, as the setting does. */
TEST(the_bytes_that_a_gpu_needs_include_those_of_its_driver)
{
    static const fit_case c = { "gpt2", 2, 3, "--set device=cuda --machine card.json " };
    const uint64_t driver = (uint64_t)768 << 20;
    char folder[4096];
    prepare(folder);
    run_write(folder, "card.json", CARD);
    uint64_t needs = check_device(folder, &c);
    CHECK(needs > driver && needs < driver + (64 << 20)); /* beside it workspace of GEMMs */
    run_result r = run_case(folder, "plan", &c, 1024, PLENTY);
    CHECK_CONTAINS(r.error, "memory.device has 1024 bytes");
    run_free(&r);
    CHECK(check_host(folder, &c, needs));
}

/* ---- what would help ---- */

#define ON_DEVICE                                                                                                      \
    "--set activation_checkpointing.mode=none --set zero_optimization.offload_optimizer.device=none --set "            \
    "zero_optimization.offload_param.device=none "

/* A refusal of `settings` tells of `remedy`, and with `applied` it runs in what it tells. */
static const struct {
    const char *settings, *remedy, *applied;
} remedies[] = {
    { "llama.json " ON_DEVICE, "zero_optimization.offload_optimizer.device \"cpu\" needs",
      "--set zero_optimization.offload_optimizer.device=cpu" },
    { "llama.json " ON_DEVICE, "zero_optimization.offload_param.device \"cpu\" needs",
      "--set zero_optimization.offload_param.device=cpu" },
    { "llama.json " ON_DEVICE, "activation_checkpointing.mode \"auto\" needs",
      "--set activation_checkpointing.mode=auto" },
    { "llama.json " ON_DEVICE, "all of these need",
      "--set activation_checkpointing.mode=auto --set zero_optimization.offload_optimizer.device=cpu --set "
      "zero_optimization.offload_param.device=cpu" },
    { "llama.json --ranks 2 --set zero_optimization.stage=0 " ON_DEVICE, "zero_optimization.stage 3 needs",
      "--set zero_optimization.stage=3" },
    { "llama.json --ranks 2 --set zero_optimization.stage=3 --set memory.keep_gathered=true "
      "--set zero_optimization.offload_optimizer.device=cpu --set activation_checkpointing.mode=recompute",
      "memory.keep_gathered false needs", "--set memory.keep_gathered=false" },
    { "gpt2.json --set memory.levels=1 --set zero_optimization.offload_param.device=cpu",
      "memory.levels \"auto\" needs", "--set memory.levels=auto" },
    { "gpt2.json --set memory.prefetch_layers=2 --set zero_optimization.offload_param.device=cpu",
      "memory.prefetch_layers 0 needs", "--set memory.prefetch_layers=0" },
    { "mlp.json --ranks 2 --set zero_optimization.stage=3 " ON_DEVICE CUT("owner"),
      "zero_optimization.partition \"layer\" needs", "--set zero_optimization.partition=layer" },
    { "gpt2.json --ranks 3 --set zero_optimization.stage=2", "one rank needs",
      "--ranks 1 --set gradient_accumulation_steps=3" },
    { "gpt2.json --set train_micro_batch_size_per_gpu=8", "train_micro_batch_size_per_gpu 1 needs",
      "--set train_micro_batch_size_per_gpu=1 --set gradient_accumulation_steps=8" },
};

static run_result plan_with(const char *folder, const char *settings, const char *more, uint64_t device)
{
    char arguments[1024];
    snprintf(arguments, sizeof arguments, "plan %s %s --quiet --set memory.host=64MiB --set memory.device=%llu",
             settings, more, (unsigned long long)device);
    return run_sluice(folder, arguments);
}

TEST(a_remedy_that_is_told_needs_what_is_told_and_less_than_before)
{
    char folder[4096];
    prepare(folder);
    for (size_t i = 0; i < sizeof remedies / sizeof remedies[0]; i++) {
        unsigned long long needs = 0;
        run_result asked = plan_with(folder, remedies[i].settings, "", 1024);
        const char *at = strstr(asked.error, remedies[i].remedy);
        if (at != NULL) sscanf(at + strlen(remedies[i].remedy), " memory.device %llu", &needs);
        CHECK_EQ(asked.status, 3);
        CHECK_THAT(needs > 0, "%s is not told: %s", remedies[i].remedy, asked.error);
        CHECK_THAT(needs < told_need(asked.error, "memory.device"), "%s", asked.error);
        run_result applied = plan_with(folder, remedies[i].settings, remedies[i].applied, needs);
        CHECK_THAT(applied.status == 0, "%s %s: %s", remedies[i].settings, remedies[i].applied, applied.error);
        run_free(&asked);
        run_free(&applied);
    }
}

#define DEEP                                                                                                           \
    "{\"model\": {\"type\": \"mlp\", \"features\": 1024, \"hidden\": [2048, 2048, 2048, 2048], \"outputs\": 16},"      \
    "\"data\": {\"type\": \"regression\", \"samples\": 64}, \"steps\": 1, \"train_batch_size\": 4,"                    \
    "\"optimizer\": {\"type\": \"AdamW\"}, \"gradient_clipping\": 1, \"threads\": 1}"

/* A refusal for want of host memory tells of `keys`; with a disk of the size that it tells, by `applied`, it fits. */
static void check_disk(const char *folder, const char *settings, const char *keys, const char *applied)
{
    char arguments[512];
    unsigned long long needs = 0;
    snprintf(arguments, sizeof arguments, "plan deep.json --quiet --set memory.device=64MiB --set memory.host=96MiB %s",
             settings);
    run_result asked = run_sluice(folder, arguments);
    const char *at = strstr(asked.error, keys);
    if (at != NULL) sscanf(at + strlen(keys), " needs memory.disk %llu", &needs);
    CHECK_EQ(asked.status, 3);
    CHECK_THAT(needs > 0, "%s is not told: %s", keys, asked.error);
    CHECK_CONTAINS(asked.error, " and fits, with ");
    size_t used = strlen(arguments);
    snprintf(arguments + used, sizeof arguments - used, " %s --set memory.disk=%llu", applied, needs);
    run_result with = run_sluice(folder, arguments);
    CHECK_THAT(with.status == 0, "%s: %s", arguments, with.error);
    run_free(&asked);
    run_free(&with);
}

TEST(a_disk_that_makes_it_fit_is_told_with_its_size)
{
    char folder[4096];
    prepare(folder);
    run_write(folder, "deep.json", DEEP);
    check_disk(folder, "", "a disk for swap files (memory.disk_path)", "--set memory.disk_path=.");
    check_disk(folder, "--set zero_optimization.offload_optimizer.device=cpu",
               "zero_optimization.offload_optimizer.device \"nvme\" with its nvme_path",
               "--set zero_optimization.offload_optimizer.device=nvme --set "
               "zero_optimization.offload_optimizer.nvme_path=.");
    check_disk(folder, "--set memory.disk_path=. --set memory.disk=8MiB", "a disk with more space", "");
}

static int count_of(const char *text, const char *part)
{
    int count = 0;
    for (const char *at = text; (at = strstr(at, part)) != NULL; at++) count++;
    return count;
}

/* Where the disk is what is missing, that is told once. */
TEST(a_disk_that_lacks_space_for_what_must_be_there_is_told_once)
{
    char folder[4096];
    prepare(folder);
    run_write(folder, "deep.json", DEEP);
    run_result r = run_sluice(folder, "plan deep.json --quiet --set memory.disk_path=. --set memory.disk=8MiB "
                                      "--set zero_optimization.offload_optimizer.device=nvme");
    CHECK_EQ(r.status, 3);
    CHECK_CONTAINS(r.error, "memory.disk has 8388608 bytes");
    CHECK_EQ(count_of(r.error, "What would help: memory.disk "), 1);
    CHECK_EQ(count_of(r.error, "a disk with more space"), 0);
    run_free(&r);
}

/* Two folders of one file system have its space once. */
TEST(folders_of_one_disk_share_its_space)
{
    char folder[4096], path[4200], arguments[512];
    struct statvfs disk;
    prepare(folder);
    run_write(folder, "mlp.json", MLP);
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/swap%d", folder, i);
        CHECK_EQ(mkdir(path, 0700), 0);
    }
    CHECK_EQ(statvfs(folder, &disk), 0);
    for (int i = 0; i < 2; i++) { /* of all that is free: a half fits, one and a half do not */
        unsigned long long wanted = (unsigned long long)disk.f_bavail * disk.f_frsize / 2 * (i == 0 ? 1 : 3);
        snprintf(arguments, sizeof arguments,
                 "train mlp.json --quiet --set memory.disk_path=swap0:swap1 --set memory.disk=%llu", wanted);
        run_result r = run_sluice(folder, arguments);
        CHECK_EQ(r.status, i == 0 ? 0 : 3);
        if (i > 0) CHECK_CONTAINS(r.error, "but the file system of memory.disk_path has only ");
        run_free(&r);
    }
}

/* What the device lacks no disk gives, and delayed updates do not go with one. */
TEST(a_disk_that_does_not_help_is_not_told)
{
    char folder[4096];
    prepare(folder);
    run_write(folder, "deep.json", DEEP);
    run_result device = run_sluice(folder, "plan deep.json --quiet --set memory.device=1MiB --set memory.host=96MiB"),
               delayed = run_sluice(folder, "plan deep.json --quiet --set memory.device=64MiB --set memory.host=96MiB "
                                            "--set zero_optimization.update=delayed");
    CHECK_EQ(device.status, 3);
    CHECK_THAT(strstr(device.error, "disk") == NULL, "%s", device.error);
    CHECK_EQ(delayed.status, 3);
    CHECK_THAT(strstr(delayed.error, "disk") == NULL, "%s", delayed.error);
    run_free(&device);
    run_free(&delayed);
}

/* At stage 1 with all savings permitted stage 3 needs as much, and on one rank there is nothing to divide. */
TEST(a_remedy_that_does_not_help_is_not_told)
{
    char folder[4096];
    prepare(folder);
    run_result r = plan_with(folder, "gpt2.json --ranks 2 --set zero_optimization.stage=1", "", 1024);
    CHECK_EQ(r.status, 3);
    CHECK_THAT(strstr(r.error, "zero_optimization.stage") == NULL, "%s", r.error);
    run_free(&r);
    r = plan_with(folder, "mlp.json --set train_micro_batch_size_per_gpu=1", "", 1024);
    CHECK_EQ(r.status, 3);
    CHECK_THAT(strstr(r.error, "micro_batch") == NULL && strstr(r.error, "rank") == NULL, "%s", r.error);
    run_free(&r);
}

/* The largest micro-batch that fits. */
TEST(a_smaller_micro_batch_is_told_of_as_large_as_it_fits)
{
    char folder[4096];
    prepare(folder);
    run_result r = plan_with(folder, "gpt2.json --set train_micro_batch_size_per_gpu=8", "", 250000);
    CHECK_EQ(r.status, 3);
    CHECK_CONTAINS(r.error, "train_micro_batch_size_per_gpu 2 needs memory.device ");
    CHECK_CONTAINS(r.error, " and fits");
    run_free(&r);
}

/* ---- what a refusal must not say ---- */

/* Of optimizers that take the norm of a whole parameter, none is cut, and no partition that would do it is told. */
TEST(ranks_that_must_not_cut_parameters_are_refused_with_the_bytes)
{
    static const char *const optimizers[] = { "LAMB", "LARS" };
    static const struct {
        const char *tier, *settings;
    } small[] = {
        { "device=1KiB", "" },
        { "host=10", "--set zero_optimization.offload_optimizer.device=cpu" },
        { "disk=1", "--set memory.disk_path=. --set zero_optimization.offload_optimizer.device=nvme" },
    };
    char folder[4096], arguments[512];
    prepare(folder);
    for (size_t i = 0; i < 2 * sizeof small / sizeof small[0]; i++)
        for (int stage = 0; stage <= 3; stage++) {
            snprintf(arguments, sizeof arguments,
                     "plan mlp.json --quiet --ranks 2 --set optimizer.type=%s --set zero_optimization.stage=%d "
                     "--set memory.%s %s",
                     optimizers[i % 2], stage, small[i / 2].tier, small[i / 2].settings);
            run_result r = run_sluice(folder, arguments);
            CHECK_THAT(r.status == 3, "%s: status %d: %s", arguments, r.status, r.error);
            CHECK_THAT(strstr(r.error, "are missing") != NULL && strstr(r.error, "partition") == NULL, "%s: %s",
                       arguments, r.error);
            run_free(&r);
        }
}

/* A machine has whole GiB; what is told to be less is told so that it can be read. */
TEST(a_little_that_is_missing_is_told_in_sizes_that_can_be_read)
{
    char folder[4096];
    prepare(folder);
    run_result r = run_sluice(folder, "plan mlp.json --set memory.disk=1 --set memory.disk_path=. "
                                      "--set zero_optimization.offload_optimizer.device=nvme");
    CHECK_EQ(r.status, 3);
    CHECK_CONTAINS(r.out, " KiB on disk are needed, and of its 1 B 1 B can be used");
    run_free(&r);
}

/* ---- checkpoints in the background ---- */

#define SAVES "--set checkpoint.background=true "

/* The host arena that a plan of 5 steps of a model on the device has. */
static unsigned long long planned_host(const char *folder, const char *arguments)
{
    char command[512];
    snprintf(command, sizeof command, "plan small.json --json %s", arguments);
    run_result r = run_sluice(folder, command);
    const char *host = strstr(r.out, "\"host\":");
    CHECK_THAT(r.status == 0 && host != NULL, "%s: %s", arguments, r.error);
    unsigned long long bytes = host != NULL ? strtoull(host + strlen("\"host\":"), NULL, 10) : 0;
    run_free(&r);
    return bytes;
}

TEST(the_copy_that_a_save_in_the_background_takes_is_planned_where_there_is_such_a_save)
{
    char folder[4096];
    prepare(folder);
    run_write_config(folder, "small.json", ", \"checkpoint\": {\"path\": \"kept\"}");
    CHECK_EQ(planned_host(folder, ""), 0);
    CHECK_EQ(planned_host(folder, SAVES), 0);
    CHECK_EQ(planned_host(folder, SAVES "--set checkpoint.every=5"), 0);
    CHECK_EQ(planned_host(folder, SAVES "--set checkpoint.every=50"), 0);
    CHECK(planned_host(folder, SAVES "--set checkpoint.every=4") > 0);
    CHECK_EQ(planned_host(folder, SAVES "--set steps=null --set epochs=1 --set checkpoint.every=10"), 0);
    CHECK(planned_host(folder, SAVES "--set steps=null --set epochs=1 --set checkpoint.every=9") > 0);
    CHECK(planned_host(folder, SAVES "--set checkpoint.keep_best=true --set data.validation=0.1 "
                                     "--set evaluate.every=2") > 0);
    run_must(folder, "train small.json --quiet " SAVES "--set memory.host=1KiB");
}

/* A run with a disk saves in the foreground; the disk holds nothing of the copy. */
TEST(a_disk_is_no_help_to_a_save_in_the_background)
{
    char folder[4096];
    prepare(folder);
    run_write_config(folder, "small.json", ", \"checkpoint\": {\"path\": \"kept\", \"every\": 2}");
    run_result r = run_sluice(folder, "plan small.json --quiet " SAVES "--set memory.host=64");
    CHECK_EQ(r.status, 3);
    CHECK_CONTAINS(r.error, "no checkpoints in the background (checkpoint.background false) needs");
    CHECK_THAT(strstr(r.error, "disk") == NULL, "%s", r.error);
    run_free(&r);
}

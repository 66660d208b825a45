/* What is planned is what is used, seen by the kernel: under a memory cgroup of the planned peaks, the printed overhead
 * and 64 MiB a run ends well, and where that is not enough the program refuses by itself before the kernel kills it. */
#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/fault_program.h"
#include "support/sanitized.h"
#include "test.h"

#define SLACK ((uint64_t)64 << 20)

/* ---- groups ---- */

static const struct hierarchy {
    const char *controller; /* as in /proc/self/cgroup */
    const char *mount, *limit;
} hierarchies[] = {
    { "memory", "/sys/fs/cgroup/memory", "memory.limit_in_bytes" },
    { "", "/sys/fs/cgroup", "memory.max" },
};

static char group[4096]; /* folder of the newest group */

static bool write_number(const char *file, uint64_t value)
{
    char path[4400];
    snprintf(path, sizeof path, "%s/%s", group, file);
    FILE *f = fopen(path, "r+");
    if (f == NULL) return false;
    bool written = fprintf(f, "%llu", (unsigned long long)value) > 0;
    return fclose(f) == 0 && written;
}

/* The group of this process in hierarchy `h`; "" (the visible root) inside a container that hides it. */
static void own_path(const struct hierarchy *h, char out[1024])
{
    char line[1024], *path;
    FILE *f = fopen("/proc/self/cgroup", "r");
    out[0] = '\0';
    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        char *list = strchr(line, ':');
        if (list == NULL || (path = strchr(list + 1, ':')) == NULL) continue;
        *path++ = '\0';
        path[strcspn(path, "\n")] = '\0';
        if (strcmp(list + 1, h->controller) == 0 && strcmp(path, "/") != 0) snprintf(out, 1024, "%s", path);
    }
    if (f != NULL) fclose(f);
    char folder[2048];
    snprintf(folder, sizeof folder, "%s%s", h->mount, out);
    if (access(folder, F_OK) != 0) out[0] = '\0';
}

/* A group below our own with the given limit. False where this machine does not let us. */
static bool make_group(uint64_t limit)
{
    static int count;
    for (size_t i = 0; i < sizeof hierarchies / sizeof hierarchies[0]; i++) {
        const struct hierarchy *h = &hierarchies[i];
        char own[1024];
        own_path(h, own);
        snprintf(group, sizeof group, "%s%s/sluice-test-%d-%d", h->mount, own, (int)getpid(), ++count);
        if (mkdir(group, 0700) != 0) continue;
        if (write_number(h->limit, limit)) return true;
        rmdir(group);
    }
    return false;
}

/* A group can be removed a moment after its last process has ended. */
static void remove_group(void)
{
    for (int i = 0; i < 1000 && rmdir(group) != 0 && errno == EBUSY; i++) usleep(1000);
    CHECK(access(group, F_OK) != 0);
}

#define NO_CGROUPS "no memory cgroup can be made here"
#define SANITIZER  "the address sanitizer takes memory that the program does not know of"

/* ---- runs ---- */

/* 25 million parameters: 300 MiB of weights, gradients and state at the least. */
static const char config[] =
    "{\"model\": {\"type\": \"mlp\", \"features\": 1024, \"hidden\": [2048, 2048, 2048, 2048, 2048, 2048], "
    "\"outputs\": 8},\n"
    " \"data\": {\"type\": \"regression\", \"samples\": 64}, \"steps\": 2, \"train_batch_size\": 8,\n"
    " \"optimizer\": {\"type\": \"AdamW\"}}\n";

static void make_folder(char folder[1024])
{
    snprintf(folder, 1024, "%.1000s", test_tmpdir());
    write_text(folder, "c.json", config);
}

static uint64_t planned(const program *p)
{
    return p->device_bytes + p->host_bytes;
}

/* What a plan is for one rank of several, all of which live in the group. */
static uint64_t planned_limit(const program *p, uint64_t ranks)
{
    return ranks * (planned(p) + p->overhead_bytes) + SLACK;
}

/* Runs with `settings` freely, then again in a group of just what the plan said. */
static void check_runs_in_what_it_planned(const char *settings, uint64_t ranks, uint64_t least, program *inside)
{
    char folder[1024], arguments[1024];
    program outside;
    make_folder(folder);
    snprintf(arguments, sizeof arguments, "train c.json --json%s", settings);
    CHECK_EQ(program_run(&outside, folder, arguments), 0);
    CHECK(planned(&outside) > least);
    if (!make_group(planned_limit(&outside, ranks))) SKIP(cgroup, NO_CGROUPS);
    program_start_in_group(inside, folder, group, arguments);
    CHECK_EQ(program_wait(inside), 0);
    remove_group();
    if (inside->weights[0] == '\0') test_fail(__FILE__, __LINE__, "%s", program_error(inside));
    CHECK_EQ(inside->end_device_bytes, inside->device_bytes);
    CHECK_EQ(inside->end_host_bytes, inside->host_bytes);
    CHECK_STR(inside->weights, outside.weights);
    CHECK_STR(inside->state, outside.state);
}

TEST(a_run_lives_in_a_cgroup_of_its_planned_and_printed_bytes)
{
    program inside;
    if (SANITIZED) SKIP(plain_build, SANITIZER);
    check_runs_in_what_it_planned("", 1, (uint64_t)300 << 20, &inside);
}

TEST(a_model_far_larger_than_the_device_lives_in_such_a_cgroup)
{
    program inside;
    if (SANITIZED) SKIP(plain_build, SANITIZER);
    check_runs_in_what_it_planned(" --set memory.device=80MiB", 1, (uint64_t)300 << 20, &inside);
    if (test_skip_reason == NULL) CHECK(inside.device_bytes <= (uint64_t)80 << 20);
}

/* Twelve layers of 1024 x 1024. */
#define MANY_LAYERS " --set model.hidden=[1024,1024,1024,1024,1024,1024,1024,1024,1024,1024,1024,1024]"
#define ON_HOST     " --set zero_optimization.offload_param.device=cpu --set zero_optimization.offload_optimizer.device=cpu"

/* Two ranks share 192 MiB of weights, gradients and moments, more than ten times what their devices have. Ranks that
 * kept more than their half, on the device or on the host, would be killed: twice the whole is far above the limit. */
TEST(two_ranks_live_in_the_cgroup_of_one_copy_of_the_state)
{
    program inside;
    const uint64_t state = (uint64_t)16 * 12 * 1024 * 1024, device = (uint64_t)16 << 20;
    if (SANITIZED) SKIP(plain_build, SANITIZER);
    check_runs_in_what_it_planned(MANY_LAYERS ON_HOST
                                  " --ranks 2 --set memory.device=16MiB --set zero_optimization.stage=3",
                                  2, state / 2, &inside);
    if (test_skip_reason != NULL) return;
    CHECK(inside.device_bytes <= device && state > 10 * device);
    CHECK(planned_limit(&inside, 2) < 2 * state);
}

/* "auto" reads the group's limit: refused with the numbers, never killed by the kernel. */
TEST(a_cgroup_too_small_is_refused_before_the_first_step)
{
    char folder[1024];
    program p;
    if (SANITIZED) SKIP(plain_build, SANITIZER);
    make_folder(folder);
    if (!make_group((uint64_t)128 << 20)) SKIP(cgroup, NO_CGROUPS);
    program_start_in_group(&p, folder, group, "train c.json --json");
    CHECK_EQ(program_wait(&p), 3);
    remove_group();
    CHECK_EQ(p.events, 0);
    CHECK_CONTAINS(program_error(&p), "does not fit");
    CHECK_CONTAINS(program_error(&p), "are missing");
}

TEST(a_budget_that_the_cgroup_does_not_leave_is_refused_as_the_cgroups)
{
    char folder[1024];
    program p;
    if (SANITIZED) SKIP(plain_build, SANITIZER);
    make_folder(folder);
    if (!make_group((uint64_t)256 << 20)) SKIP(cgroup, NO_CGROUPS);
    program_start_in_group(&p, folder, group, "train c.json --json --set memory.device=1GiB");
    CHECK_EQ(program_wait(&p), 3);
    remove_group();
    CHECK_EQ(p.events, 0);
    CHECK_CONTAINS(program_error(&p), "memory.device is 1.00 GiB");
    CHECK_CONTAINS(program_error(&p), "but the cgroup of this process has only ");
}

/* 200 MiB of activations that recomputing brings down to 45. */
static const char deep_config[] =
    "{\"model\": {\"type\": \"gpt2\", \"layers\": 6, \"heads\": 4, \"width\": 128, \"context\": 128},\n"
    " \"data\": {\"type\": \"text\", \"path\": \"input.txt\"}, \"steps\": 1, \"train_batch_size\": 32,\n"
    " \"optimizer\": {\"type\": \"AdamW\"}}\n";

TEST(an_automatic_budget_follows_the_cgroup)
{
    char folder[1024];
    program outside, inside;
    if (SANITIZED) SKIP(plain_build, SANITIZER);
    make_folder(folder);
    write_text(folder, "deep.json", deep_config);
    write_corpus(folder, 20000);
    CHECK_EQ(program_run(&outside, folder, "plan deep.json --json"), 0);
    CHECK(planned(&outside) > (uint64_t)200 << 20);
    if (!make_group((uint64_t)160 << 20)) SKIP(cgroup, NO_CGROUPS);
    program_start_in_group(&inside, folder, group, "train deep.json --json");
    CHECK_EQ(program_wait(&inside), 0);
    remove_group();
    if (inside.weights[0] == '\0') test_fail(__FILE__, __LINE__, "%s", program_error(&inside));
    CHECK(inside.device_bytes > 0 && planned(&inside) < (uint64_t)160 << 20);
}

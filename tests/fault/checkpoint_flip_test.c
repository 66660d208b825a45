/* checkpoint_flip_test.c: any bit of any file of a checkpoint that ranks with swap files wrote is flipped. Each is found and its
 * file named, the checkpoint before it is taken, and the run goes on from there to its bits. */
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model/model.h"
#include "sluice.h"
#include "support/fault_program.h"
#include "test.h"

#define FLIPS        300
#define LONG_FLIPS   10000 /* with LONG in the environment */
#define RESUME_EVERY 100   /* of so many one is also resumed by the program */

static const char config[] =
    "{\"model\": {\"type\": \"mlp\", \"features\": 8, \"hidden\": [32]},\n"
    " \"data\": {\"type\": \"regression\", \"samples\": 40}, \"steps\": 4, \"train_batch_size\": 4,\n"
    " \"train_micro_batch_size_per_gpu\": 2, \"threads\": 1, \"optimizer\": {\"type\": \"AdamW\"},\n"
    " \"checkpoint\": {\"path\": \"run\", \"every\": 2, \"keep\": 2}, \"memory\": {\"disk_path\": \"%s\"},\n"
    " \"zero_optimization\": {\"stage\": 2, \"offload_optimizer\": {\"device\": \"nvme\"},\n"
    "                         \"offload_param\": {\"device\": \"nvme\"}}}\n";

/* An engine that checkpoints are loaded into. */
typedef struct judge {
    sluice_graph *graph;
    sluice_engine *engine;
    char warning[1024]; /* the newest */
} judge;

static void on_log(void *user, sluice_log_level level, const char *line)
{
    judge *j = user;
    if (level == SLUICE_LOG_WARNING) snprintf(j->warning, sizeof j->warning, "%s", line);
}

static sluice_status judge_create(judge *j)
{
    sl_model_options m = { .type = "mlp",
                           .batch = 2,
                           .features = 8,
                           .hidden = { 32 },
                           .hidden_count = 1,
                           .outputs = 1,
                           .activation = "relu",
                           .loss = "mse",
                           .bias = true };
    sl_model_info info;
    sluice_options o;
    *j = (judge){ .engine = NULL };
    sluice_options_init(&o);
    sluice_optimizer_init(&o.optimizer, SLUICE_ADAMW);
    o.accumulation_steps = 2;
    o.seed = 1;
    o.threads = 1;
    o.device_bytes = o.host_bytes = (uint64_t)1 << 24;
    o.log = on_log;
    o.log_user = j;
    sluice_status st = sluice_graph_create(&j->graph);
    if (st == SLUICE_OK) st = sl_model_build(j->graph, &m, &info);
    return st == SLUICE_OK ? sluice_engine_create(j->graph, &o, &j->engine) : st;
}

/* The newest checkpoint that is whole: its step, its weights and their state. */
static uint64_t newest(judge *j, const char *folder, char weights[65], char state[65])
{
    char run[1100];
    uint64_t step = 0;
    j->warning[0] = '\0';
    snprintf(run, sizeof run, "%s/run", folder);
    sluice_status st = sluice_checkpoint_resume(j->engine, run, &step);
    if (st == SLUICE_OK) st = sluice_hash(j->engine, weights, state);
    CHECK_THAT(st == SLUICE_OK, "%s", sluice_error());
    return step;
}

static void flip(const char *path, uint64_t bit)
{
    unsigned char byte;
    int fd = open(path, O_RDWR);
    if (fd < 0 || pread(fd, &byte, 1, (off_t)(bit / 8)) != 1) exit(99);
    byte = (unsigned char)(byte ^ (1 << bit % 8));
    if (pwrite(fd, &byte, 1, (off_t)(bit / 8)) != 1 || close(fd) != 0) exit(99);
}

/* In a copy, which it writes to. */
static void check_program_goes_on(const char *folder, const program *untouched)
{
    char copy[1024], command[2200];
    program p;
    memory_folder(copy);
    snprintf(command, sizeof command, "cp -r '%s/.' '%s'", folder, copy);
    if (system(command) != 0) exit(99);
    CHECK_EQ(program_run(&p, copy, "train c.json --json --ranks 2 --resume"), 0);
    CHECK_CONTAINS(program_error(&p), "step-4");
    CHECK_EQ(p.resumed, 2);
    CHECK_STR(p.weights, untouched->weights);
    CHECK_STR(p.state, untouched->state);
}

TEST(a_flipped_bit_of_a_checkpoint_of_a_run_with_swap_files_is_found_and_named)
{
    static const char *const files[] = { "rank-0.bin", "rank-1.bin", "manifest.json" };
    char folder[1024], text[PATH_MAX + 1024], path[1200], name[64], weights[65], state[65], older[2][65];
    judge j;
    program untouched;
    uint64_t random = 4;
    const char *told = getenv("CHECKPOINT_FLIPS");
    int found = 0, resumed = 0, flips = told != NULL ? atoi(told) : getenv("LONG") != NULL ? LONG_FLIPS : FLIPS;
    memory_folder(folder);
    snprintf(text, sizeof text, config, test_tmpdir());
    write_text(folder, "c.json", text);
    CHECK_EQ(program_run(&untouched, folder, "train c.json --json --ranks 2"), 0);
    REQUIRE_OK(judge_create(&j));
    CHECK_EQ(newest(&j, folder, weights, state), 4);
    CHECK_STR(weights, untouched.weights);
    CHECK_STR(state, untouched.state);
    for (int i = 0; i < flips && test_failures == 0; i++) {
        struct stat info;
        const char *file = files[next_random(&random, 3)];
        snprintf(name, sizeof name, "step-4/%s", file);
        snprintf(path, sizeof path, "%s/run/%s", folder, name);
        if (stat(path, &info) != 0) exit(99);
        uint64_t bit = next_random(&random, (uint32_t)info.st_size * 8);
        flip(path, bit);
        CHECK_EQ(newest(&j, folder, weights, state), 2);
        CHECK_CONTAINS(j.warning, name);
        if (i == 0) memcpy(older[0], weights, 65), memcpy(older[1], state, 65);
        CHECK_STR(weights, older[0]);
        CHECK_STR(state, older[1]);
        if (i % RESUME_EVERY == 0) check_program_goes_on(folder, &untouched), resumed++;
        if (test_failures > 0) test_fail(__FILE__, __LINE__, "bit %d of %s", (int)bit, name);
        flip(path, bit);
        found++;
    }
    CHECK_EQ(newest(&j, folder, weights, state), 4); /* all are undone */
    printf("%d bits of checkpoints flipped, %d found and named; %d resumed by the program\n", flips, found, resumed);
    sluice_engine_destroy(j.engine);
    sluice_graph_destroy(j.graph);
}

/* mpirun_test.c: the program as a job of MPI. Who started the ranks changes no bit. */
#include <stdlib.h>
#include <unistd.h>

#include "support/run.h"
#include "test.h"

#define PROGRAM SLUICE_BINARY_DIR "/sluice"
#define PLUGIN  SLUICE_BINARY_DIR "/libsluice_mpi.so"

/* Layers of more than one cut of 1,024 elements, so that every rank owns something. */
#define MODEL                                                                                                          \
    "{\"model\": {\"type\": \"mlp\", \"features\": 16, \"hidden\": [96, 64], \"outputs\": 4},\n"                       \
    " \"data\": {\"type\": \"classification\", \"samples\": 64}, \"steps\": 6, \"train_batch_size\": 8,\n"             \
    " \"train_micro_batch_size_per_gpu\": 2, \"threads\": 1, \"optimizer\": {\"type\": \"AdamW\"},\n"                  \
    " \"gradient_clipping\": 0.5, \"timeout_seconds\": 30, \"memory\": {\"device\": \"16MiB\", \"host\": "             \
    "\"16MiB\"}}\n"

/* Batch norms over ranks: twenty that meet twice in each of two micro-batches. */
#define SHARED                                                                                                         \
    "{\"model\": {\"type\": \"resnet\", \"depth\": 18, \"stem\": \"cifar\", \"batch_norm\": \"all_ranks\"},\n"         \
    " \"data\": {\"type\": \"random_images\", \"samples\": 16, \"image_size\": 8, \"channels\": 3, \"outputs\": 4},\n" \
    " \"steps\": 2, \"train_batch_size\": 12, \"train_micro_batch_size_per_gpu\": 3, \"threads\": 1,\n"                \
    " \"optimizer\": {\"type\": \"SGD\", \"params\": {\"lr\": 0.05}}, \"timeout_seconds\": 60}\n"

typedef struct setting {
    int ranks;
    const char *settings;
} setting;

static const setting settings[] = {
    { 2, "--set zero_optimization.stage=0" },
    { 2, "--set zero_optimization.stage=1 --set zero_optimization.offload_optimizer.device=cpu" },
    { 4, "--set zero_optimization.stage=2 --set zero_optimization.partition=block "
         "--set zero_optimization.partition_block=1024" },
    { 2, "--set zero_optimization.stage=3 --set zero_optimization.partition=owner" },
    { 4, "--set zero_optimization.stage=3 --set zero_optimization.offload_param.device=cpu "
         "--set zero_optimization.offload_optimizer.device=cpu" },
};

typedef struct digests {
    char weights[65], state[65];
} digests;

/* The hashes of the only "end" event; "" where there is none, or not exactly one. */
static digests digests_of(const char *out)
{
    static const char end[] = "{\"event\":\"end\"", weights[] = "\"weights_sha256\":\"",
                      state[] = "\"state_sha256\":\"";
    digests d = { "", "" };
    const char *at = strstr(out, end);
    if (at == NULL || strstr(at + 1, end) != NULL) return d;
    const char *w = strstr(at, weights), *s = strstr(at, state);
    if (w != NULL) snprintf(d.weights, sizeof d.weights, "%.64s", w + strlen(weights));
    if (s != NULL) snprintf(d.state, sizeof d.state, "%.64s", s + strlen(state));
    return d;
}

static void check_run(run_result r, int ranks, const digests *expected, const char *what)
{
    char plan[64];
    digests d = digests_of(r.out);
    snprintf(plan, sizeof plan, "{\"event\":\"plan\",\"ranks\":%d,", ranks);
    CHECK_CONTAINS(r.out, plan);
    if (r.status != 0) test_fail(__FILE__, __LINE__, "%s ends with %d: %s", what, r.status, r.error);
    CHECK_STR(d.weights, expected->weights);
    CHECK_STR(d.state, expected->state);
    run_free(&r);
}

static run_result run_under_mpi(const char *folder, const setting *s)
{
    char command[8192], path[4400];
    run_result r = { .status = -1 };
    /* leaks inside MPI are not ours to report */
    snprintf(command, sizeof command,
             "cd '%s' && ASAN_OPTIONS=detect_leaks=0 timeout -k 5 60 mpirun --allow-run-as-root --oversubscribe "
             "--bind-to none -n %d " PROGRAM " train m.json --json %s > out 2> err",
             folder, s->ranks, s->settings);
    int status = system(command);
    if (status >= 0) r.status = status / 256;
    snprintf(path, sizeof path, "%s/out", folder);
    r.out = run_read(path);
    snprintf(path, sizeof path, "%s/err", folder);
    r.error = run_read(path);
    return r;
}

/* Whoever moves the statistics, at whatever stage; what is sent is what the plan said. */
TEST(batch_norms_over_ranks_of_mpirun_have_the_bits_of_ranks_of_our_own)
{
    char folder[4096];
    const setting plain = { 2, "--set zero_optimization.stage=3" };
    if (access(PLUGIN, R_OK) != 0) SKIP(mpi, "built without MPI: libsluice_mpi.so is not beside the program");
    if (system("mpirun --version > /dev/null 2>&1") != 0) SKIP(mpi, "no mpirun here");
    snprintf(folder, sizeof folder, "%s", test_tmpdir());
    run_write(folder, "m.json", SHARED);
    run_result own = run_sluice(folder, "train m.json --json --ranks 2 --set zero_optimization.stage=1 "
                                        "--set activation_checkpointing.mode=recompute");
    digests expected = digests_of(own.out);
    CHECK_EQ(strlen(expected.weights), 64);
    run_free(&own);
    run_result r = run_under_mpi(folder, &plain);
    char predicted[128] = "", *at = strstr(r.out, "\"comm_bytes\":{");
    if (at != NULL) snprintf(predicted, sizeof predicted, "%.*s", (int)strcspn(at, "}"), at);
    CHECK(at != NULL && strstr(at + 1, predicted) != NULL);
    check_run(r, 2, &expected, plain.settings);
}

TEST(ranks_of_mpirun_end_with_the_bits_of_ranks_of_our_own_and_of_one)
{
    char folder[4096], arguments[1024];
    if (access(PLUGIN, R_OK) != 0) SKIP(mpi, "built without MPI: libsluice_mpi.so is not beside the program");
    if (system("mpirun --version > /dev/null 2>&1") != 0) SKIP(mpi, "no mpirun here");
    snprintf(folder, sizeof folder, "%s", test_tmpdir());
    run_write(folder, "m.json", MODEL);
    run_result alone = run_sluice(folder, "train m.json --json");
    digests one = digests_of(alone.out);
    CHECK_EQ(strlen(one.weights), 64);
    CHECK_EQ(strlen(one.state), 64);
    run_free(&alone);
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
        const setting *s = &settings[i];
        snprintf(arguments, sizeof arguments, "train m.json --json --ranks %d %s", s->ranks, s->settings);
        check_run(run_sluice(folder, arguments), s->ranks, &one, arguments);
        check_run(run_under_mpi(folder, s), s->ranks, &one, s->settings);
    }
}

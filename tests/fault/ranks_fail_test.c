/* Ranks that fail or differ: all of them end, soon, with exit status 5 (7 where the numbers went bad), and the message
 * says which rank and what it was at. */
#include <math.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "model/model.h"
#include "support/fault_ranks.h"
#include "test.h"

#define DEADLINE 2  /* seconds; timeout_seconds */
#define MARGIN   10 /* what all ranks may take beyond it */

static const char config[] =
    "{\"model\": {\"type\": \"gpt2\", \"layers\": 1, \"heads\": 2, \"width\": 16, \"context\": 8},\n"
    " \"data\": {\"type\": \"text\", \"path\": \"input.txt\"}, \"steps\": 30, \"train_batch_size\": 4,\n"
    " \"train_micro_batch_size_per_gpu\": 1, \"threads\": 1, \"optimizer\": {\"type\": \"AdamW\"},\n"
    " \"timeout_seconds\": 2, \"checkpoint\": {\"path\": \"run\", \"every\": 5}}\n";

static void make_folder(char folder[1024])
{
    memory_folder(folder);
    write_text(folder, "c.json", config);
    write_corpus(folder, 300);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- lost and stuck ---- */

/* A run of 2 or 4 ranks, one of which gets a signal in mid-run: 5, in time, the rank and the others' call named; then
 * it resumes to the same bits. */
static void check_lost(int ranks, int stage, int rank, int signal_number, const char *expected,
                       const program *untouched)
{
    char folder[1024], arguments[256], name[64];
    program p, rest;
    pid_t pids[MOST_RANKS];
    make_folder(folder);
    snprintf(arguments, sizeof arguments, "train c.json --json --ranks %d --set zero_optimization.stage=%d", ranks,
             stage);
    program_start_narrow(&p, folder, arguments);
    REQUIRE(program_reach(&p, 10));
    REQUIRE(program_ranks(&p, pids) == ranks);
    double start = now();
    kill(pids[rank], signal_number);
    CHECK_EQ(program_wait(&p), 5);
    CHECK(now() - start < DEADLINE + MARGIN);
    snprintf(name, sizeof name, "rank %d", rank);
    CHECK_CONTAINS(program_error(&p), name);
    CHECK_CONTAINS(program_error(&p), expected);
    bool call_named = strstr(program_error(&p), "collective ") != NULL || strstr(program_error(&p), "\" (") != NULL;
    if (!call_named) test_fail(__FILE__, __LINE__, "no call is named: %s", program_error(&p));
    check_gone(pids, ranks);
    CHECK_EQ(program_run(&rest, folder, "train c.json --json --resume --ranks 2"), 0);
    CHECK(rest.resumed >= p.saved);
    CHECK_STR(rest.weights, untouched->weights);
    CHECK_STR(rest.state, untouched->state);
    check_tidy(folder, "run");
}

static void run_untouched(program *untouched)
{
    char folder[1024];
    make_folder(folder);
    CHECK_EQ(program_run(untouched, folder, "train c.json --json"), 0);
}

TEST(a_killed_rank_ends_all_with_exit_5_and_is_named)
{
    program untouched;
    run_untouched(&untouched);
    for (int stage = 0; stage < 4; stage++)
        check_lost(stage % 2 == 0 ? 4 : 2, stage, stage % 2, SIGKILL, "was killed by signal 9", &untouched);
}

TEST(a_rank_that_crashes_ends_all_with_exit_5_and_is_named)
{
    program untouched;
    run_untouched(&untouched);
    check_lost(4, 3, 2, SIGABRT, "was killed by signal 6", &untouched);
}

TEST(a_stopped_rank_ends_all_at_the_deadline_and_is_named)
{
    program untouched;
    run_untouched(&untouched);
    check_lost(2, 3, 1, SIGSTOP, "2 s", &untouched);
    if (getenv("LONG") != NULL) check_lost(4, 0, 0, SIGSTOP, "2 s", &untouched);
}

/* ---- not the same ---- */

/* What rank 1 of 2 has otherwise, and what the message must show of both. */
static const struct difference {
    const char *setting;
    const char *parts[4];
} differences[] = {
    { "seed=43", { "seed: rank 0 has 1, rank 1 has 43" } },
    { "optimizer.params.lr=0.5", { "lr", "rank 0 has 0.001, rank 1 has 0.5" } },
    { "model.layers=2", { "layers", "rank 0 has 1, rank 1 has 2" } },
    { "data.path=other.txt", { "data", "rank 0 has", "rank 1 has" } },
    { "zero_optimization.stage=3", { "stage: rank 0 has 1, rank 1 has 3" } },
    { "steps=31", { "steps: rank 0 has 30, rank 1 has 31" } },
};
#define DIFFERENCES ((int)(sizeof differences / sizeof differences[0]))

static void check_refused(const ranks_job *j, const char *const *parts, int count)
{
    ranks_result *r;
    double start = now();
    CHECK_EQ(ranks_run(j, &r), 5);
    CHECK(now() - start < DEADLINE + MARGIN);
    CHECK_EQ(r->step, 0);
    for (int i = 0; i < count && parts[i] != NULL; i++) CHECK_CONTAINS(r->message, parts[i]);
    check_gone(r->pids, j->ranks);
}

TEST(a_rank_with_another_configuration_is_refused_before_the_first_step_with_both_values)
{
    char folder[1024];
    make_folder(folder);
    write_text(folder, "other.txt", "the boat waits below the lock for the water to come up again. ");
    for (int i = 0; i < DIFFERENCES; i++) {
        ranks_job j = { .folder = folder,
                        .ranks = 2,
                        .timeout_seconds = DEADLINE,
                        .settings = { "zero_optimization.stage=1" },
                        .odd_rank = 1,
                        .odd_setting = differences[i].setting };
        check_refused(&j, differences[i].parts, 4);
    }
}

/* The same configuration to the letter, but the file it names is not the same on the other rank's machine. */
TEST(a_rank_with_another_data_file_is_refused_before_the_first_step)
{
    static const char *const parts[] = { "data", "rank 0", "rank 1" };
    char folder[1024], other[1024];
    make_folder(folder);
    make_folder(other);
    write_text(other, "input.txt", "the boat waits below the lock for the water to come up again. ");
    ranks_job j = { .folder = folder, .ranks = 2, .timeout_seconds = DEADLINE, .odd_rank = 1, .odd_folder = other };
    check_refused(&j, parts, 3);
}

/* ---- numbers ---- */

typedef struct samples {
    int rank, bad_rank;
} samples;

/* Step 2 of the bad rank has a sample beyond all bounds. */
static sluice_status fill(void *user, uint64_t index, const char *const *names, void *const *buffers,
                          const size_t *bytes, int count)
{
    const samples *s = user;
    (void)names;
    for (int i = 0; i < count; i++) {
        float *values = buffers[i];
        for (size_t k = 0; k < bytes[i] / sizeof *values; k++) values[k] = (float)((index + k) % 5);
        if (s->rank == s->bad_rank && index >= 2) values[0] = INFINITY;
    }
    return SLUICE_OK;
}

static sluice_status train_on(sluice_world *world, int bad_rank, int stage, sluice_graph *g)
{
    static const sl_model_options model = { .type = "mlp",
                                            .batch = 2,
                                            .features = 3,
                                            .outputs = 2,
                                            .hidden = { 5 },
                                            .hidden_count = 1,
                                            .activation = "relu",
                                            .loss = "mse" };
    samples s = { sluice_world_rank(world), bad_rank };
    sl_model_info info;
    sluice_options o;
    sluice_engine *e = NULL;
    sluice_data *data = NULL;
    double loss;
    sluice_options_init(&o);
    o.world = world;
    o.stage = stage;
    o.threads = 1;
    sluice_status st = sl_model_build(g, &model, &info);
    if (st == SLUICE_OK) st = sluice_engine_create(g, &o, &e);
    if (st == SLUICE_OK) st = sluice_data_from_callback(fill, &s, &data);
    if (st == SLUICE_OK) st = sluice_fit(e, data, 3, &loss);
    sluice_data_destroy(data);
    sluice_engine_destroy(e);
    return st;
}

static int tried_stage; /* for the body, which is forked with it */

static sluice_status bad_numbers_body(void *user, sluice_world *world)
{
    sluice_graph *g = NULL;
    sluice_status st = sluice_graph_create(&g);
    if (st == SLUICE_OK) st = train_on(world, 1, tried_stage, g);
    sluice_graph_destroy(g);
    if (st == SLUICE_ERR_NUMBERS) ((int *)user)[sluice_world_rank(world)] = 1;
    return st;
}

TEST(a_loss_that_is_not_finite_on_one_rank_ends_all_with_exit_7)
{
    for (tried_stage = 0; tried_stage < 4; tried_stage++) {
        int *said = shared_ints(2);
        sluice_launch_options o;
        sluice_launch_options_init(&o);
        o.ranks = 2;
        o.timeout_seconds = DEADLINE;
        sluice_status st = sluice_launch(&o, bad_numbers_body, said);
        CHECK_EQ(sluice_exit_status(st), 7);
        CHECK_CONTAINS(sluice_error(), "step 2");
        CHECK(said[0] && said[1]);
    }
}

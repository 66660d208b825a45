/* disk_kill_test.c: runs with swap files, and runs whose updates are speculative or delayed, killed while they train, save or
 * swap: one rank, or the process that started the ranks. They resume to the bits of a run in memory that nobody touched, also
 * with other ranks and with another placement, and nothing is left where the swap files were.
 *
 * Half of the kills come from outside at a random moment; half from inside, before a random request to the disk, so that they
 * fall into a transfer. DISK_KILLS in the environment says how many there are. */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <unistd.h>

#include "support/fault_program.h"
#include "support/fault_ranks.h"
#include "test.h"

#define KILLS      10
#define LONG_KILLS 1000 /* with LONG in the environment */
#define STEPS      8

/* A step in the middle is clipped: what was updated on speculation is done again. */
static const char config[] =
    "{\"model\": {\"type\": \"mlp\", \"features\": 8, \"hidden\": [32, 16], \"outputs\": 4},\n"
    " \"data\": {\"type\": \"regression\", \"samples\": 24}, \"steps\": 8, \"train_batch_size\": 4,\n"
    " \"train_micro_batch_size_per_gpu\": 1, \"threads\": 1, \"optimizer\": {\"type\": \"AdamW\"},\n"
    " \"gradient_clipping\": 2.0, \"checkpoint\": {\"path\": \"run\", \"every\": 1},\n"
    " \"scheduler\": {\"type\": \"WarmupCosineLR\", \"params\": {\"warmup_num_steps\": 3}}}\n";

/* What is killed; each may resume as any that has its bits. */
typedef struct way {
    const char *name, *settings; /* %s: the folder of swap files */
    bool disk, delayed;
} way;
static const way ways[] = {
    { "all on the disk",
      "--set memory.disk_path=%s --set zero_optimization.offload_optimizer.device=nvme --set "
      "zero_optimization.offload_param.device=nvme --set "
      "activation_checkpointing={\"mode\":\"offload\",\"device\":\"nvme\"}",
      true, false },
    { "state on the disk", "--set memory.disk_path=%s --set zero_optimization.offload_optimizer.device=nvme", true,
      false },
    { "activations, speculative",
      "--set memory.disk_path=%s --set activation_checkpointing={\"mode\":\"offload\",\"device\":\"nvme\"} --set "
      "zero_optimization.offload_optimizer.device=cpu --set zero_optimization.update=speculative",
      true, false },
    { "on the host, speculative",
      "--set zero_optimization.offload_optimizer.device=cpu --set zero_optimization.update=speculative", false, false },
    { "on the host, delayed",
      "--set zero_optimization.offload_optimizer.device=cpu --set zero_optimization.update=delayed --set "
      "zero_optimization.delay_warmup=2",
      false, true },
};
enum { WAYS = sizeof ways / sizeof ways[0], DELAYED = WAYS - 1 };

typedef enum { BEFORE_FIRST_SAVE, INSIDE_A_SAVE, BETWEEN_SAVES, PHASES } phase;

typedef struct campaign {
    uint64_t random;
    char disk[PATH_MAX];
    program untouched[2]; /* of prompt and of delayed updates */
    int requests[WAYS];   /* of the disk, on one rank */
    int counts[WAYS][PHASES], swapping[WAYS], ranks[MOST_RANKS + 1], parents;
} campaign;

static void make_folder(char folder[1024])
{
    memory_folder(folder);
    write_text(folder, "c.json", config);
}

static int count_requests(const campaign *c, const way *w)
{
    const disk_fault none = { .call = "swap_", .kind = DISK_FINE };
    char folder[1024], settings[PATH_MAX + 512], arguments[PATH_MAX + 1024];
    program p;
    make_folder(folder);
    snprintf(settings, sizeof settings, w->settings, c->disk);
    snprintf(arguments, sizeof arguments, "train c.json --json %s", settings);
    CHECK_EQ(program_run_faulty(&p, folder, &none, arguments), 0);
    CHECK_STR(p.weights, c->untouched[0].weights);
    int calls = program_faults(&p).calls;
    CHECK(calls > 0);
    return calls > 0 ? calls : 1;
}

static bool open_campaign(campaign *c, uint64_t seed)
{
    char folder[1024];
    *c = (campaign){ .random = seed };
    for (int delayed = 0; delayed < 2; delayed++) {
        char arguments[512];
        make_folder(folder);
        snprintf(arguments, sizeof arguments, "train c.json --json %s", delayed ? ways[DELAYED].settings : "");
        int status = program_run(&c->untouched[delayed], folder, arguments);
        CHECK_EQ(status, 0);
        if (status != 0) return false;
    }
    CHECK(strcmp(c->untouched[0].weights, c->untouched[1].weights) != 0);
    snprintf(c->disk, sizeof c->disk, "%s", test_tmpdir());
    for (int i = 0; i < WAYS; i++) c->requests[i] = ways[i].disk ? count_requests(c, &ways[i]) : 0;
    return true;
}

/* ---- one run to be killed ---- */

typedef struct target {
    const way *way;
    char folder[1024], arguments[PATH_MAX + 1024];
    int ranks;
    program p;
    pid_t pids[MOST_RANKS];
} target;

/* The number of ranks. */
static int random_arguments(campaign *c, const way *w, const char *start, char *out, size_t bytes)
{
    char settings[PATH_MAX + 512];
    int ranks = 1 << next_random(&c->random, 3), stage = (int)next_random(&c->random, 4);
    snprintf(settings, sizeof settings, w->settings, c->disk);
    snprintf(out, bytes, "%s --ranks %d --set zero_optimization.stage=%d %s", start, ranks, stage, settings);
    return ranks;
}

/* A step-*.tmp: a half-written checkpoint, or a half-removed one. */
static phase phase_of(const char *folder)
{
    char path[1100];
    struct dirent *entry;
    bool half = false, saved = false;
    snprintf(path, sizeof path, "%s/run", folder);
    DIR *dir = opendir(path);
    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        bool step = strncmp(entry->d_name, "step-", 5) == 0, tmp = strstr(entry->d_name, ".tmp") != NULL;
        half = half || (step && tmp);
        saved = saved || (step && !tmp);
    }
    if (dir != NULL) closedir(dir);
    return half ? INSIDE_A_SAVE : saved ? BETWEEN_SAVES : BEFORE_FIRST_SAVE;
}

/* A rank, or of several ranks their parent; one rank is a process of its own. False: it was done before the blow. */
static bool kill_from_outside(campaign *c, target *t)
{
    const disk_fault none = { .call = "swap_", .kind = DISK_FINE, .threads = next_random(&c->random, 2) == 0 };
    program_start_faulty(&t->p, t->folder, &none, t->arguments);
    (void)fcntl(fileno(t->p.out), F_SETPIPE_SZ, 4096); /* it cannot get far ahead */
    int events = 1 + (int)next_random(&c->random, 2 * STEPS - 4);
    CHECK(program_reach(&t->p, events));
    usleep(next_random(&c->random, 3000));
    int rank = t->ranks == 1 ? -1 : (int)next_random(&c->random, (uint32_t)t->ranks + 1) - 1;
    /* Ranks that have ended are no longer there to be struck. */
    bool there = t->ranks == 1 || program_ranks(&t->p, t->pids) == t->ranks;
    if (there) kill(rank < 0 ? t->p.pid : t->pids[rank], SIGKILL);
    int status = program_wait(&t->p);
    if (status == 0) return false;
    CHECK(there);
    c->parents += t->ranks > 1 && rank < 0;
    CHECK_EQ(status, rank < 0 ? 128 + SIGKILL : 5);
    return true;
}

/* Before a request to the disk, by the rank that makes it. False: there were not so many. */
static bool kill_from_inside(campaign *c, target *t)
{
    bool parent = t->ranks > 1 && next_random(&c->random, 4) == 0;
    disk_fault f = { .call = "swap_", .kind = parent ? DISK_KILL_PARENT : DISK_KILL };
    f.nth = 1 + (int)next_random(&c->random, (uint32_t)c->requests[t->way - ways]);
    f.threads = next_random(&c->random, 2) == 0;
    program_start_faulty(&t->p, t->folder, &f, t->arguments);
    int status = program_wait(&t->p);
    if (program_faults(&t->p).struck == 0) {
        CHECK_EQ(status, 0);
        return false;
    }
    CHECK_EQ(status, t->ranks == 1 || parent ? 128 + SIGKILL : 5);
    c->swapping[t->way - ways]++;
    c->parents += parent;
    return true;
}

static void check_resume(campaign *c, const target *t)
{
    program p;
    char arguments[PATH_MAX + 1024];
    const program *untouched = &c->untouched[t->way->delayed];
    const way *w = t->way->delayed ? t->way : &ways[next_random(&c->random, DELAYED)];
    random_arguments(c, w, "train c.json --json --resume", arguments, sizeof arguments);
    int status = program_run(&p, t->folder, arguments);
    if (status != 0) test_fail(__FILE__, __LINE__, "%s: exit status %d: %s", arguments, status, program_error(&p));
    CHECK_STR(program_message(&p), "");
    CHECK(p.resumed >= t->p.saved);
    CHECK_STR(p.weights, untouched->weights);
    CHECK_STR(p.state, untouched->state);
    check_gone(t->pids, t->ranks > 1 ? t->ranks : 0);
    check_tidy(t->folder, "run");
    fault_check_empty(c->disk);
}

/* False: nothing was killed. */
static bool kill_and_resume(campaign *c)
{
    target t = { .way = &ways[next_random(&c->random, WAYS)] };
    int earlier = test_failures;
    make_folder(t.folder);
    t.ranks = random_arguments(c, t.way, "train c.json --json", t.arguments, sizeof t.arguments);
    bool inside = t.way->disk && next_random(&c->random, 2) == 0;
    if (!(inside ? kill_from_inside(c, &t) : kill_from_outside(c, &t))) return false;
    c->counts[t.way - ways][phase_of(t.folder)]++;
    c->ranks[t.ranks]++;
    if (test_failures == earlier) check_resume(c, &t);
    if (test_failures > earlier)
        test_fail(__FILE__, __LINE__, "after killing %s: %s", t.arguments, program_error(&t.p));
    return true;
}

static void print_counts(const campaign *c, int kills)
{
    printf("%d kills of 1, 2, 4 ranks: %d, %d, %d; of the parent of ranks: %d\n", kills, c->ranks[1], c->ranks[2],
           c->ranks[4], c->parents);
    for (int i = 0; i < WAYS; i++)
        printf("%-28s %4d before the first save, %4d inside a save, %4d between saves; %4d in a transfer of the disk\n",
               ways[i].name, c->counts[i][BEFORE_FIRST_SAVE], c->counts[i][INSIDE_A_SAVE], c->counts[i][BETWEEN_SAVES],
               c->swapping[i]);
}

TEST(runs_with_swap_files_killed_anywhere_resume_to_the_same_bits)
{
    campaign c;
    const char *told = getenv("DISK_KILLS"), *seed = getenv("DISK_SEED");
    int kills = told != NULL ? atoi(told) : getenv("LONG") != NULL ? LONG_KILLS : KILLS;
    REQUIRE(open_campaign(&c, seed != NULL ? strtoull(seed, NULL, 10) : 20261116));
    int done = 0;
    while (done < kills && test_failures == 0) done += kill_and_resume(&c);
    print_counts(&c, done);
}

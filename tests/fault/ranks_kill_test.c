/* Several ranks killed at random moments, one of them or the process that started them, resume to the bits of a run
 * that nobody touched, also with another number of ranks, stage and partition.
 *
 * Every other kill is aimed: all processes are halted, and only when they stand inside a save does the blow fall. */
#include <dirent.h>
#include <signal.h>
#include <unistd.h>

#include "support/fault_ranks.h"
#include "test.h"

#define KILLS      24
#define LONG_KILLS 200 /* with LONG in the environment */
#define STEPS      40
/* The blow falls before this many events of the about 80; the program cannot be more than 17 ahead of its reader. */
#define LAST_EVENT 55

static const char config[] =
    "{\"model\": {\"type\": \"gpt2\", \"layers\": 1, \"heads\": 2, \"width\": 16, \"context\": 8, \"dropout\": 0.1},\n"
    " \"data\": {\"type\": \"text\", \"path\": \"input.txt\"}, \"steps\": 40, \"train_batch_size\": 4,\n"
    " \"train_micro_batch_size_per_gpu\": 1, \"threads\": 1, \"optimizer\": {\"type\": \"AdamW\"},\n"
    " \"checkpoint\": {\"path\": \"run\", \"every\": 1},\n"
    " \"scheduler\": {\"type\": \"WarmupCosineLR\", \"params\": {\"warmup_num_steps\": 9}}}\n";

typedef enum { BEFORE_FIRST_SAVE, INSIDE_A_SAVE, BETWEEN_SAVES, PHASES } phase;
typedef enum { THE_PARENT, RANK_0, ANOTHER_RANK, VICTIMS } victim;
static const char *const phase_names[] = { "before the first save", "inside a save", "between saves" };
static const char *const victim_names[] = { "parent", "rank 0", "another rank" };

typedef struct campaign {
    uint64_t random;
    program untouched;
    int counts[PHASES][VICTIMS];
} campaign;

/* One program to be struck. */
typedef struct target {
    char folder[1024], arguments[512];
    program p;
    pid_t pids[MOST_RANKS];
    int ranks;
} target;

static void make_folder(char folder[1024])
{
    memory_folder(folder);
    write_text(folder, "c.json", config);
    write_corpus(folder, 300); /* a few epochs */
}

/* The number of ranks. */
static int random_arguments(uint64_t *random, const char *start, int least_ranks, char out[512])
{
    static const char *const rules[] = { "layer", "block", "owner", "weighted" };
    int ranks = least_ranks << next_random(random, least_ranks == 1 ? 3 : 2);
    int stage = (int)next_random(random, 4);
    const char *rule = rules[next_random(random, ranks > 1 ? 4 : 3)];
    const char *weights = ranks == 2 ? "[1,2]" : "[1,2,3,1]";
    int n = snprintf(out, 512, "%s --ranks %d --set zero_optimization.stage=%d --set zero_optimization.partition=%s",
                     start, ranks, stage, rule);
    if (strcmp(rule, "weighted") == 0)
        n += snprintf(out + n, (size_t)(512 - n), " --set zero_optimization.partition_weights=%s", weights);
    if (next_random(random, 2) != 0) snprintf(out + n, (size_t)(512 - n), " --set checkpoint.background=true");
    return ranks;
}

/* A step-*.tmp: a half-written checkpoint, or a half-removed one. *saved: a whole one is there. */
static bool inside_save(const char *folder, bool *saved)
{
    char path[1100];
    struct dirent *entry;
    bool found = false;
    *saved = false;
    snprintf(path, sizeof path, "%s/run", folder);
    DIR *dir = opendir(path);
    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        bool step = strncmp(entry->d_name, "step-", 5) == 0, half = strstr(entry->d_name, ".tmp") != NULL;
        found = found || (step && half);
        *saved = *saved || (step && !half);
    }
    if (dir != NULL) closedir(dir);
    return found;
}

static phase phase_of(const char *folder)
{
    bool saved, inside = inside_save(folder, &saved);
    if (inside) return INSIDE_A_SAVE;
    return saved ? BETWEEN_SAVES : BEFORE_FIRST_SAVE;
}

/* ---- halting ---- */

static char state_of(pid_t pid)
{
    char path[64], line[512] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "r");
    char *got = f != NULL ? fgets(line, sizeof line, f) : NULL;
    if (f != NULL) fclose(f);
    const char *end = got != NULL ? strrchr(line, ')') : NULL;
    return end != NULL && end[1] == ' ' ? end[2] : 'X';
}

static void send_all(const target *t, int signal_number)
{
    kill(t->p.pid, signal_number);
    for (int r = 0; r < t->ranks; r++) kill(t->pids[r], signal_number);
}

static void await_halt(pid_t pid)
{
    for (int i = 0; i < 10000 && state_of(pid) != 'T' && state_of(pid) != 'X'; i++) usleep(100);
}

/* All processes stand still when this returns. */
static void halt(const target *t)
{
    send_all(t, SIGSTOP);
    await_halt(t->p.pid);
    for (int r = 0; r < t->ranks; r++) await_halt(t->pids[r]);
}

/* Halts the program inside a save; gives up near the end of the run. */
static void halt_inside(campaign *c, target *t)
{
    for (;;) {
        usleep(next_random(&c->random, 2000));
        halt(t);
        if (phase_of(t->folder) == INSIDE_A_SAVE || t->p.events >= LAST_EVENT) return;
        send_all(t, SIGCONT);
        program_event(&t->p);
        program_event(&t->p);
    }
}

/* ---- striking ---- */

static void strike(campaign *c, target *t, victim *who, int *struck_rank)
{
    *struck_rank = (int)next_random(&c->random, (uint32_t)t->ranks + 1) - 1;
    *who = *struck_rank < 0 ? THE_PARENT : *struck_rank == 0 ? RANK_0 : ANOTHER_RANK;
    c->counts[phase_of(t->folder)][*who]++;
    kill(*struck_rank < 0 ? t->p.pid : t->pids[*struck_rank], SIGKILL);
}

static void check_struck(target *t, int struck_rank)
{
    char name[64];
    int status = program_wait(&t->p);
    snprintf(name, sizeof name, "rank %d was killed by signal 9", struck_rank);
    CHECK_EQ(status, struck_rank < 0 ? 128 + SIGKILL : 5);
    if (struck_rank >= 0) CHECK_CONTAINS(program_error(&t->p), name);
}

static void check_resume(campaign *c, target *t)
{
    program p;
    char arguments[512];
    random_arguments(&c->random, "train c.json --json --resume", 1, arguments);
    int status = program_run(&p, t->folder, arguments);
    if (status != 0) test_fail(__FILE__, __LINE__, "%s: exit status %d: %s", arguments, status, program_error(&p));
    CHECK_STR(program_error(&p), "");
    CHECK(p.resumed >= t->p.saved);
    CHECK_EQ(p.step, STEPS);
    CHECK_STR(p.weights, c->untouched.weights);
    CHECK_STR(p.state, c->untouched.state);
    check_gone(t->pids, t->ranks);
    check_tidy(t->folder, "run");
}

/* Lets it run up to a random moment. Aimed blows need some events more to find theirs; of the others every third comes
 * as soon as the ranks exist, since the first save follows soon. */
static bool let_run(campaign *c, target *t, bool aimed)
{
    bool early = !aimed && next_random(&c->random, 3) == 0;
    int events = early ? 0 : 1 + (int)next_random(&c->random, aimed ? LAST_EVENT / 2 : LAST_EVENT);
    if (!program_reach(&t->p, events)) return false;
    for (int i = 0; i < 100000 && program_ranks(&t->p, t->pids) < t->ranks; i++) usleep(100);
    if (aimed) halt_inside(c, t);
    if (!aimed) usleep(next_random(&c->random, 3000));
    return program_ranks(&t->p, t->pids) == t->ranks;
}

static void kill_and_resume(campaign *c, bool aimed)
{
    target t;
    victim who;
    int struck_rank, earlier = test_failures;
    make_folder(t.folder);
    t.ranks = random_arguments(&c->random, "train c.json --json", 2, t.arguments);
    program_start_narrow(&t.p, t.folder, t.arguments);
    REQUIRE(let_run(c, &t, aimed));
    strike(c, &t, &who, &struck_rank);
    send_all(&t, SIGCONT);
    check_struck(&t, struck_rank);
    check_resume(c, &t);
    if (test_failures > earlier)
        test_fail(__FILE__, __LINE__, "after killing %s of: %s", victim_names[who], t.arguments);
}

static void print_histogram(const campaign *c, int kills)
{
    printf("%d kills:\n", kills);
    for (int i = 0; i < PHASES; i++)
        for (int k = 0; k < VICTIMS; k++) printf("%4d of %s %s\n", c->counts[i][k], victim_names[k], phase_names[i]);
}

TEST(ranks_killed_at_random_resume_to_the_same_bits)
{
    char folder[1024];
    campaign c = { .random = 20240607 };
    int inside = 0, kills = getenv("LONG") != NULL ? LONG_KILLS : KILLS;
    make_folder(folder);
    CHECK_EQ(program_run(&c.untouched, folder, "train c.json --json"), 0);
    CHECK_EQ(c.untouched.saves, STEPS);
    for (int i = 0; i < kills && test_failures == 0; i++) kill_and_resume(&c, i % 2 == 0);
    for (int k = 0; k < VICTIMS; k++) inside += c.counts[INSIDE_A_SAVE][k];
    print_histogram(&c, kills);
    CHECK(inside >= kills / 2);
}

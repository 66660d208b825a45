/* Signals to several ranks. Asked to stop, by way of the program or of any rank, all finish the step, save once and say
 * so; asked to save, they save and go on; told twice, they end at once and leave nothing behind. A lost rank costs a
 * restart where restarts are allowed, and no bits. */
#include <signal.h>
#include <unistd.h>

#include "support/fault_ranks.h"
#include "test.h"

#define STOPS      20
#define LONG_STOPS 100 /* with LONG in the environment */
#define STEPS      60

/* Saves only when asked and at the end, unless told otherwise. */
static const char config[] =
    "{\"model\": {\"type\": \"gpt2\", \"layers\": 1, \"heads\": 2, \"width\": 16, \"context\": 8, \"dropout\": 0.1},\n"
    " \"data\": {\"type\": \"text\", \"path\": \"input.txt\"}, \"steps\": 60, \"train_batch_size\": 4,\n"
    " \"train_micro_batch_size_per_gpu\": 1, \"threads\": 1, \"optimizer\": {\"type\": \"AdamW\"},\n"
    " \"checkpoint\": {\"path\": \"run\"}}\n";

static void make_folder(char folder[1024])
{
    memory_folder(folder);
    write_text(folder, "c.json", config);
    write_corpus(folder, 300);
}

static void run_untouched(program *untouched)
{
    char folder[1024];
    make_folder(folder);
    CHECK_EQ(program_run(untouched, folder, "train c.json --json"), 0);
}

static void check_same_end(const program *p, const program *untouched)
{
    CHECK_EQ(p->step, STEPS);
    CHECK_STR(p->weights, untouched->weights);
    CHECK_STR(p->state, untouched->state);
}

static void start(program *p, const char *folder, int number, const char *more)
{
    char arguments[512];
    snprintf(arguments, sizeof arguments, "train c.json --json --ranks %d --set zero_optimization.stage=%d%s",
             number % 3 == 0 ? 4 : 2, number % 4, more);
    program_start_narrow(p, folder, arguments);
}

/* The step it went on from. */
static uint64_t check_resume(const char *folder, int number, const program *stopped, const program *untouched)
{
    program rest;
    char arguments[512];
    snprintf(arguments, sizeof arguments, "train c.json --json --resume --ranks %d --set zero_optimization.stage=%d",
             1 << (number % 3), (number + 1) % 4);
    CHECK_EQ(program_run(&rest, folder, arguments), 0);
    CHECK(rest.resumed >= stopped->saved);
    check_same_end(&rest, untouched);
    check_tidy(folder, "run");
    return rest.resumed;
}

/* ---- asked to stop ---- */

typedef enum { TO_PARENT, TO_ONE_RANK, TO_ALL, WAYS } way; /* TO_ALL: as a service manager stops a whole group */

static void send(way w, int signal_number, uint64_t *random, const program *p, const pid_t *pids, int ranks)
{
    if (w == TO_ONE_RANK) kill(pids[next_random(random, (uint32_t)ranks)], signal_number);
    if (w == TO_PARENT || w == TO_ALL) kill(p->pid, signal_number);
    for (int r = 0; w == TO_ALL && r < ranks; r++) kill(pids[r], signal_number);
}

static void check_stop(int number, int signal_number, uint64_t *random, const program *untouched)
{
    char folder[1024];
    program p;
    pid_t pids[MOST_RANKS];
    way w = (way)(number % WAYS);
    int earlier = test_failures;
    make_folder(folder);
    start(&p, folder, number, number % 2 == 0 ? "" : " --set checkpoint.every=3 --set checkpoint.background=true");
    REQUIRE(program_reach(&p, 1 + (int)next_random(random, STEPS / 2)));
    int ranks = program_ranks(&p, pids);
    REQUIRE(ranks >= 2);
    usleep(next_random(random, 3000));
    send(w, signal_number, random, &p, pids, ranks);
    CHECK_EQ(program_wait(&p), 75);
    CHECK_EQ(p.saved, p.step);
    CHECK_CONTAINS(program_error(&p), "stopped by a signal");
    check_gone(pids, ranks);
    CHECK_EQ(check_resume(folder, number, &p, untouched), p.saved);
    if (test_failures > earlier)
        test_fail(__FILE__, __LINE__, "stop %d, signal %d to %s: %s", number, signal_number,
                  w == TO_PARENT     ? "the parent"
                  : w == TO_ONE_RANK ? "one rank"
                                     : "all processes",
                  program_error(&p));
}

TEST(ranks_asked_to_stop_at_any_moment_save_once_and_resume_to_the_same_bits)
{
    program untouched;
    uint64_t random = 75;
    int stops = getenv("LONG") != NULL ? LONG_STOPS : STOPS;
    run_untouched(&untouched);
    for (int i = 0; i < stops && test_failures == 0; i++)
        check_stop(i, i % 5 == 4 ? SIGINT : SIGTERM, &random, &untouched);
}

/* While it starts, before anything was done, a program may also just die; either way nothing is in the way of the next
 * start. */
TEST(ranks_asked_to_stop_while_they_start_leave_nothing_in_the_way)
{
    program untouched;
    uint64_t random = 4;
    run_untouched(&untouched);
    for (int i = 0; i < 8 && test_failures == 0; i++) {
        char folder[1024];
        program p;
        make_folder(folder);
        start(&p, folder, i, "");
        usleep(next_random(&random, 15000));
        kill(p.pid, SIGTERM);
        int status = program_wait(&p);
        CHECK(status == 75 || (status == 128 + SIGTERM && p.events == 0));
        CHECK_EQ(p.saved, p.step);
        CHECK_EQ(check_resume(folder, i, &p, &untouched), p.saved);
    }
}

/* ---- asked to save ---- */

TEST(ranks_asked_to_save_do_and_go_on_to_the_same_bits)
{
    program untouched;
    run_untouched(&untouched);
    for (int i = 0; i < 4; i++) {
        char folder[1024];
        program p;
        pid_t pids[MOST_RANKS];
        make_folder(folder);
        start(&p, folder, i, "");
        for (int k = 1; k <= 2; k++) {
            REQUIRE(program_reach(&p, 10 * k));
            REQUIRE(program_ranks(&p, pids) >= 2);
            kill(i % 2 == 0 ? p.pid : pids[k % 2], SIGUSR1);
            int before = p.saves;
            while (p.saves == before && program_event(&p)) continue;
            CHECK_EQ(p.saves, before + 1);
            CHECK(p.step < STEPS);
        }
        CHECK_EQ(program_wait(&p), 0);
        /* A request to the parent reaches the ranks one by one, and may span two steps, which then both save. */
        CHECK(p.saves >= 3 && p.saves <= (i % 2 == 0 ? 5 : 3));
        check_same_end(&p, &untouched);
        check_tidy(folder, "run");
    }
}

/* ---- told twice ---- */

/* Waits until the process has seen its first SIGINT: then it no longer catches that signal. */
static bool await_handled(pid_t pid)
{
    char path[64], line[256];
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    for (int i = 0; i < 10000; i++, usleep(1000)) {
        FILE *f = fopen(path, "r");
        unsigned long long caught = 0;
        while (f != NULL && fgets(line, sizeof line, f) != NULL)
            if (strncmp(line, "SigCgt:", 7) == 0) caught = strtoull(line + 7, NULL, 16);
        if (f != NULL) fclose(f);
        if ((caught >> (SIGINT - 1) & 1) == 0) return true;
    }
    return false;
}

/* Nobody reads what it says, so that it cannot come to its end by itself between the two. */
TEST(interrupted_twice_ranks_end_at_once_and_leave_nothing_behind)
{
    program untouched;
    run_untouched(&untouched);
    for (int i = 0; i < 4; i++) {
        char folder[1024];
        program p, rest;
        pid_t pids[MOST_RANKS];
        make_folder(folder);
        start(&p, folder, i, " --set checkpoint.every=2");
        REQUIRE(program_reach(&p, 12));
        int ranks = program_ranks(&p, pids);
        REQUIRE(ranks >= 2);
        usleep(20000); /* the pipe fills up */
        kill(p.pid, SIGINT);
        REQUIRE(await_handled(p.pid));
        kill(p.pid, SIGINT);
        CHECK_EQ(program_wait(&p), 128 + SIGINT);
        CHECK_EQ(program_run(&rest, folder, "train c.json --json --resume"), 0);
        CHECK(rest.resumed >= p.saved && p.saved > 0);
        check_same_end(&rest, &untouched);
        check_gone(pids, ranks);
        check_tidy(folder, "run");
    }
}

/* ---- restarts ---- */

/* Kills a random rank after some events, `times` times, and lets the rest happen. */
static int run_and_lose_ranks(program *p, const char *folder, int number, int times, uint64_t *random)
{
    pid_t pids[MOST_RANKS] = { 0 };
    start(p, folder, number, " --set checkpoint.every=4 --max-restarts 2");
    for (int i = 0, next = 8; i < times; i++, next = p->events + 8) {
        if (!program_reach(p, next + (int)next_random(random, 8))) break;
        int ranks = program_ranks(p, pids);
        if (ranks < 2) break;
        kill(pids[next_random(random, (uint32_t)ranks)], SIGKILL);
        int restarts = p->starts; /* what comes from here on is of the next start, once it has announced itself */
        while (p->starts == restarts && program_event(p)) continue;
    }
    int status = program_wait(p);
    check_gone(pids, 2);
    return status;
}

TEST(lost_ranks_cost_restarts_and_no_bits)
{
    program untouched, p;
    uint64_t random = 12;
    run_untouched(&untouched);
    for (int i = 0; i < 4; i++) {
        char folder[1024];
        make_folder(folder);
        CHECK_EQ(run_and_lose_ranks(&p, folder, i, 2, &random), 0);
        CHECK_EQ(p.starts, 3);
        CHECK_CONTAINS(program_error(&p), "restart 2 of 2 from the newest checkpoint");
        check_same_end(&p, &untouched);
        check_tidy(folder, "run");
    }
}

TEST(when_no_restart_is_left_a_lost_rank_is_exit_5)
{
    program untouched, p;
    char folder[1024];
    uint64_t random = 5;
    run_untouched(&untouched);
    make_folder(folder);
    CHECK_EQ(run_and_lose_ranks(&p, folder, 1, 3, &random), 5);
    CHECK_EQ(p.starts, 3);
    CHECK_CONTAINS(program_error(&p), "was killed by signal 9");
    check_resume(folder, 1, &p, &untouched);
}

/* Signals: asked to stop, a run finishes its step, saves and says so; asked to save, it saves and goes on; and a folder
 * has one run at a time. */
#include <signal.h>
#include <unistd.h>

#include "core/thread.h"
#include "support/fault_program.h"
#include "support/sanitized.h"
#include "test.h"

#define STOPS 10
#define STEPS 600

/* Saves only when asked and at the end. */
static const char config[] =
    "{\"model\": {\"type\": \"gpt2\", \"layers\": 1, \"heads\": 2, \"width\": 16, \"context\": 8},\n"
    " \"data\": {\"type\": \"text\", \"path\": \"input.txt\"}, \"steps\": 600, \"train_batch_size\": 2, \"threads\": "
    "1,\n"
    " \"optimizer\": {\"type\": \"AdamW\"}, \"checkpoint\": {\"path\": \"run\"}}\n";

static void make_folder(char folder[1024])
{
    memory_folder(folder);
    write_text(folder, "c.json", config);
    write_corpus(folder, 3000);
}

static void check_same_end(const program *p, const program *untouched)
{
    CHECK_EQ(p->step, STEPS);
    CHECK_STR(p->weights, untouched->weights);
    CHECK_STR(p->state, untouched->state);
}

static void check_stop_and_resume(int signal_number, uint64_t *random, const program *untouched)
{
    char folder[1024];
    program p, rest;
    make_folder(folder);
    program_start(&p, folder, "train c.json --json");
    REQUIRE(program_reach(&p, 1 + (int)next_random(random, STEPS / 2)));
    usleep(next_random(random, 2000));
    kill(p.pid, signal_number);
    CHECK_EQ(program_wait(&p), 75);
    CHECK_EQ(p.saved, p.step); /* all that was done, and nothing where nothing was */
    CHECK_CONTAINS(program_error(&p), "stopped by a signal");
    CHECK_EQ(program_run(&rest, folder, "train c.json --json --resume"), 0);
    CHECK_EQ(rest.resumed, p.saved);
    check_same_end(&rest, untouched);
}

static void check_stops(int signal_number)
{
    char folder[1024];
    program untouched;
    uint64_t random = (uint64_t)signal_number;
    make_folder(folder);
    CHECK_EQ(program_run(&untouched, folder, "train c.json --json"), 0);
    for (int i = 0; i < STOPS; i++) check_stop_and_resume(signal_number, &random, &untouched);
}

TEST(sigterm_at_any_moment_saves_and_resumes_to_the_same_bits)
{
    check_stops(SIGTERM);
}

TEST(sigint_at_any_moment_saves_and_resumes_to_the_same_bits)
{
    check_stops(SIGINT);
}

TEST(sighup_at_any_moment_saves_and_resumes_to_the_same_bits)
{
    check_stops(SIGHUP);
}

/* As under nohup. */
TEST(a_run_that_was_started_with_sighup_ignored_goes_on_after_it)
{
    char folder[1024];
    program p;
    make_folder(folder);
    signal(SIGHUP, SIG_IGN);
    program_start(&p, folder, "train c.json --json");
    signal(SIGHUP, SIG_DFL);
    REQUIRE(program_reach(&p, 100));
    kill(p.pid, SIGHUP);
    CHECK_EQ(program_wait(&p), 0);
    CHECK_EQ(p.step, STEPS);
}

/* A service manager sends it right after SIGTERM, and a terminal that goes may send several. */
TEST(a_hang_up_beside_another_signal_does_not_end_a_run_before_it_has_saved)
{
    static const int pairs[][2] = { { SIGTERM, SIGHUP }, { SIGHUP, SIGTERM }, { SIGHUP, SIGHUP } };
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        char folder[1024];
        program p;
        make_folder(folder);
        program_start(&p, folder, "train c.json --json");
        REQUIRE(program_reach(&p, 50));
        kill(p.pid, pairs[i][0]);
        kill(p.pid, pairs[i][1]);
        CHECK_EQ(program_wait(&p), 75);
        CHECK(p.step > 0);
        CHECK_EQ(p.saved, p.step);
    }
}

/* ---- before the first step ---- */

/* Planning so many layers takes minutes. */
#define DEEP                                                                                                           \
    "train c.json --json --set model.layers=100000 --set model.heads=1 --set model.width=2 --set save=w.safetensors "  \
    "--trace t.json"
#define SOON (SANITIZED ? 10.0 : 1.0) /* seconds; freeing the memory of a large graph is part of it */

static void check_stop_while_planning(const char *arguments, int signal_number, double seconds)
{
    static const char *const outputs[] = { "w.safetensors", "w.safetensors.tmp", "t.json", "run" };
    char folder[1024], path[1100];
    program p;
    make_folder(folder);
    program_start(&p, folder, arguments);
    usleep((useconds_t)(seconds * 1e6));
    double asked = sl_now();
    kill(p.pid, signal_number);
    CHECK_EQ(program_wait(&p), 75);
    double took = sl_now() - asked;
    CHECK_THAT(took < SOON, "signal %d after %g s: %g s to the end", signal_number, seconds, took);
    CHECK_EQ(p.events, 0);
    CHECK_CONTAINS(program_error(&p), "stopped by a signal while planning");
    CHECK_CONTAINS(program_error(&p), "nothing was written");
    for (size_t i = 0; i < sizeof outputs / sizeof outputs[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, outputs[i]);
        CHECK_THAT(access(path, F_OK) != 0, "%s was written", outputs[i]);
    }
}

TEST(a_stop_while_planning_ends_within_a_second_and_writes_nothing)
{
    check_stop_while_planning(DEEP, SIGTERM, 2.0);
    check_stop_while_planning(DEEP, SIGINT, 0.5);
    check_stop_while_planning(DEEP, SIGHUP, 0.5);
}

TEST(ranks_that_are_planning_stop_within_a_second_too)
{
    check_stop_while_planning(DEEP " --ranks 2", SIGTERM, 1.0);
}

TEST(sigusr1_saves_and_the_run_goes_on_to_the_same_bits)
{
    char folder[1024];
    program untouched, p;
    make_folder(folder);
    CHECK_EQ(program_run(&untouched, folder, "train c.json --json"), 0);
    CHECK_EQ(untouched.saves, 1);
    make_folder(folder);
    program_start(&p, folder, "train c.json --json");
    for (int i = 1; i <= 3; i++) {
        REQUIRE(program_reach(&p, 100 * i));
        kill(p.pid, SIGUSR1);
        while (p.saves < i && program_event(&p)) continue;
        CHECK_EQ(p.saves, i);
        CHECK(p.step < STEPS);
    }
    CHECK_EQ(program_wait(&p), 0);
    CHECK_EQ(p.saves, 4);
    check_same_end(&p, &untouched);
}

TEST(a_folder_has_one_run_at_a_time_and_a_killed_run_leaves_it)
{
    char folder[1024], holder[64];
    program untouched, first, second;
    make_folder(folder);
    CHECK_EQ(program_run(&untouched, folder, "train c.json --json"), 0);
    make_folder(folder);
    program_start(&first, folder, "train c.json --json");
    REQUIRE(program_reach(&first, 2)); /* the plan and a step: it holds the folder */
    /* a short deadline: it waits half of that for a run that might be dying */
    CHECK_EQ(program_run(&second, folder, "train c.json --json --resume --set timeout_seconds=1"), 2);
    snprintf(holder, sizeof holder, "held by process %d", (int)first.pid);
    CHECK_CONTAINS(program_error(&second), holder);
    CHECK_EQ(second.step, 0);
    kill(first.pid, SIGKILL);
    CHECK_EQ(program_wait(&first), 128 + SIGKILL);
    CHECK_EQ(program_run(&second, folder, "train c.json --json --resume"), 0);
    check_same_end(&second, &untouched);
}

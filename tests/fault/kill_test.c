/* Nothing is lost: a run killed at random moments resumes to the bits of a run that nobody touched. */
#include <dirent.h>
#include <signal.h>
#include <unistd.h>

#include "support/fault_program.h"
#include "test.h"

#define KILLS      24
#define LONG_KILLS 1000 /* with LONG in the environment: make test-long */
#define STEPS      500

/* A save takes about as long as the two steps between saves, so that kills fall inside one as often as not. */
static const char config[] =
    "{\"model\": {\"type\": \"gpt2\", \"layers\": 1, \"heads\": 2, \"width\": 16, \"context\": 8, \"dropout\": 0.1},\n"
    " \"data\": {\"type\": \"text\", \"path\": \"input.txt\"}, \"steps\": 500, \"train_batch_size\": 2, \"threads\": "
    "1,\n"
    " \"optimizer\": {\"type\": \"AdamW\"}, \"checkpoint\": {\"path\": \"run\", \"every\": 2},\n"
    " \"scheduler\": {\"type\": \"WarmupCosineLR\", \"params\": {\"warmup_num_steps\": 50}},\n"
    " \"zero_optimization\": %s}\n";

#define SYNC    "{}"
#define DELAYED "{\"update\": \"delayed\", \"delay_warmup\": 15, \"offload_optimizer\": {\"device\": \"cpu\"}}"

static void make_folder(char folder[1024], const char *updates)
{
    char text[1024];
    memory_folder(folder);
    snprintf(text, sizeof text, config, updates);
    write_text(folder, "c.json", text);
    write_corpus(folder, 3000); /* a few epochs */
}

/* Whether a step-*.tmp is there: a half-written checkpoint or a half-removed one. */
static bool inside_save(const char *folder)
{
    char path[1100];
    struct dirent *entry;
    bool found = false;
    snprintf(path, sizeof path, "%s/run", folder);
    DIR *dir = opendir(path);
    while (dir != NULL && (entry = readdir(dir)) != NULL)
        found |= strncmp(entry->d_name, "step-", 5) == 0 && strstr(entry->d_name, ".tmp") != NULL;
    if (dir != NULL) closedir(dir);
    return found;
}

/* Starts or resumes, waits for a random event, strikes a moment later. *saved: the newest step that was said to be on
 * disk. */
static void kill_at_random(const char *folder, uint64_t *random, uint32_t events, uint64_t *saved)
{
    program p;
    program_start(&p, folder, "train c.json --json --resume");
    REQUIRE(program_reach(&p, 1 + (int)next_random(random, events)));
    usleep(next_random(random, 3000));
    kill(p.pid, SIGKILL);
    CHECK_EQ(program_wait(&p), 128 + SIGKILL);
    if (p.saved > *saved) *saved = p.saved;
}

static void finish(const char *folder, uint64_t saved, const program *untouched)
{
    program p;
    int status = program_run(&p, folder, "train c.json --json --resume");
    if (status != 0) test_fail(__FILE__, __LINE__, "exit status %d: %s", status, program_error(&p));
    CHECK_STR(program_error(&p),
              ""); /* what is half written never looks like a checkpoint, so there is nothing to warn of */
    CHECK(p.resumed >= saved);
    CHECK_EQ(p.step, STEPS);
    CHECK_STR(p.weights, untouched->weights);
    CHECK_STR(p.state, untouched->state);
}

static void kill_runs(const char *updates, int kills)
{
    char folder[1024];
    program untouched;
    uint64_t random = 20240601;
    int inside = 0, before_first = 0;
    make_folder(folder, updates);
    CHECK_EQ(program_run(&untouched, folder, "train c.json --json"), 0);
    CHECK_EQ(untouched.saves, STEPS / 2);
    for (int i = 0; i < kills; i++) {
        uint64_t saved = 0;
        make_folder(folder, updates);
        kill_at_random(folder, &random, 2 * STEPS / 3, &saved);
        inside += inside_save(folder);
        before_first += saved == 0;
        finish(folder, saved, &untouched);
    }
    printf("%d kills: %d inside a save, %d outside; %d before the first was done\n", kills, inside, kills - inside,
           before_first);
}

TEST(a_killed_run_resumes_to_the_same_bits)
{
    kill_runs(SYNC, getenv("LONG") != NULL ? LONG_KILLS : KILLS);
}

TEST(a_killed_run_with_an_update_in_flight_resumes_to_the_same_bits)
{
    kill_runs(DELAYED, getenv("LONG") != NULL ? LONG_KILLS : KILLS / 3);
}

/* The same run struck over and over: what a resumed run leaves behind is as good as what the first left. */
TEST(a_run_killed_again_and_again_ends_with_the_same_bits)
{
    char folder[1024];
    program untouched;
    uint64_t random = 7, saved = 0;
    int inside = 0;
    make_folder(folder, SYNC);
    CHECK_EQ(program_run(&untouched, folder, "train c.json --json"), 0);
    make_folder(folder, SYNC);
    for (int i = 0; i < KILLS / 2; i++) {
        kill_at_random(folder, &random, 40, &saved);
        inside += inside_save(folder);
    }
    printf("%d kills of one run: %d inside a save; %d of %d steps done\n", KILLS / 2, inside, (int)saved, STEPS);
    finish(folder, saved, &untouched);
}

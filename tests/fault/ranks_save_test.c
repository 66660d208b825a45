/* A save of several ranks, struck at every system call of every rank: a checkpoint always loads, nothing that was said
 * to be saved is lost, and the resumed run ends with the bits of one that nobody touched.
 *
 * The blow falls in the second of three saves: a checkpoint is there to be lost, and one to be removed. The resume
 * comes at once and under another number of ranks. */
#include <signal.h>

#include "support/fault_ranks.h"
#include "test.h"

#define STEPS 3

static const char config[] =
    "{\"model\": {\"type\": \"gpt2\", \"layers\": 1, \"heads\": 2, \"width\": 16, \"context\": 8, \"dropout\": 0.1},\n"
    " \"data\": {\"type\": \"text\", \"path\": \"input.txt\"}, \"steps\": 3, \"train_batch_size\": 4,\n"
    " \"train_micro_batch_size_per_gpu\": 1, \"threads\": 1, \"optimizer\": {\"type\": \"AdamW\"},\n"
    " \"checkpoint\": {\"path\": \"run\", \"every\": 1, \"keep\": 1}}\n";

static void make_folder(char folder[1024])
{
    memory_folder(folder);
    write_text(folder, "c.json", config);
    write_corpus(folder, 300);
}

/* A way to save: all of the second save of each rank is struck. */
typedef struct manner {
    const char *name;
    int ranks;
    const char *settings[2];
    int resume_ranks;
    const char *resume_setting;
} manner;

static const manner manners[] = {
    { "two ranks, stage 1", 2, { "zero_optimization.stage=1" }, 1, "zero_optimization.stage=0" },
    { "two ranks, stage 3, in the background",
      2,
      { "zero_optimization.stage=3", "checkpoint.background=true" },
      4,
      "zero_optimization.stage=2" },
    /* with LONG in the environment also these */
    { "two ranks, stage 0", 2, { "zero_optimization.stage=0" }, 2, "zero_optimization.stage=3" },
    { "four ranks, stage 2", 4, { "zero_optimization.stage=2" }, 2, "zero_optimization.partition=block" },
    { "four ranks, stage 3", 4, { "zero_optimization.stage=3" }, 1, "zero_optimization.stage=1" },
    { "four ranks, stage 1, in the background",
      4,
      { "zero_optimization.stage=1", "checkpoint.background=true" },
      4,
      "zero_optimization.stage=3" },
};
#define MANNERS       ((int)(sizeof manners / sizeof manners[0]))
#define SHORT_MANNERS 2

static int manner_count(void)
{
    return getenv("LONG") != NULL ? MANNERS : SHORT_MANNERS;
}

static ranks_job job_of(const manner *m, const char *folder)
{
    return (ranks_job){ .folder = folder,
                        .ranks = m->ranks,
                        .settings = { m->settings[0], m->settings[1] },
                        .from = "/step-2",
                        .until = "/step-3" };
}

/* Undisturbed: the hashes, and how many calls each rank makes. */
static bool run_untouched(const manner *m, ranks_result **out)
{
    char folder[1024];
    make_folder(folder);
    ranks_job j = job_of(m, folder);
    int status = ranks_run(&j, out);
    if (status != 0) test_fail(__FILE__, __LINE__, "%s: exit status %d: %s", m->name, status, (*out)->message);
    CHECK_EQ((*out)->saved, STEPS);
    check_tidy(folder, "run");
    return status == 0;
}

static void check_resume(const manner *m, const char *folder, const ranks_result *struck, const ranks_result *untouched)
{
    ranks_result *r;
    ranks_job j = { .folder = folder, .ranks = m->resume_ranks, .resume = true, .settings = { m->resume_setting } };
    int status = ranks_run(&j, &r);
    if (status != 0) test_fail(__FILE__, __LINE__, "resuming: exit status %d: %s", status, r->message);
    CHECK(r->resumed >= 1 && r->resumed >= struck->saved); /* the blow came after the first save */
    CHECK_STR(r->weights, untouched->weights);
    CHECK_STR(r->state, untouched->state);
    check_gone(struck->pids, m->ranks);
    check_gone(r->pids, m->resume_ranks);
    check_tidy(folder, "run");
}

static void check_blow(const manner *m, blow_kind blow, int rank, int at, const ranks_result *untouched)
{
    char folder[1024];
    ranks_result *struck;
    int earlier = test_failures;
    make_folder(folder);
    ranks_job j = job_of(m, folder);
    j.blow = blow;
    j.odd_rank = rank;
    j.at = at;
    CHECK_EQ(ranks_run(&j, &struck), blow == BLOW_KILL_PARENT ? 128 + SIGKILL : 5);
    CHECK(struck->saved >= 1);
    if (blow == BLOW_KILL_RANK) {
        char name[64];
        snprintf(name, sizeof name, "rank %d was killed by signal 9", rank);
        CHECK_CONTAINS(struck->message, name);
    }
    check_resume(m, folder, struck, untouched);
    if (test_failures > earlier)
        test_fail(__FILE__, __LINE__, "%s: %s at call %d of rank %d", m->name,
                  blow == BLOW_KILL_PARENT ? "parent killed" : "rank killed", at, rank);
}

static void check_blows(const manner *m, blow_kind blow)
{
    ranks_result *untouched;
    int blows = 0;
    if (!run_untouched(m, &untouched)) return;
    for (int r = 0; r < m->ranks; r++) {
        CHECK(untouched->calls[r] >= 4); /* open, write, sync, close */
        for (int at = 1; at <= untouched->calls[r] && test_failures == 0; at++, blows++)
            check_blow(m, blow, r, at, untouched);
    }
    printf("%s: %s at each of %d calls\n", m->name, blow == BLOW_KILL_PARENT ? "the parent killed" : "a rank killed",
           blows);
}

TEST(a_rank_killed_at_any_call_of_a_save_loses_nothing)
{
    for (int i = 0; i < manner_count(); i++) check_blows(&manners[i], BLOW_KILL_RANK);
}

TEST(a_parent_killed_at_any_call_of_a_save_loses_nothing_and_leaves_no_rank)
{
    for (int i = 0; i < manner_count(); i++) check_blows(&manners[i], BLOW_KILL_PARENT);
}

/* Rank 0 stuck in the commit, or another with its data: at the deadline all end, and none commits alone. */
TEST(a_rank_stuck_in_a_save_ends_all_at_the_deadline_and_loses_nothing)
{
    ranks_result *untouched, *struck;
    if (!run_untouched(&manners[0], &untouched)) return;
    for (int rank = 0; rank < (getenv("LONG") != NULL ? 2 : 1); rank++) {
        char folder[1024], name[64];
        make_folder(folder);
        ranks_job j = job_of(&manners[0], folder);
        j.timeout_seconds = 2;
        j.blow = BLOW_STOP_RANK;
        j.odd_rank = rank;
        j.at = untouched->calls[rank] / 2;
        CHECK_EQ(ranks_run(&j, &struck), 5);
        snprintf(name, sizeof name, "rank %d", rank);
        CHECK_CONTAINS(struck->message, name);
        CHECK_CONTAINS(struck->message, "checkpoint");
        check_resume(&manners[0], folder, struck, untouched);
    }
}

/* ---- while resuming ---- */

/* A folder with a whole checkpoint and a half one, which the next run clears away. */
static void make_struck_folder(const manner *m, char folder[1024])
{
    ranks_result *r;
    make_folder(folder);
    ranks_job j = job_of(m, folder);
    j.blow = BLOW_KILL_PARENT;
    j.odd_rank = 1;
    j.at = 3;
    CHECK_EQ(ranks_run(&j, &r), 128 + SIGKILL);
    check_gone(r->pids, m->ranks);
}

static ranks_job resuming_job(const manner *m, const char *folder)
{
    return (ranks_job){ .folder = folder,
                        .ranks = m->ranks,
                        .resume = true,
                        .settings = { m->settings[0], m->settings[1] },
                        .until = "/step-3" };
}

static void check_struck_resume(const manner *m, int rank, int at, const ranks_result *untouched)
{
    char folder[1024];
    ranks_result *struck;
    int earlier = test_failures;
    make_struck_folder(m, folder);
    ranks_job j = resuming_job(m, folder);
    j.blow = rank % 2 == at % 2 ? BLOW_KILL_RANK : BLOW_KILL_PARENT;
    j.odd_rank = rank;
    j.at = at;
    int status = ranks_run(&j, &struck);
    if (struck->calls[rank] < at) /* fewer files were left to clear away: it went through */
        CHECK_EQ(status, 0);
    else
        CHECK_EQ(status, j.blow == BLOW_KILL_PARENT ? 128 + SIGKILL : 5);
    check_resume(m, folder, struck, untouched);
    if (test_failures > earlier) test_fail(__FILE__, __LINE__, "%s: call %d of rank %d", m->name, at, rank);
}

/* Every ninth call, and with LONG in the environment every one. */
TEST(ranks_killed_while_they_resume_lose_nothing)
{
    const manner *m = &manners[0];
    char folder[1024];
    ranks_result *untouched, *resumed;
    int stride = getenv("LONG") != NULL ? 1 : 9;
    if (!run_untouched(m, &untouched)) return;
    make_struck_folder(m, folder);
    ranks_job j = resuming_job(m, folder);
    CHECK_EQ(ranks_run(&j, &resumed), 0);
    for (int r = 0; r < m->ranks; r++) {
        CHECK(resumed->calls[r] > 10);
        for (int at = 1; at <= resumed->calls[r] && test_failures == 0; at += stride)
            check_struck_resume(m, r, at, untouched);
    }
    printf("resuming makes %d and %d calls\n", resumed->calls[0], resumed->calls[1]);
}

/* ---- what a killed run leaves ---- */

/* A rank with much memory dies slowly, and holds the folder until the end. Whoever resumes at once is not sent away. */
TEST(a_resume_waits_for_the_dying_ranks_of_a_killed_run)
{
    ranks_result *untouched, *struck;
    char folder[1024];
    if (!run_untouched(&manners[0], &untouched)) return;
    make_folder(folder);
    ranks_job j = job_of(&manners[0], folder);
    j.blow = BLOW_KILL_PARENT;
    j.odd_rank = 1;
    j.at = 1;
    j.ballast = (size_t)1 << 30;
    CHECK_EQ(ranks_run(&j, &struck), 128 + SIGKILL);
    check_resume(&manners[0], folder, struck, untouched);
}

/* One rank's disk is full, the others' are not (they may be other machines'): all fail with its message. */
static void check_full_disk(const manner *m)
{
    char folder[1024];
    ranks_result *untouched, *struck;
    if (!run_untouched(m, &untouched)) return;
    make_folder(folder);
    ranks_job j = job_of(m, folder);
    j.blow = BLOW_DISK_FULL;
    j.odd_rank = 1;
    j.at = 1;
    CHECK_EQ(ranks_run(&j, &struck), 6);
    CHECK_EQ(struck->saved, 1);
    CHECK_CONTAINS(struck->message, "rank 1");
    CHECK_CONTAINS(struck->message, "rank-1.bin");
    check_tidy(folder, "run"); /* nothing is left of the save that failed */
    check_resume(m, folder, struck, untouched);
}

TEST(a_full_disk_of_one_rank_ends_all_with_exit_6_and_loses_nothing)
{
    for (int i = 0; i < manner_count(); i++) check_full_disk(&manners[i]);
}

/* Saved by any number of ranks at any stage, loaded by any other: the same bits right after loading, and after a step
 * more. */
#include "support/fault_ranks.h"
#include "test.h"

#define KINDS       16 /* 1 to 4 ranks x stages 0 to 3 */
#define SAVED_STEPS 2

/* Twelve micro-batches divide over 1, 2, 3 and 4 ranks. */
static const char config[] =
    "{\"model\": {\"type\": \"gpt2\", \"layers\": 4, \"heads\": 2, \"width\": 16, \"context\": 8, \"dropout\": 0.1},\n"
    " \"data\": {\"type\": \"text\", \"path\": \"input.txt\"}, \"steps\": 2, \"train_batch_size\": 12,\n"
    " \"train_micro_batch_size_per_gpu\": 1, \"threads\": 1, \"optimizer\": {\"type\": \"AdamW\"},\n"
    " \"checkpoint\": {\"path\": \"run\"}}\n";

/* One number per kind: 4 (ranks - 1) + stage. */
static int ranks_of(int kind)
{
    return 1 + kind / 4;
}

static void make_job(int kind, const char *folder, char text[3][128], ranks_job *j)
{
    static const char *const rules[] = { "layer", "block", "owner", "weighted" };
    static const char *const weights[] = { "[1]", "[3,1]", "[1,2,2]", "[2,1,1,3]" };
    const char *rule = rules[(kind / 4 + kind) % 4];
    snprintf(text[0], 128, "zero_optimization.stage=%d", kind % 4);
    snprintf(text[1], 128, "zero_optimization.partition=%s", rule);
    snprintf(text[2], 128, "zero_optimization.partition_weights=%s", weights[kind / 4]);
    *j = (ranks_job){ .folder = folder, .ranks = ranks_of(kind), .settings = { text[0], text[1] } };
    if (strcmp(rule, "weighted") == 0) j->settings[2] = text[2];
}

static void make_folder(char folder[1024])
{
    memory_folder(folder);
    write_text(folder, "c.json", config);
    write_corpus(folder, 300);
}

/* Two steps, saved by `kind` in a folder of its own. */
static ranks_result *save(int kind, char folder[1024])
{
    char text[3][128];
    ranks_job j;
    ranks_result *r;
    make_folder(folder);
    make_job(kind, folder, text, &j);
    int status = ranks_run(&j, &r);
    if (status != 0)
        test_fail(__FILE__, __LINE__, "%d ranks, stage %d: exit status %d: %s", ranks_of(kind), kind % 4, status,
                  r->message);
    CHECK_EQ(r->saved, SAVED_STEPS);
    return r;
}

/* Resumes in `folder` as `kind` up to `steps`. */
static void check_load(int saver, int kind, const char *folder, int steps, const ranks_result *expected)
{
    char text[3][128], length[32];
    ranks_job j;
    ranks_result *r;
    int earlier = test_failures;
    make_job(kind, folder, text, &j);
    snprintf(length, sizeof length, "steps=%d", steps);
    j.settings[3] = j.settings[2];
    j.settings[2] = length;
    j.resume = true;
    CHECK_EQ(ranks_run(&j, &r), 0);
    CHECK_EQ(r->resumed, SAVED_STEPS);
    CHECK_STR(r->weights, expected->weights);
    CHECK_STR(r->state, expected->state);
    if (test_failures > earlier)
        test_fail(__FILE__, __LINE__, "saved by %d ranks, stage %d; loaded by %d, stage %d, %d steps: %s",
                  ranks_of(saver), saver % 4, ranks_of(kind), kind % 4, steps, r->message);
}

static void copy_folder(const char *from, char to[1024])
{
    char command[4096];
    make_folder(to);
    snprintf(command, sizeof command, "cp -r '%s/run' '%s/'", from, to);
    if (system(command) != 0) exit(99);
}

/* A step more than was saved, by one rank that was never interrupted. */
static ranks_result *train_three(void)
{
    char folder[1024];
    ranks_result *r;
    make_folder(folder);
    ranks_job j = { .folder = folder, .ranks = 1, .settings = { "steps=3" } };
    CHECK_EQ(ranks_run(&j, &r), 0);
    return r;
}

static void check_pair(int saver, const char *folder, int loader, const ranks_result *two, const ranks_result *three)
{
    char copy[1024];
    check_load(saver, loader, folder, SAVED_STEPS, two); /* trains and writes nothing */
    copy_folder(folder, copy);
    check_load(saver, loader, copy, SAVED_STEPS + 1, three);
}

/* The loader that goes with a saver where not all pairs are tried: as 5 and 16 have no common divisor, every kind
 * loads once, and over the savers more ranks, fewer and as many come up. */
static int partner(int saver)
{
    return (5 * saver + 3) % KINDS;
}

TEST(what_any_number_of_ranks_saved_at_any_stage_any_other_loads)
{
    char folder[1024];
    bool all = getenv("LONG") != NULL;
    int pairs = 0;
    ranks_result *three = train_three(), *first = NULL;
    for (int saver = 0; saver < KINDS && test_failures == 0; saver++) {
        ranks_result *two = save(saver, folder);
        if (first == NULL) first = two;
        CHECK_STR(two->weights, first->weights);
        CHECK_STR(two->state, first->state);
        for (int loader = 0; loader < KINDS; loader++)
            if (all || loader == partner(saver)) check_pair(saver, folder, loader, two, three), pairs++;
    }
    CHECK(strcmp(first->weights, three->weights) != 0);
    printf("%d pairs of saver and loader\n", pairs);
}

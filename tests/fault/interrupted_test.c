/* Interrupted and resumed is the same as never interrupted, whatever way of keeping things the run had before and has
 * after.
 *
 * A run is stopped after a step of its choice, saves, and is resumed under every other arrangement. Dropout, a
 * schedule, epochs that end on the way and evaluations make sure that all that belongs to the state is in the
 * checkpoint. */
#include <signal.h>
#include <unistd.h>

#include "sluice.h"
#include "support/fault_program.h"
#include "test.h"

#define STEPS 12

static const char config[] =
    "{\"model\": {\"type\": \"gpt2\", \"layers\": 3, \"heads\": 2, \"width\": 16, \"context\": 8, \"dropout\": 0.1},\n"
    " \"data\": {\"type\": \"text\", \"path\": \"%s/input.txt\", \"validation\": 0.2}, \"evaluate\": {\"every\": 5, "
    "\"batches\": 1},\n"
    " \"steps\": 12, \"train_batch_size\": 4, \"threads\": 1, \"optimizer\": {\"type\": \"AdamW\"},\n"
    " \"scheduler\": {\"type\": \"WarmupCosineLR\", \"params\": {\"warmup_num_steps\": 3}},\n"
    " \"checkpoint\": {\"path\": \"%s/run\"}}\n";

/* Ways to keep the same run; none may change a bit. At most four assignments each. */
static const struct arrangement {
    const char *name;
    const char *settings[4];
} arrangements[] = {
    { "all resident", { NULL } },
    { "recomputed", { "activation_checkpointing.mode=recompute" } },
    { "recomputed, inputs on the host",
      { "activation_checkpointing.mode=recompute", "activation_checkpointing.device=cpu" } },
    { "parameters and state on the host",
      { "zero_optimization.offload_param.device=cpu", "zero_optimization.offload_optimizer.device=cpu" } },
    { "everything on the host, one level at a time",
      { "zero_optimization.offload_param.device=cpu", "activation_checkpointing.mode=offload",
        "memory.prefetch_layers=0", "memory.levels=5" } },
    { "two levels, two threads", { "zero_optimization.offload_param.device=cpu", "memory.levels=2", "threads=2" } },
};
#define ARRANGEMENTS ((int)(sizeof arrangements / sizeof arrangements[0]))

typedef struct run {
    uint64_t stop_after; /* 0: never */
    int stop;
    uint64_t resumed, step;
    int epochs;
    char weights[65], state[65];
} run;

static void on_event(void *user, const sluice_event *e)
{
    run *r = user;
    r->epochs += e->kind == SLUICE_EVENT_EPOCH;
    if (e->kind == SLUICE_EVENT_RESUMED) r->resumed = e->step;
    if (e->kind == SLUICE_EVENT_STEP) r->step = e->step;
    if (e->kind == SLUICE_EVENT_STEP && e->step == r->stop_after) r->stop = SIGTERM;
    if (e->kind != SLUICE_EVENT_END) return;
    snprintf(r->weights, sizeof r->weights, "%s", e->weights_sha256);
    snprintf(r->state, sizeof r->state, "%s", e->state_sha256);
}

static void apply(sluice_config *c, const struct arrangement *a)
{
    for (int i = 0; i < 4 && a->settings[i] != NULL; i++) REQUIRE_OK(sluice_config_set(c, a->settings[i]));
}

/* One process's worth of training in `folder`. `common` applies to all runs that are compared; NULL: nothing. */
static sluice_status train(const char *folder, const struct arrangement *a, const char *common, bool resume, run *r)
{
    char path[1100];
    sluice_config *c = NULL;
    sluice_job_options o;
    snprintf(path, sizeof path, "%s/c.json", folder);
    sluice_status st = sluice_config_load(path, &c);
    if (st != SLUICE_OK) return st;
    apply(c, a);
    if (common != NULL) st = sluice_config_set(c, common);
    sluice_job_options_init(&o);
    o.resume = resume;
    o.event = on_event;
    o.user = r;
    o.stop = &r->stop;
    if (st == SLUICE_OK) st = sluice_job_train(c, &o);
    sluice_config_destroy(c);
    return st;
}

static void make_folder(char folder[1024])
{
    char text[4096];
    memory_folder(folder);
    snprintf(text, sizeof text, config, folder, folder);
    write_text(folder, "c.json", text);
    write_corpus(folder, 260); /* less than the steps read, so that epochs end */
}

static void check_interrupted(int before, int after, uint64_t stop_after, const char *common, const run *reference)
{
    char folder[1024];
    run first = { .stop_after = stop_after }, second = { 0 };
    int earlier = test_failures;
    make_folder(folder);
    sluice_status st = train(folder, &arrangements[before], common, false, &first);
    CHECK_EQ(st, SLUICE_ERR_STOPPED);
    st = train(folder, &arrangements[after], common, true, &second);
    CHECK_EQ(st, SLUICE_OK);
    CHECK_EQ(second.resumed, stop_after);
    CHECK_EQ(second.step, STEPS);
    CHECK_STR(second.weights, reference->weights);
    CHECK_STR(second.state, reference->state);
    if (test_failures > earlier)
        test_fail(__FILE__, __LINE__, "saved after step %d as \"%s\", resumed as \"%s\": %s", (int)stop_after,
                  arrangements[before].name, arrangements[after].name, sluice_error());
}

static void make_reference(const char *common, run *reference)
{
    char folder[1024];
    *reference = (run){ 0 };
    make_folder(folder);
    REQUIRE_OK(train(folder, &arrangements[0], common, false, reference));
    CHECK_EQ(reference->step, STEPS);
    CHECK(reference->epochs >= 1);
}

TEST(a_run_may_be_saved_under_one_arrangement_and_resumed_under_any_other)
{
    run reference;
    uint64_t random = 3;
    make_reference(NULL, &reference);
    for (int before = 0; before < ARRANGEMENTS; before++)
        for (int after = 0; after < ARRANGEMENTS; after++)
            check_interrupted(before, after, 1 + next_random(&random, STEPS - 1), NULL, &reference);
}

TEST(a_run_of_several_micro_batches_resumes_under_any_arrangement)
{
    run reference;
    make_reference("gradient_accumulation_steps=2", &reference);
    for (int i = 0; i < ARRANGEMENTS; i++)
        check_interrupted(i, (i + 1) % ARRANGEMENTS, 4, "gradient_accumulation_steps=2", &reference);
}

TEST(every_step_is_a_place_to_stop)
{
    run reference;
    make_reference(NULL, &reference);
    for (uint64_t step = 1; step < STEPS; step++) check_interrupted(0, 3, step, NULL, &reference);
}

/* The comparison's own test: another number of micro-batches is another run. */
TEST(what_changes_the_mathematics_changes_the_hash)
{
    run one, two;
    make_reference(NULL, &one);
    make_reference("gradient_accumulation_steps=2", &two);
    CHECK(strcmp(one.weights, two.weights) != 0 && strcmp(one.state, two.state) != 0);
}

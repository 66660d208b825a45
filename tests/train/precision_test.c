/* precision_test.c: runs in bf16 and fp16 from a configuration: events, learning rates, resumption, evaluation. */
#include "config/config.h"
#include "support/config_words.h"
#include "test.h"

static char folder[4096];

#define MAX_STEPS 64

typedef struct record {
    sluice_event steps[MAX_STEPS];
    int count;
    uint64_t resumed;
    double evaluated;
    char weights[65], state[65];
} record;

static void on_event(void *user, const sluice_event *event)
{
    record *r = user;
    if (event->kind == SLUICE_EVENT_STEP && r->count < MAX_STEPS) r->steps[r->count++] = *event;
    if (event->kind == SLUICE_EVENT_RESUMED) r->resumed = event->step;
    if (event->kind == SLUICE_EVENT_EVAL) r->evaluated = event->loss;
    if (event->kind != SLUICE_EVENT_END) return;
    memcpy(r->weights, event->weights_sha256, sizeof r->weights);
    memcpy(r->state, event->state_sha256, sizeof r->state);
}

static sluice_status load(const char *assignments, sluice_config **out)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/config.json", folder);
    FILE *f = fopen(path, "w");
    fprintf(f,
            "{\"model\": {\"type\": \"mlp\", \"features\": 4, \"hidden\": [8]}, \"data\": {\"type\": \"regression\", "
            "\"samples\": 40, \"validation\": 0.25}, \"steps\": 12, \"train_batch_size\": 8, "
            "\"train_micro_batch_size_per_gpu\": 4, \"threads\": 1, \"optimizer\": {\"type\": \"AdamW\", \"params\": "
            "{\"lr\": 0.01}}, \"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"warmup_num_steps\": 6, "
            "\"warmup_type\": \"linear\"}}, \"checkpoint\": {\"path\": \"%s/run\", \"keep\": 9}}",
            folder);
    fclose(f);
    return config_load_words(path, assignments, out);
}

static sluice_status run(sluice_status (*job)(const sluice_config *c, const sluice_job_options *o),
                         const char *assignments, bool resume, record *r)
{
    sluice_config *c;
    sluice_job_options o;
    memset(r, 0, sizeof *r);
    SL_TRY(load(assignments, &c));
    sluice_job_options_init(&o);
    o.resume = resume;
    o.event = on_event;
    o.user = r;
    sluice_status st = job(c, &o);
    sluice_config_destroy(c);
    return st;
}

/* Begins at a scale that no gradient survives, so that the first steps are skipped. */
#define TOO_LARGE "fp16.enabled=true fp16.hysteresis=1 fp16.initial_scale_power=26 "

TEST(steps_that_are_left_out_move_neither_the_schedule_nor_the_norm_but_the_scale)
{
    record plain, r;
    int skipped = 0;
    snprintf(folder, sizeof folder, "%s", test_tmpdir());
    REQUIRE_OK(run(sluice_job_train, "checkpoint.path= steps=12", false, &plain));
    REQUIRE_OK(run(sluice_job_train, TOO_LARGE "checkpoint.path= steps=24", false, &r));
    CHECK_EQ(r.count, 24);
    for (int i = 0; i < r.count; i++) {
        const sluice_event *e = &r.steps[i];
        int applied = i - skipped;
        CHECK_EQ(e->step, i + 1);
        CHECK_NEAR(e->loss_scale, ldexp(1, 26 - skipped), 0);
        CHECK_EQ(e->skipped, isnan(e->gradient_norm));
        if (applied < 12) CHECK_NEAR(e->lr, plain.steps[applied].lr, 0);
        skipped += e->skipped;
    }
    CHECK(skipped > 2 && skipped < 20);
    CHECK(plain.steps[1].lr != plain.steps[2].lr);
    CHECK(!r.steps[skipped].skipped); /* they were the first ones */
    CHECK_EQ(plain.steps[3].skipped, false);
    CHECK_NEAR(plain.steps[3].loss_scale, 1, 0);
}

TEST(an_overflow_at_the_least_scale_is_exit_7_from_a_configuration_too)
{
    record r;
    snprintf(folder, sizeof folder, "%s", test_tmpdir());
    sluice_status st = run(sluice_job_train, TOO_LARGE "fp16.min_loss_scale=33554432", false, &r);
    CHECK_EQ(sluice_exit_status(st), 7);
    CHECK_CONTAINS(sluice_error(), "step 2: ");
    CHECK_CONTAINS(sluice_error(), "the loss scale is at its minimum");
    CHECK_EQ(r.count, 1);
}

TEST(a_resumed_run_continues_the_loss_scale_where_it_was)
{
    /* saved between overflows, and within a window */
    static const char *const rows[] = { TOO_LARGE "fp16.loss_scale_window=2",
                                        "fp16.enabled=true fp16.loss_scale_window=3 fp16.initial_scale_power=9",
                                        "bf16.enabled=true communication_data_type=fp32 optimizer.params.lr=0.02",
                                        "bf16.enabled=true zero_optimization.states=compact",
                                        "zero_optimization.states=bf16" };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        record whole, half;
        char assignments[512];
        snprintf(folder, sizeof folder, "%s", test_tmpdir());
        snprintf(assignments, sizeof assignments, "%s steps=20 checkpoint.path=", rows[i]);
        REQUIRE_OK(run(sluice_job_train, assignments, false, &whole));
        snprintf(assignments, sizeof assignments, "%s steps=4", rows[i]);
        REQUIRE_OK(run(sluice_job_train, assignments, false, &half));
        snprintf(assignments, sizeof assignments, "%s steps=20", rows[i]);
        REQUIRE_OK(run(sluice_job_train, assignments, true, &half));
        CHECK_EQ(half.resumed, 4);
        CHECK_EQ(half.count, 16);
        for (int k = 0; k < half.count; k++) {
            CHECK_NEAR(half.steps[k].loss_scale, whole.steps[4 + k].loss_scale, 0);
            CHECK_NEAR(half.steps[k].lr, whole.steps[4 + k].lr, 0);
        }
        CHECK_STR(half.weights, whole.weights);
        CHECK_STR(half.state, whole.state);
    }
}

TEST(a_checkpoint_is_evaluated_in_any_precision)
{
    record trained, r;
    snprintf(folder, sizeof folder, "%s", test_tmpdir());
    REQUIRE_OK(run(sluice_job_train, "bf16.enabled=true", false, &trained));
    REQUIRE_OK(run(sluice_job_eval, "bf16.enabled=true", false, &r));
    CHECK_NEAR(r.evaluated, trained.evaluated, 0);
    REQUIRE_OK(run(sluice_job_eval, "", false, &r));
    CHECK_NEAR(r.evaluated, trained.evaluated, 0.05 * trained.evaluated + 0.01);
    REQUIRE_OK(run(sluice_job_eval, "fp16.enabled=true", false, &r));
    CHECK_NEAR(r.evaluated, trained.evaluated, 0.05 * trained.evaluated + 0.01);
}

#define UNCLIPPED "gradient_clipping=0 checkpoint.path= "
#define ONE_BATCH " train_micro_batch_size_per_gpu=8"
#define OFFLOADED "zero_optimization.offload_optimizer.device=cpu "

/* Without clipping and the check for overflows updates are part of backward, or wait for no norm after it. */
TEST(updates_that_begin_early_give_the_same_bits)
{
    static const char *const more[] = {
        "",
        ONE_BATCH,
        OFFLOADED,
        OFFLOADED ONE_BATCH,
        OFFLOADED "zero_optimization.offload_param.device=cpu" ONE_BATCH,
        OFFLOADED "zero_optimization.offload_optimizer.ratio=0.5" ONE_BATCH,
        "optimizer.type=Lamb" ONE_BATCH,
        OFFLOADED "optimizer.type=Lamb",
    };
    snprintf(folder, sizeof folder, "%s", test_tmpdir());
    for (size_t i = 0; i < sizeof more / sizeof more[0]; i++) {
        char late[512], early[1024];
        record a, b;
        snprintf(late, sizeof late, UNCLIPPED "bf16.enabled=true %s", more[i]);
        snprintf(early, sizeof early, "%s bf16.check_grad_overflow=false", late);
        if (i % 2 == 1) /* the same settings, asked to wait */
            snprintf(late, sizeof late,
                     UNCLIPPED "bf16.enabled=true %s bf16.check_grad_overflow=false zero_optimization.update=sync",
                     more[i]);
        REQUIRE_OK(run(sluice_job_train, late, false, &a));
        REQUIRE_OK(run(sluice_job_train, early, false, &b));
        CHECK_EQ(b.count, 12);
        if (strcmp(b.weights, a.weights) != 0) test_fail(__FILE__, __LINE__, "%s: other weights", early);
        CHECK_STR(b.state, a.state);
        for (int k = 0; k < a.count; k++)
            CHECK(a.steps[k].gradient_norm == b.steps[k].gradient_norm && a.steps[k].loss == b.steps[k].loss);
    }
}

/* The next micro-batch is read ahead into the buffers that evaluation uses, too. */
TEST(evaluations_between_steps_change_no_bit)
{
    static const char *const every[] = { "evaluate.every=0", "evaluate.every=1", "evaluate.every=5" };
    record first, r;
    snprintf(folder, sizeof folder, "%s", test_tmpdir());
    for (int i = 0; i < 3; i++) {
        char words[256];
        snprintf(words, sizeof words, "checkpoint.path= %s", every[i]);
        REQUIRE_OK(run(sluice_job_train, words, false, i == 0 ? &first : &r));
        if (i == 0) continue;
        CHECK_EQ(r.count, first.count);
        CHECK_STR(r.weights, first.weights);
        for (int k = 0; k < r.count; k++) CHECK(r.steps[k].loss == first.steps[k].loss);
    }
}

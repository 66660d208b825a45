/* speculation_test.c: updates on speculation end with the bits of those that wait for the norm: in every precision, with no
 * step clipped, some and all, on ranks, with micro-batches to sum, and across kills and resumptions; and they end by
 * themselves where too many steps are clipped. */
#include <string.h>

#include "checkpoint/checkpoint.h"
#include "core/bytes.h"
#include "model/model.h"
#include "support/matrix.h"
#include "test.h"
#include "train/engine_parts.h"

static const char sync_updates[] = "zero_optimization.update=sync",
                  speculative_updates[] = "zero_optimization.update=speculative";

/* Ranks, stage, what is on the host, partition, recomputation. Four micro-batches are shared out over the ranks. */
static const setting settings[] = {
    { 1, 0, OPTIMIZER, 0, 0 },
    { 2, 1, OPTIMIZER, 1, 0 },
    { 4, 3, OPTIMIZER_AND_PARAMETERS, 0, 1 },
    { 1, 0, OPTIMIZER_AND_PARAMETERS, 0, 1 },
    { 4, 2, OPTIMIZER, 2, 0 },
    { 2, 3, HALF, 1, 0 },
    { 2, 2, OPTIMIZER_AND_PARAMETERS, 0, 0 },
    { 2, 0, OPTIMIZER, 0, 0 },
    { 4, 0, OPTIMIZER_AND_PARAMETERS, 0, 1 },
};
enum { SETTINGS = sizeof settings / sizeof settings[0] };

static sluice_status run_with(campaign *c, const mode *m, const setting *s, const char *update)
{
    run_request q = { .s = *s,
                      .mode = m,
                      .folder = c->folder,
                      .extra = update,
                      .device = c->device,
                      .out = c->out,
                      .subject = c->subject };
    return matrix_run(&q);
}

/* What must hold of a run that speculated. */
static void check_run(const campaign *c, const mode *m, const setting *s, const outcome *sync)
{
    const outcome *o = c->out;
    const sluice_event *e = &o->end;
    const uint64_t failing = (uint64_t)(sync->clipped + sync->skipped);
    const bool same = strcmp(o->weights, sync->weights) == 0 && strcmp(o->state, sync->state) == 0;
    if (!same || e->speculated == 0 || e->rolled_back > failing || e->peak.host != o->plan.peak.host ||
        e->peak.device != o->plan.peak.device)
        test_fail(
            __FILE__, __LINE__,
            "%s, clip %g, %d ranks, stage %d, offload %d: %s bits, %d steps clipped and %d skipped, %d speculated, "
            "%d rolled back, host peak %llu of %llu",
            m->name, c->subject->clip, s->ranks, s->stage, s->offload, same ? "the same" : "other", sync->clipped,
            sync->skipped, (int)e->speculated, (int)e->rolled_back, (unsigned long long)e->peak.host,
            (unsigned long long)o->plan.peak.host);
    if (failing == 0 && (e->rolled_back > 0 || e->speculated != e->steps))
        test_fail(__FILE__, __LINE__, "%s: %d of %d steps speculated, %d rolled back, and none was clipped", m->name,
                  (int)e->speculated, (int)e->steps, (int)e->rolled_back);
    if (failing == e->steps && (e->rolled_back != e->speculated || e->speculated >= e->steps))
        test_fail(__FILE__, __LINE__, "%s: %d of %d steps speculated, although all were clipped", m->name,
                  (int)e->speculated, (int)e->steps);
}

/* Of each clipping another part of the settings. */
TEST(speculation_ends_with_the_bits_of_waiting_for_the_norm)
{
    static const double clips[] = { 1e6, 2.2, 1.8, 1e-3 };
    for (int k = 0; k < 4; k++) {
        campaign c;
        subject gpt = matrix_subjects[MATRIX_GPT];
        gpt.clip = clips[k];
        REQUIRE(matrix_start_of(&c, "cpu", &gpt));
        for (int m = 0; m < MATRIX_MODES; m++) {
            REQUIRE_OK(run_with(&c, &matrix_modes[m], &settings[0], sync_updates));
            const outcome sync = *c.out;
            CHECK_EQ(sync.end.speculated, 0);
            for (int i = (k + m) % 2; i < SETTINGS; i += getenv("LONG") != NULL ? 1 : 2) {
                REQUIRE_OK(run_with(&c, &matrix_modes[m], &settings[i], speculative_updates));
                check_run(&c, &matrix_modes[m], &settings[i], &sync);
            }
        }
        matrix_end(&c);
    }
}

/* From the plan for speculation to the one without, and back, between two steps and with a save beside them; then once
 * more from a checkpoint in between. */
TEST(a_run_that_changes_between_its_plans_ends_with_the_same_bits)
{
    static const double clips[] = { 1e6, 1.8 };
    for (int k = 0; k < 2; k++) {
        campaign c;
        subject gpt = matrix_subjects[MATRIX_GPT];
        gpt.clip = clips[k];
        REQUIRE(matrix_start_of(&c, "cpu", &gpt));
        for (int m = 0; m < MATRIX_MODES; m++) {
            const setting *s = &settings[(2 * m + k) % SETTINGS];
            char path[4300];
            snprintf(path, sizeof path, "checkpoint.path=%s/saved-%d-%d", c.folder, k, m);
            run_request q = { .s = *s,
                              .mode = &matrix_modes[m],
                              .folder = c.folder,
                              .extra = sync_updates,
                              .device = c.device,
                              .out = c.out,
                              .subject = c.subject };
            REQUIRE_OK(matrix_run(&q));
            const outcome sync = *c.out;
            q.extra = speculative_updates;
            q.also[0] = path;
            q.also[1] = "checkpoint.every=2";
            q.also[2] = "debug.renew_every=3";
            q.kill_at = gpt.steps - 2;
            CHECK(matrix_run(&q) != SLUICE_OK);
            q.kill_at = 0;
            q.resume = true;
            REQUIRE_OK(matrix_run(&q));
            CHECK_STR(c.out->weights, sync.weights);
            CHECK_STR(c.out->state, sync.state);
            q.resume = false;
            q.also[0] = "debug.renew_every=11"; /* once */
            q.also[1] = q.also[2] = NULL;
            REQUIRE_OK(matrix_run(&q));
            CHECK_STR(c.out->weights, sync.weights);
            CHECK_STR(c.out->state, sync.state);
            CHECK(c.out->end.speculated > 0 && c.out->end.speculated < c.out->end.steps);
            CHECK_EQ(c.out->plan.speculating_layers, 0);
            CHECK_EQ(c.out->end.peak.host, c.out->plan.peak.host);
            CHECK_EQ(c.out->end.peak.device, c.out->plan.peak.device);
        }
        matrix_end(&c);
    }
}

/* The host holds the second versions of what is updated, but no copy of all state beside them. */
TEST(a_run_without_room_for_its_state_changes_its_plan_at_a_checkpoint)
{
    for (int ranks = 1; ranks <= 2; ranks++) {
        campaign c;
        char saves[4300], host[64];
        REQUIRE(matrix_start(&c, "cpu"));
        run_request q = { .s = { ranks, 2, OPTIMIZER, 0, 0 },
                          .mode = &matrix_modes[1],
                          .folder = c.folder,
                          .extra = speculative_updates,
                          .device = c.device,
                          .out = c.out };
        REQUIRE_OK(matrix_run(&q));
        const outcome roomy = *c.out;
        snprintf(host, sizeof host, "memory.host=%llu", (unsigned long long)(roomy.plan.peak.host + (16 << 10)));
        snprintf(saves, sizeof saves, "checkpoint={\"path\":\"%s/saved\",\"every\":4}", c.folder);
        q.also[0] = host;
        REQUIRE_OK(matrix_run(&q));
        CHECK_EQ(c.out->plan.speculating_layers, roomy.plan.speculating_layers);
        q.also[1] = saves;
        q.also[2] = "debug.renew_every=5";
        REQUIRE_OK(matrix_run(&q));
        CHECK_EQ(c.out->plan.speculating_layers, 0);
        CHECK_EQ(c.out->end.speculated, 0);
        CHECK_STR(c.out->weights, roomy.weights);
        CHECK_STR(c.out->state, roomy.state);
        matrix_end(&c);
    }
}

static const char *const optimizers[] = {
    "optimizer={\"type\":\"SGD\",\"params\":{\"lr\":0.01,\"momentum\":0.9}}",
    "optimizer={\"type\":\"Adagrad\",\"params\":{\"lr\":0.01}}",
    "optimizer={\"type\":\"Lion\",\"params\":{\"lr\":0.0003}}",
    "optimizer={\"type\":\"Lamb\",\"params\":{\"lr\":0.003}}",
};

TEST(every_optimizer_may_speculate)
{
    campaign c;
    REQUIRE(matrix_start(&c, "cpu"));
    for (size_t k = 0; k < sizeof optimizers / sizeof optimizers[0]; k++) {
        char weights[65];
        for (int i = 0; i < 2; i++) {
            const setting s = { i == 0 ? 1 : 2, i == 0 ? 0 : 2, OPTIMIZER, 2, 0 }; /* whole parameters to ranks */
            run_request q = { .s = s,
                              .mode = &matrix_modes[1],
                              .folder = c.folder,
                              .extra = i == 0 ? sync_updates : speculative_updates,
                              .device = c.device,
                              .out = c.out,
                              .also = { optimizers[k] } };
            REQUIRE_OK(matrix_run(&q));
            if (i == 0) memcpy(weights, c.out->weights, sizeof weights);
            CHECK(i == 0 || c.out->end.speculated > 0);
            CHECK_STR(c.out->weights, weights);
        }
    }
    matrix_end(&c);
}

/* A run that saves beside training, killed in between and gone on with, in the other mode too. */
TEST(a_run_that_speculates_is_killed_and_resumes_to_the_same_bits)
{
    static const char *const updates[][2] = { { speculative_updates, speculative_updates },
                                              { speculative_updates, sync_updates },
                                              { sync_updates, speculative_updates } };
    campaign c;
    REQUIRE(matrix_start(&c, "cpu"));
    for (int ranks = 1; ranks <= 2; ranks++) {
        const setting s = { ranks, 2, OPTIMIZER, 0, 0 };
        REQUIRE_OK(run_with(&c, &matrix_modes[1], &s, sync_updates));
        const outcome whole = *c.out;
        for (int k = 0; k < 3; k++) {
            char path[4300];
            snprintf(path, sizeof path, "checkpoint.path=%s/saved-%d-%d", c.folder, ranks, k);
            run_request q = { .s = s,
                              .mode = &matrix_modes[1],
                              .folder = c.folder,
                              .extra = updates[k][0],
                              .device = c.device,
                              .out = c.out,
                              .also = { path, "checkpoint.every=3" },
                              .kill_at = 11 };
            CHECK(matrix_run(&q) != SLUICE_OK);
            q.extra = updates[k][1];
            q.kill_at = 0;
            q.resume = true;
            REQUIRE_OK(matrix_run(&q));
            CHECK_STR(c.out->weights, whole.weights);
            CHECK_STR(c.out->state, whole.state);
            CHECK((c.out->end.speculated > 0) == (updates[k][1] == speculative_updates));
        }
    }
    matrix_end(&c);
}

/* Steps that were clipped leave the window after 16 more, whether these speculate or not. */
TEST(speculation_ends_where_too_many_steps_were_clipped_and_begins_again)
{
    static sluice_engine e;
    static sl_plan plan;
    const sl_norm_result plain = { 0.5, 1.0f / 8, 1 }, clipped = { 2, 0.5f / 8, 1 }, overflow = { 0, 0, 0 };
    plan.totals.speculating_layers = 1;
    plan.totals.speculation_limit = 3;
    e.plan = &plan;
    e.computes = true;
    e.context.loss_scale = 8;
    for (int step = 0; step < 40; step++) {
        const bool fails = step == 5 || step == 9 || step == 10;
        const bool expected = step <= 10 || step > 5 + SL_SPECULATION_WINDOW; /* the first of the three is forgotten */
        e.speculation.now = sl_engine_may_speculate(&e);
        CHECK_EQ(e.speculation.now, expected);
        sl_engine_note_scalars(&e);
        CHECK_EQ(sl_engine_judge_speculation(&e, !fails ? &plain : step == 9 ? &overflow : &clipped), !fails);
    }
    CHECK_EQ(e.speculation.rolled_back, 3);
    CHECK_EQ(e.speculation.speculated, 40 - (5 + SL_SPECULATION_WINDOW - 10));
    plan.options.update = SL_UPDATE_MODE_AUTO; /* shows first that its steps are not clipped */
    sl_engine_begin_speculation(&e, false);
    for (int step = 0; step < SL_SPECULATION_WINDOW; step++) {
        e.speculation.now = sl_engine_may_speculate(&e);
        CHECK_EQ(e.speculation.now, step >= SL_SPECULATION_WINDOW - 2);
        (void)sl_engine_judge_speculation(&e, &plain);
    }
    /* it need not where it can change its plan, nor where steps are only measured or nothing is clipped */
    for (int way = 0; way < 3; way++) {
        plan.placement.counts_on_change = way == 0;
        plan.options.rarely_fails = way == 2;
        e.speculation = (sl_speculation){ .now = false };
        sl_engine_begin_speculation(&e, way == 1);
        CHECK(sl_engine_may_speculate(&e));
    }
    e.speculation.now = true; /* a learning rate that was set after backward */
    e.context.groups[0].rate = 1;
    CHECK(!sl_engine_judge_speculation(&e, &plain));
}

/* ---- between two plans that both speculate ---- */

enum { PLANS_CONTEXT = 16, PLANS_WORDS = 31, PLANS_STEPS = 24 };

typedef struct engine_run {
    sluice_graph *g;
    sluice_engine *e;
    sl_settings settings;
    char weights[65], state[65];
    uint64_t clipped;
    double clip;          /* 0: none */
    uint64_t plain_steps; /* of the run that it goes on with */
} engine_run;

static sluice_status open_engine(engine_run *r, sl_update_mode update)
{
    static const sl_model_options gpt2 = { .type = "gpt2",
                                           .batch = 2,
                                           .layers = 6,
                                           .heads = 2,
                                           .width = 32,
                                           .context = PLANS_CONTEXT,
                                           .vocabulary = PLANS_WORDS };
    sl_model_info info;
    sluice_options o;
    sluice_options_init(&o);
    sluice_optimizer_init(&o.optimizer, SLUICE_ADAMW);
    o.optimizer_state = SLUICE_PLACE_HOST;
    o.gradient_clipping = r->clip;
    o.seed = 7;
    o.threads = 2;
    o.guard = true;
    SL_TRY(sl_settings_from_options(&o, &r->settings));
    r->settings.plan.update = update;
    r->settings.plan.plain_steps = r->plain_steps;
    SL_TRY(sluice_graph_create(&r->g));
    SL_TRY(sl_model_build(r->g, &gpt2, &info));
    const sl_engine_options e = { .training = true, .settings = &r->settings };
    return sl_engine_create(r->g, &e, &r->e);
}

static sluice_status train_some(engine_run *r, int step)
{
    int32_t tokens[2 * PLANS_CONTEXT], targets[2 * PLANS_CONTEXT];
    double loss;
    for (int i = 0; i < 2 * PLANS_CONTEXT; i++) {
        tokens[i] = (i * 7 + step * 11) % PLANS_WORDS;
        targets[i] = (i * 5 + step) % PLANS_WORDS;
    }
    const sluice_array arrays[] = { { "tokens", tokens, sizeof tokens }, { "targets", targets, sizeof targets } };
    const sluice_batch batch = { arrays, 2 };
    SL_TRY(sluice_train_step(r->e, &batch, &loss));
    r->clipped += sluice_gradient_norm(r->e) > r->clip;
    return SLUICE_OK;
}

static sluice_status close_engine(engine_run *r)
{
    sluice_status st = sluice_hash(r->e, r->weights, r->state);
    sluice_engine_destroy(r->e);
    sluice_graph_destroy(r->g);
    return st;
}

/* A quarter of the layers waits for the norm in the one, no layer in the other. Some steps are clipped; the window is the run's. */
TEST(an_engine_changes_between_two_plans_on_speculation_to_the_same_bits)
{
    engine_run sync = { .clip = 1.6 }, r = { .clip = 1.6 };
    REQUIRE_OK(open_engine(&sync, SL_UPDATE_MODE_SYNC));
    for (int i = 0; i < PLANS_STEPS; i++) REQUIRE_OK(train_some(&sync, i));
    REQUIRE_OK(close_engine(&sync));
    REQUIRE(sync.clipped > 2 && sync.clipped < PLANS_STEPS / 2);

    REQUIRE_OK(open_engine(&r, SL_UPDATE_MODE_SPECULATIVE));
    sl_candidate *first = &r.e->plan->placement;
    const int spared = r.e->plan->totals.speculating_layers, all = r.e->plan->totals.host_state_layers;
    REQUIRE(!first->everywhere && spared < all);
    first->other = (sl_other_placement){ .clock = { true, 1, 1, 1 }, .prefetch = first->prefetch, .everywhere = true };
    first->other.speculating = all;
    first->other.speculation_limit = SL_SPECULATION_WINDOW;
    memcpy(first->other.layers, first->layers, sizeof first->layers);
    for (int i = 0; i < PLANS_STEPS; i++) {
        bool done;
        REQUIRE_OK(train_some(&r, i));
        CHECK_EQ(r.e->plan->totals.speculating_layers, i / 5 % 2 == 0 ? spared : all);
        if (i % 5 != 4) continue;
        REQUIRE_OK(sl_engine_replace_plan(r.e, &r.settings, &done));
        CHECK(done);
    }
    CHECK(r.e->speculation.speculated > PLANS_STEPS / 2);
    CHECK(r.e->speculation.rolled_back > 0);
    REQUIRE_OK(close_engine(&r));
    CHECK_STR(r.weights, sync.weights);
    CHECK_STR(r.state, sync.state);
}

/* ---- where a run may speculate from its first step on ---- */

/* Of "auto": it is not known yet whether steps are clipped. */
static void begin_unknown(sluice_engine *e, sl_plan *plan)
{
    *plan = (sl_plan){ .options = { .update = SL_UPDATE_MODE_AUTO } };
    plan->totals.speculating_layers = 1;
    plan->totals.speculation_limit = 3;
    *e = (sluice_engine){ .plan = plan, .computes = true, .context = { .loss_scale = 1, .clip = 1 } };
    sl_engine_begin_speculation(e, false);
    CHECK(!sl_engine_may_speculate(e));
}

TEST(one_norm_far_below_the_threshold_shows_as_much_as_a_window)
{
    static sluice_engine e;
    static sl_plan plan;
    const sl_norm_result near = { 0.3, 1, 1 }, far = { 0.2, 1, 1 }, clipped = { 2, 0.5f, 1 };
    begin_unknown(&e, &plan);
    (void)sl_engine_judge_speculation(&e, &near);
    CHECK(!sl_engine_may_speculate(&e));
    (void)sl_engine_judge_speculation(&e, &far);
    CHECK(sl_engine_may_speculate(&e));
    for (int i = 0; i < 3; i++) (void)sl_engine_judge_speculation(&e, &clipped);
    CHECK(!sl_engine_may_speculate(&e));
}

TEST(a_run_that_goes_on_has_the_window_that_it_had)
{
    static sluice_engine e;
    static sl_plan plan;
    const sl_norm_result near = { 0.3, 1, 1 };
    begin_unknown(&e, &plan);
    sl_engine_resume_speculation(&e, SL_SPECULATION_WINDOW - 3);
    CHECK(!sl_engine_may_speculate(&e));
    (void)sl_engine_judge_speculation(&e, &near); /* the second to last that is not known leaves the window */
    CHECK(sl_engine_may_speculate(&e));
    CHECK_EQ(e.speculation.plain, SL_SPECULATION_WINDOW - 2);
    begin_unknown(&e, &plan);
    sl_engine_resume_speculation(&e, 1000);
    CHECK(sl_engine_may_speculate(&e));
}

/* By the threshold, and by what a checkpoint says of the run before. */
TEST(a_plan_counts_on_speculation_where_nothing_will_be_clipped)
{
    static const struct {
        double clip;
        uint64_t plain_steps;
        bool counts;
    } cases[] = { { 1, 0, false },   { 1, 15, false },  { 1, 16, true },
                  { 999, 0, false }, { 1000, 0, true }, { 0, 0, true } };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        engine_run r = { .clip = cases[i].clip, .plain_steps = cases[i].plain_steps };
        REQUIRE_OK(open_engine(&r, SL_UPDATE_MODE_AUTO));
        CHECK_EQ(r.e->plan->options.rarely_fails, cases[i].counts);
        REQUIRE_OK(close_engine(&r));
    }
}

/* Saved after so many steps, of which the last ones were not clipped. */
TEST(a_checkpoint_knows_how_many_steps_were_last_not_clipped)
{
    for (int clips = 0; clips < 2; clips++) {
        campaign c;
        uint64_t steps;
        char path[4300], folder[4200];
        subject gpt = matrix_subjects[MATRIX_GPT];
        gpt.clip = clips ? 1e-6 : 1e6;
        REQUIRE(matrix_start_of(&c, "cpu", &gpt));
        snprintf(folder, sizeof folder, "%s/plain-%d", c.folder, clips);
        snprintf(path, sizeof path, "checkpoint.path=%s", folder);
        run_request q = { .s = settings[0],
                          .mode = &matrix_modes[0],
                          .folder = c.folder,
                          .extra = speculative_updates,
                          .device = c.device,
                          .out = c.out,
                          .subject = c.subject,
                          .also = { path } };
        REQUIRE_OK(matrix_run(&q));
        REQUIRE_OK(sl_checkpoint_plain_steps(folder, &steps));
        CHECK_EQ(steps, clips ? 0 : c.out->end.steps);
        matrix_end(&c);
    }
}

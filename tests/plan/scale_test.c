/* scale_test.c: the quick passes give what the plain ones give, and their work grows with the model as it should. Work
 * is counted, not timed. */
#include "core/bytes.h"
#include "model/model.h"
#include "plan/first_fit.h"
#include "plan/live_fit.h"
#include "plan/passes.h"
#include "plan/place.h"
#include "plan/tenants.h"
#include "support/plain_planner.h"
#include "support/planned.h"
#include "test.h"

static uint64_t draw(uint64_t *state, uint64_t below)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (*state >> 33) % below;
}

/* ---- addresses ---- */

enum { MOST_LIVES = 8192 };

typedef struct life {
    uint64_t bytes;
    int first, last;
} life;

/* Kinds of lives: any; of a few times; nested, as activations that wait for their backward; short ones beside nested
 * ones; of few sizes. */
enum { ANY, SHORT, NESTED, MIXED, FEW_SIZES, LIFE_KINDS };

static life draw_life(uint64_t *state, int kind, int i, int count)
{
    int at = (int)draw(state, (uint64_t)count), other = (int)draw(state, (uint64_t)count);
    life l = { 256 * (1 + draw(state, kind == FEW_SIZES ? 3 : 1000)), at < other ? at : other,
               at < other ? other : at };
    if (kind == SHORT || (kind == MIXED && i % 3 != 0)) {
        l.first = at;
        l.last = at + (int)draw(state, 4) < count ? at + (int)draw(state, 3) : at;
        if (l.last >= count) l.last = count - 1;
    } else if (kind == NESTED || kind == MIXED) {
        l.first = i / 2;
        l.last = count - 1 - i / 2;
    }
    return l;
}

TEST(first_fit_gives_the_offsets_of_the_plain_search)
{
    static plain_placed placed[400];
    sl_first_fit fit = { .base = 0 };
    uint64_t state = 7;
    for (int trial = 0; trial < 40; trial++) {
        int count = 1 + (int)draw(&state, 400), wrong = 0;
        uint64_t base = 256 * draw(&state, 5);
        REQUIRE_OK(sl_first_fit_begin(&fit, base, count));
        for (int i = 0; i < count; i++) {
            life l = draw_life(&state, trial % LIFE_KINDS, i, count);
            uint64_t offset, plain = plain_first_fit(placed, i, base, l.bytes, l.first, l.last);
            REQUIRE_OK(sl_first_fit_place(&fit, l.bytes, l.first, l.last, &offset));
            wrong += offset != plain;
        }
        CHECK_EQ(wrong, 0);
    }
    sl_first_fit_destroy(&fit);
}

/* Lives in the order of their births. */
TEST(live_fit_gives_the_offsets_of_the_plain_search_in_order_of_birth)
{
    static plain_placed placed[400];
    static life lives[400];
    static uint64_t offsets[400];
    sl_live_fit fit = { .base = 0 };
    uint64_t state = 11;
    for (int trial = 0; trial < 40; trial++) {
        int count = 1 + (int)draw(&state, 400), wrong = 0;
        uint64_t base = 256 * draw(&state, 5);
        sl_live_fit_begin(&fit, base);
        for (int i = 0; i < count; i++) {
            life l = draw_life(&state, trial % LIFE_KINDS, i, count);
            lives[i] = (life){ l.bytes, i, i + l.last - l.first };
            for (int k = 0; k < i; k++)
                if (lives[k].last == i - 1) REQUIRE_OK(sl_live_fit_release(&fit, lives[k].bytes, offsets[k]));
            uint64_t plain = plain_first_fit(placed, i, base, l.bytes, lives[i].first, lives[i].last);
            REQUIRE_OK(sl_live_fit_place(&fit, l.bytes, &offsets[i]));
            wrong += offsets[i] != plain;
        }
        CHECK_EQ(wrong, 0);
    }
    sl_live_fit_destroy(&fit);
}

static double looked_per_life(int kind, int count)
{
    sl_first_fit fit = { .base = 0 };
    uint64_t state = 3, offset;
    CHECK_EQ(sl_first_fit_begin(&fit, 0, count), SLUICE_OK);
    for (int i = 0; i < count; i++) {
        life l = draw_life(&state, kind, i, count);
        CHECK_EQ(sl_first_fit_place(&fit, l.bytes, l.first, l.last, &offset), SLUICE_OK);
    }
    double looked = (double)fit.looked / count;
    sl_first_fit_destroy(&fit);
    return looked;
}

/* Sixteen times the lives: the plain search looks at sixteen times as many for each. Here it is the height of the tree
 * that grows, from 9 to 13. */
TEST(the_work_of_placing_a_buffer_grows_with_the_logarithm_of_the_model)
{
    static const int kinds[] = { SHORT, NESTED };
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        double few = looked_per_life(kinds[k], MOST_LIVES / 16), many = looked_per_life(kinds[k], MOST_LIVES);
        CHECK_THAT(many < 2.0 * few, "%d: %.1f stretches for one of %d, %.1f for one of %d", kinds[k], few,
                   MOST_LIVES / 16, many, MOST_LIVES);
    }
}

/* ---- plans of random models ---- */

/* A number of random models, each with other options. */
enum { MODELS = 24 };

static sluice_status plan_random(planned *fx, int k)
{
    *fx = (planned){ .graph = NULL };
    plan_options_default(&fx->options);
    fx->options.rank_count = 1 + k % 3;
    fx->options.stage = k % 4;
    fx->options.accumulation = 1 + k % 2;
    fx->options.prefetch = k % 5 == 0 ? 2 : -1;
    if (k % 4 == 1) fx->options.state = SLUICE_PLACE_HOST;
    if (k % 4 == 2) fx->options.parameters = SLUICE_PLACE_HOST;
    if (k % 6 == 3) fx->options.activations = SLUICE_ACTIVATIONS_OFFLOAD;
    if (k % 6 == 4) fx->options.activations = SLUICE_ACTIVATIONS_RECOMPUTE;
    return plan_model(fx, (uint64_t)k + 1);
}

TEST(waits_are_those_of_the_plain_derivation)
{
    int waits = 0;
    for (int k = 0; k < MODELS; k++) {
        planned fx;
        int wrong = 0;
        REQUIRE_OK(plan_random(&fx, k));
        sl_plan *p = fx.plan, before = *p;
        sl_step *steps = malloc((size_t)p->step_count * sizeof *steps);
        int *awaited = malloc(((size_t)p->wait_count + 1) * sizeof *awaited);
        REQUIRE(steps != NULL && awaited != NULL);
        memcpy(steps, p->steps, (size_t)p->step_count * sizeof *steps);
        for (int i = 0; i < p->wait_count; i++) awaited[i] = p->waits[i];
        REQUIRE_OK(plain_waits(p));
        CHECK_EQ(p->wait_count, before.wait_count);
        CHECK_EQ(p->event_count, before.event_count);
        for (int i = 0; i < p->step_count; i++) {
            const sl_step *a = &steps[i], *b = &p->steps[i];
            wrong += a->first_wait != b->first_wait || a->wait_count != b->wait_count || a->event != b->event;
        }
        for (int i = 0; i < p->wait_count && i < before.wait_count; i++) wrong += p->waits[i] != awaited[i];
        CHECK_EQ(wrong, 0);
        waits += p->wait_count;
        free(steps);
        free(awaited);
        planned_free(&fx);
    }
    CHECK(waits > 100);
}

/* A peak is over its budget exactly where the address pass has it over, and by no more; what fits is a legal plan. */
static void check_rough_addresses(sl_plan *p, const uint64_t *exact)
{
    bool fits = true;
    REQUIRE_OK(sl_plan_address_roughly(p));
    for (int t = 0; t < SL_TIER_COUNT; t++) {
        uint64_t peak = p->totals.peak[t], budget = p->options.budget[t];
        CHECK_EQ(peak > budget, exact[t] > budget);
        if (peak > budget) CHECK(peak <= exact[t]);
        fits = fits && peak <= budget;
    }
    REQUIRE_OK(sl_plan_waits(p));
    if (fits) CHECK_EQ(sl_plan_verify(p), SLUICE_OK);
}

/* Peaks without offsets are those of the address pass, and no bound is above them. */
static void check_peaks_alone(sl_plan *p, const uint64_t *exact)
{
    REQUIRE_OK(sl_plan_measure(p));
    for (int t = 0; t < SL_TIER_COUNT; t++) CHECK_EQ(p->totals.peak[t], exact[t]);
    REQUIRE_OK(sl_plan_bound(p));
    for (int t = 0; t < SL_TIER_COUNT; t++) CHECK(p->totals.peak[t] <= exact[t]);
}

/* Budgets of a byte less and more than what each tier needs, and much less. */
TEST(a_plan_fits_exactly_where_its_addresses_do)
{
    int fitting = 0, others = 0;
    for (int k = 0; k < MODELS; k++) {
        planned fx;
        REQUIRE_OK(plan_random(&fx, k));
        sl_plan *p = fx.plan;
        uint64_t peak[SL_TIER_COUNT];
        for (int t = 0; t < SL_TIER_COUNT; t++) peak[t] = p->totals.peak[t];
        for (int trial = 0; trial < 9; trial++) {
            static const int64_t off[3] = { -1, 0, -40000 };
            bool fits, expected = true;
            int64_t with[SL_TIER_COUNT] = { off[trial % 3], off[trial / 3] };
            for (int t = 0; t < SL_TIER_COUNT; t++)
                p->options.budget[t] = (int64_t)peak[t] + with[t] > 0 ? (uint64_t)((int64_t)peak[t] + with[t]) : 0;
            REQUIRE_OK(sl_plan_address(p));
            uint64_t exact[SL_TIER_COUNT];
            for (int t = 0; t < SL_TIER_COUNT; t++) {
                exact[t] = p->totals.peak[t];
                expected = expected && exact[t] <= p->options.budget[t];
            }
            REQUIRE_OK(sl_plan_fits(p, &fits));
            CHECK_EQ(fits, expected);
            check_peaks_alone(p, exact);
            check_rough_addresses(p, exact);
            fitting += fits;
            others += !fits;
        }
        planned_free(&fx);
    }
    CHECK(fitting > MODELS && others > MODELS);
}

static uint64_t permanent_bytes(const sl_plan *p)
{
    uint64_t bytes = 0;
    for (int i = 0; i < p->buffer_count; i++)
        if (p->buffers[i].permanent) bytes += p->buffers[i].bytes;
    return bytes;
}

/* What is refused without a search is refused rightly: plans of all settings and ranks keep at least the floor, and some
 * keep no more. */
TEST(no_plan_keeps_less_than_the_floor)
{
    int tight = 0;
    for (int k = 0; k < MODELS; k++) {
        planned fx;
        sl_usage *u;
        sl_search s;
        uint64_t floor, kept;
        REQUIRE_OK(plan_random(&fx, k));
        kept = permanent_bytes(fx.plan);
        REQUIRE_OK(sl_usage_create(fx.graph, fx.options.levels, &u));
        sl_search_open(&s, fx.plan, u);
        REQUIRE_OK(sl_search_floor(&s, &floor));
        CHECK(floor <= kept);
        tight += floor == kept;
        sl_usage_destroy(u);
        planned_free(&fx);
    }
    CHECK(tight > 0);
}

/* ---- refusals ---- */

/* Whether a plan is made with budgets of a need and those there are, of one tier a byte less; tier -1: of none. */
static sluice_status plan_with(const planned *fx, const sl_plan_need *need, int tier)
{
    sl_plan_options o = fx->options;
    sl_plan *plan = NULL;
    for (int t = 0; t < SL_TIER_COUNT; t++) {
        if (need->bytes[t] > o.budget[t]) o.budget[t] = need->bytes[t];
        if (t == tier) o.budget[t]--;
    }
    sluice_status st = sl_plan_create(fx->graph, &fx->machine, &o, &plan);
    if (st == SLUICE_OK) sl_plan_destroy(plan);
    return st;
}

/* Little of one tier, of the other, or of both. */
TEST(what_a_refusal_says_is_needed_is_enough_and_a_byte_less_is_not)
{
    int lacking[SL_TIER_COUNT] = { 0 };
    for (int k = 0; k < MODELS; k++) {
        planned fx;
        sl_plan_need need;
        REQUIRE_OK(plan_random(&fx, k));
        const uint64_t all = fx.plan->totals.peak[SL_TIER_DEVICE] + fx.plan->totals.peak[SL_TIER_HOST];
        sl_plan_destroy(fx.plan);
        fx.plan = NULL;
        fx.options.budget[SL_TIER_DEVICE] = k % 3 == 0 ? all / 2 : all / 16;
        fx.options.budget[SL_TIER_HOST] = k % 3 == 1 ? (uint64_t)1 << 40 : all / 16;
        sluice_status st = sl_plan_create_or_need(fx.graph, &fx.machine, &fx.options, &fx.plan, &need);
        if (st != SLUICE_OK) {
            CHECK_EQ(st, SLUICE_ERR_NO_FIT);
            CHECK_EQ(plan_with(&fx, &need, -1), SLUICE_OK);
            for (int t = 0; t < SL_TIER_COUNT; t++) {
                if (need.bytes[t] <= fx.options.budget[t]) continue;
                CHECK_EQ(plan_with(&fx, &need, t), SLUICE_ERR_NO_FIT);
                lacking[t]++;
            }
        }
        planned_free(&fx);
    }
    CHECK(lacking[SL_TIER_DEVICE] > 0 && lacking[SL_TIER_HOST] > 0);
}

/* ---- another rank of the same run ---- */

static bool same_program(const sl_plan *a, const sl_plan *b)
{
    bool same = a->step_count == b->step_count && a->buffer_count == b->buffer_count &&
                a->wait_count == b->wait_count && a->piece_count == b->piece_count &&
                a->totals.step_seconds == b->totals.step_seconds;
    for (int i = 0; same && i < a->buffer_count; i++)
        same = a->buffers[i].offset == b->buffers[i].offset && a->buffers[i].bytes == b->buffers[i].bytes;
    for (int i = 0; same && i < a->piece_count; i++)
        same = a->pieces[i].buffer == b->pieces[i].buffer && a->pieces[i].offset == b->pieces[i].offset;
    for (int i = 0; same && i < a->wait_count; i++) same = a->waits[i] == b->waits[i];
    return same;
}

/* With budgets that ask for savings, so that there is a placement to be taken over. */
TEST(the_plan_of_another_rank_is_the_one_that_this_rank_would_make)
{
    int saved = 0;
    for (int k = 0; k < MODELS; k++) {
        planned fx;
        REQUIRE_OK(plan_random(&fx, k));
        for (int t = 0; t < SL_TIER_COUNT; t++) fx.options.budget[t] = fx.plan->totals.peak[t] * 9 / 10;
        fx.options.budget[SL_TIER_HOST] = (uint64_t)1 << 40;
        sl_plan_destroy(fx.plan);
        fx.plan = NULL;
        if (sl_plan_create(fx.graph, &fx.machine, &fx.options, &fx.plan) == SLUICE_OK) {
            for (int r = 0; r < fx.options.rank_count; r++) {
                sl_plan *own, *other;
                fx.options.rank = r;
                REQUIRE_OK(sl_plan_create(fx.graph, &fx.machine, &fx.options, &own));
                REQUIRE_OK(sl_plan_create_for_rank(fx.plan, NULL, r, &other));
                CHECK(same_program(own, other));
                for (int i = 0; i < SL_SAVING_COUNT; i++) saved += other->placement.layers[i] > 0;
                sl_plan_destroy(own);
                sl_plan_destroy(other);
            }
        }
        planned_free(&fx);
    }
    CHECK(saved > 0);
}

/* ---- depth ---- */

static sluice_status plan_deep(planned *fx, int layers, bool recompute)
{
    sl_model_options gpt = { .type = "gpt2",
                             .batch = 1,
                             .layers = layers,
                             .heads = 1,
                             .width = 8,
                             .context = 4,
                             .vocabulary = 16,
                             .norm_epsilon = 1e-5,
                             .bias = true };
    sl_model_info info;
    *fx = (planned){ .graph = NULL };
    plan_options_default(&fx->options);
    fx->options.activations = recompute ? SLUICE_ACTIVATIONS_RECOMPUTE : SLUICE_ACTIVATIONS_KEEP;
    fx->options.state = SLUICE_PLACE_HOST;
    SL_TRY(sluice_graph_create(&fx->graph));
    SL_TRY(sl_model_build(fx->graph, &gpt, &info));
    SL_TRY(plan_prepare(fx));
    return sl_plan_create(fx->graph, &fx->machine, &fx->options, &fx->plan);
}

/* Lots that the buffers of a plan take over, for each buffer. */
static double lots_per_buffer(sl_plan *p)
{
    sl_tenants t;
    int lots = 0, moves = 0;
    CHECK_EQ(sl_tenants_create(&t, p), SLUICE_OK);
    for (int i = 0; i < p->step_count; i++)
        for (int k = 0; k < sl_step_operands(&p->steps[i]); k++) {
            int b = p->pieces[p->steps[i].first_piece + k].buffer;
            if (b < 0 || p->buffers[b].permanent || p->buffers[b].first != i) continue;
            for (int lot = sl_tenants_begin(&t, b); lot >= 0; lot = sl_tenants_next(&t, b, lot)) lots++;
            sl_tenants_move_in(&t, b);
            moves++;
        }
    sl_tenants_destroy(&t);
    return (double)lots / moves;
}

/* All buffers that ever use the same bytes grow with the square of the layers; the last users of them do not. */
TEST(a_buffer_takes_over_few_lots_however_deep_the_model)
{
    for (int recompute = 0; recompute < 2; recompute++) {
        double lots[2];
        for (int k = 0; k < 2; k++) {
            planned fx;
            REQUIRE_OK(plan_deep(&fx, k == 0 ? 8 : 64, recompute == 1));
            lots[k] = lots_per_buffer(fx.plan);
            planned_free(&fx);
        }
        CHECK_THAT(lots[1] < 4 && lots[1] < 1.5 * lots[0] + 0.5, "%.2f lots a buffer in 8 layers, %.2f in 64", lots[0],
                   lots[1]);
    }
}

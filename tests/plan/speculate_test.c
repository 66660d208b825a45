/* speculate_test.c: which layers a plan updates on speculation, what that takes, and that both versions of what they write
 * are one memory to whoever orders steps. */
#include <stdlib.h>

#include "core/bytes.h"
#include "ir/form.h"
#include "plan/place.h"
#include "support/planned.h"
#include "test.h"

#define SEED 4212 /* a transformer of five blocks with a tied embedding */

static void host_options(planned *fx, sl_update_mode update)
{
    plan_options_default(&fx->options);
    fx->options.state = SLUICE_PLACE_HOST;
    fx->options.parameters = SLUICE_PLACE_DEVICE;
    fx->options.update = update;
}

static uint64_t twin_bytes(const sl_plan *p)
{
    uint64_t bytes = 0;
    for (int i = 0; i < p->buffer_count; i++) {
        const sl_buffer *b = &p->buffers[i];
        if (b->kind != SL_BUFFER_TWIN) continue;
        const sl_buffer *of = &p->buffers[b->twin - 1];
        CHECK(b->tier == SL_TIER_HOST && b->permanent && b->bytes == of->bytes && b->form == of->form);
        CHECK_EQ(of->twin - 1, i);
        bytes += b->bytes;
    }
    return bytes;
}

/* Of a plan whose host has room for all second versions. */
static int expected_layers(const sl_plan *p)
{
    return sl_most_speculating(p->totals.host_state_layers, p->placement.everywhere);
}

TEST(layers_with_state_on_the_host_speculate_where_it_is_asked_for_but_for_a_quarter)
{
    planned sync = { 0 }, fx = { .precision = SLUICE_F32 };
    host_options(&sync, SL_UPDATE_MODE_SYNC);
    host_options(&fx, SL_UPDATE_MODE_SPECULATIVE);
    REQUIRE_OK(plan_model(&sync, SEED));
    REQUIRE_OK(plan_model(&fx, SEED));
    const sl_plan_totals *t = &fx.plan->totals;
    CHECK_EQ(sync.plan->totals.speculating_layers, 0);
    CHECK_EQ(sync.plan->segments[SL_SEGMENT_REDO].step_count, 0);
    CHECK_EQ(t->speculating_layers, expected_layers(fx.plan));
    CHECK(!fx.plan->placement.everywhere && t->host_state_layers >= 4);
    CHECK_EQ(t->speculation_bytes, twin_bytes(fx.plan));
    CHECK_NEAR(t->host_bytes_per_parameter, 12, 1e-9); /* a master and two moments */
    CHECK_NEAR(t->host_bytes_per_parameter, sync.plan->totals.host_bytes_per_parameter, 1e-9);
    CHECK(t->speculation_limit >= 1 && t->speculation_limit <= SL_SPECULATION_WINDOW);
    CHECK(t->redo_seconds > 0);
    for (int k = 0; k < SL_LINK_COUNT; k++) CHECK_EQ(t->moved[k], sync.plan->totals.moved[k]);
    planned_free(&sync);
    planned_free(&fx);
}

/* ---- bytes a parameter ---- */

/* What the host keeps of a layer, counted from the plan's buffers; gradients apart. */
static uint64_t kept_of(const sl_plan *p, int layer)
{
    uint64_t bytes = 0;
    for (int i = 0; i < p->buffer_count; i++) {
        const sl_buffer *b = &p->buffers[i];
        bool counts = b->kind == SL_BUFFER_PARAMETERS || b->kind == SL_BUFFER_STATE;
        if (b->tier == SL_TIER_HOST && b->permanent && b->layer == layer && counts) bytes += b->bytes;
    }
    return bytes;
}

/* Of exact moments 12 bytes for each parameter: a master, whole or in halves, and two of 4. Of compact ones 6: the halves and
 * two codes, beside 4 bytes for each block of a moment; blocks that stay f32 have the 12. */
static uint64_t most_of(const sl_layer *layer, bool compact)
{
    int64_t wide = 0, n = layer->element_count, blocks = (n + SL_CUT_ELEMENTS - 1) / SL_CUT_ELEMENTS;
    if (!compact) return 12 * (uint64_t)n;
    for (int64_t b = 0; b < blocks; b++) {
        int64_t left = n - b * SL_CUT_ELEMENTS;
        if (sl_block_is_wide(layer, b)) wide += left < SL_CUT_ELEMENTS ? left : SL_CUT_ELEMENTS;
    }
    return (uint64_t)(12 * wide + 6 * (n - wide) + 8 * blocks);
}

/* What the table says of the host, in a plan with state there. */
static void check_table(const sl_plan *p)
{
    char *text = NULL, line[128], more[32];
    size_t bytes = 0;
    FILE *f = open_memstream(&text, &bytes);
    REQUIRE(f != NULL);
    sl_plan_print(p, f);
    fclose(f);
    snprintf(line, sizeof line, " %.4g bytes a parameter on the host\n", p->totals.host_bytes_per_parameter);
    CHECK_CONTAINS(text, line);
    snprintf(line, sizeof line, ", %s more on the host; a step takes ",
             sl_format_bytes(p->totals.speculation_bytes, more, sizeof more));
    CHECK_EQ(strstr(text, line) != NULL, p->totals.speculating_layers > 0);
    free(text);
}

TEST(a_parameter_whose_state_is_offloaded_takes_twelve_bytes_of_the_host_and_six_where_moments_are_compact)
{
    static const struct {
        sluice_dtype type;
        sl_form states;
    } modes[] = { { SLUICE_F32, SL_FORM_F32 },
                  { SLUICE_BF16, SL_FORM_F32 },
                  { SLUICE_F16, SL_FORM_F32 },
                  { SLUICE_BF16, SL_FORM_BLOCKS8 } };
    for (int i = 0; i < 8; i++) {
        const bool speculates = i % 2 == 1, compact = modes[i / 2].states == SL_FORM_BLOCKS8;
        planned fx = { .precision = modes[i / 2].type, .wire = modes[i / 2].type };
        uint64_t kept = 0, most = 0, twice = 0;
        host_options(&fx, speculates ? SL_UPDATE_MODE_SPECULATIVE : SL_UPDATE_MODE_SYNC);
        fx.options.state_form = modes[i / 2].states;
        REQUIRE_OK(plan_model(&fx, SEED));
        for (int k = 0; k < fx.graph->layer_count; k++) {
            const sl_layer *layer = &fx.graph->layers[k];
            CHECK(kept_of(fx.plan, k) <= most_of(layer, compact));
            kept += kept_of(fx.plan, k);
            if (fx.plan->layers[k].speculates) twice += kept_of(fx.plan, k);
            most += most_of(layer, compact);
        }
        const sl_plan_totals *t = &fx.plan->totals;
        CHECK(kept > 0 && kept <= most);
        CHECK_NEAR(t->host_bytes_per_parameter * (double)sl_graph_parameter_elements(fx.graph), (double)kept, 0.5);
        CHECK_EQ(t->speculation_bytes, twice); /* as much again: a second version of all of it */
        CHECK_EQ(twice > 0, speculates);
        check_table(fx.plan);
        planned_free(&fx);
    }
}

/* Layers that wait for the norm lie evenly between those that do not: of the first so many, about as large a part as of all. */
static void check_spread(const sl_plan *p)
{
    const int all = p->totals.host_state_layers, waiting = all - p->totals.speculating_layers;
    int seen = 0, waited = 0;
    for (int i = p->graph->layer_count - 1; i >= 0; i--) {
        if (p->layers[i].state != SL_TIER_HOST) continue;
        waited += !p->layers[i].speculates;
        seen++;
        CHECK_THAT(abs(waited * all - seen * waiting) <= all, "%d of the last %d layers wait, and %d of all %d", waited,
                   seen, waiting, all);
    }
    CHECK_EQ(waited, waiting);
}

TEST(layers_speculate_as_far_as_the_host_has_room)
{
    planned all = { 0 }, sync = { 0 };
    int before = 0;
    host_options(&sync, SL_UPDATE_MODE_SYNC);
    host_options(&all, SL_UPDATE_MODE_SPECULATIVE);
    REQUIRE_OK(plan_model(&sync, SEED));
    REQUIRE_OK(plan_model(&all, SEED));
    const uint64_t least = sync.plan->totals.peak[SL_TIER_HOST], most = all.plan->totals.peak[SL_TIER_HOST];
    for (int eighths = 0; eighths <= 8; eighths++) {
        planned fx = { 0 };
        host_options(&fx, SL_UPDATE_MODE_SPECULATIVE);
        fx.options.budget[SL_TIER_HOST] = least + (most - least) * (uint64_t)eighths / 8;
        REQUIRE_OK(plan_model(&fx, SEED));
        const int now = fx.plan->totals.speculating_layers;
        CHECK(now >= before);
        check_spread(fx.plan);
        if (eighths == 0) CHECK_EQ(now, 0);
        if (eighths == 8) CHECK_EQ(now, all.plan->totals.speculating_layers);
        before = now;
        planned_free(&fx);
    }
    planned_free(&sync);
    planned_free(&all);
}

/* On "auto" with a host so slow, and a device so much faster, that the wait for the norm counts; and where updates take
 * turns with backward. */
TEST(auto_speculates_where_a_step_becomes_shorter)
{
    for (int turns = 0; turns < 2; turns++) {
        planned fx = { 0 };
        sl_plan *p = NULL;
        host_options(&fx, SL_UPDATE_MODE_AUTO);
        REQUIRE_OK(plan_model(&fx, SEED));
        sl_machine m = fx.machine;
        m.kernels_take_turns = turns == 1;
        m.copies_overlap = true;
        m.update_bytes_per_second /= 8;
        REQUIRE_OK(sl_plan_create(fx.graph, &m, &fx.options, &p));
        CHECK_EQ(p->totals.speculating_layers > 0, turns == 0);
        CHECK_EQ(p->totals.speculation_gain >= 0.01 * p->totals.step_seconds, turns == 0);
        sl_plan_destroy(p);
        planned_free(&fx);
    }
}

/* A run whose speculation has ended goes on with it. */
TEST(a_plan_remembers_the_best_placement_without_speculation)
{
    for (int tight = 0; tight < 2; tight++) {
        planned sync = { 0 }, fx = { 0 };
        sl_plan *waiting = NULL;
        plan_options_default(&sync.options);
        plan_options_default(&fx.options);
        if (tight == 1) sync.options.budget[SL_TIER_DEVICE] = fx.options.budget[SL_TIER_DEVICE] = 400 << 10;
        sync.options.update = SL_UPDATE_MODE_SYNC;
        fx.options.update = SL_UPDATE_MODE_SPECULATIVE;
        if (tight == 0) sync.options.state = fx.options.state = SLUICE_PLACE_HOST;
        REQUIRE_OK(plan_model(&sync, SEED));
        REQUIRE_OK(plan_model(&fx, SEED));
        REQUIRE(fx.plan->totals.speculating_layers > 0);
        CHECK_NEAR(fx.plan->placement.waiting_seconds, sync.plan->totals.step_seconds, 1e-15);
        CHECK_NEAR(fx.plan->placement.other.clock.seconds, sync.plan->totals.step_seconds, 1e-15);
        const sl_candidate c = sl_plan_other_placement(fx.plan);
        REQUIRE_OK(sl_plan_create_placed(fx.graph, &fx.machine, &sync.options, &c, &waiting));
        CHECK_EQ(waiting->totals.speculating_layers, 0);
        CHECK_NEAR(waiting->totals.step_seconds, sync.plan->totals.step_seconds, 1e-15);
        for (int t = 0; t < SL_TIER_COUNT; t++) CHECK_EQ(waiting->totals.peak[t], sync.plan->totals.peak[t]);
        sl_plan_destroy(waiting);
        planned_free(&sync);
        planned_free(&fx);
    }
}

/* On a machine on which speculation pays: a device much faster than the host. */
typedef struct paying {
    planned fx;
    sl_machine machine;
    sl_plan *plan;
} paying;

/* host 0: as much as it takes. */
static void plan_paying(paying *q, sl_update_mode update, uint64_t device, uint64_t host, double steps)
{
    *q = (paying){ .plan = NULL };
    plan_options_default(&q->fx.options);
    q->fx.options.budget[SL_TIER_DEVICE] = device;
    if (host > 0) q->fx.options.budget[SL_TIER_HOST] = host;
    q->fx.options.update = update;
    REQUIRE_OK(plan_model(&q->fx, SEED));
    q->machine = q->fx.machine;
    q->machine.kernels_take_turns = false;
    q->machine.copies_overlap = true;
    q->machine.update_bytes_per_second /= 4;
    q->fx.options.steps = (uint64_t)steps;
    REQUIRE_OK(sl_plan_create(q->fx.graph, &q->machine, &q->fx.options, &q->plan));
}

static void free_paying(paying *q)
{
    sl_plan_destroy(q->plan);
    planned_free(&q->fx);
}

/* Too little for everything. */
#define PAYING_DEVICE (600 << 10)

/* By the clocks it loses little if it is clipped in every step, however little memory there is. */
TEST(a_run_begins_with_a_placement_with_which_clipped_steps_are_hardly_longer)
{
    int speculated = 0;
    for (uint64_t device = 400 << 10; device <= 1000 << 10; device += 50 << 10) {
        paying sync, q;
        plan_paying(&sync, SL_UPDATE_MODE_SYNC, device, 0, 0);
        plan_paying(&q, SL_UPDATE_MODE_AUTO, device, 0, 0);
        const sl_step_clock clock = sl_plan_step_clock(q.plan);
        const double shortest = sync.plan->totals.step_seconds;
        CHECK(clock.seconds <= shortest);
        CHECK_THAT(clock.without <= 1.02 * shortest, "%llu bytes: %g s without it, %g s with sync",
                   (unsigned long long)device, clock.without, shortest);
        CHECK(!q.plan->placement.other.clock.speculates);
        speculated += clock.speculates;
        free_paying(&q);
        free_paying(&sync);
    }
    CHECK(speculated >= 5);
}

static void check_clock(sl_step_clock is, sl_step_clock expected)
{
    CHECK_EQ(is.speculates, expected.speculates);
    CHECK_NEAR(is.seconds, expected.seconds, 1e-15);
    CHECK_NEAR(is.redo, expected.redo, 1e-15);
    CHECK_NEAR(is.without, expected.without, 1e-15);
}

/* There are two placements: one with which clipped steps are hardly longer, and the fastest. A run that can change between them
 * knows both. It begins with the fastest where it would lose less than a hundredth if all of its steps were clipped: a window of
 * them, and carrying its state to the other plan. For that the host needs room. */
TEST(a_run_that_can_change_its_plan_knows_the_fastest_placement_and_a_long_one_begins_with_it)
{
    paying careful, fastest;
    plan_paying(&careful, SL_UPDATE_MODE_AUTO, PAYING_DEVICE, 0, 0);
    plan_paying(&fastest, SL_UPDATE_MODE_AUTO, PAYING_DEVICE, 0, 1e9);
    const sl_step_clock slow = sl_plan_step_clock(careful.plan), fast = sl_plan_step_clock(fastest.plan);
    const double waiting = careful.plan->placement.waiting_seconds;
    REQUIRE(fast.speculates && fast.seconds < 0.99 * slow.seconds && fast.without > 1.05 * waiting);
    const double carried = (double)sl_plan_carried_bytes(fastest.plan), change = carried / SL_CARRIED_PER_SECOND;
    const double clipped = fmax(fast.without, fast.seconds + fast.redo);
    const double few = change / (slow.seconds - fast.seconds),
                 many = (SL_SPECULATION_WINDOW * (clipped - waiting) + change) / (0.01 * waiting);
    const uint64_t room = fastest.plan->totals.peak[SL_TIER_HOST] + (uint64_t)carried;
    const struct {
        double steps;
        uint64_t host;
        bool knows, begins;
    } cases[] = { { 0.99 * few, 0, false, false }, { 1.01 * few + 1, 0, true, false },
                  { 0.99 * many, 0, true, false }, { 1.01 * many + 1, 0, true, true },
                  { 1e9, room, true, true },       { 1e9, room - 1, false, false } };
    REQUIRE(1.01 * few + 1 < 0.99 * many);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        paying q;
        plan_paying(&q, SL_UPDATE_MODE_AUTO, PAYING_DEVICE, cases[i].host, cases[i].steps);
        const sl_candidate *c = &q.plan->placement;
        CHECK_THAT(c->counts_on_change == cases[i].begins, "case %zu", i);
        if (cases[i].host < room && cases[i].host > 0) {
            CHECK(!c->other.clock.speculates);
        } else {
            check_clock(sl_plan_step_clock(q.plan), cases[i].begins ? fast : slow);
            if (cases[i].knows) check_clock(c->other.clock, cases[i].begins ? slow : fast);
            CHECK_EQ(c->other.clock.speculates && c->other.clock.seconds > 0,
                     cases[i].knows && (!cases[i].begins || slow.speculates));
        }
        free_paying(&q);
    }
    free_paying(&careful);
    free_paying(&fastest);
}

/* Its clocks are those of a run that asks for speculation. */
TEST(a_run_that_clips_nothing_takes_the_fastest_placement_however_short_it_is)
{
    paying asked, q;
    plan_paying(&asked, SL_UPDATE_MODE_SPECULATIVE, PAYING_DEVICE, 0, 0);
    plan_paying(&q, SL_UPDATE_MODE_AUTO, PAYING_DEVICE, 0, 0);
    CHECK(sl_plan_step_clock(asked.plan).seconds < 0.99 * sl_plan_step_clock(q.plan).seconds);
    sl_plan_destroy(q.plan);
    q.plan = NULL;
    q.fx.options.rarely_fails = true;
    REQUIRE_OK(sl_plan_create(q.fx.graph, &q.machine, &q.fx.options, &q.plan));
    check_clock(sl_plan_step_clock(q.plan), sl_plan_step_clock(asked.plan));
    CHECK(!q.plan->placement.counts_on_change && !q.plan->placement.other.clock.speculates);
    free_paying(&asked);
    free_paying(&q);
}

/* Each is the other's other one, to the byte. */
TEST(a_plan_of_the_other_placement_leads_back)
{
    paying q, fastest;
    sl_plan *other = NULL, *again = NULL;
    plan_paying(&fastest, SL_UPDATE_MODE_AUTO, PAYING_DEVICE, 0, 1e9);
    const sl_candidate slow = sl_plan_other_placement(fastest.plan);
    REQUIRE_OK(sl_plan_create_placed(fastest.fx.graph, &fastest.machine, &fastest.fx.options, &slow, &other));
    const sl_candidate fast = sl_plan_other_placement(other);
    REQUIRE_OK(sl_plan_create_placed(fastest.fx.graph, &fastest.machine, &fastest.fx.options, &fast, &again));
    plan_paying(&q, SL_UPDATE_MODE_AUTO, PAYING_DEVICE, 0, 0);
    for (int t = 0; t < SL_TIER_COUNT; t++) {
        CHECK_EQ(other->totals.peak[t], q.plan->totals.peak[t]);
        CHECK_EQ(again->totals.peak[t], fastest.plan->totals.peak[t]);
    }
    CHECK_EQ(other->totals.speculation_limit, q.plan->totals.speculation_limit);
    CHECK_EQ(again->totals.speculation_limit, fastest.plan->totals.speculation_limit);
    check_clock(sl_plan_step_clock(other), sl_plan_step_clock(q.plan));
    check_clock(sl_plan_step_clock(again), sl_plan_step_clock(fastest.plan));
    sl_plan_destroy(other);
    sl_plan_destroy(again);
    free_paying(&q);
    free_paying(&fastest);
}

/* With a slow link, unless the setting says how far. */
TEST(parameters_of_the_fastest_placement_are_fetched_farther_ahead_where_that_is_shorter)
{
    double seconds[3];
    for (int prefetch = -1; prefetch <= 1; prefetch += 2) {
        paying q;
        sl_plan *plan = NULL;
        plan_paying(&q, SL_UPDATE_MODE_SPECULATIVE, 500 << 10, 0, 0);
        for (int k = 0; k < SL_LINK_COUNT; k++) q.machine.link_bytes_per_second[k] /= 8;
        q.fx.options.prefetch = prefetch;
        REQUIRE_OK(sl_plan_create(q.fx.graph, &q.machine, &q.fx.options, &plan));
        CHECK(plan->totals.speculating_layers > 0);
        if (prefetch == 1)
            CHECK_EQ(plan->placement.prefetch, 1);
        else
            CHECK(plan->placement.prefetch > 1);
        CHECK_EQ(sl_plan_other_placement(plan).prefetch, 1);
        seconds[1 + prefetch] = plan->totals.step_seconds;
        sl_plan_destroy(plan);
        free_paying(&q);
    }
    CHECK(seconds[0] <= 0.99 * seconds[2]);
}

/* As when one setting after the other is tried: from either of the two placements both are found again. */
TEST(near_a_plan_both_of_its_placements_are_found_again)
{
    static const double steps[] = { 1e9, 100 }; /* begins with the fastest; changes to it */
    for (int i = 0; i < 2; i++) {
        paying q;
        sl_plan *again = NULL;
        plan_paying(&q, SL_UPDATE_MODE_AUTO, PAYING_DEVICE, 0, steps[i]);
        const sl_candidate near = q.plan->placement;
        REQUIRE(near.other.clock.seconds > 0 && near.counts_on_change == (i == 0));
        REQUIRE_OK(sl_plan_attempt(q.fx.graph, &q.machine, &q.fx.options, &near, &again, NULL));
        REQUIRE(again != NULL);
        CHECK_EQ(again->placement.counts_on_change, near.counts_on_change);
        check_clock(sl_plan_step_clock(again), sl_plan_step_clock(q.plan));
        check_clock(again->placement.other.clock, near.other.clock);
        sl_plan_destroy(again);
        free_paying(&q);
    }
}

/* Their gradients are gathered during backward; the same bytes. */
TEST(ranks_at_stage_0_speculate)
{
    for (int micro = 1; micro <= 2; micro++) {
        planned sync = { 0 }, fx = { .precision = SLUICE_F32 };
        host_options(&sync, SL_UPDATE_MODE_SYNC);
        host_options(&fx, SL_UPDATE_MODE_SPECULATIVE);
        sync.options.rank_count = fx.options.rank_count = 2;
        sync.options.accumulation = fx.options.accumulation = micro;
        REQUIRE_OK(plan_model(&sync, SEED));
        REQUIRE_OK(plan_model(&fx, SEED));
        const sl_plan *p = fx.plan;
        int gathers = 0;
        CHECK_EQ(p->totals.speculating_layers, expected_layers(p));
        CHECK(p->totals.speculating_layers > 0);
        CHECK_EQ(p->totals.comm_gather, sync.plan->totals.comm_gather);
        CHECK_EQ(p->totals.comm_reduce, sync.plan->totals.comm_reduce);
        const sl_segment *backward = &p->segments[SL_SEGMENT_BACKWARD];
        for (int i = backward->first_step; i < backward->first_step + backward->step_count; i++)
            gathers += p->steps[i].kind == SL_STEP_GATHER;
        CHECK(gathers > 0);
        planned_free(&sync);
        planned_free(&fx);
    }
}

/* Copies of new weights read what updates on speculation wrote: without their waits, the check tells. */
TEST(a_plan_whose_twins_are_read_too_early_is_found)
{
    planned fx = { 0 };
    int found = 0;
    host_options(&fx, SL_UPDATE_MODE_SPECULATIVE);
    REQUIRE_OK(plan_model(&fx, SEED));
    sl_plan *p = fx.plan;
    for (int i = 0; i < p->step_count; i++) {
        sl_step *s = &p->steps[i];
        if (s->kind != SL_STEP_COPY || (s->when & SL_WHEN_SPECULATING) == 0 || s->wait_count == 0) continue;
        const int waits = s->wait_count;
        s->wait_count = 0;
        found += sl_plan_verify(p) != SLUICE_OK;
        s->wait_count = waits;
    }
    CHECK(found > 0);
    CHECK_EQ(sl_plan_verify(p), SLUICE_OK);
    planned_free(&fx);
}

/* Where the host is slow its updates take longer than backward, and the next forward is the rest of its time. */
TEST(a_quarter_that_waits_makes_steps_of_a_slow_host_shorter)
{
    planned fx = { 0 };
    sl_plan *all = NULL, *spared = NULL;
    host_options(&fx, SL_UPDATE_MODE_SPECULATIVE);
    REQUIRE_OK(plan_model(&fx, SEED));
    sl_machine m = fx.machine;
    m.kernels_take_turns = false;
    m.copies_overlap = true;
    m.update_bytes_per_second /= 4;
    sl_candidate c = fx.plan->placement;
    for (int everywhere = 0; everywhere < 2; everywhere++) {
        c.everywhere = everywhere == 1;
        c.speculating = fx.graph->layer_count;
        REQUIRE_OK(sl_plan_create_placed(fx.graph, &m, &fx.options, &c, everywhere == 1 ? &all : &spared));
    }
    CHECK_EQ(all->totals.speculating_layers, all->totals.host_state_layers);
    CHECK_EQ(spared->totals.speculating_layers, expected_layers(spared));
    CHECK(spared->totals.step_seconds < 0.99 * all->totals.step_seconds);
    CHECK(spared->totals.peak[SL_TIER_HOST] < all->totals.peak[SL_TIER_HOST]);
    check_spread(spared);
    sl_plan_destroy(all);
    sl_plan_destroy(spared);
    planned_free(&fx);
}

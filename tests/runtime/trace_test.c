/* trace_test.c: a trace holds every step of every run, once, at times that could be: in order on each stream, and after
 * what was waited for. And it costs nothing where nobody asked for it. */
#include "runtime/trace.h"

#include "core/alloc.h"
#include "core/rng.h"
#include "support/planned.h"
#include "test.h"

#define SEED 4212 /* a transformer of five blocks with a tied embedding */

typedef struct running {
    planned fx;
    sl_comm *comm;
    sl_exec *exec;
    sl_run_context context;
} running;

static sluice_status store_weights(running *r)
{
    const sluice_graph *g = r->fx.graph;
    for (int q = 0; q < g->parameter_count; q++) {
        int64_t count = g->parameters[q].count;
        float *values = sl_alloc_array((size_t)count, sizeof *values, "values");
        if (values == NULL) return SLUICE_ERR_NO_MEMORY;
        sl_rng rng = sl_rng_stream(7, SL_RNG_INIT, (uint64_t)q, 0, 0);
        for (int64_t i = 0; i < count; i++) values[i] = 0.1f * sl_rng_normal(&rng, (uint64_t)i);
        sluice_status st = sl_exec_store(r->exec, q, -1, 0, count, values);
        memset(values, 0, (size_t)count * sizeof *values);
        for (int k = 0; st == SLUICE_OK && g->parameters[q].trainable && k < r->fx.options.state_slots; k++)
            st = sl_exec_store(r->exec, q, k, 0, count, values);
        sl_free(values);
        if (st != SLUICE_OK) return st;
    }
    return SLUICE_OK;
}

/* offloaded: everything that can move does, so that all streams of one rank have work. */
static sluice_status start(running *r, bool offloaded, int accumulation)
{
    sl_exec_options o = { .backend = &sl_cpu_backend, .device = { .threads = 1, .isa = sl_isa_best(), .guard = true } };
    memset(r, 0, sizeof *r);
    plan_options_default(&r->fx.options);
    r->fx.options.accumulation = accumulation;
    if (offloaded) {
        r->fx.options.parameters = r->fx.options.state = SLUICE_PLACE_HOST;
        r->fx.options.activations = SLUICE_ACTIVATIONS_OFFLOAD;
    }
    r->context = (sl_run_context){ .seed = 3, .training = true, .loss_scale = 1, .clip = 1 };
    r->context.seed_gradient = 1.0f / (float)accumulation;
    SL_TRY(plan_model(&r->fx, SEED));
    SL_TRY(sl_comm_self_open(&r->comm));
    o.comm = r->comm;
    SL_TRY(sl_exec_create(r->fx.plan, &o, &r->exec));
    return store_weights(r);
}

static void stop(running *r)
{
    sl_exec_destroy(r->exec);
    if (r->comm != NULL) r->comm->ops->close(r->comm);
    planned_free(&r->fx);
}

static sluice_status forward(running *r, uint64_t step, int micro)
{
    random_batch batch;
    r->context.step = step;
    r->context.micro = (uint32_t)micro;
    SL_TRY(random_batch_make(r->fx.graph, step * 100 + (uint64_t)micro, &batch));
    sluice_status st = SLUICE_OK;
    for (int i = 0; st == SLUICE_OK && i < batch.count; i++)
        st = sl_exec_set_input(r->exec, sl_graph_find_input(r->fx.graph, batch.arrays[i].name), batch.arrays[i].data,
                               batch.arrays[i].bytes);
    random_batch_free(&batch);
    return st == SLUICE_OK ? sl_exec_run(r->exec, SL_SEGMENT_FORWARD, &r->context) : st;
}

/* From micro-batch `micro` on; that one's forward may have been run already. */
static sluice_status train_from(running *r, uint64_t step, bool forward_done)
{
    for (int m = 0; m < r->fx.options.accumulation; m++) {
        if (m > 0 || !forward_done) SL_TRY(forward(r, step, m));
        SL_TRY(sl_exec_run(r->exec, SL_SEGMENT_BACKWARD, &r->context));
    }
    sl_optim_scalars(r->fx.optim, step, 1e-2, -1, &r->context);
    return sl_exec_run(r->exec, SL_SEGMENT_UPDATE, &r->context);
}

/* Two steps, of which the first and the forward that follows it are traced where asked. */
static sluice_status train_two(running *r, sl_trace **trace)
{
    if (trace != NULL) SL_TRY(sl_exec_trace_begin(r->exec));
    SL_TRY(train_from(r, 1, false));
    SL_TRY(forward(r, 2, 0));
    if (trace != NULL) SL_TRY(sl_exec_trace_end(r->exec, trace));
    return train_from(r, 2, true);
}

static sl_plan_time time_of(const sl_traced_step *s, bool expected)
{
    return expected ? s->expected : s->measured;
}

/* ---- what a trace must be ---- */

/* forward, backward, .., update, forward */
static sl_segment_kind wanted_segment(int run, int count)
{
    if (run == count - 2) return SL_SEGMENT_UPDATE;
    return run % 2 == 0 || run == count - 1 ? SL_SEGMENT_FORWARD : SL_SEGMENT_BACKWARD;
}

static void check_steps(const sl_trace *t, int accumulation)
{
    int position = 0;
    CHECK_EQ(t->run_count, 2 * accumulation + 2);
    for (int r = 0; r < t->run_count; r++) {
        const sl_segment *g = &t->plan->segments[t->runs[r].what.segment];
        bool last = r == t->run_count - 1;
        CHECK_EQ(t->runs[r].what.segment, wanted_segment(r, t->run_count));
        CHECK_EQ(t->runs[r].step, last ? 2 : 1);
        CHECK_EQ(t->runs[r].what.joined, r > 0 && !last && t->runs[r].what.segment == SL_SEGMENT_FORWARD);
        for (int i = 0; i < g->step_count && position < t->step_count; i++, position++) {
            CHECK_EQ(t->steps[position].run, r);
            CHECK_EQ(t->steps[position].step, g->first_step + i);
        }
    }
    CHECK_EQ(position, t->step_count);
}

/* `slack`: of sums of doubles. */
static void check_times(const sl_trace *t, bool expected, double slack)
{
    double free_at[SL_STREAM_COUNT] = { 0 }, first = 1, all_done = 0;
    int *newest = sl_alloc_array((size_t)t->plan->step_count, sizeof *newest, "steps");
    REQUIRE(newest != NULL);
    for (int i = 0; i < t->plan->step_count; i++) newest[i] = -1;
    for (int i = 0; i < t->step_count; i++) {
        const sl_step *s = &t->plan->steps[t->steps[i].step];
        sl_plan_time time = time_of(&t->steps[i], expected);
        bool opens = i > 0 && t->steps[i - 1].run != t->steps[i].run;
        CHECK(time.begin <= time.end);
        CHECK(time.begin >= free_at[s->stream] - slack);
        if (opens && t->runs[t->steps[i].run].what.joined) CHECK(time.begin >= all_done - slack);
        for (int k = 0; k < s->wait_count; k++) {
            int target = newest[t->plan->waits[s->first_wait + k]];
            if (target >= 0) CHECK(time.begin >= time_of(&t->steps[target], expected).end - slack);
        }
        free_at[s->stream] = time.end;
        if (time.begin < first) first = time.begin;
        if (time.end > all_done) all_done = time.end;
        newest[t->steps[i].step] = i;
    }
    CHECK_NEAR(first, 0, 1e-12);
    sl_free(newest);
}

/* The single gaps are what the totals say of them, and none lies within another. */
static void check_gaps(const sl_trace *t, bool expected, const sl_trace_totals *totals)
{
    sl_trace_gap *gaps;
    int count;
    double sums[SL_STREAM_COUNT] = { 0 }, end = 0;
    REQUIRE_OK(sl_trace_find_gaps(t, expected, &gaps, &count));
    for (int i = 0; i < count; i++) {
        CHECK(gaps[i].end > gaps[i].begin && gaps[i].begin >= end - 1e-12);
        end = gaps[i].end;
        if (gaps[i].counts) CHECK(gaps[i].begin >= totals->begin - 1e-12);
        if (gaps[i].counts) sums[gaps[i].stream] += gaps[i].end - gaps[i].begin;
    }
    for (int m = 0; m < SL_STREAM_COUNT; m++)
        CHECK_NEAR(sums[m], m == SL_STREAM_COMPUTE ? totals->idle : totals->exposed[m], 1e-9 * totals->step);
    sl_free(gaps);
}

/* Compute is at work, waits for a stream, or stands idle: nothing is lost and nothing counted twice. */
static void check_totals(const sl_trace *t, bool expected)
{
    sl_trace_totals totals;
    REQUIRE_OK(sl_trace_add_up(t, expected, &totals));
    double sum = totals.busy[SL_STREAM_COMPUTE] + totals.idle;
    for (int m = 0; m < SL_STREAM_COUNT; m++) {
        CHECK(totals.exposed[m] >= 0);
        sum += totals.exposed[m];
    }
    CHECK(totals.step > 0 && totals.busy[SL_STREAM_COMPUTE] > 0 && totals.idle >= 0);
    CHECK_NEAR(totals.step, sum, 1e-9 * sum);
    check_gaps(t, expected, &totals);
}

TEST(a_trace_has_every_step_of_every_run_once_in_an_order_that_could_be)
{
    static const int accumulations[] = { 1, 3 };
    for (int k = 0; k < 4; k++) {
        running r;
        sl_trace *t = NULL;
        REQUIRE_OK(start(&r, k % 2 == 1, accumulations[k / 2]));
        REQUIRE_OK(train_two(&r, &t));
        check_steps(t, accumulations[k / 2]);
        check_times(t, false, 0);
        check_times(t, true, 1e-12);
        check_totals(t, false);
        check_totals(t, true);
        sl_trace_free(t);
        stop(&r);
    }
}

TEST(times_add_up_on_machines_where_others_take_turns_with_compute)
{
    for (int k = 0; k < 4; k++) {
        running r;
        sl_trace *t = NULL;
        REQUIRE_OK(start(&r, true, 2));
        r.fx.plan->machine.kernels_take_turns = k % 2 == 1;
        r.fx.plan->machine.copies_overlap = k / 2 == 1;
        REQUIRE_OK(train_two(&r, &t));
        check_times(t, true, 1e-12);
        check_totals(t, false);
        check_totals(t, true);
        sl_trace_free(t);
        stop(&r);
    }
}

TEST(what_is_expected_of_a_traced_step_is_what_the_plan_says_of_it)
{
    running r;
    sl_trace *t = NULL;
    sl_trace_totals totals;
    REQUIRE_OK(start(&r, false, 1));
    REQUIRE_OK(train_two(&r, &t));
    REQUIRE_OK(sl_trace_add_up(t, true, &totals));
    CHECK_NEAR(totals.step, r.fx.plan->totals.step_seconds, 1e-9 * totals.step);
    CHECK_NEAR(totals.idle, 0, 1e-9 * totals.step);
    sl_trace_free(t);
    stop(&r);
}

TEST(what_a_plan_expects_is_told_without_running_it_and_is_what_a_trace_of_it_expects)
{
    running r;
    sl_trace *run = NULL, *told = NULL;
    REQUIRE_OK(start(&r, true, 3));
    REQUIRE_OK(train_two(&r, &run));
    REQUIRE_OK(sl_trace_expect(r.fx.plan, 3, &told));
    REQUIRE(told->step_count == run->step_count && told->run_count == run->run_count);
    CHECK_EQ(told->step_count, sl_trace_length(r.fx.plan, 3));
    for (int i = 0; i < run->step_count; i++) {
        CHECK_EQ(told->steps[i].step, run->steps[i].step);
        CHECK_NEAR(told->steps[i].expected.begin, run->steps[i].expected.begin, 0);
        CHECK_NEAR(told->steps[i].expected.end, run->steps[i].expected.end, 0);
    }
    check_totals(told, true);
    sl_trace_free(told);
    sl_trace_free(run);
    stop(&r);
}

/* Made by hand: a forward of one kernel, a backward of a copy and a kernel that waits for it, the next forward. */
TEST(time_in_which_compute_stands_still_is_charged_to_what_it_waited_for)
{
    sl_step steps[3] = { { .kind = SL_STEP_COMPUTE, .stream = SL_STREAM_COMPUTE },
                         { .kind = SL_STEP_COPY, .stream = SL_STREAM_TO_DEVICE },
                         { .kind = SL_STEP_COMPUTE, .stream = SL_STREAM_COMPUTE, .wait_count = 1 } };
    int waits[1] = { 1 };
    sl_plan plan = { .steps = steps, .step_count = 3, .waits = waits, .machine = { .copies_overlap = true } };
    sl_traced_run runs[3] = { { { SL_SEGMENT_FORWARD, false, 0 }, 3, 0 },
                              { { SL_SEGMENT_BACKWARD, false, 0 }, 3, 0 },
                              { { SL_SEGMENT_FORWARD, false, 0 }, 4, 0 } };
    sl_traced_step traced[4] = { { 0, 0, { 0, 2 }, { 0, 1 } },
                                 { 1, 1, { 1, 5 }, { 0, 2 } },
                                 { 1, 2, { 6, 8 }, { 2, 3 } },
                                 { 2, 0, { 9, 12 }, { 3, 4 } } };
    sl_trace t = { &plan, runs, 3, traced, 4 };
    sl_trace_totals measured, expected;
    REQUIRE_OK(sl_trace_add_up(&t, false, &measured));
    REQUIRE_OK(sl_trace_add_up(&t, true, &expected));
    CHECK_NEAR(measured.step, 10, 0);
    CHECK_NEAR(measured.busy[SL_STREAM_COMPUTE], 5, 0);
    CHECK_NEAR(measured.busy[SL_STREAM_TO_DEVICE], 4, 0);
    CHECK_NEAR(measured.exposed[SL_STREAM_TO_DEVICE], 3, 0);
    CHECK_NEAR(measured.idle, 2, 0);
    CHECK_NEAR(expected.step, 3, 0);
    CHECK_NEAR(expected.exposed[SL_STREAM_TO_DEVICE], 1, 0);
    CHECK_NEAR(expected.idle, 0, 0);
}

/* ---- what it must not do ---- */

/* Every parameter, one after the other; owned by the caller. */
static float *fetch_weights(running *r)
{
    const sluice_graph *g = r->fx.graph;
    float *all = sl_alloc_array((size_t)sl_graph_parameter_elements(g), sizeof *all, "weights"), *at = all;
    for (int q = 0; all != NULL && q < g->parameter_count; q++, at += g->parameters[q - 1].count)
        if (sl_exec_fetch(r->exec, q, -1, 0, g->parameters[q].count, at) != SLUICE_OK) test_failures++;
    return all;
}

TEST(tracing_changes_no_bit)
{
    running plain, traced;
    sl_trace *t = NULL;
    REQUIRE_OK(start(&plain, true, 2));
    REQUIRE_OK(start(&traced, true, 2));
    REQUIRE_OK(train_two(&plain, NULL));
    REQUIRE_OK(train_two(&traced, &t));
    float *a = fetch_weights(&plain), *b = fetch_weights(&traced);
    REQUIRE(a != NULL && b != NULL);
    CHECK(memcmp(a, b, (size_t)sl_graph_parameter_elements(plain.fx.graph) * sizeof *a) == 0);
    sl_free(a);
    sl_free(b);
    sl_trace_free(t);
    stop(&plain);
    stop(&traced);
}

static uint64_t allocations(running *r, uint64_t step)
{
    sl_alloc_stats before, after;
    r->context.step = step;
    sl_alloc_get_stats(&before);
    if (train_from(r, step, true) != SLUICE_OK) test_failures++;
    sl_alloc_get_stats(&after);
    return after.total_count - before.total_count;
}

TEST(only_the_ends_of_a_trace_take_memory_and_all_of_it_comes_back)
{
    running r;
    sl_trace *t = NULL;
    sl_alloc_stats before, after;
    REQUIRE_OK(start(&r, true, 1));
    REQUIRE_OK(forward(&r, 1, 0));
    CHECK_EQ(allocations(&r, 1), 0);
    REQUIRE_OK(forward(&r, 2, 0));
    sl_alloc_get_stats(&before);
    REQUIRE_OK(sl_exec_trace_begin(r.exec));
    CHECK_EQ(allocations(&r, 2), 0);
    REQUIRE_OK(sl_exec_trace_end(r.exec, &t));
    CHECK(t->step_count > 0);
    sl_trace_free(t);
    sl_alloc_get_stats(&after);
    CHECK_EQ(after.live_count, before.live_count);
    REQUIRE_OK(forward(&r, 3, 0));
    CHECK_EQ(allocations(&r, 3), 0);
    stop(&r);
}

TEST(what_follows_the_traced_part_is_left_out)
{
    running r;
    sl_trace *t = NULL;
    REQUIRE_OK(start(&r, true, 1));
    REQUIRE_OK(sl_exec_trace_begin(r.exec));
    CHECK(sl_exec_is_tracing(r.exec));
    CHECK_EQ(sl_exec_trace_begin(r.exec), SLUICE_ERR_USAGE);
    REQUIRE_OK(train_from(&r, 1, false));
    REQUIRE_OK(train_from(&r, 2, false));
    REQUIRE_OK(sl_exec_trace_end(r.exec, &t));
    CHECK(!sl_exec_is_tracing(r.exec));
    CHECK_EQ(sl_exec_trace_end(r.exec, &t), SLUICE_ERR_USAGE);
    check_steps(t, 1);
    sl_trace_free(t);
    REQUIRE_OK(sl_exec_trace_begin(r.exec)); /* the executor drops what nobody ended */
    stop(&r);
}

TEST(a_trace_that_gets_no_memory_leaves_nothing_behind)
{
    running r;
    sl_alloc_stats before, after;
    sluice_status st = SLUICE_ERR_NO_MEMORY;
    int failures = 0;
    REQUIRE_OK(start(&r, false, 1));
    REQUIRE_OK(train_from(&r, 1, false));
    for (int n = 1; st != SLUICE_OK && n < 100; n++) {
        sl_trace *t = NULL;
        sl_alloc_get_stats(&before);
        sl_alloc_fail_nth(n, 0);
        st = sl_exec_trace_begin(r.exec);
        if (st == SLUICE_OK) st = sl_exec_trace_end(r.exec, &t);
        sl_alloc_fail_nth(0, 0);
        sl_trace_free(t);
        sl_alloc_get_stats(&after);
        CHECK(st == SLUICE_OK || st == SLUICE_ERR_NO_MEMORY);
        CHECK_EQ(after.live_count, before.live_count);
        failures += st != SLUICE_OK;
    }
    CHECK_EQ(st, SLUICE_OK);
    CHECK(failures >= 7);
    stop(&r);
}

/* exec_ranks_test.c: several ranks compute, to the bit, what one rank computes, on every stage, rule and placement; and what
 * they keep, move and send is what their plans said. Models, shapes and settings are drawn from seeds. */
#include "core/alloc.h"
#include "core/rng.h"
#include "runtime/exec.h"
#include "support/planned.h"
#include "test.h"

enum { GLOBAL_MICRO = 4, STEPS = 3 };

/* How a model is trained, whatever the plan. */
typedef struct training {
    int micro;      /* micro-batches of a step, all ranks together */
    bool unclipped; /* nothing is scaled, clipped or skipped, so that updates may be early */
    bool disk;      /* some of it lives in swap files */
    double clip;    /* 0: 1 */
    bool speculates;
    uint64_t prompt; /* updates are delayed after so many steps; 0: they are not */
} training;

typedef struct running {
    planned fx;
    training how;
    sl_comm *comm;
    sl_exec *exec;
    sl_run_context context;
    uint64_t moved[SL_LINK_COUNT]; /* before the steps that count */
    int redone;                    /* of these */
} running;

/* The first values of a parameter, by element. */
static void first_values(int parameter, int64_t count, float *out)
{
    sl_rng rng = sl_rng_stream(7, SL_RNG_INIT, (uint64_t)parameter, 0, 0);
    for (int64_t i = 0; i < count; i++) out[i] = 0.1f * sl_rng_normal(&rng, (uint64_t)i);
}

static sluice_status store_all(running *r)
{
    const sluice_graph *g = r->fx.graph;
    for (int q = 0; q < g->parameter_count; q++) {
        int64_t count = g->parameters[q].count;
        float *values = sl_alloc_array((size_t)count, sizeof *values, "values");
        if (values == NULL) return SLUICE_ERR_NO_MEMORY;
        first_values(q, count, values);
        sluice_status st = sl_exec_store(r->exec, q, -1, 0, count, values);
        memset(values, 0, (size_t)count * sizeof *values);
        for (int k = 0; st == SLUICE_OK && g->parameters[q].trainable && k < r->fx.options.state_slots; k++)
            st = sl_exec_store(r->exec, q, k, 0, count, values);
        sl_free(values);
        if (st != SLUICE_OK) return st;
    }
    return SLUICE_OK;
}

/* Precision, wire type and form of the moments belong to the mathematics: drawn for all ways to run a model alike. */
static void draw_precision(uint64_t seed, const training *how, planned *fx)
{
    static const sluice_dtype types[] = { SLUICE_F32, SLUICE_BF16, SLUICE_F16 };
    static const sl_form forms[] = { SL_FORM_F32, SL_FORM_BF16, SL_FORM_BLOCKS8 };
    random_state r = { seed ^ 0x5851f42d4c957f2du };
    fx->precision = types[random_between(&r, 0, 2)];
    if (how->unclipped && fx->precision == SLUICE_F16) fx->precision = SLUICE_BF16;
    fx->wire = random_between(&r, 0, 2) == 0 ? types[random_between(&r, 0, 2)] : fx->precision;
    fx->options.state_form = random_between(&r, 0, 1) == 0 ? SL_FORM_F32 : forms[random_between(&r, 1, 2)];
}

/* The same placement, but gradients wait on the disk wherever they can: no search would choose that for these models. */
static sluice_status keep_gradients_on_disk(planned *fx)
{
    sl_candidate c = fx->plan->placement;
    sl_plan *plan = NULL;
    const sl_plan_options *o = &fx->options;
    if (o->rank_count > 1 && o->stage == 0 && o->accumulation > 1) return SLUICE_OK; /* all ranks need the whole sums */
    c.layers[SL_SAVING_DISK_GRADIENTS] = fx->graph->layer_count;
    SL_TRY(sl_plan_create_placed(fx->graph, &fx->machine, &fx->options, &c, &plan));
    sl_plan_destroy(fx->plan);
    fx->plan = plan;
    return SLUICE_OK;
}

static sluice_status start(running *r, uint64_t seed, sl_comm *comm)
{
    sl_exec_options o = { .backend = &sl_cpu_backend, .device = { .threads = 1, .isa = sl_isa_best(), .guard = true } };
    r->comm = comm;
    draw_precision(seed, &r->how, &r->fx);
    SL_TRY(plan_model(&r->fx, seed));
    if (r->fx.options.budget[SL_TIER_DISK] > 0 && !r->how.unclipped && seed % 2 == 0)
        SL_TRY(keep_gradients_on_disk(&r->fx));
    comm->ops->arena_files(comm, o.device.arena_files);
    o.comm = comm;
    static const char *const folders[] = { "/tmp" };
    if (r->fx.options.budget[SL_TIER_DISK] > 0) o.swap = (sl_swap_options){ .folders = folders, .folder_count = 1 };
    SL_TRY(sl_exec_create(r->fx.plan, &o, &r->exec));
    r->context =
        (sl_run_context){ .seed = 3, .training = true, .loss_scale = 64, .clip = r->how.clip > 0 ? r->how.clip : 1 };
    if (r->how.unclipped) r->context.loss_scale = 1;
    return store_all(r);
}

static void stop(running *r)
{
    sl_exec_destroy(r->exec);
    planned_free(&r->fx);
}

static sluice_status set_batch(running *r, uint64_t seed)
{
    random_batch batch;
    SL_TRY(random_batch_make(r->fx.graph, seed, &batch));
    sluice_status st = SLUICE_OK;
    for (int i = 0; st == SLUICE_OK && i < batch.count; i++)
        st = sl_exec_set_input(r->exec, sl_graph_find_input(r->fx.graph, batch.arrays[i].name), batch.arrays[i].data,
                               batch.arrays[i].bytes);
    random_batch_free(&batch);
    return st;
}

/* Of the step's updates, which may be part of backward. */
static void set_scalars(running *r, uint64_t step)
{
    sl_optim_scalars(r->fx.optim, step, 1e-2, -1, &r->context);
    if (r->how.unclipped) r->context.clip = 0;
}

/* Two of three steps speculate where the plan does. */
static bool speculates(const running *r)
{
    return r->fx.plan->totals.speculating_layers > 0 && r->context.step % 3 != 0;
}

static sluice_status update(running *r)
{
    sl_norm_result norm;
    const bool promptly = r->context.step <= r->how.prompt;
    SL_TRY(promptly ? sl_exec_update_promptly(r->exec, &r->context)
                    : sl_exec_run(r->exec, SL_SEGMENT_UPDATE, &r->context));
    SL_TRY(sl_exec_read_result(r->exec, r->fx.plan->norm_buffer, &norm, sizeof norm));
    if (!speculates(r)) return SLUICE_OK;
    if (!norm.finite || norm.factor != (float)(1.0 / r->context.loss_scale)) {
        SL_TRY(sl_exec_run(r->exec, SL_SEGMENT_REDO, &r->context));
        r->redone++;
    }
    sl_exec_commit(r->exec);
    return SLUICE_OK;
}

/* In the first step sums on the disk have nothing to be read: with a disk, the others are counted. */
static sluice_status note_moved(running *r)
{
    sl_device_stats stats;
    SL_TRY(sl_exec_settle(r->exec));
    sl_exec_stats(r->exec, &stats, NULL);
    memcpy(r->moved, stats.moved, sizeof r->moved);
    r->redone = 0;
    return SLUICE_OK;
}

static sluice_status train(running *r)
{
    int ranks = r->fx.options.rank_count, rank = r->fx.options.rank;
    for (uint64_t step = 1; step <= STEPS; step++) {
        bool overflows = step == 2 && r->fx.precision == SLUICE_F16; /* the step is skipped */
        r->context.step = step;
        r->context.seed_gradient = overflows ? 1e30f : (float)r->context.loss_scale / (float)r->how.micro;
        set_scalars(r, step);
        for (int m = 0; m < r->fx.options.accumulation; m++) {
            int j = m * ranks + rank;
            bool last = m == r->fx.options.accumulation - 1;
            r->context.micro = (uint32_t)j;
            sl_exec_hold(r->exec, (last ? (unsigned)SL_WHEN_LAST_MICRO : 0) |
                                      (unsigned)(speculates(r) ? SL_WHEN_SPECULATING : SL_WHEN_NOT_SPECULATING));
            SL_TRY(set_batch(r, step * 100 + (uint64_t)j));
            SL_TRY(sl_exec_run(r->exec, SL_SEGMENT_FORWARD, &r->context));
            SL_TRY(sl_exec_run(r->exec, SL_SEGMENT_BACKWARD, &r->context));
        }
        SL_TRY(update(r));
        if (step == 1 && r->how.disk) SL_TRY(note_moved(r));
    }
    return SLUICE_OK;
}

/* ---- the reference: one rank, everything on the device ---- */

typedef struct reference {
    float *values; /* parameters, then slot by slot, in order of parameters */
    int64_t elements;
} reference;

static int64_t place_in(const sluice_graph *g, int parameter, int slot)
{
    int64_t at = 0, all = sl_graph_parameter_elements(g);
    for (int q = 0; q < parameter; q++) at += g->parameters[q].count;
    return at + (slot + 1) * all;
}

static sluice_status fetch_all(running *r, float *out)
{
    const sluice_graph *g = r->fx.graph;
    for (int q = 0; q < g->parameter_count; q++)
        for (int k = -1; k < (g->parameters[q].trainable ? r->fx.options.state_slots : 0); k++)
            SL_TRY(sl_exec_fetch(r->exec, q, k, 0, g->parameters[q].count, out + place_in(g, q, k)));
    return SLUICE_OK;
}

static sluice_status make_reference(uint64_t seed, training how, reference *ref)
{
    running r = { .how = how };
    sl_comm *self = NULL;
    plan_options_default(&r.fx.options);
    r.fx.options.accumulation = how.micro;
    r.fx.options.delayed = how.prompt > 0;
    SL_TRY(sl_comm_self_open(&self));
    sluice_status st = start(&r, seed, self);
    if (st == SLUICE_OK) st = train(&r);
    ref->elements = st == SLUICE_OK ? sl_graph_parameter_elements(r.fx.graph) * (1 + r.fx.options.state_slots) : 0;
    ref->values = sl_alloc_array((size_t)ref->elements + 1, sizeof *ref->values, "reference");
    if (st == SLUICE_OK) st = fetch_all(&r, ref->values);
    stop(&r);
    self->ops->close(self);
    return st;
}

/* ---- one rank of several ---- */

typedef struct job {
    uint64_t seed;
    training how;
    sl_plan_options options;
    const reference *ref;
} job;

/* Owned elements were fetched over NaNs: what is not NaN must be the reference, and together nothing may be missing,
 * which the count over all ranks tells. */
static sluice_status compare(running *r, const reference *ref)
{
    float *mine = sl_alloc_array((size_t)ref->elements + 1, sizeof *mine, "fetched");
    int64_t owned = 0, all[8] = { 0 }, sum = 0;
    if (mine == NULL) return SLUICE_ERR_NO_MEMORY;
    for (int64_t i = 0; i < ref->elements; i++) mine[i] = NAN;
    sluice_status st = fetch_all(r, mine);
    for (int64_t i = 0; st == SLUICE_OK && i < ref->elements; i++) {
        if (isnan(mine[i])) continue;
        owned++;
        if (memcmp(&mine[i], &ref->values[i], sizeof mine[i]) != 0)
            st = sl_fail(SLUICE_ERR_FAILED, "element %lld is %.9g, alone it was %.9g", (long long)i, (double)mine[i],
                         (double)ref->values[i]);
    }
    sl_free(mine);
    SL_TRY(st);
    SL_TRY(r->comm->ops->exchange(r->comm, "owned elements", &owned, sizeof owned, all));
    for (int k = 0; k < r->fx.options.rank_count; k++) sum += all[k];
    if (sum == ref->elements) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_FAILED, "%lld of %lld elements have an owner", (long long)sum, (long long)ref->elements);
}

/* What REDO moves over a link, or gathers. */
static uint64_t redo_bytes(const running *r, sl_step_kind kind, sl_link link)
{
    const sl_plan *p = r->fx.plan;
    const sl_segment *g = &p->segments[SL_SEGMENT_REDO];
    uint64_t bytes = 0;
    for (int i = g->first_step; i < g->first_step + g->step_count; i++) {
        const sl_step *s = &p->steps[i];
        const sl_piece *q = &p->pieces[s->first_piece];
        if (s->kind != kind) continue;
        if (kind == SL_STEP_COPY && sl_link_of(p->buffers[q[0].buffer].tier, p->buffers[q[1].buffer].tier) == link)
            bytes += q[0].bytes;
        for (int k = 0; kind == SL_STEP_GATHER && k < s->output_count; k++) {
            const sl_part_cut part = sl_plan_part_cut(p, s, k);
            bytes += (uint64_t)sl_shard_elements(part.shards, p->options.rank) * part.unit *
                     (uint64_t)(p->options.rank_count - 1);
        }
    }
    return bytes * (uint64_t)r->redone;
}

/* Counted in the device and the comm, beside what the plan said for a step. */
static sluice_status check_counters(running *r)
{
    sl_device_stats d;
    sl_comm_stats c;
    const sl_plan_totals *t = &r->fx.plan->totals;
    sl_exec_stats(r->exec, &d, &c);
    for (int k = 0; k < SL_LINK_COUNT; k++) d.moved[k] -= r->moved[k];
    const uint64_t steps = r->how.disk ? STEPS - 1 : STEPS;
    const struct {
        const char *what;
        uint64_t predicted, counted;
    } rows[] = {
        { "device peak", t->peak[SL_TIER_DEVICE], d.observed_peak[SL_TIER_DEVICE] },
        { "host peak", t->peak[SL_TIER_HOST], d.observed_peak[SL_TIER_HOST] },
        { "to device", steps * t->moved[SL_LINK_TO_DEVICE] + redo_bytes(r, SL_STEP_COPY, SL_LINK_TO_DEVICE),
          d.moved[SL_LINK_TO_DEVICE] },
        { "to host", steps * t->moved[SL_LINK_TO_HOST] + redo_bytes(r, SL_STEP_COPY, SL_LINK_TO_HOST),
          d.moved[SL_LINK_TO_HOST] },
        { "disk peak", t->peak[SL_TIER_DISK], d.observed_peak[SL_TIER_DISK] },
        { "disk read", steps * t->moved[SL_LINK_DISK_READ], d.moved[SL_LINK_DISK_READ] },
        { "disk write", steps * t->moved[SL_LINK_DISK_WRITE], d.moved[SL_LINK_DISK_WRITE] },
        { "gathered", STEPS * t->comm_gather + redo_bytes(r, SL_STEP_GATHER, SL_LINK_COUNT), c.gather_bytes },
        { "reduced", STEPS * t->comm_reduce, c.reduce_bytes },
        { "norm", STEPS * t->comm_norm, c.norm_bytes },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].predicted != rows[i].counted)
            return sl_fail(SLUICE_ERR_FAILED, "%s: predicted %llu, counted %llu", rows[i].what,
                           (unsigned long long)rows[i].predicted, (unsigned long long)rows[i].counted);
    return SLUICE_OK;
}

static sluice_status rank_main(void *user, sluice_world *world)
{
    const job *j = user;
    running r = { .how = j->how };
    r.fx.options = j->options;
    r.fx.options.rank = sluice_world_rank(world);
    sluice_status st = start(&r, j->seed, world);
    bool may = j->how.speculates && !j->how.disk && (j->options.rank_count == 1 || j->options.stage > 0);
    if (st == SLUICE_OK && may && r.fx.plan->totals.speculating_layers == 0)
        st = sl_fail(SLUICE_ERR_FAILED, "no layer speculates");
    if (st == SLUICE_OK) st = train(&r);
    if (st == SLUICE_OK) st = sl_exec_settle(r.exec);
    if (st == SLUICE_OK) st = check_counters(&r);
    if (st == SLUICE_OK) st = compare(&r, j->ref);
    if (st != SLUICE_OK) world->ops->abort(world, sluice_error());
    stop(&r);
    return st;
}

static void draw_options(random_state *r, sl_plan_options *o)
{
    static const int ranks[] = { 1, 2, 3, 4 };
    plan_options_default(o);
    o->rank_count = ranks[random_between(r, 0, 3)];
    if (o->rank_count == 3) o->rank_count = 2; /* 3 does not divide the micro-batches */
    o->stage = (int)random_between(r, 0, 3);
    o->partition = (sluice_partition)random_between(r, 0, 3);
    o->partition_block = 1024;
    o->small_norm_nodes = random_between(r, 0, 2) > 0;
    o->accumulation = GLOBAL_MICRO / o->rank_count;
    o->evaluation = false;
    o->state = (sluice_place)random_between(r, 1, 2);
    o->state_ratio = random_between(r, 0, 1) ? 1.0 : 0.5;
    o->parameters = (sluice_place)random_between(r, 1, 2);
    o->activations = (sluice_activations)random_between(r, SLUICE_ACTIVATIONS_KEEP, SLUICE_ACTIVATIONS_SELECTIVE);
    o->prefetch = (int)random_between(r, 0, 2);
    o->levels = (int)random_between(r, 0, 3);
    o->bucket_bytes = random_between(r, 0, 1) ? 1 : 0;
    o->keep_gathered = random_between(r, 0, 1) == 1;
    o->comm_on_host = random_between(r, 0, 1) == 1;
    /* sums on the host, where there is something to sum and the state is there */
    if (random_between(r, 0, 2) == 0) o->budget[SL_TIER_DEVICE] = 0;
}

/* What lives on the disk, by settings or because the host is small; updates in chunks of any length. */
static void draw_disk(random_state *r, sl_plan_options *o)
{
    static const sluice_place offloads[] = { SLUICE_PLACE_AUTO, SLUICE_PLACE_HOST, SLUICE_PLACE_DISK };
    static const int64_t chunks[] = { 0, 1024, 4096 };
    o->budget[SL_TIER_DISK] = (uint64_t)1 << 30;
    o->state = (sluice_place)random_between(r, 0, 3);
    o->parameters = (sluice_place)random_between(r, 0, 3);
    o->offload_to = offloads[random_between(r, 0, 2)];
    o->disk_chunk = chunks[random_between(r, 0, 2)];
    if (random_between(r, 0, 1) == 0) o->budget[SL_TIER_HOST] = 0; /* tightened, with room for what seeds add */
}

/* The smallest device that the settings fit on: bisected, because then every measure the search may take is taken. */
static void tighten(uint64_t seed, const training *how, sl_tier tier, sl_plan_options *o)
{
    uint64_t low = 1, high = (uint64_t)1 << 30;
    while (high - low > 512) {
        planned fx = { .options = *o };
        draw_precision(seed, how, &fx);
        fx.options.budget[tier] = (low + high) / 2;
        if (plan_model(&fx, seed) == SLUICE_OK)
            high = (low + high) / 2;
        else
            low = (low + high) / 2;
        planned_free(&fx);
    }
    o->budget[tier] = high;
}

static void compare_one(uint64_t seed, training how)
{
    sluice_launch_options launch;
    random_state r = { seed ^ 0x9e3779b97f4a7c15u };
    reference ref = { 0 };
    job j = { .seed = seed, .how = how, .ref = &ref };
    sluice_launch_options_init(&launch);
    launch.timeout_seconds = 20;
    draw_options(&r, &j.options);
    if (how.disk) draw_disk(&r, &j.options);
    j.options.early_updates = how.unclipped;
    j.options.delayed = how.prompt > 0;
    if (how.micro < j.options.rank_count) j.options.rank_count = how.micro;
    j.options.accumulation = how.micro / j.options.rank_count;
    if (how.speculates) {
        j.options.update = SL_UPDATE_MODE_SPECULATIVE;
        if (!how.disk) j.options.state = SLUICE_PLACE_HOST;
        how.speculates = false; /* the reference waits for the norm */
    }
    REQUIRE_OK(make_reference(seed, how, &ref));
    if (j.options.budget[SL_TIER_HOST] == 0 && j.options.budget[SL_TIER_DEVICE] == 0)
        j.options.budget[SL_TIER_HOST] = (uint64_t)1 << 30;
    if (j.options.budget[SL_TIER_DEVICE] == 0) tighten(seed, &how, SL_TIER_DEVICE, &j.options);
    if (j.options.budget[SL_TIER_HOST] == 0) tighten(seed, &how, SL_TIER_HOST, &j.options);
    launch.ranks = j.options.rank_count;
    sluice_status st = sluice_launch(&launch, rank_main, &j);
    if (st != SLUICE_OK)
        test_fail(__FILE__, __LINE__,
                  "seed %llu, %d ranks, stage %d, partition %d, state %d (%g), parameters %d, activations %d: %s",
                  (unsigned long long)seed, j.options.rank_count, j.options.stage, (int)j.options.partition,
                  (int)j.options.state, j.options.state_ratio, (int)j.options.parameters, (int)j.options.activations,
                  sluice_error());
    sl_free(ref.values);
}

static void compare_many(training how, uint64_t seeds)
{
    const char *only = getenv("SEED"); /* to look at one that failed */
    uint64_t first = only != NULL ? strtoull(only, NULL, 10) : 4200;
    if (only != NULL) seeds = 1;
    for (uint64_t seed = first; seed < first + seeds; seed++) compare_one(seed, how);
}

TEST(ranks_agree_with_one_rank_to_the_bit_whatever_the_plan)
{
    compare_many((training){ .micro = GLOBAL_MICRO }, getenv("LONG") != NULL ? 1000 : 36);
}

/* The reference updates after the norm. */
TEST(updates_that_wait_for_no_norm_give_the_same_bits_whatever_the_plan)
{
    compare_many((training){ .micro = 1, .unclipped = true }, getenv("LONG") != NULL ? 1000 : 24);
    compare_many((training){ .micro = GLOBAL_MICRO, .unclipped = true }, getenv("LONG") != NULL ? 300 : 12);
}

TEST(what_lives_on_the_disk_gives_the_same_bits_and_moves_what_the_plan_said)
{
    compare_many((training){ .micro = GLOBAL_MICRO, .disk = true }, getenv("LONG") != NULL ? 1000 : 24);
    compare_many((training){ .micro = 1, .disk = true }, getenv("LONG") != NULL ? 300 : 12);
    compare_many((training){ .micro = 1, .unclipped = true, .disk = true }, getenv("LONG") != NULL ? 300 : 12);
    compare_many((training){ .micro = 1, .disk = true, .speculates = true }, getenv("LONG") != NULL ? 300 : 12);
}

/* No step is clipped, some are, all are; in f16 one overflows. */
TEST(updates_on_speculation_give_the_same_bits_whatever_the_plan)
{
    static const double clips[] = { 1e6, 1, 1e-3 };
    for (int k = 0; k < 3; k++) {
        compare_many((training){ .micro = 1, .clip = clips[k], .speculates = true }, getenv("LONG") != NULL ? 300 : 8);
        compare_many((training){ .micro = 2, .clip = clips[k], .speculates = true }, getenv("LONG") != NULL ? 300 : 8);
        compare_many((training){ .micro = GLOBAL_MICRO, .clip = clips[k], .speculates = true },
                     getenv("LONG") != NULL ? 300 : 12);
    }
}

/* Steps whose update the next one sees, and steps whose update it does not see yet. */
TEST(delayed_updates_give_the_same_bits_whatever_the_plan)
{
    for (uint64_t prompt = 1; prompt < STEPS; prompt++) {
        compare_many((training){ .micro = 1, .prompt = prompt }, getenv("LONG") != NULL ? 300 : 6);
        compare_many((training){ .micro = GLOBAL_MICRO, .prompt = prompt }, getenv("LONG") != NULL ? 1000 : 24);
    }
}

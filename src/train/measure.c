/* measure.c: the bench on which kernels, copies and collectives are timed, and the order in which that happens.
 *
 * With several ranks every rank is a process with its share of the cores, and all time the same thing at the same
 * moment, so that what they share, memory above all, is in the durations. */
#include "train/measure.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core/alloc.h"
#include "core/half.h"
#include "core/thread.h"
#include "train/machine_place.h"

#define ROUNDS        9
#define ROUND_SECONDS 400e-6 /* calls that take less are timed in groups */
#define LONG_SECONDS  20e-3  /* calls that take more are timed less often */
#define LONG_ROUNDS   4

/* ---- timing ---- */

/* The mean over the ranks, and the most. */
static sluice_status over_ranks(sl_bench *b, double mine, double *mean, double *most)
{
    double all[64] = { mine };
    if (b->ranks > 1) SL_TRY(b->comm->ops->exchange(b->comm, "durations", &mine, sizeof mine, all));
    double sum = 0;
    *most = 0;
    for (int r = 0; r < b->ranks; r++) {
        sum += all[r];
        if (all[r] > *most) *most = all[r];
    }
    *mean = sum / b->ranks;
    return SLUICE_OK;
}

/* Without anything to prepare, calls may be too short to be timed one by one. */
static sluice_status time_calls(sl_bench *b, sl_bench_fn prepare, sl_bench_fn fn, void *what, int calls,
                                double *seconds)
{
    double sum = 0;
    if (b->ranks > 1) SL_TRY(b->comm->ops->barrier(b->comm, "a round of calls"));
    double start = sl_now();
    for (int i = 0; i < calls; i++) {
        if (prepare != NULL) {
            SL_TRY(prepare(b, what));
            start = sl_now();
        }
        SL_TRY(fn(b, what));
        if (prepare != NULL) sum += sl_now() - start;
    }
    if (prepare == NULL) SL_TRY(b->backend->synchronize(b->device));
    *seconds = (prepare != NULL ? sum : sl_now() - start) / calls;
    return SLUICE_OK;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median: a step of training is as long as it usually is, not as long as it could be. */
static double median(double *rounds, int count)
{
    qsort(rounds, (size_t)count, sizeof rounds[0], compare);
    return (rounds[(count - 1) / 2] + rounds[count / 2]) / 2;
}

sluice_status sl_bench_time(sl_bench *b, sl_bench_fn prepare, sl_bench_fn fn, void *what, double *seconds)
{
    double rounds[ROUNDS], first, mean, most;
    SL_TRY(time_calls(b, prepare, fn, what, 1, &first));
    SL_TRY(over_ranks(b, first, &mean, &most));
    int calls = most > 0 && most < ROUND_SECONDS ? (int)(ROUND_SECONDS / most) + 1 : 1;
    int count = most > LONG_SECONDS ? LONG_ROUNDS : ROUNDS;
    if (calls > 256) calls = 256;
    for (int i = 0; i < count; i++) SL_TRY(time_calls(b, prepare, fn, what, calls, &rounds[i]));
    return over_ranks(b, median(rounds, count), seconds, &most);
}

/* ---- operands ---- */

static sl_span next_span(uint64_t *at, uint64_t base, sl_tier tier, uint64_t bytes)
{
    if (*at + bytes > SL_BENCH_REGION) *at = 0;
    sl_span s = { tier, base + *at, bytes };
    *at += (bytes + 255) / 256 * 256;
    return s;
}

sl_span sl_bench_read_span(sl_bench *b, sl_tier tier, uint64_t bytes)
{
    return next_span(&b->read_at[tier], SL_BENCH_IDS_BYTES, tier, bytes);
}

sl_span sl_bench_written_span(sl_bench *b, sl_tier tier, uint64_t bytes)
{
    return next_span(&b->written_at[tier], SL_BENCH_IDS_BYTES + SL_BENCH_REGION, tier, bytes);
}

/* ---- samples ---- */

sluice_status sl_samples_add(sl_samples *s, double work, double seconds)
{
    if (s->count == s->capacity) {
        int capacity = s->capacity > 0 ? 2 * s->capacity : 16;
        sl_rate_point *points = sl_alloc_array((size_t)capacity, sizeof *points, "samples");
        if (points == NULL) return SLUICE_ERR_NO_MEMORY;
        if (s->count > 0) memcpy(points, s->points, (size_t)s->count * sizeof *points);
        sl_free(s->points);
        s->points = points;
        s->capacity = capacity;
    }
    s->points[s->count++] = (sl_rate_point){ work, seconds };
    return SLUICE_OK;
}

void sl_samples_free(sl_samples *s)
{
    sl_free(s->points);
    *s = (sl_samples){ .points = NULL };
}

static int compare_work(const void *a, const void *b)
{
    return compare(&((const sl_rate_point *)a)->work, &((const sl_rate_point *)b)->work);
}

/* One point for samples [first, end): their geometric means. */
static sl_rate_point mean_point(const sl_samples *s, int first, int end)
{
    double work = 0, seconds = 0;
    for (int i = first; i < end; i++) {
        work += log(s->points[i].work);
        seconds += log(s->points[i].seconds);
    }
    return (sl_rate_point){ exp(work / (end - first)), exp(seconds / (end - first)) };
}

void sl_samples_to_rates(sl_samples *s, sl_rates *out)
{
    out->count = 0;
    if (s->count == 0) return;
    qsort(s->points, (size_t)s->count, sizeof s->points[0], compare_work);
    /* bins of equal width on a logarithmic scale; a little wider, so that the largest is in the last */
    double low = log(s->points[0].work), high = log(s->points[s->count - 1].work);
    double width = (high - low) / SL_RATE_POINTS * 1.0001 + 1e-9;
    for (int first = 0, end; first < s->count; first = end) {
        int bin = (int)((log(s->points[first].work) - low) / width);
        for (end = first + 1; end < s->count && (int)((log(s->points[end].work) - low) / width) == bin;) end++;
        out->points[out->count++] = mean_point(s, first, end);
    }
}

/* ---- the bench ---- */

/* Both halves of the f32 are the same bf16, a value from 0.01 to 1. */
static float operand_value(int i)
{
    uint32_t half = sl_float_to_bf16(0.01f * (float)(1 + i * 37 % 101));
    return sl_bits_float(half << 16 | half);
}

sluice_status sl_bench_fill(sl_bench *b)
{
    enum { CHUNK = 1 << 18 };
    float *chunk = sl_alloc_array(CHUNK, sizeof *chunk, "operands to measure with");
    int32_t ids[SL_BENCH_IDS_BYTES / sizeof(int32_t)];
    sluice_status st = chunk != NULL ? SLUICE_OK : SLUICE_ERR_NO_MEMORY;
    for (int i = 0; chunk != NULL && i < CHUNK; i++) chunk[i] = operand_value(i);
    for (int t = SL_TIER_DEVICE; t <= SL_TIER_HOST; t++)
        for (uint64_t at = 0; st == SLUICE_OK && at < 2 * SL_BENCH_REGION; at += CHUNK * sizeof(float))
            st = b->backend->upload(b->device, SL_STREAM_COMPUTE,
                                    (sl_span){ (sl_tier)t, SL_BENCH_IDS_BYTES + at, CHUNK * sizeof(float) }, chunk);
    sl_free(chunk);
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++) ids[i] = (int32_t)(i * 37 % SL_BENCH_IDS);
    if (st == SLUICE_OK)
        st = b->backend->upload(b->device, SL_STREAM_COMPUTE, (sl_span){ SL_TIER_DEVICE, 0, sizeof ids }, ids);
    return st;
}

static sluice_status measure_all(sl_bench *b, sl_machine *m)
{
    SL_TRY(sl_measure_kernels(b, m));
    SL_TRY(sl_bench_fill(b));
    SL_TRY(sl_measure_updates(b, m));
    SL_TRY(sl_measure_links(b, m));
    return b->ranks > 1 ? sl_measure_collectives(b, m) : SLUICE_OK;
}

/* On the ranks of `comm`, all of them, placed as those of a job would be. */
static sluice_status measure_with(sl_comm *comm, sl_isa isa, sl_machine *out)
{
    sl_bench b = { .backend = &sl_cpu_backend, .comm = comm };
    sl_device_options options = { .isa = isa };
    sl_rank_place place;
    uint64_t bytes = SL_BENCH_IDS_BYTES + 2 * SL_BENCH_REGION;
    b.rank = comm->ops->rank(comm);
    b.ranks = comm->ops->size(comm);
    b.context = (sl_run_context){ .seed = 1, .step = 1, .micro = 1, .training = true, .seed_gradient = 1 };
    b.context.group_count = 1;
    b.context.groups[0] =
        (sl_group_scalars){ .epsilon = 1e-8f, .bias2_sqrt = 1, .step_size = 1e-3f, .decay_factor = 1 };
    comm->ops->arena_files(comm, options.arena_files);
    sl_rank_place_choose(b.rank, b.rank, b.ranks, &place);
    sl_binding_apply(&place.binding);
    options.threads = place.cpus;
    options.nodes = place.binding.nodes;
    SL_TRY(b.backend->open(&options, &b.device));
    sluice_status st = b.backend->reserve(b.device, SL_TIER_DEVICE, bytes);
    if (st == SLUICE_OK) st = b.backend->reserve(b.device, SL_TIER_HOST, bytes);
    if (st == SLUICE_OK) st = b.backend->reserve_events(b.device, 1);
    if (st == SLUICE_OK) st = comm->ops->attach(comm, b.backend, b.device);
    if (st == SLUICE_OK) {
        st = measure_all(&b, out);
        comm->ops->detach(comm);
    }
    b.backend->close(b.device);
    return st;
}

/* ---- ranks ---- */

typedef struct request {
    sl_isa isa;
    sl_machine *out; /* memory that the ranks share with who started them */
} request;

static sluice_status measure_rank(void *user, sluice_world *world)
{
    const request *r = user;
    sl_machine m = *r->out;
    SL_TRY(measure_with(world, r->isa, &m));
    if (sluice_world_rank(world) == 0) *r->out = m;
    return SLUICE_OK;
}

static sluice_status measure_ranks(sl_isa isa, int ranks, sl_machine *out)
{
    sluice_launch_options o;
    sl_machine *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) return sl_fail(SLUICE_ERR_NO_MEMORY, "no memory to measure with several ranks");
    request r = { isa, shared };
    *shared = *out;
    sluice_launch_options_init(&o);
    o.ranks = ranks;
    sluice_status st = sluice_launch(&o, measure_rank, &r);
    if (st == SLUICE_OK) *out = *shared;
    munmap(shared, sizeof *shared);
    return st;
}

static sluice_status measure_alone(sl_isa isa, sl_machine *out)
{
    sl_comm *self;
    SL_TRY(sl_comm_self_open(&self));
    sluice_status st = measure_with(self, isa, out);
    self->ops->close(self);
    return st;
}

sluice_status sl_machine_measure(sl_isa isa, int ranks, sl_machine_description *out)
{
    sl_rank_place place;
    sl_machine_description d = { .shared_memory = true, .ranks = ranks, .isa = isa }; /* on a CPU all memory is RAM */
    if (ranks > 64) return sl_fail(SLUICE_ERR_USAGE, "%d ranks are too many to measure with; give at most 64", ranks);
    sl_rank_place_choose(0, 0, ranks, &place);
    d.threads = place.cpus;
    sl_machine_describe(isa, d.threads, &d.rates);
    d.rates.copies_overlap = d.rates.kernels_take_turns = true;
    SL_TRY(ranks > 1 ? measure_ranks(isa, ranks, &d.rates) : measure_alone(isa, &d.rates));
    d.rates.capacity[SL_TIER_DEVICE] = d.rates.capacity[SL_TIER_HOST] = sl_memory_available() / (uint64_t)ranks;
    *out = d;
    return SLUICE_OK;
}

/* measure.c: the bench on which kernels, copies and collectives are timed, and the order in which that happens.
 *
 * One duration (sl_bench_time): a call that warms up; calls in growing numbers until a round of them is long enough for
 * the clock; then some such rounds, of which the median counts. With several ranks every rank is a process with its
 * share of the cores, and all begin a round together, so that what they share, memory above all, is in the durations.
 *
 * All durations (sl_machine_measure): ranks are started before any of them uses CUDA, which does not survive a fork;
 * each chooses its device, fits the regions of operands into free memory, opens the device, and measures in the order
 * of measure_all. */
#include "machine/measure.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "core/alloc.h"
#include "core/half.h"
#include "core/thread.h"
#include "machine/machine_place.h"

#define MOST_ROUNDS 16

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

/* Where there is something to prepare, each call is timed by itself, if that can be done: queued ones cannot. */
static sluice_status time_calls(sl_bench *b, sl_bench_fn prepare, sl_bench_fn fn, void *what, int calls,
                                double *seconds)
{
    bool one_by_one = prepare != NULL && !b->scale.discrete;
    double sum = 0;
    if (b->ranks > 1) SL_TRY(b->comm->ops->barrier(b->comm, "a round of calls"));
    double start = sl_now();
    for (int i = 0; i < calls; i++) {
        if (prepare != NULL) SL_TRY(prepare(b, what));
        if (one_by_one) start = sl_now();
        SL_TRY(fn(b, what));
        if (one_by_one) sum += sl_now() - start;
    }
    if (!one_by_one) SL_TRY(b->backend->synchronize(b->device));
    *seconds = (one_by_one ? sum : sl_now() - start) / calls;
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

/* Calls that fill a round, and about how long one takes. The first call warms up. On a discrete device a single
 * one says little, as most of it is waiting for its end: groups grow until they are long enough. */
static sluice_status group_calls(sl_bench *b, sl_bench_fn prepare, sl_bench_fn fn, void *what, int *calls, double *each)
{
    const sl_bench_scale *scale = &b->scale;
    double mine, mean;
    *calls = 1;
    SL_TRY(time_calls(b, prepare, fn, what, 1, &mine));
    for (int tries = scale->discrete ? 6 : 0;; tries--) {
        if (scale->discrete) SL_TRY(time_calls(b, prepare, fn, what, *calls, &mine));
        SL_TRY(over_ranks(b, mine, &mean, each));
        double group = *each * *calls;
        if (group >= scale->round_seconds / (scale->discrete ? 2 : 1) || *calls >= scale->most_calls) return SLUICE_OK;
        double more = *each > 0 ? scale->round_seconds / *each + 1 : scale->most_calls;
        *calls = more < scale->most_calls ? (int)more : scale->most_calls;
        if (tries == 0) return SLUICE_OK;
    }
}

/* Rounds for calls that take `each`, and how many calls a round has. All ranks say the same. */
static int count_rounds(const sl_bench *b, double each, int *calls)
{
    const sl_bench_scale *s = &b->scale;
    int count = each > s->long_seconds ? s->long_rounds : s->rounds;
    if (b->sustained && s->sustained_seconds > 0 && each >= s->sustained_from) {
        double all = s->sustained_seconds / each;
        if (all < s->sustained_calls) all = s->sustained_calls;
        *calls = (int)(all / count) + 1;
    }
    double most = s->sample_seconds > 0 && each > 0 ? s->sample_seconds / each : INFINITY;
    if ((double)count * *calls > most) *calls = most > count ? (int)(most / count) : 1;
    return count > most ? (most > 1 ? (int)most : 1) : count;
}

sluice_status sl_bench_time(sl_bench *b, sl_bench_fn prepare, sl_bench_fn fn, void *what, double *seconds)
{
    double rounds[MOST_ROUNDS], each, most;
    int calls;
    sl_bench_progress_start(b);
    SL_TRY(group_calls(b, prepare, fn, what, &calls, &each));
    *seconds = each;
    bool too_long = b->scale.sample_seconds > 0 && each > b->scale.sample_seconds; /* one call must do then */
    if (!too_long) {
        int count = count_rounds(b, each, &calls);
        for (int i = 0; i < count; i++) SL_TRY(time_calls(b, prepare, fn, what, calls, &rounds[i]));
        SL_TRY(over_ranks(b, median(rounds, count), seconds, &most));
    }
    sl_bench_progress_done(b);
    return SLUICE_OK;
}

/* ---- operands ---- */

#define ALIGNMENT ((uint64_t)256)

static sl_span next_span(const sl_bench *b, uint64_t *at, uint64_t base, sl_tier tier, uint64_t bytes)
{
    if (*at + bytes > b->scale.region[tier]) *at = 0;
    sl_span s = { tier, base + *at, bytes };
    *at += (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return s;
}

sl_span sl_bench_read_span(sl_bench *b, sl_tier tier, uint64_t bytes)
{
    return next_span(b, &b->read_at[tier], b->scale.id_bytes, tier, bytes);
}

sl_span sl_bench_written_span(sl_bench *b, sl_tier tier, uint64_t bytes)
{
    return next_span(b, &b->written_at[tier], b->scale.id_bytes + b->scale.region[tier], tier, bytes);
}

bool sl_bench_make_room(sl_bench *b, sl_tier tier, uint64_t read, uint64_t written)
{
    uint64_t region = b->scale.region[tier], slack = SL_MAX_OPERANDS * ALIGNMENT;
    if (read + slack > region || written + slack > region) return false;
    if (b->read_at[tier] + read + slack > region) b->read_at[tier] = 0;
    if (b->written_at[tier] + written + slack > region) b->written_at[tier] = 0;
    return true;
}

/* ---- samples ---- */

sluice_status sl_samples_add(sl_samples *s, double work, double seconds, double times)
{
    if (s->count == s->capacity) {
        int capacity = s->capacity > 0 ? 2 * s->capacity : 16;
        sl_sample *samples = sl_alloc_array((size_t)capacity, sizeof *samples, "samples");
        if (samples == NULL) return SLUICE_ERR_NO_MEMORY;
        if (s->count > 0) memcpy(samples, s->samples, (size_t)s->count * sizeof *samples);
        sl_free(s->samples);
        s->samples = samples;
        s->capacity = capacity;
    }
    s->samples[s->count++] = (sl_sample){ work, seconds, times };
    return SLUICE_OK;
}

void sl_samples_free(sl_samples *s)
{
    sl_free(s->samples);
    *s = (sl_samples){ .samples = NULL };
}

static int compare_work(const void *a, const void *b)
{
    return compare(&((const sl_sample *)a)->work, &((const sl_sample *)b)->work);
}

/* Neighbours among the samples, in order of their work. Sums over them: what they do and take in all, and of the logarithm
 * of their work, by which they are near or far. A call of mean work then takes their mean time, so that a graph of these
 * kernels takes what was measured however few points there are. */
typedef struct cluster {
    int count;
    double times, work, seconds, logarithm;
} cluster;

static double place_of(const cluster *c)
{
    return c->logarithm / c->count;
}

/* Merges the neighbours that are nearest: those for which the sum of squared distances from the mean grows least (Ward's
 * method); it does not grow at all where the work is the same. False: there are few enough points. */
static bool merge_nearest(cluster *c, int *count)
{
    int at = -1;
    double least = *count > SL_RATE_POINTS ? INFINITY : 1e-18;
    for (int i = 0; i + 1 < *count; i++) {
        double distance = place_of(&c[i + 1]) - place_of(&c[i]);
        double cost = distance * distance * c[i].count * c[i + 1].count / (c[i].count + c[i + 1].count);
        if (cost >= least) continue;
        least = cost;
        at = i;
    }
    if (at < 0) return false;
    c[at] = (cluster){ c[at].count + c[at + 1].count, c[at].times + c[at + 1].times, c[at].work + c[at + 1].work,
                       c[at].seconds + c[at + 1].seconds, c[at].logarithm + c[at + 1].logarithm };
    --*count;
    memmove(&c[at + 1], &c[at + 2], (size_t)(*count - at - 1) * sizeof *c);
    return true;
}

sluice_status sl_samples_to_rates(sl_samples *s, sl_rates *out)
{
    int count = s->count;
    out->count = 0;
    if (count == 0) return SLUICE_OK;
    cluster *clusters = sl_alloc_array((size_t)count, sizeof *clusters, "samples");
    if (clusters == NULL) return SLUICE_ERR_NO_MEMORY;
    qsort(s->samples, (size_t)count, sizeof s->samples[0], compare_work);
    for (int i = 0; i < count; i++) {
        const sl_sample *one = &s->samples[i];
        clusters[i] = (cluster){ 1, one->times, one->times * one->work, one->times * one->seconds, log(one->work) };
    }
    while (merge_nearest(clusters, &count)) continue;
    for (const cluster *c = clusters; c < clusters + count; c++)
        out->points[out->count++] = (sl_rate_point){ c->work / c->times, c->seconds / c->times };
    sl_free(clusters);
    return SLUICE_OK;
}

/* ---- the bench ---- */

/* Both halves of an f32 are bf16, from 0.02 to 1 times `most`, and so is the whole; of either sign where that may be. How much power
 * GEMMs draw, and with it the clock of a GPU, depends on how much their operands differ. */
static uint32_t operand_bits(uint64_t *random, bool positive, float most)
{
    uint32_t halves[2];
    for (int i = 0; i < 2; i++) {
        *random = *random * 6364136223846793005u + 1442695040888963407u;
        float x = most * (0.02f + 0.98f * (float)(*random >> 40) * 0x1p-24f);
        halves[i] = sl_float_to_bf16(!positive && (*random >> 39 & 1) != 0 ? -x : x);
    }
    return halves[0] << 16 | halves[1];
}

/* The first chunk of `region` bytes comes from the host; what is filled is then copied behind itself. */
static sluice_status fill_region(sl_bench *b, sl_tier tier, uint64_t base, uint64_t region, const void *chunk)
{
    SL_TRY(b->backend->upload(b->device, SL_STREAM_COMPUTE, (sl_span){ tier, base, SL_BENCH_CHUNK }, chunk));
    for (uint64_t filled = SL_BENCH_CHUNK; filled < region; filled *= 2) {
        uint64_t bytes = filled < region - filled ? filled : region - filled;
        SL_TRY(b->backend->copy(b->device, SL_STREAM_COMPUTE, (sl_span){ tier, base + filled, bytes },
                                (sl_span){ tier, base, bytes }));
    }
    return b->backend->synchronize(b->device);
}

static sluice_status fill_regions(sl_bench *b, sl_tier last, sl_bench_values values, uint32_t *chunk)
{
    static const float most[] = { [SL_BENCH_PLAIN] = 1, [SL_BENCH_SMALL] = 0x1p-6f };
    uint64_t random = 1;
    for (int written = 0; written < 2; written++) {
        for (uint64_t i = 0; i < SL_BENCH_CHUNK / sizeof *chunk; i++)
            chunk[i] = operand_bits(&random, written == 1, most[values]);
        for (int t = SL_TIER_DEVICE; t <= (int)last; t++)
            SL_TRY(fill_region(b, (sl_tier)t, b->scale.id_bytes + (uint64_t)written * b->scale.region[t],
                               b->scale.region[t], chunk));
    }
    return SLUICE_OK;
}

sluice_status sl_bench_fill(sl_bench *b, sl_tier last, sl_bench_values values)
{
    uint32_t *chunk = sl_alloc(SL_BENCH_CHUNK, "operands to measure with");
    if (chunk == NULL) return SLUICE_ERR_NO_MEMORY;
    sluice_status st = fill_regions(b, last, values, chunk);
    sl_free(chunk);
    return st;
}

sluice_status sl_bench_clear(sl_bench *b, sl_tier tier, uint64_t bytes)
{
    uint64_t chunks = (bytes + SL_BENCH_CHUNK - 1) / SL_BENCH_CHUNK * SL_BENCH_CHUNK, region = b->scale.region[tier];
    void *chunk = sl_alloc(SL_BENCH_CHUNK, "operands to measure with"); /* is zero */
    if (chunk == NULL) return SLUICE_ERR_NO_MEMORY;
    sluice_status st = fill_region(b, tier, b->scale.id_bytes + region, chunks < region ? chunks : region, chunk);
    sl_free(chunk);
    return st;
}

/* The order of a measurement. What runs alone comes before what runs at the same time as something else:
 *
 *     1  kernels of graphs: bf16, then f32        also sets the general rates, which stand in for ops without points
 *     2  updates: on the device, then on a        sizes from the largest down: the largest is measured even when the
 *        discrete device's host; kernel latency   group's time is over
 *     3  copies each way; copy latency            likewise
 *     4  contention of kernels, copies, updates   on a CPU part of sl_measure_links, which compares with 3
 *     5  collectives, with several ranks
 *
 * Operands that are read are never written, but results stay in the regions that are written, where updates find their
 * moments and sums. So the regions are filled anew before 2 and 3: numbers that are infinite or denormal would change
 * durations. */
static sluice_status measure_all(sl_bench *b, sl_machine *m)
{
    SL_TRY(sl_measure_kernels(b, m));
    SL_TRY(sl_bench_fill(b, SL_TIER_HOST, SL_BENCH_PLAIN));
    SL_TRY(sl_measure_updates(b, m));
    SL_TRY(sl_bench_fill(b, SL_TIER_HOST, SL_BENCH_PLAIN));
    SL_TRY(sl_measure_links(b, m));
    if (b->scale.discrete) SL_TRY(sl_measure_slowdowns(b, m));
    /* of a graph on GPUs it is not known here which library the ranks will talk by */
    const bool collects = b->ranks > 1 && (b->scale.graph == NULL || !b->scale.discrete);
    return collects ? sl_measure_collectives(b, m) : SLUICE_OK;
}

/* ---- memory ---- */

static uint64_t arena_bytes(const sl_bench_scale *s, sl_tier tier)
{
    return s->id_bytes + 2 * s->region[tier];
}

/* The least over the ranks: they must leave out the same. */
static sluice_status agree_on_regions(sl_comm *comm, sl_bench_scale *s)
{
    uint64_t all[64][SL_TIER_COUNT];
    int ranks = comm->ops->size(comm);
    if (ranks == 1) return SLUICE_OK;
    SL_TRY(comm->ops->exchange(comm, "memory to measure with", s->region, sizeof s->region, all));
    for (int r = 0; r < ranks; r++)
        for (int t = 0; t < SL_TIER_COUNT; t++)
            if (all[r][t] < s->region[t]) s->region[t] = all[r][t];
    return SLUICE_OK;
}

/* No more than half of what a rank has of host memory, and of a GPU's what its arena may take. */
static sluice_status fit_regions(sl_comm *comm, const sl_device_choice *device, sl_bench_scale *s)
{
    const uint64_t room[SL_TIER_COUNT] = {
        [SL_TIER_DEVICE] = device->is_cuda ? sl_device_room(device) : UINT64_MAX,
        [SL_TIER_HOST] = sl_memory_available() / (uint64_t)comm->ops->size(comm) / 2,
    };
    for (int t = 0; t < SL_TIER_COUNT; t++) {
        uint64_t most = room[t] > s->id_bytes ? (room[t] - s->id_bytes) / 2 / SL_BENCH_CHUNK * SL_BENCH_CHUNK : 0;
        if (s->region[t] > most) s->region[t] = most;
    }
    SL_TRY(agree_on_regions(comm, s));
    for (int t = 0; t < SL_TIER_COUNT; t++)
        if (sl_tiers[t].in_memory && s->region[t] < SL_BENCH_LEAST_REGION(s->discrete))
            return sl_fail(
                SLUICE_ERR_NO_MEMORY,
                "not enough free memory on the %s to measure with: end other programs, or measure with fewer "
                "ranks",
                sl_tier_name((sl_tier)t));
    /* an operand of work that is timed under contention takes at most a quarter of a region */
    uint64_t on_device = s->region[SL_TIER_DEVICE] / 4, on_host = s->region[SL_TIER_HOST] / 4;
    while ((uint64_t)(s->gemm_side * s->gemm_side) * sizeof(float) > on_device) s->gemm_side /= 2;
    while ((uint64_t)s->contention_update * sizeof(float) > on_host) s->contention_update /= 2;
    while (s->contention_copy > on_device || s->contention_copy > on_host) s->contention_copy /= 2;
    return SLUICE_OK;
}

/* Half as much as was refused, and so on, on devices of their own. */
static sluice_status try_to_pin(const sl_backend *backend, const sl_device_options *options, uint64_t refused,
                                uint64_t *out)
{
    for (*out = refused / 2; *out >= 16 * SL_BENCH_CHUNK; *out /= 2) {
        sl_device *device;
        sl_device_stats stats = { .pageable = true };
        SL_TRY(backend->open(options, &device));
        sluice_status st = backend->reserve(device, SL_TIER_HOST, *out);
        if (st == SLUICE_OK) backend->stats(device, &stats);
        backend->close(device);
        SL_TRY(st);
        if (!stats.pageable) return SLUICE_OK;
    }
    *out = 0;
    return SLUICE_OK;
}

/* Of what was pinned, `bytes`. The limit of locked memory is not everywhere one for memory that a driver pins: where
 * more was pinned than it allows, it is none. */
static uint64_t limit_beyond(uint64_t bytes)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur < bytes)
        return UINT64_MAX;
    return limit.rlim_cur;
}

/* ---- the bench ---- */

static sluice_status measure_opened(sl_bench *b, sl_machine *m, bool *pageable)
{
    sl_device_stats stats;
    for (int t = SL_TIER_DEVICE; t <= SL_TIER_HOST; t++)
        SL_TRY(b->backend->reserve(b->device, (sl_tier)t, arena_bytes(&b->scale, (sl_tier)t)));
    SL_TRY(b->backend->reserve_events(b->device, 1));
    sl_bench_end(b);
    b->backend->stats(b->device, &stats);
    *pageable = stats.pageable;
    SL_TRY(b->comm->ops->attach(b->comm, b->backend, b->device));
    sluice_status st = measure_all(b, m);
    b->comm->ops->detach(b->comm);
    return st;
}

/* Numbers of a step of AdamW. */
static void fill_context(sl_run_context *c)
{
    *c = (sl_run_context){ .seed = 1, .step = 1, .micro = 1, .training = true, .seed_gradient = 1 };
    c->group_count = 1;
    c->groups[0] = (sl_group_scalars){ .beta1 = 0.9f,
                                       .one_minus_beta1 = 0.1f,
                                       .beta2 = 0.95f,
                                       .one_minus_beta2 = 0.05f,
                                       .epsilon = 1e-8f,
                                       .bias2_sqrt = 1,
                                       .rate = 1e-3f,
                                       .decay_factor = 1 };
}

/* Opens the device and measures on it. */
static sluice_status measure_on_bench(sl_bench *b, const sl_device_choice *device, const sl_device_options *options,
                                      sl_machine *m, uint64_t *pinnable)
{
    bool pageable = false;
    sl_bench_begin(b, "opening the device, reserving memory", 0);
    SL_TRY(b->backend->open(options, &b->device));
    sluice_status st = measure_opened(b, m, &pageable);
    b->backend->close(b->device);
    uint64_t host = arena_bytes(&b->scale, SL_TIER_HOST);
    *pinnable = device->is_cuda ? limit_beyond(host) : 0;
    if (st != SLUICE_OK || !pageable) return st;
    sl_bench_begin(b, "memory that can be pinned", 0);
    SL_TRY(try_to_pin(b->backend, options, host, pinnable));
    sl_bench_end(b);
    return SLUICE_OK;
}

sluice_status sl_bench_measure(sl_comm *comm, const sl_device_choice *device, const sl_bench_scale *scale, sl_isa isa,
                               FILE *progress, sl_machine *m, uint64_t *pinnable)
{
    sl_bench b = { .scale = *scale, .backend = device->backend, .comm = comm };
    sl_device_options options = { .isa = isa, .ordinal = device->ordinal };
    sl_rank_place place;
    b.rank = comm->ops->rank(comm);
    b.ranks = comm->ops->size(comm);
    fill_context(&b.context);
    if (scale->graph != NULL) sl_bench_fit_graph(&b);
    SL_TRY(fit_regions(comm, device, &b.scale));
    comm->ops->arena_files(comm, options.arena_files);
    sl_rank_place_choose(b.rank, b.rank, b.ranks, &place);
    sl_binding_apply(&place.binding);
    options.threads = scale->threads > 0 ? scale->threads : sl_device_host_threads(device, place.cpus);
    options.nodes = place.binding.nodes;
    SL_TRY(sl_bench_progress_open(b.rank == 0 ? progress : NULL, &b.progress));
    sluice_status st = measure_on_bench(&b, device, &options, m, pinnable);
    sl_bench_progress_close(b.progress);
    return st;
}

/* ---- ranks ---- */

typedef struct request {
    sl_isa isa;
    sluice_device device;
    int ranks;
    FILE *progress;              /* NULL: none */
    sl_machine_description *out; /* memory that the ranks share with who started them */
} request;

/* A rank's part. The device is chosen here, after ranks were started: a process that has used CUDA cannot be forked. */
static sluice_status measure_rank(void *user, sluice_world *comm)
{
    const request *r = user;
    int rank = comm->ops->rank(comm);
    double start = sl_now();
    sl_machine_description d = { .ranks = r->ranks, .isa = r->isa };
    sl_device_choice device;
    sl_rank_place place;
    SL_TRY(sl_device_choose(r->device, rank, r->ranks, &device));
    sl_rank_place_choose(rank, rank, r->ranks, &place);
    d.threads = place.cpus;
    d.is_cuda = device.is_cuda;
    d.shared_memory = !device.is_cuda; /* on a CPU all memory is RAM */
    sl_machine_describe(r->isa, d.threads, &d.rates);
    d.rates.copies_overlap = d.rates.kernels_take_turns = true;
    if (device.is_cuda) {
        sl_machine_describe_cuda(&device.facts, &d.rates);
        snprintf(d.gpu, sizeof d.gpu, "%s", device.facts.name);
        d.rates.capacity[SL_TIER_DEVICE] = device.facts.free_bytes / (uint64_t)device.sharing;
    }
    if (rank == 0 && r->progress != NULL)
        fprintf(r->progress, "measuring the %s%s\n", device.is_cuda ? "GPU" : "CPU",
                device.is_cuda ? ", which takes about 40 s" : "");
    SL_TRY(sl_bench_measure(comm, &device, device.is_cuda ? &sl_bench_gpu : &sl_bench_cpu, r->isa, r->progress,
                            &d.rates, &d.pinnable_bytes));
    if (rank != 0) return SLUICE_OK;
    *r->out = d;
    if (r->progress != NULL) {
        fprintf(r->progress, "  %-36s %6.1f s\n", "in all", sl_now() - start);
        fflush(r->progress);
    }
    return SLUICE_OK;
}

static sluice_status measure_ranks(const request *r)
{
    sluice_launch_options o;
    sl_machine_description *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return sl_fail(SLUICE_ERR_NO_MEMORY, "out of memory while starting ranks to measure with");
    request mine = *r;
    mine.out = shared;
    sluice_launch_options_init(&o);
    o.ranks = r->ranks;
    sluice_status st = sluice_launch(&o, measure_rank, &mine);
    if (st == SLUICE_OK) *r->out = *shared;
    munmap(shared, sizeof *shared);
    return st;
}

static sluice_status measure_alone(request *r)
{
    sl_comm *self;
    SL_TRY(sl_comm_self_open(&self));
    sluice_status st = measure_rank(r, self);
    self->ops->close(self);
    return st;
}

sluice_status sl_machine_measure(sl_isa isa, int ranks, sluice_device device, FILE *progress,
                                 sl_machine_description *out)
{
    request r = { isa, device, ranks, progress, out };
    if (ranks > 64) return sl_fail(SLUICE_ERR_USAGE, "%d ranks are too many to measure with; give at most 64", ranks);
    SL_TRY(ranks > 1 ? measure_ranks(&r) : measure_alone(&r));
    uint64_t *capacity = out->rates.capacity, available = sl_memory_available() / (uint64_t)ranks;
    capacity[SL_TIER_HOST] = available;
    if (!out->is_cuda) capacity[SL_TIER_DEVICE] = available;
    if (out->pinnable_bytes > available) out->pinnable_bytes = available;
    return SLUICE_OK;
}

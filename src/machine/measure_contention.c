/* measure_contention.c: how much kernels of a GPU, copies over its link and updates on the host slow each other down.
 *
 * Each kind of work is one queue of calls. A queue is timed alone, then while the others run; these get OUTLASTING times
 * as much work, so that they are still running when it ends. */
#include <math.h>
#include <string.h>

#include "core/thread.h"
#include "machine/measure.h"

#define WORK_SECONDS   30e-3 /* of the queue that is timed, by itself */
#define OUTLASTING     3.0   /* times as much is queued of the others */
#define TRIES          3
#define MOST_OF_A_KIND 128 /* calls: no queue may make the caller wait */

typedef enum { GEMMS, TO_DEVICE, TO_HOST, UPDATES, KINDS } kind;

#define BIT(kind_) (1u << (kind_))

static const sl_stream streams[KINDS] = { SL_STREAM_COMPUTE, SL_STREAM_TO_DEVICE, SL_STREAM_TO_HOST, SL_STREAM_UPDATE };

/* Queues one call. Copies write to the second half of a region, everything else to the first: GEMMs keep counters in
 * their workspace, and a kernel would wait forever for one that a copy overwrote; moments of an update must stay finite
 * numbers. */
static sluice_status queue(sl_bench *b, kind k)
{
    const bool copies = k == TO_DEVICE || k == TO_HOST;
    const sl_tier tier = k == GEMMS || k == TO_DEVICE ? SL_TIER_DEVICE : SL_TIER_HOST;
    b->written_at[tier] = copies ? b->scale.region[tier] / 2 : 0;
    if (k == GEMMS) return sl_bench_queue_gemm(b, b->scale.gemm_side);
    if (k == UPDATES) return sl_bench_queue_update(b, b->scale.contention_update);
    return sl_bench_queue_copy(b, k == TO_HOST ? SL_LINK_TO_HOST : SL_LINK_TO_DEVICE, b->scale.contention_copy);
}

static sluice_status run_one(sl_bench *b, void *what)
{
    return queue(b, *(const kind *)what);
}

/* How many calls take about so many seconds. */
static int calls_for(double seconds, double each)
{
    double calls = ceil(seconds / (each > 0 ? each : seconds));
    return calls < MOST_OF_A_KIND ? (int)calls : MOST_OF_A_KIND;
}

/* Seconds of one queue while `others` (bits of kinds) run. The shortest of some tries: any other disturbance only makes
 * one longer. */
static sluice_status time_contended(sl_bench *b, const double alone[KINDS], kind k, unsigned others, double *seconds)
{
    int calls = calls_for(WORK_SECONDS, alone[k]);
    bool late = false;
    *seconds = INFINITY;
    for (int t = 0; t < TRIES; t++) {
        if (t > 0) SL_TRY(sl_bench_late(b, &late));
        if (late) break;
        if (b->ranks > 1) SL_TRY(b->comm->ops->barrier(b->comm, "contended work"));
        for (int other = 0; other < KINDS; other++) {
            int more = (others & BIT(other)) != 0 ? calls_for(OUTLASTING * WORK_SECONDS, alone[other]) : 0;
            for (int i = 0; i < more; i++) SL_TRY(queue(b, (kind)other));
        }
        double start = sl_now();
        for (int i = 0; i < calls; i++) SL_TRY(queue(b, k));
        SL_TRY(b->backend->record(b->device, streams[k], 0));
        SL_TRY(b->backend->await(b->device, 0));
        double took = sl_now() - start;
        SL_TRY(b->backend->synchronize(b->device));
        if (took < *seconds) *seconds = took;
    }
    return SLUICE_OK;
}

/* How much longer a queue takes with `others`, as a fraction of its time alone. */
static sluice_status slowdown(sl_bench *b, const double alone[KINDS], kind k, unsigned others, double *out)
{
    double undisturbed, disturbed;
    SL_TRY(time_contended(b, alone, k, 0, &undisturbed));
    SL_TRY(time_contended(b, alone, k, others, &disturbed));
    *out = disturbed > undisturbed ? disturbed / undisturbed - 1 : 0;
    return SLUICE_OK;
}

/* Copies both ways, while GEMMs and the other direction run; then with updates on the host as well. */
static sluice_status measure_moves(sl_bench *b, const double alone[KINDS], sl_machine *m)
{
    double moves = 0, with_update = 0, lost;
    for (int way = 0; way < 2; way++) {
        kind k = way == 0 ? TO_DEVICE : TO_HOST, other = way == 0 ? TO_HOST : TO_DEVICE;
        SL_TRY(slowdown(b, alone, k, BIT(GEMMS) | BIT(other), &lost));
        moves += lost / 2;
        SL_TRY(slowdown(b, alone, k, BIT(GEMMS) | BIT(other) | BIT(UPDATES), &lost));
        with_update += lost / 2;
    }
    m->move_slowdown = moves / 2; /* one for the kernels, one for the other copy */
    m->move_update_slowdown = with_update > moves ? with_update - moves : 0;
    return SLUICE_OK;
}

sluice_status sl_measure_slowdowns(sl_bench *b, sl_machine *m)
{
    const unsigned both_ways = BIT(TO_DEVICE) | BIT(TO_HOST);
    static const char *const names[KINDS] = { "GEMMs", "copies to the device", "copies to the host", "updates" };
    double alone[KINDS], lost;
    sl_bench_begin(b, "GEMMs, copies and updates at once", b->scale.group_seconds[SL_BENCH_CONTENTION]);
    for (int k = 0; k < KINDS; k++) {
        b->label = names[k];
        SL_TRY(sl_bench_time(b, NULL, run_one, &(kind){ (kind)k }, &alone[k]));
    }
    SL_TRY(slowdown(b, alone, GEMMS, both_ways, &lost));
    m->kernel_slowdown = lost / 2;
    SL_TRY(slowdown(b, alone, UPDATES, both_ways, &lost));
    m->update_slowdown = lost / 2;
    SL_TRY(measure_moves(b, alone, m));
    sl_bench_end(b);
    return SLUICE_OK;
}

/* norm_runs.h: what runs of networks with batch norms have in common, alone (batch_norm_runs.h) and over ranks
 * (shared_norm_runs.h). Ranks are always processes of their own. */
#ifndef SLUICE_TEST_NORM_RUNS_H
#define SLUICE_TEST_NORM_RUNS_H

#include <string.h>
#include <sys/mman.h>

#include "sluice.h"
#include "test.h"

enum { FEATURES = 5, CHANNELS = 20, CLASSES = 3, MOST_RANKS = 4 };

/* What a run leaves; shared with its ranks. */
typedef struct results {
    char weights[65], state[65];
    double loss, evaluated;
    float mean[MOST_RANKS][CHANNELS], variance[MOST_RANKS][CHANNELS], batches[MOST_RANKS];
    uint64_t skipped;
    uint64_t sent[MOST_RANKS], predicted[MOST_RANKS]; /* bytes of gathers */
    sluice_memory planned, observed;
} results;

static inline results *share_results(void)
{
    return mmap(NULL, sizeof(results), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

static inline void set_norm_options(sluice_options *o, int accumulation)
{
    sluice_options_init(o);
    sluice_optimizer_init(&o->optimizer, SLUICE_ADAM);
    o->optimizer.lr = 0.01;
    o->threads = 1;
    o->accumulation_steps = accumulation;
    o->evaluation = true;
    o->guard = true;
    o->device_bytes = (uint64_t)1 << 30; /* most of it is for the libraries of a GPU */
    o->host_bytes = (uint64_t)64 << 20;
}

/* The mean of the norm bn1, and of the norm `last` the rest. */
static inline sluice_status read_statistics(sluice_engine *e, int rank, const char *last, results *out)
{
    char variance[64], batches[64];
    snprintf(variance, sizeof variance, "%s.running_var", last);
    snprintf(batches, sizeof batches, "%s.num_batches_tracked", last);
    sluice_status st = sluice_get_parameter(e, "bn1.running_mean", out->mean[rank], sizeof out->mean[rank]);
    if (st == SLUICE_OK) st = sluice_get_parameter(e, variance, out->variance[rank], sizeof out->variance[rank]);
    if (st == SLUICE_OK) st = sluice_get_parameter(e, batches, &out->batches[rank], sizeof(float));
    return st;
}

/* All ranks; rank 0 keeps what it finds. */
static inline sluice_status read_end(sluice_engine *e, int rank, double evaluated, results *out)
{
    char other[2][65];
    sluice_status st = sluice_hash(e, rank == 0 ? out->weights : other[0], rank == 0 ? out->state : other[1]);
    if (st != SLUICE_OK || rank != 0) return st;
    out->evaluated = evaluated;
    out->skipped = sluice_skipped_steps(e);
    sluice_planned_peak(e, &out->planned);
    sluice_observed_peak(e, &out->observed);
    return SLUICE_OK;
}

static inline sluice_status launch_ranks(sluice_status (*body)(void *user, sluice_world *world), void *user, int ranks,
                                         results *out)
{
    sluice_launch_options o;
    sluice_launch_options_init(&o);
    o.ranks = ranks;
    o.timeout_seconds = 60;
    memset(out, 0, sizeof *out);
    return sluice_launch(&o, body, user);
}

static inline void check_same_statistics(const results *r, const results *first, int ranks, int batches)
{
    for (int i = 0; i < ranks; i++) {
        CHECK(memcmp(r->mean[i], first->mean[0], sizeof r->mean[i]) == 0);
        CHECK(memcmp(r->variance[i], first->variance[0], sizeof r->variance[i]) == 0);
        CHECK(r->batches[i] == (float)batches);
    }
}

/* Every bit of weights, state and statistics. */
static inline void check_same_bits(const results *r, const results *first, int ranks, int batches)
{
    CHECK_STR(r->weights, first->weights);
    CHECK_STR(r->state, first->state);
    CHECK_EQ(r->skipped, first->skipped);
    check_same_statistics(r, first, ranks, batches);
}

static inline void check_peaks(const results *r)
{
    CHECK_EQ(r->observed.device, r->planned.device);
    CHECK_EQ(r->observed.host, r->planned.host);
}

#endif

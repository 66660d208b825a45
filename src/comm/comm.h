/* comm.h: what ranks say to each other.
 *
 * Two kinds of talk. Collectives follow the plan: they are queued on the device's communication stream, move spans of
 * the arenas, and carry the plan's sequence number and byte count, which are checked on arrival. Control calls are
 * small, blocking, and move ordinary memory: agreeing before the first step, the losses of a step, checkpoints. Both
 * have a deadline. A rank that is dead, late or says something else ends the job on every rank with SLUICE_ERR_RANK and
 * a message that names the rank and the call. After the first failure every further call fails at once.
 *
 * Control calls are made by one thread at a time, the one that owns the comm; they must be in the same order on all
 * ranks, but need no order with the collectives. */
#ifndef SL_COMM_COMM_H
#define SL_COMM_COMM_H

#include "backend/backend.h"
#include "core/shard.h"

#define SL_MOST_TIMEOUT 1e9 /* seconds that one rank may be told to wait for another */

typedef struct sl_comm sl_comm; /* sluice_world of sluice.h */

typedef struct sl_comm_stats {
    uint64_t gather_bytes, reduce_bytes; /* of collectives, sent by this rank to others since the comm was opened */
    uint64_t norm_bytes;                 /* of gathers of norm leaves */
    uint64_t collectives;                /* how many there were */
} sl_comm_stats;

typedef enum {
    SL_GATHER,         /* every rank's shard -> the whole on every rank */
    SL_REDUCE_SCATTER, /* every rank's whole contribution, added in rank order -> the accumulator of each shard's
                        * owner */
    SL_GATHER_NORM,    /* as GATHER, counted as norm_bytes */
} sl_collective_kind;

/* One layer's part in a collective. The layer's elements are cut by `shards`; `unit` bytes stand for each `per`
 * elements (4 per 1: values; 8 per SL_CUT_ELEMENTS: norm leaves, the last one possibly for fewer elements). Range
 * [first, first + count) is bytes [first / per * unit, ceil((first + count) / per) * unit) of the whole. */
typedef struct sl_comm_part {
    const sl_shards *shards;
    int64_t per;
    uint64_t unit;
    /* REDUCE_SCATTER: of the contributions (F32, BF16, F16; unit is its size), and of what is kept of their sum. Sums
     * run in f32 in rank order. F32: the accumulator is set or added to. Otherwise there is one micro-batch: the sum is
     * rounded to nearest even once, to `sum_form`, which then is `form`. */
    sl_form form, sum_form;
    sl_span whole; /* GATHER: destination. REDUCE_SCATTER: this rank's contribution */
    /* This rank's shard, its ranges one after the other. GATHER: the source; with in_place it is absent (bytes 0), and
     * the source is this rank's ranges of `whole`. REDUCE_SCATTER: the sum, in sum_form, not part of `whole`; with
     * in_place (sum_form is form, one micro-batch) it is absent, and the sum replaces this rank's ranges of its own
     * `whole`, which no other rank reads. */
    sl_span shard;
    bool in_place; /* the same on all ranks */
} sl_comm_part;

typedef struct sl_collective {
    sl_collective_kind kind;
    const char *name; /* "reduce-scatter of h.3"; for messages */
    int part_count;
    const sl_comm_part *parts; /* borrowed until the device is synchronized */
} sl_collective;

typedef struct sl_comm_ops {
    const char *name; /* "self", "local", "mpi", "nccl" */
    /* Whether collectives take spans of a GPU's memory. Memory of the CPU they always take. */
    bool reaches_gpus;
    void (*close)(sl_comm *c);
    int (*rank)(const sl_comm *c);
    int (*size)(const sl_comm *c);
    /* Files for the arenas, so that ranks of this machine reach each other's memory without a copy; -1: the device maps
     * its own. To be passed on in sl_device_options. */
    void (*arena_files)(sl_comm *c, int files[SL_TIER_COUNT]);
    /* All ranks, once, after the arenas are reserved and before the first collective: the device whose spans
     * collectives name. detach before the device is closed. */
    sluice_status (*attach)(sl_comm *c, const sl_backend *backend, sl_device *d);
    void (*detach)(sl_comm *c);
    /* Queues a collective on the device's COMM stream and returns. `sequence` counts a plan's collectives as they are
     * started. `first`: REDUCE_SCATTER sets the accumulators instead of adding to them (the first micro-batch of a
     * step). Failures come out of the device's synchronize. Allocates nothing. */
    sluice_status (*start)(sl_comm *c, uint64_t sequence, const sl_collective *collective, bool first);
    /* ---- control: `what` names the call in messages and must agree on all ranks ---- */
    /* all[r * bytes ..] becomes rank r's `mine`. */
    sluice_status (*exchange)(sl_comm *c, const char *what, const void *mine, size_t bytes, void *all);
    sluice_status (*broadcast)(sl_comm *c, const char *what, int root, void *data, size_t bytes);
    /* Rank r's lengths[r] bytes, one after the other in rank order, at the root. `all` matters on the root alone;
     * lengths on all. */
    sluice_status (*collect)(sl_comm *c, const char *what, int root, const void *mine, const size_t *lengths,
                             void *all);
    sluice_status (*barrier)(sl_comm *c, const char *what);
    /* This rank gives up with `message`: the others stop at their next call, which fails with it. Idempotent. */
    void (*abort)(sl_comm *c, const char *message);
    void (*stats)(const sl_comm *c, sl_comm_stats *out);
    /* ---- for a communicator built on top of this one, whose collectives run elsewhere; any thread ---- */
    double (*timeout)(const sl_comm *c); /* the deadline of every wait, in seconds */
    /* Fails at once when the job has ended: this rank has failed, another has given up or is known to be gone. */
    sluice_status (*check)(sl_comm *c);
    /* All ranks come together in place of a collective: `sequence`, `name` and `bytes` must agree. Names the rank that
     * does not come. One thread at a time, and never beside `start`. */
    sluice_status (*meet)(sl_comm *c, uint64_t sequence, const char *name, uint64_t bytes);
} sl_comm_ops;

struct sl_comm {
    const sl_comm_ops *ops;
};

/* A job of one rank. Collectives over one rank are the identity: the plan emits none, and a call says so as an error.
 * Control calls do what they do among one. */
sluice_status sl_comm_self_open(sl_comm **out);
/* Whether a plan may hand spans of a GPU to collectives; otherwise they pass through the host. */
static inline bool sl_comm_reaches_gpus(const sl_comm *c)
{
    return c->ops->reaches_gpus;
}

/* Byte range of the whole that element range `r` of a part stands for. */
static inline sl_span sl_comm_bytes(const sl_comm_part *part, sl_span of, sl_range r)
{
    uint64_t begin = (uint64_t)(r.first / part->per) * part->unit;
    uint64_t end = (uint64_t)((r.first + r.count + part->per - 1) / part->per) * part->unit;
    return (sl_span){ of.tier, of.offset + begin, end - begin };
}

/* Bytes of one element of a form that can be added; 0: it cannot. */
static inline uint64_t sl_comm_form_bytes(sl_form form)
{
    static const uint8_t bytes[SL_FORM_COUNT] = { [SL_FORM_F32] = 4, [SL_FORM_BF16] = 2, [SL_FORM_F16] = 2 };
    return (unsigned)form < SL_FORM_COUNT ? bytes[form] : 0;
}

/* What stands in a shard where `unit` bytes stand in the whole: of a reduction, a sum in its own form. */
static inline uint64_t sl_comm_shard_unit(sl_collective_kind kind, const sl_comm_part *part)
{
    return kind == SL_REDUCE_SCATTER ? sl_comm_form_bytes(part->sum_form) : part->unit;
}

/* How many units stand for a rank's ranges: cuts are at multiples of `per`. */
static inline uint64_t sl_comm_units(const sl_comm_part *part, int rank)
{
    return (uint64_t)((sl_shard_elements(part->shards, rank) + part->per - 1) / part->per);
}

/* Bytes of a rank's ranges in the whole: what travels of them. */
static inline uint64_t sl_comm_range_bytes(const sl_comm_part *part, int rank)
{
    return sl_comm_units(part, rank) * part->unit;
}

/* Bytes of a rank's shard; with in_place it has none. */
static inline uint64_t sl_comm_shard_bytes(sl_collective_kind kind, const sl_comm_part *part, int rank)
{
    return part->in_place ? 0 : sl_comm_units(part, rank) * sl_comm_shard_unit(kind, part);
}

#endif

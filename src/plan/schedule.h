/* schedule.h: the working state of the schedule pass, shared by its files.
 *
 *     schedule_walk.c        walks the layers of every segment
 *     schedule_permanent.c   what stays from step to step
 *     schedule_gradient.c    from a layer's contribution to its final gradient
 *     schedule_update.c      norm, update, and getting new parameters to where they are read
 *     schedule_disk.c        what lives on the disk: its updates in chunks, its transfers in pieces
 *     schedule_collective.c  buckets: small layers share a collective
 *     schedule_emit.c        writes steps, derives lifetimes */
#ifndef SL_PLAN_SCHEDULE_H
#define SL_PLAN_SCHEDULE_H

#include "plan/passes.h"

/* A collective that is being put together: part k takes inputs[k] to outputs[k] for layers[k]. */
typedef struct sl_bucket {
    sl_step_kind kind;
    bool in_place; /* no inputs */
    int node;      /* GATHER_VALUE: whose first output */
    unsigned when; /* condition of its step */
    uint64_t bytes;
    int count;
    int layers[SL_MAX_PARTS];
    sl_piece inputs[SL_MAX_PARTS], outputs[SL_MAX_PARTS];
} sl_bucket;

/* ---- the disk ---- */

#define SL_DISK_DEPTH   3                        /* staging buffers of each kind, used in turn */
#define SL_DISK_TENSORS (3 + SL_MAX_STATE_SLOTS) /* weights, remainder, slots, gradient */

/* A place in the ranges that this rank updates of a layer; behind the last: their number and 0. */
typedef struct sl_disk_cursor {
    int64_t range, offset;
} sl_disk_cursor;

/* Elements that are updated at a time. */
typedef struct sl_disk_chunk {
    int layer;
    sl_disk_cursor begin, end;
} sl_disk_chunk;

typedef struct sl_disk_work {
    int rings[SL_DISK_TENSORS][SL_DISK_DEPTH]; /* staging buffers on the host; -1: not needed */
    int in[SL_DISK_DEPTH], out[SL_DISK_DEPTH]; /* of what is moved in pieces */
    int in_turn, out_turn;
    sl_disk_chunk *chunks; /* of the segment, in the order of their updates; owned */
    int count, capacity;
    int read, done; /* chunks whose reads were emitted; that were updated */
} sl_disk_work;

/* A buffer whose bytes are on their way to the host while forward goes on: nothing else gets them until forward of a
 * position has ended. */
typedef struct sl_leaving {
    int buffer, until;
} sl_leaving;

typedef struct sl_scheduler {
    sl_plan *p;
    const sl_usage *u;
    const sluice_graph *g;
    int prefetch;       /* levels, and for activations layers, fetched ahead */
    int *device_buffer; /* root -> device buffer that holds it now; -1 */
    int *host_buffer;   /* root -> host copy of an offloaded activation; -1 */
    int *staged;        /* layer -> device copy of its streamed parameters now; -1 */
    sl_bucket gathers, reductions;
    int leaves[SL_TIER_COUNT]; /* norm leaves by tier; -1: not used yet */
    int norm_on_host;          /* buffer of the norm's result there; -1: none */
    int *leaf_tier;            /* layer -> tier on which the leaves of its final gradient were computed; -1: not yet */
    bool *again;               /* forward node -> runs again before the backward of its layer's group */
    sl_transit *transit;       /* position -> when its offloaded activations leave and come back */
    int fetched;               /* position down to which they have been fetched for backward */
    sl_leaving *leaving;       /* offloaded activations, in the order in which they leave */
    int leaving_count;
    int *forward_end; /* position -> the last step of its forward */
    bool evaluating;  /* no backward follows */
    int *disk_buffer; /* root -> disk copy of an offloaded activation; -1 */
    sl_disk_work disk;
    unsigned when; /* sl_when: condition of the steps that are written now */
} sl_scheduler;

static inline bool sl_is_trained(const sl_scheduler *s, int layer)
{
    return s->p->options.training && s->u->last_gradient_node[layer] >= 0;
}

/* Where the update of a layer runs. State on the disk comes to the host for it. */
static inline sl_tier sl_update_tier(const sl_layer_place *place)
{
    return place->state == SL_TIER_DEVICE ? SL_TIER_DEVICE : SL_TIER_HOST;
}

/* Whether a rank's home of the layer's parameters is its shard. On the disk it is from stage 1 on: what a rank updates is
 * all that it writes there. */
static inline bool sl_cuts_home(const sl_plan *p, int layer)
{
    return sl_cuts_parameters(p) || (sl_cuts_state(p) && p->layers[layer].parameters == SL_TIER_DISK);
}

/* In which gradients are exchanged and kept, and weights are read. */
static inline sl_form sl_wire_form(const sl_scheduler *s)
{
    return (sl_form)s->g->wire;
}

static inline sl_form sl_weights_form(const sl_scheduler *s)
{
    return (sl_form)s->g->precision;
}

static inline bool sl_has_parameters(const sl_scheduler *s, int layer)
{
    return s->g->layers[layer].element_count > 0;
}

/* ---- schedule_permanent.c ---- */

sluice_status sl_schedule_permanents(sl_scheduler *s);

/* ---- schedule_gradient.c ---- */

/* The gradient of a layer is final for this micro-batch: add it to the step's sum, or send it to where its update
 * runs. */
sluice_status sl_schedule_gradient(sl_scheduler *s, int layer);
/* What is still in a bucket leaves now. */
sluice_status sl_schedule_gradients_end(sl_scheduler *s);
/* After the last micro-batch: gradients that still have a way to go to their update. */
sluice_status sl_schedule_final_gradients(sl_scheduler *s);

/* ---- schedule_update.c ---- */

/* Norm leaves of a layer's final gradient in `buffer`, computed where that lies. Whoever sends the gradient away does
 * this first: the device reads it faster than the host. */
sluice_status sl_schedule_leaves(sl_scheduler *s, int layer, int buffer);
/* After a layer's gradient is final during backward: its update, where that is early enough. */
sluice_status sl_schedule_early_update(sl_scheduler *s, int layer);
/* Before backward: which of these updates need the disk. */
sluice_status sl_schedule_backward_updates(sl_scheduler *s);
/* Whether a layer's update on the host is part of the last micro-batch's backward, as soon as its final gradient is there:
 * on speculation, or because it takes no norm. */
bool sl_updates_on_arrival(const sl_scheduler *s, int layer);
/* The gradient is there. */
sluice_status sl_schedule_arrived(sl_scheduler *s, int layer);
sluice_status sl_schedule_update(sl_scheduler *s);
/* What was updated on speculation, from the values before the step and with the norm. */
sluice_status sl_schedule_redo(sl_scheduler *s);

/* ---- schedule_walk.c ---- */

/* Whether an activation survives from forward to backward on the disk. */
bool sl_leaves_for_disk(const sl_scheduler *s, int root);

/* ---- schedule_disk.c ---- */

/* Staging buffers, after the other permanent ones. */
sluice_status sl_disk_permanents(sl_scheduler *s);
/* Whether the update of a layer needs something that is on the disk. */
bool sl_disk_updates(const sl_scheduler *s, int layer);
/* A segment with updates: the list of chunks is empty; layers are added in the order of their updates; reads are emitted
 * as far ahead as there are staging buffers; and each layer is updated. `norm`: buffer of the result, or -1. */
void sl_disk_begin(sl_scheduler *s);
sluice_status sl_disk_add_updates(sl_scheduler *s, int layer);
sluice_status sl_disk_read_ahead(sl_scheduler *s);
sluice_status sl_disk_update(sl_scheduler *s, int node, int norm);
/* All of a buffer on the disk to a piece of its length on the device or the host, or back. */
sluice_status sl_disk_bring(sl_scheduler *s, int from, sl_piece to, int layer);
sluice_status sl_disk_send(sl_scheduler *s, sl_piece from, int to, int layer);
/* When all steps are listed: staging buffers are as long as what is staged in them; those that nothing uses take no room. */
void sl_disk_trim(sl_scheduler *s);
void sl_disk_close(sl_scheduler *s);

/* ---- schedule_collective.c ---- */

/* Adds a layer to a bucket of this kind; a full one, or one of another kind, is emitted first. `input` of buffer -1: in
 * place, `output` being the whole. */
sluice_status sl_bucket_add(sl_scheduler *s, sl_bucket *b, sl_step_kind kind, int layer, sl_piece input,
                            sl_piece output);
sluice_status sl_bucket_flush(sl_scheduler *s, sl_bucket *b);
/* The other ranks' parts of the first output of a node that gathers, by a collective of its own: kernels wait for it. */
sluice_status sl_gather_value(sl_scheduler *s, int node, sl_piece value);
/* True when the bucket holds as much as a collective should. */
bool sl_bucket_is_full(const sl_scheduler *s, const sl_bucket *b);

/* ---- schedule_emit.c ---- */

/* A buffer of the given kind; device_buffer and friends are the caller's to set. Negative on failure. */
int sl_emit_buffer(sl_scheduler *s, sl_buffer_kind kind, sl_tier tier, uint64_t bytes, int layer, bool permanent);
/* A buffer for all of a layer's elements, or with `shard` for those that this rank owns, in a form.
 * SLUICE_ERR_NO_MEMORY. */
sluice_status sl_emit_layer_buffer(sl_scheduler *s, sl_buffer_kind kind, sl_form form, sl_tier tier, int layer,
                                   bool shard, bool permanent, int *out);
/* The part of a layer's buffer that holds elements `range`, which lie within one range of this rank's shard where the
 * buffer is one. */
sl_piece sl_range_piece(const sl_scheduler *s, int buffer, sl_range range);
/* What this rank updates of a layer: all of it, or the ranges of its shard. */
int64_t sl_updated_ranges(const sl_scheduler *s, int layer);
sl_range sl_updated_range(const sl_scheduler *s, int layer, int64_t index);
/* Copies a piece to another of the same size, on the stream that the direction asks for. Nothing for no bytes. */
sluice_status sl_emit_copy_piece(sl_scheduler *s, sl_piece from, sl_piece to, int layer);
/* The same for whole buffers. */
sluice_status sl_emit_copy(sl_scheduler *s, int from, int to, int layer);
/* Runs a graph node on the compute stream, and the gather that belongs to it; outputs get buffers. With `recomputed`, values kept from forward are not
 * replaced. */
sluice_status sl_emit_node(sl_scheduler *s, int node, bool recomputed);
/* Runs an update op on pieces that begin at element `first` of the layer; the stream follows the tier it works on. */
sluice_status sl_emit_update(sl_scheduler *s, sl_op op, int node, int layer, sl_tier tier, int64_t first,
                             const sl_piece *inputs, int input_count, const sl_piece *outputs, int output_count);
/* Lets an output take over the buffer of an input that dies in the same step, where the op allows it. */
sluice_status sl_merge_in_place(sl_plan *p);
/* first and last of every buffer that is not permanent, from the steps. */
void sl_plan_lifetimes(sl_plan *p);

#endif

/* internal.h: what the files of the runtime share. Not for other folders. */
#ifndef SL_RUNTIME_INTERNAL_H
#define SL_RUNTIME_INTERNAL_H

#include "runtime/exec.h"

#define SL_COLLECTIVE_NAME_BYTES 96
/* Of a layer: master, its rest, state slots; as in sl_layer_place.snapshots. */
#define SL_LAYER_TENSORS (2 + SL_MAX_STATE_SLOTS)

struct sl_exec {
    const sl_plan *plan; /* borrowed */
    const sl_backend *backend;
    sl_device *device;          /* owned */
    sl_comm *comm;              /* borrowed */
    bool attached;              /* the comm knows the device */
    bool busy;                  /* steps may be under way */
    bool stored;                /* tensors may be on their way in, in order with kernels alone */
    bool uses[SL_STREAM_COUNT]; /* the plan has steps there */
    double seconds[SL_SEGMENT_COUNT];
    sl_shape flat[SL_MAX_OPERANDS];          /* shapes of update operands, refilled for each call */
    sl_collective *collectives;              /* owned; per plan step, part_count 0 where it is none */
    sl_comm_part *parts;                     /* owned; what they point into, parallel to plan->parts */
    char (*names)[SL_COLLECTIVE_NAME_BYTES]; /* owned; one per collective */
    uint64_t sequence;                       /* collectives started so far */
    const uint8_t **snapshots;               /* owned; per layer and tensor, where a snapshot lies; NULL: none */
    const sl_update_rule **rules;            /* owned; per layer; NULL: not trained */
};

#endif

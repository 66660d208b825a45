/* state.h: training state as named tensors behind two functions.
 *
 * Saving and loading see nothing else: not the plan, not the tiers, not the ranks. exec.c makes one from a running
 * engine. */
#ifndef SL_CHECKPOINT_STATE_H
#define SL_CHECKPOINT_STATE_H

#include "checkpoint/checkpoint.h"

/* Kind of a tensor that holds a parameter's values; the others are named for their optimizer slot. */
#define SL_KIND_WEIGHT "weight"

typedef struct sl_state_tensor {
    const char *name; /* of the parameter */
    const char *kind; /* SL_KIND_WEIGHT or a slot's name */
    sl_shape shape;
    uint64_t elements; /* f32 */
} sl_state_tensor;

typedef struct sl_state {
    const sl_state_tensor *tensors; /* weights first, in byte order of names; then state, by parameter and slot */
    int64_t count;
    /* Copies elements [first, first+count) of a tensor out or in. */
    sluice_status (*read)(void *user, int64_t tensor, uint64_t first, uint64_t count, float *out);
    sluice_status (*write)(void *user, int64_t tensor, uint64_t first, uint64_t count, const float *data);
    void *user;
} sl_state;

/* As the functions of checkpoint.h that bear the same names without _state. */
sluice_status sl_state_save(const sl_state *state, const sl_checkpoint_meta *meta, const char *folder, int keep,
                            char *path);
/* model_sha256 NULL: any model whose tensors match. weights_only: kinds other than SL_KIND_WEIGHT are left alone.
 * `folder` may also be one step-N. *found is false, and meta zero, where there is no checkpoint. */
sluice_status sl_state_load(const sl_state *state, const char *folder, const char *model_sha256, bool weights_only,
                            const sl_log *log, sl_checkpoint_meta *meta, bool *found);
sluice_status sl_state_weights_save(const sl_state *state, const char *path);
sluice_status sl_state_weights_load(const sl_state *state, const char *path);
sluice_status sl_state_sha256(const sl_state *state, double loss_scale, char weights[65], char optimizer[65]);

#endif

/* state.h: training state as named tensors behind a few functions.
 *
 * Saving and loading see nothing else: not the plan, not the tiers, not the stage. exec.c makes one from a running
 * engine. Each element of each tensor is owned by one rank, the same seen from every rank; what a rank keeps beyond
 * that (copies at the lower stages) is its own affair. */
#ifndef SL_CHECKPOINT_STATE_H
#define SL_CHECKPOINT_STATE_H

#include <string.h>

#include "checkpoint/checkpoint.h"
#include "core/phase.h"
#include "core/stop.h"
#include "core/thread.h"

/* Kind of a tensor that holds a parameter's values; of one that the model keeps and does not train (a running statistic); of a
 * count, which is two numbers (sl_exec_fetch_running) and in weights files one integer that may be absent. The others are
 * named for their optimizer slot. */
#define SL_KIND_WEIGHT  "weight"
#define SL_KIND_BUFFER  "buffer"
#define SL_KIND_COUNTER "counter"
/* Under delayed updates: the weights that the next step reads, which lack the newest update. */
#define SL_KIND_VISIBLE "visible"

typedef struct sl_state_tensor {
    const char *name; /* of the parameter */
    const char *kind; /* SL_KIND_WEIGHT, SL_KIND_BUFFER, SL_KIND_COUNTER, SL_KIND_VISIBLE or a slot's name */
    sl_shape shape;
    uint64_t elements; /* f32 */
    /* Weights: what files hold instead, run after run of whole rows (sl_parameter.parts). A file that is read may hold
     * either; one that is written holds these. 0: there is nothing else. */
    const sl_part *parts;
    int part_count;
    bool is_adapter; /* a file need not hold it: the values stay as they are */
    bool is_fresh;   /* the values stay as they are, whatever a file holds */
    bool trained;
} sl_state_tensor;

typedef struct sl_state {
    const sl_state_tensor
        *tensors; /* weights first, in byte order of names; buffers; then state, by parameter and slot */
    int64_t count;
    const struct sl_weight_names *names; /* sluice_graph.file_names; may be NULL */
    sl_kept_vocabulary vocabulary; /* sluice_graph.vocabulary: written with the weights; what is loaded must agree */
    sluice_dtype file_type;        /* of weights in the files that are written: F32, BF16 or F16 */
    const char *file_prefix;       /* before all names in the files that are written, but those of heads; NULL: none */
    const int *stop; /* a request to stop (core/stop.h), which ends loading and hashing, never saving; NULL: none */
    int rank, rank_count;
    sl_comm *comm; /* borrowed; NULL: alone */
    /* Borrowed; NULL: the caller's thread does all. With it, `read` and `write` are called from all its threads at a
     * time, `write` for other elements each. */
    sl_pool *pool;
    const sl_progress *progress; /* borrowed; NULL: nobody listens */
    /* The runs of elements of a tensor that `rank` owns, in increasing order. Pure. */
    int64_t (*owned_count)(void *user, int64_t tensor, int rank);
    sl_range (*owned)(void *user, int64_t tensor, int rank, int64_t index);
    /* Whether this rank keeps any element of the range; true is always safe. Pure. */
    bool (*wants)(void *user, int64_t tensor, sl_range range);
    /* The elements of [first, first+count) that this rank owns, to their places in `out`; the rest of it is left alone.
     * For a save in the background: called from its thread. */
    sluice_status (*read)(void *user, int64_t tensor, uint64_t first, uint64_t count, float *out);
    /* Every copy this rank keeps of elements [first, first+count); what it does not keep is passed over. */
    sluice_status (*write)(void *user, int64_t tensor, uint64_t first, uint64_t count, const float *data);
    /* Weights that are bf16, at any address, as they are; only for tensors of which takes_bf16 (pure) says so. `write` of the
     * same values has the same effect. Both NULL: never. */
    bool (*takes_bf16)(void *user, int64_t tensor);
    sluice_status (*write_bf16)(void *user, int64_t tensor, uint64_t first, uint64_t count, const void *data);
    void *user;
} sl_state;

/* As the functions of checkpoint.h that bear the same names without _state. Like them, called by all ranks together. */
sluice_status sl_state_save(const sl_state *state, const sl_checkpoint_meta *meta, const char *folder, int keep,
                            char *path);
/* With `background`, `read` gives the values as they are at begin until finish returns. What `state` points to outlives
 * the save; `state` itself is copied. */
typedef struct sl_saving sl_saving;
sluice_status sl_state_save_begin(const sl_state *state, const sl_checkpoint_meta *meta, const char *folder, int keep,
                                  bool background, sl_saving **out);
bool sl_saving_done(sl_saving *s);
sluice_status sl_state_save_finish(sl_saving *s, char *path);
/* identity NULL: any model whose tensors match. weights_only: what weights files do not hold is left alone.
 * `folder` may also be one step-N. *found is false, and meta zero, where there is no checkpoint. */
sluice_status sl_state_load(const sl_state *state, const char *folder, const sl_identity *identity, bool weights_only,
                            const sl_log *log, sl_checkpoint_meta *meta, bool *found);
sluice_status sl_state_weights_save(const sl_state *state, const char *path);
sluice_status sl_state_weights_load(const sl_state *state, const char *path);
sluice_status sl_state_sha256(const sl_state *state, double loss_scale, char weights[65], char optimizer[65]);
/* Elements [first, first+count) of a tensor on every rank, whoever owns them. */
sluice_status sl_state_read_all(const sl_state *state, int64_t tensor, uint64_t first, uint64_t count, float *out);

/* The name of a weight, or of a part of one, in the files that are written: `name` itself, or made in `buffer`. */
const char *sl_state_file_name(const sl_state *state, const char *name, char *buffer, size_t bytes);

/* Index of the first run of `rank` that ends behind `element`; owned_count where there is none. */
int64_t sl_state_find_owned(const sl_state *state, int64_t tensor, int rank, uint64_t element);

static inline bool sl_state_is_weight(const sl_state_tensor *t)
{
    return strcmp(t->kind, SL_KIND_WEIGHT) == 0;
}

static inline bool sl_state_is_counter(const sl_state_tensor *t)
{
    return strcmp(t->kind, SL_KIND_COUNTER) == 0;
}

/* Whether weights files hold it too. */
static inline bool sl_state_is_in_files(const sl_state_tensor *t)
{
    return sl_state_is_weight(t) || strcmp(t->kind, SL_KIND_BUFFER) == 0 || sl_state_is_counter(t);
}

#endif

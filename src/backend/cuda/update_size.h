/* update_size.h: how the kernels of the update phase lay out their workspace, and so how much of it they need. Plain C,
 * known without CUDA: plans for a GPU are made anywhere. */
#ifndef SL_BACKEND_CUDA_UPDATE_SIZE_H
#define SL_BACKEND_CUDA_UPDATE_SIZE_H

#ifdef __cplusplus
extern "C" {
#endif
#include "backend/cuda/cuda_kernels.h"
#include "core/bytes.h"
#include "ir/graph.h"
#ifdef __cplusplus
}
#endif

/* Words of an update's table that travel with a launch; longer tables lie in the workspace. */
#define SL_CUDA_UPDATE_WORDS 160
/* The table: words for each run of a group, gaps included, and for each run of wide blocks. */
#define SL_CUDA_RUN_WORDS  2
#define SL_CUDA_WIDE_WORDS 3
/* Leaves that one block adds up in a pairwise tree: a power of two. */
#define SL_CUDA_TREE_LEAVES 4096

/* Where the parts of an update's workspace begin, in bytes. */
typedef struct sl_cuda_update_layout {
    uint64_t table;    /* int64 words; takes nothing where they travel with the launch */
    uint64_t partials; /* LAMB, LARS: two doubles for every piece of a parameter in a leaf */
    uint64_t rates;    /* LAMB, LARS: a float for every run */
    uint64_t bytes;    /* of all */
} sl_cuda_update_layout;

static inline uint64_t sl_cuda_align(uint64_t bytes)
{
    return (bytes + 255) & ~(uint64_t)255;
}

/* Segments with a gap before, between and behind them. */
static inline uint64_t sl_cuda_most_runs(const sl_update_rule *r)
{
    return 2 * (uint64_t)r->segment_count + 1;
}

/* A run of the layer needs no more than the whole. */
static inline sl_cuda_update_layout sl_cuda_update_layout_of(const sl_update_rule *r)
{
    sl_cuda_update_layout l = { 0, 0, 0, 0 };
    uint64_t runs = sl_cuda_most_runs(r), leaves = 0, words = runs * SL_CUDA_RUN_WORDS;
    if (r->layer != NULL) words += (uint64_t)r->layer->wide_block_runs * SL_CUDA_WIDE_WORDS;
    if (words > SL_CUDA_UPDATE_WORDS) l.bytes = sl_cuda_align(words * sizeof(int64_t));
    l.partials = l.rates = l.bytes;
    if (!sl_updates[r->kind].whole_parameters) return l;
    if (r->segment_count > 0) {
        const sl_update_segment *last = &r->segments[r->segment_count - 1];
        leaves = (uint64_t)sl_ceil_div(last->offset + last->count, SL_CUT_ELEMENTS);
    }
    l.rates = l.partials + sl_cuda_align((leaves + runs) * 2 * sizeof(double));
    l.bytes = l.rates + sl_cuda_align(runs * sizeof(float));
    return l;
}

/* NORM_FINISH: the sums of each level of the tree but the last. */
static inline uint64_t sl_cuda_tree_bytes(int64_t leaves)
{
    uint64_t bytes = 0;
    while (leaves > SL_CUDA_TREE_LEAVES) {
        leaves = sl_ceil_div(leaves, SL_CUDA_TREE_LEAVES);
        bytes += sl_cuda_align((uint64_t)leaves * sizeof(double));
    }
    return bytes;
}

/* For UPDATE, NORM_LEAVES, NORM_FINISH and ACCUMULATE. */
static inline uint64_t sl_cuda_update_workspace(sl_op op, const sl_cuda_args *a)
{
    if (op == SL_OP_NORM_FINISH) return sl_cuda_tree_bytes(a->in[0].elements);
    if (op != SL_OP_UPDATE || a->attrs == NULL || a->attrs->update == NULL) return 0;
    return sl_cuda_update_layout_of(a->attrs->update).bytes;
}

#endif

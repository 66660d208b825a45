/* attention_size.h: the workspace of attention. Plain C: plans are made without CUDA. */
#ifndef SL_BACKEND_CUDA_ATTENTION_SIZE_H
#define SL_BACKEND_CUDA_ATTENTION_SIZE_H

#include "backend/cuda/kernels.h"

/* ATTENTION_GRAD keeps two numbers per query and head, lse in units of log 2 and dout . out, as [B, H, T] with T up to
 * a multiple of this: tiles of queries never end inside a row, and rows begin at 16 bytes. */
#define SL_ATTENTION_ROUND 128

static inline int64_t sl_attention_round(int64_t queries)
{
    return (queries + SL_ATTENTION_ROUND - 1) / SL_ATTENTION_ROUND * SL_ATTENTION_ROUND;
}

/* ---- cuDNN (attention_cudnn.h) ---- */

/* Whether it is asked before the kernels of this folder. */
#define SL_ATTENTION_CUDNN_FORWARD  0
#define SL_ATTENTION_CUDNN_BACKWARD 0

/* Its gradient keeps ds in the workspace, so a call is cut into pieces of about so many bytes of it. */
#define SL_CUDNN_PIECE_BYTES ((uint64_t)512 << 20)

#define SL_CUDNN_WIDTH 256 /* of heads, at most */

/* Bytes that a plan may ask for. Those of the gradient: ds in 16 bits in whole tiles and, where heads share keys, dk
 * and dv of each in f32. Version 9.19 asks for this and some hundred bytes. */
static inline uint64_t sl_cudnn_plan_room(bool backward, int64_t batches, int64_t heads, int64_t key_heads,
                                          int64_t queries, int64_t keys, int64_t width)
{
    const uint64_t fixed = (uint64_t)1 << 20, all = (uint64_t)(batches * heads);
    const uint64_t rows = (uint64_t)sl_attention_round(queries), columns = (uint64_t)sl_attention_round(keys);
    if (!backward) return fixed;
    return fixed + all * columns * (2 * rows + (heads != key_heads ? 8 * (uint64_t)width : 0));
}

/* How many batches and key heads a piece of the gradient has: whole batches while one fits, then groups of heads. Zero
 * heads: none fits. */
typedef struct sl_cudnn_cut {
    int64_t batches, key_heads;
} sl_cudnn_cut;

static inline sl_cudnn_cut sl_cudnn_cut_of(int64_t batches, int64_t heads, int64_t key_heads, int64_t queries,
                                           int64_t keys, int64_t width)
{
    const int64_t group = heads / key_heads;
    sl_cudnn_cut cut = { batches, key_heads };
    while (sl_cudnn_plan_room(true, cut.batches, cut.key_heads * group, cut.key_heads, queries, keys, width) >
           SL_CUDNN_PIECE_BYTES) {
        int64_t *part = cut.batches > 1 ? &cut.batches : &cut.key_heads;
        const int64_t whole = cut.batches > 1 ? batches : key_heads;
        if (--*part == 0) break;
        while (whole % *part != 0) --*part;
    }
    return cut;
}

/* delta of a piece, in front of the plan's own. */
static inline uint64_t sl_cudnn_delta_bytes(int64_t batches, int64_t heads, int64_t queries)
{
    return ((uint64_t)(batches * heads * queries) * sizeof(float) + 255) / 256 * 256;
}

static inline uint64_t sl_cudnn_workspace(sl_op op, const sl_cuda_args *a)
{
    const bool backward = op == SL_OP_ATTENTION_GRAD;
    const int64_t *q = a->in[0].shape->dim, *k = a->in[a->attrs->attention.packed ? 0 : 1].shape->dim;
    const int64_t heads = a->attrs->attention.heads, key_heads = a->attrs->attention.kv_heads;
    const int64_t width = a->attrs->attention.head_width;
    if (sl_cuda_type(op, a) == SL_FORM_F32 || key_heads == 0) return 0;
    if (!backward) return sl_cudnn_plan_room(false, q[0], heads, key_heads, q[1], k[1], width);
    const sl_cudnn_cut cut = sl_cudnn_cut_of(q[0], heads, key_heads, q[1], k[1], width);
    if (cut.key_heads == 0) return 0;
    const int64_t piece = cut.key_heads * (heads / key_heads);
    return sl_cudnn_delta_bytes(cut.batches, piece, q[1]) +
           sl_cudnn_plan_room(true, cut.batches, piece, cut.key_heads, q[1], k[1], width);
}

/* ---- all ---- */

static inline uint64_t sl_cuda_attention_workspace(sl_op op, const sl_cuda_args *a)
{
    const bool backward = op == SL_OP_ATTENTION_GRAD;
    const int64_t *dim = a->in[0].shape->dim;
    const uint64_t own =
        2 * sizeof(float) * (uint64_t)(dim[0] * a->attrs->attention.heads * sl_attention_round(dim[1]));
    const uint64_t kernels = backward ? own : 0;
    const bool asked = backward ? SL_ATTENTION_CUDNN_BACKWARD : SL_ATTENTION_CUDNN_FORWARD;
    const uint64_t cudnn = asked ? sl_cudnn_workspace(op, a) : 0;
    return cudnn > kernels ? cudnn : kernels; /* which of them serves is known later */
}

#endif

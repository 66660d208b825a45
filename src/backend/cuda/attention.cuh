/* attention.cuh: what the kernels of attention have in common: the operands of a call and where its blocks work.
 *
 * Three families compute it. On warpgroups of sm_90a (attention_hopper.cuh): 16-bit types and heads of 64 or 128. On
 * tensor cores (attention_forward.cu, attention_backward.cu): 16-bit types and heads of a multiple of 8 up to
 * SL_ATTENTION_TENSOR_WIDTH. In plain arithmetic (attention_general.cu): everything else. Which one depends on shape,
 * type and the GPU's architecture alone. No family forms T x S, and none uses atomics: every sum belongs to one block,
 * which visits tiles in order.
 *
 * Windows, documents and soft caps have kernels of their own (template flag `limited`; attention_limits.cuh), so that
 * plain attention is compiled as if there were none. Scores are capped, and keys beyond a batch's length hidden, by the last
 * two families alone. */
#ifndef SL_BACKEND_CUDA_ATTENTION_CUH
#define SL_BACKEND_CUDA_ATTENTION_CUH

#include "backend/cuda/elem.cuh"

extern "C" {
#include "backend/cuda/attention_size.h"
}

#define SL_ATTENTION_TENSOR_WIDTH 256
#define SL_LOG2_E                 1.4426950408889634f

/* Heads of one operand: head h of row t in batch b starts at data + b * batch + t * row + h * width. */
struct AttentionHeads {
    void *data; /* NULL: not wanted */
    int64_t row, batch;
};

struct AttentionCall {
    int batches, query_heads, key_heads, group; /* group: query heads per key head */
    int width, queries, keys;                   /* of one head; T and S */
    bool causal;
    float scale;
    int multiprocessors; /* for grids; 0: not known */
    AttentionHeads q, k, v, out;
    float *lse;                      /* [batches, query_heads, queries] */
    AttentionHeads dq, dk, dv, dout; /* backward */
    /* Workspace of the backward, [batches, query_heads, rounded]; zero from `queries` on. */
    float *lse2, *delta; /* lse / log 2; dout . out */
    int64_t rounded;
    /* What the limited kernels read. */
    const int32_t *positions; /* [batches, queries]; NULL: a row is one document */
    const int32_t *lengths;   /* [batches]: keys that count, of queries that see all; NULL: all do */
    int window;               /* 0: none */
    float softcap;            /* 0: none */
};

/* Queue the work on the stream. The head width fits SL_ATTENTION_TENSOR_WIDTH, addresses are multiples of 16. */
void sl_attention_forward_tensor(const AttentionCall &c, sl_form form, void *stream);
void sl_attention_backward_tensor(const AttentionCall &c, sl_form form, void *stream);
void sl_attention_forward_general(const AttentionCall &c, sl_form form, void *stream);
void sl_attention_backward_general(const AttentionCall &c, sl_form form, void *stream);

__host__ __device__ static inline int attention_tiles(int64_t rows, int tile)
{
    return (int)((rows + tile - 1) / tile);
}

inline namespace SL_KERNELS
{
/* The work of a block: a tile of one head. Heads change fastest, so that blocks of a group run together and share its
 * keys in the second-level cache; tiles change last, the longest first where some are shorter. */
struct Place {
    int batch, head, tile;
};

__device__ __forceinline__ Place place_of(unsigned block, int batches, int heads)
{
    unsigned all = (unsigned)(batches * heads), which = block % all;
    return { (int)(which / (unsigned)heads), (int)(which % (unsigned)heads), (int)(block / all) };
}

template <class T>
__device__ __forceinline__ T *head_at(const AttentionHeads &x, int batch, int64_t row, int head, int width)
{
    return (T *)x.data + batch * x.batch + row * x.row + (int64_t)head * width;
}
} // namespace SL_KERNELS

#endif

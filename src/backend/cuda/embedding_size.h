/* embedding_size.h: how EMBEDDING_GRAD sorts tokens by id, and the workspace that follows. Plain C: plans are made
 * without CUDA.
 *
 * A stable radix sort, least digit first: a pass counts digits per tile of tokens, sums the counts, and moves the
 * tokens. Ids outside the table get the key `vocabulary`, behind all others. */
#ifndef SL_BACKEND_CUDA_EMBEDDING_SIZE_H
#define SL_BACKEND_CUDA_EMBEDDING_SIZE_H

#include "backend/cuda/cuda_kernels.h"

#define SL_SORT_WARPS  8
#define SL_SORT_ROUNDS 16 /* tokens that a lane of a tile has */
#define SL_SORT_TILE   (SL_SORT_WARPS * SL_SORT_ROUNDS * 32)
#define SL_SORT_BITS   9 /* of a digit, at most: two passes for 2^18 ids */
#define SL_SORT_BINS   (1 << SL_SORT_BITS)

typedef struct sl_sort_cut {
    int64_t tokens, vocabulary, tiles;
    int passes, bits; /* per pass */
} sl_sort_cut;

static inline sl_sort_cut sl_sort_cut_of(const sl_cuda_args *a)
{
    sl_sort_cut cut;
    cut.tokens = a->in[0].elements;
    cut.vocabulary = a->out[0].shape->dim[0];
    cut.tiles = (cut.tokens + SL_SORT_TILE - 1) / SL_SORT_TILE;
    int bits = 1;
    while (cut.vocabulary >> bits != 0) bits++;
    cut.passes = (bits + SL_SORT_BITS - 1) / SL_SORT_BITS;
    cut.bits = (bits + cut.passes - 1) / cut.passes;
    return cut;
}

/* Two copies of keys and positions, then counts [bins, tiles] and their sums [bins]: all of four bytes. */
static inline uint64_t sl_cuda_embedding_workspace(sl_op op, const sl_cuda_args *a)
{
    if (op != SL_OP_EMBEDDING_GRAD) return 0;
    const sl_sort_cut cut = sl_sort_cut_of(a);
    return (uint64_t)(4 * cut.tokens + SL_SORT_BINS * (cut.tiles + 1)) * sizeof(uint32_t);
}

#endif

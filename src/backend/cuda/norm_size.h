/* norm_size.h: how the norms cut their work, and the workspace that follows. Plain C: plans are made without CUDA.
 *
 * A row is read in pieces of 16 bytes. Its threads, whole warps, hold up to SL_NORM_PIECES of them each in registers;
 * thread t has the pieces t, t + threads, .. . Short rows lie side by side in a block. The gradients of weight and bias
 * are sums over rows: each group of consecutive rows is summed by one block, then the groups are summed. All of this
 * depends on shape and type alone, and so do the bits. */
#ifndef SL_BACKEND_CUDA_NORM_SIZE_H
#define SL_BACKEND_CUDA_NORM_SIZE_H

#include "backend/cuda/cuda_kernels.h"

#define SL_NORM_PIECES       4
#define SL_NORM_THREADS      512   /* of a row, at most; with 128 registers each they fill a multiprocessor */
#define SL_NORM_BLOCK        128   /* threads that short rows are put together to */
#define SL_NORM_GROUP_ROWS   16    /* at least: sums of fewer rows would cost as much traffic as the rows */
#define SL_NORM_GRID_THREADS 65536 /* of the gradient, wanted: 128 multiprocessors filled once */

typedef struct sl_norm_cut {
    int64_t rows, width;
    int64_t pieces;             /* of a row */
    int each;                   /* pieces per thread; 0: the row is too long for registers and is read again */
    int threads;                /* of a row */
    int abreast;                /* rows side by side in a block */
    int64_t groups, group_rows; /* group_rows is a multiple of abreast; the last group may be short */
} sl_norm_cut;

static inline int64_t sl_norm_ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* The number of pieces per thread that leaves the fewest places empty; of equals the largest: fewer warps must agree
 * on a sum. */
static inline void sl_norm_cut_row(sl_norm_cut *cut)
{
    int64_t least = INT64_MAX;
    cut->each = 0;
    cut->threads = SL_NORM_THREADS;
    for (int each = SL_NORM_PIECES; each >= 1; each--) {
        int64_t threads = sl_norm_ceil_div(cut->pieces, 32 * each) * 32;
        if (threads > SL_NORM_THREADS || threads * each >= least) continue;
        least = threads * each;
        cut->each = each;
        cut->threads = (int)threads;
    }
}

static inline sl_norm_cut sl_norm_cut_of(const sl_cuda_tensor *x)
{
    sl_norm_cut cut;
    cut.width = x->shape->rank > 0 ? x->shape->dim[x->shape->rank - 1] : 1;
    cut.rows = x->elements / cut.width;
    cut.pieces = sl_norm_ceil_div(cut.width, x->form == SL_FORM_F32 ? 4 : 8);
    sl_norm_cut_row(&cut);
    cut.abreast = cut.threads < SL_NORM_BLOCK ? SL_NORM_BLOCK / cut.threads : 1;
    int64_t wanted = SL_NORM_GRID_THREADS / (cut.threads * cut.abreast);
    cut.group_rows = sl_norm_ceil_div(cut.rows, wanted);
    if (cut.group_rows < SL_NORM_GROUP_ROWS) cut.group_rows = SL_NORM_GROUP_ROWS;
    cut.group_rows = sl_norm_ceil_div(cut.group_rows, cut.abreast) * cut.abreast;
    cut.groups = sl_norm_ceil_div(cut.rows, cut.group_rows);
    return cut;
}

/* Sums of groups, in f32: [groups, width] for the weight, then the same for the bias, each where it is wanted. */
static inline uint64_t sl_cuda_norm_workspace(sl_op op, const sl_cuda_args *a)
{
    if (op != SL_OP_LAYER_NORM_GRAD && op != SL_OP_RMS_NORM_GRAD) return 0;
    const sl_norm_cut cut = sl_norm_cut_of(&a->in[0]);
    uint64_t sums = 0;
    for (int i = 1; i < a->output_count; i++) sums += a->out[i].data != NULL;
    return sums * (uint64_t)(cut.groups * cut.width) * sizeof(float);
}

#endif

/* reduce_size.h: how sums are cut, and the workspace that follows. Plain C: plans are made without CUDA.
 *
 * A sum of many elements is cut into parts, each summed by threads of one block; a second pass sums the parts. Where
 * the innermost axis is kept (a bias [C] from [N, C]) a part is a run of the summed positions, and columns lie side by
 * side; where it is summed ([N, 1] from [N, C]) a part is a run of the elements that make one output. All of it depends
 * on shape and type alone, and so do the bits. */
#ifndef SL_BACKEND_CUDA_REDUCE_SIZE_H
#define SL_BACKEND_CUDA_REDUCE_SIZE_H

#include "backend/axes.h"
#include "backend/cuda/cuda_kernels.h"

#define SL_SUM_THREADS   256  /* of a block that sums a run of elements */
#define SL_SUM_PART      8192 /* elements of a run: 32 for each thread */
#define SL_SUM_SHORT     1024 /* runs up to this are one warp's */
#define SL_COLUMN_LANES  8    /* threads that share a column of a part */
#define SL_COLUMN_BLOCKS 1024 /* of the first pass, about: several for each multiprocessor of today's largest */
#define SL_COLUMN_LEAST  64   /* positions of a part, at least, unless there are fewer */
#define SL_COLUMN_MOST   4096 /* and at most: a thread adds 512 numbers */
#define SL_REDUCE_DY     0    /* operands of the axes */
#define SL_REDUCE_OTHER  1
#define SL_REDUCE_OUT    2

/* How REDUCE_TO and MULTIPLY_REDUCE work. */
typedef struct sl_reduce_cut {
    sl_axes kept, summed; /* the axes before the innermost one */
    int64_t kept_count, summed_count;
    int64_t inner;      /* the innermost axis */
    int64_t other_step; /* along it: 1, or 0 for one element repeated */
    bool columns;       /* it is kept */
    int64_t parts;
    int64_t part; /* summed positions, or elements, of each part but the last */
} sl_reduce_cut;

static inline int64_t sl_reduce_ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static inline void sl_reduce_take_axis(sl_axes *to, const sl_axes *from, int axis, int64_t *count)
{
    to->dim[to->rank] = from->dim[axis];
    for (int k = 0; k < SL_AXES_OPERANDS; k++) to->stride[k][to->rank] = from->stride[k][axis];
    to->rank++;
    *count *= from->dim[axis];
}

static inline void sl_reduce_cut_columns(sl_reduce_cut *c, sl_form form)
{
    int64_t tile = 32 * (form == SL_FORM_F32 ? 4 : 8);
    int64_t tiles = c->kept_count * sl_reduce_ceil_div(c->inner, tile);
    int64_t least = sl_reduce_ceil_div(c->summed_count, SL_COLUMN_MOST);
    int64_t most = sl_reduce_ceil_div(c->summed_count, SL_COLUMN_LEAST);
    int64_t parts = SL_COLUMN_BLOCKS / tiles;
    if (parts > most) parts = most;
    if (parts < least) parts = least;
    c->part = sl_reduce_ceil_div(c->summed_count, parts);
    c->parts = sl_reduce_ceil_div(c->summed_count, c->part);
}

/* dy [N ..] -> out, with `other` broadcast to dy, or dy itself where there is no factor. */
static inline sl_reduce_cut sl_reduce_cut_of(const sl_cuda_args *a, const sl_cuda_tensor *other, sl_form form)
{
    const sl_shape *operands[SL_AXES_OPERANDS] = { a->in[0].shape, other->shape, a->out[0].shape };
    const sl_axes axes = sl_axes_make(a->in[0].shape, operands, SL_AXES_OPERANDS);
    const int last = axes.rank - 1;
    sl_reduce_cut c = { { 0, { 0 }, { { 0 } } }, { 0, { 0 }, { { 0 } } }, 1, 1, 0, 0, false, 1, 0 };
    for (int i = 0; i < last; i++) {
        if (axes.stride[SL_REDUCE_OUT][i] != 0)
            sl_reduce_take_axis(&c.kept, &axes, i, &c.kept_count);
        else
            sl_reduce_take_axis(&c.summed, &axes, i, &c.summed_count);
    }
    c.inner = axes.dim[last];
    c.other_step = axes.stride[SL_REDUCE_OTHER][last];
    c.columns = axes.stride[SL_REDUCE_OUT][last] != 0;
    if (c.columns) {
        sl_reduce_cut_columns(&c, form);
        return c;
    }
    c.part = SL_SUM_PART;
    c.parts = sl_reduce_ceil_div(c.summed_count * c.inner, SL_SUM_PART);
    return c;
}

/* Sums of whole tensors: a double for each part. Others: a float for each part of each output, none where there is one
 * part. */
static inline uint64_t sl_cuda_reduce_workspace(sl_op op, const sl_cuda_args *a)
{
    if (op != SL_OP_REDUCE_TO && op != SL_OP_MULTIPLY_REDUCE)
        return (uint64_t)sl_reduce_ceil_div(a->in[0].elements, SL_SUM_PART) * sizeof(double);
    const sl_reduce_cut c = sl_reduce_cut_of(a, &a->in[op == SL_OP_MULTIPLY_REDUCE], sl_cuda_type(op, a));
    return c.parts > 1 ? (uint64_t)(c.parts * a->out[0].elements) * sizeof(float) : 0;
}

#endif

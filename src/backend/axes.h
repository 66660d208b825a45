/* axes.h: several tensors walked over one index space, each broadcast to it as NumPy does. Plain C, and C++ for the
 * kernels of CUDA.
 *
 * The space is the shape of the largest tensor. Dimensions of length 1 are dropped and neighbours that every operand
 * walks alike are merged, so that the common cases (equal shapes, a bias row) end with one or two axes and a long
 * innermost run. */
#ifndef SL_BACKEND_AXES_H
#define SL_BACKEND_AXES_H

#include <stdbool.h>

#include "ir/op.h"

#define SL_AXES_OPERANDS 3

typedef struct sl_axes {
    int rank; /* of sl_axes_make: at least 1 */
    int64_t dim[SL_MAX_RANK];
    int64_t stride[SL_AXES_OPERANDS][SL_MAX_RANK]; /* in elements; 0: the operand is repeated along the axis */
} sl_axes;

/* A position in some leading axes, with every operand's offset. */
typedef struct sl_cursor {
    int64_t index[SL_MAX_RANK];
    int64_t offset[SL_AXES_OPERANDS];
} sl_cursor;

static inline void sl_axes_strides(const sl_shape *space, const sl_shape *operand, int64_t stride[SL_MAX_RANK])
{
    int64_t next = 1;
    int shift = space->rank - operand->rank;
    for (int i = space->rank - 1; i >= 0; i--) {
        int64_t n = i >= shift ? operand->dim[i - shift] : 1;
        stride[i] = n == 1 ? 0 : next;
        next *= n;
    }
}

static inline bool sl_axes_mergeable(const sl_axes *x, int outer, int count)
{
    for (int k = 0; k < count; k++)
        if (x->stride[k][outer] != x->stride[k][outer + 1] * x->dim[outer + 1]) return false;
    return true;
}

static inline void sl_axes_drop(sl_axes *x, int axis, int count)
{
    x->rank--;
    for (int i = axis; i < x->rank; i++) {
        x->dim[i] = x->dim[i + 1];
        for (int k = 0; k < count; k++) x->stride[k][i] = x->stride[k][i + 1];
    }
}

/* operands[0 .. count) broadcast to `space`. */
static inline sl_axes sl_axes_make(const sl_shape *space, const sl_shape *const *operands, int count)
{
    sl_axes x = { 0, { 0 }, { { 0 } } };
    x.rank = space->rank;
    for (int i = 0; i < space->rank; i++) x.dim[i] = space->dim[i];
    for (int k = 0; k < count; k++) sl_axes_strides(space, operands[k], x.stride[k]);
    for (int i = x.rank - 1; i >= 0; i--)
        if (x.dim[i] == 1) sl_axes_drop(&x, i, count);
    for (int i = x.rank - 2; i >= 0; i--) {
        if (!sl_axes_mergeable(&x, i, count)) continue;
        x.dim[i + 1] *= x.dim[i];
        sl_axes_drop(&x, i, count);
    }
    if (x.rank == 0) {
        x.rank = 1;
        x.dim[0] = 1;
    }
    return x;
}

/* Position `flat` of the first `rank` axes, row-major. */
static inline sl_cursor sl_cursor_at(const sl_axes *x, int rank, int64_t flat)
{
    sl_cursor c = { { 0 }, { 0 } };
    for (int i = rank - 1; i >= 0; i--) {
        c.index[i] = flat % x->dim[i];
        flat /= x->dim[i];
        for (int k = 0; k < SL_AXES_OPERANDS; k++) c.offset[k] += c.index[i] * x->stride[k][i];
    }
    return c;
}

static inline void sl_cursor_next(const sl_axes *x, int rank, sl_cursor *c)
{
    for (int i = rank - 1; i >= 0; i--) {
        c->index[i]++;
        for (int k = 0; k < SL_AXES_OPERANDS; k++) c->offset[k] += x->stride[k][i];
        if (c->index[i] < x->dim[i]) return;
        for (int k = 0; k < SL_AXES_OPERANDS; k++) c->offset[k] -= c->index[i] * x->stride[k][i];
        c->index[i] = 0;
    }
}

#endif

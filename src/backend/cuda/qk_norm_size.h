/* qk_norm_size.h: how QK_NORM_GRAD cuts its rows, and the workspace that follows. Plain C: plans are made without CUDA.
 *
 * A block takes a group of consecutive rows; its sums for the two weights lie in the workspace, and groups are summed
 * afterwards. All of this depends on shape alone, and so do the bits. */
#ifndef SL_BACKEND_CUDA_QK_NORM_SIZE_H
#define SL_BACKEND_CUDA_QK_NORM_SIZE_H

#include "backend/cuda/cuda_kernels.h"

#define SL_QK_NORM_GROUPS     512 /* at most: four blocks for each of 128 multiprocessors */
#define SL_QK_NORM_GROUP_ROWS 2   /* at least */

static inline int64_t sl_qk_norm_group_rows(int64_t rows)
{
    int64_t each = (rows + SL_QK_NORM_GROUPS - 1) / SL_QK_NORM_GROUPS;
    return each > SL_QK_NORM_GROUP_ROWS ? each : SL_QK_NORM_GROUP_ROWS;
}

/* Sums of groups, in f32: [groups, width] for the queries' weight, then for the keys', each where it is wanted. */
static inline uint64_t sl_cuda_qk_norm_workspace(sl_op op, const sl_cuda_args *a)
{
    const int64_t rows = a->in[0].shape->dim[0] * a->in[0].shape->dim[1], each = sl_qk_norm_group_rows(rows);
    uint64_t sums = 0;
    (void)op;
    for (int i = 1; i < a->output_count; i++) sums += a->out[i].data != NULL;
    return sums * (uint64_t)((rows + each - 1) / each * a->in[1].shape->dim[0]) * sizeof(float);
}

#endif

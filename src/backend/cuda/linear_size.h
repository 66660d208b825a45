/* linear_size.h: how the ops of cuda_linear.c and cuda_head.c cut their work, and the workspace that takes. Plain C without
 * CUDA: plans for a GPU are made where there is none. Everything depends on shape and form alone (exact rule 6). */
#ifndef SL_BACKEND_CUDA_LINEAR_SIZE_H
#define SL_BACKEND_CUDA_LINEAR_SIZE_H

#include "backend/cuda/cuda_kernels.h"

static inline uint64_t sl_linear_element_bytes(sl_form form)
{
    return form == SL_FORM_BF16 || form == SL_FORM_F16 ? 2 : 4;
}

static inline uint64_t sl_linear_align(uint64_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

static inline int64_t sl_linear_last(const sl_cuda_tensor *t)
{
    return t->shape->rank == 0 ? 1 : t->shape->dim[t->shape->rank - 1];
}

/* ---- sums of columns: parts of the rows, each summed by itself, then the parts ---- */

/* What one block sums side by side: a warp whose threads load 16 bytes each. */
static inline int64_t sl_cuda_column_tile(sl_form form)
{
    return 32 * (16 / (int64_t)sl_linear_element_bytes(form));
}

#define SL_CUDA_COLUMN_BLOCKS 1024 /* of the first pass, about: several for each multiprocessor of today's largest */
#define SL_CUDA_COLUMN_ROWS   64   /* a part has at least these */

static inline int64_t sl_cuda_column_parts(int64_t rows, int64_t columns, sl_form form)
{
    int64_t tile = sl_cuda_column_tile(form), tiles = (columns + tile - 1) / tile;
    int64_t most = SL_CUDA_COLUMN_BLOCKS / tiles, parts = (rows + SL_CUDA_COLUMN_ROWS - 1) / SL_CUDA_COLUMN_ROWS;
    if (parts > most) parts = most;
    return parts < 1 ? 1 : parts;
}

static inline uint64_t sl_cuda_column_bytes(int64_t rows, int64_t columns, sl_form form)
{
    return (uint64_t)sl_cuda_column_parts(rows, columns, form) * (uint64_t)columns * sizeof(float);
}

/* ---- the head: chunks of rows whose logits exist at once ---- */

#if defined(SL_CUDA_EMULATE) /* tests: several chunks of few rows */
#define SL_CUDA_HEAD_BYTES 1024
#define SL_CUDA_HEAD_LEAST 128
#define SL_CUDA_HEAD_ROUND 32
#else
/* Of logits, at most, unless fewer than the least rows fit. Every chunk reads and writes all of dw in f32: with half as
 * many bytes that is a fifth of the head's time in a model of 128,256 classes. */
#define SL_CUDA_HEAD_BYTES ((uint64_t)448 << 20)
#define SL_CUDA_HEAD_LEAST 256 /* rows: fewer make slow products, and every chunk adds to all of dw */
#define SL_CUDA_HEAD_ROUND 128 /* rows of a chunk are a multiple of this */
#endif

/* Elements from one row of the logits to the next. Vocabularies are of any number, 30,522 or 50,257, and a product whose
 * rows do not all begin at 16 bytes cannot be loaded and stored in whole vectors: rows begin at cache lines. */
static inline int64_t sl_cuda_head_stride(int64_t classes, sl_form form)
{
    const int64_t line = 128 / (int64_t)sl_linear_element_bytes(form);
    return (classes + line - 1) / line * line;
}

static inline uint64_t sl_cuda_head_row_bytes(int64_t classes, sl_form form)
{
    return (uint64_t)sl_cuda_head_stride(classes, form) * sl_linear_element_bytes(form);
}

/* Rows of a chunk, the last one's perhaps fewer: as even as the rounding allows. */
static inline int64_t sl_cuda_head_rows(int64_t rows, int64_t classes, sl_form form)
{
    int64_t most = (int64_t)(SL_CUDA_HEAD_BYTES / sl_cuda_head_row_bytes(classes, form));
    most = most / SL_CUDA_HEAD_ROUND * SL_CUDA_HEAD_ROUND;
    if (most < SL_CUDA_HEAD_LEAST) most = SL_CUDA_HEAD_LEAST;
    if (rows <= most) return rows;
    int64_t chunks = (rows + most - 1) / most, each = (rows + chunks - 1) / chunks;
    return (each + SL_CUDA_HEAD_ROUND - 1) / SL_CUDA_HEAD_ROUND * SL_CUDA_HEAD_ROUND;
}

/* The workspace begins with a part for products and, where dbias is wanted, its sums of columns, which take turns. Behind
 * it: the chunk's logits, then the losses of all rows, then their count. */
static inline uint64_t sl_cuda_head_front(const sl_cuda_args *a)
{
    const sl_form form = sl_cuda_type(SL_OP_LINEAR_CROSS_ENTROPY, a);
    const int64_t rows = a->in[2].elements, classes = a->in[1].shape->dim[0];
    if (a->output_count < 5 || a->out[4].data == NULL) return SL_CUDA_GEMM_WORKSPACE;
    uint64_t sums = sl_cuda_column_bytes(sl_cuda_head_rows(rows, classes, form), classes, form);
    return sums > SL_CUDA_GEMM_WORKSPACE ? sl_linear_align(sums) : SL_CUDA_GEMM_WORKSPACE;
}

static inline uint64_t sl_cuda_head_logits_bytes(int64_t rows, int64_t classes, sl_form form)
{
    return sl_linear_align((uint64_t)sl_cuda_head_rows(rows, classes, form) * sl_cuda_head_row_bytes(classes, form));
}

static inline uint64_t sl_cuda_head_workspace(const sl_cuda_args *a)
{
    int64_t rows = a->in[2].elements, classes = a->in[1].shape->dim[0];
    return sl_cuda_head_front(a) +
           sl_cuda_head_logits_bytes(rows, classes, sl_cuda_type(SL_OP_LINEAR_CROSS_ENTROPY, a)) +
           sl_linear_align((uint64_t)(rows + 1) * sizeof(float));
}

/* ---- the ops ---- */

/* A result that is neither f32 nor of the operands' form is computed in f32 behind the products' part, then cast. */
static inline bool sl_cuda_casts_product(sl_form form, const sl_cuda_tensor *out)
{
    return out->form != SL_FORM_F32 && out->form != form;
}

static inline uint64_t sl_cuda_linear_workspace(sl_op op, const sl_cuda_args *a)
{
    const sl_form form = sl_cuda_type(op, a);
    uint64_t bytes = SL_CUDA_GEMM_WORKSPACE;
    if (op == SL_OP_LINEAR_CROSS_ENTROPY) return sl_cuda_head_workspace(a);
    if (a->out[0].data != NULL && sl_cuda_casts_product(form, &a->out[0]))
        bytes += (uint64_t)a->out[0].elements * sizeof(float);
    if (op == SL_OP_LINEAR_GRAD_WEIGHT && a->output_count > 1 && a->out[1].data != NULL) {
        int64_t columns = sl_linear_last(&a->in[0]);
        uint64_t sums = sl_cuda_column_bytes(a->in[0].elements / columns, columns, form);
        if (sums > bytes) bytes = sums;
    }
    return bytes;
}

#endif

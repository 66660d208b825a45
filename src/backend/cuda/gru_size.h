/* gru_size.h: the workspace of the GRU. Plain C without CUDA: plans are made where there is none. */
#ifndef SL_BACKEND_CUDA_GRU_SIZE_H
#define SL_BACKEND_CUDA_GRU_SIZE_H

#include <string.h>

#include "backend/cuda/linear_size.h"

typedef struct sl_gru_shape {
    int64_t batch, frames, width;
} sl_gru_shape;

/* Of GRU's h, or GRU_GRAD's. */
static inline sl_gru_shape sl_gru_shape_of(sl_op op, const sl_cuda_args *a)
{
    const sl_shape *h = op == SL_OP_GRU ? a->out[0].shape : a->in[2].shape;
    sl_gru_shape s = { h->dim[0], h->dim[1], h->dim[2] };
    return s;
}

/* States that gru_walk.cu takes: a block's part of the weight fits in 48 KiB of shared memory, and products are small beside
 * what a frame costs in launches. Others are products by the library. By shape alone: the two have bits of their own. */
#define SL_GRU_MOST_ELEMENTS 8
#define SL_GRU_WALK_WIDTH    512
#define SL_GRU_WALK_STATES   32768 /* elements of all sequences' states */
#define SL_GRU_BARRIER_BYTES 256

static inline bool sl_gru_walks(const sl_gru_shape *s)
{
    return s->width <= SL_GRU_WALK_WIDTH && s->batch * s->width <= SL_GRU_WALK_STATES;
}

static inline bool sl_gru_wants_weight(const sl_cuda_args *a)
{
    return a->out[1].data != NULL || (a->output_count > 2 && a->out[2].data != NULL);
}

/* The product that gives dw[3H,H] and dbias[3H]: LINEAR_GRAD_WEIGHT's of dgates[B,T,3H] and the states before [B,T,H],
 * which are in `form`. The shapes and attributes are the caller's, and must outlive it. */
static inline sl_cuda_args sl_gru_weight_product(const sl_cuda_args *a, void *dgates, void *previous,
                                                 sl_shape shapes[2], sl_attrs *attrs)
{
    const sl_gru_shape s = sl_gru_shape_of(SL_OP_GRU_GRAD, a);
    const sl_form form = sl_cuda_type(SL_OP_GRU_GRAD, a);
    sl_cuda_args product = *a;
    memset(attrs, 0, sizeof *attrs);
    memset(shapes, 0, 2 * sizeof *shapes);
    attrs->accumulate = a->attrs->accumulate >> 1;
    for (int i = 0; i < 2; i++) {
        shapes[i].rank = 3;
        shapes[i].dim[0] = s.batch;
        shapes[i].dim[1] = s.frames;
        shapes[i].dim[2] = (i == 0 ? 3 : 1) * s.width;
        product.in[i].data = i == 0 ? dgates : previous;
        product.in[i].shape = &shapes[i];
        product.in[i].elements = s.batch * s.frames * shapes[i].dim[2];
        product.in[i].form = form;
    }
    product.attrs = attrs;
    product.input_count = 2;
    product.output_count = a->output_count - 1;
    product.out[0] = a->out[1];
    product.out[1] = a->out[2];
    return product;
}

/* The part of the workspace that products use; ours begins behind it. */
static inline uint64_t sl_gru_products_bytes(sl_op op, const sl_cuda_args *a)
{
    sl_shape shapes[2];
    sl_attrs attrs;
    if (op == SL_OP_GRU || !sl_gru_wants_weight(a)) return SL_CUDA_GEMM_WORKSPACE;
    const sl_cuda_args product = sl_gru_weight_product(a, a->in[0].data, a->in[0].data, shapes, &attrs);
    return sl_linear_align(sl_cuda_linear_workspace(SL_OP_LINEAR_GRAD_WEIGHT, &product));
}

/* Floats handed from frame to frame: the state, or its gradient, of each sequence. */
static inline uint64_t sl_gru_state_bytes(const sl_gru_shape *s)
{
    return sl_linear_align((uint64_t)(s->batch * s->width) * sizeof(float));
}

/* Forward: the product with the state before, of one frame. Backward: the gradients of that product, of all frames. */
static inline uint64_t sl_gru_gates_bytes(sl_op op, const sl_gru_shape *s, sl_form form)
{
    const uint64_t gates = (uint64_t)(s->batch * 3 * s->width);
    if (op == SL_OP_GRU) return sl_linear_align(gates * sizeof(float));
    return sl_linear_align(gates * (uint64_t)s->frames * sl_linear_element_bytes(form));
}

/* What blocks of a walk share: a counter, and two buffers of states, or of gradients of gates. */
static inline uint64_t sl_gru_turns_bytes(sl_op op, const sl_gru_shape *s)
{
    if (!sl_gru_walks(s)) return 0;
    return sl_linear_align(SL_GRU_BARRIER_BYTES +
                           (uint64_t)(2 * s->batch * (op == SL_OP_GRU ? 1 : 3) * s->width) * sizeof(float));
}

/* In order: what products use, states, what a walk shares, gates; backward the states before. */
static inline uint64_t sl_cuda_gru_workspace(sl_op op, const sl_cuda_args *a)
{
    const sl_gru_shape s = sl_gru_shape_of(op, a);
    const sl_form form = sl_cuda_type(op, a);
    uint64_t bytes = sl_gru_products_bytes(op, a) + sl_gru_state_bytes(&s) + sl_gru_turns_bytes(op, &s) +
                     sl_gru_gates_bytes(op, &s, form);
    if (op == SL_OP_GRU_GRAD) bytes += (uint64_t)(s.batch * s.frames * s.width) * sl_linear_element_bytes(form);
    return bytes;
}

#endif

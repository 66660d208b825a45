/* gru_step.h: what cuda_gru.c asks of kernels: one frame of a GRU beside its matrix product, or all frames. */
#ifndef SL_BACKEND_CUDA_GRU_STEP_H
#define SL_BACKEND_CUDA_GRU_STEP_H

#include "backend/cuda/gru_size.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Frame `frame` of all sequences; `before`: the frame of the state before it, -1: none. Data on the device. */
typedef struct sl_gru_frame {
    sl_gru_shape shape;
    sl_form form;
    int64_t frame, before;
    bool first;             /* of those that are worked through: `state` and `product` hold nothing yet */
    const int32_t *lengths; /* NULL: all frames count */
    float *state;           /* [B,H]: forward the state, backward its gradient so far */
    /* forward */
    const void *gates_x, *bias;
    const float *product; /* [B,3H]: the state before times w */
    void *h;
    float *gates; /* [B,T,4H]; backward reads it */
    /* backward */
    const void *states, *dh; /* [B,T,H] */
    void *dgates_x;          /* NULL: not wanted */
    bool accumulate;         /* to dgates_x */
    void *dgates;            /* [B,T,3H] in `form` */
    void *previous;          /* [B,T,H] in `form`; NULL: not wanted */
} sl_gru_frame;

/* gru_step.cu */
sluice_status sl_cuda_gru_forward_frame(const sl_cuda_args *a, const sl_gru_frame *f);
sluice_status sl_cuda_gru_backward_frame(const sl_cuda_args *a, const sl_gru_frame *f);
/* gru_walk.cu: all frames, products included, of a shape that sl_gru_walks; backwards: by time. `turns`: what blocks share. f's
 * frame, before, first and product are not read; f->state is used backward alone. */
sluice_status sl_cuda_gru_walk(const sl_cuda_args *a, const sl_gru_frame *f, const void *weight, void *turns,
                               bool forward, bool backwards);

#ifdef __cplusplus
}
#endif
#endif

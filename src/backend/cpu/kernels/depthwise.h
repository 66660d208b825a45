/* depthwise.h: convolutions whose groups have one input and one output channel. Of a GEMM they would be columns of their own;
 * here sixteen channels are worked on at a time. */
#ifndef SL_BACKEND_CPU_DEPTHWISE_H
#define SL_BACKEND_CPU_DEPTHWISE_H

#include "backend/cpu/kernels/isa.h"

static inline bool sl_is_depthwise(const sl_attrs *attrs, const sl_shape *w)
{
    return attrs->conv.groups > 1 && w->dim[1] == 1 && w->dim[0] == attrs->conv.groups;
}

/* As the kernels of CONV2D and its gradients, but for the bias's gradient. */
void K(depthwise)(const sl_kernel_args *a);
void K(depthwise_grad_input)(const sl_kernel_args *a);
void K(depthwise_grad_weight)(const sl_kernel_args *a);

#endif

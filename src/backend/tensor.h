/* tensor.h: an operand as kernels get it, on every backend. */
#ifndef SL_BACKEND_TENSOR_H
#define SL_BACKEND_TENSOR_H

#include "ir/op.h"

typedef struct sl_tensor {
    void *data; /* NULL: absent optional operand. CUDA: on the device */
    const sl_shape *shape;
    int64_t elements; /* of the value; update ops: of the run (norm leaves: how many) */
    sl_form form;
} sl_tensor;

#endif

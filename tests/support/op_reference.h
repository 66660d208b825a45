/* op_reference.h: every operation once more, in double, written from op_list.h and as plainly as it can be. What kernels
 * are held to, and what finite differences are taken of. */
#ifndef SLUICE_TEST_OP_REFERENCE_H
#define SLUICE_TEST_OP_REFERENCE_H

#include "ir/graph.h"

typedef struct ref_tensor {
    const sl_shape *shape;
    double *data; /* indices are whole numbers; NULL: an output that is not wanted (its shape is set all the same) */
} ref_tensor;

typedef struct ref_call {
    sl_op op;
    const sl_attrs *attrs;
    int input_count, output_count;
    ref_tensor in[SL_MAX_INPUTS], out[SL_MAX_OUTPUTS];
    const sl_run_context *context;
} ref_call;

bool reference_has(sl_op op);
/* Overwrites the outputs, or adds to those named in attrs.accumulate. Inputs and outputs may share memory. */
void reference_run(const ref_call *call);

#endif

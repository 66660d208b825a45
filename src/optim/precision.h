/* precision.h: in what a run computes, exchanges gradients and keeps moments. */
#ifndef SL_OPTIM_PRECISION_H
#define SL_OPTIM_PRECISION_H

#include "sluice.h"

typedef struct sl_precision {
    sluice_dtype type;            /* F32, BF16 or F16: parameters in use, activations, gradients */
    sluice_dtype wire;            /* in what gradients are exchanged and kept; any of the three */
    sluice_states states;         /* moments */
    sluice_loss_scale loss_scale; /* F16 */
    bool check_overflow;          /* BF16: a step whose gradient is not finite while its losses are is skipped */
} sl_precision;

#endif

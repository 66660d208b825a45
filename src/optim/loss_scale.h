/* loss_scale.h: by how much the loss is multiplied in fp16, so that small gradients do not vanish. Step for step what
 * DeepSpeed's DynamicLossScaler does: an overflow halves the scale, once `hysteresis` of them have come; every `window`
 * steps without one double it. */
#ifndef SL_OPTIM_LOSS_SCALE_H
#define SL_OPTIM_LOSS_SCALE_H

#include <stdbool.h>
#include <stdint.h>

#include "sluice.h"

/* Plain data; part of the checkpoint. */
typedef struct sl_loss_scaler {
    double scale;
    int hysteresis;      /* overflows until the scale is halved; 1: the next one does */
    int64_t clean_steps; /* since the last overflow, or since the start */
} sl_loss_scaler;

/* DeepSpeed's defaults: dynamic, from 2^16. */
void sl_loss_scale_init(sluice_loss_scale *o);
void sl_loss_scale_start(const sluice_loss_scale *o, sl_loss_scaler *s);
/* After a step, with whether its gradient overflowed. A fixed scale never changes. False: the scale is at its minimum
 * and would have to fall; it is as it was, and training cannot go on. */
bool sl_loss_scale_update(const sluice_loss_scale *o, sl_loss_scaler *s, bool overflow);

#endif

/* loss_scale.c: see loss_scale.h. The order of the checks is DeepSpeed's, also where it surprises: halving does not
 * restore the hysteresis, so that overflows in a row halve every time, and the step after an overflow counts as
 * none. */
#include "optim/loss_scale.h"

#include <math.h>

#define SCALE_FACTOR 2.0

void sl_loss_scale_init(sluice_loss_scale *o)
{
    *o = (sluice_loss_scale){ .initial_power = 16, .window = 1000, .hysteresis = 2, .minimum = 1 };
}

void sl_loss_scale_start(const sluice_loss_scale *o, sl_loss_scaler *s)
{
    *s = (sl_loss_scaler){ .scale = o->fixed > 0 ? o->fixed : ldexp(1.0, o->initial_power),
                           .hysteresis = o->hysteresis };
}

static bool overflowed(const sluice_loss_scale *o, sl_loss_scaler *s)
{
    if (o->hysteresis != 1 && s->hysteresis != 1) {
        s->hysteresis--;
    } else {
        if (s->scale == o->minimum) return false;
        s->scale = fmax(s->scale / SCALE_FACTOR, o->minimum);
    }
    s->clean_steps = 0;
    return true;
}

bool sl_loss_scale_update(const sluice_loss_scale *o, sl_loss_scaler *s, bool overflow)
{
    if (o->fixed > 0) return true;
    if (overflow) return overflowed(o, s);
    bool grows = s->clean_steps > 0 && s->clean_steps % o->window == 0;
    if (grows || o->consecutive) s->hysteresis = o->hysteresis;
    if (grows) s->scale *= SCALE_FACTOR;
    s->clean_steps++;
    return true;
}

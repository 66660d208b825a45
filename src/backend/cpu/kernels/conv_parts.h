/* conv_parts.h: how CONV2D_GRAD_WEIGHT cuts the sum over pixels. Shared by the kernel and by who reserves its workspace. */
#ifndef SL_BACKEND_CPU_CONV_PARTS_H
#define SL_BACKEND_CPU_CONV_PARTS_H

#include "ir/op.h"

/* Small weights have few tiles for threads to share: pixels are cut too, into parts whose gradients are added in order. */
#define SL_CONV_MOST_PARTS   32
#define SL_CONV_LEAST_PIXELS 1024 /* of a part */
/* Elements of the gradients of all parts, if there are several. */
#define SL_CONV_PART_ELEMENTS ((int64_t)1 << 20)

/* A divisor of the number of pixels: parts are equal. By shape alone. */
static inline int64_t sl_conv_parts(int64_t pixels, const sl_shape *w, int groups)
{
    int64_t size = w->dim[0] * w->dim[1] * w->dim[2] * w->dim[3], parts = pixels / SL_CONV_LEAST_PIXELS;
    if (groups > 1) return 1;
    if (parts > SL_CONV_MOST_PARTS) parts = SL_CONV_MOST_PARTS;
    if (parts > SL_CONV_PART_ELEMENTS / size) parts = SL_CONV_PART_ELEMENTS / size;
    while (parts > 1 && pixels % parts != 0) parts--;
    return parts > 1 ? parts : 1;
}

#endif

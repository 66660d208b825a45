/* cuda_conv.h: what the convolutions of cuda_conv.c are made of. */
#ifndef SL_BACKEND_CUDA_CUDA_CONV_H
#define SL_BACKEND_CUDA_CUDA_CONV_H

#include "backend/cuda/conv_size.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- cudnn_conv.c: by cuDNN. Images are [n,h,w,c], filters [o,kh,kw,c/groups], all in `form`, sums in f32 ---- */

typedef struct sl_library_conv {
    sl_op op; /* which of x, w and y is the result */
    sl_cuda_conv conv;
    sl_form form;
    bool add; /* to what the result holds, in f32, rounded once */
    void *x, *w, *y;
} sl_library_conv;

/* Whether cuDNN is there and computes it: by an engine that gives the same bits on every run, keeps the precision of
 * the form, and needs no more than SL_CUDA_CONV_SCRATCH. It is the first such of the library's heuristic, without a
 * timing. Fails where that could not be found out. */
sluice_status sl_cuda_library_conv_find(const sl_cuda_args *a, const sl_library_conv *v, bool *found);
/* One that was found. Uses the first SL_CUDA_CONV_SCRATCH bytes of the workspace. */
sluice_status sl_cuda_library_conv_run(const sl_cuda_args *a, const sl_library_conv *v);

/* ---- conv.cu ---- */

/* Orders of filters in the workspace. Channels of a group, c/groups, are the last dimension that w has there. */
typedef enum {
    SL_FILTERS_OHWI, /* [o, kh, kw, channels]: channels past those of w are 0 */
    SL_FILTERS_IHWO, /* [groups, c/groups, kh, kw, o/groups] */
    SL_FILTERS_HWO   /* [kh, kw, o], of depthwise ones */
} sl_filter_order;

/* out = w, which is [o, c/groups, kh, kw], in another order. */
sluice_status sl_cuda_order_filters(const sl_cuda_args *a, sl_form form, const void *w, const sl_cuda_conv *c,
                                    sl_filter_order order, int64_t channels, void *out);
/* dw (+)= sums, which are [o, kh, kw, channels] in `form`; channels past those of dw are left out. */
sluice_status sl_cuda_restore_filters(const sl_cuda_args *a, sl_form form, const void *sums, const sl_cuda_conv *c,
                                      int64_t channels, bool accumulate, const sl_cuda_tensor *dw);
/* out[rows, channels] = x[rows, c] and zeros. */
sluice_status sl_cuda_pad_channels(const sl_cuda_args *a, sl_form form, const void *x, int64_t rows, int64_t c,
                                   int64_t channels, void *out);
/* y[rows, o] = bias[o] in each row. */
sluice_status sl_cuda_fill_rows(const sl_cuda_args *a, sl_form form, const void *bias, int64_t rows, int64_t o,
                                void *y);
/* out[rows, groups, kh, kw, channels of a group]: what the windows of places first.. of y see of x; or, for the gradient of
 * x, what of y sees the places first.. of x, and through which place of the filter. 0 where there is nothing. */
sluice_status sl_cuda_gather_columns(const sl_cuda_args *a, sl_op op, sl_form form, const void *from,
                                     const sl_cuda_conv *c, int64_t first, int64_t rows, void *out);
/* Depthwise, whole. filters: in the order HWO. */
sluice_status sl_cuda_depthwise(const sl_cuda_args *a, sl_form form, const sl_cuda_conv *c, const void *filters);
sluice_status sl_cuda_depthwise_grad_input(const sl_cuda_args *a, sl_form form, const sl_cuda_conv *c,
                                           const void *filters);
sluice_status sl_cuda_depthwise_grad_weight(const sl_cuda_args *a, sl_form form, const sl_cuda_conv *c);

#ifdef __cplusplus
}
#endif
#endif

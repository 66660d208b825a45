/* cuda_gemm.h: what the matrix products of cuda_linear.c and cuda_head.c are made of, besides sl_cuda_gemm_run (cuda_kernels.h). */
#ifndef SL_BACKEND_CUDA_CUDA_GEMM_H
#define SL_BACKEND_CUDA_CUDA_GEMM_H

#include "backend/cuda/cuda_kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* product.cu: as sl_cuda_gemm_run, without a library: each element is one chain of fused multiply-adds over k in order,
 * plus the bias. For what the library has no algorithm for; slow. out_form may be any float form. */
sluice_status sl_cuda_plain_product(const sl_cuda_args *a, const sl_cuda_gemm *g);

/* bias.cu: out[j] (+)= the sum over rows of x[row, j], in an order that rows, columns and form fix. x is in `form`, rows
 * `stride` apart, all of whose elements may be read; out in any float form. Uses sl_cuda_column_bytes (linear_size.h) of the workspace. */
sluice_status sl_cuda_sum_columns(const sl_cuda_args *a, sl_form form, const void *x, int64_t rows, int64_t columns,
                                  int64_t stride, bool accumulate, const sl_cuda_tensor *out);

#ifdef __cplusplus
}
#endif
#endif

/* strided_gemm.h: operands of GEMMs described by strides, and the one way to multiply them. */
#ifndef SL_BACKEND_CPU_STRIDED_GEMM_H
#define SL_BACKEND_CPU_STRIDED_GEMM_H

#include "backend/cpu/kernels/amx.h"
#include "backend/cpu/kernels/gemm.h"

/* t as a matrix whose rows are `row` long. */
static inline sl_matrix sl_rows_of(const sl_tensor *t, int64_t row)
{
    return (sl_matrix){ t->data, row, 1, t->form };
}

static inline sl_matrix sl_transposed(sl_matrix x)
{
    return (sl_matrix){ x.data, x.column, x.row, x.form };
}

/* On AMX tiles where the device has them and the operands are bf16, by gemm.h otherwise. */
static inline void sl_multiply(const sl_kernel_args *a, const sl_gemm *g)
{
#if defined(SL_HAVE_AMX)
    if (a->amx && sl_amx_takes(g)) {
        AMX(gemm)(a->pool, g);
        return;
    }
#endif
    KI(gemm)(a->pool, g);
}

#endif

/* plain_gemm.c: stands in for gemm.c and library.c in the emulated backend: matrix products in ordinary memory, so that
 * linear.c and head.c run unchanged where there is no GPU.
 *
 * Small products go through product.cu, the kernel for what cuBLASLt refuses, so that it is tested, too. Both ways give
 * the same bits: an element is a chain of fused multiply-adds over k. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "backend/cuda/cuda_gemm.h"
#include "backend/cuda/library.h"
#include "core/alloc.h"
#include "core/half.h"
#include "core/status.h"

#define KERNEL_MULTIPLIES 20000 /* up to these the emulated kernel is fast enough */

struct sl_cuda_libraries {
    bool tf32;
};

sluice_status sl_cuda_libraries_open(bool tf32, const sl_log *log, sl_cuda_libraries **out)
{
    (void)log;
    sl_cuda_libraries *l = sl_alloc(sizeof *l, "cuda libraries");
    if (l == NULL) return SLUICE_ERR_NO_MEMORY;
    l->tf32 = tf32;
    *out = l;
    return SLUICE_OK;
}

void sl_cuda_libraries_close(sl_cuda_libraries *l)
{
    sl_free(l);
}

void sl_cuda_libraries_text(char *out, size_t bytes)
{
    snprintf(out, bytes, "plain loops");
}

static float get(const void *p, sl_form form, int64_t i)
{
    if (form == SL_FORM_BF16) return sl_bf16_to_float(((const uint16_t *)p)[i]);
    if (form == SL_FORM_F16) return sl_f16_to_float(((const uint16_t *)p)[i]);
    return ((const float *)p)[i];
}

static void put(void *p, sl_form form, int64_t i, float x)
{
    if (form == SL_FORM_BF16)
        ((uint16_t *)p)[i] = sl_float_to_bf16(x);
    else if (form == SL_FORM_F16)
        ((uint16_t *)p)[i] = sl_float_to_f16(x);
    else
        ((float *)p)[i] = x;
}

/* A factor as dense rows of floats; not counted as an allocation of the program, which makes none here. */
static float *unpack(const void *x, sl_form form, int64_t first, int64_t rows, int64_t columns, int64_t stride,
                     bool transposed)
{
    float *out = malloc((size_t)(rows * columns) * sizeof *out);
    if (out == NULL) abort();
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++)
            out[i * columns + j] = get(x, form, first + (transposed ? j * stride + i : i * stride + j));
    return out;
}

static void multiply_one(const sl_cuda_gemm *g, int64_t batch)
{
    float *a = unpack(g->a, g->form, batch * g->batch_a, g->m, g->k, g->stride_a, g->transpose_a);
    float *b = unpack(g->b, g->form, batch * g->batch_b, g->k, g->n, g->stride_b, g->transpose_b);
    float *row = malloc((size_t)g->n * sizeof *row);
    if (row == NULL) abort();
    for (int64_t i = 0; i < g->m; i++) {
        const int64_t out = batch * g->batch_out + i * g->stride_out;
        for (int64_t j = 0; j < g->n; j++) row[j] = 0.0f;
        for (int64_t k = 0; k < g->k; k++) {
            const float left = a[i * g->k + k], *right = b + k * g->n;
            for (int64_t j = 0; j < g->n; j++) row[j] = fmaf(left, right[j], row[j]);
        }
        for (int64_t j = 0; j < g->n; j++) {
            float x = row[j];
            if (g->bias != NULL) x += get(g->bias, g->form, j);
            if (g->base != NULL) x += get(g->base, g->out_form, out + j);
            if (g->accumulate) x += get(g->out, g->out_form, out + j);
            put(g->out, g->out_form, out + j, x);
        }
    }
    free(row);
    free(b);
    free(a);
}

/* What gemm.c could not do, linear.c must not ask for. */
static sluice_status check(const sl_cuda_args *a, const sl_cuda_gemm *g)
{
    if (a->workspace == NULL || a->workspace_bytes < SL_CUDA_GEMM_WORKSPACE)
        return sl_fail(SLUICE_ERR_FAILED, "a matrix product without its workspace");
    if (g->out_form != SL_FORM_F32 && g->out_form != g->form)
        return sl_fail(SLUICE_ERR_FAILED, "a matrix product of form %d into form %d", (int)g->form, (int)g->out_form);
    if (g->batch < 1 || g->m < 1 || g->n < 1 || g->k < 1) return sl_fail(SLUICE_ERR_FAILED, "an empty matrix product");
    return SLUICE_OK;
}

/* Stored by the activation; p's GELU is of the sum itself, not of the rounded one, as the library's. */
static void put_activated(const sl_cuda_gemm *g, int64_t at, float p)
{
    if (g->activation == SL_CUDA_GELU) put(g->pre, g->out_form, at, p);
    const float x = g->activation == SL_CUDA_GELU ? p : get(g->pre, g->out_form, at);
    const float u = 0.797884561f * (x + 0.044715f * x * x * x), t = tanhf(u);
    const float slope = 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * 0.797884561f * (1 + 3 * 0.044715f * x * x);
    put(g->out, g->out_form, at, g->activation == SL_CUDA_GELU ? 0.5f * x * (1 + t) : p * slope);
}

/* Refuses rows that are no multiple of 8, as the library does. */
sluice_status sl_cuda_gemm_try(const sl_cuda_args *a, const sl_cuda_gemm *g, bool *done)
{
    sl_cuda_gemm plain = *g;
    *done = g->n % 8 == 0;
    if (!*done) return SLUICE_OK;
    float *sums = malloc((size_t)(g->m * g->n) * sizeof *sums);
    if (sums == NULL) abort();
    plain.activation = SL_CUDA_AS_IT_IS;
    plain.out = sums;
    plain.out_form = SL_FORM_F32;
    sluice_status st = sl_cuda_gemm_run(a, &plain);
    for (int64_t i = 0; i < g->m * g->n && st == SLUICE_OK; i++) put_activated(g, i, sums[i]);
    free(sums);
    return st;
}

sluice_status sl_cuda_gemm_run(const sl_cuda_args *a, const sl_cuda_gemm *g)
{
    SL_TRY(check(a, g));
    if (g->m * g->n * g->k * g->batch <= KERNEL_MULTIPLIES) return sl_cuda_plain_product(a, g);
    for (int64_t batch = 0; batch < g->batch; batch++) multiply_one(g, batch);
    return SLUICE_OK;
}

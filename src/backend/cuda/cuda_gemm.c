/* cuda_gemm.c: a matrix product by cuBLASLt. The one place that calls it.
 *
 * cuBLASLt reads matrices by columns. A row-major matrix read so is its transpose, so out = a b is asked for as
 * out^T = b^T a^T: its first matrix is our b, its m our n.
 *
 * The algorithm is the first that the library's heuristic names for the problem, without a timing: the same on every
 * run, rank and plan with this library on this kind of GPU (exact rule 6). Products over k may be split only with
 * partial sums in f32 in the workspace, which are added in a fixed order by a second pass. */
#include "backend/cuda/cuda_gemm.h"

#include <assert.h>
#include <string.h>

#include "backend/cuda/cublaslt.h"
#include "core/status.h"

/* Descriptors of one call, in the caller's frame: nothing is allocated. */
typedef struct call {
    cublasLtMatmulDescOpaque_t matmul;
    cublasLtMatrixLayoutOpaque_t a, b, out;
} call;

/* What the epilogue reads or writes besides the product. */
typedef struct extra {
    cublasLtEpilogue_t epilogue;
    sl_form form;
    const void *vector; /* NULL: none */
    const void *pre;    /* NULL: none */
} extra;

static sluice_status check(const sl_cuda_args *a, cublasStatus_t status)
{
    if (status == CUBLAS_STATUS_SUCCESS) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_FAILED, "%s: cuBLASLt: %s", a->name != NULL ? a->name : "?",
                   a->libraries->lt.status_text(status));
}

static cudaDataType_t data_type(sl_form form)
{
    static const cudaDataType_t types[SL_FORM_COUNT] = {
        [SL_FORM_F32] = CUDA_R_32F,
        [SL_FORM_BF16] = CUDA_R_16BF,
        [SL_FORM_F16] = CUDA_R_16F,
    };
    assert(form == SL_FORM_F32 || form == SL_FORM_BF16 || form == SL_FORM_F16);
    return types[form];
}

static uint8_t alignment(const void *p)
{
    uintptr_t low = (uintptr_t)p | 16;
    return (uint8_t)(low & -low);
}

static sl_gemm_problem problem_of(const sl_cuda_gemm *g, const extra *e)
{
    const int64_t batch = g->batch > 1 ? g->batch : 1;
    return (sl_gemm_problem){
        .m = g->m,
        .n = g->n,
        .k = g->k,
        .batch = batch,
        .stride_a = g->stride_a,
        .stride_b = g->stride_b,
        .stride_out = g->stride_out,
        .batch_a = batch > 1 ? g->batch_a : 0,
        .batch_b = batch > 1 ? g->batch_b : 0,
        .batch_out = batch > 1 ? g->batch_out : 0,
        .form = (int32_t)g->form,
        .out_form = (int32_t)g->out_form,
        .epilogue = (int32_t)e->epilogue,
        .transpose_a = g->transpose_a,
        .transpose_b = g->transpose_b,
        .align_a = alignment(g->a),
        .align_b = alignment(g->b),
        .align_out = alignment(g->out),
        .align_bias = e->vector != NULL ? alignment(e->vector) : 0,
        .align_base = alignment(g->base != NULL ? g->base : g->out),
        .align_pre = e->pre != NULL ? alignment(e->pre) : 0,
    };
}

/* ---- describing the problem ---- */

/* A matrix that is stored by rows, `columns` of them `stride` apart: to the library, by columns, the other way
 * round. */
static cublasStatus_t describe_matrix(const sl_cublaslt *lt, cublasLtMatrixLayoutOpaque_t *layout, sl_form form,
                                      int64_t rows, int64_t columns, int64_t stride, int64_t batch,
                                      int64_t batch_stride)
{
    const int32_t count = (int32_t)batch;
    cublasStatus_t st =
        lt->init_layout(layout, sizeof *layout, data_type(form), (uint64_t)columns, (uint64_t)rows, stride);
    if (st != CUBLAS_STATUS_SUCCESS || batch == 1) return st;
    st = lt->set_layout(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count);
    if (st != CUBLAS_STATUS_SUCCESS) return st;
    return lt->set_layout(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &batch_stride, sizeof batch_stride);
}

static cublasComputeType_t compute_type(const sl_cuda_libraries *l, int32_t form)
{
    return form == SL_FORM_F32 && l->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

static cublasStatus_t describe_matmul(const sl_cuda_libraries *l, const sl_gemm_problem *p, const extra *e,
                                      cublasLtMatmulDescOpaque_t *out)
{
    const int32_t transpose_first = p->transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    const int32_t transpose_second = p->transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    const uint32_t epilogue = (uint32_t)e->epilogue;
    const int32_t type = (int32_t)data_type(e->form);
    const bool biased = e->vector != NULL, activated = e->pre != NULL;
    const struct {
        cublasLtMatmulDescAttributes_t name;
        const void *value;
        size_t bytes;
        bool wanted;
    } attributes[] = {
        { CUBLASLT_MATMUL_DESC_TRANSA, &transpose_first, sizeof transpose_first, true },
        { CUBLASLT_MATMUL_DESC_TRANSB, &transpose_second, sizeof transpose_second, true },
        { CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue, true },
        { CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type, sizeof type, biased },
        { CUBLASLT_MATMUL_DESC_BIAS_POINTER, &e->vector, sizeof e->vector, biased },
        { CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &e->pre, sizeof e->pre, activated },
        { CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &p->stride_out, sizeof p->stride_out, activated },
    };
    cublasStatus_t st = l->lt.init_matmul(out, sizeof *out, compute_type(l, p->form), CUDA_R_32F);
    for (size_t i = 0; i < sizeof attributes / sizeof attributes[0] && st == CUBLAS_STATUS_SUCCESS; i++)
        if (attributes[i].wanted)
            st = l->lt.set_matmul(out, attributes[i].name, attributes[i].value, attributes[i].bytes);
    return st;
}

static cublasStatus_t describe(const sl_cuda_libraries *l, const sl_gemm_problem *p, const extra *e, call *out)
{
    const sl_form form = (sl_form)p->form, out_form = (sl_form)p->out_form;
    const int64_t a_rows = p->transpose_a ? p->k : p->m, a_columns = p->transpose_a ? p->m : p->k;
    const int64_t b_rows = p->transpose_b ? p->n : p->k, b_columns = p->transpose_b ? p->k : p->n;
    cublasStatus_t st = describe_matmul(l, p, e, &out->matmul);
    if (st != CUBLAS_STATUS_SUCCESS) return st;
    st = describe_matrix(&l->lt, &out->a, form, a_rows, a_columns, p->stride_a, p->batch, p->batch_a);
    if (st != CUBLAS_STATUS_SUCCESS) return st;
    st = describe_matrix(&l->lt, &out->b, form, b_rows, b_columns, p->stride_b, p->batch, p->batch_b);
    if (st != CUBLAS_STATUS_SUCCESS) return st;
    return describe_matrix(&l->lt, &out->out, out_form, p->m, p->n, p->stride_out, p->batch, p->batch_out);
}

/* ---- choosing the algorithm ---- */

static cublasStatus_t describe_preference(const sl_cublaslt *lt, const sl_gemm_problem *p,
                                          cublasLtMatmulPreferenceOpaque_t *out)
{
    const uint64_t workspace = SL_CUDA_GEMM_WORKSPACE;
    const uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE; /* or none at all */
    const uint32_t first = p->align_b, second = p->align_a, base = p->align_base, result = p->align_out;
    const struct {
        cublasLtMatmulPreferenceAttributes_t name;
        const void *value;
        size_t bytes;
    } attributes[] = {
        { CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace },
        { CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions, sizeof reductions },
        { CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &first, sizeof first },
        { CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &second, sizeof second },
        { CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &base, sizeof base },
        { CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &result, sizeof result },
    };
    cublasStatus_t st = lt->init_preference(out, sizeof *out);
    for (size_t i = 0; i < sizeof attributes / sizeof attributes[0] && st == CUBLAS_STATUS_SUCCESS; i++)
        st = lt->set_preference(out, attributes[i].name, attributes[i].value, attributes[i].bytes);
    return st;
}

/* An address that has the alignment and no more. */
static const void *shown_address(const void *p, uint8_t align)
{
    return p != NULL ? (const void *)(uintptr_t)align : NULL;
}

/* The heuristic looks at what the epilogue uses for its alignment, so it is shown addresses that have that alone. */
static cublasStatus_t ask(const sl_cuda_libraries *l, const sl_gemm_problem *p, const extra *e, sl_gemm_choice *out)
{
    cublasLtMatmulPreferenceOpaque_t preference;
    cublasLtMatmulHeuristicResult_t result;
    const extra shown = { e->epilogue, e->form, shown_address(e->vector, p->align_bias),
                          shown_address(e->pre, p->align_pre) };
    call c;
    int count = 0;
    memset(&result, 0, sizeof result);
    cublasStatus_t st = describe_preference(&l->lt, p, &preference);
    if (st == CUBLAS_STATUS_SUCCESS) st = describe(l, p, &shown, &c);
    if (st != CUBLAS_STATUS_SUCCESS) return st;
    st = l->lt.choose(l->handle, &c.matmul, &c.b, &c.a, &c.out, &c.out, &preference, 1, &result, &count);
    if (st == CUBLAS_STATUS_NOT_SUPPORTED || st == CUBLAS_STATUS_INVALID_VALUE)
        count = 0;
    else if (st != CUBLAS_STATUS_SUCCESS)
        return st;
    out->problem = *p;
    out->found = count > 0 && result.state == CUBLAS_STATUS_SUCCESS;
    out->algorithm = result.algo;
    return CUBLAS_STATUS_SUCCESS;
}

_Static_assert(sizeof(sl_gemm_problem) == 104, "problems are hashed and compared by bytes");

/* FNV-1a. */
static uint64_t hash(const sl_gemm_problem *p)
{
    const uint8_t *bytes = (const uint8_t *)p;
    uint64_t h = 14695981039346656037u;
    for (size_t i = 0; i < sizeof *p; i++) h = (h ^ bytes[i]) * 1099511628211u;
    return h;
}

/* The problem's entry, or the free one it would get: one is always left free. */
static sl_gemm_choice *entry_of(const sl_cuda_libraries *l, const sl_gemm_problem *p)
{
    uint64_t i = hash(p) % SL_GEMM_CHOICES;
    while (l->choices[i].used && memcmp(&l->choices[i].problem, p, sizeof *p) != 0) i = (i + 1) % SL_GEMM_CHOICES;
    return &l->choices[i];
}

static cublasStatus_t choose(sl_cuda_libraries *l, const sl_gemm_problem *p, const extra *e, sl_gemm_choice *out)
{
    sl_gemm_choice *entry = entry_of(l, p);
    if (entry->used) {
        *out = *entry;
        return CUBLAS_STATUS_SUCCESS;
    }
    cublasStatus_t st = ask(l, p, e, out);
    if (st != CUBLAS_STATUS_SUCCESS || l->choice_count == SL_GEMM_CHOICES - 1) return st;
    *entry = *out;
    entry->used = true;
    l->choice_count++;
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- running ---- */

static cublasStatus_t run(const sl_cuda_args *a, const sl_cuda_gemm *g, const sl_gemm_problem *p, const extra *e,
                          const sl_gemm_choice *choice)
{
    const sl_cuda_libraries *l = a->libraries;
    const void *base = g->base != NULL ? g->base : g->out;
    const float alpha = 1.0f, beta = g->accumulate || g->base != NULL ? 1.0f : 0.0f;
    call c;
    cublasStatus_t st = describe(l, p, e, &c);
    if (st != CUBLAS_STATUS_SUCCESS) return st;
    return l->lt.matmul(l->handle, &c.matmul, &alpha, g->b, &c.b, g->a, &c.a, &beta, base, &c.out, g->out, &c.out,
                        &choice->algorithm, a->workspace, SL_CUDA_GEMM_WORKSPACE, (cudaStream_t)a->stream);
}

static extra extra_of(const sl_cuda_gemm *g)
{
    static const cublasLtEpilogue_t epilogues[][2] = {
        [SL_CUDA_AS_IT_IS] = { CUBLASLT_EPILOGUE_DEFAULT, CUBLASLT_EPILOGUE_BIAS },
        [SL_CUDA_GELU] = { CUBLASLT_EPILOGUE_GELU_AUX, CUBLASLT_EPILOGUE_GELU_AUX_BIAS },
        [SL_CUDA_GELU_SLOPE] = { CUBLASLT_EPILOGUE_DGELU, CUBLASLT_EPILOGUE_DGELU }, /* never with a bias */
    };
    return (extra){ epilogues[g->activation][g->bias != NULL], g->form, g->bias,
                    g->activation != SL_CUDA_AS_IT_IS ? g->pre : NULL };
}

sluice_status sl_cuda_gemm_try(const sl_cuda_args *a, const sl_cuda_gemm *g, bool *done)
{
    const extra e = extra_of(g);
    const sl_gemm_problem p = problem_of(g, &e);
    sl_gemm_choice choice = { .found = false };
    if (a->workspace_bytes < SL_CUDA_GEMM_WORKSPACE)
        return sl_fail(SLUICE_ERR_FAILED, "%s: a matrix product without its workspace",
                       a->name != NULL ? a->name : "?");
    SL_TRY(check(a, choose(a->libraries, &p, &e, &choice)));
    *done = choice.found;
    return choice.found ? check(a, run(a, g, &p, &e, &choice)) : SLUICE_OK;
}

sluice_status sl_cuda_gemm_run(const sl_cuda_args *a, const sl_cuda_gemm *g)
{
    bool done;
    SL_TRY(sl_cuda_gemm_try(a, g, &done));
    return done ? SLUICE_OK : sl_cuda_plain_product(a, g);
}

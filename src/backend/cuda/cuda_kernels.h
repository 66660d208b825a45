/* cuda_kernels.h: what a CUDA kernel's host function gets. Plain C, so that the table, the device and the matrix products,
 * which are C, and the kernels, which are CUDA C++, see the same.
 *
 * One function per op serves all element types and picks its kernel by sl_cuda_type. It queues work on a->stream and
 * returns; it never waits, allocates or reads device memory. Arithmetic is f32; a result is rounded to nearest even
 * once, as it is stored. Sums run in an order that shape and type fix: no atomics (exact rule 6). */
#ifndef SL_BACKEND_CUDA_CUDA_KERNELS_H
#define SL_BACKEND_CUDA_CUDA_KERNELS_H

#include "backend/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef sl_tensor sl_cuda_tensor; /* data is on the device */

typedef struct sl_cuda_libraries sl_cuda_libraries; /* library.h: cuBLASLt with what it remembers */

typedef struct sl_cuda_args {
    const sl_attrs *attrs;
    int input_count, output_count;
    sl_cuda_tensor in[SL_MAX_INPUTS];
    sl_cuda_tensor out[SL_MAX_OUTPUTS];
    const sl_run_context *context; /* on the host, and only until the function returns */
    sluice_dtype wire;             /* sl_call.wire */
    int64_t first;                 /* update: element of the layer's flat buffer that the operands begin with */
    const char *name;              /* of the node, for messages */
    void *stream;                  /* cudaStream_t */
    void *workspace;               /* on the device, 256-byte aligned; of the whole stream, so free for each call */
    uint64_t workspace_bytes;
    sl_cuda_libraries *libraries;
    int multiprocessors; /* for grid sizes that change no bits */
    void *map_maker;     /* cuTensorMapEncodeTiled where the GPU has sm_90a's instructions; NULL otherwise */
} sl_cuda_args;

/* Failures of libraries and launches are reported with sl_fail (core/status.h). */
typedef sluice_status (*sl_cuda_kernel)(const sl_cuda_args *a);

extern const sl_cuda_kernel sl_cuda_kernels[SL_OP_COUNT]; /* NULL: no such kernel */

/* cuda_workspace.c: bytes that a call needs; in[].data and out[].data only say which operands are there (not NULL). Pure:
 * shape, form and attributes alone. The functions check what they were given against it. */
uint64_t sl_cuda_workspace(sl_op op, const sl_cuda_args *a);

/* In which type the call computes: of the first 16-bit input, else f32; or of the output, where the op's row says so. */
static inline sl_form sl_cuda_type(sl_op op, const sl_cuda_args *a)
{
    if (sl_ops[op].typed_by_output) return a->out[0].form;
    for (int i = 0; i < a->input_count; i++)
        if (a->in[i].form == SL_FORM_BF16 || a->in[i].form == SL_FORM_F16) return a->in[i].form;
    return SL_FORM_F32;
}

/* One function per op, in the file of its family, by the rows of op_kernels.h. */
#define SL_CUDA_KERNEL(name)    sluice_status sl_cuda_##name(const sl_cuda_args *a)
#define SL_DECLARE_KERNEL(name) SL_CUDA_KERNEL(name);
#define SL_DECLARE_NO_KERNEL(name)
#define SL_OP_KERNEL(op, name, cpu, cpu_workspace, cuda, workspace) SL_DECLARE_##cuda(name)
#include "backend/op_kernels.h"
#undef SL_DECLARE_KERNEL
#undef SL_DECLARE_NO_KERNEL

/* ---- parts that other families call ---- */

/* loss.cu: one chunk of LINEAR_CROSS_ENTROPY. `logits` [rows, classes] in `form`, rows `stride` apart, become the gradient
 * of the loss for them, (softmax - one-hot) * seed / *count, rounded once, 0 in rows that are ignored; losses[row] gets the
 * row's loss in f32, 0 where ignored. attrs: attrs.cross_entropy's, on the host. With !gradient logits are left alone.
 * *count: f32 on the device. */
void sl_cuda_head_chunk(void *stream, sl_form form, void *logits, int64_t stride, const int32_t *targets, int64_t rows,
                        int64_t classes, const sl_attrs *attrs, float seed, const float *count, bool gradient,
                        float *losses);
/* loss.cu: *count = how many targets are not ignored, as f32. Runs before the chunks. */
void sl_cuda_count_targets(void *stream, const int32_t *targets, int64_t rows, int32_t ignore_index, float *count);
/* loss.cu: *loss = sum of losses in a fixed order / *count, or 0 where that is 0. */
void sl_cuda_mean_loss(void *stream, const float *losses, int64_t rows, const float *count, float *loss);

/* cuda_linear.c: out[m, n] (+)= op(a) op(b): row-major matrices with a stride between rows, products of `form` accumulated
 * in f32. a is [m, k], or [k, m] with transpose_a; b is [k, n], or [n, k] with transpose_b. `batch` of them, strides in
 * elements between. Uses all of the workspace's first SL_CUDA_GEMM_WORKSPACE bytes. */
#define SL_CUDA_GEMM_WORKSPACE ((uint64_t)32 << 20)

/* What becomes of each element of a product p on its way to `out`. */
typedef enum {
    SL_CUDA_AS_IT_IS,
    SL_CUDA_GELU,      /* gelu(p) in the tanh form; pre = p */
    SL_CUDA_GELU_SLOPE /* p gelu'(pre) */
} sl_cuda_activation;

typedef struct sl_cuda_gemm {
    int64_t m, n, k;
    sl_form form;     /* of a and b */
    sl_form out_form; /* F32, or form */
    bool transpose_a, transpose_b, accumulate;
    const void *a, *b, *bias; /* bias: [n] in `form`, added to each row; NULL: none */
    const void *base; /* [m, n] in out_form, rows stride_out apart, added; NULL: none. Not with accumulate or a batch */
    void *out;
    int64_t stride_a, stride_b, stride_out; /* between rows as they are stored */
    int64_t batch, batch_a, batch_b, batch_out;
    sl_cuda_activation activation;
    void *pre; /* [m, n] in out_form, rows stride_out apart */
} sl_cuda_gemm;
/* Of a product as it is. */
sluice_status sl_cuda_gemm_run(const sl_cuda_args *a, const sl_cuda_gemm *g);
/* Also with an activation; *done = false: the library cannot, and nothing was done. */
sluice_status sl_cuda_gemm_try(const sl_cuda_args *a, const sl_cuda_gemm *g, bool *done);

#ifdef __cplusplus
}
#endif
#endif

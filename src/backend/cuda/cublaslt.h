/* cublaslt.h: cuBLASLt through the functions found in its file, and the algorithms chosen so far. Private to library.c
 * and cuda_gemm.c. */
#ifndef SL_BACKEND_CUDA_CUBLASLT_H
#define SL_BACKEND_CUDA_CUBLASLT_H

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wstrict-prototypes" /* the header declares a function with () */
#include <cublasLt.h>
#pragma GCC diagnostic pop

#include "backend/cuda/library.h"

/* Field, symbol. The three _internal ones are what the header's inline *Init functions call: they fill descriptors in
 * the caller's memory, where *Create would allocate. */
#define SL_CUBLASLT_FUNCTIONS(X)                                                                                       \
    X(create, cublasLtCreate)                                                                                          \
    X(destroy, cublasLtDestroy)                                                                                        \
    X(version, cublasLtGetVersion)                                                                                     \
    X(status_text, cublasLtGetStatusString)                                                                            \
    X(matmul, cublasLtMatmul)                                                                                          \
    X(choose, cublasLtMatmulAlgoGetHeuristic)                                                                          \
    X(init_matmul, cublasLtMatmulDescInit_internal)                                                                    \
    X(set_matmul, cublasLtMatmulDescSetAttribute)                                                                      \
    X(init_layout, cublasLtMatrixLayoutInit_internal)                                                                  \
    X(set_layout, cublasLtMatrixLayoutSetAttribute)                                                                    \
    X(init_preference, cublasLtMatmulPreferenceInit_internal)                                                          \
    X(set_preference, cublasLtMatmulPreferenceSetAttribute)

typedef struct sl_cublaslt {
#define SL_FIELD(field, symbol) __typeof__(&symbol) field;
    SL_CUBLASLT_FUNCTIONS(SL_FIELD)
#undef SL_FIELD
} sl_cublaslt;

/* All that the choice of an algorithm may depend on, besides the GPU (exact rule 6). No padding: compared by bytes. */
typedef struct sl_gemm_problem {
    int64_t m, n, k, batch; /* as sl_cuda_gemm has them */
    int64_t stride_a, stride_b, stride_out, batch_a, batch_b, batch_out;
    int32_t form, out_form, epilogue;
    uint8_t transpose_a, transpose_b;
    /* Bytes, a power of two up to 16. Buffers begin at multiples of 256 and the model fixes where parameters lie in
     * them, so these are the model's, too, wherever the plan puts the buffers. */
    uint8_t align_a, align_b, align_out, align_bias, align_pre, align_base;
    uint8_t zero[4];
} sl_gemm_problem;

typedef struct sl_gemm_choice {
    sl_gemm_problem problem;
    bool used;  /* the entry is taken */
    bool found; /* false: the library has no algorithm for it */
    cublasLtMatmulAlgo_t algorithm;
} sl_gemm_choice;

/* More problems than a model has; past it the library is asked each time, and answers the same. */
#define SL_GEMM_CHOICES 1024

struct sl_cuda_libraries {
    void *file; /* of dlopen; stays open, as CUDA libraries do not like to be unloaded */
    sl_cublaslt lt;
    cublasLtHandle_t handle;
    struct sl_cudnn *cudnn; /* owned */
    bool tf32;
    int choice_count;
    sl_gemm_choice *choices; /* SL_GEMM_CHOICES, open addressing; owned */
};

#endif

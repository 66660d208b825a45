/* library.c: finds cuBLASLt and the functions of it that cuda_gemm.c calls. */
#include "backend/cuda/library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "backend/cuda/cublaslt.h"
#include "backend/cuda/cudnn_conv.h"
#include "core/alloc.h"
#include "core/status.h"

static const struct {
    const char *name;
    size_t field;
} functions[] = {
#define SL_ROW(field, symbol) { #symbol, offsetof(sl_cublaslt, field) },
    SL_CUBLASLT_FUNCTIONS(SL_ROW)
#undef SL_ROW
};

/* Newest first: as the loader finds them (the plugin's RUNPATH, LD_LIBRARY_PATH, ldconfig), then where the toolkit puts
 * them by default, which not every installation tells the loader. */
static const char *const files[] = {
    "libcublasLt.so.13",
    "libcublasLt.so.12",
    "/usr/local/cuda/lib64/libcublasLt.so.13",
    "/usr/local/cuda/lib64/libcublasLt.so.12",
};

static sluice_status open_file(void **out)
{
    char reason[512] = "";
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        void *file = dlopen(files[i], RTLD_NOW | RTLD_LOCAL);
        if (file != NULL) {
            *out = file;
            return SLUICE_OK;
        }
        if (i == 0) snprintf(reason, sizeof reason, "%s", dlerror());
    }
    return sl_fail(SLUICE_ERR_USAGE,
                   "the CUDA backend needs cuBLASLt (libcublasLt.so.13 or .12, of the CUDA toolkit or its package "
                   "libcublas): %s. If it is installed, add its folder to LD_LIBRARY_PATH",
                   reason);
}

static sluice_status find_functions(void *file, sl_cublaslt *out)
{
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
        void *address = dlsym(file, functions[i].name);
        if (address == NULL)
            return sl_fail(SLUICE_ERR_USAGE, "cuBLASLt lacks the function %s: its version does not fit sluice",
                           functions[i].name);
        memcpy((char *)out + functions[i].field, &address, sizeof address);
    }
    return SLUICE_OK;
}

sluice_status sl_cuda_libraries_open(bool tf32, const sl_log *log, sl_cuda_libraries **out)
{
    sluice_status st;
    sl_cuda_libraries *l = sl_alloc(sizeof *l, "cuda libraries");
    if (l == NULL) return SLUICE_ERR_NO_MEMORY;
    l->tf32 = tf32;
    if ((st = open_file(&l->file)) != SLUICE_OK) goto free_libraries;
    if ((st = find_functions(l->file, &l->lt)) != SLUICE_OK) goto free_libraries;
    l->choices = sl_alloc_array(SL_GEMM_CHOICES, sizeof *l->choices, "matrix product algorithms");
    if (l->choices == NULL) {
        st = SLUICE_ERR_NO_MEMORY;
        goto free_libraries;
    }
    if ((st = sl_cudnn_open(tf32, log, &l->cudnn)) != SLUICE_OK) goto free_choices;
    cublasStatus_t created = l->lt.create(&l->handle);
    if (created != CUBLAS_STATUS_SUCCESS) {
        st = sl_fail(SLUICE_ERR_FAILED, "cuBLASLt: cannot be started: %s", l->lt.status_text(created));
        goto close_cudnn;
    }
    *out = l;
    return SLUICE_OK;
close_cudnn:
    sl_cudnn_close(l->cudnn);
free_choices:
    sl_free(l->choices);
free_libraries:
    sl_free(l);
    return st;
}

void sl_cuda_libraries_close(sl_cuda_libraries *l)
{
    if (l == NULL) return;
    sl_cudnn_close(l->cudnn);
    (void)l->lt.destroy(l->handle);
    sl_free(l->choices);
    sl_free(l);
}

sl_cudnn *sl_cuda_libraries_cudnn(sl_cuda_libraries *l)
{
    return l->cudnn;
}

static void cublaslt_text(char *out, size_t bytes)
{
    void *file;
    sl_cublaslt lt;
    if (open_file(&file) != SLUICE_OK || find_functions(file, &lt) != SLUICE_OK) {
        snprintf(out, bytes, "cuBLASLt not found");
        return;
    }
    /* 130100 for 13.1.0 */
    size_t version = lt.version();
    snprintf(out, bytes, "cuBLASLt %zu.%zu", version / 10000, version / 100 % 100);
}

void sl_cuda_libraries_text(char *out, size_t bytes)
{
    char cublaslt[64], cudnn[64];
    cublaslt_text(cublaslt, sizeof cublaslt);
    sl_cudnn_text(cudnn, sizeof cudnn);
    snprintf(out, bytes, "%s, %s", cublaslt, cudnn);
}

/* launch.cuh: how kernels are launched; the first include of every .cu file.
 *
 * The same sources are compiled twice: by nvcc for the GPU, and for the tests by the C++ compiler with SL_CUDA_EMULATE,
 * where threads are coroutines in ordinary memory (tests/support/cuda/emulator.h, which the compiler is told to include
 * first). So kernels are launched with SL_LAUNCH, never with <<< >>>, dynamic shared memory is named with
 * SL_DYNAMIC_SHARED, and inline PTX and library calls need a plain twin under SL_CUDA_EMULATE. A grid is never empty.
 *
 * Kernels and their helpers, also those of headers, stand in `inline namespace SL_KERNELS`: the files of two families may
 * use the same names. The build defines it as a name of the file: nvcc would name kernels of an unnamed namespace after the
 * path of their source, so that the same source in another folder gave another plugin. Where they are emulated it is
 * empty. */
#ifndef SL_BACKEND_CUDA_LAUNCH_CUH
#define SL_BACKEND_CUDA_LAUNCH_CUH

#ifndef SL_KERNELS
#error "SL_KERNELS is not defined: CMakeLists.txt names it after the source"
#endif

#if !defined(SL_CUDA_EMULATE)
#include <cuda_runtime.h>
#include <stddef.h>
#include <stdint.h>

/* kernel: a __global__ function, or a template instance in parentheses. */
#define SL_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                                      \
    kernel<<<grid, block, shared_bytes, (cudaStream_t)(stream)>>>(__VA_ARGS__)
/* type *name = the block's dynamic shared memory, 16-byte aligned. */
#define SL_DYNAMIC_SHARED(type, name)                                                                                  \
    extern __shared__ __align__(16) unsigned char sl_dynamic_shared[];                                                 \
    type *name = reinterpret_cast<type *>(sl_dynamic_shared)
/* Before a launch with more than 48 KiB of it. */
#define SL_ALLOW_SHARED(kernel, bytes)                                                                                 \
    ((void)cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)(bytes)))
#endif

extern "C" {
#include "backend/cuda/cuda_kernels.h"
#include "core/status.h"
}

/* What a host function returns after its last launch. */
static inline sluice_status sl_launched(const sl_cuda_args *a)
{
    cudaError_t error = cudaGetLastError();
    if (error == cudaSuccess) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_FAILED, "%s: kernel launch: %s", a->name != nullptr ? a->name : "?",
                   cudaGetErrorString(error));
}

/* Before the first: the workspace is what cuda_workspace.c promised. */
static inline sluice_status sl_check_workspace(sl_op op, const sl_cuda_args *a)
{
    uint64_t needed = sl_cuda_workspace(op, a);
    if (a->workspace_bytes >= needed) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_FAILED, "%s: needs %llu bytes of workspace, has %llu", a->name != nullptr ? a->name : "?",
                   (unsigned long long)needed, (unsigned long long)a->workspace_bytes);
}

/* Blocks for `items` pieces of independent work, `per_block` at a time, in a loop with stride gridDim.x: enough to fill
 * the device, never more than there is work. Changes no bits. */
static inline unsigned sl_grid(const sl_cuda_args *a, int64_t items, int64_t per_block, int blocks_per_multiprocessor)
{
    int64_t blocks = (items + per_block - 1) / per_block;
    int64_t most = (int64_t)(a->multiprocessors > 0 ? a->multiprocessors : 1) * blocks_per_multiprocessor;
    if (blocks > most) blocks = most;
    return blocks < 1 ? 1u : (unsigned)blocks;
}

#endif

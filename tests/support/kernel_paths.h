/* kernel_paths.h: the kernel tables this CPU can run, for tests that hold all of them to the same bits. */
#ifndef SLUICE_TEST_KERNEL_PATHS_H
#define SLUICE_TEST_KERNEL_PATHS_H

#include "backend/cpu/kernels.h"
#include "core/cpu.h"

/* The kernels of one element type; NULL where the CPU or the build lacks the path. */
static inline const sl_kernel *path_kernels_of(sl_isa isa, sl_kernel_type type)
{
    if (isa == SL_ISA_SCALAR) return sl_kernels_scalar[type];
#if defined(__x86_64__)
    if (isa <= sl_isa_best()) return isa == SL_ISA_AVX2 ? sl_kernels_avx2[type] : sl_kernels_avx512[type];
#endif
    return NULL;
}

static inline const sl_kernel *path_kernels(sl_isa isa)
{
    return path_kernels_of(isa, SL_KERNEL_F32);
}

/* Reproducible numbers in [-1, 1), different for each seed. */
static inline void fill_numbers(float *p, int64_t count, uint32_t seed)
{
    uint32_t state = seed * 2654435761u + 12345u;
    for (int64_t i = 0; i < count; i++) {
        state = state * 1664525u + 1013904223u;
        p[i] = (float)(int32_t)(state & 0xffffff00u) * 0x1p-31f;
    }
}

#endif

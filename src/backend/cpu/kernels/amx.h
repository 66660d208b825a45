/* amx.h: GEMMs of bf16 operands on AMX tiles, for the AVX-512 path of CPUs that have them (core/cpu.h).
 *
 * C = A B with sums in f32, k in order, thirty-two k at a time as the tile instruction adds them (amx_tile.h): the bits
 * depend on the shape alone, but are not those of gemm.h, and bf16 denormals count as zero. */
#ifndef SL_BACKEND_CPU_AMX_H
#define SL_BACKEND_CPU_AMX_H

#include "backend/cpu/kernels/gemm.h"

#if defined(SL_ISA_avx512) && defined(__x86_64__)
#define SL_HAVE_AMX
#endif

/* Tests compile the same sources again, with the tile instructions in plain C. */
#if defined(SL_AMX_EMULATED)
#define AMX(name) SL_PASTE(KI(amx_##name), emulated)
#else
#define AMX(name) KI(amx_##name)
#endif

static inline bool sl_amx_takes(const sl_gemm *g)
{
    return g->a.form == SL_FORM_BF16 && g->b.form == SL_FORM_BF16 && g->k > 0;
}

/* As KI(gemm), for GEMMs that sl_amx_takes; the CPU must have the tiles. */
void AMX(gemm)(sl_pool *pool, const sl_gemm *g);

/* As the bf16 kernels of attention, with probabilities and their slopes rounded to bf16 before they are multiplied. */
void AMX(attention)(const sl_kernel_args *a);
void AMX(attention_grad)(const sl_kernel_args *a);

#endif

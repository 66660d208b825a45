/* amx_emulated_attention_avx512.c: as amx_emulated_avx512.c, for attention. */
#if defined(__AVX512F__)
#define SL_ISA_avx512
#define SL_AMX_EMULATED
#include "backend/cpu/kernels/amx_attention.c"
#endif

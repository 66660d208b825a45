/* amx_emulated_avx512.c: as amx_emulated.c, with the packing of the AVX-512 path. CMakeLists.txt gives this file the
 * flags of that path. */
#if defined(__AVX512F__)
#define SL_ISA_avx512
#define SL_AMX_EMULATED
#include "backend/cpu/kernels/amx.c"
#endif

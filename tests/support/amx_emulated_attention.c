/* amx_emulated_attention.c: as amx_emulated.c, for attention. */
#define SL_AMX_EMULATED
#include "backend/cpu/kernels/amx_attention.c"

/* cpu.h: which instruction path this process takes. */
#ifndef SL_CORE_CPU_H
#define SL_CORE_CPU_H

#include <stdbool.h>

#include "sluice.h"

/* AMX is AVX-512 with bf16 GEMMs on tiles. */
typedef enum { SL_ISA_SCALAR, SL_ISA_AVX2, SL_ISA_AVX512, SL_ISA_AMX, SL_ISA_COUNT } sl_isa;

/* The best path the CPU and the operating system support. */
sl_isa sl_isa_best(void);
/* Whether AMX tiles multiply bf16 here: announced, granted by the system for the whole process, and tried out. The
 * first call takes SIGILL and its like for an instant; later calls only remember. */
bool sl_cpu_has_tiles(void);
/* "scalar", "avx2", "avx512", "amx". */
const char *sl_isa_name(sl_isa isa);
/* Resolves SLUICE_CPU's value (NULL or empty: best). Refuses unknown names and paths this CPU lacks. */
sluice_status sl_isa_choose(const char *requested, sl_isa *out);
/* "Intel(R) Xeon(R) ..." or "unknown". */
void sl_cpu_model(char *buf, size_t bytes);

#endif

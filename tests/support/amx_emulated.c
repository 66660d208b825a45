/* amx_emulated.c: the kernels on AMX tiles once more, with the tile instructions in plain C (amx_tile.h), so that their
 * packing and blocking are tested on every CPU. */
#define SL_AMX_EMULATED
#include "backend/cpu/kernels/amx.c"

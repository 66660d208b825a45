/* head_chunk.h: how LINEAR_CROSS_ENTROPY cuts its rows. Shared by the kernel and by who reserves its workspace. */
#ifndef SL_BACKEND_CPU_HEAD_CHUNK_H
#define SL_BACKEND_CPU_HEAD_CHUNK_H

#include "core/bytes.h"

/* Logits that exist at a time, or the logits of SL_HEAD_LEAST_ROWS rows where those are more: every chunk adds to all
 * of dw, which the GEMMs of too few rows would not pay for. */
#define SL_HEAD_CHUNK_ELEMENTS ((int64_t)1 << 22)
#define SL_HEAD_LEAST_ROWS     256
#define SL_HEAD_UNIT           32 /* rows of a tile */

/* Rows of a chunk, the last one's perhaps fewer: as even as whole tiles allow, by shape alone. */
static inline int64_t sl_head_chunk_rows(int64_t rows, int64_t classes)
{
    int64_t most = SL_HEAD_CHUNK_ELEMENTS / classes;
    if (most < SL_HEAD_LEAST_ROWS) most = SL_HEAD_LEAST_ROWS;
    if (rows <= most) return rows;
    int64_t each = sl_ceil_div(rows, sl_ceil_div(rows, most));
    return sl_ceil_div(each, SL_HEAD_UNIT) * SL_HEAD_UNIT;
}

#endif

/* qk_norm_parts.h: how QK_NORM_GRAD cuts its rows. Shared by the kernel and by who reserves its workspace. */
#ifndef SL_BACKEND_CPU_QK_NORM_PARTS_H
#define SL_BACKEND_CPU_QK_NORM_PARTS_H

#include "core/bytes.h"

#define SL_QK_NORM_PARTS     64 /* at most: as many threads have work, and as many sums are added up in order */
#define SL_QK_NORM_PART_ROWS 8  /* at least */

static inline int64_t sl_qk_norm_part_rows(int64_t rows)
{
    int64_t each = sl_ceil_div(rows, SL_QK_NORM_PARTS);
    return each > SL_QK_NORM_PART_ROWS ? each : SL_QK_NORM_PART_ROWS;
}

#endif

/* sequence_size.h: memory of the kernels that walk along sequences. Shared by them and by who reserves their workspace. */
#ifndef SL_BACKEND_CPU_SEQUENCE_SIZE_H
#define SL_BACKEND_CPU_SEQUENCE_SIZE_H

#include "core/bytes.h"

#define SL_SEQUENCE_LANES 16

/* A length in whole vectors. */
static inline int64_t sl_whole_lanes(int64_t n)
{
    return (n + SL_SEQUENCE_LANES - 1) / SL_SEQUENCE_LANES * SL_SEQUENCE_LANES;
}

/* ---- GRU ---- */

/* Floats of the packed weight [3H, H]: as gemm.h's sl_packed_b, with 3H columns forward, H backward; in whole vectors. */
static inline int64_t sl_gru_packed_floats(int64_t columns, int64_t k)
{
    return sl_whole_lanes(columns) * k + SL_SEQUENCE_LANES;
}

/* Floats of scratch for one sequence of a task, forward: state, packed; gates. Backward: gradients of the gates, packed;
 * that of the state. Slack and padding included. */
static inline int64_t sl_gru_scratch_floats(int64_t width)
{
    return 2 * sl_whole_lanes(3 * width) + 2 * sl_whole_lanes(width) + 4 * SL_SEQUENCE_LANES;
}

/* ---- CTC ---- */

/* Floats of a row of states, 2 labels + 1: impossible states before and behind, for neighbours two away. */
static inline int64_t sl_ctc_row(int64_t labels)
{
    return sl_whole_lanes(2 * labels + 1) + 2 * SL_SEQUENCE_LANES;
}

/* Bytes: -log p of each sequence in double; log-sums of frames; states of all frames. */
static inline uint64_t sl_ctc_bytes(int64_t batch, int64_t frames, int64_t labels)
{
    return (uint64_t)batch * sizeof(double) +
           (uint64_t)(batch * frames) * (1 + (uint64_t)sl_ctc_row(labels)) * sizeof(float);
}

#endif

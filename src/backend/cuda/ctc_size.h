/* ctc_size.h: the workspace of CTC loss. Plain C: plans are made without CUDA. */
#ifndef SL_BACKEND_CUDA_CTC_SIZE_H
#define SL_BACKEND_CUDA_CTC_SIZE_H

#include "backend/cuda/cuda_kernels.h"

/* What the kernels know of a sequence. */
typedef struct sl_ctc_sequence {
    double nll;             /* -log of the labels' probability */
    double loss;            /* what it adds to the mean */
    int32_t frames, labels; /* that count */
    int32_t known;          /* all labels are classes, and not the blank */
    int32_t unused;
} sl_ctc_sequence;

/* In order: the sequences, log-sums of frames, states of all frames, two rows of states for each sequence. */
static inline uint64_t sl_cuda_ctc_workspace(sl_op op, const sl_cuda_args *a)
{
    const uint64_t batch = (uint64_t)a->in[0].shape->dim[0], frames = (uint64_t)a->in[0].shape->dim[1];
    const uint64_t states = 2 * (uint64_t)a->in[1].shape->dim[1] + 1;
    (void)op;
    return batch * sizeof(sl_ctc_sequence) + (batch * frames + batch * frames * states + 2 * batch * states) * 4;
}

#endif

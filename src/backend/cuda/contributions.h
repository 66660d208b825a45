/* contributions.h: the arithmetic of a reduction on the GPU: the bits of comm/sums.h. Plain C. */
#ifndef SL_BACKEND_CUDA_CONTRIBUTIONS_H
#define SL_BACKEND_CUDA_CONTRIBUTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/status.h"
#include "ir/form.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One run of elements that every rank has contributed to. Contributions are widened to f32, added left to right in rank
 * order, and rounded once to sum_form, which is F32 or `form`. Addresses are aligned to one element; `sum` may be
 * `own`, and otherwise overlaps nothing. */
typedef struct sl_contributions {
    sl_form form, sum_form;
    bool first;           /* `sum` is set; otherwise it is what the addition begins with, and sum_form is F32 */
    int rank, ranks;      /* whose sum it is */
    const void *own;      /* this rank's contribution */
    const void *received; /* the others', in rank order */
    uint64_t stride;      /* bytes between them */
    void *sum;
    int64_t elements;
} sl_contributions;

/* Queues the addition on a CUDA stream. `multiprocessors`: for a grid size, which changes no bits. */
sluice_status sl_cuda_add_contributions(void *stream, int multiprocessors, const sl_contributions *c);

#ifdef __cplusplus
}
#endif
#endif

/* machine.h: what the hardware offers, as plain data: measured here (train/machine.c) or read from a file that
 * describes a machine elsewhere. */
#ifndef SL_PLAN_MACHINE_H
#define SL_PLAN_MACHINE_H

#include <stdbool.h>
#include <stdint.h>

#include "ir/span.h"

typedef struct sl_machine {
    double gemm_flops;                /* matrix products, per second */
    double vector_flops;              /* everything else */
    double device_bytes_per_second;   /* what kernels read and write */
    double update_bytes_per_second;   /* the optimizer, where it runs on the host */
    double link_bytes_per_second[2];  /* [0] host to device, [1] device to host */
    double comm_bytes_per_second;     /* what a rank receives from others, all ranks at it */
    double comm_latency;              /* seconds a collective costs before its first byte */
    double link_latency;              /* seconds a copy costs before its first byte */
    double kernel_latency;            /* seconds a kernel call costs before its work */
    uint64_t capacity[SL_TIER_COUNT]; /* bytes there are; budgets are options */
    bool copies_overlap;              /* copies run beside kernels; false: everything takes turns */
} sl_machine;

/* A plausible CPU, for planning where nothing was measured. */
void sl_machine_default(sl_machine *m);

#endif

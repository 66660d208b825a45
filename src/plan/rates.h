/* rates.h: what the hardware offers, as plain data: general rates, and where somebody measured them (machine/measure.h)
 * durations of single kernels, copies and collectives; or read from a file that describes a machine elsewhere. */
#ifndef SL_PLAN_RATES_H
#define SL_PLAN_RATES_H

#include <stdbool.h>
#include <stdint.h>

#include "ir/op.h"
#include "ir/span.h"

#define SL_RATE_POINTS 8

/* Rates of kernels by the type they compute in: f32, or 16 bits, measured in bf16. */
typedef enum { SL_RATE_F32, SL_RATE_16BIT, SL_RATE_TYPES } sl_rate_type;

/* How long an amount of work took, latency included. */
typedef struct sl_rate_point {
    double work; /* floating-point operations, or bytes */
    double seconds;
} sl_rate_point;

/* Points in order of increasing work; count 0: nothing was measured, the general rates hold. */
typedef struct sl_rates {
    int count;
    sl_rate_point points[SL_RATE_POINTS];
} sl_rates;

typedef struct sl_machine {
    double gemm_flops;              /* matrix products, per second */
    double gemm_16bit_flops;        /* those of bf16 operands, on a GPU of f16 too; 0: as gemm_flops */
    double attention_fraction;      /* of the rate of products that attention reaches; 0: all of it */
    double vector_flops;            /* everything else */
    double share[SL_OP_COUNT];      /* of these and the next, what kernels of an op reach; 0: all */
    double narrow_heads;            /* of that, what attention reaches with heads 64 wide or less; 0: all */
    double device_bytes_per_second; /* what kernels read and write */
    double update_bytes_per_second; /* the optimizer, where it runs on the host */
    double link_bytes_per_second[SL_LINK_COUNT];
    double comm_bytes_per_second; /* what a rank receives from others, all ranks at it */
    double comm_latency;          /* seconds a collective costs before its first byte */
    double link_latency;          /* seconds a copy costs before its first byte */
    double kernel_latency;        /* seconds a kernel call costs before its work */
    double disk_latency;          /* seconds a transfer to or from the disk costs before its first byte */
    /* Beside a write to the disk a read from it takes 1 + disk_read_slowdown times as long; a write beside a read
     * 1 + disk_write_slowdown. */
    double disk_read_slowdown, disk_write_slowdown;
    /* Of a processor, what a transfer keeps busy: requests and checksums. To kernels and copies of a CPU, and to updates
     * on the host, a transfer is that part of a copy, and they slow it down in the same proportion. */
    double disk_processor;
    uint64_t capacity[SL_TIER_COUNT]; /* bytes there are; budgets are options */
    bool copies_overlap;              /* copies run beside kernels; false: everything takes turns */

    /* Measured, and better than the above where there are points. */
    sl_rates kernels[SL_RATE_TYPES][SL_OP_COUNT]; /* work: flops of matrix ops (sl_is_matrix_op), bytes of others */
    /* Kernels of the update stream, where another processor than the device runs it; else they are as above. */
    sl_rates host_kernels[SL_OP_COUNT];
    sl_rates narrow_updates[2][2];  /* UPDATE with moments in bf16, in 8 bits: [0] as in kernels, [1] in host_kernels */
    sl_rates copies[SL_LINK_COUNT]; /* bytes */
    /* Of the disk: bytes, while a transfer of as many goes on in the other direction; [0] reads, [1] writes. */
    sl_rates disk_beside[2];
    sl_rates gather, reduce; /* bytes that a rank receives */
    /* Kernels of all streams run one after the other in the thread that walks the plan, and what comes after a kernel
     * in the plan's list is queued when it is done. So it is on a CPU. */
    bool kernels_take_turns;
    /* What the same cores and memory have to serve at once slows down: beside each copy or collective under way a
     * kernel takes 1 + kernel_slowdown times as long; a copy or collective, beside kernels and beside each other one,
     * 1 + move_slowdown. 0: they do not disturb each other. */
    double kernel_slowdown, move_slowdown;
    /* Where the update stream has a processor of its own (kernels do not take turns), its work is no kernel in the
     * above: it takes 1 + update_slowdown times as long beside each copy or collective, and to what one of these takes
     * it adds move_update_slowdown times. */
    double update_slowdown, move_update_slowdown;
} sl_machine;

/* A plausible CPU, for planning where nothing was measured. */
void sl_machine_default(sl_machine *m);
/* Whether the work of an op is counted in flops; otherwise in bytes. */
bool sl_is_matrix_op(sl_op op);
/* The rate of the links between memories, both directions. */
void sl_machine_set_links(sl_machine *m, double bytes_per_second);
/* Whether work in a type runs at the rates of 16 bits: on a CPU only bf16 has products of its own. */
static inline bool sl_machine_is_narrow(const sl_machine *m, sluice_dtype type)
{
    return type == SLUICE_BF16 || (type == SLUICE_F16 && !m->kernels_take_turns);
}
/* The points of an op; where none were measured in 16 bits, those of f32: work in bytes already counts how short the
 * elements are. Not so products on a processor whose 16-bit products are others than those of f32: they have none then.
 * Products of f16 on a CPU run as f32's do, so for them sixteen_bit is false. */
static inline const sl_rates *sl_machine_kernel_rates(const sl_machine *m, sl_op op, bool sixteen_bit)
{
    const sl_rates *narrow = &m->kernels[SL_RATE_16BIT][op];
    const bool others = m->gemm_16bit_flops > 0 && !m->kernels_take_turns && sl_is_matrix_op(op);
    return sixteen_bit && (narrow->count > 0 || others) ? narrow : &m->kernels[SL_RATE_F32][op];
}
/* The same for the update stream. */
static inline const sl_rates *sl_machine_host_rates(const sl_machine *m, sl_op op)
{
    return m->host_kernels[op].count > 0 ? &m->host_kernels[op] : &m->kernels[SL_RATE_F32][op];
}
/* The points of UPDATE by the form of its moments, on the device or on the update stream; without any for the form,
 * those of f32. */
static inline const sl_rates *sl_machine_update_rates(const sl_machine *m, bool on_host, sl_form states)
{
    bool apart = on_host && m->host_kernels[SL_OP_UPDATE].count > 0;
    const sl_rates *narrow = &m->narrow_updates[apart][states == SL_FORM_BLOCKS8];
    if (states != SL_FORM_F32 && narrow->count > 0) return narrow;
    return apart ? &m->host_kernels[SL_OP_UPDATE] : &m->kernels[SL_RATE_F32][SL_OP_UPDATE];
}
/* The general rate of products, likewise. */
static inline double sl_machine_gemm_flops(const sl_machine *m, bool sixteen_bit)
{
    return sixteen_bit && m->gemm_16bit_flops > 0 ? m->gemm_16bit_flops : m->gemm_flops;
}
/* Seconds that `work` takes: between points the logarithm of the rate is interpolated over that of the work; below the
 * first and above the last point it is the point's rate, with `latency` on top. There must be points. */
double sl_rates_seconds(const sl_rates *r, double work, double latency);

#endif

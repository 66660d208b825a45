/* known_rates.c: from the rows of a data sheet to the rates that kernels reach.
 *
 * Everything is a share of what one H200 was measured to do (docs/machines.md): of the rate that its GEMMs keep up, what
 * GEMMs with more work behind them, convolutions and attention reach; of the bandwidth of its memory, what kernels that
 * stream reach. Other GPUs are assumed to reach the same shares of their own sheet, but for attention: what is older than
 * Hopper has other kernels, whose shares were measured on the same H200. */
#include "machine/known.h"

#define MEMORY_SHARE 0.80 /* of the data sheet's bandwidth: 3.83 of 4.8 TB/s */
#define FLOAT_SHARE  0.75 /* of the data sheet's fp32: 50 of 67 TFLOP/s */

typedef struct op_share {
    sl_op op;
    double share[2]; /* by sl_gpu_kernels */
} op_share;

static const op_share shares[] = {
    { SL_OP_LINEAR_GELU, { 0.70, 0.70 } },          /* 500 of 713 TFLOP/s */
    { SL_OP_LINEAR_GRAD_GELU, { 0.70, 0.70 } },     /* the same */
    { SL_OP_LINEAR_GRAD_WEIGHT, { 0.83, 0.83 } },   /* 590 */
    { SL_OP_LINEAR_CROSS_ENTROPY, { 0.79, 0.79 } }, /* 564: its passes over the logits count as well */
    { SL_OP_ATTENTION, { 0.71, 0.57 } },            /* 409 of 713; before Hopper 0.56 of the sheet */
    { SL_OP_ATTENTION_GRAD, { 0.43, 0.51 } },       /* 362; before Hopper 0.34 of the sheet */
    { SL_OP_CONV2D, { 0.72, 0.72 } },               /* convolutions of a ResNet: 17.7 ms where the rates say 13 */
    { SL_OP_CONV2D_GRAD_INPUT, { 0.72, 0.72 } },    /* the same */
    { SL_OP_CONV2D_GRAD_WEIGHT, { 0.72, 0.72 } },   /* the same */
    { SL_OP_BATCH_NORM, { 0.77, 0.77 } },           /* 7.0 ms where the rates say 5.4 */
    { SL_OP_BATCH_NORM_GRAD, { 0.77, 0.77 } },      /* 11.6 and 9.1 */
};
#define NARROW_HEADS 0.61 /* of attention's rate with heads 128 wide: 250 of 409 TFLOP/s */
#define VECTOR_SHARE 0.82 /* norms: 5.0 ms where the rates say 4.1 */

void sl_known_shares(sl_gpu_kernels kernels, sl_machine *m)
{
    m->attention_fraction = 1;
    m->narrow_heads = NARROW_HEADS;
    for (int op = 0; op < SL_OP_COUNT; op++) m->share[op] = sl_is_matrix_op((sl_op)op) ? 1 : VECTOR_SHARE;
    for (size_t i = 0; i < sizeof shares / sizeof shares[0]; i++) m->share[shares[i].op] = shares[i].share[kernels];
    m->share[SL_OP_UPDATE] = 1;
}

void sl_known_rates(const sl_known_gpu *g, sl_machine *m)
{
    m->gemm_flops = m->vector_flops = 1e12 * g->float_tflops * FLOAT_SHARE;
    m->gemm_16bit_flops = 1e12 * g->half_tflops * g->kept;
    m->device_bytes_per_second = 1e9 * g->memory_gb_per_second * MEMORY_SHARE;
    sl_known_shares(g->kernels, m);
    sl_machine_set_links(m, 1e9 * g->link_gb_per_second);
    m->link_latency = 10e-6;
    m->kernel_latency = 3e-6;
    m->copies_overlap = true;
    m->kernels_take_turns = false;
    /* the link's copies and the host's updates share the host's memory */
    m->update_slowdown = 0.22;
    m->move_update_slowdown = 0.28;
}

/* op.h: the operations. One op = one row of sl_ops + one kernel per backend + one test case.
 *
 * Conventions. Tensors are dense and row-major. "rows" of a tensor are its elements divided by its last dimension.
 * Forward ops list their outputs with the ones saved for backward last. A backward op's outputs may be absent (-1)
 * where nobody wants that gradient. Ops whose row says `accumulates` honour attrs.accumulate: bit i set means output i
 * is added to, not overwritten (out = out + result, result rounded to f32 first unless stated). Sums run in a fixed
 * order that depends on shape alone. */
#ifndef SL_IR_OP_H
#define SL_IR_OP_H

#include <stdbool.h>
#include <stdint.h>

#include "sluice.h"

#define SL_MAX_RANK        6
#define SL_MAX_INPUTS      8
#define SL_MAX_OUTPUTS     5
#define SL_MAX_HEAD_WIDTH  4096 /* attention kernels hold tiles of a head in their scratch memory */
#define SL_MAX_GROUPS      16   /* parameter groups of an optimizer */
#define SL_MAX_STATE_SLOTS 3    /* state tensors per parameter: momentum, variance, max variance */

/* How elements lie in memory: as one of the types, or in a way that only updates know. */
typedef enum {
    SL_FORM_F32 = SLUICE_F32,
    SL_FORM_I32 = SLUICE_I32,
    SL_FORM_BF16 = SLUICE_BF16,
    SL_FORM_F16 = SLUICE_F16,
    SL_FORM_REMAINDER, /* 16 bits: what a bf16 weight lacks of its fp32 master (exact rule 5) */
    SL_FORM_BLOCKS8,   /* moments in 8 bits by blocks of 1,024, some blocks in f32 (ir/form.h) */
    SL_FORM_COUNT
} sl_form;

typedef struct sl_shape {
    int rank; /* 0: scalar */
    int64_t dim[SL_MAX_RANK];
} sl_shape;

/* One op per row, with what it reads and writes beside it. */
/* clang-format off */
typedef enum {
    /* forward: inputs -> outputs */
    SL_OP_ADD,       /* a, b -> a + b, broadcasting as NumPy does */
    SL_OP_MULTIPLY,  /* a, b -> a * b, broadcasting */
    SL_OP_SCALE,     /* x -> x * attrs.scale.factor */
    SL_OP_LINEAR,    /* x[..,I], w[O,I] (or [I,O] with attrs.linear.in_out), bias[O]? -> y[..,O] */
    SL_OP_LINEAR_GELU, /* x, w, bias? -> gelu(y) in the tanh form, y: LINEAR's, for backward. Lowering makes it of the two */
    SL_OP_LINEAR_ADD, /* x, w, base[..,O], bias? -> base + LINEAR's y. Lowering makes it of the two */
    SL_OP_MATMUL,    /* a[..,M,K], b[..,K,N] (attrs.matmul.transpose_a/b swap the last two), leading dims equal -> [..,M,N] */
    SL_OP_EMBEDDING, /* ids[..] i32, table[V,C] -> [..,C]; ids outside [0,V) are the data reader's fault and checked there */
    SL_OP_RELU,      /* x -> max(x, 0) */
    SL_OP_GELU,      /* x -> gelu(x); attrs.gelu.exact: erf, else tanh */
    SL_OP_SILU,      /* x -> x * sigmoid(x) */
    SL_OP_SWIGLU,    /* x[..,2F] -> silu(x[..,:F]) * x[..,F:] */
    SL_OP_SOFTMAX,   /* x -> softmax over the last dimension */
    SL_OP_LAYER_NORM, /* x[..,C], weight[C], bias[C]? -> y, mean[rows], rstd[rows] */
    SL_OP_RMS_NORM,   /* x[..,C], weight[C] -> y, rstd[rows] */
    SL_OP_ROTARY,     /* x[B,T,W] -> same; rotates attrs.rotary.heads heads of width D from the row's start (pairs i, i + D/2),
                         positions 0..T-1, copies the rest; attrs.rotary.inverse: the transpose rotation */
    SL_OP_ATTENTION,  /* qkv[B,T,(H+2G)*D], or q[B,T,H*D], k[B,S,G*D], v[B,S,G*D] -> out[B,T,H*D], lse[B,H,T].
                         Query head h uses key head h / (H/G). Causal needs T == S. Never materialises T x S. */
    SL_OP_DROPOUT,    /* x -> x * keep / (1-p); keep from the counter (seed, step, micro, op, element); identity in evaluation.
                         Its own gradient: the same op on dy with the same attrs.dropout.op */
    SL_OP_RESHAPE,    /* x -> same bytes, other shape. A view: never computed */
    SL_OP_TRANSPOSE,  /* x -> dims permuted by attrs.transpose.order: out.dim[i] = in.dim[order[i]] */
    SL_OP_SPLIT,      /* x -> part [start, start+size) of dimension attrs.split.axis */
    SL_OP_CONCAT,     /* up to 8 inputs -> joined along attrs.concat.axis */
    SL_OP_CROSS_ENTROPY, /* logits[..,V], targets[..] i32 -> mean loss [], lse[rows], count[] (rows not ignored, as f32; loss 0 if none) */
    SL_OP_LINEAR_CROSS_ENTROPY, /* x[..,I], w[O,I], targets[..] i32 -> mean loss [], count[] (as CROSS_ENTROPY), dw[O,I] in f32, dx
                         like x: the gradients of the loss for a seed of context.seed_gradient, so that logits never exist as
                         a whole: rows are worked through in chunks whose length depends on the shape alone. dw and dx may be
                         absent, and are not computed then */
    SL_OP_MSE,        /* y, target (same shape) -> mean squared difference [] */
    SL_OP_SUM,        /* x -> sum of all elements [] */
    SL_OP_MEAN,       /* x -> mean of all elements [] */
    SL_OP_CAST,       /* x -> the same values in the output's type, rounded to nearest even (accumulates, in f32).
                         Also an update op of the plan: a summed gradient -> the wire type */
    /* backward only */
    SL_OP_SEED,            /* -> [] = loss_scale / K from the run context */
    SL_OP_REDUCE_TO,       /* dy -> summed over broadcast dimensions to the output's shape (accumulates) */
    SL_OP_MULTIPLY_REDUCE, /* dy, other (broadcast to dy) -> (dy * other) summed to the output's shape (accumulates) */
    SL_OP_LINEAR_GRAD_INPUT,  /* dy[..,O], w -> dx[..,I] (accumulates) */
    SL_OP_LINEAR_GRAD_GELU,   /* dy[..,O], w, h[..,I] -> dh[..,I]: LINEAR_GRAD_INPUT's dx, then GELU_GRAD's for x = gelu(h) in the tanh form */
    SL_OP_LINEAR_GRAD_WEIGHT, /* dy[..,O], x[..,I] -> dw, dbias? (accumulates) */
    SL_OP_EMBEDDING_GRAD,  /* ids, dy -> dtable: rows added in order of token position (accumulates) */
    SL_OP_RELU_GRAD,       /* y, dy -> dx (accumulates) */
    SL_OP_GELU_GRAD,       /* x, dy -> dx (accumulates) */
    SL_OP_SILU_GRAD,       /* x, dy -> dx (accumulates) */
    SL_OP_SWIGLU_GRAD,     /* x, dy -> dx (accumulates) */
    SL_OP_SOFTMAX_GRAD,    /* y, dy -> dx (accumulates) */
    SL_OP_LAYER_NORM_GRAD, /* x, weight, mean, rstd, dy -> dx?, dweight?, dbias? (accumulates) */
    SL_OP_RMS_NORM_GRAD,   /* x, weight, rstd, dy -> dx?, dweight? (accumulates) */
    SL_OP_ATTENTION_GRAD,  /* forward inputs (1 or 3), out, lse, dout -> dqkv, or dq, dk, dv */
    SL_OP_CONCAT_GRAD,     /* dy -> part, as SPLIT, but accumulating */
    SL_OP_SPLIT_GRAD,      /* dy -> dx: attrs.split part set or added, the rest zeroed unless accumulating */
    SL_OP_CROSS_ENTROPY_GRAD, /* logits, targets, lse, count, dloss -> dlogits */
    SL_OP_LINEAR_CROSS_ENTROPY_GRAD, /* dw, dx as forward left them, dloss -> dw?, dx?: times dloss / context.seed_gradient, a
                              factor of exactly 1 where the loss itself is differentiated (accumulates) */
    SL_OP_MSE_GRAD,        /* y, target, dloss -> dy?, dtarget? (accumulates) */
    SL_OP_EXPAND,          /* scalar -> every element, times attrs.scale.factor (gradient of sum and mean; accumulates) */
    /* update phase: operands are whole-layer flat buffers bound by the plan, see plan/plan.h */
    SL_OP_ACCUMULATE,  /* contribution in the wire type -> f32 accumulator: copied for the first micro-batch of a step, added
                          afterwards (rule 1) */
    SL_OP_NORM_LEAVES, /* gradient -> fp64 sum of squares per 1,024 elements (rule 3) */
    SL_OP_NORM_FINISH, /* all leaves -> sl_norm_result */
    SL_OP_UPDATE,      /* gradient, norm result (absent: all is finite, the factor 1) -> weights,
                          rest of the master, state slots; all in place. f32 weights are
                          their own master (no rest); bf16 ones and their REMAINDER are it together; f16 ones are written
                          from the f32 rest, also when the step is left out, and never read. A gradient in f32 where the wire type is narrower is a sum that
                          was not rounded yet: NORM_LEAVES and UPDATE round it as they read it (rule 1) */
    SL_OP_COUNT
} sl_op;

/* Typed parameters of an op: the union member is named for the op. */
typedef struct sl_attrs {
    uint32_t accumulate; /* bit i: output i is added to */
    union {
        struct { float factor; } scale;
        struct { bool in_out; } linear;
        struct { bool transpose_a, transpose_b; } matmul;
        struct { bool exact; } gelu;
        struct { float epsilon; } norm;
        struct { int heads; int head_width; float base; bool inverse; } rotary;
        struct { int heads, kv_heads, head_width; bool causal; bool packed; float scale; } attention;
        struct { float p; uint32_t op; } dropout; /* op: the forward node's index, fixed at building */
        struct { int order[SL_MAX_RANK]; } transpose;
        struct { int axis; int64_t start, size; } split;
        struct { int axis; } concat;
        struct { int32_t ignore_index; } cross_entropy;
        struct { int input; } mse; /* unused by forward */
        const struct sl_update_rule *update; /* SL_OP_UPDATE; borrowed from the optimizer */
    };
} sl_attrs;

/* clang-format on */

/* Written by SL_OP_NORM_FINISH, read by SL_OP_UPDATE and, after the step, by the caller. */
typedef struct sl_norm_result {
    double norm;    /* global L2 norm before clipping, unscaled */
    float factor;   /* what every gradient element is multiplied by: 1/loss_scale times the clip factor */
    int32_t finite; /* 0: some element is not finite; updates of this step do nothing */
} sl_norm_result;

/* A run of one layer's flat buffer that is updated alike: one parameter. */
typedef struct sl_update_segment {
    int64_t offset, count; /* elements in the layer's flat buffer */
    int group;             /* index into sl_run_context.groups */
} sl_update_segment;

typedef enum {
    SL_UPDATE_SGD,
    SL_UPDATE_ADAGRAD,
    SL_UPDATE_ADAM, /* L2 decay into the gradient, or decoupled, by group scalars */
    SL_UPDATE_LAMB,
    SL_UPDATE_LARS,
    SL_UPDATE_LION,
    SL_UPDATE_KIND_COUNT
} sl_update_kind;

/* What an update node needs besides its operands and the step's scalars. Built by optim/, one per layer. */
typedef struct sl_update_rule {
    sl_update_kind kind;
    int slots;                    /* state tensors, each as long as the layer's flat buffer */
    const struct sl_layer *layer; /* for BLOCKS8 slots: which blocks are f32 (ir/form.h); borrowed from the graph */
    /* Number of the layer's first element among those of all layers, each counted up to a multiple of SL_CUT_ELEMENTS:
     * the counter of what is rounded at random. */
    uint64_t first_element;
    bool nesterov, amsgrad, decoupled_decay;
    const sl_update_segment *segments;
    int segment_count;
} sl_update_rule;

/* Per-group numbers of this step, computed once on the host in double and rounded to float (rule 4). */
typedef struct sl_group_scalars {
    float lr, weight_decay, beta1, beta2, epsilon, momentum, dampening;
    float one_minus_beta1, one_minus_beta2; /* rounded from double, not from the floats above */
    float step_size;                        /* lr / bias_correction1 */
    float bias2_sqrt;                       /* sqrt(bias_correction2) */
    float decay_factor;                     /* 1 - lr * weight_decay */
    float bias1, bias2;                     /* 1 - beta^t */
    float trust, trust_min, trust_max;      /* LARS coefficient; LAMB bounds */
    int32_t first_step;                     /* 1 on the optimizer's first step: momentum starts as the gradient */
} sl_group_scalars;

/* What changes from run to run of the same plan. */
typedef struct sl_run_context {
    uint64_t seed;
    uint64_t step;       /* from 1 */
    uint32_t micro;      /* global micro-batch index j in the step, from 0 */
    bool training;       /* false: dropout is the identity */
    float seed_gradient; /* loss_scale / K */
    double clip;         /* 0: never */
    double loss_scale;   /* 1 in fp32 */
    int group_count;
    sl_group_scalars groups[SL_MAX_GROUPS];
} sl_run_context;

typedef struct sl_cost {
    double flops; /* multiply and add count as two */
    double bytes; /* read and written, each operand once */
} sl_cost;

struct sl_node;
struct sluice_graph;

struct sl_autodiff;

typedef struct sl_op_def {
    const char *name;
    int min_inputs, max_inputs; /* optional inputs come last */
    int outputs;                /* at most; saved statistics included */
    bool accumulates;           /* honours attrs.accumulate */
    bool view;                  /* output shares input 0's storage; never computed */
    /* Input whose bytes output 0 may take over; -1: none. The planner does so only where that input's storage dies at
     * this node, the byte sizes are equal and output 0 is not accumulated; kernels must then tolerate out == in exactly
     * (never a partial overlap). */
    int in_place;
    /* Output shapes and dtypes from inputs and attrs; fails naming the op and, on mismatch, both producers. Where the
     * inputs leave a shape open (RESHAPE, REDUCE_TO, MULTIPLY_REDUCE, EMBEDDING_GRAD, SPLIT_GRAD, EXPAND)
     * node->outputs[0] is already a value: its shape is checked and returned. NULL for update ops. */
    sluice_status (*infer)(const struct sluice_graph *g, const struct sl_node *node, sl_shape *shapes,
                           sluice_dtype *dtypes);
    /* Appends the backward nodes of ad's current forward node (ir/autodiff.h); NULL: not differentiable. */
    sluice_status (*gradient)(struct sl_autodiff *ad);
    sl_cost (*cost)(const struct sluice_graph *g, const struct sl_node *node);
    const char *saved[SL_MAX_OUTPUTS - 1]; /* what outputs 1, 2, .. of a forward op are: "mean", "rstd" */
    /* Bit i: output i may be of any float type, whatever the inputs' types: parameter gradients, which have the wire
     * type or are summed in f32, and the tensor that EXPAND makes of an f32 scalar. */
    uint32_t wide_outputs;
} sl_op_def;

extern const sl_op_def sl_ops[SL_OP_COUNT];

/* Whether output k of a forward op is there for backward alone and need not be computed without one. (Saved statistics
 * such as a mean are cheap and always computed.) */
static inline bool sl_op_serves_backward(sl_op op, int k)
{
    return op == SL_OP_LINEAR_CROSS_ENTROPY && k >= 2;
}

#endif

/* update_rule.h: the rules by which SL_OP_UPDATE changes weights and optimizer state.
 *
 * A rule is what one pass of a kernel does to a weight, its gradient and its state slots. An optimizer (optim/optim.c)
 * is a choice among rules, by its options, with names for the slots and the numbers of each step. To add a rule: one
 * row here, and a function of the row's name in backend/cpu/kernels/update_rules.h and
 * backend/cuda/update_rules.cuh. Both backends build their tables from these rows, so a missing function does not
 * compile. */
#ifndef SL_IR_UPDATE_RULE_H
#define SL_IR_UPDATE_RULE_H

#include <stdbool.h>
#include <stdint.h>

#define SL_MAX_GROUPS      16 /* parameter groups of an optimizer */
#define SL_MAX_STATE_SLOTS 3  /* state tensors per parameter: momentum, variance, max variance */

/* The rules. Columns: name, state slots, squares: bit s is set where slot s is a mean or sum of squares and therefore
 * never below zero (8-bit codes then need no sign).
 * ELEMENTWISE rules see one element at a time. WHOLE ones scale a parameter's step by norms of the whole parameter, so
 * they take two passes, need parameters that no rank boundary cuts, and keep their state in fp32; their last column is
 * what the first pass measures (update_two_pass.c, update_two_pass.cu). */
/* clang-format off */
#define SL_UPDATE_RULES(ELEMENTWISE, WHOLE)          \
    ELEMENTWISE(sgd_plain,              0, 0)        \
    ELEMENTWISE(sgd_momentum,           1, 0)        \
    ELEMENTWISE(sgd_nesterov,           1, 0)        \
    ELEMENTWISE(adagrad,                1, 1u << 0)  \
    ELEMENTWISE(adam_l2,                2, 1u << 1)  \
    ELEMENTWISE(adam_decoupled,         2, 1u << 1)  \
    ELEMENTWISE(adam_l2_amsgrad,        3, 3u << 1)  \
    ELEMENTWISE(adam_decoupled_amsgrad, 3, 3u << 1)  \
    ELEMENTWISE(lion,                   1, 0)        \
    ELEMENTWISE(rmsprop,                1, 1u << 0)  \
    ELEMENTWISE(rmsprop_momentum,       2, 1u << 0)  \
    ELEMENTWISE(rmsprop_centered,       2, 1u << 0)  \
    ELEMENTWISE(rmsprop_centered_momentum, 3, 1u << 0) \
    WHOLE(lamb,                         2, 1u << 1, lamb) \
    WHOLE(lars_plain,                   0, 0, lars)  \
    WHOLE(lars_momentum,                1, 0, lars)  \
    WHOLE(lars_nesterov,                1, 0, lars)
/* clang-format on */

typedef enum {
#define SL_UPDATE_ENUM(name, slots, squares)                SL_UPDATE_##name,
#define SL_UPDATE_ENUM_WHOLE(name, slots, squares, measure) SL_UPDATE_##name,
    SL_UPDATE_RULES(SL_UPDATE_ENUM, SL_UPDATE_ENUM_WHOLE)
#undef SL_UPDATE_ENUM
#undef SL_UPDATE_ENUM_WHOLE
        SL_UPDATE_KIND_COUNT
} sl_update_kind;

/* A row of SL_UPDATE_RULES as data. */
typedef struct sl_update_def {
    const char *name;
    int slots;             /* state tensors, each as long as the layer's flat buffer */
    uint32_t squares;      /* bit s: slot s is never below zero */
    bool whole_parameters; /* needs norms of whole parameters */
} sl_update_def;

extern const sl_update_def sl_updates[SL_UPDATE_KIND_COUNT];

/* A run of one layer's flat buffer that is updated alike: one parameter, or one tile of a parameter. */
typedef struct sl_update_segment {
    int64_t offset, count; /* elements in the layer's flat buffer */
    int group;             /* index into sl_run_context.groups */
    /* As a matrix, row-major: the first dimension, and the product of the others; a vector or scalar is one row.
     * rows * columns == count. For rules on matrices; elementwise ones do not read it. */
    int64_t rows, columns;
} sl_update_segment;

/* What an update node needs besides its operands and the step's scalars. Built by optim/, one per layer. */
typedef struct sl_update_rule {
    sl_update_kind kind;
    const struct sl_layer *layer; /* for BLOCKS8 slots: which blocks are f32 (ir/form.h); borrowed from the graph */
    /* Number of the layer's first element among those of all layers, each counted up to a multiple of SL_CUT_ELEMENTS:
     * the counter of random rounding. */
    uint64_t first_element;
    const sl_update_segment *segments; /* in order of offset, without overlap */
    int segment_count;
} sl_update_rule;

/* Per-group numbers of this step, computed once on the host in double and rounded to float (rule 4). */
typedef struct sl_group_scalars {
    float rate; /* lr, or lr / bias_correction1 for optimizers that correct for the zero start of the first moments */
    float weight_decay, beta1, beta2, epsilon, momentum, dampening;
    float one_minus_beta1, one_minus_beta2; /* rounded from double, not from the floats above */
    float bias2_sqrt;                       /* sqrt(1 - beta2^t) */
    float decay_factor;                     /* 1 - lr * weight_decay */
    float trust, trust_min, trust_max;      /* LARS coefficient; LAMB bounds */
    int32_t first_step;                     /* 1 on the optimizer's first step: momentum starts as the gradient */
} sl_group_scalars;

#endif

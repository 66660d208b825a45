/* op_cases.h: calls of every op. A case serves the CPU's kernels on every path, the emulated CUDA kernels and those of a
 * GPU, held to the reference in every type (tests/backend/ops_test.c), and, where it is of a forward op and small, holds
 * the op's gradient to finite differences (tests/ir/gradients_test.c). An op without a case fails both; new cases come
 * last, because the numbers of a case follow from its place. */
#ifndef SLUICE_TEST_OP_CASES_H
#define SLUICE_TEST_OP_CASES_H

#include "ir/graph.h"

typedef enum {
    NORMAL,   /* -1.5 .. 1.5 */
    WIDE,     /* -30 .. 30, and numbers beyond where exponentials reach their limits */
    STEEP,    /* -30 .. 30: their products fit every type */
    POSITIVE, /* 0.5 .. 1.5 */
    LARGE,    /* 6 .. 8: as a log of a sum of exponentials of NORMAL numbers */
    INDEX,    /* i32 below `classes` */
    TARGET,   /* the same, every third one the ignored index */
    SEEN,     /* i32: keys of a row that count, below .classes */
    POSITION, /* i32: places in documents, several to a row of the last dimension, each from 0 on */
    SLOT,     /* i32: row number modulo `classes` */
    TURN,     /* i32: 21, counted on with every `classes` rows */
    LABEL,  /* i32: rows of labels, some of them equal to the one before, -1 behind the last; attrs.ctc.blank is none */
    LENGTH, /* i32: of each sequence, up to the second dimension of input 0; every fifth one is empty */
    END,    /* i32: where bags of `classes` rows end; every third one is empty */
    COUNT,  /* the number of targets that are not ignored, or 3 */
    COMPUTED, /* an output of the forward op on the inputs before it */
} fill_kind;

typedef struct op_case {
    sl_op op;
    sl_attrs attrs;
    int inputs, outputs;
    sl_shape in[SL_MAX_INPUTS], out[SL_MAX_OUTPUTS];
    fill_kind fill[SL_MAX_INPUTS];
    int32_t classes;
    unsigned absent;   /* bit i: output i is not wanted */
    double tolerance;  /* relative to the element plus the output's root mean square; 0: DEFAULT_TOLERANCE */
    double narrow_gpu; /* as narrow, on backends other than the CPU's alone: they round where it does not */
    double narrow;     /* the same in 16-bit types, for ops that round between their products; 0: as in f32 */
    bool exact;        /* elements only move: no tolerance */
    bool evaluation;   /* not training */
} op_case;

#define SHAPE(...)                                                                                                     \
    {                                                                                                                  \
        .rank = (int)(sizeof((int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t)), .dim = { __VA_ARGS__ }                    \
    }
#define SCALAR                                                                                                         \
    {                                                                                                                  \
        .rank = 0                                                                                                      \
    }

/* Cases of one input and one output of the same shape, of two inputs and one output, and so on. */
#define UNARY(op_, ...)                                                                                                \
    .op = SL_OP_##op_, .inputs = 1, .outputs = 1, .in = { SHAPE(__VA_ARGS__) }, .out = { SHAPE(__VA_ARGS__) }
#define GRAD(op_, ...)                                                                                                 \
    .op = SL_OP_##op_, .inputs = 2, .outputs = 1, .in = { SHAPE(__VA_ARGS__), SHAPE(__VA_ARGS__) },                    \
    .out = { SHAPE(__VA_ARGS__) }
#define IO(op_, inputs_, outputs_) .op = SL_OP_##op_, .inputs = inputs_, .outputs = outputs_

/* Labels of a row: all, half as many, none, one. Every third is the label before it. */
static inline int32_t case_label(const op_case *c, int input, int64_t i)
{
    const int64_t most = c->in[input].dim[1], row = i / most, k = i % most;
    const int64_t lengths[] = { most, most / 2, 0, 1 };
    const int32_t place = (int32_t)(row * 5 + (k % 3 == 2 ? k - 1 : k) * 2);
    return k < lengths[row % 4] ? (c->attrs.ctc.blank + 1 + place % (c->classes - 1)) % c->classes : -1;
}

static inline int32_t case_length(const op_case *c, int64_t row)
{
    const int64_t frames = c->in[c->op == SL_OP_GRU_GRAD ? 2 : 0].dim[1];
    const int64_t lengths[] = { frames, frames - 1, frames * 3 / 4, frames / 2, 0 };
    return (int32_t)lengths[row % 5];
}

static inline int32_t case_end(const op_case *c, int input, int64_t bag)
{
    const int64_t bags = c->in[input].dim[0];
    return (int32_t)((bag % 3 == 1 ? bag : bag + 1) * c->classes / bags);
}

/* Statistics and scalars, which are f32 in every type. Attention's depend on how many inputs come before them. */
static const struct {
    unsigned in, out;
} stays_f32[SL_OP_COUNT] = {
    [SL_OP_LAYER_NORM] = { 0, 6 },
    [SL_OP_RMS_NORM] = { 0, 2 },
    [SL_OP_QK_NORM] = { 0, 2 },
    [SL_OP_BATCH_NORM] = { 0, 14 },
    [SL_OP_GROUP_NORM] = { 0, 6 },
    [SL_OP_ATTENTION] = { 0, 2 },
    [SL_OP_CROSS_ENTROPY] = { 0, 7 },
    [SL_OP_MSE] = { 0, 1 },
    [SL_OP_SUM] = { 0, 1 },
    [SL_OP_MEAN] = { 0, 1 },
    [SL_OP_SEED] = { 0, 1 },
    [SL_OP_EXPAND] = { 1, 0 },
    [SL_OP_LAYER_NORM_GRAD] = { 12, 0 },
    [SL_OP_RMS_NORM_GRAD] = { 4, 0 },
    [SL_OP_QK_NORM_GRAD] = { 8, 0 },
    [SL_OP_BATCH_NORM_GRAD] = { 24, 0 },
    [SL_OP_BATCH_MOMENTS] = { 0, 1 },
    [SL_OP_BATCH_STATISTICS] = { 2, 7 },
    [SL_OP_BATCH_NORMALIZE] = { 24, 0 },
    [SL_OP_BATCH_NORM_SUMS] = { 24, 1 },
    [SL_OP_BATCH_NORMALIZE_GRAD] = { 88, 0 },
    [SL_OP_GROUP_NORM_GRAD] = { 12, 0 },
    [SL_OP_MSE_GRAD] = { 4, 0 },
    [SL_OP_CROSS_ENTROPY_GRAD] = { 28, 0 },
    [SL_OP_LINEAR_CROSS_ENTROPY] = { 0, 23 },
    [SL_OP_LINEAR_CROSS_ENTROPY_GRAD] = { 13, 0 },
    [SL_OP_BCE_WITH_LOGITS] = { 0, 1 },
    [SL_OP_BCE_WITH_LOGITS_GRAD] = { 4, 0 },
    [SL_OP_GRU] = { 0, 2 },
    [SL_OP_GRU_GRAD] = { 2, 0 },
    [SL_OP_CTC_LOSS] = { 0, 1 },
    [SL_OP_CTC_LOSS_GRAD] = { 2, 0 },
};

/* Rows give the attributes that matter to them; clang would have all of them in each. */
#if defined(__clang__)
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wmissing-field-initializers"
#endif
static const op_case cases[] = {
    /* clang-format off */
    { IO(ADD, 2, 1), .in = { SHAPE(3, 5), SHAPE(3, 5) }, .out = { SHAPE(3, 5) } },
    { IO(ADD, 2, 1), .in = { SHAPE(40009), SHAPE(40009) }, .out = { SHAPE(40009) } },
    { IO(ADD, 2, 1), .in = { SHAPE(37, 768), SHAPE(768) }, .out = { SHAPE(37, 768) } },
    { IO(ADD, 2, 1), .in = { SHAPE(300, 1), SHAPE(300, 101) }, .out = { SHAPE(300, 101) } },
    { IO(ADD, 2, 1), .in = { SHAPE(300, 101), SHAPE(300, 1) }, .out = { SHAPE(300, 101) } },
    { IO(ADD, 2, 1), .in = { SHAPE(4, 1, 6), SHAPE(5, 1) }, .out = { SHAPE(4, 5, 6) } },
    { IO(ADD, 2, 1), .in = { SCALAR, SHAPE(7, 9) }, .out = { SHAPE(7, 9) } },
    { IO(ADD, 2, 1), .in = { SCALAR, SCALAR }, .out = { SCALAR } },
    { IO(ADD, 2, 1), .in = { SHAPE(2, 1, 3, 1, 5, 1), SHAPE(1, 4, 3, 2, 1, 7) }, .out = { SHAPE(2, 4, 3, 2, 5, 7) } },
    { IO(MULTIPLY, 2, 1), .in = { SHAPE(19, 33), SHAPE(19, 33) }, .out = { SHAPE(19, 33) } },
    { IO(MULTIPLY, 2, 1), .in = { SHAPE(70, 520), SHAPE(520) }, .out = { SHAPE(70, 520) } },
    { IO(MULTIPLY, 2, 1), .in = { SHAPE(1, 5), SHAPE(4, 1) }, .out = { SHAPE(4, 5) } },
    { IO(MULTIPLY, 2, 1), .in = { SHAPE(2, 3, 1, 5), SHAPE(3, 4, 1) }, .out = { SHAPE(2, 3, 4, 5) } },

    { UNARY(SCALE, 33000), .attrs = { .scale = { 0.3f } } },
    { UNARY(RELU, 17, 11) },
    { UNARY(RELU, 33001) },
    { UNARY(GELU, 13, 17), .fill = { WIDE } },
    { UNARY(GELU, 33001) },
    { UNARY(GELU, 13, 17), .fill = { WIDE }, .attrs = { .gelu = { true } } },
    { UNARY(GELU, 33001), .attrs = { .gelu = { true } } },
    { UNARY(SILU, 13, 17), .fill = { WIDE } },
    { UNARY(SILU, 33001) },
    { GRAD(RELU_GRAD, 300, 111) },
    { GRAD(GELU_GRAD, 300, 111) },
    { GRAD(GELU_GRAD, 41, 7), .fill = { WIDE } },
    { GRAD(GELU_GRAD, 300, 111), .attrs = { .gelu = { true } } },
    { GRAD(GELU_GRAD, 41, 7), .fill = { WIDE }, .attrs = { .gelu = { true } } },
    { GRAD(SILU_GRAD, 300, 111) },
    { GRAD(SILU_GRAD, 41, 7), .fill = { WIDE } },
    { IO(SWIGLU, 1, 1), .in = { SHAPE(3, 5, 6) }, .out = { SHAPE(3, 5, 3) } },
    { IO(SWIGLU, 1, 1), .in = { SHAPE(13, 34) }, .out = { SHAPE(13, 17) }, .fill = { STEEP } },
    { IO(SWIGLU, 1, 1), .in = { SHAPE(300, 222) }, .out = { SHAPE(300, 111) } },
    { IO(SWIGLU, 1, 1), .in = { SHAPE(34000) }, .out = { SHAPE(17000) } },
    { IO(SWIGLU_GRAD, 2, 1), .in = { SHAPE(3, 5, 6), SHAPE(3, 5, 3) }, .out = { SHAPE(3, 5, 6) } },
    { IO(SWIGLU_GRAD, 2, 1), .in = { SHAPE(300, 222), SHAPE(300, 111) }, .out = { SHAPE(300, 222) } },
    { IO(SWIGLU_GRAD, 2, 1), .in = { SHAPE(41, 14), SHAPE(41, 7) }, .out = { SHAPE(41, 14) }, .fill = { STEEP } },
    { UNARY(DROPOUT, 33001), .attrs = { .dropout = { 0.2f, 5 } } },
    { UNARY(DROPOUT, 3, 7), .attrs = { .dropout = { 0.5f, 6 } } },
    { UNARY(DROPOUT, 100), .attrs = { .dropout = { 0.0f, 6 } }, .exact = true },
    { UNARY(DROPOUT, 33001), .attrs = { .dropout = { 0.2f, 5 } }, .evaluation = true, .exact = true },
    { IO(SEED, 0, 1), .out = { SCALAR }, .exact = true },
    { IO(EXPAND, 1, 1), .in = { SCALAR }, .out = { SHAPE(33, 511) }, .attrs = { .scale = { 0.25f } } },
    { IO(EXPAND, 1, 1), .in = { SCALAR }, .out = { SCALAR }, .attrs = { .scale = { 1.0f } } },

    { UNARY(SOFTMAX, 7, 1) },
    { UNARY(SOFTMAX, 5, 19), .fill = { WIDE } },
    { UNARY(SOFTMAX, 60, 700) },
    { GRAD(SOFTMAX_GRAD, 5, 19), .fill = { POSITIVE } },
    { GRAD(SOFTMAX_GRAD, 60, 700), .fill = { POSITIVE }, .tolerance = 1e-4 },

    { IO(LAYER_NORM, 3, 3), .in = { SHAPE(2, 3, 5), SHAPE(5), SHAPE(5) }, .out = { SHAPE(2, 3, 5), SHAPE(6), SHAPE(6) }, .attrs = { .norm = { .epsilon = 1e-5f } } },
    { IO(LAYER_NORM, 3, 3), .in = { SHAPE(50, 771), SHAPE(771), SHAPE(771) }, .out = { SHAPE(50, 771), SHAPE(50), SHAPE(50) }, .fill = { LARGE }, .attrs = { .norm = { .epsilon = 1e-5f } } },
    { IO(LAYER_NORM, 2, 3), .in = { SHAPE(9, 64), SHAPE(64) }, .out = { SHAPE(9, 64), SHAPE(9), SHAPE(9) }, .attrs = { .norm = { .epsilon = 1e-3f } } },
    { IO(RMS_NORM, 2, 2), .in = { SHAPE(2, 3, 5), SHAPE(5) }, .out = { SHAPE(2, 3, 5), SHAPE(6) }, .attrs = { .norm = { .epsilon = 1e-5f } } },
    { IO(RMS_NORM, 2, 2), .in = { SHAPE(50, 771), SHAPE(771) }, .out = { SHAPE(50, 771), SHAPE(50) }, .attrs = { .norm = { .epsilon = 1e-6f } } },
    { IO(LAYER_NORM_GRAD, 5, 3), .in = { SHAPE(6, 5), SHAPE(5), SHAPE(6), SHAPE(6), SHAPE(6, 5) }, .out = { SHAPE(6, 5), SHAPE(5), SHAPE(5) }, .fill = { [3] = POSITIVE } },
    { IO(LAYER_NORM_GRAD, 5, 3), .in = { SHAPE(300, 209), SHAPE(209), SHAPE(300), SHAPE(300), SHAPE(300, 209) }, .out = { SHAPE(300, 209), SHAPE(209), SHAPE(209) }, .fill = { [3] = POSITIVE } },
    { IO(LAYER_NORM_GRAD, 5, 3), .in = { SHAPE(6, 70), SHAPE(70), SHAPE(6), SHAPE(6), SHAPE(6, 70) }, .out = { SHAPE(6, 70), SHAPE(70), SHAPE(70) }, .fill = { [3] = POSITIVE }, .absent = 1 },
    { IO(LAYER_NORM_GRAD, 5, 3), .in = { SHAPE(6, 70), SHAPE(70), SHAPE(6), SHAPE(6), SHAPE(6, 70) }, .out = { SHAPE(6, 70), SHAPE(70), SHAPE(70) }, .fill = { [3] = POSITIVE }, .absent = 6 },
    { IO(RMS_NORM_GRAD, 4, 2), .in = { SHAPE(6, 5), SHAPE(5), SHAPE(6), SHAPE(6, 5) }, .out = { SHAPE(6, 5), SHAPE(5) }, .fill = { [2] = POSITIVE } },
    { IO(RMS_NORM_GRAD, 4, 2), .in = { SHAPE(300, 211), SHAPE(211), SHAPE(300), SHAPE(300, 211) }, .out = { SHAPE(300, 211), SHAPE(211) }, .fill = { [2] = POSITIVE } },
    { IO(RMS_NORM_GRAD, 4, 2), .in = { SHAPE(6, 70), SHAPE(70), SHAPE(6), SHAPE(6, 70) }, .out = { SHAPE(6, 70), SHAPE(70) }, .fill = { [2] = POSITIVE }, .absent = 2 },

    { UNARY(ROTARY, 2, 35, 48), .attrs = { .rotary = { .heads = 3, .head_width = 16, .base = 10000.0f } } },
    { UNARY(ROTARY, 1, 20, 70), .attrs = { .rotary = { .heads = 2, .head_width = 20, .base = 10000.0f } } },
    { UNARY(ROTARY, 2, 35, 64), .attrs = { .rotary = { .heads = 1, .head_width = 64, .base = 500.0f, .inverse = true } } },
    { UNARY(ROTARY, 1, 18, 600), .attrs = { .rotary = { .heads = 1, .head_width = 600, .base = 10000.0f } } },

    { IO(CROSS_ENTROPY, 2, 3), .in = { SHAPE(2, 4, 5), SHAPE(2, 4) }, .out = { SCALAR, SHAPE(8), SCALAR }, .fill = { NORMAL, TARGET }, .classes = 5, .attrs = { .cross_entropy = { .ignore_index = -100 } } },
    { IO(CROSS_ENTROPY, 2, 3), .in = { SHAPE(200, 301), SHAPE(200) }, .out = { SCALAR, SHAPE(200), SCALAR }, .fill = { WIDE, TARGET }, .classes = 301, .attrs = { .cross_entropy = { .ignore_index = 7 } } },
    { IO(CROSS_ENTROPY, 2, 3), .in = { SHAPE(3, 50257), SHAPE(3) }, .out = { SCALAR, SHAPE(3), SCALAR }, .fill = { NORMAL, INDEX }, .classes = 50257, .attrs = { .cross_entropy = { .ignore_index = -1 } } },
    { IO(CROSS_ENTROPY_GRAD, 5, 1), .in = { SHAPE(2, 4, 5), SHAPE(2, 4), SHAPE(8), SCALAR, SCALAR }, .out = { SHAPE(2, 4, 5) }, .fill = { NORMAL, TARGET, LARGE, COUNT }, .classes = 5, .attrs = { .cross_entropy = { .ignore_index = -100 } } },
    { IO(CROSS_ENTROPY_GRAD, 5, 1), .in = { SHAPE(200, 301), SHAPE(200), SHAPE(200), SCALAR, SCALAR }, .out = { SHAPE(200, 301) }, .fill = { NORMAL, TARGET, LARGE, COUNT }, .classes = 301, .attrs = { .cross_entropy = { .ignore_index = 0 } } },
    { IO(LINEAR_CROSS_ENTROPY, 3, 4), .in = { SHAPE(2, 4, 6), SHAPE(5, 6), SHAPE(2, 4) }, .out = { SCALAR, SCALAR, SHAPE(5, 6), SHAPE(2, 4, 6) }, .fill = { NORMAL, NORMAL, TARGET }, .classes = 5, .attrs = { .cross_entropy = { .ignore_index = -100 } }, .narrow = 0.1 },
    { IO(LINEAR_CROSS_ENTROPY, 3, 4), .in = { SHAPE(70, 33), SHAPE(301, 33), SHAPE(70) }, .out = { SCALAR, SCALAR, SHAPE(301, 33), SHAPE(70, 33) }, .fill = { NORMAL, NORMAL, TARGET }, .classes = 301, .attrs = { .cross_entropy = { .ignore_index = 7 } }, .narrow = 0.1 },
    { IO(LINEAR_CROSS_ENTROPY, 3, 4), .in = { SHAPE(300, 5), SHAPE(16500, 5), SHAPE(300) }, .out = { SCALAR, SCALAR, SHAPE(16500, 5), SHAPE(300, 5) }, .fill = { NORMAL, NORMAL, TARGET }, .classes = 16500, .attrs = { .cross_entropy = { .ignore_index = -1 } }, .narrow = 0.1 }, /* two chunks */
    { IO(LINEAR_CROSS_ENTROPY, 3, 4), .in = { SHAPE(9, 20), SHAPE(40, 20), SHAPE(9) }, .out = { SCALAR, SCALAR, SHAPE(40, 20), SHAPE(9, 20) }, .fill = { NORMAL, NORMAL, INDEX }, .classes = 40, .attrs = { .cross_entropy = { .ignore_index = -1 } }, .absent = 4, .narrow = 0.1 },
    { IO(LINEAR_CROSS_ENTROPY, 3, 4), .in = { SHAPE(9, 20), SHAPE(40, 20), SHAPE(9) }, .out = { SCALAR, SCALAR, SHAPE(40, 20), SHAPE(9, 20) }, .fill = { NORMAL, NORMAL, INDEX }, .classes = 40, .attrs = { .cross_entropy = { .ignore_index = -1 } }, .absent = 8, .narrow = 0.1 },
    { IO(LINEAR_CROSS_ENTROPY, 3, 4), .in = { SHAPE(9, 20), SHAPE(40, 20), SHAPE(9) }, .out = { SCALAR, SCALAR, SHAPE(40, 20), SHAPE(9, 20) }, .fill = { NORMAL, NORMAL, INDEX }, .classes = 40, .attrs = { .cross_entropy = { .ignore_index = -1 } }, .absent = 12, .evaluation = true, .narrow = 0.1 },
    { IO(LINEAR_CROSS_ENTROPY_GRAD, 3, 2), .in = { SHAPE(5, 6), SHAPE(2, 4, 6), SCALAR }, .out = { SHAPE(5, 6), SHAPE(2, 4, 6) } },
    { IO(LINEAR_CROSS_ENTROPY_GRAD, 3, 2), .in = { SHAPE(301, 111), SHAPE(70, 111), SCALAR }, .out = { SHAPE(301, 111), SHAPE(70, 111) } },
    { IO(LINEAR_CROSS_ENTROPY_GRAD, 3, 2), .in = { SHAPE(5, 6), SHAPE(8, 6), SCALAR }, .out = { SHAPE(5, 6), SHAPE(8, 6) }, .absent = 1 },
    { IO(LINEAR_CROSS_ENTROPY_GRAD, 3, 2), .in = { SHAPE(5, 6), SHAPE(8, 6), SCALAR }, .out = { SHAPE(5, 6), SHAPE(8, 6) }, .absent = 2 },
    { IO(MSE, 2, 1), .in = { SHAPE(5, 3), SHAPE(5, 3) }, .out = { SCALAR } },
    { IO(MSE, 2, 1), .in = { SHAPE(41, 1003), SHAPE(41, 1003) }, .out = { SCALAR } },
    { IO(MSE_GRAD, 3, 2), .in = { SHAPE(41, 1003), SHAPE(41, 1003), SCALAR }, .out = { SHAPE(41, 1003), SHAPE(41, 1003) } },
    { IO(MSE_GRAD, 3, 2), .in = { SHAPE(5, 3), SHAPE(5, 3), SCALAR }, .out = { SHAPE(5, 3), SHAPE(5, 3) }, .absent = 2 },
    { IO(MSE_GRAD, 3, 2), .in = { SHAPE(5, 3), SHAPE(5, 3), SCALAR }, .out = { SHAPE(5, 3), SHAPE(5, 3) }, .absent = 1 },

    { UNARY(CAST, 3, 7), .exact = true },
    { UNARY(CAST, 33001), .fill = { WIDE }, .exact = true },
    { IO(SUM, 1, 1), .in = { SHAPE(3, 5) }, .out = { SCALAR } },
    { IO(SUM, 1, 1), .in = { SHAPE(1100003) }, .out = { SCALAR } },
    { IO(SUM, 1, 1), .in = { SCALAR }, .out = { SCALAR }, .exact = true },
    { IO(MEAN, 1, 1), .in = { SHAPE(17, 3001) }, .out = { SCALAR } },
    { IO(REDUCE_TO, 1, 1), .in = { SHAPE(300, 200) }, .out = { SHAPE(200) } },
    { IO(REDUCE_TO, 1, 1), .in = { SHAPE(1000, 10) }, .out = { SHAPE(1, 10) } },
    { IO(REDUCE_TO, 1, 1), .in = { SHAPE(70, 1100) }, .out = { SHAPE(70, 1) } },
    { IO(REDUCE_TO, 1, 1), .in = { SHAPE(30, 1100) }, .out = { SCALAR } },
    { IO(REDUCE_TO, 1, 1), .in = { SHAPE(20, 65) }, .out = { SHAPE(65) } },
    { IO(REDUCE_TO, 1, 1), .in = { SHAPE(2, 3, 4) }, .out = { SHAPE(3, 1) } },
    { IO(REDUCE_TO, 1, 1), .in = { SHAPE(4, 5, 6) }, .out = { SHAPE(4, 1, 6) } },
    { IO(REDUCE_TO, 1, 1), .in = { SHAPE(2, 4, 3, 2, 5, 7) }, .out = { SHAPE(2, 1, 3, 1, 5, 1) } },
    { IO(REDUCE_TO, 1, 1), .in = { SHAPE(2, 4, 3, 2, 5, 7) }, .out = { SHAPE(4, 3, 2, 1, 7) } },
    { IO(REDUCE_TO, 1, 1), .in = { SHAPE(33, 1001) }, .out = { SHAPE(33, 1001) }, .exact = true },
    { IO(MULTIPLY_REDUCE, 2, 1), .in = { SHAPE(33, 1001), SHAPE(33, 1001) }, .out = { SHAPE(33, 1001) } },
    { IO(MULTIPLY_REDUCE, 2, 1), .in = { SHAPE(33, 1001), SHAPE(1001) }, .out = { SHAPE(33, 1001) } },
    { IO(MULTIPLY_REDUCE, 2, 1), .in = { SHAPE(300, 200), SHAPE(300, 200) }, .out = { SHAPE(200) } },
    { IO(MULTIPLY_REDUCE, 2, 1), .in = { SHAPE(300, 200), SHAPE(300, 1) }, .out = { SHAPE(200) } },
    { IO(MULTIPLY_REDUCE, 2, 1), .in = { SHAPE(300, 200), SHAPE(200) }, .out = { SHAPE(300, 1) } },
    { IO(MULTIPLY_REDUCE, 2, 1), .in = { SHAPE(40, 1100), SCALAR }, .out = { SHAPE(40, 1) } },
    { IO(MULTIPLY_REDUCE, 2, 1), .in = { SHAPE(7, 9), SHAPE(7, 9) }, .out = { SCALAR } },
    { IO(MULTIPLY_REDUCE, 2, 1), .in = { SHAPE(2, 4, 3, 2, 5, 7), SHAPE(2, 1, 3, 1, 5, 1) }, .out = { SHAPE(1, 4, 3, 2, 1, 7) } },

    { IO(EMBEDDING, 2, 1), .in = { SHAPE(3, 7), SHAPE(11, 5) }, .out = { SHAPE(3, 7, 5) }, .fill = { INDEX }, .classes = 11, .exact = true },
    { IO(EMBEDDING, 2, 1), .in = { SHAPE(100), SHAPE(50, 257) }, .out = { SHAPE(100, 257) }, .fill = { INDEX }, .classes = 50, .exact = true },
    { IO(EMBEDDING_GRAD, 2, 1), .in = { SHAPE(3, 7), SHAPE(3, 7, 5) }, .out = { SHAPE(11, 5) }, .fill = { INDEX }, .classes = 11 },
    { IO(EMBEDDING_GRAD, 2, 1), .in = { SHAPE(100), SHAPE(100, 257) }, .out = { SHAPE(90, 257) }, .fill = { INDEX }, .classes = 20 },

    { IO(EMBEDDING_GRAD, 2, 1), .in = { SHAPE(4500), SHAPE(4500, 20) }, .out = { SHAPE(700, 20) }, .fill = { INDEX }, .classes = 650 },

    { IO(TRANSPOSE, 1, 1), .in = { SHAPE(37, 53) }, .out = { SHAPE(53, 37) }, .attrs = { .transpose = { { 1, 0 } } }, .exact = true },
    { IO(TRANSPOSE, 1, 1), .in = { SHAPE(160, 200) }, .out = { SHAPE(200, 160) }, .attrs = { .transpose = { { 1, 0 } } }, .exact = true },
    { IO(TRANSPOSE, 1, 1), .in = { SHAPE(3, 40, 5, 24) }, .out = { SHAPE(3, 5, 40, 24) }, .attrs = { .transpose = { { 0, 2, 1, 3 } } }, .exact = true },
    { IO(TRANSPOSE, 1, 1), .in = { SHAPE(3, 4, 5) }, .out = { SHAPE(5, 3, 4) }, .attrs = { .transpose = { { 2, 0, 1 } } }, .exact = true },
    { IO(TRANSPOSE, 1, 1), .in = { SHAPE(3, 4, 5) }, .out = { SHAPE(5, 4, 3) }, .attrs = { .transpose = { { 2, 1, 0 } } }, .exact = true },
    { IO(TRANSPOSE, 1, 1), .in = { SHAPE(2, 3, 4, 5, 6, 7) }, .out = { SHAPE(6, 2, 7, 4, 3, 5) }, .attrs = { .transpose = { { 4, 0, 5, 2, 1, 3 } } }, .exact = true },
    { IO(TRANSPOSE, 1, 1), .in = { SHAPE(1, 4, 1) }, .out = { SHAPE(4, 1, 1) }, .attrs = { .transpose = { { 1, 2, 0 } } }, .exact = true },
    { IO(TRANSPOSE, 1, 1), .in = { SHAPE(30, 600) }, .out = { SHAPE(30, 600) }, .attrs = { .transpose = { { 0, 1 } } }, .exact = true },
    { IO(SPLIT, 1, 1), .in = { SHAPE(4, 9) }, .out = { SHAPE(4, 5) }, .attrs = { .split = { 1, 3, 5 } }, .exact = true },
    { IO(SPLIT, 1, 1), .in = { SHAPE(3, 500, 40) }, .out = { SHAPE(3, 420, 40) }, .attrs = { .split = { 1, 80, 420 } }, .exact = true },
    { IO(SPLIT, 1, 1), .in = { SHAPE(7) }, .out = { SHAPE(7) }, .attrs = { .split = { 0, 0, 7 } }, .exact = true },
    { IO(SPLIT_GRAD, 1, 1), .in = { SHAPE(4, 5) }, .out = { SHAPE(4, 9) }, .attrs = { .split = { 1, 3, 5 } } },
    { IO(SPLIT_GRAD, 1, 1), .in = { SHAPE(3, 420, 40) }, .out = { SHAPE(3, 500, 40) }, .attrs = { .split = { 1, 80, 420 } } },
    { IO(SPLIT_GRAD, 1, 1), .in = { SHAPE(4, 5) }, .out = { SHAPE(4, 9) }, .attrs = { .split = { 1, 0, 5 } } },
    { IO(CONCAT, 3, 1), .in = { SHAPE(2, 3, 4), SHAPE(2, 1, 4), SHAPE(2, 5, 4) }, .out = { SHAPE(2, 9, 4) }, .attrs = { .concat = { 1 } }, .exact = true },
    { IO(CONCAT, 2, 1), .in = { SHAPE(40, 300), SHAPE(40, 203) }, .out = { SHAPE(40, 503) }, .attrs = { .concat = { 1 } }, .exact = true },
    { IO(CONCAT_GRAD, 1, 1), .in = { SHAPE(2, 9, 4) }, .out = { SHAPE(2, 5, 4) }, .attrs = { .split = { 1, 4, 5 } } },
    { IO(CONCAT_GRAD, 1, 1), .in = { SHAPE(40, 503) }, .out = { SHAPE(40, 203) }, .attrs = { .split = { 1, 300, 203 } } },

    { IO(LINEAR, 3, 1), .in = { SHAPE(2, 3, 5), SHAPE(7, 5), SHAPE(7) }, .out = { SHAPE(2, 3, 7) } },
    { IO(LINEAR, 2, 1), .in = { SHAPE(1, 5), SHAPE(7, 5) }, .out = { SHAPE(1, 7) } },
    { IO(LINEAR, 3, 1), .in = { SHAPE(67, 130), SHAPE(130, 71), SHAPE(71) }, .out = { SHAPE(67, 71) }, .attrs = { .linear = { true } }, .narrow_gpu = 4e-3 },
    { IO(LINEAR, 3, 1), .in = { SHAPE(130, 600), SHAPE(257, 600), SHAPE(257) }, .out = { SHAPE(130, 257) }, .narrow_gpu = 4e-3 },
    { IO(LINEAR_GRAD_INPUT, 2, 1), .in = { SHAPE(2, 3, 7), SHAPE(7, 5) }, .out = { SHAPE(2, 3, 5) } },
    { IO(LINEAR_GRAD_INPUT, 2, 1), .in = { SHAPE(67, 71), SHAPE(130, 71) }, .out = { SHAPE(67, 130) }, .attrs = { .linear = { true } } },
    { IO(LINEAR_GRAD_INPUT, 2, 1), .in = { SHAPE(130, 257), SHAPE(257, 300) }, .out = { SHAPE(130, 300) } },
    { IO(LINEAR_GRAD_WEIGHT, 2, 2), .in = { SHAPE(2, 3, 7), SHAPE(2, 3, 5) }, .out = { SHAPE(7, 5), SHAPE(7) } },
    { IO(LINEAR_GRAD_WEIGHT, 2, 2), .in = { SHAPE(67, 71), SHAPE(67, 130) }, .out = { SHAPE(130, 71), SHAPE(71) }, .attrs = { .linear = { true } } },
    { IO(LINEAR_GRAD_WEIGHT, 2, 2), .in = { SHAPE(600, 130), SHAPE(600, 257) }, .out = { SHAPE(130, 257), SHAPE(130) } },
    { IO(LINEAR_GRAD_WEIGHT, 2, 2), .in = { SHAPE(6, 7), SHAPE(6, 5) }, .out = { SHAPE(7, 5), SHAPE(7) }, .absent = 2 },
    { IO(LINEAR_GRAD_WEIGHT, 2, 2), .in = { SHAPE(6, 7), SHAPE(6, 5) }, .out = { SHAPE(7, 5), SHAPE(7) }, .absent = 1 },
    { IO(MATMUL, 2, 1), .in = { SHAPE(2, 3, 5, 7), SHAPE(2, 3, 7, 6) }, .out = { SHAPE(2, 3, 5, 6) } },
    { IO(MATMUL, 2, 1), .in = { SHAPE(3, 7, 5), SHAPE(3, 7, 6) }, .out = { SHAPE(3, 5, 6) }, .attrs = { .matmul = { true, false } } },
    { IO(MATMUL, 2, 1), .in = { SHAPE(3, 5, 7), SHAPE(3, 6, 7) }, .out = { SHAPE(3, 5, 6) }, .attrs = { .matmul = { false, true } } },
    { IO(MATMUL, 2, 1), .in = { SHAPE(7, 5), SHAPE(6, 7) }, .out = { SHAPE(5, 6) }, .attrs = { .matmul = { true, true } } },
    { IO(MATMUL, 2, 1), .in = { SHAPE(130, 300), SHAPE(300, 70) }, .out = { SHAPE(130, 70) } },

    { IO(ATTENTION, 1, 2), .in = { SHAPE(2, 9, 24) }, .out = { SHAPE(2, 9, 8), SHAPE(2, 2, 9) }, .attrs = { .attention = { 2, 2, 4, true, true, 0.5f } }, .narrow_gpu = 1.6e-2 },
    { IO(ATTENTION, 1, 2), .in = { SHAPE(1, 130, 192) }, .out = { SHAPE(1, 130, 64), SHAPE(1, 1, 130) }, .attrs = { .attention = { 1, 1, 64, true, true, 0.125f } }, .narrow_gpu = 1.6e-2 },
    { IO(ATTENTION, 1, 2), .in = { SHAPE(2, 70, 160) }, .out = { SHAPE(2, 70, 80), SHAPE(2, 4, 70) }, .attrs = { .attention = { 4, 2, 20, false, true, 0.2f } }, .narrow_gpu = 1.6e-2 },
    { IO(ATTENTION, 3, 2), .in = { SHAPE(2, 5, 32), SHAPE(2, 77, 16), SHAPE(2, 77, 16) }, .out = { SHAPE(2, 5, 32), SHAPE(2, 4, 5) }, .attrs = { .attention = { 4, 2, 8, false, false, 0.35f } }, .narrow_gpu = 1.6e-2 },
    { IO(ATTENTION, 3, 2), .in = { SHAPE(1, 33, 48), SHAPE(1, 33, 16), SHAPE(1, 33, 16) }, .out = { SHAPE(1, 33, 48), SHAPE(1, 3, 33) }, .attrs = { .attention = { 3, 1, 16, true, false, 0.25f } }, .narrow_gpu = 1.6e-2 },
    { IO(ATTENTION_GRAD, 4, 1), .in = { SHAPE(2, 9, 24), SHAPE(2, 9, 8), SHAPE(2, 2, 9), SHAPE(2, 9, 8) }, .out = { SHAPE(2, 9, 24) }, .fill = { [1] = COMPUTED, COMPUTED }, .attrs = { .attention = { 2, 2, 4, true, true, 0.5f } }, .narrow_gpu = 1.6e-2 },
    { IO(ATTENTION_GRAD, 4, 1), .in = { SHAPE(1, 130, 192), SHAPE(1, 130, 64), SHAPE(1, 1, 130), SHAPE(1, 130, 64) }, .out = { SHAPE(1, 130, 192) }, .fill = { [1] = COMPUTED, COMPUTED }, .attrs = { .attention = { 1, 1, 64, true, true, 0.125f } }, .tolerance = 5e-5, .narrow_gpu = 1.6e-2 },
    { IO(ATTENTION_GRAD, 4, 1), .in = { SHAPE(2, 70, 160), SHAPE(2, 70, 80), SHAPE(2, 4, 70), SHAPE(2, 70, 80) }, .out = { SHAPE(2, 70, 160) }, .fill = { [1] = COMPUTED, COMPUTED }, .attrs = { .attention = { 4, 2, 20, false, true, 0.2f } }, .tolerance = 5e-5, .narrow_gpu = 1.6e-2 },
    { IO(ATTENTION_GRAD, 6, 3), .in = { SHAPE(2, 5, 32), SHAPE(2, 77, 16), SHAPE(2, 77, 16), SHAPE(2, 5, 32), SHAPE(2, 4, 5), SHAPE(2, 5, 32) }, .out = { SHAPE(2, 5, 32), SHAPE(2, 77, 16), SHAPE(2, 77, 16) }, .fill = { [3] = COMPUTED, COMPUTED }, .attrs = { .attention = { 4, 2, 8, false, false, 0.35f } }, .narrow_gpu = 1.6e-2 },
    { IO(ATTENTION_GRAD, 6, 3), .in = { SHAPE(2, 5, 32), SHAPE(2, 77, 16), SHAPE(2, 77, 16), SHAPE(2, 5, 32), SHAPE(2, 4, 5), SHAPE(2, 5, 32) }, .out = { SHAPE(2, 5, 32), SHAPE(2, 77, 16), SHAPE(2, 77, 16) }, .fill = { [3] = COMPUTED, COMPUTED }, .attrs = { .attention = { 4, 2, 8, false, false, 0.35f } }, .absent = 1, .narrow_gpu = 1.6e-2 },
    { IO(ATTENTION_GRAD, 6, 3), .in = { SHAPE(2, 5, 32), SHAPE(2, 77, 16), SHAPE(2, 77, 16), SHAPE(2, 5, 32), SHAPE(2, 4, 5), SHAPE(2, 5, 32) }, .out = { SHAPE(2, 5, 32), SHAPE(2, 77, 16), SHAPE(2, 77, 16) }, .fill = { [3] = COMPUTED, COMPUTED }, .attrs = { .attention = { 4, 2, 8, false, false, 0.35f } }, .absent = 6, .narrow_gpu = 1.6e-2 },
    { IO(ATTENTION_GRAD, 6, 3), .in = { SHAPE(1, 33, 48), SHAPE(1, 33, 16), SHAPE(1, 33, 16), SHAPE(1, 33, 48), SHAPE(1, 3, 33), SHAPE(1, 33, 48) }, .out = { SHAPE(1, 33, 48), SHAPE(1, 33, 16), SHAPE(1, 33, 16) }, .fill = { [3] = COMPUTED, COMPUTED }, .attrs = { .attention = { 3, 1, 16, true, false, 0.25f } }, .narrow_gpu = 1.6e-2 },

    { IO(LINEAR_GELU, 3, 2), .in = { SHAPE(2, 3, 5), SHAPE(7, 5), SHAPE(7) }, .out = { SHAPE(2, 3, 7), SHAPE(2, 3, 7) }, .narrow = 5e-3 },
    { IO(LINEAR_GELU, 2, 2), .in = { SHAPE(9, 24), SHAPE(40, 24) }, .out = { SHAPE(9, 40), SHAPE(9, 40) }, .narrow = 5e-3 },
    { IO(LINEAR_GELU, 3, 2), .in = { SHAPE(67, 130), SHAPE(130, 72), SHAPE(72) }, .out = { SHAPE(67, 72), SHAPE(67, 72) }, .attrs = { .linear = { true } }, .narrow = 5e-3 },
    { IO(LINEAR_GELU, 3, 2), .in = { SHAPE(130, 600), SHAPE(264, 600), SHAPE(264) }, .out = { SHAPE(130, 264), SHAPE(130, 264) }, .narrow = 5e-3 },
    { IO(LINEAR_GRAD_GELU, 3, 1), .in = { SHAPE(2, 3, 7), SHAPE(7, 5), SHAPE(2, 3, 5) }, .out = { SHAPE(2, 3, 5) }, .narrow = 5e-3 },
    { IO(LINEAR_GRAD_GELU, 3, 1), .in = { SHAPE(67, 72), SHAPE(136, 72), SHAPE(67, 136) }, .out = { SHAPE(67, 136) }, .attrs = { .linear = { true } }, .fill = { [2] = WIDE }, .narrow = 5e-3 },
    { IO(LINEAR_GRAD_GELU, 3, 1), .in = { SHAPE(130, 257), SHAPE(257, 304), SHAPE(130, 304) }, .out = { SHAPE(130, 304) }, .narrow = 5e-3 },
    { IO(LINEAR_ADD, 4, 1), .in = { SHAPE(2, 3, 5), SHAPE(7, 5), SHAPE(2, 3, 7), SHAPE(7) }, .out = { SHAPE(2, 3, 7) }, .narrow = 5e-3 },
    { IO(LINEAR_ADD, 3, 1), .in = { SHAPE(9, 24), SHAPE(40, 24), SHAPE(9, 40) }, .out = { SHAPE(9, 40) }, .narrow = 5e-3 },
    { IO(LINEAR_ADD, 4, 1), .in = { SHAPE(67, 130), SHAPE(130, 72), SHAPE(67, 72), SHAPE(72) }, .out = { SHAPE(67, 72) }, .attrs = { .linear = { true } }, .narrow = 5e-3 },
    { IO(LINEAR_ADD, 3, 1), .in = { SHAPE(130, 600), SHAPE(264, 600), SHAPE(130, 264) }, .out = { SHAPE(130, 264) }, .narrow = 5e-3 },

    /* small enough for finite differences of every element */
    { UNARY(SCALE, 4, 5), .attrs = { .scale = { -1.7f } } },
    { UNARY(ROTARY, 2, 3, 16), .attrs = { .rotary = { .heads = 2, .head_width = 6, .base = 100.0f } } },
    { IO(MEAN, 1, 1), .in = { SHAPE(4, 5) }, .out = { SCALAR } },
    { IO(LINEAR, 2, 1), .in = { SHAPE(3, 4), SHAPE(4, 5) }, .out = { SHAPE(3, 5) }, .attrs = { .linear = { true } } },
    { IO(ATTENTION, 1, 2), .in = { SHAPE(2, 4, 16) }, .out = { SHAPE(2, 4, 8), SHAPE(2, 4, 4) }, .attrs = { .attention = { 4, 2, 2, true, true, 0.7f } }, .narrow_gpu = 1.6e-2 },
    { IO(ATTENTION, 3, 2), .in = { SHAPE(1, 3, 8), SHAPE(1, 5, 4), SHAPE(1, 5, 4) }, .out = { SHAPE(1, 3, 8), SHAPE(1, 2, 3) }, .attrs = { .attention = { 2, 1, 4, false, false, 0.5f } }, .narrow_gpu = 1.6e-2 },

    { UNARY(TANH, 13, 17), .fill = { WIDE } },
    { UNARY(TANH, 33001) },
    { GRAD(TANH_GRAD, 300, 111) },
    { UNARY(SIGMOID, 13, 17), .fill = { WIDE } },
    { UNARY(SIGMOID, 33001) },
    { GRAD(SIGMOID_GRAD, 300, 111) },
    { IO(ADD_PART, 2, 1), .in = { SHAPE(4, 9), SHAPE(4, 5) }, .out = { SHAPE(4, 9) }, .attrs = { .split = { 1, 3, 5 } } },
    { IO(ADD_PART, 2, 1), .in = { SHAPE(3, 500, 40), SHAPE(3, 420, 40) }, .out = { SHAPE(3, 500, 40) }, .attrs = { .split = { 1, 80, 420 } } },
    { IO(ADD_PART, 2, 1), .in = { SHAPE(7, 96), SHAPE(7, 32) }, .out = { SHAPE(7, 96) }, .attrs = { .split = { 1, 64, 32 } } },

    { IO(GEGLU, 1, 1), .in = { SHAPE(3, 5, 6) }, .out = { SHAPE(3, 5, 3) } },
    { IO(GEGLU, 1, 1), .in = { SHAPE(3, 5, 6) }, .out = { SHAPE(3, 5, 3) }, .attrs = { .gelu = { true } } },
    { IO(GEGLU, 1, 1), .in = { SHAPE(13, 34) }, .out = { SHAPE(13, 17) }, .fill = { STEEP } },
    { IO(GEGLU, 1, 1), .in = { SHAPE(300, 224) }, .out = { SHAPE(300, 112) } },
    { IO(GEGLU, 1, 1), .in = { SHAPE(300, 222) }, .out = { SHAPE(300, 111) }, .attrs = { .gelu = { true } } },
    { IO(GEGLU_GRAD, 2, 1), .in = { SHAPE(3, 5, 6), SHAPE(3, 5, 3) }, .out = { SHAPE(3, 5, 6) } },
    { IO(GEGLU_GRAD, 2, 1), .in = { SHAPE(300, 224), SHAPE(300, 112) }, .out = { SHAPE(300, 224) } },
    { IO(GEGLU_GRAD, 2, 1), .in = { SHAPE(300, 222), SHAPE(300, 111) }, .out = { SHAPE(300, 222) }, .attrs = { .gelu = { true } } },
    { IO(GEGLU_GRAD, 2, 1), .in = { SHAPE(41, 14), SHAPE(41, 7) }, .out = { SHAPE(41, 14) }, .fill = { STEEP } },
    { UNARY(SOFTCAP, 13, 17), .fill = { WIDE }, .attrs = { .softcap = { 30.0f } } },
    { UNARY(SOFTCAP, 33001), .attrs = { .softcap = { 0.7f } } },
    { GRAD(SOFTCAP_GRAD, 300, 111), .attrs = { .softcap = { 0.7f } } },
    { GRAD(SOFTCAP_GRAD, 41, 7), .fill = { WIDE }, .attrs = { .softcap = { 30.0f } } },

    { IO(RMS_NORM, 2, 2), .in = { SHAPE(2, 3, 5), SHAPE(5) }, .out = { SHAPE(2, 3, 5), SHAPE(6) }, .attrs = { .norm = { 1e-5f, 1.0f } } },
    { IO(RMS_NORM, 2, 2), .in = { SHAPE(50, 768), SHAPE(768) }, .out = { SHAPE(50, 768), SHAPE(50) }, .attrs = { .norm = { 1e-6f, 1.0f } } },
    { IO(RMS_NORM_GRAD, 4, 2), .in = { SHAPE(6, 5), SHAPE(5), SHAPE(6), SHAPE(6, 5) }, .out = { SHAPE(6, 5), SHAPE(5) }, .fill = { [2] = POSITIVE }, .attrs = { .norm = { 1e-6f, 1.0f } } },
    { IO(RMS_NORM_GRAD, 4, 2), .in = { SHAPE(300, 208), SHAPE(208), SHAPE(300), SHAPE(300, 208) }, .out = { SHAPE(300, 208), SHAPE(208) }, .fill = { [2] = POSITIVE }, .attrs = { .norm = { 1e-6f, 1.0f } } },

    /* heads, key heads, width, epsilon, offset */
    { IO(QK_NORM, 3, 2), .in = { SHAPE(2, 3, 24), SHAPE(6), SHAPE(6) }, .out = { SHAPE(2, 3, 24), SHAPE(2, 3, 3) }, .attrs = { .qk_norm = { 2, 1, 6, 1e-3f, 0.0f } } },
    { IO(QK_NORM, 3, 2), .in = { SHAPE(1, 5, 24), SHAPE(3), SHAPE(3) }, .out = { SHAPE(1, 5, 24), SHAPE(1, 5, 6) }, .attrs = { .qk_norm = { 4, 2, 3, 1e-2f, 1.0f } } },
    { IO(QK_NORM, 3, 2), .in = { SHAPE(3, 50, 1024), SHAPE(128), SHAPE(128) }, .out = { SHAPE(3, 50, 1024), SHAPE(3, 50, 6) }, .attrs = { .qk_norm = { 4, 2, 128, 1e-6f, 0.0f } } },
    { IO(QK_NORM, 3, 2), .in = { SHAPE(2, 9, 1028), SHAPE(257), SHAPE(257) }, .out = { SHAPE(2, 9, 1028), SHAPE(2, 9, 3) }, .attrs = { .qk_norm = { 2, 1, 257, 1e-6f, 1.0f } } },
    { IO(QK_NORM_GRAD, 5, 3), .in = { SHAPE(2, 3, 24), SHAPE(6), SHAPE(6), SHAPE(2, 3, 3), SHAPE(2, 3, 24) }, .out = { SHAPE(2, 3, 24), SHAPE(6), SHAPE(6) }, .fill = { [3] = POSITIVE }, .attrs = { .qk_norm = { 2, 1, 6, 1e-3f, 0.0f } } },
    { IO(QK_NORM_GRAD, 5, 3), .in = { SHAPE(3, 50, 1024), SHAPE(128), SHAPE(128), SHAPE(3, 50, 6), SHAPE(3, 50, 1024) }, .out = { SHAPE(3, 50, 1024), SHAPE(128), SHAPE(128) }, .fill = { [3] = POSITIVE }, .attrs = { .qk_norm = { 4, 2, 128, 1e-6f, 1.0f } } },
    { IO(QK_NORM_GRAD, 5, 3), .in = { SHAPE(1, 1200, 40), SHAPE(10), SHAPE(10), SHAPE(1, 1200, 3), SHAPE(1, 1200, 40) }, .out = { SHAPE(1, 1200, 40), SHAPE(10), SHAPE(10) }, .fill = { [3] = POSITIVE }, .attrs = { .qk_norm = { 2, 1, 10, 1e-6f, 0.0f } }, .tolerance = 4e-5 },
    { IO(QK_NORM_GRAD, 5, 3), .in = { SHAPE(2, 9, 1028), SHAPE(257), SHAPE(257), SHAPE(2, 9, 3), SHAPE(2, 9, 1028) }, .out = { SHAPE(2, 9, 1028), SHAPE(257), SHAPE(257) }, .fill = { [3] = POSITIVE }, .attrs = { .qk_norm = { 2, 1, 257, 1e-6f, 0.0f } } },
    { IO(QK_NORM_GRAD, 5, 3), .in = { SHAPE(2, 3, 600), SHAPE(150), SHAPE(150), SHAPE(2, 3, 3), SHAPE(2, 3, 600) }, .out = { SHAPE(2, 3, 600), SHAPE(150), SHAPE(150) }, .fill = { [3] = POSITIVE }, .attrs = { .qk_norm = { 2, 1, 150, 1e-6f, 0.0f } }, .absent = 1 },
    { IO(QK_NORM_GRAD, 5, 3), .in = { SHAPE(1, 3, 2400), SHAPE(600), SHAPE(600), SHAPE(1, 3, 3), SHAPE(1, 3, 2400) }, .out = { SHAPE(1, 3, 2400), SHAPE(600), SHAPE(600) }, .fill = { [3] = POSITIVE }, .attrs = { .qk_norm = { 2, 1, 600, 1e-6f, 0.0f } }, .absent = 2 },
    { IO(QK_NORM_GRAD, 5, 3), .in = { SHAPE(2, 3, 24), SHAPE(6), SHAPE(6), SHAPE(2, 3, 3), SHAPE(2, 3, 24) }, .out = { SHAPE(2, 3, 24), SHAPE(6), SHAPE(6) }, .fill = { [3] = POSITIVE }, .attrs = { .qk_norm = { 2, 1, 6, 1e-3f, 0.0f } }, .absent = 6 },

    { UNARY(ROTARY, 2, 3, 16), .attrs = { .rotary = { .heads = 2, .head_width = 6, .base = 100.0f, .rotated = 4 } } },
    { UNARY(ROTARY, 2, 35, 112), .attrs = { .rotary = { .heads = 3, .head_width = 32, .base = 1e4f, .rotated = 16, .scaling = SLUICE_ROTARY_LINEAR, .factor = 4.0f } } },
    { UNARY(ROTARY, 2, 3, 16), .attrs = { .rotary = { .heads = 2, .head_width = 8, .base = 100.0f, .scaling = SLUICE_ROTARY_DYNAMIC, .factor = 2.0f, .context = 2 } } },
    { UNARY(ROTARY, 1, 40, 70), .attrs = { .rotary = { .heads = 2, .head_width = 32, .base = 1e4f, .scaling = SLUICE_ROTARY_DYNAMIC, .factor = 2.0f, .context = 16 } } },
    { UNARY(ROTARY, 1, 40, 70), .attrs = { .rotary = { .heads = 2, .head_width = 32, .base = 1e4f, .scaling = SLUICE_ROTARY_LLAMA3, .factor = 8.0f, .context = 64, .low = 1.0f, .high = 4.0f } } },
    { UNARY(ROTARY, 1, 40, 70), .attrs = { .rotary = { .heads = 2, .head_width = 32, .base = 1e4f, .scaling = SLUICE_ROTARY_YARN, .factor = 4.0f, .context = 1024, .low = 1.0f, .high = 32.0f, .attention = 1.1386294f } } },
    { UNARY(ROTARY, 1, 4, 32), .attrs = { .rotary = { .heads = 1, .head_width = 32, .base = 50.0f, .inverse = true, .scaling = SLUICE_ROTARY_YARN, .factor = 3.0f, .context = 70, .low = 1.0f, .high = 4.0f, .attention = 0.8f, .fractional = true } } },
    { IO(ROTARY, 2, 1), .in = { SHAPE(2, 5, 16), SHAPE(2, 5) }, .out = { SHAPE(2, 5, 16) }, .fill = { NORMAL, POSITION }, .attrs = { .rotary = { .heads = 2, .head_width = 6, .base = 100.0f } } },
    { IO(ROTARY, 2, 1), .in = { SHAPE(3, 70, 96), SHAPE(3, 70) }, .out = { SHAPE(3, 70, 96) }, .fill = { NORMAL, POSITION }, .attrs = { .rotary = { .heads = 2, .head_width = 32, .base = 1e4f, .rotated = 16 } } },
    { IO(ROTARY, 2, 1), .in = { SHAPE(1, 20, 600), SHAPE(1, 20) }, .out = { SHAPE(1, 20, 600) }, .fill = { NORMAL, POSITION }, .attrs = { .rotary = { .heads = 1, .head_width = 600, .base = 1e4f, .attention = 1.25f, .inverse = true } } },

    { IO(CROSS_ENTROPY, 2, 3), .in = { SHAPE(2, 4, 5), SHAPE(2, 4) }, .out = { SCALAR, SHAPE(8), SCALAR }, .fill = { NORMAL, TARGET }, .classes = 5, .attrs = { .cross_entropy = { .ignore_index = -100, .softcap = 0.8f } } },
    { IO(CROSS_ENTROPY, 2, 3), .in = { SHAPE(200, 301), SHAPE(200) }, .out = { SCALAR, SHAPE(200), SCALAR }, .fill = { WIDE, TARGET }, .classes = 301, .attrs = { .cross_entropy = { .ignore_index = 7, .softcap = 30.0f } } },
    { IO(CROSS_ENTROPY_GRAD, 5, 1), .in = { SHAPE(200, 301), SHAPE(200), SHAPE(200), SCALAR, SCALAR }, .out = { SHAPE(200, 301) }, .fill = { NORMAL, TARGET, LARGE, COUNT }, .classes = 301, .attrs = { .cross_entropy = { .ignore_index = 0, .softcap = 1.1f } } },
    { IO(CROSS_ENTROPY_GRAD, 5, 1), .in = { SHAPE(3, 2304), SHAPE(3), SHAPE(3), SCALAR, SCALAR }, .out = { SHAPE(3, 2304) }, .fill = { STEEP, INDEX, LARGE, COUNT }, .classes = 2304, .attrs = { .cross_entropy = { .ignore_index = -1, .softcap = 8.0f } }, .tolerance = 3e-5 },
    { IO(LINEAR_CROSS_ENTROPY, 3, 4), .in = { SHAPE(2, 4, 6), SHAPE(5, 6), SHAPE(2, 4) }, .out = { SCALAR, SCALAR, SHAPE(5, 6), SHAPE(2, 4, 6) }, .fill = { NORMAL, NORMAL, TARGET }, .classes = 5, .attrs = { .cross_entropy = { .ignore_index = -100, .softcap = 2.0f } }, .narrow = 0.1 },
    { IO(LINEAR_CROSS_ENTROPY, 3, 4), .in = { SHAPE(300, 5), SHAPE(16500, 5), SHAPE(300) }, .out = { SCALAR, SCALAR, SHAPE(16500, 5), SHAPE(300, 5) }, .fill = { NORMAL, NORMAL, TARGET }, .classes = 16500, .attrs = { .cross_entropy = { .ignore_index = -1, .softcap = 3.0f } }, .narrow = 0.1 }, /* two chunks */
    { IO(LINEAR_CROSS_ENTROPY, 3, 4), .in = { SHAPE(9, 20), SHAPE(40, 20), SHAPE(9) }, .out = { SCALAR, SCALAR, SHAPE(40, 20), SHAPE(9, 20) }, .fill = { NORMAL, NORMAL, INDEX }, .classes = 40, .attrs = { .cross_entropy = { .ignore_index = -1, .softcap = 3.0f } }, .absent = 12, .evaluation = true, .narrow = 0.1 },
    { IO(ATTENTION_CACHED, 3, 2), .in = { SHAPE(3, 1, 24), SHAPE(3, 1), SHAPE(3, 1) }, .out = { SHAPE(3, 1, 8), SHAPE(2, 2, 2 * 32 * 4) }, .fill = { [1] = TURN, SLOT }, .classes = 2, .attrs = { .cached = { 2, 2, 4, 0.5f, 0, 0, 2, 32 } } },
    { IO(ATTENTION_CACHED, 3, 2), .in = { SHAPE(40, 1, 192), SHAPE(40, 1), SHAPE(40, 1) }, .out = { SHAPE(40, 1, 128), SHAPE(3, 1, 2 * 48 * 32) }, .fill = { [1] = TURN, SLOT }, .classes = 3, .attrs = { .cached = { 4, 1, 32, 0.2f, 0, 0, 3, 48 } } },
    { IO(ATTENTION_CACHED, 3, 2), .in = { SHAPE(230, 1, 30), SHAPE(230, 1), SHAPE(230, 1) }, .out = { SHAPE(230, 1, 10), SHAPE(1, 2, 2 * 256 * 5) }, .fill = { [1] = TURN, SLOT }, .classes = 1, .attrs = { .cached = { 2, 2, 5, 0.4f, 0, 20.0f, 1, 256 } } },
    { IO(ATTENTION_CACHED, 3, 2), .in = { SHAPE(12, 1, 5 * 300), SHAPE(12, 1), SHAPE(12, 1) }, .out = { SHAPE(12, 1, 900), SHAPE(2, 1, 2 * 16 * 300) }, .fill = { [1] = TURN, SLOT }, .classes = 2, .attrs = { .cached = { 3, 1, 300, 0.06f, 7, 0, 2, 16 } } },
    { IO(ATTENTION_CACHED, 3, 2), .in = { SHAPE(200, 1, 3 * 64), SHAPE(200, 1), SHAPE(200, 1) }, .out = { SHAPE(200, 1, 64), SHAPE(1, 1, 2 * 400 * 64) }, .fill = { [1] = TURN, SLOT }, .classes = 1, .attrs = { .cached = { 1, 1, 64, 0.125f, 150, 3.0f, 1, 400 } } },

    /* attention with a window, documents, a soft cap: first small ones, then shapes that meet every kernel's tiles */
    { IO(ATTENTION, 1, 2), .in = { SHAPE(1, 6, 8) }, .out = { SHAPE(1, 6, 4), SHAPE(1, 2, 6) }, .attrs = { .attention = { .heads = 2, .kv_heads = 1, .head_width = 2, .causal = true, .packed = true, .scale = 0.25f, .window = 3 } }, .narrow_gpu = 1.6e-2 },
    { IO(ATTENTION_GRAD, 4, 1), .in = { SHAPE(1, 6, 8), SHAPE(1, 6, 4), SHAPE(1, 2, 6), SHAPE(1, 6, 4) }, .out = { SHAPE(1, 6, 8) }, .fill = { [1] = COMPUTED, COMPUTED }, .attrs = { .attention = { .heads = 2, .kv_heads = 1, .head_width = 2, .causal = true, .packed = true, .scale = 0.25f, .window = 3 } }, .tolerance = 5e-5, .narrow_gpu = 4e-2 },
    { IO(ATTENTION, 2, 2), .in = { SHAPE(2, 5, 8), SHAPE(2, 5) }, .out = { SHAPE(2, 5, 4), SHAPE(2, 2, 5) }, .fill = { [1] = POSITION }, .attrs = { .attention = { .heads = 2, .kv_heads = 1, .head_width = 2, .causal = true, .packed = true, .scale = 0.25f } }, .narrow_gpu = 1.6e-2 },
    { IO(ATTENTION_GRAD, 5, 1), .in = { SHAPE(2, 5, 8), SHAPE(2, 5), SHAPE(2, 5, 4), SHAPE(2, 2, 5), SHAPE(2, 5, 4) }, .out = { SHAPE(2, 5, 8) }, .fill = { [1] = POSITION, COMPUTED, COMPUTED }, .attrs = { .attention = { .heads = 2, .kv_heads = 1, .head_width = 2, .causal = true, .packed = true, .scale = 0.25f } }, .tolerance = 5e-5, .narrow_gpu = 4e-2 },
    { IO(ATTENTION, 1, 2), .in = { SHAPE(1, 5, 12) }, .out = { SHAPE(1, 5, 6), SHAPE(1, 2, 5) }, .attrs = { .attention = { .heads = 2, .kv_heads = 1, .head_width = 3, .causal = true, .packed = true, .scale = 0.8f, .softcap = 0.6f } }, .narrow_gpu = 1.6e-2 },
    { IO(ATTENTION_GRAD, 4, 1), .in = { SHAPE(1, 5, 12), SHAPE(1, 5, 6), SHAPE(1, 2, 5), SHAPE(1, 5, 6) }, .out = { SHAPE(1, 5, 12) }, .fill = { [1] = COMPUTED, COMPUTED }, .attrs = { .attention = { .heads = 2, .kv_heads = 1, .head_width = 3, .causal = true, .packed = true, .scale = 0.8f, .softcap = 0.6f } }, .tolerance = 5e-5, .narrow_gpu = 4e-2 },
    { IO(ATTENTION, 4, 2), .in = { SHAPE(1, 7, 4), SHAPE(1, 7, 2), SHAPE(1, 7, 2), SHAPE(1, 7) }, .out = { SHAPE(1, 7, 4), SHAPE(1, 2, 7) }, .fill = { [3] = POSITION }, .attrs = { .attention = { .heads = 2, .kv_heads = 1, .head_width = 2, .causal = true, .packed = false, .scale = 0.9f, .window = 3, .softcap = 1.1f } }, .narrow_gpu = 1.6e-2 },
    { IO(ATTENTION_GRAD, 7, 3), .in = { SHAPE(1, 7, 4), SHAPE(1, 7, 2), SHAPE(1, 7, 2), SHAPE(1, 7), SHAPE(1, 7, 4), SHAPE(1, 2, 7), SHAPE(1, 7, 4) }, .out = { SHAPE(1, 7, 4), SHAPE(1, 7, 2), SHAPE(1, 7, 2) }, .fill = { [3] = POSITION, COMPUTED, COMPUTED }, .attrs = { .attention = { .heads = 2, .kv_heads = 1, .head_width = 2, .causal = true, .packed = false, .scale = 0.9f, .window = 3, .softcap = 1.1f } }, .tolerance = 5e-5, .narrow_gpu = 4e-2 },
    { IO(ATTENTION, 3, 2), .in = { SHAPE(1, 3, 4), SHAPE(1, 4, 4), SHAPE(1, 4, 4) }, .out = { SHAPE(1, 3, 4), SHAPE(1, 2, 3) }, .attrs = { .attention = { .heads = 2, .kv_heads = 2, .head_width = 2, .causal = false, .packed = false, .scale = 0.7f, .softcap = 0.8f } }, .narrow_gpu = 1.6e-2 },
    { IO(ATTENTION_GRAD, 6, 3), .in = { SHAPE(1, 3, 4), SHAPE(1, 4, 4), SHAPE(1, 4, 4), SHAPE(1, 3, 4), SHAPE(1, 2, 3), SHAPE(1, 3, 4) }, .out = { SHAPE(1, 3, 4), SHAPE(1, 4, 4), SHAPE(1, 4, 4) }, .fill = { [3] = COMPUTED, COMPUTED }, .attrs = { .attention = { .heads = 2, .kv_heads = 2, .head_width = 2, .causal = false, .packed = false, .scale = 0.7f, .softcap = 0.8f } }, .tolerance = 5e-5, .narrow_gpu = 4e-2 },
    { IO(ATTENTION, 1, 2), .in = { SHAPE(1, 200, 128) }, .out = { SHAPE(1, 200, 64), SHAPE(1, 2, 200) }, .attrs = { .attention = { .heads = 2, .kv_heads = 1, .head_width = 32, .causal = true, .packed = true, .scale = 0.25f, .window = 40 } }, .narrow_gpu = 1.6e-2 },
    { IO(ATTENTION_GRAD, 4, 1), .in = { SHAPE(1, 200, 128), SHAPE(1, 200, 64), SHAPE(1, 2, 200), SHAPE(1, 200, 64) }, .out = { SHAPE(1, 200, 128) }, .fill = { [1] = COMPUTED, COMPUTED }, .attrs = { .attention = { .heads = 2, .kv_heads = 1, .head_width = 32, .causal = true, .packed = true, .scale = 0.25f, .window = 40 } }, .tolerance = 5e-5, .narrow_gpu = 4e-2 },
    { IO(ATTENTION, 2, 2), .in = { SHAPE(2, 150, 256), SHAPE(2, 150) }, .out = { SHAPE(2, 150, 128), SHAPE(2, 2, 150) }, .fill = { [1] = POSITION }, .attrs = { .attention = { .heads = 2, .kv_heads = 1, .head_width = 64, .causal = true, .packed = true, .scale = 0.125f } }, .narrow_gpu = 1.6e-2 },
    { IO(ATTENTION_GRAD, 5, 1), .in = { SHAPE(2, 150, 256), SHAPE(2, 150), SHAPE(2, 150, 128), SHAPE(2, 2, 150), SHAPE(2, 150, 128) }, .out = { SHAPE(2, 150, 256) }, .fill = { [1] = POSITION, COMPUTED, COMPUTED }, .attrs = { .attention = { .heads = 2, .kv_heads = 1, .head_width = 64, .causal = true, .packed = true, .scale = 0.125f } }, .tolerance = 5e-5, .narrow_gpu = 4e-2 },
    { IO(ATTENTION, 4, 2), .in = { SHAPE(1, 150, 256), SHAPE(1, 150, 128), SHAPE(1, 150, 128), SHAPE(1, 150) }, .out = { SHAPE(1, 150, 256), SHAPE(1, 2, 150) }, .fill = { [3] = POSITION }, .attrs = { .attention = { .heads = 2, .kv_heads = 1, .head_width = 128, .causal = true, .packed = false, .scale = 0.1f, .window = 64, .softcap = 1.0f } }, .narrow_gpu = 1.6e-2 },
    { IO(ATTENTION_GRAD, 7, 3), .in = { SHAPE(1, 150, 256), SHAPE(1, 150, 128), SHAPE(1, 150, 128), SHAPE(1, 150), SHAPE(1, 150, 256), SHAPE(1, 2, 150), SHAPE(1, 150, 256) }, .out = { SHAPE(1, 150, 256), SHAPE(1, 150, 128), SHAPE(1, 150, 128) }, .fill = { [3] = POSITION, COMPUTED, COMPUTED }, .attrs = { .attention = { .heads = 2, .kv_heads = 1, .head_width = 128, .causal = true, .packed = false, .scale = 0.1f, .window = 64, .softcap = 1.0f } }, .tolerance = 5e-5, .narrow_gpu = 4e-2 },
    { IO(ATTENTION, 2, 2), .in = { SHAPE(1, 100, 1024), SHAPE(1, 100) }, .out = { SHAPE(1, 100, 512), SHAPE(1, 2, 100) }, .fill = { [1] = POSITION }, .attrs = { .attention = { .heads = 2, .kv_heads = 1, .head_width = 256, .causal = true, .packed = true, .scale = 0.0625f, .window = 30, .softcap = 2.0f } }, .narrow_gpu = 1.6e-2 },
    { IO(ATTENTION_GRAD, 5, 1), .in = { SHAPE(1, 100, 1024), SHAPE(1, 100), SHAPE(1, 100, 512), SHAPE(1, 2, 100), SHAPE(1, 100, 512) }, .out = { SHAPE(1, 100, 1024) }, .fill = { [1] = POSITION, COMPUTED, COMPUTED }, .attrs = { .attention = { .heads = 2, .kv_heads = 1, .head_width = 256, .causal = true, .packed = true, .scale = 0.0625f, .window = 30, .softcap = 2.0f } }, .tolerance = 5e-5, .narrow_gpu = 4e-2 },
    { IO(ATTENTION, 2, 2), .in = { SHAPE(1, 90, 60), SHAPE(1, 90) }, .out = { SHAPE(1, 90, 20), SHAPE(1, 1, 90) }, .fill = { [1] = POSITION }, .attrs = { .attention = { .heads = 1, .kv_heads = 1, .head_width = 20, .causal = true, .packed = true, .scale = 0.25f, .window = 7, .softcap = 0.9f } }, .narrow_gpu = 1.6e-2 },
    { IO(ATTENTION_GRAD, 5, 1), .in = { SHAPE(1, 90, 60), SHAPE(1, 90), SHAPE(1, 90, 20), SHAPE(1, 1, 90), SHAPE(1, 90, 20) }, .out = { SHAPE(1, 90, 60) }, .fill = { [1] = POSITION, COMPUTED, COMPUTED }, .attrs = { .attention = { .heads = 1, .kv_heads = 1, .head_width = 20, .causal = true, .packed = true, .scale = 0.25f, .window = 7, .softcap = 0.9f } }, .tolerance = 5e-5, .narrow_gpu = 4e-2 },
    { IO(ATTENTION, 2, 2), .in = { SHAPE(3, 5, 12), SHAPE(3) }, .out = { SHAPE(3, 5, 4), SHAPE(3, 2, 5) }, .fill = { [1] = SEEN }, .classes = 5, .attrs = { .attention = { .heads = 2, .kv_heads = 2, .head_width = 2, .packed = true, .scale = 0.5f } }, .narrow_gpu = 1.6e-2 },
    { IO(ATTENTION_GRAD, 5, 1), .in = { SHAPE(3, 5, 12), SHAPE(3), SHAPE(3, 5, 4), SHAPE(3, 2, 5), SHAPE(3, 5, 4) }, .out = { SHAPE(3, 5, 12) }, .fill = { [1] = SEEN, COMPUTED, COMPUTED }, .classes = 5, .attrs = { .attention = { .heads = 2, .kv_heads = 2, .head_width = 2, .packed = true, .scale = 0.5f } }, .tolerance = 5e-5, .narrow_gpu = 4e-2 },
    { IO(ATTENTION, 4, 2), .in = { SHAPE(4, 33, 64), SHAPE(4, 200, 32), SHAPE(4, 200, 32), SHAPE(4) }, .out = { SHAPE(4, 33, 64), SHAPE(4, 2, 33) }, .fill = { [3] = SEEN }, .classes = 230, .attrs = { .attention = { .heads = 2, .kv_heads = 1, .head_width = 32, .packed = false, .scale = 0.2f } }, .narrow_gpu = 1.6e-2 },
    { IO(ATTENTION_GRAD, 7, 3), .in = { SHAPE(4, 33, 64), SHAPE(4, 200, 32), SHAPE(4, 200, 32), SHAPE(4), SHAPE(4, 33, 64), SHAPE(4, 2, 33), SHAPE(4, 33, 64) }, .out = { SHAPE(4, 33, 64), SHAPE(4, 200, 32), SHAPE(4, 200, 32) }, .fill = { [3] = SEEN, COMPUTED, COMPUTED }, .classes = 230, .attrs = { .attention = { .heads = 2, .kv_heads = 1, .head_width = 32, .packed = false, .scale = 0.2f } }, .tolerance = 5e-5, .narrow_gpu = 4e-2 },
    { IO(ATTENTION, 2, 2), .in = { SHAPE(5, 150, 384), SHAPE(5) }, .out = { SHAPE(5, 150, 128), SHAPE(5, 2, 150) }, .fill = { [1] = SEEN }, .classes = 160, .attrs = { .attention = { .heads = 2, .kv_heads = 2, .head_width = 64, .packed = true, .scale = 0.125f } }, .narrow_gpu = 1.6e-2 },
    { IO(ATTENTION_GRAD, 5, 1), .in = { SHAPE(5, 150, 384), SHAPE(5), SHAPE(5, 150, 128), SHAPE(5, 2, 150), SHAPE(5, 150, 128) }, .out = { SHAPE(5, 150, 384) }, .fill = { [1] = SEEN, COMPUTED, COMPUTED }, .classes = 160, .attrs = { .attention = { .heads = 2, .kv_heads = 2, .head_width = 64, .packed = true, .scale = 0.125f } }, .tolerance = 5e-5, .narrow_gpu = 4e-2 },

    { IO(CONV2D, 3, 1), .in = { SHAPE(1, 4, 5, 2), SHAPE(3, 2, 3, 3), SHAPE(3) }, .out = { SHAPE(1, 4, 5, 3) }, .attrs = { .conv = { 1, 1, 1, 1, 1, 1, 1 } } },
    { IO(CONV2D_GRAD_INPUT, 2, 1), .in = { SHAPE(1, 4, 5, 3), SHAPE(3, 2, 3, 3) }, .out = { SHAPE(1, 4, 5, 2) }, .attrs = { .conv = { 1, 1, 1, 1, 1, 1, 1 } } },
    { IO(CONV2D_GRAD_WEIGHT, 2, 2), .in = { SHAPE(1, 4, 5, 3), SHAPE(1, 4, 5, 2) }, .out = { SHAPE(3, 2, 3, 3), SHAPE(3) }, .attrs = { .conv = { 1, 1, 1, 1, 1, 1, 1 } } },
    { IO(CONV2D, 2, 1), .in = { SHAPE(2, 3, 4, 2), SHAPE(2, 2, 2, 2) }, .out = { SHAPE(2, 1, 3, 2) }, .attrs = { .conv = { 2, 1, 0, 0, 1, 1, 1 } } },
    { IO(CONV2D_GRAD_INPUT, 2, 1), .in = { SHAPE(2, 1, 3, 2), SHAPE(2, 2, 2, 2) }, .out = { SHAPE(2, 3, 4, 2) }, .attrs = { .conv = { 2, 1, 0, 0, 1, 1, 1 } } },
    { IO(CONV2D_GRAD_WEIGHT, 2, 1), .in = { SHAPE(2, 1, 3, 2), SHAPE(2, 3, 4, 2) }, .out = { SHAPE(2, 2, 2, 2) }, .attrs = { .conv = { 2, 1, 0, 0, 1, 1, 1 } } },
    { IO(CONV2D, 2, 1), .in = { SHAPE(1, 4, 4, 4), SHAPE(6, 2, 3, 3) }, .out = { SHAPE(1, 4, 4, 6) }, .attrs = { .conv = { 1, 1, 1, 1, 1, 1, 2 } } },
    { IO(CONV2D_GRAD_INPUT, 2, 1), .in = { SHAPE(1, 4, 4, 6), SHAPE(6, 2, 3, 3) }, .out = { SHAPE(1, 4, 4, 4) }, .attrs = { .conv = { 1, 1, 1, 1, 1, 1, 2 } } },
    { IO(CONV2D_GRAD_WEIGHT, 2, 1), .in = { SHAPE(1, 4, 4, 6), SHAPE(1, 4, 4, 4) }, .out = { SHAPE(6, 2, 3, 3) }, .attrs = { .conv = { 1, 1, 1, 1, 1, 1, 2 } } },
    { IO(CONV2D, 3, 1), .in = { SHAPE(1, 5, 4, 3), SHAPE(3, 1, 3, 3), SHAPE(3) }, .out = { SHAPE(1, 5, 4, 3) }, .attrs = { .conv = { 1, 1, 1, 1, 1, 1, 3 } } },
    { IO(CONV2D_GRAD_INPUT, 2, 1), .in = { SHAPE(1, 5, 4, 3), SHAPE(3, 1, 3, 3) }, .out = { SHAPE(1, 5, 4, 3) }, .attrs = { .conv = { 1, 1, 1, 1, 1, 1, 3 } } },
    { IO(CONV2D_GRAD_WEIGHT, 2, 2), .in = { SHAPE(1, 5, 4, 3), SHAPE(1, 5, 4, 3) }, .out = { SHAPE(3, 1, 3, 3), SHAPE(3) }, .attrs = { .conv = { 1, 1, 1, 1, 1, 1, 3 } } },
    { IO(CONV2D, 3, 1), .in = { SHAPE(1, 6, 5, 1), SHAPE(2, 1, 2, 3), SHAPE(2) }, .out = { SHAPE(1, 6, 4, 2) }, .attrs = { .conv = { 1, 2, 1, 2, 2, 1, 1 } } },
    { IO(CONV2D_GRAD_INPUT, 2, 1), .in = { SHAPE(1, 6, 4, 2), SHAPE(2, 1, 2, 3) }, .out = { SHAPE(1, 6, 5, 1) }, .attrs = { .conv = { 1, 2, 1, 2, 2, 1, 1 } } },
    { IO(CONV2D_GRAD_WEIGHT, 2, 2), .in = { SHAPE(1, 6, 4, 2), SHAPE(1, 6, 5, 1) }, .out = { SHAPE(2, 1, 2, 3), SHAPE(2) }, .attrs = { .conv = { 1, 2, 1, 2, 2, 1, 1 } } },
    { IO(CONV2D, 3, 1), .in = { SHAPE(2, 13, 11, 5), SHAPE(7, 5, 3, 3), SHAPE(7) }, .out = { SHAPE(2, 13, 11, 7) }, .attrs = { .conv = { 1, 1, 1, 1, 1, 1, 1 } } },
    { IO(CONV2D_GRAD_INPUT, 2, 1), .in = { SHAPE(2, 13, 11, 7), SHAPE(7, 5, 3, 3) }, .out = { SHAPE(2, 13, 11, 5) }, .attrs = { .conv = { 1, 1, 1, 1, 1, 1, 1 } } },
    { IO(CONV2D_GRAD_WEIGHT, 2, 2), .in = { SHAPE(2, 13, 11, 7), SHAPE(2, 13, 11, 5) }, .out = { SHAPE(7, 5, 3, 3), SHAPE(7) }, .attrs = { .conv = { 1, 1, 1, 1, 1, 1, 1 } } },
    { IO(CONV2D, 3, 1), .in = { SHAPE(3, 9, 9, 33), SHAPE(20, 33, 1, 1), SHAPE(20) }, .out = { SHAPE(3, 9, 9, 20) }, .attrs = { .conv = { 1, 1, 0, 0, 1, 1, 1 } } },
    { IO(CONV2D_GRAD_INPUT, 2, 1), .in = { SHAPE(3, 9, 9, 20), SHAPE(20, 33, 1, 1) }, .out = { SHAPE(3, 9, 9, 33) }, .attrs = { .conv = { 1, 1, 0, 0, 1, 1, 1 } } },
    { IO(CONV2D_GRAD_WEIGHT, 2, 2), .in = { SHAPE(3, 9, 9, 20), SHAPE(3, 9, 9, 33) }, .out = { SHAPE(20, 33, 1, 1), SHAPE(20) }, .attrs = { .conv = { 1, 1, 0, 0, 1, 1, 1 } } },
    { IO(CONV2D, 3, 1), .in = { SHAPE(2, 9, 7, 17), SHAPE(19, 17, 1, 1), SHAPE(19) }, .out = { SHAPE(2, 5, 4, 19) }, .attrs = { .conv = { 2, 2, 0, 0, 1, 1, 1 } } },
    { IO(CONV2D_GRAD_INPUT, 2, 1), .in = { SHAPE(2, 5, 4, 19), SHAPE(19, 17, 1, 1) }, .out = { SHAPE(2, 9, 7, 17) }, .attrs = { .conv = { 2, 2, 0, 0, 1, 1, 1 } } },
    { IO(CONV2D_GRAD_WEIGHT, 2, 2), .in = { SHAPE(2, 5, 4, 19), SHAPE(2, 9, 7, 17) }, .out = { SHAPE(19, 17, 1, 1), SHAPE(19) }, .attrs = { .conv = { 2, 2, 0, 0, 1, 1, 1 } } },
    { IO(CONV2D, 2, 1), .in = { SHAPE(2, 8, 8, 24), SHAPE(18, 8, 1, 1) }, .out = { SHAPE(2, 8, 8, 18) }, .attrs = { .conv = { 1, 1, 0, 0, 1, 1, 3 } } },
    { IO(CONV2D_GRAD_INPUT, 2, 1), .in = { SHAPE(2, 8, 8, 18), SHAPE(18, 8, 1, 1) }, .out = { SHAPE(2, 8, 8, 24) }, .attrs = { .conv = { 1, 1, 0, 0, 1, 1, 3 } } },
    { IO(CONV2D_GRAD_WEIGHT, 2, 1), .in = { SHAPE(2, 8, 8, 18), SHAPE(2, 8, 8, 24) }, .out = { SHAPE(18, 8, 1, 1) }, .attrs = { .conv = { 1, 1, 0, 0, 1, 1, 3 } } },
    { IO(CONV2D, 3, 1), .in = { SHAPE(1, 8, 6, 5), SHAPE(4, 5, 1, 1), SHAPE(4) }, .out = { SHAPE(1, 10, 6, 4) }, .attrs = { .conv = { 1, 1, 1, 0, 1, 1, 1 } } },
    { IO(CONV2D_GRAD_INPUT, 2, 1), .in = { SHAPE(1, 10, 6, 4), SHAPE(4, 5, 1, 1) }, .out = { SHAPE(1, 8, 6, 5) }, .attrs = { .conv = { 1, 1, 1, 0, 1, 1, 1 } } },
    { IO(CONV2D_GRAD_WEIGHT, 2, 2), .in = { SHAPE(1, 10, 6, 4), SHAPE(1, 8, 6, 5) }, .out = { SHAPE(4, 5, 1, 1), SHAPE(4) }, .attrs = { .conv = { 1, 1, 1, 0, 1, 1, 1 } } },
    { IO(CONV2D, 2, 1), .in = { SHAPE(1, 33, 29, 3), SHAPE(64, 3, 7, 7) }, .out = { SHAPE(1, 17, 15, 64) }, .attrs = { .conv = { 2, 2, 3, 3, 1, 1, 1 } } },
    { IO(CONV2D_GRAD_INPUT, 2, 1), .in = { SHAPE(1, 17, 15, 64), SHAPE(64, 3, 7, 7) }, .out = { SHAPE(1, 33, 29, 3) }, .attrs = { .conv = { 2, 2, 3, 3, 1, 1, 1 } } },
    { IO(CONV2D_GRAD_WEIGHT, 2, 1), .in = { SHAPE(1, 17, 15, 64), SHAPE(1, 33, 29, 3) }, .out = { SHAPE(64, 3, 7, 7) }, .attrs = { .conv = { 2, 2, 3, 3, 1, 1, 1 } } },
    { IO(CONV2D, 2, 1), .in = { SHAPE(2, 12, 15, 16), SHAPE(33, 16, 3, 3) }, .out = { SHAPE(2, 6, 8, 33) }, .attrs = { .conv = { 2, 2, 1, 1, 1, 1, 1 } } },
    { IO(CONV2D_GRAD_INPUT, 2, 1), .in = { SHAPE(2, 6, 8, 33), SHAPE(33, 16, 3, 3) }, .out = { SHAPE(2, 12, 15, 16) }, .attrs = { .conv = { 2, 2, 1, 1, 1, 1, 1 } } },
    { IO(CONV2D_GRAD_WEIGHT, 2, 1), .in = { SHAPE(2, 6, 8, 33), SHAPE(2, 12, 15, 16) }, .out = { SHAPE(33, 16, 3, 3) }, .attrs = { .conv = { 2, 2, 1, 1, 1, 1, 1 } } },
    { IO(CONV2D, 3, 1), .in = { SHAPE(1, 17, 16, 8), SHAPE(12, 8, 3, 5), SHAPE(12) }, .out = { SHAPE(1, 6, 2, 12) }, .attrs = { .conv = { 3, 2, 2, 0, 2, 3, 1 } } },
    { IO(CONV2D_GRAD_INPUT, 2, 1), .in = { SHAPE(1, 6, 2, 12), SHAPE(12, 8, 3, 5) }, .out = { SHAPE(1, 17, 16, 8) }, .attrs = { .conv = { 3, 2, 2, 0, 2, 3, 1 } } },
    { IO(CONV2D_GRAD_WEIGHT, 2, 2), .in = { SHAPE(1, 6, 2, 12), SHAPE(1, 17, 16, 8) }, .out = { SHAPE(12, 8, 3, 5), SHAPE(12) }, .attrs = { .conv = { 3, 2, 2, 0, 2, 3, 1 } } },
    { IO(CONV2D, 3, 1), .in = { SHAPE(1, 3, 2, 6), SHAPE(5, 6, 7, 5), SHAPE(5) }, .out = { SHAPE(1, 3, 2, 5) }, .attrs = { .conv = { 1, 1, 3, 2, 1, 1, 1 } } },
    { IO(CONV2D_GRAD_INPUT, 2, 1), .in = { SHAPE(1, 3, 2, 5), SHAPE(5, 6, 7, 5) }, .out = { SHAPE(1, 3, 2, 6) }, .attrs = { .conv = { 1, 1, 3, 2, 1, 1, 1 } } },
    { IO(CONV2D_GRAD_WEIGHT, 2, 2), .in = { SHAPE(1, 3, 2, 5), SHAPE(1, 3, 2, 6) }, .out = { SHAPE(5, 6, 7, 5), SHAPE(5) }, .attrs = { .conv = { 1, 1, 3, 2, 1, 1, 1 } } },
    { IO(CONV2D, 3, 1), .in = { SHAPE(2, 10, 9, 32), SHAPE(32, 1, 3, 3), SHAPE(32) }, .out = { SHAPE(2, 10, 9, 32) }, .attrs = { .conv = { 1, 1, 1, 1, 1, 1, 32 } } },
    { IO(CONV2D_GRAD_INPUT, 2, 1), .in = { SHAPE(2, 10, 9, 32), SHAPE(32, 1, 3, 3) }, .out = { SHAPE(2, 10, 9, 32) }, .attrs = { .conv = { 1, 1, 1, 1, 1, 1, 32 } } },
    { IO(CONV2D_GRAD_WEIGHT, 2, 2), .in = { SHAPE(2, 10, 9, 32), SHAPE(2, 10, 9, 32) }, .out = { SHAPE(32, 1, 3, 3), SHAPE(32) }, .attrs = { .conv = { 1, 1, 1, 1, 1, 1, 32 } } },
    { IO(CONV2D, 3, 1), .in = { SHAPE(2, 11, 8, 17), SHAPE(34, 1, 3, 3), SHAPE(34) }, .out = { SHAPE(2, 6, 4, 34) }, .attrs = { .conv = { 2, 2, 1, 1, 1, 1, 17 } } },
    { IO(CONV2D_GRAD_INPUT, 2, 1), .in = { SHAPE(2, 6, 4, 34), SHAPE(34, 1, 3, 3) }, .out = { SHAPE(2, 11, 8, 17) }, .attrs = { .conv = { 2, 2, 1, 1, 1, 1, 17 } } },
    { IO(CONV2D_GRAD_WEIGHT, 2, 2), .in = { SHAPE(2, 6, 4, 34), SHAPE(2, 11, 8, 17) }, .out = { SHAPE(34, 1, 3, 3), SHAPE(34) }, .attrs = { .conv = { 2, 2, 1, 1, 1, 1, 17 } } },
    { IO(CONV2D, 3, 1), .in = { SHAPE(1, 9, 9, 12), SHAPE(20, 3, 3, 3), SHAPE(20) }, .out = { SHAPE(1, 9, 9, 20) }, .attrs = { .conv = { 1, 1, 2, 1, 2, 1, 4 } } },
    { IO(CONV2D_GRAD_INPUT, 2, 1), .in = { SHAPE(1, 9, 9, 20), SHAPE(20, 3, 3, 3) }, .out = { SHAPE(1, 9, 9, 12) }, .attrs = { .conv = { 1, 1, 2, 1, 2, 1, 4 } } },
    { IO(CONV2D_GRAD_WEIGHT, 2, 2), .in = { SHAPE(1, 9, 9, 20), SHAPE(1, 9, 9, 12) }, .out = { SHAPE(20, 3, 3, 3), SHAPE(20) }, .attrs = { .conv = { 1, 1, 2, 1, 2, 1, 4 } } },
    { IO(CONV2D, 2, 1), .in = { SHAPE(1, 6, 6, 100), SHAPE(40, 100, 3, 3) }, .out = { SHAPE(1, 6, 6, 40) }, .attrs = { .conv = { 1, 1, 1, 1, 1, 1, 1 } } },
    { IO(CONV2D_GRAD_INPUT, 2, 1), .in = { SHAPE(1, 6, 6, 40), SHAPE(40, 100, 3, 3) }, .out = { SHAPE(1, 6, 6, 100) }, .attrs = { .conv = { 1, 1, 1, 1, 1, 1, 1 } } },
    { IO(CONV2D_GRAD_WEIGHT, 2, 1), .in = { SHAPE(1, 6, 6, 40), SHAPE(1, 6, 6, 100) }, .out = { SHAPE(40, 100, 3, 3) }, .attrs = { .conv = { 1, 1, 1, 1, 1, 1, 1 } } },
    { IO(CONV2D, 3, 1), .in = { SHAPE(1, 1, 40, 6), SHAPE(9, 6, 1, 4), SHAPE(9) }, .out = { SHAPE(1, 1, 14, 9) }, .attrs = { .conv = { 1, 3, 0, 2, 1, 1, 1 } } },
    { IO(CONV2D_GRAD_INPUT, 2, 1), .in = { SHAPE(1, 1, 14, 9), SHAPE(9, 6, 1, 4) }, .out = { SHAPE(1, 1, 40, 6) }, .attrs = { .conv = { 1, 3, 0, 2, 1, 1, 1 } } },
    { IO(CONV2D_GRAD_WEIGHT, 2, 2), .in = { SHAPE(1, 1, 14, 9), SHAPE(1, 1, 40, 6) }, .out = { SHAPE(9, 6, 1, 4), SHAPE(9) }, .attrs = { .conv = { 1, 3, 0, 2, 1, 1, 1 } } },
    { IO(CONV2D, 3, 1), .in = { SHAPE(2, 7, 5, 4), SHAPE(6, 4, 2, 2), SHAPE(6) }, .out = { SHAPE(2, 2, 1, 6) }, .attrs = { .conv = { 3, 4, 0, 0, 1, 1, 1 } } },
    { IO(CONV2D_GRAD_INPUT, 2, 1), .in = { SHAPE(2, 2, 1, 6), SHAPE(6, 4, 2, 2) }, .out = { SHAPE(2, 7, 5, 4) }, .attrs = { .conv = { 3, 4, 0, 0, 1, 1, 1 } } },
    { IO(CONV2D_GRAD_WEIGHT, 2, 2), .in = { SHAPE(2, 2, 1, 6), SHAPE(2, 7, 5, 4) }, .out = { SHAPE(6, 4, 2, 2), SHAPE(6) }, .attrs = { .conv = { 3, 4, 0, 0, 1, 1, 1 } } },
    { IO(CONV2D, 3, 1), .in = { SHAPE(17, 4, 3, 256), SHAPE(9, 256, 3, 3), SHAPE(9) }, .out = { SHAPE(17, 4, 3, 9) }, .attrs = { .conv = { 1, 1, 1, 1, 1, 1, 1 } } },
    { IO(CONV2D_GRAD_INPUT, 2, 1), .in = { SHAPE(17, 4, 3, 256), SHAPE(256, 9, 3, 3) }, .out = { SHAPE(17, 4, 3, 9) }, .attrs = { .conv = { 1, 1, 1, 1, 1, 1, 1 } } },
    { IO(CONV2D, 2, 1), .in = { SHAPE(9, 2, 3, 400), SHAPE(20, 400, 3, 3) }, .out = { SHAPE(9, 1, 2, 20) }, .attrs = { .conv = { 2, 2, 1, 1, 1, 1, 1 } } },
    { IO(CONV2D_GRAD_INPUT, 2, 1), .in = { SHAPE(10, 3, 3, 256), SHAPE(256, 12, 3, 3) }, .out = { SHAPE(10, 6, 6, 12) }, .attrs = { .conv = { 2, 2, 1, 1, 1, 1, 1 } } },
    { IO(CONV2D, 3, 1), .in = { SHAPE(8, 2, 2, 256), SHAPE(5, 256, 7, 5), SHAPE(5) }, .out = { SHAPE(8, 2, 2, 5) }, .attrs = { .conv = { 1, 1, 3, 2, 1, 1, 1 } } },
    { IO(CONV2D_GRAD_INPUT, 2, 1), .in = { SHAPE(8, 2, 2, 257), SHAPE(257, 40, 7, 5) }, .out = { SHAPE(8, 2, 2, 40) }, .attrs = { .conv = { 1, 1, 3, 2, 1, 1, 1 } } },
    { IO(CONV2D_GRAD_WEIGHT, 2, 1), .in = { SHAPE(4, 33, 32, 10), SHAPE(4, 33, 32, 8) }, .out = { SHAPE(10, 8, 3, 3) }, .attrs = { .conv = { 1, 1, 1, 1, 1, 1, 1 } } },
    { IO(MAX_POOL2D, 1, 1), .in = { SHAPE(1, 4, 4, 3) }, .out = { SHAPE(1, 2, 2, 3) }, .attrs = { .pool = { 2, 2, 2, 2, 0, 0, false, false } }, .exact = true },
    { IO(MAX_POOL2D_GRAD, 2, 1), .in = { SHAPE(1, 4, 4, 3), SHAPE(1, 2, 2, 3) }, .out = { SHAPE(1, 4, 4, 3) }, .attrs = { .pool = { 2, 2, 2, 2, 0, 0, false, false } } },
    { IO(MAX_POOL2D, 1, 1), .in = { SHAPE(2, 5, 4, 2) }, .out = { SHAPE(2, 3, 5, 2) }, .attrs = { .pool = { 3, 2, 2, 1, 1, 1, false, true } }, .exact = true },
    { IO(MAX_POOL2D_GRAD, 2, 1), .in = { SHAPE(2, 5, 4, 2), SHAPE(2, 3, 5, 2) }, .out = { SHAPE(2, 5, 4, 2) }, .attrs = { .pool = { 3, 2, 2, 1, 1, 1, false, true } } },
    { IO(MAX_POOL2D, 1, 1), .in = { SHAPE(2, 15, 13, 37) }, .out = { SHAPE(2, 8, 7, 37) }, .attrs = { .pool = { 3, 3, 2, 2, 1, 1, false, false } }, .exact = true },
    { IO(MAX_POOL2D_GRAD, 2, 1), .in = { SHAPE(2, 15, 13, 37), SHAPE(2, 8, 7, 37) }, .out = { SHAPE(2, 15, 13, 37) }, .attrs = { .pool = { 3, 3, 2, 2, 1, 1, false, false } } },
    { IO(MAX_POOL2D, 1, 1), .in = { SHAPE(2, 15, 13, 24) }, .out = { SHAPE(2, 8, 7, 24) }, .attrs = { .pool = { 3, 3, 2, 2, 1, 1, false, false } }, .exact = true },
    { IO(MAX_POOL2D_GRAD, 2, 1), .in = { SHAPE(2, 15, 13, 24), SHAPE(2, 8, 7, 24) }, .out = { SHAPE(2, 15, 13, 24) }, .attrs = { .pool = { 3, 3, 2, 2, 1, 1, false, false } } },
    { IO(MAX_POOL2D, 1, 1), .in = { SHAPE(2, 12, 16, 16) }, .out = { SHAPE(2, 6, 8, 16) }, .attrs = { .pool = { 3, 3, 2, 2, 1, 1, false, false } }, .exact = true },
    { IO(MAX_POOL2D_GRAD, 2, 1), .in = { SHAPE(2, 12, 16, 16), SHAPE(2, 6, 8, 16) }, .out = { SHAPE(2, 12, 16, 16) }, .attrs = { .pool = { 3, 3, 2, 2, 1, 1, false, false } } },
    { IO(MAX_POOL2D, 1, 1), .in = { SHAPE(2, 14, 9, 8) }, .out = { SHAPE(2, 8, 5, 8) }, .attrs = { .pool = { 3, 3, 2, 2, 1, 1, true, false } }, .exact = true },
    { IO(MAX_POOL2D_GRAD, 2, 1), .in = { SHAPE(2, 14, 9, 8), SHAPE(2, 8, 5, 8) }, .out = { SHAPE(2, 14, 9, 8) }, .attrs = { .pool = { 3, 3, 2, 2, 1, 1, true, false } } },
    { IO(MAX_POOL2D, 1, 1), .in = { SHAPE(1, 11, 14, 16) }, .out = { SHAPE(1, 6, 6, 16) }, .attrs = { .pool = { 3, 4, 2, 3, 1, 2, true, true } }, .exact = true },
    { IO(MAX_POOL2D_GRAD, 2, 1), .in = { SHAPE(1, 11, 14, 16), SHAPE(1, 6, 6, 16) }, .out = { SHAPE(1, 11, 14, 16) }, .attrs = { .pool = { 3, 4, 2, 3, 1, 2, true, true } } },
    { IO(MAX_POOL2D, 1, 1), .in = { SHAPE(1, 11, 14, 5) }, .out = { SHAPE(1, 5, 6, 5) }, .attrs = { .pool = { 3, 4, 2, 3, 0, 2, true, false } }, .exact = true },
    { IO(MAX_POOL2D_GRAD, 2, 1), .in = { SHAPE(1, 11, 14, 5), SHAPE(1, 5, 6, 5) }, .out = { SHAPE(1, 11, 14, 5) }, .attrs = { .pool = { 3, 4, 2, 3, 0, 2, true, false } } },
    { IO(MAX_POOL2D, 1, 1), .in = { SHAPE(2, 9, 9, 20) }, .out = { SHAPE(2, 3, 2, 20) }, .attrs = { .pool = { 2, 2, 3, 4, 0, 0, false, false } }, .exact = true },
    { IO(MAX_POOL2D_GRAD, 2, 1), .in = { SHAPE(2, 9, 9, 20), SHAPE(2, 3, 2, 20) }, .out = { SHAPE(2, 9, 9, 20) }, .attrs = { .pool = { 2, 2, 3, 4, 0, 0, false, false } } },
    { IO(MAX_POOL2D, 1, 1), .in = { SHAPE(1, 2, 4200, 17) }, .out = { SHAPE(1, 2, 2099, 17) }, .attrs = { .pool = { 1, 3, 1, 2, 0, 0, false, false } }, .exact = true },
    { IO(MAX_POOL2D_GRAD, 2, 1), .in = { SHAPE(1, 2, 4200, 17), SHAPE(1, 2, 2099, 17) }, .out = { SHAPE(1, 2, 4200, 17) }, .attrs = { .pool = { 1, 3, 1, 2, 0, 0, false, false } } },
    { IO(AVG_POOL2D, 1, 1), .in = { SHAPE(1, 4, 4, 3) }, .out = { SHAPE(1, 2, 2, 3) }, .attrs = { .pool = { 2, 2, 2, 2, 0, 0, false, false } } },
    { IO(AVG_POOL2D_GRAD, 1, 1), .in = { SHAPE(1, 2, 2, 3) }, .out = { SHAPE(1, 4, 4, 3) }, .attrs = { .pool = { 2, 2, 2, 2, 0, 0, false, false } } },
    { IO(AVG_POOL2D, 1, 1), .in = { SHAPE(2, 5, 4, 2) }, .out = { SHAPE(2, 3, 5, 2) }, .attrs = { .pool = { 3, 2, 2, 1, 1, 1, false, true } } },
    { IO(AVG_POOL2D_GRAD, 1, 1), .in = { SHAPE(2, 3, 5, 2) }, .out = { SHAPE(2, 5, 4, 2) }, .attrs = { .pool = { 3, 2, 2, 1, 1, 1, false, true } } },
    { IO(AVG_POOL2D, 1, 1), .in = { SHAPE(2, 15, 13, 37) }, .out = { SHAPE(2, 8, 7, 37) }, .attrs = { .pool = { 3, 3, 2, 2, 1, 1, false, false } } },
    { IO(AVG_POOL2D_GRAD, 1, 1), .in = { SHAPE(2, 8, 7, 37) }, .out = { SHAPE(2, 15, 13, 37) }, .attrs = { .pool = { 3, 3, 2, 2, 1, 1, false, false } } },
    { IO(AVG_POOL2D, 1, 1), .in = { SHAPE(1, 11, 14, 16) }, .out = { SHAPE(1, 6, 6, 16) }, .attrs = { .pool = { 3, 4, 2, 3, 1, 2, true, true } } },
    { IO(AVG_POOL2D_GRAD, 1, 1), .in = { SHAPE(1, 6, 6, 16) }, .out = { SHAPE(1, 11, 14, 16) }, .attrs = { .pool = { 3, 4, 2, 3, 1, 2, true, true } } },
    { IO(AVG_POOL2D, 1, 1), .in = { SHAPE(1, 11, 14, 5) }, .out = { SHAPE(1, 5, 6, 5) }, .attrs = { .pool = { 3, 4, 2, 3, 0, 2, true, false } } },
    { IO(AVG_POOL2D_GRAD, 1, 1), .in = { SHAPE(1, 5, 6, 5) }, .out = { SHAPE(1, 11, 14, 5) }, .attrs = { .pool = { 3, 4, 2, 3, 0, 2, true, false } } },
    { IO(AVG_POOL2D, 1, 1), .in = { SHAPE(2, 9, 9, 20) }, .out = { SHAPE(2, 3, 2, 20) }, .attrs = { .pool = { 2, 2, 3, 4, 0, 0, false, false } } },
    { IO(AVG_POOL2D_GRAD, 1, 1), .in = { SHAPE(2, 3, 2, 20) }, .out = { SHAPE(2, 9, 9, 20) }, .attrs = { .pool = { 2, 2, 3, 4, 0, 0, false, false } } },
    { IO(AVG_POOL2D, 1, 1), .in = { SHAPE(1, 2, 4200, 17) }, .out = { SHAPE(1, 2, 2099, 17) }, .attrs = { .pool = { 1, 3, 1, 2, 0, 0, false, false } } },
    { IO(AVG_POOL2D_GRAD, 1, 1), .in = { SHAPE(1, 2, 2099, 17) }, .out = { SHAPE(1, 2, 4200, 17) }, .attrs = { .pool = { 1, 3, 1, 2, 0, 0, false, false } } },
    { IO(GLOBAL_AVG_POOL, 1, 1), .in = { SHAPE(2, 3, 2, 5) }, .out = { SHAPE(2, 5) } },
    { IO(GLOBAL_AVG_POOL_GRAD, 1, 1), .in = { SHAPE(2, 5) }, .out = { SHAPE(2, 3, 2, 5) } },
    { IO(GLOBAL_AVG_POOL, 1, 1), .in = { SHAPE(3, 17, 11, 33) }, .out = { SHAPE(3, 33) } },
    { IO(GLOBAL_AVG_POOL_GRAD, 1, 1), .in = { SHAPE(3, 33) }, .out = { SHAPE(3, 17, 11, 33) } },
    { IO(GLOBAL_AVG_POOL, 1, 1), .in = { SHAPE(2, 300, 40) }, .out = { SHAPE(2, 40) } },
    { IO(GLOBAL_AVG_POOL_GRAD, 1, 1), .in = { SHAPE(2, 40) }, .out = { SHAPE(2, 300, 40) } },

    { UNARY(LOG_SOFTMAX, 7, 1) },
    { UNARY(LOG_SOFTMAX, 5, 19), .fill = { STEEP } },
    { UNARY(LOG_SOFTMAX, 60, 700) },
    { UNARY(LOG_SOFTMAX, 3, 2304) },
    { GRAD(LOG_SOFTMAX_GRAD, 5, 19), .fill = { STEEP } },
    { GRAD(LOG_SOFTMAX_GRAD, 60, 700), .tolerance = 3e-5 },
    { GRAD(LOG_SOFTMAX_GRAD, 3, 2304), .tolerance = 1e-4 },
    { IO(BCE_WITH_LOGITS, 2, 1), .in = { SHAPE(3, 7), SHAPE(3, 7) }, .out = { SCALAR }, .fill = { NORMAL, POSITIVE } },
    { IO(BCE_WITH_LOGITS, 3, 1), .in = { SHAPE(3, 7), SHAPE(3, 7), SHAPE(3, 7) }, .out = { SCALAR }, .fill = { NORMAL, POSITIVE } },
    { IO(BCE_WITH_LOGITS, 2, 1), .in = { SHAPE(33001), SHAPE(33001) }, .out = { SCALAR }, .fill = { STEEP, POSITIVE } },
    { IO(BCE_WITH_LOGITS, 3, 1), .in = { SHAPE(33001), SHAPE(33001), SHAPE(33001) }, .out = { SCALAR }, .fill = { STEEP, POSITIVE } },
    { IO(BCE_WITH_LOGITS, 2, 1), .in = { SHAPE(13, 17), SHAPE(13, 17) }, .out = { SCALAR }, .fill = { WIDE } },
    { IO(BCE_WITH_LOGITS_GRAD, 3, 3), .in = { SHAPE(300, 111), SHAPE(300, 111), SCALAR }, .out = { SHAPE(300, 111), SHAPE(300, 111), SHAPE(300, 111) }, .fill = { STEEP, POSITIVE }, .absent = 4 },
    { IO(BCE_WITH_LOGITS_GRAD, 4, 3), .in = { SHAPE(41, 7), SHAPE(41, 7), SCALAR, SHAPE(41, 7) }, .out = { SHAPE(41, 7), SHAPE(41, 7), SHAPE(41, 7) }, .fill = { STEEP, POSITIVE } },
    { IO(BCE_WITH_LOGITS_GRAD, 4, 3), .in = { SHAPE(33001), SHAPE(33001), SCALAR, SHAPE(33001) }, .out = { SHAPE(33001), SHAPE(33001), SHAPE(33001) }, .fill = { NORMAL, POSITIVE }, .absent = 6 },
    { IO(CROSS_ENTROPY, 2, 3), .in = { SHAPE(2, 4, 5), SHAPE(2, 4) }, .out = { SCALAR, SHAPE(8), SCALAR }, .fill = { NORMAL, TARGET }, .classes = 5, .attrs = { .cross_entropy = { .ignore_index = -100, .smoothing = 0.1f } } },
    { IO(CROSS_ENTROPY, 2, 3), .in = { SHAPE(2, 4, 5), SHAPE(2, 4) }, .out = { SCALAR, SHAPE(8), SCALAR }, .fill = { NORMAL, TARGET }, .classes = 5, .attrs = { .cross_entropy = { .ignore_index = 2, .softcap = 0.8f, .smoothing = 0.3f } } },
    { IO(CROSS_ENTROPY, 2, 3), .in = { SHAPE(200, 301), SHAPE(200) }, .out = { SCALAR, SHAPE(200), SCALAR }, .fill = { STEEP, TARGET }, .classes = 301, .attrs = { .cross_entropy = { .ignore_index = 7, .smoothing = 0.2f } } },
    { IO(CROSS_ENTROPY, 2, 3), .in = { SHAPE(3, 5003), SHAPE(3) }, .out = { SCALAR, SHAPE(3), SCALAR }, .fill = { NORMAL, INDEX }, .classes = 5003, .attrs = { .cross_entropy = { .ignore_index = -1, .softcap = 30.0f, .smoothing = 1.0f } } },
    { IO(CROSS_ENTROPY_GRAD, 5, 1), .in = { SHAPE(200, 301), SHAPE(200), SHAPE(200), SCALAR, SCALAR }, .out = { SHAPE(200, 301) }, .fill = { NORMAL, TARGET, LARGE, COUNT }, .classes = 301, .attrs = { .cross_entropy = { .ignore_index = 0, .smoothing = 0.1f } } },
    { IO(CROSS_ENTROPY_GRAD, 5, 1), .in = { SHAPE(3, 2304), SHAPE(3), SHAPE(3), SCALAR, SCALAR }, .out = { SHAPE(3, 2304) }, .fill = { STEEP, INDEX, LARGE, COUNT }, .classes = 2304, .attrs = { .cross_entropy = { .ignore_index = -1, .softcap = 8.0f, .smoothing = 0.4f } }, .tolerance = 3e-5 },
    { IO(LINEAR_CROSS_ENTROPY, 3, 4), .in = { SHAPE(2, 4, 6), SHAPE(5, 6), SHAPE(2, 4) }, .out = { SCALAR, SCALAR, SHAPE(5, 6), SHAPE(2, 4, 6) }, .fill = { NORMAL, NORMAL, TARGET }, .classes = 5, .attrs = { .cross_entropy = { .ignore_index = -100, .smoothing = 0.1f } }, .narrow = 0.1 },
    { IO(LINEAR_CROSS_ENTROPY, 3, 4), .in = { SHAPE(2, 4, 6), SHAPE(5, 6), SHAPE(2, 4) }, .out = { SCALAR, SCALAR, SHAPE(5, 6), SHAPE(2, 4, 6) }, .fill = { NORMAL, NORMAL, TARGET }, .classes = 5, .attrs = { .cross_entropy = { .ignore_index = -100, .softcap = 2.0f, .smoothing = 0.25f } }, .narrow = 0.1 },
    { IO(LINEAR_CROSS_ENTROPY, 3, 4), .in = { SHAPE(300, 5), SHAPE(16500, 5), SHAPE(300) }, .out = { SCALAR, SCALAR, SHAPE(16500, 5), SHAPE(300, 5) }, .fill = { NORMAL, NORMAL, TARGET }, .classes = 16500, .attrs = { .cross_entropy = { .ignore_index = -1, .smoothing = 0.1f } }, .narrow = 0.1 }, /* two chunks */
    { IO(GRU, 3, 2), .in = { SHAPE(2, 5, 9), SHAPE(9, 3), SHAPE(9) }, .out = { SHAPE(2, 5, 3), SHAPE(2, 5, 12) }, .attrs = { .gru = { false } }, .narrow_gpu = 2e-2 },
    { IO(GRU, 4, 2), .in = { SHAPE(2, 5, 9), SHAPE(9, 3), SHAPE(9), SHAPE(2) }, .out = { SHAPE(2, 5, 3), SHAPE(2, 5, 12) }, .fill = { [3] = LENGTH }, .attrs = { .gru = { false } }, .narrow_gpu = 2e-2 },
    { IO(GRU, 3, 2), .in = { SHAPE(2, 5, 9), SHAPE(9, 3), SHAPE(9) }, .out = { SHAPE(2, 5, 3), SHAPE(2, 5, 12) }, .attrs = { .gru = { true } }, .narrow_gpu = 2e-2 },
    { IO(GRU, 4, 2), .in = { SHAPE(2, 5, 9), SHAPE(9, 3), SHAPE(9), SHAPE(2) }, .out = { SHAPE(2, 5, 3), SHAPE(2, 5, 12) }, .fill = { [3] = LENGTH }, .attrs = { .gru = { true } }, .narrow_gpu = 2e-2 },
    { IO(GRU, 4, 2), .in = { SHAPE(5, 4, 6), SHAPE(6, 2), SHAPE(6), SHAPE(5) }, .out = { SHAPE(5, 4, 2), SHAPE(5, 4, 8) }, .fill = { [3] = LENGTH }, .attrs = { .gru = { false } }, .narrow_gpu = 2e-2 },
    { IO(GRU, 4, 2), .in = { SHAPE(7, 9, 111), SHAPE(111, 37), SHAPE(111), SHAPE(7) }, .out = { SHAPE(7, 9, 37), SHAPE(7, 9, 148) }, .fill = { [3] = LENGTH }, .attrs = { .gru = { false } }, .tolerance = 4e-5, .narrow_gpu = 0.15 },
    { IO(GRU, 4, 2), .in = { SHAPE(7, 9, 111), SHAPE(111, 37), SHAPE(111), SHAPE(7) }, .out = { SHAPE(7, 9, 37), SHAPE(7, 9, 148) }, .fill = { [3] = LENGTH }, .attrs = { .gru = { true } }, .tolerance = 4e-5, .narrow_gpu = 0.15 },
    { IO(GRU, 3, 2), .in = { SHAPE(33, 3, 192), SHAPE(192, 64), SHAPE(192) }, .out = { SHAPE(33, 3, 64), SHAPE(33, 3, 256) }, .attrs = { .gru = { false } }, .tolerance = 1e-4, .narrow_gpu = 0.15 },
    { IO(GRU, 3, 2), .in = { SHAPE(1, 3, 300), SHAPE(300, 100), SHAPE(300) }, .out = { SHAPE(1, 3, 100), SHAPE(1, 3, 400) }, .attrs = { .gru = { true } }, .tolerance = 1e-4, .narrow_gpu = 0.15 },
    { IO(GRU_GRAD, 4, 3), .in = { SHAPE(9, 3), SHAPE(2, 5, 12), SHAPE(2, 5, 3), SHAPE(2, 5, 3) }, .out = { SHAPE(2, 5, 9), SHAPE(9, 3), SHAPE(9) }, .attrs = { .gru = { false } }, .narrow_gpu = 3e-2 },
    { IO(GRU_GRAD, 5, 3), .in = { SHAPE(9, 3), SHAPE(2, 5, 12), SHAPE(2, 5, 3), SHAPE(2, 5, 3), SHAPE(2) }, .out = { SHAPE(2, 5, 9), SHAPE(9, 3), SHAPE(9) }, .fill = { [4] = LENGTH }, .attrs = { .gru = { false } }, .narrow_gpu = 3e-2 },
    { IO(GRU_GRAD, 4, 3), .in = { SHAPE(9, 3), SHAPE(2, 5, 12), SHAPE(2, 5, 3), SHAPE(2, 5, 3) }, .out = { SHAPE(2, 5, 9), SHAPE(9, 3), SHAPE(9) }, .attrs = { .gru = { true } }, .narrow_gpu = 3e-2 },
    { IO(GRU_GRAD, 5, 3), .in = { SHAPE(9, 3), SHAPE(2, 5, 12), SHAPE(2, 5, 3), SHAPE(2, 5, 3), SHAPE(2) }, .out = { SHAPE(2, 5, 9), SHAPE(9, 3), SHAPE(9) }, .fill = { [4] = LENGTH }, .attrs = { .gru = { true } }, .narrow_gpu = 3e-2 },
    { IO(GRU_GRAD, 5, 3), .in = { SHAPE(111, 37), SHAPE(7, 4, 148), SHAPE(7, 4, 37), SHAPE(7, 4, 37), SHAPE(7) }, .out = { SHAPE(7, 4, 111), SHAPE(111, 37), SHAPE(111) }, .fill = { [4] = LENGTH }, .attrs = { .gru = { false } }, .tolerance = 1e-4, .narrow_gpu = 3e-2 },
    { IO(GRU_GRAD, 5, 3), .in = { SHAPE(111, 37), SHAPE(7, 4, 148), SHAPE(7, 4, 37), SHAPE(7, 4, 37), SHAPE(7) }, .out = { SHAPE(7, 4, 111), SHAPE(111, 37), SHAPE(111) }, .fill = { [4] = LENGTH }, .attrs = { .gru = { true } }, .tolerance = 1e-4, .narrow_gpu = 3e-2 },
    { IO(GRU_GRAD, 4, 3), .in = { SHAPE(192, 64), SHAPE(33, 3, 256), SHAPE(33, 3, 64), SHAPE(33, 3, 64) }, .out = { SHAPE(33, 3, 192), SHAPE(192, 64), SHAPE(192) }, .attrs = { .gru = { true } }, .tolerance = 1e-4, .narrow_gpu = 3e-2 },
    { IO(GRU_GRAD, 4, 3), .in = { SHAPE(60, 20), SHAPE(7, 4, 80), SHAPE(7, 4, 20), SHAPE(7, 4, 20) }, .out = { SHAPE(7, 4, 60), SHAPE(60, 20), SHAPE(60) }, .attrs = { .gru = { false } }, .absent = 6, .tolerance = 1e-4, .narrow_gpu = 3e-2 },
    { IO(GRU_GRAD, 5, 3), .in = { SHAPE(60, 20), SHAPE(7, 4, 80), SHAPE(7, 4, 20), SHAPE(7, 4, 20), SHAPE(7) }, .out = { SHAPE(7, 4, 60), SHAPE(60, 20), SHAPE(60) }, .fill = { [4] = LENGTH }, .attrs = { .gru = { true } }, .absent = 1, .tolerance = 1e-4, .narrow_gpu = 3e-2 },
    { IO(GRU_GRAD, 5, 3), .in = { SHAPE(60, 20), SHAPE(7, 4, 80), SHAPE(7, 4, 20), SHAPE(7, 4, 20), SHAPE(7) }, .out = { SHAPE(7, 4, 60), SHAPE(60, 20), SHAPE(60) }, .fill = { [4] = LENGTH }, .attrs = { .gru = { false } }, .absent = 4, .tolerance = 1e-4, .narrow_gpu = 3e-2 },
    { IO(CTC_LOSS, 3, 2), .in = { SHAPE(2, 6, 4), SHAPE(2, 3), SHAPE(2) }, .out = { SCALAR, SHAPE(2, 6, 4) }, .fill = { NORMAL, LABEL, LENGTH }, .classes = 4, .attrs = { .ctc = { .blank = 0, .zero_infinity = false } } },
    { IO(CTC_LOSS, 3, 2), .in = { SHAPE(4, 5, 5), SHAPE(4, 2), SHAPE(4) }, .out = { SCALAR, SHAPE(4, 5, 5) }, .fill = { NORMAL, LABEL, LENGTH }, .classes = 5, .attrs = { .ctc = { .blank = 2, .zero_infinity = false } } },
    { IO(CTC_LOSS, 3, 2), .in = { SHAPE(5, 6, 4), SHAPE(5, 3), SHAPE(5) }, .out = { SCALAR, SHAPE(5, 6, 4) }, .fill = { NORMAL, LABEL, LENGTH }, .classes = 4, .attrs = { .ctc = { .blank = 3, .zero_infinity = true } } },
    { IO(CTC_LOSS, 3, 2), .in = { SHAPE(1, 3, 2), SHAPE(1, 1), SHAPE(1) }, .out = { SCALAR, SHAPE(1, 3, 2) }, .fill = { NORMAL, LABEL, LENGTH }, .classes = 2, .attrs = { .ctc = { .blank = 1, .zero_infinity = false } } },
    { IO(CTC_LOSS, 3, 2), .in = { SHAPE(4, 40, 30), SHAPE(4, 11), SHAPE(4) }, .out = { SCALAR, SHAPE(4, 40, 30) }, .fill = { NORMAL, LABEL, LENGTH }, .classes = 30, .attrs = { .ctc = { .blank = 0, .zero_infinity = false } } },
    { IO(CTC_LOSS, 3, 2), .in = { SHAPE(9, 11, 19), SHAPE(9, 4), SHAPE(9) }, .out = { SCALAR, SHAPE(9, 11, 19) }, .fill = { STEEP, LABEL, LENGTH }, .classes = 19, .attrs = { .ctc = { .blank = 5, .zero_infinity = true } }, .tolerance = 3e-5 },
    { IO(CTC_LOSS, 3, 2), .in = { SHAPE(4, 60, 300), SHAPE(4, 20), SHAPE(4) }, .out = { SCALAR, SHAPE(4, 60, 300) }, .fill = { NORMAL, LABEL, LENGTH }, .classes = 300, .attrs = { .ctc = { .blank = 299, .zero_infinity = false } } },
    { IO(CTC_LOSS, 3, 2), .in = { SHAPE(2, 150, 7), SHAPE(2, 40), SHAPE(2) }, .out = { SCALAR, SHAPE(2, 150, 7) }, .fill = { NORMAL, LABEL, LENGTH }, .classes = 7, .attrs = { .ctc = { .blank = 1, .zero_infinity = false } }, .tolerance = 3e-5 },
    { IO(CTC_LOSS, 3, 2), .in = { SHAPE(4, 40, 30), SHAPE(4, 11), SHAPE(4) }, .out = { SCALAR, SHAPE(4, 40, 30) }, .fill = { NORMAL, LABEL, LENGTH }, .classes = 30, .attrs = { .ctc = { .blank = 0, .zero_infinity = false } }, .absent = 2 },
    { IO(CTC_LOSS, 3, 2), .in = { SHAPE(4, 40, 30), SHAPE(4, 11), SHAPE(4) }, .out = { SCALAR, SHAPE(4, 40, 30) }, .fill = { NORMAL, LABEL, LENGTH }, .classes = 30, .attrs = { .ctc = { .blank = 0, .zero_infinity = false } }, .absent = 2, .evaluation = true },
    { IO(CTC_LOSS_GRAD, 2, 1), .in = { SHAPE(2, 6, 4), SCALAR }, .out = { SHAPE(2, 6, 4) } },
    { IO(CTC_LOSS_GRAD, 2, 1), .in = { SHAPE(4, 60, 301), SCALAR }, .out = { SHAPE(4, 60, 301) } },

    /* batch norm, group norm: tails of channels, several blocks, parts and tasks, a mean far from 0 */
    { IO(BATCH_NORM, 3, 4), .in = { SHAPE(2, 2, 3, 5), SHAPE(5), SHAPE(5) }, .out = { SHAPE(2, 2, 3, 5), SHAPE(5), SHAPE(5), SHAPE(4, 5) }, .attrs = { .batch_norm = { 1e-5f, 0.1f, false } } },
    { IO(BATCH_NORM, 3, 4), .in = { SHAPE(3, 2, 7), SHAPE(7), SHAPE(7) }, .out = { SHAPE(3, 2, 7), SHAPE(7), SHAPE(7), SHAPE(4, 7) }, .attrs = { .batch_norm = { 1e-5f, 0.1f, true } } },
    { IO(BATCH_NORM, 4, 4), .in = { SHAPE(5, 8), SHAPE(8), SHAPE(8), SHAPE(5, 8) }, .out = { SHAPE(5, 8), SHAPE(8), SHAPE(8), SHAPE(4, 8) }, .attrs = { .batch_norm = { 1e-3f, 0.1f, false } } },
    { IO(BATCH_NORM, 4, 4), .in = { SHAPE(4, 9), SHAPE(9), SHAPE(9), SHAPE(4, 9) }, .out = { SHAPE(4, 9), SHAPE(9), SHAPE(9), SHAPE(4, 9) }, .attrs = { .batch_norm = { 1e-5f, 0.1f, true } } },
    { IO(BATCH_NORM, 3, 4), .in = { SHAPE(2, 3), SHAPE(3), SHAPE(3) }, .out = { SHAPE(2, 3), SHAPE(3), SHAPE(3), SHAPE(4, 3) }, .attrs = { .batch_norm = { 1e-5f, 0.1f, false } } },
    { IO(BATCH_NORM, 3, 4), .in = { SHAPE(1, 300), SHAPE(300), SHAPE(300) }, .out = { SHAPE(1, 300), SHAPE(300), SHAPE(300), SHAPE(4, 300) }, .attrs = { .batch_norm = { 1e-5f, 0.1f, false } } },
    { IO(BATCH_NORM, 3, 4), .in = { SHAPE(1, 300), SHAPE(300), SHAPE(300) }, .out = { SHAPE(1, 300), SHAPE(300), SHAPE(300), SHAPE(4, 300) }, .attrs = { .batch_norm = { 1e-5f, 0.1f, false, true } } },
    { IO(BATCH_NORM, 3, 4), .in = { SHAPE(2, 2, 3, 5), SHAPE(5), SHAPE(5) }, .out = { SHAPE(2, 2, 3, 5), SHAPE(5), SHAPE(5), SHAPE(4, 5) }, .attrs = { .batch_norm = { 1e-5f, 0.1f, true } }, .evaluation = true },
    { IO(BATCH_NORM, 4, 4), .in = { SHAPE(3, 5, 40), SHAPE(40), SHAPE(40), SHAPE(3, 5, 40) }, .out = { SHAPE(3, 5, 40), SHAPE(40), SHAPE(40), SHAPE(4, 40) }, .attrs = { .batch_norm = { 1e-5f, 0.1f, true } }, .evaluation = true },
    { IO(BATCH_NORM, 4, 4), .in = { SHAPE(3, 5, 40), SHAPE(40), SHAPE(40), SHAPE(3, 5, 40) }, .out = { SHAPE(3, 5, 40), SHAPE(40), SHAPE(40), SHAPE(4, 40) }, .attrs = { .batch_norm = { 1e-5f, 0.1f, true, true } } },
    { IO(BATCH_NORM, 3, 4), .in = { SHAPE(4, 13, 13, 64), SHAPE(64), SHAPE(64) }, .out = { SHAPE(4, 13, 13, 64), SHAPE(64), SHAPE(64), SHAPE(4, 64) }, .attrs = { .batch_norm = { 1e-5f, 0.1f, false } }, .fill = { LARGE }, .tolerance = 4e-5 },
    { IO(BATCH_NORM, 4, 4), .in = { SHAPE(3, 21, 20, 72), SHAPE(72), SHAPE(72), SHAPE(3, 21, 20, 72) }, .out = { SHAPE(3, 21, 20, 72), SHAPE(72), SHAPE(72), SHAPE(4, 72) }, .attrs = { .batch_norm = { 1e-5f, 0.1f, true } } },
    { IO(BATCH_NORM, 3, 4), .in = { SHAPE(2100, 20), SHAPE(20), SHAPE(20) }, .out = { SHAPE(2100, 20), SHAPE(20), SHAPE(20), SHAPE(4, 20) }, .attrs = { .batch_norm = { 1e-5f, 0.1f, false } }, .absent = 8 },
    { IO(BATCH_NORM, 3, 4), .in = { SHAPE(70, 1032), SHAPE(1032), SHAPE(1032) }, .out = { SHAPE(70, 1032), SHAPE(1032), SHAPE(1032), SHAPE(4, 1032) }, .attrs = { .batch_norm = { 1e-5f, 0.1f, true } } },
    { IO(BATCH_NORM, 3, 4), .in = { SHAPE(40000, 3), SHAPE(3), SHAPE(3) }, .out = { SHAPE(40000, 3), SHAPE(3), SHAPE(3), SHAPE(4, 3) }, .attrs = { .batch_norm = { 1e-5f, 0.1f, false } }, .fill = { LARGE }, .tolerance = 4e-5 },
    { IO(BATCH_NORM, 3, 4), .in = { SHAPE(33, 8, 1), SHAPE(1), SHAPE(1) }, .out = { SHAPE(33, 8, 1), SHAPE(1), SHAPE(1), SHAPE(4, 1) }, .attrs = { .batch_norm = { 1e-5f, 0.1f, false } } },
    { IO(BATCH_NORM_GRAD, 6, 4), .in = { SHAPE(2, 2, 3, 5), SHAPE(5), SHAPE(5), SHAPE(5), SHAPE(5), SHAPE(2, 2, 3, 5) }, .out = { SHAPE(2, 2, 3, 5), SHAPE(5), SHAPE(5), SHAPE(2, 2, 3, 5) }, .fill = { [4] = POSITIVE }, .attrs = { .batch_norm = { 1e-5f, 0.1f, false } }, .absent = 8 },
    { IO(BATCH_NORM_GRAD, 6, 4), .in = { SHAPE(2, 2, 3, 5), SHAPE(5), SHAPE(5), SHAPE(5), SHAPE(5), SHAPE(2, 2, 3, 5) }, .out = { SHAPE(2, 2, 3, 5), SHAPE(5), SHAPE(5), SHAPE(2, 2, 3, 5) }, .fill = { [4] = POSITIVE }, .attrs = { .batch_norm = { 1e-5f, 0.1f, false, true } }, .absent = 8 },
    { IO(BATCH_NORM_GRAD, 6, 4), .in = { SHAPE(3, 2, 7), SHAPE(7), SHAPE(7), SHAPE(7), SHAPE(7), SHAPE(3, 2, 7) }, .out = { SHAPE(3, 2, 7), SHAPE(7), SHAPE(7), SHAPE(3, 2, 7) }, .fill = { [4] = POSITIVE }, .attrs = { .batch_norm = { 1e-5f, 0.1f, true } }, .absent = 8 },
    { IO(BATCH_NORM_GRAD, 6, 4), .in = { SHAPE(3, 2, 7), SHAPE(7), SHAPE(7), SHAPE(7), SHAPE(7), SHAPE(3, 2, 7) }, .out = { SHAPE(3, 2, 7), SHAPE(7), SHAPE(7), SHAPE(3, 2, 7) }, .fill = { [4] = POSITIVE }, .attrs = { .batch_norm = { 1e-5f, 0.1f, true, true } }, .absent = 8 },
    { IO(BATCH_NORM_GRAD, 7, 4), .in = { SHAPE(4, 9), SHAPE(9), SHAPE(9), SHAPE(9), SHAPE(9), SHAPE(4, 9), SHAPE(4, 9) }, .out = { SHAPE(4, 9), SHAPE(9), SHAPE(9), SHAPE(4, 9) }, .fill = { [4] = POSITIVE }, .attrs = { .batch_norm = { 1e-5f, 0.1f, true } } },
    { IO(BATCH_NORM_GRAD, 7, 4), .in = { SHAPE(4, 9), SHAPE(9), SHAPE(9), SHAPE(9), SHAPE(9), SHAPE(4, 9), SHAPE(4, 9) }, .out = { SHAPE(4, 9), SHAPE(9), SHAPE(9), SHAPE(4, 9) }, .fill = { [4] = POSITIVE }, .attrs = { .batch_norm = { 1e-5f, 0.1f, true, true } } },
    { IO(BATCH_NORM_GRAD, 7, 4), .in = { SHAPE(4, 13, 13, 64), SHAPE(64), SHAPE(64), SHAPE(64), SHAPE(64), SHAPE(4, 13, 13, 64), SHAPE(4, 13, 13, 64) }, .out = { SHAPE(4, 13, 13, 64), SHAPE(64), SHAPE(64), SHAPE(4, 13, 13, 64) }, .fill = { [4] = POSITIVE }, .attrs = { .batch_norm = { 1e-5f, 0.1f, true } } },
    { IO(BATCH_NORM_GRAD, 7, 4), .in = { SHAPE(4, 13, 13, 64), SHAPE(64), SHAPE(64), SHAPE(64), SHAPE(64), SHAPE(4, 13, 13, 64), SHAPE(4, 13, 13, 64) }, .out = { SHAPE(4, 13, 13, 64), SHAPE(64), SHAPE(64), SHAPE(4, 13, 13, 64) }, .fill = { [4] = POSITIVE }, .attrs = { .batch_norm = { 1e-5f, 0.1f, true, true } } },
    { IO(BATCH_NORM_GRAD, 6, 4), .in = { SHAPE(3, 21, 20, 72), SHAPE(72), SHAPE(72), SHAPE(72), SHAPE(72), SHAPE(3, 21, 20, 72) }, .out = { SHAPE(3, 21, 20, 72), SHAPE(72), SHAPE(72), SHAPE(3, 21, 20, 72) }, .fill = { [4] = POSITIVE }, .attrs = { .batch_norm = { 1e-5f, 0.1f, true } }, .absent = 8 },
    { IO(BATCH_NORM_GRAD, 6, 4), .in = { SHAPE(2100, 20), SHAPE(20), SHAPE(20), SHAPE(20), SHAPE(20), SHAPE(2100, 20) }, .out = { SHAPE(2100, 20), SHAPE(20), SHAPE(20), SHAPE(2100, 20) }, .fill = { [4] = POSITIVE }, .attrs = { .batch_norm = { 1e-5f, 0.1f, false } }, .absent = 9 },
    { IO(BATCH_NORM_GRAD, 6, 4), .in = { SHAPE(70, 1032), SHAPE(1032), SHAPE(1032), SHAPE(1032), SHAPE(1032), SHAPE(70, 1032) }, .out = { SHAPE(70, 1032), SHAPE(1032), SHAPE(1032), SHAPE(70, 1032) }, .fill = { [4] = POSITIVE }, .attrs = { .batch_norm = { 1e-5f, 0.1f, false } }, .absent = 14 },
    { IO(BATCH_NORM_GRAD, 7, 4), .in = { SHAPE(9000, 3), SHAPE(3), SHAPE(3), SHAPE(3), SHAPE(3), SHAPE(9000, 3), SHAPE(9000, 3) }, .out = { SHAPE(9000, 3), SHAPE(3), SHAPE(3), SHAPE(9000, 3) }, .fill = { [4] = POSITIVE }, .attrs = { .batch_norm = { 1e-5f, 0.1f, true } }, .absent = 6, .tolerance = 4e-5 },
    { IO(BATCH_NORM_GRAD, 6, 4), .in = { SHAPE(70, 24), SHAPE(24), SHAPE(24), SHAPE(24), SHAPE(24), SHAPE(70, 24) }, .out = { SHAPE(70, 24), SHAPE(24), SHAPE(24), SHAPE(70, 24) }, .fill = { [4] = POSITIVE }, .attrs = { .batch_norm = { 1e-5f, 0.1f, true } }, .absent = 10 },
    { IO(GROUP_NORM, 3, 3), .in = { SHAPE(2, 2, 3, 6), SHAPE(6), SHAPE(6) }, .out = { SHAPE(2, 2, 3, 6), SHAPE(2, 3), SHAPE(2, 3) }, .attrs = { .group_norm = { 3, 1e-5f } } },
    { IO(GROUP_NORM, 3, 3), .in = { SHAPE(3, 4, 5), SHAPE(5), SHAPE(5) }, .out = { SHAPE(3, 4, 5), SHAPE(3, 1), SHAPE(3, 1) }, .attrs = { .group_norm = { 1, 1e-5f } } },
    { IO(GROUP_NORM, 3, 3), .in = { SHAPE(2, 7), SHAPE(7), SHAPE(7) }, .out = { SHAPE(2, 7), SHAPE(2, 7), SHAPE(2, 7) }, .attrs = { .group_norm = { 7, 1e-5f } } },
    { IO(GROUP_NORM, 3, 3), .in = { SHAPE(2, 9, 11, 72), SHAPE(72), SHAPE(72) }, .out = { SHAPE(2, 9, 11, 72), SHAPE(2, 6), SHAPE(2, 6) }, .attrs = { .group_norm = { 6, 1e-5f } }, .fill = { LARGE }, .tolerance = 4e-5 },
    { IO(GROUP_NORM, 3, 3), .in = { SHAPE(3, 1400, 16), SHAPE(16), SHAPE(16) }, .out = { SHAPE(3, 1400, 16), SHAPE(3, 8), SHAPE(3, 8) }, .attrs = { .group_norm = { 8, 1e-5f } } },
    { IO(GROUP_NORM, 3, 3), .in = { SHAPE(2, 5, 1032), SHAPE(1032), SHAPE(1032) }, .out = { SHAPE(2, 5, 1032), SHAPE(2, 4), SHAPE(2, 4) }, .attrs = { .group_norm = { 4, 1e-5f } } },
    { IO(GROUP_NORM_GRAD, 5, 3), .in = { SHAPE(2, 2, 3, 6), SHAPE(6), SHAPE(2, 3), SHAPE(2, 3), SHAPE(2, 2, 3, 6) }, .out = { SHAPE(2, 2, 3, 6), SHAPE(6), SHAPE(6) }, .fill = { [3] = POSITIVE }, .attrs = { .group_norm = { 3, 1e-5f } } },
    { IO(GROUP_NORM_GRAD, 5, 3), .in = { SHAPE(3, 4, 5), SHAPE(5), SHAPE(3, 5), SHAPE(3, 5), SHAPE(3, 4, 5) }, .out = { SHAPE(3, 4, 5), SHAPE(5), SHAPE(5) }, .fill = { [3] = POSITIVE }, .attrs = { .group_norm = { 5, 1e-5f } } },
    { IO(GROUP_NORM_GRAD, 5, 3), .in = { SHAPE(2, 9, 11, 72), SHAPE(72), SHAPE(2, 6), SHAPE(2, 6), SHAPE(2, 9, 11, 72) }, .out = { SHAPE(2, 9, 11, 72), SHAPE(72), SHAPE(72) }, .fill = { [3] = POSITIVE }, .attrs = { .group_norm = { 6, 1e-5f } } },
    { IO(GROUP_NORM_GRAD, 5, 3), .in = { SHAPE(3, 1400, 16), SHAPE(16), SHAPE(3, 8), SHAPE(3, 8), SHAPE(3, 1400, 16) }, .out = { SHAPE(3, 1400, 16), SHAPE(16), SHAPE(16) }, .fill = { [3] = POSITIVE }, .attrs = { .group_norm = { 8, 1e-5f } }, .absent = 1 },
    { IO(GROUP_NORM_GRAD, 5, 3), .in = { SHAPE(2, 5, 1032), SHAPE(1032), SHAPE(2, 4), SHAPE(2, 4), SHAPE(2, 5, 1032) }, .out = { SHAPE(2, 5, 1032), SHAPE(1032), SHAPE(1032) }, .fill = { [3] = POSITIVE }, .attrs = { .group_norm = { 4, 1e-5f } }, .absent = 6 },
    { IO(GROUP_NORM_GRAD, 5, 3), .in = { SHAPE(4, 40, 64), SHAPE(64), SHAPE(4, 32), SHAPE(4, 32), SHAPE(4, 40, 64) }, .out = { SHAPE(4, 40, 64), SHAPE(64), SHAPE(64) }, .fill = { [3] = POSITIVE }, .attrs = { .group_norm = { 32, 1e-5f } }, .absent = 2 },
    /* outputs in eights, which the library for convolutions of a GPU takes in 16 bits; windows of more than 256 places */
    { IO(CONV2D, 3, 1), .in = { SHAPE(2, 6, 7, 5), SHAPE(16, 5, 3, 3), SHAPE(16) }, .out = { SHAPE(2, 6, 7, 16) }, .attrs = { .conv = { 1, 1, 1, 1, 1, 1, 1 } } },
    { IO(CONV2D_GRAD_INPUT, 2, 1), .in = { SHAPE(2, 6, 7, 16), SHAPE(16, 5, 3, 3) }, .out = { SHAPE(2, 6, 7, 5) }, .attrs = { .conv = { 1, 1, 1, 1, 1, 1, 1 } } },
    { IO(CONV2D_GRAD_WEIGHT, 2, 2), .in = { SHAPE(2, 6, 7, 16), SHAPE(2, 6, 7, 5) }, .out = { SHAPE(16, 5, 3, 3), SHAPE(16) }, .attrs = { .conv = { 1, 1, 1, 1, 1, 1, 1 } } },
    { IO(CONV2D, 3, 1), .in = { SHAPE(1, 6, 5, 8), SHAPE(16, 4, 3, 3), SHAPE(16) }, .out = { SHAPE(1, 6, 5, 16) }, .attrs = { .conv = { 1, 1, 1, 1, 1, 1, 2 } } },
    { IO(CONV2D_GRAD_INPUT, 2, 1), .in = { SHAPE(1, 6, 5, 16), SHAPE(16, 4, 3, 3) }, .out = { SHAPE(1, 6, 5, 8) }, .attrs = { .conv = { 1, 1, 1, 1, 1, 1, 2 } } },
    { IO(CONV2D_GRAD_WEIGHT, 2, 2), .in = { SHAPE(1, 6, 5, 16), SHAPE(1, 6, 5, 8) }, .out = { SHAPE(16, 4, 3, 3), SHAPE(16) }, .attrs = { .conv = { 1, 1, 1, 1, 1, 1, 2 } } },
    { IO(CONV2D, 2, 1), .in = { SHAPE(2, 5, 6, 16), SHAPE(24, 16, 1, 1) }, .out = { SHAPE(2, 3, 3, 24) }, .attrs = { .conv = { 2, 2, 0, 0, 1, 1, 1 } } },
    { IO(CONV2D_GRAD_INPUT, 2, 1), .in = { SHAPE(2, 3, 3, 24), SHAPE(24, 16, 1, 1) }, .out = { SHAPE(2, 5, 6, 16) }, .attrs = { .conv = { 2, 2, 0, 0, 1, 1, 1 } } },
    { IO(CONV2D_GRAD_WEIGHT, 2, 1), .in = { SHAPE(2, 3, 3, 24), SHAPE(2, 5, 6, 16) }, .out = { SHAPE(24, 16, 1, 1) }, .attrs = { .conv = { 2, 2, 0, 0, 1, 1, 1 } } },
    { IO(CONV2D, 3, 1), .in = { SHAPE(1, 9, 8, 8), SHAPE(8, 8, 3, 3), SHAPE(8) }, .out = { SHAPE(1, 5, 4, 8) }, .attrs = { .conv = { 2, 2, 2, 2, 2, 2, 1 } } },
    { IO(CONV2D_GRAD_INPUT, 2, 1), .in = { SHAPE(1, 5, 4, 8), SHAPE(8, 8, 3, 3) }, .out = { SHAPE(1, 9, 8, 8) }, .attrs = { .conv = { 2, 2, 2, 2, 2, 2, 1 } } },
    { IO(CONV2D_GRAD_WEIGHT, 2, 2), .in = { SHAPE(1, 5, 4, 8), SHAPE(1, 9, 8, 8) }, .out = { SHAPE(8, 8, 3, 3), SHAPE(8) }, .attrs = { .conv = { 2, 2, 2, 2, 2, 2, 1 } } },
    { IO(MAX_POOL2D, 1, 1), .in = { SHAPE(1, 20, 18, 3) }, .out = { SHAPE(1, 2, 2, 3) }, .attrs = { .pool = { 17, 16, 2, 2, 0, 0, false, false } }, .exact = true },
    { IO(MAX_POOL2D_GRAD, 2, 1), .in = { SHAPE(1, 20, 18, 3), SHAPE(1, 2, 2, 3) }, .out = { SHAPE(1, 20, 18, 3) }, .attrs = { .pool = { 17, 16, 2, 2, 0, 0, false, false } } },

    /* strides longer than the image */
    { IO(CONV2D, 2, 1), .in = { SHAPE(2, 3, 4, 3), SHAPE(5, 3, 2, 2) }, .out = { SHAPE(2, 1, 1, 5) }, .attrs = { .conv = { 1000000, 999983, 0, 1, 1, 2, 1 } } },
    { IO(CONV2D_GRAD_INPUT, 2, 1), .in = { SHAPE(2, 1, 1, 5), SHAPE(5, 3, 2, 2) }, .out = { SHAPE(2, 3, 4, 3) }, .attrs = { .conv = { 1000000, 999983, 0, 1, 1, 2, 1 } } },
    { IO(CONV2D_GRAD_WEIGHT, 2, 1), .in = { SHAPE(2, 1, 1, 5), SHAPE(2, 3, 4, 3) }, .out = { SHAPE(5, 3, 2, 2) }, .attrs = { .conv = { 1000000, 999983, 0, 1, 1, 2, 1 } } },
    { IO(CONV2D_GRAD_INPUT, 2, 1), .in = { SHAPE(3, 2, 2, 5), SHAPE(5, 2, 1, 1) }, .out = { SHAPE(3, 1, 1, 2) }, .attrs = { .conv = { 2, 2, 1, 1, 1, 1, 1 } }, .exact = true }, /* no window sees a pixel */
    /* states wider than what one kernel of CUDA takes through all frames */
    { IO(GRU, 4, 2), .in = { SHAPE(2, 2, 1548), SHAPE(1548, 516), SHAPE(1548), SHAPE(2) }, .out = { SHAPE(2, 2, 516), SHAPE(2, 2, 2064) }, .fill = { [3] = LENGTH }, .attrs = { .gru = { false } }, .tolerance = 1e-4, .narrow_gpu = 0.15 },
    { IO(GRU_GRAD, 5, 3), .in = { SHAPE(1548, 516), SHAPE(2, 2, 2064), SHAPE(2, 2, 516), SHAPE(2, 2, 516), SHAPE(2) }, .out = { SHAPE(2, 2, 1548), SHAPE(1548, 516), SHAPE(1548) }, .fill = { [4] = LENGTH }, .attrs = { .gru = { true } }, .tolerance = 1e-4, .narrow_gpu = 3e-2 },
    /* heads with a bias */
    { IO(LINEAR_CROSS_ENTROPY, 4, 5), .in = { SHAPE(2, 4, 6), SHAPE(5, 6), SHAPE(2, 4), SHAPE(5) }, .out = { SCALAR, SCALAR, SHAPE(5, 6), SHAPE(2, 4, 6), SHAPE(5) }, .fill = { NORMAL, NORMAL, TARGET }, .classes = 5, .attrs = { .cross_entropy = { .ignore_index = -100 } }, .narrow = 0.1 },
    { IO(LINEAR_CROSS_ENTROPY, 4, 5), .in = { SHAPE(2, 4, 6), SHAPE(5, 6), SHAPE(2, 4), SHAPE(5) }, .out = { SCALAR, SCALAR, SHAPE(5, 6), SHAPE(2, 4, 6), SHAPE(5) }, .fill = { NORMAL, NORMAL, TARGET }, .classes = 5, .attrs = { .cross_entropy = { .ignore_index = -100, .smoothing = 0.1f } }, .narrow = 0.1 },
    { IO(LINEAR_CROSS_ENTROPY, 4, 5), .in = { SHAPE(2, 4, 6), SHAPE(5, 6), SHAPE(2, 4), SHAPE(5) }, .out = { SCALAR, SCALAR, SHAPE(5, 6), SHAPE(2, 4, 6), SHAPE(5) }, .fill = { NORMAL, NORMAL, TARGET }, .classes = 5, .attrs = { .cross_entropy = { .ignore_index = -100, .softcap = 2.0f, .smoothing = 0.25f } }, .narrow = 0.1 },
    { IO(LINEAR_CROSS_ENTROPY, 4, 5), .in = { SHAPE(70, 33), SHAPE(301, 33), SHAPE(70), SHAPE(301) }, .out = { SCALAR, SCALAR, SHAPE(301, 33), SHAPE(70, 33), SHAPE(301) }, .fill = { NORMAL, NORMAL, TARGET }, .classes = 301, .attrs = { .cross_entropy = { .ignore_index = 7 } }, .narrow = 0.1 },
    { IO(LINEAR_CROSS_ENTROPY, 4, 5), .in = { SHAPE(300, 5), SHAPE(16500, 5), SHAPE(300), SHAPE(16500) }, .out = { SCALAR, SCALAR, SHAPE(16500, 5), SHAPE(300, 5), SHAPE(16500) }, .fill = { NORMAL, NORMAL, TARGET }, .classes = 16500, .attrs = { .cross_entropy = { .ignore_index = -1, .smoothing = 0.1f } }, .narrow = 0.1 }, /* two chunks */
    { IO(LINEAR_CROSS_ENTROPY, 4, 5), .in = { SHAPE(9, 20), SHAPE(40, 20), SHAPE(9), SHAPE(40) }, .out = { SCALAR, SCALAR, SHAPE(40, 20), SHAPE(9, 20), SHAPE(40) }, .fill = { NORMAL, NORMAL, INDEX }, .classes = 40, .attrs = { .cross_entropy = { .ignore_index = -1 } }, .absent = 4, .narrow = 0.1 },
    { IO(LINEAR_CROSS_ENTROPY, 4, 5), .in = { SHAPE(9, 20), SHAPE(40, 20), SHAPE(9), SHAPE(40) }, .out = { SCALAR, SCALAR, SHAPE(40, 20), SHAPE(9, 20), SHAPE(40) }, .fill = { NORMAL, NORMAL, INDEX }, .classes = 40, .attrs = { .cross_entropy = { .ignore_index = -1 } }, .absent = 8, .narrow = 0.1 },
    { IO(LINEAR_CROSS_ENTROPY, 4, 5), .in = { SHAPE(9, 20), SHAPE(40, 20), SHAPE(9), SHAPE(40) }, .out = { SCALAR, SCALAR, SHAPE(40, 20), SHAPE(9, 20), SHAPE(40) }, .fill = { NORMAL, NORMAL, INDEX }, .classes = 40, .attrs = { .cross_entropy = { .ignore_index = -1 } }, .absent = 12, .narrow = 0.1 },
    { IO(LINEAR_CROSS_ENTROPY, 4, 5), .in = { SHAPE(9, 20), SHAPE(40, 20), SHAPE(9), SHAPE(40) }, .out = { SCALAR, SCALAR, SHAPE(40, 20), SHAPE(9, 20), SHAPE(40) }, .fill = { NORMAL, NORMAL, INDEX }, .classes = 40, .attrs = { .cross_entropy = { .ignore_index = -1 } }, .absent = 16, .narrow = 0.1 },
    { IO(LINEAR_CROSS_ENTROPY, 4, 5), .in = { SHAPE(9, 20), SHAPE(40, 20), SHAPE(9), SHAPE(40) }, .out = { SCALAR, SCALAR, SHAPE(40, 20), SHAPE(9, 20), SHAPE(40) }, .fill = { NORMAL, NORMAL, INDEX }, .classes = 40, .attrs = { .cross_entropy = { .ignore_index = -1 } }, .absent = 28, .evaluation = true, .narrow = 0.1 },
    { IO(LINEAR_CROSS_ENTROPY_GRAD, 4, 3), .in = { SHAPE(5, 6), SHAPE(2, 4, 6), SCALAR, SHAPE(5) }, .out = { SHAPE(5, 6), SHAPE(2, 4, 6), SHAPE(5) } },
    { IO(LINEAR_CROSS_ENTROPY_GRAD, 4, 3), .in = { SHAPE(301, 111), SHAPE(70, 111), SCALAR, SHAPE(301) }, .out = { SHAPE(301, 111), SHAPE(70, 111), SHAPE(301) } },
    { IO(LINEAR_CROSS_ENTROPY_GRAD, 4, 3), .in = { SHAPE(5), SHAPE(5), SCALAR, SHAPE(5) }, .out = { SHAPE(5), SHAPE(5), SHAPE(5) }, .absent = 3 },

    { IO(BAG, 2, 1), .in = { SHAPE(3, 4, 5), SHAPE(5) }, .out = { SHAPE(5, 5) }, .fill = { NORMAL, END }, .classes = 12 },
    { IO(BAG, 2, 1), .in = { SHAPE(12, 5), SHAPE(5) }, .out = { SHAPE(5, 5) }, .fill = { NORMAL, END }, .classes = 9, .attrs = { .bag = { true } } },
    { IO(BAG, 2, 1), .in = { SHAPE(700, 37), SHAPE(90) }, .out = { SHAPE(90, 37) }, .fill = { NORMAL, END }, .classes = 690, .attrs = { .bag = { true } } },
    { IO(BAG, 2, 1), .in = { SHAPE(40, 20, 64), SHAPE(300) }, .out = { SHAPE(300, 64) }, .fill = { NORMAL, END }, .classes = 800 },
    { IO(BAG_GRAD, 2, 1), .in = { SHAPE(5), SHAPE(5, 5) }, .out = { SHAPE(3, 4, 5) }, .fill = { END }, .classes = 12 },
    { IO(BAG_GRAD, 2, 1), .in = { SHAPE(91), SHAPE(91, 37) }, .out = { SHAPE(700, 37) }, .fill = { END }, .classes = 690, .attrs = { .bag = { true } } },
    { IO(BAG_GRAD, 2, 1), .in = { SHAPE(301), SHAPE(301, 64) }, .out = { SHAPE(40, 20, 64) }, .fill = { END }, .classes = 800 },
    /* batch norm over ranks: samples that make one node, several, more than a chunk; ranks whose nodes meet each other's */
    { IO(BATCH_MOMENTS, 1, 1), .in = { SHAPE(7, 2, 3, 5) }, .out = { SHAPE(1, 3, 2, 5) }, .attrs = { .batch_norm = { 1e-5f, 0.1f, false, false, true, 1 } } },
    { IO(BATCH_MOMENTS, 1, 1), .in = { SHAPE(4, 9) }, .out = { SHAPE(1, 1, 2, 9) }, .attrs = { .batch_norm = { 1e-5f, 0.1f, false, false, true, 1 } } },
    { IO(BATCH_MOMENTS, 1, 1), .in = { SHAPE(4, 13, 13, 64) }, .out = { SHAPE(1, 1, 2, 64) }, .attrs = { .batch_norm = { 1e-5f, 0.1f, false, false, true, 1 } }, .fill = { LARGE } },
    { IO(BATCH_MOMENTS, 1, 1), .in = { SHAPE(2100, 20) }, .out = { SHAPE(1, 4, 2, 20) }, .attrs = { .batch_norm = { 1e-5f, 0.1f, false, false, true, 1 } } },
    { IO(BATCH_MOMENTS, 1, 1), .in = { SHAPE(5000, 3) }, .out = { SHAPE(1, 5, 2, 3) }, .attrs = { .batch_norm = { 1e-5f, 0.1f, false, false, true, 1 } }, .fill = { LARGE } },
    { IO(BATCH_MOMENTS, 1, 1), .in = { SHAPE(3, 21, 20, 72) }, .out = { SHAPE(1, 2, 2, 72) }, .attrs = { .batch_norm = { 1e-5f, 0.1f, false, false, true, 1 } } },
    { IO(BATCH_MOMENTS, 1, 1), .in = { SHAPE(2, 3) }, .out = { SHAPE(1, 1, 2, 3) }, .attrs = { .batch_norm = { 1e-5f, 0.1f, false, false, true, 1 } } },
    { IO(BATCH_MOMENTS, 1, 1), .in = { SHAPE(1, 40, 130) }, .out = { SHAPE(1, 1, 2, 130) }, .attrs = { .batch_norm = { 1e-5f, 0.1f, false, false, true, 1 } } },
    { IO(BATCH_STATISTICS, 2, 3), .in = { SHAPE(4, 9), SHAPE(1, 1, 2, 9) }, .out = { SHAPE(9), SHAPE(9), SHAPE(4, 9) }, .fill = { [1] = POSITIVE }, .attrs = { .batch_norm = { 1e-5f, 0.1f, false, false, true, 1 } } },
    { IO(BATCH_STATISTICS, 2, 3), .in = { SHAPE(4, 9), SHAPE(3, 1, 2, 9) }, .out = { SHAPE(9), SHAPE(9), SHAPE(4, 9) }, .fill = { [1] = POSITIVE }, .attrs = { .batch_norm = { 1e-5f, 0.1f, false, false, true, 3 } } },
    { IO(BATCH_STATISTICS, 2, 3), .in = { SHAPE(3, 2, 7), SHAPE(4, 2, 2, 7) }, .out = { SHAPE(7), SHAPE(7), SHAPE(4, 7) }, .fill = { [1] = POSITIVE }, .attrs = { .batch_norm = { 1e-5f, 0.1f, false, false, true, 4 } } },
    { IO(BATCH_STATISTICS, 2, 3), .in = { SHAPE(13, 300), SHAPE(5, 5, 2, 300) }, .out = { SHAPE(300), SHAPE(300), SHAPE(4, 300) }, .fill = { [1] = POSITIVE }, .attrs = { .batch_norm = { 1e-5f, 0.1f, false, false, true, 5 } } },
    { IO(BATCH_STATISTICS, 2, 3), .in = { SHAPE(6, 2, 40), SHAPE(2, 2, 2, 40) }, .out = { SHAPE(40), SHAPE(40), SHAPE(4, 40) }, .fill = { [1] = POSITIVE }, .attrs = { .batch_norm = { 1e-5f, 0.1f, false, false, true, 2 } }, .evaluation = true },
    { IO(BATCH_NORMALIZE, 5, 1), .in = { SHAPE(2, 2, 3, 5), SHAPE(5), SHAPE(5), SHAPE(5), SHAPE(5) }, .out = { SHAPE(2, 2, 3, 5) }, .fill = { [4] = POSITIVE }, .attrs = { .batch_norm = { 1e-5f, 0.1f, false, false, true, 2 } } },
    { IO(BATCH_NORMALIZE, 5, 1), .in = { SHAPE(3, 2, 7), SHAPE(7), SHAPE(7), SHAPE(7), SHAPE(7) }, .out = { SHAPE(3, 2, 7) }, .fill = { [4] = POSITIVE }, .attrs = { .batch_norm = { 1e-5f, 0.1f, true, false, true, 2 } } },
    { IO(BATCH_NORMALIZE, 6, 1), .in = { SHAPE(5, 8), SHAPE(8), SHAPE(8), SHAPE(8), SHAPE(8), SHAPE(5, 8) }, .out = { SHAPE(5, 8) }, .fill = { [4] = POSITIVE }, .attrs = { .batch_norm = { 1e-5f, 0.1f, false, false, true, 2 } } },
    { IO(BATCH_NORMALIZE, 6, 1), .in = { SHAPE(4, 9), SHAPE(9), SHAPE(9), SHAPE(9), SHAPE(9), SHAPE(4, 9) }, .out = { SHAPE(4, 9) }, .fill = { [4] = POSITIVE }, .attrs = { .batch_norm = { 1e-5f, 0.1f, true, false, true, 2 } } },
    { IO(BATCH_NORMALIZE, 6, 1), .in = { SHAPE(3, 21, 20, 72), SHAPE(72), SHAPE(72), SHAPE(72), SHAPE(72), SHAPE(3, 21, 20, 72) }, .out = { SHAPE(3, 21, 20, 72) }, .fill = { [4] = POSITIVE }, .attrs = { .batch_norm = { 1e-5f, 0.1f, true, false, true, 2 } } },
    { IO(BATCH_NORMALIZE, 5, 1), .in = { SHAPE(70, 1032), SHAPE(1032), SHAPE(1032), SHAPE(1032), SHAPE(1032) }, .out = { SHAPE(70, 1032) }, .fill = { [4] = POSITIVE }, .attrs = { .batch_norm = { 1e-5f, 0.1f, true, false, true, 2 } } },
    { IO(BATCH_NORM_SUMS, 6, 2), .in = { SHAPE(7, 2, 3, 5), SHAPE(5), SHAPE(5), SHAPE(5), SHAPE(5), SHAPE(7, 2, 3, 5) }, .out = { SHAPE(1, 3, 2, 5), SHAPE(7, 2, 3, 5) }, .fill = { [4] = POSITIVE }, .attrs = { .batch_norm = { 1e-5f, 0.1f, false, false, true, 1 } } },
    { IO(BATCH_NORM_SUMS, 6, 2), .in = { SHAPE(3, 2, 7), SHAPE(7), SHAPE(7), SHAPE(7), SHAPE(7), SHAPE(3, 2, 7) }, .out = { SHAPE(1, 2, 2, 7), SHAPE(3, 2, 7) }, .fill = { [4] = POSITIVE }, .attrs = { .batch_norm = { 1e-5f, 0.1f, true, false, true, 1 } } },
    { IO(BATCH_NORM_SUMS, 7, 2), .in = { SHAPE(4, 9), SHAPE(9), SHAPE(9), SHAPE(9), SHAPE(9), SHAPE(4, 9), SHAPE(4, 9) }, .out = { SHAPE(1, 1, 2, 9), SHAPE(4, 9) }, .fill = { [4] = POSITIVE }, .attrs = { .batch_norm = { 1e-5f, 0.1f, true, false, true, 1 } } },
    { IO(BATCH_NORM_SUMS, 7, 2), .in = { SHAPE(4, 13, 13, 64), SHAPE(64), SHAPE(64), SHAPE(64), SHAPE(64), SHAPE(4, 13, 13, 64), SHAPE(4, 13, 13, 64) }, .out = { SHAPE(1, 1, 2, 64), SHAPE(4, 13, 13, 64) }, .fill = { [4] = POSITIVE }, .attrs = { .batch_norm = { 1e-5f, 0.1f, true, false, true, 1 } } },
    { IO(BATCH_NORM_SUMS, 6, 2), .in = { SHAPE(2100, 20), SHAPE(20), SHAPE(20), SHAPE(20), SHAPE(20), SHAPE(2100, 20) }, .out = { SHAPE(1, 4, 2, 20), SHAPE(2100, 20) }, .fill = { [4] = POSITIVE }, .attrs = { .batch_norm = { 1e-5f, 0.1f, true, false, true, 1 } } },
    { IO(BATCH_NORM_SUMS, 6, 2), .in = { SHAPE(70, 24), SHAPE(24), SHAPE(24), SHAPE(24), SHAPE(24), SHAPE(70, 24) }, .out = { SHAPE(1, 3, 2, 24), SHAPE(70, 24) }, .fill = { [4] = POSITIVE }, .attrs = { .batch_norm = { 1e-5f, 0.1f, false, false, true, 1 } } },
    { IO(BATCH_NORMALIZE_GRAD, 7, 3), .in = { SHAPE(2, 2, 3, 5), SHAPE(5), SHAPE(5), SHAPE(5), SHAPE(5), SHAPE(2, 2, 3, 5), SHAPE(1, 1, 2, 5) }, .out = { SHAPE(2, 2, 3, 5), SHAPE(5), SHAPE(5) }, .fill = { [4] = POSITIVE }, .attrs = { .batch_norm = { 1e-5f, 0.1f, false, false, true, 1 } } },
    { IO(BATCH_NORMALIZE_GRAD, 7, 3), .in = { SHAPE(3, 2, 7), SHAPE(7), SHAPE(7), SHAPE(7), SHAPE(7), SHAPE(3, 2, 7), SHAPE(2, 2, 2, 7) }, .out = { SHAPE(3, 2, 7), SHAPE(7), SHAPE(7) }, .fill = { [4] = POSITIVE }, .attrs = { .batch_norm = { 1e-5f, 0.1f, true, false, true, 2 } } },
    { IO(BATCH_NORMALIZE_GRAD, 7, 3), .in = { SHAPE(3, 2, 7), SHAPE(7), SHAPE(7), SHAPE(7), SHAPE(7), SHAPE(3, 2, 7), SHAPE(4, 2, 2, 7) }, .out = { SHAPE(3, 2, 7), SHAPE(7), SHAPE(7) }, .fill = { [4] = POSITIVE }, .attrs = { .batch_norm = { 1e-5f, 0.1f, false, false, true, 4 } } },
    { IO(BATCH_NORMALIZE_GRAD, 8, 3), .in = { SHAPE(4, 9), SHAPE(9), SHAPE(9), SHAPE(9), SHAPE(9), SHAPE(4, 9), SHAPE(2, 1, 2, 9), SHAPE(4, 9) }, .out = { SHAPE(4, 9), SHAPE(9), SHAPE(9) }, .fill = { [4] = POSITIVE }, .attrs = { .batch_norm = { 1e-5f, 0.1f, true, false, true, 2 } } },
    { IO(BATCH_NORMALIZE_GRAD, 8, 3), .in = { SHAPE(4, 13, 13, 64), SHAPE(64), SHAPE(64), SHAPE(64), SHAPE(64), SHAPE(4, 13, 13, 64), SHAPE(1, 1, 2, 64), SHAPE(4, 13, 13, 64) }, .out = { SHAPE(4, 13, 13, 64), SHAPE(64), SHAPE(64) }, .fill = { [4] = POSITIVE }, .attrs = { .batch_norm = { 1e-5f, 0.1f, true, false, true, 1 } } },
    { IO(BATCH_NORMALIZE_GRAD, 7, 3), .in = { SHAPE(70, 1032), SHAPE(1032), SHAPE(1032), SHAPE(1032), SHAPE(1032), SHAPE(70, 1032), SHAPE(2, 6, 2, 1032) }, .out = { SHAPE(70, 1032), SHAPE(1032), SHAPE(1032) }, .fill = { [4] = POSITIVE }, .attrs = { .batch_norm = { 1e-5f, 0.1f, true, false, true, 2 } } },
    { IO(BATCH_NORMALIZE_GRAD, 7, 3), .in = { SHAPE(13, 40), SHAPE(40), SHAPE(40), SHAPE(40), SHAPE(40), SHAPE(13, 40), SHAPE(5, 5, 2, 40) }, .out = { SHAPE(13, 40), SHAPE(40), SHAPE(40) }, .fill = { [4] = POSITIVE }, .attrs = { .batch_norm = { 1e-5f, 0.1f, true, false, true, 5 } } },
    /* clang-format on */
};
#if defined(__clang__)
#pragma clang diagnostic pop
#endif
#define CASE_COUNT ((int)(sizeof cases / sizeof cases[0]))

#endif

/* op.h: the operations. One op = one row of op_list.h + one row of backend/op_kernels.h and a kernel per backend + one
 * reference and one case of tests/support. docs/add-an-op.md walks through it.
 *
 * Conventions. Tensors are dense and row-major. "rows" of a tensor are its elements divided by its last dimension.
 * Forward ops list their outputs with the ones saved for backward last. A backward op's outputs may be absent (-1)
 * where nobody wants that gradient. Ops whose row says SL_ADDS_ON_REQUEST honour attrs.accumulate: bit i set means
 * output i is added to, not overwritten (out = out + result, result rounded to f32 first unless stated). Sums run in a
 * fixed order that depends on shape alone. */
#ifndef SL_IR_OP_H
#define SL_IR_OP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ir/update_rule.h"
#include "sluice.h"

#define SL_MAX_RANK        6
#define SL_MAX_INPUTS      8
#define SL_MAX_OUTPUTS     5
#define SL_CACHE_KEYS      16      /* places of a cache whose keys lie in one block (ATTENTION_CACHED) */
#define SL_MAX_STATE_WIDTH 65536   /* of a GRU: its kernels hold a sequence's gates in their scratch memory */
#define SL_MAX_CTC_CLASSES 262144  /* CTC kernels hold a row of classes in their scratch memory */
#define SL_MAX_CTC_LABELS  65535   /* and what they know of a sequence's labels */
#define SL_MAX_HEAD_WIDTH  4096    /* attention kernels hold tiles of a head in their scratch memory */
#define SL_MAX_WINDOW      1048576 /* strides, padding and dilation of windows: sizes stay far from overflow */
#define SL_MAX_SCORE_SCALE 1e6     /* of attention's scores, and of their cap: what they multiply stays finite */

/* Rows of BATCH_NORM's statistics: what evaluation reads, and what the newest micro-batch of training left. */
enum { SL_RUNNING_MEAN, SL_RUNNING_VARIANCE, SL_BATCH_MEAN, SL_BATCH_VARIANCE, SL_STATISTICS };

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

typedef enum { SL_PHASE_FORWARD, SL_PHASE_BACKWARD, SL_PHASE_UPDATE } sl_phase;

/* The operations: op_list.h says of each what it reads and writes. */
/* clang-format off */
typedef enum {
#define SL_FORWARD_OP(op, ...)  SL_OP_##op,
#define SL_BACKWARD_OP(op, ...) SL_OP_##op,
#define SL_UPDATE_OP(op, ...)   SL_OP_##op,
#include "ir/op_list.h"
    SL_OP_COUNT
} sl_op;

/* Typed parameters of an op, in the union member that the op's row names. */
typedef struct sl_attrs {
    uint32_t accumulate; /* bit i: output i is added to. Set by differentiation */
    union {
#define SL_ATTRIBUTES(group, fields)                    struct { fields } group;
#define SL_IDENTITY(group, type, field)                 type field;
#define SL_IDENTITY_ARRAY(group, type, field, length)   type field[length];
#define SL_IDENTITY_IF_SET(group, type, field)          type field;
#define SL_FREE(group, type, field, why)                type field;
#include "ir/op_list.h"
        const struct sl_update_rule *update; /* SL_OP_UPDATE; borrowed from the optimizer */
    };
} sl_attrs;
/* clang-format on */

typedef enum {
    SL_ATTRIBUTE_bool,
    SL_ATTRIBUTE_int,
    SL_ATTRIBUTE_int32_t,
    SL_ATTRIBUTE_uint32_t,
    SL_ATTRIBUTE_int64_t,
    SL_ATTRIBUTE_float,
} sl_attribute_type;

/* One field of a union member of sl_attrs. */
typedef struct sl_attribute {
    const char *name;
    sl_attribute_type type;
    size_t offset;    /* in sl_attrs */
    int count;        /* elements; 1 unless it is an array */
    bool if_set;      /* zero is as if there were no such attribute: neither hashed nor written */
    const char *free; /* why it may be another one on resume; NULL: it belongs to a model's identity */
} sl_attribute;

typedef struct sl_attribute_list {
    const sl_attribute *rows;
    int count;
    size_t bytes; /* of the union member */
} sl_attribute_list;

/* Bytes of one element of an attribute, and its value as bits: those of the declared type, zeros above. */
size_t sl_attribute_bytes(const sl_attribute *a);
uint64_t sl_attribute_bits(const sl_attrs *attrs, const sl_attribute *a, int i);
/* Whether the attribute of this node counts and is shown: any is that does not have to be set, or is. */
bool sl_attribute_there(const sl_attrs *attrs, const sl_attribute *a);
#define SL_ATTRIBUTE_TEXT_BYTES 128
/* "500000", "true", "1,0,2": returns buf. */
const char *sl_attribute_text(const sl_attrs *attrs, const sl_attribute *a, char buf[SL_ATTRIBUTE_TEXT_BYTES]);

/* Rows of what ranks tell each other of a batch norm: of BATCH_MOMENTS mean and variance, of BATCH_NORM_SUMS two sums. */
enum { SL_NODE_FIRST, SL_NODE_SECOND, SL_NODE_ROWS };

/* Written by SL_OP_NORM_FINISH, read by SL_OP_UPDATE and, after the step, by the caller. */
typedef struct sl_norm_result {
    double norm;    /* global L2 norm before clipping, unscaled */
    float factor;   /* what every gradient element is multiplied by: 1/loss_scale times the clip factor */
    int32_t finite; /* 0: some element or the loss scale is not finite; updates of this step do nothing */
} sl_norm_result;

/* Values whose first dimension counts rows of which a run may compute fewer than the graph has room for: the first so
 * many. What an op computes of one row must not depend on the others. */
typedef enum {
    SL_ROWS_ALL,    /* not such a value */
    SL_ROWS_GIVEN,  /* rows of the inputs */
    SL_ROWS_WANTED, /* those of them, the first, whose results are asked for */
    SL_ROWS_COUNT
} sl_rows;

/* What changes from run to run of the same plan. */
typedef struct sl_run_context {
    int64_t rows[SL_ROWS_COUNT]; /* of each kind, at most the graph's; 0: as many */
    uint64_t seed;
    uint64_t step;       /* from 1 */
    uint32_t micro;      /* global micro-batch index j in the step, from 0 */
    bool training;       /* false: dropout is the identity */
    float seed_gradient; /* of the micro-batch: loss_scale / K, or by its targets; 0 where it has none */
    double clip;         /* 0: never */
    double loss_scale;   /* 1 in fp32; NaN: the step is not applied, whatever its gradient */
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

/* ---- facts of an op. The zero of each enum is "not said", which a test refuses ---- */

/* By which rate a call's duration is predicted, and which of its costs is the work that measured rates count. */
typedef enum {
    SL_CLASS_NOT_SAID,
    SL_CLASS_VECTOR,    /* bytes, at the rate of memory */
    SL_CLASS_MATRIX,    /* flops, at the rate of matrix products */
    SL_CLASS_ATTENTION, /* flops, at the fraction of that rate which attention reaches */
} sl_rate_class;

/* The type a forward op reads its float operands in once the graph is lowered to a 16-bit precision. */
typedef enum {
    SL_LOWER_NOT_SAID,
    SL_LOWER_BY_RESULT, /* the precision where the result is a tensor, f32 where it is a scalar */
    SL_LOWER_AS_INPUT,  /* the type of its first input: it adds up in f32 from any */
    SL_LOWER_PRECISION, /* the precision, though the first output is a scalar: its work is a product */
    SL_LOWER_VIEW,      /* the type of its source, f32 where the result is a scalar */
} sl_lowering;

/* How a parameter that is larger than memory.tile_bytes may be cut where a forward op reads it (ir/tile.h). */
typedef enum {
    SL_TILE_NOT_SAID,
    SL_TILE_NEVER,   /* parameters are read whole */
    SL_TILE_PRODUCT, /* as LINEAR: input 1 is a weight, cut along rows and columns, input 2 its bias */
    SL_TILE_TABLE,   /* as EMBEDDING: rows of input 1 are looked up; it is cut along its columns */
} sl_tile_rule;

/* Input whose bytes output 0 may take over. The planner does so only where that input's storage dies at this node, the
 * byte sizes are equal and output 0 is not accumulated; kernels must then tolerate out == in exactly (never a partial
 * overlap). */
typedef enum {
    SL_IN_PLACE_NOT_SAID,
    SL_IN_PLACE_NEVER,
    SL_IN_PLACE_INPUT_0,
    SL_IN_PLACE_INPUT_1,
} sl_in_place;

/* Whether an op honours attrs.accumulate. One that does not writes its gradient apart, and ADD adds it. */
typedef enum {
    SL_ADDS_NOT_SAID,
    SL_ADDS_NEVER,
    SL_ADDS_ON_REQUEST,
} sl_adds;

/* What a forward op leaves in an output beside its first. */
typedef enum {
    SL_SAVED_NOT_SAID,
    SL_SAVED_STATISTIC, /* for backward, and cheap: always computed. It has no gradient */
    SL_SAVED_VALUE,     /* a value with a gradient of its own, as LINEAR_GELU's product */
    SL_SAVED_AHEAD,     /* a gradient worked out ahead: for backward alone, not computed where nobody wants it */
    SL_SAVED_STATE,     /* kept from run to run, read and written in place: a value of kind SL_VALUE_STATE */
} sl_saved_kind;

typedef struct sl_saved_output {
    const char *name; /* "mean", "rstd" */
    sl_saved_kind kind;
    int with; /* the optional input without which a node does not have the output; such outputs come last. 0: none */
} sl_saved_output;

/* An i32 operand whose elements are places in a dimension of another operand. */
typedef struct sl_index_rule {
    bool there;   /* false: the op has none */
    int input;    /* the places */
    int table;    /* the operand they are in */
    bool last;    /* in its last dimension; false: in its first */
    bool ignores; /* attrs.cross_entropy.ignore_index is no place, and allowed */
    bool labels;  /* rows of labels, at whose ends -1 is allowed; attrs.ctc.blank is none */
} sl_index_rule;
#define SL_INDEXES(input_, table_, last_, ignores_) .index = { true, input_, table_, last_, ignores_, false }
#define SL_LABELS(input_, table_)                   .index = { true, input_, table_, true, false, true }

#define SL_ONLY_MOVES (-1.0) /* element_flops of an op that moves elements and computes nothing */
/* The three facts of an op's arity. */
#define SL_ARITY(least_inputs, most_inputs, most_outputs)                                                              \
    .min_inputs = (least_inputs), .max_inputs = (most_inputs), .outputs = (most_outputs)

typedef struct sl_op_def {
    const char *name;
    sl_phase phase;
    int min_inputs, max_inputs; /* optional inputs come last */
    int outputs;                /* at most; saved ones included. Of a forward node: sl_op_outputs */
    sl_adds adds;               /* backward ops and CAST */
    bool view;                  /* output shares input 0's storage; never computed */
    bool typed_by_output;       /* kernels are chosen by the type of output 0, not of the inputs */
    /* Regularisation that evaluation passes over: whether it is there does not make another model (identity.c). */
    bool regularises;
    bool only_evaluates; /* it has no gradient: a graph with it is not trained */
    /* The first dimension of output 0 counts ranks: a node writes its rank's part, and the plan gathers those of the others
     * before anything reads it. */
    bool gathers;
    /* Its results stay where a layer's activations are dropped and computed again: they are few, and ranks would have to meet
     * again. */
    bool kept;
    sl_in_place in_place;
    /* Output shapes and dtypes from inputs and attrs; fails naming the op and, on mismatch, both producers. Where the
     * inputs leave a shape open (RESHAPE, REDUCE_TO, MULTIPLY_REDUCE, EMBEDDING_GRAD, SPLIT_GRAD, EXPAND, gradients
     * of convolutions and averages) node->outputs[0] is already a value: its shape is checked and returned. NULL for
     * update ops. */
    sluice_status (*infer)(const struct sluice_graph *g, const struct sl_node *node, sl_shape *shapes,
                           sluice_dtype *dtypes);
    /* Appends the backward nodes of ad's current forward node (ir/autodiff.h); NULL: not differentiable. */
    sluice_status (*gradient)(struct sl_autodiff *ad);
    sl_op backward; /* the op that sl_gradient_from_input and sl_gradient_from_output make */
    sl_cost (*cost)(const struct sluice_graph *g, const struct sl_node *node);
    sl_rate_class rate;
    /* Operations per element of the largest operand, of update ops per element of the flat buffer, or SL_ONLY_MOVES;
     * 0 where `cost` counts otherwise. */
    double element_flops;
    const sl_attribute_list *attributes; /* never NULL: sl_attributes_none where there are none */
    sl_lowering lowering;                /* forward ops */
    sl_tile_rule tile;                   /* forward ops */
    sl_index_rule index;                 /* forward ops that read i32: batches are checked by it */
    /* Forward ops whose last input, where it is i32 [B,T], holds positions in documents: each 0 or one more than the
     * element before it in its row. Batches are checked for it. */
    bool positions;
    /* Forward ops that read frames [B,T,..] as input 0: the input, where it is there, whose B elements are i32, 0 to T:
     * how many frames of each sequence count. Batches are checked for it. 0: none is. */
    int lengths;
    sl_saved_output saved[SL_MAX_OUTPUTS - 1]; /* what outputs 1, 2, .. of a forward op are */
    /* Bit i: output i may be of any float type, whatever the inputs' types: parameter gradients, which have the wire
     * type or are summed in f32, and the tensor that EXPAND makes of an f32 scalar. */
    uint32_t wide_outputs;
} sl_op_def;

extern const sl_op_def sl_ops[SL_OP_COUNT];

/* Input whose bytes output 0 may take over; -1: none. */
static inline int sl_op_in_place(sl_op op)
{
    return sl_ops[op].in_place >= SL_IN_PLACE_INPUT_0 ? (int)sl_ops[op].in_place - (int)SL_IN_PLACE_INPUT_0 : -1;
}

static inline bool sl_op_accumulates(sl_op op)
{
    return sl_ops[op].adds == SL_ADDS_ON_REQUEST;
}

/* Outputs of a forward node that has so many inputs. */
static inline int sl_op_outputs(sl_op op, int inputs)
{
    int count = sl_ops[op].outputs;
    while (count > 1 && sl_ops[op].saved[count - 2].with >= inputs && sl_ops[op].saved[count - 2].with > 0) count--;
    return count;
}

/* Operands that an attention node has gradients of: qkv, or q, k and v. Positions follow them where there are any. */
static inline int sl_attention_operands(const sl_attrs *attrs)
{
    return attrs->attention.packed ? 1 : 3;
}

/* Whether output k of a forward op is there for backward alone and need not be computed without one. */
static inline bool sl_op_serves_backward(sl_op op, int k)
{
    return k > 0 && sl_ops[op].saved[k - 1].kind == SL_SAVED_AHEAD;
}

#endif

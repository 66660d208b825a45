/* graph.h: the training step as data.
 *
 * A graph is a list of nodes over a list of values. nodes[i] reads only values written by nodes[j], j < i, so list
 * order is an execution order. A model builds the forward nodes (sluice.h); sl_graph_differentiate appends the backward
 * nodes; optim/ appends the norm and update nodes. After that the graph does not change. Nothing here knows memory or
 * devices.
 *
 * Layers. A model marks contiguous runs of forward nodes as layers: the unit of staging, recomputing, updating. The
 * trainable parameters first used in a layer form the layer's flat buffer: parameter after parameter in creation order,
 * without gaps. A parameter used in more than one layer (a tied embedding) moves to a layer of its own without nodes,
 * and the frozen parameters of a layer to a layer "<name>.frozen" without nodes, so that a flat buffer is trained as a
 * whole or not at all. A parameter is used where a node reads it or a view of it (a value whose storage it is). */
#ifndef SL_IR_GRAPH_H
#define SL_IR_GRAPH_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "core/arena.h"
#include "core/shard.h"
#include "core/status.h"
#include "core/stop.h"
#include "ir/op.h"
#include "sluice.h"

typedef enum {
    SL_VALUE_INPUT,      /* filled by the caller for each micro-batch */
    SL_VALUE_PARAMETER,  /* a slice of its layer's flat parameter buffer */
    SL_VALUE_ACTIVATION, /* produced by a forward node */
    SL_VALUE_GRADIENT,   /* gradient of an activation, produced by backward nodes */
    SL_VALUE_PARAM_GRAD, /* a slice of its layer's flat gradient buffer */
    SL_VALUE_STATE,      /* what one forward node keeps from run to run; not known before the node has written it */
} sl_value_kind;

typedef struct sl_value {
    const char *name; /* owned by the graph's arena; unique among inputs and among parameters */
    sl_value_kind kind;
    sluice_dtype dtype;
    sl_shape shape;
    int producer; /* first node that writes it; -1 for inputs and parameters */
    /* Value whose bytes it uses: itself, or the source of a reshape. Roots have storage == own index. Backward nodes
     * may add to a view, which then writes the bytes of its root. */
    int storage;
    int parameter; /* PARAMETER and PARAM_GRAD: index into parameters; else -1 */
    sl_rows rows;  /* which count of a run limits its first dimension; of an output: that of its node's first input */
} sl_value;

typedef struct sl_node {
    sl_op op;
    sl_phase phase;
    int layer;      /* the layer whose forward or backward this is; update nodes: the layer they update, -1 for all */
    int forward_of; /* backward nodes: the forward node they differentiate; else -1 */
    int input_count, output_count;
    int inputs[SL_MAX_INPUTS];
    int outputs[SL_MAX_OUTPUTS]; /* values; -1 where an optional output is not wanted */
    sl_attrs attrs;
    const char *name; /* user's or made-up ("linear_3"), for messages */
} sl_node;

/* Rows of a parameter that weights files of other programs hold as a tensor of its own: the query, key and value parts
 * of one projection. */
typedef struct sl_part {
    const char *name;
    int64_t rows;
} sl_part;

#define SL_MAX_ROW_PARTS 4

typedef struct sl_parameter {
    const char *name;
    int value;             /* the PARAMETER value */
    int gradient;          /* the PARAM_GRAD value; -1 before differentiation or when frozen */
    int layer;             /* whose flat buffer holds it */
    int64_t offset, count; /* elements in that buffer */
    sluice_init init;
    bool trainable;
    bool is_norm_or_bias; /* rank < 2: what the no-decay preset selects */
    bool keeps_f32_state; /* BLOCKS8 states: blocks with its elements are f32. All but matrices of products */
    /* A tile of a larger parameter (ir/tile.h): what it was cut from, and where its first element lies in that. */
    const char *whole; /* name; NULL: not a tile, and the rest is unset */
    sl_shape whole_shape;
    int64_t row0, col0; /* vectors: row0 alone */
    /* What files may hold instead of it (of the whole), together all its rows in order; 0: nothing else. */
    sl_part parts[SL_MAX_ROW_PARTS];
    int part_count;
    bool is_adapter; /* beside weights that were trained before it was there: files need not hold it */
    bool is_fresh;   /* starts as it is initialised: what a file of weights to begin with holds of it is not read */
    /* A sparse table (ir/sparse.h): once sl_graph_compact has run, value, gradient and count are of the rows that a step
     * touches. */
    bool is_sparse;
    int64_t most_rows; /* that a step touches, as the user says; 0: as many as its batches can */
    sl_shape table;    /* of all rows; rank 0: not compacted, and the value has them */
} sl_parameter;

typedef struct sl_layer {
    const char *name;
    int first_node, node_count;         /* forward nodes; node_count 0: tied or frozen parameters only */
    int first_backward, backward_count; /* set by sl_graph_differentiate; count 0 when none */
    int first_parameter;                /* head of the layer's list in sluice_graph.layer_parameters */
    int parameter_count;
    int64_t element_count; /* of the flat buffer */
    bool trainable;        /* its parameters have gradients and state; false: all are frozen, or there are none */
    /* BLOCKS8 states: runs of blocks (of SL_CUT_ELEMENTS) that are f32, in order, apart from each other. Set by
     * sl_graph_finish; owned by the graph. */
    const sl_range *wide_blocks;
    int wide_block_runs;
} sl_layer;

/* Running statistics of one BATCH_NORM: values that a model keeps and does not train, by the names that files and
 * checkpoints have for them. They are the engine's (runtime/statistics.c); the graph says only that they are there. */
enum { SL_NAME_MEAN, SL_NAME_VARIANCE, SL_NAME_BATCHES, SL_RUNNING_NAMES };
typedef struct sl_running {
    const char *names[SL_RUNNING_NAMES]; /* "bn1.running_mean", "bn1.running_var", "bn1.num_batches_tracked" */
    int value;                           /* the node's statistics, of kind STATE */
    int64_t channels;
    float momentum;
} sl_running;

/* What token ids stand for, as it is kept beside weights (docs/formats.md). */
typedef struct sl_kept_vocabulary {
    const char *unit;       /* what a token is: "bytes", "characters"; NULL: nothing is known */
    const char *characters; /* UTF-8, in the order of ids; NULL: the unit has none */
} sl_kept_vocabulary;

struct sluice_graph {
    sl_arena arena; /* owns all arrays' contents below except the growable arrays themselves */
    sl_value *values;
    int value_count, value_capacity;
    int *inputs; /* values of kind INPUT, in order */
    int input_count, input_capacity;
    sl_node *nodes; /* forward, then backward, then update */
    int node_count, node_capacity;
    int forward_count;  /* nodes[0 .. forward_count) are forward */
    int backward_count; /* the next ones; 0 before sl_graph_differentiate */
    sl_parameter *parameters;
    int parameter_count, parameter_capacity;
    int *name_slots; /* a hash table of the names of the first named_count parameters: index + 1; 0: free */
    int name_slot_count, named_count;
    sl_layer *
        layers; /* graph order: by first forward node; the layers without nodes (tied, then frozen) come first of all */
    int layer_count, layer_capacity;
    int *layer_parameters; /* parameter indices grouped by layer, in offset order; set by sl_graph_finish */
    sl_running *running;   /* of each batch norm that was built with a name, in graph order */
    int running_count, running_capacity;
    int loss;   /* scalar value; -1 before sluice_set_loss */
    int output; /* value that evaluation and generation read (logits, prediction); -1 when none */
    /* What published weights files of this model hold beside its parameters (format/weight_names.h). Static; NULL: nothing
     * is known. */
    const struct sl_weight_names *file_names;
    /* Whether a pattern fits something else that files call the parameter, or part, of this name. NULL: nothing is known. */
    bool (*is_called)(const struct sluice_graph *g, const char *pattern, const char *name);
    const int *stop; /* a request to stop (core/stop.h), polled while the graph grows; NULL: none. Borrowed */
    sl_kept_vocabulary vocabulary; /* of the token ids it reads; borrowed strings */
    sluice_status error;           /* first error of building; builders are no-ops afterwards */
    char error_text[512];
    bool finished;                   /* sl_graph_finish ran: layers are laid out, no more building */
    sluice_dtype precision;          /* of parameters and activations; F32 before sl_graph_lower */
    sluice_dtype wire;               /* of parameter gradients */
    int64_t row_room[SL_ROWS_COUNT]; /* rows of each kind that the graph has room for; 0: it has no such values */
};

/* To be called in every loop over nodes or layers that a deep model makes long. */
static inline sluice_status sl_graph_poll(const sluice_graph *g)
{
    return sl_stop_poll(g->stop, "planning");
}

/* Makes room for `needed` elements of `each` bytes in a growable array; on failure the array is as it was. */
sluice_status sl_grow(void **array, int *capacity, int needed, size_t each, const char *what);

/* Closes building: reports the first building error, moves tied parameters to layers of their own, lays out flat
 * buffers, checks names. Idempotent. Called by sluice_engine_create and by the planner's callers. */
sluice_status sl_graph_finish(sluice_graph *g);
/* Once, after finish and before differentiation: the graph in `precision` (F32, BF16, F16), its parameter gradients in
 * `wire` (likewise). Parameters and activations take the precision; inputs, scalars, what norms, attention and
 * cross-entropy save for backward (the gradient of a weight too), and the operands of MSE stay f32; CASTs stand where
 * the two meet. F32 changes nothing but g->wire. */
sluice_status sl_graph_lower(sluice_graph *g, sluice_dtype precision, sluice_dtype wire);
/* The type a node computes in and its kernel is compiled for: that of its first 16-bit input; F32 where there is none.
 * Its other float operands are of that type or f32 (statistics, scalars, wide outputs). */
sluice_dtype sl_node_type(const sluice_graph *g, const sl_node *node);
/* Appends the backward nodes of the loss and makes a PARAM_GRAD value for every trainable parameter. The first backward
 * node is SL_OP_SEED, which writes loss_scale / K. A gradient has the type of its value, a PARAM_GRAD the wire type. A
 * parameter with several uses is summed in an f32 value and cast at the end (exact rule 2). Gradients of a value with
 * several uses are summed in the order of the backward nodes, in place where that is safe (`accumulate`). Backward
 * nodes carry the layer of their forward node and lie in reverse layer order, contiguous per layer. */
sluice_status sl_graph_differentiate(sluice_graph *g);
/* Structure: every read has an earlier writer, shapes agree with the op table, layers are contiguous, accumulate only
 * on a value already written. Runs after every pass that changes the graph. */
sluice_status sl_graph_verify(const sluice_graph *g);
/* One line a node: number, layer, op, outputs = inputs with shapes, attributes. */
void sl_graph_print(const sluice_graph *g, FILE *out);

/* ---- identity.c: which model it is. Before lowering, so that it is the same in every precision ---- */

/* SHA-256 of parameters, forward nodes, what they read, and every attribute that is not free (op_list.h). */
sluice_status sl_graph_identity(const sluice_graph *g, char sha256[65]);
/* The same as checkpoints had it at first: of the attributes only attention's numbers of heads. */
void sl_graph_identity_v1(const sluice_graph *g, char sha256[65]);
/* A line for each op and attribute that is not free, "rotary.base: 500000": what a refused checkpoint can be compared
 * by. Where nodes of the op differ, their values in order; where those are long, the first ones and a hash of all. */
void sl_graph_write_attributes(const sluice_graph *g, FILE *out);
/* What such a line would say that is not written because no node of its op has the attribute: "0" of "attention.window",
 * "false" of "rotary.fractional". NULL: lines with this key are always written, or never. */
const char *sl_attribute_unset(const char *key);

/* For passes and optim/: append a value or a node and return its index (arrays grow, names are copied; a NULL name is
 * made up). A node sets the producer of the values it is first to write and the storage of a view, and counts in its
 * phase. A failure is the negated status, with a message. Values and nodes may move: hold indices, not pointers, across
 * these calls. */
int sl_graph_add_value(sluice_graph *g, sl_value_kind kind, sluice_dtype dtype, const sl_shape *shape,
                       const char *name);
int sl_graph_add_node(sluice_graph *g, const sl_node *node);

/* For builders: appends a forward node of any op that reads `inputs` and returns its first output; a NULL name is made
 * up, NULL attrs are zeros. A building error, as of the builders, where the op refuses them. */
sluice_value sl_graph_apply(sluice_graph *g, sl_op op, const char *name, const sl_attrs *attrs, int count,
                            const sluice_value *inputs);

/* For models: the parameter's rows are `count` tensors in files of other programs; names are copied. The rows must add
 * up. A building error, as of the builders, where they do not. */
void sl_graph_set_parts(sluice_graph *g, sluice_value parameter, const sl_part *parts, int count);

/* For models: the first dimension of an input, or of what a node made of its first rows, counts rows of this kind. All of
 * one kind have the same number. A building error, as of the builders, where they do not. */
void sl_graph_limit_rows(sluice_graph *g, sluice_value value, sl_rows rows);
/* The shape of a value in a run of `rows` (sl_run_context.rows): *out, unless it is always the value's own. */
const sl_shape *sl_run_shape(const sluice_graph *g, int value, const int64_t rows[SL_ROWS_COUNT], sl_shape *out);

int sl_graph_find_input(const sluice_graph *g, const char *name);     /* value or -1 */
int sl_graph_find_parameter(const sluice_graph *g, const char *name); /* parameter or -1 */
/* Whether it is a batch norm that takes its running statistics in training, too. Known after differentiation. */
static inline bool sl_node_is_frozen_norm(const sl_node *node)
{
    return node->op == SL_OP_BATCH_NORM && node->attrs.batch_norm.frozen;
}
/* For what a node runs. */
typedef enum {
    SL_RUN_TRAINING,
    SL_RUN_AGAIN, /* recomputation in the backward */
    SL_RUN_EVALUATION,
    SL_RUN_KINDS
} sl_run_kind;
/* Which outputs such a run of the node writes, bit k for output k. Others are absent: those that the graph does not have,
 * those that serve a backward where none follows, and states, which running again must not change a second time. */
unsigned sl_node_outputs(const sluice_graph *g, const sl_node *node, sl_run_kind run);
/* Whether a running statistic has this name. */
bool sl_graph_has_running(const sluice_graph *g, const char *name);
/* After parameters were added or, with named_count 0, replaced: names them all, so that they are found at once. */
sluice_status sl_graph_name_parameters(sluice_graph *g);
/* Per value: how many operands of forward nodes it is. */
void sl_graph_count_readers(const sluice_graph *g, int *readers);
int64_t sl_graph_parameter_elements(const sluice_graph *g); /* trainable and frozen, tied once; of tables all rows */

int64_t sl_shape_elements(const sl_shape *s);
uint64_t sl_value_bytes(const sl_value *v); /* elements * dtype size; shapes were checked when the value was made */
bool sl_shape_equal(const sl_shape *a, const sl_shape *b);
/* "[12, 64, 128]"; returns buf. */
const char *sl_shape_text(const sl_shape *s, char *buf, size_t bytes);
size_t sl_dtype_bytes(sluice_dtype t);
const char *sl_dtype_name(sluice_dtype t); /* "f32", "i32" */

#endif

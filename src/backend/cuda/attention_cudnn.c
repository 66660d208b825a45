/* attention_cudnn.c: attention as graphs of cuDNN's backend API, and the plans that it makes of them.
 *
 * The library recognises attention by its graph of products, reductions and pointwise ops; the tables below are the
 * graphs that it knows. The usual one of the gradient names an f32 accumulator of dq, which blocks add to with atomics.
 * The one built here instead makes dq a product of its own, for which the library keeps ds, [heads, T, S] in 16 bits,
 * in the workspace: so a call is cut into pieces of batches and groups of heads, and attention_size.h says how.
 *
 * dk and dv of the query heads that share a key head are added in f32 and rounded once. */
#include "backend/cuda/attention_cudnn.h"

#include "backend/cuda/attention_size.h"
#include "backend/cuda/cublaslt.h"
#include "core/status.h"

#if __has_include(<cudnn_graph.h>)
#include <cudnn_graph.h>
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"

/* ---- the library ---- */

#define SL_CUDNN_FUNCTIONS(X)                                                                                          \
    X(version, cudnnGetVersion)                                                                                        \
    X(status_text, cudnnGetErrorString)                                                                                \
    X(last_error, cudnnGetLastErrorString)                                                                             \
    X(start, cudnnCreate)                                                                                              \
    X(stop, cudnnDestroy)                                                                                              \
    X(set_stream, cudnnSetStream)                                                                                      \
    X(create, cudnnBackendCreateDescriptor)                                                                            \
    X(destroy, cudnnBackendDestroyDescriptor)                                                                          \
    X(finalize, cudnnBackendFinalize)                                                                                  \
    X(set, cudnnBackendSetAttribute)                                                                                   \
    X(get, cudnnBackendGetAttribute)                                                                                   \
    X(execute, cudnnBackendExecute)

typedef struct library {
#define SL_FIELD(field, symbol) __typeof__(&symbol) field;
    SL_CUDNN_FUNCTIONS(SL_FIELD)
#undef SL_FIELD
} library;

static const struct {
    const char *name;
    size_t field;
} functions[] = {
#define SL_ROW(field, symbol) { #symbol, offsetof(library, field) },
    SL_CUDNN_FUNCTIONS(SL_ROW)
#undef SL_ROW
};

/* As the loader finds it, then where the toolkit puts it. */
static const char *const files[] = { "libcudnn.so.9", "/usr/local/cuda/lib64/libcudnn.so.9" };

#define OLDEST_VERSION 91600 /* before it, gradients whose keys are no multiple of 128 need a mask of their own */

#define MOST_DESCRIPTORS 192 /* of a plan and its graph: tensors, ops with their parameters, engines */
#define MOST_ENGINES     16  /* candidates that are looked at */

typedef struct plan {
    struct plan *next;
    sl_cudnn_shape shape;
    sl_cudnn_report report;
    cudnnBackendDescriptor_t execution; /* one of `made` */
    cudnnBackendDescriptor_t made[MOST_DESCRIPTORS];
    int made_count;
} plan;

struct sl_cudnn {
    library fn;
    cudnnHandle_t handle;               /* NULL: plans are only made, for `described` */
    cudnnBackendDescriptor_t described; /* a device that is not here; NULL: the current one */
    plan *plans;                        /* owned */
};

static bool find_functions(void *file, library *out)
{
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
        void *address = dlsym(file, functions[i].name);
        if (address == NULL) return false;
        memcpy((char *)out + functions[i].field, &address, sizeof address);
    }
    return true;
}

static bool open_library(library *out)
{
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        void *file = dlopen(files[i], RTLD_NOW | RTLD_LOCAL); /* stays open, as CUDA libraries like it */
        if (file != NULL) return find_functions(file, out) && out->version() >= OLDEST_VERSION;
    }
    return false;
}

size_t sl_cudnn_version(void)
{
    library fn;
    return open_library(&fn) ? fn.version() : 0;
}

sl_cudnn *sl_cudnn_open(void)
{
    sl_cudnn *c = sl_alloc(sizeof *c, "cuDNN");
    if (c == NULL) return NULL;
    if (open_library(&c->fn) && c->fn.start(&c->handle) == CUDNN_STATUS_SUCCESS) return c;
    sl_free(c);
    return NULL;
}

static void free_plan(const library *fn, plan *p)
{
    while (p->made_count > 0) (void)fn->destroy(p->made[--p->made_count]);
    sl_free(p);
}

void sl_cudnn_close(sl_cudnn *c)
{
    if (c == NULL) return;
    while (c->plans != NULL) {
        plan *next = c->plans->next;
        free_plan(&c->fn, c->plans);
        c->plans = next;
    }
    if (c->handle != NULL) (void)c->fn.stop(c->handle);
    sl_free(c);
}

/* ---- graphs ---- */

/* What a tensor's dimensions and strides are. */
typedef enum layout {
    QUERY,    /* [b, h, T, D] as q lies in memory */
    KEY,      /* [b, g, S, D] as k and v lie */
    KEY_T,    /* [b, g, D, S], the same memory */
    OUT,      /* [b, h, T, D] as out lies */
    PRODUCT,  /* [b, h, T, D], dense */
    HEAD_KEY, /* [b, h, S, D], dense: of every query head */
    SCORE,    /* [b, h, T, S], dense */
    SCORE_T,  /* [b, h, S, T], the same memory */
    ROW,      /* [b, h, T, 1], dense */
    LSE_ROW,  /* [b, h, T, 1] as lse lies */
    ONE,      /* a number */
} layout;

typedef enum element { IO, F32, I32, BIT } element; /* IO: of the operands */

/* Tensors, their uid being their place here plus one. Those before MEMORY_END are in memory, those before VALUE_END
 * numbers on the host; the rest only exist inside the graph. */
typedef enum tensor {
    Q,
    K, /* as its transpose, which the library wants */
    V,
    V_T,
    O,
    DO,
    DQ,
    DK,
    DV,
    LSE,
    DELTA,
    MEMORY_END,
    SCALE = MEMORY_END,
    HIDDEN,
    UNIT,
    VALUE_END,
    S = VALUE_END,
    SCALED,
    SHIFTED,
    ROWS,
    COLUMNS,
    SEEN,
    MASKED, /* where nothing is masked: what would be */
    TOP,
    EXP,
    SUM,
    LOG,
    P,
    P_T,
    DOT,
    DOT_SUM,
    DP,
    DP_CENTRED,
    DS_UNSCALED,
    DS,
    DS_T,
    K_PLAIN,
    DV_HEADS,
    DK_HEADS,
    TENSORS,
    NONE = TENSORS
} tensor;

static const struct {
    uint8_t layout, element;
} tensors[TENSORS] = {
    [Q] = { QUERY, IO },
    [K] = { KEY_T, IO },
    [V] = { KEY, IO },
    [V_T] = { KEY_T, IO },
    [O] = { OUT, IO },
    [DO] = { OUT, IO },
    [DQ] = { QUERY, IO },
    [DK] = { KEY, IO },
    [DV] = { KEY, IO },
    [LSE] = { LSE_ROW, F32 },
    [DELTA] = { ROW, F32 },
    [SCALE] = { ONE, F32 },
    [HIDDEN] = { ONE, F32 },
    [UNIT] = { ONE, F32 },
    [S] = { SCORE, F32 },
    [SCALED] = { SCORE, F32 },
    [SHIFTED] = { SCORE, F32 },
    [ROWS] = { SCORE, I32 },
    [COLUMNS] = { SCORE, I32 },
    [SEEN] = { SCORE, BIT },
    [MASKED] = { SCORE, F32 },
    [TOP] = { ROW, F32 },
    [EXP] = { SCORE, F32 },
    [SUM] = { ROW, F32 },
    [LOG] = { ROW, F32 },
    [P] = { SCORE, IO },
    [P_T] = { SCORE_T, IO },
    [DOT] = { PRODUCT, F32 },
    [DOT_SUM] = { ROW, F32 },
    [DP] = { SCORE, F32 },
    [DP_CENTRED] = { SCORE, F32 },
    [DS_UNSCALED] = { SCORE, F32 },
    [DS] = { SCORE, F32 },
    [DS_T] = { SCORE_T, IO },
    [K_PLAIN] = { KEY, IO },
    [DV_HEADS] = { HEAD_KEY, F32 },
    [DK_HEADS] = { HEAD_KEY, F32 },
};

typedef enum kind { MATMUL, POINTWISE, INDEX, COMPARE, REDUCE, RESHAPE } kind;
typedef enum when { ALWAYS, CAUSAL, GROUPED, UNGROUPED } when;

/* y = op(x, b, t); mode: of the pointwise op or the reduction, the axis of an index. */
typedef struct step {
    uint8_t when, kind;
    int mode;
    uint8_t x, b, t, y;
} step;

static const step forward_steps[] = {
    { ALWAYS, MATMUL, 0, Q, K, NONE, S },
    { ALWAYS, POINTWISE, CUDNN_POINTWISE_MUL, S, SCALE, NONE, SCALED },
    { CAUSAL, INDEX, 2, SCALED, NONE, NONE, ROWS },
    { CAUSAL, INDEX, 3, SCALED, NONE, NONE, COLUMNS },
    { CAUSAL, COMPARE, CUDNN_POINTWISE_CMP_GE, ROWS, COLUMNS, NONE, SEEN },
    { CAUSAL, POINTWISE, CUDNN_POINTWISE_BINARY_SELECT, SCALED, HIDDEN, SEEN, MASKED },
    { ALWAYS, REDUCE, CUDNN_REDUCE_TENSOR_MAX, MASKED, NONE, NONE, TOP },
    { ALWAYS, POINTWISE, CUDNN_POINTWISE_SUB, MASKED, TOP, NONE, SHIFTED },
    { ALWAYS, POINTWISE, CUDNN_POINTWISE_EXP, SHIFTED, NONE, NONE, EXP },
    { ALWAYS, REDUCE, CUDNN_REDUCE_TENSOR_ADD, EXP, NONE, NONE, SUM },
    { ALWAYS, POINTWISE, CUDNN_POINTWISE_LOG, SUM, NONE, NONE, LOG },
    { ALWAYS, POINTWISE, CUDNN_POINTWISE_ADD, TOP, LOG, NONE, LSE },
    { ALWAYS, POINTWISE, CUDNN_POINTWISE_DIV, EXP, SUM, NONE, P },
    { ALWAYS, MATMUL, 0, P, V, NONE, O },
};

static const step backward_steps[] = {
    { ALWAYS, POINTWISE, CUDNN_POINTWISE_MUL, DO, O, NONE, DOT },
    { ALWAYS, REDUCE, CUDNN_REDUCE_TENSOR_ADD, DOT, NONE, NONE, DOT_SUM },
    { ALWAYS, POINTWISE, CUDNN_POINTWISE_MUL, DOT_SUM, UNIT, NONE, DELTA },
    /* p and dv */
    { ALWAYS, MATMUL, 0, Q, K, NONE, S },
    { ALWAYS, POINTWISE, CUDNN_POINTWISE_MUL, S, SCALE, NONE, SCALED },
    { ALWAYS, POINTWISE, CUDNN_POINTWISE_SUB, SCALED, LSE, NONE, SHIFTED },
    { CAUSAL, INDEX, 2, SHIFTED, NONE, NONE, ROWS },
    { CAUSAL, INDEX, 3, SHIFTED, NONE, NONE, COLUMNS },
    { CAUSAL, COMPARE, CUDNN_POINTWISE_CMP_GE, ROWS, COLUMNS, NONE, SEEN },
    { CAUSAL, POINTWISE, CUDNN_POINTWISE_BINARY_SELECT, SHIFTED, HIDDEN, SEEN, MASKED },
    { ALWAYS, POINTWISE, CUDNN_POINTWISE_EXP, MASKED, NONE, NONE, EXP },
    { ALWAYS, RESHAPE, 0, EXP, NONE, NONE, P_T },
    { UNGROUPED, MATMUL, 0, P_T, DO, NONE, DV },
    { GROUPED, MATMUL, 0, P_T, DO, NONE, DV_HEADS },
    { GROUPED, REDUCE, CUDNN_REDUCE_TENSOR_ADD, DV_HEADS, NONE, NONE, DV },
    /* ds and dk */
    { ALWAYS, MATMUL, 0, DO, V_T, NONE, DP },
    { ALWAYS, POINTWISE, CUDNN_POINTWISE_SUB, DP, DELTA, NONE, DP_CENTRED },
    { ALWAYS, POINTWISE, CUDNN_POINTWISE_MUL, DP_CENTRED, EXP, NONE, DS_UNSCALED },
    { ALWAYS, POINTWISE, CUDNN_POINTWISE_MUL, DS_UNSCALED, SCALE, NONE, DS },
    { ALWAYS, RESHAPE, 0, DS, NONE, NONE, DS_T },
    { UNGROUPED, MATMUL, 0, DS_T, Q, NONE, DK },
    { GROUPED, MATMUL, 0, DS_T, Q, NONE, DK_HEADS },
    { GROUPED, REDUCE, CUDNN_REDUCE_TENSOR_ADD, DK_HEADS, NONE, NONE, DK },
    /* dq */
    { ALWAYS, RESHAPE, 0, K, NONE, NONE, K_PLAIN },
    { ALWAYS, MATMUL, 0, DS, K_PLAIN, NONE, DQ },
};

/* ---- from a shape to a plan ---- */

/* A plan in the making. After the first failure nothing more is asked, and the report says what failed. */
typedef struct builder {
    const sl_cudnn *c;
    const sl_cudnn_shape *shape;
    plan *to;
    bool failed;
    cudnnBackendDescriptor_t tensors[TENSORS];
    cudnnBackendDescriptor_t steps[sizeof backward_steps / sizeof backward_steps[0]];
    int step_count;
} builder;

static void note_trouble(builder *b, const char *what, int index, cudnnStatus_t status)
{
    char last[384] = "";
    if (b->failed) return;
    b->failed = true;
    b->c->fn.last_error(last, sizeof last);
    snprintf(b->to->report.text, sizeof b->to->report.text, "%s %d: %s: %s", what, index, b->c->fn.status_text(status),
             last);
}

static cudnnBackendDescriptor_t make(builder *b, cudnnBackendDescriptorType_t type)
{
    cudnnBackendDescriptor_t out = NULL;
    if (b->failed) return NULL;
    cudnnStatus_t status =
        b->to->made_count < MOST_DESCRIPTORS ? b->c->fn.create(type, &out) : CUDNN_STATUS_INTERNAL_ERROR;
    if (status != CUDNN_STATUS_SUCCESS) {
        note_trouble(b, "descriptor of type", (int)type, status);
        return NULL;
    }
    b->to->made[b->to->made_count++] = out;
    return out;
}

static void set(builder *b, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type, int64_t count, const void *value)
{
    if (b->failed) return;
    cudnnStatus_t status = b->c->fn.set(d, name, type, count, value);
    if (status != CUDNN_STATUS_SUCCESS) note_trouble(b, "attribute", (int)name, status);
}

static void set_part(builder *b, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                     cudnnBackendDescriptor_t part)
{
    set(b, d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &part);
}

static void finalize(builder *b, cudnnBackendDescriptor_t d, const char *what, int index)
{
    if (b->failed) return;
    cudnnStatus_t status = b->c->fn.finalize(d);
    if (status != CUDNN_STATUS_SUCCESS) note_trouble(b, what, index, status);
}

/* Dimensions and strides. */
static void lay_out(const sl_cudnn_shape *s, layout l, int64_t dim[4], int64_t stride[4])
{
    const int64_t b = s->batches, h = s->heads, g = s->key_heads, t = s->queries, n = s->keys, d = s->width;
    const int64_t out_row = s->all_heads * d, both = out_row + 2 * s->all_key_heads * d;
    const int64_t query_row = s->packed ? both : out_row, key_row = s->packed ? both : s->all_key_heads * d;
    const int64_t rows[][8] = {
        [QUERY] = { b, h, t, d, t * query_row, d, query_row, 1 },
        [KEY] = { b, g, n, d, n * key_row, d, key_row, 1 },
        [KEY_T] = { b, g, d, n, n * key_row, d, 1, key_row },
        [OUT] = { b, h, t, d, t * out_row, d, out_row, 1 },
        [PRODUCT] = { b, h, t, d, h * t * d, t * d, d, 1 },
        [HEAD_KEY] = { b, h, n, d, h * n * d, n * d, d, 1 },
        [SCORE] = { b, h, t, n, h * t * n, t * n, n, 1 },
        [SCORE_T] = { b, h, n, t, h * t * n, t * n, 1, n },
        [ROW] = { b, h, t, 1, h * t, t, 1, 1 },
        [LSE_ROW] = { b, h, t, 1, s->all_heads * t, t, 1, 1 },
        [ONE] = { 1, 1, 1, 1, 1, 1, 1, 1 },
    };
    memcpy(dim, rows[l], 4 * sizeof *dim);
    memcpy(stride, rows[l] + 4, 4 * sizeof *stride);
}

static cudnnDataType_t data_type(const sl_cudnn_shape *s, element e)
{
    const cudnnDataType_t io = s->form == SL_FORM_BF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF;
    const cudnnDataType_t types[] = {
        [IO] = io, [F32] = CUDNN_DATA_FLOAT, [I32] = CUDNN_DATA_INT32, [BIT] = CUDNN_DATA_BOOLEAN
    };
    return types[e];
}

/* The tensor's descriptor, made when it is first asked for. */
static cudnnBackendDescriptor_t tensor_of(builder *b, int which)
{
    if (which == MASKED && !b->shape->causal) which = b->shape->backward ? SHIFTED : SCALED;
    if (b->tensors[which] != NULL) return b->tensors[which];
    int64_t dim[4], stride[4], uid = which + 1, alignment = 16;
    bool is_virtual = which >= VALUE_END, by_value = which >= MEMORY_END && which < VALUE_END;
    cudnnDataType_t type = data_type(b->shape, (element)tensors[which].element);
    lay_out(b->shape, (layout)tensors[which].layout, dim, stride);
    cudnnBackendDescriptor_t d = make(b, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    set(b, d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &uid);
    set(b, d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    set(b, d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dim);
    set(b, d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, stride);
    set(b, d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
    set(b, d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
    set(b, d, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &by_value);
    finalize(b, d, "tensor", which);
    return b->tensors[which] = d;
}

static cudnnBackendDescriptor_t add_matmul(builder *b, const step *s, int index)
{
    cudnnDataType_t type = CUDNN_DATA_FLOAT;
    cudnnBackendDescriptor_t how = make(b, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    set(b, how, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    finalize(b, how, "matmul of step", index);
    cudnnBackendDescriptor_t d = make(b, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    set_part(b, d, CUDNN_ATTR_OPERATION_MATMUL_ADESC, tensor_of(b, s->x));
    set_part(b, d, CUDNN_ATTR_OPERATION_MATMUL_BDESC, tensor_of(b, s->b));
    set_part(b, d, CUDNN_ATTR_OPERATION_MATMUL_CDESC, tensor_of(b, s->y));
    set_part(b, d, CUDNN_ATTR_OPERATION_MATMUL_DESC, how);
    return d;
}

static cudnnBackendDescriptor_t add_reduction(builder *b, const step *s, int index)
{
    cudnnDataType_t type = CUDNN_DATA_FLOAT;
    cudnnReduceTensorOp_t mode = (cudnnReduceTensorOp_t)s->mode;
    cudnnBackendDescriptor_t how = make(b, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    set(b, how, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    set(b, how, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &mode);
    finalize(b, how, "reduction of step", index);
    cudnnBackendDescriptor_t d = make(b, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    set_part(b, d, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, tensor_of(b, s->x));
    set_part(b, d, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, tensor_of(b, s->y));
    set_part(b, d, CUDNN_ATTR_OPERATION_REDUCTION_DESC, how);
    return d;
}

static cudnnBackendDescriptor_t add_reshape(builder *b, const step *s, int index)
{
    (void)index;
    cudnnBackendDescriptor_t d = make(b, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    set_part(b, d, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, tensor_of(b, s->x));
    set_part(b, d, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, tensor_of(b, s->y));
    return d;
}

/* Also indices and comparisons, whose arithmetic is of other types. */
static cudnnBackendDescriptor_t add_pointwise(builder *b, const step *s, int index)
{
    cudnnDataType_t type = s->kind == COMPARE ? CUDNN_DATA_BOOLEAN : CUDNN_DATA_FLOAT;
    cudnnPointwiseMode_t mode = s->kind == INDEX ? CUDNN_POINTWISE_GEN_INDEX : (cudnnPointwiseMode_t)s->mode;
    int64_t axis = s->mode;
    cudnnBackendDescriptor_t how = make(b, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    set(b, how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    set(b, how, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &type);
    if (s->kind == INDEX) set(b, how, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &axis);
    finalize(b, how, "pointwise of step", index);
    cudnnBackendDescriptor_t d = make(b, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set_part(b, d, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
    set_part(b, d, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, tensor_of(b, s->x));
    if (s->b != NONE) set_part(b, d, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, tensor_of(b, s->b));
    if (s->t != NONE) set_part(b, d, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, tensor_of(b, s->t));
    set_part(b, d, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, tensor_of(b, s->y));
    return d;
}

static cudnnBackendDescriptor_t (*const adders[])(builder *, const step *, int) = {
    [MATMUL] = add_matmul,     [POINTWISE] = add_pointwise, [INDEX] = add_pointwise,
    [COMPARE] = add_pointwise, [REDUCE] = add_reduction,    [RESHAPE] = add_reshape,
};

static bool wanted(const sl_cudnn_shape *s, when w)
{
    const bool grouped = s->heads != s->key_heads;
    const bool is[] = { [ALWAYS] = true, [CAUSAL] = s->causal, [GROUPED] = grouped, [UNGROUPED] = !grouped };
    return is[w];
}

static cudnnBackendDescriptor_t build_graph(builder *b)
{
    const step *steps = b->shape->backward ? backward_steps : forward_steps;
    const int count =
        b->shape->backward ? (int)(sizeof backward_steps / sizeof *steps) : (int)(sizeof forward_steps / sizeof *steps);
    for (int i = 0; i < count; i++) {
        if (!wanted(b->shape, (when)steps[i].when)) continue;
        cudnnBackendDescriptor_t d = adders[steps[i].kind](b, &steps[i], i);
        finalize(b, d, "step", i);
        b->steps[b->step_count++] = d;
    }
    cudnnBackendDescriptor_t graph = make(b, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    set(b, graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, b->step_count, b->steps);
    if (b->c->handle != NULL) set(b, graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &b->c->handle);
    finalize(b, graph, "graph of steps", b->step_count);
    return graph;
}

/* Engines in the order in which the library would take them, its analytical choice first. Returns how many. */
static int64_t ask_engines(builder *b, cudnnBackendDescriptor_t graph, cudnnBackendDescriptor_t out[MOST_ENGINES])
{
    cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
    int64_t count = 0;
    cudnnBackendDescriptor_t d = make(b, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    set_part(b, d, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    set(b, d, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    if (b->c->described != NULL) set_part(b, d, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, b->c->described);
    finalize(b, d, "choice of engines", 0);
    for (int i = 0; i < MOST_ENGINES; i++) out[i] = make(b, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    if (b->failed) return 0;
    cudnnStatus_t status =
        b->c->fn.get(d, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, MOST_ENGINES, &count, out);
    if (status != CUDNN_STATUS_SUCCESS || count == 0) note_trouble(b, "engines, of them", (int)count, status);
    return b->failed ? 0 : count < MOST_ENGINES ? count : MOST_ENGINES;
}

/* The engine's number and notes; false where it is non-deterministic, or does not say. Version 9.19 says nothing of the
 * atomics in its gradient: the graph is what avoids them, and this a second lock. */
static bool is_exact(builder *b, cudnnBackendDescriptor_t config, sl_cudnn_report *report)
{
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    int64_t count = 0, got = 0;
    cudnnBackendDescriptor_t engine = make(b, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    const library *fn = &b->c->fn;
    if (b->failed ||
        fn->get(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &got, &engine) !=
            CUDNN_STATUS_SUCCESS ||
        fn->get(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &got, &report->engine) !=
            CUDNN_STATUS_SUCCESS ||
        fn->get(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT,
                &count, notes) != CUDNN_STATUS_SUCCESS)
        return false;
    size_t used = strlen(report->text);
    for (int64_t i = 0; i < count && used < sizeof report->text; i++)
        used += (size_t)snprintf(report->text + used, sizeof report->text - used, "%s%d", i == 0 ? " notes " : ",",
                                 (int)notes[i]);
    for (int64_t i = 0; i < count; i++)
        if (notes[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) return false;
    return true;
}

/* Makes the configuration's plan; true where it can be had and its workspace fits. */
static bool try_engine(builder *b, cudnnBackendDescriptor_t config)
{
    sl_cudnn_report *report = &b->to->report;
    const sl_cudnn_shape *s = b->shape;
    const uint64_t room =
        sl_cudnn_plan_room(s->backward, s->batches, s->heads, s->key_heads, s->queries, s->keys, s->width);
    bool exact = is_exact(b, config, report);
    int64_t bytes = 0, got = 0;
    cudnnStatus_t status = CUDNN_STATUS_NOT_SUPPORTED;
    if (exact) {
        cudnnBackendDescriptor_t d = make(b, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
        set_part(b, d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
        if (b->c->handle != NULL) set(b, d, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &b->c->handle);
        if (b->c->described != NULL) set_part(b, d, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, b->c->described);
        if (b->failed) return false;
        b->to->execution = d;
        status = b->c->fn.finalize(d);
    }
    if (status == CUDNN_STATUS_SUCCESS)
        status =
            b->c->fn.get(b->to->execution, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &got, &bytes);
    report->workspace = (uint64_t)bytes;
    char last[256] = "";
    if (exact && status != CUDNN_STATUS_SUCCESS) b->c->fn.last_error(last, sizeof last);
    const size_t used = strlen(report->text);
    snprintf(report->text + used, sizeof report->text - used, "; engine %lld: %s, workspace %lld of %llu %s",
             (long long)report->engine, !exact ? "not deterministic" : b->c->fn.status_text(status), (long long)bytes,
             (unsigned long long)room, last);
    return status == CUDNN_STATUS_SUCCESS && (uint64_t)bytes <= room;
}

static void build_plan(const sl_cudnn *c, plan *p)
{
    builder b = { .c = c, .shape = &p->shape, .to = p };
    cudnnBackendDescriptor_t engines[MOST_ENGINES];
    cudnnBackendDescriptor_t graph = build_graph(&b);
    const int64_t count = ask_engines(&b, graph, engines);
    for (int64_t i = 0; i < count && !p->report.found; i++) p->report.found = try_engine(&b, engines[i]);
}

static sluice_status plan_of(sl_cudnn *c, const sl_cudnn_shape *shape, plan **out)
{
    for (plan *p = c->plans; p != NULL; p = p->next)
        if (memcmp(&p->shape, shape, sizeof *shape) == 0) {
            *out = p;
            return SLUICE_OK;
        }
    plan *p = sl_alloc(sizeof *p, "cuDNN plan");
    if (p == NULL) return SLUICE_ERR_NO_MEMORY;
    p->shape = *shape;
    build_plan(c, p);
    p->next = c->plans;
    c->plans = p;
    *out = p;
    return SLUICE_OK;
}

sluice_status sl_cudnn_prepare(sl_cudnn *c, const sl_cudnn_shape *shape, sl_cudnn_report *out)
{
    plan *p;
    SL_TRY(plan_of(c, shape, &p));
    *out = p->report;
    return SLUICE_OK;
}

/* ---- calls ---- */

/* The operands of a call: where each tensor begins; NULL: not of this graph. */
typedef struct operands {
    char *data[MEMORY_END];
} operands;

/* q, k, v or their gradients: one tensor when packed, otherwise three. */
static void bind_three(const sl_cudnn_shape *s, const sl_cuda_tensor *t, char *out[3])
{
    const int64_t bytes = 2, query = s->all_heads * s->width * bytes, key = s->all_key_heads * s->width * bytes;
    const int64_t first[3] = { 0, query, query + key };
    for (int i = 0; i < 3; i++) {
        char *data = t[s->packed ? 0 : i].data;
        out[i] = data == NULL || !s->packed ? data : data + first[i];
    }
}

static void bind(const sl_cudnn_shape *s, const sl_cuda_args *a, operands *out)
{
    char *in[3], *gradient[3];
    bind_three(s, a->in, in);
    out->data[Q] = in[0];
    out->data[K] = in[1];
    out->data[s->backward ? V_T : V] = in[2];
    const sl_cuda_tensor *rest = s->backward ? a->in + (s->packed ? 1 : 3) : a->out; /* out, lse, and dout */
    out->data[O] = rest[0].data;
    out->data[LSE] = rest[1].data;
    if (!s->backward) return;
    out->data[DO] = rest[2].data;
    bind_three(s, a->out, gradient);
    out->data[DQ] = gradient[0];
    out->data[DK] = gradient[1];
    out->data[DV] = gradient[2];
    out->data[DELTA] = a->workspace;
}

/* All that the graph needs is there, at multiples of 16. */
static bool are_bound(const sl_cudnn_shape *s, const operands *o)
{
    static const uint8_t forward[] = { Q, K, V, O, LSE }, backward[] = { Q, K, V_T, O, DO, DQ, DK, DV, LSE, DELTA };
    const uint8_t *needed = s->backward ? backward : forward;
    const size_t count = s->backward ? sizeof backward : sizeof forward;
    for (size_t i = 0; i < count; i++)
        if (o->data[needed[i]] == NULL || (uintptr_t)o->data[needed[i]] % 16 != 0) return false;
    return true;
}

/* How far a piece's tensor lies from the call's. delta is used again by every piece. */
static int64_t piece_at(const sl_cudnn_shape *s, int which, int64_t batch, int64_t key_head)
{
    int64_t dim[4], stride[4];
    const int l = tensors[which].layout;
    if (which == DELTA) return 0;
    lay_out(s, (layout)l, dim, stride);
    const int64_t head = l == KEY || l == KEY_T ? key_head : key_head * (s->heads / s->key_heads);
    return (batch * stride[0] + head * stride[1]) * (tensors[which].element == IO ? 2 : 4);
}

/* One piece, which begins at a batch and a key head. */
static cudnnStatus_t run_piece(const sl_cudnn *c, const plan *p, const operands *o, const sl_cuda_args *a,
                               int64_t batch, int64_t key_head)
{
    const sl_cudnn_shape *s = &p->shape;
    float values[] = { a->attrs->attention.scale, -INFINITY, 1.0f };
    int64_t uids[VALUE_END], count = 0;
    void *data[VALUE_END];
    char *workspace = a->workspace;
    if (s->backward) workspace += sl_cudnn_delta_bytes(s->batches, s->heads, s->queries);
    for (int i = 0; i < VALUE_END; i++) {
        const bool used =
            i >= MEMORY_END ? (i != HIDDEN || s->causal) && (i != UNIT || s->backward) : o->data[i] != NULL;
        if (!used) continue;
        uids[count] = i + 1;
        data[count++] =
            i >= MEMORY_END ? (void *)&values[i - MEMORY_END] : o->data[i] + piece_at(s, i, batch, key_head);
    }
    cudnnBackendDescriptor_t pack;
    cudnnStatus_t status = c->fn.create(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack);
    if (status != CUDNN_STATUS_SUCCESS) return status;
    status = c->fn.set(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, uids);
    if (status == CUDNN_STATUS_SUCCESS)
        status = c->fn.set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count, data);
    if (status == CUDNN_STATUS_SUCCESS)
        status = c->fn.set(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
    if (status == CUDNN_STATUS_SUCCESS) status = c->fn.finalize(pack);
    if (status == CUDNN_STATUS_SUCCESS) status = c->fn.execute(c->handle, p->execution, pack);
    (void)c->fn.destroy(pack);
    return status;
}

static sluice_status run_pieces(const sl_cudnn *c, const plan *p, const operands *o, const sl_cuda_args *a)
{
    const sl_cudnn_shape *s = &p->shape;
    const int64_t batches = a->in[0].shape->dim[0];
    cudnnStatus_t status = c->fn.set_stream(c->handle, (cudaStream_t)a->stream);
    for (int64_t b = 0; b < batches; b += s->batches)
        for (int64_t g = 0; g < s->all_key_heads && status == CUDNN_STATUS_SUCCESS; g += s->key_heads)
            status = run_piece(c, p, o, a, b, g);
    if (status == CUDNN_STATUS_SUCCESS) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_FAILED, "%s: cuDNN attention: %s", a->name != NULL ? a->name : "?",
                   c->fn.status_text(status));
}

/* The shape of a call's pieces; false where the library is not asked. */
static bool describe_call(sl_op op, const sl_cuda_args *a, sl_cudnn_shape *out)
{
    const bool packed = a->attrs->attention.packed;
    const int64_t *q = a->in[0].shape->dim, *k = a->in[packed ? 0 : 1].shape->dim;
    memset(out, 0, sizeof *out);
    out->form = (int32_t)sl_cuda_type(op, a);
    out->backward = op == SL_OP_ATTENTION_GRAD;
    out->causal = a->attrs->attention.causal;
    out->packed = packed;
    out->queries = q[1];
    out->keys = k[1];
    out->width = a->attrs->attention.head_width;
    out->all_heads = a->attrs->attention.heads;
    out->all_key_heads = a->attrs->attention.kv_heads;
    if (out->form == SL_FORM_F32 || out->width % 8 != 0 || out->width > SL_CUDNN_WIDTH) return false;
    if (q[0] == 0 || q[1] == 0 || k[1] == 0 || out->width == 0 || out->all_key_heads == 0) return false;
    sl_cudnn_cut cut = { q[0], out->all_key_heads };
    if (out->backward) cut = sl_cudnn_cut_of(q[0], out->all_heads, out->all_key_heads, q[1], k[1], out->width);
    out->batches = cut.batches;
    out->key_heads = cut.key_heads;
    out->heads = cut.key_heads * (out->all_heads / out->all_key_heads);
    return cut.key_heads != 0;
}

sluice_status sl_cuda_cudnn_attention(sl_op op, const sl_cuda_args *a, bool *served)
{
    sl_cudnn_shape shape;
    operands o = { { NULL } };
    plan *p;
    sl_cudnn *c = a->libraries != NULL ? a->libraries->cudnn : NULL;
    *served = false;
    if (c == NULL || !describe_call(op, a, &shape)) return SLUICE_OK;
    bind(&shape, a, &o);
    if (!are_bound(&shape, &o) || a->workspace_bytes < sl_cudnn_workspace(op, a)) return SLUICE_OK;
    SL_TRY(plan_of(c, &shape, &p));
    if (!p->report.found) return SLUICE_OK;
    *served = true;
    return run_pieces(c, p, &o, a);
}

#else /* built without cuDNN's headers */

size_t sl_cudnn_version(void)
{
    return 0;
}

sl_cudnn *sl_cudnn_open(void)
{
    return NULL;
}

void sl_cudnn_close(sl_cudnn *c)
{
    (void)c;
}

sluice_status sl_cudnn_prepare(sl_cudnn *c, const sl_cudnn_shape *shape, sl_cudnn_report *out)
{
    (void)c;
    (void)shape;
    *out = (sl_cudnn_report){ 0 };
    return SLUICE_OK;
}

sluice_status sl_cuda_cudnn_attention(sl_op op, const sl_cuda_args *a, bool *served)
{
    (void)op;
    (void)a;
    *served = false;
    return SLUICE_OK;
}
#endif

/* mock_cudnn.c: as much of cuDNN's graph interface as cudnn_conv.c uses, in ordinary memory.
 * An object remembers what was set; a convolution is one loop over all products, by the sizes and strides that its
 * tensors were given, in bf16. Each engine that the heuristic names before the good one is not to be taken, for one
 * reason. */
#include "support/mock_cudnn.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/cudnn_api.h"
#include "core/half.h"

#define EXPORTED __attribute__((visibility("default")))

enum { MOST_SET = 16, MOST_VALUES = 4 };

/* A tensor of a graph: [n, c, h, w]. */
typedef struct mock_tensor {
    int64_t id, sizes[4], strides[4];
} mock_tensor;

/* A graph of one convolution, as a plan keeps it. */
typedef struct mock_graph {
    int kind;
    float beta;
    mock_tensor x, w, y;
    int64_t strides[2], before[2], dilations[2];
} mock_graph;

typedef struct object {
    int kind, finished;
    int engine;                  /* of configurations, engines and plans */
    const struct object *source; /* of configurations: the heuristic */
    mock_graph graph;            /* of plans */
    int count;
    struct {
        int name;
        int64_t values[MOST_VALUES];
    } set[MOST_SET];
} object;

static const struct {
    int note, behavior; /* -1: none */
    int64_t workspace;
    bool fails;
} engines[] = {
    { 4, -1, 0, false },                       /* not the same bits each time */
    { 2, -1, 0, false },                       /* rounds sums on the way */
    { 5, -1, 0, false },                       /* by another formula */
    { 0, 0, 0, false },                        /* compiled at run time */
    { 0, -1, ((int64_t)32 << 20) + 1, false }, /* needs a byte more than there is */
    { 0, -1, 0, true },                        /* has no plan after all */
    [MOCK_TF32_ENGINE] = { 1, -1, 0, false },  /* rounds its operands */
    [MOCK_GOOD_ENGINE] = { 0, -1, (int64_t)32 << 20, false },
    { 9, -1, 0, false },
};
enum { ENGINES = sizeof engines / sizeof engines[0] };

static mock_cudnn_state state;

EXPORTED mock_cudnn_state *mock_cudnn(void)
{
    return &state;
}

/* ---- the handle ---- */

EXPORTED size_t cudnnGetVersion(void)
{
    return 91900;
}

EXPORTED const char *cudnnGetErrorString(int status)
{
    return status == 4000 ? "CUDNN_STATUS_INTERNAL_ERROR" : "CUDNN_STATUS_SOMETHING_ELSE";
}

EXPORTED int cudnnCreate(void **handle)
{
    *handle = &state;
    state.handles++;
    return 0;
}

EXPORTED int cudnnDestroy(void *handle)
{
    state.handles -= handle == &state;
    return 0;
}

EXPORTED int cudnnSetStream(void *handle, void *stream)
{
    if (handle != &state) return 2000;
    state.stream = stream;
    return 0;
}

/* ---- objects ---- */

EXPORTED int cudnnBackendCreateDescriptor(int kind, void **out)
{
    object *o = calloc(1, sizeof *o);
    if (o == NULL) return 4003;
    o->kind = kind;
    *out = o;
    state.objects++;
    state.packs += kind == SL_CUDNN_PACK;
    return 0;
}

EXPORTED int cudnnBackendDestroyDescriptor(void *o)
{
    free(o);
    state.objects--;
    return 0;
}

static size_t bytes_of(int type)
{
    const bool whole = type == SL_CUDNN_IS_INT64 || type == SL_CUDNN_IS_POINTER || type == SL_CUDNN_IS_OBJECT ||
                       type == SL_CUDNN_IS_HANDLE;
    return whole ? 8 : 4;
}

EXPORTED int cudnnBackendSetAttribute(void *to, int name, int type, int64_t count, const void *values)
{
    object *o = to;
    if (o->finished || count > MOST_VALUES || o->count == MOST_SET) return 2000;
    o->set[o->count].name = name;
    memcpy(o->set[o->count++].values, values, (size_t)count * bytes_of(type));
    return 0;
}

/* What was set. Where it was not, the program ends: cuDNN would not have finished the object. */
static const int64_t *value(const object *o, int name)
{
    for (int i = 0; i < o->count; i++)
        if (o->set[i].name == name) return o->set[i].values;
    abort();
}

static const object *part(const object *o, int name)
{
    const object *p = (const object *)(uintptr_t)value(o, name)[0];
    if (!p->finished) abort();
    return p;
}

static mock_tensor tensor_of(const object *o)
{
    mock_tensor t = { .id = value(o, SL_CUDNN_TENSOR_ID)[0] };
    memcpy(t.sizes, value(o, SL_CUDNN_TENSOR_SIZES), sizeof t.sizes);
    memcpy(t.strides, value(o, SL_CUDNN_TENSOR_STRIDES), sizeof t.strides);
    return t;
}

/* Copied, because the objects a plan was made of may be gone when it runs. */
static mock_graph graph_of(const object *heuristic)
{
    static const int names[][4] = {
        [SL_CUDNN_FORWARD] = { SL_CUDNN_FORWARD_FIRST, SL_CUDNN_FORWARD_X, SL_CUDNN_FORWARD_W, SL_CUDNN_FORWARD_Y },
        [SL_CUDNN_BACKWARD_FILTER] = { SL_CUDNN_BACKWARD_FILTER_FIRST, SL_CUDNN_BACKWARD_FILTER_X,
                                       SL_CUDNN_BACKWARD_FILTER_DW, SL_CUDNN_BACKWARD_FILTER_DY },
        [SL_CUDNN_BACKWARD_DATA] = { SL_CUDNN_BACKWARD_DATA_FIRST, SL_CUDNN_BACKWARD_DATA_DX, SL_CUDNN_BACKWARD_DATA_W,
                                     SL_CUDNN_BACKWARD_DATA_DY },
    };
    const object *op = part(part(heuristic, SL_CUDNN_HEURISTIC_GRAPH), SL_CUDNN_GRAPH_OPERATIONS);
    const int *name = names[op->kind];
    const object *convolution = part(op, name[0] + 2);
    mock_graph g = { .kind = op->kind };
    g.x = tensor_of(part(op, name[1]));
    g.w = tensor_of(part(op, name[2]));
    g.y = tensor_of(part(op, name[3]));
    memcpy(&g.beta, value(op, name[0] + 1), sizeof g.beta);
    memcpy(g.strides, value(convolution, SL_CUDNN_CONVOLUTION_STRIDES), sizeof g.strides);
    memcpy(g.before, value(convolution, SL_CUDNN_CONVOLUTION_PADDING_BEFORE), sizeof g.before);
    memcpy(g.dilations, value(convolution, SL_CUDNN_CONVOLUTION_DILATIONS), sizeof g.dilations);
    return g;
}

EXPORTED int cudnnBackendFinalize(void *what)
{
    object *o = what;
    if (o->kind == SL_CUDNN_HEURISTIC) {
        state.heuristics++;
        if (state.refusal != 0) return state.refusal;
    }
    if (o->kind == SL_CUDNN_PLAN) {
        const object *config = part(o, SL_CUDNN_PLAN_CONFIG);
        if (engines[config->engine].fails) return 3000;
        o->engine = config->engine;
        o->graph = graph_of(config->source);
    }
    o->finished = 1;
    return 0;
}

/* ---- asking ---- */

static int name_engines(const object *heuristic, int64_t room, int64_t *count, object *const *configs)
{
    *count = room < ENGINES ? room : ENGINES;
    for (int i = 0; i < *count; i++) {
        configs[i]->engine = i;
        configs[i]->source = heuristic;
        configs[i]->finished = 1;
    }
    return 0;
}

static int name_engine(const object *config, object *engine)
{
    engine->engine = config->engine;
    engine->finished = 1;
    return 0;
}

static int give_note(int note, int64_t *count, void *values)
{
    *count = note >= 0;
    if (note >= 0) memcpy(values, &note, sizeof note);
    return 0;
}

EXPORTED int cudnnBackendGetAttribute(void *of, int name, int type, int64_t room, int64_t *count, void *values)
{
    const object *o = of;
    (void)type;
    if (!o->finished) return 1001;
    if (name == SL_CUDNN_HEURISTIC_RESULTS) return name_engines(o, room, count, values);
    if (name == SL_CUDNN_CONFIG_ENGINE) return name_engine(o, *(object **)values);
    if (name == SL_CUDNN_ENGINE_NUMERICAL_NOTES) return give_note(engines[o->engine].note, count, values);
    if (name == SL_CUDNN_ENGINE_BEHAVIOR_NOTES) return give_note(engines[o->engine].behavior, count, values);
    if (name != SL_CUDNN_PLAN_WORKSPACE) return 2000;
    memcpy(values, &engines[o->engine].workspace, sizeof engines[o->engine].workspace);
    return 0;
}

/* ---- computing ---- */

static int64_t at(const mock_tensor *t, int64_t n, int64_t c, int64_t h, int64_t w)
{
    return n * t->strides[0] + c * t->strides[1] + h * t->strides[2] + w * t->strides[3];
}

static int64_t elements(const mock_tensor *t)
{
    return t->sizes[0] * t->sizes[1] * t->sizes[2] * t->sizes[3];
}

/* Product i of all: the elements of x, w and y that meet there. False: outside of x. */
static bool meet(const mock_graph *g, int64_t i, int64_t found[3])
{
    const int64_t *ws = g->w.sizes, *ys = g->y.sizes;
    const int64_t s = i % ws[3], r = i / ws[3] % ws[2], c = i / (ws[3] * ws[2]) % ws[1],
                  e = i / (ws[3] * ws[2] * ws[1]);
    const int64_t q = e % ys[3], p = e / ys[3] % ys[2], o = e / (ys[3] * ys[2]) % ys[1],
                  n = e / (ys[3] * ys[2] * ys[1]);
    const int64_t groups = g->x.sizes[1] / ws[1], group = o / (ys[1] / groups);
    const int64_t h = p * g->strides[0] - g->before[0] + r * g->dilations[0];
    const int64_t v = q * g->strides[1] - g->before[1] + s * g->dilations[1];
    if (h < 0 || h >= g->x.sizes[2] || v < 0 || v >= g->x.sizes[3]) return false;
    found[0] = at(&g->x, n, group * ws[1] + c, h, v);
    found[1] = at(&g->w, o, c, r, s);
    found[2] = at(&g->y, n, o, p, q);
    return true;
}

static uint16_t *data_of(const mock_tensor *t, const object *pack)
{
    const int64_t *ids = value(pack, SL_CUDNN_PACK_IDS), *pointers = value(pack, SL_CUDNN_PACK_POINTERS);
    for (int i = 0; i < 3; i++)
        if (ids[i] == t->id) return (uint16_t *)(uintptr_t)pointers[i];
    abort();
}

EXPORTED int cudnnBackendExecute(void *handle, void *plan, void *pack)
{
    const mock_graph *g = &((const object *)plan)->graph;
    const mock_tensor *tensors[3] = { &g->x, &g->w, &g->y };
    const int result = g->kind == SL_CUDNN_BACKWARD_DATA ? 0 : g->kind == SL_CUDNN_BACKWARD_FILTER ? 1 : 2;
    const int left = result == 0 ? 1 : 0, right = result == 2 ? 1 : 2;
    const int64_t products = elements(&g->y) * g->w.sizes[1] * g->w.sizes[2] * g->w.sizes[3];
    uint16_t *data[3];
    int64_t found[3];
    if (handle != &state || !((const object *)plan)->finished || !((const object *)pack)->finished) return 2000;
    for (int k = 0; k < 3; k++) data[k] = data_of(tensors[k], pack);
    float *sums = calloc((size_t)elements(tensors[result]), sizeof *sums);
    if (sums == NULL) return 4003;
    for (int64_t i = 0; i < products; i++)
        if (meet(g, i, found))
            sums[found[result]] +=
                sl_bf16_to_float(data[left][found[left]]) * sl_bf16_to_float(data[right][found[right]]);
    for (int64_t i = 0; i < elements(tensors[result]); i++) {
        const float old = g->beta != 0 ? g->beta * sl_bf16_to_float(data[result][i]) : 0.0f;
        data[result][i] = sl_float_to_bf16(sums[i] + old);
    }
    free(sums);
    state.engine = ((const object *)plan)->engine;
    state.workspace = (const void *)(uintptr_t)value(pack, SL_CUDNN_PACK_WORKSPACE)[0];
    return 0;
}

/* cudnn_conv.c: convolutions by cuDNN's graph interface. The one place that calls it.
 *
 * A problem becomes a graph of one operation. The library's heuristic names engines for it, best first, and the first
 * that may be taken is (exact rule 6): the choice depends on the problem, the GPU and the library's version. Its plan
 * is kept for as long as the device is open, and so are packs, which tie a plan to addresses: a training step
 * repeats both. */
#include "backend/cuda/cudnn_conv.h"

#include <stdio.h>
#include <string.h>

#include "backend/cuda/cuda_conv.h"
#include "backend/cuda/cudnn_api.h"
#include "backend/cuda/library.h"
#include "core/alloc.h"

/* All that a choice may depend on, besides the GPU. No padding: compared by bytes. */
typedef struct problem {
    sl_cuda_conv conv;
    int32_t op, form, add, zero;
} problem;
_Static_assert(sizeof(problem) == 16 * 8 + 4 * 4, "problems are hashed and compared by bytes");

typedef struct plan {
    problem problem;
    bool used;              /* the entry is taken */
    sl_cudnn_object plan;   /* NULL: no engine may be taken */
    sl_cudnn_object config; /* the plan's, which it may refer to */
} plan;

/* Addresses of a call, by which its pack is found. */
typedef struct addresses {
    const plan *plan;
    const void *x, *w, *y, *workspace;
} addresses;

typedef struct pack {
    addresses addresses;
    sl_cudnn_object object; /* NULL: the entry is free */
} pack;

#define PLANS      4096 /* more than a model has kinds of convolutions */
#define PACKS      8192 /* past it packs are made for each call */
#define CANDIDATES 64   /* of the heuristic, looked at */
#define ALIGNMENT  16   /* bytes, of images and filters */

struct sl_cudnn {
    sl_log log;
    bool tf32;
    const char *path;  /* tests: of another file that is opened; NULL: cuDNN */
    bool tried, there; /* opening */
    sl_cudnn_api api;
    void *handle;
    const void *stream; /* the handle's */
    int plan_count, pack_count;
    plan *plans; /* open addressing; owned */
    pack *packs; /* likewise */
};

/* ---- opening and closing ---- */

sluice_status sl_cudnn_open(bool tf32, const sl_log *log, sl_cudnn **out)
{
    sl_cudnn *d = sl_alloc(sizeof *d, "cudnn");
    if (d == NULL) return SLUICE_ERR_NO_MEMORY;
    d->tf32 = tf32;
    d->log = *log;
    d->plans = sl_alloc_array(PLANS, sizeof *d->plans, "cudnn plans");
    d->packs = sl_alloc_array(PACKS, sizeof *d->packs, "cudnn packs");
    if (d->plans == NULL || d->packs == NULL) {
        sl_cudnn_close(d);
        return SLUICE_ERR_NO_MEMORY;
    }
    *out = d;
    return SLUICE_OK;
}

static void drop(const sl_cudnn *d, sl_cudnn_object o)
{
    if (o != NULL) (void)d->api.drop(o);
}

void sl_cudnn_close(sl_cudnn *d)
{
    if (d == NULL) return;
    for (int i = 0; i < PACKS && d->packs != NULL; i++) drop(d, d->packs[i].object);
    for (int i = 0; i < PLANS && d->plans != NULL; i++) {
        drop(d, d->plans[i].plan);
        drop(d, d->plans[i].config);
    }
    if (d->there) (void)d->api.destroy(d->handle);
    sl_free(d->packs);
    sl_free(d->plans);
    sl_free(d);
}

void sl_cudnn_text(char *out, size_t bytes)
{
    sl_cudnn_api api;
    if (sl_cudnn_api_open(NULL, &api) != SLUICE_OK) {
        snprintf(out, bytes, "cuDNN not found");
        return;
    }
    /* 91900 for 9.19.0 */
    size_t version = api.version();
    snprintf(out, bytes, "cuDNN %zu.%zu", version / 10000, version / 100 % 100);
}

static sluice_status start(sl_cudnn *d)
{
    SL_TRY(sl_cudnn_api_open(d->path, &d->api));
    sl_cudnn_status st = d->api.create(&d->handle);
    if (st == 0) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_FAILED, "cuDNN cannot be started: %s", d->api.status_text(st));
}

/* Whether cuDNN is there. */
static bool is_there(sl_cudnn *d)
{
    char reason[SL_MESSAGE_BYTES];
    if (d->tried) return d->there;
    d->tried = true;
    d->there = start(d) == SLUICE_OK;
    if (d->there) return true;
    sl_error_copy(reason);
    sl_log_write(&d->log, SLUICE_LOG_WARNING, "convolutions run on slower kernels of sluice, which give other bits: %s",
                 reason);
    return false;
}

/* ---- describing the problem: the first status that is no success stays, and nothing is done after it ---- */

typedef struct description {
    const sl_cudnn *d;
    sl_cudnn_status status;
    sl_cudnn_object objects[16]; /* owned */
    int count;
} description;

static sl_cudnn_object make(description *s, int kind)
{
    sl_cudnn_object o = NULL;
    if (s->status == 0) s->status = s->d->api.make(kind, &o);
    if (s->status != 0) return NULL;
    s->objects[s->count++] = o;
    return o;
}

static void set(description *s, sl_cudnn_object o, int name, int type, int64_t count, const void *values)
{
    if (s->status == 0) s->status = s->d->api.set(o, name, type, count, values);
}

static void set_object(description *s, sl_cudnn_object o, int name, sl_cudnn_object value)
{
    set(s, o, name, SL_CUDNN_IS_OBJECT, 1, &value);
}

static void finish(description *s, sl_cudnn_object o)
{
    if (s->status == 0) s->status = s->d->api.finish(o);
}

static void forget(description *s)
{
    while (s->count > 0) drop(s->d, s->objects[--s->count]);
}

static int32_t data_type(int32_t form)
{
    return form == SL_FORM_BF16 ? SL_CUDNN_BF16 : form == SL_FORM_F16 ? SL_CUDNN_F16 : SL_CUDNN_F32;
}

/* Names of the operands in a graph. */
enum { X = 1, W, Y };

/* [n, c, h, w] to the library, with channels last in memory. */
static sl_cudnn_object tensor(description *s, int64_t id, int32_t form, int64_t n, int64_t h, int64_t w, int64_t c)
{
    const int64_t sizes[] = { n, c, h, w }, strides[] = { h * w * c, 1, w * c, c }, alignment = ALIGNMENT;
    const int32_t type = data_type(form);
    sl_cudnn_object o = make(s, SL_CUDNN_TENSOR);
    set(s, o, SL_CUDNN_TENSOR_TYPE, SL_CUDNN_IS_DATA_TYPE, 1, &type);
    set(s, o, SL_CUDNN_TENSOR_SIZES, SL_CUDNN_IS_INT64, 4, sizes);
    set(s, o, SL_CUDNN_TENSOR_STRIDES, SL_CUDNN_IS_INT64, 4, strides);
    set(s, o, SL_CUDNN_TENSOR_ID, SL_CUDNN_IS_INT64, 1, &id);
    set(s, o, SL_CUDNN_TENSOR_ALIGNMENT, SL_CUDNN_IS_INT64, 1, &alignment);
    finish(s, o);
    return o;
}

static sl_cudnn_object convolution(description *s, const sl_cuda_conv *c)
{
    const int32_t compute = SL_CUDNN_F32, mode = SL_CUDNN_CROSS_CORRELATION;
    const int64_t dimensions = 2, padding[] = { c->padding_h, c->padding_w };
    const int64_t strides[] = { c->stride_h, c->stride_w }, dilations[] = { c->dilation_h, c->dilation_w };
    sl_cudnn_object o = make(s, SL_CUDNN_CONVOLUTION);
    set(s, o, SL_CUDNN_CONVOLUTION_COMPUTE, SL_CUDNN_IS_DATA_TYPE, 1, &compute);
    set(s, o, SL_CUDNN_CONVOLUTION_MODE, SL_CUDNN_IS_CONVOLUTION_MODE, 1, &mode);
    set(s, o, SL_CUDNN_CONVOLUTION_DIMENSIONS, SL_CUDNN_IS_INT64, 1, &dimensions);
    set(s, o, SL_CUDNN_CONVOLUTION_PADDING_BEFORE, SL_CUDNN_IS_INT64, 2, padding);
    set(s, o, SL_CUDNN_CONVOLUTION_PADDING_AFTER, SL_CUDNN_IS_INT64, 2, padding);
    set(s, o, SL_CUDNN_CONVOLUTION_STRIDES, SL_CUDNN_IS_INT64, 2, strides);
    set(s, o, SL_CUDNN_CONVOLUTION_DILATIONS, SL_CUDNN_IS_INT64, 2, dilations);
    finish(s, o);
    return o;
}

static sl_cudnn_object operation(description *s, const problem *p)
{
    static const struct {
        int32_t op;
        int kind, first, x, w, y;
    } rows[] = {
        { SL_OP_CONV2D, SL_CUDNN_FORWARD, SL_CUDNN_FORWARD_FIRST, SL_CUDNN_FORWARD_X, SL_CUDNN_FORWARD_W,
          SL_CUDNN_FORWARD_Y },
        { SL_OP_CONV2D_GRAD_INPUT, SL_CUDNN_BACKWARD_DATA, SL_CUDNN_BACKWARD_DATA_FIRST, SL_CUDNN_BACKWARD_DATA_DX,
          SL_CUDNN_BACKWARD_DATA_W, SL_CUDNN_BACKWARD_DATA_DY },
        { SL_OP_CONV2D_GRAD_WEIGHT, SL_CUDNN_BACKWARD_FILTER, SL_CUDNN_BACKWARD_FILTER_FIRST,
          SL_CUDNN_BACKWARD_FILTER_X, SL_CUDNN_BACKWARD_FILTER_DW, SL_CUDNN_BACKWARD_FILTER_DY },
    };
    const sl_cuda_conv *c = &p->conv;
    const float alpha = 1.0f, beta = p->add ? 1.0f : 0.0f;
    int row = 0;
    while (rows[row].op != p->op) row++;
    sl_cudnn_object o = make(s, rows[row].kind);
    set_object(s, o, rows[row].x, tensor(s, X, p->form, c->n, c->h, c->w, c->c));
    set_object(s, o, rows[row].w, tensor(s, W, p->form, c->o, c->kh, c->kw, c->c / c->groups));
    set_object(s, o, rows[row].y, tensor(s, Y, p->form, c->n, c->p, c->q, c->o));
    set(s, o, rows[row].first, SL_CUDNN_IS_FLOAT, 1, &alpha);
    set(s, o, rows[row].first + 1, SL_CUDNN_IS_FLOAT, 1, &beta);
    set_object(s, o, rows[row].first + 2, convolution(s, c));
    finish(s, o);
    return o;
}

static sl_cudnn_object heuristic(description *s, const problem *p)
{
    const int32_t mode = SL_CUDNN_MODE_A;
    sl_cudnn_object graph_operation = operation(s, p);
    sl_cudnn_object graph = make(s, SL_CUDNN_GRAPH);
    set(s, graph, SL_CUDNN_GRAPH_HANDLE, SL_CUDNN_IS_HANDLE, 1, &s->d->handle);
    set_object(s, graph, SL_CUDNN_GRAPH_OPERATIONS, graph_operation);
    finish(s, graph);
    sl_cudnn_object o = make(s, SL_CUDNN_HEURISTIC);
    set_object(s, o, SL_CUDNN_HEURISTIC_GRAPH, graph);
    set(s, o, SL_CUDNN_HEURISTIC_MODE, SL_CUDNN_IS_HEURISTIC_MODE, 1, &mode);
    finish(s, o);
    return o;
}

/* ---- choosing the engine ---- */

/* An engine that is deterministic, sums in f32, and computes by the formula itself has none but these notes. Of f32 the
 * tensor cores round the operands. */
static bool may_have(const sl_cudnn *d, int32_t form, int32_t note)
{
    if (note == SL_CUDNN_NOTE_STRICT_NAN) return true;
    if (form != SL_FORM_F32) return note == SL_CUDNN_NOTE_TENSOR_CORE;
    return d->tf32 && (note == SL_CUDNN_NOTE_TENSOR_CORE || note == SL_CUDNN_NOTE_DOWN_CONVERTS);
}

/* Engines that compile their kernels at run time need another library and seconds. */
static bool may_take(const sl_cudnn *d, const problem *p, sl_cudnn_object config)
{
    int32_t notes[SL_CUDNN_NOTES];
    int64_t count = 0;
    description s = { .d = d };
    sl_cudnn_object engine = make(&s, SL_CUDNN_ENGINE);
    if (s.status == 0) s.status = d->api.get(config, SL_CUDNN_CONFIG_ENGINE, SL_CUDNN_IS_OBJECT, 1, &count, &engine);
    count = 0;
    if (s.status == 0)
        s.status = d->api.get(engine, SL_CUDNN_ENGINE_NUMERICAL_NOTES, SL_CUDNN_IS_NUMERICAL_NOTE, SL_CUDNN_NOTES,
                              &count, notes);
    bool may = s.status == 0 && count <= SL_CUDNN_NOTES;
    for (int64_t i = 0; i < count && may; i++) may = may_have(d, p->form, notes[i]);
    count = 0;
    if (may)
        s.status = d->api.get(engine, SL_CUDNN_ENGINE_BEHAVIOR_NOTES, SL_CUDNN_IS_BEHAVIOR_NOTE, SL_CUDNN_NOTES, &count,
                              notes);
    may = may && s.status == 0 && count <= SL_CUDNN_NOTES;
    for (int64_t i = 0; i < count && may; i++) may = notes[i] != SL_CUDNN_NOTE_RUNTIME_COMPILATION;
    forget(&s);
    return may;
}

/* The plan of an engine, NULL where it cannot be had or needs too much memory. */
static sl_cudnn_object plan_of(const sl_cudnn *d, sl_cudnn_object config)
{
    int64_t bytes = 0, count = 0;
    description s = { .d = d };
    sl_cudnn_object o = make(&s, SL_CUDNN_PLAN);
    set(&s, o, SL_CUDNN_PLAN_HANDLE, SL_CUDNN_IS_HANDLE, 1, &d->handle);
    set_object(&s, o, SL_CUDNN_PLAN_CONFIG, config);
    finish(&s, o);
    if (s.status == 0) s.status = d->api.get(o, SL_CUDNN_PLAN_WORKSPACE, SL_CUDNN_IS_INT64, 1, &count, &bytes);
    if (s.status == 0 && bytes <= (int64_t)SL_CUDA_CONV_SCRATCH) return o;
    forget(&s);
    return NULL;
}

/* Takes the first of the candidates that may be. */
static void take_first(const sl_cudnn *d, sl_cudnn_object *configs, int64_t count, plan *out)
{
    for (int64_t i = 0; i < count && out->plan == NULL; i++) {
        if (!may_take(d, &out->problem, configs[i])) continue;
        out->plan = plan_of(d, configs[i]);
        if (out->plan == NULL) continue;
        out->config = configs[i];
        configs[i] = NULL;
    }
}

/* out->plan stays NULL where cuDNN has no engine for the problem. */
static sluice_status choose(const sl_cudnn *d, const char *name, plan *out)
{
    sl_cudnn_object configs[CANDIDATES] = { NULL };
    int64_t count = 0;
    description s = { .d = d };
    sl_cudnn_object h = heuristic(&s, &out->problem);
    for (int i = 0; i < CANDIDATES && s.status == 0; i++) s.status = d->api.make(SL_CUDNN_CONFIG, &configs[i]);
    if (s.status == 0)
        s.status = d->api.get(h, SL_CUDNN_HEURISTIC_RESULTS, SL_CUDNN_IS_OBJECT, CANDIDATES, &count, configs);
    if (s.status == 0) take_first(d, configs, count < CANDIDATES ? count : CANDIDATES, out);
    for (int i = 0; i < CANDIDATES; i++) drop(d, configs[i]);
    forget(&s);
    /* 2000 to 3999: it does not do this. */
    if (s.status == 0 || (s.status >= 2000 && s.status < 4000)) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_FAILED, "%s: cuDNN: %s", name, d->api.status_text(s.status));
}

/* ---- what is remembered ---- */

/* FNV-1a. */
static uint64_t hash(const void *p, size_t bytes)
{
    uint64_t h = 14695981039346656037u;
    for (size_t i = 0; i < bytes; i++) h = (h ^ ((const uint8_t *)p)[i]) * 1099511628211u;
    return h;
}

static problem problem_of(const sl_library_conv *v)
{
    return (problem){ .conv = v->conv, .op = (int32_t)v->op, .form = (int32_t)v->form, .add = v->add };
}

/* The problem's entry, or the free one it would get: one is always left free. */
static plan *plan_entry(const sl_cudnn *d, const problem *p)
{
    uint64_t i = hash(p, sizeof *p) % PLANS;
    while (d->plans[i].used && memcmp(&d->plans[i].problem, p, sizeof *p) != 0) i = (i + 1) % PLANS;
    return &d->plans[i];
}

static pack *pack_entry(const sl_cudnn *d, const addresses *a)
{
    uint64_t i = hash(a, sizeof *a) % PACKS;
    while (d->packs[i].object != NULL && memcmp(&d->packs[i].addresses, a, sizeof *a) != 0) i = (i + 1) % PACKS;
    return &d->packs[i];
}

static bool aligned(const void *p)
{
    return (uintptr_t)p % ALIGNMENT == 0;
}

sluice_status sl_cuda_library_conv_find(const sl_cuda_args *a, const sl_library_conv *v, bool *found)
{
    sl_cudnn *d = sl_cuda_libraries_cudnn(a->libraries);
    const char *name = a->name != NULL ? a->name : "?";
    const problem p = problem_of(v);
    *found = false;
    if (v->form == SL_FORM_F32 && !d->tf32) return SLUICE_OK;
    if (!aligned(v->x) || !aligned(v->w) || !aligned(v->y) || !is_there(d)) return SLUICE_OK;
    plan *entry = plan_entry(d, &p);
    if (!entry->used) {
        if (d->plan_count == PLANS - 1)
            return sl_fail(SLUICE_ERR_FAILED, "%s: more than %d kinds of convolutions", name, PLANS - 1);
        entry->problem = p;
        SL_TRY(choose(d, name, entry));
        entry->used = true;
        d->plan_count++;
    }
    *found = entry->plan != NULL;
    return SLUICE_OK;
}

/* ---- running ---- */

static sl_cudnn_status make_pack(const sl_cudnn *d, const addresses *a, sl_cudnn_object *out)
{
    static const int64_t ids[] = { X, W, Y };
    const void *const pointers[] = { a->x, a->w, a->y };
    description s = { .d = d };
    *out = make(&s, SL_CUDNN_PACK);
    set(&s, *out, SL_CUDNN_PACK_POINTERS, SL_CUDNN_IS_POINTER, 3, pointers);
    set(&s, *out, SL_CUDNN_PACK_IDS, SL_CUDNN_IS_INT64, 3, ids);
    set(&s, *out, SL_CUDNN_PACK_WORKSPACE, SL_CUDNN_IS_POINTER, 1, &a->workspace);
    finish(&s, *out);
    if (s.status != 0) forget(&s);
    return s.status;
}

static sl_cudnn_status execute(sl_cudnn *d, const addresses *a)
{
    pack *entry = pack_entry(d, a), once = { .object = NULL };
    sl_cudnn_status st = 0;
    if (entry->object == NULL) {
        if (d->pack_count == PACKS - 1) entry = &once;
        if ((st = make_pack(d, a, &entry->object)) != 0) {
            entry->object = NULL;
            return st;
        }
        entry->addresses = *a;
        d->pack_count += entry != &once;
    }
    st = d->api.execute(d->handle, a->plan->plan, entry->object);
    drop(d, once.object);
    return st;
}

sluice_status sl_cuda_library_conv_run(const sl_cuda_args *a, const sl_library_conv *v)
{
    sl_cudnn *d = sl_cuda_libraries_cudnn(a->libraries);
    const problem p = problem_of(v);
    const addresses where = { plan_entry(d, &p), v->x, v->w, v->y, a->workspace };
    sl_cudnn_status st = 0;
    if (d->stream != a->stream) st = d->api.set_stream(d->handle, a->stream);
    if (st == 0) {
        d->stream = a->stream;
        st = execute(d, &where);
    }
    if (st == 0) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_FAILED, "%s: cuDNN: %s", a->name != NULL ? a->name : "?", d->api.status_text(st));
}

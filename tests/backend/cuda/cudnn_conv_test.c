/* cudnn_conv_test.c: which of cuDNN's engines is taken, what is remembered, and what the library is told, against a
 * library of our own (support/modules/mock_cudnn.c). The emulated backend has convolutions of its own, so
 * those of cudnn_conv.c have other names here. */
#define sl_cuda_library_conv_find cudnn_find
#define sl_cuda_library_conv_run  cudnn_run
#include "backend/cuda/cudnn_conv.c"

#include <dlfcn.h>
#include <stdlib.h>

#include "core/half.h"
#include "support/mock_cudnn.h"
#include "test.h"

#define MOCK SLUICE_BINARY_DIR "/mock/libmock_cudnn.so"

sl_cudnn *sl_cuda_libraries_cudnn(sl_cuda_libraries *l)
{
    return (sl_cudnn *)l; /* nothing else is in it here */
}

/* The library, and arguments whose libraries it is. */
typedef struct opened {
    mock_cudnn_state *mock;
    sl_cudnn *cudnn;
    sl_cuda_args args;
} opened;

static bool open_mock(bool tf32, opened *out)
{
    mock_cudnn_state *(*state)(void) = NULL;
    opened o = { .args = { .name = "conv1", .stream = &open_mock } };
    void *file = dlopen(MOCK, RTLD_NOW | RTLD_LOCAL);
    if (file != NULL) *(void **)&state = dlsym(file, "mock_cudnn");
    if (state == NULL || sl_cudnn_open(tf32, &(sl_log){ 0 }, &o.cudnn) != SLUICE_OK) return false;
    o.mock = state();
    *o.mock = (mock_cudnn_state){ 0 };
    o.cudnn->path = MOCK;
    o.args.libraries = (sl_cuda_libraries *)o.cudnn;
    *out = o;
    return true;
}

static void close_mock(opened *o)
{
    sl_cudnn_close(o->cudnn);
    CHECK_EQ(o->mock->handles, 0);
    CHECK_EQ(o->mock->objects, 0);
}

enum { ROOM = 4096 };

/* Operands with room for all of the shapes below. */
typedef struct images {
    _Alignas(16) uint16_t x[ROOM], w[ROOM], y[ROOM];
} images;

static void fill(images *m)
{
    for (int i = 0; i < ROOM; i++) {
        m->x[i] = sl_float_to_bf16((float)(i * 7 % 13) - 6);
        m->w[i] = sl_float_to_bf16((float)(i * 5 % 11) - 5);
        m->y[i] = sl_float_to_bf16((float)(i * 3 % 7) - 3);
    }
}

/* Two images of 5 x 4 with 6 channels, 4 outputs in 2 groups. */
static sl_library_conv conv_of(images *m, sl_op op)
{
    return (sl_library_conv){
        .op = op,
        .conv = { .n = 2,
                  .h = 5,
                  .w = 4,
                  .c = 6,
                  .p = 3,
                  .q = 6,
                  .o = 4,
                  .kh = 3,
                  .kw = 2,
                  .groups = 2,
                  .stride_h = 2,
                  .stride_w = 1,
                  .padding_h = 1,
                  .padding_w = 2,
                  .dilation_h = 1,
                  .dilation_w = 2 },
        .form = SL_FORM_BF16,
        .x = m->x,
        .w = m->w,
        .y = m->y,
    };
}

static float number(const uint16_t *p, int64_t i)
{
    return sl_bf16_to_float(p[i]);
}

/* What the convolution gives, in f32, by the definition in op_list.h with channels last in images and filters. */
static void expected(const sl_library_conv *v, const images *m, float *sums)
{
    const sl_cuda_conv *c = &v->conv;
    const int64_t in = c->c / c->groups;
    memset(sums, 0, ROOM * sizeof *sums);
    for (int64_t y = 0; y < c->n * c->p * c->q * c->o; y++) {
        const int64_t o = y % c->o, q = y / c->o % c->q, p = y / c->o / c->q % c->p, n = y / c->o / c->q / c->p;
        for (int64_t k = 0; k < c->kh * c->kw * in; k++) {
            const int64_t i = k % in, s = k / in % c->kw, r = k / in / c->kw;
            const int64_t h = p * c->stride_h - c->padding_h + r * c->dilation_h;
            const int64_t w = q * c->stride_w - c->padding_w + s * c->dilation_w;
            if (h < 0 || h >= c->h || w < 0 || w >= c->w) continue;
            const int64_t x = ((n * c->h + h) * c->w + w) * c->c + o / (c->o / c->groups) * in + i;
            const int64_t f = o * c->kh * c->kw * in + k;
            if (v->op == SL_OP_CONV2D) sums[y] += number(m->x, x) * number(m->w, f);
            if (v->op == SL_OP_CONV2D_GRAD_INPUT) sums[x] += number(m->y, y) * number(m->w, f);
            if (v->op == SL_OP_CONV2D_GRAD_WEIGHT) sums[f] += number(m->y, y) * number(m->x, x);
        }
    }
}

static void check_pass(opened *o, sl_op op, bool add)
{
    static images m, before;
    static float sums[ROOM];
    bool found = false;
    fill(&m);
    before = m;
    sl_library_conv v = conv_of(&m, op);
    v.add = add;
    const sl_cuda_conv *c = &v.conv;
    const uint16_t *out = op == SL_OP_CONV2D ? m.y : op == SL_OP_CONV2D_GRAD_INPUT ? m.x : m.w;
    const uint16_t *old = op == SL_OP_CONV2D ? before.y : op == SL_OP_CONV2D_GRAD_INPUT ? before.x : before.w;
    const int64_t count = op == SL_OP_CONV2D              ? c->n * c->p * c->q * c->o
                          : op == SL_OP_CONV2D_GRAD_INPUT ? c->n * c->h * c->w * c->c
                                                          : c->o * c->kh * c->kw * c->c / c->groups;
    expected(&v, &before, sums);
    REQUIRE_OK(cudnn_find(&o->args, &v, &found));
    REQUIRE(found);
    REQUIRE_OK(cudnn_run(&o->args, &v));
    for (int64_t i = 0; i < ROOM; i++) {
        const uint16_t want = i < count ? sl_float_to_bf16(sums[i] + (add ? number(old, i) : 0.0f)) : old[i];
        CHECK_EQ(out[i], want);
    }
}

TEST(cudnn_is_told_what_the_convolution_is)
{
    static const sl_op passes[] = { SL_OP_CONV2D, SL_OP_CONV2D_GRAD_INPUT, SL_OP_CONV2D_GRAD_WEIGHT };
    opened o;
    REQUIRE(open_mock(false, &o));
    for (int pass = 0; pass < 3; pass++)
        for (int add = 0; add < 2; add++) check_pass(&o, passes[pass], add);
    CHECK(o.mock->stream == o.args.stream);
    close_mock(&o);
}

TEST(cudnn_engines_that_may_change_bits_or_precision_are_not_taken)
{
    static images m;
    bool found = false;
    opened o;
    REQUIRE(open_mock(false, &o));
    fill(&m);
    sl_library_conv v = conv_of(&m, SL_OP_CONV2D);
    REQUIRE_OK(cudnn_find(&o.args, &v, &found));
    CHECK(found);
    REQUIRE_OK(cudnn_run(&o.args, &v));
    CHECK_EQ(o.mock->engine, MOCK_GOOD_ENGINE);
    v.form = SL_FORM_F32; /* all engines of the tensor cores round f32 */
    REQUIRE_OK(cudnn_find(&o.args, &v, &found));
    CHECK(!found);
    close_mock(&o);

    REQUIRE(open_mock(true, &o));
    REQUIRE_OK(cudnn_find(&o.args, &v, &found));
    CHECK(found);
    REQUIRE_OK(cudnn_run(&o.args, &v));
    CHECK_EQ(o.mock->engine, MOCK_TF32_ENGINE);
    v.form = SL_FORM_BF16;
    REQUIRE_OK(cudnn_find(&o.args, &v, &found));
    REQUIRE_OK(cudnn_run(&o.args, &v));
    CHECK_EQ(o.mock->engine, MOCK_GOOD_ENGINE); /* tf32 is of f32 alone */
    close_mock(&o);
}

TEST(cudnn_is_asked_once_for_each_problem_and_a_step_makes_no_objects)
{
    static images m;
    bool found = false;
    opened o;
    REQUIRE(open_mock(false, &o));
    fill(&m);
    sl_library_conv v = conv_of(&m, SL_OP_CONV2D);
    for (int step = 0; step < 3; step++) {
        REQUIRE_OK(cudnn_find(&o.args, &v, &found));
        REQUIRE_OK(cudnn_run(&o.args, &v));
        CHECK_EQ(o.mock->heuristics, 1);
        CHECK_EQ(o.mock->packs, 1);
    }
    const int objects = o.mock->objects;
    o.args.workspace = &m; /* elsewhere in another layer: the plan serves, a pack is made */
    REQUIRE_OK(cudnn_run(&o.args, &v));
    CHECK_EQ(o.mock->packs, 2);
    CHECK_EQ(o.mock->objects, objects + 1);
    CHECK(o.mock->workspace == &m);
    v.conv.n = 1;
    REQUIRE_OK(cudnn_find(&o.args, &v, &found));
    CHECK_EQ(o.mock->heuristics, 2);
    close_mock(&o);
}

TEST(what_cudnn_does_not_do_is_left_to_others_and_other_failures_are_told)
{
    static images m;
    bool found = true;
    opened o;
    REQUIRE(open_mock(false, &o));
    sl_library_conv v = conv_of(&m, SL_OP_CONV2D);
    o.mock->refusal = 3000;
    REQUIRE_OK(cudnn_find(&o.args, &v, &found));
    CHECK(!found);
    o.mock->refusal = 0;
    REQUIRE_OK(cudnn_find(&o.args, &v, &found)); /* that was the answer, and stays it */
    CHECK(!found);
    v.conv.n = 1;
    o.mock->refusal = 4000;
    CHECK_EQ(cudnn_find(&o.args, &v, &found), SLUICE_ERR_FAILED);
    CHECK_CONTAINS(sluice_error(), "conv1: cuDNN: CUDNN_STATUS_INTERNAL_ERROR");
    o.mock->refusal = 0;
    v.x = m.x + 1;
    REQUIRE_OK(cudnn_find(&o.args, &v, &found)); /* not where its loads would fail */
    CHECK(!found);
    close_mock(&o);
}

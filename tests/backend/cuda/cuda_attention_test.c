/* cuda_attention_test.c: attention and its gradient on CUDA's backends, in shapes that meet every kernel: tiles that end
 * inside, heads narrower than what is compiled, groups of heads, more keys than queries. Heads of 20 and 300 and all of
 * f32 take the plain kernels, the rest tensor cores; on sm_90a, heads of 64 and 128 take kernels of their own unless
 * scores are capped. */
#include "test.h"

#include "support/op_harness.h"

typedef struct attention_shape {
    int64_t batches, queries, keys;
    int heads, kv_heads, width;
    bool causal, packed;
    int window, documents; /* documents: about how long; 0: none */
    float softcap;
} attention_shape;

static const attention_shape shapes[] = {
    { 2, 1, 1, 2, 1, 8, true, true, 0, 0, 0 },           { 1, 200, 200, 2, 1, 32, true, true, 0, 0, 0 },
    { 1, 150, 150, 2, 2, 64, true, true, 0, 0, 0 },      { 1, 65, 140, 4, 2, 64, false, false, 0, 0, 0 },
    { 1, 130, 130, 1, 1, 80, false, true, 0, 0, 0 },     { 1, 140, 140, 3, 1, 128, true, false, 0, 0, 0 },
    { 1, 33, 129, 2, 2, 128, false, false, 0, 0, 0 },    { 1, 70, 70, 2, 1, 256, true, true, 0, 0, 0 },
    { 1, 40, 100, 1, 1, 200, false, false, 0, 0, 0 },    { 2, 70, 70, 2, 1, 20, true, true, 0, 0, 0 },
    { 1, 66, 66, 1, 1, 300, true, false, 0, 0, 0 },      { 1, 300, 300, 1, 1, 64, true, true, 100, 0, 0 },
    { 2, 150, 150, 2, 1, 128, true, true, 0, 60, 0 },    { 1, 150, 150, 1, 1, 128, true, false, 33, 90, 0 },
    { 1, 150, 150, 2, 1, 64, true, true, 70, 50, 1.5f }, { 1, 70, 70, 2, 1, 256, true, true, 20, 30, 2.0f },
    { 1, 65, 140, 4, 2, 64, false, false, 0, 0, 1.0f },  { 1, 100, 100, 1, 1, 20, true, true, 40, 50, 1.0f },
};

/* For a GPU, whose blocks do several pieces of work one after the other where there are more than multiprocessors. The
 * largest distance of a million elements is that of some thousand half as much again. */
static const attention_shape large_shapes[] = {
    { 20, 200, 200, 6, 2, 64, true, true, 0, 0, 0 },        { 12, 300, 300, 6, 3, 128, true, true, 0, 0, 0 },
    { 3, 100, 333, 2, 1, 128, false, false, 0, 0, 0 },      { 3, 333, 100, 2, 1, 64, false, false, 0, 0, 0 },
    { 4, 1000, 1000, 4, 2, 64, true, true, 300, 0, 0 },     { 4, 1000, 1000, 4, 2, 128, true, true, 0, 200, 0 },
    { 2, 1100, 1100, 4, 1, 128, true, true, 500, 700, 0 },  { 2, 1100, 1100, 4, 4, 64, true, false, 128, 64, 0 },
    { 2, 600, 600, 4, 1, 128, true, true, 250, 170, 1.5f }, { 20, 200, 200, 6, 2, 64, true, true, 0, 5, 0 },
    { 1, 700, 700, 2, 2, 128, true, true, 0, 0, 0 },        { 1, 513, 640, 4, 1, 64, false, false, 0, 0, 0 },
};

/* How far results may lie from the reference, against their size and the root of their mean square: probabilities and
 * their slopes are rounded between the products. */
static const struct {
    sl_form form;
    double near;
} forms[] = { { SL_FORM_F32, 2e-5 }, { SL_FORM_BF16, 4e-2 }, { SL_FORM_F16, 5e-3 } };

/* in: q, k, v or qkv; out, lse; dout; then the gradients of what was in, and positions. */
enum { OUT = 3, LSE, DOUT, GRADIENT, POSITIONS = GRADIENT + 3, TENSORS };

typedef struct problem {
    sl_attrs attrs;
    int operands; /* 1 when packed, otherwise 3 */
    sl_shape shape[TENSORS];
    sl_form form[TENSORS];
    sl_span span[TENSORS];
    double *want[TENSORS];
    test_image image;
} problem;

static bool exists(const problem *p, int tensor)
{
    if (tensor == POSITIONS) return p->shape[POSITIONS].rank > 0;
    return tensor >= OUT && tensor < GRADIENT ? true : tensor % GRADIENT < p->operands;
}

static void set_shapes(problem *p, const attention_shape *s)
{
    int64_t h = (int64_t)s->heads * s->width, g = (int64_t)s->kv_heads * s->width;
    p->operands = s->packed ? 1 : 3;
    for (int i = 0; i < p->operands; i++) {
        sl_shape q = { 3, { s->batches, s->queries, s->packed ? h + 2 * g : h } },
                 k = { 3, { s->batches, s->keys, g } };
        p->shape[i] = p->shape[GRADIENT + i] = i == 0 ? q : k;
    }
    p->shape[OUT] = p->shape[DOUT] = (sl_shape){ 3, { s->batches, s->queries, h } };
    p->shape[LSE] = (sl_shape){ 3, { s->batches, s->heads, s->queries } };
    p->attrs.attention.heads = s->heads;
    p->attrs.attention.kv_heads = s->kv_heads;
    p->attrs.attention.head_width = s->width;
    p->attrs.attention.causal = s->causal;
    p->attrs.attention.packed = s->packed;
    p->attrs.attention.scale = 1.0f / sqrtf((float)s->width);
    p->attrs.attention.window = s->window;
    p->attrs.attention.softcap = s->softcap;
    if (s->documents > 0) p->shape[POSITIONS] = (sl_shape){ 2, { s->batches, s->queries } };
}

/* Documents of a third to four thirds of a length, another order in every row. */
static void set_positions(problem *p, int documents, test_random *r)
{
    int32_t *to = test_indices(&p->image, p->span[POSITIONS]);
    for (int64_t i = 0, left = 0; i < sl_shape_elements(&p->shape[POSITIONS]); i++, left--) {
        bool begins = left == 0 || i % p->shape[POSITIONS].dim[1] == 0;
        if (begins) left = documents / 3 + 1 + (int64_t)test_uniform(r, 0, documents);
        to[i] = begins ? 0 : to[i - 1] + 1;
        p->want[POSITIONS][i] = to[i];
    }
}

static problem make_problem(const attention_shape *s, sl_form form)
{
    problem p = { 0 };
    test_random r = { .state = 5 };
    set_shapes(&p, s);
    for (int t = 0; t < TENSORS; t++) {
        if (!exists(&p, t)) continue;
        int64_t n = sl_shape_elements(&p.shape[t]);
        p.form[t] = t == LSE ? SL_FORM_F32 : t == POSITIONS ? SL_FORM_I32 : form;
        p.span[t] = test_image_add_form(&p.image, n, p.form[t]);
        p.want[t] = calloc((size_t)n, sizeof(double));
        for (int64_t i = 0; i < n && (t < OUT || t == DOUT); i++) {
            test_set_number(&p.image, p.span[t], form, i, test_uniform(&r, -2, 2));
            p.want[t][i] = test_number(&p.image, p.span[t], form, i);
        }
    }
    if (s->documents > 0) set_positions(&p, s->documents, &r);
    return p;
}

static void free_problem(problem *p)
{
    for (int t = 0; t < TENSORS; t++) free(p->want[t]);
    test_image_free(&p->image);
}

static void take_in(problem *p, sl_call *call, ref_call *ref, int tensor)
{
    call->input_forms[call->input_count] = p->form[tensor];
    call->inputs[call->input_count] = p->span[tensor];
    call->input_shapes[call->input_count++] = &p->shape[tensor];
    ref->in[ref->input_count++] = (ref_tensor){ &p->shape[tensor], p->want[tensor] };
}

static void put_out(problem *p, sl_call *call, ref_call *ref, int tensor, bool wanted)
{
    call->output_forms[call->output_count] = p->form[tensor];
    call->outputs[call->output_count] = p->span[tensor];
    call->output_shapes[call->output_count++] = &p->shape[tensor];
    if (!wanted) test_leave_out(call, call->output_count - 1);
    ref->out[ref->output_count++] = (ref_tensor){ &p->shape[tensor], wanted ? p->want[tensor] : NULL };
}

/* Forward and backward on the device, and on the reference. `wanted`: bit i is the gradient of operand i. */
static sluice_status run_problem(problem *p, const test_device *device, unsigned wanted)
{
    static const sl_run_context context = { .training = true };
    sl_call calls[2] = { { .op = SL_OP_ATTENTION, .name = "attention" },
                         { .op = SL_OP_ATTENTION_GRAD, .name = "attention_grad" } };
    ref_call refs[2] = { { .op = SL_OP_ATTENTION }, { .op = SL_OP_ATTENTION_GRAD } };
    for (int c = 0; c < 2; c++) {
        calls[c].attrs = refs[c].attrs = &p->attrs;
        calls[c].context = refs[c].context = &context;
        for (int i = 0; i < p->operands; i++) take_in(p, &calls[c], &refs[c], i);
        if (exists(p, POSITIONS)) take_in(p, &calls[c], &refs[c], POSITIONS);
    }
    for (int t = OUT; t <= LSE; t++) put_out(p, &calls[0], &refs[0], t, true);
    for (int t = OUT; t <= DOUT; t++) take_in(p, &calls[1], &refs[1], t);
    for (int i = 0; i < p->operands; i++) put_out(p, &calls[1], &refs[1], GRADIENT + i, (wanted >> i & 1) != 0);
    for (int c = 0; c < 2; c++) reference_run(&refs[c]);
    return test_run(device, &p->image, calls, 2);
}

/* The largest distance in units of an element's size and the root of the mean square. */
static double distance(const problem *p, int tensor)
{
    int64_t n = sl_shape_elements(&p->shape[tensor]);
    double worst = 0, square = 0;
    for (int64_t i = 0; i < n; i++) square += p->want[tensor][i] * p->want[tensor][i] / (double)n;
    for (int64_t i = 0; i < n; i++) {
        double off = fabs(test_number(&p->image, p->span[tensor], p->form[tensor], i) - p->want[tensor][i]);
        double size = fabs(p->want[tensor][i]) + sqrt(square) + 1e-2;
        if (!(off / size <= worst)) worst = off / size; /* NaN is worst */
    }
    return worst;
}

/* Devices of CUDA's backends. */
static int cuda_devices(test_device out[MAX_TEST_DEVICES])
{
    int count = test_devices(out), kept = 0;
    for (int i = 0; i < count; i++)
        if (strncmp(out[i].name, "cuda", 4) == 0) out[kept++] = out[i];
    return kept;
}

/* `more`: times the usual distance. */
static void check_shape(const attention_shape *s, const test_device *device, int f, double more)
{
    problem p = make_problem(s, forms[f].form);
    REQUIRE_OK(run_problem(&p, device, 7));
    for (int t = OUT; t < POSITIONS; t++) {
        if (t == DOUT || !exists(&p, t)) continue;
        double off = distance(&p, t), near = t == LSE ? 8e-6 : more * forms[f].near;
        if (!(off <= near))
            test_fail(__FILE__, __LINE__, "%s, %lld x %lld x %d x %d, form %d, tensor %d: off by %g", device->name,
                      (long long)s->batches, (long long)s->queries, s->heads, s->width, (int)p.form[0], t, off);
    }
    free_problem(&p);
}

TEST(cuda_attention_and_its_gradient_are_close_to_the_reference)
{
    test_device devices[MAX_TEST_DEVICES];
    int count = cuda_devices(devices);
    for (int d = 0; d < count; d++)
        for (int f = 0; f < 3; f++) {
            for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) check_shape(&shapes[s], &devices[d], f, 1.0);
            if (strcmp(devices[d].name, "cuda") != 0) continue;
            for (size_t s = 0; s < sizeof large_shapes / sizeof large_shapes[0]; s++)
                check_shape(&large_shapes[s], &devices[d], f, 1.5);
        }
}

/* A gradient that nobody wants changes none of the others. */
TEST(cuda_attention_leaves_out_gradients_that_are_not_wanted)
{
    test_device devices[MAX_TEST_DEVICES];
    int count = cuda_devices(devices);
    for (int d = 0; d < count; d++)
        for (unsigned wanted = 1; wanted < 7; wanted++) {
            problem all = make_problem(&shapes[3], SL_FORM_BF16), some = make_problem(&shapes[3], SL_FORM_BF16);
            REQUIRE_OK(run_problem(&all, &devices[d], 7));
            REQUIRE_OK(run_problem(&some, &devices[d], wanted));
            for (int i = 0; i < 3; i++) {
                sl_span at = all.span[GRADIENT + i];
                if (wanted >> i & 1)
                    CHECK(memcmp(all.image.bytes + at.offset, some.image.bytes + at.offset, at.bytes) == 0);
            }
            free_problem(&all);
            free_problem(&some);
        }
}

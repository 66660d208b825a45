/* cuda_alignment_test.c: CUDA kernels give the same bits whether their operands lie at 16 bytes or one element beside them,
 * as parameters in a layer's flat buffer do: loads of packs and of single elements follow one order. */
#include "test.h"

#include "core/half.h"
#include "ir/form.h"
#include "support/cuda/emulated.h"

enum { MOST = 4 }; /* operands on either side */

typedef struct aligned_case {
    sl_op op;
    int inputs, outputs;
    sl_shape in[MOST], out[MOST];
    sl_attrs attrs;
    unsigned statistics; /* bit i: output i is f32 in every type */
} aligned_case;

#define COUNT(...) ((int)(sizeof((int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t)))
#define S(...)                                                                                                         \
    {                                                                                                                  \
        COUNT(__VA_ARGS__),                                                                                            \
        {                                                                                                              \
            __VA_ARGS__                                                                                                \
        }                                                                                                              \
    }
#define SCALAR                                                                                                         \
    {                                                                                                                  \
        0,                                                                                                             \
        {                                                                                                              \
            0                                                                                                          \
        }                                                                                                              \
    }

/* Lengths that are whole packs of either width, so that packs are used where addresses allow it, and some that are
 * not. */
/* clang-format off */
static const aligned_case cases[] = {
    { SL_OP_ADD, 2, 1, .in = { S(37, 64), S(37, 64) }, .out = { S(37, 64) } },
    { SL_OP_ADD, 2, 1, .in = { S(7, 37, 64), S(64) }, .out = { S(7, 37, 64) } },
    { SL_OP_ADD, 2, 1, .in = { S(7, 1, 64), S(37, 1) }, .out = { S(7, 37, 64) } },
    { SL_OP_MULTIPLY, 2, 1, .in = { S(7, 37, 64), S(7, 1, 64) }, .out = { S(7, 37, 64) } },
    { SL_OP_SCALE, 1, 1, .in = { S(5003) }, .out = { S(5003) }, .attrs = { .scale = { 0.7f } } },
    { SL_OP_GELU, 1, 1, .in = { S(5000) }, .out = { S(5000) } },
    { SL_OP_SILU_GRAD, 2, 1, .in = { S(5003), S(5003) }, .out = { S(5003) }, .attrs = { .accumulate = 1 } },
    { SL_OP_SWIGLU, 1, 1, .in = { S(41, 128) }, .out = { S(41, 64) } },
    { SL_OP_SWIGLU_GRAD, 2, 1, .in = { S(41, 128), S(41, 64) }, .out = { S(41, 128) } },
    { SL_OP_DROPOUT, 1, 1, .in = { S(5003) }, .out = { S(5003) }, .attrs = { .dropout = { 0.3f, 4 } } },
    { SL_OP_CAST, 1, 1, .in = { S(5003) }, .out = { S(5003) } },
    { SL_OP_REDUCE_TO, 1, 1, .in = { S(1000, 64) }, .out = { S(64) } },
    { SL_OP_REDUCE_TO, 1, 1, .in = { S(6, 200, 64) }, .out = { S(6, 1, 64) }, .attrs = { .accumulate = 1 } },
    { SL_OP_REDUCE_TO, 1, 1, .in = { S(9, 20000) }, .out = { S(9, 1) } },
    { SL_OP_REDUCE_TO, 1, 1, .in = { S(300, 128) }, .out = { S(300, 1) } },
    { SL_OP_MULTIPLY_REDUCE, 2, 1, .in = { S(1000, 64), S(1000, 64) }, .out = { S(64) } },
    { SL_OP_MULTIPLY_REDUCE, 2, 1, .in = { S(9, 20000), S(20000) }, .out = { S(9, 1) } },
    { SL_OP_SUM, 1, 1, .in = { S(30001) }, .out = { SCALAR } },
    { SL_OP_MSE, 2, 1, .in = { S(30001), S(30001) }, .out = { SCALAR } },
    { SL_OP_MSE_GRAD, 3, 2, .in = { S(5003), S(5003), SCALAR }, .out = { S(5003), S(5003) } },
    { SL_OP_SOFTMAX, 1, 1, .in = { S(30, 128) }, .out = { S(30, 128) } },
    { SL_OP_SOFTMAX, 1, 1, .in = { S(5, 2048) }, .out = { S(5, 2048) } },
    { SL_OP_SOFTMAX_GRAD, 2, 1, .in = { S(5, 2048), S(5, 2048) }, .out = { S(5, 2048) } },
    { SL_OP_TRANSPOSE, 1, 1, .in = { S(6, 5, 64) }, .out = { S(5, 6, 64) }, .attrs = { .transpose = { { 1, 0, 2 } } } },
    { SL_OP_SPLIT, 1, 1, .in = { S(9, 64) }, .out = { S(9, 32) }, .attrs = { .split = { 1, 16, 32 } } },
    { SL_OP_SPLIT_GRAD, 1, 1, .in = { S(9, 32) }, .out = { S(9, 64) }, .attrs = { .split = { 1, 16, 32 } } },
    { SL_OP_ADD_PART, 2, 1, .in = { S(9, 64), S(9, 32) }, .out = { S(9, 64) }, .attrs = { .split = { 1, 16, 32 } } },
    { SL_OP_GEGLU, 1, 1, .in = { S(41, 128) }, .out = { S(41, 64) } },
    { SL_OP_GEGLU_GRAD, 2, 1, .in = { S(41, 128), S(41, 64) }, .out = { S(41, 128) }, .attrs = { .gelu = { true } } },
    { SL_OP_SOFTCAP, 1, 1, .in = { S(5003) }, .out = { S(5003) }, .attrs = { .softcap = { 0.7f } } },
    { SL_OP_ROTARY, 1, 1, .in = { S(2, 9, 112) }, .out = { S(2, 9, 112) }, .attrs = { .rotary = { .heads = 3, .head_width = 32, .base = 1e4f, .rotated = 16 } } },
    { SL_OP_QK_NORM, 3, 2, .in = { S(2, 9, 640), S(160), S(160) }, .out = { S(2, 9, 640), S(2, 9, 3) }, .attrs = { .qk_norm = { 2, 1, 160, 1e-6f, 1.0f } }, .statistics = 2 },
    { SL_OP_BATCH_NORM, 4, 4, .in = { S(37, 48), S(48), S(48), S(37, 48) }, .out = { S(37, 48), S(48), S(48), S(4, 48) }, .attrs = { .batch_norm = { .epsilon = 1e-5f, .momentum = 0.1f, .relu = true } }, .statistics = 14 },
    { SL_OP_GROUP_NORM, 3, 3, .in = { S(3, 37, 48), S(48), S(48) }, .out = { S(3, 37, 48), S(3, 4), S(3, 4) }, .attrs = { .group_norm = { 4, 1e-5f } }, .statistics = 6 },
    { SL_OP_CONCAT, 2, 1, .in = { S(9, 32), S(9, 64) }, .out = { S(9, 96) }, .attrs = { .concat = { 1 } } },
};
/* clang-format on */
#define CASES ((int)(sizeof cases / sizeof cases[0]))

static uint64_t element_bytes(sl_form form)
{
    return form == SL_FORM_F32 ? 4 : 2;
}

/* Scalars are f32 in every type. */
static sl_form form_of(const sl_shape *s, sl_form form)
{
    return s->rank == 0 ? SL_FORM_F32 : form;
}

static sl_form output_form(const aligned_case *c, int i, sl_form form)
{
    return c->statistics >> i & 1u ? SL_FORM_F32 : form_of(&c->out[i], form);
}

/* An operand that begins `beside` elements behind a multiple of 256 bytes. */
static sl_span place(uint64_t *end, const sl_shape *s, sl_form form, int beside)
{
    uint64_t offset = (*end + 255) / 256 * 256 + (uint64_t)beside * element_bytes(form);
    sl_span span = { SL_TIER_DEVICE, offset, (uint64_t)sl_shape_elements(s) * element_bytes(form) };
    *end = offset + span.bytes;
    return span;
}

static void fill(uint8_t *p, int64_t n, sl_form form, uint32_t seed)
{
    for (int64_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        float x = (float)(int32_t)seed * 0x1p-30f;
        uint16_t half = form == SL_FORM_BF16 ? sl_float_to_bf16(x) : sl_float_to_f16(x);
        if (form == SL_FORM_F32)
            memcpy(p + 4 * i, &x, sizeof x);
        else
            memcpy(p + 2 * i, &half, sizeof half);
    }
}

/* Runs the case with every operand `beside` elements off; outputs[] get copies of its results. */
static void run_beside(const aligned_case *c, sl_form form, int beside, uint8_t *outputs[MOST])
{
    const sl_backend *b = &sl_emulated_cuda_backend;
    const sl_run_context context = { .seed = 3, .step = 1, .training = true };
    sl_call call = { .op = c->op, .attrs = &c->attrs, .input_count = c->inputs, .output_count = c->outputs };
    sl_device *d;
    uint64_t end = 0;
    call.context = &context;
    call.name = "beside";
    for (int i = 0; i < c->inputs; i++) {
        call.input_shapes[i] = &c->in[i];
        call.input_forms[i] = form_of(&c->in[i], form);
        call.inputs[i] = place(&end, &c->in[i], call.input_forms[i], beside);
    }
    for (int i = 0; i < c->outputs; i++) {
        call.output_shapes[i] = &c->out[i];
        call.output_forms[i] = output_form(c, i, form);
        call.outputs[i] = place(&end, &c->out[i], call.output_forms[i], beside);
    }
    uint64_t first = (end + 255) / 256 * 256;
    call.workspace = (sl_span){ SL_TIER_DEVICE, first, b->workspace(&call) };
    REQUIRE_OK(b->open(&(sl_device_options){ .threads = 1, .guard = true }, &d));
    REQUIRE_OK(b->reserve(d, SL_TIER_DEVICE, first + call.workspace.bytes));
    for (int i = 0; i < c->inputs + c->outputs; i++) {
        const bool output = i >= c->inputs;
        sl_span s = output ? call.outputs[i - c->inputs] : call.inputs[i];
        sl_form f = output ? call.output_forms[i - c->inputs] : call.input_forms[i];
        uint8_t *bytes = malloc(s.bytes);
        fill(bytes, (int64_t)(s.bytes / element_bytes(f)), f, (uint32_t)i + 1);
        CHECK_EQ(b->upload(d, SL_STREAM_COMPUTE, s, bytes), SLUICE_OK);
        free(bytes);
    }
    REQUIRE_OK(b->run(d, SL_STREAM_COMPUTE, &call));
    REQUIRE_OK(b->synchronize(d));
    for (int i = 0; i < c->outputs; i++) {
        outputs[i] = malloc(call.outputs[i].bytes);
        REQUIRE_OK(b->download(d, outputs[i], call.outputs[i]));
    }
    b->close(d);
}

TEST(cuda_kernels_give_the_same_bits_beside_sixteen_bytes)
{
    static const sl_form forms[] = { SL_FORM_F32, SL_FORM_BF16, SL_FORM_F16 };
    for (int k = 0; k < CASES * 3; k++) {
        const aligned_case *c = &cases[k / 3];
        uint8_t *even[MOST] = { NULL }, *odd[MOST] = { NULL };
        run_beside(c, forms[k % 3], 0, even);
        run_beside(c, forms[k % 3], 1, odd);
        for (int i = 0; i < c->outputs; i++) {
            size_t bytes = (size_t)sl_shape_elements(&c->out[i]) * element_bytes(output_form(c, i, forms[k % 3]));
            if (memcmp(even[i], odd[i], bytes) != 0)
                test_fail(__FILE__, __LINE__, "case %d, %s of %s: output %d has other bits", k / 3, sl_ops[c->op].name,
                          sl_form_name(forms[k % 3]), i);
            free(even[i]);
            free(odd[i]);
        }
    }
}

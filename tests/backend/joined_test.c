/* A product with its GELU, its GELU's slope or a sum in one op, beside the two ops. */
#include <string.h>

#include "support/op_harness.h"
#include "test.h"

enum { ROWS = 37, IN = 40, OUT = 56 };

static const sl_shape x_shape = { 2, { ROWS, IN } }, w_shape = { 2, { IN, OUT } }, b_shape = { 1, { OUT } };
static const sl_shape y_shape = { 2, { ROWS, OUT } };
static const sl_attrs linear = { .linear = { true } }, gelu = { .gelu = { false } };
static const sl_run_context context = { .training = true, .seed_gradient = 1 };

typedef struct operands {
    test_image image;
    sl_form form;
    sl_span x, w, b, dy, base; /* dy: of the product after, [ROWS, IN] as x */
    sl_span y, h, y_apart, h_apart, dh, dh_apart, sum, sum_apart;
} operands;

static void fill(operands *o, sl_span span, int64_t count, test_random *r)
{
    for (int64_t i = 0; i < count; i++) test_set_number(&o->image, span, o->form, i, test_uniform(r, -1, 1));
}

static void make_operands(operands *o, sl_form form)
{
    *o = (operands){ .form = form };
    sl_span *inputs[] = { &o->x, &o->w, &o->b, &o->dy, &o->base };
    sl_span *outputs[] = { &o->y, &o->h, &o->y_apart, &o->h_apart, &o->dh, &o->dh_apart, &o->sum, &o->sum_apart };
    const int64_t counts[] = { ROWS * IN, IN * OUT, OUT, ROWS * IN, ROWS * OUT };
    for (int i = 0; i < 5; i++) *inputs[i] = test_image_add_form(&o->image, counts[i], form);
    for (int i = 0; i < 8; i++) *outputs[i] = test_image_add_form(&o->image, ROWS * OUT, form);
    test_random r = { .state = 3 };
    for (int i = 0; i < 5; i++) fill(o, *inputs[i], counts[i], &r);
}

static sl_call forward(const operands *o, sl_op op, sl_span y, sl_span h)
{
    const sl_form f = o->form;
    return (sl_call){ .op = op,
                      .attrs = &linear,
                      .context = &context,
                      .name = "up",
                      .input_count = 3,
                      .inputs = { o->x, o->w, o->b },
                      .input_forms = { f, f, f },
                      .input_shapes = { &x_shape, &w_shape, &b_shape },
                      .output_count = op == SL_OP_LINEAR ? 1 : 2,
                      .outputs = { y, h },
                      .output_forms = { f, f },
                      .output_shapes = { &y_shape, &y_shape } };
}

static sl_call forward_add(const operands *o)
{
    sl_call c = forward(o, SL_OP_LINEAR, o->sum, o->sum);
    c.op = SL_OP_LINEAR_ADD;
    c.inputs[3] = c.inputs[2];
    c.input_forms[3] = o->form;
    c.input_shapes[3] = &b_shape;
    c.inputs[2] = o->base;
    c.input_shapes[2] = &y_shape;
    c.input_count = 4;
    return c;
}

/* x -> y, or x and dy -> dx, or a and b -> a + b: of one shape. */
static sl_call alike(const operands *o, sl_op op, sl_span x, sl_span dy, sl_span out)
{
    const sl_form f = o->form;
    return (sl_call){ .op = op,
                      .attrs = &gelu,
                      .context = &context,
                      .name = "alike",
                      .input_count = op == SL_OP_GELU ? 1 : 2,
                      .inputs = { x, dy },
                      .input_forms = { f, f },
                      .input_shapes = { &y_shape, &y_shape },
                      .output_count = 1,
                      .outputs = { out },
                      .output_forms = { f },
                      .output_shapes = { &y_shape } };
}

/* dy[ROWS, IN] through the weight of the product after, here [OUT, IN] with in and out swapped: w as it lies. */
static sl_call backward(const operands *o, sl_op op, sl_span dh)
{
    static const sl_attrs out_in = { .linear = { false } };
    const sl_form f = o->form;
    return (sl_call){ .op = op,
                      .attrs = &out_in,
                      .context = &context,
                      .name = "down",
                      .input_count = op == SL_OP_LINEAR_GRAD_INPUT ? 2 : 3,
                      .inputs = { o->dy, o->w, o->h_apart },
                      .input_forms = { f, f, f },
                      .input_shapes = { &x_shape, &w_shape, &y_shape },
                      .output_count = 1,
                      .outputs = { dh },
                      .output_forms = { f },
                      .output_shapes = { &y_shape } };
}

/* The two ways on one device: forward, then backward from the same h, then a sum. */
static sluice_status run_both(const test_device *device, operands *o)
{
    sl_call calls[] = {
        forward(o, SL_OP_LINEAR_GELU, o->y, o->h),
        forward(o, SL_OP_LINEAR, o->h_apart, o->h_apart),
        alike(o, SL_OP_GELU, o->h_apart, o->h_apart, o->y_apart),
        backward(o, SL_OP_LINEAR_GRAD_GELU, o->dh),
        backward(o, SL_OP_LINEAR_GRAD_INPUT, o->dh_apart),
        alike(o, SL_OP_GELU_GRAD, o->h_apart, o->dh_apart, o->dh_apart),
        forward_add(o),
        alike(o, SL_OP_ADD, o->base, o->h_apart, o->sum_apart),
    };
    return test_run(device, &o->image, calls, sizeof calls / sizeof calls[0]);
}

/* How far apart, in units of the form's rounding of the larger number and the mean size. */
static double distance(const operands *o, sl_span a, sl_span b)
{
    const double unit = o->form == SL_FORM_BF16 ? 0x1p-8 : o->form == SL_FORM_F16 ? 0x1p-11 : 0x1p-20;
    double worst = 0, square = 0;
    for (int64_t i = 0; i < ROWS * OUT; i++) {
        double x = test_number(&o->image, b, o->form, i);
        square += x * x / (ROWS * OUT);
    }
    for (int64_t i = 0; i < ROWS * OUT; i++) {
        double x = test_number(&o->image, a, o->form, i), y = test_number(&o->image, b, o->form, i);
        double d = fabs(x - y) / (unit * (fabs(y) + sqrt(square)));
        if (!(d <= worst)) worst = d;
    }
    return worst;
}

static bool same_bits(const operands *o, sl_span a, sl_span b)
{
    return memcmp(o->image.bytes + a.offset, o->image.bytes + b.offset, a.bytes) == 0;
}

/* On a CPU in every bit; a GPU's library does not round between the two, and has a tanh of its own. */
TEST(a_product_and_what_follows_in_one_op_give_what_the_two_give)
{
    static const sl_form forms[] = { SL_FORM_F32, SL_FORM_BF16, SL_FORM_F16 };
    test_device devices[MAX_TEST_DEVICES];
    int count = test_devices(devices);
    for (int i = 0; i < 3 * count; i++) {
        const test_device *device = &devices[i / 3];
        operands o;
        make_operands(&o, forms[i % 3]);
        REQUIRE_OK(run_both(device, &o));
        const sl_span pairs[][2] = {
            { o.h, o.h_apart }, { o.y, o.y_apart }, { o.dh, o.dh_apart }, { o.sum, o.sum_apart }
        };
        for (int k = 0; k < 4; k++) {
            bool alike = strcmp(device->backend->name, "cpu") == 0 ? same_bits(&o, pairs[k][0], pairs[k][1])
                                                                   : distance(&o, pairs[k][0], pairs[k][1]) < 2;
            if (!alike) test_fail(__FILE__, __LINE__, "%s, form %d: result %d differs", device->name, i % 3, k);
        }
        test_image_free(&o.image);
    }
}

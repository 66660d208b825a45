/* images_test.c: what convolutions and pooling promise beyond being close to the reference: which of equal elements the
 * gradient of the largest goes to, what NaN does, and that a GPU's convolutions have the same bits wherever their
 * operands lie and however often they are run. */
#include <math.h>
#include <string.h>

#include "support/op_harness.h"
#include "test.h"

static const sl_run_context run_context = { .training = true };

/* A call whose operands have one form; the shapes must stay. */
typedef struct laid {
    test_image image;
    sl_call call;
} laid;

static void add_operand(laid *l, bool output, const sl_shape *shape, sl_form form)
{
    const sl_span span = test_image_add_form(&l->image, sl_shape_elements(shape), form);
    sl_call *c = &l->call;
    if (output) {
        c->outputs[c->output_count] = span;
        c->output_shapes[c->output_count] = shape;
        c->output_forms[c->output_count++] = form;
    } else {
        c->inputs[c->input_count] = span;
        c->input_shapes[c->input_count] = shape;
        c->input_forms[c->input_count++] = form;
    }
}

static laid begin(sl_op op, const sl_attrs *attrs)
{
    return (laid){ .call = { .op = op, .attrs = attrs, .context = &run_context, .name = "images" } };
}

/* ---- the largest of a window ---- */

/* Windows of 2 x 2 in two rows and four columns: two pairs of equals, and one with two NaNs after a larger number. */
static void check_largest(const test_device *device)
{
    static const sl_attrs attrs = { .pool = { .kernel_h = 2, .kernel_w = 2, .stride_h = 2, .stride_w = 2 } };
    static const sl_shape x = { 4, { 1, 2, 8, 1 } }, y = { 4, { 1, 1, 4, 1 } };
    const float rows[16] = { 1, 3, 5, 5, 9, NAN, -INFINITY, -INFINITY, 3, 3, 2, 5, NAN, 8, -INFINITY, -INFINITY };
    const float largest[4] = { 3, 5, NAN, -INFINITY };
    const double gradient[16] = { 0, 1, 2, 0, 0, 0, 4, 0, 0, 0, 0, 0, 3, 0, 0, 0 };
    laid forward = begin(SL_OP_MAX_POOL2D, &attrs), backward = begin(SL_OP_MAX_POOL2D_GRAD, &attrs);
    add_operand(&forward, false, &x, SL_FORM_F32);
    add_operand(&forward, true, &y, SL_FORM_F32);
    add_operand(&backward, false, &x, SL_FORM_F32);
    add_operand(&backward, false, &y, SL_FORM_F32);
    add_operand(&backward, true, &x, SL_FORM_F32);
    memcpy(test_floats(&forward.image, forward.call.inputs[0]), rows, sizeof rows);
    memcpy(test_floats(&backward.image, backward.call.inputs[0]), rows, sizeof rows);
    for (int i = 0; i < 4; i++) test_floats(&backward.image, backward.call.inputs[1])[i] = (float)(i + 1);
    REQUIRE_OK(test_run(device, &forward.image, &forward.call, 1));
    REQUIRE_OK(test_run(device, &backward.image, &backward.call, 1));
    for (int i = 0; i < 4; i++) {
        const float got = test_floats(&forward.image, forward.call.outputs[0])[i];
        CHECK_THAT(isnan(largest[i]) ? isnan(got) : got == largest[i], "%s: largest of window %d is %g", device->name,
                   i, (double)got);
    }
    for (int i = 0; i < 16; i++) {
        const double got = (double)test_floats(&backward.image, backward.call.outputs[0])[i];
        CHECK_THAT(got == gradient[i], "%s: gradient of element %d is %g", device->name, i, got);
    }
    test_image_free(&forward.image);
    test_image_free(&backward.image);
}

TEST(the_largest_of_equals_is_the_first_and_nan_is_the_largest)
{
    test_device devices[MAX_TEST_DEVICES];
    const int count = test_devices(devices);
    for (int i = 0; i < count; i++) check_largest(&devices[i]);
}

/* ---- convolutions on a GPU ---- */

static void fill(const laid *l)
{
    for (int i = 0; i < l->call.input_count; i++) {
        test_random r = { .state = (uint64_t)i + 3 };
        for (int64_t e = 0; e < sl_shape_elements(l->call.input_shapes[i]); e++)
            test_set_number((test_image *)&l->image, l->call.inputs[i], l->call.input_forms[i], e,
                            test_uniform(&r, -1, 1));
    }
}

/* One pass of a convolution of `size` x `size` places, `channels` to as many, with `shift` operands nobody reads
 * before its own. */
static void check_same_bits(const test_device *device, sl_op op, int64_t images, int64_t size, int64_t channels)
{
    const sl_attrs attrs = { .conv = { 1, 1, 1, 1, 1, 1, 1 } };
    const sl_shape x = { 4, { images, size, size, channels } }, w = { 4, { channels, channels, 3, 3 } };
    laid l[3];
    for (int run = 0; run < 3; run++) {
        l[run] = begin(op, &attrs);
        if (run == 2) (void)test_image_add_form(&l[run].image, 777, SL_FORM_BF16); /* the others lie elsewhere */
        add_operand(&l[run], false, &x, SL_FORM_BF16);
        add_operand(&l[run], false, op == SL_OP_CONV2D_GRAD_WEIGHT ? &x : &w, SL_FORM_BF16);
        add_operand(&l[run], true, op == SL_OP_CONV2D_GRAD_WEIGHT ? &w : &x, SL_FORM_BF16);
        fill(&l[run]);
        REQUIRE_OK(test_run(device, &l[run].image, &l[run].call, 1));
        const sl_span first = l[0].call.outputs[0], now = l[run].call.outputs[0];
        CHECK_THAT(memcmp(l[0].image.bytes + first.offset, l[run].image.bytes + now.offset, now.bytes) == 0,
                   "%s: %s has other bits in run %d", device->name, sl_ops[op].name, run);
    }
    for (int run = 0; run < 3; run++) test_image_free(&l[run].image);
}

TEST(convolutions_of_a_gpu_have_the_same_bits_each_time_and_everywhere)
{
    static const sl_op passes[] = { SL_OP_CONV2D, SL_OP_CONV2D_GRAD_INPUT, SL_OP_CONV2D_GRAD_WEIGHT };
    test_device devices[MAX_TEST_DEVICES];
    const int count = test_devices(devices);
    int cuda = 0;
    for (int i = 0; i < count; i++) {
        const bool gpu = strcmp(devices[i].backend->name, "cuda") == 0;
        if (strncmp(devices[i].backend->name, "cuda", 4) != 0) continue;
        cuda++;
        for (int pass = 0; pass < 3; pass++)
            check_same_bits(&devices[i], passes[pass], gpu ? 16 : 1, gpu ? 28 : 5, gpu ? 128 : 8);
    }
    if (cuda == 0) SKIP(emulator, "no GPU here, and built without the emulation of one");
}

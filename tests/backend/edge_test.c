/* edge_test.c: what kernels do with bad indices, NaN, infinities, denormals and random masks. Every test runs on all
 * device variants, and in all types where numbers are read or written. */
#include <string.h>

#include "core/half.h"
#include "core/rng.h"
#include "support/op_harness.h"
#include "test.h"

#define ROWS    5
#define CLASSES 20

static const sl_shape scalar = { .rank = 0 };
static const sl_shape rows = { .rank = 1, .dim = { ROWS } };
static const sl_shape logits_shape = { .rank = 2, .dim = { ROWS, CLASSES } };

static sl_run_context context = { .seed = 3, .step = 1, .training = true, .seed_gradient = 1.0f };

static const sl_form float_forms[] = { SL_FORM_F32, SL_FORM_BF16, SL_FORM_F16 };
enum { FLOAT_FORMS = 3 };

/* ---- Cross entropy followed by its gradient ---- */

typedef struct entropy {
    test_image image;
    sl_attrs attrs;
    sl_form form; /* of logits and their gradient */
    sl_span logits, targets, loss, lse, count, dloss, dlogits;
} entropy;

static void make_entropy(entropy *e, sl_form form, const int32_t targets[ROWS])
{
    test_random r = { .state = 1 };
    *e = (entropy){ .attrs = { .cross_entropy = { .ignore_index = -100 } }, .form = form };
    e->logits = test_image_add_form(&e->image, ROWS * CLASSES, form);
    e->targets = test_image_add(&e->image, ROWS);
    e->lse = test_image_add(&e->image, ROWS);
    e->loss = test_image_add(&e->image, 1);
    e->count = test_image_add(&e->image, 1);
    e->dloss = test_image_add(&e->image, 1);
    e->dlogits = test_image_add_form(&e->image, ROWS * CLASSES, form);
    for (int i = 0; i < ROWS * CLASSES; i++) test_set_number(&e->image, e->logits, form, i, test_uniform(&r, -1, 1));
    memcpy(test_indices(&e->image, e->targets), targets, ROWS * sizeof *targets);
    test_floats(&e->image, e->dloss)[0] = 1.0f;
}

static sluice_status run_entropy(const test_device *device, entropy *e)
{
    sl_call calls[2] = {
        { .op = SL_OP_CROSS_ENTROPY,
          .attrs = &e->attrs,
          .context = &context,
          .name = "loss",
          .input_count = 2,
          .inputs = { e->logits, e->targets },
          .input_forms = { e->form, SL_FORM_I32 },
          .input_shapes = { &logits_shape, &rows },
          .output_count = 3,
          .outputs = { e->loss, e->lse, e->count },
          .output_shapes = { &scalar, &rows, &scalar } },
        { .op = SL_OP_CROSS_ENTROPY_GRAD,
          .attrs = &e->attrs,
          .context = &context,
          .name = "loss",
          .input_count = 5,
          .inputs = { e->logits, e->targets, e->lse, e->count, e->dloss },
          .input_forms = { e->form, SL_FORM_I32 },
          .input_shapes = { &logits_shape, &rows, &rows, &scalar, &scalar },
          .output_count = 1,
          .outputs = { e->dlogits },
          .output_forms = { e->form },
          .output_shapes = { &logits_shape } },
    };
    return test_run(device, &e->image, calls, 2);
}

static void check_bad_target(const test_device *device, sl_form form, int32_t target)
{
    entropy e;
    make_entropy(&e, form, (int32_t[ROWS]){ 1, target, -100, 3, 19 });
    REQUIRE_OK(run_entropy(device, &e));
    CHECK(isnan(test_floats(&e.image, e.loss)[0]));
    for (int i = 0; i < ROWS * CLASSES; i++) {
        double gradient = test_number(&e.image, e.dlogits, form, i);
        CHECK(i / CLASSES == 1 ? isnan(gradient) : isfinite(gradient));
    }
    test_image_free(&e.image);
}

TEST(a_target_that_is_no_class_makes_the_loss_and_its_row_nan)
{
    const int32_t bad[] = { CLASSES, -1, INT32_MAX, INT32_MIN };
    test_device devices[MAX_TEST_DEVICES];
    int count = test_devices(devices);
    for (int d = 0; d < count; d++)
        for (int k = 0; k < 4 * FLOAT_FORMS; k++) check_bad_target(&devices[d], float_forms[k / 4], bad[k % 4]);
}

TEST(a_batch_whose_targets_are_all_ignored_has_loss_and_gradient_zero)
{
    test_device devices[MAX_TEST_DEVICES];
    int count = test_devices(devices);
    for (int d = 0; d < count * FLOAT_FORMS; d++) {
        const sl_form form = float_forms[d / count];
        entropy e;
        make_entropy(&e, form, (int32_t[ROWS]){ -100, -100, -100, -100, -100 });
        test_set_number(&e.image, e.logits, form, 7, NAN); /* padding may hold anything */
        REQUIRE_OK(run_entropy(&devices[d % count], &e));
        CHECK(test_floats(&e.image, e.loss)[0] == 0.0f && test_floats(&e.image, e.count)[0] == 0.0f);
        for (int i = 0; i < ROWS * CLASSES; i++) CHECK(test_number(&e.image, e.dlogits, form, i) == 0.0);
        test_image_free(&e.image);
    }
}

/* ---- One op with inputs given as arrays ---- */

/* Runs `call` with its operands laid out in their forms: inputs copied from data[], the output into out[]. */
static sluice_status run_one(const test_device *device, sl_call *call, const void *const data[], void *out)
{
    test_image image = { 0 };
    call->context = &context;
    for (int i = 0; i < call->input_count; i++) {
        call->inputs[i] = test_image_add_form(&image, sl_shape_elements(call->input_shapes[i]), call->input_forms[i]);
        memcpy(image.bytes + call->inputs[i].offset, data[i], call->inputs[i].bytes);
    }
    for (int i = 0; i < call->output_count; i++)
        call->outputs[i] =
            test_image_add_form(&image, sl_shape_elements(call->output_shapes[i]), call->output_forms[i]);
    test_image_add(&image, 16); /* so that a write behind the output is seen */
    sluice_status st = test_run(device, &image, call, 1);
    memcpy(out, image.bytes + call->outputs[0].offset, call->outputs[0].bytes);
    test_image_free(&image);
    return st;
}

TEST(an_index_outside_the_table_gives_nan_and_touches_no_row_of_the_gradient)
{
    const sl_shape ids_shape = { 1, { 3 } }, table_shape = { 2, { 4, 5 } }, rows_shape = { 2, { 3, 5 } };
    const int32_t ids[] = { 2, 4, -1 };
    const sl_attrs attrs = { 0 };
    float table[20], y[15], gradient[20];
    for (int i = 0; i < 20; i++) table[i] = (float)i;
    test_device devices[MAX_TEST_DEVICES];
    int count = test_devices(devices);
    for (int d = 0; d < count; d++) {
        sl_call forward = { .op = SL_OP_EMBEDDING,
                            .attrs = &attrs,
                            .input_count = 2,
                            .output_count = 1,
                            .name = "e",
                            .input_shapes = { &ids_shape, &table_shape },
                            .output_shapes = { &rows_shape } };
        REQUIRE_OK(run_one(&devices[d], &forward, (const void *[]){ ids, table }, y));
        for (int i = 0; i < 15; i++) CHECK(i < 5 ? y[i] == table[10 + i] : isnan(y[i]));
        sl_call backward = { .op = SL_OP_EMBEDDING_GRAD,
                             .attrs = &attrs,
                             .input_count = 2,
                             .output_count = 1,
                             .name = "e",
                             .input_shapes = { &ids_shape, &rows_shape },
                             .output_shapes = { &table_shape } };
        REQUIRE_OK(run_one(&devices[d], &backward, (const void *[]){ ids, table }, gradient));
        for (int i = 0; i < 20; i++) CHECK(gradient[i] == (i / 5 == 2 ? table[i - 10] : 0.0f));
    }
}

/* x[19] of 21 elements is NaN, the others are 0. */
static void check_nan_passes(const test_device *device, sl_op op, sl_form form)
{
    const sl_shape shape = { 1, { 21 } };
    const sl_attrs attrs = { .scale = { 0.5f } };
    const bool reduces = op == SL_OP_SUM;
    float x[21] = { 0 }, y[21];
    const uint16_t half_nan = form == SL_FORM_BF16 ? sl_float_to_bf16(NAN) : sl_float_to_f16(NAN);
    x[19] = NAN;
    if (form != SL_FORM_F32) {
        memset(x, 0, sizeof x);
        memcpy((uint16_t *)(void *)x + 19, &half_nan, sizeof half_nan);
    }
    sl_call call = { .op = op,
                     .attrs = &attrs,
                     .input_count = 1,
                     .output_count = 1,
                     .name = "nan",
                     .input_shapes = { &shape },
                     .input_forms = { form },
                     .output_shapes = { reduces ? &scalar : &shape },
                     .output_forms = { reduces ? SL_FORM_F32 : form } };
    REQUIRE_OK(run_one(device, &call, (const void *[]){ x }, y));
    const test_image image = { (uint8_t *)y, sizeof y };
    if (!isnan(test_number(&image, (sl_span){ .bytes = sizeof y }, call.output_forms[0], reduces ? 0 : 19)))
        test_fail(__FILE__, __LINE__, "%s of %s loses NaN", sl_ops[op].name, sl_form_name(form));
}

TEST(nan_passes_through_activations_and_rows)
{
    const sl_op ops[] = { SL_OP_RELU, SL_OP_GELU, SL_OP_SILU, SL_OP_SCALE, SL_OP_SOFTMAX, SL_OP_SUM };
    test_device devices[MAX_TEST_DEVICES];
    int count = test_devices(devices);
    for (int d = 0; d < count; d++)
        for (int k = 0; k < 6; k++)
            for (int f = 0; f < FLOAT_FORMS; f++) check_nan_passes(&devices[d], ops[k], float_forms[f]);
}

/* ---- Every 16-bit pattern ---- */

enum { PATTERNS = 1 << 16 };

/* What a number of that pattern is after it was read, multiplied by 1 and written: itself; a NaN becomes quiet. */
static uint16_t after_one(sl_form form, uint16_t pattern)
{
    uint16_t infinity = form == SL_FORM_BF16 ? 0x7f80 : 0x7c00, quiet = form == SL_FORM_BF16 ? 0x40 : 0x200;
    return (pattern & 0x7fffu) > infinity ? pattern | quiet : pattern;
}

/* The arithmetic of a GPU makes one NaN of them all. */
static bool same_number(const test_device *device, sl_form form, uint16_t got, uint16_t expected)
{
    uint16_t infinity = form == SL_FORM_BF16 ? 0x7f80 : 0x7c00;
    bool both_nan = (got & 0x7fffu) > infinity && (expected & 0x7fffu) > infinity;
    return got == expected || (both_nan && strcmp(device->backend->name, "cuda") == 0);
}

TEST(every_sixteen_bit_number_is_read_and_written_as_it_is)
{
    static uint16_t x[PATTERNS], y[PATTERNS];
    const sl_shape shape = { 1, { PATTERNS } };
    const sl_attrs attrs = { .scale = { 1.0f } };
    test_device devices[MAX_TEST_DEVICES];
    int count = test_devices(devices);
    for (int i = 0; i < PATTERNS; i++) x[i] = (uint16_t)i;
    for (int d = 0; d < count; d++)
        for (int f = 1; f < FLOAT_FORMS; f++) {
            sl_call call = { .op = SL_OP_SCALE,
                             .attrs = &attrs,
                             .input_count = 1,
                             .output_count = 1,
                             .name = "one",
                             .input_shapes = { &shape },
                             .input_forms = { float_forms[f] },
                             .output_shapes = { &shape },
                             .output_forms = { float_forms[f] } };
            REQUIRE_OK(run_one(&devices[d], &call, (const void *[]){ x }, y));
            for (int i = 0; i < PATTERNS; i++)
                if (!same_number(&devices[d], float_forms[f], y[i], after_one(float_forms[f], (uint16_t)i))) {
                    test_fail(__FILE__, __LINE__, "%s, %s: %04x became %04x", devices[d].name,
                              sl_form_name(float_forms[f]), i, y[i]);
                    break;
                }
        }
}

/* Every exponent, with fractions that are just below, at and above the ties of both types; and random ones. */
static void fill_patterns(float x[PATTERNS])
{
    static const uint32_t fractions[] = { 0,       1,        0x7fff,   0x8000,   0x8001,   0xffff,   0x17fff,
                                          0x18000, 0x18001,  0x0fff,   0x1000,   0x1001,   0x2fff,   0x3000,
                                          0x3001,  0x7fefff, 0x7ff000, 0x7f7fff, 0x7f8000, 0x7fffff, 0x400000 };
    uint32_t random = 1;
    for (int i = 0; i < PATTERNS; i++) {
        random = random * 1664525u + 1013904223u;
        uint32_t known = (uint32_t)(i % 512) << 23 | fractions[i / 512 % 21];
        x[i] = sl_bits_float(i < 21 * 512 ? known : random);
    }
}

/* The op adds to 0, as the expectation does: -0 becomes 0, and a NaN quiet. */
TEST(floats_are_rounded_to_sixteen_bits_as_core_half_rounds_them)
{
    static float x[PATTERNS];
    static uint16_t y[PATTERNS];
    const sl_shape shape = { 1, { PATTERNS } };
    const sl_attrs attrs = { 0 };
    test_device devices[MAX_TEST_DEVICES];
    int count = test_devices(devices);
    fill_patterns(x);
    for (int d = 0; d < count; d++)
        for (int f = 1; f < FLOAT_FORMS; f++) {
            sl_call call = { .op = SL_OP_REDUCE_TO,
                             .attrs = &attrs,
                             .input_count = 1,
                             .output_count = 1,
                             .name = "round",
                             .input_shapes = { &shape },
                             .output_shapes = { &shape },
                             .output_forms = { float_forms[f] } };
            REQUIRE_OK(run_one(&devices[d], &call, (const void *[]){ x }, y));
            for (int i = 0; i < PATTERNS; i++) {
                float sum = x[i] + 0.0f;
                uint16_t expected = f == 1 ? sl_float_to_bf16(sum) : sl_float_to_f16(sum);
                if (same_number(&devices[d], float_forms[f], y[i], expected)) continue;
                test_fail(__FILE__, __LINE__, "%s, %s: %08x became %04x, expected %04x", devices[d].name,
                          sl_form_name(float_forms[f]), sl_float_bits(x[i]), y[i], expected);
                break;
            }
        }
}

TEST(softmax_gives_masked_scores_no_weight)
{
    const sl_shape shape = { 1, { 20 } };
    const sl_attrs attrs = { 0 };
    test_device devices[MAX_TEST_DEVICES];
    int count = test_devices(devices);
    for (int d = 0; d < count; d++) {
        float x[20], y[20];
        for (int i = 0; i < 20; i++) x[i] = i % 2 == 0 ? 3e38f : -INFINITY;
        sl_call call = { .op = SL_OP_SOFTMAX,
                         .attrs = &attrs,
                         .input_count = 1,
                         .output_count = 1,
                         .name = "softmax",
                         .input_shapes = { &shape },
                         .output_shapes = { &shape } };
        REQUIRE_OK(run_one(&devices[d], &call, (const void *[]){ x }, y));
        for (int i = 0; i < 20; i++) CHECK(i % 2 == 0 ? y[i] == 0.1f : y[i] == 0.0f);
    }
}

/* ---- Dropout ---- */

enum { MASKED = 20000 };

static void dropout_ones(const test_device *device, uint64_t step, uint32_t micro, uint32_t op, float *y)
{
    static float ones[MASKED];
    const sl_shape shape = { 1, { MASKED } };
    const sl_attrs attrs = { .dropout = { 0.25f, op } };
    for (int i = 0; i < MASKED; i++) ones[i] = 1.0f;
    context.step = step;
    context.micro = micro;
    sl_call call = { .op = SL_OP_DROPOUT,
                     .attrs = &attrs,
                     .input_count = 1,
                     .output_count = 1,
                     .name = "dropout",
                     .input_shapes = { &shape },
                     .output_shapes = { &shape } };
    REQUIRE_OK(run_one(device, &call, (const void *[]){ ones }, y));
}

TEST(dropout_keeps_its_share_and_draws_by_step_micro_batch_and_op)
{
    static float a[MASKED], b[MASKED];
    const uint32_t other[][3] = { { 2, 0, 0 }, { 1, 1, 0 }, { 1, 0, 1 } };
    test_device devices[MAX_TEST_DEVICES];
    test_devices(devices);
    dropout_ones(&devices[0], 1, 0, 0, a);
    int kept = 0;
    for (int i = 0; i < MASKED; i++) kept += a[i] != 0.0f;
    CHECK_NEAR(kept / (double)MASKED, 0.75, 0.015); /* five standard deviations */
    dropout_ones(&devices[0], 1, 0, 0, b);
    CHECK(memcmp(a, b, sizeof a) == 0);
    for (int k = 0; k < 3; k++) {
        dropout_ones(&devices[0], other[k][0], other[k][1], other[k][2], b);
        int equal = 0;
        for (int i = 0; i < MASKED; i++) equal += a[i] == b[i];
        CHECK_NEAR(equal / (double)MASKED, 0.75 * 0.75 + 0.25 * 0.25, 0.02);
    }
}

/* ---- Max pooling of equal numbers, NaN and infinities ---- */

/* One window of six places, 20 channels: who of them is the largest, and gets the gradient. */
static const struct {
    double x[6], largest;
    int gets;
} pooled[] = {
    { { 1, 3, 3, 2, 3, 0 }, 3, 1 },             /* the first of equal ones */
    { { 0, 0, 0, 0, 0, 0 }, 0, 0 },             /* all equal */
    { { -0.0, 0.0, -1, -2, -3, -4 }, -0.0, 0 }, /* zeros are equal */
    { { -INFINITY, -INFINITY, -5, -INFINITY, -6, -7 }, -5, 2 },
    { { -INFINITY, -INFINITY, -INFINITY, -INFINITY, -INFINITY, -INFINITY }, -INFINITY, 0 },
    { { 1, NAN, 2, INFINITY, 3, 4 }, NAN, 1 },   /* NaN wins, also over what follows it */
    { { 1, NAN, 2, 3, NAN, INFINITY }, NAN, 4 }, /* the last of several, as PyTorch has it */
};

static void check_max_pool(const test_device *device, sl_form form, int n)
{
    enum { C = 20, PLACES = 6 };
    const sl_shape x_shape = { 4, { 1, 2, 3, C } }, y_shape = { 4, { 1, 1, 1, C } };
    const sl_attrs attrs = { .pool = { 2, 3, 2, 3, 0, 0, false, false } };
    test_image image = { 0 };
    sl_span x = test_image_add_form(&image, PLACES * C, form), y = test_image_add_form(&image, C, form);
    sl_span dy = test_image_add_form(&image, C, form), dx = test_image_add_form(&image, PLACES * C, form);
    for (int i = 0; i < PLACES * C; i++) test_set_number(&image, x, form, i, pooled[n].x[i / C]);
    for (int i = 0; i < C; i++) test_set_number(&image, dy, form, i, 2);
    const sl_call calls[2] = {
        { .op = SL_OP_MAX_POOL2D,
          .attrs = &attrs,
          .context = &context,
          .name = "pool",
          .input_count = 1,
          .inputs = { x },
          .input_forms = { form },
          .input_shapes = { &x_shape },
          .output_count = 1,
          .outputs = { y },
          .output_forms = { form },
          .output_shapes = { &y_shape } },
        { .op = SL_OP_MAX_POOL2D_GRAD,
          .attrs = &attrs,
          .context = &context,
          .name = "pool",
          .input_count = 2,
          .inputs = { x, dy },
          .input_forms = { form, form },
          .input_shapes = { &x_shape, &y_shape },
          .output_count = 1,
          .outputs = { dx },
          .output_forms = { form },
          .output_shapes = { &x_shape } },
    };
    CHECK_EQ(test_run(device, &image, calls, 2), SLUICE_OK);
    for (int i = 0; i < PLACES * C; i++) {
        double largest = test_number(&image, y, form, i % C), got = test_number(&image, dx, form, i);
        bool same = isnan(pooled[n].largest) ? isnan(largest) : largest == pooled[n].largest;
        if (!same || got != (i / C == pooled[n].gets ? 2 : 0))
            test_fail(__FILE__, __LINE__, "%s, window %d: largest %g, place %d gets %g", device->name, n, largest,
                      i / C, got);
    }
    test_image_free(&image);
}

TEST(max_pooling_takes_the_first_of_equal_numbers_and_never_loses_a_nan)
{
    test_device devices[MAX_TEST_DEVICES];
    int count = test_devices(devices);
    for (int d = 0; d < count; d++) {
        if (!devices[d].backend->supports(SL_OP_MAX_POOL2D)) continue; /* for a reason: op_kernels.h */
        for (int f = 0; f < FLOAT_FORMS; f++)
            for (int n = 0; n < (int)(sizeof pooled / sizeof *pooled); n++)
                check_max_pool(&devices[d], float_forms[f], n);
    }
}

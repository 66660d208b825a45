/* head_test.c: the head whose logits never exist as a whole, beside the two ops it stands for: the same loss and the
 * same gradient of its input, on a CPU bit for bit; those of weight and bias too, where the rows are one chunk. And what
 * it does with ignored targets, bad ones, and gradients that nobody wants. */
#include <string.h>

#include "backend/cpu/kernels/head_chunk.h"
#include "core/half.h"
#include "support/op_harness.h"
#include "test.h"

#define IGNORED (-1)

static const sl_form float_forms[] = { SL_FORM_F32, SL_FORM_BF16, SL_FORM_F16 };
enum { FLOAT_FORMS = 3 };

static const sl_shape scalar = { .rank = 0 };
static const sl_attrs attrs = { .cross_entropy = { .ignore_index = IGNORED } };
static const sl_attrs plain = { 0 };
static sl_run_context training = { .seed = 3, .step = 1, .training = true, .seed_gradient = 0.125f };
static sl_run_context evaluation = { .seed = 3, .step = 1, .seed_gradient = 0.125f };

typedef struct head {
    test_image image;
    sl_form form;
    bool biased;
    sl_shape x_shape, w_shape, rows, logits_shape, classes;
    sl_span x, w, targets, bias, loss, count, dw, dx, dbias;    /* fused */
    sl_span logits, pair_loss, lse, pair_count, dloss, dlogits; /* the pair */
    sl_span pair_dw, pair_dx, pair_dbias;
} head;

static void lay_out(head *h)
{
    int64_t rows = h->x_shape.dim[0], in = h->x_shape.dim[1], classes = h->w_shape.dim[0];
    sl_form form = h->form;
    h->x = test_image_add_form(&h->image, rows * in, form);
    h->w = test_image_add_form(&h->image, classes * in, form);
    h->targets = test_image_add(&h->image, rows);
    h->bias = test_image_add_form(&h->image, classes, form);
    sl_span *scalars[] = { &h->loss, &h->count, &h->pair_loss, &h->pair_count, &h->dloss };
    for (int i = 0; i < 5; i++) *scalars[i] = test_image_add(&h->image, 1);
    h->dw = test_image_add(&h->image, classes * in);
    h->dx = test_image_add_form(&h->image, rows * in, form);
    h->dbias = test_image_add(&h->image, classes);
    h->logits = test_image_add_form(&h->image, rows * classes, form);
    h->lse = test_image_add(&h->image, rows);
    h->dlogits = test_image_add_form(&h->image, rows * classes, form);
    h->pair_dw = test_image_add(&h->image, classes * in);
    h->pair_dx = test_image_add_form(&h->image, rows * in, form);
    h->pair_dbias = test_image_add(&h->image, classes);
}

/* Every third target is ignored. Without a bias until `biased` is set. */
static void make_head(head *h, sl_form form, int64_t rows, int64_t in, int64_t classes)
{
    *h = (head){ .form = form,
                 .x_shape = { 2, { rows, in } },
                 .w_shape = { 2, { classes, in } },
                 .rows = { 1, { rows } },
                 .logits_shape = { 2, { rows, classes } },
                 .classes = { 1, { classes } } };
    lay_out(h);
    test_random r = { .state = 1 };
    for (int64_t i = 0; i < rows * in; i++) test_set_number(&h->image, h->x, form, i, test_uniform(&r, -1, 1));
    for (int64_t i = 0; i < classes * in; i++) test_set_number(&h->image, h->w, form, i, test_uniform(&r, -1, 1));
    for (int64_t i = 0; i < classes; i++) test_set_number(&h->image, h->bias, form, i, test_uniform(&r, -2, 2));
    for (int64_t i = 0; i < rows; i++)
        test_indices(&h->image, h->targets)[i] = i % 3 == 1 ? IGNORED : (int32_t)test_uniform(&r, 0, (double)classes);
    test_floats(&h->image, h->dloss)[0] = training.seed_gradient;
}

static sl_call fused(const head *h, const sl_run_context *context)
{
    return (sl_call){ .op = SL_OP_LINEAR_CROSS_ENTROPY,
                      .attrs = &attrs,
                      .context = context,
                      .name = "head",
                      .input_count = h->biased ? 4 : 3,
                      .inputs = { h->x, h->w, h->targets, h->bias },
                      .input_forms = { h->form, h->form, SL_FORM_I32, h->form },
                      .input_shapes = { &h->x_shape, &h->w_shape, &h->rows, &h->classes },
                      .output_count = h->biased ? 5 : 4,
                      .outputs = { h->loss, h->count, h->dw, h->dx, h->dbias },
                      .output_forms = { SL_FORM_F32, SL_FORM_F32, SL_FORM_F32, h->form, SL_FORM_F32 },
                      .output_shapes = { &scalar, &scalar, &h->w_shape, &h->x_shape, &h->classes } };
}

static void pair(const head *h, sl_call calls[5])
{
    const sl_form f = h->form;
    calls[0] = (sl_call){ .op = SL_OP_LINEAR,
                          .input_count = h->biased ? 3 : 2,
                          .inputs = { h->x, h->w, h->bias },
                          .input_forms = { f, f, f },
                          .input_shapes = { &h->x_shape, &h->w_shape, &h->classes },
                          .output_count = 1,
                          .outputs = { h->logits },
                          .output_forms = { f },
                          .output_shapes = { &h->logits_shape } };
    calls[1] = (sl_call){ .op = SL_OP_CROSS_ENTROPY,
                          .input_count = 2,
                          .inputs = { h->logits, h->targets },
                          .input_forms = { f, SL_FORM_I32 },
                          .input_shapes = { &h->logits_shape, &h->rows },
                          .output_count = 3,
                          .outputs = { h->pair_loss, h->lse, h->pair_count },
                          .output_shapes = { &scalar, &h->rows, &scalar } };
    calls[2] = (sl_call){ .op = SL_OP_CROSS_ENTROPY_GRAD,
                          .input_count = 5,
                          .inputs = { h->logits, h->targets, h->lse, h->pair_count, h->dloss },
                          .input_forms = { f, SL_FORM_I32 },
                          .input_shapes = { &h->logits_shape, &h->rows, &h->rows, &scalar, &scalar },
                          .output_count = 1,
                          .outputs = { h->dlogits },
                          .output_forms = { f },
                          .output_shapes = { &h->logits_shape } };
    calls[3] = (sl_call){ .op = SL_OP_LINEAR_GRAD_WEIGHT,
                          .input_count = 2,
                          .inputs = { h->dlogits, h->x },
                          .input_forms = { f, f },
                          .input_shapes = { &h->logits_shape, &h->x_shape },
                          .output_count = h->biased ? 2 : 1,
                          .outputs = { h->pair_dw, h->pair_dbias },
                          .output_shapes = { &h->w_shape, &h->classes } };
    calls[4] = (sl_call){ .op = SL_OP_LINEAR_GRAD_INPUT,
                          .input_count = 2,
                          .inputs = { h->dlogits, h->w },
                          .input_forms = { f, f },
                          .input_shapes = { &h->logits_shape, &h->w_shape },
                          .output_count = 1,
                          .outputs = { h->pair_dx },
                          .output_forms = { f },
                          .output_shapes = { &h->x_shape } };
    for (int i = 0; i < 5; i++) {
        calls[i].attrs = calls[i].op == SL_OP_LINEAR || i > 2 ? &plain : &attrs;
        calls[i].context = &training;
        calls[i].name = "pair";
    }
}

static bool same_bits(const head *h, sl_span a, sl_span b)
{
    return memcmp(h->image.bytes + a.offset, h->image.bytes + b.offset, a.bytes) == 0;
}

static bool is_poison(const head *h, sl_span span, sl_form form)
{
    test_image fresh = { 0 };
    sl_span poison = test_image_add_form(&fresh, (int64_t)(span.bytes / sl_form_element_bytes(form)), form);
    bool same = memcmp(h->image.bytes + span.offset, fresh.bytes + poison.offset, span.bytes) == 0;
    test_image_free(&fresh);
    return same;
}

/* ---- beside the pair ---- */

/* Part of the largest element that two kernels may differ by: a GPU's head and its two ops cut their rows otherwise, and
 * logits that round apart are a unit of their form apart. */
static double tolerance_of(const test_device *device, sl_form form)
{
    if (strcmp(device->backend->name, "cpu") == 0 || form == SL_FORM_F32) return 1e-5;
    return form == SL_FORM_F16 ? 0x1p-9 : 0x1p-6;
}

static void check_gradient(const test_device *device, const head *h, sl_form form, sl_span got, sl_span expected,
                           bool exact)
{
    const int64_t n = (int64_t)(got.bytes / sl_form_element_bytes(form));
    double largest = 0, worst = 0;
    if (exact && strcmp(device->backend->name, "cpu") == 0) CHECK(same_bits(h, got, expected));
    for (int64_t i = 0; i < n; i++) {
        const double right = test_number(&h->image, expected, form, i);
        largest = fmax(largest, fabs(right));
        worst = fmax(worst, fabs(test_number(&h->image, got, form, i) - right));
    }
    CHECK(worst <= tolerance_of(device, h->form) * largest);
}

static void check_pair(const test_device *device, sl_form form, int64_t rows, int64_t in, int64_t classes, bool biased)
{
    head h;
    sl_call calls[6];
    make_head(&h, form, rows, in, classes);
    h.biased = biased;
    calls[0] = fused(&h, &training);
    pair(&h, calls + 1);
    REQUIRE_OK(test_run(device, &h.image, calls, 6));
    CHECK(same_bits(&h, h.count, h.pair_count));
    check_gradient(device, &h, form, h.dx, h.pair_dx, true);
    bool one_chunk = sl_head_chunk_rows(rows, classes) == rows;
    check_gradient(device, &h, SL_FORM_F32, h.dw, h.pair_dw, one_chunk);
    if (biased) check_gradient(device, &h, SL_FORM_F32, h.dbias, h.pair_dbias, one_chunk);
    const double loss = (double)test_floats(&h.image, h.pair_loss)[0];
    /* a mean over the rows, of which only a few have logits that round apart */
    const bool may_round_apart = tolerance_of(device, form) > 1e-5;
    CHECK_NEAR((double)test_floats(&h.image, h.loss)[0], loss,
               may_round_apart ? tolerance_of(device, form) * loss / 16 : 1e-6);
    test_image_free(&h.image);
}

TEST(a_head_in_one_op_gives_what_its_two_ops_give)
{
    test_device devices[MAX_TEST_DEVICES];
    int count = test_devices(devices);
    for (int d = 0; d < count; d++)
        for (int f = 0; f < FLOAT_FORMS; f++) {
            check_pair(&devices[d], float_forms[f], 1, 1, 2, false);
            check_pair(&devices[d], float_forms[f], 67, 40, 131, false);
            check_pair(&devices[d], float_forms[f], 67, 40, 131, true);
        }
}

TEST(a_head_in_chunks_gives_what_its_two_ops_give)
{
    test_device devices[MAX_TEST_DEVICES];
    int count = test_devices(devices);
    CHECK(sl_head_chunk_rows(1100, 5000) < 1100);
    for (int d = count > 1 ? count - 2 : 0; d < count; d++) /* two: a path of the CPU is among them */
        for (int f = 0; f < FLOAT_FORMS; f++) {
            check_pair(&devices[d], float_forms[f], 1100, 33, 5000, false);
            check_pair(&devices[d], float_forms[f], 1100, 33, 5000, true);
        }
}

TEST(chunks_follow_from_the_shape)
{
    CHECK_EQ(sl_head_chunk_rows(1, 10), 1);
    CHECK_EQ(sl_head_chunk_rows(4096, 256), 4096);
    CHECK_EQ(sl_head_chunk_rows(256, 1 << 30), 256);
    CHECK_EQ(sl_head_chunk_rows(4096, 50257), 256);
    CHECK_EQ(sl_head_chunk_rows(257, 50257), 160);
    for (int64_t rows = 1; rows < 3000; rows += 7) {
        int64_t chunk = sl_head_chunk_rows(rows, 30000);
        CHECK(chunk >= 1 && chunk <= 256 && chunk <= rows + SL_HEAD_UNIT);
    }
}

/* ---- edges ---- */

TEST(a_head_whose_targets_are_all_ignored_has_loss_and_gradients_zero)
{
    test_device devices[MAX_TEST_DEVICES];
    int count = test_devices(devices);
    for (int d = 0; d < count * FLOAT_FORMS; d++) {
        head h;
        make_head(&h, float_forms[d / count], 9, 5, 20);
        h.biased = true;
        for (int i = 0; i < 9; i++) test_indices(&h.image, h.targets)[i] = IGNORED;
        sl_call call = fused(&h, &training);
        REQUIRE_OK(test_run(&devices[d % count], &h.image, &call, 1));
        CHECK(test_floats(&h.image, h.loss)[0] == 0.0f && test_floats(&h.image, h.count)[0] == 0.0f);
        for (int i = 0; i < 100; i++) CHECK(test_floats(&h.image, h.dw)[i] == 0.0f);
        for (int i = 0; i < 20; i++) CHECK(test_floats(&h.image, h.dbias)[i] == 0.0f);
        for (int i = 0; i < 45; i++) CHECK(test_number(&h.image, h.dx, h.form, i) == 0.0);
        test_image_free(&h.image);
    }
}

/* As the engine runs a micro-batch without targets: the quotient of dloss and seed is 0 / 0. */
TEST(a_head_seeded_with_zero_has_gradients_zero)
{
    static sl_run_context unseeded = { .seed = 3, .step = 1, .training = true, .seed_gradient = 0 };
    test_device devices[MAX_TEST_DEVICES];
    int count = test_devices(devices);
    for (int d = 0; d < count * FLOAT_FORMS; d++) {
        head h;
        make_head(&h, float_forms[d / count], 9, 5, 20);
        for (int i = 0; i < 9; i++) test_indices(&h.image, h.targets)[i] = IGNORED;
        test_floats(&h.image, h.dloss)[0] = 0;
        h.biased = true;
        sl_call calls[2] = { fused(&h, &unseeded),
                             { .op = SL_OP_LINEAR_CROSS_ENTROPY_GRAD,
                               .attrs = &attrs,
                               .context = &unseeded,
                               .name = "head gradient",
                               .input_count = 4,
                               .inputs = { h.dw, h.dx, h.dloss, h.dbias },
                               .input_forms = { SL_FORM_F32, h.form, SL_FORM_F32, SL_FORM_F32 },
                               .input_shapes = { &h.w_shape, &h.x_shape, &scalar, &h.classes },
                               .output_count = 3,
                               .outputs = { h.pair_dw, h.pair_dx, h.pair_dbias },
                               .output_forms = { SL_FORM_F32, h.form, SL_FORM_F32 },
                               .output_shapes = { &h.w_shape, &h.x_shape, &h.classes } } };
        REQUIRE_OK(test_run(&devices[d % count], &h.image, calls, 2));
        for (int i = 0; i < 100; i++) CHECK(test_floats(&h.image, h.pair_dw)[i] == 0.0f);
        for (int i = 0; i < 45; i++) CHECK(test_number(&h.image, h.pair_dx, h.form, i) == 0.0);
        for (int i = 0; i < 20; i++) CHECK(test_floats(&h.image, h.pair_dbias)[i] == 0.0f);
        test_image_free(&h.image);
    }
}

TEST(a_head_with_a_target_that_is_no_class_makes_the_loss_and_its_row_nan)
{
    const int32_t bad[] = { 20, -2, INT32_MAX, INT32_MIN };
    test_device devices[MAX_TEST_DEVICES];
    int count = test_devices(devices);
    for (int d = 0; d < count; d++)
        for (int k = 0; k < 4 * FLOAT_FORMS; k++) {
            head h;
            make_head(&h, float_forms[k / 4], 9, 5, 20);
            test_indices(&h.image, h.targets)[2] = bad[k % 4];
            sl_call call = fused(&h, &training);
            REQUIRE_OK(test_run(&devices[d], &h.image, &call, 1));
            CHECK(isnan(test_floats(&h.image, h.loss)[0]));
            for (int i = 0; i < 45; i++) {
                double gradient = test_number(&h.image, h.dx, h.form, i);
                CHECK(i / 5 == 2 ? isnan(gradient) : isfinite(gradient));
            }
            test_image_free(&h.image);
        }
}

TEST(a_head_in_evaluation_makes_no_gradients)
{
    test_device devices[MAX_TEST_DEVICES];
    int count = test_devices(devices);
    for (int d = 0; d < count * FLOAT_FORMS; d++) {
        head h;
        sl_call calls[3];
        make_head(&h, float_forms[d / count], 9, 5, 20);
        h.biased = true;
        calls[0] = fused(&h, &evaluation);
        REQUIRE_OK(test_run(&devices[d % count], &h.image, calls, 1));
        CHECK(is_poison(&h, h.dw, SL_FORM_F32) && is_poison(&h, h.dx, h.form) && is_poison(&h, h.dbias, SL_FORM_F32));
        float loss = test_floats(&h.image, h.loss)[0];
        calls[0] = fused(&h, &training);
        for (int i = 2; i < 5; i++) test_leave_out(&calls[0], i);
        REQUIRE_OK(test_run(&devices[d % count], &h.image, calls, 1));
        CHECK(is_poison(&h, h.dw, SL_FORM_F32) && is_poison(&h, h.dx, h.form) && is_poison(&h, h.dbias, SL_FORM_F32));
        CHECK(test_floats(&h.image, h.loss)[0] == loss && isfinite(loss));
        test_image_free(&h.image);
    }
}

/* Nothing else is wanted: the weight and the layers below are frozen. */
TEST(a_head_of_which_only_the_bias_learns_makes_its_gradient_alone)
{
    test_device devices[MAX_TEST_DEVICES];
    int count = test_devices(devices);
    for (int d = 0; d < count * FLOAT_FORMS; d++) {
        head h;
        sl_call calls[6];
        make_head(&h, float_forms[d / count], 9, 5, 20);
        h.biased = true;
        calls[0] = fused(&h, &training);
        for (int i = 2; i < 4; i++) test_leave_out(&calls[0], i);
        pair(&h, calls + 1);
        REQUIRE_OK(test_run(&devices[d % count], &h.image, calls, 6));
        CHECK(is_poison(&h, h.dw, SL_FORM_F32) && is_poison(&h, h.dx, h.form));
        check_gradient(&devices[d % count], &h, SL_FORM_F32, h.dbias, h.pair_dbias, true);
        test_image_free(&h.image);
    }
}

TEST(a_head_without_enough_workspace_is_refused)
{
    head h;
    sl_device *d;
    make_head(&h, SL_FORM_F32, 9, 5, 20);
    sl_call call = fused(&h, &training);
    CHECK_EQ(sl_cpu_backend.workspace(&call), 9 * 20 * 4);
    REQUIRE_OK(sl_cpu_backend.open(&(sl_device_options){ .threads = 1 }, &d));
    REQUIRE_OK(sl_cpu_backend.reserve(d, SL_TIER_DEVICE, h.image.size));
    CHECK_EQ(sl_cpu_backend.run(d, SL_STREAM_COMPUTE, &call), SLUICE_ERR_FAILED);
    CHECK(strstr(sluice_error(), "workspace") != NULL);
    sl_cpu_backend.close(d);
    test_image_free(&h.image);
}

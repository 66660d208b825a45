/* edge_test.c: what kernels do with bad indices, NaN, infinities and random masks. Every test runs on all device
 * variants. */
#include <string.h>

#include "core/rng.h"
#include "harness.h"
#include "test.h"

#define ROWS    5
#define CLASSES 20

static const sl_shape scalar = { .rank = 0 };
static const sl_shape rows = { .rank = 1, .dim = { ROWS } };
static const sl_shape logits_shape = { .rank = 2, .dim = { ROWS, CLASSES } };

static sl_run_context context = { .seed = 3, .step = 1, .training = true, .seed_gradient = 1.0f };

/* ---- Cross entropy followed by its gradient ---- */

typedef struct entropy {
    test_image image;
    sl_attrs attrs;
    sl_span logits, targets, loss, lse, count, dloss, dlogits;
} entropy;

static void make_entropy(entropy *e, const int32_t targets[ROWS])
{
    test_random r = { .state = 1 };
    *e = (entropy){ .attrs = { .cross_entropy = { -100 } } };
    e->logits = test_image_add(&e->image, ROWS * CLASSES);
    e->targets = test_image_add(&e->image, ROWS);
    e->lse = test_image_add(&e->image, ROWS);
    e->loss = test_image_add(&e->image, 1);
    e->count = test_image_add(&e->image, 1);
    e->dloss = test_image_add(&e->image, 1);
    e->dlogits = test_image_add(&e->image, ROWS * CLASSES);
    for (int i = 0; i < ROWS * CLASSES; i++) test_floats(&e->image, e->logits)[i] = (float)test_uniform(&r, -1, 1);
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
          .input_shapes = { &logits_shape, &rows, &rows, &scalar, &scalar },
          .output_count = 1,
          .outputs = { e->dlogits },
          .output_shapes = { &logits_shape } },
    };
    return test_run(device, &e->image, calls, 2);
}

TEST(a_target_that_is_no_class_makes_the_loss_and_its_row_nan)
{
    const int32_t bad[] = { CLASSES, -1, INT32_MAX, INT32_MIN };
    test_device devices[MAX_TEST_DEVICES];
    int count = test_devices(devices);
    for (int d = 0; d < count; d++)
        for (int k = 0; k < 4; k++) {
            entropy e;
            make_entropy(&e, (int32_t[ROWS]){ 1, bad[k], -100, 3, 19 });
            REQUIRE_OK(run_entropy(&devices[d], &e));
            const float *gradient = test_floats(&e.image, e.dlogits);
            CHECK(isnan(test_floats(&e.image, e.loss)[0]));
            for (int i = 0; i < ROWS * CLASSES; i++)
                CHECK(i / CLASSES == 1 ? isnan(gradient[i]) : isfinite(gradient[i]));
            test_image_free(&e.image);
        }
}

TEST(a_batch_whose_targets_are_all_ignored_has_loss_and_gradient_zero)
{
    test_device devices[MAX_TEST_DEVICES];
    int count = test_devices(devices);
    for (int d = 0; d < count; d++) {
        entropy e;
        make_entropy(&e, (int32_t[ROWS]){ -100, -100, -100, -100, -100 });
        test_floats(&e.image, e.logits)[7] = NAN; /* padding may hold anything */
        REQUIRE_OK(run_entropy(&devices[d], &e));
        CHECK(test_floats(&e.image, e.loss)[0] == 0.0f && test_floats(&e.image, e.count)[0] == 0.0f);
        for (int i = 0; i < ROWS * CLASSES; i++) CHECK(test_floats(&e.image, e.dlogits)[i] == 0.0f);
        test_image_free(&e.image);
    }
}

/* ---- One op with inputs given as arrays ---- */

/* Runs `call` with its operands laid out: inputs copied from data[], the output into out[]. */
static sluice_status run_one(const test_device *device, sl_call *call, const void *const data[], float *out)
{
    test_image image = { 0 };
    call->context = &context;
    for (int i = 0; i < call->input_count; i++) {
        call->inputs[i] = test_image_add(&image, sl_shape_elements(call->input_shapes[i]));
        memcpy(image.bytes + call->inputs[i].offset, data[i], call->inputs[i].bytes);
    }
    for (int i = 0; i < call->output_count; i++)
        call->outputs[i] = test_image_add(&image, sl_shape_elements(call->output_shapes[i]));
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

TEST(nan_passes_through_activations_and_rows)
{
    const sl_op ops[] = { SL_OP_RELU, SL_OP_GELU, SL_OP_SILU, SL_OP_SCALE, SL_OP_SOFTMAX, SL_OP_SUM };
    const sl_shape shape = { 1, { 21 } };
    const sl_attrs attrs = { .scale = { 0.5f } };
    test_device devices[MAX_TEST_DEVICES];
    int count = test_devices(devices);
    for (int d = 0; d < count; d++)
        for (int k = 0; k < 6; k++) {
            float x[21] = { 0 }, y[21];
            x[19] = NAN;
            bool reduces = ops[k] == SL_OP_SUM;
            sl_call call = { .op = ops[k],
                             .attrs = &attrs,
                             .input_count = 1,
                             .output_count = 1,
                             .name = "nan",
                             .input_shapes = { &shape },
                             .output_shapes = { reduces ? &scalar : &shape } };
            REQUIRE_OK(run_one(&devices[d], &call, (const void *[]){ x }, y));
            if (!isnan(y[reduces ? 0 : 19])) test_fail(__FILE__, __LINE__, "%s loses NaN", sl_ops[ops[k]].name);
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

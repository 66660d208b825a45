/* rotary_test.c: what holds of rotary embeddings beyond their formula, on every device: an angle depends on its position
 * alone. So given positions 0, 1, .. change no bit, nor does the place of a document in its row, and positions far beyond
 * the row's length are right. */
#include <string.h>

#include "support/op_harness.h"
#include "test.h"

enum { ROW = 40, HEAD = 16, TOKENS = 50 };

static const sl_run_context context = { .step = 1 };
static const sl_shape one_row = { .rank = 3, .dim = { 1, TOKENS, ROW } };
static const sl_shape one_place = { .rank = 2, .dim = { 1, TOKENS } };
static const sl_attrs plain = { .rotary = { .heads = 2, .head_width = HEAD, .base = 1e4f } };

typedef struct rotated {
    test_image image;
    sl_call call;
} rotated;

/* x is the same numbers for every call; `positions` NULL: none are given. */
static rotated rotate(const test_device *device, const sl_attrs *attrs, const int32_t *positions)
{
    rotated r = { .call = { .op = SL_OP_ROTARY, .attrs = attrs, .input_count = 1, .output_count = 1 } };
    test_random random = { .state = 5 };
    r.call.name = "rotary";
    r.call.context = &context;
    r.call.inputs[0] = test_image_add(&r.image, TOKENS * ROW);
    r.call.input_shapes[0] = r.call.output_shapes[0] = &one_row;
    for (int c = 0; c < ROW; c++) { /* all tokens are alike */
        double x = test_uniform(&random, -1, 1);
        for (int t = 0; t < TOKENS; t++) test_floats(&r.image, r.call.inputs[0])[t * ROW + c] = (float)x;
    }
    if (positions != NULL) {
        r.call.input_count = 2;
        r.call.inputs[1] = test_image_add(&r.image, TOKENS);
        r.call.input_shapes[1] = &one_place;
        r.call.input_forms[1] = SL_FORM_I32;
        memcpy(test_indices(&r.image, r.call.inputs[1]), positions, TOKENS * sizeof *positions);
    }
    r.call.outputs[0] = test_image_add(&r.image, TOKENS * ROW);
    sluice_status st = test_run(device, &r.image, &r.call, 1);
    CHECK_THAT(st == SLUICE_OK, "%s: %s", device->name, sluice_error());
    return r;
}

static const float *row_of(const rotated *r, int token)
{
    return test_floats(&r->image, r->call.outputs[0]) + token * ROW;
}

TEST(positions_from_0_on_change_no_bit_of_a_rotation)
{
    test_device devices[MAX_TEST_DEVICES];
    int32_t positions[TOKENS];
    for (int t = 0; t < TOKENS; t++) positions[t] = t;
    for (int i = 0, count = test_devices(devices); i < count; i++) {
        rotated without = rotate(&devices[i], &plain, NULL), with = rotate(&devices[i], &plain, positions);
        CHECK_THAT(memcmp(row_of(&without, 0), row_of(&with, 0), sizeof(float) * TOKENS * ROW) == 0, "%s",
                   devices[i].name);
        test_image_free(&without.image);
        test_image_free(&with.image);
    }
}

TEST(a_position_is_rotated_alike_wherever_in_the_row_it_stands)
{
    test_device devices[MAX_TEST_DEVICES];
    int32_t positions[TOKENS], left = 0;
    test_random random = { .state = 3 };
    for (int t = 0; t < TOKENS; t++, left--) {
        bool begins = left == 0;
        if (begins) left = (int32_t)test_uniform(&random, 1, 23);
        positions[t] = begins ? 0 : positions[t - 1] + (t % 11 == 7 ? 2 : 1);
    }
    for (int i = 0, count = test_devices(devices); i < count; i++) {
        rotated without = rotate(&devices[i], &plain, NULL), with = rotate(&devices[i], &plain, positions);
        for (int t = 0; t < TOKENS; t++)
            CHECK_THAT(memcmp(row_of(&without, positions[t]), row_of(&with, t), sizeof(float) * ROW) == 0,
                       "%s: token %d at position %d", devices[i].name, t, positions[t]);
        test_image_free(&without.image);
        test_image_free(&with.image);
    }
}

/* Far from 0, where f32 would have lost the fraction of a turn, and below 0. */
TEST(positions_far_beyond_the_row_are_right)
{
    test_device devices[MAX_TEST_DEVICES];
    static const int32_t some[] = { 1 << 20, (1 << 20) + 1, -1, -17, -16, INT32_MAX, INT32_MIN, 131071 };
    int32_t positions[TOKENS];
    for (int t = 0; t < TOKENS; t++) positions[t] = some[t % 8] - (t >= 8 && some[t % 8] > 0 ? t : 0);
    for (int i = 0, count = test_devices(devices); i < count; i++) {
        rotated r = rotate(&devices[i], &plain, positions);
        const float *x = test_floats(&r.image, r.call.inputs[0]);
        for (int t = 0; t < TOKENS; t++)
            for (int p = 0; p < HEAD / 2; p++) {
                double angle = (double)positions[t] * pow(1e4, -2.0 * p / HEAD);
                double expected = (double)x[p] * cos(angle) - (double)x[p + HEAD / 2] * sin(angle);
                CHECK_NEAR(row_of(&r, t)[p], expected, 3e-6);
            }
        test_image_free(&r.image);
    }
}

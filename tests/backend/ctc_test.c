/* ctc_test.c: CTC loss held to what it is by definition: the sum over every way through the frames, one by one. And what the
 * reference's plain probabilities cannot show: losses without a way, labels that are none, sequences whose probability is
 * beyond a double. */
#include <math.h>
#include <string.h>

#include "support/op_harness.h"
#include "test.h"

static const sl_run_context training = { .seed = 1, .step = 1, .training = true, .seed_gradient = 1.0f };

typedef struct ctc_problem {
    int64_t batch, frames, classes, most_labels;
    int32_t blank;
    bool zero_infinity;
    const float *logits;
    const int32_t *labels, *lengths;
} ctc_problem;

/* Runs a problem in f32: the loss, and the gradient of [B,T,V]. */
static void run_ctc(const test_device *device, const ctc_problem *p, float *loss, float *gradient)
{
    const sl_shape x = { .rank = 3, .dim = { p->batch, p->frames, p->classes } };
    const sl_shape labels = { .rank = 2, .dim = { p->batch, p->most_labels } };
    const sl_shape rows = { .rank = 1, .dim = { p->batch } }, scalar = { .rank = 0 };
    const sl_attrs attrs = { .ctc = { .blank = p->blank, .zero_infinity = p->zero_infinity } };
    const int64_t count = p->batch * p->frames * p->classes;
    test_image image = { 0 };
    sl_call call = { .op = SL_OP_CTC_LOSS, .input_count = 3, .output_count = 2, .name = "ctc", .attrs = &attrs };
    call.context = &training;
    const sl_shape *in[] = { &x, &labels, &rows }, *out[] = { &scalar, &x };
    const sl_form forms[] = { SL_FORM_F32, SL_FORM_I32, SL_FORM_I32 };
    for (int i = 0; i < 3; i++) {
        call.input_shapes[i] = in[i];
        call.input_forms[i] = forms[i];
        call.inputs[i] = test_image_add_form(&image, sl_shape_elements(in[i]), forms[i]);
    }
    for (int i = 0; i < 2; i++) {
        call.output_shapes[i] = out[i];
        call.output_forms[i] = SL_FORM_F32;
        call.outputs[i] = test_image_add(&image, sl_shape_elements(out[i]));
    }
    memcpy(test_floats(&image, call.inputs[0]), p->logits, (size_t)count * sizeof(float));
    memcpy(test_indices(&image, call.inputs[1]), p->labels, (size_t)(p->batch * p->most_labels) * sizeof(int32_t));
    memcpy(test_indices(&image, call.inputs[2]), p->lengths, (size_t)p->batch * sizeof(int32_t));
    REQUIRE_OK(test_run(device, &image, &call, 1));
    *loss = *test_floats(&image, call.outputs[0]);
    memcpy(gradient, test_floats(&image, call.outputs[1]), (size_t)count * sizeof(float));
    test_image_free(&image);
}

/* ---- every way, one by one ---- */

enum { FRAMES = 5, CLASSES = 4, MOST = 3 };

/* Whether a class for each frame reads as the labels: repetitions as one, without blanks. */
static bool reads_as(const int *way, int frames, int32_t blank, const int32_t *labels)
{
    int at = 0;
    for (int f = 0; f < frames; f++) {
        if (way[f] == blank || (f > 0 && way[f] == way[f - 1])) continue;
        if (at == MOST || labels[at] != way[f]) return false;
        at++;
    }
    return at == MOST || labels[at] < 0;
}

/* p(labels), and in expected[f][class] its part whose ways have the class in frame f. */
static double sum_ways(const double p[FRAMES][CLASSES], int frames, int32_t blank, const int32_t *labels,
                       double expected[FRAMES][CLASSES])
{
    int way[FRAMES] = { 0 };
    double total = 0;
    memset(expected, 0, FRAMES * sizeof *expected);
    for (;;) {
        double product = reads_as(way, frames, blank, labels) ? 1 : 0;
        for (int f = 0; f < frames; f++) product *= p[f][way[f]];
        for (int f = 0; f < frames; f++) expected[f][way[f]] += product;
        total += product;
        int f = 0;
        while (f < frames && ++way[f] == CLASSES) way[f++] = 0;
        if (f == frames) return total;
    }
}

static void softmax_frames(const float *x, double p[FRAMES][CLASSES])
{
    for (int f = 0; f < FRAMES; f++) {
        double sum = 0;
        for (int c = 0; c < CLASSES; c++) sum += exp((double)x[f * CLASSES + c]);
        for (int c = 0; c < CLASSES; c++) p[f][c] = exp((double)x[f * CLASSES + c]) / sum;
    }
}

static void check_ways(const test_device *device, int32_t blank, int frames, const int32_t *labels)
{
    float x[FRAMES * CLASSES], loss, gradient[FRAMES * CLASSES];
    double p[FRAMES][CLASSES], expected[FRAMES][CLASSES];
    test_random r = { .state = (uint64_t)(blank * 100 + frames) };
    for (int i = 0; i < FRAMES * CLASSES; i++) x[i] = (float)test_uniform(&r, -2, 2);
    softmax_frames(x, p);
    const double total = sum_ways(p, frames, blank, labels, expected);
    int count = 0;
    while (count < MOST && labels[count] >= 0) count++;
    const double each = count > 0 ? count : 1;
    const int32_t length = frames;
    const ctc_problem problem = { 1, FRAMES, CLASSES, MOST, blank, false, x, labels, &length };
    run_ctc(device, &problem, &loss, gradient);
    if (total == 0) {
        CHECK(isinf(loss) && loss > 0);
        return;
    }
    CHECK_NEAR((double)loss, -log(total) / each, 1e-5);
    for (int f = 0; f < FRAMES; f++)
        for (int c = 0; c < CLASSES; c++) {
            double want = f < frames ? (p[f][c] - expected[f][c] / total) / each : 0;
            CHECK_NEAR((double)gradient[f * CLASSES + c], want, 2e-6);
        }
}

TEST(ctc_loss_and_gradient_are_those_of_all_ways_one_by_one)
{
    static const int32_t relative[][MOST] = { { 1, 2, 3 },   { 1, 1, 2 },  { 2, 2, 2 },  { 1, 2, 1 },
                                              { 3, -1, -1 }, { 2, 2, -1 }, { 1, 3, -1 }, { -1, -1, -1 } };
    test_device devices[MAX_TEST_DEVICES];
    int count = test_devices(devices);
    for (int d = 0; d < count; d++)
        for (int blank = 0; blank < CLASSES; blank++)
            for (size_t i = 0; i < sizeof relative / sizeof relative[0]; i++) {
                int32_t labels[MOST];
                for (int k = 0; k < MOST; k++) labels[k] = relative[i][k] < 0 ? -1 : (blank + relative[i][k]) % CLASSES;
                for (int frames = 1; frames <= FRAMES; frames += 2) check_ways(&devices[d], blank, frames, labels);
            }
}

/* ---- beyond ways ---- */

TEST(ctc_loss_without_a_way_is_infinite_or_passed_over_and_a_label_that_is_none_is_not_a_number)
{
    test_device devices[MAX_TEST_DEVICES];
    int count = test_devices(devices);
    float x[2 * 3 * CLASSES] = { 0.5f, -1.0f }, loss, gradient[2 * 3 * CLASSES];
    for (int d = 0; d < count; d++)
        for (int zero = 0; zero < 2; zero++) {
            const int32_t impossible[] = { 1, 1, 2, 3, -1, -1 }, unknown[] = { 1, CLASSES, -1, 3, -1, -1 };
            const int32_t lengths[] = { 3, 3 };
            ctc_problem p = { 2, 3, CLASSES, MOST, 0, zero == 1, x, impossible, lengths };
            run_ctc(&devices[d], &p, &loss, gradient);
            CHECK(zero == 1 ? isfinite(loss) : isinf(loss));
            for (int i = 0; i < 3 * CLASSES; i++) CHECK(zero == 1 ? gradient[i] == 0 : isnan(gradient[i]));
            for (int i = 3 * CLASSES; i < 6 * CLASSES; i++) CHECK(isfinite(gradient[i]));
            p.labels = unknown;
            run_ctc(&devices[d], &p, &loss, gradient);
            CHECK(isnan(loss) && isnan(gradient[0]));
            for (int i = 3 * CLASSES; i < 6 * CLASSES; i++) CHECK(isfinite(gradient[i]));
        }
}

TEST(ctc_loss_is_not_a_number_where_a_logit_is_not_one_and_frames_behind_the_end_do_not_count)
{
    test_device devices[MAX_TEST_DEVICES];
    int count = test_devices(devices);
    const int32_t labels[] = { 1, 2, -1 }, lengths[] = { 2 };
    float loss, gradient[3 * CLASSES];
    for (int d = 0; d < count; d++)
        for (int frame = 1; frame < 3; frame++) {
            float x[3 * CLASSES] = { 0 };
            x[frame * CLASSES + 3] = NAN;
            const ctc_problem p = { 1, 3, CLASSES, MOST, 0, true, x, labels, lengths };
            run_ctc(&devices[d], &p, &loss, gradient);
            CHECK(frame == 1 ? isnan(loss) : isfinite(loss));
            for (int i = 2 * CLASSES; i < 3 * CLASSES; i++) CHECK(gradient[i] == 0);
        }
}

/* A probability of e^-2,772 is beyond a double: of 2,000 frames with four equal classes each, all ways count the same, so that
 * what they expect of a class sums to 1 in each frame, and the loss follows from their number: with one label of n frames
 * there are n (n + 1) / 2. */
TEST(ctc_loss_of_a_long_sequence_loses_nothing)
{
    enum { LONG = 2000 };
    static float x[LONG * CLASSES], gradient[LONG * CLASSES];
    test_device devices[MAX_TEST_DEVICES];
    int count = test_devices(devices);
    const int32_t label = 2, length = LONG;
    const double want = LONG * log(CLASSES) - log((double)LONG * (LONG + 1) / 2);
    for (int d = 0; d < count; d++) {
        const ctc_problem p = { 1, LONG, CLASSES, 1, 0, false, x, &label, &length };
        float loss;
        run_ctc(&devices[d], &p, &loss, gradient);
        CHECK_NEAR((double)loss, want, 1e-6 * want);
        for (int64_t f = 0; f < LONG; f += 37) {
            double ways = (double)(f + 1) * (double)(LONG - f), all = (double)LONG * (LONG + 1) / 2;
            CHECK_NEAR((double)gradient[f * CLASSES + 2], 0.25 - ways / all, 2e-4);
            CHECK_NEAR((double)gradient[f * CLASSES + 0], 0.25 - (1 - ways / all), 2e-4);
            CHECK_NEAR((double)gradient[f * CLASSES + 1], 0.25, 1e-6);
        }
    }
}

/* divided_norm_test.c: the ops of batch norms over ranks, on every device variant: R ranks that divide samples among themselves have
 * the statistics, and give the gradients, of one rank with all of them, bit for bit. */
#include <string.h>

#include "core/sample_tree.h"
#include "support/op_harness.h"
#include "test.h"

enum { SAMPLES = 12, MOST_ELEMENTS = SAMPLES * 400 * 24, MOST_CHANNELS = 40, MOST_NODES = 4 * 8 * 2 * MOST_CHANNELS };

/* Operands of all samples, and what is made of them. */
typedef struct numbers {
    double x[MOST_ELEMENTS], dy[MOST_ELEMENTS], weight[MOST_CHANNELS], bias[MOST_CHANNELS];
    double nodes[MOST_NODES], mean[MOST_CHANNELS], rstd[MOST_CHANNELS];
    double y[MOST_ELEMENTS], dx[MOST_ELEMENTS], dweight[MOST_CHANNELS], dbias[MOST_CHANNELS];
} numbers;

typedef struct division {
    const test_device *device;
    sl_form form;
    sl_shape x; /* of a rank */
    int ranks, rank;
    int64_t rows, width; /* rows of a sample */
    numbers *n;
} division;

typedef struct operand {
    double *numbers;
    sl_shape shape;
    sl_form form;
} operand;

static operand rows_of_rank(const division *d, double *all)
{
    return (operand){ all + d->rank * d->x.dim[0] * d->rows * d->width, d->x, d->form };
}

static operand channels(const division *d, double *all, sl_form form)
{
    return (operand){ all, { .rank = 1, .dim = { d->width } }, form };
}

static operand nodes(const division *d)
{
    const int64_t room = sl_sample_nodes(d->x.dim[0], d->ranks);
    return (operand){ d->n->nodes, { .rank = 4, .dim = { d->ranks, room, SL_NODE_ROWS, d->width } }, SL_FORM_F32 };
}

/* Runs one op. Of what `gathers` only the part of the rank is taken. */
static void run_op(const division *d, sl_op op, const operand *in, int inputs, operand *out, int outputs)
{
    const sl_attrs attrs = { .batch_norm = { .epsilon = 1e-5f, .relu = true, .all_ranks = true, .ranks = d->ranks } };
    const sl_run_context context = { .training = true, .micro = (uint32_t)(d->ranks + d->rank) };
    test_image image = { 0 };
    sl_call call = { .op = op, .attrs = &attrs, .context = &context, .name = sl_ops[op].name };
    call.input_count = inputs;
    call.output_count = outputs;
    for (int i = 0; i < inputs; i++) {
        const int64_t count = sl_shape_elements(&in[i].shape);
        call.inputs[i] = test_image_add_form(&image, count, in[i].form);
        call.input_shapes[i] = &in[i].shape;
        call.input_forms[i] = in[i].form;
        for (int64_t e = 0; e < count; e++) test_set_number(&image, call.inputs[i], in[i].form, e, in[i].numbers[e]);
    }
    for (int i = 0; i < outputs; i++) {
        call.outputs[i] = test_image_add_form(&image, sl_shape_elements(&out[i].shape), out[i].form);
        call.output_shapes[i] = &out[i].shape;
        call.output_forms[i] = out[i].form;
    }
    REQUIRE_OK(test_run(d->device, &image, &call, 1));
    for (int i = 0; i < outputs; i++) {
        const bool part = i == 0 && sl_ops[op].gathers;
        const int64_t each = sl_shape_elements(&out[i].shape) / (part ? d->ranks : 1);
        for (int64_t e = part ? d->rank * each : 0, left = each; left > 0; e++, left--)
            out[i].numbers[e] = test_number(&image, call.outputs[i], out[i].form, e);
    }
    test_image_free(&image);
}

/* All ops of a norm and its gradient, each on every rank before the next. */
static void run_ranks(division *d)
{
    numbers *n = d->n;
    const operand w = channels(d, n->weight, d->form), b = channels(d, n->bias, d->form);
    const operand mean = channels(d, n->mean, SL_FORM_F32), rstd = channels(d, n->rstd, SL_FORM_F32);
    for (d->rank = 0; d->rank < d->ranks; d->rank++)
        run_op(d, SL_OP_BATCH_MOMENTS, (operand[]){ rows_of_rank(d, n->x) }, 1, (operand[]){ nodes(d) }, 1);
    d->rank = d->ranks - 1;
    run_op(d, SL_OP_BATCH_STATISTICS, (operand[]){ rows_of_rank(d, n->x), nodes(d) }, 2, (operand[]){ mean, rstd }, 2);
    for (d->rank = 0; d->rank < d->ranks; d->rank++) {
        const operand x = rows_of_rank(d, n->x), dy = rows_of_rank(d, n->dy);
        run_op(d, SL_OP_BATCH_NORMALIZE, (operand[]){ x, w, b, mean, rstd }, 5, (operand[]){ rows_of_rank(d, n->y) },
               1);
        run_op(d, SL_OP_BATCH_NORM_SUMS, (operand[]){ x, w, b, mean, rstd, dy }, 6, (operand[]){ nodes(d) }, 1);
    }
    double none[MOST_CHANNELS];
    for (d->rank = d->ranks - 1; d->rank >= 0; d->rank--) {
        const operand in[] = { rows_of_rank(d, n->x), w, b, mean, rstd, rows_of_rank(d, n->dy), nodes(d) };
        operand out[] = { rows_of_rank(d, n->dx), channels(d, d->rank == 0 ? n->dweight : none, SL_FORM_F32),
                          channels(d, d->rank == 0 ? n->dbias : none, SL_FORM_F32) };
        run_op(d, SL_OP_BATCH_NORMALIZE_GRAD, in, 7, out, 3);
        for (int64_t c = 0; c < d->width && d->rank > 0; c++) CHECK(none[c] == 0);
    }
}

static void check_equal(const division *d, const char *what, const double *a, const double *b, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        if (memcmp(&a[i], &b[i], sizeof a[i]) == 0) continue;
        test_fail(__FILE__, __LINE__, "%s, %s, %d ranks, %lld rows of %lld: %s [%lld] = %.9g, on one rank %.9g",
                  d->device->name, sl_form_name(d->form), d->ranks, (long long)d->rows, (long long)d->width, what,
                  (long long)i, a[i], b[i]);
        return;
    }
}

/* Numbers that the form holds, far from 0 in some channels. */
static void fill(division *d, numbers *n)
{
    test_random r = { .state = (uint64_t)(d->rows * 100 + d->width) };
    for (int64_t i = 0; i < SAMPLES * d->rows * d->width; i++) {
        n->x[i] = test_uniform(&r, -1.5, 1.5) + (double)(i % d->width % 3) * 4;
        n->dy[i] = test_uniform(&r, -1, 1);
    }
    for (int64_t c = 0; c < d->width; c++) {
        n->weight[c] = test_uniform(&r, 0.5, 1.5);
        n->bias[c] = test_uniform(&r, -1, 1);
    }
}

static void compare_divisions(const test_device *device, sl_form form, int64_t rows, int64_t width, numbers *one,
                              numbers *many)
{
    const int64_t all = SAMPLES * rows * width;
    for (int ranks = 1; ranks <= 4; ranks++) {
        numbers *n = ranks == 1 ? one : many;
        division d = { .device = device, .form = form, .ranks = ranks, .rows = rows, .width = width, .n = n };
        d.x = (sl_shape){ .rank = 3, .dim = { SAMPLES / ranks, rows, width } };
        fill(&d, n);
        run_ranks(&d);
        check_equal(&d, "mean", n->mean, one->mean, width);
        check_equal(&d, "rstd", n->rstd, one->rstd, width);
        check_equal(&d, "y", n->y, one->y, all);
        check_equal(&d, "dx", n->dx, one->dx, all);
        check_equal(&d, "dweight", n->dweight, one->dweight, width);
        check_equal(&d, "dbias", n->dbias, one->dbias, width);
    }
}

TEST(the_division_of_samples_over_ranks_changes_no_bit_of_a_batch_norm)
{
    static const sl_form forms[] = { SL_FORM_F32, SL_FORM_BF16, SL_FORM_F16 };
    static const int64_t shapes[][2] = { { 1, 40 }, { 7, 3 }, { 400, 24 } }; /* the last: several parts of a sample */
    test_device devices[MAX_TEST_DEVICES];
    const int count = test_devices(devices);
    numbers *n = calloc(2, sizeof *n);
    REQUIRE(n != NULL);
    for (int i = 0; i < count; i++)
        for (int f = 0; f < 3; f++)
            for (int s = 0; s < 3; s++)
                compare_divisions(&devices[i], forms[f], shapes[s][0], shapes[s][1], &n[0], &n[1]);
    free(n);
}

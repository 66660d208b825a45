/* head.c: the GEMM with the output head, its cross entropy and their gradients in one go, chunk by chunk of rows.
 *
 * Rows are independent, and once it is known how many of them count, a row's gradient follows from its logits alone. So
 * the logits of a chunk are made, turned into their gradient where they lie, multiplied into dx and added to dw and
 * dbias, and the next chunk takes their place. Logits and their gradient are rounded to the element type as the two ops
 * apart would round them: loss and dx have those ops' bits, dw is a sum of one GEMM per chunk and dbias one of the
 * chunks' sums. */
#include "backend/cpu/kernels/column_sum.h"
#include "backend/cpu/kernels/entropy.h"
#include "backend/cpu/kernels/head_chunk.h"
#include "backend/cpu/kernels/strided_gemm.h"

typedef struct head {
    const sl_kernel_args *a;
    const int32_t *targets;
    elem *logits; /* of the chunk at hand; then their gradient */
    int64_t rows, in, classes;
    int64_t first, count; /* the chunk at hand */
    int64_t rows_per_task;
    int32_t ignore_index;
    entropy_rule rule;
    const sl_tensor *bias;            /* [classes]; NULL: none */
    const sl_tensor *dw, *dx, *dbias; /* NULL: not wanted */
    bool wanted;                      /* some gradient is */
    float gradient;                   /* seed / rows that count */
    double losses[SL_SUM_PARTS];      /* of the chunk, task by task */
} head;

/* ---- rows ---- */

static int64_t count_targets(const head *h)
{
    int64_t count = 0;
    for (int64_t row = 0; row < h->rows; row++) count += h->targets[row] != h->ignore_index;
    return count;
}

/* Loss of a row of the chunk; its logits become their gradient. */
static double take_row(const head *h, int64_t row)
{
    elem *x = h->logits + row * h->classes;
    int32_t target = h->targets[h->first + row];
    if (target == h->ignore_index) {
        memset(x, 0, (size_t)h->classes * sizeof *x);
        return 0.0;
    }
    float lse = entropy_row_lse(x, h->classes, h->rule.cap);
    double loss = entropy_row_loss(x, h->classes, lse, target, h->rule);
    if (h->wanted) entropy_row_gradient(x, x, h->classes, lse, target, h->gradient, h->rule);
    return loss;
}

static void rows_task(void *context, int64_t task, void *scratch)
{
    head *h = context;
    const sl_slice r = sl_task_range(task, h->rows_per_task, h->count);
    double loss = 0.0;
    (void)scratch;
    for (int64_t row = r.begin; row < r.end; row++) loss += take_row(h, row);
    h->losses[task] = loss;
}

/* ---- GEMMs of a chunk ---- */

static sl_matrix chunk_logits(const head *h)
{
    return (sl_matrix){ h->logits, h->classes, 1, h->a->in[0].form };
}

static sl_matrix chunk_input(const head *h)
{
    sl_matrix x = sl_rows_of(&h->a->in[0], h->in);
    x.data = sl_matrix_at(x, h->first, 0);
    return x;
}

/* logits[count, classes] = x w^T + bias */
static void make_logits(const head *h)
{
    sl_gemm g = { .m = h->count, .n = h->classes, .k = h->in };
    g.a = chunk_input(h);
    g.b = sl_transposed(sl_rows_of(&h->a->in[1], h->in));
    g.c = h->logits;
    g.c_form = h->a->in[0].form;
    g.c_row = h->classes;
    if (h->bias != NULL) {
        g.bias = h->bias->data;
        g.bias_form = h->bias->form;
    }
    sl_multiply(h->a, &g);
}

/* dw[classes, in] (+)= dlogits^T x */
static void add_weight_gradient(const head *h)
{
    sl_gemm g = { .m = h->classes, .n = h->in, .k = h->count };
    g.a = sl_transposed(chunk_logits(h));
    g.b = chunk_input(h);
    g.c = h->dw->data;
    g.c_form = h->dw->form;
    g.c_row = h->in;
    g.accumulate = h->first > 0;
    sl_multiply(h->a, &g);
}

/* dx[count, in] = dlogits w */
static void make_input_gradient(const head *h)
{
    const sl_tensor *dx = h->dx;
    sl_gemm g = { .m = h->count, .n = h->in, .k = h->classes };
    g.a = chunk_logits(h);
    g.b = sl_rows_of(&h->a->in[1], h->in);
    g.c = (char *)dx->data + h->first * h->in * sl_float_bytes(dx->form);
    g.c_form = dx->form;
    g.c_row = h->in;
    sl_multiply(h->a, &g);
}

/* dbias[classes] (+)= the sum of dlogits over the rows */
static void add_bias_gradient(const head *h)
{
    const column_sum s = { h->logits, h->dbias, h->count, h->classes, h->first > 0 };
    sum_columns(h->a->pool, &s);
}

/* ---- the whole ---- */

static double take_chunk(head *h)
{
    make_logits(h);
    h->rows_per_task = sl_items_per_part(h->count, h->classes);
    const int64_t parts = sl_ceil_div(h->count, h->rows_per_task);
    sl_pool_run(h->a->pool, rows_task, h, parts);
    double loss = 0.0;
    for (int64_t i = 0; i < parts; i++) loss += h->losses[i];
    if (!h->wanted) return loss;
    if (h->dw != NULL) add_weight_gradient(h);
    if (h->dx != NULL) make_input_gradient(h);
    if (h->dbias != NULL) add_bias_gradient(h);
    return loss;
}

/* Output i; NULL: not wanted. */
static const sl_tensor *wanted_output(const sl_kernel_args *a, int i)
{
    return a->output_count > i && a->out[i].data != NULL ? &a->out[i] : NULL;
}

/* x[..,I], w[O,I], targets[..], bias[O]? -> loss, count, dw?, dx?, dbias? */
void K(linear_cross_entropy)(const sl_kernel_args *a)
{
    float *loss = a->out[0].data, *count = a->out[1].data;
    head h = { .a = a, .targets = a->in[2].data, .logits = a->workspace };
    h.ignore_index = a->attrs->cross_entropy.ignore_index;
    h.rule = entropy_rule_of(a->attrs);
    h.in = sl_row_width(&a->in[0]);
    h.rows = a->in[2].elements;
    h.classes = a->in[1].shape->dim[0];
    h.bias = a->input_count > 3 ? &a->in[3] : NULL;
    h.dw = wanted_output(a, 2);
    h.dx = wanted_output(a, 3);
    h.dbias = wanted_output(a, 4);
    h.wanted = a->context->training && (h.dw != NULL || h.dx != NULL || h.dbias != NULL);
    entropy_part total = { .count = count_targets(&h) };
    h.gradient = total.count > 0 ? a->context->seed_gradient / (float)total.count : 0.0f;
    const int64_t chunk = sl_head_chunk_rows(h.rows, h.classes);
    for (h.first = 0; h.first < h.rows; h.first += chunk) {
        h.count = sl_least(chunk, h.rows - h.first);
        total.loss += take_chunk(&h);
    }
    *loss = entropy_mean(total);
    if (count != NULL) *count = (float)total.count;
}

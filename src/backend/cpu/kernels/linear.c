/* linear.c: the ops that are matrix products, each as one call of gemm.h: operands are described by strides, never
 * transposed in memory. */
#include "backend/cpu/kernels/gemm.h"

static int64_t last_dim(const sl_tensor *t)
{
    return t->shape->rank > 0 ? t->shape->dim[t->shape->rank - 1] : 1;
}

static bool adds_to(const sl_kernel_args *a, int output)
{
    return (a->attrs->accumulate >> output & 1u) != 0;
}

/* w as a matrix of `out` rows and `in` columns, however it is stored. */
static sl_matrix weight_out_in(const sl_kernel_args *a, const float *w, int64_t out, int64_t in)
{
    return a->attrs->linear.in_out ? (sl_matrix){ w, 1, out } : (sl_matrix){ w, in, 1 };
}

static sl_matrix transposed(sl_matrix x)
{
    return (sl_matrix){ x.data, x.column, x.row };
}

/* x[T,I], w, bias[O]? -> y[T,O] */
void K(linear)(const sl_kernel_args *a)
{
    int64_t in = last_dim(&a->in[0]), out = last_dim(&a->out[0]);
    sl_gemm g = { .m = a->out[0].elements / out, .n = out, .k = in, .c = a->out[0].data, .c_row = out };
    g.a = (sl_matrix){ a->in[0].data, in, 1 };
    g.b = transposed(weight_out_in(a, a->in[1].data, out, in));
    g.bias = a->input_count > 2 ? a->in[2].data : NULL;
    K(gemm)(a->pool, &g);
}

/* dy[T,O], w -> dx[T,I] */
void K(linear_grad_input)(const sl_kernel_args *a)
{
    int64_t out = last_dim(&a->in[0]), in = last_dim(&a->out[0]);
    sl_gemm g = { .m = a->in[0].elements / out, .n = in, .k = out, .c = a->out[0].data, .c_row = in };
    g.a = (sl_matrix){ a->in[0].data, out, 1 };
    g.b = weight_out_in(a, a->in[1].data, out, in);
    g.accumulate = adds_to(a, 0);
    K(gemm)(a->pool, &g);
}

/* Columns summed by one task: each row gives it whole cache lines. */
#define BIAS_COLUMNS 64

typedef struct bias_sum {
    const float *dy;
    float *dbias;
    int64_t rows, columns;
    bool add;
} bias_sum;

/* Each column is one chain of additions over the rows in order. */
static void sum_columns(void *context, int64_t number, void *scratch)
{
    const bias_sum *s = context;
    float *sum = scratch;
    int64_t first = number * BIAS_COLUMNS, left = s->columns - first, count = left < BIAS_COLUMNS ? left : BIAS_COLUMNS;
    const float *dy = s->dy + first;
    float *dbias = s->dbias + first;
    for (int64_t j = 0; j < count; j++) sum[j] = 0.0f;
    if (count == BIAS_COLUMNS) {
        sl_v16 x[BIAS_COLUMNS / SL_LANES];
        for (int v = 0; v < BIAS_COLUMNS / SL_LANES; v++) x[v] = v16_set1(0.0f);
        for (int64_t r = 0; r < s->rows; r++)
            for (int v = 0; v < BIAS_COLUMNS / SL_LANES; v++)
                x[v] = v16_add(x[v], v16_load(dy + r * s->columns + v * SL_LANES));
        for (int v = 0; v < BIAS_COLUMNS / SL_LANES; v++) v16_store(sum + v * SL_LANES, x[v]);
    } else {
        for (int64_t r = 0; r < s->rows; r++)
            for (int64_t j = 0; j < count; j++) sum[j] += dy[r * s->columns + j];
    }
    for (int64_t j = 0; j < count; j++) dbias[j] = s->add ? dbias[j] + sum[j] : sum[j];
}

/* dy[T,O], x[T,I] -> dw as w is stored, dbias[O]? */
void K(linear_grad_weight)(const sl_kernel_args *a)
{
    int64_t out = last_dim(&a->in[0]), in = last_dim(&a->in[1]), rows = a->in[0].elements / out;
    sl_matrix dy = { a->in[0].data, out, 1 }, x = { a->in[1].data, in, 1 };
    if (a->out[0].data) {
        bool in_out = a->attrs->linear.in_out;
        sl_gemm g = { .m = in_out ? in : out, .n = in_out ? out : in, .k = rows, .c = a->out[0].data };
        g.c_row = g.n;
        g.a = transposed(in_out ? x : dy);
        g.b = in_out ? dy : x;
        g.accumulate = adds_to(a, 0);
        K(gemm)(a->pool, &g);
    }
    if (a->output_count > 1 && a->out[1].data) {
        bias_sum s = { dy.data, a->out[1].data, rows, out, adds_to(a, 1) };
        sl_pool_run(a->pool, sum_columns, &s, (out + BIAS_COLUMNS - 1) / BIAS_COLUMNS);
    }
}

static sl_matrix last_two(const sl_tensor *t, bool swapped)
{
    sl_matrix x = { t->data, last_dim(t), 1 };
    return swapped ? transposed(x) : x;
}

/* a[..,M,K], b[..,K,N], either one's last two dimensions perhaps swapped -> [..,M,N] */
void K(matmul)(const sl_kernel_args *a)
{
    const sl_shape *c = a->out[0].shape, *left = a->in[0].shape;
    sl_gemm g = { .m = c->dim[c->rank - 2], .n = c->dim[c->rank - 1] };
    g.k = left->dim[left->rank - (a->attrs->matmul.transpose_a ? 2 : 1)];
    g.a = last_two(&a->in[0], a->attrs->matmul.transpose_a);
    g.b = last_two(&a->in[1], a->attrs->matmul.transpose_b);
    g.c = a->out[0].data;
    g.c_row = g.n;
    g.a_batch = g.m * g.k;
    g.b_batch = g.k * g.n;
    g.c_batch = g.m * g.n;
    g.batches = a->out[0].elements / g.c_batch;
    g.accumulate = adds_to(a, 0);
    K(gemm)(a->pool, &g);
}

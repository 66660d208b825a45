/* graph_interpreter.c: every op as its defining formula. A result is formed whole in a scratch tensor before any of it is
 * stored, so an op that must not write over its operands shows as a wrong number in a later node, as it would on a
 * device. */
#include "support/graph_interpreter.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/half.h"

typedef struct call {
    const sl_node *node;
    const sluice_graph *graph;
    double *in[SL_MAX_INPUTS];
    const sl_shape *in_shape[SL_MAX_INPUTS];
    double *out[SL_MAX_OUTPUTS]; /* scratch, zeroed; never NULL for an output of the op */
    sl_shape out_shape[SL_MAX_OUTPUTS];
} call;

static int64_t count(const sl_shape *s)
{
    return sl_shape_elements(s);
}

static int64_t last(const sl_shape *s)
{
    return s->rank ? s->dim[s->rank - 1] : 1;
}

/* Element i of a tensor shaped `to`, in a tensor shaped `from` that broadcasts to it. */
static int64_t stretched(const sl_shape *from, const sl_shape *to, int64_t i)
{
    int64_t index = 0, stride = 1;
    for (int d = to->rank - 1, f = from->rank - 1; d >= 0; d--, f--) {
        int64_t at = i % to->dim[d];
        i /= to->dim[d];
        if (f < 0) continue;
        if (from->dim[f] != 1) index += at * stride;
        stride *= from->dim[f];
    }
    return index;
}

static void run_add(call *c)
{
    for (int64_t i = 0; i < count(&c->out_shape[0]); i++)
        c->out[0][i] = c->in[0][stretched(c->in_shape[0], &c->out_shape[0], i)] +
                       c->in[1][stretched(c->in_shape[1], &c->out_shape[0], i)];
}

static void run_multiply(call *c)
{
    for (int64_t i = 0; i < count(&c->out_shape[0]); i++)
        c->out[0][i] = c->in[0][stretched(c->in_shape[0], &c->out_shape[0], i)] *
                       c->in[1][stretched(c->in_shape[1], &c->out_shape[0], i)];
}

static void run_reduce_to(call *c)
{
    for (int64_t i = 0; i < count(c->in_shape[0]); i++)
        c->out[0][stretched(&c->out_shape[0], c->in_shape[0], i)] += c->in[0][i];
}

static void run_multiply_reduce(call *c)
{
    for (int64_t i = 0; i < count(c->in_shape[0]); i++)
        c->out[0][stretched(&c->out_shape[0], c->in_shape[0], i)] +=
            c->in[0][i] * c->in[1][stretched(c->in_shape[1], c->in_shape[0], i)];
}

static void run_scale(call *c)
{
    for (int64_t i = 0; i < count(c->in_shape[0]); i++) c->out[0][i] = c->in[0][i] * c->node->attrs.scale.factor;
}

static double weight_at(const call *c, const double *w, int64_t in, int64_t out, int64_t i, int64_t o)
{
    return c->node->attrs.linear.in_out ? w[i * out + o] : w[o * in + i];
}

static void run_cast(call *c)
{
    memcpy(c->out[0], c->in[0], (size_t)count(c->in_shape[0]) * sizeof(double));
}

static void linear(call *c, const double *bias)
{
    int64_t in = last(c->in_shape[0]), out = last(&c->out_shape[0]), rows = count(c->in_shape[0]) / in;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t o = 0; o < out; o++) {
            double sum = bias != NULL ? bias[o] : 0;
            for (int64_t i = 0; i < in; i++) sum += c->in[0][r * in + i] * weight_at(c, c->in[1], in, out, i, o);
            c->out[0][r * out + o] = sum;
        }
}

static void run_linear(call *c)
{
    linear(c, c->node->input_count == 3 ? c->in[2] : NULL);
}

static void run_linear_add(call *c)
{
    linear(c, c->node->input_count == 4 ? c->in[3] : NULL);
    for (int64_t i = 0; i < count(&c->out_shape[0]); i++) c->out[0][i] += c->in[2][i];
}

static void run_linear_grad_input(call *c)
{
    int64_t out = last(c->in_shape[0]), in = last(&c->out_shape[0]), rows = count(c->in_shape[0]) / out;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < in; i++)
            for (int64_t o = 0; o < out; o++)
                c->out[0][r * in + i] += c->in[0][r * out + o] * weight_at(c, c->in[1], in, out, i, o);
}

static void run_linear_grad_weight(call *c)
{
    int64_t out = last(c->in_shape[0]), in = last(c->in_shape[1]), rows = count(c->in_shape[0]) / out;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t o = 0; o < out; o++) {
            double dy = c->in[0][r * out + o];
            c->out[1][o] += dy;
            for (int64_t i = 0; i < in; i++)
                c->out[0][c->node->attrs.linear.in_out ? i * out + o : o * in + i] += dy * c->in[1][r * in + i];
        }
}

static void run_matmul(call *c)
{
    const sl_shape *a = c->in_shape[0], *out = &c->out_shape[0];
    bool ta = c->node->attrs.matmul.transpose_a, tb = c->node->attrs.matmul.transpose_b;
    int64_t m = out->dim[out->rank - 2], n = out->dim[out->rank - 1], k = a->dim[a->rank - (ta ? 2 : 1)];
    for (int64_t b = 0; b < count(out) / (m * n); b++)
        for (int64_t i = 0; i < m; i++)
            for (int64_t j = 0; j < n; j++)
                for (int64_t p = 0; p < k; p++)
                    c->out[0][(b * m + i) * n + j] += c->in[0][b * m * k + (ta ? p * m + i : i * k + p)] *
                                                      c->in[1][b * k * n + (tb ? j * k + p : p * n + j)];
}

static void run_embedding(call *c)
{
    int64_t width = last(c->in_shape[1]);
    for (int64_t t = 0; t < count(c->in_shape[0]); t++)
        memcpy(c->out[0] + t * width, c->in[1] + (int64_t)c->in[0][t] * width, (size_t)width * sizeof(double));
}

static void run_embedding_grad(call *c)
{
    int64_t width = last(c->in_shape[1]);
    for (int64_t t = 0; t < count(c->in_shape[0]); t++)
        for (int64_t i = 0; i < width; i++) c->out[0][(int64_t)c->in[0][t] * width + i] += c->in[1][t * width + i];
}

static void run_relu(call *c)
{
    for (int64_t i = 0; i < count(c->in_shape[0]); i++) c->out[0][i] = c->in[0][i] > 0 ? c->in[0][i] : 0;
}

static void run_relu_grad(call *c)
{
    for (int64_t i = 0; i < count(c->in_shape[0]); i++) c->out[0][i] = c->in[0][i] > 0 ? c->in[1][i] : 0;
}

static void run_silu(call *c)
{
    for (int64_t i = 0; i < count(c->in_shape[0]); i++) c->out[0][i] = c->in[0][i] / (1 + exp(-c->in[0][i]));
}

static void run_silu_grad(call *c)
{
    for (int64_t i = 0; i < count(c->in_shape[0]); i++) {
        double x = c->in[0][i], s = 1 / (1 + exp(-x));
        c->out[0][i] = c->in[1][i] * s * (1 + x * (1 - s));
    }
}

/* Slope included: of 0.5 x (1 + tanh u). */
static double gelu(double x, double *slope)
{
    double a = sqrt(2 / acos(-1.0)), t = tanh(a * (x + 0.044715 * x * x * x));
    *slope = 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * a * (1 + 3 * 0.044715 * x * x);
    return 0.5 * x * (1 + t);
}

static void run_gelu(call *c)
{
    double slope;
    for (int64_t i = 0; i < count(c->in_shape[0]); i++) c->out[0][i] = gelu(c->in[0][i], &slope);
}

static void run_gelu_grad(call *c)
{
    for (int64_t i = 0; i < count(c->in_shape[0]); i++) {
        double slope;
        gelu(c->in[0][i], &slope);
        c->out[0][i] = c->in[1][i] * slope;
    }
}

static void run_linear_gelu(call *c)
{
    double slope;
    run_linear(c);
    for (int64_t i = 0; i < count(&c->out_shape[0]); i++) {
        c->out[1][i] = c->out[0][i];
        c->out[0][i] = gelu(c->out[1][i], &slope);
    }
}

static void run_linear_grad_gelu(call *c)
{
    run_linear_grad_input(c);
    for (int64_t i = 0; i < count(&c->out_shape[0]); i++) {
        double slope;
        gelu(c->in[2][i], &slope);
        c->out[0][i] *= slope;
    }
}

static double row_lse(const double *x, int64_t n)
{
    double most = x[0], sum = 0;
    for (int64_t i = 1; i < n; i++) most = x[i] > most ? x[i] : most;
    for (int64_t i = 0; i < n; i++) sum += exp(x[i] - most);
    return most + log(sum);
}

static void run_softmax(call *c)
{
    int64_t n = last(c->in_shape[0]);
    for (int64_t r = 0; r < count(c->in_shape[0]) / n; r++)
        for (int64_t i = 0; i < n; i++) c->out[0][r * n + i] = exp(c->in[0][r * n + i] - row_lse(c->in[0] + r * n, n));
}

static void run_softmax_grad(call *c)
{
    int64_t n = last(c->in_shape[0]);
    for (int64_t r = 0; r < count(c->in_shape[0]) / n; r++) {
        const double *y = c->in[0] + r * n, *dy = c->in[1] + r * n;
        double dot = 0;
        for (int64_t i = 0; i < n; i++) dot += y[i] * dy[i];
        for (int64_t i = 0; i < n; i++) c->out[0][r * n + i] = y[i] * (dy[i] - dot);
    }
}

static void run_layer_norm(call *c)
{
    int64_t n = last(c->in_shape[0]);
    for (int64_t r = 0; r < count(c->in_shape[0]) / n; r++) {
        const double *x = c->in[0] + r * n;
        double mean = 0, variance = 0;
        for (int64_t i = 0; i < n; i++) mean += x[i] / (double)n;
        for (int64_t i = 0; i < n; i++) variance += (x[i] - mean) * (x[i] - mean) / (double)n;
        double rstd = 1 / sqrt(variance + c->node->attrs.norm.epsilon);
        c->out[1][r] = mean;
        c->out[2][r] = rstd;
        for (int64_t i = 0; i < n; i++)
            c->out[0][r * n + i] = (x[i] - mean) * rstd * c->in[1][i] + (c->node->input_count == 3 ? c->in[2][i] : 0);
    }
}

static void run_layer_norm_grad(call *c)
{
    int64_t n = last(c->in_shape[0]);
    for (int64_t r = 0; r < count(c->in_shape[0]) / n; r++) {
        const double *x = c->in[0] + r * n, *w = c->in[1], *dy = c->in[4] + r * n;
        double mean = c->in[2][r], rstd = c->in[3][r], a = 0, b = 0;
        for (int64_t i = 0; i < n; i++) {
            double h = (x[i] - mean) * rstd;
            a += dy[i] * w[i] / (double)n;
            b += dy[i] * w[i] * h / (double)n;
            c->out[1][i] += dy[i] * h;
            c->out[2][i] += dy[i];
        }
        for (int64_t i = 0; i < n; i++) c->out[0][r * n + i] = rstd * (dy[i] * w[i] - a - (x[i] - mean) * rstd * b);
    }
}

static void run_rms_norm(call *c)
{
    int64_t n = last(c->in_shape[0]);
    for (int64_t r = 0; r < count(c->in_shape[0]) / n; r++) {
        const double *x = c->in[0] + r * n;
        double square = 0;
        for (int64_t i = 0; i < n; i++) square += x[i] * x[i] / (double)n;
        double rstd = c->out[1][r] = 1 / sqrt(square + c->node->attrs.norm.epsilon);
        for (int64_t i = 0; i < n; i++) c->out[0][r * n + i] = x[i] * rstd * c->in[1][i];
    }
}

static void run_rms_norm_grad(call *c)
{
    int64_t n = last(c->in_shape[0]);
    for (int64_t r = 0; r < count(c->in_shape[0]) / n; r++) {
        const double *x = c->in[0] + r * n, *w = c->in[1], *dy = c->in[3] + r * n;
        double rstd = c->in[2][r], b = 0;
        for (int64_t i = 0; i < n; i++) {
            b += dy[i] * w[i] * x[i] * rstd / (double)n;
            c->out[1][i] += dy[i] * x[i] * rstd;
        }
        for (int64_t i = 0; i < n; i++) c->out[0][r * n + i] = rstd * (dy[i] * w[i] - x[i] * rstd * b);
    }
}

static void run_transpose(call *c)
{
    const sl_shape *x = c->in_shape[0], *y = &c->out_shape[0];
    for (int64_t i = 0; i < count(y); i++) {
        int64_t at[SL_MAX_RANK] = { 0 }, rest = i, from = 0;
        for (int d = y->rank - 1; d >= 0; d--) {
            at[c->node->attrs.transpose.order[d]] = rest % y->dim[d];
            rest /= y->dim[d];
        }
        for (int d = 0; d < x->rank; d++) from = from * x->dim[d] + at[d];
        c->out[0][i] = c->in[0][from];
    }
}

/* Calls for each element of a part its index in the part and in the whole. */
static void copy_part(double *to, const double *from, const sl_shape *whole, const sl_shape *part, int axis,
                      int64_t start, bool into_part)
{
    int64_t inner = 1;
    for (int d = axis + 1; d < whole->rank; d++) inner *= whole->dim[d];
    for (int64_t i = 0; i < count(part); i++) {
        int64_t in = i % inner, at = i / inner % part->dim[axis], outer = i / inner / part->dim[axis];
        int64_t w = (outer * whole->dim[axis] + start + at) * inner + in;
        if (into_part)
            to[i] = from[w];
        else
            to[w] = from[i];
    }
}

static void run_split(call *c)
{
    copy_part(c->out[0], c->in[0], c->in_shape[0], &c->out_shape[0], c->node->attrs.split.axis,
              c->node->attrs.split.start, true);
}

static void run_split_grad(call *c)
{
    copy_part(c->out[0], c->in[0], &c->out_shape[0], c->in_shape[0], c->node->attrs.split.axis,
              c->node->attrs.split.start, false);
}

static void run_concat(call *c)
{
    int64_t start = 0;
    for (int i = 0; i < c->node->input_count; i++) {
        copy_part(c->out[0], c->in[i], &c->out_shape[0], c->in_shape[i], c->node->attrs.concat.axis, start, false);
        start += c->in_shape[i]->dim[c->node->attrs.concat.axis];
    }
}

static void run_cross_entropy(call *c)
{
    int64_t n = last(c->in_shape[0]), rows = count(c->in_shape[0]) / n;
    for (int64_t r = 0; r < rows; r++) {
        c->out[1][r] = row_lse(c->in[0] + r * n, n);
        if ((int32_t)c->in[1][r] == c->node->attrs.cross_entropy.ignore_index) continue;
        c->out[2][0]++;
        c->out[0][0] += c->out[1][r] - c->in[0][r * n + (int64_t)c->in[1][r]];
    }
    if (c->out[2][0] > 0) c->out[0][0] /= c->out[2][0];
}

static void run_cross_entropy_grad(call *c)
{
    int64_t n = last(c->in_shape[0]), rows = count(c->in_shape[0]) / n;
    for (int64_t r = 0; r < rows; r++) {
        if ((int32_t)c->in[1][r] == c->node->attrs.cross_entropy.ignore_index) continue;
        for (int64_t i = 0; i < n; i++)
            c->out[0][r * n + i] =
                (exp(c->in[0][r * n + i] - c->in[2][r]) - (i == (int64_t)c->in[1][r])) * c->in[4][0] / c->in[3][0];
    }
}

static void run_mse(call *c)
{
    int64_t n = count(c->in_shape[0]);
    for (int64_t i = 0; i < n; i++) c->out[0][0] += pow(c->in[0][i] - c->in[1][i], 2) / (double)n;
}

static void run_mse_grad(call *c)
{
    int64_t n = count(c->in_shape[0]);
    for (int64_t i = 0; i < n; i++) {
        c->out[0][i] = 2 * (c->in[0][i] - c->in[1][i]) / (double)n * c->in[2][0];
        c->out[1][i] = -c->out[0][i];
    }
}

static void run_sum(call *c)
{
    for (int64_t i = 0; i < count(c->in_shape[0]); i++) c->out[0][0] += c->in[0][i];
}

static void run_mean(call *c)
{
    run_sum(c);
    c->out[0][0] /= (double)count(c->in_shape[0]);
}

static void run_seed(call *c)
{
    c->out[0][0] = 1;
}

static void run_expand(call *c)
{
    for (int64_t i = 0; i < count(&c->out_shape[0]); i++) c->out[0][i] = c->in[0][0] * c->node->attrs.scale.factor;
}

static void run_swiglu(call *c)
{
    int64_t n = c->out_shape[0].dim[c->out_shape[0].rank - 1];
    for (int64_t i = 0; i < count(&c->out_shape[0]); i++) {
        const double *row = c->in[0] + i / n * 2 * n;
        c->out[0][i] = row[i % n] / (1 + exp(-row[i % n])) * row[n + i % n];
    }
}

static void run_swiglu_grad(call *c)
{
    int64_t n = c->in_shape[1]->dim[c->in_shape[1]->rank - 1];
    for (int64_t i = 0; i < count(c->in_shape[1]); i++) {
        int64_t at = i / n * 2 * n + i % n;
        double g = c->in[0][at], s = 1 / (1 + exp(-g));
        c->out[0][at] = c->in[1][i] * c->in[0][at + n] * s * (1 + g * (1 - s));
        c->out[0][at + n] = c->in[1][i] * g * s;
    }
}

/* The loss and, for a seed of 1, its gradients. */
static void run_linear_cross_entropy(call *c)
{
    int64_t rows = count(c->in_shape[2]), classes = c->in_shape[1]->dim[0], in = c->in_shape[1]->dim[1];
    double *logits = calloc((size_t)classes, sizeof *logits);
    for (int64_t r = 0; r < rows; r++)
        c->out[1][0] += (int32_t)c->in[2][r] != c->node->attrs.cross_entropy.ignore_index;
    for (int64_t r = 0; r < rows; r++) {
        int64_t target = (int64_t)c->in[2][r];
        double sum = 0;
        if (target == c->node->attrs.cross_entropy.ignore_index) continue;
        for (int64_t k = 0; k < classes; k++) {
            logits[k] = 0;
            for (int64_t i = 0; i < in; i++) logits[k] += c->in[0][r * in + i] * c->in[1][k * in + i];
            sum += exp(logits[k]);
        }
        c->out[0][0] += (log(sum) - logits[target]) / c->out[1][0];
        for (int64_t k = 0; k < classes; k++) {
            double d = (exp(logits[k]) / sum - (k == target)) / c->out[1][0];
            for (int64_t i = 0; i < in; i++) {
                c->out[2][k * in + i] += d * c->in[0][r * in + i];
                c->out[3][r * in + i] += d * c->in[1][k * in + i];
            }
        }
    }
    free(logits);
}

static void run_linear_cross_entropy_grad(call *c)
{
    for (int k = 0; k < 2; k++)
        for (int64_t i = 0; i < count(c->in_shape[k]); i++) c->out[k][i] = c->in[k][i] * c->in[2][0];
}

static void (*const kernels[SL_OP_COUNT])(call *) = {
    [SL_OP_ADD] = run_add,
    [SL_OP_MULTIPLY] = run_multiply,
    [SL_OP_SCALE] = run_scale,
    [SL_OP_LINEAR] = run_linear,
    [SL_OP_LINEAR_GELU] = run_linear_gelu,
    [SL_OP_LINEAR_ADD] = run_linear_add,
    [SL_OP_MATMUL] = run_matmul,
    [SL_OP_EMBEDDING] = run_embedding,
    [SL_OP_RELU] = run_relu,
    [SL_OP_GELU] = run_gelu,
    [SL_OP_SILU] = run_silu,
    [SL_OP_SOFTMAX] = run_softmax,
    [SL_OP_LAYER_NORM] = run_layer_norm,
    [SL_OP_RMS_NORM] = run_rms_norm,
    [SL_OP_TRANSPOSE] = run_transpose,
    [SL_OP_SPLIT] = run_split,
    [SL_OP_CONCAT] = run_concat,
    [SL_OP_CROSS_ENTROPY] = run_cross_entropy,
    [SL_OP_MSE] = run_mse,
    [SL_OP_CAST] = run_cast,
    [SL_OP_SUM] = run_sum,
    [SL_OP_MEAN] = run_mean,
    [SL_OP_SEED] = run_seed,
    [SL_OP_REDUCE_TO] = run_reduce_to,
    [SL_OP_MULTIPLY_REDUCE] = run_multiply_reduce,
    [SL_OP_LINEAR_GRAD_INPUT] = run_linear_grad_input,
    [SL_OP_LINEAR_GRAD_GELU] = run_linear_grad_gelu,
    [SL_OP_LINEAR_GRAD_WEIGHT] = run_linear_grad_weight,
    [SL_OP_EMBEDDING_GRAD] = run_embedding_grad,
    [SL_OP_RELU_GRAD] = run_relu_grad,
    [SL_OP_GELU_GRAD] = run_gelu_grad,
    [SL_OP_SILU_GRAD] = run_silu_grad,
    [SL_OP_SOFTMAX_GRAD] = run_softmax_grad,
    [SL_OP_LAYER_NORM_GRAD] = run_layer_norm_grad,
    [SL_OP_RMS_NORM_GRAD] = run_rms_norm_grad,
    [SL_OP_CONCAT_GRAD] = run_split,
    [SL_OP_SPLIT_GRAD] = run_split_grad,
    [SL_OP_CROSS_ENTROPY_GRAD] = run_cross_entropy_grad,
    [SL_OP_MSE_GRAD] = run_mse_grad,
    [SL_OP_EXPAND] = run_expand,
    [SL_OP_SWIGLU] = run_swiglu,
    [SL_OP_SWIGLU_GRAD] = run_swiglu_grad,
    [SL_OP_LINEAR_CROSS_ENTROPY] = run_linear_cross_entropy,
    [SL_OP_LINEAR_CROSS_ENTROPY_GRAD] = run_linear_cross_entropy_grad,
};

void interpreter_open(interpreter *in, const sluice_graph *g)
{
    in->graph = g;
    in->rounds = false;
    in->data = calloc((size_t)g->value_count, sizeof *in->data);
    for (int v = 0; v < g->value_count; v++) {
        bool root = g->values[v].storage == v;
        in->data[v] = root ? calloc((size_t)count(&g->values[v].shape), sizeof(double)) : NULL;
    }
    for (int v = 0; v < g->value_count; v++) in->data[v] = in->data[g->values[v].storage];
}

void interpreter_close(interpreter *in)
{
    for (int v = 0; v < in->graph->value_count; v++)
        if (in->graph->values[v].storage == v) free(in->data[v]);
    free(in->data);
}

double interpreter_rounded(double x, sluice_dtype type)
{
    if (type == SLUICE_BF16) return sl_bf16_to_float(sl_float_to_bf16((float)x));
    if (type == SLUICE_F16) return sl_f16_to_float(sl_float_to_f16((float)x));
    return x;
}

/* Adds to or overwrites an output with its scratch result, and frees that. */
static void store(interpreter *in, call *c, int i)
{
    int value = i < c->node->output_count ? c->node->outputs[i] : -1;
    bool adds = c->node->attrs.accumulate >> i & 1;
    for (int64_t k = 0; value >= 0 && k < count(&c->out_shape[i]); k++) {
        double x = c->out[i][k] + (adds ? in->data[value][k] : 0);
        in->data[value][k] = in->rounds ? interpreter_rounded(x, in->graph->values[value].dtype) : x;
    }
    free(c->out[i]);
}

static bool run_node(interpreter *in, const sl_node *node)
{
    const sl_op_def *row = &sl_ops[node->op];
    if (row->view) return true;
    if (kernels[node->op] == NULL) return false;
    call c = { .node = node, .graph = in->graph };
    sluice_dtype dtypes[SL_MAX_OUTPUTS];
    if (row->infer(in->graph, node, c.out_shape, dtypes) != SLUICE_OK) return false;
    for (int i = 0; i < node->input_count; i++) {
        c.in[i] = in->data[node->inputs[i]];
        c.in_shape[i] = &in->graph->values[node->inputs[i]].shape;
    }
    for (int i = 0; i < row->outputs; i++) c.out[i] = calloc((size_t)count(&c.out_shape[i]), sizeof(double));
    kernels[node->op](&c);
    for (int i = 0; i < row->outputs; i++) store(in, &c, i);
    return true;
}

bool interpreter_run(interpreter *in, int first, int end)
{
    for (int n = first; n < end; n++)
        if (!run_node(in, &in->graph->nodes[n])) return false;
    return true;
}

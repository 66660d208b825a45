/* op_reference.c: see op_reference.h. An op adds its result to outputs that reference_run has set to zero; absent ones are
 * computed too and dropped. */
#include "support/op_reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/rng.h"

static int64_t count_of(const ref_tensor *t)
{
    return sl_shape_elements(t->shape);
}

static int64_t width_of(const ref_tensor *t)
{
    return t->shape->rank > 0 ? t->shape->dim[t->shape->rank - 1] : 1;
}

static int64_t rows_of(const ref_tensor *t)
{
    return count_of(t) / width_of(t);
}

/* Where element `flat` of `space` lies in an operand that is broadcast to it. */
static int64_t broadcast_index(const sl_shape *space, int64_t flat, const sl_shape *operand)
{
    int64_t at = 0, stride = 1;
    for (int i = space->rank - 1, k = operand->rank - 1; i >= 0; i--, k--) {
        int64_t index = flat % space->dim[i];
        flat /= space->dim[i];
        if (k < 0) continue;
        if (operand->dim[k] > 1) at += index * stride;
        stride *= operand->dim[k];
    }
    return at;
}

/* ---- Pointwise ---- */

static void ref_add(const ref_call *c)
{
    for (int64_t i = 0; i < count_of(&c->out[0]); i++)
        c->out[0].data[i] += c->in[0].data[broadcast_index(c->out[0].shape, i, c->in[0].shape)] +
                             c->in[1].data[broadcast_index(c->out[0].shape, i, c->in[1].shape)];
}

static void ref_multiply(const ref_call *c)
{
    for (int64_t i = 0; i < count_of(&c->out[0]); i++)
        c->out[0].data[i] += c->in[0].data[broadcast_index(c->out[0].shape, i, c->in[0].shape)] *
                             c->in[1].data[broadcast_index(c->out[0].shape, i, c->in[1].shape)];
}

static void ref_scale(const ref_call *c)
{
    for (int64_t i = 0; i < count_of(&c->out[0]); i++)
        c->out[0].data[i] += c->in[0].data[i] * (double)c->attrs->scale.factor;
}

static void ref_cast(const ref_call *c)
{
    for (int64_t i = 0; i < count_of(&c->out[0]); i++) c->out[0].data[i] += c->in[0].data[i];
}

static void ref_relu(const ref_call *c)
{
    for (int64_t i = 0; i < count_of(&c->out[0]); i++) c->out[0].data[i] += c->in[0].data[i] < 0 ? 0 : c->in[0].data[i];
}

static void ref_relu_grad(const ref_call *c)
{
    for (int64_t i = 0; i < count_of(&c->out[0]); i++) c->out[0].data[i] += c->in[0].data[i] > 0 ? c->in[1].data[i] : 0;
}

static double gelu(double x, bool exact)
{
    if (exact) return 0.5 * x * erfc(-x / sqrt(2.0));
    return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

static double gelu_slope(double x, bool exact)
{
    if (exact) return 0.5 * erfc(-x / sqrt(2.0)) + x * exp(-0.5 * x * x) / sqrt(2 * M_PI);
    double t = tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x));
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
}

static void ref_gelu(const ref_call *c)
{
    for (int64_t i = 0; i < count_of(&c->out[0]); i++)
        c->out[0].data[i] += gelu(c->in[0].data[i], c->attrs->gelu.exact);
}

static void ref_gelu_grad(const ref_call *c)
{
    for (int64_t i = 0; i < count_of(&c->out[0]); i++)
        c->out[0].data[i] += c->in[1].data[i] * gelu_slope(c->in[0].data[i], c->attrs->gelu.exact);
}

static void ref_silu(const ref_call *c)
{
    for (int64_t i = 0; i < count_of(&c->out[0]); i++)
        c->out[0].data[i] += c->in[0].data[i] / (1 + exp(-c->in[0].data[i]));
}

static void ref_silu_grad(const ref_call *c)
{
    for (int64_t i = 0; i < count_of(&c->out[0]); i++) {
        double x = c->in[0].data[i], s = 1 / (1 + exp(-x));
        c->out[0].data[i] += c->in[1].data[i] * (s + x * s * (1 - s));
    }
}

static void ref_tanh(const ref_call *c)
{
    for (int64_t i = 0; i < count_of(&c->out[0]); i++) c->out[0].data[i] += tanh(c->in[0].data[i]);
}

static void ref_tanh_grad(const ref_call *c)
{
    for (int64_t i = 0; i < count_of(&c->out[0]); i++)
        c->out[0].data[i] += c->in[1].data[i] * (1 - c->in[0].data[i] * c->in[0].data[i]);
}

static void ref_sigmoid(const ref_call *c)
{
    for (int64_t i = 0; i < count_of(&c->out[0]); i++) c->out[0].data[i] += 1 / (1 + exp(-c->in[0].data[i]));
}

static void ref_sigmoid_grad(const ref_call *c)
{
    for (int64_t i = 0; i < count_of(&c->out[0]); i++)
        c->out[0].data[i] += c->in[1].data[i] * c->in[0].data[i] * (1 - c->in[0].data[i]);
}

static void ref_swiglu(const ref_call *c)
{
    int64_t n = width_of(&c->out[0]);
    for (int64_t i = 0; i < count_of(&c->out[0]); i++) {
        const double *row = c->in[0].data + i / n * 2 * n;
        double gate = row[i % n];
        c->out[0].data[i] += gate / (1 + exp(-gate)) * row[n + i % n];
    }
}

static void ref_swiglu_grad(const ref_call *c)
{
    int64_t n = width_of(&c->in[1]);
    for (int64_t i = 0; i < count_of(&c->in[1]); i++) {
        int64_t at = i / n * 2 * n + i % n;
        double gate = c->in[0].data[at], value = c->in[0].data[at + n], s = 1 / (1 + exp(-gate));
        c->out[0].data[at] += c->in[1].data[i] * value * (s + gate * s * (1 - s));
        c->out[0].data[at + n] += c->in[1].data[i] * gate * s;
    }
}

static void ref_geglu(const ref_call *c)
{
    int64_t n = width_of(&c->out[0]);
    for (int64_t i = 0; i < count_of(&c->out[0]); i++) {
        const double *row = c->in[0].data + i / n * 2 * n;
        c->out[0].data[i] += gelu(row[i % n], c->attrs->gelu.exact) * row[n + i % n];
    }
}

static void ref_geglu_grad(const ref_call *c)
{
    int64_t n = width_of(&c->in[1]);
    for (int64_t i = 0; i < count_of(&c->in[1]); i++) {
        int64_t at = i / n * 2 * n + i % n;
        double gate = c->in[0].data[at], value = c->in[0].data[at + n], dy = c->in[1].data[i];
        c->out[0].data[at] += dy * value * gelu_slope(gate, c->attrs->gelu.exact);
        c->out[0].data[at + n] += dy * gelu(gate, c->attrs->gelu.exact);
    }
}

static void ref_softcap(const ref_call *c)
{
    double cap = (double)c->attrs->softcap.cap;
    for (int64_t i = 0; i < count_of(&c->out[0]); i++) c->out[0].data[i] += cap * tanh(c->in[0].data[i] / cap);
}

static void ref_softcap_grad(const ref_call *c)
{
    double cap = (double)c->attrs->softcap.cap;
    for (int64_t i = 0; i < count_of(&c->out[0]); i++)
        c->out[0].data[i] += c->in[1].data[i] / pow(cosh(c->in[0].data[i] / cap), 2);
}

static void ref_dropout(const ref_call *c)
{
    sl_rng stream =
        sl_rng_stream(c->context->seed, SL_RNG_DROPOUT, c->context->step, c->context->micro, c->attrs->dropout.op);
    for (int64_t i = 0; i < count_of(&c->out[0]); i++) {
        bool keep = sl_rng_uniform(&stream, (uint64_t)i) >= c->attrs->dropout.p;
        double factor = !c->context->training ? 1 : keep ? 1 / (1 - (double)c->attrs->dropout.p) : 0;
        c->out[0].data[i] += c->in[0].data[i] * factor;
    }
}

static void ref_seed(const ref_call *c)
{
    c->out[0].data[0] += (double)c->context->seed_gradient;
}

static void ref_expand(const ref_call *c)
{
    for (int64_t i = 0; i < count_of(&c->out[0]); i++)
        c->out[0].data[i] += c->in[0].data[0] * (double)c->attrs->scale.factor;
}

/* ---- Sums ---- */

static void ref_sum(const ref_call *c)
{
    for (int64_t i = 0; i < count_of(&c->in[0]); i++) c->out[0].data[0] += c->in[0].data[i];
}

static void ref_mean(const ref_call *c)
{
    ref_sum(c);
    c->out[0].data[0] /= (double)count_of(&c->in[0]);
}

static void ref_reduce_to(const ref_call *c)
{
    for (int64_t i = 0; i < count_of(&c->in[0]); i++)
        c->out[0].data[broadcast_index(c->in[0].shape, i, c->out[0].shape)] += c->in[0].data[i];
}

static void ref_multiply_reduce(const ref_call *c)
{
    for (int64_t i = 0; i < count_of(&c->in[0]); i++)
        c->out[0].data[broadcast_index(c->in[0].shape, i, c->out[0].shape)] +=
            c->in[0].data[i] * c->in[1].data[broadcast_index(c->in[0].shape, i, c->in[1].shape)];
}

/* ---- Products ---- */

static double weight_at(const ref_call *c, const ref_tensor *w, int64_t o, int64_t i)
{
    return w->data[c->attrs->linear.in_out ? i * w->shape->dim[1] + o : o * w->shape->dim[1] + i];
}

static void ref_linear(const ref_call *c)
{
    int64_t rows = rows_of(&c->in[0]), width = width_of(&c->in[0]), outs = width_of(&c->out[0]);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t o = 0; o < outs; o++) {
            double sum = c->input_count > 2 && c->in[2].data != NULL ? c->in[2].data[o] : 0;
            for (int64_t i = 0; i < width; i++) sum += c->in[0].data[r * width + i] * weight_at(c, &c->in[1], o, i);
            c->out[0].data[r * outs + o] += sum;
        }
}

static void ref_linear_grad_input(const ref_call *c)
{
    int64_t rows = rows_of(&c->in[0]), outs = width_of(&c->in[0]), width = width_of(&c->out[0]);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < width; i++)
            for (int64_t o = 0; o < outs; o++)
                c->out[0].data[r * width + i] += c->in[0].data[r * outs + o] * weight_at(c, &c->in[1], o, i);
}

static void ref_linear_add(const ref_call *c)
{
    ref_call linear = *c;
    linear.in[2] = c->in[3];
    linear.input_count--;
    ref_linear(&linear);
    for (int64_t i = 0; i < count_of(&c->out[0]); i++) c->out[0].data[i] += c->in[2].data[i];
}

static void ref_linear_gelu(const ref_call *c)
{
    ref_call linear = *c;
    linear.out[0] = c->out[1];
    ref_linear(&linear);
    for (int64_t i = 0; i < count_of(&c->out[0]); i++) c->out[0].data[i] += gelu(c->out[1].data[i], false);
}

static void ref_linear_grad_gelu(const ref_call *c)
{
    ref_linear_grad_input(c);
    for (int64_t i = 0; i < count_of(&c->out[0]); i++) c->out[0].data[i] *= gelu_slope(c->in[2].data[i], false);
}

static void ref_linear_grad_weight(const ref_call *c)
{
    int64_t rows = rows_of(&c->in[0]), outs = width_of(&c->in[0]), width = width_of(&c->in[1]);
    double *bias = c->out[1].data;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t o = 0; o < outs; o++) {
            double dy = c->in[0].data[r * outs + o];
            bias[o] += dy;
            for (int64_t i = 0; i < width; i++)
                c->out[0].data[c->attrs->linear.in_out ? i * outs + o : o * width + i] +=
                    dy * c->in[1].data[r * width + i];
        }
}

static void ref_matmul(const ref_call *c)
{
    const sl_shape *s = c->out[0].shape;
    bool ta = c->attrs->matmul.transpose_a, tb = c->attrs->matmul.transpose_b;
    int64_t m = s->dim[s->rank - 2], n = s->dim[s->rank - 1];
    int64_t k = c->in[0].shape->dim[s->rank - (ta ? 2 : 1)], batches = count_of(&c->out[0]) / (m * n);
    for (int64_t g = 0; g < batches; g++)
        for (int64_t i = 0; i < m; i++)
            for (int64_t j = 0; j < n; j++)
                for (int64_t x = 0; x < k; x++)
                    c->out[0].data[(g * m + i) * n + j] += c->in[0].data[g * m * k + (ta ? x * m + i : i * k + x)] *
                                                           c->in[1].data[g * k * n + (tb ? j * k + x : x * n + j)];
}

/* ---- Rows ---- */

static double log_sum_exp(const double *x, int64_t n)
{
    double top = -INFINITY, sum = 0;
    for (int64_t i = 0; i < n; i++) top = x[i] > top ? x[i] : top;
    for (int64_t i = 0; i < n; i++) sum += exp(x[i] - top);
    return top + log(sum);
}

static void ref_softmax(const ref_call *c)
{
    int64_t n = width_of(&c->in[0]);
    for (int64_t r = 0; r < rows_of(&c->in[0]); r++) {
        const double *x = c->in[0].data + r * n;
        double lse = log_sum_exp(x, n);
        for (int64_t i = 0; i < n; i++) c->out[0].data[r * n + i] += exp(x[i] - lse);
    }
}

static void ref_softmax_grad(const ref_call *c)
{
    int64_t n = width_of(&c->in[0]);
    for (int64_t r = 0; r < rows_of(&c->in[0]); r++) {
        const double *y = c->in[0].data + r * n, *dy = c->in[1].data + r * n;
        double dot = 0;
        for (int64_t i = 0; i < n; i++) dot += y[i] * dy[i];
        for (int64_t i = 0; i < n; i++) c->out[0].data[r * n + i] += y[i] * (dy[i] - dot);
    }
}

static void ref_log_softmax(const ref_call *c)
{
    int64_t n = width_of(&c->in[0]);
    for (int64_t r = 0; r < rows_of(&c->in[0]); r++) {
        double lse = log_sum_exp(c->in[0].data + r * n, n);
        for (int64_t i = 0; i < n; i++) c->out[0].data[r * n + i] += c->in[0].data[r * n + i] - lse;
    }
}

static void ref_log_softmax_grad(const ref_call *c)
{
    int64_t n = width_of(&c->in[0]);
    for (int64_t r = 0; r < rows_of(&c->in[0]); r++) {
        const double *x = c->in[0].data + r * n, *dy = c->in[1].data + r * n;
        double lse = log_sum_exp(x, n), sum = 0;
        for (int64_t i = 0; i < n; i++) sum += dy[i];
        for (int64_t i = 0; i < n; i++) c->out[0].data[r * n + i] += dy[i] - exp(x[i] - lse) * sum;
    }
}

static double row_mean(const double *x, int64_t n, double shift, int power)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += power == 2 ? (x[i] - shift) * (x[i] - shift) : x[i] - shift;
    return sum / (double)n;
}

static void ref_layer_norm(const ref_call *c)
{
    int64_t n = width_of(&c->in[0]);
    const double *bias = c->input_count > 2 ? c->in[2].data : NULL;
    for (int64_t r = 0; r < rows_of(&c->in[0]); r++) {
        const double *x = c->in[0].data + r * n;
        double mean = row_mean(x, n, 0, 1), rstd = 1 / sqrt(row_mean(x, n, mean, 2) + (double)c->attrs->norm.epsilon);
        for (int64_t i = 0; i < n; i++)
            c->out[0].data[r * n + i] += (x[i] - mean) * rstd * c->in[1].data[i] + (bias != NULL ? bias[i] : 0);
        c->out[1].data[r] += mean;
        c->out[2].data[r] += rstd;
    }
}

static void ref_rms_norm(const ref_call *c)
{
    int64_t n = width_of(&c->in[0]);
    for (int64_t r = 0; r < rows_of(&c->in[0]); r++) {
        const double *x = c->in[0].data + r * n;
        double rstd = 1 / sqrt(row_mean(x, n, 0, 2) + (double)c->attrs->norm.epsilon);
        for (int64_t i = 0; i < n; i++)
            c->out[0].data[r * n + i] += x[i] * rstd * ((double)c->attrs->norm.offset + c->in[1].data[i]);
        c->out[1].data[r] += rstd;
    }
}

/* One row of either norm's gradient; mean NULL: RMS norm. */
static void norm_grad_row(const ref_call *c, int64_t r, const double *mean, const double *rstd, const double *all_dy)
{
    int64_t n = width_of(&c->in[0]);
    const double *x = c->in[0].data + r * n, *dy = all_dy + r * n, *w = c->in[1].data;
    const double offset = (double)c->attrs->norm.offset;
    double m = mean != NULL ? mean[r] : 0, sum = 0, sum_hat = 0;
    for (int64_t i = 0; i < n; i++) {
        double hat = (x[i] - m) * rstd[r];
        sum += dy[i] * (offset + w[i]) / (double)n;
        sum_hat += dy[i] * (offset + w[i]) * hat / (double)n;
        c->out[1].data[i] += dy[i] * hat;
        if (c->output_count > 2) c->out[2].data[i] += dy[i];
    }
    if (mean == NULL) sum = 0;
    for (int64_t i = 0; i < n; i++)
        c->out[0].data[r * n + i] += rstd[r] * (dy[i] * (offset + w[i]) - sum - (x[i] - m) * rstd[r] * sum_hat);
}

static void ref_layer_norm_grad(const ref_call *c)
{
    for (int64_t r = 0; r < rows_of(&c->in[0]); r++) norm_grad_row(c, r, c->in[2].data, c->in[3].data, c->in[4].data);
}

static void ref_rms_norm_grad(const ref_call *c)
{
    for (int64_t r = 0; r < rows_of(&c->in[0]); r++) norm_grad_row(c, r, NULL, c->in[2].data, c->in[3].data);
}

/* Mean and reciprocal deviation of a group: rows [first, first + rows) of channels [c, c + each). */
static void group_moments(const double *x, int64_t width, int64_t first, int64_t rows, int64_t c, int64_t each,
                          double *mean, double *variance)
{
    const double n = (double)(rows * each);
    *mean = *variance = 0;
    for (int64_t r = first; r < first + rows; r++)
        for (int64_t k = c; k < c + each; k++) *mean += x[r * width + k] / n;
    for (int64_t r = first; r < first + rows; r++)
        for (int64_t k = c; k < c + each; k++) *variance += (x[r * width + k] - *mean) * (x[r * width + k] - *mean) / n;
}

static void ref_batch_norm(const ref_call *c)
{
    int64_t width = width_of(&c->in[0]), rows = rows_of(&c->in[0]);
    const double *x = c->in[0].data, *residual = c->input_count > 3 ? c->in[3].data : NULL;
    for (int64_t k = 0; k < width; k++) {
        double *kept = c->out[3].data + k, mean = kept[SL_RUNNING_MEAN * width];
        double variance = kept[SL_RUNNING_VARIANCE * width];
        if (c->context->training && !c->attrs->batch_norm.frozen) {
            group_moments(x, width, 0, rows, k, 1, &mean, &variance);
            kept[SL_BATCH_MEAN * width] = mean;
            kept[SL_BATCH_VARIANCE * width] = rows > 1 ? variance * (double)rows / (double)(rows - 1) : variance;
        }
        double rstd = 1 / sqrt(variance + (double)c->attrs->batch_norm.epsilon);
        c->out[1].data[k] += mean;
        c->out[2].data[k] += rstd;
        for (int64_t r = 0; r < rows; r++) {
            double y = (x[r * width + k] - mean) * rstd * c->in[1].data[k] + c->in[2].data[k];
            if (residual != NULL) y += residual[r * width + k];
            c->out[0].data[r * width + k] += c->attrs->batch_norm.relu && y < 0 ? 0 : y;
        }
    }
}

static void ref_group_norm(const ref_call *c)
{
    int64_t width = width_of(&c->in[0]), samples = c->in[0].shape->dim[0], rows = rows_of(&c->in[0]) / samples;
    int64_t groups = c->attrs->group_norm.groups, each = width / groups;
    for (int64_t at = 0; at < samples * groups; at++) {
        int64_t first = at / groups * rows, begin = at % groups * each;
        double mean, variance;
        group_moments(c->in[0].data, width, first, rows, begin, each, &mean, &variance);
        double rstd = 1 / sqrt(variance + (double)c->attrs->group_norm.epsilon);
        c->out[1].data[at] += mean;
        c->out[2].data[at] += rstd;
        for (int64_t r = first; r < first + rows; r++)
            for (int64_t k = begin; k < begin + each; k++)
                c->out[0].data[r * width + k] +=
                    (c->in[0].data[r * width + k] - mean) * rstd * c->in[1].data[k] + c->in[2].data[k];
    }
}

/* One group of either norm's gradient; g: what a ReLU let pass of dy; fixed: mean and rstd are not those of x. */
static void group_grad(const ref_call *c, const double *g, int64_t first, int64_t rows, int64_t begin, int64_t each,
                       double mean, double rstd, bool fixed)
{
    int64_t width = width_of(&c->in[0]);
    const double *x = c->in[0].data, *w = c->in[1].data, n = (double)(rows * each);
    double sum = 0, sum_hat = 0;
    for (int64_t r = first; r < first + rows; r++)
        for (int64_t k = begin; k < begin + each; k++) {
            double hat = (x[r * width + k] - mean) * rstd, d = g[r * width + k];
            sum += fixed ? 0 : d * w[k] / n;
            sum_hat += fixed ? 0 : d * w[k] * hat / n;
            c->out[1].data[k] += d * hat;
            c->out[2].data[k] += d;
        }
    for (int64_t r = first; r < first + rows; r++)
        for (int64_t k = begin; k < begin + each; k++)
            c->out[0].data[r * width + k] +=
                rstd * (g[r * width + k] * w[k] - sum - (x[r * width + k] - mean) * rstd * sum_hat);
}

static void ref_batch_norm_grad(const ref_call *c)
{
    int64_t width = width_of(&c->in[0]), rows = rows_of(&c->in[0]);
    const double *x = c->in[0].data, *w = c->in[1].data, *b = c->in[2].data, *mean = c->in[3].data;
    const double *rstd = c->in[4].data, *y = c->input_count > 6 ? c->in[6].data : NULL;
    double *g = calloc((size_t)(rows * width), sizeof *g);
    for (int64_t i = 0; i < rows * width; i++) {
        int64_t k = i % width;
        bool passed = !c->attrs->batch_norm.relu || (y != NULL ? y[i] : (x[i] - mean[k]) * rstd[k] * w[k] + b[k]) > 0;
        g[i] = passed ? c->in[5].data[i] : 0;
        c->out[3].data[i] += g[i];
    }
    for (int64_t k = 0; k < width; k++) group_grad(c, g, 0, rows, k, 1, mean[k], rstd[k], c->attrs->batch_norm.frozen);
    free(g);
}

/* ---- batch norm over ranks ---- */

/* Largest run of samples [first, ..) that begins at a multiple of its length, a power of two of at most 4,096, and ends at `end`
 * or before: a node. */
static int64_t node_samples(int64_t first, int64_t end)
{
    int64_t length = 1;
    while (length < 4096 && first % (2 * length) == 0 && first + 2 * length <= end) length *= 2;
    return length;
}

static int64_t shared_rank(const ref_call *c)
{
    return (int64_t)c->context->micro % c->attrs->batch_norm.ranks;
}

/* Where the numbers of a rank's node are. */
static int64_t node_at(const sl_shape *nodes, int64_t rank, int64_t node, int row, int64_t k)
{
    return ((rank * nodes->dim[1] + node) * SL_NODE_ROWS + row) * nodes->dim[3] + k;
}

static void ref_batch_moments(const ref_call *c)
{
    const int64_t width = width_of(&c->in[0]), samples = c->in[0].shape->dim[0], rows = rows_of(&c->in[0]) / samples;
    const int64_t rank = shared_rank(c), begin = rank * samples;
    int64_t first = begin;
    for (int64_t node = 0; first < begin + samples; node++) {
        const int64_t count = node_samples(first, begin + samples);
        for (int64_t k = 0; k < width; k++)
            group_moments(c->in[0].data, width, (first - begin) * rows, count * rows, k, 1,
                          &c->out[0].data[node_at(c->out[0].shape, rank, node, SL_NODE_FIRST, k)],
                          &c->out[0].data[node_at(c->out[0].shape, rank, node, SL_NODE_SECOND, k)]);
        first += count;
    }
}

/* Sums over the nodes of all ranks: of the first and the second numbers, each times its samples where `weighted`, and of the
 * squares of the first ones. */
static void sum_nodes(const ref_call *c, const ref_tensor *nodes, int64_t k, bool weighted, double sums[3])
{
    const int64_t samples = c->in[0].shape->dim[0], ranks = nodes->shape->dim[0];
    sums[0] = sums[1] = sums[2] = 0;
    for (int64_t rank = 0; rank < ranks; rank++) {
        int64_t first = rank * samples;
        for (int64_t node = 0; first < (rank + 1) * samples; node++) {
            const int64_t count = node_samples(first, (rank + 1) * samples);
            const double a = nodes->data[node_at(nodes->shape, rank, node, SL_NODE_FIRST, k)];
            const double b = nodes->data[node_at(nodes->shape, rank, node, SL_NODE_SECOND, k)];
            const double times = weighted ? (double)count : 1;
            sums[0] += times * a;
            sums[1] += times * b;
            sums[2] += times * a * a;
            first += count;
        }
    }
}

static void ref_batch_statistics(const ref_call *c)
{
    const int64_t width = width_of(&c->in[0]), ranks = c->attrs->batch_norm.ranks;
    const double samples = (double)(c->in[0].shape->dim[0] * ranks), rows = (double)(rows_of(&c->in[0]) * ranks);
    for (int64_t k = 0; k < width; k++) {
        double *kept = c->out[2].data + k, mean = kept[SL_RUNNING_MEAN * width];
        double variance = kept[SL_RUNNING_VARIANCE * width], sums[3];
        if (c->context->training) {
            sum_nodes(c, &c->in[1], k, true, sums);
            mean = sums[0] / samples;
            variance = sums[1] / samples + sums[2] / samples - mean * mean;
            kept[SL_BATCH_MEAN * width] = mean;
            kept[SL_BATCH_VARIANCE * width] = rows > 1 ? variance * rows / (rows - 1) : variance;
        }
        c->out[0].data[k] += mean;
        c->out[1].data[k] += 1 / sqrt(variance + (double)c->attrs->batch_norm.epsilon);
    }
}

static void ref_batch_normalize(const ref_call *c)
{
    const int64_t width = width_of(&c->in[0]);
    for (int64_t i = 0; i < rows_of(&c->in[0]) * width; i++) {
        const int64_t k = i % width;
        double y = (c->in[0].data[i] - c->in[3].data[k]) * c->in[4].data[k] * c->in[1].data[k] + c->in[2].data[k];
        if (c->input_count > 5) y += c->in[5].data[i];
        c->out[0].data[i] += c->attrs->batch_norm.relu && y < 0 ? 0 : y;
    }
}

/* What passes of dy at element i; y: the input that says so, or 0 where x does. */
static double passed_gradient(const ref_call *c, int64_t i, int y)
{
    const int64_t k = i % width_of(&c->in[0]);
    const double by_x = (c->in[0].data[i] - c->in[3].data[k]) * c->in[4].data[k] * c->in[1].data[k] + c->in[2].data[k];
    const double z = y > 0 ? c->in[y].data[i] : by_x;
    return !c->attrs->batch_norm.relu || z > 0 ? c->in[5].data[i] : 0;
}

static void ref_batch_norm_sums(const ref_call *c)
{
    const int64_t width = width_of(&c->in[0]), samples = c->in[0].shape->dim[0], rows = rows_of(&c->in[0]) / samples;
    const int64_t rank = shared_rank(c), begin = rank * samples;
    int64_t first = begin;
    for (int64_t node = 0; first < begin + samples; node++) {
        const int64_t count = node_samples(first, begin + samples);
        for (int64_t i = (first - begin) * rows * width; i < (first - begin + count) * rows * width; i++) {
            const double g = passed_gradient(c, i, c->input_count > 6 ? 6 : 0);
            const int64_t k = i % width;
            c->out[0].data[node_at(c->out[0].shape, rank, node, SL_NODE_FIRST, k)] += g;
            c->out[0].data[node_at(c->out[0].shape, rank, node, SL_NODE_SECOND, k)] +=
                g * (c->in[0].data[i] - c->in[3].data[k]);
            c->out[1].data[i] += g;
        }
        first += count;
    }
}

static void ref_batch_normalize_grad(const ref_call *c)
{
    const int64_t width = width_of(&c->in[0]), all = rows_of(&c->in[0]) * width;
    const double rows = (double)(rows_of(&c->in[0]) * c->attrs->batch_norm.ranks);
    for (int64_t k = 0; k < width; k++) {
        const double mean = c->in[3].data[k], rstd = c->in[4].data[k];
        double sums[3];
        sum_nodes(c, &c->in[6], k, false, sums);
        for (int64_t i = k; i < all; i += width) {
            const double g = passed_gradient(c, i, c->input_count > 7 ? 7 : 0), hat = (c->in[0].data[i] - mean) * rstd;
            c->out[0].data[i] += c->in[1].data[k] * rstd * (g - sums[0] / rows - hat * sums[1] * rstd / rows);
        }
        if (shared_rank(c) > 0) continue; /* rank 0 contributes them */
        c->out[1].data[k] += sums[1] * rstd;
        c->out[2].data[k] += sums[0];
    }
}

static void ref_group_norm_grad(const ref_call *c)
{
    int64_t width = width_of(&c->in[0]), samples = c->in[0].shape->dim[0], rows = rows_of(&c->in[0]) / samples;
    int64_t groups = c->attrs->group_norm.groups, each = width / groups;
    for (int64_t at = 0; at < samples * groups; at++)
        group_grad(c, c->in[4].data, at / groups * rows, rows, at % groups * each, each, c->in[2].data[at],
                   c->in[3].data[at], false);
}

/* Which of a packed row's heads the element is in, and the weights of that kind of head; NULL: a value head. */
static const double *head_weights(const ref_call *c, int64_t head)
{
    int64_t queries = c->attrs->qk_norm.heads, keys = c->attrs->qk_norm.kv_heads;
    return head < queries ? c->in[1].data : head < queries + keys ? c->in[2].data : NULL;
}

static void ref_qk_norm(const ref_call *c)
{
    int64_t d = c->attrs->qk_norm.head_width, heads = width_of(&c->in[0]) / d;
    int64_t normed = heads - c->attrs->qk_norm.kv_heads;
    for (int64_t at = 0; at < count_of(&c->in[0]) / d; at++) {
        const double *x = c->in[0].data + at * d, *w = head_weights(c, at % heads);
        double rstd = 1 / sqrt(row_mean(x, d, 0, 2) + (double)c->attrs->qk_norm.epsilon);
        for (int64_t i = 0; i < d; i++)
            c->out[0].data[at * d + i] += w == NULL ? x[i] : x[i] * rstd * ((double)c->attrs->qk_norm.offset + w[i]);
        if (w != NULL) c->out[1].data[at / heads * normed + at % heads] += rstd;
    }
}

static void ref_qk_norm_grad(const ref_call *c)
{
    int64_t d = c->attrs->qk_norm.head_width, heads = width_of(&c->in[0]) / d;
    int64_t normed = heads - c->attrs->qk_norm.kv_heads;
    const double offset = (double)c->attrs->qk_norm.offset;
    for (int64_t at = 0; at < count_of(&c->in[0]) / d; at++) {
        const double *x = c->in[0].data + at * d, *dy = c->in[4].data + at * d, *w = head_weights(c, at % heads);
        double *dx = c->out[0].data + at * d, *dw = c->out[at % heads < c->attrs->qk_norm.heads ? 1 : 2].data, mean = 0;
        double rstd = w != NULL ? c->in[3].data[at / heads * normed + at % heads] : 0;
        for (int64_t i = 0; i < d && w != NULL; i++) mean += dy[i] * (offset + w[i]) * x[i] * rstd / (double)d;
        for (int64_t i = 0; i < d; i++) {
            dx[i] += w == NULL ? dy[i] : rstd * (dy[i] * (offset + w[i]) - x[i] * rstd * mean);
            if (w != NULL) dw[i] += dy[i] * x[i] * rstd;
        }
    }
}

/* What a pair turns by from one position to the next: the published formulas, written once more. */
static double rotary_frequency(const ref_call *c, double i, double length)
{
    double d = c->attrs->rotary.rotated > 0 ? c->attrs->rotary.rotated : c->attrs->rotary.head_width;
    double base = (double)c->attrs->rotary.base, s = (double)c->attrs->rotary.factor, n = c->attrs->rotary.context;
    double low = (double)c->attrs->rotary.low, high = (double)c->attrs->rotary.high;
    if (c->attrs->rotary.scaling == SLUICE_ROTARY_DYNAMIC) base *= pow(s * fmax(length, n) / n - (s - 1), d / (d - 2));
    double f = pow(base, -2 * i / d), wave = 2 * M_PI / f;
    if (c->attrs->rotary.scaling == SLUICE_ROTARY_LINEAR) return f / s;
    if (c->attrs->rotary.scaling == SLUICE_ROTARY_LLAMA3) {
        double smooth = (n / wave - low) / (high - low);
        return wave < n / high ? f : wave > n / low ? f / s : (1 - smooth) * f / s + smooth * f;
    }
    if (c->attrs->rotary.scaling == SLUICE_ROTARY_YARN) {
        double first = d * log(n / (high * 2 * M_PI)) / (2 * log(base));
        double last = d * log(n / (low * 2 * M_PI)) / (2 * log(base));
        if (!c->attrs->rotary.fractional) first = floor(first), last = ceil(last);
        first = fmax(first, 0), last = fmin(last, d - 1);
        if (first == last) last += 0.001;
        double ramp = fmin(fmax((i - first) / (last - first), 0), 1);
        return f * (1 - ramp) + f / s * ramp;
    }
    return f;
}

static void ref_rotary(const ref_call *c)
{
    const sl_shape *s = c->in[0].shape;
    int64_t width = c->attrs->rotary.head_width, row = s->dim[2];
    int64_t rotated = c->attrs->rotary.rotated > 0 ? c->attrs->rotary.rotated : width, pairs = rotated / 2;
    double longer = c->attrs->rotary.attention > 0 ? (double)c->attrs->rotary.attention : 1;
    for (int64_t at = 0; at < count_of(&c->in[0]); at++) {
        int64_t column = at % row, token = at / row, i = column % width % pairs;
        double position = c->input_count > 1 ? c->in[1].data[token] : (double)(token % s->dim[1]);
        double angle = position * rotary_frequency(c, (double)i, (double)s->dim[1]);
        if (c->attrs->rotary.inverse) angle = -angle;
        double turned = c->in[0].data[at];
        if (column < c->attrs->rotary.heads * width && column % width < rotated) {
            bool low = column % width < pairs;
            double other = c->in[0].data[low ? at + pairs : at - pairs];
            turned = longer * (turned * cos(angle) + (low ? -other : other) * sin(angle));
        }
        c->out[0].data[at] += turned;
    }
}

/* ---- Losses ---- */

/* A logit as the loss takes it, and the derivative of that. */
static double capped(const ref_call *c, double x)
{
    double cap = (double)c->attrs->cross_entropy.softcap;
    return cap > 0 ? cap * tanh(x / cap) : x;
}

static double cap_slope(const ref_call *c, double x)
{
    double cap = (double)c->attrs->cross_entropy.softcap;
    return cap > 0 ? 1 / pow(cosh(x / cap), 2) : 1;
}

static double capped_lse(const ref_call *c, const double *x, int64_t n)
{
    double *y = calloc((size_t)n, sizeof *y);
    for (int64_t i = 0; i < n; i++) y[i] = capped(c, x[i]);
    double lse = log_sum_exp(y, n);
    free(y);
    return lse;
}

/* What a row's target has of class i: with smoothing not all is the target's own. */
static double target_share(const ref_call *c, int64_t i, int64_t target, int64_t classes)
{
    double smoothing = (double)c->attrs->cross_entropy.smoothing;
    return (i == target ? 1 - smoothing : 0) + smoothing / (double)classes;
}

/* Cross entropy of a row of logits with its target. */
static double row_entropy(const ref_call *c, const double *x, int64_t n, int64_t target, double lse)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        double share = target_share(c, i, target, n);
        if (share > 0) sum += share * (lse - capped(c, x[i]));
    }
    return sum;
}

static void ref_cross_entropy(const ref_call *c)
{
    int64_t n = width_of(&c->in[0]), rows = rows_of(&c->in[0]), counted = 0;
    double sum = 0;
    for (int64_t r = 0; r < rows; r++) {
        double lse = capped_lse(c, c->in[0].data + r * n, n);
        c->out[1].data[r] += lse;
        int64_t target = (int64_t)c->in[1].data[r];
        if (target == c->attrs->cross_entropy.ignore_index) continue;
        sum += row_entropy(c, c->in[0].data + r * n, n, target, lse);
        counted++;
    }
    c->out[0].data[0] += counted > 0 ? sum / (double)counted : 0;
    c->out[2].data[0] += (double)counted;
}

static void ref_cross_entropy_grad(const ref_call *c)
{
    int64_t n = width_of(&c->in[0]);
    for (int64_t r = 0; r < rows_of(&c->in[0]); r++) {
        int64_t target = (int64_t)c->in[1].data[r];
        if (target == c->attrs->cross_entropy.ignore_index) continue;
        double g = c->in[4].data[0] / c->in[3].data[0];
        for (int64_t i = 0; i < n; i++) {
            double x = c->in[0].data[r * n + i];
            double p = exp(capped(c, x) - c->in[2].data[r]);
            c->out[0].data[r * n + i] += g * (p - target_share(c, i, target, n)) * cap_slope(c, x);
        }
    }
}

/* Gradients of a mean over `count` rows that one row adds: d is (softmax - one-hot) seed / count. */
static void add_head_gradients(const ref_call *c, int64_t row, const double *d)
{
    int64_t in = width_of(&c->in[0]), classes = c->in[1].shape->dim[0];
    for (int64_t k = 0; k < classes && c->input_count > 3 && c->out[4].shape != NULL; k++) c->out[4].data[k] += d[k];
    for (int64_t k = 0; k < classes; k++)
        for (int64_t i = 0; i < in; i++) {
            if (c->out[2].shape != NULL) c->out[2].data[k * in + i] += d[k] * c->in[0].data[row * in + i];
            if (c->out[3].shape != NULL) c->out[3].data[row * in + i] += d[k] * c->in[1].data[k * in + i];
        }
}

static void ref_linear_cross_entropy(const ref_call *c)
{
    int64_t in = width_of(&c->in[0]), classes = c->in[1].shape->dim[0], rows = count_of(&c->in[2]), counted = 0;
    double sum = 0, *logits = calloc((size_t)classes, sizeof *logits);
    for (int64_t r = 0; r < rows; r++) counted += (int64_t)c->in[2].data[r] != c->attrs->cross_entropy.ignore_index;
    for (int64_t r = 0; r < rows; r++) {
        int64_t target = (int64_t)c->in[2].data[r];
        if (target == c->attrs->cross_entropy.ignore_index) continue;
        for (int64_t k = 0; k < classes; k++) {
            logits[k] = c->input_count > 3 ? c->in[3].data[k] : 0;
            for (int64_t i = 0; i < in; i++) logits[k] += c->in[0].data[r * in + i] * c->in[1].data[k * in + i];
        }
        double lse = capped_lse(c, logits, classes), seed = (double)c->context->seed_gradient / (double)counted;
        sum += row_entropy(c, logits, classes, target, lse);
        for (int64_t k = 0; k < classes; k++)
            logits[k] = (exp(capped(c, logits[k]) - lse) - target_share(c, k, target, classes)) * seed *
                        cap_slope(c, logits[k]);
        add_head_gradients(c, r, logits);
    }
    c->out[0].data[0] += counted > 0 ? sum / (double)counted : 0;
    c->out[1].data[0] += (double)counted;
    free(logits);
}

static void ref_linear_cross_entropy_grad(const ref_call *c)
{
    double factor = c->in[2].data[0] / (double)c->context->seed_gradient;
    for (int k = 0; k < c->input_count - 1; k++) {
        const ref_tensor *from = &c->in[k < 2 ? k : k + 1];
        for (int64_t i = 0; i < count_of(from); i++) c->out[k].data[i] += from->data[i] * factor;
    }
}

static void ref_mse(const ref_call *c)
{
    double sum = 0;
    for (int64_t i = 0; i < count_of(&c->in[0]); i++) sum += pow(c->in[0].data[i] - c->in[1].data[i], 2);
    c->out[0].data[0] += sum / (double)count_of(&c->in[0]);
}

static void ref_mse_grad(const ref_call *c)
{
    for (int64_t i = 0; i < count_of(&c->in[0]); i++) {
        double d = 2 * (c->in[0].data[i] - c->in[1].data[i]) / (double)count_of(&c->in[0]) * c->in[2].data[0];
        c->out[0].data[i] += d;
        c->out[1].data[i] -= d;
    }
}

static double bce_of(double y, double t)
{
    return (y > 0 ? y : 0) - y * t + log1p(exp(-fabs(y)));
}

static void ref_bce_with_logits(const ref_call *c)
{
    int64_t n = count_of(&c->in[0]);
    for (int64_t i = 0; i < n; i++) {
        double w = c->input_count > 2 ? c->in[2].data[i] : 1;
        c->out[0].data[0] += w * bce_of(c->in[0].data[i], c->in[1].data[i]) / (double)n;
    }
}

static void ref_bce_with_logits_grad(const ref_call *c)
{
    int64_t n = count_of(&c->in[0]);
    for (int64_t i = 0; i < n; i++) {
        double y = c->in[0].data[i], t = c->in[1].data[i], g = c->in[2].data[0] / (double)n;
        double w = c->input_count > 3 ? c->in[3].data[i] : 1;
        c->out[0].data[i] += g * w * (1 / (1 + exp(-y)) - t);
        if (c->output_count > 1) c->out[1].data[i] -= g * w * y;
        if (c->output_count > 2) c->out[2].data[i] += g * bce_of(y, t);
    }
}

/* ---- Sequences ---- */

/* Frames of sequence b that count, by input i where it is there. */
static int64_t length_at(const ref_call *c, int i, int64_t b, int64_t frames)
{
    return c->input_count > i ? (int64_t)c->in[i].data[b] : frames;
}

static double sigmoid_of(double x)
{
    return 1 / (1 + exp(-x));
}

/* One frame: x[3H] and the state before, NULL: 0, give the state and what is saved. */
static void gru_frame(const ref_call *c, int64_t h, const double *x, const double *before, double *state, double *saved)
{
    const double *w = c->in[1].data, *bias = c->in[2].data;
    for (int64_t i = 0; i < h; i++) {
        double a[3];
        for (int gate = 0; gate < 3; gate++) {
            a[gate] = bias[gate * h + i];
            for (int64_t k = 0; k < h && before != NULL; k++) a[gate] += w[(gate * h + i) * h + k] * before[k];
        }
        double r = sigmoid_of(x[i] + a[0]), z = sigmoid_of(x[h + i] + a[1]), n = tanh(x[2 * h + i] + r * a[2]);
        state[i] += (1 - z) * n + z * (before != NULL ? before[i] : 0);
        saved[i] += r;
        saved[h + i] += z;
        saved[2 * h + i] += n;
        saved[3 * h + i] += a[2];
    }
}

static void ref_gru(const ref_call *c)
{
    const sl_shape *s = c->out[0].shape;
    int64_t frames = s->dim[1], h = s->dim[2], step = c->attrs->gru.reverse ? -1 : 1;
    for (int64_t b = 0; b < s->dim[0]; b++) {
        int64_t length = length_at(c, 3, b, frames), f = b * frames + (step > 0 ? 0 : length - 1);
        for (int64_t n = 0; n < length; n++, f += step)
            gru_frame(c, h, c->in[0].data + f * 3 * h, n > 0 ? c->out[0].data + (f - step) * h : NULL,
                      c->out[0].data + f * h, c->out[1].data + f * 4 * h);
    }
}

/* dh: of the state of frame f; becomes that of the state before. */
static void gru_frame_grad(const ref_call *c, int64_t h, int64_t f, const double *before, double *dh)
{
    const double *w = c->in[0].data, *saved = c->in[1].data + f * 4 * h;
    double *past = calloc((size_t)h, sizeof *past);
    for (int64_t i = 0; i < h; i++) {
        double r = saved[i], z = saved[h + i], n = saved[2 * h + i], a = saved[3 * h + i];
        double dn = dh[i] * (1 - z) * (1 - n * n), dr = dn * a * r * (1 - r);
        double dz = dh[i] * ((before != NULL ? before[i] : 0) - n) * z * (1 - z);
        const double dx[3] = { dr, dz, dn }, da[3] = { dr, dz, dn * r };
        past[i] += dh[i] * z;
        for (int gate = 0; gate < 3; gate++) {
            int64_t row = gate * h + i;
            c->out[0].data[f * 3 * h + row] += dx[gate];
            c->out[2].data[row] += da[gate];
            for (int64_t k = 0; k < h; k++) {
                past[k] += da[gate] * w[row * h + k];
                if (before != NULL) c->out[1].data[row * h + k] += da[gate] * before[k];
            }
        }
    }
    memcpy(dh, past, (size_t)h * sizeof *dh);
    free(past);
}

static void ref_gru_grad(const ref_call *c)
{
    const sl_shape *s = c->in[2].shape;
    int64_t frames = s->dim[1], h = s->dim[2], step = c->attrs->gru.reverse ? 1 : -1;
    double *dh = calloc((size_t)h, sizeof *dh);
    for (int64_t b = 0; b < s->dim[0]; b++) {
        int64_t length = length_at(c, 4, b, frames), f = step > 0 ? 0 : length - 1;
        memset(dh, 0, (size_t)h * sizeof *dh);
        for (int64_t n = 0; n < length; n++, f += step) {
            int64_t at = b * frames + f, other = f + step;
            bool has = other >= 0 && other < frames;
            for (int64_t i = 0; i < h; i++) dh[i] += c->in[3].data[at * h + i];
            gru_frame_grad(c, h, at, has ? c->in[2].data + (at + step) * h : NULL, dh);
        }
    }
    free(dh);
}

/* One sequence of CTC_LOSS, in plain probabilities: a double holds those of the tests' lengths. */
typedef struct ctc_reference {
    int64_t frames, classes, labels, states;
    const double *x, *label;
    int32_t blank;
    double *p, *alpha, *beta; /* [frames, classes], [frames, states] twice */
} ctc_reference;

static int64_t ctc_class(const ctc_reference *q, int64_t s)
{
    return s % 2 == 0 ? q->blank : (int64_t)q->label[s / 2];
}

/* Whether state s is reached from state `from` in one step. */
static bool ctc_leads(const ctc_reference *q, int64_t from, int64_t s)
{
    if (from == s || from == s - 1) return true;
    return from == s - 2 && s % 2 == 1 && ctc_class(q, s) != ctc_class(q, from);
}

static double ctc_passes(const ctc_reference *q)
{
    for (int64_t f = 0; f < q->frames; f++) {
        double lse = log_sum_exp(q->x + f * q->classes, q->classes);
        for (int64_t i = 0; i < q->classes; i++) q->p[f * q->classes + i] = exp(q->x[f * q->classes + i] - lse);
    }
    for (int64_t f = 0; f < q->frames; f++)
        for (int64_t s = 0; s < q->states; s++) {
            double ways = f == 0 && s < 2;
            for (int64_t from = 0; f > 0 && from <= s; from++)
                if (ctc_leads(q, from, s)) ways += q->alpha[(f - 1) * q->states + from];
            q->alpha[f * q->states + s] = ways * q->p[f * q->classes + ctc_class(q, s)];
        }
    for (int64_t f = q->frames - 1; f >= 0; f--)
        for (int64_t s = 0; s < q->states; s++) {
            double ways = f == q->frames - 1 && s >= q->states - 2;
            for (int64_t to = s; f < q->frames - 1 && to < q->states; to++)
                if (ctc_leads(q, s, to))
                    ways += q->beta[(f + 1) * q->states + to] * q->p[(f + 1) * q->classes + ctc_class(q, to)];
            q->beta[f * q->states + s] = ways;
        }
    if (q->frames == 0) return q->labels == 0;
    const double *last = q->alpha + q->frames * q->states - 1;
    return *last + (q->states > 1 ? last[-1] : 0);
}

static void ctc_sequence(const ref_call *c, int64_t b)
{
    const sl_shape *x = c->in[0].shape;
    int64_t most = c->in[1].shape->dim[1], all = x->dim[1] * x->dim[2];
    ctc_reference q = { .frames = length_at(c, 2, b, x->dim[1]), .classes = x->dim[2], .blank = c->attrs->ctc.blank };
    q.x = c->in[0].data + b * all;
    q.label = c->in[1].data + b * most;
    while (q.labels < most && q.label[q.labels] >= 0) q.labels++;
    q.states = 2 * q.labels + 1;
    q.p = calloc((size_t)all, sizeof *q.p);
    q.alpha = calloc((size_t)(x->dim[1] * q.states), sizeof *q.alpha);
    q.beta = calloc((size_t)(x->dim[1] * q.states), sizeof *q.beta);
    double total = ctc_passes(&q), weight = 1 / (double)x->dim[0] / (double)(q.labels > 0 ? q.labels : 1);
    if (total > 0 || !c->attrs->ctc.zero_infinity) {
        double *d = c->out[1].data + b * all, g = (double)c->context->seed_gradient * weight;
        c->out[0].data[0] += -log(total) * weight;
        for (int64_t i = 0; i < q.frames * q.classes; i++) d[i] += g * q.p[i];
        for (int64_t f = 0; f < q.frames; f++)
            for (int64_t s = 0; s < q.states; s++)
                d[f * q.classes + ctc_class(&q, s)] -= g * q.alpha[f * q.states + s] * q.beta[f * q.states + s] / total;
    }
    free(q.p);
    free(q.alpha);
    free(q.beta);
}

static void ref_ctc_loss(const ref_call *c)
{
    for (int64_t b = 0; b < c->in[0].shape->dim[0]; b++) ctc_sequence(c, b);
}

static void ref_ctc_loss_grad(const ref_call *c)
{
    for (int64_t i = 0; i < count_of(&c->in[0]); i++)
        c->out[0].data[i] += c->in[0].data[i] * c->in[1].data[0] / (double)c->context->seed_gradient;
}

/* ---- Moving ---- */

static void ref_embedding(const ref_call *c)
{
    int64_t n = width_of(&c->in[1]);
    for (int64_t t = 0; t < count_of(&c->in[0]); t++)
        for (int64_t i = 0; i < n; i++) c->out[0].data[t * n + i] += c->in[1].data[(int64_t)c->in[0].data[t] * n + i];
}

static void ref_embedding_grad(const ref_call *c)
{
    int64_t n = width_of(&c->out[0]);
    for (int64_t t = 0; t < count_of(&c->in[0]); t++)
        for (int64_t i = 0; i < n; i++) c->out[0].data[(int64_t)c->in[0].data[t] * n + i] += c->in[1].data[t * n + i];
}

static void ref_transpose(const ref_call *c)
{
    const sl_shape *from = c->in[0].shape, *to = c->out[0].shape;
    for (int64_t flat = 0; flat < count_of(&c->out[0]); flat++) {
        int64_t index[SL_MAX_RANK] = { 0 }, rest = flat, at = 0;
        for (int i = to->rank - 1; i >= 0; rest /= to->dim[i--])
            index[c->attrs->transpose.order[i]] = rest % to->dim[i];
        for (int i = 0; i < from->rank; i++) at = at * from->dim[i] + index[i];
        c->out[0].data[flat] += c->in[0].data[at];
    }
}

/* Element `flat` of a part that begins at `start` along `axis` of `whole`. */
static int64_t part_index(const sl_shape *part, int64_t flat, const sl_shape *whole, int axis, int64_t start)
{
    int64_t inner = 1;
    for (int i = axis + 1; i < part->rank; i++) inner *= part->dim[i];
    int64_t outer = flat / inner / part->dim[axis], along = flat / inner % part->dim[axis] + start;
    return (outer * whole->dim[axis] + along) * inner + flat % inner;
}

static void ref_split(const ref_call *c)
{
    for (int64_t i = 0; i < count_of(&c->out[0]); i++)
        c->out[0].data[i] +=
            c->in[0].data[part_index(c->out[0].shape, i, c->in[0].shape, c->attrs->split.axis, c->attrs->split.start)];
}

static void ref_split_grad(const ref_call *c)
{
    for (int64_t i = 0; i < count_of(&c->in[0]); i++)
        c->out[0].data[part_index(c->in[0].shape, i, c->out[0].shape, c->attrs->split.axis, c->attrs->split.start)] +=
            c->in[0].data[i];
}

static void ref_add_part(const ref_call *c)
{
    for (int64_t i = 0; i < count_of(&c->in[0]); i++) c->out[0].data[i] += c->in[0].data[i];
    for (int64_t i = 0; i < count_of(&c->in[1]); i++)
        c->out[0].data[part_index(c->in[1].shape, i, c->out[0].shape, c->attrs->split.axis, c->attrs->split.start)] +=
            c->in[1].data[i];
}

static void ref_concat(const ref_call *c)
{
    int64_t start = 0;
    for (int k = 0; k < c->input_count; k++) {
        const sl_shape *part = c->in[k].shape;
        for (int64_t i = 0; i < count_of(&c->in[k]); i++)
            c->out[0].data[part_index(part, i, c->out[0].shape, c->attrs->concat.axis, start)] += c->in[k].data[i];
        start += part->dim[c->attrs->concat.axis];
    }
}

/* ---- Attention ---- */

/* q, k, v or their gradients: the row of token t of sequence b for a head, wherever it lies. */
typedef struct head_rows {
    double *base;
    int64_t length, row, column; /* tokens of a sequence, elements of a token, where head 0 begins */
} head_rows;

static double *head_at(const head_rows *h, int64_t b, int64_t t, int64_t head, int64_t width)
{
    return h->base + (b * h->length + t) * h->row + h->column + head * width;
}

/* The three operands from one packed tensor or three. */
static void find_heads(const ref_call *c, const ref_tensor *t, head_rows rows[3])
{
    int64_t d = c->attrs->attention.head_width, h = c->attrs->attention.heads, g = c->attrs->attention.kv_heads;
    int64_t columns[3] = { 0, h * d, (h + g) * d };
    for (int i = 0; i < 3; i++) {
        const ref_tensor *from = c->attrs->attention.packed ? t : t + i;
        rows[i] = (head_rows){ from->data, from->shape->dim[1], from->shape->dim[2],
                               c->attrs->attention.packed ? columns[i] : 0 };
    }
}

static double dot(const double *a, const double *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

/* The first key that query t of batch b sees, and how many follow; positions or lengths, or NULL where there are none. */
static int64_t keys_seen(const ref_call *c, const double *positions, int64_t b, int64_t t, int64_t length, int64_t all,
                         int64_t *first)
{
    *first = 0;
    if (!c->attrs->attention.causal && positions != NULL) { /* lengths */
        int64_t there = (int64_t)positions[b];
        return there < 1 ? 1 : there < all ? there : all;
    }
    if (!c->attrs->attention.causal) return all;
    if (c->attrs->attention.window > 0 && t - c->attrs->attention.window + 1 > 0)
        *first = t - c->attrs->attention.window + 1;
    if (positions != NULL && t - (int64_t)positions[b * length + t] > *first)
        *first = t - (int64_t)positions[b * length + t];
    return t + 1 - *first;
}

static const double *positions_of(const ref_call *c, int after)
{
    int operands = c->attrs->attention.packed ? 1 : 3;
    return c->input_count - after > operands ? c->in[operands].data : NULL;
}

/* A score of the product of q and k, and its slope by that. */
static double score_of(const ref_call *c, double product, double *slope)
{
    double scale = (double)c->attrs->attention.scale, cap = (double)c->attrs->attention.softcap;
    double bent = cap > 0 ? tanh(product * scale / cap) : 0;
    *slope = scale * (1 - bent * bent);
    return cap > 0 ? cap * bent : product * scale;
}

static void ref_attention(const ref_call *c)
{
    int64_t d = c->attrs->attention.head_width, heads = c->attrs->attention.heads;
    int64_t shared = heads / c->attrs->attention.kv_heads;
    head_rows in[3];
    find_heads(c, c->in, in);
    int64_t batch = c->in[0].shape->dim[0], length = in[0].length;
    const double *positions = positions_of(c, 0);
    double *p = calloc((size_t)in[1].length, sizeof *p), slope;
    for (int64_t at = 0; at < batch * heads * length; at++) {
        int64_t t = at % length, h = at / length % heads, b = at / length / heads, first;
        int64_t keys = keys_seen(c, positions, b, t, length, in[1].length, &first);
        const double *q = head_at(&in[0], b, t, h, d);
        for (int64_t s = 0; s < keys; s++)
            p[s] = score_of(c, dot(q, head_at(&in[1], b, first + s, h / shared, d), d), &slope);
        double lse = log_sum_exp(p, keys);
        for (int64_t s = 0; s < keys; s++)
            for (int64_t i = 0; i < d; i++)
                c->out[0].data[((b * length + t) * heads + h) * d + i] +=
                    exp(p[s] - lse) * head_at(&in[2], b, first + s, h / shared, d)[i];
        c->out[1].data[at] += lse;
    }
    free(p);
}

/* Element of dimension d at a position, of the keys or the values of one slot's head: op_list.h has the layout. */
static double *cached_at(const ref_call *c, bool values, int64_t slot, int64_t head, int64_t position, int64_t d)
{
    int64_t kept = c->attrs->cached.kept, width = c->attrs->cached.head_width, place = position % kept;
    double *keys = c->out[1].data + (slot * c->attrs->cached.kv_heads + head) * 2 * kept * width;
    if (values) return keys + kept * width + place * width + d;
    return keys + (place / SL_CACHE_KEYS * width + d) * SL_CACHE_KEYS + place % SL_CACHE_KEYS;
}

static void ref_keep_rows(const ref_call *c)
{
    int64_t width = c->attrs->cached.head_width, heads = c->attrs->cached.heads, kv = c->attrs->cached.kv_heads;
    for (int64_t n = 0; n < c->in[0].shape->dim[0]; n++)
        for (int64_t at = 0; at < kv * width; at++) {
            const double *key = c->in[0].data + (n * (heads + 2 * kv) + heads) * width;
            int64_t slot = (int64_t)c->in[2].data[n], position = (int64_t)c->in[1].data[n];
            *cached_at(c, false, slot, at / width, position, at % width) = key[at];
            *cached_at(c, true, slot, at / width, position, at % width) = key[kv * width + at];
        }
}

static void ref_attention_cached(const ref_call *c)
{
    int64_t width = c->attrs->cached.head_width, heads = c->attrs->cached.heads, kv = c->attrs->cached.kv_heads;
    int64_t window = c->attrs->cached.window;
    double cap = (double)c->attrs->cached.softcap;
    ref_keep_rows(c);
    for (int64_t at = 0; at < c->in[0].shape->dim[0] * heads; at++) {
        int64_t n = at / heads, h = at % heads, head = h / (heads / kv), slot = (int64_t)c->in[2].data[n];
        int64_t high = (int64_t)c->in[1].data[n], low = window > 0 && high >= window ? high - window + 1 : 0;
        const double *q = c->in[0].data + (n * (heads + 2 * kv) + h) * width;
        double *p = calloc((size_t)(high - low + 1), sizeof *p);
        for (int64_t s = low; s <= high; s++) {
            for (int64_t d = 0; d < width; d++) p[s - low] += q[d] * *cached_at(c, false, slot, head, s, d);
            p[s - low] *= (double)c->attrs->cached.scale;
            if (cap > 0) p[s - low] = cap * tanh(p[s - low] / cap);
        }
        double lse = log_sum_exp(p, high - low + 1);
        for (int64_t s = low; s <= high; s++)
            for (int64_t d = 0; d < width; d++)
                c->out[0].data[at * width + d] += exp(p[s - low] - lse) * *cached_at(c, true, slot, head, s, d);
        free(p);
    }
}

static void ref_attention_grad(const ref_call *c)
{
    int64_t d = c->attrs->attention.head_width, heads = c->attrs->attention.heads;
    int64_t shared = heads / c->attrs->attention.kv_heads;
    int saved = c->input_count - 3; /* out, lse, dout follow the forward inputs */
    const double *positions = positions_of(c, 3);
    head_rows in[3], grad[3];
    find_heads(c, c->in, in);
    find_heads(c, c->out, grad);
    int64_t batch = c->in[0].shape->dim[0], length = in[0].length;
    for (int64_t at = 0; at < batch * heads * length; at++) {
        int64_t t = at % length, h = at / length % heads, b = at / length / heads,
                row = ((b * length + t) * heads + h) * d, first;
        int64_t keys = keys_seen(c, positions, b, t, length, in[1].length, &first);
        const double *q = head_at(&in[0], b, t, h, d), *dout = c->in[saved + 2].data + row;
        double delta = dot(dout, c->in[saved].data + row, d);
        for (int64_t s = first; s < first + keys; s++) {
            const double *k = head_at(&in[1], b, s, h / shared, d), *v = head_at(&in[2], b, s, h / shared, d);
            double slope, p = exp(score_of(c, dot(q, k, d), &slope) - c->in[saved + 1].data[at]);
            double ds = p * (dot(dout, v, d) - delta) * slope;
            for (int64_t i = 0; i < d; i++) {
                head_at(&grad[0], b, t, h, d)[i] += ds * k[i];
                head_at(&grad[1], b, s, h / shared, d)[i] += ds * q[i];
                head_at(&grad[2], b, s, h / shared, d)[i] += p * dout[i];
            }
        }
    }
}

/* ---- Images ---- */

typedef struct ref_conv {
    int64_t n, h, w, c, oh, ow, o, kh, kw, og, cg;
    const sl_attrs *attrs;
} ref_conv;

static ref_conv conv_sizes(const ref_call *c, const sl_shape *x, const sl_shape *y, const sl_shape *w)
{
    ref_conv v = { x->dim[0], x->dim[1], x->dim[2], x->dim[3], y->dim[1],
                   y->dim[2], y->dim[3], w->dim[2], w->dim[3], y->dim[3] / c->attrs->conv.groups,
                   w->dim[1], c->attrs };
    return v;
}

/* Calls `add` for every product of the convolution with the places of its x, w and y. */
static void each_product(const ref_call *c, const ref_conv *v,
                         void (*add)(const ref_call *c, int64_t x, int64_t w, int64_t y))
{
    for (int64_t y = 0; y < v->n * v->oh * v->ow * v->o; y++) {
        int64_t o = y % v->o, j = y / v->o % v->ow, i = y / v->o / v->ow % v->oh, n = y / v->o / v->ow / v->oh;
        for (int64_t k = 0; k < v->cg * v->kh * v->kw; k++) {
            int64_t b = k % v->kw, a = k / v->kw % v->kh, channel = k / v->kw / v->kh + o / v->og * v->cg;
            int64_t h = i * v->attrs->conv.stride_h - v->attrs->conv.padding_h + a * v->attrs->conv.dilation_h;
            int64_t w = j * v->attrs->conv.stride_w - v->attrs->conv.padding_w + b * v->attrs->conv.dilation_w;
            if (h < 0 || h >= v->h || w < 0 || w >= v->w) continue;
            add(c, ((n * v->h + h) * v->w + w) * v->c + channel, o * v->cg * v->kh * v->kw + k, y);
        }
    }
}

static void add_to_y(const ref_call *c, int64_t x, int64_t w, int64_t y)
{
    c->out[0].data[y] += c->in[0].data[x] * c->in[1].data[w];
}

static void add_to_x(const ref_call *c, int64_t x, int64_t w, int64_t y)
{
    c->out[0].data[x] += c->in[0].data[y] * c->in[1].data[w];
}

static void add_to_w(const ref_call *c, int64_t x, int64_t w, int64_t y)
{
    c->out[0].data[w] += c->in[0].data[y] * c->in[1].data[x];
}

static void ref_conv2d(const ref_call *c)
{
    ref_conv v = conv_sizes(c, c->in[0].shape, c->out[0].shape, c->in[1].shape);
    each_product(c, &v, add_to_y);
    for (int64_t i = 0; c->input_count > 2 && i < count_of(&c->out[0]); i++)
        c->out[0].data[i] += c->in[2].data[i % v.o];
}

static void ref_conv2d_grad_input(const ref_call *c)
{
    ref_conv v = conv_sizes(c, c->out[0].shape, c->in[0].shape, c->in[1].shape);
    each_product(c, &v, add_to_x);
}

static void ref_conv2d_grad_weight(const ref_call *c)
{
    ref_conv v = conv_sizes(c, c->in[1].shape, c->in[0].shape, c->out[0].shape);
    each_product(c, &v, add_to_w);
    for (int64_t i = 0; c->output_count > 1 && c->out[1].shape && i < count_of(&c->in[0]); i++)
        c->out[1].data[i % v.o] += c->in[0].data[i];
}

/* The window of element y of the result, [first, end) along both dimensions, and what an average of it divides by. */
typedef struct ref_window {
    int64_t n, channel, h0, h1, w0, w1, size;
} ref_window;

static ref_window window_of(const sl_attrs *attrs, const sl_shape *x, const sl_shape *out, int64_t y)
{
    int64_t j = y / out->dim[3] % out->dim[2], i = y / out->dim[3] / out->dim[2] % out->dim[1];
    ref_window r = { .n = y / out->dim[3] / out->dim[2] / out->dim[1], .channel = y % out->dim[3] };
    r.h0 = i * attrs->pool.stride_h - attrs->pool.padding_h;
    r.w0 = j * attrs->pool.stride_w - attrs->pool.padding_w;
    r.h1 = r.h0 + attrs->pool.kernel_h, r.w1 = r.w0 + attrs->pool.kernel_w;
    if (r.h1 > x->dim[1] + attrs->pool.padding_h) r.h1 = x->dim[1] + attrs->pool.padding_h;
    if (r.w1 > x->dim[2] + attrs->pool.padding_w) r.w1 = x->dim[2] + attrs->pool.padding_w;
    r.size = (r.h1 - r.h0) * (r.w1 - r.w0);
    if (r.h0 < 0) r.h0 = 0;
    if (r.w0 < 0) r.w0 = 0;
    if (r.h1 > x->dim[1]) r.h1 = x->dim[1];
    if (r.w1 > x->dim[2]) r.w1 = x->dim[2];
    if (!attrs->pool.include_padding) r.size = (r.h1 - r.h0) * (r.w1 - r.w0);
    return r;
}

/* Of x, the place of the k-th element of a window in row order; -1: it has no more. */
static int64_t window_place(const ref_window *r, const sl_shape *x, int64_t k)
{
    int64_t h = r->h0 + k / (r->w1 - r->w0), w = r->w0 + k % (r->w1 - r->w0);
    return h < r->h1 ? ((r->n * x->dim[1] + h) * x->dim[2] + w) * x->dim[3] + r->channel : -1;
}

static int64_t largest_place(const ref_call *c, const sl_shape *out, int64_t y)
{
    ref_window r = window_of(c->attrs, c->in[0].shape, out, y);
    int64_t best = window_place(&r, c->in[0].shape, 0), at;
    for (int64_t k = 1; (at = window_place(&r, c->in[0].shape, k)) >= 0; k++)
        if (c->in[0].data[at] > c->in[0].data[best] || isnan(c->in[0].data[at])) best = at;
    return best;
}

static void ref_max_pool2d(const ref_call *c)
{
    for (int64_t y = 0; y < count_of(&c->out[0]); y++)
        c->out[0].data[y] += c->in[0].data[largest_place(c, c->out[0].shape, y)];
}

static void ref_max_pool2d_grad(const ref_call *c)
{
    for (int64_t y = 0; y < count_of(&c->in[1]); y++)
        c->out[0].data[largest_place(c, c->in[1].shape, y)] += c->in[1].data[y];
}

static void ref_avg_pool2d(const ref_call *c)
{
    for (int64_t y = 0; y < count_of(&c->out[0]); y++) {
        ref_window r = window_of(c->attrs, c->in[0].shape, c->out[0].shape, y);
        for (int64_t k = 0, at; (at = window_place(&r, c->in[0].shape, k)) >= 0; k++)
            c->out[0].data[y] += c->in[0].data[at] / (double)r.size;
    }
}

static void ref_avg_pool2d_grad(const ref_call *c)
{
    for (int64_t y = 0; y < count_of(&c->in[0]); y++) {
        ref_window r = window_of(c->attrs, c->out[0].shape, c->in[0].shape, y);
        for (int64_t k = 0, at; (at = window_place(&r, c->out[0].shape, k)) >= 0; k++)
            c->out[0].data[at] += c->in[0].data[y] / (double)r.size;
    }
}

static void ref_global_avg_pool(const ref_call *c)
{
    int64_t channels = width_of(&c->in[0]), each = count_of(&c->in[0]) / c->in[0].shape->dim[0];
    for (int64_t i = 0; i < count_of(&c->in[0]); i++)
        c->out[0].data[i / each * channels + i % channels] += c->in[0].data[i] * (double)channels / (double)each;
}

static void ref_global_avg_pool_grad(const ref_call *c)
{
    int64_t channels = width_of(&c->out[0]), each = count_of(&c->out[0]) / c->out[0].shape->dim[0];
    for (int64_t i = 0; i < count_of(&c->out[0]); i++)
        c->out[0].data[i] += c->in[0].data[i / each * channels + i % channels] * (double)channels / (double)each;
}

static void ref_bag(const ref_call *c)
{
    int64_t n = width_of(&c->in[0]);
    for (int64_t bag = 0, row = 0; bag < count_of(&c->in[1]); bag++)
        for (int64_t first = row, end = (int64_t)c->in[1].data[bag]; row < end; row++)
            for (int64_t i = 0; i < n; i++)
                c->out[0].data[bag * n + i] +=
                    c->in[0].data[row * n + i] / (c->attrs->bag.mean ? (double)(end - first) : 1.0);
}

static void ref_bag_grad(const ref_call *c)
{
    int64_t n = width_of(&c->out[0]);
    for (int64_t bag = 0, row = 0; bag < count_of(&c->in[0]); bag++)
        for (int64_t first = row, end = (int64_t)c->in[0].data[bag]; row < end; row++)
            for (int64_t i = 0; i < n; i++)
                c->out[0].data[row * n + i] +=
                    c->in[1].data[bag * n + i] / (c->attrs->bag.mean ? (double)(end - first) : 1.0);
}

typedef void (*ref_fn)(const ref_call *c);

static const ref_fn references[SL_OP_COUNT] = {
    [SL_OP_ADD] = ref_add,
    [SL_OP_MULTIPLY] = ref_multiply,
    [SL_OP_SCALE] = ref_scale,
    [SL_OP_LINEAR] = ref_linear,
    [SL_OP_LINEAR_GELU] = ref_linear_gelu,
    [SL_OP_LINEAR_ADD] = ref_linear_add,
    [SL_OP_MATMUL] = ref_matmul,
    [SL_OP_EMBEDDING] = ref_embedding,
    [SL_OP_RELU] = ref_relu,
    [SL_OP_GELU] = ref_gelu,
    [SL_OP_SILU] = ref_silu,
    [SL_OP_TANH] = ref_tanh,
    [SL_OP_TANH_GRAD] = ref_tanh_grad,
    [SL_OP_SIGMOID] = ref_sigmoid,
    [SL_OP_SIGMOID_GRAD] = ref_sigmoid_grad,
    [SL_OP_SWIGLU] = ref_swiglu,
    [SL_OP_GEGLU] = ref_geglu,
    [SL_OP_SOFTCAP] = ref_softcap,
    [SL_OP_SOFTMAX] = ref_softmax,
    [SL_OP_LAYER_NORM] = ref_layer_norm,
    [SL_OP_RMS_NORM] = ref_rms_norm,
    [SL_OP_QK_NORM] = ref_qk_norm,
    [SL_OP_BATCH_NORM] = ref_batch_norm,
    [SL_OP_BATCH_NORM_GRAD] = ref_batch_norm_grad,
    [SL_OP_BATCH_MOMENTS] = ref_batch_moments,
    [SL_OP_BATCH_STATISTICS] = ref_batch_statistics,
    [SL_OP_BATCH_NORMALIZE] = ref_batch_normalize,
    [SL_OP_BATCH_NORM_SUMS] = ref_batch_norm_sums,
    [SL_OP_BATCH_NORMALIZE_GRAD] = ref_batch_normalize_grad,
    [SL_OP_GROUP_NORM] = ref_group_norm,
    [SL_OP_GROUP_NORM_GRAD] = ref_group_norm_grad,
    [SL_OP_ROTARY] = ref_rotary,
    [SL_OP_ATTENTION] = ref_attention,
    [SL_OP_DROPOUT] = ref_dropout,
    [SL_OP_TRANSPOSE] = ref_transpose,
    [SL_OP_SPLIT] = ref_split,
    [SL_OP_ADD_PART] = ref_add_part,
    [SL_OP_CONCAT] = ref_concat,
    [SL_OP_CROSS_ENTROPY] = ref_cross_entropy,
    [SL_OP_LINEAR_CROSS_ENTROPY] = ref_linear_cross_entropy,
    [SL_OP_MSE] = ref_mse,
    [SL_OP_SUM] = ref_sum,
    [SL_OP_MEAN] = ref_mean,
    [SL_OP_CAST] = ref_cast,
    [SL_OP_SEED] = ref_seed,
    [SL_OP_REDUCE_TO] = ref_reduce_to,
    [SL_OP_MULTIPLY_REDUCE] = ref_multiply_reduce,
    [SL_OP_LINEAR_GRAD_INPUT] = ref_linear_grad_input,
    [SL_OP_LINEAR_GRAD_GELU] = ref_linear_grad_gelu,
    [SL_OP_LINEAR_GRAD_WEIGHT] = ref_linear_grad_weight,
    [SL_OP_EMBEDDING_GRAD] = ref_embedding_grad,
    [SL_OP_RELU_GRAD] = ref_relu_grad,
    [SL_OP_GELU_GRAD] = ref_gelu_grad,
    [SL_OP_SILU_GRAD] = ref_silu_grad,
    [SL_OP_SWIGLU_GRAD] = ref_swiglu_grad,
    [SL_OP_GEGLU_GRAD] = ref_geglu_grad,
    [SL_OP_SOFTCAP_GRAD] = ref_softcap_grad,
    [SL_OP_SOFTMAX_GRAD] = ref_softmax_grad,
    [SL_OP_LAYER_NORM_GRAD] = ref_layer_norm_grad,
    [SL_OP_RMS_NORM_GRAD] = ref_rms_norm_grad,
    [SL_OP_QK_NORM_GRAD] = ref_qk_norm_grad,
    [SL_OP_ATTENTION_GRAD] = ref_attention_grad,
    [SL_OP_ATTENTION_CACHED] = ref_attention_cached,
    [SL_OP_CONCAT_GRAD] = ref_split,
    [SL_OP_SPLIT_GRAD] = ref_split_grad,
    [SL_OP_CROSS_ENTROPY_GRAD] = ref_cross_entropy_grad,
    [SL_OP_LINEAR_CROSS_ENTROPY_GRAD] = ref_linear_cross_entropy_grad,
    [SL_OP_MSE_GRAD] = ref_mse_grad,
    [SL_OP_LOG_SOFTMAX] = ref_log_softmax,
    [SL_OP_LOG_SOFTMAX_GRAD] = ref_log_softmax_grad,
    [SL_OP_BCE_WITH_LOGITS] = ref_bce_with_logits,
    [SL_OP_BCE_WITH_LOGITS_GRAD] = ref_bce_with_logits_grad,
    [SL_OP_GRU] = ref_gru,
    [SL_OP_GRU_GRAD] = ref_gru_grad,
    [SL_OP_CTC_LOSS] = ref_ctc_loss,
    [SL_OP_CTC_LOSS_GRAD] = ref_ctc_loss_grad,
    [SL_OP_EXPAND] = ref_expand,
    [SL_OP_CONV2D] = ref_conv2d,
    [SL_OP_CONV2D_GRAD_INPUT] = ref_conv2d_grad_input,
    [SL_OP_CONV2D_GRAD_WEIGHT] = ref_conv2d_grad_weight,
    [SL_OP_MAX_POOL2D] = ref_max_pool2d,
    [SL_OP_MAX_POOL2D_GRAD] = ref_max_pool2d_grad,
    [SL_OP_AVG_POOL2D] = ref_avg_pool2d,
    [SL_OP_AVG_POOL2D_GRAD] = ref_avg_pool2d_grad,
    [SL_OP_GLOBAL_AVG_POOL] = ref_global_avg_pool,
    [SL_OP_GLOBAL_AVG_POOL_GRAD] = ref_global_avg_pool_grad,
    [SL_OP_BAG] = ref_bag,
    [SL_OP_BAG_GRAD] = ref_bag_grad,
};

bool reference_has(sl_op op)
{
    return references[op] != NULL;
}

void reference_run(const ref_call *call)
{
    ref_call fresh = *call;
    for (int i = 0; i < call->output_count; i++)
        fresh.out[i].data = calloc((size_t)(call->out[i].shape ? count_of(&call->out[i]) : 1), sizeof(double));
    for (int i = 1; i < call->output_count; i++) /* read and written */
        if (sl_ops[call->op].saved[i - 1].kind == SL_SAVED_STATE && call->out[i].data != NULL)
            memcpy(fresh.out[i].data, call->out[i].data, (size_t)count_of(&call->out[i]) * sizeof(double));
    references[call->op](&fresh);
    for (int i = 0; i < call->output_count; i++) {
        bool accumulate = (call->attrs->accumulate >> i & 1u) != 0;
        for (int64_t e = 0; call->out[i].data != NULL && e < count_of(&call->out[i]); e++)
            call->out[i].data[e] = (accumulate ? call->out[i].data[e] : 0) + fresh.out[i].data[e];
        free(fresh.out[i].data);
    }
}

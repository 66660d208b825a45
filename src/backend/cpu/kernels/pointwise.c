/* pointwise.c: operations that treat every element alike: sums and products with broadcasting, activations, constants.
 *
 * An activation is one function on sixteen lanes; POINTWISE makes its kernel. The output may be an input's own memory:
 * each group of lanes is read before it is written. NaN passes through every function here, so that bad numbers reach
 * the loss and are seen. */
#include "backend/axes.h"
#include "backend/cpu/kernels/elem.h"
#include "backend/cpu/kernels/vmath.h"

/* One output vector from the vectors of up to two inputs (y is x where there is one) and the op's constant. */
typedef sl_v16 (*map_fn)(sl_v16 x, sl_v16 y, float c);

SL_INLINE void map_range(const sl_kernel_args *a, int64_t task, map_fn f, float c)
{
    const sl_slice r = sl_task_range(task, SL_TASK_ELEMENTS, a->out[0].elements);
    const elem *x = a->in[0].data, *y = a->input_count > 1 ? a->in[1].data : x;
    elem *out = a->out[0].data;
    const bool accumulate = sl_accumulates(a, 0);
    for (int64_t i = r.begin; i < r.end; i += SL_LANES) {
        int64_t left = r.end - i;
        sl_v16 v = f(e16_get(x + i, left, 0.0f), e16_get(y + i, left, 0.0f), c);
        e16_put_or_add(out + i, v, left, accumulate);
    }
}

static void run_map(const sl_kernel_args *a, sl_task_fn fn)
{
    sl_pool_run(a->pool, fn, (void *)(uintptr_t)a, sl_ceil_div(a->out[0].elements, SL_TASK_ELEMENTS));
}

/* Defines K(name): `fn` on every element, `constant` (of a) as its third argument. */
#define POINTWISE(name, fn, constant)                                                                                  \
    static void name##_task(void *context, int64_t task, void *scratch)                                                \
    {                                                                                                                  \
        const sl_kernel_args *a = context;                                                                             \
        (void)scratch;                                                                                                 \
        map_range(a, task, fn, constant);                                                                              \
    }                                                                                                                  \
    void K(name)(const sl_kernel_args *a)                                                                              \
    {                                                                                                                  \
        run_map(a, name##_task);                                                                                       \
    }

/* ---- Activations ---- */

SL_INLINE sl_v16 scale16(sl_v16 x, sl_v16 y, float factor)
{
    (void)y;
    return v16_mul(x, v16_set1(factor));
}
POINTWISE(scale, scale16, a->attrs->scale.factor)

SL_INLINE sl_v16 relu16(sl_v16 x, sl_v16 y, float c)
{
    (void)y, (void)c;
    return v16_max(v16_set1(0.0f), x); /* in this order NaN passes */
}
POINTWISE(relu, relu16, 0.0f)

SL_INLINE sl_v16 relu_grad16(sl_v16 y, sl_v16 dy, float c)
{
    (void)c;
    return v16_select_gt0(y, dy, v16_set1(0.0f));
}
POINTWISE(relu_grad, relu_grad16, 0.0f)

SL_INLINE sl_v16 silu16(sl_v16 x, sl_v16 y, float c)
{
    (void)y, (void)c;
    return v16_mul(x, v16_sigmoid(x));
}
POINTWISE(silu, silu16, 0.0f)

/* d/dx x s(x) = s (1 + x (1 - s)) */
SL_INLINE sl_v16 silu_grad16(sl_v16 x, sl_v16 dy, float c)
{
    (void)c;
    sl_v16 one = v16_set1(1.0f), s = v16_sigmoid(x);
    sl_v16 slope = v16_mul(s, v16_fma(x, v16_sub(one, s), one));
    return v16_mul(dy, slope);
}
POINTWISE(silu_grad, silu_grad16, 0.0f)

SL_INLINE sl_v16 sigmoid16(sl_v16 x, sl_v16 y, float c)
{
    (void)y, (void)c;
    return v16_sigmoid(x);
}
POINTWISE(sigmoid, sigmoid16, 0.0f)

/* s (1 - s), by the output */
SL_INLINE sl_v16 sigmoid_grad16(sl_v16 y, sl_v16 dy, float c)
{
    (void)c;
    return v16_mul(dy, v16_mul(y, v16_sub(v16_set1(1.0f), y)));
}
POINTWISE(sigmoid_grad, sigmoid_grad16, 0.0f)

SL_INLINE sl_v16 tanh16(sl_v16 x, sl_v16 y, float c)
{
    (void)y, (void)c;
    return v16_tanh(x);
}
POINTWISE(tanh, tanh16, 0.0f)

/* 1 - y^2, by the output */
SL_INLINE sl_v16 tanh_grad16(sl_v16 y, sl_v16 dy, float c)
{
    (void)c;
    return v16_mul(dy, v16_fma(v16_neg(y), y, v16_set1(1.0f)));
}
POINTWISE(tanh_grad, tanh_grad16, 0.0f)

SL_INLINE sl_v16 softcap16(sl_v16 x, sl_v16 y, float cap)
{
    (void)y;
    return v16_softcap(x, cap);
}
POINTWISE(softcap, softcap16, a->attrs->softcap.cap)

/* 1 - tanh^2(x / cap) */
SL_INLINE sl_v16 softcap_grad16(sl_v16 x, sl_v16 dy, float cap)
{
    sl_v16 t = v16_tanh(v16_div(x, v16_set1(cap)));
    return v16_mul(dy, v16_fma(v16_neg(t), t, v16_set1(1.0f)));
}
POINTWISE(softcap_grad, softcap_grad16, a->attrs->softcap.cap)

/* The tanh form is x s(2u) with the sigmoid s, because (1 + tanh u) / 2 = s(2u): one exponential, and no cancellation
 * for negative x. 2u = 2 sqrt(2/pi) (x + 0.044715 x^3). Beyond +-10 the sigmoid has reached its limit; the bound keeps
 * x^3 finite. */
#define GELU_LINEAR 1.59576912f
#define GELU_CUBIC  0.0713548163f

SL_INLINE sl_v16 gelu_bounded(sl_v16 x)
{
    return v16_max(v16_set1(-10.0f), v16_min(v16_set1(10.0f), x));
}

/* s(2u) of a bounded x: |2u| is at most 87.4, so the exponential needs no care at its ends. */
SL_INLINE sl_v16 gelu_sigmoid(sl_v16 x)
{
    sl_v16 slope = v16_fma(v16_mul(x, x), v16_set1(-GELU_CUBIC), v16_set1(-GELU_LINEAR));
    sl_v16 one = v16_set1(1.0f);
    return v16_div(one, v16_add(one, v16_exp_bounded(v16_mul(x, slope))));
}

SL_INLINE sl_v16 gelu_tanh16(sl_v16 x)
{
    return v16_mul(x, gelu_sigmoid(gelu_bounded(x)));
}

/* s + x s (1 - s) d(2u)/dx */
SL_INLINE sl_v16 gelu_tanh_slope(sl_v16 x)
{
    sl_v16 b = gelu_bounded(x), s = gelu_sigmoid(b);
    sl_v16 du = v16_fma(v16_mul(b, b), v16_set1(3.0f * GELU_CUBIC), v16_set1(GELU_LINEAR));
    sl_v16 bell = v16_mul(s, v16_sub(v16_set1(1.0f), s));
    return v16_fma(v16_mul(x, bell), du, s);
}

/* The normal distribution's mass below x: (1 + erf(x / sqrt 2)) / 2 */
SL_INLINE sl_v16 normal_mass(sl_v16 x)
{
    sl_v16 half = v16_set1(0.5f);
    return v16_fma(half, v16_erf(v16_mul(x, v16_set1(0.707106781f))), half);
}

SL_INLINE sl_v16 gelu_exact_slope(sl_v16 x)
{
    sl_v16 density = v16_exp(v16_mul(v16_mul(x, x), v16_set1(-0.5f)));
    return v16_fma(v16_mul(x, v16_set1(0.398942280f)), density, normal_mass(x));
}

/* c: 1 for the erf form, 0 for the tanh form */
SL_INLINE sl_v16 gelu16(sl_v16 x, sl_v16 y, float c)
{
    (void)y;
    return c != 0.0f ? v16_mul(x, normal_mass(x)) : gelu_tanh16(x);
}
POINTWISE(gelu, gelu16, a->attrs->gelu.exact ? 1.0f : 0.0f)

SL_INLINE sl_v16 gelu_grad16(sl_v16 x, sl_v16 dy, float c)
{
    return v16_mul(dy, c != 0.0f ? gelu_exact_slope(x) : gelu_tanh_slope(x));
}
POINTWISE(gelu_grad, gelu_grad16, a->attrs->gelu.exact ? 1.0f : 0.0f)

/* ---- Gated linear unit: rows of gates, then values ---- */

typedef struct gated_job {
    const sl_kernel_args *a;
    int64_t width; /* of a row of the output, half that of the input */
    int64_t rows, rows_per_task;
} gated_job;

/* gate_of(g) v, with the op's constant c. */
SL_INLINE void gated_range(const gated_job *j, int64_t task, map_fn gate_of, float c)
{
    const sl_slice r = sl_task_range(task, j->rows_per_task, j->rows);
    const elem *x = j->a->in[0].data;
    elem *out = j->a->out[0].data;
    for (int64_t row = r.begin; row < r.end; row++) {
        const elem *gate = x + 2 * row * j->width, *value = gate + j->width;
        for (int64_t i = 0; i < j->width; i += SL_LANES) {
            int64_t left = j->width - i;
            sl_v16 g = e16_get(gate + i, left, 0.0f), v = e16_get(value + i, left, 0.0f);
            e16_put(out + row * j->width + i, v16_mul(gate_of(g, g, c), v), left);
        }
    }
}

/* Of the gate: dy v gate'(g); of the value: dy gate(g). */
SL_INLINE void gated_grad_range(const gated_job *j, int64_t task, map_fn gate_of, map_fn gate_grad, float c)
{
    const sl_slice r = sl_task_range(task, j->rows_per_task, j->rows);
    const elem *x = j->a->in[0].data, *dy = j->a->in[1].data;
    elem *dx = j->a->out[0].data;
    const bool accumulate = sl_accumulates(j->a, 0);
    for (int64_t row = r.begin; row < r.end; row++) {
        int64_t gate = 2 * row * j->width, value = gate + j->width;
        for (int64_t i = 0; i < j->width; i += SL_LANES) {
            int64_t left = j->width - i;
            sl_v16 g = e16_get(x + gate + i, left, 0.0f), v = e16_get(x + value + i, left, 0.0f);
            sl_v16 d = e16_get(dy + row * j->width + i, left, 0.0f);
            e16_put_or_add(dx + gate + i, gate_grad(g, v16_mul(d, v), c), left, accumulate);
            e16_put_or_add(dx + value + i, v16_mul(d, gate_of(g, g, c)), left, accumulate);
        }
    }
}

static void run_gated(const sl_kernel_args *a, sl_task_fn fn)
{
    gated_job j = { .a = a, .width = sl_row_width(&a->in[0]) / 2 };
    j.rows = a->in[0].elements / (2 * j.width);
    j.rows_per_task = sl_items_per_task(2 * j.width);
    sl_pool_run(a->pool, fn, &j, sl_ceil_div(j.rows, j.rows_per_task));
}

/* Defines K(name) and K(name_grad) of a gate and its derivative times dy, with `constant` (of a) for both. */
#define GATED(name, fn, grad_fn, constant)                                                                             \
    static void name##_task(void *context, int64_t task, void *scratch)                                                \
    {                                                                                                                  \
        const sl_kernel_args *a = ((const gated_job *)context)->a;                                                     \
        (void)scratch, (void)a;                                                                                        \
        gated_range(context, task, fn, constant);                                                                      \
    }                                                                                                                  \
    static void name##_grad_task(void *context, int64_t task, void *scratch)                                           \
    {                                                                                                                  \
        const sl_kernel_args *a = ((const gated_job *)context)->a;                                                     \
        (void)scratch, (void)a;                                                                                        \
        gated_grad_range(context, task, fn, grad_fn, constant);                                                        \
    }                                                                                                                  \
    void K(name)(const sl_kernel_args *a)                                                                              \
    {                                                                                                                  \
        run_gated(a, name##_task);                                                                                     \
    }                                                                                                                  \
    void K(name##_grad)(const sl_kernel_args *a)                                                                       \
    {                                                                                                                  \
        run_gated(a, name##_grad_task);                                                                                \
    }

GATED(swiglu, silu16, silu_grad16, 0.0f)
GATED(geglu, gelu16, gelu_grad16, a->attrs->gelu.exact ? 1.0f : 0.0f)

/* ---- Broadcasting sum and product ---- */

typedef struct binary_job {
    const sl_kernel_args *a;
    sl_axes axes; /* operands: the two inputs */
} binary_job;

/* One run along the innermost axis; a step is 1, or 0 for an operand that is one element repeated. */
SL_INLINE void binary_run(elem *out, const elem *x, const elem *y, int64_t x_step, int64_t y_step, int64_t n, map_fn f)
{
    for (int64_t i = 0; i < n; i += SL_LANES) {
        int64_t left = n - i;
        sl_v16 vx = x_step != 0 ? e16_get(x + i, left, 0.0f) : v16_set1(e1_get(x));
        sl_v16 vy = y_step != 0 ? e16_get(y + i, left, 0.0f) : v16_set1(e1_get(y));
        e16_put(out + i, f(vx, vy, 0.0f), left);
    }
}

SL_INLINE void binary_range(const binary_job *job, int64_t task, map_fn f)
{
    const sl_kernel_args *a = job->a;
    const sl_slice r = sl_task_range(task, SL_TASK_ELEMENTS, a->out[0].elements);
    const int last = job->axes.rank - 1;
    const int64_t inner = job->axes.dim[last];
    const int64_t x_step = job->axes.stride[0][last], y_step = job->axes.stride[1][last];
    const elem *x = a->in[0].data, *y = a->in[1].data;
    elem *out = a->out[0].data;
    sl_cursor c = sl_cursor_at(&job->axes, last, r.begin / inner);
    int64_t column = r.begin % inner;
    for (int64_t i = r.begin; i < r.end; sl_cursor_next(&job->axes, last, &c)) {
        int64_t n = sl_least(inner - column, r.end - i);
        binary_run(out + i, x + c.offset[0] + column * x_step, y + c.offset[1] + column * y_step, x_step, y_step, n, f);
        i += n;
        column = 0;
    }
}

SL_INLINE sl_v16 add16(sl_v16 x, sl_v16 y, float c)
{
    (void)c;
    return v16_add(x, y);
}

SL_INLINE sl_v16 multiply16(sl_v16 x, sl_v16 y, float c)
{
    (void)c;
    return v16_mul(x, y);
}

static void add_task(void *context, int64_t task, void *scratch)
{
    (void)scratch;
    binary_range(context, task, add16);
}

static void multiply_task(void *context, int64_t task, void *scratch)
{
    (void)scratch;
    binary_range(context, task, multiply16);
}

static void run_binary(const sl_kernel_args *a, sl_task_fn fn)
{
    const sl_shape *operands[] = { a->in[0].shape, a->in[1].shape };
    binary_job job = { a, sl_axes_make(a->out[0].shape, operands, 2) };
    sl_pool_run(a->pool, fn, &job, sl_ceil_div(a->out[0].elements, SL_TASK_ELEMENTS));
}

void K(add)(const sl_kernel_args *a)
{
    run_binary(a, add_task);
}

void K(multiply)(const sl_kernel_args *a)
{
    run_binary(a, multiply_task);
}

/* ---- Constants ---- */

/* Scalars are f32 in every type. */
void K(seed)(const sl_kernel_args *a)
{
    float *out = a->out[0].data;
    *out = a->context->seed_gradient;
}

static void expand_task(void *context, int64_t task, void *scratch)
{
    const sl_kernel_args *a = context;
    const sl_slice r = sl_task_range(task, SL_TASK_ELEMENTS, a->out[0].elements);
    const float *scalar = a->in[0].data;
    elem *out = a->out[0].data;
    const bool accumulate = sl_accumulates(a, 0);
    const sl_v16 v = v16_set1(*scalar * a->attrs->scale.factor);
    (void)scratch;
    for (int64_t i = r.begin; i < r.end; i += SL_LANES) e16_put_or_add(out + i, v, r.end - i, accumulate);
}

void K(expand)(const sl_kernel_args *a)
{
    run_map(a, expand_task);
}

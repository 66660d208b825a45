/* pool.c: pooling over images [N, H, W, C], sixteen channels at a time.
 *
 * A task owns a row of the result, or a piece of one. Gradients are gathered: each element of dx adds up what the windows
 * that cover it send, in the order of those windows, so that no two tasks write one element. */
#include "backend/cpu/kernels/elem.h"

typedef struct pool {
    const sl_kernel_args *a;
    int64_t h, w, c; /* of x */
    int64_t oh, ow;  /* of y */
    int64_t kh, kw, sh, sw, ph, pw;
    bool include_padding;
    int64_t pieces; /* of a row of dx */
} pool;

/* Places [begin, end) of x along one dimension. */
typedef sl_slice places;

static pool pool_of(const sl_kernel_args *a, const sl_shape *x, const sl_shape *y)
{
    return (pool){ .a = a,
                   .h = x->dim[1],
                   .w = x->dim[2],
                   .c = x->dim[3],
                   .oh = y->dim[1],
                   .ow = y->dim[2],
                   .kh = a->attrs->pool.kernel_h,
                   .kw = a->attrs->pool.kernel_w,
                   .sh = a->attrs->pool.stride_h,
                   .sw = a->attrs->pool.stride_w,
                   .ph = a->attrs->pool.padding_h,
                   .pw = a->attrs->pool.padding_w,
                   .include_padding = a->attrs->pool.include_padding };
}

/* What window `number` covers of `size` places. */
SL_INLINE places covered(int64_t number, int64_t kernel, int64_t stride, int64_t padding, int64_t size)
{
    int64_t first = number * stride - padding;
    return (places){ first > 0 ? first : 0, sl_least(first + kernel, size) };
}

/* The windows, of `count`, that cover places [begin, end). */
SL_INLINE places covering(int64_t begin, int64_t end, int64_t kernel, int64_t stride, int64_t padding, int64_t count)
{
    int64_t before = begin + padding - kernel; /* the last place where a window begins that ends too early */
    return (places){ before < 0 ? 0 : before / stride + 1, sl_least((end - 1 + padding) / stride + 1, count) };
}

/* ---- the largest ---- */

static void max_row(void *context, int64_t task, void *scratch)
{
    const pool *p = context;
    const elem *x = (const elem *)p->a->in[0].data + task / p->oh * p->h * p->w * p->c;
    elem *y = (elem *)p->a->out[0].data + task * p->ow * p->c;
    const places rows = covered(task % p->oh, p->kh, p->sh, p->ph, p->h);
    (void)scratch;
    for (int64_t j = 0; j < p->ow; j++) {
        const places columns = covered(j, p->kw, p->sw, p->pw, p->w);
        for (int64_t c = 0; c < p->c; c += SL_LANES) {
            sl_v16 best = e16_get(x + (rows.begin * p->w + columns.begin) * p->c + c, p->c - c, 0.0f);
            for (int64_t h = rows.begin; h < rows.end; h++)
                for (int64_t w = columns.begin; w < columns.end; w++) {
                    sl_v16 v = e16_get(x + (h * p->w + w) * p->c + c, p->c - c, 0.0f);
                    best = v16_select_larger(v, best, v, best);
                }
            e16_put(y + j * p->c + c, best, p->c - c);
        }
    }
}

/* x -> y */
void K(max_pool2d)(const sl_kernel_args *a)
{
    pool p = pool_of(a, a->in[0].shape, a->out[0].shape);
    sl_pool_run(a->pool, max_row, &p, a->out[0].shape->dim[0] * p.oh);
}

/* Places of dx whose sums a task keeps: 256 KiB of floats. */
#define PIECE 4096

/* Of window (i, j) and sixteen channels, adds dy to the place that was the largest, where that lies in row h and places
 * [at.begin, at.end), whose sums lie from `sums` on. The largest is known by its number in the window. */
SL_INLINE void add_to_largest(const pool *p, const elem *x, sl_v16 dy, int64_t i, int64_t j, int64_t left, int64_t h,
                              places at, float *sums)
{
    const places rows = covered(i, p->kh, p->sh, p->ph, p->h), columns = covered(j, p->kw, p->sw, p->pw, p->w);
    const int64_t width = columns.end - columns.begin;
    const sl_v16 zero = v16_set1(0.0f), half = v16_set1(0.5f);
    sl_v16 best = e16_get(x + (rows.begin * p->w + columns.begin) * p->c, left, 0.0f), number = zero;
    float n = 0.0f;
    for (int64_t r = rows.begin; r < rows.end; r++)
        for (int64_t w = columns.begin; w < columns.end; w++, n += 1.0f) {
            sl_v16 v = e16_get(x + (r * p->w + w) * p->c, left, 0.0f);
            number = v16_select_larger(v, best, v16_set1(n), number);
            best = v16_select_larger(v, best, v, best);
        }
    for (int64_t w = columns.begin; w < columns.end; w++) {
        if (w < at.begin || w >= at.end) continue;
        sl_v16 own = v16_set1((float)((h - rows.begin) * width + w - columns.begin));
        sl_v16 is = v16_sub(half, v16_abs(v16_sub(number, own)));
        float *sum = sums + (w - at.begin) * SL_LANES;
        v16_store(sum, v16_add(v16_load(sum), v16_select_gt0(is, dy, zero)));
    }
}

static void max_grad_piece(void *context, int64_t task, void *scratch)
{
    const pool *p = context;
    const int64_t row = task / p->pieces, image = row / p->h, h = row % p->h;
    const places at = sl_task_range(task % p->pieces, PIECE, p->w);
    const places rows = covering(h, h + 1, p->kh, p->sh, p->ph, p->oh);
    const places columns = covering(at.begin, at.end, p->kw, p->sw, p->pw, p->ow);
    const elem *x = (const elem *)p->a->in[0].data + image * p->h * p->w * p->c;
    const elem *dy = (const elem *)p->a->in[1].data + image * p->oh * p->ow * p->c;
    elem *dx = (elem *)p->a->out[0].data + row * p->w * p->c;
    float *sums = scratch;
    for (int64_t c = 0; c < p->c; c += SL_LANES) {
        const int64_t left = p->c - c;
        memset(sums, 0, (size_t)(at.end - at.begin) * SL_LANES * sizeof *sums);
        for (int64_t i = rows.begin; i < rows.end; i++)
            for (int64_t j = columns.begin; j < columns.end; j++)
                add_to_largest(p, x + c, e16_get(dy + (i * p->ow + j) * p->c + c, left, 0.0f), i, j, left, h, at, sums);
        for (int64_t w = at.begin; w < at.end; w++)
            e16_put_or_add(dx + w * p->c + c, v16_load(sums + (w - at.begin) * SL_LANES), left,
                           sl_accumulates(p->a, 0));
    }
}

/* x, dy -> dx */
void K(max_pool2d_grad)(const sl_kernel_args *a)
{
    pool p = pool_of(a, a->in[0].shape, a->in[1].shape);
    p.pieces = sl_ceil_div(p.w, PIECE);
    sl_pool_run(a->pool, max_grad_piece, &p, a->in[0].shape->dim[0] * p.h * p.pieces);
}

/* ---- the average ---- */

/* What window `number` divides by along one dimension. */
SL_INLINE int64_t divisor(const pool *p, int64_t number, int64_t kernel, int64_t stride, int64_t padding, int64_t size)
{
    const int64_t first = number * stride - padding;
    const places at = covered(number, kernel, stride, padding, size);
    return p->include_padding ? sl_least(first + kernel, size + padding) - first : at.end - at.begin;
}

SL_INLINE sl_v16 window_size(const pool *p, int64_t i, int64_t j)
{
    return v16_set1((float)(divisor(p, i, p->kh, p->sh, p->ph, p->h) * divisor(p, j, p->kw, p->sw, p->pw, p->w)));
}

static void avg_row(void *context, int64_t task, void *scratch)
{
    const pool *p = context;
    const elem *x = (const elem *)p->a->in[0].data + task / p->oh * p->h * p->w * p->c;
    elem *y = (elem *)p->a->out[0].data + task * p->ow * p->c;
    const places rows = covered(task % p->oh, p->kh, p->sh, p->ph, p->h);
    (void)scratch;
    for (int64_t j = 0; j < p->ow; j++) {
        const places columns = covered(j, p->kw, p->sw, p->pw, p->w);
        const sl_v16 size = window_size(p, task % p->oh, j);
        for (int64_t c = 0; c < p->c; c += SL_LANES) {
            sl_v16 sum = v16_set1(0.0f);
            for (int64_t h = rows.begin; h < rows.end; h++)
                for (int64_t w = columns.begin; w < columns.end; w++)
                    sum = v16_add(sum, e16_get(x + (h * p->w + w) * p->c + c, p->c - c, 0.0f));
            e16_put(y + j * p->c + c, v16_div(sum, size), p->c - c);
        }
    }
}

/* x -> y */
void K(avg_pool2d)(const sl_kernel_args *a)
{
    pool p = pool_of(a, a->in[0].shape, a->out[0].shape);
    sl_pool_run(a->pool, avg_row, &p, a->out[0].shape->dim[0] * p.oh);
}

static void avg_grad_row(void *context, int64_t task, void *scratch)
{
    const pool *p = context;
    const elem *dy = (const elem *)p->a->in[0].data + task / p->h * p->oh * p->ow * p->c;
    elem *dx = (elem *)p->a->out[0].data + task * p->w * p->c;
    const int64_t h = task % p->h;
    const places rows = covering(h, h + 1, p->kh, p->sh, p->ph, p->oh);
    (void)scratch;
    for (int64_t w = 0; w < p->w; w++) {
        const places columns = covering(w, w + 1, p->kw, p->sw, p->pw, p->ow);
        for (int64_t c = 0; c < p->c; c += SL_LANES) {
            sl_v16 sum = v16_set1(0.0f);
            for (int64_t i = rows.begin; i < rows.end; i++)
                for (int64_t j = columns.begin; j < columns.end; j++)
                    sum = v16_add(
                        sum, v16_div(e16_get(dy + (i * p->ow + j) * p->c + c, p->c - c, 0.0f), window_size(p, i, j)));
            e16_put_or_add(dx + w * p->c + c, sum, p->c - c, sl_accumulates(p->a, 0));
        }
    }
}

/* dy -> dx */
void K(avg_pool2d_grad)(const sl_kernel_args *a)
{
    pool p = pool_of(a, a->out[0].shape, a->in[0].shape);
    sl_pool_run(a->pool, avg_grad_row, &p, a->out[0].shape->dim[0] * p.h);
}

/* ---- the average of all places ---- */

typedef struct whole {
    const sl_kernel_args *a;
    int64_t places, channels, blocks; /* blocks: of sixteen channels */
} whole;

static whole whole_of(const sl_kernel_args *a, const sl_tensor *x)
{
    const int64_t channels = sl_row_width(x);
    return (whole){ a, x->elements / x->shape->dim[0] / channels, channels, sl_ceil_div(channels, SL_LANES) };
}

/* Sixteen channels of an image: SL_SUM_ROWS places are summed, then added to the total. */
static void mean_block(void *context, int64_t task, void *scratch)
{
    const whole *m = context;
    const int64_t image = task / m->blocks, c = task % m->blocks * SL_LANES, left = m->channels - c;
    const elem *x = (const elem *)m->a->in[0].data + image * m->places * m->channels + c;
    sl_v16 total = v16_set1(0.0f);
    (void)scratch;
    for (int64_t first = 0; first < m->places; first += SL_SUM_ROWS) {
        sl_v16 sum = v16_set1(0.0f);
        for (int64_t i = first; i < sl_least(first + SL_SUM_ROWS, m->places); i++)
            sum = v16_add(sum, e16_get(x + i * m->channels, left, 0.0f));
        total = v16_add(total, sum);
    }
    e16_put((elem *)m->a->out[0].data + image * m->channels + c, v16_div(total, v16_set1((float)m->places)), left);
}

/* x[N,..,C] -> y[N,C] */
void K(global_avg_pool)(const sl_kernel_args *a)
{
    whole m = whole_of(a, &a->in[0]);
    sl_pool_run(a->pool, mean_block, &m, a->in[0].shape->dim[0] * m.blocks);
}

static void spread_block(void *context, int64_t task, void *scratch)
{
    const whole *m = context;
    const int64_t image = task / m->blocks, c = task % m->blocks * SL_LANES, left = m->channels - c;
    const sl_v16 dy = e16_get((const elem *)m->a->in[0].data + image * m->channels + c, left, 0.0f);
    const sl_v16 each = v16_div(dy, v16_set1((float)m->places));
    elem *dx = (elem *)m->a->out[0].data + image * m->places * m->channels + c;
    (void)scratch;
    for (int64_t i = 0; i < m->places; i++) e16_put_or_add(dx + i * m->channels, each, left, sl_accumulates(m->a, 0));
}

/* dy[N,C] -> dx[N,..,C] */
void K(global_avg_pool_grad)(const sl_kernel_args *a)
{
    whole m = whole_of(a, &a->out[0]);
    sl_pool_run(a->pool, spread_block, &m, a->out[0].shape->dim[0] * m.blocks);
}

/* conv.c: convolutions of images [N, H, W, C] with weights [O, C / groups, kh, kw], as GEMMs.
 *
 * A row of the left operand is what one window sees: its places one after the other, each with all its channels, zeros
 * outside of the image. Such rows never exist as a whole: a task gathers the few it multiplies next (gemm.h). Weights are
 * put into the order of the windows first, in workspace. Of small images with many channels much of that is zeros: there rows
 * are in order of their place in the image, so that those whose taps lie outside are side by side and the products of them
 * are left out.
 *
 *   forward        y = windows of x, times weights
 *   input          dx = windows of dy, times weights turned round. With strides, the pixels of dx fall into stride_h *
 *                  stride_w phases, each with taps of its own: one GEMM each
 *   weight         dw = dy transposed, times windows of x; over parts of the pixels, which are then added in order
 *
 * Groups are the batches of a GEMM, or depthwise.h's. Where windows are single pixels side by side, images are matrices as they are. */
#include "backend/cpu/kernels/conv_parts.h"
#include "backend/cpu/kernels/depthwise.h"
#include "backend/cpu/kernels/elem.h"
#include "backend/cpu/kernels/strided_gemm.h"

/* ---- one convolution ---- */

typedef struct conv {
    const sl_kernel_args *a;
    const sl_shape *x, *y, *w;
    int64_t groups, outputs, channels; /* of a group: outputs, channels */
    int64_t taps;
} conv;

static conv conv_of(const sl_kernel_args *a, const sl_shape *x, const sl_shape *y, const sl_shape *w)
{
    const int64_t groups = a->attrs->conv.groups;
    return (conv){ a, x, y, w, groups, w->dim[0] / groups, w->dim[1], w->dim[2] * w->dim[3] };
}

/* Windows are the pixels themselves, in order. */
static bool is_pointwise(const conv *v)
{
    const sl_attrs *t = v->a->attrs;
    return v->taps == 1 && t->conv.stride_h == 1 && t->conv.stride_w == 1 && t->conv.padding_h == 0 &&
           t->conv.padding_w == 0;
}

static int64_t pixels(const sl_shape *images)
{
    return images->dim[0] * images->dim[1] * images->dim[2];
}

/* ---- windows ---- */

/* Along one dimension: window i begins at place i * step + first of the image and has `taps` places `dilation` apart. */
typedef struct axis {
    int64_t windows, taps, step, first, dilation;
} axis;

typedef struct windows {
    sl_window_gather gather; /* first: the functions below get it */
    const elem *images;
    int64_t h, w, c;  /* of an image */
    int64_t channels; /* of a group */
    axis down, across;
    int64_t part;   /* batches are as many windows; 0: batches are groups */
    int64_t turned; /* images, whose windows at one place are side by side; 0: the windows of an image are */
} windows;

/* Which window a row is. */
typedef struct window_place {
    int64_t image, i, j;
} window_place;

SL_INLINE window_place window_of(const windows *v, int64_t row)
{
    const int64_t across = v->across.windows, all = across * v->down.windows;
    const int64_t image = v->turned > 0 ? row % v->turned : row / all, at = v->turned > 0 ? row / v->turned : row % all;
    return (window_place){ image, at / across, at % across };
}

SL_INLINE void next_window(const windows *v, window_place *p)
{
    if (v->turned > 0) {
        if (++p->image < v->turned) return;
        p->image = 0;
    }
    if (++p->j < v->across.windows) return;
    p->j = 0;
    if (++p->i < v->down.windows) return;
    p->i = 0;
    p->image++;
}

/* `count` elements, fewer than sixteen, as floats. */
SL_INLINE void put_few(float *to, const elem *from, int64_t count)
{
#if defined(SL_ELEM_f32) /* two copies that overlap */
    const size_t half = 8 * sizeof *to, quarter = 4 * sizeof *to;
    if (count >= 8) {
        memcpy(to, from, half);
        memcpy(to + count - 8, from + count - 8, half);
        return;
    }
    if (count >= 4) {
        memcpy(to, from, quarter);
        memcpy(to + count - 4, from + count - 4, quarter);
        return;
    }
#endif
    for (int64_t i = 0; i < count; i++) to[i] = e1_get(from + i);
}

/* Elements [start, start + count) of a row of an image that is `length` long, zeros outside of it. */
SL_INLINE void put_run(void *dst, bool own, const elem *row, int64_t length, int64_t start, int64_t count)
{
    int64_t before = start < 0 ? sl_least(-start, count) : 0, end = sl_least(count, length - start), i = before;
    float *to = dst;
    elem *same = dst;
    if (end < before) end = before;
    if (own) {
        memset(same, 0, (size_t)before * sizeof *same);
        memcpy(same + before, row + start + before, (size_t)(end - before) * sizeof *same);
        memset(same + end, 0, (size_t)(count - end) * sizeof *same);
        return;
    }
    for (int64_t z = 0; z < before; z++) to[z] = 0.0f;
    for (; i + SL_LANES <= end; i += SL_LANES) v16_store(to + i, e16_load(row + start + i));
    if (i < end) put_few(to + i, row + start + i, end - i);
    for (int64_t z = end; z < count; z++) to[z] = 0.0f;
}

/* A column of the matrix of windows: element `at` of run (down, across) of a window. A run is what lies side by side in the
 * image: a place's channels, or the window's whole width where places touch. */
typedef struct window_column {
    int64_t run, runs; /* elements of a run; runs of a row of the window */
    int64_t down, across, at;
} window_column;

static window_column column_of(const windows *v, int64_t column)
{
    const bool touching = v->channels == v->c && (v->across.dilation == 1 || v->across.taps == 1);
    const int64_t run = touching ? v->across.taps * v->c : v->channels, runs = touching ? 1 : v->across.taps;
    return (window_column){ run, runs, column / run / runs, column / run % runs, column % run };
}

/* `columns` columns from `c` on of the window that begins at (h, w) of an image. */
SL_INLINE void put_window(const windows *v, const elem *image, int64_t h, int64_t w, window_column c, int64_t columns,
                          void *dst, bool own)
{
    const size_t size = own ? sizeof(elem) : sizeof(float);
    while (columns > 0) {
        const int64_t count = sl_least(c.run - c.at, columns);
        const int64_t row = h + c.down * v->down.dilation, place = w + c.across * v->across.dilation;
        const bool inside = row >= 0 && row < v->h && (c.runs == 1 || (place >= 0 && place < v->w));
        if (inside)
            put_run(dst, own, image + row * v->w * v->c, v->w * v->c, place * v->c + c.at, count);
        else
            memset(dst, 0, (size_t)count * size);
        dst = (char *)dst + (size_t)count * size;
        columns -= count;
        c.at = 0;
        if (++c.across < c.runs) continue;
        c.across = 0;
        c.down++;
    }
}

/* sl_window_gather.fill: a row is a window. */
static void fill_windows(const sl_window_gather *gather, int64_t batch, int64_t row, int64_t rows, int64_t column,
                         int64_t columns, void *dst, int64_t apart, bool own)
{
    const windows *v = (const windows *)(const void *)gather;
    const window_column c = column_of(v, column);
    const int64_t size = v->h * v->w * v->c;
    const elem *images = v->part == 0 ? v->images + batch * v->channels : v->images;
    window_place p = window_of(v, row + batch * v->part);
    for (int64_t r = 0; r < rows; r++, next_window(v, &p)) {
        int64_t h = p.i * v->down.step + v->down.first, w = p.j * v->across.step + v->across.first;
        if (own)
            put_window(v, images + p.image * size, h, w, c, columns, dst, true);
        else
            put_window(v, images + p.image * size, h, w, c, columns, dst, false);
        dst = (char *)dst + (size_t)apart * (own ? sizeof(elem) : sizeof(float));
    }
}

/* Tap `tap` of window `number` lies in the image, which is `size` long. */
static bool is_inside(const axis *a, int64_t number, int64_t tap, int64_t size)
{
    const int64_t place = number * a->step + a->first + tap * a->dilation;
    return place >= 0 && place < size;
}

/* sl_window_gather.empty: columns of one tap. */
static bool are_outside(const sl_window_gather *gather, int64_t row, int64_t rows, int64_t column, int64_t columns)
{
    const windows *v = (const windows *)(const void *)gather;
    const int64_t tap = column / v->channels, down = tap / v->across.taps, across = tap % v->across.taps;
    (void)columns;
    for (int64_t at = row / v->turned; at <= (row + rows - 1) / v->turned; at++)
        if (is_inside(&v->down, at / v->across.windows, down, v->h) &&
            is_inside(&v->across, at % v->across.windows, across, v->w))
            return false;
    return true;
}

/* Windows over few places of images of many channels are turned; by shape alone. */
#define TURNED_PLACES   64
#define TURNED_CHANNELS 256
#define TURNED_IMAGES   8

static bool reaches_out(const axis *a, int64_t size)
{
    return !is_inside(a, 0, 0, size) || !is_inside(a, a->windows - 1, a->taps - 1, size);
}

static void turn(windows *v, int64_t images)
{
    if (v->channels < TURNED_CHANNELS || v->channels != v->c || images < TURNED_IMAGES) return;
    if (v->down.windows * v->across.windows > TURNED_PLACES) return;
    if (!reaches_out(&v->down, v->h) && !reaches_out(&v->across, v->w)) return;
    v->turned = images;
    v->gather.empty = are_outside;
    v->gather.unit = v->channels;
}

/* Those that x is seen through. */
static windows windows_of_x(const conv *v, const sl_tensor *x)
{
    const sl_attrs *t = v->a->attrs;
    return (windows){
        .gather = { .fill = fill_windows },
        .images = x->data,
        .h = v->x->dim[1],
        .w = v->x->dim[2],
        .c = v->x->dim[3],
        .channels = v->channels,
        .down = { v->y->dim[1], v->w->dim[2], t->conv.stride_h, -(int64_t)t->conv.padding_h, t->conv.dilation_h },
        .across = { v->y->dim[2], v->w->dim[3], t->conv.stride_w, -(int64_t)t->conv.padding_w, t->conv.dilation_w },
    };
}

/* ---- phases of dx ---- */

/* Along one dimension, pixels phase, phase + stride, ..: their windows over dy, and which taps of the weight those see, in
 * order: last, last - every, .. */
typedef struct phase {
    axis axis;
    int64_t last, every;
} phase;

static int64_t common_divisor(int64_t a, int64_t b)
{
    while (b != 0) {
        int64_t r = a % b;
        a = b;
        b = r;
    }
    return a;
}

/* Pixel `number` + i * stride sees y at i + (number + padding - tap * dilation) / stride, where that is whole. */
static phase phase_of(int64_t number, int64_t size, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation)
{
    const int64_t common = common_divisor(stride, dilation), every = stride / common;
    phase p = { .axis = { .windows = (size - 1 - number) / stride + 1, .step = 1 }, .every = every };
    p.axis.dilation = dilation / common;
    for (int64_t tap = 0; tap < kernel; tap++) {
        if ((number + padding - tap * dilation) % stride != 0) continue;
        p.axis.taps++;
        p.last = tap;
    }
    if (p.axis.taps > 0) p.axis.first = (number + padding - p.last * dilation) / stride;
    return p;
}

typedef struct phase_pair {
    phase down, across;
    int64_t number_h, number_w;
} phase_pair;

/* Phases that have pixels: a stride may be longer than the image. */
static int64_t phases_down(const conv *v)
{
    return sl_least(v->a->attrs->conv.stride_h, v->x->dim[1]);
}

static int64_t phases_across(const conv *v)
{
    return sl_least(v->a->attrs->conv.stride_w, v->x->dim[2]);
}

static phase_pair phases_of(const conv *v, int64_t number)
{
    const sl_attrs *t = v->a->attrs;
    phase_pair p = { .number_h = number / phases_across(v), .number_w = number % phases_across(v) };
    p.down = phase_of(p.number_h, v->x->dim[1], v->w->dim[2], t->conv.stride_h, t->conv.padding_h, t->conv.dilation_h);
    p.across =
        phase_of(p.number_w, v->x->dim[2], v->w->dim[3], t->conv.stride_w, t->conv.padding_w, t->conv.dilation_w);
    return p;
}

/* Where the pixels of a phase lie in dx. */
typedef struct pixel_places {
    sl_places places; /* first */
    const conv *v;
    phase_pair at;
    const windows *seen;
} pixel_places;

static int64_t pixel_place(const sl_places *places, int64_t row)
{
    const pixel_places *p = (const pixel_places *)(const void *)places;
    const sl_attrs *t = p->v->a->attrs;
    const sl_shape *x = p->v->x;
    const window_place at = window_of(p->seen, row);
    int64_t h = at.i * t->conv.stride_h + p->at.number_h, w = at.j * t->conv.stride_w + p->at.number_w;
    return ((at.image * x->dim[1] + h) * x->dim[2] + w) * x->dim[3];
}

/* Where the results of windows lie in y. */
typedef struct result_places {
    sl_places places; /* first */
    const sl_shape *y;
    const windows *seen;
} result_places;

static int64_t result_place(const sl_places *places, int64_t row)
{
    const result_places *p = (const result_places *)(const void *)places;
    const window_place at = window_of(p->seen, row);
    return ((at.image * p->y->dim[1] + at.i) * p->y->dim[2] + at.j) * p->y->dim[3];
}

/* ---- weights in another order ---- */

/* The channels of tap (a, b) of output `o`, from `w`, side by side. */
SL_INLINE void put_tap(const conv *v, elem *dst, const elem *w, int64_t o, int64_t tap)
{
    const elem *from = w + o * v->channels * v->taps + tap;
    for (int64_t c = 0; c < v->channels; c++) dst[c] = from[c * v->taps];
}

/* [o][tap][channel] */
static void order_forward(void *context, int64_t o, void *scratch)
{
    const conv *v = context;
    elem *dst = (elem *)v->a->workspace + o * v->taps * v->channels;
    (void)scratch;
    for (int64_t tap = 0; tap < v->taps; tap++) put_tap(v, dst + tap * v->channels, v->a->in[1].data, o, tap);
}

/* Phase by phase, [group][tap][o of the group][channel]. */
static void order_for_input(void *context, int64_t o, void *scratch)
{
    const conv *v = context;
    const int64_t phases = phases_down(v) * phases_across(v);
    const int64_t group = o / v->outputs, own = o % v->outputs;
    elem *dst = v->a->workspace;
    (void)scratch;
    for (int64_t n = 0; n < phases; n++) {
        const phase_pair p = phases_of(v, n);
        const int64_t taps = p.down.axis.taps * p.across.axis.taps;
        for (int64_t t = 0; t < taps; t++) {
            int64_t a = p.down.last - t / p.across.axis.taps * p.down.every;
            int64_t b = p.across.last - t % p.across.axis.taps * p.across.every;
            put_tap(v, dst + ((group * taps + t) * v->outputs + own) * v->channels, v->a->in[1].data, o,
                    a * v->w->dim[3] + b);
        }
        dst += taps * v->w->dim[0] * v->channels;
    }
}

/* The weights as `order` leaves them; with one tap they are in every order already. */
static const elem *ordered(conv *v, sl_task_fn order)
{
    if (v->taps == 1) return v->a->in[1].data;
    sl_pool_run(v->a->pool, order, v, v->w->dim[0]);
    return v->a->workspace;
}

/* ---- forward ---- */

/* x, w, bias? -> y */
void K(conv2d)(const sl_kernel_args *a)
{
    if (sl_is_depthwise(a->attrs, a->in[1].shape)) {
        K(depthwise)(a);
        return;
    }
    conv v = conv_of(a, a->in[0].shape, a->out[0].shape, a->in[1].shape);
    windows seen = windows_of_x(&v, &a->in[0]);
    const result_places places = { { result_place }, v.y, &seen };
    const sl_form form = a->in[0].form;
    const int64_t k = v.taps * v.channels;
    sl_gemm g = { .m = pixels(v.y), .n = v.outputs, .k = k, .batches = v.groups };
    g.a = (sl_matrix){ NULL, 0, 1, form };
    g.gather_a = &seen.gather;
    turn(&seen, v.x->dim[0]);
    if (seen.turned > 0) g.places = &places.places;
    if (is_pointwise(&v)) {
        g.a = sl_rows_of(&a->in[0], v.x->dim[3]);
        g.gather_a = NULL;
        g.a_batch = v.channels;
    }
    g.b = (sl_matrix){ ordered(&v, order_forward), 1, k, form };
    g.b_batch = v.outputs * k;
    g.c = a->out[0].data;
    g.c_form = form;
    g.c_row = v.y->dim[3];
    g.c_batch = g.bias_batch = v.outputs;
    g.bias = a->input_count > 2 ? a->in[2].data : NULL;
    g.bias_form = a->in[2].form;
    sl_multiply(a, &g);
}

/* ---- the gradient of x ---- */

/* The pixels of one phase, with its weights. */
static void input_phase(const conv *v, phase_pair at, const elem *weights)
{
    const sl_kernel_args *a = v->a;
    windows seen = { .gather = { .fill = fill_windows },
                     .images = a->in[0].data,
                     .h = v->y->dim[1],
                     .w = v->y->dim[2],
                     .c = v->y->dim[3],
                     .channels = v->outputs,
                     .down = at.down.axis,
                     .across = at.across.axis };
    const pixel_places places = { { pixel_place }, v, at, &seen };
    const int64_t k = seen.down.taps * seen.across.taps * v->outputs;
    sl_gemm g = { .m = v->x->dim[0] * seen.down.windows * seen.across.windows, .n = v->channels, .k = k };
    g.batches = v->groups;
    g.a = (sl_matrix){ NULL, 0, 1, a->in[0].form };
    g.gather_a = &seen.gather;
    if (is_pointwise(v)) {
        g.a = sl_rows_of(&a->in[0], v->y->dim[3]);
        g.gather_a = NULL;
        g.a_batch = v->outputs;
    }
    g.b = (sl_matrix){ weights, v->channels, 1, a->in[0].form };
    g.b_batch = k * v->channels;
    g.c = a->out[0].data;
    g.c_form = a->out[0].form;
    g.c_row = v->x->dim[3];
    g.c_batch = v->channels;
    if (k > 0) turn(&seen, v->x->dim[0]);
    if (seen.turned > 0 || phases_down(v) > 1 || phases_across(v) > 1) g.places = &places.places;
    g.accumulate = sl_accumulates(a, 0);
    if (g.m > 0 && k > 0) sl_multiply(a, &g);
}

/* Of a row of dx, the pixels that no window sees. */
static void clear_unseen(void *context, int64_t task, void *scratch)
{
    const conv *v = context;
    const int64_t stride_h = v->a->attrs->conv.stride_h, stride_w = v->a->attrs->conv.stride_w;
    const int64_t across = phases_across(v);
    elem *row = (elem *)v->a->out[0].data + task * v->x->dim[2] * v->x->dim[3];
    (void)scratch;
    for (int64_t n = 0; n < across; n++) {
        const phase_pair at = phases_of(v, task % v->x->dim[1] % stride_h * across + n);
        if (at.down.axis.taps > 0 && at.across.axis.taps > 0) continue;
        for (int64_t w = n; w < v->x->dim[2]; w += stride_w)
            memset(row + w * v->x->dim[3], 0, (size_t)v->x->dim[3] * sizeof *row);
    }
}

/* dy, w -> dx */
void K(conv2d_grad_input)(const sl_kernel_args *a)
{
    if (sl_is_depthwise(a->attrs, a->in[1].shape)) {
        K(depthwise_grad_input)(a);
        return;
    }
    conv v = conv_of(a, a->out[0].shape, a->in[0].shape, a->in[1].shape);
    const elem *weights = ordered(&v, order_for_input);
    const int64_t phases = phases_down(&v) * phases_across(&v);
    const bool strided = a->attrs->conv.stride_h > 1 || a->attrs->conv.stride_w > 1;
    if (strided && !sl_accumulates(a, 0)) sl_pool_run(a->pool, clear_unseen, &v, v.x->dim[0] * v.x->dim[1]);
    for (int64_t n = 0; n < phases; n++) {
        const phase_pair at = phases_of(&v, n);
        input_phase(&v, at, weights);
        weights += at.down.axis.taps * at.across.axis.taps * v.w->dim[0] * v.channels;
    }
}

/* ---- the gradient of w ---- */

typedef struct weight_sum {
    const conv *v;
    const float *sums; /* of each part: [o][tap][channel] */
    int64_t parts;
} weight_sum;

/* The weights of output `o`: the parts added in order, then put where they belong. */
static void put_weights(void *context, int64_t o, void *scratch)
{
    const weight_sum *s = context;
    const conv *v = s->v;
    const int64_t row = v->taps * v->channels, all = v->w->dim[0] * row;
    const sl_tensor *dw = &v->a->out[0];
    int64_t tap = 0, channel = 0;
    float turned[SL_LANES];
    (void)scratch;
    for (int64_t e = 0; e < row; e += SL_LANES) {
        const int64_t count = sl_least(row - e, SL_LANES);
        for (int64_t i = 0; i < count; i++) {
            const float *from = s->sums + o * row + tap * v->channels + channel;
            turned[i] = from[0];
            for (int64_t p = 1; p < s->parts; p++) turned[i] += from[p * all];
            if (++tap < v->taps) continue;
            tap = 0;
            channel++;
        }
        w16_put_or_add(dw, o * row + e, v16_get(turned, count, 0.0f), count, sl_accumulates(v->a, 0));
    }
}

/* Sums of parts of the pixels to `sums`, or of all of them to dw itself. */
static void multiply_for_weights(const conv *v, float *sums, int64_t parts)
{
    const sl_kernel_args *a = v->a;
    const int64_t k = v->taps * v->channels, rows = pixels(v->y) / parts;
    windows seen = windows_of_x(v, &a->in[1]);
    sl_gemm g = { .m = v->outputs, .n = k, .k = rows, .batches = v->groups * parts };
    g.a = sl_transposed(sl_rows_of(&a->in[0], v->y->dim[3]));
    g.a_batch = parts > 1 ? rows * v->y->dim[3] : v->outputs;
    g.b = (sl_matrix){ NULL, 0, 1, a->in[1].form };
    g.gather_b = &seen.gather;
    seen.part = parts > 1 ? rows : 0;
    if (is_pointwise(v)) {
        g.b = sl_rows_of(&a->in[1], v->x->dim[3]);
        g.gather_b = NULL;
        g.b_batch = v->channels;
    }
    g.c = sums != NULL ? (void *)sums : a->out[0].data;
    g.c_form = sums != NULL ? SL_FORM_F32 : a->out[0].form;
    g.c_row = k;
    g.c_batch = v->outputs * k;
    g.accumulate = sums == NULL && sl_accumulates(a, 0);
    sl_multiply(a, &g);
}

/* dw by way of the workspace, or at once where there is one tap. */
static void weight_gradient(const sl_kernel_args *a)
{
    const conv v = conv_of(a, a->in[1].shape, a->in[0].shape, a->out[0].shape);
    const int64_t parts = v.taps > 1 ? sl_conv_parts(pixels(v.y), v.w, a->attrs->conv.groups) : 1;
    multiply_for_weights(&v, v.taps > 1 ? a->workspace : NULL, parts);
    if (v.taps == 1) return;
    weight_sum s = { &v, a->workspace, parts };
    sl_pool_run(a->pool, put_weights, &s, v.w->dim[0]);
}

/* dy, x -> dw, dbias? */
void K(conv2d_grad_weight)(const sl_kernel_args *a)
{
    if (sl_is_depthwise(a->attrs, a->out[0].shape))
        K(depthwise_grad_weight)(a);
    else
        weight_gradient(a);
    if (a->output_count > 1 && a->out[1].data != NULL) {
        sl_kernel_args bias = *a; /* sums of columns, as for a product's bias */
        bias.out[0].data = NULL;
        K(linear_grad_weight)(&bias);
    }
}

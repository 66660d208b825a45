/* qk_norm.c: the RMS norm of every query and key head of packed rows, and its gradient.
 *
 * The gradients of the two weights are sums over all heads of all rows. Rows are cut into parts by shape alone; a part's
 * sums lie in the workspace and are added up in order. One walk over a part gives them and dx. */
#include "backend/cpu/kernels/elem.h"
#include "backend/cpu/kernels/qk_norm_parts.h"

typedef struct qk_job {
    const elem *x, *dy;
    const elem *weight[2]; /* of queries, of keys */
    elem *y;               /* forward's result, or dx; NULL: not wanted */
    float *rstd;
    float *sums; /* [parts, 2, width], gradient: of the weights; NULL: not wanted */
    const sl_tensor *dweight[2];
    float epsilon, offset;
    int64_t rows, row, rows_per_part, parts;
    int64_t queries, keys, width; /* heads, and the width of one */
    bool add_dx, add_dweight[2];
} qk_job;

/* ---- one head ---- */

SL_INLINE sl_v16 weights(const qk_job *j, const elem *w, int64_t c)
{
    sl_v16 v = e16_get(w + c, j->width - c, 0.0f);
    return j->offset != 0.0f ? v16_add(v, v16_set1(j->offset)) : v;
}

static float head_rstd(const qk_job *j, const elem *x)
{
    sl_v16 sum = v16_set1(0.0f);
    for (int64_t c = 0; c < j->width; c += SL_LANES) {
        sl_v16 v = e16_get(x + c, j->width - c, 0.0f);
        sum = v16_fma(v, v, sum);
    }
    return 1.0f / sqrtf(v16_sum(sum) / (float)j->width + j->epsilon);
}

static void norm_head(const qk_job *j, const elem *w, const elem *x, elem *y, float rstd)
{
    const sl_v16 r = v16_set1(rstd);
    for (int64_t c = 0; c < j->width; c += SL_LANES) {
        sl_v16 hat = v16_mul(e16_get(x + c, j->width - c, 0.0f), r);
        e16_put(y + c, v16_mul(hat, weights(j, w, c)), j->width - c);
    }
}

/* dy hat of a head, with hat = x rstd, added to the sums of its part. */
static void add_head(const qk_job *j, const elem *x, const elem *dy, float rstd, float *sums)
{
    const sl_v16 r = v16_set1(rstd);
    for (int64_t c = 0; c < j->width; c += SL_LANES) {
        int64_t left = j->width - c;
        sl_v16 hat = v16_mul(e16_get(x + c, left, 0.0f), r);
        v16_put(sums + c, v16_fma(e16_get(dy + c, left, 0.0f), hat, v16_get(sums + c, left, 0.0f)), left);
    }
}

/* dx = rstd (g - hat mean(g hat)), with g = dy (offset + weight) */
static void head_dx(const qk_job *j, const elem *w, const elem *x, const elem *dy, elem *dx, float rstd)
{
    const sl_v16 r = v16_set1(rstd);
    sl_v16 sum = v16_set1(0.0f);
    for (int64_t c = 0; c < j->width; c += SL_LANES) {
        int64_t left = j->width - c;
        sl_v16 g = v16_mul(e16_get(dy + c, left, 0.0f), weights(j, w, c));
        sum = v16_fma(g, v16_mul(e16_get(x + c, left, 0.0f), r), sum);
    }
    const sl_v16 mean = v16_set1(-(v16_sum(sum) / (float)j->width));
    for (int64_t c = 0; c < j->width; c += SL_LANES) {
        int64_t left = j->width - c;
        sl_v16 g = v16_mul(e16_get(dy + c, left, 0.0f), weights(j, w, c));
        sl_v16 hat = v16_mul(e16_get(x + c, left, 0.0f), r);
        e16_put_or_add(dx + c, v16_mul(r, v16_fma(hat, mean, g)), left, j->add_dx);
    }
}

/* ---- rows ---- */

static void forward_row(const qk_job *j, int64_t row)
{
    const elem *x = j->x + row * j->row;
    elem *y = j->y + row * j->row;
    const int64_t normed = j->queries + j->keys, values = normed * j->width;
    for (int64_t h = 0; h < normed; h++) {
        float *rstd = &j->rstd[row * normed + h];
        *rstd = head_rstd(j, x + h * j->width);
        norm_head(j, j->weight[h >= j->queries], x + h * j->width, y + h * j->width, *rstd);
    }
    if (x != y) memcpy(y + values, x + values, (size_t)(j->row - values) * sizeof *y);
}

/* The gradient passes the value heads as it is. */
static void pass_values(const qk_job *j, const elem *dy, elem *dx)
{
    for (int64_t c = (j->queries + j->keys) * j->width; c < j->row; c += SL_LANES)
        e16_put_or_add(dx + c, e16_get(dy + c, j->row - c, 0.0f), j->row - c, j->add_dx);
}

static void gradient_row(const qk_job *j, int64_t row, float *sums)
{
    const elem *x = j->x + row * j->row, *dy = j->dy + row * j->row;
    const int64_t normed = j->queries + j->keys;
    for (int64_t h = 0; h < normed; h++) {
        const int kind = h >= j->queries;
        const int64_t at = h * j->width;
        const float rstd = j->rstd[row * normed + h];
        if (sums != NULL && j->dweight[kind] != NULL) add_head(j, x + at, dy + at, rstd, sums + kind * j->width);
        if (j->y != NULL) head_dx(j, j->weight[kind], x + at, dy + at, j->y + row * j->row + at, rstd);
    }
    if (j->y != NULL) pass_values(j, dy, j->y + row * j->row);
}

static void forward_task(void *context, int64_t task, void *scratch)
{
    const qk_job *j = context;
    const sl_slice r = sl_task_range(task, j->rows_per_part, j->rows);
    (void)scratch;
    for (int64_t row = r.begin; row < r.end; row++) forward_row(j, row);
}

static void gradient_task(void *context, int64_t task, void *scratch)
{
    const qk_job *j = context;
    const sl_slice r = sl_task_range(task, j->rows_per_part, j->rows);
    float *sums = j->sums != NULL ? j->sums + task * 2 * j->width : NULL;
    (void)scratch;
    if (sums != NULL) memset(sums, 0, (size_t)(2 * j->width) * sizeof *sums);
    for (int64_t row = r.begin; row < r.end; row++) gradient_row(j, row, sums);
}

/* ---- whole calls ---- */

static void set_shape(qk_job *j, const sl_kernel_args *a)
{
    j->x = a->in[0].data;
    j->weight[0] = a->in[1].data;
    j->weight[1] = a->in[2].data;
    j->y = a->out[0].data;
    j->epsilon = a->attrs->qk_norm.epsilon;
    j->offset = a->attrs->qk_norm.offset;
    j->queries = a->attrs->qk_norm.heads;
    j->keys = a->attrs->qk_norm.kv_heads;
    j->width = a->attrs->qk_norm.head_width;
    j->row = sl_row_width(&a->in[0]);
    j->rows = a->in[0].elements / j->row;
}

void K(qk_norm)(const sl_kernel_args *a)
{
    qk_job j = { .rstd = a->out[1].data };
    set_shape(&j, a);
    j.rows_per_part = sl_items_per_task(j.row);
    sl_pool_run(a->pool, forward_task, &j, sl_ceil_div(j.rows, j.rows_per_part));
}

/* The sums of the parts, in order. */
static void add_parts(const qk_job *j, int kind)
{
    for (int64_t c = 0; c < j->width; c += SL_LANES) {
        int64_t left = j->width - c;
        sl_v16 sum = v16_set1(0.0f);
        for (int64_t part = 0; part < j->parts; part++)
            sum = v16_add(sum, v16_get(j->sums + (2 * part + kind) * j->width + c, left, 0.0f));
        w16_put_or_add(j->dweight[kind], c, sum, left, j->add_dweight[kind]);
    }
}

void K(qk_norm_grad)(const sl_kernel_args *a)
{
    qk_job j = { .rstd = a->in[3].data, .dy = a->in[4].data, .add_dx = sl_accumulates(a, 0) };
    set_shape(&j, a);
    for (int kind = 0; kind < 2; kind++) {
        if (a->output_count <= 1 + kind || a->out[1 + kind].data == NULL) continue;
        j.dweight[kind] = &a->out[1 + kind];
        j.add_dweight[kind] = sl_accumulates(a, 1 + kind);
        j.sums = a->workspace;
    }
    j.rows_per_part = sl_qk_norm_part_rows(j.rows);
    j.parts = sl_ceil_div(j.rows, j.rows_per_part);
    sl_pool_run(a->pool, gradient_task, &j, j.parts);
    for (int kind = 0; kind < 2; kind++)
        if (j.dweight[kind] != NULL) add_parts(&j, kind);
}

/* reduce.c: sums: of a whole tensor, and over the dimensions along which an operand was broadcast.
 *
 * The general reduction runs over dy's index space, where the output has stride 0 along summed axes. Two cases by the
 * innermost axis: kept (a bias [C] from [N, C]): columns side by side in lanes; each column's terms are added in order,
 * SL_SUM_ROWS at a time in float. summed ([N, 1] from [N, C]):  one output at a time, SL_SUM_BLOCK elements in sixteen
 * float lanes, blocks in double. A task owns outputs, so nothing is added by two tasks. */
#include "backend/axes.h"
#include "backend/cpu/kernels/elem.h"

#define GROUPS      4
#define SUM_COLUMNS (GROUPS * SL_LANES)

/* ---- The whole tensor ---- */

typedef struct sum_job {
    const elem *x;
    int64_t elements, per_task;
    double parts[SL_SUM_PARTS];
} sum_job;

/* Sum of x, or of x times other; other's step is 1, or 0 for one repeated element. */
SL_INLINE float block_sum(const elem *x, const elem *other, int64_t other_step, int64_t n)
{
    sl_v16 sum = v16_set1(0.0f);
    for (int64_t i = 0; i < n; i += SL_LANES) {
        sl_v16 v = e16_get(x + i, n - i, 0.0f);
        if (other == NULL)
            sum = v16_add(sum, v);
        else
            sum = v16_fma(v, other_step != 0 ? e16_get(other + i, n - i, 0.0f) : v16_set1(e1_get(other)), sum);
    }
    return v16_sum(sum);
}

static void sum_task(void *context, int64_t task, void *scratch)
{
    sum_job *j = context;
    const sl_slice r = sl_task_range(task, j->per_task, j->elements);
    double sum = 0.0;
    (void)scratch;
    for (int64_t i = r.begin; i < r.end; i += SL_SUM_BLOCK)
        sum += (double)block_sum(j->x + i, NULL, 0, sl_least(SL_SUM_BLOCK, r.end - i));
    j->parts[task] = sum;
}

static double sum_all(const sl_kernel_args *a)
{
    sum_job j = { .x = a->in[0].data, .elements = a->in[0].elements };
    j.per_task = sl_items_per_part(sl_ceil_div(j.elements, SL_SUM_BLOCK), SL_SUM_BLOCK) * SL_SUM_BLOCK;
    const int64_t parts = sl_ceil_div(j.elements, j.per_task);
    sl_pool_run(a->pool, sum_task, &j, parts);
    double sum = 0.0;
    for (int64_t i = 0; i < parts; i++) sum += j.parts[i];
    return sum;
}

void K(sum)(const sl_kernel_args *a)
{
    float *out = a->out[0].data;
    *out = (float)sum_all(a);
}

void K(mean)(const sl_kernel_args *a)
{
    float *out = a->out[0].data;
    *out = (float)(sum_all(a) / (double)a->in[0].elements);
}

/* ---- To a broadcast operand's shape ---- */

enum { DY, OTHER, OUT };

typedef struct reduce_job {
    const elem *dy, *other; /* other NULL: a plain sum */
    const sl_tensor *out;   /* of any float form */
    bool accumulate;
    sl_axes kept, summed; /* the axes before the innermost one */
    int64_t kept_count, summed_count;
    int64_t inner, other_step; /* the innermost axis */
    int64_t columns, chunks;   /* kept innermost axis: columns of an item, items along it */
    int64_t items, items_per_task;
} reduce_job;

static void copy_axis(sl_axes *to, const sl_axes *from, int axis, int64_t *count)
{
    to->dim[to->rank] = from->dim[axis];
    for (int k = 0; k < SL_AXES_OPERANDS; k++) to->stride[k][to->rank] = from->stride[k][axis];
    to->rank++;
    *count *= from->dim[axis];
}

/* Adds the terms of summed positions [r, end) to part[0 .. groups); `at` is where position r lies. */
SL_INLINE void sum_positions(const reduce_job *j, sl_cursor *at, int64_t count, sl_cursor base, int64_t c, int groups,
                             bool product, sl_v16 *part)
{
    for (int64_t r = 0; r < count; r++) {
        const elem *dy = j->dy + base.offset[DY] + at->offset[DY] + c;
        const elem *other = product ? j->other + base.offset[OTHER] + at->offset[OTHER] + c * j->other_step : NULL;
        for (int g = 0; g < groups; g++) {
            int64_t i = g * SL_LANES, left = j->inner - c - i;
            sl_v16 v = e16_get(dy + i, left, 0.0f);
            if (product)
                part[g] =
                    v16_fma(v, j->other_step != 0 ? e16_get(other + i, left, 0.0f) : v16_set1(e1_get(other)), part[g]);
            else
                part[g] = v16_add(part[g], v);
        }
        sl_cursor_next(&j->summed, j->summed.rank, at);
    }
}

SL_INLINE void sum_columns(const reduce_job *j, sl_cursor base, int64_t c, int groups, bool product)
{
    sl_v16 total[GROUPS], part[GROUPS];
    sl_cursor at = sl_cursor_at(&j->summed, j->summed.rank, 0);
    for (int g = 0; g < groups; g++) total[g] = v16_set1(0.0f);
    for (int64_t r = 0; r < j->summed_count; r += SL_SUM_ROWS) {
        for (int g = 0; g < groups; g++) part[g] = v16_set1(0.0f);
        sum_positions(j, &at, sl_least(SL_SUM_ROWS, j->summed_count - r), base, c, groups, product, part);
        for (int g = 0; g < groups; g++) total[g] = v16_add(total[g], part[g]);
    }
    for (int g = 0; g < groups; g++) {
        int64_t i = c + g * SL_LANES;
        w16_put_or_add(j->out, base.offset[OUT] + i, total[g], j->inner - i, j->accumulate);
    }
}

/* A column's sum does not depend on whether it is taken with 63 others or with 15. */
SL_INLINE void columns_item(const reduce_job *j, int64_t item, bool product)
{
    const sl_cursor base = sl_cursor_at(&j->kept, j->kept.rank, item / j->chunks);
    const sl_slice r = sl_task_range(item % j->chunks, j->columns, j->inner);
    int64_t c = r.begin;
    for (; c + SUM_COLUMNS <= r.end; c += SUM_COLUMNS) sum_columns(j, base, c, GROUPS, product);
    for (; c < r.end; c += SL_LANES) sum_columns(j, base, c, 1, product);
}

static void columns_task(void *context, int64_t task, void *scratch)
{
    const reduce_job *j = context;
    const sl_slice r = sl_task_range(task, j->items_per_task, j->items);
    (void)scratch;
    for (int64_t item = r.begin; item < r.end; item++) {
        if (j->other != NULL)
            columns_item(j, item, true);
        else
            columns_item(j, item, false);
    }
}

static double sum_inner(const reduce_job *j, const elem *dy, const elem *other)
{
    double sum = 0.0;
    for (int64_t i = 0; i < j->inner; i += SL_SUM_BLOCK) {
        const elem *factor = other != NULL ? other + i * j->other_step : NULL;
        sum += (double)block_sum(dy + i, factor, j->other_step, sl_least(SL_SUM_BLOCK, j->inner - i));
    }
    return sum;
}

static void rows_task(void *context, int64_t task, void *scratch)
{
    const reduce_job *j = context;
    const sl_slice items = sl_task_range(task, j->items_per_task, j->items);
    (void)scratch;
    for (int64_t item = items.begin; item < items.end; item++) {
        const sl_cursor base = sl_cursor_at(&j->kept, j->kept.rank, item);
        sl_cursor at = sl_cursor_at(&j->summed, j->summed.rank, 0);
        double sum = 0.0;
        for (int64_t r = 0; r < j->summed_count; r++, sl_cursor_next(&j->summed, j->summed.rank, &at)) {
            const elem *other = j->other != NULL ? j->other + base.offset[OTHER] + at.offset[OTHER] : NULL;
            sum += sum_inner(j, j->dy + base.offset[DY] + at.offset[DY], other);
        }
        w16_put_or_add(j->out, base.offset[OUT], v16_set1((float)sum), 1, j->accumulate);
    }
}

/* Columns of one item: all where there is little to sum, down to SUM_COLUMNS where there is much, so that work
 * spreads. */
static void cut_columns(reduce_job *j)
{
    int64_t wanted = SL_TASK_ELEMENTS / sl_least(j->summed_count, SL_TASK_ELEMENTS) / SUM_COLUMNS;
    j->columns = sl_least(wanted > 0 ? wanted : 1, sl_ceil_div(j->inner, SUM_COLUMNS)) * SUM_COLUMNS;
    j->chunks = sl_ceil_div(j->inner, j->columns);
    j->items = j->kept_count * j->chunks;
    j->items_per_task = sl_items_per_task(j->summed_count * sl_least(j->columns, j->inner));
}

static void reduce(const sl_kernel_args *a, const sl_tensor *other)
{
    const sl_shape *operands[SL_AXES_OPERANDS] = { a->in[0].shape, other->shape, a->out[0].shape };
    const sl_axes axes = sl_axes_make(a->in[0].shape, operands, SL_AXES_OPERANDS);
    const int last = axes.rank - 1;
    reduce_job j = {
        .dy = a->in[0].data,
        .other = other != &a->in[0] ? other->data : NULL,
        .out = &a->out[0],
        .accumulate = sl_accumulates(a, 0),
        .kept_count = 1,
        .summed_count = 1,
        .inner = axes.dim[last],
        .other_step = axes.stride[OTHER][last],
    };
    for (int i = 0; i < last; i++) {
        if (axes.stride[OUT][i] != 0)
            copy_axis(&j.kept, &axes, i, &j.kept_count);
        else
            copy_axis(&j.summed, &axes, i, &j.summed_count);
    }
    if (axes.stride[OUT][last] != 0) {
        cut_columns(&j);
        sl_pool_run(a->pool, columns_task, &j, sl_ceil_div(j.items, j.items_per_task));
    } else {
        j.items = j.kept_count;
        j.items_per_task = sl_items_per_task(j.inner * j.summed_count);
        sl_pool_run(a->pool, rows_task, &j, sl_ceil_div(j.items, j.items_per_task));
    }
}

/* dy stands in for the missing factor, so that the axes merge as if there were none. */
void K(reduce_to)(const sl_kernel_args *a)
{
    reduce(a, &a->in[0]);
}

void K(multiply_reduce)(const sl_kernel_args *a)
{
    reduce(a, &a->in[1]);
}

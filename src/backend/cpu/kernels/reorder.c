/* reorder.c: operations that only move elements: transpose, split, concat, the gradients of the last two, and
 * adding to a part.
 *
 * Split and concat are runs: the axis, seen from memory, is `outer` repetitions of a contiguous run in each tensor.
 * Transpose copies whole runs where the innermost dimension stays, and squares of TILE elements where it does not, so
 * that reads and writes both use whole cache lines. Elements are bits that move; only adding to an output knows
 * that they are numbers. */
#include "backend/cpu/kernels/elem.h"

#define TILE ((int64_t)(64 / sizeof(elem))) /* a cache line */

/* ---- Runs ---- */

/* to[o * to_stride .. + run) = from[o * from_stride .. + run) for o in [0, outer), or added. */
typedef struct run_job {
    const elem *from;
    elem *to;
    int64_t outer, run, from_stride, to_stride;
    int64_t pieces, piece; /* a run is cut into pieces of `piece` elements */
    int64_t items_per_task;
    bool accumulate;
} run_job;

static void copy_piece(const run_job *j, int64_t item)
{
    const int64_t o = item / j->pieces;
    const sl_slice r = sl_task_range(item % j->pieces, j->piece, j->run);
    const elem *from = j->from + o * j->from_stride;
    elem *to = j->to + o * j->to_stride;
    if (!j->accumulate) {
        memcpy(to + r.begin, from + r.begin, (size_t)(r.end - r.begin) * sizeof *to);
        return;
    }
    for (int64_t i = r.begin; i < r.end; i += SL_LANES)
        e16_put_or_add(to + i, e16_get(from + i, r.end - i, 0.0f), r.end - i, true);
}

static void runs_task(void *context, int64_t task, void *scratch)
{
    const run_job *j = context;
    const sl_slice r = sl_task_range(task, j->items_per_task, j->outer * j->pieces);
    (void)scratch;
    for (int64_t item = r.begin; item < r.end; item++) copy_piece(j, item);
}

static void zero_piece(const run_job *j, int64_t item)
{
    const int64_t o = item / j->pieces;
    const sl_slice r = sl_task_range(item % j->pieces, j->piece, j->run);
    memset(j->to + o * j->to_stride + r.begin, 0, (size_t)(r.end - r.begin) * sizeof *j->to);
}

static void zero_task(void *context, int64_t task, void *scratch)
{
    const run_job *j = context;
    const sl_slice r = sl_task_range(task, j->items_per_task, j->outer * j->pieces);
    (void)scratch;
    for (int64_t item = r.begin; item < r.end; item++) zero_piece(j, item);
}

static void run_runs(sl_pool *pool, sl_task_fn fn, run_job *j)
{
    if (j->run == 0) return;
    j->piece = sl_least(j->run, SL_TASK_ELEMENTS);
    j->pieces = sl_ceil_div(j->run, j->piece);
    j->items_per_task = sl_items_per_task(j->piece);
    sl_pool_run(pool, fn, j, sl_ceil_div(j->outer * j->pieces, j->items_per_task));
}

static int64_t product(const sl_shape *s, int begin, int end)
{
    int64_t n = 1;
    for (int i = begin; i < end; i++) n *= s->dim[i];
    return n;
}

/* Part [start, start + size) of `whole`'s axis <-> the dense tensor `part`. */
static run_job part_job(const sl_kernel_args *a, const sl_shape *whole)
{
    const int axis = a->attrs->split.axis;
    const int64_t inner = product(whole, axis + 1, whole->rank);
    return (run_job){
        .outer = product(whole, 0, axis),
        .run = a->attrs->split.size * inner,
        .from_stride = whole->dim[axis] * inner,
        .to_stride = a->attrs->split.size * inner,
        .accumulate = sl_accumulates(a, 0),
    };
}

void K(split)(const sl_kernel_args *a)
{
    run_job j = part_job(a, a->in[0].shape);
    const elem *from = a->in[0].data;
    j.from = from + a->attrs->split.start * (j.run / a->attrs->split.size);
    j.to = a->out[0].data;
    run_runs(a->pool, runs_task, &j);
}

void K(add_part)(const sl_kernel_args *a)
{
    const run_job part = part_job(a, a->in[0].shape);
    elem *out = a->out[0].data;
    if (out != a->in[0].data) {
        run_job copy = { .from = a->in[0].data, .to = out, .outer = 1, .run = part.outer * part.from_stride };
        run_runs(a->pool, runs_task, &copy);
    }
    run_job j = part;
    j.from = a->in[1].data;
    j.to = out + a->attrs->split.start * (part.run / a->attrs->split.size);
    j.from_stride = part.run;
    j.to_stride = part.from_stride;
    j.accumulate = true;
    run_runs(a->pool, runs_task, &j);
}

void K(concat_grad)(const sl_kernel_args *a)
{
    K(split)(a);
}

void K(split_grad)(const sl_kernel_args *a)
{
    const run_job part = part_job(a, a->out[0].shape);
    const int64_t row = part.from_stride, before = a->attrs->split.start * (part.run / a->attrs->split.size);
    elem *out = a->out[0].data;
    run_job j = part;
    j.from = a->in[0].data;
    j.to = out + before;
    j.from_stride = part.run;
    j.to_stride = row;
    run_runs(a->pool, runs_task, &j);
    if (j.accumulate) return;
    run_job rest = { .to = out, .outer = part.outer, .run = before, .to_stride = row };
    run_runs(a->pool, zero_task, &rest);
    rest.to = out + before + part.run;
    rest.run = row - before - part.run;
    run_runs(a->pool, zero_task, &rest);
}

void K(concat)(const sl_kernel_args *a)
{
    const sl_shape *whole = a->out[0].shape;
    const int axis = a->attrs->concat.axis;
    const int64_t inner = product(whole, axis + 1, whole->rank);
    elem *to = a->out[0].data;
    for (int i = 0; i < a->input_count; i++) {
        int64_t run = a->in[i].shape->dim[axis] * inner;
        run_job j = { .from = a->in[i].data, .to = to, .outer = product(whole, 0, axis), .run = run };
        j.from_stride = run;
        j.to_stride = whole->dim[axis] * inner;
        run_runs(a->pool, runs_task, &j);
        to += run;
    }
}

/* ---- Transpose ---- */

/* The index space in output order: dim[i] long, the input moves by stride[i]. Two axes are walked as tiles: the
 * output's innermost, `column`, and `row`, the one along which the input is contiguous; the others are outer. */
typedef struct transpose_job {
    const elem_bits *x;
    elem_bits *y;
    int rank, row; /* row == rank - 1: the innermost dimension stays */
    int64_t dim[SL_MAX_RANK], in_stride[SL_MAX_RANK], out_stride[SL_MAX_RANK];
    int64_t bands, items; /* TILE rows make a band; an item is one band of one outer position */
    int64_t items_per_task;
} transpose_job;

/* Where outer position `flat` begins: all axes but `row` and the innermost. */
static void outer_offsets(const transpose_job *j, int64_t flat, int64_t *in, int64_t *out)
{
    *in = *out = 0;
    for (int i = j->rank - 2; i >= 0; i--) {
        if (i == j->row) continue;
        int64_t at = flat % j->dim[i];
        flat /= j->dim[i];
        *in += at * j->in_stride[i];
        *out += at * j->out_stride[i];
    }
}

/* y[r][c] = x[c][r] for r < rows, c < columns; both at most TILE, and constants where the tile is whole. */
SL_INLINE void transpose_tile(const elem_bits *x, int64_t x_stride, elem_bits *y, int64_t y_stride, int64_t rows,
                              int64_t columns)
{
    elem_bits tile[TILE][TILE];
    for (int64_t c = 0; c < columns; c++) memcpy(tile[c], x + c * x_stride, (size_t)rows * sizeof *x);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++) y[r * y_stride + c] = tile[c][r];
}

static void transpose_band(const transpose_job *j, const elem_bits *x, elem_bits *y, int64_t rows)
{
    const int last = j->rank - 1;
    const int64_t columns = j->dim[last], x_stride = j->in_stride[last], y_stride = j->out_stride[j->row];
    for (int64_t c = 0; c < columns; c += TILE) {
        const int64_t width = sl_least(TILE, columns - c);
        if (rows == TILE && width == TILE)
            transpose_tile(x + c * x_stride, x_stride, y + c, y_stride, TILE, TILE);
        else
            transpose_tile(x + c * x_stride, x_stride, y + c, y_stride, rows, width);
    }
}

static void transpose_task(void *context, int64_t task, void *scratch)
{
    const transpose_job *j = context;
    const sl_slice r = sl_task_range(task, j->items_per_task, j->items);
    const int last = j->rank - 1;
    (void)scratch;
    for (int64_t item = r.begin; item < r.end; item++) {
        int64_t in, out;
        outer_offsets(j, item / j->bands, &in, &out);
        if (j->row == last) {
            memcpy(j->y + out, j->x + in, (size_t)j->dim[last] * sizeof *j->y);
            continue;
        }
        int64_t first = item % j->bands * TILE;
        transpose_band(j, j->x + in + first, j->y + out + first * j->out_stride[j->row],
                       sl_least(TILE, j->dim[j->row] - first));
    }
}

/* Dimensions in output order without those of length 1, neighbours that are neighbours in the input too merged into
 * one. */
static void set_transpose_axes(transpose_job *j, const sl_kernel_args *a)
{
    const sl_shape *shape = a->in[0].shape;
    for (int i = 0; i < shape->rank; i++) {
        int axis = a->attrs->transpose.order[i];
        int64_t n = shape->dim[axis], stride = product(shape, axis + 1, shape->rank);
        if (n == 1) continue;
        if (j->rank > 0 && j->in_stride[j->rank - 1] == n * stride) {
            j->dim[j->rank - 1] *= n;
            j->in_stride[j->rank - 1] = stride;
            continue;
        }
        j->dim[j->rank] = n;
        j->in_stride[j->rank++] = stride;
    }
    if (j->rank == 0) {
        j->dim[0] = j->in_stride[0] = 1;
        j->rank = 1;
    }
    int64_t stride = 1;
    for (int i = j->rank - 1; i >= 0; stride *= j->dim[i--]) j->out_stride[i] = stride;
}

void K(transpose)(const sl_kernel_args *a)
{
    transpose_job j = { .x = a->in[0].data, .y = a->out[0].data };
    set_transpose_axes(&j, a);
    const int last = j.rank - 1;
    while (j.in_stride[j.row] != 1) j.row++;
    j.bands = j.row == last ? 1 : sl_ceil_div(j.dim[j.row], TILE);
    const int64_t covered = j.row == last ? j.dim[last] : j.dim[last] * j.dim[j.row];
    j.items = a->out[0].elements / covered * j.bands;
    j.items_per_task = sl_items_per_task(sl_ceil_div(covered, j.bands));
    sl_pool_run(a->pool, transpose_task, &j, sl_ceil_div(j.items, j.items_per_task));
}

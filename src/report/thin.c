/* thin.c: see thin.h. */
#include "report/thin.h"

#include <math.h>
#include <stdlib.h>

#include "core/alloc.h"

/* Points [first, end) of one column: at most two of each series, and one whose first number is none. */
static size_t choose(const sl_thin_source *s, size_t first, size_t end, size_t *out)
{
    size_t n = 0;
    for (int k = 0; k < s->series; k++) {
        size_t low = end, high = end;
        for (size_t i = first; i < end; i++) {
            double v = s->value(s->of, i, k);
            if (!isfinite(v)) continue;
            if (low == end || v < s->value(s->of, low, k)) low = i;
            if (high == end || v > s->value(s->of, high, k)) high = i;
        }
        if (low < end) out[n++] = low;
        if (high < end) out[n++] = high;
    }
    for (size_t i = first; i < end; i++)
        if (!isfinite(s->value(s->of, i, 0))) {
            out[n++] = i;
            break;
        }
    return n;
}

static int by_index(const void *a, const void *b)
{
    size_t x = *(const size_t *)a, y = *(const size_t *)b;
    return x < y ? -1 : x > y;
}

static size_t sort_unique(size_t *list, size_t count)
{
    size_t kept = 0;
    qsort(list, count, sizeof *list, by_index);
    for (size_t i = 0; i < count; i++)
        if (kept == 0 || list[i] != list[kept - 1]) list[kept++] = list[i];
    return kept;
}

static size_t column_of(const sl_thin_source *s, size_t i)
{
    double first = s->place(s->of, 0), last = s->place(s->of, s->count - 1);
    return (size_t)((s->place(s->of, i) - first) / (last - first + 1) * (double)s->columns);
}

sluice_status sl_thin(const sl_thin_source *s, size_t **out, size_t *kept)
{
    bool whole = s->count <= s->whole;
    size_t room = whole ? s->count : s->columns * (2 * (size_t)s->series + 1) + 2, n = 0;
    size_t *list = sl_alloc_array(room + 1, sizeof *list, "steps of a page");
    if (list == NULL) return SLUICE_ERR_NO_MEMORY;
    for (size_t i = 0; whole && i < s->count; i++) list[n++] = i;
    for (size_t i = 0, end; !whole && i < s->count; i = end) {
        size_t column = column_of(s, i);
        for (end = i + 1; end < s->count && column_of(s, end) == column;) end++;
        n += choose(s, i, end, list + n);
    }
    if (!whole) {
        list[n++] = 0;
        list[n++] = s->count - 1;
        n = sort_unique(list, n);
    }
    *out = list;
    *kept = n;
    return SLUICE_OK;
}

/* ---- the steps of a run ---- */

static double step_place(const void *of, size_t i)
{
    return (double)((const sl_recorded_step *)of)[i].step;
}

static double step_value(const void *of, size_t i, int series)
{
    const sl_recorded_step *s = (const sl_recorded_step *)of + i;
    const double values[] = { s->loss, s->lr, s->gradient_norm, s->rate };
    return values[series];
}

sluice_status sl_thin_steps(const sl_recorded_step *steps, size_t count, size_t **out, size_t *kept)
{
    return sl_thin(&(sl_thin_source){ steps, count, 4, SL_THIN_WHOLE, SL_THIN_COLUMNS, step_place, step_value }, out,
                   kept);
}

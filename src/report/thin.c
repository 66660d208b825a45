/* thin.c: see thin.h. */
#include "report/thin.h"

#include <math.h>
#include <stdlib.h>

#include "core/alloc.h"

enum { SERIES = 4, PER_COLUMN = 2 * SERIES + 1 };

static double value_of(const sl_recorded_step *s, int series)
{
    const double values[SERIES] = { s->loss, s->lr, s->gradient_norm, s->rate };
    return values[series];
}

/* Steps [first, end) of one column: at most PER_COLUMN of them. A loss that is no number is shown too. */
static size_t choose(const sl_recorded_step *steps, size_t first, size_t end, size_t *out)
{
    size_t n = 0;
    for (int k = 0; k < SERIES; k++) {
        size_t low = end, high = end;
        for (size_t i = first; i < end; i++) {
            double v = value_of(&steps[i], k);
            if (!isfinite(v)) continue;
            if (low == end || v < value_of(&steps[low], k)) low = i;
            if (high == end || v > value_of(&steps[high], k)) high = i;
        }
        if (low < end) out[n++] = low;
        if (high < end) out[n++] = high;
    }
    for (size_t i = first; i < end; i++)
        if (!isfinite(steps[i].loss)) {
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

static size_t column_of(const sl_recorded_step *steps, size_t count, size_t i)
{
    double first = (double)steps[0].step, last = (double)steps[count - 1].step;
    return (size_t)(((double)steps[i].step - first) / (last - first + 1) * SL_THIN_COLUMNS);
}

sluice_status sl_thin_steps(const sl_recorded_step *steps, size_t count, size_t **out, size_t *kept)
{
    bool whole = count <= SL_THIN_WHOLE;
    size_t room = whole ? count : (size_t)SL_THIN_COLUMNS * PER_COLUMN + 2, n = 0;
    size_t *list = sl_alloc_array(room + 1, sizeof *list, "steps of a page");
    if (list == NULL) return SLUICE_ERR_NO_MEMORY;
    for (size_t i = 0; whole && i < count; i++) list[n++] = i;
    for (size_t i = 0, end; !whole && i < count; i = end) {
        size_t column = column_of(steps, count, i);
        for (end = i + 1; end < count && column_of(steps, count, end) == column;) end++;
        n += choose(steps, i, end, list + n);
    }
    if (!whole) {
        list[n++] = 0;
        list[n++] = count - 1;
        n = sort_unique(list, n);
    }
    *out = list;
    *kept = n;
    return SLUICE_OK;
}

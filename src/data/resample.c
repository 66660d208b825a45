#include "data/resample.h"

#include <math.h>

#include "core/alloc.h"
#include "core/status.h"

/* ---- filters: weights by the distance in pixels, those of the picture or, where it gets smaller, of the output ---- */

static double triangle(double x)
{
    return x < 1 ? 1 - x : 0;
}

/* Keys's cubic with a = -1/2. */
static double cubic(double x)
{
    if (x < 1) return (1.5 * x - 2.5) * x * x + 1;
    return x < 2 ? ((-0.5 * x + 2.5) * x - 4) * x + 2 : 0;
}

static double sinc(double x)
{
    return x == 0 ? 1 : sin(M_PI * x) / (M_PI * x);
}

static double windowed_sinc(double x)
{
    return x < 3 ? sinc(x) * sinc(x / 3) : 0;
}

static const struct {
    double (*weight)(double distance);
    double radius;
    bool overshoots; /* it may leave what bytes can be */
} filters[SL_FILTER_COUNT] = {
    [SL_FILTER_BILINEAR] = { triangle, 1, false },
    [SL_FILTER_BICUBIC] = { cubic, 2, true },
    [SL_FILTER_LANCZOS] = { windowed_sinc, 3, true },
};

/* ---- lines ---- */

/* One axis of a box. */
typedef struct axis {
    double start, length;
    double wide;       /* how much wider than its own the filter is */
    double radius;     /* that it has then */
    int64_t low, high; /* pixels that count: [low, high) */
    int64_t outputs;
    int64_t taps; /* at most, of an output */
} axis;

static axis axis_of(sl_filter filter, double start, double length, int64_t pixels, bool closed, int64_t outputs)
{
    axis a = { .start = start, .length = length, .low = 0, .high = pixels, .outputs = outputs };
    double scale = length / (double)outputs;
    a.wide = scale > 1 ? scale : 1;
    a.radius = filters[filter].radius * a.wide;
    if (closed) {
        a.low = (int64_t)floor(start);
        a.high = (int64_t)ceil(start + length);
        if (a.high > pixels) a.high = pixels;
    }
    a.taps = (int64_t)ceil(a.radius) * 2 + 1;
    return a;
}

static sluice_status reserve(void **p, size_t *capacity, size_t count, size_t each, const char *name)
{
    if (count <= *capacity) return SLUICE_OK;
    sl_free(*p);
    *capacity = 0;
    if ((*p = sl_alloc_array(count, each, name)) == NULL) return SLUICE_ERR_NO_MEMORY;
    *capacity = count;
    return SLUICE_OK;
}

/* r->first[i] and r->weights[i, taps] for every output of the axis; weights past the last tap are 0. */
static sluice_status weigh(sl_resampling *r, const axis *a)
{
    double scale = a->length / (double)a->outputs;
    SL_TRY(reserve((void **)&r->weights, &r->weight_capacity, (size_t)(a->outputs * a->taps), sizeof *r->weights,
                   "weights of pixels"));
    SL_TRY(reserve((void **)&r->first, &r->first_capacity, (size_t)a->outputs, sizeof *r->first, "places of pixels"));
    for (int64_t i = 0; i < a->outputs; i++) {
        double centre = a->start + ((double)i + 0.5) * scale, sum = 0;
        int64_t from = (int64_t)floor(centre - a->radius + 0.5), to = (int64_t)floor(centre + a->radius + 0.5);
        if (from < a->low) from = a->low;
        if (to > a->high) to = a->high;
        if (to - from > a->taps) to = from + a->taps;
        float *w = r->weights + i * a->taps;
        for (int64_t k = 0; k < a->taps; k++) {
            double distance = fabs(((double)(from + k) + 0.5 - centre) / a->wide);
            double weight = from + k < to ? filters[r->filter].weight(distance) : 0;
            w[k] = (float)weight;
            sum += weight;
        }
        for (int64_t k = 0; k < a->taps; k++) w[k] = (float)(w[k] / sum);
        r->first[i] = from;
    }
    return SLUICE_OK;
}

/* How many of an output's taps lie in the picture. */
static int64_t taps_of(const axis *a, int64_t first)
{
    return a->high - first < a->taps ? a->high - first : a->taps;
}

/* in[height, width, C] rows [low, high) -> r->rows[high - low, outputs, C] */
static void resample_columns(const sl_resampling *r, const sl_pixels *in, const axis *a, int64_t low, int64_t high)
{
    int c_count = in->channels;
    for (int64_t y = low; y < high; y++) {
        const uint8_t *line = in->bytes + y * in->width * c_count;
        float *out = r->rows + (y - low) * a->outputs * c_count;
        for (int64_t x = 0; x < a->outputs; x++) {
            const float *w = r->weights + x * a->taps;
            int64_t first = r->first[x], taps = taps_of(a, first);
            for (int c = 0; c < c_count; c++) {
                float sum = 0;
                for (int64_t k = 0; k < taps; k++) sum += w[k] * (float)line[(first + k) * c_count + c];
                out[x * c_count + c] = sum;
            }
        }
    }
}

/* r->rows, whose first is pixel row `low`, each of `elements` -> out[outputs, elements] */
static void resample_rows(const sl_resampling *r, const axis *a, int64_t low, int64_t elements, float *out)
{
    for (int64_t y = 0; y < a->outputs; y++) {
        const float *w = r->weights + y * a->taps;
        int64_t first = r->first[y], taps = taps_of(a, first);
        float *line = out + y * elements;
        for (int64_t i = 0; i < elements; i++) line[i] = 0;
        for (int64_t k = 0; k < taps; k++) {
            const float *row = r->rows + (first + k - low) * elements;
            for (int64_t i = 0; i < elements; i++) line[i] += w[k] * row[i];
        }
    }
}

static void keep_bytes(float *values, int64_t count)
{
    for (int64_t i = 0; i < count; i++) values[i] = fminf(fmaxf(values[i], 0), 255);
}

sluice_status sl_resample(sl_resampling *r, const sl_pixels *in, const sl_box *box, int64_t height, int64_t width,
                          float *out)
{
    axis columns = axis_of(r->filter, box->left, box->width, in->width, box->closed, width);
    axis rows = axis_of(r->filter, box->top, box->height, in->height, box->closed, height);
    /* of the rows, those that the filter reaches: there are no others behind the first pass */
    int64_t low = (int64_t)floor(rows.start - rows.radius),
            high = (int64_t)ceil(rows.start + rows.length + rows.radius);
    if (low < rows.low) low = rows.low;
    if (high > rows.high) high = rows.high;
    rows.low = low;
    rows.high = high;
    int64_t elements = width * in->channels;
    SL_TRY(reserve((void **)&r->rows, &r->row_capacity, (size_t)((high - low) * elements), sizeof *r->rows,
                   "rows of pixels"));
    SL_TRY(weigh(r, &columns));
    resample_columns(r, in, &columns, low, high);
    SL_TRY(weigh(r, &rows));
    resample_rows(r, &rows, low, elements, out);
    if (filters[r->filter].overshoots) keep_bytes(out, height * elements);
    return SLUICE_OK;
}

void sl_resampling_free(sl_resampling *r)
{
    sl_free(r->rows);
    sl_free(r->weights);
    sl_free(r->first);
    *r = (sl_resampling){ .rows = NULL };
}

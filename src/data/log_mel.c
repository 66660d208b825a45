/* log_mel.c: see log_mel.h.
 *
 * The spectrum of n real numbers is one complex FFT of n / 2: even samples are its real parts, odd ones its imaginary parts, and
 * the two spectra come apart by symmetry. */
#include "data/log_mel.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>

#include "core/alloc.h"
#include "core/status.h"

#define LEAST_POWER 1e-10

typedef struct complex_number {
    double re, im;
} complex_number;

/* A triangle over the bins [first, first + count) of the spectrum. */
typedef struct mel_band {
    int first, count;
    int weights; /* where its weights begin */
} mel_band;

struct sl_log_mel {
    int64_t size, half; /* of the transform of real numbers, and of the complex one */
    int64_t window, hop, bands;
    double *hann;          /* owned: [window] */
    complex_number *turns; /* owned: [half]: e^(-2 pi i k / size) */
    int32_t *reversed;     /* owned: [half]: numbers with their bits in reverse */
    mel_band *band;        /* owned: [bands] */
    double *weights;       /* owned: of all bands */
};

int64_t sl_log_mel_window(const sl_log_mel *m)
{
    return m->size;
}

int64_t sl_log_mel_rows(const sl_log_mel *m, int64_t samples)
{
    return samples < m->size ? 0 : (samples - m->size) / m->hop + 1;
}

size_t sl_log_mel_scratch_bytes(const sl_log_mel *m)
{
    return (size_t)m->half * sizeof(complex_number) + (size_t)(m->half + 1) * sizeof(double);
}

void sl_log_mel_destroy(sl_log_mel *m)
{
    if (m == NULL) return;
    sl_free(m->hann);
    sl_free(m->turns);
    sl_free(m->reversed);
    sl_free(m->band);
    sl_free(m->weights);
    sl_free(m);
}

/* ---- tables ---- */

static void make_transform(sl_log_mel *m)
{
    int bits = 0;
    while ((int64_t)1 << bits < m->half) bits++;
    for (int64_t i = 0; i < m->window; i++) m->hann[i] = 0.5 - 0.5 * cos(2 * M_PI * (double)i / (double)m->window);
    for (int64_t k = 0; k < m->half; k++) {
        double angle = -2 * M_PI * (double)k / (double)m->size;
        m->turns[k] = (complex_number){ cos(angle), sin(angle) };
        int32_t reversed = 0;
        for (int b = 0; b < bits; b++) reversed |= (int32_t)(k >> b & 1) << (bits - 1 - b);
        m->reversed[k] = reversed;
    }
}

static double mel_of(double hertz)
{
    return 2595.0 * log10(1.0 + hertz / 700.0);
}

static double hertz_of(double mel)
{
    return 700.0 * (pow(10.0, mel / 2595.0) - 1.0);
}

/* What band b has of a pitch: its ends and its top are three neighbours of bands + 2 evenly spaced points. */
static double weight_at(const sl_log_mel *m, double rate, int64_t b, int64_t bin)
{
    double most = mel_of(rate / 2), step = most / (double)(m->bands + 1), f = (double)bin * rate / (double)m->size;
    double left = hertz_of(step * (double)b), top = hertz_of(step * (double)(b + 1)),
           right = hertz_of(step * (double)(b + 2));
    double up = (f - left) / (top - left), down = (right - f) / (right - top);
    double least = up < down ? up : down;
    return least > 0 ? least : 0;
}

static sluice_status make_bands(sl_log_mel *m, int64_t rate)
{
    int64_t bins = m->half + 1, used = 0;
    for (int64_t b = 0; b < m->bands; b++) {
        mel_band *band = &m->band[b];
        *band = (mel_band){ .weights = (int)used };
        for (int64_t bin = 0; bin < bins; bin++) {
            double weight = weight_at(m, (double)rate, b, bin);
            if (weight <= 0) continue;
            if (band->count++ == 0) band->first = (int)bin;
            assert(used < 2 * bins); /* of every bin at most two bands have something */
            m->weights[used++] = weight;
        }
        if (band->count == 0)
            return sl_fail(SLUICE_ERR_USAGE,
                           "data.mels is %" PRId64 ": at %" PRId64 " samples a second, band %" PRId64
                           " is narrower than what 25 ms tell apart; give fewer",
                           m->bands, rate, b);
    }
    return SLUICE_OK;
}

sluice_status sl_log_mel_create(int64_t rate, int64_t bands, sl_log_mel **out)
{
    if (bands < 1 || bands > SL_MOST_BANDS)
        return sl_fail(SLUICE_ERR_USAGE, "data.mels is %" PRId64 "; give 1 to %d", bands, SL_MOST_BANDS);
    sl_log_mel *m = sl_alloc(sizeof *m, "mel bands");
    if (m == NULL) return SLUICE_ERR_NO_MEMORY;
    m->window = rate / 40;
    m->hop = rate / 100;
    m->bands = bands;
    for (m->size = 4; m->size < m->window;) m->size *= 2;
    m->half = m->size / 2;
    m->hann = sl_alloc_array((size_t)m->window, sizeof *m->hann, "window of a sound");
    m->turns = sl_alloc_array((size_t)m->half, sizeof *m->turns, "angles");
    m->reversed = sl_alloc_array((size_t)m->half, sizeof *m->reversed, "order of a transform");
    m->band = sl_alloc_array((size_t)bands, sizeof *m->band, "mel bands");
    m->weights = sl_alloc_array(2 * ((size_t)m->half + 1), sizeof *m->weights, "mel bands");
    sluice_status st = SLUICE_ERR_NO_MEMORY;
    if (m->hann != NULL && m->turns != NULL && m->reversed != NULL && m->band != NULL && m->weights != NULL) {
        make_transform(m);
        st = make_bands(m, rate);
    }
    if (st != SLUICE_OK) {
        sl_log_mel_destroy(m);
        return st;
    }
    *out = m;
    return SLUICE_OK;
}

/* ---- a row ---- */

/* The window lies in the middle of the samples that are transformed; zeros are around it. */
static void weigh(const sl_log_mel *m, const float *samples, complex_number *z)
{
    int64_t first = (m->size - m->window) / 2;
    for (int64_t k = 0; k < m->half; k++) {
        double pair[2];
        for (int64_t i = 0; i < 2; i++) {
            int64_t at = 2 * k + i - first;
            pair[i] = at >= 0 && at < m->window ? (double)samples[2 * k + i] * m->hann[at] : 0;
        }
        z[m->reversed[k]] = (complex_number){ pair[0], pair[1] };
    }
}

/* In place; z comes in reversed order. The turns of the larger transform are twice as fine. */
static void transform(const sl_log_mel *m, complex_number *z)
{
    for (int64_t length = 2; length <= m->half; length *= 2) {
        int64_t apart = length / 2, step = m->size / length;
        for (int64_t begin = 0; begin < m->half; begin += length)
            for (int64_t k = 0; k < apart; k++) {
                complex_number t = m->turns[k * step], a = z[begin + k], b = z[begin + k + apart];
                complex_number turned = { b.re * t.re - b.im * t.im, b.re * t.im + b.im * t.re };
                z[begin + k] = (complex_number){ a.re + turned.re, a.im + turned.im };
                z[begin + k + apart] = (complex_number){ a.re - turned.re, a.im - turned.im };
            }
    }
}

/* power[half + 1] of the real numbers whose pairs were transformed to z. */
static void find_power(const sl_log_mel *m, const complex_number *z, double *power)
{
    for (int64_t k = 0; k <= m->half; k++) {
        complex_number a = z[k % m->half], b = z[(m->half - k) % m->half];
        complex_number even = { 0.5 * (a.re + b.re), 0.5 * (a.im - b.im) };
        complex_number odd = { 0.5 * (a.im + b.im), 0.5 * (b.re - a.re) };
        complex_number t = k < m->half ? m->turns[k] : (complex_number){ -1, 0 };
        double re = even.re + odd.re * t.re - odd.im * t.im, im = even.im + odd.re * t.im + odd.im * t.re;
        power[k] = re * re + im * im;
    }
}

void sl_log_mel_run(const sl_log_mel *m, const float *samples, int64_t count, void *scratch, float *out)
{
    complex_number *z = scratch;
    double *power = (double *)(void *)(z + m->half);
    int64_t rows = sl_log_mel_rows(m, count);
    for (int64_t t = 0; t < rows; t++) {
        weigh(m, samples + t * m->hop, z);
        transform(m, z);
        find_power(m, z, power);
        for (int64_t b = 0; b < m->bands; b++) {
            const mel_band *band = &m->band[b];
            double sum = 0;
            for (int i = 0; i < band->count; i++) sum += m->weights[band->weights + i] * power[band->first + i];
            out[t * m->bands + b] = (float)log(sum > LEAST_POWER ? sum : LEAST_POWER);
        }
    }
}

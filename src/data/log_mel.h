/* log_mel.h: sound as a picture: how loud each band of pitches is, a row every 10 ms; private to data/.
 *
 * Row t is made of the samples [10 ms * t, ... + n), n the least power of two that holds 25 ms. They are weighed with a periodic Hann
 * window of 25 ms in their middle, their power spectrum |FFT|^2 is summed by triangles that are evenly spaced and overlap by half on
 * HTK's mel scale, 2595 log10(1 + f / 700), from 0 to half the sampling rate, each 1 at its top; and the natural logarithm is taken of
 * the sum, or of 1e-10 where that is more. This is torchaudio's MelSpectrogram(sample_rate, n_fft=n, win_length=25 ms,
 * hop_length=10 ms, center=False, n_mels) with its other settings as they are. 25 and 10 ms are whole samples, rounded down. Computed in
 * double. */
#ifndef SL_DATA_LOG_MEL_H
#define SL_DATA_LOG_MEL_H

#include <stdint.h>

#include "sluice.h"

#define SL_MOST_BANDS 512

/* Never changes; any number of threads may use it. */
typedef struct sl_log_mel sl_log_mel;

/* 1 to SL_MOST_BANDS bands. SLUICE_ERR_USAGE where they are so narrow that one of them would hear nothing. */
sluice_status sl_log_mel_create(int64_t rate, int64_t bands, sl_log_mel **out);
void sl_log_mel_destroy(sl_log_mel *m); /* NULL is fine */
/* Samples of a row. */
int64_t sl_log_mel_window(const sl_log_mel *m);
/* Rows that so many samples give; 0: they are too few for one. */
int64_t sl_log_mel_rows(const sl_log_mel *m, int64_t samples);
/* Bytes of scratch memory for one call. */
size_t sl_log_mel_scratch_bytes(const sl_log_mel *m);
/* samples[count] -> out[rows, bands]. */
void sl_log_mel_run(const sl_log_mel *m, const float *samples, int64_t count, void *scratch, float *out);

#endif

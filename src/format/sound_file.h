/* sound_file.h: WAV and FLAC files as one channel of numbers from -1 to 1.
 *
 * The first bytes of a file tell its kind, not its name. What a header says is checked here, byte by byte, against what the file
 * has, because decoders repair what they can: a WAV file that was cut off would be read as a shorter one. libsndfile then
 * decodes; a sound is read whole or not at all. */
#ifndef SL_FORMAT_SOUND_FILE_H
#define SL_FORMAT_SOUND_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "sluice.h"

#define SL_SOUND_MOST_BYTES    ((size_t)1 << 30) /* of a file */
#define SL_SOUND_MOST_SAMPLES  ((int64_t)1 << 28)
#define SL_SOUND_LEAST_RATE    1000
#define SL_SOUND_MOST_RATE     384000
#define SL_SOUND_MOST_CHANNELS 64

/* What a header says. */
typedef struct sl_sound_info {
    int64_t rate; /* samples a second */
    int channels;
    int64_t samples; /* of each channel; at least 1 */
    uint64_t data;   /* byte of the first sample; 0: not at a place of its own */
    int block;       /* bytes of one sample of all channels; 0: they differ */
} sl_sound_info;

/* Zero-initialise; decoding another sound into it reuses its memory. */
typedef struct sl_sound {
    sl_sound_info info;
    float *samples; /* owned: info.samples of them, the mean of the channels */
    size_t capacity;
} sl_sound;

/* Decoders that are built in: "wav, flac"; "": none. */
const char *sl_sound_formats(void);
/* The header alone. WAV: PCM of 8 to 32 bits, floating point, A-law and mu-law. SLUICE_ERR_INPUT names the file and the byte. */
sluice_status sl_sound_look(const char *path, sl_sound_info *out);
/* All of it; a number that is not finite is SLUICE_ERR_INPUT, too. */
sluice_status sl_sound_read(const char *path, sl_sound *out);
/* The same of a file in memory; `path` is for messages. */
sluice_status sl_sound_decode(const char *path, const uint8_t *file, size_t bytes, sl_sound *out);
void sl_sound_free(sl_sound *s);

#endif

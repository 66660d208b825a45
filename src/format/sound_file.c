/* sound_file.c: headers of WAV and FLAC files, and their samples by libsndfile. */
#include "format/sound_file.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#ifdef SLUICE_SOUND
#include <sndfile.h>
#endif

#include "core/alloc.h"
#include "core/io.h"
#include "core/status.h"
#include "core/utf8.h"

#define BLOCK_SAMPLES 16384 /* decoded at a time, of all channels together */
#define FLAC_HEADER   42    /* "fLaC", the head of a block, and STREAMINFO */

const char *sl_sound_formats(void)
{
#ifdef SLUICE_SOUND
    return "wav, flac";
#else
    return "";
#endif
}

void sl_sound_free(sl_sound *s)
{
    sl_free(s->samples);
    *s = (sl_sound){ .samples = NULL };
}

/* ---- bytes of a file, in memory or not ---- */

typedef struct sound_source {
    const char *path;
    const uint8_t *memory; /* NULL: `file` is read */
    sl_file *file;
    uint64_t bytes;
} sound_source;

/* Bytes that the caller knows to be there. */
static sluice_status read_at(const sound_source *s, uint64_t at, void *out, size_t bytes)
{
    if (s->memory == NULL) return sl_file_pread(s->file, out, bytes, at);
    memcpy(out, s->memory + at, bytes);
    return SLUICE_OK;
}

static uint32_t le16(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8;
}

static uint32_t le32(const uint8_t *p)
{
    return le16(p) | le16(p + 2) << 16;
}

/* ---- WAV ---- */

typedef struct wav_format {
    uint32_t codec, channels, rate, block, bits;
} wav_format;

enum { CODEC_PCM = 1, CODEC_FLOAT = 3, CODEC_A_LAW = 6, CODEC_MU_LAW = 7, CODEC_EXTENSIBLE = 0xfffe };

static bool has_bits(const wav_format *f)
{
    if (f->codec == CODEC_PCM) return f->bits % 8 == 0 && f->bits >= 8 && f->bits <= 32;
    if (f->codec == CODEC_FLOAT) return f->bits == 32 || f->bits == 64;
    return f->bits == 8;
}

static sluice_status check_format(const sound_source *s, uint64_t at, const wav_format *f)
{
    if (f->codec != CODEC_PCM && f->codec != CODEC_FLOAT && f->codec != CODEC_A_LAW && f->codec != CODEC_MU_LAW)
        return sl_fail(SLUICE_ERR_INPUT,
                       "%s, byte %" PRIu64 ": codec 0x%04" PRIx32
                       " is not read; PCM, floating point, A-law and mu-law are",
                       sl_show(s->path).text, at, f->codec);
    if (f->channels < 1 || f->channels > SL_SOUND_MOST_CHANNELS)
        return sl_fail(SLUICE_ERR_INPUT, "%s, byte %" PRIu64 ": %" PRIu32 " channels; sounds of 1 to %d are read",
                       sl_show(s->path).text, at + 2, f->channels, SL_SOUND_MOST_CHANNELS);
    if (f->rate < SL_SOUND_LEAST_RATE || f->rate > SL_SOUND_MOST_RATE)
        return sl_fail(SLUICE_ERR_INPUT,
                       "%s, byte %" PRIu64 ": %" PRIu32 " samples a second; rates of %d to %d are read",
                       sl_show(s->path).text, at + 4, f->rate, SL_SOUND_LEAST_RATE, SL_SOUND_MOST_RATE);
    if (!has_bits(f))
        return sl_fail(SLUICE_ERR_INPUT,
                       "%s, byte %" PRIu64 ": samples of %" PRIu32 " bits, which codec %" PRIu32 " does not have",
                       sl_show(s->path).text, at + 14, f->bits, f->codec);
    if (f->block != f->channels * (f->bits / 8))
        return sl_fail(SLUICE_ERR_INPUT,
                       "%s, byte %" PRIu64 ": blocks of %" PRIu32 " bytes; %" PRIu32 " channels of %" PRIu32
                       " bits are %" PRIu32,
                       sl_show(s->path).text, at + 12, f->block, f->channels, f->bits, f->channels * (f->bits / 8));
    return SLUICE_OK;
}

/* The chunk "fmt ", whose `size` bytes are at `at`. */
static sluice_status read_format(const sound_source *s, uint64_t at, uint64_t size, wav_format *out)
{
    uint8_t b[26];
    if (size < 16)
        return sl_fail(SLUICE_ERR_INPUT, "%s, byte %" PRIu64 ": a format of %" PRIu64 " bytes, and 16 are the least",
                       sl_show(s->path).text, at, size);
    SL_TRY(read_at(s, at, b, size < sizeof b ? 16 : sizeof b));
    *out = (wav_format){ le16(b), le16(b + 2), le32(b + 4), le16(b + 12), le16(b + 14) };
    if (out->codec == CODEC_EXTENSIBLE && size >= sizeof b) out->codec = le16(b + 24);
    return check_format(s, at, out);
}

/* The chunk "data". */
static sluice_status check_data(const sound_source *s, uint64_t at, uint64_t size, const wav_format *f,
                                sl_sound_info *out)
{
    if (f->block == 0)
        return sl_fail(SLUICE_ERR_INPUT, "%s, byte %" PRIu64 ": samples before the chunk that says what they are",
                       sl_show(s->path).text, at - 8);
    if (size == 0)
        return sl_fail(SLUICE_ERR_INPUT, "%s, byte %" PRIu64 ": there are no samples in it", sl_show(s->path).text,
                       at - 4);
    if (size % f->block != 0)
        return sl_fail(SLUICE_ERR_INPUT,
                       "%s, byte %" PRIu64 ": %" PRIu64 " bytes of samples of %" PRIu32 " bytes: the last is cut off",
                       sl_show(s->path).text, at + size / f->block * f->block, size, f->block);
    *out = (sl_sound_info){ .rate = f->rate,
                            .channels = (int)f->channels,
                            .samples = (int64_t)(size / f->block),
                            .data = at,
                            .block = (int)f->block };
    return SLUICE_OK;
}

/* Chunks up to the samples. */
static sluice_status look_wav(const sound_source *s, sl_sound_info *out)
{
    wav_format format = { .block = 0 };
    uint8_t head[8];
    for (uint64_t at = 12;;) {
        if (s->bytes - at < sizeof head)
            return sl_fail(SLUICE_ERR_INPUT, "%s, byte %" PRIu64 ": the file ends before its %s", sl_show(s->path).text,
                           s->bytes, format.block == 0 ? "format" : "samples");
        SL_TRY(read_at(s, at, head, sizeof head));
        uint64_t size = le32(head + 4);
        bool is_data = memcmp(head, "data", 4) == 0;
        at += sizeof head;
        if (size > s->bytes - at)
            return sl_fail(SLUICE_ERR_INPUT,
                           "%s, byte %" PRIu64 ": a chunk of %" PRIu64 " bytes, and the file ends %" PRIu64
                           " behind it: it was cut off%s",
                           sl_show(s->path).text, at - 4, size, s->bytes - at,
                           is_data ? ", or a program wrote it to a pipe and never knew its length" : "");
        if (is_data) return check_data(s, at, size, &format, out);
        if (memcmp(head, "fmt ", 4) == 0) SL_TRY(read_format(s, at, size, &format));
        at += size + size % 2;
        if (at > s->bytes) at = s->bytes;
    }
}

/* ---- FLAC ---- */

static sluice_status look_flac(const sound_source *s, sl_sound_info *out)
{
    uint8_t b[FLAC_HEADER];
    if (s->bytes < sizeof b)
        return sl_fail(SLUICE_ERR_INPUT, "%s, byte %" PRIu64 ": the file ends in its header", sl_show(s->path).text,
                       s->bytes);
    SL_TRY(read_at(s, 0, b, sizeof b));
    if ((b[4] & 0x7f) != 0 || b[5] != 0 || b[6] != 0 || b[7] != 34)
        return sl_fail(SLUICE_ERR_INPUT,
                       "%s, byte 4: a FLAC file begins with what its stream is, and this one does not",
                       sl_show(s->path).text);
    int64_t rate = (int64_t)b[18] << 12 | b[19] << 4 | b[20] >> 4;
    int64_t samples = (int64_t)(b[21] & 0xf) << 32 | (int64_t)b[22] << 24 | b[23] << 16 | b[24] << 8 | b[25];
    if (rate < SL_SOUND_LEAST_RATE || rate > SL_SOUND_MOST_RATE)
        return sl_fail(SLUICE_ERR_INPUT, "%s, byte 18: %" PRId64 " samples a second; rates of %d to %d are read",
                       sl_show(s->path).text, rate, SL_SOUND_LEAST_RATE, SL_SOUND_MOST_RATE);
    if (samples == 0)
        return sl_fail(SLUICE_ERR_INPUT, "%s, byte 21: it does not say how many samples it has", sl_show(s->path).text);
    *out = (sl_sound_info){ .rate = rate, .channels = (b[20] >> 1 & 7) + 1, .samples = samples };
    return SLUICE_OK;
}

/* ---- any header ---- */

/* What files of other kinds begin with, to say so. */
static const char *kind_of(const uint8_t *head, size_t bytes)
{
    static const struct {
        size_t at, bytes;
        const char *magic, *name;
    } kinds[] = { { 0, 3, "ID3", "an MP3 file" },           { 0, 4, "OggS", "an Ogg file" },
                  { 0, 4, "FORM", "an AIFF file" },         { 0, 4, "RIFX", "a WAV file of big-endian numbers" },
                  { 0, 4, "RF64", "a WAV file of 64 bit" }, { 0, 4, "RIFF", "a RIFF file without sound" },
                  { 4, 4, "ftyp", "an MP4 file" },          { 0, 4, "NIST", "a NIST SPHERE file" },
                  { 0, 2, "\xff\xfb", "an MP3 file" },      { 0, 2, "\x1f\x8b", "compressed by gzip" } };
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (bytes >= kinds[i].at + kinds[i].bytes && memcmp(head + kinds[i].at, kinds[i].magic, kinds[i].bytes) == 0)
            return kinds[i].name;
    return "something else";
}

static sluice_status look(const sound_source *s, sl_sound_info *out)
{
    uint8_t head[12];
    size_t there = s->bytes < sizeof head ? (size_t)s->bytes : sizeof head;
    if (sl_sound_formats()[0] == '\0')
        return sl_fail(SLUICE_ERR_INPUT,
                       "%s: this sluice was built without libsndfile, which reads sounds; install libsndfile1-dev and "
                       "build again",
                       sl_show(s->path).text);
    if (s->bytes == 0) return sl_fail(SLUICE_ERR_INPUT, "%s is empty", sl_show(s->path).text);
    SL_TRY(read_at(s, 0, head, there));
    bool riff = memcmp(head, "RIFF", there < 4 ? there : 4) == 0;
    bool wav = riff && (there < sizeof head || memcmp(head + 8, "WAVE", 4) == 0);
    bool flac = there >= 4 && memcmp(head, "fLaC", 4) == 0;
    if (!wav && !flac)
        return sl_fail(SLUICE_ERR_INPUT, "%s, byte 0: neither a WAV nor a FLAC file, but %s", sl_show(s->path).text,
                       kind_of(head, there));
    if (there < sizeof head)
        return sl_fail(SLUICE_ERR_INPUT, "%s, byte %zu: the file ends in its header", sl_show(s->path).text, there);
    SL_TRY(wav ? look_wav(s, out) : look_flac(s, out));
    if (out->samples <= SL_SOUND_MOST_SAMPLES) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_INPUT, "%s: %" PRId64 " samples; sounds of at most %" PRId64 " are read",
                   sl_show(s->path).text, out->samples, SL_SOUND_MOST_SAMPLES);
}

sluice_status sl_sound_look(const char *path, sl_sound_info *out)
{
    sl_file file;
    sound_source s = { .path = path, .file = &file };
    SL_TRY(sl_file_open(path, SL_READ, &file));
    sluice_status st = sl_file_size(&file, &s.bytes);
    if (st == SLUICE_OK) st = look(&s, out);
    sl_file_close(&file);
    return st;
}

/* ---- samples ---- */

#ifdef SLUICE_SOUND

/* A file in memory as libsndfile reads it. */
typedef struct sound_view {
    const uint8_t *bytes;
    sf_count_t size, at;
} sound_view;

static sf_count_t view_length(void *user)
{
    return ((sound_view *)user)->size;
}

static sf_count_t view_seek(sf_count_t offset, int whence, void *user)
{
    sound_view *v = user;
    sf_count_t from = whence == SEEK_SET ? 0 : whence == SEEK_CUR ? v->at : v->size;
    if (offset < -from || offset > v->size - from) return -1;
    return v->at = from + offset;
}

static sf_count_t view_read(void *out, sf_count_t count, void *user)
{
    sound_view *v = user;
    if (count > v->size - v->at) count = v->size - v->at;
    if (count <= 0) return 0;
    memcpy(out, v->bytes + v->at, (size_t)count);
    v->at += count;
    return count;
}

static sf_count_t view_write(const void *data, sf_count_t count, void *user)
{
    (void)data, (void)count, (void)user;
    return 0;
}

static sf_count_t view_tell(void *user)
{
    return ((sound_view *)user)->at;
}

static sluice_status grow(sl_sound *s, int64_t samples)
{
    size_t needed = (size_t)samples * sizeof *s->samples, capacity = 2 * s->capacity;
    if (needed <= s->capacity) return SLUICE_OK;
    if (capacity < needed) capacity = needed;
    float *grown = sl_realloc(s->samples, s->capacity, capacity, "samples of a sound");
    if (grown == NULL) return SLUICE_ERR_NO_MEMORY;
    s->samples = grown;
    s->capacity = capacity;
    return SLUICE_OK;
}

static sluice_status fail_sample(const char *path, const sl_sound_info *i, int64_t sample, float value)
{
    char byte[40] = "";
    if (i->block > 0) snprintf(byte, sizeof byte, ", byte %" PRIu64, i->data + (uint64_t)sample * (uint64_t)i->block);
    return sl_fail(SLUICE_ERR_INPUT, "%s%s: sample %" PRId64 " is %s, which is no loudness", sl_show(path).text, byte,
                   sample, isnan(value) ? "not a number" : "infinite");
}

/* `count` samples of all channels behind the `done` that are there. */
static sluice_status keep_block(const char *path, const float *block, int64_t done, int64_t count, sl_sound *out)
{
    const int channels = out->info.channels;
    SL_TRY(grow(out, done + count));
    for (int64_t i = 0; i < count; i++) {
        float sum = 0;
        for (int c = 0; c < channels; c++) sum += block[i * channels + c];
        out->samples[done + i] = sum / (float)channels;
        if (!isfinite(sum)) return fail_sample(path, &out->info, done + i, sum);
    }
    return SLUICE_OK;
}

/* The header was checked; damage behind it is found here. */
static sluice_status read_samples(const char *path, SNDFILE *file, const sound_view *view, sl_sound *out)
{
    float *block = sl_alloc_array(BLOCK_SAMPLES, sizeof *block, "samples of a sound");
    sluice_status st = block != NULL ? SLUICE_OK : SLUICE_ERR_NO_MEMORY;
    int64_t done = 0, each = BLOCK_SAMPLES / out->info.channels;
    while (st == SLUICE_OK && done < out->info.samples) {
        int64_t left = out->info.samples - done, count = sf_readf_float(file, block, left < each ? left : each);
        if (count <= 0)
            st = sl_fail(SLUICE_ERR_INPUT,
                         "%s, before byte %" PRId64 ": %" PRId64 " of its %" PRId64 " samples can be read: %s",
                         sl_show(path).text, (int64_t)view->at, done, out->info.samples, sf_strerror(file));
        else
            st = keep_block(path, block, done, count, out);
        done += count;
    }
    sl_free(block);
    return st;
}

static sluice_status decode(const char *path, const uint8_t *file, size_t bytes, sl_sound *out)
{
    SF_VIRTUAL_IO io = { view_length, view_seek, view_read, view_write, view_tell };
    sound_view view = { file, (sf_count_t)bytes, 0 };
    SF_INFO info = { .format = 0 };
    SNDFILE *opened = sf_open_virtual(&io, SFM_READ, &info, &view);
    if (opened == NULL)
        return sl_fail(SLUICE_ERR_INPUT, "%s, before byte %" PRId64 ": libsndfile cannot read it: %s",
                       sl_show(path).text, (int64_t)view.at, sf_strerror(NULL));
    sluice_status st = SLUICE_OK;
    if (info.channels != out->info.channels || info.samplerate != out->info.rate)
        st = sl_fail(SLUICE_ERR_INPUT, "%s: its header says two things about channels and rate", sl_show(path).text);
    if (st == SLUICE_OK) st = read_samples(path, opened, &view, out);
    sf_close(opened);
    return st;
}

#else

static sluice_status decode(const char *path, const uint8_t *file, size_t bytes, sl_sound *out)
{
    (void)path, (void)file, (void)bytes, (void)out;
    return SLUICE_ERR_INPUT; /* look has refused it */
}

#endif

sluice_status sl_sound_decode(const char *path, const uint8_t *file, size_t bytes, sl_sound *out)
{
    sound_source s = { .path = path, .memory = file, .bytes = bytes };
    SL_TRY(look(&s, &out->info));
    return decode(path, file, bytes, out);
}

sluice_status sl_sound_read(const char *path, sl_sound *out)
{
    char *file;
    size_t bytes;
    SL_TRY(sl_file_read_all(path, SL_SOUND_MOST_BYTES, &file, &bytes));
    sluice_status st = sl_sound_decode(path, (const uint8_t *)file, bytes, out);
    sl_free(file);
    return st;
}

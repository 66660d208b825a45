/* utterances.c: utterances: sound files as rows of loudness in bands of pitches (log_mel.h), and what is said as characters.
 *
 * Lists and headers are read once, at the start, so that every length is known before the first step; files are read and
 * transformed each time they are drawn. A class is a character: 0 is CTC's blank, 1 the first of the vocabulary.
 *
 * What becomes of a sample in an epoch follows from the seed, the epoch and the sample's number alone, as with images. */
#include "data/utterances.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/bytes.h"
#include "core/grow.h"
#include "core/quote.h"
#include "core/rng.h"
#include "core/stop.h"
#include "core/thread.h"
#include "core/utf8.h"
#include "data/log_mel.h"
#include "format/sound_file.h"

#define CODE_POINT_COUNT 0x110000
#define MOST_ROWS        (1 << 20)
#define POLLED_FILES     256
#define SUMMED_FILES     1024 /* whose sums are kept at a time */
#define LEAST_VARIANCE   1e-5
#define DECODE_BYTES     ((uint64_t)16 << 20) /* that a thread takes for a sound of a minute */
#define SPLITS           2

enum { COLUMN_X, COLUMN_LENGTHS, COLUMN_LABELS, COLUMN_COUNT };

/* Elements of a sample's random stream: two for each mask. */
enum { DRAW_TIME = 0, DRAW_FREQUENCY = 1024 };

typedef struct speech {
    sluice_data base;
    uint64_t seed;
    bool shuffle;
    sl_arena arena; /* owns paths and texts */
    uint64_t text_bytes;
    sl_utterance_list lists[SPLITS];
    sl_vocabulary vocabulary; /* code points owned */
    const char *whose;        /* its characters are, for messages */
    char (*names)[5];         /* owned: of each character, as UTF-8 */
    int32_t *labels;          /* owned: of all utterances */
    int64_t label_total, label_capacity;
    int64_t rate, stride; /* stride: rows for each frame of the model's output */
    sl_log_mel *mel;      /* owned */
    int64_t bands, rows, most_labels;
    sl_data_column columns[COLUMN_COUNT];
    int normalize;           /* sl_normalize_choice; not AUTO */
    float *mean, *deviation; /* owned: of each band; NULL: of the utterance, or none */
    int64_t time_masks, time_width, frequency_masks, frequency_width;
    char identity[65];
    uint64_t held_bytes;
    /* for what is said */
    int64_t too_long;
    char first_long[256];
} speech;

/* One thread's memory while it fills rows; zero-initialise. */
typedef struct speech_scratch {
    sl_sound sound;
    void *transform; /* owned */
    float *rows;     /* owned: [rows, bands] */
} speech_scratch;

/* ---- characters ---- */

static void mark(uint8_t *seen, const char *text)
{
    uint32_t c;
    for (size_t left = strlen(text); left > 0;) {
        int length = sl_utf8_decode((const unsigned char *)text, left, &c);
        if (length == 0) return; /* lists and settings are checked UTF-8 */
        seen[c] = 1;
        text += length;
        left -= (size_t)length;
    }
}

static sluice_status number_characters(speech *s, const uint8_t *seen)
{
    int32_t size = 0, id = 0;
    for (int32_t c = 0; c < CODE_POINT_COUNT; c++) size += seen[c];
    uint32_t *points = sl_alloc_array((size_t)size, sizeof *points, "characters of transcripts");
    if (points == NULL) return SLUICE_ERR_NO_MEMORY;
    for (int32_t c = 0; c < CODE_POINT_COUNT; c++)
        if (seen[c]) points[id++] = (uint32_t)c;
    s->vocabulary = (sl_vocabulary){ SL_TEXT_CHARACTERS, size, points };
    return SLUICE_OK;
}

/* Settings and weights may both say which characters there are. */
static sluice_status check_kept(const speech *s, const sl_vocabulary *kept)
{
    size_t bytes = (size_t)kept->size * sizeof *kept->code_points;
    if (s->vocabulary.size == kept->size && memcmp(s->vocabulary.code_points, kept->code_points, bytes) == 0)
        return SLUICE_OK;
    return sl_fail(SLUICE_ERR_USAGE,
                   "data.characters has %" PRId32 " characters, and the model was trained on %" PRId32
                   " that are not the same; leave it out",
                   s->vocabulary.size, kept->size);
}

static sluice_status copy_kept(speech *s, const sl_vocabulary *kept)
{
    uint32_t *points = sl_alloc_array((size_t)kept->size, sizeof *points, "characters of transcripts");
    if (points == NULL) return SLUICE_ERR_NO_MEMORY;
    memcpy(points, kept->code_points, (size_t)kept->size * sizeof *points);
    s->vocabulary = (sl_vocabulary){ SL_TEXT_CHARACTERS, kept->size, points };
    s->whose = "the model was trained on";
    return SLUICE_OK;
}

/* Those of a model that was trained before, those of the settings, or those of the transcripts to train on. */
static sluice_status find_characters(speech *s, const sl_data_options *o)
{
    if (o->kept != NULL && !sl_given(o->characters)) return copy_kept(s, o->kept);
    uint8_t *seen = sl_alloc(CODE_POINT_COUNT, "characters of transcripts");
    if (seen == NULL) return SLUICE_ERR_NO_MEMORY;
    if (sl_given(o->characters)) mark(seen, o->characters);
    for (int64_t i = 0; !sl_given(o->characters) && i < s->lists[0].count; i++) mark(seen, s->lists[0].items[i].text);
    sluice_status st = number_characters(s, seen);
    s->whose = sl_given(o->characters) ? "of data.characters" : "of the transcripts to train on";
    sl_free(seen);
    if (st == SLUICE_OK && o->kept != NULL) st = check_kept(s, o->kept);
    return st;
}

static sluice_status name_characters(speech *s)
{
    s->names = sl_alloc_array((size_t)s->vocabulary.size, sizeof *s->names, "characters of transcripts");
    if (s->names == NULL) return SLUICE_ERR_NO_MEMORY;
    for (int32_t i = 0; i < s->vocabulary.size; i++)
        s->names[i][sl_vocabulary_decode(&s->vocabulary, i, s->names[i])] = '\0';
    return SLUICE_OK;
}

/* Labels are one more than ids: the blank is 0. */
static sluice_status encode(speech *s, const sl_utterance_list *l, sl_utterance *u)
{
    size_t bytes = strlen(u->text);
    int64_t count;
    SL_TRY(SL_GROW(s->labels, s->label_capacity, s->label_total + (int64_t)bytes, 4096, "characters of transcripts"));
    int32_t *out = s->labels + s->label_total;
    if (sl_vocabulary_encode_of(&s->vocabulary, s->whose, u->text, bytes, out, (int64_t)bytes, &count) != SLUICE_OK)
        return sl_fail(SLUICE_ERR_INPUT, "%s, line %" PRId64 ": %s", sl_show(l->path).text, u->line, sluice_error());
    for (int64_t i = 0; i < count; i++) out[i]++;
    u->labels = s->label_total;
    u->label_count = (int32_t)count;
    s->label_total += count;
    return SLUICE_OK;
}

/* ---- headers ---- */

static int64_t frames_of(const speech *s, int64_t rows)
{
    return sl_ceil_div(rows, s->stride);
}

/* Frames that CTC needs for its labels: one each, and one between equal neighbours. */
static int64_t frames_needed(const speech *s, const sl_utterance *u)
{
    int64_t needed = u->label_count;
    for (int32_t i = 1; i < u->label_count; i++) needed += s->labels[u->labels + i] == s->labels[u->labels + i - 1];
    return needed;
}

static sluice_status check_rate(speech *s, const sl_utterance *u, int64_t rate, const char *first)
{
    if (rate == s->rate) return SLUICE_OK;
    if (first == NULL)
        return sl_fail(SLUICE_ERR_INPUT,
                       "%s has %" PRId64 " samples a second, and data.sample_rate is %" PRId64
                       "; sounds are not resampled: convert it",
                       sl_show(u->path).text, rate, s->rate);
    return sl_fail(SLUICE_ERR_INPUT,
                   "%s has %" PRId64 " samples a second, and %s, the first of the list, has %" PRId64
                   "; sounds are not resampled: convert one of them",
                   sl_show(u->path).text, rate, sl_show(first).text, s->rate);
}

static sluice_status check_length(const speech *s, const sl_utterance_list *l, const sl_utterance *u)
{
    if (u->rows == 0)
        return sl_fail(SLUICE_ERR_INPUT,
                       "%s has %" PRId64 " samples, %.0f ms, and %" PRId64 " are the least that can be looked at",
                       sl_show(u->path).text, u->samples, 1e3 * (double)u->samples / (double)s->rate,
                       sl_log_mel_window(s->mel));
    if (frames_needed(s, u) <= frames_of(s, u->rows)) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_INPUT,
                   "%s, line %" PRId64 ": the %" PRId32 " characters of %s need %" PRId64
                   " frames, one more between equal neighbours, and %s has %" PRId64 " of %" PRId64
                   " ms: is it the right transcript? A smaller model.frame_stride gives more",
                   sl_show(l->path).text, u->line, u->label_count, sl_quote(u->text).text, frames_needed(s, u),
                   sl_show(u->path).text, frames_of(s, u->rows), 10 * s->stride);
}

static void note_long(speech *s, const sl_utterance *u)
{
    if (s->too_long++ == 0)
        snprintf(s->first_long, sizeof s->first_long, "%.200s has %.1f s", sl_show(u->path).text,
                 (double)u->samples / (double)s->rate);
}

/* The first sound says the rate, where nobody does. */
static sluice_status begin_looking(speech *s, const sl_data_options *o, int64_t rate)
{
    if (s->mel != NULL) return SLUICE_OK;
    s->rate = o->sample_rate > 0 ? o->sample_rate : rate;
    return sl_log_mel_create(s->rate, s->bands, &s->mel);
}

/* Lengths of all sounds; those that are too long leave the list. */
static sluice_status look_at(speech *s, const sl_data_options *o, sl_utterance_list *l)
{
    int64_t kept = 0;
    const char *first = o->sample_rate > 0 ? NULL : s->lists[0].items[0].path;
    for (int64_t i = 0; i < l->count; i++) {
        sl_utterance u = l->items[i];
        sl_sound_info info;
        if (i % POLLED_FILES == 0) SL_TRY(sl_stop_poll(o->stop, "reading the data"));
        SL_TRY(sl_sound_look(u.path, &info));
        SL_TRY(begin_looking(s, o, info.rate));
        SL_TRY(check_rate(s, &u, info.rate, first));
        u.samples = info.samples;
        u.rows = sl_log_mel_rows(s->mel, u.samples);
        if (o->max_seconds > 0 && (double)u.samples > o->max_seconds * (double)s->rate) {
            note_long(s, &u);
            continue;
        }
        SL_TRY(encode(s, l, &u));
        SL_TRY(check_length(s, l, &u));
        if (u.rows > s->rows) s->rows = u.rows;
        if (u.label_count > s->most_labels) s->most_labels = u.label_count;
        l->items[kept++] = u;
    }
    l->count = kept;
    if (kept > 0) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_INPUT, "%s: all of its sounds are longer than data.max_seconds, %g; the first: %s",
                   sl_show(l->path).text, o->max_seconds, s->first_long);
}

/* ---- rows ---- */

static void free_scratch(speech_scratch *c)
{
    sl_sound_free(&c->sound);
    sl_free(c->transform);
    sl_free(c->rows);
}

static sluice_status make_scratch(const speech *s, speech_scratch *c)
{
    if (c->rows != NULL) return SLUICE_OK;
    c->transform = sl_alloc(sl_log_mel_scratch_bytes(s->mel), "spectrum of a sound");
    c->rows = sl_alloc_array((size_t)s->rows, (size_t)s->bands * sizeof *c->rows, "rows of a sound");
    return c->transform != NULL && c->rows != NULL ? SLUICE_OK : SLUICE_ERR_NO_MEMORY;
}

/* c->rows of an utterance, as they come from the sound. */
static sluice_status read_rows(const speech *s, const sl_utterance *u, speech_scratch *c)
{
    SL_TRY(make_scratch(s, c));
    SL_TRY(sl_sound_read(u->path, &c->sound));
    if (c->sound.info.samples != u->samples || c->sound.info.rate != s->rate)
        return sl_fail(SLUICE_ERR_INPUT, "%s was changed since the data was opened: it had %" PRId64 " samples",
                       sl_show(u->path).text, u->samples);
    sl_log_mel_run(s->mel, c->sound.samples, u->samples, c->transform, c->rows);
    return SLUICE_OK;
}

/* Each band less its mean over the utterance, divided by its standard deviation. */
static void normalise_utterance(const speech *s, int64_t rows, float *x)
{
    for (int64_t b = 0; b < s->bands; b++) {
        double sum = 0, squares = 0;
        for (int64_t t = 0; t < rows; t++) sum += (double)x[t * s->bands + b];
        double mean = sum / (double)rows;
        for (int64_t t = 0; t < rows; t++) {
            double d = (double)x[t * s->bands + b] - mean;
            squares += d * d;
        }
        double scale = 1 / sqrt(squares / (double)rows + LEAST_VARIANCE);
        for (int64_t t = 0; t < rows; t++) x[t * s->bands + b] = (float)(((double)x[t * s->bands + b] - mean) * scale);
    }
}

static void normalise(const speech *s, int64_t rows, float *x)
{
    if (s->normalize == SL_NORMALIZE_UTTERANCE) normalise_utterance(s, rows, x);
    if (s->mean == NULL) return;
    for (int64_t t = 0; t < rows; t++)
        for (int64_t b = 0; b < s->bands; b++)
            x[t * s->bands + b] = (x[t * s->bands + b] - s->mean[b]) / s->deviation[b];
}

/* Of `length` places up to `most` in a row, at a random place. */
static void draw_mask(const sl_rng *r, uint64_t element, int64_t most, int64_t length, int64_t *first, int64_t *count)
{
    *count = (int64_t)sl_rng_below(r, element, (uint64_t)most + 1);
    if (*count > length) *count = length;
    *first = (int64_t)sl_rng_below(r, element + 1, (uint64_t)(length - *count) + 1);
}

/* Some stretches of time and some bands are silenced to the mean (Park et al., SpecAugment, 2019). */
static void mask(const speech *s, const sl_rng *r, int64_t rows, float *x)
{
    int64_t first, count;
    for (int64_t i = 0; i < s->time_masks; i++) {
        draw_mask(r, (uint64_t)(DRAW_TIME + 2 * i), s->time_width, rows, &first, &count);
        memset(x + first * s->bands, 0, (size_t)(count * s->bands) * sizeof *x);
    }
    for (int64_t i = 0; i < s->frequency_masks; i++) {
        draw_mask(r, (uint64_t)(DRAW_FREQUENCY + 2 * i), s->frequency_width, s->bands, &first, &count);
        for (int64_t t = 0; t < rows; t++) memset(x + t * s->bands + first, 0, (size_t)count * sizeof *x);
    }
}

/* r: what the utterance is changed by; NULL: nothing. */
static sluice_status write_x(const speech *s, const sl_utterance *u, const sl_rng *r, speech_scratch *c, float *out)
{
    size_t used = (size_t)(u->rows * s->bands);
    SL_TRY(read_rows(s, u, c));
    normalise(s, u->rows, c->rows);
    if (r != NULL) mask(s, r, u->rows, c->rows);
    memcpy(out, c->rows, used * sizeof *out);
    memset(out + used, 0, ((size_t)(s->rows * s->bands) - used) * sizeof *out);
    return SLUICE_OK;
}

static sluice_status write_sample(const speech *s, const sl_utterance *u, const sl_rng *r, const sl_data_field *fields,
                                  int field_count, int64_t row, speech_scratch *c)
{
    for (int f = 0; f < field_count; f++) {
        int column = sl_data_find_column(s->columns, COLUMN_COUNT, fields[f].name);
        int32_t *out = sl_data_row(&fields[f], row);
        if (column == COLUMN_X) SL_TRY(write_x(s, u, r, c, sl_data_row(&fields[f], row)));
        if (column == COLUMN_LENGTHS) out[0] = (int32_t)frames_of(s, u->rows);
        if (column != COLUMN_LABELS) continue;
        memcpy(out, s->labels + u->labels, (size_t)u->label_count * sizeof *out);
        for (int64_t i = u->label_count; i < s->most_labels; i++) out[i] = -1;
    }
    return SLUICE_OK;
}

/* A sound without frames and labels, whose loss is 0. */
static void write_padding(const speech *s, const sl_data_field *fields, int field_count, int64_t row)
{
    for (int f = 0; f < field_count; f++) {
        bool labels = sl_data_find_column(s->columns, COLUMN_COUNT, fields[f].name) == COLUMN_LABELS;
        memset(sl_data_row(&fields[f], row), labels ? 0xff : 0, (size_t)fields[f].row_elements * 4);
    }
}

static sluice_status speech_fill(sluice_data *d, uint64_t index, int64_t rows, const sl_data_field *fields,
                                 int field_count)
{
    const speech *s = (const speech *)d;
    speech_scratch c = { .rows = NULL };
    sluice_status st = SLUICE_OK;
    uint64_t first;
    SL_TRY(sl_data_match("speech", s->columns, COLUMN_COUNT, fields, field_count));
    SL_TRY(sl_data_first_sample(index, rows, &first));
    for (int64_t i = 0; st == SLUICE_OK && i < rows; i++) {
        sl_data_place place = sl_data_locate(s->seed, s->shuffle, s->lists[0].count, first + (uint64_t)i);
        sl_rng r = sl_rng_stream(s->seed, SL_RNG_AUGMENT, place.epoch, (uint32_t)place.sample, 0);
        st = write_sample(s, &s->lists[0].items[place.sample], &r, fields, field_count, i, &c);
    }
    free_scratch(&c);
    return st;
}

static sluice_status speech_fill_eval(sluice_data *d, sl_data_split split, int64_t first, int64_t rows,
                                      const sl_data_field *fields, int field_count, int64_t *valid)
{
    const speech *s = (const speech *)d;
    const sl_utterance_list *l = &s->lists[split];
    speech_scratch c = { .rows = NULL };
    sluice_status st = SLUICE_OK;
    SL_TRY(sl_data_match("speech", s->columns, COLUMN_COUNT, fields, field_count));
    if (first < 0 || first >= l->count)
        return sl_fail(SLUICE_ERR_USAGE,
                       "the speech data has %" PRId64 " samples to evaluate, number %" PRId64 " was asked for",
                       l->count, first);
    int64_t real = l->count - first < rows ? l->count - first : rows;
    for (int64_t i = 0; st == SLUICE_OK && i < real; i++)
        st = write_sample(s, &l->items[first + i], NULL, fields, field_count, i, &c);
    for (int64_t i = real; st == SLUICE_OK && i < rows; i++) write_padding(s, fields, field_count, i);
    free_scratch(&c);
    if (st == SLUICE_OK) *valid = real;
    return st;
}

/* ---- the mean of all ---- */

/* Sums of some utterances, each task's own. */
typedef struct sum_job {
    const speech *s;
    int64_t first;
    double *sums; /* [SUMMED_FILES, 2, bands]: of rows and of their squares */
} sum_job;

static sluice_status sum_one(void *context, int64_t task, void *memory)
{
    const sum_job *j = context;
    const speech *s = j->s;
    const sl_utterance *u = &s->lists[0].items[j->first + task];
    double *sums = j->sums + task * 2 * s->bands;
    speech_scratch c = { .rows = NULL };
    (void)memory;
    memset(sums, 0, 2 * (size_t)s->bands * sizeof *sums);
    sluice_status st = read_rows(s, u, &c);
    for (int64_t i = 0; st == SLUICE_OK && i < u->rows * s->bands; i++) {
        double x = (double)c.rows[i];
        sums[i % s->bands] += x;
        sums[s->bands + i % s->bands] += x * x;
    }
    free_scratch(&c);
    return st;
}

static void finish_means(speech *s, const double *all, double rows)
{
    for (int64_t b = 0; b < s->bands; b++) {
        double mean = all[b] / rows, variance = all[s->bands + b] / rows - mean * mean;
        s->mean[b] = (float)mean;
        s->deviation[b] = (float)sqrt((variance > 0 ? variance : 0) + LEAST_VARIANCE);
    }
}

/* Added up in the order of the list, whichever thread was first. */
static sluice_status sum_all(speech *s, const sl_data_options *o, sl_pool *pool, double *sums, double *all)
{
    double rows = 0;
    const sl_utterance_list *l = &s->lists[0];
    for (int64_t first = 0; first < l->count; first += SUMMED_FILES) {
        int64_t count = l->count - first < SUMMED_FILES ? l->count - first : SUMMED_FILES;
        sum_job j = { s, first, sums };
        SL_TRY(sl_stop_poll(o->stop, "computing the mean of the data"));
        SL_TRY(sl_pool_try(pool, sum_one, &j, count));
        for (int64_t i = 0; i < count; i++) {
            for (int64_t b = 0; b < 2 * s->bands; b++) all[b] += sums[i * 2 * s->bands + b];
            rows += (double)l->items[first + i].rows;
        }
    }
    finish_means(s, all, rows);
    return SLUICE_OK;
}

static sluice_status compute_means(speech *s, const sl_data_options *o)
{
    sl_pool *pool = NULL;
    double *sums = sl_alloc_array(SUMMED_FILES + 1, 2 * (size_t)s->bands * sizeof *sums, "sums of sounds");
    s->mean = sl_alloc_array((size_t)s->bands, sizeof *s->mean, "means of bands");
    s->deviation = sl_alloc_array((size_t)s->bands, sizeof *s->deviation, "means of bands");
    sluice_status st = sums != NULL && s->mean != NULL && s->deviation != NULL ? SLUICE_OK : SLUICE_ERR_NO_MEMORY;
    if (st == SLUICE_OK) st = sl_pool_create(o->threads > 0 ? o->threads : sl_cpu_count(), &pool);
    if (st == SLUICE_OK) st = sum_all(s, o, pool, sums, sums + (size_t)SUMMED_FILES * 2 * (size_t)s->bands);
    sl_pool_destroy(pool);
    sl_free(sums);
    return st;
}

/* ---- the other questions ---- */

static void speech_destroy(sluice_data *d)
{
    speech *s = (speech *)d;
    for (int i = 0; i < SPLITS; i++) sl_free(s->lists[i].items);
    sl_free((void *)s->vocabulary.code_points);
    sl_free(s->names);
    sl_free(s->labels);
    sl_free(s->mean);
    sl_free(s->deviation);
    sl_log_mel_destroy(s->mel);
    sl_arena_free(&s->arena);
    sl_free(s);
}

static int64_t speech_samples(const sluice_data *d, sl_data_split split)
{
    return ((const speech *)d)->lists[split].count;
}

static uint64_t speech_memory(const sluice_data *d)
{
    return ((const speech *)d)->held_bytes;
}

static void speech_identity(const sluice_data *d, char sha256[65])
{
    memcpy(sha256, ((const speech *)d)->identity, 65);
}

static int64_t speech_classes(const sluice_data *d)
{
    return ((const speech *)d)->vocabulary.size + 1;
}

static const char *speech_class_name(const sluice_data *d, int64_t i)
{
    const speech *s = (const speech *)d;
    return i > 0 && i <= s->vocabulary.size ? s->names[i - 1] : NULL;
}

static void speech_size(const sluice_data *d, sl_speech_size *out)
{
    const speech *s = (const speech *)d;
    *out = (sl_speech_size){ s->rows, s->bands, s->most_labels };
}

static const sl_vocabulary *speech_characters(const sluice_data *d)
{
    return &((const speech *)d)->vocabulary;
}

static double minutes(const speech *s, int split)
{
    double samples = 0;
    for (int64_t i = 0; i < s->lists[split].count; i++) samples += (double)s->lists[split].items[i].samples;
    return samples / (double)s->rate / 60;
}

static void speech_say(const sluice_data *d, const sl_log *log)
{
    const speech *s = (const speech *)d;
    sl_log_write(log, SLUICE_LOG_NOTE,
                 "data: %" PRId64 " utterances to train on, %.1f minutes, and %" PRId64 " to validate, %.1f; %" PRId64
                 " samples a second, %" PRId64 " mel bands, at most %" PRId64 " rows of 10 ms and %" PRId64
                 " characters, of %" PRId32 " different ones",
                 s->lists[0].count, minutes(s, 0), s->lists[1].count, minutes(s, 1), s->rate, s->bands, s->rows,
                 s->most_labels, s->vocabulary.size);
    if (s->too_long > 0)
        sl_log_write(log, SLUICE_LOG_WARNING,
                     "data: %" PRId64 " utterance%s longer than data.max_seconds and left out; the first: %s",
                     s->too_long, s->too_long == 1 ? " is" : "s are", s->first_long);
}

static const sl_data_ops speech_ops = {
    .name = "speech",
    .destroy = speech_destroy,
    .samples = speech_samples,
    .fill = speech_fill,
    .fill_eval = speech_fill_eval,
    .memory_bytes = speech_memory,
    .identity = speech_identity,
    .effort = SL_FILL_SLOW,
    .classes = speech_classes,
    .class_name = speech_class_name,
    .speech = speech_size,
    .characters = speech_characters,
    .say = speech_say,
};

/* ---- opening ---- */

/* Names and lengths: reading every file would take as long as an epoch. */
static void identify(speech *s)
{
    sl_sha256 h;
    sl_identity_begin(&h,
                      "speech %" PRId64 " + %" PRId64 ", rate %" PRId64 ", bands %" PRId64 ", rows %" PRId64
                      ", stride %" PRId64 ", normalize %d, masks %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64
                      ", shuffle %d, seed %" PRIu64,
                      s->lists[0].count, s->lists[1].count, s->rate, s->bands, s->rows, s->stride, s->normalize,
                      s->time_masks, s->time_width, s->frequency_masks, s->frequency_width, s->shuffle, s->seed);
    sl_sha256_update(&h, s->vocabulary.code_points, (size_t)s->vocabulary.size * sizeof *s->vocabulary.code_points);
    if (s->mean != NULL) sl_sha256_update(&h, s->mean, (size_t)s->bands * sizeof *s->mean);
    for (int i = 0; i < SPLITS; i++)
        for (int64_t k = 0; k < s->lists[i].count; k++) {
            const sl_utterance *u = &s->lists[i].items[k];
            const char *name = strrchr(u->path, '/');
            name = name != NULL ? name + 1 : u->path; /* folders move */
            sl_sha256_update(&h, name, strlen(name) + 1);
            sl_sha256_update(&h, u->text, strlen(u->text) + 1);
            sl_sha256_update(&h, &u->samples, sizeof u->samples);
        }
    sl_identity_end(&h, s->identity);
}

static sluice_status split_share(speech *s, double validation)
{
    sl_utterance_list *all = &s->lists[0], *other = &s->lists[1];
    int64_t train;
    SL_TRY(sl_data_train_count(all->count, validation, &train));
    if (train < 1)
        return sl_fail(SLUICE_ERR_USAGE, "data.validation %g leaves nothing of the utterances to train on", validation);
    other->capacity = other->count = all->count - train;
    if (other->count == 0) return SLUICE_OK;
    other->items = sl_alloc_array((size_t)other->count, sizeof *other->items, "list of sounds");
    if (other->items == NULL) return SLUICE_ERR_NO_MEMORY;
    memcpy(other->items, all->items + train, (size_t)other->count * sizeof *other->items);
    all->count = train;
    return SLUICE_OK;
}

static sluice_status read_lists(speech *s, const sl_data_options *o)
{
    SL_TRY(sl_utterances_find(o, s->lists[0].path, s->lists[1].path));
    for (int i = 0; i < SPLITS; i++)
        if (s->lists[i].path[0] != '\0') SL_TRY(sl_utterances_read(o, &s->arena, &s->lists[i], &s->text_bytes));
    SL_TRY(find_characters(s, o));
    SL_TRY(name_characters(s));
    for (int i = 0; i < SPLITS; i++)
        if (s->lists[i].count > 0) SL_TRY(look_at(s, o, &s->lists[i]));
    if (s->rows > MOST_ROWS)
        return sl_fail(SLUICE_ERR_INPUT,
                       "an utterance has %" PRId64
                       " rows of 10 ms; at most %d are read: cut it, or set data.max_seconds",
                       s->rows, MOST_ROWS);
    return s->lists[1].path[0] == '\0' ? split_share(s, o->validation) : SLUICE_OK;
}

static sluice_status load(speech *s, const sl_data_options *o)
{
    SL_TRY(read_lists(s, o));
    s->columns[COLUMN_X] = (sl_data_column){ "x", SLUICE_F32, s->rows * s->bands };
    s->columns[COLUMN_LENGTHS] = (sl_data_column){ "lengths", SLUICE_I32, 1 };
    s->columns[COLUMN_LABELS] = (sl_data_column){ "labels", SLUICE_I32, s->most_labels };
    if (s->normalize == SL_NORMALIZE_COMPUTED) SL_TRY(compute_means(s, o));
    s->held_bytes =
        sizeof *s + s->text_bytes + (uint64_t)s->label_capacity * sizeof *s->labels +
        (uint64_t)(o->threads > 0 ? o->threads : 1) * (DECODE_BYTES + (uint64_t)(s->rows * s->bands) * sizeof(float));
    for (int i = 0; i < SPLITS; i++) s->held_bytes += (uint64_t)s->lists[i].capacity * sizeof(sl_utterance);
    identify(s);
    return SLUICE_OK;
}

sluice_status sl_data_speech(const sl_data_options *o, sluice_data **out)
{
    speech *s = sl_alloc(sizeof *s, "speech");
    if (s == NULL) return SLUICE_ERR_NO_MEMORY;
    sl_arena_init(&s->arena, "transcripts");
    s->base.ops = &speech_ops;
    s->seed = (uint64_t)o->seed;
    s->shuffle = o->shuffle;
    s->bands = o->mels > 0 ? o->mels : 80;
    s->stride = o->frame_stride > 0 ? o->frame_stride : 1;
    s->normalize = o->normalize == SL_NORMALIZE_AUTO ? SL_NORMALIZE_UTTERANCE : o->normalize;
    s->time_masks = o->time_masks;
    s->time_width = o->time_mask_width;
    s->frequency_masks = o->frequency_masks;
    s->frequency_width = o->frequency_mask_width;
    sluice_status st = load(s, o);
    if (st != SLUICE_OK) {
        speech_destroy(&s->base);
        return st;
    }
    *out = &s->base;
    return SLUICE_OK;
}

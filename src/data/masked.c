/* masked.c: tokens that a model is to guess: what BERT learns from.
 *
 * A sample is a window of text or of token files, read by the kind that this one wraps, between the tokens that the tokenizer puts around a
 * text ([CLS] and [SEP]). A share of the window's tokens is chosen, the same number in every window without special tokens. Eight in ten of
 * them are replaced by [MASK], one in ten by another token of the vocabulary, and one stays. They are the targets; everything else is -1.
 *
 * What is chosen follows from the seed and the number of the sample in the endless sequence: another choice in every epoch, the same on any
 * number of ranks and after an interruption. In evaluation it follows from the number of the window alone, so that losses of two moments,
 * and of two runs, can be compared. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "core/alloc.h"
#include "core/quote.h"
#include "core/rng.h"
#include "data/source.h"
#include "format/tokenizer.h"

enum { COLUMN_TOKENS, COLUMN_TARGETS, COLUMN_COUNT };

/* Numbers of one sample are drawn for these. */
enum { DRAW_PLACES, DRAW_FATES, DRAW_TOKENS };

/* Of ten chosen tokens. */
enum { FATES = 10, FATES_MASKED = 8, FATES_REPLACED = 1 };

enum { LEAST_WINDOW = 2 };

typedef struct masked {
    sluice_data base;
    sl_data_column columns[COLUMN_COUNT];
    sluice_data *windows; /* owned: of `window` tokens */
    int64_t context, window;
    double share;
    uint64_t seed;
    sl_ids before, after; /* owned: around a window */
    int32_t mask, vocabulary;
    bool *special;     /* owned: of each id of the tokenizer */
    int32_t *ordinary; /* owned: ids that are not special */
    int64_t ordinary_count;
    int64_t validated;     /* whole windows of the validation split */
    int32_t *ids, *places; /* owned: a window, and where its tokens may be chosen */
} masked;

/* The numbers of one sample: its own in training, those of the window in evaluation. */
typedef struct sample_draw {
    uint64_t seed, number;
    uint32_t part; /* 0: training; 1 + split: evaluation */
} sample_draw;

static sl_rng draw_stream(const sample_draw *d, uint32_t purpose)
{
    return sl_rng_stream(d->seed, SL_RNG_MASKING, d->number, d->part, purpose);
}

/* ---- a row ---- */

/* Special tokens that the text itself spells are nothing to guess. Returns how many places there are. */
static int64_t find_places(const masked *m)
{
    int64_t count = 0;
    for (int64_t i = 0; i < m->window; i++) {
        bool special = m->ids[i] < m->vocabulary && m->special[m->ids[i]];
        if (!special) m->places[count++] = (int32_t)i;
    }
    return count;
}

/* At least one, where there is a place. */
static int64_t count_chosen(const masked *m, int64_t places)
{
    int64_t count = (int64_t)floor(m->share * (double)places + 0.5);
    return count > 0 || places == 0 ? count : 1;
}

/* Moves the chosen places to the front: the first steps of a shuffle, so that every choice is equally likely. */
static void choose_places(const masked *m, const sample_draw *d, int64_t places, int64_t chosen)
{
    sl_rng draw = draw_stream(d, DRAW_PLACES);
    for (int64_t i = 0; i < chosen; i++) {
        int64_t j = i + (int64_t)sl_rng_below(&draw, (uint64_t)i, (uint64_t)(places - i));
        int32_t place = m->places[j];
        m->places[j] = m->places[i];
        m->places[i] = place;
    }
}

static int32_t hide(const masked *m, const sample_draw *d, int64_t i, int32_t id)
{
    sl_rng fates = draw_stream(d, DRAW_FATES), tokens = draw_stream(d, DRAW_TOKENS);
    uint64_t fate = sl_rng_below(&fates, (uint64_t)i, FATES);
    if (fate < FATES_MASKED) return m->mask;
    if (fate >= FATES_MASKED + FATES_REPLACED) return id;
    return m->ordinary[sl_rng_below(&tokens, (uint64_t)i, (uint64_t)m->ordinary_count)];
}

static void write_tokens(const masked *m, const sample_draw *d, int64_t chosen, int32_t *out)
{
    int32_t *window = out + m->before.count;
    memcpy(out, m->before.data, m->before.count * sizeof *out);
    memcpy(window, m->ids, (size_t)m->window * sizeof *out);
    memcpy(window + m->window, m->after.data, m->after.count * sizeof *out);
    for (int64_t i = 0; i < chosen; i++) window[m->places[i]] = hide(m, d, i, m->ids[m->places[i]]);
}

static void write_targets(const masked *m, int64_t chosen, int32_t *out)
{
    for (int64_t i = 0; i < m->context; i++) out[i] = -1;
    for (int64_t i = 0; i < chosen; i++) out[(int64_t)m->before.count + m->places[i]] = m->ids[m->places[i]];
}

/* The window is in m->ids. A row of padding has no targets. */
static void write_row(const masked *m, const sample_draw *d, bool padding, const sl_data_field *fields, int field_count,
                      int64_t row)
{
    int64_t places = find_places(m), chosen = count_chosen(m, places);
    choose_places(m, d, places, chosen);
    for (int f = 0; f < field_count; f++) {
        int32_t *out = sl_data_row(&fields[f], row);
        if (sl_data_is_target(fields[f].name))
            write_targets(m, padding ? 0 : chosen, out);
        else
            write_tokens(m, d, chosen, out);
    }
}

/* ---- windows ---- */

static sl_data_field window_field(const masked *m)
{
    return (sl_data_field){ "tokens", SLUICE_I32, m->window, m->ids };
}

/* A micro-batch of one row has the number of its sample. */
static sluice_status read_window(masked *m, uint64_t number)
{
    const sl_data_field f = window_field(m);
    return m->windows->ops->fill(m->windows, number, 1, &f, 1);
}

static sluice_status read_evaluated(masked *m, sl_data_split split, int64_t number)
{
    const sl_data_field f = window_field(m);
    int64_t valid;
    return m->windows->ops->fill_eval(m->windows, split, number, 1, &f, 1, &valid);
}

/* The windows predict the next token, and the last one may lack some; rows here are always full, and a rest that fills none is not read.
 * Where the last token of a window is there, the one before it has a target. */
static sluice_status count_validated(masked *m)
{
    const sl_data_field f = { "targets", SLUICE_I32, m->window, m->ids };
    int64_t count = m->windows->ops->samples(m->windows, SL_SPLIT_VALIDATION), valid;
    m->validated = count;
    if (count == 0) return SLUICE_OK;
    SL_TRY(m->windows->ops->fill_eval(m->windows, SL_SPLIT_VALIDATION, count - 1, 1, &f, 1, &valid));
    if (m->ids[m->window - LEAST_WINDOW] < 0) m->validated--;
    return SLUICE_OK;
}

/* ---- the data set ---- */

static int64_t masked_samples(const sluice_data *d, sl_data_split split)
{
    const masked *m = (const masked *)d;
    return split == SL_SPLIT_VALIDATION ? m->validated : m->windows->ops->samples(m->windows, split);
}

static sluice_status masked_fill(sluice_data *d, uint64_t index, int64_t rows, const sl_data_field *fields,
                                 int field_count)
{
    masked *m = (masked *)d;
    uint64_t first;
    SL_TRY(sl_data_match("masked text", m->columns, COLUMN_COUNT, fields, field_count));
    SL_TRY(sl_data_first_sample(index, rows, &first));
    for (int64_t r = 0; r < rows; r++) {
        const sample_draw draw = { m->seed, first + (uint64_t)r, 0 };
        SL_TRY(read_window(m, draw.number));
        write_row(m, &draw, false, fields, field_count, r);
    }
    return SLUICE_OK;
}

static sluice_status masked_fill_eval(sluice_data *d, sl_data_split split, int64_t first, int64_t rows,
                                      const sl_data_field *fields, int field_count, int64_t *valid)
{
    masked *m = (masked *)d;
    int64_t count = masked_samples(d, split);
    SL_TRY(sl_data_match("masked text", m->columns, COLUMN_COUNT, fields, field_count));
    if (first < 0 || first >= count)
        return sl_fail(SLUICE_ERR_USAGE,
                       "the masked text has %" PRId64 " windows to evaluate, number %" PRId64 " was asked for%s", count,
                       first, count == 0 ? "; data.validation sets a part aside" : "");
    int64_t real = count - first < rows ? count - first : rows;
    for (int64_t r = 0; r < rows; r++) {
        int64_t window = first + (r < real ? r : real - 1);
        const sample_draw draw = { 0, (uint64_t)window, 1 + (uint32_t)split };
        SL_TRY(read_evaluated(m, split, window));
        write_row(m, &draw, r >= real, fields, field_count, r);
    }
    *valid = real;
    return SLUICE_OK;
}

static sluice_status masked_targets(sluice_data *d, uint64_t index, int64_t rows, int64_t *count)
{
    masked *m = (masked *)d;
    uint64_t first;
    *count = 0;
    SL_TRY(sl_data_first_sample(index, rows, &first));
    for (int64_t r = 0; r < rows; r++) {
        SL_TRY(read_window(m, first + (uint64_t)r));
        *count += count_chosen(m, find_places(m));
    }
    return SLUICE_OK;
}

static void masked_destroy(sluice_data *d)
{
    masked *m = (masked *)d;
    sluice_data_destroy(m->windows);
    sl_ids_free(&m->before);
    sl_ids_free(&m->after);
    sl_free(m->special);
    sl_free(m->ordinary);
    sl_free(m->ids);
    sl_free(m->places);
    sl_free(m);
}

static uint64_t masked_memory(const sluice_data *d)
{
    const masked *m = (const masked *)d;
    return sizeof *m + m->windows->ops->memory_bytes(m->windows) + (uint64_t)m->vocabulary * 5 +
           2 * (uint64_t)m->window * sizeof *m->ids;
}

static void masked_identity(const sluice_data *d, char sha256[65])
{
    const masked *m = (const masked *)d;
    sl_sha256 h;
    char windows[65];
    m->windows->ops->identity(m->windows, windows);
    sl_identity_begin(&h, "masked %.17g context %" PRId64 " seed %" PRIu64 " mask %" PRId32 " of %" PRId64, m->share,
                      m->context, m->seed, m->mask, m->ordinary_count);
    sl_sha256_update(&h, m->before.data, m->before.count * sizeof *m->before.data);
    sl_sha256_update(&h, m->after.data, m->after.count * sizeof *m->after.data);
    sl_sha256_update(&h, windows, sizeof windows);
    sl_identity_end(&h, sha256);
}

static int64_t masked_vocabulary(const sluice_data *d)
{
    return ((const masked *)d)->vocabulary;
}

static void masked_say(const sluice_data *d, const sl_log *log)
{
    const masked *m = (const masked *)d;
    sl_log_write(log, SLUICE_LOG_NOTE,
                 "data: %" PRId64 " windows of %" PRId64 " tokens an epoch to train on, %" PRId64
                 " to validate; %" PRId64 " tokens of a window are to be guessed",
                 masked_samples(d, SL_SPLIT_TRAIN), m->window, m->validated, count_chosen(m, m->window));
}

static const sl_data_ops masked_ops = {
    .name = "masked text",
    .has_tokens = true,
    .destroy = masked_destroy,
    .samples = masked_samples,
    .fill = masked_fill,
    .fill_eval = masked_fill_eval,
    .memory_bytes = masked_memory,
    .identity = masked_identity,
    .targets = masked_targets,
    .vocabulary = masked_vocabulary,
    .say = masked_say,
};

/* ---- opening ---- */

static sluice_status copy_ids(const sl_ids *from, sl_ids *out)
{
    for (size_t i = 0; i < from->count; i++) SL_TRY(sl_ids_add(out, from->data[i]));
    return SLUICE_OK;
}

static sluice_status find_mask(masked *m, const sl_tokenizer *t, const char *path)
{
    static const char *const names[] = { "[MASK]", "<mask>" };
    m->mask = -1;
    for (size_t i = 0; i < sizeof names / sizeof names[0] && m->mask < 0; i++)
        m->mask = sl_tokenizer_find(t, names[i], strlen(names[i]));
    if (m->mask >= 0) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_INPUT,
                   "%s has neither the token [MASK] nor <mask>, which hidden tokens become; take the tokenizer of a "
                   "model that guesses tokens, such as BERT's",
                   sl_show(path).text);
}

static sluice_status sort_tokens(masked *m, const sl_tokenizer *t)
{
    m->vocabulary = sl_tokenizer_size(t);
    m->special = sl_alloc_array((size_t)m->vocabulary, sizeof *m->special, "special tokens");
    m->ordinary = sl_alloc_array((size_t)m->vocabulary, sizeof *m->ordinary, "ordinary tokens");
    if (m->special == NULL || m->ordinary == NULL) return SLUICE_ERR_NO_MEMORY;
    for (int32_t id = 0; id < m->vocabulary; id++) {
        size_t bytes;
        bool there = sl_tokenizer_content(t, id, &bytes) != NULL;
        m->special[id] = id == m->mask || sl_tokenizer_is_special(t, id);
        if (there && !m->special[id]) m->ordinary[m->ordinary_count++] = id;
    }
    return SLUICE_OK;
}

static sluice_status take_tokenizer(masked *m, const sl_tokenizer *t, const char *path)
{
    const sl_ids *before, *after;
    SL_TRY(find_mask(m, t, path));
    SL_TRY(sort_tokens(m, t));
    if (m->ordinary_count == 0)
        return sl_fail(SLUICE_ERR_INPUT, "%s has special tokens alone: there is nothing to guess", sl_show(path).text);
    sl_tokenizer_around(t, &before, &after);
    SL_TRY(copy_ids(before, &m->before));
    SL_TRY(copy_ids(after, &m->after));
    int64_t around = (int64_t)(before->count + after->count);
    m->window = m->context - around;
    if (m->window >= LEAST_WINDOW) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_USAGE, "model.context is %" PRId64 ", of which %" PRId64 " tokens stand around the text",
                   m->context, around);
}

static sluice_status load(masked *m, const sl_data_options *o, int64_t vocabulary, sl_data_open_fn *open)
{
    sl_tokenizer *t;
    SL_TRY(sl_tokenizer_open(o->tokenizer, &t));
    sluice_status st = take_tokenizer(m, t, o->tokenizer);
    sl_tokenizer_close(t);
    SL_TRY(st);
    m->ids = sl_alloc_array((size_t)m->window, sizeof *m->ids, "masked window");
    m->places = sl_alloc_array((size_t)m->window, sizeof *m->places, "masked window");
    if (m->ids == NULL || m->places == NULL) return SLUICE_ERR_NO_MEMORY;
    SL_TRY(open(o, m->window, vocabulary, &m->windows));
    return count_validated(m);
}

sluice_status sl_data_masked(const sl_data_options *o, int64_t context, int64_t vocabulary, sl_data_open_fn *open,
                             sluice_data **out)
{
    if (!(o->masking > 0 && o->masking < 1))
        return sl_fail(SLUICE_ERR_USAGE, "data.masking is %g; give a share above 0 and below 1", o->masking);
    masked *m = sl_alloc(sizeof *m, "masked text");
    if (m == NULL) return SLUICE_ERR_NO_MEMORY;
    m->base.ops = &masked_ops;
    m->columns[COLUMN_TOKENS] = (sl_data_column){ "tokens", SLUICE_I32, context };
    m->columns[COLUMN_TARGETS] = (sl_data_column){ "targets", SLUICE_I32, context };
    m->context = context;
    m->share = o->masking;
    m->seed = (uint64_t)o->seed;
    sluice_status st = load(m, o, vocabulary, open);
    if (st != SLUICE_OK) {
        masked_destroy(&m->base);
        return st;
    }
    *out = &m->base;
    return SLUICE_OK;
}

/* text.c: a text file as windows (data/windows.h) of token ids.
 *
 * The whole file is held as ids of the smallest type that fits its vocabulary: one byte a token for bytes and for most
 * alphabets. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/io.h"
#include "core/stop.h"
#include "data/windows.h"
#include "format/file_kind.h"
#include "format/scan.h"
#include "format/tokenizer.h"

#define MAX_TEXT_BYTES   ((size_t)4 << 30)
#define CODE_POINT_COUNT 0x110000

enum { COLUMN_TOKENS = 0, COLUMN_TARGETS = 1, COLUMN_COUNT = 2 };

typedef struct text {
    sluice_data base;
    sl_data_column columns[COLUMN_COUNT];
    void *ids; /* owned; tokens of id_bytes each: uint8, uint16 or int32 */
    int id_bytes;
    int64_t tokens, train;    /* tokens [0, train) train, [train, tokens) validate */
    sl_windows windows;       /* of the training tokens */
    sl_vocabulary vocabulary; /* code_points owned here; with a tokenizer its unit and size alone */
    const sl_file_kind *kind; /* where it is no plain text; NULL otherwise */
    uint64_t held_bytes;
    char identity[65];
    const int *stop; /* while it is read; NULL: nobody asks */
} text;

/* Between two looks at the request to stop while a large text is gone through. */
#define POLLED_BYTES ((size_t)1 << 24)

/* Ids [first, first + count) widened to 32 bits. */
static void read_ids(const text *t, int64_t first, int64_t count, int32_t *out)
{
    if (t->id_bytes == 1) {
        const uint8_t *ids = (const uint8_t *)t->ids + first;
        for (int64_t i = 0; i < count; i++) out[i] = ids[i];
    } else if (t->id_bytes == 2) {
        const uint16_t *ids = (const uint16_t *)t->ids + first;
        for (int64_t i = 0; i < count; i++) out[i] = ids[i];
    } else {
        memcpy(out, (const int32_t *)t->ids + first, (size_t)count * sizeof *out);
    }
}

static int64_t split_first(const text *t, sl_data_split split)
{
    return split == SL_SPLIT_TRAIN ? 0 : t->train;
}

static int64_t text_samples(const sluice_data *d, sl_data_split split)
{
    const text *t = (const text *)d;
    if (split == SL_SPLIT_TRAIN) return t->windows.windows;
    return sl_windows_of_evaluation(t->tokens - t->train, t->windows.context);
}

static sluice_status text_fill(sluice_data *d, uint64_t index, int64_t rows, const sl_data_field *fields,
                               int field_count)
{
    const text *t = (const text *)d;
    uint64_t first;
    SL_TRY(sl_data_match("text", t->columns, COLUMN_COUNT, fields, field_count));
    SL_TRY(sl_data_first_sample(index, rows, &first));
    for (int64_t r = 0; r < rows; r++) {
        int64_t start = sl_windows_start(&t->windows, first + (uint64_t)r);
        for (int f = 0; f < field_count; f++)
            read_ids(t, start + sl_data_is_target(fields[f].name), t->windows.context, sl_data_row(&fields[f], r));
    }
    return SLUICE_OK;
}

/* One row of an evaluation window that starts at token `start` of a split ending at `end`. Positions without a token
 * repeat the split's last one; targets without a token are ignored, and all of them are in a padding row. */
static void fill_eval_row(const text *t, int64_t start, int64_t end, bool padding, const sl_data_field *f, int64_t row)
{
    int32_t *out = sl_data_row(f, row);
    bool target = sl_data_is_target(f->name);
    int64_t first = start + target, real = end - first < t->windows.context ? end - first : t->windows.context;
    int32_t filler = -1;
    if (target && padding) real = 0;
    read_ids(t, first, real, out);
    if (!target) read_ids(t, end - 1, 1, &filler);
    for (int64_t i = real; i < t->windows.context; i++) out[i] = filler;
}

static sluice_status text_fill_eval(sluice_data *d, sl_data_split split, int64_t first, int64_t rows,
                                    const sl_data_field *fields, int field_count, int64_t *valid)
{
    const text *t = (const text *)d;
    int64_t count = text_samples(d, split), end = split == SL_SPLIT_TRAIN ? t->train : t->tokens;
    SL_TRY(sl_data_match("text", t->columns, COLUMN_COUNT, fields, field_count));
    if (first < 0 || first >= count)
        return sl_fail(SLUICE_ERR_USAGE,
                       "the text has %" PRId64 " windows to evaluate, number %" PRId64 " was asked for%s", count, first,
                       count == 0 ? "; data.validation sets a part aside" : "");
    int64_t real = count - first < rows ? count - first : rows;
    for (int64_t r = 0; r < rows; r++) {
        int64_t window = first + (r < real ? r : real - 1);
        for (int f = 0; f < field_count; f++)
            fill_eval_row(t, split_first(t, split) + window * t->windows.context, end, r >= real, &fields[f], r);
    }
    *valid = real;
    return SLUICE_OK;
}

static void text_destroy(sluice_data *d)
{
    text *t = (text *)d;
    sl_free((void *)t->vocabulary.code_points);
    sl_free(t->ids);
    sl_free(t);
}

static uint64_t text_memory(const sluice_data *d)
{
    return ((const text *)d)->held_bytes;
}

static void text_identity(const sluice_data *d, char sha256[65])
{
    memcpy(sha256, ((const text *)d)->identity, 65);
}

static int64_t text_vocabulary(const sluice_data *d)
{
    const sl_vocabulary *v = &((const text *)d)->vocabulary;
    return v->unit == SL_TEXT_TOKENS ? v->size : 0;
}

static const sl_vocabulary *text_characters(const sluice_data *d)
{
    const sl_vocabulary *v = &((const text *)d)->vocabulary;
    return v->unit != SL_TEXT_TOKENS ? v : NULL;
}

static const sl_data_ops text_ops = {
    .name = "text",
    .has_tokens = true,
    .destroy = text_destroy,
    .samples = text_samples,
    .fill = text_fill,
    .fill_eval = text_fill_eval,
    .memory_bytes = text_memory,
    .identity = text_identity,
    .vocabulary = text_vocabulary,
    .characters = text_characters,
};

/* Bytes that are no UTF-8, perhaps because they are no text at all. */
static sluice_status refuse_bytes(const char *path, const char *raw, size_t bytes, size_t at)
{
    const sl_file_kind *kind = sl_text_file_kind(path, raw, bytes);
    if (kind != NULL) return sl_fail(SLUICE_ERR_INPUT, "%s is %s, not a text: %s", path, kind->what, kind->as_text);
    return sl_fail(SLUICE_ERR_INPUT,
                   "%s: byte %zu (0x%02x) is not valid UTF-8; convert the file, or read it with "
                   "model.vocabulary \"bytes\"",
                   path, at, (unsigned char)raw[at]);
}

static sluice_status poll_stop(const text *t)
{
    return sl_stop_poll(t->stop, "reading the data");
}

/* Marks every code point of the text in seen[CODE_POINT_COUNT] with 1 and counts characters. */
static sluice_status scan_characters(const text *t, const char *path, const char *raw, size_t bytes, int32_t *seen,
                                     int64_t *characters)
{
    const unsigned char *p = (const unsigned char *)raw;
    int64_t n = 0;
    uint32_t c;
    int length;
    for (size_t at = 0; at < bytes; at += (size_t)length, n++) {
        if (n % POLLED_BYTES == 0) SL_TRY(poll_stop(t));
        if ((length = sl_utf8_decode(p + at, bytes - at, &c)) == 0) return refuse_bytes(path, raw, bytes, at);
        seen[c] = 1;
    }
    *characters = n;
    return SLUICE_OK;
}

/* Numbers the marked code points in increasing order: seen[c] becomes c's id. */
static sluice_status number_characters(text *t, int32_t *seen)
{
    int32_t size = 0, id = 0;
    for (int32_t c = 0; c < CODE_POINT_COUNT; c++) size += seen[c];
    uint32_t *code_points = sl_alloc_array((size_t)size, sizeof *code_points, "text vocabulary");
    if (code_points == NULL) return SLUICE_ERR_NO_MEMORY;
    for (int32_t c = 0; c < CODE_POINT_COUNT; c++)
        if (seen[c]) {
            code_points[id] = (uint32_t)c;
            seen[c] = id++;
        }
    t->vocabulary = (sl_vocabulary){ SL_TEXT_CHARACTERS, size, code_points };
    t->held_bytes += (uint64_t)size * sizeof *code_points;
    return SLUICE_OK;
}

/* ---- with the vocabulary of a model that was trained before ---- */

enum { NAMED_CHARACTERS = 20 };

/* Characters of a text that a vocabulary does not have. */
typedef struct strangers {
    int64_t different;
    size_t first_at;                  /* bytes into the text */
    uint32_t named[NAMED_CHARACTERS]; /* the first ones, in the order of the text */
} strangers;

static void note_stranger(strangers *s, int32_t *mark, uint32_t c, size_t at)
{
    if (*mark < 0) return; /* seen before */
    *mark = -1;
    if (s->different == 0) s->first_at = at;
    if (s->different < NAMED_CHARACTERS) s->named[s->different] = c;
    s->different++;
}

static sluice_status refuse_strangers(const char *path, const char *raw, const strangers *s, int32_t known)
{
    char list[NAMED_CHARACTERS * 24] = "";
    size_t used = 0;
    int line, column;
    int64_t named = s->different < NAMED_CHARACTERS ? s->different : NAMED_CHARACTERS;
    sl_scan_position(raw, s->first_at, &line, &column);
    for (int64_t i = 0; i < named; i++) {
        const sl_vocabulary one = { SL_TEXT_CHARACTERS, 1, &s->named[i] };
        char character[5] = "", escaped[SL_ESCAPE_BYTES];
        sl_vocabulary_decode(&one, 0, character);
        if (character[0] == '\0')
            memcpy(escaped, "\\u0000", sizeof "\\u0000");
        else
            sl_json_escape(character, escaped);
        used += (size_t)snprintf(list + used, sizeof list - used, "%s\"%s\" (U+%04" PRIX32 ")", i > 0 ? ", " : "",
                                 escaped, s->named[i]);
    }
    return sl_fail(SLUICE_ERR_INPUT,
                   "%s, line %d: the model was trained on %" PRId32 " characters, and the text has %" PRId64
                   " that are not among them: %s%s, first at byte %zu. Give a text of the model's characters, replace "
                   "these, or train a new model",
                   path, line, known, s->different, list, s->different > named ? ", ..." : "", s->first_at);
}

/* As scan_characters, for the characters that `kept` has: known[c] becomes c's id. */
static sluice_status scan_known(const text *t, const char *path, const char *raw, size_t bytes,
                                const sl_vocabulary *kept, int32_t *known, int64_t *characters)
{
    strangers s = { .different = 0 };
    const unsigned char *p = (const unsigned char *)raw;
    int64_t n = 0;
    uint32_t c = 0;
    int length;
    for (int32_t id = 0; id < kept->size; id++) known[kept->code_points[id]] = id + 1;
    for (size_t at = 0; at < bytes; at += (size_t)length, n++) {
        if (n % POLLED_BYTES == 0) SL_TRY(poll_stop(t));
        if ((length = sl_utf8_decode(p + at, bytes - at, &c)) == 0) return refuse_bytes(path, raw, bytes, at);
        if (known[c] <= 0) note_stranger(&s, &known[c], c, at);
    }
    if (s.different > 0) return refuse_strangers(path, raw, &s, kept->size);
    for (int32_t id = 0; id < kept->size; id++) known[kept->code_points[id]] = id;
    *characters = n;
    return SLUICE_OK;
}

static sluice_status copy_vocabulary(text *t, const sl_vocabulary *kept)
{
    uint32_t *code_points = sl_alloc_array((size_t)kept->size, sizeof *code_points, "text vocabulary");
    if (code_points == NULL) return SLUICE_ERR_NO_MEMORY;
    memcpy(code_points, kept->code_points, (size_t)kept->size * sizeof *code_points);
    t->vocabulary = (sl_vocabulary){ SL_TEXT_CHARACTERS, kept->size, code_points };
    t->held_bytes += (uint64_t)kept->size * sizeof *code_points;
    return SLUICE_OK;
}

/* Room for t->tokens ids of the vocabulary. */
static sluice_status reserve_ids(text *t)
{
    t->id_bytes = t->vocabulary.size <= 1 << 8 ? 1 : t->vocabulary.size <= 1 << 16 ? 2 : 4;
    t->ids = sl_alloc_array((size_t)t->tokens, (size_t)t->id_bytes, "text tokens");
    if (t->ids == NULL) return SLUICE_ERR_NO_MEMORY;
    t->held_bytes += (uint64_t)t->tokens * (uint64_t)t->id_bytes;
    return SLUICE_OK;
}

static void store_id(text *t, int64_t at, int32_t id)
{
    if (t->id_bytes == 1)
        ((uint8_t *)t->ids)[at] = (uint8_t)id;
    else if (t->id_bytes == 2)
        ((uint16_t *)t->ids)[at] = (uint16_t)id;
    else
        ((int32_t *)t->ids)[at] = id;
}

/* Writes the ids of text whose characters all have one. */
static sluice_status store_ids(text *t, const char *raw, size_t bytes, const int32_t *id_of)
{
    const unsigned char *p = (const unsigned char *)raw;
    uint32_t c = 0;
    int64_t n = 0;
    SL_TRY(reserve_ids(t));
    for (size_t at = 0; at < bytes; n++) {
        if (n % POLLED_BYTES == 0) SL_TRY(poll_stop(t));
        at += (size_t)sl_utf8_decode(p + at, bytes - at, &c);
        store_id(t, n, id_of[c]);
    }
    return SLUICE_OK;
}

static sluice_status take_characters(text *t, const char *path, const char *raw, size_t bytes,
                                     const sl_vocabulary *kept)
{
    int32_t *id_of = sl_alloc_array(CODE_POINT_COUNT, sizeof *id_of, "text character table");
    if (id_of == NULL) return SLUICE_ERR_NO_MEMORY;
    sluice_status st = kept != NULL ? scan_known(t, path, raw, bytes, kept, id_of, &t->tokens)
                                    : scan_characters(t, path, raw, bytes, id_of, &t->tokens);
    if (st == SLUICE_OK) st = kept != NULL ? copy_vocabulary(t, kept) : number_characters(t, id_of);
    if (st == SLUICE_OK) st = store_ids(t, raw, bytes, id_of);
    sl_free(id_of);
    return st;
}

/* Bytes are ids already: the file's buffer is kept as it is. */
static void take_bytes(text *t, char **raw, size_t bytes)
{
    t->ids = *raw;
    *raw = NULL;
    t->id_bytes = 1;
    t->tokens = (int64_t)bytes;
    t->vocabulary = sl_vocabulary_bytes();
    t->held_bytes += bytes + 1;
}

/* ---- with a tokenizer ---- */

static sluice_status check_utf8(const char *path, const char *raw, size_t bytes)
{
    uint32_t c;
    int length;
    for (size_t at = 0; at < bytes; at += (size_t)length)
        if ((length = sl_utf8_decode((const unsigned char *)raw + at, bytes - at, &c)) == 0)
            return refuse_bytes(path, raw, bytes, at);
    return SLUICE_OK;
}

static sluice_status encode(const sl_tokenizer *tokenizer, const char *raw, size_t bytes, sl_ids *ids)
{
    sl_encoder *encoder;
    SL_TRY(sl_encoder_create(tokenizer, &encoder));
    sluice_status st = sl_encode(encoder, raw, bytes, 0, ids);
    sl_encoder_destroy(encoder);
    return st;
}

static sluice_status keep_tokens(text *t, const sl_ids *ids, int32_t size)
{
    t->vocabulary = (sl_vocabulary){ SL_TEXT_TOKENS, size, NULL };
    t->tokens = (int64_t)ids->count;
    SL_TRY(reserve_ids(t));
    for (int64_t i = 0; i < t->tokens; i++) store_id(t, i, ids->data[i]);
    return SLUICE_OK;
}

static sluice_status take_tokens(text *t, const char *path, const char *tokenizer_path, const char *raw, size_t bytes)
{
    sl_tokenizer *tokenizer;
    sl_ids ids = { NULL, 0, 0 };
    SL_TRY(check_utf8(path, raw, bytes));
    SL_TRY(sl_tokenizer_open(tokenizer_path, &tokenizer));
    sluice_status st = encode(tokenizer, raw, bytes, &ids);
    if (st == SLUICE_OK) st = keep_tokens(t, &ids, sl_tokenizer_size(tokenizer));
    sl_ids_free(&ids);
    sl_tokenizer_close(tokenizer);
    return st;
}

static const char *unit_name(const text *t)
{
    static const char *const names[] = {
        [SL_TEXT_BYTES] = "bytes", [SL_TEXT_CHARACTERS] = "characters", [SL_TEXT_TOKENS] = "tokens"
    };
    return names[t->vocabulary.unit];
}

/* Cuts the tokens into splits and the training split into windows. */
static sluice_status lay_out_windows(text *t, const char *path, double validation)
{
    const char *unit = unit_name(t);
    int64_t context = t->windows.context;
    SL_TRY(sl_data_train_count(t->tokens, validation, &t->train));
    SL_TRY(sl_windows_check(path, "training", t->train, unit, context));
    if (validation > 0) SL_TRY(sl_windows_check(path, "validation", t->tokens - t->train, unit, context));
    t->windows.tokens = t->train;
    sl_windows_lay_out(&t->windows);
    return SLUICE_OK;
}

static sluice_status hash_text(const text *t, sl_sha256 *h, const char *raw, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += POLLED_BYTES) {
        SL_TRY(poll_stop(t));
        sl_sha256_update(h, raw + at, bytes - at < POLLED_BYTES ? bytes - at : POLLED_BYTES);
    }
    return SLUICE_OK;
}

/* What a text is read with. */
typedef struct reading {
    const char *path;
    sl_text_unit unit;
    const sl_vocabulary *kept; /* characters; may be NULL */
    const char *tokenizer;     /* tokens */
    double validation;
} reading;

static sluice_status take_text(text *t, const reading *r, char **raw, size_t bytes)
{
    if (r->unit == SL_TEXT_CHARACTERS) return take_characters(t, r->path, *raw, bytes, r->kept);
    if (r->unit == SL_TEXT_TOKENS) return take_tokens(t, r->path, r->tokenizer, *raw, bytes);
    take_bytes(t, raw, bytes);
    return SLUICE_OK;
}

static sluice_status load(text *t, const reading *r)
{
    sl_sha256 h;
    size_t bytes;
    char *raw;
    sluice_status st;
    SL_TRY(sl_file_read_all_until(t->stop, r->path, MAX_TEXT_BYTES, &raw, &bytes));
    if (bytes == 0) {
        st = sl_fail(SLUICE_ERR_INPUT, "%s is empty; give a text to train on", r->path);
        goto free_raw;
    }
    sl_identity_begin(&h, "text unit %d context %" PRId64 " validation %.17g shuffle %d seed %" PRIu64, (int)r->unit,
                      t->windows.context, r->validation, t->windows.shuffle, t->windows.seed);
    if ((st = hash_text(t, &h, raw, bytes)) != SLUICE_OK) goto free_raw;
    t->kind = sl_text_file_kind(r->path, raw, bytes);
    if ((st = take_text(t, r, &raw, bytes)) != SLUICE_OK) goto free_raw;
    /* other tokenizers make other ids of the same text */
    if (r->unit == SL_TEXT_TOKENS) st = hash_text(t, &h, t->ids, (size_t)t->tokens * (size_t)t->id_bytes);
    sl_identity_end(&h, t->identity);
    if (st == SLUICE_OK) st = lay_out_windows(t, r->path, r->validation);
free_raw:
    sl_free(raw);
    return st;
}

static sluice_status open_text(const int *stop, const reading *r, int64_t context, bool shuffle, uint64_t seed,
                               sluice_data **out)
{
    sluice_status st;
    SL_TRY(sl_windows_check_context(context));
    text *t = sl_alloc(sizeof *t, "text data");
    if (t == NULL) return SLUICE_ERR_NO_MEMORY;
    t->base.ops = &text_ops;
    t->columns[COLUMN_TOKENS] = (sl_data_column){ "tokens", SLUICE_I32, context };
    t->columns[COLUMN_TARGETS] = (sl_data_column){ "targets", SLUICE_I32, context };
    t->windows = (sl_windows){ .context = context, .shuffle = shuffle, .seed = seed };
    t->held_bytes = sizeof *t;
    t->stop = stop;
    if ((st = load(t, r)) != SLUICE_OK) {
        text_destroy(&t->base);
        return st;
    }
    t->stop = NULL;
    *out = &t->base;
    return SLUICE_OK;
}

sluice_status sl_data_text(const char *path, sl_text_unit unit, const sl_vocabulary *kept, int64_t context,
                           double validation, bool shuffle, uint64_t seed, sluice_data **out)
{
    return sl_data_text_until(NULL, path, unit, kept, context, validation, shuffle, seed, out);
}

sluice_status sl_data_text_until(const int *stop, const char *path, sl_text_unit unit, const sl_vocabulary *kept,
                                 int64_t context, double validation, bool shuffle, uint64_t seed, sluice_data **out)
{
    const reading r = { .path = path, .unit = unit, .kept = kept, .validation = validation };
    return open_text(stop, &r, context, shuffle, seed, out);
}

sluice_status sl_data_text_encoded(const int *stop, const char *path, const char *tokenizer, int64_t context,
                                   double validation, bool shuffle, uint64_t seed, sluice_data **out)
{
    const reading r = { .path = path, .unit = SL_TEXT_TOKENS, .tokenizer = tokenizer, .validation = validation };
    return open_text(stop, &r, context, shuffle, seed, out);
}

const sl_file_kind *sl_data_text_kind(const sluice_data *d)
{
    return d != NULL && d->ops == &text_ops ? ((const text *)d)->kind : NULL;
}

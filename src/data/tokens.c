/* tokens.c: files of token ids as windows (data/windows.h), read where they are asked for.
 *
 * Nothing of the files is held, and no pass over them is made: ids are checked in every batch, and the identity is that of
 * blocks spread over the sequence where it is long. A mask file takes tokens out of the loss; with packing a row is cut into
 * documents at the document token, which begins a document, and is what the one before it predicts last. */
#include <inttypes.h>
#include <string.h>

#include "core/alloc.h"
#include "core/stop.h"
#include "data/token_sequence.h"
#include "data/windows.h"

enum { COLUMN_TOKENS, COLUMN_TARGETS, COLUMN_POSITIONS, COLUMN_COUNT };

/* The identity: all tokens of a sequence up to WHOLE_TOKENS, or HASHED_BLOCKS blocks of BLOCK_TOKENS of a longer one. */
enum { WHOLE_TOKENS = 1 << 24, HASHED_BLOCKS = 256, BLOCK_TOKENS = 1 << 14 };

/* Ids and, where there is one, their mask. */
typedef struct stream {
    sl_token_sequence *ids, *mask; /* owned; mask may be NULL */
} stream;

/* Tokens [first, end) of a stream. */
typedef struct range {
    stream *of;
    int64_t first, end;
} range;

typedef struct tokens {
    sluice_data base;
    sl_data_column columns[COLUMN_COUNT];
    int column_count;         /* without packing, positions are not offered */
    stream files, validation; /* validation.ids NULL: a share of `files`, or nothing */
    range ranges[2];          /* by split */
    sl_windows windows;       /* of the training range */
    int64_t vocabulary;       /* ids are below it */
    int32_t document_token;   /* -1: none */
    int32_t *ids, *mask;      /* owned: a window, context + 1 */
    char identity[65];
} tokens;

/* ---- reading ---- */

static sluice_status fail_id(const tokens *t, const stream *s, int64_t first, const int32_t *ids)
{
    int64_t i = 0, number;
    while ((uint32_t)ids[i] < (uint64_t)t->vocabulary) i++;
    const char *path = sl_token_sequence_place(s->ids, first + i, &number);
    return sl_fail(SLUICE_ERR_INPUT,
                   "%s: token %" PRId64 " is %" PRIu32 ", and the model's vocabulary has %" PRId64
                   " (model.vocabulary): the file is of another tokenizer, or data.dtype is not its type",
                   path, number, (uint32_t)ids[i], t->vocabulary);
}

static sluice_status fail_mask(const stream *s, int64_t first, const int32_t *mask)
{
    int64_t i = 0, number;
    while (mask[i] == 0 || mask[i] == 1) i++;
    const char *path = sl_token_sequence_place(s->mask, first + i, &number);
    return sl_fail(SLUICE_ERR_INPUT, "%s: the mask of token %" PRId64 " is %" PRId32 ", and is 0 or 1: is it a mask?",
                   path, number, mask[i]);
}

static sluice_status read_ids(const tokens *t, const stream *s, int64_t first, int64_t count, int32_t *out)
{
    uint32_t bad = 0, last = (uint32_t)(t->vocabulary - 1);
    SL_TRY(sl_token_sequence_read(s->ids, first, count, out));
    for (int64_t i = 0; i < count; i++) bad |= (uint32_t)out[i] > last;
    return bad == 0 ? SLUICE_OK : fail_id(t, s, first, out);
}

/* Every token counts where there is no mask. */
static sluice_status read_mask(const stream *s, int64_t first, int64_t count, int32_t *out)
{
    uint32_t bad = 0;
    if (s->mask == NULL) {
        for (int64_t i = 0; i < count; i++) out[i] = 1;
        return SLUICE_OK;
    }
    SL_TRY(sl_token_sequence_read(s->mask, first, count, out));
    for (int64_t i = 0; i < count; i++) bad |= (uint32_t)out[i] > 1;
    return bad == 0 ? SLUICE_OK : fail_mask(s, first, out);
}

/* ---- rows ---- */

/* `count` tokens of a window are in t->ids and t->mask; the rest of the row is padding. */
static void write_tokens(const tokens *t, int64_t count, int32_t *out)
{
    for (int64_t i = 0; i < t->windows.context; i++) out[i] = t->ids[i < count ? i : count - 1];
}

static void write_targets(const tokens *t, int64_t count, int32_t *out)
{
    for (int64_t i = 0; i < t->windows.context; i++) {
        bool valid = i + 1 < count && t->mask[i + 1] != 0;
        out[i] = valid ? t->ids[i + 1] : -1;
    }
}

/* Positions restart at every document token, and where padding begins. */
static void write_positions(const tokens *t, int64_t count, int32_t *out)
{
    int32_t position = 0;
    for (int64_t i = 0; i < t->windows.context; i++) {
        bool begins = i == count || (i < count && t->ids[i] == t->document_token);
        position = i == 0 || begins ? 0 : position + 1;
        out[i] = position;
    }
}

/* The window that begins with token `first`; `valid`: its targets count. */
static sluice_status write_row(tokens *t, const range *of, int64_t first, bool valid, const sl_data_field *fields,
                               int field_count, int64_t row)
{
    static void (*const writers[COLUMN_COUNT])(const tokens *t, int64_t count, int32_t *out) = {
        [COLUMN_TOKENS] = write_tokens,
        [COLUMN_TARGETS] = write_targets,
        [COLUMN_POSITIONS] = write_positions,
    };
    int64_t whole = t->windows.context + 1, count = of->end - first < whole ? of->end - first : whole;
    SL_TRY(read_ids(t, of->of, first, count, t->ids));
    SL_TRY(read_mask(of->of, first, count, t->mask));
    if (!valid) memset(t->mask, 0, (size_t)count * sizeof *t->mask);
    for (int f = 0; f < field_count; f++) {
        int column = sl_data_find_column(t->columns, t->column_count, fields[f].name);
        writers[column](t, count, sl_data_row(&fields[f], row));
    }
    return SLUICE_OK;
}

/* ---- the data set ---- */

static int64_t tokens_samples(const sluice_data *d, sl_data_split split)
{
    const tokens *t = (const tokens *)d;
    const range *r = &t->ranges[split];
    if (split == SL_SPLIT_TRAIN) return t->windows.windows;
    return sl_windows_of_evaluation(r->end - r->first, t->windows.context);
}

static sluice_status tokens_fill(sluice_data *d, uint64_t index, int64_t rows, const sl_data_field *fields,
                                 int field_count)
{
    tokens *t = (tokens *)d;
    const range *of = &t->ranges[SL_SPLIT_TRAIN];
    uint64_t first;
    SL_TRY(sl_data_match("tokens", t->columns, t->column_count, fields, field_count));
    SL_TRY(sl_data_first_sample(index, rows, &first));
    for (int64_t r = 0; r < rows; r++)
        SL_TRY(write_row(t, of, of->first + sl_windows_start(&t->windows, first + (uint64_t)r), true, fields,
                         field_count, r));
    return SLUICE_OK;
}

static sluice_status tokens_targets(sluice_data *d, uint64_t index, int64_t rows, int64_t *count)
{
    tokens *t = (tokens *)d;
    const range *of = &t->ranges[SL_SPLIT_TRAIN];
    int64_t context = t->windows.context, valid = 0;
    uint64_t first;
    SL_TRY(sl_data_first_sample(index, rows, &first));
    if (of->of->mask == NULL) valid = rows * context;
    for (int64_t r = 0; of->of->mask != NULL && r < rows; r++) {
        int64_t start = of->first + sl_windows_start(&t->windows, first + (uint64_t)r);
        SL_TRY(read_mask(of->of, start + 1, context, t->mask));
        for (int64_t i = 0; i < context; i++) valid += t->mask[i];
    }
    *count = valid;
    return SLUICE_OK;
}

static sluice_status tokens_fill_eval(sluice_data *d, sl_data_split split, int64_t first, int64_t rows,
                                      const sl_data_field *fields, int field_count, int64_t *valid)
{
    tokens *t = (tokens *)d;
    const range *of = &t->ranges[split];
    int64_t context = t->windows.context, count = sl_windows_of_evaluation(of->end - of->first, context);
    SL_TRY(sl_data_match("tokens", t->columns, t->column_count, fields, field_count));
    if (first < 0 || first >= count)
        return sl_fail(SLUICE_ERR_USAGE,
                       "the token files have %" PRId64 " windows to evaluate, number %" PRId64 " was asked for%s",
                       count, first, count == 0 ? "; data.validation or data.validation_path sets some aside" : "");
    int64_t real = count - first < rows ? count - first : rows;
    for (int64_t r = 0; r < rows; r++) {
        int64_t window = first + (r < real ? r : real - 1);
        SL_TRY(write_row(t, of, of->first + window * context, r < real, fields, field_count, r));
    }
    *valid = real;
    return SLUICE_OK;
}

static void close_stream(stream *s)
{
    sl_token_sequence_close(s->ids);
    sl_token_sequence_close(s->mask);
}

static void tokens_destroy(sluice_data *d)
{
    tokens *t = (tokens *)d;
    close_stream(&t->files);
    close_stream(&t->validation);
    sl_free(t->ids);
    sl_free(t->mask);
    sl_free(t);
}

static uint64_t stream_memory(const stream *s)
{
    return (s->ids != NULL ? sl_token_sequence_memory(s->ids) : 0) +
           (s->mask != NULL ? sl_token_sequence_memory(s->mask) : 0);
}

/* What is read of the files is the page cache's. */
static uint64_t tokens_memory(const sluice_data *d)
{
    const tokens *t = (const tokens *)d;
    return sizeof *t + 2 * (uint64_t)(t->windows.context + 1) * sizeof *t->ids + stream_memory(&t->files) +
           stream_memory(&t->validation);
}

static void tokens_identity(const sluice_data *d, char sha256[65])
{
    memcpy(sha256, ((const tokens *)d)->identity, 65);
}

static bool tokens_packs(const sluice_data *d)
{
    return ((const tokens *)d)->column_count > COLUMN_POSITIONS;
}

static const sl_data_ops tokens_ops = {
    .name = "tokens",
    .has_tokens = true,
    .destroy = tokens_destroy,
    .samples = tokens_samples,
    .fill = tokens_fill,
    .fill_eval = tokens_fill_eval,
    .memory_bytes = tokens_memory,
    .identity = tokens_identity,
    .targets = tokens_targets,
    .packs = tokens_packs,
};

/* ---- identity ---- */

/* Ids are checked as they pass: a file of another vocabulary is nearly always noticed here. */
static sluice_status hash_block(tokens *t, const stream *s, int64_t first, int64_t count, int32_t *ids, sl_sha256 *h)
{
    SL_TRY(read_ids(t, s, first, count, ids));
    sl_sha256_update(h, ids, (size_t)count * sizeof *ids);
    if (s->mask == NULL) return SLUICE_OK;
    SL_TRY(read_mask(s, first, count, ids));
    sl_sha256_update(h, ids, (size_t)count * sizeof *ids);
    return SLUICE_OK;
}

/* Ids as 32 bits: neither the format of the files nor the cuts between them matter. */
static sluice_status hash_stream(tokens *t, const stream *s, const int *stop, int32_t *block, sl_sha256 *h)
{
    int64_t count = sl_token_sequence_count(s->ids), whole = (count + BLOCK_TOKENS - 1) / BLOCK_TOKENS;
    int64_t blocks = count <= WHOLE_TOKENS ? whole : HASHED_BLOCKS;
    sl_sha256_update(h, &count, sizeof count);
    for (int64_t b = 0; b < blocks; b++) {
        /* the last of some blocks ends with the last token */
        int64_t first = count <= WHOLE_TOKENS ? b * BLOCK_TOKENS : (count - BLOCK_TOKENS) / (blocks - 1) * b;
        if (count > WHOLE_TOKENS && b == blocks - 1) first = count - BLOCK_TOKENS;
        int64_t n = count - first < BLOCK_TOKENS ? count - first : BLOCK_TOKENS;
        SL_TRY(sl_stop_poll(stop, "reading the data"));
        SL_TRY(hash_block(t, s, first, n, block, h));
    }
    return SLUICE_OK;
}

static sluice_status identify(tokens *t, const sl_data_options *o)
{
    sl_sha256 h;
    int32_t *block = sl_alloc_array(BLOCK_TOKENS, sizeof *block, "token files");
    if (block == NULL) return SLUICE_ERR_NO_MEMORY;
    sl_identity_begin(&h,
                      "tokens context %" PRId64 " validation %.17g shuffle %d seed %" PRIu64
                      " packing %d document %" PRId32 " masks %d%d",
                      t->windows.context, o->validation, t->windows.shuffle, t->windows.seed, tokens_packs(&t->base),
                      t->document_token, t->files.mask != NULL, t->validation.mask != NULL);
    sluice_status st = hash_stream(t, &t->files, o->stop, block, &h);
    if (st == SLUICE_OK && t->validation.ids != NULL) st = hash_stream(t, &t->validation, o->stop, block, &h);
    sl_free(block);
    if (st == SLUICE_OK) sl_identity_end(&h, t->identity);
    return st;
}

/* ---- opening ---- */

static sluice_status open_stream(const int *stop, const char *path, const char *mask_path, sl_token_type type,
                                 bool random, stream *out)
{
    SL_TRY(sl_token_sequence_open(stop, path, type, random, &out->ids));
    if (!sl_given(mask_path)) return SLUICE_OK;
    SL_TRY(sl_token_sequence_open(stop, mask_path, SL_TOKENS_U8, random, &out->mask));
    return sl_token_sequence_match(out->ids, out->mask);
}

static sluice_status cut_ranges(tokens *t, const sl_data_options *o)
{
    int64_t count = sl_token_sequence_count(t->files.ids), train = count, context = t->windows.context;
    bool own = t->validation.ids != NULL;
    if (!own) SL_TRY(sl_data_train_count(count, o->validation, &train));
    t->ranges[SL_SPLIT_TRAIN] = (range){ &t->files, 0, train };
    t->ranges[SL_SPLIT_VALIDATION] = own ? (range){ &t->validation, 0, sl_token_sequence_count(t->validation.ids) }
                                         : (range){ &t->files, train, count };
    SL_TRY(sl_windows_check(o->path, "training", train, "tokens", context));
    const range *v = &t->ranges[SL_SPLIT_VALIDATION];
    if (own || o->validation > 0)
        SL_TRY(
            sl_windows_check(own ? o->validation_path : o->path, "validation", v->end - v->first, "tokens", context));
    t->windows.tokens = train;
    sl_windows_lay_out(&t->windows);
    return SLUICE_OK;
}

static sluice_status check_settings(const sl_data_options *o, int64_t vocabulary)
{
    if (!sl_given(o->path)) return sl_fail(SLUICE_ERR_USAGE, "data.path is missing; give the token file");
    if (vocabulary < 1 || vocabulary > INT32_MAX)
        return sl_fail(SLUICE_ERR_USAGE,
                       "model.vocabulary must be a number for token files: their tokenizer's, such as 50257 of GPT-2");
    if (sl_given(o->validation_path) && o->validation > 0)
        return sl_fail(
            SLUICE_ERR_USAGE,
            "data.validation sets a share of data.path aside and data.validation_path names a file; give one");
    if (sl_given(o->validation_mask_path) && !sl_given(o->validation_path))
        return sl_fail(SLUICE_ERR_USAGE,
                       "data.validation_mask_path is the mask of data.validation_path, which is missing");
    if (o->document_token >= vocabulary)
        return sl_fail(SLUICE_ERR_USAGE, "data.document_token is %" PRId64 ", and model.vocabulary %" PRId64,
                       o->document_token, vocabulary);
    if (o->packing == SL_PACKING_DOCUMENTS && o->document_token < 0)
        return sl_fail(
            SLUICE_ERR_USAGE,
            "data.packing \"documents\" needs data.document_token, the id between two documents of the file, such as "
            "50256 of GPT-2");
    return SLUICE_OK;
}

static sluice_status load(tokens *t, const sl_data_options *o)
{
    sl_token_type type = (sl_token_type)o->dtype;
    t->ids = sl_alloc_array((size_t)t->windows.context + 1, sizeof *t->ids, "token window");
    t->mask = sl_alloc_array((size_t)t->windows.context + 1, sizeof *t->mask, "token window");
    if (t->ids == NULL || t->mask == NULL) return SLUICE_ERR_NO_MEMORY;
    SL_TRY(open_stream(o->stop, o->path, o->mask_path, type, o->shuffle, &t->files));
    if (sl_given(o->validation_path))
        SL_TRY(open_stream(o->stop, o->validation_path, o->validation_mask_path, type, false, &t->validation));
    SL_TRY(cut_ranges(t, o));
    return identify(t, o);
}

sluice_status sl_data_tokens(const sl_data_options *o, int64_t context, int64_t vocabulary, sluice_data **out)
{
    SL_TRY(sl_windows_check_context(context));
    SL_TRY(check_settings(o, vocabulary));
    tokens *t = sl_alloc(sizeof *t, "token data");
    if (t == NULL) return SLUICE_ERR_NO_MEMORY;
    t->base.ops = &tokens_ops;
    t->columns[COLUMN_TOKENS] = (sl_data_column){ "tokens", SLUICE_I32, context };
    t->columns[COLUMN_TARGETS] = (sl_data_column){ "targets", SLUICE_I32, context };
    t->columns[COLUMN_POSITIONS] = (sl_data_column){ "positions", SLUICE_I32, context };
    t->column_count = o->packing == SL_PACKING_DOCUMENTS ? COLUMN_COUNT : COLUMN_POSITIONS;
    t->windows = (sl_windows){ .context = context, .shuffle = o->shuffle, .seed = (uint64_t)o->seed };
    t->vocabulary = vocabulary;
    t->document_token = (int32_t)o->document_token;
    sluice_status st = load(t, o);
    if (st != SLUICE_OK) {
        tokens_destroy(&t->base);
        return st;
    }
    *out = &t->base;
    return SLUICE_OK;
}

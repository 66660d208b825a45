/* glue.c: sentences, and pairs of them, with a class: the tab-separated files of GLUE, and what was made in their image.
 *
 * Columns are found by the names that these files have, or named by settings. Sentences are encoded once, at the start, by all threads,
 * and kept as tokens; rows are padded as they are written. What is kept does not depend on the threads. */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/grow.h"
#include "core/io.h"
#include "core/quote.h"
#include "core/thread.h"
#include "data/labels.h"
#include "data/source.h"
#include "format/delimited.h"
#include "format/tokenizer.h"

#define BATCH_RECORDS 4096
#define BATCH_BYTES   ((size_t)32 << 20)
#define MOST_SAMPLES  ((int64_t)INT32_MAX)
#define MOST_CONTEXT  (1 << 20)

enum { COLUMN_TOKENS, COLUMN_SEGMENTS, COLUMN_LENGTHS, COLUMN_TARGET, COLUMN_COUNT };

/* A sample that is encoded: tokens [start of this, start of the next). */
typedef struct sentence {
    int64_t start;
    int32_t label;
} sentence;

typedef struct glue {
    sl_table table;
    sl_data_column columns[COLUMN_COUNT];
    int64_t context;
    int32_t pad, vocabulary;
    int32_t *tokens;   /* owned */
    uint8_t *segments; /* owned: of each token */
    int64_t token_count, token_capacity;
    sentence *sentences; /* owned: one more than there are samples */
    int64_t capacity;
    sl_label_set labels;
    char identity[65];
    /* for what is said */
    bool pairs;
    int64_t truncated, longest;
    char first_truncated[SL_DELIMITED_PLACE];
} glue;

/* ---- files ---- */

/* The file to train on and, where there is one, the file to validate on ("": none). */
static sluice_status find_files(const sl_data_options *o, char train[PATH_MAX], char other[PATH_MAX])
{
    static const char *const trains[] = { "train.tsv", "msr_paraphrase_train.txt", NULL };
    static const char *const others[] = { "dev.tsv",   "dev_matched.tsv", "validation.tsv",
                                          "valid.tsv", "val.tsv",         "msr_paraphrase_test.txt",
                                          NULL };
    sl_path_info info;
    other[0] = '\0';
    if (!sl_given(o->path))
        return sl_fail(SLUICE_ERR_USAGE, "data.path is missing; give a folder with train.tsv, or a file");
    if (sl_given(o->validation_path) && o->validation > 0)
        return sl_fail(
            SLUICE_ERR_USAGE,
            "data.validation sets a share of data.path aside and data.validation_path names a file; give one");
    SL_TRY(sl_path_look(o->path, &info));
    if (info.kind == SL_PATH_FOLDER) {
        if (!sl_find_in(o->path, trains, train))
            return sl_fail(SLUICE_ERR_INPUT, "%s: train.tsv is not there, nor msr_paraphrase_train.txt; name a file",
                           sl_show(o->path).text);
        if (!(o->validation > 0) && !sl_find_in(o->path, others, other)) other[0] = '\0';
    } else if (snprintf(train, PATH_MAX, "%s", o->path) >= PATH_MAX) {
        return sl_fail(SLUICE_ERR_USAGE, "data.path: the path is too long");
    }
    if (sl_given(o->validation_path) && snprintf(other, PATH_MAX, "%s", o->validation_path) >= PATH_MAX)
        return sl_fail(SLUICE_ERR_USAGE, "data.validation_path: the path is too long");
    return SLUICE_OK;
}

/* ---- columns ---- */

typedef struct glue_columns {
    int first, second, label; /* second -1: single sentences */
} glue_columns;

static sluice_status named_column(const sl_delimited *d, const char *key, const char *name, int *out)
{
    *out = sl_delimited_find(d, name, false);
    if (*out >= 0) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_INPUT, "%s has no column %s, which %s names", sl_show(d->path).text, sl_quote(name).text,
                   key);
}

static void usual_sentences(const sl_delimited *d, glue_columns *out)
{
    static const char *const usual[][2] = {
        { "#1 String", "#2 String" }, { "sentence1", "sentence2" },
        { "question1", "question2" }, { "question", "sentence" },
        { "premise", "hypothesis" },  { "text_a", "text_b" },
        { "sentence", NULL },         { "text", NULL },
    };
    out->first = -1;
    for (size_t i = 0; i < sizeof usual / sizeof usual[0] && out->first < 0; i++) {
        int first = sl_delimited_find(d, usual[i][0], true);
        int second = usual[i][1] != NULL ? sl_delimited_find(d, usual[i][1], true) : -1;
        if (first < 0 || (usual[i][1] != NULL && second < 0)) continue;
        *out = (glue_columns){ first, second, out->label };
    }
}

static int usual_label(const sl_delimited *d)
{
    static const char *const usual[] = { "Quality", "label", "gold_label", "is_duplicate", "class" };
    int found = -1;
    for (size_t i = 0; i < sizeof usual / sizeof usual[0] && found < 0; i++)
        found = sl_delimited_find(d, usual[i], true);
    return found;
}

static sluice_status find_columns(const sl_data_options *o, const sl_delimited *d, glue_columns *out)
{
    *out = (glue_columns){ -1, -1, usual_label(d) };
    if (sl_given(o->label_column)) SL_TRY(named_column(d, "data.columns.label", o->label_column, &out->label));
    if (!sl_given(o->first_column) && sl_given(o->second_column))
        return sl_fail(SLUICE_ERR_USAGE, "data.columns.second is given and data.columns.first is not");
    if (sl_given(o->first_column)) {
        SL_TRY(named_column(d, "data.columns.first", o->first_column, &out->first));
        if (sl_given(o->second_column)) SL_TRY(named_column(d, "data.columns.second", o->second_column, &out->second));
    } else {
        usual_sentences(d, out);
    }
    if (out->first < 0)
        return sl_fail(SLUICE_ERR_INPUT,
                       "%s: line 1 names no column of sentences that is known (such as sentence, or sentence1 and "
                       "sentence2); name them with data.columns.first and data.columns.second",
                       sl_show(d->path).text);
    if (out->label < 0)
        return sl_fail(SLUICE_ERR_INPUT,
                       "%s: line 1 names no column of labels that is known (such as label); name it with "
                       "data.columns.label",
                       sl_show(d->path).text);
    return SLUICE_OK;
}

/* ---- encoding ---- */

/* A record on its way: where its texts are, and its tokens. */
typedef struct glue_record {
    size_t first, first_bytes, second, second_bytes; /* in the batch's text */
    int64_t line;
    int32_t label;
    bool cut;
    sl_ids ids;                  /* owned, reused */
    size_t parts[SL_PAIR_PARTS]; /* ends of its parts in ids */
} glue_record;

typedef struct glue_reader {
    glue *g;
    const sl_data_options *o;
    const sl_tokenizer *tokenizer;
    const sl_pair_frame *frame; /* of pairs */
    glue_columns columns;
    bool trains;
    int threads;
    sl_pool *pool;         /* owned */
    sl_encoder **encoders; /* owned: one a thread */
    sl_ids *scratch;       /* owned: one a thread */
    glue_record *records;  /* owned: BATCH_RECORDS */
    int count;
    sl_text text;
} glue_reader;

static sluice_status append(sl_ids *out, const int32_t *ids, size_t count)
{
    for (size_t i = 0; i < count; i++) SL_TRY(sl_ids_add(out, ids[i]));
    return SLUICE_OK;
}

/* What is left of two texts of n and m tokens, so that together they have `most`: the longer one is cut first, as the tokenizers package
 * does it. */
static void cut_pair(size_t most, size_t *n, size_t *m)
{
    size_t less = *n < *m ? *n : *m, more;
    bool swapped = *n > *m;
    if (*n + *m <= most) return;
    more = less > most ? less : most - less > less ? most - less : less;
    if (less + more > most) {
        less = most / 2;
        more = less + most % 2;
    }
    *n = swapped ? more : less;
    *m = swapped ? less : more;
}

static size_t frame_tokens(const sl_pair_frame *f)
{
    return f->tokens[SL_PAIR_BEFORE].count + f->tokens[SL_PAIR_BETWEEN].count + f->tokens[SL_PAIR_AFTER].count;
}

static sluice_status encode_pair(const glue_reader *r, sl_encoder *e, sl_ids *scratch, glue_record *record)
{
    const sl_pair_frame *f = r->frame;
    size_t most = (size_t)r->g->context - frame_tokens(f), n, m, split;
    scratch->count = 0;
    SL_TRY(sl_encode(e, r->text.data + record->first, record->first_bytes, 0, scratch));
    split = scratch->count;
    SL_TRY(sl_encode(e, r->text.data + record->second, record->second_bytes, 0, scratch));
    n = split;
    m = scratch->count - split;
    record->cut = n + m > most;
    cut_pair(most, &n, &m);
    const int32_t *texts[SL_PAIR_PARTS] = { [SL_PAIR_FIRST] = scratch->data, [SL_PAIR_SECOND] = scratch->data + split };
    const size_t counts[SL_PAIR_PARTS] = { [SL_PAIR_FIRST] = n, [SL_PAIR_SECOND] = m };
    for (int i = 0; i < SL_PAIR_PARTS; i++) {
        const sl_ids *special = &f->tokens[i];
        SL_TRY(texts[i] != NULL ? append(&record->ids, texts[i], counts[i])
                                : append(&record->ids, special->data, special->count));
        record->parts[i] = record->ids.count;
    }
    return SLUICE_OK;
}

/* The tokens around a text stay where it is cut. */
static sluice_status encode_single(const glue_reader *r, sl_encoder *e, sl_ids *scratch, glue_record *record)
{
    const sl_ids *before, *after;
    sl_tokenizer_around(r->tokenizer, &before, &after);
    size_t most = (size_t)r->g->context - before->count - after->count;
    scratch->count = 0;
    SL_TRY(sl_encode(e, r->text.data + record->first, record->first_bytes, 0, scratch));
    record->cut = scratch->count > most;
    SL_TRY(append(&record->ids, before->data, before->count));
    SL_TRY(append(&record->ids, scratch->data, record->cut ? most : scratch->count));
    SL_TRY(append(&record->ids, after->data, after->count));
    for (int i = 0; i < SL_PAIR_PARTS; i++) record->parts[i] = record->ids.count;
    return SLUICE_OK;
}

/* An sl_try_fn: every threads-th record. */
static sluice_status encode_some(void *context, int64_t thread, void *memory)
{
    glue_reader *r = context;
    (void)memory;
    for (int i = (int)thread; i < r->count; i += r->threads) {
        glue_record *record = &r->records[i];
        record->ids.count = 0;
        SL_TRY(r->frame != NULL ? encode_pair(r, r->encoders[thread], &r->scratch[thread], record)
                                : encode_single(r, r->encoders[thread], &r->scratch[thread], record));
    }
    return SLUICE_OK;
}

/* ---- what is kept ---- */

/* Tokens and segments have one capacity. */
static sluice_status grow_tokens(glue *g, int64_t more)
{
    int64_t capacity = g->token_capacity;
    SL_TRY(SL_GROW(g->tokens, capacity, g->token_count + more, 65536, "tokens of sentences"));
    return SL_GROW(g->segments, g->token_capacity, g->token_count + more, 65536, "segments of sentences");
}

static void note_cut(glue *g, const char *path, int64_t line)
{
    if (g->truncated++ == 0)
        snprintf(g->first_truncated, sizeof g->first_truncated, "%s, line %" PRId64, sl_show(path).text, line);
}

static sluice_status keep_record(const glue_reader *r, const char *path, const glue_record *record)
{
    glue *g = r->g;
    int64_t count = (int64_t)record->ids.count;
    SL_TRY(grow_tokens(g, count));
    SL_TRY(SL_GROW(g->sentences, g->capacity, g->table.total + 2, 4096, "sentences"));
    memcpy(g->tokens + g->token_count, record->ids.data, (size_t)count * sizeof *g->tokens);
    int part = 0;
    for (int64_t i = 0; i < count; i++) {
        while (part + 1 < SL_PAIR_PARTS && (size_t)i >= record->parts[part]) part++;
        g->segments[g->token_count + i] = (uint8_t)(r->frame != NULL ? r->frame->segments[part] : 0);
    }
    g->sentences[g->table.total++] = (sentence){ g->token_count, record->label };
    g->token_count += count;
    g->sentences[g->table.total].start = g->token_count;
    if (count > g->longest) g->longest = count;
    if (record->cut) note_cut(g, path, record->line);
    return SLUICE_OK;
}

/* Encodes and keeps the batch at hand. */
static sluice_status finish_batch(glue_reader *r, const char *path)
{
    SL_TRY(sl_text_status(&r->text));
    SL_TRY(sl_pool_try(r->pool, encode_some, r, r->threads));
    for (int i = 0; i < r->count; i++) SL_TRY(keep_record(r, path, &r->records[i]));
    r->count = 0;
    r->text.bytes = 0;
    return SLUICE_OK;
}

/* ---- reading ---- */

static sluice_status take_label(const glue_reader *r, const sl_delimited *d, int32_t *out)
{
    const sl_delimited_field *f = &d->fields[r->columns.label];
    if (f->bytes == 0) return sl_fail(SLUICE_ERR_INPUT, "%s: the label is empty", sl_delimited_place(d).text);
    if (f->bytes > SL_MOST_LABEL_BYTES)
        return sl_fail(SLUICE_ERR_INPUT, "%s: a label of %zu bytes; at most %d are read", sl_delimited_place(d).text,
                       f->bytes, SL_MOST_LABEL_BYTES);
    if (r->trains)
        SL_TRY(sl_labels_add(&r->g->labels, f->text, out));
    else
        *out = sl_labels_find(&r->g->labels, f->text);
    if (*out >= 0) return SLUICE_OK;
    if (r->trains)
        return sl_fail(SLUICE_ERR_INPUT, "%s: more than %d different labels; does data.columns.label name classes?",
                       sl_delimited_place(d).text, SL_MOST_LABELS);
    return sl_fail(SLUICE_ERR_INPUT, "%s: label %s is none of those that are trained on: %s",
                   sl_delimited_place(d).text, sl_quote(f->text).text, sl_labels_list(&r->g->labels).text);
}

static size_t put_text(glue_reader *r, const sl_delimited_field *f)
{
    size_t at = r->text.bytes;
    sl_text_add_bytes(&r->text, f->text, f->bytes);
    return at;
}

static sluice_status take_record(glue_reader *r, const sl_delimited *d)
{
    static const sl_delimited_field none = { "", 0 };
    const sl_delimited_field *first = &d->fields[r->columns.first];
    const sl_delimited_field *second = r->columns.second >= 0 ? &d->fields[r->columns.second] : &none;
    glue_record *record = &r->records[r->count];
    if (first->bytes + second->bytes == 0)
        return sl_fail(SLUICE_ERR_INPUT, "%s: the sentence is empty", sl_delimited_place(d).text);
    SL_TRY(take_label(r, d, &record->label));
    record->line = d->line;
    record->first = put_text(r, first);
    record->first_bytes = first->bytes;
    record->second = put_text(r, second);
    record->second_bytes = second->bytes;
    r->count++;
    return r->count == BATCH_RECORDS || r->text.bytes > BATCH_BYTES ? finish_batch(r, d->path) : SLUICE_OK;
}

/* Both files are of single sentences, or of pairs. */
static sluice_status check_frame(glue_reader *r, const sl_delimited *d)
{
    bool pairs = r->columns.second >= 0;
    if (r->trains) r->g->pairs = pairs;
    if (pairs != r->g->pairs)
        return sl_fail(SLUICE_ERR_INPUT, "%s has %s, and what is trained on has %s", sl_show(d->path).text,
                       pairs ? "pairs of sentences" : "single sentences", pairs ? "single ones" : "pairs");
    r->frame = pairs ? sl_tokenizer_pair(r->tokenizer) : NULL;
    if (pairs && r->frame == NULL)
        return sl_fail(SLUICE_ERR_INPUT, "%s: its post_processor does not say how a pair of texts is put together",
                       sl_show(r->o->tokenizer).text);
    const sl_ids *before, *after;
    sl_tokenizer_around(r->tokenizer, &before, &after);
    size_t around = pairs ? frame_tokens(r->frame) : before->count + after->count;
    if ((size_t)r->g->context < around + 2)
        return sl_fail(SLUICE_ERR_USAGE, "model.context is %" PRId64 ", of which %zu tokens stand around the sentences",
                       r->g->context, around);
    for (int i = 0; pairs && i < SL_PAIR_PARTS; i++)
        if (r->frame->segments[i] > UINT8_MAX)
            return sl_fail(SLUICE_ERR_INPUT, "%s: segment %d of pairs", sl_show(r->o->tokenizer).text,
                           r->frame->segments[i]);
    return SLUICE_OK;
}

static sluice_status read_records(glue_reader *r, sl_delimited *d)
{
    int64_t before = r->g->table.total;
    bool more = true;
    SL_TRY(find_columns(r->o, d, &r->columns));
    SL_TRY(check_frame(r, d));
    while (more) {
        SL_TRY(sl_delimited_next(r->o->stop, d, &more));
        if (more) SL_TRY(take_record(r, d));
        if (r->g->table.total > MOST_SAMPLES)
            return sl_fail(SLUICE_ERR_INPUT, "%s: more than %" PRId64 " samples", sl_show(d->path).text, MOST_SAMPLES);
    }
    SL_TRY(finish_batch(r, d->path));
    if (r->g->table.total > before) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_INPUT, "%s has no samples behind its header", sl_show(d->path).text);
}

static sluice_status read_file(glue_reader *r, const char *path, bool trains)
{
    sl_delimited d;
    r->trains = trains;
    SL_TRY(sl_delimited_open(path, '\t', false, &d));
    sluice_status st = read_records(r, &d);
    sl_delimited_close(&d);
    return st;
}

static sluice_status make_reader(glue_reader *r)
{
    r->threads = r->o->threads > 0 ? r->o->threads : sl_cpu_count();
    r->encoders = sl_alloc_array((size_t)r->threads, sizeof *r->encoders, "encoders");
    r->scratch = sl_alloc_array((size_t)r->threads, sizeof *r->scratch, "encoders");
    r->records = sl_alloc_array(BATCH_RECORDS, sizeof *r->records, "sentences");
    if (r->encoders == NULL || r->scratch == NULL || r->records == NULL) return SLUICE_ERR_NO_MEMORY;
    for (int i = 0; i < r->threads; i++) SL_TRY(sl_encoder_create(r->tokenizer, &r->encoders[i]));
    return sl_pool_create(r->threads, &r->pool);
}

static void free_reader(glue_reader *r)
{
    for (int i = 0; i < r->threads; i++) {
        if (r->encoders != NULL) sl_encoder_destroy(r->encoders[i]);
        if (r->scratch != NULL) sl_ids_free(&r->scratch[i]);
    }
    for (int i = 0; r->records != NULL && i < BATCH_RECORDS; i++) sl_ids_free(&r->records[i].ids);
    sl_free((void *)r->encoders);
    sl_free(r->scratch);
    sl_free(r->records);
    sl_text_free(&r->text);
    sl_pool_destroy(r->pool);
}

/* Classes get their numbers in order; sentences were kept with those of their appearance. */
static sluice_status order_labels(glue *g, const char *path, int64_t wanted)
{
    int32_t *map;
    if (g->labels.count < 2)
        return sl_fail(SLUICE_ERR_INPUT, "%s: every label is %s; there is nothing to tell apart", sl_show(path).text,
                       sl_quote(g->labels.names[0]).text);
    if (wanted > 0 && wanted != g->labels.count)
        return sl_fail(SLUICE_ERR_INPUT, "%s has %" PRId64 " different labels (%s), and data.classes is %" PRId64,
                       sl_show(path).text, g->labels.count, sl_labels_list(&g->labels).text, wanted);
    SL_TRY(sl_labels_sort(&g->labels, &map));
    for (int64_t i = 0; i < g->table.total; i++) g->sentences[i].label = map[g->sentences[i].label];
    sl_free(map);
    return SLUICE_OK;
}

static sluice_status read_all(glue *g, const sl_data_options *o, const sl_tokenizer *t)
{
    char train[PATH_MAX], other[PATH_MAX];
    glue_reader r = { .g = g, .o = o, .tokenizer = t };
    SL_TRY(find_files(o, train, other));
    sluice_status st = make_reader(&r);
    if (st == SLUICE_OK) st = read_file(&r, train, true);
    g->table.train = g->table.total;
    if (st == SLUICE_OK) st = order_labels(g, train, o->classes);
    if (st == SLUICE_OK && other[0] != '\0') st = read_file(&r, other, false);
    free_reader(&r);
    SL_TRY(st);
    if (other[0] == '\0') SL_TRY(sl_data_train_count(g->table.total, o->validation, &g->table.train));
    if (g->table.train < 1)
        return sl_fail(SLUICE_ERR_USAGE, "data.validation %g leaves nothing of the sentences to train on",
                       o->validation);
    return SLUICE_OK;
}

/* ---- the data set ---- */

static void glue_write(const sl_table *t, int64_t sample, int column, void *row)
{
    const glue *g = (const glue *)t;
    int32_t *out = row;
    int64_t first = g->sentences[sample].start, count = g->sentences[sample + 1].start - first;
    if (column == COLUMN_LENGTHS) out[0] = (int32_t)count;
    if (column == COLUMN_TARGET) out[0] = g->sentences[sample].label;
    if (column >= COLUMN_LENGTHS) return;
    for (int64_t i = 0; i < g->context; i++)
        out[i] = column == COLUMN_TOKENS ? (i < count ? g->tokens[first + i] : g->pad)
                                         : (i < count ? g->segments[first + i] : 0);
}

static void glue_destroy(sluice_data *d)
{
    glue *g = (glue *)d;
    sl_free(g->tokens);
    sl_free(g->segments);
    sl_free(g->sentences);
    sl_labels_free(&g->labels);
    sl_free(g);
}

static uint64_t glue_memory(const sluice_data *d)
{
    const glue *g = (const glue *)d;
    return sizeof *g + (uint64_t)g->token_capacity * 5 + (uint64_t)g->capacity * sizeof(sentence) +
           (uint64_t)g->labels.capacity * 64;
}

static void glue_identity(const sluice_data *d, char sha256[65])
{
    memcpy(sha256, ((const glue *)d)->identity, 65);
}

static int64_t glue_vocabulary(const sluice_data *d)
{
    return ((const glue *)d)->vocabulary;
}

static int64_t glue_classes(const sluice_data *d)
{
    return ((const glue *)d)->labels.count;
}

static const char *glue_class_name(const sluice_data *d, int64_t i)
{
    const glue *g = (const glue *)d;
    return i >= 0 && i < g->labels.count ? g->labels.names[i] : NULL;
}

static void glue_say(const sluice_data *d, const sl_log *log)
{
    const glue *g = (const glue *)d;
    sl_log_write(log, SLUICE_LOG_NOTE,
                 "data: %" PRId64 " %s to train on and %" PRId64 " to validate, %" PRId64
                 " classes (%s), %.1f tokens in the mean, at most %" PRId64,
                 g->table.train, g->pairs ? "pairs of sentences" : "sentences", g->table.total - g->table.train,
                 g->labels.count, sl_labels_list(&g->labels).text, (double)g->token_count / (double)g->table.total,
                 g->longest);
    if (g->truncated > 0)
        sl_log_write(log, SLUICE_LOG_NOTE,
                     "data: %" PRId64 " sample%s longer than model.context %" PRId64 " and cut%s; the first: %s",
                     g->truncated, g->truncated == 1 ? " is" : "s are", g->context,
                     g->pairs ? ", of the longer sentence first" : " at the end", g->first_truncated);
}

static const sl_data_ops glue_ops = {
    .name = "glue",
    .destroy = glue_destroy,
    .samples = sl_table_samples,
    .fill = sl_table_fill,
    .fill_eval = sl_table_fill_eval,
    .memory_bytes = glue_memory,
    .identity = glue_identity,
    .vocabulary = glue_vocabulary,
    .classes = glue_classes,
    .class_name = glue_class_name,
    .say = glue_say,
};

static void identify(glue *g)
{
    sl_sha256 h;
    sl_identity_begin(
        &h, "glue context %" PRId64 " shuffle %d seed %" PRIu64 " train %" PRId64 " of %" PRId64 " classes %" PRId64,
        g->context, g->table.shuffle, g->table.seed, g->table.train, g->table.total, g->labels.count);
    for (int64_t i = 0; i < g->labels.count; i++)
        sl_sha256_update(&h, g->labels.names[i], strlen(g->labels.names[i]) + 1);
    for (int64_t i = 0; i < g->table.total; i++) {
        const sentence *s = &g->sentences[i];
        int64_t count = s[1].start - s->start;
        sl_sha256_update(&h, &count, sizeof count);
        sl_sha256_update(&h, &s->label, sizeof s->label);
        sl_sha256_update(&h, g->tokens + s->start, (size_t)count * sizeof *g->tokens);
        sl_sha256_update(&h, g->segments + s->start, (size_t)count);
    }
    sl_identity_end(&h, g->identity);
}

static sluice_status load(glue *g, const sl_data_options *o)
{
    sl_tokenizer *t;
    if (!sl_given(o->tokenizer))
        return sl_fail(SLUICE_ERR_USAGE, "data.tokenizer is missing; give a folder with tokenizer.json, or that file");
    SL_TRY(sl_tokenizer_open(o->tokenizer, &t));
    g->vocabulary = sl_tokenizer_size(t);
    int32_t pad = sl_tokenizer_find(t, "[PAD]", 5);
    g->pad = pad >= 0 ? pad : 0;
    sluice_status st = read_all(g, o, t);
    sl_tokenizer_close(t);
    return st;
}

sluice_status sl_data_glue(const sl_data_options *o, int64_t context, int64_t vocabulary, sluice_data **out)
{
    (void)vocabulary; /* the tokenizer's */
    if (context < 4 || context > MOST_CONTEXT)
        return sl_fail(SLUICE_ERR_USAGE, "model.context is %" PRId64 "; give 4 to %d tokens", context, MOST_CONTEXT);
    glue *g = sl_alloc(sizeof *g, "sentences");
    if (g == NULL) return SLUICE_ERR_NO_MEMORY;
    g->columns[COLUMN_TOKENS] = (sl_data_column){ "tokens", SLUICE_I32, context };
    g->columns[COLUMN_SEGMENTS] = (sl_data_column){ "segments", SLUICE_I32, context };
    g->columns[COLUMN_LENGTHS] = (sl_data_column){ "lengths", SLUICE_I32, 1 };
    g->columns[COLUMN_TARGET] = (sl_data_column){ "target", SLUICE_I32, 1 };
    g->context = context;
    g->table = (sl_table){ .base = { &glue_ops },
                           .seed = (uint64_t)o->seed,
                           .shuffle = o->shuffle,
                           .columns = g->columns,
                           .column_count = COLUMN_COUNT,
                           .write = glue_write };
    sluice_status st = load(g, o);
    if (st != SLUICE_OK) {
        glue_destroy(&g->table.base);
        return st;
    }
    identify(g);
    *out = &g->table.base;
    return SLUICE_OK;
}

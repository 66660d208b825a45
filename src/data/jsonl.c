/* jsonl.c: conversations and texts as a data set: encoded once at the start by all CPUs, kept as tokens, packed or padded into rows.
 *
 * What is kept does not depend on the threads: samples are cut into blocks by their number, and blocks into documents in file order. */
#include "data/jsonl.h"

#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <string.h>

#include "core/alloc.h"
#include "core/bytes.h"
#include "core/grow.h"
#include "core/io.h"
#include "core/quote.h"
#include "core/stop.h"
#include "core/thread.h"
#include "data/packing.h"
#include "data/source.h"

enum { COLUMN_TOKENS, COLUMN_TARGETS, COLUMN_POSITIONS, COLUMN_COUNT };
enum { BLOCK_RECORDS = 128, MAX_CONTEXT = 1 << 24 };

/* Samples that were treated in some way, and where the first of them is. */
typedef struct tally {
    int64_t count, line;
} tally;
typedef struct counts {
    tally truncated, too_long, without_targets, empty, system_dropped;
    int64_t tokens, targets;
} counts;

typedef struct block {
    sl_jsonl_token *tokens; /* owned */
    int64_t token_count, token_capacity;
    int32_t lengths[BLOCK_RECORDS], targets[BLOCK_RECORDS];
    int documents;
    counts counts;
} block;

typedef struct document {
    const sl_jsonl_token *tokens; /* in a block */
    int32_t length, targets;
} document;

/* What was read from one file. */
typedef struct corpus {
    block *blocks; /* owned */
    int64_t block_count;
    int64_t documents, records;
    sl_jsonl_shape shape;
    counts counts;
} corpus;

typedef struct document_set {
    document *documents; /* owned */
    int64_t count;
    sl_packed_rows rows;
} document_set;

typedef struct jsonl {
    sluice_data base;
    sl_data_column columns[COLUMN_COUNT];
    int64_t context;
    uint64_t seed;
    bool shuffle, packs;
    int32_t pad, vocabulary;
    corpus corpora[2]; /* the file to train on, and the one to validate on if it is another */
    int corpus_count;
    document_set sets[2]; /* by sl_data_split */
    char identity[65];
    /* for what is said */
    char *path;
    const char *chat_name, *loss_name;
    char *chat_source; /* NULL: data.template */
    bool end_mark_unknown;
    const char *end_mark;
    const sl_chat_template *new_chat; /* that the tokenizer's folder does not have; NULL: it has */
    char *new_date, *new_eos;         /* owned; as sl_data_jsonl_new_chat */
    sluice_sample first;
    int32_t *first_ids;
    unsigned char *first_loss, *part_loss;
    char *first_text;
    const char **part_texts;
} jsonl;

/* ---- encoding by several threads ---- */

typedef struct crew {
    const sl_jsonl_file *file;
    const sl_jsonl_rules *rules;
    sl_jsonl_shape shape;
    bool skip_empty;
    const int *stop;
    block *blocks;
    pthread_mutex_t lock;
    sl_jsonl_encoder *encoders; /* `idle` of them are */
    sl_jsonl_sample *samples;
    int *idle_list;
    int idle;
    int64_t failed; /* lowest block that did; INT64_MAX: none */
    sluice_status status;
    char message[SL_MESSAGE_BYTES];
} crew;

static void note(tally *t, int64_t line)
{
    if (t->count++ == 0) t->line = line;
}

static sluice_status add_document(block *b, const sl_jsonl_encoder *e)
{
    SL_TRY(SL_GROW(b->tokens, b->token_capacity, b->token_count + e->count, 4096, "tokens of samples"));
    memcpy(b->tokens + b->token_count, e->tokens, (size_t)e->count * sizeof *e->tokens);
    b->token_count += e->count;
    b->lengths[b->documents] = (int32_t)e->count;
    b->targets[b->documents++] = (int32_t)e->targets;
    b->counts.tokens += e->count;
    b->counts.targets += e->targets;
    return SLUICE_OK;
}

static sluice_status encode_record(const crew *c, block *b, int64_t record, sl_jsonl_encoder *e, sl_jsonl_sample *s)
{
    int64_t line = c->file->records[record].line;
    SL_TRY(sl_jsonl_sample_read(c->file, record, c->shape, c->rules->chat, s));
    sl_jsonl_where where = sl_jsonl_place(c->file, record);
    if (s->empty) {
        note(&b->counts.empty, line);
        if (c->skip_empty) return SLUICE_OK;
        return sl_fail(
            SLUICE_ERR_INPUT,
            "%s: an empty %s, from which there is nothing to learn; set data.skip_empty to true to leave such "
            "samples out",
            where.text, c->shape == SL_SHAPE_TEXT ? "text" : "answer");
    }
    if (!s->plain && c->rules->chat == NULL)
        return sl_fail(SLUICE_ERR_INPUT, "%s: messages need a chat template; give data.template", where.text);
    SL_TRY(sl_jsonl_encode(e, s, where.text));
    if (e->system_dropped) note(&b->counts.system_dropped, line);
    if (e->count > c->rules->most) {
        note(&b->counts.too_long, line);
        return SLUICE_OK;
    }
    if (e->whole_count > e->count) note(&b->counts.truncated, line);
    if (e->targets == 0) {
        note(&b->counts.without_targets, line);
        return SLUICE_OK;
    }
    return add_document(b, e);
}

static sluice_status encode_block(const crew *c, int64_t number, sl_jsonl_encoder *e, sl_jsonl_sample *s)
{
    block *b = &c->blocks[number];
    int64_t first = number * BLOCK_RECORDS, last = first + BLOCK_RECORDS;
    if (last > c->file->count) last = c->file->count;
    SL_TRY(sl_stop_poll(c->stop, "encoding the data"));
    for (int64_t i = first; i < last; i++) SL_TRY(encode_record(c, b, i, e, s));
    if (b->tokens == NULL) return SLUICE_OK;
    /* what is kept for the whole run is as large as it must be */
    sl_jsonl_token *fitted = sl_alloc_array((size_t)b->token_count, sizeof *fitted, "tokens of samples");
    if (fitted == NULL) return SLUICE_ERR_NO_MEMORY;
    memcpy(fitted, b->tokens, (size_t)b->token_count * sizeof *fitted);
    sl_free(b->tokens);
    b->tokens = fitted;
    b->token_capacity = b->token_count;
    return SLUICE_OK;
}

/* Blocks are handed out in order, so that all below the lowest one that fails are done: the failure that is reported is the first
 * of the file, whatever the threads did. */
static void encode_task(void *context, int64_t number, void *scratch)
{
    crew *c = context;
    (void)scratch;
    pthread_mutex_lock(&c->lock);
    bool skips = number > c->failed;
    int k = skips ? -1 : c->idle_list[--c->idle];
    pthread_mutex_unlock(&c->lock);
    if (skips) return;
    sluice_status st = encode_block(c, number, &c->encoders[k], &c->samples[k]);
    pthread_mutex_lock(&c->lock);
    c->idle_list[c->idle++] = k;
    if (st != SLUICE_OK && number < c->failed) {
        c->failed = number;
        c->status = st;
        sl_error_copy(c->message);
    }
    pthread_mutex_unlock(&c->lock);
}

static sluice_status make_crew(crew *c, int threads)
{
    c->encoders = sl_alloc_array((size_t)threads, sizeof *c->encoders, "encoders");
    c->samples = sl_alloc_array((size_t)threads, sizeof *c->samples, "encoders");
    c->idle_list = sl_alloc_array((size_t)threads, sizeof *c->idle_list, "encoders");
    if (c->encoders == NULL || c->samples == NULL || c->idle_list == NULL) return SLUICE_ERR_NO_MEMORY;
    for (; c->idle < threads; c->idle++) {
        SL_TRY(sl_jsonl_encoder_make(c->rules, &c->encoders[c->idle]));
        c->idle_list[c->idle] = c->idle;
    }
    return SLUICE_OK;
}

static void free_crew(crew *c)
{
    for (int i = 0; c->encoders != NULL && i < c->idle; i++) {
        sl_jsonl_encoder_free(&c->encoders[i]);
        sl_jsonl_sample_free(&c->samples[i]);
    }
    sl_free(c->encoders);
    sl_free(c->samples);
    sl_free(c->idle_list);
    pthread_mutex_destroy(&c->lock);
}

static sluice_status run_crew(crew *c, int64_t blocks, int threads)
{
    sl_pool *pool;
    SL_TRY(make_crew(c, threads));
    SL_TRY(sl_pool_create(threads, &pool));
    sl_pool_run(pool, encode_task, c, blocks);
    sl_pool_destroy(pool);
    return c->status == SLUICE_OK ? SLUICE_OK : sl_fail(c->status, "%s", c->message);
}

static void add_tally(tally *sum, const tally *t)
{
    if (sum->count == 0) sum->line = t->line;
    sum->count += t->count;
}

static void sum_counts(corpus *c)
{
    for (int64_t i = 0; i < c->block_count; i++) {
        const counts *b = &c->blocks[i].counts;
        add_tally(&c->counts.truncated, &b->truncated);
        add_tally(&c->counts.too_long, &b->too_long);
        add_tally(&c->counts.without_targets, &b->without_targets);
        add_tally(&c->counts.empty, &b->empty);
        add_tally(&c->counts.system_dropped, &b->system_dropped);
        c->counts.tokens += b->tokens;
        c->counts.targets += b->targets;
        c->documents += c->blocks[i].documents;
    }
}

static sluice_status encode_file(const sl_data_options *o, const sl_jsonl_file *f, const sl_jsonl_rules *rules,
                                 corpus *out)
{
    int threads = o->threads > 0 ? o->threads : sl_cpu_count();
    out->records = f->count;
    out->block_count = sl_ceil_div(f->count, BLOCK_RECORDS);
    if (threads > out->block_count) threads = (int)out->block_count;
    out->blocks = sl_alloc_array((size_t)out->block_count, sizeof *out->blocks, "samples");
    if (out->blocks == NULL) return SLUICE_ERR_NO_MEMORY;
    crew c = { .file = f,
               .rules = rules,
               .shape = out->shape,
               .skip_empty = o->skip_empty,
               .stop = o->stop,
               .blocks = out->blocks,
               .failed = INT64_MAX,
               .status = SLUICE_OK };
    pthread_mutex_init(&c.lock, NULL);
    sluice_status st = run_crew(&c, out->block_count, threads);
    free_crew(&c);
    if (st == SLUICE_OK) sum_counts(out);
    return st;
}

/* ---- what the samples are encoded with ---- */

/* A file stands for the folder that it is in. */
static sluice_status find_folder(const char *path, char folder[PATH_MAX])
{
    sl_path_info info;
    SL_TRY(sl_path_look(path, &info));
    if (info.kind != SL_PATH_FOLDER) return sl_path_parent(path, folder);
    if (snprintf(folder, PATH_MAX, "%s", path) < PATH_MAX) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_USAGE, "data.tokenizer: the path is too long");
}

static sluice_status choose_template(jsonl *d, const sl_data_options *o, sl_jsonl_shape shape, sl_chat_folder *folder,
                                     const sl_chat_template **out)
{
    char names[SL_CHAT_NAMES_BYTES];
    bool wants = shape == SL_SHAPE_MESSAGES || shape == SL_SHAPE_CONVERSATIONS;
    *out = NULL;
    if (shape == SL_SHAPE_TEXT) return SLUICE_OK;
    if (sl_given(o->chat)) {
        *out = sl_chat_find(o->chat);
        if (*out != NULL) return SLUICE_OK;
        return sl_fail(SLUICE_ERR_USAGE, "data.template \"%s\" is not one of %s", sl_show(o->chat).text,
                       sl_chat_names(names));
    }
    if (folder->chat != NULL) {
        *out = folder->chat;
        if (d->chat_source == NULL) { /* of two files the first */
            d->chat_source = folder->source;
            folder->source = NULL;
        }
        return SLUICE_OK;
    }
    if (shape == SL_SHAPE_ALPACA && folder->source == NULL) *out = sl_chat_find("alpaca");
    if (*out != NULL || (!wants && folder->source == NULL) || shape == SL_SHAPE_COMPLETION) return SLUICE_OK;
    if (folder->source != NULL) return sl_chat_refuse(folder, "data.template (--set data.template=NAME)");
    return sl_fail(SLUICE_ERR_INPUT, "%s has no chat template, which %s need; give data.template: %s",
                   sl_show(o->tokenizer).text, sl_jsonl_shape_name(shape), sl_chat_names(names));
}

static sluice_status keep_text(const char *text, char **out)
{
    if (*out != NULL || !sl_given(text)) return SLUICE_OK;
    *out = sl_strdup(text, "words of a chat template");
    return *out != NULL ? SLUICE_OK : SLUICE_ERR_NO_MEMORY;
}

/* A folder's own template tells a date of its own, which data.template_date may change. */
static sluice_status note_new_chat(jsonl *d, const sl_chat_folder *folder, const sl_jsonl_rules *r)
{
    const char *told = folder->date != NULL ? folder->date : sl_chat_usual_date(r->chat);
    bool redated = told != NULL && r->words.date != NULL && strcmp(told, r->words.date) != 0;
    if (r->chat == NULL || (r->chat == folder->chat && !redated)) return SLUICE_OK;
    d->new_chat = r->chat;
    SL_TRY(keep_text(r->words.date, &d->new_date));
    return keep_text(r->words.eos, &d->new_eos);
}

/* The end of text: the folder's word for it, or the tokenizer's. */
static void find_end(const sl_tokenizer *t, const sl_chat_folder *folder, sl_jsonl_rules *r)
{
    size_t bytes;
    r->words.bos = folder->bos;
    r->words.eos = folder->eos;
    r->eos = folder->eos != NULL ? sl_tokenizer_find(t, folder->eos, strlen(folder->eos)) : -1;
    if (r->eos < 0) r->eos = sl_tokenizer_end_of_text(t);
    if (r->words.eos == NULL && r->eos >= 0) r->words.eos = sl_tokenizer_content(t, r->eos, &bytes);
}

static sluice_status make_rules(jsonl *d, const sl_data_options *o, const sl_tokenizer *t, sl_chat_folder *folder,
                                sl_jsonl_shape shape, int64_t vocabulary, sl_jsonl_rules *r)
{
    *r = (sl_jsonl_rules){
        .tokenizer = t, .truncate = o->truncate, .most = d->context + 1, .vocabulary = vocabulary > 0 ? vocabulary : 0
    };
    SL_TRY(choose_template(d, o, shape, folder, &r->chat));
    find_end(t, folder, r);
    r->words.date = sl_given(o->chat_date) ? o->chat_date : folder->date;
    SL_TRY(note_new_chat(d, folder, r));
    if (shape == SL_SHAPE_TEXT && o->loss == SL_LOSS_ANSWERS)
        return sl_fail(SLUICE_ERR_USAGE, "data.loss is \"answers\", but the data is plain text, which has none");
    r->loss_on_all = shape == SL_SHAPE_TEXT || o->loss == SL_LOSS_ALL;
    d->loss_name = r->loss_on_all ? "all tokens" : shape == SL_SHAPE_COMPLETION ? "completions" : "answers";
    d->chat_name = r->chat != NULL ? sl_chat_name(r->chat) : NULL;
    d->pad = r->eos >= 0 ? r->eos : 0;
    d->end_mark = r->chat == NULL ? NULL : sl_chat_end_mark(r->chat) != NULL ? sl_chat_end_mark(r->chat) : r->words.eos;
    d->end_mark_unknown = d->end_mark != NULL && sl_tokenizer_find(t, d->end_mark, strlen(d->end_mark)) < 0;
    return SLUICE_OK;
}

/* ---- documents ---- */

static sluice_status read_corpus(jsonl *d, const sl_data_options *o, const char *path, const sl_tokenizer *t,
                                 sl_chat_folder *folder, int64_t vocabulary)
{
    sl_jsonl_file f;
    sl_jsonl_rules rules;
    corpus *c = &d->corpora[d->corpus_count++];
    SL_TRY(sl_jsonl_file_read(o->stop, path, &f));
    sluice_status st = SLUICE_OK;
    if (f.count == 0) st = sl_fail(SLUICE_ERR_INPUT, "%s has no samples", sl_show(path).text);
    if (st == SLUICE_OK) st = sl_jsonl_detect(&f, &c->shape);
    if (st == SLUICE_OK) st = make_rules(d, o, t, folder, c->shape, vocabulary, &rules);
    if (st == SLUICE_OK) st = encode_file(o, &f, &rules, c);
    sl_jsonl_file_free(&f);
    if (st == SLUICE_OK && c->documents == 0)
        st = sl_fail(SLUICE_ERR_INPUT,
                     "%s: none of its %" PRId64 " samples has a token to learn within a context of %" PRId64,
                     sl_show(path).text, c->records, d->context);
    return st;
}

/* Documents [first, last) of a corpus. */
static sluice_status take_documents(const corpus *c, int64_t first, int64_t last, document_set *out)
{
    int64_t number = 0;
    out->documents = sl_alloc_array((size_t)(last - first), sizeof *out->documents, "documents");
    if (out->documents == NULL) return SLUICE_ERR_NO_MEMORY;
    for (int64_t i = 0; i < c->block_count; i++) {
        const block *b = &c->blocks[i];
        const sl_jsonl_token *at = b->tokens;
        for (int k = 0; k < b->documents; at += b->lengths[k++], number++)
            if (number >= first && number < last)
                out->documents[out->count++] = (document){ at, b->lengths[k], b->targets[k] };
    }
    return SLUICE_OK;
}

static sluice_status pack_set(const jsonl *d, document_set *set)
{
    int32_t *lengths = sl_alloc_array((size_t)set->count, sizeof *lengths, "lengths of documents");
    if (lengths == NULL) return SLUICE_ERR_NO_MEMORY;
    for (int64_t i = 0; i < set->count; i++) lengths[i] = set->documents[i].length - 1;
    sluice_status st = sl_packing_make(lengths, set->count, d->context, d->packs, &set->rows);
    sl_free(lengths);
    return st;
}

static sluice_status split_documents(jsonl *d, double validation)
{
    const corpus *c = &d->corpora[0];
    int64_t train = c->documents;
    if (d->corpus_count == 1) SL_TRY(sl_data_train_count(c->documents, validation, &train));
    if (train == 0)
        return sl_fail(SLUICE_ERR_INPUT, "%s: data.validation leaves none of %" PRId64 " samples to train on",
                       sl_show(d->path).text, c->documents);
    SL_TRY(take_documents(c, 0, train, &d->sets[SL_SPLIT_TRAIN]));
    if (d->corpus_count == 2)
        SL_TRY(take_documents(&d->corpora[1], 0, d->corpora[1].documents, &d->sets[SL_SPLIT_VALIDATION]));
    else
        SL_TRY(take_documents(c, train, c->documents, &d->sets[SL_SPLIT_VALIDATION]));
    SL_TRY(pack_set(d, &d->sets[SL_SPLIT_TRAIN]));
    return pack_set(d, &d->sets[SL_SPLIT_VALIDATION]);
}

/* Tokens say all that the tokenizer, the template and the rules did. */
static void identify(jsonl *d)
{
    sl_sha256 h;
    sl_identity_begin(&h, "jsonl context %" PRId64 " packs %d shuffle %d seed %" PRIu64 " train %" PRId64, d->context,
                      d->packs, d->shuffle, d->seed, d->sets[SL_SPLIT_TRAIN].count);
    for (int s = 0; s < 2; s++)
        for (int64_t i = 0; i < d->sets[s].count; i++) {
            const document *doc = &d->sets[s].documents[i];
            sl_sha256_update(&h, &doc->length, sizeof doc->length);
            sl_sha256_update(&h, doc->tokens, (size_t)doc->length * sizeof *doc->tokens);
        }
    sl_identity_end(&h, d->identity);
}

/* ---- batches ---- */

/* A row of the fields that the model has; NULL: it does not have that one. */
typedef struct row_buffers {
    int32_t *columns[COLUMN_COUNT];
} row_buffers;

static row_buffers buffers_of(const jsonl *d, const sl_data_field *fields, int field_count, int64_t row)
{
    row_buffers b = { { NULL, NULL, NULL } };
    for (int f = 0; f < field_count; f++)
        b.columns[sl_data_find_column(d->columns, COLUMN_COUNT, fields[f].name)] = sl_data_row(&fields[f], row);
    return b;
}

static void put(const row_buffers *b, int64_t at, int32_t token, int32_t target, int32_t position)
{
    if (b->columns[COLUMN_TOKENS] != NULL) b->columns[COLUMN_TOKENS][at] = token;
    if (b->columns[COLUMN_TARGETS] != NULL) b->columns[COLUMN_TARGETS][at] = target;
    if (b->columns[COLUMN_POSITIONS] != NULL) b->columns[COLUMN_POSITIONS][at] = position;
}

/* The last token of a document is a target only: nothing is to be predicted from it. What is left of the row is padding, each
 * token a document of its own. */
static void write_row(const jsonl *d, const document_set *set, int64_t row, bool shuffle, uint64_t epoch,
                      const row_buffers *b)
{
    int64_t at = 0, count = sl_packing_row_documents(&set->rows, row);
    for (int64_t k = 0; k < count; k++) {
        const document *doc = &set->documents[sl_packing_document(&set->rows, row, k, d->seed, shuffle, epoch)];
        for (int32_t i = 0; i + 1 < doc->length; i++, at++) {
            sl_jsonl_token next = doc->tokens[i + 1];
            put(b, at, sl_jsonl_id(doc->tokens[i]), sl_jsonl_loss(next) ? sl_jsonl_id(next) : -1, i);
        }
    }
    for (; at < d->context; at++) put(b, at, d->pad, -1, 0);
}

static int64_t jsonl_samples(const sluice_data *data, sl_data_split split)
{
    return ((const jsonl *)data)->sets[split].rows.rows;
}

static sluice_status jsonl_fill(sluice_data *data, uint64_t index, int64_t rows, const sl_data_field *fields,
                                int field_count)
{
    const jsonl *d = (const jsonl *)data;
    const document_set *set = &d->sets[SL_SPLIT_TRAIN];
    uint64_t first;
    SL_TRY(sl_data_match("jsonl", d->columns, COLUMN_COUNT, fields, field_count));
    SL_TRY(sl_data_first_sample(index, rows, &first));
    for (int64_t r = 0; r < rows; r++) {
        sl_data_place place = sl_data_locate(d->seed, d->shuffle, set->rows.rows, first + (uint64_t)r);
        row_buffers b = buffers_of(d, fields, field_count, r);
        write_row(d, set, place.sample, d->shuffle, place.epoch, &b);
    }
    return SLUICE_OK;
}

static sluice_status jsonl_targets(sluice_data *data, uint64_t index, int64_t rows, int64_t *count)
{
    const jsonl *d = (const jsonl *)data;
    const document_set *set = &d->sets[SL_SPLIT_TRAIN];
    uint64_t first;
    int64_t sum = 0;
    SL_TRY(sl_data_first_sample(index, rows, &first));
    for (int64_t r = 0; r < rows; r++) {
        sl_data_place place = sl_data_locate(d->seed, d->shuffle, set->rows.rows, first + (uint64_t)r);
        int64_t documents = sl_packing_row_documents(&set->rows, place.sample);
        for (int64_t k = 0; k < documents; k++)
            sum += set->documents[sl_packing_document(&set->rows, place.sample, k, d->seed, d->shuffle, place.epoch)]
                       .targets;
    }
    *count = sum;
    return SLUICE_OK;
}

static sluice_status jsonl_fill_eval(sluice_data *data, sl_data_split split, int64_t first, int64_t rows,
                                     const sl_data_field *fields, int field_count, int64_t *valid)
{
    const jsonl *d = (const jsonl *)data;
    const document_set *set = &d->sets[split];
    int64_t count = set->rows.rows;
    SL_TRY(sl_data_match("jsonl", d->columns, COLUMN_COUNT, fields, field_count));
    if (first < 0 || first >= count)
        return sl_fail(SLUICE_ERR_USAGE,
                       "the data has %" PRId64 " rows to evaluate, number %" PRId64 " was asked for%s", count, first,
                       count == 0 ? "; data.validation or data.validation_path sets some aside" : "");
    int64_t real = count - first < rows ? count - first : rows;
    for (int64_t r = 0; r < rows; r++) {
        row_buffers b = buffers_of(d, fields, field_count, r);
        write_row(d, set, first + (r < real ? r : real - 1), false, 0, &b);
        for (int64_t i = 0; r >= real && b.columns[COLUMN_TARGETS] != NULL && i < d->context; i++)
            b.columns[COLUMN_TARGETS][i] = -1;
    }
    *valid = real;
    return SLUICE_OK;
}

static bool jsonl_packs(const sluice_data *data)
{
    return ((const jsonl *)data)->packs;
}

static void jsonl_destroy(sluice_data *data)
{
    jsonl *d = (jsonl *)data;
    for (int c = 0; c < d->corpus_count; c++) {
        for (int64_t i = 0; d->corpora[c].blocks != NULL && i < d->corpora[c].block_count; i++)
            sl_free(d->corpora[c].blocks[i].tokens);
        sl_free(d->corpora[c].blocks);
    }
    for (int s = 0; s < 2; s++) {
        sl_free(d->sets[s].documents);
        sl_packing_free(&d->sets[s].rows);
    }
    sl_free(d->path);
    sl_free(d->chat_source);
    sl_free(d->new_date);
    sl_free(d->new_eos);
    sl_free(d->first_ids);
    sl_free(d->first_loss);
    sl_free(d->part_loss);
    sl_free(d->first_text);
    sl_free((void *)d->part_texts);
    sl_free(d);
}

static uint64_t jsonl_memory(const sluice_data *data)
{
    const jsonl *d = (const jsonl *)data;
    uint64_t bytes = sizeof *d;
    for (int c = 0; c < d->corpus_count; c++) {
        bytes += (uint64_t)d->corpora[c].block_count * sizeof(block);
        for (int64_t i = 0; i < d->corpora[c].block_count; i++)
            bytes += (uint64_t)d->corpora[c].blocks[i].token_capacity * sizeof(sl_jsonl_token);
    }
    for (int s = 0; s < 2; s++)
        bytes += (uint64_t)d->sets[s].count * sizeof(document) + sl_packing_bytes(&d->sets[s].rows);
    return bytes;
}

static void jsonl_identity(const sluice_data *data, char sha256[65])
{
    memcpy(sha256, ((const jsonl *)data)->identity, 65);
}

static int64_t jsonl_vocabulary(const sluice_data *data)
{
    return ((const jsonl *)data)->vocabulary;
}

static const sl_data_ops ops = {
    .name = "jsonl",
    .has_tokens = true,
    .destroy = jsonl_destroy,
    .samples = jsonl_samples,
    .fill = jsonl_fill,
    .fill_eval = jsonl_fill_eval,
    .memory_bytes = jsonl_memory,
    .identity = jsonl_identity,
    .targets = jsonl_targets,
    .packs = jsonl_packs,
    .vocabulary = jsonl_vocabulary,
};

/* ---- what is said ---- */

/* Text of the tokens, and in ends[i] how much of it there is after token i. */
static sluice_status decode_all(const sl_tokenizer *t, const document *doc, sl_text *text, size_t *ends)
{
    sl_stream_decoder *decoder;
    sluice_status st = sl_stream_decoder_create(t, 0, &decoder);
    if (st != SLUICE_OK) return st;
    for (int32_t i = 0; st == SLUICE_OK && i < doc->length; i++) {
        st = sl_stream_decoder_add(decoder, sl_jsonl_id(doc->tokens[i]), text);
        ends[i] = text->bytes;
    }
    if (st == SLUICE_OK) st = sl_stream_decoder_finish(decoder, text);
    if (doc->length > 0) ends[doc->length - 1] = text->bytes;
    sl_stream_decoder_destroy(decoder);
    return st == SLUICE_OK ? sl_text_status(text) : st;
}

/* Cuts the text into strings where the loss begins and ends. A control character that ends a string early is not shown. */
static void cut_parts(jsonl *d, const sl_text *text, const size_t *ends)
{
    size_t begin = 0, out = 0;
    int parts = 0;
    for (int64_t i = 0; i < d->first.count; i++) {
        bool last = i + 1 == d->first.count || d->first_loss[i + 1] != d->first_loss[i];
        if (!last) continue;
        d->part_texts[parts] = d->first_text + out;
        d->part_loss[parts++] = d->first_loss[i];
        memcpy(d->first_text + out, text->data + begin, ends[i] - begin);
        out += ends[i] - begin + 1;
        begin = ends[i];
    }
    d->first.part_count = parts;
}

static sluice_status keep_first(jsonl *d, const sl_tokenizer *t)
{
    const document_set *set = &d->sets[SL_SPLIT_TRAIN];
    int64_t row = sl_data_locate(d->seed, d->shuffle, set->rows.rows, 0).sample;
    const document *doc = &set->documents[sl_packing_document(&set->rows, row, 0, d->seed, d->shuffle, 0)];
    size_t count = (size_t)doc->length;
    sl_text text = { NULL, 0, 0, false };
    size_t *ends = sl_alloc_array(count, sizeof *ends, "first sample");
    d->first_ids = sl_alloc_array(count, sizeof *d->first_ids, "first sample");
    d->first_loss = sl_alloc_array(count, 1, "first sample");
    d->part_loss = sl_alloc_array(count, 1, "first sample");
    d->part_texts = sl_alloc_array(count, sizeof *d->part_texts, "first sample");
    sluice_status st = SLUICE_ERR_NO_MEMORY;
    if (ends != NULL && d->first_ids != NULL && d->first_loss != NULL && d->part_loss != NULL && d->part_texts != NULL)
        st = decode_all(t, doc, &text, ends);
    if (st == SLUICE_OK && (d->first_text = sl_alloc(text.bytes + count + 1, "first sample")) == NULL)
        st = SLUICE_ERR_NO_MEMORY;
    if (st == SLUICE_OK) {
        for (size_t i = 0; i < count; i++) {
            d->first_ids[i] = sl_jsonl_id(doc->tokens[i]);
            d->first_loss[i] = i > 0 && sl_jsonl_loss(doc->tokens[i]);
        }
        d->first = (sluice_sample){ (int64_t)count, d->first_ids, d->first_loss, 0, d->part_texts, d->part_loss };
        cut_parts(d, &text, ends);
    }
    sl_text_free(&text);
    sl_free(ends);
    return st;
}

const sluice_sample *sl_data_jsonl_first(const sluice_data *data)
{
    return data != NULL && data->ops == &ops ? &((const jsonl *)data)->first : NULL;
}

const sl_chat_template *sl_data_jsonl_new_chat(const sluice_data *data, const char **date, const char **eos)
{
    if (data == NULL || data->ops != &ops) return NULL;
    const jsonl *d = (const jsonl *)data;
    *date = d->new_date;
    *eos = d->new_eos;
    return d->new_chat;
}

static void say_tally(const sl_log *log, const tally *t, const char *path, const char *what)
{
    if (t->count == 0) return;
    sl_log_write(log, SLUICE_LOG_WARNING, "%s: %s: %" PRId64 " sample%s, the first on line %" PRId64, path, what,
                 t->count, t->count == 1 ? "" : "s", t->line);
}

static void say_corpus(const jsonl *d, const corpus *c, const char *path, const sl_log *log)
{
    char cut[96];
    sl_log_write(log, SLUICE_LOG_NOTE,
                 "%s: %" PRId64 " samples of %s, %" PRId64 " tokens, loss on %s: %" PRId64 " targets", path,
                 c->documents, sl_jsonl_shape_name(c->shape), c->counts.tokens, d->loss_name, c->counts.targets);
    snprintf(cut, sizeof cut, "cut to %" PRId64 " tokens (data.truncate)", d->context + 1);
    say_tally(log, &c->counts.truncated, path, cut);
    say_tally(log, &c->counts.too_long, path, "left out, as longer than the context (data.truncate)");
    say_tally(log, &c->counts.empty, path, "left out, as an answer is empty (data.skip_empty)");
    say_tally(log, &c->counts.without_targets, path, "left out, as no token counts in the loss");
    say_tally(log, &c->counts.system_dropped, path, "a system message that the chat template leaves out");
}

static void say_rows(const jsonl *d, const sl_log *log)
{
    const document_set *set = &d->sets[SL_SPLIT_TRAIN];
    int64_t used = 0;
    for (int64_t i = 0; i < set->count; i++) used += set->documents[i].length - 1;
    sl_log_write(log, SLUICE_LOG_NOTE,
                 "%" PRId64 " sample%s to train on %s %s %" PRId64 " row%s of %" PRId64 " tokens, %.1f%% full",
                 set->count, set->count == 1 ? "" : "s", set->count == 1 ? "is" : "are",
                 d->packs ? "packed into" : "padded to", set->rows.rows, set->rows.rows == 1 ? "" : "s", d->context,
                 100 * (double)used / ((double)set->rows.rows * (double)d->context));
}

void sl_data_jsonl_say(const sluice_data *data, const sl_log *log)
{
    if (data == NULL || data->ops != &ops) return;
    const jsonl *d = (const jsonl *)data;
    say_corpus(d, &d->corpora[0], sl_show(d->path).text, log);
    if (d->corpus_count == 2) say_corpus(d, &d->corpora[1], "data.validation_path", log);
    if (d->chat_name != NULL)
        sl_log_write(log, SLUICE_LOG_NOTE, "chat template %s, from %s", d->chat_name,
                     d->chat_source != NULL ? d->chat_source : "data.template");
    if (d->end_mark_unknown)
        sl_log_write(
            log, SLUICE_LOG_WARNING,
            "the tokenizer has no token %s, which ends an answer in the chat template \"%s\": it is learned as plain "
            "text",
            d->end_mark, d->chat_name);
    say_rows(d, log);
}

/* ---- opening ---- */

static sluice_status load_with(jsonl *d, const sl_data_options *o, const sl_tokenizer *t, sl_chat_folder *folder,
                               int64_t vocabulary)
{
    d->vocabulary = sl_tokenizer_size(t);
    SL_TRY(read_corpus(d, o, o->path, t, folder, vocabulary));
    if (sl_given(o->validation_path)) SL_TRY(read_corpus(d, o, o->validation_path, t, folder, vocabulary));
    SL_TRY(split_documents(d, o->validation));
    identify(d);
    return keep_first(d, t);
}

static sluice_status load(jsonl *d, const sl_data_options *o, int64_t vocabulary)
{
    sl_tokenizer *t;
    sl_chat_folder folder;
    char path[PATH_MAX];
    SL_TRY(sl_tokenizer_open(o->tokenizer, &t));
    sluice_status st = find_folder(o->tokenizer, path);
    if (st == SLUICE_OK) st = sl_chat_folder_read(o->chat_folder, path, &folder);
    if (st == SLUICE_OK) {
        st = load_with(d, o, t, &folder, vocabulary);
        sl_chat_folder_free(&folder);
    }
    sl_tokenizer_close(t);
    return st;
}

static sluice_status check(const sl_data_options *o, int64_t context)
{
    if (!sl_given(o->path)) return sl_fail(SLUICE_ERR_USAGE, "data.path is missing; give the file of samples");
    if (!sl_given(o->tokenizer))
        return sl_fail(SLUICE_ERR_USAGE,
                       "data.tokenizer is missing; give a folder with tokenizer.json, or model.path, whose it then is");
    if (context < 1 || context > MAX_CONTEXT)
        return sl_fail(SLUICE_ERR_USAGE, "model.context is %" PRId64 "; give 1 to %d", context, MAX_CONTEXT);
    if (sl_given(o->chat_date) && strpbrk(o->chat_date, "'\\\n") != NULL)
        return sl_fail(SLUICE_ERR_USAGE,
                       "data.template_date %s: a date has neither quotes nor backslashes; write it as 26 Jul 2024",
                       sl_quote(o->chat_date).text);
    if (sl_given(o->validation_path) && o->validation > 0)
        return sl_fail(SLUICE_ERR_USAGE, "data.validation and data.validation_path are both given; leave one out");
    return SLUICE_OK;
}

sluice_status sl_data_jsonl(const sl_data_options *o, int64_t context, int64_t vocabulary, sluice_data **out)
{
    SL_TRY(check(o, context));
    jsonl *d = sl_alloc(sizeof *d, "jsonl data");
    if (d == NULL) return SLUICE_ERR_NO_MEMORY;
    d->base.ops = &ops;
    d->columns[COLUMN_TOKENS] = (sl_data_column){ "tokens", SLUICE_I32, context };
    d->columns[COLUMN_TARGETS] = (sl_data_column){ "targets", SLUICE_I32, context };
    d->columns[COLUMN_POSITIONS] = (sl_data_column){ "positions", SLUICE_I32, context };
    d->context = context;
    d->seed = (uint64_t)o->seed;
    d->shuffle = o->shuffle;
    d->packs = o->packing != SL_PACKING_NONE;
    d->path = sl_strdup(o->path, "path of the data");
    sluice_status st = d->path != NULL ? load(d, o, vocabulary) : SLUICE_ERR_NO_MEMORY;
    if (st != SLUICE_OK) {
        jsonl_destroy(&d->base);
        return st;
    }
    *out = &d->base;
    return SLUICE_OK;
}

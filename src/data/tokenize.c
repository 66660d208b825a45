/* tokenize.c: sluice_tokenize: files of text become a file of token ids.
 *
 * An input is read in blocks. A block is cut into segments (documents, or parts of one at places where that changes nothing),
 * threads encode runs of segments, and the ids are written in the order of the text. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/bytes.h"
#include "core/file_set.h"
#include "core/quote.h"
#include "core/sized.h"
#include "core/stop.h"
#include "core/thread.h"
#include "core/utf8.h"
#include "format/model_files.h"
#include "format/tokenizer.h"

#define BLOCK_BYTES       ((size_t)32 << 20)
#define LARGEST_BLOCK     ((size_t)INT32_MAX)
#define SEGMENT_BYTES     ((size_t)1 << 20) /* of a document that is cut */
#define POLL_MILLISECONDS 100
#define TASK_BYTES        ((size_t)1 << 18)

enum { NPY_HEADER = 128, LLMC_HEADER = 1024, BUFFER_IDS = 1 << 16 };

typedef struct segment {
    size_t begin, end;
    bool ends; /* a document ends with it */
} segment;

typedef struct task {
    size_t first, end; /* segments */
    sl_ids ids;
} task;

typedef struct token_writer {
    sl_output output;
    bool begun;
    int token_bytes;
    uint64_t header, count;
    uint8_t *buffer; /* owned; BUFFER_IDS of token_bytes */
} token_writer;

typedef struct job {
    const sluice_tokenize_options *o;
    sl_tokenizer *tokenizer;
    int32_t eos; /* -1: none */
    unsigned flags;
    bool cuts;
    sl_pool *pool;
    pthread_mutex_t lock;
    sl_encoder **encoders; /* those that no task has */
    int free_encoders, threads;
    const char *name; /* of the input at hand */
    char *block;      /* owned */
    size_t capacity, filled;
    uint64_t before; /* bytes of the input before the block */
    segment *segments;
    size_t segment_count, segment_capacity;
    task *tasks;
    size_t task_count, task_capacity;
    token_writer writer;
    FILE *print; /* of ids and tokens, where nothing is written */
    uint64_t documents, bytes, done, total;
} job;

void sluice_tokenize_options_init_sized(sluice_tokenize_options *o, size_t size)
{
    sl_sized_fill(o, size, &(sluice_tokenize_options){ 0 }, sizeof *o);
}

/* ---- Segments of a block ---- */

static sluice_status add_segment(job *j, size_t begin, size_t end, bool ends)
{
    if (j->segment_count == j->segment_capacity) {
        size_t capacity = j->segment_capacity == 0 ? 1024 : 2 * j->segment_capacity;
        segment *segments = sl_realloc(j->segments, j->segment_capacity * sizeof *segments, capacity * sizeof *segments,
                                       "documents of a block");
        if (segments == NULL) return SLUICE_ERR_NO_MEMORY;
        j->segments = segments;
        j->segment_capacity = capacity;
    }
    j->segments[j->segment_count++] = (segment){ begin, end, ends };
    return SLUICE_OK;
}

/* Lines that have something in them. */
static sluice_status cut_lines(job *j, bool ended, size_t *used)
{
    size_t at = 0;
    while (at < j->filled) {
        const char *found = memchr(j->block + at, '\n', j->filled - at);
        if (found == NULL && !ended) break;
        size_t line_end = found == NULL ? j->filled : (size_t)(found - j->block);
        size_t end = line_end > at && j->block[line_end - 1] == '\r' ? line_end - 1 : line_end;
        if (end > at) SL_TRY(add_segment(j, at, end, true));
        at = found == NULL ? j->filled : line_end + 1;
    }
    *used = at;
    return SLUICE_OK;
}

/* Whether a cut before block[at] changes no id; see sl_tokenizer_cuts_at_lines. */
static bool is_cut(const char *block, size_t at)
{
    char letter = (char)(block[at] | 0x20);
    return block[at - 1] == '\n' && block[at - 2] > ' ' && block[at - 2] < 0x7f && letter >= 'a' && letter <= 'z';
}

static sluice_status cut_document(job *j, bool ended, size_t *used)
{
    size_t begin = 0;
    for (size_t at = SEGMENT_BYTES; j->cuts && at < j->filled; at++) {
        const char *line = memchr(j->block + at - 1, '\n', j->filled - at);
        if (line == NULL) break;
        at = (size_t)(line - j->block) + 1;
        if (!is_cut(j->block, at)) continue;
        SL_TRY(add_segment(j, begin, at, false));
        begin = at;
        at += SEGMENT_BYTES;
    }
    if (ended) {
        if (begin < j->filled) SL_TRY(add_segment(j, begin, j->filled, true));
        begin = j->filled;
    }
    *used = begin;
    return SLUICE_OK;
}

static sluice_status make_tasks(job *j)
{
    size_t need = j->segment_count;
    if (need > j->task_capacity) {
        task *tasks = sl_realloc(j->tasks, j->task_capacity * sizeof *tasks, need * sizeof *tasks, "tokens of a block");
        if (tasks == NULL) return SLUICE_ERR_NO_MEMORY;
        j->tasks = tasks;
        j->task_capacity = need;
    }
    j->task_count = 0;
    for (size_t i = 0; i < j->segment_count;) {
        size_t first = i, bytes = 0;
        while (i < j->segment_count && bytes < TASK_BYTES) {
            bytes += j->segments[i].end - j->segments[i].begin;
            i++;
        }
        task *t = &j->tasks[j->task_count++];
        t->first = first;
        t->end = i;
        t->ids.count = 0;
    }
    return SLUICE_OK;
}

/* ---- Encoding ---- */

static sl_encoder *take_encoder(job *j)
{
    pthread_mutex_lock(&j->lock);
    sl_encoder *e = j->encoders[--j->free_encoders];
    pthread_mutex_unlock(&j->lock);
    return e;
}

static void give_encoder(job *j, sl_encoder *e)
{
    pthread_mutex_lock(&j->lock);
    j->encoders[j->free_encoders++] = e;
    pthread_mutex_unlock(&j->lock);
}

static sluice_status encode_segments(job *j, task *t, sl_encoder *e)
{
    for (size_t i = t->first; i < t->end; i++) {
        const segment *s = &j->segments[i];
        SL_TRY(sl_encode(e, j->block + s->begin, s->end - s->begin, j->flags, &t->ids));
        if (s->ends && j->eos >= 0) SL_TRY(sl_ids_add(&t->ids, j->eos));
    }
    return SLUICE_OK;
}

static sluice_status encode_task(void *context, int64_t number, void *scratch)
{
    job *j = context;
    (void)scratch;
    sl_encoder *e = take_encoder(j);
    sluice_status st = encode_segments(j, &j->tasks[number], e);
    give_encoder(j, e);
    return st;
}

static sluice_status check_utf8(const job *j, size_t bytes)
{
    size_t bad;
    if (sl_utf8_valid(j->block, bytes, &bad)) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_INPUT, "%s: byte %llu (0x%02x) is not UTF-8; convert the file, for example with iconv",
                   j->name, (unsigned long long)(j->before + bad), (unsigned char)j->block[bad]);
}

/* ---- Writing ---- */

static bool is_npy(const char *path)
{
    size_t bytes = strlen(path);
    return bytes > 4 && strcmp(path + bytes - 4, ".npy") == 0;
}

static sluice_status writer_begin(token_writer *w, const char *path, int token_bytes, bool llmc)
{
    w->token_bytes = token_bytes;
    w->header = is_npy(path) ? NPY_HEADER : llmc ? LLMC_HEADER : 0;
    w->buffer = sl_alloc((size_t)BUFFER_IDS * 4, "tokens to write");
    if (w->buffer == NULL) return SLUICE_ERR_NO_MEMORY;
    SL_TRY(sl_output_begin(path, &w->output));
    w->begun = true;
    return SLUICE_OK;
}

static sluice_status writer_add(token_writer *w, const int32_t *ids, size_t count)
{
    for (size_t done = 0; done < count;) {
        size_t part = count - done < BUFFER_IDS ? count - done : BUFFER_IDS;
        for (size_t i = 0; i < part; i++)
            for (int b = 0; b < w->token_bytes; b++)
                w->buffer[i * (size_t)w->token_bytes + (size_t)b] = (uint8_t)((uint32_t)ids[done + i] >> 8 * b);
        SL_TRY(sl_file_pwrite(&w->output.file, w->buffer, part * (size_t)w->token_bytes,
                              w->header + w->count * (uint64_t)w->token_bytes));
        w->count += part;
        done += part;
    }
    return SLUICE_OK;
}

static void make_header(const token_writer *w, uint8_t out[LLMC_HEADER])
{
    memset(out, 0, LLMC_HEADER);
    if (w->header == NPY_HEADER) {
        char text[NPY_HEADER];
        int bytes = snprintf(text, sizeof text, "{'descr': '<u%d', 'fortran_order': False, 'shape': (%llu,), }",
                             w->token_bytes, (unsigned long long)w->count);
        memset(out, ' ', NPY_HEADER);
        memcpy(out, "\x93NUMPY\x01\x00", 8);
        out[8] = NPY_HEADER - 10;
        out[9] = 0;
        memcpy(out + 10, text, (size_t)bytes);
        out[NPY_HEADER - 1] = '\n';
        return;
    }
    uint32_t words[3] = { w->token_bytes == 2 ? 20240520 : 20240801, w->token_bytes == 2 ? 1 : 7, (uint32_t)w->count };
    for (int i = 0; i < 12; i++) out[i] = (uint8_t)(words[i / 4] >> 8 * (i % 4));
}

static sluice_status writer_finish(token_writer *w)
{
    uint8_t header[LLMC_HEADER];
    if (w->header == LLMC_HEADER && w->count > INT32_MAX)
        return sl_fail(SLUICE_ERR_USAGE,
                       "llm.c's header counts to 2147483647 tokens, these are %llu; write bare files or .npy",
                       (unsigned long long)w->count);
    make_header(w, header);
    if (w->header > 0) SL_TRY(sl_file_pwrite(&w->output.file, header, w->header, 0));
    w->begun = false;
    return sl_output_finish(&w->output);
}

static void writer_drop(token_writer *w)
{
    if (w->begun) sl_output_drop(&w->output);
    sl_free(w->buffer);
}

/* Moves the last `count` tokens to the end of another file. */
static sluice_status move_tail(const int *stop, token_writer *from, token_writer *to, uint64_t count)
{
    uint64_t width = (uint64_t)from->token_bytes;
    for (uint64_t done = 0; done < count;) {
        uint64_t part = count - done < BUFFER_IDS ? count - done : BUFFER_IDS;
        SL_TRY(sl_stop_poll(stop, "tokenizing"));
        uint64_t at = from->header + (from->count - count + done) * width;
        SL_TRY(sl_file_pread(&from->output.file, to->buffer, part * width, at));
        SL_TRY(sl_file_pwrite(&to->output.file, to->buffer, part * width, to->header + to->count * width));
        to->count += part;
        done += part;
    }
    from->count -= count;
    return sl_file_truncate(&from->output.file, from->header + from->count * width);
}

static void print_tokens(const job *j, const sl_ids *ids)
{
    for (size_t i = 0; i < ids->count; i++) {
        size_t bytes, length;
        char escaped[SL_ESCAPE_BYTES];
        const char *text = sl_tokenizer_content(j->tokenizer, ids->data[i], &bytes);
        fprintf(j->print, "%7d  \"", ids->data[i]);
        for (size_t at = 0; at < bytes; at += length) {
            length = text[at] == '\0' ? 1 : sl_json_escape(text + at, escaped);
            fputs(text[at] == '\0' ? "\\u0000" : escaped, j->print);
        }
        fputs("\"\n", j->print);
    }
}

/* ---- Inputs ---- */

typedef struct source {
    sl_file file;
    FILE *stream; /* instead of the file */
    uint64_t at, size;
} source;

static sluice_status open_source(const job *j, const char *name, source *s)
{
    *s = (source){ .size = UINT64_MAX };
    if (strcmp(name, "-") == 0) {
        s->stream = j->o->standard_input;
        return s->stream != NULL ? SLUICE_OK : sl_fail(SLUICE_ERR_USAGE, "sluice_tokenize: there is no standard input");
    }
    SL_TRY(sl_file_open(name, SL_READ, &s->file));
    sluice_status st = sl_file_size(&s->file, &s->size);
    if (st != SLUICE_OK) sl_file_close(&s->file);
    return st;
}

/* Whether something can be read of a stream, or it has ended: fread would wait for that through a request to stop. A stream
 * without a descriptor does not wait. */
static sluice_status wait_for(const int *stop, FILE *stream)
{
    struct pollfd in = { .fd = fileno(stream), .events = POLLIN };
    while (stop != NULL && in.fd >= 0) {
        SL_TRY(sl_stop_poll(stop, "tokenizing"));
        int ready = poll(&in, 1, POLL_MILLISECONDS);
        if (ready > 0) break;
        if (ready < 0 && errno != EINTR) return sl_fail(SLUICE_ERR_IO, "standard input: %s", strerror(errno));
    }
    return SLUICE_OK;
}

/* As much of a stream as there is: with a descriptor never more than one read, which poll has promised not to wait. */
static sluice_status read_stream(const job *j, FILE *stream, char *to, size_t room, size_t *got)
{
    SL_TRY(wait_for(j->o->stop, stream));
    if (j->o->stop == NULL || fileno(stream) < 0) {
        *got = fread(to, 1, room, stream);
        return ferror(stream) ? sl_fail(SLUICE_ERR_IO, "standard input cannot be read") : SLUICE_OK;
    }
    ssize_t n = read(fileno(stream), to, room);
    if (n < 0) return sl_fail(SLUICE_ERR_IO, "standard input: %s", strerror(errno));
    *got = (size_t)n;
    return SLUICE_OK;
}

/* Fills the block up; *ended: that was all. */
static sluice_status fill_block(job *j, source *s, bool *ended)
{
    size_t room = j->capacity - j->filled;
    if (s->stream != NULL) {
        for (size_t got = 1; got > 0 && room > 0; room -= got) {
            SL_TRY(read_stream(j, s->stream, j->block + j->filled, room, &got));
            j->filled += got;
            *ended = got == 0;
        }
        return SLUICE_OK;
    }
    size_t part = s->size - s->at < room ? (size_t)(s->size - s->at) : room;
    SL_TRY(sl_file_pread(&s->file, j->block + j->filled, part, s->at));
    j->filled += part;
    s->at += part;
    *ended = s->at == s->size;
    return SLUICE_OK;
}

static sluice_status grow_block(job *j)
{
    size_t capacity = j->capacity == 0 ? BLOCK_BYTES : 2 * j->capacity;
    if (capacity > LARGEST_BLOCK) capacity = LARGEST_BLOCK;
    if (capacity == j->capacity)
        return sl_fail(SLUICE_ERR_INPUT,
                       "%s: a document of more than %zu bytes; cut it, or give --lines where lines are documents",
                       j->name, LARGEST_BLOCK);
    char *block = sl_realloc(j->block, j->capacity, capacity, "text to tokenize");
    if (block == NULL) return SLUICE_ERR_NO_MEMORY;
    j->block = block;
    j->capacity = capacity;
    return SLUICE_OK;
}

static sluice_status keep_ids(job *j)
{
    for (size_t i = 0; i < j->task_count; i++) {
        const sl_ids *ids = &j->tasks[i].ids;
        SL_TRY(sl_stop_poll(j->o->stop, "tokenizing"));
        if (j->print != NULL)
            print_tokens(j, ids);
        else if (j->writer.begun)
            SL_TRY(writer_add(&j->writer, ids->data, ids->count));
        if (!j->writer.begun) j->writer.count += ids->count;
    }
    return SLUICE_OK;
}

/* Encodes and keeps the segments of the block, the first `used` bytes, and moves the rest to its front. */
static sluice_status encode_block(job *j, size_t used)
{
    SL_TRY(check_utf8(j, used));
    SL_TRY(sl_stop_poll(j->o->stop, "tokenizing"));
    SL_TRY(make_tasks(j));
    SL_TRY(sl_pool_try(j->pool, encode_task, j, (int64_t)j->task_count));
    SL_TRY(keep_ids(j));
    for (size_t i = 0; i < j->segment_count; i++) {
        j->bytes += j->segments[i].end - j->segments[i].begin;
        j->documents += j->segments[i].ends;
    }
    if (used > 0) memmove(j->block, j->block + used, j->filled - used);
    j->filled -= used;
    j->before += used;
    j->done += used;
    if (j->o->progress != NULL) j->o->progress(j->o->user, j->done, j->total);
    return SLUICE_OK;
}

static sluice_status tokenize_source(job *j, source *s)
{
    bool ended = false;
    j->filled = 0;
    j->before = 0;
    while (!ended) {
        size_t used;
        SL_TRY(sl_stop_poll(j->o->stop, "tokenizing"));
        if (j->filled == j->capacity) SL_TRY(grow_block(j));
        SL_TRY(fill_block(j, s, &ended));
        j->segment_count = 0;
        SL_TRY(j->o->lines ? cut_lines(j, ended, &used) : cut_document(j, ended, &used));
        SL_TRY(encode_block(j, used));
    }
    return SLUICE_OK;
}

static sluice_status tokenize_input(job *j, const char *name)
{
    source s;
    j->name = strcmp(name, "-") == 0 ? "standard input" : name;
    SL_TRY(open_source(j, name, &s));
    sluice_status st = tokenize_source(j, &s);
    if (s.stream == NULL) sl_file_close(&s.file);
    return st;
}

/* ---- The whole ---- */

static sluice_status find_eos(job *j)
{
    const char *eos = j->o->eos;
    j->eos = -1;
    if (eos == NULL) return SLUICE_OK;
    bool automatic = strcmp(eos, "auto") == 0;
    j->eos = automatic ? sl_tokenizer_end_of_text(j->tokenizer) : sl_tokenizer_find(j->tokenizer, eos, strlen(eos));
    if (j->eos >= 0) return SLUICE_OK;
    return automatic
               ? sl_fail(SLUICE_ERR_USAGE, "none of the usual names of an end of text is a token here; name one")
               : sl_fail(SLUICE_ERR_USAGE, "the end of text %s is not a token of this vocabulary", sl_quote(eos).text);
}

static sluice_status make_encoders(job *j)
{
    j->encoders = sl_alloc_array((size_t)j->threads, sizeof(sl_encoder *), "encoders");
    if (j->encoders == NULL) return SLUICE_ERR_NO_MEMORY;
    for (int i = 0; i < j->threads; i++) {
        SL_TRY(sl_encoder_create(j->tokenizer, &j->encoders[i]));
        sl_encoder_stop_on(j->encoders[i], j->o->stop);
        j->free_encoders++;
    }
    return sl_pool_create(j->threads, &j->pool);
}

/* The sum of the files' sizes, for progress; 0 with standard input among them. Every file is opened before anything is written. */
static sluice_status measure_inputs(job *j)
{
    for (int i = 0; i < j->o->input_count; i++) {
        source s;
        SL_TRY(open_source(j, j->o->inputs[i], &s));
        if (s.stream != NULL) {
            j->total = 0;
            return SLUICE_OK;
        }
        j->total += s.size;
        sl_file_close(&s.file);
    }
    return SLUICE_OK;
}

/* An output that is one of the inputs would be lost. */
static sluice_status check_files(const char *tokenizer, const sluice_tokenize_options *o)
{
    sl_file_set files;
    sl_file_set_init(&files, NULL, sl_is_model_member);
    files.stop = o->stop;
    sluice_status st = sl_file_set_add(&files, "the tokenizer", tokenizer, SL_SET_MODEL);
    for (int i = 0; i < o->input_count && st == SLUICE_OK; i++)
        if (strcmp(o->inputs[i], "-") != 0) st = sl_file_set_add(&files, "a text", o->inputs[i], SL_SET_READ);
    if (st == SLUICE_OK) st = sl_file_set_add(&files, "--out", o->out, SL_SET_WRITE_FILE);
    if (st == SLUICE_OK && o->validation > 0)
        st = sl_file_set_add(&files, "--validation-out", o->validation_out, SL_SET_WRITE_FILE);
    if (st == SLUICE_OK) st = sl_file_set_check(&files);
    sl_file_set_free(&files);
    return st;
}

static sluice_status token_width(const job *j, int *out)
{
    int32_t size = sl_tokenizer_size(j->tokenizer);
    *out = j->o->token_bytes != 0 ? j->o->token_bytes : size <= 65536 ? 2 : 4;
    if (*out == 2 && size > 65536)
        return sl_fail(SLUICE_ERR_USAGE, "a vocabulary of %d ids does not fit in uint16; take uint32", size);
    return SLUICE_OK;
}

static sluice_status split_validation(job *j)
{
    token_writer tail = { 0 };
    uint64_t count = (uint64_t)((double)j->writer.count * j->o->validation);
    sluice_status st =
        writer_begin(&tail, j->o->validation_out, j->writer.token_bytes, j->writer.header == LLMC_HEADER);
    if (st == SLUICE_OK) st = move_tail(j->o->stop, &j->writer, &tail, count);
    if (st == SLUICE_OK) st = writer_finish(&tail);
    writer_drop(&tail);
    return st;
}

static void print_summary(const job *j, uint64_t tokens, double seconds, FILE *out)
{
    fprintf(out, "%llu document%s, %llu tokens, %llu bytes", (unsigned long long)j->documents,
            j->documents == 1 ? "" : "s", (unsigned long long)tokens, (unsigned long long)j->bytes);
    if (tokens > 0) fprintf(out, " (%.2f bytes/token)", (double)j->bytes / (double)tokens);
    if (seconds > 0 && j->o->out != NULL) fprintf(out, ", %.1f MB/s", (double)j->bytes / 1e6 / seconds);
    if (j->o->out != NULL)
        fprintf(out, "\n%s: %llu tokens, uint%d", sl_show(j->o->out).text, (unsigned long long)j->writer.count,
                8 * j->writer.token_bytes);
    if (j->o->validation > 0 && j->o->out != NULL)
        fprintf(out, "\n%s: %llu tokens", sl_show(j->o->validation_out).text,
                (unsigned long long)(tokens - j->writer.count));
    fputc('\n', out);
}

static sluice_status tokenize_all(job *j, FILE *out)
{
    const sluice_tokenize_options *o = j->o;
    double start = sl_now();
    int width;
    SL_TRY(find_eos(j));
    SL_TRY(token_width(j, &width));
    SL_TRY(measure_inputs(j));
    SL_TRY(make_encoders(j));
    SL_TRY(grow_block(j));
    if (o->out != NULL) SL_TRY(writer_begin(&j->writer, o->out, width, o->llmc_header));
    for (int i = 0; i < o->input_count; i++) SL_TRY(tokenize_input(j, o->inputs[i]));
    uint64_t tokens = j->writer.count;
    if (o->validation > 0) SL_TRY(split_validation(j));
    if (o->out != NULL) SL_TRY(writer_finish(&j->writer));
    if (out != NULL) print_summary(j, tokens, sl_now() - start, out);
    return SLUICE_OK;
}

static void free_job(job *j)
{
    writer_drop(&j->writer);
    sl_pool_destroy(j->pool);
    for (int i = 0; i < j->free_encoders; i++) sl_encoder_destroy(j->encoders[i]);
    sl_free(j->encoders);
    for (size_t i = 0; i < j->task_capacity; i++) sl_ids_free(&j->tasks[i].ids);
    sl_free(j->tasks);
    sl_free(j->segments);
    sl_free(j->block);
    sl_tokenizer_close(j->tokenizer);
    pthread_mutex_destroy(&j->lock);
}

static sluice_status check_options(const sluice_tokenize_options *o)
{
    if (o->input_count < 1 || o->inputs == NULL) return sl_fail(SLUICE_ERR_USAGE, "sluice_tokenize: there is no input");
    for (int i = 0; i < o->input_count; i++)
        if (o->inputs[i] == NULL) return sl_fail(SLUICE_ERR_USAGE, "sluice_tokenize: input %d is NULL", i);
    if (o->token_bytes != 0 && o->token_bytes != 2 && o->token_bytes != 4)
        return sl_fail(SLUICE_ERR_USAGE, "sluice_tokenize: token_bytes is %d, not 0, 2 or 4", o->token_bytes);
    if (!(o->validation >= 0 && o->validation < 1))
        return sl_fail(SLUICE_ERR_USAGE, "sluice_tokenize: validation is %g, not from 0 to below 1", o->validation);
    if (o->validation > 0 && (o->out == NULL || o->validation_out == NULL))
        return sl_fail(SLUICE_ERR_USAGE, "sluice_tokenize: a share for validation needs both outputs");
    if (o->threads < 0 || o->threads > SL_MAX_THREADS)
        return sl_fail(SLUICE_ERR_USAGE, "sluice_tokenize: threads is %d, not from 0 to %d", o->threads,
                       SL_MAX_THREADS);
    return SLUICE_OK;
}

sluice_status sluice_tokenize(const char *tokenizer, const sluice_tokenize_options *options, FILE *out)
{
    sluice_tokenize_options o;
    SL_NEED_PATH(tokenizer);
    SL_NEED(options);
    sluice_tokenize_options_init(&o);
    SL_TRY(sl_sized_take("sluice_tokenize_options", options, SL_THROUGH(sluice_tokenize_options, stop), &o, sizeof o));
    SL_TRY(check_options(&o));
    SL_TRY(check_files(tokenizer, &o));
    job j = { .o = &o, .threads = o.threads > 0 ? o.threads : sl_cpu_count() };
    pthread_mutex_init(&j.lock, NULL);
    sluice_status st = sl_tokenizer_open(tokenizer, &j.tokenizer);
    if (st == SLUICE_OK) {
        j.flags = (o.add_special ? SL_ENCODE_ADD_SPECIAL : 0u) | (o.special_in_text ? 0u : SL_ENCODE_PLAIN);
        j.cuts = !o.add_special && sl_tokenizer_cuts_at_lines(j.tokenizer);
        j.print = o.out == NULL ? out : NULL;
        st = tokenize_all(&j, out);
    }
    free_job(&j);
    return st;
}

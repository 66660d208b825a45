#include "data/ahead.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#include "core/alloc.h"
#include "core/bytes.h"
#include "core/thread.h"

/* Micro-batches that are filled or wait to be taken: one to take, and two so that threads do not run dry. */
enum { SLOTS = 3, MOST_FIELDS = 512, QUICK_ROWS = 16, TRAINING = -1 };

/* Which micro-batch: of training by its index, or of a split by its first sample. */
typedef struct ahead_key {
    int split; /* TRAINING, or an sl_data_split */
    uint64_t at;
} ahead_key;

typedef struct ahead_slot {
    ahead_key key;
    void *buffers[MOST_FIELDS]; /* owned: the rows of each field */
    int64_t real;               /* rows that are samples; the others are padding */
    int64_t pieces, begun, done;
    /* the failure of the first row that failed */
    sluice_status status;
    int64_t failed_piece;
    char message[SL_MESSAGE_BYTES];
} ahead_slot;

typedef struct ahead_data {
    sluice_data base;
    sl_data_ops ops; /* base.ops: the inner one's, as far as it has them */
    sluice_data *inner;
    int stride;
    int64_t rows, piece_rows;          /* piece_rows divides rows */
    sl_data_field fields[MOST_FIELDS]; /* names are owned */
    int field_count;
    pthread_t *threads;
    int thread_count;
    pthread_mutex_t lock; /* of all below */
    pthread_cond_t work, finished;
    ahead_slot slots[SLOTS];
    int first, count; /* slots[(first + i) % SLOTS], i < count: consecutive micro-batches */
    /* The slot that is being handed over: its pieces are copied by whoever is free. `to` NULL: none is. */
    struct {
        const sl_data_field *to;
        const ahead_slot *from;
        int64_t begun, done, pieces;
    } handing;
    bool quit;
} ahead_data;

static ahead_slot *slot_of(ahead_data *a, int i)
{
    return &a->slots[(a->first + i) % SLOTS];
}

/* ---- threads ---- */

/* The fields of the rows of a slot from `row` on. */
static void fields_from(const ahead_data *a, const ahead_slot *s, int64_t row, sl_data_field *out)
{
    for (int i = 0; i < a->field_count; i++) {
        sl_data_field whole = a->fields[i];
        whole.buffer = s->buffers[i];
        out[i] = whole;
        out[i].buffer = (char *)whole.buffer + (size_t)row * (size_t)whole.row_elements * 4;
    }
}

/* The last piece of an evaluation also writes the padding. */
static sluice_status fill_piece(ahead_data *a, const ahead_slot *s, int64_t piece)
{
    sl_data_field fields[MOST_FIELDS];
    int64_t row = piece * a->piece_rows, rows = a->piece_rows, valid;
    fields_from(a, s, row, fields);
    if (s->key.split == TRAINING)
        return a->inner->ops->fill(a->inner, s->key.at * (uint64_t)(a->rows / a->piece_rows) + (uint64_t)piece, rows,
                                   fields, a->field_count);
    if (piece + 1 == s->pieces) rows = a->rows - row;
    return a->inner->ops->fill_eval(a->inner, (sl_data_split)s->key.split, (int64_t)s->key.at + row, rows, fields,
                                    a->field_count, &valid);
}

static ahead_slot *next_work(ahead_data *a)
{
    for (int i = 0; i < a->count; i++)
        if (slot_of(a, i)->begun < slot_of(a, i)->pieces) return slot_of(a, i);
    return NULL;
}

/* Copies a piece of the slot that is handed over, if any is left; with the lock held, which it gives up meanwhile. */
static bool hand_piece(ahead_data *a)
{
    if (a->handing.to == NULL || a->handing.begun == a->handing.pieces) return false;
    int64_t piece = a->handing.begun++;
    pthread_mutex_unlock(&a->lock);
    for (int i = 0; i < a->field_count; i++) {
        size_t row = (size_t)a->fields[i].row_elements * 4, at = (size_t)(piece * a->piece_rows) * row;
        memcpy((char *)a->handing.to[i].buffer + at, (const char *)a->handing.from->buffers[i] + at,
               (size_t)a->piece_rows * row);
    }
    pthread_mutex_lock(&a->lock);
    if (++a->handing.done == a->handing.pieces) pthread_cond_broadcast(&a->finished);
    return true;
}

/* With the lock held. */
static void note_piece(ahead_slot *s, int64_t piece, sluice_status st)
{
    s->done++;
    if (st == SLUICE_OK || (s->status != SLUICE_OK && s->failed_piece < piece)) return;
    s->status = st;
    s->failed_piece = piece;
    sl_error_copy(s->message);
}

static void *work_ahead(void *user)
{
    ahead_data *a = user;
    pthread_mutex_lock(&a->lock);
    while (!a->quit) {
        if (hand_piece(a)) continue;
        ahead_slot *s = next_work(a);
        if (s == NULL) {
            pthread_cond_wait(&a->work, &a->lock);
            continue;
        }
        int64_t piece = s->begun++;
        pthread_mutex_unlock(&a->lock);
        sluice_status st = fill_piece(a, s, piece);
        pthread_mutex_lock(&a->lock);
        note_piece(s, piece, st);
        if (s->done == s->begun) pthread_cond_broadcast(&a->finished);
    }
    pthread_mutex_unlock(&a->lock);
    return NULL;
}

/* ---- what is filled next; all with the lock held ---- */

static bool same_key(ahead_key a, ahead_key b)
{
    return a.split == b.split && a.at == b.at;
}

/* The one that this rank asks for after `key`; false: there is none. */
static bool next_key(const ahead_data *a, ahead_key key, ahead_key *out)
{
    uint64_t step = (uint64_t)a->stride * (key.split == TRAINING ? 1 : (uint64_t)a->rows), last;
    *out = key;
    if (!sl_add_u64(key.at, step, &out->at)) return false;
    if (key.split != TRAINING) return out->at < (uint64_t)a->inner->ops->samples(a->inner, (sl_data_split)key.split);
    return sl_mul_u64(out->at + 1, (uint64_t)a->rows, &last);
}

static void append_slot(ahead_data *a, ahead_key key)
{
    ahead_slot *s = slot_of(a, a->count++);
    s->key = key;
    s->begun = s->done = 0;
    s->status = SLUICE_OK;
    s->real = a->rows;
    if (key.split != TRAINING) {
        int64_t left = a->inner->ops->samples(a->inner, (sl_data_split)key.split) - (int64_t)key.at;
        if (left < s->real) s->real = left;
    }
    s->pieces = sl_ceil_div(s->real, a->piece_rows);
}

/* Gives up what is under way: pieces that were begun are waited for, because they write into the slots. */
static void drop_slots(ahead_data *a)
{
    for (int i = 0; i < a->count; i++) slot_of(a, i)->pieces = slot_of(a, i)->begun;
    for (int i = 0; i < a->count; i++)
        while (slot_of(a, i)->done < slot_of(a, i)->begun) pthread_cond_wait(&a->finished, &a->lock);
    a->count = 0;
}

/* `key` is the first of the slots, and those behind it are on their way. */
static void expect(ahead_data *a, ahead_key key)
{
    if (a->count > 0 && !same_key(slot_of(a, 0)->key, key)) drop_slots(a);
    if (a->count == 0) append_slot(a, key);
    ahead_key last = slot_of(a, a->count - 1)->key;
    while (a->count < SLOTS && next_key(a, last, &last)) append_slot(a, last);
    pthread_cond_broadcast(&a->work);
}

/* Copies a slot that is whole. The threads help: a batch of large images takes one alone longer than a step. */
static void hand_over(ahead_data *a, const ahead_slot *s, const sl_data_field *fields)
{
    a->handing.to = fields;
    a->handing.from = s;
    a->handing.begun = a->handing.done = 0;
    a->handing.pieces = a->rows / a->piece_rows;
    pthread_cond_broadcast(&a->work);
    while (hand_piece(a)) continue;
    while (a->handing.done < a->handing.pieces) pthread_cond_wait(&a->finished, &a->lock);
    a->handing.to = NULL;
}

static void exchange(ahead_data *a, ahead_slot *s, sl_data_field *fields)
{
    for (int i = 0; i < a->field_count; i++) {
        void *filled = s->buffers[i];
        s->buffers[i] = fields[i].buffer;
        fields[i].buffer = filled;
    }
}

/* The first slot was taken: another one is filled in its place. */
static void free_first(ahead_data *a)
{
    ahead_key next = slot_of(a, 0)->key;
    a->first = (a->first + 1) % SLOTS;
    a->count--;
    if (a->count > 0) next = slot_of(a, a->count - 1)->key;
    if (next_key(a, next, &next)) append_slot(a, next);
    pthread_cond_broadcast(&a->work);
}

/* Waits for a micro-batch and begins the ones behind it. It is copied into `fields`, or exchanged for `exchanged` where that is not
 * NULL. */
static sluice_status take(ahead_data *a, ahead_key key, const sl_data_field *fields, sl_data_field *exchanged,
                          int64_t *real)
{
    sluice_status st;
    pthread_mutex_lock(&a->lock);
    expect(a, key);
    ahead_slot *s = slot_of(a, 0);
    while (s->done < s->pieces) pthread_cond_wait(&a->finished, &a->lock);
    *real = s->real;
    if ((st = s->status) != SLUICE_OK) {
        st = sl_fail(st, "%s", s->message);
    } else {
        if (exchanged != NULL)
            exchange(a, s, exchanged);
        else
            hand_over(a, s, fields);
        free_first(a);
    }
    pthread_mutex_unlock(&a->lock);
    return st;
}

/* Whether a request is one of those that slots are made for. */
static bool fits(const ahead_data *a, int64_t rows, const sl_data_field *fields, int field_count)
{
    if (rows != a->rows || field_count != a->field_count) return false;
    for (int i = 0; i < field_count; i++)
        if (strcmp(fields[i].name, a->fields[i].name) != 0 || fields[i].row_elements != a->fields[i].row_elements ||
            fields[i].dtype != a->fields[i].dtype)
            return false;
    return true;
}

/* Whether samples up to those of micro-batch `index` can be counted. */
static bool is_counted(uint64_t index, int64_t rows)
{
    uint64_t last;
    return sl_mul_u64(index + 1, (uint64_t)rows, &last) && index + 1 != 0;
}

static sluice_status ahead_fill(sluice_data *d, uint64_t index, int64_t rows, const sl_data_field *fields,
                                int field_count)
{
    ahead_data *a = (ahead_data *)d;
    int64_t real;
    if (!is_counted(index, rows) || !fits(a, rows, fields, field_count))
        return a->inner->ops->fill(a->inner, index, rows, fields, field_count);
    return take(a, (ahead_key){ TRAINING, index }, fields, NULL, &real);
}

sluice_status sl_ahead_exchange(sluice_data *d, uint64_t index, int64_t rows, sl_data_field *fields, int field_count)
{
    ahead_data *a = (ahead_data *)d;
    int64_t real;
    if (!is_counted(index, rows) || !fits(a, rows, fields, field_count))
        return a->inner->ops->fill(a->inner, index, rows, fields, field_count);
    return take(a, (ahead_key){ TRAINING, index }, NULL, fields, &real);
}

static sluice_status ahead_fill_eval(sluice_data *d, sl_data_split split, int64_t first, int64_t rows,
                                     const sl_data_field *fields, int field_count, int64_t *valid)
{
    ahead_data *a = (ahead_data *)d;
    bool there = first >= 0 && first < a->inner->ops->samples(a->inner, split);
    if (!there || !fits(a, rows, fields, field_count))
        return a->inner->ops->fill_eval(a->inner, split, first, rows, fields, field_count, valid);
    return take(a, (ahead_key){ (int)split, (uint64_t)first }, fields, NULL, valid);
}

/* ---- questions that go to the inner one ---- */

static const sluice_data *inner_of(const sluice_data *d)
{
    return ((const ahead_data *)d)->inner;
}

static int64_t ahead_samples(const sluice_data *d, sl_data_split split)
{
    return inner_of(d)->ops->samples(inner_of(d), split);
}

static void ahead_identity(const sluice_data *d, char sha256[65])
{
    inner_of(d)->ops->identity(inner_of(d), sha256);
}

static sluice_status ahead_targets(sluice_data *d, uint64_t index, int64_t rows, int64_t *count)
{
    sluice_data *inner = ((ahead_data *)d)->inner;
    return inner->ops->targets(inner, index, rows, count);
}

static bool ahead_packs(const sluice_data *d)
{
    return inner_of(d)->ops->packs(inner_of(d));
}

static int64_t ahead_vocabulary(const sluice_data *d)
{
    return inner_of(d)->ops->vocabulary(inner_of(d));
}

static int64_t ahead_classes(const sluice_data *d)
{
    return inner_of(d)->ops->classes(inner_of(d));
}

static const char *ahead_class_name(const sluice_data *d, int64_t i)
{
    return inner_of(d)->ops->class_name(inner_of(d), i);
}

static void ahead_image(const sluice_data *d, sl_image_size *out)
{
    inner_of(d)->ops->image(inner_of(d), out);
}

static void ahead_prepared(const sluice_data *d, sl_image_processor *out)
{
    inner_of(d)->ops->prepared(inner_of(d), out);
}

static void ahead_speech(const sluice_data *d, sl_speech_size *out)
{
    inner_of(d)->ops->speech(inner_of(d), out);
}

static const sl_vocabulary *ahead_characters(const sluice_data *d)
{
    return inner_of(d)->ops->characters(inner_of(d));
}

static void ahead_say(const sluice_data *d, const sl_log *log)
{
    inner_of(d)->ops->say(inner_of(d), log);
}

static int64_t ahead_left_out(sluice_data *d, char first[SL_MESSAGE_BYTES])
{
    sluice_data *inner = ((ahead_data *)d)->inner;
    return inner->ops->left_out(inner, first);
}

void sl_ahead_each_buffer(sluice_data *d, void (*visit)(void *user, void *buffer, size_t bytes), void *user)
{
    ahead_data *a = (ahead_data *)d;
    for (int s = 0; s < SLOTS; s++)
        for (int i = 0; i < a->field_count; i++)
            visit(user, a->slots[s].buffers[i], (size_t)a->rows * (size_t)a->fields[i].row_elements * 4);
}

uint64_t sl_ahead_bytes(uint64_t batch_bytes)
{
    return SLOTS * batch_bytes + sizeof(ahead_data);
}

static uint64_t ahead_memory(const sluice_data *d)
{
    const ahead_data *a = (const ahead_data *)d;
    uint64_t batch = 0;
    for (int i = 0; i < a->field_count; i++) batch += (uint64_t)a->rows * (uint64_t)a->fields[i].row_elements * 4;
    return sl_ahead_bytes(batch) + a->inner->ops->memory_bytes(a->inner);
}

static void make_ops(ahead_data *a)
{
    const sl_data_ops *inner = a->inner->ops;
    a->ops = *inner;
    a->ops.fill = ahead_fill;
    a->ops.fill_eval = ahead_fill_eval;
    a->ops.samples = ahead_samples;
    a->ops.identity = ahead_identity;
    a->ops.memory_bytes = ahead_memory;
    if (inner->targets != NULL) a->ops.targets = ahead_targets;
    if (inner->packs != NULL) a->ops.packs = ahead_packs;
    if (inner->vocabulary != NULL) a->ops.vocabulary = ahead_vocabulary;
    if (inner->classes != NULL) a->ops.classes = ahead_classes;
    if (inner->class_name != NULL) a->ops.class_name = ahead_class_name;
    if (inner->image != NULL) a->ops.image = ahead_image;
    if (inner->prepared != NULL) a->ops.prepared = ahead_prepared;
    if (inner->speech != NULL) a->ops.speech = ahead_speech;
    if (inner->characters != NULL) a->ops.characters = ahead_characters;
    if (inner->say != NULL) a->ops.say = ahead_say;
    if (inner->left_out != NULL) a->ops.left_out = ahead_left_out;
    a->base.ops = &a->ops;
}

/* ---- making and ending ---- */

/* Ends the threads and frees everything but the inner one. */
static void dismantle(ahead_data *a)
{
    pthread_mutex_lock(&a->lock);
    a->quit = true;
    pthread_cond_broadcast(&a->work);
    pthread_mutex_unlock(&a->lock);
    for (int i = 0; i < a->thread_count; i++) pthread_join(a->threads[i], NULL);
    for (int s = 0; s < SLOTS; s++)
        for (int i = 0; i < a->field_count; i++) sl_free(a->slots[s].buffers[i]);
    for (int i = 0; i < a->field_count; i++) sl_free((void *)a->fields[i].name);
    pthread_cond_destroy(&a->work);
    pthread_cond_destroy(&a->finished);
    pthread_mutex_destroy(&a->lock);
    sl_free(a->threads);
    sl_free(a);
}

static void ahead_destroy(sluice_data *d)
{
    sluice_data *inner = ((ahead_data *)d)->inner;
    dismantle((ahead_data *)d);
    sluice_data_destroy(inner);
}

/* A file is a piece of its own; what is quick is cut into fewer. Pieces are all as long, so that each is a micro-batch by itself. */
static int64_t choose_piece(sl_fill_effort effort, int64_t rows)
{
    int64_t piece = effort == SL_FILL_SLOW ? 1 : QUICK_ROWS;
    if (piece > rows) piece = rows;
    while (rows % piece != 0) piece--;
    return piece;
}

static sluice_status copy_fields(ahead_data *a, const sl_ahead_options *o)
{
    for (; a->field_count < o->field_count; a->field_count++) {
        char *name = sl_strdup(o->fields[a->field_count].name, "name of a field");
        if (name == NULL) return SLUICE_ERR_NO_MEMORY;
        a->fields[a->field_count] = o->fields[a->field_count];
        a->fields[a->field_count].name = name;
    }
    return SLUICE_OK;
}

static sluice_status make_slots(ahead_data *a)
{
    for (int s = 0; s < SLOTS; s++)
        for (int i = 0; i < a->field_count; i++) {
            a->slots[s].buffers[i] =
                sl_alloc_array((size_t)a->rows, (size_t)a->fields[i].row_elements * 4, "batch ahead of the step");
            if (a->slots[s].buffers[i] == NULL) return SLUICE_ERR_NO_MEMORY;
        }
    return SLUICE_OK;
}

static sluice_status start_threads(ahead_data *a, int count)
{
    a->threads = sl_alloc_array((size_t)count, sizeof *a->threads, "threads that read data");
    if (a->threads == NULL) return SLUICE_ERR_NO_MEMORY;
    for (; a->thread_count < count; a->thread_count++) {
        int error = sl_thread_start(&a->threads[a->thread_count], NULL, work_ahead, a);
        if (error != 0)
            return sl_fail(SLUICE_ERR_FAILED, "a thread to read data cannot be started: %s", strerror(error));
    }
    return SLUICE_OK;
}

sluice_status sl_data_ahead(sluice_data *inner, const sl_ahead_options *o, sluice_data **out)
{
    if (o->field_count > MOST_FIELDS)
        return sl_fail(SLUICE_ERR_USAGE, "a data set fills at most %d inputs, the model has %d", MOST_FIELDS,
                       o->field_count);
    ahead_data *a = sl_alloc(sizeof *a, "data ahead of the step");
    if (a == NULL) return SLUICE_ERR_NO_MEMORY;
    a->inner = inner;
    a->stride = o->stride;
    a->rows = o->rows;
    a->piece_rows = choose_piece(inner->ops->effort, o->rows);
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->work, NULL);
    pthread_cond_init(&a->finished, NULL);
    make_ops(a);
    a->ops.destroy = ahead_destroy;
    sluice_status st = copy_fields(a, o);
    if (st == SLUICE_OK) st = make_slots(a);
    if (st == SLUICE_OK) st = start_threads(a, o->workers);
    if (st != SLUICE_OK) {
        dismantle(a);
        return st;
    }
    *out = &a->base;
    return SLUICE_OK;
}

/* checkpoint_verify.c: the only reader of data files. A chunk is hashed in the scratch memory of the thread that reads it
 * before anyone sees a byte of it. */
#include "checkpoint/checkpoint_verify.h"

#include <inttypes.h>
#include <xxhash.h>

#include "checkpoint/folder.h"
#include "core/alloc.h"
#include "format/safetensors.h"

_Static_assert(SL_CHECKPOINT_CHUNK <= SL_SCRATCH_BYTES, "a chunk fits in the scratch memory of a thread");

/* True where a piece reaches into bytes [begin, end) of the file at hand. */
static bool reaches(const sl_data_walk *w, int64_t piece, uint64_t begin, uint64_t end)
{
    const sl_manifest_piece *p = &w->m->pieces[piece];
    return p->file == w->index && p->offset < end && sl_piece_end(p) > begin;
}

/* Moves next_piece past all pieces that end before `begin` of the file at hand. */
static void skip_pieces(sl_data_walk *w, uint64_t begin)
{
    while (w->next_piece < w->m->piece_count) {
        const sl_manifest_piece *p = &w->m->pieces[w->next_piece];
        if (p->file > w->index || (p->file == w->index && sl_piece_end(p) > begin)) return;
        w->next_piece++;
    }
}

/* The elements of a piece that lie in bytes [begin, end) of its file. */
static sl_range elements_in(const sl_manifest_piece *p, uint64_t begin, uint64_t end)
{
    uint64_t from = p->offset > begin ? p->offset : begin, to = sl_piece_end(p) < end ? sl_piece_end(p) : end;
    return (sl_range){ (int64_t)(p->first + (from - p->offset) / sizeof(float)),
                       (int64_t)((to - from) / sizeof(float)) };
}

/* Whether this rank has a use for the part of a piece in bytes [begin, end). */
static bool is_wanted(const sl_data_walk *w, const sl_manifest_piece *p, uint64_t begin, uint64_t end)
{
    int64_t tensor = w->target[p->tensor];
    if (tensor < 0) return false;
    sl_range r = elements_in(p, begin, end);
    return w->state == NULL || (r.count > 0 && w->state->wants(w->state->user, tensor, r));
}

static bool counts(const sl_data_walk *w, uint64_t begin, uint64_t end)
{
    if (w->target == NULL) return true;
    for (int64_t i = w->next_piece; i < w->m->piece_count && reaches(w, i, begin, end); i++)
        if (is_wanted(w, &w->m->pieces[i], begin, end)) return true;
    return false;
}

static sluice_status report_damage(const sl_data_walk *w, const sl_data_chunk *c)
{
    const char *name = "none", *kind = "padding";
    if (c->first_piece < w->m->piece_count && reaches(w, c->first_piece, c->begin, c->end)) {
        const sl_state_tensor *t = &w->m->tensors[w->m->pieces[c->first_piece].tensor];
        name = t->name;
        kind = t->kind;
    }
    return sl_fail(SLUICE_ERR_INPUT,
                   "%s is damaged: bytes %" PRIu64 " to %" PRIu64
                   " do not match their checksum; first tensor there: %s (%s)",
                   w->file.path, c->begin, c->end, sl_quote(name).text, kind);
}

/* Hands the part of a piece that lies in the chunk to the state. */
static sluice_status deliver(const sl_data_walk *w, const sl_manifest_piece *p, const sl_data_chunk *c,
                             const char *bytes)
{
    if (!is_wanted(w, p, c->begin, c->end)) return SLUICE_OK;
    uint64_t from = p->offset > c->begin ? p->offset : c->begin;
    sl_range r = elements_in(p, c->begin, c->end);
    return w->state->write(w->state->user, w->target[p->tensor], (uint64_t)r.first, (uint64_t)r.count,
                           (const float *)(bytes + (from - c->begin)));
}

/* Opens the file at hand where it is not open yet, and checks its size. */
static sluice_status open_file(sl_data_walk *w)
{
    const sl_manifest_file *f = &w->m->files[w->index];
    char path[PATH_MAX];
    sl_file file;
    uint64_t bytes;
    if (w->file.path != NULL) return SLUICE_OK;
    SL_TRY(sl_folder_path(w->folder, f->name, path));
    SL_TRY(sl_file_open(path, SL_READ, &file));
    w->file = file;
    SL_TRY(sl_file_size(&w->file, &bytes));
    if (bytes == f->bytes) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_INPUT, "%s is damaged: it has %" PRIu64 " bytes and should have %" PRIu64, path, bytes,
                   f->bytes);
}

/* An sl_try_fn: one chunk of the batch. */
static sluice_status read_chunk(void *walk, int64_t task, void *scratch)
{
    sl_data_walk *w = walk;
    const sl_data_chunk *c = &w->batch[w->batch_first + task];
    SL_TRY(sl_file_pread(&w->file, scratch, c->end - c->begin, c->begin));
    if (XXH3_64bits(scratch, c->end - c->begin) != w->m->files[w->index].chunks[c->index]) return report_damage(w, c);
    if (w->state == NULL) return SLUICE_OK;
    for (int64_t i = c->first_piece; i < w->m->piece_count && reaches(w, i, c->begin, c->end); i++)
        SL_TRY(deliver(w, &w->m->pieces[i], c, scratch));
    return SLUICE_OK;
}

/* Adds the chunk to the batch where it is this rank's to read. */
static sluice_status consider_chunk(sl_data_walk *w, int64_t chunk)
{
    uint64_t begin = (uint64_t)chunk * SL_CHECKPOINT_CHUNK, left = w->m->files[w->index].bytes - begin;
    uint64_t end = begin + (left < SL_CHECKPOINT_CHUNK ? left : SL_CHECKPOINT_CHUNK);
    skip_pieces(w, begin);
    if (!counts(w, begin, end)) return SLUICE_OK;
    if (w->state == NULL && w->counted++ % w->share_count != w->share) return SLUICE_OK;
    SL_TRY(open_file(w));
    w->batch[w->batch_count++] = (sl_data_chunk){ chunk, w->next_piece, begin, end };
    w->bytes += end - begin;
    return SLUICE_OK;
}

/* Each file's size is somebody's to check, also where no chunk of it counts. */
static sluice_status enter_file(sl_data_walk *w)
{
    if (w->state != NULL || w->next_chunk > 0 || w->index % w->share_count != w->share) return SLUICE_OK;
    return open_file(w);
}

static sluice_status prepare(sl_data_walk *w)
{
    if (w->batch != NULL) return SLUICE_OK;
    if (w->pool == NULL) {
        SL_TRY(sl_pool_create(1, &w->own_pool));
        w->pool = w->own_pool;
    }
    w->batch = sl_alloc_array((size_t)sl_pool_threads(w->pool), sizeof *w->batch, "chunks to read");
    return w->batch != NULL ? SLUICE_OK : SLUICE_ERR_NO_MEMORY;
}

/* Chunks of one file, as many as there are threads; fewer at its end. */
static sluice_status collect_chunks(sl_data_walk *w)
{
    w->batch_count = 0;
    while (w->index < w->m->file_count && w->batch_count < sl_pool_threads(w->pool)) {
        SL_TRY(sl_stop_poll(w->stop, "loading a checkpoint"));
        SL_TRY(enter_file(w));
        if (w->next_chunk < w->m->files[w->index].chunk_count) {
            SL_TRY(consider_chunk(w, w->next_chunk++));
        } else if (w->batch_count > 0) {
            break;
        } else {
            sl_file_close(&w->file);
            w->index++;
            w->next_chunk = 0;
        }
    }
    return SLUICE_OK;
}

/* Of several faults the first in the file is reported, whichever was found first: after a failure the chunks are read
 * again, one after the other. One that does not last is none: what is delivered has its checksum. */
static sluice_status read_batch(sl_data_walk *w)
{
    w->batch_first = 0;
    if (sl_pool_try(w->pool, read_chunk, w, w->batch_count) == SLUICE_OK) return SLUICE_OK;
    for (; w->batch_first < w->batch_count; w->batch_first++) SL_TRY(sl_pool_try(w->pool, read_chunk, w, 1));
    return SLUICE_OK;
}

sluice_status sl_data_walk_next(void *walk, bool *done)
{
    sl_data_walk *w = walk;
    SL_TRY(prepare(w));
    SL_TRY(collect_chunks(w));
    SL_TRY(read_batch(w));
    if (w->activity != NULL) sl_activity_at(w->activity, w->bytes * (uint64_t)(w->state == NULL ? w->share_count : 1));
    *done = w->index == w->m->file_count;
    return SLUICE_OK;
}

void sl_data_walk_end(sl_data_walk *w)
{
    sl_file_close(&w->file);
    sl_pool_destroy(w->own_pool);
    sl_free(w->batch);
}

#define MOST_READERS 16 /* each has SL_SCRATCH_BYTES; more do not make a disk faster */

sluice_status sl_verify_data(const int *stop, const sl_manifest *m, const char *folder, const int64_t *target)
{
    sl_data_walk w = { .m = m, .folder = folder, .target = target, .share_count = 1, .stop = stop };
    int cpus = sl_cpu_count();
    bool done = false;
    sluice_status st = sl_pool_create(cpus < MOST_READERS ? cpus : MOST_READERS, &w.own_pool);
    w.pool = w.own_pool;
    while (!done && st == SLUICE_OK) st = sl_data_walk_next(&w, &done);
    sl_data_walk_end(&w);
    return st;
}

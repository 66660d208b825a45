/* verify.c: the only reader of data files. A chunk is hashed in the staging buffer before anyone sees a byte of it. */
#include "checkpoint/verify.h"

#include <inttypes.h>
#include <xxhash.h>

#include "checkpoint/folder.h"
#include "checkpoint/staging.h"
#include "format/safetensors.h"

typedef struct walk {
    const sl_manifest *m;
    const int64_t *target;
    const sl_state *state;
    sl_file file;
    int64_t index;      /* of the file */
    int64_t next_piece; /* first piece that may reach into the chunk at hand or a later one */
    char *buffer;
} walk;

/* True where a piece reaches into bytes [begin, end) of the file at hand. */
static bool reaches(const walk *w, int64_t piece, uint64_t begin, uint64_t end)
{
    const sl_manifest_piece *p = &w->m->pieces[piece];
    return p->file == w->index && p->offset < end && sl_piece_end(p) > begin;
}

/* Moves next_piece past all pieces that end before `begin` of the file at hand. */
static void skip_pieces(walk *w, uint64_t begin)
{
    while (w->next_piece < w->m->piece_count) {
        const sl_manifest_piece *p = &w->m->pieces[w->next_piece];
        if (p->file > w->index || (p->file == w->index && sl_piece_end(p) > begin)) return;
        w->next_piece++;
    }
}

static bool is_wanted(const walk *w, uint64_t begin, uint64_t end)
{
    if (w->target == NULL) return true;
    for (int64_t i = w->next_piece; i < w->m->piece_count && reaches(w, i, begin, end); i++)
        if (w->target[w->m->pieces[i].tensor] >= 0) return true;
    return false;
}

static sluice_status report_damage(const walk *w, uint64_t begin, uint64_t end)
{
    const char *name = "none", *kind = "padding";
    if (w->next_piece < w->m->piece_count && reaches(w, w->next_piece, begin, end)) {
        const sl_state_tensor *t = &w->m->tensors[w->m->pieces[w->next_piece].tensor];
        name = t->name;
        kind = t->kind;
    }
    return sl_fail(SLUICE_ERR_INPUT,
                   "%s is damaged: bytes %" PRIu64 " to %" PRIu64
                   " do not match their checksum; first tensor there: %s (%s)",
                   w->file.path, begin, end, sl_quote(name).text, kind);
}

/* Hands the part of a piece that lies in the chunk at [begin, end) to the state. */
static sluice_status deliver(const walk *w, const sl_manifest_piece *p, uint64_t begin, uint64_t end)
{
    uint64_t from = p->offset > begin ? p->offset : begin, to = sl_piece_end(p) < end ? sl_piece_end(p) : end;
    int64_t tensor = w->target[p->tensor];
    if (tensor < 0) return SLUICE_OK;
    return w->state->write(w->state->user, tensor, p->first + (from - p->offset) / sizeof(float),
                           (to - from) / sizeof(float), (const float *)(w->buffer + (from - begin)));
}

static sluice_status walk_chunk(walk *w, int64_t chunk)
{
    const sl_manifest_file *f = &w->m->files[w->index];
    uint64_t begin = (uint64_t)chunk * SL_CHECKPOINT_CHUNK, left = f->bytes - begin;
    uint64_t end = begin + (left < SL_CHECKPOINT_CHUNK ? left : SL_CHECKPOINT_CHUNK);
    skip_pieces(w, begin);
    if (!is_wanted(w, begin, end)) return SLUICE_OK;
    SL_TRY(sl_file_pread(&w->file, w->buffer, end - begin, begin));
    if (XXH3_64bits(w->buffer, end - begin) != f->chunks[chunk]) return report_damage(w, begin, end);
    if (w->state == NULL) return SLUICE_OK;
    for (int64_t i = w->next_piece; i < w->m->piece_count && reaches(w, i, begin, end); i++)
        SL_TRY(deliver(w, &w->m->pieces[i], begin, end));
    return SLUICE_OK;
}

static sluice_status walk_open_file(walk *w)
{
    const sl_manifest_file *f = &w->m->files[w->index];
    uint64_t bytes;
    SL_TRY(sl_file_size(&w->file, &bytes));
    if (bytes != f->bytes)
        return sl_fail(SLUICE_ERR_INPUT, "%s is damaged: it has %" PRIu64 " bytes and should have %" PRIu64,
                       w->file.path, bytes, f->bytes);
    for (int64_t c = 0; c < f->chunk_count; c++) SL_TRY(walk_chunk(w, c));
    return SLUICE_OK;
}

static sluice_status walk_files(walk *w, const char *folder)
{
    for (w->index = 0; w->index < w->m->file_count; w->index++) {
        char path[PATH_MAX];
        SL_TRY(sl_folder_path(folder, w->m->files[w->index].name, path));
        SL_TRY(sl_file_open(path, SL_READ, &w->file));
        sluice_status st = walk_open_file(w);
        sl_file_close(&w->file);
        if (st != SLUICE_OK) return st;
    }
    return SLUICE_OK;
}

sluice_status sl_data_walk(const sl_manifest *m, const char *folder, const int64_t *target, const sl_state *state)
{
    sl_staging staging;
    SL_TRY(sl_staging_take(&staging));
    walk w = { .m = m, .target = target, .state = state, .buffer = staging.chunk };
    sluice_status st = walk_files(&w, folder);
    sl_staging_free(&staging);
    return st;
}

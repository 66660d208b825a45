/* stored.c: reads ranges of a checkpoint's tensors through a few verified chunks. */
#include "checkpoint/stored.h"

#include <inttypes.h>
#include <string.h>
#include <xxhash.h>

#include "checkpoint/folder.h"
#include "core/stop.h"
#include "format/safetensors.h"

static sluice_status read_chunk(const sl_stored *s, sl_stored_chunk *c, sl_file *file)
{
    const sl_manifest_file *f = &s->m->files[c->file];
    uint64_t begin = (uint64_t)c->index * SL_CHECKPOINT_CHUNK, left = f->bytes - begin;
    uint64_t bytes = left < SL_CHECKPOINT_CHUNK ? left : SL_CHECKPOINT_CHUNK;
    SL_TRY(sl_file_pread(file, c->staging.chunk, bytes, begin));
    if (XXH3_64bits(c->staging.chunk, bytes) == f->chunks[c->index]) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_INPUT, "%s is damaged: bytes %" PRIu64 " to %" PRIu64 " do not match their checksum",
                   file->path, begin, begin + bytes);
}

/* Fills c with chunk `index` of `file`. It holds nothing after a failure. */
static sluice_status fill_chunk(const sl_stored *s, sl_stored_chunk *c, int64_t file_index, int64_t index)
{
    char path[PATH_MAX];
    sl_file file;
    c->file = -1;
    SL_TRY(sl_folder_path(s->folder, s->m->files[file_index].name, path));
    if (c->staging.memory == NULL) SL_TRY(sl_staging_take(&c->staging));
    SL_TRY(sl_file_open(path, SL_READ, &file));
    c->file = file_index;
    c->index = index;
    sluice_status st = read_chunk(s, c, &file);
    if (st != SLUICE_OK) c->file = -1;
    sl_file_close(&file);
    return st;
}

/* The chunk that is asked for, kept or read in place of the one that was used the longest time ago. */
static sluice_status get_chunk(sl_stored *s, int64_t file, int64_t index, const char **out)
{
    sl_stored_chunk *c = &s->chunks[0];
    for (int i = 0; i < SL_STORED_CHUNKS; i++) {
        sl_stored_chunk *other = &s->chunks[i];
        bool found = other->file == file && other->index == index;
        if (found || other->used < c->used) c = other;
        if (found) break;
    }
    if (c->file != file || c->index != index) SL_TRY(fill_chunk(s, c, file, index));
    c->used = ++s->uses;
    *out = c->staging.chunk;
    return SLUICE_OK;
}

/* `count` elements of a piece, from its element `first` on. */
static sluice_status read_piece(sl_stored *s, const sl_manifest_piece *p, uint64_t first, uint64_t count, float *out)
{
    uint64_t at = p->offset + first * sizeof(float), end = at + count * sizeof(float);
    char *to = (char *)out;
    while (at < end) {
        uint64_t inside = at % SL_CHECKPOINT_CHUNK, left = SL_CHECKPOINT_CHUNK - inside;
        size_t bytes = (size_t)(end - at < left ? end - at : left);
        const char *chunk;
        SL_TRY(get_chunk(s, p->file, (int64_t)(at / SL_CHECKPOINT_CHUNK), &chunk));
        memcpy(to, chunk + inside, bytes);
        to += bytes;
        at += bytes;
    }
    return SLUICE_OK;
}

/* Index in the sorted pieces of the first one of the tensor that ends behind `element`. */
static int64_t find_piece(const sl_stored *s, int64_t tensor, uint64_t element)
{
    int64_t low = 0, high = s->m->piece_count;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        const sl_manifest_piece *p = s->pieces[middle];
        if (p->tensor < tensor || (p->tensor == tensor && p->first + p->count <= element))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The manifest's reader made sure that pieces cover each tensor once. */
static sluice_status read_tensor(void *user, int64_t tensor, uint64_t first, uint64_t count, float *out)
{
    sl_stored *s = user;
    uint64_t end = first + count;
    SL_TRY(sl_stop_poll(s->stop, "exporting"));
    for (int64_t i = find_piece(s, tensor, first); first < end; i++) {
        const sl_manifest_piece *p = s->pieces[i];
        uint64_t piece_end = p->first + p->count, to = piece_end < end ? piece_end : end;
        SL_TRY(read_piece(s, p, first - p->first, to - first, out));
        out += to - first;
        first = to;
    }
    return SLUICE_OK;
}

sluice_status sl_stored_open(sl_stored *s, const sl_manifest *m, const char *folder)
{
    *s = (sl_stored){ .m = m, .folder = folder };
    for (int i = 0; i < SL_STORED_CHUNKS; i++) s->chunks[i].file = -1;
    s->state = (sl_state){ .tensors = m->tensors, .count = m->tensor_count, .rank_count = 1 };
    s->state.vocabulary = m->vocabulary;
    s->state.read = read_tensor;
    s->state.user = s;
    return sl_manifest_sort_pieces(m, &s->pieces);
}

void sl_stored_close(sl_stored *s)
{
    for (int i = 0; i < SL_STORED_CHUNKS; i++) sl_staging_free(&s->chunks[i].staging);
    sl_free((void *)s->pieces);
}

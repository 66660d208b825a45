/* save.c: writes a checkpoint. The order of the system calls is the promise of checkpoint.h: whatever stops the
 * process, the newest committed checkpoint is still there and whole.
 *
 *     step-N.tmp/rank-0.bin   written directly in 4 MiB chunks, each hashed; fdatasync
 *     step-N.tmp/manifest.json   fdatasync, then fsync of step-N.tmp: now all of it is on the disk
 *     rename to step-N           the commit; fsync of the folder makes it last
 *     latest                     by path.tmp, fdatasync, rename, fsync
 *     older ones                 removed last, newest `keep` stay
 *
 * Saving a step that exists already renames the old one to step-N.old first, which loading takes for committed. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "checkpoint/folder.h"
#include "checkpoint/manifest.h"
#include "checkpoint/staging.h"
#include "core/alloc.h"
#include "core/bytes.h"
#include "format/json.h"

/* Fills one data file chunk by chunk. */
typedef struct chunk_writer {
    sl_file file;
    char *buffer;           /* SL_CHECKPOINT_CHUNK bytes */
    uint64_t used;          /* of the buffer */
    uint64_t offset;        /* of the buffer's first byte in the file */
    sl_manifest_file *into; /* gets the checksums */
} chunk_writer;

static sluice_status flush_chunk(chunk_writer *w)
{
    uint64_t padded = sl_align_up(w->used, SL_FILE_ALIGNMENT);
    if (w->used == 0) return SLUICE_OK;
    memset(w->buffer + w->used, 0, padded - w->used);
    w->into->chunks[w->offset / SL_CHECKPOINT_CHUNK] = XXH3_64bits(w->buffer, padded);
    SL_TRY(sl_file_pwrite(&w->file, w->buffer, padded, w->offset));
    w->offset += padded;
    w->used = 0;
    return SLUICE_OK;
}

/* Elements straddle no chunk: pieces and chunks both begin at multiples of 64 bytes. */
static sluice_status write_piece(chunk_writer *w, const sl_state *state, const sl_manifest_piece *piece)
{
    uint64_t gap = piece->offset - (w->offset + w->used);
    memset(w->buffer + w->used, 0, gap);
    w->used += gap;
    for (uint64_t done = 0; done < piece->count;) {
        if (w->used == SL_CHECKPOINT_CHUNK) SL_TRY(flush_chunk(w));
        uint64_t room = (SL_CHECKPOINT_CHUNK - w->used) / sizeof(float), left = piece->count - done;
        uint64_t count = left < room ? left : room;
        SL_TRY(state->read(state->user, piece->tensor, piece->first + done, count, (float *)(w->buffer + w->used)));
        w->used += count * sizeof(float);
        done += count;
    }
    return SLUICE_OK;
}

static sluice_status write_pieces(chunk_writer *w, const sl_state *state, const sl_manifest *m)
{
    for (int64_t i = 0; i < m->piece_count; i++) SL_TRY(write_piece(w, state, &m->pieces[i]));
    return flush_chunk(w);
}

static sluice_status write_data(const sl_state *state, const sl_manifest *m, const char *folder)
{
    char path[PATH_MAX];
    sl_staging staging;
    SL_TRY(sl_folder_path(folder, m->files[0].name, path));
    SL_TRY(sl_staging_take(&staging));
    chunk_writer w = { .buffer = staging.chunk, .into = &m->files[0] };
    sluice_status st = sl_file_open(path, SL_CREATE | SL_DIRECT, &w.file);
    if (st != SLUICE_OK) goto free_staging;
    st = write_pieces(&w, state, m);
    if (st != SLUICE_OK)
        sl_file_close(&w.file);
    else
        st = sl_file_finish(&w.file);
free_staging:
    sl_staging_free(&staging);
    return st;
}

static sluice_status write_text(const sl_text *text, const char *path)
{
    sl_file file;
    if (text->bytes > SL_JSON_MAX_BYTES)
        return sl_fail(SLUICE_ERR_FAILED, "%s would have %zu bytes, at most %d can be read back", path, text->bytes,
                       SL_JSON_MAX_BYTES);
    SL_TRY(sl_file_open(path, SL_CREATE, &file));
    sluice_status st = sl_file_pwrite(&file, text->data, text->bytes, 0);
    if (st != SLUICE_OK) {
        sl_file_close(&file);
        return st;
    }
    return sl_file_finish(&file);
}

static sluice_status write_manifest(const sl_manifest *m, const char *folder)
{
    char path[PATH_MAX];
    sl_text text = { 0 };
    SL_TRY(sl_folder_path(folder, SL_MANIFEST_NAME, path));
    sl_manifest_write(m, &text);
    sluice_status st = sl_text_status(&text);
    if (st == SLUICE_OK) st = write_text(&text, path);
    sl_text_free(&text);
    return st;
}

/* One file with every tensor in order, each from a multiple of SL_PIECE_ALIGNMENT on. */
static sluice_status lay_out(const sl_state *state, sl_manifest *m)
{
    uint64_t end = 0;
    m->file_count = 1;
    m->piece_count = state->count;
    m->files = sl_arena_array(&m->arena, 1, sizeof *m->files);
    m->pieces = sl_arena_array(&m->arena, (size_t)state->count, sizeof *m->pieces);
    if (m->files == NULL || m->pieces == NULL) return SLUICE_ERR_NO_MEMORY;
    for (int64_t i = 0; i < state->count; i++) {
        m->pieces[i] = (sl_manifest_piece){ .tensor = i,
                                            .offset = sl_align_up(end, SL_PIECE_ALIGNMENT),
                                            .count = state->tensors[i].elements };
        end = sl_piece_end(&m->pieces[i]);
    }
    sl_manifest_file *f = &m->files[0];
    f->name = "rank-0.bin";
    f->bytes = sl_align_up(end, SL_FILE_ALIGNMENT);
    f->chunk_count = (int64_t)(sl_align_up(end, SL_CHECKPOINT_CHUNK) / SL_CHECKPOINT_CHUNK);
    f->chunks = sl_arena_array(&m->arena, (size_t)f->chunk_count, sizeof *f->chunks);
    return f->chunks != NULL ? SLUICE_OK : SLUICE_ERR_NO_MEMORY;
}

/* Everything up to the commit, inside `tmp`. */
static sluice_status write_all(const sl_state *state, const sl_checkpoint_meta *meta, const char *tmp)
{
    sl_manifest m = { .format = SL_CHECKPOINT_FORMAT, .version = sluice_version(), .meta = *meta, .ranks = 1 };
    m.tensors = (sl_state_tensor *)state->tensors; /* only read */
    m.tensor_count = state->count;
    sl_arena_init(&m.arena, "checkpoint manifest");
    sluice_status st = lay_out(state, &m);
    if (st == SLUICE_OK) st = write_data(state, &m, tmp);
    if (st == SLUICE_OK) st = write_manifest(&m, tmp);
    if (st == SLUICE_OK) st = sl_dir_sync(tmp);
    sl_arena_free(&m.arena);
    return st;
}

/* Removes what was written of a save that failed; the message of that failure stays the newest one. */
static void discard(const char *tmp)
{
    char message[SL_MESSAGE_BYTES];
    sl_error_copy(message);
    if (sl_dir_remove_tree(tmp) != SLUICE_OK) sl_fail(SLUICE_ERR_IO, "%s", message);
}

/* tmp becomes step-N and stays so. The former step-N is never without a name that loading knows. */
static sluice_status commit(const char *folder, uint64_t step, const char *tmp, const char *path)
{
    char old[PATH_MAX];
    SL_TRY(sl_entry_path(folder, (sl_entry){ step, SL_ENTRY_OLD }, old));
    if (sl_path_exists(path)) {
        SL_TRY(sl_dir_remove_tree(old));
        SL_TRY(sl_path_rename(path, old));
    }
    SL_TRY(sl_path_rename(tmp, path));
    return sl_dir_sync(folder);
}

/* Removes the former step-N, and of the steps before this one all but the newest keep - 1. Later ones are another
 * run's, or damaged: they are not judged here. */
static sluice_status remove_older(const char *folder, uint64_t step, int keep)
{
    sl_entries e;
    int kept = 1;
    sluice_status st = SLUICE_OK;
    SL_TRY(sl_entries_read(folder, &e));
    for (int64_t i = 0; i < e.count && st == SLUICE_OK; i++) {
        bool former = e.list[i].step == step && e.list[i].kind == SL_ENTRY_OLD;
        bool older = e.list[i].step < step && e.list[i].kind != SL_ENTRY_TMP && kept++ >= keep;
        if (former || older) st = sl_entry_remove(folder, e.list[i]);
    }
    sl_entries_free(&e);
    return st;
}

static sluice_status name_latest(const char *folder, uint64_t step)
{
    char path[PATH_MAX], text[64];
    SL_TRY(sl_folder_path(folder, "latest", path));
    int bytes = snprintf(text, sizeof text, "step-%" PRIu64 "\n", step);
    return sl_file_replace(path, text, (size_t)bytes);
}

/* A new folder must be on the disk before a checkpoint in it can be said to be. */
static sluice_status make_folder(const char *folder)
{
    char parent[PATH_MAX];
    if (sl_path_exists(folder)) return SLUICE_OK;
    SL_TRY(sl_dir_make(folder));
    SL_TRY(sl_folder_path(folder, "..", parent));
    return sl_dir_sync(parent);
}

sluice_status sl_state_save(const sl_state *state, const sl_checkpoint_meta *meta, const char *folder, int keep,
                            char *path)
{
    char tmp[PATH_MAX], final[PATH_MAX];
    SL_TRY(sl_entry_path(folder, (sl_entry){ meta->step, SL_ENTRY_TMP }, tmp));
    SL_TRY(sl_entry_path(folder, (sl_entry){ meta->step, SL_ENTRY_COMMITTED }, final));
    SL_TRY(make_folder(folder));
    SL_TRY(sl_dir_remove_tree(tmp));
    SL_TRY(sl_dir_make(tmp));
    sluice_status st = write_all(state, meta, tmp);
    if (st == SLUICE_OK) st = commit(folder, meta->step, tmp, final);
    if (st != SLUICE_OK) {
        discard(tmp);
        return st;
    }
    SL_TRY(name_latest(folder, meta->step));
    SL_TRY(remove_older(folder, meta->step, keep));
    memcpy(path, final, strlen(final) + 1);
    return SLUICE_OK;
}

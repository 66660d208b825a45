/* save.c: writes a checkpoint. The order of the system calls is the promise of checkpoint.h: whatever stops the
 * processes, the newest committed checkpoint is still there and whole.
 *
 *     begin      rank 0: step-N.tmp is made
 *     data       every rank: step-N.tmp/rank-R.bin, directly in 4 MiB chunks, each hashed; fdatasync
 *     finish     rank 0, after all are through:
 *                step-N.tmp/manifest.json   fdatasync, then fsync of step-N.tmp: now all of it is on the disk
 *                rename to step-N           the commit; fsync of the folder makes it last
 *                latest                     by path.tmp, fdatasync, rename, fsync
 *                older ones                 removed last, newest `keep` stay
 *
 * Each line ends in an agreement of all ranks: what fails on one fails on all, and rank 0 removes step-N.tmp after the
 * others have let go of it. Between them only hashes travel: who owns what is known to every rank, so that each lays
 * out all files alike. Data is written by the caller in finish, or from begin on by a thread, which never communicates.
 *
 * Saving a step that exists already renames the old one to step-N.old first, which loading takes for committed. */
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "checkpoint/folder.h"
#include "checkpoint/manifest.h"
#include "checkpoint/rounds.h"
#include "checkpoint/staging.h"
#include "core/alloc.h"
#include "core/bytes.h"
#include "core/output.h"
#include "format/json.h"

struct sl_saving {
    sl_state state; /* a copy; what it points to is borrowed */
    sl_manifest m;  /* the same on all ranks but for the checksums */
    char folder[PATH_MAX], tmp[PATH_MAX], path[PATH_MAX];
    int keep;
    bool tmp_made;    /* rank 0: and neither committed nor removed */
    uint64_t *hashes; /* of the chunks of this rank's file; in m.arena */
    size_t *lengths;  /* bytes of hashes each rank has; in m.arena */
    /* ---- writing: this rank's file ---- */
    sl_file file;
    sl_chunk_staging staging;
    int64_t next_chunk; /* of this file */
    int64_t next_piece; /* first one of this file that has elements in that chunk or a later one */
    bool background;
    sl_background thread;
    atomic_bool stop; /* the thread is to end at the next chunk: the save has failed elsewhere */
};

/* ---- Data: no communication ---- */

/* Reads what the piece has in bytes [begin, end) of the file to its place in the staged chunk. Elements straddle no
 * chunk: pieces and chunks both begin at multiples of 64 bytes. */
static sluice_status read_piece(sl_saving *s, const sl_manifest_piece *p, uint64_t begin, uint64_t end)
{
    uint64_t from = p->offset > begin ? p->offset : begin, to = sl_piece_end(p) < end ? sl_piece_end(p) : end;
    return s->state.read(s->state.user, p->tensor, p->first + (from - p->offset) / sizeof(float),
                         (to - from) / sizeof(float), (float *)(s->staging.chunk + (from - begin)));
}

static sluice_status write_chunk(sl_saving *s, int64_t chunk)
{
    const sl_manifest *m = &s->m;
    uint64_t begin = (uint64_t)chunk * SL_CHECKPOINT_CHUNK, left = m->files[s->state.rank].bytes - begin;
    uint64_t bytes = left < SL_CHECKPOINT_CHUNK ? left : SL_CHECKPOINT_CHUNK, end = begin + bytes;
    memset(s->staging.chunk, 0, bytes);
    for (int64_t i = s->next_piece; i < m->piece_count; i++) {
        const sl_manifest_piece *p = &m->pieces[i];
        if (p->file != s->state.rank || p->offset >= end) break;
        SL_TRY(read_piece(s, p, begin, end));
        if (sl_piece_end(p) <= end) s->next_piece = i + 1;
    }
    s->hashes[chunk] = XXH3_64bits(s->staging.chunk, bytes);
    return sl_file_pwrite(&s->file, s->staging.chunk, bytes, begin);
}

static sluice_status open_data(sl_saving *s)
{
    char path[PATH_MAX];
    SL_TRY(sl_folder_path(s->tmp, s->m.files[s->state.rank].name, path));
    SL_TRY(sl_staging_take(&s->staging));
    return sl_file_open(path, SL_CREATE | SL_DIRECT, &s->file);
}

/* The next chunk of this rank's file, and after the last one its end; an sl_round_fn. */
static sluice_status write_next(void *saving, bool *done)
{
    sl_saving *s = saving;
    if (s->staging.memory == NULL) SL_TRY(open_data(s));
    if (s->next_chunk < s->m.files[s->state.rank].chunk_count) return write_chunk(s, s->next_chunk++);
    *done = true;
    return sl_file_finish(&s->file);
}

/* The thread's work. */
static sluice_status write_data(void *saving)
{
    sl_saving *s = saving;
    bool done = false;
    while (!done && !atomic_load(&s->stop)) SL_TRY(write_next(s, &done));
    return SLUICE_OK;
}

/* Waits for the thread and lets go of the file, whatever became of it. */
static void stop_writing(sl_saving *s)
{
    atomic_store(&s->stop, true);
    if (s->background) sl_background_end(&s->thread);
    s->background = false;
    sl_file_close(&s->file);
    sl_staging_free(&s->staging);
}

/* ---- Layout: the same on every rank ---- */

/* Adds a run of elements to the piece before it where it continues that one, as a piece of its own otherwise. */
static void add_run(sl_manifest *m, int64_t tensor, int rank, sl_range run, uint64_t *end)
{
    sl_manifest_piece *last = m->piece_count > 0 ? &m->pieces[m->piece_count - 1] : NULL;
    uint64_t first = (uint64_t)run.first, count = (uint64_t)run.count;
    if (count == 0) return;
    if (last != NULL && last->file == rank && last->tensor == tensor && last->first + last->count == first)
        last->count += count;
    else
        m->pieces[m->piece_count++] =
            (sl_manifest_piece){ tensor, rank, sl_align_up(*end, SL_PIECE_ALIGNMENT), first, count };
    *end = sl_piece_end(&m->pieces[m->piece_count - 1]);
}

static sluice_status lay_out_file(const sl_state *state, sl_manifest *m, int rank)
{
    sl_manifest_file *f = &m->files[rank];
    uint64_t end = 0;
    for (int64_t t = 0; t < state->count; t++) {
        int64_t runs = state->owned_count(state->user, t, rank);
        for (int64_t i = 0; i < runs; i++) add_run(m, t, rank, state->owned(state->user, t, rank, i), &end);
    }
    f->name = sl_arena_printf(&m->arena, "rank-%d.bin", rank);
    f->bytes = sl_align_up(end, SL_FILE_ALIGNMENT);
    f->chunk_count = (int64_t)(sl_align_up(end, SL_CHECKPOINT_CHUNK) / SL_CHECKPOINT_CHUNK);
    return f->name != NULL ? SLUICE_OK : SLUICE_ERR_NO_MEMORY;
}

/* Room for the checksums of all files, one after the other, as they arrive. */
static sluice_status place_hashes(sl_saving *s)
{
    sl_manifest *m = &s->m;
    int64_t total = 0;
    for (int64_t i = 0; i < m->file_count; i++) total += m->files[i].chunk_count;
    uint64_t *all = sl_arena_array(&m->arena, (size_t)total, sizeof *all);
    s->hashes = sl_arena_array(&m->arena, (size_t)m->files[s->state.rank].chunk_count, sizeof *s->hashes);
    s->lengths = sl_arena_array(&m->arena, (size_t)m->file_count, sizeof *s->lengths);
    if (all == NULL || s->hashes == NULL || s->lengths == NULL) return SLUICE_ERR_NO_MEMORY;
    for (int64_t i = 0; i < m->file_count; i++) {
        m->files[i].chunks = all;
        all += m->files[i].chunk_count;
        s->lengths[i] = (size_t)m->files[i].chunk_count * sizeof *all;
    }
    return SLUICE_OK;
}

/* One file per rank with what it owns of every tensor in order, each piece from a multiple of SL_PIECE_ALIGNMENT on. */
static sluice_status lay_out(sl_saving *s)
{
    const sl_state *state = &s->state;
    sl_manifest *m = &s->m;
    int64_t most = 0;
    for (int64_t t = 0; t < state->count; t++)
        for (int r = 0; r < state->rank_count; r++) most += state->owned_count(state->user, t, r);
    m->file_count = state->rank_count;
    m->files = sl_arena_array(&m->arena, (size_t)m->file_count, sizeof *m->files);
    m->pieces = sl_arena_array(&m->arena, (size_t)most, sizeof *m->pieces);
    if (m->files == NULL || m->pieces == NULL) return SLUICE_ERR_NO_MEMORY;
    for (int r = 0; r < state->rank_count; r++) {
        if (r == state->rank) s->next_piece = m->piece_count;
        SL_TRY(lay_out_file(state, m, r));
    }
    return place_hashes(s);
}

/* ---- Commit: rank 0 alone ---- */

static sluice_status write_text(const sl_text *text, const char *path)
{
    if (text->bytes > SL_JSON_MAX_BYTES)
        return sl_fail(SLUICE_ERR_FAILED, "%s would have %zu bytes, at most %d can be read back", path, text->bytes,
                       SL_JSON_MAX_BYTES);
    return sl_file_write_all(path, text->data, text->bytes);
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

/* Removes the former step-N, and of the steps before this one all but the newest keep - 1 and the best. Later ones are
 * another run's, or damaged: they are not judged here. */
static sluice_status remove_older(const char *folder, uint64_t step, uint64_t best, int keep)
{
    sl_entries e;
    int kept = 1;
    sluice_status st = SLUICE_OK;
    SL_TRY(sl_entries_read(folder, &e));
    for (int64_t i = 0; i < e.count && st == SLUICE_OK; i++) {
        bool former = e.list[i].step == step && e.list[i].kind == SL_ENTRY_OLD;
        bool older = e.list[i].step < step && e.list[i].kind != SL_ENTRY_TMP && e.list[i].step != best;
        if (former || (older && kept++ >= keep)) st = sl_entry_remove(folder, e.list[i]);
    }
    sl_entries_free(&e);
    return st;
}

static sluice_status name_latest(const char *folder, uint64_t step)
{
    char path[PATH_MAX], text[64];
    SL_TRY(sl_folder_path(folder, SL_LATEST_NAME, path));
    int bytes = snprintf(text, sizeof text, "step-%" PRIu64 "\n", step);
    return sl_file_replace_held(path, text, (size_t)bytes);
}

/* Nothing where the step is not there, or is called so already. */
sluice_status sl_checkpoint_name_best(const char *folder, uint64_t step)
{
    char path[PATH_MAX], name[64], now[64];
    SL_TRY(sl_folder_path(folder, SL_BEST_NAME, path));
    sl_path_link_target(path, now, sizeof now);
    snprintf(name, sizeof name, "step-%" PRIu64, step);
    if (strcmp(now, name) == 0) return SLUICE_OK;
    SL_TRY(sl_folder_path(folder, name, path));
    return sl_path_exists(path) ? sl_link_replace(folder, SL_BEST_NAME, name) : SLUICE_OK;
}

static sluice_status write_and_commit(sl_saving *s)
{
    SL_TRY(write_manifest(&s->m, s->tmp));
    SL_TRY(sl_dir_sync(s->tmp));
    return commit(s->folder, s->m.meta.step, s->tmp, s->path);
}

/* Everything after the last rank's data is on the disk. */
static sluice_status complete(void *saving)
{
    sl_saving *s = saving;
    SL_TRY(write_and_commit(s));
    s->tmp_made = false;
    SL_TRY(name_latest(s->folder, s->m.meta.step));
    if (s->m.meta.best.step == s->m.meta.step) SL_TRY(sl_checkpoint_name_best(s->folder, s->m.meta.step));
    return remove_older(s->folder, s->m.meta.step, s->m.meta.best.step, s->keep);
}

static sluice_status make_tmp(sl_saving *s)
{
    if (s->state.rank != 0) return SLUICE_OK;
    SL_TRY(sl_dir_make_lasting(s->folder)); /* a checkpoint in a folder that is gone would be gone as well */
    SL_TRY(sl_dir_remove_tree(s->tmp));
    SL_TRY(sl_dir_make(s->tmp));
    s->tmp_made = true;
    return SLUICE_OK;
}

/* ---- The halves of a save: all ranks ---- */

static sluice_status name_paths(sl_saving *s, const char *folder, uint64_t step)
{
    SL_TRY(sl_entry_path(folder, (sl_entry){ step, SL_ENTRY_TMP }, s->tmp));
    SL_TRY(sl_entry_path(folder, (sl_entry){ step, SL_ENTRY_COMMITTED }, s->path));
    memcpy(s->folder, folder, strlen(folder) + 1); /* shorter than those */
    return SLUICE_OK;
}

static sluice_status prepare(const sl_state *state, const sl_checkpoint_meta *meta, const char *folder, int keep,
                             sl_saving **out)
{
    sl_saving *s = sl_alloc(sizeof *s, "checkpoint save");
    if (s == NULL) return SLUICE_ERR_NO_MEMORY;
    *out = s;
    s->state = *state;
    s->keep = keep;
    s->m.format = SL_CHECKPOINT_FORMAT;
    s->m.version = sluice_version();
    s->m.meta = *meta;
    s->m.ranks = state->rank_count;
    s->m.vocabulary = state->vocabulary;
    s->m.tensors = (sl_state_tensor *)state->tensors; /* only read */
    s->m.tensor_count = state->count;
    sl_arena_init(&s->m.arena, "checkpoint manifest");
    SL_TRY(name_paths(s, folder, meta->step));
    SL_TRY(lay_out(s));
    return make_tmp(s);
}

/* NULL is fine. `failed`: rank 0 removes what is there; nobody may be writing any more. */
static void end_save(sl_saving *s, bool failed)
{
    if (s == NULL) return;
    if (failed && s->tmp_made) discard(s->tmp);
    sl_arena_free(&s->m.arena);
    sl_free(s);
}

/* After a failure: until no rank writes any more. Where the ranks cannot meet, there is nobody to wait for; the message
 * of the failure stays the newest one. */
static void await_others(sl_comm *comm)
{
    char message[SL_MESSAGE_BYTES];
    sl_error_copy(message);
    if (sl_has_peers(comm) && comm->ops->barrier(comm, "checkpoint given up") != SLUICE_OK)
        sl_error_record("%s", message);
}

sluice_status sl_state_save_begin(const sl_state *state, const sl_checkpoint_meta *meta, const char *folder, int keep,
                                  bool background, sl_saving **out)
{
    sl_saving *s = NULL;
    sluice_status st = sl_agree(state->comm, "checkpoint begin", prepare(state, meta, folder, keep, &s));
    if (st != SLUICE_OK) {
        end_save(s, true);
        return st;
    }
    s->background = background;
    if (background) sl_background_start(&s->thread, write_data, s);
    *out = s;
    return SLUICE_OK;
}

bool sl_saving_done(sl_saving *s)
{
    return !s->background || sl_background_done(&s->thread);
}

static sluice_status collect_hashes(sl_saving *s)
{
    sl_comm *comm = s->state.comm;
    uint64_t *all = s->m.files[0].chunks;
    if (sl_has_peers(comm)) return comm->ops->collect(comm, "checkpoint checksums", 0, s->hashes, s->lengths, all);
    memcpy(all, s->hashes, s->lengths[0]);
    return SLUICE_OK;
}

sluice_status sl_state_save_finish(sl_saving *s, char *path)
{
    sl_comm *comm = s->state.comm;
    sluice_status st = s->background ? sl_rounds(comm, "checkpoint data", sl_background_wait, &s->thread)
                                     : sl_rounds(comm, "checkpoint data", write_next, s);
    if (st == SLUICE_OK) st = collect_hashes(s);
    if (st == SLUICE_OK) st = sl_together(comm, "checkpoint commit", s->state.rank == 0 ? complete : NULL, s);
    if (st == SLUICE_OK) memcpy(path, s->path, strlen(s->path) + 1);
    stop_writing(s);
    if (st != SLUICE_OK) await_others(comm);
    end_save(s, st != SLUICE_OK);
    return st;
}

sluice_status sl_state_save(const sl_state *state, const sl_checkpoint_meta *meta, const char *folder, int keep,
                            char *path)
{
    sl_saving *s;
    SL_TRY(sl_state_save_begin(state, meta, folder, keep, false, &s));
    return sl_state_save_finish(s, path);
}

/* load.c: finds the newest checkpoint that is whole, and brings it in.
 *
 * Whole means: the manifest's text, then every chunk that is needed, match their checksums. Only after all of that does
 * the first byte go into the state; the second reading is hashed again, so that what is used is what was verified. A
 * damaged checkpoint is reported and the next older one is tried. One that is whole but of another model is an error:
 * older ones would not be what the user asked for.
 *
 * All ranks go the same way: rank 0 names the candidate, each step ends in an agreement, and the ranks share the first
 * reading. In the second each reads the chunks with elements it keeps, whoever wrote them: a checkpoint of N ranks is
 * loaded by M like this, and there is no other way. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/checkpoint_verify.h"
#include "checkpoint/folder.h"
#include "checkpoint/kept_vocabulary.h"
#include "checkpoint/manifest.h"
#include "checkpoint/rounds.h"
#include "core/alloc.h"
#include "format/safetensors.h"

typedef struct loading {
    const sl_state *state;
    const sl_identity *identity; /* NULL: not compared */
    bool weights_only;
    const sl_log *log;          /* may be NULL */
    int64_t damaged;            /* checkpoints found to be */
    sluice_status first_status; /* of the newest of them */
    char first_fault[SL_MESSAGE_BYTES];
} loading;

/* Damage is skipped; everything else ends the search. */
static bool is_damage(sluice_status st)
{
    return st == SLUICE_ERR_INPUT || st == SLUICE_ERR_IO;
}

static void note_damage(loading *l, sluice_status st)
{
    char message[SL_MESSAGE_BYTES];
    sl_error_copy(message);
    if (l->log != NULL && l->state->rank == 0)
        sl_log_write(l->log, SLUICE_LOG_WARNING, "checkpoint skipped: %s", message);
    if (l->damaged++ > 0) return;
    l->first_status = st;
    memcpy(l->first_fault, message, sizeof message);
}

static int compare_tensors(const void *pa, const void *pb)
{
    const sl_state_tensor *a = *(const sl_state_tensor *const *)pa, *b = *(const sl_state_tensor *const *)pb;
    int names = strcmp(a->name, b->name);
    return names != 0 ? names : strcmp(a->kind, b->kind);
}

/* Pointers to the tensors that take part, sorted by name and kind. */
static sluice_status sort_tensors(const sl_state_tensor *tensors, int64_t count, bool weights_only,
                                  const sl_state_tensor ***out, int64_t *out_count)
{
    const sl_state_tensor **sorted = sl_alloc_array((size_t)count, sizeof *sorted, "checkpoint tensors");
    int64_t n = 0;
    if (sorted == NULL) return SLUICE_ERR_NO_MEMORY;
    for (int64_t i = 0; i < count; i++)
        if (!weights_only || sl_state_is_in_files(&tensors[i])) sorted[n++] = &tensors[i];
    if (n > 0) qsort(sorted, (size_t)n, sizeof *sorted, compare_tensors);
    *out = sorted;
    *out_count = n;
    return SLUICE_OK;
}

static sluice_status refuse_tensor(const char *folder, const sl_state_tensor *t, const char *fault)
{
    char shape[128];
    return sl_fail(SLUICE_ERR_INPUT, "%s is of another model or optimizer: tensor %s (%s) %s %s", folder,
                   sl_quote(t->name).text, t->kind, sl_shape_text(&t->shape, shape, sizeof shape), fault);
}

/* Walks both sorted lists at once and fills target; the first tensor that is on one side only, or differs, is named. */
static sluice_status match_sorted(const loading *l, const sl_manifest *m, const char *folder,
                                  const sl_state_tensor **saved, int64_t saved_count, const sl_state_tensor **wanted,
                                  int64_t wanted_count, int64_t *target)
{
    char shape[128], fault[200];
    for (int64_t i = 0; i < saved_count || i < wanted_count; i++) {
        int order = i >= saved_count ? 1 : i >= wanted_count ? -1 : compare_tensors(&saved[i], &wanted[i]);
        if (order < 0) return refuse_tensor(folder, saved[i], "is in the checkpoint but not in this run");
        if (order > 0) return refuse_tensor(folder, wanted[i], "is missing in the checkpoint");
        if (!sl_shape_equal(&saved[i]->shape, &wanted[i]->shape)) {
            snprintf(fault, sizeof fault, "has the shape %s in the checkpoint",
                     sl_shape_text(&saved[i]->shape, shape, sizeof shape));
            return refuse_tensor(folder, wanted[i], fault);
        }
        target[saved[i] - m->tensors] = wanted[i] - l->state->tensors;
    }
    return SLUICE_OK;
}

static sluice_status match_tensors(const loading *l, const sl_manifest *m, const char *folder, int64_t *target)
{
    const sl_state_tensor **saved, **wanted;
    int64_t saved_count, wanted_count;
    for (int64_t i = 0; i < m->tensor_count; i++) target[i] = -1;
    SL_TRY(sort_tensors(m->tensors, m->tensor_count, l->weights_only, &saved, &saved_count));
    sluice_status st = sort_tensors(l->state->tensors, l->state->count, l->weights_only, &wanted, &wanted_count);
    if (st == SLUICE_OK) {
        st = match_sorted(l, m, folder, saved, saved_count, wanted, wanted_count, target);
        sl_free((void *)wanted);
    }
    sl_free((void *)saved);
    return st;
}

/* Settings first, then tensors: their names tell the user more than two hashes do. */
static sluice_status check_model(const loading *l, const sl_manifest *m, const char *folder, int64_t *target)
{
    if (l->identity != NULL) SL_TRY(sl_identity_check_lines(l->identity, &m->meta));
    SL_TRY(sl_kept_check(&l->state->vocabulary, &m->vocabulary, folder));
    SL_TRY(match_tensors(l, m, folder, target));
    if (l->identity == NULL || sl_identity_same_model(l->identity, &m->meta)) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_INPUT,
                   "%s is of another model: its description has SHA-256 %.12s..., this run's %.12s...", folder,
                   m->meta.model_sha256, l->identity->model_sha256);
}

static uint64_t bytes_to_read(const sl_data_walk *w)
{
    uint64_t bytes = 0;
    for (int64_t i = 0; i < w->m->tensor_count; i++)
        if (w->target == NULL || w->target[i] >= 0) bytes += w->m->tensors[i].elements * sizeof(float);
    return bytes;
}

static sluice_status walk_data(const loading *l, sl_data_walk *w, const char *phase, const char *what)
{
    sl_activity activity;
    sl_activity_begin(&activity, l->state->progress, phase, bytes_to_read(w));
    w->pool = l->state->pool;
    w->stop = l->state->stop;
    w->activity = &activity;
    sluice_status st = sl_rounds(l->state->comm, what, sl_data_walk_next, w);
    sl_data_walk_end(w);
    if (st == SLUICE_OK) sl_activity_end(&activity);
    return st;
}

/* The ranks verify a share of the data each. */
static sluice_status verify_data(const loading *l, const sl_manifest *m, const char *folder, const int64_t *target)
{
    sl_data_walk w = { .m = m, .folder = folder, .target = l->weights_only ? target : NULL };
    w.share = l->state->rank;
    w.share_count = l->state->rank_count;
    return walk_data(l, &w, "verify", "checkpoint verification");
}

static sluice_status bring_in(const loading *l, const sl_manifest *m, const char *folder, const int64_t *target)
{
    sl_data_walk w = { .m = m, .folder = folder, .target = target, .state = l->state };
    return walk_data(l, &w, "read", "checkpoint loading");
}

static sluice_status make_target(const loading *l, const sl_manifest *m, const char *folder, int64_t **out)
{
    *out = sl_alloc_array((size_t)m->tensor_count, sizeof **out, "checkpoint tensors");
    if (*out == NULL) return SLUICE_ERR_NO_MEMORY;
    return check_model(l, m, folder, *out);
}

/* Verifies and loads one whole manifest's data. *usable is false where the data is damaged. */
static sluice_status load_data(loading *l, const sl_manifest *m, const char *folder, bool *usable)
{
    int64_t *target = NULL;
    sluice_status st = sl_agree(l->state->comm, "checkpoint model", make_target(l, m, folder, &target));
    if (st != SLUICE_OK) goto free_target;
    st = verify_data(l, m, folder, target);
    if (is_damage(st)) {
        note_damage(l, st);
        st = SLUICE_OK;
        goto free_target;
    }
    if (st == SLUICE_OK) st = bring_in(l, m, folder, target);
    *usable = st == SLUICE_OK;
free_target:
    sl_free(target);
    return st;
}

/* Every rank reads the manifest itself; it must be the same one. On failure on any rank *out is NULL on all. */
static sluice_status read_manifest(const loading *l, const char *folder, const uint64_t *step, sl_manifest **out)
{
    sl_comm *comm = l->state->comm;
    sl_manifest *m = NULL;
    sluice_status st = sl_agree(comm, "checkpoint manifest", sl_manifest_read(folder, step, &m));
    if (st != SLUICE_OK) goto free_manifest;
    uint64_t checksum = m->checksum;
    st = sl_share(comm, "checkpoint manifest", &checksum, sizeof checksum);
    if (st != SLUICE_OK) goto free_manifest;
    if (checksum != m->checksum)
        st = sl_fail(SLUICE_ERR_INPUT, "%s/" SL_MANIFEST_NAME " is not the one that rank 0 reads", folder);
    st = sl_agree(comm, "checkpoint manifest", st);
    if (st != SLUICE_OK) goto free_manifest;
    *out = m;
    return SLUICE_OK;
free_manifest:
    sl_manifest_free(m);
    return st;
}

/* Tries one checkpoint. OK with *usable false: it is damaged, and that was noted. step NULL: the folder's name says
 * nothing. */
static sluice_status try_checkpoint(loading *l, const char *folder, const uint64_t *step, sl_checkpoint_meta *meta,
                                    bool *usable)
{
    sl_manifest *m = NULL;
    sluice_status st = read_manifest(l, folder, step, &m);
    if (is_damage(st)) {
        note_damage(l, st);
        return SLUICE_OK;
    }
    if (st != SLUICE_OK) return st;
    st = sl_manifest_check_format(m, folder); /* the same manifest: the same answer on all ranks */
    if (st == SLUICE_OK) st = load_data(l, m, folder, usable);
    if (st == SLUICE_OK && *usable) *meta = m->meta;
    sl_manifest_free(m);
    return st;
}

/* ---- Candidates: rank 0 looks, all follow ---- */

typedef struct candidate {
    enum { NONE, STEP, FOLDER_ITSELF } what;
    sl_entry entry; /* STEP */
} candidate;

/* What rank 0 found in the folder. */
typedef struct search {
    bool itself; /* the folder is a step's own */
    sl_entries entries;
    int64_t next;
} search;

static sluice_status look(const loading *l, const char *folder, search *s)
{
    *s = (search){ 0 };
    if (l->state->rank != 0) return SLUICE_OK;
    s->itself = sl_has_manifest(folder);
    return s->itself ? SLUICE_OK : sl_entries_read(folder, &s->entries);
}

static candidate next_candidate(search *s)
{
    candidate none = { .what = NONE };
    if (s->itself) return s->next++ == 0 ? (candidate){ .what = FOLDER_ITSELF } : none;
    while (s->next < s->entries.count && s->entries.list[s->next].kind == SL_ENTRY_TMP) s->next++;
    return s->next < s->entries.count ? (candidate){ STEP, s->entries.list[s->next++] } : none;
}

static sluice_status try_candidate(loading *l, const char *folder, const candidate *c, sl_checkpoint_meta *meta,
                                   bool *usable)
{
    char path[PATH_MAX];
    if (c->what == FOLDER_ITSELF) return try_checkpoint(l, folder, NULL, meta, usable);
    SL_TRY(sl_entry_path(folder, c->entry, path));
    return try_checkpoint(l, path, &c->entry.step, meta, usable);
}

static sluice_status try_all(loading *l, const char *folder, search *s, sl_checkpoint_meta *meta, bool *usable)
{
    while (!*usable) {
        candidate c = next_candidate(s);
        SL_TRY(sl_share(l->state->comm, "checkpoint candidate", &c, sizeof c));
        if (c.what == NONE) break;
        SL_TRY(try_candidate(l, folder, &c, meta, usable));
    }
    return SLUICE_OK;
}

sluice_status sl_state_load(const sl_state *state, const char *folder, const sl_identity *identity, bool weights_only,
                            const sl_log *log, sl_checkpoint_meta *meta, bool *found)
{
    loading l = { .state = state, .identity = identity, .weights_only = weights_only, .log = log };
    bool usable = false;
    search s;
    sluice_status st = sl_agree(state->comm, "checkpoint folder", look(&l, folder, &s));
    if (st == SLUICE_OK) st = try_all(&l, folder, &s, meta, &usable);
    sl_entries_free(&s.entries);
    if (st != SLUICE_OK) return st;
    if (!usable && l.damaged > 0)
        return sl_fail(l.first_status, "%s: none of %" PRId64 " checkpoints can be loaded; the newest: %s", folder,
                       l.damaged, l.first_fault);
    if (!usable) *meta = (sl_checkpoint_meta){ 0 };
    *found = usable;
    return SLUICE_OK;
}

/* ---- A look before anything is decided ---- */

/* What a field says in the newest checkpoint where it says anything; 0: in none. Who loads from the folder tells what is wrong
 * with one. */
static sluice_status newest_that_tells(const char *folder, uint64_t (*field)(const sl_checkpoint_meta *),
                                       uint64_t *told)
{
    sl_entries e;
    *told = 0;
    SL_TRY(sl_entries_read(folder, &e));
    for (int64_t i = 0; i < e.count && *told == 0; i++) {
        char path[PATH_MAX];
        sl_manifest *m = NULL;
        if (e.list[i].kind == SL_ENTRY_TMP || sl_entry_path(folder, e.list[i], path) != SLUICE_OK) continue;
        if (sl_manifest_read(path, &e.list[i].step, &m) != SLUICE_OK) continue;
        *told = field(&m->meta); /* 0 of another format, which has no meta */
        sl_manifest_free(m);
    }
    sl_entries_free(&e);
    return SLUICE_OK;
}

uint64_t sl_checkpoint_micro_batch(const char *folder)
{
    uint64_t rows;
    return newest_that_tells(folder, sl_identity_samples, &rows) == SLUICE_OK ? rows : 0; /* as above */
}

/* More by 1: no such step is an answer, too. */
static uint64_t plain_steps(const sl_checkpoint_meta *m)
{
    return m->step > 0 ? m->plain_steps + 1 : 0;
}

sluice_status sl_checkpoint_plain_steps(const char *folder, uint64_t *steps)
{
    uint64_t told;
    SL_TRY(newest_that_tells(folder, plain_steps, &told));
    *steps = told > 0 ? told - 1 : 0;
    return SLUICE_OK;
}

/* load.c: finds the newest checkpoint that is whole, and brings it in.
 *
 * Whole means: the manifest's text, then every chunk that is needed, match their checksums. Only after all of that does
 * the first byte go into the state; the second reading is hashed again, so that what is used is what was verified. A
 * damaged checkpoint is reported and the next older one is tried. One that is whole but of another model is an error:
 * older ones would not be what the user asked for. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/folder.h"
#include "checkpoint/manifest.h"
#include "checkpoint/verify.h"
#include "core/alloc.h"
#include "format/safetensors.h"

typedef struct loading {
    const sl_state *state;
    const char *model_sha256; /* NULL: not compared */
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
    if (l->log != NULL) sl_log_write(l->log, SLUICE_LOG_WARNING, "checkpoint skipped: %s", message);
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
        if (!weights_only || strcmp(tensors[i].kind, SL_KIND_WEIGHT) == 0) sorted[n++] = &tensors[i];
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

/* Tensors first: their names tell the user more than two hashes do. */
static sluice_status check_model(const loading *l, const sl_manifest *m, const char *folder, int64_t *target)
{
    SL_TRY(match_tensors(l, m, folder, target));
    if (l->model_sha256 == NULL || strcmp(l->model_sha256, m->meta.model_sha256) == 0) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_INPUT,
                   "%s is of another model: its description has SHA-256 %.12s..., this run's %.12s...", folder,
                   m->meta.model_sha256, l->model_sha256);
}

/* Verifies and loads one whole manifest's data. *usable is false where the data is damaged. */
static sluice_status load_data(loading *l, const sl_manifest *m, const char *folder, bool *usable)
{
    int64_t *target = sl_alloc_array((size_t)m->tensor_count, sizeof *target, "checkpoint tensors");
    if (target == NULL) return SLUICE_ERR_NO_MEMORY;
    sluice_status st = check_model(l, m, folder, target);
    if (st != SLUICE_OK) goto free_target;
    st = sl_data_walk(m, folder, l->weights_only ? target : NULL, NULL);
    if (is_damage(st)) {
        note_damage(l, st);
        st = SLUICE_OK;
        goto free_target;
    }
    if (st == SLUICE_OK) st = sl_data_walk(m, folder, target, l->state);
    *usable = st == SLUICE_OK;
free_target:
    sl_free(target);
    return st;
}

/* Tries one checkpoint. OK with *usable false: it is damaged, and that was noted. step NULL: the folder's name says
 * nothing. */
static sluice_status try_checkpoint(loading *l, const char *folder, const uint64_t *step, sl_checkpoint_meta *meta,
                                    bool *usable)
{
    sl_manifest *m = NULL;
    sluice_status st = sl_manifest_read(folder, step, &m);
    if (is_damage(st)) {
        note_damage(l, st);
        return SLUICE_OK;
    }
    if (st != SLUICE_OK) return st;
    st = sl_manifest_check_format(m, folder);
    if (st == SLUICE_OK) st = load_data(l, m, folder, usable);
    if (st == SLUICE_OK && *usable) *meta = m->meta;
    sl_manifest_free(m);
    return st;
}

static sluice_status try_all(loading *l, const char *folder, const sl_entries *entries, sl_checkpoint_meta *meta,
                             bool *usable)
{
    for (int64_t i = 0; i < entries->count && !*usable; i++) {
        char path[PATH_MAX];
        if (entries->list[i].kind == SL_ENTRY_TMP) continue;
        SL_TRY(sl_entry_path(folder, entries->list[i], path));
        SL_TRY(try_checkpoint(l, path, &entries->list[i].step, meta, usable));
    }
    return SLUICE_OK;
}

/* True for a step's own folder. */
static bool has_manifest(const char *folder)
{
    char path[PATH_MAX];
    return sl_folder_path(folder, SL_MANIFEST_NAME, path) == SLUICE_OK && sl_path_exists(path);
}

sluice_status sl_state_load(const sl_state *state, const char *folder, const char *model_sha256, bool weights_only,
                            const sl_log *log, sl_checkpoint_meta *meta, bool *found)
{
    loading l = { .state = state, .model_sha256 = model_sha256, .weights_only = weights_only, .log = log };
    bool usable = false;
    sluice_status st;
    if (has_manifest(folder)) {
        st = try_checkpoint(&l, folder, NULL, meta, &usable);
    } else {
        sl_entries entries;
        SL_TRY(sl_entries_read(folder, &entries));
        st = try_all(&l, folder, &entries, meta, &usable);
        sl_entries_free(&entries);
    }
    if (st != SLUICE_OK) return st;
    if (!usable && l.damaged > 0)
        return sl_fail(l.first_status, "%s: none of %" PRId64 " checkpoints can be loaded; the newest: %s", folder,
                       l.damaged, l.first_fault);
    if (!usable) *meta = (sl_checkpoint_meta){ 0 };
    *found = usable;
    return SLUICE_OK;
}

/* folder.c: finds, names and removes checkpoints in their folder. */
#include "checkpoint/folder.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/manifest.h"
#include "core/alloc.h"
#include "format/known_models.h"
#include "format/safetensors.h"

static const char *const endings[] = { [SL_ENTRY_COMMITTED] = "", [SL_ENTRY_OLD] = ".old", [SL_ENTRY_TMP] = ".tmp" };
enum { ENDING_COUNT = sizeof endings / sizeof endings[0] };

/* "step-12.tmp" -> 12, TMP. Only names that sl_entry_path would make are taken: no leading zeros, nothing after the
 * ending. */
static bool parse_name(const char *name, sl_entry *out)
{
    char made[64];
    uint64_t step;
    if (strncmp(name, "step-", 5) != 0 || sscanf(name + 5, "%" SCNu64, &step) != 1) return false;
    for (int kind = 0; kind < ENDING_COUNT; kind++) {
        snprintf(made, sizeof made, "step-%" PRIu64 "%s", step, endings[kind]);
        if (strcmp(name, made) != 0) continue;
        *out = (sl_entry){ step, (sl_entry_kind)kind };
        return true;
    }
    return false;
}

static sluice_status add_entry(void *user, const char *name)
{
    sl_entries *e = user;
    sl_entry entry;
    if (!parse_name(name, &entry)) return SLUICE_OK;
    if (e->count == e->capacity) {
        int64_t capacity = e->capacity == 0 ? 16 : 2 * e->capacity;
        sl_entry *grown = sl_realloc(e->list, (size_t)e->capacity * sizeof *grown, (size_t)capacity * sizeof *grown,
                                     "checkpoint list");
        if (grown == NULL) return SLUICE_ERR_NO_MEMORY;
        e->list = grown;
        e->capacity = capacity;
    }
    e->list[e->count++] = entry;
    return SLUICE_OK;
}

static int compare_entries(const void *pa, const void *pb)
{
    const sl_entry *a = pa, *b = pb;
    if (a->step != b->step) return a->step > b->step ? -1 : 1;
    return (int)a->kind - (int)b->kind;
}

sluice_status sl_entries_read(const char *folder, sl_entries *out)
{
    sl_entries e = { 0 };
    sluice_status st = sl_dir_list(folder, add_entry, &e);
    if (st == SLUICE_ERR_INPUT && !sl_path_exists(folder)) st = SLUICE_OK;
    if (st != SLUICE_OK) {
        sl_entries_free(&e);
        return st;
    }
    if (e.count > 0) qsort(e.list, (size_t)e.count, sizeof *e.list, compare_entries);
    *out = e;
    return SLUICE_OK;
}

void sl_entries_free(sl_entries *e)
{
    sl_free(e->list);
    *e = (sl_entries){ 0 };
}

sluice_status sl_folder_path(const char *folder, const char *name, char path[PATH_MAX])
{
    int bytes = snprintf(path, PATH_MAX, "%s/%s", folder, name);
    if (bytes >= 0 && bytes < PATH_MAX) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_USAGE, "the path of the checkpoint folder is too long: %.80s...; use a shorter one",
                   folder);
}

bool sl_has_manifest(const char *folder)
{
    char path[PATH_MAX];
    return sl_folder_path(folder, SL_MANIFEST_NAME, path) == SLUICE_OK && sl_path_exists(path);
}

sluice_status sl_entry_path(const char *folder, sl_entry entry, char path[PATH_MAX])
{
    char name[64];
    snprintf(name, sizeof name, "step-%" PRIu64 "%s", entry.step, endings[entry.kind]);
    return sl_folder_path(folder, name, path);
}

sluice_status sl_entry_remove(const char *folder, sl_entry entry)
{
    char path[PATH_MAX], tmp[PATH_MAX];
    SL_TRY(sl_entry_path(folder, entry, path));
    SL_TRY(sl_entry_path(folder, (sl_entry){ entry.step, SL_ENTRY_TMP }, tmp));
    SL_TRY(sl_dir_remove_tree(tmp));
    if (entry.kind == SL_ENTRY_TMP) return SLUICE_OK;
    SL_TRY(sl_path_rename(path, tmp));
    return sl_dir_remove_tree(tmp);
}

/* A former step-N without its successor is the checkpoint again; with it, it goes. */
static sluice_status settle_old(const char *folder, sl_entry entry)
{
    char path[PATH_MAX], committed[PATH_MAX];
    SL_TRY(sl_entry_path(folder, entry, path));
    SL_TRY(sl_entry_path(folder, (sl_entry){ entry.step, SL_ENTRY_COMMITTED }, committed));
    if (sl_path_exists(committed)) return sl_entry_remove(folder, entry);
    SL_TRY(sl_path_rename(path, committed));
    return sl_dir_sync(folder);
}

sluice_status sl_checkpoint_clean(const char *folder)
{
    sl_entries e;
    sluice_status st = SLUICE_OK;
    SL_TRY(sl_entries_read(folder, &e));
    for (int64_t i = 0; i < e.count && st == SLUICE_OK; i++) {
        if (e.list[i].kind == SL_ENTRY_TMP) st = sl_entry_remove(folder, e.list[i]);
        if (e.list[i].kind == SL_ENTRY_OLD) st = settle_old(folder, e.list[i]);
    }
    sl_entries_free(&e);
    return st;
}

sluice_status sl_checkpoint_newest(const char *folder, uint64_t *step)
{
    sl_entries e;
    uint64_t newest = 0;
    SL_TRY(sl_entries_read(folder, &e));
    for (int64_t i = 0; i < e.count; i++)
        if (e.list[i].kind != SL_ENTRY_TMP && e.list[i].step > newest) newest = e.list[i].step;
    sl_entries_free(&e);
    *step = newest;
    return SLUICE_OK;
}

/* ---- folders that are not what was asked for ---- */

bool sl_is_folder(const char *path)
{
    char inside[PATH_MAX];
    return sl_folder_path(path, ".", inside) == SLUICE_OK && sl_path_exists(inside);
}

/* What a folder may hold in place of checkpoints; earlier rows tell more. */
static const struct holding {
    const char *ending, *advice;
} holdings[] = {
    { ".safetensors.index.json", "the index of weights in several files: name that" },
    { ".safetensors", "a weights file: name that" },
    { ".bin", "perhaps a PyTorch pickle, which is not read: let transformers write model.safetensors with "
              "save_pretrained" },
    { ".pt", "a PyTorch pickle, which is not read" },
    { ".pth", "a PyTorch pickle, which is not read" },
    { ".gguf", "a GGUF file, which is not read" },
};
enum { HOLDING_COUNT = sizeof holdings / sizeof holdings[0] };

/* The name by which a folder is described: of the first row that fits, the first in byte order. */
typedef struct finding {
    int row; /* HOLDING_COUNT: nothing so far */
    char name[256];
} finding;

static sluice_status look_at(void *user, const char *name)
{
    finding *found = user;
    size_t bytes = strlen(name);
    for (int i = 0; i <= found->row && i < HOLDING_COUNT; i++) {
        size_t length = strlen(holdings[i].ending);
        if (bytes <= length || bytes >= sizeof found->name || strcmp(name + bytes - length, holdings[i].ending) != 0)
            continue;
        if (i == found->row && strcmp(name, found->name) >= 0) break;
        found->row = i;
        memcpy(found->name, name, bytes + 1);
        break;
    }
    return SLUICE_OK;
}

static bool holds_config(const char *folder)
{
    char path[PATH_MAX];
    return sl_folder_path(folder, "config.json", path) == SLUICE_OK && sl_path_exists(path);
}

sluice_status sl_refuse_folder(const char *folder)
{
    finding found = { .row = HOLDING_COUNT };
    if (!sl_path_exists(folder)) return sl_fail(SLUICE_ERR_INPUT, "%s: there is no such file or folder", folder);
    SL_TRY(sl_dir_list(folder, look_at, &found));
    if (found.row == HOLDING_COUNT && holds_config(folder))
        return sl_fail(SLUICE_ERR_INPUT,
                       "%s is the folder of a model without its weights: beside config.json there is neither "
                       "model.safetensors nor model.safetensors.index.json with its files; copy them there, or give "
                       "the folder that has them",
                       sl_show(folder).text);
    if (found.row == HOLDING_COUNT)
        return sl_fail(SLUICE_ERR_INPUT, "%s holds no checkpoint: no folder in it is called step-N", folder);
    return sl_fail(SLUICE_ERR_INPUT, "%s holds no checkpoint, but %s (%s)", folder, sl_quote(found.name).text,
                   holdings[found.row].advice);
}

sluice_status sl_weights_open(const char *path, sl_weights_set **out)
{
    uint64_t newest = 0;
    char hint[320];
    if (!sl_path_exists(path) && sl_hub_hint(path, hint, sizeof hint)[0] != '\0')
        return sl_fail(SLUICE_ERR_INPUT, "cannot open %s: there is no such file or folder%s", path, hint);
    if (!sl_is_folder(path) || sl_is_weights_folder(path)) return sl_weights_set_open(path, out);
    SL_TRY(sl_checkpoint_newest(path, &newest));
    if (newest == 0 && !sl_has_manifest(path)) return sl_refuse_folder(path);
    return sl_fail(SLUICE_ERR_INPUT,
                   "%s holds checkpoints, not a weights file: write one with sluice export %s --out FILE, or name the "
                   "folder as checkpoint.path",
                   path, path);
}

/* kept_vocabulary.c: finds and compares what files keep of a vocabulary. */
#include "checkpoint/kept_vocabulary.h"

#include <string.h>

#include "checkpoint/folder.h"
#include "checkpoint/manifest.h"

sl_kept_vocabulary sl_kept_in_set(const sl_weights_set *s)
{
    return (sl_kept_vocabulary){ sl_weights_set_metadata(s, SL_VOCABULARY_KEY),
                                 sl_weights_set_metadata(s, SL_CHARACTERS_KEY) };
}

static bool same(const char *a, const char *b)
{
    return strcmp(a != NULL ? a : "", b != NULL ? b : "") == 0;
}

sluice_status sl_kept_check(const sl_kept_vocabulary *here, const sl_kept_vocabulary *there, const char *path)
{
    if (here->unit == NULL || there->unit == NULL) return SLUICE_OK;
    if (same(here->unit, there->unit) && same(here->characters, there->characters)) return SLUICE_OK;
    return sl_fail(
        SLUICE_ERR_INPUT,
        "%s keeps another vocabulary (%s, %zu bytes of characters) than this run has (%s, %zu bytes): its token "
        "ids stand for other text",
        path, sl_quote(there->unit).text, there->characters != NULL ? strlen(there->characters) : 0,
        sl_quote(here->unit).text, here->characters != NULL ? strlen(here->characters) : 0);
}

static sluice_status copy(const sl_kept_vocabulary *kept, sl_arena *arena, sl_kept_vocabulary *out)
{
    sl_kept_vocabulary made = { NULL, NULL };
    if (kept->unit != NULL && (made.unit = sl_arena_strdup(arena, kept->unit)) == NULL) return SLUICE_ERR_NO_MEMORY;
    if (kept->characters != NULL && (made.characters = sl_arena_strdup(arena, kept->characters)) == NULL)
        return SLUICE_ERR_NO_MEMORY;
    *out = made;
    return SLUICE_OK;
}

sluice_status sl_weights_vocabulary(const char *path, sl_arena *arena, sl_kept_vocabulary *out)
{
    sl_weights_set *s;
    SL_TRY(sl_weights_open(path, &s));
    sl_kept_vocabulary kept = sl_kept_in_set(s);
    sluice_status st = copy(&kept, arena, out);
    sl_weights_set_close(s);
    return st;
}

/* A manifest that cannot be read, or is of another format, is passed over. */
static sluice_status read_manifest(const char *folder, const uint64_t *step, sl_arena *arena, sl_kept_vocabulary *out,
                                   bool *found)
{
    sl_manifest *m = NULL;
    sluice_status st = sl_manifest_read(folder, step, &m);
    if (st == SLUICE_ERR_INPUT || st == SLUICE_ERR_IO) return SLUICE_OK;
    if (st != SLUICE_OK) return st;
    *found = m->format == SL_CHECKPOINT_FORMAT;
    if (*found) st = copy(&m->vocabulary, arena, out);
    sl_manifest_free(m);
    return st;
}

sluice_status sl_checkpoint_vocabulary(const char *folder, sl_arena *arena, sl_kept_vocabulary *out, bool *found)
{
    sl_entries e;
    sluice_status st = SLUICE_OK;
    *found = false;
    if (sl_has_manifest(folder)) return read_manifest(folder, NULL, arena, out, found);
    SL_TRY(sl_entries_read(folder, &e));
    for (int64_t i = 0; i < e.count && st == SLUICE_OK && !*found; i++) {
        char path[PATH_MAX];
        if (e.list[i].kind == SL_ENTRY_TMP) continue;
        st = sl_entry_path(folder, e.list[i], path);
        if (st == SLUICE_OK) st = read_manifest(path, &e.list[i].step, arena, out, found);
    }
    sl_entries_free(&e);
    return st;
}

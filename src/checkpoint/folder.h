/* folder.h: the names in a folder of checkpoints.
 *
 *     step-N       a committed checkpoint
 *     step-N.tmp   one being written or removed: never read
 *     step-N.old   the former step-N while a new one takes its place: as good as committed while there is no step-N
 *     latest       the name of the newest, for people and scripts; nothing here reads it
 *     best         a link to the best step-N, by the metric that judges; wherever a step's folder is taken, so is this */
#ifndef SL_CHECKPOINT_FOLDER_H
#define SL_CHECKPOINT_FOLDER_H

#include <limits.h>

#include "core/io.h"
#include "format/weights_set.h"

typedef enum { SL_ENTRY_COMMITTED, SL_ENTRY_OLD, SL_ENTRY_TMP } sl_entry_kind;

typedef struct sl_entry {
    uint64_t step;
    sl_entry_kind kind;
} sl_entry;

typedef struct sl_entries {
    sl_entry *list; /* owned; newest step first, committed before old before tmp */
    int64_t count, capacity;
} sl_entries;

/* Lists what is in the folder by the rules above; other names are ignored. A missing folder has no entries. */
sluice_status sl_entries_read(const char *folder, sl_entries *out);
void sl_entries_free(sl_entries *e);
/* folder/step-N with the kind's ending. SLUICE_ERR_USAGE when it does not fit. */
sluice_status sl_entry_path(const char *folder, sl_entry entry, char path[PATH_MAX]);
/* folder/name, likewise. */
sluice_status sl_folder_path(const char *folder, const char *name, char path[PATH_MAX]);
/* True for a step's own folder. */
bool sl_has_manifest(const char *folder);
/* SLUICE_ERR_INPUT for a folder without a checkpoint: says what it holds instead, where that can be told. */
sluice_status sl_refuse_folder(const char *folder);
/* Opens weights (format/weights_set.h). A folder that holds none is refused as sl_refuse_folder does, or with what to do
 * with its checkpoints. */
sluice_status sl_weights_open(const char *path, sl_weights_set **out);
/* True for any folder. */
bool sl_is_folder(const char *path);
/* Removes a checkpoint's folder for good; it stops looking like a checkpoint before its first file goes. */
sluice_status sl_entry_remove(const char *folder, sl_entry entry);

#endif

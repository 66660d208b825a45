/* output_folder.h: a folder that is written whole: its name leads to the old contents or to all of the new ones.
 *
 * The files are written into a folder of the writer's own beside it (core/claim.h), which then takes its place: by a rename
 * where there is no such folder yet, otherwise by an exchange of the two names, after which the old contents go. Where the file
 * system cannot exchange names, the old folder is called FOLDER.old for the moment between two renames; a run that was killed
 * there is mended when the folder is next looked for. Files of the old folder that the new one neither writes nor disowns are
 * carried over. */
#ifndef SL_CORE_OUTPUT_FOLDER_H
#define SL_CORE_OUTPUT_FOLDER_H

#include <limits.h>

#include "core/claim.h"
#include "core/io.h"

/* Whether an output names a folder: it ends in a slash, or a folder is there. */
bool sl_is_folder_output(const char *path);

typedef struct sl_folder_target {
    char path[PATH_MAX];   /* links followed, no slash at its end */
    char lock[PATH_MAX];   /* FOLDER.tmp, while it is written */
    char old[PATH_MAX];    /* FOLDER.old */
    char parent[PATH_MAX]; /* of all three */
    sl_path_info before;   /* what is there now */
} sl_folder_target;

/* Finds where a folder goes. Changes nothing, but puts back an old folder that a killed run left as FOLDER.old alone, unless
 * somebody writes it now. SLUICE_ERR_USAGE: what is there is no folder, is a mount point, holds folders or what is no file, or
 * holds files of which none makes it one of those that may be replaced: `signs` lists their names, NULL ends it. An empty
 * folder may be. */
sluice_status sl_folder_target_find(const char *path, const char *const *signs, sl_folder_target *out);
/* Whether an input is the folder, or lies in it. */
sluice_status sl_folder_target_holds(const sl_folder_target *target, const char *input, bool *holds);
/* Whether another output is the folder or is to lie in it, at any depth, also where neither is there yet. */
sluice_status sl_folder_target_is_above(const sl_folder_target *target, const char *path, bool *above);
/* Makes sure that the folder can be written, now and not by another: makes its temporary folder and removes it. */
sluice_status sl_folder_target_try(const sl_folder_target *target);

typedef struct sl_folder_output {
    sl_folder_target target;
    sl_claim claim; /* its temporary name is the folder that is written */
} sl_folder_output;

/* Makes an empty temporary folder. Every output that was begun must be finished or dropped. */
sluice_status sl_folder_output_begin(const char *path, const char *const *signs, sl_folder_output *out);
/* The path that a file of the folder is written to. */
sluice_status sl_folder_output_path(const sl_folder_output *o, const char *name, char path[PATH_MAX]);
/* Puts the folder in place; all its files are on the disk. `disowns` says which files of the old folder are not carried over
 * although the new one does not write them. Where the exchange itself fails, the new folder stays under its temporary name,
 * and the message tells so. Ends the output in any case. */
sluice_status sl_folder_output_finish(sl_folder_output *o, bool (*disowns)(const char *name));
/* Removes the temporary folder; keeps the message of the failure that led here. One that was not begun is fine. */
void sl_folder_output_drop(sl_folder_output *o);

#endif

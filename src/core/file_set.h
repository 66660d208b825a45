/* file_set.h: the files of a command in one table: what it reads, and what it writes under names that people chose.
 *
 * Every command that has such an output makes a table before it opens or computes anything. Then no output is an input, a
 * file of a run's folder or another output, however it is spelt, and through links. All that is refused is
 * SLUICE_ERR_USAGE and names both. */
#ifndef SL_CORE_FILE_SET_H
#define SL_CORE_FILE_SET_H

#include "core/arena.h"
#include "core/output.h"
#include "core/output_folder.h"

typedef enum {
    SL_SET_READ,  /* a file, a pattern of files, or a folder, into which nothing is written */
    SL_SET_DATA,  /* the same; files in the folders below are not replaced either */
    SL_SET_MODEL, /* a file, or a model's folder: files that belong to a model are not written there */
    SL_SET_RUN,   /* a run's folder, or a checkpoint in it: the run's own files are not written there */
    SL_SET_WRITE, /* a file or a folder that is written whole; to an existing folder, or one with a slash at its end, as a model's */
    SL_SET_WRITE_FILE,   /* a file; where a folder is, that is refused */
    SL_SET_WRITE_FOLDER, /* a model's folder, spelt with a slash or without */
    SL_SET_APPEND,       /* a file to which something is added */
    SL_SET_GUARD,        /* a file that is written by other rules: no other output is to be it */
    SL_SET_FOLDER,       /* a folder in which files are made by other rules */
} sl_set_role;

typedef struct sl_set_file sl_set_file;

typedef struct sl_file_set {
    sl_arena arena;
    sl_set_file *list; /* in the arena */
    int count, capacity;
    const char *const *signs;           /* of a folder that may be replaced (core/output_folder.h) */
    bool (*is_model)(const char *name); /* a file that belongs to a model, and is no other in its folder */
    const int *stop;                    /* core/stop.h: patterns may name many files; set after init */
} sl_file_set;

void sl_file_set_init(sl_file_set *f, const char *const *signs, bool (*is_model)(const char *name));
void sl_file_set_free(sl_file_set *f);
/* name: of the setting, option or argument; borrowed. path is copied; NULL or "": there is none of that kind. */
sluice_status sl_file_set_add(sl_file_set *f, const char *name, const char *path, sl_set_role role);
/* Compares all. Changes nothing, but as sl_folder_target_find. */
sluice_status sl_file_set_check(sl_file_set *f);
/* The same; then makes sure that every output can be written. Frees the table whatever the result, which is that of `st`
 * where that is a failure already: what adding to the table ended with. */
sluice_status sl_file_set_try(sl_file_set *f, sluice_status st);

#endif

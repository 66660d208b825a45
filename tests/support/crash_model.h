/* crash_model.h: what a power cut may leave of a logged run.
 *
 * A file system that promises no more than it must. What was written to a file and not synced since may be there or
 * not, in pieces of 4 KiB; what was made, renamed or removed in a folder and not synced by an fsync of that very folder
 * may have happened or not, each by itself. A rename is one thing: the old name is gone and the new one there, or
 * neither. Syncing a file says nothing of its name, syncing a folder nothing of what lies deeper or of its own name. */
#ifndef SLUICE_TEST_CRASH_MODEL_H
#define SLUICE_TEST_CRASH_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "support/file_log.h"

#define CRASH_BLOCK 4096

typedef struct crash_model crash_model;

/* Which of the changes that no sync made last are there after the cut. */
typedef struct crash_chance {
    int data;          /* in percent: of the unsynced blocks of files */
    int names;         /* of the unsynced changes in folders */
    bool in_order;     /* of a folder the first ones, up to a random one, instead of any */
    bool whole_length; /* files that lost blocks keep their full length, zeros where nothing came */
} crash_chance;

crash_model *crash_create(void);
void crash_destroy(crash_model *m);
/* The next record of the log, with what lies behind it. False: it makes no sense here; crash_error tells. */
bool crash_apply(crash_model *m, const file_log_record *r, const char *path, const char *to, const uint8_t *data);
/* The last part of the name under which the object that a descriptor stands for was opened, "." for the top. */
const char *crash_name_of(const crash_model *m, int pid, int fd);
/* Writes what is left after a cut now to a folder, which is made anew. */
bool crash_write(const crash_model *m, crash_chance chance, uint64_t *random, const char *folder);
const char *crash_error(const crash_model *m);

#endif

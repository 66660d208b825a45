/* weights_files.h: all weights of a state in one safetensors file, or in several with an index as Hugging Face writes it.
 *
 *     model.safetensors, or
 *     model-00001-of-00003.safetensors ... model-00003-of-00003.safetensors, model.safetensors.index.json
 *
 * File k of n holds the weights among a run of the state's tensors; runs follow one another. An index appears only after all
 * its files are in place, and an old one goes before the first of them is replaced: what an index names is of one writing. */
#ifndef SL_CHECKPOINT_WEIGHTS_FILES_H
#define SL_CHECKPOINT_WEIGHTS_FILES_H

#include <limits.h>

#include "checkpoint/weights.h"

/* What other programs write by default, in bytes. */
#define SL_SHARD_BYTES 5000000000u

typedef struct sl_weights_files {
    const sl_state *state; /* borrowed */
    const char *path;      /* borrowed; of the file where there is one, otherwise what the names are made of */
    uint64_t shard_bytes;  /* of tensors in a file, at most, where it has more than one; 0: one file */
    int file_count;
    sl_st_writer **writers; /* owned; of files that were written and not finished; NULL where there is none */
    /* Called for each file that is in place, and with tensors 0 for the index; NULL: nobody listens. */
    void (*tell)(void *user, const char *path, int64_t tensors, uint64_t bytes);
    void *user;
} sl_weights_files;

/* Decides how many files there are. */
void sl_weights_files_plan(sl_weights_files *w, const sl_state *state, const char *path, uint64_t shard_bytes);
/* File `number` from 1 on; the index. SLUICE_ERR_USAGE: too long. */
sluice_status sl_weights_files_path(const sl_weights_files *w, int number, char path[PATH_MAX]);
sluice_status sl_weights_files_index(const sl_weights_files *w, char path[PATH_MAX]);
/* Whether there will be an index. */
bool sl_weights_files_have_index(const sl_weights_files *w);

/* Rank 0, between opening and closing g: gives the files their values. Where others wait, nothing that may take long is done
 * here. Always ended by finish or abort. */
sluice_status sl_weights_files_write(sl_weights_files *w, sl_gather *g);
/* Puts the files in place, then the index. */
sluice_status sl_weights_files_finish(sl_weights_files *w);
void sl_weights_files_abort(sl_weights_files *w); /* one that was never written is fine */

#endif

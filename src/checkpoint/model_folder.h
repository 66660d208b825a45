/* model_folder.h: weights, and what goes with them, as a folder that other programs open by itself. */
#ifndef SL_CHECKPOINT_MODEL_FOLDER_H
#define SL_CHECKPOINT_MODEL_FOLDER_H

#include "checkpoint/weights_files.h"
#include "core/output_folder.h"
#include "core/run_names.h"
#include "format/model_files.h"

/* A folder on its way; rank 0's. */
typedef struct sl_folder_writing {
    sl_folder_output output;
    sl_weights_files weights;
    const sl_model_files *others; /* borrowed */
    char path[PATH_MAX];          /* of the weights */
} sl_folder_writing;

/* Makes the temporary folder and decides about the files in it. `state` has its file_type and its file_prefix. Then
 * sl_weights_files_write of `weights`, then finish or abort. */
sluice_status sl_folder_writing_begin(sl_folder_writing *w, const char *path, const sl_state *state,
                                      uint64_t shard_bytes, const sl_model_files *others);
/* The weights' files, the others, and the folder's name: takes as long as the disk does. */
sluice_status sl_folder_writing_finish(void *writing);
void sl_folder_writing_abort(sl_folder_writing *w);

/* All of it, by all ranks together. */
sluice_status sl_state_folder_save(const sl_state *state, const char *path, uint64_t shard_bytes,
                                   const sl_model_files *others);

#endif

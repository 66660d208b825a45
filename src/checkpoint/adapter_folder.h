/* adapter_folder.h: the adapters of a model as a folder of PEFT: adapter_config.json and adapter_model.safetensors. */
#ifndef SL_CHECKPOINT_ADAPTER_FOLDER_H
#define SL_CHECKPOINT_ADAPTER_FOLDER_H

#include "checkpoint/state.h"
#include "format/adapter_config.h"
#include "format/model_files.h"

/* Writes the adapters of `state`, and the modules that were trained whole beside them, in f32. An adapter of a linear that
 * is several modules in published files is written as one for each: all get its A, and each its rows of B, which computes
 * the same. Of `c`, target_modules and modules_to_save follow from the state. `others`: files beside them, as
 * sl_tokenizer_files_make makes them; looked at by rank 0; NULL: none. All ranks together. */
sluice_status sl_state_adapter_save(const sl_state *state, const char *folder, const sl_adapter_config *c,
                                    const sl_model_files *others);

#endif

/* inspect_model.h: what a folder of a model says about it besides its weights. */
#ifndef SL_CHECKPOINT_INSPECT_MODEL_H
#define SL_CHECKPOINT_INSPECT_MODEL_H

#include <stdbool.h>
#include <stdio.h>

#include "core/status.h"

/* Whether the folder has a config.json, and weights beside it or a family named in it. */
bool sl_is_model_folder(const char *path);
/* Family, sizes, tokenizer and chat template, and whether the model can be used here, or why not; for people, or as one JSON
 * object on a line. What cannot be used is no failure. */
sluice_status sl_inspect_model(const char *folder, bool json, FILE *out);

#endif

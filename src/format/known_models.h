/* known_models.h: published models by name, so that a plan needs nothing but the name. */
#ifndef SL_FORMAT_KNOWN_MODELS_H
#define SL_FORMAT_KNOWN_MODELS_H

#include <stdio.h>

#include "format/model_config.h"

/* Whether a published model is called so (core/names.h); *out: what its config.json says of its mathematics, with weights
 * in bf16. */
bool sl_known_model(const char *name, sl_model_config *out);
/* Names that are near to one that is not known, as "a, b or c"; "" where none is. */
const char *sl_known_model_nearest(const char *name, char *buf, size_t bytes);
void sl_known_models_print(FILE *out);

/* What to do about a name such as "owner/model" where there is no such path, as the end of a message: "; ...". "" where it is not
 * written like one. */
const char *sl_hub_hint(const char *name, char *buf, size_t bytes);

#endif

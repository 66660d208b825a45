/* family.h: what the families of models share; private to model/. */
#ifndef SL_MODEL_FAMILY_H
#define SL_MODEL_FAMILY_H

#include "model/model.h"

/* One row per family. build() checks the settings it reads, then only describes: a building error stays in the graph
 * and sl_model_build reports it. */
typedef struct sl_model_family {
    const char *name;
    sluice_status (*build)(sluice_graph *g, const sl_model_options *o, sl_model_info *info);
} sl_model_family;

sluice_status sl_model_build_linear(sluice_graph *g, const sl_model_options *o, sl_model_info *info);
sluice_status sl_model_build_mlp(sluice_graph *g, const sl_model_options *o, sl_model_info *info);
sluice_status sl_model_build_gpt2(sluice_graph *g, const sl_model_options *o, sl_model_info *info);

/* 1 <= value <= max, or SLUICE_ERR_USAGE naming the key. */
sluice_status sl_model_check_size(const char *key, int64_t value, int64_t max);
/* The largest size of a dimension: ids and indices are 32-bit. */
#define SL_MODEL_MAX_SIZE ((int64_t)INT32_MAX)

#endif

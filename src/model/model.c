/* model.c: the table of families and the way into it. */
#include "model/model.h"

#include <inttypes.h>
#include <string.h>

#include "model/family.h"

static const sl_model_family families[] = {
    { "linear", sl_model_build_linear },
    { "mlp", sl_model_build_mlp },
    { "gpt2", sl_model_build_gpt2 },
};

const char *sl_model_names(void)
{
    return "linear, mlp, gpt2";
}

sluice_status sl_model_check_size(const char *key, int64_t value, int64_t max)
{
    if (value < 1 || value > max)
        return sl_fail(SLUICE_ERR_USAGE, "%s is %" PRId64 "; give 1 to %" PRId64, key, value, max);
    return SLUICE_OK;
}

sluice_status sl_model_build(sluice_graph *g, const sl_model_options *o, sl_model_info *info)
{
    const char *type = o->type != NULL ? o->type : "";
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++) {
        if (strcmp(families[i].name, type) != 0) continue;
        sl_model_info found = { 0 };
        SL_TRY(sl_model_check_size("train_micro_batch_size_per_gpu", o->batch, SL_MODEL_MAX_SIZE));
        SL_TRY(families[i].build(g, o, &found));
        SL_TRY(sluice_graph_check(g));
        *info = found;
        return SLUICE_OK;
    }
    return sl_fail(SLUICE_ERR_USAGE, "model.type \"%s\" is not known; give one of %s", type, sl_model_names());
}

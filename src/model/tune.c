/* tune.c: which parameters of a model are trained: frozen ones by pattern, and adapters beside frozen weights. */
#include <fnmatch.h>
#include <inttypes.h>
#include <string.h>

#include "model/family.h"

bool sl_model_has_adapter(const sl_model_options *o, const char *linear)
{
    for (int i = 0; o->lora.rank > 0 && i < o->lora.target_count; i++)
        if (fnmatch(o->lora.targets[i], linear, 0) == 0) return true;
    return false;
}

sluice_status sl_model_check_tuning(const sl_model_options *o, const sl_model_family *family)
{
    if (o->lora.rank == 0) return SLUICE_OK;
    SL_TRY(sl_model_check_size("lora.rank", o->lora.rank, SL_MODEL_MAX_SIZE));
    if (!family->reads_tokens)
        return sl_fail(SLUICE_ERR_USAGE, "lora has no meaning for model.type %s; it is for gpt2 and llama",
                       family->name);
    if (!(o->lora.alpha >= 0 && o->lora.alpha < 1e30))
        return sl_fail(SLUICE_ERR_USAGE, "lora.alpha is %g; give a positive number", o->lora.alpha);
    if (!(o->lora.dropout >= 0 && o->lora.dropout < 1))
        return sl_fail(SLUICE_ERR_USAGE, "lora.dropout is %g; give a probability from 0 to below 1", o->lora.dropout);
    if (o->lora.target_count < 1)
        return sl_fail(SLUICE_ERR_USAGE, "lora.targets is empty; give patterns of the linears to adapt, such as \"*\"");
    return SLUICE_OK;
}

/* "h.0.attn.c_attn" for "h.0.attn.c_attn.weight"; false: another ending, or too long for a module. */
static bool module_of(const char *parameter, char out[SL_MODEL_NAME_BYTES])
{
    size_t bytes = strlen(parameter), ending = strlen(".weight");
    if (bytes <= ending || bytes - ending >= SL_MODEL_NAME_BYTES) return false;
    if (strcmp(parameter + bytes - ending, ".weight") != 0) return false;
    memcpy(out, parameter, bytes - ending);
    out[bytes - ending] = '\0';
    return true;
}

/* A target without a linear is a mistake; where it names something else of the model, that is said. */
static sluice_status check_target(const sluice_graph *g, const char *target)
{
    char module[SL_MODEL_NAME_BYTES], other[SL_MODEL_NAME_BYTES] = "";
    for (int p = 0; p < g->parameter_count; p++) {
        if (!module_of(g->parameters[p].name, module) || fnmatch(target, module, 0) != 0) continue;
        char a[SL_MODEL_NAME_BYTES + 16];
        snprintf(a, sizeof a, "%s.lora_A.weight", module);
        if (sl_graph_find_parameter(g, a) >= 0) return SLUICE_OK;
        if (other[0] == '\0') memcpy(other, module, sizeof other);
    }
    if (other[0] != '\0')
        return sl_fail(SLUICE_ERR_USAGE,
                       "lora.targets: \"%.100s\" names %s, which takes no adapter: it is an embedding, the output head "
                       "or a norm; name linears of the blocks",
                       target, other);
    return sl_fail(SLUICE_ERR_USAGE, "lora.targets: no linear of this model is called like \"%.100s\"", target);
}

static sluice_status freeze_pattern(sluice_graph *g, const char *pattern)
{
    bool found = false;
    for (int p = 0; p < g->parameter_count; p++) {
        if (fnmatch(pattern, g->parameters[p].name, 0) != 0) continue;
        g->parameters[p].trainable = false;
        found = true;
    }
    if (found) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_USAGE, "freeze: no parameter of this model is called like \"%.100s\"", pattern);
}

sluice_status sl_model_freeze(sluice_graph *g, const sl_model_options *o)
{
    if (o->lora.rank > 0) {
        for (int i = 0; i < o->lora.target_count; i++) SL_TRY(check_target(g, o->lora.targets[i]));
        for (int p = 0; p < g->parameter_count; p++) g->parameters[p].trainable = g->parameters[p].is_adapter;
    }
    for (int i = 0; i < o->freeze_count; i++) SL_TRY(freeze_pattern(g, o->freeze[i]));
    return SLUICE_OK;
}

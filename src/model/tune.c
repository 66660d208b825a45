/* tune.c: which parameters of a model are trained: frozen ones by pattern, and adapters beside frozen weights. */
#include <fnmatch.h>
#include <inttypes.h>
#include <string.h>

#include "core/alloc.h"
#include "format/adapter_config.h"
#include "format/weight_names.h"
#include "ir/pattern.h"
#include "model/family.h"

/* A file-name pattern of the whole name, or the name's end after a dot, which is how PEFT names modules, or all of it with a
 * prefix that names of a graph lack. */
static bool names_module(const char *name, const char *module)
{
    if (fnmatch(name, module, 0) == 0 || sl_peft_names_module(name, module)) return true;
    for (const sl_weight_prefix *p = sl_weight_prefixes; p->text != NULL; p++)
        if (strncmp(name, p->text, strlen(p->text)) == 0 && strcmp(name + strlen(p->text), module) == 0) return true;
    return false;
}

bool sl_model_has_adapter(const sl_model_options *o, const char *linear, bool fused)
{
    for (int i = 0; o->lora.rank > 0 && i < o->lora.target_count; i++) {
        const char *target = o->lora.targets[i];
        if (strcmp(target, SL_PEFT_ALL_LINEAR) == 0 ? !fused : names_module(target, linear)) return true;
    }
    return false;
}

sluice_status sl_model_check_tuning(const sl_model_options *o, const sl_model_family *family)
{
    if (o->lora.rank == 0) return SLUICE_OK;
    SL_TRY(sl_model_check_size("lora.rank", o->lora.rank, SL_MODEL_MAX_SIZE));
    if (family->reads != SL_SAMPLES_TOKENS)
        return sl_fail(SLUICE_ERR_USAGE, "lora has no meaning for model.type %s; it is for language models",
                       family->name);
    if (!(o->lora.alpha >= 0 && o->lora.alpha < 1e30))
        return sl_fail(SLUICE_ERR_USAGE, "lora.alpha is %g; give a positive number", o->lora.alpha);
    if (!(o->lora.dropout >= 0 && o->lora.dropout < 1))
        return sl_fail(SLUICE_ERR_USAGE, "lora.dropout is %g; give a probability from 0 to below 1", o->lora.dropout);
    if (o->lora.target_count < 1)
        return sl_fail(SLUICE_ERR_USAGE, "lora.targets is empty; give patterns of the linears to adapt, such as \"*\"");
    return SLUICE_OK;
}

bool sl_model_module_of(const char *parameter, char out[SL_MODEL_NAME_BYTES])
{
    size_t bytes = strlen(parameter), ending = strlen(".weight");
    if (bytes <= ending || bytes - ending >= SL_MODEL_NAME_BYTES) return false;
    if (strcmp(parameter + bytes - ending, ".weight") != 0) return false;
    memcpy(out, parameter, bytes - ending);
    out[bytes - ending] = '\0';
    return true;
}

/* Whether `target` names the module of `weight`; adapted: and it has an adapter. */
static bool target_names(const sluice_graph *g, const char *target, const char *weight, bool *adapted,
                         char module[SL_MODEL_NAME_BYTES])
{
    char b[SL_MODEL_NAME_BYTES + 16];
    if (!sl_model_module_of(weight, module) || !names_module(target, module)) return false;
    snprintf(b, sizeof b, "%s.lora_B.weight", module);
    *adapted = sl_graph_find_parameter(g, b) >= 0;
    return true;
}

/* A target without a linear is a mistake; where it names something else of the model, that is said. */
static sluice_status check_target(const sluice_graph *g, const char *target)
{
    char module[SL_MODEL_NAME_BYTES], other[SL_MODEL_NAME_BYTES] = "";
    if (strcmp(target, SL_PEFT_ALL_LINEAR) == 0) return SLUICE_OK;
    for (int p = 0; p < g->parameter_count; p++) {
        const sl_parameter *q = &g->parameters[p];
        bool adapted;
        for (int k = -1; k < q->part_count && !q->is_adapter; k++) {
            if (!target_names(g, target, k < 0 ? q->name : q->parts[k].name, &adapted, module)) continue;
            if (adapted) return SLUICE_OK;
            if (other[0] == '\0') memcpy(other, module, sizeof other);
        }
    }
    if (other[0] != '\0')
        return sl_fail(SLUICE_ERR_USAGE,
                       "lora.targets: \"%.100s\" names %s, which takes no adapter: it is an embedding, the output head "
                       "or a norm; name linears of the blocks",
                       target, other);
    return sl_fail(SLUICE_ERR_USAGE, "lora.targets: no linear of this model is called like \"%.100s\"", target);
}

static void freeze(sl_parameter *p)
{
    p->trainable = false;
}

static void begin_anew(sl_parameter *p)
{
    p->is_fresh = true;
}

/* A setting of patterns over names of parameters. */
typedef struct marking {
    const char *key;
    const char *const *patterns;
    int count;
    void (*mark)(sl_parameter *p);
    bool once; /* what has been marked may be named in part: nothing is left to do */
} marking;

/* Bits of all parameters that the patterns name, each one at least. */
static sluice_status match_all(const sluice_graph *g, const marking *m, uint8_t *all, uint8_t *named)
{
    for (int i = 0; i < m->count; i++) {
        if (sl_graph_match(g, m->patterns[i], named) == 0 && !sl_model_is_constant(g, m->patterns[i]))
            return sl_fail(SLUICE_ERR_USAGE,
                           "%s: no parameter of this model is called like \"%.100s\"; `sluice inspect` lists the names "
                           "of a folder or file",
                           m->key, m->patterns[i]);
        for (int p = 0; p < g->parameter_count; p++) all[p] |= named[p];
    }
    return SLUICE_OK;
}

static sluice_status mark_all(sluice_graph *g, const marking *m, const uint8_t *all)
{
    char reason[6 * SL_MODEL_NAME_BYTES + 200];
    for (int p = 0; p < g->parameter_count; p++) {
        sl_parameter *q = &g->parameters[p];
        if (all[p] == 0 || (m->once && !q->trainable)) continue;
        if (!sl_graph_is_whole(g, p, all[p])) {
            sl_graph_explain_part(g, p, all[p], reason, sizeof reason);
            return sl_fail(SLUICE_ERR_USAGE, "%s: %s", m->key, reason);
        }
        m->mark(q);
    }
    return SLUICE_OK;
}

static sluice_status mark_patterns(sluice_graph *g, const marking *m)
{
    if (m->count == 0) return SLUICE_OK;
    uint8_t *bits = sl_alloc_array((size_t)g->parameter_count + 1, 2, "names of parameters");
    if (bits == NULL) return SLUICE_ERR_NO_MEMORY;
    memset(bits, 0, 2 * (size_t)g->parameter_count);
    sluice_status st = match_all(g, m, bits, bits + g->parameter_count);
    if (st == SLUICE_OK) st = mark_all(g, m, bits);
    sl_free(bits);
    return st;
}

/* Whether a parameter is of the base, and of the module that is called so. */
static bool is_of_module(const sl_parameter *q, const char *name)
{
    char module[2 * SL_MODEL_NAME_BYTES];
    const char *end = strrchr(q->name, '.');
    if (q->is_adapter || end == NULL) return false;
    snprintf(module, sizeof module, "%.*s", (int)(end - q->name), q->name);
    return names_module(name, module);
}

/* The parameters of a module that is trained whole beside the adapters. */
static sluice_status train_whole(sluice_graph *g, const char *name)
{
    bool found = false;
    for (int p = 0; p < g->parameter_count; p++) {
        if (!is_of_module(&g->parameters[p], name)) continue;
        g->parameters[p].trainable = true;
        found = true;
    }
    if (found) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_USAGE,
                   "lora.modules_to_save: no module of this model is called like \"%.100s\"; give names such as "
                   "\"lm_head\" or \"embed_tokens\" (a tied head has no weights of its own)",
                   name);
}

static bool has_module(const sluice_graph *g, const char *name)
{
    bool found = false;
    for (int p = 0; p < g->parameter_count && !found; p++) found = is_of_module(&g->parameters[p], name);
    return found;
}

/* Whether a name stands there because PEFT names heads twice. */
static bool is_other_head(const sluice_graph *g, const sl_model_options *o, const char *name)
{
    const char *other = sl_peft_other_head(name);
    if (other == NULL || has_module(g, name) || !has_module(g, other)) return false;
    for (int i = 0; i < o->lora.whole_count; i++)
        if (strcmp(o->lora.whole[i], other) == 0) return true;
    return false;
}

sluice_status sl_model_freeze(sluice_graph *g, const sl_model_options *o)
{
    if (o->lora.rank > 0) {
        for (int i = 0; i < o->lora.target_count; i++) SL_TRY(check_target(g, o->lora.targets[i]));
        for (int p = 0; p < g->parameter_count; p++) g->parameters[p].trainable = g->parameters[p].is_adapter;
        for (int i = 0; i < o->lora.whole_count; i++)
            if (!is_other_head(g, o, o->lora.whole[i])) SL_TRY(train_whole(g, o->lora.whole[i]));
    }
    SL_TRY(mark_patterns(g, &(marking){ "freeze", o->freeze, o->freeze_count, freeze, true }));
    return mark_patterns(g, &(marking){ "new_parameters", o->fresh, o->fresh_count, begin_anew, false });
}

/* adapter_open.c: the two files of an adapter, which must tell of the same modules. */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "core/quote.h"
#include "format/adapter_config.h"

/* What a tensor of the file is to the configuration. */
typedef struct adapter_tensor {
    char module[1024]; /* by its name in transformers */
    bool whole;        /* one of modules_to_save; else a matrix of an adapter */
} adapter_tensor;

static bool cut_ending(const char *name, const char *ending, adapter_tensor *out)
{
    if (!sl_name_ends_in(name, ending)) return false;
    size_t bytes = strlen(name) - strlen(ending);
    if (bytes >= sizeof out->module) return false;
    memcpy(out->module, name, bytes);
    out->module[bytes] = '\0';
    return true;
}

/* False: PEFT writes no tensor of that name. */
static bool read_name(const char *name, adapter_tensor *out)
{
    size_t prefix = strlen(SL_PEFT_PREFIX);
    if (strncmp(name, SL_PEFT_PREFIX, prefix) != 0) return false;
    name += prefix;
    out->whole = false;
    if (cut_ending(name, SL_LORA_A, out) || cut_ending(name, SL_LORA_B, out)) return true;
    out->whole = true;
    return cut_ending(name, SL_MODULE_WEIGHT, out) || cut_ending(name, ".bias", out);
}

static bool names(const char *end, bool whole, const char *module)
{
    return (!whole && strcmp(end, SL_PEFT_ALL_LINEAR) == 0) || sl_peft_names_module(end, module);
}

/* Marks the entries that name the module; false: none does. */
static bool find_entry(const char *const *list, int count, const adapter_tensor *t, bool *used)
{
    bool found = false;
    for (int i = 0; i < count; i++) {
        if (!names(list[i], t->whole, t->module)) continue;
        used[i] = found = true;
    }
    return found;
}

/* Whether an entry stands there because PEFT names heads twice. */
static bool is_other_head(const char *const *list, int count, const bool *used, const char *name)
{
    const char *other = sl_peft_other_head(name);
    for (int i = 0; other != NULL && i < count; i++)
        if (used[i] && strcmp(list[i], other) == 0) return true;
    return false;
}

static sluice_status check_used(const char *folder, const char *key, const char *const *list, int count,
                                const bool *used)
{
    for (int i = 0; i < count; i++)
        if (!used[i] && !is_other_head(list, count, used, list[i]))
            return sl_fail(SLUICE_ERR_INPUT,
                           "%s/" SL_ADAPTER_CONFIG ": %s: " SL_ADAPTER_WEIGHTS
                           " has no tensor of a module called %s; the two files are not of one adapter",
                           sl_show(folder).text, key, sl_quote(list[i]).text);
    return SLUICE_OK;
}

static sluice_status compare(const char *folder, const sl_adapter_config *c, const sl_weights_set *weights,
                             bool *targets, bool *whole)
{
    for (int64_t i = 0; i < weights->tensor_count; i++) {
        const char *name = weights->tensors[i].name;
        adapter_tensor t;
        bool known = read_name(name, &t);
        if (known && find_entry(t.whole ? c->whole : c->targets, t.whole ? c->whole_count : c->target_count, &t,
                                t.whole ? whole : targets))
            continue;
        return sl_fail(SLUICE_ERR_INPUT,
                       "%s/" SL_ADAPTER_WEIGHTS ": tensor %s is of no module that %s of " SL_ADAPTER_CONFIG
                       " names; the two files are not of one adapter",
                       sl_show(folder).text, sl_quote(name).text,
                       known ? t.whole ? "modules_to_save" : "target_modules" : "target_modules or modules_to_save");
    }
    SL_TRY(check_used(folder, "target_modules", c->targets, c->target_count, targets));
    return check_used(folder, "modules_to_save", c->whole, c->whole_count, whole);
}

sluice_status sl_adapter_open(const char *folder, sl_arena *arena, sl_adapter_config *config, sl_weights_set **out)
{
    char path[PATH_MAX];
    bool targets[SL_ADAPTER_MAX_NAMES] = { false }, whole[SL_ADAPTER_MAX_NAMES] = { false };
    sl_weights_set *weights;
    SL_TRY(sl_adapter_config_read(folder, arena, config));
    if (snprintf(path, sizeof path, "%s/" SL_ADAPTER_WEIGHTS, folder) >= (int)sizeof path)
        return sl_fail(SLUICE_ERR_INPUT, "%.200s...: the path is too long", folder);
    SL_TRY(sl_weights_set_open(path, &weights));
    sluice_status st = compare(folder, config, weights, targets, whole);
    if (st != SLUICE_OK) {
        sl_weights_set_close(weights);
        return st;
    }
    *out = weights;
    return SLUICE_OK;
}

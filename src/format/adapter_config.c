/* adapter_config.c: reading and writing adapter_config.json. */
#include "format/adapter_config.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/io.h"
#include "core/quote.h"
#include "format/json.h"

#define CAUSAL           "CAUSAL_LM" /* of PEFT's task types that of models that go on with a text */
#define MAX_CONFIG_BYTES ((size_t)4 << 20)

bool sl_name_ends_in(const char *name, const char *end)
{
    size_t a = strlen(name), b = strlen(end);
    return a > b && strcmp(name + a - b, end) == 0;
}

bool sl_peft_names_module(const char *end, const char *module)
{
    if (strcmp(end, module) == 0) return true;
    return end[0] != '\0' && sl_name_ends_in(module, end) && module[strlen(module) - strlen(end) - 1] == '.';
}

const char *sl_peft_other_head(const char *name)
{
    static const char *const heads[] = { "classifier", "score" };
    return strcmp(name, heads[0]) == 0 ? heads[1] : strcmp(name, heads[1]) == 0 ? heads[0] : NULL;
}

double sl_adapter_scale(const sl_adapter_config *c)
{
    return c->alpha / (c->rank_stabilised ? sqrt((double)c->rank) : (double)c->rank);
}

/* A file that is being read. */
typedef struct reading {
    const char *what;
    const json_t *root;
    sl_arena *arena;
} reading;

/* ---- What is refused ---- */

/* Keys that must be absent, null, false, an empty object or an empty list. */
static const struct {
    const char *key, *why;
} refused[] = {
    { "use_dora", "DoRA is not built in" },
    { "rank_pattern", "ranks that differ between modules are not built in" },
    { "alpha_pattern", "scales that differ between modules are not built in" },
    { "layers_to_transform", "adapters on some layers alone are not built in" },
    { "layers_pattern", "adapters on some layers alone are not built in" },
    { "exclude_modules", "exclusions are not built in; list the modules in target_modules" },
    { "target_parameters", "adapters on bare parameters are not built in" },
    { "trainable_token_indices", "training single tokens is not built in" },
    { "layer_replication", "replicated layers are not built in" },
    { "lora_bias", "biases of adapters are not built in" },
    { "megatron_config", "Megatron's parallel layers are not built in" },
    { "loftq_config", "LoftQ is not built in" },
    { "eva_config", "EVA is not built in" },
    { "corda_config", "CorDA is not built in" },
    { "arrow_config", "Arrow is not built in" },
    { "alora_invocation_tokens", "activated LoRA is not built in" },
};

static bool is_set(const json_t *v)
{
    if (v == NULL || json_is_null(v) || json_is_false(v)) return false;
    if (json_is_object(v)) return json_object_size(v) > 0;
    if (json_is_array(v)) return json_array_size(v) > 0;
    return true;
}

static sluice_status fail_key(const reading *r, const char *key, const char *why)
{
    return sl_fail(SLUICE_ERR_INPUT, "%s: %s: %s", sl_show(r->what).text, key, why);
}

/* A word that must be `wanted` where it is given. */
static sluice_status check_word(const reading *r, const char *key, const char *wanted, const char *why)
{
    const json_t *v = json_object_get(r->root, key);
    if (v == NULL || json_is_null(v)) return SLUICE_OK;
    if (json_is_string(v) && strcmp(json_string_value(v), wanted) == 0) return SLUICE_OK;
    return fail_key(r, key, why);
}

/* How the adapters began does not matter, unless the base's weights were changed with it. */
static sluice_status check_start(const reading *r)
{
    const json_t *v = json_object_get(r->root, "init_lora_weights");
    if (!json_is_string(v) || strcmp(json_string_value(v), "gaussian") == 0) return SLUICE_OK;
    if (strcmp(json_string_value(v), "orthogonal") == 0 || strcmp(json_string_value(v), "eva") == 0) return SLUICE_OK;
    return fail_key(
        r, "init_lora_weights",
        "this way to begin changes the weights of the base model as well; convert the adapter with PEFT first");
}

static sluice_status check_kind(const reading *r)
{
    const json_t *type = json_object_get(r->root, "peft_type");
    if (!json_is_string(type)) return fail_key(r, "peft_type", "it is missing; this is no adapter_config.json of PEFT");
    SL_TRY(check_word(r, "peft_type", "LORA", "LoRA is the only kind of adapter that is built in"));
    SL_TRY(check_word(r, "bias", "none", "biases that are trained beside adapters are not built in"));
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
        if (is_set(json_object_get(r->root, refused[i].key))) return fail_key(r, refused[i].key, refused[i].why);
    return check_start(r);
}

/* ---- What is read ---- */

static sluice_status read_number(const reading *r, const char *key, double absent, double least, double most,
                                 double *out)
{
    const json_t *v = json_object_get(r->root, key);
    *out = absent;
    if (v == NULL || json_is_null(v)) return SLUICE_OK;
    *out = json_number_value(v);
    if (json_is_number(v) && *out >= least && *out <= most) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_INPUT, "%s: %s is no number from %g to %g", sl_show(r->what).text, key, least, most);
}

static sluice_status read_flag(const reading *r, const char *key, bool *out)
{
    const json_t *v = json_object_get(r->root, key);
    *out = json_is_true(v);
    if (v == NULL || json_is_null(v) || json_is_boolean(v)) return SLUICE_OK;
    return fail_key(r, key, "it is neither true nor false");
}

static sluice_status read_names(const reading *r, const char *key, const char *const **out, int *count)
{
    const json_t *list = json_object_get(r->root, key), *entry;
    size_t i;
    *out = NULL;
    *count = 0;
    if (list == NULL || json_is_null(list)) return SLUICE_OK;
    if (!json_is_array(list) || json_array_size(list) > SL_ADAPTER_MAX_NAMES)
        return sl_fail(SLUICE_ERR_INPUT, "%s: %s is no list of at most %d names", sl_show(r->what).text, key,
                       SL_ADAPTER_MAX_NAMES);
    const char **names = sl_arena_array(r->arena, json_array_size(list) + 1, sizeof *names);
    if (names == NULL) return SLUICE_ERR_NO_MEMORY;
    json_array_foreach(list, i, entry)
    {
        if (!json_is_string(entry) || json_string_length(entry) == 0) return fail_key(r, key, "an entry is no name");
        names[i] = sl_arena_strdup(r->arena, json_string_value(entry));
        if (names[i] == NULL) return SLUICE_ERR_NO_MEMORY;
    }
    *out = names;
    *count = (int)json_array_size(list);
    return SLUICE_OK;
}

/* A list, or the word all-linear. Any other string is a regular expression. */
static sluice_status read_targets(const reading *r, sl_adapter_config *out)
{
    const json_t *v = json_object_get(r->root, "target_modules");
    if (json_is_string(v)) {
        static const char *const all[] = { SL_PEFT_ALL_LINEAR };
        if (strcmp(json_string_value(v), all[0]) != 0)
            return fail_key(r, "target_modules", "regular expressions are not built in; give a list of names");
        out->targets = all;
        out->target_count = 1;
        return SLUICE_OK;
    }
    SL_TRY(read_names(r, "target_modules", &out->targets, &out->target_count));
    if (out->target_count > 0) return SLUICE_OK;
    return fail_key(r, "target_modules", "it names no modules; give the list that the adapter was trained with");
}

static sluice_status read_all(const reading *r, sl_adapter_config *out)
{
    const json_t *base = json_object_get(r->root, "base_model_name_or_path");
    const char *task = json_string_value(json_object_get(r->root, "task_type"));
    double rank;
    SL_TRY(check_kind(r));
    SL_TRY(read_number(r, "r", 8, 1, SL_ADAPTER_MAX_RANK, &rank));
    out->rank = (int64_t)rank;
    if ((double)out->rank != rank) return fail_key(r, "r", "it is no whole number");
    SL_TRY(read_number(r, "lora_alpha", 8, 1e-6, 1e6, &out->alpha));
    SL_TRY(read_number(r, "lora_dropout", 0, 0, 0.999, &out->dropout));
    SL_TRY(read_flag(r, "use_rslora", &out->rank_stabilised));
    SL_TRY(read_flag(r, "fan_in_fan_out", &out->in_out));
    out->causal = task != NULL && strcmp(task, CAUSAL) == 0;
    SL_TRY(read_targets(r, out));
    SL_TRY(read_names(r, "modules_to_save", &out->whole, &out->whole_count));
    out->base = sl_arena_strdup(r->arena, json_is_string(base) ? json_string_value(base) : "");
    return out->base != NULL ? SLUICE_OK : SLUICE_ERR_NO_MEMORY;
}

sluice_status sl_adapter_config_parse(const char *text, size_t bytes, const char *what, sl_arena *arena,
                                      sl_adapter_config *out)
{
    json_t *root = NULL;
    *out = (sl_adapter_config){ .rank = 0 };
    SL_TRY(sl_json_parse(text, bytes, what, SLUICE_ERR_INPUT, &root));
    reading r = { what, root, arena };
    sluice_status st =
        json_is_object(root) ? read_all(&r, out) : sl_fail(SLUICE_ERR_INPUT, "%s holds no object", sl_show(what).text);
    json_decref(root);
    return st;
}

static bool config_path(const char *folder, char path[PATH_MAX])
{
    return snprintf(path, PATH_MAX, "%s/" SL_ADAPTER_CONFIG, folder) < PATH_MAX;
}

bool sl_is_adapter_folder(const char *path)
{
    char config[PATH_MAX];
    return config_path(path, config) && sl_path_exists(config);
}

sluice_status sl_adapter_config_read(const char *folder, sl_arena *arena, sl_adapter_config *out)
{
    char path[PATH_MAX], *text = NULL;
    size_t bytes;
    if (!config_path(folder, path)) return sl_fail(SLUICE_ERR_INPUT, "%.200s...: the path is too long", folder);
    if (!sl_path_exists(path))
        return sl_fail(SLUICE_ERR_INPUT,
                       "%s holds no " SL_ADAPTER_CONFIG
                       "; an adapter is a folder with that file and " SL_ADAPTER_WEIGHTS,
                       sl_show(folder).text);
    SL_TRY(sl_file_read_all(path, MAX_CONFIG_BYTES, &text, &bytes));
    sluice_status st = sl_adapter_config_parse(text, bytes, path, arena, out);
    sl_free(text);
    return st;
}

/* ---- Writing ---- */

/* NULL where the list is empty, as PEFT writes it. */
static void add_names(sl_text *t, const char *key, const char *const *names, int count)
{
    sl_text_add(t, "  \"%s\": %s", key, count > 0 ? "[" : "null");
    for (int i = 0; i < count; i++) {
        sl_text_add(t, "%s", i > 0 ? ", " : "");
        sl_text_add_string(t, names[i]);
    }
    sl_text_add(t, "%s,\n", count > 0 ? "]" : "");
}

static const char *word(bool b)
{
    return b ? "true" : "false";
}

sluice_status sl_adapter_config_write(const sl_adapter_config *c, sl_text *out)
{
    sl_text_add(out, "{\n  \"peft_type\": \"LORA\",\n  \"task_type\": %s,\n  \"base_model_name_or_path\": ",
                c->causal ? "\"" CAUSAL "\"" : "null");
    if (c->base[0] != '\0')
        sl_text_add_string(out, c->base);
    else
        sl_text_add(out, "null");
    sl_text_add(out, ",\n  \"r\": %" PRId64 ",\n  \"lora_alpha\": %.17g,\n  \"lora_dropout\": %.17g,\n", c->rank,
                c->alpha, c->dropout);
    sl_text_add(out, "  \"use_rslora\": %s,\n  \"fan_in_fan_out\": %s,\n", word(c->rank_stabilised), word(c->in_out));
    add_names(out, "target_modules", c->targets, c->target_count);
    add_names(out, "modules_to_save", c->whole, c->whole_count);
    sl_text_add(out, "  \"bias\": \"none\",\n  \"init_lora_weights\": true,\n  \"inference_mode\": true\n}\n");
    return sl_text_status(out);
}

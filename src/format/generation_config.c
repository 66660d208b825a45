/* generation_config.c: reading generation_config.json. */
#include "format/generation_config.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/io.h"
#include "format/json.h"

#define MAX_CONFIG_BYTES ((size_t)4 << 20)
#define LARGEST          1e9

/* ---- values ---- */

static sluice_status refuse(const char *what, const char *key, const json_t *value, const char *must)
{
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    sl_error_record("%s: %s: %.100s is not %s", what, key, text != NULL ? text : "?", must);
    sl_json_free_text(text);
    return sl_status_after(SLUICE_ERR_INPUT);
}

static bool is_said(const json_t *root, const char *key, const json_t **value)
{
    *value = json_object_get(root, key);
    return *value != NULL && !json_is_null(*value);
}

/* A number from 0, or `above` it, to `most`. */
static sluice_status read_number(const json_t *root, const char *what, const char *key, bool above, double most,
                                 double *out)
{
    const json_t *value;
    char must[64];
    if (!is_said(root, key, &value)) return SLUICE_OK;
    double number = json_is_number(value) ? json_number_value(value) : -1;
    snprintf(must, sizeof must, "a number %s 0%s %g", above ? "above" : "from", above ? " and at most" : " to", most);
    if (!(number >= 0 && number <= most) || (above && number == 0)) return refuse(what, key, value, must);
    *out = number;
    return SLUICE_OK;
}

static sluice_status read_whole(const json_t *root, const char *what, const char *key, int64_t *out)
{
    const json_t *value;
    if (!is_said(root, key, &value)) return SLUICE_OK;
    if (!json_is_integer(value) || json_integer_value(value) < 0 || json_integer_value(value) > INT_MAX)
        return refuse(what, key, value, "a whole number from 0 to 2147483647");
    *out = json_integer_value(value);
    return SLUICE_OK;
}

static sluice_status read_samples(const json_t *root, const char *what, int *out)
{
    const json_t *value;
    if (!is_said(root, "do_sample", &value)) return SLUICE_OK;
    if (!json_is_boolean(value)) return refuse(what, "do_sample", value, "true or false");
    *out = json_is_true(value);
    return SLUICE_OK;
}

static sluice_status add_end(const json_t *id, const char *what, sl_generation_config *out)
{
    if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) > INT32_MAX)
        return refuse(what, "eos_token_id", id, "a token id");
    out->ends[out->end_count++] = (int32_t)json_integer_value(id);
    return SLUICE_OK;
}

/* An id or a list of them. */
static sluice_status read_ends(const json_t *root, const char *what, sl_generation_config *out)
{
    const json_t *value, *id;
    size_t i;
    if (!is_said(root, "eos_token_id", &value)) return SLUICE_OK;
    if (!json_is_array(value)) return add_end(value, what, out);
    if (json_array_size(value) > SL_GENERATION_MAX_ENDS)
        return sl_fail(SLUICE_ERR_INPUT, "%s: eos_token_id: %zu tokens, at most %d are read", what,
                       json_array_size(value), SL_GENERATION_MAX_ENDS);
    json_array_foreach(value, i, id) SL_TRY(add_end(id, what, out));
    return SLUICE_OK;
}

/* Keys that change which tokens transformers draws, beside the value with which they do not. */
static const struct {
    const char *key;
    double off;
} others[] = {
    { "num_beams", 1 },
    { "typical_p", 1 },
    { "epsilon_cutoff", 0 },
    { "eta_cutoff", 0 },
    { "top_h", 1 },
    { "penalty_alpha", 0 },
    { "encoder_repetition_penalty", 1 },
    { "no_repeat_ngram_size", 0 },
    { "min_length", 0 },
    { "min_new_tokens", 0 },
    { "guidance_scale", 1 },
};

static const char *find_unbuilt(const json_t *root)
{
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        const json_t *value = json_object_get(root, others[i].key);
        if (json_is_number(value) && json_number_value(value) != others[i].off) return others[i].key;
    }
    static const char *const lists[] = { "suppress_tokens", "begin_suppress_tokens", "bad_words_ids", "sequence_bias" };
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++)
        if (json_array_size(json_object_get(root, lists[i])) > 0) return lists[i];
    return NULL;
}

/* ---- the file ---- */

static sluice_status read_keys(const json_t *root, const char *what, sl_generation_config *out)
{
    if (!json_is_object(root)) return sl_fail(SLUICE_ERR_INPUT, "%s is no JSON object", what);
    SL_TRY(read_samples(root, what, &out->samples));
    SL_TRY(read_number(root, what, "temperature", false, LARGEST, &out->temperature));
    SL_TRY(read_number(root, what, "top_p", true, 1, &out->top_p));
    SL_TRY(read_number(root, what, "min_p", false, 1, &out->min_p));
    SL_TRY(read_number(root, what, "repetition_penalty", true, LARGEST, &out->repetition_penalty));
    SL_TRY(read_whole(root, what, "top_k", &out->top_k));
    SL_TRY(read_ends(root, what, out));
    out->unbuilt = find_unbuilt(root);
    return SLUICE_OK;
}

static void say_nothing(sl_generation_config *c)
{
    *c = (sl_generation_config){
        .temperature = -1, .top_p = -1, .min_p = -1, .repetition_penalty = -1, .top_k = -1, .samples = -1
    };
}

sluice_status sl_generation_config_parse(const char *text, size_t bytes, const char *what, sl_generation_config *out)
{
    json_t *root;
    sl_generation_config c;
    say_nothing(&c);
    SL_TRY(sl_json_parse(text, bytes, what, SLUICE_ERR_INPUT, &root));
    sluice_status st = read_keys(root, what, &c);
    json_decref(root);
    if (st == SLUICE_OK) *out = c;
    return st;
}

sluice_status sl_generation_config_read(const char *folder, sl_generation_config *out)
{
    char path[PATH_MAX], *text;
    size_t bytes;
    say_nothing(out);
    if (snprintf(path, sizeof path, "%s/generation_config.json", folder) >= (int)sizeof path) return SLUICE_OK;
    if (folder[0] == '\0' || !sl_path_exists(path)) return SLUICE_OK;
    SL_TRY(sl_file_read_all(path, MAX_CONFIG_BYTES, &text, &bytes));
    sluice_status st = sl_generation_config_parse(text, bytes, path, out);
    sl_free(text);
    return st;
}

/* model_config.c: reading config.json, by the rows of model_config_keys.c. Rotary positions and windows are spread over several keys
 * and have functions of their own. */
#include "format/model_config.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/io.h"
#include "core/quote.h"
#include "format/json.h"
#include "format/model_config_keys.h"

#define MAX_CONFIG_BYTES ((size_t)4 << 20)

/* Keys of mathematics that is not built in, in files of families that are. A value that asks for nothing (null, false, 0,
 * nothing in brackets) is harmless. */
static const struct {
    const char *key, *why;
    unsigned families; /* 0: all */
} unbuilt[] = {
    { "quantization_config", "quantized weights are not built in; give the weights they were made from", 0 },
    { "auto_map", "the model is computed by code that comes with it, which is not run here", 0 },
    { "text_config", "a model of text and images is not built in; give its text part alone", 0 },
    { "vision_config", "a model of text and images is not built in", 0 },
    { "audio_config", "a model of text and sound is not built in", 0 },
    { "num_experts", "a mixture of experts is not built in", 0 },
    { "num_local_experts", "a mixture of experts is not built in", 0 },
    { "n_routed_experts", "a mixture of experts is not built in", 0 },
    { "moe_intermediate_size", "a mixture of experts is not built in", 0 },
    { "is_encoder_decoder", "a model with an encoder is not built in", 0 },
    { "add_cross_attention", "attention to an encoder is not built in", 0 },
    { "scale_attn_by_inverse_layer_idx", "scores that are divided by the layer's number are not built in", 0 },
    { "use_bidirectional_attention", "attention to later positions is not built in", 0 },
    { "pruned_heads", "pruned heads are not built in", 0 },
    { "alibi", "positions as biases of the scores are not built in", 0 },
    { "clip_qkv", "clipped queries, keys and values are not built in", 0 },
    { "qk_layernorm", "this norm of queries and keys is not built in", 0 },
    { "parallel_attn", "attention beside the feed-forward part is not built in", 0 },
    { "use_parallel_residual", "attention beside the feed-forward part is not built in", 0 },
    { "logit_scale", "scaled logits are not built in", 0 },
    { "logits_scaling", "scaled logits are not built in", 0 },
    { "embedding_multiplier", "this scale of the embedding is not built in", 0 },
    { "residual_multiplier", "scaled residual connections are not built in", 0 },
    { "attention_multiplier", "this scale of the scores is not built in", 0 },
    { "attention_chunk_size", "attention within chunks is not built in", 0 },
    { "no_rope_layers", "layers without positions are not built in", 0 },
    { "num_kv_shared_layers", "layers that share keys and values are not built in", 0 },
    { "attn_logit_softcapping", "of gemma3_text transformers reads this cap and does not apply it; remove the key",
      SL_FAMILY_BIT(GEMMA3) },
};

/* ---- Messages ---- */

/* A file being read. */
typedef struct reader {
    const char *text;
    size_t bytes;
    const char *what;
    const json_t *root;
    sl_model_config *c;
} reader;

/* Fails about a key, which may be dotted: "config.json:12: hidden_size: ...". */
#define FAIL(r_, key_, ...) (record_at(r_, key_, __VA_ARGS__), sl_status_after(SLUICE_ERR_INPUT))

__attribute__((format(printf, 3, 4))) static void record_at(const reader *r, const char *key, const char *format, ...)
{
    char message[900];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    int line = sl_json_key_line(r->text, r->bytes, key);
    if (line > 0)
        sl_error_record("%.800s:%d: %s: %s", r->what, line, key, message);
    else
        sl_error_record("%.800s: %s: %s", r->what, key, message);
}

/* A value as a message shows it: whole where it is short. */
static sl_quoted shown(const json_t *value)
{
    sl_quoted out = { "a list" };
    if (json_is_string(value)) return sl_quote(json_string_value(value));
    if (json_is_integer(value)) snprintf(out.text, sizeof out.text, "%lld", (long long)json_integer_value(value));
    if (json_is_real(value)) snprintf(out.text, sizeof out.text, "%.15g", json_real_value(value));
    if (json_is_boolean(value)) snprintf(out.text, sizeof out.text, "%s", json_is_true(value) ? "true" : "false");
    if (json_is_null(value)) snprintf(out.text, sizeof out.text, "null");
    if (json_is_object(value)) snprintf(out.text, sizeof out.text, "an object");
    return out;
}

/* ---- One value ---- */

static sluice_status read_whole(const reader *r, const char *key, const json_t *value, double min, double max,
                                int64_t *out)
{
    bool fits =
        json_is_integer(value) && (double)json_integer_value(value) >= min && (double)json_integer_value(value) <= max;
    if (!fits) return FAIL(r, key, "%s is no whole number from %.15g to %.15g", shown(value).text, min, max);
    *out = json_integer_value(value);
    return SLUICE_OK;
}

static sluice_status read_real(const reader *r, const char *key, const json_t *value, double min, double max,
                               double *out)
{
    double number = json_number_value(value);
    if (!json_is_number(value) || !(number >= min && number <= max))
        return FAIL(r, key, "%s is no number from %.15g to %.15g", shown(value).text, min, max);
    *out = number;
    return SLUICE_OK;
}

static sluice_status read_flag(const reader *r, const char *key, const json_t *value, bool opposite, bool *out)
{
    if (!json_is_boolean(value)) return FAIL(r, key, "%s is neither true nor false", shown(value).text);
    *out = json_is_true(value) != opposite;
    return SLUICE_OK;
}

/* Gemma's first files say "gelu" and mean the form with tanh, as transformers knows. */
static sluice_status read_activation(const reader *r, const char *key, const json_t *value, sl_activation *out)
{
    const char *name = json_is_string(value) ? json_string_value(value) : "";
    bool gated = (1u << r->c->family & SL_FAMILY_ROTARY) != 0;
    if (r->c->family == SL_DECODER_GEMMA && strcmp(name, "gelu") == 0) name = "gelu_pytorch_tanh";
    if (sl_activation_find(name, gated, out)) return SLUICE_OK;
    return FAIL(r, key, "the activation %s is not built in for %s; built in are %s", shown(value).text,
                sl_decoder_name(r->c->family),
                gated ? "silu, swish, gelu_new, gelu_pytorch_tanh and gelu_fast"
                      : "gelu_new, gelu_pytorch_tanh, gelu_fast, gelu, silu, swish and relu");
}

static sluice_status read_null(const reader *r, const sl_decoder_key *row, void *field)
{
    switch (row->null) {
    case SL_NULL_REFUSED:
        return FAIL(r, row->key, "it is null; it says %s", row->meaning);
    case SL_NULL_ABSENT:
        return SLUICE_OK;
    case SL_NULL_ZERO:
        break;
    }
    if (row->type == SL_FIELD_WHOLE) *(int64_t *)field = 0;
    if (row->type == SL_FIELD_ID) *(int64_t *)field = -1;
    if (row->type == SL_FIELD_REAL || row->type == SL_FIELD_NUMBER) *(double *)field = 0;
    if (row->type == SL_FIELD_FLAG) *(bool *)field = false;
    return SLUICE_OK;
}

static sluice_status read_value(const reader *r, const char *key, sl_field_type type, const json_t *value, double min,
                                double max, void *field)
{
    switch (type) {
    case SL_FIELD_WHOLE:
    case SL_FIELD_ID:
        return read_whole(r, key, value, min, max, field);
    case SL_FIELD_REAL:
    case SL_FIELD_NUMBER:
        return read_real(r, key, value, min, max, field);
    case SL_FIELD_FLAG:
    case SL_FIELD_NOT_FLAG:
        return read_flag(r, key, value, type == SL_FIELD_NOT_FLAG, field);
    case SL_FIELD_ACTIVATION:
        return read_activation(r, key, value, field);
    }
    return SLUICE_OK;
}

static sluice_status read_keys(const reader *r)
{
    for (size_t i = 0; i < sl_decoder_key_count; i++) {
        const sl_decoder_key *row = &sl_decoder_keys[i];
        const json_t *value = json_object_get(r->root, row->key);
        void *field = (char *)r->c + row->offset;
        if ((row->families & 1u << r->c->family) == 0) continue;
        if (value == NULL && row->required)
            return sl_fail(SLUICE_ERR_INPUT, "%.800s: %s is missing: %s; sizes are not guessed", r->what, row->key,
                           row->meaning);
        if (value == NULL) continue;
        SL_TRY(json_is_null(value) ? read_null(r, row, field)
                                   : read_value(r, row->key, row->type, value, row->min, row->max, field));
    }
    return SLUICE_OK;
}

/* ---- Rotary positions ---- */

/* Keys that no row reads and that say nothing about the frequencies, or that something else reads. */
static bool is_known_rope_key(const char *key)
{
    static const char *const others[] = { "rope_type", "type", "partial_rotary_factor", "finetuned" };
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (strcmp(others[i], key) == 0) return true;
    for (size_t i = 0; i < sl_rope_key_count; i++)
        if (strcmp(sl_rope_keys[i].key, key) == 0) return true;
    return false;
}

static sluice_status read_rope_type(const reader *r, const char *path, const json_t *object, sl_rope_type *out)
{
    char key[160];
    const json_t *newer = json_object_get(object, "rope_type"), *older = json_object_get(object, "type");
    const json_t *value = newer != NULL && !json_is_null(newer) ? newer : older;
    const char *name = json_string_value(value);
    snprintf(key, sizeof key, "%s.%s", path, value == older ? "type" : "rope_type");
    if (value == NULL || json_is_null(value)) {
        *out = SL_ROPE_DEFAULT;
        return SLUICE_OK;
    }
    if (value == newer && json_is_string(older) && name != NULL && strcmp(json_string_value(older), name) != 0)
        return FAIL(r, key, "it is %s, and type is %s; leave one of them out", sl_quote(name).text, shown(older).text);
    for (int i = 0; i < SL_ROPE_TYPES; i++) {
        if (name == NULL || strcmp(sl_rope_type_name((sl_rope_type)i), name) != 0) continue;
        if (r->c->family == SL_DECODER_PHI3 && i != SL_ROPE_DEFAULT)
            break; /* its yarn means longrope, and the others have no meaning there */
        *out = (sl_rope_type)i;
        return SLUICE_OK;
    }
    return FAIL(r, key, "positions of the type %s are not built in for %s; built in %s", shown(value).text,
                sl_decoder_name(r->c->family),
                r->c->family == SL_DECODER_PHI3 ? "is default" : "are default, linear, dynamic, llama3 and yarn");
}

/* An object of rope settings into *out, which holds what it means where keys are absent. */
static sluice_status read_rope(const reader *r, const char *path, json_t *object, sl_rope_config *out)
{
    char full[256];
    const char *key;
    json_t *value;
    SL_TRY(read_rope_type(r, path, object, &out->type));
    json_object_foreach(object, key, value)
    {
        snprintf(full, sizeof full, "%s.%.150s", path, key);
        if (!is_known_rope_key(key) && !json_is_null(value))
            return FAIL(r, full, "no such setting of rotary positions is built in");
    }
    for (size_t i = 0; i < sl_rope_key_count; i++) {
        const sl_rope_key *row = &sl_rope_keys[i];
        value = json_object_get(object, row->key);
        snprintf(full, sizeof full, "%s.%s", path, row->key);
        if ((value == NULL || json_is_null(value)) && (row->required & 1u << out->type) != 0)
            return FAIL(r, path, "%s is missing, which the type %s needs", row->key, sl_rope_type_name(out->type));
        if (value == NULL || json_is_null(value) || (row->types & 1u << out->type) == 0) continue;
        SL_TRY(read_value(r, full, row->type, value, row->min, row->max, (char *)out + row->offset));
    }
    return SLUICE_OK;
}

/* What follows from several settings. */
static sluice_status finish_rope(const reader *r, const char *path, sl_rope_config *rope)
{
    bool from_length = rope->type == SL_ROPE_LLAMA3 || rope->type == SL_ROPE_YARN;
    if (from_length && rope->original_context == 0) rope->original_context = r->c->context;
    if (rope->type == SL_ROPE_LLAMA3 && rope->high_freq <= rope->low_freq)
        return FAIL(r, path, "high_freq_factor %g is not above low_freq_factor %g", rope->high_freq, rope->low_freq);
    if (rope->type == SL_ROPE_YARN && rope->beta_fast < rope->beta_slow)
        return FAIL(r, path, "beta_fast %g is below beta_slow %g", rope->beta_fast, rope->beta_slow);
    return SLUICE_OK;
}

/* The object under a key; NULL: absent, null or empty. */
static sluice_status find_object(const reader *r, const json_t *in, const char *key, const char *path, json_t **out)
{
    json_t *value = json_object_get(in, key);
    *out = NULL;
    if (value == NULL || json_is_null(value)) return SLUICE_OK;
    if (!json_is_object(value)) return FAIL(r, path, "%s is no object", shown(value).text);
    if (json_object_size(value) > 0) *out = value;
    return SLUICE_OK;
}

static sluice_status read_theta(const reader *r, const char *key, sl_rope_config *rope)
{
    const json_t *value = json_object_get(r->root, key);
    if (value == NULL || json_is_null(value)) return SLUICE_OK;
    return read_real(r, key, value, sl_rope_keys[0].min, sl_rope_keys[0].max, &rope->theta);
}

/* Two versions of transformers would take different ones. */
static sluice_status check_theta(const reader *r, const char *key, const char *path, const json_t *object,
                                 const sl_rope_config *rope)
{
    const json_t *outer = json_object_get(r->root, key), *inner = json_object_get(object, "rope_theta");
    if (!json_is_number(outer) || !json_is_number(inner) || json_number_value(outer) == rope->theta) return SLUICE_OK;
    return FAIL(r, key, "it is %s, and %s.rope_theta is %s; they must agree", shown(outer).text, path,
                shown(inner).text);
}

/* rope_scaling before rope_parameters, the theta inside before the one outside. */
static sluice_status read_flat_rope(const reader *r)
{
    json_t *scaling, *parameters;
    SL_TRY(find_object(r, r->root, "rope_scaling", "rope_scaling", &scaling));
    SL_TRY(find_object(r, r->root, "rope_parameters", "rope_parameters", &parameters));
    const char *path = scaling != NULL ? "rope_scaling" : "rope_parameters";
    json_t *chosen = scaling != NULL ? scaling : parameters;
    SL_TRY(read_theta(r, "rope_theta", &r->c->rope));
    if (chosen == NULL) return SLUICE_OK;
    SL_TRY(read_rope(r, path, chosen, &r->c->rope));
    SL_TRY(check_theta(r, "rope_theta", path, chosen, &r->c->rope));
    return finish_rope(r, path, &r->c->rope);
}

/* Gemma 3 has one set of frequencies for layers with a window and one for the others; rope_scaling is the latter's. */
static sluice_status read_two_ropes(const reader *r)
{
    static const char full_path[] = "rope_parameters.full_attention",
                      local_path[] = "rope_parameters.sliding_attention";
    json_t *scaling, *parameters, *full = NULL, *local = NULL;
    sl_model_config *c = r->c;
    SL_TRY(find_object(r, r->root, "rope_scaling", "rope_scaling", &scaling));
    SL_TRY(find_object(r, r->root, "rope_parameters", "rope_parameters", &parameters));
    SL_TRY(read_theta(r, "rope_theta", &c->rope));
    SL_TRY(read_theta(r, "rope_local_base_freq", &c->local_rope));
    if (parameters != NULL) {
        SL_TRY(find_object(r, parameters, "full_attention", full_path, &full));
        SL_TRY(find_object(r, parameters, "sliding_attention", local_path, &local));
        if (full == NULL && local == NULL)
            return FAIL(r, "rope_parameters", "it has neither full_attention nor sliding_attention");
    }
    if (full != NULL) {
        SL_TRY(read_rope(r, full_path, full, &c->rope));
        SL_TRY(check_theta(r, "rope_theta", full_path, full, &c->rope));
    }
    if (scaling != NULL) SL_TRY(read_rope(r, "rope_scaling", scaling, &c->rope));
    SL_TRY(finish_rope(r, scaling != NULL ? "rope_scaling" : full_path, &c->rope));
    if (local == NULL) return SLUICE_OK;
    SL_TRY(read_rope(r, local_path, local, &c->local_rope));
    SL_TRY(check_theta(r, "rope_local_base_freq", local_path, local, &c->local_rope));
    return finish_rope(r, local_path, &c->local_rope);
}

/* The share of a head that turns: inside the rope settings, or beside them. */
static sluice_status read_share(const reader *r)
{
    static const char *const paths[] = { "rope_scaling", "rope_parameters", NULL };
    for (int i = 0; i < 3; i++) {
        char path[80];
        const json_t *in = paths[i] != NULL ? json_object_get(r->root, paths[i]) : r->root;
        const json_t *value = json_object_get(in, "partial_rotary_factor");
        snprintf(path, sizeof path, "%s%spartial_rotary_factor", i < 2 ? paths[i] : "", i < 2 ? "." : "");
        if (value == NULL || json_is_null(value)) continue;
        SL_TRY(read_real(r, path, value, 1e-6, 1, &r->c->rotated_share));
        if (r->c->family != SL_DECODER_PHI3 && r->c->rotated_share != 1)
            return FAIL(r, path, "%s: heads of which a part turns are built in for phi3 alone", shown(value).text);
        return SLUICE_OK;
    }
    return SLUICE_OK;
}

static sluice_status read_positions(const reader *r)
{
    if ((1u << r->c->family & SL_FAMILY_ROTARY) == 0) return SLUICE_OK;
    SL_TRY(r->c->family == SL_DECODER_GEMMA3 ? read_two_ropes(r) : read_flat_rope(r));
    return read_share(r);
}

/* ---- Windows ---- */

/* The window itself, and by which rule of the family layers have it. */
static sluice_status read_window(const reader *r)
{
    sl_model_config *c = r->c;
    const json_t *window = json_object_get(r->root, "sliding_window");
    const json_t *use = json_object_get(r->root, "use_sliding_window");
    const json_t *first = json_object_get(r->root, "max_window_layers");
    const json_t *every = json_object_get(r->root, "sliding_window_pattern");
    bool qwen = (1u << c->family & SL_FAMILY_QWENS) != 0, uses = false;
    if ((1u << c->family & (SL_FAMILY_BIT(GPT2) | SL_FAMILY_ENCODERS | SL_FAMILY_BIT(LLAMA) | SL_FAMILY_BIT(GEMMA))) !=
        0) {
        if (json_is_integer(window))
            return FAIL(r, "sliding_window", "%s has no windows; it is %s", sl_decoder_name(c->family),
                        shown(window).text);
        return SLUICE_OK;
    }
    if (json_is_null(window)) c->window = 0;
    if (window != NULL && !json_is_null(window))
        SL_TRY(read_whole(r, "sliding_window", window, 1, SL_MODEL_SIZES, &c->window));
    if (qwen) {
        if (use != NULL && !json_is_null(use)) SL_TRY(read_flag(r, "use_sliding_window", use, false, &uses));
        if (first != NULL && !json_is_null(first))
            SL_TRY(read_whole(r, "max_window_layers", first, 0, SL_MODEL_SIZES, &c->slide_number));
        if (!uses) c->window = 0; /* a number without the flag says nothing */
        c->slide_rule = c->window > 0 ? SL_SLIDE_FROM : SL_SLIDE_NONE;
    }
    if (c->family == SL_DECODER_GEMMA3 && every != NULL && !json_is_null(every))
        SL_TRY(read_whole(r, "sliding_window_pattern", every, 1, SL_MODEL_SIZES, &c->slide_number));
    if (c->slide_rule == SL_SLIDE_EVERY && c->window == 0)
        return FAIL(r, "sliding_window", "it is null, and %s has layers with a window", sl_decoder_name(c->family));
    return SLUICE_OK;
}

/* Layer `i` of a list of layers' types. */
static sluice_status read_layer_type(const reader *r, size_t i, const json_t *value, bool *slides)
{
    char key[48];
    const char *name = json_is_string(value) ? json_string_value(value) : "";
    *slides = strcmp(name, "sliding_attention") == 0;
    snprintf(key, sizeof key, "layer_types.%zu", i);
    if (!*slides && strcmp(name, "full_attention") != 0)
        return FAIL(r, key, "layers of the type %s are not built in; built in are full_attention and sliding_attention",
                    shown(value).text);
    if (*slides && r->c->window == 0)
        return FAIL(r, key, "sliding_attention without a window: sliding_window is not set");
    if (!sl_decoder_lists_layers(r->c->family) && *slides != sl_model_config_slides(r->c, (int64_t)i))
        return FAIL(r, key, "%s has the same attention in all layers, by sliding_window",
                    sl_decoder_name(r->c->family));
    return SLUICE_OK;
}

/* An explicit list beats the family's rule. */
static sluice_status read_layer_types(const reader *r)
{
    sl_model_config *c = r->c;
    const json_t *list = json_object_get(r->root, "layer_types");
    uint8_t bits[sizeof c->slide_list] = { 0 };
    bool slides, any = false, as_ruled = true;
    if (list == NULL || json_is_null(list)) return SLUICE_OK;
    if (!json_is_array(list)) return FAIL(r, "layer_types", "%s is no list", shown(list).text);
    size_t count = json_array_size(list);
    if (count != (size_t)c->layers)
        return FAIL(r, "layer_types", "it has %zu entries, and there are %lld layers", count, (long long)c->layers);
    if (count > SL_CONFIG_MAX_LAYERS)
        return FAIL(r, "layer_types", "%zu layers; a list has at most %d", count, SL_CONFIG_MAX_LAYERS);
    for (size_t i = 0; i < count; i++) {
        SL_TRY(read_layer_type(r, i, json_array_get(list, i), &slides));
        as_ruled = as_ruled && slides == sl_model_config_slides(c, (int64_t)i);
        any = any || slides;
        if (slides) bits[i / 8] |= (uint8_t)(1u << i % 8);
    }
    if (as_ruled) return SLUICE_OK;
    memcpy(c->slide_list, bits, sizeof bits);
    c->slide_rule = any ? SL_SLIDE_LIST : SL_SLIDE_NONE;
    return SLUICE_OK;
}

/* ---- The rest ---- */

static bool asks_for_nothing(const json_t *value)
{
    if (json_is_number(value)) return json_number_value(value) == 0;
    if (json_is_string(value)) return json_string_value(value)[0] == '\0';
    if (json_is_array(value)) return json_array_size(value) == 0;
    if (json_is_object(value)) return json_object_size(value) == 0;
    return !json_is_true(value);
}

static sluice_status refuse_unbuilt_keys(const reader *r)
{
    for (size_t i = 0; i < sizeof unbuilt / sizeof unbuilt[0]; i++) {
        const json_t *value = json_object_get(r->root, unbuilt[i].key);
        if (unbuilt[i].families != 0 && (unbuilt[i].families & 1u << r->c->family) == 0) continue;
        if (value != NULL && !asks_for_nothing(value)) return FAIL(r, unbuilt[i].key, "%s", unbuilt[i].why);
    }
    return SLUICE_OK;
}

/* The class of the model that was saved: one without a head, or with that of a language model. */
#define CLASSIFIES_TEXT   "ForSequenceClassification"
#define CLASSIFIES_IMAGES "ForImageClassification"

static sluice_status check_class(const reader *r)
{
    const json_t *list = json_object_get(r->root, "architectures");
    const char *name = json_string_value(json_array_get(list, 0));
    const char *task = name != NULL ? strstr(name, "For") : NULL;
    static const struct {
        const char *task;
        unsigned families;
    } tasks[] = { { "ForCausalLM", SL_FAMILY_ROTARY },
                  { "ForMaskedLM", SL_FAMILY_BIT(BERT) },
                  { "ForPreTraining", SL_FAMILY_BIT(BERT) },
                  { CLASSIFIES_TEXT, SL_FAMILY_BIT(BERT) },
                  { CLASSIFIES_IMAGES, SL_FAMILY_BIT(VIT) } };
    if (task == NULL) return SLUICE_OK;
    for (size_t i = 0; i < sizeof tasks / sizeof tasks[0]; i++)
        if (strcmp(task, tasks[i].task) == 0 && (tasks[i].families & 1u << r->c->family) != 0) return SLUICE_OK;
    return FAIL(r, "architectures", "%s has a head that is not built in for %s", sl_quote(name).text,
                sl_decoder_name(r->c->family));
}

/* Classes of a head for them: two where nothing is said. */
static sluice_status read_classes(const reader *r)
{
    const char *name = json_string_value(json_array_get(json_object_get(r->root, "architectures"), 0));
    const char *task = name != NULL ? strstr(name, "For") : NULL;
    const json_t *names = json_object_get(r->root, "id2label"), *count = json_object_get(r->root, "num_labels");
    if (task == NULL || (strcmp(task, CLASSIFIES_TEXT) != 0 && strcmp(task, CLASSIFIES_IMAGES) != 0)) return SLUICE_OK;
    r->c->classes = 2;
    if (json_is_object(names)) r->c->classes = (int64_t)json_object_size(names);
    if (count != NULL && !json_is_null(count))
        SL_TRY(read_whole(r, "num_labels", count, 1, SL_MODEL_SIZES, &r->c->classes));
    if (r->c->classes < 2)
        return FAIL(r, names != NULL ? "id2label" : "num_labels",
                    "a head with one output is for regression, which is not built in for %s",
                    sl_decoder_name(r->c->family));
    return SLUICE_OK;
}

/* What encoders may ask for, and what is computed. */
static sluice_status check_encoder(const reader *r)
{
    const json_t *positions = json_object_get(r->root, "position_embedding_type");
    const json_t *biases = json_object_get(r->root, "qkv_bias");
    if (!sl_decoder_is_encoder(r->c->family)) return SLUICE_OK;
    if (json_is_string(positions) && strcmp(json_string_value(positions), "absolute") != 0)
        return FAIL(r, "position_embedding_type", "%s is not built in; built in is \"absolute\"",
                    shown(positions).text);
    if (json_is_false(biases))
        return FAIL(r, "qkv_bias", "queries, keys and values without biases are not built in for %s",
                    sl_decoder_name(r->c->family));
    if (json_is_true(json_object_get(r->root, "is_decoder")))
        return FAIL(r, "is_decoder", "a causal %s is not built in", sl_decoder_name(r->c->family));
    if (r->c->family == SL_DECODER_BERT && !r->c->tied)
        return FAIL(r, "tie_word_embeddings", "a head with weights of its own is not built in for bert");
    if (r->c->family == SL_DECODER_VIT && r->c->image_size % r->c->patch != 0)
        return FAIL(r, "patch_size", "%lld does not divide image_size, which is %lld", (long long)r->c->patch,
                    (long long)r->c->image_size);
    return SLUICE_OK;
}

static sluice_status read_ends(const reader *r)
{
    sl_model_config *c = r->c;
    const json_t *value = json_object_get(r->root, "eos_token_id");
    if (value == NULL) return SLUICE_OK;
    c->end_count = 0;
    if (json_is_null(value)) return SLUICE_OK;
    if (!json_is_array(value)) {
        c->end_count = 1;
        return read_whole(r, "eos_token_id", value, -1, SL_MODEL_SIZES, &c->ends[0]);
    }
    if (json_array_size(value) > SL_CONFIG_MAX_ENDS)
        return FAIL(r, "eos_token_id", "%zu tokens, at most %d are read", json_array_size(value), SL_CONFIG_MAX_ENDS);
    for (size_t i = 0; i < json_array_size(value); i++)
        SL_TRY(read_whole(r, "eos_token_id", json_array_get(value, i), 0, SL_MODEL_SIZES, &c->ends[c->end_count++]));
    return SLUICE_OK;
}

static sluice_status read_dtype(const reader *r)
{
    static const struct {
        const char *name;
        sluice_dtype type;
    } types[] = { { "float32", SLUICE_F32 }, { "bfloat16", SLUICE_BF16 }, { "float16", SLUICE_F16 } };
    const json_t *value = json_object_get(r->root, "dtype");
    if (!json_is_string(value)) value = json_object_get(r->root, "torch_dtype");
    const char *name = json_string_value(value);
    if (name != NULL && strncmp(name, "torch.", 6) == 0) name += 6;
    for (size_t i = 0; name != NULL && i < sizeof types / sizeof types[0]; i++) {
        if (strcmp(types[i].name, name) != 0) continue;
        r->c->has_dtype = true;
        r->c->dtype = types[i].type;
    }
    return SLUICE_OK; /* the weights say of which type they are; this only says what they were meant to be */
}

/* ---- Sizes together ---- */

static sluice_status check_heads(const reader *r)
{
    sl_model_config *c = r->c;
    const char *heads = c->family == SL_DECODER_GPT2 ? "n_head" : "num_attention_heads";
    const char *width = c->family == SL_DECODER_GPT2 ? "n_embd" : "hidden_size";
    if (c->kv_heads == 0) c->kv_heads = c->heads;
    if (c->head_width == 0) {
        if (c->width % c->heads != 0)
            return FAIL(r, heads, "%lld does not divide %s, which is %lld", (long long)c->heads, width,
                        (long long)c->width);
        c->head_width = c->width / c->heads;
    }
    if (c->kv_heads > c->heads || c->heads % c->kv_heads != 0)
        return FAIL(r, "num_key_value_heads", "%lld%s does not divide %s, which is %lld", (long long)c->kv_heads,
                    json_object_get(r->root, "num_key_value_heads") == NULL ? " (what a file means that leaves it out)"
                                                                            : "",
                    heads, (long long)c->heads);
    if ((double)(c->heads + 2 * c->kv_heads) * (double)c->head_width > SL_MODEL_SIZES)
        return FAIL(r, heads, "%lld heads of %lld elements are more than can be computed", (long long)c->heads,
                    (long long)c->head_width);
    return SLUICE_OK;
}

static sluice_status check_sizes(const reader *r)
{
    sl_model_config *c = r->c;
    SL_TRY(check_heads(r));
    if (c->family == SL_DECODER_GPT2 && c->feed_forward == 0) c->feed_forward = 4 * c->width;
    if (c->width > INT32_MAX / 4 || c->feed_forward > INT32_MAX / 2)
        return FAIL(r, "model_type", "a width of %lld with a feed-forward part of %lld is more than can be computed",
                    (long long)c->width, (long long)c->feed_forward);
    if ((1u << c->family & SL_FAMILY_ROTARY) == 0) return SLUICE_OK;
    int64_t turned = (int64_t)((double)c->head_width * c->rotated_share);
    if (turned < 2 || turned % 2 != 0)
        return FAIL(r, "head_dim", "%lld elements of a head would turn; the rotation needs an even number of them",
                    (long long)turned);
    return SLUICE_OK;
}

/* ---- All of it ---- */

static sluice_status find_family(const reader *r, sl_decoder *out)
{
    char names[200] = "";
    const json_t *value = json_object_get(r->root, "model_type");
    const char *name = json_string_value(value);
    for (int i = SL_DECODER_NONE + 1; i < SL_DECODER_COUNT; i++) {
        size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s%s", used > 0 ? ", " : "", sl_decoder_name((sl_decoder)i));
    }
    if (value == NULL)
        return sl_fail(SLUICE_ERR_INPUT, "%.800s: model_type is missing, which says the family of the model: %s",
                       r->what, names);
    *out = name != NULL ? sl_decoder_find(name) : SL_DECODER_NONE;
    if (*out != SL_DECODER_NONE) return SLUICE_OK;
    if (name != NULL && strcmp(name, "gemma3") == 0)
        return FAIL(r, "model_type",
                    "\"gemma3\" is a model of text and images; built in is its text part, gemma3_text");
    return FAIL(r, "model_type", "the family %s is not built in; built in are %s", shown(value).text, names);
}

sluice_status sl_model_config_from_json(json_t *root, const char *text, size_t bytes, const char *what,
                                        sl_model_config *out)
{
    sl_model_config c;
    sl_decoder family = SL_DECODER_NONE;
    const reader r = { text, bytes, what, root, &c };
    if (!json_is_object(root)) return sl_fail(SLUICE_ERR_INPUT, "%.800s: a config.json is an object: { ... }", what);
    SL_TRY(find_family(&r, &family));
    sl_model_config_defaults(family, &c);
    SL_TRY(refuse_unbuilt_keys(&r));
    SL_TRY(check_class(&r));
    SL_TRY(read_keys(&r));
    SL_TRY(read_positions(&r));
    SL_TRY(read_window(&r));
    SL_TRY(read_layer_types(&r));
    SL_TRY(read_ends(&r));
    SL_TRY(read_dtype(&r));
    SL_TRY(read_classes(&r));
    SL_TRY(check_sizes(&r));
    SL_TRY(check_encoder(&r));
    *out = c;
    return SLUICE_OK;
}

sluice_status sl_model_config_parse(const char *text, size_t bytes, const char *what, sl_model_config *out)
{
    json_t *root;
    SL_TRY(sl_json_parse(text, bytes, what, SLUICE_ERR_INPUT, &root));
    sluice_status st = sl_model_config_from_json(root, text, bytes, what, out);
    json_decref(root);
    return st;
}

sluice_status sl_model_config_read(const char *folder, sl_model_config *out, char **text)
{
    char path[PATH_MAX], *data = NULL;
    size_t bytes;
    if (snprintf(path, sizeof path, "%s/config.json", folder) >= (int)sizeof path)
        return sl_fail(SLUICE_ERR_INPUT, "%.200s...: the path is too long", folder);
    SL_TRY(sl_file_read_all(path, MAX_CONFIG_BYTES, &data, &bytes));
    sluice_status st = sl_model_config_parse(data, bytes, path, out);
    if (st == SLUICE_OK && text != NULL)
        *text = data;
    else
        sl_free(data);
    return st;
}

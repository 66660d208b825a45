/* model_config_write.c: config.json out of the table of keys.
 *
 * A key of the kept file stays as it is written there while it says what the model is. Positions and the type are
 * written in both forms: a version of transformers that knows only the other one would take its defaults in silence. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/json.h"
#include "format/model_config.h"
#include "format/model_config_keys.h"

/* A file being written. */
typedef struct writer {
    const sl_model_config *c, *kept; /* what is to be said; what the kept file says, NULL: there is none */
    json_t *root;
    bool failed; /* out of memory */
} writer;

/* Takes the reference. */
static void set(writer *w, json_t *object, const char *key, json_t *value)
{
    if (value == NULL || json_object_set_new(object, key, value) != 0) w->failed = true;
}

/* ---- Values ---- */

/* A field as JSON; what is no value of its own is null. */
static json_t *field_value(sl_decoder family, sl_field_type type, sl_null_meaning null, const void *field)
{
    switch (type) {
    case SL_FIELD_WHOLE:
        return null == SL_NULL_ZERO && *(const int64_t *)field == 0 ? json_null()
                                                                    : json_integer(*(const int64_t *)field);
    case SL_FIELD_ID:
        return *(const int64_t *)field < 0 ? json_null() : json_integer(*(const int64_t *)field);
    case SL_FIELD_NUMBER:
        if (*(const double *)field == floor(*(const double *)field))
            return json_integer((json_int_t) * (const double *)field);
        return json_real(*(const double *)field);
    case SL_FIELD_REAL:
        return null == SL_NULL_ZERO && *(const double *)field == 0 ? json_null() : json_real(*(const double *)field);
    case SL_FIELD_FLAG:
        return json_boolean(*(const bool *)field);
    case SL_FIELD_NOT_FLAG:
        return json_boolean(!*(const bool *)field);
    case SL_FIELD_ACTIVATION:
        return json_string(sl_activation_name(family, *(const sl_activation *)field));
    }
    return NULL;
}

static bool same_field(sl_field_type type, const void *a, const void *b)
{
    switch (type) {
    case SL_FIELD_WHOLE:
    case SL_FIELD_ID:
        return *(const int64_t *)a == *(const int64_t *)b;
    case SL_FIELD_NUMBER:
    case SL_FIELD_REAL:
        return *(const double *)a == *(const double *)b;
    case SL_FIELD_FLAG:
    case SL_FIELD_NOT_FLAG:
        return *(const bool *)a == *(const bool *)b;
    case SL_FIELD_ACTIVATION:
        return *(const sl_activation *)a == *(const sl_activation *)b;
    }
    return false;
}

static void write_keys(writer *w)
{
    for (size_t i = 0; i < sl_decoder_key_count; i++) {
        const sl_decoder_key *row = &sl_decoder_keys[i];
        const void *field = (const char *)w->c + row->offset;
        if ((row->families & 1u << w->c->family) == 0) continue;
        if (w->kept != NULL && same_field(row->type, field, (const char *)w->kept + row->offset)) continue;
        if (row->type == SL_FIELD_REAL && *(const double *)field < 0) continue; /* it follows from another key */
        set(w, w->root, row->key, field_value(w->c->family, row->type, row->null, field));
    }
}

/* ---- Positions ---- */

/* The settings of one set of frequencies; with_theta: as rope_parameters has them. NULL: out of memory. */
static json_t *rope_object(writer *w, const sl_rope_config *rope, bool with_theta, bool with_share)
{
    json_t *object = json_object();
    if (object == NULL) return NULL;
    set(w, object, "rope_type", json_string(sl_rope_type_name(rope->type)));
    for (size_t i = 0; i < sl_rope_key_count; i++) {
        const sl_rope_key *row = &sl_rope_keys[i];
        const void *field = (const char *)rope + row->offset;
        bool theta = row->offset == offsetof(sl_rope_config, theta);
        bool none = row->type == SL_FIELD_REAL && *(const double *)field == 0;
        if ((row->types & 1u << rope->type) == 0 || none || (theta && !with_theta)) continue;
        set(w, object, row->key, field_value(w->c->family, row->type, SL_NULL_REFUSED, field));
    }
    if (with_share) set(w, object, "partial_rotary_factor", json_real(w->c->rotated_share));
    return object;
}

/* The older form: theta outside, and an object of what changes the frequencies, or null. */
static void write_old_rope(writer *w)
{
    const sl_model_config *c = w->c;
    set(w, w->root, "rope_theta", json_real(c->rope.theta));
    if (c->family == SL_DECODER_GEMMA3) set(w, w->root, "rope_local_base_freq", json_real(c->local_rope.theta));
    if (c->family == SL_DECODER_PHI3) set(w, w->root, "partial_rotary_factor", json_real(c->rotated_share));
    set(w, w->root, "rope_scaling",
        c->rope.type == SL_ROPE_DEFAULT ? json_null() : rope_object(w, &c->rope, false, false));
}

static void write_positions(writer *w)
{
    const sl_model_config *c = w->c;
    if (sl_decoder_is_encoder(c->family)) return;
    if (c->family == SL_DECODER_GPT2) {
        if (json_object_get(w->root, "n_ctx") == NULL || w->kept == NULL || w->kept->context != c->context)
            set(w, w->root, "n_ctx", json_integer(c->context)); /* converters to other formats need it */
        return;
    }
    write_old_rope(w);
    if (c->family != SL_DECODER_GEMMA3) {
        set(w, w->root, "rope_parameters", rope_object(w, &c->rope, true, c->family == SL_DECODER_PHI3));
        return;
    }
    json_t *both = json_object();
    if (both == NULL) {
        w->failed = true;
        return;
    }
    set(w, both, "full_attention", rope_object(w, &c->rope, true, false));
    set(w, both, "sliding_attention", rope_object(w, &c->local_rope, true, false));
    set(w, w->root, "rope_parameters", both);
}

/* ---- Windows ---- */

static bool same_windows(const sl_model_config *a, const sl_model_config *b)
{
    if (a->window != b->window || a->layers != b->layers) return false;
    for (int64_t i = 0; i < a->layers; i++)
        if (sl_model_config_slides(a, i) != sl_model_config_slides(b, i)) return false;
    return true;
}

static void write_layer_types(writer *w)
{
    json_t *list = json_array();
    for (int64_t i = 0; list != NULL && i < w->c->layers; i++) {
        const char *type = sl_model_config_slides(w->c, i) ? "sliding_attention" : "full_attention";
        if (json_array_append_new(list, json_string(type)) != 0) w->failed = true;
    }
    set(w, w->root, "layer_types", list);
}

static void write_windows(writer *w)
{
    const sl_model_config *c = w->c;
    bool qwen = c->family == SL_DECODER_QWEN2 || c->family == SL_DECODER_QWEN3;
    bool windowed =
        c->family == SL_DECODER_MISTRAL || c->family == SL_DECODER_PHI3 || sl_decoder_lists_layers(c->family);
    if (!windowed || (w->kept != NULL && same_windows(c, w->kept))) return;
    set(w, w->root, "sliding_window", c->window > 0 ? json_integer(c->window) : json_null());
    if (qwen) {
        set(w, w->root, "use_sliding_window", json_boolean(c->window > 0));
        set(w, w->root, "max_window_layers",
            json_integer(c->slide_rule == SL_SLIDE_FROM ? c->slide_number : c->layers));
    }
    if (c->family == SL_DECODER_GEMMA3 && c->slide_rule == SL_SLIDE_EVERY)
        set(w, w->root, "sliding_window_pattern", json_integer(c->slide_number));
    if (sl_decoder_lists_layers(c->family) && c->layers <= SL_CONFIG_MAX_LAYERS) write_layer_types(w);
}

/* ---- The rest ---- */

static void write_ends(writer *w)
{
    const sl_model_config *c = w->c;
    if (w->kept != NULL && w->kept->end_count == c->end_count &&
        memcmp(w->kept->ends, c->ends, (size_t)c->end_count * sizeof c->ends[0]) == 0)
        return;
    if (c->end_count < 2) {
        set(w, w->root, "eos_token_id", c->end_count == 0 ? json_null() : json_integer(c->ends[0]));
        return;
    }
    json_t *list = json_array();
    for (int i = 0; list != NULL && i < c->end_count; i++)
        if (json_array_append_new(list, json_integer(c->ends[i])) != 0) w->failed = true;
    set(w, w->root, "eos_token_id", list);
}

static void write_class(writer *w)
{
    const char *name = sl_model_config_class(w->c);
    const char *kept = json_string_value(json_array_get(json_object_get(w->root, "architectures"), 0));
    set(w, w->root, "model_type", json_string(sl_decoder_name(w->c->family)));
    /* what is written has a head, which a bare model has not, and of an encoder it may be another one */
    if (kept == NULL || strstr(kept, "For") == NULL || sl_decoder_is_encoder(w->c->family))
        if (kept == NULL || strcmp(kept, name) != 0) set(w, w->root, "architectures", json_pack("[s]", name));
}

/* Names of classes that the kept file has are those of its own head. */
static void write_classes(writer *w)
{
    if (!sl_decoder_is_encoder(w->c->family) || (w->kept != NULL && w->kept->classes == w->c->classes)) return;
    json_object_del(w->root, "num_labels");
    json_object_del(w->root, "id2label");
    json_object_del(w->root, "label2id");
    if (w->c->classes == 0) return; /* an empty list would be a head without outputs */
    json_t *names = json_object(), *ids = json_object();
    if (names == NULL || ids == NULL) w->failed = true;
    for (int64_t i = 0; i < w->c->classes && !w->failed; i++) {
        char id[24], name[32];
        snprintf(id, sizeof id, "%" PRId64, i);
        snprintf(name, sizeof name, "LABEL_%" PRId64, i);
        set(w, names, id, json_string(name));
        set(w, ids, name, json_integer(i));
    }
    set(w, w->root, "id2label", names);
    set(w, w->root, "label2id", ids);
}

static void write_dtype(writer *w)
{
    if (!w->c->has_dtype) return;
    const char *name = w->c->dtype == SLUICE_BF16 ? "bfloat16" : w->c->dtype == SLUICE_F16 ? "float16" : "float32";
    set(w, w->root, "torch_dtype", json_string(name));
    set(w, w->root, "dtype", json_string(name));
}

/* ---- Text ---- */

static void indent(sl_text *out, int depth)
{
    sl_text_add(out, "\n%*s", 2 * depth, "");
}

/* A number with a point or an exponent, because readers tell reals from integers by it. */
static void add_real(sl_text *out, double value)
{
    char digits[SL_JSON_DIGITS];
    sl_json_digits(value, digits);
    sl_text_add(out, "%s%s", digits, strpbrk(digits, ".en") == NULL ? ".0" : "");
}

/* Depth is bounded by the parser of the kept file. */
static void add_json(sl_text *out, json_t *value, int depth)
{
    const char *key, *comma = "";
    json_t *item;
    size_t index;
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        sl_text_add(out, "{");
        json_object_foreach(value, key, item)
        {
            sl_text_add(out, "%s", comma);
            indent(out, depth + 1);
            sl_text_add_string(out, key);
            sl_text_add(out, ": ");
            add_json(out, item, depth + 1);
            comma = ",";
        }
        if (json_object_size(value) > 0) indent(out, depth);
        sl_text_add(out, "}");
        break;
    case JSON_ARRAY:
        sl_text_add(out, "[");
        json_array_foreach(value, index, item)
        {
            sl_text_add(out, "%s", comma);
            indent(out, depth + 1);
            add_json(out, item, depth + 1);
            comma = ",";
        }
        if (json_array_size(value) > 0) indent(out, depth);
        sl_text_add(out, "]");
        break;
    case JSON_STRING:
        sl_text_add_string(out, json_string_value(value));
        break;
    case JSON_INTEGER:
        sl_text_add(out, "%lld", (long long)json_integer_value(value));
        break;
    case JSON_REAL:
        add_real(out, json_real_value(value));
        break;
    case JSON_TRUE:
    case JSON_FALSE:
        sl_text_add(out, json_is_true(value) ? "true" : "false");
        break;
    case JSON_NULL:
        sl_text_add(out, "null");
        break;
    }
}

/* ---- All of it ---- */

static sluice_status write_all(writer *w, sl_text *out)
{
    write_class(w);
    write_keys(w);
    write_positions(w);
    write_windows(w);
    if (!sl_decoder_is_encoder(w->c->family)) write_ends(w);
    write_classes(w);
    write_dtype(w);
    if (w->failed) return sl_fail(SLUICE_ERR_NO_MEMORY, "no memory for the text of config.json");
    add_json(out, w->root, 0);
    sl_text_add(out, "\n");
    return sl_text_status(out);
}

sluice_status sl_model_config_write(const sl_model_config *c, const char *kept, sl_text *out)
{
    static const char what[] = "the config.json that is kept";
    sl_model_config old;
    writer w = { .c = c };
    sluice_status st = SLUICE_OK;
    if (kept != NULL) {
        SL_TRY(sl_json_parse(kept, strlen(kept), what, SLUICE_ERR_INPUT, &w.root));
        st = sl_model_config_from_json(w.root, kept, strlen(kept), what, &old);
        if (st == SLUICE_OK && old.family != c->family)
            st = sl_fail(SLUICE_ERR_INPUT, "%s is one of %s, and the model is one of %s", what,
                         sl_decoder_name(old.family), sl_decoder_name(c->family));
        w.kept = &old;
    } else {
        w.root = json_object();
        if (w.root == NULL) return sl_fail(SLUICE_ERR_NO_MEMORY, "no memory for the text of config.json");
    }
    if (st == SLUICE_OK) st = write_all(&w, out);
    json_decref(w.root);
    return st;
}

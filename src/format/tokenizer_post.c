/* tokenizer_post.c: post-processors: the special tokens around a text that is encoded alone. */
#include <stdio.h>
#include <string.h>

#include "core/quote.h"
#include "format/tokenizer_parts.h"

/* The ids that one processor puts on both sides. */
typedef struct around {
    sl_ids before, after;
} around;

static sluice_status add_id(const sl_where *w, const sl_vocab *v, const json_t *id, sl_ids *out)
{
    if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) >= (json_int_t)v->size ||
        !sl_vocab_has(v, (uint32_t)json_integer_value(id)))
        return sl_where_fail(w, "an id is not one of a token of this file");
    return sl_ids_add(out, (int32_t)json_integer_value(id));
}

/* ---- TemplateProcessing ---- */

static sluice_status add_template_token(const json_t *special_tokens, const sl_where *w, const sl_vocab *v,
                                        const char *name, sl_ids *out)
{
    const json_t *ids = json_object_get(json_object_get(special_tokens, name), "ids");
    if (!json_is_array(ids))
        return sl_where_fail(w, "\"special_tokens\" has no list of ids for %s", sl_quote(name).text);
    for (size_t i = 0; i < json_array_size(ids); i++) SL_TRY(add_id(w, v, json_array_get(ids, i), out));
    return SLUICE_OK;
}

static sluice_status read_template(const json_t *object, const sl_where *w, const sl_vocab *v, around *out)
{
    const json_t *single = json_object_get(object, "single");
    int sequences = 0;
    if (!json_is_array(single)) return sl_where_fail(w, "\"single\" is not a list");
    for (size_t i = 0; i < json_array_size(single); i++) {
        const json_t *part = json_array_get(single, i);
        const char *special = json_string_value(json_object_get(json_object_get(part, "SpecialToken"), "id"));
        const char *sequence = json_string_value(json_object_get(json_object_get(part, "Sequence"), "id"));
        if (special != NULL)
            SL_TRY(add_template_token(json_object_get(object, "special_tokens"), w, v, special,
                                      sequences == 0 ? &out->before : &out->after));
        else if (sequence != NULL && strcmp(sequence, "A") == 0)
            sequences++;
        else
            return sl_where_fail(w, "part %zu of \"single\" is neither a SpecialToken nor the Sequence A", i);
    }
    return sequences == 1 ? SLUICE_OK : sl_where_fail(w, "\"single\" has the Sequence A %d times, not once", sequences);
}

/* ---- BertProcessing, RobertaProcessing ---- */

/* "cls": [token, id] */
static sluice_status read_side(const json_t *object, const sl_where *w, const sl_vocab *v, const char *key, sl_ids *out)
{
    const json_t *pair = json_object_get(object, key);
    if (!json_is_array(pair) || json_array_size(pair) != 2) return sl_where_fail(w, "\"%s\" is not [token, id]", key);
    return add_id(w, v, json_array_get(pair, 1), out);
}

static sluice_status read_sides(const json_t *object, const sl_where *w, const sl_vocab *v, around *out)
{
    SL_TRY(read_side(object, w, v, "cls", &out->before));
    return read_side(object, w, v, "sep", &out->after);
}

/* ByteLevel changes offsets alone. */
static sluice_status read_nothing(const json_t *object, const sl_where *w, const sl_vocab *v, around *out)
{
    (void)object, (void)w, (void)v, (void)out;
    return SLUICE_OK;
}

static const struct {
    const char *type, *keys;
    sluice_status (*read)(const json_t *object, const sl_where *w, const sl_vocab *v, around *out);
} rows[] = {
    { "TemplateProcessing", "type single pair special_tokens", read_template },
    { "BertProcessing", "type sep cls", read_sides },
    { "RobertaProcessing", "type sep cls trim_offsets add_prefix_space", read_sides },
    { "ByteLevel", "type add_prefix_space trim_offsets use_regex", read_nothing },
};

/* ---- Several: a later one goes around what earlier ones added ---- */

static sluice_status append(sl_ids *to, const sl_ids *ids)
{
    for (size_t i = 0; i < ids->count; i++) SL_TRY(sl_ids_add(to, ids->data[i]));
    return SLUICE_OK;
}

static sluice_status put_around(sl_post *post, around *a)
{
    SL_TRY(append(&a->before, &post->before));
    SL_TRY(append(&post->after, &a->after));
    sl_ids inner = post->before;
    post->before = a->before;
    a->before = inner;
    return SLUICE_OK;
}

static sluice_status read_processor(const json_t *object, const sl_where *w, const sl_vocab *v, sl_post *out)
{
    const char *type = json_string_value(json_object_get(object, "type"));
    if (type == NULL) return sl_where_fail(w, "\"type\" is missing or not a string");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (strcmp(rows[i].type, type) != 0) continue;
        around a = { 0 };
        sluice_status st = sl_read_keys(object, w, rows[i].keys);
        if (st == SLUICE_OK) st = rows[i].read(object, w, v, &a);
        if (st == SLUICE_OK) st = put_around(out, &a);
        sl_ids_free(&a.before);
        sl_ids_free(&a.after);
        return st;
    }
    return sl_where_fail(w, "the component %s is not built", sl_quote(type).text);
}

static sluice_status read_processors(const json_t *value, const sl_where *w, const sl_vocab *v, int depth, sl_post *out)
{
    const char *type = json_string_value(json_object_get(value, "type"));
    if (type == NULL || strcmp(type, "Sequence") != 0) return read_processor(value, w, v, out);
    const json_t *list = json_object_get(value, "processors");
    if (!json_is_array(list)) return sl_where_fail(w, "\"processors\" is not a list");
    sl_where below = sl_where_below(w, "processors");
    for (size_t i = 0; i < json_array_size(list); i++) {
        char number[24];
        snprintf(number, sizeof number, "%zu", i);
        sl_where part = sl_where_below(&below, number);
        if (depth == SL_TOKENIZER_MAX_STEPS || i == SL_TOKENIZER_MAX_STEPS)
            return sl_where_fail(&part, "more than %d components in a row", SL_TOKENIZER_MAX_STEPS);
        SL_TRY(read_processors(json_array_get(list, i), &part, v, depth + 1, out));
    }
    return SLUICE_OK;
}

sluice_status sl_post_read(const json_t *value, const sl_where *w, const sl_vocab *v, sl_post *out)
{
    return value == NULL || json_is_null(value) ? SLUICE_OK : read_processors(value, w, v, 0, out);
}

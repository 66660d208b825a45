/* tokenizer_post.c: post-processors: the special tokens around a text that is encoded alone, and around two. */
#include <stdio.h>
#include <string.h>

#include "core/quote.h"
#include "format/tokenizer_parts.h"

/* The ids that one processor puts on both sides, and how it joins two texts. */
typedef struct around {
    sl_ids before, after;
    sl_pair_frame pair;
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

/* One part of "pair". *at: the part of the frame that it is in or behind. False: not built. */
static bool read_pair_part(const json_t *object, const json_t *part, const sl_where *w, const sl_vocab *v, int *at,
                           sl_pair_frame *out, sluice_status *st)
{
    const json_t *special = json_object_get(part, "SpecialToken"), *sequence = json_object_get(part, "Sequence");
    const json_t *type = json_object_get(special != NULL ? special : sequence, "type_id");
    const char *id = json_string_value(json_object_get(special != NULL ? special : sequence, "id"));
    if (id == NULL || !json_is_integer(type) || json_integer_value(type) < 0 || json_integer_value(type) > INT16_MAX)
        return false;
    int32_t segment = (int32_t)json_integer_value(type);
    if (special == NULL) {
        bool second = *at == SL_PAIR_BETWEEN;
        if (*at == SL_PAIR_AFTER || strcmp(id, second ? "B" : "A") != 0) return false;
        out->segments[*at + 1] = segment;
        *at += 2;
        return true;
    }
    if (out->tokens[*at].count > 0 && out->segments[*at] != segment) return false;
    out->segments[*at] = segment;
    *st = add_template_token(json_object_get(object, "special_tokens"), w, v, id, &out->tokens[*at]);
    return true;
}

/* How pairs stand is asked for by few: what is not built stays unknown, and is no failure here. */
static sluice_status read_pair(const json_t *object, const sl_where *w, const sl_vocab *v, sl_pair_frame *out)
{
    const json_t *pair = json_object_get(object, "pair");
    int at = SL_PAIR_BEFORE;
    for (size_t i = 0; json_is_array(pair) && i < json_array_size(pair); i++) {
        sluice_status st = SLUICE_OK;
        if (!read_pair_part(object, json_array_get(pair, i), w, v, &at, out, &st)) return SLUICE_OK;
        if (st == SLUICE_ERR_NO_MEMORY) return st;
        if (st != SLUICE_OK) return SLUICE_OK;
    }
    out->known = at == SL_PAIR_AFTER;
    return SLUICE_OK;
}

static sluice_status read_templates(const json_t *object, const sl_where *w, const sl_vocab *v, around *out)
{
    SL_TRY(read_template(object, w, v, out));
    return read_pair(object, w, v, &out->pair);
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

/* cls A sep B sep; the second text and what is behind it are another segment. */
static sluice_status read_bert(const json_t *object, const sl_where *w, const sl_vocab *v, around *out)
{
    sl_pair_frame *pair = &out->pair;
    SL_TRY(read_sides(object, w, v, out));
    SL_TRY(sl_ids_add(&pair->tokens[SL_PAIR_BEFORE], out->before.data[0]));
    SL_TRY(sl_ids_add(&pair->tokens[SL_PAIR_BETWEEN], out->after.data[0]));
    SL_TRY(sl_ids_add(&pair->tokens[SL_PAIR_AFTER], out->after.data[0]));
    pair->segments[SL_PAIR_SECOND] = pair->segments[SL_PAIR_AFTER] = 1;
    pair->known = true;
    return SLUICE_OK;
}

/* cls A sep sep B sep, all of one segment. */
static sluice_status read_roberta(const json_t *object, const sl_where *w, const sl_vocab *v, around *out)
{
    SL_TRY(read_bert(object, w, v, out));
    out->pair.segments[SL_PAIR_SECOND] = out->pair.segments[SL_PAIR_AFTER] = 0;
    return sl_ids_add(&out->pair.tokens[SL_PAIR_BETWEEN], out->after.data[0]);
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
    { "TemplateProcessing", "type single pair special_tokens", read_templates },
    { "BertProcessing", "type sep cls", read_bert },
    { "RobertaProcessing", "type sep cls trim_offsets add_prefix_space", read_roberta },
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

static void free_pair(sl_pair_frame *p)
{
    for (int i = 0; i < SL_PAIR_PARTS; i++) sl_ids_free(&p->tokens[i]);
    *p = (sl_pair_frame){ .known = false };
}

/* Of several processors that join pairs none is taken. */
static void take_pair(sl_post *post, around *a)
{
    free_pair(&post->pair);
    if (!post->framed) {
        post->pair = a->pair;
        a->pair = (sl_pair_frame){ .known = false };
    }
    post->framed = true;
}

void sl_post_free(sl_post *post)
{
    sl_ids_free(&post->before);
    sl_ids_free(&post->after);
    free_pair(&post->pair);
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
        if (st == SLUICE_OK && rows[i].read != read_nothing) take_pair(out, &a);
        sl_ids_free(&a.before);
        sl_ids_free(&a.after);
        free_pair(&a.pair);
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

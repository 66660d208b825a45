/* tokenizer_chain.c: reading components and their keys, and the patterns that they replace or split by. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/quote.h"
#include "format/tokenizer_parts.h"

void sl_where_record(const sl_where *w, const char *format, ...)
{
    char text[SL_MESSAGE_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (w->key[0] == '\0')
        sl_error_record("%s: %s", w->file, text);
    else
        sl_error_record("%s: %s: %s", w->file, w->key, text);
}

sl_where sl_where_below(const sl_where *w, const char *key)
{
    sl_where below = { .file = w->file };
    snprintf(below.key, sizeof below.key, "%.100s%s%.40s", w->key, w->key[0] == '\0' ? "" : ".", key);
    return below;
}

/* ---- Keys ---- */

static bool is_among(const char *key, const char *keys)
{
    size_t length = strlen(key);
    for (const char *at = keys; (at = strstr(at, key)) != NULL; at += length)
        if ((at == keys || at[-1] == ' ') && (at[length] == ' ' || at[length] == '\0')) return length > 0;
    return false;
}

sluice_status sl_read_keys(const json_t *object, const sl_where *w, const char *keys)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, key, value)
    {
        if (is_among(key, keys)) continue;
        return sl_where_fail(w, "the key %s is not known, and it may change the tokens", sl_quote(key).text);
    }
    return SLUICE_OK;
}

sluice_status sl_read_bool(const json_t *object, const sl_where *w, const char *key, bool absent, bool *out)
{
    const json_t *value = json_object_get(object, key);
    if (value != NULL && !json_is_boolean(value)) return sl_where_fail(w, "\"%s\" is neither true nor false", key);
    *out = value == NULL ? absent : json_is_true(value);
    return SLUICE_OK;
}

sluice_status sl_read_integer(const json_t *object, const sl_where *w, const char *key, int64_t least, int64_t most,
                              int64_t *out)
{
    const json_t *value = json_object_get(object, key);
    if (value == NULL) return SLUICE_OK;
    if (!json_is_integer(value) || json_integer_value(value) < least || json_integer_value(value) > most)
        return sl_where_fail(w, "\"%s\" is not a whole number from %lld to %lld", key, (long long)least,
                             (long long)most);
    *out = json_integer_value(value);
    return SLUICE_OK;
}

sluice_status sl_read_string(const json_t *object, const sl_where *w, const char *key, const char *absent,
                             sl_token_string *out)
{
    const json_t *value = json_object_get(object, key);
    if (value == NULL && absent == NULL) return sl_where_fail(w, "\"%s\" is missing", key);
    if (value != NULL && !json_is_string(value)) return sl_where_fail(w, "\"%s\" is not a string", key);
    out->text = sl_strdup(value == NULL ? absent : json_string_value(value), "part of a tokenizer");
    if (out->text == NULL) return SLUICE_ERR_NO_MEMORY;
    out->bytes = strlen(out->text);
    return SLUICE_OK;
}

/* ---- Patterns ---- */

static sluice_status read_regex(const json_t *object, const sl_where *w, sl_token_step *step)
{
    const char *expression = json_string_value(json_object_get(object, "Regex"));
    sl_regex_fault fault;
    if (expression == NULL) return sl_where_fail(w, "\"pattern\" is neither {\"String\": text} nor {\"Regex\": text}");
    step->scan = sl_scanner_find(expression, strlen(expression));
    if (step->scan != NULL) return SLUICE_OK;
    sluice_status st = sl_regex_compile(expression, strlen(expression), &step->regex, &fault);
    if (st != SLUICE_ERR_INPUT) return st;
    return sl_where_fail(w, "the regular expression is not built: %s", fault.text);
}

sluice_status sl_read_pattern(const json_t *object, const sl_where *w, sl_token_step *step)
{
    const json_t *pattern = json_object_get(object, "pattern");
    if (!json_is_object(pattern) || json_object_size(pattern) != 1)
        return sl_where_fail(w, "\"pattern\" is neither {\"String\": text} nor {\"Regex\": text}");
    if (json_object_get(pattern, "String") == NULL) return read_regex(pattern, w, step);
    SL_TRY(sl_read_string(pattern, w, "String", NULL, &step->from));
    return step->from.bytes == 0 ? sl_where_fail(w, "\"pattern\" is empty") : SLUICE_OK;
}

sluice_status sl_pattern_next(const sl_token_step *step, const uint16_t *properties, const char *text, size_t bytes,
                              size_t from, sl_regex_work *work, bool *found, size_t *begin, size_t *end)
{
    if (step->regex != NULL) return sl_regex_next(step->regex, properties, text, bytes, from, work, found, begin, end);
    if (step->scan != NULL) {
        *found = from < bytes;
        *begin = from;
        *end = *found ? step->scan(properties, text, bytes, from) : from;
        return SLUICE_OK;
    }
    const char *hit = from < bytes ? memmem(text + from, bytes - from, step->from.text, step->from.bytes) : NULL;
    *found = hit != NULL;
    *begin = hit != NULL ? (size_t)(hit - text) : bytes;
    *end = *begin + (hit != NULL ? step->from.bytes : 0);
    return SLUICE_OK;
}

static sluice_status replace_matches(const sl_token_step *step, const uint16_t *properties, const char *text,
                                     size_t bytes, sl_regex_work *work, sl_text *out, bool *changed)
{
    size_t at = 0, kept = 0, begin, end;
    bool found;
    while (at <= bytes) {
        SL_TRY(sl_pattern_next(step, properties, text, bytes, at, work, &found, &begin, &end));
        if (!found) break;
        *changed = true;
        sl_text_add_bytes(out, text + kept, begin - kept);
        sl_text_add_bytes(out, step->to.text, step->to.bytes);
        kept = end;
        at = end > begin ? end : end + 1;
        while (at < bytes && ((unsigned char)text[at] & 0xc0) == 0x80) at++;
    }
    if (kept < bytes) sl_text_add_bytes(out, text + kept, bytes - kept);
    return sl_text_status(out);
}

sluice_status sl_replace(const sl_token_step *step, const uint16_t *properties, const char *text, size_t bytes,
                         sl_text *out, bool *changed)
{
    sl_regex_work work = { .steps = sl_regex_steps(bytes) };
    *changed = false;
    sluice_status st = replace_matches(step, properties, text, bytes, &work, out, changed);
    sl_regex_work_free(&work);
    return st;
}

/* ---- Chains ---- */

void sl_token_step_free(sl_token_step *step)
{
    sl_free(step->from.text);
    sl_free(step->to.text);
    sl_regex_free(step->regex);
    *step = (sl_token_step){ 0 };
}

void sl_chain_free(sl_chain *c)
{
    for (int i = 0; i < c->count; i++) sl_token_step_free(&c->steps[i]);
    c->count = 0;
}

sluice_status sl_chain_add(sl_chain *c, const sl_where *w, const sl_token_step *step)
{
    sl_token_step owned = *step;
    if (c->count == SL_TOKENIZER_MAX_STEPS) {
        sl_token_step_free(&owned);
        return sl_where_fail(w, "more than %d components in a row", SL_TOKENIZER_MAX_STEPS);
    }
    c->steps[c->count++] = owned;
    return SLUICE_OK;
}

static sluice_status read_sequence(const json_t *object, const sl_where *w, const sl_token_step_row *rows,
                                   size_t row_count, const char *list, sl_chain *out)
{
    const json_t *parts = json_object_get(object, list);
    sl_where below = sl_where_below(w, list);
    if (!json_is_array(parts)) return sl_where_fail(w, "\"%s\" is not a list", list);
    for (size_t i = 0; i < json_array_size(parts); i++) {
        char number[24];
        snprintf(number, sizeof number, "%zu", i);
        sl_where part = sl_where_below(&below, number);
        if (!json_is_object(json_array_get(parts, i))) return sl_where_fail(&part, "not an object");
        SL_TRY(sl_chain_read(json_array_get(parts, i), &part, rows, row_count, list, out));
    }
    return SLUICE_OK;
}

static sluice_status read_component(const json_t *object, const sl_where *w, const sl_token_step_row *row,
                                    sl_chain *out)
{
    sl_token_step step = { .kind = row->kind };
    SL_TRY(sl_read_keys(object, w, row->keys));
    sluice_status st = row->read == NULL ? SLUICE_OK : row->read(object, w, &step);
    if (st == SLUICE_OK) return sl_chain_add(out, w, &step);
    sl_token_step_free(&step);
    return st;
}

sluice_status sl_chain_read(const json_t *value, const sl_where *w, const sl_token_step_row *rows, size_t row_count,
                            const char *list, sl_chain *out)
{
    if (value == NULL || json_is_null(value)) {
        out->absent = true;
        return SLUICE_OK;
    }
    const char *type = json_string_value(json_object_get(value, "type"));
    if (type == NULL) return sl_where_fail(w, "\"type\" is missing or not a string");
    if (strcmp(type, "Sequence") == 0) return read_sequence(value, w, rows, row_count, list, out);
    for (size_t i = 0; i < row_count; i++)
        if (strcmp(rows[i].type, type) == 0) return read_component(value, w, &rows[i], out);
    return sl_where_fail(w, "the component %s is not built", sl_quote(type).text);
}

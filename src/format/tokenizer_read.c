/* tokenizer_read.c: tokenizer.json, and vocab.json with merges.txt.
 *
 * Vocabulary and merges are hundreds of thousands of entries: they are read in place with the scanner. The small rest is parsed
 * as JSON. */
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/io.h"
#include "core/quote.h"
#include "format/json.h"
#include "format/scan.h"
#include "format/tokenizer_parts.h"

/* A value in the text of a file. */
typedef struct part {
    size_t begin, end; /* end = 0: absent */
} part;

enum { TOP_ADDED, TOP_NORMALIZER, TOP_SPLITTER, TOP_POST, TOP_DECODER, TOP_MODEL, TOP_IGNORED, TOP_KEYS };
static const char *const top_keys[] = { "added_tokens", "normalizer", "pre_tokenizer", "post_processor", "decoder",
                                        "model",        "version",    "truncation",    "padding" };

typedef struct reader {
    sl_tokenizer *t;
    const char *text, *file;
    size_t bytes;
    sl_text decoded; /* the newest string */
    sl_text pair;    /* two of them */
    part parts[TOP_KEYS];
    part vocab, merges;
    sl_text model; /* its other keys, as an object */
} reader;

static sluice_status fail_at(const reader *r, size_t at, const char *what)
{
    int line, column;
    sl_scan_position(r->text, at, &line, &column);
    return sl_fail(SLUICE_ERR_INPUT, "%s: line %d, column %d: %s", r->file, line, column, what);
}

/* ---- Walking objects ---- */

static bool is_key(const char *key, size_t bytes, const char *name)
{
    return strlen(name) == bytes && memcmp(key, name, bytes) == 0;
}

/* Calls `take` with each key, as it is written, and the place of its value. The cursor is at the object. */
typedef sluice_status (*take_fn)(reader *r, const char *key, size_t key_bytes, part value);
static sluice_status walk_object(reader *r, sl_scan *s, int depth, take_fn take)
{
    if (!sl_scan_take(s, '{')) return fail_at(r, s->at, s->fault);
    if (sl_scan_accept(s, '}')) return SLUICE_OK;
    do {
        size_t begin, end;
        if (!sl_scan_string(s, &begin, &end) || !sl_scan_take(s, ':')) return fail_at(r, s->at, s->fault);
        sl_scan_space(s);
        part value = { s->at, 0 };
        if (!sl_scan_skip(s, depth + 1)) return fail_at(r, s->at, s->fault);
        value.end = s->at;
        SL_TRY(take(r, r->text + begin, end - begin, value));
    } while (sl_scan_accept(s, ','));
    return sl_scan_take(s, '}') ? SLUICE_OK : fail_at(r, s->at, s->fault);
}

static sluice_status take_top(reader *r, const char *key, size_t key_bytes, part value)
{
    for (size_t i = 0; i < sizeof top_keys / sizeof top_keys[0]; i++) {
        if (!is_key(key, key_bytes, top_keys[i])) continue;
        part *place = &r->parts[i < TOP_IGNORED ? i : TOP_IGNORED];
        if (i < TOP_IGNORED && place->end != 0)
            return fail_at(r, value.begin, "this key stands here for the second time");
        *place = value;
        return SLUICE_OK;
    }
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)(key_bytes < 60 ? key_bytes : 60), key);
    return sl_fail(SLUICE_ERR_INPUT, "%s: the key %s is not known, and it may change the tokens", r->file,
                   sl_quote(name).text);
}

static sluice_status take_model(reader *r, const char *key, size_t key_bytes, part value)
{
    part *large = is_key(key, key_bytes, "vocab") ? &r->vocab : is_key(key, key_bytes, "merges") ? &r->merges : NULL;
    if (large != NULL) {
        if (large->end != 0) return fail_at(r, value.begin, "this key stands here for the second time");
        *large = value;
        return SLUICE_OK;
    }
    sl_text_add_bytes(&r->model, r->model.bytes == 0 ? "{\"" : ",\"", 2);
    sl_text_add_bytes(&r->model, key, key_bytes);
    sl_text_add_bytes(&r->model, "\":", 2);
    sl_text_add_bytes(&r->model, r->text + value.begin, value.end - value.begin);
    return sl_text_status(&r->model);
}

/* The text is a JSON object and nothing more; its parts are found. */
static sluice_status find_parts(reader *r)
{
    size_t bad;
    sl_scan s = { .text = r->text, .bytes = r->bytes };
    if (!sl_utf8_valid(r->text, r->bytes, &bad)) return fail_at(r, bad, "not valid UTF-8");
    SL_TRY(walk_object(r, &s, 0, take_top));
    sl_scan_space(&s);
    if (s.at < r->bytes) return fail_at(r, s.at, "more text after the end of the value");
    if (r->parts[TOP_MODEL].end == 0)
        return sl_fail(SLUICE_ERR_INPUT, "%s: no \"model\": not a tokenizer.json", r->file);
    s.at = r->parts[TOP_MODEL].begin;
    SL_TRY(walk_object(r, &s, 1, take_model));
    sl_text_add_bytes(&r->model, r->model.bytes == 0 ? "{}" : "}", r->model.bytes == 0 ? 2 : 1);
    return sl_text_status(&r->model);
}

/* ---- Strings in place ---- */

static sluice_status decode_string(reader *r, size_t begin, size_t end)
{
    r->decoded.bytes = 0;
    sl_text_add_bytes(&r->decoded, r->text + begin, end - begin);
    SL_TRY(sl_text_status(&r->decoded));
    r->decoded.bytes = sl_scan_decode(r->text + begin, end - begin, r->decoded.data);
    r->decoded.data[r->decoded.bytes] = '\0';
    return SLUICE_OK;
}

static sluice_status scan_decoded(reader *r, sl_scan *s)
{
    size_t begin, end;
    if (!sl_scan_string(s, &begin, &end)) return fail_at(r, s->at, s->fault);
    return decode_string(r, begin, end);
}

/* ---- Vocabulary ---- */

static sluice_status add_token(reader *r, size_t at, uint64_t id)
{
    sl_vocab *v = &r->t->vocab;
    char message[200];
    if (id >= SL_TOKENIZER_MAX_IDS || id > 2 * (uint64_t)r->bytes) {
        snprintf(message, sizeof message, "model.vocab: the id %llu is too large", (unsigned long long)id);
        return fail_at(r, at, message);
    }
    if (sl_vocab_has(v, (uint32_t)id)) {
        snprintf(message, sizeof message, "model.vocab: two tokens have the id %llu", (unsigned long long)id);
        return fail_at(r, at, message);
    }
    if (sl_vocab_find(v, r->decoded.data, r->decoded.bytes) != SL_TOKEN_NONE) {
        snprintf(message, sizeof message, "model.vocab: the token %s stands here for the second time",
                 sl_quote(r->decoded.data).text);
        return fail_at(r, at, message);
    }
    return sl_vocab_add(v, r->decoded.data, r->decoded.bytes, (uint32_t)id);
}

static sluice_status read_vocab(reader *r)
{
    if (r->vocab.end == 0) return sl_fail(SLUICE_ERR_INPUT, "%s: model.vocab is missing", r->file);
    sl_scan s = { .text = r->text, .bytes = r->bytes, .at = r->vocab.begin };
    if (!sl_scan_accept(&s, '{')) return fail_at(r, s.at, "model.vocab is not an object of tokens and ids");
    if (sl_scan_accept(&s, '}')) return fail_at(r, s.at, "model.vocab has no token");
    do {
        uint64_t id;
        sl_scan_space(&s);
        size_t at = s.at;
        SL_TRY(scan_decoded(r, &s));
        if (!sl_scan_take(&s, ':')) return fail_at(r, s.at, s.fault);
        if (!sl_scan_unsigned(&s, &id)) return fail_at(r, s.at, "model.vocab: an id is not a whole number from 0 on");
        SL_TRY(add_token(r, at, id));
    } while (sl_scan_accept(&s, ','));
    return SLUICE_OK;
}

/* ---- Merges ---- */

static sluice_status fail_merge(const reader *r, const char *what)
{
    return sl_fail(SLUICE_ERR_INPUT, "%s: merge %u: %s", r->file, r->t->bpe.merge_count, what);
}

/* r->pair has both sides; the first has `left_bytes`. */
static sluice_status add_merge(reader *r, size_t left_bytes)
{
    sl_bpe *b = &r->t->bpe;
    const sl_vocab *v = &r->t->vocab;
    char message[300];
    if ((b->merge_count & (b->merge_count - 1)) == 0 && (b->merge_count == 0 || b->merge_count >= 1024)) {
        uint32_t capacity = b->merge_count == 0 ? 1024 : 2 * b->merge_count;
        sl_merge *merges =
            sl_realloc(b->merges, b->merge_count * sizeof *merges, (size_t)capacity * sizeof *merges, "merges");
        if (merges == NULL) return SLUICE_ERR_NO_MEMORY;
        b->merges = merges;
    }
    sl_merge m = { .left = sl_vocab_find(v, r->pair.data, left_bytes),
                   .right = sl_vocab_find(v, r->pair.data + left_bytes, r->pair.bytes - left_bytes),
                   .joined = sl_vocab_find(v, r->pair.data, r->pair.bytes) };
    if (m.left == SL_TOKEN_NONE || m.right == SL_TOKEN_NONE || m.joined == SL_TOKEN_NONE) {
        const char *missing = m.left == SL_TOKEN_NONE    ? "left side"
                              : m.right == SL_TOKEN_NONE ? "right side"
                                                         : "result";
        snprintf(message, sizeof message, "its %s is not in the vocabulary (the result would be %s)", missing,
                 sl_quote(r->pair.data).text);
        return fail_merge(r, message);
    }
    if (b->merge_count == SL_TOKENIZER_MAX_IDS) return fail_merge(r, "too many merges");
    b->merges[b->merge_count++] = m;
    return SLUICE_OK;
}

/* "left right" */
static sluice_status add_spaced_merge(reader *r, const char *text, size_t bytes)
{
    const char *space = memchr(text, ' ', bytes);
    size_t left = space == NULL ? 0 : (size_t)(space - text);
    if (left == 0 || left + 1 == bytes || memchr(space + 1, ' ', bytes - left - 1) != NULL)
        return fail_merge(r, "not two tokens with one space between them");
    r->pair.bytes = 0;
    sl_text_add_bytes(&r->pair, text, left);
    sl_text_add_bytes(&r->pair, space + 1, bytes - left - 1);
    SL_TRY(sl_text_status(&r->pair));
    return add_merge(r, left);
}

/* ["left", "right"] */
static sluice_status add_listed_merge(reader *r, sl_scan *s)
{
    r->pair.bytes = 0;
    SL_TRY(scan_decoded(r, s));
    size_t left = r->decoded.bytes;
    sl_text_add_bytes(&r->pair, r->decoded.data, left);
    if (!sl_scan_accept(s, ',')) return fail_merge(r, "not two tokens");
    SL_TRY(scan_decoded(r, s));
    sl_text_add_bytes(&r->pair, r->decoded.data, r->decoded.bytes);
    if (!sl_scan_accept(s, ']')) return fail_merge(r, "not two tokens");
    SL_TRY(sl_text_status(&r->pair));
    return left == 0 || left == r->pair.bytes ? fail_merge(r, "one of its sides is empty") : add_merge(r, left);
}

static sluice_status read_merges(reader *r)
{
    if (r->merges.end == 0) return sl_fail(SLUICE_ERR_INPUT, "%s: model.merges is missing", r->file);
    sl_scan s = { .text = r->text, .bytes = r->bytes, .at = r->merges.begin };
    if (!sl_scan_accept(&s, '[')) return fail_at(r, s.at, "model.merges is not a list");
    if (sl_scan_accept(&s, ']')) return SLUICE_OK;
    do {
        if (sl_scan_accept(&s, '[')) {
            SL_TRY(add_listed_merge(r, &s));
            continue;
        }
        sl_scan_space(&s);
        if (r->text[s.at] != '"') return fail_merge(r, "neither a string nor a list of two");
        SL_TRY(scan_decoded(r, &s));
        SL_TRY(add_spaced_merge(r, r->decoded.data, r->decoded.bytes));
    } while (sl_scan_accept(&s, ','));
    return SLUICE_OK;
}

/* ---- Models ---- */

/* A key that must be null, "" or 0: what it would do is not built. */
static sluice_status need_off(const json_t *model, const sl_where *w, const char *key)
{
    const json_t *value = json_object_get(model, key);
    bool off = value == NULL || json_is_null(value) || (json_is_number(value) && json_number_value(value) == 0) ||
               (json_is_string(value) && json_string_length(value) == 0);
    return off ? SLUICE_OK : sl_where_fail(w, "\"%s\" is not built; only null is read", key);
}

static bool has_all_units(const sl_bpe *b)
{
    for (int i = 0; i < 256; i++)
        if (b->unit[i] == SL_TOKEN_NONE) return false;
    return b->byte_level;
}

static sluice_status find_unknown(const json_t *model, const sl_where *w, const sl_vocab *v, uint32_t *out)
{
    const json_t *value = json_object_get(model, "unk_token");
    *out = SL_TOKEN_NONE;
    if (value == NULL || json_is_null(value)) return SLUICE_OK;
    if (!json_is_string(value)) return sl_where_fail(w, "\"unk_token\" is neither a string nor null");
    *out = sl_vocab_find(v, json_string_value(value), json_string_length(value));
    return SLUICE_OK;
}

static sluice_status read_bpe(reader *r, const json_t *model, const sl_where *w)
{
    sl_bpe *b = &r->t->bpe;
    SL_TRY(sl_read_keys(model, w,
                        "type dropout unk_token continuing_subword_prefix end_of_word_suffix fuse_unk byte_fallback "
                        "ignore_merges"));
    SL_TRY(need_off(model, w, "dropout"));
    SL_TRY(need_off(model, w, "continuing_subword_prefix"));
    SL_TRY(need_off(model, w, "end_of_word_suffix"));
    SL_TRY(sl_read_bool(model, w, "fuse_unk", false, &b->fuse_unknown));
    SL_TRY(sl_read_bool(model, w, "byte_fallback", false, &b->byte_fallback));
    SL_TRY(sl_read_bool(model, w, "ignore_merges", false, &b->ignore_merges));
    SL_TRY(read_vocab(r));
    SL_TRY(find_unknown(model, w, &r->t->vocab, &b->unknown));
    SL_TRY(read_merges(r));
    SL_TRY(sl_bpe_prepare(b, &r->t->vocab));
    const char *unknown = json_string_value(json_object_get(model, "unk_token"));
    if (unknown != NULL && b->unknown == SL_TOKEN_NONE && !has_all_units(b))
        return sl_where_fail(w, "\"unk_token\": %s is not in the vocabulary", sl_quote(unknown).text);
    return SLUICE_OK;
}

static sluice_status read_wordpiece(reader *r, const json_t *model, const sl_where *w)
{
    sl_wordpiece *p = &r->t->wordpiece;
    int64_t most = 100;
    SL_TRY(sl_read_keys(model, w, "type unk_token continuing_subword_prefix max_input_chars_per_word"));
    SL_TRY(sl_read_integer(model, w, "max_input_chars_per_word", 1, 10000, &most));
    p->most_characters = (size_t)most;
    const json_t *prefix = json_object_get(model, "continuing_subword_prefix");
    const char *text = prefix == NULL ? "##" : json_string_value(prefix);
    if (text == NULL || strlen(text) >= sizeof p->prefix)
        return sl_where_fail(w, "\"continuing_subword_prefix\" is not a short string");
    p->prefix_bytes = strlen(text);
    memcpy(p->prefix, text, p->prefix_bytes + 1);
    SL_TRY(read_vocab(r));
    SL_TRY(find_unknown(model, w, &r->t->vocab, &p->unknown));
    if (p->unknown == SL_TOKEN_NONE) return sl_where_fail(w, "\"unk_token\" is not in the vocabulary");
    r->t->model = SL_MODEL_WORDPIECE;
    return SLUICE_OK;
}

/* Old files have no type: what they have tells it. */
static const char *model_type(const reader *r, const json_t *model)
{
    const json_t *type = json_object_get(model, "type");
    if (type != NULL) return json_string_value(type);
    if (r->merges.end != 0) return "BPE";
    return json_object_get(model, "max_input_chars_per_word") != NULL ? "WordPiece" : NULL;
}

static sluice_status read_model(reader *r, bool byte_level)
{
    sl_where w = { .file = r->file, .key = "model" };
    json_t *model;
    SL_TRY(sl_json_parse(r->model.data, r->model.bytes, r->file, SLUICE_ERR_INPUT, &model));
    const char *type = model_type(r, model);
    sluice_status st;
    r->t->bpe.byte_level = byte_level;
    if (type == NULL)
        st = sl_where_fail(&w, "\"type\" is missing or not a string");
    else if (strcmp(type, "BPE") == 0)
        st = read_bpe(r, model, &w);
    else if (strcmp(type, "WordPiece") != 0)
        st = sl_where_fail(&w, "the component %s is not built; BPE and WordPiece are", sl_quote(type).text);
    else if (byte_level)
        st = sl_where_fail(&w, "WordPiece after the pre-tokenizer ByteLevel is not built");
    else
        st = read_wordpiece(r, model, &w);
    json_decref(model);
    return st;
}

/* ---- Added tokens ---- */

static sluice_status read_added_token(const json_t *object, const sl_where *w, sl_added_token *out)
{
    int64_t id = -1;
    sl_token_string content = { 0 };
    if (!json_is_object(object)) return sl_where_fail(w, "not an object");
    SL_TRY(sl_read_keys(object, w, "id content single_word lstrip rstrip normalized special"));
    SL_TRY(sl_read_integer(object, w, "id", 0, SL_TOKENIZER_MAX_IDS - 1, &id));
    if (id < 0) return sl_where_fail(w, "\"id\" is missing");
    out->id = (uint32_t)id;
    SL_TRY(sl_read_bool(object, w, "special", false, &out->special));
    SL_TRY(sl_read_bool(object, w, "single_word", false, &out->single_word));
    SL_TRY(sl_read_bool(object, w, "lstrip", false, &out->lstrip));
    SL_TRY(sl_read_bool(object, w, "rstrip", false, &out->rstrip));
    SL_TRY(sl_read_bool(object, w, "normalized", !out->special, &out->normalized));
    SL_TRY(sl_read_string(object, w, "content", NULL, &content));
    out->content = content.text;
    out->bytes = content.bytes;
    if (out->bytes > SL_TOKENIZER_MAX_ADDED_BYTES)
        return sl_where_fail(w, "\"content\" is longer than %d bytes", SL_TOKENIZER_MAX_ADDED_BYTES);
    return SLUICE_OK;
}

/* The token's id in the vocabulary is the one the file gives; it joins the vocabulary where it was not there. */
static sluice_status place_added_token(sl_tokenizer *t, const sl_where *w, const sl_added_token *a)
{
    uint32_t known = sl_vocab_find(&t->vocab, a->content, a->bytes);
    if (known == a->id) return SLUICE_OK;
    if (known != SL_TOKEN_NONE)
        return sl_where_fail(w, "%s has the id %u here and %u in the vocabulary", sl_quote(a->content).text, a->id,
                             known);
    if (sl_vocab_has(&t->vocab, a->id))
        return sl_where_fail(w, "%s has the id %u of another token", sl_quote(a->content).text, a->id);
    if (a->id > 2 * (uint64_t)t->vocab.count + 1000000)
        return sl_where_fail(w, "the id %u of %s is far beyond the vocabulary", a->id, sl_quote(a->content).text);
    return sl_vocab_add(&t->vocab, a->content, a->bytes, a->id);
}

static sluice_status read_added_list(reader *r, const json_t *list)
{
    sl_tokenizer *t = r->t;
    size_t count = json_array_size(list);
    sl_where top = { .file = r->file, .key = "added_tokens" };
    t->added = sl_alloc_array(count == 0 ? 1 : count, sizeof *t->added, "added tokens");
    if (t->added == NULL) return SLUICE_ERR_NO_MEMORY;
    for (size_t i = 0; i < count; i++) {
        char number[24];
        snprintf(number, sizeof number, "%zu", i);
        sl_where w = sl_where_below(&top, number);
        sl_added_token *a = &t->added[t->added_count++];
        SL_TRY(read_added_token(json_array_get(list, i), &w, a));
        if (a->bytes == 0) { /* says nothing, matches nothing */
            sl_free(a->content);
            t->added_count--;
            continue;
        }
        SL_TRY(place_added_token(t, &w, a));
    }
    return SLUICE_OK;
}

static sluice_status copy_bytes(const char *text, size_t bytes, char **out)
{
    *out = sl_alloc(bytes + 1, "added token");
    if (*out == NULL) return SLUICE_ERR_NO_MEMORY;
    memcpy(*out, text, bytes);
    return SLUICE_OK;
}

/* What is looked for: the content, or where the token is matched after normalising what that makes of it. */
static sluice_status index_added_tokens(sl_tokenizer *t)
{
    sl_text buffers[2] = { 0 };
    sluice_status st = SLUICE_OK;
    for (size_t i = 0; i < t->added_count && st == SLUICE_OK; i++) {
        sl_added_token *a = &t->added[i];
        const char *text = a->content;
        a->pattern_bytes = a->bytes;
        if (a->normalized)
            st = sl_normalizer_run(&t->normalizer, t->properties, text, a->bytes, buffers, &text, &a->pattern_bytes);
        if (st == SLUICE_OK) st = copy_bytes(text, a->pattern_bytes, &a->pattern);
        if (st == SLUICE_OK && a->pattern_bytes > 0) st = sl_added_set_add(a->normalized ? &t->normalized : &t->raw, a);
    }
    for (int i = 0; i < 2; i++) sl_text_free(&buffers[i]);
    sl_added_set_sort(&t->raw);
    sl_added_set_sort(&t->normalized);
    return st;
}

/* ---- The file ---- */

/* The value of a top-level key, or NULL where it is absent or null; otherwise it must be of the type. */
static sluice_status parse_part(const reader *r, int which, json_type type, json_t **out)
{
    part p = r->parts[which];
    *out = NULL;
    if (p.end == 0 || (p.end - p.begin == 4 && memcmp(r->text + p.begin, "null", 4) == 0)) return SLUICE_OK;
    if (r->text[p.begin] != (type == JSON_OBJECT ? '{' : '['))
        return sl_fail(SLUICE_ERR_INPUT, "%s: %s is not %s", r->file, top_keys[which],
                       type == JSON_OBJECT ? "an object" : "a list");
    char what[512];
    snprintf(what, sizeof what, "%.400s: %s", r->file, top_keys[which]);
    return sl_json_parse(r->text + p.begin, p.end - p.begin, what, SLUICE_ERR_INPUT, out);
}

static sluice_status read_splitter(reader *r, bool *byte_level)
{
    json_t *value;
    sl_where w = { .file = r->file, .key = "pre_tokenizer" };
    SL_TRY(parse_part(r, TOP_SPLITTER, JSON_OBJECT, &value));
    sluice_status st = sl_splitter_read(value, &w, &r->t->splitter, byte_level);
    json_decref(value);
    return st;
}

static sluice_status read_normalizer(reader *r)
{
    json_t *value;
    sl_where w = { .file = r->file, .key = "normalizer" };
    SL_TRY(parse_part(r, TOP_NORMALIZER, JSON_OBJECT, &value));
    sluice_status st = sl_normalizer_read(value, &w, &r->t->normalizer);
    json_decref(value);
    return st;
}

static sluice_status read_added_tokens(reader *r)
{
    json_t *value;
    SL_TRY(parse_part(r, TOP_ADDED, JSON_ARRAY, &value));
    sluice_status st = value == NULL ? SLUICE_OK : read_added_list(r, value);
    json_decref(value);
    return st == SLUICE_OK ? index_added_tokens(r->t) : st;
}

static sluice_status read_post(reader *r)
{
    json_t *value;
    sl_where w = { .file = r->file, .key = "post_processor" };
    SL_TRY(parse_part(r, TOP_POST, JSON_OBJECT, &value));
    sluice_status st = sl_post_read(value, &w, &r->t->vocab, &r->t->post);
    json_decref(value);
    return st;
}

static sluice_status read_decoder(reader *r)
{
    json_t *value;
    sl_where w = { .file = r->file, .key = "decoder" };
    SL_TRY(parse_part(r, TOP_DECODER, JSON_OBJECT, &value));
    sluice_status st = sl_decoder_read(value, &w, &r->t->decoder);
    json_decref(value);
    return st;
}

static sluice_status read_all(reader *r)
{
    bool byte_level;
    SL_TRY(find_parts(r));
    SL_TRY(read_splitter(r, &byte_level));
    SL_TRY(read_normalizer(r));
    SL_TRY(read_model(r, byte_level));
    SL_TRY(read_added_tokens(r));
    SL_TRY(read_post(r));
    return read_decoder(r);
}

static void free_reader(reader *r)
{
    sl_text_free(&r->decoded);
    sl_text_free(&r->pair);
    sl_text_free(&r->model);
}

sluice_status sl_tokenizer_read_json(sl_tokenizer *t, const char *text, size_t bytes, const char *file)
{
    reader r = { .t = t, .text = text, .bytes = bytes, .file = file };
    sluice_status st = read_all(&r);
    free_reader(&r);
    return st;
}

/* ---- vocab.json and merges.txt: GPT-2's way ---- */

static sluice_status read_merge_lines(reader *r, const char *text, size_t bytes)
{
    size_t bad;
    if (!sl_utf8_valid(text, bytes, &bad))
        return sl_fail(SLUICE_ERR_INPUT, "%s: not valid UTF-8 (byte %zu)", r->file, bad);
    for (size_t at = 0; at < bytes;) {
        const char *end = memchr(text + at, '\n', bytes - at);
        size_t next = end == NULL ? bytes : (size_t)(end - text) + 1;
        size_t length = (end == NULL ? bytes : (size_t)(end - text)) - at;
        if (length > 0 && text[at + length - 1] == '\r') length--;
        bool comment = at == 0 && length >= 8 && memcmp(text, "#version", 8) == 0;
        if (length > 0 && !comment) SL_TRY(add_spaced_merge(r, text + at, length));
        at = next;
    }
    return SLUICE_OK;
}

/* <|endoftext|> is special where it is in the vocabulary; such folders say nothing of others. */
static sluice_status add_end_of_text(sl_tokenizer *t)
{
    static const char content[] = "<|endoftext|>";
    uint32_t id = sl_vocab_find(&t->vocab, content, sizeof content - 1);
    t->added = sl_alloc(sizeof *t->added, "added tokens");
    if (t->added == NULL) return SLUICE_ERR_NO_MEMORY;
    if (id != SL_TOKEN_NONE) {
        t->added[0] = (sl_added_token){ .bytes = sizeof content - 1, .id = id, .special = true };
        SL_TRY(copy_bytes(content, sizeof content - 1, &t->added[0].content));
        t->added_count = 1;
    }
    return index_added_tokens(t);
}

static sluice_status add_byte_level_steps(sl_tokenizer *t, const char *file)
{
    sl_where w = { .file = file };
    json_t *level = json_pack("{s:s, s:b}", "type", "ByteLevel", "add_prefix_space", 0);
    bool byte_level;
    if (level == NULL) return sl_fail(SLUICE_ERR_NO_MEMORY, "%s: no memory", file);
    sluice_status st = sl_splitter_read(level, &w, &t->splitter, &byte_level);
    if (st == SLUICE_OK) st = sl_decoder_read(level, &w, &t->decoder);
    json_decref(level);
    t->bpe.byte_level = true;
    t->bpe.unknown = SL_TOKEN_NONE;
    t->normalizer.absent = true;
    return st;
}

static sluice_status read_pair_texts(reader *r, const char *merges_file, const char *merges, size_t merges_bytes)
{
    size_t bad;
    if (!sl_utf8_valid(r->text, r->bytes, &bad)) return fail_at(r, bad, "not valid UTF-8");
    sl_scan s = { .text = r->text, .bytes = r->bytes };
    if (!sl_scan_skip(&s, 0)) return fail_at(r, s.at, s.fault);
    r->vocab = (part){ 0, s.at };
    sl_scan_space(&s);
    if (s.at < r->bytes) return fail_at(r, s.at, "more text after the end of the value");
    SL_TRY(add_byte_level_steps(r->t, r->file));
    SL_TRY(read_vocab(r));
    r->file = merges_file;
    SL_TRY(read_merge_lines(r, merges, merges_bytes));
    SL_TRY(sl_bpe_prepare(&r->t->bpe, &r->t->vocab));
    return add_end_of_text(r->t);
}

sluice_status sl_tokenizer_read_pair(sl_tokenizer *t, const char *vocab_file, const char *merges_file)
{
    char *vocab, *merges;
    size_t vocab_bytes, merges_bytes;
    SL_TRY(sl_file_read_all(vocab_file, SL_TOKENIZER_MAX_BYTES, &vocab, &vocab_bytes));
    sluice_status st = sl_file_read_all(merges_file, SL_TOKENIZER_MAX_BYTES, &merges, &merges_bytes);
    if (st == SLUICE_OK) {
        reader r = { .t = t, .text = vocab, .bytes = vocab_bytes, .file = vocab_file };
        st = read_pair_texts(&r, merges_file, merges, merges_bytes);
        free_reader(&r);
        sl_free(merges);
    }
    sl_free(vocab);
    return st;
}

/* tokenizer_decode.c: ids back to text: the contents of tokens go as a list through a chain of decoders.
 *
 * Ids that come one by one are decoded in a window: what the tokens since the last whole character say, less what the first
 * of them said already. */
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/utf8.h"
#include "format/tokenizer_parts.h"

enum {
    BYTE_LEVEL,
    REPLACE,  /* pattern, to */
    FALLBACK, /* <0xHH> */
    FUSE,
    STRIP,     /* from: a character; number[0]: how many of them go at the start of each, number[1]: at the end */
    WORDPIECE, /* from: the prefix; on[0]: clean up */
    METASPACE  /* from: the replacement; on[0]: a space was put in front */
};

/* ---- Reading ---- */

static sluice_status read_replace(const json_t *object, const sl_where *w, sl_token_step *step)
{
    SL_TRY(sl_read_pattern(object, w, step));
    return sl_read_string(object, w, "content", NULL, &step->to);
}

static sluice_status check_character(const sl_where *w, const char *key, const sl_token_string *s)
{
    size_t length = 0;
    if (s->bytes > 0) sl_code_point(s->text, &length);
    return length > 0 && length == s->bytes ? SLUICE_OK : sl_where_fail(w, "\"%s\" is not one character", key);
}

static sluice_status read_strip(const json_t *object, const sl_where *w, sl_token_step *step)
{
    SL_TRY(sl_read_string(object, w, "content", NULL, &step->from));
    SL_TRY(sl_read_integer(object, w, "start", 0, INT32_MAX, &step->number[0]));
    SL_TRY(sl_read_integer(object, w, "stop", 0, INT32_MAX, &step->number[1]));
    return check_character(w, "content", &step->from);
}

static sluice_status read_wordpiece(const json_t *object, const sl_where *w, sl_token_step *step)
{
    SL_TRY(sl_read_string(object, w, "prefix", "##", &step->from));
    return sl_read_bool(object, w, "cleanup", true, &step->on[0]);
}

static sluice_status read_metaspace(const json_t *object, const sl_where *w, sl_token_step *step)
{
    const char *scheme = json_string_value(json_object_get(object, "prepend_scheme"));
    bool prefix;
    SL_TRY(sl_read_string(object, w, "replacement", NULL, &step->from));
    SL_TRY(sl_read_bool(object, w, "add_prefix_space", true, &prefix));
    if (json_object_get(object, "prepend_scheme") != NULL &&
        (scheme == NULL ||
         (strcmp(scheme, "always") != 0 && strcmp(scheme, "first") != 0 && strcmp(scheme, "never") != 0)))
        return sl_where_fail(w, "\"prepend_scheme\" is not \"always\", \"first\" or \"never\"");
    step->on[0] = scheme == NULL || strcmp(scheme, "never") != 0;
    if (!prefix && step->on[0])
        return sl_where_fail(w, "\"add_prefix_space\" is false, but \"prepend_scheme\" is not \"never\"");
    return check_character(w, "replacement", &step->from);
}

static const sl_token_step_row rows[] = {
    { "ByteLevel", BYTE_LEVEL, "type add_prefix_space trim_offsets use_regex", NULL },
    { "Replace", REPLACE, "type pattern content", read_replace },
    { "ByteFallback", FALLBACK, "type", NULL },
    { "Fuse", FUSE, "type", NULL },
    { "Strip", STRIP, "type content start stop", read_strip },
    { "WordPiece", WORDPIECE, "type prefix cleanup", read_wordpiece },
    { "Metaspace", METASPACE, "type replacement str_rep add_prefix_space prepend_scheme split", read_metaspace },
};

sluice_status sl_decoder_read(const json_t *value, const sl_where *w, sl_chain *out)
{
    return sl_chain_read(value, w, rows, sizeof rows / sizeof rows[0], "decoders", out);
}

/* ---- The list of texts ---- */

typedef struct text_list {
    sl_text text; /* one after the other */
    size_t *ends; /* owned */
    size_t count, capacity;
    bool failed;
} text_list;

static void list_free(text_list *l)
{
    sl_text_free(&l->text);
    sl_free(l->ends);
    *l = (text_list){ 0 };
}

/* Ends the text that was added to l->text. */
static void list_end(text_list *l)
{
    if (l->count == l->capacity) {
        size_t capacity = l->capacity == 0 ? 64 : 2 * l->capacity;
        size_t *ends = sl_realloc(l->ends, l->capacity * sizeof *ends, capacity * sizeof *ends, "texts of tokens");
        if (ends == NULL) {
            l->failed = true;
            return;
        }
        l->ends = ends;
        l->capacity = capacity;
    }
    l->ends[l->count++] = l->text.bytes;
}

static const char *list_at(const text_list *l, size_t i, size_t *bytes)
{
    size_t begin = i == 0 ? 0 : l->ends[i - 1];
    *bytes = l->ends[i] - begin;
    return *bytes == 0 ? "" : l->text.data + begin;
}

/* ---- Steps ---- */

static const char replacement_character[] = "\xef\xbf\xbd";

/* Bytes of a sequence that begins as UTF-8 does and then does not go on: they become one U+FFFD. */
static size_t bad_length(const char *text, size_t bytes)
{
    const unsigned char *t = (const unsigned char *)text;
    unsigned low = 0x80, high = 0xbf;
    size_t need = t[0] >= 0xc2 && t[0] <= 0xdf   ? 2
                  : t[0] >= 0xe0 && t[0] <= 0xef ? 3
                  : t[0] >= 0xf0 && t[0] <= 0xf4 ? 4
                                                 : 1;
    if (t[0] == 0xe0) low = 0xa0;
    if (t[0] == 0xed) high = 0x9f;
    if (t[0] == 0xf0) low = 0x90;
    if (t[0] == 0xf4) high = 0x8f;
    size_t length = 1;
    while (length < need && length < bytes && t[length] >= low && t[length] <= high) {
        length++;
        low = 0x80;
        high = 0xbf;
    }
    return length;
}

/* Bytes before a sequence at the end that further bytes could make whole; all of them where there is none. */
static size_t whole_bytes(const char *text, size_t bytes)
{
    for (size_t back = 1; back <= 3 && back <= bytes; back++) {
        const char *t = text + bytes - back;
        if (((unsigned char)t[0] & 0xc0) == 0x80) continue;
        bool open = (unsigned char)t[0] >= 0xc2 && sl_utf8_length(t, back) == 0 && bad_length(t, back) == back;
        return open ? bytes - back : bytes;
    }
    return bytes;
}

static void add_lossy(sl_text *out, const char *text, size_t bytes)
{
    size_t begin = 0, i = 0;
    while (i < bytes) {
        size_t length = sl_utf8_length(text + i, bytes - i);
        if (length == 0) {
            sl_text_add_bytes(out, text + begin, i - begin);
            sl_text_add_bytes(out, replacement_character, 3);
            i += bad_length(text + i, bytes - i);
            begin = i;
        }
        i += length;
    }
    sl_text_add_bytes(out, text + begin, bytes - begin);
}

/* The bytes that a token's characters stand for, or the token as it is where one of them stands for none. */
static void add_token_bytes(sl_text *out, const char *text, size_t bytes)
{
    size_t before = out->bytes;
    for (size_t i = 0, length; i < bytes; i += length) {
        int byte = sl_character_byte(sl_code_point(text + i, &length));
        char c = (char)byte;
        if (byte < 0) {
            out->bytes = before;
            sl_text_add_bytes(out, text, bytes);
            return;
        }
        sl_text_add_bytes(out, &c, 1);
    }
}

static void join_bytes(const text_list *in, text_list *out)
{
    sl_text raw = { 0 };
    for (size_t i = 0, bytes; i < in->count; i++) {
        const char *text = list_at(in, i, &bytes);
        add_token_bytes(&raw, text, bytes);
    }
    if (raw.bytes > 0) add_lossy(&out->text, raw.data, raw.bytes);
    if (raw.failed) out->failed = true;
    sl_text_free(&raw);
    list_end(out);
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    char lower = (char)(c | 0x20);
    return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

/* The byte of <0xHH>, or -1. A plus sign is a first digit 0, as in the reference. */
static int fallback_byte(const char *text, size_t bytes)
{
    if (bytes != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>') return -1;
    int high = text[3] == '+' ? 0 : hex_digit(text[3]), low = hex_digit(text[4]);
    return high < 0 || low < 0 ? -1 : high << 4 | low;
}

/* A run of bytes: one text where it is UTF-8, otherwise U+FFFD for each. */
static void end_fallback(sl_text *run, text_list *out)
{
    size_t bad;
    if (run->bytes > 0 && sl_utf8_valid(run->data, run->bytes, &bad)) {
        sl_text_add_bytes(&out->text, run->data, run->bytes);
        list_end(out);
    } else {
        for (size_t i = 0; i < run->bytes; i++) {
            sl_text_add_bytes(&out->text, replacement_character, 3);
            list_end(out);
        }
    }
    run->bytes = 0;
}

static void decode_fallback(const text_list *in, text_list *out)
{
    sl_text run = { 0 };
    for (size_t i = 0, bytes; i < in->count; i++) {
        const char *text = list_at(in, i, &bytes);
        int byte = fallback_byte(text, bytes);
        char c = (char)byte;
        if (byte >= 0) {
            sl_text_add_bytes(&run, &c, 1);
            continue;
        }
        end_fallback(&run, out);
        sl_text_add_bytes(&out->text, text, bytes);
        list_end(out);
    }
    end_fallback(&run, out);
    if (run.failed) out->failed = true;
    sl_text_free(&run);
}

static void strip_text(const sl_token_step *step, const char *text, size_t bytes, text_list *out)
{
    const sl_token_string *c = &step->from;
    for (int64_t i = 0; i < step->number[0] && bytes >= c->bytes && memcmp(text, c->text, c->bytes) == 0; i++) {
        text += c->bytes;
        bytes -= c->bytes;
    }
    for (int64_t i = 0;
         i < step->number[1] && bytes >= c->bytes && memcmp(text + bytes - c->bytes, c->text, c->bytes) == 0; i++)
        bytes -= c->bytes;
    sl_text_add_bytes(&out->text, text, bytes);
    list_end(out);
}

/* Replaces every occurrence at the end of `text` from `begin` on; never makes it longer. */
static void replace_in(sl_text *text, size_t begin, const char *from, const char *to)
{
    size_t length = strlen(from), kept = begin;
    if (text->failed) return;
    for (size_t i = begin; i < text->bytes;) {
        if (text->bytes - i >= length && memcmp(text->data + i, from, length) == 0) {
            memcpy(text->data + kept, to, strlen(to));
            kept += strlen(to);
            i += length;
        } else {
            text->data[kept++] = text->data[i++];
        }
    }
    text->bytes = kept;
}

static void decode_wordpiece(const sl_token_step *step, size_t index, const char *text, size_t bytes, text_list *out)
{
    static const char *const cleanup[][2] = { { " .", "." },     { " ?", "?" },           { " !", "!" },
                                              { " ,", "," },     { " ' ", "'" },          { " n't", "n't" },
                                              { " 'm", "'m" },   { " do not", " don't" }, { " 's", "'s" },
                                              { " 've", "'ve" }, { " 're", "'re" } };
    size_t begin = out->text.bytes;
    bool continues = bytes >= step->from.bytes && memcmp(text, step->from.text, step->from.bytes) == 0;
    if (index > 0 && continues) {
        text += step->from.bytes;
        bytes -= step->from.bytes;
    } else if (index > 0) {
        sl_text_add_bytes(&out->text, " ", 1);
    }
    sl_text_add_bytes(&out->text, text, bytes);
    for (size_t i = 0; step->on[0] && i < sizeof cleanup / sizeof cleanup[0]; i++)
        replace_in(&out->text, begin, cleanup[i][0], cleanup[i][1]);
    list_end(out);
}

static void decode_metaspace(const sl_token_step *step, size_t index, const char *text, size_t bytes, text_list *out)
{
    const sl_token_string *mark = &step->from;
    for (size_t i = 0, length; i < bytes; i += length) {
        sl_code_point(text + i, &length);
        bool is_mark = length == mark->bytes && memcmp(text + i, mark->text, length) == 0;
        if (!is_mark)
            sl_text_add_bytes(&out->text, text + i, length);
        else if (index > 0 || !step->on[0])
            sl_text_add_bytes(&out->text, " ", 1);
    }
    list_end(out);
}

static sluice_status decode_each(const sl_tokenizer *t, const sl_token_step *step, const text_list *in, text_list *out)
{
    for (size_t i = 0, bytes; i < in->count; i++) {
        const char *text = list_at(in, i, &bytes);
        bool changed;
        switch (step->kind) {
        case REPLACE:
            SL_TRY(sl_replace(step, t->properties, text, bytes, &out->text, &changed));
            list_end(out);
            break;
        case STRIP:
            strip_text(step, text, bytes, out);
            break;
        case WORDPIECE:
            decode_wordpiece(step, i, text, bytes, out);
            break;
        default:
            decode_metaspace(step, i, text, bytes, out);
            break;
        }
    }
    return SLUICE_OK;
}

static sluice_status decode_step(const sl_tokenizer *t, const sl_token_step *step, const text_list *in, text_list *out)
{
    switch (step->kind) {
    case BYTE_LEVEL:
        join_bytes(in, out);
        break;
    case FALLBACK:
        decode_fallback(in, out);
        break;
    case FUSE:
        sl_text_add_bytes(&out->text, in->text.bytes > 0 ? in->text.data : "", in->text.bytes);
        list_end(out);
        break;
    default:
        SL_TRY(decode_each(t, step, in, out));
        break;
    }
    return out->failed || out->text.failed ? SLUICE_ERR_NO_MEMORY : SLUICE_OK;
}

/* ---- Decoding ---- */

/* What an id says to the decoders, or NULL. */
static const char *token_text(const sl_tokenizer *t, int32_t id, size_t *bytes)
{
    const char *content = sl_tokenizer_content(t, id, bytes);
    if (content == NULL || t->added_of[id] == 0) return content;
    const sl_added_token *a = &t->added[t->added_of[id] - 1];
    *bytes = a->pattern_bytes;
    return a->pattern;
}

static void list_tokens(const sl_tokenizer *t, const int32_t *ids, size_t count, unsigned flags, text_list *out)
{
    for (size_t i = 0; i < count; i++) {
        size_t bytes;
        const char *content = token_text(t, ids[i], &bytes);
        if (content == NULL) continue;
        if ((flags & SL_DECODE_SKIP_SPECIAL) != 0 && sl_tokenizer_is_special(t, ids[i])) continue;
        if (t->decoder.absent && out->count > 0) sl_text_add_bytes(&out->text, " ", 1);
        sl_text_add_bytes(&out->text, content, bytes);
        list_end(out);
    }
}

sluice_status sl_decode(const sl_tokenizer *t, const int32_t *ids, size_t count, unsigned flags, sl_text *out)
{
    text_list list = { 0 };
    list_tokens(t, ids, count, flags, &list);
    sluice_status st = list.failed || list.text.failed ? SLUICE_ERR_NO_MEMORY : SLUICE_OK;
    for (int i = 0; i < t->decoder.count && st == SLUICE_OK; i++) {
        text_list next = { 0 };
        st = decode_step(t, &t->decoder.steps[i], &list, &next);
        list_free(&list);
        list = next;
    }
    if (st == SLUICE_OK) {
        sl_text_add_bytes(out, list.text.bytes > 0 ? list.text.data : "", list.text.bytes);
        st = sl_text_status(out);
    }
    list_free(&list);
    return st;
}

/* ---- One by one ---- */

/* Tokens without a whole character that wait before they are written as they are: a multiple of the bytes of a character. */
enum { MOST_WAITING = 12 };

struct sl_stream_decoder {
    const sl_tokenizer *tokenizer; /* borrowed */
    unsigned flags;
    sl_ids ids;          /* the window */
    size_t told;         /* ids of it whose text was written */
    int32_t context;     /* the newest id that ended in a whole character, or -1 */
    sl_text before, now; /* texts of those, and of all; byte-level: now has the bytes that wait */
};

sluice_status sl_stream_decoder_create(const sl_tokenizer *t, unsigned flags, sl_stream_decoder **out)
{
    sl_stream_decoder *d = sl_alloc(sizeof *d, "decoder");
    if (d == NULL) return SLUICE_ERR_NO_MEMORY;
    d->tokenizer = t;
    d->flags = flags;
    d->context = -1;
    *out = d;
    return SLUICE_OK;
}

void sl_stream_decoder_destroy(sl_stream_decoder *d)
{
    if (d == NULL) return;
    sl_ids_free(&d->ids);
    sl_text_free(&d->before);
    sl_text_free(&d->now);
    sl_free(d);
}

static bool is_byte_level(const sl_tokenizer *t)
{
    return t->decoder.count == 1 && t->decoder.steps[0].kind == BYTE_LEVEL;
}

/* Writes the first `bytes` that wait. */
static sluice_status tell_bytes(sl_stream_decoder *d, size_t bytes, sl_text *out)
{
    if (bytes == 0) return SLUICE_OK;
    add_lossy(out, d->now.data, bytes);
    memmove(d->now.data, d->now.data + bytes, d->now.bytes - bytes);
    d->now.bytes -= bytes;
    return sl_text_status(out);
}

/* What the next tokens are read beside: those whose text is new, or where they had no whole character the one before. */
static sluice_status move_window(sl_stream_decoder *d, bool whole)
{
    if (whole) {
        d->context = d->ids.data[d->ids.count - 1];
        memmove(d->ids.data, d->ids.data + d->told, (d->ids.count - d->told) * sizeof *d->ids.data);
        d->ids.count -= d->told;
    } else {
        d->ids.count = 0;
        if (d->context >= 0) SL_TRY(sl_ids_add(&d->ids, d->context));
    }
    d->told = d->ids.count;
    return SLUICE_OK;
}

/* Writes what the window says beyond what was told. `last`: also where its end is not whole. */
static sluice_status tell_window(sl_stream_decoder *d, bool last, sl_text *out)
{
    d->before.bytes = d->now.bytes = 0;
    SL_TRY(sl_decode(d->tokenizer, d->ids.data, d->told, d->flags, &d->before));
    SL_TRY(sl_decode(d->tokenizer, d->ids.data, d->ids.count, d->flags, &d->now));
    size_t before = d->before.bytes, now = d->now.bytes;
    bool open = now >= 3 && memcmp(d->now.data + now - 3, replacement_character, 3) == 0;
    if (open && !last && d->ids.count - d->told < MOST_WAITING) return SLUICE_OK;
    if (now <= before) { /* nothing new yet: the window stays, unless it only grows */
        d->told = d->ids.count;
        return d->ids.count > MOST_WAITING ? move_window(d, false) : SLUICE_OK;
    }
    sl_text_add_bytes(out, d->now.data + before, now - before);
    SL_TRY(sl_text_status(out));
    return move_window(d, !open);
}

sluice_status sl_stream_decoder_add(sl_stream_decoder *d, int32_t id, sl_text *out)
{
    size_t bytes;
    const char *text = token_text(d->tokenizer, id, &bytes);
    if (text == NULL) return SLUICE_OK;
    if ((d->flags & SL_DECODE_SKIP_SPECIAL) != 0 && sl_tokenizer_is_special(d->tokenizer, id)) return SLUICE_OK;
    if (is_byte_level(d->tokenizer)) {
        add_token_bytes(&d->now, text, bytes);
        SL_TRY(sl_text_status(&d->now));
        return tell_bytes(d, d->now.bytes == 0 ? 0 : whole_bytes(d->now.data, d->now.bytes), out);
    }
    SL_TRY(sl_ids_add(&d->ids, id));
    return tell_window(d, false, out);
}

sluice_status sl_stream_decoder_finish(sl_stream_decoder *d, sl_text *out)
{
    sluice_status st = SLUICE_OK;
    if (is_byte_level(d->tokenizer))
        st = tell_bytes(d, d->now.bytes, out);
    else if (d->ids.count > d->told)
        st = tell_window(d, true, out);
    d->ids.count = d->told = 0;
    d->context = -1;
    return st;
}

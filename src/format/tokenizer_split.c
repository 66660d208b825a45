/* tokenizer_split.c: pre-tokenisers. A step hands each piece to the next one, the last to the model: nothing is collected. */
#include <string.h>

#include "core/quote.h"
#include "format/tokenizer_parts.h"

enum {
    BYTE_LEVEL,  /* on[0]: a space in front, on[1]: split as GPT-2 does */
    SPLIT,       /* pattern; number[0]: behaviour; on[0]: invert */
    METASPACE,   /* to: the replacement; number[0]: scheme; on[0]: split */
    BERT,        /* white space goes, punctuation stands alone */
    WHITESPACE,  /* \w+|[^\w\s]+ */
    WHITE_SPLIT, /* white space goes */
    DIGITS,      /* number[0]: behaviour */
    PUNCTUATION, /* number[0]: behaviour */
    DELIMITER    /* from: one character, which goes */
};

/* What becomes of the spans that match. */
enum { REMOVED, ISOLATED, WITH_PREVIOUS, WITH_NEXT, CONTIGUOUS, BEHAVIOURS };
static const char *const behaviours[BEHAVIOURS] = { "Removed", "Isolated", "MergedWithPrevious", "MergedWithNext",
                                                    "Contiguous" };

enum { ALWAYS, FIRST, NEVER, SCHEMES };
static const char *const schemes[SCHEMES] = { "always", "first", "never" };

/* ---- Reading ---- */

/* One of a few words; `absent` where the key is. */
static sluice_status read_word(const json_t *object, const sl_where *w, const char *key, const char *const *words,
                               int count, int absent, int64_t *out)
{
    const json_t *value = json_object_get(object, key);
    *out = absent;
    if (value == NULL && absent >= 0) return SLUICE_OK;
    for (int i = 0; i < count && json_is_string(value); i++)
        if (strcmp(json_string_value(value), words[i]) == 0) {
            *out = i;
            return SLUICE_OK;
        }
    return sl_where_fail(w, "\"%s\" is %s, which is not known", key,
                         json_is_string(value) ? sl_quote(json_string_value(value)).text : "no string");
}

static sluice_status read_byte_level(const json_t *object, const sl_where *w, sl_token_step *step)
{
    SL_TRY(sl_read_bool(object, w, "add_prefix_space", true, &step->on[0]));
    return sl_read_bool(object, w, "use_regex", true, &step->on[1]);
}

static sluice_status read_split(const json_t *object, const sl_where *w, sl_token_step *step)
{
    SL_TRY(sl_read_pattern(object, w, step));
    SL_TRY(sl_read_bool(object, w, "invert", false, &step->on[0]));
    return read_word(object, w, "behavior", behaviours, BEHAVIOURS, -1, &step->number[0]);
}

static sluice_status read_metaspace(const json_t *object, const sl_where *w, sl_token_step *step)
{
    bool prefix;
    size_t length = 0;
    SL_TRY(sl_read_string(object, w, "replacement", NULL, &step->to));
    if (step->to.bytes > 0) sl_code_point(step->to.text, &length);
    if (length == 0 || length != step->to.bytes) return sl_where_fail(w, "\"replacement\" is not one character");
    SL_TRY(read_word(object, w, "prepend_scheme", schemes, SCHEMES, ALWAYS, &step->number[0]));
    SL_TRY(sl_read_bool(object, w, "add_prefix_space", true, &prefix));
    if (!prefix && step->number[0] != NEVER)
        return sl_where_fail(w, "\"add_prefix_space\" is false, but \"prepend_scheme\" is not \"never\"");
    step->from.text = NULL;
    return sl_read_bool(object, w, "split", true, &step->on[0]);
}

static sluice_status read_digits(const json_t *object, const sl_where *w, sl_token_step *step)
{
    bool each;
    SL_TRY(sl_read_bool(object, w, "individual_digits", false, &each));
    step->number[0] = each ? ISOLATED : CONTIGUOUS;
    return SLUICE_OK;
}

static sluice_status read_punctuation(const json_t *object, const sl_where *w, sl_token_step *step)
{
    return read_word(object, w, "behavior", behaviours, BEHAVIOURS, ISOLATED, &step->number[0]);
}

static sluice_status read_delimiter(const json_t *object, const sl_where *w, sl_token_step *step)
{
    size_t length = 0;
    SL_TRY(sl_read_string(object, w, "delimiter", NULL, &step->from));
    if (step->from.bytes > 0) sl_code_point(step->from.text, &length);
    if (length == 0 || length != step->from.bytes) return sl_where_fail(w, "\"delimiter\" is not one character");
    return SLUICE_OK;
}

static const sl_token_step_row rows[] = {
    { "ByteLevel", BYTE_LEVEL, "type add_prefix_space trim_offsets use_regex", read_byte_level },
    { "Split", SPLIT, "type pattern behavior invert", read_split },
    { "Metaspace", METASPACE, "type replacement str_rep add_prefix_space prepend_scheme split", read_metaspace },
    { "BertPreTokenizer", BERT, "type", NULL },
    { "Whitespace", WHITESPACE, "type", NULL },
    { "WhitespaceSplit", WHITE_SPLIT, "type", NULL },
    { "Digits", DIGITS, "type individual_digits", read_digits },
    { "Punctuation", PUNCTUATION, "type behavior", read_punctuation },
    { "CharDelimiterSplit", DELIMITER, "type delimiter", read_delimiter },
};

sluice_status sl_splitter_read(const json_t *value, const sl_where *w, sl_chain *out, bool *byte_level)
{
    SL_TRY(sl_chain_read(value, w, rows, sizeof rows / sizeof rows[0], "pretokenizers", out));
    *byte_level = false;
    for (int i = 0; i < out->count; i++) {
        if (*byte_level)
            return sl_where_fail(w,
                                 "a component after ByteLevel would see bytes as other characters; that is not built");
        *byte_level = out->steps[i].kind == BYTE_LEVEL;
    }
    return SLUICE_OK;
}

bool sl_splitter_is_scanner(const sl_chain *c)
{
    const sl_token_step *last = &c->steps[c->count > 0 ? c->count - 1 : 0];
    if (c->count == 0 || last->kind != BYTE_LEVEL || last->on[0]) return false;
    if (c->count == 1) return last->on[1];
    return c->count == 2 && c->steps[0].scan != NULL && c->steps[0].number[0] == ISOLATED;
}

/* ---- Spans, joined as the behaviour says ---- */

typedef struct joiner {
    sl_encoder *e;
    int next; /* step */
    const char *text;
    bool first;
    int behaviour;
    bool waits, waits_match; /* a span that may still grow, and whether the newest one was a match */
    size_t begin, end;       /* of it */
} joiner;

static sluice_status hand_on(joiner *j, size_t begin, size_t end)
{
    return begin == end ? SLUICE_OK
                        : sl_splitter_run(j->e, j->next, j->text + begin, end - begin, j->first && begin == 0);
}

static sluice_status hand_on_waiting(joiner *j)
{
    bool waits = j->waits;
    j->waits = false;
    return waits ? hand_on(j, j->begin, j->end) : SLUICE_OK;
}

/* Whether the span joins the one that waits. */
static bool joins(const joiner *j, bool match)
{
    if (!j->waits) return false;
    if (j->behaviour == WITH_PREVIOUS) return match && !j->waits_match;
    if (j->behaviour == WITH_NEXT) return !match && j->waits_match;
    return j->behaviour == CONTIGUOUS && match == j->waits_match;
}

static sluice_status add_span(joiner *j, size_t begin, size_t end, bool match)
{
    if (begin == end) return SLUICE_OK;
    if (j->behaviour == REMOVED) return match ? SLUICE_OK : hand_on(j, begin, end);
    if (j->behaviour == ISOLATED) return hand_on(j, begin, end);
    if (joins(j, match)) {
        j->end = end;
    } else {
        SL_TRY(hand_on_waiting(j));
        j->waits = true;
        j->begin = begin;
        j->end = end;
    }
    j->waits_match = match;
    return SLUICE_OK;
}

/* ---- Splitting ---- */

static sluice_status split_by_pattern(joiner *j, const sl_token_step *step, size_t bytes)
{
    size_t at = 0, done = 0, begin, end;
    bool found;
    sl_encoder *e = j->e;
    const uint16_t *properties = e->tokenizer->properties;
    while (at < bytes) {
        SL_TRY(sl_pattern_next(step, properties, j->text, bytes, at, &e->regex, &found, &begin, &end));
        if (!found) break;
        SL_TRY(add_span(j, done, begin, step->on[0]));
        SL_TRY(add_span(j, begin, end, !step->on[0]));
        done = end;
        at = end;
        if (end == begin) { /* an empty match: go on at the next character */
            at++;
            while (at < bytes && ((unsigned char)j->text[at] & 0xc0) == 0x80) at++;
        }
    }
    SL_TRY(add_span(j, done, bytes, step->on[0]));
    return hand_on_waiting(j);
}

/* Every character with one of the flags is a match of its own. */
static sluice_status split_by_property(joiner *j, size_t bytes, unsigned flags)
{
    size_t done = 0, length;
    const uint16_t *properties = j->e->tokenizer->properties;
    for (size_t i = 0; i < bytes; i += length) {
        if ((properties[sl_code_point(j->text + i, &length)] & flags) == 0) continue;
        SL_TRY(add_span(j, done, i, false));
        SL_TRY(add_span(j, i, i + length, true));
        done = i + length;
    }
    SL_TRY(add_span(j, done, bytes, false));
    return hand_on_waiting(j);
}

static sluice_status split_bert(joiner *j, size_t bytes)
{
    size_t done = 0, length;
    const uint16_t *properties = j->e->tokenizer->properties;
    for (size_t i = 0; i < bytes; i += length) {
        unsigned property = properties[sl_code_point(j->text + i, &length)];
        if ((property & (SL_CHAR_WHITE | SL_CHAR_BERT_PUNCTUATION)) == 0) continue;
        SL_TRY(hand_on(j, done, i));
        if ((property & SL_CHAR_WHITE) == 0) SL_TRY(hand_on(j, i, i + length));
        done = i + length;
    }
    return hand_on(j, done, bytes);
}

/* Runs of word characters and runs of others that are no white space. */
static sluice_status split_words(joiner *j, size_t bytes)
{
    size_t begin = 0, length;
    unsigned before = SL_CHAR_WHITE;
    const uint16_t *properties = j->e->tokenizer->properties;
    for (size_t i = 0; i < bytes; i += length) {
        uint32_t code = sl_code_point(j->text + i, &length);
        unsigned kind = sl_is_word(properties, code) ? SL_CHAR_WORD : properties[code] & SL_CHAR_WHITE;
        if (kind == before) continue;
        if (before != SL_CHAR_WHITE) SL_TRY(hand_on(j, begin, i));
        begin = i;
        before = kind;
    }
    return before == SL_CHAR_WHITE ? SLUICE_OK : hand_on(j, begin, bytes);
}

/* The commonest case by far: a scanner whose matches leave no rest, each a piece. */
static sluice_status split_by_scanner(sl_encoder *e, int next, sl_scan_fn scan, const char *text, size_t bytes,
                                      bool first)
{
    const uint16_t *properties = e->tokenizer->properties;
    bool to_model = next == e->tokenizer->splitter.count ||
                    (e->tokenizer->splitter.steps[next].kind == BYTE_LEVEL &&
                     !e->tokenizer->splitter.steps[next].on[0] && !e->tokenizer->splitter.steps[next].on[1]);
    for (size_t at = 0; at < bytes;) {
        size_t end = scan(properties, text, bytes, at);
        if (to_model)
            SL_TRY(sl_model_piece(e, text + at, end - at));
        else
            SL_TRY(sl_splitter_run(e, next, text + at, end - at, first && at == 0));
        at = end;
    }
    return SLUICE_OK;
}

static sluice_status split_byte_level(sl_encoder *e, int step, const char *text, size_t bytes)
{
    const sl_token_step *s = &e->tokenizer->splitter.steps[step];
    if (s->on[0] && text[0] != ' ') {
        sl_text *spaced = &e->changed[step];
        spaced->bytes = 0;
        sl_text_add_bytes(spaced, " ", 1);
        sl_text_add_bytes(spaced, text, bytes);
        SL_TRY(sl_text_status(spaced));
        text = spaced->data;
        bytes = spaced->bytes;
    }
    return s->on[1] ? split_by_scanner(e, step + 1, sl_scan_gpt2, text, bytes, false) : sl_model_piece(e, text, bytes);
}

static sluice_status split_metaspace(sl_encoder *e, int step, const char *text, size_t bytes, bool first)
{
    const sl_token_step *s = &e->tokenizer->splitter.steps[step];
    sl_text *marked = &e->changed[step];
    marked->bytes = 0;
    bool marked_already = text[0] == ' ' || (bytes >= s->to.bytes && memcmp(text, s->to.text, s->to.bytes) == 0);
    if (!marked_already && (s->number[0] == ALWAYS || (s->number[0] == FIRST && first)))
        sl_text_add_bytes(marked, s->to.text, s->to.bytes);
    for (size_t i = 0; i < bytes;) {
        const char *space = memchr(text + i, ' ', bytes - i);
        size_t end = space == NULL ? bytes : (size_t)(space - text);
        sl_text_add_bytes(marked, text + i, end - i);
        if (space != NULL) sl_text_add_bytes(marked, s->to.text, s->to.bytes);
        i = space == NULL ? bytes : end + 1;
    }
    SL_TRY(sl_text_status(marked));
    if (!s->on[0]) return sl_splitter_run(e, step + 1, marked->data, marked->bytes, first);
    const sl_token_step by_mark = { .from = s->to };
    joiner j = { .e = e, .next = step + 1, .text = marked->data, .first = first, .behaviour = WITH_NEXT };
    return split_by_pattern(&j, &by_mark, marked->bytes);
}

sluice_status sl_splitter_run(sl_encoder *e, int step, const char *text, size_t bytes, bool first)
{
    const sl_chain *c = &e->tokenizer->splitter;
    if (bytes == 0) return SLUICE_OK;
    if (step == c->count) return sl_model_piece(e, text, bytes);
    const sl_token_step *s = &c->steps[step];
    joiner j = { .e = e, .next = step + 1, .text = text, .first = first, .behaviour = (int)s->number[0] };
    switch (s->kind) {
    case BYTE_LEVEL:
        return split_byte_level(e, step, text, bytes);
    case SPLIT:
        if (s->scan != NULL && (s->number[0] == ISOLATED || (s->number[0] == REMOVED && s->on[0])))
            return split_by_scanner(e, step + 1, s->scan, text, bytes, first);
        return split_by_pattern(&j, s, bytes);
    case METASPACE:
        return split_metaspace(e, step, text, bytes, first);
    case BERT:
        return split_bert(&j, bytes);
    case WHITESPACE:
        return split_words(&j, bytes);
    case WHITE_SPLIT:
        return split_by_property(&j, bytes, SL_CHAR_WHITE);
    case DIGITS:
        return split_by_property(&j, bytes, SL_CHAR_NUMERIC);
    case PUNCTUATION:
        return split_by_property(&j, bytes, SL_CHAR_BERT_PUNCTUATION);
    default:
        j.behaviour = REMOVED;
        return split_by_pattern(&j, s, bytes);
    }
}

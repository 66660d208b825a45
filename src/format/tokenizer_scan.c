/* tokenizer_scan.c: the regular expressions of GPT-2, Llama 3 and Qwen, scanned by hand.
 *
 * Each takes the text apart without a rest: what one piece ends at, the next begins at. A run is read once, so that a text of
 * one kind of character takes linear time. */
#include <string.h>

#include "format/tokenizer_parts.h"

typedef struct cursor {
    const uint16_t *properties;
    const char *text;
    size_t bytes;
} cursor;

static inline uint16_t property_at(const cursor *c, size_t at, size_t *length)
{
    return c->properties[sl_code_point(c->text + at, length)];
}

static size_t letters(const cursor *c, size_t at)
{
    for (size_t length; at < c->bytes && sl_is_letter(property_at(c, at, &length)); at += length) continue;
    return at;
}

/* At most `most` of them. */
static size_t numbers(const cursor *c, size_t at, size_t most)
{
    for (size_t length; most > 0 && at < c->bytes && sl_is_number(property_at(c, at, &length)); at += length) most--;
    return at;
}

static inline bool is_other(uint16_t property)
{
    return !sl_is_letter(property) && !sl_is_number(property) && (property & SL_CHAR_WHITE) == 0;
}

static size_t others(const cursor *c, size_t at)
{
    for (size_t length; at < c->bytes && is_other(property_at(c, at, &length)); at += length) continue;
    return at;
}

static size_t line_ends(const cursor *c, size_t at)
{
    while (at < c->bytes && (c->text[at] == '\n' || c->text[at] == '\r')) at++;
    return at;
}

/* \s+(?!\S)|\s+ : a run of white space without its last character, which goes to what follows; all of it where nothing
 * follows or where it is one character. With `to_line_end`, \s*[\r\n]+ comes first: up to the run's last line end. */
static size_t white(const cursor *c, size_t at, bool to_line_end)
{
    size_t end = at, last = at, line = 0, length;
    while (end < c->bytes && (property_at(c, end, &length) & SL_CHAR_WHITE) != 0) {
        last = end;
        end += length;
        if (c->text[last] == '\n' || c->text[last] == '\r') line = end;
    }
    if (to_line_end && line > 0) return line;
    return end == c->bytes || last == at ? end : last;
}

/* 's 't 're 've 'm 'll 'd : the end of one, or `at`. With `any_case`, as (?i:...) reads them: long s (U+017F) is an s. */
static size_t contraction(const cursor *c, size_t at, bool any_case)
{
    size_t left = c->bytes - at;
    const char *t = c->text + at;
    if (t[0] != '\'' || left < 2) return at;
    int fold = any_case ? 0x20 : 0;
    char a = (char)(t[1] | fold), b = left > 2 ? (char)(t[2] | fold) : '\0';
    if (any_case && left > 2 && memcmp(t + 1, "\xc5\xbf", 2) == 0) return at + 3;
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return at + 2;
    bool two = (a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l');
    return two ? at + 3 : at;
}

/* 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+ */
size_t sl_scan_gpt2(const uint16_t *properties, const char *text, size_t bytes, size_t at)
{
    cursor c = { properties, text, bytes };
    size_t length, begin = at, end = contraction(&c, at, false);
    if (end > at) return end;
    if (text[at] == ' ' && at + 1 < bytes) begin = at + 1;
    uint16_t property = property_at(&c, begin, &length);
    if (sl_is_letter(property)) return letters(&c, begin + length);
    if (sl_is_number(property)) return numbers(&c, begin + length, SIZE_MAX);
    if ((property & SL_CHAR_WHITE) == 0) return others(&c, begin + length);
    return white(&c, at, false);
}

/* (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,most}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+ */
static size_t scan_by_lines(const cursor *c, size_t at, size_t most)
{
    size_t length, next_length, end = contraction(c, at, true);
    if (end > at) return end;
    uint16_t property = property_at(c, at, &length);
    if (sl_is_letter(property)) return letters(c, at + length);
    if (sl_is_number(property)) return numbers(c, at, most);
    size_t next = at + length;
    bool line_end = c->text[at] == '\n' || c->text[at] == '\r';
    if (!line_end && next < c->bytes && sl_is_letter(property_at(c, next, &next_length)))
        return letters(c, next + next_length);
    if ((property & SL_CHAR_WHITE) == 0) return line_ends(c, others(c, next));
    if (c->text[at] == ' ' && next < c->bytes && is_other(property_at(c, next, &next_length)))
        return line_ends(c, others(c, next + next_length));
    return white(c, at, true);
}

static size_t scan_llama3(const uint16_t *properties, const char *text, size_t bytes, size_t at)
{
    cursor c = { properties, text, bytes };
    return scan_by_lines(&c, at, 3);
}

static size_t scan_qwen(const uint16_t *properties, const char *text, size_t bytes, size_t at)
{
    cursor c = { properties, text, bytes };
    return scan_by_lines(&c, at, 1);
}

static const struct {
    const char *expression;
    sl_scan_fn scan;
} known[] = {
    { "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+", sl_scan_gpt2 },
    { "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
      "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
      scan_llama3 },
    { "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
      "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
      scan_qwen },
};

sl_scan_fn sl_scanner_find(const char *expression, size_t bytes)
{
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strlen(known[i].expression) == bytes && memcmp(known[i].expression, expression, bytes) == 0)
            return known[i].scan;
    return NULL;
}

/* scan.c: the grammar of JSON as a cursor over bytes. Recursion is bounded by SL_JSON_MAX_DEPTH, so no text can exhaust
 * the stack. */
#include "format/scan.h"

#include <stdio.h>
#include <string.h>

static bool fail(sl_scan *s, const char *fault)
{
    s->fault = fault;
    return false;
}

void sl_scan_space(sl_scan *s)
{
    while (s->at < s->bytes) {
        char c = s->text[s->at];
        if (c != ' ' && c != '\n' && c != '\r' && c != '\t') return;
        s->at++;
    }
}

bool sl_scan_accept(sl_scan *s, char c)
{
    sl_scan_space(s);
    if (s->at >= s->bytes || s->text[s->at] != c) return false;
    s->at++;
    return true;
}

bool sl_scan_take(sl_scan *s, char c)
{
    if (sl_scan_accept(s, c)) return true;
    if (s->at >= s->bytes) return fail(s, "the text ends too early");
    switch (c) {
    case '{':
        return fail(s, "expected '{'");
    case '[':
        return fail(s, "expected '['");
    case ':':
        return fail(s, "expected ':'");
    case '}':
        return fail(s, "expected ',' or '}'");
    case ']':
        return fail(s, "expected ',' or ']'");
    default:
        return fail(s, "unexpected character");
    }
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

/* Four hexadecimal digits at text[at], or -1. */
static int32_t hex4(const char *text, size_t bytes, size_t at)
{
    if (bytes < 4 || at > bytes - 4) return -1;
    int32_t value = 0;
    for (int i = 0; i < 4; i++) {
        int digit = hex_digit(text[at + (size_t)i]);
        if (digit < 0) return -1;
        value = value * 16 + digit;
    }
    return value;
}

/* After a backslash at s->at: moves past the escape. Surrogates must come in pairs. */
static bool scan_escape(sl_scan *s)
{
    if (s->at + 1 >= s->bytes) return fail(s, "the text ends inside a string");
    if (s->text[s->at + 1] == '\0' || strchr("\"\\/bfnrtu", s->text[s->at + 1]) == NULL)
        return fail(s, "unknown escape in a string");
    if (s->text[s->at + 1] != 'u') {
        s->at += 2;
        return true;
    }
    int32_t code = hex4(s->text, s->bytes, s->at + 2);
    if (code < 0) return fail(s, "\\u needs four hexadecimal digits");
    if (code >= 0xdc00 && code < 0xe000) return fail(s, "lone surrogate in a string");
    s->at += 6;
    if (code < 0xd800 || code >= 0xdc00) return true;
    int32_t low = s->at + 1 < s->bytes && s->text[s->at] == '\\' && s->text[s->at + 1] == 'u'
                      ? hex4(s->text, s->bytes, s->at + 2)
                      : -1;
    if (low < 0xdc00 || low >= 0xe000) return fail(s, "lone surrogate in a string");
    s->at += 6;
    return true;
}

bool sl_scan_string(sl_scan *s, size_t *begin, size_t *end)
{
    sl_scan_space(s);
    if (s->at >= s->bytes) return fail(s, "the text ends too early");
    if (s->text[s->at] != '"') return fail(s, "expected a string");
    *begin = ++s->at;
    while (s->at < s->bytes) {
        unsigned char c = (unsigned char)s->text[s->at];
        if (c == '"') {
            *end = s->at++;
            return true;
        }
        if (c < 0x20) return fail(s, "control character in a string");
        if (c != '\\') {
            s->at++;
        } else if (!scan_escape(s)) {
            return false;
        }
    }
    return fail(s, "the text ends inside a string");
}

static bool is_digit(const sl_scan *s)
{
    return s->at < s->bytes && s->text[s->at] >= '0' && s->text[s->at] <= '9';
}

static bool is_one_of(const sl_scan *s, const char *set)
{
    return s->at < s->bytes && s->text[s->at] != '\0' && strchr(set, s->text[s->at]) != NULL;
}

bool sl_scan_unsigned(sl_scan *s, uint64_t *out)
{
    sl_scan_space(s);
    size_t begin = s->at;
    if (!is_digit(s)) return fail(s, "expected a non-negative integer");
    uint64_t value = 0;
    for (; is_digit(s); s->at++)
        if (__builtin_mul_overflow(value, 10u, &value) ||
            __builtin_add_overflow(value, (uint64_t)(s->text[s->at] - '0'), &value))
            return fail(s, "integer of 2^64 or more");
    if (s->text[begin] == '0' && s->at > begin + 1) return fail(s, "number with a leading zero");
    if (is_one_of(s, ".eE")) return fail(s, "expected an integer without fraction or exponent");
    *out = value;
    return true;
}

static bool skip_digits(sl_scan *s)
{
    if (!is_digit(s)) return fail(s, "malformed number");
    while (is_digit(s)) s->at++;
    return true;
}

static bool skip_number(sl_scan *s)
{
    if (is_one_of(s, "-")) s->at++;
    bool zero = is_one_of(s, "0");
    size_t begin = s->at;
    if (!skip_digits(s)) return false;
    if (zero && s->at > begin + 1) return fail(s, "number with a leading zero");
    if (is_one_of(s, ".")) {
        s->at++;
        if (!skip_digits(s)) return false;
    }
    if (is_one_of(s, "eE")) {
        s->at++;
        if (is_one_of(s, "+-")) s->at++;
        return skip_digits(s);
    }
    return true;
}

static bool skip_word(sl_scan *s)
{
    static const char *const words[] = { "true", "false", "null" };
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        size_t length = strlen(words[i]);
        if (s->bytes - s->at < length || memcmp(s->text + s->at, words[i], length) != 0) continue;
        s->at += length;
        return true;
    }
    return fail(s, "expected a value");
}

static bool skip_members(sl_scan *s, int depth)
{
    size_t begin, end;
    if (sl_scan_accept(s, '}')) return true;
    do {
        if (!sl_scan_string(s, &begin, &end) || !sl_scan_take(s, ':') || !sl_scan_skip(s, depth)) return false;
    } while (sl_scan_accept(s, ','));
    return sl_scan_take(s, '}');
}

static bool skip_elements(sl_scan *s, int depth)
{
    if (sl_scan_accept(s, ']')) return true;
    do {
        if (!sl_scan_skip(s, depth)) return false;
    } while (sl_scan_accept(s, ','));
    return sl_scan_take(s, ']');
}

bool sl_scan_skip(sl_scan *s, int depth)
{
    size_t begin, end;
    sl_scan_space(s);
    if (s->at >= s->bytes) return fail(s, "the text ends too early");
    char c = s->text[s->at];
    if (c == '"') return sl_scan_string(s, &begin, &end);
    if (c == '-' || is_digit(s)) return skip_number(s);
    if (c != '{' && c != '[') return skip_word(s);
    if (depth >= SL_JSON_MAX_DEPTH) return fail(s, "nested more than 64 deep");
    s->at++;
    return c == '{' ? skip_members(s, depth + 1) : skip_elements(s, depth + 1);
}

/* Writes a code point as UTF-8; at most 4 bytes, and never more than the escape it came from. */
static size_t put_code_point(char *out, uint32_t code)
{
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    size_t length = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    static const unsigned char lead[] = { 0, 0, 0xc0, 0xe0, 0xf0 };
    for (size_t i = length - 1; i > 0; i--, code >>= 6) out[i] = (char)(0x80 | (code & 0x3f));
    out[0] = (char)(lead[length] | code);
    return length;
}

size_t sl_scan_decode(const char *raw, size_t bytes, char *out)
{
    static const char from[] = "bfnrt", to[] = "\b\f\n\r\t";
    size_t length = 0;
    for (size_t i = 0; i < bytes;) {
        if (raw[i] != '\\') {
            out[length++] = raw[i++];
            continue;
        }
        char kind = raw[i + 1];
        if (kind != 'u') {
            const char *special = strchr(from, kind);
            out[length++] = special != NULL ? to[special - from] : kind;
            i += 2;
            continue;
        }
        uint32_t code = (uint32_t)hex4(raw, bytes, i + 2);
        i += 6;
        if (code >= 0xd800 && code < 0xdc00) { /* the scan made sure that its other half follows */
            code = 0x10000 + ((code - 0xd800) << 10) + ((uint32_t)hex4(raw, bytes, i + 2) - 0xdc00);
            i += 6;
        }
        length += put_code_point(out + length, code);
    }
    return length;
}

void sl_scan_position(const char *text, size_t at, int *line, int *column)
{
    *line = *column = 1;
    for (size_t i = 0; i < at; i++) {
        (*column)++;
        if (text[i] != '\n') continue;
        (*line)++;
        *column = 1;
    }
}

/* json.c: jansson behind limits. The scan runs first: it bounds the depth before jansson recurses, and it reports the
 * place of a syntax error in sluice's words; jansson then builds the tree and refuses duplicate keys and numbers that
 * no double holds. */
#include "format/json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "format/scan.h"

static sluice_status fail_at(const char *text, size_t at, const char *what, sluice_status status, const char *fault)
{
    int line, column;
    sl_scan_position(text, at, &line, &column);
    return sl_fail(status, "%s: line %d, column %d: %s", what, line, column, fault);
}

static sluice_status check_syntax(const char *text, size_t bytes, const char *what, sluice_status status)
{
    size_t bad;
    if (!sl_utf8_valid(text, bytes, &bad)) return fail_at(text, bad, what, status, "not valid UTF-8");
    sl_scan s = { .text = text, .bytes = bytes };
    if (!sl_scan_skip(&s, 0)) return fail_at(text, s.at, what, status, s.fault);
    sl_scan_space(&s);
    if (s.at < bytes) return fail_at(text, s.at, what, status, "more text after the end of the value");
    return SLUICE_OK;
}

/* The scan has passed the text, so jansson can object to few things only. Every other error is an allocation that
 * failed, which it words as a fault of the token at hand. */
static bool is_fault_of_text(const json_error_t *error, const char *text, size_t bytes)
{
    sl_scan s = { .text = text, .bytes = bytes };
    sl_scan_space(&s);
    switch (json_error_code(error)) {
    case json_error_duplicate_key:
    case json_error_numeric_overflow:
    case json_error_null_character:
    case json_error_null_byte_in_key:
        return true;
    case json_error_invalid_syntax:
        return s.at < bytes && text[s.at] != '{' && text[s.at] != '['; /* a bare value */
    default:
        return false;
    }
}

/* ---- Integers beyond 64 bits ----
 *
 * Programs whose integers have no bound write them: transformers has 10^30 for a length without a limit. jansson refuses
 * them, and reads as a double what is written as one. So it is handed the text with MARK after each of them. */

#define MARK       ".0"
#define MARK_BYTES (sizeof MARK - 1)

typedef struct wide_text {
    sl_scan scan; /* behind the wide integer */
    size_t given; /* bytes of the text that jansson has */
    size_t end;   /* of the wide integer; of the text where there is none any more */
    bool found;   /* there is one */
} wide_text;

/* Whether a number is an integer that 64 bits do not hold; without leading zeros, which the scan has refused. */
static bool is_wide(const char *number, size_t bytes)
{
    bool negative = number[0] == '-';
    const char *digits = number + negative, *most = negative ? "9223372036854775808" : "9223372036854775807";
    size_t count = bytes - negative, most_count = strlen(most);
    for (size_t i = 0; i < count; i++)
        if (digits[i] < '0' || digits[i] > '9') return false;
    return count > most_count || (count == most_count && memcmp(digits, most, count) > 0);
}

/* Goes to the next one. The text is well formed, so what follows a quote is a string and what follows a digit a number. */
static void find_wide(wide_text *w)
{
    sl_scan *s = &w->scan;
    w->found = false;
    while (!w->found && s->at < s->bytes) {
        size_t begin = s->at, unused;
        char c = s->text[begin];
        if (c == '"')
            sl_scan_string(s, &unused, &unused);
        else if (c == '-' || (c >= '0' && c <= '9'))
            w->found = sl_scan_skip(s, 0) && is_wide(s->text + begin, s->at - begin);
        else
            s->at++;
    }
    w->end = s->at;
}

static wide_text wide_begin(const char *text, size_t bytes)
{
    wide_text w = { .scan = { .text = text, .bytes = bytes } };
    find_wide(&w);
    return w;
}

/* For jansson: some of the next bytes; 0 at the end. */
static size_t give_text(void *out, size_t room, void *of)
{
    wide_text *w = of;
    size_t bytes = w->end - w->given < room ? w->end - w->given : room;
    if (bytes == 0 && w->found) {
        find_wide(w);
        memcpy(out, MARK, MARK_BYTES);
        return MARK_BYTES;
    }
    memcpy(out, w->scan.text + w->given, bytes);
    w->given += bytes;
    return bytes;
}

/* The place in the text of a place in what jansson was handed. */
static size_t without_marks(const char *text, size_t bytes, size_t place)
{
    wide_text w = wide_begin(text, bytes);
    for (; w.found && w.end < place; find_wide(&w)) place -= MARK_BYTES < place - w.end ? MARK_BYTES : place - w.end;
    return place;
}

static json_t *load(const char *text, size_t bytes, size_t flags, json_error_t *error)
{
    json_t *root = json_loadb(text, bytes, flags, error);
    if (root != NULL || json_error_code(error) != json_error_numeric_overflow) return root;
    wide_text w = wide_begin(text, bytes);
    *error = (json_error_t){ 0 };
    root = json_load_callback(give_text, &w, flags, error);
    if (root == NULL) error->position = (int)without_marks(text, bytes, (size_t)error->position);
    return root;
}

sluice_status sl_json_parse(const char *text, size_t bytes, const char *what, sluice_status status, json_t **out)
{
    if (bytes > SL_JSON_MAX_BYTES)
        return sl_fail(status, "%s: %zu bytes of JSON, at most %d are read", what, bytes, SL_JSON_MAX_BYTES);
    SL_TRY(check_syntax(text, bytes, what, status));
    json_error_t error = { 0 }; /* jansson leaves the code unset when its first allocation fails */
    json_t *root = load(text, bytes, JSON_REJECT_DUPLICATES, &error);
    if (root == NULL && !is_fault_of_text(&error, text, bytes))
        return sl_fail(SLUICE_ERR_NO_MEMORY, "%s: no memory for %zu bytes of JSON", what, bytes);
    if (root == NULL) return fail_at(text, (size_t)(error.position - 1), what, status, error.text);
    *out = root;
    return SLUICE_OK;
}

json_t *sl_json_value(const char *text)
{
    json_error_t error = { 0 };
    size_t bytes = strlen(text);
    if (check_syntax(text, bytes, "value", SLUICE_ERR_USAGE) != SLUICE_OK) return NULL;
    return load(text, bytes, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, &error);
}

/* What remains of a dotted key after the component `name`: "" when that was the last one, NULL when it is another
 * key. */
static const char *after_component(const char *dotted, const char *name, size_t bytes)
{
    if (strncmp(dotted, name, bytes) != 0) return NULL;
    if (dotted[bytes] == '\0') return dotted + bytes;
    return dotted[bytes] == '.' ? dotted + bytes + 1 : NULL;
}

static bool find_key(sl_scan *s, const char *dotted, int depth, size_t *found);

/* Looks for the rest of a key in the value at the cursor, which stands at text[at] under a component of the key, or
 * under another one (rest NULL). */
static bool find_rest(sl_scan *s, const char *rest, size_t at, int depth, size_t *found)
{
    if (rest == NULL) {
        sl_scan_skip(s, depth);
        return false;
    }
    if (*rest != '\0') return find_key(s, rest, depth, found);
    *found = at;
    return true;
}

/* The component of an array's element is its index from 0. */
static bool find_in_array(sl_scan *s, const char *dotted, int depth, size_t *found)
{
    char index[16];
    int i = 0;
    if (sl_scan_accept(s, ']')) return false;
    do {
        sl_scan_space(s);
        snprintf(index, sizeof index, "%d", i++);
        if (find_rest(s, after_component(dotted, index, strlen(index)), s->at, depth, found)) return true;
    } while (s->fault == NULL && sl_scan_accept(s, ','));
    sl_scan_take(s, ']');
    return false;
}

static bool find_in_object(sl_scan *s, const char *dotted, int depth, size_t *found)
{
    size_t begin, end;
    if (sl_scan_accept(s, '}')) return false;
    do {
        if (!sl_scan_string(s, &begin, &end) || !sl_scan_take(s, ':')) return false;
        if (find_rest(s, after_component(dotted, s->text + begin, end - begin), begin, depth, found)) return true;
    } while (s->fault == NULL && sl_scan_accept(s, ','));
    sl_scan_take(s, '}');
    return false;
}

/* Looks for the key in the value at the cursor; where it is not there, the cursor is past the value or s->fault is
 * set. */
static bool find_key(sl_scan *s, const char *dotted, int depth, size_t *found)
{
    sl_scan_space(s);
    char c = s->at < s->bytes ? s->text[s->at] : '\0';
    if (depth >= SL_JSON_MAX_DEPTH || (c != '{' && c != '[')) {
        sl_scan_skip(s, depth);
        return false;
    }
    s->at++;
    return c == '{' ? find_in_object(s, dotted, depth + 1, found) : find_in_array(s, dotted, depth + 1, found);
}

int sl_json_key_line(const char *text, size_t bytes, const char *dotted_key)
{
    sl_scan s = { .text = text, .bytes = bytes };
    size_t found;
    int line, column;
    if (!find_key(&s, dotted_key, 0, &found)) return 0;
    sl_scan_position(text, found, &line, &column);
    return line;
}

void sl_json_write_string(FILE *out, const char *text)
{
    char escaped[SL_ESCAPE_BYTES];
    fputc('"', out);
    while (*text != '\0') {
        text += sl_json_escape(text, escaped);
        fputs(escaped, out);
    }
    fputc('"', out);
}

void sl_json_digits(double value, char out[SL_JSON_DIGITS])
{
    if (!isfinite(value)) {
        snprintf(out, SL_JSON_DIGITS, "null");
        return;
    }
    for (int precision = 15; precision <= 17; precision++) { /* 17 digits always suffice; fewer are easier on the eye */
        snprintf(out, SL_JSON_DIGITS, "%.*g", precision, value);
        if (strtod(out, NULL) == value) break;
    }
    for (char *c = out; *c != '\0'; c++)
        if (strchr("0123456789+-e", *c) == NULL) *c = '.'; /* the caller's locale may have another decimal point */
    if (value == 0 && signbit(value)) strcat(out, ".0");   /* -0 would read back as the integer 0 */
}

void sl_json_write_double(FILE *out, double value)
{
    char digits[SL_JSON_DIGITS];
    sl_json_digits(value, digits);
    fputs(digits, out);
}

void sl_json_free_text(char *text)
{
    json_malloc_t take;
    json_free_t give_back;
    json_get_alloc_funcs(&take, &give_back);
    if (text != NULL) give_back(text);
}

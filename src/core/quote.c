/* quote.c: escapes, and the rules for names. */
#include "core/quote.h"

#include <stdio.h>
#include <string.h>

size_t sl_json_escape(const char *text, char out[SL_ESCAPE_BYTES])
{
    unsigned char c = (unsigned char)text[0];
    if (c == '"' || c == '\\') {
        snprintf(out, SL_ESCAPE_BYTES, "\\%c", c);
        return 1;
    }
    if (c < 0x20 || c == 0x7f) {
        snprintf(out, SL_ESCAPE_BYTES, "\\u%04x", c);
        return 1;
    }
    size_t length = sl_utf8_length(text, strnlen(text, 4));
    if (length == 0) {
        snprintf(out, SL_ESCAPE_BYTES, "\\ufffd");
        return 1;
    }
    memcpy(out, text, length);
    out[length] = '\0';
    return length;
}

sl_quoted sl_quote(const char *name)
{
    sl_quoted q = { "\"" };
    char escaped[SL_ESCAPE_BYTES];
    size_t used = 1;
    while (*name != '\0') {
        name += sl_json_escape(name, escaped);
        size_t length = strlen(escaped);
        if (used + length + sizeof "...\"" > sizeof q.text) {
            memcpy(q.text + used, "...", 3);
            used += 3;
            break;
        }
        memcpy(q.text + used, escaped, length);
        used += length;
    }
    memcpy(q.text + used, "\"", 2);
    return q;
}

/* ---- names ---- */

static sl_name_fault fault_at(const char *what, size_t byte)
{
    sl_name_fault f;
    snprintf(f.text, sizeof f.text, "the name %s, at byte %zu", what, byte);
    return f;
}

/* C0 controls, DEL, and C1 controls, which are 0xc2 0x80 to 0xc2 0x9f in UTF-8. */
static bool is_control(const char *text)
{
    const unsigned char *t = (const unsigned char *)text;
    return t[0] < 0x20 || t[0] == 0x7f || (t[0] == 0xc2 && t[1] >= 0x80 && t[1] <= 0x9f);
}

/* What holds for both kinds of names. */
static sl_name_fault common_fault(const char *name)
{
    size_t length = strlen(name), bad;
    sl_name_fault f = { "" };
    if (!sl_utf8_valid(name, length, &bad)) return fault_at("is not valid UTF-8", bad);
    if (length > SL_MAX_NAME_BYTES)
        snprintf(f.text, sizeof f.text, "the name has %zu bytes, at most %d are allowed", length, SL_MAX_NAME_BYTES);
    return f;
}

sl_name_fault sl_tensor_name_fault(const char *name)
{
    if (strcmp(name, "__metadata__") == 0) return (sl_name_fault){ "safetensors files reserve this name" };
    return common_fault(name);
}

sl_name_fault sl_text_name_fault(const char *name)
{
    sl_name_fault f = common_fault(name);
    if (name[0] == '\0') return (sl_name_fault){ "the name is empty" };
    for (size_t i = 0; f.text[0] == '\0' && name[i] != '\0'; i++)
        if (is_control(name + i)) f = fault_at("has a control character", i);
    return f;
}

bool sl_is_tile_name(const char *name)
{
    static const char word[] = ".tile";
    size_t length = strlen(name), digits = 0;
    while (digits < length && name[length - digits - 1] >= '0' && name[length - digits - 1] <= '9') digits++;
    size_t stem = length - digits, tail = sizeof word - 1;
    return digits > 0 && stem >= tail && memcmp(name + stem - tail, word, tail) == 0;
}

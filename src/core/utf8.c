/* utf8.c: UTF-8 sequences, and text as a terminal may show it.
 *
 * Every message and log line passes through sluice_printable where it is recorded, so that a path or a key with a
 * newline, an escape sequence or stray bytes stays one line and shows what it is. Escaping leaves backslashes alone:
 * a message that quotes another one is escaped twice and must not change. */
#include "core/utf8.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* Lengths by first byte, then the ranges that rule out overlong forms, surrogates and what lies beyond U+10FFFF. */
size_t sl_utf8_length(const char *text, size_t bytes)
{
    const unsigned char *t = (const unsigned char *)text;
    if (bytes == 0) return 0;
    if (t[0] < 0x80) return 1;
    size_t length = t[0] >= 0xc2 && t[0] <= 0xdf ? 2 : (t[0] & 0xf0) == 0xe0 ? 3 : t[0] >= 0xf0 && t[0] <= 0xf4 ? 4 : 0;
    if (length == 0 || bytes < length) return 0;
    for (size_t i = 1; i < length; i++)
        if ((t[i] & 0xc0) != 0x80) return 0;
    if ((t[0] == 0xe0 && t[1] < 0xa0) || (t[0] == 0xed && t[1] > 0x9f)) return 0;
    if ((t[0] == 0xf0 && t[1] < 0x90) || (t[0] == 0xf4 && t[1] > 0x8f)) return 0;
    return length;
}

bool sl_utf8_valid(const char *text, size_t bytes, size_t *bad)
{
    for (size_t i = 0; i < bytes;) {
        size_t length = sl_utf8_length(text + i, bytes - i);
        if (length == 0) {
            *bad = i;
            return false;
        }
        i += length;
    }
    return true;
}

/* ---- For a terminal ---- */

/* Room for one character or its escape, and the NUL. */
enum { SHOWN_BYTES = 8 };

/* A character of 2 or 3 bytes that moves the cursor, ends the line or turns the direction of what follows: C1 controls,
 * line and paragraph separators, marks of direction. */
static bool is_control(const unsigned char *t, size_t length, unsigned *code)
{
    if (length == 2) *code = (t[0] & 0x1fu) << 6 | (t[1] & 0x3fu);
    if (length == 3) *code = (t[0] & 0x0fu) << 12 | (t[1] & 0x3fu) << 6 | (t[2] & 0x3fu);
    if (length == 2) return *code < 0xa0;
    if (length != 3) return false;
    return (*code >= 0x200e && *code <= 0x200f) || (*code >= 0x2028 && *code <= 0x202e) ||
           (*code >= 0x2066 && *code <= 0x2069);
}

/* How the character at the start of `text` is shown. Returns how many bytes of it that covers. */
static size_t show(const char *text, char out[SHOWN_BYTES])
{
    const unsigned char *t = (const unsigned char *)text;
    size_t length = sl_utf8_length(text, strnlen(text, 4));
    unsigned code = 0;
    if (t[0] == '\n' || t[0] == '\r' || t[0] == '\t') {
        snprintf(out, SHOWN_BYTES, "\\%c", t[0] == '\n' ? 'n' : t[0] == '\r' ? 'r' : 't');
    } else if (length == 0 || t[0] < 0x20 || t[0] == 0x7f) {
        snprintf(out, SHOWN_BYTES, "\\x%02x", t[0]);
        return 1;
    } else if (is_control(t, length, &code)) {
        snprintf(out, SHOWN_BYTES, "\\u%04x", code);
    } else {
        memcpy(out, text, length);
        out[length] = '\0';
    }
    return length;
}

size_t sluice_printable(const char *text, char *out, size_t out_bytes)
{
    char shown[SHOWN_BYTES];
    size_t used = 0;
    if (out == NULL || out_bytes == 0) return 0;
    while (text != NULL && *text != '\0') {
        text += show(text, shown);
        size_t length = strlen(shown);
        if (used + length >= out_bytes) break;
        memcpy(out + used, shown, length);
        used += length;
    }
    out[used] = '\0';
    return used;
}

sl_shown sl_show(const char *text)
{
    sl_shown shown;
    sluice_printable(text, shown.text, sizeof shown.text);
    return shown;
}

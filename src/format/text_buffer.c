/* text_buffer.c: a growing buffer with a sticky failure, so that writers of long texts read as the text they write. */
#include "format/text_buffer.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "format/scan.h"

/* Doubling keeps the copying linear. */
bool sl_text_reserve(sl_text *t, size_t more)
{
    if (t->failed) return false;
    size_t need = t->bytes + more + 1;
    if (need <= t->capacity) return true;
    size_t capacity = t->capacity < 256 ? 256 : t->capacity;
    while (capacity < need) capacity *= 2;
    char *data = sl_realloc(t->data, t->capacity, capacity, "text being written");
    if (data == NULL) {
        t->failed = true;
        return false;
    }
    t->data = data;
    t->capacity = capacity;
    return true;
}

void sl_text_add_bytes(sl_text *t, const void *data, size_t bytes)
{
    if (!sl_text_reserve(t, bytes)) return;
    memcpy(t->data + t->bytes, data, bytes);
    t->bytes += bytes;
    t->data[t->bytes] = '\0';
}

void sl_text_add(sl_text *t, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int bytes = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (bytes < 0 || !sl_text_reserve(t, (size_t)bytes)) {
        t->failed = true;
        return;
    }
    va_start(args, format);
    vsnprintf(t->data + t->bytes, (size_t)bytes + 1, format, args);
    va_end(args);
    t->bytes += (size_t)bytes;
}

void sl_text_add_string(sl_text *t, const char *text)
{
    char escaped[SL_ESCAPE_BYTES];
    sl_text_add_bytes(t, "\"", 1);
    while (*text != '\0') {
        text += sl_json_escape(text, escaped);
        sl_text_add_bytes(t, escaped, strlen(escaped));
    }
    sl_text_add_bytes(t, "\"", 1);
}

sluice_status sl_text_status(const sl_text *t)
{
    return t->failed ? SLUICE_ERR_NO_MEMORY : SLUICE_OK;
}

void sl_text_free(sl_text *t)
{
    sl_free(t->data);
    *t = (sl_text){ 0 };
}

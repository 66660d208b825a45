/* utf8.h: text that comes from outside: whether it is UTF-8, and how a message may show it. */
#ifndef SL_CORE_UTF8_H
#define SL_CORE_UTF8_H

#include <stdbool.h>
#include <stddef.h>

#include "sluice.h"

/* Bytes of the valid UTF-8 sequence at the start of the text, or 0. */
size_t sl_utf8_length(const char *text, size_t bytes);
/* True for valid UTF-8; otherwise *bad is the offset of the first byte that is not. */
bool sl_utf8_valid(const char *text, size_t bytes, size_t *bad);

/* Text as sluice_printable has it, for one printf: sl_show(path).text. Longer text is cut. */
typedef struct sl_shown {
    char text[1024];
} sl_shown;
sl_shown sl_show(const char *text);

#endif

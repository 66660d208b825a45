/* quote.h: names that strangers wrote: how they are quoted, and what may be one. */
#ifndef SL_CORE_QUOTE_H
#define SL_CORE_QUOTE_H

#include <stdbool.h>
#include <stddef.h>

#include "core/utf8.h"

#define SL_ESCAPE_BYTES   8
#define SL_MAX_NAME_BYTES 1024 /* of a tensor in a file, and so of everything in a graph */

/* Escapes the first character of a non-empty string for JSON into `out`; bytes that are not UTF-8 become U+FFFD.
 * Returns how many bytes of `text` it covers. */
size_t sl_json_escape(const char *text, char out[SL_ESCAPE_BYTES]);

/* A name in quotes for messages: control bytes escaped, cut where it is long. */
typedef struct sl_quoted {
    char text[100];
} sl_quoted;
sl_quoted sl_quote(const char *name);

/* Why a text cannot be the name of a tensor in a safetensors file, as a half sentence for messages; "": it can. */
typedef struct sl_name_fault {
    char text[96];
} sl_name_fault;
sl_name_fault sl_tensor_name_fault(const char *name);
/* The same for the name of anything in a graph: also not empty and without control characters (C0, C1, DEL), because
 * such names are printed. */
sl_name_fault sl_text_name_fault(const char *name);
/* Whether it ends in ".tile" and a number, as the tiles of a large parameter are called. */
bool sl_is_tile_name(const char *name);

#endif

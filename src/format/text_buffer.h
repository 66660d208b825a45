/* text_buffer.h: text that grows, for file headers and manifests that are written in one piece. */
#ifndef SL_FORMAT_TEXT_BUFFER_H
#define SL_FORMAT_TEXT_BUFFER_H

#include <stdbool.h>
#include <stddef.h>

#include "core/status.h"

/* Zero-initialise. After a failed allocation additions do nothing, so that only the end needs a check. */
typedef struct sl_text {
    char *data; /* owned, NUL-terminated once something was added */
    size_t bytes, capacity;
    bool failed;
} sl_text;

/* Room for `more` bytes and a NUL behind what there is; false: there is no memory. */
bool sl_text_reserve(sl_text *t, size_t more);
void sl_text_add(sl_text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
void sl_text_add_bytes(sl_text *t, const void *data, size_t bytes);
/* A JSON string with quotes and escapes. */
void sl_text_add_string(sl_text *t, const char *text);
/* SLUICE_ERR_NO_MEMORY when any addition failed. */
sluice_status sl_text_status(const sl_text *t);
void sl_text_free(sl_text *t);

#endif

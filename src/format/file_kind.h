/* file_kind.h: what a file is that is not what was asked for, told by its first bytes or by the ending of its name.
 *
 * For messages alone: whoever expects weights or a text and meets something else says what it is and what to do. */
#ifndef SL_FORMAT_FILE_KIND_H
#define SL_FORMAT_FILE_KIND_H

#include <stddef.h>

/* As many of a file's first bytes as the table looks at. */
#define SL_FILE_HEAD_BYTES 512

typedef struct sl_file_kind {
    const char *what;       /* "a GGUF file (llama.cpp)" */
    const char *as_weights; /* what to do where safetensors were expected; NULL: nothing that is known */
    const char *as_text;    /* what a model learns from it as plain text, and what to do; NULL: it is one */
} sl_file_kind;

/* Of a file that is no safetensors file, by its first `bytes` bytes. NULL: none of the kinds that are known. */
const sl_file_kind *sl_weights_file_kind(const void *head, size_t bytes);
/* Of a file given as plain text, by its first bytes, and where they tell nothing by the ending of its name. NULL: there is
 * nothing to say about it. */
const sl_file_kind *sl_text_file_kind(const char *path, const void *head, size_t bytes);

#endif

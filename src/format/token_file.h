/* token_file.h: files of token ids, and of a byte for each token: where the tokens begin and how wide they are.
 *
 *     llm.c     256 little-endian int32: magic 20240520 and version 1 (uint16 follow) or 20240801 and 7 (uint32); count
 *     .npy      NumPy's, versions 1 to 3: one dimension of <u2, <u4, <i4; masks |u1, |b1
 *     bare      as nanoGPT writes them: nothing but tokens, whose type the file does not say */
#ifndef SL_FORMAT_TOKEN_FILE_H
#define SL_FORMAT_TOKEN_FILE_H

#include "sluice.h"

typedef enum {
    SL_TOKENS_U16,
    SL_TOKENS_U32,
    SL_TOKENS_I32,
    SL_TOKENS_U8, /* masks */
    SL_TOKENS_UNKNOWN = -1
} sl_token_type;

typedef struct sl_token_layout {
    const char *format; /* "llm.c", ".npy" or "bare" */
    sl_token_type type;
    int width;       /* bytes of a token */
    uint64_t offset; /* of the first one */
    uint64_t count;
} sl_token_layout;

/* As many of a file's first bytes as a layout is read from; all of a smaller file. */
#define SL_TOKEN_HEAD_BYTES 4096

/* `given`: the type that the user names, or UNKNOWN; a file that says another one is refused, and so is a bare file
 * without any. The file's size must be what its header says, to the byte. Bare masks are U8. Refusals are
 * SLUICE_ERR_INPUT and name `path`; a missing type is SLUICE_ERR_USAGE. */
sluice_status sl_token_layout_read(const char *path, const unsigned char *head, size_t head_bytes, uint64_t file_bytes,
                                   sl_token_type given, sl_token_layout *out);
/* "uint16". */
const char *sl_token_type_name(sl_token_type type);

#endif

/* gzip.h: files compressed by gzip, in memory. */
#ifndef SL_FORMAT_GZIP_H
#define SL_FORMAT_GZIP_H

#include <stdbool.h>
#include <stddef.h>

#include "sluice.h"

/* Bytes of a file that begin as gzip's do. */
bool sl_is_gzip(const void *data, size_t bytes);
/* Hands the contents of the `bytes` bytes at `data` over in parts, in order, as much memory as one part takes; a failure of take() ends
 * it. Members that follow each other are one text, as in files that were put together with cat. What is no whole gzip file:
 * SLUICE_ERR_INPUT naming `path`. A request to stop (core/stop.h) ends it. */
typedef sluice_status (*sl_gzip_take)(void *user, const char *part, size_t bytes);
sluice_status sl_gzip_unpack(const int *stop, const char *path, const char *data, size_t bytes, sl_gzip_take take,
                             void *user);
/* The contents of the `bytes` bytes at *text in their place: *text is sl_alloc'ed, freed, and what it is afterwards has a NUL
 * beyond *bytes. As sl_gzip_unpack, and more than `limit` bytes are SLUICE_ERR_INPUT, too. *text stays the caller's to free also
 * after a failure. */
sluice_status sl_gzip_expand(const int *stop, const char *path, size_t limit, char **text, size_t *bytes);
/* The first *out_bytes bytes of the contents into out; *out_bytes becomes fewer where there are fewer. */
sluice_status sl_gzip_peek(const char *path, const char *text, size_t bytes, void *out, size_t *out_bytes);

#endif

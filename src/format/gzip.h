/* gzip.h: files compressed by gzip, in memory. */
#ifndef SL_FORMAT_GZIP_H
#define SL_FORMAT_GZIP_H

#include <stdbool.h>
#include <stddef.h>

#include "sluice.h"

/* Bytes of a file that begin as gzip's do. */
bool sl_is_gzip(const void *data, size_t bytes);
/* The contents of the `bytes` bytes at *text in their place: *text is sl_alloc'ed, freed, and what it is afterwards has a NUL
 * beyond *bytes. Members that follow each other are one text, as in files that were put together with cat. More than `limit`
 * bytes, and what is no whole gzip file: SLUICE_ERR_INPUT naming `path`. A request to stop (core/stop.h) ends it. *text stays
 * the caller's to free also after a failure. */
sluice_status sl_gzip_expand(const int *stop, const char *path, size_t limit, char **text, size_t *bytes);
/* The first *out_bytes bytes of the contents into out; *out_bytes becomes fewer where there are fewer. */
sluice_status sl_gzip_peek(const char *path, const char *text, size_t bytes, void *out, size_t *out_bytes);

#endif

/* gzip.c: inflating with a bound that is known before memory is taken. */
#include "format/gzip.h"

#include <string.h>
#ifdef SLUICE_ZLIB
#include <zlib.h>
#endif

#include "core/alloc.h"
#include "core/stop.h"

bool sl_is_gzip(const void *data, size_t bytes)
{
    return bytes >= 2 && memcmp(data, "\x1f\x8b", 2) == 0;
}

#ifdef SLUICE_ZLIB

#define POLLED_BYTES ((size_t)64 << 20)
#define MOST_AT_ONCE (1u << 30)
enum { GZIP_ALONE = 16 + MAX_WBITS };

/* Room for more output: doubles, up to one byte beyond the limit and a NUL. */
static sluice_status grow(char **out, size_t *capacity, size_t limit, const char *path)
{
    size_t wanted = *capacity > 0 ? 2 * *capacity : (size_t)1 << 20;
    if (wanted > limit + 2) wanted = limit + 2;
    if (wanted <= *capacity) return sl_fail(SLUICE_ERR_INPUT, "%s: more than %zu bytes when uncompressed", path, limit);
    char *grown = sl_realloc(*out, *capacity, wanted, "uncompressed data");
    if (grown == NULL) return SLUICE_ERR_NO_MEMORY;
    *out = grown;
    *capacity = wanted;
    return SLUICE_OK;
}

static sluice_status fail_inflate(const z_stream *z, const char *path)
{
    return sl_fail(SLUICE_ERR_INPUT, "%s: not a whole gzip file: %s, after byte %lu", path,
                   z->msg != NULL ? z->msg : "bad data", z->total_in);
}

static sluice_status inflate_members(const int *stop, z_stream *z, const char *path, size_t left, size_t limit,
                                     char **out, size_t *bytes)
{
    size_t capacity = 0, polled = 0;
    int state = Z_OK;
    *bytes = 0;
    while (left > 0 || z->avail_in > 0 || state == Z_BUF_ERROR || state == Z_OK) {
        if (z->avail_in == 0 && left > 0) {
            z->avail_in = left < MOST_AT_ONCE ? (uInt)left : MOST_AT_ONCE;
            left -= z->avail_in;
        }
        if (*bytes + 1 >= capacity) SL_TRY(grow(out, &capacity, limit, path));
        size_t room = capacity - 1 - *bytes < MOST_AT_ONCE ? capacity - 1 - *bytes : MOST_AT_ONCE;
        z->next_out = (Bytef *)*out + *bytes;
        z->avail_out = (uInt)room;
        state = inflate(z, Z_NO_FLUSH);
        *bytes += room - z->avail_out;
        if (state == Z_STREAM_END) {
            if (left == 0 && z->avail_in == 0) break;
            state = inflateReset(z);
        } else if (state == Z_BUF_ERROR && z->avail_in == 0 && left == 0 && z->avail_out > 0) {
            return sl_fail(SLUICE_ERR_INPUT, "%s: the compressed file ends too early; copy it again", path);
        }
        if (state != Z_OK && state != Z_BUF_ERROR) return fail_inflate(z, path);
        if (*bytes - polled >= POLLED_BYTES) {
            SL_TRY(sl_stop_poll(stop, "reading the data"));
            polled = *bytes;
        }
    }
    if (*bytes > limit) return sl_fail(SLUICE_ERR_INPUT, "%s: more than %zu bytes when uncompressed", path, limit);
    return SLUICE_OK;
}

sluice_status sl_gzip_expand(const int *stop, const char *path, size_t limit, char **text, size_t *bytes)
{
    z_stream z = { .next_in = (Bytef *)*text };
    char *out = NULL;
    size_t expanded = 0;
    if (inflateInit2(&z, GZIP_ALONE) != Z_OK)
        return sl_fail(SLUICE_ERR_NO_MEMORY, "%s: no memory for uncompressing", path);
    sluice_status st = inflate_members(stop, &z, path, *bytes, limit, &out, &expanded);
    inflateEnd(&z);
    if (st != SLUICE_OK) {
        sl_free(out);
        return st;
    }
    sl_free(*text);
    *text = out;
    *bytes = expanded;
    return SLUICE_OK;
}

sluice_status sl_gzip_peek(const char *path, const char *text, size_t bytes, void *out, size_t *out_bytes)
{
    z_stream z = { .next_in = (Bytef *)text, .next_out = out, .avail_out = (uInt)*out_bytes };
    z.avail_in = bytes < MOST_AT_ONCE ? (uInt)bytes : MOST_AT_ONCE;
    if (inflateInit2(&z, GZIP_ALONE) != Z_OK)
        return sl_fail(SLUICE_ERR_NO_MEMORY, "%s: no memory for uncompressing", path);
    int state = inflate(&z, Z_SYNC_FLUSH);
    sluice_status st = SLUICE_OK;
    if (state != Z_OK && state != Z_STREAM_END && state != Z_BUF_ERROR) st = fail_inflate(&z, path);
    *out_bytes -= z.avail_out;
    inflateEnd(&z);
    return st;
}

#else

static sluice_status fail_without(const char *path)
{
    return sl_fail(SLUICE_ERR_INPUT, "%s is compressed, and this sluice was built without zlib; give it uncompressed",
                   path);
}

sluice_status sl_gzip_expand(const int *stop, const char *path, size_t limit, char **text, size_t *bytes)
{
    (void)stop, (void)limit, (void)text, (void)bytes;
    return fail_without(path);
}

sluice_status sl_gzip_peek(const char *path, const char *text, size_t bytes, void *out, size_t *out_bytes)
{
    (void)text, (void)bytes, (void)out, (void)out_bytes;
    return fail_without(path);
}

#endif

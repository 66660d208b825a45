/* gzip.c: inflating, in parts of one size or into one text with a bound that is known before memory is taken. */
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

#define PART_BYTES   ((size_t)1 << 20)
#define MOST_AT_ONCE (1u << 30)
enum { GZIP_ALONE = 16 + MAX_WBITS };

static sluice_status fail_inflate(const z_stream *z, const char *path)
{
    return sl_fail(SLUICE_ERR_INPUT, "%s: not a whole gzip file: %s, after byte %lu", path,
                   z->msg != NULL ? z->msg : "bad data", z->total_in);
}

/* Fills `part` as far as there is something; *over: that was all. `left`: bytes that are not in z->avail_in yet. */
static sluice_status inflate_part(z_stream *z, const char *path, size_t *left, char *part, size_t *bytes, bool *over)
{
    z->next_out = (Bytef *)part;
    z->avail_out = PART_BYTES;
    *over = false;
    while (z->avail_out > 0 && !*over) {
        if (z->avail_in == 0) {
            z->avail_in = *left < MOST_AT_ONCE ? (uInt)*left : MOST_AT_ONCE;
            *left -= z->avail_in;
        }
        int state = inflate(z, Z_NO_FLUSH);
        if (state == Z_STREAM_END) {
            *over = *left == 0 && z->avail_in == 0;
            state = *over ? Z_OK : inflateReset(z); /* another member follows */
        } else if (state == Z_BUF_ERROR && z->avail_in == 0 && *left == 0) {
            return sl_fail(SLUICE_ERR_INPUT, "%s: the compressed file ends too early; copy it again", path);
        }
        if (state != Z_OK && state != Z_BUF_ERROR) return fail_inflate(z, path);
    }
    *bytes = PART_BYTES - z->avail_out;
    return SLUICE_OK;
}

sluice_status sl_gzip_unpack(const int *stop, const char *path, const char *data, size_t bytes, sl_gzip_take take,
                             void *user)
{
    z_stream z = { .next_in = (Bytef *)data };
    char *part = sl_alloc(PART_BYTES, "uncompressed data");
    if (part == NULL) return SLUICE_ERR_NO_MEMORY;
    if (inflateInit2(&z, GZIP_ALONE) != Z_OK) {
        sl_free(part);
        return sl_fail(SLUICE_ERR_NO_MEMORY, "%s: no memory for uncompressing", path);
    }
    sluice_status st = SLUICE_OK;
    for (bool over = false; st == SLUICE_OK && !over;) {
        size_t count;
        st = sl_stop_poll(stop, "reading the data");
        if (st == SLUICE_OK) st = inflate_part(&z, path, &bytes, part, &count, &over);
        if (st == SLUICE_OK) st = take(user, part, count);
    }
    inflateEnd(&z);
    sl_free(part);
    return st;
}

/* What sl_gzip_expand makes. */
typedef struct expansion {
    const char *path;
    size_t limit;
    char *text;
    size_t bytes, capacity;
} expansion;

static sluice_status take_part(void *user, const char *part, size_t bytes)
{
    expansion *e = user;
    if (bytes > e->limit - e->bytes)
        return sl_fail(SLUICE_ERR_INPUT, "%s: more than %zu bytes when uncompressed", e->path, e->limit);
    size_t needed = e->bytes + bytes + 1, wanted = 2 * e->capacity > needed ? 2 * e->capacity : needed;
    if (needed > e->capacity) {
        if (wanted > e->limit + 1) wanted = e->limit + 1;
        char *grown = sl_realloc(e->text, e->capacity, wanted, "uncompressed data");
        if (grown == NULL) return SLUICE_ERR_NO_MEMORY;
        e->text = grown;
        e->capacity = wanted;
    }
    memcpy(e->text + e->bytes, part, bytes);
    e->bytes += bytes;
    return SLUICE_OK;
}

sluice_status sl_gzip_expand(const int *stop, const char *path, size_t limit, char **text, size_t *bytes)
{
    expansion e = { .path = path, .limit = limit };
    sluice_status st = sl_gzip_unpack(stop, path, *text, *bytes, take_part, &e);
    if (st != SLUICE_OK) {
        sl_free(e.text);
        return st;
    }
    sl_free(*text);
    *text = e.text;
    *bytes = e.bytes;
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

sluice_status sl_gzip_unpack(const int *stop, const char *path, const char *data, size_t bytes, sl_gzip_take take,
                             void *user)
{
    (void)stop, (void)data, (void)bytes, (void)take, (void)user;
    return fail_without(path);
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

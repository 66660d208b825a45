/* idx.c: the header of an IDX file, and whether the file is what it says. */
#include "format/idx.h"

#include <inttypes.h>

#include "core/alloc.h"
#include "core/bytes.h"
#include "core/io.h"
#include "core/status.h"
#include "format/gzip.h"

#define MAX_FILE_BYTES ((size_t)64 << 30)
enum { UNSIGNED_BYTES = 8, FIXED_BYTES = 4, SIZE_BYTES = 4, MOST_HEADER = FIXED_BYTES + 4 * SIZE_BYTES };

static const char *type_name(unsigned type)
{
    static const struct {
        unsigned type;
        const char *name;
    } names[] = { { 0x09, "signed bytes" },
                  { 0x0b, "16-bit integers" },
                  { 0x0c, "32-bit integers" },
                  { 0x0d, "floats" },
                  { 0x0e, "doubles" } };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (names[i].type == type) return names[i].name;
    return "a type that the format does not have";
}

/* The first four bytes: what follows, and of how many dimensions. */
static sluice_status read_kind(const char *path, const uint8_t *head, size_t bytes, sl_idx *out)
{
    if (bytes < FIXED_BYTES)
        return sl_fail(SLUICE_ERR_INPUT, "%s: it ends at byte %zu, and the header of an IDX file has more", path,
                       bytes);
    for (int i = 0; i < 2; i++)
        if (head[i] != 0)
            return sl_fail(SLUICE_ERR_INPUT, "%s, byte %d: 0x%02x; an IDX file begins with two zero bytes", path, i,
                           head[i]);
    if (head[2] != UNSIGNED_BYTES)
        return sl_fail(SLUICE_ERR_INPUT, "%s, byte 2: type 0x%02x, %s; only unsigned bytes (0x08) are read", path,
                       head[2], type_name(head[2]));
    if (head[3] < 1 || head[3] > SL_IDX_MOST_DIMENSIONS)
        return sl_fail(SLUICE_ERR_INPUT, "%s, byte 3: %d dimensions; 1 to %d are read", path, head[3],
                       SL_IDX_MOST_DIMENSIONS);
    out->dimensions = head[3];
    out->header_bytes = FIXED_BYTES + SIZE_BYTES * (size_t)head[3];
    return SLUICE_OK;
}

static sluice_status read_header(const char *path, const uint8_t *head, size_t bytes, sl_idx *out)
{
    uint64_t count = 1;
    SL_TRY(read_kind(path, head, bytes, out));
    if (bytes < out->header_bytes)
        return sl_fail(SLUICE_ERR_INPUT, "%s: it ends at byte %zu, inside the header, which has %zu", path, bytes,
                       out->header_bytes);
    for (int i = 0; i < out->dimensions; i++) {
        size_t at = FIXED_BYTES + SIZE_BYTES * (size_t)i;
        uint32_t size = 0;
        for (size_t k = 0; k < SIZE_BYTES; k++) size = size << 8 | head[at + k];
        if (size == 0 || size > INT32_MAX)
            return sl_fail(SLUICE_ERR_INPUT, "%s, byte %zu: dimension %d is %" PRIu32 ", must be 1 to 2147483647", path,
                           at, i + 1, size);
        out->size[i] = size;
        if (!sl_mul_u64(count, size, &count) || count > MAX_FILE_BYTES - MOST_HEADER)
            return sl_fail(SLUICE_ERR_INPUT, "%s, byte %zu: the dimensions are those of more than %zu bytes", path, at,
                           MAX_FILE_BYTES - MOST_HEADER);
    }
    out->count = (size_t)count;
    return SLUICE_OK;
}

static sluice_status check_length(const char *path, const sl_idx *x, size_t bytes)
{
    size_t wanted = x->header_bytes + x->count;
    if (bytes == wanted) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_INPUT, "%s: its header says %zu elements, %zu bytes with the header, and it %s", path,
                   x->count, wanted,
                   bytes < wanted ? "ends too early; copy it again" : "has more: it is something else");
}

/* The header is read from the first bytes alone, so that no more is uncompressed than it says. */
static sluice_status expand(const int *stop, const char *path, size_t *bytes, sl_idx *x)
{
    uint8_t head[MOST_HEADER];
    size_t head_bytes = sizeof head;
    SL_TRY(sl_gzip_peek(path, x->file, *bytes, head, &head_bytes));
    SL_TRY(read_header(path, head, head_bytes, x));
    return sl_gzip_expand(stop, path, x->header_bytes + x->count, &x->file, bytes);
}

sluice_status sl_idx_read(const int *stop, const char *path, sl_idx *out)
{
    sl_idx x = { .file = NULL };
    size_t bytes;
    SL_TRY(sl_file_read_all_until(stop, path, MAX_FILE_BYTES, &x.file, &bytes));
    sluice_status st = sl_is_gzip(x.file, bytes) ? expand(stop, path, &bytes, &x) : SLUICE_OK;
    if (st == SLUICE_OK) st = read_header(path, (const uint8_t *)x.file, bytes, &x);
    if (st == SLUICE_OK) st = check_length(path, &x, bytes);
    if (st != SLUICE_OK) {
        sl_free(x.file);
        return st;
    }
    x.elements = (const uint8_t *)x.file + x.header_bytes;
    *out = x;
    return SLUICE_OK;
}

void sl_idx_free(sl_idx *x)
{
    sl_free(x->file);
    *x = (sl_idx){ .file = NULL };
}

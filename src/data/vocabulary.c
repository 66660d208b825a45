/* vocabulary.c: text <-> token ids, where a token is a byte or a character. */
#include <inttypes.h>
#include <string.h>

#include "data/source.h"

int sl_utf8_decode(const unsigned char *p, size_t left, uint32_t *code_point)
{
    /* By lead byte: mask of its value bits, and the smallest code point that needs this length. */
    static const struct {
        unsigned char lead_mask, lead, value_mask;
        uint32_t least;
    } forms[] = {
        { 0x80, 0x00, 0x7f, 0 }, { 0xe0, 0xc0, 0x1f, 0x80 }, { 0xf0, 0xe0, 0x0f, 0x800 }, { 0xf8, 0xf0, 0x07, 0x10000 }
    };
    for (int n = 1; n <= 4; n++) {
        if ((p[0] & forms[n - 1].lead_mask) != forms[n - 1].lead) continue;
        if (left < (size_t)n) return 0;
        uint32_t c = p[0] & forms[n - 1].value_mask;
        for (int i = 1; i < n; i++) {
            if ((p[i] & 0xc0) != 0x80) return 0;
            c = c << 6 | (p[i] & 0x3f);
        }
        if (c < forms[n - 1].least || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff)) return 0;
        *code_point = c;
        return n;
    }
    return 0;
}

/* Id of a code point by bisection, or -1. */
static int32_t find_code_point(const sl_vocabulary *v, uint32_t c)
{
    int32_t low = 0, high = v->size;
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        if (v->code_points[middle] < c)
            low = middle + 1;
        else
            high = middle;
    }
    return low < v->size && v->code_points[low] == c ? low : -1;
}

/* One token of the `left` bytes at p, which are `offset` bytes into the text. */
static sluice_status encode_one(const sl_vocabulary *v, const unsigned char *p, size_t left, size_t offset, int *length,
                                int32_t *id)
{
    uint32_t c;
    if (v->unit == SL_TEXT_BYTES) {
        *length = 1;
        *id = p[0];
        return SLUICE_OK;
    }
    if ((*length = sl_utf8_decode(p, left, &c)) == 0)
        return sl_fail(SLUICE_ERR_INPUT, "byte %zu of the text is not valid UTF-8 (0x%02x)", offset, p[0]);
    if ((*id = find_code_point(v, c)) < 0)
        return sl_fail(SLUICE_ERR_INPUT,
                       "character \"%.*s\" (U+%04" PRIX32 ") at byte %zu is not among the %" PRId32
                       " characters the model was trained on",
                       *length, (const char *)p, c, offset, v->size);
    return SLUICE_OK;
}

sluice_status sl_vocabulary_encode(const sl_vocabulary *v, const char *text, size_t bytes, int32_t *ids,
                                   int64_t capacity, int64_t *count)
{
    const unsigned char *p = (const unsigned char *)text;
    int64_t n = 0;
    int length;
    for (size_t at = 0; at < bytes; at += (size_t)length, n++) {
        if (n == capacity)
            return sl_fail(SLUICE_ERR_USAGE, "the text is longer than %" PRId64 " tokens; shorten it", capacity);
        SL_TRY(encode_one(v, p + at, bytes - at, at, &length, &ids[n]));
    }
    *count = n;
    return SLUICE_OK;
}

int sl_vocabulary_decode(const sl_vocabulary *v, int32_t id, char out[4])
{
    if (id < 0 || id >= v->size) return 0;
    if (v->unit == SL_TEXT_BYTES) {
        out[0] = (char)(unsigned char)id;
        return 1;
    }
    uint32_t c = v->code_points[id];
    int length = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const unsigned char lead[] = { 0, 0x00, 0xc0, 0xe0, 0xf0 };
    for (int i = length - 1; i > 0; i--, c >>= 6) out[i] = (char)(0x80 | (c & 0x3f));
    out[0] = (char)(lead[length] | c);
    return length;
}

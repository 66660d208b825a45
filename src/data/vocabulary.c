/* vocabulary.c: text <-> token ids, where a token is a byte or a character. */
#include <inttypes.h>
#include <string.h>

#include "core/alloc.h"
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
static sluice_status encode_one(const sl_vocabulary *v, const char *whose, const unsigned char *p, size_t left,
                                size_t offset, int *length, int32_t *id)
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
                       "character \"%.*s\" (U+%04" PRIX32 ") at byte %zu is not among the %" PRId32 " characters %s",
                       *length, (const char *)p, c, offset, v->size, whose);
    return SLUICE_OK;
}

sluice_status sl_vocabulary_encode_of(const sl_vocabulary *v, const char *whose, const char *text, size_t bytes,
                                      int32_t *ids, int64_t capacity, int64_t *count)
{
    const unsigned char *p = (const unsigned char *)text;
    int64_t n = 0;
    int length;
    for (size_t at = 0; at < bytes; at += (size_t)length, n++) {
        if (n == capacity)
            return sl_fail(SLUICE_ERR_USAGE, "the text is longer than %" PRId64 " tokens; shorten it", capacity);
        SL_TRY(encode_one(v, whose, p + at, bytes - at, at, &length, &ids[n]));
    }
    *count = n;
    return SLUICE_OK;
}

sluice_status sl_vocabulary_encode(const sl_vocabulary *v, const char *text, size_t bytes, int32_t *ids,
                                   int64_t capacity, int64_t *count)
{
    return sl_vocabulary_encode_of(v, "the model was trained on", text, bytes, ids, capacity, count);
}

sl_vocabulary sl_vocabulary_bytes(void)
{
    return (sl_vocabulary){ SL_TEXT_BYTES, 256, NULL };
}

/* ---- as files keep it ---- */

#define UNIT_BYTES          "bytes"
#define UNIT_CHARACTERS     "characters"
#define UNIT_NUL_CHARACTERS "nul+characters" /* U+0000 is token 0; the others follow */

sluice_status sl_vocabulary_keep(const sl_vocabulary *v, const char **unit, char **characters)
{
    *unit = UNIT_BYTES;
    *characters = NULL;
    if (v->unit == SL_TEXT_BYTES) return SLUICE_OK;
    int32_t first = v->size > 0 && v->code_points[0] == 0;
    char *at = sl_alloc_array((size_t)v->size + 1, 4, "characters of the vocabulary");
    if (at == NULL) return SLUICE_ERR_NO_MEMORY;
    *unit = first > 0 ? UNIT_NUL_CHARACTERS : UNIT_CHARACTERS;
    *characters = at;
    for (int32_t id = first; id < v->size; id++) at += sl_vocabulary_decode(v, id, at);
    return SLUICE_OK;
}

/* Decodes `text` behind the code points that are there already; false: not UTF-8, or not in increasing order. */
static bool decode_characters(const char *text, uint32_t *code_points, int32_t *size)
{
    size_t bytes = strlen(text);
    int length;
    for (size_t at = 0; at < bytes; at += (size_t)length, ++*size) {
        length = sl_utf8_decode((const unsigned char *)text + at, bytes - at, &code_points[*size]);
        if (length == 0 || (*size > 0 && code_points[*size] <= code_points[*size - 1])) return false;
    }
    return *size > 0;
}

sluice_status sl_vocabulary_read(const char *unit, const char *characters, const char *source, sl_vocabulary *out)
{
    bool nul = strcmp(unit, UNIT_NUL_CHARACTERS) == 0;
    if (strcmp(unit, UNIT_BYTES) == 0) {
        *out = sl_vocabulary_bytes();
        return SLUICE_OK;
    }
    if (!nul && strcmp(unit, UNIT_CHARACTERS) != 0)
        return sl_fail(SLUICE_ERR_INPUT,
                       "%s: its tokens are \"%.40s\", which this version of sluice does not know; use a newer one",
                       source, unit);
    if (characters == NULL) characters = "";
    uint32_t *code_points = sl_alloc_array(strlen(characters) + 1, sizeof *code_points, "text vocabulary");
    if (code_points == NULL) return SLUICE_ERR_NO_MEMORY;
    int32_t size = nul;
    if (!decode_characters(characters, code_points, &size)) {
        sl_free(code_points);
        return sl_fail(SLUICE_ERR_INPUT,
                       "%s: the characters of its vocabulary are not in increasing order, or not UTF-8: "
                       "it was altered",
                       source);
    }
    *out = (sl_vocabulary){ SL_TEXT_CHARACTERS, size, code_points };
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

/* tokenizer_added.c: added tokens in a text: leftmost, and of those the longest. */
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "format/tokenizer_parts.h"

sluice_status sl_added_set_add(sl_added_set *s, const sl_added_token *token)
{
    bool full = s->count == 0 || (s->count >= 64 && (s->count & (s->count - 1)) == 0);
    if (full) {
        size_t capacity = s->count == 0 ? 64 : 2 * s->count;
        const sl_added_token **patterns =
            sl_realloc(s->patterns, s->count * sizeof *patterns, capacity * sizeof *patterns, "added tokens");
        if (patterns == NULL) return SLUICE_ERR_NO_MEMORY;
        s->patterns = patterns;
    }
    s->patterns[s->count++] = token;
    return SLUICE_OK;
}

static int by_bytes(const void *a, const void *b)
{
    const sl_added_token *p = *(const sl_added_token *const *)a, *q = *(const sl_added_token *const *)b;
    size_t shared = p->pattern_bytes < q->pattern_bytes ? p->pattern_bytes : q->pattern_bytes;
    int order = memcmp(p->pattern, q->pattern, shared);
    if (order != 0) return order;
    if (p->pattern_bytes != q->pattern_bytes) return p->pattern_bytes < q->pattern_bytes ? -1 : 1;
    return p->id < q->id ? -1 : p->id > q->id;
}

void sl_added_set_sort(sl_added_set *s)
{
    if (s->count > 0) qsort(s->patterns, s->count, sizeof *s->patterns, by_bytes);
    size_t at = 0;
    s->only_byte = -1;
    for (unsigned b = 0; b < 256; b++) {
        s->first[b] = (uint32_t)at;
        while (at < s->count && (unsigned char)s->patterns[at]->pattern[0] == b) at++;
    }
    s->first[256] = (uint32_t)at;
    if (s->count > 0 && s->patterns[0]->pattern[0] == s->patterns[s->count - 1]->pattern[0])
        s->only_byte = (unsigned char)s->patterns[0]->pattern[0];
}

void sl_added_set_free(sl_added_set *s)
{
    sl_free(s->patterns);
    *s = (sl_added_set){ 0 };
}

/* First pattern of [low, high), which share `depth` bytes, whose byte at `depth` is at least `byte`. */
static size_t bound(const sl_added_set *s, size_t low, size_t high, size_t depth, int byte)
{
    while (low < high) {
        size_t middle = (low + high) / 2;
        const sl_added_token *p = s->patterns[middle];
        if (p->pattern_bytes == depth || (unsigned char)p->pattern[depth] < byte)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The longest pattern that the text begins with, or NULL. */
static const sl_added_token *longest_at(const sl_added_set *s, const char *text, size_t bytes)
{
    const sl_added_token *best = NULL;
    size_t low = s->first[(unsigned char)text[0]], high = s->first[(unsigned char)text[0] + 1];
    for (size_t depth = 1; low < high; depth++) {
        if (s->patterns[low]->pattern_bytes == depth) best = s->patterns[low];
        if (depth == bytes) break;
        int byte = (unsigned char)text[depth];
        low = bound(s, low, high, depth, byte);
        high = bound(s, low, high, depth, byte + 1);
    }
    return best;
}

static bool stands_alone(const uint16_t *properties, const char *text, size_t bytes, size_t begin, size_t end)
{
    size_t other;
    if (begin > 0 && sl_is_word(properties, sl_code_point_before(text, begin, &other))) return false;
    return end == bytes || !sl_is_word(properties, sl_code_point(text + end, &other));
}

static size_t white_before(const uint16_t *properties, const char *text, size_t at, size_t least)
{
    for (size_t begin; at > least; at = begin)
        if ((properties[sl_code_point_before(text, at, &begin)] & SL_CHAR_WHITE) == 0) break;
    return at < least ? least : at;
}

static size_t white_after(const uint16_t *properties, const char *text, size_t bytes, size_t at)
{
    for (size_t length; at < bytes; at += length)
        if ((properties[sl_code_point(text + at, &length)] & SL_CHAR_WHITE) == 0) break;
    return at;
}

bool sl_added_next(const sl_added_set *s, const uint16_t *properties, const char *text, size_t bytes, size_t *at,
                   size_t taken, bool plain, sl_added_match *out)
{
    if (s->count == 0) return false;
    for (size_t i = *at; i < bytes;) {
        if (s->only_byte >= 0) {
            const char *next = memchr(text + i, s->only_byte, bytes - i);
            if (next == NULL) break;
            i = (size_t)(next - text);
        }
        const sl_added_token *t = longest_at(s, text + i, bytes - i);
        if (t == NULL) {
            i++;
            continue;
        }
        /* One that does not count is passed over whole; a shorter one inside it is not looked for. */
        size_t begin = i, end = i + t->pattern_bytes;
        i = *at = end;
        if (plain && t->special) continue;
        if (t->single_word && !stands_alone(properties, text, bytes, begin, end)) continue;
        if (t->lstrip) begin = white_before(properties, text, begin, taken);
        if (t->rstrip) end = white_after(properties, text, bytes, end);
        *out = (sl_added_match){ begin, end, t };
        return true;
    }
    *at = bytes;
    return false;
}

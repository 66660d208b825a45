/* tokenizer_unicode.c: lookups in the generated tables, and the four normal forms. */
#include "format/tokenizer_unicode.h"

#include <string.h>

#include "core/alloc.h"
#include "format/tokenizer_unicode_tables.h"

#define COUNT(array_) (sizeof(array_) / sizeof(array_)[0])

uint16_t *sl_unicode_properties(void)
{
    uint16_t *table = sl_alloc_array(SL_CODE_POINTS, sizeof *table, "properties of characters");
    if (table == NULL) return NULL;
    for (size_t i = 0; i < COUNT(property_runs); i++) {
        uint32_t end = i + 1 < COUNT(property_runs) ? property_runs[i + 1].first : SL_CODE_POINTS;
        for (uint32_t c = property_runs[i].first; c < end; c++) table[c] = (uint16_t)property_runs[i].value;
    }
    return table;
}

size_t sl_put_code_point(uint32_t code, char out[4])
{
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    size_t bytes = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t i = bytes - 1; i > 0; i--, code >>= 6) out[i] = (char)(0x80 | (code & 0x3f));
    out[0] = (char)((0xf00 >> bytes & 0xff) | code);
    return bytes;
}

int sl_lower_case(uint32_t code, uint32_t out[2])
{
    out[0] = code;
    if (code < 0x80) {
        if (code >= 'A' && code <= 'Z') out[0] = code + 32;
        return 1;
    }
    if (code == 0x130) { /* the one whose lower case is two */
        out[0] = 'i';
        out[1] = 0x307;
        return 2;
    }
    size_t low = 0, high = COUNT(lower_runs);
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (lower_runs[middle].last < code)
            low = middle + 1;
        else
            high = middle;
    }
    /* Runs that step by two may interleave, so the next one is looked at as well. */
    for (size_t i = low; i < COUNT(lower_runs) && i < low + 2; i++) {
        const sl_unicode_lower *r = &lower_runs[i];
        if (code >= r->first && code <= r->last && (code - r->first) % r->step == 0) {
            out[0] = (uint32_t)((int32_t)code + r->delta);
            break;
        }
    }
    return 1;
}

/* ---- Normal forms ---- */

enum {
    HANGUL_FIRST = 0xac00,
    HANGUL_COUNT = 11172,
    LEADING_FIRST = 0x1100,
    LEADING_COUNT = 19,
    VOWEL_FIRST = 0x1161,
    VOWEL_COUNT = 21,
    TRAILING_FIRST = 0x11a7, /* one before the first: "none" */
    TRAILING_COUNT = 28
};

static unsigned combining_class(uint32_t code)
{
    size_t low = 0, high = COUNT(class_runs);
    if (code < class_runs[0].first) return 0;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (class_runs[middle].last < code)
            low = middle + 1;
        else
            high = middle;
    }
    return low < COUNT(class_runs) && code >= class_runs[low].first ? class_runs[low].value : 0;
}

/* The row of a code point in a sorted table of expansions, or NULL. */
static const sl_unicode_expansion *expansion(const sl_unicode_expansion *table, size_t count, uint32_t code)
{
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (table[middle].code < code)
            low = middle + 1;
        else
            high = middle;
    }
    return low < count && table[low].code == code ? &table[low] : NULL;
}

/* 0: they do not compose. */
static uint32_t compose(uint32_t first, uint32_t second)
{
    if (first - LEADING_FIRST < LEADING_COUNT && second - VOWEL_FIRST < VOWEL_COUNT)
        return HANGUL_FIRST + ((first - LEADING_FIRST) * VOWEL_COUNT + (second - VOWEL_FIRST)) * TRAILING_COUNT;
    if (first - HANGUL_FIRST < HANGUL_COUNT && (first - HANGUL_FIRST) % TRAILING_COUNT == 0 &&
        second - (TRAILING_FIRST + 1) < TRAILING_COUNT - 1)
        return first + (second - TRAILING_FIRST);
    size_t low = 0, high = COUNT(composed_pairs);
    while (low < high) {
        size_t middle = (low + high) / 2;
        const sl_unicode_pair *p = &composed_pairs[middle];
        if (p->first < first || (p->first == first && p->second < second))
            low = middle + 1;
        else
            high = middle;
    }
    if (low == COUNT(composed_pairs)) return 0;
    return composed_pairs[low].first == first && composed_pairs[low].second == second ? composed_pairs[low].composed
                                                                                      : 0;
}

/* A starter and the marks that follow it, in order of their classes once it is written. */
typedef struct segment {
    uint32_t *codes, *sorted; /* owned */
    uint8_t *classes;         /* owned; of codes */
    size_t count, capacity;
    bool composing;
    sl_text *out;
} segment;

static bool segment_grow(segment *s)
{
    size_t capacity = s->capacity == 0 ? 64 : 2 * s->capacity;
    uint32_t *codes = sl_realloc(s->codes, s->capacity * sizeof *codes, capacity * sizeof *codes, "marks");
    if (codes != NULL) s->codes = codes;
    uint32_t *sorted = sl_realloc(s->sorted, s->capacity * sizeof *sorted, capacity * sizeof *sorted, "marks");
    if (sorted != NULL) s->sorted = sorted;
    uint8_t *classes = sl_realloc(s->classes, s->capacity, capacity, "marks");
    if (classes != NULL) s->classes = classes;
    if (codes == NULL || sorted == NULL || classes == NULL) {
        s->out->failed = true;
        return false;
    }
    s->capacity = capacity;
    return true;
}

/* Stable, by counting: marks without end take linear time. */
static void sort_marks(segment *s)
{
    bool ordered = true;
    for (size_t i = 1; i < s->count; i++)
        if (s->classes[i] < s->classes[i - 1]) ordered = false;
    if (ordered) return;
    size_t starts[257] = { 0 };
    for (size_t i = 0; i < s->count; i++) starts[s->classes[i] + 1]++;
    for (int k = 0; k < 256; k++) starts[k + 1] += starts[k];
    for (size_t i = 0; i < s->count; i++) s->sorted[starts[s->classes[i]]++] = s->codes[i];
    uint32_t *codes = s->codes;
    s->codes = s->sorted;
    s->sorted = codes;
    for (size_t i = 0; i < s->count; i++) s->classes[i] = (uint8_t)combining_class(s->codes[i]);
}

/* Joins what composes with the first code point: all that no mark of the same class stands before. */
static void compose_segment(segment *s)
{
    size_t kept = 1;
    int newest = -1; /* class of the mark kept last */
    for (size_t i = 1; i < s->count; i++) {
        int class = s->classes[i];
        uint32_t joined = newest < class ? compose(s->codes[0], s->codes[i]) : 0;
        if (joined != 0) {
            s->codes[0] = joined;
            continue;
        }
        newest = class;
        s->codes[kept] = s->codes[i];
        s->classes[kept++] = (uint8_t) class;
    }
    s->count = kept;
}

static void write_segment(segment *s)
{
    for (size_t i = 0; i < s->count; i++) {
        char utf8[4];
        size_t bytes = sl_put_code_point(s->codes[i], utf8);
        sl_text_add_bytes(s->out, utf8, bytes);
    }
    s->count = 0;
}

/* A starter that composes with a lone starter before it joins that; otherwise the segment before it is whole. */
static void add_code(segment *s, uint32_t code)
{
    unsigned class = combining_class(code);
    if (class == 0 && s->count > 0) {
        sort_marks(s);
        if (s->composing && s->classes[0] == 0) compose_segment(s);
        uint32_t joined = s->composing && s->count == 1 && s->classes[0] == 0 ? compose(s->codes[0], code) : 0;
        if (joined != 0) {
            s->codes[0] = joined;
            return;
        }
        write_segment(s);
    }
    if (s->count == s->capacity && !segment_grow(s)) return;
    s->codes[s->count] = code;
    s->classes[s->count++] = (uint8_t) class;
}

static void add_decomposed(segment *s, bool compatibly, uint32_t code)
{
    if (code < 0x80) {
        add_code(s, code);
        return;
    }
    uint32_t hangul = code - HANGUL_FIRST;
    if (hangul < HANGUL_COUNT) {
        add_code(s, LEADING_FIRST + hangul / (VOWEL_COUNT * TRAILING_COUNT));
        add_code(s, VOWEL_FIRST + hangul / TRAILING_COUNT % VOWEL_COUNT);
        if (hangul % TRAILING_COUNT != 0) add_code(s, TRAILING_FIRST + hangul % TRAILING_COUNT);
        return;
    }
    const uint32_t *text = compatible_text;
    const sl_unicode_expansion *e = compatibly ? expansion(compatible, COUNT(compatible), code) : NULL;
    if (e == NULL) {
        text = canonical_text;
        e = expansion(canonical, COUNT(canonical), code);
    }
    if (e == NULL) add_code(s, code);
    for (int i = 0; e != NULL && i < e->count; i++) add_code(s, text[e->at + i]);
}

sluice_status sl_normalize(sl_normal_form form, const char *text, size_t bytes, sl_text *out)
{
    segment s = { .composing = form == SL_NFC || form == SL_NFKC, .out = out };
    bool compatibly = form == SL_NFKC || form == SL_NFKD;
    for (size_t i = 0; i < bytes && !out->failed;) {
        size_t length;
        uint32_t code = sl_code_point(text + i, &length);
        add_decomposed(&s, compatibly, code);
        i += length;
    }
    if (s.count > 0) {
        sort_marks(&s);
        if (s.composing && s.classes[0] == 0) compose_segment(&s);
        write_segment(&s);
    }
    sl_free(s.codes);
    sl_free(s.sorted);
    sl_free(s.classes);
    return sl_text_status(out);
}

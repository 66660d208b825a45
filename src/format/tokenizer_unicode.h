/* tokenizer_unicode.h: what tokenizers need to know of characters: categories, classes, case, normal forms.
 *
 * The facts are those of the reference implementation, whose parts follow different versions of Unicode; see
 * scripts/unicode_tables.py. */
#ifndef SL_FORMAT_TOKENIZER_UNICODE_H
#define SL_FORMAT_TOKENIZER_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/status.h"
#include "format/text_buffer.h"

#define SL_CODE_POINTS 0x110000

/* General categories, as regular expressions see them: the low 5 bits of a property. */
enum {
    SL_CATEGORY_CN,
    SL_CATEGORY_LU,
    SL_CATEGORY_LL,
    SL_CATEGORY_LT,
    SL_CATEGORY_LM,
    SL_CATEGORY_LO,
    SL_CATEGORY_MN,
    SL_CATEGORY_MC,
    SL_CATEGORY_ME,
    SL_CATEGORY_ND,
    SL_CATEGORY_NL,
    SL_CATEGORY_NO,
    SL_CATEGORY_PC,
    SL_CATEGORY_PD,
    SL_CATEGORY_PS,
    SL_CATEGORY_PE,
    SL_CATEGORY_PI,
    SL_CATEGORY_PF,
    SL_CATEGORY_PO,
    SL_CATEGORY_SM,
    SL_CATEGORY_SC,
    SL_CATEGORY_SK,
    SL_CATEGORY_SO,
    SL_CATEGORY_ZS,
    SL_CATEGORY_ZL,
    SL_CATEGORY_ZP,
    SL_CATEGORY_CC,
    SL_CATEGORY_CF,
    SL_CATEGORY_CO,
    SL_CATEGORY_CS,
    SL_CATEGORY_COUNT,
    SL_CATEGORY_MASK = 31
};

/* Flags of a property. */
enum {
    SL_CHAR_WHITE = 1 << 5, /* \s */
    SL_CHAR_WORD = 1 << 6,  /* \w */
    SL_CHAR_BERT_PUNCTUATION = 1 << 7,
    SL_CHAR_NUMERIC = 1 << 8,       /* of the pre-tokeniser Digits */
    SL_CHAR_STRIPPED_MARK = 1 << 9, /* what StripAccents drops */
    SL_CHAR_BERT_MARK = 1 << 10,    /* what BertNormalizer drops with strip_accents */
    SL_CHAR_BERT_CONTROL = 1 << 11, /* what it drops with clean_text */
    SL_CHAR_NFC_INERT = 1 << 12     /* a text of these alone is in NFC */
};

static inline bool sl_is_letter(uint16_t property)
{
    unsigned category = property & SL_CATEGORY_MASK;
    return category >= SL_CATEGORY_LU && category <= SL_CATEGORY_LO;
}

static inline bool sl_is_number(uint16_t property)
{
    unsigned category = property & SL_CATEGORY_MASK;
    return category >= SL_CATEGORY_ND && category <= SL_CATEGORY_NO;
}

/* Word characters where the reference asks another engine than for regular expressions in the file: with the joiners, without
 * the superscripts and fractions of Latin-1. */
static inline bool sl_is_word(const uint16_t *properties, uint32_t code)
{
    if (code == 0x200c || code == 0x200d) return true;
    if (code == 0xb2 || code == 0xb3 || code == 0xb9 || (code >= 0xbc && code <= 0xbe)) return false;
    return (properties[code] & SL_CHAR_WORD) != 0;
}

/* The properties of all code points, SL_CODE_POINTS of them, to be freed with sl_free; NULL without memory. */
uint16_t *sl_unicode_properties(void);

/* The code point at `text`, which is valid UTF-8, and its length. */
static inline uint32_t sl_code_point(const char *text, size_t *bytes)
{
    const unsigned char *p = (const unsigned char *)text;
    if (p[0] < 0x80) {
        *bytes = 1;
        return p[0];
    }
    if (p[0] < 0xe0) {
        *bytes = 2;
        return (uint32_t)(p[0] & 0x1f) << 6 | (p[1] & 0x3f);
    }
    if (p[0] < 0xf0) {
        *bytes = 3;
        return (uint32_t)(p[0] & 0x0f) << 12 | (uint32_t)(p[1] & 0x3f) << 6 | (p[2] & 0x3f);
    }
    *bytes = 4;
    return (uint32_t)(p[0] & 0x07) << 18 | (uint32_t)(p[1] & 0x3f) << 12 | (uint32_t)(p[2] & 0x3f) << 6 | (p[3] & 0x3f);
}

/* The code point that ends right before text[at], at > 0; *begin is where it starts. */
static inline uint32_t sl_code_point_before(const char *text, size_t at, size_t *begin)
{
    size_t bytes, from = at - 1;
    while (from > 0 && ((unsigned char)text[from] & 0xc0) == 0x80) from--;
    *begin = from;
    return sl_code_point(text + from, &bytes);
}

/* Writes UTF-8, returns its length. */
size_t sl_put_code_point(uint32_t code, char out[4]);

/* Lower case of one character: one or two code points, returns how many. */
int sl_lower_case(uint32_t code, uint32_t out[2]);

typedef enum { SL_NFC, SL_NFD, SL_NFKC, SL_NFKD } sl_normal_form;
/* Appends the normal form of valid UTF-8. Linear in the text, however many marks follow each other. */
sluice_status sl_normalize(sl_normal_form form, const char *text, size_t bytes, sl_text *out);

/* Rows of the generated tables. */
typedef struct sl_unicode_run {
    uint32_t first, value;
} sl_unicode_run;
typedef struct sl_unicode_class {
    uint32_t first, last, value;
} sl_unicode_class;
typedef struct sl_unicode_lower {
    uint32_t first, last, step;
    int32_t delta;
} sl_unicode_lower;
typedef struct sl_unicode_pair {
    uint32_t first, second, composed;
} sl_unicode_pair;
typedef struct sl_unicode_expansion {
    uint32_t code;
    uint16_t at, count; /* in the array of the same name with _text */
} sl_unicode_expansion;

#endif

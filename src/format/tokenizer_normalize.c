/* tokenizer_normalize.c: normalisers. Each reads a text and writes another; where one changes nothing it writes nothing. */
#include <string.h>

#include "format/tokenizer_parts.h"

enum {
    FORM, /* number[0]: the normal form */
    LOWER,
    STRIP,   /* on[0]: at the left, on[1]: at the right */
    ACCENTS, /* marks are dropped; number[0]: the property that says which */
    PREPEND, /* to */
    REPLACE, /* pattern, to */
    CLEAN,   /* BertNormalizer's clean_text */
    CHINESE, /* BertNormalizer's handle_chinese_chars */
    BERT     /* only while reading: becomes up to five of the above */
};

static sluice_status read_nfc(const json_t *object, const sl_where *w, sl_token_step *step)
{
    (void)object, (void)w;
    step->number[0] = SL_NFC;
    return SLUICE_OK;
}

static sluice_status read_nfd(const json_t *object, const sl_where *w, sl_token_step *step)
{
    (void)object, (void)w;
    step->number[0] = SL_NFD;
    return SLUICE_OK;
}

static sluice_status read_nfkc(const json_t *object, const sl_where *w, sl_token_step *step)
{
    (void)object, (void)w;
    step->number[0] = SL_NFKC;
    return SLUICE_OK;
}

static sluice_status read_nfkd(const json_t *object, const sl_where *w, sl_token_step *step)
{
    (void)object, (void)w;
    step->number[0] = SL_NFKD;
    return SLUICE_OK;
}

static sluice_status read_strip(const json_t *object, const sl_where *w, sl_token_step *step)
{
    SL_TRY(sl_read_bool(object, w, "strip_left", true, &step->on[0]));
    return sl_read_bool(object, w, "strip_right", true, &step->on[1]);
}

static sluice_status read_accents(const json_t *object, const sl_where *w, sl_token_step *step)
{
    (void)object, (void)w;
    step->number[0] = SL_CHAR_STRIPPED_MARK;
    return SLUICE_OK;
}

static sluice_status read_prepend(const json_t *object, const sl_where *w, sl_token_step *step)
{
    return sl_read_string(object, w, "prepend", NULL, &step->to);
}

static sluice_status read_replace(const json_t *object, const sl_where *w, sl_token_step *step)
{
    SL_TRY(sl_read_pattern(object, w, step));
    return sl_read_string(object, w, "content", NULL, &step->to);
}

/* Bits of number[0]: clean_text, handle_chinese_chars, strip_accents, lowercase. */
static sluice_status read_bert(const json_t *object, const sl_where *w, sl_token_step *step)
{
    bool clean, chinese, strip, lower;
    SL_TRY(sl_read_bool(object, w, "clean_text", true, &clean));
    SL_TRY(sl_read_bool(object, w, "handle_chinese_chars", true, &chinese));
    SL_TRY(sl_read_bool(object, w, "lowercase", true, &lower));
    strip = lower; /* null: as lowercase says */
    if (!json_is_null(json_object_get(object, "strip_accents")))
        SL_TRY(sl_read_bool(object, w, "strip_accents", lower, &strip));
    step->number[0] = clean | chinese << 1 | strip << 2 | lower << 3;
    return SLUICE_OK;
}

static const sl_token_step_row rows[] = {
    { "NFC", FORM, "type", read_nfc },
    { "NFD", FORM, "type", read_nfd },
    { "NFKC", FORM, "type", read_nfkc },
    { "NFKD", FORM, "type", read_nfkd },
    { "Lowercase", LOWER, "type", NULL },
    { "Strip", STRIP, "type strip_left strip_right", read_strip },
    { "StripAccents", ACCENTS, "type", read_accents },
    { "Prepend", PREPEND, "type prepend", read_prepend },
    { "Replace", REPLACE, "type pattern content", read_replace },
    { "BertNormalizer", BERT, "type clean_text handle_chinese_chars strip_accents lowercase", read_bert },
};

static sluice_status spread_bert(sl_chain *c, const sl_where *w, int64_t parts)
{
    const sl_token_step steps[] = {
        { .kind = CLEAN },
        { .kind = CHINESE },
        { .kind = FORM, .number = { SL_NFD } },
        { .kind = ACCENTS, .number = { SL_CHAR_BERT_MARK } },
        { .kind = LOWER },
    };
    static const int bits[] = { 1, 2, 4, 4, 8 };
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++)
        if ((parts & bits[i]) != 0) SL_TRY(sl_chain_add(c, w, &steps[i]));
    return SLUICE_OK;
}

sluice_status sl_normalizer_read(const json_t *value, const sl_where *w, sl_chain *out)
{
    sl_chain written = { 0 };
    sluice_status st = sl_chain_read(value, w, rows, sizeof rows / sizeof rows[0], "normalizers", &written);
    out->absent = written.absent;
    for (int i = 0; i < written.count; i++) {
        sl_token_step *step = &written.steps[i];
        if (st != SLUICE_OK)
            sl_token_step_free(step);
        else if (step->kind == BERT)
            st = spread_bert(out, w, step->number[0]);
        else
            st = sl_chain_add(out, w, step);
    }
    return st;
}

/* ---- Running ---- */

static void put(sl_text *out, uint32_t code)
{
    char utf8[4];
    size_t bytes = sl_put_code_point(code, utf8);
    sl_text_add_bytes(out, utf8, bytes);
}

static bool is_in_nfc(const uint16_t *properties, const char *text, size_t bytes)
{
    for (size_t i = 0, length; i < bytes; i += length)
        if ((properties[sl_code_point(text + i, &length)] & SL_CHAR_NFC_INERT) == 0) return false;
    return true;
}

static void lower(const char *text, size_t bytes, sl_text *out)
{
    for (size_t i = 0, length; i < bytes; i += length) {
        uint32_t codes[2];
        int count = sl_lower_case(sl_code_point(text + i, &length), codes);
        for (int k = 0; k < count; k++) put(out, codes[k]);
    }
}

static void strip(const sl_token_step *step, const uint16_t *properties, const char *text, size_t bytes, sl_text *out)
{
    size_t begin = 0, end = bytes, length, before;
    if (step->on[0])
        while (begin < end && (properties[sl_code_point(text + begin, &length)] & SL_CHAR_WHITE) != 0) begin += length;
    if (step->on[1])
        while (end > begin && (properties[sl_code_point_before(text, end, &before)] & SL_CHAR_WHITE) != 0) end = before;
    sl_text_add_bytes(out, text + begin, end - begin);
}

static void drop_marks(int64_t flag, const uint16_t *properties, const char *text, size_t bytes, sl_text *out)
{
    for (size_t i = 0, length; i < bytes; i += length)
        if ((properties[sl_code_point(text + i, &length)] & flag) == 0) sl_text_add_bytes(out, text + i, length);
}

static void clean(const uint16_t *properties, const char *text, size_t bytes, sl_text *out)
{
    for (size_t i = 0, length; i < bytes; i += length) {
        uint32_t code = sl_code_point(text + i, &length);
        if (code == 0 || code == 0xfffd || (properties[code] & SL_CHAR_BERT_CONTROL) != 0) continue;
        if ((properties[code] & SL_CHAR_WHITE) != 0)
            sl_text_add_bytes(out, " ", 1);
        else
            sl_text_add_bytes(out, text + i, length);
    }
}

/* As the reference has them, a gap before U+2B920 included. */
static bool is_chinese(uint32_t code)
{
    static const uint32_t ranges[][2] = { { 0x4e00, 0x9fff },   { 0x3400, 0x4dbf },   { 0x20000, 0x2a6df },
                                          { 0x2a700, 0x2b73f }, { 0x2b740, 0x2b81f }, { 0x2b920, 0x2ceaf },
                                          { 0xf900, 0xfaff },   { 0x2f800, 0x2fa1f } };
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++)
        if (code >= ranges[i][0] && code <= ranges[i][1]) return true;
    return false;
}

static void separate_chinese(const char *text, size_t bytes, sl_text *out)
{
    for (size_t i = 0, length; i < bytes; i += length) {
        bool apart = is_chinese(sl_code_point(text + i, &length));
        if (apart) sl_text_add_bytes(out, " ", 1);
        sl_text_add_bytes(out, text + i, length);
        if (apart) sl_text_add_bytes(out, " ", 1);
    }
}

/* *changed false: the text stays, whatever `out` has. */
static sluice_status run_step(const sl_token_step *step, const uint16_t *properties, const char *text, size_t bytes,
                              sl_text *out, bool *changed)
{
    *changed = true;
    switch (step->kind) {
    case FORM:
        if (step->number[0] == SL_NFC && is_in_nfc(properties, text, bytes)) {
            *changed = false;
            return SLUICE_OK;
        }
        return sl_normalize((sl_normal_form)step->number[0], text, bytes, out);
    case LOWER:
        lower(text, bytes, out);
        break;
    case STRIP:
        strip(step, properties, text, bytes, out);
        break;
    case ACCENTS:
        drop_marks(step->number[0], properties, text, bytes, out);
        break;
    case PREPEND:
        sl_text_add_bytes(out, step->to.text, bytes == 0 ? 0 : step->to.bytes);
        sl_text_add_bytes(out, text, bytes);
        break;
    case REPLACE:
        return sl_replace(step, properties, text, bytes, out, changed);
    case CLEAN:
        clean(properties, text, bytes, out);
        break;
    default:
        separate_chinese(text, bytes, out);
        break;
    }
    return sl_text_status(out);
}

bool sl_normalizer_is_form(const sl_chain *c)
{
    for (int i = 0; i < c->count; i++)
        if (c->steps[i].kind != FORM) return false;
    return true;
}

sluice_status sl_normalizer_run(const sl_chain *c, const uint16_t *properties, const char *text, size_t bytes,
                                sl_text buffers[2], const char **out, size_t *out_bytes)
{
    int free_buffer = 0;
    for (int i = 0; i < c->count; i++) {
        sl_text *to = &buffers[free_buffer];
        bool changed;
        to->bytes = 0;
        to->failed = false;
        SL_TRY(run_step(&c->steps[i], properties, text, bytes, to, &changed));
        if (!changed) continue;
        text = to->bytes == 0 ? "" : to->data;
        bytes = to->bytes;
        free_buffer = !free_buffer;
    }
    *out = text;
    *out_bytes = bytes;
    return SLUICE_OK;
}

/* tokenizer_fuzz.c: a tokenizer.json. One that was opened encodes and decodes texts of many kinds. */
#include <string.h>

#include "format/tokenizer.h"
#include "support/fuzz/fuzz.h"

static const char *const texts[] = {
    "",
    " the cat's  THEY'LL\r\n\n 12345 na\xc3\xafve cafe\xcc\x81 \xe2\x96\x81x <s>[CLS]<|endoftext|> don't",
    "\xe6\xbc\xa2\xe5\xad\x97 \xed\x95\x9c \xf0\x9f\x91\x8d\xf0\x9f\x8f\xbd \xef\xac\x81",
    "\xe1\x84\x92\xe1\x85\xa1",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaabab",
    "                                                                                              x",
};

static void use(const sl_tokenizer *t, sl_encoder *e, const char *text, unsigned flags)
{
    sl_ids ids = { 0 };
    sl_text whole = { 0 }, streamed = { 0 };
    sl_stream_decoder *d;
    if (fuzz_accepted(sl_encode(e, text, strlen(text), flags, &ids))) {
        for (size_t i = 0; i < ids.count; i++) FUZZ_CHECK(ids.data[i] >= 0 && ids.data[i] < sl_tokenizer_size(t));
        fuzz_accepted(sl_decode(t, ids.data, ids.count, flags & SL_DECODE_SKIP_SPECIAL, &whole));
        FUZZ_CHECK(sl_stream_decoder_create(t, flags & SL_DECODE_SKIP_SPECIAL, &d) == SLUICE_OK);
        for (size_t i = 0; i < ids.count; i++) fuzz_accepted(sl_stream_decoder_add(d, ids.data[i], &streamed));
        fuzz_accepted(sl_stream_decoder_finish(d, &streamed));
        sl_stream_decoder_destroy(d);
    }
    sl_ids_free(&ids);
    sl_text_free(&whole);
    sl_text_free(&streamed);
}

void fuzz_tokenizer(const uint8_t *data, size_t bytes)
{
    sl_tokenizer *t;
    sl_encoder *e;
    if (!fuzz_accepted(sl_tokenizer_open(fuzz_file("tokenizer.json", data, bytes), &t))) return;
    FUZZ_CHECK(sl_encoder_create(t, &e) == SLUICE_OK);
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        for (unsigned flags = 0; flags < 4; flags++) use(t, e, texts[i], flags);
    for (int32_t id = -1; id < sl_tokenizer_size(t) && id < 1000; id++) {
        size_t content_bytes;
        const char *content = sl_tokenizer_content(t, id, &content_bytes);
        if (content != NULL) FUZZ_CHECK(sl_tokenizer_find(t, content, content_bytes) == id);
        sl_tokenizer_is_special(t, id);
    }
    sl_encoder_destroy(e);
    sl_tokenizer_close(t);
}

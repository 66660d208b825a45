/* image_processor_fuzz.c: a preprocessor_config.json. What is written of one that was read is read again and says the same. */
#include "format/image_processor.h"
#include "support/fuzz/fuzz.h"

void fuzz_image_processor(const uint8_t *data, size_t bytes)
{
    static const char what[] = "preprocessor_config.json";
    const sl_processor_by_hand nothing = { false, false, false };
    const sl_log silent = { .fn = NULL };
    sl_image_processor p, again;
    sl_text text = { .data = NULL };
    if (!fuzz_accepted(sl_image_processor_parse((const char *)data, bytes, what, &nothing, &silent, &p))) return;
    FUZZ_CHECK(p.side >= 0 && p.crop <= p.side && (p.crop > 0) == (p.side > 0));
    FUZZ_CHECK(p.mean_count >= 1 && p.mean_count <= SL_PROCESSOR_NUMBERS);
    FUZZ_CHECK(p.deviation_count >= 1 && p.deviation_count <= SL_PROCESSOR_NUMBERS);
    FUZZ_CHECK(sl_image_processor_write(&p, 3, &text) == SLUICE_OK);
    FUZZ_CHECK(sl_image_processor_parse(text.data, text.bytes, what, &nothing, &silent, &again) == SLUICE_OK);
    FUZZ_CHECK(p.mean_count == 2 || p.deviation_count == 2 || sl_image_processor_same(&p, &again, 3));
    sl_text_free(&text);
}

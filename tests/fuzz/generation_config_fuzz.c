/* generation_config_fuzz.c: a generation_config.json. What is accepted is what a sampler takes. */
#include "format/generation_config.h"
#include "support/fuzz/fuzz.h"

void fuzz_generation_config(const uint8_t *data, size_t bytes)
{
    sl_generation_config c;
    if (!fuzz_accepted(sl_generation_config_parse((const char *)data, bytes, "generation_config.json", &c))) return;
    FUZZ_CHECK(c.top_p == -1 || (c.top_p > 0 && c.top_p <= 1));
    FUZZ_CHECK(c.min_p == -1 || (c.min_p >= 0 && c.min_p <= 1));
    FUZZ_CHECK(c.repetition_penalty == -1 || c.repetition_penalty > 0);
    FUZZ_CHECK(c.temperature == -1 || (c.temperature >= 0 && c.temperature < 1e10));
    FUZZ_CHECK(c.top_k >= -1 && c.end_count >= 0 && c.end_count <= SL_GENERATION_MAX_ENDS);
    for (int i = 0; i < c.end_count; i++) FUZZ_CHECK(c.ends[i] >= 0);
}

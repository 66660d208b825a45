/* adapter_config_fuzz.c: an adapter_config.json. What is written of one that was read is read again and says the same. */
#include <string.h>

#include "format/adapter_config.h"
#include "support/fuzz/fuzz.h"

void fuzz_adapter_config(const uint8_t *data, size_t bytes)
{
    sl_arena arena;
    sl_adapter_config c, again;
    sl_text text = { .data = NULL };
    sl_arena_init(&arena, "adapter");
    if (fuzz_accepted(sl_adapter_config_parse((const char *)data, bytes, "adapter_config.json", &arena, &c))) {
        FUZZ_CHECK(c.rank >= 1 && c.target_count >= 1);
        FUZZ_CHECK(sl_adapter_config_write(&c, &text) == SLUICE_OK);
        FUZZ_CHECK(sl_adapter_config_parse(text.data, text.bytes, "again", &arena, &again) == SLUICE_OK);
        FUZZ_CHECK(again.rank == c.rank && again.alpha == c.alpha && again.target_count == c.target_count);
        FUZZ_CHECK(again.rank_stabilised == c.rank_stabilised && again.whole_count == c.whole_count);
        for (int i = 0; i < c.target_count; i++) FUZZ_CHECK(strcmp(again.targets[i], c.targets[i]) == 0);
    }
    sl_text_free(&text);
    sl_arena_free(&arena);
}

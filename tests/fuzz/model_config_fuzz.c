/* model_config_fuzz.c: a config.json of a model. What is written of one that was read, alone or over the one it came from,
 * is read again and says the same. */
#include <string.h>

#include "format/model_config.h"
#include "support/fuzz/fuzz.h"

static void check_written(const sl_model_config *c, const char *kept)
{
    sl_text text = { .data = NULL };
    sl_model_config again;
    FUZZ_CHECK(sl_model_config_write(c, kept, &text) == SLUICE_OK);
    if (!fuzz_accepted(sl_model_config_parse(text.data, text.bytes, "again.json", &again))) {
        fprintf(stderr, "%s\n%.*s\n", sluice_error(), (int)text.bytes, text.data);
        abort();
    }
    FUZZ_CHECK(again.family == c->family && again.layers == c->layers && again.window == c->window);
    FUZZ_CHECK(again.heads == c->heads && again.kv_heads == c->kv_heads && again.head_width == c->head_width);
    FUZZ_CHECK(again.feed_forward == c->feed_forward && again.tied == c->tied && again.activation == c->activation);
    FUZZ_CHECK(again.attention_soft_cap == c->attention_soft_cap && again.query_scalar == c->query_scalar);
    FUZZ_CHECK(memcmp(&again.rope, &c->rope, sizeof c->rope) == 0);
    FUZZ_CHECK(memcmp(&again.local_rope, &c->local_rope, sizeof c->rope) == 0);
    for (int64_t i = 0; i < c->layers && i < 64; i++)
        FUZZ_CHECK(sl_model_config_slides(&again, i) == sl_model_config_slides(c, i));
    sl_text_free(&text);
}

void fuzz_model_config(const uint8_t *data, size_t bytes)
{
    sl_model_config c;
    if (!fuzz_accepted(sl_model_config_parse((const char *)data, bytes, "config.json", &c))) return;
    char *kept = malloc(bytes + 1);
    FUZZ_CHECK(kept != NULL);
    memcpy(kept, data, bytes);
    kept[bytes] = '\0';
    check_written(&c, NULL);
    check_written(&c, kept);
    free(kept);
}

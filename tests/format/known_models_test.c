/* known_models_test.c: published models by name. */
#include "format/known_models.h"

#include <stdlib.h>
#include <string.h>

#include "test.h"

TEST(a_published_model_has_the_shape_of_its_config)
{
    sl_model_config m;
    REQUIRE(sl_known_model("Llama 3.1 8B", &m));
    CHECK_EQ(m.family, SL_DECODER_LLAMA);
    CHECK_EQ(m.width, 4096);
    CHECK_EQ(m.layers, 32);
    CHECK_EQ(m.kv_heads, 8);
    CHECK_EQ(m.head_width, 128);
    CHECK_EQ(m.feed_forward, 14336);
    CHECK_EQ(m.vocabulary, 128256);
    CHECK(!m.tied && m.has_dtype && m.dtype == SLUICE_BF16);
    CHECK_EQ(m.rope.type, SL_ROPE_LLAMA3);
    CHECK(sl_known_model("meta-llama/Llama-3.1-8B", &m) && !sl_known_model("llama", &m) && !sl_known_model("", &m));
}

TEST(every_published_model_can_be_read)
{
    char *text = NULL, name[64], near[64], *rest = NULL;
    size_t bytes;
    int count = 0;
    FILE *memory = open_memstream(&text, &bytes);
    sl_known_models_print(memory);
    fclose(memory);
    for (char *line = strtok_r(text, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest)) {
        sl_model_config m;
        if (line[0] != ' ' || sscanf(line, "%63s", name) != 1) continue;
        CHECK_THAT(sl_known_model(name, &m), "%s: %s", name, sluice_error());
        count++;
    }
    CHECK(count > 35);
    CHECK_CONTAINS(sl_known_model_nearest("lama-3.1-8b", near, sizeof near), "llama-3.1-8b");
    free(text);
}

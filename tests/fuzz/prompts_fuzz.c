/* prompts_fuzz.c: a file of prompts, lines of text or of JSON, with conversations. */
#include "core/alloc.h"
#include "support/fuzz/fuzz.h"
#include "train/generate.h"

void fuzz_prompts(const uint8_t *data, size_t bytes)
{
    static const char *const templates[] = { NULL, "chatml", "mistral-v3" };
    const char *path = fuzz_file("prompts.jsonl", data, bytes);
    for (size_t i = 0; i < sizeof templates / sizeof templates[0]; i++) {
        struct sl_generation *g = sl_alloc(sizeof *g, "generation");
        sluice_job_options o;
        FUZZ_CHECK(g != NULL);
        sluice_job_options_init(&o);
        g->text.chat = templates[i] != NULL ? sl_chat_find(templates[i]) : NULL;
        if (fuzz_accepted(sl_generation_read(g, path, &o))) FUZZ_CHECK(g->count > 0);
        for (int k = 0; k < g->count; k++) {
            FUZZ_CHECK(g->exchanges[k].prompt != NULL && g->exchanges[k].prompt_bytes <= bytes);
            FUZZ_CHECK(g->text.chat != NULL || g->exchanges[k].rendered == NULL);
        }
        sl_generation_free(g);
    }
}

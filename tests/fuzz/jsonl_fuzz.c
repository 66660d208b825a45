/* jsonl_fuzz.c: samples in JSON lines, from the file to tokens, with templates that refuse much and one that takes all. */
#include "data/jsonl.h"
#include "support/fuzz/fuzz.h"

enum { CONTEXT = 24 };

/* Opened once: it is not what is fuzzed here. */
static const sl_tokenizer *tokenizer(void)
{
    static sl_tokenizer *t;
    if (t == NULL) FUZZ_CHECK(sl_tokenizer_open(SLUICE_SOURCE_DIR "/tests/fixtures/chat_tokenizer", &t) == SLUICE_OK);
    return t;
}

static void check_sample(const sl_jsonl_encoder *e)
{
    int64_t targets = 0;
    FUZZ_CHECK(e->count <= e->whole_count);
    FUZZ_CHECK(e->count <= e->rules->most || e->rules->truncate == SL_TRUNCATE_DROP);
    for (int64_t i = 0; i < e->count; i++) {
        FUZZ_CHECK(sl_jsonl_id(e->tokens[i]) < sl_tokenizer_size(e->rules->tokenizer));
        targets += i > 0 && sl_jsonl_loss(e->tokens[i]);
    }
    FUZZ_CHECK(targets == e->targets);
}

static void encode_all(const sl_jsonl_file *f, sl_jsonl_shape shape, const sl_jsonl_rules *rules)
{
    sl_jsonl_encoder e;
    sl_jsonl_sample s = { .words = NULL };
    FUZZ_CHECK(sl_jsonl_encoder_make(rules, &e) == SLUICE_OK);
    for (int64_t i = 0; i < f->count; i++) {
        if (!fuzz_accepted(sl_jsonl_sample_read(f, i, shape, rules->chat, &s))) continue;
        FUZZ_CHECK(s.used <= s.capacity);
        if (s.empty || !fuzz_accepted(sl_jsonl_encode(&e, &s, "here"))) continue;
        check_sample(&e);
    }
    sl_jsonl_encoder_free(&e);
    sl_jsonl_sample_free(&s);
}

void fuzz_jsonl(const uint8_t *data, size_t bytes)
{
    static const char *const templates[] = { "chatml", "mistral-v3", "qwen3", "alpaca" };
    sl_jsonl_file f;
    sl_jsonl_shape shape;
    if (!fuzz_accepted(sl_jsonl_file_read(NULL, fuzz_file("data.jsonl", data, bytes), &f))) return;
    if (f.count > 0 && fuzz_accepted(sl_jsonl_detect(&f, &shape)))
        for (size_t i = 0; i < sizeof templates / sizeof templates[0]; i++) {
            const sl_jsonl_rules rules = { .tokenizer = tokenizer(),
                                           .chat = sl_chat_find(templates[i]),
                                           .words = { "<s>", "</s>", NULL },
                                           .truncate = (int)i,
                                           .most = CONTEXT + 1,
                                           .eos = sl_tokenizer_end_of_text(tokenizer()) };
            encode_all(&f, shape, &rules);
        }
    sl_jsonl_file_free(&f);
}

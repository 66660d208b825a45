/* masked_cli_test.c: a small BERT learns to guess hidden tokens: the same bits on any number of ranks and after an interruption; and which
 * settings do not go with that. */
#include "support/run.h"
#include "test.h"

#define TOKENIZER SLUICE_SOURCE_DIR "/tests/fixtures/tokenizers/bert-uncased.json"

#define CONFIG                                                                                                         \
    "{\"model\": {\"type\": \"bert\", \"layers\": 1, \"heads\": 2, \"width\": 16, \"feed_forward\": 32, "              \
    "\"context\": 18, \"dropout\": 0.1}, \"data\": {\"type\": \"text\", \"path\": \"input.txt\", \"tokenizer\": "      \
    "\"" TOKENIZER "\", \"validation\": 0.2}, \"steps\": 8, \"threads\": 1, \"evaluate\": {\"every\": 4}, "            \
    "\"train_batch_size\": 8, \"train_micro_batch_size_per_gpu\": 2, \"gradient_clipping\": 1.0, "                     \
    "\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.01}}}"

static const char *prepare(void)
{
    static char folder[4200], text[24000];
    uint32_t r = 7;
    size_t used = 0;
    snprintf(folder, sizeof folder, "%s", test_tmpdir());
    while (used < sizeof text - 40) {
        static const char *const words[] = { "the", "of", "and", "[UNK]", "1", "2", ",", ".", "in", "to" };
        r = r * 1664525 + 1013904223;
        used += (size_t)snprintf(text + used, sizeof text - used, "%s ", words[(r >> 16) % 10]);
    }
    run_write(folder, "input.txt", text);
    run_write(folder, "config.json", CONFIG);
    return folder;
}

/* The text of a key's last value, into out. */
static void last_value(const char *text, const char *key, char out[80])
{
    char quoted[40];
    const char *at = NULL;
    snprintf(quoted, sizeof quoted, "\"%s\":", key);
    for (const char *next = strstr(text, quoted); next != NULL; next = strstr(next + 1, quoted)) at = next;
    snprintf(out, 80, "%.*s", at != NULL ? (int)strcspn(at + strlen(quoted), ",}\n") : 0,
             at != NULL ? at + strlen(quoted) : "");
}

typedef struct outcome {
    char hash[80], state[80], loss[80]; /* loss: of the last evaluation */
} outcome;

static void train(const char *folder, const char *arguments, outcome *o)
{
    char line[512];
    snprintf(line, sizeof line, "train config.json --json %s", arguments);
    run_result r = run_sluice(folder, line);
    if (r.status != 0) test_fail(__FILE__, __LINE__, "%s: status %d: %s", arguments, r.status, r.error);
    last_value(r.out, "loss", o->loss);
    last_value(r.out, "weights_sha256", o->hash);
    last_value(r.out, "state_sha256", o->state);
    run_free(&r);
}

TEST(hidden_tokens_give_one_hash_on_ranks_stages_and_after_a_resume)
{
    static const char *const others[] = { "--ranks 2", "--ranks 4 --set zero_optimization.stage=3",
                                          "--set zero_optimization.offload_optimizer.device=cpu" };
    const char *folder = prepare();
    outcome one, other;
    train(folder, "", &one);
    CHECK_EQ(strlen(one.hash), 66);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        train(folder, others[i], &other);
        CHECK_STR(other.hash, one.hash);
        CHECK_STR(other.state, one.state);
        CHECK_STR(other.loss, one.loss);
    }
    run_must(folder, "train config.json --quiet --ranks 2 --set steps=5 --set checkpoint.path=c");
    train(folder, "--set checkpoint.path=c --resume", &other);
    CHECK_STR(other.hash, one.hash);
    CHECK_STR(other.loss, one.loss);
}

TEST(a_run_tells_what_is_hidden_and_learns_to_guess_it)
{
    const char *folder = prepare();
    run_result r = run_sluice(folder, "train config.json --set steps=120");
    CHECK_EQ(r.status, 0);
    CHECK_CONTAINS(r.error, "tokens an epoch to train on");
    CHECK_CONTAINS(r.error, "2 tokens of a window are to be guessed");
    const char *first = strstr(r.out, "step 0: validation loss "), *last = strstr(r.out, "step 120: validation loss ");
    REQUIRE(first != NULL && last != NULL);
    CHECK(atof(first + strlen("step 0: validation loss ")) > 7.0);  /* ln 1366 is 7.22 */
    CHECK(atof(last + strlen("step 120: validation loss ")) < 2.7); /* ten words: ln 9 of those to guess is 2.20 */
    run_free(&r);
}

TEST(settings_that_do_not_go_with_hidden_tokens_are_refused)
{
    static const struct {
        const char *arguments;
        int status;
        const char *says;
    } cases[] = {
        { "--set data.masking=0", 2, "data.masking: 0 leaves nothing to guess" },
        { "--set data.masking=1", 2, "data.masking" },
        { "--set model.type=gpt2 --set data.masking=0.2", 2, "it is for model.type bert" },
        { "--set data.tokenizer=''", 2, "data.tokenizer: it is missing: tokens are hidden as its [MASK]" },
        { "--set data.type=random_tokens --set model.vocabulary=99 --set data.masking=0.1", 2,
          "it hides tokens of data.type text and tokens" },
        { "--set data.type=tokens --set model.vocabulary=1366 --set data.mask_path=m.bin", 2,
          "data.masking: data.mask_path and data.packing" },
        { "--set data.tokenizer=" SLUICE_SOURCE_DIR "/tests/fixtures/tokenizers/gpt2-v4.json", 4,
          "neither the token [MASK] nor <mask>" },
    };
    const char *folder = prepare();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char line[600];
        snprintf(line, sizeof line, "plan config.json %s", cases[i].arguments);
        run_result r = run_sluice(folder, line);
        CHECK_EQ(r.status, cases[i].status);
        CHECK_CONTAINS(r.error, cases[i].says);
        run_free(&r);
    }
}

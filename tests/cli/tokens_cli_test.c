/* tokens_cli_test.c: training on token files with masks: the same bits on any number of ranks and after an interruption,
 * targets counted, steps without any skipped. */
#include <unistd.h>

#include "support/run.h"
#include "test.h"

enum { TOKENS = 6000, VOCABULARY = 90 };

#define CONFIG                                                                                                         \
    "{\"model\": {\"type\": \"gpt2\", \"layers\": 2, \"heads\": 2, \"width\": 16, \"context\": 16, \"vocabulary\": "   \
    "90, "                                                                                                             \
    "\"dropout\": 0.1}, \"data\": {\"type\": \"tokens\", \"path\": \"t-*.bin\", \"mask_path\": \"t-*.mask\", "         \
    "\"dtype\": \"uint16\", \"validation\": 0.2}, \"steps\": 8, \"threads\": 1, \"evaluate\": {\"every\": 4}, "        \
    "\"train_batch_size\": 8, \"train_micro_batch_size_per_gpu\": 2, \"gradient_clipping\": 1.0, "                     \
    "\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.01}}}"

static void write_bytes(const char *folder, const char *name, const void *bytes, size_t count)
{
    char path[4400];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    if (f == NULL || fwrite(bytes, 1, count, f) != count || fclose(f) != 0) exit(99);
}

/* Two token files of unequal length, and masks in which share percent of stretches of 40 tokens count. */
static const char *prepare(int share)
{
    static char folder[4200];
    uint16_t ids[TOKENS];
    uint8_t mask[TOKENS];
    uint32_t r = 7;
    snprintf(folder, sizeof folder, "%s", test_tmpdir());
    for (int i = 0; i < TOKENS; i++) {
        r = r * 1664525 + 1013904223;
        ids[i] = (uint16_t)((r >> 16) % VOCABULARY);
        mask[i] = (uint32_t)(i / 40) * 2654435761u % 100 < (uint32_t)share;
    }
    write_bytes(folder, "t-1.bin", ids, 1000 * sizeof *ids);
    write_bytes(folder, "t-2.bin", ids + 1000, (TOKENS - 1000) * sizeof *ids);
    write_bytes(folder, "t-1.mask", mask, 1000);
    write_bytes(folder, "t-2.mask", mask + 1000, TOKENS - 1000);
    run_write(folder, "config.json", CONFIG);
    return folder;
}

/* The text of a key's first value behind `from`, into out. */
static const char *value_of(const char *from, const char *key, char out[80])
{
    char quoted[40];
    snprintf(quoted, sizeof quoted, "\"%s\":", key);
    const char *at = from != NULL ? strstr(from, quoted) : NULL;
    snprintf(out, 80, "%.*s", at != NULL ? (int)strcspn(at + strlen(quoted), ",}\n") : 0,
             at != NULL ? at + strlen(quoted) : "");
    return at;
}

typedef struct outcome {
    char hash[80], state[80], loss[80], evaluated[80];
} outcome;

static void train(const char *folder, const char *arguments, outcome *o)
{
    char line[512];
    snprintf(line, sizeof line, "train config.json --json %s", arguments);
    run_result r = run_sluice(folder, line);
    if (r.status != 0) test_fail(__FILE__, __LINE__, "%s: status %d: %s", arguments, r.status, r.error);
    const char *last = strstr(r.out, "\"event\":\"step\",\"step\":8,"), *end = strstr(r.out, "\"event\":\"end\"");
    value_of(last, "loss", o->loss);
    value_of(last != NULL ? strstr(last, "\"event\":\"eval\"") : NULL, "loss", o->evaluated);
    value_of(end, "weights_sha256", o->hash);
    value_of(end, "state_sha256", o->state);
    run_free(&r);
}

TEST(masked_token_files_give_one_hash_on_ranks_stages_and_after_a_resume)
{
    static const char *const others[] = { "--ranks 2", "--ranks 4 --set zero_optimization.stage=1",
                                          "--ranks 2 --set zero_optimization.stage=2",
                                          "--ranks 4 --set zero_optimization.stage=3",
                                          "--set zero_optimization.offload_optimizer.device=cpu" };
    const char *folder = prepare(45);
    outcome one, other;
    train(folder, "", &one);
    CHECK_EQ(strlen(one.hash), 66);
    CHECK(one.evaluated[0] != '\0');
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        train(folder, others[i], &other);
        CHECK_STR(other.hash, one.hash);
        CHECK_STR(other.state, one.state);
        CHECK_STR(other.loss, one.loss);
        CHECK_STR(other.evaluated, one.evaluated);
    }
    train(folder, "--set bf16.enabled=true --ranks 2 --set zero_optimization.stage=3", &one);
    train(folder, "--set bf16.enabled=true", &other);
    CHECK_STR(other.hash, one.hash);
    run_result r = run_sluice(folder, "train config.json --quiet --ranks 2 --set steps=5 --set checkpoint.path=c");
    CHECK_EQ(r.status, 0);
    run_free(&r);
    train(folder, "", &one);
    train(folder, "--set checkpoint.path=c --resume", &other);
    CHECK_STR(other.hash, one.hash);
    CHECK_STR(other.evaluated, one.evaluated);
}

TEST(targets_of_a_step_are_fewer_than_its_tokens_with_a_mask)
{
    char tokens[80], targets[80];
    const char *folder = prepare(45);
    run_result r = run_sluice(folder, "train config.json --json");
    const char *step = strstr(r.out, "\"event\":\"step\"");
    value_of(step, "tokens", tokens);
    value_of(step, "targets", targets);
    CHECK_STR(tokens, "128");
    CHECK(atoi(targets) > 0 && atoi(targets) < 128);
    run_free(&r);
    r = run_sluice(folder, "train config.json");
    CHECK_CONTAINS(r.out, "% targets");
    run_free(&r);
    r = run_sluice(folder, "train config.json --json --set data.mask_path=''");
    value_of(strstr(r.out, "\"event\":\"step\""), "targets", targets);
    CHECK_STR(targets, "128");
    run_free(&r);
}

/* Two percent of the tokens count: most steps have none. */
TEST(a_step_whose_tokens_are_all_masked_is_skipped_and_said)
{
    const char *folder = prepare(2);
    outcome one, two;
    run_result r = run_sluice(folder, "train config.json --json --set data.validation=0");
    CHECK_EQ(r.status, 0);
    CHECK_CONTAINS(r.out, "\"loss\":null");
    CHECK_CONTAINS(r.out, "\"targets\":0,\"skipped\":true");
    CHECK_CONTAINS(r.out, "\"skipped\":false");
    CHECK_CONTAINS(r.error, "is skipped: not one token of its 4 micro-batches counts in the loss");
    run_free(&r);
    train(folder, "--set data.validation=0", &one);
    train(folder, "--set data.validation=0 --ranks 4 --set zero_optimization.stage=3", &two);
    CHECK_STR(two.hash, one.hash);
    CHECK_STR(two.state, one.state);
}

/* jsonl_cli_test.c: conversations through the program: packed and masked, one result whatever shares the work; the first sample shown;
 * bad data ends with 4. */
#include <stdlib.h>
#include <string.h>

#include "support/run.h"
#include "test.h"

#define TOKENIZER SLUICE_SOURCE_DIR "/tests/fixtures/chat_tokenizer"
#define CONFIG                                                                                                         \
    "{\"model\": {\"type\": \"%s\", \"layers\": 2, \"heads\": 2, \"width\": 16, \"context\": 64},\n"                   \
    " \"data\": {\"type\": \"jsonl\", \"path\": \"chat.jsonl\", \"tokenizer\": \"" TOKENIZER "\", \"packing\": %s, "   \
    "\"validation\": 0.2},\n \"steps\": 4, \"train_batch_size\": 4, \"train_micro_batch_size_per_gpu\": 1,\n"          \
    " \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 1e-2}}, \"timeout_seconds\": 60}\n"

static void field(const char *text, const char *name, char out[256])
{
    const char *at = strstr(text, name);
    out[0] = '\0';
    if (at != NULL) snprintf(out, 256, "%.*s", (int)strcspn(at + strlen(name), "\""), at + strlen(name));
}

static void write_inputs(const char *folder, const char *model, const char *packing)
{
    static char text[1 << 16];
    size_t used = 0;
    for (int i = 0; i < 60; i++) {
        used += (size_t)snprintf(
            text + used, sizeof text - used,
            "{\"messages\": [{\"role\": \"user\", \"content\": \"what is it? %d\"}, {\"role\": \"assistant\", "
            "\"content\": \"it is",
            i);
        for (int k = 0; k < i * 5 % 13; k++) used += (size_t)snprintf(text + used, sizeof text - used, " water");
        used += (size_t)snprintf(text + used, sizeof text - used, "\"}]}\n");
    }
    run_write(folder, "chat.jsonl", text);
    snprintf(text, sizeof text, CONFIG, model, packing);
    run_write(folder, "a.json", text);
}

/* Micro-batches have different numbers of targets; rows hold several documents, or padding. */
static void check_same_bits(const char *model, const char *packing)
{
    static const char *const ways[] = {
        "--ranks 2", "--ranks 4 --set zero_optimization.stage=3",
        ("--ranks 2 --set zero_optimization.stage=2 --set "
         "zero_optimization.offload_optimizer.device=cpu"),
        "--set zero_optimization.stage=3 --set zero_optimization.offload_param.device=cpu"
    };
    char folder[4096], hash[256], other[256];
    snprintf(folder, sizeof folder, "%s", test_tmpdir());
    write_inputs(folder, model, packing);
    run_result one = run_sluice(folder, "train a.json --json");
    CHECK_EQ(one.status, 0);
    CHECK_CONTAINS(one.out, "{\"event\":\"sample\",\"tokens\":[");
    field(one.out, "\"weights_sha256\":\"", hash);
    CHECK_EQ(strlen(hash), 64);
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        char arguments[512];
        snprintf(arguments, sizeof arguments, "train a.json --json %s", ways[i]);
        run_result r = run_sluice(folder, arguments);
        field(r.out, "\"weights_sha256\":\"", other);
        CHECK_THAT(r.status == 0 && strcmp(other, hash) == 0, "%s, packing %s, %s: status %d, %s, not %s\n%s", model,
                   packing, ways[i], r.status, other, hash, r.error);
        run_free(&r);
    }
    run_free(&one);
}

TEST(packed_conversations_give_the_bits_of_one_rank_on_several_and_at_every_stage)
{
    check_same_bits("llama", "true");
    check_same_bits("gpt2", "true");
}

TEST(padded_conversations_give_the_bits_of_one_rank_on_several_and_at_every_stage)
{
    check_same_bits("gpt2", "false");
}

TEST(a_run_on_packed_data_resumes_where_it_was)
{
    char folder[4096], hash[256], other[256];
    snprintf(folder, sizeof folder, "%s", test_tmpdir());
    write_inputs(folder, "llama", "true");
    run_result whole = run_sluice(folder, "train a.json --json");
    run_result half =
        run_sluice(folder, "train a.json --json --set steps=2 --set checkpoint.path=kept --set checkpoint.every=2");
    run_result rest = run_sluice(folder, "train a.json --json --set checkpoint.path=kept --resume --ranks 2");
    field(whole.out, "\"weights_sha256\":\"", hash);
    field(rest.out, "\"weights_sha256\":\"", other);
    CHECK_EQ(half.status, 0);
    CHECK_EQ(rest.status, 0);
    CHECK_EQ(strlen(hash), 64);
    CHECK_STR(other, hash);
    CHECK(strstr(rest.out, "\"event\":\"sample\"") == NULL);
    run_free(&whole);
    run_free(&half);
    run_free(&rest);
}

TEST(the_first_sample_is_printed_with_what_counts_marked)
{
    char folder[4096];
    snprintf(folder, sizeof folder, "%s", test_tmpdir());
    write_inputs(folder, "gpt2", "false");
    run_result r = run_sluice(folder, "train a.json --set steps=1 --set data.shuffle=false");
    CHECK_EQ(r.status, 0);
    CHECK_CONTAINS(r.out, "<|im_start|>user\nwhat is it? 0<|im_end|>\n<|im_start|>assistant\n{+it is<|im_end|>\n+}\n");
    CHECK_CONTAINS(r.error, "chat.jsonl: 60 samples of messages");
    CHECK_CONTAINS(r.error, "loss on answers");
    run_free(&r);
}

TEST(bad_samples_end_with_4_and_one_message)
{
    static const char *const lines[] = { "{\"messages\": [",
                                         "{\"messages\": [{\"role\": \"assistant\", \"content\": \"\"}]}",
                                         "{\"messages\": [{\"role\": \"tool\", \"content\": \"x\"}]}", "3",
                                         "{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"c\"}" };
    char folder[4096];
    snprintf(folder, sizeof folder, "%s", test_tmpdir());
    write_inputs(folder, "gpt2", "false");
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        run_write(folder, "chat.jsonl", lines[i]);
        run_result r = run_sluice(folder, "train a.json");
        CHECK_EQ(r.status, 4);
        CHECK_CONTAINS(r.error, "sluice: chat.jsonl");
        CHECK_CONTAINS(r.error, "line 1");
        CHECK_THAT(strchr(r.error, '\n') == r.error + strlen(r.error) - 1, "more than one line: %s", r.error);
        run_free(&r);
    }
}

TEST(a_batch_that_grows_weighs_micro_batches_by_the_targets_of_their_step_on_any_number_of_ranks)
{
    static const char *const ways[] = { "", "--ranks 2", "--ranks 4 --set zero_optimization.stage=3" };
    char folder[4096], hashes[3][256];
    snprintf(folder, sizeof folder, "%s", test_tmpdir());
    write_inputs(folder, "llama", "\"documents\"");
    for (size_t i = 0; i < 3; i++) {
        char arguments[512];
        snprintf(arguments, sizeof arguments,
                 "train a.json --json --set batch_growth.every=1 --set batch_growth.limit=16 %s", ways[i]);
        run_result r = run_sluice(folder, arguments);
        CHECK_THAT(r.status == 0, "%s: %s", arguments, r.error);
        field(r.out, "\"weights_sha256\":\"", hashes[i]);
        CHECK_EQ(strlen(hashes[i]), 64);
        CHECK_STR(hashes[i], hashes[0]);
        run_free(&r);
    }
}

/* chat_cli_test.c: the chat template of a model through the program: known word for word or named by hand, and saved with whatever is
 * trained by it. */
#include <stdlib.h>
#include <unistd.h>

#include "support/plain_files.h"
#include "support/run.h"
#include "test.h"

#define TOKENIZER SLUICE_SOURCE_DIR "/tests/fixtures/chat_tokenizer/tokenizer.json"
#define CHATML                                                                                                         \
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + "   \
    "'\\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
/* All that marks "chatml", and a word more. */
#define UNKNOWN                                                                                                        \
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + "   \
    "'\\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n<hm>' }}{% endif %}"
#define TRAIN                                                                                                          \
    "train --model base --data chat.jsonl --quiet --set steps=1 --set train_batch_size=2 --set model.context=48 "

static const char *in(const char *folder, const char *name, const char *file)
{
    char inside[256];
    snprintf(inside, sizeof inside, "%s/%s", name, file);
    return at(folder, inside);
}

static bool has(const char *folder, const char *name, const char *file)
{
    return access(in(folder, name, file), F_OK) == 0;
}

/* "base": the folder of a small model with a tokenizer, and without a chat template. */
static void prepare(char folder[1024])
{
    snprintf(folder, 1024, "%.1000s", test_tmpdir());
    run_write(folder, "text.txt", "it is water and it is air and what is it but water and air, it is what it is");
    run_write(folder, "chat.jsonl",
              "{\"messages\": [{\"role\": \"user\", \"content\": \"what?\"}, {\"role\": \"assistant\", \"content\": "
              "\"water\"}]}\n{\"messages\": [{\"role\": \"user\", \"content\": \"it?\"}, {\"role\": \"assistant\", "
              "\"content\": \"air\"}]}\n");
    run_write(folder, "base.json",
              "{\"model\": {\"type\": \"llama\", \"layers\": 1, \"heads\": 2, \"width\": 16, \"context\": 64},\n"
              " \"data\": {\"type\": \"text\", \"path\": \"text.txt\", \"tokenizer\": \"" TOKENIZER "\"},\n \"steps\": "
              "1, \"train_batch_size\": 1, \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.01}}, \"save\": "
              "\"base/\"}\n");
    run_must(folder, "train base.json --quiet --set model.context=8");
}

static bool begins_with(const char *path, const char *text)
{
    char *there = run_read(path);
    bool begins = there != NULL && strncmp(there, text, strlen(text)) == 0;
    free(there);
    return begins;
}

static void check_refused(const char *folder, const char *command, const char *says)
{
    run_result r = run_sluice(folder, command);
    CHECK_THAT(r.status == 4, "%s: %d: %s", command, r.status, r.error);
    CHECK_CONTAINS(r.error,
                   "chat_template.jinja holds a chat template that is not known word for word; the nearest that "
                   "is known is \"chatml\", which may write other text");
    CHECK_CONTAINS(r.error, says);
    run_free(&r);
}

TEST(a_chat_template_that_is_not_known_word_for_word_stops_every_command_that_needs_one)
{
    char folder[1024];
    prepare(folder);
    REQUIRE(put(in(folder, "base", "chat_template.jinja"), UNKNOWN));
    check_refused(folder, TRAIN, "data.template");
    check_refused(folder, "eval --model base --data chat.jsonl", "data.template");
    check_refused(folder, "generate --model base --chat --prompt it --tokens 2", "--template");
    REQUIRE(put(at(folder, "p.jsonl"), "{\"messages\": [{\"role\": \"user\", \"content\": \"it\"}]}\n"));
    check_refused(folder, "generate --model base --prompts p.jsonl --tokens 2", "--template");
    /* named by hand, or not needed */
    run_must(folder, "generate --model base --chat --template chatml --prompt it --tokens 2");
    run_must(folder, "generate --model base --prompt it --tokens 2");
    run_must(folder, TRAIN "--set data.template=chatml --out made");
    CHECK(begins_with(in(folder, "made", "chat_template.jinja"), "{#- sluice: chatml -#}\n"));
}

TEST(a_template_named_by_hand_is_saved_with_the_model_the_adapter_and_what_is_merged)
{
    static const char *const files[] = { "tokenizer.json", "tokenizer_config.json", "chat_template.jinja" };
    char folder[1024], a[256];
    prepare(folder);
    run_must(folder, TRAIN "--set data.template=qwen2 --out full --set checkpoint.path=run");
    run_must(folder, TRAIN "--set data.template=qwen2 --lora --out adapter/");
    run_must(folder, "merge base adapter -o merged");
    run_must(folder, "export run -o exported/");
    static const char *const outs[] = { "full", "adapter", "merged", "exported" };
    for (size_t i = 0; i < sizeof outs / sizeof outs[0]; i++) {
        for (size_t k = 0; k < sizeof files / sizeof files[0]; k++)
            CHECK_THAT(has(folder, outs[i], files[k]), "%s has no %s", outs[i], files[k]);
        CHECK(begins_with(in(folder, outs[i], "chat_template.jinja"), "{#- sluice: qwen2 -#}\n"));
        bool adapts = strcmp(outs[i], "adapter") == 0;
        snprintf(a, sizeof a, "generate --model %s%s --chat --prompt it --tokens 2", adapts ? "base --adapter " : "",
                 outs[i]);
        run_must(folder, a);
        snprintf(a, sizeof a, "eval --model %s%s --data chat.jsonl --set model.context=48",
                 adapts ? "base --adapter " : "", outs[i]);
        run_result r = run_sluice(folder, a);
        CHECK_THAT(r.status == 0, "%s: %d: %s", a, r.status, r.error);
        CHECK_CONTAINS(r.error, "chat template qwen2, from ");
        run_free(&r);
    }
    CHECK(!has(folder, "base", "chat_template.jinja"));
    /* what is trained from an adapter keeps its template */
    run_must(folder, TRAIN "--adapter adapter --out again/");
    CHECK(begins_with(in(folder, "again", "chat_template.jinja"), "{#- sluice: qwen2 -#}\n"));
}

TEST(the_configuration_of_a_run_names_the_template_for_generate)
{
    char folder[1024];
    prepare(folder);
    run_write(folder, "run.json",
              "{\"model\": {\"path\": \"base\", \"context\": 48}, \"data\": {\"type\": \"jsonl\", \"path\": "
              "\"chat.jsonl\", \"template\": \"chatml\"}, \"steps\": 1, \"train_batch_size\": 2, \"optimizer\": "
              "{\"type\": \"AdamW\", \"params\": {\"lr\": 0.01}}, \"lora\": {\"rank\": 2, \"targets\": [\"q_proj\"]}, "
              "\"save\": \"tuned/\"}\n");
    run_must(folder, "train run.json --quiet");
    run_result r = run_sluice(folder, "generate run.json --chat --prompt it --tokens 2");
    CHECK_THAT(r.status == 0, "%d: %s", r.status, r.error);
    run_free(&r);
}

TEST(a_published_template_that_is_used_is_copied_as_it_is)
{
    char folder[1024];
    prepare(folder);
    REQUIRE(put(in(folder, "base", "chat_template.jinja"), CHATML "\n"));
    run_must(folder, TRAIN "--out one");
    CHECK(file_is(in(folder, "one", "chat_template.jinja"), CHATML "\n"));
    run_must(folder, TRAIN "--out two --set data.template=chatml");
    CHECK(file_is(in(folder, "two", "chat_template.jinja"), CHATML "\n"));
    run_must(folder, TRAIN "--lora --out adapter/");
    CHECK(file_is(in(folder, "adapter", "chat_template.jinja"), CHATML "\n"));
}

TEST(another_template_takes_the_place_of_all_that_the_folder_has)
{
    char folder[1024];
    prepare(folder);
    REQUIRE(put(in(folder, "base", "chat_template.json"), "{\"chat_template\": \"{{ messages }}\"}"));
    REQUIRE(put(in(folder, "base", "tokenizer_config.json"),
                "{\"zeta\": {\"b\": [1, 2]}, \"chat_template\": \"{{ messages "
                "}}\", \"bos_token\": null, \"alpha\": \"\u00fc\"}"));
    run_must(folder, TRAIN "--set data.template=zephyr --out made");
    CHECK(begins_with(in(folder, "made", "chat_template.jinja"), "{#- sluice: zephyr -#}\n"));
    CHECK(!has(folder, "made", "chat_template.json"));
    /* it writes the token that ends texts, which the folder does not name */
    CHECK(
        file_is(in(folder, "made", "tokenizer_config.json"),
                "{\n  \"zeta\": {\n    \"b\": [\n      1,\n      2\n    ]\n  },\n  \"bos_token\": null,\n  \"alpha\": "
                "\"\u00fc\",\n  \"eos_token\": \"<|endoftext|>\"\n}\n"));
}

TEST(the_date_that_a_model_was_trained_with_is_the_one_that_its_folder_tells)
{
    char folder[1024];
    prepare(folder);
    run_must(folder, TRAIN
             "--set model.context=128 --set data.template=llama3.1 --set 'data.template_date=03 Mar 2025' --out made");
    char *jinja = run_read(in(folder, "made", "chat_template.jinja"));
    CHECK_CONTAINS(jinja, "date_string | default('03 Mar 2025')");
    free(jinja);
    run_result r = run_sluice(
        folder, "train --model made --data chat.jsonl --set model.context=128 --set steps=1 --set train_batch_size=2");
    CHECK_EQ(r.status, 0);
    CHECK_CONTAINS(r.out, "Today Date: 03 Mar 2025\n");
    CHECK_CONTAINS(r.error, "chat template llama3.1, from made/chat_template.jinja");
    run_free(&r);
}

/* The prompt of a conversation in tokens; 0: there is none. */
static int prompt_tokens(const char *folder)
{
    int tokens = 0;
    run_result r = run_sluice(folder, "generate --model base --prompts p.jsonl --template zephyr --tokens 1");
    const char *at = strstr(r.out, "\"prompt_tokens\":");
    if (at != NULL) tokens = atoi(at + strlen("\"prompt_tokens\":"));
    CHECK_THAT(r.status == 0, "%d: %s", r.status, r.error);
    run_free(&r);
    return tokens;
}

TEST(the_end_of_an_answer_is_the_tokenizers_where_the_folder_does_not_name_it)
{
    char folder[1024];
    prepare(folder);
    REQUIRE(put(at(folder, "p.jsonl"),
                "{\"messages\": [{\"role\": \"user\", \"content\": \"it\"}, {\"role\": \"assistant\", \"content\": "
                "\"is\"}, {\"role\": \"user\", \"content\": \"it\"}]}\n"));
    REQUIRE(put(in(folder, "base", "tokenizer_config.json"), "{\"eos_token\": \"<|endoftext|>\"}"));
    int named = prompt_tokens(folder);
    REQUIRE(put(in(folder, "base", "tokenizer_config.json"), "{}"));
    CHECK(named > 0);
    CHECK_EQ(prompt_tokens(folder), named);
    REQUIRE(put(in(folder, "base", "tokenizer_config.json"), "{\"eos_token\": \"\"}")); /* it can see the difference */
    CHECK(prompt_tokens(folder) < named);
}

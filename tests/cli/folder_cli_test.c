/* folder_cli_test.c: a folder of a model as all that a person names: planning, settings beside it, training on ranks. */
#include <jansson.h>
#include <stdlib.h>

#include "support/run.h"
#include "test.h"

#define FOLDERS SLUICE_SOURCE_DIR "/tests/fixtures/families/"

static run_result run_on(const char *format, const char *folder)
{
    char arguments[2048];
    snprintf(arguments, sizeof arguments, format, folder);
    return run_sluice(test_tmpdir(), arguments);
}

static void check_run(const char *format, const char *folder, int status, const char *said)
{
    run_result r = run_on(format, folder);
    CHECK_THAT(r.status == status, "%s: status %d: %s", format, r.status, r.error);
    CHECK_CONTAINS(status == 0 ? r.out : r.error, said);
    run_free(&r);
}

TEST(a_folder_alone_is_planned)
{
    check_run("plan --quiet --model %s", FOLDERS "gemma2", 0, "device");
    check_run("config --model %s", FOLDERS "gemma2", 0, "\"type\": \"gemma2\"");
    check_run("config --model %s", FOLDERS "gpt2", 0, "\"context\": 14");
    check_run("config --model %s", FOLDERS "llama", 0, "\"vocabulary\": \"32\"");
    check_run("plan", "", 2, "CONFIG is missing");
}

TEST(what_is_typed_beside_a_folder_must_agree)
{
    check_run("plan --quiet --model %s --set model.layers=2 --set model.type=llama", FOLDERS "llama", 0, "device");
    check_run("plan --model %s --set model.layers=3", FOLDERS "llama", 2, "model.layers: 3 is given, and ");
    check_run("plan --model %s --set model.layers=3", FOLDERS "llama", 2, "llama/config.json says 2");
    check_run("plan --model %s --set model.type=gpt2", FOLDERS "llama", 2, "says \"llama\"");
    check_run("plan --model %s --set model.vocabulary=bytes", FOLDERS "llama", 2, "says \"32\"");
    check_run("plan --model %s --set model.context=15", FOLDERS "gpt2", 2, "has 14 rows");
    check_run("plan --model %s --set model.dropout=0.1", FOLDERS "llama", 2, "model.dropout has no meaning");
}

TEST(a_folder_that_is_none_is_bad_input)
{
    char folder[1024];
    snprintf(folder, sizeof folder, "%s", test_tmpdir());
    run_write(folder, "config.json", "{\"model_type\": \"llama\",\n\"num_experts\": 8}");
    check_run("plan --model %s", folder, 4, "/config.json:2: num_experts: a mixture of experts is not built in");
    check_run("plan --model %s", "nothing-here", 4, "nothing-here/config.json");
}

/* The index and the headers are read, as they are for training; the weights themselves are not. */
TEST(a_plan_reads_the_index_and_the_headers_of_the_weights)
{
    static const struct {
        const char *index; /* NULL: model.safetensors holds what `message` is about */
        const char *message;
    } rows[] = {
        { "this is no JSON", "model.safetensors.index.json" },
        { "{\"weight_map\": {\"a\": \"missing.safetensors\"}}", "missing.safetensors" },
        { "{\"weight_map\": {\"a\": \"../outside.safetensors\"}}", "../outside.safetensors" },
        { "{\"weight_map\": {\"a\": \"/etc/passwd\"}}", "/etc/passwd" },
        { "{\"weight_map\": {\"a\": \"folder\"}}", "folder" },
        { "{\"weight_map\": {\"a\": \"fifo\"}}", "fifo" },
        { "{\"weight_map\": {\"a\": \"whole.safetensors\"}}", "whole.safetensors" },
        { NULL, "model.safetensors" },
    };
    char folder[1024], model[1100], command[4096];
    snprintf(folder, sizeof folder, "%.1000s", test_tmpdir());
    snprintf(model, sizeof model, "%s/m", folder);
    snprintf(command, sizeof command,
             "cd %s && mkdir -p m/folder && mkfifo m/fifo && cp " FOLDERS "llama/config.json m && cp " FOLDERS
             "llama/model.safetensors m/whole.safetensors && cp m/whole.safetensors outside.safetensors",
             folder);
    REQUIRE(system(command) == 0);
    check_run("plan --quiet --model %s", model, 0, "device"); /* config.json is enough */
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        run_write(folder, rows[i].index != NULL ? "m/model.safetensors.index.json" : "m/model.safetensors",
                  rows[i].index != NULL ? rows[i].index : "short");
        check_run("plan --quiet --model %s", model, 4, rows[i].message);
    }
    snprintf(command, sizeof command, "cd %s/m && rm *.json whole.safetensors && cp " FOLDERS "llama/*.[js]* .",
             folder);
    REQUIRE(system(command) == 0);
    check_run("plan --quiet --model %s", model, 0, "device");
}

TEST(training_a_folder_without_data_is_refused)
{
    check_run("train --model %s", FOLDERS "llama", 2, "data.type is missing");
}

/* 10^30 stands for "no limit" in files of transformers, which writes it by itself: a number like any other where nothing needs an
 * integer, and refused by its key and bounds where something does. */
TEST(integers_beyond_64_bits_in_a_models_files_are_numbers)
{
#define NO_LIMIT "1000000000000000019884624838656"
    static const struct {
        const char *file, *text, *arguments;
        int status;
        const char *said; /* of a refusal */
    } rows[] = {
        { "m/tokenizer_config.json", "{\n  \"model_max_length\": " NO_LIMIT "\n}\n",
          "generate --quiet --model m --prompt a --tokens 2", 0, "" },
        { "data.jsonl", "{\"id\": " NO_LIMIT ", \"text\": \"abcabc\"}\n{\"id\": -" NO_LIMIT ", \"text\": \"abcabd\"}\n",
          "train --quiet --model m --data data.jsonl --set model.context=8 --set steps=1 --set train_batch_size=2", 0,
          "" },
        { "m/generation_config.json", "{\"max_length\": " NO_LIMIT ", \"temperature\": 1}",
          "generate --quiet --model m --prompt a --tokens 2", 0, "" },
        { "m/generation_config.json", "{\"top_k\": " NO_LIMIT "}", "generate --quiet --model m --prompt a --tokens 2",
          4, "m/generation_config.json: top_k: 1e30 is not a whole number from 0 to 2147483647" },
        { "c.json", "{\"model\": {\"type\": \"mlp\"},\n \"steps\": " NO_LIMIT "}", "plan c.json", 2,
          "c.json:2: steps: 1e30 is not allowed; it takes a whole number from 1 to" },
        { "c.json", "{\"model\": {\"type\": \"mlp\"}}", "plan c.json --set steps=" NO_LIMIT, 2,
          "--set: steps: 1e30 is not allowed; it takes a whole number from 1 to" },
        { "m/config.json",
          "{\"model_type\": \"gpt2\", \"n_embd\": 8, \"n_head\": 2,\n \"n_layer\": " NO_LIMIT ", \"vocab_size\": 256}",
          "plan --model m", 4, "m/config.json:2: n_layer: 1e+30 is no whole number from 1 to 2147483647" },
    };
    char folder[1024], command[2048];
    snprintf(folder, sizeof folder, "%.1000s", test_tmpdir());
    snprintf(command, sizeof command, "cp -r " SLUICE_SOURCE_DIR "/tests/fixtures/generate/gpt2 %s/m", folder);
    REQUIRE(system(command) == 0);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        run_write(folder, rows[i].file, rows[i].text);
        run_result r = run_sluice(folder, rows[i].arguments);
        CHECK_THAT(r.status == rows[i].status, "%s: status %d: %s", rows[i].text, r.status, r.error);
        CHECK_CONTAINS(r.error, rows[i].said);
        run_free(&r);
    }
}

TEST(inspecting_a_folder_says_what_it_is_and_whether_it_can_be_used)
{
    char folder[1024];
    snprintf(folder, sizeof folder, "%s", test_tmpdir());
    check_run("inspect %s", FOLDERS "gemma3_text", 0, "family          gemma3_text (Gemma3ForCausalLM)");
    check_run("inspect %s", FOLDERS "gemma3_text", 0, "windows         of 4 in 1 layers");
    check_run("inspect %s", FOLDERS "gemma3_text", 0, "tokenizer       none");
    check_run("inspect %s", FOLDERS "gemma3_text", 0, "here            plan, train, evaluate");
    check_run("inspect %s", FOLDERS "gemma3_text", 0, "BF16     \"model.embed_tokens.weight\" [32, 16]");
    check_run("inspect --json %s", FOLDERS "llama", 0, "\"usable\": true, \"family\": \"llama\", \"layers\": 2");
    run_write(folder, "config.json", "{\"model_type\": \"mamba\"}");
    check_run("inspect %s", folder, 0, "cannot be used: ");
    check_run("inspect --json %s", folder, 0, "model_type: the family \\\"mamba\\\" is not built in");
}

/* The hash of the weights after three steps on random tokens. */
static void train(const char *folder, const char *more, char sha256[65])
{
    char arguments[2048];
    snprintf(arguments, sizeof arguments,
             "train --quiet --json --model %s --set data.type=random_tokens --set data.samples=16 --set steps=3 --set "
             "model.context=12 --set threads=1 --set train_batch_size=4 --set train_micro_batch_size_per_gpu=2 %s",
             folder, more);
    run_result r = run_sluice(test_tmpdir(), arguments);
    const char *found = strstr(r.out, "\"weights_sha256\":\"");
    CHECK_THAT(r.status == 0 && found != NULL, "%s: status %d: %s", arguments, r.status, r.error);
    snprintf(sha256, 65, "%.64s", found != NULL ? found + strlen("\"weights_sha256\":\"") : "");
    run_free(&r);
}

TEST(ranks_stages_and_offloading_do_not_change_a_bit_of_any_family)
{
    static const char *const folders[] = { "gpt2-untied-inner",
                                           "llama-biases-head8",
                                           "llama-yarn-mscale",
                                           "mistral-window",
                                           "qwen2",
                                           "qwen3-biases-tied",
                                           "phi3-partial-window",
                                           "gemma",
                                           "gemma2",
                                           "gemma3_text" };
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        char folder[512], one[65], two[65], host[65];
        snprintf(folder, sizeof folder, "%s%s", FOLDERS, folders[i]);
        train(folder, "", one);
        train(folder, "--ranks 2 --set zero_optimization.stage=3", two);
        train(folder,
              "--set zero_optimization.stage=2 --set zero_optimization.offload_optimizer.device=cpu --set "
              "zero_optimization.offload_param.device=cpu --set activation_checkpointing.mode=recompute",
              host);
        CHECK_STR(two, one);
        CHECK_STR(host, one);
    }
}

/* defaults_cli_test.c: --model, --data, --lora, --adapter and --out are all that a person types: what is chosen is told, can
 * be written out as a file of the same run, and gives way to what is typed. */
#include <stdlib.h>
#include <sys/stat.h>

#include "support/plain_files.h"
#include "support/run.h"
#include "test.h"

/* A folder of a model, m, and data of three kinds. */
static void prepare(char folder[1024])
{
    snprintf(folder, 1024, "%.1000s", test_tmpdir());
    run_write(folder, "text.txt",
              "to be, or not to be, that is the question: whether 'tis nobler in the mind to suffer");
    run_write(folder, "lines",
              "{\"prompt\": \"a\", \"completion\": \"A\"}\n{\"prompt\": \"b\", \"completion\": \"B\"}\n");
    run_write(folder, "chat.jsonl",
              "{\"prompt\": \"shout: a\", \"completion\": \"A\"}\n{\"prompt\": \"shout: b\", \"completion\": \"B\"}\n");
    run_write(folder, "m.json",
              "{\"model\": {\"type\": \"gpt2\", \"layers\": 2, \"heads\": 2, \"width\": 16, \"context\": 32, "
              "\"vocabulary\": \"bytes\"},\n \"data\": {\"type\": \"text\", \"path\": \"text.txt\"}, \"steps\": 1, "
              "\"train_batch_size\": 1, \"threads\": 1, \"save\": \"m/\",\n \"optimizer\": {\"type\": \"AdamW\"}}\n");
    run_result r = run_sluice(folder, "train m.json --quiet");
    CHECK_THAT(r.status == 0, "status %d: %s", r.status, r.error);
    run_free(&r);
}

/* Runs, and looks for a text in what is printed. */
static void check(const char *folder, const char *arguments, int status, const char *text)
{
    run_result r = run_sluice(folder, arguments);
    if (r.status != status || (strstr(r.out, text) == NULL && strstr(r.error, text) == NULL))
        test_fail(__FILE__, __LINE__, "%s: status %d, no \"%s\" in: %s%s", arguments, r.status, text, r.out, r.error);
    run_free(&r);
}

static void hash_of(const char *folder, const char *arguments, char hash[65])
{
    run_result r = run_sluice(folder, arguments);
    const char *found = strstr(r.out, "\"weights_sha256\":\"");
    CHECK_THAT(r.status == 0 && found != NULL, "%s: status %d: %s", arguments, r.status, r.error);
    snprintf(hash, 65, "%.64s", found != NULL ? found + strlen("\"weights_sha256\":\"") : "");
    run_free(&r);
}

TEST(what_is_chosen_is_told_and_gives_way)
{
    static const char *const lines[] = {
        "chosen: lora.rank 16 (",
        "chosen: lora.alpha 32 (",
        "chosen: lora.targets [\"*\"] (",
        "chosen: data.type \"jsonl\" (",
        "chosen: data.tokenizer \"m\" (",
        "chosen: optimizer.params.lr 0.0002 (",
        "chosen: scheduler.type ",
        "chosen: scheduler.params.warmup_ratio 0.03 (",
        "chosen: bf16.enabled ",
        "chosen: train_micro_batch_size_per_gpu 8 (",
        "chosen: epochs 3 (",
        "chosen: gradient_accumulation_steps 2 (",
        "chosen: save \"m-lora/\" (",
        "chosen: data.packing \"documents\" (",
        "no checkpoints are kept: --set checkpoint.path=",
    };
    char folder[1024];
    prepare(folder);
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++)
        check(folder, "config --model m --data chat.jsonl --lora", 0, lines[i]);
    check(folder, "config --model m --data chat.jsonl", 0, "chosen: optimizer.params.lr 2e-05 (");
    check(folder, "config --model m --data chat.jsonl", 0, "chosen: save \"m-tuned/\" (");
    check(folder, "config --model m --data chat.jsonl --lora --set lora.rank=4", 0, "chosen: lora.alpha 8 (");
    check(folder, "config --model m --data chat.jsonl --lora --set lora.rank=0", 2, "lora.enabled asks for adapters");
    check(folder, "config --model m --data chat.jsonl --set train_batch_size=6", 0,
          "chosen: train_micro_batch_size_per_gpu 2 (");
    check(folder, "plan --model m --data chat.jsonl --ranks 7", 0,
          "chosen: gradient_accumulation_steps 3 (21 rows a step)");
    check(folder, "plan --model m --data chat.jsonl --ranks 7 --set train_micro_batch_size_per_gpu=2", 0,
          "chosen: gradient_accumulation_steps 2 (28 rows a step)");
    check(folder, "config --model m --data chat.jsonl --set steps=100", 0, "\"warmup_num_steps\": 3,");
    check(folder, "config --model m --data chat.jsonl --out there", 0, "\"save\": \"there/\"");
    check(folder, "train --model m", 2, "--data FILE");
}

TEST(the_type_of_data_is_told_by_its_file)
{
    char folder[1024];
    prepare(folder);
    check(folder, "config --model m --data text.txt", 0, "chosen: data.type \"text\" (");
    check(folder, "config --model m --data text.txt", 0, "\"unit\": \"tokens\"");
    check(folder, "config --model m --data lines", 0, "data.path begins with a JSON object");
    check(folder, "config --model m --data a.bin", 0, "chosen: data.type \"tokens\" (");
    check(folder, "config --model m --data a.jsonl.gz", 0, "chosen: data.type \"jsonl\" (");
    check(folder, "config m.json --data chat.jsonl --set data.tokenizer=m", 0, "chosen: data.type \"jsonl\" (");
}

TEST(the_precision_follows_the_processor)
{
    char folder[1024];
    prepare(folder);
    setenv("SLUICE_CPU", "scalar", 1);
    check(folder, "config --model m --data chat.jsonl --set device=cpu", 0, "chosen: bf16.enabled false (fp32");
    check(folder, "config --model m --data chat.jsonl --set device=cuda", 0, "chosen: bf16.enabled true (");
    unsetenv("SLUICE_CPU");
}

TEST(the_file_that_config_prints_gives_the_same_run)
{
    char folder[1024], bare[65], file[65];
    prepare(folder);
    hash_of(folder, "train --model m --data chat.jsonl --lora --set train_batch_size=1 --json", bare);
    check(folder, "config --model m --data chat.jsonl --lora --set train_batch_size=1 --out other > all.json", 0,
          "chosen: lora.rank");
    hash_of(folder, "train all.json --json", file);
    CHECK_STR(file, bare);
    check(folder, "config --model m --data chat.jsonl --lora > first.json", 0, "chosen");
    check(folder, "config first.json > second.json && cmp first.json second.json", 0, "");
    check(folder, "eval --model m --adapter m-lora --data chat.jsonl --set data.validation=0.5", 0, "m-lora");
}

TEST(a_folder_that_nobody_named_is_never_written_over)
{
    char folder[1024];
    prepare(folder);
    CHECK(mkdir(at(folder, "m-lora"), 0700) == 0);
    check(folder, "train --model m --data chat.jsonl --lora", 2,
          "m-lora/, where the result would go, is there already");
    check(folder, "plan --model m --data chat.jsonl --lora", 0, "memory at the fullest moment");
    check(folder, "train --model m --data chat.jsonl --lora --out m-lora --quiet", 0, "");
    check(folder, "inspect m-lora/adapter_model.safetensors", 0, "lora_A");
}

/* A model whose rows of 512 tokens take about 7 MiB each where no layer is recomputed. */
#define SHORT_OF "--model s --lora --set device=cpu --set bf16.enabled=false --set activation_checkpointing.mode=none "

static void write_shape(const char *folder)
{
    CHECK(mkdir(at(folder, "s"), 0700) == 0);
    run_write(folder, "s/config.json",
              "{\"model_type\": \"llama\", \"hidden_size\": 64, \"num_hidden_layers\": 2, \"num_attention_heads\": 4,\n"
              " \"num_key_value_heads\": 2, \"intermediate_size\": 256, \"vocab_size\": 1000, \"rms_norm_eps\": 1e-6,\n"
              " \"max_position_embeddings\": 512, \"rope_theta\": 10000.0, \"hidden_act\": \"silu\",\n"
              " \"tie_word_embeddings\": true, \"torch_dtype\": \"float32\"}\n");
}

TEST(the_micro_batch_is_the_largest_that_fits_the_memory)
{
    static const struct {
        const char *memory, *chosen;
    } sizes[] = {
        { "64MiB", "train_micro_batch_size_per_gpu 8 (the most within 8 rows and 8192 tokens; it fits in 64.00 MiB)" },
        { "40MiB", "train_micro_batch_size_per_gpu 4 (the largest that fits in 40.00 MiB)" },
        { "16MiB", "train_micro_batch_size_per_gpu 2 (the largest that fits in 16.00 MiB)" },
        { "16MiB", "gradient_accumulation_steps 8 (16 rows a step)" },
        { "16MiB", "\"train_micro_batch_size_per_gpu\": 2," },
        { "16MiB", "\"train_batch_size\": 16," },
        { "8MiB", "train_micro_batch_size_per_gpu 1 (the largest that fits in 8.00 MiB)" },
        { "2MiB", "train_micro_batch_size_per_gpu 1 (not even the fewest rows fit)" },
        { "16MiB --set train_micro_batch_size_per_gpu=4", "\"train_micro_batch_size_per_gpu\": 4," },
        { "16MiB --set gradient_accumulation_steps=2", "train_micro_batch_size_per_gpu 4 (as many rows as have 2048" },
        { "64MiB --set train_batch_size=6", "train_micro_batch_size_per_gpu 2 (" },
    };
    char folder[1024], arguments[512];
    prepare(folder);
    write_shape(folder);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        snprintf(arguments, sizeof arguments, "config " SHORT_OF "--set memory.device=%s", sizes[i].memory);
        check(folder, arguments, 0, sizes[i].chosen);
    }
    check(folder, "plan " SHORT_OF "--set memory.device=16MiB", 0, "8 micro-batches a step");
    check(folder, "plan " SHORT_OF "--set memory.device=64MiB --ranks 4", 0,
          "chosen: train_micro_batch_size_per_gpu 4 (the most");
    check(folder, "plan " SHORT_OF "--set memory.device=2MiB", 3, "does not fit");
}

/* Otherwise the memory that happens to be free would decide whether a run can go on. */
TEST(a_resumed_run_keeps_the_micro_batch_that_was_chosen)
{
    static const char *const run = "train --model m --data chat.jsonl --lora --out x --set steps=4 --set "
                                   "activation_checkpointing.mode=none --set device=cpu --set checkpoint.every=2 "
                                   "--set bf16.enabled=false "; /* true where the CPU has tiles: half the memory */
    char folder[1024], arguments[1024], whole[65], resumed[65];
    prepare(folder);
    snprintf(arguments, sizeof arguments, "%s --set memory.device=600KiB --set checkpoint.path=a --json", run);
    hash_of(folder, arguments, whole);
    snprintf(arguments, sizeof arguments, "%s --set checkpoint.path=a --resume --json && rm -r '%.500s'", run,
             at(folder, "a/step-4"));
    check(folder, arguments, 0, "chosen: train_micro_batch_size_per_gpu 4 (as the checkpoint has it)");
    snprintf(arguments, sizeof arguments, "%s --set checkpoint.path=a --resume --json", run);
    hash_of(folder, arguments, resumed);
    CHECK_STR(resumed, whole);
}

/* bad_input_test.c: one table of everything that users get wrong: the exit status and what the one line on standard
 * error must say. */
#include <sys/stat.h>

#include "support/run.h"
#include "test.h"

#define MLP                                                                                                            \
    "\"model\": {\"type\": \"mlp\", \"features\": 4, \"hidden\": [8]}, \"data\": {\"type\": \"regression\", "          \
    "\"samples\": 40}"
#define GPT                                                                                                            \
    "\"model\": {\"type\": \"gpt2\", \"layers\": 1, \"heads\": 2, \"width\": 8, \"context\": 16, \"vocabulary\": "     \
    "\"bytes\"}, "                                                                                                     \
    "\"data\": {\"type\": \"text\", \"path\": "
#define TOKENS                                                                                                         \
    "\"model\": {\"type\": \"gpt2\", \"layers\": 1, \"heads\": 2, \"width\": 8, \"context\": 16, \"vocabulary\": "     \
    "300}, "                                                                                                           \
    "\"data\": {\"type\": \"tokens\", \"path\": "
#define REST "\"steps\": 2, \"train_batch_size\": 4, \"threads\": 1, \"optimizer\": {\"type\": \"SGD\"}"

/* `config` is written as bad.json and `arguments` follow "sluice". Good inputs lie beside it: good.json (a small
 * regression), good.safetensors (its weights), other.safetensors (another model's), text.txt (long enough), short.txt,
 * empty.txt, torn.safetensors, a file called file, and locked/ without permission to write. */
static const struct {
    const char *config, *arguments;
    int status;
    const char *part, *second_part; /* of the message; NULL: none needed */
} rows[] = {
    /* command line */
    { NULL, "trian good.json", 2, "unknown command \"trian\"", "did you mean \"train\"?" },
    { NULL, "frobnicate", 2, "unknown command \"frobnicate\"", "sluice --help" },
    { NULL, "help trian", 2, "unknown command \"trian\"", "did you mean \"train\"?" },
    { NULL, "help train plan", 2, "help: unexpected argument \"plan\"", NULL },
    { NULL, "train", 2, "CONFIG is missing", NULL },
    { NULL, "train good.json more", 2, "unexpected argument \"more\"", NULL },
    { NULL, "train good.json --resme", 2, "unknown option \"--resme\"", "did you mean --resume?" },
    { NULL, "train good.json --set", 2, "--set needs a value", NULL },
    { NULL, "train good.json --json=1", 2, "--json takes no value", NULL },
    { NULL, "train good.json -x", 2, "unknown option \"-x\"", NULL },
    { NULL, "train good.json --ranks 3", 2, "train_batch_size: 4 does not divide by", "1 x 3 ranks" },
    { NULL, "train good.json --ranks 2 --set data.features=5", 2, "data.features, which is 5", NULL },
    { NULL, "train good.json --max-restarts 2", 2, "--max-restarts needs checkpoint.path", NULL },
    { NULL, "eval good.json --ranks 2", 2, "unknown option \"--ranks\"", NULL },
    { NULL, "export nowhere", 2, "--out FILE is missing", NULL },
    { NULL, "export nowhere -o a.safetensors --shard-size many", 2, "\"many\" is not a size", NULL },
    { NULL, "train good.json --ranks none", 2, "\"none\" is not a whole number from 1 to 2147483647", NULL },
    { NULL, "train good.json --resume", 2, "checkpoint.path", NULL },
    { NULL, "generate good.json --temperature=-1", 2, "--temperature", "from 0 to 1000000000" },
    { NULL, "generate good.json --temperature 1e10", 2, "--temperature: \"1e10\"", "from 0 to 1000000000" },
    { NULL, "generate good.json --tokens 99999999999", 2, "--tokens: \"99999999999\"", "from 1 to 2147483647" },
    { NULL, "plan good.json --ranks 2147483648", 2, "--ranks: \"2147483648\"", "from 1 to 2147483647" },
    { NULL, "export good.json -o x --shard-size 99999999TiB", 2, "--shard-size", "to 9007199254740992 bytes" },
    { NULL, "train good.json --set train_batch_size=8589934600", 2, "train_batch_size: 8589934600",
      "makes train_micro_batch_size_per_gpu 8589934600, which is at most 2147483647" },
    { NULL, "train good.json --set train_batch_size=8589934600 --set train_micro_batch_size_per_gpu=2", 2,
      "train_batch_size: 8589934600", "makes gradient_accumulation_steps 4294967300, which is at most 1000000" },
    { NULL, "train good.json --set threads=4294967297", 2, "threads: 4294967297", "from 1 to 4096" },
    { NULL, "plan good.json --set memory.device=99999999TiB", 2, "memory.device: \"99999999TiB\"",
      "to 9007199254740992" },
    { NULL, "train good.json --set seed=9223372036854775807", 2, "seed: 9223372036854775807", "to 9007199254740992" },
    { NULL, "train good.json --set steps=null --set epochs=1000000000000 --set data.samples=2000000000", 2,
      "epochs: 1000000000000 epochs of 2000000000 samples", "at most 9007199254740992" },
    { NULL,
      "plan good.json --set gradient_accumulation_steps=1000000 --set train_batch_size=auto --set "
      "train_micro_batch_size_per_gpu=1 --ranks 3000",
      2, "1000000 x 3000 ranks", "at most 2147483647" },
    { NULL, "export run --out x --dtype fp8", 2, "--dtype: \"fp8\" is not one of fp32, bf16, fp16", NULL },
    { NULL, "devices --machine x.json", 2, "--measure", NULL },
    { NULL, "train good.json --set steps", 2, "is not key=value", NULL },
    { NULL, "train good.json --set stepps=3", 2, "--set: unknown key \"stepps\"", "did you mean \"steps\"?" },
    { NULL, "train good.json --set steps=many", 2, "--set: steps: \"many\" is not allowed", "a whole number" },
    /* configuration */
    { NULL, "train missing.json", 2, "missing.json", NULL },
    { "", "train bad.json", 2, "bad.json", NULL },
    { "{\"steps\": 1,,}", "train bad.json", 2, "bad.json", "line 1" },
    { "{\"steps\": 1,\n\"steps\": 2}", "train bad.json", 2, "bad.json", "duplicate" },
    { "[1]", "train bad.json", 2, "bad.json", "object" },
    { "{" MLP ",\n" REST ",\n\"zero_optimisation\": {}}", "train bad.json", 2,
      "bad.json:3: unknown key \"zero_optimisation\"", "did you mean \"zero_optimization\"?" },
    { "{" MLP ",\n" REST ", \"seed\": \"x\"}", "train bad.json", 2, "bad.json:2: seed: \"x\" is not allowed",
      "a whole number" },
    { "{" MLP ", " REST ", \"zero_optimization\": {\"stage\": 7}}", "plan bad.json", 2, "stage: 7 is not allowed",
      "from 0 to 3" },
    { "{" MLP ", " REST ", \"bf16\": {\"enabled\": true}, \"fp16\": {\"enabled\": true}}", "plan bad.json", 2,
      "fp16.enabled: bf16.enabled is true too", "switch one off" },
    { "{" MLP ", " REST ", \"data_types\": {\"param_dtype\": \"bf16\"}}", "plan bad.json", 2, "data_types.param_dtype",
      "not built in yet" },
    { "{" MLP ", \"steps\": 1, \"train_batch_size\": 4}", "plan bad.json", 2, "optimizer.type is missing",
      "\"AdamW\"" },
    { NULL, "train good.json --set steps=0", 2, "steps: 0 is not allowed", "from 1 to 1000000000000" },
    { NULL, "train good.json --set train_micro_batch_size_per_gpu=3", 2, "train_batch_size: 4 does not divide by",
      "train_micro_batch_size_per_gpu 3 x 1 rank" },
    { NULL,
      "plan good.json --ranks 4 --set zero_optimization.partition=weighted --set "
      "zero_optimization.partition_weights=[1,2]",
      2, "partition_weights: it has 2 numbers", "4 ranks" },
    /* their fit with the model */
    { NULL, "train good.json --set data.features=5", 2, "model.features: 4 does not match data.features, which is 5",
      NULL },
    { NULL, "train good.json --set model.type=gpt2", 2, "gpt2 reads tokens", NULL },
    { "{" GPT "\"text.txt\"}, " REST "}", "plan bad.json --set model.heads=3", 2, "heads", "3" },
    { NULL, "train good.json --set 'optimizer.groups=[{\"match\": \"nothing*\", \"lr\": 1}]'", 2, "nothing*", NULL },
    { NULL, "plan good.json --set 'freeze=[\"*\"]'", 2,
      "freeze: its patterns (the first is \"*\") name every parameter", "nothing is left to train" },
    { NULL, "train good.json --set threads=100000", 2, "threads: 100000 is not allowed", "to 4096" },
    /* memory */
    { NULL, "plan good.json --set memory.device=1KiB --set memory.host=1KiB", 3, "", NULL },
    { NULL, "train good.json --set memory.device=1KiB --set memory.host=1KiB", 3, "", NULL },
    { NULL, "train good.json --ranks 2 --set memory.device=1KiB --set memory.host=1KiB", 3, "missing", NULL },
    { NULL, "plan good.json --ranks 2 --set memory.device=1KiB --set memory.host=1KiB", 3, "missing", NULL },
    /* other input */
    { "{" GPT "\"\"}, " REST "}", "train bad.json", 2, "data.path is missing; give the text file", NULL },
    { "{" GPT "\"nowhere.txt\"}, " REST "}", "train bad.json", 4, "nowhere.txt", NULL },
    { "{" GPT "\"empty.txt\"}, " REST "}", "train bad.json", 4, "empty.txt", NULL },
    { "{" GPT "\"short.txt\"}, " REST "}", "train bad.json", 4, "short.txt", NULL },
    { "{" GPT "\"text.txt\"}, " REST "}", "train bad.json --set data.unit=tokens", 2, "data.unit",
      "need data.tokenizer" },
    { "{" GPT "\"text.txt\"}, " REST "}", "train bad.json --set data.tokenizer=nowhere", 2, "model.vocabulary",
      "give a number, or leave it out" },
    { "{" GPT "\"text.txt\"}, " REST "}", "train bad.json --set data.tokenizer=nowhere --set model.vocabulary=300", 4,
      "nowhere", NULL },
    { "{" TOKENS "\"nowhere-*.bin\"}, " REST "}", "train bad.json", 4, "nowhere-*.bin", "no file has that name" },
    { "{" TOKENS "\"text.txt\"}, " REST "}", "train bad.json", 2, "text.txt does not say how wide", "data.dtype" },
    { "{" TOKENS "\"text.txt\"}, " REST "}", "train bad.json --set data.dtype=uint16", 4, "text.txt: token 0 is 24929",
      "vocabulary has 300" },
    { "{" TOKENS "\"short.txt\"}, " REST "}", "train bad.json --set data.dtype=uint16", 4, "short.txt has 3 bytes",
      "no whole number of tokens" },
    { "{" TOKENS "\"empty.txt\"}, " REST "}", "train bad.json --set data.dtype=uint16", 4, "empty.txt is empty", NULL },
    { "{" TOKENS "\"text.txt\"}, " REST "}", "plan bad.json --set model.vocabulary=bytes", 2, "model.vocabulary",
      "token files need a number" },
    { "{" TOKENS "\"te*.txt\"}, " REST "}", "train bad.json --set data.dtype=uint16 --set save=text.txt", 2,
      "would replace data.path", NULL },
    { NULL, "train good.json --set load=nowhere.safetensors", 4, "nowhere.safetensors", NULL },
    { NULL, "train good.json --set load=empty.txt", 4, "empty.txt", NULL },
    { NULL, "train good.json --set load=torn.safetensors", 4, "torn.safetensors", NULL },
    { NULL, "train good.json --set load=other.safetensors", 4, "other.safetensors", NULL },
    { NULL, "eval good.json --weights other.safetensors", 4, "other.safetensors", NULL },
    { NULL, "eval good.json", 4, "--weights", NULL },
    { NULL, "inspect nowhere", 4, "nowhere", NULL },
    { NULL, "inspect torn.safetensors", 4, "torn.safetensors", NULL },
    { NULL, "verify nowhere", 4, "nowhere", NULL },
    { NULL, "verify torn.safetensors", 4, "torn.safetensors", NULL },
    { NULL, "export nowhere -o a.safetensors", 4, "nowhere", NULL },
    { NULL, "plan good.json --machine nowhere.json", 4, "nowhere.json", NULL },
    { NULL, "plan good.json --machine good.json", 4, "good.json", "\"sluice_machine\" is missing" },
    { "{\"sluice_machine\": 1,\n\"gem_flops\": 1}", "plan good.json --machine bad.json", 4,
      "bad.json:2: unknown key \"gem_flops\"", NULL },
    { "{\"sluice_machine\": 1,\n\"gemm_flops\": 0}", "plan good.json --machine bad.json", 4,
      "bad.json:2: gemm_flops must be a number above 0", NULL },
    { "{\"sluice_machine\": 1, \"gemm_flops\": 1}", "plan good.json --machine bad.json", 4,
      "missing: \"device_bytes_per_second\", a number above 0; \"device_bytes\"", NULL },
    { "{\"sluice_machine\": 2}", "plan good.json --machine bad.json", 4, "format 2, this program reads 1", NULL },
    /* output */
    { NULL, "train good.json --set save=nofolder/a.safetensors", 6, "nofolder", NULL },
    { NULL, "train good.json --set checkpoint.path=file/here", 6, "file", NULL },
    { NULL, "train good.json --json >/dev/full", 6, "standard output", NULL },
    { NULL, "train good.json --ranks 2 --json >/dev/full", 6, "standard output", NULL },
    { NULL, "config >/dev/full", 6, "standard output", NULL },
};

static void write_bytes(const char *folder, const char *name, const char *bytes, size_t count)
{
    char path[4400];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    fwrite(bytes, 1, count, f);
    fclose(f);
}

/* The good inputs that the rows lean on. */
static void prepare(const char *folder)
{
    char text[2001];
    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    run_write_config(folder, "good.json", "");
    run_write_config(folder, "other.json", ", \"save\": \"other.safetensors\"");
    run_write(folder, "text.txt", text);
    run_write(folder, "short.txt", "abc");
    run_write(folder, "empty.txt", "");
    run_write(folder, "file", "in the way");
    write_bytes(folder, "torn.safetensors", "\xff\xff\x00\x00\x00\x00\x00\x00{\"a\":", 13);
    run_result r = run_sluice(folder, "train other.json --quiet --set model.hidden=[9]");
    if (r.status != 0) test_fail(__FILE__, __LINE__, "preparing: status %d: %s", r.status, r.error);
    run_free(&r);
}

/* Exactly one line, and it is the program's. */
static bool one_message(const char *error)
{
    const char *newline = strchr(error, '\n');
    return strncmp(error, "sluice: ", 8) == 0 && newline != NULL && newline[1] == '\0';
}

TEST(bad_input_ends_with_its_exit_status_and_one_line_that_helps)
{
    char folder[4096];
    snprintf(folder, sizeof folder, "%s", test_tmpdir());
    prepare(folder);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (rows[i].config != NULL) run_write(folder, "bad.json", rows[i].config);
        run_result r = run_sluice(folder, rows[i].arguments);
        bool right = r.status == rows[i].status && one_message(r.error) && strstr(r.error, rows[i].part) != NULL &&
                     (rows[i].second_part == NULL || strstr(r.error, rows[i].second_part) != NULL);
        CHECK_THAT(right, "row %zu, sluice %s: status %d, expected %d with \"%s\" and \"%s\"; said: %s", i,
                   rows[i].arguments, r.status, rows[i].status, rows[i].part,
                   rows[i].second_part != NULL ? rows[i].second_part : "", r.error);
        run_free(&r);
    }
}

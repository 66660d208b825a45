/* folder_out_cli_test.c: save and export write a model's whole folder, which load reads again to the same bits. */
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "support/plain_files.h"
#include "support/run.h"
#include "test.h"

#define REST                                                                                                           \
    " \"data\": {\"type\": \"text\", \"path\": \"text.txt\"}, \"steps\": 2, \"seed\": 3, \"train_batch_size\": 2,\n"   \
    " \"threads\": 1, \"train_micro_batch_size_per_gpu\": 1, \"optimizer\": {\"type\": \"AdamW\", \"params\": "        \
    "{\"lr\": 0.01}}}\n"

static void prepare(char folder[1024])
{
    snprintf(folder, 1024, "%.1000s", test_tmpdir());
    run_write(folder, "text.txt",
              "to be, or not to be, that is the question: whether 'tis nobler in the mind to suffer");
    run_write(folder, "llama.json",
              "{\"model\": {\"type\": \"llama\", \"layers\": 2, \"heads\": 2, \"width\": 16, \"context\": 8,\n"
              "  \"feed_forward\": 32, \"vocabulary\": \"characters\", \"tie_word_embeddings\": false},\n" REST);
    run_write(folder, "gpt2.json",
              "{\"model\": {\"type\": \"gpt2\", \"layers\": 2, \"heads\": 2, \"width\": 16, \"context\": 8, "
              "\"vocabulary\": \"bytes\"},\n" REST);
    run_write_config(folder, "mlp.json", "");
}

/* The hash of the weights at the end of a run; "" where it fails. */
static const char *hash_of(const char *folder, const char *arguments)
{
    static char hashes[4][65];
    static int turn;
    char *hash = hashes[turn++ % 4];
    run_result r = run_sluice(folder, arguments);
    const char *found = strstr(r.out, "\"weights_sha256\":\"");
    if (r.status != 0 || found == NULL) test_fail(__FILE__, __LINE__, "%s: %d: %s", arguments, r.status, r.error);
    snprintf(hash, 65, "%.64s", found != NULL ? found + strlen("\"weights_sha256\":\"") : "");
    run_free(&r);
    return hash;
}

/* folder/name/file. */
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

static bool is_there(const char *folder, const char *name)
{
    return access(at(folder, name), F_OK) == 0;
}

TEST(a_folder_that_save_or_export_wrote_loads_to_the_same_bits)
{
    static const char *const names[] = { "llama", "gpt2" };
    static const char *const outs[] = { "one", "many", "ranks", "exported" };
    char folder[1024], a[512];
    prepare(folder);
    for (int i = 0; i < 2; i++) {
        snprintf(a, sizeof a, "train %s.json --json --set save=one/ --set checkpoint.path=%s-run", names[i], names[i]);
        const char *hash = hash_of(folder, a);
        snprintf(a, sizeof a, "train %s.json --json --set save=many/ --set save_shard_size=3000", names[i]);
        CHECK_STR(hash_of(folder, a), hash);
        snprintf(a, sizeof a,
                 "train %s.json --json --set save=ranks/ --ranks 2 --set zero_optimization.stage=3 --set "
                 "save_shard_size=5000",
                 names[i]);
        CHECK_STR(hash_of(folder, a), hash);
        snprintf(a, sizeof a, "export %s-run -o exported/ --shard-size 4000", names[i]);
        run_must(folder, a);
        for (int k = 0; k < 4; k++) {
            snprintf(a, sizeof a,
                     "train %s.json --json --set load=%s --set optimizer.params.lr=0 --set "
                     "optimizer.params.weight_decay=0",
                     names[i], outs[k]);
            CHECK_STR(hash_of(folder, a), hash);
            CHECK(has(folder, outs[k], "config.json"));
            CHECK(has(folder, outs[k], "tokenizer.json"));
            CHECK_EQ(has(folder, outs[k], "model.safetensors"), k == 0);
            CHECK_EQ(has(folder, outs[k], "model.safetensors.index.json"), k != 0);
        }
        CHECK(!is_there(folder, "one.tmp") && !is_there(folder, "many.tmp"));
        /* the next model replaces the folders of this one, whose numbers of files differ */
    }
    char *index = run_read(in(folder, "many", "model.safetensors.index.json"));
    CHECK_CONTAINS(index, "\"transformer.h.0.attn.c_attn.weight\": \"model-0000");
    CHECK_CONTAINS(index, "\"total_parameters\": ");
    CHECK(strstr(index, "self_attn") == NULL);
    free(index);
    char *config = run_read(in(folder, "many", "config.json"));
    CHECK_CONTAINS(config, "\"GPT2LMHeadModel\"");
    free(config);
}

TEST(other_files_of_the_folder_that_is_trained_from_are_copied_as_they_are)
{
    char folder[1024];
    prepare(folder);
    run_must(folder, "train llama.json --quiet --set save=in/");
    REQUIRE(put(in(folder, "in", "chat_template.jinja"), "{{ messages }}\n"));
    REQUIRE(put(in(folder, "in", "generation_config.json"), "{\"eos_token_id\":  [1, 2]}"));
    REQUIRE(put(in(folder, "in", "tokenizer.model"), "\001\002"));
    REQUIRE(put(in(folder, "in", "pytorch_model.bin"), "not this one"));
    REQUIRE(put(in(folder, "in", "LICENSE"), "ours"));
    run_must(folder, "train llama.json --quiet --set load=in --set save=made/ --set checkpoint.path=run");
    run_must(folder, "export run --quiet -o exported/");
    /* the model's folder, with weights from elsewhere */
    run_must(folder, "train llama.json --quiet --set save=w.safetensors");
    run_must(folder, "train llama.json --quiet --set model.path=in --set load=w.safetensors --set save=path/ "
                     "--set model.vocabulary=21 --set data.type=random_tokens --set data.path= --set data.samples=8");
    static const char *const outs[] = { "made", "exported", "path" };
    for (int i = 0; i < 3; i++) {
        CHECK(file_is(in(folder, outs[i], "chat_template.jinja"), "{{ messages }}\n"));
        CHECK(file_is(in(folder, outs[i], "generation_config.json"), "{\"eos_token_id\":  [1, 2]}"));
        CHECK(file_is(in(folder, outs[i], "tokenizer.model"), "\001\002"));
        CHECK(file_is(in(folder, outs[i], "LICENSE"), "ours"));
        CHECK(!has(folder, outs[i], "pytorch_model.bin"));
    }
    char *before = run_read(in(folder, "in", "tokenizer.json")),
         *after = run_read(in(folder, "made", "tokenizer.json"));
    CHECK_STR(after, before);
    free(before);
    free(after);
}

/* Three tokens beyond the bytes of "to be": merges "t o" and "b e", and the one that ends texts. */
static void put_pair(const char *folder)
{
    REQUIRE(mkdir(at(folder, "bpe"), 0777) == 0);
    REQUIRE(put(in(folder, "bpe", "vocab.json"), "{\"t\": 0, \"o\": 1, \"b\": 2, \"e\": 3, \"\u0120\": 4, \"to\": 5, "
                                                 "\"be\": 6, \"<|endoftext|>\": 7}"));
    REQUIRE(put(in(folder, "bpe", "merges.txt"), "#version: 0.2\nt o\nb e\n"));
}

TEST(a_model_made_from_scratch_takes_the_files_of_its_tokenizer_along)
{
    char folder[1024];
    prepare(folder);
    put_pair(folder);
    REQUIRE(put(at(folder, "to-be.txt"), "to be to be to be to be to be to be to be to be"));
    const char *by_pair = "train llama.json --quiet --set model.vocabulary=8 --set data.path=to-be.txt --set "
                          "data.tokenizer=bpe --set save=made/ --set checkpoint.path=run";
    run_must(folder, by_pair);
    run_must(folder, "export run --quiet -o exported/");
    static const char *const outs[] = { "made", "exported" };
    for (int i = 0; i < 2; i++) {
        CHECK(has(folder, outs[i], "vocab.json") && has(folder, outs[i], "merges.txt"));
        char *settings = run_read(in(folder, outs[i], "tokenizer_config.json"));
        CHECK_CONTAINS(settings, "\"eos_token\": \"<|endoftext|>\"");
        free(settings);
        char *config = run_read(in(folder, outs[i], "config.json"));
        CHECK_CONTAINS(config, "\"eos_token_id\": 7");
        free(config);
        CHECK(file_is(in(folder, outs[i], "generation_config.json"), "{\n  \"eos_token_id\": 7\n}\n"));
    }
    /* the tokenizer.json that is made of the pair gives the same ids */
    run_must(folder, "tokenize bpe to-be.txt -o pair.bin");
    run_must(folder, "tokenize made/tokenizer.json to-be.txt -o json.bin");
    char *pair = run_read(at(folder, "pair.bin")), *json = run_read(at(folder, "json.bin"));
    CHECK(memcmp(pair, json, 60) == 0);
    free(pair);
    free(json);
    /* another tokenizer than the folder's own takes its place */
    run_must(folder, "tokenize made/tokenizer.json to-be.txt -o t.bin");
    REQUIRE(rename(in(folder, "made", "tokenizer.json"), at(folder, "other.json")) == 0);
    REQUIRE(put(in(folder, "made", "chat_template.jinja"), "of the old tokenizer"));
    run_must(folder,
             "train llama.json --quiet --set model.vocabulary=8 --set data.path=to-be.txt --set load=made --set "
             "data.tokenizer=other.json --set save=second/");
    CHECK(has(folder, "second", "tokenizer.json") && !has(folder, "second", "vocab.json"));
    CHECK(!has(folder, "second", "chat_template.jinja"));
}

TEST(a_folder_that_cannot_be_written_is_refused_before_the_first_step)
{
    static const struct {
        const char *arguments;
        int status;
        const char *part, *second_part;
    } rows[] = {
        { "train llama.json --set load=in --set save=in/", 2, "save: writing in/ would replace load, in",
          "another folder" },
        { "train llama.json --set load=in --set save=in", 2, "which this run reads", "another folder" },
        { "train llama.json --set load=in/model.safetensors --set save=in/", 2, "which this run reads",
          "another folder" },
        { "train llama.json --set load=in --set save=in/model.safetensors", 2, "which this run reads", "another file" },
        { "train llama.json --set load=in --set save=in/new.safetensors", 2, "which this run reads", "another file" },
        { "train llama.json --set save=files/", 2, "holds files, but no config.json", "name a new folder" },
        { "train llama.json --set save=text.txt/", 2, "text.txt", "folder" },
        { "train llama.json --set save=none/out/", 6, "there is no folder", "none" },
        { "train llama.json --set save=a/ --set checkpoint.path=a", 2, "checkpoint.path, a, is or lies in the folder",
          "save" },
        { "train llama.json --set save=a/ --set checkpoint.path=a/run", 2, "is or lies in the folder", "save" },
        { "train llama.json --set save=a/ --trace a/trace.json", 2, "is or lies in the folder", "--trace" },
        { "train mlp.json --set save=a/", 2, "save: a/ is a folder", "ends in .safetensors" },
        { "export run -o run/", 2, "run holds", "name a new folder" },
        { "export run/step-2 -o run/step-2/", 2, "run/step-2", "folder" },
        { "export mlp-run -o new/", 4, "mlp-run/model/config.json is missing", "--out FILE.safetensors" },
    };
    char folder[1024];
    prepare(folder);
    run_must(folder, "train llama.json --quiet --set save=in/ --set checkpoint.path=run");
    run_must(folder, "train mlp.json --quiet --set checkpoint.path=mlp-run");
    REQUIRE(mkdir(at(folder, "files"), 0777) == 0 && put(in(folder, "files", "x"), "x"));
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        run_result r = run_sluice(folder, rows[i].arguments);
        CHECK_THAT(r.status == rows[i].status, "%s: status %d: %s", rows[i].arguments, r.status, r.error);
        CHECK_CONTAINS(r.error, rows[i].part);
        CHECK_CONTAINS(r.error, rows[i].second_part);
        CHECK(strstr(r.out, "step") == NULL);
        run_free(&r);
    }
    CHECK(file_is(in(folder, "files", "x"), "x"));
    CHECK(!is_there(folder, "a") && !is_there(folder, "a.tmp"));
}

/* What was learned is not lost with the folder that it began with. */
TEST(a_result_is_whole_where_the_models_folder_vanishes_during_the_run)
{
    static const struct timespec moment = { 0, 2000000 };
    char folder[1024], command[4096];
    snprintf(folder, sizeof folder, "%.1000s", test_tmpdir());
    run_write(folder, "text.txt",
              "to be, or not to be, that is the question: whether 'tis nobler in the mind to suffer");
    run_write(folder, "m.json",
              "{\"model\": {\"type\": \"gpt2\", \"layers\": 2, \"heads\": 2, \"width\": 16, \"context\": 32, "
              "\"vocabulary\": \"bytes\"},\n \"data\": {\"type\": \"text\", \"path\": \"text.txt\"}, \"steps\": 1, "
              "\"train_batch_size\": 1, \"threads\": 1, \"save\": \"m/\",\n \"optimizer\": {\"type\": \"AdamW\"}}\n");
    run_must(folder, "train m.json --quiet");
    run_write(folder, "m/notes.txt", "kept");
    snprintf(command, sizeof command, "cp -r '%s/m' '%s/before'", folder, folder);
    REQUIRE(system(command) == 0);
    pid_t run = run_start(folder, "train --model m --data text.txt --quiet --out tuned --set steps=40 --set threads=1 "
                                  "--set checkpoint.path=run --set checkpoint.every=1 --set checkpoint.keep=1");
    for (int i = 0; i < 10000 && access(at(folder, "run/latest"), F_OK) != 0; i++) nanosleep(&moment, NULL);
    snprintf(command, sizeof command, "rm -r '%s/m'", folder);
    REQUIRE(system(command) == 0);
    CHECK(access(at(folder, "tuned"), F_OK) != 0); /* otherwise the run was over before */
    run_result r = run_wait(folder, run);
    CHECK_THAT(r.status == 0 && r.error[0] == '\0', "status %d: %s", r.status, r.error);
    run_free(&r);
    snprintf(
        command, sizeof command,
        "cd '%s' && for f in tokenizer.json tokenizer_config.json notes.txt; do cmp before/$f tuned/$f || exit 1; done",
        folder);
    CHECK_EQ(system(command), 0);
    run_must(folder, "eval --model tuned --data text.txt --quiet");
}

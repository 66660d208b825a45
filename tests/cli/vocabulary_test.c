/* vocabulary_test.c: the characters that a model was trained on go with its weights, and every command uses them. */
#include "support/run.h"
#include "test.h"

#define MODEL(vocabulary_)                                                                                             \
    "{\"model\": {\"type\": \"gpt2\", \"layers\": 1, \"heads\": 2, \"width\": 16, \"context\": 8, \"vocabulary\": "    \
    "\"" vocabulary_ "\"},\n"
#define REST                                                                                                           \
    " \"data\": {\"type\": \"text\", \"path\": \"a.txt\"}, \"steps\": 60, \"seed\": 7, \"train_batch_size\": 8,\n"     \
    " \"threads\": 1, \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.02}}"

static void write_repeated(const char *folder, const char *name, const char *word)
{
    char text[2048] = "";
    for (int i = 0; i < 60; i++) strcat(text, word);
    run_write(folder, name, text);
}

/* A model trained on "abcdefgh ": a.json, a.safetensors, the checkpoints in run; and other texts. */
static void prepare(char folder[4096])
{
    snprintf(folder, 4096, "%s", test_tmpdir());
    write_repeated(folder, "a.txt", "abcdefgh ");
    write_repeated(folder, "b.txt", "ABCDEFGH ");
    write_repeated(folder, "part.txt", "hgf fgh ");
    run_write(folder, "a.json",
              MODEL("characters") REST
              ", \"checkpoint\": {\"path\": \"run\", \"every\": 60}, \"save\": \"a.safetensors\"}\n");
    run_result r = run_sluice(folder, "train a.json --quiet");
    if (r.status != 0) test_fail(__FILE__, __LINE__, "training: %s", r.error);
    run_free(&r);
}

static double loss_of(const char *folder, const char *arguments)
{
    double loss = NAN;
    run_result r = run_sluice(folder, arguments);
    if (r.status != 0 || sscanf(r.out, "training loss %lf", &loss) != 1)
        test_fail(__FILE__, __LINE__, "%s: status %d: %s%s", arguments, r.status, r.out, r.error);
    run_free(&r);
    return loss;
}

TEST(a_text_with_other_characters_than_the_model_has_is_refused_everywhere)
{
    static const char *const commands[] = {
        "eval a.json --set data.path=b.txt --weights a.safetensors",
        "eval a.json --set data.path=b.txt",
        "eval a.json --set data.path=b.txt --weights exported.safetensors",
        "train a.json --set data.path=b.txt --set load=a.safetensors --set save=b.safetensors --set "
        "checkpoint.path=other",
        "train a.json --ranks 2 --set data.path=b.txt --set load=a.safetensors --set save=b.safetensors --set "
        "checkpoint.path=other",
        "train a.json --set data.path=b.txt --resume --set steps=70",
        "plan a.json --set data.path=b.txt --set load=a.safetensors",
    };
    char folder[4096];
    prepare(folder);
    run_result made = run_sluice(folder, "export run --out exported.safetensors");
    CHECK_EQ(made.status, 0);
    run_free(&made);
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        run_result r = run_sluice(folder, commands[i]);
        CHECK_EQ(r.status, 4);
        CHECK_CONTAINS(r.error,
                       "b.txt, line 1: the model was trained on 9 characters, and the text has 8 that are not");
        CHECK_CONTAINS(r.error, "\"A\" (U+0041), \"B\" (U+0042)");
        run_free(&r);
    }
    run_write(folder, "late.txt", "abc abc\nabc Zbc \xe2\x82\xac abc abc abc");
    run_result r = run_sluice(folder, "eval a.json --set data.path=late.txt");
    CHECK_EQ(r.status, 4);
    CHECK_CONTAINS(r.error, "late.txt, line 1: the model");
    CHECK_CONTAINS(r.error, "\"\\u000a\" (U+000A), \"Z\" (U+005A), \"\xe2\x82\xac\" (U+20AC), first at byte 7");
    run_free(&r);
}

/* "hgf fgh" has 4 of the 9 characters: of its own they would be 0 to 3, and the model has 9. */
TEST(a_text_with_fewer_characters_keeps_the_ids_of_the_model)
{
    char folder[4096];
    prepare(folder);
    CHECK(loss_of(folder, "eval a.json") < 0.1);
    CHECK(loss_of(folder, "eval a.json --set data.path=part.txt") > 1);
    run_write(folder, "same.txt", "defgh abcdefgh abcdefgh abcdefgh");
    CHECK(loss_of(folder, "eval a.json --set data.path=same.txt --weights a.safetensors") < 0.1);
    run_result r = run_sluice(folder, "train a.json --quiet --resume --set data.path=part.txt --set steps=61");
    CHECK_EQ(r.status, 0);
    CHECK_CONTAINS(r.error, "the data set differs");
    run_free(&r);
    /* what went on is still a model of 9 characters */
    r = run_sluice(folder, "inspect run/step-61");
    CHECK_CONTAINS(r.out, "vocabulary \"characters\": \" abcdefgh\"");
    run_free(&r);
}

TEST(text_is_generated_without_the_text_that_was_trained_on)
{
    static const char *const commands[] = {
        "generate a.json --set data.path=nowhere.txt --prompt abc --tokens 9 --temperature 0",
        "generate a.json --set data.path=b.txt --prompt abc --tokens 9 --temperature 0",
        "generate a.json --set data.path= --prompt abc --tokens 9 --temperature 0 --weights a.safetensors",
    };
    char folder[4096];
    prepare(folder);
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        run_result r = run_sluice(folder, commands[i]);
        CHECK_EQ(r.status, 0);
        CHECK_STR(r.out, "abcdefgh abc\n");
        CHECK_CONTAINS(r.error, "note: the context of 8 tokens is full");
        run_free(&r);
    }
    run_result r = run_sluice(folder, "generate a.json --set data.path=b.txt --prompt ABC");
    CHECK_EQ(r.status, 4);
    CHECK_CONTAINS(r.error, "\"A\" (U+0041) at byte 0 is not among the 9 characters the model was trained on");
    run_free(&r);
}

TEST(bytes_and_characters_are_not_mixed)
{
    char folder[4096];
    prepare(folder);
    run_write(folder, "bytes.json", MODEL("bytes") REST ", \"save\": \"bytes.safetensors\"}\n");
    run_result r = run_sluice(folder, "train bytes.json --quiet --set steps=2");
    CHECK_EQ(r.status, 0);
    run_free(&r);
    r = run_sluice(folder, "inspect bytes.safetensors");
    CHECK_CONTAINS(r.out, "\"sluice.vocabulary\" = \"bytes\"");
    run_free(&r);
    r = run_sluice(folder, "eval a.json --weights bytes.safetensors");
    CHECK_EQ(r.status, 2);
    CHECK_CONTAINS(r.error,
                   "bytes.safetensors was trained on bytes, and the configuration reads the text as characters");
    CHECK_CONTAINS(r.error, "set model.vocabulary to \"bytes\"");
    run_free(&r);
    r = run_sluice(folder, "generate a.json --set model.vocabulary=bytes");
    CHECK_EQ(r.status, 2);
    CHECK_CONTAINS(r.error, "run was trained on characters");
    run_free(&r);
    r = run_sluice(folder, "generate bytes.json --set data.path=nowhere.txt --tokens 3");
    CHECK_EQ(r.status, 0);
    run_free(&r);
}

/* Makes a weights file one of a program that keeps no vocabulary. */
static void cut_metadata(const char *folder, const char *name)
{
    char path[4400], *at;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "r+b");
    char header[512] = "";
    if (f == NULL || fread(header, 1, sizeof header - 1, f) < 100) test_fail(__FILE__, __LINE__, "%s", path);
    /* keys that nobody knows, of the same length */
    for (int i = 0; i < 2 && (at = memmem(header, sizeof header, "\"sluice.", 8)) != NULL; i++)
        memcpy(at, "\"somebod", 8);
    if (f != NULL && (fseek(f, 0, SEEK_SET) != 0 || fwrite(header, 1, sizeof header - 1, f) == 0 || fclose(f) != 0))
        test_fail(__FILE__, __LINE__, "%s", path);
}

TEST(weights_that_keep_no_vocabulary_are_used_as_before_with_a_warning)
{
    char folder[4096];
    prepare(folder);
    cut_metadata(folder, "a.safetensors");
    CHECK(loss_of(folder, "eval a.json --weights a.safetensors") < 0.1);
    run_result r = run_sluice(folder, "eval a.json --weights a.safetensors");
    CHECK_EQ(r.status, 0);
    CHECK_CONTAINS(r.error, "a.safetensors does not say which characters its token ids stand for");
    CHECK_CONTAINS(r.error, "those of a.txt");
    run_free(&r);
    r = run_sluice(folder, "train a.json --quiet --ranks 2 --set load=a.safetensors --set save=b.safetensors --set "
                           "steps=1 --set checkpoint.path=");
    CHECK_EQ(r.status, 0);
    const char *first = strstr(r.error, "does not say which characters");
    CHECK(first != NULL && strstr(first + 1, "does not say which characters") == NULL);
    run_free(&r);
}

TEST(exported_weights_keep_the_vocabulary_as_saved_ones_do)
{
    char folder[4096], command[8400];
    prepare(folder);
    run_result r = run_sluice(folder, "export run --out exported.safetensors");
    CHECK_EQ(r.status, 0);
    run_free(&r);
    snprintf(command, sizeof command, "cmp '%s/exported.safetensors' '%s/a.safetensors'", folder, folder);
    CHECK_EQ(system(command), 0);
    r = run_sluice(folder, "inspect --json run/step-60");
    CHECK_CONTAINS(r.out, "\"vocabulary\": {\"unit\": \"characters\", \"characters\": \" abcdefgh\"}");
    run_free(&r);
}

/* ---- texts that may not be what they are read as ---- */

TEST(a_number_of_tokens_beyond_those_of_the_text_is_taken_with_a_warning)
{
    char folder[4096];
    prepare(folder);
    static const struct {
        const char *arguments;
        int status;
        const char *part, *second_part;
    } rows[] = {
        { "plan a.json --set model.vocabulary=32000", 0, "token ids 0 to 255: the 31744 others are never used",
          "data.type to \"random_tokens\"" },
        { "train a.json --quiet --set checkpoint.path= --set steps=1 --set model.vocabulary=300", 0,
          "model.vocabulary is 300, but the text is read as bytes", "Set model.vocabulary to \"bytes\"" },
        { "plan a.json --set model.vocabulary=10 --set data.unit=characters", 0, "token ids 0 to 8: the 1 others",
          "Set model.vocabulary to \"characters\"" },
        { "plan a.json --set model.vocabulary=8 --set data.unit=characters", 2, "the text has 9 different tokens",
          "\"characters\"" },
        { "plan a.json --set model.vocabulary=255", 2, "bytes have 256 values", "" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        run_result r = run_sluice(folder, rows[i].arguments);
        CHECK_EQ(r.status, rows[i].status);
        CHECK_CONTAINS(r.error, rows[i].part);
        CHECK_CONTAINS(r.error, rows[i].second_part);
        run_free(&r);
    }
    run_result r = run_sluice(folder, "plan a.json --set model.vocabulary=256");
    CHECK_EQ(r.status, 0);
    CHECK(strstr(r.error, "warning") == NULL);
    run_free(&r);
}

TEST(a_file_that_is_no_plain_text_is_read_with_a_warning_that_says_what_to_do)
{
    static const struct {
        const char *name, *text, *part, *second_part;
    } rows[] = {
        { "a.jsonl", "{\"text\": \"once\"}\n{\"text\": \"upon\"}\n", "a.jsonl is JSON text", "data.type \"jsonl\"" },
        { "a.json.data.json", "[1, 2, 3, 4, 5, 6, 7, 8, 9]", "is JSON text", "keys, quotes and escapes" },
        { "a.csv", "id,text\n1,once\n2,upon a time\n", "a.csv is a table (CSV)", "one column" },
        { "train.bin", "0123456789abcdef", "train.bin is binary", "not as token ids" },
        { "a.parquet", "PAR1 and then much more of it", "a.parquet is a Parquet file", "column of texts" },
        { "a.npy", "0123456789abcdef", "a.npy is a NumPy array", "not as token ids" },
        { "a.txt.gz", "\037\213 0123456789abcdef", "a.txt.gz is compressed (gzip)", "gunzip" },
        { "a.zip", "PK\003\004 0123456789abcdef", "a.zip is a zip archive", "unzip" },
        { "a.zst", "0123456789abcdef", "a.zst is compressed (zstd)", "unzstd" },
        { "pulled.txt", "version https://git-lfs.github.com/spec/v1\noid 12\n", "Git LFS pointer", "git lfs pull" },
    };
    char folder[4096], arguments[512];
    prepare(folder);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        run_write(folder, rows[i].name, rows[i].text);
        snprintf(
            arguments, sizeof arguments,
            "train a.json --quiet --ranks 2 --set model.vocabulary=bytes --set checkpoint.path= --set steps=1 --set "
            "data.path=%s",
            rows[i].name);
        run_result r = run_sluice(folder, arguments);
        CHECK_EQ(r.status, 0);
        CHECK_CONTAINS(r.error, rows[i].part);
        CHECK_CONTAINS(r.error, "it is read as plain text: ");
        CHECK_CONTAINS(r.error, rows[i].second_part);
        const char *first = strstr(r.error, "warning: data.path");
        CHECK(first != NULL && strstr(first + 1, "warning: data.path") == NULL); /* once, not for every rank */
        run_free(&r);
    }
    run_result r = run_sluice(folder, "plan a.json");
    CHECK(strstr(r.error, "warning") == NULL);
    run_free(&r);
}

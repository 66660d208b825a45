/* shards_cli_test.c: weights in several files behind an index are weights like any other, for every command that reads some. */
#include <sys/stat.h>
#include <unistd.h>

#include "format/safetensors.h"
#include "support/run.h"
#include "test.h"

#define REST                                                                                                           \
    " \"data\": {\"type\": \"random_tokens\", \"samples\": 16}, \"steps\": 2, \"seed\": 3, \"train_batch_size\": 2,\n" \
    " \"threads\": 2, \"optimizer\": {\"type\": \"SGD\", \"params\": {\"lr\": 0.5}}}\n"

static void make_folder(const char *folder, const char *name)
{
    char path[4400];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    CHECK_EQ(mkdir(path, 0777), 0);
}

/* llama.json and gpt2.json, and the weights of each after two steps: llama.safetensors and shards in llama/, likewise gpt2;
 * shards have 2000 bytes, in bf16 where `dtype` says so. */
static void prepare(char folder[4096], const char *dtype)
{
    static const char *const names[] = { "llama", "gpt2" };
    char arguments[512];
    snprintf(folder, 4096, "%s", test_tmpdir());
    run_write(folder, "llama.json",
              "{\"model\": {\"type\": \"llama\", \"layers\": 2, \"heads\": 2, \"width\": 16, \"context\": 8,\n"
              "  \"feed_forward\": 32, \"vocabulary\": \"20\"},\n" REST);
    run_write(folder, "gpt2.json",
              "{\"model\": {\"type\": \"gpt2\", \"layers\": 2, \"heads\": 2, \"width\": 16, \"context\": 8, "
              "\"vocabulary\": \"20\"},\n" REST);
    for (int i = 0; i < 2; i++) {
        make_folder(folder, names[i]);
        snprintf(arguments, sizeof arguments,
                 "train %s.json --quiet --set checkpoint.path=%s-run --set save=%s.safetensors --set save_dtype=%s",
                 names[i], names[i], names[i], dtype);
        run_must(folder, arguments);
        snprintf(arguments, sizeof arguments,
                 "export %s-run --quiet --out %s/model.safetensors --shard-size 2000 --dtype %s", names[i], names[i],
                 dtype);
        run_must(folder, arguments);
    }
}

/* The standard output of a command that must succeed; the caller frees. */
static char *output_of(const char *folder, const char *arguments)
{
    run_result r = run_sluice(folder, arguments);
    if (r.status != 0) test_fail(__FILE__, __LINE__, "%s: status %d: %s", arguments, r.status, r.error);
    char *out = strdup(r.out);
    run_free(&r);
    return out;
}

/* "weights_sha256":"..." of the last event; "" where there is none. */
static void hash_in(const char *events, char out[65])
{
    const char *found = strstr(events, "\"weights_sha256\":\"");
    out[0] = '\0';
    if (found != NULL) snprintf(out, 65, "%.64s", found + strlen("\"weights_sha256\":\""));
}

TEST(shards_load_to_the_bits_of_the_whole_file_on_any_number_of_ranks)
{
    static const char *const weights[] = { "%s.safetensors", "%s", "%s/model.safetensors.index.json" };
    static const char *const how[] = {
        "", "--ranks 2 --set zero_optimization.stage=3",
        "--ranks 2 --set zero_optimization.stage=3 --set zero_optimization.partition=block",
        "--ranks 3 --set train_batch_size=6 --set zero_optimization.stage=1"
    };
    static const char *const names[] = { "llama", "gpt2" }, *const dtypes[] = { "fp32", "bf16" };
    char folder[4096], arguments[512], load[64], first[65], other[65];
    for (int d = 0; d < 2; d++) {
        prepare(folder, dtypes[d]);
        for (int n = 0; n < 2; n++)
            for (size_t h = 0; h < sizeof how / sizeof how[0]; h++) {
                first[0] = '\0';
                for (size_t w = 0; w < sizeof weights / sizeof weights[0]; w++) {
                    snprintf(load, sizeof load, weights[w], names[n]);
                    snprintf(arguments, sizeof arguments,
                             "train %s.json --json --set load=%s --set optimizer.params.lr=0 %s", names[n], load,
                             how[h]);
                    char *events = output_of(folder, arguments);
                    hash_in(events, other);
                    CHECK_EQ(strlen(other), 64);
                    if (w == 0) memcpy(first, other, sizeof first);
                    CHECK_STR(other, first);
                    free(events);
                }
            }
    }
}

TEST(every_command_that_reads_weights_takes_shards)
{
    char folder[4096];
    prepare(folder, "fp32");
    char *whole = output_of(folder, "eval llama.json --weights llama.safetensors");
    char *shards = output_of(folder, "eval llama.json --weights llama");
    *strchrnul(whole, ';') = *strchrnul(shards, ';') = '\0'; /* the name of the weights follows */
    CHECK_STR(shards, whole);
    free(whole);
    free(shards);
    char *seen = output_of(folder, "inspect llama");
    CHECK_CONTAINS(seen, "llama: safetensors, ");
    CHECK_CONTAINS(seen, " files, 20 tensors, ");
    CHECK_CONTAINS(seen, "\"model.norm.weight\" [16] model-000");
    free(seen);
    seen = output_of(folder, "inspect --json llama/model.safetensors.index.json");
    CHECK_CONTAINS(
        seen,
        "{\"type\": \"weights\", \"path\": \"llama/model.safetensors.index.json\", \"files\": [\"model-00001-of-");
    CHECK_CONTAINS(seen, "\"file\": \"model-00001-of-");
    free(seen);
    seen = output_of(folder, "verify llama");
    CHECK_CONTAINS(seen, "llama/model-00001-of-");
    CHECK_CONTAINS(seen, "llama/model.safetensors.index.json: ok: index of ");
    free(seen);
    run_result r = run_sluice(folder, "export llama/model.safetensors.index.json --out x.safetensors");
    CHECK_EQ(r.status, 4);
    CHECK_CONTAINS(r.error, "is a weights file already");
    run_free(&r);
}

/* The path of gpt2's first file. */
static void find_first(const char *folder, char path[4400])
{
    int files = 0;
    do snprintf(path, 4400, "%s/gpt2/model-00001-of-%05d.safetensors", folder, ++files);
    while (access(path, F_OK) != 0 && files < 100);
}

/* The same tensors, as integers, or with another number of rows. */
static void spoil(const char *path, bool integers)
{
    static const char zeros[1 << 16];
    sl_st_file *f;
    sl_st_writer *w;
    sl_st_tensor t[32];
    REQUIRE_OK(sl_st_open(path, &f));
    for (int64_t i = 0; i < f->tensor_count; i++) {
        t[i] = f->tensors[i];
        if (integers) t[i].dtype = SL_ST_I64;
        if (!integers) t[i].dim[0]++;
    }
    int64_t count = f->tensor_count;
    REQUIRE_OK(sl_st_write_begin(path, t, count, NULL, 0, &w));
    for (int64_t i = 0; i < count; i++)
        REQUIRE_OK(sl_st_write_data(w, zeros, (size_t)sl_st_elements(&t[i]) * sl_st_dtype_bytes(t[i].dtype)));
    REQUIRE_OK(sl_st_write_finish(w));
    sl_st_close(f);
}

TEST(shards_of_other_types_and_shapes_are_refused_by_tensor)
{
    static const char *const faults[] = { "this model's has [", "has dtype I64; weights are" };
    for (int integers = 0; integers < 2; integers++) {
        char folder[4096], path[4400];
        prepare(folder, "fp32");
        find_first(folder, path);
        spoil(path, integers);
        run_result r = run_sluice(folder, "eval gpt2.json --weights gpt2");
        CHECK_EQ(r.status, 4);
        CHECK_CONTAINS(r.error, "gpt2/model-00001-of-");
        CHECK_CONTAINS(r.error, "tensor \"");
        CHECK_CONTAINS(r.error, faults[integers]);
        run_free(&r);
    }
}

TEST(bad_shards_are_refused_by_every_command_with_one_message)
{
    static const char *const commands[] = { "eval gpt2.json --weights gpt2", "inspect gpt2", "verify gpt2",
                                            "train gpt2.json --set load=gpt2/model.safetensors.index.json",
                                            "train gpt2.json --ranks 2 --set load=gpt2" };
    char folder[4096], path[4400], kept[4400];
    struct stat is;
    prepare(folder, "fp32");
    find_first(folder, path);
    snprintf(kept, sizeof kept, "%s/kept", folder);
    REQUIRE(access(path, F_OK) == 0);
    for (int fault = 0; fault < 2; fault++) {
        if (fault == 0) REQUIRE(rename(path, kept) == 0);
        if (fault == 1) REQUIRE(rename(kept, path) == 0 && stat(path, &is) == 0 && truncate(path, is.st_size - 1) == 0);
        for (size_t c = 0; c < sizeof commands / sizeof commands[0]; c++) {
            run_result r = run_sluice(folder, commands[c]);
            CHECK_EQ(r.status, 4);
            CHECK_CONTAINS(r.error, "gpt2/model-00001-of-");
            CHECK_CONTAINS(r.error, fault == 0 ? "is missing" : "bytes of data");
            const char *end = strchr(r.error, '\n');
            CHECK_THAT(end != NULL && end[1] == '\0', "%s says more than a line: %s", commands[c], r.error);
            run_free(&r);
        }
    }
}

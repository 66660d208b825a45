/* Files that are not what was asked for are called by their names. */
#include "format/file_kind.h"

#include "core/output.h"
#include "format/safetensors.h"
#include "test.h"

#define BYTES(text_) text_, sizeof text_ - 1

/* What a file that begins with these bytes is called as weights; NULL: not known. */
static const struct {
    const char *head;
    size_t bytes;
    const char *what, *advice;
} weights[] = {
    { BYTES("PK\003\004........................\020\000..archive/data.pkl"), "PyTorch pickle",
      "save_file(torch.load(" },
    { BYTES("PK\003\004........................\020\000..weights.npy"), "NumPy archive", "safetensors.numpy" },
    { BYTES("PK\003\004........................\020\000..readme.txt"), "zip archive", "unpack" },
    { BYTES("\200\002}q\000X"), "Python pickle (torch.save)", "torch.load" },
    { BYTES("\200\004\225\010\000\000\000\000\000\000\000"), "Python pickle", "torch.load" },
    { BYTES("GGUF\003\000\000\000"), "GGUF", "safetensors it was made from" },
    { BYTES("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a"), "Git LFS pointer", "git lfs pull" },
    { BYTES("<!doctype html><html>"), "web page", "download failed" },
    { BYTES("<HTML>"), "web page", "download failed" },
    { BYTES("\223NUMPY\001\000"), "NumPy array", "safetensors.numpy" },
    { BYTES("\211HDF\r\n\032\n"), "HDF5", "safetensors" },
    { BYTES("{\n  \"metadata\": {\"total_size\": 5},\n  \"weight_map\": {"), "index of weights in several files",
      ".index.json" },
    { BYTES("{\"architectures\": [\"GPT2LMHeadModel\"]}"), "JSON text", ".safetensors file" },
    { BYTES("\037\213\010\000"), "gzip", "gunzip" },
    { BYTES("\050\265\057\375"), "zstd", "unzstd" },
    { BYTES("PAR1"), "Parquet", "safetensors" },
    { BYTES("step-100\n"), "names the newest checkpoint of its folder", "give the folder" },
    { BYTES("global_step300"), "newest checkpoint of DeepSpeed", "zero_to_fp32.py" },
    { BYTES("\200\002\000\000\000\000\000\000x"), NULL, NULL }, /* the length of a safetensors header */
    { BYTES("\200"), NULL, NULL },
    { BYTES(""), NULL, NULL },
    { BYTES("hello"), NULL, NULL },
};

TEST(files_that_are_no_weights_are_told_by_their_first_bytes)
{
    for (size_t i = 0; i < sizeof weights / sizeof weights[0]; i++) {
        const sl_file_kind *kind = sl_weights_file_kind(weights[i].head, weights[i].bytes);
        if (weights[i].what == NULL) {
            CHECK_THAT(kind == NULL, "row %zu is taken for %s", i, kind != NULL ? kind->what : "");
            continue;
        }
        CHECK_THAT(kind != NULL, "row %zu, %s, is not known", i, weights[i].what);
        if (kind == NULL) continue;
        CHECK_CONTAINS(kind->what, weights[i].what);
        CHECK_CONTAINS(kind->as_weights, weights[i].advice);
    }
}

TEST(the_reader_says_what_a_file_is_that_is_no_safetensors_file)
{
    char path[4200];
    sl_st_file *f;
    snprintf(path, sizeof path, "%s/model", test_tmpdir());
    for (size_t i = 0; i < sizeof weights / sizeof weights[0]; i++) {
        REQUIRE_OK(sl_file_replace(path, weights[i].head, weights[i].bytes));
        CHECK_EQ(sl_st_open(path, &f), SLUICE_ERR_INPUT);
        CHECK_CONTAINS(sluice_error(), path);
        CHECK_CONTAINS(sluice_error(), weights[i].what != NULL ? weights[i].what : "safetensors: ");
    }
}

/* A header whose length looks like a magic is still judged as a header. */
TEST(a_damaged_safetensors_file_is_not_taken_for_something_else)
{
    char path[4200];
    sl_st_file *f;
    snprintf(path, sizeof path, "%s/model", test_tmpdir());
    REQUIRE_OK(sl_file_replace(path, "{\"\"\"\"\"\"\"{}", 10)); /* 8 bytes of length, then a brace */
    CHECK_EQ(sl_st_open(path, &f), SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), "header of 2459565876494606971 bytes");
}

TEST(texts_are_told_by_their_first_bytes_and_by_their_names)
{
    static const struct {
        const char *path, *head, *what, *advice; /* what NULL: nothing is odd */
    } rows[] = {
        { "a.txt", "once upon a time", NULL, NULL },
        { "a.txt", "[Enter a ghost.]", NULL, NULL },
        { "a.c", "{ int x; }", NULL, NULL },
        { "page.html", "<html>", NULL, NULL },
        { "noending", "x", NULL, NULL },
        { "gz", "x", NULL, NULL },
        { "a.jsonl", "{\"text\": \"x\"}", "JSON", "data.type \"jsonl\"" },
        { "a.JSON", "[1]", "JSON", "keys, quotes" },
        { "a.csv", "a,b\n", "CSV", "one column" },
        { "a.tsv", "a\tb\n", "CSV", "one column" },
        { "a.parquet", "PAR1", "Parquet", "plain text file" },
        { "a.txt", "PAR1", "Parquet", "plain text file" },
        { "train.bin", "\001\002", "binary", "not as token ids" },
        { "a.npy", "\223NUMPY", "NumPy", "not as token ids" },
        { "a.gz", "\037\213", "gzip", "gunzip" },
        { "a", "\037\213", "gzip", "gunzip" },
        { "a.zip", "PK\003\004", "zip", "unzip" },
        { "a.zst", "x", "zstd", "unzstd" },
        { "a.bz2", "BZh9", "bzip2", "bunzip2" },
        { "a.xz", "x", "xz", "unxz" },
        { "w.safetensors", "x", "weights file", "no text" },
        { "input.txt", "version https://git-lfs.github.com/spec/v1\n", "Git LFS pointer", "git lfs pull" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const sl_file_kind *kind = sl_text_file_kind(rows[i].path, rows[i].head, strlen(rows[i].head));
        CHECK_THAT((kind == NULL) == (rows[i].what == NULL), "row %zu, %s: %s", i, rows[i].path,
                   kind != NULL ? kind->what : "nothing");
        if (kind == NULL || rows[i].what == NULL) continue;
        CHECK_CONTAINS(kind->what, rows[i].what);
        CHECK_CONTAINS(kind->as_text, rows[i].advice);
    }
}

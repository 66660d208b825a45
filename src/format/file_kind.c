/* file_kind.c: the table of kinds. */
#include "format/file_kind.h"

#include <stdbool.h>
#include <string.h>
#include <strings.h>

#define MAGIC(text_) text_, sizeof text_ - 1

/* Advice that several rows share. */
#define CONVERT_PICKLE                                                                                                 \
    "pickles can run code and are not read. Convert it in Python: safetensors.torch.save_file(torch.load(FILE, "       \
    "weights_only=True), OUT), or let transformers write it with save_pretrained"
#define PUBLISHED "give the model's .safetensors file"
#define UNPACK(command_)                                                                                               \
    "the model would learn compressed bytes. Unpack it first (" command_ ") and name the text inside"
#define BINARY "the model would learn its raw bytes. Write its texts to a plain text file first"
#define TOKEN_IDS                                                                                                      \
    "its bytes are read one by one, not as token ids. Set data.type to \"tokens\" if it holds those, or give a plain " \
    "text file"

/* The first row that fits is taken. A row without magic goes by its endings alone. */
static const struct row {
    const char *magic;
    size_t magic_bytes;
    const char *within;  /* must also occur among the first bytes; NULL: nothing more */
    const char *endings; /* of names, each with a space behind it; NULL: none */
    sl_file_kind kind;
} rows[] = {
    { MAGIC("PK\003\004"),
      "data.pkl",
      NULL,
      { "a PyTorch pickle in a zip archive (torch.save)", CONVERT_PICKLE, BINARY } },
    { MAGIC("PK\003\004"),
      ".npy",
      ".npz ",
      { "a NumPy archive (.npz)", "convert it in Python with safetensors.numpy.save_file", BINARY } },
    { MAGIC("PK\003\004"), NULL, ".zip ", { "a zip archive", "unpack it and " PUBLISHED, UNPACK("unzip") } },
    { MAGIC("\200\002"),
      NULL,
      ".pt .pth .pkl .pickle .ckpt ",
      { "a Python pickle (torch.save)", CONVERT_PICKLE, BINARY } },
    { MAGIC("\200\003"), NULL, NULL, { "a Python pickle", CONVERT_PICKLE, BINARY } },
    { MAGIC("\200\004"), NULL, NULL, { "a Python pickle", CONVERT_PICKLE, BINARY } },
    { MAGIC("\200\005"), NULL, NULL, { "a Python pickle", CONVERT_PICKLE, BINARY } },
    { MAGIC("GGUF"),
      NULL,
      ".gguf ",
      { "a GGUF file (llama.cpp)", "its tensors are quantized and renamed: give the .safetensors it was made from",
        BINARY } },
    { MAGIC("version https://git-lfs"),
      NULL,
      NULL,
      { "a Git LFS pointer, not the file itself", "fetch the file with: git lfs pull",
        "the file itself is not here. Fetch it with: git lfs pull" } },
    { MAGIC("step-"),
      NULL,
      NULL,
      { "a text that names the newest checkpoint of its folder", "give the folder, which holds the checkpoints",
        NULL } },
    { MAGIC("global_step"),
      NULL,
      NULL,
      { "a text that names the newest checkpoint of DeepSpeed in its folder",
        "those are pickles; let DeepSpeed's zero_to_fp32.py write the weights with --safe_serialization", NULL } },
    { MAGIC("\223NUMPY"),
      NULL,
      ".npy ",
      { "a NumPy array (.npy)", "convert it in Python with safetensors.numpy.save_file", TOKEN_IDS } },
    { MAGIC("\211HDF\r\n\032\n"),
      NULL,
      ".h5 .hdf5 ",
      { "an HDF5 file (Keras)", PUBLISHED ", or convert it in Python with safetensors.numpy.save_file", BINARY } },
    { MAGIC("PAR1"),
      NULL,
      ".parquet ",
      { "a Parquet file", PUBLISHED,
        "the model would learn its raw bytes. Write the column of texts to a plain text file first" } },
    { MAGIC("ARROW1"),
      NULL,
      ".arrow .feather ",
      { "an Arrow file", PUBLISHED,
        "the model would learn its raw bytes. Write the column of texts to a plain text file first" } },
    { MAGIC("\037\213"),
      NULL,
      ".gz .tgz ",
      { "compressed (gzip)", "unpack it with gunzip and " PUBLISHED, UNPACK("gunzip") } },
    { MAGIC("\050\265\057\375"),
      NULL,
      ".zst ",
      { "compressed (zstd)", "unpack it with unzstd and " PUBLISHED, UNPACK("unzstd") } },
    { MAGIC("BZh"),
      NULL,
      ".bz2 ",
      { "compressed (bzip2)", "unpack it with bunzip2 and " PUBLISHED, UNPACK("bunzip2") } },
    { MAGIC("\3757zXZ"), NULL, ".xz ", { "compressed (xz)", "unpack it with unxz and " PUBLISHED, UNPACK("unxz") } },
    { MAGIC("<!DOCTYPE"),
      NULL,
      NULL,
      { "a web page (HTML)", "the download failed: fetch the file again, logged in where the site asks for it",
        NULL } },
    { MAGIC("<html"),
      NULL,
      ".html .htm ",
      { "a web page (HTML)", "the download failed: fetch the file again, logged in where the site asks for it",
        NULL } },
    { MAGIC("{"),
      "\"weight_map\"",
      ".safetensors.index.json ",
      { "the index of weights in several files", "it is read under a name that ends in .index.json, beside its files",
        "it holds names of tensors, no text" } },
    { MAGIC("{"),
      NULL,
      ".json .jsonl .ndjson ",
      { "JSON text", PUBLISHED,
        "the model would learn the JSON itself, its keys, quotes and escapes included. Conversations and texts in JSON "
        "lines are read with data.type \"jsonl\"" } },
    { MAGIC("["),
      NULL,
      NULL,
      { "JSON text", PUBLISHED,
        "the model would learn the JSON itself, its keys, quotes and escapes included. A list of conversations or "
        "texts "
        "is read with data.type \"jsonl\"" } },
    { NULL,
      0,
      NULL,
      ".csv .tsv ",
      { "a table (CSV)", PUBLISHED,
        "the model would learn the rows as they are, separators and all columns included. To train on one column, "
        "write "
        "it to a plain text file first" } },
    { NULL, 0, NULL, ".bin .idx .tokens ", { "binary", PUBLISHED, TOKEN_IDS } },
    { NULL, 0, NULL, ".safetensors ", { "a weights file", NULL, "it holds tensors, no text" } },
};
enum { ROW_COUNT = sizeof rows / sizeof rows[0] };

static bool occurs(const char *text, const char *head, size_t bytes)
{
    size_t length = strlen(text);
    for (size_t at = 0; at + length <= bytes; at++)
        if (memcmp(head + at, text, length) == 0) return true;
    return false;
}

/* A pickle's opcodes follow its protocol and are never 0, while the length of a safetensors header ends in zeros. */
static bool is_length(const char *head, size_t bytes)
{
    return bytes >= 3 && (unsigned char)head[0] == 0x80 && head[2] == 0;
}

static bool has_magic(const struct row *row, const char *head, size_t bytes)
{
    if (row->magic == NULL || bytes < row->magic_bytes) return false;
    /* letters of markup may have either case */
    if (row->magic[0] == '<') return strncasecmp(head, row->magic, row->magic_bytes) == 0;
    if (memcmp(head, row->magic, row->magic_bytes) != 0 || is_length(head, bytes)) return false;
    return row->within == NULL || occurs(row->within, head, bytes);
}

/* Whether the path ends in one of ".a .b ", in either case. */
static bool has_ending(const char *path, const char *endings)
{
    size_t bytes = strlen(path);
    while (endings != NULL && *endings != '\0') {
        size_t length = strcspn(endings, " ");
        if (length < bytes && strncasecmp(path + bytes - length, endings, length) == 0) return true;
        endings += length + 1;
    }
    return false;
}

const sl_file_kind *sl_weights_file_kind(const void *head, size_t bytes)
{
    if (bytes > SL_FILE_HEAD_BYTES) bytes = SL_FILE_HEAD_BYTES;
    for (int i = 0; i < ROW_COUNT; i++)
        if (has_magic(&rows[i], head, bytes)) return &rows[i].kind;
    return NULL;
}

/* A text may well begin with a bracket: one byte proves nothing there. */
static bool is_proof(const struct row *row)
{
    return row->magic_bytes > 1 || row->within != NULL;
}

const sl_file_kind *sl_text_file_kind(const char *path, const void *head, size_t bytes)
{
    const struct row *found = NULL;
    if (bytes > SL_FILE_HEAD_BYTES) bytes = SL_FILE_HEAD_BYTES;
    for (int i = 0; found == NULL && i < ROW_COUNT; i++)
        if (is_proof(&rows[i]) && has_magic(&rows[i], head, bytes)) found = &rows[i];
    for (int i = 0; found == NULL && i < ROW_COUNT; i++)
        if (has_ending(path, rows[i].endings)) found = &rows[i];
    return found != NULL && found->kind.as_text != NULL ? &found->kind : NULL;
}

/* model_files.c: see model_files.h. */
#include "format/model_files.h"

#include <fnmatch.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/io.h"
#include "core/utf8.h"
#include "format/adapter_config.h"
#include "format/weights_set.h"

#define CONFIG     "config.json"
#define GENERATION "generation_config.json"

const char *const sl_model_folder_signs[] = { CONFIG, SL_WEIGHTS_FILE, SL_WEIGHTS_INDEX, SL_ADAPTER_CONFIG, NULL };

/* A list of patterns ends with NULL. */
static bool fits(const char *const *patterns, const char *name)
{
    for (; *patterns != NULL; patterns++)
        if (fnmatch(*patterns, name, 0) == 0) return true;
    return false;
}

bool sl_is_weights_name(const char *name)
{
    static const char *const weights[] = { "*.safetensors",
                                           "*.safetensors.index.json",
                                           "*.bin",
                                           "*.bin.index.json",
                                           "*.pt",
                                           "*.pth",
                                           "*.ckpt",
                                           "*.h5",
                                           "*.msgpack",
                                           "*.gguf",
                                           "*.onnx",
                                           "*.tmp",
                                           NULL };
    return fits(weights, name);
}

bool sl_is_model_file_name(const char *name)
{
    static const char *const weights[] = { "model*.safetensors", "model*.safetensors.index.json", "pytorch_model*.bin*",
                                           "adapter_*", NULL };
    static const char *const others[] = { "*config.json",
                                          "tokenizer*",
                                          "special_tokens_map.json",
                                          "added_tokens*",
                                          "vocab.*",
                                          "merges.txt",
                                          "*.tiktoken",
                                          "chat_template*",
                                          "spiece.model",
                                          "*.tmp",
                                          NULL };
    return fits(weights, name) || fits(others, name);
}

const char *sl_decoder_prefix(sl_decoder family)
{
    return family == SL_DECODER_GPT2 ? "transformer." : "";
}

/* ---- The list ---- */

static sluice_status add_file(sl_model_files *f, sl_model_file file)
{
    if (f->count == f->capacity) {
        int capacity = f->capacity == 0 ? 16 : 2 * f->capacity;
        sl_model_file *grown = sl_arena_array(&f->arena, (size_t)capacity, sizeof *grown);
        if (grown == NULL) return SLUICE_ERR_NO_MEMORY;
        if (f->count > 0) memcpy(grown, f->list, (size_t)f->count * sizeof *grown);
        f->list = grown;
        f->capacity = capacity;
    }
    f->list[f->count++] = file;
    return SLUICE_OK;
}

/* The text is copied. */
static sluice_status add_text(sl_model_files *f, const char *name, const sl_text *text)
{
    SL_TRY(sl_text_status(text));
    char *kept = sl_arena_alloc(&f->arena, text->bytes + 1);
    if (kept == NULL) return SLUICE_ERR_NO_MEMORY;
    memcpy(kept, text->data, text->bytes);
    return add_file(f, (sl_model_file){ .name = name, .text = kept, .bytes = text->bytes });
}

/* ---- From another folder ---- */

typedef struct folder_files {
    sl_model_files *f;
    const char *folder;
} folder_files;

/* Hidden files belong to whoever keeps the folder: a version control, a file manager. */
static bool is_carried(const char *name)
{
    return name[0] != '.' && strcmp(name, CONFIG) != 0 && !sl_is_weights_name(name);
}

static sluice_status add_copy(void *user, const char *name)
{
    const folder_files *of = user;
    sl_path_info there;
    sl_file file;
    uint64_t bytes;
    if (!is_carried(name)) return SLUICE_OK;
    sl_model_file copy = { .name = sl_arena_strdup(&of->f->arena, name),
                           .from = sl_arena_printf(&of->f->arena, "%s/%s", of->folder, name) };
    if (copy.name == NULL || copy.from == NULL) return SLUICE_ERR_NO_MEMORY;
    SL_TRY(sl_path_look(copy.from, &there));
    if (there.kind != SL_PATH_FILE) return SLUICE_OK;
    SL_TRY(sl_file_open(copy.from, SL_READ, &file));
    sluice_status st = sl_file_size(&file, &bytes);
    sl_file_close(&file);
    if (st != SLUICE_OK || bytes > SL_MODEL_FILE_MAX) return st;
    return add_file(of->f, copy);
}

static int compare_files(const void *a, const void *b)
{
    return strcmp(((const sl_model_file *)a)->name, ((const sl_model_file *)b)->name);
}

/* ---- Made here ---- */

static sluice_status add_config(sl_model_files *f, const sl_model_config *c, const char *kept)
{
    sl_text text = { 0 };
    sluice_status st = sl_model_config_write(c, kept, &text);
    if (st == SLUICE_OK) st = add_text(f, CONFIG, &text);
    sl_text_free(&text);
    return st;
}

static void write_generation(const sl_model_config *c, sl_text *text)
{
    const char *comma = "";
    sl_text_add(text, "{");
    if (c->bos >= 0) {
        sl_text_add(text, "\n  \"bos_token_id\": %" PRId64, c->bos);
        comma = ",";
    }
    if (c->end_count == 1) sl_text_add(text, "%s\n  \"eos_token_id\": %" PRId64, comma, c->ends[0]);
    if (c->end_count > 1) {
        sl_text_add(text, "%s\n  \"eos_token_id\": [", comma);
        for (int i = 0; i < c->end_count; i++) sl_text_add(text, "%s%" PRId64, i > 0 ? ", " : "", c->ends[i]);
        sl_text_add(text, "]");
    }
    if (c->end_count > 0) comma = ",";
    if (c->pad >= 0) sl_text_add(text, "%s\n  \"pad_token_id\": %" PRId64, comma, c->pad);
    sl_text_add(text, "\n}\n");
}

static sluice_status add_generation(sl_model_files *f, const sl_model_config *c)
{
    sl_text text = { 0 };
    if (c->bos < 0 && c->pad < 0 && c->end_count == 0) return SLUICE_OK;
    for (int i = 0; i < f->count; i++)
        if (strcmp(f->list[i].name, GENERATION) == 0) return SLUICE_OK;
    write_generation(c, &text);
    sluice_status st = add_text(f, GENERATION, &text);
    sl_text_free(&text);
    return st;
}

/* ---- Tokenizers of bytes and of characters ---- */

/* The character by which byte-level tokenizers write a byte: itself where it is printable, otherwise one from U+0100 on. */
static int byte_character(int byte)
{
    int before = 0;
    bool itself = (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || (byte >= 0xae && byte <= 0xff);
    if (itself) return byte;
    for (int b = 0; b < byte; b++)
        before += !((b >= '!' && b <= '~') || (b >= 0xa1 && b <= 0xac) || (b >= 0xae && b <= 0xff));
    return 0x100 + before;
}

static void add_bytes_vocabulary(sl_text *text)
{
    for (int byte = 0; byte < 256; byte++) {
        int c = byte_character(byte);
        char utf8[3] = { (char)c };
        if (c >= 0x80) {
            utf8[0] = (char)(0xc0 | c >> 6);
            utf8[1] = (char)(0x80 | (c & 0x3f));
        }
        sl_text_add(text, byte > 0 ? ", " : "");
        sl_text_add_string(text, utf8);
        sl_text_add(text, ": %d", byte);
    }
}

/* Token 0 is U+0000 where the unit says so: no string holds it, so that it is written as an escape. */
static void add_characters_vocabulary(sl_text *text, const sl_unit_vocabulary *v)
{
    int id = 0;
    if (strcmp(v->unit, "nul+characters") == 0) {
        sl_text_add(text, "\"\\u0000\": 0");
        id = 1;
    }
    for (const char *at = v->characters; at != NULL && *at != '\0';) {
        char one[8] = "";
        size_t length = sl_utf8_length(at, strlen(at));
        if (length == 0) return;
        memcpy(one, at, length);
        sl_text_add(text, id > 0 ? ", " : "");
        sl_text_add_string(text, one);
        sl_text_add(text, ": %d", id++);
        at += length;
    }
}

/* A BPE without merges: every character, or every byte by its character, is a token. */
static sluice_status add_tokenizer(sl_model_files *f, const sl_unit_vocabulary *v)
{
    sl_text text = { 0 };
    bool bytes = strcmp(v->unit, "bytes") == 0;
    sl_text_add(&text, "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n"
                       "  \"added_tokens\": [],\n  \"normalizer\": null,\n  \"pre_tokenizer\": ");
    sl_text_add(&text, bytes ? "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": true, "
                               "\"use_regex\": false}"
                             : "null");
    sl_text_add(&text, ",\n  \"post_processor\": null,\n  \"decoder\": ");
    sl_text_add(&text, bytes ? "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": true, "
                               "\"use_regex\": false}"
                             : "{\"type\": \"Fuse\"}");
    sl_text_add(&text, ",\n  \"model\": {\n    \"type\": \"BPE\",\n    \"dropout\": null,\n    \"unk_token\": null,\n"
                       "    \"continuing_subword_prefix\": null,\n    \"end_of_word_suffix\": null,\n"
                       "    \"fuse_unk\": false,\n    \"byte_fallback\": false,\n    \"vocab\": {");
    if (bytes)
        add_bytes_vocabulary(&text);
    else
        add_characters_vocabulary(&text, v);
    sl_text_add(&text, "},\n    \"merges\": []\n  }\n}\n");
    sluice_status st = add_text(f, "tokenizer.json", &text);
    sl_text_free(&text);
    return st;
}

static sluice_status add_tokenizer_config(sl_model_files *f, const sl_model_config *c)
{
    sl_text text = { 0 };
    sl_text_add(&text,
                "{\n  \"clean_up_tokenization_spaces\": false,\n  \"model_max_length\": %" PRId64
                ",\n  \"tokenizer_class\": \"PreTrainedTokenizerFast\"\n}\n",
                c->context);
    sluice_status st = add_text(f, "tokenizer_config.json", &text);
    sl_text_free(&text);
    return st;
}

/* ---- All of it ---- */

static sluice_status make_from_folder(const sl_model_config *c, const char *from, sl_model_files *out)
{
    folder_files of = { out, from };
    char *kept = NULL;
    sl_model_config there;
    SL_TRY(sl_model_config_read(from, &there, &kept));
    sluice_status st = add_config(out, c, there.family == c->family ? kept : NULL);
    sl_free(kept);
    if (st == SLUICE_OK) st = sl_dir_list(from, add_copy, &of);
    return st;
}

static sluice_status make_from_nothing(const sl_model_config *c, const sl_unit_vocabulary *v, sl_model_files *out)
{
    SL_TRY(add_config(out, c, NULL));
    if (v == NULL || v->unit == NULL) return SLUICE_OK;
    SL_TRY(add_tokenizer(out, v));
    return add_tokenizer_config(out, c);
}

sluice_status sl_model_files_make(const sl_model_config *c, const char *from, const sl_unit_vocabulary *v,
                                  sl_model_files *out)
{
    sl_arena_init(&out->arena, "files of a model");
    out->prefix = sl_decoder_prefix(c->family);
    SL_TRY(from != NULL ? make_from_folder(c, from, out) : make_from_nothing(c, v, out));
    SL_TRY(add_generation(out, c));
    qsort(out->list, (size_t)out->count, sizeof *out->list, compare_files);
    return SLUICE_OK;
}

void sl_model_files_free(sl_model_files *f)
{
    sl_arena_free(&f->arena);
    *f = (sl_model_files){ .count = 0 };
}

sluice_status sl_model_files_write(const sl_model_files *f, const char *folder)
{
    for (int i = 0; i < f->count; i++) {
        const sl_model_file *file = &f->list[i];
        char path[PATH_MAX];
        if (snprintf(path, sizeof path, "%s/%s", folder, file->name) >= (int)sizeof path)
            return sl_fail(SLUICE_ERR_USAGE, "the path of the folder to write is too long: %.80s...; use a shorter one",
                           folder);
        SL_TRY(file->from != NULL ? sl_file_copy(file->from, path) : sl_file_write_all(path, file->text, file->bytes));
    }
    return SLUICE_OK;
}

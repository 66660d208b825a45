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
#include "format/adapter_config.h"
#include "format/chat_template.h"
#include "format/json.h"
#include "format/tokenizer.h"
#include "format/tokenizer_write.h"
#include "format/weight_names.h"
#include "format/weights_set.h"

#define CONFIG           "config.json"
#define GENERATION       "generation_config.json"
#define TOKENIZER        "tokenizer.json"
#define TOKENIZER_CONFIG "tokenizer_config.json"
#define CHAT_TEMPLATE    "chat_template.jinja"

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

/* tokenizer_config.json too. */
static bool is_tokenizer_name(const char *name)
{
    static const char *const names[] = {
        "tokenizer*", "special_tokens_map.json", "added_tokens*", "vocab.*", "merges.txt",
        "*.tiktoken", "chat_template*",          "spiece.model",  NULL
    };
    return fits(names, name);
}

bool sl_is_model_file_name(const char *name)
{
    static const char *const weights[] = { "model*.safetensors", "model*.safetensors.index.json", "pytorch_model*.bin*",
                                           "adapter_*", NULL };
    static const char *const others[] = { "*config.json", "*.tmp", NULL };
    return fits(weights, name) || fits(others, name) || is_tokenizer_name(name);
}

bool sl_is_model_member(const char *name)
{
    return sl_is_model_file_name(name) || sl_is_weights_name(name);
}

const char *sl_decoder_prefix(sl_decoder family)
{
    return family == SL_DECODER_GPT2 ? sl_gpt2_weight_names.prefix : "";
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

static sl_model_file *find_file(const sl_model_files *f, const char *name)
{
    for (int i = 0; i < f->count; i++)
        if (strcmp(f->list[i].name, name) == 0) return &f->list[i];
    return NULL;
}

static bool has_file(const sl_model_files *f, const char *name)
{
    return find_file(f, name) != NULL;
}

static void remove_file(sl_model_files *f, const char *name)
{
    sl_model_file *file = find_file(f, name);
    if (file != NULL) *file = f->list[--f->count];
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
    bool (*only)(const char *name); /* NULL: all that is carried */
} folder_files;

/* The first folder that has a file gives it. Hidden files belong to whoever keeps the folder: a version control, a file manager. */
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
    if (!is_carried(name) || (of->only != NULL && !of->only(name)) || has_file(of->f, name)) return SLUICE_OK;
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
    if ((c->bos < 0 && c->pad < 0 && c->end_count == 0) || has_file(f, GENERATION)) return SLUICE_OK;
    write_generation(c, &text);
    sluice_status st = add_text(f, GENERATION, &text);
    sl_text_free(&text);
    return st;
}

/* ---- Images ---- */

/* Whether the folder's own file says so already. */
static bool says_same(const char *from, const sl_images_meaning *images)
{
    const sl_processor_by_hand nothing = { false, false, false };
    const sl_log silent = { .fn = NULL };
    sl_image_processor there;
    bool found;
    return from != NULL && sl_image_processor_read(from, &nothing, &silent, &found, &there) == SLUICE_OK && found &&
           sl_image_processor_same(&there, &images->processor, images->channels);
}

static sluice_status add_processor(sl_model_files *f, const char *from, const sl_images_meaning *images)
{
    sl_text text = { 0 };
    if (images == NULL || says_same(from, images)) return SLUICE_OK;
    for (int i = 0; i < f->count; i++)
        if (strcmp(f->list[i].name, SL_IMAGE_PROCESSOR) == 0) f->list[i--] = f->list[--f->count];
    sluice_status st = sl_image_processor_write(&images->processor, images->channels, &text);
    if (st == SLUICE_OK) st = add_text(f, SL_IMAGE_PROCESSOR, &text);
    sl_text_free(&text);
    return st;
}

/* ---- Tokenizers ---- */

static sluice_status add_unit_tokenizer(sl_model_files *f, const sl_ids_meaning *ids)
{
    sl_text text = { 0 };
    sl_tokenizer_write_units(ids->unit, ids->characters, &text);
    sluice_status st = add_text(f, TOKENIZER, &text);
    sl_text_free(&text);
    return st;
}

/* `eos` is the spelling of the token that ends texts; NULL: there is none. */
static sluice_status add_tokenizer_config(sl_model_files *f, const sl_model_config *c, const char *eos)
{
    sl_text text = { 0 };
    sl_text_add(&text, "{\n  \"clean_up_tokenization_spaces\": false,\n");
    if (eos != NULL) {
        sl_text_add(&text, "  \"eos_token\": ");
        sl_text_add_string(&text, eos);
        sl_text_add(&text, ",\n");
    }
    sl_text_add(&text, "  \"model_max_length\": %" PRId64 ",\n  \"tokenizer_class\": \"PreTrainedTokenizerFast\"\n}\n",
                c->context);
    sluice_status st = add_text(f, TOKENIZER_CONFIG, &text);
    sl_text_free(&text);
    return st;
}

/* vocab.json and merges.txt say neither what splits a text nor what ends it, and programs guess that by the family of the
 * model. tokenizer.json says it. */
static sluice_status add_pair_tokenizer(sl_model_files *f, const char *folder, int32_t end, const char *end_content)
{
    char vocab[PATH_MAX], merges[PATH_MAX];
    sl_text text = { 0 };
    if (snprintf(vocab, sizeof vocab, "%s/vocab.json", folder) >= (int)sizeof vocab ||
        snprintf(merges, sizeof merges, "%s/merges.txt", folder) >= (int)sizeof merges)
        return sl_fail(SLUICE_ERR_USAGE, "the path of the tokenizer is too long: %.80s...; use a shorter one", folder);
    sluice_status st = sl_tokenizer_write_pair(vocab, merges, end, end_content, &text);
    if (st == SLUICE_OK) st = add_text(f, TOKENIZER, &text);
    sl_text_free(&text);
    return st;
}

/* All that a folder has of a tokenizer; of a file's folder that file alone, unless it is one of the pair. */
static sluice_status copy_tokenizer(sl_model_files *f, const char *path, char folder[PATH_MAX])
{
    const char *slash = strrchr(path, '/'), *name = slash != NULL ? slash + 1 : path;
    sl_path_info there;
    SL_TRY(sl_path_look(path, &there));
    if (there.kind == SL_PATH_FOLDER) {
        if (snprintf(folder, PATH_MAX, "%s", path) >= PATH_MAX)
            return sl_fail(SLUICE_ERR_USAGE, "the path of the tokenizer is too long: %.80s...; use a shorter one",
                           path);
        return sl_dir_list(path, add_copy, &(folder_files){ f, path, is_tokenizer_name });
    }
    SL_TRY(sl_path_parent(path, folder));
    if (strcmp(name, "vocab.json") == 0 || strcmp(name, "merges.txt") == 0) return SLUICE_OK;
    sl_model_file copy = { .name = TOKENIZER, .from = sl_arena_strdup(&f->arena, path) };
    return copy.from != NULL ? add_file(f, copy) : SLUICE_ERR_NO_MEMORY;
}

/* Its files, what programs need beside them, and in c the id that ends texts. */
static sluice_status add_tokenizer_files(sl_model_files *f, const char *path, sl_model_config *c)
{
    char folder[PATH_MAX];
    sl_tokenizer *t = NULL;
    size_t bytes;
    SL_TRY(copy_tokenizer(f, path, folder));
    SL_TRY(sl_tokenizer_open(path, &t));
    int32_t end = sl_tokenizer_end_of_text(t);
    const char *content = end >= 0 ? sl_tokenizer_content(t, end, &bytes) : NULL;
    if (end >= 0 && c->end_count == 0) c->ends[c->end_count++] = end;
    sluice_status st = has_file(f, TOKENIZER) ? SLUICE_OK : add_pair_tokenizer(f, folder, end, content);
    if (st == SLUICE_OK && !has_file(f, TOKENIZER_CONFIG)) st = add_tokenizer_config(f, c, content);
    sl_tokenizer_close(t);
    return st;
}

/* ---- Chat templates ---- */

/* What a file of the list holds; the caller frees it. */
static sluice_status read_listed(const sl_model_file *file, json_t **out)
{
    char *text = NULL;
    size_t bytes = file->bytes;
    if (file->from != NULL) SL_TRY(sl_file_read_all(file->from, SL_MODEL_FILE_MAX, &text, &bytes));
    const char *path = file->from != NULL ? file->from : file->name;
    sluice_status st = sl_json_parse(text != NULL ? text : file->text, bytes, path, SLUICE_ERR_INPUT, out);
    sl_free(text);
    return st;
}

static sluice_status replace_json(sl_model_files *f, const char *name, const json_t *value)
{
    sl_text text = { 0 };
    char *dumped = json_dumps(value, JSON_INDENT(2));
    if (dumped == NULL) return sl_fail(SLUICE_ERR_NO_MEMORY, "no memory for %s", name);
    sl_text_add(&text, "%s\n", dumped);
    sl_json_free_text(dumped);
    remove_file(f, name);
    sluice_status st = add_text(f, name, &text);
    sl_text_free(&text);
    return st;
}

/* Other programs read the template of this file where they know no chat_template.jinja, and what it calls the end of texts. */
static sluice_status fit_tokenizer_config(sl_model_files *f, const sl_ids_meaning *ids)
{
    json_t *config = NULL;
    const sl_model_file *file = find_file(f, TOKENIZER_CONFIG);
    if (file == NULL) return SLUICE_OK;
    SL_TRY(read_listed(file, &config));
    bool changed = json_object_del(config, "chat_template") == 0;
    if (ids->eos != NULL && sl_chat_writes_eos(ids->chat) && json_object_get(config, "eos_token") == NULL)
        changed |= json_object_set_new(config, "eos_token", json_string(ids->eos)) == 0;
    sluice_status st = changed ? replace_json(f, TOKENIZER_CONFIG, config) : SLUICE_OK;
    json_decref(config);
    return st;
}

/* The one of `ids` instead of those that are there. */
static sluice_status set_template(sl_model_files *f, const sl_ids_meaning *ids)
{
    sl_text text = { 0 };
    if (ids == NULL || ids->chat == NULL) return SLUICE_OK;
    SL_TRY(fit_tokenizer_config(f, ids));
    remove_file(f, "chat_template.json");
    remove_file(f, CHAT_TEMPLATE);
    sl_chat_jinja(ids->chat, ids->date, &text);
    sluice_status st = add_text(f, CHAT_TEMPLATE, &text);
    sl_text_free(&text);
    return st;
}

/* ---- All of it ---- */

static bool is_no_tokenizer_name(const char *name)
{
    return !is_tokenizer_name(name);
}

/* A tokenizer that is not the folder's own stands in for it. */
static bool has_other_tokenizer(const char *from, const sl_ids_meaning *ids)
{
    return ids != NULL && ids->tokenizer != NULL && (from == NULL || strcmp(ids->tokenizer, from) != 0);
}

static sluice_status add_over(sl_model_files *f, const sl_ids_meaning *ids)
{
    if (ids == NULL || ids->over == NULL) return SLUICE_OK;
    return sl_dir_list(ids->over, add_copy, &(folder_files){ f, ids->over, is_tokenizer_name });
}

static sluice_status make_from_folder(sl_model_config *c, const char *from, const sl_ids_meaning *ids,
                                      sl_model_files *out)
{
    bool other = has_other_tokenizer(from, ids);
    folder_files of = { out, from, other ? is_no_tokenizer_name : NULL };
    char *kept = NULL;
    sl_model_config there;
    SL_TRY(sl_model_config_read(from, &there, &kept));
    sluice_status st = add_config(out, c, there.family == c->family ? kept : NULL);
    sl_free(kept);
    if (st == SLUICE_OK && !other) st = add_over(out, ids);
    if (st == SLUICE_OK) st = sl_dir_list(from, add_copy, &of);
    if (st == SLUICE_OK && other) st = add_tokenizer_files(out, ids->tokenizer, c);
    return st;
}

static sluice_status make_from_nothing(sl_model_config *c, const sl_ids_meaning *ids, sl_model_files *out)
{
    if (ids != NULL && ids->tokenizer != NULL) {
        SL_TRY(add_tokenizer_files(out, ids->tokenizer, c));
    } else if (ids != NULL && ids->unit != NULL) {
        SL_TRY(add_unit_tokenizer(out, ids));
        SL_TRY(add_tokenizer_config(out, c, NULL));
    }
    return add_config(out, c, NULL);
}

sluice_status sl_model_files_make(const sl_model_config *c, const char *from, const sl_ids_meaning *ids,
                                  const sl_images_meaning *images, sl_model_files *out)
{
    sl_model_config described = *c;
    sl_arena_init(&out->arena, "files of a model");
    out->prefix = sl_decoder_prefix(c->family);
    SL_TRY(from != NULL ? make_from_folder(&described, from, ids, out) : make_from_nothing(&described, ids, out));
    SL_TRY(set_template(out, ids));
    SL_TRY(add_generation(out, &described));
    SL_TRY(add_processor(out, from, images));
    qsort(out->list, (size_t)out->count, sizeof *out->list, compare_files);
    return SLUICE_OK;
}

sluice_status sl_tokenizer_files_make(const sl_model_config *c, const char *from, const sl_ids_meaning *ids,
                                      sl_model_files *out)
{
    sl_model_config described = *c;
    sl_arena_init(&out->arena, "files of a tokenizer");
    out->prefix = sl_decoder_prefix(c->family);
    if (has_other_tokenizer(from, ids)) {
        SL_TRY(add_tokenizer_files(out, ids->tokenizer, &described));
    } else {
        SL_TRY(add_over(out, ids));
        if (from != NULL) SL_TRY(sl_dir_list(from, add_copy, &(folder_files){ out, from, is_tokenizer_name }));
    }
    SL_TRY(set_template(out, ids));
    if (out->count > 0) qsort(out->list, (size_t)out->count, sizeof *out->list, compare_files);
    return SLUICE_OK;
}

void sl_model_files_hold(sl_model_files *f)
{
    for (int i = 0, held = 0; i < f->count && held < SL_MODEL_FILES_HELD; i++) {
        sl_model_file *file = &f->list[i];
        if (file->from == NULL || file->is_held) continue;
        file->is_held = sl_file_open(file->from, SL_READ, &file->held) == SLUICE_OK;
        held += file->is_held;
    }
}

void sl_model_files_free(sl_model_files *f)
{
    for (int i = 0; i < f->count; i++)
        if (f->list[i].is_held) sl_file_close(&f->list[i].held);
    sl_arena_free(&f->arena);
    *f = (sl_model_files){ .count = 0 };
}

/* Weights that were learned are worth more than a file beside them. */
static sluice_status copy_file(const sl_model_files *f, sl_model_file *file, const char *path)
{
    sluice_status st = file->is_held ? sl_file_copy_open(&file->held, path) : sl_file_copy(file->from, path);
    if (st == SLUICE_OK || st == SLUICE_ERR_NO_MEMORY || f->log == NULL) return st;
    remove(path); /* a part of it is worse than nothing */
    sl_log_write(f->log, SLUICE_LOG_WARNING, "%s could not be copied beside the weights: %s", file->from,
                 sluice_error());
    return SLUICE_OK;
}

sluice_status sl_model_files_write(const sl_model_files *f, const char *folder)
{
    for (int i = 0; i < f->count; i++) {
        sl_model_file *file = &f->list[i];
        char path[PATH_MAX];
        if (snprintf(path, sizeof path, "%s/%s", folder, file->name) >= (int)sizeof path)
            return sl_fail(SLUICE_ERR_USAGE, "the path of the folder to write is too long: %.80s...; use a shorter one",
                           folder);
        SL_TRY(file->from != NULL ? copy_file(f, file, path) : sl_file_write_all(path, file->text, file->bytes));
    }
    return SLUICE_OK;
}

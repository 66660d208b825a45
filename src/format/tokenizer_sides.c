/* tokenizer_sides.c: the special tokens around a text where vocab.json and merges.txt are the tokenizer: these say nothing of
 * them, so that add_bos_token and add_eos_token of tokenizer_config.json do. Beside a tokenizer.json, whose post-processor
 * says it, transformers does not look at the two, and neither does sluice. Nor do they say how a text is cut into words, which
 * tokenizer_class does. */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/io.h"
#include "core/quote.h"
#include "format/json.h"
#include "format/tokenizer_parts.h"

#define MAX_CONFIG_BYTES ((size_t)16 << 20)
#define USUAL_TOKEN      "<|endoftext|>" /* what GPT-2's class has for both */

/* The file's object; *out NULL: there is no such file. */
static sluice_status read_object(const char *path, json_t **out)
{
    char *text;
    size_t bytes;
    *out = NULL;
    if (!sl_path_exists(path)) return SLUICE_OK;
    SL_TRY(sl_file_read_all(path, MAX_CONFIG_BYTES, &text, &bytes));
    sluice_status st = sl_json_parse(text, bytes, path, SLUICE_ERR_INPUT, out);
    sl_free(text);
    if (st != SLUICE_OK || json_is_object(*out)) return st;
    json_decref(*out);
    *out = NULL;
    return sl_fail(SLUICE_ERR_INPUT, "%s is no JSON object", path);
}

/* The token that a key names, as text or as an object with "content"; *out NULL: none. Where the key is missing, the class has
 * one of its own. */
static sluice_status named_token(const json_t *config, const sl_where *w, const char *key, const char **out)
{
    const json_t *token = json_object_get(config, key);
    *out = token == NULL ? USUAL_TOKEN : NULL;
    if (token == NULL || json_is_null(token)) return SLUICE_OK;
    if (json_is_object(token)) token = json_object_get(token, "content");
    *out = json_string_value(token);
    return *out != NULL ? SLUICE_OK : sl_where_fail(w, "\"%s\" is neither text nor an object with \"content\"", key);
}

static sluice_status read_side(const json_t *config, const sl_where *w, const sl_vocab *v, const char *flag,
                               const char *key, sl_ids *out)
{
    bool adds;
    const char *token;
    SL_TRY(sl_read_bool(config, w, flag, false, &adds));
    if (!adds) return SLUICE_OK;
    SL_TRY(named_token(config, w, key, &token));
    if (token == NULL) return SLUICE_OK;
    uint32_t id = sl_vocab_find(v, token, strlen(token));
    if (id == SL_TOKEN_NONE)
        return sl_where_fail(w, "\"%s\": %s is no token of vocab.json, and \"%s\" asks for it", key,
                             sl_quote(token).text, flag);
    return sl_ids_add(out, (int32_t)id);
}

/* Two lists of words do not say how a text is cut before they are looked up: the class does. Those that do it GPT-2's way, with
 * or without "Fast" behind the name; no class is GPT-2's. */
static sluice_status check_class(const json_t *config, const sl_where *w, const char *folder)
{
    static const char *const like_gpt2[] = { "GPT2Tokenizer", "CodeGenTokenizer", "GPTNeoXTokenizer",
                                             "PreTrainedTokenizer" };
    const char *class = json_string_value(json_object_get(config, "tokenizer_class"));
    if (class == NULL) return SLUICE_OK;
    for (size_t i = 0; i < sizeof like_gpt2 / sizeof like_gpt2[0]; i++) {
        size_t n = strlen(like_gpt2[i]);
        if (strncmp(class, like_gpt2[i], n) == 0 && (class[n] == '\0' || strcmp(class + n, "Fast") == 0))
            return SLUICE_OK;
    }
    return sl_where_fail(
        w,
        "\"tokenizer_class\" is %s, which cuts a text in a way of its own; vocab.json and merges.txt do not "
        "say how. Make a tokenizer.json: python -c \"from transformers import AutoTokenizer; "
        "AutoTokenizer.from_pretrained('%s').save_pretrained('%s')\"",
        sl_quote(class).text, folder, folder);
}

sluice_status sl_tokenizer_read_sides(sl_tokenizer *t, const char *folder)
{
    char path[PATH_MAX];
    json_t *config;
    if (snprintf(path, sizeof path, "%s/tokenizer_config.json", folder) >= (int)sizeof path) return SLUICE_OK;
    SL_TRY(read_object(path, &config));
    if (config == NULL) return SLUICE_OK;
    sl_where w = { .file = path };
    sluice_status st = check_class(config, &w, folder);
    if (st == SLUICE_OK) st = read_side(config, &w, &t->vocab, "add_bos_token", "bos_token", &t->post.before);
    if (st == SLUICE_OK) st = read_side(config, &w, &t->vocab, "add_eos_token", "eos_token", &t->post.after);
    json_decref(config);
    return st;
}

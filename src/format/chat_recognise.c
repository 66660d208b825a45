/* chat_recognise.c: which of the known templates a folder's Jinja text is.
 *
 * By the hash of the whole text where it is one that was compared with its row. Releases of a family change spelling and add
 * branches for tools, so that otherwise by features: what a row's text must contain and must not. The features of two rows are
 * never both met by a text that either renders (tests/format/chat_template_test.c), and a text that meets none or two is unknown. */
#include <limits.h>
#include <string.h>

#include "core/alloc.h"
#include "core/io.h"
#include "core/quote.h"
#include "core/sha256.h"
#include "format/chat_template.h"
#include "format/json.h"

enum { MAX_FEATURES = 5, MAX_TEMPLATE_BYTES = 1 << 20, MAX_CONFIG_BYTES = 32 << 20 };

/* SHA-256 of a text without newlines at its end. */
static const struct known_text {
    const char *sha256, *name;
} known_texts[] = {
    { "e8d5b5a546d3f19df16a5320c614fab05bdc4edd50e850f1afd947b503ea41cf", "llama2" },
    { "ba03a121d097859c7b5b9cd03af99aafe95275210d2876f642ad9929a150f122", "llama3" },
    { "93c0e9aa3629bbd77e68dbc0f5621f6e6b23aa8d74b932595cdb8d64684526d7", "llama3.1" },
    { "d82792f95932f1c9cef5c4bd992f171225e3bf8c7b609b4557c9e1ec96be819f", "llama3.1" }, /* 3.2 */
    { "fcf7a096fe99a48fd9ad2b250bf9237e96e8f48bffec1c7ea4d3f225176cd40e", "chatml" },
    { "153280e3ff55d19da1398bdb3914ee2a51b80429bfaedde11d7d216c39db80f3", "chatml" },
    { "31e10ce181f9efb8cdd33e5f274d4fea971d91ac59d24817015d7f432bb1f51c", "chatml" },
    { "793202280c0910ab26bc6eb57c8212c2417324c6d8c4efd0d10d59092ab3e3eb", "qwen2" },
    { "55b2f4a26ac9ee719330a61a0c39d9e538b0e9322212f048326318cff4f8674a", "qwen2.5" },
    { "a55ee1b1660128b7098723e0abcd92caa0788061051c62d51cbe87d9cf1974d8", "qwen3" },
    { "64f85b198065d0fba2a81f37e10ed68161ce2c19a754c7100e67e0ca2ee9c326", "qwen3-instruct" },
    { "26a59556925c987317ce5291811ba3b7f32ec4c647c400c6cc7e3a9993007ba7", "mistral-v1-old" },
    { "bbc58aad99454df60138be9530c9601a0adfe3d8932cda975e1f10b2410ddc51", "mistral-v1" },
    { "cafb64e0e9e5fd2503054b3479593fae39cbdfd52338ce8af9bb4664a8eb05bd", "mistral-v3" },
    { "e7deee034838db2bfc7487788a3013d8a307ab69f72f3c54a85f06fd76007d4e", "mistral-tekken" },
    { "ecd6ae513fe103f0eb62e8ab5bfa8d0fe45c1074fa398b089c93a7e70c15cfd6", "gemma" },
    { "1e51d5c0fec2f83da1953fb850b7b532b7da02d0dc35f9201e671e0b9a35a123", "gemma" },
    { "8d9e3a3c114fb2053ec500184677af4f7e5f8ec2582443cd535834e68b3ade29", "gemma3" },
    { "dcaee66df77bfbb789ec541fe713218da30225a526f1db97138fc39ee6dc56aa", "phi3" },
    { "78d976a442bcde2f0be15aafbb8e3050e1104f86732266f68403251b89982a90", "phi3.5" },
    { "268b6082ceb7176dc6ed80557a2f7837f9f0339592fbee677d405a553af15f88", "phi3-old" },
    { "66291cf0045c2425a3a667cf3cbb7af2b11f09e025c02f97245323ab79119362", "zephyr" },
};

/* Compared without white space and with double quotes as single ones: those are what copies of a text differ in. A newline that
 * is written as an escape is "\n", one that is a newline is nothing, so features end before it. */
static const struct feature_set {
    const char *name;
    const char *needs[MAX_FEATURES], *lacks[MAX_FEATURES];
} feature_sets[] = {
    { "llama2",
      { "bos_token+'[INST]'+content.strip()+'[/INST]'", "'<<SYS>>", "''+content.strip()+''+eos_token" },
      { "true==true", "[AVAILABLE_TOOLS]" } },
    { "llama3",
      { "'<|start_header_id|>'+", "message['content']|trim+'<|eot_id|>'" },
      { "system_message", "tool", "Date", "think" } },
    { "llama3.1",
      { "'<|start_header_id|>", "'CuttingKnowledgeDate:December2023", "'TodayDate:'+date_string",
        "'<|start_header_id|>'+message" },
      { "think", "image" } },
    { "chatml",
      { "'<|im_start|>'+message['role']+'", "+message['content']+'<|im_end|>'+'" },
      { "system", "tool", "think", "trim", "bos_token" } },
    { "qwen2",
      { "'<|im_start|>'+message['role']+'", "messages[0]['role']!='system'", "Youareahelpfulassistant.<|im_end|>" },
      { "tool", "think", "vision", "trim", "bos_token" } },
    { "qwen2.5",
      { "'<|im_start|>'+message.role+'", "YouareQwen,createdbyAlibabaCloud.Youareahelpfulassistant.<|im_end|>" },
      { "think", "vision", "trim", "bos_token" } },
    { "qwen3",
      { "'<|im_start|>'+message.role+'", "last_query_index", "reasoning_content.strip(", "enable_thinkingisfalse" },
      { "vision", "'<|im_start|>assistant\\n<think>", "preserve_thinking", "<function=" } },
    { "qwen3-instruct",
      { "'<|im_start|>'+message.role+'", "messages[0].role=='system'", "content='", "tool_response" },
      { "think", "vision", "YouareQwen", "<function=" } },
    { "mistral-v1-old",
      { "bos_token", "'[INST]'+message['content']+'[/INST]'", "{{message['content']+eos_token" },
      { "system", "AVAILABLE_TOOLS", "''+message['content']" } },
    { "mistral-v1",
      { "'[INST]'+system_message+'", "loop.firstandsystem_messageisdefined", "''+message['content']+eos_token" },
      { "AVAILABLE_TOOLS", "trim", "SYSTEM_PROMPT" } },
    { "mistral-v3",
      { "'[AVAILABLE_TOOLS]['", "loop.lastandsystem_messageisdefined", "{{-''+message['content']|trim+eos_token" },
      { "SYSTEM_PROMPT" } },
    { "mistral-tekken",
      { "'[AVAILABLE_TOOLS]['", "loop.lastandsystem_messageisdefined", "{{-message['content']+eos_token" },
      { "SYSTEM_PROMPT" } },
    { "gemma",
      { "'<start_of_turn>'+role+'", "'Systemrolenotsupported'", "message['content']|trim+'<end_of_turn>" },
      { "tool", "first_user_prefix" } },
    { "gemma3",
      { "'<start_of_turn>'+role+'", "first_user_prefixifloop.first", "message['content']|trim" },
      { "tool" } },
    { "phi3",
      { "'<|system|>", "'<|user|>", "'<|assistant|>", "+message['content']+'<|end|>",
        "{%else%}{{eos_token}}{%endif%}" },
      { "andmessage['content']", "tool", "bos_token" } },
    { "phi3.5",
      { "=='system'andmessage['content']", "'<|user|>", "'<|assistant|>", "+message['content']+'<|end|>",
        "{%else%}{{eos_token}}{%endif%}" },
      { "tool", "bos_token" } },
    { "phi3-old",
      { "{{bos_token}}", "'<|user|>'+'", "+message['content']+'<|end|>'+'", "{{message['content']+'<|end|>'+'" },
      { "system", "tool" } },
    { "zephyr",
      { "'<|user|>", "+message['content']+eos_token}}", "'<|system|>", "'<|assistant|>",
        "loop.lastandadd_generation_prompt" },
      { "tool", "bos_token", "<|end|>", "notloop.last", "raise_exception" } },
};

static const sl_chat_template *find_hash(const char *jinja, size_t bytes)
{
    uint8_t digest[32];
    char hex[65];
    sl_sha256 h;
    while (bytes > 0 && jinja[bytes - 1] == '\n') bytes--;
    sl_sha256_init(&h);
    sl_sha256_update(&h, jinja, bytes);
    sl_sha256_final(&h, digest);
    sl_sha256_hex(digest, hex);
    for (size_t i = 0; i < sizeof known_texts / sizeof known_texts[0]; i++)
        if (strcmp(known_texts[i].sha256, hex) == 0) return sl_chat_find(known_texts[i].name);
    return NULL;
}

/* A copy for comparing features: without white space and comments, with one kind of quotes. NULL: out of memory. */
static char *simplify(const char *jinja, size_t bytes)
{
    char *out = sl_alloc(bytes + 1, "chat template");
    size_t n = 0;
    bool comment = false;
    for (size_t i = 0; out != NULL && i < bytes; i++) {
        char c = jinja[i];
        if (i + 1 < bytes && c == '{' && jinja[i + 1] == '#') comment = true;
        bool ends = comment && c == '}' && i > 0 && jinja[i - 1] == '#';
        if (!comment && strchr(" \t\r\n", c) == NULL) out[n++] = c == '"' ? '\'' : c;
        if (ends) comment = false;
    }
    return out;
}

static bool has_features(const char *text, const struct feature_set *f)
{
    for (int i = 0; i < MAX_FEATURES && f->needs[i] != NULL; i++)
        if (strstr(text, f->needs[i]) == NULL) return false;
    for (int i = 0; i < MAX_FEATURES && f->lacks[i] != NULL; i++)
        if (strstr(text, f->lacks[i]) != NULL) return false;
    return true;
}

const sl_chat_template *sl_chat_recognise(const char *jinja, size_t bytes, bool *exact)
{
    const sl_chat_template *found = find_hash(jinja, bytes);
    *exact = found != NULL;
    if (found != NULL || bytes > MAX_TEMPLATE_BYTES) return found;
    char *text = simplify(jinja, bytes);
    if (text == NULL) return NULL;
    int matches = 0;
    for (size_t i = 0; i < sizeof feature_sets / sizeof feature_sets[0]; i++)
        if (has_features(text, &feature_sets[i])) {
            found = sl_chat_find(feature_sets[i].name);
            matches++;
        }
    sl_free(text);
    return matches == 1 ? found : NULL;
}

/* ---- folders ---- */

/* The file's JSON; *out NULL: there is no such file. */
static sluice_status read_json(const char *folder, const char *name, char path[PATH_MAX], json_t **out)
{
    char *text;
    size_t bytes;
    *out = NULL;
    if (snprintf(path, PATH_MAX, "%s/%s", folder, name) >= PATH_MAX)
        return sl_fail(SLUICE_ERR_USAGE, "%s: the path is too long", sl_show(folder).text);
    if (!sl_path_exists(path)) return SLUICE_OK;
    SL_TRY(sl_file_read_all(path, MAX_CONFIG_BYTES, &text, &bytes));
    sluice_status st = sl_json_parse(text, bytes, path, SLUICE_ERR_INPUT, out);
    sl_free(text);
    if (st != SLUICE_OK || json_is_object(*out)) return st;
    json_decref(*out);
    *out = NULL;
    return sl_fail(SLUICE_ERR_INPUT, "%s is no JSON object", path);
}

/* A token is a string, or an object whose "content" is one. What is there already stays. */
static sluice_status take_token(const json_t *config, const char *key, char **out)
{
    const json_t *token = json_object_get(config, key);
    if (json_is_object(token)) token = json_object_get(token, "content");
    if (*out != NULL || !json_is_string(token)) return SLUICE_OK;
    *out = sl_strdup(json_string_value(token), "special token");
    return *out != NULL ? SLUICE_OK : SLUICE_ERR_NO_MEMORY;
}

static sluice_status take_tokens(const json_t *config, sl_chat_folder *out)
{
    SL_TRY(take_token(config, "bos_token", &out->bos));
    return take_token(config, "eos_token", &out->eos);
}

static sluice_status take_template(const char *path, const char *jinja, size_t bytes, sl_chat_folder *out)
{
    if (out->source != NULL || jinja == NULL) return SLUICE_OK;
    out->source = sl_strdup(path, "name of a chat template");
    if (out->source == NULL) return SLUICE_ERR_NO_MEMORY;
    out->chat = sl_chat_recognise(jinja, bytes, &out->exact);
    return SLUICE_OK;
}

/* "chat_template" is the text, or a list of named ones; the one named "default" is meant. */
static const char *template_text(const json_t *config)
{
    const json_t *value = json_object_get(config, "chat_template"), *named;
    size_t i;
    if (!json_is_array(value)) return json_string_value(value);
    json_array_foreach(value, i, named)
    {
        const char *name = json_string_value(json_object_get(named, "name"));
        if (name != NULL && strcmp(name, "default") == 0) return json_string_value(json_object_get(named, "template"));
    }
    return NULL;
}

static sluice_status read_config(const char *folder, const char *name, sl_chat_folder *out)
{
    char path[PATH_MAX];
    json_t *config;
    SL_TRY(read_json(folder, name, path, &config));
    if (config == NULL) return SLUICE_OK;
    const char *jinja = template_text(config);
    sluice_status st = take_tokens(config, out);
    if (st == SLUICE_OK && jinja != NULL) st = take_template(path, jinja, strlen(jinja), out);
    json_decref(config);
    return st;
}

static sluice_status read_jinja(const char *folder, sl_chat_folder *out)
{
    char path[PATH_MAX], *text;
    size_t bytes;
    if (snprintf(path, sizeof path, "%s/chat_template.jinja", folder) >= PATH_MAX || !sl_path_exists(path))
        return SLUICE_OK;
    SL_TRY(sl_file_read_all(path, MAX_TEMPLATE_BYTES, &text, &bytes));
    sluice_status st = take_template(path, text, bytes, out);
    sl_free(text);
    return st;
}

static sluice_status read_all(const char *folder, sl_chat_folder *out)
{
    SL_TRY(read_jinja(folder, out)); /* it is newer than what stands in the others, where there are several */
    SL_TRY(read_config(folder, "chat_template.json", out));
    SL_TRY(read_config(folder, "tokenizer_config.json", out));
    return read_config(folder, "special_tokens_map.json", out);
}

sluice_status sl_chat_folder_read(const char *folder, sl_chat_folder *out)
{
    sl_chat_folder f = { .bos = NULL };
    sluice_status st = read_all(folder, &f);
    if (st != SLUICE_OK) {
        sl_chat_folder_free(&f);
        return st;
    }
    *out = f;
    return SLUICE_OK;
}

void sl_chat_folder_free(sl_chat_folder *f)
{
    sl_free(f->bos);
    sl_free(f->eos);
    sl_free(f->source);
    *f = (sl_chat_folder){ .bos = NULL };
}

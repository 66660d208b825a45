/* chat_recognise.c: which of the known templates a folder's Jinja text is.
 *
 * By the whole text alone: the hash of one that was compared with its row, or our own; a copy may differ in what means nothing in
 * Jinja. Releases of a family change what they write in a few words of a long text, so that a text with all the marks of a family
 * may still write others: features only say which row an unknown text is nearest to, for a message. */
#include <ctype.h>
#include <limits.h>
#include <string.h>

#include "core/alloc.h"
#include "core/io.h"
#include "core/quote.h"
#include "core/sha256.h"
#include "format/chat_template.h"
#include "format/json.h"

enum { MAX_FEATURES = 5, MAX_TEMPLATE_BYTES = 1 << 20, MAX_CONFIG_BYTES = 32 << 20 };

/* SHA-256 of a text's normal form (below), or of the text as it is where it has none; without newlines at its end. */
static const struct known_text {
    const char *sha256, *name;
} known_texts[] = {
    { "eec3dad75908c008e6cf50b061da422c501828a9e37ec28f7e5651bfb766ba72", "llama2" },
    { "412eb5bf39199a0995a17c78eeb10d149ac623ee06a6efc14bfb487e85b4ca07", "llama3" },
    { "cf1cc7ff5b3f57f9e91d9d5fbc1f2881619f6da8629fb36d1be8a0f8caf7eb7f", "llama3" }, /* a default for the prompt */
    { "93c0e9aa3629bbd77e68dbc0f5621f6e6b23aa8d74b932595cdb8d64684526d7", "llama3.1" },
    { "d82792f95932f1c9cef5c4bd992f171225e3bf8c7b609b4557c9e1ec96be819f", "llama3.1" }, /* 3.2 */
    { "01a545b2213148253138be00177d7ca0964b9d821e64961e50a1f52942ea6d6e", "chatml" },
    { "8e6fd0e647ba77482c4f486a1d4d9697af09f64dbd8785266f451c7bf26e1e9b", "chatml" }, /* a default for the prompt */
    { "5fa4872ea84f552e91233e14867df98d2665dc864ec4f0201b6eb4e42bf99ff8", "chatml" }, /* its prompt inside the loop */
    { "31e10ce181f9efb8cdd33e5f274d4fea971d91ac59d24817015d7f432bb1f51c", "chatml" },
    { "109bf3a81e09caa53305b1262016c84d813099d3bf93873691f4b184f5af3c15", "qwen2" },
    { "e376395061bea6143e3cf323f9fe3d4250d95f4db06eeb0684fec6da7b7d9b31", "qwen2" }, /* base models of Qwen2.5 */
    { "0e17291b8ab355bd0ed825c4569b90046239f429f467f58314bb66dcba0f6a09", "qwen2.5" },
    { "537b16ab6e6b1ac2d4250915b0889c9e32fc0d36066496e8db1b6420d30ee1a6", "qwen3" },
    { "bcf992676b9948ddac3fbc610331acb6b0a682a4989f2c2c90f568c042e0e5e9", "qwen3" }, /* its first release */
    { "794f8cb454437c13abe4366e271aa0e862ca4e3ae887aebebf3010abd1f2c0be", "qwen3-instruct" },
    { "423af8fdaa9c677ba0b96c91bdf7c0f489b7ac97ec8c7f00e3864cbf1f4ae1d3", "mistral-v1-old" },
    { "92c83ff4fd5f6e2393e8a24c707b476d9c4c6c583bb9f0a726fb5d1458a0d8af", "mistral-v1" },
    { "cafb64e0e9e5fd2503054b3479593fae39cbdfd52338ce8af9bb4664a8eb05bd", "mistral-v3" },
    { "e7deee034838db2bfc7487788a3013d8a307ab69f72f3c54a85f06fd76007d4e", "mistral-tekken" },
    { "5145934c6c8443ee3a3c31a8a3231f78aef2e1ea4e923582e0bdf15f725eb70b", "gemma" },
    { "134b6cb09bff09df5b744b30f207141a4dd7261ecc5f8b8ccddad91572b6d748", "gemma3" },
    { "51c519600c8bc6390bc061ec6ec4cccafde6a60634b387e36cf84fce95f706a3", "phi3" },
    { "63bb98479757a239e884511875da1debdc3af8590bdfdfd822e2b6243a052541", "phi3.5" },
    { "7b430948c64f8b1311da2b5c41c0645df4262be3b61f86c6d571e597aad6430e", "phi3-old" },
    { "f28bfaf359c156b2cb723faa54deaa3957f19f7d25ffff2c95985802d3fbb3c2", "zephyr" },
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

/* ---- the normal form ---- */

/* Two texts with the same normal form are the same program: between the tokens of a tag white space means nothing, "a" is 'a', and
 * a newline in a string is its escape. Text outside of tags, and what a tag trims of it, stay as they are. */
typedef struct normal_form {
    const char *at, *end; /* what is left of the text */
    char *out;            /* owned; twice the text's length is enough */
    size_t bytes;
} normal_form;

typedef enum { PIECE_NONE, PIECE_WORD, PIECE_OPERATOR, PIECE_OTHER } piece_kind;

static piece_kind kind_of(char c)
{
    if (c == '_' || c == '.' || (unsigned char)c >= 0x80 || isalnum((unsigned char)c)) return PIECE_WORD;
    return c != '\0' && strchr("=<>!*/+-~|%&^:", c) != NULL ? PIECE_OPERATOR : PIECE_OTHER;
}

/* False: what it means is not plain to see here. */
static bool take_string(normal_form *n)
{
    char quote = *n->at;
    const char *begin = ++n->at;
    bool plain = true;
    for (; n->at < n->end && *n->at != quote; n->at++) {
        plain = plain && *n->at != '\'' && *n->at != '\\';
        if (*n->at == '\\') n->at++;
        if (n->at == n->end || *n->at == '\r' || (*n->at == '\n' && n->at[-1] == '\\')) return false;
    }
    if (n->at == n->end) return false;
    char written = plain ? '\'' : quote;
    n->out[n->bytes++] = written;
    for (; begin < n->at; begin++) {
        if (*begin == '\n') n->out[n->bytes++] = '\\';
        n->out[n->bytes++] = *begin == '\n' ? 'n' : *begin;
    }
    n->out[n->bytes++] = written;
    n->at++;
    return true;
}

/* A tag from its begin, "{{" or "{%" and the sign that trims, to its end. */
static bool take_tag(normal_form *n)
{
    char shut = n->at[1] == '{' ? '}' : '%';
    piece_kind last = PIECE_OPERATOR;
    bool apart = false;
    for (int i = 0; i < 2 || (i < 3 && n->at < n->end && strchr("-+", *n->at) != NULL); i++)
        n->out[n->bytes++] = *n->at++;
    while (n->at < n->end) {
        char c = *n->at;
        if (c == shut && n->at + 1 < n->end && n->at[1] == '}') {
            n->out[n->bytes++] = c;
            n->out[n->bytes++] = '}';
            n->at += 2;
            return true;
        }
        if (c == '{' || c == '}') return false;
        if (c == ' ' || c == '\t' || c == '\n') {
            apart = true;
            n->at++;
            continue;
        }
        piece_kind kind = kind_of(c);
        if (apart && kind == last && kind != PIECE_OTHER) n->out[n->bytes++] = ' ';
        apart = false;
        last = kind;
        if (c != '\'' && c != '"')
            n->out[n->bytes++] = *n->at++;
        else if (!take_string(n))
            return false;
    }
    return false;
}

static bool write_normal_form(normal_form *n)
{
    while (n->at < n->end) {
        bool tag = *n->at == '{' && n->at + 1 < n->end && (n->at[1] == '{' || n->at[1] == '%');
        if (*n->at == '{' && n->at + 1 < n->end && n->at[1] == '#') return false;
        if (tag && !take_tag(n)) return false;
        if (!tag) n->out[n->bytes++] = *n->at++;
    }
    return true;
}

static void sum_of(const char *text, size_t bytes, char hex[65])
{
    uint8_t digest[32];
    sl_sha256 h;
    sl_sha256_init(&h);
    sl_sha256_update(&h, text, bytes);
    sl_sha256_final(&h, digest);
    sl_sha256_hex(digest, hex);
}

sluice_status sl_chat_normal_sum(const char *jinja, size_t bytes, char hex[65])
{
    while (bytes > 0 && jinja[bytes - 1] == '\n') bytes--;
    normal_form n = { .at = jinja, .end = jinja + bytes };
    hex[0] = '\0';
    if (bytes > MAX_TEMPLATE_BYTES) return SLUICE_OK;
    n.out = sl_alloc(2 * bytes + 1, "chat template");
    if (n.out == NULL) return SLUICE_ERR_NO_MEMORY;
    if (write_normal_form(&n)) sum_of(n.out, n.bytes, hex);
    sl_free(n.out);
    return SLUICE_OK;
}

static const sl_chat_template *find_sum(const char *hex)
{
    for (size_t i = 0; i < sizeof known_texts / sizeof known_texts[0]; i++)
        if (strcmp(known_texts[i].sha256, hex) == 0) return sl_chat_find(known_texts[i].name);
    return NULL;
}

static sluice_status find_known(const char *jinja, size_t bytes, const sl_chat_template **out)
{
    char hex[65];
    SL_TRY(sl_chat_normal_sum(jinja, bytes, hex));
    *out = find_sum(hex);
    if (*out != NULL) return SLUICE_OK;
    sum_of(jinja, bytes, hex);
    *out = find_sum(hex);
    return SLUICE_OK;
}

/* ---- likeness ---- */

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

/* Share of what a row's text contains that this one does; 2 where it also lacks what that lacks. */
static double likeness(const char *text, const struct feature_set *f)
{
    int met = 0, count = 0, strange = 0;
    for (; count < MAX_FEATURES && f->needs[count] != NULL; count++) met += strstr(text, f->needs[count]) != NULL;
    for (int i = 0; i < MAX_FEATURES && f->lacks[i] != NULL; i++) strange += strstr(text, f->lacks[i]) != NULL;
    return met == count && strange == 0 ? 2 : (double)met / count;
}

const sl_chat_template *sl_chat_nearest(const char *jinja, size_t bytes)
{
    const char *nearest = NULL;
    double most = 0.5;
    char *text = bytes <= MAX_TEMPLATE_BYTES ? simplify(jinja, bytes) : NULL;
    for (size_t i = 0; text != NULL && i < sizeof feature_sets / sizeof feature_sets[0]; i++) {
        double like = likeness(text, &feature_sets[i]);
        if (like <= most) continue;
        most = like;
        nearest = feature_sets[i].name;
    }
    sl_free(text);
    return nearest != NULL ? sl_chat_find(nearest) : NULL;
}

static const sl_chat_template *find_own(const char *jinja, size_t bytes, sl_chat_span *date)
{
    for (int i = 0; sl_chat_at(i) != NULL; i++)
        if (sl_chat_is_own(sl_chat_at(i), jinja, bytes, date)) return sl_chat_at(i);
    return NULL;
}

sluice_status sl_chat_recognise(const char *jinja, size_t bytes, const sl_chat_template **out, char **date)
{
    sl_chat_span told;
    *date = NULL;
    while (bytes > 0 && jinja[bytes - 1] == '\n') bytes--;
    *out = find_own(jinja, bytes, &told);
    if (*out == NULL) return find_known(jinja, bytes, out);
    if (told.text == NULL) return SLUICE_OK;
    *date = sl_alloc(told.bytes + 1, "date of a chat template");
    if (*date == NULL) return SLUICE_ERR_NO_MEMORY;
    memcpy(*date, told.text, told.bytes);
    return SLUICE_OK;
}

sluice_status sl_chat_refuse(const sl_chat_folder *f, const char *how)
{
    char names[SL_CHAT_NAMES_BYTES], nearest[256] = "";
    if (f->nearest != NULL)
        snprintf(nearest, sizeof nearest, "; the nearest that is known is \"%s\", which may write other text",
                 sl_chat_name(f->nearest));
    return sl_fail(
        SLUICE_ERR_INPUT,
        "%s holds a chat template that is not known word for word%s. Choose by hand what the model reads, with "
        "%s, one of %s",
        f->source, nearest, how, sl_chat_names(names));
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
    SL_TRY(sl_chat_recognise(jinja, bytes, &out->chat, &out->date));
    if (out->chat == NULL) out->nearest = sl_chat_nearest(jinja, bytes);
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

sluice_status sl_chat_folder_read(const char *over, const char *folder, sl_chat_folder *out)
{
    sl_chat_folder f = { .bos = NULL };
    sluice_status st = over != NULL && over[0] != '\0' ? read_all(over, &f) : SLUICE_OK;
    if (st == SLUICE_OK) st = read_all(folder, &f);
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
    sl_free(f->date);
    *f = (sl_chat_folder){ .bos = NULL };
}

/* generate_prompts.c: prompts from a file, one a line, and how conversations are written. */
#include <string.h>

#include "core/alloc.h"
#include "core/io.h"
#include "core/quote.h"
#include "format/json.h"
#include "train/generate.h"

#define MOST_BYTES   ((size_t)1 << 30) /* of a file */
#define MOST_PROMPTS (1 << 24)

sluice_status sl_generation_add(struct sl_generation *g, const char *text, size_t bytes)
{
    if (g->count == MOST_PROMPTS) return sl_fail(SLUICE_ERR_INPUT, "there are over %d prompts", MOST_PROMPTS);
    SL_TRY(sl_grow((void **)&g->exchanges, &g->capacity, g->count + 1, sizeof *g->exchanges, "prompts"));
    sl_exchange *x = &g->exchanges[g->count];
    *x = (sl_exchange){ .prompt_bytes = bytes };
    x->prompt = sl_alloc(bytes + 1, "prompt");
    if (x->prompt == NULL) return SLUICE_ERR_NO_MEMORY;
    memcpy(x->prompt, text, bytes);
    g->count++;
    return SLUICE_OK;
}

/* ---- conversations ---- */

sluice_status sl_generation_render(struct sl_generation *g, const sl_chat_message *messages, int count,
                                   const char *where, char **out, size_t *bytes)
{
    const sl_chat_words words = { g->text.folder.bos, g->text.folder.eos, g->text.date };
    sl_chat_text text = { .parts = NULL };
    sluice_status st = sl_chat_render(g->text.chat, &words, messages, count, true, where, &text);
    char *copy = st == SLUICE_OK ? sl_alloc(text.text.bytes + 1, "conversation") : NULL;
    if (copy != NULL) {
        if (text.text.bytes > 0) memcpy(copy, text.text.data, text.text.bytes);
        *out = copy;
        *bytes = text.text.bytes;
    }
    sl_chat_text_free(&text);
    return st == SLUICE_OK && copy == NULL ? SLUICE_ERR_NO_MEMORY : st;
}

sluice_status sl_generation_render_prompt(struct sl_generation *g, sl_exchange *x, const char *system)
{
    sl_chat_message messages[2];
    int count = 0;
    if (system != NULL) messages[count++] = (sl_chat_message){ SL_ROLE_SYSTEM, system, strlen(system) };
    messages[count++] = (sl_chat_message){ SL_ROLE_USER, x->prompt, x->prompt_bytes };
    return sl_generation_render(g, messages, count, "chat", &x->rendered, &x->rendered_bytes);
}

#define MOST_MESSAGES 4096

/* One of "messages": {"role": .., "content": ..}. */
static sluice_status read_message(const json_t *from, const char *where, sl_chat_message *out)
{
    static const char *const roles[SL_ROLE_COUNT] = { "system", "user", "assistant" };
    const json_t *role = json_object_get(from, "role"), *content = json_object_get(from, "content");
    if (!json_is_string(role) || !json_is_string(content))
        return sl_fail(SLUICE_ERR_INPUT, "%s: a message needs \"role\" and \"content\", both texts", where);
    for (int i = 0; i < SL_ROLE_COUNT; i++)
        if (strcmp(roles[i], json_string_value(role)) == 0) {
            *out = (sl_chat_message){ (sl_chat_role)i, json_string_value(content), json_string_length(content) };
            return SLUICE_OK;
        }
    return sl_fail(SLUICE_ERR_INPUT, "%s: \"role\" is %s; it is system, user or assistant", where,
                   sl_quote(json_string_value(role)).text);
}

/* {"messages": [..]}: the prompt is what the user said last. */
static sluice_status add_messages(struct sl_generation *g, const json_t *list, const char *where)
{
    size_t count = json_array_size(list);
    if (g->text.chat == NULL && g->text.folder.source != NULL) return sl_chat_refuse(&g->text.folder, "--template");
    if (g->text.chat == NULL)
        return sl_fail(SLUICE_ERR_INPUT,
                       "%s: has \"messages\", but no chat template is known; name one with --template", where);
    if (count == 0 || count > MOST_MESSAGES)
        return sl_fail(SLUICE_ERR_INPUT, "%s: has %zu messages, must have 1 to %d", where, count, MOST_MESSAGES);
    sl_chat_message *messages = sl_alloc_array(count, sizeof *messages, "messages");
    if (messages == NULL) return SLUICE_ERR_NO_MEMORY;
    sluice_status st = SLUICE_OK;
    for (size_t i = 0; i < count && st == SLUICE_OK; i++)
        st = read_message(json_array_get(list, i), where, &messages[i]);
    if (st == SLUICE_OK) st = sl_generation_add(g, messages[count - 1].content, messages[count - 1].bytes);
    if (st == SLUICE_OK) {
        sl_exchange *x = &g->exchanges[g->count - 1];
        st = sl_generation_render(g, messages, (int)count, where, &x->rendered, &x->rendered_bytes);
    }
    sl_free(messages);
    return st;
}

/* ---- files ---- */

/* {"prompt": TEXT} or {"messages": [..]}; other keys are the user's own. */
static sluice_status add_object(struct sl_generation *g, const char *line, size_t bytes, const char *what)
{
    json_t *object;
    SL_TRY(sl_json_parse(line, bytes, what, SLUICE_ERR_INPUT, &object));
    json_t *prompt = json_object_get(object, "prompt"), *messages = json_object_get(object, "messages");
    sluice_status st = SLUICE_OK;
    if (json_is_string(prompt))
        st = sl_generation_add(g, json_string_value(prompt), json_string_length(prompt));
    else if (json_is_array(messages))
        st = add_messages(g, messages, what);
    else
        st = sl_fail(SLUICE_ERR_INPUT,
                     "%s: has no \"prompt\" that is a text and no \"messages\" that is a list; write {\"prompt\": "
                     "\"...\"}",
                     what);
    json_decref(object);
    return st;
}

static bool is_blank(const char *line, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (strchr(" \t\r", line[i]) == NULL) return false;
    return true;
}

static sluice_status add_lines(struct sl_generation *g, const char *text, size_t bytes, const char *path)
{
    bool objects = false, first = true;
    long number = 0;
    for (size_t at = 0; at < bytes;) {
        const char *line = text + at, *end = memchr(line, '\n', bytes - at);
        size_t length = end != NULL ? (size_t)(end - line) : bytes - at;
        at += length + 1;
        number++;
        if (is_blank(line, length)) continue;
        if (first) objects = line[strspn(line, " \t\r")] == '{';
        first = false;
        if (length > 0 && line[length - 1] == '\r') length--;
        char what[4200];
        snprintf(what, sizeof what, "%.4096s, line %ld", path, number);
        SL_TRY(objects ? add_object(g, line, length, what) : sl_generation_add(g, line, length));
    }
    if (g->count == 0) return sl_fail(SLUICE_ERR_INPUT, "%s: holds no prompt; write one a line", path);
    return SLUICE_OK;
}

sluice_status sl_generation_read(struct sl_generation *g, const char *path, const sluice_job_options *o)
{
    char *text;
    size_t bytes;
    SL_TRY(sl_file_read_all_until(o->stop, path, MOST_BYTES, &text, &bytes));
    sluice_status st = add_lines(g, text, bytes, path);
    sl_free(text);
    return st;
}

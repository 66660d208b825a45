/* render_chats.c: the chat templates as a program, for the referee beside it (templates.py).
 *
 * Each line of standard input is {"template", "bos", "eos", "date", "prompts", "messages": [{"role", "content"}]}, and is answered
 * by a line {"text", "loss": [[begin, end], ...]} (bytes of the text) or {"error"}. With the argument "recognise" a line is
 * {"jinja"} and the answer {"template", "nearest", "date", "sum"}; with "jinja" a line is {"template", "date"} and the answer {"jinja"}. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "format/chat_template.h"

enum { MAX_MESSAGES = 64 };

static void answer(json_t *line)
{
    char *text = json_dumps(line, JSON_COMPACT | JSON_SORT_KEYS);
    puts(text);
    free(text);
    json_decref(line);
}

static sl_chat_role role_of(const char *name)
{
    return strcmp(name, "system") == 0 ? SL_ROLE_SYSTEM : strcmp(name, "user") == 0 ? SL_ROLE_USER : SL_ROLE_ASSISTANT;
}

static json_t *render(const json_t *line)
{
    sl_chat_message messages[MAX_MESSAGES];
    const json_t *list = json_object_get(line, "messages"), *m;
    const sl_chat_words words = { json_string_value(json_object_get(line, "bos")),
                                  json_string_value(json_object_get(line, "eos")),
                                  json_string_value(json_object_get(line, "date")) };
    const sl_chat_template *t = sl_chat_find(json_string_value(json_object_get(line, "template")));
    sl_chat_text out = { .part_count = 0 };
    size_t i;
    json_array_foreach(list, i, m)
    {
        const json_t *content = json_object_get(m, "content");
        messages[i] = (sl_chat_message){ role_of(json_string_value(json_object_get(m, "role"))),
                                         json_string_value(content), json_string_length(content) };
    }
    bool prompts = json_is_true(json_object_get(line, "prompts"));
    if (sl_chat_render(t, &words, messages, (int)json_array_size(list), prompts, "here", &out) != SLUICE_OK)
        return json_pack("{s:s}", "error", sluice_error());
    json_t *loss = json_array();
    for (int p = 0; p < out.part_count; p++)
        if (out.parts[p].loss)
            json_array_append_new(loss,
                                  json_pack("[I,I]", (json_int_t)out.parts[p].begin, (json_int_t)out.parts[p].end));
    json_t *result = json_pack("{s:s%,s:o}", "text", out.text.data, out.text.bytes, "loss", loss);
    sl_chat_text_free(&out);
    return result;
}

/* The row's own Jinja text. */
static json_t *jinja_of(const json_t *line)
{
    sl_text text = { .data = NULL };
    sl_chat_jinja(sl_chat_find(json_string_value(json_object_get(line, "template"))),
                  json_string_value(json_object_get(line, "date")), &text);
    json_t *result = json_pack("{s:s%}", "jinja", text.data, text.bytes);
    sl_text_free(&text);
    return result;
}

static json_t *recognise(const json_t *line)
{
    const json_t *jinja = json_object_get(line, "jinja");
    char *date;
    const sl_chat_template *t;
    if (sl_chat_recognise(json_string_value(jinja), json_string_length(jinja), &t, &date) != SLUICE_OK)
        return json_pack("{s:s}", "error", sluice_error());
    const sl_chat_template *nearest = sl_chat_nearest(json_string_value(jinja), json_string_length(jinja));
    char sum[65];
    if (sl_chat_normal_sum(json_string_value(jinja), json_string_length(jinja), sum) != SLUICE_OK) sum[0] = '\0';
    json_t *result = json_pack("{s:s,s:s?,s:s?,s:s?}", "sum", sum, "template", t != NULL ? sl_chat_name(t) : NULL,
                               "nearest", nearest != NULL ? sl_chat_name(nearest) : NULL, "date", date);
    sl_free(date);
    return result;
}

int main(int argc, char **argv)
{
    const char *asked = argc > 1 ? argv[1] : "";
    char *text = NULL;
    size_t capacity = 0;
    for (ssize_t bytes; (bytes = getline(&text, &capacity, stdin)) > 0;) {
        json_t *line = json_loadb(text, (size_t)bytes, 0, NULL);
        if (line == NULL) return 1;
        answer(strcmp(asked, "recognise") == 0 ? recognise(line)
               : strcmp(asked, "jinja") == 0   ? jinja_of(line)
                                               : render(line));
        json_decref(line);
    }
    free(text);
    return 0;
}

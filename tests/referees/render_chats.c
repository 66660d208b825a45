/* render_chats.c: the chat templates as a program, for the referee beside it (templates.py).
 *
 * Each line of standard input is {"template", "bos", "eos", "date", "prompts", "messages": [{"role", "content"}]}, and is answered
 * by a line {"text", "loss": [[begin, end], ...]} (bytes of the text) or {"error"}. With the argument "recognise" a line is
 * {"jinja"} and the answer {"template", "exact"}. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static json_t *recognise(const json_t *line)
{
    const json_t *jinja = json_object_get(line, "jinja");
    bool exact;
    const sl_chat_template *t = sl_chat_recognise(json_string_value(jinja), json_string_length(jinja), &exact);
    return json_pack("{s:s?,s:b}", "template", t != NULL ? sl_chat_name(t) : NULL, "exact", exact);
}

int main(int argc, char **argv)
{
    bool recognises = argc > 1 && strcmp(argv[1], "recognise") == 0;
    char *text = NULL;
    size_t capacity = 0;
    for (ssize_t bytes; (bytes = getline(&text, &capacity, stdin)) > 0;) {
        json_t *line = json_loadb(text, (size_t)bytes, 0, NULL);
        if (line == NULL) return 1;
        answer(recognises ? recognise(line) : render(line));
        json_decref(line);
    }
    free(text);
    return 0;
}

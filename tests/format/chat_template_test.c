/* chat_template_test.c: conversations as the families' own templates write them. tests/referees/templates.py recorded what
 * transformers makes of them, and compares many more where it can run. */
#include "format/chat_template.h"

#include <jansson.h>
#include <string.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/io.h"
#include "test.h"

#define FIXTURE SLUICE_SOURCE_DIR "/tests/fixtures/chat_templates.jsonl"
enum { MAX_MESSAGES = 32, MAX_SPANS = 32 };

static sl_chat_role role_of(const char *name)
{
    return strcmp(name, "system") == 0 ? SL_ROLE_SYSTEM : strcmp(name, "user") == 0 ? SL_ROLE_USER : SL_ROLE_ASSISTANT;
}

static sluice_status render(const json_t *line, sl_chat_text *out)
{
    sl_chat_message messages[MAX_MESSAGES];
    const json_t *list = json_object_get(line, "messages"), *m;
    const sl_chat_words words = { json_string_value(json_object_get(line, "bos")),
                                  json_string_value(json_object_get(line, "eos")),
                                  json_string_value(json_object_get(line, "date")) };
    size_t i;
    json_array_foreach(list, i, m)
    {
        const json_t *content = json_object_get(m, "content");
        messages[i] = (sl_chat_message){ role_of(json_string_value(json_object_get(m, "role"))),
                                         json_string_value(content), json_string_length(content) };
    }
    return sl_chat_render(sl_chat_find(json_string_value(json_object_get(line, "template"))), &words, messages, (int)i,
                          json_is_true(json_object_get(line, "prompts")), "fixture", out);
}

/* Neighbours of the same loss are one span. */
static int loss_spans(const sl_chat_text *t, size_t spans[MAX_SPANS][2])
{
    int count = 0;
    for (int p = 0; p < t->part_count; p++) {
        if (!t->parts[p].loss) continue;
        if (count > 0 && spans[count - 1][1] == t->parts[p].begin)
            spans[count - 1][1] = t->parts[p].end;
        else
            memcpy(spans[count++], (size_t[]){ t->parts[p].begin, t->parts[p].end }, sizeof spans[0]);
    }
    return count;
}

static void check_loss(const json_t *line, const sl_chat_text *t, int number)
{
    size_t spans[MAX_SPANS][2], i;
    const json_t *wanted = json_object_get(line, "loss"), *span;
    if (json_is_null(wanted)) return;
    int count = loss_spans(t, spans);
    CHECK_THAT((size_t)count == json_array_size(wanted), "line %d: %d spans of loss, not %zu", number, count,
               json_array_size(wanted));
    json_array_foreach(wanted, i, span)
    {
        if ((int)i >= count) break;
        CHECK_EQ(spans[i][0], json_integer_value(json_array_get(span, 0)));
        CHECK_EQ(spans[i][1], json_integer_value(json_array_get(span, 1)));
    }
}

static void check_parts(const sl_chat_text *t)
{
    size_t at = 0;
    for (int p = 0; p < t->part_count; p++) {
        CHECK_EQ(t->parts[p].begin, at);
        CHECK(t->parts[p].end > at);
        at = t->parts[p].end;
    }
    CHECK_EQ(at, t->text.bytes);
}

TEST(conversations_become_the_texts_that_transformers_makes_of_them)
{
    char *text, *next;
    size_t bytes;
    int number = 0;
    sl_chat_text out = { .part_count = 0 };
    REQUIRE_OK(sl_file_read_all(FIXTURE, 1 << 20, &text, &bytes));
    for (char *line = text; (next = strchr(line, '\n')) != NULL; line = next + 1) {
        json_t *recorded = json_loadb(line, (size_t)(next - line), 0, NULL);
        number++;
        REQUIRE(recorded != NULL);
        const json_t *wanted = json_object_get(recorded, "text");
        REQUIRE_OK(render(recorded, &out));
        CHECK_THAT(out.text.bytes == json_string_length(wanted) &&
                       memcmp(out.text.data, json_string_value(wanted), out.text.bytes) == 0,
                   "line %d (%s):\n  %s\nis not\n  %s", number,
                   json_string_value(json_object_get(recorded, "template")), out.text.data, json_string_value(wanted));
        check_loss(recorded, &out, number);
        check_parts(&out);
        json_decref(recorded);
    }
    CHECK_EQ(number, 19 * 12);
    sl_chat_text_free(&out);
    sl_free(text);
}

TEST(every_row_has_conversations_on_record)
{
    char *text, key[64];
    size_t bytes;
    REQUIRE_OK(sl_file_read_all(FIXTURE, 1 << 20, &text, &bytes));
    for (int i = 0; sl_chat_at(i) != NULL; i++) {
        snprintf(key, sizeof key, "{\"template\": \"%s\",", sl_chat_name(sl_chat_at(i)));
        CHECK_THAT(strstr(text, key) != NULL, "no conversation of \"%s\"", sl_chat_name(sl_chat_at(i)));
        CHECK(sl_chat_find(sl_chat_name(sl_chat_at(i))) == sl_chat_at(i));
    }
    CHECK(sl_chat_find("llama4") == NULL);
    sl_free(text);
}

static sluice_status try_roles(const char *name, const char *roles)
{
    sl_chat_message messages[8];
    sl_chat_text out = { .part_count = 0 };
    int count = 0;
    for (; roles[count] != '\0'; count++)
        messages[count] = (sl_chat_message){ roles[count] == 's'   ? SL_ROLE_SYSTEM
                                             : roles[count] == 'u' ? SL_ROLE_USER
                                                                   : SL_ROLE_ASSISTANT,
                                             "x", 1 };
    sluice_status st = sl_chat_render(sl_chat_find(name), &(sl_chat_words){ "<s>", "</s>", NULL }, messages, count,
                                      false, "chat.jsonl, line 7", &out);
    sl_chat_text_free(&out);
    return st;
}

TEST(conversations_that_a_template_does_not_take_are_refused_with_their_place)
{
    static const struct {
        const char *name, *roles, *says;
    } cases[] = {
        { "gemma", "sua", "has no system message" },        { "mistral-v1-old", "sua", "has no system message" },
        { "gemma", "uu", "message 2 is the user's" },       { "gemma3", "suaa", "message 4 is the assistant's" },
        { "llama2", "au", "message 1 is the assistant's" }, { "llama2", "uas", "message 3 is the system's" },
        { "mistral-v3", "s", "a system message alone" },    { "chatml", "", "without messages" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        CHECK_EQ(try_roles(cases[i].name, cases[i].roles), SLUICE_ERR_INPUT);
        CHECK_CONTAINS(sluice_error(), "chat.jsonl, line 7: ");
        CHECK_CONTAINS(sluice_error(), cases[i].says);
    }
    CHECK_EQ(try_roles("gemma", "uaua"), SLUICE_OK);
    CHECK_EQ(try_roles("chatml", "aassu"), SLUICE_OK);
}

TEST(a_template_that_drops_the_system_message_says_so)
{
    const sl_chat_message messages[] = { { SL_ROLE_SYSTEM, "S", 1 },
                                         { SL_ROLE_USER, "U", 1 },
                                         { SL_ROLE_ASSISTANT, "A", 1 } };
    sl_chat_text out = { .part_count = 0 };
    const sl_chat_words words = { "<s>", "</s>", NULL };
    REQUIRE_OK(sl_chat_render(sl_chat_find("mistral-v3"), &words, messages, 3, false, "here", &out));
    CHECK(out.system_dropped);
    CHECK_STR(out.text.data, "<s>[INST] U[/INST] A</s>");
    REQUIRE_OK(sl_chat_render(sl_chat_find("mistral-v3"), &words, messages, 2, true, "here", &out));
    CHECK(!out.system_dropped);
    CHECK_STR(out.text.data, "<s>[INST] S\n\nU[/INST]");
    REQUIRE_OK(sl_chat_render(sl_chat_find("phi3-old"), &words, messages, 3, false, "here", &out));
    CHECK(out.system_dropped);
    REQUIRE_OK(sl_chat_render(sl_chat_find("mistral-v1"), &words, messages, 3, false, "here", &out));
    CHECK(!out.system_dropped);
    sl_chat_text_free(&out);
}

/* Texts with the features of one row each, as copies of the families' templates have them. */
static const char chatml_copy[] =
    "{% for message in messages %}{{ \"<|im_start|>\" + message['role'] + '\\n' + message['content'] + "
    "'<|im_end|>' + '\\n' }}{% endfor %}";
static const char mistral_copy[] = "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}{{ "
                                   "'[INST] ' + message['content'] + ' [/INST]' }}"
                                   "{% else %}{{ message['content'] + eos_token }}{% endif %}{% endfor %}";

TEST(a_template_is_recognised_by_its_features_and_refused_without_them)
{
    bool exact = true;
    CHECK(sl_chat_recognise(chatml_copy, strlen(chatml_copy), &exact) == sl_chat_find("chatml"));
    CHECK(!exact);
    CHECK(sl_chat_recognise(mistral_copy, strlen(mistral_copy), &exact) == sl_chat_find("mistral-v1-old"));
    CHECK(sl_chat_recognise("", 0, &exact) == NULL);
    CHECK(sl_chat_recognise("{{ messages }}", 14, &exact) == NULL);
    /* a feature inside a comment is none */
    char hidden[1024];
    snprintf(hidden, sizeof hidden, "{# %s #}", chatml_copy);
    CHECK(sl_chat_recognise(hidden, strlen(hidden), &exact) == NULL);
    /* another default system message is another template */
    snprintf(hidden, sizeof hidden, "%s{{ 'system: you are a pirate' }}", chatml_copy);
    CHECK(sl_chat_recognise(hidden, strlen(hidden), &exact) == NULL);
}

static void write_file(const char *folder, const char *name, const char *text)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    REQUIRE_OK(sl_file_write_all(path, text, strlen(text)));
}

TEST(a_folder_tells_its_template_and_its_tokens)
{
    char folder[] = "/tmp/sluice-chat-XXXXXX";
    sl_chat_folder f = { .bos = NULL };
    REQUIRE(mkdtemp(folder) != NULL);
    REQUIRE_OK(sl_chat_folder_read(folder, &f));
    CHECK(f.chat == NULL && f.source == NULL && f.bos == NULL);
    write_file(folder, "tokenizer_config.json",
               "{\"bos_token\": {\"content\": \"<s>\", \"lstrip\": false}, \"eos_token\": \"</s>\", \"chat_template\": "
               "[{\"name\": "
               "\"tool_use\", \"template\": \"x\"}, {\"name\": \"default\", \"template\": \"{{ what }}\"}]}");
    REQUIRE_OK(sl_chat_folder_read(folder, &f));
    CHECK(f.chat == NULL);
    CHECK_CONTAINS(f.source, "/tokenizer_config.json");
    CHECK_STR(f.bos, "<s>");
    CHECK_STR(f.eos, "</s>");
    sl_chat_folder_free(&f);
    write_file(folder, "chat_template.jinja", chatml_copy);
    REQUIRE_OK(sl_chat_folder_read(folder, &f));
    CHECK(f.chat == sl_chat_find("chatml"));
    CHECK_CONTAINS(f.source, "/chat_template.jinja");
    sl_chat_folder_free(&f);
    write_file(folder, "tokenizer_config.json", "{\"bos_token\": ");
    CHECK_EQ(sl_chat_folder_read(folder, &f), SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), "tokenizer_config.json");
    REQUIRE_OK(sl_dir_remove_tree(folder));
}

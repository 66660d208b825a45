/* chat_template_test.c: conversations as the families' own templates write them. tests/referees/templates.py recorded what
 * transformers makes of them, and compares many more where it can run. */
#include "format/chat_template.h"

#include <jansson.h>
#include <string.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/io.h"
#include "core/sha256.h"
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

/* The row of a text; NULL: it is not known. */
static const sl_chat_template *known(const char *jinja)
{
    const sl_chat_template *t = NULL;
    char *date = NULL;
    CHECK_EQ(sl_chat_recognise(jinja, strlen(jinja), &t, &date), SLUICE_OK);
    sl_free(date);
    return t;
}

static const sl_chat_template *nearest(const char *jinja)
{
    return sl_chat_nearest(jinja, strlen(jinja));
}

/* A text of which transformers makes what the row does, and spellings that mean the same or nearly so. */
static const char chatml_text[] =
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + "
    "'\\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";
static const char chatml_copy[] =
    "{% for message in messages %}{{ \"<|im_start|>\" + message['role'] + '\\n' + message['content'] + "
    "'<|im_end|>' + '\\n' }}{% endfor %}";
/* It answers in another form than "mistral-v1-old": a space around an answer. */
static const char mistral_copy[] = "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}{{ "
                                   "'[INST] ' + message['content'] + ' [/INST]' }}"
                                   "{% else %}{{ message['content'] + eos_token + ' ' }}{% endif %}{% endfor %}";

TEST(a_template_is_known_word_for_word_and_never_by_what_it_resembles)
{
    CHECK(known(chatml_text) == sl_chat_find("chatml"));
    CHECK(known(chatml_copy) == NULL);
    CHECK(known(mistral_copy) == NULL);
    CHECK(known("") == NULL);
    CHECK(known("{{ messages }}") == NULL);
    char longer[1024];
    snprintf(longer, sizeof longer, "%s\n\n", chatml_text);
    CHECK(known(longer) == sl_chat_find("chatml"));
    snprintf(longer, sizeof longer, "%s ", chatml_text);
    CHECK(known(longer) == NULL);
}

/* The normal form: what means nothing in a tag may differ, and nothing else. */
TEST(a_copy_may_differ_in_what_means_nothing_in_jinja)
{
    static const char *const same[] = {
        "{% for message in messages %}{{ \"<|im_start|>\" + message [ \"role\" ] + '\\n' + message['content'] + "
        "'<|im_end|>' + '\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}",
        "{%for   message\nin messages%}{{'<|im_start|>'+message['role']+'\n'+message['content']+'<|im_end|>'+'\\n'}}"
        "{%endfor%}{%if add_generation_prompt%}{{'<|im_start|>assistant\n'}}{%endif%}\n",
    };
    static const char *const other[] = {
        /* a space in a string, one between tags, a sign that trims, a name in two */
        "{% for message in messages %}{{'<|im_start|> ' + message['role'] + '\\n' + message['content'] + '<|im_end|>' "
        "+ "
        "'\\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}",
        "{% for message in messages %} {{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' "
        "+ "
        "'\\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}",
        "{% for message in messages -%}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' "
        "+ "
        "'\\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}",
        "{% for message in messages %}{{'<|im_start|>' + mes sage['role'] + '\\n' + message['content'] + '<|im_end|>' "
        "+ "
        "'\\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}",
    };
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++) CHECK(known(same[i]) == sl_chat_find("chatml"));
    for (size_t i = 0; i < sizeof other / sizeof other[0]; i++) CHECK(known(other[i]) == NULL);
}

TEST(a_text_whose_meaning_is_not_plain_has_no_normal_form)
{
    static const char *const texts[] = { "{# a comment #}",  "{{ {'a': 1}['a'] }}", "{{ 'open }}", "{% if a",
                                         "{{ \"a\\\nb\" }}", "{{ 'a\r\nb' }}",      "{{ 'a\\" };
    static const char *const pairs[][2] = { { "{{ a  .b }}", "{{ a.b }}" },
                                            { "{{ 1 - -1 }}", "{{ 1 --1 }}" },
                                            { "{{ \"it's\" }}", "{{ 'its' }}" },
                                            { "{{ - a }}", "{{- a }}" } };
    char one[65], two[65];
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        REQUIRE_OK(sl_chat_normal_sum(texts[i], strlen(texts[i]), one));
        CHECK_THAT(one[0] == '\0', "%s has one", texts[i]);
    }
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        REQUIRE_OK(sl_chat_normal_sum(pairs[i][0], strlen(pairs[i][0]), one));
        REQUIRE_OK(sl_chat_normal_sum(pairs[i][1], strlen(pairs[i][1]), two));
        CHECK_THAT(one[0] != '\0' && strcmp(one, two) != 0, "%s is taken for %s", pairs[i][0], pairs[i][1]);
    }
}

TEST(the_nearest_template_is_named_for_one_that_is_not_known)
{
    char text[1024];
    CHECK(nearest(chatml_copy) == sl_chat_find("chatml"));
    CHECK(nearest(mistral_copy) == sl_chat_find("mistral-v1-old"));
    CHECK(nearest("") == NULL);
    CHECK(nearest("{{ messages }}") == NULL);
    snprintf(text, sizeof text, "{# %s #}", chatml_copy); /* a feature inside a comment is none */
    CHECK(nearest(text) == NULL);
    snprintf(text, sizeof text, "%s{{ 'system: you are a pirate' }}", chatml_copy);
    CHECK(nearest(text) == sl_chat_find("chatml"));

    sl_chat_folder f = { .source = (char *)"F/chat_template.jinja", .nearest = sl_chat_find("chatml") };
    CHECK_EQ(sl_chat_refuse(&f, "--template"), SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), "F/chat_template.jinja holds a chat template that is not known word for word");
    CHECK_CONTAINS(sluice_error(), "\"chatml\", which may write other text");
    CHECK_CONTAINS(sluice_error(), "with --template, one of llama2, llama3,");
}

TEST(the_jinja_text_of_every_row_is_known_as_that_row)
{
    for (int i = 0; sl_chat_at(i) != NULL; i++) {
        const sl_chat_template *t = sl_chat_at(i), *found = NULL;
        sl_text text = { .data = NULL };
        char *date = NULL;
        sl_chat_jinja(t, NULL, &text);
        REQUIRE_OK(sl_chat_recognise(text.data, text.bytes, &found, &date));
        CHECK_THAT(found == t, "the text of \"%s\" is taken for \"%s\"", sl_chat_name(t),
                   found != NULL ? sl_chat_name(found) : "none");
        CHECK((date != NULL) == (sl_chat_usual_date(t) != NULL));
        text.data[text.bytes / 2] ^= 1;
        sl_free(date);
        CHECK(known(text.data) == NULL);
        sl_text_free(&text);
    }
}

TEST(a_jinja_text_tells_the_date_that_it_was_written_with)
{
    const sl_chat_template *t = sl_chat_find("llama3.1"), *found = NULL;
    static const char *const dates[] = { "03 Mar 2025", "", "26 Jul 2024" };
    for (size_t i = 0; i < sizeof dates / sizeof dates[0]; i++) {
        sl_text text = { .data = NULL };
        char *date = NULL;
        sl_chat_jinja(t, dates[i], &text);
        CHECK_CONTAINS(text.data, dates[i]);
        REQUIRE_OK(sl_chat_recognise(text.data, text.bytes, &found, &date));
        CHECK(found == t);
        CHECK_STR(date, dates[i]);
        sl_free(date);
        sl_text_free(&text);
    }
    sl_text text = { .data = NULL };
    sl_chat_jinja(t, "x') + ('y", &text); /* what a date never is: it would be another program */
    CHECK(known(text.data) == NULL);
    sl_text_free(&text);
}

/* What tests/referees/templates.py --record has found equal to the rows' renderings under transformers. */
TEST(the_jinja_text_of_every_row_is_one_that_transformers_rendered)
{
    json_t *recorded = json_load_file(SLUICE_SOURCE_DIR "/tests/fixtures/chat_jinja.json", 0, NULL);
    REQUIRE(recorded != NULL);
    for (int i = 0; sl_chat_at(i) != NULL; i++) {
        sl_text text = { .data = NULL };
        sl_sha256 h;
        uint8_t digest[32];
        char hex[65];
        sl_chat_jinja(sl_chat_at(i), NULL, &text);
        sl_sha256_init(&h);
        sl_sha256_update(&h, text.data, text.bytes);
        sl_sha256_final(&h, digest);
        sl_sha256_hex(digest, hex);
        const char *wanted = json_string_value(json_object_get(recorded, sl_chat_name(sl_chat_at(i))));
        CHECK_THAT(wanted != NULL && strcmp(hex, wanted) == 0,
                   "the Jinja text of \"%s\" has changed: tests/referees/templates.py BUILD --record compares it again",
                   sl_chat_name(sl_chat_at(i)));
        sl_text_free(&text);
    }
    json_decref(recorded);
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
    REQUIRE_OK(sl_chat_folder_read(NULL, folder, &f));
    CHECK(f.chat == NULL && f.source == NULL && f.bos == NULL);
    write_file(folder, "tokenizer_config.json",
               "{\"bos_token\": {\"content\": \"<s>\", \"lstrip\": false}, \"eos_token\": \"</s>\", \"chat_template\": "
               "[{\"name\": "
               "\"tool_use\", \"template\": \"x\"}, {\"name\": \"default\", \"template\": \"{{ what }}\"}]}");
    REQUIRE_OK(sl_chat_folder_read(NULL, folder, &f));
    CHECK(f.chat == NULL);
    CHECK_CONTAINS(f.source, "/tokenizer_config.json");
    CHECK_STR(f.bos, "<s>");
    CHECK_STR(f.eos, "</s>");
    sl_chat_folder_free(&f);
    write_file(folder, "chat_template.jinja", chatml_text);
    REQUIRE_OK(sl_chat_folder_read(NULL, folder, &f));
    CHECK(f.chat == sl_chat_find("chatml"));
    CHECK_CONTAINS(f.source, "/chat_template.jinja");
    sl_chat_folder_free(&f);
    write_file(folder, "chat_template.jinja", chatml_copy);
    REQUIRE_OK(sl_chat_folder_read(NULL, folder, &f));
    CHECK(f.chat == NULL && f.nearest == sl_chat_find("chatml"));
    sl_chat_folder_free(&f);
    write_file(folder, "tokenizer_config.json", "{\"bos_token\": ");
    CHECK_EQ(sl_chat_folder_read(NULL, folder, &f), SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), "tokenizer_config.json");
    REQUIRE_OK(sl_dir_remove_tree(folder));
}

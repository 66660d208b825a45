/* jsonl_test.c: samples in JSON lines: what each shape becomes, what carries loss, what is refused, and that rows depend on
 * nothing but the data, the seed and the epoch. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/io.h"
#include "data/jsonl.h"
#include "data/packing.h"
#include "test.h"
#ifdef SLUICE_ZLIB
#include <zlib.h>
#endif

#define TOKENIZER SLUICE_SOURCE_DIR "/tests/fixtures/chat_tokenizer"
enum { CONTEXT = 96, MAX_TOKENS = 4096 };

/* ---- files ---- */

static char path[] = "/tmp/sluice-jsonl-XXXXXX";

static const char *write_data(const char *text)
{
    strcpy(path + sizeof path - 7, "XXXXXX");
    int fd = mkstemp(path);
    if (fd >= 0) close(fd);
    CHECK_EQ(sl_file_write_all(path, text, strlen(text)), SLUICE_OK);
    return path;
}

static sl_data_options options(const char *data)
{
    return (sl_data_options){ .type = "jsonl",
                              .path = data,
                              .validation_path = "",
                              .packing = SL_PACKING_AUTO,
                              .tokenizer = TOKENIZER,
                              .chat = "",
                              .chat_date = "",
                              .loss = SL_LOSS_AUTO,
                              .seed = 5,
                              .shuffle = true };
}

static sluice_status open_text(const char *text, sl_data_options o, int64_t context, sluice_data **out)
{
    *out = NULL;
    o.path = write_data(text);
    sluice_status st = sl_data_open(&o, context, 0, out);
    unlink(path);
    return st;
}

/* The only document of a file as its texts, with those that carry loss between { and }. */
static const char *marked(const char *text, sl_data_options o)
{
    static char out[2 * MAX_TOKENS];
    sluice_data *d;
    size_t used = 0;
    out[0] = '\0';
    if (open_text(text, o, MAX_TOKENS, &d) != SLUICE_OK) return sluice_error();
    const sluice_sample *s = sl_data_jsonl_first(d);
    for (int i = 0; i < s->part_count; i++)
        used += (size_t)snprintf(out + used, sizeof out - used, s->part_loss[i] ? "{%s}" : "%s", s->texts[i]);
    d->ops->destroy(d);
    return out;
}

/* ---- shapes ---- */

TEST(every_shape_is_read_and_its_answers_carry_the_loss)
{
    static const struct {
        const char *text, *chat, *becomes;
    } cases[] = {
        { "{\"messages\": [{\"role\": \"user\", \"content\": \"a?\"}, {\"role\": \"assistant\", \"content\": \"b\"}], "
          "\"id\": 7}",
          "", "<|im_start|>user\na?<|im_end|>\n<|im_start|>assistant\n{b<|im_end|>\n}" },
        { "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"a\"}, {\"type\": "
          "\"text\", \"text\": "
          "\"?\"}]}, {\"role\": \"assistant\", \"content\": \"b\"}]}",
          "", "<|im_start|>user\na?<|im_end|>\n<|im_start|>assistant\n{b<|im_end|>\n}" },
        { "{\"conversations\": [{\"from\": \"system\", \"value\": \"s\"}, {\"from\": \"human\", \"value\": \"a?\"}, "
          "{\"from\": \"gpt\", "
          "\"value\": \"b\"}, {\"from\": \"human\", \"value\": \"c?\"}, {\"from\": \"gpt\", \"value\": \"d\"}]}",
          "",
          "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\na?<|im_end|>\n<|im_start|>assistant\n{b<|im_end|>\n}<|im_"
          "start|>user\n"
          "c?<|im_end|>\n<|im_start|>assistant\n{d<|im_end|>\n}" },
        { "{\"prompt\": \"the river\", \"completion\": \" opens\"}", "", "the river{ opens<|endoftext|>}" },
        { "{\"prompt\": \"\", \"completion\": \"hello\"}", "", "he{llo<|endoftext|>}" },
        { "{\"prompt\": [{\"role\": \"user\", \"content\": \"a?\"}, {\"role\": \"assistant\", \"content\": \"no\"}, "
          "{\"role\": \"user\", "
          "\"content\": \"b?\"}], \"completion\": [{\"role\": \"assistant\", \"content\": \"yes\"}]}",
          "",
          "<|im_start|>user\na?<|im_end|>\n<|im_start|>assistant\nno<|im_end|>\n<|im_start|>user\nb?<|im_end|>\n<|im_"
          "start|>assistant"
          "\n{yes<|im_end|>\n}" },
        { "{\"instruction\": \"add\", \"input\": \"1 2\", \"output\": \"3\"}", "",
          "<|im_start|>user\nadd\n1 2<|im_end|>\n<|im_start|>assistant\n{3<|im_end|>\n}" },
        { "{\"instruction\": \"add\", \"input\": \"1 2\", \"output\": \"3\", \"system\": \"s\", \"history\": [[\"q\", "
          "\"a\"]]}",
          "chatml",
          "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n{a<|im_end|>\n}<|im_"
          "start|>user\n"
          "add\n1 2<|im_end|>\n<|im_start|>assistant\n{3<|im_end|>\n}" },
        { "{\"instruction\": \"add\", \"input\": \"1 2\", \"output\": \"3\"}", "alpaca",
          "Below is an instruction that describes a task, paired with an input that provides further context. Write a "
          "response that "
          "appropriately completes the request.\n\n### Instruction:\nadd\n\n### Input:\n1 2\n\n### "
          "Response:\n{3<|endoftext|>}" },
        { "{\"instruction\": \"add\", \"input\": \"\", \"output\": \"3\"}", "alpaca",
          "Below is an instruction that describes a task. Write a response that appropriately completes the "
          "request.\n\n"
          "### Instruction:\nadd\n\n### Response:\n{3<|endoftext|>}" },
        { "{\"text\": \"hello world\"}", "", "he{llo world<|endoftext|>}" },
        { "{\"text\": \"hello<|endoftext|>\"}", "", "he{llo<|endoftext|>}" },
        { "[\n {\"text\": \"hello\"}\n]\n", "", "he{llo<|endoftext|>}" },
        { "\xef\xbb\xbf\n\n{\"text\": \"h\\u00e9 \\ud83d\\ude42\"}\n\n", "", "h{\u00e9 \U0001F642<|endoftext|>}" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sl_data_options o = options(NULL);
        o.chat = cases[i].chat;
        CHECK_STR(marked(cases[i].text, o), cases[i].becomes);
    }
}

TEST(loss_on_all_leaves_out_the_first_token_alone)
{
    sl_data_options o = options(NULL);
    o.loss = SL_LOSS_ALL;
    CHECK_STR(marked("{\"messages\": [{\"role\": \"user\", \"content\": \"a?\"}, {\"role\": \"assistant\", "
                     "\"content\": \"b\"}]}",
                     o),
              "<|im_start|>{user\na?<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n}");
    o.loss = SL_LOSS_ANSWERS;
    sluice_data *d;
    CHECK_EQ(open_text("{\"text\": \"x\"}", o, CONTEXT, &d), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "data.loss");
}

/* ---- what is refused ---- */

TEST(bad_samples_are_refused_with_file_line_and_column)
{
#define ASK  "{\"role\": \"user\", \"content\": \"a\"}"
#define GOOD "{\"messages\": [" ASK ", {\"role\": \"assistant\", \"content\": \"b\"}]}\n"
    static const struct {
        const char *text, *says;
    } cases[] = {
        { "", "is empty" },
        { "  \n \n", "is empty" },
        { "[]", "has no samples" },
        { "hello", "line 1, column 1: a sample is" },
        { GOOD "{\"messages\": [" ASK ",]}", ": line 2, column 48: expected a value" },
        { GOOD "\n{\"messages\": ", "line 3, column 13: the text ends too early" },
        { GOOD "{\"messages\": [" ASK ", {\"role\": \"assistant\", \"content\": \"\"}]}", ", line 2: an empty answer" },
        { GOOD "{\"messages\": [" ASK ", {\"role\": \"assistant\", \"content\": \" \\n\"}]}",
          ", line 2: an empty answer" },
        { GOOD "{\"messages\": [" ASK ", {\"role\": \"assistant\", \"content\": null}]}",
          "\"content\" is null, not a string" },
        { GOOD "{\"messages\": [" ASK ", {\"role\": \"assistant\"}]}", "column 49: a message without \"content\"" },
        { GOOD "{\"messages\": [{\"role\": \"tool\", \"content\": \"x\"}]}", "the role \"tool\" are not built" },
        { GOOD "{\"messages\": [{\"role\": \"wizard\", \"content\": \"x\"}]}", "the role \"wizard\" is none of" },
        { GOOD "{\"messages\": [{\"role\": \"assistant\", \"content\": \"x\", \"tool_calls\": [1]}]}",
          "\"tool_calls\" of a message" },
        { GOOD "{\"messages\": [{\"role\": \"assistant\", \"content\": \"x\", \"weight\": 0}]}",
          "\"weight\" of a message" },
        { GOOD "{\"messages\": [3]}", "a message is a number, not an object" },
        { GOOD "{\"messages\": {}}", "\"messages\" is an object, not a list" },
        { GOOD "{\"messages\": [], \"tools\": [1]}", "\"tools\" are not built" },
        { GOOD "{\"messages\": []}", ", line 2: a conversation without messages" },
        { GOOD "{\"text\": \"x\"}", "a sample without \"messages\", which the first one has" },
        { GOOD "{\"messages\": [], \"messages\": []}", "\"messages\" is there twice" },
        { GOOD "{} {}", "more text after the end of the object" },
        { GOOD "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"image\", \"url\": \"x\"}]}]}",
          "images and sounds" },
        { GOOD "{\"messages\": [{\"role\": \"user\", \"content\": \"\xff\"}]}", "line 2, column 44: not valid UTF-8" },
        { "{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"c\"}", "preference data" },
        { "{\"messages\": [], \"chosen\": [], \"rejected\": []}", "preference data" },
        { "{\"question\": \"a\"}", "none of the known shapes" },
        { "{\"prompt\": \"a\", \"completion\": [1]}", "\"completion\" is a list, not a string" },
        { "{\"prompt\": \"a\", \"completion\": \"\"}", "an empty answer" },
        { "{\"instruction\": \"a\", \"output\": \"\"}", "an empty answer" },
        { "{\"instruction\": \"a\", \"output\": \"b\", \"history\": [[\"a\"]]}", "not a pair" },
        { "{\"text\": \"\"}", "an empty text" },
        { "[{\"text\": \"a\"},\n {\"text\": 3}]", "line 2, column 11: \"text\" is a number" },
        { "[{\"text\": \"a\"},\n {\"text\": ]", "line 2, column 11: expected a value" },
        { "[{\"text\": \"a\"}] x", "more text after the end of the array" },
        { "{\"messages\": [" ASK "]}", "none of its 1 samples has a token to learn" },
    };
    sluice_data *d;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sluice_status st = open_text(cases[i].text, options(NULL), CONTEXT, &d);
        CHECK_THAT(st == SLUICE_ERR_INPUT, "%s: %d", cases[i].text, (int)st);
        if (st == SLUICE_OK) {
            d->ops->destroy(d);
            continue;
        }
        CHECK_CONTAINS(sluice_error(), path);
        CHECK_THAT(strstr(sluice_error(), cases[i].says) != NULL, "%s\n  says   %s\n  not    %s", cases[i].text,
                   sluice_error(), cases[i].says);
    }
}

TEST(the_first_bad_line_is_reported_whatever_threads_find_first)
{
    sl_text text = { NULL, 0, 0, false };
    for (int i = 0; i < 2000; i++)
        sl_text_add(&text, i == 700 || i == 1900 ? "{\"text\": 1}\n" : "{\"text\": \"hello\"}\n");
    for (int threads = 1; threads <= 4; threads++) {
        sl_data_options o = options(NULL);
        sluice_data *d;
        o.threads = threads;
        CHECK_EQ(open_text(text.data, o, CONTEXT, &d), SLUICE_ERR_INPUT);
        CHECK_CONTAINS(sluice_error(), "line 701, column 10");
    }
    sl_text_free(&text);
}

TEST(ids_beyond_the_vocabulary_and_unknown_templates_are_refused)
{
    sl_data_options o = options(write_data("{\"text\": \"hello\"}\n{\"text\": \"hello<|im_end|>\"}\n"));
    sluice_data *d;
    CHECK_EQ(sl_data_open(&o, CONTEXT, 2, &d), SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), ", line 1: token ");
    CHECK_CONTAINS(sluice_error(), "beyond the model's vocabulary of 2");
    unlink(path);
    o = options(write_data("{\"messages\": []}"));
    o.chat = "llama9";
    CHECK_EQ(sl_data_open(&o, CONTEXT, 0, &d), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "data.template \"llama9\" is not one of llama2, ");
    o.chat = "gemma";
    CHECK_EQ(sl_file_write_all(path, "{\"messages\": [{\"role\": \"system\", \"content\": \"a\"}]}", 50), SLUICE_OK);
    CHECK_EQ(sl_data_open(&o, CONTEXT, 0, &d), SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), ", line 1: the chat template \"gemma\" has no system message");
    unlink(path);
}

/* What a family's text says differently is seen in what it writes, not in what marks it. */
TEST(a_template_that_is_not_known_word_for_word_stops_the_run)
{
    static const char jinja[] =
        "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' "
        "+ '\\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n<hm>' }}{% endif %}";
    char folder[] = "/tmp/sluice-jsonl-XXXXXX", from[4096], to[4096];
    sl_data_options o =
        options(write_data("{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", "
                           "\"content\": \"b\"}]}\n"));
    sluice_data *d;
    REQUIRE(mkdtemp(folder) != NULL);
    snprintf(from, sizeof from, "%s/tokenizer.json", o.tokenizer);
    snprintf(to, sizeof to, "%s/tokenizer.json", folder);
    REQUIRE_OK(sl_file_copy(from, to));
    snprintf(to, sizeof to, "%s/chat_template.jinja", folder);
    REQUIRE_OK(sl_file_write_all(to, jinja, sizeof jinja - 1));
    o.tokenizer = folder;
    CHECK_EQ(sl_data_open(&o, CONTEXT, 0, &d), SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), "/chat_template.jinja holds a chat template that is not known word for word; the "
                                   "nearest that is known is \"chatml\", which may write other text");
    CHECK_CONTAINS(sluice_error(), "with data.template (--set data.template=NAME), one of llama2, ");
    o.chat = "chatml";
    REQUIRE_OK(sl_data_open(&o, CONTEXT, 0, &d));
    const char *date, *eos;
    CHECK(sl_data_jsonl_new_chat(d, &date, &eos) == sl_chat_find("chatml"));
    d->ops->destroy(d);
    unlink(path);
    REQUIRE_OK(sl_dir_remove_tree(folder));
}

TEST(a_template_that_the_folder_has_is_no_new_one_unless_it_tells_another_date)
{
    sl_data_options o =
        options(write_data("{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", "
                           "\"content\": \"b\"}]}\n"));
    const char *date, *eos;
    sluice_data *d;
    REQUIRE_OK(sl_data_open(&o, CONTEXT, 0, &d));
    CHECK(sl_data_jsonl_new_chat(d, &date, &eos) == NULL);
    d->ops->destroy(d);
    o.chat = "llama3.1";
    o.chat_date = "03 Mar 2025";
    REQUIRE_OK(sl_data_open(&o, CONTEXT, 0, &d));
    CHECK(sl_data_jsonl_new_chat(d, &date, &eos) == sl_chat_find("llama3.1"));
    CHECK_STR(date, "03 Mar 2025");
    d->ops->destroy(d);
    o.chat_date = "3') + ('";
    CHECK_EQ(sl_data_open(&o, CONTEXT, 0, &d), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "data.template_date \"3') + ('\": a date has neither quotes nor backslashes");
    unlink(path);
}

/* ---- length ---- */

static char *many_turns(int turns)
{
    sl_text t = { NULL, 0, 0, false };
    sl_text_add(&t, "{\"messages\": [");
    for (int i = 0; i < turns; i++)
        sl_text_add(&t, "%s{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"b\"}",
                    i > 0 ? ", " : "");
    sl_text_add(&t, "]}\n");
    return t.data;
}

TEST(long_samples_are_cut_dropped_or_refused_and_counted)
{
    static const struct {
        int rule;
        sluice_status status;
        int64_t count;
    } cases[] = { { SL_TRUNCATE_END, SLUICE_OK, CONTEXT + 1 },
                  { SL_TRUNCATE_START, SLUICE_OK, CONTEXT + 1 },
                  { SL_TRUNCATE_DROP, SLUICE_ERR_INPUT, 0 },
                  { SL_TRUNCATE_REFUSE, SLUICE_ERR_INPUT, 0 } };
    char *text = many_turns(40);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sl_data_options o = options(NULL);
        sluice_data *d;
        o.truncate = cases[i].rule;
        CHECK_EQ(open_text(text, o, CONTEXT, &d), cases[i].status);
        if (d == NULL) {
            CHECK_CONTAINS(sluice_error(), path);
            continue;
        }
        const sluice_sample *s = sl_data_jsonl_first(d);
        CHECK_EQ(s->count, cases[i].count);
        bool begins = strstr(s->texts[0], "<|im_start|>user") == s->texts[0];
        CHECK_EQ(begins, cases[i].rule == SL_TRUNCATE_END);
        d->ops->destroy(d);
    }
    sl_free(text);
}

static void collect(void *user, sluice_log_level level, const char *line)
{
    sl_text *t = user;
    sl_text_add(t, "%s%s\n", level == SLUICE_LOG_WARNING ? "warning: " : "", line);
}

TEST(what_was_cut_and_left_out_is_said_with_the_first_line)
{
    char *turns = many_turns(40);
    sl_text text = { NULL, 0, 0, false }, said = { NULL, 0, 0, false };
    sl_data_options o = options(NULL);
    sluice_data *d;
    sl_text_add(
        &text, "%s",
        "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"b\"}]}\n");
    sl_text_add(&text, "%s%s", turns, turns);
    sl_text_add(
        &text, "%s",
        "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"\"}]}\n");
    sl_text_add(&text, "%s", "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}\n");
    o.skip_empty = true;
    REQUIRE_OK(open_text(text.data, o, CONTEXT, &d));
    sl_data_jsonl_say(d, &(sl_log){ collect, &said, 0, 1 });
    CHECK_CONTAINS(said.data, ": 3 samples of messages");
    CHECK_CONTAINS(said.data, "cut to 97 tokens (data.truncate): 2 samples, the first on line 2");
    CHECK_CONTAINS(said.data, "left out, as an answer is empty (data.skip_empty): 1 sample, the first on line 4");
    CHECK_CONTAINS(said.data, "left out, as no token counts in the loss: 1 sample, the first on line 5");
    CHECK_CONTAINS(said.data, "chat template chatml, from ");
    CHECK_CONTAINS(said.data, "3 samples to train on are packed into");
    d->ops->destroy(d);
    sl_text_free(&text);
    sl_text_free(&said);
    sl_free(turns);
}

/* ---- rows ---- */

enum { ROWS = 4 };
typedef struct batch {
    int32_t tokens[ROWS * CONTEXT], targets[ROWS * CONTEXT], positions[ROWS * CONTEXT];
} batch;

static void fill(sluice_data *d, uint64_t index, int64_t rows, batch *b)
{
    const sl_data_field fields[] = { { "tokens", SLUICE_I32, CONTEXT, b->tokens },
                                     { "targets", SLUICE_I32, CONTEXT, b->targets },
                                     { "positions", SLUICE_I32, CONTEXT, b->positions } };
    CHECK_EQ(d->ops->fill(d, index, rows, fields, 3), SLUICE_OK);
}

static char *made_samples(int count)
{
    sl_text t = { NULL, 0, 0, false };
    for (int i = 0; i < count; i++) {
        sl_text_add(&t, "{\"prompt\": \"%d the river\", \"completion\": \"", i);
        for (int k = 0; k < 1 + i * 7 % 11; k++) sl_text_add(&t, " water %d", i);
        sl_text_add(&t, "\"}\n");
    }
    return t.data;
}

static sluice_data *made_data(int count, int packing, int threads)
{
    char *text = made_samples(count);
    sl_data_options o = options(NULL);
    sluice_data *d = NULL;
    o.packing = packing;
    o.threads = threads;
    CHECK_EQ(open_text(text, o, CONTEXT, &d), SLUICE_OK);
    sl_free(text);
    return d;
}

TEST(rows_hold_whole_documents_with_positions_that_restart_and_no_target_across_them)
{
    for (int packing = SL_PACKING_NONE; packing <= SL_PACKING_DOCUMENTS; packing++) {
        sluice_data *d = made_data(200, packing, 1);
        int64_t rows = d->ops->samples(d, SL_SPLIT_TRAIN), beginnings = 0;
        batch b;
        CHECK(packing == SL_PACKING_NONE ? rows == 200 : rows < 100);
        CHECK_EQ(d->ops->packs(d), packing == SL_PACKING_DOCUMENTS);
        for (int64_t row = 0; row < rows; row++) {
            fill(d, (uint64_t)row, 1, &b);
            for (int i = 0; i < CONTEXT; i++) {
                bool padding = b.positions[i] == 0 && (i + 1 == CONTEXT || b.positions[i + 1] == 0);
                bool ends = i + 1 == CONTEXT || b.positions[i + 1] == 0;
                beginnings += b.positions[i] == 0 && !padding;
                CHECK(b.positions[i] == 0 || b.positions[i] == b.positions[i - 1] + 1);
                if (padding) CHECK_EQ(b.targets[i], -1);
                /* a target is the next token of its own document, or the end of text that is no input */
                if (!padding && b.targets[i] >= 0 && !ends) CHECK_EQ(b.targets[i], b.tokens[i + 1]);
                if (!padding && ends) CHECK_EQ(b.targets[i], 0);     /* <|endoftext|> */
                if (b.positions[i] == 0) CHECK_EQ(b.targets[i], -1); /* of prompts */
            }
        }
        CHECK_EQ(beginnings, 200);
        d->ops->destroy(d);
    }
}

TEST(the_number_of_targets_is_what_fill_writes)
{
    sluice_data *d = made_data(300, SL_PACKING_DOCUMENTS, 2);
    batch b;
    for (uint64_t index = 0; index < 100; index++) {
        int64_t told, counted = 0;
        fill(d, index, ROWS, &b);
        for (int i = 0; i < ROWS * CONTEXT; i++) counted += b.targets[i] >= 0;
        REQUIRE_OK(d->ops->targets(d, index, ROWS, &told));
        CHECK_EQ(told, counted);
    }
    d->ops->destroy(d);
}

TEST(batches_do_not_depend_on_threads_or_on_how_rows_are_cut_into_micro_batches)
{
    sluice_data *one = made_data(500, SL_PACKING_DOCUMENTS, 1), *four = made_data(500, SL_PACKING_DOCUMENTS, 4);
    char a[65], c[65];
    batch whole, part;
    one->ops->identity(one, a);
    four->ops->identity(four, c);
    CHECK_STR(a, c);
    for (uint64_t index = 0; index < 60; index++) {
        fill(one, index, ROWS, &whole);
        for (int r = 0; r < ROWS; r++) { /* as four ranks with micro-batches of 1 would read it, in any order */
            fill(four, index * ROWS + (uint64_t)(ROWS - 1 - r), 1, &part);
            int64_t at = (int64_t)(ROWS - 1 - r) * CONTEXT;
            CHECK(memcmp(whole.tokens + at, part.tokens, CONTEXT * 4) == 0);
            CHECK(memcmp(whole.targets + at, part.targets, CONTEXT * 4) == 0);
            CHECK(memcmp(whole.positions + at, part.positions, CONTEXT * 4) == 0);
        }
    }
    one->ops->destroy(one);
    four->ops->destroy(four);
}

TEST(evaluation_reads_every_document_once_and_pads_the_last_batch)
{
    char *text = made_samples(100);
    sl_data_options o = options(NULL);
    sluice_data *d;
    batch b;
    int64_t valid, targets = 0, rows, expected = 0;
    o.validation = 0.3;
    REQUIRE_OK(open_text(text, o, CONTEXT, &d));
    rows = d->ops->samples(d, SL_SPLIT_VALIDATION);
    const sl_data_field fields[] = { { "tokens", SLUICE_I32, CONTEXT, b.tokens },
                                     { "targets", SLUICE_I32, CONTEXT, b.targets } };
    for (int64_t first = 0; first < rows; first += ROWS) {
        REQUIRE_OK(d->ops->fill_eval(d, SL_SPLIT_VALIDATION, first, ROWS, fields, 2, &valid));
        CHECK_EQ(valid, rows - first < ROWS ? rows - first : ROWS);
        for (int i = 0; i < ROWS * CONTEXT; i++) targets += b.targets[i] >= 0;
    }
    d->ops->destroy(d);
    /* the last 30 lines by themselves */
    const char *tail = text;
    for (int i = 0; i < 70; i++) tail = strchr(tail, '\n') + 1;
    REQUIRE_OK(open_text(tail, options(NULL), CONTEXT, &d));
    REQUIRE_OK(d->ops->targets(d, 0, d->ops->samples(d, SL_SPLIT_TRAIN), &expected));
    CHECK_EQ(targets, expected);
    d->ops->destroy(d);
    sl_free(text);
}

TEST(a_validation_file_is_a_split_of_its_own)
{
    char other[] = "/tmp/sluice-jsonl-valid-XXXXXX";
    int fd = mkstemp(other);
    sl_data_options o = options(NULL);
    sluice_data *d;
    REQUIRE(fd >= 0);
    close(fd);
    REQUIRE_OK(sl_file_write_all(other, "{\"prompt\": \"a\", \"completion\": \"b\"}\n", 35));
    o.validation_path = other;
    REQUIRE_OK(open_text("{\"prompt\": \"a\", \"completion\": \"b\"}\n{\"prompt\": \"a\", \"completion\": \"c\"}\n", o,
                         CONTEXT, &d));
    CHECK_EQ(d->ops->samples(d, SL_SPLIT_VALIDATION), 1);
    CHECK_EQ(d->ops->samples(d, SL_SPLIT_TRAIN), 1); /* two documents in a row */
    d->ops->destroy(d);
    o.validation = 0.5;
    CHECK_EQ(open_text("{\"prompt\": \"a\", \"completion\": \"b\"}\n", o, CONTEXT, &d), SLUICE_ERR_USAGE);
    unlink(other);
}

#ifdef SLUICE_ZLIB
TEST(gzipped_files_are_read_and_damaged_ones_refused)
{
    sl_data_options o = options(write_data(""));
    sluice_data *d;
    char *bytes;
    size_t count;
    gzFile z = gzopen(path, "wb");
    REQUIRE(z != NULL);
    gzputs(z, "{\"text\": \"hello\"}\n");
    gzclose(z);
    z = gzopen(path, "ab"); /* a second member */
    gzputs(z, "{\"text\": \"world\"}\n");
    gzclose(z);
    o.packing = SL_PACKING_NONE;
    REQUIRE_OK(sl_data_open(&o, CONTEXT, 0, &d));
    CHECK_EQ(d->ops->samples(d, SL_SPLIT_TRAIN), 2);
    d->ops->destroy(d);
    REQUIRE_OK(sl_file_read_all(path, 1 << 16, &bytes, &count));
    REQUIRE_OK(sl_file_write_all(path, bytes, count - 9));
    CHECK_EQ(sl_data_open(&o, CONTEXT, 0, &d), SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), "ends too early");
    bytes[15] ^= 0x55;
    REQUIRE_OK(sl_file_write_all(path, bytes, count));
    CHECK_EQ(sl_data_open(&o, CONTEXT, 0, &d), SLUICE_ERR_INPUT);
    sl_free(bytes);
    unlink(path);
}

/* A member of gzip with `bytes` times the character, or with the text. */
static size_t make_member(const char *text, char filler, size_t bytes, unsigned char out[8192])
{
    static char block[1 << 20];
    z_stream z = { .next_in = (Bytef *)block, .next_out = out, .avail_in = (uInt)bytes, .avail_out = 8192 };
    if (text != NULL) snprintf(block, sizeof block, "%s", text);
    if (text == NULL) memset(block, filler, bytes);
    if (deflateInit2(&z, 9, Z_DEFLATED, 31, 8, Z_DEFAULT_STRATEGY) != Z_OK) return 0;
    size_t made = deflate(&z, Z_FINISH) == Z_STREAM_END ? z.total_out : 0;
    deflateEnd(&z);
    return made;
}

/* Parts of a compressed file, one after the other: a text, or MiB of a character. */
typedef struct gzip_part {
    const char *text;
    char filler;
    int mib;
} gzip_part;

static bool write_gzip(const gzip_part *parts, int count)
{
    unsigned char member[8192];
    write_data("");
    FILE *f = fopen(path, "wb");
    if (f == NULL) return false;
    for (int i = 0; i < count; i++) {
        bool text = parts[i].text != NULL;
        size_t bytes = make_member(parts[i].text, parts[i].filler, text ? strlen(parts[i].text) : 1 << 20, member);
        for (int k = 0; k < (text ? 1 : parts[i].mib); k++) fwrite(member, 1, bytes, f);
    }
    return fclose(f) == 0;
}

/* Blank lines and spaces take no memory, wherever they are; lines are numbered as in the file. */
TEST(white_space_of_a_compressed_file_is_not_kept)
{
    const gzip_part parts[] = {
        { "\xef\xbb\xbf", 0, 0 },  { NULL, '\n', 40 },         { " {\"text\": \"a  b\"} \r\n  ", 0, 0 },
        { NULL, ' ', 40 },         { "\t{\"text\":\n", 0, 0 }, { NULL, '\n', 40 },
        { "{\"text\": \"", 0, 0 }, { NULL, ' ', 3 },           { "c\"}", 0, 0 },
        { NULL, ' ', 3 }
    };
    const int64_t mib = 1 << 20;
    sl_jsonl_file f;
    REQUIRE(write_gzip(parts, sizeof parts / sizeof parts[0]));
    REQUIRE_OK(sl_jsonl_file_read(NULL, path, &f));
    REQUIRE(f.count == 3);
    CHECK_EQ(f.records[0].line, 40 * mib + 1);
    CHECK_EQ(f.records[1].line, 40 * mib + 2);
    CHECK_EQ(f.records[2].line, 80 * mib + 3);
    CHECK_EQ(f.records[0].end - f.records[0].begin, strlen("{\"text\": \"a  b\"}"));
    CHECK(memcmp(f.text + f.records[0].begin, "{\"text\": \"a  b\"}", strlen("{\"text\": \"a  b\"}")) == 0);
    CHECK(memcmp(f.text + f.records[1].begin, "{\"text\":", strlen("{\"text\":")) == 0);
    CHECK_EQ(f.records[2].end - f.records[2].begin, 3 * mib + (int64_t)strlen("{\"text\": \"c\"}"));
    CHECK_THAT(f.bytes < (size_t)4 * mib, "%zu bytes are kept", f.bytes);
    sl_jsonl_file_free(&f);
    unlink(path);
}

/* Each of these files ends in the middle of a member: whoever reads to the end says so. */
TEST(a_compressed_file_that_would_fill_the_memory_is_refused_where_that_is_seen)
{
    static const struct {
        gzip_part parts[3];
        const char *message;
    } rows[] = {
        { { { "{\"text\": \"a\"}\n{\"text\": \"", 0, 0 }, { NULL, 'x', 65 }, { "\"}\n", 0, 0 } },
          ", line 2: a sample of more than 67108864 bytes; at most 67108864 are read" },
        { { { "\n\n[", 0, 0 }, { NULL, ' ', 129 }, { "]", 0, 0 } },
          "is more than 200 times as large as its gzip file" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        sl_jsonl_file f;
        char *bytes;
        size_t count;
        REQUIRE(write_gzip(rows[i].parts, 3));
        REQUIRE_OK(sl_file_read_all(path, 1 << 20, &bytes, &count));
        REQUIRE_OK(sl_file_write_all(path, bytes, count - 4));
        CHECK_EQ(sl_jsonl_file_read(NULL, path, &f), SLUICE_ERR_INPUT);
        CHECK_CONTAINS(sluice_error(), rows[i].message);
        sl_free(bytes);
        unlink(path);
    }
    int stop = 2;
    sl_jsonl_file f;
    REQUIRE(write_gzip(rows[1].parts, 3));
    CHECK_EQ(sl_jsonl_file_read(&stop, path, &f), SLUICE_ERR_STOPPED);
    unlink(path);
}

TEST(a_compressed_array_is_read_with_the_places_of_its_elements)
{
    const gzip_part parts[] = { { NULL, '\n', 2 }, { "[{\"text\": \"a\"},\n {\"text\": \"b\"}]\n", 0, 0 } };
    const gzip_part broken[] = { { NULL, '\n', 2 }, { "\n [1,\n  2 3]", 0, 0 } };
    sl_jsonl_file f;
    REQUIRE(write_gzip(parts, 2));
    REQUIRE_OK(sl_jsonl_file_read(NULL, path, &f));
    REQUIRE(f.count == 2);
    CHECK_EQ(f.records[0].line, (2 << 20) + 1);
    CHECK_EQ(f.records[1].line, (2 << 20) + 2);
    sl_jsonl_file_free(&f);
    unlink(path);
    REQUIRE(write_gzip(broken, 2));
    CHECK_EQ(sl_jsonl_file_read(NULL, path, &f), SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), ": line 2097155, column 5: ");
    unlink(path);
}
#endif

/* generate_cli_test.c: sluice generate: the text of other programs' greedy generation, prompts of a file, stop strings, seeds,
 * conversations, and what is refused. The folders of tests/fixtures/generate and what transformers writes for them were made by
 * tests/referees/generate.py. */
#include <jansson.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "support/run.h"
#include "test.h"

#define FIXTURES SLUICE_SOURCE_DIR "/tests/fixtures/generate"
#define GPT2     "generate --quiet --model " FIXTURES "/gpt2 "

/* The lines of a file or an output. */
static json_t *next_line(const char **text)
{
    const char *end = strchr(*text, '\n');
    size_t bytes = end != NULL ? (size_t)(end - *text) : strlen(*text);
    json_t *line = bytes > 0 ? json_loadb(*text, bytes, JSON_ALLOW_NUL, NULL) : NULL;
    *text += bytes + (end != NULL);
    return line;
}

static void check_greedy(const char *family)
{
    char arguments[12000], path[4096];
    snprintf(path, sizeof path, FIXTURES "/%s/greedy.jsonl", family);
    snprintf(arguments, sizeof arguments,
             "generate --quiet --model " FIXTURES "/%s --prompts " FIXTURES
             "/%s/prompts.jsonl --tokens 200 --temperature 0 --set model.context=300",
             family, family);
    run_result r = run_sluice(test_tmpdir(), arguments);
    char *recorded = run_read(path);
    const char *want = recorded, *got = r.out;
    int lines = 0;
    CHECK_EQ(r.status, 0);
    CHECK_STR(r.error, "");
    for (json_t *w; (w = next_line(&want)) != NULL; lines++) {
        json_t *g = next_line(&got);
        REQUIRE(g != NULL);
        CHECK_THAT(json_equal(json_object_get(g, "text"), json_object_get(w, "text")), "%s, prompt %d: another text",
                   family, lines);
        CHECK_STR(json_string_value(json_object_get(g, "end")), "length");
        CHECK_EQ(json_integer_value(json_object_get(g, "tokens")), 200);
        json_decref(w);
        json_decref(g);
    }
    CHECK_EQ(lines, 3);
    free(recorded);
    run_free(&r);
}

TEST(greedy_text_of_gpt2_is_that_of_transformers)
{
    check_greedy("gpt2");
}

TEST(greedy_text_of_llama_is_that_of_transformers)
{
    check_greedy("llama");
}

/* ---- draws ---- */

static char *text_of(const char *arguments)
{
    char all[4096];
    snprintf(all, sizeof all, GPT2 "%s", arguments);
    run_result r = run_sluice(test_tmpdir(), all);
    CHECK_THAT(r.status == 0, "%s: %s", all, r.error);
    char *text = strdup(r.out);
    run_free(&r);
    return text;
}

static void check_same(const char *a, const char *b, bool same)
{
    char *x = text_of(a), *y = text_of(b);
    CHECK_THAT((strcmp(x, y) == 0) == same, "\"%s\" and \"%s\" give %s", a, b, same ? "other texts" : "one text");
    free(x);
    free(y);
}

TEST(draws_follow_the_seed_and_a_top_k_of_one_is_greedy)
{
    check_same("--prompt Hello --tokens 30 --seed 5", "--prompt Hello --tokens 30 --seed 5", true);
    check_same("--prompt Hello --tokens 30 --seed 5", "--prompt Hello --tokens 30 --seed 6", false);
    check_same("--prompt Hello --tokens 30 --seed 5 --top-k 1", "--prompt Hello --tokens 30 --temperature 0", true);
    check_same("--prompt Hello --tokens 30 --top-p 1e-9", "--prompt Hello --tokens 30 --temperature 0", true);
    check_same("--prompt Hello --tokens 30 --min-p 1", "--prompt Hello --tokens 30 --temperature 0", true);
}

/* A prompt's reply does not depend on what else is in the batch. */
TEST(replies_do_not_depend_on_the_batch)
{
    const char *folder = test_tmpdir();
    run_write(folder, "p.txt", "one\ntwo two\n\nthree three three\nfour\nfive\n");
    run_result a = run_sluice(folder, GPT2 "--prompts p.txt --tokens 20 --batch 1"),
               b = run_sluice(folder, GPT2 "--prompts p.txt --tokens 20 --batch 4 -o b.jsonl");
    char path[4200];
    snprintf(path, sizeof path, "%s/b.jsonl", folder);
    char *written = run_read(path);
    CHECK_EQ(a.status, 0);
    CHECK_EQ(b.status, 0);
    CHECK_STR(b.out, "");
    CHECK_STR(written, a.out);
    CHECK_CONTAINS(a.out, "{\"index\":4,\"prompt\":\"five\"");
    free(written);
    run_free(&a);
    run_free(&b);
}

TEST(a_stop_string_ends_a_reply_before_it)
{
    char *whole = text_of("--prompt x --tokens 60 --temperature 0"),
         *cut = text_of("--prompt x --tokens 60 --temperature 0 --stop '!'");
    const char *stop = strchr(whole, '!');
    REQUIRE(stop != NULL && stop - whole > 4);
    CHECK_EQ(strlen(cut), stop - whole + 1); /* and a new line */
    CHECK(memcmp(cut, whole, (size_t)(stop - whole)) == 0);
    free(whole);
    free(cut);
}

/* The first byte of the alphabet, "!", is token 0. */
TEST(a_token_of_the_folders_generation_config_or_config_ends_a_reply)
{
    const char *folder = test_tmpdir(), *config = "model/config.json", *generation = "model/generation_config.json";
    char command[4096], *whole = text_of("--prompt x --tokens 60 --temperature 0 --stop '!'");
    snprintf(command, sizeof command, "cp -r " FIXTURES "/gpt2 %s/model", folder);
    REQUIRE(system(command) == 0);
    for (int i = 0; i < 2; i++) {
        if (i == 0) run_write(folder, generation, "{\"eos_token_id\": [5000, 0]}");
        if (i == 1) {
            char path[4200], *text, *at, *changed = NULL;
            snprintf(path, sizeof path, "%s/%s", folder, config);
            text = run_read(path);
            at = strstr(text, "\"eos_token_id\": null");
            REQUIRE(at != NULL);
            REQUIRE(asprintf(&changed, "%.*s\"eos_token_id\": 0%s", (int)(at - text), text,
                             at + strlen("\"eos_token_id\": null")) > 0);
            run_write(folder, config, changed);
            run_write(folder, generation, "{}");
            free(text);
            free(changed);
        }
        run_result r = run_sluice(folder, "generate --quiet --model model --prompt x --tokens 60 --temperature 0"),
                   j = run_sluice(folder,
                                  "generate --quiet --model model --prompt x --tokens 60 --temperature 0 --json");
        CHECK_THAT(r.status == 0, "%s", r.error);
        CHECK_STR(r.out, whole);
        CHECK_CONTAINS(j.out, "\"end\":\"end\"");
        run_free(&r);
        run_free(&j);
    }
    free(whole);
}

/* What the folder says counts where nobody says otherwise, is told, and is refused by file and key where it cannot be. */
TEST(generation_config_of_the_folder_says_how_tokens_are_drawn)
{
    static const struct {
        const char *config, *arguments, *same_as, *note; /* NULL: refused with the note */
    } rows[] = {
        { "{\"do_sample\": false, \"temperature\": 0.6}", "", "--temperature 0",
          "chosen: --temperature 0 (generation_config" },
        { "{\"do_sample\": true, \"temperature\": 0.6, \"top_p\": 0.9, \"top_k\": 20}", "",
          "--temperature 0.6 --top-p 0.9 --top-k 20", "chosen: --top-k 20 (" },
        { "{\"do_sample\": true}", "", "--temperature 1", "chosen: --temperature 1 (" },
        { "{\"do_sample\": true, \"temperature\": 0.6}", "--temperature 0.9", "--temperature 0.9", "" },
        { "{\"temperature\": 0.6, \"top_k\": 1}", "", "--temperature 0", "chosen: --top-k 1 (" },
        { "{\"repetition_penalty\": 1.5, \"min_p\": 0.2}", "", "--repetition-penalty 1.5 --min-p 0.2",
          "chosen: --repetition-penalty 1.5 (" },
        { "{\"num_beams\": 4, \"top_k\": null}", "", "", "asks for num_beams, which is not built in" },
        { "{\"temperature\": \"hot\"}", "", NULL,
          "generation_config.json: temperature: \"hot\" is not a number from 0" },
        { "{\"top_p\": 1.5}", "", NULL, "generation_config.json: top_p: 1.5 is not a number above 0 and at most 1" },
        { "{\"top_k\": -1}", "", NULL, "generation_config.json: top_k: -1 is not a whole number" },
        { "{\"repetition_penalty\": 0}", "", NULL, "repetition_penalty: 0 is not a number above 0" },
        { "{\"do_sample\": 1}", "", NULL, "do_sample: 1 is not true or false" },
        { "{\"eos_token_id\": [0, -2]}", "", NULL, "eos_token_id: -2 is not a token id" },
        { "[]", "", NULL, "generation_config.json is no JSON object" },
    };
    char folder[1024], command[4096], arguments[1024];
    snprintf(folder, sizeof folder, "%.1000s", test_tmpdir());
    snprintf(command, sizeof command, "cp -r " FIXTURES "/gpt2 %s/model", folder);
    REQUIRE(system(command) == 0);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        run_write(folder, "model/generation_config.json", rows[i].config);
        snprintf(arguments, sizeof arguments, "generate --model model --prompt Hello --tokens 30 --seed 5 %s",
                 rows[i].arguments);
        run_result r = run_sluice(folder, arguments);
        CHECK_EQ(r.status, rows[i].same_as != NULL ? 0 : 4);
        CHECK_CONTAINS(r.error, rows[i].note);
        if (rows[i].same_as != NULL) {
            char given[512], *want;
            snprintf(given, sizeof given, "--prompt Hello --tokens 30 --seed 5 %s", rows[i].same_as);
            want = text_of(given);
            CHECK_STR(r.out, want);
            free(want);
        }
        run_free(&r);
    }
}

/* Within the context the frequencies are the plain ones, beyond it they change with every length. */
TEST(dynamic_rope_scaling_is_refused_beyond_the_context_of_the_model)
{
    char folder[1024], command[4096];
    snprintf(folder, sizeof folder, "%.1000s", test_tmpdir());
    snprintf(command, sizeof command,
             "cp -r " FIXTURES "/llama %s/model && cp -r " FIXTURES "/llama %s/plain && cd %s && "
             "sed -i 's/\"max_position_embeddings\": [0-9]*/\"max_position_embeddings\": 40/; s/\"rope_type\": "
             "\"default\"/\"rope_type\": \"dynamic\", \"factor\": 4.0/' model/config.json && grep -q dynamic "
             "model/config.json && sed -i 's/\"max_position_embeddings\": [0-9]*/\"max_position_embeddings\": 40/' "
             "plain/config.json",
             folder, folder, folder);
    REQUIRE(system(command) == 0);
    run_result r = run_sluice(folder, "generate --quiet --model model --prompt Hello --tokens 36 --temperature 0 --set "
                                      "model.context=64");
    CHECK_EQ(r.status, 2);
    CHECK_CONTAINS(r.error, "model/config.json is dynamic");
    CHECK_CONTAINS(r.error, "41 tokens, prompt and reply, are longer than its max_position_embeddings 40");
    run_free(&r);
    static const char *const within[] = { "--tokens 35 --set model.context=64", "--tokens 60" }; /* the second slides */
    for (int i = 0; i < 2; i++) {
        char arguments[256];
        snprintf(arguments, sizeof arguments, "generate --quiet --model model --prompt Hello --temperature 0 %s",
                 within[i]);
        r = run_sluice(folder, arguments);
        snprintf(arguments, sizeof arguments, "generate --quiet --model plain --prompt Hello --temperature 0 %s",
                 within[i]);
        run_result same = run_sluice(folder, arguments);
        CHECK_THAT(r.status == 0 && same.status == 0, "%s%s", r.error, same.error);
        CHECK_STR(r.out, same.out);
        run_free(&r);
        run_free(&same);
    }
}

/* ---- conversations ---- */

TEST(a_conversation_goes_on_line_by_line_until_its_input_ends)
{
    const char *folder = test_tmpdir();
    run_write(folder, "said.txt", "hello\n\nhow are you\n");
    run_result talk =
        run_sluice(folder, GPT2 "--chat --template chatml --system Short. --tokens 5 --temperature 0 < said.txt");
    CHECK_EQ(talk.status, 0);
    CHECK_STR(talk.error, "");
    run_write(folder, "m.jsonl",
              "{\"messages\": [{\"role\": \"system\", \"content\": \"Short.\"}, {\"role\": \"user\", \"content\": "
              "\"hello\"}]}\n");
    run_result once = run_sluice(folder, GPT2 "--prompts m.jsonl --template chatml --tokens 5 --temperature 0");
    const char *line = once.out;
    json_t *reply = next_line(&line);
    REQUIRE(reply != NULL);
    const char *text = json_string_value(json_object_get(reply, "text"));
    CHECK(strncmp(talk.out, text, strlen(text)) == 0); /* the first reply is that of the same conversation alone */
    CHECK(strlen(talk.out) > strlen(text) + 2);
    json_decref(reply);
    run_free(&talk);
    run_free(&once);
}

/* ---- what is said ---- */

/* Without --quiet: what nobody said is told where it concerns the job. */
TEST(generation_and_evaluation_say_nothing_of_what_training_alone_reads)
{
    static const char *const of_training[] = { "optimizer", "scheduler",  "no data is named", "epochs",
                                               "save",      "checkpoint", "batch_size",       "accumulation" };
    const char *folder = test_tmpdir();
    run_result r = run_sluice(folder, "generate --model " FIXTURES "/gpt2 --prompt a --tokens 2");
    CHECK_EQ(r.status, 0);
    CHECK_STR(r.error, "");
    run_free(&r);
    run_write(folder, "text.txt", "a text of some words, and of some more words than these");
    r = run_sluice(folder, "eval --model " FIXTURES "/gpt2 --data text.txt --set model.context=8");
    CHECK_EQ(r.status, 0);
    CHECK_CONTAINS(r.error, "chosen: data.type \"text\"");
    for (size_t i = 0; i < sizeof of_training / sizeof of_training[0]; i++)
        CHECK_THAT(strstr(r.error, of_training[i]) == NULL, "%s is told: %s", of_training[i], r.error);
    run_free(&r);
    r = run_sluice(folder, "plan --model " FIXTURES "/gpt2 --set model.context=8");
    CHECK_CONTAINS(r.error, "chosen: optimizer.type");
    run_free(&r);
}

/* ---- refused ---- */

TEST(bad_prompts_and_options_are_refused_with_one_message)
{
    static const struct {
        const char *arguments, *file;
        int status;
        const char *part;
    } rows[] = {
        { "--prompts p.txt", "", 4, "p.txt: holds no prompt" },
        { "--prompts p.txt", " \n\n", 4, "holds no prompt" },
        { "--prompts p.txt", "{\"prompt\": \"a\"}\n{\"prompt\": 3}\n", 4, "p.txt, line 2: has no \"prompt\"" },
        { "--prompts p.txt", "{\"prompt\": \n", 4, "p.txt, line 1" },
        { "--prompts p.txt", "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}\n", 4,
          "no chat template is known" },
        { "--prompts p.txt --template chatml", "{\"messages\": []}\n", 4, "has 0 messages" },
        { "--prompts p.txt --template chatml", "{\"messages\": [{\"role\": \"judge\", \"content\": \"a\"}]}\n", 4,
          "\"judge\"" },
        { "--prompts p.txt --prompt a", "a\n", 2, "a prompt and a file of prompts are given" },
        { "--prompts nowhere.txt", "", 4, "nowhere.txt" },
        { "--prompt a --template nonsense", "", 2, "there is no chat template \"nonsense\"; give one of" },
        { "--prompt a --chat", "", 2, "has no chat template" },
        { "--prompt a --top-p 0", "", 2, "options.top_p is 0" },
        { "--prompt a --top-p 1.5", "", 2, "options.top_p is 1.5" },
        { "--prompt a --min-p 2", "", 2, "options.min_p is 2" },
        { "--prompt a --repetition-penalty 0", "", 2, "options.repetition_penalty is 0" },
        { "--prompt a --stop ''", "", 2, "stop string 0 is empty" },
        { "--prompt a -o nowhere/out.txt", "", 6, "nowhere/out.txt" },
    };
    const char *folder = test_tmpdir();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char arguments[4096];
        run_write(folder, "p.txt", rows[i].file);
        snprintf(arguments, sizeof arguments, GPT2 "--tokens 2 %s", rows[i].arguments);
        run_result r = run_sluice(folder, arguments);
        CHECK_THAT(r.status == rows[i].status, "%s: status %d: %s", rows[i].arguments, r.status, r.error);
        CHECK_CONTAINS(r.error, rows[i].part);
        CHECK(strchr(r.error, '\n') == strrchr(r.error, '\n'));
        run_free(&r);
    }
}

/* A tokenizer that cuts texts at white space has no token for it. The folder's tokens that begin or end texts stand for the
 * prompt then; without any there is nothing to follow. */
TEST(a_prompt_without_tokens_begins_with_the_token_of_texts_or_is_refused)
{
    static const struct {
        const char *config, *tokenizer; /* what follows null; of tokenizer_config.json */
        const char *begins;             /* a prompt of the same token; NULL: refused */
    } rows[] = {
        { "\"bos_token_id\": 5, \"eos_token_id\": null", "{}", "&" },
        { "\"bos_token_id\": null, \"eos_token_id\": 6", "{}", "'" },
        { "\"bos_token_id\": null, \"eos_token_id\": [9000, 6]", "{\"bos_token\": \"(\"}", "(" },
        { "\"bos_token_id\": null, \"eos_token_id\": null", "{}", NULL },
    };
    static const char *const prompts[] = { "--prompt ' '", "--prompt ''", "--prompts spaces.jsonl" };
    char folder[1024], command[4096];
    snprintf(folder, sizeof folder, "%.1000s", test_tmpdir());
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        snprintf(command, sizeof command,
                 "cd %s && rm -rf model && cp -r " FIXTURES "/gpt2 model && sed -i '/\"bos_token_id\": null/d; "
                 "s/\"eos_token_id\": null/%s/' model/config.json && sed -i '/\"pre_tokenizer\": {/,/},/c "
                 "\"pre_tokenizer\": {\"type\": \"Whitespace\"},' model/tokenizer.json",
                 folder, rows[i].config);
        REQUIRE(system(command) == 0);
        run_write(folder, "model/tokenizer_config.json", rows[i].tokenizer);
        run_write(folder, "spaces.jsonl", "{\"prompt\": \" \\t \"}\n");
        for (size_t p = 0; p < 3; p++) {
            char arguments[512];
            snprintf(arguments, sizeof arguments, "generate --quiet --json --model model --tokens 8 --temperature 0 %s",
                     prompts[p]);
            run_result r = run_sluice(folder, arguments);
            if (rows[i].begins == NULL) {
                CHECK_EQ(r.status, 4);
                CHECK_CONTAINS(r.error, "prompt 1, \"");
                CHECK_CONTAINS(r.error, "has no tokens, a new line has none");
            } else {
                snprintf(arguments, sizeof arguments,
                         "generate --quiet --json --model model --tokens 8 --temperature 0 --prompt \"%s\"",
                         rows[i].begins);
                run_result same = run_sluice(folder, arguments);
                CHECK_THAT(r.status == 0 && same.status == 0, "%s%s", r.error, same.error);
                const char *text = strstr(r.out, "\"text\""), *want = strstr(same.out, "\"text\"");
                REQUIRE(text != NULL && want != NULL);
                CHECK_STR(text, want);
                run_free(&same);
            }
            run_free(&r);
        }
    }
}

TEST(a_signal_stops_a_generation)
{
    const char *folder = test_tmpdir();
    pid_t child = run_start(folder, GPT2 "--prompt a --tokens 100000000");
    struct timespec wait = { 0, 20000000 };
    char path[4200];
    snprintf(path, sizeof path, "%s/out", folder);
    for (int i = 0; i < 500; i++) { /* until text has come */
        char *text = run_read(path);
        bool begun = strlen(text) > 20;
        free(text);
        if (begun) break;
        nanosleep(&wait, NULL);
    }
    kill(child, SIGINT);
    run_result r = run_wait(folder, child);
    CHECK_EQ(r.status, 75);
    CHECK_CONTAINS(r.error, "stopped by a signal while generating");
    run_free(&r);
}

/* pages_cli_test.c: the commands of the guides are accepted, those that show what they print print it, what the guide for
 * users of DeepSpeed says of keys is what the program says, and the keys, options and calls that the guide for users of PyTorch
 * names are there.
 *
 * In the pages a block of code is indented by four spaces. A line that begins with "$ sluice" is run by the shell in a folder
 * with my.json, input.txt, ds_config.json, the config.json of a model and the examples; the lines below it, up to the next "$"
 * or the end of the block, are what it prints on both outputs, where "..." stands for anything. Other lines that call sluice
 * are only parsed. */
#include <fnmatch.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/run.h"
#include "test.h"

static const char *const guides[] = {
    "guides/24gb.md",  "guides/several-gpus.md", "guides/from-deepspeed.md", "guides/from-pytorch.md",
    "guides/slurm.md", "guides/failures.md",     "guides/exactness.md",      "install.md",
    "commands.md"
};
enum { GUIDE_COUNT = sizeof guides / sizeof guides[0] };

static char *read_page(const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, SLUICE_SOURCE_DIR "/docs/%s", name);
    char *text = run_read(path);
    CHECK_THAT(text[0] != '\0', "docs/%s is missing", name);
    return text;
}

/* ---- lines that are only parsed ---- */

/* Where sluice is called in a line of code, as a word of its own; NULL: nowhere, or not by a plain command. */
static const char *call_in(const char *line)
{
    const char *at = strncmp(line, "    sluice ", 11) == 0 ? line + 4 : NULL;
    if (strncmp(line, "    mpirun ", 11) == 0 || strncmp(line, "    srun ", 9) == 0) at = strstr(line, " sluice ");
    if (at == NULL || strchr(at, '|') != NULL) return NULL;
    return strstr(at, "sluice ") + strlen("sluice ");
}

/* The line with --help behind it parses the rest and runs nothing. */
static void check_call(const char *page, const char *call)
{
    char arguments[2048];
    const char *comment = strstr(call, " # ");
    int length = comment != NULL ? (int)(comment - call) : (int)strlen(call);
    snprintf(arguments, sizeof arguments, "%.*s --help", length, call);
    run_result r = run_sluice(test_tmpdir(), arguments);
    CHECK_THAT(r.status == 0, "docs/%s: sluice %s: %s", page, arguments, r.error);
    run_free(&r);
}

TEST(every_command_of_the_guides_is_accepted)
{
    int count = 0;
    for (int i = 0; i < GUIDE_COUNT; i++) {
        char *page = read_page(guides[i]), *rest = page, *line;
        bool shown = false; /* the block shows what commands print */
        while ((line = strsep(&rest, "\n")) != NULL) {
            const char *call = call_in(line);
            shown = strncmp(line, "    $ ", 6) == 0 || (shown && strncmp(line, "    ", 4) == 0);
            if (call == NULL || shown || strncmp(call, "help --", 7) == 0) continue;
            check_call(guides[i], call);
            count++;
        }
        free(page);
    }
    CHECK_THAT(count >= 40, "%d commands", count);
}

/* Names of keys behind --set must be keys, also where nothing is run: `config` without a file knows them all. */
TEST(every_key_that_the_guides_set_is_one)
{
    run_result all = run_sluice(test_tmpdir(), "config");
    int count = 0;
    for (int i = 0; i < GUIDE_COUNT; i++) {
        char *page = read_page(guides[i]);
        for (char *at = page; (at = strstr(at, "--set ")) != NULL; at++) {
            char key[128], row[160];
            if (sscanf(at, "--set %127[a-z0-9_.]=", key) != 1 || at[6 + strlen(key)] != '=') continue;
            snprintf(row, sizeof row, "unknown key \"%s\"", key);
            if (strstr(page, row) != NULL) continue; /* the page shows what becomes of it */
            snprintf(row, sizeof row, "\n  %s  (", key);
            CHECK_THAT(strstr(all.out, row) != NULL, "docs/%s sets %s, which is no key", guides[i], key);
            count++;
        }
        free(page);
    }
    CHECK_THAT(count >= 30, "%d keys", count);
    run_free(&all);
}

/* ---- what is printed ---- */

static void prepare(const char *folder)
{
    char command[8192];
    snprintf(command, sizeof command,
             "cd '%s' && cp '" SLUICE_SOURCE_DIR "/examples/shakespeare.json' my.json && seq 1 30000 > input.txt && "
             "cp '" SLUICE_SOURCE_DIR "/tests/config/deepspeed/trainer-stage3-offload.json' ds_config.json && "
             "ln -s '" SLUICE_SOURCE_DIR "/examples' examples && mkdir Llama-3.1-8B runs",
             folder);
    CHECK_EQ(system(command), 0);
    run_write(
        folder, "Llama-3.1-8B/config.json",
        "{\"model_type\": \"llama\", \"hidden_size\": 4096, \"num_hidden_layers\": 32, \"num_attention_heads\": 32, "
        "\"num_key_value_heads\": 8, \"intermediate_size\": 14336, \"vocab_size\": 128256, \"tie_word_embeddings\": "
        "false, \"max_position_embeddings\": 131072, \"rms_norm_eps\": 1e-5, \"rope_theta\": 500000.0, "
        "\"hidden_act\": \"silu\", \"torch_dtype\": \"bfloat16\"}");
}

/* Appends a line of expected output to a pattern of fnmatch: "..." is anything, also of several lines. */
static void add_pattern(char *pattern, size_t bytes, const char *line)
{
    size_t end = strlen(pattern);
    bool whole = strcmp(line, "...") == 0;
    for (; *line != '\0' && end + 4 < bytes; line++) {
        if (strncmp(line, "...", 3) == 0) {
            pattern[end++] = '*';
            line += 2;
            continue;
        }
        if (strchr("*?[\\", *line) != NULL) pattern[end++] = '\\';
        pattern[end++] = *line;
    }
    if (!whole) pattern[end++] = '\n';
    pattern[end] = '\0';
}

static void check_output(const char *page, const char *folder, const char *command, const char *pattern)
{
    char line[8192], path[4200];
    snprintf(line, sizeof line,
             "cd '%s' && PATH='" SLUICE_BINARY_DIR "':$PATH && export PATH && { %s; } > printed 2>&1", folder, command);
    int status = system(line);
    snprintf(path, sizeof path, "%s/printed", folder);
    char *printed = run_read(path);
    CHECK_THAT(WIFEXITED(status) && WEXITSTATUS(status) == 0, "docs/%s: %s: status %d: %s", page, command, status,
               printed);
    CHECK_THAT(fnmatch(pattern, printed, 0) == 0, "docs/%s: %s prints\n%s", page, command, printed);
    free(printed);
}

/* The commands of one page that show what they print. */
static int check_page(const char *name)
{
    static char command[2048], pattern[32768];
    char folder[4096];
    snprintf(folder, sizeof folder, "%s", test_tmpdir());
    prepare(folder);
    char *page = read_page(name), *rest = page, *line;
    int count = 0;
    command[0] = '\0';
    while (rest != NULL) {
        line = strsep(&rest, "\n");
        bool code = strncmp(line, "    ", 4) == 0, begins = strncmp(line, "    $ ", 6) == 0;
        if (command[0] != '\0' && (begins || !code)) {
            check_output(name, folder, command, pattern);
            command[0] = '\0';
            count++;
        }
        if (begins) {
            snprintf(command, sizeof command, "%s", line + 6);
            pattern[0] = '\0';
        } else if (code && command[0] != '\0') {
            add_pattern(pattern, sizeof pattern, line + 4);
        }
    }
    free(page);
    return count;
}

TEST(the_guide_to_a_card_of_24_gb_shows_what_is_printed)
{
    if (!run_has("plain_build"))
        SKIP(plain_build, "sanitizers make the program larger, which is in the budget it prints");
    CHECK_EQ(check_page("guides/24gb.md"), 1);
}

TEST(the_guide_to_several_gpus_shows_what_is_printed)
{
    CHECK_EQ(check_page("guides/several-gpus.md"), 4);
}

/* ---- keys of DeepSpeed ---- */

TEST(the_guide_from_deepspeed_says_of_keys_what_the_program_says)
{
    run_result all = run_sluice(test_tmpdir(), "config");
    char *page = read_page("guides/from-deepspeed.md"), *rest = page, *line;
    int count = 0;
    while ((line = strsep(&rest, "\n")) != NULL) {
        char key[128], here[32], row[160];
        if (sscanf(line, "| `%127[a-z0-9_.]` | %31[a-z ] |", key, here) != 2) continue;
        snprintf(row, sizeof row, "\n  %s  (", key);
        const char *known = strstr(all.out, row), *meaning = known != NULL ? strstr(known, "\n      ") : NULL;
        CHECK_THAT(meaning != NULL, "%s is no key", key);
        if (meaning == NULL) continue;
        meaning += 7;
        const char *fate = strncmp(meaning, "No effect here: ", 16) == 0 ? "no effect "
                           : strncmp(meaning, "Refused unless it has its default", 33) == 0 ||
                                   strncmp(meaning, "Not built in yet, refused", 25) == 0
                               ? "refused "
                               : "used ";
        CHECK_THAT(strcmp(fate, here) == 0, "%s is \"%s\" in the guide, %s: %.60s", key, here, fate, meaning);
        count++;
    }
    CHECK_THAT(count >= 35, "%d keys", count);
    free(page);
    run_free(&all);
}

/* ---- names of PyTorch ---- */

/* Whether `text` has `word` with no letter, digit or underscore beside it. */
static bool has_word(const char *text, const char *word)
{
    static const char inside[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
    for (const char *at = text; (at = strstr(at, word)) != NULL; at++)
        if ((at == text || strchr(inside, at[-1]) == NULL) && strchr(inside, at[strlen(word)]) == NULL) return true;
    return false;
}

/* The names in a cell of a table: words in backquotes of small letters, digits, underscores and points. Each is a row of `config`,
 * or, where that is NULL, a word of `header`. Returns how many there are. */
static int check_names(const char *cell, const char *config, const char *header)
{
    int count = 0;
    for (const char *at = cell; (at = strchr(at, '`')) != NULL;) {
        const size_t length = strcspn(++at, "`"), named = strspn(at, "abcdefghijklmnopqrstuvwxyz0123456789_.");
        char name[128], row[160];
        snprintf(name, sizeof name, "%.*s", (int)length, at);
        at += length + (at[length] == '`');
        if (named < length) continue;
        snprintf(row, sizeof row, "\n  %s  (", name);
        CHECK_THAT(config != NULL ? strstr(config, row) != NULL : has_word(header, name),
                   "from-pytorch.md: %s is no %s", name, config != NULL ? "key" : "name of sluice.h");
        count++;
    }
    return count;
}

TEST(the_guide_from_pytorch_names_keys_options_and_calls_that_there_are)
{
    run_result all = run_sluice(test_tmpdir(), "config");
    char *header = run_read(SLUICE_SOURCE_DIR "/include/sluice.h");
    char *page = read_page("guides/from-pytorch.md"), *rest = strstr(page, "\n## Row by row"), *line;
    REQUIRE(rest != NULL);
    int keys = 0, names = 0;
    while ((line = strsep(&rest, "\n")) != NULL) {
        char *cells[3] = { NULL, NULL, NULL }, *cell = line + 2;
        if (strncmp(line, "| `", 3) != 0) continue;
        for (int i = 0; i < 3 && cell != NULL; i++) {
            cells[i] = cell;
            if ((cell = strstr(cell, " |")) != NULL) *cell = '\0', cell += 2;
        }
        const bool builders = cell == NULL; /* a table of two columns */
        if (builders) names += check_names(cells[1], NULL, header);
        if (!builders) keys += check_names(cells[1], all.out, NULL);
        if (!builders) names += check_names(cells[2], NULL, header);
    }
    CHECK_THAT(keys >= 40 && names >= 70, "%d keys, %d names", keys, names);
    free(page);
    free(header);
    run_free(&all);
}

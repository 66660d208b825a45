/* help_cli_test.c: help, manual pages, docs/commands.md and completion tell the same; shells complete by them. */
#include <jansson.h>
#include <pty.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/run.h"
#include "test.h"

static const char *new_folder(void)
{
    static char folder[4096];
    snprintf(folder, sizeof folder, "%s", test_tmpdir());
    return folder;
}

/* What a command line prints; it must succeed without a word on standard error. Owned by the caller. */
static char *said(const char *arguments)
{
    run_result r = run_sluice(new_folder(), arguments);
    CHECK_THAT(r.status == 0 && r.error[0] == '\0', "sluice %s: status %d: %s", arguments, r.status, r.error);
    char *out = strdup(r.out);
    run_free(&r);
    return out;
}

/* Calls `visit` with every command, as the list of manual pages has them. */
static int each_command(void (*visit)(const char *command))
{
    char *list = said("help --man"), *rest = list, *line;
    int count = 0;
    while ((line = strsep(&rest, "\n")) != NULL) {
        char command[64];
        if (sscanf(line, "sluice-%63[a-z].1", command) != 1 || strstr(line, ".1") == NULL) continue;
        visit(command);
        count++;
    }
    free(list);
    return count;
}

/* Calls `visit` with every option of a command, as its --help has them. */
static void each_option(const char *command, void (*visit)(const char *command, const char *option))
{
    char arguments[96];
    snprintf(arguments, sizeof arguments, "%s --help", command);
    char *help = said(arguments), *rest = strstr(help, "\noptions:\n"), *line;
    int count = 0;
    CHECK_THAT(rest != NULL, "%s --help has no options", command);
    while (rest != NULL && (line = strsep(&rest, "\n")) != NULL) {
        char option[64];
        if (strcmp(line, "examples:") == 0) break;
        if (sscanf(line, "  --%63[a-z0-9-]", option) != 1 || line[2] != '-') continue;
        visit(command, option);
        count++;
    }
    CHECK_THAT(count > 0, "%s --help names no option", command);
    free(help);
}

/* ---- the forms agree ---- */

static void check_help(const char *command)
{
    char arguments[96];
    snprintf(arguments, sizeof arguments, "%s --help", command);
    char *help = said(arguments), *usage = said("--help");
    const char *text = strstr(help, "\n\n"), *options = strstr(help, "\noptions:\n");
    CHECK_THAT(text != NULL && options != NULL && options - text > 120,
               "%s --help says little: give it a row in cli_pages", command);
    CHECK_CONTAINS(help, "\nexamples:\n  ");
    CHECK_CONTAINS(help, "\nexit status:\n   0  success\n");
    CHECK_CONTAINS(usage, command);
    for (char *line = help, *end; line != NULL; line = end != NULL ? end + 1 : NULL) {
        end = strchr(line, '\n');
        if (end != NULL) *end = '\0';
        bool example = strstr(line, "sluice ") != NULL;
        CHECK_THAT(strlen(line) <= 80 || example, "%s --help: \"%s\" is longer than a terminal", command, line);
    }
    free(help);
    free(usage);
}

TEST(every_command_has_a_description_examples_and_exit_statuses)
{
    CHECK(each_command(check_help) >= 12);
}

/* A manual page without the backslashes before its dashes. Owned by the caller. */
static char *man_page(const char *name)
{
    char arguments[96];
    snprintf(arguments, sizeof arguments, "help --man %s", name);
    char *page = said(arguments), *to = page;
    for (const char *from = page; *from != '\0'; from++)
        if (strncmp(from, "\\-", 2) != 0) *to++ = *from;
    *to = '\0';
    return page;
}

/* What there is of the command at hand. */
static char *completed, *manual, *chapter;

static void check_option(const char *command, const char *option)
{
    char candidate[96], bold[96], row[96];
    snprintf(candidate, sizeof candidate, "--%s\t", option);
    snprintf(bold, sizeof bold, "\n\\fB--%s\\fR", option);
    snprintf(row, sizeof row, "| `--%s", option);
    CHECK_THAT(strstr(completed, candidate) != NULL, "completion of %s lacks --%s", command, option);
    CHECK_THAT(strstr(manual, bold) != NULL, "sluice-%s(1) lacks --%s", command, option);
    CHECK_THAT(strstr(chapter, row) != NULL, "docs/commands.md: %s lacks --%s", command, option);
}

static void check_options(const char *command)
{
    char text[96];
    snprintf(text, sizeof text, "help --complete -- %s --", command);
    completed = said(text);
    snprintf(text, sizeof text, "sluice-%s.1", command);
    manual = man_page(text);
    char *chapters = said("help --markdown"), *next;
    snprintf(text, sizeof text, "\n## sluice %s\n", command);
    chapter = strstr(chapters, text);
    CHECK_THAT(chapter != NULL, "docs/commands.md lacks %s", command);
    if (chapter != NULL && (next = strstr(chapter + 1, "\n## ")) != NULL) *next = '\0';
    if (chapter != NULL) each_option(command, check_option);
    free(completed);
    free(manual);
    free(chapters);
}

TEST(options_are_in_help_manual_page_completion_and_documentation_alike)
{
    CHECK(each_command(check_options) >= 12);
}

/* "sluice ..." of an example, as far as the program's own: with --help behind it, it parses and runs nothing. */
static void check_examples(const char *command)
{
    char arguments[512];
    snprintf(arguments, sizeof arguments, "%s --help", command);
    char *help = said(arguments), *rest = strstr(help, "\nexamples:\n"), *line;
    int count = 0;
    while (rest != NULL && (line = strsep(&rest, "\n")) != NULL) {
        const char *own = strstr(line, "sluice ");
        if (strcmp(line, "exit status:") == 0) break;
        if (own == NULL || line[2] == ' ') continue;
        snprintf(arguments, sizeof arguments, "%s --help", own + strlen("sluice "));
        run_result r = run_sluice(new_folder(), arguments);
        CHECK_THAT(r.status == 0, "example \"%s\": %s", line, r.error);
        CHECK_THAT(strncmp(own + strlen("sluice "), command, strlen(command)) == 0, "example of another: %s", line);
        run_free(&r);
        count++;
    }
    CHECK_THAT(count > 0, "%s --help has no example", command);
    free(help);
}

TEST(every_example_of_the_help_is_accepted)
{
    CHECK(each_command(check_examples) >= 12);
}

TEST(the_page_of_commands_is_up_to_date)
{
    char *out = said("help --markdown"), *page = run_read(SLUICE_SOURCE_DIR "/docs/commands.md");
    if (strcmp(out, page) != 0) test_fail(__FILE__, __LINE__, "docs/commands.md differs; run: make docs");
    CHECK(strlen(out) > 1000);
    free(out);
    free(page);
}

TEST(exit_statuses_of_the_help_are_those_of_the_documentation)
{
    char *help = said("--help"), *page = run_read(SLUICE_SOURCE_DIR "/docs/formats.md"), *line;
    char *rest = strstr(help, "exit status:\n");
    int count = 0;
    REQUIRE(rest != NULL);
    strsep(&rest, "\n");
    while ((line = strsep(&rest, "\n")) != NULL && line[0] == ' ') {
        char row[32];
        if (line[3] == ' ') continue; /* the rest of the meaning before */
        snprintf(row, sizeof row, "\n| %d | ", atoi(line));
        CHECK_CONTAINS(page, row);
        count++;
    }
    CHECK_EQ(count, 9);
    free(help);
    free(page);
}

/* Every key that is told to --set is on the page of sluice-config(5), and completed. */
TEST(keys_are_in_the_manual_page_and_completed)
{
    char *settings = man_page("sluice-config.5"), *keys = said("help --complete -- train --set ''");
    char *markdown = run_read(SLUICE_SOURCE_DIR "/docs/config.md"), *rest = markdown, *line;
    int count = 0;
    char *others = strstr(markdown, "## Further keys of DeepSpeed");
    REQUIRE(others != NULL);
    *others = '\0';
    while ((line = strsep(&rest, "\n")) != NULL) {
        char key[128], type[16], bold[160], candidate[160];
        if (sscanf(line, "| `%127[a-z0-9_.]` | %15[a-z] |", key, type) != 2) continue;
        if (strstr("bool integer number size text choice pair list", type) == NULL) continue;
        snprintf(bold, sizeof bold, "\n.B %s\n", key);
        snprintf(candidate, sizeof candidate, "%s=\t", key);
        CHECK_THAT(strstr(settings, bold) != NULL, "sluice-config(5) lacks %s", key);
        CHECK_THAT(strstr(keys, candidate) != NULL, "completion lacks %s", key);
        count++;
    }
    CHECK_THAT(count > 100, "%d keys", count);
    CHECK_CONTAINS(keys, ":open\n");
    free(settings);
    free(keys);
    free(markdown);
}

TEST(completion_knows_commands_values_files_and_choices_of_keys)
{
    static const struct {
        const char *words, *expected;
    } cases[] = {
        { "tr", "train\tplan, then train\n" },
        { "help ver", "verify\tcheck every byte of a file or checkpoint against its checksums\n" },
        { "export runs --dtype b", "bf16\t\n" },
        { "train ''", ":files\n" },
        { "train --model ''", ":folders\n" },
        { "train --trace ''", ":files\n" },
        { "train --ranks ''", "" },
        { "train c.json --set optimizer.type=Ad",
          "optimizer.type=Adagrad\t\noptimizer.type=Adam\t\noptimizer.type=AdamW\t\n" },
        { "train c.json --set bf16.enabled=t", "bf16.enabled=true\t\n" },
        { "train c.json --set data.path=", ":files\n" },
        { "train c.json --set memory.device=a", "memory.device=auto\t\n" },
        { "merge base -o ''", ":files\n" },
        { "nothing ''", "" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char arguments[256];
        snprintf(arguments, sizeof arguments, "help --complete -- %s", cases[i].words);
        char *out = said(arguments);
        CHECK_THAT(strcmp(out, cases[i].expected) == 0, "%s: \"%s\", expected \"%s\"", cases[i].words, out,
                   cases[i].expected);
        free(out);
    }
}

TEST(help_refuses_what_it_does_not_know)
{
    static const char *const wrong[] = { "help --man sluice-nothing.1", "help --completion tcsh", "help --nothing" };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        run_result r = run_sluice(new_folder(), wrong[i]);
        CHECK_EQ(r.status, 2);
        CHECK_CONTAINS(r.error, "sluice: help: ");
        run_free(&r);
    }
}

/* ---- manual pages ---- */

static bool on_path(const char *program)
{
    char command[128];
    snprintf(command, sizeof command, "command -v %s > /dev/null 2>&1", program);
    return system(command) == 0;
}

/* All pages through `lint`, with the page's file as "$page": what it says fails the test. */
static void check_pages(const char *lint)
{
    char command[2048];
    snprintf(command, sizeof command,
             "help --man > list && exec > out 2> err && for page in $(cat list); do " SLUICE_BINARY_DIR
             "/sluice help --man $page > $page; %s; "
             "done && test -s sluice-train.1",
             lint);
    run_result r = run_sluice(new_folder(), command);
    CHECK_EQ(r.status, 0);
    CHECK_STR(r.out, "");
    CHECK_STR(r.error, "");
    run_free(&r);
}

TEST(manual_pages_have_no_fault_that_mandoc_knows)
{
    if (!on_path("mandoc")) SKIP(mandoc, "no mandoc here");
    check_pages("mandoc -T lint -W warning $page");
}

TEST(manual_pages_are_formatted_without_a_warning)
{
    if (!on_path("groff")) SKIP(groff, "no groff here");
    check_pages("LC_ALL=C.UTF-8 groff -man -ww -Tutf8 -Z $page > /dev/null");
}

/* ---- real shells ---- */

/* Types `keys` into an interactive shell and returns all it wrote; static. */
static const char *type_into(const char *folder, const char *shell, const char *const *arguments, const char *keys)
{
    static char out[256 << 10];
    int terminal;
    size_t used = 0;
    struct winsize window = { .ws_row = 40, .ws_col = 120 };
    pid_t child = forkpty(&terminal, NULL, NULL, &window);
    if (child == 0) {
        char path[8192];
        snprintf(path, sizeof path, "%s:%s", SLUICE_BINARY_DIR, getenv("PATH"));
        setenv("PATH", path, 1);
        setenv("HOME", folder, 1);
        setenv("TERM", "xterm", 1);
        if (chdir(folder) == 0) execvp(shell, (char *const *)(uintptr_t)arguments);
        _exit(127);
    }
    if (child < 0) return "";
    usleep(1500000); /* a shell may throw away what is typed before its prompt */
    if (write(terminal, keys, strlen(keys)) < 0) return "";
    for (ssize_t n = 1; n > 0 && used + 1 < sizeof out; used += n > 0 ? (size_t)n : 0)
        n = read(terminal, out + used, sizeof out - 1 - used);
    out[used] = '\0';
    close(terminal);
    waitpid(child, NULL, 0);
    return out;
}

/* Commands and keys are completed, and the lines run: `c.json` exists. */
static const char typed[] = "sluice verif\t\r"
                            "sluice config c.js\t--set bf16.enab\ttr\t > effective\r"
                            "sluice config c.json --set zero_optimization.stage=3 --no\t > noted\r"
                            "exit\r";

static void check_typed(const char *folder, const char *out)
{
    char path[4200];
    CHECK_CONTAINS(out, "verify: PATH is missing");
    snprintf(path, sizeof path, "%s/effective", folder);
    char *effective = run_read(path);
    CHECK_CONTAINS(effective, "\"bf16\"");
    json_t *config = json_loads(effective, 0, NULL);
    CHECK_THAT(json_is_true(json_object_get(json_object_get(config, "bf16"), "enabled")),
               "bf16.enabled was not completed: %s", out);
    json_decref(config);
    free(effective);
    snprintf(path, sizeof path, "%s/noted", folder);
    char *noted = run_read(path);
    CHECK_CONTAINS(noted, "\"stage\": 3");
    free(noted);
}

/* The completion of `shell` in folder/script. */
static void write_script(const char *folder, const char *shell)
{
    char arguments[128];
    run_write_config(folder, "c.json", "");
    snprintf(arguments, sizeof arguments, "help --completion %s > script", shell);
    run_must(folder, arguments);
}

TEST(bash_completes_commands_options_files_and_keys)
{
    if (!on_path("bash")) SKIP(bash, "no bash here");
    const char *folder = new_folder();
    static const char *const arguments[] = { "bash", "--noprofile", "--rcfile", "script", "-i", NULL };
    write_script(folder, "bash");
    check_typed(folder, type_into(folder, "bash", arguments, typed));
}

TEST(zsh_completes_commands_options_files_and_keys)
{
    if (!on_path("zsh")) SKIP(zsh, "no zsh here");
    const char *folder = new_folder();
    static const char *const arguments[] = { "zsh", "-i", NULL };
    write_script(folder, "zsh");
    run_write(folder, ".zshrc", "autoload -Uz compinit && compinit -u\nsource ./script\n");
    check_typed(folder, type_into(folder, "zsh", arguments, typed));
}

TEST(fish_completes_commands_options_files_and_keys)
{
    if (!on_path("fish")) SKIP(fish, "no fish here");
    const char *folder = new_folder();
    static const char *const arguments[] = { "fish", "-i", "-C", "source ./script", NULL };
    write_script(folder, "fish");
    check_typed(folder, type_into(folder, "fish", arguments, typed));
}

/* ---- doctor ---- */

TEST(doctor_says_of_every_check_what_it_found_and_what_to_do)
{
    run_result text = run_sluice(new_folder(), "doctor"), json = run_sluice(new_folder(), "doctor --json");
    json_t *all = json_loads(json.out, 0, NULL), *one;
    size_t i;
    CHECK_EQ(text.status, 0);
    CHECK_EQ(json.status, 0);
    CHECK_CONTAINS(text.out, "sluice can train on the CPU here");
    CHECK(json_is_true(json_object_get(all, "can_train")));
    CHECK(json_array_size(json_object_get(all, "checks")) >= 15);
    json_array_foreach(json_object_get(all, "checks"), i, one)
    {
        const char *level = json_string_value(json_object_get(one, "level"));
        const char *name = json_string_value(json_object_get(one, "check"));
        CHECK_CONTAINS(text.out, name);
        CHECK(strlen(json_string_value(json_object_get(one, "found"))) > 0);
        bool advised = strlen(json_string_value(json_object_get(one, "remedy"))) > 0;
        CHECK_THAT(strcmp(level, "ok") == 0 ? !advised : advised, "%s: %s, advice %d", name, level, advised);
    }
    json_decref(all);
    run_free(&text);
    run_free(&json);
}

TEST(doctor_ends_with_1_and_names_what_keeps_a_run_from_starting)
{
    static const struct {
        const char *arguments;
        int status;
        const char *problem;
    } cases[] = {
        { "doctor nowhere", 1, "problems: folder" },
        { "doctor --device tpu", 2, "give auto, cpu or cuda" },
        { "doctor --device cuda", 1, "cannot train on the GPU" },
    };
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    char *before = visible != NULL ? strdup(visible) : NULL;
    setenv("CUDA_VISIBLE_DEVICES", "", 1);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        run_result r = run_sluice(new_folder(), cases[i].arguments);
        CHECK_EQ(r.status, cases[i].status);
        CHECK_CONTAINS(r.error, cases[i].problem);
        run_free(&r);
    }
    if (before != NULL)
        setenv("CUDA_VISIBLE_DEVICES", before, 1);
    else
        unsetenv("CUDA_VISIBLE_DEVICES");
    free(before);
}

TEST(doctor_leaves_nothing_in_the_folder)
{
    run_result r = run_sluice(new_folder(), "doctor . > /dev/null && find . -type f ! -name out ! -name err");
    CHECK_EQ(r.status, 0);
    CHECK_STR(r.out, "");
    run_free(&r);
}

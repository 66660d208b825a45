/* man_page.c: manual pages in the language of man(7), and docs/commands.md, from the tables of manual.h. */
#include <ctype.h>
#include <string.h>

#include "cli/manual.h"

/* The day of the newest release, from CHANGELOG.md. */
#ifndef SLUICE_RELEASED
#define SLUICE_RELEASED "unreleased"
#endif

/* ---- man(7) ---- */

/* One character of text: dashes are those that can be typed and searched for; a line must not begin as a request does. */
static void put_roff(char c, bool first, FILE *out)
{
    if (first && (c == '.' || c == '\'')) fputs("\\&", out);
    if (c == '\\')
        fputs("\\e", out);
    else if (c == '-')
        fputs("\\-", out);
    else if (c == '\'')
        fputs("\\(aq", out);
    else if (c == '^' || c == '~')
        fputs(c == '^' ? "\\(ha" : "\\(ti", out);
    else
        fputc(c, out);
}

/* A line of text; words in backticks are bold. A sentence ends its line, as roff likes it. */
static void print_roff(const char *text, FILE *out)
{
    bool bold = false, first = true;
    for (const char *p = text; *p != '\0'; p++) {
        if (*p == '`') {
            bold = !bold;
            fputs(bold ? "\\fB" : "\\fR", out);
            first = false;
        } else if (*p == '\n' || (*p == ' ' && p > text && p[-1] == '.' && isupper((unsigned char)p[1]))) {
            fputs(p[0] == '\n' && p[1] == '\n' ? "\n.PP\n" : "\n", out);
            first = true;
            while (p[1] == '\n' || p[1] == ' ') p++;
        } else {
            put_roff(*p, first, out);
            first = false;
        }
    }
    fputc('\n', out);
}

/* Text to be typed, as it is. */
static void print_literal(const char *text, FILE *out)
{
    for (bool first = true; *text != '\0'; first = *text == '\n', text++) put_roff(*text, first, out);
    fputc('\n', out);
}

static void print_upper(const char *text, FILE *out)
{
    for (; *text != '\0'; text++) put_roff((char)toupper((unsigned char)*text), false, out);
}

static void print_title(const char *page, const char *section, FILE *out)
{
    fputs(".TH \"", out);
    print_upper(page, out);
    fprintf(out, "\" %s \"%s\" \"sluice %s\" \"sluice manual\"\n", section, SLUICE_RELEASED, sluice_version());
    fputs(".SH NAME\n", out);
    for (const char *p = page; *p != '\0'; p++) put_roff(*p, false, out);
    fputs(" \\- ", out);
}

static void print_man_options(const cli_command *command, FILE *out)
{
    cli_option o;
    fputs(".SH OPTIONS\n", out);
    for (int i = 0; cli_option_at(command, i, &o); i++) {
        fputs(".TP\n\\fB\\-\\-", out);
        for (const char *p = o.name; *p != '\0'; p++) put_roff(*p, false, out);
        fprintf(out, "\\fR%s%s%s\n", o.value != NULL ? " \\fI" : "", o.value != NULL ? o.value : "",
                o.value != NULL ? "\\fR" : "");
        print_roff(o.help, out);
    }
}

/* Those of a page; of the program as a whole without one. */
static void print_man_statuses(const cli_page *page, FILE *out)
{
    fputs(".SH EXIT STATUS\n", out);
    for (size_t i = 0; i < cli_status_count; i++) {
        if (page != NULL && !cli_page_has_status(page, cli_statuses[i].status)) continue;
        fprintf(out, ".TP\n.B %s\n", cli_statuses[i].status);
        print_roff(cli_statuses[i].meaning, out);
    }
}

static void print_man_examples(const cli_page *page, FILE *out)
{
    if (page->examples[0].line != NULL) fputs(".SH EXAMPLES\n", out);
    for (int i = 0; i < CLI_EXAMPLES && page->examples[i].line != NULL; i++) {
        fputs(".TP\n.B ", out);
        print_literal(page->examples[i].line, out);
        print_roff(page->examples[i].what, out);
    }
}

static void print_command_page(const cli_command *command, FILE *out)
{
    const cli_page *page = cli_find_page(command->name);
    char name[64], item[64];
    snprintf(name, sizeof name, "sluice-%s", command->name);
    print_title(name, "1", out);
    print_roff(command->help, out);
    fprintf(out, ".SH SYNOPSIS\n.B sluice %s\n", command->name);
    if (command->operand != NULL)
        fprintf(out, command->operand_optional ? "[\\fI%s\\fR]\n" : "\\fI%s\\fR\n", command->operand);
    fputs("[\\fIOPTION\\fR ...]\n.SH DESCRIPTION\n", out);
    print_roff(page->text[0] != '\0' ? page->text : command->help, out);
    print_man_options(command, out);
    print_man_examples(page, out);
    print_man_statuses(page, out);
    fputs(".SH SEE ALSO\n.BR sluice (1),\n.BR sluice\\-config (5)\n", out);
    for (int i = 0; cli_item(page->see, i, item, sizeof item); i++)
        fprintf(out, "%sdocs/%s", i == 0 ? ".PP\nPages of the documentation: " : ", ", item);
    if (page->see[0] != '\0') fputc('\n', out);
}

static void print_program_page(FILE *out)
{
    char line[64];
    print_title("sluice", "1", out);
    print_roff(cli_purpose, out);
    fputs(".SH SYNOPSIS\n.B sluice\n\\fICOMMAND\\fR [\\fIOPTION\\fR ...]\n.SH DESCRIPTION\n", out);
    print_roff(
        "Before the first step sluice prints a plan: where every byte of weights, gradients, optimizer state and "
        "activations lives, what moves when, and how long a step will take. Then it follows that plan to the "
        "byte. Less memory changes the plan, never the result.\n\n"
        "Every command has a manual page of its own, and explains itself with `--help`.",
        out);
    fputs(".SH COMMANDS\n", out);
    for (size_t i = 0; i < cli_command_count; i++) {
        cli_usage_line(&cli_commands[i], line, sizeof line);
        fputs(".TP\n.B ", out);
        print_literal(line, out);
        print_roff(cli_commands[i].help, out);
    }
    fputs(".TP\n.B help [COMMAND]\n", out);
    print_roff("this list, or the options of a command; `--completion` with bash, zsh or fish prints a script for that "
               "shell",
               out);
    print_man_statuses(NULL, out);
    fputs(".SH ENVIRONMENT\n", out);
    static const char *const variables[][2] = {
        { "SLUICE_CPU", "instruction path of the CPU kernels: scalar, avx2, avx512 or amx" },
        { "SLUICE_DEVICE", "device where the configuration says auto: cpu or cuda" },
        { "SLUICE_PLUGINS", "folder to look for libsluice_cuda.so and libsluice_mpi.so in first" },
        { "SLUICE_NCCL", "path of the NCCL library to use" },
        { "CUDA_VISIBLE_DEVICES", "GPUs that may be used" },
    };
    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++) {
        fprintf(out, ".TP\n.B %s\n", variables[i][0]);
        print_roff(variables[i][1], out);
    }
    fputs(".SH SEE ALSO\n", out);
    for (size_t i = 0; i < cli_command_count; i++) fprintf(out, ".BR sluice\\-%s (1),\n", cli_commands[i].name);
    fputs(".BR sluice\\-config (5)\n", out);
}

/* One key of sluice-config(5). */
static void print_setting(const sluice_setting *s, FILE *out)
{
    char choice[64];
    fputs(".TP\n.B ", out);
    print_literal(s->key, out);
    fprintf(out, "(%s", s->type);
    if (s->fallback[0] != '\0') {
        fputs(", default ", out);
        for (const char *p = s->fallback; *p != '\0'; p++) put_roff(*p, false, out);
    }
    fputs(")\n", out);
    if (s->effect[0] != '\0') print_roff(s->effect, out);
    print_roff(s->help, out);
    for (int i = 0; s->choices != NULL && cli_item(s->choices, i, choice, sizeof choice); i++) {
        size_t length = strlen(choice);
        bool built = choice[length - 1] != '!';
        fputs(i == 0 ? "One of " : ", ", out);
        for (size_t k = 0; k < length - !built; k++) put_roff(choice[k], false, out);
        if (!built) fputs(" (not built in yet)", out);
    }
    if (s->choices != NULL) fputs(".\n", out);
}

static void print_settings_page(FILE *out)
{
    sluice_setting s;
    const char *chapter = "";
    print_title("sluice-config", "5", out);
    print_roff("configuration of sluice, in DeepSpeed's format", out);
    fputs(".SH DESCRIPTION\n", out);
    print_roff(
        "A configuration is one JSON object: DeepSpeed's file with sections for the model and the data. A dot in a "
        "key below is a nested object. `--set` `key=value` assigns after the file is read; the value is JSON, or a "
        "plain word taken as text. A size is a number of bytes, or text such as 20GiB. `auto` may stand for every "
        "key whose default is auto.\n\n"
        "`sluice config FILE` prints every effective value.",
        out);
    for (int i = 0; sluice_setting_at(i, &s); i++) {
        if (s.chapter == NULL) continue;
        if (strcmp(chapter, s.chapter) != 0) {
            fputs(".SH ", out);
            print_upper(chapter = s.chapter, out);
            fputs("\n.EX\n", out);
            print_literal(s.example, out);
            fputs(".EE\n", out);
        }
        print_setting(&s, out);
    }
    fputs(".SH FURTHER KEYS OF DEEPSPEED\n", out);
    print_roff("They are accepted, so that a DeepSpeed configuration can be used as it is.", out);
    for (int i = 0; sluice_setting_at(i, &s); i++)
        if (s.chapter == NULL) print_setting(&s, out);
    fputs(".SH SEE ALSO\n.BR sluice (1),\n.BR sluice\\-config (1),\n.BR sluice\\-train (1)\n", out);
}

void cli_list_man_pages(FILE *out)
{
    fputs("sluice.1\n", out);
    for (size_t i = 0; i < cli_command_count; i++) fprintf(out, "sluice-%s.1\n", cli_commands[i].name);
    fputs("sluice-config.5\n", out);
}

bool cli_print_man_page(const char *page, FILE *out)
{
    char name[64];
    if (strcmp(page, "sluice.1") == 0) {
        print_program_page(out);
        return true;
    }
    if (strcmp(page, "sluice-config.5") == 0) {
        print_settings_page(out);
        return true;
    }
    for (size_t i = 0; i < cli_command_count; i++) {
        snprintf(name, sizeof name, "sluice-%s.1", cli_commands[i].name);
        if (strcmp(page, name) != 0) continue;
        print_command_page(&cli_commands[i], out);
        return true;
    }
    return false;
}

/* ---- docs/commands.md ---- */

/* Text of a cell. */
static void print_cell(const char *text, FILE *out)
{
    for (; *text != '\0'; text++) fprintf(out, *text == '|' ? "\\%c" : "%c", *text);
}

static void print_command_chapter(const cli_command *command, FILE *out)
{
    const cli_page *page = cli_find_page(command->name);
    char line[64], item[64];
    cli_option o;
    cli_usage_line(command, line, sizeof line);
    fprintf(out, "\n## sluice %s\n\n`sluice %s [OPTION ...]`: %s.\n\n%s\n\n", command->name, line, command->help,
            page->text);
    for (int i = 0; i < CLI_EXAMPLES && page->examples[i].line != NULL; i++)
        fprintf(out, "    %-70s # %s\n", page->examples[i].line, page->examples[i].what);
    fputs("\n| option | meaning |\n|---|---|\n", out);
    for (int i = 0; cli_option_at(command, i, &o); i++) {
        fprintf(out, "| `--%s%s", o.name, o.value != NULL ? " " : "");
        print_cell(o.value != NULL ? o.value : "", out);
        fputs("` | ", out);
        print_cell(o.help, out);
        fputs(" |\n", out);
    }
    fputs("\nExit status:", out);
    for (int i = 0; cli_item(page->statuses, i, item, sizeof item); i++) fprintf(out, "%s %s", i > 0 ? "," : "", item);
    fputs(".", out);
    for (int i = 0; cli_item(page->see, i, item, sizeof item); i++)
        fprintf(out, "%s[%s](%s)", i == 0 ? " See " : ", ", item, item);
    fputs(page->see[0] != '\0' ? ".\n" : "\n", out);
}

void cli_print_commands_markdown(FILE *out)
{
    fputs(
        "# Commands\n\nThis page is made by `sluice help --markdown` from the tables that parse the command line. The "
        "same is in `sluice COMMAND --help` and in\nthe manual pages (`man sluice-train`); "
        "[formats.md](formats.md) says more about exit statuses.\n\n| command | what it does |\n|---|---|\n",
        out);
    for (size_t i = 0; i < cli_command_count; i++)
        fprintf(out, "| [`sluice %s`](#sluice-%s) | %s |\n", cli_commands[i].name, cli_commands[i].name,
                cli_commands[i].help);
    fputs("\n| exit status | meaning |\n|---|---|\n", out);
    for (size_t i = 0; i < cli_status_count; i++)
        fprintf(out, "| %s | %s |\n", cli_statuses[i].status, cli_statuses[i].meaning);
    for (size_t i = 0; i < cli_command_count; i++) print_command_chapter(&cli_commands[i], out);
}

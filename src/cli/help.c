/* help.c: sluice help, and what every command prints with --help. */
#include <string.h>

#include "cli/manual.h"

enum { WIDTH = 80, OPTION_COLUMN = 24 };

/* Writes `text` from `column` on, broken between words at WIDTH; further lines begin at `indent`. Backticks are left out. */
static void print_wrapped(const char *text, int column, int indent, FILE *out)
{
    bool first = true;
    while (*text != '\0') {
        int bytes = (int)strcspn(text, " "), shown = bytes;
        for (int i = 0; i < bytes; i++) shown -= text[i] == '`';
        if (!first && column + 1 + shown > WIDTH) {
            fprintf(out, "\n%*s", indent, "");
            column = indent;
        } else if (!first) {
            fputc(' ', out);
            column++;
        }
        for (int i = 0; i < bytes; i++)
            if (text[i] != '`') fputc(text[i], out);
        column += shown;
        first = false;
        text += bytes;
        text += strspn(text, " ");
    }
    fputc('\n', out);
}

/* A word and its explanation: beside it, or on the next line where it is too long for that. */
static void print_row(const char *left, const char *text, int column, FILE *out)
{
    bool beside = (int)strlen(left) + 3 <= column;
    fprintf(out, "  %s", left);
    if (beside)
        fprintf(out, "%*s", column - 2 - (int)strlen(left), "");
    else
        fprintf(out, "\n%*s", column, "");
    print_wrapped(text, column, column, out);
}

/* Paragraphs; an empty line stands between them and behind the last. */
static void print_paragraphs(const char *text, FILE *out)
{
    char paragraph[2048];
    while (*text != '\0') {
        const char *end = strstr(text, "\n\n");
        size_t bytes = end != NULL ? (size_t)(end - text) : strlen(text);
        snprintf(paragraph, sizeof paragraph, "%.*s", (int)bytes, text);
        print_wrapped(paragraph, 0, 0, out);
        fputc('\n', out);
        text += bytes + (end != NULL ? 2 : 0);
    }
}

static void print_status(const cli_status_meaning *s, FILE *out)
{
    enum { STATUS_COLUMN = 6 };
    fprintf(out, "  %2s  ", s->status);
    print_wrapped(s->meaning, STATUS_COLUMN, STATUS_COLUMN, out);
}

void cli_print_usage(FILE *out)
{
    char left[64];
    fprintf(out, "sluice %s.\n\nusage: sluice COMMAND [OPTION ...]\n\n", cli_purpose);
    for (size_t i = 0; i < cli_command_count; i++) {
        cli_usage_line(&cli_commands[i], left, sizeof left);
        print_row(left, cli_commands[i].help, OPTION_COLUMN + 2, out);
    }
    fputs("\n  sluice help COMMAND     options of a command, as sluice COMMAND --help\n"
          "  sluice config           keys of a configuration file\n"
          "  sluice --version\n\n"
          "exit status:\n",
          out);
    for (size_t i = 0; i < cli_status_count; i++) print_status(&cli_statuses[i], out);
}

static void print_options(const cli_command *command, FILE *out)
{
    cli_option o;
    char left[64];
    fputs("options:\n", out);
    for (int i = 0; cli_option_at(command, i, &o); i++) {
        snprintf(left, sizeof left, "--%s%s%s", o.name, o.value != NULL ? " " : "", o.value != NULL ? o.value : "");
        print_row(left, o.help, OPTION_COLUMN, out);
    }
}

void cli_print_help(const cli_command *command, FILE *out)
{
    const cli_page *page = cli_find_page(command->name);
    char left[64];
    cli_usage_line(command, left, sizeof left);
    fprintf(out, "usage: sluice %s [OPTION ...]\n\n", left);
    print_paragraphs(command->help, out);
    print_paragraphs(page->text, out);
    print_options(command, out);
    if (page->examples[0].line != NULL) fputs("\nexamples:\n", out);
    for (int i = 0; i < CLI_EXAMPLES && page->examples[i].line != NULL; i++)
        fprintf(out, "  %s\n      %s\n", page->examples[i].line, page->examples[i].what);
    fputs("\nexit status:\n", out);
    for (size_t i = 0; i < cli_status_count; i++)
        if (cli_page_has_status(page, cli_statuses[i].status)) print_status(&cli_statuses[i], out);
}

/* What follows "help" and begins with dashes: what the build makes of these tables. */
static int print_generated(int argc, char **argv)
{
    if (strcmp(argv[0], "--complete") == 0 && argc > 1 && strcmp(argv[1], "--") == 0) {
        cli_complete(argc - 2, argv + 2, stdout);
        return 0;
    }
    if (strcmp(argv[0], "--man") == 0 && argc == 1) {
        cli_list_man_pages(stdout);
        return 0;
    }
    if (strcmp(argv[0], "--markdown") == 0 && argc == 1) {
        cli_print_commands_markdown(stdout);
        return 0;
    }
    if (strcmp(argv[0], "--man") == 0 && argc == 2) {
        if (cli_print_man_page(argv[1], stdout)) return 0;
        return cli_usage("help: there is no manual page \"%s\"; sluice help --man lists them", argv[1]);
    }
    if (strcmp(argv[0], "--completion") == 0 && argc == 2) {
        if (cli_print_completion(argv[1], stdout)) return 0;
        return cli_usage("help: no completion for \"%s\"; give bash, zsh or fish", argv[1]);
    }
    return cli_usage("help: unexpected argument \"%s\"; it takes a command, --man [PAGE], --markdown, or --completion "
                     "with bash, zsh or fish",
                     argv[0]);
}

int cli_help(int argc, char **argv)
{
    if (argc == 0 || strcmp(argv[0], "help") == 0 || strcmp(argv[0], "--help") == 0) {
        cli_print_usage(stdout);
        return 0;
    }
    if (strncmp(argv[0], "--", 2) == 0) return print_generated(argc, argv);
    const cli_command *command = cli_find_command(argv[0]);
    if (command == NULL) return cli_unknown_command(argv[0]);
    if (argc > 1) return cli_usage("help: unexpected argument \"%s\"", argv[1]);
    cli_print_help(command, stdout);
    return 0;
}

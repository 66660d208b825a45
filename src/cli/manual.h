/* manual.h: what the program says of itself. The commands (main.c), their options (arguments.c), their pages (manual.c) and
 * the settings of the library feed --help, the manual pages, docs/commands.md and the completion of three shells. */
#ifndef SLUICE_CLI_MANUAL_H
#define SLUICE_CLI_MANUAL_H

#include "cli/cli.h"

/* One option of a command. */
typedef struct cli_option {
    const char *name, *value, *help; /* value: what it takes, "a|b" where that is one of a few; NULL: nothing */
} cli_option;

enum { CLI_EXAMPLES = 4 };

/* What a command's row has no room for. Words in `backticks` are to be typed. */
typedef struct cli_page {
    const char *command;
    const char *text; /* paragraphs, with an empty line between them */
    struct {
        const char *line, *what; /* the line as it is typed, and what it does */
    } examples[CLI_EXAMPLES];    /* NULL behind the last */
    const char *statuses;        /* exit statuses, with a space on both sides of each */
    const char *see;             /* pages of docs/, likewise */
} cli_page;

typedef struct cli_status_meaning {
    const char *status, *meaning;
} cli_status_meaning;

/* ---- the tables ---- */

extern const char cli_purpose[]; /* of the program, in a sentence */
extern const cli_page cli_pages[];
extern const size_t cli_page_count;
extern const cli_status_meaning cli_statuses[];
extern const size_t cli_status_count;

/* Option `index` of a command, from 0 on; false behind the last. */
bool cli_option_at(const cli_command *command, int index, cli_option *out);
const cli_command *cli_find_command(const char *name); /* NULL: there is none */
int cli_unknown_command(const char *name);             /* says so, and returns the exit status */
/* The page of a command; one without text where it has none. */
const cli_page *cli_find_page(const char *command);
bool cli_page_has_status(const cli_page *page, const char *status);
/* Item `index` of a list of words with spaces around, or of "a|b|c"; false behind the last. */
bool cli_item(const char *list, int index, char *out, size_t bytes);
/* "train CONFIG", "config [CONFIG]". */
void cli_usage_line(const cli_command *command, char *out, size_t bytes);

/* ---- help.c ---- */

/* sluice help and what follows it; returns the exit status. */
int cli_help(int argc, char **argv);
void cli_print_usage(FILE *out);
void cli_print_help(const cli_command *command, FILE *out);

/* ---- man_page.c ---- */

/* The page "sluice.1", "sluice-train.1" or "sluice-config.5" in the language of man(7); false: there is no such page. */
bool cli_print_man_page(const char *page, FILE *out);
void cli_list_man_pages(FILE *out);
/* docs/commands.md */
void cli_print_commands_markdown(FILE *out);

/* ---- complete.c ---- */

/* What may stand for the last of `words`, which follow "sluice": a line for each candidate, with a tab and what it is behind
 * it. A line that begins with ':' is a demand on the shell: ":files" or ":folders" to add names of such, ":open" to put no
 * space behind the candidate. */
void cli_complete(int count, char **words, FILE *out);
/* A script that asks the above; false: the shell is not bash, zsh or fish. */
bool cli_print_completion(const char *shell, FILE *out);

#endif

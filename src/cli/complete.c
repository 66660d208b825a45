/* complete.c: completion of command lines. The program itself knows what may follow; the scripts of the shells only ask it
 * (`sluice help --complete -- WORD ...`), so that they fit whichever program is installed. */
#include <string.h>

#include "cli/manual.h"

/* ---- candidates ---- */

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* A candidate for `word`, where it fits. What it is stands in one line behind it, up to the first sentence's end. */
static void offer(const char *word, const char *before, const char *candidate, const char *what, FILE *out)
{
    char whole[512];
    snprintf(whole, sizeof whole, "%s%s", before, candidate);
    if (!begins(whole, word)) return;
    fprintf(out, "%s\t", whole);
    for (const char *p = what; *p != '\0' && *p != '\n' && !(p[0] == '.' && (p[1] == ' ' || p[1] == '\0')); p++)
        if (*p != '`' && *p != '\t') fputc(*p, out);
    fputc('\n', out);
}

/* What a value called `name` in the help may be: a file, a folder, one of a few words. */
static void offer_values(const char *word, const char *name, FILE *out)
{
    char choice[64];
    if (strchr(name, '|') != NULL)
        for (int i = 0; cli_item(name, i, choice, sizeof choice); i++) offer(word, "", choice, "", out);
    else if (strcmp(name, "FOLDER") == 0 || strcmp(name, "BASE") == 0)
        fputs(":folders\n", out);
    else if (strcmp(name, "N") != 0 && strcmp(name, "X") != 0 && strcmp(name, "SHARE") != 0 &&
             strcmp(name, "BYTES") != 0)
        fputs(":files\n", out);
}

/* The value of a key, behind "key=". */
static void offer_setting(const char *word, const char *before, const sluice_setting *s, FILE *out)
{
    char choice[64];
    for (int i = 0; s->choices != NULL && cli_item(s->choices, i, choice, sizeof choice); i++)
        if (strchr(choice, '!') == NULL) offer(word, before, choice, "", out);
    if (strcmp(s->type, "bool") == 0) {
        offer(word, before, "true", "", out);
        offer(word, before, "false", "", out);
    }
    if (s->automatic) offer(word, before, "auto", "", out);
    if (s->path) fputs(":files\n", out);
}

/* KEY=VALUE: keys that do something here, then the values of the one that is there. */
static void offer_settings(const char *word, FILE *out)
{
    const char *equals = strchr(word, '=');
    char before[256];
    sluice_setting s;
    snprintf(before, sizeof before, "%.*s", equals != NULL ? (int)(equals - word) + 1 : 0, word);
    for (int i = 0; sluice_setting_at(i, &s); i++) {
        if (s.chapter == NULL || strchr(s.key, '*') != NULL) continue;
        size_t length = strlen(s.key);
        if (equals == NULL)
            offer(word, s.key, "=", s.help, out);
        else if ((size_t)(equals - word) == length && begins(word, s.key))
            offer_setting(word, before, &s, out);
    }
    if (equals == NULL) fputs(":open\n", out);
}

static void offer_option_value(const char *word, const cli_option *o, FILE *out)
{
    if (strcmp(o->name, "set") == 0)
        offer_settings(word, out);
    else
        offer_values(word, o->value, out);
}

/* The option whose value the word before the last one asks for. */
static bool awaits_value(const cli_command *command, const char *word, cli_option *o)
{
    if (strcmp(word, "-o") == 0) word = "--out";
    for (int i = 0; cli_option_at(command, i, o); i++)
        if (o->value != NULL && begins(word, "--") && strcmp(word + 2, o->name) == 0) return true;
    return false;
}

static void complete_command(const cli_command *command, int count, char **words, FILE *out)
{
    const char *word = words[count - 1];
    cli_option o;
    char name[64];
    if (count > 1 && awaits_value(command, words[count - 2], &o)) {
        offer_option_value(word, &o, out);
        return;
    }
    if (word[0] == '-')
        for (int i = 0; cli_option_at(command, i, &o); i++) {
            snprintf(name, sizeof name, "--%s", o.name);
            offer(word, "", name, o.help, out);
        }
    else if (command->operand != NULL) {
        cli_item(command->operand, 0, name, sizeof name);
        offer_values(word, name, out);
    }
}

void cli_complete(int count, char **words, FILE *out)
{
    if (count == 0) return;
    const cli_command *command = cli_find_command(words[0]);
    bool help = strcmp(words[0], "help") == 0;
    if (count > 1 && command != NULL) complete_command(command, count - 1, words + 1, out);
    if (count > 1 && !(help && count == 2)) return;
    for (size_t i = 0; i < cli_command_count; i++)
        offer(words[count - 1], "", cli_commands[i].name, cli_commands[i].help, out);
    if (help && count == 2) return;
    offer(words[0], "", "help", "options of a command", out);
    if (words[0][0] == '-') {
        offer(words[0], "", "--help", "list the commands", out);
        offer(words[0], "", "--version", "print the version", out);
    }
}

/* ---- scripts ---- */

/* Readline breaks words at "=": they are put together again, and candidates lose what stands before the last one. */
static const char bash_script[] =
    "# bash completion of sluice: asks the program itself.\n"
    "_sluice()\n"
    "{\n"
    "    local words=() word line i joined=\"\" files=\"\"\n"
    "    for ((i = 1; i <= COMP_CWORD; i++)); do\n"
    "        word=${COMP_WORDS[i]}\n"
    "        if [[ ${#words[@]} -gt 0 && ($word == = || $joined == yes) ]]; then\n"
    "            words[${#words[@]} - 1]+=$word\n"
    "        else\n"
    "            words+=(\"$word\")\n"
    "        fi\n"
    "        joined=\"\"\n"
    "        [[ $word != = ]] || joined=yes\n"
    "    done\n"
    "    local current=${words[${#words[@]} - 1]} before=\"\"\n"
    "    if [[ $current == *=* && $COMP_WORDBREAKS == *=* ]]; then before=${current%\"${current##*=}\"}; fi\n"
    "    COMPREPLY=()\n"
    "    while IFS= read -r line; do\n"
    "        case $line in\n"
    "        :files) files=-f ;;\n"
    "        :folders) files=-d ;;\n"
    "        :open) compopt -o nospace 2> /dev/null ;;\n"
    "        *) line=${line%%$'\\t'*} && COMPREPLY+=(\"${line#\"$before\"}\") ;;\n"
    "        esac\n"
    "    done < <(\"${COMP_WORDS[0]}\" help --complete -- \"${words[@]}\" 2> /dev/null)\n"
    "    [[ -z $files ]] || compopt -o filenames 2> /dev/null\n"
    "    [[ -z $files ]] || while IFS= read -r line; do COMPREPLY+=(\"$line\"); done \\\n"
    "        < <(compgen $files -- \"${current#\"$before\"}\")\n"
    "}\n"
    "complete -F _sluice sluice\n";

static const char zsh_script[] =
    "#compdef sluice\n"
    "# zsh completion of sluice: asks the program itself.\n"
    "_sluice()\n"
    "{\n"
    "    local line files=\"\" open=\"\"\n"
    "    local -a names texts\n"
    "    for line in \"${(@f)$(\"${words[1]}\" help --complete -- \"${(@)words[2,CURRENT]}\" 2> /dev/null)}\"; do\n"
    "        case $line in\n"
    "        :files) files=yes ;;\n"
    "        :folders) files=folders ;;\n"
    "        :open) open=yes ;;\n"
    "        '') ;;\n"
    "        *) names+=(\"${line%%$'\\t'*}\") && texts+=(\"${line%%$'\\t'*}  ${line#*$'\\t'}\") ;;\n"
    "        esac\n"
    "    done\n"
    "    if [[ -n $open ]]; then\n"
    "        compadd -S '' -l -d texts -a names\n"
    "    elif (( ${#names} )); then\n"
    "        compadd -l -d texts -a names\n"
    "    fi\n"
    "    [[ -z $files || $PREFIX != *=* ]] || compset -P '*='\n"
    "    [[ $files != folders ]] || _files -/\n"
    "    [[ $files != yes ]] || _files\n"
    "}\n"
    "if [[ $zsh_eval_context[-1] == loadautofunc ]]; then\n"
    "    _sluice \"$@\"\n"
    "else\n"
    "    compdef _sluice sluice\n"
    "fi\n";

static const char fish_script[] = "# fish completion of sluice: asks the program itself.\n"
                                  "function __sluice_complete\n"
                                  "    set -l words (commandline -opc) (commandline -ct)\n"
                                  "    set -l current (commandline -ct)\n"
                                  "    set -l name (string replace -r '^.*=' '' -- \"$current\")\n"
                                  "    set -l before (string match -r '^.*=' -- \"$current\")\n"
                                  "    for line in ($words[1] help --complete -- $words[2..-1] 2> /dev/null)\n"
                                  "        switch $line\n"
                                  "            case ':files'\n"
                                  "                for path in (__fish_complete_path \"$name\")\n"
                                  "                    echo \"$before$path\"\n"
                                  "                end\n"
                                  "            case ':folders'\n"
                                  "                __fish_complete_directories \"$current\"\n"
                                  "            case ':open'\n"
                                  "            case '*'\n"
                                  "                echo $line\n"
                                  "        end\n"
                                  "    end\n"
                                  "end\n"
                                  "complete -c sluice -f -a '(__sluice_complete)'\n";

bool cli_print_completion(const char *shell, FILE *out)
{
    static const struct {
        const char *shell, *script;
    } scripts[] = { { "bash", bash_script }, { "zsh", zsh_script }, { "fish", fish_script } };
    for (size_t i = 0; i < sizeof scripts / sizeof scripts[0]; i++)
        if (strcmp(shell, scripts[i].shell) == 0) {
            fputs(scripts[i].script, out);
            return true;
        }
    return false;
}

/* writers_cli_test.c: what a command writes is none of the files that it reads, no file of a run, and nobody else's result.
 *
 * The table of outputs is held against the commands and options that --help tells: an option that takes a path and has no row
 * here fails the test. */
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/run.h"
#include "test.h"

#define FOLDER_BYTES 4096

static const char *in(const char *folder, const char *name)
{
    static char paths[4][2 * FOLDER_BYTES];
    static int turn;
    char *path = paths[turn++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static int shell(const char *folder, const char *command)
{
    char line[16384];
    snprintf(line, sizeof line, "cd '%s' && S='%s/sluice' && { %s; }", folder, SLUICE_BINARY_DIR, command);
    return system(line);
}

/* What a shell prints. */
static char *said(const char *folder, const char *command)
{
    char line[8192];
    snprintf(line, sizeof line, "{ %s; } > ../said.$$ && mv ../said.$$ ../said", command);
    CHECK_EQ(shell(folder, line), 0);
    char *text = run_read(in(folder, "../said"));
    unlink(in(folder, "../said"));
    return text;
}

#define MODEL "\"steps\": 3, \"train_batch_size\": 2, \"optimizer\": {\"type\": \"SGD\"}, \"threads\": 1"

/* A text, a run in ck with its weights, a model in base, an adapter of it in ad, prompts. */
static void make_all(char folder[FOLDER_BYTES])
{
    char llama[2048];
    snprintf(folder, FOLDER_BYTES, "%s/all", test_tmpdir());
    REQUIRE(mkdir(folder, 0700) == 0);
    run_write(folder, "text.csv",
              "The quick brown fox jumps over the lazy dog, again and again and again and again.\n");
    run_write(folder, "p.jsonl", "{\"prompt\": \"The quick\"}\n{\"prompt\": \"again\"}\n");
    run_write(folder, "text.json",
              "{\"model\": {\"type\": \"gpt2\", \"layers\": 1, \"heads\": 1, \"width\": 8, \"context\": 4},\n"
              " \"data\": {\"type\": \"text\", \"path\": \"text.csv\"}, " MODEL "}\n");
    snprintf(llama, sizeof llama,
             "{\"model\": {\"type\": \"llama\", \"layers\": 1, \"heads\": 2, \"width\": 16, \"context\": 8},\n"
             " \"data\": {\"type\": \"text\", \"path\": \"text.csv\", \"tokenizer\": "
             "\"%s/tests/fixtures/chat_tokenizer\"}, " MODEL ", \"save\": \"base/\"}\n",
             SLUICE_SOURCE_DIR);
    run_write(folder, "llama.json", llama);
    run_must(folder, "train llama.json --quiet");
    run_must(folder,
             "train --model base --lora --data text.csv --set model.context=8 --set steps=1 --set threads=1 --out "
             "ad/ --quiet");
    run_must(folder, "train text.json --quiet --set checkpoint.path=ck --set save=w.safetensors");
}

/* ---- every option that takes a path ---- */

enum { MOST_INPUTS = 7 };

/* What is done with an option's path; of outputs, a command line with %s for it, and files and folders that it reads. */
typedef struct path_option {
    const char *command, *option;
    enum { READS, NAMES, WRITES, WRITES_FOLDER } use; /* NAMES: what another command writes */
    const char *line, *inputs[MOST_INPUTS];
} path_option;

static const path_option options[] = {
    { "plan", "model", READS, 0, { 0 } },
    { "plan", "data", READS, 0, { 0 } },
    { "plan", "adapter", READS, 0, { 0 } },
    { "plan", "out", NAMES, 0, { 0 } },
    { "plan", "machine", READS, 0, { 0 } },
    { "plan", "report", WRITES, "plan text.json --quiet --report=%s", { "text.json", "text.csv" } },
    { "train", "model", READS, 0, { 0 } },
    { "train", "data", READS, 0, { 0 } },
    { "train", "adapter", READS, 0, { 0 } },
    { "train",
      "out",
      WRITES_FOLDER,
      "train --model base --data text.csv --set model.context=8 --set steps=1 --quiet --out %s",
      { "base" } },
    { "train", "machine", READS, 0, { 0 } },
    { "train", "log", WRITES, "train text.json --quiet --log %s", { "text.csv" } },
    { "train", "trace", WRITES, "train text.json --quiet --trace %s", { "text.csv", "text.json" } },
    { "train", "report", WRITES, "train text.json --quiet --report=%s", { "text.csv", "text.json" } },
    { "tune", "model", READS, 0, { 0 } },
    { "tune", "data", READS, 0, { 0 } },
    { "tune", "adapter", READS, 0, { 0 } },
    { "tune", "machine", READS, 0, { 0 } },
    { "eval", "model", READS, 0, { 0 } },
    { "eval", "data", READS, 0, { 0 } },
    { "eval", "adapter", READS, 0, { 0 } },
    { "eval", "weights", READS, 0, { 0 } },
    { "eval",
      "predictions",
      WRITES,
      "eval text.json --quiet --weights w.safetensors --predictions %s",
      { "text.csv" } },
    { "generate", "model", READS, 0, { 0 } },
    { "generate", "data", READS, 0, { 0 } },
    { "generate", "adapter", READS, 0, { 0 } },
    { "generate", "weights", READS, 0, { 0 } },
    { "generate", "prompts", READS, 0, { 0 } },
    { "generate",
      "out",
      WRITES,
      "generate --model base --prompts p.jsonl --tokens 2 --quiet -o %s",
      { "p.jsonl", "base/model.safetensors", "base/config.json", "base/tokenizer.json" } },
    { "generate",
      "out",
      WRITES,
      "generate text.json --weights w.safetensors --prompt a --tokens 2 --quiet -o %s",
      { "text.json", "w.safetensors", "text.csv" } },
    { "generate",
      "out",
      WRITES,
      "generate text.json --set checkpoint.path=ck --prompt a --tokens 2 --quiet --out %s",
      { "ck/step-3/manifest.json", "ck/step-3/rank-0.bin", "ck/latest" } },
    { "merge", "out", WRITES_FOLDER, "merge base ad -o %s", { "base", "ad" } },
    { "tokenize", "out", WRITES, "tokenize base text.csv -o %s", { "text.csv", "base/tokenizer.json" } },
    { "tokenize",
      "validation-out",
      WRITES,
      "tokenize base text.csv -o p.jsonl --validation 0.2 --validation-out %s",
      { "text.csv", "base/tokenizer.json", "p.jsonl" } },
    { "export",
      "out",
      WRITES,
      "export ck -o %s",
      { "ck/log.jsonl", "ck/lock", "ck/latest", "ck/profile.json", "ck/step-3/rank-0.bin", "ck/model/config.json" } },
    { "compare", "out", WRITES, "compare text.json --steps 2 --rounds 1 -o %s", { "text.csv", "text.json" } },
    { "report", "out", WRITES, "report ck -o %s", { "text.json", "ck/log.jsonl", "ck/step-3/rank-0.bin" } },
    { "devices", "machine", WRITES, "devices --measure --machine %s", { "text.json" } },
    { "config", "model", READS, 0, { 0 } },
    { "config", "data", READS, 0, { 0 } },
    { "config", "adapter", READS, 0, { 0 } },
    { "config", "out", NAMES, 0, { 0 } },
};
enum { OPTIONS = sizeof options / sizeof options[0] };

static const path_option *find_option(const char *command, const char *option)
{
    for (int i = 0; i < OPTIONS; i++)
        if (strcmp(options[i].command, command) == 0 && strcmp(options[i].option, option) == 0) return &options[i];
    return NULL;
}

/* Words for values that are no path. */
static bool is_other_value(const char *value)
{
    static const char *const words[] = {
        "N", "X", "K", "TEXT", "NAME", "SIZE", "BYTES", "SHARE", "TOKEN", "KEY=VALUE"
    };
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strcmp(value, words[i]) == 0) return true;
    return strchr(value, '|') != NULL;
}

/* The options of a command as its --help has them; says how many of them take a path. */
static int check_options(const char *folder, const char *command)
{
    char arguments[128];
    int paths = 0;
    snprintf(arguments, sizeof arguments, "%s --help", command);
    run_result r = run_sluice(folder, arguments);
    CHECK_EQ(r.status, 0);
    char *rest = strstr(r.out, "\noptions:\n"), *line;
    while (rest != NULL && (line = strsep(&rest, "\n")) != NULL && strcmp(line, "examples:") != 0) {
        char option[64], value[64] = "";
        if (sscanf(line, "  --%63[a-z0-9-] %63s", option, value) < 1 || line[2] != '-') continue;
        size_t column = strlen("  --") + strlen(option);
        if (line[column] != ' ' || line[column + 1] == ' ' || line[column + 1] == '\0') continue; /* takes nothing */
        if (is_other_value(value)) continue;
        paths++;
        CHECK_THAT(find_option(command, option) != NULL, "%s --%s %s: no row says what becomes of this path", command,
                   option, value);
    }
    run_free(&r);
    return paths;
}

TEST(every_option_that_takes_a_path_has_a_row_and_every_row_its_option)
{
    char folder[FOLDER_BYTES], command[64];
    int paths = 0, rows = 0;
    snprintf(folder, sizeof folder, "%s", test_tmpdir());
    run_result r = run_sluice(folder, "help --man");
    char *rest = r.out, *line;
    while ((line = strsep(&rest, "\n")) != NULL)
        if (sscanf(line, "sluice-%63[a-z].1", command) == 1 && strstr(line, ".1") != NULL)
            paths += check_options(folder, command);
    for (int i = 0; i < OPTIONS; i++)
        rows += i == 0 || strcmp(options[i].command, options[i - 1].command) != 0 ||
                strcmp(options[i].option, options[i - 1].option) != 0;
    CHECK_EQ(paths, rows);
    run_free(&r);
}

/* ---- outputs that are inputs ---- */

#define STATE                                                                                                          \
    "find . ! -name out ! -name err | sort | while read f; do [ -f \"$f\" ] && sha256sum \"$f\" || echo \"$f\"; done"

/* Refused in one of the words there are for it. */
static void check_refused(const char *folder, const path_option *o, const char *output)
{
    static const char *const words[] = {
        "would replace", "a file of a run", "would write the same file", "describes no machine",
        "is no page",    "is a named pipe", "is not replaced",           "is or holds the checkpoint"
    };
    char arguments[1024];
    bool known = false;
    snprintf(arguments, sizeof arguments, o->line, output);
    run_result r = run_sluice(folder, arguments);
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) known = known || strstr(r.error, words[i]) != NULL;
    CHECK_THAT(r.status == 2 && known, "sluice %s: status %d: %s", arguments, r.status, r.error);
    run_free(&r);
}

/* Also through a link and under another name of the same file. */
static void check_input(const char *folder, const path_option *o, const char *input)
{
    const char *dot = strrchr(input, '.');
    char link_name[64], hard_name[64], target[2 * FOLDER_BYTES];
    snprintf(link_name, sizeof link_name, "linked%s", dot != NULL ? dot : "");
    snprintf(hard_name, sizeof hard_name, "named%s", dot != NULL ? dot : "");
    check_refused(folder, o, input);
    REQUIRE(symlink(input, in(folder, link_name)) == 0);
    check_refused(folder, o, link_name);
    unlink(in(folder, link_name));
    snprintf(target, sizeof target, "%s", in(folder, input));
    bool of_step = strstr(input, "step-") != NULL || strstr(input, "/model/") != NULL;
    if (o->use == WRITES_FOLDER || of_step) return; /* a new name for a file of a checkpoint takes nothing from it */
    REQUIRE(link(target, in(folder, hard_name)) == 0);
    check_refused(folder, o, hard_name);
    unlink(in(folder, hard_name));
}

static void check_output(const char *folder, const path_option *o)
{
    static const char *const of_runs[] = { "ck/log.jsonl", "ck/lock", "ck/step-3/manifest.json", "ck/profile.json" };
    static const char *const folders_of_runs[] = { "ck", "ck/step-3", "ck/model" };
    const bool named = strcmp(o->option, "log") == 0 || strcmp(o->option, "predictions") == 0; /* by its ending */
    for (int i = 0; i < MOST_INPUTS && o->inputs[i] != NULL; i++) check_input(folder, o, o->inputs[i]);
    for (int i = 0; i < (o->use == WRITES_FOLDER ? 3 : named ? 1 : 4); i++)
        check_refused(folder, o, o->use == WRITES_FOLDER ? folders_of_runs[i] : of_runs[i]);
    check_refused(folder, o, "pipe.csv");
}

TEST(no_command_writes_what_it_reads_or_what_a_run_keeps)
{
    char folder[FOLDER_BYTES];
    make_all(folder);
    REQUIRE(mkfifo(in(folder, "pipe.csv"), 0600) == 0);
    char *before = said(folder, STATE);
    for (int i = 0; i < OPTIONS; i++)
        if (options[i].use == WRITES || options[i].use == WRITES_FOLDER) check_output(folder, &options[i]);
    char *after = said(folder, STATE);
    CHECK_STR(after, before);
    free(before);
    free(after);
}

/* ---- what replies do ---- */

TEST(replies_replace_a_file_only_when_all_are_there)
{
    char folder[FOLDER_BYTES];
    make_all(folder);
    run_write(folder, "r.jsonl", "older\n");
    run_result r = run_sluice(folder, "generate --model base --prompts none.jsonl -o r.jsonl --quiet");
    CHECK_EQ(r.status, 4);
    run_free(&r);
    char *text = run_read(in(folder, "r.jsonl"));
    CHECK_STR(text, "older\n");
    free(text);
    run_must(folder, "generate --model base --prompts p.jsonl --tokens 2 -o r.jsonl --quiet");
    text = run_read(in(folder, "r.jsonl"));
    CHECK_CONTAINS(text, "{\"index\":0,\"prompt\":\"The quick\"");
    CHECK_CONTAINS(text, "\n{\"index\":1,\"prompt\":\"again\"");
    free(text);
    run_must(folder, "generate --model base --prompts p.jsonl --tokens 2 --quiet > on-output");
    CHECK_EQ(shell(folder, "cmp r.jsonl on-output"), 0);
    /* stopped in the middle: the older file stays, nothing else does, and the message says so */
    run_write(folder, "r.jsonl", "older\n");
    CHECK_EQ(shell(folder, "$S generate text.json --weights w.safetensors --prompt a --tokens 100000000 -o r.jsonl "
                           "--quiet 2> message & p=$!; "
                           "for i in $(seq 200); do ls r.jsonl.*.tmp > /dev/null 2>&1 && break; sleep 0.05; done; "
                           "kill -INT $p; wait $p; [ $? = 75 ] && grep -q 'nothing was written' message && "
                           "[ \"$(ls -d r.jsonl*)\" = r.jsonl ] && grep -q older r.jsonl"),
             0);
}

/* ---- several writers ---- */

static int rounds(int few)
{
    return getenv("LONG") != NULL ? 50 : few;
}

/* An output, how it is written, and how somebody knows that it is whole. */
typedef struct contest {
    const char *line, *whole;
} contest;

static const contest contests[] = {
    { "merge base ad -o cc --quiet",
      "$S verify cc --quiet && $S generate --model cc --prompt a --tokens 1 --quiet > said" },
    { "export ck -o cc --quiet", "$S verify cc --quiet" },
    { "export lk -o cc/ --quiet", "$S verify cc --quiet && [ -f cc/config.json ]" },
    { "tokenize base text.csv -o cc --quiet", "cmp cc tokens" },
    { "report ck -o cc", "tail -c 20 cc | grep -q '</html>'" },
    { "generate --model base --prompts p.jsonl --tokens 2 -o cc --quiet", "cmp cc replies" },
    { "train llama.json --quiet --set steps=1 --set save=cc/", "$S verify cc --quiet && [ -f cc/tokenizer.json ]" },
};
enum { CONTESTS = sizeof contests / sizeof contests[0] };

/* Every writer ends well or is refused, unless it is killed; what is there is whole; the next one leaves nothing else. */
static void check_contest(const char *folder, const contest *c, int writers, bool kills, int number)
{
    char command[4096], strike[128];
    snprintf(strike, sizeof strike, "sleep 0.%03d; kill -9 $(sed -n '1~2p' pids) 2> /dev/null;",
             (number * 37 + writers * 11) % 97);
    snprintf(
        command, sizeof command,
        "rm -f statuses pids; for i in $(seq %d); do { $S %s > said.$i 2>&1 & echo $! >> pids; wait $!; echo $? >> "
        "statuses; } & done; %s wait; grep -v -x -e 0 -e 2 -e 137 statuses && exit 1; [ ! -e cc ] || { %s; } || exit "
        "2; "
        "! grep -q -x 0 statuses || [ -e cc ] || exit 3; [ %d = 1 ] || grep -q -x 0 statuses || exit 4",
        writers, c->line, kills ? strike : "", c->whole, kills);
    int status = shell(folder, command);
    CHECK_THAT(status == 0, "%d writers of \"%s\"%s, round %d: %d", writers, c->line, kills ? ", some killed" : "",
               number, status / 256);
}

static void check_last(const char *folder, const contest *c)
{
    char command[2048];
    snprintf(command, sizeof command,
             "$S %s > said 2>&1 && { %s; } && [ \"$(ls -d cc* | tr '\\n' ' ')\" = 'cc ' ] && rm -rf cc", c->line,
             c->whole);
    CHECK_THAT(shell(folder, command) == 0, "\"%s\" alone after the others leaves something else", c->line);
}

static void check_contests(bool kills, int few)
{
    static const int counts[] = { 2, 3, 8 };
    char folder[FOLDER_BYTES];
    make_all(folder);
    run_must(folder, "train llama.json --quiet --set checkpoint.path=lk");
    CHECK_EQ(shell(folder, "$S tokenize base text.csv -o tokens --quiet && $S generate --model base --prompts p.jsonl "
                           "--tokens 2 -o replies --quiet"),
             0);
    for (int i = 0; i < CONTESTS; i++)
        for (int k = 0; k < 3; k++) {
            if (getenv("LONG") == NULL && k != (i + kills) % 3) continue; /* one number of writers each */
            CHECK_EQ(shell(folder, "rm -rf cc"), 0);                      /* of another kind */
            for (int round = 0; round < rounds(few); round++) {
                check_contest(folder, &contests[i], counts[k], kills, round);
                if (round % 5 == 0) check_last(folder, &contests[i]);
            }
        }
}

TEST(many_writers_of_one_output_leave_one_whole_result)
{
    check_contests(false, 1);
}

TEST(many_writers_some_of_them_killed_leave_one_whole_result)
{
    check_contests(true, 1);
}

/* ---- signals, limits, launchers ---- */

/* A model with a tensor of a gigabyte more, of which the disk has nothing. */
static void enlarge(const char *folder)
{
    char *text, name[] = "base/model.safetensors";
    uint64_t length = 0;
    const uint64_t more = (uint64_t)1 << 30;
    struct stat info;
    FILE *f = fopen(in(folder, name), "rb");
    REQUIRE(f != NULL && fread(&length, 8, 1, f) == 1 && fstat(fileno(f), &info) == 0);
    const size_t data = (size_t)info.st_size - 8 - (size_t)length;
    text = malloc((size_t)length + 512 + data);
    REQUIRE(text != NULL && fread(text, 1, length, f) == length);
    size_t bytes = (size_t)length;
    while (bytes > 0 && text[bytes - 1] != '}') bytes--;
    bytes--;
    bytes += (size_t)sprintf(
        text + bytes, ",\"zz.extra\":{\"dtype\":\"F32\",\"shape\":[%llu],\"data_offsets\":[%llu,%llu]}}",
        (unsigned long long)(more / 4), (unsigned long long)data, (unsigned long long)(data + more));
    while (bytes % 8 != 0) text[bytes++] = ' ';
    length = bytes;
    REQUIRE(fread(text + bytes, 1, data, f) == data && fclose(f) == 0);
    f = fopen(in(folder, name), "wb");
    REQUIRE(f != NULL && fwrite(&length, 8, 1, f) == 1 && fwrite(text, 1, bytes + data, f) == bytes + data &&
            fclose(f) == 0);
    REQUIRE(truncate(in(folder, name), (off_t)(8 + bytes + data + more)) == 0);
    free(text);
}

TEST(a_signal_ends_a_command_that_writes_within_a_second_and_leaves_nothing)
{
    static const struct {
        const char *line, *signal;
    } rows[] = {
        { "merge base ad -o cc", "INT" },
        { "merge base ad -o cc", "TERM" },
        { "merge base ad -o cc", "HUP" },
        { "tokenize base zeros -o cc", "INT" },
        { "tokenize base - -o cc < endless", "TERM" },
        { "tokenize base zeros - -o cc < endless", "HUP" },
    };
    char folder[FOLDER_BYTES], command[2048];
    make_all(folder);
    enlarge(folder);
    REQUIRE(shell(folder, "truncate -s 400M zeros && mkfifo endless && { sleep 600 > endless & echo $! > sleeper; }") ==
            0);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        snprintf(command, sizeof command,
                 "{ exec $S %s 2> message; } & p=$!; for i in $(seq 200); do ls -d cc.*.tmp > /dev/null 2>&1 && break; "
                 "sleep 0.02; done; sleep 0.05; kill -%s $p; t=$(date +%%s%%N); wait $p; s=$?; "
                 "[ $s = 75 ] || exit 1; [ $(($(date +%%s%%N) - t)) -lt 1500000000 ] || exit 2; "
                 "grep -q 'stopped by a signal' message || exit 3; ls -d cc* > /dev/null 2>&1 && exit 4; exit 0",
                 rows[i].line, rows[i].signal);
        int status = shell(folder, command);
        CHECK_THAT(status == 0, "sluice %s, SIG%s: %d", rows[i].line, rows[i].signal, status / 256);
    }
    CHECK_EQ(shell(folder, "kill $(cat sleeper)"), 0);
}

TEST(a_limit_of_a_files_size_is_an_error_of_every_command_that_writes)
{
    static const char *const lines[] = { "merge base ad -o cc", "export ck -o cc", "tokenize base long -o cc",
                                         "report ck -o cc", "generate --model base --prompts many --tokens 8 -o cc" };
    char folder[FOLDER_BYTES], command[1024];
    make_all(folder);
    REQUIRE(shell(folder,
                  "for i in $(seq 500); do cat text.csv; done > long; for i in $(seq 40); do cat p.jsonl; done > "
                  "many") == 0);
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        snprintf(
            command, sizeof command,
            "( ulimit -f 4; exec $S %s > /dev/null 2> message ); s=$?; [ $s = 6 ] || exit 1; ls -d cc* > /dev/null "
            "2>&1 && exit 2; exit 0",
            lines[i]);
        int status = shell(folder, command);
        CHECK_THAT(status == 0, "sluice %s with ulimit -f 4: %d", lines[i], status / 256);
    }
}

TEST(commands_that_write_files_are_refused_under_a_launcher)
{
    static const char *const lines[] = { "plan text.json",     "eval text.json",        "generate text.json",
                                         "merge base ad -o x", "tokenize base a -o x",  "export ck -o x",
                                         "report ck -o x",     "compare text.json -o x" };
    char folder[FOLDER_BYTES], command[1024];
    snprintf(folder, sizeof folder, "%s", test_tmpdir());
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        snprintf(command, sizeof command,
                 "OMPI_COMM_WORLD_SIZE=2 $S %s > message 2>&1; [ $? = 2 ] && grep -q launcher message", lines[i]);
        CHECK_THAT(shell(folder, command) == 0, "sluice %s is not refused", lines[i]);
    }
}

/* ---- names ---- */

TEST(a_slash_behind_a_folder_is_told_once)
{
    char folder[FOLDER_BYTES];
    snprintf(folder, sizeof folder, "%s", test_tmpdir());
    run_write_config(folder, "a.json", "");
    run_result r = run_sluice(folder, "config a.json --out some/made//");
    CHECK_EQ(r.status, 0);
    CHECK_CONTAINS(r.out, "\"save\": \"some/made/\"");
    run_free(&r);
}

TEST(a_home_that_is_missing_is_not_made)
{
    char folder[FOLDER_BYTES];
    snprintf(folder, sizeof folder, "%s", test_tmpdir());
    run_write_config(folder, "a.json", "");
    CHECK_EQ(
        shell(folder, "unset XDG_CACHE_HOME SLUICE_MACHINE; HOME=$PWD/no/home $S train a.json --quiet && [ ! -e no ]"),
        0);
    CHECK_EQ(shell(folder, "XDG_CACHE_HOME=$PWD/no/cache $S train a.json --quiet && [ ! -e no ]"), 0);
}

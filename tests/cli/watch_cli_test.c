/* watch_cli_test.c: what a run of the program leaves for those who watch it, and what `sluice status` makes of that. */
#include <dirent.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/plain_files.h"
#include "support/run.h"
#include "support/tfevents_reader.h"
#include "test.h"

static const char *new_folder(void)
{
    static char folder[2048];
    snprintf(folder, sizeof folder, "%.2000s", test_tmpdir());
    return folder;
}

/* A folder in a folder, which `at` may then be asked about; valid until the next call. */
static const char *inside(const char *folder, const char *name)
{
    static char path[2200];
    snprintf(path, sizeof path, "%.2000s/%.100s", folder, name);
    return path;
}

#define WATCHED ", \"checkpoint\": {\"path\": \"run\", \"every\": 2, \"keep_best\": true}, \"evaluate\": {\"every\": 2}"

/* A configuration with validation data. */
static void write_config(const char *folder, const char *extra)
{
    char text[2048];
    snprintf(text, sizeof text,
             "{\"model\": {\"type\": \"mlp\", \"features\": 4, \"hidden\": [8]},\n"
             " \"data\": {\"type\": \"regression\", \"samples\": 40, \"validation\": 0.2}, \"steps\": 6,\n"
             " \"train_batch_size\": 4, \"optimizer\": {\"type\": \"SGD\"}, \"threads\": 1%s}\n",
             extra);
    run_write(folder, "c.json", text);
}

static const char *text_of(const json_t *object, const char *key)
{
    const char *value = json_string_value(json_object_get(object, key));
    return value != NULL ? value : "";
}

/* What a journal holds. */
typedef struct journal {
    int runs, plans, steps, evals, saved, ends, exits, lines;
    char first_run[64], last_run[64];
    long long last_step;
} journal;

static journal read_journal(const char *path)
{
    journal j = { 0 };
    char *text = run_read(path), *line = text;
    for (char *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        json_t *object = json_loadb(line, (size_t)(end - line), JSON_REJECT_DUPLICATES, NULL);
        if (object == NULL) test_fail(__FILE__, __LINE__, "%s: no JSON: %.80s", path, line);
        const char *event = text_of(object, "event"), *run = text_of(object, "run");
        j.lines++;
        j.runs += strcmp(event, "run") == 0;
        j.plans += strcmp(event, "plan") == 0;
        j.evals += strcmp(event, "eval") == 0;
        j.saved += strcmp(event, "saved") == 0;
        j.ends += strcmp(event, "end") == 0;
        j.exits += strcmp(event, "exit") == 0;
        if (strcmp(event, "step") == 0) {
            const json_t *memory = json_object_get(object, "memory_bytes");
            j.steps++;
            j.last_step = json_integer_value(json_object_get(object, "step"));
            CHECK(json_integer_value(json_object_get(memory, "device")) > 0);
            CHECK(json_integer_value(json_object_get(memory, "resident")) > 1 << 20);
        }
        CHECK_EQ(strlen(text_of(object, "time")), 24);
        if (j.lines == 1) snprintf(j.first_run, sizeof j.first_run, "%s", run);
        snprintf(j.last_run, sizeof j.last_run, "%s", run);
        json_decref(object);
    }
    CHECK_STR(line, "");
    free(text);
    return j;
}

/* ---- journals and logs ---- */

static void check_journal(const char *ranks)
{
    char arguments[256];
    const char *folder = new_folder();
    write_config(folder, WATCHED);
    snprintf(arguments, sizeof arguments, "train c.json --quiet --set steps=4 --log all.csv%s", ranks);
    run_must(folder, arguments);
    journal j = read_journal(at(folder, "run/log.jsonl"));
    CHECK_EQ(j.runs, 1);
    CHECK_EQ(j.plans, 1);
    CHECK_EQ(j.steps, 4);
    CHECK_EQ(j.evals, 3);
    CHECK_EQ(j.saved, 2);
    CHECK_EQ(j.ends, 1);
    snprintf(arguments, sizeof arguments, "train c.json --quiet --resume --log all.csv%s", ranks);
    run_must(folder, arguments);
    journal again = read_journal(at(folder, "run/log.jsonl"));
    CHECK_EQ(again.runs, 2);
    CHECK_EQ(again.steps, 6);
    CHECK_EQ(again.ends, 2);
    CHECK_STR(again.first_run, j.first_run);
    CHECK_STR(again.last_run, j.first_run);
    char *table = run_read(at(folder, "all.csv"));
    int rows = 0;
    for (const char *c = table; *c != '\0'; c++) rows += *c == '\n';
    CHECK_EQ(rows, 7);
    CHECK(strstr(table + 1, "time,run,step") == NULL);
    free(table);
}

TEST(a_run_keeps_a_journal_which_goes_on_when_it_is_resumed)
{
    check_journal("");
}

TEST(two_ranks_keep_one_journal)
{
    check_journal(" --ranks 2");
}

TEST(a_journal_has_the_lines_of_json_output)
{
    const char *folder = new_folder();
    write_config(folder, WATCHED);
    run_result r = run_sluice(folder, "train c.json --json");
    CHECK_EQ(r.status, 0);
    char *text = run_read(at(folder, "run/log.jsonl"));
    char *save, *line = strtok_r(r.out, "\n", &save);
    int lines = 0;
    for (; line != NULL; line = strtok_r(NULL, "\n", &save)) {
        if (strstr(line, "\"over\":false") != NULL) continue;
        lines++;
        line[strlen(line) - 1] = '\0'; /* the brace: time and run follow */
        CHECK_CONTAINS(text, line);
    }
    CHECK(lines >= 10);
    free(text);
    run_free(&r);
}

TEST(a_stopped_run_says_so_and_status_knows)
{
    const char *folder = new_folder();
    write_config(folder, WATCHED);
    pid_t child = run_start(
        folder, "train c.json --quiet --set steps=100000000 --set checkpoint.every=1000000 --set evaluate.every=0");
    for (int i = 0; i < 1000 && access(at(folder, "run/log.jsonl"), F_OK) != 0; i++) usleep(10000);
    run_result r = { 0 };
    for (int i = 0; i < 1000; i++) { /* until a step is done */
        r = run_sluice(folder, "status run --json >status.json");
        run_free(&r);
        char *text = run_read(at(folder, "status.json"));
        bool steps = strstr(text, "\"step\":") != NULL && strstr(text, "\"step\":0,") == NULL;
        free(text);
        if (steps) break;
        usleep(10000);
    }
    r = run_sluice(folder, "status run >status.txt");
    CHECK_EQ(r.status, 0);
    run_free(&r);
    char *text = run_read(at(folder, "status.txt"));
    CHECK_CONTAINS(text, "run: running for ");
    CHECK_CONTAINS(text, " of 100000000, ");
    CHECK_CONTAINS(text, " left");
    free(text);
    kill(child, SIGTERM);
    r = run_wait(folder, child);
    CHECK_EQ(r.status, 75);
    run_free(&r);
    CHECK_EQ(read_journal(at(folder, "run/log.jsonl")).exits, 1);
    r = run_sluice(folder, "status run");
    CHECK_EQ(r.status, 75);
    CHECK_CONTAINS(r.out, "run: stopped, last heard of ");
    CHECK_CONTAINS(r.out, "stopped by a signal after step ");
    CHECK_CONTAINS(r.out, "/step-");
    run_free(&r);
}

TEST(status_of_finished_failed_dead_and_no_runs)
{
    const char *folder = new_folder();
    write_config(folder, WATCHED);
    run_must(folder, "train c.json --quiet --set checkpoint.path=runs/a");
    run_result r =
        run_sluice(folder, "train c.json --quiet --set checkpoint.path=runs/b --set optimizer.params.lr=1e30");
    CHECK_EQ(r.status, 7);
    run_free(&r);
    r = run_sluice(folder, "status runs/a");
    CHECK_EQ(r.status, 0);
    CHECK_CONTAINS(r.out, "runs/a: finished, last heard of ");
    CHECK_CONTAINS(r.out, "step        6 of 6, 100.0%");
    CHECK_CONTAINS(r.out, "; best loss ");
    CHECK_CONTAINS(r.out, "checkpoint  step 6: runs/a/step-6");
    run_free(&r);
    r = run_sluice(folder, "status runs");
    CHECK_EQ(r.status, 1);
    CHECK_CONTAINS(r.out, "runs/a  finished            6/6  100.0%");
    CHECK_CONTAINS(r.out, "runs/b  failed ");
    run_free(&r);
    r = run_sluice(folder, "status runs/a runs/b nothing --json");
    CHECK_EQ(r.status, 4);
    CHECK_CONTAINS(r.error, "nothing");
    CHECK_CONTAINS(r.out, "{\"state\":\"finished\",\"folder\":\"runs/a\"");
    CHECK_CONTAINS(r.out, "{\"state\":\"failed\",\"folder\":\"runs/b\"");
    for (char *save, *line = strtok_r(r.out, "\n", &save); line != NULL; line = strtok_r(NULL, "\n", &save)) {
        json_t *parsed = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
        CHECK_THAT(parsed != NULL, "%s", line);
        json_decref(parsed);
    }
    run_free(&r);
    run_must(
        folder,
        "train c.json --quiet --set checkpoint.path=early --set optimizer.params.lr=0 --set early_stopping.patience=1");
    r = run_sluice(folder, "status early");
    CHECK_EQ(r.status, 0);
    CHECK_CONTAINS(r.out, "early: finished early, last heard of ");
    CHECK_CONTAINS(r.out, "step        4 of 6, 66.7%");
    CHECK_CONTAINS(r.out, " after step 2\n");
    run_free(&r);
    r = run_sluice(folder, "status c.json");
    CHECK_EQ(r.status, 4);
    run_free(&r);
    if (mkdir(at(folder, "empty"), 0700) != 0) exit(99);
    r = run_sluice(folder, "status empty");
    CHECK_EQ(r.status, 4);
    CHECK_CONTAINS(r.error, "sluice: empty is no run: neither it nor a folder in it has a log.jsonl");
    run_free(&r);
}

/* ---- before the first step ---- */

TEST(a_refused_resume_leaves_the_journal_and_the_state_of_the_run_as_they_were)
{
    static const struct {
        const char *arguments, *message;
        int status;
    } rows[] = {
        { "--set train_batch_size=8", "the checkpoint was made with", 2 },
        { "--set seed=99", "the checkpoint was made with", 2 },
        { "--ranks 2 --set train_batch_size=8", "the checkpoint was made with", 2 },
        { "--log c.json/x.csv", "--log: ", 6 },
        { "--set memory.device=1KiB", "does not fit", 3 },
    };
    const char *folder = new_folder();
    write_config(folder, WATCHED);
    run_must(folder, "train c.json --quiet");
    char *before = run_read(at(folder, "run/log.jsonl"));
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char arguments[512];
        snprintf(arguments, sizeof arguments, "train c.json --quiet --resume --set steps=9 %s", rows[i].arguments);
        run_result r = run_sluice(folder, arguments), s = run_sluice(folder, "status run");
        CHECK_THAT(r.status == rows[i].status, "%s: status %d: %s", arguments, r.status, r.error);
        CHECK_CONTAINS(r.error, rows[i].message);
        char *after = run_read(at(folder, "run/log.jsonl"));
        CHECK_STR(after, before);
        CHECK_EQ(s.status, 0);
        CHECK_CONTAINS(s.out, "run: finished, last heard of ");
        free(after);
        run_free(&r);
        run_free(&s);
    }
    run_must(folder, "train c.json --quiet --resume --set steps=8");
    journal j = read_journal(at(folder, "run/log.jsonl"));
    CHECK_EQ(j.runs, 2);
    CHECK_EQ(j.last_step, 8);
    free(before);
}

TEST(a_log_that_cannot_be_written_is_refused_before_the_first_step)
{
    static const struct {
        const char *arguments, *message;
        int status;
    } rows[] = {
        { "--log a.txt", "--log: a.txt must end in .jsonl", 2 },
        { "--log missing/a.csv", "--log: ", 6 },
        { "--log folder.csv", "folder.csv is a directory", 2 },
        { "--log c.json/x.csv", "--log: ", 6 },
        { "--log data.csv", "other columns", 2 },
        { "--log run/log.jsonl", "would write the same file", 2 },
        { "--set tensorboard.enabled=true --set tensorboard.output_path=c.json", "tensorboard.output_path: ", 6 },
        { "--set csv_monitor.enabled=true --set csv_monitor.output_path=c.json", "csv_monitor.output_path: ", 6 },
        { "--set checkpoint.path=blocked", "blocked/log.jsonl is a directory", 2 },
    };
    const char *folder = new_folder();
    write_config(folder, WATCHED);
    run_write(folder, "data.csv", "a,b\n1,2\n");
    REQUIRE(mkdir(at(folder, "folder.csv"), 0700) == 0 && mkdir(at(folder, "run"), 0700) == 0);
    REQUIRE(mkdir(at(folder, "blocked"), 0700) == 0 && mkdir(at(folder, "blocked/log.jsonl"), 0700) == 0);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char arguments[512];
        snprintf(arguments, sizeof arguments, "train c.json --json %s", rows[i].arguments);
        run_result r = run_sluice(folder, arguments);
        CHECK_THAT(r.status == rows[i].status, "%s: status %d: %s", rows[i].arguments, r.status, r.error);
        CHECK_CONTAINS(r.error, rows[i].message);
        CHECK(strstr(r.out, "\"event\":\"step\"") == NULL);
        int lines = 0;
        for (const char *c = r.error; *c != '\0'; c++) lines += *c == '\n';
        CHECK_EQ(lines, 1);
        run_free(&r);
    }
}

/* ---- DeepSpeed's sections ---- */

static tf_file read_events(const char *folder, int *files)
{
    tf_file f = { .whole = false };
    DIR *dir = opendir(folder);
    *files = 0;
    for (struct dirent *entry; dir != NULL && (entry = readdir(dir)) != NULL;) {
        if (strstr(entry->d_name, ".tfevents.") == NULL) continue;
        free(f.values);
        f = tf_read_file(at(folder, entry->d_name));
        (*files)++;
    }
    if (dir != NULL) closedir(dir);
    return f;
}

TEST(deepspeeds_monitors_write_their_files)
{
    int files;
    const char *folder = new_folder();
    write_config(folder, ", \"tensorboard\": {\"enabled\": true, \"output_path\": \"logs\", \"job_name\": \"one\"},"
                         " \"csv_monitor\": {\"enabled\": true, \"output_path\": \"logs/\", \"job_name\": \"two\"},"
                         " \"evaluate\": {\"every\": 3}");
    run_must(folder, "train c.json --quiet");
    tf_file f = read_events(inside(folder, "logs/one"), &files);
    CHECK_EQ(files, 1);
    CHECK(f.whole);
    CHECK_EQ(tf_count(&f, "loss/train"), 6);
    CHECK_EQ(tf_count(&f, "Train/Samples/lr"), 6);
    CHECK_EQ(tf_count(&f, "loss/validation"), 3);
    REQUIRE(tf_find(&f, "Train/Samples/train_loss", 5) != NULL && tf_find(&f, "plan/text_summary", 0) != NULL);
    CHECK_EQ(tf_find(&f, "Train/Samples/train_loss", 5)->step, 24);
    CHECK_CONTAINS(tf_find(&f, "plan/text_summary", 0)->text, "device");
    CHECK_CONTAINS(tf_find(&f, "configuration/text_summary", 0)->text, "\"train_batch_size\":4");
    free(f.values);
    char *table = run_read(at(folder, "logs/two/Train_Samples_train_loss.csv"));
    CHECK(strncmp(table, "step,train_loss\n4,", 18) == 0);
    CHECK_CONTAINS(table, "\n24,");
    free(table);
}

TEST(a_job_name_that_leads_out_of_its_folder_is_refused)
{
    static const char *const names[] = { "../../x", "a/../../x", "..", "/tmp/x" };
    static const char *const keys[] = { "tensorboard", "csv_monitor" };
    const char *folder = new_folder();
    write_config(folder, "");
    for (size_t i = 0; i < 2 * sizeof names / sizeof names[0]; i++) {
        char command[256];
        snprintf(command, sizeof command,
                 "train c.json --quiet --set %s.enabled=true --set %s.output_path=logs --set %s.job_name=%s",
                 keys[i % 2], keys[i % 2], keys[i % 2], names[i / 2]);
        run_result r = run_sluice(folder, command);
        CHECK_THAT(r.status == 2 && strstr(r.error, "job_name: ") != NULL, "%s: status %d: %s", command, r.status,
                   r.error);
        run_free(&r);
    }
    run_must(folder, "train c.json --quiet --set csv_monitor.enabled=true --set csv_monitor.output_path=logs "
                     "--set csv_monitor.job_name=a/..b");
    CHECK(access(at(folder, "logs/a/..b/Train_Samples_train_loss.csv"), F_OK) == 0);
}

TEST(services_are_told_with_one_note_how_to_take_the_files)
{
    int files;
    const char *folder = new_folder();
    write_config(folder,
                 ", \"wandb\": {\"enabled\": true, \"project\": \"p\"}, \"tensorboard\": {\"job_name\": \"tb\"}");
    run_result r = run_sluice(folder, "train c.json --json");
    CHECK_EQ(r.status, 0);
    CHECK_CONTAINS(r.error, "`python -m sluice.send wandb tb` takes");
    run_free(&r);
    tf_file f = read_events(inside(folder, "tb"), &files);
    CHECK_EQ(files, 1);
    CHECK(f.whole);
    free(f.values);
}

/* ---- the terminal ---- */

/* Runs in a terminal of so many columns, which has `later` columns once a line was drawn; what it showed. */
static char *run_in_terminal(const char *folder, int columns, int later, const char *no_colour)
{
    char *text = calloc(1, 1 << 20);
    size_t used = 0;
    int status, master = posix_openpt(O_RDWR | O_NOCTTY);
    struct winsize size = { .ws_row = 24, .ws_col = (unsigned short)columns };
    if (master < 0 || grantpt(master) != 0 || unlockpt(master) != 0) return text;
    int slave = open(ptsname(master), O_RDWR | O_NOCTTY);
    ioctl(slave, TIOCSWINSZ, &size);
    pid_t child = fork();
    if (child == 0) {
        setenv("TERM", "xterm", 1);
        if (no_colour != NULL) setenv("NO_COLOR", no_colour, 1);
        if (chdir(folder) != 0 || dup2(slave, 1) < 0) _exit(99);
        close(master);
        execl(SLUICE_BINARY_DIR "/sluice", "sluice", "train", "c.json", (char *)NULL);
        _exit(99);
    }
    close(slave);
    for (ssize_t n; used < (1 << 20) - 1 && (n = read(master, text + used, (1 << 20) - 1 - used)) > 0;) {
        used += (size_t)n;
        size.ws_col = (unsigned short)later;
        if (later != columns && strstr(text, " left") != NULL) ioctl(master, TIOCSWINSZ, &size);
    }
    close(master);
    waitpid(child, &status, 0);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    return text;
}

/* The longest line that was drawn over, in columns, and whether any of them has `part`. */
static int widest_line(const char *text, const char *part, bool *has)
{
    int widest = 0;
    *has = false;
    for (const char *at_line = text; (at_line = strstr(at_line, "\r\033[K")) != NULL;) {
        char line[1024] = "";
        int n = 0;
        at_line += 4;
        for (const char *c = at_line; *c != '\0' && *c != '\r' && *c != '\n' && n < 1000; c++) {
            if (*c == '\033') {
                while (*c != '\0' && *c != 'm' && *c != 'K') c++;
                continue;
            }
            line[n++] = *c;
        }
        if (strncmp(line, "step ", 5) != 0 || strstr(line, ": ") != NULL) continue; /* not of a step */
        if (n > widest) widest = n;
        *has = *has || strstr(line, part) != NULL;
    }
    return widest;
}

TEST(the_line_fits_the_terminal)
{
    static const int widths[] = { 200, 120, 80, 60, 40, 20, 9 };
    const char *folder = new_folder();
    bool has;
    write_config(folder, ", \"evaluate\": {\"every\": 1}");
    for (size_t i = 0; i < sizeof widths / sizeof widths[0]; i++) {
        char *text = run_in_terminal(folder, widths[i], widths[i], "");
        int widest = widest_line(text, widths[i] >= 120 ? "best " : "step", &has);
        CHECK_THAT(widest > 0 && widest < widths[i], "%d columns: a line of %d", widths[i], widest);
        CHECK(has || widths[i] < 12);
        if (widths[i] == 200) {
            (void)widest_line(text, "[###", &has);
            CHECK(has);
            (void)widest_line(text, " elapsed  ", &has);
            CHECK(has);
            (void)widest_line(text, " left", &has);
            CHECK(has);
            CHECK_CONTAINS(text, "\033[1mloss");
        }
        free(text);
    }
    char *plain = run_in_terminal(folder, 100, 100, "1");
    CHECK(strstr(plain, "\033[1m") == NULL);
    free(plain);
}

/* The terminal has folded what was drawn: all of its rows are taken away. */
TEST(the_line_follows_a_terminal_that_becomes_narrow)
{
    const char *folder = new_folder();
    bool has;
    run_write(folder, "c.json",
              "{\"model\": {\"type\": \"mlp\", \"features\": 4, \"hidden\": [8]}, \"steps\": 60000, \"threads\": 1,\n"
              " \"data\": {\"type\": \"regression\", \"samples\": 4000000}, \"train_batch_size\": 4,\n"
              " \"optimizer\": {\"type\": \"SGD\"}, \"hashes\": false}\n");
    char *text = run_in_terminal(folder, 150, 40, NULL), *up = strstr(text, "A\r\033[J");
    (void)widest_line(text, "[", &has);
    CHECK(has);
    CHECK(up != NULL);
    if (up != NULL) CHECK(widest_line(up, "loss", &has) < 40);
    free(text);
}

TEST(lines_of_a_log_have_the_time_and_what_is_left)
{
    const char *folder = new_folder();
    int year, month, day, hour, minute, second;
    write_config(folder, ", \"evaluate\": {\"every\": 2}");
    run_result r = run_sluice(folder, "train c.json");
    CHECK_EQ(r.status, 0);
    const char *line = strstr(r.out, "  step 6/6  loss ");
    REQUIRE(line != NULL && line - r.out > 19);
    CHECK_EQ(sscanf(line - 19, "%d-%d-%d %d:%d:%d", &year, &month, &day, &hour, &minute, &second), 6);
    CHECK(year > 2000 && month >= 1 && second <= 60);
    CHECK_CONTAINS(line, "  0:00 left\n");
    CHECK_CONTAINS(r.out, "  step 2: validation loss ");
    run_free(&r);
}

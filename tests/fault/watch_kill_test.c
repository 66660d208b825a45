/* watch_kill_test.c: a run that is killed at any moment leaves logs that can be read, with every step that it told of. Of what was being
 * written there may be the beginning, which the next start cuts off (monitor/line_file.h). */
#include <dirent.h>
#include <jansson.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/fault_program.h"
#include "support/plain_files.h"
#include "support/run.h"
#include "support/tfevents_reader.h"
#include "test.h"

#define KILLS 50

/* A folder in a folder, which `at` may then be asked about; valid until the next call. */
static const char *inside(const char *folder, const char *name)
{
    static char path[2200];
    snprintf(path, sizeof path, "%.2000s/%.100s", folder, name);
    return path;
}

static const char config[] =
    "{\"model\": {\"type\": \"mlp\", \"features\": 8, \"hidden\": [16]}, \"steps\": 100000, \"threads\": 1,\n"
    " \"data\": {\"type\": \"regression\", \"samples\": 64, \"validation\": 0.25}, \"train_batch_size\": 4,\n"
    " \"optimizer\": {\"type\": \"AdamW\"}, \"evaluate\": {\"every\": 7}, \"checkpoint\": {\"path\": \"run\", "
    "\"every\": 20},\n"
    " \"tensorboard\": {\"enabled\": true, \"output_path\": \"tb\", \"job_name\": \"j\"}}\n";

/* A kill ends a write between two pages of a file and nowhere else. */
static void check_torn(const char *path, const char *rest)
{
    struct stat st;
    if (rest[0] == '\0') return;
    REQUIRE(stat(path, &st) == 0);
    CHECK_THAT(st.st_size % 4096 == 0, "%s ends inside a line, at byte %lld", path, (long long)st.st_size);
}

/* Every line is JSON of one run; the newest step that it has. */
static uint64_t check_journal(const char *path, char run[64])
{
    uint64_t step = 0;
    char *text = run_read(path), *line = text;
    for (char *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        json_t *object = json_loadb(line, (size_t)(end - line), JSON_REJECT_DUPLICATES, NULL);
        const char *id = json_string_value(json_object_get(object, "run"));
        const char *event = json_string_value(json_object_get(object, "event"));
        if (id == NULL || event == NULL) {
            test_fail(__FILE__, __LINE__, "no line of a journal: %.100s", line);
        } else {
            if (run[0] == '\0') snprintf(run, 64, "%s", id);
            CHECK_STR(id, run);
            if (strcmp(event, "step") == 0) step = (uint64_t)json_integer_value(json_object_get(object, "step"));
        }
        json_decref(object);
    }
    check_torn(path, line);
    free(text);
    return step;
}

static int count_commas(const char *from, const char *to)
{
    int n = 0;
    for (; from < to; from++) n += *from == ',';
    return n;
}

/* Every row has all columns. */
static void check_table(const char *path)
{
    char *text = run_read(path), *line = text;
    int columns = -1;
    for (char *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        if (columns < 0) columns = count_commas(line, end);
        CHECK_EQ(count_commas(line, end), columns);
    }
    check_torn(path, line);
    CHECK(columns > 20);
    free(text);
}

/* The steps that all event files have together. */
static int check_events(const char *folder)
{
    DIR *dir = opendir(folder);
    int steps = 0;
    for (struct dirent *entry; dir != NULL && (entry = readdir(dir)) != NULL;) {
        if (entry->d_name[0] == '.') continue;
        const char *path = at(folder, entry->d_name);
        tf_file f = tf_read_file(path);
        CHECK_THAT(f.whole || f.cut, "%s is damaged", entry->d_name);
        check_torn(path, f.cut ? "a record" : "");
        steps += tf_count(&f, "loss/train");
        free(f.values);
    }
    if (dir != NULL) closedir(dir);
    return steps;
}

static void kill_and_look(const char *ranks, int kills, uint64_t random)
{
    char folder[1024], run[64] = "", arguments[256];
    int told = 0;
    memory_folder(folder);
    write_text(folder, "c.json", config);
    snprintf(arguments, sizeof arguments, "train c.json --json --resume --log all.csv%s", ranks);
    for (int i = 0; i < kills; i++) {
        program p;
        program_start(&p, folder, arguments);
        REQUIRE(program_reach(&p, 1 + (int)next_random(&random, 100)));
        usleep(next_random(&random, 3000));
        kill(p.pid, SIGKILL);
        CHECK_EQ(program_wait(&p), 128 + SIGKILL);
        if (access(at(folder, "run/log.jsonl"), F_OK) != 0) continue; /* not even begun */
        uint64_t written = check_journal(at(folder, "run/log.jsonl"), run);
        CHECK_THAT(p.step == 0 || written >= p.step, "told of step %d, wrote %d", (int)p.step, (int)written);
        if (access(at(folder, "all.csv"), F_OK) == 0) check_table(at(folder, "all.csv"));
        told += p.step > 0;
    }
    CHECK(told > kills / 2);
    CHECK(check_events(inside(folder, "tb/j")) > 0);
}

TEST(fifty_kills_at_random_moments_leave_readable_logs_of_one_run)
{
    kill_and_look("", KILLS, 11);
}

TEST(killed_ranks_leave_readable_logs)
{
    kill_and_look(" --ranks 2", KILLS / 10, 12);
}

TEST(a_killed_run_is_dead_to_status)
{
    char folder[1024];
    program p;
    memory_folder(folder);
    write_text(folder, "c.json", config);
    program_start(&p, folder, "train c.json --json");
    REQUIRE(program_reach(&p, 20));
    kill(p.pid, SIGKILL);
    CHECK_EQ(program_wait(&p), 128 + SIGKILL);
    run_result r = run_sluice(folder, "status run");
    CHECK_EQ(r.status, 1);
    CHECK_CONTAINS(r.out, "run: dead, last heard of ");
    CHECK_CONTAINS(r.out, "continue with --resume");
    run_free(&r);
}

/* A table may not grow beyond a limit; the files of the run itself are smaller. */
TEST(a_log_that_cannot_grow_is_told_once_and_the_run_ends_well)
{
    char folder[1024];
    program p, untouched;
    struct rlimit before, limit;
    memory_folder(folder);
    write_text(folder, "c.json", config);
    CHECK_EQ(
        program_run(&untouched, folder,
                    "train c.json --json --set steps=200 --set checkpoint.path=other --set tensorboard.enabled=false"),
        0);
    REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
    limit = before;
    limit.rlim_cur = 30000;
    REQUIRE(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    int status = program_run(&p, folder, "train c.json --json --set steps=200 --log all.csv");
    setrlimit(RLIMIT_FSIZE, &before);
    CHECK_THAT(status == 0, "exit status %d: %s", status, program_error(&p));
    CHECK_EQ(p.step, 200);
    CHECK_STR(p.weights, untouched.weights);
    const char *told = strstr(program_error(&p), "training goes on");
    CHECK(told != NULL && strstr(told + 1, "training goes on") == NULL);
    char run[64] = "";
    uint64_t written = check_journal(at(folder, "run/log.jsonl"), run);
    CHECK(written > 10 && written < 200);
    check_table(at(folder, "all.csv"));
}

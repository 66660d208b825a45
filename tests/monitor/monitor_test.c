/* monitor_test.c: what a monitor writes, from events that are made up here. */
#include "monitor/monitor.h"

#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <unistd.h>

#include "core/io.h"
#include "support/plain_files.h"
#include "support/run.h"
#include "support/tfevents_reader.h"
#include "test.h"

/* ---- a run ---- */

/* A folder in a folder, which `at` may then be asked about; valid until the next call. */
static const char *inside(const char *folder, const char *name)
{
    static char path[2200];
    snprintf(path, sizeof path, "%.2000s/%.100s", folder, name);
    return path;
}

typedef struct heard {
    int warnings;
    char text[4096]; /* of the last */
} heard;

static void on_log(void *user, sluice_log_level level, const char *line)
{
    heard *h = user;
    h->warnings += level == SLUICE_LOG_WARNING;
    snprintf(h->text, sizeof h->text, "%s", line);
}

static const sl_monitor_about about = { .ranks = 2,
                                        .steps = 100,
                                        .metric = "f1",
                                        .device = "cpu",
                                        .cpu = "a \"CPU\"",
                                        .cpus = 4,
                                        .memory_bytes = 1000,
                                        .configuration = "{\"steps\":100}",
                                        .plan = "a plan\nof two lines" };

static sluice_event step_event(uint64_t step)
{
    return (sluice_event){ .kind = SLUICE_EVENT_STEP,
                           .step = step,
                           .steps = 100,
                           .loss = 1.0 / (double)step,
                           .lr = 0.125,
                           .loss_scale = 1,
                           .seconds = 0.5,
                           .samples = 8,
                           .tokens = 64,
                           .targets = 64,
                           .tokens_per_second = 128,
                           .mfu = (double)NAN,
                           .speculated = step > 2 ? step - 2 : 0,
                           .total_samples = 8 * step,
                           .memory = { 1 << 30, 2 << 20, 0 },
                           .resident_bytes = 3 << 20 };
}

static sluice_event eval_event(uint64_t step, const sluice_metric *metrics, bool best)
{
    return (sluice_event){ .kind = SLUICE_EVENT_EVAL,
                           .step = step,
                           .loss = 0.75,
                           .accuracy = 0.5,
                           .metrics = metrics,
                           .metric_count = 2,
                           .judge = "f1",
                           .best = best };
}

/* Steps first to last, an evaluation after the last; the monitor is closed as a run that was killed leaves it: without a word. */
static sluice_status run_steps(const sl_monitor_places *places, bool resume, uint64_t first, uint64_t last, heard *h)
{
    const sluice_metric metrics[] = { { "loss", 0.75, true }, { "f1", 0.875, true } };
    const sl_log log = { on_log, h, 0, 1 };
    sl_monitor_about a = about;
    sl_monitor *m;
    a.resume = resume;
    if (sl_monitor_create(&log, &m) != SLUICE_OK) exit(99);
    sl_monitor_message(m, SLUICE_LOG_WARNING, "said before \"all\"");
    sl_monitor_message(m, SLUICE_LOG_NOTE, "nobody needs this");
    sluice_status st = sl_monitor_open(m, places, &a);
    for (uint64_t i = first; st == SLUICE_OK && i <= last; i++) {
        sluice_event e = step_event(i);
        sl_monitor_event(m, &e);
    }
    sluice_event e = eval_event(last, metrics, true);
    if (st == SLUICE_OK) sl_monitor_event(m, &e);
    sl_monitor_destroy(m);
    return st;
}

/* Every line of a journal; NULL at its end. */
static json_t *next_line(char **at)
{
    char *newline = strchr(*at, '\n');
    if (newline == NULL) return NULL;
    json_t *line = json_loadb(*at, (size_t)(newline - *at), JSON_REJECT_DUPLICATES, NULL);
    if (line == NULL) test_fail(__FILE__, __LINE__, "no JSON: %.80s", *at);
    *at = newline + 1;
    return line;
}

static const char *text_of(const json_t *line, const char *key)
{
    const char *text = json_string_value(json_object_get(line, key));
    return text != NULL ? text : "";
}

/* Checks every line and counts those of an event; *run gets the id of the last. */
static int count_lines(const char *path, const char *event, char run[64])
{
    char *text = run_read(path), *at = text;
    int n = 0;
    for (json_t *line; (line = next_line(&at)) != NULL; json_decref(line)) {
        const char *time = text_of(line, "time");
        CHECK(strlen(time) == 24 && time[10] == 'T' && time[23] == 'Z');
        CHECK(text_of(line, "run")[0] != '\0');
        snprintf(run, 64, "%s", text_of(line, "run"));
        n += strcmp(text_of(line, "event"), event) == 0;
    }
    CHECK_STR(at, "");
    free(text);
    return n;
}

/* ---- the journal ---- */

TEST(a_journal_begins_with_the_run_and_has_every_event_with_time_and_id)
{
    char run[64];
    heard h = { 0 };
    const char *folder = test_tmpdir(), *path = at(folder, SL_JOURNAL_NAME);
    CHECK_EQ(run_steps(&(sl_monitor_places){ .run_folder = folder }, false, 1, 3, &h), SLUICE_OK);
    CHECK_EQ(count_lines(path, "step", run), 3);
    CHECK_EQ(count_lines(path, "eval", run), 1);
    CHECK_EQ(count_lines(path, "log", run), 1);
    char *text = run_read(path), *at_line = text;
    json_t *first = next_line(&at_line), *second = next_line(&at_line), *third = next_line(&at_line);
    CHECK_STR(text_of(first, "event"), "run");
    CHECK_STR(text_of(first, "version"), sluice_version());
    CHECK_EQ(json_integer_value(json_object_get(first, "ranks")), 2);
    CHECK_EQ(json_integer_value(json_object_get(first, "steps")), 100);
    CHECK_STR(text_of(json_object_get(first, "machine"), "cpu"), "a \"CPU\"");
    CHECK_EQ(json_integer_value(json_object_get(json_object_get(first, "configuration"), "steps")), 100);
    CHECK_STR(text_of(second, "text"), "said before \"all\"");
    CHECK_EQ(json_integer_value(json_object_get(json_object_get(third, "memory_bytes"), "resident")), 3 << 20);
    CHECK(json_is_null(json_object_get(third, "mfu")));
    json_decref(first);
    json_decref(second);
    json_decref(third);
    free(text);
    CHECK_EQ(h.warnings, 0);
}

TEST(a_resumed_run_keeps_its_id_and_another_has_its_own)
{
    char first[64], second[64], third[64];
    heard h = { 0 };
    const char *folder = test_tmpdir(), *path = at(folder, SL_JOURNAL_NAME);
    const sl_monitor_places places = { .run_folder = folder };
    CHECK_EQ(run_steps(&places, false, 1, 3, &h), SLUICE_OK);
    CHECK_EQ(count_lines(path, "run", first), 1);
    CHECK_EQ(run_steps(&places, true, 3, 5, &h), SLUICE_OK);
    CHECK_EQ(count_lines(path, "run", second), 2);
    CHECK_STR(second, first);
    CHECK_EQ(count_lines(path, "step", second), 6);
    CHECK_EQ(run_steps(&places, false, 1, 1, &h), SLUICE_OK);
    CHECK_EQ(count_lines(path, "run", third), 3);
    CHECK(strcmp(third, first) != 0);
}

TEST(a_second_log_has_the_same_lines)
{
    heard h = { 0 };
    const char *folder = test_tmpdir(), *other = at(folder, "other.jsonl");
    CHECK_EQ(run_steps(&(sl_monitor_places){ .run_folder = folder, .log_file = other }, false, 1, 3, &h), SLUICE_OK);
    char *a = run_read(at(folder, SL_JOURNAL_NAME)), *b = run_read(other);
    CHECK(strlen(a) > 1000);
    CHECK_STR(b, a);
    free(a);
    free(b);
}

TEST(a_run_that_fails_says_why_and_keeps_its_message)
{
    char run[64];
    const char *folder = test_tmpdir(), *path = at(folder, SL_JOURNAL_NAME);
    sl_monitor *m;
    CHECK_EQ(sl_monitor_create(NULL, &m), SLUICE_OK);
    CHECK_EQ(sl_monitor_open(m, &(sl_monitor_places){ .run_folder = folder }, &about), SLUICE_OK);
    sluice_event e = step_event(7);
    sl_monitor_event(m, &e);
    sluice_status st = sl_fail(SLUICE_ERR_NUMBERS, "the loss is \"nan\"");
    sl_monitor_end(m, st);
    CHECK_STR(sluice_error(), "the loss is \"nan\"");
    sl_monitor_destroy(m);
    CHECK_EQ(count_lines(path, "exit", run), 1);
    char *text = run_read(path);
    CHECK_CONTAINS(text, "\"status\":7,\"step\":7,\"message\":\"the loss is \\\"nan\\\"\"");
    free(text);
}

/* ---- tables ---- */

static int count_of(const char *text, char c)
{
    int n = 0;
    for (; *text != '\0'; text++) n += *text == c;
    return n;
}

TEST(a_table_has_a_row_a_step_and_the_evaluation_in_the_row_of_its_step)
{
    heard h = { 0 };
    const char *path = at(test_tmpdir(), "t.csv");
    const sl_monitor_places places = { .log_file = path };
    CHECK_EQ(run_steps(&places, false, 1, 3, &h), SLUICE_OK);
    CHECK_EQ(run_steps(&places, true, 4, 5, &h), SLUICE_OK);
    char *text = run_read(path), *save, *line = strtok_r(text, "\n", &save);
    REQUIRE(line != NULL);
    CHECK(strncmp(line, "time,run,step,steps,epoch,loss,", 31) == 0);
    int columns = count_of(line, ','), rows = 0;
    while ((line = strtok_r(NULL, "\n", &save)) != NULL) {
        char expected[64];
        rows++;
        CHECK_EQ(count_of(line, ','), columns);
        snprintf(expected, sizeof expected, ",%d,100,0,%.9g,", rows, 1.0 / rows);
        CHECK_CONTAINS(line, expected);
        const char *end = rows == 3 || rows == 5 ? ",0.75,0.5,0.875,true" : ",,,,";
        CHECK_STR(line + strlen(line) - strlen(end), end);
    }
    CHECK_EQ(rows, 5);
    free(text);
}

TEST(a_table_with_other_columns_is_refused)
{
    heard h = { 0 };
    const char *folder = test_tmpdir();
    run_write(folder, "t.csv", "a,b\n1,2\n");
    CHECK_EQ(run_steps(&(sl_monitor_places){ .log_file = at(folder, "t.csv") }, false, 1, 1, &h), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "other columns");
    char *text = run_read(at(folder, "t.csv"));
    CHECK_STR(text, "a,b\n1,2\n");
    free(text);
    CHECK_EQ(sl_log_file_check("a.txt"), SLUICE_ERR_USAGE);
    CHECK_EQ(sl_log_file_check("a"), SLUICE_ERR_USAGE);
    CHECK_EQ(sl_log_file_check("a.csv"), SLUICE_OK);
}

TEST(deepspeeds_tables_have_a_file_a_scalar_with_the_samples)
{
    heard h = { 0 };
    const char *folder = inside(test_tmpdir(), "made/job");
    const sl_monitor_places places = { .csv_monitor = folder };
    CHECK_EQ(run_steps(&places, false, 1, 2, &h), SLUICE_OK);
    CHECK_EQ(run_steps(&places, true, 3, 3, &h), SLUICE_OK);
    char *text = run_read(at(folder, "Train_Samples_train_loss.csv"));
    CHECK_STR(text, "step,train_loss\n8,1\n16,0.5\n24,0.333333333\n");
    free(text);
    text = run_read(at(folder, "Train_Samples_lr.csv"));
    CHECK_STR(text, "step,lr\n8,0.125\n16,0.125\n24,0.125\n");
    free(text);
    CHECK(access(at(folder, "Train_Samples_loss_scale.csv"), F_OK) != 0);
}

/* ---- TensorBoard ---- */

/* The event files of a folder, read as one. */
static tf_file read_folder(const char *folder, int *files)
{
    tf_file found = { .whole = false };
    DIR *dir = opendir(folder);
    *files = 0;
    for (struct dirent *entry; dir != NULL && (entry = readdir(dir)) != NULL;) {
        if (strstr(entry->d_name, ".tfevents.") == NULL) continue;
        free(found.values);
        found = tf_read_file(at(folder, entry->d_name));
        (*files)++;
    }
    if (dir != NULL) closedir(dir);
    return found;
}

TEST(tensorboard_gets_scalars_under_both_names_and_texts)
{
    int files;
    heard h = { 0 };
    const char *folder = inside(test_tmpdir(), "runs/job");
    CHECK_EQ(run_steps(&(sl_monitor_places){ .tensorboard = folder }, false, 1, 4, &h), SLUICE_OK);
    tf_file f = read_folder(folder, &files);
    CHECK_EQ(files, 1);
    CHECK(f.whole);
    CHECK_STR(f.version, "brain.Event:2");
    CHECK_EQ(tf_count(&f, "loss/train"), 4);
    CHECK_EQ(tf_count(&f, "Train/Samples/train_loss"), 4);
    CHECK_EQ(tf_count(&f, "Train/Samples/loss_scale"), 0);
    CHECK_EQ(tf_count(&f, "rate/mfu"), 0); /* is not known */
    CHECK_EQ(tf_count(&f, "updates/speculated"), 2);
    CHECK_EQ(tf_count(&f, "updates/rolled_back"), 2);
    CHECK_EQ(tf_count(&f, "loss/validation"), 1);
    CHECK_EQ(tf_count(&f, "metrics/f1"), 1);
    const tf_value *loss = tf_find(&f, "loss/train", 3), *samples = tf_find(&f, "Train/Samples/train_loss", 3);
    REQUIRE(loss != NULL && samples != NULL);
    CHECK_NEAR(loss->number, 0.25, 0);
    CHECK_EQ(loss->step, 4);
    CHECK_EQ(samples->step, 32);
    CHECK_NEAR(tf_find(&f, "memory/device_GiB", 0)->number, 1, 0);
    CHECK_NEAR(tf_find(&f, "rate/tokens_per_s", 0)->number, 128, 0);
    CHECK_STR(tf_find(&f, "plan/text_summary", 0)->text, "    a plan\n    of two lines\n");
    CHECK_STR(tf_find(&f, "configuration/text_summary", 0)->text, "    {\"steps\":100}\n");
    free(f.values);
    CHECK_EQ(run_steps(&(sl_monitor_places){ .tensorboard = folder }, true, 5, 6, &h), SLUICE_OK);
    f = read_folder(folder, &files);
    CHECK_EQ(files, 2);
    free(f.values);
}

/* ---- what goes wrong ---- */

typedef struct refusal {
    const char *call, *path; /* path: what it contains */
    int error, from;         /* calls before it are let through */
    int seen;
} refusal;

static int refuse(void *user, const char *call, const char *path)
{
    refusal *r = user;
    if (strcmp(call, r->call) != 0 || strstr(path, r->path) == NULL) return 0;
    return r->seen++ >= r->from ? r->error : 0;
}

TEST(a_disk_that_fills_up_is_told_once_and_the_run_goes_on)
{
    char run[64];
    heard h = { 0 };
    const char *folder = test_tmpdir(), *table = at(folder, "t.csv");
    refusal full = { "pwrite", "", ENOSPC, 12, 0 };
    sl_io_set_hook(refuse, &full);
    sluice_status st = run_steps(
        &(sl_monitor_places){ .run_folder = folder, .log_file = table, .tensorboard = folder, .csv_monitor = folder },
        false, 1, 20, &h);
    sl_io_set_hook(NULL, NULL);
    CHECK_EQ(st, SLUICE_OK);
    CHECK(full.seen > 40); /* it was tried again and again */
    CHECK_EQ(h.warnings, 1);
    CHECK_CONTAINS(h.text, "No space left on device; free space there or choose another folder; training goes on");
    int steps = count_lines(at(folder, SL_JOURNAL_NAME), "step", run), files;
    CHECK(steps >= 1 && steps < 20);
    tf_file f = read_folder(folder, &files);
    CHECK(f.whole);
    free(f.values);
}

TEST(a_file_that_cannot_be_opened_or_written_fails_before_the_first_step)
{
    static const char *const parts[] = { SL_JOURNAL_NAME, "t.csv", ".tfevents.", "Train_Samples_train_loss" };
    for (size_t i = 0; i < 2 * sizeof parts / sizeof parts[0]; i++) {
        heard h = { 0 };
        const char *folder = test_tmpdir(), *table = at(folder, "t.csv");
        const sl_monitor_places places = {
            .run_folder = folder, .log_file = table, .tensorboard = folder, .csv_monitor = folder
        };
        refusal r = { i % 2 == 0 ? "open" : "pwrite", parts[i / 2], EROFS, 0, 0 };
        sl_io_set_hook(refuse, &r);
        sluice_status st = run_steps(&places, false, 1, 1, &h);
        sl_io_set_hook(NULL, NULL);
        CHECK_THAT(st == SLUICE_ERR_IO, "%s of %s: status %d", r.call, r.path, (int)st);
        CHECK_CONTAINS(sluice_error(), parts[i / 2]);
        CHECK_CONTAINS(sluice_error(), "Read-only file system");
    }
}

TEST(the_message_of_a_failed_run_stays_where_its_last_line_cannot_be_written)
{
    heard h = { 0 };
    const sl_log log = { on_log, &h, 0, 1 };
    refusal full = { "pwrite", SL_JOURNAL_NAME, ENOSPC, 0, 0 };
    sl_monitor *m;
    CHECK_EQ(sl_monitor_create(&log, &m), SLUICE_OK);
    CHECK_EQ(sl_monitor_open(m, &(sl_monitor_places){ .run_folder = test_tmpdir() }, &about), SLUICE_OK);
    sl_io_set_hook(refuse, &full);
    sl_monitor_end(m, sl_fail(SLUICE_ERR_NUMBERS, "the loss is no number"));
    sl_io_set_hook(NULL, NULL);
    CHECK_STR(sluice_error(), "the loss is no number");
    CHECK_EQ(h.warnings, 1);
    sl_monitor_destroy(m);
}

/* ---- events as JSON ---- */

TEST(an_event_is_asked_for_its_length_and_cut_where_it_does_not_fit)
{
    char text[1024], part[32];
    sluice_event e = step_event(1);
    size_t length = sluice_event_json(&e, NULL, 0);
    CHECK(length > 100);
    CHECK_EQ(sluice_event_json(&e, text, sizeof text), length);
    CHECK_EQ(strlen(text), length);
    CHECK_EQ(sluice_event_json(&e, part, sizeof part), length);
    CHECK_EQ(strlen(part), sizeof part - 1);
    CHECK(strncmp(part, text, sizeof part - 1) == 0);
    e.kind = (sluice_event_kind)1000;
    CHECK_EQ(sluice_event_json(&e, text, sizeof text), 0);
    for (int kind = SLUICE_EVENT_PLAN; kind <= SLUICE_EVENT_EARLY_STOP; kind++) { /* whatever is not set */
        sluice_event empty = { .kind = (sluice_event_kind)kind };
        CHECK(sluice_event_json(&empty, text, sizeof text) < sizeof text);
        json_t *parsed = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
        CHECK_THAT(parsed != NULL, "%s", text);
        json_decref(parsed);
    }
}

/* The save protocol: round trips, the order of system calls, and what is left after kills, full disks and short
 * memory. */
#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/alloc.h"
#include "support/checkpoint_fixture.h"
#include "test.h"

static const char *new_folder(void)
{
    static char folder[4096];
    snprintf(folder, sizeof folder, "%.4000s/run", test_tmpdir());
    return folder;
}

static bool exists(const char *folder, const char *name)
{
    char path[8192];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return access(path, F_OK) == 0;
}

static void check_loads(fixture *f, const char *folder, int64_t expected)
{
    int64_t step;
    int warnings;
    REQUIRE_OK(fixture_load(f, folder, &step, &warnings));
    CHECK_EQ(step, expected);
    CHECK_EQ(warnings, 0);
}

TEST(everything_saved_is_loaded_byte_for_byte)
{
    fixture f;
    const char *folder = new_folder();
    char path[4096], expected[5000];
    sl_checkpoint_meta meta = fixture_meta(12), back;
    bool found = false;
    fixture_make(&f, 40000); /* b has 10 MB: pieces span chunks */
    fixture_fill(&f, 12);
    REQUIRE_OK(sl_state_save(&f.state, &meta, folder, 2, path));
    snprintf(expected, sizeof expected, "%s/step-12", folder);
    CHECK_STR(path, expected);
    check_loads(&f, folder, 12);
    REQUIRE_OK(sl_state_load(&f.state, folder, fixture_identity(), false, NULL, &back, &found));
    CHECK(found && memcmp(&meta, &back, sizeof meta) == 0); /* also infinity, -0.0 and a seed beyond 2^63 */
    fixture_free(&f);
}

TEST(an_empty_or_missing_folder_has_no_checkpoint)
{
    fixture f;
    const char *folder = new_folder();
    sl_checkpoint_meta meta = fixture_meta(3);
    bool found = true;
    fixture_make(&f, 3);
    REQUIRE_OK(sl_state_load(&f.state, folder, NULL, false, NULL, &meta, &found));
    CHECK(!found && meta.step == 0);
    REQUIRE_OK(sl_checkpoint_clean(folder));
    CHECK_EQ(f.writes, 0);
    fixture_free(&f);
}

TEST(the_newest_are_kept_and_latest_names_the_last)
{
    fixture f;
    const char *folder = new_folder();
    char latest[5000];
    fixture_make(&f, 3);
    for (uint64_t step = 8; step <= 11; step++) REQUIRE_OK(fixture_save(&f, folder, step));
    CHECK(!exists(folder, "step-8") && !exists(folder, "step-9") && exists(folder, "step-10") &&
          exists(folder, "step-11"));
    CHECK(!exists(folder, "step-8.tmp") && !exists(folder, "step-11.tmp") && !exists(folder, "latest.tmp"));
    snprintf(latest, sizeof latest, "%s/latest", folder);
    size_t bytes;
    char *text = read_bytes(latest, &bytes);
    CHECK_STR(text, "step-11\n");
    free(text);
    check_loads(&f, folder, 11);
    fixture_free(&f);
}

TEST(a_save_never_removes_itself_or_later_steps)
{
    fixture f;
    const char *folder = new_folder();
    char path[4096];
    sl_checkpoint_meta meta = fixture_meta(5);
    fixture_make(&f, 3);
    REQUIRE_OK(fixture_save(&f, folder, 20));
    REQUIRE_OK(fixture_save(&f, folder, 4));
    fixture_fill(&f, 5);
    REQUIRE_OK(sl_state_save(&f.state, &meta, folder, 0, path)); /* fewer than 1 is 1 */
    CHECK(exists(folder, "step-20") && exists(folder, "step-5") && !exists(folder, "step-4"));
    fixture_free(&f);
}

TEST(saving_a_step_again_replaces_it)
{
    fixture f;
    const char *folder = new_folder();
    fixture_make(&f, 3);
    REQUIRE_OK(fixture_save(&f, folder, 7));
    REQUIRE_OK(fixture_save(&f, folder, 7));
    CHECK(exists(folder, "step-7") && !exists(folder, "step-7.old"));
    check_loads(&f, folder, 7);
    fixture_free(&f);
}

TEST(clean_removes_leftovers_and_restores_a_former_step)
{
    fixture f;
    const char *folder = new_folder();
    char from[5000], to[5000];
    fixture_make(&f, 3);
    REQUIRE_OK(fixture_save(&f, folder, 6));
    REQUIRE_OK(fixture_save(&f, folder, 7));
    snprintf(from, sizeof from, "%s/step-7", folder);
    snprintf(to, sizeof to, "%s/step-7.old", folder);
    CHECK(rename(from, to) == 0);
    check_loads(&f, folder, 7); /* also before cleaning */
    snprintf(from, sizeof from, "%s/step-6", folder);
    snprintf(to, sizeof to, "%s/step-9.tmp", folder);
    CHECK(rename(from, to) == 0);
    check_loads(&f, folder, 7);
    REQUIRE_OK(sl_checkpoint_clean(folder));
    CHECK(exists(folder, "step-7") && !exists(folder, "step-7.old") && !exists(folder, "step-9.tmp"));
    check_loads(&f, folder, 7);
    fixture_free(&f);
}

/* ---- the order of system calls ---- */

static char trace[8192];

/* Writes "call:last part of the path " for the calls that change or sync something. */
static int record_call(void *user, const char *call, const char *path)
{
    static const char *const kinds[] = { "pwrite", "fdatasync", "fsync", "rename", "unlink", "rmdir", "mkdir" };
    const char *slash = strrchr(path, '/');
    (void)user;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (strcmp(call, kinds[i]) == 0)
            snprintf(trace + strlen(trace), sizeof trace - strlen(trace), "%s:%s ", call,
                     slash != NULL ? slash + 1 : path);
    return 0;
}

/* What a power cut leaves cannot be tried without a machine to cut; what can be held is the order that makes it
 * safe. */
TEST(system_calls_come_in_the_order_of_the_protocol)
{
    fixture f;
    const char *folder = new_folder();
    fixture_make(&f, 3);
    REQUIRE_OK(fixture_save(&f, folder, 1));
    REQUIRE_OK(fixture_save(&f, folder, 2));
    trace[0] = '\0';
    sl_io_set_hook(record_call, NULL);
    sluice_status st = fixture_save(&f, folder, 3);
    sl_io_set_hook(NULL, NULL);
    REQUIRE_OK(st);
    const char *rest = strstr(trace, "rename:step-1 ");
    REQUIRE(rest != NULL);
    CHECK_CONTAINS(rest, "rmdir:step-1.tmp");
    trace[rest - trace] = '\0';
    CHECK_STR(trace,
              "mkdir:step-3.tmp pwrite:rank-0.bin fdatasync:rank-0.bin pwrite:manifest.json fdatasync:manifest.json "
              "fsync:step-3.tmp rename:step-3.tmp fsync:run pwrite:latest.tmp fdatasync:latest.tmp rename:latest.tmp "
              "fsync:run ");
    fixture_free(&f);
}

/* ---- kills ---- */

/* Saves `step` in a child that dies right before its nth call. False: it finished. */
static bool killed_while_saving(fixture *f, const char *folder, uint64_t step, int n)
{
    pid_t child = fork();
    if (child == 0) {
        countdown c = { .at = n };
        sl_io_set_hook(count_down, &c);
        _exit(fixture_save(f, folder, step) == SLUICE_OK ? 0 : 1);
    }
    int status;
    waitpid(child, &status, 0);
    if (!WIFSIGNALED(status)) CHECK_EQ(WEXITSTATUS(status), 0);
    return WIFSIGNALED(status);
}

/* Steps first, first+1, ... are saved; the last save is killed before each of its calls in turn. `again`: it overwrites
 * the step before it. */
static void check_kills(bool again)
{
    fixture f;
    fixture_make(&f, 3);
    int points = 0;
    for (int n = 1;; n++) {
        const char *folder = test_memory_path();
        int64_t step;
        int warnings;
        for (uint64_t s = 1; s <= 3; s++) REQUIRE_OK(fixture_save(&f, folder, s));
        bool killed = killed_while_saving(&f, folder, again ? 3 : 4, n);
        REQUIRE_OK(fixture_load(&f, folder, &step, &warnings));
        CHECK(step >= 3 && (killed || step == (again ? 3 : 4)));
        CHECK_EQ(warnings, 0); /* what is half written never looks like a checkpoint */
        REQUIRE_OK(sl_checkpoint_clean(folder));
        CHECK(!exists(folder, "step-4.tmp") && !exists(folder, "step-3.tmp") && !exists(folder, "step-2.tmp"));
        REQUIRE_OK(fixture_load(&f, folder, &step, &warnings));
        CHECK(step >= 3);
        REQUIRE_OK(fixture_save(&f, folder, 5)); /* and the run goes on */
        REQUIRE_OK(fixture_load(&f, folder, &step, &warnings));
        CHECK_EQ(step, 5);
        if (!killed) break;
        points++;
    }
    CHECK(points > 30);
    fixture_free(&f);
}

TEST(a_kill_before_any_system_call_leaves_the_last_checkpoint)
{
    check_kills(false);
}

TEST(a_kill_while_a_step_is_saved_again_leaves_it)
{
    check_kills(true);
}

/* ---- failing calls and memory ---- */

TEST(a_failing_disk_is_an_error_and_the_last_checkpoint_loads)
{
    fixture f;
    fixture_make(&f, 3);
    for (int mode = 0; mode < 4; mode++) {
        for (int n = 1;; n++) {
            const char *folder = test_memory_path();
            countdown c = { .at = n, .error = mode & 1 ? ENOSPC : EIO, .persistent = mode >= 2 };
            int64_t step;
            int warnings;
            REQUIRE_OK(fixture_save(&f, folder, 1));
            REQUIRE_OK(fixture_save(&f, folder, 2));
            sl_io_set_hook(count_down, &c);
            sluice_status st = fixture_save(&f, folder, 3);
            sl_io_set_hook(NULL, NULL);
            if (c.calls < n) {
                CHECK(n > 30);
                break;
            }
            /* examining what is there and closing what was listed may fail without harm: the save goes on */
            bool harmless = strcmp(c.failed, "stat") == 0 || strcmp(c.failed, "close") == 0;
            CHECK(st == SLUICE_ERR_IO || (st == SLUICE_OK && harmless && !c.persistent));
            if (st != SLUICE_OK) CHECK_CONTAINS(sluice_error(), mode & 1 ? "free space there" : "Input/output error");
            REQUIRE_OK(fixture_load(&f, folder, &step, &warnings));
            CHECK(step >= 2);
            CHECK_EQ(warnings, 0);
            if (!c.persistent) CHECK(!exists(folder, "step-3.tmp"));
            REQUIRE_OK(fixture_save(&f, folder, 3)); /* once there is room again */
            check_loads(&f, folder, 3);
        }
    }
    fixture_free(&f);
}

TEST(short_memory_while_saving_or_loading_is_an_error_and_changes_nothing)
{
    fixture f;
    const char *folder = test_memory_path();
    sl_alloc_stats before, after;
    int64_t step;
    int warnings;
    fixture_make(&f, 3);
    REQUIRE_OK(fixture_save(&f, folder, 1));
    for (int n = 1, done = 0; !done; n++) {
        sl_alloc_get_stats(&before);
        sl_alloc_fail_nth(n, 0);
        sluice_status st = fixture_save(&f, folder, 2);
        sl_alloc_fail_nth(0, 0);
        sl_alloc_get_stats(&after);
        CHECK_EQ(before.live_count, after.live_count);
        done = st == SLUICE_OK;
        CHECK(done ? n > 5 : st == SLUICE_ERR_NO_MEMORY);
        REQUIRE_OK(fixture_load(&f, folder, &step, &warnings));
        CHECK(step >= (done ? 2 : 1));
    }
    for (int n = 1, done = 0; !done; n++) {
        sl_alloc_get_stats(&before);
        sl_alloc_fail_nth(n, 0);
        sluice_status st = fixture_load(&f, folder, &step, &warnings);
        sl_alloc_fail_nth(0, 0);
        sl_alloc_get_stats(&after);
        CHECK_EQ(before.live_count, after.live_count);
        done = st == SLUICE_OK;
        CHECK(done ? step == 2 && n > 5 : st == SLUICE_ERR_NO_MEMORY);
        if (!done) CHECK_EQ(f.writes, 0);
    }
    fixture_free(&f);
}

/* A disk that fails while loading never yields a torn state: either an older checkpoint whole, or an error. */
TEST(a_failing_disk_while_loading_is_skipped_over_or_reported)
{
    fixture f;
    const char *folder = test_memory_path();
    int64_t step;
    int warnings;
    fixture_make(&f, 3);
    REQUIRE_OK(fixture_save(&f, folder, 1));
    REQUIRE_OK(fixture_save(&f, folder, 2));
    for (int n = 1;; n++) {
        countdown c = { .at = n, .error = EIO };
        sl_io_set_hook(count_down, &c);
        sluice_status st = fixture_load(&f, folder, &step, &warnings);
        sl_io_set_hook(NULL, NULL);
        if (c.calls < n) break;
        CHECK(st == SLUICE_ERR_IO || (st == SLUICE_OK && (step == 2 || (step == 1 && warnings == 1))));
    }
    fixture_free(&f);
}

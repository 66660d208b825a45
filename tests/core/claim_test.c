/* claim_test.c: several processes write one output at the same time, and some are killed: what is there is always one whole
 * result, and the next one that writes leaves nothing else. */
#include "core/claim.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/output.h"
#include "core/output_folder.h"
#include "core/status.h"
#include "support/plain_files.h"
#include "test.h"

enum { PIECE = 4096, PIECES = 8, FILES = 3, MOST_WRITERS = 8, ROUNDS = 6, LONG_ROUNDS = 50 };

static const char *const names[FILES] = { "config", "weights-1", "weights-2" };
static const char *const signs[] = { "config", NULL };

static bool disowns(const char *name)
{
    return strcmp(name, "config") == 0 || strncmp(name, "weights", 7) == 0;
}

static int rounds(void)
{
    return getenv("LONG") != NULL ? LONG_ROUNDS : ROUNDS;
}

/* ---- what is written: one letter all over ---- */

static sluice_status fill(sl_file *f, char letter)
{
    char piece[PIECE];
    memset(piece, letter, sizeof piece);
    for (int i = 0; i < PIECES; i++) SL_TRY(sl_file_pwrite(f, piece, sizeof piece, (uint64_t)i * PIECE));
    return SLUICE_OK;
}

static sluice_status write_file(const char *path, char letter)
{
    sl_output o;
    SL_TRY(sl_output_begin(path, &o));
    sluice_status st = fill(&o.file, letter);
    if (st == SLUICE_OK) return sl_output_finish(&o);
    sl_output_drop(&o);
    return st;
}

static sluice_status write_inside(const char *path, char letter)
{
    sl_file f;
    SL_TRY(sl_file_open(path, SL_CREATE, &f));
    sluice_status st = fill(&f, letter);
    if (st == SLUICE_OK) return sl_file_finish(&f);
    sl_file_close(&f);
    return st;
}

static sluice_status write_folder(const char *path, char letter)
{
    sl_folder_output o;
    char file[PATH_MAX];
    SL_TRY(sl_folder_output_begin(path, signs, &o));
    for (int i = 0; i < FILES; i++) {
        sluice_status st = sl_folder_output_path(&o, names[i], file);
        if (st == SLUICE_OK) st = write_inside(file, letter);
        if (st == SLUICE_OK) continue;
        sl_folder_output_drop(&o);
        return st;
    }
    return sl_folder_output_finish(&o, disowns);
}

/* The letter that a whole file has; 0: none is there; -1: it is not whole. */
static int letter_of_file(const char *path)
{
    char text[PIECE * PIECES + 1];
    FILE *f = fopen(path, "rb");
    if (f == NULL) return 0;
    size_t bytes = fread(text, 1, sizeof text, f);
    fclose(f);
    if (bytes != PIECE * PIECES) return -1;
    for (size_t i = 1; i < bytes; i++)
        if (text[i] != text[0]) return -1;
    return text[0];
}

static int letter_of_folder(const char *path)
{
    if (access(path, F_OK) != 0) return 0;
    int first = letter_of_file(at(path, names[0]));
    for (int i = 1; i < FILES; i++)
        if (first <= 0 || letter_of_file(at(path, names[i])) != first) return -1;
    return first;
}

/* One of the two kinds of outputs. */
typedef struct kind {
    sluice_status (*write)(const char *path, char letter);
    int (*letter)(const char *path);
} kind;
static const kind kinds[] = { { write_file, letter_of_file }, { write_folder, letter_of_folder } };

/* ---- many writers ---- */

static int count_entries(const char *folder)
{
    int count = 0;
    DIR *dir = opendir(folder);
    for (const struct dirent *e; dir != NULL && (e = readdir(dir)) != NULL;) count += e->d_name[0] != '.';
    if (dir != NULL) closedir(dir);
    return count;
}

static void nap(unsigned microseconds)
{
    nanosleep(&(struct timespec){ 0, (long)microseconds * 1000 }, NULL);
}

/* Starts them; kills every second one at some moment. Says how many were well, and that the others were refused or killed. */
static int race(const kind *k, const char *path, int writers, bool kills, unsigned *seed)
{
    pid_t children[MOST_WRITERS];
    int well = 0;
    for (int i = 0; i < writers; i++) {
        children[i] = fork();
        if (children[i] == 0) _exit((int)k->write(path, (char)('a' + i)));
        CHECK(children[i] > 0);
    }
    for (int i = 0; kills && i < writers; i += 2) {
        nap((unsigned)rand_r(seed) % 3000);
        kill(children[i], SIGKILL);
    }
    for (int i = 0; i < writers; i++) {
        int status = 0;
        CHECK_EQ(waitpid(children[i], &status, 0), children[i]);
        if (WIFSIGNALED(status)) {
            CHECK(kills && i % 2 == 0 && WTERMSIG(status) == SIGKILL);
            continue;
        }
        well += WEXITSTATUS(status) == SLUICE_OK;
        CHECK_THAT(WEXITSTATUS(status) == SLUICE_OK || WEXITSTATUS(status) == SLUICE_ERR_USAGE,
                   "writer %d of %d ended with %d", i, writers, WEXITSTATUS(status));
    }
    return well;
}

static void race_many(const kind *k, int writers, bool kills)
{
    char place[1024], path[PATH_MAX];
    unsigned seed = 7u * (unsigned)writers + kills;
    snprintf(place, sizeof place, "%.1000s", test_memory_path());
    REQUIRE(mkdir(place, 0700) == 0);
    snprintf(path, sizeof path, "%s/out", place);
    for (int round = 0; round < rounds(); round++) {
        int before = k->letter(path);
        int well = race(k, path, writers, kills, &seed), after = k->letter(path);
        CHECK_THAT(after >= 0, "round %d of %d writers leaves something that is not whole", round, writers);
        CHECK_THAT(after > 0 || before == 0, "round %d of %d writers has lost what was there", round, writers);
        CHECK_THAT(well == 0 || after > 0, "round %d of %d writers: one was well, nothing is there", round, writers);
        CHECK_THAT(well > 0 || kills, "round %d of %d writers: nobody was well", round, writers);
        if (round % 2 == 0) continue;
        CHECK_EQ(k->write(path, 'z'), SLUICE_OK); /* whoever comes next removes what the dead left */
        CHECK_EQ(k->letter(path), 'z');
        CHECK_EQ(count_entries(place), 1);
    }
}

TEST(two_three_and_eight_writers_of_a_file_leave_a_whole_one)
{
    for (int writers = 2; writers <= MOST_WRITERS; writers = writers == 2 ? 3 : writers + 5)
        race_many(&kinds[0], writers, false);
}

TEST(two_three_and_eight_writers_of_a_folder_leave_a_whole_one)
{
    for (int writers = 2; writers <= MOST_WRITERS; writers = writers == 2 ? 3 : writers + 5)
        race_many(&kinds[1], writers, false);
}

TEST(writers_of_a_file_that_are_killed_leave_a_whole_one)
{
    for (int writers = 2; writers <= MOST_WRITERS; writers = writers == 2 ? 3 : writers + 5)
        race_many(&kinds[0], writers, true);
}

TEST(writers_of_a_folder_that_are_killed_leave_a_whole_one)
{
    for (int writers = 2; writers <= MOST_WRITERS; writers = writers == 2 ? 3 : writers + 5)
        race_many(&kinds[1], writers, true);
}

/* ---- one at a time ---- */

TEST(a_second_writer_is_refused_and_names_the_first)
{
    char folder[1024], path[PATH_MAX], pid[64];
    sl_output o;
    sl_target t;
    snprintf(folder, sizeof folder, "%s", test_tmpdir());
    snprintf(path, sizeof path, "%s", at(folder, "a"));
    REQUIRE(put(path, "old"));
    REQUIRE_OK(sl_output_begin(path, &o));
    snprintf(pid, sizeof pid, "is being written by process %ld;", (long)getpid());
    CHECK_EQ(sl_file_replace(path, "second", 6), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), pid);
    REQUIRE_OK(sl_target_find(path, &t));
    CHECK_EQ(sl_target_try(&t), SLUICE_ERR_USAGE);
    REQUIRE_OK(sl_file_pwrite(&o.file, "first", 5, 0));
    REQUIRE_OK(sl_output_finish(&o));
    CHECK(file_is(path, "first"));
    CHECK_EQ(sl_file_replace(path, "third", 5), SLUICE_OK);
    CHECK_EQ(count_entries(folder), 1);
}

static int no_locks(void *user, const char *call, const char *path)
{
    (void)user, (void)path;
    return strcmp(call, "flock") == 0 ? ENOSYS : 0;
}

TEST(without_locks_each_writer_has_a_name_of_its_own)
{
    char folder[1024], path[PATH_MAX];
    sl_output first, second;
    snprintf(folder, sizeof folder, "%s", test_tmpdir());
    snprintf(path, sizeof path, "%s", at(folder, "a"));
    sl_io_set_hook(no_locks, NULL);
    sluice_status st = sl_output_begin(path, &first);
    if (st == SLUICE_OK) st = sl_output_begin(path, &second);
    if (st == SLUICE_OK) st = sl_file_pwrite(&first.file, "first", 5, 0);
    if (st == SLUICE_OK) st = sl_file_pwrite(&second.file, "the second", 10, 0);
    if (st == SLUICE_OK) st = sl_output_finish(&first);
    CHECK(file_is(path, "first"));
    if (st == SLUICE_OK) st = sl_output_finish(&second);
    sl_io_set_hook(NULL, NULL);
    CHECK_EQ(st, SLUICE_OK);
    CHECK(file_is(path, "the second"));
    CHECK_EQ(count_entries(folder), 1);
}

TEST(a_lock_file_removes_nothing_but_a_temporary_of_its_target)
{
    static const char *const texts[] = { "1 other\n",         "1 ../other\n",     "1 b.01234567.tmp\n",
                                         "1 a.0123456.tmp\n", "1 a.01234567.tmp", "a.01234567.tmp\n" };
    char folder[1024];
    snprintf(folder, sizeof folder, "%s", test_tmpdir());
    REQUIRE(put(at(folder, "other"), "mine") && put(at(folder, "b.01234567.tmp"), "mine") &&
            put(at(folder, "a.0123456.tmp"), "mine") && put(at(folder, "a.01234567.tmp"), "mine"));
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        REQUIRE(put(at(folder, "a.tmp"), texts[i]));
        CHECK_EQ(sl_file_replace(at(folder, "a"), "new", 3), SLUICE_OK);
        CHECK_EQ(count_entries(folder), 5);
    }
    REQUIRE(put(at(folder, "a.tmp"), "1 a.01234567.tmp\n")); /* what a killed writer of `a` leaves */
    CHECK_EQ(sl_file_replace(at(folder, "a"), "newer", 5), SLUICE_OK);
    CHECK(access(at(folder, "a.01234567.tmp"), F_OK) != 0);
    CHECK_EQ(count_entries(folder), 4);
}

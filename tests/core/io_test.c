/* io_test.c: files, directories and locks, with every system call and every allocation made to fail once. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/output.h"
#include "core/status.h"
#include "support/plain_files.h"
#include "test.h"

static int open_descriptors(void)
{
    int count = 0;
    DIR *dir = opendir("/proc/self/fd");
    if (dir == NULL) return -1;
    while (readdir(dir) != NULL) count++;
    closedir(dir);
    return count;
}

/* ---- hooks ---- */

typedef struct breaker {
    const char *call; /* only this one; NULL: all */
    int nth;          /* 1: the first */
    int answer;       /* the hook's answer for it */
    bool again;       /* for all later ones too */
    bool die;         /* ends the process before it */
    int count;
} breaker;

static int break_call(void *user, const char *call, const char *path)
{
    breaker *b = user;
    (void)path;
    if (b->call != NULL && strcmp(b->call, call) != 0) return 0;
    b->count++;
    if (b->count != b->nth && !(b->again && b->count > b->nth)) return 0;
    if (b->die) _exit(0);
    return b->answer;
}

/* ---- plain behaviour ---- */

TEST(file_bytes_come_back)
{
    const char *path = at(test_tmpdir(), "a");
    sl_file f;
    uint64_t size = 0;
    char got[6] = "";
    REQUIRE_OK(sl_file_open(path, SL_CREATE, &f));
    CHECK_EQ(sl_file_pwrite(&f, "world", 5, 6), SLUICE_OK);
    CHECK_EQ(sl_file_pwrite(&f, "hello ", 6, 0), SLUICE_OK);
    CHECK_EQ(sl_file_truncate(&f, 10), SLUICE_OK);
    REQUIRE_OK(sl_file_finish(&f));
    CHECK(file_is(path, "hello worl"));
    REQUIRE_OK(sl_file_open(path, SL_READ, &f));
    CHECK_EQ(sl_file_size(&f, &size), SLUICE_OK);
    CHECK_EQ(size, 10);
    CHECK_EQ(sl_file_pread(&f, got, 5, 2), SLUICE_OK);
    CHECK_STR(got, "llo w");
    sl_file_close(&f);
    sl_file_close(&f); /* twice is harmless */
}

TEST(file_create_truncates)
{
    const char *path = at(test_tmpdir(), "a");
    sl_file f;
    REQUIRE(put(path, "something long"));
    REQUIRE_OK(sl_file_open(path, SL_CREATE, &f));
    REQUIRE_OK(sl_file_finish(&f));
    CHECK(file_is(path, ""));
}

TEST(file_pread_past_the_end_is_an_input_error)
{
    const char *path = at(test_tmpdir(), "short");
    sl_file f;
    char got[8];
    REQUIRE(put(path, "12345"));
    REQUIRE_OK(sl_file_open(path, SL_READ, &f));
    CHECK_EQ(sl_file_pread(&f, got, 5, 0), SLUICE_OK);
    CHECK_EQ(sl_file_pread(&f, got, 6, 0), SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), "short ends at byte 5, 1 more");
    CHECK_EQ(sl_file_pread(&f, got, 0, 100), SLUICE_OK);
    sl_file_close(&f);
}

TEST(file_open_tells_input_errors_from_machine_errors)
{
    const char *folder = test_tmpdir();
    sl_file f;
    CHECK_EQ(sl_file_open(at(folder, "missing"), SL_READ, &f), SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), "missing");
    CHECK_CONTAINS(sluice_error(), "No such file");
    CHECK_EQ(sl_file_open(folder, SL_READ, &f), SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), "is a directory");
    CHECK_EQ(sl_file_open(at(folder, "no/such/folder"), SL_CREATE, &f), SLUICE_ERR_IO);
    static const struct {
        int error, mode, status;
    } rows[] = {
        { EACCES, SL_READ, SLUICE_ERR_INPUT }, { EIO, SL_READ, SLUICE_ERR_IO },      { EMFILE, SL_READ, SLUICE_ERR_IO },
        { EACCES, SL_CREATE, SLUICE_ERR_IO },  { ENOSPC, SL_CREATE, SLUICE_ERR_IO },
    };
    REQUIRE(put(at(folder, "there"), "x"));
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        breaker b = { .call = "open", .nth = 1, .answer = rows[i].error };
        sl_io_set_hook(break_call, &b);
        CHECK_EQ(sl_file_open(at(folder, "there"), rows[i].mode, &f), rows[i].status);
        sl_io_set_hook(NULL, NULL);
    }
}

TEST(a_named_pipe_is_refused_without_waiting)
{
    const char *path = at(test_tmpdir(), "pipe");
    char *text;
    size_t bytes;
    REQUIRE(mkfifo(path, 0600) == 0);
    CHECK_EQ(sl_file_read_all(path, 100, &text, &bytes), SLUICE_ERR_INPUT);
}

TEST(short_and_interrupted_transfers_are_completed)
{
    const char *path = at(test_tmpdir(), "a");
    sl_file f;
    char got[12] = "";
    breaker b = { .call = "pwrite", .nth = 1, .answer = -3, .again = true };
    sl_io_set_hook(break_call, &b);
    REQUIRE_OK(sl_file_open(path, SL_CREATE, &f));
    CHECK_EQ(sl_file_pwrite(&f, "hello world", 11, 0), SLUICE_OK);
    CHECK_EQ(b.count, 4);
    b = (breaker){ .call = "pread", .nth = 1, .answer = -1, .again = true };
    CHECK_EQ(sl_file_pread(&f, got, 11, 0), SLUICE_OK);
    CHECK_EQ(b.count, 11);
    CHECK_STR(got, "hello world");
    sl_io_set_hook(NULL, NULL);
    REQUIRE_OK(sl_file_finish(&f));
}

TEST(a_full_disk_is_an_io_error_with_advice)
{
    const char *path = at(test_tmpdir(), "a");
    sl_file f;
    REQUIRE_OK(sl_file_open(path, SL_CREATE, &f));
    breaker b = { .call = "pwrite", .nth = 2, .answer = ENOSPC };
    sl_io_set_hook(break_call, &b);
    CHECK_EQ(sl_file_pwrite(&f, "x", 1, 0), SLUICE_OK);
    CHECK_EQ(sl_file_pwrite(&f, "x", 1, 0), SLUICE_ERR_IO);
    CHECK_CONTAINS(sluice_error(), "free space");
    sl_io_set_hook(NULL, NULL);
    sl_file_close(&f);
}

TEST(file_finish_reports_what_the_disk_says_late)
{
    static const char *const calls[] = { "fdatasync", "close" };
    for (int i = 0; i < 2; i++) {
        sl_file f;
        breaker b = { .call = calls[i], .nth = 1, .answer = EIO };
        REQUIRE_OK(sl_file_open(at(test_tmpdir(), "a"), SL_CREATE, &f));
        int before = open_descriptors();
        sl_io_set_hook(break_call, &b);
        CHECK_EQ(sl_file_finish(&f), SLUICE_ERR_IO);
        sl_io_set_hook(NULL, NULL);
        CHECK_EQ(open_descriptors(), before - 1);
    }
}

TEST(direct_io_takes_aligned_and_unaligned_transfers)
{
    enum { BYTES = 8192 };
    const char *path = at(test_tmpdir(), "direct");
    sl_file f;
    char *data = NULL, got[7] = "";
    REQUIRE(posix_memalign((void **)&data, 4096, BYTES) == 0);
    memset(data, 'd', BYTES);
    REQUIRE_OK(sl_file_open(path, SL_CREATE | SL_DIRECT, &f));
    CHECK_EQ(sl_file_pwrite(&f, data, BYTES, 0), SLUICE_OK);
    CHECK_EQ(sl_file_pwrite(&f, "unaligned", 9, 3), SLUICE_OK);
    CHECK_EQ(sl_file_pwrite(&f, data, 4096, BYTES), SLUICE_OK);
    REQUIRE_OK(sl_file_finish(&f));
    REQUIRE_OK(sl_file_open(path, SL_READ | SL_DIRECT, &f));
    CHECK_EQ(sl_file_pread(&f, got, 6, 1), SLUICE_OK);
    CHECK_STR(got, "ddunal");
    sl_file_close(&f);
    free(data);
}

TEST(direct_io_is_used_where_the_file_system_has_it)
{
    const char *folder = test_tmpdir();
    sl_file f;
    int probe = open(at(folder, "probe"), O_RDWR | O_CREAT | O_DIRECT, 0600);
    if (probe >= 0) close(probe);
    REQUIRE_OK(sl_file_open(at(folder, "a"), SL_CREATE | SL_DIRECT, &f));
    CHECK_EQ((fcntl(f.fd, F_GETFL) & O_DIRECT) != 0, probe >= 0);
    sl_file_close(&f);
}

TEST(direct_io_is_dropped_where_open_refuses_it)
{
    sl_file f;
    breaker b = { .call = "open", .nth = 1, .answer = EINVAL };
    sl_io_set_hook(break_call, &b);
    REQUIRE_OK(sl_file_open(at(test_tmpdir(), "a"), SL_CREATE | SL_DIRECT, &f));
    sl_io_set_hook(NULL, NULL);
    CHECK_EQ(b.count, 2);
    CHECK_EQ(fcntl(f.fd, F_GETFL) & O_DIRECT, 0);
    sl_file_close(&f);
    b = (breaker){ .call = "open", .nth = 1, .answer = EACCES };
    sl_io_set_hook(break_call, &b);
    CHECK_EQ(sl_file_open(at(test_tmpdir(), "a"), SL_CREATE | SL_DIRECT, &f), SLUICE_ERR_IO);
    sl_io_set_hook(NULL, NULL);
    CHECK_EQ(b.count, 1);
}

static bool has_direct_io(const char *folder)
{
    int probe = open(at(folder, "probe"), O_RDWR | O_CREAT | O_DIRECT, 0600);
    if (probe >= 0) close(probe);
    return probe >= 0;
}

/* A file with bytes that tell their place, which is on the disk. */
static void make_file(const char *path, size_t bytes, sl_file *out)
{
    char *data = malloc(bytes);
    REQUIRE(data != NULL);
    for (size_t i = 0; i < bytes; i++) data[i] = (char)(i % 251);
    REQUIRE_OK(sl_file_write_all(path, data, bytes));
    free(data);
    REQUIRE_OK(sl_file_open(path, SL_READ, out));
}

TEST(a_file_is_read_past_the_cache_up_to_an_end_that_is_not_aligned)
{
    enum { BYTES = 10000, BEGIN = 4096 };
    const char *path = at(test_tmpdir(), "past");
    sl_file f, direct = { -1, NULL };
    char *to = NULL;
    make_file(path, BYTES, &f);
    CHECK_EQ(sl_file_open_direct(&f, &direct), has_direct_io(test_tmpdir()));
    if (direct.path == NULL) REQUIRE_OK(sl_file_open(path, SL_READ, &direct));
    int flags = fcntl(direct.fd, F_GETFL);
    REQUIRE(posix_memalign((void **)&to, SL_DIRECT_ALIGNMENT, 8192) == 0);
    REQUIRE_OK(sl_file_pread_some(&direct, to, BYTES - BEGIN, 8192, BEGIN));
    for (int i = 0; i < BYTES - BEGIN; i++) REQUIRE(to[i] == (char)((BEGIN + i) % 251));
    CHECK_EQ(fcntl(direct.fd, F_GETFL), flags);
    CHECK_EQ(sl_file_pread_some(&direct, to, BYTES - BEGIN + 1, 8192, BEGIN), SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), "ends at byte 10000, 1 more were expected");
    sl_file_close(&direct);
    sl_file_close(&f);
    free(to);
}

TEST(a_file_that_took_the_name_of_another_is_not_read_for_it)
{
    const char *folder = test_tmpdir();
    char path[4200];
    sl_file f, other, direct;
    snprintf(path, sizeof path, "%s", at(folder, "first"));
    make_file(path, 5000, &f);
    make_file(at(folder, "second"), 5000, &other);
    int before = open_descriptors();
    REQUIRE_OK(sl_path_rename(at(folder, "second"), path));
    CHECK(!sl_file_open_direct(&f, &direct));
    CHECK_EQ(open_descriptors(), before);
    sl_file_close(&f);
    sl_file_close(&other);
}

TEST(what_the_page_cache_holds_is_told_and_not_read_for_that)
{
    enum { BYTES = 3000001, PART = 1000000 };
    sl_file f;
    struct statfs system;
    char *to = malloc(PART);
    make_file(at(test_tmpdir(), "cached"), BYTES, &f);
    CHECK(sl_file_is_cached(&f, BYTES, 0));
    REQUIRE(fstatfs(f.fd, &system) == 0);
    bool can_forget = system.f_type != 0x01021994 /* tmpfs, which has no other place */;
    if (can_forget) {
        REQUIRE(posix_fadvise(f.fd, 0, 0, POSIX_FADV_DONTNEED) == 0);
        CHECK(!sl_file_is_cached(&f, BYTES, 0));
        sl_file_expect_random(&f);
        REQUIRE_OK(sl_file_pread(&f, to, PART, 1));
        CHECK(!sl_file_is_cached(&f, PART, BYTES - PART));
        CHECK(sl_file_is_cached(&f, PART, 1));
        CHECK(!sl_file_is_cached(&f, PART + 10000, 1));
    }
    breaker b = { .call = "mincore", .nth = 1, .answer = ENOSYS };
    sl_io_set_hook(break_call, &b);
    CHECK(!sl_file_is_cached(&f, PART, 1));
    sl_io_set_hook(NULL, NULL);
    sl_file_close(&f);
    free(to);
}

TEST(an_invalid_write_without_direct_io_is_an_error_and_no_loop)
{
    sl_file f;
    REQUIRE_OK(sl_file_open(at(test_tmpdir(), "a"), SL_CREATE, &f));
    breaker b = { .call = "pwrite", .nth = 1, .answer = EINVAL, .again = true };
    sl_io_set_hook(break_call, &b);
    CHECK_EQ(sl_file_pwrite(&f, "x", 1, 0), SLUICE_ERR_IO);
    sl_io_set_hook(NULL, NULL);
    sl_file_close(&f);
}

/* ---- whole files ---- */

TEST(read_all_gives_a_terminated_text)
{
    const char *path = at(test_tmpdir(), "a");
    char *text;
    size_t bytes;
    REQUIRE(put(path, "twelve bytes"));
    REQUIRE_OK(sl_file_read_all(path, 12, &text, &bytes));
    CHECK_EQ(bytes, 12);
    CHECK_STR(text, "twelve bytes");
    sl_free(text);
    CHECK_EQ(sl_file_read_all(path, 11, &text, &bytes), SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), "larger than 11");
    REQUIRE(put(path, ""));
    REQUIRE_OK(sl_file_read_all(path, 0, &text, &bytes));
    CHECK_EQ(bytes, 0);
    CHECK_STR(text, "");
    sl_free(text);
}

TEST(read_all_takes_files_that_hide_their_size)
{
    char *text;
    size_t bytes;
    REQUIRE_OK(sl_file_read_all("/proc/self/status", 1 << 20, &text, &bytes));
    CHECK_CONTAINS(text, "Threads:");
    CHECK_EQ(strlen(text), bytes);
    sl_free(text);
    CHECK_EQ(sl_file_read_all("/proc/self/status", 20, &text, &bytes), SLUICE_ERR_INPUT);
}

TEST(peek_cuts_to_the_buffer_and_says_what_is_missing)
{
    const char *folder = test_tmpdir();
    char buf[5];
    REQUIRE(put(at(folder, "a"), "123456789"));
    CHECK(sl_file_peek(at(folder, "a"), buf, sizeof buf));
    CHECK_STR(buf, "1234");
    CHECK(!sl_file_peek(at(folder, "b"), buf, sizeof buf));
    CHECK(!sl_file_peek(folder, buf, sizeof buf));
}

TEST(replace_changes_a_file_whole)
{
    const char *folder = test_tmpdir();
    REQUIRE_OK(sl_file_replace(at(folder, "a"), "first", 5));
    REQUIRE_OK(sl_file_replace(at(folder, "a"), "second one", 10));
    CHECK(file_is(at(folder, "a"), "second one"));
    CHECK(!sl_path_exists(at(folder, "a.tmp")));
}

/* Calls of a name among the first `count`. */
static int times(const char *const *order, int count, const char *name)
{
    int n = 0;
    for (int i = 0; i < count; i++) n += strcmp(order[i], name) == 0;
    return n;
}

/* The message without the digits that are another time others. */
static void copy_plain_error(char text[SL_MESSAGE_BYTES])
{
    sl_error_copy(text);
    for (char *at = text; (at = strstr(at, ".tmp")) != NULL; at++) {
        const char *digits = at - 9;
        if (digits < text || digits[0] != '.' || strspn(digits + 1, "0123456789abcdef") != 8) continue;
        memset(at - 8, '0', 8);
    }
}

TEST(replace_syncs_the_data_before_the_rename_and_the_folder_after)
{
    static const char *const order[] = { "stat",  "readlink", "stat", "lstat", "open",   "flock",     "fstat",
                                         "lstat", "pwrite",   "stat", "open",  "pwrite", "fdatasync", "close",
                                         "lstat", "rename",   "open", "fsync", "close" };
    const char *path = at(test_tmpdir(), "a");
    for (int i = 0; i < (int)(sizeof order / sizeof order[0]); i++) {
        /* the nth call of all is the one whose failure alone hits the nth by name */
        breaker all = { .nth = i + 1, .answer = EIO },
                named = { .call = order[i], .nth = times(order, i + 1, order[i]), .answer = EIO };
        char by_number[SL_MESSAGE_BYTES], by_name[SL_MESSAGE_BYTES];
        remove(path);
        sl_io_set_hook(break_call, &all);
        CHECK_EQ(sl_file_replace(path, "x", 1), SLUICE_ERR_IO);
        copy_plain_error(by_number);
        remove(path);
        sl_io_set_hook(break_call, &named);
        CHECK_EQ(sl_file_replace(path, "x", 1), SLUICE_ERR_IO);
        copy_plain_error(by_name);
        CHECK_STR(by_name, by_number);
    }
    sl_io_set_hook(NULL, NULL);
}

TEST(replace_that_fails_keeps_the_old_file_and_leaves_no_other)
{
    static const char *const calls[] = { "pwrite", "fdatasync", "close", "rename" };
    const char *folder = test_tmpdir();
    REQUIRE(put(at(folder, "a"), "old"));
    for (int i = 0; i < 4; i++) {
        breaker b = { .call = calls[i], .nth = 1, .answer = ENOSPC };
        sl_io_set_hook(break_call, &b);
        CHECK_EQ(sl_file_replace(at(folder, "a"), "new", 3), SLUICE_ERR_IO);
        sl_io_set_hook(NULL, NULL);
        CHECK(file_is(at(folder, "a"), "old"));
        CHECK(!sl_path_exists(at(folder, "a.tmp")));
    }
}

TEST(replace_killed_anywhere_leaves_the_old_or_the_new_file)
{
    const char *path = at(test_tmpdir(), "a");
    bool seen_old = false, seen_new = false;
    for (int nth = 1; nth <= 26; nth++) {
        REQUIRE(put(path, "old"));
        pid_t child = fork();
        REQUIRE(child >= 0);
        if (child == 0) {
            breaker b = { .nth = nth, .die = true };
            sl_io_set_hook(break_call, &b);
            sluice_status st = sl_file_replace(path, "the new one", 11);
            _exit(st == SLUICE_OK ? 0 : 1);
        }
        int status = 0;
        REQUIRE(waitpid(child, &status, 0) == child);
        CHECK_EQ(status, 0);
        bool is_old = file_is(path, "old"), is_new = file_is(path, "the new one");
        CHECK(is_old || is_new);
        CHECK(is_new || nth < 22); /* the rename is the 21st call where a leftover is removed */
        seen_old |= is_old;
        seen_new |= is_new;
    }
    CHECK(seen_old && seen_new);
}

/* ---- directories ---- */

TEST(dir_make_makes_parents_and_accepts_what_is_there)
{
    const char *folder = test_tmpdir();
    REQUIRE_OK(sl_dir_make(at(folder, "a/b//c/")));
    CHECK(sl_path_exists(at(folder, "a/b/c")));
    REQUIRE_OK(sl_dir_make(at(folder, "a/b/c")));
    REQUIRE(put(at(folder, "file"), ""));
    CHECK_EQ(sl_dir_make(at(folder, "file")), SLUICE_ERR_IO);
    CHECK_EQ(sl_dir_make(at(folder, "file/below")), SLUICE_ERR_IO);
    CHECK_EQ(sl_dir_make(""), SLUICE_ERR_IO);
}

/* Each name that is new is synced in the folder it is in; what is there costs nothing. */
TEST(dir_make_lasting_syncs_the_folder_of_each_one_it_makes)
{
    const char *folder = test_tmpdir();
    breaker syncs = { .call = "fsync" };
    sl_io_set_hook(break_call, &syncs);
    CHECK_EQ(sl_dir_make_lasting(at(folder, "a/b//c/")), SLUICE_OK);
    CHECK_EQ(syncs.count, 3);
    CHECK(sl_path_exists(at(folder, "a/b/c")));
    CHECK_EQ(sl_dir_make_lasting(at(folder, "a/b/c")), SLUICE_OK);
    CHECK_EQ(syncs.count, 3);
    CHECK_EQ(sl_dir_make_lasting(at(folder, "a/b/d")), SLUICE_OK);
    CHECK_EQ(syncs.count, 4);
    syncs = (breaker){ .call = "fsync", .nth = 1, .answer = EIO };
    CHECK_EQ(sl_dir_make_lasting(at(folder, "e")), SLUICE_ERR_IO);
    sl_io_set_hook(NULL, NULL);
    REQUIRE(put(at(folder, "file"), ""));
    CHECK_EQ(sl_dir_make_lasting(at(folder, "file")), SLUICE_ERR_IO);
    CHECK_EQ(sl_dir_make_lasting(at(folder, "file/below")), SLUICE_ERR_IO);
    CHECK_EQ(sl_dir_make_lasting(""), SLUICE_ERR_IO);
}

static sluice_status collect(void *user, const char *name)
{
    char *names = user;
    snprintf(names + strlen(names), 100 - strlen(names), "[%s]", name);
    return SLUICE_OK;
}

static sluice_status stop_at_once(void *user, const char *name)
{
    ++*(int *)user;
    return sl_fail(SLUICE_ERR_FAILED, "stopped at %s", name);
}

TEST(dir_list_names_every_entry_and_stops_on_failure)
{
    const char *folder = test_tmpdir();
    char names[100] = "";
    int calls = 0;
    REQUIRE(put(at(folder, "one"), "") && put(at(folder, ".two"), ""));
    REQUIRE_OK(sl_dir_list(folder, collect, names));
    CHECK_CONTAINS(names, "[one]");
    CHECK_CONTAINS(names, "[.two]");
    CHECK_EQ(strlen(names), 11);
    CHECK_EQ(sl_dir_list(folder, stop_at_once, &calls), SLUICE_ERR_FAILED);
    CHECK_EQ(calls, 1);
    CHECK_EQ(sl_dir_list(at(folder, "missing"), collect, names), SLUICE_ERR_INPUT);
}

TEST(remove_tree_takes_a_folder_of_files)
{
    const char *folder = test_tmpdir();
    REQUIRE_OK(sl_dir_make(at(folder, "d/sub")));
    for (int i = 0; i < 300; i++) {
        char name[16];
        snprintf(name, sizeof name, "d/%d", i);
        REQUIRE(put(at(folder, name), "x"));
    }
    CHECK_EQ(sl_dir_remove_tree(at(folder, "d")), SLUICE_ERR_IO); /* one level only */
    REQUIRE(rmdir(at(folder, "d/sub")) == 0);
    REQUIRE_OK(sl_dir_remove_tree(at(folder, "d")));
    CHECK(!sl_path_exists(at(folder, "d")));
    REQUIRE_OK(sl_dir_remove_tree(at(folder, "d"))); /* missing is fine */
}

TEST(path_remove_and_rename)
{
    const char *folder = test_tmpdir();
    REQUIRE(put(at(folder, "a"), "x"));
    REQUIRE_OK(sl_path_rename(at(folder, "a"), at(folder, "b")));
    CHECK(!sl_path_exists(at(folder, "a")) && sl_path_exists(at(folder, "b")));
    REQUIRE_OK(sl_path_remove(at(folder, "b")));
    REQUIRE_OK(sl_path_remove(at(folder, "b"))); /* missing is fine */
    CHECK_EQ(sl_path_rename(at(folder, "a"), at(folder, "b")), SLUICE_ERR_IO);
}

/* ---- locks ---- */

TEST(lock_is_exclusive_and_names_its_holder)
{
    const char *path = at(test_tmpdir(), "lock");
    char mine[32];
    sl_lock first = { -1 }, second = { -1 };
    REQUIRE_OK(sl_lock_take(path, &first));
    CHECK_EQ(sl_lock_take(path, &second), SLUICE_ERR_USAGE);
    snprintf(mine, sizeof mine, "process %ld", (long)getpid());
    CHECK_CONTAINS(sluice_error(), mine);
    CHECK_EQ(second.fd, -1);
    sl_lock_release(&first);
    sl_lock_release(&first); /* twice is harmless */
    REQUIRE_OK(sl_lock_take(path, &second));
    sl_lock_release(&second);
}

TEST(lock_dies_with_its_holder)
{
    const char *path = at(test_tmpdir(), "lock");
    sl_lock lock = { -1 };
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) _exit(sl_lock_take(path, &lock) == SLUICE_OK ? 0 : 1);
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK_EQ(status, 0);
    REQUIRE_OK(sl_lock_take(path, &lock));
    sl_lock_release(&lock);
}

TEST(lock_release_frees_it_although_a_forked_child_has_the_descriptor)
{
    const char *path = at(test_tmpdir(), "lock");
    sl_lock lock = { -1 }, again = { -1 };
    int hold[2];
    REQUIRE(pipe(hold) == 0);
    REQUIRE_OK(sl_lock_take(path, &lock));
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        char byte;
        close(hold[1]);
        _exit(read(hold[0], &byte, 1) == 0 ? 0 : 1); /* until the parent closes its end */
    }
    sl_lock_release(&lock);
    CHECK_EQ(sl_lock_take(path, &again), SLUICE_OK);
    sl_lock_release(&again);
    close(hold[0]);
    close(hold[1]);
    CHECK(waitpid(child, NULL, 0) == child);
}

/* ---- everything fails once ---- */

static sluice_status use_file(const char *folder)
{
    sl_file f;
    uint64_t size;
    char got[3];
    SL_TRY(sl_file_open(at(folder, "d/file"), SL_CREATE | SL_DIRECT, &f));
    sluice_status st = sl_file_pwrite(&f, "abc", 3, 0);
    if (st == SLUICE_OK) st = sl_file_truncate(&f, 3);
    if (st == SLUICE_OK) st = sl_file_pread(&f, got, 3, 0);
    if (st == SLUICE_OK) st = sl_file_size(&f, &size);
    if (st != SLUICE_OK) {
        sl_file_close(&f);
        return st;
    }
    return sl_file_finish(&f);
}

static sluice_status use_lock(const char *folder)
{
    sl_lock lock = { -1 };
    sluice_status st = sl_lock_take(at(folder, "d/lock"), &lock);
    sl_lock_release(&lock);
    return st;
}

/* Every function that can fail, once. */
static sluice_status use_everything(const char *folder)
{
    char names[100] = "", *text;
    size_t bytes;
    SL_TRY(sl_dir_make(at(folder, "d")));
    SL_TRY(use_file(folder));
    SL_TRY(sl_file_replace(at(folder, "d/small"), "text", 4));
    SL_TRY(sl_file_read_all(at(folder, "d/small"), 100, &text, &bytes));
    sl_free(text);
    SL_TRY(sl_file_read_all("/proc/self/stat", 10000, &text, &bytes));
    sl_free(text);
    SL_TRY(use_lock(folder));
    SL_TRY(sl_path_rename(at(folder, "d/small"), at(folder, "d/other")));
    SL_TRY(sl_dir_sync(at(folder, "d")));
    SL_TRY(sl_dir_list(at(folder, "d"), collect, names));
    SL_TRY(sl_path_remove(at(folder, "d/other")));
    return sl_dir_remove_tree(at(folder, "d"));
}

/* What a failure must not leave behind. */
static void check_nothing_is_held(const sl_alloc_stats *before, int descriptors)
{
    sl_alloc_stats now;
    sl_alloc_get_stats(&now);
    CHECK_EQ(now.live_count, before->live_count);
    CHECK_EQ(now.live_bytes, before->live_bytes);
    CHECK_EQ(open_descriptors(), descriptors);
}

TEST(any_failing_io_call_leaks_nothing_and_is_reported)
{
    const char *folder = test_tmpdir();
    sl_alloc_stats before;
    int failures = 0, silent = 0;
    sl_alloc_get_stats(&before);
    int descriptors = open_descriptors();
    for (int nth = 1; nth < 1000; nth++) {
        breaker b = { .nth = nth, .answer = EIO };
        sl_fail(SLUICE_OK, "%s", "");
        sl_io_set_hook(break_call, &b);
        sluice_status st = use_everything(folder);
        sl_io_set_hook(NULL, NULL);
        check_nothing_is_held(&before, descriptors);
        if (b.count < nth) break;
        failures += st != SLUICE_OK;
        silent += st == SLUICE_OK;
        if (st != SLUICE_OK) CHECK_CONTAINS(sluice_error(), strerror(EIO));
    }
    CHECK(failures > 30);
    /* closing readers, directories and locks, unlocking, and removing the name of a lock have no result worth a failure */
    CHECK(silent <= 11);
    REQUIRE_OK(use_everything(folder));
}

TEST(all_io_failing_from_the_nth_call_on_leaks_nothing)
{
    const char *folder = test_tmpdir();
    sl_alloc_stats before;
    sl_alloc_get_stats(&before);
    int descriptors = open_descriptors();
    for (int nth = 1; nth < 1000; nth++) {
        breaker b = { .nth = nth, .answer = ENOSPC, .again = true };
        sl_io_set_hook(break_call, &b);
        use_everything(folder);
        sl_io_set_hook(NULL, NULL);
        check_nothing_is_held(&before, descriptors);
        if (b.count < nth) break;
    }
    REQUIRE_OK(use_everything(folder));
}

TEST(any_failing_allocation_of_io_leaks_nothing)
{
    const char *folder = test_tmpdir();
    sl_alloc_stats before;
    sl_alloc_get_stats(&before);
    int descriptors = open_descriptors();
    int64_t nth = 1;
    for (; nth < 100; nth++) {
        sl_alloc_fail_nth(nth, 0);
        sluice_status st = use_everything(folder);
        sl_alloc_fail_nth(0, 0);
        check_nothing_is_held(&before, descriptors);
        if (st == SLUICE_OK) break;
        CHECK_EQ(st, SLUICE_ERR_NO_MEMORY);
    }
    CHECK(nth > 5 && nth < 100);
}

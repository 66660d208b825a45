/* output_test.c: files that are written whole: what is replaced, what is kept of it, and what is refused.
 *
 * Devices, pipes and links are all made in a folder of the test. */
#include <errno.h>
#include <limits.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <unistd.h>

#include "core/output.h"
#include "core/status.h"
#include "support/plain_files.h"
#include "test.h"

static mode_t type_of(const char *path)
{
    struct stat info;
    return lstat(path, &info) == 0 ? info.st_mode & S_IFMT : 0;
}

static struct stat facts(const char *path)
{
    struct stat info = { .st_mode = 0 };
    if (stat(path, &info) != 0) test_fail(__FILE__, __LINE__, "%s is missing", path);
    return info;
}

/* ---- refused ---- */

static bool make_socket(const char *path)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    bool made = fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof address) == 0;
    if (fd >= 0) close(fd);
    return made;
}

/* Refused with what it is, and still there as it was, without a file beside it. */
static void check_refused(const char *folder, const char *name, mode_t type, const char *what)
{
    char path[2048], temporary[2060];
    snprintf(path, sizeof path, "%s", at(folder, name));
    snprintf(temporary, sizeof temporary, "%s.tmp", path);
    CHECK_EQ(sl_file_replace(path, "new", 3), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), what);
    CHECK_CONTAINS(sluice_error(), name);
    CHECK_EQ(type_of(path), type);
    CHECK(access(temporary, F_OK) != 0);
}

TEST(an_output_never_replaces_what_is_no_regular_file)
{
    char folder[1024];
    snprintf(folder, sizeof folder, "%s", test_tmpdir());
    REQUIRE(mkfifo(at(folder, "pipe"), 0600) == 0 && mkdir(at(folder, "folder"), 0700) == 0);
    check_refused(folder, "pipe", S_IFIFO, "a named pipe");
    check_refused(folder, "folder", S_IFDIR, "a directory");
    if (make_socket(at(folder, "socket"))) check_refused(folder, "socket", S_IFSOCK, "a socket");
    if (mknod(at(folder, "node"), S_IFCHR | 0600, makedev(1, 3)) == 0) /* root alone may */
        check_refused(folder, "node", S_IFCHR, "a device");
    REQUIRE(symlink("pipe", at(folder, "link")) == 0);
    check_refused(folder, "link", S_IFLNK, "a named pipe");
}

TEST(an_output_has_a_name)
{
    CHECK_EQ(sl_file_replace("", "x", 1), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "is empty; name a file");
    CHECK_EQ(sl_file_replace(at(test_tmpdir(), "new/"), "x", 1), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "names a directory");
    CHECK_EQ(sl_file_replace(at(test_tmpdir(), "no/such"), "x", 1), SLUICE_ERR_IO);
    CHECK_CONTAINS(sluice_error(), "No such file");
}

TEST(what_became_a_directory_meanwhile_is_not_replaced)
{
    char path[PATH_MAX];
    sl_output o;
    snprintf(path, sizeof path, "%s", at(test_tmpdir(), "a"));
    REQUIRE_OK(sl_output_begin(path, &o));
    REQUIRE(mkfifo(path, 0600) == 0);
    CHECK_EQ(sl_output_finish(&o), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "a named pipe");
    CHECK_EQ(type_of(path), S_IFIFO);
    CHECK(access(o.claim.temporary, F_OK) != 0);
}

/* ---- links ---- */

TEST(an_output_is_written_through_links)
{
    char folder[1024];
    snprintf(folder, sizeof folder, "%s", test_tmpdir());
    REQUIRE(mkdir(at(folder, "deep"), 0700) == 0 && put(at(folder, "deep/real"), "old"));
    REQUIRE(symlink("deep/second", at(folder, "first")) == 0 && symlink("real", at(folder, "deep/second")) == 0);
    REQUIRE_OK(sl_file_replace(at(folder, "first"), "new", 3));
    CHECK_EQ(type_of(at(folder, "first")), S_IFLNK);
    CHECK_EQ(type_of(at(folder, "deep/second")), S_IFLNK);
    CHECK(file_is(at(folder, "deep/real"), "new"));
    CHECK(access(at(folder, "deep/real.tmp"), F_OK) != 0);
}

TEST(a_link_to_nothing_gets_its_file)
{
    char folder[1024], absolute[PATH_MAX];
    snprintf(folder, sizeof folder, "%s", test_tmpdir());
    snprintf(absolute, sizeof absolute, "%s", at(folder, "made"));
    REQUIRE(symlink(absolute, at(folder, "link")) == 0);
    REQUIRE_OK(sl_file_replace(at(folder, "link"), "new", 3));
    CHECK_EQ(type_of(at(folder, "link")), S_IFLNK);
    CHECK(file_is(absolute, "new"));
}

TEST(links_in_a_circle_are_refused)
{
    char folder[1024];
    snprintf(folder, sizeof folder, "%s", test_tmpdir());
    REQUIRE(symlink("b", at(folder, "a")) == 0 && symlink("a", at(folder, "b")) == 0);
    CHECK_EQ(sl_file_replace(at(folder, "a"), "x", 1), SLUICE_ERR_IO);
    CHECK_CONTAINS(sluice_error(), "check the links");
}

/* ---- kept ---- */

TEST(an_output_keeps_mode_and_owner_of_the_file_it_replaces)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s", at(test_tmpdir(), "a"));
    REQUIRE(put(path, "old") && chmod(path, 0640) == 0);
    bool root = geteuid() == 0;
    if (root) REQUIRE(chown(path, 12345, 54321) == 0);
    REQUIRE_OK(sl_file_replace(path, "new", 3));
    CHECK_EQ(facts(path).st_mode & 07777, 0640);
    CHECK(file_is(path, "new"));
    if (root) CHECK_EQ(facts(path).st_uid, 12345);
    if (root) CHECK_EQ(facts(path).st_gid, 54321);
}

TEST(nobody_else_can_read_a_private_output_while_it_is_written)
{
    char path[PATH_MAX];
    sl_output o;
    snprintf(path, sizeof path, "%s", at(test_tmpdir(), "a"));
    REQUIRE(put(path, "old") && chmod(path, 0600) == 0);
    REQUIRE_OK(sl_output_begin(path, &o));
    CHECK_EQ(facts(o.claim.temporary).st_mode & 07777, 0600);
    sl_output_drop(&o);
    CHECK(file_is(path, "old"));
}

TEST(a_new_output_has_the_mode_that_the_umask_leaves)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s", at(test_tmpdir(), "a"));
    mode_t before = umask(027);
    sluice_status st = sl_file_replace(path, "x", 1);
    umask(before);
    CHECK_EQ(st, SLUICE_OK);
    CHECK_EQ(facts(path).st_mode & 07777, 0640);
}

/* ---- the temporary file ---- */

TEST(a_leftover_of_a_killed_run_is_replaced_and_nothing_behind_it)
{
    char folder[1024];
    snprintf(folder, sizeof folder, "%s", test_tmpdir());
    REQUIRE(put(at(folder, "other"), "precious") && link(at(folder, "other"), at(folder, "a.tmp")) == 0);
    REQUIRE_OK(sl_file_replace(at(folder, "a"), "new", 3));
    CHECK(file_is(at(folder, "other"), "precious"));
    CHECK(file_is(at(folder, "a"), "new"));
    REQUIRE(symlink("other", at(folder, "a.tmp")) == 0);
    CHECK_EQ(sl_file_replace(at(folder, "a"), "newer", 5), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "a.tmp, which is needed");
    CHECK(file_is(at(folder, "other"), "precious"));
    CHECK(file_is(at(folder, "a"), "new"));
}

/* ---- inputs, other outputs, trials ---- */

static bool is_file(const char *output, const char *input)
{
    sl_target t;
    bool same = false;
    CHECK_EQ(sl_target_find(output, &t), SLUICE_OK);
    CHECK_EQ(sl_target_is_file(&t, input, &same), SLUICE_OK);
    return same;
}

TEST(an_input_is_known_by_its_inode_however_it_is_spelt)
{
    char folder[1024];
    snprintf(folder, sizeof folder, "%s", test_tmpdir());
    REQUIRE(put(at(folder, "data"), "x") && put(at(folder, "other"), "x") && mkdir(at(folder, "d"), 0700) == 0);
    REQUIRE(link(at(folder, "data"), at(folder, "hard")) == 0 && symlink("data", at(folder, "soft")) == 0);
    CHECK(is_file(at(folder, "data"), at(folder, "data")));
    CHECK(is_file(at(folder, "d/../data"), at(folder, "data")));
    CHECK(is_file(at(folder, "hard"), at(folder, "data")));
    CHECK(is_file(at(folder, "soft"), at(folder, "data")));
    CHECK(is_file(at(folder, "data"), at(folder, "soft")));
    CHECK(!is_file(at(folder, "other"), at(folder, "data")));
    CHECK(!is_file(at(folder, "new"), at(folder, "data")));
    CHECK(!is_file(at(folder, "new"), at(folder, "missing")));
    REQUIRE(put(at(folder, "new.tmp"), "x")); /* an input that the temporary file would replace */
    CHECK(is_file(at(folder, "new"), at(folder, "new.tmp")));
}

static bool is_target(const char *a, const char *b)
{
    sl_target of_a, of_b;
    bool same = false;
    CHECK_EQ(sl_target_find(a, &of_a), SLUICE_OK);
    CHECK_EQ(sl_target_find(b, &of_b), SLUICE_OK);
    CHECK_EQ(sl_target_is_target(&of_a, &of_b, &same), SLUICE_OK);
    return same;
}

TEST(two_outputs_that_are_one_file_are_known_before_it_is_there)
{
    char folder[1024];
    snprintf(folder, sizeof folder, "%s", test_tmpdir());
    REQUIRE(mkdir(at(folder, "d"), 0700) == 0 && symlink("x", at(folder, "link")) == 0);
    CHECK(is_target(at(folder, "x"), at(folder, "d/../x")));
    CHECK(is_target(at(folder, "x"), at(folder, "link")));
    CHECK(is_target(at(folder, "x.tmp"), at(folder, "x")));
    CHECK(!is_target(at(folder, "x"), at(folder, "d/x")));
    CHECK(!is_target(at(folder, "x"), at(folder, "y")));
}

TEST(a_trial_finds_what_would_fail_and_changes_nothing)
{
    char folder[1024];
    sl_target t;
    snprintf(folder, sizeof folder, "%s", test_tmpdir());
    REQUIRE(put(at(folder, "a"), "old"));
    REQUIRE_OK(sl_target_find(at(folder, "a"), &t));
    CHECK_EQ(sl_target_try(&t), SLUICE_OK);
    CHECK(file_is(at(folder, "a"), "old"));
    CHECK(access(t.lock, F_OK) != 0);
    REQUIRE_OK(sl_target_find(at(folder, "new"), &t));
    CHECK_EQ(sl_target_try(&t), SLUICE_OK);
    CHECK(access(t.path, F_OK) != 0 && access(t.lock, F_OK) != 0);
    REQUIRE_OK(sl_target_find(at(folder, "no/such"), &t));
    CHECK_EQ(sl_target_try(&t), SLUICE_ERR_IO);
    CHECK_EQ(sl_target_find(at(folder, "a/below"), &t), SLUICE_ERR_IO); /* a file as a folder */
    CHECK_CONTAINS(sluice_error(), "Not a directory");
}

/* ---- reading and locking ---- */

TEST(what_has_no_end_is_not_read)
{
    char path[PATH_MAX];
    char *text;
    size_t bytes;
    snprintf(path, sizeof path, "%s", at(test_tmpdir(), "zeros"));
    if (mknod(path, S_IFCHR | 0600, makedev(1, 5)) == 0) { /* reads as zeros without end */
        CHECK_EQ(sl_file_read_all(path, 1 << 20, &text, &bytes), SLUICE_ERR_INPUT);
        CHECK_CONTAINS(sluice_error(), "is a device; name a regular file");
    }
    snprintf(path, sizeof path, "%s", at(test_tmpdir(), "pipe"));
    REQUIRE(mkfifo(path, 0600) == 0);
    CHECK_EQ(sl_file_read_all(path, 1 << 20, &text, &bytes), SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), "is a named pipe; name a regular file");
}

TEST(a_lock_is_not_taken_through_a_link)
{
    char folder[1024];
    sl_lock lock;
    snprintf(folder, sizeof folder, "%s", test_tmpdir());
    REQUIRE(put(at(folder, "data"), "precious") && symlink("data", at(folder, "lock")) == 0);
    CHECK_EQ(sl_lock_take(at(folder, "lock"), &lock), SLUICE_ERR_IO);
    CHECK(file_is(at(folder, "data"), "precious"));
    REQUIRE(mkfifo(at(folder, "pipe"), 0600) == 0);
    CHECK(sl_lock_take(at(folder, "pipe"), &lock) != SLUICE_OK);
}

/* A folder that is written whole is the old one or the new one, whatever happens on the way. */
#include "core/output_folder.h"

#include <errno.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/status.h"
#include "support/plain_files.h"
#include "test.h"

#define PATH_BYTES 1100

static const char *const signs[] = { "config", "weights", NULL };

static bool disowns(const char *name)
{
    return strcmp(name, "config") == 0 || strncmp(name, "weights", 7) == 0;
}

/* The nth call fails with `error`, or ends the process where that is 0; calls named `never` fail with ENOSYS always. */
typedef struct trouble {
    int calls, at, error;
    const char *never;
} trouble;

static int make_trouble(void *user, const char *call, const char *path)
{
    trouble *t = user;
    (void)path;
    if (t->never != NULL && strcmp(call, t->never) == 0) return ENOSYS;
    if (++t->calls != t->at) return 0;
    if (t->error == 0) _exit(9);
    return t->error;
}

/* config and two weights, all with `text`. */
static sluice_status write_folder(const char *path, const char *text, const char *second)
{
    sl_folder_output o;
    char file[PATH_MAX];
    const char *const names[] = { "weights-1", second, "config" };
    SL_TRY(sl_folder_output_begin(path, signs, &o));
    for (int i = 0; i < 3; i++) {
        sluice_status st = sl_folder_output_path(&o, names[i], file);
        if (st == SLUICE_OK) st = sl_file_write_all(file, text, strlen(text));
        if (st != SLUICE_OK) {
            sl_folder_output_drop(&o);
            return st;
        }
    }
    return sl_folder_output_finish(&o, disowns);
}

static bool is_folder_of(const char *path, const char *text, const char *second, const char *other)
{
    return file_is(at(path, "weights-1"), text) && file_is(at(path, second), text) &&
           file_is(at(path, "config"), text) && access(at(path, other), F_OK) != 0;
}

static bool is_there(const char *path, const char *ending)
{
    char name[PATH_MAX];
    snprintf(name, sizeof name, "%s%s", path, ending);
    return access(name, F_OK) == 0;
}

/* A folder that is not there, in memory where that can be: each fsync is free there. */
static void make_place(char path[PATH_BYTES])
{
    snprintf(path, PATH_BYTES, "%.1000s", test_memory_path());
}

TEST(a_folder_is_made_or_replaced_and_keeps_what_is_not_the_models)
{
    char path[PATH_BYTES], link[PATH_BYTES + 8];
    make_place(path);
    REQUIRE_OK(write_folder(path, "old", "weights-2"));
    CHECK(is_folder_of(path, "old", "weights-2", "weights-3"));
    REQUIRE(put(at(path, "README"), "mine"));
    REQUIRE_OK(write_folder(path, "new", "weights-3"));
    CHECK(is_folder_of(path, "new", "weights-3", "weights-2"));
    CHECK(file_is(at(path, "README"), "mine"));
    CHECK(!is_there(path, ".tmp") && !is_there(path, ".old"));
    /* through a link, which stays, and with slashes at the end */
    snprintf(link, sizeof link, "%s.link", path);
    REQUIRE(symlink(path, link) == 0);
    strcat(link, "//");
    REQUIRE_OK(write_folder(link, "third", "weights-2"));
    CHECK(is_folder_of(path, "third", "weights-2", "weights-3"));
}

/* What is there after trouble in the second writing; the third must then succeed. */
static void check_after(const char *path, bool replaces, const char *what, int n)
{
    sl_folder_target t;
    CHECK_EQ(sl_folder_target_find(path, signs, &t), SLUICE_OK); /* puts an old one back */
    bool old = is_folder_of(path, "old", "weights-2", "weights-3");
    bool new = is_folder_of(path, "new", "weights-3", "weights-2");
    bool none = access(path, F_OK) != 0;
    CHECK_THAT(old || new || (none && !replaces), "%s at call %d leaves neither the old folder nor the new one", what,
               n);
    CHECK(!replaces || file_is(at(path, "README"), "mine"));
    CHECK_EQ(write_folder(path, "end", "weights-3"), SLUICE_OK);
    CHECK(is_folder_of(path, "end", "weights-3", "weights-2"));
    CHECK(!is_there(path, ".tmp") && !is_there(path, ".old"));
}

/* False: the call was not reached. */
static bool try_trouble(bool replaces, const char *never, int n, int error)
{
    char path[PATH_BYTES];
    trouble t = { .at = n, .error = error, .never = never };
    int status = 0;
    make_place(path);
    if (replaces) CHECK_EQ(write_folder(path, "old", "weights-2"), SLUICE_OK);
    if (replaces) CHECK(put(at(path, "README"), "mine"));
    if (error != 0) {
        sl_io_set_hook(make_trouble, &t);
        sluice_status st = write_folder(path, "new", "weights-3");
        sl_io_set_hook(NULL, NULL);
        CHECK(st == SLUICE_OK || t.calls >= n);
        check_after(path, replaces, "a failure", n);
        return t.calls >= n;
    }
    pid_t child = fork();
    if (child == 0) {
        sl_io_set_hook(make_trouble, &t);
        _exit(write_folder(path, "new", "weights-3") == SLUICE_OK ? 0 : 1);
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 9);
    check_after(path, replaces, "a kill", n);
    return WEXITSTATUS(status) == 9;
}

TEST(trouble_at_any_call_leaves_the_old_folder_or_the_new_one)
{
    for (int replaces = 0; replaces < 2; replaces++)
        for (int exchanges = 0; exchanges < 2; exchanges++)
            for (int kills = 0; kills < 2; kills++) {
                int n = 1;
                while (n < 500 && try_trouble(replaces, exchanges ? NULL : "exchange", n, kills ? 0 : EIO)) n++;
                CHECK(n > 15 && n < 500);
            }
}

TEST(what_cannot_be_replaced_is_refused)
{
    char path[PATH_BYTES];
    sl_folder_target t;
    make_place(path);
    REQUIRE(put(path, "a file"));
    CHECK_EQ(sl_folder_target_find(path, signs, &t), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "not replaced by a folder");
    REQUIRE(unlink(path) == 0 && mkdir(path, 0777) == 0);
    REQUIRE_OK(sl_folder_target_find(path, signs, &t)); /* empty */
    REQUIRE_OK(sl_folder_target_try(&t));
    CHECK(!is_there(path, ".tmp"));
    REQUIRE(put(at(path, "notes"), "x"));
    CHECK_EQ(sl_folder_target_find(path, signs, &t), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "holds files, but no config");
    REQUIRE(put(at(path, "weights"), "x"));
    REQUIRE_OK(sl_folder_target_find(path, signs, &t));
    REQUIRE(mkdir(at(path, "step-3"), 0777) == 0);
    CHECK_EQ(sl_folder_target_find(path, signs, &t), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "holds \"step-3\", a directory");
    CHECK_EQ(sl_folder_target_find(".", signs, &t), SLUICE_ERR_USAGE);
    CHECK_EQ(sl_folder_target_find("/", signs, &t), SLUICE_ERR_USAGE);
    CHECK_EQ(sl_folder_target_find("/proc/", signs, &t), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "mount point");
    snprintf(path, sizeof path, "%.1000s/none/out", test_tmpdir());
    REQUIRE_OK(sl_folder_target_find(path, signs, &t));
    CHECK_EQ(sl_folder_target_try(&t), SLUICE_ERR_IO);
    CHECK_CONTAINS(sluice_error(), "there is no folder");
}

TEST(a_folder_knows_what_lies_in_it)
{
    char path[PATH_BYTES], link[PATH_BYTES + 8], parent[PATH_BYTES];
    sl_folder_target t;
    bool holds;
    make_place(path);
    snprintf(parent, sizeof parent, "%.*s", (int)(strrchr(path, '/') - path), path);
    REQUIRE_OK(sl_folder_target_find(path, signs, &t)); /* before it is there */
    REQUIRE_OK(sl_folder_target_is_above(&t, path, &holds));
    CHECK(holds);
    REQUIRE_OK(sl_folder_target_is_above(&t, at(path, "a/b/"), &holds));
    CHECK(holds);
    REQUIRE_OK(sl_folder_target_is_above(&t, at(parent, "out2"), &holds));
    CHECK(!holds);
    REQUIRE_OK(write_folder(path, "x", "weights-2"));
    REQUIRE_OK(sl_folder_target_find(path, signs, &t));
    REQUIRE_OK(sl_folder_target_holds(&t, path, &holds));
    CHECK(holds);
    REQUIRE_OK(sl_folder_target_holds(&t, at(path, "config"), &holds));
    CHECK(holds);
    snprintf(link, sizeof link, "%s.link", path);
    REQUIRE(symlink(at(path, "config"), link) == 0);
    REQUIRE_OK(sl_folder_target_holds(&t, link, &holds));
    CHECK(holds);
    REQUIRE(put(at(parent, "other"), "x"));
    REQUIRE_OK(sl_folder_target_holds(&t, at(parent, "other"), &holds));
    CHECK(!holds);
    REQUIRE_OK(sl_folder_target_is_above(&t, at(path, "trace.json"), &holds));
    CHECK(holds);
}

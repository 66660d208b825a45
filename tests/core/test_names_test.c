/* test_names_test.c: every source below tests/ is either a test, *_test.c or *_fuzz.c, which is what the build takes, or a
 * helper in tests/support/; no two have the same name; and expected-skips names tests and needs that exist. */
#include <ftw.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "test.h"

static int files_seen;
static char file_names[1024][64];

static bool has_ending(const char *name, const char *ending)
{
    size_t n = strlen(name), e = strlen(ending);
    return n >= e && strcmp(name + n - e, ending) == 0;
}

static int check_file(const char *path, const struct stat *info, int type, struct FTW *walk)
{
    (void)info;
    const char *name = path + walk->base;
    if (type != FTW_F || !(has_ending(name, ".c") || has_ending(name, ".h") || has_ending(name, ".cc"))) return 0;
    bool helper = strstr(path, "/tests/support/") != NULL || strcmp(name, "test.c") == 0 || strcmp(name, "test.h") == 0;
    bool target = strstr(path, "/tests/fuzz/") != NULL && has_ending(name, "_fuzz.c");
    bool referee =
        strstr(path, "/tests/referees/") != NULL; /* programs that the scripts there run; CMakeLists.txt names them */
    if (!helper && !target && !referee && !has_ending(name, "_test.c") &&
        !has_ending(name, "_cases.h")) /* a table beside its test */
        test_fail(path, 1, "neither a test (*_test.c) nor in tests/support/: it would not be built");
    if (helper && has_ending(name, "_test.c")) test_fail(path, 1, "a test among the helpers would not be run");
    for (int i = 0; i < files_seen; i++)
        if (strcmp(file_names[i], name) == 0) test_fail(path, 1, "another folder of tests/ has a file of this name");
    if (files_seen < 1024) snprintf(file_names[files_seen++], sizeof file_names[0], "%.63s", name);
    return 0;
}

TEST(sources_below_tests_are_tests_or_helpers_and_have_names_of_their_own)
{
    files_seen = 0;
    REQUIRE(nftw(SLUICE_SOURCE_DIR "/tests", check_file, 16, FTW_PHYS) == 0);
    CHECK(files_seen > 100);
}

/* Whether a test source below tests/ has TEST(name), also as the first argument of a macro that makes tests; in Python, a method
 * test_name; or the shell's tests have a function of that name. */
static bool test_exists(const char *name)
{
    char command[1024];
    snprintf(command, sizeof command,
             "grep -rqF --include='*_test.c' --include='*_test.py' -e 'TEST(%s' -e 'def test_%s(' " SLUICE_SOURCE_DIR
             "/tests || grep -q '^%s() {' " SLUICE_SOURCE_DIR "/tests/install/install_test.sh.in",
             name, name, name);
    return system(command) == 0;
}

static bool need_is_known(const char *need)
{
    char command[512];
    snprintf(command, sizeof command, SLUICE_SOURCE_DIR "/tests/needs " SLUICE_BINARY_DIR " %s > /dev/null 2>&1", need);
    int status = system(command);
    return WIFEXITED(status) && WEXITSTATUS(status) < 2;
}

TEST(expected_skips_are_of_tests_and_needs_that_exist)
{
    char line[256], name[128], need[32];
    FILE *list = fopen(SLUICE_SOURCE_DIR "/tests/expected-skips", "r");
    REQUIRE(list != NULL);
    while (fgets(line, sizeof line, list) != NULL) {
        CHECK_THAT(sscanf(line, "%127[a-z0-9_]: %31[a-z0-9_]", name, need) == 2, "not \"test: need\": %s", line);
        CHECK_THAT(test_exists(name), "there is no test %s", name);
        CHECK_THAT(need_is_known(need), "tests/needs does not know %s", need);
    }
    fclose(list);
}

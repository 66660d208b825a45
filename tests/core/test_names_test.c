/* test_names_test.c: every source below tests/ is either a test, *_test.c, which is what the build takes, or a helper in
 * tests/support/; and no two have the same name. */
#include <ftw.h>
#include <sys/stat.h>

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
    if (!helper && !has_ending(name, "_test.c") && !has_ending(name, "_cases.h")) /* a table beside its test */
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

/* path_list_test.c: files that a pattern names. */
#include "core/path_list.h"

#include <sys/stat.h>
#include <unistd.h>

#include "core/status.h"
#include "test.h"

static char folder[4200];

static void make(const char *name)
{
    char path[4400];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    if (f == NULL || fclose(f) != 0) exit(99);
}

/* The last names of what the pattern names, with spaces between them. */
static const char *expand(const char *pattern)
{
    static char names[256];
    char path[4400];
    sl_path_list list = { NULL, 0 };
    names[0] = '\0';
    snprintf(path, sizeof path, "%s/%s", folder, pattern);
    if (sl_path_expand(NULL, path, &list) != SLUICE_OK) return "refused";
    for (int i = 0; i < list.count; i++) {
        strcat(names, i > 0 ? " " : "");
        strcat(names, strrchr(list.paths[i], '/') + 1);
    }
    sl_path_list_free(&list);
    return names;
}

TEST(patterns_name_files_in_byte_order_and_each_once)
{
    snprintf(folder, sizeof folder, "%s", test_tmpdir());
    static const char *const names[] = { "a10.bin", "a2.bin", "B1.bin", "c.txt", "a[1].bin", ".hidden.bin" };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) make(names[i]);
    CHECK_STR(expand("*.bin"), "B1.bin a10.bin a2.bin a[1].bin");
    CHECK_STR(expand("a?.bin"), "a2.bin");
    CHECK_STR(expand("{c.txt,a2.*,a*.bin}"), "a10.bin a2.bin a[1].bin c.txt");
    CHECK_STR(expand("[a-c]2.bin"), "a2.bin");
    CHECK_STR(expand("a[1].bin"), "a[1].bin"); /* a file of that very name */
    CHECK_STR(expand("c.txt"), "c.txt");
    CHECK_STR(expand("d*"), "refused");
    CHECK_CONTAINS(sluice_error(), "d*: no file has that name");
    CHECK_STR(expand("nowhere/*.bin"), "refused");
}

TEST(braces_nest_and_stand_for_themselves_where_they_are_not_closed)
{
    snprintf(folder, sizeof folder, "%s", test_tmpdir());
    static const char *const names[] = {
        "ax.bin", "bx.bin", "by.bin", "c{1.bin", "d,e", "x{}y", "xy", "f}g", "h{i,j}"
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) make(names[i]);
    CHECK_STR(expand("{a,b{x,y}}*"), "ax.bin bx.bin by.bin");
    CHECK_STR(expand("{a,b}{x,y}.b{i,o}n"), "ax.bin bx.bin by.bin");
    CHECK_STR(expand("c{1*"), "c{1.bin");
    CHECK_STR(expand("c{?,1*"), "refused");
    CHECK_STR(expand("{d\\,e,none}"), "d,e");
    CHECK_STR(expand("{,a}x{,.bin}"), "ax.bin");
    CHECK_STR(expand("{x,z}{}?"), "xy");
    CHECK_STR(expand("{a,b}x.*}"), "refused");
    CHECK_STR(expand("{f,z}}g"), "f}g");
    CHECK_STR(expand("h\\{i,{j,k}\\}"), "h{i,j}");
    CHECK_STR(expand("{ax.bin,ax.bin}"), "ax.bin");
}

TEST(a_pattern_of_more_names_than_anybody_means_is_refused_at_once_and_a_signal_ends_the_search)
{
    char pattern[4000] = "", most[128] = "", path[4400];
    const int asked = 2;
    sl_path_list list;
    snprintf(folder, sizeof folder, "%s", test_tmpdir());
    make("bbbbbbbbbbbb");
    for (int i = 0; i < 12; i++) strcat(most, "{a,b}"); /* 4,096 */
    for (int i = 0; i < 700; i++) strcat(pattern, "{a,b}");
    CHECK_STR(expand(most), "bbbbbbbbbbbb");
    CHECK_STR(expand(pattern), "refused");
    CHECK_CONTAINS(sluice_error(), "the braces of the pattern stand for more than 4096 names; use *");
    CHECK_EQ(sl_path_expand(NULL, pattern, &list), SLUICE_ERR_USAGE);
    snprintf(path, sizeof path, "%s/%s", folder, most);
    CHECK_EQ(sl_path_expand(&asked, path, &list), SLUICE_ERR_STOPPED);
}

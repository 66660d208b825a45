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
    if (sl_path_expand(path, &list) != SLUICE_OK) return "refused";
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

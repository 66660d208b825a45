/* line_file_test.c: files that a run appends to: whole lines whatever happens. */
#include "monitor/line_file.h"

#include <errno.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/plain_files.h"
#include "support/run.h"
#include "test.h"

static void append_raw(const char *path, const char *text)
{
    FILE *f = fopen(path, "a");
    REQUIRE(f != NULL);
    fputs(text, f);
    fclose(f);
}

static void check_content(const char *path, const char *expected)
{
    char *text = run_read(path);
    CHECK_STR(text, expected);
    free(text);
}

TEST(lines_are_appended_to_what_is_there)
{
    const char *path = at(test_tmpdir(), "a.jsonl");
    for (int start = 0; start < 2; start++) {
        sl_line_file f = { 0 };
        CHECK_EQ(sl_line_file_open(&f, path), SLUICE_OK);
        CHECK_EQ(sl_line_file_add(&f, "one\n", 4), SLUICE_OK);
        CHECK_EQ(sl_line_file_add(&f, "three\n", 6), SLUICE_OK);
        sl_line_file_close(&f);
    }
    check_content(path, "one\nthree\none\nthree\n");
}

TEST(a_torn_last_line_is_cut_off_at_the_next_start)
{
    static const char *const torn[] = { "{\"half\"", "x", "" };
    for (size_t i = 0; i < sizeof torn / sizeof torn[0]; i++) {
        const char *path = at(test_tmpdir(), "b.jsonl");
        sl_line_file f = { 0 };
        append_raw(path, "whole\n");
        append_raw(path, torn[i]);
        CHECK_EQ(sl_line_file_open(&f, path), SLUICE_OK);
        CHECK_EQ(sl_line_file_add(&f, "next\n", 5), SLUICE_OK);
        sl_line_file_close(&f);
        check_content(path, "whole\nnext\n");
    }
}

TEST(a_torn_line_longer_than_any_block_is_cut_off_too)
{
    const char *path = at(test_tmpdir(), "c.jsonl");
    sl_line_file f = { 0 };
    append_raw(path, "whole\n");
    for (int i = 0; i < 3000; i++) append_raw(path, "0123456789");
    CHECK_EQ(sl_line_file_open(&f, path), SLUICE_OK);
    CHECK_EQ(f.end, 6);
    sl_line_file_close(&f);
    check_content(path, "whole\n");
}

TEST(the_last_line_is_read_back)
{
    const char *path = at(test_tmpdir(), "d.jsonl");
    char text[16];
    sl_line_file f = { 0 };
    CHECK_EQ(sl_line_file_open(&f, path), SLUICE_OK);
    CHECK_EQ(sl_line_file_tail(&f, text, sizeof text), SLUICE_OK);
    CHECK_STR(text, "");
    CHECK_EQ(sl_line_file_add(&f, "first line of many bytes\n", 25), SLUICE_OK);
    CHECK_EQ(sl_line_file_tail(&f, text, sizeof text), SLUICE_OK);
    CHECK_STR(text, "e of many bytes");
    CHECK_EQ(sl_line_file_add(&f, "second\n", 7), SLUICE_OK);
    CHECK_EQ(sl_line_file_tail(&f, text, sizeof text), SLUICE_OK);
    CHECK_STR(text, "second");
    sl_line_file_close(&f);
}

/* Lets the next write take `bytes` bytes and fails the one after, and all that follow. */
typedef struct full_disk {
    int bytes, writes;
    bool full;
} full_disk;

static int refuse_writes(void *user, const char *call, const char *path)
{
    full_disk *d = user;
    (void)path;
    if (!d->full || strcmp(call, "pwrite") != 0) return 0;
    return d->writes++ == 0 && d->bytes > 0 ? -d->bytes : ENOSPC;
}

TEST(a_full_disk_leaves_whole_lines_and_writing_goes_on_when_there_is_room)
{
    const char *path = at(test_tmpdir(), "e.jsonl");
    sl_line_file f = { 0 };
    full_disk disk = { .bytes = 3 };
    CHECK_EQ(sl_line_file_open(&f, path), SLUICE_OK);
    CHECK_EQ(sl_line_file_add(&f, "first\n", 6), SLUICE_OK);
    sl_io_set_hook(refuse_writes, &disk);
    disk.full = true;
    CHECK_EQ(sl_line_file_add(&f, "second\n", 7), SLUICE_ERR_IO);
    CHECK_CONTAINS(sluice_error(), "No space left");
    check_content(path, "first\n");
    disk.full = false;
    CHECK_EQ(sl_line_file_add(&f, "third\n", 6), SLUICE_OK);
    sl_io_set_hook(NULL, NULL);
    sl_line_file_close(&f);
    check_content(path, "first\nthird\n");
}

TEST(the_newest_line_can_become_another_and_stays_what_it_was_on_a_full_disk)
{
    const char *path = at(test_tmpdir(), "f.csv");
    sl_line_file f = { 0 };
    full_disk disk = { .bytes = 4, .full = true };
    CHECK_EQ(sl_line_file_open(&f, path), SLUICE_OK);
    CHECK_EQ(sl_line_file_add(&f, "h\n", 2), SLUICE_OK);
    CHECK_EQ(sl_line_file_add(&f, "1,\n", 3), SLUICE_OK);
    CHECK_EQ(sl_line_file_replace(&f, "1,0.5\n", 6, "1,\n", 3), SLUICE_OK);
    check_content(path, "h\n1,0.5\n");
    CHECK_EQ(sl_line_file_add(&f, "2,\n", 3), SLUICE_OK);
    sl_io_set_hook(refuse_writes, &disk);
    CHECK_EQ(sl_line_file_replace(&f, "2,0.25\n", 7, "2,\n", 3), SLUICE_ERR_IO);
    sl_io_set_hook(NULL, NULL);
    CHECK_EQ(sl_line_file_add(&f, "3,\n", 3), SLUICE_OK);
    sl_line_file_close(&f);
    char *text = run_read(path);
    CHECK(strstr(text, "h\n1,0.5\n") == text && strstr(text, "\n3,\n") != NULL);
    CHECK(strstr(text, "2,0.") == NULL);
    free(text);
}

/* As Linux ends the write of a killed process: at the end of a page. */
static int die_at_page(void *user, const char *call, const char *path)
{
    int *bytes = user, now = *bytes;
    (void)path;
    if (strcmp(call, "pwrite") != 0) return 0;
    if (now == 0) _exit(0);
    *bytes = 0;
    return -now;
}

TEST(a_kill_while_a_line_becomes_another_leaves_no_mixture_of_both)
{
    enum { FIRST = 4090 };
    const char *path = at(test_tmpdir(), "k.csv");
    char first[FIRST + 1];
    memset(first, 'h', FIRST);
    first[FIRST - 1] = '\n';
    first[FIRST] = '\0';
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        sl_line_file f = { 0 };
        int bytes = 4096 - FIRST;
        if (sl_line_file_open(&f, path) != SLUICE_OK || sl_line_file_add(&f, first, FIRST) != SLUICE_OK ||
            sl_line_file_add(&f, "12345,,\n", 8) != SLUICE_OK)
            _exit(1);
        sl_io_set_hook(die_at_page, &bytes);
        sl_line_file_replace(&f, "12345,0.5,0.25\n", 15, "12345,,\n", 8);
        _exit(2); /* not killed */
    }
    int status;
    REQUIRE(waitpid(child, &status, 0) == child);
    REQUIRE(status == 0);
    char *torn = run_read(path);
    CHECK_EQ(strlen(torn), 4096);
    CHECK_STR(torn + FIRST, "12345,");
    free(torn);
    sl_line_file f = { 0 };
    CHECK_EQ(sl_line_file_open(&f, path), SLUICE_OK);
    sl_line_file_close(&f);
    check_content(path, first);
}

TEST(one_process_at_a_time_writes_to_a_file)
{
    const char *path = at(test_tmpdir(), "g.jsonl");
    sl_line_file a = { 0 }, b = { 0 };
    CHECK_EQ(sl_line_file_open(&a, path), SLUICE_OK);
    CHECK_EQ(sl_line_file_open(&b, path), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "another run");
    sl_line_file_close(&a);
    CHECK_EQ(sl_line_file_open(&b, path), SLUICE_OK);
    sl_line_file_close(&b);
}

TEST(what_is_no_regular_file_is_refused)
{
    sl_line_file f = { 0 };
    CHECK_EQ(sl_line_file_open(&f, "/dev/null"), SLUICE_ERR_INPUT);
    CHECK_EQ(sl_line_file_open(&f, test_tmpdir()), SLUICE_ERR_IO);
}

/* model_files_test.c: files beside the weights where the folder they come from is gone. */
#include "format/model_files.h"

#include <unistd.h>

#include "core/alloc.h"
#include "core/io.h"
#include "test.h"

static void keep_line(void *user, sluice_log_level level, const char *line)
{
    (void)level;
    snprintf(user, 1024, "%s", line);
}

TEST(files_that_are_held_are_written_when_their_folder_is_gone_and_others_are_told_of)
{
    char from[1024], lost[1100], kept[1200], to[1100], told[1024] = "", *text;
    size_t bytes;
    const sl_log log = { keep_line, told, 0, 1 };
    snprintf(from, sizeof from, "%.1000s", test_tmpdir());
    snprintf(lost, sizeof lost, "%s/lost.txt", from);
    snprintf(kept, sizeof kept, "%s/kept.txt", from);
    snprintf(to, sizeof to, "%s/to", from);
    REQUIRE_OK(sl_file_write_all(kept, "words", 5));
    REQUIRE_OK(sl_dir_make(to));
    sl_model_file list[] = { { .name = "kept.txt", .from = kept }, { .name = "lost.txt", .from = lost } };
    sl_model_files files = { .list = list, .count = 2, .capacity = 2, .prefix = "" };
    sl_arena_init(&files.arena, "files");
    sl_model_files_hold(&files);
    CHECK(list[0].is_held && !list[1].is_held);
    CHECK(unlink(kept) == 0);
    CHECK_EQ(sl_model_files_write(&files, to), SLUICE_ERR_INPUT); /* nobody to tell */
    files.log = &log;
    REQUIRE_OK(sl_model_files_write(&files, to));
    CHECK_CONTAINS(told, "lost.txt could not be copied beside the weights");
    snprintf(kept, sizeof kept, "%s/kept.txt", to);
    REQUIRE_OK(sl_file_read_all(kept, 100, &text, &bytes));
    CHECK_STR(text, "words");
    sl_free(text);
    sl_model_files_free(&files);
}

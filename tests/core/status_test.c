/* status_test.c: messages of failures, exit statuses, log lines. */
#include <pthread.h>
#include <unistd.h>

#include "core/log.h"
#include "core/status.h"
#include "test.h"

TEST(fail_records_the_message_and_returns_the_status)
{
    CHECK_EQ(sl_fail(SLUICE_ERR_IO, "cannot open %s: %d", "x", 5), SLUICE_ERR_IO);
    CHECK_STR(sluice_error(), "cannot open x: 5");
}

TEST(fail_may_quote_the_message_before)
{
    sl_fail(SLUICE_ERR_IO, "inner");
    sl_fail(SLUICE_ERR_IO, "outer: %s", sluice_error());
    CHECK_STR(sluice_error(), "outer: inner");
}

TEST(fail_cuts_a_message_that_is_too_long)
{
    char *text = malloc(3 * SL_MESSAGE_BYTES);
    REQUIRE(text != NULL);
    memset(text, 'x', 3 * SL_MESSAGE_BYTES);
    text[3 * SL_MESSAGE_BYTES - 1] = '\0';
    sl_fail(SLUICE_ERR_FAILED, "%s", text);
    free(text);
    CHECK_EQ(strlen(sluice_error()), SL_MESSAGE_BYTES - 1);
    char copy[SL_MESSAGE_BYTES];
    sl_error_copy(copy);
    CHECK_STR(copy, sluice_error());
}

TEST(fail_shows_control_characters_and_stray_bytes_instead_of_sending_them)
{
    sl_fail(SLUICE_ERR_IO, "cannot open %s", "a\nb\x1b[31m\xffZ\xc3\xbcrich");
    CHECK_STR(sluice_error(), "cannot open a\\nb\\x1b[31m\\xffZ\xc3\xbcrich");
    sl_fail(SLUICE_ERR_IO, "then: %s", sluice_error());
    CHECK_STR(sluice_error(), "then: cannot open a\\nb\\x1b[31m\\xffZ\xc3\xbcrich");
}

static void *fail_in_thread(void *out)
{
    sl_fail(SLUICE_ERR_IO, "in the thread");
    sl_error_copy(out);
    return NULL;
}

TEST(messages_of_threads_are_apart)
{
    pthread_t thread;
    char theirs[SL_MESSAGE_BYTES];
    sl_fail(SLUICE_ERR_IO, "in main");
    REQUIRE(pthread_create(&thread, NULL, fail_in_thread, theirs) == 0);
    pthread_join(thread, NULL);
    CHECK_STR(sluice_error(), "in main");
    CHECK_STR(theirs, "in the thread");
}

TEST(exit_status_is_the_status_but_one_for_no_memory)
{
    CHECK_EQ(sluice_exit_status(SLUICE_OK), 0);
    CHECK_EQ(sluice_exit_status(SLUICE_ERR_NUMBERS), 7);
    CHECK_EQ(sluice_exit_status(SLUICE_ERR_NO_MEMORY), 1);
    CHECK_EQ(sluice_exit_status(SLUICE_ERR_STOPPED), 75);
}

TEST(version_is_that_of_the_header)
{
    char expected[32];
    snprintf(expected, sizeof expected, "%d.%d.%d", SLUICE_VERSION_MAJOR, SLUICE_VERSION_MINOR, SLUICE_VERSION_PATCH);
    CHECK_STR(sluice_version(), expected);
}

static void keep_line(void *user, sluice_log_level level, const char *line)
{
    snprintf(user, 64, "%d %s", (int)level, line);
}

TEST(log_names_the_rank_only_among_several)
{
    char got[64] = "";
    sl_log log = { keep_line, got, 2, 4 };
    sl_log_write(&log, SLUICE_LOG_NOTE, "step %d", 7);
    CHECK_STR(got, "1 rank 2: step 7");
    log.rank_count = 1;
    sl_log_write(&log, SLUICE_LOG_WARNING, "step %d", 8);
    CHECK_STR(got, "0 step 8");
}

/* Bytes that write() prints on standard output and error together. */
static long bytes_printed_by(void (*write)(void))
{
    FILE *file = tmpfile();
    int out = dup(1), error = dup(2);
    if (file == NULL || out < 0 || error < 0) return -1;
    fflush(NULL);
    dup2(fileno(file), 1);
    dup2(fileno(file), 2);
    write();
    fflush(NULL);
    dup2(out, 1);
    dup2(error, 2);
    close(out);
    close(error);
    long bytes = lseek(fileno(file), 0, SEEK_CUR);
    fclose(file);
    return bytes;
}

static void log_to_nobody(void)
{
    sl_log log = { 0 };
    sl_log_write(&log, SLUICE_LOG_NOTE, "nobody hears");
    sl_log_write(NULL, SLUICE_LOG_NOTE, "nobody hears");
}

TEST(log_without_a_callback_is_silent)
{
    CHECK_EQ(bytes_printed_by(log_to_nobody), 0);
}

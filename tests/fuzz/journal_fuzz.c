/* journal_fuzz.c: the journal of a run. What is said of it is text that a terminal can show, and numbers that make sense. */
#include <math.h>
#include <string.h>

#include "monitor/monitor.h"
#include "support/fuzz/fuzz.h"

static void check_text(const char *text, size_t room)
{
    FUZZ_CHECK(memchr(text, '\0', room) != NULL);
    for (; *text != '\0'; text++) FUZZ_CHECK((unsigned char)*text >= 0x20 && *text != 0x7f);
}

static void on_run(void *user, const char *folder, const sluice_run_status *s)
{
    int *runs = user;
    (*runs)++;
    FUZZ_CHECK(strcmp(folder, fuzz_folder()) == 0);
    FUZZ_CHECK(s->state != SLUICE_RUN_RUNNING); /* nobody has the lock */
    check_text(s->run, sizeof s->run);
    check_text(s->host, sizeof s->host);
    check_text(s->metric, sizeof s->metric);
    check_text(s->saved_path, sizeof s->saved_path);
    check_text(s->warning, sizeof s->warning);
    check_text(s->message, sizeof s->message);
    FUZZ_CHECK(!(s->seconds_left < 0) && !(s->step_seconds < 0 && s->samples_per_second > 0));
}

void fuzz_journal(const uint8_t *data, size_t bytes)
{
    int runs = 0;
    (void)fuzz_file(SL_JOURNAL_NAME, data, bytes);
    bool accepted = fuzz_accepted(sluice_runs_look(fuzz_folder(), on_run, &runs));
    FUZZ_CHECK(runs == accepted);
}

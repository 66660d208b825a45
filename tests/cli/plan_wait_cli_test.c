/* plan_wait_cli_test.c: planning that takes long says so on standard error, once, and to nobody who asked for silence or for
 * JSON. The process is halted for as long, so that no machine is too fast. */
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/run.h"
#include "test.h"

#define CONFIG                                                                                                         \
    "{\"model\": {\"type\": \"gpt2\", \"layers\": 600, \"heads\": 1, \"width\": 8, \"context\": 8, \"vocabulary\": "   \
    "\"50\"}, \"data\": {\"type\": \"random_tokens\", \"samples\": 10}, \"steps\": 1, \"train_batch_size\": 1, "       \
    "\"optimizer\": {\"type\": \"SGD\"}, \"threads\": 1}"

enum { WAYS = 3, PATIENCE_MICROSECONDS = 3300000 };

typedef struct way {
    const char *arguments;
    bool tells;
} way;

static const way ways[WAYS] = { { "plan ../c.json", true },
                                { "plan ../c.json --quiet", false },
                                { "plan ../c.json --json", false } };

/* Whether the process has got as far as to wait for the alarm. */
static bool awaits_alarm(pid_t process)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/status", (int)process);
    char *text = run_read(path);
    const char *caught = strstr(text, "SigCgt:");
    bool found = caught != NULL && (strtoull(caught + strlen("SigCgt:"), NULL, 16) >> (SIGALRM - 1) & 1) != 0;
    free(text);
    return found;
}

static pid_t start_and_halt(const char *folder, const way *w)
{
    pid_t process = run_start(folder, w->arguments);
    for (int i = 0; i < 200 && w->tells && !awaits_alarm(process); i++) usleep(1000);
    usleep(5000); /* to the call behind that one */
    kill(process, SIGSTOP);
    return process;
}

TEST(planning_that_takes_long_is_told_of_once)
{
    char folders[WAYS][4200];
    pid_t processes[WAYS];
    const char *root = test_tmpdir();
    run_write(root, "c.json", CONFIG);
    for (int i = 0; i < WAYS; i++) {
        snprintf(folders[i], sizeof folders[i], "%.4000s/%d", root, i);
        REQUIRE(mkdir(folders[i], 0777) == 0);
        processes[i] = start_and_halt(folders[i], &ways[i]);
    }
    usleep(PATIENCE_MICROSECONDS);
    for (int i = 0; i < WAYS; i++) {
        static const char line[] = "sluice: planning; a large model, or a search over settings, takes a while\n";
        kill(processes[i], SIGCONT);
        run_result r = run_wait(folders[i], processes[i]);
        CHECK_THAT(r.status == 0, "%s: status %d: %s", ways[i].arguments, r.status, r.error);
        const char *found = strstr(r.error, line);
        CHECK_THAT((found != NULL) == ways[i].tells, "%s: %s", ways[i].arguments, r.error);
        CHECK(found == NULL || strstr(found + strlen(line), "planning;") == NULL);
        run_free(&r);
    }
}

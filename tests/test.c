/* test.c: the runner behind test.h.
 *
 *     program [--after TEST] [--each] [NAME-PART ...]
 *
 * runs the tests whose name contains one of the parts, or all. It prints a line for each that failed or was skipped, and
 * "N passed, N failed, N skipped". --after leaves out all tests up to that one, which is how tests/run goes on behind
 * a test that took the program with it. --each adds, for tests/run, a line before each test and one with its outcome and
 * seconds behind it:
 *
 *     #test run NAME
 *     #test passed|failed|skipped SECONDS NAME [NEED: REASON] */
#include "test.h"

#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <time.h>
#include <unistd.h>

test_case *test_cases;
int test_failures;
_Atomic unsigned test_checks;
const char *test_skip_need, *test_skip_reason;

static char tmpdir[4096];
static char memory_root[64];

void test_register(test_case *c)
{
    test_case **end = &test_cases;
    while (*end != NULL) end = &(*end)->next;
    *end = c;
}

void test_fail(const char *file, int line, const char *format, ...)
{
    va_list args;
    test_failures++;
    if (test_failures > 10) return; /* one broken loop must not flood the log */
    fprintf(stderr, "%s:%d: ", file, line);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
}

/* Room for -9223372036854775808 and 18446744073709551615. */
static const char *integer_text(test_integer x, char out[32])
{
    if (x.negative)
        snprintf(out, 32, "%lld", (long long)x.bits);
    else
        snprintf(out, 32, "%llu", x.bits);
    return out;
}

void test_equal(const char *file, int line, const char *a_text, const char *b_text, test_integer a, test_integer b)
{
    char a_number[32], b_number[32];
    test_checked();
    if (a.negative == b.negative && a.bits == b.bits) return;
    test_fail(file, line, "%s == %s: %s, %s", a_text, b_text, integer_text(a, a_number), integer_text(b, b_number));
}

static void remove_folder(const char *folder)
{
    char command[sizeof tmpdir + 16];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    if (system(command) != 0) fprintf(stderr, "could not remove %s\n", folder);
}

static void remove_tmpdir(void)
{
    remove_folder(tmpdir);
}

static void remove_memory_root(void)
{
    remove_folder(memory_root);
}

const char *test_tmpdir(void)
{
    static int owner; /* children of a forking test must not remove it */
    static char base[sizeof tmpdir - 64];
    static int count;
    if (base[0] == '\0' || owner != (int)getpid()) {
        const char *root = getenv("TMPDIR");
        snprintf(base, sizeof base, "%s/sluice-test-%d", root != NULL && strlen(root) < 1024 ? root : "/tmp",
                 (int)getpid());
        if (owner == 0) {
            snprintf(tmpdir, sizeof tmpdir, "%s", base);
            atexit(remove_tmpdir);
        }
        owner = (int)getpid();
    }
    static char path[sizeof tmpdir];
    snprintf(path, sizeof path, "mkdir -p '%s/%d'", base, ++count);
    if (system(path) != 0) exit(99);
    snprintf(path, sizeof path, "%s/%d", base, count);
    return path;
}

const char *test_memory_path(void)
{
    static char path[sizeof memory_root + 16];
    static int count;
    if (memory_root[0] == '\0') {
        char root[] = "/dev/shm/sluice-test-XXXXXX";
        if (mkdtemp(root) == NULL) return test_tmpdir();
        snprintf(memory_root, sizeof memory_root, "%s", root);
        atexit(remove_memory_root);
    }
    snprintf(path, sizeof path, "%s/%d", memory_root, ++count);
    return path;
}

const char *test_data(const char *name)
{
    static char path[4096], whole[PATH_MAX];
    const char *root = getenv("SLUICE_DATA");
    const char *roots[] = { root, "../shared/data", SLUICE_SOURCE_DIR "/../shared/data" };
    for (size_t i = 0; i < sizeof roots / sizeof roots[0]; i++) {
        if (roots[i] == NULL) continue;
        snprintf(path, sizeof path, "%s/%s", roots[i], name);
        if (access(path, R_OK) == 0 && realpath(path, whole) != NULL) return whole;
    }
    return NULL;
}

/* ---- a test that takes the program with it ---- */

static const char *volatile running; /* the test's name; NULL between tests */
static pid_t runner;                 /* children of a forking test are not it */

static void say_died(const char *how)
{
    const char *const parts[] = { "DIED ", running, how };
    if (running == NULL || getpid() != runner) return;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (write(STDERR_FILENO, parts[i], strlen(parts[i])) < 0) return;
}

static void on_fatal_signal(int number)
{
    say_died(number == SIGABRT  ? ": SIGABRT\n"
             : number == SIGBUS ? ": SIGBUS\n"
             : number == SIGFPE ? ": SIGFPE\n"
             : number == SIGILL ? ": SIGILL\n"
                                : ": SIGSEGV\n");
    signal(number, SIG_DFL);
    raise(number);
}

static void on_exit_in_a_test(void)
{
    say_died(": exit() in the middle of it\n");
}

/* Left alone where somebody else has taken them: a sanitizer says more. */
static void watch_for_death(void)
{
    static const int fatal[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT };
    runner = getpid();
    atexit(on_exit_in_a_test);
    for (size_t i = 0; i < sizeof fatal / sizeof fatal[0]; i++) {
        struct sigaction old;
        if (sigaction(fatal[i], NULL, &old) != 0 || old.sa_handler != SIG_DFL) continue;
        signal(fatal[i], on_fatal_signal);
    }
}

/* Whoever started this may have had signals ignored (nohup; a shell's background jobs), and programs inherit that: tests that
 * send them would wait for what never comes. */
static void heed_signals(void)
{
    static const int sent[] = { SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGPIPE };
    for (size_t i = 0; i < sizeof sent / sizeof sent[0]; i++) signal(sent[i], SIG_DFL);
}

/* ---- running ---- */

typedef enum { PASSED, FAILED, SKIPPED, OUTCOMES } outcome;
static const char *const outcome_names[OUTCOMES] = { "passed", "failed", "skipped" };

typedef struct selection {
    const char *after; /* NULL: from the first test on */
    bool each;
    char **parts; /* up to the NULL; none: all tests */
} selection;

static bool selected(const char *name, char **parts)
{
    if (*parts == NULL) return true;
    for (; *parts != NULL; parts++)
        if (strstr(name, *parts) != NULL) return true;
    return false;
}

static outcome judge(const test_case *c)
{
    if (test_failures == 0 && test_skip_reason == NULL && test_checks == 0) test_fail(c->file, c->line, "ran no check");
    if (test_failures > 0) printf("FAILED %s\n", c->name);
    if (test_failures > 0) return FAILED;
    if (test_skip_reason != NULL) printf("SKIPPED %s: %s: %s\n", c->name, test_skip_need, test_skip_reason);
    return test_skip_reason != NULL ? SKIPPED : PASSED;
}

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Flushed at once, so that no child prints it again; the tests' own output may lack its last newline. */
static outcome run_one(const test_case *c, bool each)
{
    test_failures = 0;
    test_checks = 0;
    test_skip_need = test_skip_reason = NULL;
    if (each) printf("\n#test run %s\n", c->name);
    fflush(stdout);
    double start = seconds_now();
    running = c->name;
    c->run();
    running = NULL;
    outcome o = judge(c);
    if (each) {
        printf("\n#test %s %.3f %s", outcome_names[o], seconds_now() - start, c->name);
        if (o == SKIPPED) printf(" %s: %s", test_skip_need, test_skip_reason);
        putchar('\n');
    }
    fflush(stdout);
    return o;
}

static selection parse(char **argument)
{
    selection s = { .parts = NULL };
    for (; *argument != NULL && strncmp(*argument, "--", 2) == 0; argument++) {
        if (strcmp(*argument, "--each") == 0) {
            s.each = true;
        } else if (strcmp(*argument, "--after") == 0 && argument[1] != NULL) {
            s.after = *++argument;
        } else {
            fprintf(stderr, "%s: unknown; [--after TEST] [--each] [NAME-PART ...]\n", *argument);
            exit(2);
        }
    }
    s.parts = argument;
    return s;
}

int main(int argc, char **argv)
{
    (void)argc;
    int count[OUTCOMES] = { 0 };
    selection s = parse(argv + 1);
    bool reached = s.after == NULL;
    watch_for_death();
    heed_signals();
    setenv("SLUICE_MACHINE", "default", 0); /* plans that do not depend on how fast this machine is today */
    for (test_case *c = test_cases; c != NULL; c = c->next) {
        if (reached && selected(c->name, s.parts)) count[run_one(c, s.each)]++;
        reached = reached || strcmp(c->name, s.after) == 0;
    }
    printf("%d passed, %d failed, %d skipped\n", count[PASSED], count[FAILED], count[SKIPPED]);
    return count[FAILED] > 0;
}

/* test.c: the runner behind test.h. `program [name-part ...]` runs the tests whose name contains one of the parts. */
#include "test.h"

#include <dirent.h>
#include <stdarg.h>
#include <unistd.h>

test_case *test_cases;
int test_failures;
const char *test_skip_reason;

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
    static char path[4096];
    const char *root = getenv("SLUICE_DATA");
    const char *roots[] = { root, "../shared/data", SLUICE_SOURCE_DIR "/../shared/data" };
    for (size_t i = 0; i < sizeof roots / sizeof roots[0]; i++) {
        if (roots[i] == NULL) continue;
        snprintf(path, sizeof path, "%s/%s", roots[i], name);
        if (access(path, R_OK) == 0) return path;
    }
    return NULL;
}

static bool selected(const char *name, int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strstr(name, argv[i]) != NULL) return true;
    return argc < 2;
}

int main(int argc, char **argv)
{
    int passed = 0, failed = 0, skipped = 0;
    for (test_case *c = test_cases; c != NULL; c = c->next) {
        if (!selected(c->name, argc, argv)) continue;
        test_failures = 0;
        test_skip_reason = NULL;
        c->run();
        if (test_failures > 0) {
            printf("FAILED %s\n", c->name);
            failed++;
        } else if (test_skip_reason != NULL) {
            printf("SKIPPED %s: %s\n", c->name, test_skip_reason);
            skipped++;
        } else {
            passed++;
        }
        fflush(stdout);
    }
    printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped);
    return failed > 0;
}

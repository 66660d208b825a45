/* scratch.c: files for parsers that read files, and what is asked of every refusal. */
#include <string.h>
#include <unistd.h>

#include "format/scan.h"
#include "support/fuzz/fuzz.h"

static char folder[96]; /* one for each process: libFuzzer may fork */
static pid_t owner;

static void remove_folder(void)
{
    char command[160];
    if (owner != getpid()) return;
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    if (system(command) != 0) fprintf(stderr, "%s is left behind\n", folder);
}

const char *fuzz_folder(void)
{
    if (owner == getpid()) return folder;
    const char *temporary = getenv("TMPDIR");
    int length = snprintf(folder, sizeof folder, "%s/fuzz-XXXXXX", temporary != NULL ? temporary : "/tmp");
    FUZZ_CHECK((size_t)length < sizeof folder);
    FUZZ_CHECK(mkdtemp(folder) != NULL);
    if (owner == 0) atexit(remove_folder);
    owner = getpid();
    return folder;
}

const char *fuzz_file(const char *name, const void *data, size_t bytes)
{
    static char path[160];
    snprintf(path, sizeof path, "%s/%s", fuzz_folder(), name);
    FILE *out = fopen(path, "wb");
    FUZZ_CHECK(out != NULL);
    FUZZ_CHECK(bytes == 0 || fwrite(data, 1, bytes, out) == bytes);
    FUZZ_CHECK(fclose(out) == 0);
    return path;
}

bool fuzz_accepted(sluice_status status)
{
    if (status == SLUICE_OK) return true;
    const char *message = sluice_error();
    size_t bytes = strlen(message), bad;
    FUZZ_CHECK(bytes > 0);
    FUZZ_CHECK(sl_utf8_valid(message, bytes, &bad));
    for (size_t i = 0; i < bytes; i++) FUZZ_CHECK((unsigned char)message[i] >= ' ' && message[i] != 127);
    return false;
}

/* plain_files.h: small files for tests of what reads and writes files, without the functions under test. */
#ifndef SLUICE_TEST_PLAIN_FILES_H
#define SLUICE_TEST_PLAIN_FILES_H

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* folder/name in one of a few buffers that take turns. */
static inline const char *at(const char *folder, const char *name)
{
    static char paths[8][PATH_MAX];
    static int turn;
    char *path = paths[turn++ % 8];
    snprintf(path, PATH_MAX, "%s/%s", folder, name);
    return path;
}

static inline bool put(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    if (f == NULL) return false;
    bool written = fputs(text, f) >= 0;
    return fclose(f) == 0 && written;
}

/* Whether the file holds exactly that text, of less than 4 KiB. */
static inline bool file_is(const char *path, const char *text)
{
    char got[4096];
    FILE *f = fopen(path, "r");
    if (f == NULL) return false;
    size_t bytes = fread(got, 1, sizeof got, f);
    fclose(f);
    return bytes == strlen(text) && memcmp(got, text, bytes) == 0;
}

#endif

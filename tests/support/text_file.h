/* text_file.h: files of given bytes in the folder of a test. */
#ifndef SLUICE_TEST_TEXT_FILE_H
#define SLUICE_TEST_TEXT_FILE_H

#include <stdio.h>
#include <stdlib.h>

#include "support/plain_files.h"
#include "test.h"

/* The path is valid for the next seven calls. */
static inline const char *write_text_file(const char *name, const void *data, size_t bytes)
{
    const char *path = at(test_tmpdir(), name);
    FILE *f = fopen(path, "wb");
    if (f == NULL || fwrite(data, 1, bytes, f) != bytes || fclose(f) != 0) exit(99);
    return path;
}

#endif

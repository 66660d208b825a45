/* swap_file.h: a way to the files of a swap store that does not go through it: they have no names, but descriptors. */
#ifndef TESTS_SUPPORT_SWAP_FILE_H
#define TESTS_SUPPORT_SWAP_FILE_H

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* This process's swap file in `folder`, opened anew and through the page cache; -1: it has none there. */
static inline int swap_file_behind(const char *folder)
{
    char real[PATH_MAX], link[PATH_MAX], path[300];
    DIR *dir = opendir("/proc/self/fd");
    int found = -1;
    if (dir == NULL || realpath(folder, real) == NULL) return -1;
    size_t n = strlen(real);
    for (struct dirent *e; found < 0 && (e = readdir(dir)) != NULL;) {
        snprintf(path, sizeof path, "/proc/self/fd/%s", e->d_name);
        ssize_t length = readlink(path, link, sizeof link - 1);
        if (length <= (ssize_t)n) continue;
        link[length] = '\0';
        if (strncmp(link, real, n) == 0 && link[n] == '/') found = open(path, O_RDWR | O_CLOEXEC);
    }
    closedir(dir);
    return found;
}

#endif

/* count_alloc.c: a preload library that counts every request for memory of a whole process, the C library's own
 * included.
 *
 * The program under test is not touched, so its own counters cannot flatter it. At exit "malloc N calloc N ..." goes to
 * the file that SLUICE_ALLOC_COUNTS names. With SLUICE_ALLOC_PER_FLUSH set every fflush takes one block more: a program
 * that allocates with each event it prints, to show that the count would tell. */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

/* glibc's own names of the functions that are replaced here; dlsym would itself allocate. */
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t each);
void *__libc_realloc(void *p, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);

enum { MALLOC, CALLOC, REALLOC, ALIGNED_ALLOC, POSIX_MEMALIGN, MEMALIGN, MMAP, KINDS };
static const char *const names[KINDS] = { "malloc",         "calloc",   "realloc", "aligned_alloc",
                                          "posix_memalign", "memalign", "mmap" };
static _Atomic unsigned long long counts[KINDS];
static bool allocate_per_flush;

EXPORT void *malloc(size_t bytes)
{
    counts[MALLOC]++;
    return __libc_malloc(bytes);
}

EXPORT void *calloc(size_t count, size_t each)
{
    counts[CALLOC]++;
    return __libc_calloc(count, each);
}

EXPORT void *realloc(void *p, size_t bytes)
{
    counts[REALLOC]++;
    return __libc_realloc(p, bytes);
}

EXPORT void *aligned_alloc(size_t alignment, size_t bytes)
{
    counts[ALIGNED_ALLOC]++;
    return __libc_memalign(alignment, bytes);
}

EXPORT int posix_memalign(void **out, size_t alignment, size_t bytes)
{
    counts[POSIX_MEMALIGN]++;
    void *p = __libc_memalign(alignment, bytes);
    if (p == NULL) return ENOMEM;
    *out = p;
    return 0;
}

EXPORT void *memalign(size_t alignment, size_t bytes)
{
    counts[MEMALIGN]++;
    return __libc_memalign(alignment, bytes);
}

EXPORT void *mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    counts[MMAP]++;
    return (void *)syscall(SYS_mmap, address, bytes, protection, flags, fd, offset);
}

EXPORT int fflush(FILE *f)
{
    if (allocate_per_flush) free(malloc(1));
    return fflush_unlocked(f);
}

__attribute__((constructor)) static void begin(void)
{
    allocate_per_flush = getenv("SLUICE_ALLOC_PER_FLUSH") != NULL;
}

/* On the stack and with plain system calls: reporting must not count itself. */
__attribute__((destructor)) static void report(void)
{
    char text[512];
    int used = 0;
    const char *path = getenv("SLUICE_ALLOC_COUNTS");
    int fd = path != NULL ? open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600) : -1;
    if (fd < 0) return;
    for (int i = 0; i < KINDS; i++)
        used += snprintf(text + used, sizeof text - (size_t)used, "%s %llu ", names[i], (unsigned long long)counts[i]);
    if (write(fd, text, (size_t)used) != used) _exit(98);
    close(fd);
}

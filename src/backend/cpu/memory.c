/* memory.c: see memory.h. */
#include "backend/cpu/memory.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "core/bytes.h"

#define HUGE_PAGE ((size_t)2 << 20)
#define POISON    0xFF /* four of them are a NaN */
#define CANARY    0xA5

/* At `at` where that is given, in place of what is mapped there. NULL with errno on failure. */
static uint8_t *map(void *at, size_t bytes, int file)
{
    int flags = (file > 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS) | (at != NULL ? MAP_FIXED : 0);
    void *p = mmap(at, bytes, PROT_READ | PROT_WRITE, flags, file > 0 ? file : -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

/* Large arenas start on a huge page and ask for more of them: packing walks memory with long strides. */
static uint8_t *map_large(size_t bytes, int file)
{
    uint8_t *p = map(NULL, bytes + HUGE_PAGE, 0);
    if (p == NULL) return NULL;
    uint8_t *start = (uint8_t *)sl_align_up((uintptr_t)p, HUGE_PAGE), *end = start + bytes;
    if (start > p) munmap(p, (size_t)(start - p));
    if (p + bytes + HUGE_PAGE > end) munmap(end, (size_t)(p + bytes + HUGE_PAGE - end));
    if (file > 0 && map(start, bytes, file) == NULL) {
        int failed = errno;
        munmap(start, bytes);
        errno = failed;
        return NULL;
    }
    madvise(start, bytes, MADV_HUGEPAGE); /* a wish: refusal costs speed alone */
    return start;
}

/* Pages of a file are found when they are first touched, and the process dies where there are none: a file system that
 * is plainly too small is refused here. One without a size (memfd) has no blocks. */
static bool size_file(int file, size_t bytes)
{
    struct statvfs fs;
    if (ftruncate(file, 0) != 0 || fstatvfs(file, &fs) != 0) return false;
    if (fs.f_blocks > 0 && bytes / fs.f_frsize >= fs.f_bavail) {
        errno = ENOSPC;
        return false;
    }
    return ftruncate(file, (off_t)bytes) == 0;
}

static void place(sl_memory *m, size_t page, bool guard)
{
    m->base = m->mapping;
    if (!guard) return;
    uint8_t *end = m->mapping + m->mapping_bytes - page;
    m->base = end - sl_align_up(m->bytes, SL_ALIGNMENT);
    m->front_bytes = (size_t)(m->base - (m->mapping + page));
    m->back_bytes = (size_t)(end - (m->base + m->bytes));
}

static bool add_guards(sl_memory *m, size_t page)
{
    memset(m->base, POISON, m->bytes);
    memset(m->base - m->front_bytes, CANARY, m->front_bytes);
    memset(m->base + m->bytes, CANARY, m->back_bytes);
    return mprotect(m->mapping, page, PROT_NONE) == 0 &&
           mprotect(m->mapping + m->mapping_bytes - page, page, PROT_NONE) == 0;
}

bool sl_memory_map(sl_memory *m, size_t bytes, bool guard, int file)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    *m = (sl_memory){ .bytes = bytes, .shared = file > 0 };
    m->mapping_bytes = sl_align_up(bytes, page) + (guard ? 2 * page : 0);
    if (file > 0 && !size_file(file, m->mapping_bytes)) return false;
    bool large = !guard && m->mapping_bytes >= 4 * HUGE_PAGE;
    m->mapping = large ? map_large(m->mapping_bytes, file) : map(NULL, m->mapping_bytes, file);
    if (m->mapping == NULL) return false;
    place(m, page, guard);
    if (!guard || add_guards(m, page)) return true;
    int failed = errno;
    sl_memory_unmap(m);
    errno = failed;
    return false;
}

void sl_memory_unmap(sl_memory *m)
{
    if (m->mapping != NULL) munmap(m->mapping, m->mapping_bytes);
    m->mapping = NULL;
}

static bool canaries_alive(const uint8_t *p, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (p[i] != CANARY) return false;
    return true;
}

bool sl_memory_is_intact(const sl_memory *m)
{
    return m->mapping == NULL || (canaries_alive(m->base - m->front_bytes, m->front_bytes) &&
                                  canaries_alive(m->base + m->bytes, m->back_bytes));
}

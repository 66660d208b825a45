/* memory.c: see memory.h. */
#include "backend/cpu/memory.h"

#include <errno.h>
#include <linux/mempolicy.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/bytes.h"
#include "core/io.h"

#define POISON      0xFF /* four of them are a NaN */
#define CANARY      0xA5
#define TOUCH_BYTES (4 * SL_HUGE_PAGE) /* by one task */

/* ---- huge pages ---- */

/* The word in brackets of a setting; "" where there is none. */
static void chosen_word(const char *setting, char *out, size_t bytes)
{
    const char *begin = strchr(setting, '['), *end = begin != NULL ? strchr(begin, ']') : NULL;
    snprintf(out, bytes, "%.*s", end != NULL ? (int)(end - begin - 1) : 0, end != NULL ? begin + 1 : "");
}

bool sl_huge_pages_allowed(const char *setting, bool shared, char *why, size_t bytes)
{
    static const char *const words[2][4] = { { "always", "madvise" }, { "always", "advise", "within_size", "force" } };
    char word[32];
    if (setting == NULL) {
        snprintf(why, bytes, "this kernel has none");
        return false;
    }
    chosen_word(setting, word, sizeof word);
    for (int i = 0; i < 4 && words[shared][i] != NULL; i++)
        if (strcmp(word, words[shared][i]) == 0) {
            snprintf(why, bytes, "transparent");
            return true;
        }
    snprintf(why, bytes, "%s is %s", shared ? "shmem_enabled" : "transparent_hugepage",
             word[0] != '\0' ? word : "not understood");
    return false;
}

bool sl_huge_pages_offered(bool shared, char *why, size_t bytes)
{
    char setting[128];
    bool found = sl_file_peek(shared ? "/sys/kernel/mm/transparent_hugepage/shmem_enabled"
                                     : "/sys/kernel/mm/transparent_hugepage/enabled",
                              setting, sizeof setting);
    if (prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0) == 1) {
        snprintf(why, bytes, "disabled for this process");
        return false;
    }
    return sl_huge_pages_allowed(found ? setting : NULL, shared, why, bytes);
}

/* What is behind the last whole huge page must not get one: a file's page would reach past its end, where nothing was
 * planned. */
static void ask_for_huge_pages(uint8_t *start, size_t bytes, bool shared)
{
    char why[64];
    size_t whole = bytes / SL_HUGE_PAGE * SL_HUGE_PAGE;
    if (!sl_huge_pages_offered(shared, why, sizeof why)) return;
    madvise(start, whole, MADV_HUGEPAGE);
    if (bytes > whole) madvise(start + whole, bytes - whole, MADV_NOHUGEPAGE);
}

/* ---- mapping ---- */

/* At `at` where that is given, in place of what is mapped there. NULL with errno on failure. */
static uint8_t *map(void *at, size_t bytes, int file)
{
    int flags = (file > 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS) | (at != NULL ? MAP_FIXED : 0);
    void *p = mmap(at, bytes, PROT_READ | PROT_WRITE, flags, file > 0 ? file : -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

/* Large arenas start on a huge page: packing walks memory with long strides. */
static uint8_t *map_large(size_t bytes, int file)
{
    uint8_t *p = map(NULL, bytes + SL_HUGE_PAGE, 0);
    if (p == NULL) return NULL;
    uint8_t *start = (uint8_t *)sl_align_up((uintptr_t)p, SL_HUGE_PAGE), *end = start + bytes;
    if (start > p) munmap(p, (size_t)(start - p));
    if (p + bytes + SL_HUGE_PAGE > end) munmap(end, (size_t)(p + bytes + SL_HUGE_PAGE - end));
    if (file > 0 && map(start, bytes, file) == NULL) {
        int failed = errno;
        munmap(start, bytes);
        errno = failed;
        return NULL;
    }
    ask_for_huge_pages(start, bytes, file > 0);
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

static void place(sl_memory *m, size_t page, const sl_memory_options *o)
{
    m->base = m->mapping;
    if (!o->guard) return;
    uint8_t *end = m->mapping + m->mapping_bytes - page;
    m->base = end - sl_align_up(m->bytes, o->paged ? page : SL_ALIGNMENT);
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

/* Before the first touch, which is when pages are found. */
static void place_on_nodes(const sl_memory *m, uint64_t nodes)
{
    if (nodes == 0) return;
    unsigned long mask = (unsigned long)nodes;
    int policy = (nodes & (nodes - 1)) == 0 ? MPOL_PREFERRED : MPOL_INTERLEAVE;
    syscall(SYS_mbind, m->mapping, m->mapping_bytes, policy, &mask, 8 * sizeof mask + 1, 0);
}

bool sl_memory_map(sl_memory *m, size_t bytes, const sl_memory_options *o)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    *m = (sl_memory){ .bytes = bytes, .shared = o->file > 0, .guarded = o->guard };
    m->mapping_bytes = sl_align_up(bytes, page) + (o->guard ? 2 * page : 0);
    if (m->shared && !size_file(o->file, m->mapping_bytes)) return false;
    bool large = !o->guard && m->mapping_bytes >= SL_HUGE_PAGE;
    m->mapping = large ? map_large(m->mapping_bytes, o->file) : map(NULL, m->mapping_bytes, o->file);
    if (m->mapping == NULL) return false;
    place(m, page, o);
    place_on_nodes(m, o->nodes);
    if (!o->guard || add_guards(m, page)) return true;
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

/* ---- first touch ---- */

static void touch(void *context, int64_t task, void *scratch)
{
    const sl_memory *m = context;
    size_t first = (size_t)task * TOUCH_BYTES, end = first + TOUCH_BYTES;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    (void)scratch;
    if (end > m->mapping_bytes) end = m->mapping_bytes;
    for (size_t at = first; at < end; at += page) ((volatile uint8_t *)m->mapping)[at] = 0;
}

void sl_memory_touch(sl_memory *m, sl_pool *pool)
{
    if (m->guarded || m->mapping_bytes < SL_HUGE_PAGE || sl_pool_threads(pool) == 1) return;
    sl_pool_run(pool, touch, m, (int64_t)((m->mapping_bytes - 1) / TOUCH_BYTES + 1));
}

/* ---- guards ---- */

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

/* swap_arena.h: a swap store in a fresh folder with memory to move, for the tests of core/swap.h, and faults of its
 * requests. */
#ifndef TESTS_SUPPORT_SWAP_ARENA_H
#define TESTS_SUPPORT_SWAP_ARENA_H

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/io.h"
#include "core/swap.h"
#include "support/swap_file.h"
#include "test.h"

/* Both engines; the first is io_uring where that is built in. */
enum { SWAP_ENGINES = 2 };

typedef struct swap_arena {
    sl_swap *store;
    const char *folder;
    uint64_t bytes;
    char *out, *in; /* `bytes` each: what is written, what is read into */
} swap_arena;

static inline char *swap_pages(uint64_t bytes)
{
    void *p = NULL;
    return posix_memalign(&p, SL_SWAP_UNIT, bytes) == 0 ? p : NULL;
}

static inline uint64_t swap_next(uint64_t *state)
{
    uint64_t x = *state += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static inline void swap_fill(char *data, uint64_t bytes, uint64_t seed)
{
    for (uint64_t i = 0; i < bytes; i += sizeof seed) {
        uint64_t x = swap_next(&seed);
        memcpy(data + i, &x, sizeof x);
    }
}

/* Fresh folders, until the next call. */
enum { SWAP_MOST_FOLDERS = 4 };
static inline const char *const *swap_folders(int count)
{
    static char path[SWAP_MOST_FOLDERS][PATH_MAX];
    static const char *folder[SWAP_MOST_FOLDERS];
    const char *root = test_tmpdir();
    for (int i = 0; i < count; i++) {
        snprintf(path[i], sizeof path[i], "%s/disk%d", root, i);
        CHECK_EQ(mkdir(path[i], 0700), 0);
        folder[i] = path[i];
    }
    return folder;
}

/* `o` may leave out folders and bytes. False with a failed check. */
static inline bool swap_arena_open(swap_arena *a, uint64_t bytes, bool threads, sl_swap_options o)
{
    if (o.folder_count == 0) {
        o.folders = swap_folders(1);
        o.folder_count = 1;
    }
    *a = (swap_arena){ .bytes = bytes, .folder = o.folders[0], .out = swap_pages(bytes), .in = swap_pages(bytes) };
    o.bytes = bytes;
    o.threads = threads;
    sluice_status st = sl_swap_open(&o, &a->store);
    CHECK_THAT(st == SLUICE_OK, "sl_swap_open: %s", sluice_error());
    if (st != SLUICE_OK || a->out == NULL || a->in == NULL) return false;
    swap_fill(a->out, bytes, 1);
    memset(a->in, 0, bytes);
    return true;
}

static inline void swap_arena_close(swap_arena *a)
{
    sl_swap_close(a->store);
    free(a->out);
    free(a->in);
    *a = (swap_arena){ 0 };
}

/* ---- faults ---- */

/* What becomes of requests: the hook of core/io.h. */
typedef struct swap_fault {
    const char *call; /* "swap_read", "swap_write", ... */
    int nth;          /* the first that it happens to, from 1; 0: none */
    int every;        /* then every so many; 0: that one alone */
    int answer;       /* the hook's */
    unsigned sleep_us;
    _Atomic int count;
} swap_fault;

static inline int swap_fault_hook(void *user, const char *call, const char *path)
{
    swap_fault *f = user;
    (void)path;
    if (strcmp(call, f->call) != 0) return 0;
    int n = ++f->count;
    if (f->nth == 0 || n < f->nth || (n > f->nth && (f->every == 0 || (n - f->nth) % f->every != 0))) return 0;
    if (f->sleep_us > 0) usleep(f->sleep_us);
    return f->answer;
}

#endif

/* disk.c [FOLDER] [MIB] [PIECE_MIB]: what the swap store makes of a disk: reading, writing and both at once, in transfers of
 * PIECE_MIB that the caller waits for. Beside it plain threads that move blocks past the page cache and check nothing: one
 * stream over the whole file, which is what the disk gives, and the same transfers. All take turns, and each number is the
 * median of the rounds, so that other work on the disk hits all alike. */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/swap.h"
#include "core/thread.h"

enum { ROUNDS = 21, PLAIN_THREADS = 8, BLOCK = 1 << 20, HUGE_PAGE = 2 << 20 };
enum { STREAM, TRANSFERS, URING, THREADS, WAYS };
enum { READ, WRITE, BOTH, KINDS };

static const char *const kind_names[KINDS] = { "read", "write", "both at once, each" };
static const char *const way_names[WAYS] = { "stream", "plain", "io_uring", "threads" };

/* One way to move the bytes: a store, or a plain file. */
typedef struct way {
    sl_swap *store; /* NULL: plain */
    int fd;
    bool stream;           /* all of it as one transfer */
    uint64_t bytes, piece; /* of the arena, of a transfer */
    char *memory[2];       /* a piece to read into and one to write from */
} way;

static void die(const char *what)
{
    fprintf(stderr, "%s\n", what);
    exit(1);
}

/* ---- plain: threads that take block after block ---- */

typedef struct plain_work {
    const way *w;
    bool write;
    _Atomic uint64_t next;
    uint64_t end;
} plain_work;

static void *move_plainly(void *user)
{
    plain_work *p = user;
    for (uint64_t at; (at = atomic_fetch_add(&p->next, BLOCK)) < p->end;) {
        char *memory = p->w->memory[p->write] + at % p->w->piece;
        ssize_t n = p->write ? pwrite(p->w->fd, memory, BLOCK, (off_t)at) : pread(p->w->fd, memory, BLOCK, (off_t)at);
        if (n != BLOCK) die("a plain transfer failed");
    }
    return NULL;
}

static void move_blocks(const way *w, bool write, uint64_t from, uint64_t to)
{
    pthread_t thread[PLAIN_THREADS];
    plain_work work = { .w = w, .write = write, .next = from, .end = to };
    for (int i = 0; i < PLAIN_THREADS; i++)
        if (pthread_create(&thread[i], NULL, move_plainly, &work) != 0) die("no threads");
    for (int i = 0; i < PLAIN_THREADS; i++) pthread_join(thread[i], NULL);
}

/* ---- either way ---- */

static void move_range(const way *w, bool write, uint64_t from, uint64_t to)
{
    const sl_swap_label label = { "bench", 1, 1 };
    uint64_t each = w->stream ? to - from : w->piece;
    for (uint64_t at = from; at < to; at += each) {
        if (w->store == NULL) {
            move_blocks(w, write, at, at + each);
            continue;
        }
        sluice_status st = write ? sl_swap_write(w->store, at, w->memory[1], w->piece, &label)
                                 : sl_swap_read(w->store, at, w->memory[0], w->piece, &label);
        if (st != SLUICE_OK) die(sluice_error());
    }
}

static void *write_half(void *user)
{
    const way *w = user;
    move_range(w, true, w->bytes / 2, w->bytes);
    return NULL;
}

/* GB/s, of each direction. */
static double measure(way *w, int kind)
{
    double start = sl_now();
    if (kind != BOTH) {
        move_range(w, kind == WRITE, 0, w->bytes);
        return (double)w->bytes / (sl_now() - start) * 1e-9;
    }
    pthread_t writer;
    if (pthread_create(&writer, NULL, write_half, w) != 0) die("no thread");
    move_range(w, false, 0, w->bytes / 2);
    pthread_join(writer, NULL);
    return (double)w->bytes / 2 / (sl_now() - start) * 1e-9;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void make_way(way *w, int which, const char *folder)
{
    w->stream = which == STREAM;
    if (which == STREAM || which == TRANSFERS) {
        w->fd = open(folder, O_TMPFILE | O_RDWR | O_DIRECT | O_CLOEXEC, 0600);
        if (w->fd < 0 || fallocate(w->fd, 0, 0, (off_t)w->bytes) != 0) die("no file with O_DIRECT in that folder");
    } else {
        sl_swap_options o = { .folders = &folder, .folder_count = 1, .bytes = w->bytes, .threads = which == THREADS };
        if (sl_swap_open(&o, &w->store) != SLUICE_OK) die(sluice_error());
    }
    move_range(w, true, 0, w->bytes); /* the first write of reserved space is slower everywhere */
}

static void print_table(double rate[KINDS][WAYS][ROUNDS])
{
    printf("  %-20s", "GB/s");
    for (int i = 0; i < WAYS; i++) printf("%10s%s", way_names[i], i != STREAM ? "   ratio" : "");
    printf("\n");
    for (int k = 0; k < KINDS; k++) {
        double stream = 0;
        printf("  %-20s", kind_names[k]);
        for (int i = 0; i < WAYS; i++) {
            qsort(rate[k][i], ROUNDS, sizeof rate[k][i][0], by_size);
            double median = rate[k][i][ROUNDS / 2];
            if (i == STREAM) stream = median;
            printf("%10.2f", median);
            if (i != STREAM) printf("%8.2f", median / stream);
        }
        printf("\n");
    }
}

int main(int argc, char **argv)
{
    static double rate[KINDS][WAYS][ROUNDS];
    const char *folder = argc > 1 ? argv[1] : ".";
    uint64_t bytes = (argc > 2 ? strtoull(argv[2], NULL, 10) : 256) << 20;
    uint64_t piece = (argc > 3 ? strtoull(argv[3], NULL, 10) : 64) << 20;
    if (piece == 0 || bytes < 2 * piece || bytes / 2 % piece != 0) die("MIB is a multiple of twice PIECE_MIB");
    way ways[WAYS];
    char *memory = NULL;
    if (posix_memalign((void **)&memory, HUGE_PAGE, 2 * piece) != 0) die("no memory");
    madvise(memory, 2 * piece, MADV_HUGEPAGE); /* as arenas have it */
    for (uint64_t i = 0; i < 2 * piece; i++) memory[i] = (char)(i * 2654435761u >> 13);
    for (int i = 0; i < WAYS; i++) {
        ways[i] = (way){ .bytes = bytes, .piece = piece, .memory = { memory, memory + piece } };
        make_way(&ways[i], i, folder);
    }
    for (int round = 0; round < ROUNDS; round++)
        for (int k = 0; k < KINDS; k++)
            for (int i = 0; i < WAYS; i++) { /* each is as often the first, which finds a disk's buffers empty */
                int turn = (i + round) % WAYS;
                rate[k][turn][round] = measure(&ways[turn], k);
            }
    printf("%s: %llu MiB in transfers of %llu MiB, medians of %d rounds; stream and plain: %d threads\n", folder,
           (unsigned long long)(bytes >> 20), (unsigned long long)(piece >> 20), ROUNDS, PLAIN_THREADS);
    print_table(rate);
    for (int i = 0; i < WAYS; i++) sl_swap_close(ways[i].store);
    free(memory);
    return 0;
}

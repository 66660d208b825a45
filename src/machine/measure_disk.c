/* measure_disk.c: durations of transfers of the disk tier, by their size, alone and with both directions at work.
 *
 * A first transfer tells how much the disk moves in the time there is; the store, and the largest transfer, are chosen so
 * that every size gets its share. Each point is the mean of its samples but the longest: a run pays for the slow ones as
 * well, and one alone may be anybody's. Places follow each other through the store, so
 * that no place is read or written twice in a row, and the first write of each place, which a file system makes slower,
 * is not timed. */
#include "machine/measure_disk.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "core/alloc.h"
#include "core/bytes.h"
#include "core/status.h"
#include "core/swap.h"
#include "core/thread.h"

#define MIB          ((uint64_t)1 << 20)
#define LEAST_BYTES  (8 * MIB)
#define MOST_SECONDS 2.0
#define MOST_SAMPLES 100
#define HUGE_PAGE    ((uint64_t)2 << 20)
/* Shares of the time: filling the store, every size in both directions, both directions at once. */
#define FILL_SHARE 0.25
#define BOTH_SHARE 0.4
/* Pieces of which a store has at least so many. */
#define LEAST_PIECES 4

/* Bytes of transfers, increasing; as many as rates have room for. */
static const uint64_t sizes[] = { MIB / 4, MIB, 4 * MIB, 16 * MIB, 64 * MIB };
enum { SIZES = sizeof sizes / sizeof sizes[0] };
_Static_assert(SIZES <= SL_RATE_POINTS, "a point for each size");

typedef enum { READS, WRITES, DIRECTIONS } direction;

typedef struct disk_run {
    sl_swap *store;
    uint64_t bytes;          /* of the store */
    char *memory, *pages;    /* owned; its units: two transfers of the largest size, to read into and to write from */
    uint64_t piece;          /* the largest transfer */
    uint64_t at[DIRECTIONS]; /* where the next transfer begins */
    uint64_t in[DIRECTIONS]; /* and where in the memory, all of which is used in turn: no processor has it at hand */
    bool dead;               /* a store was: its disk may still write into the memory */
} disk_run;

static const sl_swap_label label = { "a measurement", 1, 0 };

/* One transfer of the next place. With `half`, reads stay in the first half of the store and writes in the second. */
static sluice_status transfer(disk_run *r, direction d, uint64_t bytes, bool half)
{
    uint64_t end = half && d == READS ? r->bytes / 2 : r->bytes, begin = half && d == WRITES ? r->bytes / 2 : 0;
    uint64_t at = r->at[d];
    if (at < begin || at + bytes > end) at = begin;
    r->at[d] = at + bytes;
    if (r->in[d] + bytes > r->piece) r->in[d] = 0;
    char *memory = r->pages + (d == WRITES ? r->piece : 0) + r->in[d];
    r->in[d] += bytes;
    return d == READS ? sl_swap_read(r->store, at, memory, bytes, &label)
                      : sl_swap_write(r->store, at, memory, bytes, &label);
}

/* ---- the store ---- */

static sluice_status open_store(const sl_disk_bench *b, uint64_t bytes, disk_run *r)
{
    sl_swap_options o = {
        .folders = b->folders,
        .folder_count = b->folder_count,
        .bytes = bytes,
        .threads = b->threads,
        .deadline_seconds = b->deadline_seconds,
    };
    r->bytes = bytes;
    return sl_swap_open(&o, &r->store);
}

static void close_store(disk_run *r)
{
    sl_swap_stats stats;
    if (r->store == NULL) return;
    sl_swap_get_stats(r->store, &stats);
    r->dead = r->dead || stats.dead;
    sl_swap_close(r->store);
    r->store = NULL;
}

/* A quarter of what is free, at most. */
static void bound_by_room(const sl_disk_bench *b, uint64_t *bytes)
{
    uint64_t each;
    if (sl_swap_room(b->folders, b->folder_count, &each) == SLUICE_OK) { /* otherwise sl_swap_open says why */
        uint64_t most = each / 4 * (uint64_t)b->folder_count;
        if (*bytes > most) *bytes = most;
    }
    *bytes = *bytes > LEAST_BYTES ? *bytes / LEAST_BYTES * LEAST_BYTES : LEAST_BYTES;
}

/* How much of `most` is written in `seconds`, by a small store. */
static sluice_status choose_bytes(const sl_disk_bench *b, double seconds, uint64_t most, disk_run *r, uint64_t *out)
{
    SL_TRY(open_store(b, LEAST_BYTES, r));
    double start = sl_now();
    sluice_status st = SLUICE_OK;
    for (uint64_t at = 0; at < LEAST_BYTES && st == SLUICE_OK; at += MIB) st = transfer(r, WRITES, MIB, false);
    double rate = (double)LEAST_BYTES / (sl_now() - start);
    close_store(r);
    double bytes = rate * seconds;
    *out = bytes < (double)most ? (uint64_t)bytes / LEAST_BYTES * LEAST_BYTES : most;
    if (*out < LEAST_BYTES) *out = LEAST_BYTES;
    return st;
}

/* Memory of two transfers of the largest size, filled with what no disk makes smaller. On huge pages where there are any, as
 * arenas are: a disk may be several times faster with them. */
static sluice_status take_memory(uint64_t piece, disk_run *r)
{
    r->memory = sl_alloc(2 * piece + HUGE_PAGE, "memory to measure disks with");
    if (r->memory == NULL) return SLUICE_ERR_NO_MEMORY;
    r->pages = r->memory + (HUGE_PAGE - (uintptr_t)r->memory % HUGE_PAGE);
    madvise(r->pages, 2 * piece, MADV_HUGEPAGE);
    r->piece = piece;
    uint64_t x = 1;
    for (uint64_t i = 0; i < 2 * piece; i += sizeof x) {
        x = x * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        uint64_t noise = x ^ (x >> 33);
        memcpy(r->pages + i, &noise, sizeof noise);
    }
    return SLUICE_OK;
}

static sluice_status fill_store(disk_run *r)
{
    uint64_t bytes = r->piece;
    for (uint64_t at = 0; at < r->bytes; at += bytes) {
        if (bytes > r->bytes - at) bytes = r->bytes - at;
        SL_TRY(sl_swap_write(r->store, at, r->pages + r->piece, bytes, &label));
    }
    return SLUICE_OK;
}

/* ---- one direction ---- */

typedef struct samples {
    double sum, longest;
    int count;
} samples;

static void add_sample(samples *s, double seconds)
{
    s->sum += seconds;
    if (seconds > s->longest) s->longest = seconds;
    s->count++;
}

static double mean_of(const samples *s)
{
    return s->count > 2 ? (s->sum - s->longest) / (s->count - 1) : s->sum / s->count;
}

/* Of transfers of `bytes` over about so many seconds. */
static sluice_status measure_size(disk_run *r, direction d, uint64_t bytes, double seconds, double *out)
{
    samples s = { 0 };
    double start = sl_now(), now = start;
    do {
        SL_TRY(transfer(r, d, bytes, false));
        double after = sl_now();
        add_sample(&s, after - now);
        now = after;
    } while (s.count < MOST_SAMPLES && now - start < seconds);
    *out = mean_of(&s);
    return SLUICE_OK;
}

/* Of all threads of this process. */
static double processor_seconds(void)
{
    struct timespec t;
    return clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t) == 0 ? (double)t.tv_sec + 1e-9 * (double)t.tv_nsec : 0;
}

static sluice_status measure_direction(disk_run *r, direction d, double seconds, sl_rates *out)
{
    *out = (sl_rates){ 0 };
    for (int i = 0; i < SIZES && sizes[i] <= r->piece; i++) {
        sl_rate_point *p = &out->points[out->count++];
        p->work = (double)sizes[i];
        SL_TRY(measure_size(r, d, sizes[i], seconds / SIZES, &p->seconds));
    }
    return SLUICE_OK;
}

/* ---- both at once ---- */

typedef struct one_of_both {
    disk_run *run;
    direction d;
    uint64_t bytes; /* of a transfer */
    double until;
    samples seen;
    sluice_status status;
    char message[SL_MESSAGE_BYTES];
} one_of_both;

static void *move_until(void *user)
{
    one_of_both *o = user;
    double now = sl_now();
    while (o->status == SLUICE_OK && (o->seen.count == 0 || now < o->until)) {
        o->status = transfer(o->run, o->d, o->bytes, true);
        double after = sl_now();
        add_sample(&o->seen, after - now);
        now = after;
    }
    if (o->status != SLUICE_OK) sl_error_copy(o->message);
    return NULL;
}

static sluice_status measure_both(disk_run *r, uint64_t bytes, double seconds, double out[DIRECTIONS])
{
    pthread_t writer;
    one_of_both both[DIRECTIONS];
    for (int d = 0; d < DIRECTIONS; d++)
        both[d] = (one_of_both){ .run = r, .d = d, .bytes = bytes, .until = sl_now() + seconds };
    int error = sl_thread_start(&writer, NULL, move_until, &both[WRITES]);
    if (error != 0) return sl_fail(SLUICE_ERR_FAILED, "cannot start a thread to measure with: %s", strerror(error));
    move_until(&both[READS]);
    pthread_join(writer, NULL);
    for (int d = 0; d < DIRECTIONS; d++) {
        if (both[d].status != SLUICE_OK) return sl_fail(both[d].status, "%s", both[d].message);
        out[d] = mean_of(&both[d].seen);
    }
    return SLUICE_OK;
}

static sluice_status measure_beside(disk_run *r, double seconds, sl_disk_rates *out)
{
    sl_rates *rates[DIRECTIONS] = { [READS] = &out->read_beside, [WRITES] = &out->write_beside };
    for (int i = 0; i < SIZES && sizes[i] <= r->piece; i++) {
        double both[DIRECTIONS];
        SL_TRY(measure_both(r, sizes[i], seconds / SIZES, both));
        for (int d = 0; d < DIRECTIONS; d++)
            rates[d]->points[rates[d]->count++] = (sl_rate_point){ (double)sizes[i], both[d] };
    }
    return SLUICE_OK;
}

/* ---- all of it ---- */

/* The largest size of which the store holds enough. */
static uint64_t piece_of(uint64_t bytes)
{
    uint64_t piece = sizes[0];
    for (int i = 0; i < SIZES; i++)
        if (sizes[i] * LEAST_PIECES <= bytes) piece = sizes[i];
    return piece;
}

static sluice_status measure_all(const sl_disk_bench *b, double seconds, disk_run *r, sl_disk_rates *out)
{
    uint64_t most = b->bytes > 0 ? b->bytes : SL_DISK_BENCH_BYTES, bytes;
    bound_by_room(b, &most);
    SL_TRY(take_memory(piece_of(most), r));
    SL_TRY(choose_bytes(b, seconds * FILL_SHARE, most, r, &bytes));
    SL_TRY(open_store(b, bytes, r));
    r->piece = piece_of(bytes); /* no more than memory was taken for */
    SL_TRY(fill_store(r));
    double each = seconds * (1 - FILL_SHARE - BOTH_SHARE) / DIRECTIONS;
    double start = sl_now(), used = processor_seconds();
    SL_TRY(measure_direction(r, READS, each, &out->read));
    SL_TRY(measure_direction(r, WRITES, each, &out->write));
    out->processor = (processor_seconds() - used) / (sl_now() - start);
    return measure_beside(r, seconds * BOTH_SHARE, out);
}

sluice_status sl_measure_disk(const sl_disk_bench *b, sl_disk_rates *out)
{
    disk_run r = { 0 };
    sl_disk_rates found = { 0 };
    sluice_status st = measure_all(b, b->seconds > 0 ? b->seconds : MOST_SECONDS, &r, &found);
    close_store(&r);
    if (r.dead)
        sl_alloc_abandon(r.memory);
    else
        sl_free(r.memory);
    if (st == SLUICE_OK) *out = found;
    return st;
}

/* swap.c: the swap store: opening, closing, and its two calls. */
#include "core/swap.h"

#include <inttypes.h>

#include "core/alloc.h"
#include "core/bytes.h"
#include "core/status.h"
#include "core/swap_parts.h"
#include "core/thread.h"

/* Requests of SL_SWAP_STRIPE bytes and a disk: 4 keep a fast one busy, the others what it does while all processors compute and
 * this thread waits for one. */
#define DEPTH_OF_A_DISK 32
#define MAX_DEPTH       256
/* Rings, requests and the stacks of threads of both directions. */
#define QUEUE_BYTES ((uint64_t)1 << 20)

static sluice_status check_options(const sl_swap_options *o)
{
    if (o->folder_count < 1 || o->folder_count > SL_SWAP_MAX_FOLDERS)
        return sl_fail(SLUICE_ERR_USAGE, "%d folders for swap files; name 1 to %d", o->folder_count,
                       SL_SWAP_MAX_FOLDERS);
    if (o->bytes == 0 || o->bytes > (uint64_t)INT64_MAX / 2)
        return sl_fail(SLUICE_ERR_USAGE, "a disk tier of %" PRIu64 " bytes cannot be made", o->bytes);
    return SLUICE_OK;
}

/* ---- Queues ---- */

static void close_lanes(sl_swap *s)
{
    for (int i = 0; i < SL_SWAP_LANES; i++)
        if (s->lane[i].queue != NULL) s->lane[i].engine->close(s->lane[i].queue);
}

/* Both lanes by one engine, or none. */
static sluice_status open_lanes(sl_swap *s, const sl_swap_engine *engine, int depth)
{
    for (int i = 0; i < SL_SWAP_LANES; i++) {
        sl_swap_lane *l = &s->lane[i];
        sluice_status st = engine->open(&s->files, depth, &l->queue);
        l->engine = engine;
        if (st == SLUICE_OK) continue;
        if (i > 0) engine->close(s->lane[0].queue);
        s->lane[0].queue = NULL;
        return st;
    }
    return SLUICE_OK;
}

/* io_uring where it is built in and the kernel lets us. Lack of memory would hit threads as well. */
static sluice_status choose_engine(sl_swap *s, const sl_swap_options *o)
{
    const sl_swap_engine *uring = o->threads ? NULL : sl_swap_uring();
    int depth = o->depth > 0 ? o->depth : DEPTH_OF_A_DISK * o->folder_count;
    if (depth > MAX_DEPTH) depth = MAX_DEPTH;
    if (uring != NULL) {
        sluice_status st = open_lanes(s, uring, depth);
        if (st == SLUICE_OK || st == SLUICE_ERR_NO_MEMORY) return st;
        sl_log_write(o->log, SLUICE_LOG_NOTE, "%s; threads read and write the swap files", sluice_error());
    }
    return open_lanes(s, &sl_swap_threads, depth);
}

sluice_status sl_swap_open(const sl_swap_options *o, sl_swap **out)
{
    SL_TRY(check_options(o));
    sluice_status st = SLUICE_ERR_NO_MEMORY;
    sl_swap *s = sl_alloc(sizeof *s, "swap store");
    if (s == NULL) return st;
    s->bytes = sl_align_up(o->bytes, SL_SWAP_UNIT);
    s->deadline_seconds = o->deadline_seconds;
    if ((st = sl_swap_files_make(o, &s->files)) != SLUICE_OK) goto free_store;
    if ((st = sl_swap_sums_make(s->bytes, &s->sums)) != SLUICE_OK) goto close_files;
    if ((st = choose_engine(s, o)) != SLUICE_OK) goto free_sums;
    for (int i = 0; i < SL_SWAP_LANES; i++) pthread_mutex_init(&s->lane[i].busy, NULL);
    *out = s;
    return SLUICE_OK;
free_sums:
    sl_swap_sums_free(&s->sums);
close_files:
    sl_swap_files_close(&s->files, false);
free_store:
    sl_free(s);
    return st;
}

void sl_swap_close(sl_swap *s)
{
    if (s == NULL) return;
    close_lanes(s);
    for (int i = 0; i < SL_SWAP_LANES; i++) pthread_mutex_destroy(&s->lane[i].busy);
    sl_swap_sums_free(&s->sums);
    /* A thread may still be in a request: its descriptor must not become another file's, so the system closes it. */
    sl_swap_files_close(&s->files, atomic_load(&s->dead));
    sl_free(s);
}

bool sl_swap_uring_built_in(void)
{
    return sl_swap_uring() != NULL;
}

uint64_t sl_swap_memory(uint64_t bytes)
{
    return sl_swap_sums_bytes(sl_align_up(bytes, SL_SWAP_UNIT)) + QUEUE_BYTES;
}

void sl_swap_get_stats(const sl_swap *s, sl_swap_stats *out)
{
    const sl_swap_lane *r = &s->lane[SL_SWAP_READ], *w = &s->lane[SL_SWAP_WRITE];
    *out = (sl_swap_stats){
        .bytes_read = atomic_load(&r->bytes),
        .bytes_written = atomic_load(&w->bytes),
        .requests_read = atomic_load(&r->requests),
        .requests_written = atomic_load(&w->requests),
        .end = atomic_load(&s->end),
        .read_seconds = (double)atomic_load(&r->nanoseconds) * 1e-9,
        .write_seconds = (double)atomic_load(&w->nanoseconds) * 1e-9,
        .engine = r->engine->name,
        .direct = true,
        .dead = atomic_load(&s->dead),
    };
    for (int i = 0; i < s->files.count; i++) out->direct = out->direct && s->files.file[i].direct;
}

/* ---- Transfers ---- */

static sluice_status check_span(const sl_swap *s, uint64_t offset, const void *data, uint64_t bytes)
{
    if (offset % SL_SWAP_UNIT != 0 || bytes % SL_SWAP_UNIT != 0 || (uintptr_t)data % SL_SWAP_UNIT != 0)
        return sl_fail(SLUICE_ERR_FAILED,
                       "disk transfer of %" PRIu64 " bytes at %" PRIu64
                       " from memory at %p: not whole units of %d bytes",
                       bytes, offset, data, SL_SWAP_UNIT);
    if (offset > s->bytes || bytes > s->bytes - offset)
        return sl_fail(SLUICE_ERR_FAILED, "disk transfer of %" PRIu64 " bytes at %" PRIu64 " of %" PRIu64, bytes,
                       offset, s->bytes);
    return SLUICE_OK;
}

static double begin(sl_swap *s, int direction)
{
    pthread_mutex_lock(&s->lane[direction].busy);
    return sl_now();
}

static void end(sl_swap *s, int direction, double started)
{
    atomic_fetch_add(&s->lane[direction].nanoseconds, (uint64_t)((sl_now() - started) * 1e9));
    pthread_mutex_unlock(&s->lane[direction].busy);
}

static sluice_status transfer(sl_swap *s, int direction, uint64_t offset, char *data, uint64_t bytes,
                              const sl_swap_label *label)
{
    SL_TRY(check_span(s, offset, data, bytes));
    double started = begin(s, direction);
    sluice_status st = sl_swap_move(s, direction, offset, data, bytes, label);
    end(s, direction, started);
    return st;
}

sluice_status sl_swap_write(sl_swap *s, uint64_t offset, const void *data, uint64_t bytes, const sl_swap_label *label)
{
    return transfer(s, SL_SWAP_WRITE, offset, (char *)data, bytes, label); /* which is read alone */
}

sluice_status sl_swap_read(sl_swap *s, uint64_t offset, void *data, uint64_t bytes, const sl_swap_label *label)
{
    return transfer(s, SL_SWAP_READ, offset, data, bytes, label);
}

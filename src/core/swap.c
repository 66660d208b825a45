/* swap.c: the swap store: opening, closing, and its two calls. */
#include "core/swap.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/bytes.h"
#include "core/status.h"
#include "core/swap_parts.h"
#include "core/thread.h"

static sluice_status check_options(const sl_swap_options *o)
{
    if (o->folder_count < 1 || o->folder_count > SL_SWAP_MAX_FOLDERS)
        return sl_fail(SLUICE_ERR_USAGE, "%d folders for swap files; name 1 to %d", o->folder_count,
                       SL_SWAP_MAX_FOLDERS);
    if (o->bytes == 0 || o->bytes > (uint64_t)INT64_MAX / 2)
        return sl_fail(SLUICE_ERR_USAGE, "a disk tier of %" PRIu64 " bytes cannot be made", o->bytes);
    return SLUICE_OK;
}

sluice_status sl_swap_open(const sl_swap_options *o, sl_swap **out)
{
    SL_TRY(check_options(o));
    sluice_status st = SLUICE_ERR_NO_MEMORY;
    sl_swap *s = sl_alloc(sizeof *s, "swap store");
    if (s == NULL) return st;
    s->bytes = sl_align_up(o->bytes, SL_SWAP_UNIT);
    s->deadline_seconds = o->deadline_seconds;
    s->log = o->log;
    if ((st = sl_swap_files_make(o, &s->files)) != SLUICE_OK) goto free_store;
    if ((st = sl_swap_sums_make(s->bytes, &s->sums)) != SLUICE_OK) goto close_files;
    for (int i = 0; i < SL_SWAP_LANES; i++) pthread_mutex_init(&s->lane[i].busy, NULL);
    *out = s;
    return SLUICE_OK;
close_files:
    sl_swap_files_close(&s->files);
free_store:
    sl_free(s);
    return st;
}

void sl_swap_close(sl_swap *s)
{
    if (s == NULL) return;
    for (int i = 0; i < SL_SWAP_LANES; i++) pthread_mutex_destroy(&s->lane[i].busy);
    sl_swap_sums_free(&s->sums);
    sl_swap_files_close(&s->files);
    sl_free(s);
}

void sl_swap_register(sl_swap *s, void *memory, uint64_t bytes)
{
    (void)s, (void)memory, (void)bytes;
}

bool sl_swap_uring_built_in(void)
{
    return false;
}

uint64_t sl_swap_memory(uint64_t bytes)
{
    return sl_swap_sums_bytes(sl_align_up(bytes, SL_SWAP_UNIT)) + ((uint64_t)1 << 20);
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
        .engine = "threads",
        .direct = true,
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

static void count_request(sl_swap *s, int direction, uint64_t offset, uint64_t bytes)
{
    sl_swap_lane *l = &s->lane[direction];
    atomic_fetch_add(&l->bytes, bytes);
    atomic_fetch_add(&l->requests, 1);
    uint64_t end = atomic_load(&s->end);
    while (end < offset + bytes && !atomic_compare_exchange_weak(&s->end, &end, offset + bytes)) {
    }
}

static sluice_status fail_request(const sl_swap_file *f, int direction, const sl_swap_place *p,
                                  const sl_swap_label *label, const char *cause)
{
    return sl_fail(SLUICE_ERR_IO, "step %" PRIu64 ": cannot %s %s %s the swap file in %s at byte %" PRIu64 ": %s",
                   label->step, direction == SL_SWAP_READ ? "read" : "write", label->name,
                   direction == SL_SWAP_READ ? "from" : "to", f->folder, p->offset, cause);
}

/* One request after the other. */
static sluice_status move(sl_swap *s, int direction, uint64_t offset, char *data, uint64_t bytes,
                          const sl_swap_label *label)
{
    uint64_t done = 0;
    while (done < bytes) {
        sl_swap_place p = sl_swap_place_of(&s->files, offset + done);
        const sl_swap_file *f = &s->files.file[p.file];
        uint64_t left = bytes - done < SL_SWAP_STRIPE ? bytes - done : SL_SWAP_STRIPE;
        if (left > p.bytes) left = p.bytes;
        ssize_t n = direction == SL_SWAP_READ ? pread(f->fd, data + done, left, (off_t)p.offset)
                                              : pwrite(f->fd, data + done, left, (off_t)p.offset);
        if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        if (n < 0) return fail_request(f, direction, &p, label, strerror(errno));
        n -= n % SL_SWAP_UNIT;
        if (n == 0) return fail_request(f, direction, &p, label, "no byte was transferred");
        count_request(s, direction, offset + done, (uint64_t)n);
        done += (uint64_t)n;
    }
    return SLUICE_OK;
}

static sluice_status damaged(const sl_swap *s, uint64_t at, const sl_swap_label *label)
{
    sl_swap_place p = sl_swap_place_of(&s->files, at);
    const char *folder = s->files.file[p.file].folder;
    if (!sl_swap_sums_written(&s->sums, at))
        return sl_fail(SLUICE_ERR_IO,
                       "step %" PRIu64 ": %s is read from the swap file in %s at byte %" PRIu64
                       ", which was never written",
                       label->step, label->name, folder, p.offset);
    return sl_fail(SLUICE_ERR_IO,
                   "step %" PRIu64 ": %s came back changed from the swap file in %s at byte %" PRIu64
                   " (4096 bytes, written in step %" PRIu64 "); check that disk",
                   label->step, label->name, folder, p.offset, sl_swap_sums_step(&s->sums, at));
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

sluice_status sl_swap_write(sl_swap *s, uint64_t offset, const void *data, uint64_t bytes, const sl_swap_label *label)
{
    SL_TRY(check_span(s, offset, data, bytes));
    double started = begin(s, SL_SWAP_WRITE);
    sl_swap_sums_set(&s->sums, offset, data, bytes, label);
    sluice_status st = move(s, SL_SWAP_WRITE, offset, (char *)data, bytes, label);
    if (st != SLUICE_OK) sl_swap_sums_forget(&s->sums, offset, bytes);
    end(s, SL_SWAP_WRITE, started);
    return st;
}

sluice_status sl_swap_read(sl_swap *s, uint64_t offset, void *data, uint64_t bytes, const sl_swap_label *label)
{
    SL_TRY(check_span(s, offset, data, bytes));
    double started = begin(s, SL_SWAP_READ);
    sluice_status st = move(s, SL_SWAP_READ, offset, data, bytes, label);
    if (st == SLUICE_OK) {
        uint64_t bad = sl_swap_sums_check(&s->sums, offset, data, bytes, label);
        if (bad < offset + bytes) st = damaged(s, bad, label);
    }
    end(s, SL_SWAP_READ, started);
    return st;
}

/* swap_move.c: one transfer of a swap store.
 *
 * It is cut into requests, of which the queue has as many in flight as its depth. While the disk works, this thread computes
 * the checksums: those of a write at any time before its end, those of a read as its requests end, always after the queue was
 * filled again. So they take no time of the transfer as long as they are faster than the disk. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <time.h>

#include "core/status.h"
#include "core/swap_parts.h"
#include "core/thread.h"

/* Requests of small transfers are smaller, so that there are several to overlap. */
#define LARGEST_REQUEST  SL_SWAP_STRIPE
#define SMALLEST_REQUEST ((uint64_t)128 << 10)
#define REQUESTS_ALIKE   8
/* What the disk is told of at a time, at least. */
#define SUBMITTED_BYTES ((uint64_t)4 << 20)
/* Of a read, bytes in flight on each disk at most: it serves all that it was told of at once, so that what is in flight last comes
 * together, and its checksums have nothing left to hide behind. Enough for any disk to be busy. */
#define READ_AHEAD ((uint64_t)12 << 20)
/* Checksums are computed in pieces of it, between which ended requests are looked after. */
#define SUM_BYTES ((uint64_t)256 << 10)
/* A request that moves nothing so often has failed. */
#define MOST_TRIES 100
/* How long cancelled requests may take to end: half of a deadline, within these bounds. */
#define LEAST_CANCEL_SECONDS 0.25
#define MOST_CANCEL_SECONDS  1.0

typedef struct transfer {
    sl_swap *s;
    sl_swap_lane *lane;
    const sl_swap_label *label;
    bool write;
    uint64_t offset, bytes;
    char *data;
    uint64_t request_bytes;
    uint64_t cut;    /* bytes that requests were made for */
    uint64_t summed; /* of a write: bytes whose checksums are recorded */
    int in_flight;
    uint64_t settled;     /* bytes of requests that are done */
    sluice_status status; /* the first failure; its message is this thread's newest */
    double give_up;       /* after a missed deadline: when what is in flight is abandoned; 0: none was missed */
} transfer;

/* A part of the transfer, relative to its beginning. */
typedef struct part {
    uint64_t from, bytes;
} part;

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t request_bytes_for(uint64_t bytes)
{
    uint64_t each = bytes / REQUESTS_ALIKE / SMALLEST_REQUEST * SMALLEST_REQUEST;
    if (each < SMALLEST_REQUEST) return SMALLEST_REQUEST;
    return least(each, LARGEST_REQUEST);
}

/* ---- Failures: only the first is described ---- */

static const char *verb(const transfer *t)
{
    return t->write ? "write" : "read";
}

static const char *advice(int error)
{
    return error == ENOSPC || error == EDQUOT ? "free space there or use another folder" : "check that disk";
}

static void fail_request(transfer *t, const sl_swap_request *r, int error)
{
    if (t->status != SLUICE_OK) return;
    t->status =
        sl_fail(SLUICE_ERR_IO, "step %" PRIu64 ": cannot %s %s %s the swap file in %s at byte %" PRIu64 ": %s; %s",
                t->label->step, verb(t), t->label->name, t->write ? "to" : "from", t->s->files.file[r->file].folder,
                r->offset, error == 0 ? "the file ends there" : strerror(error), advice(error));
}

static void fail_late(transfer *t, const sl_swap_request *r, double seconds)
{
    if (t->status != SLUICE_OK) return;
    t->status = sl_fail(SLUICE_ERR_IO,
                        "step %" PRIu64 ": the disk of %s has not answered for %.3g seconds: %s of %s at byte %" PRIu64
                        " of the swap file; check that disk",
                        t->label->step, t->s->files.file[r->file].folder, seconds, verb(t), t->label->name, r->offset);
}

static void fail_unit(transfer *t, uint64_t at)
{
    if (t->status != SLUICE_OK) return;
    const sl_swap_sums *sums = &t->s->sums;
    sl_swap_place p = sl_swap_place_of(&t->s->files, at);
    const char *folder = t->s->files.file[p.file].folder;
    if (!sl_swap_sums_written(sums, at))
        t->status = sl_fail(SLUICE_ERR_IO,
                            "step %" PRIu64 ": %s is read from the swap file in %s at byte %" PRIu64
                            ", where nothing was written",
                            t->label->step, t->label->name, folder, p.offset);
    else
        t->status =
            sl_fail(SLUICE_ERR_IO,
                    "step %" PRIu64 ": %s came back changed from the swap file in %s: the %d bytes at %" PRIu64
                    " are not those written in step %" PRIu64 "; check that disk",
                    t->label->step, t->label->name, folder, SL_SWAP_UNIT, p.offset, sl_swap_sums_step(sums, at));
}

/* ---- Requests ---- */

static void start(transfer *t, sl_swap_request *r)
{
    r->started = sl_now();
    r->in_flight = true;
    t->in_flight++;
    t->lane->engine->start(t->lane->queue, r);
}

static sl_swap_request *free_request(transfer *t)
{
    sl_swap_request *r = t->lane->queue->requests;
    while (r->in_flight) r++;
    return r;
}

static bool has_room(const transfer *t)
{
    return t->in_flight < t->lane->queue->depth &&
           (t->write || t->cut - t->settled < READ_AHEAD * (uint64_t)t->s->files.count);
}

/* Fills the queue. Requests are submitted together, so that the disk is told of them once and neighbours become one; but not
 * all of a large transfer: disks that answer at once all that they were told of would leave nothing to do meanwhile. */
static void start_more(transfer *t)
{
    uint64_t waiting = 0;
    while (t->status == SLUICE_OK && t->cut < t->bytes && has_room(t)) {
        sl_swap_place p = sl_swap_place_of(&t->s->files, t->offset + t->cut);
        uint64_t bytes = least(least(t->request_bytes, t->bytes - t->cut), p.bytes);
        sl_swap_request *r = free_request(t);
        *r = (sl_swap_request){ .file = p.file,
                                .write = t->write,
                                .memory = t->data + t->cut,
                                .offset = p.offset,
                                .bytes = bytes,
                                .at = t->offset + t->cut,
                                .length = bytes };
        t->cut += bytes;
        start(t, r);
        waiting += bytes;
        if (waiting < SUBMITTED_BYTES) continue;
        t->lane->engine->submit(t->lane->queue);
        waiting = 0;
    }
    t->lane->engine->submit(t->lane->queue);
}

static void count(transfer *t, uint64_t end, uint64_t bytes)
{
    atomic_fetch_add(&t->lane->bytes, bytes);
    uint64_t seen = atomic_load(&t->s->end);
    while (seen < end && !atomic_compare_exchange_weak(&t->s->end, &seen, end)) {
    }
}

/* A try that moved nothing: again, a little later each time. */
static void try_again(transfer *t, sl_swap_request *r, int error)
{
    if (++r->tries == MOST_TRIES) {
        fail_request(t, r, error);
        return;
    }
    struct timespec pause = { 0, (r->tries < 10 ? r->tries : 10) * 1000000L };
    if (r->tries > 1) nanosleep(&pause, NULL);
    start(t, r);
}

/* Looks at what became of a request: goes on with it where bytes are missing, and returns what is whole now. What a short
 * transfer moved beyond a whole unit is moved again, because O_DIRECT begins at units. */
static part settle(transfer *t, sl_swap_request *r)
{
    const part none = { 0, 0 };
    int64_t n = r->result;
    if (t->status != SLUICE_OK) return none;
    if (n == -EINTR || n == -EAGAIN) {
        try_again(t, r, (int)-n);
        return none;
    }
    if (n <= 0 || (uint64_t)n > r->bytes) {
        fail_request(t, r, n < 0 ? (int)-n : t->write || n > 0 ? EIO : 0);
        return none;
    }
    if (r->flip && !t->write) r->memory[n / 2] = (char)(r->memory[n / 2] ^ 1);
    uint64_t moved = (uint64_t)n / SL_SWAP_UNIT * SL_SWAP_UNIT;
    r->memory += moved;
    r->offset += moved;
    r->bytes -= moved;
    if (moved > 0) {
        r->tries = 0;
        count(t, r->at + r->length - r->bytes, moved);
    }
    if (r->bytes > 0) {
        try_again(t, r, EIO);
        return none;
    }
    atomic_fetch_add(&t->lane->requests, 1);
    t->settled += r->length;
    return (part){ r->at - t->offset, r->length };
}

/* ---- Deadlines ---- */

/* When the first of the requests in flight is late. */
static double next_deadline(const transfer *t)
{
    if (t->give_up > 0) return t->give_up;
    double first = INFINITY;
    const sl_swap_request *r = t->lane->queue->requests;
    for (int i = 0; i < t->lane->queue->depth; i++)
        if (r[i].in_flight && r[i].started < first) first = r[i].started;
    return t->s->deadline_seconds > 0 ? first + t->s->deadline_seconds : INFINITY;
}

/* Nothing came by the deadline. False: what is in flight is abandoned. */
static bool late(transfer *t)
{
    double now = sl_now();
    if (t->give_up > 0) return now < t->give_up;
    const sl_swap_request *r = t->lane->queue->requests;
    for (int i = 0; i < t->lane->queue->depth; i++) {
        if (!r[i].in_flight || now - r[i].started < t->s->deadline_seconds) continue;
        fail_late(t, &r[i], now - r[i].started);
        t->give_up = now + fmin(MOST_CANCEL_SECONDS, fmax(LEAST_CANCEL_SECONDS, t->s->deadline_seconds / 2));
        t->lane->engine->cancel(t->lane->queue);
        break;
    }
    return true;
}

/* ---- Checksums ---- */

/* Of a write: a piece more. False: all are recorded. */
static bool sum_some(transfer *t)
{
    if (!t->write || t->summed == t->bytes || t->status != SLUICE_OK) return false;
    uint64_t bytes = least(SUM_BYTES, t->bytes - t->summed);
    sl_swap_sums_set(&t->s->sums, t->offset + t->summed, t->data + t->summed, bytes, t->label);
    t->summed += bytes;
    return true;
}

/* Of a read: a part that has come. */
static void verify(transfer *t, part p)
{
    if (t->write || p.bytes == 0) return;
    uint64_t at = t->offset + p.from, end = at + p.bytes;
    uint64_t bad = sl_swap_sums_check(&t->s->sums, at, t->data + p.from, p.bytes, t->label);
    if (bad < end) fail_unit(t, bad);
}

/* ---- The transfer ---- */

/* False: requests are left in flight that the system does not end. */
static bool run(transfer *t)
{
    part whole = { 0, 0 };
    for (;;) {
        start_more(t);
        verify(t, whole);
        whole = (part){ 0, 0 };
        bool summing = sum_some(t);
        if (t->in_flight == 0 && !summing && (t->status != SLUICE_OK || t->cut == t->bytes)) return true;
        sl_swap_request *r = NULL;
        if (t->in_flight > 0) r = t->lane->engine->take(t->lane->queue, summing ? 0 : next_deadline(t));
        if (r != NULL) {
            r->in_flight = false;
            t->in_flight--;
            whole = settle(t, r);
        } else if (!summing && !late(t))
            return false;
    }
}

sluice_status sl_swap_move(sl_swap *s, int direction, uint64_t offset, char *data, uint64_t bytes,
                           const sl_swap_label *label)
{
    if (atomic_load(&s->dead))
        return sl_fail(SLUICE_ERR_IO, "step %" PRIu64 ": %s is not moved: a disk of the swap files does not answer",
                       label->step, label->name);
    transfer t = { .s = s,
                   .lane = &s->lane[direction],
                   .label = label,
                   .write = direction == SL_SWAP_WRITE,
                   .offset = offset,
                   .bytes = bytes,
                   .data = data,
                   .request_bytes = request_bytes_for(bytes) };
    if (!run(&t)) atomic_store(&s->dead, true);
    if (t.write && t.status != SLUICE_OK) sl_swap_sums_forget(&s->sums, offset, bytes);
    return t.status;
}

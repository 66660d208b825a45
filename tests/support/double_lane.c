/* double_lane.c: see double_lane.h. One lane in a process. */
#include "support/double_lane.h"

#include <stdlib.h>
#include <string.h>

#include "comm/sums.h"
#include "support/double_device.h"
#include "support/mock_nccl.h"

enum { RING = 4096 }; /* more than the device's queue takes */

/* What is queued, for the stream's thread. */
typedef struct entry {
    void (*work)(void *user);
    void *user;
    sl_contributions sum;
    void *to;
    const void *from;
    size_t bytes;
    sl_lane_mark mark;
} entry;

static struct {
    mock_stream stream; /* first */
    sl_device *device;
    _Atomic uint32_t marks[SL_LANE_MARKS];
    entry ring[RING];
    uint64_t count;
} lane;

static entry *next(void)
{
    entry *e = &lane.ring[lane.count++ % RING];
    *e = (entry){ .work = NULL };
    return e;
}

static sluice_status do_work(void *user)
{
    const entry *e = user;
    e->work(e->user);
    return SLUICE_OK;
}

static void enqueue(mock_stream *s, void (*work)(void *user), void *user)
{
    entry *e = next();
    (void)s;
    e->work = work, e->user = user;
    if (double_backend.submit(lane.device, SL_STREAM_COMM, do_work, e) != SLUICE_OK) abort();
}

static sluice_status lane_open(sl_device *d, uint64_t staging_bytes, sl_lane *out)
{
    lane.stream.enqueue = enqueue;
    lane.device = d;
    *out = (sl_lane){ .stream = &lane.stream, .staging = aligned_alloc(256, staging_bytes) };
    if (out->staging == NULL) return sl_fail(SLUICE_ERR_NO_MEMORY, "staging");
    memset(out->staging, 0xff, staging_bytes);
    for (int i = 0; i < SL_LANE_MARKS; i++) {
        atomic_store(&lane.marks[i], 0);
        out->marks[i] = &lane.marks[i];
    }
    return SLUICE_OK;
}

static void lane_close(sl_device *d, sl_lane *l)
{
    (void)double_backend.synchronize(d);
    free(l->staging);
    l->staging = NULL;
}

static sluice_status lane_address(sl_device *d, const char *what, sl_span span, void **out)
{
    return double_backend.resolve(d, what, span, out);
}

static sluice_status do_copy(void *user)
{
    const entry *e = user;
    memcpy(e->to, e->from, e->bytes);
    return SLUICE_OK;
}

static sluice_status lane_copy(sl_device *d, void *to, const void *from, uint64_t bytes)
{
    entry *e = next();
    e->to = to, e->from = from, e->bytes = (size_t)bytes;
    return double_backend.submit(d, SL_STREAM_COMM, do_copy, e);
}

#if defined(SL_TEST_CUDA_EMULATED)
static sluice_status do_add(void *user)
{
    const entry *e = user;
    return sl_cuda_add_contributions(NULL, 2, &e->sum);
}
#else
/* The rule in plain words, where the emulation is not built. */
static sluice_status do_add(void *user)
{
    const sl_contributions *c = &((const entry *)user)->sum;
    uint64_t unit = sl_comm_form_bytes(c->form), sum_unit = sl_comm_form_bytes(c->sum_form);
    for (int64_t i = 0; i < c->elements; i++) {
        unsigned char *to = (unsigned char *)c->sum + (uint64_t)i * sum_unit;
        float sum = 0;
        if (!c->first) memcpy(&sum, to, sizeof sum);
        for (int r = 0; r < c->ranks; r++) {
            const unsigned char *other = (const unsigned char *)c->received + (uint64_t)(r - (r > c->rank)) * c->stride;
            const unsigned char *from = (r == c->rank ? c->own : other) + (uint64_t)i * unit;
            sl_sum_add(c->form, &sum, &from, 1, c->first && r == 0, false, 1);
        }
        if (c->sum_form == SL_FORM_F32)
            memcpy(to, &sum, sizeof sum);
        else
            sl_sum_round(c->sum_form, to, &sum, 1);
    }
    return SLUICE_OK;
}
#endif

static sluice_status lane_add(sl_device *d, const sl_contributions *c)
{
    entry *e = next();
    e->sum = *c;
    return double_backend.submit(d, SL_STREAM_COMM, do_add, e);
}

static sluice_status do_mark(void *user)
{
    const entry *e = user;
    atomic_fetch_add(&lane.marks[e->mark], 1);
    return SLUICE_OK;
}

static sluice_status lane_mark(sl_device *d, sl_lane_mark which)
{
    entry *e = next();
    e->mark = which;
    return double_backend.submit(d, SL_STREAM_COMM, do_mark, e);
}

static void lane_fail(sl_device *d, sluice_status status, const char *message)
{
    double_fail(d, status, message);
}

const sl_lane_ops double_lane_ops = {
    .open = lane_open,
    .close = lane_close,
    .address = lane_address,
    .copy = lane_copy,
    .add = lane_add,
    .mark = lane_mark,
    .fail = lane_fail,
};

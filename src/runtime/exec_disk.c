/* exec_disk.c: the disk tier: copies between the host and the swap files (core/swap.h), and bytes of what lives there.
 *
 * A copy over a link of the disk is work of the host, queued on the stream of the link. What was never written reads as
 * zeros, as in a new arena: which units were is known here, so that the store's own check of what it was never given stays
 * one. Where no folders are given, the device keeps the tier as it keeps the others: in memory, or nowhere. */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/bytes.h"
#include "core/status.h"
#include "core/swap.h"
#include "runtime/exec_parts.h"

#define BOUNCE_BYTES ((uint64_t)1 << 20)
#define NAME_BYTES   160

_Static_assert(SL_DISK_UNIT == SL_SWAP_UNIT, "the plan cuts what is moved by the store's units");

/* A copy step of the plan. The same one is not queued anew before it has run, but for the step that messages name. */
typedef struct disk_job {
    struct sl_exec *x;
    int step;
    _Atomic uint64_t training_step;
} disk_job;

struct sl_exec_disk {
    sl_swap *swap;
    disk_job *jobs;            /* of the plan's copies from and to the disk */
    int *job_of;               /* per plan step; -1: none */
    _Atomic uint64_t *written; /* bit by bit, units that were written */
    _Atomic uint64_t newest;   /* training step of the newest copy; 0: none yet */
    atomic_bool failing;       /* a copy has failed; the first sets: */
    char message[SL_MESSAGE_BYTES];
    _Atomic int status;        /* of `message`; SLUICE_OK until that is there */
    pthread_mutex_t bounce;    /* held by whoever uses: */
    uint8_t *memory, *bounced; /* as allocated, and from its first unit on */
};

/* ---- opening ---- */

static bool crosses_disk(const sl_plan *p, const sl_step *s)
{
    if (s->kind != SL_STEP_COPY) return false;
    const sl_piece *q = &p->pieces[s->first_piece];
    return p->buffers[q[0].buffer].tier == SL_TIER_DISK || p->buffers[q[1].buffer].tier == SL_TIER_DISK;
}

static sluice_status make_jobs(sl_exec *x, struct sl_exec_disk *d)
{
    const sl_plan *p = x->plan;
    size_t count = 0;
    for (int i = 0; i < p->step_count; i++) count += crosses_disk(p, &p->steps[i]);
    d->jobs = sl_alloc_array(count + 1, sizeof *d->jobs, "transfers of the disk");
    d->job_of = sl_alloc_array((size_t)p->step_count + 1, sizeof *d->job_of, "transfers of the disk");
    if (d->jobs == NULL || d->job_of == NULL) return SLUICE_ERR_NO_MEMORY;
    count = 0;
    for (int i = 0; i < p->step_count; i++) {
        d->job_of[i] = -1;
        if (!crosses_disk(p, &p->steps[i])) continue;
        d->jobs[count].x = x;
        d->jobs[count].step = i;
        d->job_of[i] = (int)count++;
    }
    return SLUICE_OK;
}

sluice_status sl_exec_disk_open(sl_exec *x, const sl_swap_options *options)
{
    sl_swap_options o = *options;
    o.bytes = x->plan->totals.peak[SL_TIER_DISK];
    struct sl_exec_disk *d = x->disk = sl_alloc(sizeof *d, "disk tier");
    if (d == NULL) return SLUICE_ERR_NO_MEMORY;
    pthread_mutex_init(&d->bounce, NULL);
    d->written = sl_alloc_array((size_t)(o.bytes / SL_DISK_UNIT / 64 + 1), sizeof *d->written, "units of the disk");
    d->memory = sl_alloc((size_t)(BOUNCE_BYTES + SL_DISK_UNIT), "bounce buffer of the disk");
    if (d->written == NULL || d->memory == NULL) return SLUICE_ERR_NO_MEMORY;
    d->bounced = (uint8_t *)sl_align_up((uintptr_t)d->memory, SL_DISK_UNIT);
    SL_TRY(make_jobs(x, d));
    return sl_swap_open(&o, &d->swap);
}

void sl_exec_disk_close(sl_exec *x)
{
    struct sl_exec_disk *d = x->disk;
    if (d == NULL) return;
    sl_swap_close(d->swap);
    pthread_mutex_destroy(&d->bounce);
    sl_free(d->jobs);
    sl_free(d->job_of);
    sl_free((void *)d->written);
    sl_free(d->memory);
    sl_free(d);
    x->disk = NULL;
}

uint64_t sl_exec_disk_memory(uint64_t bytes)
{
    return sl_swap_memory(bytes) + bytes / SL_DISK_UNIT / 8 + BOUNCE_BYTES + SL_DISK_UNIT;
}

/* ---- units ---- */

static bool is_written(const struct sl_exec_disk *d, uint64_t unit)
{
    return (atomic_load_explicit(&d->written[unit / 64], memory_order_acquire) >> unit % 64 & 1) != 0;
}

static void note_written(struct sl_exec_disk *d, uint64_t first, uint64_t end)
{
    for (; first < end; first++)
        atomic_fetch_or_explicit(&d->written[first / 64], (uint64_t)1 << first % 64, memory_order_release);
}

/* "optimizer state of layer h.3" */
static const char *name_buffer(const sl_plan *p, int buffer, char *out)
{
    const sl_buffer *b = &p->buffers[buffer];
    if (b->value >= 0)
        snprintf(out, NAME_BYTES, "%s", p->graph->values[b->value].name);
    else if (b->layer >= 0)
        snprintf(out, NAME_BYTES, "%s of layer %s", sl_plan_buffer_name(b->kind), p->graph->layers[b->layer].name);
    else
        snprintf(out, NAME_BYTES, "%s", sl_plan_buffer_name(b->kind));
    return out;
}

/* Whole units of a buffer, from `offset` of the tier on. */
static sluice_status read_units(sl_exec *x, int buffer, uint64_t offset, uint8_t *out, uint64_t bytes, uint64_t step)
{
    struct sl_exec_disk *d = x->disk;
    char name[NAME_BYTES];
    const sl_swap_label label = { name_buffer(x->plan, buffer, name), (uint64_t)buffer, step };
    uint64_t at = offset / SL_DISK_UNIT, end = (offset + bytes) / SL_DISK_UNIT;
    while (at < end) {
        const bool written = is_written(d, at);
        uint64_t first = at;
        while (at < end && is_written(d, at) == written) at++;
        uint8_t *to = out + (first * SL_DISK_UNIT - offset);
        if (written)
            SL_TRY(sl_swap_read(d->swap, first * SL_DISK_UNIT, to, (at - first) * SL_DISK_UNIT, &label));
        else
            memset(to, 0, (size_t)((at - first) * SL_DISK_UNIT));
    }
    return SLUICE_OK;
}

static sluice_status write_units(sl_exec *x, int buffer, uint64_t offset, const uint8_t *data, uint64_t bytes,
                                 uint64_t step)
{
    char name[NAME_BYTES];
    const sl_swap_label label = { name_buffer(x->plan, buffer, name), (uint64_t)buffer, step };
    SL_TRY(sl_swap_write(x->disk->swap, offset, data, bytes, &label));
    note_written(x->disk, offset / SL_DISK_UNIT, (offset + bytes) / SL_DISK_UNIT);
    return SLUICE_OK;
}

/* ---- copies of the plan ---- */

/* The other ranks wait for this one while its own thread waits for them: they are told at once. */
static void give_up(sl_exec *x, sluice_status st)
{
    struct sl_exec_disk *d = x->disk;
    if (atomic_exchange(&d->failing, true)) return;
    sl_error_copy(d->message);
    atomic_store(&d->status, (int)st);
    x->comm->ops->abort(x->comm, d->message);
}

sluice_status sl_exec_cause(const sl_exec *x, sluice_status st)
{
    if (st != SLUICE_ERR_RANK || x == NULL || x->disk == NULL) return st;
    sluice_status mine = (sluice_status)atomic_load(&x->disk->status);
    return mine == SLUICE_OK ? st : sl_fail(mine, "%s", x->disk->message);
}

static sluice_status move(const disk_job *j)
{
    const sl_plan *p = j->x->plan;
    const sl_piece *q = &p->pieces[p->steps[j->step].first_piece];
    const bool reads = p->buffers[q[0].buffer].tier == SL_TIER_DISK;
    const sl_piece there = q[reads ? 0 : 1], here = q[reads ? 1 : 0];
    uint64_t offset = sl_plan_span(p, there).offset, step = atomic_load(&j->training_step);
    void *address = NULL;
    SL_TRY(j->x->backend->resolve(j->x->device, "transfer of the disk", sl_plan_span(p, here), &address));
    return reads ? read_units(j->x, there.buffer, offset, address, there.bytes, step)
                 : write_units(j->x, there.buffer, offset, address, there.bytes, step);
}

static sluice_status run_job(void *user)
{
    const disk_job *j = user;
    sluice_status st = move(j);
    if (st != SLUICE_OK) give_up(j->x, st);
    return st;
}

sluice_status sl_exec_disk_copy(sl_exec *x, const sl_step *s, const sl_run_context *context)
{
    disk_job *j = &x->disk->jobs[x->disk->job_of[s - x->plan->steps]];
    atomic_store(&j->training_step, context->step);
    atomic_store(&x->disk->newest, context->step);
    return x->backend->submit(x->device, s->stream, run_job, j);
}

bool sl_exec_disk_copies(const sl_exec *x, const sl_step *s)
{
    return x->disk != NULL && x->disk->job_of[s - x->plan->steps] >= 0;
}

/* ---- bytes of what lives there: between steps, in messages of the newest one ---- */

/* The part of [at, end) that the bounce buffer holds with its whole units. */
typedef struct window {
    uint64_t offset, bytes; /* whole units */
    uint64_t skip, count;   /* of these, what was asked for */
} window;

static window window_at(uint64_t at, uint64_t end)
{
    uint64_t offset = at / SL_DISK_UNIT * SL_DISK_UNIT;
    if (end > offset + BOUNCE_BYTES) end = offset + BOUNCE_BYTES;
    return (window){ offset, sl_align_up(end - offset, SL_DISK_UNIT), at - offset, end - at };
}

static sluice_status get_all(sl_exec *x, int buffer, uint64_t at, uint64_t bytes, uint8_t *out)
{
    const uint64_t step = atomic_load(&x->disk->newest);
    for (const uint64_t end = at + bytes; at < end;) {
        window w = window_at(at, end);
        SL_TRY(read_units(x, buffer, w.offset, x->disk->bounced, w.bytes, step));
        memcpy(out, x->disk->bounced + w.skip, (size_t)w.count);
        out += w.count;
        at += w.count;
    }
    return SLUICE_OK;
}

/* Units of which a part is left as it is are read first: the first one and the last one. */
static sluice_status put_all(sl_exec *x, int buffer, uint64_t at, uint64_t bytes, const uint8_t *data)
{
    const uint64_t step = atomic_load(&x->disk->newest);
    uint8_t *bounced = x->disk->bounced;
    for (const uint64_t end = at + bytes; at < end;) {
        window w = window_at(at, end);
        uint64_t last = w.bytes - SL_DISK_UNIT;
        if (w.skip > 0) SL_TRY(read_units(x, buffer, w.offset, bounced, SL_DISK_UNIT, step));
        if (w.skip + w.count < w.bytes && (last > 0 || w.skip == 0))
            SL_TRY(read_units(x, buffer, w.offset + last, bounced + last, SL_DISK_UNIT, step));
        memcpy(bounced + w.skip, data, (size_t)w.count);
        SL_TRY(write_units(x, buffer, w.offset, bounced, w.bytes, step));
        data += w.count;
        at += w.count;
    }
    return SLUICE_OK;
}

bool sl_exec_disk_has(const sl_exec *x, int buffer)
{
    return x->disk != NULL && x->plan->buffers[buffer].tier == SL_TIER_DISK;
}

sluice_status sl_exec_disk_get(sl_exec *x, sl_piece q, void *out)
{
    SL_TRY(sl_exec_settle(x));
    pthread_mutex_lock(&x->disk->bounce);
    sluice_status st = get_all(x, q.buffer, sl_plan_span(x->plan, q).offset, q.bytes, out);
    pthread_mutex_unlock(&x->disk->bounce);
    return st;
}

sluice_status sl_exec_disk_put(sl_exec *x, sl_piece q, const void *data)
{
    pthread_mutex_lock(&x->disk->bounce);
    sluice_status st = put_all(x, q.buffer, sl_plan_span(x->plan, q).offset, q.bytes, data);
    pthread_mutex_unlock(&x->disk->bounce);
    return st;
}

void sl_exec_disk_stats(const sl_exec *x, sl_device_stats *out)
{
    sl_swap_stats s;
    if (x->disk == NULL || x->disk->swap == NULL) return;
    sl_swap_get_stats(x->disk->swap, &s);
    out->observed_peak[SL_TIER_DISK] = s.end;
    out->moved[SL_LINK_DISK_READ] = s.bytes_read;
    out->moved[SL_LINK_DISK_WRITE] = s.bytes_written;
}

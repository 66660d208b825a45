/* local.c: collectives of ranks on one machine.
 *
 * The arenas lie in files without a name that every rank inherits from the parent, and every rank maps its peers' ones
 * when a device is attached. A collective is then a meeting, in which each rank says where its source lies, a pull of
 * what it needs, and a parting. It runs as host work on the device's COMM stream. */
#include "comm/local.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "comm/sums.h"
#include "core/alloc.h"
#include "core/thread.h"

/* Looks at a word before sleeping: some microseconds. */
#define SPINS 1000

static sl_local *local_of(const sl_comm *c)
{
    return (sl_local *)(uintptr_t)c;
}

static int local_rank(const sl_comm *c)
{
    return local_of(c)->rank;
}

static int local_size(const sl_comm *c)
{
    return local_of(c)->ranks;
}

/* Alone, a rank has nobody to share with, and private memory gets huge pages more easily. */
static void local_arena_files(sl_comm *base, int files[SL_TIER_COUNT])
{
    sl_local *c = local_of(base);
    for (int t = 0; t < SL_TIER_COUNT; t++) files[t] = t < SL_LOCAL_TIERS && c->ranks > 1 ? c->files[c->rank][t] : -1;
}

static void local_abort(sl_comm *base, const char *message)
{
    sl_local *c = local_of(base);
    pthread_mutex_lock(&c->lock);
    sl_segment_break(c->segment, c->rank, SL_LIFE_GAVE_UP, message);
    pthread_mutex_unlock(&c->lock);
}

static void local_stats(const sl_comm *base, sl_comm_stats *out)
{
    sl_local *c = local_of(base);
    *out = (sl_comm_stats){ .gather_bytes = atomic_load(&c->gather_bytes),
                            .reduce_bytes = atomic_load(&c->reduce_bytes),
                            .norm_bytes = atomic_load(&c->norm_bytes),
                            .collectives = atomic_load(&c->collectives) };
}

static double local_timeout(const sl_comm *base)
{
    return local_of(base)->segment->timeout_seconds;
}

static sluice_status local_check(sl_comm *base)
{
    return sl_local_check(local_of(base));
}

static sluice_status local_meet(sl_comm *base, uint64_t sequence, const char *name, uint64_t bytes)
{
    sl_local *c = local_of(base);
    sl_notice n = { .sequence = sequence, .bytes = bytes };
    SL_TRY(sl_local_check(c));
    sl_notice_name(&n, name);
    SL_TRY(sl_local_meet(c, SL_CHANNEL_COLLECTIVE, &n));
    return sl_local_part(c, SL_CHANNEL_COLLECTIVE);
}

/* ---- attaching ---- */

/* What a rank tells the others about its arenas. */
typedef struct arenas {
    sl_window window[SL_LOCAL_TIERS]; /* bytes 0: none */
    uint64_t has_memory;
} arenas;

static void local_detach(sl_comm *base)
{
    sl_local *c = local_of(base);
    for (int r = 0; r < c->ranks; r++)
        for (int t = 0; t < SL_LOCAL_TIERS; t++) {
            sl_view *v = &c->views[r][t];
            if (v->mapping != NULL) munmap(v->mapping, v->mapping_bytes);
            *v = (sl_view){ 0 };
        }
    c->backend = NULL;
    c->device = NULL;
}

/* A file shorter than the window would turn a read into SIGBUS. */
static sluice_status view_peer(sl_local *c, int r, int tier, sl_window w)
{
    sl_view *v = &c->views[r][tier];
    int file = c->files[r][tier];
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), skip = w.offset % page;
    struct stat info;
    if (w.bytes == 0) return SLUICE_OK;
    if (fstat(file, &info) != 0 || (uint64_t)info.st_size < w.offset + w.bytes)
        return sl_fail(SLUICE_ERR_RANK, "the arena of rank %d, %llu bytes, is not in the file it shares", r,
                       (unsigned long long)w.bytes);
    size_t bytes = (size_t)(w.bytes + skip);
    void *p = mmap(NULL, bytes, PROT_READ, MAP_SHARED, file, (off_t)(w.offset - skip));
    if (p == MAP_FAILED)
        return sl_fail(SLUICE_ERR_NO_MEMORY, "mapping the arena of rank %d, %llu bytes: %s", r,
                       (unsigned long long)w.bytes, strerror(errno));
    *v = (sl_view){ (const unsigned char *)p + skip, w.bytes, p, bytes };
    return SLUICE_OK;
}

static sluice_status view_peers(sl_local *c, const arenas *all)
{
    for (int r = 0; r < c->ranks; r++) {
        if (all[r].has_memory != all[c->rank].has_memory)
            return sl_fail(SLUICE_ERR_RANK, "ranks %d and %d run on different backends", r, c->rank);
        for (int t = 0; t < SL_LOCAL_TIERS && r != c->rank; t++) SL_TRY(view_peer(c, r, t, all[r].window[t]));
    }
    return SLUICE_OK;
}

static sluice_status local_attach(sl_comm *base, const sl_backend *backend, sl_device *d)
{
    sl_local *c = local_of(base);
    arenas mine = { .has_memory = backend != &sl_null_backend };
    if (c->backend != NULL) return sl_fail(SLUICE_ERR_USAGE, "a device is attached to this communicator already");
    for (int t = 0; t < SL_LOCAL_TIERS; t++)
        if (!backend->window(d, (sl_tier)t, &mine.window[t])) mine.window[t] = (sl_window){ 0, 0 };
    arenas *all = sl_alloc_array((size_t)c->ranks, sizeof *all, "arenas of all ranks");
    if (all == NULL) return SLUICE_ERR_NO_MEMORY;
    sluice_status st = sl_local_exchange(base, "attaching the devices", &mine, sizeof mine, all);
    if (st == SLUICE_OK) st = view_peers(c, all);
    sl_free(all);
    if (st != SLUICE_OK) {
        local_detach(base);
        return st;
    }
    c->backend = backend;
    c->device = d;
    c->moves = mine.has_memory != 0;
    return SLUICE_OK;
}

/* ---- a collective, on the COMM stream ---- */

static sl_span source_span(const sl_collective *what, const sl_comm_part *p)
{
    return what->kind == SL_REDUCE_SCATTER || p->in_place ? p->whole : p->shard;
}

/* Bytes that rank's source of a part must have. */
static uint64_t source_bytes(const sl_collective *what, const sl_comm_part *p, int rank)
{
    bool whole = what->kind == SL_REDUCE_SCATTER || p->in_place;
    return whole ? sl_part_whole_bytes(p) : sl_comm_range_bytes(p, rank);
}

/* What else of a part must agree, beside its bytes. */
static uint64_t hash_forms(uint64_t hash, const sl_comm_part *p)
{
    const uint64_t numbers[] = { (uint64_t)p->form, (uint64_t)p->sum_form, (uint64_t)p->per, p->unit };
    for (int i = 0; i < 4; i++) hash = (hash ^ numbers[i]) * 1099511628211u;
    return hash;
}

/* Writes the notice, and the sources beside it: both hold until the parting. */
static void prepare(const sl_local_job *job, sl_notice *n)
{
    sl_source *sources = job->comm->segment->members[job->comm->rank].sources;
    *n = (sl_notice){
        .sequence = job->sequence, .kind = (int32_t)job->what.kind, .parts = job->what.part_count, .detail = job->first
    };
    sl_notice_name(n, job->what.name);
    for (int i = 0; i < job->what.part_count; i++) {
        sl_span s = source_span(&job->what, &job->what.parts[i]);
        uint64_t bytes = source_bytes(&job->what, &job->what.parts[i], job->comm->rank);
        sources[i] = (sl_source){ s.offset, bytes, (int64_t)s.tier };
        n->bytes += sl_part_whole_bytes(&job->what.parts[i]);
        n->forms = hash_forms(n->forms, &job->what.parts[i]);
    }
}

/* Where rank r's source of part i is in this process. NULL where it has none: an empty shard. */
static sluice_status find_source(const sl_local_job *job, int i, int r, const unsigned char **out)
{
    sl_local *c = job->comm;
    const sl_source s = c->segment->members[r].sources[i];
    uint64_t expected = source_bytes(&job->what, &job->what.parts[i], r);
    *out = NULL;
    if (s.bytes != expected)
        return sl_local_fail(c, "rank %d brings %llu bytes to part %d of %s (collective %llu), rank %d expects %llu", r,
                             (unsigned long long)s.bytes, i, job->what.name, (unsigned long long)job->sequence, c->rank,
                             (unsigned long long)expected);
    if (s.bytes == 0) return SLUICE_OK;
    bool known = s.tier >= 0 && s.tier < SL_LOCAL_TIERS;
    if (r == c->rank && known && job->base[s.tier] != NULL) {
        *out = job->base[s.tier] + s.offset;
        return SLUICE_OK;
    }
    if (!known || c->views[r][s.tier].base == NULL || s.offset > c->views[r][s.tier].bytes ||
        s.bytes > c->views[r][s.tier].bytes - s.offset)
        return sl_local_fail(c, "rank %d brings bytes outside the arenas it shares to %s (collective %llu)", r,
                             job->what.name, (unsigned long long)job->sequence);
    *out = c->views[r][s.tier].base + s.offset;
    return SLUICE_OK;
}

static unsigned char *own(const sl_local_job *job, sl_span s)
{
    return s.bytes > 0 ? job->base[s.tier] + s.offset : NULL;
}

static sluice_status pull_part(const sl_local_job *job, int i)
{
    const sl_comm_part *p = &job->what.parts[i];
    const unsigned char *sources[SL_LOCAL_RANKS];
    for (int r = 0; r < job->comm->ranks; r++) SL_TRY(find_source(job, i, r, &sources[r]));
    if (job->what.kind == SL_REDUCE_SCATTER)
        sl_move_reduce(p, job->comm->rank, sources, own(job, p->in_place ? p->whole : p->shard), job->first,
                       job->comm->wide);
    else
        sl_move_gather(p, job->comm->rank, sources, own(job, p->whole));
    return SLUICE_OK;
}

/* Bytes of this rank that the others received. */
static void count(const sl_local_job *job)
{
    sl_local *c = job->comm;
    uint64_t sent = 0;
    for (int i = 0; i < job->what.part_count; i++) {
        const sl_comm_part *p = &job->what.parts[i];
        uint64_t own = sl_comm_range_bytes(p, c->rank);
        sent += job->what.kind == SL_REDUCE_SCATTER ? sl_part_whole_bytes(p) - own : own * (uint64_t)(c->ranks - 1);
    }
    _Atomic uint64_t *const counters[] = {
        [SL_GATHER] = &c->gather_bytes, [SL_REDUCE_SCATTER] = &c->reduce_bytes, [SL_GATHER_NORM] = &c->norm_bytes
    };
    atomic_fetch_add(counters[job->what.kind], sent);
    atomic_fetch_add(&c->collectives, 1);
}

static sluice_status carry_out(const sl_local_job *job)
{
    sl_local *c = job->comm;
    sl_notice notice;
    prepare(job, &notice);
    SL_TRY(sl_local_meet(c, SL_CHANNEL_COLLECTIVE, &notice));
    for (int i = 0; c->moves && i < job->what.part_count; i++) SL_TRY(pull_part(job, i));
    SL_TRY(sl_local_part(c, SL_CHANNEL_COLLECTIVE));
    count(job);
    return SLUICE_OK;
}

static sluice_status run_job(void *user)
{
    sl_local_job *job = user;
    sl_local *c = job->comm;
    sluice_status st = carry_out(job);
    pthread_mutex_lock(&c->lock);
    c->finished++;
    pthread_cond_signal(&c->job_finished);
    pthread_mutex_unlock(&c->lock);
    return st;
}

/* ---- queueing ---- */

static sluice_status fail_part(const sl_collective *what, int i, const char *wrong)
{
    return sl_fail(SLUICE_ERR_FAILED, "part %d of %s: %s: the plan and this job differ", i, what->name, wrong);
}

/* What no rank can carry out, whatever the others say. */
static sluice_status check_part(const sl_local *c, const sl_collective *what, int i, bool first)
{
    const sl_comm_part *p = &what->parts[i];
    const char *fault = what->kind == SL_REDUCE_SCATTER ? sl_sum_fault(p, first) : NULL;
    if (fault != NULL) return fail_part(what, i, fault);
    if (p->shards->rank_count != c->ranks) return fail_part(what, i, "it is cut for another number of ranks");
    if (p->whole.bytes < sl_part_whole_bytes(p)) return fail_part(what, i, "the whole is too short");
    if (p->shard.bytes < sl_comm_shard_bytes(what->kind, p, c->rank))
        return fail_part(what, i, "the shard is too short");
    if (p->whole.tier >= SL_LOCAL_TIERS || p->shard.tier >= SL_LOCAL_TIERS)
        return fail_part(what, i, "it lies on a tier that ranks do not share");
    return SLUICE_OK;
}

static sluice_status resolve(sl_local *c, sl_local_job *job, sl_span s)
{
    void *address;
    sl_window window;
    if (s.bytes == 0) return SLUICE_OK;
    SL_TRY(c->backend->resolve(c->device, job->what.name, s, &address));
    if (!c->moves) return SLUICE_OK;
    if (c->ranks > 1 && !c->backend->window(c->device, s.tier, &window))
        return sl_fail(SLUICE_ERR_FAILED, "%s: the arena is not in the file that the ranks share", job->what.name);
    job->base[s.tier] = (unsigned char *)address - s.offset;
    return SLUICE_OK;
}

static sluice_status fill_job(sl_local *c, sl_local_job *job)
{
    const sl_collective *what = &job->what;
    if (what->part_count > SL_LOCAL_PARTS)
        return sl_fail(SLUICE_ERR_FAILED, "%s has %d parts; ranks of one machine take %d in one collective", what->name,
                       what->part_count, SL_LOCAL_PARTS);
    for (int i = 0; i < what->part_count; i++) {
        SL_TRY(check_part(c, what, i, job->first));
        SL_TRY(resolve(c, job, what->parts[i].whole));
        SL_TRY(resolve(c, job, what->parts[i].shard));
    }
    return SLUICE_OK;
}

/* Waits for a free job. A device that failed skips what is queued, so this cannot wait forever either. */
static sluice_status wait_for_room(sl_local *c)
{
    double deadline = sl_now() + c->segment->timeout_seconds;
    sluice_status st = SLUICE_OK;
    pthread_mutex_lock(&c->lock);
    while (c->started - c->finished == SL_LOCAL_QUEUE && st == SLUICE_OK) {
        struct timespec look;
        clock_gettime(CLOCK_REALTIME, &look);
        look.tv_nsec += (long)(SL_LOCAL_LOOK_SECONDS * 1e9);
        look.tv_sec += look.tv_nsec / 1000000000, look.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&c->job_finished, &c->lock, &look);
        if (atomic_load(&c->failed))
            st = sl_fail(SLUICE_ERR_RANK, "%s", c->failure);
        else if (sl_now() > deadline)
            st = sl_fail(SLUICE_ERR_RANK, "none of %d queued collectives ended within %g s", SL_LOCAL_QUEUE,
                         c->segment->timeout_seconds);
    }
    pthread_mutex_unlock(&c->lock);
    return st;
}

static sluice_status local_start(sl_comm *base, uint64_t sequence, const sl_collective *collective, bool first)
{
    sl_local *c = local_of(base);
    if (c->backend == NULL) return sl_fail(SLUICE_ERR_USAGE, "%s: no device is attached", collective->name);
    SL_TRY(sl_local_check(c));
    SL_TRY(wait_for_room(c));
    sl_local_job *job = &c->jobs[c->started % SL_LOCAL_QUEUE];
    *job = (sl_local_job){ .comm = c, .sequence = sequence, .what = *collective, .first = first };
    SL_TRY(fill_job(c, job));
    c->started++;
    sluice_status st = c->backend->submit(c->device, SL_STREAM_COMM, run_job, job);
    if (st != SLUICE_OK) c->started--; /* it was not queued */
    return st;
}

/* ---- opening and closing ---- */

static void local_close(sl_comm *base)
{
    sl_local *c = local_of(base);
    local_detach(base);
    pthread_cond_destroy(&c->job_finished);
    pthread_mutex_destroy(&c->lock);
    sl_free(c->jobs);
    sl_free(c->views);
    sl_free(c);
}

static const sl_comm_ops local_ops = {
    .name = "local",
    .close = local_close,
    .rank = local_rank,
    .size = local_size,
    .arena_files = local_arena_files,
    .attach = local_attach,
    .detach = local_detach,
    .start = local_start,
    .exchange = sl_local_exchange,
    .broadcast = sl_local_broadcast,
    .collect = sl_local_collect,
    .barrier = sl_local_barrier,
    .abort = local_abort,
    .stats = local_stats,
    .timeout = local_timeout,
    .check = local_check,
    .meet = local_meet,
};

sluice_status sl_comm_local_open(sl_local_segment *s, int rank, int (*files)[SL_LOCAL_TIERS], sl_comm **out)
{
    sl_local *c = sl_alloc(sizeof *c, "communicator");
    if (c == NULL) return SLUICE_ERR_NO_MEMORY;
    c->comm.ops = &local_ops;
    c->segment = s;
    c->rank = rank;
    c->ranks = s->ranks;
    c->files = files;
    c->wide = sl_sum_has_wide();
    c->spins = s->ranks <= sl_cpu_count() ? SPINS : 0;
    c->views = sl_alloc_array((size_t)s->ranks, sizeof *c->views, "views of other ranks' arenas");
    if (c->views == NULL) goto free_comm;
    c->jobs = sl_alloc_array(SL_LOCAL_QUEUE, sizeof *c->jobs, "queued collectives");
    if (c->jobs == NULL) goto free_views;
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->job_finished, NULL);
    *out = &c->comm;
    return SLUICE_OK;
free_views:
    sl_free(c->views);
free_comm:
    sl_free(c);
    return SLUICE_ERR_NO_MEMORY;
}

/* mpi.c: the communicator of a job started by an MPI launcher, built as the plugin libsluice_mpi.so.
 *
 * Only point-to-point messages are used. An MPI reduction adds in an order of its own, and the bits must not depend on
 * it (exact rule 1); an MPI collective cannot say which rank it waits for, and a job must end naming that rank. So
 * every call begins with heads: each rank tells every other what it is about to do, and goes on only when all say the
 * same. Then the bytes move pairwise.
 *
 * Nothing blocks inside MPI: every operation is started, tested and given up after the deadline. Collectives run on the
 * device's COMM stream and control calls in the owner's thread, so two threads use MPI; since no call blocks, one mutex
 * around each call is enough, and MPI_THREAD_SERIALIZED, which every MPI has, is all that is asked for.
 *
 * After a failure the other ranks are told, and nothing more is asked of MPI: MPI_Finalize could wait for ranks that
 * are gone. A launcher then reports an abnormal end and passes on the exit status of the first rank to end. */
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "comm/mpi_world.h"
#include "core/hash.h"

enum {
    LEAVING_PATIENCE = 10, /* deadlines */
    AFTER_YOU_MICROSECONDS = 500000
};

/* ---- control ---- */

/* The heads of a control call. */
static sluice_status control_begins(sl_mpi_world *w, int kind, const char *what, uint64_t bytes, uint64_t layout)
{
    return sl_mpi_meet(w, &w->control, sl_comm_call_make(kind, what, ++w->control_calls, bytes, layout));
}

static sluice_status control_ends(sl_mpi_world *w, sluice_status st)
{
    if (st == SLUICE_OK) st = sl_mpi_lanes_run(w, &w->control, SL_MPI_TAG_BYTES);
    if (st != SLUICE_OK) sl_mpi_cancel_lanes(w, &w->control);
    return st;
}

static sluice_status mpi_exchange(sl_comm *c, const char *what, const void *mine, size_t bytes, void *all)
{
    sl_mpi_world *w = sl_mpi_world_of(c);
    sluice_status st = control_begins(w, SL_CALL_EXCHANGE, what, bytes, 0);
    char *own = (char *)all + (size_t)w->rank * bytes;
    if (st == SLUICE_OK && bytes > 0) memmove(own, mine, bytes);
    for (int r = 0; r < w->size; r++) {
        sl_mpi_lane_carries(&w->control.out[r], own, bytes);
        sl_mpi_lane_carries(&w->control.in[r], (char *)all + (size_t)r * bytes, bytes);
    }
    return control_ends(w, st);
}

static sluice_status mpi_broadcast(sl_comm *c, const char *what, int root, void *data, size_t bytes)
{
    sl_mpi_world *w = sl_mpi_world_of(c);
    sluice_status st = control_begins(w, SL_CALL_BROADCAST, what, bytes, (uint64_t)root);
    if (w->rank != root) sl_mpi_lane_carries(&w->control.in[root], data, bytes);
    for (int r = 0; w->rank == root && r < w->size; r++) sl_mpi_lane_carries(&w->control.out[r], data, bytes);
    return control_ends(w, st);
}

static sluice_status mpi_collect(sl_comm *c, const char *what, int root, const void *mine, const size_t *lengths,
                                 void *all)
{
    sl_mpi_world *w = sl_mpi_world_of(c);
    uint64_t layout = sl_hash_bytes((uint64_t)root, lengths, (size_t)w->size * sizeof *lengths), total = 0;
    for (int r = 0; r < w->size; r++) total += lengths[r];
    sluice_status st = control_begins(w, SL_CALL_COLLECT, what, total, layout);
    if (w->rank != root) sl_mpi_lane_carries(&w->control.out[root], mine, lengths[w->rank]);
    char *to = all;
    for (int r = 0; w->rank == root && r < w->size; r++) {
        if (lengths[r] == 0) continue;
        if (r != root)
            sl_mpi_lane_carries(&w->control.in[r], to, lengths[r]);
        else if (st == SLUICE_OK)
            memmove(to, mine, lengths[r]);
        to += lengths[r];
    }
    return control_ends(w, st);
}

static sluice_status mpi_barrier(sl_comm *c, const char *what)
{
    sl_mpi_world *w = sl_mpi_world_of(c);
    return control_ends(w, control_begins(w, SL_CALL_BARRIER, what, 0, 0));
}

static void mpi_abort(sl_comm *c, const char *message)
{
    sl_mpi_give_up(sl_mpi_world_of(c), message);
}

/* ---- facts ---- */

static int mpi_rank(const sl_comm *c)
{
    return ((const sl_mpi_world *)c)->rank;
}

static int mpi_size(const sl_comm *c)
{
    return ((const sl_mpi_world *)c)->size;
}

/* Ranks may be on different machines: the device maps its own memory. */
static void mpi_arena_files(sl_comm *c, int files[SL_TIER_COUNT])
{
    (void)c;
    for (int i = 0; i < SL_TIER_COUNT; i++) files[i] = -1;
}

static void mpi_stats(const sl_comm *c, sl_comm_stats *out)
{
    const sl_mpi_world *w = (const sl_mpi_world *)c;
    *out = (sl_comm_stats){ .gather_bytes = atomic_load(&w->sent[SL_GATHER]),
                            .reduce_bytes = atomic_load(&w->sent[SL_REDUCE_SCATTER]),
                            .norm_bytes = atomic_load(&w->sent[SL_GATHER_NORM]),
                            .collectives = atomic_load(&w->collective_count) };
}

/* ---- under another communicator ---- */

static double mpi_timeout(const sl_comm *c)
{
    return ((const sl_mpi_world *)c)->timeout;
}

static sluice_status mpi_check(sl_comm *c)
{
    return sl_mpi_check(sl_mpi_world_of(c));
}

static sluice_status mpi_meet(sl_comm *c, uint64_t sequence, const char *name, uint64_t bytes)
{
    sl_mpi_world *w = sl_mpi_world_of(c);
    sluice_status st = sl_mpi_meet(w, &w->collectives, sl_comm_call_make(SL_GATHER, name, sequence, bytes, 0));
    if (st != SLUICE_OK) sl_mpi_cancel_lanes(w, &w->collectives);
    return st;
}

/* ---- opening and closing ---- */

static void talk_free(sl_mpi_world *w, sl_mpi_talk *t)
{
    w->host->free(t->in);
    w->host->free(t->out);
    w->host->free(t->theirs);
}

static void world_free(sl_mpi_world *w)
{
    sl_mpi_detach(&w->base);
    talk_free(w, &w->collectives);
    talk_free(w, &w->control);
    w->host->free(w->farewells);
    pthread_mutex_destroy(&w->mpi);
    w->host->free(w);
}

/* Finalizes only when all ranks came here: otherwise it might wait for one that does not. */
static void mpi_close(sl_comm *c)
{
    sl_mpi_world *w = sl_mpi_world_of(c);
    /* A launcher ends the whole job when one rank ends without the others: whoever still saves must be waited for. */
    w->timeout *= LEAVING_PATIENCE;
    /* Its report and exit status are those of the first rank to end: that should be the one that knows why. */
    if (w->was_told) sl_mpi_nap(AFTER_YOU_MICROSECONDS);
    if (mpi_barrier(c, "leaving the job") == SLUICE_OK) {
        MPI_Comm_free(&w->collectives.comm);
        MPI_Comm_free(&w->control.comm);
        if (w->owns_mpi) MPI_Finalize();
    }
    world_free(w);
}

static const sl_comm_ops mpi_ops = {
    .name = "mpi",
    .close = mpi_close,
    .rank = mpi_rank,
    .size = mpi_size,
    .arena_files = mpi_arena_files,
    .attach = sl_mpi_attach,
    .detach = sl_mpi_detach,
    .start = sl_mpi_start,
    .exchange = mpi_exchange,
    .broadcast = mpi_broadcast,
    .collect = mpi_collect,
    .barrier = mpi_barrier,
    .abort = mpi_abort,
    .stats = mpi_stats,
    .timeout = mpi_timeout,
    .check = mpi_check,
    .meet = mpi_meet,
};

/* Defaults for OpenMPI that it reads when it starts; what the user has set stays. */
static void set_defaults(void)
{
    char from = 1, to = 0;
    struct iovec local = { &to, 1 }, remote = { &from, 1 };
    /* Containers often forbid reading another process's memory; OpenMPI then fails in the middle of a message. */
    if (process_vm_readv(getpid(), &local, 1, &remote, 1, 0) != 1)
        setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 0);
    /* The few calls that block, at the start and the end, must let ranks on the same core go on. */
    setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
    /* Silence about network hardware that is not there. */
    setenv("OMPI_MCA_btl_base_warn_component_unused", "0", 0);
}

/* Starts MPI unless the program has. */
static sluice_status start_mpi(const sl_plugin_host *host, bool *owns)
{
    int initialized = 0, finalized = 0, level = MPI_THREAD_SINGLE;
    MPI_Finalized(&finalized);
    MPI_Initialized(&initialized);
    if (finalized) {
        host->error_record("MPI has been finalized in this process and cannot start again; join the world once");
        return SLUICE_ERR_USAGE;
    }
    if (!initialized) set_defaults();
    int code = initialized ? MPI_Query_thread(&level) : MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level);
    if (code != MPI_SUCCESS || level < MPI_THREAD_SERIALIZED) {
        host->error_record("MPI did not start with thread support (code %d, level %d); sluice needs "
                           "MPI_THREAD_SERIALIZED",
                           code, level);
        return SLUICE_ERR_RANK;
    }
    *owns = !initialized;
    return SLUICE_OK;
}

/* A launcher of another MPI leaves each rank alone in a world of its own. */
static sluice_status check_size(const sl_plugin_host *host, int expected, int size)
{
    if (expected == 0 || expected == size) return SLUICE_OK;
    host->error_record(
        "the launcher started %d ranks, but MPI here sees %d: start sluice with the mpirun of the MPI it "
        "was built with",
        expected, size);
    return SLUICE_ERR_USAGE;
}

static bool talk_alloc(sl_mpi_world *w, sl_mpi_talk *t)
{
    size_t size = (size_t)w->size;
    t->theirs = w->host->alloc(size * sizeof *t->theirs, "heads of other ranks");
    t->out = w->host->alloc(size * sizeof *t->out, "lanes to other ranks");
    t->in = w->host->alloc(size * sizeof *t->in, "lanes from other ranks");
    if (t->theirs == NULL || t->out == NULL || t->in == NULL) return false;
    sl_mpi_lanes_reset(w, t);
    return true;
}

static sl_mpi_world *world_alloc(const sl_plugin_host *host, int rank, int size, double timeout)
{
    sl_mpi_world *w = host->alloc(sizeof *w, "MPI communicator");
    if (w == NULL) return NULL;
    w->base.ops = &mpi_ops;
    w->host = host, w->rank = rank, w->size = size, w->timeout = timeout;
    pthread_mutex_init(&w->mpi, NULL);
    w->farewells = host->alloc((size_t)size * sizeof *w->farewells, "last words to other ranks");
    if (w->farewells != NULL && talk_alloc(w, &w->collectives) && talk_alloc(w, &w->control)) return w;
    world_free(w);
    return NULL;
}

static sluice_status open_comm(MPI_Comm *comm, const sl_plugin_host *host)
{
    int code = MPI_Comm_dup(MPI_COMM_WORLD, comm);
    if (code == MPI_SUCCESS) code = MPI_Comm_set_errhandler(*comm, MPI_ERRORS_RETURN);
    if (code == MPI_SUCCESS) return SLUICE_OK;
    host->error_record("MPI could not make a communicator (code %d)", code);
    return SLUICE_ERR_RANK;
}

static sluice_status mpi_open(const sl_plugin_host *host, int expected_ranks, double timeout_seconds, sl_comm **out)
{
    bool owns;
    int rank, size;
    SL_TRY(start_mpi(host, &owns));
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    SL_TRY(check_size(host, expected_ranks, size));
    sl_mpi_world *w = world_alloc(host, rank, size, timeout_seconds);
    if (w == NULL) return SLUICE_ERR_NO_MEMORY;
    w->owns_mpi = owns;
    sluice_status st = open_comm(&w->collectives.comm, host);
    if (st == SLUICE_OK) st = open_comm(&w->control.comm, host);
    if (st == SLUICE_OK) st = mpi_barrier(&w->base, "joining the job with sluice " SL_PLUGIN_VERSION);
    if (st != SLUICE_OK) {
        world_free(w);
        return st;
    }
    *out = &w->base;
    return SLUICE_OK;
}

__attribute__((visibility("default"))) extern const sl_comm_plugin sl_comm_plugin_mpi;
const sl_comm_plugin sl_comm_plugin_mpi = { SL_PLUGIN_VERSION, sizeof(sl_comm_ops), sizeof(sl_backend), mpi_open };

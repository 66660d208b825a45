/* self.c: the communicator of a job of one rank. */
#include <string.h>

#include "comm/comm.h"
#include "core/alloc.h"

static void self_close(sl_comm *c)
{
    sl_free(c);
}

static int self_rank(const sl_comm *c)
{
    (void)c;
    return 0;
}

static int self_size(const sl_comm *c)
{
    (void)c;
    return 1;
}

static void self_arena_files(sl_comm *c, int files[SL_TIER_COUNT])
{
    (void)c;
    for (int t = 0; t < SL_TIER_COUNT; t++) files[t] = -1;
}

static sluice_status self_attach(sl_comm *c, const sl_backend *backend, sl_device *d)
{
    (void)c, (void)backend, (void)d;
    return SLUICE_OK;
}

static void self_detach(sl_comm *c)
{
    (void)c;
}

/* A plan for one rank has no collectives: meeting one means plan and communicator disagree. */
static sluice_status self_start(sl_comm *c, uint64_t sequence, const sl_collective *collective, bool first)
{
    (void)c, (void)first;
    return sl_fail(SLUICE_ERR_RANK,
                   "%s (collective %llu) in a job of one rank: the plan was made for another number of ranks",
                   collective->name, (unsigned long long)sequence);
}

static sluice_status self_exchange(sl_comm *c, const char *what, const void *mine, size_t bytes, void *all)
{
    (void)c, (void)what;
    if (bytes > 0 && all != mine) memcpy(all, mine, bytes);
    return SLUICE_OK;
}

static sluice_status check_root(const char *what, int root)
{
    if (root == 0) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_USAGE, "\"%s\": rank %d in a job of one rank", what, root);
}

static sluice_status self_broadcast(sl_comm *c, const char *what, int root, void *data, size_t bytes)
{
    (void)c, (void)data, (void)bytes;
    return check_root(what, root);
}

static sluice_status self_collect(sl_comm *c, const char *what, int root, const void *mine, const size_t *lengths,
                                  void *all)
{
    SL_TRY(check_root(what, root));
    return self_exchange(c, what, mine, lengths[0], all);
}

static sluice_status self_barrier(sl_comm *c, const char *what)
{
    (void)c, (void)what;
    return SLUICE_OK;
}

/* There is nobody to tell. */
static void self_abort(sl_comm *c, const char *message)
{
    (void)c, (void)message;
}

static void self_stats(const sl_comm *c, sl_comm_stats *out)
{
    (void)c;
    *out = (sl_comm_stats){ 0 };
}

/* Nobody is waited for. */
static double self_timeout(const sl_comm *c)
{
    (void)c;
    return 60;
}

static sluice_status self_check(sl_comm *c)
{
    (void)c;
    return SLUICE_OK;
}

static sluice_status self_meet(sl_comm *c, uint64_t sequence, const char *name, uint64_t bytes)
{
    (void)c, (void)sequence, (void)name, (void)bytes;
    return SLUICE_OK;
}

static const sl_comm_ops self_ops = {
    .name = "self",
    .close = self_close,
    .rank = self_rank,
    .size = self_size,
    .arena_files = self_arena_files,
    .attach = self_attach,
    .detach = self_detach,
    .start = self_start,
    .exchange = self_exchange,
    .broadcast = self_broadcast,
    .collect = self_collect,
    .barrier = self_barrier,
    .abort = self_abort,
    .stats = self_stats,
    .timeout = self_timeout,
    .check = self_check,
    .meet = self_meet,
};

sluice_status sl_comm_self_open(sl_comm **out)
{
    sl_comm *c = sl_alloc(sizeof *c, "communicator");
    if (c == NULL) return SLUICE_ERR_NO_MEMORY;
    c->ops = &self_ops;
    *out = c;
    return SLUICE_OK;
}

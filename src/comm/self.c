/* self.c: the communicator of a job of one rank. */
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

/* A plan for one rank has no collectives: meeting one means plan and communicator disagree. */
static sluice_status unexpected(const char *what, uint64_t sequence)
{
    return sl_fail(SLUICE_ERR_RANK,
                   "%s (collective %llu) in a job of one rank: the plan was made for another number of ranks", what,
                   (unsigned long long)sequence);
}

static sluice_status self_gather(sl_comm *c, uint64_t sequence, sl_device *d, sl_span whole, sl_span shard)
{
    (void)c, (void)d, (void)whole, (void)shard;
    return unexpected("gather", sequence);
}

static sluice_status self_reduce_scatter(sl_comm *c, uint64_t sequence, sl_device *d, sl_span accumulator,
                                         sl_span contribution)
{
    (void)c, (void)d, (void)accumulator, (void)contribution;
    return unexpected("reduce-scatter", sequence);
}

static sluice_status self_all_reduce(sl_comm *c, uint64_t sequence, sl_device *d, sl_span data)
{
    (void)c, (void)d, (void)data;
    return unexpected("all-reduce", sequence);
}

static sluice_status self_barrier(sl_comm *c, uint64_t sequence)
{
    (void)c, (void)sequence;
    return SLUICE_OK;
}

static void self_stats(const sl_comm *c, sl_comm_stats *out)
{
    (void)c;
    *out = (sl_comm_stats){ 0, 0 };
}

static const sl_comm_ops self_ops = { "self",          self_close,   self_rank,
                                      self_size,       self_gather,  self_reduce_scatter,
                                      self_all_reduce, self_barrier, self_stats };

sluice_status sl_comm_self_open(sl_comm **out)
{
    sl_comm *c = sl_alloc(sizeof *c, "communicator");
    if (c == NULL) return SLUICE_ERR_NO_MEMORY;
    c->ops = &self_ops;
    *out = c;
    return SLUICE_OK;
}

/* nccl_gpu_test.c: where there is a GPU: a communicator of one rank on the real NCCL, and contributions of several
 * ranks added on the GPU, against comm/sums.h. */
#include "backend/cuda/lane.h"
#include "backend/cuda_plugin.h"
#include "comm/comm.h"
#include "support/contributions.h"
#include "test.h"

#define NO_GPU "no GPU here, or built without CUDA"

enum { ARENA = 1 << 20, ELEMENTS = 5000 };

/* A device with arenas; NULL where there is no GPU. */
static sl_device *open_device(const sl_cuda_plugin **plugin)
{
    sl_device_options o = { .threads = 1, .guard = true };
    sl_device *d = NULL;
    int count;
    if (sl_cuda_open_plugin(plugin) != SLUICE_OK || (*plugin)->count(&count) != SLUICE_OK || count == 0) return NULL;
    o.isa = SL_ISA_SCALAR;
    if ((*plugin)->backend->open(&o, &d) != SLUICE_OK) return NULL;
    for (int t = 0; t < 2; t++)
        if ((*plugin)->backend->reserve(d, (sl_tier)t, ARENA) != SLUICE_OK) return NULL;
    return d;
}

/* ---- contributions ---- */

static sl_span span_of(uint64_t offset, uint64_t bytes)
{
    return (sl_span){ SL_TIER_DEVICE, offset, bytes };
}

/* Own contribution at OWN, the others' from OTHERS on, the sum at SUM. */
enum { OWN = 0, SUM = 1 << 16, OTHERS = 2 << 16 };

static void check_on_gpu(const sl_backend *b, const sl_lane_ops *lane, sl_device *d, const trial *t)
{
    static unsigned char from_bytes[MOST_RANKS][SLOT], got[SLOT], expected[SLOT];
    unsigned char *from[MOST_RANKS];
    uint64_t off = t->beside * sl_comm_form_bytes(t->form), sum_off = t->beside * sl_comm_form_bytes(t->sum_form);
    uint64_t bytes = (uint64_t)t->elements * sl_comm_form_bytes(t->form);
    uint64_t sum_bytes = (uint64_t)t->elements * sl_comm_form_bytes(t->sum_form);
    for (int r = 0; r < t->ranks; r++) {
        uint64_t place = r == t->rank ? OWN : OTHERS + (uint64_t)(r - (r > t->rank)) * SLOT;
        from[r] = from_bytes[r];
        fill(from[r], t->form, r, t->elements);
        REQUIRE_OK(b->upload(d, SL_STREAM_COMM, span_of(place + off, bytes), from[r]));
    }
    fill(expected, SL_FORM_F32, MOST_RANKS, t->elements);
    REQUIRE_OK(b->upload(d, SL_STREAM_COMM, span_of(SUM + sum_off, sum_bytes), expected));
    expect(t, from, expected);
    void *own, *others, *sum;
    REQUIRE_OK(lane->address(d, "own", span_of(OWN + off, bytes), &own));
    REQUIRE_OK(lane->address(d, "others", span_of(OTHERS + off, bytes), &others));
    REQUIRE_OK(lane->address(d, "sum", span_of(SUM + sum_off, sum_bytes), &sum));
    sl_contributions c = { t->form, t->sum_form, t->first, t->rank, t->ranks, own, others, SLOT, sum, t->elements };
    if (t->in_place) c.sum = own;
    REQUIRE_OK(lane->add(d, &c));
    REQUIRE_OK(b->synchronize(d));
    REQUIRE_OK(b->download(d, got, span_of(t->in_place ? OWN + off : SUM + sum_off, sum_bytes)));
    CHECK(memcmp(got, expected, (size_t)sum_bytes) == 0);
}

TEST(contributions_of_several_ranks_are_added_on_a_gpu_to_the_same_bits)
{
    const sl_cuda_plugin *plugin;
    sl_device *d = open_device(&plugin);
    sl_lane lane;
    if (d == NULL) SKIP(gpu, NO_GPU);
    REQUIRE_OK(plugin->lane->open(d, 1 << 20, &lane));
    for (int k = 0; k < KINDS; k++)
        for (int i = 0; i < 4; i++) {
            trial t = { kinds[k].form,     kinds[k].sum_form, kinds[k].first, kinds[k].in_place, i < 2 ? 2 : 5, i,
                        i == 3 ? 7 : MOST, (uint64_t)(i % 2) };
            check_on_gpu(plugin->backend, plugin->lane, d, &t);
        }
    plugin->lane->close(d, &lane);
    plugin->backend->close(d);
}

/* ---- one rank on the real NCCL ---- */

typedef struct alone {
    const sl_backend *backend;
    sl_device *device;
    sl_comm *comm;
    uint64_t sequence;
} alone;

static void run(alone *a, sl_collective_kind kind, const sl_comm_part *part, bool first)
{
    sl_collective what = { kind, "a collective of one rank", 1, part };
    REQUIRE_OK(a->comm->ops->start(a->comm, a->sequence++, &what, first));
    REQUIRE_OK(a->backend->synchronize(a->device));
}

/* Reduced once and again: the second time the contribution is added to itself. Then gathered, by NCCL. */
static void reduce_and_gather(alone *a, sl_tier shard_tier)
{
    static float x[ELEMENTS], got[ELEMENTS];
    const int64_t bounds[] = { 0, ELEMENTS };
    const sl_shards shards = { 1, ELEMENTS, 0, 0, bounds };
    sl_comm_part part = { .shards = &shards, .per = 1, .unit = 4, .form = SL_FORM_F32, .sum_form = SL_FORM_F32 };
    part.whole = span_of(256, sizeof x);
    part.shard = (sl_span){ shard_tier, ARENA / 2, sizeof x };
    for (int i = 0; i < ELEMENTS; i++) x[i] = (float)i / 7;
    REQUIRE_OK(a->backend->upload(a->device, SL_STREAM_COMPUTE, part.whole, x));
    REQUIRE_OK(a->backend->synchronize(a->device));
    run(a, SL_REDUCE_SCATTER, &part, true);
    run(a, SL_REDUCE_SCATTER, &part, false);
    REQUIRE_OK(a->backend->download(a->device, got, part.shard));
    for (int i = 0; i < ELEMENTS; i++) CHECK(got[i] == x[i] + x[i]);
    run(a, SL_GATHER, &part, false);
    REQUIRE_OK(a->backend->download(a->device, got, part.whole));
    for (int i = 0; i < ELEMENTS; i++) CHECK(got[i] == x[i] + x[i]);
}

TEST(one_rank_talks_to_itself_through_nccl_on_a_gpu)
{
    const sl_cuda_plugin *plugin;
    sl_comm *self;
    sl_comm_stats stats;
    alone a = { .device = open_device(&plugin) };
    if (a.device == NULL) SKIP(gpu, NO_GPU);
    a.backend = plugin->backend;
    REQUIRE_OK(sl_comm_self_open(&self));
    if (plugin->open_nccl(self, &a.comm) != SLUICE_OK) SKIP(nccl, "no NCCL here");
    REQUIRE_OK(a.comm->ops->attach(a.comm, a.backend, a.device));
    reduce_and_gather(&a, SL_TIER_DEVICE);
    reduce_and_gather(&a, SL_TIER_HOST);
    a.comm->ops->stats(a.comm, &stats);
    CHECK_EQ(stats.collectives, 6);
    CHECK_EQ(stats.reduce_bytes + stats.gather_bytes, 0);
    a.comm->ops->detach(a.comm);
    a.comm->ops->close(a.comm);
    a.backend->close(a.device);
    self->ops->close(self);
}

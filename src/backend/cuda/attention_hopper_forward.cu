/* attention_hopper_forward.cu: attention on sm_90a.
 *
 * A consumer warpgroup has 64 queries; scores, softmax and output stay in its registers. While it exponentiates the
 * scores of one tile of 128 keys, its own P V of the tile before runs on the tensor cores, and the other consumer's MMAs.
 *
 * Registers of a consumer's thread (32 bits each; 64 x N numbers of a warpgroup are N / 2 f32 or N / 4 pairs of 16 bits
 * in each of its 128 threads):
 *
 *                                                      W = 64    W = 128
 *     x.out    accumulator of the output, 64 x W           32         64
 *     x.s      accumulator of the scores, 64 x 128         64         64
 *     p        left operand of P V: 64 x 128 in 16 bits    32         32
 *     x.run    reference and sum of two rows; shrink        6          6
 *                                                         134        166   of 240
 *
 * p is apart from s because both are in use by the tensor cores at once: P V of a tile reads p while Q K^T of the next
 * one writes s. What is left is for addresses, descriptors and the loop.
 *
 * Shared memory (bytes; a block may have 232,448):
 *
 *     queries of both consumers   2 x 64 x W x 2          16 KiB     32 KiB
 *     keys, two stages            2 x 128 x W x 2         32 KiB     64 KiB
 *     values, two stages          2 x 128 x W x 2         32 KiB     64 KiB
 *     output on its way           2 x 64 x W x 2          16 KiB     32 KiB
 *                                                         96 KiB    192 KiB, with 80 for barriers and 1,024 of slack
 *
 * A third stage of keys and values would not fit with W = 128. Keys and values have barriers of their own: a stage of
 * keys is free again after Q K^T, one tile earlier than its values. */
#include "backend/cuda/attention_hopper_maps.cuh"
#include "backend/cuda/attention_rows.cuh"

inline namespace SL_KERNELS
{
template <int W> struct Forward {
    static constexpr int queries = group_rows * groups, keys = 128, buffers = 2;
    static constexpr int group_bytes = group_rows * W * 2; /* queries of a warpgroup */
    static constexpr int key_bytes = keys * W * 2, key_apart = keys * tile_row_bytes;
    /* queries of each warpgroup; buffers of keys, of values; output of each warpgroup on its way */
    static constexpr int key_at = groups * group_bytes, value_at = key_at + buffers * key_bytes;
    static constexpr int out_at = value_at + buffers * key_bytes, barriers_at = out_at + groups * group_bytes;
    static constexpr int shared_bytes = barriers_at + 8 * (2 + 4 * buffers) + shared_slack;
};

struct ForwardMaps {
    CUtensorMap q, k, v;
};

/* What a block's warps meet at. */
template <int W> struct Meeting {
    Held queries;
    Ring<Forward<W>::buffers> keys, values;
};

/* The thread that asks for tiles. */
template <int W, bool bounded>
__device__ __forceinline__ void fetch(const ForwardMaps &maps, const AttentionCall &c, unsigned works,
                                      shared_address base, Meeting<W> m)
{
    using F = Forward<W>;
    Turn<F::buffers> turn;
    for (unsigned work = blockIdx.x; work < works; work += gridDim.x, m.queries.next()) {
        const QueryPiece p = query_piece_of<F, bounded>(c, work);
        const int key_head = p.at.head / c.group;
        m.queries.wait_free();
        barrier_expect(m.queries.full(), groups * F::group_bytes);
        for (int i = 0; i < groups; i++)
            copy_rows<W>(base + i * F::group_bytes, group_apart, &maps.q, m.queries.full(), p.at.head,
                         p.first + i * group_rows, p.at.batch);
        for (int step = p.begin; step < p.steps; step++, turn.next()) {
            const int i = turn.buffer;
            m.keys.wait_free(turn);
            barrier_expect(m.keys.full(i), F::key_bytes);
            copy_rows<W>(base + F::key_at + i * F::key_bytes, F::key_apart, &maps.k, m.keys.full(i), key_head,
                         step * F::keys, p.at.batch);
            m.values.wait_free(turn);
            barrier_expect(m.values.full(i), F::key_bytes);
            copy_rows<W>(base + F::value_at + i * F::key_bytes, F::key_apart, &maps.v, m.values.full(i), key_head,
                         step * F::keys, p.at.batch);
        }
    }
}

/* What a warpgroup has in registers: the output so far, scores of a tile, and the rows' references. */
template <int W> struct Attending {
    float out[1][W / 8][4], s[1][Forward<W>::keys / 8][4];
    Running<1> run;
};

/* The first keys that a lane's two rows see, and that the last row of its warp does; nothing where that is all. */
template <bool bounded> struct Seen {
    int from[1][2], nearest;

    __device__ __forceinline__ Seen(const AttentionCall &c, int batch, int query, int lane)
    {
        see_rows<1>(from, c, batch, query, lane);
        nearest = first_seen(c, batch, query + 15);
    }
};

template <> struct Seen<false> {
    __device__ __forceinline__ Seen(const AttentionCall &, int, int, int)
    {
    }
};

/* Scores of a tile of keys, its products done, become exponentials. True: the output is to be multiplied by shrink. */
template <int W, bool bounded>
__device__ __forceinline__ bool exponentiate(Attending<W> &x, float (&shrink)[1][2], const AttentionCall &c, int query,
                                             int key, const Seen<bounded> &see, int lane)
{
    constexpr int keys = Forward<W>::keys, N = keys / 8;
    const float factor = c.scale * SL_LOG2_E;
    if (key + keys > c.keys || (c.causal && key + keys > query + 1))
        hide<1, N>(x.s, query, key, c.causal, c.keys, lane);
    if constexpr (bounded)
        if (key < see.nearest) hide_past<1, N>(x.s, see.from, key, -INFINITY, lane);
    const bool grown = raise_tops<1, N>(x.run, shrink, x.s, factor);
    soften<1, N>(x.run, x.s, factor);
    return grown;
}

template <class T, int W>
__device__ __forceinline__ void store_out(Attending<W> &x, const AttentionCall &c, const Place &at, int query,
                                          char *stage, int lane)
{
    join_sums(x.run);
    store_lse(c, at, x.run, query, lane, c.scale);
    x.run.sum[0][0] = 1.0f / x.run.sum[0][0], x.run.sum[0][1] = 1.0f / x.run.sum[0][1];
    store_warp_rows<T, W, 1>(head_at<T>(c.out, at.batch, query, at.head, c.width), c.out.row, c.queries - query,
                             c.width, x.out, x.run.sum, stage, lane);
    __syncwarp();
}

/* A tile of keys and values that only the other warpgroup needs. */
template <int W> __device__ __forceinline__ void pass_over(const Meeting<W> &m, const Turn<Forward<W>::buffers> &turn)
{
    m.keys.wait_full(turn);
    m.keys.leave(turn.buffer);
    m.values.wait_full(turn);
    m.values.leave(turn.buffer);
}

/* One warpgroup's part of a piece. `turn`: the next buffer, of keys and values alike. */
template <class T, int W, bool bounded>
__device__ __forceinline__ void attend(const AttentionCall &c, const QueryPiece &piece, int group, char *shared,
                                       shared_address base, const Meeting<W> &m, Turn<Forward<W>::buffers> &turn)
{
    using F = Forward<W>;
    constexpr int N = F::keys / 8;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    const int mine = piece.first + group * group_rows, query = mine + 16 * warp;
    const int seen = attention_tiles(c.causal ? min(mine + group_rows, c.keys) : c.keys, F::keys);
    const shared_address queries = base + group * F::group_bytes, keys = base + F::key_at, values = base + F::value_at;
    const int begin = bounded ? first_seen(c, piece.at.batch, mine) / F::keys : 0;
    const Seen<bounded> see(c, piece.at.batch, query, lane);
    constexpr float lowest = bounded ? SL_ATTENTION_LOWEST : -INFINITY;
    Attending<W> x = { {}, {}, { { { lowest, lowest } }, {} } };
    float shrink[1][2];
    unsigned p[N / 2][1][4];
    if (bounded)
        for (int step = piece.begin; step < begin; step++, turn.next()) pass_over<W>(m, turn);
    Turn<F::buffers> before = turn; /* of the values that belong to p */

    m.queries.wait_full();
    m.keys.wait_full(turn);
    products_begin();
    start_rows<T, W, F::keys>(x.s[0], queries, group_apart, keys + turn.buffer * F::key_bytes, F::key_apart);
    products_end();
    products_wait<0>();
    pin(x.s[0]);
    m.keys.leave(turn.buffer);
    exponentiate<W, bounded>(x, shrink, c, query, begin * F::keys, see, lane);
    round_left<T, 1, N>(p, x.s);
    turn.next();
    for (int step = begin + 1; step < seen; step++, turn.next(), before.next()) {
        m.keys.wait_full(turn);
        products_begin();
        start_rows<T, W, F::keys>(x.s[0], queries, group_apart, keys + turn.buffer * F::key_bytes, F::key_apart);
        products_end();
        m.values.wait_full(before);
        products_begin();
        start_columns<T, W, N / 2>(x.out[0], p, values + before.buffer * F::key_bytes, F::key_apart);
        products_end();
        products_wait<1>();
        pin(x.s[0]);
        m.keys.leave(turn.buffer);
        const bool grown = exponentiate<W, bounded>(x, shrink, c, query, step * F::keys, see, lane);
        products_wait<0>();
        pin(x.out[0]);
        m.values.leave(before.buffer);
        if (grown) shrink_rows<1, W / 8>(x.out, shrink);
        round_left<T, 1, N>(p, x.s);
    }
    m.queries.leave();
    m.values.wait_full(before);
    products_begin();
    start_columns<T, W, N / 2>(x.out[0], p, values + before.buffer * F::key_bytes, F::key_apart);
    products_end();
    products_wait<0>();
    pin(x.out[0]);
    m.values.leave(before.buffer);
    for (int step = seen; step < piece.steps; step++, turn.next()) pass_over<W>(m, turn); /* tiles for others */
    store_out<T, W>(x, c, piece.at, query, shared + F::out_at + group * F::group_bytes + warp * 16 * W * 2, lane);
}

template <class T, int W, bool bounded>
__global__ void __launch_bounds__(threads, 1)
    hopper_forward_kernel(const __grid_constant__ ForwardMaps maps, const __grid_constant__ AttentionCall c,
                          unsigned works)
{
    using F = Forward<W>;
    SL_DYNAMIC_SHARED(char, shared);
    const shared_address base = whole_blocks(shared_at(shared)), barriers = base + F::barriers_at;
    Meeting<W> m = { { barriers, 0 }, { barriers + 16 }, { barriers + 16 + 16 * F::buffers } };
    const int group = (int)threadIdx.x / group_threads - 1;
    if (threadIdx.x == 0) {
        m.queries.set();
        m.keys.set();
        m.values.set();
        barriers_are_set();
    }
    __syncthreads();
    if (group < 0) {
        give_registers<few_registers>();
        if (threadIdx.x == 0) fetch<W, bounded>(maps, c, works, base, m);
        return;
    }
    take_registers<registers>();
    Turn<F::buffers> turn;
    for (unsigned work = blockIdx.x; work < works; work += gridDim.x, m.queries.next())
        attend<T, W, bounded>(c, query_piece_of<F, bounded>(c, work), group, shared + (base - shared_at(shared)), base,
                              m, turn);
}

template <class T, int W, bool bounded>
bool launch_kernel(const AttentionCall &c, sl_form form, void *maker, void *stream)
{
    using F = Forward<W>;
    ForwardMaps maps;
    const unsigned works = (unsigned)(c.batches * c.query_heads * attention_tiles(c.queries, F::queries));
    if (!map_heads(&maps.q, maker, c.q, c.batches, c.queries, c.query_heads, W, group_rows, form) ||
        !map_heads(&maps.k, maker, c.k, c.batches, c.keys, c.key_heads, W, F::keys, form) ||
        !map_heads(&maps.v, maker, c.v, c.batches, c.keys, c.key_heads, W, F::keys, form))
        return false;
    SL_ALLOW_SHARED((hopper_forward_kernel<T, W, bounded>), F::shared_bytes);
    SL_LAUNCH((hopper_forward_kernel<T, W, bounded>), blocks_of(c, works), threads, F::shared_bytes, stream, maps, c,
              works);
    return true;
}

template <class T, int W> bool launch_forward(const AttentionCall &c, sl_form form, void *maker, void *stream)
{
    return (is_bounded(c) ? launch_kernel<T, W, true> : launch_kernel<T, W, false>)(c, form, maker, stream);
}
} // namespace SL_KERNELS

bool sl_attention_forward_hopper(const AttentionCall &c, sl_form form, void *maker, void *stream)
{
    auto launch = form == SL_FORM_BF16 ? (c.width == 64 ? launch_forward<bf16, 64> : launch_forward<bf16, 128>)
                                       : (c.width == 64 ? launch_forward<f16, 64> : launch_forward<f16, 128>);
    return launch(c, form, maker, stream);
}

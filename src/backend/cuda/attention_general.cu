/* attention_general.cu: attention and its gradient in plain f32 arithmetic, for every type and head width.
 *
 * A block has 64 rows of one head and a stripe of up to 128 of its columns, which registers hold; the scores, which
 * need all columns, are computed anew for each stripe. Thread (y, x) of 16 x 16 has rows 4y.. and columns 4x.. of a
 * tile of scores, and rows 4y.., columns 4x.. and 64 + 4x.. of the stripe. */
#include "backend/cuda/attention_limits.cuh"

inline namespace SL_KERNELS
{
constexpr int side = 64, stripe = 128, threads = 256;
constexpr int slab = 16;        /* how much of a contracted dimension lies in shared memory at once */
constexpr int pitch = side + 4; /* rows of four floats stay aligned */

/* Shared memory of a block. */
struct Stage {
    float left[slab][pitch], right[slab][pitch]; /* parts of two operands, turned: [column][row] */
    float weight[side][pitch];                   /* [contracted row][row of the result] */
    float across[slab][stripe];
};

/* `there` rows of one head, which are `row` elements apart. */
template <class T> struct Rows {
    const T *data;
    int64_t row;
    int there;
};

template <class T>
__device__ __forceinline__ Rows<T> rows_at(const AttentionHeads &x, int batch, int first, int head, int width, int all)
{
    return { head_at<const T>(x, batch, first, head, width), x.row, min(side, all - first) };
}

/* Columns [column, column + slab) of 64 rows, turned; zeros outside. */
template <class T>
__device__ __forceinline__ void load_turned(float (&to)[slab][pitch], const Rows<T> &from, int column, int width)
{
    int r = threadIdx.x / 4, c = threadIdx.x % 4 * 4;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        bool in = r < from.there && column + c + i < width;
        to[c + i][r] = in ? to_float(from.data[r * from.row + column + c + i]) : 0.0f;
    }
}

/* s[64, 64] = left right^T. Begins and ends with a barrier. */
template <class T>
__device__ __forceinline__ void scores(float (&s)[4][4], Stage &stage, const Rows<T> &left, const Rows<T> &right,
                                       int width)
{
    int y = threadIdx.x / 16 * 4, x = threadIdx.x % 16 * 4;
#pragma unroll
    for (int i = 0; i < 16; i++) s[i / 4][i % 4] = 0.0f;
    for (int column = 0; column < width; column += slab) {
        __syncthreads();
        load_turned(stage.left, left, column, width);
        load_turned(stage.right, right, column, width);
        __syncthreads();
#pragma unroll
        for (int k = 0; k < slab; k++) {
            Pack<float, 4> a = load_pack<float, 4>(&stage.left[k][y]), b = load_pack<float, 4>(&stage.right[k][x]);
#pragma unroll
            for (int i = 0; i < 16; i++) s[i / 4][i % 4] = fmaf(a.v[i / 4], b.v[i % 4], s[i / 4][i % 4]);
        }
    }
    __syncthreads();
}

/* sum[64, stripe] += weight^T x, x the stripe's columns of 64 rows. Begins and ends with a barrier. */
template <class T>
__device__ __forceinline__ void add_product(float (&sum)[4][8], Stage &stage, const Rows<T> &x, int column, int width)
{
    int down = threadIdx.x / 16 * 4, across = threadIdx.x % 16 * 4, columns = min(stripe, width - column);
    for (int first = 0; first < side; first += slab) {
        __syncthreads();
        for (int i = threadIdx.x; i < slab * stripe; i += threads) {
            int r = first + i / stripe, c = i % stripe;
            bool in = r < x.there && c < columns;
            stage.across[i / stripe][c] = in ? to_float(x.data[r * x.row + column + c]) : 0.0f;
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < slab; k++) {
            Pack<float, 4> w = load_pack<float, 4>(&stage.weight[first + k][down]);
            Pack<float, 4> a = load_pack<float, 4>(&stage.across[k][across]);
            Pack<float, 4> b = load_pack<float, 4>(&stage.across[k][side + across]);
#pragma unroll
            for (int i = 0; i < 16; i++) {
                sum[i / 4][i % 4] = fmaf(w.v[i / 4], a.v[i % 4], sum[i / 4][i % 4]);
                sum[i / 4][4 + i % 4] = fmaf(w.v[i / 4], b.v[i % 4], sum[i / 4][4 + i % 4]);
            }
        }
    }
    __syncthreads();
}

/* A tile as weights of rows of the result that are its own rows, or (turned) its columns. */
__device__ __forceinline__ void store_weights(Stage &stage, const float (&s)[4][4], bool turned)
{
    int y = threadIdx.x / 16 * 4, x = threadIdx.x % 16 * 4;
#pragma unroll
    for (int i = 0; i < 16; i++)
        (turned ? stage.weight[y + i / 4][x + i % 4] : stage.weight[x + i % 4][y + i / 4]) = s[i / 4][i % 4];
}

/* Row i of the thread times factor[i]. */
template <class T>
__device__ __forceinline__ void store_stripe(const AttentionHeads &to, int batch, int first, int head, int all,
                                             const float (&sum)[4][8], const float (&factor)[4], int column, int width)
{
    int y = threadIdx.x / 16 * 4, x = threadIdx.x % 16 * 4;
#pragma unroll
    for (int i = 0; i < 32; i++) {
        int r = first + y + i / 8, c = column + i % 8 / 4 * side + x + i % 4;
        if (r < all && c < width)
            *(head_at<T>(to, batch, r, head, width) + c) = from_float<T>(sum[i / 8][i % 8] * factor[i / 8]);
    }
}

/* Whether a query sees a key; `from` on if limited. */
template <bool limited> __device__ __forceinline__ bool sees(const AttentionCall &c, int query, int key, int from)
{
    return query < c.queries && key < c.keys && (!c.causal || key <= query) && (!limited || key >= from);
}

/* Of the thread's four rows of a tile. */
template <bool limited>
__device__ __forceinline__ void see_rows(int (&from)[4], const AttentionCall &c, int batch, int query)
{
#pragma unroll
    for (int i = 0; i < 4; i++) from[i] = limited ? first_seen(c, batch, query + i) : 0;
}

/* A tile of keys that holds the first which the tile of queries from `first` on sees. */
template <bool limited> __device__ __forceinline__ int first_tile(const AttentionCall &c, int batch, int first)
{
    return limited ? first_seen(c, batch, first) / side * side : 0;
}

/* Scaled, and capped. */
template <bool limited> __device__ __forceinline__ float score_of(const AttentionCall &c, float product)
{
    if (limited && c.softcap > 0.0f) return c.softcap * tanhf(product * c.scale / c.softcap);
    return product * c.scale;
}

/* Over the sixteen threads that share rows. */
__device__ __forceinline__ float row_max(float x)
{
#pragma unroll
    for (int other = 8; other > 0; other /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, other));
    return x;
}

__device__ __forceinline__ float row_sum(float x)
{
#pragma unroll
    for (int other = 8; other > 0; other /= 2) x += __shfl_xor_sync(0xffffffffu, x, other);
    return x;
}

/* A tile of scores becomes exponentials; the running maximum, sum and output follow. Queries past the last see nothing
 * and stay at zero. */
template <bool limited>
__device__ __forceinline__ void soften(const AttentionCall &c, float (&s)[4][4], float (&top)[4], float (&total)[4],
                                       float (&out)[4][8], int query, int key, const int (&from)[4])
{
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float most = top[i];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            if (limited) s[i][j] = score_of<limited>(c, s[i][j]);
            if (sees<limited>(c, query + i, key + j, from[i]))
                most = fmaxf(most, limited ? s[i][j] : s[i][j] * c.scale);
        }
        most = row_max(most);
        float shrink = most == top[i] ? 1.0f : expf(top[i] - most), sum = 0.0f;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            bool seen = sees<limited>(c, query + i, key + j, from[i]);
            s[i][j] = seen ? expf(limited ? s[i][j] - most : s[i][j] * c.scale - most) : 0.0f;
            sum += s[i][j];
        }
        top[i] = most;
        total[i] = total[i] * shrink + row_sum(sum);
#pragma unroll
        for (int j = 0; j < 8; j++) out[i][j] *= shrink;
    }
}

__device__ __forceinline__ void store_lse(const AttentionCall &c, const Place &at, int query, const float (&top)[4],
                                          const float (&total)[4])
{
    if (threadIdx.x % 16 != 0) return;
    for (int i = 0; i < 4 && query + i < c.queries; i++)
        c.lse[((int64_t)at.batch * c.query_heads + at.head) * c.queries + query + i] = top[i] + logf(total[i]);
}

template <class T, bool limited> __global__ void __launch_bounds__(threads, 2) general_forward_kernel(AttentionCall c)
{
    __shared__ Stage stage;
    Place at = place_of(blockIdx.x, c.batches, c.query_heads);
    int first = (attention_tiles(c.queries, side) - 1 - at.tile) * side, column = (int)blockIdx.y * stripe;
    int query = first + (int)threadIdx.x / 16 * 4, key_head = at.head / c.group;
    if (limited) c.keys = keys_there(c, at.batch);
    int seen = c.causal ? min(first + side, c.keys) : c.keys;
    Rows<T> q = rows_at<T>(c.q, at.batch, first, at.head, c.width, c.queries);
    float out[4][8] = {}, total[4] = {}, top[4] = { -INFINITY, -INFINITY, -INFINITY, -INFINITY };
    int from[4];
    see_rows<limited>(from, c, at.batch, query);
    for (int key = first_tile<limited>(c, at.batch, first); key < seen; key += side) {
        float s[4][4];
        scores(s, stage, q, rows_at<T>(c.k, at.batch, key, key_head, c.width, c.keys), c.width);
        soften<limited>(c, s, top, total, out, query, key + (int)threadIdx.x % 16 * 4, from);
        store_weights(stage, s, false);
        add_product(out, stage, rows_at<T>(c.v, at.batch, key, key_head, c.width, c.keys), column, c.width);
    }
    if (column == 0) store_lse(c, at, query, top, total);
    float factor[4];
#pragma unroll
    for (int i = 0; i < 4; i++) factor[i] = 1.0f / total[i];
    store_stripe<T>(c.out, at.batch, first, at.head, c.queries, out, factor, column, c.width);
}

/* s becomes p, dp becomes ds = p (dp - delta), times what a cap leaves of the score's slope; zero where a query does not
 * see a key. */
template <bool limited>
__device__ __forceinline__ void slopes(const AttentionCall &c, int batch, int head, float (&s)[4][4], float (&dp)[4][4],
                                       int query, int key, const int (&from)[4])
{
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int64_t row = (int64_t)batch * c.query_heads + head;
        int known = min(query + i, c.queries - 1);
        float lse = c.lse[row * c.queries + known], delta = c.delta[row * c.rounded + known];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            bool seen = sees<limited>(c, query + i, key + j, from[i]);
            float score = limited ? score_of<limited>(c, s[i][j]) : 0.0f;
            float left = limited && c.softcap > 0.0f ? score / c.softcap : 0.0f;
            s[i][j] = seen ? expf(limited ? score - lse : s[i][j] * c.scale - lse) : 0.0f;
            dp[i][j] = seen ? s[i][j] * (dp[i][j] - delta) : 0.0f;
            if (limited) dp[i][j] *= 1.0f - left * left;
        }
    }
}

template <class T, bool limited> __global__ void __launch_bounds__(threads, 2) general_key_kernel(AttentionCall c)
{
    __shared__ Stage stage;
    Place at = place_of(blockIdx.x, c.batches, c.key_heads);
    int first = at.tile * side, column = (int)blockIdx.y * stripe;
    const int all = c.keys;
    if (limited) c.keys = keys_there(c, at.batch);
    Rows<T> k = rows_at<T>(c.k, at.batch, first, at.head, c.width, c.keys);
    Rows<T> v = rows_at<T>(c.v, at.batch, first, at.head, c.width, c.keys);
    float dk[4][8] = {}, dv[4][8] = {}, once[4] = { 1.0f, 1.0f, 1.0f, 1.0f };
    for (int head = at.head * c.group; head < (at.head + 1) * c.group; head++)
        for (int query = c.causal ? first : 0; query < c.queries; query += side) {
            if (limited && first_seen(c, at.batch, query) >= first + side) break;
            Rows<T> q = rows_at<T>(c.q, at.batch, query, head, c.width, c.queries);
            Rows<T> dout = rows_at<T>(c.dout, at.batch, query, head, c.width, c.queries);
            float s[4][4], dp[4][4];
            int mine = query + (int)threadIdx.x / 16 * 4, from[4];
            see_rows<limited>(from, c, at.batch, mine);
            scores(s, stage, q, k, c.width);
            scores(dp, stage, dout, v, c.width);
            slopes<limited>(c, at.batch, head, s, dp, mine, first + (int)threadIdx.x % 16 * 4, from);
            store_weights(stage, s, true);
            add_product(dv, stage, dout, column, c.width);
            store_weights(stage, dp, true);
            add_product(dk, stage, q, column, c.width);
        }
    float factor[4] = { c.scale, c.scale, c.scale, c.scale };
    if (c.dk.data != nullptr) store_stripe<T>(c.dk, at.batch, first, at.head, all, dk, factor, column, c.width);
    if (c.dv.data != nullptr) store_stripe<T>(c.dv, at.batch, first, at.head, all, dv, once, column, c.width);
}

template <class T, bool limited> __global__ void __launch_bounds__(threads, 2) general_query_kernel(AttentionCall c)
{
    __shared__ Stage stage;
    Place at = place_of(blockIdx.x, c.batches, c.query_heads);
    int first = (attention_tiles(c.queries, side) - 1 - at.tile) * side, column = (int)blockIdx.y * stripe;
    if (limited) c.keys = keys_there(c, at.batch);
    int key_head = at.head / c.group, seen = c.causal ? min(first + side, c.keys) : c.keys;
    Rows<T> q = rows_at<T>(c.q, at.batch, first, at.head, c.width, c.queries);
    Rows<T> dout = rows_at<T>(c.dout, at.batch, first, at.head, c.width, c.queries);
    float dq[4][8] = {};
    int mine = first + (int)threadIdx.x / 16 * 4, from[4];
    see_rows<limited>(from, c, at.batch, mine);
    for (int key = first_tile<limited>(c, at.batch, first); key < seen; key += side) {
        Rows<T> k = rows_at<T>(c.k, at.batch, key, key_head, c.width, c.keys);
        float s[4][4], dp[4][4];
        scores(s, stage, q, k, c.width);
        scores(dp, stage, dout, rows_at<T>(c.v, at.batch, key, key_head, c.width, c.keys), c.width);
        slopes<limited>(c, at.batch, at.head, s, dp, mine, key + (int)threadIdx.x % 16 * 4, from);
        store_weights(stage, dp, false);
        add_product(dq, stage, k, column, c.width);
    }
    float factor[4] = { c.scale, c.scale, c.scale, c.scale };
    store_stripe<T>(c.dq, at.batch, first, at.head, c.queries, dq, factor, column, c.width);
}

dim3 grid_of(const AttentionCall &c, int heads, int rows)
{
    return dim3((unsigned)(c.batches * heads * attention_tiles(rows, side)),
                (unsigned)attention_tiles(c.width, stripe));
}

template <class T, bool limited> void launch_forward(const AttentionCall &c, void *stream)
{
    SL_LAUNCH((general_forward_kernel<T, limited>), grid_of(c, c.query_heads, c.queries), threads, 0, stream, c);
}

template <class T, bool limited> void launch_backward(const AttentionCall &c, void *stream)
{
    if (c.dk.data != nullptr || c.dv.data != nullptr)
        SL_LAUNCH((general_key_kernel<T, limited>), grid_of(c, c.key_heads, c.keys), threads, 0, stream, c);
    if (c.dq.data != nullptr)
        SL_LAUNCH((general_query_kernel<T, limited>), grid_of(c, c.query_heads, c.queries), threads, 0, stream, c);
}
} // namespace SL_KERNELS

void sl_attention_forward_general(const AttentionCall &c, sl_form form, void *stream)
{
    (void)sl_dispatch(form, [&](auto element) {
        using T = decltype(element);
        (is_limited(c) ? launch_forward<T, true> : launch_forward<T, false>)(c, stream);
        return SLUICE_OK;
    });
}

void sl_attention_backward_general(const AttentionCall &c, sl_form form, void *stream)
{
    (void)sl_dispatch(form, [&](auto element) {
        using T = decltype(element);
        (is_limited(c) ? launch_backward<T, true> : launch_backward<T, false>)(c, stream);
        return SLUICE_OK;
    });
}

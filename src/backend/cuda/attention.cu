/* attention.cu: attention and its gradient: the operands of a call, which kernels compute it, and the numbers per query
 * that the gradient begins with. */
#include "backend/cuda/attention.cuh"
#include "backend/cuda/attention_hopper.cuh"

inline namespace SL_KERNELS
{
/* ---- lse / log 2 and dout . out ---- */

constexpr int row_threads = 256;

/* What a lane adds up of a row: 16 bytes at a time where rows are made of them, the row's lanes side by side. */
template <class T, int N, int lanes>
__device__ __forceinline__ float part_of_dot(const T *x, const T *y, int width, int lane)
{
    float sum = 0.0f;
    for (int i = lane * N; i < width; i += lanes * N) {
        float a[N], b[N];
        load_floats<T, N>(x + i, a);
        load_floats<T, N>(y + i, b);
#pragma unroll
        for (int j = 0; j < N; j++) sum = fmaf(a[j], b[j], sum);
    }
    return sum;
}

/* The same where a lane has one load of a row at most. It always loads, if need be the row's beginning: loads under no
 * condition are in flight together. */
template <class T, int N> __device__ __forceinline__ float part_of_short(const T *x, const T *y, int width, int lane)
{
    int i = lane * N < width ? lane * N : 0;
    float a[N], b[N], sum = 0.0f;
    load_floats<T, N>(x + i, a);
    load_floats<T, N>(y + i, b);
#pragma unroll
    for (int j = 0; j < N; j++) sum = fmaf(a[j], b[j], sum);
    return lane * N < width ? sum : 0.0f;
}

/* A block per head and SL_ATTENTION_ROUND queries. As many lanes share a row as it has vectors, up to a power of two,
 * so that none is idle; `depth` rows of theirs are loaded before the first is added up. The numbers leave together,
 * as they lie side by side. Adding zeros changes nothing: how many lanes there are shows in no bit. */
template <class T, int N, int lanes, bool is_short>
__global__ void __launch_bounds__(row_threads) row_numbers_kernel(AttentionCall c)
{
    constexpr int rows = row_threads / lanes, depth = 4;
    __shared__ float sums[SL_ATTENTION_ROUND];
    Place at = place_of(blockIdx.x, c.batches, c.query_heads);
    int first = at.tile * SL_ATTENTION_ROUND, lane = threadIdx.x % lanes;
    for (int row = threadIdx.x / lanes; row < SL_ATTENTION_ROUND; row += depth * rows) {
        float part[depth];
#pragma unroll
        for (int i = 0; i < depth; i++) {
            int query = min(first + row + i * rows, c.queries - 1);
            const T *x = head_at<const T>(c.dout, at.batch, query, at.head, c.width);
            const T *y = head_at<const T>(c.out, at.batch, query, at.head, c.width);
            part[i] =
                is_short ? part_of_short<T, N>(x, y, c.width, lane) : part_of_dot<T, N, lanes>(x, y, c.width, lane);
        }
#pragma unroll
        for (int i = 0; i < depth; i++) {
#pragma unroll
            for (int far = lanes / 2; far > 0; far /= 2) part[i] += __shfl_xor_sync(0xffffffffu, part[i], far);
            if (lane == 0) sums[row + i * rows] = part[i];
        }
    }
    __syncthreads();
    int row = threadIdx.x;
    if (row >= SL_ATTENTION_ROUND) return;
    int64_t head = (int64_t)at.batch * c.query_heads + at.head, to = head * c.rounded + first + row;
    bool there = first + row < c.queries;
    c.delta[to] = there ? sums[row] : 0.0f;
    c.lse2[to] = there ? c.lse[head * c.queries + first + row] * SL_LOG2_E : 0.0f;
}

template <class T, int N, int lanes, bool is_short> void launch_rows(const AttentionCall &c, void *stream)
{
    static_assert(SL_ATTENTION_ROUND % (4 * (row_threads / lanes)) == 0, "rows come in whole batches");
    unsigned blocks = (unsigned)(c.batches * c.query_heads * attention_tiles(c.queries, SL_ATTENTION_ROUND));
    SL_LAUNCH((row_numbers_kernel<T, N, lanes, is_short>), blocks, row_threads, 0, stream, c);
}

template <class T> void launch_row_numbers(const AttentionCall &c, bool vectors, void *stream)
{
    constexpr int n = pack_elements<T>;
    if (!vectors)
        launch_rows<T, 1, 32, false>(c, stream);
    else if (c.width > 32 * n)
        launch_rows<T, n, 32, false>(c, stream);
    else if (c.width > 16 * n)
        launch_rows<T, n, 32, true>(c, stream);
    else if (c.width > 8 * n)
        launch_rows<T, n, 16, true>(c, stream);
    else
        launch_rows<T, n, 8, true>(c, stream);
}

/* ---- operands ---- */

AttentionHeads heads_of(const sl_cuda_tensor *t, int64_t first, int64_t row, int64_t rows, size_t bytes)
{
    return { t->data == nullptr ? nullptr : (char *)t->data + first * (int64_t)bytes, row, rows * row };
}

/* q, k, v or their gradients: one tensor when packed, otherwise three. */
void bind_operands(const AttentionCall &c, const sl_cuda_tensor *t, bool packed, size_t bytes, AttentionHeads *q,
                   AttentionHeads *k, AttentionHeads *v)
{
    int64_t query_row = (int64_t)c.query_heads * c.width, key_row = (int64_t)c.key_heads * c.width;
    if (packed) {
        int64_t row = query_row + 2 * key_row;
        *q = heads_of(t, 0, row, c.queries, bytes);
        *k = heads_of(t, query_row, row, c.keys, bytes);
        *v = heads_of(t, query_row + key_row, row, c.keys, bytes);
        return;
    }
    *q = heads_of(t, 0, query_row, c.queries, bytes);
    *k = heads_of(t + 1, 0, key_row, c.keys, bytes);
    *v = heads_of(t + 2, 0, key_row, c.keys, bytes);
}

AttentionCall bind_inputs(const sl_cuda_args *a, size_t bytes)
{
    AttentionCall c = {};
    bool packed = a->attrs->attention.packed;
    c.batches = (int)a->in[0].shape->dim[0];
    c.queries = (int)a->in[0].shape->dim[1];
    c.keys = packed ? c.queries : (int)a->in[1].shape->dim[1];
    c.query_heads = a->attrs->attention.heads;
    c.key_heads = a->attrs->attention.kv_heads;
    c.group = c.query_heads / c.key_heads;
    c.width = a->attrs->attention.head_width;
    c.causal = a->attrs->attention.causal;
    c.scale = a->attrs->attention.scale;
    c.softcap = a->attrs->attention.softcap;
    c.window = a->attrs->attention.window;
    int operands = sl_attention_operands(a->attrs);
    if (a->input_count == operands + 1 || a->input_count == operands + 4) /* forward, backward */
        (c.causal ? c.positions : c.lengths) = (const int32_t *)a->in[operands].data;
    c.multiprocessors = a->multiprocessors;
    bind_operands(c, a->in, packed, bytes, &c.q, &c.k, &c.v);
    return c;
}

void bind_gradients(AttentionCall *c, const sl_cuda_args *a, size_t bytes)
{
    bool packed = a->attrs->attention.packed;
    const sl_cuda_tensor *saved = a->in + a->input_count - 3; /* out, lse, dout */
    int64_t row = (int64_t)c->query_heads * c->width;
    c->out = heads_of(saved, 0, row, c->queries, bytes);
    c->lse = (float *)saved[1].data;
    c->dout = heads_of(saved + 2, 0, row, c->queries, bytes);
    bind_operands(*c, a->out, packed, bytes, &c->dq, &c->dk, &c->dv);
    c->rounded = sl_attention_round(c->queries);
    c->lse2 = (float *)a->workspace;
    c->delta = c->lse2 + c->batches * c->rounded * c->query_heads;
}

/* Positions and blocks are counted in 31 bits: the least block has 32 rows of a head. */
sluice_status check_size(const sl_cuda_args *a)
{
    const int64_t most = INT32_MAX / 4;
    const sl_shape *q = a->in[0].shape, *k = a->in[a->attrs->attention.packed ? 0 : 1].shape;
    double rows = (double)q->dim[0] * a->attrs->attention.heads * (double)(q->dim[1] + k->dim[1]);
    if (q->dim[1] <= most && k->dim[1] <= most && rows <= 4.0 * (double)most) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_USAGE, "%s: attention of %.0f rows of heads, at most %.0f",
                   a->name != nullptr ? a->name : "?", rows, 4.0 * (double)most);
}

/* ---- which kernels ---- */

/* Heads are made of 16 bytes, and so their addresses are multiples of that where operands begin at one. */
bool whole_vectors(const AttentionCall &c, sl_form form)
{
    const void *data[] = { c.q.data, c.k.data, c.v.data, c.out.data, c.dq.data, c.dk.data, c.dv.data, c.dout.data };
    if (c.width % (form == SL_FORM_F32 ? 4 : 8) != 0) return false;
    for (const void *p : data)
        if (!aligned_for(p, 16)) return false;
    return true;
}

bool on_tensor_cores(const AttentionCall &c, sl_form form)
{
    return form != SL_FORM_F32 && c.width <= SL_ATTENTION_TENSOR_WIDTH && whole_vectors(c, form);
}

/* True: the kernels of sm_90a have it. */
bool on_hopper(const sl_cuda_args *a, const AttentionCall &c, sl_form form,
               decltype(sl_attention_forward_hopper) *start)
{
    const bool fits =
        a->map_maker != nullptr && (c.width == 64 || c.width == 128) && c.softcap == 0.0f && c.lengths == nullptr;
    return fits && on_tensor_cores(c, form) && start(c, form, a->map_maker, a->stream);
}

bool is_empty(const AttentionCall &c)
{
    return c.batches == 0 || c.queries == 0 || c.keys == 0 || c.width == 0;
}
} // namespace SL_KERNELS

extern "C" sluice_status sl_cuda_attention(const sl_cuda_args *a)
{
    sl_form form = sl_cuda_type(SL_OP_ATTENTION, a);
    size_t bytes = form == SL_FORM_F32 ? 4 : 2;
    SL_TRY(check_size(a));
    AttentionCall c = bind_inputs(a, bytes);
    c.out = heads_of(&a->out[0], 0, (int64_t)c.query_heads * c.width, c.queries, bytes);
    c.lse = (float *)a->out[1].data;
    if (is_empty(c)) return SLUICE_OK;
    if (!on_hopper(a, c, form, sl_attention_forward_hopper))
        (on_tensor_cores(c, form) ? sl_attention_forward_tensor : sl_attention_forward_general)(c, form, a->stream);
    return sl_launched(a);
}

extern "C" sluice_status sl_cuda_attention_grad(const sl_cuda_args *a)
{
    sl_form form = sl_cuda_type(SL_OP_ATTENTION_GRAD, a);
    size_t bytes = form == SL_FORM_F32 ? 4 : 2;
    SL_TRY(check_size(a));
    SL_TRY(sl_check_workspace(SL_OP_ATTENTION_GRAD, a));
    AttentionCall c = bind_inputs(a, bytes);
    bind_gradients(&c, a, bytes);
    if (is_empty(c)) return SLUICE_OK;
    bool vectors = whole_vectors(c, form);
    sl_dispatch(form, [&](auto element) {
        launch_row_numbers<decltype(element)>(c, vectors, a->stream);
        return SLUICE_OK;
    });
    if (!on_hopper(a, c, form, sl_attention_backward_hopper))
        (on_tensor_cores(c, form) ? sl_attention_backward_tensor : sl_attention_backward_general)(c, form, a->stream);
    return sl_launched(a);
}

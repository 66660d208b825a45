/* attention.cu: attention and its gradient: the operands of a call, which kernels compute it, and the numbers per query
 * that the gradient begins with. */
#include "backend/cuda/attention.cuh"

namespace
{
/* ---- lse / log 2 and dout . out ---- */

constexpr int row_threads = 256;

/* What a lane adds up of a row: 16 bytes at a time where rows are made of them, the warp's lanes side by side. */
template <class T, bool vectors>
__device__ __forceinline__ float part_of_dot(const T *x, const T *y, int width, int lane)
{
    constexpr int n = vectors ? pack_elements<T> : 1;
    float sum = 0.0f;
    for (int i = lane * n; i < width; i += 32 * n) {
        float a[n], b[n];
        load_floats<T, n>(x + i, a);
        load_floats<T, n>(y + i, b);
#pragma unroll
        for (int j = 0; j < n; j++) sum = fmaf(a[j], b[j], sum);
    }
    return sum;
}

/* A warp per query and head. Heads change fastest, as they lie in memory; queries go up to the rounded count. */
template <class T, bool vectors> __global__ void __launch_bounds__(row_threads) row_numbers_kernel(AttentionCall c)
{
    int lane = threadIdx.x % 32;
    int64_t which = (int64_t)blockIdx.x * (row_threads / 32) + threadIdx.x / 32;
    if (which >= c.batches * c.rounded * c.query_heads) return;
    int head = (int)(which % c.query_heads), query = (int)(which / c.query_heads % c.rounded);
    int batch = (int)(which / c.query_heads / c.rounded);
    float sum = 0.0f, lse = 0.0f;
    int64_t row = (int64_t)batch * c.query_heads + head;
    if (query < c.queries) {
        sum = part_of_dot<T, vectors>(head_at<const T>(c.dout, batch, query, head, c.width),
                                      head_at<const T>(c.out, batch, query, head, c.width), c.width, lane);
        lse = c.lse[row * c.queries + query];
    }
    sum = warp_sum(sum);
    if (lane != 0) return;
    c.delta[row * c.rounded + query] = sum;
    c.lse2[row * c.rounded + query] = lse * SL_LOG2_E;
}

template <class T> void launch_row_numbers(const AttentionCall &c, bool vectors, void *stream)
{
    int64_t rows = c.batches * c.rounded * c.query_heads;
    unsigned blocks = (unsigned)((rows + row_threads / 32 - 1) / (row_threads / 32));
    if (vectors)
        SL_LAUNCH((row_numbers_kernel<T, true>), blocks, row_threads, 0, stream, c);
    else
        SL_LAUNCH((row_numbers_kernel<T, false>), blocks, row_threads, 0, stream, c);
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
    bind_operands(c, a->in, packed, bytes, &c.q, &c.k, &c.v);
    return c;
}

void bind_gradients(AttentionCall *c, const sl_cuda_args *a, size_t bytes)
{
    bool packed = a->attrs->attention.packed;
    const sl_cuda_tensor *saved = a->in + (packed ? 1 : 3); /* out, lse, dout */
    int64_t row = (int64_t)c->query_heads * c->width;
    c->out = heads_of(saved, 0, row, c->queries, bytes);
    c->lse = (float *)saved[1].data;
    c->dout = heads_of(saved + 2, 0, row, c->queries, bytes);
    bind_operands(*c, a->out, packed, bytes, &c->dq, &c->dk, &c->dv);
    c->rounded = sl_attention_round(c->queries);
    c->lse2 = (float *)a->workspace;
    c->delta = c->lse2 + c->batches * c->rounded * c->query_heads;
}

/* Positions and blocks are counted in 31 bits: the least block has 32 rows of a head or eight warps of one row. */
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

bool is_empty(const AttentionCall &c)
{
    return c.batches == 0 || c.queries == 0 || c.keys == 0 || c.width == 0;
}
} // namespace

extern "C" sluice_status sl_cuda_attention(const sl_cuda_args *a)
{
    sl_form form = sl_cuda_type(SL_OP_ATTENTION, a);
    size_t bytes = form == SL_FORM_F32 ? 4 : 2;
    SL_TRY(check_size(a));
    AttentionCall c = bind_inputs(a, bytes);
    c.out = heads_of(&a->out[0], 0, (int64_t)c.query_heads * c.width, c.queries, bytes);
    c.lse = (float *)a->out[1].data;
    if (is_empty(c)) return SLUICE_OK;
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
    (on_tensor_cores(c, form) ? sl_attention_backward_tensor : sl_attention_backward_general)(c, form, a->stream);
    return sl_launched(a);
}

/* update_two_pass.cu: LAMB and LARS, which scale a parameter's step by norms of the whole parameter: the first pass
 * measures, the second applies.
 *
 * A piece is what a parameter has in one leaf of 1,024 elements of the layer. Its squares are summed in sixteen lanes
 * from its own start, and a parameter's pieces in the tree that hangs on the leaf's number in the layer (leaf_norm.h of
 * the CPU's kernels), so the norms have the CPU's bits. Here a run of the table is one parameter. */
#include "backend/cuda/update_kernel.cuh"
#include "backend/cuda/update_tree.cuh"

inline namespace SL_KERNELS
{
constexpr int lanes = 16; /* of a piece's sum */

/* What a group's rates need. */
struct rate_scalars {
    float rate, bias2_sqrt, trust, trust_min, trust_max, weight_decay;
};

struct rate_args {
    rate_scalars group[SL_MAX_GROUPS];
};

/* What a rule measures besides the weight, and what rate it makes of both sums of squares. */
struct measure_lamb {
    static constexpr int slots = 2;
    /* The direction, for which the moments are renewed. */
    static __device__ __forceinline__ float apply(const coefficients &c, float g, cell &e)
    {
        moments(c, g, e);
        return lamb_direction(c, e);
    }

    /* |w| / |direction| within the bounds, 1 where either is zero; the step is lr * sqrt(bias2) / bias1. */
    static __device__ __forceinline__ float rate(const rate_scalars &s, double weight_square, double direction_square)
    {
        float trust = 1.0f;
        if (weight_square != 0.0 && direction_square != 0.0) {
            trust = __double2float_rn(__ddiv_rn(__dsqrt_rn(weight_square), __dsqrt_rn(direction_square)));
            if (trust > s.trust_max) trust = s.trust_max;
            if (trust < s.trust_min) trust = s.trust_min;
        }
        return __fmul_rn(__fmul_rn(s.rate, s.bias2_sqrt), trust);
    }
};

struct measure_lars {
    static constexpr int slots = 0;
    /* The unscaled, clipped gradient. */
    static __device__ __forceinline__ float apply(const coefficients &, float g, cell &)
    {
        return g;
    }

    /* trust * |w| / (|g| + weight_decay * |w|), 1 where either norm is zero. */
    static __device__ __forceinline__ float rate(const rate_scalars &s, double weight_square, double gradient_square)
    {
        float local = 1.0f;
        double weight = __dsqrt_rn(weight_square), gradient = __dsqrt_rn(gradient_square);
        if (weight != 0.0 && gradient != 0.0)
            local = __double2float_rn(
                __ddiv_rn(__dmul_rn(s.trust, weight), __dadd_rn(gradient, __dmul_rn(s.weight_decay, weight))));
        return __fmul_rn(s.rate, local);
    }
};

/* A leaf's weights, and what else is measured; apart, so that two half warps never want the same bank. */
struct leaf_values {
    float w[SL_CUT_ELEMENTS + lanes], other[SL_CUT_ELEMENTS + lanes];
};

template <class Measure>
__device__ __forceinline__ void measure_quad(const update_args &u, thread_place p, int run, float factor, quad_cells &q,
                                             leaf_values &leaf)
{
#pragma unroll
    for (int i = 0; i < quad; i++) {
        if (i >= p.n) return;
        while (run_end(u, run) <= p.at + i) run++;
        const int place = (int)threadIdx.x * quad + i, group = run_group(u, run);
        cell e;
        if (group < 0) continue;
        e.w = q.w[i];
        for (int s = 0; s < Measure::slots; s++) e.s[s] = q.s[s][i];
        leaf.w[place] = e.w;
        leaf.other[place] = Measure::apply(u.group[group], __fmul_rn(q.g[i], factor), e);
        for (int s = 0; s < Measure::slots; s++) q.s[s][i] = e.s[s];
    }
}

/* The sum of squares of x[first .. end): half a warp, a lane each; lane 0 gets it. The square is exact in fp64. */
__device__ __forceinline__ double piece_sum(const float *x, int first, int end)
{
    double sum = 0.0;
    for (int i = first + (int)threadIdx.x % lanes; i < end; i += lanes) {
        double d = x[i];
        sum = __fma_rn(d, d, sum);
    }
    for (int other = lanes / 2; other > 0; other /= 2) sum = __dadd_rn(sum, __shfl_xor_sync(0xffffffffu, sum, other));
    return sum;
}

/* The pieces of this leaf, one for each warp at a time: its first half sums the weights. A piece's number is its leaf
 * plus its run, which no two share. */
__device__ __forceinline__ void sum_pieces(const update_args &u, int run, const leaf_values &leaf, double *partials)
{
    const int64_t low = (int64_t)blockIdx.x * SL_CUT_ELEMENTS;
    const int64_t high = low + SL_CUT_ELEMENTS < u.count ? low + SL_CUT_ELEMENTS : u.count;
    const bool second = threadIdx.x % 32 >= lanes;
    for (run += (int)threadIdx.x / 32; run < u.run_count; run += update_threads / 32) {
        const int64_t begin = run > 0 ? run_end(u, run - 1) : 0, end = run_end(u, run);
        if (begin >= high) return;
        if (run_group(u, run) < 0) continue;
        const double sum = piece_sum(second ? leaf.other : leaf.w, begin > low ? (int)(begin - low) : 0,
                                     (int)((end < high ? end : high) - low));
        if (threadIdx.x % lanes == 0) partials[2 * ((int64_t)blockIdx.x + run) + second] = sum;
    }
}

template <class Measure>
__global__ void __launch_bounds__(update_threads) measure_kernel(const SL_GRID_CONSTANT update_args u, double *partials)
{
    __shared__ leaf_values leaf;
    const thread_place p = thread_place_of(u);
    const int run = find_run(u, (int64_t)blockIdx.x * SL_CUT_ELEMENTS);
    state_slots<STATES_F32, Measure::slots> slots(u);
    raw_states<Measure::slots> raw;
    uint4 gradient = load_gradient(u.read, u.g, p.at, p.n, p.whole);
    uint4 master = load_master(u.weights, u, p.at, p.n, p.whole);
    slots.load(u, p, raw);
    if (is_left_out(u)) return;
    quad_cells q;
    gradient_floats(u.read, gradient, q.g);
    master_floats(u.weights, master, q.w);
    for (int s = 0; s < Measure::slots; s++) slots.floats(u, raw, s, q.s[s]);
    measure_quad<Measure>(u, p, run, factor_of(u), q, leaf);
    slots.store(u, p, q.s);
    __syncthreads();
    sum_pieces(u, run, leaf, partials);
}

/* ---- From norms to rates ---- */

/* The tree above nodes that arrive in order of their number: sl_leaf_tree of leaf_norm.h. */
struct growing_tree {
    double node[48];
    uint64_t pending;
};

__device__ __forceinline__ void grow(growing_tree &t, int64_t index, double value)
{
    int level = 0;
    for (; index & 1; index >>= 1, level++) {
        if ((t.pending >> level & 1) == 0) continue; /* nothing left of the first leaf */
        value = __dadd_rn(t.node[level], value);
        t.pending &= ~(UINT64_C(1) << level);
    }
    t.node[level] = value;
    t.pending |= UINT64_C(1) << level;
}

__device__ __forceinline__ double grown(const growing_tree &t)
{
    double sum = -0.0;
    for (int level = 0; level < 48; level++)
        if (t.pending >> level & 1) sum = __dadd_rn(t.node[level], sum);
    return sum;
}

/* The sum of a parameter's pieces; thread 0 gets it. */
__device__ __forceinline__ double parameter_square(const leaf_run &r)
{
    growing_tree t;
    t.pending = 0;
    for (int64_t node = r.first / SL_CUDA_TREE_LEAVES; node * SL_CUDA_TREE_LEAVES < r.end; node++) {
        double sum = tree_sum(r, node);
        if (threadIdx.x == 0) grow(t, node, sum);
    }
    return threadIdx.x == 0 ? grown(t) : 0.0;
}

/* One block for each parameter. */
template <class Measure>
__global__ void __launch_bounds__(tree_threads)
    rate_kernel(const SL_GRID_CONSTANT update_args u, const SL_GRID_CONSTANT rate_args scalars, const double *partials,
                float *rates)
{
    const int run = (int)blockIdx.x, group = run_group(u, run);
    const int64_t begin = run > 0 ? run_end(u, run - 1) : 0, end = run_end(u, run);
    const int64_t first = begin / SL_CUT_ELEMENTS, stop = (end + SL_CUT_ELEMENTS - 1) / SL_CUT_ELEMENTS;
    if (group < 0 || is_left_out(u)) return;
    leaf_run leaves = { partials + 2 * (first + run), u.leaf + first, u.leaf + stop, 2 };
    const double weight = parameter_square(leaves);
    leaves.x++;
    const double other = parameter_square(leaves);
    if (threadIdx.x == 0) rates[run] = Measure::rate(scalars.group[group], weight, other);
}

rate_args rate_args_of(const sl_run_context *context)
{
    rate_args r = {};
    for (int i = 0; i < context->group_count && i < SL_MAX_GROUPS; i++) {
        const sl_group_scalars *s = &context->groups[i];
        r.group[i] = { s->rate, s->bias2_sqrt, s->trust, s->trust_min, s->trust_max, s->weight_decay };
    }
    return r;
}

/* ---- Which kernels ---- */

template <class Measure> void measure(const sl_cuda_args *a, const update_args *u, double *partials, float *rates)
{
    const unsigned leaves = (unsigned)sl_ceil_div(u->count, SL_CUT_ELEMENTS), runs = (unsigned)u->run_count;
    const rate_args scalars = rate_args_of(a->context);
    SL_LAUNCH((measure_kernel<Measure>), leaves, update_threads, 0, a->stream, *u, partials);
    SL_LAUNCH((rate_kernel<Measure>), runs, tree_threads, 0, a->stream, *u, scalars, partials, rates);
}

/* Both passes of each rule; NULL for the elementwise ones. In the order of sl_update_kind. */
const struct two_pass_row {
    void (*measure)(const sl_cuda_args *a, const update_args *u, double *partials, float *rates);
    update_launch apply;
} two_pass_rows[] = {
#define ELEMENTWISE(rule, slots_, squares)  { nullptr, nullptr },
#define WHOLE(rule, slots_, squares, norm_) { measure<measure_##norm_>, launch_any<rule, STATES_F32> },
    SL_UPDATE_RULES(ELEMENTWISE, WHOLE)
#undef ELEMENTWISE
#undef WHOLE
};
} // namespace SL_KERNELS

sluice_status sl_cuda_update_in_two_passes(const sl_cuda_args *a, sl_update_args *u, double *partials, float *rates)
{
    const two_pass_row *row = &two_pass_rows[a->attrs->update->kind];
    row->measure(a, u, partials, rates);
    u->rates = rates;
    row->apply(*u, a->stream);
    return sl_launched(a);
}

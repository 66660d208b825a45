/* update_kernel.cuh: one pass over memory for any rule and any forms, and how it is launched. */
#ifndef SL_BACKEND_CUDA_UPDATE_KERNEL_CUH
#define SL_BACKEND_CUDA_UPDATE_KERNEL_CUH

#include "backend/cuda/update_rules.cuh"
#include "backend/cuda/update_states.cuh"

inline namespace SL_KERNELS
{
/* What a thread holds of its elements, state slot by state slot. */
struct quad_cells {
    float g[quad], w[quad], s[SL_MAX_STATE_SLOTS][quad];
};

template <class Rule>
__device__ __forceinline__ void apply_one(const coefficients &c, float factor, quad_cells &q, int i)
{
    cell e;
    e.w = q.w[i];
    for (int s = 0; s < Rule::slots; s++) e.s[s] = q.s[s][i];
    Rule::apply(c, __fmul_rn(q.g[i], factor), e);
    q.w[i] = e.w;
    for (int s = 0; s < Rule::slots; s++) q.s[s][i] = e.s[s];
}

/* run: holds at least one element, and is no gap. */
template <class Rule> __device__ __forceinline__ coefficients coefficients_of(const update_args &u, int run)
{
    coefficients c = u.group[run_group(u, run)];
    if (Rule::has_rates) c.rate = u.rates[run];
    return c;
}

/* Nearly always all four elements are of one run. `run` holds an element of this block before them, or the first. */
template <class Rule>
__device__ __forceinline__ void apply_quad(const update_args &u, thread_place p, int run, float factor, quad_cells &q)
{
    if (p.n == 0) return;
    while (run_end(u, run) <= p.at) run++;
    if (run_end(u, run) >= p.at + quad) {
        if (run_group(u, run) < 0) return;
        const coefficients c = coefficients_of<Rule>(u, run);
        for (int i = 0; i < quad; i++) apply_one<Rule>(c, factor, q, i);
        return;
    }
    for (int i = 0; i < quad; i++) {
        if (i >= p.n) return;
        while (run_end(u, run) <= p.at + i) run++;
        if (run_group(u, run) >= 0) apply_one<Rule>(coefficients_of<Rule>(u, run), factor, q, i);
    }
}

/* READ_ANY and WEIGHTS_ANY: the forms are looked up. */
template <class Rule, int read_, int weights_, int states>
__global__ void __launch_bounds__(update_threads) update_kernel(const SL_GRID_CONSTANT update_args u)
{
    const int read = read_ == READ_ANY ? u.read : read_, weights = weights_ == WEIGHTS_ANY ? u.weights : weights_;
    const thread_place p = thread_place_of(u);
    state_slots<states, Rule::slots> slots(u);
    raw_states<Rule::slots> raw;
    uint4 gradient = make_uint4(0, 0, 0, 0);
    if (Rule::reads_gradient) gradient = load_gradient(read, u.g, p.at, p.n, p.whole);
    uint4 master = load_master(weights, u, p.at, p.n, p.whole);
    slots.load(u, p, raw);
    const float factor = factor_of(u);
    if (is_left_out(u)) { /* for all threads alike */
        leave_out(weights, u, p.at, master, p.n, p.whole);
        return;
    }
    quad_cells q;
    gradient_floats(read, gradient, q.g);
    master_floats(weights, master, q.w);
    for (int s = 0; s < Rule::slots; s++) slots.floats(u, raw, s, q.s[s]);
    apply_quad<Rule>(u, p, find_run(u, (int64_t)blockIdx.x * SL_CUT_ELEMENTS), factor, q);
    store_master(weights, u, p.at, q.w, p.n, p.whole);
    if (Rule::renews_states) slots.store(u, p, q.s);
}

typedef void (*update_launch)(const update_args &u, void *stream);

template <class Rule, int read, int weights, int states> void launch_update(const update_args &u, void *stream)
{
    const unsigned blocks = (unsigned)sl_ceil_div(u.count, SL_CUT_ELEMENTS);
    SL_LAUNCH((update_kernel<Rule, read, weights, states>), blocks, update_threads, 0, stream, u);
}

template <class Rule, int states> void launch_any(const update_args &u, void *stream)
{
    launch_update<Rule, READ_ANY, WEIGHTS_ANY, states>(u, stream);
}
} // namespace SL_KERNELS

/* update_two_pass.cu: LAMB and LARS. partials and rates: as sl_cuda_update_layout says, on the device; u->rates is
 * set. */
sluice_status sl_cuda_update_in_two_passes(const sl_cuda_args *a, sl_update_args *u, double *partials, float *rates);

#endif

/* update.cuh: what the files of the update kernels share: what a launch is told, and a thread's four elements on their
 * way from memory and back, in every form.
 *
 * A block of 256 threads takes one block of 1,024 elements of the layer, a thread four in a row. Operands are first
 * loaded as they lie, so that all loads are on their way before the first is waited for. A vector access moves what
 * four elements take; where addresses or the end of a run do not allow it, each element moves by itself. Element
 * numbers are those of the run, which begins at a multiple of 1,024 of the layer. */
#ifndef SL_BACKEND_CUDA_UPDATE_CUH
#define SL_BACKEND_CUDA_UPDATE_CUH

#include "backend/cuda/elem.cuh"
#include "backend/cuda/update_size.h"

extern "C" {
#include "core/blocks8.h"
#include "core/rounding.h"
}

#if defined(SL_CUDA_EMULATE)
#define SL_GRID_CONSTANT
#else
#define SL_GRID_CONSTANT __grid_constant__ /* read where it lies, never copied */
#endif

/* A group's numbers of this step. */
struct sl_coefficients {
    float weight_decay, decay_factor; /* into the gradient; on the weight */
    float beta1, one_minus_beta1, beta2, one_minus_beta2, epsilon;
    float momentum;
    float keep, take;    /* momentum' = keep * momentum + take * gradient; 0 and 1 on the first step */
    float inverse_bias2; /* 1 / sqrt(bias_correction2) */
    float rate;          /* what the direction is multiplied by; LAMB and LARS: sl_update_args.rates instead */
};

/* What a launch is told. It is copied when it is queued, so nothing on the host has to outlive the call. */
struct sl_update_args {
    const void *g;
    void *w, *rest;
    void *slot[SL_MAX_STATE_SLOTS];
    const sl_norm_result *norm; /* NULL: all is finite, the factor 1 */
    const float *rates;         /* LAMB and LARS: of each run */
    int64_t count;              /* elements of the run */
    uint64_t rounding;          /* of seed and step (core/rounding.h) */
    uint64_t block;             /* the run's first, among the blocks of all layers */
    int64_t leaf;               /* its number in the layer */
    int read, weights;          /* read_form, weight_form */
    unsigned signed_slots;      /* bit s: slot s holds numbers of either sign */
    bool aligned;               /* all operands allow vector accesses */
    int run_count, wide_count;
    const int64_t *table; /* NULL: words */
    sl_coefficients group[SL_MAX_GROUPS];
    int64_t words[SL_CUDA_UPDATE_WORDS];
};
static_assert(sizeof(sl_update_args) <= 3072, "a launch takes 4,096 bytes, some of them for other things");

inline namespace SL_KERNELS
{
typedef sl_coefficients coefficients;
typedef sl_update_args update_args;

constexpr int quad = 4;                                /* elements of a thread */
constexpr int update_threads = SL_CUT_ELEMENTS / quad; /* of a block */

/* How a gradient is read: its form, and for sums in f32 the narrower wire type that they are rounded to. */
enum read_form { READ_F32, READ_F32_TO_BF16, READ_F32_TO_F16, READ_BF16, READ_F16, READ_ANY };
enum weight_form { WEIGHTS_F32, WEIGHTS_BF16, WEIGHTS_F16, WEIGHTS_ANY };
enum state_form { STATES_F32, STATES_BF16, STATES_BLOCKS8, STATES_COUNT };

/* ---- What the whole gradient says ---- */

__device__ __forceinline__ float factor_of(const update_args &u)
{
    return u.norm != nullptr ? u.norm->factor : 1.0f;
}

__device__ __forceinline__ bool is_left_out(const update_args &u)
{
    return u.norm != nullptr && u.norm->finite == 0;
}

/* ---- The table. Runs of one group tile the run, gaps between segments included. ---- */

__device__ __forceinline__ int64_t word_at(const update_args &u, int i)
{
    return u.table != nullptr ? u.table[i] : u.words[i];
}

__device__ __forceinline__ int64_t run_end(const update_args &u, int run)
{
    return word_at(u, run * SL_CUDA_RUN_WORDS);
}

/* -1: a gap. */
__device__ __forceinline__ int run_group(const update_args &u, int run)
{
    return (int)word_at(u, run * SL_CUDA_RUN_WORDS + 1);
}

/* The run that holds element `at`. */
__device__ __forceinline__ int find_run(const update_args &u, int64_t at)
{
    int low = 0, high = u.run_count - 1;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (run_end(u, middle) > at)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* How the states of a block of BLOCKS8 lie: bytes from the slots' start, and whether in f32. */
struct block_place {
    int64_t offset;
    bool wide;
};

/* Words of a run of wide blocks: its first block, the one behind it, and the wide blocks before it. Only the last block
 * of a layer is short, so every block before this one is whole. */
__device__ __forceinline__ block_place place_of(const update_args &u, int64_t block)
{
    constexpr int64_t narrow_bytes = SL_CUT_ELEMENTS + (int64_t)SL_BLOCKS8_HEADER, wide_bytes = SL_CUT_ELEMENTS * 4;
    int64_t before = 0;
    bool wide = false;
    for (int i = 0; i < u.wide_count; i++) {
        int at = u.run_count * SL_CUDA_RUN_WORDS + i * SL_CUDA_WIDE_WORDS;
        int64_t first = word_at(u, at), end = word_at(u, at + 1);
        if (block < first) break;
        wide = block < end;
        before = word_at(u, at + 2) + (wide ? block : end) - first;
    }
    return { before * wide_bytes + (block - before) * narrow_bytes, wide };
}

/* ---- Four elements as they lie ---- */

__device__ __forceinline__ char *behind(void *p, int64_t bytes)
{
    return static_cast<char *>(p) + bytes;
}

__device__ __forceinline__ const char *behind(const void *p, int64_t bytes)
{
    return static_cast<const char *>(p) + bytes;
}

/* n of them are there, the others are 0. whole: all are, and one access may take them. */
__device__ __forceinline__ uint4 load_words(const void *p, int n, bool whole)
{
    if (whole) return *static_cast<const uint4 *>(p);
    const unsigned *x = static_cast<const unsigned *>(p);
    return make_uint4(n > 0 ? x[0] : 0, n > 1 ? x[1] : 0, n > 2 ? x[2] : 0, n > 3 ? x[3] : 0);
}

__device__ __forceinline__ void store_words(void *p, uint4 v, int n, bool whole)
{
    if (whole) {
        *static_cast<uint4 *>(p) = v;
        return;
    }
    unsigned *x = static_cast<unsigned *>(p);
    if (n > 0) x[0] = v.x;
    if (n > 1) x[1] = v.y;
    if (n > 2) x[2] = v.z;
    if (n > 3) x[3] = v.w;
}

/* Sixteen bits each: two to a word, the first in its lower half. */
__device__ __forceinline__ uint2 load_halves(const void *p, int n, bool whole)
{
    if (whole) return *static_cast<const uint2 *>(p);
    const uint16_t *x = static_cast<const uint16_t *>(p);
    return make_uint2((n > 0 ? x[0] : 0u) | (n > 1 ? (unsigned)x[1] << 16 : 0u),
                      (n > 2 ? x[2] : 0u) | (n > 3 ? (unsigned)x[3] << 16 : 0u));
}

__device__ __forceinline__ void store_halves(void *p, uint2 v, int n, bool whole)
{
    if (whole) {
        *static_cast<uint2 *>(p) = v;
        return;
    }
    uint16_t *x = static_cast<uint16_t *>(p);
    if (n > 0) x[0] = (uint16_t)v.x;
    if (n > 1) x[1] = (uint16_t)(v.x >> 16);
    if (n > 2) x[2] = (uint16_t)v.y;
    if (n > 3) x[3] = (uint16_t)(v.y >> 16);
}

/* Eight bits each; p is a multiple of four. */
__device__ __forceinline__ unsigned load_codes(const void *p, int n)
{
    if (n == quad) return *static_cast<const unsigned *>(p);
    const uint8_t *x = static_cast<const uint8_t *>(p);
    return (n > 0 ? x[0] : 0u) | (n > 1 ? (unsigned)x[1] << 8 : 0u) | (n > 2 ? (unsigned)x[2] << 16 : 0u);
}

__device__ __forceinline__ void store_codes(void *p, unsigned v, int n)
{
    if (n == quad) {
        *static_cast<unsigned *>(p) = v;
        return;
    }
    uint8_t *x = static_cast<uint8_t *>(p);
    for (int i = 0; i < n; i++) x[i] = (uint8_t)(v >> 8 * i);
}

__device__ __forceinline__ void floats_of_words(uint4 v, float (&x)[quad])
{
    x[0] = __uint_as_float(v.x);
    x[1] = __uint_as_float(v.y);
    x[2] = __uint_as_float(v.z);
    x[3] = __uint_as_float(v.w);
}

__device__ __forceinline__ uint4 words_of_floats(const float (&x)[quad])
{
    return make_uint4(__float_as_uint(x[0]), __float_as_uint(x[1]), __float_as_uint(x[2]), __float_as_uint(x[3]));
}

template <class T> __device__ __forceinline__ void floats_of_halves(uint2 v, float (&x)[quad])
{
    x[0] = to_float(T{ (uint16_t)v.x });
    x[1] = to_float(T{ (uint16_t)(v.x >> 16) });
    x[2] = to_float(T{ (uint16_t)v.y });
    x[3] = to_float(T{ (uint16_t)(v.y >> 16) });
}

template <class T> __device__ __forceinline__ uint2 halves_of_floats(const float (&x)[quad])
{
    return make_uint2(round_pair<T>(x[0], x[1]), round_pair<T>(x[2], x[3]));
}

/* ---- Gradients ---- */

/* Halves in the first two words. */
__device__ __forceinline__ uint4 load_gradient(int read, const void *g, int64_t at, int n, bool whole)
{
    if (read != READ_BF16 && read != READ_F16) return load_words(behind(g, at * 4), n, whole);
    uint2 v = load_halves(behind(g, at * 2), n, whole);
    return make_uint4(v.x, v.y, 0, 0);
}

__device__ __forceinline__ void gradient_floats(int read, uint4 v, float (&g)[quad])
{
    if (read == READ_BF16)
        floats_of_halves<bf16>(make_uint2(v.x, v.y), g);
    else if (read == READ_F16)
        floats_of_halves<f16>(make_uint2(v.x, v.y), g);
    else
        floats_of_words(v, g);
    if (read == READ_F32_TO_BF16) floats_of_halves<bf16>(halves_of_floats<bf16>(g), g);
    if (read == READ_F32_TO_F16) floats_of_halves<f16>(halves_of_floats<f16>(g), g);
}

/* ---- Masters ---- */

/* What they are made of: words, or the upper halves of bf16 weights followed by the lower ones. */
__device__ __forceinline__ uint4 load_master(int form, const update_args &u, int64_t at, int n, bool whole)
{
    if (form != WEIGHTS_BF16) return load_words(behind(form == WEIGHTS_F16 ? u.rest : u.w, at * 4), n, whole);
    uint2 high = load_halves(behind(u.w, at * 2), n, whole), low = load_halves(behind(u.rest, at * 2), n, whole);
    return make_uint4(high.x, high.y, low.x, low.y);
}

/* The lower half sign-extended, so that the sum is sl_weight_join of core/half.h. */
__device__ __forceinline__ float join(unsigned high, unsigned low)
{
    return __uint_as_float((high << 16) + (unsigned)(int)(int16_t)low);
}

__device__ __forceinline__ void master_floats(int form, uint4 v, float (&w)[quad])
{
    if (form != WEIGHTS_BF16) {
        floats_of_words(v, w);
        return;
    }
    w[0] = join(v.x, v.z);
    w[1] = join(v.x >> 16, v.z >> 16);
    w[2] = join(v.y, v.w);
    w[3] = join(v.y >> 16, v.w >> 16);
}

/* The upper halves of two masters, rounded away from zero (exact rule 5), and the lower ones. */
__device__ __forceinline__ unsigned high_pair(float low, float high)
{
    return (__float_as_uint(low) + 0x8000u) >> 16 | ((__float_as_uint(high) + 0x8000u) & 0xffff0000u);
}

__device__ __forceinline__ unsigned low_pair(float low, float high)
{
    return (__float_as_uint(low) & 0xffffu) | __float_as_uint(high) << 16;
}

__device__ __forceinline__ void store_master(int form, const update_args &u, int64_t at, const float (&w)[quad], int n,
                                             bool whole)
{
    if (form == WEIGHTS_BF16) {
        store_halves(behind(u.w, at * 2), make_uint2(high_pair(w[0], w[1]), high_pair(w[2], w[3])), n, whole);
        store_halves(behind(u.rest, at * 2), make_uint2(low_pair(w[0], w[1]), low_pair(w[2], w[3])), n, whole);
        return;
    }
    store_words(behind(form == WEIGHTS_F16 ? u.rest : u.w, at * 4), words_of_floats(w), n, whole);
    if (form == WEIGHTS_F16) store_halves(behind(u.w, at * 2), halves_of_floats<f16>(w), n, whole);
}

/* A skipped step changes nothing. f16 weights may be a passing buffer that is copied on all the same, so they
 * are written as they are: the master, rounded. */
__device__ __forceinline__ void leave_out(int form, const update_args &u, int64_t at, uint4 master, int n, bool whole)
{
    float w[quad];
    if (form != WEIGHTS_F16) return;
    floats_of_words(master, w);
    store_halves(behind(u.w, at * 2), halves_of_floats<f16>(w), n, whole);
}

/* ---- A thread's place ---- */

struct thread_place {
    int64_t at; /* first of its elements */
    int n;      /* how many are there */
    bool whole; /* all four, by vector accesses */
};

__device__ __forceinline__ thread_place thread_place_of(const update_args &u)
{
    int64_t at = (int64_t)blockIdx.x * SL_CUT_ELEMENTS + (int)threadIdx.x * quad, left = u.count - at;
    int n = left >= quad ? quad : left > 0 ? (int)left : 0;
    return { at, n, n == quad && u.aligned };
}

/* ---- On the host ---- */

static inline int read_of(sl_form form, sluice_dtype wire)
{
    if (form == SL_FORM_BF16) return READ_BF16;
    if (form == SL_FORM_F16) return READ_F16;
    return wire == SLUICE_BF16 ? READ_F32_TO_BF16 : wire == SLUICE_F16 ? READ_F32_TO_F16 : READ_F32;
}
} // namespace SL_KERNELS

#endif

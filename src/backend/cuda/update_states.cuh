/* update_states.cuh: a thread's four elements of the state slots, in f32, in bf16 rounded at random, and in 8-bit
 * blocks, which a block of threads encodes when all its new values are known. The definitions are core/rounding.h and
 * core/blocks8.h; these are their bits. */
#ifndef SL_BACKEND_CUDA_UPDATE_STATES_CUH
#define SL_BACKEND_CUDA_UPDATE_STATES_CUH

#include "backend/cuda/update.cuh"

inline namespace SL_KERNELS
{
/* ---- Random bits ---- */

__host__ __device__ constexpr uint64_t mix64(uint64_t x)
{
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* sl_rounding_place of every place, in fours. */
struct rounding_places {
    alignas(16) uint32_t word[SL_CUT_ELEMENTS];
    constexpr rounding_places() : word()
    {
        for (uint32_t i = 0; i < SL_CUT_ELEMENTS; i++) word[i] = (uint32_t)(mix64(i + 1) >> 32);
    }
};
/* Read only, but not const: its name would hold the source's path again (launch.cuh). */
__device__ rounding_places places;

/* The hashes of the thread's four elements. */
__device__ __forceinline__ uint4 rounding_hashes(const update_args &u)
{
    uint64_t k = mix64(u.rounding + u.block + blockIdx.x);
    unsigned multiplier = (unsigned)k | 1u, addend = (unsigned)(k >> 32);
    uint4 w = *reinterpret_cast<const uint4 *>(&places.word[threadIdx.x * quad]);
    return make_uint4(w.x * multiplier + addend, w.y * multiplier + addend, w.z * multiplier + addend,
                      w.w * multiplier + addend);
}

__device__ __forceinline__ unsigned rounding_bits(unsigned hash, int slot, int count)
{
    if (slot == 0) return hash >> (32 - count);
    if (slot == 1) return hash & ((1u << count) - 1);
    return hash * SL_ROUNDING_OTHER >> (32 - count);
}

__device__ __forceinline__ unsigned element(uint4 v, int i)
{
    return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

/* ---- bf16 ---- */

/* The pattern plus 16 random bits, cut off; the largest finite bf16 where that would be past it. */
__device__ __forceinline__ unsigned bf16_at_random(float x, unsigned random)
{
    unsigned sum = min(__float_as_uint(x) + random, 0xff7fffffu); /* holds negative ones */
    return (unsigned)min((int)sum, 0x7f7fffff) >> 16;             /* and positive ones */
}

__device__ __forceinline__ uint2 halves_at_random(const float (&x)[quad], uint4 hash, int slot)
{
    unsigned h[quad];
    for (int i = 0; i < quad; i++) h[i] = bf16_at_random(x[i], rounding_bits(element(hash, i), slot, 16));
    return make_uint2(h[0] | h[1] << 16, h[2] | h[3] << 16);
}

/* ---- 8-bit blocks ---- */

struct code_scale {
    unsigned base, least; /* patterns: code 0 as if it were normal; the least normal */
};

__device__ __forceinline__ code_scale code_scale_of(int exponent, bool is_signed)
{
    unsigned base = (unsigned)(exponent - (is_signed ? 15 : 31) + 127) << 23;
    return { base, base + (1u << 23) };
}

__device__ __forceinline__ float decode(unsigned byte, bool is_signed, code_scale s)
{
    bool negative = is_signed && byte >= 0x80u;
    unsigned code = negative ? 0x100u - byte : byte;
    float normal = __uint_as_float((code << 20) + s.base);
    float small = __fsub_rn(__uint_as_float((code << 20) + s.least), __uint_as_float(s.least));
    float x = code >= 8 ? normal : small;
    return negative ? -x : x;
}

__device__ __forceinline__ unsigned magnitude_of(float x)
{
    return min(__float_as_uint(x) & 0x7fffffffu, SL_BLOCKS8_LIMIT);
}

/* From the pattern of the largest magnitude; sl_blocks8_exponent. */
__device__ __forceinline__ int exponent_of(unsigned largest)
{
    int e = (int)((largest + 0xfffffu) >> 23) - 127;
    return largest == 0 ? 0 : max(e, SL_BLOCKS8_LEAST);
}

/* random: 20 bits. */
__device__ __forceinline__ unsigned encode(float x, unsigned random, bool is_signed, code_scale s)
{
    unsigned bits = magnitude_of(x);
    float lifted = __fadd_rn(__uint_as_float(bits), __uint_as_float(s.least));
    unsigned units = bits >= s.least ? bits - s.base : __float_as_uint(lifted) - s.least;
    unsigned code = (units + random) >> 20;
    if (!is_signed && bits != 0 && code == 0) code = 1;
    bool negative = is_signed && (__float_as_uint(x) >> 31) != 0;
    return (negative ? 0u - code : code) & 0xffu;
}

/* The largest of all threads' patterns, slot by slot; every thread gets it. Called once by a kernel. */
template <int slots> __device__ __forceinline__ void block_largest(unsigned (&largest)[slots])
{
    constexpr int warps = update_threads / 32;
    __shared__ unsigned part[slots][warps];
    for (int s = 0; s < slots; s++) {
        for (int other = 16; other > 0; other /= 2)
            largest[s] = max(largest[s], __shfl_xor_sync(0xffffffffu, largest[s], other));
        if (threadIdx.x % 32 == 0) part[s][threadIdx.x / 32] = largest[s];
    }
    __syncthreads();
    for (int s = 0; s < slots; s++)
        for (int i = 0; i < warps; i++) largest[s] = max(largest[s], part[s][i]);
}

/* ---- The slots of a rule ---- */

/* As they were loaded: words, halves in the first two, or codes in the first and the block's exponent in the second. */
template <int slots> struct raw_states {
    uint4 v[slots > 0 ? slots : 1];
};

template <int states, int slots> struct state_slots;

template <int slots> struct state_slots<STATES_F32, slots> {
    __device__ __forceinline__ explicit state_slots(const update_args &)
    {
    }

    __device__ __forceinline__ void load(const update_args &u, thread_place p, raw_states<slots> &raw) const
    {
        for (int s = 0; s < slots; s++) raw.v[s] = load_words(behind(u.slot[s], p.at * 4), p.n, p.whole);
    }

    __device__ __forceinline__ void floats(const update_args &, const raw_states<slots> &raw, int s,
                                           float (&x)[quad]) const
    {
        floats_of_words(raw.v[s], x);
    }

    __device__ __forceinline__ void store(const update_args &u, thread_place p, float (&x)[SL_MAX_STATE_SLOTS][quad])
    {
        for (int s = 0; s < slots; s++) store_words(behind(u.slot[s], p.at * 4), words_of_floats(x[s]), p.n, p.whole);
    }
};

template <int slots> struct state_slots<STATES_BF16, slots> {
    __device__ __forceinline__ explicit state_slots(const update_args &)
    {
    }

    __device__ __forceinline__ void load(const update_args &u, thread_place p, raw_states<slots> &raw) const
    {
        for (int s = 0; s < slots; s++) {
            uint2 v = load_halves(behind(u.slot[s], p.at * 2), p.n, p.whole);
            raw.v[s] = make_uint4(v.x, v.y, 0, 0);
        }
    }

    __device__ __forceinline__ void floats(const update_args &, const raw_states<slots> &raw, int s,
                                           float (&x)[quad]) const
    {
        floats_of_halves<bf16>(make_uint2(raw.v[s].x, raw.v[s].y), x);
    }

    __device__ __forceinline__ void store(const update_args &u, thread_place p, float (&x)[SL_MAX_STATE_SLOTS][quad])
    {
        uint4 hash = rounding_hashes(u);
        for (int s = 0; s < slots; s++)
            store_halves(behind(u.slot[s], p.at * 2), halves_at_random(x[s], hash, s), p.n, p.whole);
    }
};

/* A block is narrow or wide as a whole. */
template <int slots> struct state_slots<STATES_BLOCKS8, slots> {
    block_place place;

    __device__ __forceinline__ explicit state_slots(const update_args &u) : place(place_of(u, blockIdx.x))
    {
    }

    /* The thread's words in a wide block, which may begin at any multiple of four bytes. */
    __device__ __forceinline__ char *words(const update_args &u, int s) const
    {
        return behind(u.slot[s], place.offset + (int64_t)threadIdx.x * quad * 4);
    }

    __device__ __forceinline__ char *codes(const update_args &u, int s) const
    {
        return behind(u.slot[s], place.offset + (int64_t)SL_BLOCKS8_HEADER + (int64_t)threadIdx.x * quad);
    }

    static __device__ __forceinline__ bool is_whole(const void *p, int n)
    {
        return n == quad && reinterpret_cast<uintptr_t>(p) % 16 == 0;
    }

    __device__ __forceinline__ void load(const update_args &u, thread_place p, raw_states<slots> &raw) const
    {
        for (int s = 0; s < slots; s++) {
            const char *x = words(u, s);
            if (place.wide)
                raw.v[s] = load_words(x, p.n, is_whole(x, p.n));
            else
                raw.v[s] = make_uint4(load_codes(codes(u, s), p.n),
                                      *reinterpret_cast<const unsigned *>(behind(u.slot[s], place.offset)), 0, 0);
        }
    }

    __device__ __forceinline__ void floats(const update_args &u, const raw_states<slots> &raw, int s,
                                           float (&x)[quad]) const
    {
        if (place.wide) {
            floats_of_words(raw.v[s], x);
            return;
        }
        bool is_signed = (u.signed_slots >> s & 1u) != 0;
        code_scale scale = code_scale_of((int)raw.v[s].y, is_signed);
        for (int i = 0; i < quad; i++) x[i] = decode(raw.v[s].x >> 8 * i & 0xffu, is_signed, scale);
    }

    /* The barrier in here is also between reading the exponents and writing them. */
    __device__ __forceinline__ void store(const update_args &u, thread_place p, float (&x)[SL_MAX_STATE_SLOTS][quad])
    {
        if (place.wide) {
            for (int s = 0; s < slots; s++)
                store_words(words(u, s), words_of_floats(x[s]), p.n, is_whole(words(u, s), p.n));
            return;
        }
        unsigned largest[slots];
        for (int s = 0; s < slots; s++) { /* elements that are not there are 0 */
            largest[s] = 0;
            for (int i = 0; i < quad; i++) largest[s] = max(largest[s], magnitude_of(x[s][i]));
        }
        block_largest<slots>(largest);
        uint4 hash = rounding_hashes(u);
        for (int s = 0; s < slots; s++) store_narrow(u, p, x[s], exponent_of(largest[s]), hash, s);
    }

    __device__ __forceinline__ void store_narrow(const update_args &u, thread_place p, const float (&x)[quad],
                                                 int exponent, uint4 hash, int s)
    {
        bool is_signed = (u.signed_slots >> s & 1u) != 0;
        code_scale scale = code_scale_of(exponent, is_signed);
        unsigned v = 0;
        for (int i = 0; i < quad; i++)
            v |= encode(x[i], rounding_bits(element(hash, i), s, 20), is_signed, scale) << 8 * i;
        store_codes(codes(u, s), v, p.n);
        if (threadIdx.x == 0) *reinterpret_cast<int *>(behind(u.slot[s], place.offset)) = exponent;
    }
};
} // namespace SL_KERNELS

#endif

/* piece.cuh: sixteen bytes of a row, kept as they lie in memory until their floats are needed: four registers, whatever
 * the type. A piece may stick out of its row at either end; what is outside is `fill` when it is read and is not
 * written. Whether it is read in one access or element by element changes no bits. */
#ifndef SL_BACKEND_CUDA_PIECE_CUH
#define SL_BACKEND_CUDA_PIECE_CUH

#include "backend/cuda/elem.cuh"

inline namespace SL_KERNELS
{
__device__ __forceinline__ void piece_floats(float, const uint4 &raw, float (&x)[4])
{
    x[0] = __uint_as_float(raw.x);
    x[1] = __uint_as_float(raw.y);
    x[2] = __uint_as_float(raw.z);
    x[3] = __uint_as_float(raw.w);
}

template <class T> __device__ __forceinline__ void piece_floats(T, const uint4 &raw, float (&x)[8])
{
    const unsigned words[4] = { raw.x, raw.y, raw.z, raw.w };
#pragma unroll
    for (int i = 0; i < 8; i++) x[i] = to_float(T{ (uint16_t)(words[i / 2] >> 16 * (i % 2)) });
}

template <class T> __device__ __forceinline__ void piece_floats(const uint4 &raw, float (&x)[pack_elements<T>])
{
    piece_floats(T{}, raw, x);
}

/* Elements [first, first + pack_elements) of a row, one by one. */
template <class T> __device__ __forceinline__ uint4 gather_piece(const T *row, int64_t first, int64_t width, T fill)
{
    union {
        T elements[pack_elements<T>];
        uint4 raw;
    } piece;
#pragma unroll
    for (int i = 0; i < pack_elements<T>; i++) {
        const bool inside = first + i >= 0 && first + i < width;
        piece.elements[i] = inside ? row[first + i] : fill;
    }
    return piece.raw;
}

template <class T> __device__ __forceinline__ bool piece_is_whole(int64_t first, int64_t width)
{
    return first >= 0 && first + pack_elements<T> <= width;
}

/* `aligned`: whole pieces of the row lie on 16-byte boundaries. */
template <class T>
__device__ __forceinline__ uint4 load_piece(const T *row, int64_t first, int64_t width, bool aligned, T fill = T{})
{
    if (aligned && piece_is_whole<T>(first, width)) return *reinterpret_cast<const uint4 *>(row + first);
    return gather_piece(row, first, width, fill);
}

template <class T>
__device__ __forceinline__ void store_piece(T *row, int64_t first, int64_t width, bool aligned,
                                            const float (&x)[pack_elements<T>])
{
    if (aligned && piece_is_whole<T>(first, width)) {
        store_floats<T, pack_elements<T>>(row + first, x);
        return;
    }
#pragma unroll
    for (int i = 0; i < pack_elements<T>; i++)
        if (first + i >= 0 && first + i < width) row[first + i] = from_float<T>(x[i]);
}

/* Asks for what will be read soon, without waiting and without a register. */
__device__ __forceinline__ void prefetch(const void *p)
{
#if defined(SL_CUDA_EMULATE)
    (void)p;
#else
    asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
#endif
}
} // namespace SL_KERNELS

#endif

/* hopper.cuh: what sm_90a has beyond sm_80: copies of whole tiles by the memory system, barriers that count their
 * bytes, and products of a warpgroup (four warps) that read tiles from shared memory and run while it does other work.
 *
 * A tile has rows of 64 elements of 16 bits, 128 bytes, eight rows to a block of 1,024 whose 16-byte chunks are turned
 * by the row (the hardware's 128-byte swizzle). Wider rows are several tiles side by side, `apart` bytes from one to
 * the next. Tiles begin at multiples of 1,024.
 *
 * Accumulators lie in registers as those of mma.cuh: a warp has 16 of the warpgroup's 64 rows. Between the start of
 * products and the wait for them nobody touches their accumulators or the registers that they read. */
#ifndef SL_BACKEND_CUDA_HOPPER_CUH
#define SL_BACKEND_CUDA_HOPPER_CUH

#include <cuda.h>

#include "backend/cuda/mma.cuh"

inline namespace SL_KERNELS
{
constexpr int tile_columns = 64, tile_row_bytes = 128;

/* ---- barriers ---- */

__device__ __forceinline__ void barrier_init(shared_address barrier, int arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals));
}

/* After the last barrier_init, before others use them. */
__device__ __forceinline__ void barriers_are_set()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void barrier_arrive(shared_address barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/* Arrives, and lets the phase wait for so many bytes of copies. */
__device__ __forceinline__ void barrier_expect(shared_address barrier, int bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

/* Until the phase of this parity is over. A new barrier's first phase has parity 0; that before it counts as over. */
__device__ __forceinline__ void barrier_wait(shared_address barrier, unsigned parity)
{
    asm volatile("{\n"
                 ".reg .pred done;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@!done bra again;\n"
                 "}\n" ::"r"(barrier),
                 "r"(parity)
                 : "memory");
}

/* ---- copies into shared memory; one thread asks ---- */

/* 64 columns from `column` on of a box's rows from `row` on; what lies outside the tensor becomes zero. */
__device__ __forceinline__ void copy_tile(shared_address to, const CUtensorMap *map, shared_address barrier, int column,
                                          int head, int row, int batch)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, "
                 "%6}], [%2];" ::"r"(to),
                 "l"(map), "r"(barrier), "r"(column), "r"(head), "r"(row), "r"(batch)
                 : "memory");
}

/* A multiple of 16 bytes, from and to multiples of 16. */
__device__ __forceinline__ void copy_bytes(shared_address to, const void *from, shared_address barrier, int bytes)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(barrier)
                 : "memory");
}

/* ---- registers pass from one warpgroup to another ---- */

template <int registers> __device__ __forceinline__ void give_registers()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}

template <int registers> __device__ __forceinline__ void take_registers()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}

/* ---- products ---- */

__device__ __forceinline__ void products_begin()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

/* Closes a batch: batches end in the order of their start. */
__device__ __forceinline__ void products_end()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/* Until at most so many batches are still running. */
template <int running> __device__ __forceinline__ void products_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(running) : "memory");
}

/* Keeps the compiler from moving uses of accumulators across waits. */
template <int N> __device__ __forceinline__ void pin(float (&c)[N][4])
{
#pragma unroll
    for (int i = 0; i < 4 * N; i++) asm volatile("" : "+f"(c[i / 4][i % 4])::"memory");
}

/* The same address, which the compiler does not know: otherwise it works out ahead where all of a tile's operands are,
 * and keeps that in registers that accumulators need. */
__device__ __forceinline__ shared_address fresh(shared_address at)
{
    asm volatile("" : "+r"(at));
    return at;
}

/* Where a product finds an operand: 16 of its columns (rows of a tile: the sum runs along them), or 16 of its rows
 * (turned: the sum runs down the tile, whose columns may continue `apart` bytes further on). */
__device__ __forceinline__ uint64_t tile_at(shared_address at, int apart)
{
    return (uint64_t)(at >> 4 & 0x3fff) | (uint64_t)(apart >> 4) << 16 | (uint64_t)(1024 >> 4) << 32 |
           (uint64_t)1 << 62;
}

#define SL_FOUR(how, i) how(c[i][0]), how(c[i][1]), how(c[i][2]), how(c[i][3])
#define SL_ALL_32(how)                                                                                                 \
    SL_FOUR(how, 0), SL_FOUR(how, 1), SL_FOUR(how, 2), SL_FOUR(how, 3), SL_FOUR(how, 4), SL_FOUR(how, 5),              \
        SL_FOUR(how, 6), SL_FOUR(how, 7)
#define SL_ALL_64(how)                                                                                                 \
    SL_ALL_32(how), SL_FOUR(how, 8), SL_FOUR(how, 9), SL_FOUR(how, 10), SL_FOUR(how, 11), SL_FOUR(how, 12),            \
        SL_FOUR(how, 13), SL_FOUR(how, 14), SL_FOUR(how, 15)
#define SL_NAMES_32                                                                                                    \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "  \
    "%24, %25, %26, %27, %28, %29, %30, %31}"
#define SL_NAMES_64                                                                                                    \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "  \
    "%24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, "   \
    "%46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}"

/* One product of 64 x N x 16: c = a b^T and c += a b^T, both in tiles; and c += a b, a in registers and b turned. The
 * first says that c is not read: otherwise the compiler would see a use of what stood there before. */
template <class T, int N> struct Product;

#define SL_PRODUCT(T, type, N, shape, names, registers, r0, r1, r2, r3, r4)                                            \
    template <> struct Product<T, N> {                                                                                 \
        static __device__ __forceinline__ void of_tiles(float (&c)[N / 8][4], uint64_t a, uint64_t b)                  \
        {                                                                                                              \
            asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, 0, 0;\n"                                                    \
                         "wgmma.mma_async.sync.aligned." shape ".f32." type "." type " " names ", %" r0 ", %" r1       \
                         ", p, 1, 1, 0, 0;\n}\n"                                                                       \
                         : registers("=f")                                                                             \
                         : "l"(a), "l"(b));                                                                            \
        }                                                                                                              \
        static __device__ __forceinline__ void add_of_tiles(float (&c)[N / 8][4], uint64_t a, uint64_t b)              \
        {                                                                                                              \
            asm volatile("{\n.reg .pred p;\nsetp.eq.b32 p, 0, 0;\n"                                                    \
                         "wgmma.mma_async.sync.aligned." shape ".f32." type "." type " " names ", %" r0 ", %" r1       \
                         ", p, 1, 1, 0, 0;\n}\n"                                                                       \
                         : registers("+f")                                                                             \
                         : "l"(a), "l"(b));                                                                            \
        }                                                                                                              \
        static __device__ __forceinline__ void add_turned(float (&c)[N / 8][4], const unsigned (&a)[4], uint64_t b)    \
        {                                                                                                              \
            asm volatile("{\n.reg .pred p;\nsetp.eq.b32 p, 0, 0;\n"                                                    \
                         "wgmma.mma_async.sync.aligned." shape ".f32." type "." type " " names ", {%" r0 ", %" r1      \
                         ", %" r2 ", %" r3 "}, %" r4 ", p, 1, 1, 1;\n}\n"                                              \
                         : registers("+f")                                                                             \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                                        \
        }                                                                                                              \
    };

SL_PRODUCT(bf16, "bf16", 64, "m64n64k16", SL_NAMES_32, SL_ALL_32, "32", "33", "34", "35", "36")
SL_PRODUCT(f16, "f16", 64, "m64n64k16", SL_NAMES_32, SL_ALL_32, "32", "33", "34", "35", "36")
SL_PRODUCT(bf16, "bf16", 128, "m64n128k16", SL_NAMES_64, SL_ALL_64, "64", "65", "66", "67", "68")
SL_PRODUCT(f16, "f16", 128, "m64n128k16", SL_NAMES_64, SL_ALL_64, "64", "65", "66", "67", "68")

/* Starts c[64, N] = left right^T over W columns. left: 64 rows, right: N rows. */
template <class T, int W, int N>
__device__ __forceinline__ void start_rows(float (&c)[N / 8][4], shared_address left, int left_apart,
                                           shared_address right, int right_apart)
{
#pragma unroll
    for (int k = 0; k < W / 16; k++) {
        const int tile = k / 4, within = k % 4 * 32;
        const uint64_t a = tile_at(left + tile * left_apart + within, 16);
        const uint64_t b = tile_at(right + tile * right_apart + within, 16);
        if (k == 0)
            Product<T, N>::of_tiles(c, a, b);
        else
            Product<T, N>::add_of_tiles(c, a, b);
    }
}

/* Starts c[64, W] += a[64, 16 K] b: 16 K rows of W columns. */
template <class T, int W, int K>
__device__ __forceinline__ void start_columns(float (&c)[W / 8][4], const unsigned (&a)[K][1][4], shared_address b,
                                              int apart)
{
#pragma unroll
    for (int k = 0; k < K; k++) Product<T, W>::add_turned(c, a[k][0], tile_at(b + k * 2048, apart));
}
} // namespace SL_KERNELS

#endif

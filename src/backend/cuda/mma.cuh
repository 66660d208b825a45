/* mma.cuh: products of small matrices by a warp, and copies into shared memory that run beside the arithmetic.
 *
 * The tensor cores are reached with mma.sync, which every GPU from sm_80 on has: C[16,8] += A[16,16] B[16,8], elements
 * of 16 bits, sums in f32. A warp holds the matrices in pieces. With g = lane / 4 and t = lane % 4 a lane has
 *
 *     of A: rows g, g + 8, g, g + 8 at columns 2t, 2t, 2t + 8, 2t + 8, a pair of columns in each of four words
 *     of B: rows 2t, 2t + 8 of column g, a pair of rows in each of two words
 *     of C: row g, columns 2t, 2t + 1; then row g + 8
 *
 * so two neighbouring C, rounded, are an A. ldmatrix fetches such pieces from shared memory, where rows begin at 16
 * bytes: matrices of 8 x 8, lane i naming row i % 8 of matrix i / 8.
 *
 * In the emulation lanes look at each other's words. Copies are done when they are waited for, or at once with
 * SL_EMULATE_EAGER_COPIES: the first shows a wait that is missing, the second a buffer that is filled too early. */
#ifndef SL_BACKEND_CUDA_MMA_CUH
#define SL_BACKEND_CUDA_MMA_CUH

#include "backend/cuda/elem.cuh"

inline namespace SL_KERNELS
{
#if defined(SL_CUDA_EMULATE)
typedef uintptr_t shared_address;

/* ---- pairs of 16-bit elements; `low` is the one at the lower address ---- */
template <class T> unsigned pack_pair(float low, float high)
{
    return round_pair<T>(low, high);
}

template <class T> float low_of(unsigned pair)
{
    return to_float(T{ (uint16_t)pair });
}

template <class T> float high_of(unsigned pair)
{
    return to_float(T{ (uint16_t)(pair >> 16) });
}

inline float fast_exp2(float x)
{
    return exp2f(x);
}

inline shared_address shared_at(const void *p)
{
    return (shared_address)p;
}

/* ---- matrices ---- */
/* What lane `from` of the last meeting gave. */
template <class U> const U *given_by(const sl_emulated::thread *t, unsigned from)
{
    return (const U *)(uintptr_t)t->came[from];
}

/* Words of four matrices whose rows the lanes name. Turned: lane i gets rows 2t, 2t + 1 of column g. */
inline void fetch_matrices(unsigned (&r)[4], shared_address row, bool turned)
{
    sl_emulated::check(row % 16 == 0, "ldmatrix needs rows at 16 bytes");
    const sl_emulated::thread *t = sl_emulated::meet(sl_emulated::SHUFFLE, ~0u, row, __LINE__);
    unsigned g = sl_emulated::lane() / 4, pair = sl_emulated::lane() % 4;
    for (unsigned i = 0; i < 4; i++) {
        uint16_t half[2];
        for (unsigned h = 0; h < 2; h++) {
            unsigned y = turned ? 2 * pair + h : g, x = turned ? g : 2 * pair + h;
            half[h] = ((const uint16_t *)(uintptr_t)t->came[8 * i + y])[x];
        }
        r[i] = half[0] | (unsigned)half[1] << 16;
    }
    sl_emulated::meet(sl_emulated::SYNC, ~0u, 0, __LINE__);
}

inline void load_matrices(unsigned (&r)[4], shared_address row)
{
    fetch_matrices(r, row, false);
}

inline void load_matrices_turned(unsigned (&r)[4], shared_address row)
{
    fetch_matrices(r, row, true);
}

/* A lane's words of A and B as floats. */
struct Operands {
    float a[4][2], b[2][2];
};

template <class T> void multiply_add(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1)
{
    unsigned b[2] = { b0, b1 };
    Operands mine;
    for (int i = 0; i < 4; i++) mine.a[i][0] = low_of<T>(a[i]), mine.a[i][1] = high_of<T>(a[i]);
    for (int i = 0; i < 2; i++) mine.b[i][0] = low_of<T>(b[i]), mine.b[i][1] = high_of<T>(b[i]);
    const sl_emulated::thread *t = sl_emulated::meet(sl_emulated::SHUFFLE, ~0u, (uintptr_t)&mine, __LINE__);
    unsigned g = sl_emulated::lane() / 4, pair = sl_emulated::lane() % 4;
    for (unsigned e = 0; e < 4; e++) {
        unsigned lower = e / 2, column = 2 * pair + e % 2;
        float sum = 0.0f;
        for (unsigned k = 0; k < 16; k++) {
            const Operands *row = given_by<Operands>(t, 4 * g + k % 8 / 2);
            const Operands *down = given_by<Operands>(t, 4 * column + k % 8 / 2);
            sum += row->a[k / 8 * 2 + lower][k % 2] * down->b[k / 8][k % 2];
        }
        c[e] += sum;
    }
    sl_emulated::meet(sl_emulated::SYNC, ~0u, 0, __LINE__);
}

/* ---- copies ---- */
struct CopyQueue {
    struct {
        shared_address to;
        const void *from; /* NULL: zeros */
        int group;
    } copy[512];
    int count, group;
};
inline CopyQueue copy_queues[sl_emulated::max_threads];

inline void finish_copies(int pending)
{
    CopyQueue *q = &copy_queues[sl_emulated::here.running];
    int left = 0;
    for (int i = 0; i < q->count; i++) {
        if (q->copy[i].group >= q->group - pending) {
            q->copy[left++] = q->copy[i];
            continue;
        }
        uint64_t data[2] = { 0, 0 };
        if (q->copy[i].from != nullptr) memcpy(data, q->copy[i].from, sizeof data);
        memcpy((void *)q->copy[i].to, data, sizeof data);
    }
    q->count = left;
}

inline void copy_async(shared_address to, const void *from, bool there)
{
    CopyQueue *q = &copy_queues[sl_emulated::here.running];
    sl_emulated::check(to % 16 == 0 && (uintptr_t)from % 16 == 0, "cp.async moves 16 bytes between multiples of 16");
    sl_emulated::check(q->count < 512, "too many copies under way");
    q->copy[q->count++] = { to, there ? from : nullptr, q->group };
#if defined(SL_EMULATE_EAGER_COPIES)
    finish_copies(-1);
#endif
}

inline void commit_copies()
{
    copy_queues[sl_emulated::here.running].group++;
}

template <int pending> void wait_copies()
{
    finish_copies(pending);
}

#else
typedef unsigned shared_address; /* as the instructions want it */

/* A NaN becomes a NaN, but what it carries is lost: products of matrices do not keep that either. */
template <class T> __device__ __forceinline__ unsigned pack_pair(float low, float high);

template <> __device__ __forceinline__ unsigned pack_pair<bf16>(float low, float high)
{
    unsigned r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
}

template <> __device__ __forceinline__ unsigned pack_pair<f16>(float low, float high)
{
    unsigned r;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
}

template <class T> __device__ __forceinline__ float low_of(unsigned pair);
template <class T> __device__ __forceinline__ float high_of(unsigned pair);

template <> __device__ __forceinline__ float low_of<bf16>(unsigned pair)
{
    return __uint_as_float(pair << 16);
}

template <> __device__ __forceinline__ float high_of<bf16>(unsigned pair)
{
    return __uint_as_float(pair & 0xffff0000u);
}

template <> __device__ __forceinline__ float low_of<f16>(unsigned pair)
{
    float r;
    asm("{.reg .b16 l, h; mov.b32 {l, h}, %1; cvt.f32.f16 %0, l;}" : "=f"(r) : "r"(pair));
    return r;
}

template <> __device__ __forceinline__ float high_of<f16>(unsigned pair)
{
    float r;
    asm("{.reg .b16 l, h; mov.b32 {l, h}, %1; cvt.f32.f16 %0, h;}" : "=f"(r) : "r"(pair));
    return r;
}

/* One instruction, off by up to 2 units in the last place; results below 2^-126 are 0. */
__device__ __forceinline__ float fast_exp2(float x)
{
    float r;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
}

__device__ __forceinline__ shared_address shared_at(const void *p)
{
    return (shared_address)__cvta_generic_to_shared(p);
}

__device__ __forceinline__ void load_matrices(unsigned (&r)[4], shared_address row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(row));
}

__device__ __forceinline__ void load_matrices_turned(unsigned (&r)[4], shared_address row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(row));
}

template <class T>
__device__ __forceinline__ void multiply_add(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1);

template <>
__device__ __forceinline__ void multiply_add<bf16>(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

template <>
__device__ __forceinline__ void multiply_add<f16>(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* 16 bytes to shared memory, past the first-level cache; zeros where not `there` (from is not read, but valid). */
__device__ __forceinline__ void copy_async(shared_address to, const void *from, bool there)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(there ? 16 : 0));
}

/* Closes a group of this thread's copies, maybe empty. */
__device__ __forceinline__ void commit_copies()
{
    asm volatile("cp.async.commit_group;");
}

/* Until all groups but the last `pending` of this thread have come. Others see them after a barrier. */
template <int pending> __device__ __forceinline__ void wait_copies()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}
#endif

/* ---- tiles in shared memory ---- */

/* Rows of W 16-bit elements. Sixteen bytes are a chunk; a row's chunks are exchanged by an exclusive or with a number
 * that goes round with the row, so that the same chunk of eight rows, which is what ldmatrix reads, lies in different
 * banks. */
template <int W> struct Tile {
    static_assert(W % 32 == 0, "rows are whole halves of the banks");
    static constexpr int chunks = W / 8, pitch = W * 2;

    static __device__ __forceinline__ int turn(int row)
    {
        return chunks % 8 == 0 ? row & 7 : row >> 1 & 3;
    }

    /* Bytes from the tile's start. Rows eight apart have the same turn. */
    static __device__ __forceinline__ int at(int row, int chunk)
    {
        return row * pitch + ((chunk ^ turn(row)) << 4);
    }
};

/* Queues the copy of a tile: `there` rows, `row` elements apart, of `width` elements; the rest becomes zero. Threads
 * step down the rows, so that there is one address to keep and not one for each copy. */
template <class T, int W, int rows, int threads>
__device__ __forceinline__ void load_tile(shared_address to, const T *from, int64_t row, int there, int width,
                                          int thread)
{
    constexpr int chunks = Tile<W>::chunks, abreast = threads / chunks;
    static_assert(rows * chunks % threads == 0, "every thread copies as much");
    int r = thread / chunks, c = thread % chunks;
    const T *next = from + r * row + c * 8;
    bool inside = c * 8 < width;
#pragma unroll
    for (int i = 0; i < rows * chunks / threads; i++) {
        if (threads % chunks != 0 && i > 0) {
            r = (thread + i * threads) / chunks, c = (thread + i * threads) % chunks;
            next = from + r * row + c * 8;
            inside = c * 8 < width;
        }
        bool in = inside && r < there;
        copy_async(to + Tile<W>::at(r, c), in ? next : from, in);
        r += abreast;
        next += abreast * row;
    }
}

/* A of 16 M rows and the 16 columns from 16 step on. */
template <int W, int M>
__device__ __forceinline__ void load_left(unsigned (&a)[M][4], shared_address tile, int step, int lane)
{
#pragma unroll
    for (int m = 0; m < M; m++)
        load_matrices(a[m], tile + m * 16 * Tile<W>::pitch + Tile<W>::at(lane % 16, 2 * step + lane / 16));
}

/* c[16 M, 8 N] += a tile^T for 16 columns of both: a tile of 8 N rows. */
template <class T, int W, int M, int N>
__device__ __forceinline__ void multiply_step(float (&c)[M][N][4], const unsigned (&a)[M][4], shared_address tile,
                                              int step, int lane)
{
#pragma unroll
    for (int n = 0; n < N; n += 2) {
        unsigned b[4];
        load_matrices(b,
                      tile + n * 8 * Tile<W>::pitch + Tile<W>::at(lane % 8 + lane / 16 * 8, 2 * step + lane / 8 % 2));
#pragma unroll
        for (int m = 0; m < M; m++) {
            multiply_add<T>(c[m][n], a[m], b[0], b[1]);
            multiply_add<T>(c[m][n + 1], a[m], b[2], b[3]);
        }
    }
}

/* c[16 M, 8 N] = left right^T: the first 16 M rows of one tile, 8 N rows of another. */
template <class T, int W, int M, int N>
__device__ __forceinline__ void multiply_rows(float (&c)[M][N][4], shared_address left, shared_address right, int lane)
{
#pragma unroll
    for (int i = 0; i < M * N * 4; i++) c[i / 4 / N][i / 4 % N][i % 4] = 0.0f;
#pragma unroll
    for (int step = 0; step < W / 16; step++) {
        unsigned a[M][4];
        load_left<W, M>(a, left, step, lane);
        multiply_step<T, W, M, N>(c, a, right, step, lane);
    }
}

/* The same with all of the left in registers. */
template <class T, int W, int M, int N>
__device__ __forceinline__ void multiply_held(float (&c)[M][N][4], const unsigned (&left)[W / 16][M][4],
                                              shared_address right, int lane)
{
#pragma unroll
    for (int i = 0; i < M * N * 4; i++) c[i / 4 / N][i / 4 % N][i % 4] = 0.0f;
#pragma unroll
    for (int step = 0; step < W / 16; step++) multiply_step<T, W, M, N>(c, left[step], right, step, lane);
}

/* c[16 M, W] += a[16 M, 16 K] tile[16 K, W]. */
template <class T, int W, int M, int K>
__device__ __forceinline__ void multiply_columns(float (&c)[M][W / 8][4], const unsigned (&a)[K][M][4],
                                                 shared_address tile, int lane)
{
#pragma unroll
    for (int k = 0; k < K; k++)
#pragma unroll
        for (int n = 0; n < W / 8; n += 2) {
            unsigned b[4];
            load_matrices_turned(b, tile + k * 16 * Tile<W>::pitch + Tile<W>::at(lane % 16, n + lane / 16));
#pragma unroll
            for (int m = 0; m < M; m++) {
                multiply_add<T>(c[m][n], a[k][m], b[0], b[1]);
                multiply_add<T>(c[m][n + 1], a[k][m], b[2], b[3]);
            }
        }
}

/* The A pieces of C, rounded. */
template <class T, int M, int N>
__device__ __forceinline__ void round_left(unsigned (&a)[N / 2][M][4], const float (&c)[M][N][4])
{
#pragma unroll
    for (int i = 0; i < N / 2 * M * 4; i++) {
        int k = i / 4 / M, m = i / 4 % M, word = i % 4;
        const float *pair = &c[m][2 * k + word / 2][word % 2 * 2];
        a[k][m][word] = pack_pair<T>(pair[0], pair[1]);
    }
}

/* Row i of a warp's C, times factor[i / 16][i % 16 / 8], rounded into row i of `to`: by way of 16 M rows of shared
 * memory at `stage`, so that stores are of 16 bytes. Only `there` rows and `width` columns are stored. */
template <class T, int W, int M>
__device__ __forceinline__ void store_warp_rows(T *to, int64_t row, int there, int width, const float (&c)[M][W / 8][4],
                                                const float (&factor)[M][2], char *stage, int lane)
{
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int i = 0; i < W / 4; i++) {
            int n = i / 2, half = i % 2, r = m * 16 + half * 8 + lane / 4;
            *(unsigned *)(stage + Tile<W>::at(r, n) + lane % 4 * 4) =
                pack_pair<T>(c[m][n][2 * half] * factor[m][half], c[m][n][2 * half + 1] * factor[m][half]);
        }
    __syncwarp();
    constexpr int chunks = Tile<W>::chunks;
#pragma unroll
    for (int i = lane; i < M * 16 * chunks; i += 32) {
        int r = i / chunks, chunk = i % chunks;
        if (r < there && chunk * 8 < width)
            *(uint4 *)(to + r * row + chunk * 8) = *(const uint4 *)(stage + Tile<W>::at(r, chunk));
    }
}
} // namespace SL_KERNELS

#endif

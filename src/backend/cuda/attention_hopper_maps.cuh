/* attention_hopper_maps.cuh: how the kernels of sm_90a see their operands, and what all of them do. */
#ifndef SL_BACKEND_CUDA_ATTENTION_HOPPER_MAPS_CUH
#define SL_BACKEND_CUDA_ATTENTION_HOPPER_MAPS_CUH

#include "backend/cuda/attention_hopper.cuh"
#include "backend/cuda/attention_limits.cuh"
#include "backend/cuda/hopper.cuh"

inline namespace SL_KERNELS
{
constexpr int group_rows = 64, group_threads = 128; /* of a warpgroup */

/* The register budget of a block. A multiprocessor has 65,536 registers, and __launch_bounds__(384, 1) lets one block
 * have all of them: 65,536 / 384 = 170, of which multiples of 8 are given out, so a block starts with 168 for each
 * thread. setmaxnreg then moves registers from the producer to the two consumers:
 *
 *     producer     128 threads x  24 =  3,072    24 is the least that the instruction accepts
 *     2 consumers  256 threads x 240 = 61,440
 *                                      64,512 = 384 x 168: exactly what the block started with
 *
 * 240 is the most that this leaves in multiples of 8. With three consumers a block would start with 512 x 128 = 65,536,
 * and each thread could have (65,536 - 3,072) / 384 = 162, hence 160. That is no more than the forward's tiles alone
 * take with heads of 128 (attention_hopper_forward.cu), and less than those of dk and dv. */
constexpr int groups = 2, readers = group_threads * groups, threads = readers + group_threads;
constexpr int registers = 240, few_registers = 24;
constexpr int group_apart = group_rows * tile_row_bytes;

/* Heads of one operand as [batch, row, head, column], read in boxes of 64 columns of `box` rows of one head. */
inline bool map_heads(CUtensorMap *out, void *maker, const AttentionHeads &x, int batches, int rows, int heads,
                      int width, int box, sl_form form)
{
    const cuuint64_t sizes[4] = { (cuuint64_t)width, (cuuint64_t)heads, (cuuint64_t)rows, (cuuint64_t)batches };
    const cuuint64_t strides[3] = { (cuuint64_t)width * 2, (cuuint64_t)x.row * 2, (cuuint64_t)x.batch * 2 };
    const cuuint32_t boxes[4] = { tile_columns, 1, (cuuint32_t)box, 1 }, steps[4] = { 1, 1, 1, 1 };
    const CUtensorMapDataType type =
        form == SL_FORM_BF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    auto make = (decltype(&cuTensorMapEncodeTiled))maker;
    return make(out, type, 4, x.data, sizes, strides, boxes, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

/* One block for each multiprocessor, which does piece after piece: the next one's tiles come while it still computes.
 * Changes no bits. */
inline unsigned blocks_of(const AttentionCall &c, unsigned works)
{
    return c.multiprocessors > 0 && works > (unsigned)c.multiprocessors ? (unsigned)c.multiprocessors : works;
}

/* A piece of work: a tile of queries of one head, and which tiles of keys they see. Tiles are as long as S says. */
struct QueryPiece {
    Place at;
    int first, begin, steps; /* query; the first tile of keys and the end of them */
};

/* bounded, here and in kernels: a window or documents hide earlier keys. */
template <class S, bool bounded>
__device__ __forceinline__ QueryPiece query_piece_of(const AttentionCall &c, unsigned work)
{
    const Place at = place_of(work, c.batches, c.query_heads);
    const int first = (attention_tiles(c.queries, S::queries) - 1 - at.tile) * S::queries;
    const int begin = bounded ? first_seen(c, at.batch, first) / S::keys : 0;
    return { at, first, begin, attention_tiles(c.causal ? min(first + S::queries, c.keys) : c.keys, S::keys) };
}

/* Rows [row, row + box) of a head of W columns to W / 64 tiles, `apart` bytes from one to the next. */
template <int W>
__device__ __forceinline__ void copy_rows(shared_address to, int apart, const CUtensorMap *map, shared_address barrier,
                                          int head, int row, int batch)
{
#pragma unroll
    for (int i = 0; i < W / tile_columns; i++)
        copy_tile(to + i * apart, map, barrier, i * tile_columns, head, row, batch);
}

/* Which of several buffers is used in a step, and the parity of its barriers' phase. */
template <int buffers> struct Turn {
    int buffer = 0;
    unsigned parity = 0;

    __device__ __forceinline__ void next()
    {
        if (++buffer < buffers) return;
        buffer = 0;
        parity ^= 1;
    }
};

/* Memory that comes once per piece of work, and is used again for the next: full, it has come; free, all have left.
 * Every thread that reads it leaves for itself: an arrival orders the reads of that thread alone. */
struct Held {
    shared_address at;
    unsigned parity;

    __device__ __forceinline__ void set() const
    {
        barrier_init(at, 1);
        barrier_init(at + 8, readers);
    }
    __device__ __forceinline__ shared_address full() const
    {
        return at;
    }
    __device__ __forceinline__ void wait_full() const
    {
        barrier_wait(at, parity);
    }
    __device__ __forceinline__ void wait_free() const
    {
        barrier_wait(at + 8, parity ^ 1);
    }
    __device__ __forceinline__ void leave() const
    {
        barrier_arrive(at + 8);
    }
    __device__ __forceinline__ void next()
    {
        parity ^= 1;
    }
};

/* Buffers of tiles that come one after another, across pieces of work. */
template <int buffers> struct Ring {
    shared_address at;

    __device__ __forceinline__ void set() const
    {
        for (int i = 0; i < buffers; i++) {
            barrier_init(full(i), 1);
            barrier_init(at + 8 * (buffers + i), readers);
        }
    }
    __device__ __forceinline__ shared_address full(int i) const
    {
        return at + 8 * i;
    }
    __device__ __forceinline__ void wait_full(const Turn<buffers> &t) const
    {
        barrier_wait(full(t.buffer), t.parity);
    }
    __device__ __forceinline__ void wait_free(const Turn<buffers> &t) const
    {
        barrier_wait(at + 8 * (buffers + t.buffer), t.parity ^ 1);
    }
    __device__ __forceinline__ void leave(int buffer) const
    {
        barrier_arrive(at + 8 * (buffers + buffer));
    }
};

/* Dynamic shared memory from a multiple of 1,024 on: so many bytes more are asked for. */
constexpr int shared_slack = 1024;

__device__ __forceinline__ shared_address whole_blocks(shared_address at)
{
    return (at + 1023) / 1024 * 1024;
}
} // namespace SL_KERNELS

#endif

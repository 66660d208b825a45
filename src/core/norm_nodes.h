/* norm_nodes.h: what ranks tell each other of the gradient's norm.
 *
 * Norm leaves add up in a tree fixed by their number (backend/cpu/kernels/leaf_norm.h): node (k, i) is the sum of
 * leaves [i 2^k, (i+1) 2^k). A run of leaves is the union of few such nodes, taken as large as they come; a rank hands
 * over those sums instead of its leaves, and whoever adds them up in the same tree gets the same bits. No node is larger
 * than a chunk, so that all of them can be computed side by side. */
#ifndef SL_CORE_NORM_NODES_H
#define SL_CORE_NORM_NODES_H

#include <stdint.h>

#ifdef __CUDACC__
#define SL_NORM_FUNCTION __host__ __device__ static inline
#else
#define SL_NORM_FUNCTION static inline
#endif

#define SL_NORM_CHUNK_LEVEL 12
#define SL_NORM_CHUNK       ((int64_t)1 << SL_NORM_CHUNK_LEVEL) /* leaves */
#define SL_NORM_LEVEL_BITS  4

typedef struct sl_norm_node {
    double sum;
    uint64_t place; /* number of its first leaf << SL_NORM_LEVEL_BITS | its level */
} sl_norm_node;

SL_NORM_FUNCTION int64_t sl_norm_place_leaf(uint64_t place)
{
    return (int64_t)(place >> SL_NORM_LEVEL_BITS);
}

SL_NORM_FUNCTION int sl_norm_place_level(uint64_t place)
{
    return (int)(place & ((1u << SL_NORM_LEVEL_BITS) - 1));
}

/* Of the largest node that begins at leaf `first` and ends at `end` or before. */
SL_NORM_FUNCTION int sl_norm_level(int64_t first, int64_t end)
{
    int level = 0;
    while (level < SL_NORM_CHUNK_LEVEL && (first >> level & 1) == 0 && end - first >= (int64_t)2 << level) level++;
    return level;
}

/* How many nodes in a row have that level: whole chunks follow each other, smaller nodes stand alone. */
SL_NORM_FUNCTION int64_t sl_norm_alike(int64_t first, int64_t end, int level)
{
    return level == SL_NORM_CHUNK_LEVEL ? (end - first) >> level : 1;
}

/* Nodes of leaves [first, end). */
SL_NORM_FUNCTION int64_t sl_norm_node_count(int64_t first, int64_t end)
{
    int64_t count = 0;
    while (first < end) {
        int level = sl_norm_level(first, end);
        int64_t alike = sl_norm_alike(first, end, level);
        count += alike;
        first += alike << level;
    }
    return count;
}

/* The place of node `index` of them, in order of their leaves; index < sl_norm_node_count. */
SL_NORM_FUNCTION uint64_t sl_norm_node_place(int64_t first, int64_t end, int64_t index)
{
    int level = sl_norm_level(first, end);
    int64_t alike = sl_norm_alike(first, end, level);
    while (index >= alike) {
        index -= alike;
        first += alike << level;
        level = sl_norm_level(first, end);
        alike = sl_norm_alike(first, end, level);
    }
    return (uint64_t)(first + (index << level)) << SL_NORM_LEVEL_BITS | (uint64_t)level;
}

#endif

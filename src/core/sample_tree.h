/* sample_tree.h: sums and means over the samples that several ranks hold, in an order that does not depend on how many ranks
 * there are.
 *
 * The samples of all ranks, in rank order, are the leaves of a tree that their number fixes: node (k, i) stands for samples
 * [i 2^k, (i+1) 2^k), as norm leaves are added up (core/norm_nodes.h). A rank hands over the few nodes that its own samples
 * make, and who puts the nodes of all ranks together in the same tree gets the bits that one rank with all samples gets. */
#ifndef SL_CORE_SAMPLE_TREE_H
#define SL_CORE_SAMPLE_TREE_H

#include "core/norm_nodes.h"

#define SL_SAMPLE_DEPTH 64 /* most nodes of different sizes that wait for their neighbour */

/* Nodes that a rank has room for, where each has so many samples: as many as any rank has. */
static inline int64_t sl_sample_nodes(int64_t samples, int64_t ranks)
{
    int64_t most = 1;
    for (int64_t r = 0; r < ranks; r++) {
        const int64_t count = sl_norm_node_count(r * samples, (r + 1) * samples);
        if (count > most) most = count;
    }
    return most;
}

/* What two neighbours count for in the mean of both; the square of the distance of their means counts `between` in the
 * variance. */
typedef struct sl_sample_shares {
    float left, right, between;
} sl_sample_shares;

SL_NORM_FUNCTION sl_sample_shares sl_sample_shares_of(int64_t left, int64_t right)
{
    const double a = (double)left / (double)(left + right), b = (double)right / (double)(left + right);
    sl_sample_shares s;
    s.left = (float)a;
    s.right = (float)b;
    s.between = (float)(a * b);
    return s;
}

#endif

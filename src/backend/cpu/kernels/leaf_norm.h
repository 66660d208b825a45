/* leaf_norm.h: sums of squares that do not depend on how the work was cut.
 *
 * A leaf is up to 1,024 consecutive floats, squared and summed in fp64 in sixteen lanes: lane i takes elements i, i+16,
 * ...; the lanes fold in halves (8, 4, 2, 1). The square of a float is exact in fp64, so fused and separate
 * multiply-add agree and every instruction path gives the same bits.
 *
 * Leaves add up in a binary tree fixed by their index: node (k, i) is the sum of leaves [i 2^k, (i+1) 2^k), left child
 * plus right child; a node none of whose leaves exists is absent, and a node with one child is that child. Over leaves
 * 0 .. n-1 that is sum(lo, hi) = sum(lo, mid) + sum(mid, hi) with mid = lo + the largest power of two below hi - lo.
 * Because the tree hangs on the index alone, any owner of an aligned run of leaves can hand over the sum of its
 * subtree. */
#ifndef SL_BACKEND_CPU_LEAF_NORM_H
#define SL_BACKEND_CPU_LEAF_NORM_H

#include "backend/cpu/kernels/simd.h"
#include "core/bytes.h"

/* Sixteen doubles, with the one operation that leaves need. */
#if defined(SL_ISA_avx512)
typedef struct {
    __m512d l, h;
} sl_d16;

static inline sl_d16 d16_add_square(sl_d16 sum, sl_v16 x)
{
    __m512d l = _mm512_cvtps_pd(_mm512_castps512_ps256(x));
    __m512d h = _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1));
    return (sl_d16){ _mm512_fmadd_pd(l, l, sum.l), _mm512_fmadd_pd(h, h, sum.h) };
}
#elif defined(SL_ISA_avx2)
typedef struct {
    __m256d q[4]; /* lanes 0-3, 4-7, 8-11, 12-15 */
} sl_d16;

static inline __m256d d4_add_square(__m256d sum, __m128 x)
{
    __m256d d = _mm256_cvtps_pd(x);
    return _mm256_fmadd_pd(d, d, sum);
}

static inline sl_d16 d16_add_square(sl_d16 sum, sl_v16 x)
{
    return (sl_d16){
        { d4_add_square(sum.q[0], _mm256_castps256_ps128(x.l)), d4_add_square(sum.q[1], _mm256_extractf128_ps(x.l, 1)),
          d4_add_square(sum.q[2], _mm256_castps256_ps128(x.h)), d4_add_square(sum.q[3], _mm256_extractf128_ps(x.h, 1)) }
    };
}
#else
typedef struct {
    double v[SL_LANES];
} sl_d16;

static inline sl_d16 d16_add_square(sl_d16 sum, sl_v16 x)
{
    for (int i = 0; i < SL_LANES; i++) sum.v[i] += (double)x.v[i] * (double)x.v[i];
    return sum;
}
#endif

static inline sl_d16 d16_zero(void)
{
    sl_d16 z;
    memset(&z, 0, sizeof z);
    return z;
}

static inline double d16_sum(sl_d16 a)
{
    double t[SL_LANES];
    memcpy(t, &a, sizeof t);
    for (int half = SL_LANES / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++) t[i] += t[i + half];
    return t[0];
}

/* The tree while its leaves arrive in index order: node[k], where bit k of pending is set, is a finished left child of
 * level k that waits for its sibling. Zero-initialise. */
typedef struct sl_leaf_tree {
    double node[64];
    uint64_t pending;
} sl_leaf_tree;

/* Node (level, index), after all that is left of it. */
static inline void sl_leaf_tree_add_node(sl_leaf_tree *t, int level, int64_t index, double value)
{
    for (; index & 1; index >>= 1, level++) {
        if ((t->pending >> level & 1) == 0) continue; /* nothing left of the first leaf */
        value = t->node[level] + value;
        t->pending &= ~(UINT64_C(1) << level);
    }
    t->node[level] = value;
    t->pending |= UINT64_C(1) << level;
}

static inline void sl_leaf_tree_add(sl_leaf_tree *t, int64_t index, double value)
{
    sl_leaf_tree_add_node(t, 0, index, value);
}

/* The root: what waits is completed from the smallest subtree up. 0 for no leaves. */
static inline double sl_leaf_tree_sum(const sl_leaf_tree *t)
{
    double sum = 0.0;
    for (int level = 0; level < 64; level++)
        if (t->pending >> level & 1) sum = t->node[level] + sum;
    return sum;
}

#endif

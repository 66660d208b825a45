/* normals.h: standard normals for runs of Philox blocks, many lanes at a time. Behind sl_rng_normals. */
#ifndef SL_CORE_NORMALS_H
#define SL_CORE_NORMALS_H

#include <stdint.h>

#define SL_NORMALS_PAIRS 64
/* Normals of a batch: two pairs for each of SL_NORMALS_PAIRS Philox blocks. */
#define SL_NORMALS_BATCH (4 * SL_NORMALS_PAIRS)

/* Instruction paths of this machine, the plain one first, the fastest last; all of them give the same bits. */
int sl_normals_paths(void);
/* The normals of the Philox blocks from counter[0] on, which does not wrap on the way, in the order of their words.
 * `path` is below sl_normals_paths(). */
void sl_normals_batch(int path, const uint32_t counter[4], const uint32_t key[2], float out[SL_NORMALS_BATCH]);
/* Of given words, for tests; each pair has the bits of sl_normal_pair. */
void sl_normals_pairs(int path, const uint32_t radii[SL_NORMALS_PAIRS], const uint32_t angles[SL_NORMALS_PAIRS],
                      float even[SL_NORMALS_PAIRS], float odd[SL_NORMALS_PAIRS]);
/* Two words to two normals by Box-Muller with the C library's functions, in double, rounded once: the even element by
 * cosine, the odd one by sine. What a normal is. */
void sl_normal_pair(uint32_t radius_word, uint32_t angle_word, float *even, float *odd);

#endif

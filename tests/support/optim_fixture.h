/* optim_fixture.h: what the optimizer tests share: hashed numbers, a small graph, and a step run straight on the kernels. */
#ifndef SLUICE_TEST_OPTIM_FIXTURE_H
#define SLUICE_TEST_OPTIM_FIXTURE_H

#include "backend/cpu/kernels.h"
#include "core/cpu.h"
#include "optim/optim.h"
#include "test.h"

/* Element i of sequence `seed`: in [-1, 1), exact in float; the same hash as in tests/parity/record_optim.py. */
float hashed(uint32_t seed, uint32_t i);
uint32_t hash_bits(uint32_t seed, uint32_t i);

/* Kernels of a path, or NULL where this CPU or this build lacks it. */
const sl_kernel *kernels_of(sl_isa isa);

/* Where updates run: the CPU's instruction paths, the CUDA backend emulated, and on a GPU where there is one; on the
 * last two with operands at multiples of 256 bytes, and one element behind. All must give the same bits. There only
 * update kernels and CAST are to be had. */
enum { PATH_CUDA = SL_ISA_COUNT, PATH_CUDA_SHIFTED, PATH_GPU, PATH_GPU_SHIFTED, PATH_COUNT };
const sl_kernel *kernels_on(int path); /* NULL where it is lacking */
const char *path_name(int path);

/* A differentiated graph with layers "first" (a.scale [1], a.bias [77], a.weight [25,41]) and "second" (b.weight
 * [50,100]). */
sluice_status small_graph(sluice_graph **out);

/* A run of `count` elements as a parameter of one row. */
#define SEGMENT(offset_, count_, group_)                                                                               \
    {                                                                                                                  \
        .offset = (offset_), .count = (count_), .group = (group_), .rows = 1, .columns = (count_)                      \
    }

/* Two groups' numbers of some step. */
void fill_groups(sl_run_context *run);

#define MAX_LAYERS 4

/* A graph, its optimizer, and one flat buffer per layer for each of weights, gradients and state slots. */
typedef struct trainer {
    sluice_graph *graph;
    sl_optim *optim;
    const sl_kernel *kernels;
    sl_pool *pool;
    float *weights[MAX_LAYERS], *gradients[MAX_LAYERS], *slots[MAX_LAYERS][SL_MAX_STATE_SLOTS];
    double *leaves;
    int64_t leaf_first[MAX_LAYERS], leaf_count;
    sl_norm_result norm;
    sl_run_context run;
} trainer;

sluice_status trainer_open(trainer *t, const sl_optim_options *options, sl_isa isa, int threads);
void trainer_close(trainer *t);
/* Runs the graph's update nodes for optimizer step `step` on the gradients as they lie. */
void trainer_step(trainer *t, uint64_t step, double lr, double momentum);
/* Initial weights, and gradients of a step, as the recorded trajectories have them. */
void trainer_set_weights(trainer *t);
void trainer_set_gradients(trainer *t, uint32_t step);

#endif

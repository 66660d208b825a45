/* batch_growth.c: stages of `every` steps each, and the last of any length. */
#include "train/batch_growth.h"

#include <math.h>
#include <stdbool.h>

int64_t sl_growth_most(int64_t first, int64_t factor, int64_t unit, int64_t limit)
{
    int64_t most = first;
    while (most <= limit / factor && most * factor <= limit / unit) most *= factor;
    return most;
}

/* Of the stage after one of `micro`; the same: it is the last one. */
static int64_t next_stage(const sl_batch_growth *g, int64_t micro)
{
    return g->every > 0 && micro < g->most ? micro * g->factor : micro;
}

int64_t sl_growth_at(const sl_batch_growth *g, uint64_t step)
{
    int64_t micro = g->first;
    for (uint64_t done = step; next_stage(g, micro) != micro && done >= (uint64_t)g->every; done -= (uint64_t)g->every)
        micro = next_stage(g, micro);
    return micro;
}

uint64_t sl_growth_before(const sl_batch_growth *g, uint64_t step)
{
    int64_t micro = g->first;
    uint64_t sum = 0, last;
    for (; next_stage(g, micro) != micro && step > (uint64_t)g->every; step -= (uint64_t)g->every) {
        sum += (uint64_t)micro * (uint64_t)g->every;
        micro = next_stage(g, micro);
    }
    bool fits = !__builtin_mul_overflow((uint64_t)micro, step, &last) && !__builtin_add_overflow(sum, last, &sum);
    return fits && sum <= INT64_MAX ? sum : INT64_MAX;
}

uint64_t sl_growth_steps(const sl_batch_growth *g, double micro_batches)
{
    int64_t micro = g->first;
    double steps = 0;
    for (; next_stage(g, micro) != micro && micro_batches > (double)micro * (double)g->every;
         micro = next_stage(g, micro)) {
        micro_batches -= (double)micro * (double)g->every;
        steps += (double)g->every;
    }
    return (uint64_t)(steps + ceil(micro_batches / (double)micro - 1e-9));
}

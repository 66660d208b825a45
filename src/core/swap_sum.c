/* swap_sum.c: the checksums of a swap store, one for each unit, in memory.
 *
 * They never lie on the disk that they judge: a block that is stale, lost or of another place differs from what its entry
 * was made of, however consistent it is in itself. The identity of what is stored is the seed, so that a read of another
 * buffer's units is found as well. */
#include <xxhash.h>

#include "core/alloc.h"
#include "core/swap_parts.h"

/* 0 is the mark of a unit that was never written. */
static uint64_t sum_of(const void *unit, const sl_swap_label *label)
{
    uint64_t sum = (uint64_t)XXH3_64bits_withSeed(unit, SL_SWAP_UNIT, label->identity);
    return sum == 0 ? 1 : sum;
}

static uint64_t step_entries(uint64_t bytes)
{
    uint64_t units = bytes / SL_SWAP_UNIT;
    return (units + SL_SWAP_STEP_UNITS - 1) / SL_SWAP_STEP_UNITS;
}

uint64_t sl_swap_sums_bytes(uint64_t bytes)
{
    return bytes / SL_SWAP_UNIT * sizeof(uint64_t) + step_entries(bytes) * sizeof(uint32_t);
}

sluice_status sl_swap_sums_make(uint64_t bytes, sl_swap_sums *out)
{
    sl_swap_sums t = { sl_alloc_array(bytes / SL_SWAP_UNIT, sizeof *t.sum, "checksums of the disk tier"), NULL };
    if (t.sum == NULL) return SLUICE_ERR_NO_MEMORY;
    t.step = sl_alloc_array(step_entries(bytes), sizeof *t.step, "steps of the disk tier");
    if (t.step == NULL) {
        sl_free(t.sum);
        return SLUICE_ERR_NO_MEMORY;
    }
    *out = t;
    return SLUICE_OK;
}

void sl_swap_sums_free(sl_swap_sums *t)
{
    sl_free(t->sum);
    sl_free((void *)t->step);
    *t = (sl_swap_sums){ 0 };
}

void sl_swap_sums_set(sl_swap_sums *t, uint64_t offset, const void *data, uint64_t bytes, const sl_swap_label *label)
{
    const char *unit = data;
    uint64_t first = offset / SL_SWAP_UNIT, count = bytes / SL_SWAP_UNIT;
    for (uint64_t i = 0; i < count; i++) {
        t->sum[first + i] = sum_of(unit + i * SL_SWAP_UNIT, label);
        if (i == 0 || (first + i) % SL_SWAP_STEP_UNITS == 0)
            atomic_store_explicit(&t->step[(first + i) / SL_SWAP_STEP_UNITS], (uint32_t)label->step,
                                  memory_order_relaxed);
    }
}

void sl_swap_sums_forget(sl_swap_sums *t, uint64_t offset, uint64_t bytes)
{
    for (uint64_t i = 0; i < bytes / SL_SWAP_UNIT; i++) t->sum[offset / SL_SWAP_UNIT + i] = 0;
}

uint64_t sl_swap_sums_check(const sl_swap_sums *t, uint64_t offset, const void *data, uint64_t bytes,
                            const sl_swap_label *label)
{
    const char *unit = data;
    for (uint64_t at = 0; at < bytes; at += SL_SWAP_UNIT)
        if (t->sum[(offset + at) / SL_SWAP_UNIT] != sum_of(unit + at, label)) return offset + at;
    return offset + bytes;
}

bool sl_swap_sums_written(const sl_swap_sums *t, uint64_t offset)
{
    return t->sum[offset / SL_SWAP_UNIT] != 0;
}

uint64_t sl_swap_sums_step(const sl_swap_sums *t, uint64_t offset)
{
    return atomic_load_explicit(&t->step[offset / SL_SWAP_UNIT / SL_SWAP_STEP_UNITS], memory_order_relaxed);
}

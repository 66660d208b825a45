/* form.c: see form.h. */
#include "ir/form.h"

#include "core/blocks8.h"
#include "core/bytes.h"

static const struct {
    const char *name;
    size_t bytes;
} forms[SL_FORM_COUNT] = {
    [SL_FORM_F32] = { "f32", 4 },
    [SL_FORM_I32] = { "i32", 4 },
    [SL_FORM_BF16] = { "bf16", 2 },
    [SL_FORM_F16] = { "f16", 2 },
    [SL_FORM_REMAINDER] = { "remainder", 2 },
    [SL_FORM_BLOCKS8] = { "8-bit blocks", 0 },
};

const char *sl_form_name(sl_form form)
{
    return forms[form].name;
}

size_t sl_form_element_bytes(sl_form form)
{
    return forms[form].bytes;
}

bool sl_block_is_wide(const sl_layer *layer, int64_t block)
{
    for (int i = 0; i < layer->wide_block_runs; i++) {
        const sl_range *r = &layer->wide_blocks[i];
        if (block < r->first) return false;
        if (block < r->first + r->count) return true;
    }
    return false;
}

/* Elements of the run that lie in wide blocks. */
static int64_t wide_elements(const sl_layer *layer, sl_range run)
{
    int64_t count = 0;
    for (int i = 0; i < layer->wide_block_runs; i++) {
        sl_range r = { layer->wide_blocks[i].first * SL_CUT_ELEMENTS, layer->wide_blocks[i].count * SL_CUT_ELEMENTS };
        count += sl_range_common(r, run).count;
    }
    return count;
}

uint64_t sl_form_bytes(sl_form form, const sl_layer *layer, int64_t first, int64_t count)
{
    if (form != SL_FORM_BLOCKS8) return (uint64_t)count * forms[form].bytes;
    int64_t wide = wide_elements(layer, (sl_range){ first, count }), narrow = count - wide;
    /* Only the layer's last block is short, so the blocks of each kind are as many as their elements fill. */
    return (uint64_t)wide * sizeof(float) + (uint64_t)narrow +
           (uint64_t)sl_ceil_div(narrow, SL_CUT_ELEMENTS) * SL_BLOCKS8_HEADER;
}

bool sl_slot_is_signed(sl_update_kind kind, int slot)
{
    return (sl_updates[kind].squares >> slot & 1) == 0;
}

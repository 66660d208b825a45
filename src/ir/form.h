/* form.h: how many bytes a run of a layer's elements takes in each form, and where the next begins.
 *
 * BLOCKS8 is the form of compact moments. A layer's flat buffer is cut in blocks of SL_CUT_ELEMENTS by the index in the
 * layer, so that neither ranks nor tiers change a block. A block is, by sl_layer.wide_blocks, either f32 or narrow: an
 * int32 exponent and one byte an element (core/blocks8.h). The last block of a layer may be short. */
#ifndef SL_IR_FORM_H
#define SL_IR_FORM_H

#include "ir/graph.h"

const char *sl_form_name(sl_form form); /* "f32", "remainder", "8-bit blocks" */
/* Of one element; 0 for BLOCKS8, whose blocks differ. */
size_t sl_form_element_bytes(sl_form form);
/* Bytes that elements [first, first + count) of a layer take. BLOCKS8: first is a multiple of SL_CUT_ELEMENTS, and the
 * run ends at one or at the layer's end. The offset of an element in a whole buffer is that of the run before it. */
uint64_t sl_form_bytes(sl_form form, const sl_layer *layer, int64_t first, int64_t count);
/* Whether a state slot of an update rule holds numbers of either sign (momenta) or none below zero (sums of
 * squares). */
bool sl_slot_is_signed(sl_update_kind kind, int slot);
/* Whether block `block` of the layer keeps f32 under BLOCKS8. */
bool sl_block_is_wide(const sl_layer *layer, int64_t block);

/* Whether an update on the host that reads its old values elsewhere takes no longer than one in place; others copy them
 * first. */
static inline bool sl_update_reads_aside(sl_update_kind kind, sl_form states)
{
    return (kind == SL_UPDATE_adam_l2 || kind == SL_UPDATE_adam_decoupled) && states == SL_FORM_F32;
}

#endif

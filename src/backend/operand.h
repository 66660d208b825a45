/* operand.h: what a call says of one operand, for whoever turns a call into a kernel's arguments. */
#ifndef SL_BACKEND_OPERAND_H
#define SL_BACKEND_OPERAND_H

#include "backend/backend.h"
#include "backend/tensor.h"

typedef struct sl_operand {
    sl_span span;
    const sl_shape *shape; /* NULL: none */
    sl_form form;
} sl_operand;

/* Whether a call writes output i: that of a graph op has a shape, and only then a span; that of an update op a span. */
bool sl_has_output(const sl_call *c, int i);
/* Input i, or output i. */
sl_operand sl_call_operand(const sl_call *c, bool output, int i);
/* How many elements it has. Operands of graph ops are values: their shapes say it. Those of update ops are runs of flat
 * buffers: their spans do, except in 8-bit blocks (0 then), where the weights' run counts. The norm's leaves are
 * doubles, whatever their form. */
int64_t sl_operand_elements(const sl_call *c, bool output, int i);
/* Where a span lies, given the first byte of each tier's arena; NULL for an empty one. */
void *sl_span_address(sl_span s, uint8_t *const bases[SL_TIER_COUNT]);
/* Input or output i in these arenas. */
sl_tensor sl_call_tensor(const sl_call *c, bool output, int i, uint8_t *const bases[SL_TIER_COUNT]);

#endif

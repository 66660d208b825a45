/* operand.c: see operand.h. */
#include "backend/operand.h"

#include "core/norm_nodes.h"
#include "ir/form.h"

/* Update ops see flat buffers; those of the norm hold more than floats. */
static size_t element_bytes(sl_op op, bool output, sl_form form)
{
    bool leaves =
        output ? op == SL_OP_NORM_LEAVES || op == SL_OP_NORM_JOIN : op == SL_OP_NORM_COMBINE || op == SL_OP_NORM_FINISH;
    bool nodes = output ? op == SL_OP_NORM_COMBINE : op == SL_OP_NORM_JOIN;
    return leaves ? sizeof(double) : nodes ? sizeof(sl_norm_node) : sl_form_element_bytes(form);
}

bool sl_has_output(const sl_call *c, int i)
{
    const bool flat = sl_ops[c->op].phase == SL_PHASE_UPDATE;
    return i < c->output_count && (flat ? c->outputs[i].bytes > 0 : c->output_shapes[i] != NULL);
}

sl_operand sl_call_operand(const sl_call *c, bool output, int i)
{
    if (output) return (sl_operand){ c->outputs[i], c->output_shapes[i], c->output_forms[i] };
    return (sl_operand){ c->inputs[i], c->input_shapes[i], c->input_forms[i] };
}

int64_t sl_operand_elements(const sl_call *c, bool output, int i)
{
    sl_operand o = sl_call_operand(c, output, i);
    size_t each = element_bytes(c->op, output, o.form);
    if (sl_ops[c->op].phase != SL_PHASE_UPDATE && o.shape != NULL) return sl_shape_elements(o.shape);
    return each > 0 ? (int64_t)(o.span.bytes / each) : 0;
}

void *sl_span_address(sl_span s, uint8_t *const bases[SL_TIER_COUNT])
{
    return s.bytes > 0 ? bases[s.tier] + s.offset : NULL;
}

sl_tensor sl_call_tensor(const sl_call *c, bool output, int i, uint8_t *const bases[SL_TIER_COUNT])
{
    sl_operand o = sl_call_operand(c, output, i);
    return (sl_tensor){ sl_span_address(o.span, bases), o.shape, sl_operand_elements(c, output, i), o.form };
}

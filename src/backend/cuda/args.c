/* args.c: see args.h. */
#include "backend/cuda/args.h"

#include "backend/operand.h"

static void fill_call(sl_cuda_args *a, const sl_call *c)
{
    *a = (sl_cuda_args){
        .attrs = c->attrs,
        .input_count = c->input_count,
        .output_count = c->output_count,
        .context = c->context,
        .wire = c->wire,
        .first = c->first,
        .name = c->name,
    };
}

void sl_cuda_args_fill(sl_cuda_args *a, const sl_call *c, uint8_t *const bases[SL_TIER_COUNT])
{
    fill_call(a, c);
    a->workspace = sl_span_address(c->workspace, bases);
    a->workspace_bytes = c->workspace.bytes;
    for (int i = 0; i < c->input_count; i++) a->in[i] = sl_call_tensor(c, false, i, bases);
    for (int i = 0; i < c->output_count; i++) a->out[i] = sl_call_tensor(c, true, i, bases);
}

/* An operand that has no memory yet; data says whether it is there. */
static sl_cuda_tensor described(const sl_call *c, bool output, int i)
{
    static char there;
    const sl_operand o = sl_call_operand(c, output, i);
    const bool present = !output || sl_has_output(c, i);
    return (sl_cuda_tensor){ present ? &there : NULL, o.shape, sl_operand_elements(c, output, i), o.form };
}

uint64_t sl_cuda_call_workspace(const sl_call *c)
{
    sl_cuda_args a;
    fill_call(&a, c);
    for (int i = 0; i < c->input_count; i++) a.in[i] = described(c, false, i);
    for (int i = 0; i < c->output_count; i++) a.out[i] = described(c, true, i);
    return sl_cuda_workspace(c->op, &a);
}

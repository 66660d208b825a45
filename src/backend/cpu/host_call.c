/* host_call.c: see host_call.h. */
#include "backend/cpu/host_call.h"

#include <inttypes.h>

#include "backend/cpu/cpu_workspace.h"
#include "backend/operand.h"

/* AMX is a GEMM within the AVX-512 kernels. */
sluice_status sl_host_kernels_of(sl_isa isa, sl_host_kernels *out)
{
    static const sl_kernel(*const tables[SL_ISA_COUNT])[SL_OP_COUNT] = {
        [SL_ISA_SCALAR] = sl_kernels_scalar,
#if defined(__x86_64__)
        [SL_ISA_AVX2] = sl_kernels_avx2,
        [SL_ISA_AVX512] = sl_kernels_avx512,
        [SL_ISA_AMX] = sl_kernels_avx512,
#endif
    };
    if ((unsigned)isa >= SL_ISA_COUNT || tables[isa] == NULL || isa > sl_isa_best())
        return sl_fail(SLUICE_ERR_USAGE, "this CPU cannot run the instruction path %d; the best it has is %s", (int)isa,
                       sl_isa_name(sl_isa_best()));
    *out = (sl_host_kernels){ tables[isa], isa == SL_ISA_AMX };
    return SLUICE_OK;
}

/* In which type the call computes, as sl_node_type says: the first 16-bit type among its inputs, else f32; or the
 * type of its output, where the op's row says so. */
static sl_kernel_type type_of(const sl_call *c)
{
    static const sl_kernel_type of_form[SL_FORM_COUNT] = {
        [SL_FORM_BF16] = SL_KERNEL_BF16,
        [SL_FORM_F16] = SL_KERNEL_F16,
    };
    if (sl_ops[c->op].typed_by_output && c->output_count > 0) return of_form[c->output_forms[0]];
    for (int i = 0; i < c->input_count; i++)
        if (of_form[c->input_forms[i]] != SL_KERNEL_F32) return of_form[c->input_forms[i]];
    return SL_KERNEL_F32;
}

sluice_status sl_host_call_check(const sl_host_kernels *k, const sl_call *c)
{
    const char *name = c->name ? c->name : "";
    uint64_t needed = sl_cpu_workspace(c);
    if (k->table[type_of(c)][c->op] == NULL)
        return sl_fail(SLUICE_ERR_FAILED, "%s %s: no kernel on the CPU backend", sl_ops[c->op].name, name);
    if (c->workspace.bytes < needed)
        return sl_fail(SLUICE_ERR_FAILED, "%s %s: %" PRIu64 " bytes of workspace, it needs %" PRIu64,
                       sl_ops[c->op].name, name, c->workspace.bytes, needed);
    return SLUICE_OK;
}

void sl_host_call_run(const sl_host_kernels *k, const sl_call *c, uint8_t *const bases[SL_TIER_COUNT], sl_pool *pool)
{
    sl_kernel_args a = {
        .attrs = c->attrs,
        .input_count = c->input_count,
        .output_count = c->output_count,
        .context = c->context,
        .wire = c->wire,
        .amx = k->amx,
        .first = c->first,
        .pool = pool,
        .workspace = sl_span_address(c->workspace, bases),
        .workspace_bytes = c->workspace.bytes,
    };
    for (int i = 0; i < c->input_count; i++) a.in[i] = sl_call_tensor(c, false, i, bases);
    for (int i = 0; i < c->output_count; i++) a.out[i] = sl_call_tensor(c, true, i, bases);
    k->table[type_of(c)][c->op](&a);
}

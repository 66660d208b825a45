/* no_hopper.cc: stands in for the kernels of sm_90a in the emulated backend, which has no warpgroups. */
#include "backend/cuda/attention_hopper.cuh"

bool sl_attention_forward_hopper(const AttentionCall &, sl_form, void *, void *)
{
    return false;
}

bool sl_attention_backward_hopper(const AttentionCall &, sl_form, void *, void *)
{
    return false;
}

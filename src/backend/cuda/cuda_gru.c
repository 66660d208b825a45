/* cuda_gru.c: a gated recurrent unit. Small states are one kernel's for all frames (gru_walk.cu). Others go frame by frame: a
 * matrix product of the state before with the weight, and a kernel for the rest (gru_step.cu). Those products read states
 * rounded to the type of h and give f32; the state itself is handed on in f32.
 * Backward leaves the gradients of all frames' products beside the states before them: the weight's gradient is then the one
 * product of a linear layer. */
#include "backend/cuda/gru_step.h"
#include "core/status.h"

static sluice_status check_workspace(sl_op op, const sl_cuda_args *a)
{
    const uint64_t needed = sl_cuda_gru_workspace(op, a);
    if (a->workspace_bytes >= needed) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_FAILED, "%s: needs %llu bytes of workspace, has %llu", a->name != NULL ? a->name : "?",
                   (unsigned long long)needed, (unsigned long long)a->workspace_bytes);
}

/* What all frames have in common, and where the workspace holds what. */
static sl_gru_frame open_frames(sl_op op, const sl_cuda_args *a, char **turns, char **gates, char **behind)
{
    sl_gru_frame f = { .shape = sl_gru_shape_of(op, a), .form = sl_cuda_type(op, a) };
    char *state = (char *)a->workspace + sl_gru_products_bytes(op, a);
    f.state = (float *)(void *)state;
    *turns = state + sl_gru_state_bytes(&f.shape);
    *gates = *turns + sl_gru_turns_bytes(op, &f.shape);
    *behind = *gates + sl_gru_gates_bytes(op, &f.shape, f.form);
    return f;
}

/* Sets the frame that is worked through as the n-th: by time, or with `backwards` from the end. */
static void set_frame(sl_gru_frame *f, int64_t n, bool backwards)
{
    f->first = n == 0;
    f->frame = backwards ? f->shape.frames - 1 - n : n;
}

/* product[B,3H] = h of the frame before times w^T */
static sluice_status forward_product(const sl_cuda_args *a, const sl_gru_frame *f)
{
    const int64_t width = f->shape.width, row = f->shape.frames * width;
    const sl_cuda_gemm g = {
        .m = f->shape.batch,
        .n = 3 * width,
        .k = width,
        .form = f->form,
        .out_form = SL_FORM_F32,
        .a = (const char *)f->h + (uint64_t)(f->before * width) * sl_linear_element_bytes(f->form),
        .stride_a = row,
        .b = a->in[1].data,
        .stride_b = width,
        .transpose_b = true,
        .out = (void *)(uintptr_t)f->product,
        .stride_out = 3 * width,
        .batch = 1,
    };
    return sl_cuda_gemm_run(a, &g);
}

/* state[B,H] += dgates of the frame times w */
static sluice_status backward_product(const sl_cuda_args *a, const sl_gru_frame *f)
{
    const int64_t width = f->shape.width;
    const sl_cuda_gemm g = {
        .m = f->shape.batch,
        .n = width,
        .k = 3 * width,
        .form = f->form,
        .out_form = SL_FORM_F32,
        .accumulate = true,
        .a = (const char *)f->dgates + (uint64_t)(f->frame * 3 * width) * sl_linear_element_bytes(f->form),
        .stride_a = f->shape.frames * 3 * width,
        .b = a->in[0].data,
        .stride_b = width,
        .out = f->state,
        .stride_out = width,
        .batch = 1,
    };
    return sl_cuda_gemm_run(a, &g);
}

/* gates_x[B,T,3H], w[3H,H], bias[3H], lengths[B]? -> h[B,T,H], gates[B,T,4H] */
sluice_status sl_cuda_gru(const sl_cuda_args *a)
{
    const bool reverse = a->attrs->gru.reverse;
    char *turns, *gates, *behind;
    SL_TRY(check_workspace(SL_OP_GRU, a));
    sl_gru_frame f = open_frames(SL_OP_GRU, a, &turns, &gates, &behind);
    f.gates_x = a->in[0].data;
    f.bias = a->in[2].data;
    f.lengths = a->input_count > 3 ? a->in[3].data : NULL;
    f.product = (const float *)(const void *)gates;
    f.h = a->out[0].data;
    f.gates = a->out[1].data;
    if (sl_gru_walks(&f.shape)) return sl_cuda_gru_walk(a, &f, a->in[1].data, turns, true, reverse);
    for (int64_t n = 0; n < f.shape.frames; n++) {
        set_frame(&f, n, reverse);
        f.before = f.first ? -1 : f.frame + (reverse ? 1 : -1);
        if (!f.first) SL_TRY(forward_product(a, &f));
        SL_TRY(sl_cuda_gru_forward_frame(a, &f));
    }
    return SLUICE_OK;
}

static sluice_status weight_gradients(const sl_cuda_args *a, const sl_gru_frame *f)
{
    sl_shape shapes[2];
    sl_attrs attrs;
    const sl_cuda_args product = sl_gru_weight_product(a, f->dgates, f->previous, shapes, &attrs);
    return sl_cuda_linear_grad_weight(&product);
}

static sluice_status backward_frames(const sl_cuda_args *a, sl_gru_frame *f, bool reverse)
{
    for (int64_t n = 0; n < f->shape.frames; n++) {
        set_frame(f, n, !reverse);
        f->before = n + 1 == f->shape.frames ? -1 : f->frame + (reverse ? 1 : -1);
        SL_TRY(sl_cuda_gru_backward_frame(a, f));
        if (n + 1 < f->shape.frames) SL_TRY(backward_product(a, f));
    }
    return SLUICE_OK;
}

/* w[3H,H], gates[B,T,4H], h[B,T,H], dh[B,T,H], lengths[B]? -> dgates_x?, dw?, dbias? */
sluice_status sl_cuda_gru_grad(const sl_cuda_args *a)
{
    const bool reverse = a->attrs->gru.reverse, weight = sl_gru_wants_weight(a);
    char *turns, *gates, *behind;
    SL_TRY(check_workspace(SL_OP_GRU_GRAD, a));
    sl_gru_frame f = open_frames(SL_OP_GRU_GRAD, a, &turns, &gates, &behind);
    f.gates = a->in[1].data;
    f.states = a->in[2].data;
    f.dh = a->in[3].data;
    f.lengths = a->input_count > 4 ? a->in[4].data : NULL;
    f.dgates_x = a->out[0].data;
    f.accumulate = (a->attrs->accumulate & 1u) != 0;
    f.dgates = gates;
    f.previous = weight ? behind : NULL;
    if (sl_gru_walks(&f.shape))
        SL_TRY(sl_cuda_gru_walk(a, &f, a->in[0].data, turns, false, !reverse));
    else
        SL_TRY(backward_frames(a, &f, reverse));
    return weight ? weight_gradients(a, &f) : SLUICE_OK;
}

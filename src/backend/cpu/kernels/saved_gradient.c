/* saved_gradient.c: losses whose forward leaves gradients for the seed of its micro-batch: backward multiplies them with
 * dloss / seed, a factor of exactly 1 where the loss itself is differentiated. */
#include "backend/cpu/kernels/elem.h"

typedef struct scaling {
    const sl_tensor *from, *to;
    sl_v16 factor;
    bool add;
} scaling;

static void scale_task(void *context, int64_t task, void *scratch)
{
    const scaling *s = context;
    const sl_slice r = sl_task_range(task, SL_TASK_ELEMENTS, s->to->elements);
    (void)scratch;
    for (int64_t i = r.begin; i < r.end; i += SL_LANES) {
        sl_v16 v = v16_mul(w16_get(s->from, i, r.end - i, 0.0f), s->factor);
        w16_put_or_add(s->to, i, v, r.end - i, s->add);
    }
}

/* The inputs but dloss as forward left them, dloss -> each of them, in order, times dloss / seed. An output may be the
 * memory of its input. */
static void scale_saved(const sl_kernel_args *a, int dloss_input)
{
    const float dloss = *(const float *)a->in[dloss_input].data, seed = a->context->seed_gradient;
    const float factor = dloss == seed ? 1.0f : dloss / seed;
    for (int i = 0; i < a->output_count; i++) {
        if (a->out[i].data == NULL) continue;
        scaling s = { &a->in[i < dloss_input ? i : i + 1], &a->out[i], v16_set1(factor), sl_accumulates(a, i) };
        bool same = s.from->data == s.to->data && s.from->form == s.to->form && !s.add;
        if (same && factor == 1.0f) continue;
        sl_pool_run(a->pool, scale_task, &s, sl_ceil_div(s.to->elements, SL_TASK_ELEMENTS));
    }
}

/* dw, dx, dloss, dbias? -> dw?, dx?, dbias? */
void K(linear_cross_entropy_grad)(const sl_kernel_args *a)
{
    scale_saved(a, 2);
}

/* dlogits, dloss -> dlogits */
void K(ctc_loss_grad)(const sl_kernel_args *a)
{
    scale_saved(a, 1);
}

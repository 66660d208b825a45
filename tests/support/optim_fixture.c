/* optim_fixture.c: see optim_fixture.h. */
#include "support/optim_fixture.h"

#include "core/alloc.h"
#include "core/bytes.h"

uint32_t hash_bits(uint32_t seed, uint32_t i)
{
    uint32_t h = seed * 0x9E3779B1u + i * 0x85EBCA77u;
    h = (h ^ h >> 16) * 0x7FEB352Du;
    h = (h ^ h >> 15) * 0x846CA68Bu;
    return h ^ h >> 16;
}

float hashed(uint32_t seed, uint32_t i)
{
    return (float)(hash_bits(seed, i) >> 8) * 0x1p-23f - 1.0f;
}

const sl_kernel *kernels_of(sl_isa isa)
{
    if (isa > sl_isa_best()) return NULL;
#if defined(__x86_64__)
    if (isa >= SL_ISA_AVX512) return sl_kernels_avx512[SL_KERNEL_F32]; /* AMX has tiles for products alone */
    if (isa == SL_ISA_AVX2) return sl_kernels_avx2[SL_KERNEL_F32];
#endif
    return isa == SL_ISA_SCALAR ? sl_kernels_scalar[SL_KERNEL_F32] : NULL;
}

sluice_status small_graph(sluice_graph **out)
{
    static const struct {
        const char *layer, *name;
        int rank;
        int64_t dims[2];
    } rows[] = { { "first", "a.scale", 1, { 1 } },
                 { NULL, "a.bias", 1, { 77 } },
                 { NULL, "a.weight", 2, { 25, 41 } },
                 { "second", "b.weight", 2, { 50, 100 } } };
    sluice_graph *g;
    SL_TRY(sluice_graph_create(&g));
    sluice_value loss = SLUICE_NONE;
    for (int i = 0; i < 4; i++) {
        if (rows[i].layer != NULL) sluice_layer(g, rows[i].layer);
        sluice_init init = { SLUICE_INIT_ZERO, 0.0f };
        sluice_value sum = sluice_sum(g, sluice_parameter(g, rows[i].name, rows[i].rank, rows[i].dims, init));
        loss = i == 0 ? sum : sluice_add(g, loss, sum);
    }
    sluice_set_loss(g, loss);
    sluice_status st = sl_graph_finish(g);
    if (st == SLUICE_OK) st = sl_graph_differentiate(g);
    if (st != SLUICE_OK) {
        sluice_graph_destroy(g);
        return st;
    }
    *out = g;
    return SLUICE_OK;
}

void fill_groups(sl_run_context *run)
{
    for (int i = 0; i < 2; i++) {
        float lr = i == 0 ? 0.01f : 0.03f;
        run->groups[i] = (sl_group_scalars){ .rate = lr,
                                             .weight_decay = 0.1f,
                                             .beta1 = 0.9f,
                                             .beta2 = 0.999f,
                                             .epsilon = 1e-8f,
                                             .momentum = 0.9f,
                                             .dampening = 0.25f,
                                             .one_minus_beta1 = 0.1f,
                                             .one_minus_beta2 = 0.001f,
                                             .bias2_sqrt = 0.0447f,
                                             .decay_factor = 1.0f - lr * 0.1f,
                                             .trust = 0.02f,
                                             .trust_min = 0.01f,
                                             .trust_max = 10.0f };
    }
    run->group_count = 2;
    run->loss_scale = 1.0;
}

static sluice_status open_buffers(trainer *t)
{
    for (int l = 0; l < t->graph->layer_count; l++) {
        size_t n = (size_t)t->graph->layers[l].element_count;
        if ((t->weights[l] = sl_alloc_array(n, 4, "test weights")) == NULL) return SLUICE_ERR_NO_MEMORY;
        if ((t->gradients[l] = sl_alloc_array(n, 4, "test gradients")) == NULL) return SLUICE_ERR_NO_MEMORY;
        for (int s = 0; s < sl_optim_slots(t->optim); s++)
            if ((t->slots[l][s] = sl_alloc_array(n, 4, "test state")) == NULL) return SLUICE_ERR_NO_MEMORY;
        t->leaf_first[l] = t->leaf_count;
        t->leaf_count += sl_ceil_div((int64_t)n, SL_CUT_ELEMENTS);
    }
    t->leaves = sl_alloc_array((size_t)t->leaf_count, sizeof *t->leaves, "test leaves");
    return t->leaves == NULL ? SLUICE_ERR_NO_MEMORY : SLUICE_OK;
}

sluice_status trainer_open(trainer *t, const sl_optim_options *options, sl_isa isa, int threads)
{
    memset(t, 0, sizeof *t);
    t->kernels = kernels_of(isa);
    t->run.loss_scale = 1.0;
    sluice_status st = small_graph(&t->graph);
    if (st == SLUICE_OK) st = sl_optim_create(t->graph, options, &t->optim);
    if (st == SLUICE_OK) st = sl_pool_create(threads, &t->pool);
    if (st == SLUICE_OK) st = open_buffers(t);
    if (st != SLUICE_OK) trainer_close(t);
    return st;
}

void trainer_close(trainer *t)
{
    for (int l = 0; l < MAX_LAYERS; l++) {
        sl_free(t->weights[l]);
        sl_free(t->gradients[l]);
        for (int s = 0; s < SL_MAX_STATE_SLOTS; s++) sl_free(t->slots[l][s]);
    }
    sl_free(t->leaves);
    sl_pool_destroy(t->pool);
    sl_optim_destroy(t->optim);
    sluice_graph_destroy(t->graph);
}

/* Binds the flat buffers of the node's layer as the plan would. */
static void run_node(trainer *t, const sl_node *node)
{
    int l = node->layer;
    sl_kernel_args a = { .attrs = &node->attrs, .context = &t->run, .pool = t->pool };
    int64_t n = l < 0 ? 0 : t->graph->layers[l].element_count;
    if (node->op == SL_OP_NORM_LEAVES) {
        a.in[0] = (sl_tensor){ t->gradients[l], NULL, n, SL_FORM_F32 };
        a.out[0] = (sl_tensor){ t->leaves + t->leaf_first[l], NULL, sl_ceil_div(n, SL_CUT_ELEMENTS), SL_FORM_F32 };
    } else if (node->op == SL_OP_NORM_FINISH) {
        a.in[0] = (sl_tensor){ t->leaves, NULL, t->leaf_count, SL_FORM_F32 };
        a.out[0] = (sl_tensor){ &t->norm, NULL, (int64_t)(sizeof t->norm / 4), SL_FORM_F32 };
    } else {
        a.in[0] = (sl_tensor){ t->gradients[l], NULL, n, SL_FORM_F32 };
        a.in[1] = (sl_tensor){ &t->norm, NULL, (int64_t)(sizeof t->norm / 4), SL_FORM_F32 };
        a.out[0] = (sl_tensor){ t->weights[l], NULL, n, SL_FORM_F32 };
        for (int s = 0; s < sl_optim_slots(t->optim); s++)
            a.out[2 + s] = (sl_tensor){ t->slots[l][s], NULL, n, SL_FORM_F32 };
    }
    t->kernels[node->op](&a);
}

void trainer_step(trainer *t, uint64_t step, double lr, double momentum)
{
    sl_optim_scalars(t->optim, step, lr, momentum, &t->run);
    for (int i = 0; i < t->graph->node_count; i++)
        if (t->graph->nodes[i].phase == SL_PHASE_UPDATE) run_node(t, &t->graph->nodes[i]);
}

void trainer_set_weights(trainer *t)
{
    for (int p = 0; p < t->graph->parameter_count; p++) {
        const sl_parameter *q = &t->graph->parameters[p];
        for (int64_t i = 0; i < q->count; i++)
            t->weights[q->layer][q->offset + i] = hashed((uint32_t)p + 1, (uint32_t)i) * 0.5f;
    }
}

void trainer_set_gradients(trainer *t, uint32_t step)
{
    for (int p = 0; p < t->graph->parameter_count; p++) {
        const sl_parameter *q = &t->graph->parameters[p];
        float scale = 1.0f / (float)(1 << step % 3);
        for (int64_t i = 0; i < q->count; i++)
            t->gradients[q->layer][q->offset + i] = hashed(1000 + 8 * step + (uint32_t)p, (uint32_t)i) * scale;
    }
}

/* Checkpoints of a real executor: what one plan saved, another plan with other homes for everything loads byte for
 * byte. */
#include "fixture.h"
#include "optim/optim.h"
#include "test.h"

/* A graph, its optimizer, a plan and an executor. */
typedef struct engine {
    sluice_graph *g;
    sl_optim *optim;
    sl_plan *plan;
    sl_comm *comm;
    sl_exec *x;
    sl_checkpoint_slots slots;
} engine;

static sluice_status build_graph(engine *e)
{
    SL_TRY(sluice_graph_create(&e->g));
    sluice_value x = sluice_input(e->g, "x", SLUICE_F32, 2, (int64_t[]){ 4, 30 });
    sluice_value target = sluice_input(e->g, "target", SLUICE_F32, 2, (int64_t[]){ 4, 7 });
    sluice_value frozen = sluice_parameter(e->g, "a.frozen", 1, (int64_t[]){ 30 }, (sluice_init){ SLUICE_INIT_ONE, 0 });
    sluice_freeze(e->g, frozen);
    sluice_layer(e->g, "one");
    x = sluice_relu(e->g, sluice_linear(e->g, sluice_multiply(e->g, x, frozen), 50, "z.first"));
    sluice_layer(e->g, "two");
    sluice_set_loss(e->g, sluice_mse(e->g, sluice_linear(e->g, x, 7, "b.second"), target));
    SL_TRY(sl_graph_finish(e->g));
    SL_TRY(sl_graph_differentiate(e->g));
    sl_optim_options o = { .clip = 1.0 };
    sluice_optimizer_init(&o.optimizer, SLUICE_ADAM);
    SL_TRY(sl_optim_create(e->g, &o, &e->optim));
    e->slots.count = sl_optim_slots(e->optim);
    for (int i = 0; i < e->slots.count; i++) e->slots.names[i] = sl_optim_slot_name(e->optim, i);
    return SLUICE_OK;
}

static sluice_status build(engine *e, sluice_place parameters, sluice_place state)
{
    sl_machine machine;
    memset(e, 0, sizeof *e);
    SL_TRY(build_graph(e));
    sl_machine_default(&machine);
    sl_plan_options p = {
        .budget = { 64 << 20, 64 << 20, 0 }, .rank_count = 1, .parameters = parameters, .state = state, .state_ratio = 1
    };
    p.accumulation = 1;
    p.prefetch = -1;
    p.training = true;
    p.state_slots = e->slots.count;
    p.update_bytes_per_element = sl_optim_bytes_per_element(e->optim);
    SL_TRY(sl_plan_create(e->g, &machine, &p, &e->plan));
    SL_TRY(sl_comm_self_open(&e->comm));
    sl_exec_options x = { .backend = &sl_cpu_backend,
                          .device = { .threads = 1, .isa = SL_ISA_SCALAR, .guard = true },
                          .comm = e->comm };
    return sl_exec_create(e->plan, &x, &e->x);
}

static void destroy(engine *e)
{
    sl_exec_destroy(e->x);
    if (e->comm != NULL) e->comm->ops->close(e->comm);
    sl_plan_destroy(e->plan);
    sl_optim_destroy(e->optim);
    sluice_graph_destroy(e->g);
}

/* Parameter `p`'s value (slot -1) or state at element i. */
static float value_of(int p, int slot, int64_t i)
{
    return (float)(p * 100 + slot * 10) + (float)(i % 251) / 256.0f;
}

static sluice_status fill(engine *e)
{
    static float values[4096];
    for (int p = 0; p < e->g->parameter_count; p++) {
        int64_t count = e->g->parameters[p].count;
        for (int slot = -1; slot < (e->g->parameters[p].trainable ? e->slots.count : 0); slot++) {
            for (int64_t i = 0; i < count; i++) values[i] = value_of(p, slot, i);
            if (slot < 0) SL_TRY(sl_exec_write_parameter(e->x, p, 0, count, values));
            if (slot >= 0) SL_TRY(sl_exec_write(e->x, sl_plan_state_span(e->plan, p, slot), values));
        }
    }
    return SLUICE_OK;
}

/* Elements that differ from what fill wrote. */
static int64_t differences(engine *e, bool with_state)
{
    static float values[4096];
    int64_t wrong = 0;
    for (int p = 0; p < e->g->parameter_count; p++) {
        for (int slot = -1; slot < (with_state && e->g->parameters[p].trainable ? e->slots.count : 0); slot++) {
            sl_span span = slot < 0 ? sl_plan_parameter_span(e->plan, p) : sl_plan_state_span(e->plan, p, slot);
            if (sl_exec_read(e->x, span, values) != SLUICE_OK) return -1;
            for (int64_t i = 0; i < e->g->parameters[p].count; i++) wrong += values[i] != value_of(p, slot, i);
        }
    }
    return wrong;
}

TEST(a_checkpoint_does_not_depend_on_where_the_plan_kept_things)
{
    static const sluice_place places[] = { SLUICE_PLACE_DEVICE, SLUICE_PLACE_HOST };
    char folder[4096], path[4096], weights[2][65], state[2][65];
    sl_checkpoint_meta meta = fixture_meta(9), back;
    engine a, b;
    snprintf(folder, sizeof folder, "%.4000s/run", test_tmpdir());
    REQUIRE_OK(build(&a, SLUICE_PLACE_DEVICE, SLUICE_PLACE_DEVICE));
    REQUIRE_OK(fill(&a));
    REQUIRE_OK(sl_checkpoint_save(a.x, &a.slots, &meta, folder, 1, path));
    REQUIRE_OK(sl_state_hash(a.x, &a.slots, 0.5, weights[0], state[0]));
    for (int i = 0; i < 4; i++) {
        REQUIRE_OK(build(&b, places[i / 2], places[i % 2]));
        CHECK(differences(&b, true) != 0);
        REQUIRE_OK(sl_checkpoint_load(b.x, &b.slots, folder, meta.model_sha256, NULL, &back));
        CHECK(memcmp(&meta, &back, sizeof meta) == 0);
        CHECK_EQ(differences(&b, true), 0);
        REQUIRE_OK(sl_state_hash(b.x, &b.slots, 0.5, weights[1], state[1]));
        CHECK_STR(weights[1], weights[0]);
        CHECK_STR(state[1], state[0]);
        destroy(&b);
    }
    destroy(&a);
}

TEST(weights_load_from_a_checkpoint_and_from_safetensors)
{
    char folder[4096], file[4200], path[4096];
    sl_checkpoint_meta meta = fixture_meta(9);
    uint64_t step;
    engine a, b;
    snprintf(folder, sizeof folder, "%.4000s/run", test_tmpdir());
    snprintf(file, sizeof file, "%s/w.safetensors", folder);
    REQUIRE_OK(build(&a, SLUICE_PLACE_DEVICE, SLUICE_PLACE_DEVICE));
    REQUIRE_OK(sl_checkpoint_load_weights(a.x, folder, &step));
    CHECK_EQ(step, 0);
    REQUIRE_OK(fill(&a));
    REQUIRE_OK(sl_checkpoint_save(a.x, &a.slots, &meta, folder, 1, path));
    REQUIRE_OK(sl_weights_save(a.x, file));
    REQUIRE_OK(build(&b, SLUICE_PLACE_HOST, SLUICE_PLACE_HOST));
    REQUIRE_OK(sl_checkpoint_load_weights(b.x, folder, &step));
    CHECK_EQ(step, 9);
    CHECK_EQ(differences(&b, false), 0);
    destroy(&b);
    REQUIRE_OK(build(&b, SLUICE_PLACE_HOST, SLUICE_PLACE_DEVICE));
    REQUIRE_OK(sl_weights_load(b.x, file));
    CHECK_EQ(differences(&b, false), 0);
    sl_checkpoint_slots other = { 1, { "momentum" } };
    CHECK_EQ(sl_checkpoint_load(b.x, &other, folder, meta.model_sha256, NULL, &meta), SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), "tensor \"b.second.bias\" (exp_avg) [7] is in the checkpoint but not in this run");
    destroy(&b);
    destroy(&a);
}

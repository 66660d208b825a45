/* layer_place_test.c: the buffers of every layer are those that the table above sl_layer_place (plan/plan.h) says. */
#include "model/model.h"
#include "plan/passes.h"
#include "support/planned.h"
#include "test.h"

/* A small GPT-2, or with `lora` one whose matrices are frozen beside trained adapters. */
static sluice_status make_graph(planned *fx, bool lora)
{
    sl_model_options gpt = { .type = "gpt2",
                             .batch = 1,
                             .layers = 2,
                             .heads = 2,
                             .width = 48,
                             .context = 8,
                             .vocabulary = 256,
                             .norm_epsilon = 1e-5,
                             .bias = true };
    sl_model_info info;
    static const char *const targets[] = { "*attn*" };
    if (lora) gpt.lora.rank = 4, gpt.lora.targets = targets, gpt.lora.target_count = 1;
    SL_TRY(sluice_graph_create(&fx->graph));
    SL_TRY(sl_model_build(fx->graph, &gpt, &info));
    return plan_prepare(fx);
}

/* What a row of the table says of a buffer: none, the same as another, or one of its own. */
typedef struct expected {
    int is; /* -1: none; SELF: a buffer; otherwise the buffer it is */
    sl_tier tier;
    sl_form form;
    bool own, stays;
} expected;

enum { NONE = -1, SELF = -2 };

typedef struct layer_case {
    const sl_plan *p;
    const sl_layer_place *place;
    int layer;
    bool trained, several;
    int stage; /* 0 at one rank */
    int micro_batches;
    sl_form precision, wire;
    sl_tier P, S, G;
} layer_case;

static void check_buffer(const layer_case *c, const char *name, int buffer, expected e)
{
    const sl_plan *p = c->p;
    if (e.is != SELF) {
        if (buffer != e.is) test_fail(__FILE__, __LINE__, "%s of layer %d is %d, not %d", name, c->layer, buffer, e.is);
        return;
    }
    if (buffer < 0) {
        test_fail(__FILE__, __LINE__, "layer %d has no %s", c->layer, name);
        return;
    }
    const sl_buffer *b = &p->buffers[buffer];
    bool own = b->shard && c->several;
    if (b->layer != c->layer || b->tier != e.tier || b->form != e.form || own != e.own || b->permanent != e.stays)
        test_fail(__FILE__, __LINE__,
                  "%s of layer %d (N %d, stage %d, M %d, P %d, S %d, G %d): tier %d form %d own %d stays %d, "
                  "not %d %d %d %d",
                  name, c->layer, p->options.rank_count, c->stage, c->micro_batches, (int)c->P, (int)c->S, (int)c->G,
                  (int)b->tier, (int)b->form, own, b->permanent, (int)e.tier, (int)e.form, e.own, e.stays);
}

/* ---- the rows, in the order of the table ---- */

static expected home_row(const layer_case *c)
{
    return (expected){ SELF, c->P, c->precision, c->stage == 3, true };
}

static expected working_row(const layer_case *c)
{
    return (expected){ .is = c->P == SL_TIER_DEVICE && c->stage < 3 ? c->place->home : NONE };
}

static expected master_row(const layer_case *c)
{
    bool on_device = c->S == SL_TIER_DEVICE && c->P == SL_TIER_DEVICE;
    if (c->trained && c->p->options.delayed)
        return (expected){ SELF, on_device ? SL_TIER_DEVICE : SL_TIER_HOST, c->precision, c->stage >= 1, true };
    if (c->trained && c->S == SL_TIER_HOST && c->P == SL_TIER_DEVICE && c->precision != SL_FORM_F16)
        return (expected){ SELF, SL_TIER_HOST, c->precision, c->stage >= 1, true };
    return (expected){ .is = c->place->home };
}

static expected remainder_row(const layer_case *c)
{
    if (!c->trained || c->precision == SL_FORM_F32) return (expected){ .is = NONE };
    sl_form form = c->precision == SL_FORM_BF16 ? SL_FORM_REMAINDER : SL_FORM_F32;
    return (expected){ SELF, c->S, form, c->stage >= 1, true };
}

static expected slot_row(const layer_case *c)
{
    if (!c->trained) return (expected){ .is = NONE };
    return (expected){ SELF, c->S, c->p->options.state_form, c->stage >= 1, true };
}

static bool contribution_stays(const layer_case *c)
{
    return c->several && c->stage <= 1 && c->S == SL_TIER_DEVICE;
}

static expected contribution_row(const layer_case *c)
{
    if (!c->trained) return (expected){ .is = NONE };
    return (expected){ SELF, SL_TIER_DEVICE, c->wire, false, contribution_stays(c) };
}

static expected accumulator_row(const layer_case *c)
{
    if (!c->trained) return (expected){ .is = NONE };
    if (c->micro_batches > 1) return (expected){ SELF, c->G, SL_FORM_F32, c->several, true };
    if (c->several && !contribution_stays(c)) return (expected){ SELF, SL_TIER_DEVICE, c->wire, true, false };
    return (expected){ .is = NONE };
}

static expected gradient_row(const layer_case *c)
{
    const sl_layer_place *place = c->place;
    bool many = c->micro_batches > 1;
    if (!c->trained) return (expected){ .is = NONE };
    if (c->S == SL_TIER_HOST && many && c->G == SL_TIER_HOST && !(c->several && c->stage == 0))
        return (expected){ .is = place->accumulator };
    if (c->S == SL_TIER_HOST) return (expected){ SELF, SL_TIER_HOST, c->wire, c->stage >= 1, false };
    if (c->stage == 0 && (c->several || !many)) return (expected){ .is = place->contribution };
    if (c->stage == 1 && c->several && !many) return (expected){ .is = place->contribution };
    return (expected){ .is = place->accumulator };
}

static expected snapshot_row(const layer_case *c, int of)
{
    if (!c->p->options.snapshot || of < 0) return (expected){ .is = NONE };
    return (expected){ SELF, SL_TIER_HOST, c->p->buffers[of].form, c->several, true };
}

static void check_layer(const layer_case *c)
{
    const sl_layer_place *place = c->place;
    bool in_remainder = c->precision == SL_FORM_F16 && c->trained;
    check_buffer(c, "home", place->home, home_row(c));
    check_buffer(c, "working", place->working, working_row(c));
    check_buffer(c, "master", place->master, master_row(c));
    check_buffer(c, "remainder", place->remainder, remainder_row(c));
    check_buffer(c, "contribution", place->contribution, contribution_row(c));
    check_buffer(c, "accumulator", place->accumulator, accumulator_row(c));
    check_buffer(c, "gradient", place->gradient, gradient_row(c));
    check_buffer(c, "snapshot of the master", place->snapshots[0], snapshot_row(c, in_remainder ? -1 : place->master));
    check_buffer(c, "snapshot of the remainder", place->snapshots[1], snapshot_row(c, place->remainder));
    check_buffer(c, "snapshot of what steps read", place->snapshots[SL_VISIBLE_TENSOR],
                 snapshot_row(c, c->trained && c->p->options.delayed ? place->home : -1));
    for (int k = 0; k < c->p->options.state_slots; k++) {
        check_buffer(c, "slot", place->slots[k], slot_row(c));
        check_buffer(c, "snapshot of a slot", place->snapshots[2 + k], snapshot_row(c, place->slots[k]));
    }
}

/* Counts what was met, so that no row goes untested. */
typedef struct rows_met {
    int trained, frozen, sums_on_host;
} rows_met;

static void check_plan(const planned *fx, rows_met *met)
{
    const sl_plan *p = fx->plan;
    for (int i = 0; i < p->graph->layer_count; i++) {
        const sl_layer_place *place = &p->layers[i];
        bool several = p->options.rank_count > 1;
        layer_case c = { p,
                         place,
                         i,
                         p->graph->layers[i].trainable,
                         several,
                         several ? p->options.stage : 0,
                         p->options.accumulation,
                         (sl_form)p->graph->precision,
                         (sl_form)p->graph->wire,
                         place->parameters,
                         place->state,
                         place->gradients };
        if (p->graph->layers[i].element_count == 0) {
            CHECK_EQ(place->home, -1);
            CHECK_EQ(place->master, -1);
            continue;
        }
        check_layer(&c);
        met->trained += c.trained;
        met->frozen += !c.trained;
        met->sums_on_host += c.micro_batches > 1 && c.G == SL_TIER_HOST;
    }
}

/* All placements of parameters and state, with sums of gradients where the search leaves them and, where the device is
 * too small for that, on the host. */
static void check_placements(planned *fx, rows_met *met)
{
    static const sluice_place places[] = { SLUICE_PLACE_DEVICE, SLUICE_PLACE_HOST };
    for (int k = 0; k < 4; k++) {
        fx->options.parameters = places[k % 2];
        fx->options.state = places[k / 2];
        fx->options.budget[SL_TIER_DEVICE] = (uint64_t)1 << 40;
        REQUIRE_OK(sl_plan_create(fx->graph, &fx->machine, &fx->options, &fx->plan));
        check_plan(fx, met);
        uint64_t peak = fx->plan->totals.peak[SL_TIER_DEVICE];
        sl_plan_destroy(fx->plan);
        fx->plan = NULL;
        fx->options.budget[SL_TIER_DEVICE] = peak - peak / 8;
        if (fx->options.state != SLUICE_PLACE_HOST || fx->options.accumulation == 1) continue;
        if (sl_plan_create(fx->graph, &fx->machine, &fx->options, &fx->plan) == SLUICE_OK) check_plan(fx, met);
        sl_plan_destroy(fx->plan);
        fx->plan = NULL;
    }
}

TEST(layers_have_the_buffers_that_the_table_of_places_says)
{
    static const sluice_dtype types[] = { SLUICE_F32, SLUICE_BF16, SLUICE_F16 };
    rows_met met = { 0 };
    for (int k = 0; k < 3 * 2 * 2; k++) {
        planned fx = { 0 };
        plan_options_default(&fx.options);
        fx.precision = fx.wire = types[k % 3];
        fx.options.snapshot = k / 3 % 2 == 0;
        REQUIRE_OK(make_graph(&fx, k / 6 == 1));
        for (int n = 0; n < 2 * 4 * 3; n++) {
            fx.options.rank_count = 1 + n % 2;
            fx.options.stage = n / 2 % 4;
            fx.options.delayed = n >= 16;
            fx.options.accumulation = fx.options.delayed ? 1 + n / 2 % 2 : 1 + n / 8;
            check_placements(&fx, &met);
        }
        planned_free(&fx);
    }
    CHECK(met.trained > 1000 && met.frozen > 100 && met.sums_on_host > 100); /* or some rows were not met */
}

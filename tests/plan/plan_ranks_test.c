/* plan_ranks_test.c: plans for several ranks: who owns what, what each stage keeps, and what goes over the wire. */
#include "core/bytes.h"
#include "model/model.h"
#include "plan/passes.h"
#include "support/planned.h"
#include "test.h"

/* A transformer whose blocks are large enough to be cut, or one lopsided network: 98 % of it in one matrix. */
static sluice_status make_graph(planned *fx, bool lopsided)
{
    sl_model_options gpt = { .type = "gpt2",
                             .batch = 1,
                             .layers = 3,
                             .heads = 2,
                             .width = 48,
                             .context = 8,
                             .vocabulary = 256,
                             .norm_epsilon = 1e-5,
                             .bias = true };
    sl_model_options mlp = { .type = "mlp",
                             .batch = 1,
                             .features = 4608,
                             .outputs = 10,
                             .hidden = { 1024 },
                             .hidden_count = 1,
                             .activation = "relu",
                             .loss = "cross_entropy",
                             .bias = true };
    sl_model_info info;
    SL_TRY(sluice_graph_create(&fx->graph));
    SL_TRY(sl_model_build(fx->graph, lopsided ? &mlp : &gpt, &info));
    return plan_prepare(fx);
}

static sluice_status plan_rank(planned *fx, int rank)
{
    sl_plan_destroy(fx->plan);
    fx->plan = NULL;
    fx->options.rank = rank;
    return sl_plan_create(fx->graph, &fx->machine, &fx->options, &fx->plan);
}

static uint64_t owned(const sl_plan *p, int rank)
{
    uint64_t n = 0;
    for (int i = 0; i < p->graph->layer_count; i++) n += (uint64_t)sl_shard_elements(&p->layers[i].shards, rank);
    return n;
}

/* ---- partition ---- */

static const sluice_partition rules[] = { SLUICE_PARTITION_LAYER, SLUICE_PARTITION_BLOCK, SLUICE_PARTITION_OWNER,
                                          SLUICE_PARTITION_WEIGHTED };
enum { RULES = sizeof rules / sizeof rules[0] };

/* Walks all ranges of all ranks of a layer in order of their first element. */
static void check_layer_cover(const sl_shards *s)
{
    for (int64_t at = 0; at < s->elements;) {
        sl_range found = { 0, 0 };
        for (int r = 0; r < s->rank_count; r++) {
            int64_t i = sl_shard_range_at(s, r, at);
            if (i == sl_shard_range_count(s, r)) continue;
            sl_range range = sl_shard_range(s, r, i);
            CHECK(range.first >= at || i > 0 || range.first + range.count > at);
            if (range.first == at) {
                CHECK_EQ(found.count, 0);
                found = range;
            }
            CHECK_EQ(range.first % SL_CUT_ELEMENTS, 0);
        }
        REQUIRE(found.count > 0);
        at += found.count;
    }
}

TEST(every_element_has_exactly_one_owner_and_cuts_are_at_leaves)
{
    const double weights[4] = { 2, 0, 5, 1 };
    for (int k = 0; k < RULES; k++)
        for (int ranks = 1; ranks <= 4; ranks++) {
            planned fx = { 0 };
            plan_options_default(&fx.options);
            fx.options.rank_count = ranks;
            fx.options.stage = 3;
            fx.options.partition = rules[k];
            fx.options.partition_block = 1024;
            fx.options.partition_weights = weights;
            REQUIRE_OK(make_graph(&fx, false));
            REQUIRE_OK(plan_rank(&fx, ranks - 1));
            uint64_t sum = 0;
            for (int r = 0; r < ranks; r++) sum += owned(fx.plan, r);
            CHECK_EQ(sum, sl_graph_parameter_elements(fx.graph));
            for (int i = 0; i < fx.graph->layer_count; i++) check_layer_cover(&fx.plan->layers[i].shards);
            planned_free(&fx);
        }
}

TEST(a_lopsided_model_is_even_by_layer_and_block_and_not_by_owner)
{
    for (int k = 0; k < 3; k++)
        for (int ranks = 2; ranks <= 4; ranks++) {
            planned fx = { 0 };
            plan_options_default(&fx.options);
            fx.options.rank_count = ranks;
            fx.options.stage = 2;
            fx.options.partition = rules[k];
            REQUIRE_OK(make_graph(&fx, true));
            REQUIRE_OK(plan_rank(&fx, 0));
            double even = (double)sl_graph_parameter_elements(fx.graph) / ranks, worst = 0;
            for (int r = 0; r < ranks; r++) worst = fmax(worst, fabs((double)owned(fx.plan, r) - even));
            if (rules[k] == SLUICE_PARTITION_OWNER)
                CHECK(worst > even / 4);
            else
                CHECK(worst <= SL_CUT_ELEMENTS);
            planned_free(&fx);
        }
}

TEST(weights_share_a_tensor_out_in_their_proportion)
{
    const double weights[2] = { 2, 8 };
    planned fx = { 0 };
    plan_options_default(&fx.options);
    fx.options.rank_count = 2;
    fx.options.stage = 3;
    fx.options.partition = SLUICE_PARTITION_WEIGHTED;
    fx.options.partition_weights = weights;
    REQUIRE_OK(make_graph(&fx, true));
    REQUIRE_OK(plan_rank(&fx, 0));
    double share = (double)owned(fx.plan, 0) / (double)sl_graph_parameter_elements(fx.graph);
    CHECK_NEAR(share, 0.2, 0.001);
    const double nothing[2] = { 0, 0 }, wrong[2] = { 1, -1 };
    fx.options.partition_weights = nothing;
    CHECK_EQ(plan_rank(&fx, 0), SLUICE_ERR_USAGE);
    fx.options.partition_weights = wrong;
    CHECK_EQ(plan_rank(&fx, 0), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "rank 1");
    planned_free(&fx);
}

TEST(runs_of_a_parameter_join_to_the_whole_parameter)
{
    for (int k = 0; k < RULES; k++) {
        planned fx = { 0 };
        plan_options_default(&fx.options);
        fx.options.rank_count = 3;
        fx.options.partition = rules[k];
        fx.options.partition_block = 2048;
        REQUIRE_OK(make_graph(&fx, false));
        REQUIRE_OK(plan_rank(&fx, 1));
        for (int q = 0; q < fx.graph->parameter_count; q++) {
            int64_t sum = 0;
            for (int r = 0; r < 3; r++)
                for (int64_t i = 0; i < sl_plan_owned_count(fx.plan, q, r); i++) {
                    sl_range run = sl_plan_owned(fx.plan, q, r, i);
                    CHECK(run.count > 0 && run.first >= 0 && run.first + run.count <= fx.graph->parameters[q].count);
                    sum += run.count;
                }
            CHECK_EQ(sum, fx.graph->parameters[q].count);
        }
        planned_free(&fx);
    }
}

/* ---- stages: bytes that Adam keeps for a parameter ---- */

typedef struct kept {
    uint64_t parameters, gradients, optimizer;
} kept;

static const struct widths {
    sluice_dtype precision;
    uint64_t weight, gradient, state; /* state: what the weight lacks of its fp32 master, and 8 of moments */
} widths[] = {
    { SLUICE_F32, 4, 4, 8 },
    { SLUICE_BF16, 2, 2, 10 },
    { SLUICE_F16, 2, 2, 12 },
};

/* Sums over several micro-batches are fp32; that of a single one takes the gradient's place. */
static kept formula(const struct widths *w, int ranks, int stage, int micro, uint64_t all, uint64_t shard)
{
    uint64_t whole = w->gradient * all, sums = micro > 1 ? 4 * shard : 0;
    if (ranks == 1) return (kept){ w->weight * all, micro > 1 ? sums : whole, w->state * all };
    return (kept){ w->weight * (stage == 3 ? shard : all),
                   stage <= 1  ? whole + sums
                   : micro > 1 ? sums
                               : w->gradient * shard,
                   w->state * (stage >= 1 ? shard : all) };
}

/* How often stage 3 gathers a layer for one micro-batch: for every level that uses it, forward and backward, except
 * where the level before used it too or backward begins with what forward ended with. */
static uint64_t gathers_of(const sl_plan *p, int layer)
{
    uint64_t n = 0;
    for (int k = SL_SEGMENT_FORWARD; k <= SL_SEGMENT_BACKWARD; k++)
        for (int i = 0; i < p->segments[k].step_count; i++) {
            const sl_step *s = &p->steps[p->segments[k].first_step + i];
            for (int part = 0; s->kind == SL_STEP_GATHER && part < s->output_count; part++)
                n += p->parts[s->first_part + part] == layer;
        }
    return n;
}

static void check_stage(planned *fx, const struct widths *w, int rank)
{
    const sl_plan *p = fx->plan;
    uint64_t all = (uint64_t)sl_graph_parameter_elements(fx->graph), shard = owned(p, rank);
    uint64_t others = (uint64_t)fx->options.rank_count - 1, micro = (uint64_t)fx->options.accumulation;
    kept k = formula(w, fx->options.rank_count, fx->options.stage, (int)micro, all, shard);
    CHECK_EQ(p->totals.state_parameters, k.parameters);
    CHECK_EQ(p->totals.state_gradients, k.gradients);
    CHECK_EQ(p->totals.state_optimizer, k.optimizer);
    CHECK_EQ(p->totals.comm_reduce, others > 0 ? micro * w->gradient * (all - shard) : 0);
    if (fx->options.stage < 3 || others == 0) {
        /* stage 0 gathers the summed gradients, stages 1 and 2 the new weights */
        CHECK_EQ(p->totals.comm_gather, (fx->options.stage == 0 ? w->gradient : w->weight) * shard * others);
        return;
    }
    uint64_t gathered = 0;
    for (int i = 0; i < fx->graph->layer_count; i++)
        gathered += gathers_of(p, i) * w->weight * (uint64_t)sl_shard_elements(&p->layers[i].shards, rank) * others;
    CHECK_EQ(p->totals.comm_gather, micro * gathered);
}

TEST(each_stage_keeps_and_sends_what_its_formula_says_on_every_rank)
{
    for (int i = 0; i < 3 * 4 * 4; i++) /* precisions, ranks, stages */
        for (int k = 0; k < RULES; k++)
            for (int micro = 1; micro <= 2; micro++) {
                const struct widths *w = &widths[i % 3];
                int ranks = 1 + i / 3 % 4, stage = i / 12;
                planned fx = { .precision = w->precision, .wire = w->precision };
                plan_options_default(&fx.options);
                fx.options.rank_count = ranks;
                fx.options.stage = stage;
                fx.options.partition = rules[k];
                fx.options.partition_block = 4096;
                fx.options.accumulation = micro;
                fx.options.state = fx.options.parameters = SLUICE_PLACE_DEVICE;
                REQUIRE_OK(make_graph(&fx, false));
                uint64_t fingerprint = 0;
                for (int r = 0; r < ranks; r++) {
                    REQUIRE_OK(plan_rank(&fx, r));
                    check_stage(&fx, w, r);
                    if (r > 0) CHECK(sl_plan_fingerprint(fx.plan) == fingerprint);
                    fingerprint = sl_plan_fingerprint(fx.plan);
                }
                planned_free(&fx);
            }
}

/* Memory of 7.5 billion parameters on 64 ranks in fp16 with Adam, in GB, as in the ZeRO paper. */
TEST(the_stages_of_7_5_billion_parameters_keep_what_the_paper_says)
{
    static const double paper[] = { 120, 31.4, 16.6, 1.88 };
    sl_model_options gpt = { .type = "gpt2",
                             .batch = 1,
                             .layers = 36,
                             .heads = 32,
                             .width = 4096,
                             .context = 1024,
                             .vocabulary = 61200,
                             .norm_epsilon = 1e-5,
                             .bias = true };
    sl_model_info info;
    planned fx = { .precision = SLUICE_F16, .wire = SLUICE_F16 };
    plan_options_default(&fx.options);
    fx.options.rank_count = 64;
    fx.options.state = fx.options.parameters = SLUICE_PLACE_DEVICE;
    REQUIRE_OK(sluice_graph_create(&fx.graph));
    REQUIRE_OK(sl_model_build(fx.graph, &gpt, &info));
    REQUIRE_OK(plan_prepare(&fx));
    CHECK_NEAR((double)sl_graph_parameter_elements(fx.graph), 7.5e9, 0.01e9);
    for (fx.options.stage = 0; fx.options.stage <= 3; fx.options.stage++) {
        REQUIRE_OK(plan_rank(&fx, 0));
        const sl_plan_totals *t = &fx.plan->totals;
        double bytes = (double)(t->state_parameters + t->state_gradients + t->state_optimizer);
        CHECK_NEAR(bytes / 1e9, paper[fx.options.stage], 0.005 * paper[fx.options.stage]);
    }
    planned_free(&fx);
}

static uint64_t norm_bytes(const sl_plan *p)
{
    uint64_t bytes = 0;
    for (int i = 0; i < p->buffer_count; i++)
        if (p->buffers[i].kind == SL_BUFFER_NORM) bytes += p->buffers[i].bytes;
    return bytes;
}

/* A trillion parameters have 8 GB of norm leaves: a rank has its own and the sums that all of them exchange. */
TEST(a_rank_of_many_keeps_no_norm_leaves_of_others)
{
    sl_model_options gpt = { .type = "gpt2",
                             .batch = 1,
                             .layers = 130,
                             .heads = 800,
                             .width = 25600,
                             .context = 2048,
                             .vocabulary = 256,
                             .norm_epsilon = 1e-5,
                             .bias = true };
    static const sluice_partition one_run[] = { SLUICE_PARTITION_LAYER, SLUICE_PARTITION_OWNER,
                                                SLUICE_PARTITION_WEIGHTED };
    sl_model_info info;
    planned fx = { .precision = SLUICE_BF16, .wire = SLUICE_BF16 };
    plan_options_default(&fx.options);
    fx.options.rank_count = 1024;
    REQUIRE_OK(sluice_graph_create(&fx.graph));
    REQUIRE_OK(sl_model_build(fx.graph, &gpt, &info));
    REQUIRE_OK(plan_prepare(&fx));
    for (int k = 0; k < 3; k++) {
        fx.options.stage = k + 1;
        fx.options.partition = one_run[k];
        fx.options.budget[SL_TIER_DEVICE] = fx.options.budget[SL_TIER_HOST] = (uint64_t)1 << 50;
        REQUIRE_OK(plan_rank(&fx, 511));
        uint64_t all = (uint64_t)fx.plan->leaf_count * sizeof(double), held = norm_bytes(fx.plan);
        CHECK_THAT(all > UINT64_C(7) << 30 && held < all / 100, "%llu of %llu bytes at stage %d",
                   (unsigned long long)held, (unsigned long long)all, fx.options.stage);
        CHECK(fx.plan->totals.comm_norm < all / 100 * 1023);
    }
    planned_free(&fx);
}

/* An untied layer is gathered for forward and for backward; the last one stays in between; a tied one is gathered for
 * each use. */
TEST(stage_3_gathers_twice_and_the_last_layer_once)
{
    planned fx = { 0 };
    plan_options_default(&fx.options);
    fx.options.rank_count = 2;
    fx.options.stage = 3;
    REQUIRE_OK(make_graph(&fx, false));
    REQUIRE_OK(plan_rank(&fx, 0));
    int last = -1, tied = 0;
    for (int i = 0; i < fx.graph->layer_count; i++)
        if (fx.graph->layers[i].node_count > 0 && fx.graph->layers[i].element_count > 0) last = i;
    for (int i = 0; i < fx.graph->layer_count; i++) {
        if (fx.graph->layers[i].element_count == 0) continue;
        bool is_tied = fx.graph->layers[i].node_count == 0;
        tied += is_tied;
        CHECK_EQ(gathers_of(fx.plan, i), is_tied ? 3 : i == last ? 1 : 2);
    }
    CHECK_EQ(tied, 1);
    uint64_t dropped = fx.plan->totals.comm_gather;
    fx.options.keep_gathered = true;
    REQUIRE_OK(plan_rank(&fx, 0));
    CHECK(fx.plan->totals.comm_gather < dropped);
    for (int i = 0; i < fx.graph->layer_count; i++)
        if (fx.graph->layers[i].element_count > 0) CHECK_EQ(gathers_of(fx.plan, i), 1);
    planned_free(&fx);
}

/* Host link per owned parameter: the gradient out once a step while the sums fit on the device, the weight in once;
 * with parameters on the host also in for every gather. */
TEST(offload_moves_only_what_a_rank_owns)
{
    for (int stage = 1; stage <= 3; stage++) {
        planned fx = { 0 };
        plan_options_default(&fx.options);
        fx.options.rank_count = 2;
        fx.options.stage = stage;
        fx.options.accumulation = 2;
        fx.options.state = SLUICE_PLACE_HOST;
        fx.options.parameters = SLUICE_PLACE_DEVICE;
        REQUIRE_OK(make_graph(&fx, false));
        REQUIRE_OK(plan_rank(&fx, 1));
        uint64_t shard = owned(fx.plan, 1);
        CHECK_EQ(fx.plan->totals.moved[SL_LINK_TO_HOST], 4 * shard + sizeof(sl_norm_result));
        CHECK_EQ(fx.plan->totals.moved[SL_LINK_TO_DEVICE], 4 * shard);
        if (stage == 3) {
            fx.options.parameters = SLUICE_PLACE_HOST;
            REQUIRE_OK(plan_rank(&fx, 1));
            uint64_t in = 0;
            for (int i = 0; i < fx.graph->layer_count; i++)
                in += gathers_of(fx.plan, i) * 4 * (uint64_t)sl_shard_elements(&fx.plan->layers[i].shards, 1);
            CHECK_EQ(fx.plan->totals.moved[SL_LINK_TO_DEVICE], 2 * in);
            CHECK_EQ(fx.plan->totals.state_parameters, 0);
            CHECK_EQ(fx.plan->totals.moved[SL_LINK_TO_HOST], 4 * shard + sizeof(sl_norm_result));
        }
        planned_free(&fx);
    }
}

TEST(sums_move_to_the_host_when_the_device_is_too_small_for_them)
{
    planned fx = { 0 };
    plan_options_default(&fx.options);
    fx.options.rank_count = 2;
    fx.options.stage = 2;
    fx.options.accumulation = 2;
    fx.options.evaluation = false;
    fx.options.activations = SLUICE_ACTIVATIONS_KEEP;
    fx.options.state = SLUICE_PLACE_HOST;
    fx.options.parameters = SLUICE_PLACE_DEVICE;
    REQUIRE_OK(make_graph(&fx, false));
    REQUIRE_OK(plan_rank(&fx, 0));
    uint64_t roomy = fx.plan->totals.peak[SL_TIER_DEVICE], moved = fx.plan->totals.moved[SL_LINK_TO_HOST];
    CHECK(fx.plan->totals.state_gradients > 0);
    fx.options.budget[SL_TIER_DEVICE] = roomy - 8192;
    REQUIRE_OK(plan_rank(&fx, 0));
    CHECK(fx.plan->totals.peak[SL_TIER_DEVICE] <= roomy - 8192);
    CHECK(fx.plan->totals.moved[SL_LINK_TO_HOST] > moved);
    planned_free(&fx);
}

TEST(small_layers_share_a_collective_up_to_the_bucket)
{
    uint64_t counts[2] = { 0, 0 };
    for (int k = 0; k < 2; k++) {
        planned fx = { 0 };
        plan_options_default(&fx.options);
        fx.options.rank_count = 2;
        fx.options.stage = 2;
        fx.options.bucket_bytes = k == 0 ? 1 : (uint64_t)1 << 40;
        REQUIRE_OK(make_graph(&fx, false));
        REQUIRE_OK(plan_rank(&fx, 0));
        for (int i = 0; i < fx.plan->step_count; i++) counts[k] += fx.plan->steps[i].kind == SL_STEP_REDUCE_SCATTER;
        planned_free(&fx);
    }
    CHECK(counts[0] > 2);
    CHECK_EQ(counts[1], 1);
}

TEST(lamb_is_refused_where_a_partition_would_cut_its_parameters)
{
    planned fx = { 0 };
    plan_options_default(&fx.options);
    fx.options.rank_count = 2;
    fx.options.stage = 1;
    REQUIRE_OK(make_graph(&fx, true));
    for (int n = 0; n < fx.graph->node_count; n++)
        if (fx.graph->nodes[n].op == SL_OP_UPDATE)
            ((sl_update_rule *)fx.graph->nodes[n].attrs.update)->kind = SL_UPDATE_lamb;
    CHECK_EQ(plan_rank(&fx, 0), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "owner");
    fx.options.partition = SLUICE_PARTITION_OWNER;
    CHECK_EQ(plan_rank(&fx, 0), SLUICE_OK);
    planned_free(&fx);
}

/* Hundreds of ranks are only arithmetic. */
TEST(a_plan_for_1024_ranks_is_made_without_any)
{
    planned fx = { 0 };
    plan_options_default(&fx.options);
    fx.options.rank_count = 1024;
    fx.options.stage = 3;
    REQUIRE_OK(make_graph(&fx, true));
    REQUIRE_OK(plan_rank(&fx, 1023));
    CHECK(fx.plan->totals.state_optimizer <= 8 * ((uint64_t)sl_graph_parameter_elements(fx.graph) / 1024 + 2048));
    planned_free(&fx);
}

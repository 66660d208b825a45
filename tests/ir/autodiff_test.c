/* The structure autodiff gives: which nodes, in which order and layer, and where gradients are added in place. */
#include "core/alloc.h"
#include "ir/graph.h"
#include "test.h"

static const sluice_init zero = { SLUICE_INIT_ZERO, 0 };

static sluice_value input(sluice_graph *g, const char *name, int64_t rows, int64_t columns)
{
    return sluice_input(g, name, SLUICE_F32, 2, (int64_t[]){ rows, columns });
}

static sluice_value vector(sluice_graph *g, const char *name, int64_t n)
{
    return sluice_parameter(g, name, 1, &n, zero);
}

/* The backward ops as "seed mse_grad ...", "+" before those that add in place. */
static const char *backward_text(const sluice_graph *g, char *buf, size_t bytes)
{
    size_t at = 0;
    buf[0] = '\0';
    for (int n = g->forward_count; n < g->forward_count + g->backward_count && at < bytes; n++)
        at += (size_t)snprintf(buf + at, bytes - at, "%s%s%s", n == g->forward_count ? "" : " ",
                               g->nodes[n].attrs.accumulate ? "+" : "", sl_ops[g->nodes[n].op].name);
    return buf;
}

TEST(mlp_backward_has_one_weight_and_one_input_gradient_per_layer)
{
    sluice_graph *g;
    REQUIRE_OK(sluice_graph_create(&g));
    sluice_value x = input(g, "x", 2, 4), t = input(g, "t", 2, 3);
    sluice_layer(g, "one");
    x = sluice_relu(g, sluice_linear(g, x, 5, "a"));
    sluice_layer(g, "two");
    sluice_set_loss(g, sluice_mse(g, sluice_linear(g, x, 3, "b"), t));
    REQUIRE_OK(sl_graph_differentiate(g));
    char text[512];
    CHECK_STR(backward_text(g, text, sizeof text),
              "seed mse_grad linear_grad_weight linear_grad_input relu_grad linear_grad_weight");
    const sl_node *n = g->nodes + g->forward_count;
    CHECK_EQ(n[0].layer, 1);
    CHECK_EQ(n[0].forward_of, 3);
    CHECK_EQ(n[1].outputs[1], -1); /* the target is data */
    CHECK_EQ(n[2].forward_of, 2);
    CHECK_EQ(n[2].outputs[0], g->parameters[sl_graph_find_parameter(g, "b.weight")].gradient);
    CHECK_EQ(n[2].outputs[1], g->parameters[sl_graph_find_parameter(g, "b.bias")].gradient);
    CHECK_EQ(n[4].inputs[0], g->nodes[1].outputs[0]); /* relu_grad reads y */
    CHECK_EQ(n[4].inputs[1], n[3].outputs[0]);
    CHECK_EQ(g->layers[1].first_backward, g->forward_count);
    CHECK_EQ(g->layers[1].backward_count, 4);
    CHECK_EQ(g->layers[0].first_backward, g->forward_count + 4);
    CHECK_EQ(g->layers[0].backward_count, 2);
    CHECK_EQ(sl_graph_differentiate(g), SLUICE_ERR_USAGE);
    sluice_graph_destroy(g);
}

TEST(residual_gradient_is_shared_and_added_to_in_place)
{
    sluice_graph *g;
    REQUIRE_OK(sluice_graph_create(&g));
    sluice_value x = sluice_linear(g, input(g, "x", 2, 4), 4, "in");
    sluice_value f =
        sluice_linear(g, sluice_layer_norm(g, x, vector(g, "ln.weight", 4), vector(g, "ln.bias", 4), 1e-5f), 4, "f");
    sluice_set_loss(g, sluice_sum(g, sluice_add(g, x, f)));
    REQUIRE_OK(sl_graph_differentiate(g));
    char text[512];
    /* expand makes the gradient of x + f; f reads it; the norm adds to the same value; "in" reads the sum */
    CHECK_STR(backward_text(g, text, sizeof text),
              "seed expand linear_grad_weight linear_grad_input +layer_norm_grad linear_grad_weight");
    const sl_node *n = g->nodes + g->forward_count;
    int shared = n[1].outputs[0];
    CHECK_EQ(n[2].inputs[0], shared);
    CHECK_EQ(n[4].outputs[0], shared);
    CHECK_EQ(n[4].attrs.accumulate, 1);
    CHECK_EQ(n[5].inputs[0], shared);
    sluice_graph_destroy(g);
}

TEST(gradient_that_another_value_still_needs_is_not_added_to_in_place)
{
    sluice_graph *g;
    REQUIRE_OK(sluice_graph_create(&g));
    sluice_value data = input(g, "data", 2, 4);
    sluice_value x = sluice_linear(g, data, 4, "x"), b = sluice_linear(g, data, 4, "b");
    sluice_value c = sluice_relu(g, x); /* differentiated between the add and b */
    sluice_value z = sluice_add(g, x, b);
    sluice_set_loss(g, sluice_sum(g, sluice_multiply(g, c, z)));
    REQUIRE_OK(sl_graph_differentiate(g));
    char text[512];
    /* the gradient of z is also that of b, which reads it last: relu's share goes through a sum of its own */
    CHECK_STR(backward_text(g, text, sizeof text),
              "seed expand multiply_reduce multiply_reduce relu_grad add linear_grad_weight linear_grad_weight");
    const sl_node *n = g->nodes + g->forward_count;
    int dz = n[3].outputs[0];
    CHECK_EQ(n[5].inputs[0], dz);
    CHECK_EQ(n[5].inputs[1], n[4].outputs[0]);
    CHECK_EQ(n[6].inputs[0], dz);              /* b's gradient, untouched */
    CHECK_EQ(n[7].inputs[0], n[5].outputs[0]); /* x's, the sum */
    sluice_graph_destroy(g);
}

TEST(gradient_that_the_node_itself_reads_is_not_added_to_in_place)
{
    sluice_graph *g;
    REQUIRE_OK(sluice_graph_create(&g));
    sluice_value x = sluice_linear(g, input(g, "x", 2, 4), 4, "in");
    sluice_set_loss(g, sluice_sum(g, sluice_add(g, x, sluice_linear(g, x, 4, "f"))));
    REQUIRE_OK(sl_graph_differentiate(g));
    char text[512];
    CHECK_STR(backward_text(g, text, sizeof text),
              "seed expand linear_grad_weight linear_grad_input add linear_grad_weight");
    sluice_graph_destroy(g);
}

TEST(reshaped_residual_counts_as_the_same_gradient)
{
    sluice_graph *g;
    REQUIRE_OK(sluice_graph_create(&g));
    sluice_value data = input(g, "data", 2, 4);
    sluice_value x = sluice_linear(g, data, 4, "x"), b = sluice_linear(g, data, 4, "b");
    sluice_value c = sluice_silu(g, x);
    sluice_value flat = sluice_reshape(g, x, 1, (int64_t[]){ 8 });
    sluice_value z = sluice_add(g, flat, sluice_reshape(g, b, 1, (int64_t[]){ 8 }));
    sluice_set_loss(g, sluice_add(g, sluice_sum(g, c), sluice_sum(g, z)));
    REQUIRE_OK(sl_graph_differentiate(g));
    char text[512];
    /* views of one gradient belong to x and b: silu must not add to it before b has read it */
    CHECK_STR(backward_text(g, text, sizeof text),
              "seed expand expand reshape reshape silu_grad add linear_grad_weight linear_grad_weight");
    sluice_graph_destroy(g);
}

/* ids -> embedding -> block -> the same table as output matrix: GPT-2 in small. */
static sluice_status small_gpt(sluice_graph *g)
{
    int64_t table[] = { 10, 8 };
    sluice_value ids = sluice_input(g, "ids", SLUICE_I32, 2, (int64_t[]){ 2, 3 });
    sluice_value targets = sluice_input(g, "targets", SLUICE_I32, 2, (int64_t[]){ 2, 3 });
    sluice_value wte = sluice_parameter(g, "wte.weight", 2, table, zero);
    sluice_value wpe = sluice_parameter(g, "wpe.weight", 2, (int64_t[]){ 3, 8 }, zero);
    sluice_layer(g, "embedding");
    sluice_value x = sluice_dropout(g, sluice_add(g, sluice_embedding(g, ids, wte), wpe), 0.1f);
    for (int i = 0; i < 2; i++) {
        char name[4][32];
        snprintf(name[0], 32, "h.%d.ln.weight", i);
        snprintf(name[1], 32, "h.%d.ln.bias", i);
        snprintf(name[2], 32, "h.%d.attn", i);
        snprintf(name[3], 32, "h.%d.proj", i);
        sluice_layer(g, name[2]);
        sluice_value h = sluice_layer_norm(g, x, vector(g, name[0], 8), vector(g, name[1], 8), 1e-5f);
        h = sluice_attention_packed(g, sluice_rotary(g, sluice_linear(g, h, 24, name[2]), 4, 4, 1e4f), 2, 2, true);
        x = sluice_add(g, x, sluice_gelu(g, sluice_linear(g, h, 8, name[3]), false));
    }
    sluice_layer(g, "head");
    sluice_value logits = sluice_linear_with(g, x, wte, SLUICE_NONE, false);
    sluice_set_output(g, logits);
    sluice_set_loss(g, sluice_cross_entropy(g, logits, targets, -1));
    return sluice_graph_check(g);
}

TEST(tied_embedding_is_written_by_the_head_and_added_to_by_the_embedding)
{
    sluice_graph *g;
    REQUIRE_OK(sluice_graph_create(&g));
    REQUIRE_OK(small_gpt(g));
    REQUIRE_OK(sl_graph_differentiate(g));
    CHECK_STR(g->layers[0].name, "wte.weight");
    CHECK_EQ(g->layers[0].backward_count, 0);
    int d = g->parameters[0].gradient, writers = 0;
    CHECK_EQ(g->values[d].kind, SL_VALUE_PARAM_GRAD);
    for (int n = g->forward_count; n < g->node_count; n++) {
        const sl_node *node = &g->nodes[n];
        if (node->outputs[0] != d) continue;
        writers++;
        CHECK_EQ(node->op, writers == 1 ? SL_OP_LINEAR_GRAD_WEIGHT : SL_OP_EMBEDDING_GRAD);
        CHECK_EQ(node->attrs.accumulate, writers == 1 ? 0 : 1);
    }
    CHECK_EQ(writers, 2);
    sluice_graph_destroy(g);
}

TEST(gpt_residuals_need_no_sum_nodes)
{
    sluice_graph *g;
    REQUIRE_OK(sluice_graph_create(&g));
    REQUIRE_OK(small_gpt(g));
    REQUIRE_OK(sl_graph_differentiate(g));
    for (int n = g->forward_count; n < g->node_count; n++) CHECK(g->nodes[n].op != SL_OP_ADD);
    sluice_graph_destroy(g);
}

TEST(backward_of_attention_rotary_and_dropout_carry_their_attributes)
{
    sluice_graph *g;
    REQUIRE_OK(sluice_graph_create(&g));
    REQUIRE_OK(small_gpt(g));
    REQUIRE_OK(sl_graph_differentiate(g));
    int seen = 0;
    for (int n = g->forward_count; n < g->node_count; n++) {
        const sl_node *node = &g->nodes[n], *forward = &g->nodes[node->forward_of];
        CHECK_EQ(node->layer, forward->layer);
        if (node->op == SL_OP_ATTENTION_GRAD) {
            seen |= 1;
            CHECK_EQ(node->input_count, 4);
            CHECK_EQ(node->inputs[0], forward->inputs[0]);
            CHECK_EQ(node->inputs[2], forward->outputs[1]);
            CHECK_EQ(node->attrs.attention.head_width, 4);
            CHECK_NEAR(sl_ops[SL_OP_ATTENTION_GRAD].cost(g, node).flops, 10 * 2 * 2 * 6 * 4, 0);
        }
        if (node->op == SL_OP_ROTARY) {
            seen |= 2;
            CHECK(node->attrs.rotary.inverse && !forward->attrs.rotary.inverse);
        }
        if (node->op == SL_OP_DROPOUT) {
            seen |= 4;
            CHECK_EQ(node->attrs.dropout.op, forward->attrs.dropout.op);
        }
    }
    CHECK_EQ(seen, 7);
    sluice_graph_destroy(g);
}

TEST(separate_attention_gives_three_gradients_and_sums_shared_ones)
{
    sluice_graph *g;
    REQUIRE_OK(sluice_graph_create(&g));
    sluice_value x = sluice_input(g, "x", SLUICE_F32, 3, (int64_t[]){ 1, 3, 4 });
    sluice_value q = sluice_linear(g, x, 4, "q"), k = sluice_linear(g, x, 4, "k");
    sluice_set_loss(g, sluice_sum(g, sluice_attention(g, q, k, k, 2, 2, true)));
    REQUIRE_OK(sl_graph_differentiate(g));
    char text[512];
    CHECK_STR(backward_text(g, text, sizeof text),
              "seed expand attention_grad add linear_grad_weight linear_grad_weight");
    const sl_node *n = &g->nodes[g->forward_count + 2];
    CHECK_EQ(n->output_count, 3);
    CHECK(n->outputs[0] != n->outputs[1] && n->outputs[1] != n->outputs[2]);
    sluice_graph_destroy(g);
}

TEST(frozen_and_data_only_branches_get_no_backward)
{
    sluice_graph *g;
    REQUIRE_OK(sluice_graph_create(&g));
    sluice_value w = sluice_parameter(g, "w", 2, (int64_t[]){ 4, 4 }, zero);
    sluice_freeze(g, w);
    sluice_value x = sluice_relu(g, sluice_linear_with(g, input(g, "x", 2, 4), w, SLUICE_NONE, false));
    sluice_value y = sluice_linear(g, x, 4, "train");
    sluice_set_loss(g, sluice_sum(g, sluice_linear_with(g, y, w, SLUICE_NONE, false)));
    REQUIRE_OK(sl_graph_differentiate(g));
    char text[512];
    CHECK_STR(backward_text(g, text, sizeof text), "seed expand linear_grad_input linear_grad_weight");
    sluice_graph_destroy(g);
}

/* x -> linear -> a head of 10 classes; nodes: linear, head. */
static sluice_graph *head_graph(bool freeze_head, bool freeze_linear)
{
    sluice_graph *g;
    if (sluice_graph_create(&g) != SLUICE_OK) abort();
    sluice_value w = sluice_parameter(g, "w", 2, (int64_t[]){ 4, 4 }, zero);
    sluice_value head = sluice_parameter(g, "head", 2, (int64_t[]){ 10, 4 }, zero);
    sluice_value targets = sluice_input(g, "t", SLUICE_I32, 1, (int64_t[]){ 2 });
    if (freeze_head) sluice_freeze(g, head);
    if (freeze_linear) sluice_freeze(g, w);
    sluice_value x = sluice_linear_with(g, input(g, "x", 2, 4), w, SLUICE_NONE, false);
    sluice_set_loss(g, sluice_linear_cross_entropy(g, x, head, targets, -1));
    return g;
}

TEST(a_head_makes_only_the_gradients_that_are_wanted)
{
    for (int frozen = 0; frozen < 3; frozen++) {
        sluice_graph *g = head_graph(frozen == 1, frozen == 2);
        REQUIRE_OK(sl_graph_differentiate(g));
        REQUIRE_OK(sl_graph_verify(g));
        const sl_node *head = &g->nodes[1], *back = &g->nodes[g->forward_count + 1];
        REQUIRE(back->op == SL_OP_LINEAR_CROSS_ENTROPY_GRAD);
        CHECK_EQ(head->outputs[2] >= 0, frozen != 1);
        CHECK_EQ(head->outputs[3] >= 0, frozen != 2);
        CHECK_EQ(back->outputs[0] >= 0, frozen != 1);
        CHECK_EQ(back->outputs[1] >= 0, frozen != 2);
        CHECK_EQ(back->inputs[0], head->outputs[frozen == 1 ? 3 : 2]);
        CHECK_EQ(back->inputs[1], head->outputs[frozen == 2 ? 2 : 3]);
        sluice_graph_destroy(g);
    }
}

TEST(a_head_in_16_bits_keeps_loss_count_and_weight_gradient_in_f32)
{
    sluice_graph *g = head_graph(false, false);
    REQUIRE_OK(sl_graph_lower(g, SLUICE_BF16, SLUICE_BF16));
    REQUIRE_OK(sl_graph_differentiate(g));
    const sl_node *head = &g->nodes[2], *back = &g->nodes[g->forward_count + 1]; /* after the cast of x */
    REQUIRE(head->op == SL_OP_LINEAR_CROSS_ENTROPY);
    const sluice_dtype expected[] = { SLUICE_F32, SLUICE_F32, SLUICE_F32, SLUICE_BF16 };
    for (int i = 0; i < 4; i++) CHECK_EQ(g->values[head->outputs[i]].dtype, expected[i]);
    CHECK_EQ(g->values[back->outputs[0]].dtype, SLUICE_BF16);
    CHECK_EQ(g->values[back->outputs[1]].dtype, SLUICE_BF16);
    sluice_graph_destroy(g);
}

/* x -> linear -> a head of 10 classes with a bias; bit 0: the head's weight is frozen, 1: the linear's, 2: the bias. */
static sluice_graph *biased_head_graph(int frozen)
{
    sluice_graph *g;
    if (sluice_graph_create(&g) != SLUICE_OK) abort();
    sluice_value w = sluice_parameter(g, "w", 2, (int64_t[]){ 4, 4 }, zero);
    sluice_value head = sluice_parameter(g, "head", 2, (int64_t[]){ 10, 4 }, zero);
    sluice_value bias = sluice_parameter(g, "bias", 1, (int64_t[]){ 10 }, zero);
    sluice_value targets = sluice_input(g, "t", SLUICE_I32, 1, (int64_t[]){ 2 });
    if (frozen & 1) sluice_freeze(g, head);
    if (frozen & 2) sluice_freeze(g, w);
    if (frozen & 4) sluice_freeze(g, bias);
    sluice_value x = sluice_linear_with(g, input(g, "x", 2, 4), w, SLUICE_NONE, false);
    sluice_set_loss(g, sluice_linear_cross_entropy_with(g, x, head, bias, targets, -1, 0, 0));
    return g;
}

TEST(a_head_with_a_bias_makes_only_the_gradients_that_are_wanted)
{
    for (int frozen = 0; frozen < 7; frozen++) {
        sluice_graph *g = biased_head_graph(frozen);
        REQUIRE_OK(sl_graph_differentiate(g));
        REQUIRE_OK(sl_graph_verify(g));
        const sl_node *head = &g->nodes[1], *back = &g->nodes[g->forward_count + 1];
        const bool weight = !(frozen & 1), x = !(frozen & 2), bias = !(frozen & 4);
        const int dw = head->outputs[2], dx = head->outputs[3], dbias = head->outputs[4];
        REQUIRE(back->op == SL_OP_LINEAR_CROSS_ENTROPY_GRAD && head->output_count == 5);
        CHECK_EQ(dw >= 0, weight);
        CHECK_EQ(dx >= 0, x);
        CHECK_EQ(dbias >= 0, bias);
        CHECK_EQ(back->outputs[0] >= 0, weight);
        CHECK_EQ(back->outputs[1] >= 0, x);
        CHECK_EQ(back->outputs[2] >= 0, bias);
        CHECK_EQ(back->input_count, bias ? 4 : 3);
        CHECK_EQ(back->output_count, bias ? 3 : 2);
        CHECK_EQ(back->inputs[0], weight ? dw : x ? dx : dbias);
        CHECK_EQ(back->inputs[1], x ? dx : weight ? dw : dbias);
        if (bias) CHECK_EQ(back->inputs[3], dbias);
        sluice_graph_destroy(g);
    }
}

TEST(a_head_with_a_bias_in_16_bits_reads_it_so_and_keeps_its_gradient_in_f32)
{
    sluice_graph *g = biased_head_graph(0);
    REQUIRE_OK(sl_graph_lower(g, SLUICE_BF16, SLUICE_BF16));
    REQUIRE_OK(sl_graph_differentiate(g));
    const sl_node *head = &g->nodes[2], *back = &g->nodes[g->forward_count + 1]; /* after the cast of x */
    REQUIRE(head->op == SL_OP_LINEAR_CROSS_ENTROPY);
    CHECK_EQ(g->values[head->inputs[3]].dtype, SLUICE_BF16);
    CHECK_EQ(g->values[head->outputs[4]].dtype, SLUICE_F32);
    CHECK_EQ(g->values[back->outputs[2]].dtype, SLUICE_BF16);
    sluice_graph_destroy(g);
}

/* Models from before there was a bias keep their values and so their identity. */
TEST(a_head_without_a_bias_has_no_gradient_of_one)
{
    sluice_graph *g = head_graph(false, false);
    CHECK_EQ(g->nodes[1].output_count, 4);
    CHECK_EQ(g->value_count, 3 + 1 + 1 + 4); /* two parameters and the targets, the input, the linear, the head's */
    sluice_graph_destroy(g);
}

TEST(differentiation_names_what_is_missing)
{
    sluice_graph *g;
    REQUIRE_OK(sluice_graph_create(&g));
    sluice_value y = sluice_linear(g, input(g, "x", 2, 4), 4, "a");
    sluice_value side = sluice_linear(g, y, 2, "side");
    CHECK_EQ(sl_graph_differentiate(g), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "call sluice_set_loss");
    sluice_graph_destroy(g);

    REQUIRE_OK(sluice_graph_create(&g));
    y = sluice_linear(g, input(g, "x", 2, 4), 4, "a");
    side = sluice_linear(g, y, 2, "side");
    (void)side;
    sluice_set_loss(g, sluice_sum(g, y));
    int nodes = g->node_count, values = g->value_count;
    CHECK_EQ(sl_graph_differentiate(g), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "parameter \"side.weight\" does not influence loss");
    CHECK_EQ(g->node_count, nodes);
    CHECK_EQ(g->value_count, values);
    CHECK_EQ(g->parameters[0].gradient, -1);
    sluice_graph_destroy(g);

    REQUIRE_OK(sluice_graph_create(&g));
    sluice_set_loss(g, sluice_sum(g, input(g, "x", 2, 4)));
    CHECK_EQ(sl_graph_differentiate(g), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "depends on no trainable parameter");
    sluice_graph_destroy(g);
}

/* Every allocation of building, finishing and differentiating fails once; each time the status is clean and nothing
 * leaks. */
TEST(every_failing_allocation_gives_a_clean_status)
{
    bool done = false;
    int failures = 0;
    for (int64_t nth = 1; !done && nth < 10000; nth++) {
        sl_alloc_stats before, after;
        sl_alloc_get_stats(&before);
        sl_alloc_fail_nth(nth, 0);
        sluice_graph *g = NULL;
        sluice_status st = sluice_graph_create(&g);
        if (st == SLUICE_OK) st = small_gpt(g);
        if (st == SLUICE_OK) st = sl_graph_differentiate(g);
        sl_alloc_fail_nth(0, 0);
        done = st == SLUICE_OK;
        if (!done) {
            CHECK_EQ(st, SLUICE_ERR_NO_MEMORY);
            failures++;
        }
        /* a graph whose differentiation failed for lack of memory can be differentiated again */
        if (!done && g != NULL && g->error == SLUICE_OK) CHECK_EQ(sl_graph_differentiate(g), SLUICE_OK);
        sluice_graph_destroy(g);
        sl_alloc_get_stats(&after);
        CHECK_EQ(after.live_bytes, before.live_bytes);
        CHECK_EQ(after.live_count, before.live_count);
    }
    CHECK(done);
    CHECK(failures > 10);
}

/* sl_graph_verify finds faults planted in a sound graph. */
#include "ir/graph.h"
#include "test.h"

static sluice_graph *sound_graph(void)
{
    sluice_graph *g;
    if (sluice_graph_create(&g) != SLUICE_OK) return NULL;
    sluice_value x = sluice_input(g, "x", SLUICE_F32, 2, (int64_t[]){ 2, 4 });
    sluice_layer(g, "one");
    x = sluice_linear(g, x, 4, "a"); /* node 0 */
    sluice_layer(g, "two");
    sluice_value y = sluice_linear(g, sluice_relu(g, x), 4, "b");                 /* nodes 1, 2 */
    sluice_value z = sluice_reshape(g, sluice_add(g, x, y), 1, (int64_t[]){ 8 }); /* nodes 3, 4 */
    sluice_set_loss(g, sluice_sum(g, z));                                         /* node 5 */
    if (sl_graph_differentiate(g) != SLUICE_OK) {
        sluice_graph_destroy(g);
        return NULL;
    }
    return g;
}

static sl_node *backward(sluice_graph *g, sl_op op)
{
    for (int n = g->forward_count; n < g->node_count; n++)
        if (g->nodes[n].op == op) return &g->nodes[n];
    return NULL;
}

#define FAULT(name_, statement_)                                                                                       \
    static void name_(sluice_graph *g)                                                                                 \
    {                                                                                                                  \
        statement_;                                                                                                    \
    }

FAULT(fault_op, g->nodes[1].op = (sl_op)999)
FAULT(fault_inputs, g->nodes[1].input_count = 2)
FAULT(fault_no_value, g->nodes[1].inputs[0] = 9999)
FAULT(fault_no_output, g->nodes[1].outputs[0] = -1)
FAULT(fault_order, g->nodes[1].inputs[0] = g->nodes[2].outputs[0])
FAULT(fault_shape, g->values[g->nodes[1].outputs[0]].shape.dim[0] = 1)
FAULT(fault_dtype, g->values[g->nodes[2].outputs[0]].dtype = SLUICE_I32)
FAULT(fault_mixed, g->values[g->parameters[0].value].dtype = g->precision = SLUICE_BF16)
FAULT(fault_precision, g->precision = SLUICE_BF16)
FAULT(fault_wire, g->wire = SLUICE_BF16)
FAULT(fault_overwrite, g->nodes[2].outputs[0] = g->nodes[0].outputs[0])
FAULT(fault_parameter, g->nodes[2].outputs[0] = g->parameters[0].value)
FAULT(fault_producer, g->values[g->nodes[2].outputs[0]].producer = 0)
FAULT(fault_storage, g->values[g->nodes[4].outputs[0]].storage = g->nodes[4].outputs[0])
FAULT(fault_storage_root, g->values[0].storage = g->value_count)
FAULT(fault_accumulate_unwritten, backward(g, SL_OP_EXPAND)->attrs.accumulate = 1)
FAULT(fault_accumulate_op, g->nodes[3].attrs.accumulate = 1)
FAULT(fault_in_place, {
    sl_node *n = backward(g, SL_OP_LINEAR_GRAD_INPUT);
    n->outputs[0] = n->inputs[0];
    n->attrs.accumulate = 1;
})
FAULT(fault_phase, g->nodes[g->forward_count].phase = SL_PHASE_FORWARD)
FAULT(fault_forward_of, g->nodes[g->forward_count].forward_of = -1)
FAULT(fault_counts, g->backward_count += 5)
FAULT(fault_layer, g->nodes[1].layer = 0)
FAULT(fault_layer_range, g->nodes[1].layer = 7)
FAULT(fault_layer_nodes, g->layers[0].node_count = 2)
FAULT(fault_layer_backward, g->layers[0].first_backward -= 1)
FAULT(fault_offset, g->parameters[1].offset += 1)
FAULT(fault_count, g->parameters[1].count += 1)
FAULT(fault_elements, g->layers[1].element_count -= 1)
FAULT(fault_grouping, g->layer_parameters[0] = 3)
FAULT(fault_trainable, g->layers[1].trainable = false)
FAULT(fault_gradient, g->parameters[1].gradient = -1)
FAULT(fault_gradient_of_other, g->parameters[1].gradient = g->parameters[3].gradient)

static const struct {
    void (*plant)(sluice_graph *g);
    const char *message;
} faults[] = {
    { fault_op, "does not exist" },
    { fault_inputs, "number of inputs" },
    { fault_no_value, "an input does not exist" },
    { fault_no_output, "writes nothing" },
    { fault_order, "no earlier node writes" },
    { fault_shape, "shape" },
    { fault_dtype, "dtype" },
    { fault_mixed, "\"x\" (input) [2, 4] is f32 and \"a.weight\" (parameter) [4, 4] is bf16" },
    { fault_precision, "not in the graph's precision" },
    { fault_wire, "gradient is wrong" },
    { fault_overwrite, "overwrites a value" },
    { fault_parameter, "writes an input or a parameter" },
    { fault_producer, "another producer" },
    { fault_storage, "wrong storage" },
    { fault_storage_root, "not a root" },
    { fault_accumulate_unwritten, "not written yet" },
    { fault_accumulate_op, "cannot add" },
    { fault_in_place, "storage of one of its inputs" },
    { fault_phase, "out of phase" },
    { fault_forward_of, "wrong forward node" },
    { fault_counts, "but" },
    { fault_layer, "another layer" },
    { fault_layer_range, "layer does not exist" },
    { fault_layer_nodes, "its forward nodes" },
    { fault_layer_backward, "its backward nodes" },
    { fault_offset, "gap or an overlap" },
    { fault_count, "count" },
    { fault_elements, "element count" },
    { fault_grouping, "another layer" },
    { fault_trainable, "mixes" },
    { fault_gradient, "gradient is wrong" },
    { fault_gradient_of_other, "gradient is wrong" },
};

TEST(verify_accepts_what_the_passes_make)
{
    sluice_graph *g = sound_graph();
    REQUIRE(g != NULL);
    REQUIRE_OK(sl_graph_verify(g));
    sluice_graph_destroy(g);
}

TEST(verify_finds_every_planted_fault)
{
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        sluice_graph *g = sound_graph();
        REQUIRE(g != NULL);
        faults[i].plant(g);
        if (sl_graph_verify(g) == SLUICE_OK)
            test_fail(__FILE__, __LINE__, "fault \"%s\" was not found", faults[i].message);
        else
            CHECK_CONTAINS(sluice_error(), faults[i].message);
        sluice_graph_destroy(g);
    }
}

TEST(verify_accepts_update_nodes_without_operands)
{
    sluice_graph *g = sound_graph();
    REQUIRE(g != NULL);
    for (int i = 0; i < g->layer_count; i++) {
        sl_node update = { .op = SL_OP_NORM_LEAVES, .phase = SL_PHASE_UPDATE, .layer = i, .forward_of = -1 };
        CHECK(sl_graph_add_node(g, &update) >= 0);
    }
    sl_node finish = {
        .op = SL_OP_NORM_FINISH, .phase = SL_PHASE_UPDATE, .layer = -1, .forward_of = -1, .name = "norm"
    };
    int node = sl_graph_add_node(g, &finish);
    REQUIRE(node >= 0);
    REQUIRE_OK(sl_graph_verify(g));
    CHECK_STR(g->nodes[node].name, "norm");
    CHECK_NEAR(sl_ops[SL_OP_NORM_LEAVES].cost(g, &g->nodes[node - 1]).flops, 2 * 20, 0);
    CHECK_NEAR(sl_ops[SL_OP_NORM_FINISH].cost(g, &g->nodes[node]).flops, 2, 0);
    sluice_graph_destroy(g);
}

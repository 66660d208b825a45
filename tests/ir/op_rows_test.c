/* op_rows_test.c: every row of the op table says everything. What a row leaves open is its zero, and each test here names the op
 * and the fact. */
#include "ir/op_rows.h"
#include "test.h"

/* `said`, or a failure that names the op and what its row lacks. */
static void must_say(int op, bool said, const char *fact)
{
    CHECK_THAT(said, "op_list.h: the row of %s does not say %s", sl_ops[op].name, fact);
}

static bool of_phase(int op, sl_phase phase)
{
    return sl_ops[op].phase == phase;
}

TEST(every_op_says_how_many_operands_it_has)
{
    for (int op = 0; op < SL_OP_COUNT; op++) {
        const sl_op_def *row = &sl_ops[op];
        must_say(op, row->outputs >= 1 && row->outputs <= SL_MAX_OUTPUTS, "its outputs");
        must_say(op, row->max_inputs >= row->min_inputs && row->max_inputs <= SL_MAX_INPUTS, "its inputs");
        must_say(op, row->max_inputs >= 1 || op == SL_OP_SEED, "its inputs");
    }
}

TEST(every_op_that_computes_in_the_graph_infers_its_shapes)
{
    for (int op = 0; op < SL_OP_COUNT; op++)
        must_say(op, (sl_ops[op].infer != NULL) != of_phase(op, SL_PHASE_UPDATE), "how shapes are inferred");
}

TEST(every_forward_op_has_a_gradient_and_no_other_op_has_one)
{
    for (int op = 0; op < SL_OP_COUNT; op++)
        must_say(op, (sl_ops[op].gradient != NULL) == of_phase(op, SL_PHASE_FORWARD), "its gradient");
}

TEST(ops_whose_gradient_is_one_node_name_its_op)
{
    int found = 0;
    for (int op = 0; op < SL_OP_COUNT; op++) {
        bool generic = sl_ops[op].gradient == sl_gradient_from_input || sl_ops[op].gradient == sl_gradient_from_output;
        if (!generic) continue;
        must_say(op, of_phase((int)sl_ops[op].backward, SL_PHASE_BACKWARD), "its backward op");
        must_say(op, sl_ops[sl_ops[op].backward].max_inputs == 2, "a backward op of two inputs");
        found++;
    }
    CHECK(found > 0);
}

TEST(every_op_has_a_cost_and_a_rate_class)
{
    for (int op = 0; op < SL_OP_COUNT; op++) {
        must_say(op, sl_ops[op].cost != NULL, "its cost");
        must_say(op, sl_ops[op].rate != SL_CLASS_NOT_SAID, "its rate class");
    }
}

TEST(ops_that_are_counted_per_element_say_how_many_operations_that_is)
{
    static sl_cost_fn *const per_element[] = { sl_cost_pointwise, sl_cost_accumulate, sl_cost_norm_leaves,
                                               sl_cost_update, sl_cost_channel_norm };
    for (int op = 0; op < SL_OP_COUNT; op++) {
        bool counted = false;
        for (size_t i = 0; i < sizeof per_element / sizeof per_element[0]; i++)
            counted = counted || sl_ops[op].cost == per_element[i];
        must_say(op, counted == (sl_ops[op].element_flops != 0), "its operations per element, or says them in vain");
    }
}

TEST(every_op_says_whether_it_takes_over_an_input)
{
    for (int op = 0; op < SL_OP_COUNT; op++) {
        must_say(op, sl_ops[op].in_place != SL_IN_PLACE_NOT_SAID, "whether it works in place");
        CHECK(sl_op_in_place((sl_op)op) < sl_ops[op].max_inputs);
    }
}

TEST(every_backward_op_says_whether_it_adds_to_an_output)
{
    for (int op = 0; op < SL_OP_COUNT; op++)
        must_say(op, !of_phase(op, SL_PHASE_BACKWARD) || sl_ops[op].adds != SL_ADDS_NOT_SAID, "whether it accumulates");
}

TEST(every_op_says_its_attributes_or_that_it_has_none)
{
    for (int op = 0; op < SL_OP_COUNT; op++) must_say(op, sl_ops[op].attributes != NULL, "its attributes");
}

TEST(every_forward_op_says_its_types_in_16_bits_and_how_its_parameters_are_cut)
{
    for (int op = 0; op < SL_OP_COUNT; op++) {
        bool forward = of_phase(op, SL_PHASE_FORWARD);
        must_say(op, forward == (sl_ops[op].lowering != SL_LOWER_NOT_SAID), "how it is lowered");
        must_say(op, forward == (sl_ops[op].tile != SL_TILE_NOT_SAID), "how its parameters are cut into tiles");
    }
}

TEST(every_further_output_of_a_forward_op_has_a_name_and_a_purpose)
{
    for (int op = 0; op < SL_OP_COUNT; op++) {
        for (int k = 1; k < sl_ops[op].outputs && of_phase(op, SL_PHASE_FORWARD); k++) {
            must_say(op, sl_ops[op].saved[k - 1].name != NULL, "the name of a saved output");
            must_say(op, sl_ops[op].saved[k - 1].kind != SL_SAVED_NOT_SAID, "what a saved output is for");
        }
        for (int k = sl_ops[op].outputs; k < SL_MAX_OUTPUTS; k++) CHECK(sl_ops[op].saved[k - 1].name == NULL);
    }
}

TEST(outputs_that_depend_on_an_input_come_last_and_their_inputs_are_optional)
{
    for (int op = 0; op < SL_OP_COUNT; op++) {
        int before = 0;
        for (int k = 1; k < sl_ops[op].outputs && of_phase(op, SL_PHASE_FORWARD); k++) {
            const int with = sl_ops[op].saved[k - 1].with;
            must_say(op, with >= before, "outputs that depend on an input behind those that do not");
            must_say(op, with == 0 || (with >= sl_ops[op].min_inputs && with < sl_ops[op].max_inputs),
                     "an optional input for an output that depends on one");
            before = with;
        }
        CHECK_EQ(sl_op_outputs((sl_op)op, sl_ops[op].max_inputs), sl_ops[op].outputs);
    }
    CHECK_EQ(sl_op_outputs(SL_OP_LINEAR_CROSS_ENTROPY, 3), 4);
}

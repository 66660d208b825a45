/* ops_test.c: every operation, in every element type, on every device variant against the reference in double.
 *
 * For each case of op_cases.h: the result is as close to the reference, taken of the rounded inputs, as one rounding to the
 * output's type allows; all variants give the same bits; adding to an output equals the reference's sum; taking over an
 * input's memory changes no bit; nothing outside the outputs is touched.
 * Shapes are chosen for what kernels distinguish: tails shorter than sixteen lanes, several tasks, several blocks of a
 * sum, one row, one column. */
#include <string.h>

#include "backend/node_call.h"
#include "support/op_cases.h"
#include "support/op_harness.h"
#include "test.h"
#if defined(SL_TEST_CUDA_EMULATED)
#include "support/cuda/emulated.h"
#endif

#define DEFAULT_TOLERANCE 1e-5

static const sl_run_context run_context = {
    .seed = 11, .step = 3, .micro = 2, .training = true, .seed_gradient = 0.25f
};
static const sl_run_context evaluation_context = { .seed = 11, .step = 3, .micro = 2, .seed_gradient = 0.25f };

/* ---- Types ---- */

/* What activations and weights are in, and what parameter gradients are. */
typedef struct typing {
    sl_form elem, wide;
} typing;

static const typing types[] = {
    { SL_FORM_F32, SL_FORM_F32 },
    { SL_FORM_BF16, SL_FORM_BF16 },
    { SL_FORM_F16, SL_FORM_F16 },
};
static const typing mixed_types[] = {
    { SL_FORM_BF16, SL_FORM_F32 },
    { SL_FORM_F16, SL_FORM_BF16 },
    { SL_FORM_F32, SL_FORM_F16 },
};
#define TYPES ((int)(sizeof types / sizeof types[0]))
#define MIXED ((int)(sizeof mixed_types / sizeof mixed_types[0]))

static bool is_index(const op_case *c, int input)
{
    return c->fill[input] == INDEX || c->fill[input] == TARGET || c->fill[input] == POSITION ||
           c->fill[input] == SLOT || c->fill[input] == TURN || c->fill[input] == LABEL || c->fill[input] == LENGTH ||
           c->fill[input] == SEEN || c->fill[input] == END;
}

static sl_form input_form(const op_case *c, typing t, int i)
{
    if (is_index(c, i)) return SL_FORM_I32;
    if (c->op == SL_OP_ATTENTION_GRAD && i == c->inputs - 2) return SL_FORM_F32;
    return stays_f32[c->op].in >> i & 1u ? SL_FORM_F32 : t.elem;
}

static sl_form output_form(const op_case *c, typing t, int i)
{
    if (sl_ops[c->op].wide_outputs >> i & 1u) return t.wide;
    return stays_f32[c->op].out >> i & 1u ? SL_FORM_F32 : t.elem;
}

/* Half the distance of two neighbours, for numbers near 1; and the same where they lie closest to zero. */
static double rounding_of(sl_form form)
{
    return form == SL_FORM_BF16 ? 0x1p-8 : form == SL_FORM_F16 ? 0x1p-11 : 0;
}

static double least_of(sl_form form)
{
    return form == SL_FORM_F16 ? 0x1p-25 : 0;
}

/* ---- One case laid out ---- */

typedef struct layout {
    test_image image;
    sl_call call;
    sl_attrs attrs;
} layout;

typedef enum { PLAIN, ACCUMULATING, IN_PLACE } variant;

static const char *case_name(const op_case *c, const layout *l)
{
    static char text[160];
    char shape[64];
    snprintf(text, sizeof text, "%s %s of %s to %s (case %d)", sl_ops[c->op].name,
             sl_shape_text(&c->in[0], shape, sizeof shape),
             c->inputs > 0 ? sl_form_name(l->call.input_forms[c->inputs - 1]) : "-",
             sl_form_name(l->call.output_forms[0]), (int)(c - cases));
    return text;
}

static void fill_floats(const op_case *c, layout *l, int input, int64_t n, test_random *r)
{
    static const float far[] = {
        200.0f, -200.0f, 88.0f, -88.0f, -100.0f, 0.0f, -0.0f, 1e-30f, 6e4f, -6e4f
    }; /* f16 ends at 65,504 */
    const double low[] = { [NORMAL] = -1.5, [WIDE] = -30, [STEEP] = -30, [POSITIVE] = 0.5, [LARGE] = 6 };
    const double high[] = { [NORMAL] = 1.5, [WIDE] = 30, [STEEP] = 30, [POSITIVE] = 1.5, [LARGE] = 8 };
    const fill_kind kind = c->fill[input];
    const sl_form form = l->call.input_forms[input];
    for (int64_t i = 0; i < n; i++) {
        double x = kind == COUNT                ? 3
                   : kind == WIDE && i % 7 == 3 ? (double)far[i / 7 % 10]
                                                : test_uniform(r, low[kind], high[kind]);
        test_set_number(&l->image, l->call.inputs[input], form, i, x);
    }
}

/* Documents of 1 to 29 tokens, cut off at the ends of rows. */
static void fill_positions(int32_t *p, int64_t n, int64_t row, test_random *r)
{
    int64_t left = 0;
    for (int64_t i = 0; i < n; i++) {
        bool begins = i % row == 0 || left == 0;
        if (begins) left = 1 + (int64_t)test_uniform(r, 0, 29);
        p[i] = begins ? 0 : p[i - 1] + 1;
        left--;
    }
}

static void fill_indices(const op_case *c, int input, int32_t *p, int64_t n, test_random *r)
{
    if (c->fill[input] == POSITION) {
        fill_positions(p, n, c->in[input].dim[c->in[input].rank - 1], r);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        p[i] = (int32_t)test_uniform(r, 0, c->classes);
        if (c->fill[input] == SLOT) p[i] = (int32_t)(i % c->classes);
        if (c->fill[input] == LABEL) p[i] = case_label(c, input, i);
        if (c->fill[input] == LENGTH) p[i] = case_length(c, i);
        if (c->fill[input] == END) p[i] = case_end(c, input, i);
        if (c->fill[input] == TURN) p[i] = 21 + (int32_t)(i / c->classes);
        if (c->fill[input] == TARGET && i % 3 == 1) p[i] = c->attrs.cross_entropy.ignore_index;
    }
}

static double *to_doubles(const layout *l, sl_span span, sl_form form)
{
    int64_t n = (int64_t)(span.bytes / sl_form_element_bytes(form));
    double *d = calloc((size_t)(n > 0 ? n : 1), sizeof *d);
    for (int64_t i = 0; i < n; i++) d[i] = test_number(&l->image, span, form, i);
    return d;
}

static double *input_doubles(const layout *l, int i)
{
    return to_doubles(l, l->call.inputs[i], l->call.input_forms[i]);
}

/* What attention's gradient needs of its forward: out and lse, rounded as the forward would leave them. */
static void compute_attention(const op_case *c, layout *l)
{
    int inputs = c->inputs - 3;
    ref_call ref = { .op = SL_OP_ATTENTION, .attrs = &c->attrs, .input_count = inputs, .output_count = 2 };
    for (int i = 0; i < inputs; i++) ref.in[i] = (ref_tensor){ &c->in[i], input_doubles(l, i) };
    for (int i = 0; i < 2; i++) ref.out[i] = (ref_tensor){ &c->in[inputs + i], input_doubles(l, inputs + i) };
    reference_run(&ref);
    for (int i = 0; i < 2; i++)
        for (int64_t e = 0; e < sl_shape_elements(&c->in[inputs + i]); e++)
            test_set_number(&l->image, l->call.inputs[inputs + i], l->call.input_forms[inputs + i], e,
                            ref.out[i].data[e]);
    for (int i = 0; i < inputs; i++) free(ref.in[i].data);
    for (int i = 0; i < 2; i++) free(ref.out[i].data);
}

static void fill_inputs(const op_case *c, layout *l)
{
    bool computed = false;
    for (int i = 0; i < c->inputs; i++) {
        test_random r = { .state = (uint64_t)(c - cases) * 101 + (uint64_t)i };
        int64_t n = sl_shape_elements(&c->in[i]);
        if (c->fill[i] == COMPUTED)
            computed = true;
        else if (is_index(c, i))
            fill_indices(c, i, test_indices(&l->image, l->call.inputs[i]), n, &r);
        else
            fill_floats(c, l, i, n, &r);
    }
    if (computed) compute_attention(c, l);
}

static void make_output(const op_case *c, variant v, typing t, int i, layout *l)
{
    const int64_t n = sl_shape_elements(&c->out[i]);
    const sl_form form = output_form(c, t, i);
    const bool takes_over = v == IN_PLACE && i == 0;
    test_random r = { .state = 7 + (uint64_t)i };
    l->call.output_forms[i] = form;
    l->call.output_shapes[i] = &c->out[i];
    l->call.outputs[i] = takes_over ? l->call.inputs[sl_op_in_place(c->op)] : test_image_add_form(&l->image, n, form);
    const bool state = i > 0 && sl_ops[c->op].saved[i - 1].kind == SL_SAVED_STATE; /* what was there before */
    const bool variances = state && (c->op == SL_OP_BATCH_NORM || c->op == SL_OP_BATCH_STATISTICS);
    for (int64_t e = 0; e < n && (v == ACCUMULATING || state); e++)
        test_set_number(&l->image, l->call.outputs[i], form, e,
                        test_uniform(&r, variances ? 0.5 : -1, variances ? 2 : 1));
}

static void make_layout(const op_case *c, variant v, typing t, layout *l)
{
    *l = (layout){ .attrs = c->attrs };
    l->attrs.accumulate = v == ACCUMULATING ? (1u << c->outputs) - 1 : 0;
    l->call =
        (sl_call){ .op = c->op, .input_count = c->inputs, .output_count = c->outputs, .name = sl_ops[c->op].name };
    l->call.context = c->evaluation ? &evaluation_context : &run_context;
    for (int i = 0; i < c->inputs; i++) {
        l->call.input_forms[i] = input_form(c, t, i);
        l->call.inputs[i] = test_image_add_form(&l->image, sl_shape_elements(&c->in[i]), l->call.input_forms[i]);
        l->call.input_shapes[i] = &c->in[i];
    }
    fill_inputs(c, l);
    for (int i = 0; i < c->outputs; i++)
        if (!(c->absent >> i & 1u)) make_output(c, v, t, i, l);
}

static sluice_status run_layout(const test_device *device, layout *l)
{
    l->call.attrs = &l->attrs; /* here, because a layout may have been copied */
    return test_run(device, &l->image, &l->call, 1);
}

/* ---- What must hold of a result ---- */

/* Whether the output only moved: no rounding, if its form is the input's. */
static bool only_moved(const op_case *c, const layout *l)
{
    return c->exact && l->attrs.accumulate == 0 &&
           (c->inputs == 0 || l->call.output_forms[0] == l->call.input_forms[c->inputs - 1]);
}

/* cuDNN rounds to the form of the images before it adds to what is there: a gradient, or the bias (cuda_conv.c). */
static bool rounds_twice(const op_case *c, const test_device *device, const layout *l)
{
#if defined(SL_TEST_CUDA_EMULATED)
    if (device->backend == &sl_emulated_cuda_backend) return false; /* it has no cuDNN */
#endif
    const bool adds =
        c->op == SL_OP_CONV2D_GRAD_INPUT ? l->attrs.accumulate != 0 : c->op == SL_OP_CONV2D && c->inputs > 2;
    return adds && l->call.output_forms[0] != SL_FORM_F32 && strcmp(device->backend->name, "cpu") != 0;
}

static void check_close(const op_case *c, const test_device *device, int output, const layout *l,
                        const double *expected)
{
    const sl_form form = l->call.output_forms[output];
    const bool exact = only_moved(c, l);
    const double usual = c->tolerance > 0 ? c->tolerance : DEFAULT_TOLERANCE;
    const bool on_cpu = strcmp(device->backend->name, "cpu") == 0;
    const double wider = on_cpu || c->narrow > 0 ? c->narrow : c->narrow_gpu;
    const bool narrow = wider > 0 && l->call.input_forms[0] != SL_FORM_F32;
    const double rounding = exact ? 0 : rounding_of(form), least = exact ? 0 : least_of(form);
    const double first = rounds_twice(c, device, l) ? 2 * rounding : 0; /* of a sum of up to twice the usual size */
    const double tolerance = exact ? 0 : first + (narrow ? wider : usual);
    int64_t n = sl_shape_elements(&c->out[output]);
    double square = 0;
    for (int64_t i = 0; i < n; i++) square += expected[i] * expected[i] / (double)n;
    for (int64_t i = 0; i < n; i++) {
        double got = test_number(&l->image, l->call.outputs[output], form, i), size = fabs(expected[i]);
        if (fabs(got - expected[i]) <= tolerance * (size + sqrt(square)) + rounding * size + least) continue;
        test_fail(__FILE__, __LINE__, "%s, %s: output %d [%lld] = %.9g, expected %.9g", case_name(c, l), device->name,
                  output, (long long)i, got, expected[i]);
        return;
    }
}

/* The reference on the inputs of `before`, against the outputs of `after`. */
static void check_reference(const op_case *c, const test_device *device, const layout *before, const layout *after)
{
    ref_call ref = { .op = c->op,
                     .attrs = &before->attrs,
                     .input_count = c->inputs,
                     .output_count = c->outputs,
                     .context = before->call.context };
    for (int i = 0; i < c->inputs; i++) ref.in[i] = (ref_tensor){ &c->in[i], input_doubles(before, i) };
    for (int i = 0; i < c->outputs; i++)
        ref.out[i] = (ref_tensor){ &c->out[i], c->absent >> i & 1u ? NULL
                                                                   : to_doubles(before, before->call.outputs[i],
                                                                                before->call.output_forms[i]) };
    reference_run(&ref);
    for (int i = 0; i < c->outputs; i++)
        if (ref.out[i].data != NULL) check_close(c, device, i, after, ref.out[i].data);
    for (int i = 0; i < c->inputs; i++) free(ref.in[i].data);
    for (int i = 0; i < c->outputs; i++) free(ref.out[i].data);
}

static void check_same_bits(const op_case *c, const test_device *device, const layout *first, const layout *other,
                            const char *than)
{
    for (int i = 0; i < c->outputs; i++) {
        sl_span a = first->call.outputs[i], b = other->call.outputs[i];
        if (a.bytes == 0 || memcmp(first->image.bytes + a.offset, other->image.bytes + b.offset, a.bytes) == 0)
            continue;
        test_fail(__FILE__, __LINE__, "%s, %s: output %d has other bits than %s", case_name(c, other), device->name, i,
                  than);
    }
}

/* Matrix products on AMX tiles add in another order; their own tests hold them to the reference. */
static bool has_bits_of_its_own(const op_case *c, const test_device *device)
{
    return device->backend == &sl_cpu_backend && device->isa == SL_ISA_AMX && sl_ops[c->op].rate != SL_CLASS_VECTOR;
}

/* Of those, convolutions are held to the reference here. */
static bool is_convolution(sl_op op)
{
    return op == SL_OP_CONV2D || op == SL_OP_CONV2D_GRAD_INPUT || op == SL_OP_CONV2D_GRAD_WEIGHT;
}

/* Runs a case on all variants of the device; `first` gets the first one's layout, to be freed by the caller. */
static void run_everywhere(const op_case *c, variant v, typing t, layout *first)
{
    test_device devices[MAX_TEST_DEVICES];
    int count = test_devices(devices);
    layout before;
    make_layout(c, v, t, &before);
    *first = (layout){ 0 };
    for (int i = 0; i < count; i++) {
        const bool own_bits = has_bits_of_its_own(c, &devices[i]);
        if (own_bits && !is_convolution(c->op)) continue;
        if (!devices[i].backend->supports(c->op)) continue; /* for a reason: op_kernels.h */
        layout l;
        make_layout(c, v, t, &l);
        sluice_status st = run_layout(&devices[i], &l);
        CHECK_THAT(st == SLUICE_OK, "%s, %s: %s", case_name(c, &l), devices[i].name, sluice_error());
        const bool alike = i > 0 && !own_bits && test_same_bits(&devices[i], &devices[0]);
        if (!alike && st == SLUICE_OK) check_reference(c, &devices[i], &before, &l);
        if (i == 0) {
            *first = l;
            continue;
        }
        if (alike) check_same_bits(c, &devices[i], first, &l, devices[0].name);
        test_image_free(&l.image);
    }
    test_image_free(&before.image);
}

static void run_and_free(const op_case *c, variant v, typing t)
{
    layout first;
    run_everywhere(c, v, t, &first);
    test_image_free(&first.image);
}

/* ---- Tests ---- */

/* Why an op has no kernel, NULL where it has one. */
static const struct {
    const char *cpu, *cuda;
} without_kernel[SL_OP_COUNT] = {
#define WHY_TYPED(workspace)   NULL
#define WHY_UNTYPED(workspace) NULL
#define WHY_KERNEL(workspace)  NULL
#define WHY_NO_KERNEL(why)     why
#define SL_OP_KERNEL(op, name, cpu_, cpu_why, cuda_, cuda_why)                                                         \
    [SL_OP_##op] = { .cpu = WHY_##cpu_(cpu_why), .cuda = WHY_##cuda_(cuda_why) },
#include "backend/op_kernels.h"
};

static void check_kernel(const sl_backend *backend, int op, const char *why)
{
    bool has = !sl_ops[op].view && backend->supports((sl_op)op);
    if (has == (why != NULL))
        test_fail(__FILE__, __LINE__, "%s on %s: %s", sl_ops[op].name, backend->name,
                  has ? "has a kernel, and a reason why not" : "no kernel and no reason why");
    if (why != NULL) CHECK(strlen(why) > 10);
}

TEST(every_op_has_a_kernel_on_every_backend_or_a_reason_why_not)
{
    for (int op = 0; op < SL_OP_COUNT; op++) {
        check_kernel(&sl_cpu_backend, op, without_kernel[op].cpu);
#if defined(SL_TEST_CUDA_EMULATED)
        check_kernel(&sl_emulated_cuda_backend, op, without_kernel[op].cuda);
#endif
    }
}

TEST(every_op_that_computes_has_a_reference_and_a_case)
{
    for (int op = 0; op < SL_OP_COUNT; op++) {
        if (sl_ops[op].view || sl_ops[op].phase == SL_PHASE_UPDATE) continue;
        bool found = false;
        for (int i = 0; i < CASE_COUNT; i++) found = found || (int)cases[i].op == op;
        CHECK_THAT(found, "no case for %s in op_cases.h", sl_ops[op].name);
        CHECK_THAT(reference_has((sl_op)op), "no reference for %s", sl_ops[op].name);
    }
}

TEST(results_are_close_to_the_reference_and_equal_in_bits_on_every_path_in_every_type)
{
    for (int i = 0; i < CASE_COUNT; i++)
        for (int t = 0; t < TYPES; t++) run_and_free(&cases[i], PLAIN, types[t]);
}

/* All but one round once: rounds_twice. */
TEST(accumulating_ops_add_to_what_is_there_and_round_once)
{
    for (int i = 0; i < CASE_COUNT; i++)
        for (int t = 0; t < TYPES && sl_op_accumulates(cases[i].op); t++)
            run_and_free(&cases[i], ACCUMULATING, types[t]);
}

TEST(gradients_of_parameters_may_have_another_type_than_activations)
{
    for (int i = 0; i < CASE_COUNT; i++)
        for (int t = 0; t < MIXED && sl_ops[cases[i].op].wide_outputs != 0; t++) {
            run_and_free(&cases[i], PLAIN, mixed_types[t]);
            run_and_free(&cases[i], ACCUMULATING, mixed_types[t]);
        }
}

static void check_taking_over(const op_case *c, typing t)
{
    layout plain, taken;
    run_everywhere(c, PLAIN, t, &plain);
    run_everywhere(c, IN_PLACE, t, &taken);
    check_same_bits(c, &(test_device){ .name = "in place" }, &plain, &taken, "out of place");
    test_image_free(&plain.image);
    test_image_free(&taken.image);
}

/* The planner hands over bytes only where there are equally many. */
static bool can_take_over(const op_case *c, typing t)
{
    int input = sl_op_in_place(c->op);
    if (input < 0 || !sl_shape_equal(&c->in[input], &c->out[0])) return false;
    return sl_form_element_bytes(input_form(c, t, input)) == sl_form_element_bytes(output_form(c, t, 0));
}

TEST(taking_over_an_input_changes_no_bit)
{
    for (int i = 0; i < CASE_COUNT; i++) {
        for (int t = 0; t < TYPES; t++)
            if (can_take_over(&cases[i], types[t])) check_taking_over(&cases[i], types[t]);
        for (int t = 0; t < MIXED && sl_ops[cases[i].op].wide_outputs != 0; t++)
            if (can_take_over(&cases[i], mixed_types[t])) check_taking_over(&cases[i], mixed_types[t]);
    }
}

/* ---- Outputs that are not wanted ---- */

/* A state that the node changes and need not read. */
static bool changes_state(const op_case *c, int k)
{
    const bool state = k > 0 && sl_ops[c->op].saved[k - 1].kind == SL_SAVED_STATE;
    return state && !sl_ops[c->op].only_evaluates && !sl_ops[c->op].kept && !c->evaluation &&
           !c->attrs.batch_norm.frozen;
}

/* A gradient that nobody may want. What a convolution's is for says the weight's shape; ranks wait for what others gather. */
static bool is_optional_gradient(const op_case *c, int k)
{
    const bool first = c->op == SL_OP_CONV2D_GRAD_WEIGHT || sl_ops[c->op].gathers;
    return sl_ops[c->op].phase == SL_PHASE_BACKWARD && !sl_ops[c->op].kept && (k > 0 || !first);
}

/* Bit k: a node may be without output k, or some run of it does not write it. */
static unsigned may_be_absent(const op_case *c)
{
    unsigned absent = 0;
    for (int k = 0; k < c->outputs; k++) {
        const bool serves = sl_ops[c->op].phase == SL_PHASE_FORWARD && sl_op_serves_backward(c->op, k);
        absent |= (unsigned)(is_optional_gradient(c, k) || changes_state(c, k) || serves) << k;
    }
    return absent;
}

/* The case as the one node of a graph. Operands are its values in order. */
typedef struct lone_node {
    sluice_graph graph;
    sl_value values[SL_MAX_OPERANDS];
    sl_node node;
} lone_node;

static void make_lone_node(const op_case *c, const layout *l, unsigned absent, lone_node *n)
{
    *n = (lone_node){ .node = { .op = c->op,
                                .phase = sl_ops[c->op].phase,
                                .attrs = l->attrs,
                                .layer = -1,
                                .input_count = c->inputs,
                                .output_count = c->outputs } };
    n->graph.values = n->values;
    n->graph.value_count = c->inputs + c->outputs;
    for (int i = 0; i < c->inputs; i++) {
        n->values[i] = (sl_value){ .shape = c->in[i], .dtype = (sluice_dtype)l->call.input_forms[i] };
        n->node.inputs[i] = i;
    }
    for (int k = 0; k < c->outputs; k++) {
        const bool state = k > 0 && sl_ops[c->op].saved[k - 1].kind == SL_SAVED_STATE;
        n->values[c->inputs + k] = (sl_value){ .shape = c->out[k],
                                               .dtype = (sluice_dtype)l->call.output_forms[k],
                                               .kind = state ? SL_VALUE_STATE : SL_VALUE_ACTIVATION };
        n->node.outputs[k] = absent >> k & 1u && !state ? -1 : c->inputs + k; /* a graph has all states */
    }
}

/* The call as the kernel gets it asks for what it did when it was planned, without memory; every run can do with it. */
static void check_workspace(const op_case *c, const test_device *device, const layout *l, unsigned absent)
{
    lone_node n;
    sl_shape shapes[SL_MAX_OPERANDS];
    sl_call planned;
    make_lone_node(c, l, absent, &n);
    sl_node_call(&n.graph, &n.node, ~absent & ((1u << c->outputs) - 1), l->call.context, shapes, &planned);
    const uint64_t needed = device->backend->workspace(&l->call);
    const uint64_t asked = device->backend->workspace(&planned);
    const uint64_t reserved = sl_node_workspace(&n.graph, &n.node, l->call.context, device->backend->workspace);
    CHECK_THAT(needed == asked && needed <= reserved,
               "%s, %s, without outputs %#x: %llu bytes of workspace, planned %llu, reserved %llu", case_name(c, l),
               device->name, absent, (unsigned long long)needed, (unsigned long long)asked,
               (unsigned long long)reserved);
}

/* `all` has every output that the case wants. What is left out stays poison: test_run looks at it. */
static void run_without(const op_case *c, const test_device *device, typing t, const layout *all, unsigned absent)
{
    layout l;
    make_layout(c, PLAIN, t, &l);
    for (int k = 0; k < c->outputs; k++)
        if (absent >> k & 1u) test_leave_out(&l.call, k);
    sluice_status st = run_layout(device, &l);
    CHECK_THAT(st == SLUICE_OK, "%s, %s, without outputs %#x: %s", case_name(c, &l), device->name, absent,
               sluice_error());
    for (int k = 0; k < c->outputs && st == SLUICE_OK; k++) {
        const sl_span s = l.call.outputs[k];
        CHECK_THAT(s.bytes == 0 || memcmp(all->image.bytes + s.offset, l.image.bytes + s.offset, s.bytes) == 0,
                   "%s, %s, without outputs %#x: output %d has other bits", case_name(c, &l), device->name, absent, k);
    }
    test_image_free(&l.image);
}

static void check_all_subsets(const op_case *c, const test_device *device, typing t, bool runs)
{
    const unsigned all = (1u << c->outputs) - 1, optional = may_be_absent(c);
    layout whole;
    make_layout(c, PLAIN, t, &whole);
    whole.call.attrs = &whole.attrs;
    const sl_call call = whole.call;
    if (runs) REQUIRE_OK(run_layout(device, &whole));
    for (unsigned absent = 0; absent < all; absent++) { /* one output is there */
        if ((absent & ~optional) != 0 || (c->absent & ~absent) != 0) continue;
        for (int k = 0; k < c->outputs; k++)
            if (absent >> k & 1u) test_leave_out(&whole.call, k);
        check_workspace(c, device, &whole, absent);
        whole.call = call;
        if (runs) run_without(c, device, t, &whole, absent);
    }
    test_image_free(&whole.image);
}

/* Whether it is the first one of its op that takes little time. */
static bool stands_for_its_op(int index)
{
    int first = 0, elements = 0;
    while (first < index && (cases[first].op != cases[index].op || cases[first].absent != 0 || cases[first].evaluation))
        first++;
    for (int i = 0; i < cases[index].inputs; i++) elements += (int)sl_shape_elements(&cases[index].in[i]);
    return first == index && elements < 20000;
}

/* On the first device of each backend: the others have the same kernels. */
TEST(whichever_outputs_are_absent_a_kernel_needs_what_was_planned_and_gives_the_same_bits)
{
    test_device devices[MAX_TEST_DEVICES];
    const int count = test_devices(devices);
    for (int d = 0; d < count; d++) {
        if (d > 0 && test_same_bits(&devices[d], &devices[d - 1])) continue;
        for (int i = 0; i < CASE_COUNT; i++) {
            if (may_be_absent(&cases[i]) == 0 || !devices[d].backend->supports(cases[i].op)) continue;
            for (int t = 0; t < 2; t++) check_all_subsets(&cases[i], &devices[d], types[t], stands_for_its_op(i));
        }
    }
}

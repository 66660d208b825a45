/* cuts_test.c: a layer's flat buffer cut into runs at multiples of 1,024 elements, as ranks own it, gives the bits of
 * the whole: updates of every rule, and the leaves of the norm. Each run lies by itself between poison, so that a
 * kernel which looks beyond its run is found out. */
#include "test.h"

#include "core/bytes.h"
#include "core/norm_nodes.h"
#include "support/op_harness.h"

enum { MAX_RUNS = 16, GRADIENT = 0, WEIGHT = 1, ARRAYS = 2 + SL_MAX_STATE_SLOTS };
#define ELEMENTS ((int64_t)100 * SL_CUT_ELEMENTS + 333)

/* A run of `count` elements as a parameter of one row. */
#define SEGMENT(offset_, count_, group_)                                                                               \
    {                                                                                                                  \
        .offset = (offset_), .count = (count_), .group = (group_), .rows = 1, .columns = (count_)                      \
    }

/* Parameters of three groups with a gap; 6,144, 48,128 and 79,872 lie between parameters and are multiples of 1,024. */
static const sl_update_segment segments[] = {
    SEGMENT(0, 5000, 0),      SEGMENT(5000, 1144, 1), SEGMENT(6144, 40000, 1), SEGMENT(46144, 1984, 2),
    SEGMENT(48128, 31744, 0), SEGMENT(79872, 1, 2),   SEGMENT(79900, 700, 0),  SEGMENT(80600, ELEMENTS - 80600, 1),
};
#define SEGMENTS ((int)(sizeof segments / sizeof segments[0]))

static void fill_context(sl_run_context *run)
{
    *run = (sl_run_context){ .group_count = 3, .loss_scale = 1.0 };
    for (int i = 0; i < 3; i++) {
        float lr = 0.01f * (float)(i + 1);
        run->groups[i] = (sl_group_scalars){ .rate = lr,
                                             .weight_decay = 0.1f * (float)i,
                                             .beta1 = 0.9f,
                                             .beta2 = 0.999f,
                                             .epsilon = 1e-8f,
                                             .momentum = 0.9f,
                                             .dampening = 0.25f,
                                             .one_minus_beta1 = 0.1f,
                                             .one_minus_beta2 = 0.001f,
                                             .bias2_sqrt = 0.0447f,
                                             .decay_factor = 1.0f - lr * 0.1f * (float)i,
                                             .trust = 0.02f,
                                             .trust_min = 0.01f,
                                             .trust_max = 10.0f };
    }
}

/* Element `i` of array `k` of the layer. */
static float number(int k, int64_t i)
{
    test_random r = { (uint64_t)i * 16 + (uint64_t)k };
    test_uniform(&r, 0.0, 1.0);
    double x = test_uniform(&r, -1.0, 1.0);
    return (float)(k > WEIGHT + 1 ? fabs(x) : x);
}

/* The layer's arrays laid out run by run; run i is elements [bounds[i], bounds[i + 1]). */
typedef struct cut_layer {
    test_image image;
    sl_span norm, arrays[MAX_RUNS][ARRAYS];
    const int64_t *bounds;
    int runs;
    sl_run_context context;
    sl_attrs attrs;
    sl_call calls[MAX_RUNS];
} cut_layer;

static void lay_runs(cut_layer *l)
{
    for (int i = 0; i < l->runs; i++)
        for (int k = 0; k < 2 + sl_updates[l->attrs.update->kind].slots; k++) {
            int64_t n = l->bounds[i + 1] - l->bounds[i];
            l->arrays[i][k] = test_image_add(&l->image, n);
            float *x = test_floats(&l->image, l->arrays[i][k]);
            for (int64_t e = 0; e < n; e++) x[e] = number(k, l->bounds[i] + e);
        }
}

static void call_runs(cut_layer *l)
{
    for (int i = 0; i < l->runs; i++) {
        sl_call *c = &l->calls[i];
        *c = (sl_call){ .op = SL_OP_UPDATE, .attrs = &l->attrs, .context = &l->context, .name = "run" };
        c->first = l->bounds[i];
        c->input_count = 2;
        c->inputs[0] = l->arrays[i][GRADIENT];
        c->inputs[1] = l->norm;
        c->output_count = 2 + sl_updates[l->attrs.update->kind].slots;
        c->outputs[0] = l->arrays[i][WEIGHT]; /* f32: no rest */
        for (int k = 0; k < sl_updates[l->attrs.update->kind].slots; k++)
            c->outputs[2 + k] = l->arrays[i][WEIGHT + 1 + k];
    }
}

static void open_layer(cut_layer *l, const sl_update_rule *rule, const int64_t *bounds, int runs)
{
    sl_norm_result norm = { 3.0, 0.37f, 1 };
    memset(l, 0, sizeof *l);
    l->attrs.update = rule;
    l->bounds = bounds;
    l->runs = runs;
    fill_context(&l->context);
    l->norm = test_image_add(&l->image, sizeof norm / 4);
    memcpy(test_floats(&l->image, l->norm), &norm, sizeof norm);
    lay_runs(l);
    call_runs(l);
}

static int64_t differing_elements(const cut_layer *whole, const cut_layer *cut)
{
    int64_t differ = 0;
    for (int k = 0; k < 2 + sl_updates[whole->attrs.update->kind].slots; k++)
        for (int i = 0; i < cut->runs; i++) {
            const float *x = test_floats(&whole->image, whole->arrays[0][k]) + cut->bounds[i];
            const float *y = test_floats(&cut->image, cut->arrays[i][k]);
            for (int64_t e = 0; e < cut->bounds[i + 1] - cut->bounds[i]; e++)
                differ += memcmp(&x[e], &y[e], sizeof(float)) != 0;
        }
    return differ;
}

static int64_t moved_weights(const cut_layer *whole)
{
    int64_t moved = 0;
    const float *w = test_floats(&whole->image, whole->arrays[0][WEIGHT]);
    for (int64_t e = 0; e < ELEMENTS; e++) moved += w[e] != number(WEIGHT, e);
    return moved;
}

static const int64_t uncut[2] = { 0, ELEMENTS };

/* The whole against the cut, both from the same numbers. */
static void check_cut(sl_update_kind kind, const test_device *device, const int64_t *bounds, int runs)
{
    static cut_layer whole, cut;
    sl_update_rule rule = { .kind = kind, .segments = segments, .segment_count = SEGMENTS };
    const char *name = sl_updates[kind].name;
    open_layer(&whole, &rule, uncut, 1);
    open_layer(&cut, &rule, bounds, runs);
    sluice_status st = test_run(device, &whole.image, whole.calls, 1);
    if (st == SLUICE_OK) st = test_run(device, &cut.image, cut.calls, runs);
    CHECK_THAT(st == SLUICE_OK, "%s on %s: %s", name, device->name, sluice_error());
    int64_t differ = differing_elements(&whole, &cut), moved = moved_weights(&whole);
    if (st == SLUICE_OK && (differ > 0 || moved < ELEMENTS * 9 / 10))
        test_fail(__FILE__, __LINE__, "%s on %s in %d runs: %lld elements differ, %lld weights moved", name,
                  device->name, runs, (long long)differ, (long long)moved);
    test_image_free(&whole.image);
    test_image_free(&cut.image);
}

/* Increasing multiples of the cut, then the uneven end. */
static int random_cuts(test_random *r, int64_t bounds[MAX_RUNS + 1])
{
    int runs = 0;
    bounds[0] = 0;
    while (runs < MAX_RUNS - 1) {
        int64_t next = bounds[runs] + SL_CUT_ELEMENTS * (int64_t)test_uniform(r, 1.0, 34.0);
        if (next >= ELEMENTS) break;
        bounds[++runs] = next;
    }
    bounds[++runs] = ELEMENTS;
    return runs;
}

TEST(an_update_of_runs_gives_the_bits_of_the_whole_layer)
{
    test_device devices[MAX_TEST_DEVICES];
    int count = test_devices(devices);
    test_random r = { 7 };
    for (int d = 0; d < count; d++)
        for (int kind = 0; kind < SL_UPDATE_KIND_COUNT; kind++) {
            int64_t bounds[MAX_RUNS + 1];
            if (sl_updates[kind].whole_parameters) continue;
            int runs = random_cuts(&r, bounds);
            check_cut((sl_update_kind)kind, &devices[d], bounds, runs);
        }
}

TEST(lamb_and_lars_give_the_bits_of_the_whole_layer_on_runs_of_whole_parameters)
{
    static const int64_t bounds[] = { 0, 6144, 48128, 79872, ELEMENTS };
    test_device devices[MAX_TEST_DEVICES];
    int count = test_devices(devices);
    for (int d = 0; d < count; d++)
        for (int kind = 0; kind < SL_UPDATE_KIND_COUNT; kind++)
            if (sl_updates[kind].whole_parameters) check_cut((sl_update_kind)kind, &devices[d], bounds, 4);
}

/* Runs one call of a cut layer on both backends and expects the same refusal. */
static void check_refusal(cut_layer *l, const char *message)
{
    const sl_backend *const backends[] = { &sl_cpu_backend, &sl_null_backend };
    for (int i = 0; i < 2; i++) {
        sl_device_options options = { .threads = 1, .isa = sl_isa_best() };
        sl_device *d;
        REQUIRE_OK(backends[i]->open(&options, &d));
        REQUIRE_OK(backends[i]->reserve(d, SL_TIER_DEVICE, l->image.size));
        CHECK_EQ(backends[i]->run(d, SL_STREAM_UPDATE, &l->calls[0]), SLUICE_ERR_FAILED);
        CHECK_CONTAINS(sluice_error(), message);
        backends[i]->close(d);
    }
}

TEST(lamb_and_lars_are_refused_a_part_of_a_parameter)
{
    static const int64_t head[] = { 0, 46 * SL_CUT_ELEMENTS }, tail[] = { 7168, 48128 };
    static cut_layer l;
    for (int kind = 0; kind < SL_UPDATE_KIND_COUNT; kind++) {
        sl_update_rule rule = { .kind = (sl_update_kind)kind, .segments = segments, .segment_count = SEGMENTS };
        if (!sl_updates[kind].whole_parameters) continue;
        open_layer(&l, &rule, head, 1);
        check_refusal(&l, "update run: elements 0 to 47104 of the layer cut the parameter at 46144 to 48128");
        test_image_free(&l.image);
        open_layer(&l, &rule, tail, 1);
        check_refusal(&l, "elements 7168 to 48128 of the layer cut the parameter at 6144 to 46144");
        test_image_free(&l.image);
    }
}

TEST(a_run_with_a_wrong_start_or_a_short_operand_is_refused)
{
    static const int64_t bounds[] = { 1024, 4096 };
    static cut_layer l;
    sl_update_rule rule = { .kind = SL_UPDATE_adam_l2, .segments = segments, .segment_count = SEGMENTS };
    open_layer(&l, &rule, bounds, 1);
    l.calls[0].first = 1000;
    check_refusal(&l, "a run cannot begin at element 1000");
    l.calls[0].first = -1024;
    check_refusal(&l, "a run cannot begin at element -1024");
    l.calls[0].first = 1024;
    l.calls[0].outputs[3].bytes -= 4;
    check_refusal(&l, "an operand is shorter than the weights' 3072 elements");
    l.calls[0].output_count = 3;
    check_refusal(&l, "2 inputs and 3 outputs, for 2 states");
    test_image_free(&l.image);
}

TEST(an_update_needs_the_remainder_of_the_master_that_goes_with_its_weights)
{
    static const int64_t bounds[] = { 0, 2048 };
    static cut_layer l;
    const struct {
        sl_form weights, rest;
        uint64_t weight_bytes, rest_bytes;
        const char *message;
    } wrong[] = {
        { SL_FORM_F32, SL_FORM_F32, 8192, 8192, "f32 weights with 8192 bytes of f32 as the remainder" },
        { SL_FORM_BF16, SL_FORM_REMAINDER, 4096, 0, "bf16 weights with 0 bytes of remainder" },
        { SL_FORM_BF16, SL_FORM_F32, 4096, 8192, "bf16 weights with 8192 bytes of f32" },
        { SL_FORM_F16, SL_FORM_REMAINDER, 4096, 4096, "f16 weights with 4096 bytes of remainder" },
        { SL_FORM_BF16, SL_FORM_REMAINDER, 4096, 4094, "shorter than the weights' 2048 elements" },
        { SL_FORM_F16, SL_FORM_F32, 4096, 4096, "shorter than the weights' 2048 elements" },
        { SL_FORM_BLOCKS8, SL_FORM_F32, 4096, 0, "weights in blocks" },
    };
    sl_update_rule rule = { .kind = SL_UPDATE_adam_l2, .segments = segments, .segment_count = SEGMENTS };
    open_layer(&l, &rule, bounds, 1);
    sl_call *c = &l.calls[0];
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        c->output_forms[0] = wrong[i].weights;
        c->output_forms[1] = wrong[i].rest;
        c->outputs[0].bytes = wrong[i].weight_bytes;
        c->outputs[1] = (sl_span){ SL_TIER_DEVICE, c->outputs[0].offset, wrong[i].rest_bytes };
        check_refusal(&l, wrong[i].message);
    }
    test_image_free(&l.image);
}

/* One f32 block and one of 8 bits: 4 bytes an element, and one with an exponent before them. */
TEST(a_state_in_blocks_must_be_as_long_as_its_layer_says)
{
    static const int64_t bounds[] = { 1024, 1024 + 2048 };
    static const sl_range wide[] = { { 1, 1 } };
    static const sl_layer layer = { .element_count = 5 * 1024, .wide_blocks = wide, .wide_block_runs = 1 };
    static cut_layer l;
    sl_update_rule rule = { .kind = SL_UPDATE_sgd_momentum, .segments = segments, .segment_count = SEGMENTS };
    open_layer(&l, &rule, bounds, 1);
    sl_call *c = &l.calls[0];
    c->output_forms[2] = SL_FORM_BLOCKS8;
    check_refusal(&l, "shorter"); /* no layer to say how long */
    rule.layer = &layer;
    c->outputs[2].bytes = 4096 + 4 + 1024 - 1;
    check_refusal(&l, "shorter");
    c->outputs[2].bytes++;
    sl_device_options options = { .threads = 1 };
    sl_device *d;
    REQUIRE_OK(sl_null_backend.open(&options, &d));
    REQUIRE_OK(sl_null_backend.reserve(d, SL_TIER_DEVICE, l.image.size));
    CHECK_EQ(sl_null_backend.run(d, SL_STREAM_UPDATE, c), SLUICE_OK);
    sl_null_backend.close(d);
    test_image_free(&l.image);
}

/* Leaves of elements [bounds[i], bounds[i + 1]) of the gradient, run by run. */
static sluice_status norm_leaves(const test_device *device, const int64_t *bounds, int runs, double *leaves)
{
    test_image image = { 0 };
    sl_call calls[MAX_RUNS] = { 0 };
    for (int i = 0; i < runs; i++) {
        int64_t n = bounds[i + 1] - bounds[i];
        calls[i] = (sl_call){ .op = SL_OP_NORM_LEAVES, .input_count = 1, .output_count = 1, .name = "leaves" };
        calls[i].inputs[0] = test_image_add(&image, n);
        calls[i].outputs[0] = test_image_add(&image, 2 * sl_ceil_div(n, SL_CUT_ELEMENTS));
        float *x = test_floats(&image, calls[i].inputs[0]);
        for (int64_t e = 0; e < n; e++) x[e] = number(GRADIENT, bounds[i] + e);
    }
    sluice_status st = test_run(device, &image, calls, runs);
    for (int i = 0; i < runs && st == SLUICE_OK; i++)
        memcpy(leaves + bounds[i] / SL_CUT_ELEMENTS, test_floats(&image, calls[i].outputs[0]),
               calls[i].outputs[0].bytes);
    test_image_free(&image);
    return st;
}

TEST(leaves_of_the_norm_of_runs_are_those_of_the_whole_layer)
{
    enum { LEAVES = 101 };
    test_device devices[MAX_TEST_DEVICES];
    int count = test_devices(devices);
    test_random r = { 11 };
    double whole[LEAVES], cut[LEAVES];
    for (int d = 0; d < count; d++) {
        int64_t bounds[MAX_RUNS + 1];
        int runs = random_cuts(&r, bounds);
        REQUIRE_OK(norm_leaves(&devices[d], uncut, 1, whole));
        REQUIRE_OK(norm_leaves(&devices[d], bounds, runs, cut));
        CHECK(memcmp(whole, cut, sizeof whole) == 0);
        CHECK(whole[LEAVES - 1] > 0.0);
    }
}

TEST(a_run_of_leaves_must_begin_at_one_and_fill_the_nodes_it_makes)
{
    static const struct {
        int64_t first;
        uint64_t nodes;
        const char *message;
    } wrong[] = { { 3 * 1024, 3, "norm_combine leaves: 5 leaves from element 3072 on do not make 3 sums of the tree" },
                  { 3 * 1024, 1, "5 leaves from element 3072 on do not make 1 sums" },
                  { 3 * 1024 + 1, 2, "5 leaves from element 3073" },
                  { -1024, 2, "5 leaves from element -1024" } };
    sl_device_options options = { .threads = 1 };
    sl_device *d;
    sl_call c = { .op = SL_OP_NORM_COMBINE, .input_count = 1, .output_count = 1, .name = "leaves", .first = 3 * 1024 };
    c.inputs[0] = (sl_span){ SL_TIER_DEVICE, 0, 5 * sizeof(double) };
    c.outputs[0] = (sl_span){ SL_TIER_DEVICE, 256, 2 * sizeof(sl_norm_node) }; /* leaf 3, and 4 to 7 */
    REQUIRE_OK(sl_null_backend.open(&options, &d));
    REQUIRE_OK(sl_null_backend.reserve(d, SL_TIER_DEVICE, 4096));
    CHECK_EQ(sl_null_backend.run(d, SL_STREAM_COMPUTE, &c), SLUICE_OK);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        c.first = wrong[i].first;
        c.outputs[0].bytes = wrong[i].nodes * sizeof(sl_norm_node);
        CHECK_EQ(sl_null_backend.run(d, SL_STREAM_COMPUTE, &c), SLUICE_ERR_FAILED);
        CHECK_CONTAINS(sluice_error(), wrong[i].message);
    }
    sl_null_backend.close(d);
}

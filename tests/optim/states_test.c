/* states_test.c: updates on every form of weights, gradients and moments: the f32 arithmetic between a decoding and an
 * encoding, the same on every instruction path, for all cuts and threads; and random rounding that lets small changes
 * of a moment through on average. */
#include <assert.h>

#include "core/alloc.h"
#include "core/blocks8.h"
#include "core/bytes.h"
#include "core/half.h"
#include "core/rounding.h"
#include "ir/form.h"
#include "support/optim_fixture.h"

enum { N = 34 * 1024 + 301, STEP = 5, SEED = 77 };
#define FIRST_ELEMENT (UINT64_C(1) << 33 | UINT64_C(7 * 1024))

/* Blocks 1, 2 and 33 keep f32. */
static const sl_range wide_runs[] = { { 1, 2 }, { 33, 1 } };
static sl_layer layer = { .name = "layer", .element_count = N, .wide_blocks = wide_runs, .wide_block_runs = 2 };
/* Groups change inside a block, at its end, and nowhere in most. */
static const sl_update_segment segments[] = { SEGMENT(0, 3000, 0),     SEGMENT(3000, 77, 1),
                                              SEGMENT(3077, 19, 1),    SEGMENT(3096, 2024, 0),
                                              SEGMENT(5120, 1024, 1),  SEGMENT(6144, 15, 0),
                                              SEGMENT(6159, 20000, 0), SEGMENT(26159, N - 26159, 1) };

/* What an update reads and writes, in the forms of a case, with the same numbers in f32 beside it. */
typedef struct operands {
    sl_form gradient_form, weights_form, states_form;
    sluice_dtype wire;
    uint8_t gradient[N * 4], weights[N * 4], rest[N * 4], slot[SL_MAX_STATE_SLOTS][N * 4];
} operands;

static void put16(uint8_t *bytes, int64_t i, uint16_t x)
{
    memcpy(bytes + i * 2, &x, sizeof x);
}

static uint16_t get16(const uint8_t *bytes, int64_t i)
{
    uint16_t x;
    memcpy(&x, bytes + i * 2, sizeof x);
    return x;
}

static void put_f32(uint8_t *bytes, int64_t i, float x)
{
    memcpy(bytes + i * 4, &x, sizeof x);
}

static float get_f32(const uint8_t *bytes, int64_t i)
{
    float x;
    memcpy(&x, bytes + i * 4, sizeof x);
    return x;
}

/* ---- A state slot as floats and back, by the plain definitions ---- */

typedef void (*block_fn)(sl_form form, uint8_t *bytes, int64_t first, int64_t n, void *user);

/* Calls with the bytes of each block, of BLOCKS8 as narrow or wide as it is. */
static void each_block(sl_form form, uint8_t *slot, block_fn call, void *user)
{
    for (int64_t at = 0; at < N; at += SL_CUT_ELEMENTS) {
        sl_form here = form == SL_FORM_BLOCKS8 && sl_block_is_wide(&layer, at / SL_CUT_ELEMENTS) ? SL_FORM_F32 : form;
        call(here, slot + sl_form_bytes(form, &layer, 0, at), at, N - at < SL_CUT_ELEMENTS ? N - at : SL_CUT_ELEMENTS,
             user);
    }
}

typedef struct slot_work {
    const sl_update_rule *rule;
    int slot;
    float *values;
} slot_work;

static void decode_block(sl_form form, uint8_t *bytes, int64_t first, int64_t n, void *user)
{
    const slot_work *w = user;
    float *x = w->values + first;
    if (form == SL_FORM_BLOCKS8) sl_blocks8_decode(bytes, (size_t)n, sl_slot_is_signed(w->rule->kind, w->slot), x);
    for (int64_t i = 0; i < n && form != SL_FORM_BLOCKS8; i++)
        x[i] = form == SL_FORM_F32 ? get_f32(bytes, i) : sl_bf16_to_float(get16(bytes, i));
}

static uint16_t bf16_at_random(float x, uint32_t random)
{
    uint32_t bits = sl_float_bits(x), sum = (bits & 0x7fffffffu) + random;
    if (sum > 0x7f7fffffu) sum = 0x7f7fffffu;
    return (uint16_t)((sum | (bits & 0x80000000u)) >> 16);
}

static void encode_block(sl_form form, uint8_t *bytes, int64_t first, int64_t n, void *user)
{
    const slot_work *w = user;
    const float *x = w->values + first;
    sl_rounding_key key = sl_rounding_key_of(SEED, STEP, (FIRST_ELEMENT + (uint64_t)first) / SL_CUT_ELEMENTS);
    uint32_t random[SL_CUT_ELEMENTS];
    for (int64_t i = 0; i < n; i++) {
        uint32_t hash = sl_rounding_hash(key, (uint32_t)i);
        random[i] = sl_rounding_bits(hash, w->slot, form == SL_FORM_BF16 ? 16 : 20);
        if (form == SL_FORM_F32) put_f32(bytes, i, x[i]);
        if (form == SL_FORM_BF16) put16(bytes, i, bf16_at_random(x[i], random[i]));
    }
    if (form == SL_FORM_BLOCKS8)
        sl_blocks8_encode_random(x, (size_t)n, sl_slot_is_signed(w->rule->kind, w->slot), random, bytes);
}

static void slot_floats(const sl_update_rule *rule, operands *o, int slot, float *values)
{
    slot_work w = { rule, slot, values };
    each_block(o->states_form, o->slot[slot], decode_block, &w);
}

static void slot_from_floats(const sl_update_rule *rule, operands *o, int slot, float *values)
{
    slot_work w = { rule, slot, values };
    each_block(o->states_form, o->slot[slot], encode_block, &w);
}

/* ---- Weights and gradients likewise ---- */

static float gradient_float(const operands *o, int64_t i)
{
    if (o->gradient_form == SL_FORM_BF16) return sl_bf16_to_float(get16(o->gradient, i));
    if (o->gradient_form == SL_FORM_F16) return sl_f16_to_float(get16(o->gradient, i));
    float x = get_f32(o->gradient, i);
    if (o->wire == SLUICE_BF16) return sl_bf16_to_float(sl_float_to_bf16(x));
    return o->wire == SLUICE_F16 ? sl_f16_to_float(sl_float_to_f16(x)) : x;
}

static float weight_float(const operands *o, int64_t i)
{
    if (o->weights_form == SL_FORM_BF16) return sl_bits_float(sl_weight_join(get16(o->weights, i), get16(o->rest, i)));
    return get_f32(o->weights_form == SL_FORM_F16 ? o->rest : o->weights, i);
}

static void put_weight(operands *o, int64_t i, float x)
{
    if (o->weights_form == SL_FORM_BF16) {
        put16(o->weights, i, sl_weight_high(sl_float_bits(x)));
        put16(o->rest, i, sl_weight_low(sl_float_bits(x)));
    } else if (o->weights_form == SL_FORM_F16) {
        put16(o->weights, i, sl_float_to_f16(x));
        put_f32(o->rest, i, x);
    } else {
        put_f32(o->weights, i, x);
    }
}

/* Ordinary numbers over some binades; second moments not negative. In half of the cases some moments are zero or very
 * small beside others of their block. */
static void fill(operands *o, const sl_update_rule *rule, uint32_t seed)
{
    static float values[N];
    bool wide = seed / 16 % 2 == 0;
    for (uint32_t i = 0; i < N; i++) {
        float scale = ldexpf(1.0f, -(int)(hash_bits(seed, i) % 9)), g = hashed(seed + 1, i) * scale;
        if (o->gradient_form == SL_FORM_BF16) put16(o->gradient, i, sl_float_to_bf16(g));
        if (o->gradient_form == SL_FORM_F16) put16(o->gradient, i, sl_float_to_f16(g));
        if (o->gradient_form == SL_FORM_F32) put_f32(o->gradient, i, g);
        put_weight(o, i, hashed(seed + 2, i));
    }
    for (int s = 0; s < sl_updates[rule->kind].slots; s++) {
        for (uint32_t i = 0; i < N; i++) {
            values[i] =
                hashed(seed + 3 + (uint32_t)s, i) * ldexpf(1.0f, -(int)(hash_bits(seed + 9, i) % (wide ? 24 : 8)));
            if (!sl_slot_is_signed(rule->kind, s)) values[i] = fabsf(values[i]);
            if (wide && hash_bits(seed + 10, i) % 13 == 0) values[i] = 0.0f;
        }
        slot_from_floats(rule, o, s, values);
    }
}

/* ---- Running ---- */

static const sl_norm_result clipped = { 3.0, 0.37f, 1 };

/* Elements [first, first + n) of the layer. */
static void run_part(const sl_kernel *kernels, sl_pool *pool, const sl_update_rule *rule, operands *o, int64_t first,
                     int64_t n, sl_norm_result norm)
{
    sl_attrs attrs = { .update = rule };
    sl_run_context run = { .seed = SEED, .step = STEP };
    sl_kernel_args a = { .attrs = &attrs, .context = &run, .pool = pool, .wire = o->wire, .first = first };
    sl_form rest = o->weights_form == SL_FORM_BF16 ? SL_FORM_REMAINDER : SL_FORM_F32;
    fill_groups(&run);
    a.in[0] = (sl_tensor){ o->gradient + sl_form_bytes(o->gradient_form, &layer, 0, first), NULL, n, o->gradient_form };
    a.in[1] = (sl_tensor){ &norm, NULL, (int64_t)(sizeof norm / 4), SL_FORM_F32 };
    a.out[0] = (sl_tensor){ o->weights + sl_form_bytes(o->weights_form, &layer, 0, first), NULL, n, o->weights_form };
    if (o->weights_form != SL_FORM_F32)
        a.out[1] = (sl_tensor){ o->rest + sl_form_bytes(rest, &layer, 0, first), NULL, n, rest };
    for (int s = 0; s < sl_updates[rule->kind].slots; s++)
        a.out[2 + s] =
            (sl_tensor){ o->slot[s] + sl_form_bytes(o->states_form, &layer, 0, first), NULL, n, o->states_form };
    kernels[SL_OP_UPDATE](&a);
}

static sl_update_rule rule_of(size_t variant)
{
    sl_update_rule rule = (sl_update_rule){ .kind = (sl_update_kind)variant };
    rule.layer = &layer;
    rule.first_element = FIRST_ELEMENT;
    rule.segments = segments;
    rule.segment_count = (int)(sizeof segments / sizeof segments[0]);
    return rule;
}

/* The definition: everything to f32, the f32 update of plain C, everything back. */
static void expected_step(sl_pool *pool, const sl_update_rule *rule, operands *o)
{
    static operands f;
    static float values[SL_MAX_STATE_SLOTS][N];
    f.gradient_form = f.weights_form = f.states_form = SL_FORM_F32;
    f.wire = SLUICE_F32;
    for (int64_t i = 0; i < N; i++) {
        put_f32(f.gradient, i, gradient_float(o, i));
        put_f32(f.weights, i, weight_float(o, i));
    }
    for (int s = 0; s < sl_updates[rule->kind].slots; s++) {
        slot_floats(rule, o, s, values[s]);
        memcpy(f.slot[s], values[s], sizeof values[s]);
    }
    run_part(kernels_of(SL_ISA_SCALAR), pool, rule, &f, 0, N, clipped);
    for (int64_t i = 0; i < N; i++) put_weight(o, i, get_f32(f.weights, i));
    for (int s = 0; s < sl_updates[rule->kind].slots; s++) {
        memcpy(values[s], f.slot[s], sizeof values[s]);
        slot_from_floats(rule, o, s, values[s]);
    }
}

static void compare(const char *rule, const char *path, const operands *a, const operands *b)
{
    if (memcmp(a, b, sizeof *a) == 0) return;
    const uint8_t *x = (const uint8_t *)a, *y = (const uint8_t *)b;
    size_t at = 0;
    while (x[at] == y[at]) at++;
    test_fail(__FILE__, __LINE__, "%s, %s, gradient %s (%s), weights %s, states %s: byte %zu of %zu", rule, path,
              sl_form_name(a->gradient_form), sl_dtype_name(a->wire), sl_form_name(a->weights_form),
              sl_form_name(a->states_form), at, sizeof *a);
}

typedef void (*case_fn)(const char *name, const sl_update_rule *rule, const operands *input, sl_pool *pool);

/* Calls for every rule with every form that it may have. */
static void each_case(case_fn call, int threads)
{
    static const struct {
        sl_form form;
        sluice_dtype wire;
    } reads[] = { { SL_FORM_F32, SLUICE_F32 },
                  { SL_FORM_F32, SLUICE_BF16 },
                  { SL_FORM_F32, SLUICE_F16 },
                  { SL_FORM_BF16, SLUICE_BF16 },
                  { SL_FORM_F16, SLUICE_F16 } };
    static const sl_form weights[] = { SL_FORM_F32, SL_FORM_BF16, SL_FORM_F16 },
                         states[] = { SL_FORM_F32, SL_FORM_BF16, SL_FORM_BLOCKS8 };
    static operands input;
    sl_pool *pool;
    REQUIRE_OK(sl_pool_create(threads, &pool));
    for (size_t v = 0; v < SL_UPDATE_KIND_COUNT; v++) {
        sl_update_rule rule = rule_of(v);
        const sl_update_def *def = &sl_updates[rule.kind];
        for (int r = 0; r < 5; r++)
            for (int w = 0; w < 3; w++)
                for (int s = 0; s < (def->whole_parameters || def->slots == 0 ? 1 : 3); s++) {
                    memset(&input, 0, sizeof input);
                    input.gradient_form = reads[r].form;
                    input.wire = reads[r].wire;
                    input.weights_form = weights[w];
                    input.states_form = states[s];
                    fill(&input, &rule, (uint32_t)(v * 45 + (size_t)(r * 9 + w * 3 + s)) * 16);
                    call(sl_updates[v].name, &rule, &input, pool);
                }
    }
    sl_pool_destroy(pool);
}

static void check_paths(const char *name, const sl_update_rule *rule, const operands *input, sl_pool *pool)
{
    static operands expected, got;
    expected = *input;
    expected_step(pool, rule, &expected);
    CHECK(memcmp(expected.weights, input->weights, sizeof expected.weights) != 0);
    for (int path = 0; path < PATH_COUNT; path++) {
        if (kernels_on(path) == NULL) continue;
        got = *input;
        run_part(kernels_on(path), pool, rule, &got, 0, N, clipped);
        compare(name, path_name(path), &expected, &got);
    }
}

TEST(updates_of_every_form_are_the_f32_update_between_decoding_and_encoding)
{
    each_case(check_paths, 2);
}

/* ---- Into other memory than the old values ---- */

/* As run_part of all elements, reading `from` and writing got, by way of memory whose lines are whole; norm NULL: there is
 * none, and the loss scale is 64. */
static void run_aside(const sl_kernel *kernels, sl_pool *pool, const sl_update_rule *rule, operands *from,
                      sl_norm_result *norm, operands *got)
{
    static _Alignas(64) uint8_t out[2 + SL_MAX_STATE_SLOTS][sizeof got->weights];
    sl_attrs attrs = { .update = rule };
    sl_run_context run = { .seed = SEED, .step = STEP };
    const int slots = sl_updates[rule->kind].slots;
    const sl_form rest = from->weights_form == SL_FORM_BF16 ? SL_FORM_REMAINDER : SL_FORM_F32;
    sl_kernel_args a = { .attrs = &attrs, .context = &run, .pool = pool, .wire = from->wire };
    uint8_t *old[2 + SL_MAX_STATE_SLOTS] = { from->weights, from->rest },
                     *to[2 + SL_MAX_STATE_SLOTS] = { got->weights, got->rest };
    fill_groups(&run);
    run.loss_scale = 64;
    memset(out, 0xa5, sizeof out);
    a.input_count = 4 + slots;
    a.in[0] = (sl_tensor){ from->gradient, NULL, N, from->gradient_form };
    if (norm != NULL) a.in[1] = (sl_tensor){ norm, NULL, (int64_t)(sizeof *norm / 4), SL_FORM_F32 };
    for (int k = 0; k < 2 + slots; k++) {
        const sl_form form = k == 0 ? from->weights_form : k == 1 ? rest : from->states_form;
        if (k > 1) old[k] = from->slot[k - 2], to[k] = got->slot[k - 2];
        if (k == 1 && from->weights_form == SL_FORM_F32) continue;
        a.out[k] = (sl_tensor){ out[k], NULL, N, form };
        if (k > 0 || form != SL_FORM_F16) a.in[2 + k] = (sl_tensor){ old[k], NULL, N, form };
    }
    kernels[SL_OP_UPDATE](&a);
    for (int k = 0; k < 2 + slots; k++)
        if (a.out[k].data != NULL) memcpy(to[k], out[k], (size_t)sl_form_bytes(a.out[k].form, &layer, 0, N));
}

/* A step that is clipped, one that is skipped, and one that nobody has decided about. */
static void check_aside(const char *name, const sl_update_rule *rule, const operands *input, sl_pool *pool)
{
    static const sl_update_segment whole[] = { SEGMENT(0, N, 0) },
                                   gaps[] = { SEGMENT(5, 1003, 0), SEGMENT(2000, N - 2500, 1) };
    static operands expected, got, old;
    for (int k = 0; k < 4; k++) {
        sl_update_rule r = *rule;
        sl_norm_result norms[4] = { clipped, { 0, 0, 0 }, { 0, 1.0f / 64, 1 }, clipped };
        if (k == 0 || k == 2) r.segments = whole, r.segment_count = 1;
        if (k == 3) r.segments = gaps, r.segment_count = 2;
        for (int path = 0; path < SL_ISA_COUNT; path++) {
            if (kernels_on(path) == NULL) continue;
            expected = got = old = *input;
            run_part(kernels_on(path), pool, &r, &expected, 0, N, norms[k]);
            run_aside(kernels_on(path), pool, &r, &old, k != 2 ? &norms[k] : NULL, &got);
            if (k == 3 && input->weights_form == SL_FORM_F16) /* only written, and where there are parameters */
                memcpy(got.weights, expected.weights, sizeof got.weights);
            compare(name, path_name(path), &expected, &got);
            compare(name, "the old values", input, &old);
        }
    }
}

TEST(updates_into_other_memory_are_those_in_place_and_leave_the_old_values)
{
    each_case(check_aside, 2);
}

/* ---- More parameters and more changes between narrow and wide blocks than a GPU's launch can be told of at once ---- */

enum { MANY = 1100 };

/* Short parameters in two groups, some with a gap before them; a long one at the end. */
static int many_segments(sl_update_segment *s)
{
    int64_t at = 0;
    for (uint32_t i = 0; i < MANY; i++) {
        if (hash_bits(21, i) % 5 == 0) at += 1 + hash_bits(22, i) % 9;
        s[i] = (sl_update_segment)SEGMENT(at, 1 + hash_bits(23, i) % 50, (int)(hash_bits(24, i) % 2));
        at += s[i].count;
    }
    assert(at < N);
    s[MANY] = (sl_update_segment)SEGMENT(at, N - at, 1);
    return MANY + 1;
}

TEST(updates_of_many_parameters_are_those_of_few)
{
    static operands input, expected, got;
    static sl_update_segment many[MANY + 1];
    static const sl_form forms[][2] = { { SL_FORM_F32, SL_FORM_F32 },
                                        { SL_FORM_BF16, SL_FORM_BF16 },
                                        { SL_FORM_BF16, SL_FORM_BLOCKS8 } };
    sl_range wide[16];
    const sl_layer few = layer;
    sl_pool *pool;
    REQUIRE_OK(sl_pool_create(2, &pool));
    for (int i = 0; i < 16; i++) wide[i] = (sl_range){ 2 * i + 1, 1 };
    layer.wide_blocks = wide;
    layer.wide_block_runs = 16;
    for (size_t v = 0; v < SL_UPDATE_KIND_COUNT; v++) {
        sl_update_rule rule = rule_of(v);
        const sl_update_def *def = &sl_updates[rule.kind];
        rule.segment_count = many_segments(many);
        rule.segments = many;
        for (int f = 0; f < (def->whole_parameters || def->slots == 0 ? 1 : 3); f++) {
            memset(&input, 0, sizeof input);
            input.gradient_form = input.weights_form = forms[f][0];
            input.wire = (sluice_dtype)forms[f][0];
            input.states_form = forms[f][1];
            fill(&input, &rule, (uint32_t)(500 + v * 16 + (size_t)f));
            expected = input;
            expected_step(pool, &rule, &expected);
            for (int path = 0; path < PATH_COUNT; path++) {
                if (kernels_on(path) == NULL) continue;
                got = input;
                run_part(kernels_on(path), pool, &rule, &got, 0, N, clipped);
                compare(sl_updates[v].name, path_name(path), &expected, &got);
            }
        }
    }
    layer = few;
    sl_pool_destroy(pool);
}

/* LAMB and LARS want whole parameters, so their cuts are elsewhere tested. */
static void check_cuts(const char *name, const sl_update_rule *rule, const operands *input, sl_pool *pool)
{
    static const int64_t cuts[] = { 0, 1024, 4096, 5120, 31 * 1024, 34 * 1024, N };
    static operands expected, got;
    if (sl_updates[rule->kind].whole_parameters) return;
    expected = *input;
    run_part(kernels_of(sl_isa_best()), pool, rule, &expected, 0, N, clipped);
    for (int path = sl_isa_best(); path < PATH_COUNT; path++) {
        if (kernels_on(path) == NULL) continue;
        got = *input;
        for (int i = 5; i >= 0; i--)
            run_part(kernels_on(path), pool, rule, &got, cuts[i], cuts[i + 1] - cuts[i], clipped);
        compare(name, "cut", &expected, &got);
    }
}

TEST(updates_of_every_form_do_not_depend_on_cuts_or_threads)
{
    each_case(check_cuts, 3);
}

static void check_skipped(const char *name, const sl_update_rule *rule, const operands *input, sl_pool *pool)
{
    static operands got;
    for (int path = sl_isa_best(); path < PATH_COUNT; path++) {
        if (kernels_on(path) == NULL) continue;
        got = *input;
        run_part(kernels_on(path), pool, rule, &got, 0, N, (sl_norm_result){ INFINITY, 0.0f, 0 });
        compare(name, "skipped", input, &got);
    }
}

TEST(a_skipped_step_changes_no_byte_of_any_form)
{
    each_case(check_skipped, 1);
}

/* They may be a passing buffer that holds nothing yet. */
TEST(a_skipped_step_still_writes_f16_weights_from_their_master)
{
    static operands o, expected;
    sl_pool *pool;
    REQUIRE_OK(sl_pool_create(2, &pool));
    for (size_t v = 0; v < SL_UPDATE_KIND_COUNT; v++)
        for (int path = sl_isa_best(); path < PATH_COUNT; path++) {
            sl_update_rule rule = rule_of(v);
            if (kernels_on(path) == NULL) continue;
            o = (operands){ .weights_form = SL_FORM_F16, .states_form = SL_FORM_F32, .gradient_form = SL_FORM_F16 };
            fill(&o, &rule, 3);
            expected = o;
            memset(o.weights, 0x7f, N * 2);
            run_part(kernels_on(path), pool, &rule, &o, 0, N, (sl_norm_result){ INFINITY, 0.0f, 0 });
            compare(sl_updates[v].name, path_name(path), &expected, &o);
        }
    sl_pool_destroy(pool);
}

/* AdamW written out, one element at a time, with bf16 weights and gradient: exact bits. */
TEST(adamw_on_halves_is_adamw_on_their_master)
{
    static operands o, before;
    static float m[N], v[N];
    sl_update_rule rule = rule_of(SL_UPDATE_adam_decoupled);
    sl_run_context run = { 0 };
    sl_pool *pool;
    REQUIRE_OK(sl_pool_create(2, &pool));
    fill_groups(&run);
    o = (operands){ .gradient_form = SL_FORM_BF16, .wire = SLUICE_BF16, .weights_form = SL_FORM_BF16 };
    o.states_form = SL_FORM_F32;
    fill(&o, &rule, 1);
    before = o;
    slot_floats(&rule, &o, 0, m);
    slot_floats(&rule, &o, 1, v);
    run_part(kernels_of(sl_isa_best()), pool, &rule, &o, 0, N, clipped);
    for (int64_t i = 0; i < N; i++) {
        int group = (i >= 3000 && i < 3096) || (i >= 5120 && i < 6144) || i >= 26159;
        const sl_group_scalars *s = &run.groups[group];
        float g = gradient_float(&before, i) * clipped.factor, w = weight_float(&before, i) * s->decay_factor;
        m[i] = fmaf(s->beta1, m[i], s->one_minus_beta1 * g);
        v[i] = fmaf(s->one_minus_beta2 * g, g, s->beta2 * v[i]);
        w = fmaf(-s->rate, m[i] / fmaf(sqrtf(v[i]), 1.0f / s->bias2_sqrt, s->epsilon), w);
        CHECK(weight_float(&o, i) == w && get_f32(o.slot[0], i) == m[i] && get_f32(o.slot[1], i) == v[i]);
        CHECK_EQ(get16(o.weights, i), (sl_float_bits(w) + 0x8000u) >> 16);
    }
    sl_pool_destroy(pool);
}

/* ---- Random rounding, on average ---- */

enum { M = 64 * 1024 };
static const sl_layer narrow_layer = { .name = "narrow", .element_count = M };

/* Adam without bias correction or weights worth naming, on M equal elements. */
typedef struct adam_states {
    sl_form form;
    float beta1, beta2;
    uint64_t step;
    float weights[M], gradient[M];
    uint8_t slot[2][M * 4];
} adam_states;

static void adam_step(adam_states *t, float g, sl_pool *pool)
{
    sl_update_segment segment = SEGMENT(0, M, 0);
    sl_update_rule rule = { .kind = SL_UPDATE_adam_l2, .layer = &narrow_layer, .segments = &segment };
    sl_attrs attrs = { .update = &rule };
    sl_run_context run = { .seed = SEED, .step = ++t->step, .group_count = 1 };
    sl_norm_result norm = { 1.0, 1.0f, 1 };
    sl_kernel_args a = { .attrs = &attrs, .context = &run, .pool = pool };
    rule.segment_count = 1;
    run.groups[0] = (sl_group_scalars){ .beta1 = t->beta1, .beta2 = t->beta2, .epsilon = 1e-8f, .bias2_sqrt = 1.0f };
    run.groups[0].one_minus_beta1 = 1.0f - t->beta1;
    run.groups[0].one_minus_beta2 = 1.0f - t->beta2;
    for (int i = 0; i < M; i++) t->gradient[i] = g;
    a.in[0] = (sl_tensor){ t->gradient, NULL, M, SL_FORM_F32 };
    a.in[1] = (sl_tensor){ &norm, NULL, (int64_t)(sizeof norm / 4), SL_FORM_F32 };
    a.out[0] = (sl_tensor){ t->weights, NULL, M, SL_FORM_F32 };
    for (int s = 0; s < 2; s++) a.out[2 + s] = (sl_tensor){ t->slot[s], NULL, M, t->form };
    kernels_of(sl_isa_best())[SL_OP_UPDATE](&a);
}

static void adam_slot(const adam_states *t, int slot, float *values)
{
    for (int64_t at = 0; at < M; at += SL_CUT_ELEMENTS) {
        const uint8_t *bytes = t->slot[slot] + sl_form_bytes(t->form, &narrow_layer, 0, at);
        if (t->form == SL_FORM_BLOCKS8) sl_blocks8_decode(bytes, SL_CUT_ELEMENTS, slot == 0, values + at);
        for (int64_t i = 0; i < SL_CUT_ELEMENTS && t->form == SL_FORM_BF16; i++)
            values[at + i] = sl_bf16_to_float(get16(bytes, i));
    }
}

static double mean_of(const float *x)
{
    double sum = 0.0;
    for (int i = 0; i < M; i++) sum += (double)x[i];
    return sum / M;
}

static const sl_form random_forms[] = { SL_FORM_BF16, SL_FORM_BLOCKS8 };

/* With betas of zero the moments are the gradient and its square. */
TEST(moments_rounded_at_random_are_right_on_average)
{
    static adam_states t;
    static float m[M], v[M];
    static const float gradients[] = { 0.7311f, -1.0049f, 3.3e-5f, -7.77e8f };
    sl_pool *pool;
    REQUIRE_OK(sl_pool_create(2, &pool));
    for (int f = 0; f < 2; f++)
        for (int k = 0; k < 4; k++) {
            t = (adam_states){ .form = random_forms[f], .step = (uint64_t)k * 10 };
            adam_step(&t, gradients[k], pool);
            adam_slot(&t, 0, m);
            adam_slot(&t, 1, v);
            double g = (double)gradients[k], unit = f == 0 ? 1.0 / 128 : 1.0 / 8, allowed = 6 * 0.5 * unit / sqrt(M);
            CHECK(fabs(mean_of(m) / g - 1.0) < allowed);
            CHECK(fabs(mean_of(v) / (g * g) - 1.0) < allowed);
        }
    sl_pool_destroy(pool);
}

/* Whether moments were rounded up, as +1 and -1, for the correlation of two such choices. */
static double agreement(const float *a, double mean_a, const float *b, double mean_b)
{
    double sum = 0.0;
    for (int i = 0; i < M; i++) sum += ((double)a[i] > mean_a) == ((double)b[i] > mean_b) ? 1.0 : -1.0;
    return fabs(sum) / sqrt(M);
}

TEST(slots_steps_and_neighbours_are_rounded_independently)
{
    static adam_states t;
    static float m[M], v[M], later[M], shifted[M];
    sl_pool *pool;
    REQUIRE_OK(sl_pool_create(2, &pool));
    for (int f = 0; f < 2; f++) {
        /* halfway between two codes, and so is the square, nearly */
        float g = f == 0 ? 1.01953125f : 1.0625f;
        t = (adam_states){ .form = random_forms[f] };
        adam_step(&t, g, pool);
        adam_slot(&t, 0, m);
        adam_slot(&t, 1, v);
        adam_step(&t, g, pool);
        adam_slot(&t, 0, later);
        for (int i = 0; i < M; i++) shifted[i] = m[(i + 1) % M];
        double square = (double)g * (double)g;
        CHECK(agreement(m, (double)g, later, (double)g) < 6.0);
        CHECK(agreement(m, (double)g, shifted, (double)g) < 6.0);
        if (f == 0) CHECK(agreement(m, (double)g, v, square) < sqrt(M) * 0.2);
        CHECK(memcmp(m, later, sizeof m) != 0);
    }
    sl_pool_destroy(pool);
}

/* A second moment whose gradients have ended falls by a part in 1,000 a step: less than half the distance of two codes,
 * so that to nearest it would stay for ever. */
TEST(a_second_moment_decays_on_average_where_nearest_rounding_would_hold_it)
{
    static adam_states t;
    static float v[M];
    sl_pool *pool;
    REQUIRE_OK(sl_pool_create(2, &pool));
    for (int f = 0; f < 2; f++) {
        t = (adam_states){ .form = random_forms[f], .beta1 = 0.9f, .beta2 = 0.0f };
        adam_step(&t, 1.0f, pool);
        t.beta2 = 0.999f;
        for (int step = 0; step < 300; step++) adam_step(&t, 0.0f, pool);
        adam_slot(&t, 1, v);
        double expected = pow((double)0.999f, 300.0);
        if (fabs(mean_of(v) / expected - 1.0) > 0.01)
            test_fail(__FILE__, __LINE__, "%s: %g, expected %g", sl_form_name(t.form), mean_of(v), expected);
    }
    float held[2] = { 1.0f, 1.0f };
    for (int step = 0; step < 300; step++) {
        uint8_t block[SL_BLOCKS8_HEADER + 1];
        float x = 0.999f * held[1];
        held[0] = sl_bf16_to_float(sl_float_to_bf16(0.999f * held[0]));
        sl_blocks8_encode(&x, 1, false, block);
        sl_blocks8_decode(block, 1, false, &held[1]);
    }
    CHECK(held[0] == 1.0f && held[1] == 1.0f);
    sl_pool_destroy(pool);
}

/* Second moments so small beside their block's largest that they are less than a code, and moments past every code;
 * with f32 and with bf16 weights and gradients, which take other ways through the kernels. */
TEST(moments_stay_above_zero_and_finite)
{
    static operands o, got;
    static float values[N];
    sl_update_rule rule = rule_of(SL_UPDATE_adam_decoupled);
    sl_pool *pool;
    REQUIRE_OK(sl_pool_create(1, &pool));
    for (int f = 0; f < 4; f++) {
        bool halves = f >= 2;
        memset(&o, 0, sizeof o);
        o.states_form = random_forms[f % 2];
        if (halves) o.gradient_form = o.weights_form = SL_FORM_BF16, o.wire = SLUICE_BF16;
        fill(&o, &rule, 5);
        for (int64_t i = 0; i < N; i++) {
            bool all_huge = i / SL_CUT_ELEMENTS % 2 == 1; /* in every second block */
            float g = all_huge || i % 8 == 0 ? (i % 16 ? 3.0e38f : 1.0e30f) : 1e-15f;
            if (halves)
                put16(o.gradient, i, sl_float_to_bf16(g));
            else
                put_f32(o.gradient, i, g);
        }
        for (int path = 0; path < PATH_COUNT; path++) {
            if (kernels_on(path) == NULL) continue;
            static operands expected;
            expected = got = o;
            expected_step(pool, &rule, &expected);
            run_part(kernels_on(path), pool, &rule, &got, 0, N, clipped);
            compare("huge", path_name(path), &expected, &got);
        }
        slot_floats(&rule, &got, 1, values);
        for (int64_t i = 0; i < N; i++)
            CHECK(values[i] > 0.0f && (values[i] < INFINITY || sl_block_is_wide(&layer, i / SL_CUT_ELEMENTS)));
    }
    sl_pool_destroy(pool);
}

/* ---- Sums, norms and casts of every form ---- */

enum { L = 40 * 1024 + 77 };

/* Zeros, denormals of every type, halves between neighbours, what overflows f16, infinities, NaN. */
static float any_float(uint32_t i)
{
    static const uint32_t special[] = { 0u,          0x80000000u, 1u,          0x80000001u, 0x7f800000u,
                                        0xff800000u, 0x7fc00000u, 0x7f800001u, 0xffffffffu, 0x7f7fffffu,
                                        0x477fefffu, 0x477ff000u, 0x33000000u, 0x33000001u, 0x387fffffu,
                                        0x3f808000u, 0x3f818000u, 0x3f801000u, 0x3f803000u };
    if (i < sizeof special / sizeof special[0]) return sl_bits_float(special[i]);
    return i % 3 == 0 ? hashed(3, i) * ldexpf(1.0f, (int)(i % 60) - 40) : sl_bits_float(hash_bits(4, i));
}

static float form_get(sl_form form, const uint8_t *bytes, int64_t i)
{
    if (form == SL_FORM_F32) return get_f32(bytes, i);
    return form == SL_FORM_BF16 ? sl_bf16_to_float(get16(bytes, i)) : sl_f16_to_float(get16(bytes, i));
}

static void form_put(sl_form form, uint8_t *bytes, int64_t i, float x)
{
    if (form == SL_FORM_F32) put_f32(bytes, i, x);
    if (form == SL_FORM_BF16) put16(bytes, i, sl_float_to_bf16(x));
    if (form == SL_FORM_F16) put16(bytes, i, sl_float_to_f16(x));
}

static const sl_form float_forms[] = { SL_FORM_F32, SL_FORM_BF16, SL_FORM_F16 };

/* out = x, or out + x in f32, in the form of out. */
static void check_cast(const sl_kernel *kernels, sl_pool *pool, sl_form from, sl_form to, bool accumulate)
{
    static uint8_t in[L * 4], out[L * 4], expected[L * 4];
    sl_attrs attrs = { .accumulate = accumulate };
    sl_run_context run = { 0 };
    sl_kernel_args a = { .attrs = &attrs, .context = &run, .pool = pool, .input_count = 1, .output_count = 1 };
    memset(out, 0, sizeof out);
    memset(expected, 0, sizeof expected);
    for (uint32_t i = 0; i < L; i++) {
        float x = any_float(i), before = accumulate ? hashed(8, i) : 0.0f;
        form_put(from, in, i, x);
        form_put(to, out, i, before);
        float sum = form_get(to, out, i) + form_get(from, in, i);
        form_put(to, expected, i, accumulate ? sum : form_get(from, in, i));
    }
    a.in[0] = (sl_tensor){ in, NULL, L, from };
    a.out[0] = (sl_tensor){ out, NULL, L, to };
    kernels[SL_OP_CAST](&a);
    for (int64_t i = 0; i < L; i++) { /* a sum of NaNs may have either's bits */
        float x = form_get(to, out, i), y = form_get(to, expected, i);
        if (accumulate && isnan(x) && isnan(y)) form_put(to, out, i, y);
    }
    if (memcmp(out, expected, sizeof out) != 0)
        test_fail(__FILE__, __LINE__, "%s to %s%s", sl_form_name(from), sl_form_name(to), accumulate ? ", added" : "");
}

TEST(casts_have_the_bits_of_the_plain_conversions_on_every_path)
{
    sl_pool *pool;
    REQUIRE_OK(sl_pool_create(2, &pool));
    for (int path = 0; path < PATH_COUNT; path++)
        for (int k = 0; k < 18 && kernels_on(path) != NULL; k++)
            check_cast(kernels_on(path), pool, float_forms[k % 3], float_forms[k / 3 % 3], k >= 9);
    sl_pool_destroy(pool);
}

TEST(contributions_of_every_form_add_up_in_f32)
{
    static uint8_t x[L * 4];
    static float sum[L], expected[L];
    sl_pool *pool;
    REQUIRE_OK(sl_pool_create(2, &pool));
    for (int path = 0; path < PATH_COUNT; path++)
        for (int f = 0; f < 3 && kernels_on(path) != NULL; f++) {
            for (uint32_t micro = 0; micro < 3; micro++) {
                sl_run_context run = { .micro = micro };
                sl_kernel_args a = { .context = &run, .pool = pool };
                for (uint32_t i = 0; i < L; i++) {
                    form_put(float_forms[f], x, i, hashed(micro, i));
                    float v = form_get(float_forms[f], x, i);
                    expected[i] = micro == 0 ? v : expected[i] + v;
                }
                a.in[0] = (sl_tensor){ x, NULL, L, float_forms[f] };
                a.out[0] = (sl_tensor){ sum, NULL, L, SL_FORM_F32 };
                kernels_on(path)[SL_OP_ACCUMULATE](&a);
            }
            CHECK(memcmp(sum, expected, sizeof sum) == 0);
        }
    sl_pool_destroy(pool);
}

static void leaves_of(const sl_kernel *kernels, sl_pool *pool, const void *x, sl_form form, sluice_dtype wire,
                      double *out)
{
    sl_kernel_args a = { .pool = pool, .wire = wire };
    a.in[0] = (sl_tensor){ (void *)(uintptr_t)x, NULL, L, form };
    a.out[0] = (sl_tensor){ out, NULL, sl_ceil_div(L, SL_CUT_ELEMENTS), SL_FORM_F32 };
    kernels[SL_OP_NORM_LEAVES](&a);
}

/* A gradient's leaves are those of the f32 numbers that the update reads. */
TEST(norms_are_of_the_gradient_as_the_update_reads_it)
{
    static operands o;
    static float plain[L];
    static uint8_t x[L * 4];
    double expected[41], got[41];
    sl_pool *pool;
    REQUIRE_OK(sl_pool_create(2, &pool));
    for (int path = 0; path < PATH_COUNT; path++)
        for (int k = 0; k < 9 && kernels_on(path) != NULL; k++) {
            sl_form form = float_forms[k % 3], wire = float_forms[k / 3];
            for (uint32_t i = 0; i < L; i++) {
                form_put(form, x, i, hashed(11, i));
                plain[i] = form_get(form, x, i);
                if (form == SL_FORM_F32) form_put(wire, o.gradient, 0, plain[i]);
                if (form == SL_FORM_F32) plain[i] = form_get(wire, o.gradient, 0);
            }
            leaves_of(kernels_of(SL_ISA_SCALAR), pool, plain, SL_FORM_F32, SLUICE_F32, expected);
            leaves_of(kernels_on(path), pool, x, form, (sluice_dtype)wire, got);
            CHECK(memcmp(expected, got, sizeof got) == 0);
        }
    sl_pool_destroy(pool);
}

TEST(a_sum_that_the_wire_type_cannot_hold_is_not_finite)
{
    static float x[L];
    static const uint32_t bad[] = { 0x477ff000u, 0x7f7fffffu, 0x7fffffffu, 0x477fefffu }; /* 65520, the largest, NaN */
    static const bool in_f16[] = { false, false, false, true }, in_bf16[] = { true, false, false, true };
    double leaves[41];
    sl_pool *pool;
    REQUIRE_OK(sl_pool_create(2, &pool));
    for (int path = 0; path < PATH_COUNT; path++)
        for (int k = 0; k < 4 && kernels_on(path) != NULL; k++) {
            memset(x, 0, sizeof x);
            memcpy(&x[5], &bad[k], sizeof x[5]);
            leaves_of(kernels_on(path), pool, x, SL_FORM_F32, SLUICE_F16, leaves);
            CHECK(isfinite(leaves[0]) == in_f16[k]);
            leaves_of(kernels_on(path), pool, x, SL_FORM_F32, SLUICE_BF16, leaves);
            CHECK(isfinite(leaves[0]) == in_bf16[k]);
        }
    sl_pool_destroy(pool);
}

/* update_sweep.c: one pass over memory, for each rule.
 *
 * The sweep is written once and compiled for every rule on f32 operands, and for Adam and AdamW also on the forms that
 * 16-bit training has, converting in registers. Everything else is staged through f32 (update_stage.c). */
#include "backend/cpu/kernels/update.h"
#include "backend/cpu/kernels/update_rules.h"
#include "ir/form.h"

/* ---- Operands by form; forms are constants where these are used ---- */

ALWAYS_INLINE sl_v16 f32_get(const float *p, int64_t left)
{
    return left >= SL_LANES ? v16_load(p) : v16_load_part(p, left, 0.0f);
}

/* stream: past the caches, where all lanes are there. */
ALWAYS_INLINE void f32_put(float *p, sl_v16 x, int64_t left, bool stream)
{
    if (left < SL_LANES)
        v16_store_part(p, x, left);
    else if (stream)
        v16_stream(p, x);
    else
        v16_store(p, x);
}

ALWAYS_INLINE sl_v16 weight_get(sl_form form, const buffers *b, int64_t i, int64_t left)
{
    if (form == SL_FORM_BF16) return master_get((const uint16_t *)b->w + i, (const uint16_t *)b->rest + i, left);
    return f32_get((const float *)(form == SL_FORM_F16 ? b->rest : b->w) + i, left);
}

ALWAYS_INLINE void weight_put(sl_form form, const buffers *b, int64_t i, sl_v16 w, int64_t left, bool stream)
{
    uint16_t *halves = (uint16_t *)b->w + i;
    stream = stream && left >= SL_LANES;
    if (form == SL_FORM_BF16 && stream) {
        master_stream(halves, (uint16_t *)b->rest + i, w);
        return;
    }
    if (form == SL_FORM_BF16) {
        master_put(halves, (uint16_t *)b->rest + i, w, left);
        return;
    }
    f32_put((float *)(form == SL_FORM_F16 ? b->rest : b->w) + i, w, left, stream);
    if (form == SL_FORM_F16 && stream) f16_stream(halves, w);
    if (form == SL_FORM_F16 && !stream) f16_put(halves, w, left);
}

/* BLOCKS8 whose second moments are all normal: most are, and decode in half the time. */
#define SL_FORM_NORMAL8 SL_FORM_COUNT

/* Of Adam's slots: the second moments have no sign. */
ALWAYS_INLINE bool slot_is_signed(int slot)
{
    return slot == 0;
}

ALWAYS_INLINE sl_v16 slot_get(sl_form form, const buffers *b, int s, const codes_scale *scale, int64_t i, int64_t left)
{
    uint8_t lanes[SL_LANES] = { 0 };
    if (form == SL_FORM_F32) return f32_get((const float *)b->slot[s] + i, left);
    if (form == SL_FORM_BF16) return bf16_get((const uint16_t *)b->slot[s] + i, left, 0.0f);
    const uint8_t *codes = (const uint8_t *)b->slot[s] + SL_BLOCKS8_HEADER + i;
    if (left < SL_LANES) codes = memcpy(lanes, codes, (size_t)left);
    if (slot_is_signed(s)) return codes_load_signed(codes, scale);
    return form == SL_FORM_NORMAL8 ? codes_load_normal(codes, scale) : codes_load_unsigned(codes, scale);
}

ALWAYS_INLINE void slot_put(sl_form form, const buffers *b, int s, sl_b16 hash, int64_t i, sl_v16 x, int64_t left,
                            bool stream)
{
    if (form == SL_FORM_F32) f32_put((float *)b->slot[s] + i, x, left, stream);
    if (form == SL_FORM_BF16) bf16_put_random((uint16_t *)b->slot[s] + i, x, rounding_bits(hash, s, 16), left);
    if (form == SL_FORM_BLOCKS8 || form == SL_FORM_NORMAL8) f32_put(b->fresh[s] + i, x, left, false);
}

/* ---- The sweep ---- */

/* Sixteen elements from `i` on, or the `left` that remain, read from `from`, which may be b, and written to b. any_read:
 * the gradient's form is looked up in the buffers; otherwise it is f32. */
ALWAYS_INLINE void sweep_lanes(const buffers *b, const buffers *from, int64_t i, int64_t left, const coefficients *c,
                               const codes_scale *scales, int slots, cell_fn rule, bool any_read, sl_form weights,
                               sl_form states, bool stream)
{
    cell e;
    sl_b16 hash = b16_set1(0);
    sl_v16 g = gradient_get(any_read ? b->read : SL_READ_F32, b->g, i, left);
    e.w = weight_get(weights, from, i, left);
    for (int s = 0; s < slots; s++) e.s[s] = slot_get(states, from, s, &scales[s], i, left);
    rule(c, v16_mul(g, c->factor), &e);
    if (states == SL_FORM_BF16) hash = rounding_hash(b->key, b->words + i);
    weight_put(weights, b, i, e.w, left, stream);
    for (int s = 0; s < slots; s++) slot_put(states, b, s, hash, i, e.s[s], left, stream);
}

ALWAYS_INLINE void scales_fill(codes_scale *scales, const buffers *b, int slots, sl_form states)
{
    for (int s = 0; s < slots && (states == SL_FORM_BLOCKS8 || states == SL_FORM_NORMAL8); s++)
        scales[s] = codes_scale_of(b->exponent[s], slot_is_signed(s));
}

typedef void (*part_fn)(const buffers *b, int64_t i, int64_t left, const coefficients *c);

/* The body starts at a multiple of sixteen, so that its loads and stores are whole cache lines; `part` does what is
 * left before and behind it. */
ALWAYS_INLINE void sweep(const buffers *buf, int64_t first, int64_t count, const coefficients *coeff, part_fn part,
                         int slots, cell_fn rule, bool any_read, sl_form weights, sl_form states, bool aside)
{
    const buffers b = *buf, old = aside ? *buf->from : *buf;
    const coefficients c = *coeff; /* a copy whose address does not escape: it stays in registers */
    codes_scale scales[SL_MAX_STATE_SLOTS] = { 0 };
    scales_fill(scales, &b, slots, states);
    int64_t end = first + count, head = -first & (SL_LANES - 1);
    if (head > count) head = count;
    if (head > 0) part(buf, first, head, coeff);
    int64_t i = first + head;
    for (; i + SL_LANES <= end; i += SL_LANES)
        sweep_lanes(&b, aside ? &old : &b, i, SL_LANES, &c, scales, slots, rule, any_read, weights, states, aside);
    if (i < end) part(buf, i, end - i, coeff);
}

/* The part has a function of its own: it is long, and rarely runs. */
#define DEFINE_SWEEP(name_, slots_, rule_, any_read_, weights_, states_)                                               \
    DEFINE_SWEEP_OF(name_, slots_, rule_, any_read_, weights_, states_, false)
#define DEFINE_SWEEP_OF(name_, slots_, rule_, any_read_, weights_, states_, aside_)                                    \
    static                                                                                                             \
        __attribute__((noinline)) void part_##name_(const buffers *b, int64_t i, int64_t left, const coefficients *c)  \
    {                                                                                                                  \
        codes_scale scales[SL_MAX_STATE_SLOTS] = { 0 };                                                                \
        scales_fill(scales, b, slots_, states_);                                                                       \
        sweep_lanes(b, aside_ ? b->from : b, i, left, c, scales, slots_, rule_, any_read_, weights_, states_, false);  \
    }                                                                                                                  \
    static void sweep_##name_(const buffers *b, int64_t first, int64_t count, const coefficients *c)                   \
    {                                                                                                                  \
        sweep(b, first, count, c, part_##name_, slots_, rule_, any_read_, weights_, states_, aside_);                  \
    }
#define DEFINE_PLAIN(rule_, slots_, squares_) DEFINE_SWEEP(rule_, slots_, rule_, false, SL_FORM_F32, SL_FORM_F32)
#define NONE(rule_, slots_, squares_, norm_)
SL_UPDATE_RULES(DEFINE_PLAIN, NONE)
/* The second passes of LARS are elementwise sweeps too; LAMB's is further below. */
DEFINE_PLAIN(lars_plain, 0, 0)
DEFINE_PLAIN(lars_momentum, 1, 0)
DEFINE_PLAIN(lars_nesterov, 1, 0)

#if defined(SL_ISA_avx512) || defined(SL_ISA_avx2) /* plain C stages them: it is slow in any case */
#define DEFINE_ADAM(weights_, states_)                                                                                 \
    DEFINE_SWEEP(l2_##weights_##_##states_, 2, adam_l2, true, SL_FORM_##weights_, SL_FORM_##states_)                   \
    DEFINE_SWEEP(decoupled_##weights_##_##states_, 2, adam_decoupled, true, SL_FORM_##weights_, SL_FORM_##states_)
DEFINE_ADAM(BF16, F32)
DEFINE_ADAM(BF16, BF16)
DEFINE_ADAM(BF16, BLOCKS8)
DEFINE_ADAM(BF16, NORMAL8)
DEFINE_ADAM(F16, F32)
#define DEFINE_ASIDE(weights_)                                                                                         \
    DEFINE_SWEEP_OF(l2_aside_##weights_, 2, adam_l2, true, SL_FORM_##weights_, SL_FORM_F32, true)                      \
    DEFINE_SWEEP_OF(decoupled_aside_##weights_, 2, adam_decoupled, true, SL_FORM_##weights_, SL_FORM_F32, true)
DEFINE_ASIDE(F32)
DEFINE_ASIDE(BF16)
DEFINE_ASIDE(F16)

/* Adam's with moments in f32 that do not work in place, by the form of the weights. */
static const sweep_fn adam_aside[SL_FORM_COUNT][2] = {
    [SL_FORM_F32] = { sweep_l2_aside_F32, sweep_decoupled_aside_F32 },
    [SL_FORM_BF16] = { sweep_l2_aside_BF16, sweep_decoupled_aside_BF16 },
    [SL_FORM_F16] = { sweep_l2_aside_F16, sweep_decoupled_aside_F16 },
};

static sweep_fn aside_sweep(sl_update_kind kind, sl_form weights, sl_form states)
{
    if (!sl_update_reads_aside(kind, states)) return NULL;
    return adam_aside[weights][kind == SL_UPDATE_adam_decoupled];
}

/* Adam's on other forms. */
static const struct {
    sl_form weights, states;
    sweep_fn sweep[2]; /* L2 decay, decoupled decay */
} adam_forms[] = {
    { SL_FORM_BF16, SL_FORM_F32, { sweep_l2_BF16_F32, sweep_decoupled_BF16_F32 } },
    { SL_FORM_BF16, SL_FORM_BF16, { sweep_l2_BF16_BF16, sweep_decoupled_BF16_BF16 } },
    { SL_FORM_BF16, SL_FORM_BLOCKS8, { sweep_l2_BF16_BLOCKS8, sweep_decoupled_BF16_BLOCKS8 } },
    { SL_FORM_BF16, SL_FORM_NORMAL8, { sweep_l2_BF16_NORMAL8, sweep_decoupled_BF16_NORMAL8 } },
    { SL_FORM_F16, SL_FORM_F32, { sweep_l2_F16_F32, sweep_decoupled_F16_F32 } },
};

static sweep_fn adam_sweep(sl_update_kind kind, sl_form weights, sl_form states)
{
    if (kind != SL_UPDATE_adam_l2 && kind != SL_UPDATE_adam_decoupled) return NULL;
    for (size_t i = 0; i < sizeof adam_forms / sizeof adam_forms[0]; i++)
        if (adam_forms[i].weights == weights && adam_forms[i].states == states)
            return adam_forms[i].sweep[kind == SL_UPDATE_adam_decoupled];
    return NULL;
}
#else
static sweep_fn adam_sweep(sl_update_kind kind, sl_form weights, sl_form states)
{
    (void)kind, (void)weights, (void)states;
    return NULL;
}

static sweep_fn aside_sweep(sl_update_kind kind, sl_form weights, sl_form states)
{
    (void)kind, (void)weights, (void)states;
    return NULL;
}
#endif

/* The second pass of LAMB reads no gradient and writes only weights. */
static void sweep_lamb(const buffers *b, int64_t first, int64_t count, const coefficients *coeff)
{
    const coefficients c = *coeff;
    float *w = b->w;
    for (int64_t i = first, end = first + count; i < end; i += SL_LANES) {
        cell e;
        e.w = f32_get(w + i, end - i);
        for (int s = 0; s < 2; s++) e.s[s] = f32_get((const float *)b->slot[s] + i, end - i);
        lamb_apply(&c, e.w, &e);
        f32_put(w + i, e.w, end - i, false);
    }
}

/* ---- Measuring ---- */

/* Lanes from n on become zero: absent ones may be 0/0. */
ALWAYS_INLINE sl_v16 only_first(sl_v16 x, int64_t n)
{
    float lanes[SL_LANES];
    if (n >= SL_LANES) return x;
    v16_store(lanes, x);
    return v16_load_part(lanes, n, 0.0f);
}

/* LAMB's first pass renews the moments. */
static void measure_lamb(const buffers *b, int64_t first, int64_t count, const coefficients *coeff, double sums[2])
{
    const coefficients c = *coeff;
    sl_d16 weight = d16_zero(), direction = d16_zero();
    for (int64_t i = first, end = first + count; i < end; i += SL_LANES) {
        int64_t left = end - i;
        cell e;
        e.w = f32_get((const float *)b->w + i, left);
        for (int s = 0; s < 2; s++) e.s[s] = f32_get((const float *)b->slot[s] + i, left);
        moments(&c, v16_mul(f32_get((const float *)b->g + i, left), c.factor), &e);
        for (int s = 0; s < 2; s++) f32_put((float *)b->slot[s] + i, e.s[s], left, false);
        weight = d16_add_square(weight, e.w);
        direction = d16_add_square(direction, only_first(lamb_direction(&c, &e), left));
    }
    sums[0] = d16_sum(weight);
    sums[1] = d16_sum(direction);
}

/* LARS measures the weights and the unscaled, clipped gradient. */
static void measure_lars(const buffers *b, int64_t first, int64_t count, const coefficients *coeff, double sums[2])
{
    const sl_v16 factor = coeff->factor;
    sl_d16 weight = d16_zero(), gradient = d16_zero();
    for (int64_t i = first, end = first + count; i < end; i += SL_LANES) {
        weight = d16_add_square(weight, f32_get((const float *)b->w + i, end - i));
        gradient = d16_add_square(gradient, v16_mul(f32_get((const float *)b->g + i, end - i), factor));
    }
    sums[0] = d16_sum(weight);
    sums[1] = d16_sum(gradient);
}

/* ---- Which one ---- */

static const struct {
    sweep_fn plain;
    measure_fn measure;
} rules[SL_UPDATE_KIND_COUNT] = {
#define ELEMENTWISE(rule_, slots_, squares_)  [SL_UPDATE_##rule_] = { sweep_##rule_, NULL },
#define WHOLE(rule_, slots_, squares_, norm_) [SL_UPDATE_##rule_] = { sweep_##rule_, measure_##norm_ },
    SL_UPDATE_RULES(ELEMENTWISE, WHOLE)
};

sweeps KI(update_sweeps)(const sl_update_rule *rule, sl_read read, sl_form weights, sl_form states)
{
    sweeps found = { .plain = rules[rule->kind].plain, .measure = rules[rule->kind].measure };
    if (read == SL_READ_F32 && weights == SL_FORM_F32 && states == SL_FORM_F32)
        found.direct = found.plain;
    else
        found.direct = adam_sweep(rule->kind, weights, states);
    if (found.direct != NULL && states == SL_FORM_BLOCKS8)
        found.normal = adam_sweep(rule->kind, weights, SL_FORM_NORMAL8);
    found.aside = aside_sweep(rule->kind, weights, states);
    return found;
}

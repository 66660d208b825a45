/* update_stage.c: a block's operands in f32 and back, so that every rule works on every form: the conversions are as
 * wide as the caches' lines and never leave the innermost one. */
#include "backend/cpu/kernels/update.h"

#include "ir/form.h"

static size_t read_bytes(sl_read read)
{
    return read == SL_READ_BF16 || read == SL_READ_F16 ? sizeof(uint16_t) : sizeof(float);
}

static void *moved(void *p, int64_t elements, size_t each)
{
    return p == NULL ? NULL : (char *)p + (size_t)elements * each;
}

buffers KI(update_buffers)(const update_job *job, const place *p)
{
    buffers b = job->b;
    int64_t from = p->low - job->begin;
    b.g = (const char *)job->b.g + (size_t)from * read_bytes(b.read);
    b.w = moved(b.w, from, job->weights == SL_FORM_F32 ? sizeof(float) : sizeof(uint16_t));
    b.rest = moved(b.rest, from, job->weights == SL_FORM_F16 ? sizeof(float) : sizeof(uint16_t));
    for (int k = 0; k < job->slots; k++) b.slot[k] = (char *)b.slot[k] + p->offset;
    b.key = sl_rounding_key_of(job->context->seed, job->context->step,
                               (job->rule->first_element + (uint64_t)p->low) / SL_CUT_ELEMENTS);
    return b;
}

/* ---- In ---- */

static void stage_gradient(const buffers *b, int64_t n, float *out)
{
    for (int64_t i = 0; i < n; i += SL_LANES) v16_store(out + i, gradient_get(b->read, b->g, i, n - i));
}

static void stage_masters(const buffers *b, int64_t n, float *out)
{
    const uint16_t *high = b->w, *low = b->rest;
    for (int64_t i = 0; i < n; i += SL_LANES) v16_store(out + i, master_get(high + i, low + i, n - i));
}

static void stage_bf16(const uint16_t *p, int64_t n, float *out)
{
    for (int64_t i = 0; i < n; i += SL_LANES) v16_store(out + i, bf16_get(p + i, n - i, 0.0f));
}

ALWAYS_INLINE sl_v16 codes_load(const uint8_t *codes, bool is_signed, const codes_scale *scale)
{
    return is_signed ? codes_load_signed(codes, scale) : codes_load_unsigned(codes, scale);
}

static void stage_codes(const uint8_t *block, int64_t n, bool is_signed, float *out)
{
    int32_t exponent;
    uint8_t lanes[SL_LANES] = { 0 };
    memcpy(&exponent, block, sizeof exponent);
    const codes_scale scale = codes_scale_of(exponent, is_signed);
    const uint8_t *codes = block + SL_BLOCKS8_HEADER;
    int64_t i = 0;
    for (; i + SL_LANES <= n; i += SL_LANES) v16_store(out + i, codes_load(codes + i, is_signed, &scale));
    if (i == n) return;
    memcpy(lanes, codes + i, (size_t)(n - i));
    v16_store(out + i, codes_load(lanes, is_signed, &scale));
}

buffers KI(update_stage)(const update_job *job, const place *p, stage *s)
{
    buffers b = KI(update_buffers)(job, p);
    int64_t n = p->high - p->low;
    if (b.read != SL_READ_F32) {
        stage_gradient(&b, n, s->g);
        b.g = s->g;
    }
    if (job->weights == SL_FORM_BF16) stage_masters(&b, n, s->w);
    if (job->weights != SL_FORM_F32) b.w = job->weights == SL_FORM_BF16 ? s->w : b.rest;
    for (int k = 0; k < job->slots; k++) {
        if (p->states == SL_FORM_F32) continue;
        if (p->states == SL_FORM_BF16) stage_bf16(b.slot[k], n, s->slot[k]);
        if (p->states == SL_FORM_BLOCKS8) stage_codes(b.slot[k], n, sl_slot_is_signed(job->rule->kind, k), s->slot[k]);
        b.slot[k] = s->slot[k];
    }
    b.read = SL_READ_F32;
    return b;
}

/* ---- Out ---- */

static void unstage_masters(const buffers *b, int64_t n, const float *w)
{
    uint16_t *high = b->w, *low = b->rest;
    for (int64_t i = 0; i < n; i += SL_LANES) master_put(high + i, low + i, v16_load(w + i), n - i);
}

static void round_masters(const buffers *b, int64_t n)
{
    const float *master = b->rest;
    uint16_t *w = b->w;
    int64_t i = 0;
    for (; i + SL_LANES <= n; i += SL_LANES) f16_store(w + i, v16_load(master + i));
    if (i < n) f16_put(w + i, v16_load_part(master + i, n - i, 0.0f), n - i);
}

static void unstage_bf16(const buffers *b, const float *x, int64_t n, int slot)
{
    uint16_t *out = b->slot[slot];
    for (int64_t i = 0; i < n; i += SL_LANES) {
        sl_b16 hash = rounding_hash(b->key, b->words + i);
        bf16_put_random(out + i, v16_load(x + i), rounding_bits(hash, slot, 16), n - i);
    }
}

void KI(update_unstage)(const update_job *job, const place *p, stage *s)
{
    const buffers b = KI(update_buffers)(job, p);
    int64_t n = p->high - p->low;
    if (job->weights == SL_FORM_BF16) unstage_masters(&b, n, s->w);
    if (job->weights == SL_FORM_F16) round_masters(&b, n);
    for (int k = 0; k < job->slots && p->states == SL_FORM_BF16; k++) unstage_bf16(&b, s->slot[k], n, k);
    if (p->states == SL_FORM_BLOCKS8) KI(update_encode)(job->rule, &b, n, s);
}

/* ---- Encoding a block ---- */

/* Patterns: the largest of magnitudes; the smallest number, as signed. */
typedef struct extremes {
    uint32_t largest;
    int32_t smallest;
} extremes;

static extremes extremes_of(const float *x, int64_t n)
{
    sl_b16 mask = b16_set1(0x7fffffffu), largest = b16_set1(0), smallest = mask;
    uint32_t high[SL_LANES];
    int32_t low[SL_LANES];
    extremes found = { 0, INT32_MAX };
    int64_t i = 0;
    for (; i + SL_LANES <= n; i += SL_LANES) {
        sl_b16 bits = b16_of(v16_load(x + i));
        largest = b16_max(largest, b16_and(bits, mask));
        smallest = b16_min_signed(smallest, bits);
    }
    if (i < n) { /* what fills up is the first of them */
        sl_b16 bits = b16_of(v16_load_part(x + i, n - i, x[i]));
        largest = b16_max(largest, b16_and(bits, mask));
        smallest = b16_min_signed(smallest, bits);
    }
    v16_store((float *)high, b16_float(largest));
    v16_store((float *)low, b16_float(smallest));
    for (int k = 0; k < SL_LANES; k++) {
        found.largest = high[k] > found.largest ? high[k] : found.largest;
        found.smallest = low[k] < found.smallest ? low[k] : found.smallest;
    }
    return found;
}

/* What is past the limit is brought down to it. */
static void limit_magnitudes(float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits = sl_float_bits(x[i]);
        if ((bits & 0x7fffffffu) > SL_BLOCKS8_LIMIT) x[i] = sl_bits_float(SL_BLOCKS8_LIMIT | (bits & 0x80000000u));
    }
}

/* The block's exponent, written before its codes. *normal: all numbers are positive and have normal codes. */
static codes_scale write_exponent(uint8_t *block, float *x, int64_t n, bool is_signed, bool *normal)
{
    extremes e = extremes_of(x, n);
    if (e.largest > SL_BLOCKS8_LIMIT) {
        limit_magnitudes(x, n);
        e.largest = SL_BLOCKS8_LIMIT;
    }
    int32_t exponent = sl_blocks8_exponent(e.largest);
    memcpy(block, &exponent, sizeof exponent);
    *normal = e.smallest >= (int32_t)sl_blocks8_scale_of(exponent, is_signed).least;
    return codes_scale_of(exponent, is_signed);
}

/* The last `n` numbers, fewer than sixteen. What lies behind them is whatever was there: of no use, and no harm. */
static void encode_part(uint8_t *codes, const float *x, int64_t n, sl_b16 random, bool is_signed, const codes_scale *s)
{
    uint8_t lanes[SL_LANES];
    codes_store(lanes, v16_load(x), random, is_signed, s);
    memcpy(codes, lanes, (size_t)n);
}

ALWAYS_INLINE void encode_numbers(const buffers *b, float *x, int64_t n, int slot, bool is_signed)
{
    uint8_t *block = b->slot[slot], *codes = block + SL_BLOCKS8_HEADER;
    const sl_rounding_key key = b->key;
    bool normal;
    const codes_scale scale = write_exponent(block, x, n, is_signed, &normal);
    int64_t i = 0;
    for (; i + SL_LANES <= n; i += SL_LANES)
        codes_store(codes + i, v16_load(x + i), rounding_bits(rounding_hash(key, b->words + i), slot, 20), is_signed,
                    &scale);
    if (i == n) return;
    sl_b16 random = rounding_bits(rounding_hash(key, b->words + i), slot, 20);
    encode_part(codes + i, x + i, n - i, random, is_signed, &scale);
}

static void encode_slot(const buffers *b, float *x, int64_t n, int slot, bool is_signed)
{
    if (is_signed)
        encode_numbers(b, x, n, slot, true);
    else
        encode_numbers(b, x, n, slot, false);
}

/* A first and a second moment share their hashes; `normal` is of the second. */
ALWAYS_INLINE void encode_pairs(const buffers *b, const float *first, const float *second, int64_t n,
                                const codes_scale *scale1, const codes_scale *scale2, bool normal)
{
    uint8_t *codes1 = (uint8_t *)b->slot[0] + SL_BLOCKS8_HEADER, *codes2 = (uint8_t *)b->slot[1] + SL_BLOCKS8_HEADER;
    const codes_scale s1 = *scale1, s2 = *scale2;
    const sl_rounding_key key = b->key;
    const size_t gradient_bytes = read_bytes(b->read);
    int64_t i = 0;
    for (; i + SL_LANES <= n; i += SL_LANES) {
        sl_b16 hash = rounding_hash(key, b->words + i);
        ask_for_next(b, gradient_bytes, i);
        codes_store(codes1 + i, v16_load(first + i), rounding_bits(hash, 0, 20), true, &s1);
        if (normal)
            codes_store_normal(codes2 + i, v16_load(second + i), rounding_bits(hash, 1, 20), &s2);
        else
            codes_store(codes2 + i, v16_load(second + i), rounding_bits(hash, 1, 20), false, &s2);
    }
    if (i == n) return;
    sl_b16 hash = rounding_hash(key, b->words + i);
    encode_part(codes1 + i, first + i, n - i, rounding_bits(hash, 0, 20), true, &s1);
    encode_part(codes2 + i, second + i, n - i, rounding_bits(hash, 1, 20), false, &s2);
}

static void encode_moments(const buffers *b, float *first, float *second, int64_t n)
{
    bool normal;
    const codes_scale scale1 = write_exponent(b->slot[0], first, n, true, &normal),
                      scale2 = write_exponent(b->slot[1], second, n, false, &normal);
    if (normal)
        encode_pairs(b, first, second, n, &scale1, &scale2, true);
    else
        encode_pairs(b, first, second, n, &scale1, &scale2, false);
}

void KI(update_encode)(const sl_update_rule *rule, const buffers *b, int64_t n, stage *s)
{
    const sl_update_def *def = &sl_updates[rule->kind];
    int from = 0;
    if ((def->squares & 3) == 2) { /* Adam's moments: slot 1 alone of the first two is of squares */
        encode_moments(b, s->slot[0], s->slot[1], n);
        from = 2;
    }
    for (int k = from; k < def->slots; k++) encode_slot(b, s->slot[k], n, k, sl_slot_is_signed(rule->kind, k));
}

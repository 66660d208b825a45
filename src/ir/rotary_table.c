/* rotary_table.c: see rotary_table.h. */
#include "ir/rotary_table.h"

#include <math.h>
#include <string.h>

#include "core/sized.h"
#include "core/status.h"

#define TWO_PI 6.283185307179586477

/* base^(-2i/d), the frequency that every scaling starts from. */
static double plain_frequency(const sl_rotary_rule *r, int64_t i)
{
    return pow(r->base, -(double)i / (double)r->pairs);
}

static double dynamic_base(const sl_rotary_rule *r, int64_t length)
{
    double n = (double)length > r->context ? (double)length : r->context, d = 2.0 * (double)r->pairs;
    return r->base * pow(r->factor * n / r->context - (r->factor - 1.0), d / (d - 2.0));
}

/* The pair, as a real number, that makes `turns` within the context. */
static double pair_of_turns(const sl_rotary_rule *r, double turns)
{
    return (double)r->pairs * log(r->context / (TWO_PI * turns)) / log(r->base);
}

/* Turns become pairs: the first that is scaled at all, and the first that is scaled wholly. */
static void find_ramp(sl_rotary_rule *r, bool fractional)
{
    double first = pair_of_turns(r, r->high), last = pair_of_turns(r, r->low);
    double most = 2.0 * (double)r->pairs - 1.0; /* of dimensions, not of pairs: as in YaRN's own code */
    if (!fractional) {
        first = floor(first);
        last = ceil(last);
    }
    r->low = first > 0.0 ? first : 0.0;
    r->high = last < most ? last : most;
    if (r->low == r->high) r->high += 0.001;
}

sl_rotary_rule sl_rotary_rule_of(const sl_attrs *attrs, int64_t length)
{
    const int rotated = attrs->rotary.rotated > 0 ? attrs->rotary.rotated : attrs->rotary.head_width;
    sl_rotary_rule r = {
        .scaling = (sluice_rotary_scaling)attrs->rotary.scaling,
        .pairs = rotated / 2,
        .base = (double)attrs->rotary.base,
        .factor = attrs->rotary.scaling != SLUICE_ROTARY_DEFAULT ? (double)attrs->rotary.factor : 1.0,
        .context = (double)attrs->rotary.context,
        .low = (double)attrs->rotary.low,
        .high = (double)attrs->rotary.high,
        .attention = attrs->rotary.attention > 0.0f ? (double)attrs->rotary.attention : 1.0,
    };
    if (r.scaling == SLUICE_ROTARY_DYNAMIC) r.base = dynamic_base(&r, length);
    if (r.scaling == SLUICE_ROTARY_YARN) find_ramp(&r, attrs->rotary.fractional);
    return r;
}

/* Which part of f_i is scaled, from 0 to 1. */
static double scaled_part(const sl_rotary_rule *r, int64_t i, double f)
{
    double part = 0.0;
    if (r->scaling == SLUICE_ROTARY_LINEAR) part = 1.0;
    if (r->scaling == SLUICE_ROTARY_LLAMA3) part = (r->high - r->context * f / TWO_PI) / (r->high - r->low);
    if (r->scaling == SLUICE_ROTARY_YARN) part = ((double)i - r->low) / (r->high - r->low);
    return part < 0.0 ? 0.0 : part > 1.0 ? 1.0 : part;
}

double sl_rotary_frequency(const sl_rotary_rule *r, int64_t i)
{
    const double f = plain_frequency(r, i), part = scaled_part(r, i, f);
    if (part == 0.0) return f;
    return part == 1.0 ? f / r->factor : f * (1.0 - part) + f / r->factor * part;
}

/* ---- options ---- */

void sluice_rotary_options_init_sized(sluice_rotary_options *o, size_t size)
{
    sl_sized_fill(o, size, &(sluice_rotary_options){ .base = 10000.0f }, sizeof *o);
}

/* YaRN's M(m) = 0.1 m ln(factor) + 1; 1 where the context is not lengthened. */
static double yarn_scale(double factor, double m)
{
    return factor > 1.0 ? 0.1 * m * log(factor) + 1.0 : 1.0;
}

/* M(mscale) / M(mscale_all_dim) where both are given, else M(1). */
static float yarn_attention(const sluice_rotary_options *o)
{
    const double factor = (double)o->factor, m = (double)o->mscale, all = (double)o->mscale_all_dim;
    return (float)(m != 0.0 && all != 0.0 ? yarn_scale(factor, m) / yarn_scale(factor, all) : yarn_scale(factor, 1.0));
}

static void set_turns(const sluice_rotary_options *o, float usual_high, sl_attrs *a)
{
    a->rotary.context = o->context;
    a->rotary.low = o->low != 0.0f ? o->low : 1.0f;
    a->rotary.high = o->high != 0.0f ? o->high : usual_high;
}

sluice_status sl_rotary_attrs(const sluice_rotary_options *options, sl_attrs *out)
{
    sluice_rotary_options o;
    sluice_rotary_options_init(&o);
    SL_TRY(sl_sized_take("sluice_rotary_options", options, offsetof(sluice_rotary_options, scaling), &o, sizeof o));
    float attention = o.attention_factor;
    *out = (sl_attrs){ .rotary = { .heads = o.heads, .head_width = o.head_width, .base = o.base } };
    out->rotary.rotated = o.rotated == o.head_width ? 0 : o.rotated;
    out->rotary.scaling = (int)o.scaling;
    if (o.scaling != SLUICE_ROTARY_DEFAULT) out->rotary.factor = o.factor;
    if (o.scaling == SLUICE_ROTARY_DYNAMIC) out->rotary.context = o.context;
    if (o.scaling == SLUICE_ROTARY_LLAMA3) set_turns(&o, 4.0f, out);
    if (o.scaling == SLUICE_ROTARY_YARN) {
        set_turns(&o, 32.0f, out);
        out->rotary.fractional = o.fractional;
        if (attention == 0.0f) attention = yarn_attention(&o);
    }
    out->rotary.attention = attention == 1.0f ? 0.0f : attention;
    return SLUICE_OK;
}

/* decoder.c: Llama and the families that came after it, as rows of traits over one decoder.
 *
 * Names are those of Hugging Face's files where one parameter is one tensor there. Query, key and value come from one
 * matrix here, gate and value of the feed-forward part from another: one product instead of two or three. Where files
 * have them apart, their parts carry the names that those files have for them, so that weights load as they are; so do
 * the parts of their biases. The rotation pairs elements half a head apart, as those files expect. Layers: "embed",
 * "layers.0", "layers.1", ..., "head".
 *
 * Shapes: B micro-batch, T context, C width, H heads, G key and value heads, D head width, F feed-forward, V
 * vocabulary. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "core/half.h"
#include "format/weight_names.h"
#include "model/family.h"

#define STDDEV 0.02f

/* What tells families apart besides the numbers of their config.json. */
typedef struct traits {
    bool fused_files;  /* files hold the fused matrices too */
    bool qkv_bias;     /* queries, keys and values always have biases */
    bool qk_norm;      /* of queries and keys, before they turn */
    bool offset_norms; /* norms multiply by 1 + weight */
    bool four_norms;   /* also after attention and after the feed-forward part, before their sums */
    bool scaled_embed; /* the embedding is multiplied by the root of the width */
} traits;

static const traits family_traits[SL_DECODER_COUNT] = {
    [SL_DECODER_QWEN2] = { .qkv_bias = true },
    [SL_DECODER_QWEN3] = { .qk_norm = true },
    [SL_DECODER_PHI3] = { .fused_files = true },
    [SL_DECODER_GEMMA] = { .offset_norms = true, .scaled_embed = true },
    [SL_DECODER_GEMMA2] = { .offset_norms = true, .four_norms = true, .scaled_embed = true },
    [SL_DECODER_GEMMA3] = { .offset_norms = true, .four_norms = true, .scaled_embed = true, .qk_norm = true },
};

/* What building one part needs to know. */
typedef struct decoder {
    sl_model m;
    sl_model_config c;
    const traits *t;
    float residual_stddev; /* of projections into the residual stream: their number would otherwise widen it */
} decoder;

static sluice_init random_init(float stddev)
{
    return (sluice_init){ SLUICE_INIT_NORMAL, stddev };
}

/* ---- Linears ---- */

/* A linear whose rows are several tensors in files: "<block><parts[i].name>.weight" and ".bias". */
typedef struct fused {
    const char *name;
    sl_part parts[SL_MAX_ROW_PARTS];
    int count;
} fused;

/* Names the parts of a weight or a bias, where files have them apart. */
static void name_parts(const decoder *d, const char *block, const fused *f, const char *ending, sluice_value parameter)
{
    char names[SL_MAX_ROW_PARTS][SL_MODEL_NAME_BYTES];
    sl_part full[SL_MAX_ROW_PARTS];
    if (d->t->fused_files || f->count == 1) return;
    for (int i = 0; i < f->count; i++) {
        snprintf(names[i], sizeof names[i], "%s%s%s", block, f->parts[i].name, ending);
        full[i] = (sl_part){ names[i], f->parts[i].rows };
    }
    sl_graph_set_parts(d->m.g, parameter, full, f->count);
}

/* y[.., out] = x[.., in] W^T (+ b) with W [out, in], called "<block><f.name>.weight". */
static sluice_value project(const decoder *d, sluice_value x, const char *block, const fused *f, int64_t in, bool bias,
                            float stddev)
{
    char weight[64], offset[64];
    int64_t out = 0;
    for (int i = 0; i < f->count; i++) out += f->parts[i].rows;
    snprintf(weight, sizeof weight, "%s.weight", f->name);
    snprintf(offset, sizeof offset, "%s.bias", f->name);
    sluice_value w = sl_model_parameter(&d->m, block, weight, out, in, random_init(stddev)), b = SLUICE_NONE;
    name_parts(d, block, f, ".weight", w);
    if (bias) {
        b = sl_model_parameter(&d->m, block, offset, out, 0, (sluice_init){ SLUICE_INIT_ZERO, 0 });
        name_parts(d, block, f, ".bias", b);
    }
    return sl_model_linear(&d->m, x, block, f->name, w, b, false);
}

/* ---- Norms ---- */

static sluice_value norm_weight(const decoder *d, const char *block, const char *name, int64_t width)
{
    sluice_init_kind kind = d->t->offset_norms ? SLUICE_INIT_ZERO : SLUICE_INIT_ONE;
    return sl_model_parameter(&d->m, block, name, width, 0, (sluice_init){ kind, 0 });
}

static float norm_offset(const decoder *d)
{
    return d->t->offset_norms ? 1 : 0;
}

static sluice_value norm(const decoder *d, sluice_value x, const char *block, const char *name)
{
    sluice_value w = norm_weight(d, block, name, d->c.width);
    return sluice_rms_norm_offset(d->m.g, x, w, (float)d->c.norm_epsilon, norm_offset(d));
}

static sluice_value norm_heads(const decoder *d, sluice_value qkv, const char *block)
{
    sluice_value q = norm_weight(d, block, "self_attn.q_norm.weight", d->c.head_width);
    sluice_value k = norm_weight(d, block, "self_attn.k_norm.weight", d->c.head_width);
    return sluice_qk_norm(d->m.g, qkv, q, k, (int)d->c.heads, (int)d->c.kv_heads, (float)d->c.norm_epsilon,
                          norm_offset(d));
}

/* ---- Attention ---- */

static sluice_value rotate(const decoder *d, sluice_value qkv, bool slides)
{
    static const sluice_rotary_scaling scaling[] = { [SL_ROPE_DEFAULT] = SLUICE_ROTARY_DEFAULT,
                                                     [SL_ROPE_LINEAR] = SLUICE_ROTARY_LINEAR,
                                                     [SL_ROPE_DYNAMIC] = SLUICE_ROTARY_DYNAMIC,
                                                     [SL_ROPE_LLAMA3] = SLUICE_ROTARY_LLAMA3,
                                                     [SL_ROPE_YARN] = SLUICE_ROTARY_YARN };
    const sl_model_config *c = &d->c;
    const sl_rope_config *r = c->family == SL_DECODER_GEMMA3 && slides ? &c->local_rope : &c->rope;
    bool yarn = r->type == SL_ROPE_YARN, llama3 = r->type == SL_ROPE_LLAMA3;
    sluice_rotary_options o;
    sluice_rotary_options_init(&o);
    o.heads = (int)(c->heads + c->kv_heads);
    o.head_width = (int)c->head_width;
    o.rotated = c->rotated_share < 1 ? (int)((double)c->head_width * c->rotated_share) : 0;
    o.base = (float)r->theta;
    o.scaling = scaling[r->type];
    if (r->type != SL_ROPE_DEFAULT) o.factor = (float)r->factor;
    if (r->type == SL_ROPE_DYNAMIC) o.context = (int)c->context;
    if (yarn || llama3) {
        o.context = (int)r->original_context;
        o.low = (float)(yarn ? r->beta_slow : r->low_freq);
        o.high = (float)(yarn ? r->beta_fast : r->high_freq);
    }
    if (yarn) {
        o.attention_factor = (float)r->attention_factor;
        o.mscale = (float)r->mscale;
        o.mscale_all_dim = (float)r->mscale_all;
        o.fractional = !r->whole_steps;
    }
    return sluice_rotary_with(d->m.g, qkv, d->m.positions, &o);
}

/* x[B,T,C] -> the same: each position looks at itself and those before it. */
static sluice_value attend(const decoder *d, sluice_value x, const char *block, bool slides)
{
    const sl_model_config *c = &d->c;
    int64_t query = c->heads * c->head_width, key = c->kv_heads * c->head_width;
    const fused qkv_proj = {
        "self_attn.qkv_proj",
        { { "self_attn.q_proj", query }, { "self_attn.k_proj", key }, { "self_attn.v_proj", key } },
        3
    };
    const fused o_proj = { "self_attn.o_proj", { { NULL, c->width } }, 1 };
    sluice_value qkv = project(d, x, block, &qkv_proj, c->width, d->t->qkv_bias || c->attention_bias, STDDEV);
    if (d->t->qk_norm) qkv = norm_heads(d, qkv, block);
    qkv = rotate(d, qkv, slides);
    sluice_value y = sl_model_attention(&d->m, c, qkv, slides);
    return project(d, y, block, &o_proj, query, c->attention_bias, d->residual_stddev);
}

/* ---- Blocks ---- */

/* x[B,T,C] -> the same: the gate's activation times the value, of F columns each. */
static sluice_value feed_forward(const decoder *d, sluice_value x, const char *block)
{
    const sl_model_config *c = &d->c;
    const fused gate_up = { "mlp.gate_up_proj",
                            { { "mlp.gate_proj", c->feed_forward }, { "mlp.up_proj", c->feed_forward } },
                            2 };
    const fused down = { "mlp.down_proj", { { NULL, c->width } }, 1 };
    sluice_value both = project(d, x, block, &gate_up, c->width, c->feed_forward_bias, STDDEV);
    sluice_value y =
        c->activation == SL_ACTIVATION_SILU ? sluice_swiglu(d->m.g, both) : sluice_geglu(d->m.g, both, false);
    return project(d, y, block, &down, c->feed_forward, c->feed_forward_bias, d->residual_stddev);
}

/* x[B,T,C] -> the same: attention, then a feed-forward part, each normalised before and added to the residual stream
 * after; with four norms also normalised before it is added. */
static sluice_value block(const decoder *d, sluice_value x, int64_t number)
{
    char name[32], prefix[48];
    bool four = d->t->four_norms;
    snprintf(name, sizeof name, "layers.%" PRId64, number);
    snprintf(prefix, sizeof prefix, "model.%s.", name);
    sluice_layer(d->m.g, name);
    sluice_value y = norm(d, x, prefix, "input_layernorm.weight");
    y = attend(d, y, prefix, sl_model_config_slides(&d->c, number));
    if (four) y = norm(d, y, prefix, "post_attention_layernorm.weight");
    x = sluice_add(d->m.g, x, y);
    y = norm(d, x, prefix, four ? "pre_feedforward_layernorm.weight" : "post_attention_layernorm.weight");
    y = feed_forward(d, y, prefix);
    if (four) y = norm(d, y, prefix, "post_feedforward_layernorm.weight");
    return sluice_add(d->m.g, x, y);
}

/* ---- Ends ---- */

/* The root of the width in the type that the model computes in, as its authors' programs have it. */
static float embedding_scale(const decoder *d)
{
    float scale = (float)sqrt((double)d->c.width);
    if (d->m.o->precision == SLUICE_BF16) return sl_bf16_to_float(sl_float_to_bf16(scale));
    if (d->m.o->precision == SLUICE_F16) return sl_f16_to_float(sl_float_to_f16(scale));
    return scale;
}

/* tokens[B,T] -> x[B,T,C]; *table is the token embedding. */
static sluice_value embed(decoder *d, sluice_value *table)
{
    sluice_layer(d->m.g, "embed");
    sluice_value tokens = sl_model_tokens(&d->m);
    *table =
        sl_model_parameter(&d->m, "", "model.embed_tokens.weight", d->c.vocabulary, d->c.width, random_init(STDDEV));
    sluice_value x = sluice_embedding(d->m.g, tokens, *table);
    return d->t->scaled_embed ? sluice_scale(d->m.g, x, embedding_scale(d)) : x;
}

static void head(const decoder *d, sluice_value x, sluice_value table)
{
    sluice_layer(d->m.g, "head");
    x = norm(d, x, "", "model.norm.weight");
    sluice_value weight = table;
    if (!d->c.tied)
        weight = sl_model_parameter(&d->m, "", "lm_head.weight", d->c.vocabulary, d->c.width, random_init(STDDEV));
    sl_model_head(&d->m, x, weight, SLUICE_NONE, (float)d->c.logit_soft_cap);
    d->m.g->file_names = d->c.tied ? &sl_llama_tied_weight_names : &sl_llama_weight_names;
}

sluice_status sl_model_build_decoder(sluice_graph *g, const sl_model_options *o, sl_model_info *info)
{
    decoder d = { .m = { o, g, SLUICE_NONE, SLUICE_NONE } };
    sluice_value table;
    SL_TRY(sl_model_describe(o, &d.c));
    d.t = &family_traits[d.c.family];
    d.residual_stddev = (float)(0.02 / sqrt(2.0 * (double)d.c.layers));
    sluice_value x = embed(&d, &table);
    for (int64_t i = 0; i < d.c.layers && x != SLUICE_NONE; i++) x = block(&d, x, i);
    head(&d, x, table);
    info->tokens_per_sample = o->context;
    info->classifies = true;
    return SLUICE_OK;
}

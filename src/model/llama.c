/* llama.c: the Llama family.
 *
 * Names are those of Hugging Face's Llama files where one parameter is one tensor there. Query, key and value come from
 * one matrix here, gate and value of the feed-forward part from another: one product instead of two or three. Their
 * parts carry the names that those files have for them, so that weights load as they are. The rotation pairs elements
 * half a head apart, as those files expect. Layers: "embed", "layers.0", "layers.1", ..., "head".
 *
 * Shapes: B micro-batch, T context, C width, H heads, G key and value heads, D = C / H, F feed-forward, V
 * vocabulary. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "format/weight_names.h"
#include "model/family.h"

#define STDDEV 0.02f

/* What building one part needs to know besides the options. */
typedef struct llama {
    sl_model m;
    int64_t width, head_width, feed_forward;
    int heads, kv_heads;
    float epsilon, theta;
    float residual_stddev; /* of projections into the residual stream: their number would otherwise widen it */
} llama;

static sluice_status check(const sl_model_options *o)
{
    SL_TRY(sl_model_check_transformer(o));
    int64_t kv = o->kv_heads > 0 ? o->kv_heads : o->heads;
    if (kv > o->heads || o->heads % kv != 0)
        return sl_fail(SLUICE_ERR_USAGE, "model.kv_heads %" PRId64 " does not divide model.heads %" PRId64, kv,
                       o->heads);
    if (o->width / o->heads % 2 != 0)
        return sl_fail(SLUICE_ERR_USAGE, "model.width / model.heads is %" PRId64 "; the rotation needs an even number",
                       o->width / o->heads);
    if (o->feed_forward != 0) SL_TRY(sl_model_check_size("model.feed_forward", o->feed_forward, SL_MODEL_MAX_SIZE / 2));
    if (!(o->rope_theta >= 0 && o->rope_theta < 1e30))
        return sl_fail(SLUICE_ERR_USAGE, "model.rope_theta is %g; give a positive number such as 500000",
                       o->rope_theta);
    if (o->dropout > 0)
        return sl_fail(SLUICE_ERR_USAGE, "model.dropout has no meaning for model.type llama; remove it");
    return SLUICE_OK;
}

static sluice_init random_init(float stddev)
{
    return (sluice_init){ SLUICE_INIT_NORMAL, stddev };
}

/* y[.., out] = x[.., in] W^T with W [out, in], called "<block><name>.weight". */
static sluice_value project(const llama *l, sluice_value x, const char *block, const char *name, int64_t out,
                            int64_t in, float stddev)
{
    char weight[64];
    snprintf(weight, sizeof weight, "%s.weight", name);
    sluice_value w = sl_model_parameter(&l->m, block, weight, out, in, random_init(stddev));
    return sl_model_linear(&l->m, x, block, name, w, SLUICE_NONE, false);
}

/* The same for a matrix whose rows are several tensors in files: "<block><parts[i].name>". */
static sluice_value project_parts(const llama *l, sluice_value x, const char *block, const char *name,
                                  const sl_part *parts, int count)
{
    char weight[64], names[SL_MAX_ROW_PARTS][SL_MODEL_NAME_BYTES];
    sl_part full[SL_MAX_ROW_PARTS];
    int64_t out = 0;
    for (int i = 0; i < count; i++) {
        snprintf(names[i], sizeof names[i], "%s%s", block, parts[i].name);
        full[i] = (sl_part){ names[i], parts[i].rows };
        out += parts[i].rows;
    }
    snprintf(weight, sizeof weight, "%s.weight", name);
    sluice_value w = sl_model_parameter(&l->m, block, weight, out, l->width, random_init(STDDEV));
    sl_graph_set_parts(l->m.g, w, full, count);
    return sl_model_linear(&l->m, x, block, name, w, SLUICE_NONE, false);
}

static sluice_value norm(const llama *l, sluice_value x, const char *block, const char *name)
{
    sluice_value w = sl_model_parameter(&l->m, block, name, l->width, 0, (sluice_init){ SLUICE_INIT_ONE, 0 });
    return sluice_rms_norm(l->m.g, x, w, l->epsilon);
}

/* x[B,T,C] -> the same: each position looks at itself and those before it. */
static sluice_value attend(const llama *l, sluice_value x, const char *block)
{
    int64_t query = l->heads * l->head_width, key = l->kv_heads * l->head_width;
    const sl_part parts[] = { { "self_attn.q_proj.weight", query },
                              { "self_attn.k_proj.weight", key },
                              { "self_attn.v_proj.weight", key } };
    sluice_value qkv = project_parts(l, x, block, "self_attn.qkv_proj", parts, 3);
    qkv = sluice_rotary(l->m.g, qkv, l->heads + l->kv_heads, (int)l->head_width, l->theta);
    sluice_value y = sluice_attention_packed(l->m.g, qkv, l->heads, l->kv_heads, true);
    return project(l, y, block, "self_attn.o_proj", l->width, query, l->residual_stddev);
}

/* x[B,T,C] -> the same: silu(gate) * value, of F columns each. */
static sluice_value feed_forward(const llama *l, sluice_value x, const char *block)
{
    const sl_part parts[] = { { "mlp.gate_proj.weight", l->feed_forward }, { "mlp.up_proj.weight", l->feed_forward } };
    sluice_value both = project_parts(l, x, block, "mlp.gate_up_proj", parts, 2);
    return project(l, sluice_swiglu(l->m.g, both), block, "mlp.down_proj", l->width, l->feed_forward,
                   l->residual_stddev);
}

/* x[B,T,C] -> the same: attention, then a feed-forward part, each normalised before and added to the residual stream
 * after. */
static sluice_value block(const llama *l, sluice_value x, int64_t number)
{
    char name[32], prefix[48];
    snprintf(name, sizeof name, "layers.%" PRId64, number);
    snprintf(prefix, sizeof prefix, "model.%s.", name);
    sluice_layer(l->m.g, name);
    x = sluice_add(l->m.g, x, attend(l, norm(l, x, prefix, "input_layernorm.weight"), prefix));
    return sluice_add(l->m.g, x, feed_forward(l, norm(l, x, prefix, "post_attention_layernorm.weight"), prefix));
}

static void head(const llama *l, sluice_value x, sluice_value table)
{
    const sl_model_options *o = l->m.o;
    sluice_layer(l->m.g, "head");
    x = norm(l, x, "", "model.norm.weight");
    sluice_value weight = table;
    if (o->untied)
        weight = sl_model_parameter(&l->m, "", "lm_head.weight", o->vocabulary, l->width, random_init(STDDEV));
    sl_model_head(&l->m, x, weight);
    l->m.g->file_names = o->untied ? &sl_llama_weight_names : &sl_llama_tied_weight_names;
}

/* 8/3 of the width, so that three matrices have as many elements as two of four times the width. */
static int64_t default_feed_forward(int64_t width)
{
    return (width * 8 / 3 + 255) / 256 * 256;
}

static llama describe(sluice_graph *g, const sl_model_options *o)
{
    return (llama){ .m = { o, g },
                    .width = o->width,
                    .head_width = o->width / o->heads,
                    .feed_forward = o->feed_forward > 0 ? o->feed_forward : default_feed_forward(o->width),
                    .heads = (int)o->heads,
                    .kv_heads = (int)(o->kv_heads > 0 ? o->kv_heads : o->heads),
                    .epsilon = o->norm_epsilon > 0 ? (float)o->norm_epsilon : 1e-5f,
                    .theta = o->rope_theta > 0 ? (float)o->rope_theta : 500000.0f,
                    .residual_stddev = (float)(0.02 / sqrt(2.0 * (double)o->layers)) };
}

sluice_status sl_model_build_llama(sluice_graph *g, const sl_model_options *o, sl_model_info *info)
{
    SL_TRY(check(o));
    llama l = describe(g, o);
    sluice_layer(g, "embed");
    sluice_value tokens = sluice_input(g, "tokens", SLUICE_I32, 2, (int64_t[]){ o->batch, o->context });
    sluice_value table =
        sl_model_parameter(&l.m, "", "model.embed_tokens.weight", o->vocabulary, o->width, random_init(STDDEV));
    sluice_value x = sluice_embedding(g, tokens, table);
    for (int64_t i = 0; i < o->layers && x != SLUICE_NONE; i++) x = block(&l, x, i);
    head(&l, x, table);
    info->tokens_per_sample = o->context;
    info->classifies = true;
    return SLUICE_OK;
}

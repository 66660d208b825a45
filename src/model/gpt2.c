/* gpt2.c: the GPT-2 family.
 *
 * Names and layouts are those of Hugging Face's GPT-2 files, so that their weights load as they are: projections are
 * stored [in, out], query, key and value come from one matrix, and the output head usually is the token embedding. Dropout
 * follows the embedding, the attention projection and the feed-forward projection; GPT-2's dropout on the attention
 * weights themselves is not applied, because attention never holds those weights. Layers: "embed", "h.0", "h.1", ...,
 * "head".
 *
 * Shapes: B micro-batch, T context, C width, V vocabulary. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "format/weight_names.h"
#include "model/family.h"

#define STDDEV 0.02f

/* What building one part needs to know. */
typedef struct gpt2 {
    sl_model m;
    sl_model_config c;
    float residual_stddev; /* of projections into the residual stream: their number would otherwise widen it */
} gpt2;

/* y[.., out] = x[.., in] W + b with W [in, out]. */
static sluice_value project(const gpt2 *p, sluice_value x, const char *block, const char *name, int64_t in, int64_t out,
                            float stddev)
{
    char weight[48], bias[48];
    snprintf(weight, sizeof weight, "%s.weight", name);
    snprintf(bias, sizeof bias, "%s.bias", name);
    sluice_value w = sl_model_parameter(&p->m, block, weight, in, out, (sluice_init){ SLUICE_INIT_NORMAL, stddev });
    sluice_value b = sl_model_parameter(&p->m, block, bias, out, 0, (sluice_init){ SLUICE_INIT_ZERO, 0 });
    return sl_model_linear(&p->m, x, block, name, w, b, true);
}

static sluice_value norm(const gpt2 *p, sluice_value x, const char *block, const char *name)
{
    char weight[48], bias[48];
    snprintf(weight, sizeof weight, "%s.weight", name);
    snprintf(bias, sizeof bias, "%s.bias", name);
    sluice_value w = sl_model_parameter(&p->m, block, weight, p->c.width, 0, (sluice_init){ SLUICE_INIT_ONE, 0 });
    sluice_value b = sl_model_parameter(&p->m, block, bias, p->c.width, 0, (sluice_init){ SLUICE_INIT_ZERO, 0 });
    return sluice_layer_norm(p->m.g, x, w, b, (float)p->c.norm_epsilon);
}

static sluice_value drop_at(const gpt2 *p, sluice_value x, double rate)
{
    return rate > 0 ? sluice_dropout(p->m.g, x, (float)rate) : x;
}

/* Before x is added to the residual stream. */
static sluice_value drop(const gpt2 *p, sluice_value x)
{
    return drop_at(p, x, p->m.o->dropout);
}

/* The rows of the position table for each token: [T,C], or [B,T,C] where rows hold several documents. */
static sluice_value positions(const gpt2 *p, sluice_value table)
{
    if (p->m.positions != SLUICE_NONE) return sluice_embedding(p->m.g, p->m.positions, table);
    if (p->m.o->context == p->c.context) return table;
    return sluice_split(p->m.g, table, 0, 0, p->m.o->context);
}

/* tokens[B,T] -> x[B,T,C]; *table is the token embedding, which the head uses again. */
static sluice_value embed(gpt2 *p, sluice_value *table)
{
    sluice_init init = { SLUICE_INIT_NORMAL, STDDEV };
    sluice_layer(p->m.g, "embed");
    sluice_value tokens = sl_model_tokens(&p->m);
    *table = sl_model_parameter(&p->m, "", "wte.weight", p->c.vocabulary, p->c.width, init);
    sluice_value places = sl_model_parameter(&p->m, "", "wpe.weight", p->c.context, p->c.width, init);
    sluice_value x = sluice_add(p->m.g, sluice_embedding(p->m.g, tokens, *table), positions(p, places));
    return drop_at(p, x, sl_model_embedding_dropout(p->m.o));
}

/* x[B,T,C] -> the same: attention, then a feed-forward part, each normalised before and added to the residual stream
 * after. */
static sluice_value block(const gpt2 *p, sluice_value x, int64_t number)
{
    sluice_graph *g = p->m.g;
    int64_t width = p->c.width, inner = p->c.feed_forward;
    char name[32], prefix[40];
    snprintf(name, sizeof name, "h.%" PRId64, number);
    snprintf(prefix, sizeof prefix, "%s.", name);
    sluice_layer(g, name);
    sluice_value y = norm(p, x, prefix, "ln_1");
    y = project(p, y, prefix, "attn.c_attn", width, 3 * width, STDDEV);
    y = sl_model_attention(&p->m, &p->c, y, false);
    x = sluice_add(g, x, drop(p, project(p, y, prefix, "attn.c_proj", width, width, p->residual_stddev)));
    y = norm(p, x, prefix, "ln_2");
    y = sl_model_activate(&p->m, &p->c, project(p, y, prefix, "mlp.c_fc", width, inner, STDDEV));
    return sluice_add(g, x, drop(p, project(p, y, prefix, "mlp.c_proj", inner, width, p->residual_stddev)));
}

/* The head's weight is the token embedding, or one of its own. */
static void head(const gpt2 *p, sluice_value x, sluice_value table)
{
    sluice_layer(p->m.g, "head");
    x = norm(p, x, "", "ln_f");
    sluice_value weight = table;
    if (!p->c.tied)
        weight = sl_model_parameter(&p->m, "", "lm_head.weight", p->c.vocabulary, p->c.width,
                                    (sluice_init){ SLUICE_INIT_NORMAL, STDDEV });
    sl_model_head(&p->m, x, weight, SLUICE_NONE, 0);
    p->m.g->file_names = p->c.tied ? &sl_gpt2_weight_names : &sl_gpt2_untied_weight_names;
}

sluice_status sl_model_build_gpt2(sluice_graph *g, const sl_model_options *o, sl_model_info *info)
{
    gpt2 p = { .m = { o, g, SLUICE_NONE, SLUICE_NONE } };
    sluice_value table;
    SL_TRY(sl_model_describe(o, &p.c));
    p.residual_stddev = (float)(0.02 / sqrt(2.0 * (double)p.c.layers));
    sluice_value x = embed(&p, &table);
    for (int64_t i = 0; i < p.c.layers && x != SLUICE_NONE; i++) x = block(&p, x, i);
    head(&p, x, table);
    info->tokens_per_sample = o->context;
    info->classifies = true;
    return SLUICE_OK;
}

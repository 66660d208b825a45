/* gpt2.c: the GPT-2 family.
 *
 * Names and layouts are those of Hugging Face's GPT-2 files, so that their weights load as they are: projections are
 * stored [in, out], query, key and value come from one matrix, and the output head is the token embedding. Dropout
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

/* What building one part needs to know besides the graph. */
typedef struct gpt2 {
    sl_model m;
    float epsilon;
    float residual_stddev; /* of projections into the residual stream: their number would otherwise widen it */
} gpt2;

static sluice_status check(const sl_model_options *o)
{
    SL_TRY(sl_model_check_transformer(o));
    if (!(o->dropout >= 0 && o->dropout < 1))
        return sl_fail(SLUICE_ERR_USAGE, "model.dropout is %g; give a probability from 0 to below 1", o->dropout);
    return SLUICE_OK;
}

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
    sluice_value w = sl_model_parameter(&p->m, block, weight, p->m.o->width, 0, (sluice_init){ SLUICE_INIT_ONE, 0 });
    sluice_value b = sl_model_parameter(&p->m, block, bias, p->m.o->width, 0, (sluice_init){ SLUICE_INIT_ZERO, 0 });
    return sluice_layer_norm(p->m.g, x, w, b, p->epsilon);
}

static sluice_value drop(const gpt2 *p, sluice_value x)
{
    return p->m.o->dropout > 0 ? sluice_dropout(p->m.g, x, (float)p->m.o->dropout) : x;
}

/* tokens[B,T] -> x[B,T,C]; *table is the token embedding, which the head uses again. */
static sluice_value embed(const gpt2 *p, sluice_value *table)
{
    const sl_model_options *o = p->m.o;
    sluice_init init = { SLUICE_INIT_NORMAL, STDDEV };
    sluice_layer(p->m.g, "embed");
    sluice_value tokens = sluice_input(p->m.g, "tokens", SLUICE_I32, 2, (int64_t[]){ o->batch, o->context });
    *table = sl_model_parameter(&p->m, "", "wte.weight", o->vocabulary, o->width, init);
    sluice_value positions = sl_model_parameter(&p->m, "", "wpe.weight", o->context, o->width, init);
    return drop(p, sluice_add(p->m.g, sluice_embedding(p->m.g, tokens, *table), positions));
}

/* x[B,T,C] -> the same: attention, then a feed-forward part, each normalised before and added to the residual stream
 * after. */
static sluice_value block(const gpt2 *p, sluice_value x, int64_t number)
{
    sluice_graph *g = p->m.g;
    int64_t width = p->m.o->width;
    int heads = (int)p->m.o->heads;
    char name[32], prefix[40];
    snprintf(name, sizeof name, "h.%" PRId64, number);
    snprintf(prefix, sizeof prefix, "%s.", name);
    sluice_layer(g, name);
    sluice_value y = norm(p, x, prefix, "ln_1");
    y = project(p, y, prefix, "attn.c_attn", width, 3 * width, STDDEV);
    y = sluice_attention_packed(g, y, heads, heads, true);
    x = sluice_add(g, x, drop(p, project(p, y, prefix, "attn.c_proj", width, width, p->residual_stddev)));
    y = norm(p, x, prefix, "ln_2");
    y = sluice_gelu(g, project(p, y, prefix, "mlp.c_fc", width, 4 * width, STDDEV), false);
    return sluice_add(g, x, drop(p, project(p, y, prefix, "mlp.c_proj", 4 * width, width, p->residual_stddev)));
}

/* The head's weight is the token embedding. */
static void head(const gpt2 *p, sluice_value x, sluice_value table)
{
    sluice_layer(p->m.g, "head");
    sl_model_head(&p->m, norm(p, x, "", "ln_f"), table);
    p->m.g->file_names = &sl_gpt2_weight_names;
}

sluice_status sl_model_build_gpt2(sluice_graph *g, const sl_model_options *o, sl_model_info *info)
{
    SL_TRY(check(o));
    gpt2 p = {
        .m = { o, g },
        .epsilon = o->norm_epsilon > 0 ? (float)o->norm_epsilon : 1e-5f,
        .residual_stddev = (float)(0.02 / sqrt(2.0 * (double)o->layers)),
    };
    sluice_value table;
    sluice_value x = embed(&p, &table);
    for (int64_t i = 0; i < o->layers && x != SLUICE_NONE; i++) x = block(&p, x, i);
    head(&p, x, table);
    info->tokens_per_sample = o->context;
    info->classifies = true;
    return SLUICE_OK;
}

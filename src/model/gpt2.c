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

#include "model/family.h"

#define MAX_LAYERS 100000
#define STDDEV     0.02f

/* What building one part needs to know besides the graph. */
typedef struct gpt2 {
    const sl_model_options *o;
    sluice_graph *g;
    float epsilon;
    float residual_stddev; /* of projections into the residual stream: their number would otherwise widen it */
} gpt2;

/* Causal masks that Hugging Face's files of this model hold. */
static const char *const constants[] = { "h.*.attn.bias", "h.*.attn.masked_bias", NULL };

static sluice_status check(const sl_model_options *o)
{
    SL_TRY(sl_model_check_size("model.layers", o->layers, MAX_LAYERS));
    SL_TRY(sl_model_check_size("model.heads", o->heads, SL_MODEL_MAX_SIZE));
    SL_TRY(sl_model_check_size("model.width", o->width,
                               SL_MODEL_MAX_SIZE / 4)); /* the feed-forward part is 4 times as wide */
    SL_TRY(sl_model_check_size("model.context", o->context, SL_MODEL_MAX_SIZE));
    SL_TRY(sl_model_check_size("model.vocabulary", o->vocabulary, SL_MODEL_MAX_SIZE));
    if (o->width % o->heads != 0)
        return sl_fail(SLUICE_ERR_USAGE,
                       "model.width %" PRId64 " is not a multiple of model.heads %" PRId64
                       "; every head gets width / heads columns",
                       o->width, o->heads);
    if (!(o->dropout >= 0 && o->dropout < 1))
        return sl_fail(SLUICE_ERR_USAGE, "model.dropout is %g; give a probability from 0 to below 1", o->dropout);
    if (!(o->norm_epsilon >= 0 && o->norm_epsilon < 1))
        return sl_fail(SLUICE_ERR_USAGE, "model.norm_epsilon is %g; give a small positive number such as 1e-5",
                       o->norm_epsilon);
    return SLUICE_OK;
}

/* Parameter "<block><name>" of one or two dimensions (columns 0: one). */
static sluice_value parameter(const gpt2 *m, const char *block, const char *name, int64_t rows, int64_t columns,
                              sluice_init init)
{
    char full[64];
    snprintf(full, sizeof full, "%s%s", block, name);
    return sluice_parameter(m->g, full, columns > 0 ? 2 : 1, (int64_t[]){ rows, columns }, init);
}

/* y[.., out] = x[.., in] W + b with W [in, out]. */
static sluice_value project(const gpt2 *m, sluice_value x, const char *block, const char *name, int64_t in, int64_t out,
                            float stddev)
{
    char weight[48], bias[48];
    snprintf(weight, sizeof weight, "%s.weight", name);
    snprintf(bias, sizeof bias, "%s.bias", name);
    sluice_value w = parameter(m, block, weight, in, out, (sluice_init){ SLUICE_INIT_NORMAL, stddev });
    sluice_value b = parameter(m, block, bias, out, 0, (sluice_init){ SLUICE_INIT_ZERO, 0 });
    return sluice_linear_with(m->g, x, w, b, true);
}

static sluice_value norm(const gpt2 *m, sluice_value x, const char *block, const char *name)
{
    char weight[48], bias[48];
    snprintf(weight, sizeof weight, "%s.weight", name);
    snprintf(bias, sizeof bias, "%s.bias", name);
    sluice_value w = parameter(m, block, weight, m->o->width, 0, (sluice_init){ SLUICE_INIT_ONE, 0 });
    sluice_value b = parameter(m, block, bias, m->o->width, 0, (sluice_init){ SLUICE_INIT_ZERO, 0 });
    return sluice_layer_norm(m->g, x, w, b, m->epsilon);
}

static sluice_value drop(const gpt2 *m, sluice_value x)
{
    return m->o->dropout > 0 ? sluice_dropout(m->g, x, (float)m->o->dropout) : x;
}

/* tokens[B,T] -> x[B,T,C]; *table is the token embedding, which the head uses again. */
static sluice_value embed(const gpt2 *m, sluice_value *table)
{
    const sl_model_options *o = m->o;
    sluice_init init = { SLUICE_INIT_NORMAL, STDDEV };
    sluice_layer(m->g, "embed");
    sluice_value tokens = sluice_input(m->g, "tokens", SLUICE_I32, 2, (int64_t[]){ o->batch, o->context });
    *table = parameter(m, "", "wte.weight", o->vocabulary, o->width, init);
    sluice_value positions = parameter(m, "", "wpe.weight", o->context, o->width, init);
    return drop(m, sluice_add(m->g, sluice_embedding(m->g, tokens, *table), positions));
}

/* x[B,T,C] -> the same: attention, then a feed-forward part, each normalised before and added to the residual stream
 * after. */
static sluice_value block(const gpt2 *m, sluice_value x, int64_t number)
{
    sluice_graph *g = m->g;
    int64_t width = m->o->width;
    int heads = (int)m->o->heads;
    char name[32], prefix[40];
    snprintf(name, sizeof name, "h.%" PRId64, number);
    snprintf(prefix, sizeof prefix, "%s.", name);
    sluice_layer(g, name);
    sluice_value y = norm(m, x, prefix, "ln_1");
    y = project(m, y, prefix, "attn.c_attn", width, 3 * width, STDDEV);
    y = sluice_attention_packed(g, y, heads, heads, true);
    x = sluice_add(g, x, drop(m, project(m, y, prefix, "attn.c_proj", width, width, m->residual_stddev)));
    y = norm(m, x, prefix, "ln_2");
    y = sluice_gelu(g, project(m, y, prefix, "mlp.c_fc", width, 4 * width, STDDEV), false);
    return sluice_add(g, x, drop(m, project(m, y, prefix, "mlp.c_proj", 4 * width, width, m->residual_stddev)));
}

/* x[B,T,C] -> logits[B,T,V] with the token embedding as weight; the loss skips targets of -1. */
static void head(const gpt2 *m, sluice_value x, sluice_value table)
{
    sluice_layer(m->g, "head");
    sluice_value targets = sluice_input(m->g, "targets", SLUICE_I32, 2, (int64_t[]){ m->o->batch, m->o->context });
    sluice_value logits = sluice_linear_with(m->g, norm(m, x, "", "ln_f"), table, SLUICE_NONE, false);
    sluice_set_loss(m->g, sluice_cross_entropy(m->g, logits, targets, -1));
    sluice_set_output(m->g, logits);
    m->g->constants = constants;
}

sluice_status sl_model_build_gpt2(sluice_graph *g, const sl_model_options *o, sl_model_info *info)
{
    SL_TRY(check(o));
    gpt2 m = {
        .o = o,
        .g = g,
        .epsilon = o->norm_epsilon > 0 ? (float)o->norm_epsilon : 1e-5f,
        .residual_stddev = (float)(0.02 / sqrt(2.0 * (double)o->layers)),
    };
    sluice_value table;
    sluice_value x = embed(&m, &table);
    for (int64_t i = 0; i < o->layers; i++) x = block(&m, x, i);
    head(&m, x, table);
    info->tokens_per_sample = o->context;
    info->classifies = true;
    return SLUICE_OK;
}

/* encoder.c: the blocks that BERT and ViT are made of: attention over all positions, then a feed-forward part.
 *
 * Names are those of Hugging Face's files. Query, key and value come from one matrix here, whose parts carry the names that
 * files have for them.
 *
 * Shapes: B micro-batch, T positions, C width, F feed-forward. */
#include <inttypes.h>
#include <stdio.h>

#include "model/family.h"

#define STDDEV 0.02f

sluice_value sl_encoder_linear(const sl_encoder_model *e, sluice_value x, const char *block, const char *name,
                               int64_t in, int64_t out)
{
    char weight[SL_MODEL_NAME_BYTES], bias[SL_MODEL_NAME_BYTES];
    snprintf(weight, sizeof weight, "%s.weight", name);
    snprintf(bias, sizeof bias, "%s.bias", name);
    sluice_value w = sl_model_parameter(&e->m, block, weight, out, in, (sluice_init){ SLUICE_INIT_NORMAL, STDDEV });
    sluice_value b = sl_model_parameter(&e->m, block, bias, out, 0, (sluice_init){ SLUICE_INIT_ZERO, 0 });
    return sl_model_linear(&e->m, x, block, name, w, b, false);
}

sluice_value sl_encoder_norm(const sl_encoder_model *e, sluice_value x, const char *block, const char *name)
{
    char weight[SL_MODEL_NAME_BYTES], bias[SL_MODEL_NAME_BYTES];
    snprintf(weight, sizeof weight, "%s.weight", name);
    snprintf(bias, sizeof bias, "%s.bias", name);
    sluice_value w = sl_model_parameter(&e->m, block, weight, e->c.width, 0, (sluice_init){ SLUICE_INIT_ONE, 0 });
    sluice_value b = sl_model_parameter(&e->m, block, bias, e->c.width, 0, (sluice_init){ SLUICE_INIT_ZERO, 0 });
    return sluice_layer_norm(e->m.g, x, w, b, (float)e->c.norm_epsilon);
}

sluice_value sl_encoder_drop(const sl_encoder_model *e, sluice_value x, double rate)
{
    return rate > 0 ? sluice_dropout(e->m.g, x, (float)rate) : x;
}

/* The parts of "<block><base>qkv.weight", or ".bias", as files have them. */
static void name_parts(const sl_encoder_model *e, sluice_value parameter, const char *block, const char *base,
                       const char *ending)
{
    static const char *const kinds[] = { "query", "key", "value" };
    char names[3][2 * SL_MODEL_NAME_BYTES];
    sl_part parts[3];
    for (int i = 0; i < 3; i++) {
        snprintf(names[i], sizeof names[i], "%s%s%s%s", block, base, kinds[i], ending);
        parts[i] = (sl_part){ names[i], e->c.width };
    }
    sl_graph_set_parts(e->m.g, parameter, parts, 3);
}

/* x[B,T,C] -> the same: every position looks at all, or at those within the length of its row. */
static sluice_value attend(const sl_encoder_model *e, const sl_encoder_names *n, sluice_value x, const char *block,
                           sluice_value lengths)
{
    char name[SL_MODEL_NAME_BYTES], weight[SL_MODEL_NAME_BYTES], bias[SL_MODEL_NAME_BYTES];
    int64_t width = e->c.width;
    sluice_attention_options o;
    snprintf(name, sizeof name, "%sqkv", n->attention);
    snprintf(weight, sizeof weight, "%.80s.weight", name);
    snprintf(bias, sizeof bias, "%.80s.bias", name);
    sluice_value w =
        sl_model_parameter(&e->m, block, weight, 3 * width, width, (sluice_init){ SLUICE_INIT_NORMAL, STDDEV });
    sluice_value b = sl_model_parameter(&e->m, block, bias, 3 * width, 0, (sluice_init){ SLUICE_INIT_ZERO, 0 });
    name_parts(e, w, block, n->attention, ".weight");
    name_parts(e, b, block, n->attention, ".bias");
    sluice_attention_options_init(&o);
    o.heads = (int)e->c.heads;
    o.causal = false;
    sluice_value qkv = sl_model_linear(&e->m, x, block, name, w, b, false);
    sluice_value y = sluice_attention_with(e->m.g, qkv, SLUICE_NONE, SLUICE_NONE, lengths, &o);
    return sl_encoder_drop(e, sl_encoder_linear(e, y, block, n->attention_out, width, width), e->m.o->dropout);
}

static sluice_value feed_forward(const sl_encoder_model *e, sluice_value x, const char *block)
{
    int64_t inner = e->c.feed_forward;
    sluice_value y = sl_encoder_linear(e, x, block, "intermediate.dense", e->c.width, inner);
    y = sl_encoder_linear(e, sl_model_activate(&e->m, &e->c, y), block, "output.dense", inner, e->c.width);
    return sl_encoder_drop(e, y, e->m.o->dropout);
}

sluice_value sl_encoder_block(const sl_encoder_model *e, const sl_encoder_names *n, sluice_value x, int64_t number,
                              sluice_value lengths)
{
    char layer[32], block[64];
    snprintf(layer, sizeof layer, "layer.%" PRId64, number);
    snprintf(block, sizeof block, "%s.encoder.%s.", n->model, layer);
    sluice_layer(e->m.g, layer);
    if (n->norms_first) {
        x = sluice_add(e->m.g, x, attend(e, n, sl_encoder_norm(e, x, block, n->first_norm), block, lengths));
        return sluice_add(e->m.g, x, feed_forward(e, sl_encoder_norm(e, x, block, n->second_norm), block));
    }
    x = sl_encoder_norm(e, sluice_add(e->m.g, x, attend(e, n, x, block, lengths)), block, n->first_norm);
    return sl_encoder_norm(e, sluice_add(e->m.g, x, feed_forward(e, x, block)), block, n->second_norm);
}

void sl_encoder_classify(const sl_encoder_model *e, sluice_value x, sl_model_info *info)
{
    sluice_value logits = sl_encoder_linear(e, x, "", "classifier", e->c.width, e->c.classes);
    sluice_value target = sluice_input(e->m.g, "target", SLUICE_I32, 1, (int64_t[]){ e->m.o->batch });
    sluice_set_loss(e->m.g,
                    sluice_cross_entropy_smoothed(e->m.g, logits, target, -1, 0, (float)e->m.o->label_smoothing));
    sluice_set_output(e->m.g, logits);
    info->classifies = true;
}

sluice_value sl_encoder_first(const sl_encoder_model *e, sluice_value x)
{
    return sluice_reshape(e->m.g, sluice_split(e->m.g, x, 1, 0, 1), 2, (int64_t[]){ e->m.o->batch, e->c.width });
}

/* describe.c: which transformer the settings mean: the one of a folder's config.json, or one that is described by hand. */
#include <inttypes.h>
#include <stdio.h>

#include "model/family.h"

/* ---- By hand ---- */

static bool is_rotary(sl_decoder family)
{
    return family != SL_DECODER_GPT2 && !sl_decoder_is_encoder(family);
}

/* 8/3 of the width, so that three matrices have as many elements as two of four times the width. */
static int64_t default_feed_forward(sl_decoder family, int64_t width)
{
    return !is_rotary(family) ? 4 * width : (width * 8 / 3 + 255) / 256 * 256;
}

static bool has_windows(sl_decoder family)
{
    return is_rotary(family) && family != SL_DECODER_LLAMA && family != SL_DECODER_GEMMA;
}

static sluice_status refuse(const sl_model_options *o, const char *key)
{
    return sl_fail(SLUICE_ERR_USAGE, "%s has no meaning for model.type %s; remove it", key, o->type);
}

/* Settings that some families have no place for. */
static sluice_status check_traits(const sl_model_options *o, sl_decoder family)
{
    bool gpt2 = !is_rotary(family);
    bool biased = family == SL_DECODER_LLAMA || family == SL_DECODER_QWEN3 || family == SL_DECODER_GEMMA ||
                  family == SL_DECODER_GEMMA2 || family == SL_DECODER_GEMMA3;
    if (gpt2 && o->kv_heads > 0 && o->kv_heads != o->heads) return refuse(o, "model.kv_heads");
    if (gpt2 && o->head_width > 0) return refuse(o, "model.head_width");
    if (!gpt2 && o->dropout > 0) return refuse(o, "model.dropout");
    if (!biased && o->attention_bias) return refuse(o, "model.attention_bias");
    if (!has_windows(family) && o->window > 0) return refuse(o, "model.sliding_window");
    return SLUICE_OK;
}

static sluice_status check_heads(const sl_model_config *c)
{
    if (c->kv_heads > c->heads || c->heads % c->kv_heads != 0)
        return sl_fail(SLUICE_ERR_USAGE, "model.kv_heads %" PRId64 " does not divide model.heads %" PRId64, c->kv_heads,
                       c->heads);
    if (is_rotary(c->family) && c->head_width % 2 != 0)
        return sl_fail(SLUICE_ERR_USAGE, "%s is %" PRId64 "; the rotation needs an even number",
                       c->head_width * c->heads == c->width ? "model.width / model.heads" : "model.head_width",
                       c->head_width);
    if ((double)(c->heads + 2 * c->kv_heads) * (double)c->head_width > (double)SL_MODEL_MAX_SIZE)
        return sl_fail(SLUICE_ERR_USAGE, "model.head_width %" PRId64 " makes more columns than can be computed",
                       c->head_width);
    return SLUICE_OK;
}

static sluice_status check_settings(const sl_model_options *o, sl_decoder family)
{
    SL_TRY(family == SL_DECODER_VIT ? sl_model_check_blocks(o) : sl_model_check_transformer(o));
    SL_TRY(check_traits(o, family));
    if (family == SL_DECODER_BERT && o->untied) return refuse(o, "model.tie_word_embeddings");
    if (o->feed_forward != 0) SL_TRY(sl_model_check_size("model.feed_forward", o->feed_forward, SL_MODEL_MAX_SIZE / 2));
    if (o->window != 0) SL_TRY(sl_model_check_size("model.sliding_window", o->window, SL_MODEL_MAX_SIZE));
    if (!(o->rope_theta >= 0 && o->rope_theta < 1e30))
        return sl_fail(SLUICE_ERR_USAGE, "model.rope_theta is %g; give a positive number such as 500000",
                       o->rope_theta);
    return sl_model_check_dropout(o);
}

/* Windows by the family's rule: without one in the settings only of families that cannot be without. */
static void describe_windows(const sl_model_options *o, sl_model_config *c)
{
    bool qwen = c->family == SL_DECODER_QWEN2 || c->family == SL_DECODER_QWEN3;
    if (o->window > 0 || c->slide_rule != SL_SLIDE_EVERY) c->window = o->window;
    if (!qwen) return;
    c->slide_rule = c->window > 0 ? SL_SLIDE_FROM : SL_SLIDE_NONE;
    c->slide_number = 0;
}

static void describe_by_hand(const sl_model_options *o, sl_decoder family, sl_model_config *c)
{
    sl_model_config_defaults(family, c);
    c->width = o->width;
    c->layers = o->layers;
    c->heads = o->heads;
    c->kv_heads = o->kv_heads > 0 ? o->kv_heads : o->heads;
    c->head_width = o->head_width > 0 ? o->head_width : o->width / o->heads;
    c->feed_forward = o->feed_forward > 0 ? o->feed_forward : default_feed_forward(family, o->width);
    c->vocabulary = o->vocabulary;
    c->context = o->context;
    c->norm_epsilon = o->norm_epsilon > 0 ? o->norm_epsilon : 1e-5;
    if (is_rotary(family)) c->rope.theta = o->rope_theta > 0 ? o->rope_theta : 500000;
    c->tied = !o->untied;
    c->attention_bias = o->attention_bias;
    if (c->query_scalar > 0) c->query_scalar = (double)c->head_width;
    c->attention_dropout = 0;
    c->bos = c->pad = -1; /* its token ids have no such meanings */
    c->end_count = 0;
    describe_windows(o, c);
    if (family == SL_DECODER_VIT) {
        c->image_size = o->image.height;
        c->channels = o->image.channels;
        c->patch = o->patch;
    }
}

/* Which head a BERT has, and how many classes there are: what is trained decides, not the folder. */
static void describe_head(const sl_model_options *o, sl_model_config *c)
{
    if (!sl_decoder_is_encoder(c->family)) return;
    bool classifies = c->family == SL_DECODER_VIT || sl_model_head_classifies(o);
    c->classes = classifies ? o->outputs : 0;
}

/* What is applied counts, not the folder; of attention, where nothing is, the folder's stays. An encoder's files have one rate
 * for the embedding and the stream. */
static void describe_dropout(const sl_model_options *o, sl_model_config *c)
{
    if (is_rotary(c->family)) return;
    double classifier = sl_model_classifier_dropout(o);
    c->dropout = o->dropout;
    if (c->family == SL_DECODER_GPT2) c->embedding_dropout = sl_model_embedding_dropout(o);
    if (c->family != SL_DECODER_BERT || (c->classifier_dropout < 0 && classifier == o->dropout)) return;
    c->classifier_dropout = classifier;
}

/* ---- A folder's ---- */

static sluice_status check_context(const sl_model_options *o)
{
    if (o->folder.family != SL_DECODER_VIT) SL_TRY(sl_model_check_size("model.context", o->context, SL_MODEL_MAX_SIZE));
    bool table = o->folder.family == SL_DECODER_GPT2 || o->folder.family == SL_DECODER_BERT;
    if (table && o->context > o->folder.context)
        return sl_fail(SLUICE_ERR_USAGE,
                       "model.context is %" PRId64 ", and the position table of model.path has %" PRId64 " rows",
                       o->context, o->folder.context);
    if (o->dropout > 0 && is_rotary(o->folder.family)) return refuse(o, "model.dropout");
    return sl_model_check_dropout(o);
}

sluice_status sl_model_describe(const sl_model_options *o, sl_model_config *out)
{
    sl_model_config c;
    sl_decoder family = sl_decoder_find(o->type != NULL ? o->type : "");
    if (o->folder.family != SL_DECODER_NONE) {
        SL_TRY(check_context(o));
        *out = o->folder;
        describe_head(o, out);
        describe_dropout(o, out);
        return SLUICE_OK;
    }
    if (family == SL_DECODER_NONE)
        return sl_fail(SLUICE_ERR_USAGE, "model.type \"%s\" is no family of transformers",
                       o->type != NULL ? o->type : "");
    SL_TRY(check_settings(o, family));
    describe_by_hand(o, family, &c);
    describe_head(o, &c);
    describe_dropout(o, &c);
    SL_TRY(check_heads(&c));
    *out = c;
    return SLUICE_OK;
}

/* model_config_keys.c: families of models and the keys of their config.json, which reading and writing share.
 *
 * A key is a row; what it means when it is absent is in the row of the family. */
#include "format/model_config_keys.h"

#include <string.h>

/* ---- Families ---- */

typedef struct decoder_row {
    const char *name, *class_name;
    sl_model_config absent; /* what a file means that leaves every key out; sizes are required or 0 */
} decoder_row;

#define COMMON .initial_stddev = 0.02, .bos = -1, .pad = -1
#define ROPE(theta_)                                                                                                   \
    {                                                                                                                  \
        .theta = theta_, .factor = 1, .beta_fast = 32, .beta_slow = 1, .whole_steps = true                             \
    }
#define SILU .activation = SL_ACTIVATION_SILU, .rotated_share = 1, .rope = ROPE(1e4), COMMON
#define GEMMA                                                                                                          \
    .activation = SL_ACTIVATION_GELU_TANH, .rotated_share = 1, .norm_epsilon = 1e-6, .head_width = 256, .tied = true
#define ENDS(bos_, end_, pad_) .bos = bos_, .ends = { end_ }, .end_count = 1, .pad = pad_

static const decoder_row decoders[SL_DECODER_COUNT] = {
    [SL_DECODER_NONE] = { "", "", { .family = SL_DECODER_NONE } },
    [SL_DECODER_GPT2] = { "gpt2",
                          "GPT2LMHeadModel",
                          { .family = SL_DECODER_GPT2,
                            .norm_epsilon = 1e-5,
                            .activation = SL_ACTIVATION_GELU_TANH,
                            .tied = true,
                            .dropout = 0.1,
                            .embedding_dropout = 0.1,
                            .attention_dropout = 0.1,
                            .initial_stddev = 0.02,
                            ENDS(50256, 50256, -1) } },
    [SL_DECODER_LLAMA] = { "llama",
                           "LlamaForCausalLM",
                           { .family = SL_DECODER_LLAMA,
                             .norm_epsilon = 1e-6,
                             .activation = SL_ACTIVATION_SILU,
                             .rotated_share = 1,
                             .rope = ROPE(1e4),
                             .initial_stddev = 0.02,
                             ENDS(1, 2, -1) } },
    [SL_DECODER_MISTRAL] = { "mistral",
                             "MistralForCausalLM",
                             { .family = SL_DECODER_MISTRAL,
                               .norm_epsilon = 1e-6,
                               .kv_heads = 8,
                               .activation = SL_ACTIVATION_SILU,
                               .rotated_share = 1,
                               .rope = ROPE(1e4),
                               .window = 4096,
                               .slide_rule = SL_SLIDE_ALL,
                               .initial_stddev = 0.02,
                               ENDS(1, 2, -1) } },
    [SL_DECODER_QWEN2] = { "qwen2",
                           "Qwen2ForCausalLM",
                           { .family = SL_DECODER_QWEN2,
                             .norm_epsilon = 1e-6,
                             .kv_heads = 32,
                             .window = 4096,
                             .slide_number = 28,
                             SILU } },
    [SL_DECODER_QWEN3] = { "qwen3",
                           "Qwen3ForCausalLM",
                           { .family = SL_DECODER_QWEN3,
                             .norm_epsilon = 1e-6,
                             .kv_heads = 32,
                             .head_width = 128,
                             .window = 4096,
                             .slide_number = 28,
                             SILU } },
    [SL_DECODER_PHI3] = { "phi3",
                          "Phi3ForCausalLM",
                          { .family = SL_DECODER_PHI3,
                            .norm_epsilon = 1e-5,
                            .activation = SL_ACTIVATION_SILU,
                            .rotated_share = 1,
                            .rope = ROPE(1e4),
                            .slide_rule = SL_SLIDE_ALL,
                            .initial_stddev = 0.02,
                            ENDS(1, 32000, 32000) } },
    [SL_DECODER_GEMMA] = { "gemma",
                           "GemmaForCausalLM",
                           { .family = SL_DECODER_GEMMA,
                             GEMMA,
                             .kv_heads = 16,
                             .rope = ROPE(1e4),
                             .initial_stddev = 0.02,
                             ENDS(2, 1, 0) } },
    [SL_DECODER_GEMMA2] = { "gemma2",
                            "Gemma2ForCausalLM",
                            { .family = SL_DECODER_GEMMA2,
                              GEMMA,
                              .kv_heads = 4,
                              .rope = ROPE(1e4),
                              .window = 4096,
                              .slide_rule = SL_SLIDE_EVERY,
                              .slide_number = 2,
                              .query_scalar = 256,
                              .attention_soft_cap = 50,
                              .logit_soft_cap = 30,
                              .initial_stddev = 0.02,
                              ENDS(2, 1, 0) } },
    [SL_DECODER_GEMMA3] = { "gemma3_text",
                            "Gemma3ForCausalLM",
                            { .family = SL_DECODER_GEMMA3,
                              GEMMA,
                              .kv_heads = 4,
                              .rope = ROPE(1e6),
                              .local_rope = ROPE(1e4),
                              .window = 4096,
                              .slide_rule = SL_SLIDE_EVERY,
                              .slide_number = 6,
                              .query_scalar = 256,
                              .initial_stddev = 0.02,
                              ENDS(2, 1, 0) } },
    [SL_DECODER_BERT] = { "bert",
                          "BertForMaskedLM",
                          { .family = SL_DECODER_BERT,
                            .norm_epsilon = 1e-12,
                            .activation = SL_ACTIVATION_GELU,
                            .tied = true,
                            .segments = 2,
                            .dropout = 0.1,
                            .classifier_dropout = -1,
                            .attention_dropout = 0.1,
                            .initial_stddev = 0.02,
                            .bos = -1 } },
    [SL_DECODER_VIT] = { "vit",
                         "ViTForImageClassification",
                         { .family = SL_DECODER_VIT,
                           .norm_epsilon = 1e-12,
                           .activation = SL_ACTIVATION_GELU,
                           .image_size = 224,
                           .channels = 3,
                           .patch = 16,
                           COMMON } },
};

const char *sl_decoder_name(sl_decoder family)
{
    return decoders[family].name;
}

bool sl_decoder_is_encoder(sl_decoder family)
{
    return (1u << family & SL_FAMILY_ENCODERS) != 0;
}

const char *sl_model_config_class(const sl_model_config *c)
{
    if (c->family == SL_DECODER_BERT && c->classes > 0) return "BertForSequenceClassification";
    return decoders[c->family].class_name;
}

sl_decoder sl_decoder_find(const char *model_type)
{
    for (int i = SL_DECODER_NONE + 1; i < SL_DECODER_COUNT; i++)
        if (strcmp(decoders[i].name, model_type) == 0) return (sl_decoder)i;
    return SL_DECODER_NONE;
}

void sl_model_config_defaults(sl_decoder family, sl_model_config *out)
{
    *out = decoders[family].absent;
}

/* ---- Keys ---- */

#define FIELD(field_) offsetof(sl_model_config, field_)
#define GPT2          SL_FAMILY_BIT(GPT2)
#define ROTARY        SL_FAMILY_ROTARY
#define ENCODERS      SL_FAMILY_ENCODERS
#define BERT          SL_FAMILY_BIT(BERT)
#define VIT           SL_FAMILY_BIT(VIT)
#define TOKENS        SL_FAMILY_TOKENS
#define QWENS         SL_FAMILY_QWENS
#define CAPPED        SL_FAMILY_CAPPED
/* A size, which is never guessed. */
#define SIZE(key_, families_, field_, meaning_)                                                                        \
    {                                                                                                                  \
        key_, families_, SL_FIELD_WHOLE, FIELD(field_), 1, SL_MODEL_SIZES, SL_NULL_REFUSED, true, meaning_             \
    }
#define KEY(key_, families_, type_, field_, min_, max_, null_, meaning_)                                               \
    {                                                                                                                  \
        key_, families_, SL_FIELD_##type_, FIELD(field_), min_, max_, SL_NULL_##null_, false, meaning_                 \
    }

const sl_decoder_key sl_decoder_keys[] = {
    SIZE("n_embd", GPT2, width, "the width of the residual stream"),
    SIZE("n_layer", GPT2, layers, "the number of blocks"),
    SIZE("n_head", GPT2, heads, "the number of attention heads"),
    SIZE("n_positions", GPT2, context, "the rows of the position table"),
    KEY("n_inner", GPT2, WHOLE, feed_forward, 1, SL_MODEL_SIZES, ZERO,
        "width of the feed-forward part; none: 4 x n_embd"),
    SIZE("hidden_size", ROTARY | ENCODERS, width, "the width of the residual stream"),
    SIZE("num_hidden_layers", ROTARY | ENCODERS, layers, "the number of blocks"),
    SIZE("num_attention_heads", ROTARY | ENCODERS, heads, "the number of query heads"),
    SIZE("intermediate_size", ROTARY | ENCODERS, feed_forward, "the width of the feed-forward part"),
    SIZE("max_position_embeddings", ROTARY | BERT, context, "the positions that the model was made for"),
    SIZE("vocab_size", TOKENS, vocabulary, "the rows of the token embedding"),
    KEY("num_key_value_heads", ROTARY & ~SL_FAMILY_GEMMAS, WHOLE, kv_heads, 1, SL_MODEL_SIZES, ZERO,
        "key and value heads"),
    KEY("num_key_value_heads", SL_FAMILY_GEMMAS, WHOLE, kv_heads, 1, SL_MODEL_SIZES, REFUSED, "key and value heads"),
    KEY("head_dim", ROTARY & ~(SL_FAMILY_BIT(QWEN3) | SL_FAMILY_GEMMAS), WHOLE, head_width, 1, SL_MODEL_SIZES, ZERO,
        "width of a head; none: hidden_size / num_attention_heads"),
    KEY("head_dim", SL_FAMILY_BIT(QWEN3) | SL_FAMILY_GEMMAS, WHOLE, head_width, 1, SL_MODEL_SIZES, REFUSED,
        "width of a head"),
    KEY("type_vocab_size", BERT, WHOLE, segments, 1, SL_MODEL_SIZES, REFUSED, "rows of the table of token types"),
    KEY("image_size", VIT, WHOLE, image_size, 1, SL_MODEL_SIZES, REFUSED, "side of an image in pixels"),
    KEY("num_channels", VIT, WHOLE, channels, 1, SL_MODEL_SIZES, REFUSED, "channels of an image"),
    KEY("patch_size", VIT, WHOLE, patch, 1, SL_MODEL_SIZES, REFUSED, "side of a patch in pixels"),
    KEY("layer_norm_eps", ENCODERS, REAL, norm_epsilon, 1e-30, 1, REFUSED, "added to the variance"),
    KEY("layer_norm_epsilon", GPT2, REAL, norm_epsilon, 1e-30, 1, REFUSED, "added to the variance"),
    KEY("rms_norm_eps", ROTARY, REAL, norm_epsilon, 1e-30, 1, REFUSED, "added to the mean square"),
    KEY("activation_function", GPT2, ACTIVATION, activation, 0, 0, ABSENT, "between the feed-forward linears"),
    KEY("hidden_act", ROTARY & ~CAPPED, ACTIVATION, activation, 0, 0, ABSENT, "of the gate"),
    KEY("hidden_act", ENCODERS, ACTIVATION, activation, 0, 0, ABSENT, "between the feed-forward linears"),
    KEY("hidden_activation", SL_FAMILY_GEMMAS, ACTIVATION, activation, 0, 0, ABSENT, "of the gate"),
    KEY("tie_word_embeddings", TOKENS, FLAG, tied, 0, 1, REFUSED, "the head is the token embedding"),
    KEY("attention_bias", SL_FAMILY_BIT(LLAMA) | SL_FAMILY_BIT(QWEN3) | SL_FAMILY_GEMMAS, FLAG, attention_bias, 0, 1,
        ZERO, "biases on the projections of attention"),
    KEY("mlp_bias", SL_FAMILY_BIT(LLAMA), FLAG, feed_forward_bias, 0, 1, ZERO, "biases of the feed-forward part"),
    KEY("scale_attn_weights", GPT2, NOT_FLAG, unscaled_attention, 0, 1, REFUSED,
        "scores are divided by the root of the head's width"),
    KEY("query_pre_attn_scalar", CAPPED, NUMBER, query_scalar, 1e-6, 1e9, REFUSED, "scores are divided by its root"),
    KEY("attn_logit_softcapping", SL_FAMILY_BIT(GEMMA2), REAL, attention_soft_cap, 1e-6, 1e9, ZERO,
        "bound of attention's scores"),
    KEY("final_logit_softcapping", CAPPED, REAL, logit_soft_cap, 1e-6, 1e9, ZERO, "bound of the logits"),
    KEY("resid_pdrop", GPT2 | SL_FAMILY_BIT(PHI3), REAL, dropout, 0, 1, ABSENT, "dropout on the residual stream"),
    KEY("embd_pdrop", GPT2, REAL, embedding_dropout, 0, 1, ABSENT, "dropout behind the embedding"),
    KEY("hidden_dropout_prob", ENCODERS, REAL, dropout, 0, 1, ABSENT, "dropout on the residual stream"),
    KEY("classifier_dropout", BERT, REAL, classifier_dropout, 0, 1, ABSENT, "dropout before the classifier"),
    KEY("attention_probs_dropout_prob", ENCODERS, REAL, attention_dropout, 0, 1, ABSENT,
        "dropout on attention's weights"),
    KEY("attn_pdrop", GPT2, REAL, attention_dropout, 0, 1, ABSENT, "dropout on attention's weights"),
    KEY("attention_dropout", ROTARY, REAL, attention_dropout, 0, 1, ABSENT, "dropout on attention's weights"),
    KEY("initializer_range", SL_FAMILY_ALL, REAL, initial_stddev, 0, 1e3, ABSENT, "deviation of random weights"),
    KEY("bos_token_id", TOKENS & ~BERT, ID, bos, 0, SL_MODEL_SIZES, ZERO, "the token that begins a text"),
    KEY("pad_token_id", TOKENS, ID, pad, -1, SL_MODEL_SIZES, ZERO, "the token that fills up"),
};
const size_t sl_decoder_key_count = sizeof sl_decoder_keys / sizeof sl_decoder_keys[0];

static const char *key_of(sl_decoder family, size_t offset)
{
    for (size_t i = 0; i < sl_decoder_key_count; i++)
        if (sl_decoder_keys[i].offset == offset && (sl_decoder_keys[i].families & 1u << family) != 0)
            return sl_decoder_keys[i].key;
    return "";
}

const char *sl_model_config_attention_key(const sl_model_config *c)
{
    return key_of(c->family, FIELD(attention_dropout));
}

const char *sl_model_config_dropout_key(const sl_model_config *c)
{
    return key_of(c->family, FIELD(dropout));
}

/* ---- Activations ---- */

static const struct {
    const char *name;
    sl_activation activation;
    bool gates; /* a gate can have it */
} activations[] = {
    { "gelu_new", SL_ACTIVATION_GELU_TANH, true },  { "gelu_pytorch_tanh", SL_ACTIVATION_GELU_TANH, true },
    { "gelu_fast", SL_ACTIVATION_GELU_TANH, true }, { "gelu", SL_ACTIVATION_GELU, false },
    { "silu", SL_ACTIVATION_SILU, true },           { "swish", SL_ACTIVATION_SILU, true },
    { "relu", SL_ACTIVATION_RELU, false },
};

const char *sl_activation_name(sl_decoder family, sl_activation activation)
{
    size_t first = family != SL_DECODER_GPT2 && activation == SL_ACTIVATION_GELU_TANH ? 1 : 0;
    for (size_t i = first; i < sizeof activations / sizeof activations[0]; i++)
        if (activations[i].activation == activation) return activations[i].name;
    return "";
}

bool sl_activation_find(const char *name, bool gated, sl_activation *out)
{
    for (size_t i = 0; i < sizeof activations / sizeof activations[0]; i++) {
        if (strcmp(activations[i].name, name) != 0 || (gated && !activations[i].gates)) continue;
        *out = activations[i].activation;
        return true;
    }
    return false;
}

/* ---- Rotary positions ---- */

static const char *const rope_types[SL_ROPE_TYPES] = { [SL_ROPE_DEFAULT] = "default",
                                                       [SL_ROPE_LINEAR] = "linear",
                                                       [SL_ROPE_DYNAMIC] = "dynamic",
                                                       [SL_ROPE_LLAMA3] = "llama3",
                                                       [SL_ROPE_YARN] = "yarn" };

const char *sl_rope_type_name(sl_rope_type type)
{
    return rope_types[type];
}

#define ROPE_FIELD(field_) offsetof(sl_rope_config, field_)
#define BIT(type_)         (1u << SL_ROPE_##type_)
#define SCALED             (BIT(LINEAR) | BIT(DYNAMIC) | BIT(LLAMA3) | BIT(YARN))
const sl_rope_key sl_rope_keys[] = {
    { "rope_theta", BIT(DEFAULT) | SCALED, 0, SL_FIELD_REAL, ROPE_FIELD(theta), 1.0001, 1e30 },
    { "factor", SCALED, SCALED, SL_FIELD_REAL, ROPE_FIELD(factor), 1, 1e9 },
    { "low_freq_factor", BIT(LLAMA3), BIT(LLAMA3), SL_FIELD_REAL, ROPE_FIELD(low_freq), 1e-6, 1e9 },
    { "high_freq_factor", BIT(LLAMA3), BIT(LLAMA3), SL_FIELD_REAL, ROPE_FIELD(high_freq), 1e-6, 1e9 },
    { "original_max_position_embeddings", BIT(LLAMA3) | BIT(YARN), 0, SL_FIELD_WHOLE, ROPE_FIELD(original_context), 1,
      SL_MODEL_SIZES },
    { "beta_fast", BIT(YARN), 0, SL_FIELD_REAL, ROPE_FIELD(beta_fast), 1e-6, 1e9 },
    { "beta_slow", BIT(YARN), 0, SL_FIELD_REAL, ROPE_FIELD(beta_slow), 1e-6, 1e9 },
    { "attention_factor", BIT(YARN), 0, SL_FIELD_REAL, ROPE_FIELD(attention_factor), 1e-6, 1e9 },
    { "mscale", BIT(YARN), 0, SL_FIELD_REAL, ROPE_FIELD(mscale), 0, 1e9 },
    { "mscale_all_dim", BIT(YARN), 0, SL_FIELD_REAL, ROPE_FIELD(mscale_all), 0, 1e9 },
    { "truncate", BIT(YARN), 0, SL_FIELD_FLAG, ROPE_FIELD(whole_steps), 0, 1 },
};
const size_t sl_rope_key_count = sizeof sl_rope_keys / sizeof sl_rope_keys[0];

/* ---- Windows ---- */

bool sl_model_config_slides(const sl_model_config *c, int64_t layer)
{
    if (c->window == 0) return false;
    switch (c->slide_rule) {
    case SL_SLIDE_NONE:
        return false;
    case SL_SLIDE_ALL:
        return true;
    case SL_SLIDE_FROM:
        return layer >= c->slide_number;
    case SL_SLIDE_EVERY:
        return (layer + 1) % c->slide_number != 0;
    case SL_SLIDE_LIST:
        return (c->slide_list[layer / 8] >> layer % 8 & 1) != 0;
    }
    return false;
}

bool sl_decoder_lists_layers(sl_decoder family)
{
    return (1u << family & (QWENS | CAPPED)) != 0;
}

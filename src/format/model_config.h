/* model_config.h: the config.json of a transformer, as Hugging Face's transformers writes it, and as a plain struct.
 *
 * Both forms that are met on disk are read: rope_theta and rope_scaling, or both inside rope_parameters; torch_dtype or
 * dtype. Both are written, because each version of transformers reads only one of them right. A key that would change
 * the mathematics and that nothing here computes is refused by name; other unknown keys are harmless, and are kept where
 * a file is written from another. */
#ifndef SL_FORMAT_MODEL_CONFIG_H
#define SL_FORMAT_MODEL_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/status.h"
#include "format/text_buffer.h"

/* Families, and the names that model_type has for them: decoders, then encoders. */
#define SL_DECODERS(ROW)                                                                                               \
    ROW(GPT2, gpt2)                                                                                                    \
    ROW(LLAMA, llama)                                                                                                  \
    ROW(MISTRAL, mistral)                                                                                              \
    ROW(QWEN2, qwen2)                                                                                                  \
    ROW(QWEN3, qwen3)                                                                                                  \
    ROW(PHI3, phi3)                                                                                                    \
    ROW(GEMMA, gemma)                                                                                                  \
    ROW(GEMMA2, gemma2)                                                                                                \
    ROW(GEMMA3, gemma3_text)                                                                                           \
    ROW(BERT, bert)                                                                                                    \
    ROW(VIT, vit)

typedef enum {
    SL_DECODER_NONE,
#define SL_DECODER_VALUE(id_, name_) SL_DECODER_##id_,
    SL_DECODERS(SL_DECODER_VALUE)
#undef SL_DECODER_VALUE
        SL_DECODER_COUNT
} sl_decoder;

/* How frequencies of the rotary embedding follow from its base. */
typedef enum { SL_ROPE_DEFAULT, SL_ROPE_LINEAR, SL_ROPE_DYNAMIC, SL_ROPE_LLAMA3, SL_ROPE_YARN } sl_rope_type;

typedef struct sl_rope_config {
    sl_rope_type type;
    double theta;
    double factor;               /* 1 for the default type */
    double low_freq, high_freq;  /* llama3 */
    double beta_fast, beta_slow; /* yarn */
    double attention_factor;     /* yarn; 0: follows from the others */
    double mscale, mscale_all;   /* yarn; 0: not given */
    bool whole_steps;            /* yarn, "truncate": the bounds of the ramp are whole numbers */
    int64_t original_context;    /* llama3, yarn */
} sl_rope_config;

typedef enum { SL_ACTIVATION_GELU_TANH, SL_ACTIVATION_GELU, SL_ACTIVATION_SILU, SL_ACTIVATION_RELU } sl_activation;

/* Which layers see only the newest `window` positions. */
typedef enum {
    SL_SLIDE_NONE,
    SL_SLIDE_ALL,
    SL_SLIDE_FROM,  /* layer slide_number and all after it */
    SL_SLIDE_EVERY, /* all but every slide_number-th */
    SL_SLIDE_LIST   /* those with a bit in slide_list */
} sl_slide_rule;

#define SL_CONFIG_MAX_LAYERS 4096 /* of a file that lists them */
#define SL_CONFIG_MAX_ENDS   16   /* ids that end a text */

/* Everything is resolved: nothing here means "default", except where a field says so. */
typedef struct sl_model_config {
    sl_decoder family;
    int64_t width, layers, heads, kv_heads, head_width, feed_forward, vocabulary;
    int64_t context; /* positions that the model was made for */
    double norm_epsilon;
    sl_activation activation; /* of the gate, or of a plain feed-forward part */
    bool tied;                /* the head is the token embedding */
    bool attention_bias;      /* llama, qwen3, gemma*: on the projections into and out of attention */
    bool feed_forward_bias;   /* llama */
    bool unscaled_attention;  /* gpt2: scores are not divided by the root of the head's width */
    /* positions */
    sl_rope_config rope;       /* theta 0: learned positions */
    sl_rope_config local_rope; /* gemma3_text: of layers with a window */
    double rotated_share;      /* phi3: share of a head's elements that turn */
    /* windows */
    int64_t window; /* 0: none */
    sl_slide_rule slide_rule;
    int64_t slide_number;
    uint8_t slide_list[SL_CONFIG_MAX_LAYERS / 8];
    /* gemma2, gemma3_text */
    double query_scalar;       /* scores are divided by its root; 0: by the root of the head's width */
    double attention_soft_cap; /* 0: none */
    double logit_soft_cap;     /* 0: none */
    /* encoders */
    int64_t classes;  /* of the classifier; 0: there is none, and of bert a head that guesses masked tokens */
    int64_t segments; /* bert: rows of the table of token types */
    int64_t image_size, channels, patch; /* vit: side of an image in pixels, its channels, side of a patch */
    /* What says nothing about the mathematics of a forward pass. */
    /* in training */
    double dropout;            /* on the residual stream */
    double embedding_dropout;  /* gpt2: behind the embedding; of others it is `dropout` */
    double classifier_dropout; /* bert: before the classifier; negative: it is `dropout` */
    double attention_dropout;  /* on attention's weights */
    double initial_stddev;
    int64_t bos, pad; /* ids; -1: none */
    int64_t ends[SL_CONFIG_MAX_ENDS];
    int end_count;
    bool has_dtype;
    sluice_dtype dtype; /* of the stored weights: SLUICE_F32, SLUICE_BF16 or SLUICE_F16 */
} sl_model_config;

/* "llama"; "" for SL_DECODER_NONE. */
const char *sl_decoder_name(sl_decoder family);
/* SL_DECODER_NONE: no family is called so. */
sl_decoder sl_decoder_find(const char *model_type);
/* Positions see each other in both directions. */
bool sl_decoder_is_encoder(sl_decoder family);
/* "LlamaForCausalLM": the class of transformers whose weights these are. */
const char *sl_model_config_class(const sl_model_config *c);
/* What a file of this family means by leaving every key out; sizes are 0. */
void sl_model_config_defaults(sl_decoder family, sl_model_config *out);

/* Reads the text of a config.json. `what` names it in messages, which also name line and key. SLUICE_ERR_INPUT: it is no
 * JSON, a size is missing, values contradict each other, or a key asks for mathematics that is not built in. */
sluice_status sl_model_config_parse(const char *text, size_t bytes, const char *what, sl_model_config *out);
/* The config.json of a folder. Where `text` is not NULL, *text is the whole file, owned by the caller, NUL-terminated. */
sluice_status sl_model_config_read(const char *folder, sl_model_config *out, char **text);
/* What files of c's family call its attention_dropout, and its dropout. */
const char *sl_model_config_attention_key(const sl_model_config *c);
const char *sl_model_config_dropout_key(const sl_model_config *c);
/* Whether layer `layer` has the window. */
bool sl_model_config_slides(const sl_model_config *c, int64_t layer);

/* The text of a config.json that says what `c` says, for old and new versions of transformers. `kept`, where it is not
 * NULL, is the text of a config.json of the same family (as sl_model_config_read gives it): its keys stay in their order
 * and as they are written there, but for those where `c` says something else. */
sluice_status sl_model_config_write(const sl_model_config *c, const char *kept, sl_text *out);

#endif

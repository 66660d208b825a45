/* family.h: what the families of models share; private to model/. */
#ifndef SL_MODEL_FAMILY_H
#define SL_MODEL_FAMILY_H

#include "model/model.h"

/* A model being built. */
typedef struct sl_model {
    const sl_model_options *o;
    sluice_graph *g;
    sluice_value positions; /* [B,T] in their documents; SLUICE_NONE: every row is one document */
    sluice_value slots;     /* generating: whose cache a row reads and writes; SLUICE_NONE: nothing is generated */
} sl_model;

/* One row per family. build() checks the settings it reads, then only describes: a building error stays in the graph
 * and sl_model_build reports it. */
typedef struct sl_model_family {
    const char *name;
    sl_sample_kind reads; /* families of tokens can have adapters */
    sluice_status (*build)(sluice_graph *g, const sl_model_options *o, sl_model_info *info);
} sl_model_family;

/* The families: name, what they read, and which function sl_model_build_* builds it. */
#define SL_MODEL_FAMILIES(ROW)                                                                                         \
    ROW(linear, NUMBERS, linear)                                                                                       \
    ROW(mlp, NUMBERS, mlp)                                                                                             \
    ROW(cnn, IMAGES, cnn)                                                                                              \
    ROW(resnet, IMAGES, resnet)                                                                                        \
    ROW(vit, IMAGES, vit)                                                                                              \
    ROW(recommender, CLICKS, recommender)                                                                              \
    ROW(speech, SPEECH, speech)                                                                                        \
    ROW(bert, TOKENS, bert)                                                                                            \
    ROW(gpt2, TOKENS, gpt2)                                                                                            \
    ROW(llama, TOKENS, decoder)                                                                                        \
    ROW(mistral, TOKENS, decoder)                                                                                      \
    ROW(qwen2, TOKENS, decoder)                                                                                        \
    ROW(qwen3, TOKENS, decoder)                                                                                        \
    ROW(phi3, TOKENS, decoder)                                                                                         \
    ROW(gemma, TOKENS, decoder)                                                                                        \
    ROW(gemma2, TOKENS, decoder)                                                                                       \
    ROW(gemma3_text, TOKENS, decoder)

sluice_status sl_model_build_linear(sluice_graph *g, const sl_model_options *o, sl_model_info *info);
sluice_status sl_model_build_mlp(sluice_graph *g, const sl_model_options *o, sl_model_info *info);
sluice_status sl_model_build_cnn(sluice_graph *g, const sl_model_options *o, sl_model_info *info);
sluice_status sl_model_build_resnet(sluice_graph *g, const sl_model_options *o, sl_model_info *info);
sluice_status sl_model_build_vit(sluice_graph *g, const sl_model_options *o, sl_model_info *info);
sluice_status sl_model_build_recommender(sluice_graph *g, const sl_model_options *o, sl_model_info *info);
sluice_status sl_model_build_speech(sluice_graph *g, const sl_model_options *o, sl_model_info *info);
sluice_status sl_model_build_bert(sluice_graph *g, const sl_model_options *o, sl_model_info *info);
sluice_status sl_model_build_gpt2(sluice_graph *g, const sl_model_options *o, sl_model_info *info);
sluice_status sl_model_build_decoder(sluice_graph *g, const sl_model_options *o, sl_model_info *info);

/* 1 <= value <= max, or SLUICE_ERR_USAGE naming the key. */
sluice_status sl_model_check_size(const char *key, int64_t value, int64_t max);
/* The largest size of a dimension: ids and indices are 32-bit. */
#define SL_MODEL_MAX_SIZE ((int64_t)INT32_MAX)

/* ---- language.c: token models ---- */

#define SL_MODEL_MAX_LAYERS 100000
#define SL_MODEL_NAME_BYTES 96

/* Layers, heads, width and norm_epsilon are what blocks of a transformer can have. */
sluice_status sl_model_check_blocks(const sl_model_options *o);
/* These, context and vocabulary. */
sluice_status sl_model_check_transformer(const sl_model_options *o);
/* Probabilities below 1. */
sluice_status sl_model_check_dropout(const sl_model_options *o);
/* The rates behind an embedding and before a classifier. */
double sl_model_embedding_dropout(const sl_model_options *o);
double sl_model_classifier_dropout(const sl_model_options *o);
/* Parameter "<block><name>" of one or two dimensions (columns 0: one). */
sluice_value sl_model_parameter(const sl_model *m, const char *block, const char *name, int64_t rows, int64_t columns,
                                sluice_init init);
/* The linear "<block><name>" of x with `weight` and `bias` (may be SLUICE_NONE), with its adapter where it has one. */
sluice_value sl_model_linear(const sl_model *m, sluice_value x, const char *block, const char *name,
                             sluice_value weight, sluice_value bias, bool in_out);
/* The input "tokens" [B,T]; with options.packed also "positions", which becomes m->positions. Generating: both and "slots",
 * of as many rows as a run has. */
sluice_value sl_model_tokens(sl_model *m);
/* qkv[B,T,(H+2G)D] -> [B,T,H*D]: each position sees itself and those before it, of its document, and in the window of a
 * layer that `slides`. Generating: of what the cache keeps of its sequence. */
sluice_value sl_model_attention(const sl_model *m, const sl_model_config *c, sluice_value qkv, bool slides);
/* x[B,T,C] and the head's weight [V,C] and bias [V], or SLUICE_NONE -> the loss over "targets", where -1 is ignored, and
 * the output where there is one. Logits are capped at soft_cap; 0: not. */
void sl_model_head(const sl_model *m, sluice_value x, sluice_value weight, sluice_value bias, float soft_cap);

/* The activation between two linears of a feed-forward part. */
sluice_value sl_model_activate(const sl_model *m, const sl_model_config *c, sluice_value x);

/* ---- image.c: models of images ---- */

/* Sizes of the image and at least two classes. */
sluice_status sl_model_check_image(const sl_model_options *o);
/* The input "x" [B,H,W,C]. */
sluice_value sl_model_image(sluice_graph *g, const sl_model_options *o);
/* logits[B,outputs] -> the loss over "target" i32 [B], where -1 is ignored; they are the output. */
void sl_model_classify(sluice_graph *g, const sl_model_options *o, sluice_value logits, sl_model_info *info);

/* ---- encoder.c: blocks in which every position sees all ---- */

typedef struct sl_encoder_model {
    sl_model m;
    sl_model_config c;
} sl_encoder_model;

/* What families call the parts of a block, and where its norms are. */
typedef struct sl_encoder_names {
    const char *model;     /* "bert": blocks are "bert.encoder.layer.0." */
    const char *attention; /* before "query", "key" and "value" */
    const char *attention_out, *first_norm, *second_norm;
    bool norms_first; /* a part is normalised before it, not with the sum after it */
} sl_encoder_names;

/* y[.., out] = x[.., in] W^T + b, called "<block><name>". */
sluice_value sl_encoder_linear(const sl_encoder_model *e, sluice_value x, const char *block, const char *name,
                               int64_t in, int64_t out);
sluice_value sl_encoder_norm(const sl_encoder_model *e, sluice_value x, const char *block, const char *name);
/* x, of whose elements training leaves out a share of `rate`. */
sluice_value sl_encoder_drop(const sl_encoder_model *e, sluice_value x, double rate);
/* x[B,T,C] -> the same. lengths[B]: positions from there on are not seen; SLUICE_NONE: all are. Begins a layer. */
sluice_value sl_encoder_block(const sl_encoder_model *e, const sl_encoder_names *n, sluice_value x, int64_t number,
                              sluice_value lengths);
/* x[B,T,C] -> [B,C] of the first position. */
sluice_value sl_encoder_first(const sl_encoder_model *e, sluice_value x);
/* The settings of a bert ask for a classifier. */
bool sl_model_head_classifies(const sl_model_options *o);
/* x[B,C] -> the classes of the linear "classifier", and the loss over "target". */
void sl_encoder_classify(const sl_encoder_model *e, sluice_value x, sl_model_info *info);

/* ---- file_names.c: what files of other programs call parameters ---- */

/* sluice_graph.is_called: the prefixes of sl_weight_prefixes and the family's own, which files have or lack, and copies. */
bool sl_model_is_called(const sluice_graph *g, const char *pattern, const char *name);
/* A tensor that files of this family hold beside its parameters: it is never trained. */
bool sl_model_is_constant(const sluice_graph *g, const char *name);

/* ---- tune.c: what is trained of a model ---- */

/* "h.0.attn.c_attn" for "h.0.attn.c_attn.weight"; false: another ending, or too long for a module. */
bool sl_model_module_of(const char *parameter, char out[SL_MODEL_NAME_BYTES]);
/* sl_model_options.lora names this linear. fused: files of other programs have it in parts. */
bool sl_model_has_adapter(const sl_model_options *o, const char *linear, bool fused);
sluice_status sl_model_check_tuning(const sl_model_options *o, const sl_model_family *family);
/* Marks what options say is frozen, or starts anew, after the last builder. */
sluice_status sl_model_freeze(sluice_graph *g, const sl_model_options *o);

#endif

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
    bool reads_tokens; /* and so can have adapters */
    sluice_status (*build)(sluice_graph *g, const sl_model_options *o, sl_model_info *info);
} sl_model_family;

/* The families: name, reads_tokens, and which function sl_model_build_* builds it. */
#define SL_MODEL_FAMILIES(ROW)                                                                                         \
    ROW(linear, false, linear)                                                                                         \
    ROW(mlp, false, mlp)                                                                                               \
    ROW(gpt2, true, gpt2)                                                                                              \
    ROW(llama, true, decoder)                                                                                          \
    ROW(mistral, true, decoder)                                                                                        \
    ROW(qwen2, true, decoder)                                                                                          \
    ROW(qwen3, true, decoder)                                                                                          \
    ROW(phi3, true, decoder)                                                                                           \
    ROW(gemma, true, decoder)                                                                                          \
    ROW(gemma2, true, decoder)                                                                                         \
    ROW(gemma3_text, true, decoder)

sluice_status sl_model_build_linear(sluice_graph *g, const sl_model_options *o, sl_model_info *info);
sluice_status sl_model_build_mlp(sluice_graph *g, const sl_model_options *o, sl_model_info *info);
sluice_status sl_model_build_gpt2(sluice_graph *g, const sl_model_options *o, sl_model_info *info);
sluice_status sl_model_build_decoder(sluice_graph *g, const sl_model_options *o, sl_model_info *info);

/* 1 <= value <= max, or SLUICE_ERR_USAGE naming the key. */
sluice_status sl_model_check_size(const char *key, int64_t value, int64_t max);
/* The largest size of a dimension: ids and indices are 32-bit. */
#define SL_MODEL_MAX_SIZE ((int64_t)INT32_MAX)

/* ---- language.c: token models ---- */

#define SL_MODEL_MAX_LAYERS 100000
#define SL_MODEL_NAME_BYTES 96

/* Layers, heads, context, vocabulary and norm_epsilon are what a transformer can have. */
sluice_status sl_model_check_transformer(const sl_model_options *o);
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
/* x[B,T,C] and the head's weight [V,C] -> the loss over "targets", where -1 is ignored, and the output where there is
 * one. Logits are capped at soft_cap; 0: not. */
void sl_model_head(const sl_model *m, sluice_value x, sluice_value weight, float soft_cap);

/* ---- tune.c: what is trained of a model ---- */

/* "h.0.attn.c_attn" for "h.0.attn.c_attn.weight"; false: another ending, or too long for a module. */
bool sl_model_module_of(const char *parameter, char out[SL_MODEL_NAME_BYTES]);
/* sl_model_options.lora names this linear. fused: files of other programs have it in parts. */
bool sl_model_has_adapter(const sl_model_options *o, const char *linear, bool fused);
sluice_status sl_model_check_tuning(const sl_model_options *o, const sl_model_family *family);
/* Freezes what options say, after the last builder. */
sluice_status sl_model_freeze(sluice_graph *g, const sl_model_options *o);

#endif

/* weight_names.c: the tables. */
#include "format/weight_names.h"

#include <fnmatch.h>
#include <string.h>

/* ---- files of the families that can be built ---- */

static const char *const gpt2_buffers[] = { "h.*.attn.bias", "h.*.attn.masked_bias", NULL };
static const sl_weight_copy gpt2_copies[] = {
    { "lm_head.weight", "wte.weight",
      "this file's head has weights of its own; set model.tie_word_embeddings to false" },
    { NULL, NULL, NULL },
};
static const sl_weight_absence head_absences[] = {
    { "lm_head.weight", "the head of this file is its token embedding; set model.tie_word_embeddings to true" },
    { NULL, NULL },
};
const sl_weight_names sl_gpt2_weight_names = { gpt2_buffers, gpt2_copies, NULL, "transformer." };
const sl_weight_names sl_gpt2_untied_weight_names = { gpt2_buffers, NULL, head_absences, "transformer." };

static const char *const llama_buffers[] = { "model.layers.*.self_attn.rotary_emb.inv_freq",
                                             "model.rotary_emb.inv_freq", NULL };
static const sl_weight_copy llama_copies[] = {
    { "lm_head.weight", "model.embed_tokens.weight",
      "this file's head has weights of its own; set model.tie_word_embeddings to false" },
    { NULL, NULL, NULL },
};
const sl_weight_names sl_llama_weight_names = { llama_buffers, NULL, head_absences, NULL };
const sl_weight_names sl_llama_tied_weight_names = { llama_buffers, llama_copies, NULL, NULL };

/* Of BERT, files often hold both heads, of which a model has one. */
static const char *const bert_buffers[] = { "bert.embeddings.position_ids", "cls.seq_relationship.*", "bert.pooler.*",
                                            NULL };
static const char *const bert_classifier_buffers[] = { "bert.embeddings.position_ids", "cls.*", NULL };
static const sl_weight_copy bert_copies[] = {
    { "cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight",
      "this file's head has weights of its own, which is not built in" },
    { "cls.predictions.decoder.bias", "cls.predictions.bias", "this file has two biases of its head that differ" },
    { NULL, NULL, NULL },
};
const sl_weight_names sl_bert_weight_names = { bert_buffers, bert_copies, NULL, NULL };
const sl_weight_names sl_bert_classifier_weight_names = { bert_classifier_buffers, NULL, NULL, NULL };

static const char *const vit_buffers[] = { "vit.pooler.*", NULL };
const sl_weight_names sl_vit_weight_names = { vit_buffers, NULL, NULL, NULL };

/* Heads are beside the model that they are the head of. */
static const char *const heads[] = { "lm_head.", "score.", "cls.", "classifier.", NULL };
const sl_weight_prefix sl_weight_prefixes[] = {
    { "module.", NULL },       { "_orig_mod.", NULL }, { "base_model.model.", NULL },
    { "transformer.", heads }, { "model.", heads },    { "bert.", heads },
    { "vit.", heads },         { NULL, NULL }
};

bool sl_weight_is_head(const char *name)
{
    for (const char *const *head = heads; *head != NULL; head++)
        if (strncmp(name, *head, strlen(*head)) == 0) return true;
    return false;
}

/* ---- which family a file is of ---- */

#define NOT_BUILT_IN "this kind of model is not built in"
#define READ_AS(type_)                                                                                                 \
    "it is read with model.type " type_ "; compare model.layers and the other sizes with the config.json it came with"

/* What names a special kind comes before what it shares with others. */
static const sl_weight_family families[] = {
    { "*.qweight", "a quantized model (GPTQ or AWQ)", "give the weights it was made from, in 16 or 32 bits" },
    { "*.weight_scale*", "a quantized model (FP8)", "give the weights it was made from, in 16 or 32 bits" },
    { "base_model.model.*", "adapters of PEFT", "load the base model; PEFT's own names of adapters are not read" },
    { "*.lora_A.weight", "a model with LoRA adapters",
      "set lora.rank and lora.targets as they were when it was trained" },
    { "module.*", "a model saved inside torch's DataParallel",
      "save it without the prefix: model.module.state_dict()" },
    { "_orig_mod.*", "a model saved inside torch.compile", "save it without the prefix: model._orig_mod.state_dict()" },
    { "vision_model.*", "a vision model (CLIP)", NOT_BUILT_IN },
    { "visual.*", "a vision-language model", NOT_BUILT_IN },
    { "model.vision_tower.*", "a vision-language model", NOT_BUILT_IN },
    { "*embeddings.patch_embeddings.projection.weight", "a vision transformer (ViT)", READ_AS("vit") },
    { "*patch_embed*", "a vision transformer with the names of timm", NOT_BUILT_IN },
    { "layer?.*.conv?.weight", "a ResNet", READ_AS("resnet") },
    { "roberta.*", "a RoBERTa", NOT_BUILT_IN },
    { "distilbert.*", "a DistilBERT", NOT_BUILT_IN },
    { "*embeddings.word_embeddings.weight", "a BERT", READ_AS("bert") },
    { "bert.*", "a BERT", READ_AS("bert") },
    { "gpt_neox.*", "a GPT-NeoX (Pythia)", NOT_BUILT_IN },
    { "*.self_attention.query_key_value.*", "a Falcon or BLOOM", NOT_BUILT_IN },
    { "*encoder.block.*", "a T5", NOT_BUILT_IN },
    { "model.encoder.layers.*", "a BART or Whisper (encoder and decoder)", NOT_BUILT_IN },
    { "model.decoder.layers.*", "an OPT", NOT_BUILT_IN },
    { "*h.*.attn.c_attn.weight", "a GPT-2", READ_AS("gpt2") },
    { "blk.*.attn_*", "a model with the names of llama.cpp", "give the .safetensors it was made from" },
    { "layers.*.attention.wq.weight", "a Llama with Meta's own names",
      "convert it with transformers' convert_llama_weights_to_hf.py" },
    { "*layers.*.block_sparse_moe.*", "a Mixtral (mixture of experts)", NOT_BUILT_IN },
    { "*layers.*.mlp.experts.*", "a mixture of experts", NOT_BUILT_IN },
    { "*layers.*.pre_feedforward_layernorm.weight", "a Gemma 2 or 3", READ_AS("gemma2 or gemma3_text") },
    { "*layers.*.self_attn.q_norm.weight", "a Qwen3 (norms of queries and keys)", READ_AS("qwen3") },
    { "*layers.*.self_attn.q_proj.bias", "a Qwen2 (biases of queries, keys and values)", READ_AS("qwen2") },
    { "*layers.*.self_attn.dense.weight", "a Phi-2", NOT_BUILT_IN },
    { "*layers.*.self_attn.q_proj.weight", "a Llama or Mistral", READ_AS("llama") },
    { "*layers.*.self_attn.qkv_proj.weight", "a Llama of sluice, or a Phi-3", READ_AS("llama or phi3") },
};

const sl_weight_family *sl_weight_family_of(const sl_weights_set *s)
{
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++)
        for (int64_t t = 0; t < s->tensor_count; t++)
            if (fnmatch(families[i].pattern, s->tensors[t].name, 0) == 0) return &families[i];
    return NULL;
}

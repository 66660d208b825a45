/* config_names.c: keys under other names: DeepSpeed's aliases, which are taken; names of other programs, which are
 * answered with ours; misspellings, which get a guess. */
#include <ctype.h>
#include <string.h>

#include "config/config_rows.h"
#include "core/status.h"

/* ---- Names that mean a row of ours ---- */

/* Sections and keys that DeepSpeed knows under two names. In its own code the fields have no "stage3_"; that is what
 * its documentation writes. */
#define ZERO(name_, now_)                                                                                              \
    {                                                                                                                  \
        "zero_optimization." name_, "zero_optimization." now_                                                          \
    }
static const struct {
    const char *name, *now;
} aliases[] = {
    { "bfloat16", "bf16" },
    ZERO("max_live_parameters", "stage3_max_live_parameters"),
    ZERO("max_reuse_distance", "stage3_max_reuse_distance"),
    ZERO("prefetch_bucket_size", "stage3_prefetch_bucket_size"),
    ZERO("param_persistence_threshold", "stage3_param_persistence_threshold"),
    ZERO("model_persistence_threshold", "stage3_model_persistence_threshold"),
    ZERO("gather_16bit_weights_on_model_save", "stage3_gather_16bit_weights_on_model_save"),
    ZERO("module_granularity_threshold", "stage3_module_granularity_threshold"),
    ZERO("use_all_reduce_for_fetch_params", "stage3_use_all_reduce_for_fetch_params"),
    ZERO("allgather_sequential", "stage3_allgather_sequential"),
    ZERO("partition_stream_chunk_size", "stage3_partition_stream_chunk_size"),
    ZERO("cpu_offload_params", "cpu_offload_param"),
};

const char *sl_config_below(const char *key, const char *prefix)
{
    size_t n = strlen(prefix);
    if (n == 0) return key;
    return strncmp(key, prefix, n) == 0 && key[n] == '.' ? key + n + 1 : NULL;
}

const char *sl_config_canonical(const char *key, char *out, size_t out_bytes)
{
    for (size_t i = 0; i < sizeof aliases / sizeof aliases[0]; i++) {
        const char *rest = sl_config_below(key, aliases[i].name);
        if (rest == NULL && strcmp(key, aliases[i].name) != 0) continue;
        snprintf(out, out_bytes, "%s%s%s", aliases[i].now, rest != NULL ? "." : "", rest != NULL ? rest : "");
        return out;
    }
    return key;
}

/* ---- Names of other programs ---- */

/* Names in Hugging Face's config.json and TrainingArguments, PEFT, and the configurations of trainers on top of them,
 * without their section: people write them in any. */
static const struct {
    const char *names; /* "a|b" */
    const char *ours;  /* key of a row; NULL: there is none */
    const char *note;  /* how to write it, or why there is none; NULL: nothing to say */
} synonyms[] = {
    { "model_type|architectures", "model.type", NULL },
    { "hidden_size|n_embd|d_model|embed_dim|hidden_dim|dim", "model.width", NULL },
    { "num_hidden_layers|n_layer|n_layers|num_layers|num_decoder_layers", "model.layers", NULL },
    { "num_attention_heads|n_head|n_heads|num_heads", "model.heads", NULL },
    { "num_key_value_heads|n_kv_heads|num_kv_heads|num_query_groups", "model.kv_heads", NULL },
    { "intermediate_size|n_inner|ffn_dim|d_ff|ffn_hidden_size", "model.feed_forward", NULL },
    { "max_position_embeddings|n_positions|n_ctx|seq_length|seq_len|sequence_len|sequence_length|max_seq_length|"
      "max_seq_len|max_length|model_max_length|cutoff_len|block_size",
      "model.context", NULL },
    { "vocab_size", "model.vocabulary", NULL },
    { "rms_norm_eps|layer_norm_epsilon|layer_norm_eps|norm_eps", "model.norm_epsilon", NULL },
    { "resid_pdrop|hidden_dropout|hidden_dropout_prob", "model.dropout", NULL },
    { "embd_pdrop", "model.embedding_dropout", NULL },
    { "attn_pdrop|attention_dropout|attention_probs_dropout_prob", NULL,
      "dropout on attention weights is not built in" },
    { "hidden_act|activation_function|hidden_activation", "model.activation",
      "in mlp; the other families have theirs" },
    { "rope_scaling|rope_type|rope_parameters", NULL, "it is read from the config.json of the folder model.path" },
    { "sliding_window", "model.sliding_window", NULL },
    { "head_dim", "model.head_width", NULL },
    { "tie_embeddings|untie_embeddings_and_output_weights", "model.tie_word_embeddings", NULL },
    { "learning_rate|base_lr|peak_lr|max_lr", "optimizer.params.lr", NULL },
    { "adam_beta1|adam_beta2|beta1|beta2", "optimizer.params.betas", "a list of both" },
    { "adam_epsilon|adam_eps|epsilon", "optimizer.params.eps", NULL },
    { "optim|optimizer_type|optimizer_name", "optimizer.type", NULL },
    { "lr_scheduler_type|lr_scheduler|lr_schedule", "scheduler.type", NULL },
    { "warmup_steps|num_warmup_steps|lr_warmup_steps|lr_warmup_iters", "scheduler.params.warmup_num_steps",
      "with a scheduler.type" },
    { "warmup_ratio|warmup_fraction", "scheduler.params.warmup_ratio", "with a scheduler.type" },
    { "max_steps|num_steps|total_steps|train_steps|max_train_steps|num_training_steps|train_iters|max_iters", "steps",
      NULL },
    { "num_train_epochs|num_epochs|max_epochs|train_epochs", "epochs", NULL },
    { "per_device_train_batch_size|per_gpu_train_batch_size|micro_batch_size|train_micro_batch_size",
      "train_micro_batch_size_per_gpu", NULL },
    { "batch_size|global_batch_size|total_batch_size", "train_batch_size", NULL },
    { "gradient_accumulation|grad_accumulation_steps|grad_accum_steps|accumulation_steps",
      "gradient_accumulation_steps", NULL },
    { "max_grad_norm|clip_grad|grad_clip|clip_grad_norm|max_norm", "gradient_clipping", NULL },
    { "gradient_checkpointing|activation_checkpoint|recompute", "activation_checkpointing.mode",
      "\"recompute\", or leave it to the plan" },
    { "torch_dtype|dtype|mixed_precision", "bf16.enabled", "true, or fp16.enabled" },
    { "output_dir|save_dir|checkpoint_dir", "checkpoint.path", NULL },
    { "save_steps|save_interval|checkpoint_interval", "checkpoint.every", NULL },
    { "save_total_limit", "checkpoint.keep", NULL },
    { "eval_steps|eval_interval|evaluation_steps", "evaluate.every", NULL },
    { "logging_steps|log_interval", "steps_per_print", NULL },
    { "model_name_or_path|pretrained_model_name_or_path|base_model|init_from", "model.path", "a folder" },
    { "resume_from_checkpoint|auto_resume_from_checkpoints", NULL, "continue a run with `sluice train --resume`" },
    { "train_file|train_data|dataset|dataset_path|data_path", "data.path", NULL },
    { "val_ratio|val_size|val_set_size|validation_split_percentage", "data.validation", "a share from 0 to 0.99" },
    { "lora_r|lora_rank", "lora.rank", NULL },
    { "lora_alpha", "lora.alpha", NULL },
    { "lora_dropout", "lora.dropout", NULL },
    { "target_modules|lora_target|lora_target_modules|lora_modules", "lora.targets", NULL },
    { "use_rslora", "lora.use_rslora", NULL },
    { "modules_to_save", "lora.modules_to_save", NULL },
    { "zero_stage", "zero_optimization.stage", NULL },
    { "num_threads|omp_num_threads", "threads", NULL },
};
enum { SYNONYM_COUNT = sizeof synonyms / sizeof synonyms[0] };

bool sl_config_synonym(int index, const char **names, const char **ours, const char **note)
{
    if (index < 0 || index >= SYNONYM_COUNT) return false;
    *names = synonyms[index].names;
    *ours = synonyms[index].ours;
    *note = synonyms[index].note;
    return true;
}

/* The synonym that is a component of the key, or -1: "model.rope_scaling.factor" has one in its middle. */
static int find_synonym(const char *key)
{
    for (const char *at = key; *at != '\0'; at += strspn(at, ".")) {
        char component[SL_KEY_BYTES];
        size_t length = strcspn(at, ".");
        snprintf(component, sizeof component, "%.*s", (int)length, at);
        for (int i = 0; i < SYNONYM_COUNT; i++)
            if (sl_config_listed(synonyms[i].names, component)) return i;
        at += length;
    }
    return -1;
}

/* ---- Values of other programs ---- */

static const struct {
    const char *key, *names, *ours; /* names: "a|b" in lower case; ours NULL: there is none */
    const char *note;               /* why there is none, or what is to be known of ours; NULL: nothing */
} values[] = {
    { "scheduler.type", "cosine|cosine_with_min_lr|cosineannealinglr|cosine_annealing", "WarmupCosineLR", NULL },
    { "scheduler.type", "cosine_with_restarts|cosineannealingwarmrestarts", "WarmupCosineLR", "without restarts" },
    { "scheduler.type", "linear|linearlr|polynomial", "WarmupDecayLR", "falls in a straight line to nothing" },
    { "scheduler.type", "constant|constantlr", "none", NULL },
    { "scheduler.type", "constant_with_warmup", "WarmupLR", NULL },
    { "scheduler.type", "onecyclelr|one_cycle|1cycle", "OneCycle", NULL },
    { "scheduler.type", "reduce_lr_on_plateau|plateau", "ReduceLROnPlateau", NULL },
    { "scheduler.type", "inverse_sqrt|warmup_stable_decay|wsd|exponential|exponentiallr|steplr|step|multisteplr", NULL,
      "such a schedule is not built in" },
    { "optimizer.type",
      "adamw_torch|adamw_torch_fused|adamw_torch_xla|adamw_hf|adamw_apex_fused|adamw_anyprecision|adamw_fused|"
      "fusedadam|"
      "fused_adam|cpuadam|deepspeedcpuadam|paged_adamw|paged_adamw_32bit",
      "AdamW", NULL },
    { "optimizer.type", "adamw_8bit|adamw_bnb_8bit|paged_adamw_8bit|adam8bit", "AdamW",
      "with moments of 8 bits: zero_optimization.states \"compact\"" },
    { "optimizer.type", "sgd_torch|momentum", "SGD", NULL },
    { "optimizer.type", "adagrad_torch", "Adagrad", NULL },
    { "optimizer.type", "rmsprop_torch|rmsprop_bnb", "RMSprop", NULL },
    { "optimizer.type", "lion_32bit|paged_lion_32bit|lion_8bit|paged_lion_8bit", "Lion", NULL },
    { "optimizer.type", "fusedlamb|lamb_torch", "LAMB", NULL },
    { "optimizer.type", "adafactor|galore_adamw|schedule_free_adamw|sophia|adadelta|nadam|radam", NULL,
      "such an optimizer is not built in" },
    { "data.type", "json|jsonlines|ndjson|chat|chatml|sharegpt|alpaca|messages|sft|completion", "jsonl", NULL },
    { "data.type", "csv|tsv|tabular", "table", NULL },
    { "data.type", "txt|txtfile|lines", "text", NULL },
    { "data.type", "imagefolder|image_folder", "images", NULL },
    { "data.type", "mnist", "idx", NULL },
};

static const char *lower(const char *text, char *out, size_t out_bytes)
{
    size_t n = 0;
    for (; text[n] != '\0' && n + 1 < out_bytes; n++) out[n] = (char)tolower((unsigned char)text[n]);
    out[n] = '\0';
    return out;
}

void sl_config_value_hint(const char *key, const char *value, const char *names, char *out, size_t out_bytes)
{
    char low[SL_KEY_BYTES], name[SL_KEY_BYTES], folded[SL_KEY_BYTES];
    lower(value, low, sizeof low);
    out[0] = '\0';
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        if (strcmp(values[i].key, key) != 0 || !sl_config_listed(values[i].names, low)) continue;
        const char *note = values[i].note, *ours = values[i].ours;
        if (ours == NULL)
            snprintf(out, out_bytes, "%s", note);
        else
            snprintf(out, out_bytes, "did you mean %s%s%s%s?", ours, note != NULL ? " (" : "", note != NULL ? note : "",
                     note != NULL ? ")" : "");
        return;
    }
    int64_t best = (int64_t)strlen(low) / 3 + 1;
    for (const char *at = names; *at != '\0'; at += strspn(at, ", |")) {
        size_t length = strcspn(at, ", |");
        snprintf(name, sizeof name, "%.*s", (int)length, at);
        at += length;
        int64_t distance = sl_edit_distance(lower(name, folded, sizeof folded), low);
        if (distance >= best) continue;
        best = distance;
        snprintf(out, out_bytes, "did you mean %s?", name);
    }
}

/* ---- Misspellings ---- */

/* The neighbour whose name is nearest to `name`: what may stand directly in `section`. Written as a whole key. */
static bool nearest_sibling(const char *section, const char *name, char *out, size_t out_bytes)
{
    int64_t best = (int64_t)strlen(name) / 3 + 1;
    bool found = false;
    for (size_t i = 0; i < sl_config_row_count; i++) {
        char sibling[SL_KEY_BYTES];
        const char *rest = sl_config_below(sl_config_rows[i].key, section);
        if (rest == NULL || sl_config_is_wildcard(&sl_config_rows[i])) continue;
        snprintf(sibling, sizeof sibling, "%.*s", (int)strcspn(rest, "."), rest);
        int64_t distance = sl_edit_distance(sibling, name);
        if (distance >= best) continue;
        best = distance;
        found = true;
        snprintf(out, out_bytes, "%s%s%s", section, section[0] != '\0' ? "." : "", sibling);
    }
    return found;
}

/* A row elsewhere with the same last name: the key stands in the wrong section. */
static const char *same_name_elsewhere(const char *name)
{
    for (size_t i = 0; i < sl_config_row_count; i++) {
        const char *dot = strrchr(sl_config_rows[i].key, '.');
        if (dot != NULL && strcmp(dot + 1, name) == 0) return sl_config_rows[i].key;
    }
    return NULL;
}

static sluice_status answer_synonym(const char *where, const char *key, int index)
{
    const char *ours = synonyms[index].ours, *note = synonyms[index].note;
    if (ours == NULL) return sl_fail(SLUICE_ERR_USAGE, "%sunknown key \"%s\": %s", where, key, note);
    return sl_fail(SLUICE_ERR_USAGE, "%sunknown key \"%s\": sluice calls it %s%s%s%s", where, key, ours,
                   note != NULL ? " (" : "", note != NULL ? note : "", note != NULL ? ")" : "");
}

sluice_status sl_config_unknown_key(const char *where, const char *section, const char *name, const char *key)
{
    char sibling[2 * SL_KEY_BYTES];
    const char *nearest = sibling;
    int synonym = find_synonym(key);
    if (synonym >= 0) return answer_synonym(where, key, synonym);
    if (!nearest_sibling(section, name, sibling, sizeof sibling)) nearest = same_name_elsewhere(name);
    if (nearest == NULL) nearest = sl_option_nearest(sl_config_rows, sl_config_row_count, key);
    if (nearest == NULL)
        return sl_fail(SLUICE_ERR_USAGE, "%sunknown key \"%s\"; `sluice config` lists all keys", where, key);
    return sl_fail(SLUICE_ERR_USAGE, "%sunknown key \"%s\"; did you mean \"%s\"?", where, key, nearest);
}

/* adapter_config.h: the adapter_config.json of PEFT, as a plain struct.
 *
 * LoRA alone is read. A key that changes the mathematics and that nothing here computes is refused by name where it is
 * set; the others are passed over. */
#ifndef SL_FORMAT_ADAPTER_CONFIG_H
#define SL_FORMAT_ADAPTER_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/arena.h"
#include "core/status.h"
#include "format/text_buffer.h"
#include "format/weights_set.h"

#define SL_ADAPTER_CONFIG  "adapter_config.json"
#define SL_ADAPTER_WEIGHTS "adapter_model.safetensors"

/* Names in SL_ADAPTER_WEIGHTS: the prefix, the module's name in transformers, and one of the endings. */
#define SL_PEFT_PREFIX   "base_model.model."
#define SL_LORA_A        ".lora_A.weight"
#define SL_LORA_B        ".lora_B.weight"
#define SL_MODULE_WEIGHT ".weight"

/* As an entry of target_modules: every linear of the blocks. */
#define SL_PEFT_ALL_LINEAR "all-linear"

#define SL_ADAPTER_MAX_NAMES 1024 /* of target_modules, and of modules_to_save */
#define SL_ADAPTER_MAX_RANK  65536

typedef struct sl_adapter_config {
    int64_t rank;
    double alpha, dropout;
    bool rank_stabilised; /* use_rslora: scaled by alpha / sqrt(rank) */
    /* fan_in_fan_out: weights of the base are [in, out], as GPT-2's are. The base's family decides, here as in PEFT. */
    bool in_out;
    bool causal;      /* task_type is CAUSAL_LM; otherwise none is written, and PEFT takes the base as it is */
    const char *base; /* base_model_name_or_path; "" : not given */
    const char *const *targets; /* ends of module names, or the one entry "all-linear" */
    int target_count;
    const char *const *whole; /* modules_to_save: ends of the names of modules that are stored whole */
    int whole_count;
} sl_adapter_config;

/* Whether something stands before `end` in `name`, and `end` is the rest. */
bool sl_name_ends_in(const char *name, const char *end);
/* How PEFT names a module: by all of its name, or by what follows one of its dots. */
bool sl_peft_names_module(const char *end, const char *module);
/* PEFT names the head of a classifier by both names that heads have in transformers, whichever the model has: the one that stands
 * beside `name` then. NULL: it is none of the two. */
const char *sl_peft_other_head(const char *name);
/* alpha / rank, or alpha / sqrt(rank). */
double sl_adapter_scale(const sl_adapter_config *c);

/* Reads the text of an adapter_config.json. `what` names it in messages. The strings live in `arena`. SLUICE_ERR_INPUT: it
 * is no JSON, no LoRA, or a key asks for what is not built in. */
sluice_status sl_adapter_config_parse(const char *text, size_t bytes, const char *what, sl_arena *arena,
                                      sl_adapter_config *out);
/* The adapter_config.json of a folder. */
sluice_status sl_adapter_config_read(const char *folder, sl_arena *arena, sl_adapter_config *out);
/* adapter_open.c: both files of a folder, as whoever uses an adapter opens them. SLUICE_ERR_INPUT: they do not agree: a tensor
 * belongs to no module that target_modules or modules_to_save names, or one of these names a module without tensors. *out is
 * the caller's. */
sluice_status sl_adapter_open(const char *folder, sl_arena *arena, sl_adapter_config *config, sl_weights_set **out);
/* Whether a folder holds an adapter_config.json. */
bool sl_is_adapter_folder(const char *path);
/* The text of an adapter_config.json that PEFT reads. */
sluice_status sl_adapter_config_write(const sl_adapter_config *c, sl_text *out);

#endif

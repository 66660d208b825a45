/* model_config_keys.h: the table of config.json's keys, which reading and writing share; private to format/. */
#ifndef SL_FORMAT_MODEL_CONFIG_KEYS_H
#define SL_FORMAT_MODEL_CONFIG_KEYS_H

#include <jansson.h>

#include "format/model_config.h"

/* Sets of families. */
#define SL_FAMILY_BIT(id_) (1u << SL_DECODER_##id_)
#define SL_FAMILY_GEMMAS   (SL_FAMILY_BIT(GEMMA) | SL_FAMILY_BIT(GEMMA2) | SL_FAMILY_BIT(GEMMA3))
#define SL_FAMILY_ROTARY                                                                                               \
    (SL_FAMILY_BIT(LLAMA) | SL_FAMILY_BIT(MISTRAL) | SL_FAMILY_BIT(QWEN2) | SL_FAMILY_BIT(QWEN3) |                     \
     SL_FAMILY_BIT(PHI3) | SL_FAMILY_GEMMAS)
#define SL_FAMILY_QWENS    (SL_FAMILY_BIT(QWEN2) | SL_FAMILY_BIT(QWEN3))
#define SL_FAMILY_CAPPED   (SL_FAMILY_BIT(GEMMA2) | SL_FAMILY_BIT(GEMMA3))
#define SL_FAMILY_ENCODERS (SL_FAMILY_BIT(BERT) | SL_FAMILY_BIT(VIT))
#define SL_FAMILY_TOKENS   (SL_FAMILY_ROTARY | SL_FAMILY_BIT(GPT2) | SL_FAMILY_BIT(BERT))
#define SL_FAMILY_ALL      (SL_FAMILY_TOKENS | SL_FAMILY_BIT(VIT))

#define SL_MODEL_SIZES ((double)INT32_MAX) /* the largest size */

typedef enum {
    SL_FIELD_WHOLE,      /* int64_t */
    SL_FIELD_NUMBER,     /* double; a whole one is written without a point */
    SL_FIELD_REAL,       /* double */
    SL_FIELD_FLAG,       /* bool */
    SL_FIELD_NOT_FLAG,   /* bool, stored as its opposite */
    SL_FIELD_ACTIVATION, /* sl_activation */
    SL_FIELD_ID          /* int64_t, -1 for null */
} sl_field_type;

/* What null says. */
typedef enum {
    SL_NULL_ABSENT, /* the same as leaving the key out */
    SL_NULL_ZERO,   /* 0: none, or what follows from other keys */
    SL_NULL_REFUSED
} sl_null_meaning;

/* One key of some families. What it means when absent is in the families' defaults. */
typedef struct sl_decoder_key {
    const char *key;
    unsigned families;
    sl_field_type type;
    size_t offset; /* of the field in sl_model_config */
    double min, max;
    sl_null_meaning null;
    bool required;
    const char *meaning; /* for the message that it is missing, and for readers of the table */
} sl_decoder_key;

extern const sl_decoder_key sl_decoder_keys[];
extern const size_t sl_decoder_key_count;

/* A key of an object of rope settings. */
typedef struct sl_rope_key {
    const char *key;
    unsigned types;    /* sl_rope_type bits: those that read it */
    unsigned required; /* those that need it */
    sl_field_type type;
    size_t offset; /* of the field in sl_rope_config */
    double min, max;
} sl_rope_key;
extern const sl_rope_key sl_rope_keys[];
extern const size_t sl_rope_key_count;
#define SL_ROPE_TYPES (SL_ROPE_YARN + 1)
/* "linear". */
const char *sl_rope_type_name(sl_rope_type type);

/* The config of a family that says what `root` says. */
sluice_status sl_model_config_from_json(json_t *root, const char *text, size_t bytes, const char *what,
                                        sl_model_config *out);
/* By its name in a file; gated: of those that a gate can have. False: there is none. */
bool sl_activation_find(const char *name, bool gated, sl_activation *out);
const char *sl_activation_name(sl_decoder family, sl_activation activation);
/* The family lists its layers' types in its files. */
bool sl_decoder_lists_layers(sl_decoder family);

#endif

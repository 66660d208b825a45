/* generation_config.h: what a model's folder says of how text is generated: generation_config.json of transformers. */
#ifndef SL_FORMAT_GENERATION_CONFIG_H
#define SL_FORMAT_GENERATION_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/status.h"

#define SL_GENERATION_MAX_ENDS 64

typedef struct sl_generation_config {
    /* Negative: the file does not say. */
    double temperature, top_p, min_p, repetition_penalty;
    int64_t top_k;
    int samples;                          /* do_sample: 1, 0 (the most likely token); -1: not said */
    int32_t ends[SL_GENERATION_MAX_ENDS]; /* eos_token_id */
    int end_count;
    const char *unbuilt; /* the first key that asks for something else than these, such as "num_beams"; NULL: none */
} sl_generation_config;

/* Other keys say nothing of sampling. SLUICE_ERR_INPUT names `what`, the key and what it may be. */
sluice_status sl_generation_config_parse(const char *text, size_t bytes, const char *what, sl_generation_config *out);
/* Of a folder; one without the file says nothing, and so does "". */
sluice_status sl_generation_config_read(const char *folder, sl_generation_config *out);

#endif

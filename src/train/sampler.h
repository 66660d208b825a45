/* sampler.h: which token follows, from the logits of all.
 *
 * The rules and their order are those of Hugging Face's generate, in f32 as there: repetition penalty, temperature, top-k,
 * top-p, min-p, softmax, one draw. Random numbers depend on the seed, the number of the sequence and the number of the
 * token in it alone. */
#ifndef SL_TRAIN_SAMPLER_H
#define SL_TRAIN_SAMPLER_H

#include <stdbool.h>
#include <stdint.h>

#include "core/status.h"

typedef struct sl_sampling {
    uint64_t seed;
    double temperature;        /* logits are divided by it; 0: the most likely token, of equal ones the lowest id */
    int64_t top_k;             /* tokens whose logit is below that of the k-th are out; 0: none are */
    double top_p;              /* the likeliest tokens that reach it together stay, one at least; 1: all do */
    double min_p;              /* tokens less likely than this share of the likeliest are out; 0: none are */
    double repetition_penalty; /* logits of tokens seen before: divided by it above 0, times it below; 1: as they are */
} sl_sampling;

typedef struct sl_sampler sl_sampler;

/* `vocabulary`: logits of a row. The options are copied. */
sluice_status sl_sampler_create(const sl_sampling *options, int64_t vocabulary, sl_sampler **out);
void sl_sampler_destroy(sl_sampler *s); /* NULL is fine */

/* Which tokens a sequence has had, for the penalty. */
typedef struct sl_seen {
    uint64_t *bits; /* owned; one for each token */
    int64_t vocabulary;
} sl_seen;
sluice_status sl_seen_create(sl_seen *seen, int64_t vocabulary);
void sl_seen_free(sl_seen *seen);
void sl_seen_add(sl_seen *seen, int32_t token);

/* What is left to draw from: tokens by id and their probabilities. Valid until the next call. */
typedef struct sl_candidate_token {
    float logit;
    int32_t id;
    double probability;
} sl_candidate_token;
/* Every rule but the draw; with temperature 0 the one token. `seen` may be NULL. Returns how many are left, at least one.
 * The logits are finite. */
int64_t sl_sampler_candidates(sl_sampler *s, const float *logits, const sl_seen *seen, const sl_candidate_token **out);
/* Token number `index` of sequence `sequence`. */
int32_t sl_sampler_draw(sl_sampler *s, const float *logits, const sl_seen *seen, uint64_t index, uint32_t sequence);

#endif

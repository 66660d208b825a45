/* sampler.c: see sampler.h.
 *
 * Candidates are the tokens that no rule has put out yet. With a vocabulary of 100,000 and more, sorting them for every
 * token would cost more than a small model: top-k selects, and top-p takes the likeliest one by one from a heap. */
#include "train/sampler.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/rng.h"

struct sl_sampler {
    sl_sampling o;
    int64_t vocabulary;
    sl_candidate_token *candidates; /* owned; room for all tokens */
    float *values;                  /* owned; scratch for selecting */
};

sluice_status sl_sampler_create(const sl_sampling *options, int64_t vocabulary, sl_sampler **out)
{
    sl_sampler *s = sl_alloc(sizeof *s, "sampler");
    if (s == NULL) return SLUICE_ERR_NO_MEMORY;
    s->o = *options;
    s->vocabulary = vocabulary;
    s->candidates = sl_alloc_array((size_t)vocabulary, sizeof *s->candidates, "candidates");
    s->values = sl_alloc_array((size_t)vocabulary, sizeof *s->values, "logits to select from");
    if (s->candidates == NULL || s->values == NULL) {
        sl_sampler_destroy(s);
        return SLUICE_ERR_NO_MEMORY;
    }
    *out = s;
    return SLUICE_OK;
}

void sl_sampler_destroy(sl_sampler *s)
{
    if (s == NULL) return;
    sl_free(s->candidates);
    sl_free(s->values);
    sl_free(s);
}

sluice_status sl_seen_create(sl_seen *seen, int64_t vocabulary)
{
    seen->vocabulary = vocabulary;
    seen->bits = sl_alloc_array((size_t)(vocabulary + 63) / 64, sizeof *seen->bits, "tokens seen");
    return seen->bits != NULL ? SLUICE_OK : SLUICE_ERR_NO_MEMORY;
}

void sl_seen_free(sl_seen *seen)
{
    sl_free(seen->bits);
    seen->bits = NULL;
}

void sl_seen_add(sl_seen *seen, int32_t token)
{
    if (token >= 0 && token < seen->vocabulary) seen->bits[token / 64] |= (uint64_t)1 << token % 64;
}

/* ---- rules, each on candidates [0, count) in order of ids; what they return is what is left ---- */

/* After the penalty, once for each token seen. */
static float penalised(const sl_sampler *s, const sl_seen *seen, int32_t id, float logit)
{
    if (seen == NULL || s->o.repetition_penalty == 1 || !(seen->bits[id / 64] >> id % 64 & 1)) return logit;
    float penalty = (float)s->o.repetition_penalty;
    return logit > 0 ? logit / penalty : logit * penalty;
}

static int64_t most_likely(const sl_candidate_token *c, int64_t count)
{
    int64_t best = 0;
    for (int64_t i = 1; i < count; i++)
        if (c[i].logit > c[best].logit) best = i;
    return best;
}

/* The k-th largest of values, which are put in another order. */
static float select_largest(float *values, int64_t count, int64_t k)
{
    int64_t low = 0, high = count - 1, wanted = k - 1;
    while (low < high) {
        float pivot = values[low + (high - low) / 2];
        int64_t i = low, j = high;
        while (i <= j) {
            while (values[i] > pivot) i++;
            while (values[j] < pivot) j--;
            if (i > j) break;
            float other = values[i];
            values[i++] = values[j];
            values[j--] = other;
        }
        if (wanted <= j)
            high = j;
        else if (wanted >= i)
            low = i;
        else
            break;
    }
    return values[wanted];
}

/* Those whose logit is at least `least`. */
static int64_t keep_from(sl_candidate_token *c, int64_t count, float least)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < count; i++)
        if (c[i].logit >= least) c[kept++] = c[i];
    return kept;
}

static int64_t apply_top_k(sl_sampler *s, int64_t count)
{
    if (s->o.top_k <= 0 || s->o.top_k >= count) return count;
    for (int64_t i = 0; i < count; i++) s->values[i] = s->candidates[i].logit;
    return keep_from(s->candidates, count, select_largest(s->values, count, s->o.top_k));
}

/* Softmax over what is left. Returns the index of the likeliest. */
static int64_t find_probabilities(sl_candidate_token *c, int64_t count)
{
    int64_t best = most_likely(c, count);
    double total = 0;
    for (int64_t i = 0; i < count; i++) total += c[i].probability = exp((double)c[i].logit - (double)c[best].logit);
    for (int64_t i = 0; i < count; i++) c[i].probability /= total;
    return best;
}

/* Likelier, and of equal ones the lower id. */
static bool comes_before(const sl_candidate_token *a, const sl_candidate_token *b)
{
    return a->logit > b->logit || (a->logit == b->logit && a->id < b->id);
}

static void sink(sl_candidate_token *heap, int64_t count, int64_t at)
{
    for (;;) {
        int64_t child = 2 * at + 1;
        if (child >= count) return;
        if (child + 1 < count && comes_before(&heap[child + 1], &heap[child])) child++;
        if (!comes_before(&heap[child], &heap[at])) return;
        sl_candidate_token other = heap[at];
        heap[at] = heap[child];
        heap[child] = other;
        at = child;
    }
}

static int by_id(const void *a, const void *b)
{
    const sl_candidate_token *x = a, *y = b;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* From the likeliest on, until those taken reach top_p: the one that does is taken too. They are put behind the heap,
 * which shrinks towards the beginning. */
static int64_t apply_top_p(sl_sampler *s, int64_t count)
{
    sl_candidate_token *c = s->candidates;
    double sum = 0;
    int64_t left = count;
    if (s->o.top_p >= 1) return count;
    find_probabilities(c, count);
    for (int64_t i = count / 2 - 1; i >= 0; i--) sink(c, count, i);
    do {
        sl_candidate_token first = c[0];
        c[0] = c[--left];
        c[left] = first;
        sum += first.probability;
        sink(c, left, 0);
    } while (left > 0 && sum < s->o.top_p);
    memmove(c, c + left, (size_t)(count - left) * sizeof *c);
    qsort(c, (size_t)(count - left), sizeof *c, by_id);
    return count - left;
}

static int64_t apply_min_p(sl_sampler *s, int64_t count)
{
    sl_candidate_token *c = s->candidates;
    int64_t kept = 0, best = find_probabilities(c, count);
    double least = s->o.min_p * c[best].probability;
    for (int64_t i = 0; s->o.min_p > 0 && i < count; i++)
        if (c[i].probability >= least) c[kept++] = c[i];
    if (s->o.min_p <= 0) return count;
    find_probabilities(c, kept);
    return kept;
}

int64_t sl_sampler_candidates(sl_sampler *s, const float *logits, const sl_seen *seen, const sl_candidate_token **out)
{
    sl_candidate_token *c = s->candidates;
    int64_t count = s->vocabulary;
    *out = c;
    for (int64_t i = 0; i < count; i++)
        c[i] = (sl_candidate_token){ penalised(s, seen, (int32_t)i, logits[i]), (int32_t)i, 0 };
    if (s->o.temperature <= 0) {
        c[0] = c[most_likely(c, count)];
        c[0].probability = 1;
        return 1;
    }
    for (int64_t i = 0; i < count; i++) c[i].logit /= (float)s->o.temperature;
    count = apply_top_k(s, count);
    count = apply_top_p(s, count);
    return apply_min_p(s, count);
}

int32_t sl_sampler_draw(sl_sampler *s, const float *logits, const sl_seen *seen, uint64_t index, uint32_t sequence)
{
    const sl_candidate_token *c;
    int64_t count = sl_sampler_candidates(s, logits, seen, &c);
    sl_rng rng = sl_rng_stream(s->o.seed, SL_RNG_SAMPLE, index, sequence, 0);
    double target = sl_rng_uniform(&rng, 0), sum = 0;
    for (int64_t i = 0; i + 1 < count; i++) {
        sum += c[i].probability;
        if (sum > target) return c[i].id;
    }
    return c[count - 1].id;
}

/* generate.c: text from a trained model, token by token.
 *
 * Each token is one forward pass over the context window; a causal model ignores what lies right of the position that
 * is read, so the window is filled from the left and padded with token 0. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/rng.h"
#include "train/job.h"

typedef struct generator {
    sl_job *job;
    const sluice_job_options *options;
    const sl_vocabulary *vocabulary;
    int32_t *window; /* borrowed: the batch's "tokens" */
    int64_t context, vocabulary_size;
    int64_t filled;
    float *sorted; /* scratch for top-k */
} generator;

static int descending(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

/* The logit below which tokens are not drawn. */
static float top_k_floor(generator *g, const float *logits)
{
    int k = g->options->top_k;
    if (k <= 0 || k >= g->vocabulary_size) return -INFINITY;
    memcpy(g->sorted, logits, (size_t)g->vocabulary_size * sizeof *logits);
    qsort(g->sorted, (size_t)g->vocabulary_size, sizeof *logits, descending);
    return g->sorted[k - 1];
}

static int32_t most_likely(const float *logits, int64_t n)
{
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (logits[i] > logits[best]) best = i;
    return (int32_t)best;
}

static int32_t sample(generator *g, const float *logits, uint64_t index)
{
    double temperature = g->options->temperature, total = 0, at = 0;
    int64_t n = g->vocabulary_size;
    int32_t best = most_likely(logits, n);
    if (temperature <= 0) return best;
    float floor_logit = top_k_floor(g, logits);
    sl_rng rng = sl_rng_stream((uint64_t)g->job->settings.seed, SL_RNG_SAMPLE, index, 0, 0);
    for (int64_t i = 0; i < n; i++)
        if (logits[i] >= floor_logit) total += exp((logits[i] - logits[best]) / temperature);
    double target = sl_rng_uniform(&rng, 0) * total;
    for (int64_t i = 0; i < n; i++) {
        if (logits[i] < floor_logit) continue;
        at += exp((logits[i] - logits[best]) / temperature);
        if (at > target) return (int32_t)i;
    }
    return best;
}

static void push(generator *g, int32_t token)
{
    if (g->filled == g->context) {
        memmove(g->window, g->window + 1, (size_t)(g->context - 1) * sizeof *g->window);
        g->filled--;
    }
    g->window[g->filled++] = token;
}

static sluice_status start_with_prompt(generator *g)
{
    const char *prompt = g->options->prompt != NULL && g->options->prompt[0] != '\0' ? g->options->prompt : "\n";
    size_t bytes = strlen(prompt);
    int64_t count = 0;
    int32_t *ids = sl_alloc_array(bytes + 1, sizeof *ids, "prompt");
    if (ids == NULL) return SLUICE_ERR_NO_MEMORY;
    sluice_status st = sl_vocabulary_encode(g->vocabulary, prompt, bytes, ids, (int64_t)bytes + 1, &count);
    for (int64_t i = 0; st == SLUICE_OK && i < count; i++) push(g, ids[i]);
    sl_free(ids);
    if (st == SLUICE_OK && g->options->prompt != NULL) fputs(g->options->prompt, g->options->out);
    return st;
}

static sluice_status generate(generator *g)
{
    sl_job *j = g->job;
    sluice_batch batch = sl_batch_of(&j->batch);
    SL_TRY(start_with_prompt(g));
    for (int64_t i = 0; i < g->options->tokens; i++) {
        char text[4];
        SL_TRY(sluice_predict(j->engine, &batch, j->predictions, j->prediction_bytes));
        /* logits of the window's last token */
        int32_t token = sample(g, j->predictions + (g->filled - 1) * g->vocabulary_size, (uint64_t)i);
        push(g, token);
        fwrite(text, 1, (size_t)sl_vocabulary_decode(g->vocabulary, token, text), g->options->out);
        fflush(g->options->out);
    }
    fputc('\n', g->options->out);
    return SLUICE_OK;
}

static sluice_status generate_job(sl_job *j, const sluice_job_options *o)
{
    const sl_data_field *tokens = sl_batch_field(&j->batch, "tokens"), *targets = sl_batch_field(&j->batch, "targets");
    generator g = { .job = j, .options = o, .vocabulary = j->vocabulary };
    if (tokens == NULL || targets == NULL || g.vocabulary == NULL)
        return sl_fail(SLUICE_ERR_USAGE, "model.type \"%s\" does not generate text", j->settings.model.type);
    SL_TRY(sl_job_load_weights(j, o));
    g.window = tokens->buffer;
    g.context = tokens->row_elements;
    g.vocabulary_size = (int64_t)(j->prediction_bytes / sizeof(float)) / g.context;
    memset(targets->buffer, 0xff, (size_t)targets->row_elements * sizeof(int32_t)); /* ignored: no loss is asked for */
    g.sorted = sl_alloc_array((size_t)g.vocabulary_size, sizeof *g.sorted, "top-k");
    sluice_status st = g.sorted != NULL ? generate(&g) : SLUICE_ERR_NO_MEMORY;
    sl_free(g.sorted);
    return st;
}

sluice_status sluice_job_generate(const sluice_config *c, const sluice_job_options *o)
{
    return sl_job_run(c, o, SL_JOB_GENERATE, "sluice_job_generate", generate_job);
}

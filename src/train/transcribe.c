/* transcribe.c: see transcribe.h. */
#include "train/transcribe.h"

static int32_t likeliest(const float *logits, int64_t classes)
{
    int64_t best = 0;
    for (int64_t i = 1; i < classes; i++)
        if (logits[i] > logits[best]) best = i;
    return (int32_t)best;
}

int64_t sl_ctc_greedy(const float *logits, int64_t frames, int64_t classes, int32_t blank, int32_t *out)
{
    int64_t count = 0;
    int32_t before = blank;
    for (int64_t t = 0; t < frames; t++) {
        int32_t label = likeliest(logits + t * classes, classes);
        if (label != blank && label != before) out[count++] = label;
        before = label;
    }
    return count;
}

int64_t sl_count_labels(const int32_t *labels, int64_t most)
{
    int64_t count = 0;
    while (count < most && labels[count] >= 0) count++;
    return count;
}

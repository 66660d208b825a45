/* edit_distance.c: the table of Levenshtein distances of all beginnings, one row of it at a time. */
#include "train/edit_distance.h"

#include <stdbool.h>
#include <string.h>

#include "core/alloc.h"

/* A sequence of runs of labels: of one label each, or of words. */
typedef struct runs {
    const int32_t *labels;
    const int64_t *first; /* run i is the labels from first[2 i] to before first[2 i + 1]; NULL: label i */
    int64_t count;
} runs;

static bool same(const runs *a, int64_t i, const runs *b, int64_t k)
{
    if (a->first == NULL) return a->labels[i] == b->labels[k];
    int64_t bytes = a->first[2 * i + 1] - a->first[2 * i], other = b->first[2 * k + 1] - b->first[2 * k];
    return bytes == other &&
           memcmp(a->labels + a->first[2 * i], b->labels + b->first[2 * k], (size_t)bytes * sizeof *a->labels) == 0;
}

/* row[k]: distance of the part of `a` seen so far from the first k runs of `b`. */
static sluice_status distance(const runs *a, const runs *b, int64_t *out)
{
    int64_t *row = sl_alloc_array((size_t)b->count + 1, sizeof *row, "edit distances");
    if (row == NULL) return SLUICE_ERR_NO_MEMORY;
    for (int64_t k = 0; k <= b->count; k++) row[k] = k;
    for (int64_t i = 0; i < a->count; i++) {
        int64_t diagonal = row[0];
        row[0] = i + 1;
        for (int64_t k = 0; k < b->count; k++) {
            int64_t best = diagonal + !same(a, i, b, k);
            if (row[k + 1] + 1 < best) best = row[k + 1] + 1;
            if (row[k] + 1 < best) best = row[k] + 1;
            diagonal = row[k + 1];
            row[k + 1] = best;
        }
    }
    *out = row[b->count];
    sl_free(row);
    return SLUICE_OK;
}

sluice_status sl_label_distance(const int32_t *a, int64_t a_count, const int32_t *b, int64_t b_count, int64_t *out)
{
    return distance(&(runs){ a, NULL, a_count }, &(runs){ b, NULL, b_count }, out);
}

/* first: room for 2 * (count / 2 + 1) places. */
static void find_words(const int32_t *labels, int64_t count, int32_t space, int64_t *first, runs *out)
{
    int64_t words = 0;
    for (int64_t i = 0; i < count; i++) {
        bool inside = labels[i] != space;
        if (inside && (i == 0 || labels[i - 1] == space)) first[2 * words] = i;
        if (inside && (i + 1 == count || labels[i + 1] == space)) first[2 * words++ + 1] = i + 1;
    }
    *out = (runs){ labels, first, words };
}

sluice_status sl_word_distance(const int32_t *a, int64_t a_count, const int32_t *b, int64_t b_count, int32_t space,
                               int64_t *out, int64_t *words)
{
    runs left = { a, NULL, a_count }, right = { b, NULL, b_count };
    int64_t *places = NULL;
    if (space >= 0) {
        places = sl_alloc_array((size_t)(a_count + b_count + 4), sizeof *places, "words of a transcript");
        if (places == NULL) return SLUICE_ERR_NO_MEMORY;
        find_words(a, a_count, space, places, &left);
        find_words(b, b_count, space, places + a_count + 2, &right);
    }
    sluice_status st = distance(&left, &right, out);
    *words = left.count;
    sl_free(places);
    return st;
}

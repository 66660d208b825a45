/* options.c: looking up rows of the option table, and guessing what a misspelt key meant. */
#include "core/options.h"

#include <string.h>

/* Longer keys than this are no misspelling of ours. */
#define LONGEST_KEY 255

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

int64_t sl_edit_distance(const char *a, const char *b)
{
    size_t rows = strlen(a), columns = strlen(b);
    int64_t row[LONGEST_KEY + 1]; /* distances of the first i characters of a to every prefix of b */
    if (rows > LONGEST_KEY || columns > LONGEST_KEY) return (int64_t)(rows > columns ? rows : columns);
    for (size_t j = 0; j <= columns; j++) row[j] = (int64_t)j;
    for (size_t i = 1; i <= rows; i++) {
        int64_t diagonal = row[0];
        row[0] = (int64_t)i;
        for (size_t j = 1; j <= columns; j++) {
            int64_t replaced = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            row[j] = least(replaced, least(row[j - 1], row[j]) + 1);
        }
    }
    return row[columns];
}

const char *sl_option_nearest(const sl_option *table, size_t rows, const char *key)
{
    const char *nearest = NULL;
    int64_t best = (int64_t)strlen(key) / 3 + 1; /* one more than the farthest that still counts */
    for (size_t i = 0; i < rows; i++) {
        int64_t distance = sl_edit_distance(key, table[i].key);
        if (distance >= best) continue;
        best = distance;
        nearest = table[i].key;
    }
    return nearest;
}

const sl_option *sl_option_find(const sl_option *table, size_t rows, const char *key)
{
    for (size_t i = 0; i < rows; i++)
        if (strcmp(table[i].key, key) == 0) return &table[i];
    return NULL;
}

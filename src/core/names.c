/* names.c: names as people type them: "RTX 4090", "rtx-4090" and "GeForce RTX4090" are one. */
#include "core/names.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { NAME_BYTES = 64, TOLD = 3 };

/* Letters and digits alone, in lower case, without the words that a maker puts before every name; up to `end`. */
static void normalise(const char *name, const char *end, char out[NAME_BYTES])
{
    static const char *const makers[] = { "nvidia", "geforce", "tesla", "quadro" };
    size_t n = 0;
    for (; name < end && n + 1 < NAME_BYTES; name++)
        if (isalnum((unsigned char)*name)) out[n++] = (char)tolower((unsigned char)*name);
    out[n] = '\0';
    for (size_t i = 0; i < sizeof makers / sizeof makers[0]; i++) {
        size_t length = strlen(makers[i]);
        if (strncmp(out, makers[i], length) == 0 && out[length] != '\0') memmove(out, out + length, n - length + 1);
        n = strlen(out);
    }
}

static const char *end_of(const char *alias)
{
    return alias + strcspn(alias, "|");
}

bool sl_name_is(const char *name, const char *names)
{
    char wanted[NAME_BYTES], alias[NAME_BYTES];
    normalise(name, name + strlen(name), wanted);
    for (const char *at = names; wanted[0] != '\0'; at = end_of(at) + 1) {
        normalise(at, end_of(at), alias);
        if (strcmp(alias, wanted) == 0) return true;
        if (*end_of(at) == '\0') break;
    }
    return false;
}

const char *sl_name_first(const char *names, char *buf, size_t bytes)
{
    snprintf(buf, bytes, "%.*s", (int)(end_of(names) - names), names);
    return buf;
}

/* Share of letters that both have in the same order: 1 for the same name. */
static double likeness(const char *a, const char *b)
{
    size_t counts[NAME_BYTES] = { 0 }, length = strlen(b), letters = strlen(a) + length;
    for (; *a != '\0'; a++)
        for (size_t j = 0, diagonal = 0; j < length; j++) {
            size_t above = counts[j + 1];
            counts[j + 1] = *a == b[j] ? diagonal + 1 : counts[j] > above ? counts[j] : above;
            diagonal = above;
        }
    return letters > 0 ? 2.0 * (double)counts[length] / (double)letters : 0;
}

static double best_likeness(const char *wanted, const char *names)
{
    char alias[NAME_BYTES];
    double best = 0;
    for (const char *at = names;; at = end_of(at) + 1) {
        normalise(at, end_of(at), alias);
        double like = likeness(wanted, alias);
        if (like > best) best = like;
        if (*end_of(at) == '\0') return best;
    }
}

const char *sl_names_nearest(const char *name, const char *const *lists, size_t count, size_t stride, char *buf,
                             size_t bytes)
{
    const double alike = 0.6;
    const char *nearest[TOLD] = { NULL };
    double best[TOLD] = { alike, alike, alike };
    char wanted[NAME_BYTES], first[NAME_BYTES];
    normalise(name, name + strlen(name), wanted);
    for (size_t i = 0; i < count; i++) {
        const char *names = *(const char *const *)(const void *)((const char *)(const void *)lists + i * stride);
        double like = best_likeness(wanted, names);
        for (int k = 0; k < TOLD; k++) {
            if (like <= best[k]) continue;
            memmove(&best[k + 1], &best[k], (size_t)(TOLD - 1 - k) * sizeof best[0]);
            memmove(&nearest[k + 1], &nearest[k], (size_t)(TOLD - 1 - k) * sizeof nearest[0]);
            best[k] = like;
            nearest[k] = names;
            break;
        }
    }
    buf[0] = '\0';
    for (int k = 0; k < TOLD && nearest[k] != NULL; k++) {
        bool last = k + 1 == TOLD || nearest[k + 1] == NULL;
        size_t used = strlen(buf);
        snprintf(buf + used, bytes - used, "%s%s",
                 k == 0 ? ""
                 : last ? " or "
                        : ", ",
                 sl_name_first(nearest[k], first, sizeof first));
    }
    return buf;
}

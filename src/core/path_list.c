#include "core/path_list.h"

#include <glob.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/grow.h"
#include "core/io.h"
#include "core/quote.h"
#include "core/status.h"
#include "core/stop.h"

void sl_path_list_free(sl_path_list *list)
{
    for (int i = 0; i < list->count; i++) sl_free(list->paths[i]);
    sl_free(list->paths);
    *list = (sl_path_list){ NULL, 0 };
}

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Copies sorted names, each once. */
static sluice_status take(char *const *names, size_t count, sl_path_list *out)
{
    *out = (sl_path_list){ sl_alloc_array(count, sizeof *out->paths, "paths"), 0 };
    if (out->paths == NULL) return SLUICE_ERR_NO_MEMORY;
    for (size_t i = 0; i < count; i++) {
        if (i > 0 && strcmp(names[i], names[i - 1]) == 0) continue;
        char *copy = sl_alloc(strlen(names[i]) + 1, "path");
        if (copy == NULL) {
            sl_path_list_free(out);
            return SLUICE_ERR_NO_MEMORY;
        }
        out->paths[out->count++] = strcpy(copy, names[i]);
    }
    return SLUICE_OK;
}

/* ---- braces ---- */

/* Alternatives of a pattern, and those that still have braces. glob() takes braces itself, but neither bounds them nor ends when it is
 * asked to: {a,b} written 30 times are 2^30 names. */
typedef struct alternatives {
    char **list; /* owned, each sl_alloc'ed */
    int64_t count, capacity;
} alternatives;

static void free_alternatives(alternatives *a)
{
    for (int64_t i = 0; i < a->count; i++) sl_free(a->list[i]);
    sl_free(a->list);
}

/* Appends before + middle + after. */
static sluice_status add(alternatives *a, const char *before, size_t before_bytes, const char *middle,
                         size_t middle_bytes, const char *after)
{
    size_t after_bytes = strlen(after);
    SL_TRY(SL_GROW(a->list, a->capacity, a->count + 1, 16, "alternatives of a pattern"));
    char *made = sl_alloc(before_bytes + middle_bytes + after_bytes + 1, "alternative of a pattern");
    if (made == NULL) return SLUICE_ERR_NO_MEMORY;
    memcpy(made, before, before_bytes);
    memcpy(made + before_bytes, middle, middle_bytes);
    memcpy(made + before_bytes + middle_bytes, after, after_bytes);
    a->list[a->count++] = made;
    return SLUICE_OK;
}

/* The ',' or '}' that ends an alternative which begins at `at`; NULL: there is none. A backslash takes the next character's meaning. */
static const char *end_of_alternative(const char *at)
{
    for (int depth = 0; *at != '\0'; at++) {
        if (*at == '\\') {
            if (*++at == '\0') return NULL;
            continue;
        }
        if (depth == 0 && (*at == ',' || *at == '}')) return at;
        depth += (*at == '{') - (*at == '}');
    }
    return NULL;
}

static const char *first_brace(const char *pattern)
{
    for (; *pattern != '\0' && *pattern != '{'; pattern++)
        if (*pattern == '\\' && pattern[1] != '\0') pattern++;
    return *pattern == '{' ? pattern : NULL;
}

/* Where the pattern's first braces end; NULL: it has none, or they are not closed, and then stand for themselves. */
static const char *end_of_braces(const char *open)
{
    const char *at = open != NULL ? end_of_alternative(open + 1) : NULL;
    while (at != NULL && *at != '}') at = end_of_alternative(at + 1);
    return at;
}

/* Appends what the first braces of the pattern stand for. */
static sluice_status open_braces(const char *pattern, const char *open, const char *close, alternatives *out)
{
    for (const char *at = open; at != close;) {
        const char *end = end_of_alternative(at + 1);
        SL_TRY(add(out, pattern, (size_t)(open - pattern), at + 1, (size_t)(end - at - 1), close + 1));
        at = end;
    }
    return SLUICE_OK;
}

/* Takes one of what is `left`: into `done` where it has no braces, and what they stand for back into `left` where it has. */
static sluice_status open_one(alternatives *left, alternatives *done)
{
    char *pattern = left->list[--left->count];
    const char *open = first_brace(pattern), *close = end_of_braces(open);
    sluice_status st =
        close != NULL ? open_braces(pattern, open, close, left) : add(done, pattern, strlen(pattern), "", 0, "");
    sl_free(pattern);
    return st;
}

static sluice_status open_all(const char *pattern, alternatives *out)
{
    alternatives left = { NULL, 0, 0 };
    sluice_status st = add(&left, pattern, strlen(pattern), "", 0, "");
    while (st == SLUICE_OK && left.count > 0) {
        st = open_one(&left, out);
        if (left.count + out->count > SL_MOST_ALTERNATIVES)
            st = sl_fail(
                SLUICE_ERR_USAGE,
                "%s: the braces of the pattern stand for more than %d names; use *, ? and [a-z], or fewer braces",
                sl_show(pattern).text, SL_MOST_ALTERNATIVES);
    }
    free_alternatives(&left);
    return st;
}

/* ---- files ---- */

/* What nothing matches is no failure: another alternative may. */
static sluice_status find(const char *pattern, const char *alternative, bool more, glob_t *found)
{
    int failed = glob(alternative, GLOB_NOSORT | GLOB_ERR | (more ? GLOB_APPEND : 0), NULL, found);
    if (failed == 0 || failed == GLOB_NOMATCH) return SLUICE_OK;
    return sl_fail(failed == GLOB_NOSPACE ? SLUICE_ERR_NO_MEMORY : SLUICE_ERR_INPUT,
                   "%s: the folder of the pattern cannot be read", pattern);
}

static sluice_status find_all(const int *stop, const char *pattern, const alternatives *a, glob_t *found)
{
    for (int64_t i = 0; i < a->count; i++) {
        SL_TRY(sl_stop_poll(stop, "looking for the files of a pattern"));
        SL_TRY(find(pattern, a->list[i], i > 0, found));
    }
    if (found->gl_pathc == 0)
        return sl_fail(SLUICE_ERR_INPUT, "%s: no file has that name, nor matches it as a pattern", pattern);
    return SLUICE_OK;
}

static sluice_status expand(const int *stop, const char *pattern, sl_path_list *out)
{
    alternatives a = { NULL, 0, 0 };
    glob_t found = { .gl_pathc = 0 };
    sluice_status st = open_all(pattern, &a);
    if (st == SLUICE_OK) st = find_all(stop, pattern, &a, &found);
    free_alternatives(&a);
    if (st == SLUICE_OK) {
        qsort(found.gl_pathv, found.gl_pathc, sizeof *found.gl_pathv, by_bytes);
        st = take(found.gl_pathv, found.gl_pathc, out);
    }
    globfree(&found);
    return st;
}

sluice_status sl_path_expand(const int *stop, const char *pattern, sl_path_list *out)
{
    char *const one = (char *)pattern;
    return sl_path_exists(pattern) ? take(&one, 1, out) : expand(stop, pattern, out);
}

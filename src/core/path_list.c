#include "core/path_list.h"

#include <glob.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/io.h"
#include "core/status.h"

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

static sluice_status expand(const char *pattern, sl_path_list *out)
{
    glob_t found;
    int failed = glob(pattern, GLOB_BRACE | GLOB_NOSORT | GLOB_ERR, NULL, &found);
    sluice_status st;
    if (failed == GLOB_NOMATCH)
        st = sl_fail(SLUICE_ERR_INPUT, "%s: no file has that name, nor matches it as a pattern", pattern);
    else if (failed != 0)
        st = sl_fail(failed == GLOB_NOSPACE ? SLUICE_ERR_NO_MEMORY : SLUICE_ERR_INPUT,
                     "%s: the folder of the pattern cannot be read", pattern);
    else {
        qsort(found.gl_pathv, found.gl_pathc, sizeof *found.gl_pathv, by_bytes);
        st = take(found.gl_pathv, found.gl_pathc, out);
    }
    globfree(&found);
    return st;
}

sluice_status sl_path_expand(const char *pattern, sl_path_list *out)
{
    char *const one = (char *)pattern;
    return sl_path_exists(pattern) ? take(&one, 1, out) : expand(pattern, out);
}

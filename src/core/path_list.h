/* path_list.h: the files that a pattern names. */
#ifndef SL_CORE_PATH_LIST_H
#define SL_CORE_PATH_LIST_H

#include "sluice.h"

typedef struct sl_path_list {
    char **paths; /* owned, each sl_alloc'ed, in byte order, none twice */
    int count;
} sl_path_list;

/* What the braces of a pattern stand for, at most. */
#define SL_MOST_ALTERNATIVES 4096

/* The path itself where something has that name; otherwise what the pattern matches: `*`, `?`, `[a-z]`, `{a,b}`. Nothing:
 * SLUICE_ERR_INPUT; more than SL_MOST_ALTERNATIVES: SLUICE_ERR_USAGE. A request to stop (core/stop.h) ends it. The result is the
 * caller's. */
sluice_status sl_path_expand(const int *stop, const char *pattern, sl_path_list *out);
void sl_path_list_free(sl_path_list *list);

#endif

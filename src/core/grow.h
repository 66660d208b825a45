/* grow.h: lists that grow: a pointer and how many elements it has room for, which the list's owner keeps. */
#ifndef SL_CORE_GROW_H
#define SL_CORE_GROW_H

#include <stddef.h>
#include <stdint.h>

#include "core/status.h"

/* Room for `needed` elements in a list: SL_GROW(l->items, l->capacity, l->count + 1, 64, "items"). Where there is too little, twice as much
 * is taken, and at least `least` and `needed`. New elements are zero. After a failure the list is as it was. */
#define SL_GROW(list_, capacity_, needed_, least_, name_)                                                              \
    sl_grow_list(&(list_), &(capacity_), (needed_), (least_), sizeof *(list_), (name_))

/* `list`: where the pointer is. */
sluice_status sl_grow_list(void *list, int64_t *capacity, int64_t needed, int64_t least, size_t each, const char *name);

#endif

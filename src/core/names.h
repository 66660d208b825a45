/* names.h: things that people call by several names: lists such as "rtx-4090|4090", of which the first is told. Names are
 * compared without case, blanks, punctuation and the maker's name. */
#ifndef SL_CORE_NAMES_H
#define SL_CORE_NAMES_H

#include <stdbool.h>
#include <stddef.h>

/* Whether `name` is one of `names`, which | divides. */
bool sl_name_is(const char *name, const char *names);
/* The first of them. */
const char *sl_name_first(const char *names, char *buf, size_t bytes);
/* Those of `count` lists of names that are nearest to `name`, at most three, as "a, b or c"; "" where none is like it. The
 * lists lie `stride` bytes apart. */
const char *sl_names_nearest(const char *name, const char *const *lists, size_t count, size_t stride, char *buf,
                             size_t bytes);

#endif

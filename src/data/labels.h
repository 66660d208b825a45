/* labels.h: words that name classes, collected while a file is read; private to data/.
 *
 * When all are there they are put in order, by value where every one is a whole number, otherwise by bytes, so that a class does not
 * depend on the order of the file. */
#ifndef SL_DATA_LABELS_H
#define SL_DATA_LABELS_H

#include <stddef.h>
#include <stdint.h>

#include "core/status.h"

#define SL_MOST_LABELS      65536
#define SL_MOST_LABEL_BYTES 1000

/* Zero-initialise. */
typedef struct sl_label_set {
    char **names; /* owned */
    int64_t count, capacity;
    int32_t *slots; /* owned: hash table of one more than an index; 0: free */
    int64_t slot_count;
} sl_label_set;

/* The label's number, which it gets where it has none yet. *id -1: there would be more than SL_MOST_LABELS. */
sluice_status sl_labels_add(sl_label_set *s, const char *text, int32_t *id);
/* -1: there is none. */
int32_t sl_labels_find(const sl_label_set *s, const char *text);
/* Puts them in order. *map, of `count` entries, says what number each has now; the caller's. */
sluice_status sl_labels_sort(sl_label_set *s, int32_t **map);
void sl_labels_free(sl_label_set *s);
/* "no, yes": the first few, for messages. */
typedef struct sl_label_list {
    char text[160];
} sl_label_list;
sl_label_list sl_labels_list(const sl_label_set *s);

#endif

/* weights_index.h: model.safetensors.index.json: which file holds which tensor.
 *
 *     {"metadata": {...}, "weight_map": {"name of a tensor": "name of a file", ...}}
 *
 * "metadata" is information and may be absent. A file is named without folders: it is beside the index. */
#ifndef SL_FORMAT_WEIGHTS_INDEX_H
#define SL_FORMAT_WEIGHTS_INDEX_H

#include <stdint.h>

#include "core/status.h"

typedef struct sl_index_entry {
    const char *tensor, *file; /* in the index's text */
} sl_index_entry;

typedef struct sl_weights_index {
    char *text;              /* owned */
    sl_index_entry *entries; /* owned; in byte order of files, within one of tensors */
    int64_t count, capacity;
    const sl_index_entry **by_tensor; /* owned; in byte order of tensors */
} sl_weights_index;

/* SLUICE_ERR_INPUT, with line and column where the text is not JSON: the file named otherwise than by a plain name, a tensor
 * given twice, no weight_map, or an empty one. */
sluice_status sl_weights_index_read(const char *path, sl_weights_index *out);
void sl_weights_index_free(sl_weights_index *x);
const sl_index_entry *sl_weights_index_find(const sl_weights_index *x, const char *tensor);

#endif

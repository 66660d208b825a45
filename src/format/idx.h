/* idx.h: arrays of bytes in IDX files, the format of MNIST: two zero bytes, the type, the number of dimensions, each dimension
 * as four bytes with the highest first, then the elements with the last dimension fastest. Also compressed by gzip. */
#ifndef SL_FORMAT_IDX_H
#define SL_FORMAT_IDX_H

#include <stddef.h>
#include <stdint.h>

#include "sluice.h"

#define SL_IDX_MOST_DIMENSIONS 4

typedef struct sl_idx {
    char *file; /* owned: the whole file, uncompressed */
    int dimensions;
    int64_t size[SL_IDX_MOST_DIMENSIONS];
    const uint8_t *elements; /* in `file` */
    size_t count;            /* product of the sizes */
    size_t header_bytes;     /* element i is byte header_bytes + i of the file */
} sl_idx;

/* Elements other than unsigned bytes, and files that are shorter or longer than their header says, are SLUICE_ERR_INPUT with
 * the byte. Memory is taken for what the file holds, up to what its header says. A request to stop (core/stop.h) ends the reading. */
sluice_status sl_idx_read(const int *stop, const char *path, sl_idx *out);
void sl_idx_free(sl_idx *x);

#endif

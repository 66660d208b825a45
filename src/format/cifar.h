/* cifar.h: the binary files of CIFAR-10 and CIFAR-100: records of one or two labels and 3 x 32 x 32 bytes, a plane each for red,
 * green and blue. */
#ifndef SL_FORMAT_CIFAR_H
#define SL_FORMAT_CIFAR_H

#include <stddef.h>
#include <stdint.h>

#include "sluice.h"

enum { SL_CIFAR_SIDE = 32, SL_CIFAR_CHANNELS = 3, SL_CIFAR_PIXELS = SL_CIFAR_SIDE * SL_CIFAR_SIDE };

/* Which of the two, and which of its labels. */
typedef struct sl_cifar_kind {
    const char *name;
    int label_bytes;        /* of a record */
    int label_at;           /* the one that is read */
    int classes;            /* of it */
    const char *class_file; /* names of the classes, a line each, beside the records where they were unpacked */
} sl_cifar_kind;
extern const sl_cifar_kind sl_cifar10, sl_cifar100_fine, sl_cifar100_coarse;

/* Appends the records of a file: pixels [n, 32, 32, 3] and labels [n] are sl_alloc'ed, grow, and are the caller's also after a
 * failure. A file of another length, and labels that are none, are SLUICE_ERR_INPUT with the byte. */
sluice_status sl_cifar_append(const int *stop, const char *path, const sl_cifar_kind *kind, uint8_t **pixels,
                              int32_t **labels, int64_t *count);

#endif

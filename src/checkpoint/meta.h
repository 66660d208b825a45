/* meta.h: the fields of sl_checkpoint_meta as rows, so that writing, reading and printing cannot differ. */
#ifndef SL_CHECKPOINT_META_H
#define SL_CHECKPOINT_META_H

#include <stdbool.h>
#include <stddef.h>

typedef enum {
    SL_META_COUNT,    /* 64-bit integer from 0 to 2^63 - 1: a JSON integer */
    SL_META_UNSIGNED, /* any 64-bit integer: decimal digits in a string */
    SL_META_DOUBLE,   /* 16 hexadecimal digits of its bits in a string */
    SL_META_TEXT,     /* char[capacity] */
} sl_meta_type;

typedef struct sl_meta_field {
    const char *name;
    sl_meta_type type;
    size_t offset, capacity;
    bool optional; /* zero where a manifest lacks it: older versions did not write it */
} sl_meta_field;

extern const sl_meta_field sl_meta_fields[];
extern const size_t sl_meta_field_count;

#endif

/* tfevents.h: event files of TensorBoard, written.
 *
 * A file is a sequence of records: length (8 bytes, little-endian), masked CRC-32C of these 8 bytes, the bytes, masked CRC-32C of
 * them. Each record is an Event in protobuf's wire format; the first says that the file is "brain.Event:2". The functions add
 * whole records to a text, so that the caller writes several at once: a file that ends anywhere between two calls is whole. */
#ifndef SL_FORMAT_TFEVENTS_H
#define SL_FORMAT_TFEVENTS_H

#include <stdint.h>

#include "format/text_buffer.h"

typedef struct sl_tf_scalar {
    const char *tag;
    double value; /* kept as float, as TensorBoard does */
} sl_tf_scalar;

/* The record that every file begins with. seconds: since 1970. */
void sl_tf_add_version(sl_text *out, double seconds);
/* One event with `count` scalars at `step`. */
void sl_tf_add_scalars(sl_text *out, double seconds, int64_t step, const sl_tf_scalar *scalars, int count);
/* A text, which TensorBoard shows as Markdown. */
void sl_tf_add_text(sl_text *out, double seconds, int64_t step, const char *tag, const char *text);

#endif

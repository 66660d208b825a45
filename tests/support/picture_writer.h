/* picture_writer.h: small PNG, JPEG, IDX and CIFAR files for tests. */
#ifndef SLUICE_TEST_PICTURE_WRITER_H
#define SLUICE_TEST_PICTURE_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct picture_bytes {
    uint8_t *data; /* the caller's to free() */
    size_t bytes;
} picture_bytes;

/* A PNG of samples[height, width, channels], big-endian where depth is 16; packed by libpng where it is below 8. `type` is a
 * PNG_COLOR_TYPE; palettes have 256 entries (i, 255 - i, i / 2). Nothing where libpng is not built in. */
picture_bytes write_png(const uint8_t *samples, int width, int height, int type, int depth, bool interlaced);
/* A JPEG of pixels[height, width, channels], channels 1, 3 or 4 (CMYK, inverted as files have it). */
picture_bytes write_jpeg(const uint8_t *pixels, int width, int height, int channels, bool progressive);
/* [height, width, channels] with a gradient and an edge in it, another one for each `number`. */
void paint(uint8_t *pixels, int width, int height, int channels, int number);

/* Writes folder/name; exits the test where that fails. */
void write_picture(const char *folder, const char *name, const void *data, size_t bytes);
/* The same, compressed by gzip; plain where zlib is not built in. */
void write_gzip(const char *folder, const char *name, const void *data, size_t bytes);
/* IDX: dimension d is sizes[d]. gz: compressed. */
void write_idx(const char *folder, const char *name, int dimensions, const int *sizes, const uint8_t *elements,
               bool gz);
/* Images and labels in the names of MNIST: image i is painted as number i, its label i % classes. */
void write_digits(const char *folder, const char *part, int count, int side, int classes);
/* Records of CIFAR with `label_bytes` labels each, i % 10: image i is painted as number first + i. */
void write_cifar(const char *folder, const char *name, int count, int first, int label_bytes);

#endif

#include "support/picture_writer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef SLUICE_PNG
#include <png.h>
#endif
#ifdef SLUICE_JPEG
#include <jpeglib.h>
#endif
#ifdef SLUICE_ZLIB
#include <zlib.h>
#endif

void paint(uint8_t *pixels, int width, int height, int channels, int number)
{
    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x++)
            for (int c = 0; c < channels; c++) {
                int v = 3 * x * (c + 1) + 5 * y + 17 * number + 40 * c;
                if (x > width / 2 && y > (number + c) % height) v += 90;
                pixels[(y * width + x) * channels + c] = (uint8_t)v;
            }
}

#ifdef SLUICE_PNG

static void append(png_structp png, png_bytep data, size_t bytes)
{
    picture_bytes *out = png_get_io_ptr(png);
    uint8_t *grown = realloc(out->data, out->bytes + bytes);
    if (grown == NULL) exit(99);
    memcpy(grown + out->bytes, data, bytes);
    *out = (picture_bytes){ grown, out->bytes + bytes };
}

static void flush(png_structp png)
{
    (void)png;
}

picture_bytes write_png(const uint8_t *samples, int width, int height, int type, int depth, bool interlaced)
{
    picture_bytes out = { NULL, 0 };
    png_color palette[256];
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
    png_infop info = png_create_info_struct(png);
    if (setjmp(png_jmpbuf(png)) != 0) exit(99);
    png_set_write_fn(png, &out, append, flush);
    png_set_IHDR(png, info, (png_uint_32)width, (png_uint_32)height, depth, type,
                 interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT,
                 PNG_FILTER_TYPE_DEFAULT);
    for (int i = 0; i < 256; i++) palette[i] = (png_color){ (png_byte)i, (png_byte)(255 - i), (png_byte)(i / 2) };
    if (type == PNG_COLOR_TYPE_PALETTE) png_set_PLTE(png, info, palette, 1 << depth);
    png_write_info(png, info);
    if (depth < 8) png_set_packing(png);
    int passes = png_set_interlace_handling(png);
    size_t row = (size_t)width * png_get_channels(png, info) * (depth == 16 ? 2 : 1);
    for (int p = 0; p < passes; p++)
        for (int y = 0; y < height; y++) png_write_row(png, samples + (size_t)y * row);
    png_write_end(png, NULL);
    png_destroy_write_struct(&png, &info);
    return out;
}

#else

picture_bytes write_png(const uint8_t *samples, int width, int height, int type, int depth, bool interlaced)
{
    (void)samples, (void)width, (void)height, (void)type, (void)depth, (void)interlaced;
    return (picture_bytes){ NULL, 0 };
}

#endif
#ifdef SLUICE_JPEG

picture_bytes write_jpeg(const uint8_t *pixels, int width, int height, int channels, bool progressive)
{
    struct jpeg_compress_struct jpeg;
    struct jpeg_error_mgr errors;
    unsigned char *data = NULL;
    unsigned long bytes = 0;
    jpeg.err = jpeg_std_error(&errors);
    jpeg_create_compress(&jpeg);
    jpeg_mem_dest(&jpeg, &data, &bytes);
    jpeg.image_width = (JDIMENSION)width;
    jpeg.image_height = (JDIMENSION)height;
    jpeg.input_components = channels;
    jpeg.in_color_space = channels == 1 ? JCS_GRAYSCALE : channels == 3 ? JCS_RGB : JCS_CMYK;
    jpeg_set_defaults(&jpeg);
    jpeg_set_quality(&jpeg, 95, TRUE);
    if (progressive) jpeg_simple_progression(&jpeg);
    jpeg_start_compress(&jpeg, TRUE);
    while (jpeg.next_scanline < jpeg.image_height) {
        JSAMPROW row = (JSAMPROW)(pixels + (size_t)jpeg.next_scanline * (size_t)(width * channels));
        jpeg_write_scanlines(&jpeg, &row, 1);
    }
    jpeg_finish_compress(&jpeg);
    jpeg_destroy_compress(&jpeg);
    return (picture_bytes){ data, bytes };
}

#else

picture_bytes write_jpeg(const uint8_t *pixels, int width, int height, int channels, bool progressive)
{
    (void)pixels, (void)width, (void)height, (void)channels, (void)progressive;
    return (picture_bytes){ NULL, 0 };
}

#endif

void write_picture(const char *folder, const char *name, const void *data, size_t bytes)
{
    char path[8192];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    if (f == NULL || fwrite(data, 1, bytes, f) != bytes || fclose(f) != 0) exit(99);
}

void write_gzip(const char *folder, const char *name, const void *data, size_t bytes)
{
#ifdef SLUICE_ZLIB
    char path[8192];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    gzFile f = gzopen(path, "wb");
    if (f == NULL || gzwrite(f, data, (unsigned)bytes) != (int)bytes || gzclose(f) != Z_OK) exit(99);
#else
    write_picture(folder, name, data, bytes);
#endif
}

void write_idx(const char *folder, const char *name, int dimensions, const int *sizes, const uint8_t *elements, bool gz)
{
    size_t count = 1, header = 4 + 4 * (size_t)dimensions;
    for (int i = 0; i < dimensions; i++) count *= (size_t)sizes[i];
    uint8_t *file = calloc(1, header + count);
    if (file == NULL) exit(99);
    file[2] = 8;
    file[3] = (uint8_t)dimensions;
    for (int i = 0; i < dimensions; i++)
        for (int k = 0; k < 4; k++) file[4 + 4 * i + k] = (uint8_t)((unsigned)sizes[i] >> (24 - 8 * k));
    memcpy(file + header, elements, count);
    (gz ? write_gzip : write_picture)(folder, name, file, header + count);
    free(file);
}

void write_digits(const char *folder, const char *part, int count, int side, int classes)
{
    char name[64];
    uint8_t *pixels = malloc((size_t)(count * side * side)), *labels = malloc((size_t)count);
    if (pixels == NULL || labels == NULL) exit(99);
    for (int i = 0; i < count; i++) {
        paint(pixels + i * side * side, side, side, 1, i);
        labels[i] = (uint8_t)(i % classes);
    }
    snprintf(name, sizeof name, "%s-images-idx3-ubyte", part);
    write_idx(folder, name, 3, (int[]){ count, side, side }, pixels, false);
    snprintf(name, sizeof name, "%s-labels-idx1-ubyte", part);
    write_idx(folder, name, 1, &count, labels, false);
    free(pixels);
    free(labels);
}

void write_cifar(const char *folder, const char *name, int count, int first, int label_bytes)
{
    enum { PIXELS = 32 * 32 };
    size_t record = (size_t)label_bytes + 3 * PIXELS;
    uint8_t image[3 * PIXELS], *file = malloc((size_t)count * record);
    if (file == NULL) exit(99);
    for (int i = 0; i < count; i++) {
        uint8_t *at = file + (size_t)i * record;
        for (int k = 0; k < label_bytes; k++) at[k] = (uint8_t)(i % 10);
        paint(image, 32, 32, 3, first + i);
        for (int p = 0; p < PIXELS; p++)
            for (int c = 0; c < 3; c++) at[label_bytes + c * PIXELS + p] = image[3 * p + c];
    }
    write_picture(folder, name, file, (size_t)count * record);
    free(file);
}

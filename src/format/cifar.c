/* cifar.c: records of CIFAR, their planes put together to pixels. */
#include "format/cifar.h"

#include "core/alloc.h"
#include "core/io.h"
#include "core/status.h"

#define MAX_FILE_BYTES ((size_t)16 << 30)
enum { IMAGE_BYTES = SL_CIFAR_PIXELS * SL_CIFAR_CHANNELS };

const sl_cifar_kind sl_cifar10 = { "CIFAR-10", 1, 0, 10, "batches.meta.txt" };
const sl_cifar_kind sl_cifar100_fine = { "CIFAR-100", 2, 1, 100, "fine_label_names.txt" };
const sl_cifar_kind sl_cifar100_coarse = { "CIFAR-100", 2, 0, 20, "coarse_label_names.txt" };

/* planes[3, 32 x 32] -> pixels[32 x 32, 3] */
static void interleave(const uint8_t *planes, uint8_t *pixels)
{
    for (int i = 0; i < SL_CIFAR_PIXELS; i++)
        for (int c = 0; c < SL_CIFAR_CHANNELS; c++) pixels[i * SL_CIFAR_CHANNELS + c] = planes[c * SL_CIFAR_PIXELS + i];
}

static sluice_status check_length(const char *path, const sl_cifar_kind *kind, size_t bytes)
{
    size_t record = (size_t)kind->label_bytes + IMAGE_BYTES;
    if (bytes == 0) return sl_fail(SLUICE_ERR_INPUT, "%s is empty", path);
    if (bytes % record == 0) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_INPUT,
                   "%s: %zu bytes are not whole records of %s, which have %zu: the last one begins at byte %zu; the "
                   "file was cut off, or is something else",
                   path, bytes, kind->name, record, bytes / record * record);
}

static sluice_status take_records(const char *path, const sl_cifar_kind *kind, const uint8_t *file, int64_t records,
                                  uint8_t *pixels, int32_t *labels)
{
    size_t record = (size_t)kind->label_bytes + IMAGE_BYTES;
    for (int64_t i = 0; i < records; i++) {
        size_t at = (size_t)i * record, label_at = at + (size_t)kind->label_at;
        if (file[label_at] >= kind->classes)
            return sl_fail(SLUICE_ERR_INPUT, "%s, byte %zu: label %d; %s has 0 to %d here. Is it a file of %s?", path,
                           label_at, file[label_at], kind->name, kind->classes - 1, kind->name);
        labels[i] = file[label_at];
        interleave(file + at + kind->label_bytes, pixels + (size_t)i * IMAGE_BYTES);
    }
    return SLUICE_OK;
}

/* Room for `more` records behind `count`. */
static sluice_status make_room(uint8_t **pixels, int32_t **labels, int64_t count, int64_t more)
{
    size_t before = (size_t)count, after = (size_t)(count + more);
    uint8_t *grown = sl_realloc(*pixels, before * IMAGE_BYTES, after * IMAGE_BYTES, "pixels");
    if (grown == NULL) return SLUICE_ERR_NO_MEMORY;
    *pixels = grown;
    int32_t *wider = sl_realloc(*labels, before * sizeof **labels, after * sizeof **labels, "labels");
    if (wider == NULL) return SLUICE_ERR_NO_MEMORY;
    *labels = wider;
    return SLUICE_OK;
}

sluice_status sl_cifar_append(const int *stop, const char *path, const sl_cifar_kind *kind, uint8_t **pixels,
                              int32_t **labels, int64_t *count)
{
    char *file;
    size_t bytes;
    SL_TRY(sl_file_read_all_until(stop, path, MAX_FILE_BYTES, &file, &bytes));
    sluice_status st = check_length(path, kind, bytes);
    int64_t records = (int64_t)(bytes / ((size_t)kind->label_bytes + IMAGE_BYTES));
    if (st == SLUICE_OK) st = make_room(pixels, labels, *count, records);
    if (st == SLUICE_OK)
        st = take_records(path, kind, (const uint8_t *)file, records, *pixels + (size_t)*count * IMAGE_BYTES,
                          *labels + *count);
    sl_free(file);
    if (st == SLUICE_OK) *count += records;
    return st;
}

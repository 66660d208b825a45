/* idx_fuzz.c: IDX files, plain and compressed, as images and as labels. */
#include "data/data.h"
#include "format/idx.h"
#include "support/fuzz/fuzz.h"

/* Reads every element that the header promises. */
static void use_array(const sl_idx *x)
{
    size_t product = 1, sum = 0;
    FUZZ_CHECK(x->dimensions >= 1 && x->dimensions <= SL_IDX_MOST_DIMENSIONS);
    for (int i = 0; i < x->dimensions; i++) {
        FUZZ_CHECK(x->size[i] > 0);
        product *= (size_t)x->size[i];
    }
    FUZZ_CHECK(product == x->count);
    for (size_t i = 0; i < x->count; i++) sum += x->elements[i];
    FUZZ_CHECK(sum <= 255 * x->count);
}

static void use_data(sluice_data *d)
{
    sl_image_size size;
    int64_t classes = sl_data_classes(d), valid;
    FUZZ_CHECK(sl_data_image(d, &size));
    int64_t elements = size.height * size.width * size.channels;
    int32_t target = -7;
    if (elements > 1 << 20) return;
    float *x = malloc((size_t)elements * sizeof *x);
    FUZZ_CHECK(x != NULL);
    const sl_data_field fields[] = { { "x", SLUICE_F32, elements, x }, { "target", SLUICE_I32, 1, &target } };
    for (uint64_t i = 0; i < 3; i++) {
        FUZZ_CHECK(d->ops->fill(d, i, 1, fields, 2) == SLUICE_OK);
        FUZZ_CHECK(target >= 0 && target < classes);
    }
    FUZZ_CHECK(d->ops->fill_eval(d, SL_SPLIT_TRAIN, 0, 1, fields, 2, &valid) == SLUICE_OK && valid == 1);
    free(x);
}

/* The file as images, with as many labels as it says it has. */
static void open_as_images(const sl_idx *images, const char *path)
{
    static uint8_t labels[8 + 4096] = { 0, 0, 8, 1 };
    sluice_data *d;
    if (images->dimensions < 3 || images->size[0] > 4096) return;
    for (int i = 0; i < 4; i++) labels[4 + i] = (uint8_t)(images->size[0] >> (24 - 8 * i));
    for (int i = 0; i < 4096; i++) labels[8 + i] = (uint8_t)(i % 7);
    char own[4096];
    snprintf(own, sizeof own, "%s", path);
    char beside[4096];
    snprintf(beside, sizeof beside, "%s", fuzz_file("labels", labels, 8 + (size_t)images->size[0]));
    const sl_data_options o = {
        .path = own, .labels_path = beside, .normalize = -1, .crop = "1", .flip = true, .seed = 3
    };
    if (!fuzz_accepted(sl_data_idx(&o, &d))) return;
    use_data(d);
    sluice_data_destroy(d);
}

void fuzz_idx(const uint8_t *data, size_t bytes)
{
    char path[4096];
    sl_idx x;
    snprintf(path, sizeof path, "%s", fuzz_file("images", data, bytes));
    if (!fuzz_accepted(sl_idx_read(NULL, path, &x))) return;
    use_array(&x);
    open_as_images(&x, path);
    sl_idx_free(&x);
}

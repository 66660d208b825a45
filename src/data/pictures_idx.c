/* pictures_idx.c: images and labels in IDX files: MNIST, and what was made in its image.
 *
 * A folder is looked through for the names that these sets have: train-images-idx3-ubyte and t10k-images-idx3-ubyte with their
 * labels, with a dot for the second hyphen or not, compressed or not. Other files are named one by one. */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/io.h"
#include "data/pictures.h"
#include "format/idx.h"

/* Images and labels of a part of the data. */
typedef struct idx_files {
    char images[PATH_MAX], labels[PATH_MAX];
} idx_files;

/* "FOLDER/train-images-idx3-ubyte" in any spelling; false: there is none, and out is the usual one. */
static bool find_file(const char *folder, const char *part, const char *what, char out[PATH_MAX])
{
    for (const char *dot = "-."; *dot != '\0'; dot++)
        for (int packed = 0; packed < 2; packed++) {
            snprintf(out, PATH_MAX, "%s/%s-%s%cidx%c-ubyte%s", folder, part, what, *dot, what[0] == 'i' ? '3' : '1',
                     packed ? ".gz" : "");
            if (sl_path_exists(out)) return true;
        }
    snprintf(out, PATH_MAX, "%s/%s-%s-idx%c-ubyte", folder, part, what, what[0] == 'i' ? '3' : '1');
    return false;
}

static bool find_part(const char *folder, const char *part, idx_files *out)
{
    bool images = find_file(folder, part, "images", out->images),
         labels = find_file(folder, part, "labels", out->labels);
    return images && labels;
}

static sluice_status is_folder(const char *path, bool *out)
{
    sl_path_info info;
    SL_TRY(sl_path_look(path, &info));
    if (info.kind == SL_PATH_MISSING)
        return sl_fail(SLUICE_ERR_INPUT, "%s: there is no such file or folder; give a folder with IDX files", path);
    *out = info.kind == SL_PATH_FOLDER;
    return SLUICE_OK;
}

static sluice_status name_files(const char *key, const char *images, const char *labels, idx_files *out)
{
    if (labels == NULL || labels[0] == '\0')
        return sl_fail(SLUICE_ERR_USAGE, "%s is missing: %s is a file of images; give the file of their labels", key,
                       images);
    snprintf(out->images, sizeof out->images, "%s", images);
    snprintf(out->labels, sizeof out->labels, "%s", labels);
    return SLUICE_OK;
}

/* The files of both parts; *has_test: there is a second one. */
static sluice_status find_folder(const sl_data_options *o, idx_files files[2], bool *has_test)
{
    bool train = find_part(o->path, "train", &files[0]), test = find_part(o->path, "t10k", &files[1]);
    if (!train && test) { /* all that is there: a share of it is kept for validation */
        files[0] = files[1];
        return SLUICE_OK;
    }
    if (!train)
        return sl_fail(SLUICE_ERR_INPUT,
                       "%s: neither %s (or .gz) with its labels is there, nor the same of t10k; name files with "
                       "data.path and data.labels_path",
                       o->path, files[0].images + strlen(o->path) + 1);
    *has_test = test && !(o->validation > 0);
    return SLUICE_OK;
}

static sluice_status find_validation(const sl_data_options *o, idx_files *out)
{
    bool folder;
    SL_TRY(is_folder(o->validation_path, &folder));
    if (!folder) return name_files("data.validation_labels_path", o->validation_path, o->validation_labels_path, out);
    if (find_part(o->validation_path, "t10k", out) || find_part(o->validation_path, "train", out)) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_INPUT,
                   "%s: neither t10k-images-idx3-ubyte nor train-images-idx3-ubyte (or .gz) with its "
                   "labels is there",
                   o->validation_path);
}

static sluice_status find_files(const sl_data_options *o, idx_files files[2], bool *has_test)
{
    bool folder, other = o->validation_path != NULL && o->validation_path[0] != '\0';
    *has_test = false;
    if (o->path == NULL || o->path[0] == '\0')
        return sl_fail(SLUICE_ERR_USAGE, "data.path is missing; give a folder with IDX files, or a file of images");
    SL_TRY(is_folder(o->path, &folder));
    SL_TRY(folder ? find_folder(o, files, has_test)
                  : name_files("data.labels_path", o->path, o->labels_path, &files[0]));
    if (!other) return SLUICE_OK;
    *has_test = true;
    return find_validation(o, &files[1]);
}

/* ---- reading ---- */

static sluice_status check_images(const idx_files *f, const sl_idx *images, const sl_idx *labels, sl_image_size *size)
{
    if (images->dimensions < 3)
        return sl_fail(SLUICE_ERR_INPUT, "%s, byte 3: %d dimensions; images have 3 (number, rows, columns), or 4",
                       f->images, images->dimensions);
    if (labels->dimensions != 1)
        return sl_fail(SLUICE_ERR_INPUT, "%s, byte 3: %d dimensions; labels have one", f->labels, labels->dimensions);
    if (images->size[0] != labels->size[0])
        return sl_fail(SLUICE_ERR_INPUT,
                       "%s has %" PRId64 " labels, and %s %" PRId64 " images: are they of the same set?", f->labels,
                       labels->size[0], f->images, images->size[0]);
    *size = (sl_image_size){ images->size[1], images->size[2], images->dimensions == 4 ? images->size[3] : 1 };
    if (size->channels > SL_MAX_CHANNELS || images->count / (size_t)images->size[0] > (size_t)SL_PICTURE_MOST_PIXELS)
        return sl_fail(SLUICE_ERR_INPUT,
                       "%s: images of %" PRId64 " x %" PRId64 " with %" PRId64 " channels are not read", f->images,
                       size->height, size->width, size->channels);
    return SLUICE_OK;
}

/* Labels as numbers; *classes grows to hold them where settings leave that open. */
static sluice_status take_labels(const char *path, const sl_idx *labels, int64_t given, int64_t *classes,
                                 sl_picture_store *out)
{
    out->labels = sl_alloc_array(labels->count, sizeof *out->labels, "labels");
    if (out->labels == NULL) return SLUICE_ERR_NO_MEMORY;
    for (size_t i = 0; i < labels->count; i++) {
        int32_t label = labels->elements[i];
        if (given > 0 && label >= given)
            return sl_fail(SLUICE_ERR_INPUT, "%s, byte %zu: label %d of image %zu; data.classes is %" PRId64, path,
                           labels->header_bytes + i, label, i, given);
        if (label >= *classes) *classes = label + 1;
        out->labels[i] = label;
    }
    return SLUICE_OK;
}

/* The bytes of the file become the store's: they move to its beginning. */
static void take_pixels(sl_idx *images, sl_picture_store *out)
{
    memmove(images->file, images->elements, images->count);
    out->pixels = (uint8_t *)images->file;
    out->count = images->size[0];
    images->file = NULL;
}

static sluice_status read_part(const sl_data_options *o, const idx_files *f, sl_image_size *size, int64_t *classes,
                               sl_picture_store *out)
{
    sl_idx images, labels = { .file = NULL };
    SL_TRY(sl_idx_read(o->stop, f->images, &images));
    sluice_status st = sl_idx_read(o->stop, f->labels, &labels);
    if (st == SLUICE_OK) st = check_images(f, &images, &labels, size);
    if (st == SLUICE_OK) st = take_labels(f->labels, &labels, o->classes, classes, out);
    if (st == SLUICE_OK) take_pixels(&images, out);
    sl_idx_free(&images);
    sl_idx_free(&labels);
    return st;
}

static sluice_status read_parts(const sl_data_options *o, const idx_files files[2], bool has_test,
                                sl_picture_store stores[2], sl_image_size *size, int64_t *classes)
{
    sl_image_size other;
    SL_TRY(read_part(o, &files[0], size, classes, &stores[0]));
    if (!has_test) return SLUICE_OK;
    SL_TRY(read_part(o, &files[1], &other, classes, &stores[1]));
    if (other.height == size->height && other.width == size->width && other.channels == size->channels)
        return SLUICE_OK;
    return sl_fail(SLUICE_ERR_INPUT, "%s has images of another size than %s", files[1].images, files[0].images);
}

sluice_status sl_data_idx(const sl_data_options *o, sluice_data **out)
{
    idx_files files[2];
    bool has_test;
    sl_picture_store stores[2] = { { .pixels = NULL }, { .pixels = NULL } };
    sl_image_size size;
    int64_t classes = o->classes > 0 ? o->classes : 0;
    SL_TRY(find_files(o, files, &has_test));
    sluice_status st = read_parts(o, files, has_test, stores, &size, &classes);
    if (st == SLUICE_OK) return sl_pictures_of_stores("idx", o, stores, &size, classes, NULL, NULL, out);
    for (int i = 0; i < 2; i++) sl_picture_store_free(&stores[i]);
    return st;
}

/* pictures_cifar.c: CIFAR-10 and CIFAR-100 as their binary files are unpacked. */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "core/io.h"
#include "core/path_list.h"
#include "data/pictures.h"
#include "format/cifar.h"

/* Where the files of a set are, and what pixels of its training images are in the mean. */
typedef struct cifar_layout {
    const char *folder;   /* that its archive makes */
    const char *train[6]; /* files, those of them that are there; NULL after the last */
    const char *test;
    double usual[2][SL_MAX_CHANNELS];
} cifar_layout;

static const cifar_layout layout10 = {
    "cifar-10-batches-bin",
    { "data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin", NULL },
    "test_batch.bin",
    { { 0.4914, 0.4822, 0.4465, 0 }, { 0.2470, 0.2435, 0.2616, 1 } },
};
static const cifar_layout layout100 = {
    "cifar-100-binary",
    { "train.bin", NULL, NULL, NULL, NULL, NULL },
    "test.bin",
    { { 0.5071, 0.4867, 0.4408, 0 }, { 0.2675, 0.2565, 0.2761, 1 } },
};

static sluice_status append(const sl_data_options *o, const char *path, const sl_cifar_kind *kind, sl_picture_store *s)
{
    return sl_cifar_append(o->stop, path, kind, &s->pixels, &s->labels, &s->count);
}

/* Whether the file is there, as `path`. */
static bool is_there(const char *folder, const char *name, char path[PATH_MAX])
{
    return sl_picture_path(folder, name, path) == SLUICE_OK && sl_path_exists(path);
}

/* The folder itself, or the one of the archive in it. */
static void find_folder(const char *path, const cifar_layout *l, char out[PATH_MAX])
{
    if (!is_there(path, l->folder, out)) snprintf(out, PATH_MAX, "%s", path);
}

static sluice_status read_folder(const sl_data_options *o, const char *folder, const cifar_layout *l,
                                 const sl_cifar_kind *kind, bool tests, sl_picture_store stores[2])
{
    char path[PATH_MAX];
    for (int i = 0; l->train[i] != NULL; i++)
        if (is_there(folder, l->train[i], path)) SL_TRY(append(o, path, kind, &stores[0]));
    if (stores[0].count == 0)
        return sl_fail(SLUICE_ERR_INPUT,
                       "%s: %s is not there, which the binary version of %s has (not the one for "
                       "Python); or name the files with data.path",
                       folder, l->train[0], kind->name);
    if (tests && is_there(folder, l->test, path)) return append(o, path, kind, &stores[1]);
    return SLUICE_OK;
}

static sluice_status read_files(const sl_data_options *o, const char *pattern, const sl_cifar_kind *kind,
                                sl_picture_store *store)
{
    sl_path_list list;
    SL_TRY(sl_path_expand(o->stop, pattern, &list));
    sluice_status st = SLUICE_OK;
    for (int i = 0; st == SLUICE_OK && i < list.count; i++) st = append(o, list.paths[i], kind, store);
    sl_path_list_free(&list);
    return st;
}

/* The training files, and those of validation where they are named or lie beside them; names of classes, where they do. */
static sluice_status read_all(const sl_data_options *o, const cifar_layout *l, const sl_cifar_kind *kind,
                              sl_picture_store stores[2], char ***names)
{
    bool other = o->validation_path != NULL && o->validation_path[0] != '\0';
    char folder[PATH_MAX], path[PATH_MAX];
    sl_path_info info;
    if (o->path == NULL || o->path[0] == '\0')
        return sl_fail(SLUICE_ERR_USAGE, "data.path is missing; give the folder of %s, or its files", kind->name);
    SL_TRY(sl_path_look(o->path, &info));
    if (info.kind == SL_PATH_FOLDER) {
        find_folder(o->path, l, folder);
        SL_TRY(read_folder(o, folder, l, kind, !other && !(o->validation > 0), stores));
        if (is_there(folder, kind->class_file, path)) SL_TRY(sl_class_names_read(path, kind->classes, names));
    } else {
        SL_TRY(read_files(o, o->path, kind, &stores[0]));
    }
    return other ? read_files(o, o->validation_path, kind, &stores[1]) : SLUICE_OK;
}

static sluice_status open_cifar(const char *type, const sl_data_options *o, const cifar_layout *l,
                                const sl_cifar_kind *kind, sluice_data **out)
{
    const sl_image_size size = { SL_CIFAR_SIDE, SL_CIFAR_SIDE, SL_CIFAR_CHANNELS };
    sl_picture_store stores[2] = { { .pixels = NULL }, { .pixels = NULL } };
    char **names = NULL;
    sluice_status st = read_all(o, l, kind, stores, &names);
    if (st == SLUICE_OK) return sl_pictures_of_stores(type, o, stores, &size, kind->classes, names, l->usual, out);
    for (int i = 0; i < 2; i++) sl_picture_store_free(&stores[i]);
    sl_class_names_free(names, kind->classes);
    return st;
}

sluice_status sl_data_cifar10(const sl_data_options *o, sluice_data **out)
{
    return open_cifar("cifar10", o, &layout10, &sl_cifar10, out);
}

sluice_status sl_data_cifar100(const sl_data_options *o, sluice_data **out)
{
    bool coarse = o->labels == SL_LABELS_COARSE;
    return open_cifar("cifar100", o, &layout100, coarse ? &sl_cifar100_coarse : &sl_cifar100_fine, out);
}

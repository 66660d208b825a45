/* pictures_folder.c: images as files, in a folder for each class.
 *
 * The list of files is made once and kept: classes in the order of their names, files in the order of theirs. Files are read and
 * decoded each time they are drawn. A folder that has "train" and one of "val", "valid", "validation" and "test" holds both parts. */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/arena.h"
#include "core/grow.h"
#include "core/io.h"
#include "core/stop.h"
#include "data/pictures.h"

#define USUAL_SIDE   224
#define DEEPEST      8
#define DECODE_BYTES ((uint64_t)48 << 20) /* that a thread takes for an image of 12 megapixels and its file */
#define POLLED_FILES 1024

typedef struct picture_entry {
    const char *name; /* below the root; in the arena */
    uint64_t bytes;
    int32_t class_id;
} picture_entry;

/* The files of a part of the data. */
typedef struct picture_list {
    char root[PATH_MAX];
    picture_entry *entries; /* owned */
    int64_t count, capacity;
} picture_list;

typedef struct folder_pictures {
    sl_pictures pictures;
    sl_arena arena; /* owns names */
    uint64_t name_bytes;
    picture_list lists[SL_SPLIT_COUNT];
} folder_pictures;

/* ---- the list ---- */

/* A folder being walked. */
typedef struct folder_walk {
    folder_pictures *f;
    picture_list *list;
    const int *stop;
    const char *below; /* the folder's name below the root */
    int32_t class_id;
    int depth;
} folder_walk;

static sluice_status add_entry(folder_walk *w, const char *name, uint64_t bytes)
{
    picture_list *l = w->list;
    SL_TRY(SL_GROW(l->entries, l->capacity, l->count + 1, 1024, "list of images"));
    char *kept = sl_arena_strdup(&w->f->arena, name);
    if (kept == NULL) return SLUICE_ERR_NO_MEMORY;
    w->f->name_bytes += strlen(name) + 16;
    l->entries[l->count++] = (picture_entry){ kept, bytes, w->class_id };
    return l->count % POLLED_FILES == 0 ? sl_stop_poll(w->stop, "listing the images") : SLUICE_OK;
}

static sluice_status walk(void *user, const char *name);

static sluice_status walk_into(folder_walk *w, const char *below, const char *path)
{
    folder_walk deeper = *w;
    if (w->depth == DEEPEST)
        return sl_fail(SLUICE_ERR_INPUT, "%s: folders in folders, more than %d deep", path, DEEPEST);
    deeper.below = below;
    deeper.depth++;
    return sl_dir_list(path, walk, &deeper);
}

/* Hidden files are not looked at: other programs leave them. */
static sluice_status walk(void *user, const char *name)
{
    folder_walk *w = user;
    char below[PATH_MAX], path[PATH_MAX];
    sl_path_info info;
    if (name[0] == '.') return SLUICE_OK;
    SL_TRY(sl_picture_path(w->below, name, below));
    SL_TRY(sl_picture_path(w->list->root, below, path));
    SL_TRY(sl_path_look(path, &info));
    if (info.kind == SL_PATH_FOLDER) return walk_into(w, below, path);
    if (info.kind == SL_PATH_FILE && sl_is_picture_name(name)) return add_entry(w, below, info.bytes);
    w->f->pictures.others++;
    return SLUICE_OK;
}

/* ---- classes ---- */

typedef struct class_list {
    const char *root;
    char **names; /* owned */
    int64_t count, capacity;
} class_list;

static sluice_status add_class(void *user, const char *name)
{
    class_list *l = user;
    char path[PATH_MAX];
    sl_path_info info;
    if (name[0] == '.') return SLUICE_OK;
    SL_TRY(sl_picture_path(l->root, name, path));
    SL_TRY(sl_path_look(path, &info));
    if (info.kind != SL_PATH_FOLDER) return SLUICE_OK;
    SL_TRY(SL_GROW(l->names, l->capacity, l->count + 1, 64, "names of classes"));
    if ((l->names[l->count] = sl_strdup(name, "name of a class")) == NULL) return SLUICE_ERR_NO_MEMORY;
    l->count++;
    return SLUICE_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The folders of a root, sorted; the caller frees names also after a failure. */
static sluice_status list_classes(const char *root, class_list *out)
{
    *out = (class_list){ .root = root };
    SL_TRY(sl_dir_list(root, add_class, out));
    if (out->count == 0)
        return sl_fail(SLUICE_ERR_INPUT, "%s: there are no folders in it; images lie in a folder for each class", root);
    qsort(out->names, (size_t)out->count, sizeof *out->names, by_name);
    return SLUICE_OK;
}

static int64_t find_class(const sl_pictures *p, const char *name)
{
    char *const *found = bsearch(&name, p->class_names, (size_t)p->classes, sizeof *p->class_names, by_name);
    return found != NULL ? found - p->class_names : -1;
}

static int by_path(const void *a, const void *b)
{
    return strcmp(((const picture_entry *)a)->name, ((const picture_entry *)b)->name);
}

/* The files of one class, appended in the order of their names. */
static sluice_status list_class(folder_pictures *f, picture_list *list, const int *stop, const char *name, int64_t id)
{
    char path[PATH_MAX];
    int64_t before = list->count;
    folder_walk w = { .f = f, .list = list, .stop = stop, .below = name, .class_id = (int32_t)id };
    SL_TRY(sl_picture_path(list->root, name, path));
    SL_TRY(sl_dir_list(path, walk, &w));
    if (list->count == before)
        return sl_fail(SLUICE_ERR_INPUT, "%s: there are no PNG or JPEG files in it; every folder is a class", path);
    qsort(list->entries + before, (size_t)(list->count - before), sizeof *list->entries, by_path);
    return SLUICE_OK;
}

static sluice_status list_files(folder_pictures *f, picture_list *list, const int *stop, char **names, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        int64_t id = find_class(&f->pictures, names[i]);
        if (id < 0)
            return sl_fail(SLUICE_ERR_INPUT, "%s/%s: a class that the images to train on do not have", list->root,
                           names[i]);
        SL_TRY(list_class(f, list, stop, names[i], id));
    }
    return SLUICE_OK;
}

/* ---- parts ---- */

static bool has_folder(const char *root, const char *name, char out[PATH_MAX])
{
    sl_path_info info;
    return sl_picture_path(root, name, out) == SLUICE_OK && sl_path_look(out, &info) == SLUICE_OK &&
           info.kind == SL_PATH_FOLDER;
}

/* Roots of both parts; an empty one: a share of the first. */
static sluice_status find_roots(const sl_data_options *o, picture_list lists[SL_SPLIT_COUNT])
{
    static const char *const names[] = { "val", "valid", "validation", "test" };
    char found[PATH_MAX];
    bool split = false, other = o->validation_path != NULL && o->validation_path[0] != '\0';
    if (o->path == NULL || o->path[0] == '\0')
        return sl_fail(SLUICE_ERR_USAGE, "data.path is missing; give a folder with a folder of images for each class");
    snprintf(lists[0].root, PATH_MAX, "%s", o->path);
    if (other) snprintf(lists[1].root, PATH_MAX, "%s", o->validation_path);
    if (!has_folder(o->path, "train", found)) return SLUICE_OK;
    for (size_t i = 0; i < sizeof names / sizeof names[0] && !split; i++) {
        char second[PATH_MAX];
        split = has_folder(o->path, names[i], second);
        if (split && !other && !(o->validation > 0)) memcpy(lists[1].root, second, sizeof second);
    }
    if (split || other) memcpy(lists[0].root, found, sizeof found);
    return SLUICE_OK;
}

/* Moves the last share of every class to the other part. */
static sluice_status split_classes(folder_pictures *f, double validation)
{
    picture_list *all = &f->lists[0], *kept = &f->lists[1];
    int64_t train = 0;
    memcpy(kept->root, all->root, sizeof kept->root);
    kept->entries = sl_alloc_array((size_t)all->count, sizeof *kept->entries, "list of images");
    if (kept->entries == NULL) return SLUICE_ERR_NO_MEMORY;
    kept->capacity = all->count;
    for (int64_t begin = 0, end; begin < all->count; begin = end) {
        int64_t first;
        for (end = begin; end < all->count && all->entries[end].class_id == all->entries[begin].class_id;) end++;
        SL_TRY(sl_data_train_count(end - begin, validation, &first));
        for (int64_t i = begin; i < end; i++) {
            if (i - begin < first)
                all->entries[train++] = all->entries[i];
            else
                kept->entries[kept->count++] = all->entries[i];
        }
    }
    all->count = train;
    return SLUICE_OK;
}

static sluice_status list_validation(folder_pictures *f, const sl_data_options *o)
{
    class_list classes;
    if (f->lists[1].root[0] == '\0') return o->validation > 0 ? split_classes(f, o->validation) : SLUICE_OK;
    sluice_status st = list_classes(f->lists[1].root, &classes);
    if (st == SLUICE_OK) st = list_files(f, &f->lists[1], o->stop, classes.names, classes.count);
    sl_class_names_free(classes.names, classes.count);
    return st;
}

static sluice_status list_all(folder_pictures *f, const sl_data_options *o)
{
    sl_pictures *p = &f->pictures;
    class_list classes;
    SL_TRY(find_roots(o, f->lists));
    sluice_status st = list_classes(f->lists[0].root, &classes);
    p->class_names = classes.names;
    p->classes = classes.count;
    if (st == SLUICE_OK) st = list_files(f, &f->lists[0], o->stop, p->class_names, p->classes);
    if (st == SLUICE_OK) st = list_validation(f, o);
    if (st != SLUICE_OK) return st;
    if (o->classes > 0 && o->classes != p->classes)
        return sl_fail(SLUICE_ERR_USAGE,
                       "data.classes is %" PRId64 ", and %s has %" PRId64 " folders, one for each class", o->classes,
                       f->lists[0].root, p->classes);
    for (int i = 0; i < SL_SPLIT_COUNT; i++) p->count[i] = f->lists[i].count;
    return SLUICE_OK;
}

/* ---- the kind ---- */

static sluice_status folder_pixels(const sl_pictures *p, sl_data_split split, int64_t sample,
                                   sl_picture_scratch *scratch, sl_pixels *out)
{
    const picture_list *l = &((const folder_pictures *)p)->lists[split];
    sl_raster *r = &scratch->raster;
    char path[PATH_MAX];
    SL_TRY(sl_picture_path(l->root, l->entries[sample].name, path));
    sluice_status st = sl_picture_read(path, (int)p->size.channels, r);
    if (st == SLUICE_ERR_INPUT && !p->skip_bad)
        return sl_fail(st, "%s; data.skip_bad true leaves such images out", sluice_error());
    if (st == SLUICE_OK) *out = (sl_pixels){ r->pixels, r->height, r->width, r->channels };
    return st;
}

static int32_t folder_label(const sl_pictures *p, sl_data_split split, int64_t sample)
{
    return ((const folder_pictures *)p)->lists[split].entries[sample].class_id;
}

/* Names and lengths: reading every file would take as long as an epoch. */
static void folder_hash(const sl_pictures *p, sl_sha256 *h)
{
    const folder_pictures *f = (const folder_pictures *)p;
    for (int s = 0; s < SL_SPLIT_COUNT; s++)
        for (int64_t i = 0; i < f->lists[s].count; i++) {
            const picture_entry *e = &f->lists[s].entries[i];
            sl_sha256_update(h, e->name, strlen(e->name) + 1);
            sl_sha256_update(h, &e->bytes, sizeof e->bytes);
        }
}

static void folder_free(sl_pictures *p)
{
    folder_pictures *f = (folder_pictures *)p;
    for (int i = 0; i < SL_SPLIT_COUNT; i++) sl_free(f->lists[i].entries);
    sl_arena_free(&f->arena);
    sl_pictures_free(p);
    sl_free(f);
}

static const sl_picture_kind folder_kind = {
    .pixels = folder_pixels, .label = folder_label, .hash = folder_hash, .free = folder_free, .decodes = true
};

static sluice_status open_folder(folder_pictures *f, const sl_data_options *o)
{
    static const double colours[2][SL_MAX_CHANNELS] = { { 0.485, 0.456, 0.406, 0 }, { 0.229, 0.224, 0.225, 1 } };
    static const double grey[2][SL_MAX_CHANNELS] = { { 0.449, 0, 0, 0 }, { 0.226, 1, 1, 1 } };
    sl_pictures *p = &f->pictures;
    int64_t side = o->image_size > 0 ? o->image_size : USUAL_SIDE, channels = o->channels > 0 ? o->channels : 3;
    if (channels != 1 && channels != 3)
        return sl_fail(SLUICE_ERR_USAGE, "data.channels is %" PRId64 "; images are read with 1 (grey) or 3 (colours)",
                       channels);
    p->size = (sl_image_size){ side, side, channels };
    SL_TRY(list_all(f, o));
    p->held_bytes = sizeof *f + f->name_bytes + (uint64_t)(o->threads > 0 ? o->threads : 1) * DECODE_BYTES;
    for (int i = 0; i < SL_SPLIT_COUNT; i++)
        p->held_bytes += (uint64_t)f->lists[i].capacity * sizeof *f->lists[i].entries;
    return sl_pictures_finish(p, "images", o, NULL, channels == 3 ? colours : grey);
}

sluice_status sl_data_folder(const sl_data_options *o, sluice_data **out)
{
    folder_pictures *f = sl_alloc(sizeof *f, "images");
    if (f == NULL) return SLUICE_ERR_NO_MEMORY;
    sl_arena_init(&f->arena, "names of images");
    f->pictures.kind = &folder_kind;
    sluice_status st = open_folder(f, o);
    if (st != SLUICE_OK) {
        folder_free(&f->pictures);
        return st;
    }
    *out = &f->pictures.base;
    return SLUICE_OK;
}

/* pictures_stored.c: images that are kept in memory as bytes. */
#include <inttypes.h>
#include <string.h>

#include "core/alloc.h"
#include "data/pictures.h"

typedef struct stored_pictures {
    sl_pictures pictures;
    sl_picture_store stores[SL_SPLIT_COUNT]; /* owned */
    sl_image_size kept;
    /* of each split: which store, and the first of its images there */
    int store[SL_SPLIT_COUNT];
    int64_t first[SL_SPLIT_COUNT];
} stored_pictures;

void sl_picture_store_free(sl_picture_store *s)
{
    sl_free(s->pixels);
    sl_free(s->labels);
    *s = (sl_picture_store){ .pixels = NULL };
}

static size_t image_bytes(const stored_pictures *s)
{
    return (size_t)(s->kept.height * s->kept.width * s->kept.channels);
}

static sluice_status stored_pixels(const sl_pictures *p, sl_data_split split, int64_t sample,
                                   sl_picture_scratch *scratch, sl_pixels *out)
{
    const stored_pictures *s = (const stored_pictures *)p;
    (void)scratch;
    const uint8_t *bytes = s->stores[s->store[split]].pixels + (size_t)(s->first[split] + sample) * image_bytes(s);
    *out = (sl_pixels){ bytes, s->kept.height, s->kept.width, (int)s->kept.channels };
    return SLUICE_OK;
}

static int32_t stored_label(const sl_pictures *p, sl_data_split split, int64_t sample)
{
    const stored_pictures *s = (const stored_pictures *)p;
    return s->stores[s->store[split]].labels[s->first[split] + sample];
}

static void stored_hash(const sl_pictures *p, sl_sha256 *h)
{
    const stored_pictures *s = (const stored_pictures *)p;
    for (int i = 0; i < SL_SPLIT_COUNT; i++) {
        const sl_picture_store *t = &s->stores[i];
        sl_sha256_update(h, &t->count, sizeof t->count);
        if (t->count == 0) continue;
        sl_sha256_update(h, t->pixels, (size_t)t->count * image_bytes(s));
        sl_sha256_update(h, t->labels, (size_t)t->count * sizeof *t->labels);
    }
}

static void stored_free(sl_pictures *p)
{
    stored_pictures *s = (stored_pictures *)p;
    for (int i = 0; i < SL_SPLIT_COUNT; i++) sl_picture_store_free(&s->stores[i]);
    sl_pictures_free(p);
    sl_free(s);
}

static const sl_picture_kind stored_kind = {
    .pixels = stored_pixels, .label = stored_label, .hash = stored_hash, .free = stored_free
};

static sluice_status split_stores(stored_pictures *s, const sl_data_options *o)
{
    sl_pictures *p = &s->pictures;
    p->count[SL_SPLIT_TRAIN] = s->stores[0].count;
    p->count[SL_SPLIT_VALIDATION] = s->stores[1].count;
    s->store[SL_SPLIT_VALIDATION] = 1;
    if (s->stores[1].count > 0) return SLUICE_OK;
    s->store[SL_SPLIT_VALIDATION] = 0;
    SL_TRY(sl_data_train_count(s->stores[0].count, o->validation, &p->count[SL_SPLIT_TRAIN]));
    s->first[SL_SPLIT_VALIDATION] = p->count[SL_SPLIT_TRAIN];
    p->count[SL_SPLIT_VALIDATION] = s->stores[0].count - p->count[SL_SPLIT_TRAIN];
    return SLUICE_OK;
}

static sluice_status finish(stored_pictures *s, const char *type, const sl_data_options *o,
                            const double usual[2][SL_MAX_CHANNELS])
{
    sl_pictures *p = &s->pictures;
    sl_channel_sums sums = { .count = 0 };
    SL_TRY(split_stores(s, o));
    p->size = s->kept;
    if (o->image_size > 0) p->size.height = p->size.width = o->image_size;
    p->same_size = p->size.height == s->kept.height && p->size.width == s->kept.width;
    p->held_bytes = sizeof *s;
    for (int i = 0; i < SL_SPLIT_COUNT; i++)
        p->held_bytes += (uint64_t)s->stores[i].count * (image_bytes(s) + sizeof(int32_t));
    sl_channel_sums_add(&sums, s->stores[0].pixels, (size_t)(p->count[SL_SPLIT_TRAIN] * s->kept.height * s->kept.width),
                        (int)s->kept.channels);
    return sl_pictures_finish(p, type, o, &sums, usual);
}

sluice_status sl_pictures_of_stores(const char *type, const sl_data_options *o, sl_picture_store stores[SL_SPLIT_COUNT],
                                    const sl_image_size *kept, int64_t classes, char **class_names,
                                    const double usual[2][SL_MAX_CHANNELS], sluice_data **out)
{
    stored_pictures *s = sl_alloc(sizeof *s, "images");
    if (s == NULL) {
        for (int i = 0; i < SL_SPLIT_COUNT; i++) sl_picture_store_free(&stores[i]);
        sl_class_names_free(class_names, classes);
        return SLUICE_ERR_NO_MEMORY;
    }
    memcpy(s->stores, stores, sizeof s->stores);
    memset(stores, 0, sizeof s->stores);
    s->kept = *kept;
    s->pictures.kind = &stored_kind;
    s->pictures.classes = classes;
    s->pictures.class_names = class_names;
    sluice_status st = finish(s, type, o, usual);
    if (st != SLUICE_OK) {
        stored_free(&s->pictures);
        return st;
    }
    *out = &s->pictures.base;
    return SLUICE_OK;
}

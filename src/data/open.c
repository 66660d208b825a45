/* open.c: the kinds of data sets that a configuration can name, one row each. */
#include <string.h>

#include "data/data.h"

static sluice_status open_text(const sl_data_options *o, int64_t context, int64_t vocabulary, sluice_data **out)
{
    (void)vocabulary; /* the text's own, or kept */
    if (o->path[0] == '\0') return sl_fail(SLUICE_ERR_USAGE, "data.path is missing; give the text file");
    if (o->unit == SL_TEXT_TOKENS)
        return sl_data_text_encoded(o->stop, o->path, o->tokenizer, context, o->validation, o->shuffle,
                                    (uint64_t)o->seed, out);
    return sl_data_text_until(o->stop, o->path, (sl_text_unit)o->unit, o->kept, context, o->validation, o->shuffle,
                              (uint64_t)o->seed, out);
}

static sluice_status open_random_tokens(const sl_data_options *o, int64_t context, int64_t vocabulary,
                                        sluice_data **out)
{
    return sl_data_random_tokens(o->samples, context, vocabulary, o->validation, (uint64_t)o->seed, out);
}

static sluice_status open_regression(const sl_data_options *o, int64_t context, int64_t vocabulary, sluice_data **out)
{
    (void)context, (void)vocabulary;
    return sl_data_regression(o->samples, o->features, o->outputs, o->noise, o->validation, (uint64_t)o->seed, out);
}

static sluice_status open_classification(const sl_data_options *o, int64_t context, int64_t vocabulary,
                                         sluice_data **out)
{
    (void)context, (void)vocabulary;
    return sl_data_classification(o->samples, o->features, o->outputs, o->validation, (uint64_t)o->seed, out);
}

#define IMAGES(kind_)                                                                                                  \
    static sluice_status open_##kind_(const sl_data_options *o, int64_t context, int64_t vocabulary,                   \
                                      sluice_data **out)                                                               \
    {                                                                                                                  \
        (void)context, (void)vocabulary;                                                                               \
        return sl_data_##kind_(o, out);                                                                                \
    }
IMAGES(idx)
IMAGES(cifar10)
IMAGES(cifar100)
IMAGES(folder)

static const struct kind {
    const char *name;
    bool tokens, images;
    sluice_status (*open)(const sl_data_options *o, int64_t context, int64_t vocabulary, sluice_data **out);
} kinds[] = {
    { "text", true, false, open_text },
    { "tokens", true, false, sl_data_tokens },
    { "jsonl", true, false, sl_data_jsonl },
    { "random_tokens", true, false, open_random_tokens },
    { "regression", false, false, open_regression },
    { "classification", false, false, open_classification },
    { "idx", false, true, open_idx },
    { "cifar10", false, true, open_cifar10 },
    { "cifar100", false, true, open_cifar100 },
    { "images", false, true, open_folder },
};
#define NAMES "text, tokens, jsonl, random_tokens, regression, classification, idx, cifar10, cifar100, images"

static const struct kind *find(const char *type)
{
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (strcmp(kinds[i].name, type) == 0) return &kinds[i];
    return NULL;
}

sluice_status sl_data_open(const sl_data_options *o, int64_t context, int64_t vocabulary, sluice_data **out)
{
    const struct kind *kind = find(o->type);
    if (kind == NULL) return sl_fail(SLUICE_ERR_USAGE, "data.type \"%s\" is not one of %s", o->type, sl_data_names());
    return kind->open(o, context, vocabulary, out);
}

const char *sl_data_names(void)
{
    return NAMES;
}

bool sl_data_type_has_tokens(const char *type)
{
    const struct kind *kind = find(type);
    return kind != NULL && kind->tokens;
}

bool sl_data_type_has_images(const char *type)
{
    const struct kind *kind = find(type);
    return kind != NULL && kind->images;
}

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

#define WITHOUT_CONTEXT(kind_)                                                                                         \
    static sluice_status open_##kind_(const sl_data_options *o, int64_t context, int64_t vocabulary,                   \
                                      sluice_data **out)                                                               \
    {                                                                                                                  \
        (void)context, (void)vocabulary;                                                                               \
        return sl_data_##kind_(o, out);                                                                                \
    }
WITHOUT_CONTEXT(idx)
WITHOUT_CONTEXT(cifar10)
WITHOUT_CONTEXT(cifar100)
WITHOUT_CONTEXT(folder)
WITHOUT_CONTEXT(table)
WITHOUT_CONTEXT(random_images)
WITHOUT_CONTEXT(speech)

static const struct kind {
    const char *name;
    sl_sample_kind gives;
    sl_data_open_fn *open;
} kinds[] = {
    { "text", SL_SAMPLES_TOKENS, open_text },
    { "tokens", SL_SAMPLES_TOKENS, sl_data_tokens },
    { "jsonl", SL_SAMPLES_TOKENS, sl_data_jsonl },
    { "random_tokens", SL_SAMPLES_TOKENS, open_random_tokens },
    { "regression", SL_SAMPLES_NUMBERS, open_regression },
    { "classification", SL_SAMPLES_NUMBERS, open_classification },
    { "idx", SL_SAMPLES_IMAGES, open_idx },
    { "cifar10", SL_SAMPLES_IMAGES, open_cifar10 },
    { "cifar100", SL_SAMPLES_IMAGES, open_cifar100 },
    { "images", SL_SAMPLES_IMAGES, open_folder },
    { "random_images", SL_SAMPLES_IMAGES, open_random_images },
    { "glue", SL_SAMPLES_SENTENCES, sl_data_glue },
    { "table", SL_SAMPLES_CLICKS, open_table },
    { "speech", SL_SAMPLES_SPEECH, open_speech },
};
#define NAMES                                                                                                          \
    "text, tokens, jsonl, random_tokens, regression, classification, idx, cifar10, cifar100, images, random_images, "  \
    "glue, table, speech"

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
    if (o->masking > 0 && kind->gives == SL_SAMPLES_TOKENS)
        return sl_data_masked(o, context, vocabulary, kind->open, out);
    return kind->open(o, context, vocabulary, out);
}

const char *sl_data_names(void)
{
    return NAMES;
}

sl_sample_kind sl_data_gives(const char *type)
{
    const struct kind *kind = find(type);
    return kind != NULL ? kind->gives : SL_SAMPLES_NUMBERS;
}

/* model.c: the table of families and the way into it. */
#include "model/model.h"

#include <inttypes.h>
#include <string.h>

#include "ir/shared_norm.h"
#include "model/family.h"

static const sl_model_family families[] = {
#define ROW(name_, reads_, builder_) { #name_, SL_SAMPLES_##reads_, sl_model_build_##builder_ },
    SL_MODEL_FAMILIES(ROW)
#undef ROW
};

static const sl_model_family *find_family(const char *name)
{
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++)
        if (strcmp(families[i].name, name) == 0) return &families[i];
    return NULL;
}

const char *sl_model_names(void)
{
#define LISTED(name_, reads_, builder_) ", " #name_
    static const char names[] = SL_MODEL_FAMILIES(LISTED);
#undef LISTED
    return names + 2; /* the first comma goes */
}

sluice_status sl_model_check_size(const char *key, int64_t value, int64_t max)
{
    if (value < 1 || value > max)
        return sl_fail(SLUICE_ERR_USAGE, "%s is %" PRId64 "; give 1 to %" PRId64, key, value, max);
    return SLUICE_OK;
}

sluice_status sl_model_check_dropout(const sl_model_options *o)
{
    const struct {
        const char *key;
        double rate;
    } places[] = { { "model.dropout", o->dropout },
                   { "model.embedding_dropout", sl_model_embedding_dropout(o) },
                   { "model.classifier_dropout", sl_model_classifier_dropout(o) } };
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++)
        if (!(places[i].rate >= 0 && places[i].rate < 1))
            return sl_fail(SLUICE_ERR_USAGE, "%s is %g; give a probability from 0 to below 1", places[i].key,
                           places[i].rate);
    return SLUICE_OK;
}

double sl_model_embedding_dropout(const sl_model_options *o)
{
    return o->dropout_by_place && o->embedding_dropout >= 0 ? o->embedding_dropout : o->dropout;
}

double sl_model_classifier_dropout(const sl_model_options *o)
{
    return o->dropout_by_place && o->classifier_dropout >= 0 ? o->classifier_dropout : o->dropout;
}

bool sl_model_reads_tokens(const char *type)
{
    const sl_model_family *family = find_family(type);
    return family != NULL && family->reads == SL_SAMPLES_TOKENS;
}

/* A bert that classifies reads sentences. */
sl_sample_kind sl_model_reads(const sl_model_options *o)
{
    const sl_model_family *family = find_family(o->type);
    if (strcmp(o->type, "bert") == 0 && sl_model_head_classifies(o)) return SL_SAMPLES_SENTENCES;
    return family != NULL ? family->reads : SL_SAMPLES_NUMBERS;
}

/* Settings that were given and say nothing about the family. */
static sluice_status refuse_idle(const sl_model_options *o)
{
    bool cnn = strcmp(o->type, "cnn") == 0, speech = strcmp(o->type, "speech") == 0;
    bool plain = strcmp(o->type, "mlp") == 0 || strcmp(o->type, "linear") == 0;
    const char *key = NULL;
    if (o->filter_count > 0 && !cnn && !speech) key = "model.filters";
    if (o->hidden_count > 0 && !cnn && !plain) key = "model.hidden";
    if (o->dropout != 0 && strcmp(o->type, "resnet") == 0) key = "model.dropout";
    if (key == NULL) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_USAGE, "%s has no meaning for model.type %s; remove it", key, o->type);
}

/* Whose rows the statistics of batch norms are of. */
static sluice_status set_norms(sluice_graph *g, const sl_model_options *o)
{
    if (o->batch_norm == NULL || strcmp(o->batch_norm, "micro_batch") == 0) return SLUICE_OK;
    if (strcmp(o->batch_norm, "all_ranks") != 0)
        return sl_fail(SLUICE_ERR_USAGE, "model.batch_norm \"%s\" is not known; give micro_batch or all_ranks",
                       o->batch_norm);
    if (g->running_count == 0)
        return sl_fail(
            SLUICE_ERR_USAGE,
            "model.batch_norm all_ranks has no meaning for model.type %s, which has no batch norms; remove it",
            o->type);
    sl_graph_norm_over_ranks(g);
    return SLUICE_OK;
}

sluice_status sl_model_build(sluice_graph *g, const sl_model_options *o, sl_model_info *info)
{
    const char *type = o->type != NULL ? o->type : "";
    const sl_model_family *family = find_family(type);
    sl_model_info found = { 0 };
    if (family == NULL)
        return sl_fail(SLUICE_ERR_USAGE, "model.type \"%s\" is not known; give one of %s", type, sl_model_names());
    SL_TRY(sl_model_check_size("train_micro_batch_size_per_gpu", o->batch, SL_MODEL_MAX_SIZE));
    SL_TRY(sl_model_check_tuning(o, family));
    SL_TRY(refuse_idle(o));
    SL_TRY(family->build(g, o, &found));
    SL_TRY(sluice_graph_check(g));
    SL_TRY(set_norms(g, o));
    g->is_called = sl_model_is_called;
    SL_TRY(sl_model_freeze(g, o));
    *info = found;
    return SLUICE_OK;
}

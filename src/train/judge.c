/* judge.c: the metrics that settings choose, and the best of evaluations. */
#include "train/judge.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

_Static_assert(SL_METRIC_COUNT <= 64, "metrics are bits of 64");

/* ---- choosing ---- */

static sluice_status check_metric(const sl_judge *j, const char *key, sl_metric m, bool whole)
{
    char list[512];
    if (!sl_metric_applies(m, &j->shape))
        return sl_fail(SLUICE_ERR_USAGE, "%s: this model has no %s; it has %s", key, sl_metric_name(m),
                       sl_metric_list(&j->shape, list, sizeof list));
    if (m == SL_METRIC_TOKEN_ACCURACY && !whole)
        return sl_fail(SLUICE_ERR_USAGE,
                       "%s: token_accuracy is counted by sluice eval alone: training never has all logits at once; "
                       "take loss, perplexity or bits_per_byte",
                       key);
    return SLUICE_OK;
}

/* setting: 0 for `fallback`, else 1 + the metric. */
static sluice_status choose(const sl_judge *j, const char *key, int setting, sl_criterion fallback, bool whole,
                            sl_criterion *out)
{
    *out = fallback;
    if (setting == 0) return SLUICE_OK;
    out->metric = (sl_metric)(setting - 1);
    out->higher = sl_metric_higher(out->metric);
    return check_metric(j, key, out->metric, whole);
}

/* Those that a pass counts without being asked: everything but scores, which take memory for every sample. */
static uint64_t usual(const sl_metric_shape *shape, bool whole)
{
    uint64_t metrics = 0;
    for (int m = 0; m < SL_METRIC_COUNT; m++) {
        bool costs = m == SL_METRIC_AUC || m == SL_METRIC_TOKEN_ACCURACY;
        if (sl_metric_applies((sl_metric)m, shape) && (whole || !costs)) metrics |= (uint64_t)1 << m;
    }
    return metrics;
}

/* Of more than two classes precision, recall and F1 are those over classes. */
static uint64_t repeated(const sl_metric_shape *shape)
{
    uint64_t macro = (uint64_t)1 << SL_METRIC_PRECISION_MACRO | (uint64_t)1 << SL_METRIC_RECALL_MACRO |
                     (uint64_t)1 << SL_METRIC_F1_MACRO;
    return shape->classes > 2 ? macro : 0;
}

sluice_status sl_judge_choose(sl_judge *j, const sl_settings *s, bool whole)
{
    uint64_t listed = s->evaluate.metrics;
    SL_TRY(choose(j, "evaluate.metric", s->evaluate.metric, (sl_criterion){ SL_METRIC_LOSS, false }, whole, &j->best));
    SL_TRY(choose(j, "early_stopping.metric", s->early_stopping.metric, j->best, whole, &j->stopping));
    if (s->early_stopping.mode != SL_JUDGE_AUTO) j->stopping.higher = s->early_stopping.mode == SL_JUDGE_MAX;
    for (int m = 0; m < SL_METRIC_COUNT; m++)
        if (sl_wants(listed, (sl_metric)m)) SL_TRY(check_metric(j, "evaluate.metrics", (sl_metric)m, whole));
    j->shown = listed | (uint64_t)1 << j->best.metric;
    if (j->shape.judged == SL_JUDGED_TRANSCRIPTS && listed == 0) j->shown |= (uint64_t)1 << SL_METRIC_CER;
    if (s->early_stopping.patience > 0) j->shown |= (uint64_t)1 << j->stopping.metric;
    if (listed == 0 && whole) j->shown = usual(&j->shape, true) & ~repeated(&j->shape);
    j->wanted = usual(&j->shape, whole && listed == 0) | j->shown;
    return SLUICE_OK;
}

/* ---- the best ---- */

static const char *name_criterion(sl_criterion by, char out[32])
{
    snprintf(out, 32, "%s %s", by.higher ? "highest" : "lowest", sl_metric_name(by.metric));
    return out;
}

bool sl_best_is_by(const sl_best *b, sl_criterion by)
{
    char name[32];
    return strcmp(b->by, name_criterion(by, name)) == 0;
}

bool sl_best_observe(sl_best *b, sl_criterion by, double least, double value, uint64_t step)
{
    bool known = sl_best_is_by(b, by) && b->step > 0;
    bool better = by.higher ? value > b->value + least : value < b->value - least;
    if (!sl_best_is_by(b, by)) {
        *b = (sl_best){ .since = 0 };
        name_criterion(by, b->by);
    }
    if (isfinite(value) && (!known || better)) {
        b->value = value;
        b->step = step;
        b->since = 0;
        return true;
    }
    b->since++;
    return false;
}

/* engine_speculation.c: whether a step's updates run on speculation, and whether that was right.
 *
 * They are run as if the step were neither clipped nor skipped. Of the last steps, speculated or not, the plan says how
 * many may have been one or the other for speculation to be worth while: the gradient's norms alone decide, which all
 * ranks know alike. So it ends by itself where too many steps are clipped, and begins again when they no longer are. The
 * weights do not depend on it.
 *
 * Where "auto" has chosen to speculate, a run shows first that its steps are not clipped: its window is full of steps that
 * were, at the beginning, and a run that goes on has the window it had. So a run whose steps all are costs what it costs
 * without speculation. One norm far below the threshold shows as much as a window. Nothing has to be shown where nothing is
 * clipped, nor where the plan counts on its other placement for a run that is clipped often: by this one steps that do not
 * speculate take the longest of all. */
#include <string.h>

#include "train/engine_parts.h"

#define FAR_NORM 4.0 /* times a norm that is below the threshold: so far, it is not reached within some steps */

void sl_engine_begin_speculation(sluice_engine *e, bool rehearses)
{
    if (e->plan->totals.speculating_layers == 0) return;
    const sl_plan_options *o = &e->plan->options;
    const bool trusts = o->update != SL_UPDATE_MODE_AUTO || o->rarely_fails || rehearses;
    if (!trusts && !e->plan->placement.counts_on_change) e->speculation.failed = UINT32_MAX;
}

void sl_engine_resume_speculation(sluice_engine *e, uint64_t plain_steps)
{
    sl_speculation *s = &e->speculation;
    s->plain = plain_steps;
    s->failed &= plain_steps < SL_SPECULATION_WINDOW ? UINT32_MAX << plain_steps : 0;
}

bool sl_engine_may_speculate(const sluice_engine *e)
{
    const sl_plan_totals *t = &e->plan->totals;
    int failed = 0;
    for (int i = 0; i < SL_SPECULATION_WINDOW; i++) failed += (int)(e->speculation.failed >> i & 1u);
    return t->speculating_layers > 0 && failed < t->speculation_limit;
}

void sl_engine_note_scalars(sluice_engine *e)
{
    memcpy(e->speculation.groups, e->context.groups, sizeof e->context.groups);
}

/* The factor that updates were given, and the numbers of their groups: the learning rate may be set after backward. */
bool sl_engine_judge_speculation(sluice_engine *e, const sl_norm_result *norm)
{
    sl_speculation *s = &e->speculation;
    const bool plain = !e->computes || (norm->finite && norm->factor == (float)(1.0 / e->context.loss_scale));
    const bool same = memcmp(s->groups, e->context.groups, sizeof s->groups) == 0;
    s->failed = s->failed << 1 | (plain ? 0u : 1u);
    s->plain = plain ? s->plain + 1 : 0;
    if (plain && norm->norm * FAR_NORM <= e->context.clip) s->failed = 0;
    if (!s->now) return true;
    s->speculated++;
    s->rolled_back += !plain || !same;
    return plain && same;
}

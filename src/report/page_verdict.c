/* page_verdict.c: the answer first: what became of it, does it fit, how fast is it, what limits it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "report/page.h"

enum { COMPUTE_STREAM = 0 };

/* ---- what became of it ---- */

static uint64_t last_step(const sl_run_record *r)
{
    if (r->end.known) return r->end.steps;
    return r->step_count > 0 ? r->steps[r->step_count - 1].step : 0;
}

static void add_of_target(const sl_page *p)
{
    char n[SL_HTML_NUMBER];
    if (p->record->target_steps > 0) sl_text_add(p->out, " of %s", sl_html_count(p->record->target_steps, n));
}

static void add_why(const sl_page *p)
{
    if (p->record->why == NULL || p->record->why[0] == '\0') return;
    sl_text_add(p->out, ": ");
    sl_html_add(p->out, p->record->why);
}

static void add_outcome(const sl_page *p)
{
    static const char *const words[] = {
        [SL_RUN_PLANNED] = "Planned", [SL_RUN_RUNNING] = "Running", [SL_RUN_FINISHED] = "Finished",
        [SL_RUN_STOPPED] = "Stopped", [SL_RUN_FAILED] = "Failed",   [SL_RUN_DEAD] = "Dead",
    };
    static const char *const classes[] = { "plain", "plain", "good", "warn", "bad", "bad" };
    const sl_run_record *r = p->record;
    char n[SL_HTML_NUMBER];
    sl_text_add(p->out, "<p class=\"outcome\"><strong class=\"%s\">%s</strong> ", classes[r->outcome],
                words[r->outcome]);
    if (r->outcome == SL_RUN_PLANNED)
        sl_text_add(p->out, "Nothing was run: all numbers are predicted");
    else if (last_step(r) == 0)
        sl_text_add(p->out, "No step is recorded");
    else
        sl_text_add(p->out, "%s step %s", r->outcome == SL_RUN_RUNNING ? "At" : "After",
                    sl_html_count(last_step(r), n));
    if (r->outcome != SL_RUN_PLANNED && last_step(r) > 0) {
        if (r->outcome != SL_RUN_FINISHED) add_of_target(p);
        if (r->early) sl_text_add(p->out, ", ended early");
    }
    add_why(p);
    if (r->outcome == SL_RUN_DEAD && last_step(r) > 0)
        sl_text_add(p->out,
                    ". Its log ends without a last word: it was killed, or its machine went away. <code>sluice train "
                    "CONFIG --resume</code> continues it from its newest checkpoint.");
    sl_text_add(p->out, "</p>\n");
}

/* ---- tiles ---- */

static void add_losses(const sl_page *p)
{
    const sl_run_record *r = p->record;
    const sl_recorded_eval *best = NULL;
    char value[SL_HTML_NUMBER], first[SL_HTML_NUMBER], more[96];
    for (size_t i = 0; i < r->eval_count; i++)
        if (isfinite(r->evals[i].loss) && (best == NULL || r->evals[i].loss < best->loss)) best = &r->evals[i];
    if (r->step_count > 0) {
        snprintf(more, sizeof more, "%s at step %llu", sl_html_number(r->steps[0].loss, first),
                 (unsigned long long)r->steps[0].step);
        sl_page_add_tile(p, "Loss", sl_html_number(r->steps[r->step_count - 1].loss, value), more);
    }
    if (best == NULL) return;
    snprintf(more, sizeof more, "at step %llu; last %s", (unsigned long long)best->step,
             sl_html_number(r->evals[r->eval_count - 1].loss, first));
    sl_page_add_tile(p, "Best validation loss", sl_html_number(best->loss, value), more);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

double sl_page_median_seconds(const sl_run_record *r)
{
    double *list = sl_alloc_array(r->step_count + 1, sizeof *list, "times of a report");
    size_t n = 0;
    if (list == NULL) return (double)NAN;
    for (size_t i = r->step_count > 1 ? 1 : 0; i < r->step_count; i++)
        if (isfinite(r->steps[i].seconds)) list[n++] = r->steps[i].seconds;
    qsort(list, n, sizeof *list, by_value);
    double median = n > 0 ? list[n / 2] : (double)NAN;
    sl_free(list);
    return median;
}

static void add_speed(const sl_page *p)
{
    const sl_run_record *r = p->record;
    double planned = r->plan.known ? r->plan.step_seconds : sl_profile_number(p->profile, "planned_step_seconds");
    double measured = sl_page_median_seconds(r);
    char a[SL_HTML_NUMBER], b[SL_HTML_NUMBER], more[128];
    const char *unit = r->rate_is_samples ? "samples a second" : "tokens a second";
    if (isfinite(measured))
        snprintf(more, sizeof more, "median; predicted %s", sl_html_seconds(planned, b));
    else
        snprintf(more, sizeof more, "predicted");
    sl_page_add_tile(p, "A step", sl_html_seconds(isfinite(measured) ? measured : planned, a), more);
    double rate = r->end.known ? r->end.tokens_per_second : (double)NAN;
    if (!isfinite(rate) && r->step_count > 0 && measured > 0)
        rate = r->steps[r->step_count - 1].rate * r->steps[r->step_count - 1].seconds / measured;
    bool predicted = !isfinite(rate);
    if (predicted) rate = r->plan.tokens_per_second;
    double mfu = r->end.known ? r->end.mfu : predicted ? r->plan.mfu : (double)NAN;
    snprintf(more, sizeof more, "%s%s%s%s", unit, predicted ? ", predicted" : "", isfinite(mfu) ? "; MFU " : "",
             isfinite(mfu) ? sl_html_percent(mfu, b) : "");
    if (isfinite(rate) && rate > 0) sl_page_add_tile(p, "Rate", sl_html_rate(rate, a), more);
}

static void add_time_taken(const sl_page *p)
{
    const sl_run_record *r = p->record;
    double all = 0;
    char a[SL_HTML_NUMBER], n[SL_HTML_NUMBER], more[96];
    for (size_t i = 0; i < r->step_count; i++)
        if (isfinite(r->steps[i].seconds)) all += r->steps[i].seconds;
    if (!(all > 0)) return;
    snprintf(more, sizeof more, "of %s steps%s", sl_html_count(r->step_count, n),
             r->repeated_steps > 0 ? ", repeated ones once" : "");
    sl_page_add_tile(p, "Time in steps", sl_html_duration(all, a), more);
}

/* ---- memory ---- */

static void add_tier(const sl_page *p, const json_t *tier, size_t number)
{
    const sl_run_record *r = p->record;
    const char *name = json_string_value(json_object_get(tier, "tier"));
    double peak = sl_profile_number(tier, "peak_bytes"), budget = sl_profile_number(tier, "budget_bytes");
    char a[SL_HTML_NUMBER], b[SL_HTML_NUMBER], c[SL_HTML_NUMBER], value[112], title[64], more[160];
    if (name == NULL) return;
    snprintf(title, sizeof title, "Memory, %.40s", name);
    snprintf(value, sizeof value, "%s", sl_html_bytes((uint64_t)peak, a));
    snprintf(more, sizeof more, "%s of a budget of %s",
             peak <= budget ? "fits:" : "does not fit:", sl_html_bytes((uint64_t)budget, b));
    if (peak <= budget) snprintf(more, sizeof more, "fits in %s", b);
    if (r->end.known && number < 3) {
        size_t used = strlen(more);
        bool same = r->end.peak[number] == r->plan.peak[number];
        snprintf(more + used, sizeof more - used, "; measured %s",
                 same ? "the same, to the byte" : sl_html_bytes(r->end.peak[number], c));
    }
    sl_page_add_tile(p, title, value, more);
}

static void add_memory(const sl_page *p)
{
    size_t i;
    json_t *tier;
    static const char *const names[] = { "Memory, device", "Memory, host", "Memory, disk" };
    const json_t *tiers = json_object_get(p->profile, "memory");
    char a[SL_HTML_NUMBER], b[SL_HTML_NUMBER], more[96];
    json_array_foreach(tiers, i, tier)
    {
        const char *name = json_string_value(json_object_get(tier, "tier"));
        add_tier(p, tier, name != NULL && strcmp(name, "host") == 0 ? 1 : 0);
    }
    if (json_array_size(tiers) > 0 || !p->record->plan.known) return;
    for (int t = 0; t < 3; t++) { /* a run without a profile: what its plan said */
        if (p->record->plan.peak[t] == 0) continue;
        more[0] = '\0';
        if (p->record->end.known)
            snprintf(more, sizeof more, "predicted; measured %s", sl_html_bytes(p->record->end.peak[t], b));
        sl_page_add_tile(p, names[t], sl_html_bytes(p->record->plan.peak[t], a), more);
    }
}

/* ---- what limits it ---- */

static void add_limit(const sl_page *p)
{
    size_t i;
    json_t *s;
    char value[96] = "", more[128], a[SL_HTML_NUMBER];
    double step = sl_profile_best(p->profile, "step_seconds"), most = 0, compute = 0;
    json_array_foreach(json_object_get(p->profile, "streams"), i, s)
    {
        bool own = sl_profile_number(s, "stream") == COMPUTE_STREAM;
        double seconds = sl_profile_best(s, own ? "busy_seconds" : "exposed_seconds");
        const char *name = json_string_value(json_object_get(s, "name"));
        if (own) compute = seconds;
        if (!(seconds > most) || name == NULL) continue;
        most = seconds;
        snprintf(value, sizeof value, "%s", name);
    }
    double idle = sl_profile_best(p->profile, "idle_seconds");
    if (idle > most) {
        most = idle;
        snprintf(value, sizeof value, "the host");
    }
    if (!(step > 0) || value[0] == '\0') return;
    snprintf(more, sizeof more, "%s of a step; ", sl_html_percent(most / step, a));
    size_t used = strlen(more);
    snprintf(more + used, sizeof more - used, "compute stands still %s of it",
             sl_html_percent((step - compute) / step, a));
    sl_page_add_tile(p, "Limited by", value, more);
}

void sl_page_add_verdict(const sl_page *p)
{
    sl_text_add(p->out, "<section id=\"verdict\" aria-label=\"Verdict\">\n");
    add_outcome(p);
    sl_text_add(p->out, "<dl class=\"tiles\">\n");
    add_losses(p);
    add_speed(p);
    add_limit(p);
    add_memory(p);
    add_time_taken(p);
    sl_text_add(p->out, "</dl></section>\n");
}

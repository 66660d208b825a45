/* verdict.c: see verdict.h. */
#include "train/verdict.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/bytes.h"
#include "plan/passes.h"

#define WORTH_TELLING 0.05 /* share of a step that compute stands still for a stream before that is what limits it */
#define USUAL_STEPS   1000

static void add(sl_plan_verdict *v, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void add(sl_plan_verdict *v, const char *format, ...)
{
    size_t used = strlen(v->text);
    va_list args;
    va_start(args, format);
    vsnprintf(v->text + used, sizeof v->text - used, format, args);
    va_end(args);
}

static double gib(uint64_t bytes)
{
    return (double)bytes / (double)(1ull << 30);
}

/* "21.8 GiB of 24", small amounts in MiB. */
static void add_share(sl_plan_verdict *v, uint64_t used, uint64_t all)
{
    if (all >= 1ull << 30)
        add(v, "%.1f GiB of %.4g", gib(used), gib(all));
    else
        add(v, "%.1f MiB of %.4g", 1024 * gib(used), 1024 * gib(all));
}

/* ---- memory ---- */

static bool is_one_memory(const sl_plan_options *o)
{
    return o->budget_together > 0;
}

/* `arena` bytes by tier: what that needs in all, and what there is. */
static void count_memory(const sl_plan_options *o, const sl_machine *m, const uint64_t arena[SL_TIER_COUNT],
                         uint64_t together, sl_plan_verdict *v)
{
    const uint64_t *capacity = m->capacity;
    if (is_one_memory(o)) {
        uint64_t both = arena[SL_TIER_DEVICE] + arena[SL_TIER_HOST];
        v->needs[SL_TIER_HOST] = (together > both ? together : both) + o->overhead_bytes;
        v->can[SL_TIER_HOST] = o->budget_together + o->overhead_bytes;
        v->has[SL_TIER_HOST] = capacity[SL_TIER_DEVICE] > 0 ? capacity[SL_TIER_DEVICE] : v->can[SL_TIER_HOST];
    }
    for (int t = is_one_memory(o) ? SL_TIER_DISK : SL_TIER_DEVICE; t < SL_TIER_COUNT; t++) {
        uint64_t outside = t == SL_TIER_DEVICE ? o->device_overhead : t == SL_TIER_HOST ? o->overhead_bytes : 0;
        v->needs[t] = arena[t] + outside;
        v->can[t] = o->budget[t] + outside;
        v->has[t] = o->told[t] > 0 ? o->told[t] : capacity[t] > 0 ? capacity[t] : v->can[t];
        if (o->told[t] > 0 && t == SL_TIER_HOST) v->has[t] += outside; /* the setting bounds the arena alone */
        if (v->can[t] > v->has[t]) v->can[t] = v->has[t];
    }
}

/* "21.8 GiB of 24 on the GPU, 57.2 GiB of 64 RAM" */
static void add_memory(sl_plan_verdict *v, int ranks)
{
    if (v->has[SL_TIER_DEVICE] > 0) {
        add_share(v, v->needs[SL_TIER_DEVICE], v->has[SL_TIER_DEVICE]);
        if (ranks > 1)
            add(v, " on each of %d GPUs, ", ranks);
        else
            add(v, " on the GPU, ");
    }
    add_share(v, v->needs[SL_TIER_HOST], v->has[SL_TIER_HOST]);
    add(v, ranks > 1 ? " RAM for each rank" : " RAM");
    if (v->needs[SL_TIER_DISK] == 0) return;
    add(v, ", ");
    add_share(v, v->needs[SL_TIER_DISK], v->has[SL_TIER_DISK]);
    add(v, " on disk");
}

/* ---- time ---- */

static const char *stream_limit(int stream)
{
    switch (stream) {
    case SL_STREAM_COMM:
        return "communication between ranks";
    case SL_STREAM_UPDATE:
        return "the CPU update";
    case SL_STREAM_DISK_READ:
    case SL_STREAM_DISK_WRITE:
        return "the disk";
    default:
        return "the link between host and device";
    }
}

/* What compute waits for longest, where it does so for a good part of the step. */
static const char *find_limit(const sl_plan *p, bool is_cuda)
{
    double most = WORTH_TELLING * p->totals.step_seconds;
    const char *limit = is_cuda ? "the GPU" : "the CPU";
    for (int m = 0; m < SL_STREAM_COUNT; m++) {
        double exposed = 0;
        for (int k = 0; k <= SL_SEGMENT_UPDATE; k++)
            exposed += sl_segment_repeats(p, (sl_segment_kind)k) * p->segments[k].exposed[m];
        if (m == SL_STREAM_COMPUTE || exposed <= most) continue;
        most = exposed;
        limit = stream_limit(m);
    }
    return limit;
}

/* "52 min" */
static void add_duration(sl_plan_verdict *v, double seconds)
{
    static const struct {
        double unit, below;
        const char *name;
    } units[] = { { 1, 100, "s" }, { 60, 100 * 60, "min" }, { 3600, 72 * 3600, "h" }, { 86400, 1e300, "days" } };
    int i = 0;
    while (seconds >= units[i].below) i++;
    add(v, seconds / units[i].unit >= 10 ? "%.0f %s" : "%.2g %s", seconds / units[i].unit, units[i].name);
}

static void add_count(sl_plan_verdict *v, int64_t n)
{
    if (n >= 1000000)
        add(v, "%lld,%03lld,%03lld", (long long)(n / 1000000), (long long)(n / 1000 % 1000), (long long)(n % 1000));
    else if (n >= 1000)
        add(v, "%lld,%03lld", (long long)(n / 1000), (long long)(n % 1000));
    else
        add(v, "%lld", (long long)n);
}

static void add_time(const sl_job *j, double seconds, const sl_pace *pace, sl_plan_verdict *v)
{
    char rate[32];
    int64_t steps = j->settings.steps > 0 ? j->settings.steps : USUAL_STEPS;
    add(v, "; %.3g s a step, %s %s/s", seconds,
        sl_format_rate((pace->tokens > 0 ? pace->tokens : pace->samples) / seconds, rate, sizeof rate),
        pace->tokens > 0 ? "tokens" : "samples");
    add(v, ", limited by %s; ", v->limit);
    add_count(v, steps);
    add(v, " step%s take%s ", steps == 1 ? "" : "s", steps == 1 ? "s" : "");
    add_duration(v, (double)steps * seconds);
}

/* ---- the sentence ---- */

void sl_verdict_of_plan(const sl_job *j, const sl_run_totals *predicted, const sl_pace *pace, sl_plan_verdict *out)
{
    const sluice_engine *e = j->engine;
    const sl_plan *p = e->plan;
    *out = (sl_plan_verdict){ .fits = true };
    count_memory(&p->options, &p->machine, predicted->peak, 0, out);
    out->limit = find_limit(p, e->device.is_cuda);
    add(out, "fits: ");
    add_memory(out, p->options.rank_count);
    if (predicted->seconds > 0) add_time(j, predicted->seconds, pace, out);
}

/* Tiers that lack something, with what of them can be used. */
static void add_lacks(sl_plan_verdict *v, int ranks)
{
    static const char *const of[SL_TIER_COUNT] = {
        [SL_TIER_DEVICE] = "on the GPU", [SL_TIER_HOST] = "of RAM", [SL_TIER_DISK] = "on disk"
    };
    const char *between = "";
    for (int t = 0; t < SL_TIER_COUNT; t++) {
        const char *each = ranks > 1 ? " for each rank" : "";
        char needs[32], has[32], can[32];
        if (v->needs[t] <= v->can[t]) continue;
        if (v->can[t] >= 1ull << 30)
            add(v, "%sabout %.1f GiB %s%s are needed, and of its %.4g GiB %.4g can be used", between, gib(v->needs[t]),
                of[t], each, gib(v->has[t]), gib(v->can[t]));
        else
            add(v, "%sabout %s %s%s are needed, and of its %s %s can be used", between,
                sl_format_bytes(v->needs[t], needs, sizeof needs), of[t], each,
                sl_format_bytes(v->has[t], has, sizeof has), sl_format_bytes(v->can[t], can, sizeof can));
        between = "; ";
    }
}

/* Of budgets that were told, where the memory that they are part of would do. */
static void add_budgets(sl_plan_verdict *v, const sl_refusal *r)
{
    const char *between = "";
    for (int t = 0; t < SL_TIER_COUNT; t++) {
        char needs[32], has[32];
        if (r->need.bytes[t] <= r->options.budget[t]) continue;
        add(v, "%sabout %s of %s are needed, and it is %s", between,
            sl_format_bytes(r->need.bytes[t] + r->options.outside[t], needs, sizeof needs), sl_tiers[t].setting,
            sl_format_bytes(r->options.budget[t] + r->options.outside[t], has, sizeof has));
        between = "; ";
    }
}

void sl_verdict_of_refusal(const sl_job *j, sl_plan_verdict *out)
{
    const sl_refusal *r = &j->refusal;
    *out = (sl_plan_verdict){ .fits = false };
    count_memory(&r->options, &r->machine, r->need.bytes, r->need.together, out);
    add(out, "does not fit: ");
    const size_t said = strlen(out->text);
    add_lacks(out, r->options.rank_count);
    if (strlen(out->text) == said) add_budgets(out, r);
}

void sl_verdict_to_event(const sl_plan_verdict *v, sluice_event *event)
{
    event->fits = v->fits;
    event->needs = sl_totals_memory(v->needs);
    event->has = sl_totals_memory(v->has);
    event->limit = v->limit;
    event->verdict = v->text;
}

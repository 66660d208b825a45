/* place_refuse.c: the refusal of what does not fit: what is needed, to the byte, and what would help.
 *
 * Remedies are rows: a change of the settings, made in a copy of the options and tried by planning with it. Told are
 * those that need less memory than there is none of now, with what they need. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/bytes.h"
#include "plan/place.h"

/* Adds to the text in `out`, behind `separator` where there is some already; what has no room is cut off. */
static void append(char *out, size_t room, const char *separator, const char *format, ...)
{
    size_t used = strlen(out);
    va_list args;
    if (used > 0) used += (size_t)snprintf(out + used, room - used, "%s", separator);
    if (used >= room) return;
    va_start(args, format);
    vsnprintf(out + used, room - used, format, args);
    va_end(args);
}

/* ---- what is needed ---- */

/* As the setting of a tier counts: with what of it the arena does not get. */
static uint64_t as_set(const sl_plan_options *o, int tier, uint64_t bytes)
{
    return bytes + o->outside[tier];
}

static uint64_t has_of(const sl_plan_options *o, int tier)
{
    return o->told[tier] > 0 ? o->told[tier] : as_set(o, tier, o->budget[tier]);
}

static bool lacks(const sl_plan_options *o, const sl_plan_need *need, int tier)
{
    return need->bytes[tier] > o->budget[tier];
}

uint64_t sl_plan_lack(const sl_plan_options *o, const sl_plan_need *need)
{
    uint64_t bytes = need->together > o->budget_together ? need->together - o->budget_together : 0;
    for (int t = 0; t < SL_TIER_COUNT; t++)
        if (lacks(o, need, t)) bytes += need->bytes[t] - o->budget[t];
    return bytes;
}

static void describe_lack(char *out, size_t room, const char *key, uint64_t has, uint64_t needs, const char *who)
{
    char text[3][32];
    append(out, room, "; ", "%s has %llu bytes (%s), needs %llu (%s)%s: %llu bytes (%s) are missing", key,
           (unsigned long long)has, sl_format_bytes(has, text[0], sizeof text[0]), (unsigned long long)needs,
           sl_format_bytes(needs, text[1], sizeof text[1]), who, (unsigned long long)(needs - has),
           sl_format_bytes(needs - has, text[2], sizeof text[2]));
}

/* "on rank 2 of 3", where ranks need different amounts; the rank that needs most. */
static void name_rank(const sl_search *s, int rank, char *out, size_t room)
{
    out[0] = '\0';
    if (s->kind_count > 1) snprintf(out, room, " on rank %d of %d", rank, s->p->options.rank_count);
}

static void describe_lacks(const sl_search *s, const sl_plan_need *need, char *out, size_t room)
{
    const sl_plan_options *o = &s->p->options;
    for (int t = 0; t < SL_TIER_COUNT; t++) {
        char key[64], who[64];
        if (!lacks(o, need, t)) continue;
        name_rank(s, need->rank[t], who, sizeof who);
        snprintf(key, sizeof key, "%s%s", sl_tiers[t].setting, o->automatic[t] ? " (auto: all there is)" : "");
        describe_lack(out, room, key, has_of(o, t), as_set(o, t, need->bytes[t]), who);
    }
    if (need->together > o->budget_together)
        describe_lack(out, room, "the memory this process may use", o->budget_together, need->together, "");
}

/* ---- remedies ---- */

static bool is_divided(const sl_plan_options *o)
{
    return o->rank_count > 1;
}

static bool try_stage(sl_plan_options *o, int stage)
{
    bool applies = is_divided(o) && o->stage < stage;
    o->stage = stage;
    return applies;
}

static bool recompute_or_offload(sl_plan_options *o, int unused)
{
    bool applies = o->training && o->activations != SLUICE_ACTIVATIONS_AUTO;
    (void)unused;
    o->activations = SLUICE_ACTIVATIONS_AUTO;
    return applies;
}

static bool free_groups(sl_plan_options *o, int unused)
{
    bool applies = o->training && o->checkpoints > 0;
    (void)unused;
    o->checkpoints = 0;
    return applies;
}

static bool offload_state(sl_plan_options *o, int unused)
{
    bool applies = o->training && o->state == SLUICE_PLACE_DEVICE;
    (void)unused;
    o->state = SLUICE_PLACE_HOST;
    o->state_ratio = 1;
    return applies;
}

static bool offload_all_state(sl_plan_options *o, int unused)
{
    bool applies = o->training && o->state == SLUICE_PLACE_HOST && o->state_ratio < 1;
    (void)unused;
    o->state_ratio = 1;
    return applies;
}

static bool offload_parameters(sl_plan_options *o, int unused)
{
    bool applies = o->parameters == SLUICE_PLACE_DEVICE;
    (void)unused;
    o->parameters = SLUICE_PLACE_HOST;
    return applies;
}

static bool free_levels(sl_plan_options *o, int unused)
{
    bool applies = o->levels > 0;
    (void)unused;
    o->levels = 0;
    return applies;
}

static bool no_prefetch(sl_plan_options *o, int unused)
{
    bool applies = o->prefetch > 0;
    (void)unused;
    o->prefetch = 0;
    return applies;
}

static bool release_gathered(sl_plan_options *o, int unused)
{
    bool applies = is_divided(o) && o->keep_gathered;
    (void)unused;
    o->keep_gathered = false;
    return applies;
}

static bool cut_layers(sl_plan_options *o, int unused)
{
    bool applies = is_divided(o) && o->partition != SLUICE_PARTITION_LAYER;
    (void)unused;
    o->partition = SLUICE_PARTITION_LAYER;
    return applies;
}

static bool no_evaluation(sl_plan_options *o, int unused)
{
    bool applies = o->evaluation && o->training;
    (void)unused;
    o->evaluation = false;
    return applies;
}

static bool no_snapshot(sl_plan_options *o, int unused)
{
    bool applies = o->snapshot;
    (void)unused;
    o->snapshot = false;
    return applies;
}

/* The same batch on one rank: nothing is gathered, and nobody else's gradient waits for its sum. */
static bool one_rank(sl_plan_options *o, int unused)
{
    bool applies = is_divided(o) && o->rank_count <= 1024;
    (void)unused;
    o->accumulation *= o->rank_count;
    o->rank = 0;
    o->rank_count = 1;
    o->partition_weights = NULL;
    return applies;
}

static bool have_host(sl_plan_options *o, int unused)
{
    bool applies = o->budget[SL_TIER_HOST] == 0;
    (void)unused;
    o->budget[SL_TIER_HOST] = 1; /* there is one; how much it needs is found out */
    return applies;
}

/* `change` says whether it applies, and makes it. Of rows with the same function only the best is told. */
typedef struct remedy {
    const char *text;
    bool (*change)(sl_plan_options *o, int argument);
    int argument;
} remedy;

static const remedy remedies[] = {
    { "activation_checkpointing.mode \"auto\" needs", recompute_or_offload, 0 },
    { "activation_checkpointing.number_checkpoints \"auto\" needs", free_groups, 0 },
    { "zero_optimization.offload_optimizer.device \"cpu\" needs", offload_state, 0 },
    { "zero_optimization.offload_optimizer.ratio 1 needs", offload_all_state, 0 },
    { "zero_optimization.offload_param.device \"cpu\" needs", offload_parameters, 0 },
    { "a host budget (memory.host) needs", have_host, 0 },
    { "zero_optimization.stage 1 needs", try_stage, 1 },
    { "zero_optimization.stage 2 needs", try_stage, 2 },
    { "zero_optimization.stage 3 needs", try_stage, 3 },
    { "memory.levels \"auto\" needs", free_levels, 0 },
    { "memory.prefetch_layers 0 needs", no_prefetch, 0 },
    { "memory.keep_gathered false needs", release_gathered, 0 },
    { "zero_optimization.partition \"layer\" needs", cut_layers, 0 },
    { "no evaluation during the run (data.validation 0) needs", no_evaluation, 0 },
    { "no checkpoints in the background (checkpoint.background false) needs", no_snapshot, 0 },
    { "one rank needs", one_rank, 0 },
};
enum { REMEDIES = sizeof remedies / sizeof remedies[0] };

typedef struct trial {
    bool useful;
    sl_plan_need need;
} trial;

void sl_plan_describe_need(const sl_plan_options *o, const sl_plan_need *without, const sl_plan_need *with, char *out,
                           size_t room)
{
    out[0] = '\0';
    for (int t = 0; t < SL_TIER_COUNT; t++) {
        char text[32];
        uint64_t bytes = as_set(o, t, with->bytes[t]);
        if (!lacks(o, without, t) && !lacks(o, with, t)) continue;
        append(out, room, " and ", "%s %llu (%s)", sl_tiers[t].setting, (unsigned long long)bytes,
               sl_format_bytes(bytes, text, sizeof text));
    }
    if (out[0] == '\0') snprintf(out, room, "no more than there is");
}

static sluice_status try_remedy(const sl_search *s, const sl_plan_options *changed, const sl_plan_need *now, trial *out)
{
    const sl_plan *p = s->p;
    SL_TRY(sl_plan_least(p->graph, &p->machine, changed, &out->need));
    out->useful = sl_plan_lack(&p->options, &out->need) < sl_plan_lack(&p->options, now);
    return SLUICE_OK;
}

/* A row that needs no less than an earlier one of the same function says nothing new; one that needs less replaces
 * it. */
static void keep_best(const sl_plan_options *o, trial *trials, int row)
{
    for (int i = 0; i < row && trials[row].useful; i++) {
        if (remedies[i].change != remedies[row].change || !trials[i].useful) continue;
        if (sl_plan_lack(o, &trials[row].need) < sl_plan_lack(o, &trials[i].need))
            trials[i].useful = false;
        else
            trials[row].useful = false;
    }
}

static void tell_remedy(const sl_plan_options *o, const sl_plan_need *now, const char *text, const sl_plan_need *need,
                        char *out, size_t room)
{
    char needs[160];
    sl_plan_describe_need(o, now, need, needs, sizeof needs);
    append(out, room, "; ", "%s %s%s", text, needs, sl_plan_lack(o, need) == 0 ? " and fits" : "");
}

/* All that help, where none of several is enough. */
static sluice_status try_together(const sl_search *s, const sl_plan_need *now, const trial *trials, char *out,
                                  size_t room)
{
    sl_plan_options all = s->p->options;
    int count = 0;
    trial together;
    for (int i = 0; i < REMEDIES; i++) {
        if (!trials[i].useful || remedies[i].change == one_rank) continue;
        if (sl_plan_lack(&s->p->options, &trials[i].need) == 0) return SLUICE_OK;
        remedies[i].change(&all, remedies[i].argument);
        count++;
    }
    if (count < 2) return SLUICE_OK;
    SL_TRY(try_remedy(s, &all, now, &together));
    if (together.useful)
        tell_remedy(&s->p->options, now, count == 2 ? "both of these need" : "all of these need", &together.need, out,
                    room);
    return SLUICE_OK;
}

/* Whether a plan may be made so. Of rules that need whole parameters none may be cut, whatever the stage at hand. */
static bool is_possible(const sluice_graph *g, const remedy *r, const sl_plan_options *changed)
{
    sl_plan_options staged = *changed;
    if (r->change == cut_layers && staged.stage == 0) staged.stage = 1;
    return sl_plan_may_cut(g, &staged);
}

static sluice_status advise(const sl_search *s, const sl_plan_need *now, char *out, size_t room)
{
    const sl_plan_options *o = &s->p->options;
    trial trials[REMEDIES] = { { .useful = false } };
    for (int i = 0; i < REMEDIES; i++) {
        sl_plan_options changed = *o;
        if (!remedies[i].change(&changed, remedies[i].argument) || !is_possible(s->p->graph, &remedies[i], &changed))
            continue;
        SL_TRY(try_remedy(s, &changed, now, &trials[i]));
        keep_best(o, trials, i);
    }
    for (int i = 0; i < REMEDIES; i++)
        if (trials[i].useful) tell_remedy(o, now, remedies[i].text, &trials[i].need, out, room);
    return try_together(s, now, trials, out, room);
}

/* ---- the message ---- */

/* "memory.device 380160"; with the host lacking, the device alone where that would do. What is not told but found lacks what
 * it is part of. */
static void tell_budgets(const sl_plan_options *o, const sl_plan_need *need, char *out, size_t room)
{
    bool memory = false, disk = false, told;
    char bytes[32];
    for (int t = 0; t < SL_TIER_COUNT; t++) {
        if (!lacks(o, need, t)) continue;
        memory = memory || (o->automatic[t] && sl_tiers[t].in_memory);
        disk = disk || (o->automatic[t] && !sl_tiers[t].in_memory);
        if (!o->automatic[t])
            append(out, room, " and ", "%s %llu", sl_tiers[t].setting,
                   (unsigned long long)as_set(o, t, need->bytes[t]));
    }
    told = out[0] != '\0';
    if (disk)
        append(out, room, " and ", "folders (memory.disk_path) with more free space: a rank needs %s of it",
               sl_format_bytes(need->bytes[SL_TIER_DISK], bytes, sizeof bytes));
    if (!told && (memory || !disk)) append(out, room, " and ", "a machine or a cgroup with more memory");
    if (need->device_alone > 0 && !o->automatic[SL_TIER_DEVICE])
        append(out, room, "; ", "%s %llu alone", sl_tiers[SL_TIER_DEVICE].setting,
               (unsigned long long)as_set(o, SL_TIER_DEVICE, need->device_alone));
}

sluice_status sl_plan_refuse(const sl_search *s, const sl_plan_need *need)
{
    char lack[768] = "", help[1024] = "";
    s->p->refused = *need;
    tell_budgets(&s->p->options, need, help, sizeof help);
    if (!s->p->options.brief) SL_TRY(advise(s, need, help, sizeof help));
    describe_lacks(s, need, lack, sizeof lack);
    return sl_fail(SLUICE_ERR_NO_FIT, "does not fit, even with every permitted saving: %s. What would help: %s", lack,
                   help);
}

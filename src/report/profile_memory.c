/* profile_memory.c: what is live on each tier while a training step runs, and who the tenants are.
 *
 * A plan knows lives in steps of its list. The list is put on the clock by when its steps began: a step that began before
 * one that is listed earlier counts from there, so that moments follow each other and none is lost. Where moments are more
 * than a chart can show, the fullest and the emptiest of each column are kept: the peak always is. */
#include <stdlib.h>

#include "core/alloc.h"
#include "ir/form.h"
#include "report/profile.h"

#define COLUMNS      300
#define MOST_TENANTS 1200 /* of a tier, the largest */

typedef struct memory_moment {
    double time;
    int step; /* of the plan */
    uint64_t live;
} memory_moment;

typedef struct memory_writer {
    const sl_trace *trace;
    bool measured;
    sl_tier tier;
    int64_t
        *live[SL_BUFFER_KIND_COUNT]; /* owned; bytes at each step of the plan; NULL: the tier has none of the kind */
    memory_moment *moments;          /* owned; one for each position, then those that are kept */
    int count;
    double end; /* of the step */
} memory_writer;

/* From the ground up: what stays, then what comes and goes. */
static const sl_buffer_kind stacked[SL_BUFFER_KIND_COUNT] = {
    SL_BUFFER_STATE,    SL_BUFFER_PARAMETERS, SL_BUFFER_TABLE,      SL_BUFFER_TWIN,
    SL_BUFFER_SNAPSHOT, SL_BUFFER_GRADIENTS,  SL_BUFFER_RUNNING,    SL_BUFFER_INPUT,
    SL_BUFFER_NORM,     SL_BUFFER_CACHE,      SL_BUFFER_ACTIVATION, SL_BUFFER_WORKSPACE,
};

/* ---- lives ---- */

static bool is_tenant(const sl_buffer *b, sl_tier tier)
{
    return b->tier == tier && b->last >= 0 && b->bytes > 0;
}

static int last_step(const sl_plan *p, const sl_buffer *b)
{
    return b->permanent || b->last >= p->step_count ? p->step_count - 1 : b->last;
}

static sluice_status count_live(memory_writer *w)
{
    const sl_plan *p = w->trace->plan;
    for (int i = 0; i < p->buffer_count; i++) {
        const sl_buffer *b = &p->buffers[i];
        int64_t **live = &w->live[b->kind];
        if (!is_tenant(b, w->tier)) continue;
        if (*live == NULL) *live = sl_alloc_array((size_t)p->step_count + 1, sizeof **live, "live bytes of a profile");
        if (*live == NULL) return SLUICE_ERR_NO_MEMORY;
        (*live)[b->permanent ? 0 : b->first] += (int64_t)b->bytes;
        (*live)[last_step(p, b) + 1] -= (int64_t)b->bytes;
    }
    for (int k = 0; k < SL_BUFFER_KIND_COUNT; k++)
        for (int i = 1; w->live[k] != NULL && i < p->step_count; i++) w->live[k][i] += w->live[k][i - 1];
    return SLUICE_OK;
}

/* ---- moments ---- */

static uint64_t live_at(const memory_writer *w, int step)
{
    uint64_t all = 0;
    for (int k = 0; k < SL_BUFFER_KIND_COUNT; k++)
        if (w->live[k] != NULL) all += (uint64_t)w->live[k][step];
    return all;
}

/* Of the training step that the trace begins with. */
static sluice_status collect_moments(memory_writer *w)
{
    const sl_trace *t = w->trace;
    double now = 0;
    w->moments = sl_alloc_array((size_t)t->step_count + 1, sizeof *w->moments, "moments of a profile");
    if (w->moments == NULL) return SLUICE_ERR_NO_MEMORY;
    for (int i = 0; i < t->step_count && t->runs[t->steps[i].run].step == t->runs[0].step; i++) {
        sl_plan_time time = w->measured ? t->steps[i].measured : t->steps[i].expected;
        if (time.begin > now) now = time.begin;
        if (time.end > w->end) w->end = time.end;
        w->moments[w->count++] = (memory_moment){ now, t->steps[i].step, live_at(w, t->steps[i].step) };
    }
    return SLUICE_OK;
}

/* The fullest and the emptiest of each column; the first ones at that. */
static void thin_moments(memory_writer *w)
{
    int kept = 0;
    if (w->count <= 2 * COLUMNS || !(w->end > 0)) return;
    for (int i = 0; i < w->count;) {
        int column = (int)(w->moments[i].time / w->end * COLUMNS), high = i, low = i, k = i;
        for (; k < w->count && (int)(w->moments[k].time / w->end * COLUMNS) == column; k++) {
            if (w->moments[k].live > w->moments[high].live) high = k;
            if (w->moments[k].live < w->moments[low].live) low = k;
        }
        memory_moment a = w->moments[low < high ? low : high], b = w->moments[low < high ? high : low];
        w->moments[kept++] = a;
        if (low != high) w->moments[kept++] = b;
        i = k;
    }
    w->count = kept;
}

static void add_moments(const memory_writer *w, sl_text *out)
{
    sl_text_add(out, ",\n\"moments\":[");
    for (int i = 0; i < w->count; i++) {
        const memory_moment *m = &w->moments[i];
        sl_text_add(out, "%s[", i > 0 ? "," : "");
        sl_profile_add_seconds(out, m->time * 1e6);
        sl_text_add(out, ",%d", m->step);
        for (int k = 0; k < SL_BUFFER_KIND_COUNT; k++)
            if (w->live[stacked[k]] != NULL) sl_text_add(out, ",%lld", (long long)w->live[stacked[k]][m->step]);
        sl_text_add(out, "]");
    }
    sl_text_add(out, "]");
}

/* ---- tenants ---- */

void sl_profile_buffer_name(const sl_plan *p, const sl_buffer *b, char *out, size_t bytes)
{
    const char *layer = b->layer >= 0 ? p->graph->layers[b->layer].name : NULL;
    const char *value = b->value >= 0 ? p->graph->values[b->value].name : NULL;
    const char *what = value != NULL ? value : layer != NULL ? layer : sl_plan_buffer_name(b->kind);
    char slot[32] = "";
    if (b->kind == SL_BUFFER_STATE && b->slot >= 0) snprintf(slot, sizeof slot, ", state %d", b->slot + 1);
    snprintf(out, bytes, "%.160s%s%s%s", what, slot, b->shard && p->options.rank_count > 1 ? ", own part" : "",
             b->staged ? ", copy" : "");
}

static int by_bytes(const void *a, const void *b)
{
    const sl_buffer *x = *(const sl_buffer *const *)a, *y = *(const sl_buffer *const *)b;
    if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
    return x < y ? -1 : x > y;
}

static int kind_number(const memory_writer *w, sl_buffer_kind kind)
{
    int n = 0;
    for (int k = 0; stacked[k] != kind; k++) n += w->live[stacked[k]] != NULL;
    return n;
}

/* [name, kind, bytes, first step, last step], the largest first; and how many are not listed. */
static sluice_status add_tenants(const memory_writer *w, sl_text *out)
{
    const sl_plan *p = w->trace->plan;
    const sl_buffer **list = sl_alloc_array((size_t)p->buffer_count + 1, sizeof *list, "tenants of a profile");
    char name[256];
    int count = 0;
    if (list == NULL) return SLUICE_ERR_NO_MEMORY;
    for (int i = 0; i < p->buffer_count; i++)
        if (is_tenant(&p->buffers[i], w->tier)) list[count++] = &p->buffers[i];
    qsort(list, (size_t)count, sizeof *list, by_bytes);
    int shown = count < MOST_TENANTS ? count : MOST_TENANTS;
    sl_text_add(out, ",\"tenants_left_out\":%d,\n\"tenants\":[", count - shown);
    for (int i = 0; i < shown; i++) {
        const sl_buffer *b = list[i];
        sl_profile_buffer_name(p, b, name, sizeof name);
        sl_text_add(out, "%s[", i > 0 ? ",\n" : "");
        sl_text_add_string(out, name);
        sl_text_add(out, ",%d,%llu,%d,%d]", kind_number(w, b->kind), (unsigned long long)b->bytes,
                    b->permanent ? 0 : b->first, last_step(p, b));
    }
    sl_text_add(out, "]");
    sl_free(list);
    return SLUICE_OK;
}

/* ---- a tier ---- */

static void add_facts(const memory_writer *w, sl_text *out)
{
    const sl_plan *p = w->trace->plan;
    const char *between = "";
    sl_text_add(out, "{\"tier\":\"%s\",\"peak_bytes\":%llu,\"budget_bytes\":%llu,\"gap_bytes\":%llu",
                sl_tier_name(w->tier), (unsigned long long)p->totals.peak[w->tier],
                (unsigned long long)p->options.budget[w->tier], (unsigned long long)p->totals.fragmentation[w->tier]);
    sl_text_add(out, ",\"without_reuse_bytes\":%llu,\"end\":", (unsigned long long)p->totals.naive[w->tier]);
    sl_profile_add_seconds(out, w->end * 1e6);
    sl_text_add(out, ",\"kinds\":[");
    for (int k = 0; k < SL_BUFFER_KIND_COUNT; k++) {
        if (w->live[stacked[k]] == NULL) continue;
        sl_text_add(out, "%s\"%s\"", between, sl_plan_buffer_name(stacked[k]));
        between = ",";
    }
    sl_text_add(out, "],\"at_peak_bytes\":[");
    between = "";
    for (int k = 0; k < SL_BUFFER_KIND_COUNT; k++) {
        if (w->live[stacked[k]] == NULL) continue;
        sl_text_add(out, "%s%llu", between, (unsigned long long)p->totals.by_kind[w->tier][stacked[k]]);
        between = ",";
    }
    sl_text_add(out, "]");
}

static sluice_status add_tier(memory_writer *w, sl_text *out)
{
    SL_TRY(count_live(w));
    SL_TRY(collect_moments(w));
    thin_moments(w);
    add_facts(w, out);
    add_moments(w, out);
    SL_TRY(add_tenants(w, out));
    sl_text_add(out, "}");
    return SLUICE_OK;
}

sluice_status sl_profile_add_memory(const sl_trace *t, bool measured, sl_text *out)
{
    sluice_status st = SLUICE_OK;
    const char *between = "";
    sl_text_add(out, ",\n\"memory\":[");
    for (int i = 0; st == SLUICE_OK && i < SL_TIER_COUNT; i++) {
        memory_writer w = { .trace = t, .measured = measured, .tier = (sl_tier)i };
        if (t->plan->totals.peak[i] == 0) continue;
        sl_text_add(out, "%s", between);
        st = add_tier(&w, out);
        for (int k = 0; k < SL_BUFFER_KIND_COUNT; k++) sl_free(w.live[k]);
        sl_free(w.moments);
        between = ",\n";
    }
    sl_text_add(out, "]");
    return st;
}

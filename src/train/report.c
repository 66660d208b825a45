/* report.c: the plan's table after the run: predicted and measured in two columns. */
#include "train/report.h"

#include <math.h>
#include <string.h>

#include "core/bytes.h"

/* ---- pace ---- */

void sl_pace_to_event(const sl_pace *p, bool planned, double seconds, sluice_event *event)
{
    double peak = planned && p->peak <= 0 ? p->planned_peak : p->peak;
    bool known = seconds > 0 && peak > 0 && p->flops > 0;
    event->model_flops = p->flops;
    event->peak_flops = peak;
    event->tokens_per_second = p->tokens > 0 && seconds > 0 ? p->tokens / seconds : (double)NAN;
    event->mfu = known ? p->flops / seconds / peak : (double)NAN;
}

void sl_pace_print(const sl_pace *p, double seconds, FILE *out)
{
    sluice_event e;
    char rate[32];
    sl_pace_to_event(p, true, seconds, &e);
    if (!(seconds > 0)) return;
    fprintf(out, "expected: %s %s/s",
            sl_format_rate((p->tokens > 0 ? p->tokens : p->samples) / seconds, rate, sizeof rate),
            p->tokens > 0 ? "tokens" : "samples");
    if (isfinite(e.mfu)) fprintf(out, ", MFU %.1f %%", 100 * e.mfu);
    fputc('\n', out);
}

/* ---- the table ---- */

static void bytes_row(FILE *out, const char *name, uint64_t predicted, uint64_t measured)
{
    char a[32], b[32];
    fprintf(out, "  %-28s %14s %14s\n", name, sl_format_bytes(predicted, a, sizeof a),
            sl_format_bytes(measured, b, sizeof b));
}

static double mean_seconds(const sluice_engine *e, sl_segment_kind k)
{
    uint64_t runs = e->segment_runs[k];
    return runs > 1 ? e->segment_seconds[k] / (double)(runs - 1) : 0;
}

static void seconds_row(FILE *out, const sluice_engine *e, const char *name, sl_segment_kind k, int times)
{
    fprintf(out, "  %-28s %12.4g s %12.4g s\n", name, times * e->plan->segments[k].seconds, times * mean_seconds(e, k));
}

/* What the process took beyond its arenas. Pages of an arena that were never touched are not resident, so this is a
 * lower bound. Ranks of one machine share their arenas and see each other's pages, so there it is what is not
 * shared. */
static uint64_t outside_arenas(const sluice_engine *e)
{
    if (e->ranks->local > 1 && strcmp(e->ranks->comm->ops->name, "local") == 0) return sl_memory_own();
    uint64_t high = sl_memory_high_water(), arenas = e->plan->totals.peak[SL_TIER_HOST];
    if (!e->device.is_cuda) arenas += e->plan->totals.peak[SL_TIER_DEVICE];
    return high > arenas ? high - arenas : 0;
}

static void pace_rows(const sl_pace *p, double predicted, double measured, FILE *out)
{
    sluice_event before, after;
    char a[32], b[32];
    double units = p->tokens > 0 ? p->tokens : p->samples;
    if (!(predicted > 0 && measured > 0)) return;
    sl_pace_to_event(p, false, predicted, &before);
    sl_pace_to_event(p, false, measured, &after);
    fprintf(out, "  %-28s %12.4g s %12.4g s\n", "step", predicted, measured);
    fprintf(out, "  %-28s %14s %14s\n", p->tokens > 0 ? "tokens per second" : "samples per second",
            sl_format_rate(units / predicted, a, sizeof a), sl_format_rate(units / measured, b, sizeof b));
    if (isfinite(after.mfu))
        fprintf(out, "  %-28s %12.1f %% %12.1f %%\n", "model FLOPs utilization", 100 * before.mfu, 100 * after.mfu);
}

/* A GPU's work is queued, and awaited only where its result is read: of backward and update that is the norm. */
static void segment_rows(const sluice_engine *e, int micro_batches, FILE *out)
{
    const sl_segment *of = e->plan->segments;
    seconds_row(out, e, "forward in a step", SL_SEGMENT_FORWARD, micro_batches);
    if (e->device.is_cuda) {
        fprintf(out, "  %-28s %12.4g s %12.4g s\n", "backward and update",
                micro_batches * of[SL_SEGMENT_BACKWARD].seconds + of[SL_SEGMENT_UPDATE].seconds,
                micro_batches * mean_seconds(e, SL_SEGMENT_BACKWARD) + mean_seconds(e, SL_SEGMENT_UPDATE));
        return;
    }
    seconds_row(out, e, "backward in a step", SL_SEGMENT_BACKWARD, micro_batches);
    seconds_row(out, e, "update in a step", SL_SEGMENT_UPDATE, 1);
}

static void most_row(FILE *out, const char *title, uint64_t most, uint64_t measured)
{
    char bound[32], bytes[32];
    snprintf(bound, sizeof bound, "<= %s", sl_format_bytes(most, bytes, sizeof bytes));
    fprintf(out, "  %-28s %14s %14s\n", title, bound, sl_format_bytes(measured, bytes, sizeof bytes));
}

/* Of sparse tables: the plan knows the most that a step can touch. */
static void table_rows(const sl_run_totals *predicted, const sl_run_totals *measured, int ranks, FILE *out)
{
    char most[32], sent[32];
    if (predicted->table_rows == 0) return;
    snprintf(most, sizeof most, "<= %llu", (unsigned long long)predicted->table_rows);
    fprintf(out, "  %-28s %14s %14llu\n", "table rows in a step", most, (unsigned long long)measured->table_rows);
    most_row(out, "of tables, there and back", predicted->table_bytes, measured->table_bytes);
    if (ranks > 1)
        fprintf(out, "  %-28s %14s %14s\n", "of these between ranks", "",
                sl_format_bytes(measured->table_sent, sent, sizeof sent));
    if (predicted->table_disk_read == 0) return;
    most_row(out, "for them read from disk", predicted->table_disk_read, measured->table_disk_read);
    most_row(out, "for them written to disk", predicted->table_disk_written, measured->table_disk_written);
}

static void speculation_rows(const sluice_engine *e, FILE *out)
{
    if (e->plan->totals.speculating_layers == 0) return;
    fprintf(out, "  %-28s %14s %14llu\n", "steps on speculation", "", (unsigned long long)e->speculation.speculated);
    fprintf(out, "  %-28s %14s %14llu\n", "of these redone", "", (unsigned long long)e->speculation.rolled_back);
}

void sl_report_print(const sluice_engine *e, const sl_run_totals *predicted, const sl_run_totals *measured,
                     const sl_pace *pace, bool decodes, FILE *out)
{
    char title[64] = "after the run";
    int ranks = e->plan->options.rank_count;
    if (ranks > 1) snprintf(title, sizeof title, "after the run, %d ranks", ranks);
    fprintf(out, "%-30s %14s %14s\n", title, "predicted", "measured");
    for (int t = 0; t < SL_TIER_COUNT; t++) {
        if (!sl_tiers[t].in_memory && predicted->peak[t] == 0) continue;
        snprintf(title, sizeof title, "%s arena, peak", sl_tiers[t].name);
        bytes_row(out, title, predicted->peak[t], measured->peak[t]);
    }
    bytes_row(out, "outside the arenas", predicted->overhead, outside_arenas(e));
    if (e->device.is_cuda) {
        sl_device_stats stats;
        sl_exec_stats(e->exec, &stats, NULL);
        bytes_row(out, "outside the device arena", e->plan->options.device_overhead, stats.device_overhead);
    }
    for (int k = 0; k < SL_LINK_COUNT; k++) {
        const bool to_disk = !sl_tiers[sl_links[k].from].in_memory || !sl_tiers[sl_links[k].to].in_memory;
        if (to_disk && predicted->peak[SL_TIER_DISK] == 0) continue;
        snprintf(title, sizeof title, "%s in a step", sl_links[k].name);
        bytes_row(out, title, predicted->moved[k], measured->moved[k]);
    }
    if (ranks > 1) {
        bytes_row(out, "gathered in a step", predicted->gather, measured->gather);
        bytes_row(out, "reduced in a step", predicted->reduce, measured->reduce);
        bytes_row(out, "norm leaves in a step", predicted->norm, measured->norm);
    }
    table_rows(predicted, measured, ranks, out);
    speculation_rows(e, out);
    segment_rows(e, e->plan->options.accumulation, out);
    fprintf(out, "  %-28s %14s %12.4g s\n", "waiting for data", "", measured->data_seconds);
    pace_rows(pace, predicted->seconds, measured->seconds, out);
    fprintf(out, "  planned in %.3g s, memory reserved in %.3g s; no memory was allocated or freed in a step%s\n",
            e->plan_seconds, e->reserve_seconds, decodes ? ", but for decoding files" : "");
}

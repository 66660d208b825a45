/* auto_report.c: what a search over "auto" found, for people. */
#include <math.h>

#include "core/bytes.h"
#include "train/auto_search.h"
#include "train/totals.h"

const char *sl_auto_verdict(const sl_auto_result *found, int index, char *out, size_t bytes)
{
    char size[32];
    const sl_auto_candidate *c = &found->tried[index];
    const sl_auto_candidate *best = found->chosen >= 0 ? &found->tried[found->chosen] : NULL;
    double more = best != NULL && c->fits ? 100 * (c->seconds / best->seconds - 1) : 0;
    if (index == found->chosen)
        snprintf(out, bytes, found->tuned ? "chosen: measured before" : "chosen");
    else if (!c->fits && c->lacks > 0)
        snprintf(out, bytes, "does not fit: lacks %s", sl_format_bytes(c->lacks, size, sizeof size));
    else if (!c->fits)
        snprintf(out, bytes, "does not fit");
    else if (fabs(more) < 0.05)
        snprintf(out, bytes, "as fast");
    else
        snprintf(out, bytes, more < 0 ? "%.1f %% faster, which is too little to matter" : "%.1f %% slower", fabs(more));
    return out;
}

static void print_row(const sl_auto_result *found, int index, FILE *out)
{
    const sl_auto_candidate *c = &found->tried[index];
    char name[128], device[32] = "", host[32] = "", seconds[32] = "", verdict[96];
    if (c->fits) {
        sl_format_bytes(c->peak[SL_TIER_DEVICE], device, sizeof device);
        sl_format_bytes(c->peak[SL_TIER_HOST], host, sizeof host);
        snprintf(seconds, sizeof seconds, "%.4g s", c->seconds);
    }
    fprintf(out, "  %-34s %12s %12s %12s  %s\n", sl_arrangement_describe(&c->arrangement, name, sizeof name), seconds,
            device, host, sl_auto_verdict(found, index, verdict, sizeof verdict));
}

void sl_auto_print(const sl_auto_result *found, int most, FILE *out)
{
    int order[SL_AUTO_MOST];
    if (found->plain)
        fprintf(out, "auto: plain training is best: all of it fits on the device, %s\n",
                found->ranks > 1 ? "and dividing it among the ranks is not expected to be faster"
                                 : "so that nothing is moved or computed twice");
    if (found->count < 2) return;
    sl_auto_order(found, order);
    fprintf(out, "auto: %-30s %12s %12s %12s\n", "arrangements that were planned", "step", "device", "host");
    for (int i = 0; i < found->count && i <= most; i++) print_row(found, order[i], out);
    if (found->count > most + 1) fprintf(out, "  and %d more; --notes tells all\n", found->count - most - 1);
}

sluice_status sl_auto_to_event(const sl_auto_result *found, sl_candidate_list *list, sluice_event *event)
{
    size_t at[SL_AUTO_MOST];
    int order[SL_AUTO_MOST];
    list->texts = (sl_text){ .data = NULL };
    sl_auto_order(found, order);
    for (int i = 0; i < found->count; i++) {
        const sl_auto_candidate *c = &found->tried[order[i]];
        at[i] = list->texts.bytes;
        sl_arrangement_write(&c->arrangement, &list->texts);
        sl_text_add_bytes(&list->texts, "", 1);
        list->of[i] = (sluice_candidate){ .chosen = order[i] == found->chosen,
                                          .fits = c->fits,
                                          .step_seconds = c->seconds,
                                          .measured_seconds = c->measured,
                                          .peak = sl_totals_memory(c->peak),
                                          .lacks = c->lacks };
    }
    SL_TRY(sl_text_status(&list->texts));
    for (int i = 0; i < found->count; i++) list->of[i].settings = list->texts.data + at[i];
    event->candidates = list->of;
    event->candidate_count = found->count;
    return SLUICE_OK;
}

void sl_candidate_list_free(sl_candidate_list *list)
{
    sl_text_free(&list->texts);
}

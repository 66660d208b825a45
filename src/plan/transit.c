/* transit.c: how long offloaded activations stay on the device after their forward, and how early they come back.
 *
 * Where the link takes longer for what a layer sends than the device takes to compute one, copies fall behind forward, and
 * in backward they must begin well before their layer does. Nothing has to wait for them as long as there is memory: what
 * leaves keeps its bytes until it is gone, and what comes back is fetched as late as it may be to be there in time. The
 * memory for both is there anyway, since forward fills it layer by layer and backward empties it: no position is given more
 * to hold than fits, beside what it needs itself, into what the fullest one needs. So none of this should raise the peak,
 * and a placement that keeps nothing on the device waits for the link, as it must. Without prefetching, which is for those
 * that have no byte to spare, everything leaves and comes back at its own position.
 *
 * Bytes and times are estimates from the graph and the rates; peaks and clocks of the plan judge what comes of them. */
#include <math.h>

#include "core/alloc.h"
#include "plan/passes.h"

#define MOST_AHEAD 64 /* positions that something stays behind its own or comes back before it */

/* A position in one step. */
typedef struct part {
    uint64_t sent;              /* bytes that leave the device after forward and come back for backward */
    uint64_t kept;              /* bytes that this one and those before it keep there */
    uint64_t forward, backward; /* bytes that it needs beside these while it computes */
    uint64_t held;              /* bytes of others that are on their way out, or back, meanwhile */
    double ends;                /* seconds from the beginning of forward to its end */
    double begins;              /* seconds from the beginning of backward to its own */
    double to_host, to_device;  /* seconds of the link for what it sends, and for all that it needs back */
} part;

static double link_seconds(const sl_plan *p, sl_link link, uint64_t bytes)
{
    return bytes == 0 ? 0 : (double)bytes / p->machine.link_bytes_per_second[link];
}

static void weigh(const sl_plan *p, const sl_usage *u, int i, part *t)
{
    const sl_layer_load *load = &sl_plan_loads(p)[i];
    const sl_layer_place *place = &p->layers[u->order[i]];
    const bool again = sl_is_recomputed(place), disk = place->offloaded == SL_TIER_DISK;
    const bool leaves = place->activations == SL_ACT_OFFLOAD || place->activations == SL_ACT_RECOMPUTE_OFFLOAD;
    uint64_t bytes = load->saved - (place->cheap ? u->cheap_bytes[u->order[i]] : 0), weights = 0;
    if (again) bytes = place->group_last == i ? load->outputs : 0;
    if (place->parameters != SL_TIER_DEVICE)
        weights = sl_plan_form_bytes(p, (sl_form)p->graph->precision, u->order[i], false);
    t->sent = leaves ? bytes : 0;
    t->kept = leaves ? 0 : bytes;
    t->forward = load->saved - t->kept;
    t->backward = load->saved - t->kept + load->working;
    t->to_host = link_seconds(p, disk ? SL_LINK_DISK_WRITE : SL_LINK_TO_HOST, t->sent);
    t->to_device = link_seconds(p, disk ? SL_LINK_DISK_READ : SL_LINK_TO_DEVICE, t->sent) +
                   link_seconds(p, SL_LINK_TO_DEVICE, weights);
}

static void weigh_all(const sl_plan *p, const sl_usage *u, part *parts)
{
    const sl_layer_load *loads = sl_plan_loads(p);
    double now = 0;
    for (int i = 0; i < u->order_count; i++) {
        weigh(p, u, i, &parts[i]);
        if (i > 0) parts[i].kept += parts[i - 1].kept;
        parts[i].ends = now += loads[i].forward;
    }
    now = 0;
    for (int i = u->order_count - 1; i >= 0; i--) {
        const sl_layer_place *place = &p->layers[u->order[i]];
        parts[i].begins = now;
        now += loads[i].backward;
        if (sl_is_recomputed(place)) now += loads[i].forward - loads[i].spared;
        if (place->cheap) now += loads[i].cheap;
    }
}

/* Bytes of the fullest position. */
static uint64_t find_limit(const part *parts, int count)
{
    uint64_t most = 0;
    for (int i = 0; i < count; i++)
        if (parts[i].kept + parts[i].backward > most) most = parts[i].kept + parts[i].backward;
    return most;
}

static void find_until(part *parts, int count, uint64_t limit, sl_transit *out)
{
    double gone = 0;
    for (int i = 0; i < count; i++) {
        if (parts[i].sent == 0) continue;
        gone = fmax(gone, parts[i].ends) + parts[i].to_host;
        for (int k = i + 1; k < count && k <= i + MOST_AHEAD && parts[k - 1].ends < gone; k++) {
            if (parts[k].kept + parts[k].forward + parts[k].held + parts[i].sent > limit) break;
            parts[k].held += parts[i].sent;
            out[i].until = k;
        }
    }
}

static bool has_room(const part *at, uint64_t bytes, uint64_t limit)
{
    return at->kept + at->backward + at->held + bytes <= limit;
}

/* Layers come back in the order of backward, the later ones first: each as late as it, and then those before it, can be
 * there in time, but at least `prefetch` positions ahead. What the layer behind reads of one's results must be there a layer
 * earlier. */
static void find_from(part *parts, int count, uint64_t limit, int prefetch, sl_transit *out)
{
    double latest = INFINITY;
    for (int i = 0; i < count; i++) parts[i].held = 0;
    for (int i = 0; i < count; i++) {
        const int least = i + prefetch < count ? i + prefetch : count - 1;
        const int most = i + MOST_AHEAD < count ? i + MOST_AHEAD : count - 1;
        int from = i;
        latest = fmin(latest, parts[i + 1 < count ? i + 1 : i].begins) - parts[i].to_device;
        while (from < least ||
               (from < most && parts[from].begins > latest && has_room(&parts[from + 1], parts[i].sent, limit)))
            parts[++from].held += parts[i].sent;
        out[i].from = i > 0 && out[i - 1].from > from ? out[i - 1].from : from;
    }
}

sluice_status sl_plan_transit(const sl_plan *p, const sl_usage *u, int prefetch, sl_transit *out)
{
    const int count = u->order_count;
    for (int i = 0; i < count; i++) out[i] = (sl_transit){ i, i };
    if (prefetch == 0) return SLUICE_OK;
    part *parts = sl_alloc_array((size_t)count + 1, sizeof *parts, "plan: transit of activations");
    if (parts == NULL) return SLUICE_ERR_NO_MEMORY;
    weigh_all(p, u, parts);
    const uint64_t limit = find_limit(parts, count);
    find_until(parts, count, limit, out);
    find_from(parts, count, limit, prefetch, out);
    sl_free(parts);
    return SLUICE_OK;
}

/* ledger.h: what a device was handed, counted independently of any plan (exact rule 9), and the check that it was
 * handed nothing outside its arenas. Shared by the backends. One thread submits, so nothing here is locked; only
 * sl_ledger_transfer may be called by others beside it, and the peak is atomic for that. */
#ifndef SL_BACKEND_LEDGER_H
#define SL_BACKEND_LEDGER_H

#include <stdatomic.h>

#include "backend/backend.h"

typedef struct sl_ledger {
    uint64_t reserved[SL_TIER_COUNT];
    bool is_reserved[SL_TIER_COUNT];
    int event_count; /* -1 before sl_ledger_events */
    _Atomic uint64_t observed_peak[SL_TIER_COUNT];
    sl_device_stats stats; /* all but the peak */
} sl_ledger;

void sl_ledger_init(sl_ledger *l);
/* Each tier and the events once. SLUICE_ERR_FAILED otherwise. */
sluice_status sl_ledger_reserve(sl_ledger *l, sl_tier tier, uint64_t bytes);
sluice_status sl_ledger_events(sl_ledger *l, int event_count);
/* Check, then count. A span beyond its arena, a shape larger than its span, an unknown stream or event:
 * SLUICE_ERR_FAILED, naming op, span and arena, and nothing is counted. */
sluice_status sl_ledger_call(sl_ledger *l, sl_stream stream, const sl_call *call);
sluice_status sl_ledger_copy(sl_ledger *l, sl_stream stream, sl_span dst, sl_span src);
sluice_status sl_ledger_transfer(sl_ledger *l, const char *what, sl_span span); /* upload, download, resolve */
sluice_status sl_ledger_event(const sl_ledger *l, sl_stream stream, int event);
sluice_status sl_ledger_stream(sl_stream stream);
void sl_ledger_stats(const sl_ledger *l, sl_device_stats *out);

#endif

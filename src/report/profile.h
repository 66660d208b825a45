/* profile.h: one training step of a plan as a document: what ran when, what lay where, what each layer costs.
 *
 * A run leaves it as profile.json in its folder; `sluice plan --report` makes it without running. The page (page.h) is
 * made from the document alone. Its size is bounded: where a step has more operations than can be told apart, short
 * neighbours are told together, and the totals stay exact. docs/report.md lists the members. */
#ifndef SL_REPORT_PROFILE_H
#define SL_REPORT_PROFILE_H

#include "core/run_names.h"
#include "format/text_buffer.h"
#include "runtime/trace.h"

#define SL_PROFILE_VERSION 1

/* A step of more operations is not traced for a profile: the trace would take memory that nobody planned for. */
#define SL_PROFILE_STEPS ((int64_t)1 << 16)

typedef struct sl_profile_source {
    const sl_plan *plan;
    const sl_trace *trace;     /* NULL: nothing was run, the plan's expectation is all there is */
    const char *device;        /* for people: "NVIDIA H200", "CPU (avx512)" */
    const char *configuration; /* a JSON object: every key with its value; NULL: not known */
    const char *why_predicted; /* without a trace: why there are no measured times; NULL: nothing was run yet */
    int threads;
} sl_profile_source;

/* The document as JSON. */
sluice_status sl_profile_write(const sl_profile_source *s, sl_text *out);

/* Whether a step of this plan is short enough to be traced for a profile. */
bool sl_profile_traces(const sl_plan *p);

/* ---- its parts ---- */

/* "layers.3 activations"; of a step "linear layers.3", "copy of parameters layers.3". */
void sl_profile_step_name(const sl_plan *p, const sl_step *s, char *out, size_t bytes);
void sl_profile_buffer_name(const sl_plan *p, const sl_buffer *b, char *out, size_t bytes);
/* ,"memory":[...]: what is live on each tier over the step. */
sluice_status sl_profile_add_memory(const sl_trace *t, bool measured, sl_text *out);
/* A number of seconds; null where it is infinite, which JSON cannot say. */
void sl_profile_add_seconds(sl_text *out, double seconds);

#endif

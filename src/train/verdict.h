/* verdict.h: a plan in one sentence: whether it fits, how full memory is, how fast it runs, what limits it. */
#ifndef SL_TRAIN_VERDICT_H
#define SL_TRAIN_VERDICT_H

#include "train/job.h"

typedef struct sl_plan_verdict {
    bool fits;
    /* Bytes of one rank by tier, with what lies outside the arenas; where device and host are one memory, all of it is the
     * host's. Of what does not fit, the least that any placement needs. */
    uint64_t needs[SL_TIER_COUNT];
    uint64_t has[SL_TIER_COUNT]; /* of the memory there is, or that a setting gives */
    uint64_t can[SL_TIER_COUNT]; /* of that, what a plan may use */
    const char *limit;           /* "the GPU", "the CPU update", ...; NULL: not known */
    char text[512];              /* the sentence */
} sl_plan_verdict;

/* Of the job's plan, which takes so many seconds a step. */
void sl_verdict_of_plan(const sl_job *j, const sl_run_totals *predicted, const sl_pace *pace, sl_plan_verdict *out);
/* Of a job whose engine was refused (j->refusal). */
void sl_verdict_of_refusal(const sl_job *j, sl_plan_verdict *out);
/* The same in an event, which borrows the text. */
void sl_verdict_to_event(const sl_plan_verdict *v, sluice_event *event);

#endif

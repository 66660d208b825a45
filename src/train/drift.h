/* drift.h: whether the steps of a run still take as long as they used to. */
#ifndef SL_TRAIN_DRIFT_H
#define SL_TRAIN_DRIFT_H

#define SL_DRIFT_STEPS   16  /* that are judged together, by their median: single slow steps mean nothing, */
#define SL_DRIFT_SECONDS 5.0 /* after at least so long: a machine is busy for a moment now and then */

typedef enum {
    SL_DRIFT_NONE,
    SL_DRIFT_UNEXPECTED, /* the first steps take far longer than the plan said */
    SL_DRIFT_SLOWER,     /* the newest take far longer than those before */
} sl_drift_kind;

typedef struct sl_drift {
    double seconds[SL_DRIFT_STEPS]; /* of the newest steps, in a ring */
    int count;                      /* since they were judged last */
    double elapsed;                 /* likewise, seconds */
    double usual;                   /* of a step; 0: not known yet */
    double told;                    /* the slowest that SL_DRIFT_SLOWER was said of; 0: of none */
} sl_drift;

/* Takes a step into account, and judges the newest ones after `least` seconds of them. `expected` is the plan's, 0: nobody
 * trusts it. What is found is told once: from then on it is the usual. On a machine that others use steps become slower and
 * faster all the time: they are told of again only where they are far slower than anything told before. */
sl_drift_kind sl_drift_observe(sl_drift *d, double seconds, double expected, double least);
/* Steps have become other ones, of larger batches. */
void sl_drift_forget(sl_drift *d);

#endif

/* phase.h: how far a long piece of work is, told to whoever asked for it.
 *
 * Work that may take seconds (filling, reading, hashing) is an activity: begun, told of as it goes, ended. The receiver hears
 * of the beginning, of at most ten places a second on the way, and of the end, always from the thread that began it. */
#ifndef SL_CORE_PHASE_H
#define SL_CORE_PHASE_H

#include <stdbool.h>
#include <stdint.h>

/* What an activity is told as; `name` is one of docs/formats.md's. */
typedef struct sl_activity_note {
    const char *name;
    uint64_t done, total; /* of what it counts: weights, bytes; total 0: it is not known */
    double seconds;       /* since its beginning */
    bool over;
} sl_activity_note;

typedef struct sl_progress {
    void (*fn)(void *user, const sl_activity_note *note); /* NULL: nobody listens */
    void *user;
} sl_progress;

typedef struct sl_activity {
    const sl_progress *progress; /* borrowed; NULL: nobody listens */
    const char *name;
    uint64_t total;
    double start, told;
} sl_activity;

void sl_activity_begin(sl_activity *p, const sl_progress *progress, const char *name, uint64_t total);
/* Cheap: may be called a thousand times a second. */
void sl_activity_at(sl_activity *p, uint64_t done);
/* After success only: what failed has a message of its own. Returns the seconds it took. */
double sl_activity_end(sl_activity *p);

#endif

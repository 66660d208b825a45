/* windows.h: a sequence of tokens cut into samples; private to data/.
 *
 * Training reads non-overlapping windows whose grid is shifted by a random phase in every epoch, so an epoch sees each token
 * about once and yet every cut is tried in time; the number of windows is the same for every phase, so epochs are found by
 * division. Evaluation reads windows from the first token on, which predict each token but the first exactly once. */
#ifndef SL_DATA_WINDOWS_H
#define SL_DATA_WINDOWS_H

#include "data/source.h"

#define SL_MAX_CONTEXT ((int64_t)1 << 30)

typedef struct sl_windows {
    int64_t tokens; /* to train on */
    int64_t context;
    bool shuffle;
    uint64_t seed;
    int64_t windows; /* of an epoch */
    int64_t phases;  /* starts of the grid: [0, phases) */
} sl_windows;

/* Whether a context is one; SLUICE_ERR_USAGE. */
sluice_status sl_windows_check_context(int64_t context);
/* Whether a part ("training", "validation") of `tokens` units ("bytes") has at least one whole window. */
sluice_status sl_windows_check(const char *path, const char *part, int64_t tokens, const char *unit, int64_t context);
/* Finds windows and phases from the other fields. */
void sl_windows_lay_out(sl_windows *w);
/* First token of sample `number` of the endless sequence. It has context + 1 tokens: the last is a target alone. */
int64_t sl_windows_start(const sl_windows *w, uint64_t number);
/* How many windows evaluate `tokens` tokens. */
int64_t sl_windows_of_evaluation(int64_t tokens, int64_t context);

#endif

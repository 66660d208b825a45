/* patience.h: how a thread waits for a word that the GPU or another thread writes. It looks again and again for some
 * microseconds, the usual gap between two pieces of a step, and then sleeps between two looks. */
#ifndef SL_BACKEND_CUDA_PATIENCE_H
#define SL_BACKEND_CUDA_PATIENCE_H

#include <stdbool.h>
#include <time.h>

#include "core/thread.h"

#define SL_SPIN_SECONDS      20e-6
#define SL_NAP_NANOSECONDS   30000 /* the kernel adds up to 50 us, less in threads that asked for it */
#define SL_LOOK_AFTER_ROUNDS 32    /* naps between two looks at whether the device is alive */

typedef struct sl_patience {
    double start; /* 0: not yet waiting */
    int naps;
} sl_patience;

/* Waits a little. True now and then: time to look whether what is waited for can still come. */
static inline bool sl_patience_wait(sl_patience *p)
{
    double now = sl_now();
    if (p->start == 0) p->start = now;
    if (now - p->start < SL_SPIN_SECONDS) {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
        return false;
    }
    nanosleep(&(struct timespec){ .tv_nsec = SL_NAP_NANOSECONDS }, NULL);
    return ++p->naps % SL_LOOK_AFTER_ROUNDS == 0;
}

#endif

/* spin_wait.h: how a thread waits for a word that the GPU or another thread writes: it spins for some microseconds, the
 * usual gap between two operations of a step, and sleeps between two polls from then on. There is no deadline here:
 * whoever waits checks now and then whether the device still works. */
#ifndef SL_BACKEND_CUDA_SPIN_WAIT_H
#define SL_BACKEND_CUDA_SPIN_WAIT_H

#include <stdbool.h>
#include <time.h>

#include "core/thread.h"

#define SL_SPIN_SECONDS      20e-6
#define SL_SLEEP_NANOSECONDS 30000 /* the kernel adds up to 50 us, less in threads that asked for it */
#define SL_SLEEPS_PER_CHECK  32    /* sleeps between two checks whether the device is alive */

typedef struct sl_spin_wait {
    double start; /* 0: not yet waiting */
    int sleeps;
} sl_spin_wait;

/* One pause between two polls. True once every SL_SLEEPS_PER_CHECK sleeps: time to check whether the device is alive. */
static inline bool sl_spin_wait_once(sl_spin_wait *w)
{
    double now = sl_now();
    if (w->start == 0) w->start = now;
    if (now - w->start < SL_SPIN_SECONDS) {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
        return false;
    }
    nanosleep(&(struct timespec){ .tv_nsec = SL_SLEEP_NANOSECONDS }, NULL);
    return ++w->sleeps % SL_SLEEPS_PER_CHECK == 0;
}

#endif

/* rounds.h: the ranks of a job act as one.
 *
 * Each step of a save or a load can fail on one rank alone: its disk is full, its memory short. Then all must fail,
 * with the message of that one, and none may be left waiting. So every step ends in an agreement (comm/agree.h). A
 * communicator takes a rank for lost that says nothing until a deadline; work without a known end (writing a data file)
 * therefore goes in rounds of a fraction of a second, between which the ranks exchange how far they are.
 *
 * `comm` NULL, or of one rank: the work is done, nothing is said. */
#ifndef SL_CHECKPOINT_ROUNDS_H
#define SL_CHECKPOINT_ROUNDS_H

#include <pthread.h>
#include <stdbool.h>

#include "comm/agree.h"
#include "core/status.h"

/* A small part of some work; sets *done after the last. Not called again after that or after a failure. */
typedef sluice_status (*sl_round_fn)(void *user, bool *done);
/* Repeats `next` until it is done on every rank, or has failed on one; agrees as sl_agree does. */
sluice_status sl_rounds(sl_comm *comm, const char *what, sl_round_fn next, void *user);

/* Work with file system calls alone (no communication, no device) that cannot be cut in small parts: runs in a thread
 * while the ranks stay in touch. NULL: this rank has nothing to do but wait for the others. */
sluice_status sl_together(sl_comm *comm, const char *what, sluice_status (*work)(void *user), void *user);

/* Rank 0's bytes on every rank. */
sluice_status sl_share(sl_comm *comm, const char *what, void *data, size_t bytes);

/* A thread for one piece of work. It takes no signals. */
typedef struct sl_background {
    sluice_status (*work)(void *user);
    void *user;
    pthread_t thread;
    bool started;
    pthread_mutex_t lock; /* of the rest */
    pthread_cond_t finished;
    bool done;
    sluice_status status;
    char message[SL_MESSAGE_BYTES]; /* where status is not SLUICE_OK */
} sl_background;

/* b stays where it is until the end. A thread that cannot be started is a failure of its work. */
void sl_background_start(sl_background *b, sluice_status (*work)(void *user), void *user);
bool sl_background_done(sl_background *b);
/* An sl_round_fn: waits for a round at most; when done, its status and message are those of the work. */
sluice_status sl_background_wait(void *background, bool *done);
/* Waits to the end. */
void sl_background_end(sl_background *b);

#endif

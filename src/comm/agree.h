/* agree.h: all ranks come to the same outcome.
 *
 * What can fail on one rank alone (its disk is full, its memory short) would leave the others waiting for it. So it is
 * followed by an exchange of outcomes, after which every rank returns the same status with the same message. All ranks
 * make these calls, in the same order, with the same `what`.
 *
 * The message is that of the lowest rank that failed. It names the rank ("on rank 2: open data.txt: ...") unless all
 * ranks failed in the same words. */
#ifndef SL_COMM_AGREE_H
#define SL_COMM_AGREE_H

#include "comm/comm.h"

/* True where there are other ranks to talk to; false for NULL. */
bool sl_has_peers(const sl_comm *comm);

/* Each rank gives its own status and gets the common one: SLUICE_OK where all have it. */
sluice_status sl_agree(sl_comm *comm, const char *what, sluice_status mine);

typedef struct sl_agreement {
    bool done;   /* all ranks say that they are done */
    bool shared; /* the failure returned is known to all ranks, and each of them returns it */
} sl_agreement;

/* The same for work in parts: `done` says that this rank has no more of it. *out is set in any case. Up to 256 ranks
 * agree without allocating: they must be able to when there is no memory. Where the exchange itself fails, a rank that
 * had failed before returns its own failure, the others that of the exchange. */
sluice_status sl_agree_in_part(sl_comm *comm, const char *what, sluice_status mine, bool done, sl_agreement *out);

#endif

/* ranks.h: how the ranks of a job come to the same decisions: they fail together, and compare what must be equal. */
#ifndef SL_MACHINE_RANKS_H
#define SL_MACHINE_RANKS_H

#include "comm/comm.h"
#include "machine/machine_place.h"

typedef struct sl_ranks {
    sl_comm *comm;
    bool owned; /* opened here, for a job of one rank */
    int rank, count;
    int local;              /* ranks on this machine, this one included */
    int local_rank;         /* how many of them come before this one */
    sl_rank_place place;    /* of this rank on it */
    bool failed_everywhere; /* every rank has the failure at hand and returns it: nobody needs to be told */
} sl_ranks;

#define SL_HOST_BYTES 128

/* Names this machine and the boot of it; ranks with the same text share CPUs and memory. */
void sl_ranks_host(char out[SL_HOST_BYTES]);
/* All ranks. world NULL: a job of one rank. Zero the struct first; close it also after a failure. */
sluice_status sl_ranks_open(sl_comm *world, sl_ranks *out);
void sl_ranks_close(sl_ranks *r);
/* All ranks, each with the status of what it just did: SLUICE_OK when all have it. Otherwise the failure of the lowest
 * rank that has one, on every rank, its message naming that rank unless all say the same. */
sluice_status sl_ranks_agree(sl_ranks *r, const char *what, sluice_status status);
/* All ranks: whether `text`, lines of "key: value", is the same everywhere. SLUICE_ERR_RANK shows the first line that
 * differs, with both values. `what` names the whole ("configuration"). */
sluice_status sl_ranks_same(sl_ranks *r, const char *what, const char *text);
/* To be called with a failure before it is returned to a caller who may not come back: the other ranks stop at their
 * next call instead of waiting for this one. Returns `status`. */
sluice_status sl_ranks_failed(sl_ranks *r, sluice_status status);
/* For calls in which all ranks fail together, as those of checkpoints do: nobody needs to be told. Returns `status`. */
sluice_status sl_ranks_together(sl_ranks *r, sluice_status status);
/* The least of all ranks' values. */
sluice_status sl_ranks_least(sl_ranks *r, const char *what, uint64_t mine, uint64_t *least);

#endif

/* agree.c: see agree.h. First every rank's status, in a few bytes; the message follows only where one failed. */
#include "comm/agree.h"

#include <string.h>

#include "core/alloc.h"
#include "core/hash.h"

/* So many ranks agree without asking for memory. */
#define FEW_RANKS 256

/* What a rank says. */
typedef struct outcome {
    int32_t status;
    int32_t done;
    uint64_t message; /* hash of it; 0 with SLUICE_OK */
} outcome;

bool sl_has_peers(const sl_comm *comm)
{
    return comm != NULL && comm->ops->size(comm) > 1;
}

/* The message of rank `first`, which failed, becomes everyone's. */
static sluice_status adopt_failure(sl_comm *comm, const char *what, const outcome *all, int first, char *message)
{
    sluice_status status = (sluice_status)all[first].status;
    bool unanimous = true;
    for (int r = 0; r < comm->ops->size(comm); r++)
        unanimous = unanimous && all[r].status == all[first].status && all[r].message == all[first].message;
    if (unanimous) return sl_fail(status, "%s", message);
    SL_TRY(comm->ops->broadcast(comm, what, first, message, SL_MESSAGE_BYTES));
    message[SL_MESSAGE_BYTES - 1] = '\0';
    return sl_fail(status, "on rank %d: %s", first, message);
}

/* Exchanges outcomes through `all`, one for each rank. */
static sluice_status meet(sl_comm *comm, const char *what, sluice_status mine, bool done, outcome *all,
                          sl_agreement *out)
{
    int size = comm->ops->size(comm);
    char message[SL_MESSAGE_BYTES];
    sl_error_copy(message); /* calls below may replace it */
    outcome said = { (int32_t)mine, done, mine != SLUICE_OK ? sl_hash_text(message) : 0 };
    sluice_status st = comm->ops->exchange(comm, what, &said, sizeof said, all);
    if (st != SLUICE_OK) return mine != SLUICE_OK ? sl_fail(mine, "%s", message) : st;
    out->done = true;
    for (int r = 0; r < size; r++) {
        out->done = out->done && all[r].done != 0;
        if (all[r].status == SLUICE_OK) continue;
        *out = (sl_agreement){ .shared = true };
        return adopt_failure(comm, what, all, r, message);
    }
    return SLUICE_OK;
}

sluice_status sl_agree_in_part(sl_comm *comm, const char *what, sluice_status mine, bool done, sl_agreement *out)
{
    outcome few[FEW_RANKS];
    *out = (sl_agreement){ .done = done };
    if (!sl_has_peers(comm)) return mine;
    out->done = false;
    if (comm->ops->size(comm) <= FEW_RANKS) return meet(comm, what, mine, done, few, out);
    outcome *all = sl_alloc_array((size_t)comm->ops->size(comm), sizeof *all, "outcomes of the ranks");
    if (all == NULL) {
        comm->ops->abort(comm, sluice_error()); /* cannot even listen: the others learn it at their next call */
        return SLUICE_ERR_NO_MEMORY;
    }
    sluice_status st = meet(comm, what, mine, done, all, out);
    sl_free(all);
    return st;
}

sluice_status sl_agree(sl_comm *comm, const char *what, sluice_status mine)
{
    sl_agreement all;
    return sl_agree_in_part(comm, what, mine, true, &all);
}

/* comm.h: what ranks say to each other. Collectives follow the plan: each carries its sequence number and byte count
 * and is checked on arrival. One rank needs no words (self.c). */
#ifndef SL_COMM_COMM_H
#define SL_COMM_COMM_H

#include "backend/backend.h"

typedef struct sl_comm sl_comm;

typedef struct sl_comm_stats {
    uint64_t gather_bytes, reduce_bytes; /* sent by this rank since the comm was opened */
} sl_comm_stats;

typedef struct sl_comm_ops {
    const char *name;
    void (*close)(sl_comm *c);
    int (*rank)(const sl_comm *c);
    int (*size)(const sl_comm *c);
    /* Each rank's shard -> the whole on every rank. */
    sluice_status (*gather)(sl_comm *c, uint64_t sequence, sl_device *d, sl_span whole, sl_span shard);
    /* Contributions of all ranks, added in rank order to the owner's accumulator. */
    sluice_status (*reduce_scatter)(sl_comm *c, uint64_t sequence, sl_device *d, sl_span accumulator,
                                    sl_span contribution);
    sluice_status (*all_reduce)(sl_comm *c, uint64_t sequence, sl_device *d, sl_span data);
    sluice_status (*barrier)(sl_comm *c, uint64_t sequence);
    void (*stats)(const sl_comm *c, sl_comm_stats *out);
} sl_comm_ops;

struct sl_comm {
    const sl_comm_ops *ops;
};

/* A job of one rank. Collectives over one rank are the identity: the plan emits none, and a call says so as an error.
 */
sluice_status sl_comm_self_open(sl_comm **out);

#endif

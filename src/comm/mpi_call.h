/* mpi_call.h: the head that ranks compare before they move the bytes of a call.
 *
 * It crosses machines as it lies in memory: all ranks run the same build on the same byte order, which the first call
 * of a job compares. */
#ifndef SL_COMM_MPI_CALL_H
#define SL_COMM_MPI_CALL_H

#include "comm/comm.h"

/* Kinds of control calls, after those of collectives. */
enum { SL_CALL_EXCHANGE = SL_GATHER_NORM + 1, SL_CALL_BROADCAST, SL_CALL_COLLECT, SL_CALL_BARRIER, SL_CALL_KIND_COUNT };

typedef struct sl_comm_call {
    uint64_t number;    /* collectives: the plan's sequence; control calls: counted from 1 */
    uint64_t bytes;     /* of the whole */
    uint64_t layout;    /* hash of everything else that must agree: cuts, root, lengths */
    uint64_t name_hash; /* of the whole name, which may be longer than the text below */
    int64_t kind;
    char name[88];
} sl_comm_call;

sl_comm_call sl_comm_call_make(int kind, const char *name, uint64_t number, uint64_t bytes, uint64_t layout);
/* The head of a collective: its bytes and cuts. */
sl_comm_call sl_comm_call_of(const sl_collective *collective, uint64_t sequence, bool first);
/* Whether another rank makes the same call; otherwise `text` says what each of the two does. */
bool sl_comm_call_same(const sl_comm_call *mine, int my_rank, const sl_comm_call *theirs, int their_rank, char *text,
                       size_t text_bytes);
/* "collective 7, gather of h.3", or the name alone of a control call. */
void sl_comm_call_title(const sl_comm_call *call, char *text, size_t text_bytes);

#endif

/* ahead.h: threads that fill the next micro-batches while a step computes.
 *
 * A data set around another one: it is asked for the same micro-batches and gives the same bytes, with any number of threads, because
 * what a micro-batch holds follows from its index alone (data.h). It knows which will be asked for next: a rank asks for every
 * stride-th. A few are being filled at any time, cut into pieces of rows that threads take one after the other. Asked for another one
 * than expected, as after an evaluation, it begins there.
 *
 * A failure belongs to the micro-batch it happened in: it is told when that is asked for, each time, and of several the one of the
 * first row. Threads look at nothing but the data set, which must bear several at a time (sl_fill_effort). */
#ifndef SL_DATA_AHEAD_H
#define SL_DATA_AHEAD_H

#include "data/data.h"

typedef struct sl_ahead_options {
    int workers; /* threads; at least 1 */
    int stride;  /* ranks: this one asks for micro-batch i, i + stride, ... */
    int64_t rows;
    const sl_data_field *fields; /* that will be asked for; copied, buffers are not looked at */
    int field_count;
} sl_ahead_options;

/* Takes `inner` over where it succeeds. Requests for other rows or fields go to `inner` as they are. */
sluice_status sl_data_ahead(sluice_data *inner, const sl_ahead_options *o, sluice_data **out);
/* Fills as sl_data_ops.fill of such a data set would, but copies nothing: where a micro-batch waits in a buffer of its own, that takes
 * the place of fields[i].buffer, which is filled in its turn. All of them are of sl_alloc, and who holds one in the end frees it. */
sluice_status sl_ahead_exchange(sluice_data *d, uint64_t index, int64_t rows, sl_data_field *fields, int field_count);
/* Visits the buffers that it holds at the moment. */
void sl_ahead_each_buffer(sluice_data *d, void (*visit)(void *user, void *buffer, size_t bytes), void *user);
/* Bytes that it takes beside `inner`, whose micro-batches have `batch_bytes`; sl_data_ops.memory_bytes of the result counts them
 * too. */
uint64_t sl_ahead_bytes(uint64_t batch_bytes);

#endif

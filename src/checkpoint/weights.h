/* weights.h: weights of a state to a safetensors file, all of them or a run of them. */
#ifndef SL_CHECKPOINT_WEIGHTS_H
#define SL_CHECKPOINT_WEIGHTS_H

#include "checkpoint/gather.h"
#include "format/safetensors.h"

/* Begins a file with the weights among tensors [begin, end) of the state and gives it their values. What remains is to
 * finish or to abort the writer. */
sluice_status sl_weights_write(sl_gather *g, int64_t begin, int64_t end, const char *path, sl_st_writer **out);

#endif

/* fixture.h: a small training state in memory, and checkpoints of it. Values are a function of tensor, element and
 * step, so that any loaded state tells which step it is of, and whether it is whole. */
#ifndef SL_TESTS_CHECKPOINT_FIXTURE_H
#define SL_TESTS_CHECKPOINT_FIXTURE_H

#include "checkpoint/state.h"

#define FIXTURE_TENSORS 7

typedef struct fixture {
    sl_state state;
    sl_state_tensor tensors[FIXTURE_TENSORS];
    float *values[FIXTURE_TENSORS];
    int64_t writes; /* calls of state.write */
} fixture;

/* Parameters a [2,3], b [rows,64], c [] and d [0], and one slot "exp_avg" for all but d. */
void fixture_make(fixture *f, int64_t rows);
void fixture_free(fixture *f);
/* All values as they are after `step`. */
void fixture_fill(fixture *f, uint64_t step);
/* The step that all values agree on, or -1. */
int64_t fixture_step(const fixture *f);
sl_checkpoint_meta fixture_meta(uint64_t step);
/* Fills for `step` and saves with keep 2. */
sluice_status fixture_save(fixture *f, const char *folder, uint64_t step);
/* Clears and loads; *step is what the values say, -1 where nothing or something torn was loaded. Warnings are counted.
 */
sluice_status fixture_load(fixture *f, const char *folder, int64_t *step, int *warnings);

/* A fresh folder for loops of hundreds of saves: in memory where the machine offers that, since there each fsync is
 * free. */
const char *memory_folder(void);

/* Copies one file over another; exits on failure. */
void copy_file(const char *from, const char *to);
/* Reads a whole file; the caller frees. */
char *read_bytes(const char *path, size_t *bytes);
void write_bytes(const char *path, const char *data, size_t bytes);

#endif

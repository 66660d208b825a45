/* checkpoint_fixture.h: a small training state in memory, and checkpoints of it. Values are a function of tensor, element and
 * step, so that any loaded state tells which step it is of, and whether it is whole. */
#ifndef SLUICE_TEST_CHECKPOINT_FIXTURE_H
#define SLUICE_TEST_CHECKPOINT_FIXTURE_H

#include "checkpoint/state.h"

#define FIXTURE_TENSORS 7
#define FIXTURE_RANKS   4
#define FIXTURE_RUNS    64
#define FIXTURE_UNKEPT  -12345.0f /* where a rank keeps nothing */

/* How the elements are dealt to the ranks. Parameters lie side by side in one flat run, as those of a layer do. */
typedef enum { CUT_EVEN, CUT_BLOCKS, CUT_LAST_OWNS_ALL, CUT_UNEVEN, CUT_COUNT } fixture_cut;

typedef struct fixture {
    sl_state state;
    sl_state_tensor tensors[FIXTURE_TENSORS];
    float *values[FIXTURE_TENSORS];
    _Atomic int64_t writes; /* calls of state.write */
    bool whole;             /* keeps everything; otherwise what it owns alone */
    int64_t run_count[FIXTURE_TENSORS][FIXTURE_RANKS];
    sl_range runs[FIXTURE_TENSORS][FIXTURE_RANKS][FIXTURE_RUNS];
    float *snapshot[FIXTURE_TENSORS]; /* what read_snapshot reads; NULL: none was taken */
} fixture;

/* Parameters a [2,3], b [rows,64], c [] and d [0], and one slot "exp_avg" for all but d. */
void fixture_make(fixture *f, int64_t rows);
/* The same as one rank of several sees it. */
void fixture_make_rank(fixture *f, int64_t rows, sluice_world *world, fixture_cut c, bool whole);
/* From here on state.read gives the values as they are now. */
void fixture_snapshot(fixture *f);
void fixture_free(fixture *f);
/* All values as they are after `step`. */
void fixture_fill(fixture *f, uint64_t step);
/* The step that all values it keeps agree on, or -1. */
int64_t fixture_step(const fixture *f);
sl_checkpoint_meta fixture_meta(uint64_t step);
/* Of the run that made checkpoints of that meta. */
const sl_identity *fixture_identity(void);
/* Fills for `step` and saves with keep 2. */
sluice_status fixture_save(fixture *f, const char *folder, uint64_t step);
/* Clears and loads; *step is what the values say, -1 where nothing or something torn was loaded. Warnings are
 * counted. */
sluice_status fixture_load(fixture *f, const char *folder, int64_t *step, int *warnings);

/* An sl_io_hook for the calls of one process. */
typedef struct countdown {
    int calls, at, error; /* error 0: kill the process */
    bool persistent;      /* from the call `at` on */
    char failed[16];      /* the call `at` */
} countdown;
int count_down(void *countdown, const char *call, const char *path);

/* Copies one file over another; exits on failure. */
void copy_file(const char *from, const char *to);
/* Reads a whole file; the caller frees. */
char *read_bytes(const char *path, size_t *bytes);
void write_bytes(const char *path, const char *data, size_t bytes);

#endif

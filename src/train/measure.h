/* measure.h: micro-benchmarks: how long single kernels, copies and collectives take on this machine.
 *
 * Nothing of a model's run is timed; a plan's prediction comes from these durations alone. */
#ifndef SL_TRAIN_MEASURE_H
#define SL_TRAIN_MEASURE_H

#include "backend/backend.h"
#include "comm/comm.h"
#include "train/device_choice.h"
#include "train/machine.h"

/* Bytes that the operands of successive calls walk through: past the caches of a core, as in training. */
#define SL_BENCH_REGION ((uint64_t)48 << 20)

/* The device arena: token ids below SL_BENCH_IDS, as odd a number as vocabularies are; then operands that are read and
 * operands that are written. What is read is never written, so its values stay small normal numbers. */
enum { SL_BENCH_IDS_BYTES = 1 << 16, SL_BENCH_IDS = 65 };

typedef struct sl_bench {
    const sl_backend *backend;
    sl_device *device;
    sl_comm *comm; /* of one rank, or of those that measure at the same time */
    int rank, ranks;
    sl_run_context context;
    uint64_t read_at[SL_TIER_COUNT], written_at[SL_TIER_COUNT]; /* offsets in the regions, which are used in turn */
} sl_bench;

typedef sluice_status (*sl_bench_fn)(sl_bench *b, void *what);

/* Seconds of one call of fn: the median of several rounds, after one call that warms up. `prepare`, if not
 * NULL, is called before each call and does not count; otherwise fn may queue work, which counts until it is done. All
 * ranks begin each round together, and the answer is the mean over them. */
sluice_status sl_bench_time(sl_bench *b, sl_bench_fn prepare, sl_bench_fn fn, void *what, double *seconds);
/* Values that no kernel makes infinite or denormal, as f32 and as 16 bits, in all regions; ids that are rows of every
 * table. */
sluice_status sl_bench_fill(sl_bench *b);
/* The next operand of a region. */
sl_span sl_bench_read_span(sl_bench *b, sl_tier tier, uint64_t bytes);
sl_span sl_bench_written_span(sl_bench *b, sl_tier tier, uint64_t bytes);

/* Durations of one kind of work, in no order, to be made points of. */
typedef struct sl_samples {
    int count, capacity;
    sl_rate_point *points; /* owned */
} sl_samples;

sluice_status sl_samples_add(sl_samples *s, double work, double seconds);
/* At most SL_RATE_POINTS points: samples of about the same work become one of their mean rate. */
void sl_samples_to_rates(sl_samples *s, sl_rates *out);
void sl_samples_free(sl_samples *s);

/* Flops a second of the best of some large products, in `precision` on `threads` threads of this process: what a step's
 * own rate is compared with. Takes about 0.1 s and, while it lasts, a pool of threads and the product's three matrices
 * (7 MiB on up to four threads, 100 MiB of a GPU in 16 bits); leaves nothing behind. Ranks that share a machine should
 * begin together. */
sluice_status sl_measured_peak(const sl_device_choice *device, sl_isa isa, int threads, sluice_dtype precision,
                               double *out);

sluice_status sl_measure_kernels(sl_bench *b, sl_machine *m);
sluice_status sl_measure_updates(sl_bench *b, sl_machine *m);
sluice_status sl_measure_links(sl_bench *b, sl_machine *m);
sluice_status sl_measure_collectives(sl_bench *b, sl_machine *m);

#endif

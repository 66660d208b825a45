/* measure.h: micro-benchmarks: how long single kernels, copies and collectives take on this machine.
 *
 * Nothing of a model's run is timed; a plan's prediction comes from these durations alone. */
#ifndef SL_MACHINE_MEASURE_H
#define SL_MACHINE_MEASURE_H

#include <stdio.h>

#include "backend/backend.h"
#include "comm/comm.h"
#include "machine/device_choice.h"
#include "machine/machine.h"
#include "model/model.h"

/* What is measured one after the other, each with a limit of its own. */
typedef enum {
    SL_BENCH_16BIT,
    SL_BENCH_F32,
    SL_BENCH_UPDATES,
    SL_BENCH_HOST_UPDATES,
    SL_BENCH_COPIES,
    SL_BENCH_CONTENTION,
    SL_BENCH_GROUPS
} sl_bench_group;

/* What is measured, and on how much, by class of device. */
typedef struct sl_bench_scale {
    /* Its kernels are timed instead of those of models, and the regions fitted to them; NULL: those of models. Borrowed. */
    const sluice_graph *graph;
    int threads; /* of the pool that works on the host; 0: as a rank's place has */
    /* A discrete device is another processor than the host's: its kernels are queued, and the update stream, which the
     * host works off, is measured by itself. */
    bool discrete;
    double round_seconds; /* calls that take less are timed in groups */
    double long_seconds;  /* calls that take more are timed less often */
    int rounds, long_rounds, most_calls;
    /* What a group may take: after that, the rest of the group is skipped. 0: as long as it takes. */
    double group_seconds[SL_BENCH_GROUPS];
    /* What one measurement may take, without the calls that find out how long one takes: there are fewer rounds then.
     * 0: as long as it takes. */
    double sample_seconds;
    /* Matrix ops that take sustained_from or more are timed over sustained_seconds and sustained_calls, whichever is
     * more, in the first sustained_models models in 16 bits: a GPU at work for longer lowers its clock. So is the
     * largest update on the host of a discrete device. */
    double sustained_from, sustained_seconds;
    /* Kernels of a graph are also run in turn for twice as long, to see what products take longer in a step. 0: they are not. */
    double mixed_seconds;
    int sustained_calls, sustained_models;
    /* Bytes that the operands of successive calls walk through, by tier: past the caches, as in training. There are two
     * regions of each, for what is read and for what is written. */
    uint64_t region[SL_TIER_COUNT];
    uint64_t id_bytes; /* token ids before the regions */
    int32_t ids;       /* of which none is as large */
    /* Of the models' nodes, those expected to take longer are skipped. 0: whole models are, except the first of a type.
     */
    double node_seconds;
    const sl_model_options *models, *wide_models; /* in bf16, in f32; the most important first */
    int model_count, wide_model_count;
    /* In both: of these, only ops that no model before has are timed. In shapes of their own, others would blur what is known. */
    const sl_model_options *others;
    int other_count;
    sl_form weights;                      /* that updates are measured with */
    const int64_t *flats;                 /* elements of flat buffers, increasing */
    const uint64_t *copies, *collectives; /* bytes, increasing */
    int flat_count, copy_count, collective_count;
    /* What runs at the same time to see how much each is slowed down: a GEMM of square matrices, a copy, an update. */
    int64_t gemm_side, contention_update;
    uint64_t contention_copy;
    int contention_tries; /* on a CPU */
} sl_bench_scale;

/* The second two are for a graph, and take about a second. */
extern const sl_bench_scale sl_bench_cpu, sl_bench_gpu, sl_bench_cpu_graph, sl_bench_gpu_graph;

/* Regions are multiples of it: what lies in them is aligned as kernels want it. */
#define SL_BENCH_CHUNK ((uint64_t)1 << 20)
/* Below that nothing can be measured. */
#define SL_BENCH_LEAST_REGION(discrete) ((uint64_t)((discrete) ? 128 : 16) << 20)

typedef struct sl_bench_progress sl_bench_progress;

/* An arena: token ids, as odd a number of them as vocabularies are; then operands that are read and operands that are
 * written. What is read is never written, so its values stay small normal numbers. */
typedef struct sl_bench {
    sl_bench_scale scale;
    const sl_backend *backend;
    sl_device *device;
    sl_comm *comm; /* of one rank, or of those that measure at the same time */
    int rank, ranks;
    sl_run_context context;
    sl_bench_progress *progress; /* NULL: nothing is said */
    double deadline;             /* of the group at hand; 0: none */
    bool sustained;              /* the next measurement is of what the device keeps up */
    const char *label;           /* of the next measurement, for people */
    double label_work;
    uint64_t read_at[SL_TIER_COUNT], written_at[SL_TIER_COUNT]; /* offsets in the regions, which are used in turn */
    /* What updates that are queued point to. Replaced only where their length changes, when nothing is under way. */
    struct {
        sl_layer layer;
        sl_update_segment segment;
        sl_update_rule rule;
        sl_attrs attrs;
    } update;
} sl_bench;

typedef sluice_status (*sl_bench_fn)(sl_bench *b, void *what);

/* Seconds of one call of fn: the median of several rounds, after one call that warms up. `prepare`, if not NULL, is
 * called before each call and does not count, unless the device is discrete; then it queues nothing. What fn queues counts
 * until it is done, except on a device that is not discrete and with `prepare`. All ranks begin each round together, and
 * the answer is the mean over them. */
sluice_status sl_bench_time(sl_bench *b, sl_bench_fn prepare, sl_bench_fn fn, void *what, double *seconds);
/* Values that no kernel makes infinite or denormal, as f32 and as 16 bits, in all regions up to those of the tier
 * `last`: up to 1, or so small that sums of products of some thousand of them are below 1. */
typedef enum { SL_BENCH_PLAIN, SL_BENCH_SMALL } sl_bench_values;
sluice_status sl_bench_fill(sl_bench *b, sl_tier last, sl_bench_values values);
/* Zeros in the first so many bytes, or a little more, of where `tier` is written. */
sluice_status sl_bench_clear(sl_bench *b, sl_tier tier, uint64_t bytes);
/* False: so much does not fit in the regions. Otherwise the next operands that are taken, of so many bytes in all (and
 * 256 for each), are adjacent. */
bool sl_bench_make_room(sl_bench *b, sl_tier tier, uint64_t read, uint64_t written);
/* The next operand of a region. */
sl_span sl_bench_read_span(sl_bench *b, sl_tier tier, uint64_t bytes);
sl_span sl_bench_written_span(sl_bench *b, sl_tier tier, uint64_t bytes);

/* A group of measurements, which may take so many seconds; 0: as long as it takes. Says so at the beginning, and at the
 * end what it took. */
void sl_bench_begin(sl_bench *b, const char *group, double seconds);
void sl_bench_end(sl_bench *b);
/* *late: the group's time is over, on all ranks, and one more measurement is skipped. */
sluice_status sl_bench_late(sl_bench *b, bool *late);
/* Around each measurement, which has b->label. */
void sl_bench_progress_start(sl_bench *b);
void sl_bench_progress_done(sl_bench *b);
/* NULL: nothing is said. Otherwise a thread watches that no measurement takes too long unsaid. */
sluice_status sl_bench_progress_open(FILE *out, sl_bench_progress **progress);
void sl_bench_progress_close(sl_bench_progress *p);

/* A duration, and how often the work that took it is done. */
typedef struct sl_sample {
    double work, seconds, times;
} sl_sample;

/* Durations of one kind of work, in no order, to be made points of. */
typedef struct sl_samples {
    int count, capacity;
    sl_sample *samples; /* owned */
} sl_samples;

sluice_status sl_samples_add(sl_samples *s, double work, double seconds, double times);
/* At most SL_RATE_POINTS points: samples of the same work, and then of about the same, become one that takes what they take
 * in all, each as often as it is done. Points lie closest where most samples are. */
sluice_status sl_samples_to_rates(sl_samples *s, sl_rates *out);
void sl_samples_free(sl_samples *s);

/* Flops a second of the best of some large GEMMs, in `precision` on `threads` threads of this process: what a step's
 * own rate is compared with. Takes about 0.1 s and, while it lasts, a pool of threads and the GEMM's three matrices
 * (7 MiB on up to four threads, 100 MiB of a GPU in 16 bits); leaves nothing behind. Ranks that share a machine should
 * begin together. */
sluice_status sl_measured_peak(const sl_device_choice *device, sl_isa isa, int threads, sluice_dtype precision,
                               double *out);

/* All of the below: *m has general rates and gets measured ones. One process of several, all of `comm`, on `device`.
 * *pinnable: bytes of host memory that could be pinned for copies, as far as that was tried; UINT64_MAX: no bound was
 * met; 0 where nothing is pinned. `progress`, if not NULL, is told what is being measured. */
sluice_status sl_bench_measure(sl_comm *comm, const sl_device_choice *device, const sl_bench_scale *scale, sl_isa isa,
                               FILE *progress, sl_machine *m, uint64_t *pinnable);

sluice_status sl_measure_kernels(sl_bench *b, sl_machine *m);
/* Regions and ids that suit b->scale.graph; before memory is reserved. */
void sl_bench_fit_graph(sl_bench *b);
/* Graphs of the same hash have the same kernels to measure. */
uint64_t sl_bench_graph_hash(const sluice_graph *g);
sluice_status sl_measure_updates(sl_bench *b, sl_machine *m);
sluice_status sl_measure_links(sl_bench *b, sl_machine *m);
/* How much kernels, copies and updates of the host slow each other down, on a discrete device. */
sluice_status sl_measure_slowdowns(sl_bench *b, sl_machine *m);
/* One UPDATE of `elements` on the host, queued. */
sluice_status sl_bench_queue_update(sl_bench *b, int64_t elements);
/* One copy over a link. */
sluice_status sl_bench_queue_copy(sl_bench *b, sl_link link, uint64_t bytes);
/* One GEMM of square matrices in the form of updates' weights. */
sluice_status sl_bench_queue_gemm(sl_bench *b, int64_t side);
sluice_status sl_measure_collectives(sl_bench *b, sl_machine *m);

#endif

/* plan.h: a training step decided ahead of time, as plain data.
 *
 * A plan is pure: graph + machine + options -> plan. It knows no device, file or network, and after sl_plan_create it
 * does not change. Read it as a program: segments of steps, each step on a stream, reading and writing pieces of
 * buffers; every buffer lives from its first to its last step and has one fixed offset in its tier's arena.
 *
 *     partition  who owns which piece of every layer                      partition.c
 *     place      home tier of parameters and state; keep, recompute or    place.c, place_*.c, group.c
 *                offload each layer's activations
 *     schedule   the list of steps: order, streams, prefetch              schedule_*.c, transit.c
 *     address    lifetimes -> offsets; peak per tier                      address.c, first_fit.c, live_fit.c
 *     waits      what a step on one stream waits for on the others        waits.c, tenants.c
 *     cost       discrete-event run: step time, hidden and exposed        cost.c
 *     verify     what must hold, checked independently                    verify.c
 *
 * place tries candidates by running schedule, address and cost on each; the last one built is the plan.
 *
 * Time. All segments lie on one line of step indices: FORWARD, BACKWARD, UPDATE, REDO, EVALUATE. A step of training runs
 * FORWARD and BACKWARD once per micro-batch, then UPDATE, and REDO where it turned out that what was updated on
 * speculation must be updated otherwise. Two buffers may share bytes exactly when their index ranges
 * are disjoint; what must survive from one training step to the next is permanent and shares with nothing.
 *
 * Segments of training follow each other without a pause: updates on the host and the new weights' way to the device go
 * on beside the next FORWARD. The streams of FORWARD and BACKWARD are joined between micro-batches, and all are drained
 * around EVALUATE.
 *
 * Speculation. A layer whose update runs on the host may be updated as soon as its gradient is there, as if the step were
 * neither clipped nor skipped: from one of two versions of its values into the other. A step that names the first of the
 * two buffers (sl_buffer.twin) means the version that counts, one that names its twin the other; when the norm has shown
 * that all was right, or REDO has put it right, the executor lets the two change places (sl_exec_commit). */
#ifndef SL_PLAN_PLAN_H
#define SL_PLAN_PLAN_H

#include <stdio.h>

#include "core/shard.h"
#include "ir/graph.h"
#include "ir/span.h"
#include "ir/sparse.h"
#include "plan/rates.h"

#define SL_PARTITION_BLOCK ((int64_t)1 << 18)
#define SL_BUCKET_BYTES    ((uint64_t)1 << 20)
#define SL_MAX_PARTS       64 /* layers in one collective */

/* When updates run: zero_optimization.update. */
typedef enum {
    SL_UPDATE_MODE_SYNC, /* when the norm of the whole gradient is known */
    SL_UPDATE_MODE_AUTO, /* during backward where no norm is needed; on speculation where that is faster; else SYNC */
    SL_UPDATE_MODE_SPECULATIVE, /* on speculation, of as many layers as there is room for */
    SL_UPDATE_MODE_DELAYED
} sl_update_mode;

typedef struct sl_plan_options {
    uint64_t budget[SL_TIER_COUNT]; /* bytes for the arena of each tier; 0: the tier does not exist */
    uint64_t budget_together;       /* device and host share one memory of this size (CPU backend); 0: they do not */
    /* How the budgets came about, for the refusal. What the setting says, where that is not the budget and what is
     * outside together; what of it the arena does not get; and whether nothing is set: the budget is all there is. */
    uint64_t told[SL_TIER_COUNT], outside[SL_TIER_COUNT];
    bool automatic[SL_TIER_COUNT];
    int rank, rank_count; /* the rank this plan is for */
    int stage;            /* ZeRO stage; at one rank all stages keep the same */
    sluice_partition partition;
    const double *partition_weights; /* WEIGHTED: one per rank; NULL: equal. Borrowed during creation */
    int64_t partition_block;         /* BLOCK: elements; 0: SL_PARTITION_BLOCK */
    uint64_t bucket_bytes;           /* layers smaller than this share a collective; 0: SL_BUCKET_BYTES */
    bool comm_on_host;               /* ranks reach each other's host memory alone: collectives pass through it */
    bool small_norm_nodes; /* ranks exchange nodes of the norm's tree however few leaves there are (sl_combines_norm) */
    bool keep_gathered;    /* stage 3: gathered parameters stay from forward to backward */
    bool snapshot; /* room on the host for a copy of what a checkpoint holds, so that saving runs beside training */
    sluice_place parameters, state; /* AUTO: free; otherwise binding */
    sluice_place offload_to;        /* of activations that leave the device: HOST, DISK, or AUTO: free */
    int64_t disk_chunk;             /* elements of an update through the disk at a time; 0: by the size of the model */
    double state_ratio;             /* share of the state that goes to the host when state is HOST; 1: all */
    sluice_activations activations;
    bool offload_checkpoints; /* RECOMPUTE: kept layer inputs go to the host */
    int checkpoints;          /* groups that recomputed layers form, each from one kept input; 0: auto */
    int levels;               /* 0: auto */
    int prefetch;             /* levels fetched ahead; -1: auto */
    int accumulation;         /* M, micro-batches in a step on this rank; K = M * rank_count */
    bool training;            /* plan FORWARD, BACKWARD, UPDATE */
    bool evaluation;          /* plan EVALUATE */
    sl_update_mode update;    /* AUTO and SPECULATIVE: layers may be updated on speculation */
    bool early_updates;       /* updates need their own gradient alone: nothing of all of them decides */
    bool rarely_fails;    /* no step is clipped, and hardly one skipped: updates on speculation are as good as right */
    uint64_t plain_steps; /* of a run that goes on: its last ones in a row that were neither clipped nor skipped */
    uint64_t steps;       /* of the run; 0: not known. Whether a change between two plans counts (speculate.c) */
    double waiting_seconds; /* of a step without speculation in the best other arrangement; 0: none is known */
    bool delayed; /* a step's update is shown to the kernels at the end of the next step; with no early_updates */
    int64_t delay_warmup; /* delayed: steps before that, whose updates are shown at once; for print */
    int state_slots;      /* state tensors per parameter */
    sl_form state_form;   /* in which they are kept: F32, BF16 or BLOCKS8 */
    double update_bytes_per_element;
    /* What kernels need beside their operands, as the backend says: of each node of the graph, and of the update ops on
     * the device (whatever their layer), by op. NULL: nothing. Borrowed during creation. */
    const uint64_t *node_workspace, *update_workspace;
    /* Outside the arenas, estimated by the caller; printed, and already taken off the budgets. */
    uint64_t overhead_bytes;
    uint64_t overhead_of[3];  /* its parts: program, data, threads; for print */
    uint64_t device_overhead; /* likewise, of a device with a memory of its own: driver and libraries; 0: none */
    const int
        *stop; /* a request to stop (core/stop.h), polled while planning, loading and hashing; NULL: none. Borrowed */
    bool
        brief; /* a refusal looks neither for the exact bytes nor for what would help, which takes several times as long */
    bool searched;         /* nothing was found by sl_plan_attempt with these options: it need not search again */
    char memory_note[160]; /* how memory is had: huge pages, NUMA; for print; "": not known */
    /* Placements that cannot be planned are counted here and passed over; NULL: the first one ends the planning. Borrowed
     * during creation. */
    struct sl_plan_faults *faults;
} sl_plan_options;

#define SL_MOST_REJECTED 8

/* Placements whose plan failed, not for want of memory: a mistake of the planner. */
typedef struct sl_plan_faults {
    int count;
    char first[SL_MESSAGE_BYTES]; /* what the first one failed with */
} sl_plan_faults;

typedef enum {
    SL_BUFFER_PARAMETERS, /* a layer's flat parameters: home, working copy, or staged level */
    SL_BUFFER_GRADIENTS,  /* a layer's flat gradient or accumulator */
    SL_BUFFER_STATE,      /* one state slot of a layer */
    SL_BUFFER_ACTIVATION, /* a value of the graph */
    SL_BUFFER_INPUT,
    SL_BUFFER_NORM,      /* norm leaves and the result */
    SL_BUFFER_SNAPSHOT,  /* a copy of owned parameters or state that a checkpoint is written from */
    SL_BUFFER_CACHE,     /* what a node of generation keeps from run to run */
    SL_BUFFER_RUNNING,   /* statistics of a batch norm: what evaluation reads and a micro-batch leaves */
    SL_BUFFER_TABLE,     /* all rows of a sparse table that this rank keeps, and room for rows on their way */
    SL_BUFFER_WORKSPACE, /* a kernel's own memory for the length of its step */
    SL_BUFFER_TWIN,      /* second version of parameters or state that are updated on speculation */
    SL_BUFFER_KIND_COUNT
} sl_buffer_kind;

typedef struct sl_buffer {
    sl_buffer_kind kind;
    sl_tier tier;
    uint64_t bytes;
    int first, last; /* steps; permanent ones: 0 and INT_MAX */
    bool permanent;
    uint64_t offset; /* set by the address pass */
    int layer;       /* or -1 */
    int value;       /* ACTIVATION, INPUT and CACHE: graph value; else -1 */
    int slot;        /* STATE: slot; else -1 */
    bool staged;     /* a copy of something whose home is elsewhere */
    sl_form form;    /* of its elements; NORM: F32 and no matter */
    bool paged;      /* permanent, on the host: what comes from the disk or goes there; at a multiple of SL_DISK_UNIT */
    bool shard;      /* PARAMETERS, GRADIENTS, STATE, SNAPSHOT, TWIN: this rank's shard of the layer, not all of it */
    int twin;        /* number of the buffer that is its other version, plus 1; 0: there is none. Of the two, the one
                      * whose kind is not TWIN was made first. For waits and checks both are one memory */
} sl_buffer;

/* Part of a buffer. */
typedef struct sl_piece {
    int buffer; /* -1: absent optional operand */
    uint64_t offset, bytes;
} sl_piece;

typedef enum {
    SL_STEP_COMPUTE,
    SL_STEP_COPY,
    SL_STEP_GATHER,         /* shards -> wholes; no inputs: in place, from the own part of the wholes */
    SL_STEP_REDUCE_SCATTER, /* contributions -> accumulators of shards */
    SL_STEP_GATHER_NORM,    /* norm leaves or nodes, in place */
    SL_STEP_GATHER_VALUE,   /* the ranks' parts of a node's first output (sl_op_def.gathers), in place */
    SL_STEP_UPDATE
} sl_step_kind;

/* Conditions of a step's work. A step whose conditions do not all hold in a run (sl_exec_hold) does its waits and
 * records its event, so that whoever waits for it is right, and does nothing else. All ranks decide alike. */
typedef enum {
    SL_WHEN_LAST_MICRO = 1, /* the last micro-batch of the training step */
    SL_WHEN_SPECULATING = 2,
    SL_WHEN_NOT_SPECULATING = 4,
    SL_WHEN_DELAYED = 8,
    SL_WHEN_PROMPT = 16, /* not delayed */
} sl_when;

/* What is expected to hold beside SL_WHEN_LAST_MICRO, where a plan is clocked and its bytes are counted. */
#define SL_WHEN_COMMON ((unsigned)(SL_WHEN_SPECULATING | SL_WHEN_DELAYED))

typedef struct sl_step {
    sl_step_kind kind;
    sl_stream stream;
    sl_op op; /* COMPUTE and UPDATE */
    int node; /* graph node, of GATHER_VALUE too; -1 for other movements and for ACCUMULATE, which only the plan knows */
    int layer; /* for people; or -1 */
    /* plan->pieces[first_piece ..): inputs, then outputs, then with workspace_count 1 the kernel's workspace, which
     * counts as written. COPY: source, destination. */
    int first_piece, input_count, output_count, workspace_count;
    int first_wait, wait_count; /* plan->waits: earlier steps on other streams that must be done first */
    int event;                  /* fired when done; -1: nobody waits for it */
    int first_part;             /* collectives: plan->parts[first_part ..) are the layers of outputs 0, 1, .. */
    int64_t first;              /* UPDATE: element of the layer's flat buffer that the operands begin with */
    bool recomputed;            /* a forward node run again for backward */
    unsigned when;              /* sl_when: all that must hold for its work to be done; 0: it is always done */
    bool publishes;             /* delayed updates: brings weights that an earlier update made to where they are read */
    double seconds;             /* predicted duration */
} sl_step;

typedef enum {
    SL_SEGMENT_FORWARD,
    SL_SEGMENT_BACKWARD,
    SL_SEGMENT_UPDATE,
    SL_SEGMENT_REDO, /* empty where no layer speculates */
    SL_SEGMENT_EVALUATE,
    SL_SEGMENT_COUNT
} sl_segment_kind;

typedef struct sl_segment {
    int first_step, step_count;
    int result_step; /* the step whose result the caller reads: the loss, the norm; it has an event. -1: none */
    double seconds;  /* predicted: from the end of what came before, as long as it keeps the host or the kernels busy */
    double busy[SL_STREAM_COUNT];      /* predicted work per stream */
    double exposed[SL_STREAM_COUNT];   /* compute stood still waiting for this stream */
    double longest[SL_STREAM_COUNT];   /* the longest such wait */
    int longest_step[SL_STREAM_COUNT]; /* and the step it was for; -1: none */
} sl_segment;

typedef enum { SL_ACT_KEEP, SL_ACT_RECOMPUTE, SL_ACT_OFFLOAD, SL_ACT_RECOMPUTE_OFFLOAD } sl_activation_mode;

/* Tensors of a layer that a checkpoint may hold: the master, its remainder, the state slots, and the weights that steps
 * read where these are others than the master. */
#define SL_LAYER_TENSORS  (3 + SL_MAX_STATE_SLOTS)
#define SL_VISIBLE_TENSOR (SL_LAYER_TENSORS - 1)

/* Where one layer's things live. Tiers, activations and level are set by place; buffers by schedule.
 *
 * Which buffers a trained layer has, of N ranks with M micro-batches each in a step. P, S, G and W are the tiers
 * `parameters`, `state`, `gradients` and `waiting`. "own" holds this rank's shard, otherwise the whole layer; with one rank every
 * stage is as stage 0, and own is the whole. "stays": permanent, otherwise it lives within a step. The first row of a
 * buffer that applies is the one.
 *
 *     buffer        when                              is                 tier    form          own at    stays
 *     home          P disk                            a buffer           disk    precision     1 to 3    yes
 *                   otherwise                         a buffer           P       precision     stage 3   yes
 *     working       P device, stages 0 to 2           home
 *                   otherwise                         none: staged for every use
 *     master        delayed, S and P device           a buffer           device  precision     1 to 3    yes
 *                   delayed                           a buffer           host    precision     1 to 3    yes
 *                   S host, P device, f32 or bf16     a buffer           host    precision     1 to 3    yes
 *                   otherwise                         home
 *     remainder     bf16                              a buffer           S       REMAINDER     1 to 3    yes
 *                   f16: all of the f32 master        a buffer           S       f32           1 to 3    yes
 *                   f32                               none
 *     slots         of the optimizer                  a buffer each      S       state_form    1 to 3    yes
 *     contribution  N > 1, stages 0 and 1, S device   a buffer           device  wire          never     yes
 *                   otherwise                         a buffer           device  wire          never     no
 *     accumulator   M > 1                             a buffer           G       f32           N > 1     yes
 *                   N > 1, contribution does not stay a buffer           device  wire          N > 1     no
 *                   otherwise                         none
 *     gradient      M > 1, G disk                     accumulator
 *                   S not device, M > 1, G host, not (N > 1 and stage 0) accumulator
 *                   S not device                      a buffer           W       wire          1 to 3    no
 *                   stage 0, N > 1 or M = 1           contribution
 *                   stage 1, N > 1, M = 1             contribution, of which the own part is summed
 *                   otherwise                         accumulator
 *     twins         of a layer that speculates, of master where that is on the host, remainder and slots
 *                                                     a buffer each      host    as what it    as it     yes
 *                                                                                is twin of
 *     fresh         speculates, f16, P device: new weights on their way
 *                                                     a buffer           host    f16           1 to 3    no
 *     snapshots     with options.snapshot: of master (not in f16), remainder, slots and, delayed, home
 *                                                     a buffer each      host    as what it    N > 1     yes
 *                                                                                copies
 *
 * Updates of layers with something on the disk run in chunks through staging buffers on the host (schedule_disk.c), which
 * are no layer's: such a layer has no master of its own on the host.
 *
 * A frozen layer has home, working, master == home and its snapshot; a layer without parameters has none. What is
 * staged for a step (a fetched layer, a sum on its way) has no member here. tests/plan/layer_place_test.c holds plans
 * to these rows. */
typedef struct sl_layer_place {
    sl_tier parameters; /* home. HOST, DISK: staged in for every use */
    sl_tier state;      /* HOST: the update runs there, on a host master copy of the parameters; DISK: there, too */
    sl_activation_mode activations;
    bool cheap;        /* of activations that are kept or offloaded, those that cost little run again instead */
    sl_tier offloaded; /* where offloaded activations wait: HOST or DISK */
    int group_first,
        group_last;    /* positions in forward order: recomputed layers that run again together; else its own */
    sl_tier gradients; /* where micro-batches are summed: DEVICE, or where `state` is not, any */
    sl_tier waiting;   /* where a finished gradient that left the device waits for its update: HOST or DISK */
    int level;         /* levels move together; layers of a level are consecutive */
    bool speculates;   /* state is HOST, and the update may run before the norm is known */
    /* Buffers, -1 where absent. */
    int home;    /* where the parameters wait for their next use */
    int working; /* what kernels read */
    /* The weights that the update writes, in the graph's precision. f32 ones are what a checkpoint reads. An update
     * that runs on another tier than the master's works on a staged copy; f16 weights are only written by it. Where
     * updates are delayed, `home` lacks the newest one of them. */
    int master;
    int remainder;    /* beside the state: what 16-bit weights lack of their f32 master */
    int contribution; /* where backward writes this micro-batch's gradient */
    int accumulator;  /* the sum over micro-batches, or over ranks */
    int gradient;     /* final gradient, input of the update, on the tier of the state */
    int fresh;        /* weights that an update on speculation wrote, where the master is not on the host */
    int slots[SL_MAX_STATE_SLOTS];
    int snapshots[SL_LAYER_TENSORS];
    sl_shards shards;   /* how the layer is cut over the ranks; also at stage 0, for sums and saves */
    int64_t leaf_first; /* global index of the layer's first norm leaf */
    int64_t leaf_kept;  /* where in the buffer of leaves those that this rank keeps of the layer begin */
    /* Where the norm is exchanged as nodes (sl_combines_norm): how those of the layer are cut over the ranks, and the
     * first of them among the nodes of all layers. */
    sl_shards nodes;
    int64_t node_first;
} sl_layer_place;

/* Where the rows of a sparse table (ir/sparse.h) are that this rank keeps: weights, then each state slot, in f32. Every
 * rank has room for as many. What a step touches of them is a parameter of its layer, placed and cut like any other. */
typedef struct sl_table_place {
    int home;     /* permanent buffer on the host; -1: the parameter is no sparse table */
    int snapshot; /* with options.snapshot: a copy of it; otherwise -1 */
    int tensors;  /* 1 and the state slots */
} sl_table_place;

/* Ways to save device memory at the price of time. A placement says to how many layers each is applied. */
typedef enum {
    SL_SAVING_RECOMPUTE,       /* activations are dropped after forward and computed again before backward */
    SL_SAVING_GROUPS,          /* not layers: how far recomputed layers form groups of one kept input (group.c) */
    SL_SAVING_OFFLOAD,         /* activations go to the host after forward and come back before backward */
    SL_SAVING_HOST_STATE,      /* optimizer state lives on the host, and the update runs there */
    SL_SAVING_HOST_GRADIENTS,  /* of these layers, so many also sum their micro-batches there */
    SL_SAVING_HOST_PARAMETERS, /* parameters live on the host and are staged for every use */
    SL_SAVING_CHEAP,           /* of layers that are not recomputed, so many run again what costs little (usage.c) */
    /* Of what has left the device, so many layers' go on to the disk. */
    SL_SAVING_DISK_STATE,
    SL_SAVING_DISK_PARAMETERS,
    SL_SAVING_DISK_GRADIENTS, /* gradients wait there for their update, and their sums for the next micro-batch */
    SL_SAVING_DISK_ACTIVATIONS,
    SL_SAVING_COUNT
} sl_memory_saving;

/* Seconds of a step by a plan: as it is; how much longer where updates on speculation are done once more; and without them. */
typedef struct sl_step_clock {
    bool speculates;
    double seconds, redo, without;
} sl_step_clock;

/* A second placement of the same run, for steps that are clipped or skipped more often, or more rarely (train/renewal.h). */
typedef struct sl_other_placement {
    sl_step_clock clock; /* seconds 0: there is none */
    int layers[SL_SAVING_COUNT], prefetch, speculating, speculation_limit;
    bool everywhere;
} sl_other_placement;

typedef struct sl_candidate {
    int layers[SL_SAVING_COUNT];
    int prefetch; /* levels fetched ahead */
    /* No savings: layers that are updated on speculation, at most sl_most_speculating; and whether these are all that may be. If
     * not, a quarter of them waits for the norm, evenly between the others. */
    int speculating;
    bool everywhere;
    /* What follows from that number, by the clocks of the rank that it was found on: the same on all ranks. */
    int speculation_limit;
    double speculation_gain;
    double waiting_seconds; /* of a step by the best placement whose updates all wait for the norm; 0: not looked for */
    sl_other_placement other;
    bool counts_on_change; /* clipped steps take much longer: the run is long enough to change to the other placement */
} sl_candidate;

typedef struct sl_plan_totals {
    uint64_t peak[SL_TIER_COUNT];
    uint64_t by_kind[SL_TIER_COUNT][SL_BUFFER_KIND_COUNT]; /* bytes live at the tier's peak moment, by kind */
    uint64_t fragmentation[SL_TIER_COUNT]; /* peak minus live bytes at that moment: alignment and gaps */
    uint64_t naive[SL_TIER_COUNT];         /* every buffer with bytes of its own */
    uint64_t state_parameters, state_gradients, state_optimizer; /* kept on the device */
    uint64_t moved[SL_LINK_COUNT];                               /* bytes in one training step */
    uint64_t comm_gather, comm_reduce, comm_norm;                /* bytes this rank sends in one training step */
    uint64_t copies, copies_naive; /* copy steps in a training step; one per operand use would be the naive count */
    uint64_t copies_avoided_bytes;
    double step_seconds, model_flops; /* of a training step; model_flops excludes recomputation */
    int recomputed_layers, recomputed_groups, cheap_layers, host_state_layers, host_parameter_layers, offloaded_layers;
    int disk_state_layers, disk_parameter_layers, disk_gradient_layers, disk_activation_layers;
    int largest_group; /* layers */
    /* Speculation: layers; bytes that it takes on the host; seconds of a step that it saves, and that a step takes longer
     * whose speculation failed; of the last SL_SPECULATION_WINDOW steps, how many may have been clipped or skipped for
     * the next one to speculate. */
    int speculating_layers, speculation_limit;
    uint64_t speculation_bytes;
    double speculation_gain, redo_seconds;
    double host_bytes_per_parameter; /* of masters, remainders and state on the host, of layers updated there */
} sl_plan_totals;

#define SL_SPECULATION_WINDOW 16

/* At which state is carried from one plan to another, out and in again, where nobody has measured it. */
#define SL_CARRIED_PER_SECOND 2e9

/* Budgets that are enough, of the rank that needs most. */
typedef struct sl_plan_need {
    uint64_t bytes[SL_TIER_COUNT];
    int rank[SL_TIER_COUNT]; /* which that is */
    uint64_t together;       /* of device and host where they are one memory; 0: that is enough */
    uint64_t device_alone;   /* the least device budget beside the host's as it is; 0: none would do, or not sought */
} sl_plan_need;

typedef struct sl_plan {
    const sluice_graph *graph; /* borrowed; everything else below is owned */
    sl_plan_options options;
    sl_machine machine;
    sl_layer_place *layers; /* graph->layer_count */
    int64_t *bounds;        /* what layers[].shards.bounds and layers[].nodes.bounds point into */
    /* Of several ranks, per graph node that gathers: how its first output's elements are cut over them; NULL: none does. */
    sl_shards *value_cuts;
    int64_t *value_bounds;               /* what value_cuts[].bounds point into */
    sl_candidate placement;              /* what layers[] were set from */
    uint64_t rejected[SL_MOST_REJECTED]; /* layouts (place_verdict.c) whose finished plan turned out to be unsound */
    int rejected_count;
    int level_count;
    sl_buffer *buffers;
    int buffer_count, buffer_capacity;
    sl_piece *pieces;
    int piece_count, piece_capacity;
    sl_step *steps;
    int step_count, step_capacity;
    struct sl_packing *packing;   /* what the address pass works with, while placements are tried: address.c */
    struct sl_grouping *grouping; /* what groups of recomputed layers are chosen by: group.c */
    int *waits;
    int wait_count, wait_capacity;
    int *parts; /* layers that take part in collectives */
    int part_count, part_capacity;
    int event_count;
    sl_segment segments[SL_SEGMENT_COUNT];
    sl_table_place *tables; /* per parameter of the graph */
    int table_staging;      /* buffer on the host, for the rows of a step on their way; -1: there are no tables */
    int *input_buffers; /* per graph value: the permanent device buffer of an input or a state; -1 for other values */
    /* buffers the caller reads: the loss after FORWARD, the norm's leaves and result after UPDATE, loss and output
     * after EVALUATE; -1: absent */
    int loss_buffer, norm_buffer, leaves_buffer, eval_loss_buffer, output_buffer;
    int64_t leaf_count; /* norm leaves of all layers */
    int64_t kept_count; /* of which this rank keeps so many; */
    int64_t node_count; /* sums that ranks exchange instead; 0: they exchange the leaves, or nothing */
    sl_plan_totals totals;
    sl_plan_need refused; /* what a plan that was refused would need */
} sl_plan;

/* Runs all passes. SLUICE_ERR_NO_FIT: the message says the bytes needed and missing per tier, to the byte: a plan with
 * so much is made, one with a byte less is refused; and which settings would help, each tried, with what it would
 * need. */
sluice_status sl_plan_create(const sluice_graph *g, const sl_machine *machine, const sl_plan_options *options,
                             sl_plan **out);
/* The same; where it is refused, *need has the bytes that the message says. */
sluice_status sl_plan_create_or_need(const sluice_graph *g, const sl_machine *machine, const sl_plan_options *options,
                                     sl_plan **out, sl_plan_need *need);

/* The budgets with which a plan could be made, by a short search: enough, and mostly the least. */
sluice_status sl_plan_least(const sluice_graph *g, const sl_machine *machine, const sl_plan_options *options,
                            sl_plan_need *out);
/* Bytes that the budgets lack of it. */
uint64_t sl_plan_lack(const sl_plan_options *options, const sl_plan_need *need);
/* "memory.device 380160 (371.25 KiB)": what a remedy needs, of the tiers that lack something without it or with it. */
void sl_plan_describe_need(const sl_plan_options *options, const sl_plan_need *without, const sl_plan_need *with,
                           char *out, size_t bytes);
/* A plan as sl_plan_create makes it, to be compared with others: that it does not fit is no failure. *out NULL: it does not,
 * and *need has what it would need by a short search; `need` NULL: that is not asked. `near`: NULL, or the placement of a plan
 * for nearly the same options, from which a placement is sought in a fraction of the time. */
sluice_status sl_plan_attempt(const sluice_graph *g, const sl_machine *machine, const sl_plan_options *options,
                              const sl_candidate *near, sl_plan **out, sl_plan_need *need);
/* The plan with a placement that was found before, for the same options on any rank. */
sluice_status sl_plan_create_placed(const sluice_graph *g, const sl_machine *machine, const sl_plan_options *options,
                                    const sl_candidate *placement, sl_plan **out);
/* The plan of another rank of the run that `of` is a plan of: all ranks have one placement, so that it is not sought
 * again. `weights`: partition_weights of its options. */
sluice_status sl_plan_create_for_rank(const sl_plan *of, const double *weights, int rank, sl_plan **out);
sl_step_clock sl_plan_step_clock(const sl_plan *p);
/* The other placement of a plan's, whose other one is the plan's. Its clock must have seconds. */
sl_candidate sl_plan_other_placement(const sl_plan *p);
void sl_plan_destroy(sl_plan *p);
/* Independent check of everything the address and schedule passes promise. Always run by sl_plan_create. */
sluice_status sl_plan_verify(const sl_plan *p);
/* What all ranks' plans must have in common: the collectives of every segment, in order. */
uint64_t sl_plan_fingerprint(const sl_plan *p);
/* The rank that owns most: what fits there fits everywhere. */
int sl_plan_heaviest_rank(const sl_plan *p);

/* Ranks exchange sums of the norm's tree (core/norm_nodes.h), and keep no leaves but their own. Not where there are few:
 * an operation for each layer would cost more than the half MiB that it saves; nor where blocks are dealt out in turn:
 * their runs of leaves are so short that there would be little to combine. */
#define SL_NORM_NODES_FROM ((int64_t)1 << 16) /* leaves: 67M parameters */
bool sl_combines_norm(const sl_plan *p);
/* The norm leaves of a layer that this rank keeps after UPDATE; counted from the layer's first. */
sl_range sl_plan_kept_leaves(const sl_plan *p, int layer);
/* Where they, or some of them, are in a buffer of kept leaves. */
sl_piece sl_plan_leaf_piece(const sl_plan *p, int layer, sl_range leaves, int buffer);
/* How a layer's part of a collective is cut: `unit` bytes stand for each `per` of the elements that `shards` counts. */
typedef struct sl_part_cut {
    const sl_shards *shards;
    int64_t per;
    uint64_t unit;
} sl_part_cut;
/* Of a GATHER_NORM. */
sl_part_cut sl_plan_norm_cut(const sl_plan *p, int layer);
/* Of part k of a collective. */
sl_part_cut sl_plan_part_cut(const sl_plan *p, const sl_step *s, int k);

/* A segment run once, as part of a sequence. */
typedef struct sl_plan_run {
    sl_segment_kind segment;
    bool joined;    /* begins when all before it is done, as later micro-batches do */
    unsigned holds; /* conditions of steps: sl_when */
} sl_plan_run;
typedef struct sl_plan_time {
    double begin, end; /* seconds */
} sl_plan_time;
/* Streams that are joined between micro-batches: those with steps of FORWARD or BACKWARD. What others still do for the
 * step before goes on; whoever of the micro-batch needs it waits for it by name. */
void sl_plan_joined_streams(const sl_plan *p, bool streams[SL_STREAM_COUNT]);
/* When each step of a sequence of runs is expected to begin and to end. times[] has one entry for each step of each
 * run, in order. */
sluice_status sl_plan_timeline(const sl_plan *p, const sl_plan_run *runs, int run_count, sl_plan_time *times);

/* Whether the work of a step is done in a run where `holds` holds. */
static inline bool sl_step_is_done(const sl_step *s, unsigned holds)
{
    return (s->when & ~holds) == 0;
}

/* For people: "host update", "backward", "reduce-scatter" or the name of the op. */
const char *sl_plan_stream_name(sl_stream stream);
const char *sl_plan_segment_name(sl_segment_kind segment);
const char *sl_plan_step_name(const sl_step *step);
const char *sl_plan_buffer_name(sl_buffer_kind kind);
/* The table for people: memory by tier and kind, movement, time. */
void sl_plan_print(const sl_plan *p, FILE *out);
/* The program: one line a step. For `--verbose` and tests. */
void sl_plan_print_steps(const sl_plan *p, FILE *out);

static inline sl_span sl_plan_span(const sl_plan *p, sl_piece piece)
{
    if (piece.buffer < 0) return (sl_span){ SL_TIER_DEVICE, 0, 0 };
    const sl_buffer *b = &p->buffers[piece.buffer];
    return (sl_span){ b->tier, b->offset + piece.offset, piece.bytes };
}

/* The buffer that holds the other version of what `buffer` holds; -1: there is none. */
static inline int sl_plan_twin(const sl_plan *p, int buffer)
{
    return buffer < 0 ? -1 : p->buffers[buffer].twin - 1;
}

/* The buffer that stands for the memory of both versions. */
static inline int sl_plan_memory(const sl_plan *p, int buffer)
{
    return buffer >= 0 && p->buffers[buffer].kind == SL_BUFFER_TWIN ? p->buffers[buffer].twin - 1 : buffer;
}

/* Bytes of a layer in a form: of all its elements, or with `shard` of those this rank owns. */
uint64_t sl_plan_form_bytes(const sl_plan *p, sl_form form, int layer, bool shard);
/* The part of a layer's buffer that holds elements `range`, which lie within one range of this rank's shard where the
 * buffer is one. In 8-bit blocks the range is whole blocks. */
sl_piece sl_plan_range_piece(const sl_plan *p, int buffer, sl_range range);

/* The runs of a parameter's elements that `rank` owns, in increasing order: at every stage each element has one owner,
 * who sums its gradient and saves it. Of a sparse table: of all its rows. */
int64_t sl_plan_owned_count(const sl_plan *p, int parameter, int rank);
sl_range sl_plan_owned(const sl_plan *p, int parameter, int rank, int64_t index);
/* What the rank in the options owns of parameters and state, in f32: what it carries from one plan of a run to another. */
uint64_t sl_plan_carried_bytes(const sl_plan *p);
/* Whether there is room for that beside the plan. */
bool sl_plan_may_carry(const sl_plan *p);
/* The rows of a sparse table that `rank` keeps; the first rank the first ones. */
sl_range sl_plan_table_rows(const sl_plan *p, int parameter, int rank);
/* Rows that each rank has room for. */
int64_t sl_plan_table_room(const sl_plan *p, int parameter);
/* The most that a step reads and writes on the disk for the rows that it touches, where tensors of their parameters live
 * there. Not part of totals.moved: it goes by the batches. */
void sl_plan_table_disk(const sl_plan *p, uint64_t *read, uint64_t *written);
/* 16-bit elements of a tensor that are stored at a time. */
#define SL_HALVES_CHUNK 16384
/* Elements that a rank sends at a time where rows of other ranks are needed. */
#define SL_TABLE_CHUNK ((int64_t)1 << 16)

#endif

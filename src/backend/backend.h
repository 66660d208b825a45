/* backend.h: what a device must be able to do. A short table, every entry required.
 *
 * A device owns one arena per tier, reserved once, and executes calls on streams. Operands are spans (tier, offset,
 * bytes); the device turns them into addresses and records the highest end offset it was ever handed, per tier,
 * independently of the plan (exact rule 9). Streams run in order; events order them against each other. A device may
 * run everything at once in the caller's thread: plan order is always a legal order. After sl_backend.reserve nothing
 * allocates. */
#ifndef SL_BACKEND_BACKEND_H
#define SL_BACKEND_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/cpu.h"
#include "core/log.h"
#include "core/status.h"
#include "core/thread.h"
#include "ir/graph.h"
#include "ir/span.h"

#define SL_MAX_OPERANDS (SL_MAX_INPUTS + SL_MAX_OUTPUTS)

/* One kernel call; backend/node_call.h makes those of nodes. Shapes and dtypes are the values'; update ops have operands
 * without a value (shape of rank 1). An absent output has neither bytes nor a shape.
 * Calls are queued: attributes, what they point to, and names must stay until the call has run; a device copies the
 * rest. */
typedef struct sl_call {
    sl_op op;
    const sl_attrs *attrs;
    int input_count, output_count;
    sl_span inputs[SL_MAX_INPUTS];
    sl_span outputs[SL_MAX_OUTPUTS];
    const sl_shape *input_shapes[SL_MAX_INPUTS];
    const sl_shape *output_shapes[SL_MAX_OUTPUTS];
    sl_form input_forms[SL_MAX_INPUTS]; /* values: their types; update operands: as their buffers are kept */
    sl_form output_forms[SL_MAX_OUTPUTS];
    sluice_dtype wire; /* NORM_LEAVES, UPDATE: an f32 gradient is rounded to this type as it is read */
    const sl_run_context *context;
    const char *name;  /* of the node, for messages */
    const char *layer; /* its layer's name, for messages; NULL: none */
    sl_span workspace; /* memory for the kernel alone, of at least what sl_backend.workspace says; bytes 0: none */
    /* UPDATE: element of the layer's flat buffer that the operands begin with, a multiple of SL_CUT_ELEMENTS; the
     * rule's segments stay those of the whole layer. The run has as many elements as the weights. LAMB and LARS need
     * the norms of whole parameters: their runs hold whole segments. */
    int64_t first;
} sl_call;

typedef struct sl_device_options {
    int threads; /* compute threads, caller included */
    sl_isa isa;  /* CPU backend */
    bool guard;  /* tests: poison arenas, put a guard page behind each */
    sl_log log;
    /* Files that back the arenas of the first tiers, so that other processes can map them; 0 or negative: the device
     * maps private memory. Borrowed; the device empties them and sets their size. */
    int arena_files[SL_TIER_COUNT];
    uint64_t nodes;  /* NUMA nodes that arenas lie on, bit by bit (core/topology.h); 0: wherever they are first used */
    bool paged_host; /* the host arena begins at a page, also under guard: it is read and written past the page cache */
    int ordinal;     /* CUDA: which device */
    bool tf32;       /* CUDA: products of f32 may round their operands to tf32 */
} sl_device_options;

/* An arena that another process can map: `bytes` bytes from `offset` of the file, which need not be a page's start. */
typedef struct sl_window {
    uint64_t offset, bytes;
} sl_window;

typedef struct sl_device_stats {
    uint64_t observed_peak[SL_TIER_COUNT]; /* highest end offset of any span handed in */
    uint64_t moved[SL_LINK_COUNT];         /* bytes copied between tiers by copy() since the device was opened */
    uint64_t kernel_calls, copy_calls;
    /* Taken outside the arenas since the device was opened, as seen from outside; 0 where nobody can say. */
    uint64_t device_overhead;
    bool pageable; /* the host arena could not be pinned: copies are slow */
} sl_device_stats;

typedef struct sl_device sl_device;

typedef struct sl_backend {
    const char *name;
    sluice_status (*open)(const sl_device_options *options, sl_device **out);
    void (*close)(sl_device *d); /* NULL is fine */
    bool (*supports)(sl_op op);
    /* Bytes of workspace that a call with these shapes, forms and attributes needs; spans are not looked at. Depends on
     * nothing else: no device is asked (exact rule 6). */
    uint64_t (*workspace)(const sl_call *call);
    /* Reserves the arena of a tier at exactly `bytes` (0: none). Once per tier. Memory is zero, or poisoned under
     * guard. */
    sluice_status (*reserve)(sl_device *d, sl_tier tier, uint64_t bytes);
    sluice_status (*run)(sl_device *d, sl_stream stream, const sl_call *call);
    /* Between tiers or within one; spans of equal length that do not overlap. */
    sluice_status (*copy)(sl_device *d, sl_stream stream, sl_span dst, sl_span src);
    /* Caller's memory -> a span, in order with what is queued on `stream`; the caller's memory is free on return. */
    sluice_status (*upload)(sl_device *d, sl_stream stream, sl_span dst, const void *src);
    /* Lets uploads read this memory of the caller's in place, until unpin: it is then free only when the stream has passed the
     * upload. Where that cannot be, uploads go on as before. NULL: there is nothing to gain. */
    void (*pin)(sl_device *d, void *memory, size_t bytes);
    void (*unpin)(sl_device *d, void *memory);
    /* A span -> caller's memory, at once. The caller has waited for whoever writes it (await, synchronize). While nothing
     * is queued, several threads may call it at a time. */
    sluice_status (*download)(sl_device *d, void *dst, sl_span src);
    /* Caller's memory -> a span, at once, while nothing is queued. Several threads may call it at a time. */
    sluice_status (*store)(sl_device *d, sl_span dst, const void *src);
    /* The threads that compute on the host, for work of the caller's while nothing is queued; NULL: there are none. */
    sl_pool *(*pool)(const sl_device *d);
    /* Event `event` fires when all work queued on `stream` so far is done. Events are small integers below
     * event_count. */
    sluice_status (*reserve_events)(sl_device *d, int event_count);
    sluice_status (*record)(sl_device *d, sl_stream stream, int event);
    sluice_status (*wait)(sl_device *d, sl_stream stream, int event);
    /* Blocks the caller until the newest recording of `event` has come true. Reports failures as synchronize does. */
    sluice_status (*await)(sl_device *d, int event);
    /* Queues the host function `work` on `stream`. The first failure of such work is what the next synchronize reports,
     * with its message; until then further such work is skipped, while copies and events still happen, so that nobody
     * waits for ever. */
    sluice_status (*submit)(sl_device *d, sl_stream stream, sluice_status (*work)(void *user), void *user);
    /* The address of a span that host code queued with submit reads or writes; counted like any operand. `what` names
     * the use in messages. May be called by such work. SLUICE_ERR_FAILED where the host cannot reach the tier, or the
     * span is not in the arena. */
    sluice_status (*resolve)(sl_device *d, const char *what, sl_span span, void **out);
    /* Where the arena of a tier lies in its file; false where there is no file or no arena. */
    bool (*window)(const sl_device *d, sl_tier tier, sl_window *out);
    /* Waits for everything queued. Reports the first failure of asynchronous work, once. */
    sluice_status (*synchronize)(sl_device *d);
    /* Times, for traces. reserve_stamps, when nothing is under way, makes room for so many stamps and starts their
     * clock anew; 0 gives the room back, as close does. stamp notes the time at which all work queued on `stream` so
     * far is done. read_stamps, after synchronize, gives the seconds since reserve_stamps, by one clock for all
     * streams; negative where a stamp was not set. Devices that nobody traces spend nothing on it. */
    sluice_status (*reserve_stamps)(sl_device *d, int count);
    sluice_status (*stamp)(sl_device *d, sl_stream stream, int index);
    sluice_status (*read_stamps)(sl_device *d, double *seconds, int count);
    void (*stats)(const sl_device *d, sl_device_stats *out);
} sl_backend;

extern const sl_backend sl_cpu_backend;  /* computes; device and host tiers are both RAM */
extern const sl_backend sl_null_backend; /* records what it was handed, computes nothing, reserves nothing */
/* The CUDA backend is a plugin: backend/cuda_plugin.h. */

#endif

/* segment.h: the memory that the ranks of one machine and their parent share.
 *
 * One anonymous mapping, made before the ranks are forked: it has no name, so it vanishes with the last process. Every
 * rank writes its own member only, and the parent writes a member after its process is gone, so no lock crosses
 * processes and a rank that dies at any instant leaves nothing half-held. Counters are C11 atomics; those somebody
 * waits for are futex words. */
#ifndef SL_COMM_SEGMENT_H
#define SL_COMM_SEGMENT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/status.h"

#define SL_LOCAL_RANKS        256                 /* most ranks of one job on one machine */
#define SL_LOCAL_PARTS        1024                /* most parts of one collective */
#define SL_LOCAL_STAGING      ((size_t)256 << 10) /* bytes of a control call that move at once, per rank */
#define SL_LOCAL_NAME_BYTES   128                 /* of a call, for messages; the hash covers all of it */
#define SL_LOCAL_LOOK_SECONDS 0.1                 /* how often a waiting rank looks whether its peers still live */

/* A counter that other processes wait for. `waiters` spares the system call where nobody does. */
typedef struct sl_word {
    _Alignas(64) _Atomic uint32_t value;
    _Atomic uint32_t waiters;
} sl_word;

/* Collectives and control calls need no order with each other, so each kind has counters of its own. */
typedef enum { SL_CHANNEL_COLLECTIVE, SL_CHANNEL_CONTROL, SL_CHANNEL_COUNT } sl_channel;

/* What a rank says it does. All but the sequence number of control calls, which is counted, comes from the caller. */
typedef struct sl_notice {
    uint64_t sequence, bytes;
    uint64_t name_hash;
    uint64_t forms; /* COLLECTIVE: of the forms of all parts, a hash */
    int32_t kind;   /* COLLECTIVE: sl_collective_kind. CONTROL: sl_control_kind */
    int32_t parts;  /* COLLECTIVE: how many entries of `sources` hold */
    int32_t detail; /* COLLECTIVE: whether accumulators are set. CONTROL: the root */
    char name[SL_LOCAL_NAME_BYTES];
} sl_notice;

/* `arrived` counts notices, `done` those whose data is no longer needed from others. The notice is valid for all from
 * its arrival until all are done with it. */
typedef struct sl_mailbox {
    sl_word arrived, done;
    sl_notice notice;
} sl_mailbox;

/* Where a rank's part of a collective is to be read: bytes of its arena of a tier. */
typedef struct sl_source {
    uint64_t offset, bytes;
    int64_t tier;
} sl_source;

typedef enum {
    SL_LIFE_RUNNING,
    SL_LIFE_GAVE_UP, /* reason holds; still there, but its calls fail */
    SL_LIFE_ENDED,   /* status and message hold */
    SL_LIFE_LOST     /* reason holds; set by the parent */
} sl_life_state;

typedef struct sl_life {
    _Atomic uint32_t state; /* sl_life_state; only grows */
    _Atomic uint32_t order; /* 0: nothing wrong; else this was the order-th thing that went wrong in the job */
    int32_t status;         /* sluice_status it ended with */
    char reason[SL_MESSAGE_BYTES], message[SL_MESSAGE_BYTES];
} sl_life;

typedef struct sl_member {
    sl_life life;
    sl_mailbox boxes[SL_CHANNEL_COUNT];
    sl_source sources[SL_LOCAL_PARTS]; /* of the notice in boxes[SL_CHANNEL_COLLECTIVE] */
    _Alignas(4096) unsigned char staging[SL_LOCAL_STAGING];
} sl_member;

typedef struct sl_local_segment {
    int ranks;
    double timeout_seconds;
    _Atomic uint32_t failures; /* numbers sl_life.order */
    _Atomic uint32_t broken;   /* 1 + the rank that ended the job for all; 0: none */
    _Atomic bool late;         /* a wait has run into its deadline */
    sl_member members[];
} sl_local_segment;

sluice_status sl_segment_create(int ranks, double timeout_seconds, sl_local_segment **out);
void sl_segment_destroy(sl_local_segment *s); /* NULL is fine */

/* Adds one and wakes who waits. What was written before is visible to who sees the new value. */
void sl_word_advance(sl_word *w);
/* Sleeps while the value is `seen`, at most `seconds`, possibly shorter. */
void sl_word_sleep(sl_word *w, uint32_t seen, double seconds);

/* Marks a rank as GAVE_UP or LOST and ends the job for all. Nothing happens when it is as far already. */
void sl_segment_break(sl_local_segment *s, int rank, sl_life_state state, const char *reason);
/* Publishes how a rank ended; a failure other than a requested stop ends the job for all. */
void sl_segment_end(sl_local_segment *s, int rank, sluice_status status, const char *message);

/* "collective 58 (gather of h.1, 40960 bytes)", or "\"losses of the step\" (exchange, 8 bytes)". */
void sl_notice_describe(sl_channel channel, const sl_notice *n, char *out, size_t bytes);
/* What a rank is at, as far as it has said: "in collective 58 (...)", "after collective 57 (...)". */
void sl_member_describe(const sl_member *m, char *out, size_t bytes);

typedef enum { SL_CONTROL_EXCHANGE, SL_CONTROL_BROADCAST, SL_CONTROL_COLLECT, SL_CONTROL_BARRIER } sl_control_kind;

#endif

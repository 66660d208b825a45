/* span.h: the memories that a plan uses, the links between them, and a piece of memory as the plan names it.
 *
 * A tier is a memory with one arena; a link is one direction between two tiers. Nobody but these tables knows what
 * belongs to which: streams, names, settings, and through their indices the rates and the counters
 * (sl_machine.link_bytes_per_second, sl_plan_totals.moved and others have one entry for each link). A new tier is a
 * value of sl_tier and one of sl_link for each direction, with their rows in span.c. */
#ifndef SL_IR_SPAN_H
#define SL_IR_SPAN_H

#include <stdbool.h>
#include <stdint.h>

typedef enum { SL_TIER_DEVICE, SL_TIER_HOST, SL_TIER_DISK, SL_TIER_COUNT } sl_tier;

/* In-order queues of work. */
typedef enum {
    SL_STREAM_COMPUTE,
    SL_STREAM_TO_DEVICE,
    SL_STREAM_TO_HOST,
    SL_STREAM_COMM,
    SL_STREAM_UPDATE, /* the optimizer on the host's CPU */
    SL_STREAM_DISK_READ,
    SL_STREAM_DISK_WRITE,
    SL_STREAM_COUNT
} sl_stream;

/* The disk is reached from the host alone. */
typedef enum { SL_LINK_TO_DEVICE, SL_LINK_TO_HOST, SL_LINK_DISK_READ, SL_LINK_DISK_WRITE, SL_LINK_COUNT } sl_link;

typedef struct sl_tier_row {
    const char *name;    /* for people: "device" */
    const char *setting; /* its budget: "memory.device" */
    char letter;         /* in the list of a plan's steps */
    bool in_memory;      /* its arena is memory that a backend reserves; otherwise files (core/swap.h) */
    uint64_t alignment;  /* of offsets in its arena */
} sl_tier_row;

typedef struct sl_link_row {
    sl_tier from, to;
    sl_stream stream; /* on which its copies are queued; no other link has it */
    const char *name; /* for people: "to device" */
} sl_link_row;

/* Offsets, lengths and addresses of what is moved to the disk and back are multiples of it. */
#define SL_DISK_UNIT ((uint64_t)4096)

extern const sl_tier_row sl_tiers[SL_TIER_COUNT];
extern const sl_link_row sl_links[SL_LINK_COUNT];

/* The link that a copy crosses; SL_LINK_COUNT: none, both are one tier or no link leads from one to the other. */
sl_link sl_link_of(sl_tier from, sl_tier to);
/* The stream of a copy: that of the link, or within a tier that of the first link which leads to it. */
sl_stream sl_copy_stream(sl_tier from, sl_tier to);
/* sl_tiers[].name; of what is no tier "unknown". */
const char *sl_tier_name(sl_tier tier);

typedef struct sl_span {
    sl_tier tier;
    uint64_t offset, bytes; /* in the tier's arena; never a pointer */
} sl_span;

#endif

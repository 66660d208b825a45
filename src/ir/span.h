/* span.h: a piece of memory as the plan names it: tier, offset, bytes. Never a pointer. */
#ifndef SL_IR_SPAN_H
#define SL_IR_SPAN_H

#include <stdint.h>

typedef enum { SL_TIER_DEVICE, SL_TIER_HOST, SL_TIER_COUNT } sl_tier;

/* In-order queues of work. */
typedef enum {
    SL_STREAM_COMPUTE,
    SL_STREAM_TO_DEVICE,
    SL_STREAM_TO_HOST,
    SL_STREAM_COMM,
    SL_STREAM_UPDATE, /* the optimizer on the host's CPU */
    SL_STREAM_COUNT
} sl_stream;

typedef struct sl_span {
    sl_tier tier;
    uint64_t offset, bytes;
} sl_span;

#endif

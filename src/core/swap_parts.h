/* swap_parts.h: what the files of the swap store share; nobody else includes it.
 *
 *   swap.c          opening, closing, the two calls
 *   swap_file.c     the unnamed files: making them, reserving space, where a byte of the arena lies
 *   swap_sum.c      the checksums in memory */
#ifndef SL_CORE_SWAP_PARTS_H
#define SL_CORE_SWAP_PARTS_H

#include <pthread.h>
#include <stdatomic.h>

#include "core/swap.h"

/* Neighbouring bytes of the arena lie in one file up to a multiple of it. */
#define SL_SWAP_STRIPE ((uint64_t)1 << 20)

typedef struct sl_swap_file {
    int fd;
    char *folder; /* owned; for messages */
    bool direct;  /* past the page cache */
} sl_swap_file;

typedef struct sl_swap_files {
    sl_swap_file *file; /* owned */
    int count;
} sl_swap_files;

/* Where a byte of the arena lies, and how many from it on lie there in a row. */
typedef struct sl_swap_place {
    int file;
    uint64_t offset, bytes;
} sl_swap_place;

sluice_status sl_swap_files_make(const sl_swap_options *o, sl_swap_files *out);
void sl_swap_files_close(sl_swap_files *f);
sl_swap_place sl_swap_place_of(const sl_swap_files *f, uint64_t offset);

/* The checksum of every unit of the arena, 0: never written, and the step in which units were last written. */
typedef struct sl_swap_sums {
    uint64_t *sum;          /* owned */
    _Atomic uint32_t *step; /* owned; one for SL_SWAP_STEP_UNITS units */
} sl_swap_sums;
#define SL_SWAP_STEP_UNITS 16

sluice_status sl_swap_sums_make(uint64_t bytes, sl_swap_sums *out);
void sl_swap_sums_free(sl_swap_sums *t);
uint64_t sl_swap_sums_bytes(uint64_t bytes);
/* Records what [offset, offset+bytes) is being written with. */
void sl_swap_sums_set(sl_swap_sums *t, uint64_t offset, const void *data, uint64_t bytes, const sl_swap_label *label);
void sl_swap_sums_forget(sl_swap_sums *t, uint64_t offset, uint64_t bytes);
/* The offset of the first unit whose bytes are not those recorded; offset + bytes where all are. */
uint64_t sl_swap_sums_check(const sl_swap_sums *t, uint64_t offset, const void *data, uint64_t bytes,
                            const sl_swap_label *label);
bool sl_swap_sums_written(const sl_swap_sums *t, uint64_t offset);
uint64_t sl_swap_sums_step(const sl_swap_sums *t, uint64_t offset);

/* One direction. */
typedef struct sl_swap_lane {
    pthread_mutex_t busy; /* held during a transfer */
    _Atomic uint64_t bytes, requests;
    _Atomic uint64_t nanoseconds;
} sl_swap_lane;

enum { SL_SWAP_READ, SL_SWAP_WRITE, SL_SWAP_LANES };

struct sl_swap {
    uint64_t bytes; /* of the arena */
    double deadline_seconds;
    const sl_log *log; /* borrowed */
    sl_swap_files files;
    sl_swap_sums sums;
    sl_swap_lane lane[SL_SWAP_LANES];
    _Atomic uint64_t end; /* highest end of a request that ended well */
};

#endif

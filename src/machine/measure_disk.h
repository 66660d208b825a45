/* measure_disk.h: how fast the disks of the swap files are, through the swap store (core/swap.h), checksums included. */
#ifndef SL_MACHINE_MEASURE_DISK_H
#define SL_MACHINE_MEASURE_DISK_H

#include "plan/rates.h"

/* That the store of a measurement takes, where nothing speaks for less. */
#define SL_DISK_BENCH_BYTES ((uint64_t)512 << 20)

typedef struct sl_disk_bench {
    const char *const *folders; /* one store over all of them, as a run has it */
    int folder_count;
    uint64_t bytes;          /* of the store, at most; fewer on a slow or nearly full disk. 0: SL_DISK_BENCH_BYTES */
    double seconds;          /* that it takes, about; 0: 2 */
    bool threads;            /* without io_uring */
    double deadline_seconds; /* sl_swap_options */
} sl_disk_bench;

typedef struct sl_disk_rates {
    sl_rates read, write;               /* alone */
    sl_rates read_beside, write_beside; /* the same sizes, while the other direction moves as many bytes at a time */
    double processor;                   /* that a transfer keeps busy, as a part of one: requests and checksums */
} sl_disk_rates;

/* Leaves nothing behind, but for the memory of a request that was never answered. Fails as sl_swap_open and transfers do.
 * What disks and hypervisors keep in their own memory is read from there: a disk's cache larger than `bytes` makes reads
 * look faster than those of a larger store. */
sluice_status sl_measure_disk(const sl_disk_bench *b, sl_disk_rates *out);

#endif

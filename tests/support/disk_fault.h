/* disk_fault.h: what befalls the disk tier of the program under test.
 *
 * build/faulty/sluice is the whole program with a hook of core/io.h in it (tests/support/modules/disk_fault.c), which is told
 * by two variables of the environment. Calls are counted over all processes of a job, so that one fault befalls one rank. */
#ifndef SLUICE_TEST_DISK_FAULT_H
#define SLUICE_TEST_DISK_FAULT_H

#include <stdbool.h>

/* "CALL NTH EVERY KIND VALUE THREADS", the fields of disk_fault. */
#define DISK_FAULT_VARIABLE "SLUICE_TEST_DISK_FAULT"
/* A file of at least one disk_fault_counts, which all processes of the job share. */
#define DISK_COUNT_VARIABLE "SLUICE_TEST_DISK_COUNTS"

typedef enum {
    DISK_FINE,
    DISK_FAILS,      /* value: the errno */
    DISK_SHORT,      /* value: bytes that are moved at most */
    DISK_SLOW,       /* value: microseconds */
    DISK_NEVER,      /* the request is not answered */
    DISK_FLIP_READ,  /* one bit of what comes back is another */
    DISK_FLIP_FILE,  /* before the call a random bit of the rank's swap file is turned; value: seeds the choice */
    DISK_KILL,       /* SIGKILL to the process that makes the call */
    DISK_KILL_PARENT /* SIGKILL to the process that started it */
} disk_fault_kind;

typedef struct disk_fault {
    const char *call; /* as the hook has it, or how its name begins: "swap_" is both directions */
    int nth;          /* the first that it happens to, from 1; 0: none */
    int every;        /* then every so many; 0: that one alone */
    disk_fault_kind kind;
    int value;
    bool threads; /* io_uring is refused */
} disk_fault;

typedef struct disk_fault_counts {
    int calls, struck; /* calls of that name, those that the fault befell; counted atomically */
} disk_fault_counts;

#endif

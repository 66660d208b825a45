/* fault_program.h: the built program in a process of its own, read event by event.
 *
 * Its standard output is a small pipe: a program that is not read stands still after some hundred events, so that a
 * test which waits for an event and then strikes always strikes a running program, however busy the machine is. */
#ifndef SLUICE_TEST_FAULT_PROGRAM_H
#define SLUICE_TEST_FAULT_PROGRAM_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "support/disk_fault.h"

/* About 140 events. */
#define PROGRAM_PIPE_BYTES 32768

typedef struct program {
    pid_t pid;
    FILE *out;
    char folder[2048];
    /* what the events read so far said */
    int events;
    int starts;                    /* plans announced: 1 and the restarts */
    uint64_t step, saved, resumed; /* of the newest such event; 0: none */
    int saves;
    uint64_t device_bytes, host_bytes, overhead_bytes; /* predicted */
    uint64_t end_device_bytes, end_host_bytes;         /* observed */
    char weights[65], state[65];                       /* "" before the end */
} program;

/* Starts `sluice <arguments>` (split at spaces) in `folder`; standard error goes to folder/err. */
void program_start(program *p, const char *folder, const char *arguments);
/* The same as a member of the cgroup whose folder is `group`. */
void program_start_in_group(program *p, const char *folder, const char *group, const char *arguments);
/* The same of the program whose disk a fault befalls. */
void program_start_faulty(program *p, const char *folder, const disk_fault *fault, const char *arguments);
/* Reads the next event; false at the end of the output. */
bool program_event(program *p);
/* Reads until `events` have come. False: the output ended before. */
bool program_reach(program *p, int events);
/* Reads the rest and waits. The exit status, or 128 + n when killed by signal n. */
int program_wait(program *p);
/* Starts, reads everything, waits. */
int program_run(program *p, const char *folder, const char *arguments);
int program_run_faulty(program *p, const char *folder, const disk_fault *fault, const char *arguments);
/* What it wrote to standard error; valid until the next call. */
const char *program_error(const program *p);
/* The same without notes. */
const char *program_message(const program *p);
/* Of the newest faulty program in that folder: what its fault has done so far. */
disk_fault_counts program_faults(const program *p);

/* Writes folder/name. */
void write_text(const char *folder, const char *name, const char *text);
/* Writes folder/input.txt: `bytes` of words made from a fixed seed. */
void write_corpus(const char *folder, int bytes);
/* An empty folder with a short-lived copy of its name that the caller keeps; in memory where the machine offers that,
 * since there each fsync is free. */
void memory_folder(char out[1024]);
/* The next of a fixed sequence of numbers below `limit`. */
uint32_t next_random(uint64_t *state, uint32_t limit);
/* Fails the test for every entry of a folder. */
void fault_check_empty(const char *folder);

#endif

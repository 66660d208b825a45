/* machine.h: what this machine offers: memory that may be used, rates by default or measured. */
#ifndef SL_MACHINE_MACHINE_H
#define SL_MACHINE_MACHINE_H

#include <stdio.h>

#include "core/cpu.h"
#include "plan/plan.h"

/* Bytes this process may still take: the least of available memory and what its cgroups (v1, v2) leave. */
uint64_t sl_memory_available(void);
/* Whether it is a cgroup that leaves no more. */
bool sl_memory_is_limited(void);
/* Resident bytes of this process now. */
uint64_t sl_memory_resident(void);
/* Of these what is not shared with other processes. */
uint64_t sl_memory_own(void);
/* Most resident bytes this process ever had. */
uint64_t sl_memory_high_water(void);
/* From now on, where the system can do that. */
void sl_memory_forget_high_water(void);
/* Rates by class of CPU and number of threads; nothing is measured, so that plans are the same from run to run. */
void sl_machine_describe(sl_isa isa, int threads, sl_machine *out);
/* What the arenas of this process may take of `available` bytes: less 5 %, less the overhead still to come. */
uint64_t sl_machine_room(const sl_plan_options *options, uint64_t available);

/* A budget that was told and that the machine does not have. */
typedef struct sl_shortage {
    const char *keys;   /* "memory.device", "memory.host", or both of them; NULL: nothing is short */
    uint64_t told, has; /* bytes; of both keys the sum */
    bool both;          /* keys are two */
    bool on_device;     /* of a memory that the device has for itself */
    bool on_disk;       /* of the folders for swap files */
} sl_shortage;

/* Budgets as they are told; those that are 0 become `room`. On the CPU both tiers are RAM, so together they may not take
 * more than that either. What is told and not there is left as told: *short_of says so, and the caller decides. */
void sl_machine_budgets(sl_plan_options *options, uint64_t room, sl_shortage *short_of);
/* The same where they are different memories. A budget for the device includes what the program takes there outside its
 * arena (device_choice.h); `device_room` is without it. */
void sl_machine_split_budgets(sl_plan_options *options, uint64_t device_room, uint64_t host_room,
                              sl_shortage *short_of);

/* A machine as a file describes it. Capacities are what one rank has. */
typedef struct sl_machine_description {
    sl_machine rates;
    bool shared_memory; /* device and host tier are one memory, of the device's capacity */
    /* what was measured with: ranks at the same time, threads of each, instruction path; ranks 0: not measured */
    int ranks, threads;
    sl_isa isa;
    bool is_cuda;            /* the device is a GPU */
    char gpu[64];            /* its name, for people; empty: none, or not known */
    uint64_t pinnable_bytes; /* of host memory, for copies to a GPU; 0: not known */
    bool gpus_meet;          /* GPUs of several ranks reach each other without the host's memory (NCCL) */
    int host_cores;          /* of one rank; 0: not known */
    char disk_folders[1024]; /* that the rates of the disk were measured in, separated by ':'; empty: none */
} sl_machine_description;

/* This machine by micro-benchmarks, some seconds long (45 with a GPU): `ranks` processes at once, each with its share
 * of the cores and the device that sl_device_choose gives it. Starts processes where ranks > 1, so no other thread may
 * run then, and this one must not have used CUDA. `progress`, if not NULL, is told what is being measured and what that
 * took; flush it before. */
sluice_status sl_machine_measure(sl_isa isa, int ranks, sluice_device device, FILE *progress,
                                 sl_machine_description *out);

/* The same from a description instead of this machine. */
void sl_machine_described_budgets(sl_plan_options *options, const sl_machine_description *d, sl_shortage *short_of);
/* JSON: "sluice_machine" with the number of the format, and one member for each rate and capacity. Required are gemm_flops,
 * device_bytes_per_second, device_bytes and host_bytes; the others follow from them where they are left out. Errors name the
 * line and the key; what is missing is named all at once. */
sluice_status sl_machine_read(const char *path, sl_machine_description *out);
sluice_status sl_machine_write(const char *path, const sl_machine_description *d);
/* The instruction path of this process: SLUICE_CPU, or the best there is. The only place that reads it. */
sluice_status sl_machine_isa(sl_isa *out);

#endif

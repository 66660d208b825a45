/* known.h: machines by name: GPUs, hosts and nodes of data sheets, so that a plan needs neither the machine nor a file.
 *
 * A row says what the data sheet says, and what of it programs keep up; docs/machines.md has the sources. Rates of kernels
 * follow from the shares that were measured on an H200 (known_rates.c). */
#ifndef SL_MACHINE_KNOWN_H
#define SL_MACHINE_KNOWN_H

#include "machine/machine.h"

/* How kernels reach their rates. */
typedef enum { SL_GPU_AMPERE, SL_GPU_HOPPER } sl_gpu_kernels;

/* GB are 1e9 bytes; TFLOP/s are dense, with sums in fp32. */
typedef struct sl_known_gpu {
    const char *names; /* "rtx4090|4090": the first is told; compared without case, blanks and punctuation */
    int capability;    /* 10 x major + minor */
    int memory_mib;    /* as the driver shows it */
    double memory_gb_per_second, half_tflops, float_tflops;
    double kept;               /* share of half_tflops that GEMMs of models keep up */
    double link_gb_per_second; /* to the host, one way, pinned */
    double pair, many;         /* GB/s between GPUs of a machine (bus bandwidth of all-gather): two of them; more */
    const char *host;          /* that it is usually in */
    sl_gpu_kernels kernels;
    bool shared_memory; /* with the CPU */
    const char *cannot; /* why sluice does not run there, beside its capability; NULL: nothing is in the way */
} sl_known_gpu;

typedef struct sl_known_host {
    const char *names;
    double gb_per_second; /* of its memory, by all cores: what updates reach */
    int cores, ram_gib;
    const char *what; /* for people */
} sl_known_host;

/* A machine that is sold whole. */
typedef struct sl_known_node {
    const char *names, *gpu, *host;
    int gpus, ram_gib;
    double inside;  /* GB/s between its GPUs; 0: as the GPU's row */
    double network; /* GB/s of all its adapters, as collectives reach them; 0: none */
} sl_known_node;

/* What is asked for. Zeros and NULL: what the named machine usually has. */
typedef struct sl_machine_query {
    const char *gpu;    /* a GPU or a node */
    int gpus;           /* ranks, one for each */
    uint64_t ram_bytes; /* of one machine */
    const char *host;
} sl_machine_query;

/* What each rank of such a machine has. *ranks: how many there are. SLUICE_ERR_USAGE: a name is not known, with the
 * nearest that are; or sluice does not run there. */
sluice_status sl_machine_named(const sl_machine_query *query, sl_machine_description *out, int *ranks);
/* Every name with its numbers. */
void sl_known_print(FILE *out);

/* ---- known_rates.c ---- */

/* Rates of kernels on such a GPU; the host's part is not touched. */
void sl_known_rates(const sl_known_gpu *gpu, sl_machine *m);
/* Of the general rates, what each op's kernels reach on a GPU of that kind. */
void sl_known_shares(sl_gpu_kernels kernels, sl_machine *m);
/* The kind of a GPU by its name, as the driver or a table has it; the newest where it is not known. */
sl_gpu_kernels sl_known_kernels(const char *gpu);

#endif

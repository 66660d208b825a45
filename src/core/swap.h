/* swap.h: the disk arena of one rank: bytes that are not used for a while, kept on disks until they are.
 *
 * A store is one unnamed file in each of its folders, the bytes striped over them. Its space is reserved before sl_swap_open
 * returns, so that no disk is found full in step 400, and nothing is left of it when the process ends, however that
 * happens. Every unit of SL_SWAP_UNIT bytes has a checksum in memory, made when it is written and compared when it is read:
 * bytes that the disk lost, changed, put elsewhere or never got are a failure that names them, not wrong numbers.
 *
 * Calls block until their bytes are moved. Reading and writing go on at the same time; a second reader waits for the first,
 * a second writer likewise. The caller orders reads after the writes they depend on. */
#ifndef SL_CORE_SWAP_H
#define SL_CORE_SWAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/log.h"
#include "sluice.h"

/* Offsets, lengths and memory addresses of all transfers are multiples of it. */
#define SL_SWAP_UNIT 4096

#define SL_SWAP_MAX_FOLDERS 64

/* The folders of a path that separates them by ':', in `text`; their number. */
#define SL_SWAP_FOLDERS_BYTES 8192
int sl_swap_folders(const char *path, char *text, size_t bytes, const char *out[SL_SWAP_MAX_FOLDERS]);

/* How long a file in each of the folders may be, by what is free: all are of the same length, and those on one file system
 * share its space. No folders: any length. SLUICE_ERR_USAGE: one is missing, or no folder. */
sluice_status sl_swap_room(const char *const *folders, int count, uint64_t *each);

typedef struct sl_swap sl_swap;

typedef struct sl_swap_options {
    const char *const *folders; /* borrowed during sl_swap_open */
    int folder_count;           /* 1 to SL_SWAP_MAX_FOLDERS */
    uint64_t bytes;             /* of the arena, rounded up to whole units; reserved before sl_swap_open returns */
    int depth;                  /* requests in flight of one transfer; 0: as many as disks like */
    bool threads;               /* requests by threads, as where the kernel has no io_uring */
    double deadline_seconds;    /* a request that takes longer fails; 0: none */
    const sl_log *log;          /* borrowed during sl_swap_open; NULL: silent */
} sl_swap_options;

/* A folder that is missing, no folder or not writable: SLUICE_ERR_USAGE. Too little room in one: SLUICE_ERR_NO_FIT with the
 * bytes wanted and the bytes free. Notes tell what the file system or the kernel lacks; the store works without it. */
sluice_status sl_swap_open(const sl_swap_options *o, sl_swap **out);
/* Nobody may be in a transfer. NULL is fine. Waits for nothing that does not answer. */
void sl_swap_close(sl_swap *s);

/* What is moved. A read has the name and the identity of the write that stored the units; `identity` (of the buffer and of
 * the piece of it) is part of every checksum. `step` is the training step that asks, for messages. */
typedef struct sl_swap_label {
    const char *name; /* the tensor's; borrowed during the call */
    uint64_t identity, step;
} sl_swap_label;

/* Both: SLUICE_ERR_IO names tensor, step, folder and place. After a failed write the units it was to write count as never
 * written. After a request that missed its deadline and could not be taken back every further transfer fails at once, and
 * memory of the failed one may still be read or written by the system until the process ends: the run is over.
 * Places outside the arena and odd alignments are SLUICE_ERR_FAILED: a wrong plan. */
sluice_status sl_swap_write(sl_swap *s, uint64_t offset, const void *data, uint64_t bytes, const sl_swap_label *label);
/* Every unit is verified before it returns. */
sluice_status sl_swap_read(sl_swap *s, uint64_t offset, void *data, uint64_t bytes, const sl_swap_label *label);

/* Host memory that a store of so many bytes takes beside the arenas: checksums, queues, stacks. */
uint64_t sl_swap_memory(uint64_t bytes);

/* Counted where requests end, never taken from what was asked for. */
typedef struct sl_swap_stats {
    uint64_t bytes_read, bytes_written;
    uint64_t requests_read, requests_written;
    uint64_t end;                       /* highest end of any request that ended well */
    double read_seconds, write_seconds; /* inside transfers of each direction */
    const char *engine;                 /* "io_uring", "threads" */
    bool direct;                        /* past the page cache in every folder */
    bool dead;                          /* a request was never answered: memory of it may be touched at any time */
} sl_swap_stats;
/* At any time, from any thread. */
void sl_swap_get_stats(const sl_swap *s, sl_swap_stats *out);

/* Whether io_uring is built in. */
bool sl_swap_uring_built_in(void);
/* Whether the kernel lets this process use it as well; otherwise why not, for people. */
bool sl_swap_uring_works(char *why, size_t bytes);

#endif

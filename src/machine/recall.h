/* recall.h: the rates of this machine for one model: measured when it is first trained or planned here, remembered
 * after that. */
#ifndef SL_MACHINE_RECALL_H
#define SL_MACHINE_RECALL_H

#include <limits.h>

#include "core/log.h"
#include "ir/graph.h"
#include "machine/device_choice.h"
#include "machine/machine.h"
#include "machine/ranks.h"

/* Which machine a plan goes by. */
typedef struct sl_machine_choice {
    const char *file; /* describes it; NULL: this machine */
    bool measures;    /* by measured rates; false: by those its kind usually has */
} sl_machine_choice;

/* `told` is a file, "default" for the usual rates, or NULL: then the environment's SLUICE_MACHINE says the same. The only
 * place that reads it. */
sl_machine_choice sl_machine_choose(const char *told);

typedef struct sl_recall {
    const sluice_graph *graph; /* lowered and differentiated */
    const sl_device_choice *device;
    sl_isa isa;
    int threads;    /* of a rank */
    int ranks;      /* to plan for */
    sl_ranks *here; /* those that run */
    bool anew;      /* what is kept is not true now: it is measured again, and the old rates stay kept */
    const sl_log *log;
    const char *const *folders; /* for swap files: sl_machine_recall_disk; borrowed */
    int folder_count;           /* 0: none */
    double disk_deadline;       /* seconds: sl_swap_options */
} sl_recall;

/* All ranks. *rates has the usual ones, and gets better ones: from the file of the user's cache that was kept for the same
 * kernels on the same machine, or by measuring for about a second, which is then kept. They stay as they are where ranks of
 * other machines or ranks that do not run are planned for and nothing is kept of them, or where memory is too short to
 * measure with. A cache that cannot be read or written is no failure. */
sluice_status sl_machine_recall(const sl_recall *r, sl_machine *rates);
/* The same for kernels of the graph that *rates, of a file that was measured on such a machine, has no points of; `usual`: the
 * rates that such a machine usually has. Where all are there, nothing is measured. */
sluice_status sl_machine_recall_missing(const sl_recall *r, const sl_machine *usual, sl_machine *rates);
/* The same for the folders' disks, in about two seconds. Folders that swap files cannot be made in leave the usual rates,
 * with a note. A disk that fails or does not answer is no disk to train on: SLUICE_ERR_IO, on all ranks. */
sluice_status sl_machine_recall_disk(const sl_recall *r, sl_machine *rates);
/* Folders for swap files as a run uses them: one store over all of them, and so many ranks that share them. Borrowed. */
typedef struct sl_disk_set {
    const char *const *folders;
    int folder_count; /* 1 to SL_SWAP_MAX_FOLDERS */
    int ranks;
    double deadline_seconds; /* sl_swap_options */
} sl_disk_set;
/* Measures the folders' disks whatever is kept of them, and keeps the result: `file` is where; empty: nowhere. */
sluice_status sl_machine_measure_disk(const sl_disk_set *s, sl_machine *rates, char file[PATH_MAX]);
/* Each set of folders that rates are kept of; d->disk_folders says which, d->ranks for how many. */
void sl_recall_list_disks(void (*fn)(void *user, const sl_machine_description *d), void *user);
/* How rates are measured: another number when that changes, so that what was kept before is measured anew. */
#define SL_RECALL_REVISION 3

/* The folder that rates are kept in; false: this user has none. */
bool sl_recall_folder(char out[PATH_MAX]);

#endif

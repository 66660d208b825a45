/* tuned_file.h: tuned.json beside a run's checkpoints: the arrangement that sluice tune measured to be the fastest. */
#ifndef SL_TRAIN_TUNED_FILE_H
#define SL_TRAIN_TUNED_FILE_H

#include "config/config.h"
#include "core/run_names.h"
#include "train/auto_search.h"

#define SL_TUNED_MACHINE_BYTES 256

/* What a measurement holds for. */
typedef struct sl_tuned_identity {
    char machine[SL_TUNED_MACHINE_BYTES]; /* processor and GPU, for people to read */
    uint64_t model; /* hash of the settings that decide what a step computes and where it may live */
    int ranks;
} sl_tuned_identity;

typedef struct sl_tuned {
    sl_tuned_identity identity;
    sl_arrangement arrangement;
    double expected, measured; /* seconds of a step */
} sl_tuned;

/* Of this machine and of settings that are resolved, before their micro-batch is chosen. */
sluice_status sl_tuned_identify(const sl_settings *s, int ranks, sl_tuned_identity *out);
/* NULL: the same; otherwise in which respect they differ. */
const char *sl_tuned_differs(const sl_tuned_identity *a, const sl_tuned_identity *b);
/* SLUICE_ERR_INPUT: damaged; the message says where and what to do. */
sluice_status sl_tuned_read(const char *path, sl_tuned *out);
/* The whole file or the one before it. */
sluice_status sl_tuned_write(const char *path, const sl_tuned *t);

#endif

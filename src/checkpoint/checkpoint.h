/* checkpoint.h: the training state on disk: atomic, checksummed, and independent of where the run kept it.
 *
 * folder/step-N/ holds one data file per rank and manifest.json. Everything is stored by name and global element
 * offset, so that any number of ranks can read any range. The order of system calls is the promise: every rank writes
 * its file in 4 MiB chunks with XXH3-64 each, fdatasync; then rank 0 alone: manifest last, fsync of file and directory,
 * rename of step-N.tmp to step-N, fsync of the folder, then `latest`, then the old ones go.
 *
 * Every call that takes an executor or a save is made by all ranks in the same order, and ends on all of them alike:
 * with SLUICE_OK, or with the status and message of the first rank that failed. A rank that works longer than the
 * others gives a sign of itself meanwhile, so that slow disks do not look like dead ranks. */
#ifndef SL_CHECKPOINT_CHECKPOINT_H
#define SL_CHECKPOINT_CHECKPOINT_H

#include "checkpoint/run_identity.h"
#include "core/io.h"
#include "core/log.h"
#include "core/run_names.h"
#include "optim/optim.h"
#include "runtime/exec.h"

#define SL_CHECKPOINT_FORMAT 1
#define SL_CHECKPOINT_CHUNK  ((uint64_t)4 << 20)
/* What saves, loads and hashes take from the C library while they run, at most: a chunk for the writer of a save in the
 * background, and two for values on their way between ranks; or, while weights are loaded, one and blocks of those of a few
 * threads. For overhead_bytes. */
#define SL_CHECKPOINT_STAGING_BYTES (3 * (SL_CHECKPOINT_CHUNK + 4096))

/* The best of the evaluations of a run so far. */
typedef struct sl_best {
    char by[32];    /* the metric and which values are better, in words; "": there was no evaluation */
    double value;   /* of the best one */
    uint64_t step;  /* it came after; 0: none had a value */
    uint64_t since; /* evaluations that were not better */
} sl_best;

/* All of a run's state that is not a tensor. */
typedef struct sl_checkpoint_meta {
    uint64_t step;          /* completed steps */
    uint64_t applied_steps; /* optimizer steps that were not skipped */
    uint64_t seed;
    uint64_t data_position; /* global micro-batches consumed */
    double loss_scale;
    sl_schedule_state schedule;
    char identity[SL_IDENTITY_BYTES];           /* lines of what a run must keep to continue; "": an older version's */
    char model_sha256[65];                      /* of the model's description; another model is refused */
    char data_sha256[65];                       /* identity of the data set; "" when unknown */
    char kernels[64];                           /* instruction path and kernel generation the bits depend on */
    uint64_t micro_batch, global_micro_batches; /* samples in a micro-batch, and K; 0: written before they were kept */
    char optimizer[32];                         /* its type; "" likewise */
    char precision[8], wire[8], states[16];     /* "fp32", "bf16", "fp16", "compact"; "" likewise: fp32 */
    /* of a dynamic loss scale: steps since the last overflow, overflows until it falls; 0: it is not dynamic */
    uint64_t scale_steps, scale_hysteresis;
    uint64_t plain_steps; /* the last ones in a row that were neither clipped nor skipped */
    sl_best best;         /* checkpoint.keep_best: best.step is never removed; 0: none is kept */
    sl_best stopping;     /* early_stopping */
} sl_checkpoint_meta;

typedef struct sl_checkpoint_slots { /* names of the optimizer's state tensors */
    int count;
    const char *names[SL_MAX_STATE_SLOTS];
} sl_checkpoint_slots;

/* Saves exec's parameters and state. Keeps the newest `keep` (>= 1) committed ones. *path (>= 4096 bytes) gets
 * folder/step-N. */
sluice_status sl_checkpoint_save(sl_exec *x, const sl_checkpoint_slots *slots, const sl_checkpoint_meta *meta,
                                 const char *folder, int keep, char *path);
/* The same in two halves. With `background` (needs plan option snapshot) begin copies what this rank owns aside and
 * starts a thread that writes it; training may go on at once, and finish waits for the thread and commits. Without,
 * the values are read in finish. One save at a time; every begun one must be finished, before x is destroyed, also
 * after a failure elsewhere: finish frees it in any case. */
typedef struct sl_save sl_save;
sluice_status sl_checkpoint_begin(sl_exec *x, const sl_checkpoint_slots *slots, const sl_checkpoint_meta *meta,
                                  const char *folder, int keep, bool background, sl_save **out);
/* Whether this rank's thread is through; finish would wait for it, and for those of the other ranks. Local: ranks that
 * decide by it must agree first. */
bool sl_save_done(sl_save *save);
sluice_status sl_checkpoint_finish(sl_save *save, char *path);
/* Loads the newest checkpoint that verifies into exec. None there: SLUICE_OK with meta->step 0. All damaged:
 * SLUICE_ERR_INPUT, or SLUICE_ERR_IO where the newest cannot be read. One that another run made: SLUICE_ERR_USAGE
 * naming the setting and both values, or SLUICE_ERR_INPUT naming the tensor; nothing is loaded then. */
sluice_status sl_checkpoint_load(sl_exec *x, const sl_checkpoint_slots *slots, const char *folder,
                                 const sl_identity *identity, const sl_log *log, sl_checkpoint_meta *meta);
/* Makes that link lead to step-N where there is one. A save of a step that is its own meta.best.step does so; a run that was
 * killed in between does it when it goes on. Needs the folder's lock. */
sluice_status sl_checkpoint_name_best(const char *folder, uint64_t step);
/* The highest step that has a folder here, whole or not; 0: none. */
sluice_status sl_checkpoint_newest(const char *folder, uint64_t *step);
/* Rows of a micro-batch of the run whose checkpoints these are, by the newest that tells; 0: none does. */
uint64_t sl_checkpoint_micro_batch(const char *folder);
/* The newest checkpoint's plain_steps; 0: there is none whose manifest can be read. Fails where the folder cannot be listed. */
sluice_status sl_checkpoint_plain_steps(const char *folder, uint64_t *steps);
/* Removes half-written leftovers (step-*.tmp) of killed runs, and puts a step-*.old that a killed save left alone back
 * in place. Needs the folder's lock. A missing folder is fine. */
sluice_status sl_checkpoint_clean(const char *folder);
/* Weights alone, as safetensors. type: F32; or BF16, F16, rounded to nearest even, where a value that F16 cannot hold
 * is SLUICE_ERR_USAGE. Loading takes any of them. */
sluice_status sl_weights_save(sl_exec *x, const char *path, sluice_dtype type);
sluice_status sl_weights_load(sl_exec *x, const char *path);
/* The same as a folder (checkpoint/model_folder.h), with `others` beside the weights, which are in files of at most
 * shard_bytes of tensors. */
struct sl_model_files;
sluice_status sl_folder_save(sl_exec *x, const char *path, sluice_dtype type, uint64_t shard_bytes,
                             const struct sl_model_files *others);
/* Adapters, and what was trained whole beside them, as a folder of PEFT (checkpoint/adapter_folder.h); and back into a model
 * that was built for it (format/adapter_config.h): everything that is trained must be there, the other weights stay.
 * prefix: of the family's names in files (sl_decoder_prefix). others: what stands beside them; rank 0's; NULL: nothing. */
struct sl_adapter_config;
sluice_status sl_adapter_save(sl_exec *x, const char *folder, const struct sl_adapter_config *c, const char *prefix,
                              const struct sl_model_files *others);
sluice_status sl_adapter_load(sl_exec *x, const char *folder);
/* All values of a parameter on every rank, whoever owns them. `out` is undefined after a failure. */
sluice_status sl_parameter_read(sl_exec *x, int parameter, float *out);
/* Only reads a checkpoint's weights (evaluation, generation): no state, no slots. `folder` may also be one step-N. None
 * there: SLUICE_OK with *step 0. */
sluice_status sl_checkpoint_load_weights(sl_exec *x, const char *folder, uint64_t *step);
/* Exact rule 10, as lower-case hexadecimal digits.
 *   weights = SHA-256 of, for each parameter in byte order of names: name, NUL, the 32 bytes of SHA-256(values as f32,
 * little-endian) state   = SHA-256 of, for each "<parameter>.<slot>" of the trainable ones and each running statistic in
 * byte order: that name, NUL, SHA-256(values) likewise; then "loss_scale", NUL, SHA-256(the 8 bytes of the double,
 * little-endian) */
sluice_status sl_state_hash(sl_exec *x, const sl_checkpoint_slots *slots, double loss_scale, char weights[65],
                            char state[65]);

#endif

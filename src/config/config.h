/* config.h: the settings of a run as plain structs. Every field is a row of the option table in config_table.c, or follows
 * from rows (said at the field). */
#ifndef SL_CONFIG_CONFIG_H
#define SL_CONFIG_CONFIG_H

#include "config/metric_list.h"
#include "core/log.h"
#include "core/options.h"
#include "data/data.h"
#include "model/model.h"
#include "optim/optim.h"
#include "optim/precision.h"
#include "plan/plan.h"
#include "sluice.h"

/* Entries of freeze, of lora.targets and of lora.modules_to_save. */
#define SL_MAX_PATTERNS 32
/* Entries of data.columns.numeric and its like. */
#define SL_MAX_COLUMN_NAMES 4096

/* How ranks on GPUs talk to each other. */
typedef enum {
    SL_GPU_COMM_AUTO, /* NCCL where every rank has a GPU of its own and finds NCCL */
    SL_GPU_COMM_NCCL,
    SL_GPU_COMM_HOST
} sl_gpu_comm;

/* Which values of a metric are better. */
typedef enum { SL_JUDGE_AUTO, SL_JUDGE_MIN, SL_JUDGE_MAX } sl_judge_mode;

typedef struct sl_device_settings {
    sluice_device kind;
    int threads; /* 0: this rank's share of the CPUs */
    bool tf32;   /* CUDA, F32: GEMMs may round their operands to tf32 */
    sl_gpu_comm comm;
    bool guard;            /* poisoned arenas with guard pages */
    bool null_backend;     /* nothing is computed */
    const char *disk_path; /* folders for swap files, separated by ':'; "" or NULL: there is no disk tier */
} sl_device_settings;

/* The settings of a run. A row of the option table writes straight into the struct that the part it is meant for uses;
 * sl_config_resolve fills in what follows from several rows. The C API's options are written by the same rows. */
typedef struct sl_settings {
    const char *path; /* folder that the model is (model.path); "": it is described by the other settings */
    sl_model_options model;
    sl_data_options data;
    sl_optim_options optim; /* .groups: whoever keeps the settings points it at `groups` below */
    sl_group_options groups[SL_MAX_GROUPS];
    sl_schedule_options schedule; /* total_num_steps -1: as many as the run has, which only the data can tell when
                                     `epochs` is given; whoever counts them fills it in */
    sl_precision precision;
    sl_plan_options plan; /* budgets 0: from the machine; what follows from the rank, the optimizer and the backend is
                             filled in by the engine */
    sl_device_settings device;
    int64_t seed;
    int64_t steps, epochs;    /* -1: not given; exactly one is */
    int64_t train_batch_size; /* samples in a step: model.batch x plan.accumulation x ranks */
    struct {
        int64_t every, batches;
        int metric;       /* that judges: 0: auto, else 1 + sl_metric */
        uint64_t metrics; /* bit 1 << sl_metric of those to show; 0: the usual ones. Follows from given.metrics */
    } evaluate;           /* every 0: only before the first and after the last step; batches 0: all of the split */
    struct {
        int64_t patience; /* evaluations; 0: the run is not ended early */
        double min_delta;
        int metric; /* as evaluate.metric */
        int mode;   /* sl_judge_mode */
    } early_stopping;
    struct {
        int64_t every;         /* steps; 0: the batch does not grow */
        int64_t factor, limit; /* limit: samples in a step; -1: not given */
    } batch_growth;
    struct {
        const char *path; /* "": none */
        int64_t every;
        int keep;
        bool background;
        bool keep_best; /* by evaluate.metric */
    } checkpoint;
    struct {
        bool enabled;
        const char *output_path, *job_name; /* the folder is output_path/job_name */
    } tensorboard, csv_monitor;
    bool wandb, comet;    /* services that take TensorBoard's files: these are written then */
    bool save_best;       /* `save` gets the weights of the best checkpoint */
    const char *save;     /* safetensors path, or a folder; "": none */
    uint64_t shard_bytes; /* of tensors in a file of that folder; 0: the usual number */
    sluice_dtype save_type;
    const char *initial_weights; /* safetensors to start from ("load"), or the model's folder; "": random */
    const char *adapter;         /* folder of a PEFT adapter to start from ("lora.path"); "": none */
    bool replan;                 /* where steps become slower */
    int64_t slow_from;           /* step from which they are taken for slow; 0: never */
    int64_t renew_every;         /* steps by one of two plans (train/renewal.h); 0: as long as that is worth while */
    int64_t timeout_seconds;
    int64_t steps_per_print;
    bool hashes;
    bool from_options; /* made by sl_settings_from_options: rows without an option say nothing */
    /* What rows say that has no meaning alone: sl_config_resolve makes fields above of it. */
    struct {
        const char *vocabulary; /* "bytes", "characters", or a number */
        const char *hidden, *filters, *bottom, *top, *freeze, *fresh, *targets, *whole, *groups, *weights, *mean,
            *deviation, *numeric, *categorical, *ignored, *metrics; /* JSON arrays as text; parsed when they are read */
        int weight_count;                                           /* entries of plan.partition_weights */
        bool adam_w_mode, torch_adam;
        bool dropout;     /* model.dropout, which then stands for all that a folder has */
        bool lora;        /* adapters with usual settings (lora.enabled) */
        bool chosen_save; /* nobody named `save`: only training writes there, and over nothing */
        bool only_name; /* model.path is the name of a published model: its shape is known, its weights are not here */
        bool no_data;   /* a configuration without a file names none: random tokens stand for it */
        bool
            open_batch; /* nobody said how large micro-batches are: what is resolved is careful, and may be chosen again */
        bool open_accumulation; /* nor how many of them a step has */
        bool by_trainer; /* what is "auto" in the file is what Hugging Face's Trainer fills in unless told otherwise */
        bool fp16, bf16;
        bool fp32_states, bf16_states;           /* DeepSpeed's names for precision.states */
        int64_t reduce_bucket, allgather_bucket; /* elements; -1: auto */
        bool cpu_offload, cpu_offload_param;     /* DeepSpeed's old names for plan.state and plan.parameters */
        const char *state_path, *parameter_path; /* and for device.disk_path */
        bool cpu_checkpointing;                  /* DeepSpeed's name for recomputation with offloaded inputs */
    } given;
} sl_settings;

struct sluice_config {
    sl_settings settings;
    char *path; /* owned; the file, for messages */
    bool bare;  /* there is no file (sluice_config_create) */
    /* Parsed JSON, text for line numbers, and owned strings: config.c's business. */
    struct sl_config_private *private_data;
};

/* Checks everything that needs more than one key (batch rule, steps or epochs, schedule parameters), refuses what is
 * not built in, and fills in what follows for a run on `ranks` ranks (0: as many as the file is written for).
 * sluice_config_load and sluice_config_set leave the settings unresolved, so that a later assignment can mend an
 * earlier one. Strings in *out belong to `c`. Notes about keys without effect go to `log` (NULL: nowhere). */
sluice_status sl_config_resolve(const sluice_config *c, int ranks, const sl_log *log, sl_settings *out);
/* The same for one rank that only uses the model: nothing is said of what training alone reads. */
sluice_status sl_config_resolve_use(const sluice_config *c, const sl_log *log, sl_settings *out);
/* The rows of a micro-batch that may be chosen, most first, all for the same batch of a step; 0: they are given, or follow. */
#define SL_BATCH_CHOICES     4
#define SL_BATCH_MOST_ROWS   8
#define SL_BATCH_MOST_TOKENS 8192 /* more give no device better GEMMs */
int sl_config_batch_choices(const sl_settings *settings, int64_t out[SL_BATCH_CHOICES]);
void sl_config_choose_batch(int64_t rows, sl_settings *settings); /* one of them */
/* Tells, once it is decided, what nobody said of it; why NULL: nobody chose again. */
void sl_config_tell_batch(const sl_settings *settings, const char *why, const sl_log *log);
/* Warns where the learning rate is still warming up at the end of a run of so many steps. sl_config_resolve has done so
 * where the number is in the settings. */
void sl_config_warn_of_warmup(const sl_settings *settings, int64_t steps, const sl_log *log);
/* Tells a training run on a folder which dropout of config.json is applied, and warns of what is not. */
void sl_config_tell_dropout(const sl_settings *settings, const sl_log *log);
/* Every effective value as a line "key: value": what ranks compare. */
void sl_settings_write(const sl_settings *settings, FILE *out);
/* The same as a configuration file, which resolves to them. */
void sl_settings_print(const sl_settings *settings, FILE *out);
/* The lines of what a checkpoint continues only with the same value (rows marked SAME and MODEL). */
void sl_settings_write_identity(const sl_settings *settings, FILE *out);
/* Whether the setting of an identity line, such as "model.heads", says what the graph is. */
bool sl_settings_is_model(const char *key);
/* A file or folder that a setting names. */
typedef struct sl_setting_file {
    const char *key, *path;
    sl_file_role role;
} sl_setting_file;
/* The first one from row *row on, which is left behind it; begin with 0. False: there are no more. */
bool sl_settings_next_file(const sl_settings *settings, size_t *row, sl_setting_file *out);
/* The table of docs/resume.md: every setting, and what becomes of it on --resume. */
void sl_settings_write_resume_page(FILE *out);

/* The settings that the options of the C API stand for: defaults, and what rows with an option take from it, checked
 * against the rows. Pointers in *out are those of `o`. */
sluice_status sl_settings_from_options(const sluice_options *o, sl_settings *out);

#endif

/* config.h: a configuration file as a plain struct. Every field is a row of the option table in config_table.c, or
 * follows from rows (said at the field). */
#ifndef SL_CONFIG_CONFIG_H
#define SL_CONFIG_CONFIG_H

#include "core/log.h"
#include "core/options.h"
#include "model/model.h"
#include "optim/optim.h"
#include "sluice.h"

/* Entries of model.hidden, as many as sl_model_options takes. */
#define SL_MAX_HIDDEN 16

/* Entries of freeze and of lora.targets. */
#define SL_MAX_PATTERNS 32

/* A list of file-name patterns. */
typedef struct sl_patterns {
    const char *text; /* JSON array */
    const char *list[SL_MAX_PATTERNS];
    int count;
} sl_patterns;

/* The resolved settings, in the order of the file's sections. -1 or "" mean "auto" where a row allows it. */
typedef struct sl_settings {
    struct {
        const char *type; /* one of sl_model_names() */
        int64_t layers, heads, width, context;
        const char *vocabulary; /* "bytes", "characters", or a number */
        double dropout, norm_epsilon;
        int64_t kv_heads, feed_forward; /* -1: auto */
        double rope_theta;
        bool tied;
        int64_t features, outputs;
        const char *hidden;                  /* JSON array as text: "[5, 3]" */
        int64_t hidden_sizes[SL_MAX_HIDDEN]; /* the same, parsed by sl_config_resolve */
        int hidden_count;
        int activation; /* none|relu|gelu|silu */
        int loss;       /* mse|cross_entropy */
        bool bias;
    } model;
    sl_patterns freeze;
    struct {
        int64_t rank;
        double alpha; /* -1: auto */
        sl_patterns targets;
        double dropout;
    } lora;
    struct {
        const char *type; /* "text", "regression", "classification" */
        const char *path;
        int unit; /* auto|bytes|characters: auto follows model.vocabulary */
        double validation;
        int64_t samples, features, outputs; /* synthetic */
        double noise;
        int64_t seed; /* -1: the run's */
        bool shuffle;
    } data;
    int64_t steps, epochs; /* -1: not given; exactly one is */
    int64_t seed;
    int64_t threads; /* -1: all */
    int device;      /* sluice_device */
    bool tf32;
    struct {
        int gpu; /* sl_gpu_comm */
    } communication;
    struct {
        int64_t every, batches;
    } evaluate; /* every 0: only before the first and after the last step; batches 0: all of the split */
    int64_t train_batch_size, micro_batch, accumulation; /* resolved to positive numbers by sl_config_resolve */
    struct {
        int type; /* sluice_optimizer_kind; resolved: "Adam" in adam_w_mode is SLUICE_ADAMW */
        double lr, weight_decay, betas[2], eps, momentum, dampening, trust, min_trust, max_trust;
        bool nesterov, amsgrad, adam_w_mode, torch_adam;
        bool fp32_states;   /* resolved into zero.states */
        const char *groups; /* JSON array as text; resolved into `groups` below */
    } optimizer;
    sl_group_options groups[SL_MAX_GROUPS];
    int group_count;
    /* Resolved: base_lr filled in. total_num_steps -1: as many as the run has, which only the data can tell when
     * `epochs` is given; whoever counts them fills it in. */
    sl_schedule_options schedule;
    int warmup_type, threshold_mode; /* log|linear, rel|abs: resolved into `schedule` */
    double gradient_clipping;
    struct {
        bool fp16, bf16;   /* resolved into `type` */
        double loss_scale; /* 0: dynamic */
        int64_t scale_power, scale_window, hysteresis, min_loss_scale;
        bool consecutive_hysteresis;
        bool check_overflow, bf16_states; /* of bf16; the second is resolved into zero.states */
        int wire;                         /* fp32|bf16|fp16; -1: as `type`, and resolved to that */
        sluice_dtype type;                /* resolved */
    } precision;
    struct {
        int64_t stage;
        int partition, update, states;        /* indexes of choices; states: a sluice_states */
        int offload_optimizer, offload_param; /* none|cpu|nvme; -1: auto (absent) */
        double offload_optimizer_ratio;
        const char *partition_weights;           /* JSON array as text */
        const double *weights;                   /* the same, parsed; borrowed from the configuration */
        int weight_count;                        /* 0: equal weights */
        int64_t partition_block;                 /* elements; -1: auto */
        int64_t reduce_bucket, allgather_bucket; /* elements; -1: auto */
        uint64_t bucket_bytes;                   /* what follows from the two; 0: auto */
        bool cpu_offload, cpu_offload_param;     /* DeepSpeed's old names; resolved into the devices above */
    } zero;
    struct {
        int mode, device;       /* auto|none|recompute|offload; device|cpu */
        bool cpu_checkpointing; /* DeepSpeed's name; resolved into the two above */
    } activations;
    struct {
        uint64_t device, host;    /* 0: auto */
        uint64_t tile_bytes;      /* 0: no tiles */
        int64_t levels, prefetch; /* 0 / -1: auto */
        bool unified, keep_gathered;
    } memory;
    struct {
        const char *path;
        int64_t every, keep;
        bool background;
    } checkpoint;                /* path "": none */
    const char *save;            /* safetensors path; "": none */
    int save_type;               /* fp32|bf16|fp16 */
    const char *initial_weights; /* safetensors to start from ("load"); "": random */
    int64_t timeout_seconds;
    int64_t steps_per_print;
    bool guard;        /* "debug.guard": poisoned arenas with guard pages */
    bool null_backend; /* "debug.null_backend" */
    bool hash;         /* "debug.hash" */
} sl_settings;

struct sluice_config {
    sl_settings settings;
    char *path; /* owned; the file, for messages */
    /* Parsed JSON, text for line numbers, and owned strings: config.c's business. */
    struct sl_config_private *private_data;
};

/* Checks everything that needs more than one key (batch rule, steps or epochs, schedule parameters), refuses what is
 * not built in, and fills in what follows for a run on `ranks` ranks (0: as many as the file is written for).
 * sluice_config_load and sluice_config_set leave the settings unresolved, so that a later assignment can mend an
 * earlier one. Strings in *out belong to `c`. Notes about keys without effect go to `log` (NULL: nowhere). */
sluice_status sl_config_resolve(const sluice_config *c, int ranks, const sl_log *log, sl_settings *out);
/* Every effective value as a line "key: value", for comparison between ranks. */
void sl_config_write_lines(const sl_settings *settings, FILE *out);

#endif

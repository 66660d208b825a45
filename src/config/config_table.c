/* config_table.c: every key that a configuration may hold, one row each.
 *
 * The rows come in the order in which the effective configuration is printed; rows of one section stand together. Keys
 * of DeepSpeed have the defaults of its code wherever they change the numbers. What becomes of a key that does nothing
 * here follows one question: would ignoring it change the result, or withhold something asked for? If not, it is
 * accepted with a note; otherwise it is refused. */
#include <string.h>

#include "config/config_rows.h"

#define AT(field) offsetof(sl_settings, field)
/* Upper bounds that mean "none": counts stay exact as doubles. */
#define MANY  9007199254740992.0
#define LARGE 1e300

/* Honoured keys. "auto" is accepted wherever it is the default, and by the _AUTO forms, where it leaves the default in
 * place. */
#define ROW(key_, type_, fallback_, field_, min_, max_, choices_, auto_, help_)                                        \
    {                                                                                                                  \
        key_, type_, fallback_, help_, AT(field_), min_, max_, choices_, SL_KEY_HONOURED, NULL, auto_                  \
    }
#define FLAG(key_, fallback_, field_, help_)      ROW(key_, SL_OPT_BOOL, fallback_, field_, 0, 0, NULL, false, help_)
#define FLAG_AUTO(key_, fallback_, field_, help_) ROW(key_, SL_OPT_BOOL, fallback_, field_, 0, 0, NULL, true, help_)
#define COUNT(key_, fallback_, field_, min_, help_)                                                                    \
    ROW(key_, SL_OPT_INT, fallback_, field_, min_, MANY, NULL, false, help_)
#define COUNT_AUTO(key_, fallback_, field_, min_, help_)                                                               \
    ROW(key_, SL_OPT_INT, fallback_, field_, min_, MANY, NULL, true, help_)
#define REAL(key_, fallback_, field_, min_, max_, help_)                                                               \
    ROW(key_, SL_OPT_DOUBLE, fallback_, field_, min_, max_, NULL, false, help_)
#define REAL_AUTO(key_, fallback_, field_, min_, max_, help_)                                                          \
    ROW(key_, SL_OPT_DOUBLE, fallback_, field_, min_, max_, NULL, true, help_)
#define TEXT(key_, fallback_, field_, help_) ROW(key_, SL_OPT_STRING, fallback_, field_, 0, 0, NULL, false, help_)
#define SIZE(key_, field_, help_)            ROW(key_, SL_OPT_SIZE, "auto", field_, 1, MANY, NULL, true, help_)
#define CHOICE(key_, fallback_, field_, choices_, help_)                                                               \
    ROW(key_, SL_OPT_CHOICE, fallback_, field_, 0, 0, choices_, true, help_)

/* Known keys that are not stored: accepted with a note, or refused unless they have their default. */
#define UNSTORED(key_, type_, fallback_, fate_, help_, note_)                                                          \
    {                                                                                                                  \
        key_, type_, fallback_, help_, 0, 0, 0, NULL, fate_, note_, true                                               \
    }
#define NOTED(key_, type_, fallback_, note_)   UNSTORED(key_, SL_OPT_##type_, fallback_, SL_KEY_NOTED, NULL, note_)
#define UNBUILT(key_, type_, fallback_, help_) UNSTORED(key_, SL_OPT_##type_, fallback_, SL_KEY_UNBUILT, help_, NULL)
#define REFUSED(key_, type_, fallback_, note_) UNSTORED(key_, SL_OPT_##type_, fallback_, SL_KEY_REFUSED, NULL, note_)

/* Notes that several rows share. */
#define COLLECTIVES  "the plan decides which collectives there are and when they run"
#define PLANNED      "addresses, order and movement are decided by the plan"
#define STATE_DISK   "the disk tier is not built in yet"
#define WITH(key_)   "takes effect with " key_ ", which is not built in yet"
#define TORCH_DETAIL "chooses between implementations of one update; here there is one"

const sl_option sl_config_rows[] = {
    /* ---- model, data, length of the run ---- */
    TEXT("model.type", "", model.type, "Family of models: `linear`, `mlp`, `gpt2` or `llama`. Required."),
    COUNT("model.layers", "12", model.layers, 1, "gpt2, llama: transformer blocks."),
    COUNT("model.heads", "12", model.heads, 1, "gpt2, llama: attention heads; they divide the width."),
    COUNT_AUTO("model.kv_heads", "auto", model.kv_heads, 1,
               "llama: key and value heads, which the heads share; auto: as many as heads."),
    COUNT("model.width", "768", model.width, 1, "gpt2, llama: width of the residual stream."),
    COUNT_AUTO("model.feed_forward", "auto", model.feed_forward, 1,
               "llama: width of the feed-forward part; auto: 8/3 of the width, up to a multiple of 256."),
    COUNT("model.context", "1024", model.context, 1, "gpt2, llama: tokens in a sample."),
    ROW("model.vocabulary", SL_OPT_STRING, "bytes", model.vocabulary, 1, MANY, NULL, false,
        "gpt2, llama: `bytes` (256), `characters` (those of the text), or a number of tokens."),
    REAL("model.dropout", "0", model.dropout, 0, 0.999, "gpt2: probability with which a value is dropped in training."),
    REAL("model.norm_epsilon", "1e-5", model.norm_epsilon, 0, 1, "Added to the variance in normalisations."),
    REAL("model.rope_theta", "500000", model.rope_theta, 1, 1e30, "llama: base of the rotation's wavelengths."),
    FLAG("model.tie_word_embeddings", "true", model.tied, "llama: the output head is the token embedding."),
    COUNT_AUTO("model.features", "auto", model.features, 1, "linear, mlp: inputs of a sample; auto: `data.features`."),
    COUNT_AUTO("model.outputs", "auto", model.outputs, 1,
               "linear, mlp: targets of a sample, or classes; auto: `data.outputs`."),
    ROW("model.hidden", SL_OPT_LIST, "[]", model.hidden, 0, 0, NULL, false,
        "mlp: widths of the hidden layers, at most 16."),
    CHOICE("model.activation", "relu", model.activation, "none|relu|gelu|silu", "mlp: between the layers."),
    CHOICE("model.loss", "auto", model.loss, "mse|cross_entropy", "linear, mlp; auto: what the data asks for."),
    FLAG("model.bias", "true", model.bias, "linear, mlp: the layers have a bias."),

    ROW("freeze", SL_OPT_LIST, "[]", freeze.text, 0, 0, NULL, false,
        "Parameters that are not trained: a list of file-name patterns over their names, such as `[\"wte.*\", "
        "\"h.0.*\"]`. They have no gradient and no optimizer state."),
    COUNT("lora.rank", "0", lora.rank, 0,
          "gpt2, llama: train an adapter of this rank beside each linear that `lora.targets` names, and nothing else; "
          "0: none."),
    REAL_AUTO("lora.alpha", "auto", lora.alpha, 1e-6, 1e6,
              "An adapter's part is multiplied with alpha / rank; auto: the rank."),
    ROW("lora.targets", SL_OPT_LIST, "[]", lora.targets.text, 0, 0, NULL, false,
        "Linears with an adapter: a list of file-name patterns over their names (those of their parameters without "
        "`.weight`), such as `[\"*.c_attn\"]` or `[\"*\"]` for all of the blocks."),
    REAL("lora.dropout", "0", lora.dropout, 0, 0.999,
         "Probability with which a value that an adapter reads is dropped in training."),

    TEXT("data.type", "", data.type,
         "`text` (a file), `random_tokens` (for timing), `regression` or `classification` (made from `data.seed`). "
         "Required."),
    TEXT("data.path", "", data.path, "text: the file. Required there."),
    CHOICE("data.unit", "auto", data.unit, "auto|bytes|characters",
           "text: what a token is; auto: as `model.vocabulary` says."),
    REAL("data.validation", "0", data.validation, 0, 0.99, "Share kept from training for evaluation."),
    COUNT("data.samples", "1000", data.samples, 1, "random_tokens, regression, classification: how many are made."),
    COUNT_AUTO("data.features", "auto", data.features, 1, "regression, classification; auto: `model.features`."),
    COUNT_AUTO("data.outputs", "auto", data.outputs, 1,
               "regression: targets of a sample; classification: classes; auto: `model.outputs`, or 1 target."),
    REAL("data.noise", "0.1", data.noise, 0, LARGE, "regression: standard deviation of what is added to the targets."),
    COUNT_AUTO("data.seed", "auto", data.seed, 0, "Of made data and of the order of samples; auto: `seed`."),
    FLAG("data.shuffle", "true", data.shuffle, "A new order every epoch."),

    COUNT("steps", "", steps, 1, "Optimizer steps in the run. Give this or `epochs`."),
    COUNT("epochs", "", epochs, 1, "Passes over the training data. Give this or `steps`."),
    COUNT("seed", "1", seed, 0, "Of initial weights, dropout and the order of samples."),
    COUNT_AUTO(
        "threads", "auto", threads, 1,
        "Compute threads of a rank; auto: the CPUs this process may use, shared out over the ranks of the machine."),
    CHOICE("device", "auto", device, "cpu|cuda|auto",
           "Where the model is computed; auto: on a GPU where there is one that sluice can use, else on the CPU. The "
           "environment's SLUICE_DEVICE stands in for auto."),
    FLAG("tf32", "false", tf32, "On a GPU in fp32: products may round their operands to tf32, which is faster."),
    CHOICE("communication.gpu", "auto", communication.gpu, "auto|nccl|host",
           "How ranks on GPUs talk: through NCCL, or through the memory of the host; auto: NCCL where every rank has a "
           "GPU of its own. The bits are the same."),
    COUNT("evaluate.every", "0", evaluate.every, 0,
          "Steps between evaluations; 0: only before the first and after the last."),
    COUNT("evaluate.batches", "0", evaluate.batches, 0,
          "Micro-batches in an evaluation; 0: the whole validation split."),

    /* ---- batch ---- */
    COUNT_AUTO("train_batch_size", "auto", train_batch_size, 1,
               "Samples in a step: `train_micro_batch_size_per_gpu` x `gradient_accumulation_steps` x ranks. Give any "
               "two of the "
               "three, or one of the two sizes."),
    COUNT_AUTO("train_micro_batch_size_per_gpu", "auto", micro_batch, 1, "Samples computed at once on a rank."),
    COUNT_AUTO("gradient_accumulation_steps", "auto", accumulation, 1, "Micro-batches of a rank in a step."),
    REFUSED("managed_gradient_accumulation", BOOL, "true",
            "the program owns the step boundary; a caller who wants it uses sluice_forward, sluice_backward and "
            "sluice_step"),
    REAL_AUTO("gradient_clipping", "1.0", gradient_clipping, 0, LARGE, "Bound of the global gradient norm; 0: none."),
    COUNT_AUTO("steps_per_print", "auto", steps_per_print, 1,
               "Steps between printed lines; auto: about twenty lines a run."),
    NOTED("wall_clock_breakdown", BOOL, "false", "the time of every step is in its event"),
    NOTED("memory_breakdown", BOOL, "false", "the plan prints memory by tier and kind before the first step"),
    NOTED("dump_state", BOOL, "false", "`sluice config` prints the effective configuration"),
    NOTED("dataloader_drop_last", BOOL, "false", "batches wrap epochs and are always full, so no last one is short"),
    CHOICE(
        "communication_data_type", "auto", precision.wire, "fp32|bf16|fp16",
        "Type in which gradients are exchanged and kept; auto: that of the run. It changes the rounding, on one rank "
        "too."),
    NOTED("seq_parallel_communication_data_type", STRING, "fp32",
          "there is no sequence parallelism to communicate for"),
    REFUSED("gradient_allreduce_op", STRING, "mean",
            "gradients are means over the global batch, whatever the number of ranks; scale the learning rate instead"),
    NOTED("prescale_gradients", BOOL, "false", "contributions are always divided before they are summed"),
    REFUSED("gradient_predivide_factor", DOUBLE, "1.0",
            "contributions are divided once, by the number of micro-batches; another factor would change the rounding"),
    NOTED("sparse_gradients", BOOL, "false", "embedding gradients are kept dense; the result is the same"),
    NOTED("disable_allgather", BOOL, "false", COLLECTIVES),
    NOTED("zero_allow_untested_optimizer", BOOL, "false", "every optimizer works at every stage"),
    NOTED("zero_force_ds_cpu_optimizer", BOOL, "true", "an update has the same bits wherever it runs"),
    REFUSED("data_types.grad_accum_dtype", STRING, "fp32", "contributions are always summed in fp32"),
    UNBUILT("data_types.param_dtype", STRING, "fp32", "Type of the weights."),
    UNBUILT("data_types.buffer_dtype", STRING, "fp32", "Type of buffers that are not trained."),

    /* ---- optimizer ---- */
    ROW("optimizer.type", SL_OPT_CHOICE, "", optimizer.type, 0, 0,
        "SGD|Adagrad|Adam|AdamW|LAMB|LARS|Lion|Muon!|OneBitAdam!|ZeroOneAdam!|OneBitLamb!|MuAdam!|MuAdamW!|MuSGD!",
        false, "Required. `Adam` is AdamW unless `adam_w_mode` is false, as in DeepSpeed."),
    REAL_AUTO("optimizer.params.lr", "0.001", optimizer.lr, 0, LARGE, "Learning rate."),
    ROW("optimizer.params.betas", SL_OPT_PAIR, "[0.9, 0.999]", optimizer.betas, 0, 0.999999999, NULL, true,
        "Decay of the two moments."),
    REAL_AUTO("optimizer.params.eps", "1e-8", optimizer.eps, 0, LARGE, "Added to the denominator."),
    REAL_AUTO("optimizer.params.weight_decay", "0", optimizer.weight_decay, 0, LARGE,
              "Decay of the weights; AdamW with `torch_adam`: 0.01 when absent."),
    REAL_AUTO("optimizer.params.momentum", "0", optimizer.momentum, 0, 0.999999999, "Momentum."),
    REAL_AUTO("optimizer.params.dampening", "0", optimizer.dampening, 0, 1,
              "Taken off the gradient that enters the momentum."),
    FLAG_AUTO("optimizer.params.nesterov", "false", optimizer.nesterov, "Nesterov's form of momentum."),
    FLAG_AUTO("optimizer.params.amsgrad", "false", optimizer.amsgrad, "Keep the largest second moment."),
    FLAG_AUTO("optimizer.params.adam_w_mode", "true", optimizer.adam_w_mode,
              "Adam: decay the weights, not the gradient."),
    FLAG_AUTO("optimizer.params.torch_adam", "false", optimizer.torch_adam,
              "Adam: PyTorch's default for the weight decay."),
    REAL_AUTO("optimizer.params.trust_coefficient", "0.001", optimizer.trust, 0, LARGE, "Factor of the trust ratio."),
    REAL_AUTO("optimizer.params.min_coeff", "0.01", optimizer.min_trust, 0, LARGE, "Lower bound of the trust ratio."),
    REAL_AUTO("optimizer.params.max_coeff", "10.0", optimizer.max_trust, 0, LARGE, "Upper bound of the trust ratio."),
    UNBUILT("optimizer.params.bias_correction", BOOL, "true", "Correct the moments for their zero start."),
    UNBUILT("optimizer.params.lr_decay", DOUBLE, "0", "Decay of the rate with the step."),
    UNBUILT("optimizer.params.initial_accumulator_value", DOUBLE, "0", "Start of the sum of squares."),
    UNBUILT("optimizer.params.maximize", BOOL, "false", "Climb instead of descend."),
    UNBUILT("optimizer.params.eps_inside_sqrt", BOOL, "false", "Add epsilon under the root."),
    FLAG_AUTO("optimizer.params.fp32_optimizer_states", "true", optimizer.fp32_states,
              "False: `zero_optimization.states` is bf16."),
    REFUSED("optimizer.params.max_grad_norm", DOUBLE, "0", "write gradient_clipping instead"),
    NOTED("optimizer.params.foreach", BOOL, "", TORCH_DETAIL),
    NOTED("optimizer.params.fused", BOOL, "", TORCH_DETAIL),
    NOTED("optimizer.params.capturable", BOOL, "false", TORCH_DETAIL),
    NOTED("optimizer.params.differentiable", BOOL, "false", TORCH_DETAIL),
    NOTED("optimizer.params.set_grad_none", BOOL, "true", PLANNED),
    UNBUILT("optimizer.params.muon_lr", DOUBLE, "", "Muon: rate of the matrices."),
    UNBUILT("optimizer.params.adam_lr", DOUBLE, "", "Muon: rate of everything else."),
    UNBUILT("optimizer.params.ns_method", STRING, "gram", "Muon: how a matrix is made orthogonal."),
    ROW("optimizer.groups", SL_OPT_LIST, "[]", optimizer.groups, 0, 0, NULL, false,
        "Parameters with a rate and decay of their own: a list of `{\"match\": pattern, \"lr\": x, \"weight_decay\": "
        "y}`. The pattern is a "
        "file-name pattern over parameter names, or `no_decay` (norms and biases). The first that matches counts."),

    /* ---- scheduler ---- */
    ROW("scheduler.type", SL_OPT_CHOICE, "none", schedule.kind, 0, 0,
        "none|WarmupLR|WarmupDecayLR|WarmupCosineLR|OneCycle|LRRangeTest|ReduceLROnPlateau", false,
        "Schedule of the learning rate."),
    REAL_AUTO("scheduler.params.warmup_min_lr", "0", schedule.warmup_min_lr, 0, LARGE,
              "Rate at the start of the warm-up."),
    REAL_AUTO("scheduler.params.warmup_max_lr", "auto", schedule.warmup_max_lr, 0, LARGE,
              "Rate at the end of the warm-up; auto: the optimizer's."),
    COUNT_AUTO("scheduler.params.warmup_num_steps", "1000", schedule.warmup_num_steps, 0, "Steps of warm-up."),
    CHOICE("scheduler.params.warmup_type", "log", warmup_type, "log|linear", "Shape of the warm-up."),
    COUNT_AUTO("scheduler.params.total_num_steps", "auto", schedule.total_num_steps, 1,
               "Steps of the schedule; auto: of the run."),
    REAL_AUTO("scheduler.params.warmup_min_ratio", "0", schedule.warmup_min_ratio, 0, 1,
              "Rate at the start, as a share of the optimizer's."),
    REAL_AUTO("scheduler.params.cos_min_ratio", "0.0001", schedule.cos_min_ratio, 0, 1,
              "Rate at the end, as a share of the optimizer's."),
    REAL_AUTO("scheduler.params.lr_range_test_min_lr", "0.001", schedule.range_min_lr, 0, LARGE, "Rate at the start."),
    COUNT_AUTO("scheduler.params.lr_range_test_step_size", "2000", schedule.range_step_size, 1,
               "Steps in an interval."),
    REAL_AUTO("scheduler.params.lr_range_test_step_rate", "1.0", schedule.range_step_rate, 0, LARGE,
              "Growth in an interval."),
    FLAG_AUTO("scheduler.params.lr_range_test_staircase", "false", schedule.range_staircase, "Grow once an interval."),
    REAL("scheduler.params.cycle_min_lr", "", schedule.cycle_min_lr, 0, LARGE,
         "Rate at the ends of the cycle. Required."),
    REAL("scheduler.params.cycle_max_lr", "", schedule.cycle_max_lr, 0, LARGE,
         "Rate at the top of the cycle. Required."),
    REAL_AUTO("scheduler.params.decay_lr_rate", "0", schedule.decay_lr_rate, 0, LARGE,
              "Decay of the rate after the cycle."),
    COUNT_AUTO("scheduler.params.cycle_first_step_size", "2000", schedule.cycle_first_step_size, 1,
               "Steps of the rise."),
    COUNT_AUTO("scheduler.params.cycle_second_step_size", "auto", schedule.cycle_second_step_size, 1,
               "Steps of the fall; auto: as many as of the rise."),
    COUNT_AUTO("scheduler.params.cycle_first_stair_count", "0", schedule.cycle_first_stair_count, 0,
               "Stairs of the rise; 0: smooth."),
    COUNT_AUTO("scheduler.params.cycle_second_stair_count", "auto", schedule.cycle_second_stair_count, 0,
               "Stairs of the fall; auto: as many as of the rise."),
    COUNT_AUTO("scheduler.params.decay_step_size", "0", schedule.decay_step_size, 0,
               "Steps in an interval of decay; 0: no decay."),
    FLAG_AUTO("scheduler.params.cycle_momentum", "true", schedule.cycle_momentum,
              "Cycle the momentum (beta1) the other way."),
    REAL_AUTO("scheduler.params.cycle_min_mom", "0.8", schedule.cycle_min_mom, 0, 0.999999999, "Least momentum."),
    REAL_AUTO("scheduler.params.cycle_max_mom", "0.9", schedule.cycle_max_mom, 0, 0.999999999, "Most momentum."),
    REAL_AUTO("scheduler.params.decay_mom_rate", "0", schedule.decay_mom_rate, 0, LARGE,
              "Decay of the momentum after the cycle."),
    REAL_AUTO("scheduler.params.factor", "0.1", schedule.factor, 0, 0.999999999, "What the rate is multiplied with."),
    COUNT_AUTO("scheduler.params.patience", "10", schedule.patience, 0,
               "Evaluations without progress that are let pass."),
    REAL_AUTO("scheduler.params.threshold", "0.0001", schedule.threshold, 0, LARGE, "What counts as progress."),
    CHOICE("scheduler.params.threshold_mode", "rel", threshold_mode, "rel|abs", "Whether it is a share or an amount."),
    COUNT_AUTO("scheduler.params.cooldown", "0", schedule.cooldown, 0,
               "Evaluations that do not count after a reduction."),
    REAL_AUTO("scheduler.params.min_lr", "0", schedule.min_lr, 0, LARGE, "Least rate."),
    REFUSED("scheduler.params.mode", STRING, "min", "the loss is watched, and less is better"),
    REFUSED("scheduler.params.last_batch_iteration", INT, "-1", "a run continues from its checkpoint (--resume)"),

    /* ---- precision ---- */
    FLAG_AUTO("fp16.enabled", "false", precision.fp16,
              "Train in fp16 with an fp32 master and loss scaling. Not together with `bf16.enabled`."),
    NOTED("fp16.auto_cast", BOOL, "false", "inputs are converted where the model needs them"),
    REAL_AUTO("fp16.loss_scale", "0", precision.loss_scale, 0, LARGE,
              "What the loss is multiplied with before backward; 0: adapted while training, as the next keys say."),
    ROW("fp16.initial_scale_power", SL_OPT_INT, "16", precision.scale_power, 0, 100, NULL, true,
        "The adapted scale begins at 2 to this power."),
    ROW("fp16.loss_scale_window", SL_OPT_INT, "1000", precision.scale_window, 0, 1e9, NULL, true,
        "Steps without overflow after which the scale doubles."),
    ROW("fp16.hysteresis", SL_OPT_INT, "2", precision.hysteresis, 1, 1e9, NULL, true,
        "Overflows before the scale is halved."),
    FLAG_AUTO("fp16.consecutive_hysteresis", "false", precision.consecutive_hysteresis,
              "Every step without overflow restores the hysteresis, not only doubling."),
    COUNT_AUTO("fp16.min_loss_scale", "1", precision.min_loss_scale, 0,
               "Least scale; an overflow there ends the run (exit status 7)."),
    NOTED("fp16.fp16_master_weights_and_grads", BOOL, "false", "the master weights are always fp32"),
    NOTED("fp16.opt_level", STRING, "", "it belongs to another library"),
    FLAG_AUTO("bf16.enabled", "false", precision.bf16,
              "Train in bf16 with an exact fp32 master. The section may be called `bfloat16`."),
    NOTED("bf16.immediate_grad_update", BOOL, "false", PLANNED),
    FLAG_AUTO("bf16.check_grad_overflow", "true", precision.check_overflow,
              "Leave out a step whose gradient is not finite while its losses are; false: it ends the run."),
    NOTED("bf16.bf16_master_weights_and_grads", BOOL, "false",
          "a bf16 weight and 2 bytes beside it are the exact fp32 master"),
    FLAG_AUTO("bf16.bf16_optimizer_states", "false", precision.bf16_states,
              "True: `zero_optimization.states` is bf16."),
    UNBUILT("torch_autocast.enabled", BOOL, "false", "Compute some operations in a smaller type."),
    NOTED("torch_autocast.dtype", STRING, "bfloat16", WITH("torch_autocast.enabled")),
    NOTED("torch_autocast.lower_precision_safe_modules", LIST, "", WITH("torch_autocast.enabled")),
    UNBUILT("amp.enabled", BOOL, "false", "Mixed precision by another library."),
    NOTED("amp.*", STRING, "", WITH("amp.enabled")),

    /* ---- ZeRO ---- */
    ROW("zero_optimization.stage", SL_OPT_INT, "0", zero.stage, 0, 3, NULL, true,
        "What ranks share out: 0 nothing, 1 optimizer state, 2 also gradients, 3 also parameters. On one rank all keep "
        "the same. Results do not depend on it."),
    CHOICE("zero_optimization.partition", "auto", zero.partition, "layer|block|owner|weighted",
           "How a layer is cut over ranks: in equal parts, in blocks dealt round, whole layers to ranks, or in "
           "proportion to `partition_weights`. auto: weighted where weights are given, owner for LAMB and LARS, which "
           "need whole parameters, otherwise layer. Results do not depend on it."),
    ROW("zero_optimization.partition_weights", SL_OPT_LIST, "[]", zero.partition_weights, 0, 0, NULL, false,
        "weighted: one number per rank, such as their memory; empty: equal ones."),
    COUNT_AUTO("zero_optimization.partition_block", "auto", zero.partition_block, 1,
               "block: elements of a block, rounded up to a multiple of 1,024; auto: 262,144."),
    CHOICE(
        "zero_optimization.update", "auto", zero.update, "auto|sync|speculative!|delayed!",
        "When the update runs. `auto`: during backward where nothing of the whole gradient decides about a step, which "
        "is without `gradient_clipping` and with `bf16.check_grad_overflow` false; otherwise, and with `sync`, when "
        "its "
        "norm is known."),
    CHOICE(
        "zero_optimization.states", "fp32", zero.states, "fp32|bf16|compact",
        "Type of the optimizer's moments: compact is 8 bits with a scale per 1,024 elements, where embeddings, norms "
        "and biases keep fp32. bf16 and compact round at random, which changes the numbers; not for LAMB and LARS."),
    CHOICE("zero_optimization.offload_optimizer.device", "auto", zero.offload_optimizer, "none|cpu|nvme!",
           "Where the optimizer state lives and the update runs: none is the device; auto: the plan decides."),
    REAL_AUTO("zero_optimization.offload_optimizer.ratio", "1.0", zero.offload_optimizer_ratio, 0, 1,
              "Share of the optimizer state that goes to the host when `device` is cpu."),
    NOTED("zero_optimization.offload_optimizer.nvme_path", STRING, "", STATE_DISK),
    NOTED("zero_optimization.offload_optimizer.pin_memory", BOOL, "true",
          "host memory is reserved once and needs no pinning on a CPU"),
    NOTED("zero_optimization.offload_optimizer.buffer_count", INT, "4", PLANNED),
    NOTED("zero_optimization.offload_optimizer.pipeline_read", BOOL, "false", STATE_DISK),
    NOTED("zero_optimization.offload_optimizer.pipeline_write", BOOL, "false", STATE_DISK),
    NOTED("zero_optimization.offload_optimizer.pipeline", BOOL, "false", STATE_DISK),
    NOTED("zero_optimization.offload_optimizer.fast_init", BOOL, "false", STATE_DISK),
    NOTED("zero_optimization.offload_optimizer.super_offload", BOOL, "false",
          "updates are exact; see zero_optimization.update"),
    NOTED("zero_optimization.offload_optimizer.cpuadam_cores_perc", DOUBLE, "0.8", "the update uses all of `threads`"),
    CHOICE("zero_optimization.offload_param.device", "auto", zero.offload_param, "none|cpu|nvme!",
           "Where the parameters live between uses: none is the device; auto: the plan decides."),
    NOTED("zero_optimization.offload_param.nvme_path", STRING, "", STATE_DISK),
    NOTED("zero_optimization.offload_param.pin_memory", BOOL, "true",
          "host memory is reserved once and needs no pinning on a CPU"),
    NOTED("zero_optimization.offload_param.buffer_count", INT, "5", PLANNED),
    NOTED("zero_optimization.offload_param.buffer_size", INT, "1e8", PLANNED),
    NOTED("zero_optimization.offload_param.max_in_cpu", INT, "1e9", STATE_DISK),
    FLAG_AUTO("zero_optimization.cpu_offload", "false", zero.cpu_offload,
              "Old name: true is `offload_optimizer.device: cpu`."),
    FLAG_AUTO("zero_optimization.cpu_offload_param", "false", zero.cpu_offload_param,
              "Old name: true is `offload_param.device: cpu`."),
    NOTED("zero_optimization.cpu_offload_use_pin_memory", BOOL, "",
          "host memory is reserved once and needs no pinning on a CPU"),
    NOTED("zero_optimization.contiguous_gradients", BOOL, "true", PLANNED),
    NOTED("zero_optimization.reduce_scatter", BOOL, "true", COLLECTIVES),
    COUNT_AUTO("zero_optimization.reduce_bucket_size", "auto", zero.reduce_bucket, 1,
               "Elements: layers smaller than this share a collective. The smaller of the two bucket sizes counts; "
               "auto: 262,144."),
    NOTED("zero_optimization.allgather_partitions", BOOL, "true", COLLECTIVES),
    COUNT_AUTO("zero_optimization.allgather_bucket_size", "auto", zero.allgather_bucket, 1, "As `reduce_bucket_size`."),
    NOTED("zero_optimization.use_multi_rank_bucket_allreduce", BOOL, "true", COLLECTIVES),
    NOTED("zero_optimization.overlap_comm", BOOL, "", "collectives always run beside computation where they can"),
    NOTED("zero_optimization.load_from_fp32_weights", BOOL, "true", "a checkpoint holds the exact fp32 weights"),
    NOTED("zero_optimization.elastic_checkpoint", BOOL, "false",
          "every checkpoint is independent of the number of ranks"),
    NOTED("zero_optimization.round_robin_gradients", BOOL, "false", PLANNED),
    NOTED("zero_optimization.ignore_unused_parameters", BOOL, "true", "the graph tells which parameters are used"),
    NOTED("zero_optimization.sub_group_size", INT, "1e9", "the update goes layer by layer"),
    NOTED("zero_optimization.stage3_prefetch_bucket_size", INT, "5e7",
          "memory.prefetch_layers sets how far ahead layers are fetched"),
    NOTED("zero_optimization.stage3_param_persistence_threshold", INT, "1e5", PLANNED),
    NOTED("zero_optimization.stage3_model_persistence_threshold", INT, "", PLANNED),
    NOTED("zero_optimization.stage3_max_live_parameters", INT, "1e9",
          "memory.device bounds what is resident, in bytes"),
    NOTED("zero_optimization.stage3_max_reuse_distance", INT, "1e9",
          "the order of uses is known, so eviction is exact"),
    NOTED("zero_optimization.stage3_gather_16bit_weights_on_model_save", BOOL, "false",
          "saving always writes whole weights; save_dtype is their type"),
    NOTED("zero_optimization.stage3_gather_fp16_weights_on_model_save", BOOL, "false",
          "saving always writes whole weights; save_dtype is their type"),
    NOTED("zero_optimization.stage3_module_granularity_threshold", INT, "0", "memory.levels sets what moves together"),
    NOTED("zero_optimization.stage3_use_all_reduce_for_fetch_params", BOOL, "false", COLLECTIVES),
    NOTED("zero_optimization.stage3_allgather_sequential", BOOL, "false", COLLECTIVES),
    NOTED("zero_optimization.memory_efficient_linear", BOOL, "true", PLANNED),
    NOTED("zero_optimization.zero_hpz_partition_size", INT, "1",
          "parameters are cut over all ranks; a second copy by node is not built in"),
    UNBUILT("zero_optimization.zero_quantized_weights", BOOL, "false", "Send weights in 8 bits."),
    UNBUILT("zero_optimization.zero_quantized_nontrainable_weights", BOOL, "false", "Keep frozen weights in 8 bits."),
    UNBUILT("zero_optimization.zero_quantized_gradients", BOOL, "false", "Send gradients in 4 bits."),
    NOTED("zero_optimization.zeropp_loco_param.err_beta", DOUBLE, "0.8",
          WITH("zero_optimization.zero_quantized_gradients")),
    NOTED("zero_optimization.zeropp_loco_param.reset_T", INT, "1024",
          WITH("zero_optimization.zero_quantized_gradients")),
    NOTED("zero_optimization.mics_shard_size", INT, "-1", "parameters are cut over all ranks"),
    NOTED("zero_optimization.mics_hierarchical_params_gather", BOOL, "false", "parameters are cut over all ranks"),
    NOTED("zero_optimization.log_trace_cache_warnings", BOOL, "false", "there is no trace: the order is planned"),
    NOTED("zero_optimization.enable_sanity_checks", BOOL, "false", "the plan is always verified"),
    NOTED("zero_optimization.pipeline_loading_checkpoint", BOOL, "false", PLANNED),
    NOTED("zero_optimization.override_module_apply", BOOL, "true", PLANNED),
    NOTED("zero_optimization.legacy_stage1", BOOL, "false", "there is one implementation of every stage"),
    /* Its mere presence switches ZenFlow on, so that no value is harmless. */
    UNBUILT("zero_optimization.zenflow.topk_ratio", DOUBLE, "",
            "ZenFlow: share of the gradient that is updated at once."),
    UNBUILT("zero_optimization.zenflow.select_strategy", STRING, "", "ZenFlow: when that share is chosen anew."),
    UNBUILT("zero_optimization.zenflow.select_interval", INT, "", "ZenFlow: steps between choices."),
    UNBUILT("zero_optimization.zenflow.update_interval", INT, "", "ZenFlow: steps between updates of the rest."),
    UNBUILT("zero_optimization.zenflow.overlap_step", BOOL, "", "ZenFlow: update beside the next step."),
    UNBUILT("zero_optimization.zenflow.offload", BOOL, "", "ZenFlow: move the chosen state too."),
    UNBUILT("zero_optimization.zenflow.auto_ratio", DOUBLE, "", "ZenFlow: threshold of its automatic interval."),
    UNBUILT("zero_optimization.zenflow.full_warm_up_rounds", INT, "", "ZenFlow: plain steps at the start."),
    UNBUILT("zero_optimization.zenflow.pt_reserved_cores_perc", DOUBLE, "", "ZenFlow: share of the cores it leaves."),
    NOTED("aio.block_size", INT, "1048576", STATE_DISK),
    NOTED("aio.queue_depth", INT, "8", STATE_DISK),
    NOTED("aio.intra_op_parallelism", INT, "1", STATE_DISK),
    NOTED("aio.thread_count", INT, "1", STATE_DISK),
    NOTED("aio.single_submit", BOOL, "false", STATE_DISK),
    NOTED("aio.overlap_events", BOOL, "true", STATE_DISK),
    NOTED("aio.use_gds", BOOL, "false", STATE_DISK),

    /* ---- activations, memory ---- */
    CHOICE("activation_checkpointing.mode", "auto", activations.mode, "auto|none|recompute|offload",
           "What becomes of activations between forward and backward: kept (none), recomputed, or moved to the host."),
    CHOICE("activation_checkpointing.device", "device", activations.device, "device|cpu",
           "With recompute: where the kept inputs of the layers wait."),
    FLAG_AUTO("activation_checkpointing.cpu_checkpointing", "false", activations.cpu_checkpointing,
              "True: `device` is cpu, and `mode` recompute unless it is given."),
    NOTED("activation_checkpointing.partition_activations", BOOL, "false",
          "every rank computes other samples, so no activation is held twice"),
    NOTED("activation_checkpointing.contiguous_memory_optimization", BOOL, "false", PLANNED),
    NOTED("activation_checkpointing.number_checkpoints", INT, "", "the plan chooses which layers are recomputed"),
    NOTED("activation_checkpointing.synchronize_checkpoint_boundary", BOOL, "false", PLANNED),
    NOTED("activation_checkpointing.profile", BOOL, "false", "the plan and the events hold the times"),
    SIZE("memory.device", memory.device,
         "Bytes of device memory of a rank for everything; auto: its share of what the machine and its cgroup allow."),
    SIZE("memory.host", memory.host, "Bytes of host memory of a rank beside the device's; auto: what is left."),
    UNBUILT("memory.disk", SIZE, "auto", "Bytes on disk."),
    COUNT_AUTO("memory.levels", "auto", memory.levels, 1,
               "Groups of layers that move together; auto: the plan chooses."),
    COUNT_AUTO("memory.prefetch_layers", "auto", memory.prefetch, 0,
               "Levels fetched ahead of their use; auto: the plan chooses."),
    UNBUILT("memory.unified", BOOL, "false", "Use host memory in place instead of copying it to the device."),
    FLAG_AUTO("memory.keep_gathered", "false", memory.keep_gathered,
              "Stage 3: keep gathered parameters from forward to backward: more memory, less communication."),
    ROW("memory.tile_bytes", SL_OPT_SIZE, "auto", memory.tile_bytes, 0, MANY, NULL, true,
        "Cut parameters larger than this into tiles of at most as many bytes, each a layer of its own; this changes "
        "rounding. 0 or auto: none are cut."),

    /* ---- results ---- */
    TEXT("checkpoint.path", "", checkpoint.path, "Folder for checkpoints; empty: none are written."),
    COUNT("checkpoint.every", "0", checkpoint.every, 0,
          "Steps between checkpoints; 0: only at the end and when stopped."),
    COUNT("checkpoint.keep", "2", checkpoint.keep, 1, "How many are kept."),
    FLAG_AUTO("checkpoint.background", "false", checkpoint.background,
              "Write checkpoints beside the following steps, from a copy in host memory that the plan makes room for."),
    NOTED("checkpoint.tag_validation", STRING, "Warn", "checkpoints are named by their step"),
    NOTED("checkpoint.load_universal", BOOL, "false", "every checkpoint is independent of the number of ranks"),
    NOTED("checkpoint.use_node_local_storage", BOOL, "false", "the ranks of a checkpoint write into one folder"),
    NOTED("checkpoint.parallel_write.pipeline_stage", BOOL, "false", "every rank always writes what it owns"),
    TEXT("save", "", save, "File for the weights after the last step, as safetensors; empty: none."),
    CHOICE("save_dtype", "fp32", save_type, "fp32|bf16|fp16",
           "Type of the weights in that file; fp32: the exact ones."),
    TEXT("load", "", initial_weights, "Safetensors file to start from; empty: random weights."),
    COUNT("timeout_seconds", "60", timeout_seconds, 1, "How long one rank waits for another."),
    FLAG("debug.guard", "false", guard, "Poison the arenas and put guard pages behind them."),
    FLAG("debug.null_backend", "false", null_backend, "Compute nothing."),
    FLAG("debug.hash", "true", hash, "Hash weights and state at the end; of a large model that takes a while."),

    /* ---- DeepSpeed's monitors, profilers and further parts ---- */
    UNBUILT("tensorboard.enabled", BOOL, "false", "Write TensorBoard events."),
    NOTED("tensorboard.output_path", STRING, "", WITH("tensorboard.enabled")),
    NOTED("tensorboard.job_name", STRING, "DeepSpeedJobName", WITH("tensorboard.enabled")),
    UNBUILT("csv_monitor.enabled", BOOL, "false", "Write values as CSV. `sluice train --json` prints them."),
    NOTED("csv_monitor.output_path", STRING, "", WITH("csv_monitor.enabled")),
    NOTED("csv_monitor.job_name", STRING, "DeepSpeedJobName", WITH("csv_monitor.enabled")),
    UNBUILT("wandb.enabled", BOOL, "false", "Report to Weights & Biases. `sluice train --json` prints every value."),
    NOTED("wandb.*", STRING, "", WITH("wandb.enabled")),
    NOTED("wandb.group", STRING, "", WITH("wandb.enabled")),
    NOTED("wandb.team", STRING, "", WITH("wandb.enabled")),
    NOTED("wandb.project", STRING, "deepspeed", WITH("wandb.enabled")),
    UNBUILT("comet.enabled", BOOL, "false", "Report to Comet. `sluice train --json` prints every value."),
    NOTED("comet.samples_log_interval", INT, "100", WITH("comet.enabled")),
    NOTED("comet.project", STRING, "", WITH("comet.enabled")),
    NOTED("comet.workspace", STRING, "", WITH("comet.enabled")),
    NOTED("comet.experiment_name", STRING, "", WITH("comet.enabled")),
    NOTED("comet.*", STRING, "", WITH("comet.enabled")),
    UNBUILT("flops_profiler.enabled", BOOL, "false", "Print operations by module."),
    NOTED("flops_profiler.profile_step", INT, "1", WITH("flops_profiler.enabled")),
    NOTED("flops_profiler.module_depth", INT, "-1", WITH("flops_profiler.enabled")),
    NOTED("flops_profiler.top_modules", INT, "1", WITH("flops_profiler.enabled")),
    NOTED("flops_profiler.detailed", BOOL, "true", WITH("flops_profiler.enabled")),
    NOTED("flops_profiler.output_file", STRING, "", WITH("flops_profiler.enabled")),
    NOTED("flops_profiler.recompute_fwd_factor", DOUBLE, "0.0", WITH("flops_profiler.enabled")),
    NOTED("comms_logger.enabled", BOOL, "false", "the events hold the bytes that ranks send"),
    NOTED("comms_logger.verbose", BOOL, "false", "the events hold the bytes that ranks send"),
    NOTED("comms_logger.prof_all", BOOL, "true", "the events hold the bytes that ranks send"),
    NOTED("comms_logger.debug", BOOL, "false", "the events hold the bytes that ranks send"),
    NOTED("comms_logger.prof_ops", LIST, "[]", "the events hold the bytes that ranks send"),
    UNBUILT("autotuning.enabled", BOOL, "false", "Search settings by trial runs. \"auto\" is planned instead."),
    NOTED("autotuning.metric", STRING, "throughput", WITH("autotuning.enabled")),
    NOTED("autotuning.fast", BOOL, "true", WITH("autotuning.enabled")),
    NOTED("autotuning.tuner_type", STRING, "model_based", WITH("autotuning.enabled")),
    NOTED("autotuning.tuner_num_trials", INT, "50", WITH("autotuning.enabled")),
    NOTED("autotuning.tuner_early_stopping", INT, "5", WITH("autotuning.enabled")),
    NOTED("autotuning.*", STRING, "", WITH("autotuning.enabled")),
    UNBUILT("elasticity.enabled", BOOL, "false", "Choose the batch size from the number of ranks."),
    NOTED("elasticity.max_train_batch_size", INT, "2000", WITH("elasticity.enabled")),
    NOTED("elasticity.micro_batch_sizes", LIST, "[2,4,6]", WITH("elasticity.enabled")),
    NOTED("elasticity.min_gpus", INT, "1", WITH("elasticity.enabled")),
    NOTED("elasticity.max_gpus", INT, "10000", WITH("elasticity.enabled")),
    NOTED("elasticity.version", DOUBLE, "0.2", WITH("elasticity.enabled")),
    NOTED("elasticity.*", STRING, "", WITH("elasticity.enabled")),
    UNBUILT("compile.deepcompile", BOOL, "false", "Rewrite the traced program."),
    NOTED("compile.offload_opt_states", BOOL, "false", "write zero_optimization.offload_optimizer"),
    NOTED("compile.offload_parameters", BOOL, "false", "write zero_optimization.offload_param"),
    NOTED("compile.offload_activation", BOOL, "false", "write activation_checkpointing.mode"),
    NOTED("compile.double_buffer", BOOL, "true", PLANNED),
    NOTED("compile.*", STRING, "", WITH("compile.deepcompile")),
    UNBUILT("curriculum_learning.enabled", BOOL, "false", "Samples of growing length."),
    NOTED("curriculum_learning.*", STRING, "", WITH("curriculum_learning.enabled")),
    UNBUILT("data_efficiency.enabled", BOOL, "false", "Sample and route data by difficulty."),
    NOTED("data_efficiency.*", STRING, "", WITH("data_efficiency.enabled")),
    UNBUILT("progressive_layer_drop.enabled", BOOL, "false", "Leave layers out more and more often."),
    NOTED("progressive_layer_drop.*", STRING, "", WITH("progressive_layer_drop.enabled")),
    UNBUILT("eigenvalue.enabled", BOOL, "false", "Estimate eigenvalues of the Hessian."),
    NOTED("eigenvalue.*", STRING, "", WITH("eigenvalue.enabled")),
    UNBUILT("hybrid_engine.enabled", BOOL, "false", "Switch between training and inference."),
    NOTED("hybrid_engine.*", STRING, "", WITH("hybrid_engine.enabled")),
    UNBUILT("nebula.enabled", BOOL, "false", "Checkpoints by another service."),
    NOTED("nebula.*", STRING, "", WITH("nebula.enabled")),
    UNBUILT("compression_training.*", STRING, "", "Quantise or prune while training."),
    UNBUILT("sparse_attention.*", STRING, "", "Attention over chosen blocks only."),
    UNBUILT("tensor_parallel.*", STRING, "", "Slice matrices over ranks."),
    UNBUILT("pipeline.*", STRING, "", "Pipeline layers over ranks."),
};
const size_t sl_config_row_count = sizeof sl_config_rows / sizeof sl_config_rows[0];

/* The stored choices are the library's own kinds. */
_Static_assert(SLUICE_SGD == 0 && SLUICE_ADAGRAD == 1 && SLUICE_ADAM == 2 && SLUICE_ADAMW == 3 && SLUICE_LAMB == 4 &&
                   SLUICE_LARS == 5 && SLUICE_LION == 6,
               "choices of optimizer.type are in the order of sluice_optimizer_kind");
_Static_assert(SLUICE_PARTITION_LAYER == 0 && SLUICE_PARTITION_BLOCK == 1 && SLUICE_PARTITION_OWNER == 2 &&
                   SLUICE_PARTITION_WEIGHTED == 3 && sizeof(sluice_partition) == sizeof(int),
               "choices of zero_optimization.partition are in the order of sluice_partition");
_Static_assert(SLUICE_STATES_F32 == 0 && SLUICE_STATES_BF16 == 1 && SLUICE_STATES_COMPACT == 2,
               "choices of zero_optimization.states are in the order of sluice_states");
_Static_assert(SL_SCHEDULE_CONSTANT == 0 && SL_SCHEDULE_PLATEAU == 6 && sizeof(sl_schedule_kind) == sizeof(int),
               "choices of scheduler.type are in the order of sl_schedule_kind");

#define TORCH_PARAMS "maximize|foreach|fused|capturable|differentiable|max_grad_norm"
#define ADAM_PARAMS                                                                                                    \
    "lr|betas|eps|weight_decay|amsgrad|adam_w_mode|torch_adam|bias_correction|set_grad_none|fp32_optimizer_"           \
    "states|" TORCH_PARAMS

static const sl_config_kind optimizers[] = {
    [SLUICE_SGD] = { "SGD", "lr|momentum|dampening|weight_decay|nesterov|" TORCH_PARAMS, "" },
    [SLUICE_ADAGRAD] = { "Adagrad",
                         "lr|eps|weight_decay|lr_decay|initial_accumulator_value|fp32_optimizer_states|" TORCH_PARAMS,
                         "lr=0.01|eps=1e-10" },
    [SLUICE_ADAM] = { "Adam", ADAM_PARAMS, "" },
    [SLUICE_ADAMW] = { "AdamW", ADAM_PARAMS, "" },
    [SLUICE_LAMB] = { "LAMB",
                      "lr|betas|eps|weight_decay|min_coeff|max_coeff|bias_correction|eps_inside_sqrt|max_grad_norm",
                      "" },
    [SLUICE_LARS] = { "LARS", "lr|momentum|weight_decay|nesterov|trust_coefficient|eps|max_grad_norm", "momentum=0.9" },
    [SLUICE_LION] = { "Lion", "lr|betas|weight_decay|set_grad_none|fp32_optimizer_states|max_grad_norm",
                      "betas=[0.9, 0.99]" },
};

#define WARMUP_PARAMS "warmup_num_steps|warmup_type|last_batch_iteration"

static const sl_config_kind schedules[] = {
    [SL_SCHEDULE_CONSTANT] = { "none", "", "" },
    [SL_SCHEDULE_WARMUP] = { "WarmupLR", "warmup_min_lr|warmup_max_lr|" WARMUP_PARAMS, "" },
    [SL_SCHEDULE_WARMUP_DECAY] = { "WarmupDecayLR", "total_num_steps|warmup_min_lr|warmup_max_lr|" WARMUP_PARAMS,
                                   "warmup_max_lr=0.001" },
    [SL_SCHEDULE_WARMUP_COSINE] = { "WarmupCosineLR", "total_num_steps|warmup_min_ratio|cos_min_ratio|" WARMUP_PARAMS,
                                    "" },
    [SL_SCHEDULE_ONE_CYCLE] = { "OneCycle",
                                "cycle_min_lr|cycle_max_lr|decay_lr_rate|cycle_first_step_size|cycle_second_step_size|"
                                "cycle_first_stair_count|cycle_second_stair_count|decay_step_size|cycle_momentum|cycle_"
                                "min_mom|"
                                "cycle_max_mom|decay_mom_rate|last_batch_iteration",
                                "" },
    [SL_SCHEDULE_RANGE_TEST] = { "LRRangeTest",
                                 "lr_range_test_min_lr|lr_range_test_step_size|lr_range_test_step_rate|lr_range_test_"
                                 "staircase|"
                                 "last_batch_iteration",
                                 "" },
    [SL_SCHEDULE_PLATEAU] = { "ReduceLROnPlateau", "factor|patience|threshold|threshold_mode|cooldown|min_lr|mode",
                              "" },
};

const sl_config_family sl_config_optimizers = { "optimizer", optimizers, sizeof optimizers / sizeof optimizers[0] };
const sl_config_family sl_config_schedules = { "scheduler", schedules, sizeof schedules / sizeof schedules[0] };

const char *sl_config_param(const sl_config_family *family, const sl_option *row)
{
    size_t n = strlen(family->section);
    if (strncmp(row->key, family->section, n) != 0 || strncmp(row->key + n, ".params.", 8) != 0) return NULL;
    return row->key + n + 8;
}

/* The item of "a|b=1|c" that begins at `item` with `name` followed by one of `ends`, or NULL. */
static const char *find_item(const char *list, const char *name, const char *ends)
{
    size_t n = strlen(name);
    for (const char *item = list; item != NULL && *item != '\0';) {
        if (strncmp(item, name, n) == 0 && strchr(ends, item[n]) != NULL) return item + n;
        item = strchr(item, '|');
        if (item != NULL) item++;
    }
    return NULL;
}

bool sl_config_listed(const char *list, const char *name)
{
    return find_item(list, name, "|") != NULL; /* strchr also finds the NUL at the end of the list */
}

const char *sl_config_listed_value(const char *list, const char *name, char *out, size_t out_bytes)
{
    const char *found = find_item(list, name, "=");
    if (found == NULL || *found != '=') return NULL;
    size_t length = strcspn(found + 1, "|");
    if (length >= out_bytes) length = out_bytes - 1;
    memcpy(out, found + 1, length);
    out[length] = '\0';
    return out;
}

bool sl_config_choice(const sl_option *row, int index, char *out, size_t out_bytes, bool *built)
{
    const char *item = row->choices;
    for (int i = 0; i < index && item != NULL; i++) {
        item = strchr(item, '|');
        if (item != NULL) item++;
    }
    if (item == NULL || index < 0) return false;
    size_t length = strcspn(item, "|");
    *built = length == 0 || item[length - 1] != '!';
    if (!*built) length--;
    if (length >= out_bytes) length = out_bytes - 1;
    memcpy(out, item, length);
    out[length] = '\0';
    return true;
}

/* config_test.c: the configuration: every key of DeepSpeed is known, values and messages are right, what is printed can
 * be read. */
#include <jansson.h>
#include <unistd.h>

#include "config/config.h"
#include "config/config_rows.h"
#include "core/alloc.h"
#include "core/options.h"
#include "core/thread.h"
#include "test.h"

#define MODEL                                                                                                          \
    "\"model\": {\"type\": \"mlp\", \"features\": 10, \"hidden\": [5, 3]}, \"data\": {\"type\": \"regression\"}"
#define LENGTH "\"steps\": 100"
#define BATCH  "\"train_batch_size\": 10"
#define SGD    "\"optimizer\": {\"type\": \"SGD\"}"
#define ADAM   "\"optimizer\": {\"type\": \"AdamW\"}"
#define BASE   MODEL ", " LENGTH ", " BATCH ", " SGD

static const char *write_config(const char *text)
{
    static char path[4200];
    snprintf(path, sizeof path, "%s/config.json", test_tmpdir());
    FILE *f = fopen(path, "w");
    fputs(text, f);
    fclose(f);
    return path;
}

static sluice_status load(const char *text, sluice_config **out)
{
    return sluice_config_load(write_config(text), out);
}

/* Loads and resolves; the configuration is kept alive for its strings until the next call. */
static sluice_status resolve(const char *text, sl_settings *out)
{
    static sluice_config *kept;
    sluice_config_destroy(kept);
    kept = NULL;
    sluice_status st = load(text, &kept);
    return st == SLUICE_OK ? sl_config_resolve(kept, 1, NULL, out) : st;
}

/* Lines by level, each ended by a newline. */
typedef struct notes {
    char text[SLUICE_LOG_DETAIL + 1][8192];
    int count[SLUICE_LOG_DETAIL + 1];
} notes;

static void take_note(void *user, sluice_log_level level, const char *line)
{
    notes *n = user;
    strncat(n->text[level], line, sizeof n->text[level] - strlen(n->text[level]) - 2);
    strcat(n->text[level], "\n");
    n->count[level]++;
}

/* What a file is told when it is checked. */
static const notes *notes_of(const char *text)
{
    static notes n;
    sluice_config *c;
    memset(&n, 0, sizeof n);
    sluice_status st = load(text, &c);
    if (st == SLUICE_OK) {
        st = sluice_config_check(c, take_note, &n);
        sluice_config_destroy(c);
    }
    CHECK_THAT(st == SLUICE_OK, "%s", sluice_error());
    return &n;
}

/* ---- the table itself ---- */

/* DeepSpeed's documented keys, by section: a row, or a wildcard, must answer for each. */
static const char *const deepspeed_keys[] = {
    "train_batch_size train_micro_batch_size_per_gpu gradient_accumulation_steps managed_gradient_accumulation "
    "gradient_clipping",
    "steps_per_print wall_clock_breakdown memory_breakdown dump_state dataloader_drop_last communication_data_type",
    "seq_parallel_communication_data_type gradient_allreduce_op prescale_gradients gradient_predivide_factor "
    "sparse_gradients",
    "disable_allgather zero_allow_untested_optimizer zero_force_ds_cpu_optimizer data_types.grad_accum_dtype",
    "data_types.param_dtype data_types.buffer_dtype optimizer.type optimizer.params.lr optimizer.params.betas "
    "optimizer.params.eps",
    "optimizer.params.weight_decay optimizer.params.torch_adam optimizer.params.adam_w_mode optimizer.params.momentum",
    "optimizer.params.muon_lr optimizer.params.adam_lr optimizer.params.ns_method scheduler.type "
    "scheduler.params.warmup_min_lr",
    "scheduler.params.warmup_max_lr scheduler.params.warmup_num_steps scheduler.params.warmup_type "
    "scheduler.params.total_num_steps",
    "scheduler.params.warmup_min_ratio scheduler.params.cos_min_ratio scheduler.params.lr_range_test_min_lr",
    "scheduler.params.lr_range_test_step_size scheduler.params.lr_range_test_step_rate "
    "scheduler.params.lr_range_test_staircase",
    "scheduler.params.cycle_min_lr scheduler.params.cycle_max_lr scheduler.params.cycle_first_step_size",
    "scheduler.params.cycle_second_step_size scheduler.params.cycle_first_stair_count "
    "scheduler.params.cycle_second_stair_count",
    "scheduler.params.decay_step_size scheduler.params.decay_lr_rate scheduler.params.cycle_momentum "
    "scheduler.params.cycle_min_mom",
    "scheduler.params.cycle_max_mom scheduler.params.decay_mom_rate fp16.enabled fp16.auto_cast fp16.loss_scale",
    "fp16.initial_scale_power fp16.loss_scale_window fp16.hysteresis fp16.consecutive_hysteresis fp16.min_loss_scale",
    "fp16.fp16_master_weights_and_grads bf16.enabled bf16.immediate_grad_update bf16.check_grad_overflow",
    "bf16.bf16_master_weights_and_grads bf16.bf16_optimizer_states torch_autocast.enabled torch_autocast.dtype",
    "torch_autocast.lower_precision_safe_modules zero_optimization.stage zero_optimization.contiguous_gradients",
    "zero_optimization.reduce_scatter zero_optimization.reduce_bucket_size zero_optimization.allgather_partitions",
    "zero_optimization.allgather_bucket_size zero_optimization.use_multi_rank_bucket_allreduce "
    "zero_optimization.overlap_comm",
    "zero_optimization.load_from_fp32_weights zero_optimization.elastic_checkpoint "
    "zero_optimization.round_robin_gradients",
    "zero_optimization.ignore_unused_parameters zero_optimization.sub_group_size "
    "zero_optimization.stage3_prefetch_bucket_size",
    "zero_optimization.stage3_param_persistence_threshold zero_optimization.stage3_model_persistence_threshold",
    "zero_optimization.stage3_max_live_parameters zero_optimization.stage3_max_reuse_distance",
    "zero_optimization.stage3_gather_16bit_weights_on_model_save zero_optimization.stage3_module_granularity_threshold",
    "zero_optimization.stage3_use_all_reduce_for_fetch_params zero_optimization.stage3_allgather_sequential",
    "zero_optimization.memory_efficient_linear zero_optimization.zero_hpz_partition_size "
    "zero_optimization.zero_quantized_weights",
    "zero_optimization.zero_quantized_nontrainable_weights zero_optimization.zero_quantized_gradients",
    "zero_optimization.zeropp_loco_param.err_beta zero_optimization.zeropp_loco_param.reset_T "
    "zero_optimization.mics_shard_size",
    "zero_optimization.mics_hierarchical_params_gather zero_optimization.log_trace_cache_warnings",
    "zero_optimization.enable_sanity_checks zero_optimization.cpu_offload zero_optimization.cpu_offload_param",
    "zero_optimization.cpu_offload_use_pin_memory zero_optimization.offload_param.device "
    "zero_optimization.offload_param.nvme_path",
    "zero_optimization.offload_param.pin_memory zero_optimization.offload_param.buffer_count",
    "zero_optimization.offload_param.buffer_size zero_optimization.offload_param.max_in_cpu",
    "zero_optimization.offload_optimizer.device zero_optimization.offload_optimizer.nvme_path",
    "zero_optimization.offload_optimizer.pin_memory zero_optimization.offload_optimizer.buffer_count",
    "zero_optimization.offload_optimizer.pipeline_read zero_optimization.offload_optimizer.pipeline_write",
    "zero_optimization.offload_optimizer.fast_init zero_optimization.offload_optimizer.ratio",
    "zero_optimization.offload_optimizer.super_offload zero_optimization.offload_optimizer.cpuadam_cores_perc",
    "zero_optimization.zenflow.topk_ratio zero_optimization.zenflow.select_strategy "
    "zero_optimization.zenflow.select_interval",
    "zero_optimization.zenflow.update_interval zero_optimization.zenflow.overlap_step "
    "zero_optimization.zenflow.offload",
    "zero_optimization.zenflow.auto_ratio zero_optimization.zenflow.full_warm_up_rounds",
    "zero_optimization.zenflow.pt_reserved_cores_perc aio.block_size aio.queue_depth aio.intra_op_parallelism "
    "aio.thread_count",
    "aio.single_submit aio.overlap_events aio.use_gds activation_checkpointing.partition_activations",
    "activation_checkpointing.cpu_checkpointing activation_checkpointing.contiguous_memory_optimization",
    "activation_checkpointing.number_checkpoints activation_checkpointing.synchronize_checkpoint_boundary",
    "activation_checkpointing.profile tensorboard.enabled tensorboard.output_path tensorboard.job_name "
    "csv_monitor.enabled",
    "csv_monitor.output_path csv_monitor.job_name wandb.enabled wandb.group wandb.team wandb.project comet.enabled",
    "comet.samples_log_interval comet.project comet.workspace comet.experiment_name flops_profiler.enabled",
    "flops_profiler.profile_step flops_profiler.module_depth flops_profiler.top_modules flops_profiler.detailed",
    "flops_profiler.output_file flops_profiler.recompute_fwd_factor comms_logger.enabled comms_logger.verbose",
    "comms_logger.prof_all comms_logger.debug comms_logger.prof_ops checkpoint.tag_validation "
    "checkpoint.load_universal",
    "checkpoint.use_node_local_storage checkpoint.parallel_write.pipeline_stage autotuning.enabled autotuning.metric",
    "autotuning.fast autotuning.tuner_type autotuning.tuner_num_trials autotuning.tuner_early_stopping "
    "elasticity.enabled",
    "elasticity.max_train_batch_size elasticity.micro_batch_sizes elasticity.min_gpus elasticity.max_gpus "
    "elasticity.version",
    "compile.deepcompile compile.offload_opt_states compile.offload_parameters compile.offload_activation "
    "compile.double_buffer",
};

TEST(every_key_of_deepspeed_has_a_row)
{
    for (size_t i = 0; i < sizeof deepspeed_keys / sizeof deepspeed_keys[0]; i++) {
        char line[512];
        snprintf(line, sizeof line, "%s", deepspeed_keys[i]);
        for (char *save, *key = strtok_r(line, " ", &save); key != NULL; key = strtok_r(NULL, " ", &save))
            CHECK_THAT(sl_option_find(sl_config_rows, sl_config_row_count, key) != NULL, "no row for %s", key);
    }
}

TEST(every_row_is_complete_and_stands_once)
{
    for (size_t i = 0; i < sl_config_row_count; i++) {
        const sl_option *row = &sl_config_rows[i];
        CHECK(row->fallback != NULL);
        CHECK(row->help != NULL || row->note != NULL);
        CHECK(row->type != SL_OPT_CHOICE || row->choices != NULL);
        CHECK(row->choices == NULL || row->type == SL_OPT_CHOICE || row->type == SL_OPT_STRING);
        if (sl_option_find(sl_config_rows, sl_config_row_count, row->key) != row)
            test_fail(__FILE__, __LINE__, "%s stands twice", row->key);
    }
}

TEST(every_parameter_of_a_type_is_a_row_and_every_parameter_row_has_a_type)
{
    const sl_config_family *families[] = { &sl_config_optimizers, &sl_config_schedules };
    for (size_t f = 0; f < 2; f++) {
        for (int k = 0; k < families[f]->kind_count; k++) {
            char params[512], key[128];
            snprintf(params, sizeof params, "%s", families[f]->kinds[k].params);
            for (char *save, *name = strtok_r(params, "|", &save); name != NULL; name = strtok_r(NULL, "|", &save)) {
                snprintf(key, sizeof key, "%s.params.%s", families[f]->section, name);
                CHECK_THAT(sl_option_find(sl_config_rows, sl_config_row_count, key) != NULL, "no row for %s", key);
            }
        }
        for (size_t i = 0; i < sl_config_row_count; i++) {
            const char *name = sl_config_param(families[f], &sl_config_rows[i]);
            int uses = 0;
            for (int k = 0; name != NULL && k < families[f]->kind_count; k++)
                uses += sl_config_listed(families[f]->kinds[k].params, name);
            bool of_others = sl_config_rows[i].fate == SL_KEY_UNBUILT; /* parameters of types that are not built in */
            if (name != NULL) CHECK_THAT(uses > 0 || of_others, "%s belongs to no type", name);
        }
    }
}

/* ---- defaults and values ---- */

TEST(defaults_that_change_numbers_are_deepspeeds)
{
    sl_settings s;
    REQUIRE_OK(resolve("{" MODEL ", " LENGTH ", " BATCH ", " ADAM "}", &s));
    CHECK_NEAR(s.optim.clip, 1.0, 0);
    CHECK_NEAR(s.optim.optimizer.lr, 0.001, 0);
    CHECK_NEAR(s.optim.optimizer.beta1, 0.9, 0);
    CHECK_NEAR(s.optim.optimizer.beta2, 0.999, 0);
    CHECK_NEAR(s.optim.optimizer.epsilon, 1e-8, 0);
    CHECK_NEAR(s.optim.optimizer.weight_decay, 0, 0);
    CHECK_EQ(s.optim.optimizer.kind, SLUICE_ADAMW);
    CHECK_EQ(s.schedule.kind, SL_SCHEDULE_CONSTANT);
    CHECK_EQ(s.plan.stage, -1); /* moves memory and time alone: auto */
    CHECK_EQ(s.plan.state, SLUICE_PLACE_AUTO);
    CHECK_EQ(s.plan.parameters, SLUICE_PLACE_AUTO);
    CHECK_EQ(s.plan.budget[SL_TIER_DEVICE], 0);
    CHECK_EQ(s.plan.levels, 0);
    CHECK_EQ(s.plan.prefetch, -1);
    CHECK_EQ(s.device.threads, 0);
}

TEST(defaults_differ_by_type_of_optimizer)
{
    sl_settings s;
    REQUIRE_OK(resolve("{" MODEL ", " LENGTH ", " BATCH ", \"optimizer\": {\"type\": \"adagrad\"}}", &s));
    CHECK_EQ(s.optim.optimizer.kind, SLUICE_ADAGRAD);
    CHECK_NEAR(s.optim.optimizer.lr, 0.01, 0);
    CHECK_NEAR(s.optim.optimizer.epsilon, 1e-10, 0);
    REQUIRE_OK(resolve("{" MODEL ", " LENGTH ", " BATCH ", \"optimizer\": {\"type\": \"Lion\"}}", &s));
    CHECK_EQ(s.optim.optimizer.kind, SLUICE_LION);
    CHECK_NEAR(s.optim.optimizer.beta2, 0.99, 0);
}

TEST(adam_means_adamw_unless_told_otherwise)
{
    sl_settings s;
    REQUIRE_OK(resolve("{" MODEL ", " LENGTH ", " BATCH ", \"optimizer\": {\"type\": \"Adam\"}}", &s));
    CHECK_EQ(s.optim.optimizer.kind, SLUICE_ADAMW);
    REQUIRE_OK(resolve("{" MODEL ", " LENGTH ", " BATCH
                       ", \"optimizer\": {\"type\": \"Adam\", \"params\": {\"adam_w_mode\": false}}}",
                       &s));
    CHECK_EQ(s.optim.optimizer.kind, SLUICE_ADAM);
    REQUIRE_OK(resolve("{" MODEL ", " LENGTH ", " BATCH
                       ", \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"torch_adam\": true}}}",
                       &s));
    CHECK_NEAR(s.optim.optimizer.weight_decay, 0.01, 0);
}

TEST(a_whole_file_is_read)
{
    sl_settings s;
    REQUIRE_OK(resolve(
        "{ \"model\": {\"type\": \"gpt2\", \"layers\": 6, \"heads\": 6, \"width\": 384, \"context\": 256,"
        "   \"vocabulary\": \"characters\", \"dropout\": 0.2},"
        " \"data\": {\"type\": \"text\", \"path\": \"input.txt\", \"validation\": 0.1},"
        " \"steps\": 2000, \"seed\": 1337, \"evaluate\": {\"every\": 250, \"batches\": 20},"
        " \"train_batch_size\": 64, \"train_micro_batch_size_per_gpu\": 16, \"gradient_accumulation_steps\": \"auto\","
        " \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 1e-3, \"betas\": [0.9, 0.99], \"weight_decay\": "
        "0.1},"
        "   \"groups\": [{\"match\": \"no_decay\", \"weight_decay\": 0}, {\"match\": \"wte*\", \"lr\": 1e-4}]},"
        " \"scheduler\": {\"type\": \"WarmupCosineLR\", \"params\": {\"total_num_steps\": 2000, \"warmup_num_steps\": "
        "100,"
        "   \"warmup_type\": \"linear\"}},"
        " \"zero_optimization\": {\"stage\": 3, \"offload_optimizer\": {\"device\": \"cpu\", \"ratio\": 0.5},"
        "   \"offload_param\": {\"device\": \"none\"}, \"reduce_bucket_size\": 5e8},"
        " \"activation_checkpointing\": {\"mode\": \"recompute\", \"device\": \"cpu\"},"
        " \"memory\": {\"device\": \"20GiB\", \"host\": \"auto\", \"prefetch_layers\": 2, \"levels\": 3},"
        " \"checkpoint\": {\"path\": \"runs/a\", \"every\": 500, \"keep\": 2}, \"save\": \"model.safetensors\" }",
        &s));
    CHECK_EQ(s.model.layers, 6);
    CHECK_STR(s.given.vocabulary, "characters");
    CHECK_EQ(s.data.unit, SL_TEXT_CHARACTERS);
    CHECK_EQ(s.data.seed, 1337);
    CHECK_EQ(s.plan.accumulation, 4);
    CHECK_NEAR(s.optim.optimizer.beta2, 0.99, 0);
    CHECK_EQ(s.optim.group_count, 2);
    CHECK_STR(s.groups[0].pattern, "no_decay");
    CHECK_NEAR(s.groups[0].weight_decay, 0, 0);
    CHECK_NEAR(s.groups[0].lr_scale, 1, 0);
    CHECK_NEAR(s.groups[1].lr_scale, 0.1, 1e-15);
    CHECK(s.groups[1].weight_decay < 0);
    CHECK_EQ(s.schedule.kind, SL_SCHEDULE_WARMUP_COSINE);
    CHECK(s.schedule.warmup_linear);
    CHECK_NEAR(s.schedule.base_lr, 1e-3, 0);
    CHECK_NEAR(s.schedule.cos_min_ratio, 1e-4, 0);
    CHECK_EQ(s.plan.stage, 3);
    CHECK_EQ(s.plan.state, SLUICE_PLACE_HOST);
    CHECK_EQ(s.plan.parameters, SLUICE_PLACE_DEVICE);
    CHECK_NEAR(s.plan.state_ratio, 0.5, 0);
    CHECK_EQ(s.plan.activations, 2);
    CHECK_EQ(s.plan.offload_checkpoints, 1);
    CHECK_EQ(s.plan.budget[SL_TIER_DEVICE], 20ULL << 30);
    CHECK_EQ(s.plan.levels, 3);
    CHECK_STR(s.checkpoint.path, "runs/a");
}

TEST(schedules_follow_the_run_where_they_are_left_to)
{
    sl_settings s;
    REQUIRE_OK(resolve(
        "{" BASE ", \"scheduler\": {\"type\": \"WarmupDecayLR\", \"params\": {\"warmup_num_steps\": 10}}}", &s));
    CHECK_EQ(s.schedule.total_num_steps, 100);
    CHECK_NEAR(s.schedule.warmup_max_lr, 0.001, 0);
    REQUIRE_OK(resolve("{" MODEL ", \"epochs\": 2, " BATCH ", " SGD
                       ", \"scheduler\": {\"type\": \"WarmupDecayLR\", \"params\": {\"total_num_steps\": \"auto\"}}}",
                       &s));
    CHECK_EQ(s.schedule.total_num_steps, -1);
    REQUIRE_OK(resolve(
        "{" MODEL ", " LENGTH ", " BATCH
        ", \"optimizer\": {\"type\": \"SGD\", \"params\": {\"lr\": 0.5}}, \"scheduler\": {\"type\": \"WarmupLR\"}}",
        &s));
    CHECK_NEAR(s.schedule.warmup_max_lr, 0.5, 0);
}

TEST(any_two_or_one_of_the_batch_numbers_give_the_third)
{
    static const struct {
        const char *text;
        int64_t total, micro, accumulation;
    } rows[] = {
        { "\"train_batch_size\": 12", 12, 12, 1 },
        { "\"train_micro_batch_size_per_gpu\": 3", 3, 3, 1 },
        { "\"train_batch_size\": 12, \"train_micro_batch_size_per_gpu\": 3", 12, 3, 4 },
        { "\"train_batch_size\": 12, \"gradient_accumulation_steps\": 3", 12, 4, 3 },
        { "\"train_micro_batch_size_per_gpu\": 3, \"gradient_accumulation_steps\": 4", 12, 3, 4 },
        { "\"train_batch_size\": 12, \"train_micro_batch_size_per_gpu\": 3, \"gradient_accumulation_steps\": 4", 12, 3,
          4 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[1024];
        sl_settings s;
        snprintf(text, sizeof text, "{" MODEL ", " LENGTH ", " SGD ", %s}", rows[i].text);
        REQUIRE_OK(resolve(text, &s));
        CHECK_EQ(s.train_batch_size, rows[i].total);
        CHECK_EQ(s.model.batch, rows[i].micro);
        CHECK_EQ(s.plan.accumulation, rows[i].accumulation);
    }
}

/* Resolves for a number of ranks; see resolve. */
static sluice_status resolve_for(int ranks, const char *text, sl_settings *out)
{
    static sluice_config *kept;
    sluice_config_destroy(kept);
    kept = NULL;
    sluice_status st = load(text, &kept);
    return st == SLUICE_OK ? sl_config_resolve(kept, ranks, NULL, out) : st;
}

TEST(the_batch_is_shared_out_over_the_ranks)
{
    static const struct {
        const char *text;
        int ranks;
        int64_t total, micro, accumulation; /* total 0: refused */
    } rows[] = {
        { "\"train_batch_size\": 12", 4, 12, 3, 1 },
        { "\"train_batch_size\": 12", 5, 0, 0, 0 },
        { "\"train_micro_batch_size_per_gpu\": 3", 4, 12, 3, 1 },
        { "\"train_batch_size\": 24, \"train_micro_batch_size_per_gpu\": 3", 4, 24, 3, 2 },
        { "\"train_batch_size\": 24, \"train_micro_batch_size_per_gpu\": 3", 3, 0, 0, 0 },
        { "\"train_batch_size\": 24, \"gradient_accumulation_steps\": 2", 3, 24, 4, 2 },
        { "\"train_batch_size\": 24, \"train_micro_batch_size_per_gpu\": 3, \"gradient_accumulation_steps\": 2", 4, 24,
          3, 2 },
        { "\"train_batch_size\": 24, \"train_micro_batch_size_per_gpu\": 3, \"gradient_accumulation_steps\": 2", 0, 24,
          3, 2 }, /* 0: as the file says */
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[1024];
        sl_settings s;
        snprintf(text, sizeof text, "{" MODEL ", " LENGTH ", " SGD ", %s}", rows[i].text);
        CHECK_EQ(resolve_for(rows[i].ranks, text, &s), rows[i].total > 0 ? SLUICE_OK : SLUICE_ERR_USAGE);
        if (rows[i].total == 0) continue;
        CHECK_EQ(s.train_batch_size, rows[i].total);
        CHECK_EQ(s.model.batch, rows[i].micro);
        CHECK_EQ(s.plan.accumulation, rows[i].accumulation);
    }
}

TEST(a_batch_written_for_other_ranks_says_for_how_many)
{
    sl_settings s;
    CHECK_EQ(resolve("{" MODEL ", " LENGTH ", " SGD ", \"train_batch_size\": 24, "
                     "\"train_micro_batch_size_per_gpu\": 3, \"gradient_accumulation_steps\": 2}",
                     &s),
             SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "x 1 rank; it fits 4 ranks");
}

TEST(partition_settings_reach_the_plan)
{
    sl_settings s;
    REQUIRE_OK(resolve_for(2,
                           "{" BASE ", \"zero_optimization\": {\"partition\": \"weighted\", \"partition_weights\": [1, "
                           "2.5], \"partition_block\": 4096, \"reduce_bucket_size\": 5e8, "
                           "\"allgather_bucket_size\": 1000}, \"memory\": {\"keep_gathered\": true}, "
                           "\"checkpoint\": {\"background\": true}}",
                           &s));
    CHECK_EQ(s.plan.partition, 3);
    CHECK_EQ(s.given.weight_count, 2);
    CHECK_NEAR(s.plan.partition_weights[1], 2.5, 0);
    CHECK_EQ(s.plan.partition_block, 4096);
    CHECK_EQ(s.plan.bucket_bytes, 4000);
    CHECK(s.plan.keep_gathered);
    CHECK(s.checkpoint.background);
    REQUIRE_OK(resolve("{" BASE ", \"checkpoint\": {\"background\": \"auto\"}}", &s));
    CHECK_EQ(s.plan.bucket_bytes, 0);
    CHECK_EQ(s.given.weight_count, 0);
    CHECK_EQ(s.plan.partition, SLUICE_PARTITION_LAYER);
    CHECK(!s.checkpoint.background);
}

TEST(an_automatic_partition_follows_weights_and_optimizer)
{
    sl_settings s;
    REQUIRE_OK(resolve_for(2, "{" BASE ", \"zero_optimization\": {\"partition_weights\": [1, 2]}}", &s));
    CHECK_EQ(s.plan.partition, SLUICE_PARTITION_WEIGHTED);
    REQUIRE_OK(resolve("{" MODEL ", " LENGTH ", " BATCH ", \"optimizer\": {\"type\": \"LAMB\"}}", &s));
    CHECK_EQ(s.plan.partition, SLUICE_PARTITION_OWNER);
}

TEST(partition_weights_need_the_rule_and_one_number_a_rank)
{
    sl_settings s;
    CHECK_EQ(resolve_for(2,
                         "{" BASE ", \"zero_optimization\": {\"partition\": \"block\", \"partition_weights\": [1, "
                         "2]}}",
                         &s),
             SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "\"weighted\"");
    CHECK_EQ(resolve_for(5,
                         "{" BASE ", \"zero_optimization\": {\"partition\": \"weighted\", \"partition_weights\": [1, "
                         "2]}}",
                         &s),
             SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "2 numbers, and there are 5 ranks");
    CHECK_EQ(resolve_for(2,
                         "{" BASE ", \"zero_optimization\": {\"partition\": \"weighted\", \"partition_weights\": [1, "
                         "0]}}",
                         &s),
             SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "partition_weights: 0 is not allowed");
}

TEST(older_names_of_deepspeed_mean_the_same)
{
    sl_settings s;
    REQUIRE_OK(
        resolve("{" BASE ", \"zero_optimization\": {\"stage\": 2, \"cpu_offload\": true, \"cpu_offload_param\": true},"
                " \"activation_checkpointing\": {\"cpu_checkpointing\": true}, \"bfloat16\": {\"enabled\": false}}",
                &s));
    CHECK_EQ(s.plan.state, SLUICE_PLACE_HOST);
    CHECK_EQ(s.plan.parameters, SLUICE_PLACE_HOST);
    CHECK_EQ(s.plan.activations, 2);
    CHECK_EQ(s.plan.offload_checkpoints, 1);
}

/* null and false leave the plan free, as does no word of it; a number asks for recomputation unless the mode is given. */
TEST(a_number_of_checkpoints_asks_for_recomputation_in_so_many_groups)
{
    static const struct {
        const char *text;
        int checkpoints, activations;
    } cases[] = {
        { "", 0, SLUICE_ACTIVATIONS_AUTO },
        { "\"number_checkpoints\": null", 0, SLUICE_ACTIVATIONS_AUTO },
        { "\"number_checkpoints\": false", 0, SLUICE_ACTIVATIONS_AUTO },
        { "\"number_checkpoints\": \"auto\"", 0, SLUICE_ACTIVATIONS_AUTO },
        { "\"number_checkpoints\": 4", 4, SLUICE_ACTIVATIONS_RECOMPUTE },
        { "\"number_checkpoints\": 4, \"mode\": \"auto\"", 4, SLUICE_ACTIVATIONS_RECOMPUTE },
        { "\"number_checkpoints\": 4, \"mode\": \"offload\"", 4, SLUICE_ACTIVATIONS_OFFLOAD },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sl_settings s;
        char text[1024];
        snprintf(text, sizeof text, "{" BASE ", \"activation_checkpointing\": {%s}}", cases[i].text);
        REQUIRE_OK(resolve(text, &s));
        CHECK_EQ(s.plan.checkpoints, cases[i].checkpoints);
        CHECK_EQ(s.plan.activations, cases[i].activations);
    }
}

TEST(a_file_written_for_another_library_to_fill_in_is_accepted)
{
    sl_settings s;
    REQUIRE_OK(resolve(
        "{" MODEL ", " LENGTH ", \"fp16\": {\"enabled\": \"auto\", \"loss_scale\": 0, \"loss_scale_window\": 1000,"
        " \"initial_scale_power\": 16, \"hysteresis\": 2, \"min_loss_scale\": 1}, \"bf16\": {\"enabled\": \"auto\"},"
        " \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": \"auto\", \"betas\": \"auto\", \"eps\": \"auto\","
        " \"weight_decay\": \"auto\"}}, \"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"warmup_min_lr\": "
        "\"auto\","
        " \"warmup_max_lr\": \"auto\", \"warmup_num_steps\": \"auto\"}}, \"zero_optimization\": {\"stage\": 3,"
        " \"offload_optimizer\": {\"device\": \"cpu\", \"pin_memory\": true}, \"offload_param\": {\"device\": \"cpu\","
        " \"pin_memory\": true}, \"overlap_comm\": true, \"contiguous_gradients\": true, \"sub_group_size\": 1e9,"
        " \"reduce_bucket_size\": \"auto\", \"stage3_prefetch_bucket_size\": \"auto\","
        " \"stage3_param_persistence_threshold\": \"auto\", \"stage3_max_live_parameters\": 1e9,"
        " \"stage3_max_reuse_distance\": 1e9, \"stage3_gather_16bit_weights_on_model_save\": true},"
        " \"gradient_accumulation_steps\": \"auto\", \"gradient_clipping\": \"auto\", \"steps_per_print\": 2000,"
        " \"train_batch_size\": \"auto\", \"train_micro_batch_size_per_gpu\": 4, \"wall_clock_breakdown\": false}",
        &s));
    CHECK_EQ(s.train_batch_size, 4);
    CHECK_NEAR(s.optim.clip, 1, 0);
    CHECK_NEAR(s.schedule.warmup_max_lr, 0.001, 0);
    CHECK_EQ(s.schedule.warmup_num_steps, 1000);
    CHECK_EQ(s.steps_per_print, 2000);
}

TEST(every_stage_is_accepted)
{
    sl_settings s;
    for (int stage = 0; stage <= 3; stage++) {
        char text[1024];
        snprintf(text, sizeof text, "{" BASE ", \"zero_optimization\": {\"stage\": %d}}", stage);
        REQUIRE_OK(resolve(text, &s));
        CHECK_EQ(s.plan.stage, stage);
    }
}

/* ---- notes and refusals ---- */

TEST(one_key_without_effect_is_noted_with_its_line_and_reason)
{
    const notes *n = notes_of("{" BASE ",\n\"zero_optimization\": {\n\"overlap_comm\": true}}");
    CHECK_EQ(n->count[SLUICE_LOG_NOTE], 1);
    CHECK_CONTAINS(n->text[SLUICE_LOG_NOTE], "config.json:3: zero_optimization.overlap_comm has no effect: ");
}

TEST(keys_without_effect_fold_into_one_note_and_their_reasons_are_details)
{
    const notes *n =
        notes_of("{" BASE ",\n\"zero_optimization\": {\n\"overlap_comm\": true,\n\"sub_group_size\": 5e8},\n"
                 "\"wandb\": {\"enabled\": false, \"name\": \"x\", \"dir\": \"y\"}}");
    CHECK_EQ(n->count[SLUICE_LOG_NOTE], 1);
    CHECK_CONTAINS(n->text[SLUICE_LOG_NOTE],
                   "config.json: 4 keys have no effect here: overlap_comm, sub_group_size, wandb; --notes shows why");
    CHECK_EQ(n->count[SLUICE_LOG_DETAIL], 3);
    CHECK_CONTAINS(n->text[SLUICE_LOG_DETAIL], "config.json:3: zero_optimization.overlap_comm has no effect: ");
    CHECK_CONTAINS(n->text[SLUICE_LOG_DETAIL], "config.json:4: zero_optimization.sub_group_size has no effect: ");
    CHECK_CONTAINS(n->text[SLUICE_LOG_DETAIL], "config.json:5: wandb.name (and 1 more like it) has no effect: ");
}

TEST(comments_and_sections_of_other_tools_are_noted)
{
    const notes *n = notes_of("{\"_comment\": \"mine\", " BASE ", \"comms_config\": {\"verbose\": false}, "
                              "\"monitor_config\": {\"enabled\": true, \"csv_monitor\": {\"enabled\": false}}, "
                              "\"hybrid_engine\": {\"enabled\": true}, \"zero_optimization\": {\"_why\": 1, "
                              "\"leaf_module\": {\"classes\": [\"a\"]}}}");
    CHECK_EQ(n->count[SLUICE_LOG_NOTE], 1);
    CHECK_CONTAINS(n->text[SLUICE_LOG_NOTE],
                   "7 keys have no effect here: leaf_module, hybrid_engine, comms_config, monitor_config, _comment;");
    CHECK_CONTAINS(n->text[SLUICE_LOG_DETAIL], "_comment (and 1 more like it) has no effect: a key that begins with");
}

TEST(deepspeeds_field_names_without_stage3_mean_the_same)
{
    static const char *const names[] = {
        "max_live_parameters",         "max_reuse_distance",          "prefetch_bucket_size",
        "param_persistence_threshold", "model_persistence_threshold", "gather_16bit_weights_on_model_save",
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char text[1024], expected[128];
        bool flag = strstr(names[i], "gather") != NULL;
        snprintf(text, sizeof text, "{" BASE ",\n\"zero_optimization\": {\"stage\": 3, \"%s\": %s}}", names[i],
                 flag ? "true" : "1e9");
        snprintf(expected, sizeof expected, "config.json:2: zero_optimization.stage3_%s has no effect: ", names[i]);
        CHECK_CONTAINS(notes_of(text)->text[SLUICE_LOG_NOTE], expected);
    }
}

#define TRAINER_FILE                                                                                                   \
    MODEL                                                                                                              \
    ", \"steps\": 10, \"train_micro_batch_size_per_gpu\": 4, \"train_batch_size\": \"auto\", "                         \
    "\"gradient_accumulation_steps\": \"auto\", \"gradient_clipping\": \"auto\",\n"                                    \
    "\"fp16\": {\"enabled\": \"auto\"}, \"bf16\": {\"enabled\": \"auto\"},\n"                                          \
    "\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": \"auto\", \"betas\": \"auto\", \"eps\": \"auto\", "     \
    "\"weight_decay\": \"auto\"}},\n"                                                                                  \
    "\"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"warmup_min_lr\": \"auto\", "                               \
    "\"warmup_max_lr\": \"auto\", \"warmup_num_steps\": \"auto\"}}"

/* Values that a trainer would fill in are told with what was taken; those that are its defaults too are details. */
TEST(auto_is_told_with_what_was_taken_and_what_is_usual)
{
    const notes *n = notes_of("{" TRAINER_FILE "}");
    const char *told = n->text[SLUICE_LOG_NOTE], *details = n->text[SLUICE_LOG_DETAIL];
    CHECK_EQ(n->count[SLUICE_LOG_NOTE], 3);
    CHECK_CONTAINS(told, "config.json:2: fp16.enabled is \"auto\": false is taken, so the run computes in fp32; ");
    CHECK_CONTAINS(told,
                   "config.json:3: optimizer.params.lr is \"auto\": 0.001 is taken; Hugging Face's Trainer would fill "
                   "in its learning_rate (5e-5 unless given)");
    CHECK_CONTAINS(
        told, "config.json:4: scheduler.params.warmup_num_steps is \"auto\": 1000 is taken; Hugging Face's Trainer "
              "would fill in its warmup_steps (0 unless given)");
    CHECK_CONTAINS(details, "optimizer.params.weight_decay is \"auto\": 0 is taken, which is also the default");
    CHECK_CONTAINS(details, "optimizer.params.betas is \"auto\": [0.9, 0.999] is taken");
    CHECK_CONTAINS(details, "gradient_accumulation_steps is \"auto\": 1 is taken");
    n = notes_of("{" MODEL ", " LENGTH ", " SGD
                 ", \"train_batch_size\": 12, \"train_micro_batch_size_per_gpu\": \"auto\"}");
    CHECK_CONTAINS(n->text[SLUICE_LOG_NOTE],
                   "train_micro_batch_size_per_gpu is \"auto\": 12 is taken; Hugging Face's Trainer "
                   "would fill in its per_device_train_batch_size (8 unless given)");
}

TEST(an_assignment_ends_the_note_about_auto)
{
    sluice_config *c;
    notes n = { .count = { 0 } };
    REQUIRE_OK(load("{" TRAINER_FILE "}", &c));
    REQUIRE_OK(sluice_config_set(c, "optimizer.params.lr=2e-5"));
    REQUIRE_OK(sluice_config_set(c, "bf16.enabled=true"));
    REQUIRE_OK(sluice_config_set(c, "scheduler.params.warmup_num_steps=0"));
    REQUIRE_OK(sluice_config_check(c, take_note, &n));
    CHECK_EQ(n.count[SLUICE_LOG_NOTE], 0);
    CHECK_EQ(n.count[SLUICE_LOG_WARNING], 0);
    sluice_config_destroy(c);
}

/* DeepSpeed's own default there is 0.001; the word is written for a trainer that fills in its rate. */
TEST(an_automatic_peak_of_the_warmup_is_the_optimizers_rate)
{
    sl_settings s;
    REQUIRE_OK(resolve("{" MODEL ", " LENGTH ", " BATCH
                       ", \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 2e-5}}, "
                       "\"scheduler\": {\"type\": \"WarmupDecayLR\", \"params\": {\"warmup_max_lr\": \"auto\"}}}",
                       &s));
    CHECK_NEAR(s.schedule.warmup_max_lr, 2e-5, 0);
}

TEST(a_warmup_longer_than_the_run_is_warned_of)
{
    const notes *n = notes_of("{" TRAINER_FILE "}");
    CHECK_EQ(n->count[SLUICE_LOG_WARNING], 1);
    CHECK_CONTAINS(
        n->text[SLUICE_LOG_WARNING],
        "warmup_num_steps is 1000, but the run has 10 steps: it ends in the warm-up, at a learning rate of 0.000318 "
        "instead of 0.001");
    n = notes_of("{" BASE ", \"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"warmup_num_steps\": 100}}}");
    CHECK_EQ(n->count[SLUICE_LOG_WARNING], 0);
}

/* As the DeepSpeed of these files does: its schedule has at least 2. */
TEST(a_warmup_of_no_steps_is_legal)
{
    static const char *const types[] = { "WarmupLR", "WarmupDecayLR", "WarmupCosineLR" };
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        char text[1024];
        sl_settings s;
        sl_schedule_state state = { 0 };
        snprintf(text, sizeof text,
                 "{" MODEL ", " LENGTH ", " BATCH
                 ", \"optimizer\": {\"type\": \"AdamW\"}, \"scheduler\": {\"type\": \"%s\", "
                 "\"params\": {\"warmup_num_steps\": 0}}}",
                 types[i]);
        REQUIRE_OK(resolve(text, &s));
        double zero = sl_schedule_lr(&s.schedule, &state, 3);
        s.schedule.warmup_num_steps = 2;
        CHECK_NEAR(zero, sl_schedule_lr(&s.schedule, &state, 3), 0);
        CHECK(zero > 0.0009);
    }
}

TEST(adam_w_mode_without_effect_is_noted)
{
    const notes *n = notes_of("{" MODEL ", " LENGTH ", " BATCH ", \"optimizer\": {\"type\": \"AdamW\",\n\"params\": "
                              "{\"adam_w_mode\": false}}}");
    CHECK_EQ(n->count[SLUICE_LOG_NOTE], 1);
    CHECK_CONTAINS(n->text[SLUICE_LOG_NOTE],
                   "config.json:2: optimizer.params.adam_w_mode: false has no effect with the type "
                   "AdamW");
    n = notes_of("{" MODEL ", " LENGTH ", " BATCH
                 ", \"optimizer\": {\"type\": \"Adam\", \"params\": {\"adam_w_mode\": false}}}");
    CHECK_EQ(n->count[SLUICE_LOG_NOTE], 0);
}

TEST(a_bucket_of_no_elements_holds_one_layer)
{
    sl_settings s;
    REQUIRE_OK(resolve("{" BASE ", \"zero_optimization\": {\"stage\": 2, \"reduce_bucket_size\": 0}}", &s));
    CHECK_EQ(s.plan.bucket_bytes, 4);
}

/* Rows of the table of other programs' names point at rows of ours, and no name is given twice or is ours already. */
TEST(names_of_other_programs_are_answered_with_ours)
{
    const char *names, *ours, *note;
    for (int i = 0; sl_config_synonym(i, &names, &ours, &note); i++) {
        char list[512];
        CHECK(ours != NULL || note != NULL);
        if (ours != NULL)
            CHECK_THAT(sl_option_find(sl_config_rows, sl_config_row_count, ours) != NULL, "no row %s", ours);
        snprintf(list, sizeof list, "%s", names);
        for (char *save, *name = strtok_r(list, "|", &save); name != NULL; name = strtok_r(NULL, "|", &save)) {
            const char *others, *their, *theirs;
            CHECK_THAT(sl_option_find(sl_config_rows, sl_config_row_count, name) == NULL, "%s is a key", name);
            for (int k = 0; k < i && sl_config_synonym(k, &others, &their, &theirs); k++)
                CHECK_THAT(!sl_config_listed(others, name), "%s stands twice", name);
        }
    }
}

TEST(precision_is_resolved_with_deepspeeds_defaults)
{
    static const struct {
        const char *text;
        sluice_dtype type;
        sluice_dtype wire;
        sluice_states states;
    } rows[] = {
        { "", SLUICE_F32, SLUICE_F32, SLUICE_STATES_F32 },
        { ", \"bf16\": {\"enabled\": true}", SLUICE_BF16, SLUICE_BF16, SLUICE_STATES_F32 },
        { ", \"bfloat16\": {\"enabled\": true}", SLUICE_BF16, SLUICE_BF16, SLUICE_STATES_F32 },
        { ", \"fp16\": {\"enabled\": true}, \"bf16\": {\"enabled\": \"auto\"}", SLUICE_F16, SLUICE_F16,
          SLUICE_STATES_F32 },
        { ", \"fp16\": {\"enabled\": \"auto\"}, \"bf16\": {\"enabled\": \"auto\"}", SLUICE_F32, SLUICE_F32,
          SLUICE_STATES_F32 },
        { ", \"fp16\": {\"enabled\": true}, \"communication_data_type\": \"fp32\"", SLUICE_F16, SLUICE_F32,
          SLUICE_STATES_F32 },
        { ", \"communication_data_type\": \"bf16\"", SLUICE_F32, SLUICE_BF16, SLUICE_STATES_F32 },
        { ", \"bf16\": {\"enabled\": true, \"bf16_optimizer_states\": true}", SLUICE_BF16, SLUICE_BF16,
          SLUICE_STATES_BF16 },
        { ", \"bf16\": {\"bf16_optimizer_states\": true}", SLUICE_F32, SLUICE_F32, SLUICE_STATES_F32 },
        { ", \"zero_optimization\": {\"states\": \"bf16\"}", SLUICE_F32, SLUICE_F32, SLUICE_STATES_BF16 },
        { ", \"zero_optimization\": {\"states\": \"compact\"}", SLUICE_F32, SLUICE_F32, SLUICE_STATES_COMPACT },
        { ", \"fp16\": {\"enabled\": true, \"loss_scale\": 64, \"loss_scale_window\": 0, \"min_loss_scale\": 0}",
          SLUICE_F16, SLUICE_F16, SLUICE_STATES_F32 },
    };
    sl_settings s;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[1024];
        snprintf(text, sizeof text, "{" BASE "%s}", rows[i].text);
        REQUIRE_OK(resolve(text, &s));
        CHECK_EQ(s.precision.type, rows[i].type);
        CHECK_EQ(s.precision.wire, rows[i].wire);
        CHECK_EQ(s.precision.states, rows[i].states);
    }
    REQUIRE_OK(resolve("{" BASE "}", &s));
    CHECK_NEAR(s.precision.loss_scale.fixed, 0, 0);
    CHECK_EQ(s.precision.loss_scale.initial_power, 16);
    CHECK_EQ(s.precision.loss_scale.window, 1000);
    CHECK_EQ(s.precision.loss_scale.hysteresis, 2);
    CHECK_EQ(s.precision.loss_scale.consecutive, false);
    CHECK_NEAR(s.precision.loss_scale.minimum, 1, 0);
    CHECK_EQ(s.precision.check_overflow, true);
}

TEST(an_optimizer_can_ask_for_bf16_moments)
{
    sl_settings s;
    REQUIRE_OK(resolve("{" MODEL ", " LENGTH ", " BATCH
                       ", \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"fp32_optimizer_states\": false}}}",
                       &s));
    CHECK_EQ(s.precision.states, SLUICE_STATES_BF16);
}

TEST(a_refused_value_can_be_mended_by_a_later_assignment)
{
    sluice_config *c;
    REQUIRE_OK(load("{" BASE ", \"data_types\": {\"param_dtype\": \"bf16\"}, \"zero_optimization\": "
                    "{\"offload_param\": {\"device\": \"nvme\"}}}",
                    &c));
    CHECK_EQ(sluice_config_check(c, NULL, NULL), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "data_types.param_dtype");
    CHECK_CONTAINS(sluice_error(), "is not built in yet");
    REQUIRE_OK(sluice_config_set(c, "data_types.param_dtype=fp32"));
    CHECK_EQ(sluice_config_check(c, NULL, NULL), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "offload_param.device is \"nvme\", but no folder is given for swap files");
    REQUIRE_OK(sluice_config_set(c, "zero_optimization.offload_param.device=auto"));
    REQUIRE_OK(sluice_config_check(c, NULL, NULL));
    sluice_config_destroy(c);
}

/* Each row is text added to a good file, and what the message must say. */
static const struct {
    const char *text, *message;
} refusals[] = {
    { "\"zero_optimisation\": {\"stage\": 1}",
      "unknown key \"zero_optimisation\"; did you mean \"zero_optimization\"?" },
    { "\n\"zero_optimization\": {\n\n\"stagee\": 1}",
      ":4: unknown key \"zero_optimization.stagee\"; did you mean \"zero_optimization.stage\"?" },
    { "\"lr\": 0.1", "did you mean \"optimizer.params.lr\"?" },
    { "\"zero_optimization.stage\": 1", "unknown key" },
    { "\"qqqqqqqqqqqqqqq\": 1", "`sluice config` lists all keys" },
    { "\"hidden_size\": 96", "unknown key \"hidden_size\": sluice calls it model.width" },
    { "\"num_hidden_layers\": 2", "sluice calls it model.layers" },
    { "\"n_layer\": 2", "sluice calls it model.layers" },
    { "\"n_embd\": 2", "sluice calls it model.width" },
    { "\"learning_rate\": 2", "unknown key \"learning_rate\": sluice calls it optimizer.params.lr" },
    { "\"max_steps\": 2", "unknown key \"max_steps\": sluice calls it steps" },
    { "\"num_train_epochs\": 2", "sluice calls it epochs" },
    { "\"warmup_steps\": 2", "sluice calls it scheduler.params.warmup_num_steps (with a scheduler.type)" },
    { "\"per_device_train_batch_size\": 2", "sluice calls it train_micro_batch_size_per_gpu" },
    { "\"rope_scaling\": {\"factor\": 8}",
      "unknown key \"rope_scaling\": it is read from the config.json of the folder model.path" },
    { "\"bf16\": true", "bf16: a section in braces is expected: \"bf16\": { \"enabled\": true }" },
    { "\"gradient_clipping\": 1e39", "gradient_clipping: 1e39 is not allowed; it takes a number from 0 to 3.4e+38, the "
                                     "largest in fp32" },
    { "\"compile\": {\"deepcompile\": true}",
      "compile.deepcompile: true is refused: it rewrites a program that PyTorch" },
    { "\"quantize_training\": {\"enabled\": true}", "quantize_training.enabled: true is refused: " },
    { "\"tensor_parallel\": {\"autotp_size\": 2}", "tensor_parallel.autotp_size: 2 is not built in yet (\"Slice" },
    { "\"seed\": \"x\"", "seed: \"x\" is not allowed; it takes a whole number from 0 to 9007199254740992" },
    { "\"seed\": 1.5", "seed: 1.5 is not allowed" },
    { "\"seed\": -1", "seed: -1 is not allowed" },
    { "\"seed\": null", "seed: null is not allowed" },
    { "\"zero_optimization\": {\"stage\": 4}", "stage: 4 is not allowed; it takes a whole number from 0 to 3" },
    { "\"zero_optimization\": true", "zero_optimization: a section in braces is expected" },
    { "\"memory\": {\"device\": \"lots\"}", "memory.device: \"lots\" is not allowed" },
    { "\"memory\": {\"device\": 0}", "memory.device: 0 is not allowed" },
    { "\"activation_checkpointing\": {\"mode\": \"some\"}", "it takes one of auto, none, recompute, offload" },
    { "\"gradient_clipping\": -1", "gradient_clipping: -1 is not allowed" },
    { "\"scheduler\": {\"type\": \"Cosine\"}", "scheduler.type: \"Cosine\" is not allowed" },
    { "\"scheduler\": {\"params\": {\"warmup_num_steps\": 3}}", "no meaning without a scheduler.type" },
    { "\"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"cos_min_ratio\": 0.1}}",
      "WarmupLR has no such parameter" },
    { "\"scheduler\": {\"type\": \"OneCycle\"}", "OneCycle needs params.cycle_min_lr" },
    { "\"scheduler\": {\"type\": \"ReduceLROnPlateau\"}", "set data.validation above 0" },
    { "\"epochs\": 3", "epochs: steps is given too" },
    { "\"gradient_accumulation_steps\": 3",
      "train_batch_size: 10 does not divide by gradient_accumulation_steps 3 x 1 rank" },
    { "\"train_micro_batch_size_per_gpu\": 4",
      "train_batch_size: 10 does not divide by train_micro_batch_size_per_gpu 4 x 1 rank" },
    { "\"train_micro_batch_size_per_gpu\": 5, \"gradient_accumulation_steps\": 3",
      "10 is not train_micro_batch_size_per_gpu 5 x gradient_accumulation_steps 3 x 1 rank" },
    { "\"fp16\": {\"enabled\": true}, \"bfloat16\": {\"enabled\": true}", "fp16.enabled: bf16.enabled is true too" },
    { "\"fp16\": {\"loss_scale\": -1}", "fp16.loss_scale: -1 is not allowed" },
    { "\"fp16\": {\"enabled\": true, \"loss_scale_window\": 0}", "fp16.loss_scale_window: it must be above 0" },
    { "\"fp16\": {\"enabled\": true, \"min_loss_scale\": 0}", "fp16.min_loss_scale: it must be above 0" },
    { "\"fp16\": {\"hysteresis\": 0}", "fp16.hysteresis: 0 is not allowed" },
    { "\"zero_optimization\": {\"states\": \"fp8\"}", "it takes one of fp32, bf16, compact" },
    { "\"bf16\": {\"enabled\": true, \"bf16_optimizer_states\": true}, \"zero_optimization\": {\"states\": "
      "\"compact\"}",
      "bf16.bf16_optimizer_states: it asks for bf16, zero_optimization.states for another type" },
    { "\"gradient_predivide_factor\": 2.0", "gradient_predivide_factor: 2.0 is refused" },
    { "\"gradient_allreduce_op\": \"sum\"", "is refused" },
    { "\"communication_data_type\": \"fp8\"", "communication_data_type: \"fp8\" is not allowed; it takes one of fp32, "
                                              "bf16, fp16" },
    { "\"data_types\": {\"grad_accum_dtype\": \"bf16\"}", "always summed in fp32" },
    { "\"zero_optimization\": {\"zenflow\": {}}", "zenflow" },
    { "\"zero_optimization\": {\"zenflow\": {\"topk_ratio\": 0.1}}", "not built in yet" },
    { "\"compression_training\": {\"weight_quantization\": {}}", "not built in yet" },
    { "\"tensorboard\": {\"enabled\": 3}", "tensorboard.enabled" },
    { "\"elasticity\": {\"enabled\": true}", "not built in yet" },
};

TEST(bad_values_are_refused_with_the_place_and_the_remedy)
{
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        char text[1024];
        sl_settings s;
        snprintf(text, sizeof text, "{" BASE ", %s}", refusals[i].text);
        CHECK_EQ(resolve(text, &s), SLUICE_ERR_USAGE);
        CHECK_CONTAINS(sluice_error(), refusals[i].message);
        CHECK_CONTAINS(sluice_error(), "config.json:");
    }
}

/* The same for files that lack something or contradict themselves. */
static const struct {
    const char *text, *message;
} whole_refusals[] = {
    { "{" MODEL ", " LENGTH ", " BATCH "}", "optimizer.type is missing; write \"optimizer\": {\"type\": \"AdamW\"" },
    { "{" MODEL ", " BATCH ", " SGD "}", "give \"steps\" or \"epochs\"" },
    { "{" MODEL ", " LENGTH ", " SGD "}", "the batch size is missing" },
    { "{" MODEL ", " LENGTH ", " SGD ", \"gradient_accumulation_steps\": 2}", "the batch size is missing" },
    { "{" MODEL ", \"steps\": 0, " BATCH ", " SGD "}",
      "steps: 0 is not allowed; it takes a whole number from 1 to 1000000000000" },
    { "{" LENGTH ", " BATCH ", " SGD "}",
      "model.type is missing; it is one of linear, mlp, cnn, resnet, vit, recommender, speech, bert, gpt2" },
    { "{\"model\": {\"type\": \"gpt3\"}, " LENGTH ", " BATCH ", " SGD "}", "model.type: \"gpt3\" is not one of" },
    { "{\"model\": {\"type\": \"mlp\"}, " LENGTH ", " BATCH ", " SGD "}", "data.type is missing" },
    { "{\"model\": {\"type\": \"gpt2\"}, \"data\": {\"type\": \"regression\"}, " LENGTH ", " BATCH ", " SGD "}",
      "gpt2 reads tokens" },
    { "{\"model\": {\"type\": \"gpt2\", \"vocabulary\": 100}, \"data\": {\"type\": \"text\", \"path\": \"a\"}, " LENGTH
      ", " BATCH ", " SGD "}",
      "bytes have 256 values" },
    { "{\"model\": {\"type\": \"mlp\", \"features\": 8}, \"data\": {\"type\": \"regression\", \"features\": 9}, " LENGTH
      ", " BATCH ", " SGD "}",
      "model.features: 8 does not match data.features, which is 9" },
    { "{\"model\": {\"type\": \"mlp\", \"features\": 8, \"outputs\": 3, \"loss\": \"mse\"}, \"data\": {\"type\": "
      "\"classification\"}, " LENGTH ", " BATCH ", " SGD "}",
      "classes need cross_entropy" },
    { "{\"model\": {\"type\": \"mlp\", \"features\": 8, \"outputs\": 3, \"loss\": \"bce\"}, \"data\": {\"type\": "
      "\"classification\"}, " LENGTH ", " BATCH ", " SGD "}",
      "classes need cross_entropy" },
    { "{\"model\": {\"type\": \"mlp\", \"features\": 8, \"loss\": \"cross_entropy\"}, \"data\": {\"type\": "
      "\"regression\"}, " LENGTH ", " BATCH ", " SGD "}",
      "numbers as targets need mse or bce" },
    { "{\"model\": {\"type\": \"gpt2\", \"loss\": \"bce\"}, \"data\": {\"type\": \"text\", \"path\": \"a\"}, " LENGTH
      ", " BATCH ", " SGD "}",
      "tokens need cross_entropy" },
    { "{\"model\": {\"type\": \"mlp\", \"features\": 8, \"hidden\": [5, 0]}, \"data\": {\"type\": "
      "\"regression\"}, " LENGTH ", " BATCH ", " SGD "}",
      "model.hidden: 0 is not allowed" },
    { "{\"model\": {\"type\": \"mlp\", \"features\": 8, \"hidden\": 5}, \"data\": {\"type\": \"regression\"}, " LENGTH
      ", " BATCH ", " SGD "}",
      "model.hidden: 5 is not allowed; it takes a list" },
    { "{" MODEL ", " LENGTH ", " BATCH ", \"optimizer\": {\"type\": \"SGD\", \"params\": {\"betas\": [0.9, 0.99]}}}",
      "SGD has no such parameter" },
    { "{" MODEL ", " LENGTH ", " BATCH ", \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"beta\": 1}}}",
      "unknown key \"optimizer.params.beta\"; did you mean \"optimizer.params.betas\"?" },
    { "{" MODEL ", " LENGTH ", " BATCH ", \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"betas\": [0.9]}}}",
      "it takes two numbers" },
    { "{" MODEL ", " LENGTH ", " BATCH ", \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"betas\": [0.9, 1]}}}",
      "[0.9,1] is not allowed" },
    { "{" MODEL ", " LENGTH ", " BATCH ", \"optimizer\": {\"type\": \"LAMB\"}, \"zero_optimization\": {\"states\": "
      "\"compact\"}}",
      "zero_optimization.states: LAMB and LARS keep their moments in fp32 only" },
    { "{" MODEL ", " LENGTH ", " BATCH ", \"optimizer\": {\"type\": \"LARS\"}, \"bf16\": {\"enabled\": true, "
      "\"bf16_optimizer_states\": true}}",
      "bf16.bf16_optimizer_states: LAMB and LARS keep their moments in fp32 only" },
    { "{" MODEL ", " LENGTH ", " BATCH ", \"optimizer\": {\"type\": \"Muon\"}}",
      "\"Muon\" is not built in yet; use one of SGD" },
    { "{" MODEL ", " LENGTH ", " BATCH ", \"optimizer\": {\"type\": \"OneBitAdam\"}}", "not built in yet" },
    { "{" MODEL ", " LENGTH ", " BATCH ", \"optimizer\": {\"type\": \"Adam\", \"params\": {\"max_grad_norm\": 1}}}",
      "write gradient_clipping" },
    { "{" MODEL ", " LENGTH ", " BATCH ", \"optimizer\": {\"type\": \"SGD\", \"params\": {\"nesterov\": true}}}",
      "needs a momentum" },
    { "{" MODEL ", " LENGTH ", " BATCH ", \"optimizer\": {\"type\": \"SGD\", \"groups\": [{\"lr\": 1}]}}",
      "groups[0]: match is missing" },
    { "{" MODEL ", " LENGTH ", " BATCH
      ", \"optimizer\": {\"type\": \"SGD\", \"groups\": [{\"match\": \"a\", \"rate\": 1}]}}",
      "groups[0]: unknown key \"rate\"" },
    { "{" MODEL ", " LENGTH ", " BATCH ", \"optimizer\": {\"type\": \"SGD\", \"groups\": [3]}}", "groups[0]: write {" },
    { "{" MODEL ", " LENGTH ", " BATCH ", \"optimizer\": {\"type\": \"SGD\", \"params\": {\"lr\": 1e39}}}",
      "optimizer.params.lr: 1e39 is not allowed; it takes a number from 0 to 3.4e+38, the largest in fp32" },
    { "{" MODEL ", " LENGTH ", " BATCH ", \"optimizer\": {\"type\": \"SGD\", \"params\": {\"learning_rate\": 1}}}",
      "unknown key \"optimizer.params.learning_rate\": sluice calls it optimizer.params.lr" },
    { "{" MODEL ", " LENGTH ", " BATCH ", \"optimizer\": {\"type\": \"OnebitAdam\", \"params\": {\"freeze_step\": 1}}}",
      "\"OnebitAdam\" is not built in yet; use one of SGD" },
    { "{\"steps\": 1,\n\"steps\": 2}", "duplicate" },
    { "{\"steps\": 1,,}", "line 1" },
    { "", "" },
    { "[]", "" },
    { "{\"steps\": 1} x", "" },
};

TEST(incomplete_and_contradictory_files_are_refused)
{
    for (size_t i = 0; i < sizeof whole_refusals / sizeof whole_refusals[0]; i++) {
        sl_settings s;
        CHECK_EQ(resolve(whole_refusals[i].text, &s), SLUICE_ERR_USAGE);
        CHECK_CONTAINS(sluice_error(), whole_refusals[i].message);
    }
}

TEST(a_missing_file_is_a_mistake_in_the_command)
{
    sluice_config *c = NULL;
    CHECK_EQ(sluice_config_load("/nowhere/config.json", &c), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "/nowhere/config.json");
    CHECK(c == NULL);
}

TEST(a_configuration_in_memory_is_read_as_a_file_and_names_lines_only_where_it_has_a_name)
{
    sluice_config *c = NULL;
    sl_settings s;
    REQUIRE_OK(sluice_config_parse("{" BASE "}", NULL, &c));
    CHECK_EQ(sl_config_resolve(c, 1, NULL, &s), SLUICE_OK);
    sluice_config_destroy(c);
    c = NULL;
    CHECK_EQ(sluice_config_parse("{\n\"stepz\": 1}", NULL, &c), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "configuration: unknown key \"stepz\"");
    CHECK_EQ(sluice_config_parse("{\n\"stepz\": 1}", "notes", &c), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "notes:2: unknown key \"stepz\"");
    CHECK_EQ(sluice_config_parse("{\n\"steps\": 1,}", "notes", &c), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "notes");
    CHECK(c == NULL);
}

/* ---- assignments ---- */

TEST(assignments_take_json_or_plain_words)
{
    sluice_config *c;
    sl_settings s;
    REQUIRE_OK(load("{" BASE "}", &c));
    REQUIRE_OK(sluice_config_set(c, "optimizer.type=Lion"));
    REQUIRE_OK(sluice_config_set(c, "optimizer.params.betas=[0.8, 0.9]"));
    REQUIRE_OK(sluice_config_set(c, "memory.device=2MiB"));
    REQUIRE_OK(sluice_config_set(c, "checkpoint.path=17"));
    REQUIRE_OK(sluice_config_set(c, "model.hidden=[7]"));
    REQUIRE_OK(sluice_config_set(c, "evaluate={\"every\": 5}"));
    REQUIRE_OK(sluice_config_set(c, "save=a=b"));
    REQUIRE_OK(sl_config_resolve(c, 1, NULL, &s));
    CHECK_EQ(s.optim.optimizer.kind, SLUICE_LION);
    CHECK_NEAR(s.optim.optimizer.beta1, 0.8, 0);
    CHECK_EQ(s.plan.budget[SL_TIER_DEVICE], 2 << 20);
    CHECK_STR(s.checkpoint.path, "17");
    CHECK_EQ(s.model.hidden_count, 1);
    CHECK_EQ(s.model.hidden[0], 7);
    CHECK_EQ(s.evaluate.every, 5);
    CHECK_STR(s.save, "a=b");
    sluice_config_destroy(c);
}

TEST(bad_assignments_name_the_option)
{
    static const struct {
        const char *assignment, *message;
    } rows[] = {
        { "steps", "--set: \"steps\" is not key=value" },
        { "=3", "is not key=value" },
        { "stepps=3", "--set: unknown key \"stepps\"; did you mean \"steps\"?" },
        { "steps=0", "--set: steps: 0 is not allowed" },
        { "steps=many", "--set: steps: \"many\" is not allowed" },
        { "zero_optimization=3", "--set: zero_optimization: a section in braces" },
    };
    sluice_config *c;
    REQUIRE_OK(load("{" BASE "}", &c));
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        CHECK_EQ(sluice_config_set(c, rows[i].assignment), SLUICE_ERR_USAGE);
        CHECK_CONTAINS(sluice_error(), rows[i].message);
    }
    REQUIRE_OK(sluice_config_check(c, NULL, NULL));
    sluice_config_destroy(c);
}

TEST(values_of_other_programs_are_answered_with_ours)
{
    static const struct {
        const char *key, *theirs, *ours; /* ours NULL: there is none */
    } rows[] = {
        { "scheduler.type", "cosine", "WarmupCosineLR" },
        { "scheduler.type", "LINEAR", "WarmupDecayLR" },
        { "scheduler.type", "constant", "none" },
        { "scheduler.type", "constant_with_warmup", "WarmupLR" },
        { "scheduler.type", "WarmupCosinLR", "WarmupCosineLR" },
        { "scheduler.type", "wsd", NULL },
        { "optimizer.type", "adamw_torch", "AdamW" },
        { "optimizer.type", "paged_adamw_8bit", "AdamW" },
        { "optimizer.type", "FusedLamb", "LAMB" },
        { "optimizer.type", "adamww", "AdamW" },
        { "optimizer.type", "adafactor", NULL },
        { "data.type", "csv", "table" },
        { "data.type", "sharegpt", "jsonl" },
        { "model.type", "gpt3", "gpt2" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[128], expected[64];
        sluice_config *c;
        REQUIRE_OK(load("{" BASE "}", &c));
        snprintf(text, sizeof text, "%s=%s", rows[i].key, rows[i].theirs);
        sluice_status st = sluice_config_set(c, text); /* names of models and data are looked up in the end */
        if (st == SLUICE_OK) st = sluice_config_check(c, NULL, NULL);
        CHECK_EQ(st, SLUICE_ERR_USAGE);
        snprintf(expected, sizeof expected, "did you mean %s", rows[i].ours != NULL ? rows[i].ours : "");
        CHECK_THAT(rows[i].ours != NULL ? strstr(sluice_error(), expected) != NULL
                                        : strstr(sluice_error(), "is not built in") != NULL,
                   "%s: %s", text, sluice_error());
        snprintf(text, sizeof text, "%s=%s", rows[i].key, rows[i].ours);
        if (rows[i].ours != NULL) CHECK_EQ(sluice_config_set(c, text), SLUICE_OK);
        sluice_config_destroy(c);
    }
}

TEST(a_length_on_the_command_line_takes_the_place_of_the_files)
{
    sluice_config *c;
    sl_settings s;
    notes n = { 0 };
    REQUIRE_OK(load("{" MODEL ", \"epochs\": 2, " BATCH ", " SGD "}", &c));
    REQUIRE_OK(sluice_config_set(c, "steps=7"));
    REQUIRE_OK(sl_config_resolve(c, 1, &(sl_log){ take_note, &n, 0, 1 }, &s));
    CHECK_EQ(s.steps, 7);
    CHECK_EQ(s.epochs, -1);
    CHECK_CONTAINS(n.text[SLUICE_LOG_NOTE], "config.json gives way to --set steps");
    REQUIRE_OK(sluice_config_set(c, "epochs=3")); /* both are new */
    CHECK_EQ(sl_config_resolve(c, 1, NULL, &s), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "--set epochs=null");
    REQUIRE_OK(sluice_config_set(c, "epochs=null"));
    REQUIRE_OK(sl_config_resolve(c, 1, NULL, &s));
    CHECK_EQ(s.steps, 7);
    sluice_config_destroy(c);
    REQUIRE_OK(load("{" BASE "}", &c)); /* which has steps */
    REQUIRE_OK(sluice_config_set(c, "epochs=3"));
    REQUIRE_OK(sl_config_resolve(c, 1, NULL, &s));
    CHECK_EQ(s.steps, -1);
    CHECK_EQ(s.epochs, 3);
    sluice_config_destroy(c);
}

TEST(epochs_can_replace_steps_by_assignment)
{
    sluice_config *c;
    sl_settings s;
    REQUIRE_OK(load("{" BASE "}", &c));
    REQUIRE_OK(sluice_config_set(c, "steps=null"));
    REQUIRE_OK(sluice_config_set(c, "epochs=3"));
    REQUIRE_OK(sl_config_resolve(c, 1, NULL, &s));
    CHECK_EQ(s.steps, -1);
    CHECK_EQ(s.epochs, 3);
    sluice_config_destroy(c);
}

/* ---- printing ---- */

static char *print_config(const sluice_config *c)
{
    char *text;
    size_t bytes;
    FILE *f = open_memstream(&text, &bytes);
    sluice_config_print(c, f);
    fclose(f);
    return text;
}

TEST(the_printed_configuration_reads_back_to_itself)
{
    static const char *const files[] = {
        "{" BASE "}",
        "{" BASE ", \"zero_optimization\": {\"stage\": 2, \"cpu_offload\": true}, \"memory\": {\"device\": \"1GiB\"}}",
        "{" MODEL ", \"epochs\": 2, \"train_batch_size\": 12, \"train_micro_batch_size_per_gpu\": 4, \"optimizer\": "
        "{\"type\": \"Adam\","
        " \"params\": {\"lr\": 0.1, \"torch_adam\": true}, \"groups\": [{\"match\": \"a\\\"b\", \"lr\": 0.2}]},"
        " \"scheduler\": {\"type\": \"OneCycle\", \"params\": {\"cycle_min_lr\": 1e-4, \"cycle_max_lr\": 0.1}}}",
    };
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        sluice_config *first, *second;
        json_error_t error;
        REQUIRE_OK(load(files[i], &first));
        char *text = print_config(first);
        json_t *json = json_loads(text, JSON_REJECT_DUPLICATES, &error);
        CHECK(json != NULL);
        json_decref(json);
        REQUIRE_OK(load(text, &second));
        char *again = print_config(second);
        CHECK_STR(again, text);
        free(text);
        free(again);
        sluice_config_destroy(first);
        sluice_config_destroy(second);
    }
}

TEST(the_printed_configuration_is_resolved)
{
    sluice_config *c;
    REQUIRE_OK(load("{" BASE "}", &c));
    char *text = print_config(c);
    CHECK_CONTAINS(text, "\"train_micro_batch_size_per_gpu\": 10");
    CHECK_CONTAINS(text, "\"gradient_accumulation_steps\": 1");
    CHECK_CONTAINS(text, "\"loss\": \"mse\"");
    CHECK(strstr(text, "betas") == NULL); /* SGD has none */
    free(text);
    sluice_config_destroy(c);
}

TEST(one_value_can_be_asked_for)
{
    sluice_config *c;
    char text[32], small[2];
    REQUIRE_OK(load("{" BASE "}", &c));
    REQUIRE_OK(sluice_config_get(c, "gradient_accumulation_steps", text, sizeof text));
    CHECK_STR(text, "1");
    REQUIRE_OK(sluice_config_get(c, "memory.levels", text, sizeof text));
    CHECK_STR(text, "\"auto\"");
    CHECK_EQ(sluice_config_get(c, "stepps", text, sizeof text), SLUICE_ERR_USAGE);
    CHECK_EQ(sluice_config_get(c, "steps", small, sizeof small), SLUICE_ERR_USAGE);
    sluice_config_destroy(c);
}

/* ---- memory ---- */

TEST(a_failed_allocation_fails_the_load_and_leaks_nothing)
{
    const char *path = write_config("{" MODEL ", " LENGTH ", " BATCH
                                    ", \"optimizer\": {\"type\": \"SGD\", \"groups\": [{\"match\": \"a\"}]}}");
    sl_alloc_stats before, after;
    sl_alloc_get_stats(&before);
    int failures = 0;
    for (int64_t nth = 1; nth < 1000; nth++) {
        sluice_config *c = NULL;
        sl_alloc_fail_nth(nth, 0);
        sluice_status st = sluice_config_load(path, &c);
        sl_alloc_fail_nth(0, 0);
        sluice_config_destroy(c);
        sl_alloc_get_stats(&after);
        CHECK_EQ(after.live_count, before.live_count);
        if (st == SLUICE_OK) break;
        CHECK_EQ(st, SLUICE_ERR_NO_MEMORY);
        failures++;
    }
    CHECK(failures >= 4);
}

/* ---- what may change on --resume ---- */

TEST(every_setting_says_what_becomes_of_it_on_resume_and_has_a_place_in_the_documentation)
{
    for (size_t i = 0; i < sl_config_row_count; i++) {
        const sl_option *row = &sl_config_rows[i];
        bool said = row->resume != SL_RESUME_UNSAID, reason = row->why != NULL && row->why[0] != '\0';
        CHECK_THAT(said == (row->fate == SL_KEY_HONOURED), "%s: mark it SAME, MODEL or FREE(why)", row->key);
        CHECK_THAT(row->fate != SL_KEY_HONOURED || sl_config_has_chapter(row->key),
                   "%s: no chapter of docs/config.md has it", row->key);
        CHECK_THAT(reason == (row->resume == SL_RESUME_FREE), "%s: a reason belongs to what may change", row->key);
    }
}

/* A run compares what it reads with what it writes, and tries the latter: it must know which settings are paths. */
TEST(every_text_is_marked_as_a_path_or_known_to_be_none)
{
    static const char *const no_paths[] = {
        "model.type", "model.vocabulary", "data.type", "data.template", "data.template_date", "data.crop",
        "data.columns.label", "data.columns.first", "data.columns.second", "data.characters",
        /* together a folder, which a run tries where it is written */
        "tensorboard.output_path", "tensorboard.job_name", "csv_monitor.output_path", "csv_monitor.job_name",
        /* several folders in one text, tried when swap files are opened */
        "memory.disk_path", "zero_optimization.offload_optimizer.nvme_path", "zero_optimization.offload_param.nvme_path"
    };
    for (size_t i = 0; i < sl_config_row_count; i++) {
        const sl_option *row = &sl_config_rows[i];
        bool none = row->choices != NULL || row->type != SL_OPT_STRING || row->fate != SL_KEY_HONOURED;
        for (size_t k = 0; k < sizeof no_paths / sizeof no_paths[0]; k++) none |= strcmp(row->key, no_paths[k]) == 0;
        CHECK_THAT(none == (row->file == SL_FILE_NONE), "%s: mark a path READS, WRITES or FOLDER", row->key);
    }
}

/* A value of the row other than the one in `s`. */
static bool other_value(const sl_option *row, const sl_settings *s, sl_config_value *out)
{
    char name[64];
    bool built;
    sl_config_value_load(row, s, out);
    switch (row->type) {
    case SL_OPT_BOOL:
        out->boolean = !out->boolean;
        return true;
    case SL_OPT_INT:
        out->integer = out->integer == (int64_t)row->min + 1 ? (int64_t)row->min + 2 : (int64_t)row->min + 1;
        return true;
    case SL_OPT_DOUBLE:
        out->real = out->real == row->min + 0.125 ? row->min + 0.25 : row->min + 0.125;
        return true;
    case SL_OPT_SIZE:
        out->size += 4096;
        return true;
    case SL_OPT_PAIR:
        out->pair[0] = 0.5;
        return true;
    case SL_OPT_CHOICE:
        out->choice = out->choice == 0 ? 1 : 0;
        return sl_config_choice(row, out->choice, name, sizeof name, &built) && built;
    case SL_OPT_STRING:
        out->text = "another";
        return true;
    case SL_OPT_LIST:
        out->text = "[\"another\"]";
        return true;
    }
    return false;
}

static void write_to(void (*write)(const sl_settings *, FILE *), const sl_settings *s, char *out, size_t bytes)
{
    FILE *f = fmemopen(out, bytes, "w");
    write(s, f);
    fclose(f);
}

/* A whole configuration in which the row counts: with an optimizer that has the parameter. */
static void write_file_for(const sl_option *row, char *out, size_t bytes)
{
    const char *name = sl_config_param(&sl_config_optimizers, row);
    const sl_config_kind *kind = &sl_config_optimizers.kinds[SLUICE_ADAM];
    for (int k = 0; name != NULL && !sl_config_listed(kind->params, name) && k < sl_config_optimizers.kind_count; k++)
        kind = &sl_config_optimizers.kinds[k];
    snprintf(out, bytes, "{%s, \"optimizer\": {\"type\": \"%s\"}, \"scheduler\": {\"type\": \"WarmupLR\"}}",
             MODEL ", " LENGTH ", " BATCH, kind->name);
}

/* Walks the table: a value that changes is in the lines that ranks compare, and in the identity of a run exactly where
 * its row says so. */
TEST(every_setting_that_changes_is_seen_by_ranks_and_by_checkpoints_as_its_row_says)
{
    static char ranks[2][32768], identity[2][32768];
    char file[2048];
    int same = 0, free_ones = 0;
    for (size_t i = 0; i < sl_config_row_count; i++) {
        const sl_option *row = &sl_config_rows[i];
        sl_config_value value;
        sl_settings s;
        if (row->fate != SL_KEY_HONOURED) continue;
        write_file_for(row, file, sizeof file);
        REQUIRE_OK(resolve(file, &s));
        for (int k = 0; k < 2; k++) {
            if (k == 1) {
                REQUIRE(other_value(row, &s, &value));
                sl_config_value_store(row, &value, &s);
            }
            write_to(sl_settings_write, &s, ranks[k], sizeof ranks[k]);
            write_to(sl_settings_write_identity, &s, identity[k], sizeof identity[k]);
        }
        bool listed =
            sl_config_param(&sl_config_optimizers, row) == NULL && sl_config_param(&sl_config_schedules, row) == NULL;
        if (listed && strcmp(ranks[0], ranks[1]) == 0)
            test_fail(__FILE__, __LINE__, "%s: ranks do not compare it", row->key);
        bool kept = row->resume != SL_RESUME_FREE, seen = strcmp(identity[0], identity[1]) != 0;
        if (kept != seen) test_fail(__FILE__, __LINE__, "%s: %s in a run's identity", row->key, seen ? "is" : "is not");
        same += kept;
        free_ones += !kept;
    }
    CHECK(same > 30 && free_ones > 60);
}

/* alpha shares its place with the second of betas: each optimizer gets the default of its own. */
TEST(rmsprop_reads_torchs_parameters_with_torchs_defaults)
{
    sl_settings s;
    REQUIRE_OK(resolve("{" MODEL ", " LENGTH ", " BATCH ", \"optimizer\": {\"type\": \"RMSprop\"}}", &s));
    const sluice_optimizer *o = &s.optim.optimizer;
    CHECK(o->kind == SLUICE_RMSPROP && o->lr == 0.01 && o->beta2 == 0.99 && o->epsilon == 1e-8);
    CHECK(o->momentum == 0 && o->weight_decay == 0 && !o->centered);
    REQUIRE_OK(resolve("{" MODEL ", " LENGTH ", " BATCH ", \"optimizer\": {\"type\": \"RMSprop\", \"params\": "
                       "{\"alpha\": 0.9, \"centered\": true, \"momentum\": 0.5}}}",
                       &s));
    CHECK(o->beta2 == 0.9 && o->centered && o->momentum == 0.5);
    REQUIRE_OK(resolve("{" MODEL ", " LENGTH ", " BATCH ", " ADAM "}", &s));
    CHECK(o->beta1 == 0.9 && o->beta2 == 0.999);
    CHECK(resolve("{" MODEL ", " LENGTH ", " BATCH ", \"optimizer\": {\"type\": \"RMSprop\", \"params\": "
                  "{\"betas\": [0.9, 0.9]}}}",
                  &s) != SLUICE_OK);
    CHECK_CONTAINS(sluice_error(), "RMSprop has no such parameter");
}

#define RESUME_PAGE SLUICE_SOURCE_DIR "/docs/resume.md"

/* The table stands between the page's first "| setting |" and the next empty line; RECORD_DOCS=1 (make docs) renews it. */
TEST(the_page_on_resuming_has_the_table)
{
    static char table[65536], page[131072];
    FILE *f = fmemopen(table, sizeof table, "w");
    sl_settings_write_resume_page(f);
    fclose(f);
    f = fopen(RESUME_PAGE, "r");
    REQUIRE(f != NULL);
    CHECK(fread(page, 1, sizeof page - 1, f) > 0);
    fclose(f);
    char *begin = strstr(page, "| setting |"), *end = begin != NULL ? strstr(begin, "\n\n") : NULL;
    REQUIRE(end != NULL);
    if (getenv("RECORD_DOCS") != NULL) {
        f = fopen(RESUME_PAGE, "w");
        REQUIRE(f != NULL);
        fprintf(f, "%.*s%s%s", (int)(begin - page), page, table, end + 1);
        fclose(f);
    } else if (strncmp(begin, table, strlen(table)) != 0 || begin + strlen(table) != end + 1) {
        test_fail(__FILE__, __LINE__, "docs/resume.md differs from the table of settings: run make docs");
    }
}

/* ---- options of the C API go through the same rows ---- */

TEST(options_are_held_to_the_bounds_of_their_rows)
{
    static const struct {
        const char *message;
        size_t offset;
        int value;
    } bad[] = {
        { "options.stage is 7", offsetof(sluice_options, stage), 7 },
        { "options.threads is -1", offsetof(sluice_options, threads), -1 },
        { "options.levels is -3", offsetof(sluice_options, levels), -3 },
        { "options.partition is 55", offsetof(sluice_options, partition), 55 },
        { "options.device is 77", offsetof(sluice_options, device), 77 },
        { "options.accumulation_steps is 0", offsetof(sluice_options, accumulation_steps), 0 },
        { "options.optimizer.kind is 99", offsetof(sluice_options, optimizer.kind), 99 },
        { "options.activations is 9", offsetof(sluice_options, activations), 9 },
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        sluice_options o;
        sl_settings s;
        sluice_options_init(&o);
        memcpy((char *)&o + bad[i].offset, &bad[i].value, sizeof bad[i].value);
        CHECK_EQ(sl_settings_from_options(&o, &s), SLUICE_ERR_USAGE);
        CHECK_CONTAINS(sluice_error(), bad[i].message);
    }
}

TEST(bias_correction_is_on_unless_a_file_or_an_option_switches_it_off)
{
    sluice_options o;
    sl_settings s;
    REQUIRE_OK(resolve("{" MODEL ", " LENGTH ", " BATCH ", " ADAM "}", &s));
    CHECK(!s.optim.optimizer.uncorrected);
    REQUIRE_OK(resolve("{" MODEL ", " LENGTH ", " BATCH
                       ", \"optimizer\": {\"type\": \"Adam\", \"params\": {\"bias_correction\": false}}}",
                       &s));
    CHECK(s.optim.optimizer.uncorrected);
    sluice_options_init(&o);
    REQUIRE_OK(sl_settings_from_options(&o, &s));
    CHECK(!s.optim.optimizer.uncorrected);
    o.optimizer.uncorrected = true;
    REQUIRE_OK(sl_settings_from_options(&o, &s));
    CHECK(s.optim.optimizer.uncorrected);
}

TEST(options_and_a_file_that_say_the_same_make_the_same_settings)
{
    sluice_options o;
    sl_settings from_file, s;
    sluice_options_init(&o);
    sluice_optimizer_init(&o.optimizer, SLUICE_SGD);
    o.optimizer.lr = 0.25;
    o.gradient_clipping = 0.5;
    o.stage = 3;
    o.parameters = SLUICE_PLACE_HOST;
    o.precision = SLUICE_BF16;
    o.device_bytes = 1 << 20;
    o.levels = 2;
    REQUIRE_OK(sl_settings_from_options(&o, &s));
    REQUIRE_OK(
        resolve("{" MODEL ", " LENGTH ", " BATCH ", \"optimizer\": {\"type\": \"SGD\", \"params\": {\"lr\": 0.25}},"
                " \"gradient_clipping\": 0.5, \"bf16\": {\"enabled\": true}, \"zero_optimization\": {\"stage\": 3,"
                " \"offload_param\": {\"device\": \"cpu\"}}, \"memory\": {\"device\": \"1MiB\", \"levels\": 2}}",
                &from_file));
    CHECK_EQ(s.plan.stage, from_file.plan.stage);
    CHECK_EQ(s.plan.parameters, from_file.plan.parameters);
    CHECK_EQ(s.plan.levels, from_file.plan.levels);
    CHECK_EQ(s.plan.budget[SL_TIER_DEVICE], from_file.plan.budget[SL_TIER_DEVICE]);
    CHECK_EQ(s.precision.type, from_file.precision.type);
    CHECK_EQ(s.precision.wire, from_file.precision.wire);
    CHECK_NEAR(s.optim.optimizer.lr, from_file.optim.optimizer.lr, 0);
    CHECK_NEAR(s.optim.clip, from_file.optim.clip, 0);
}

TEST(folders_for_swap_files_come_from_all_that_name_them_each_once)
{
    sl_settings s;
    REQUIRE_OK(resolve("{" BASE ", \"memory\": {\"disk_path\": [\"/a\", \"/b\"], \"disk\": \"1GiB\"}, "
                       "\"activation_checkpointing\": {\"device\": \"nvme\"}, \"zero_optimization\": "
                       "{\"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": \"/b\"}, "
                       "\"offload_param\": {\"device\": \"nvme\", \"nvme_path\": \"/c\"}}}",
                       &s));
    CHECK_STR(s.device.disk_path, "/a:/b:/c");
    CHECK_EQ(s.plan.budget[SL_TIER_DISK], (uint64_t)1 << 30);
    CHECK_EQ(s.plan.state, SLUICE_PLACE_DISK);
    CHECK_EQ(s.plan.parameters, SLUICE_PLACE_DISK);
    CHECK_EQ(s.plan.offload_to, SLUICE_PLACE_DISK);
    CHECK(s.plan.offload_checkpoints);
}

/* Each is a line of the file, which is not read again for each. */
TEST(a_hundred_thousand_comments_are_read_in_a_moment)
{
    enum { COMMENTS = 100000, MOST_SECONDS = 20 };
    sluice_config *c;
    char *text = malloc((size_t)COMMENTS * 24 + 64), *at = text;
    REQUIRE(text != NULL);
    at += sprintf(at, "{\n\"steps\": 3");
    for (int i = 0; i < COMMENTS; i++) at += sprintf(at, ",\n\"_%d\": %d", i, i);
    sprintf(at, "}");
    const double start = sl_now();
    REQUIRE_OK(sluice_config_parse(text, "notes.json", &c));
    CHECK(sl_now() - start < MOST_SECONDS);
    sluice_config_destroy(c);
    free(text);
}

/* engine_resume.c: what a checkpoint keeps of an engine beside its tensors, and which checkpoints an engine continues. */
#include <string.h>

#include "train/engine_parts.h"

static const char *const optimizer_names[] = {
    [SLUICE_SGD] = "SGD",   [SLUICE_ADAGRAD] = "Adagrad", [SLUICE_ADAM] = "Adam", [SLUICE_ADAMW] = "AdamW",
    [SLUICE_LAMB] = "LAMB", [SLUICE_LARS] = "LARS",       [SLUICE_LION] = "Lion",
};

/* Samples in a micro-batch: the first dimension of the inputs. */
static uint64_t batch_rows(const sluice_graph *g)
{
    int value;
    if (sl_graph_inputs(g, &value, 1) == 0 || g->values[value].shape.rank == 0) return 1;
    return (uint64_t)g->values[value].shape.dim[0];
}

static const char *const dtype_names[] = { [SLUICE_F32] = "fp32", [SLUICE_BF16] = "bf16", [SLUICE_F16] = "fp16" };
static const char *const state_names[] = {
    [SLUICE_STATES_F32] = "fp32", [SLUICE_STATES_BF16] = "bf16", [SLUICE_STATES_COMPACT] = "compact"
};

void sl_engine_meta(const sluice_engine *e, sl_checkpoint_meta *meta)
{
    *meta = (sl_checkpoint_meta){ .step = e->step,
                                  .applied_steps = e->applied,
                                  .seed = e->context.seed,
                                  .data_position = e->step * sl_engine_micro_batches(e),
                                  .loss_scale = e->scaler.scale,
                                  .scale_steps = (uint64_t)e->scaler.clean_steps,
                                  .scale_hysteresis = e->loss_scale.fixed > 0 ? 0 : (uint64_t)e->scaler.hysteresis,
                                  .micro_batch = batch_rows(e->graph),
                                  .global_micro_batches = sl_engine_micro_batches(e) };
    snprintf(meta->optimizer, sizeof meta->optimizer, "%s", optimizer_names[e->optimizer]);
    snprintf(meta->precision, sizeof meta->precision, "%s", dtype_names[e->graph->precision]);
    snprintf(meta->wire, sizeof meta->wire, "%s", dtype_names[e->graph->wire]);
    snprintf(meta->states, sizeof meta->states, "%s", state_names[e->states]);
    memcpy(meta->model_sha256, e->identity, sizeof meta->model_sha256);
    sl_device_kernels(&e->device, e->isa, meta->kernels, sizeof meta->kernels);
}

/* A type that the checkpoint's bits depend on. Older checkpoints do not say: they were all fp32. */
static sluice_status check_type(const char *key, const char *here, const char *there)
{
    if (there[0] == '\0') there = "fp32";
    if (strcmp(here, there) == 0) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_USAGE,
                   "%s is %s, the checkpoint was made with %s: a resumed run must keep it, since bits depend on it",
                   key, here, there);
}

static sluice_status check_types(const sl_checkpoint_meta *here, const sl_checkpoint_meta *there)
{
    SL_TRY(check_type("the precision (fp16.enabled, bf16.enabled)", here->precision, there->precision));
    SL_TRY(check_type("communication_data_type", here->wire, there->wire));
    return check_type("zero_optimization.states", here->states, there->states);
}

sluice_status sl_engine_check_resume(const sluice_engine *e, const sl_checkpoint_meta *meta)
{
    sl_checkpoint_meta here;
    sl_engine_meta(e, &here);
    if (meta->optimizer[0] != '\0' && strcmp(meta->optimizer, here.optimizer) != 0)
        return sl_fail(SLUICE_ERR_USAGE,
                       "optimizer.type is %s, the checkpoint was made with %s: a resumed run must keep it",
                       here.optimizer, meta->optimizer);
    if (meta->micro_batch != 0 && meta->micro_batch != here.micro_batch)
        return sl_fail(
            SLUICE_ERR_USAGE,
            "train_micro_batch_size_per_gpu is %llu, the checkpoint was made with %llu: a resumed run must keep "
            "it, since sums depend on it",
            (unsigned long long)here.micro_batch, (unsigned long long)meta->micro_batch);
    if (meta->global_micro_batches != 0 && meta->global_micro_batches != here.global_micro_batches)
        return sl_fail(SLUICE_ERR_USAGE,
                       "train_batch_size is %llu micro-batches a step (gradient_accumulation_steps %d x ranks %d), the "
                       "checkpoint was made with %llu: a resumed run must keep their product; either may change",
                       (unsigned long long)here.global_micro_batches, e->plan->options.accumulation,
                       e->plan->options.rank_count, (unsigned long long)meta->global_micro_batches);
    return check_types(&here, meta);
}

/* A scale that is fixed now, or was, is what the settings say. */
static void restore_scale(sluice_engine *e, const sl_checkpoint_meta *meta)
{
    if (e->loss_scale.fixed > 0 || meta->scale_hysteresis == 0) return;
    e->scaler.scale = meta->loss_scale;
    e->scaler.clean_steps = (int64_t)meta->scale_steps;
    e->scaler.hysteresis = (int)meta->scale_hysteresis;
    sl_engine_use_scale(e);
}

void sl_engine_restore(sluice_engine *e, const sl_checkpoint_meta *meta)
{
    e->step = meta->step;
    e->applied = meta->applied_steps;
    e->context.seed = meta->seed;
    if (e->graph->precision == SLUICE_F16) restore_scale(e, meta);
    e->micro = 0;
    e->phase = SL_ENGINE_READY;
}

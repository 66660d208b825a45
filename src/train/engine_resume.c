/* engine_resume.c: what a checkpoint keeps of an engine in addition to its tensors, and which checkpoints an engine continues. */
#include <string.h>

#include "core/alloc.h"
#include "ir/shared_norm.h"
#include "train/engine_parts.h"

/* Samples in a micro-batch: the first dimension of the inputs. */
static uint64_t batch_rows(const sluice_graph *g)
{
    int value;
    if (sl_graph_inputs(g, &value, 1) == 0 || g->values[value].shape.rank == 0) return 1;
    return (uint64_t)g->values[value].shape.dim[0];
}

/* Settings that say what the graph is, and attributes of its ops, which no setting is called like. */
static bool is_model(const char *key)
{
    return strchr(key, ' ') == NULL && sl_settings_is_model(key);
}

sluice_status sl_engine_identify_model(sluice_engine *e)
{
    sl_identity *d = &e->identity;
    SL_TRY(sl_graph_identity(e->graph, d->model_sha256));
    sl_graph_identity_v1(e->graph, d->old_model_sha256);
    FILE *out = fmemopen(d->lines, sizeof d->lines - 1, "w");
    if (out == NULL) return sl_fail(SLUICE_ERR_NO_MEMORY, "out of memory while describing the model");
    sl_graph_write_attributes(e->graph, out);
    fclose(out);
    return SLUICE_OK;
}

static bool shares_statistics(const sluice_graph *g)
{
    bool any = false;
    for (int i = 0; i < g->running_count; i++) any = any || sl_graph_shares_running(g, i);
    return any;
}

sluice_status sl_engine_identify(sluice_engine *e, const sl_settings *settings)
{
    sl_identity *d = &e->identity;
    char *attributes = sl_strdup(d->lines, "attributes of the model");
    FILE *out = attributes != NULL ? fmemopen(d->lines, sizeof d->lines - 1, "w") : NULL;
    if (out == NULL) {
        sl_free(attributes);
        return sl_fail(SLUICE_ERR_NO_MEMORY, "out of memory while describing the run");
    }
    sl_settings_write_identity(settings, out);
    /* the other modes give the same bits */
    fprintf(out, "zero_optimization.update: \"%s\"\n",
            settings->plan.update == SL_UPDATE_MODE_DELAYED ? "delayed" : "sync");
    fprintf(out, SL_IDENTITY_SAMPLES ": %llu\n", (unsigned long long)batch_rows(e->graph));
    fprintf(out, SL_IDENTITY_MICRO ": %llu\n", (unsigned long long)sl_engine_micro_batches(e));
    if (shares_statistics(e->graph)) fprintf(out, SL_IDENTITY_SHARED ": %d\n", e->ranks->count);
    fputs(attributes, out);
    fclose(out); /* what does not fit is attributes of ops, which the hash covers */
    sl_free(attributes);
    d->is_model = is_model;
    return SLUICE_OK;
}

void sl_engine_meta(const sluice_engine *e, sl_checkpoint_meta *meta)
{
    *meta = (sl_checkpoint_meta){ .step = e->step,
                                  .applied_steps = e->applied,
                                  .seed = e->context.seed,
                                  .data_position = e->step * sl_engine_micro_batches(e),
                                  .loss_scale = e->scaler.scale,
                                  .scale_steps = (uint64_t)e->scaler.clean_steps,
                                  .scale_hysteresis =
                                      e->precision.loss_scale.fixed > 0 ? 0 : (uint64_t)e->scaler.hysteresis,
                                  .plain_steps = e->speculation.plain };
    memcpy(meta->identity, e->identity.lines, sizeof meta->identity);
    memcpy(meta->model_sha256, e->identity.model_sha256, sizeof meta->model_sha256);
    sl_device_kernels(&e->device, e->isa, meta->kernels, sizeof meta->kernels);
}

void sl_engine_restore(sluice_engine *e, const sl_checkpoint_meta *meta)
{
    e->step = meta->step;
    e->applied = meta->applied_steps;
    e->context.seed = meta->seed;
    e->micro = 0;
    e->phase = SL_ENGINE_READY;
    sl_engine_resume_speculation(e, meta->plain_steps);
    /* a loss scale that is fixed now, or was when the checkpoint was made, is what the settings say */
    bool dynamic = e->precision.loss_scale.fixed <= 0 && meta->scale_hysteresis != 0;
    if (e->graph->precision != SLUICE_F16 || !dynamic) return;
    e->scaler.scale = meta->loss_scale;
    e->scaler.clean_steps = (int64_t)meta->scale_steps;
    e->scaler.hysteresis = (int)meta->scale_hysteresis;
    sl_engine_use_scale(e);
}

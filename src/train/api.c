/* api.c: the public calls on an engine that are more than running it: options, parameters, files, results. */
#include <string.h>

#include "ir/tile.h"
#include "train/batch.h"
#include "train/totals.h"

/* Callers built against an older header have a shorter struct: what they do not know keeps its default. */
static sluice_status copy_options(const sluice_options *given, sluice_options *o)
{
    sluice_options_init(o);
    if (given == NULL) return SLUICE_OK;
    if (given->size < offsetof(sluice_options, gradient_clipping) || given->size > 16 * sizeof *o)
        return sl_fail(SLUICE_ERR_USAGE, "sluice_options.size is %zu: start from sluice_options_init", given->size);
    memcpy(o, given, given->size < sizeof *o ? given->size : sizeof *o);
    return SLUICE_OK;
}

sluice_status sluice_engine_create(sluice_graph *g, const sluice_options *options, sluice_engine **out)
{
    sluice_options o;
    sl_settings settings;
    if (g == NULL) return sl_fail(SLUICE_ERR_USAGE, "sluice_engine_create: the graph is NULL");
    SL_TRY(copy_options(options, &o));
    SL_TRY(sl_settings_from_options(&o, &settings));
    sl_engine_options e = { .training = true,
                            .world = o.world,
                            .settings = &settings,
                            .log = { o.log, o.log_user, sluice_world_rank(o.world), sluice_world_size(o.world) } };
    return sl_engine_create(g, &e, out);
}

void sluice_set_learning_rate(sluice_engine *e, double lr)
{
    e->lr = lr;
}

double sluice_gradient_norm(const sluice_engine *e)
{
    return e->norm;
}

uint64_t sluice_skipped_steps(const sluice_engine *e)
{
    return e->step - e->applied;
}

double sluice_current_loss_scale(const sluice_engine *e)
{
    return e->scaler.scale;
}

uint64_t sluice_step_count(const sluice_engine *e)
{
    return e->step;
}

/* *first: its first tile where the parameter was cut. */
static sluice_status find_parameter(const sluice_engine *e, const char *name, size_t bytes, int *first)
{
    int i = name != NULL ? sl_graph_find_whole(e->graph, name) : -1;
    if (i < 0) return sl_fail(SLUICE_ERR_USAGE, "the graph has no parameter \"%s\"", name != NULL ? name : "");
    uint64_t has = (uint64_t)sl_shape_elements(sl_whole_shape(e->graph, i)) * sizeof(float);
    if (has != bytes)
        return sl_fail(SLUICE_ERR_USAGE, "parameter \"%s\" has %llu bytes, %zu were given", name,
                       (unsigned long long)has, bytes);
    *first = i;
    return SLUICE_OK;
}

sluice_status sluice_get_parameter(sluice_engine *e, const char *name, float *out, size_t out_bytes)
{
    int first;
    SL_TRY(find_parameter(e, name, out_bytes, &first));
    return sl_parameter_read(e->exec, first, out);
}

sluice_status sluice_set_parameter(sluice_engine *e, const char *name, const float *data, size_t bytes)
{
    int first;
    SL_TRY(find_parameter(e, name, bytes, &first));
    int64_t count = (int64_t)(bytes / sizeof *data);
    for (int64_t done = 0; done < count;) {
        sl_tile_run run = sl_whole_run(e->graph, first, done, count - done);
        SL_TRY(sl_exec_store(e->exec, run.parameter, -1, run.element, run.count, data + done));
        done += run.count;
    }
    return SLUICE_OK;
}

sluice_status sluice_save(sluice_engine *e, const char *path)
{
    return sl_weights_save(e->exec, path, SLUICE_F32);
}

sluice_status sluice_load(sluice_engine *e, const char *path)
{
    if (e->phase == SL_ENGINE_FORWARD_DONE || e->micro != 0)
        return sl_fail(SLUICE_ERR_USAGE,
                       "sluice_load: a training step is in progress; finish it with sluice_step first");
    sluice_status st = sl_weights_load(e->exec, path);
    /* a file is checked before its first byte is used, but reading may still fail halfway */
    if (st == SLUICE_ERR_IO && e->phase == SL_ENGINE_READY) e->phase = SL_ENGINE_HALF_LOADED;
    if (st == SLUICE_OK && e->phase == SL_ENGINE_HALF_LOADED) e->phase = SL_ENGINE_READY;
    return st;
}

sluice_status sluice_checkpoint_save(sluice_engine *e, const char *folder)
{
    char path[4096];
    sl_checkpoint_meta meta;
    if (e->phase != SL_ENGINE_READY || e->micro != 0)
        return sl_fail(SLUICE_ERR_USAGE,
                       "sluice_checkpoint_save: a training step is in progress; finish it with sluice_step first");
    sl_engine_meta(e, &meta);
    return sl_checkpoint_save(e->exec, &e->slots, &meta, folder, 2, path);
}

sluice_status sluice_checkpoint_resume(sluice_engine *e, const char *folder, uint64_t *step)
{
    sl_checkpoint_meta meta = { 0 };
    SL_TRY(sl_checkpoint_load(e->exec, &e->slots, folder, &e->identity, &e->log, &meta));
    if (meta.step > 0) sl_engine_restore(e, &meta);
    *step = meta.step;
    return SLUICE_OK;
}

sluice_status sluice_hash(sluice_engine *e, char weights[65], char state[65])
{
    return sl_state_hash(e->exec, &e->slots, e->scaler.scale, weights, state);
}

void sluice_planned_peak(const sluice_engine *e, sluice_memory *out)
{
    *out = sl_totals_memory(e->plan->totals.peak);
}

void sluice_observed_peak(const sluice_engine *e, sluice_memory *out)
{
    sl_device_stats stats;
    sl_exec_stats(e->exec, &stats, NULL);
    *out = sl_totals_memory(stats.observed_peak);
}

void sluice_plan_print(const sluice_engine *e, FILE *out)
{
    sl_plan_print(e->plan, out);
}

/* ---- fitting from a data set ---- */

static sluice_status fit_step(sluice_engine *e, sluice_data *d, sl_batch_buffers *f, double *loss)
{
    size_t count = (size_t)e->plan->options.accumulation;
    sluice_batch batch = { f->arrays, f->count };
    double ignored;
    for (int m = 0; m < (int)count; m++) {
        uint64_t index = e->step * sl_engine_micro_batches(e) + sl_engine_micro_index(e, m);
        SL_TRY(d->ops->fill(d, index, f->rows, f->fields, f->count));
        SL_TRY(sluice_forward(e, &batch, &ignored));
        SL_TRY(sluice_backward(e));
    }
    SL_TRY(sluice_step(e));
    *loss = sl_engine_mean_loss(e, e->losses + count, count);
    return SLUICE_OK;
}

sluice_status sluice_fit(sluice_engine *e, sluice_data *d, uint64_t steps, double *last_loss)
{
    sl_batch_buffers f = { .count = 0 };
    if (e == NULL || d == NULL || last_loss == NULL)
        return sl_fail(SLUICE_ERR_USAGE, "sluice_fit: %s is NULL",
                       e == NULL   ? "the engine"
                       : d == NULL ? "the data"
                                   : "last_loss");
    if (e->phase == SL_ENGINE_FORWARD_DONE || e->micro != 0)
        return sl_fail(SLUICE_ERR_USAGE,
                       "sluice_fit: a training step is in progress; finish it with sluice_step first");
    sluice_status st = sl_batch_buffers_make(e->graph, &f);
    for (uint64_t s = 0; st == SLUICE_OK && s < steps; s++) st = fit_step(e, d, &f, last_loss);
    sl_batch_buffers_free(&f);
    if (st != SLUICE_OK) sl_engine_abandon_step(e);
    /* a gradient that is not finite is so on all ranks; anything else may have happened on this rank alone */
    return st == SLUICE_ERR_NUMBERS ? st : sl_ranks_failed(e->ranks, st);
}

/* api.c: the public calls on an engine that are more than running it: options, parameters, files, results. */
#include <math.h>
#include <string.h>

#include "core/alloc.h"
#include "core/quote.h"
#include "core/sized.h"
#include "ir/tile.h"
#include "train/batch.h"
#include "train/engine_parts.h"
#include "train/totals.h"

sluice_status sluice_engine_create(sluice_graph *g, const sluice_options *options, sluice_engine **out)
{
    sluice_options o;
    sl_settings settings;
    SL_NEED(g);
    SL_NEED(out);
    sluice_options_init(&o);
    if (options != NULL)
        SL_TRY(sl_sized_take("sluice_options", options, offsetof(sluice_options, gradient_clipping), &o, sizeof o));
    SL_TRY(sl_settings_from_options(&o, &settings));
    sl_engine_options e = { .training = true,
                            .world = o.world,
                            .settings = &settings,
                            .log = { o.log, o.log_user, sluice_world_rank(o.world), sluice_world_size(o.world) } };
    return sl_engine_create(g, &e, out);
}

sluice_status sluice_set_learning_rate(sluice_engine *e, double lr)
{
    SL_NEED(e);
    if (!isfinite(lr) || lr < 0)
        return sl_fail(SLUICE_ERR_USAGE, "sluice_set_learning_rate: %g must be finite and not negative", lr);
    e->lr = lr;
    return SLUICE_OK;
}

double sluice_gradient_norm(const sluice_engine *e)
{
    return e != NULL ? e->norm : (double)NAN;
}

uint64_t sluice_skipped_steps(const sluice_engine *e)
{
    return e != NULL ? e->step - e->applied : 0;
}

double sluice_current_loss_scale(const sluice_engine *e)
{
    return e != NULL ? e->scaler.scale : (double)NAN;
}

uint64_t sluice_step_count(const sluice_engine *e)
{
    return e != NULL ? e->step : 0;
}

static sluice_status check_between_steps(const sluice_engine *e, const char *call)
{
    if (e->phase != SL_ENGINE_FORWARD_DONE && e->micro == 0) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_USAGE, "%s: a training step is in progress; finish it with sluice_step first", call);
}

/* *first: its first tile where the parameter was cut. */
static sluice_status find_parameter(const sluice_engine *e, const char *name, size_t bytes, int *first)
{
    int i = sl_graph_find_whole(e->graph, name);
    if (i < 0) return sl_fail(SLUICE_ERR_USAGE, "the graph has no parameter %s", sl_quote(name).text);
    uint64_t has = (uint64_t)sl_shape_elements(sl_whole_shape(e->graph, i)) * sizeof(float);
    if (has != bytes)
        return sl_fail(SLUICE_ERR_USAGE, "parameter \"%s\" has %llu bytes, %zu were given", name,
                       (unsigned long long)has, bytes);
    *first = i;
    return SLUICE_OK;
}

/* A running statistic by its name: which it is. */
typedef struct running_name {
    int running, name;
} running_name;

static bool find_running(const sluice_graph *g, const char *name, running_name *out)
{
    for (int i = 0; i < g->running_count; i++)
        for (int k = 0; k < SL_RUNNING_NAMES; k++)
            if (strcmp(g->running[i].names[k], name) == 0) {
                *out = (running_name){ i, k };
                return true;
            }
    return false;
}

/* A count is one number here. */
static sluice_status check_running(const sluice_engine *e, const char *name, running_name r, size_t bytes)
{
    int64_t count = r.name == SL_NAME_BATCHES ? 1 : sl_exec_running_count(e->exec, r.running, r.name);
    if ((uint64_t)count * sizeof(float) == bytes) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_USAGE, "running statistic \"%s\" has %llu bytes, %zu were given", name,
                   (unsigned long long)count * sizeof(float), bytes);
}

static sluice_status get_running(sluice_engine *e, const char *name, running_name r, float *out, size_t bytes)
{
    float halves[2];
    SL_TRY(check_running(e, name, r, bytes));
    if (r.name != SL_NAME_BATCHES) {
        sl_exec_fetch_running(e->exec, false, r.running, r.name, 0, (int64_t)(bytes / sizeof *out), out);
        return SLUICE_OK;
    }
    sl_exec_fetch_running(e->exec, false, r.running, r.name, 0, 2, halves);
    *out = halves[0] + halves[1] * (float)SL_BATCHES_LOW;
    return SLUICE_OK;
}

static sluice_status set_running(sluice_engine *e, const char *name, running_name r, const float *data, size_t bytes)
{
    SL_TRY(check_running(e, name, r, bytes));
    if (r.name != SL_NAME_BATCHES) {
        sl_exec_store_running(e->exec, r.running, r.name, 0, (int64_t)(bytes / sizeof *data), data);
        return SLUICE_OK;
    }
    if (!(*data >= 0 && *data < 1e12f) || *data != floorf(*data))
        return sl_fail(SLUICE_ERR_USAGE, "running statistic \"%s\" counts micro-batches; it cannot be %g", name,
                       (double)*data);
    const uint64_t count = (uint64_t)*data;
    const float halves[2] = { (float)(count % SL_BATCHES_LOW), (float)(count / SL_BATCHES_LOW) };
    sl_exec_store_running(e->exec, r.running, r.name, 0, 2, halves);
    return SLUICE_OK;
}

sluice_status sluice_get_parameter(sluice_engine *e, const char *name, float *out, size_t out_bytes)
{
    int first;
    SL_NEED_ENGINE(e);
    SL_NEED(name);
    SL_NEED(out);
    running_name r;
    if (find_running(e->graph, name, &r)) return get_running(e, name, r, out, out_bytes);
    SL_TRY(find_parameter(e, name, out_bytes, &first));
    return sl_parameter_read(e->exec, first, out);
}

sluice_status sluice_set_parameter(sluice_engine *e, const char *name, const float *data, size_t bytes)
{
    int first;
    SL_NEED_ENGINE(e);
    SL_NEED(name);
    SL_NEED(data);
    running_name r;
    if (find_running(e->graph, name, &r)) return set_running(e, name, r, data, bytes);
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
    SL_NEED_ENGINE(e);
    SL_NEED_PATH(path);
    return sl_weights_save(e->exec, path, SLUICE_F32);
}

sluice_status sluice_load(sluice_engine *e, const char *path)
{
    SL_NEED_ENGINE(e);
    SL_NEED_PATH(path);
    SL_TRY(check_between_steps(e, "sluice_load"));
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
    SL_NEED_ENGINE(e);
    SL_NEED_PATH(folder);
    SL_TRY(sl_engine_check_whole(e, "sluice_checkpoint_save"));
    SL_TRY(check_between_steps(e, "sluice_checkpoint_save"));
    sl_engine_meta(e, &meta);
    return sl_checkpoint_save(e->exec, &e->slots, &meta, folder, 2, path);
}

sluice_status sluice_checkpoint_resume(sluice_engine *e, const char *folder, uint64_t *step)
{
    sl_checkpoint_meta meta = { 0 };
    SL_NEED_ENGINE(e);
    SL_NEED_PATH(folder);
    SL_NEED(step);
    SL_TRY(check_between_steps(e, "sluice_checkpoint_resume"));
    SL_TRY(sl_checkpoint_load(e->exec, &e->slots, folder, &e->identity, &e->log, &meta));
    if (meta.step > 0) sl_engine_restore(e, &meta);
    *step = meta.step;
    return SLUICE_OK;
}

sluice_status sluice_hash(sluice_engine *e, char weights[65], char state[65])
{
    SL_NEED_ENGINE(e);
    SL_NEED(weights);
    SL_NEED(state);
    return sl_state_hash(e->exec, &e->slots, e->scaler.scale, weights, state);
}

void sluice_planned_peak(const sluice_engine *e, sluice_memory *out)
{
    if (out != NULL) *out = e != NULL ? sl_totals_memory(e->plan->totals.peak) : (sluice_memory){ 0, 0, 0 };
}

void sluice_observed_peak(const sluice_engine *e, sluice_memory *out)
{
    sl_device_stats stats = { .observed_peak = { 0 } };
    if (e != NULL) sl_exec_stats(e->exec, &stats, NULL);
    if (out != NULL) *out = sl_totals_memory(stats.observed_peak);
}

void sluice_plan_print(const sluice_engine *e, FILE *out)
{
    if (e != NULL && out != NULL) sl_plan_print(e->plan, out);
}

/* ---- fitting from a data set ---- */

/* Buffers of a step. Where the loss counts its targets, those of all this rank's micro-batches must be known before the
 * first one is computed, so each has buffers of its own; otherwise they share one set. */
typedef struct fit_buffers {
    sl_batch_buffers *of;  /* owned */
    sluice_batch *batches; /* owned; what they hold */
    int count;
} fit_buffers;

static void free_fit(fit_buffers *f)
{
    for (int i = 0; i < f->count; i++) sl_batch_buffers_free(&f->of[i]);
    sl_free(f->of);
    sl_free(f->batches);
}

static sluice_status make_fit(const sluice_engine *e, fit_buffers *f)
{
    int count = e->counted >= 0 ? e->accumulation : 1;
    f->of = sl_alloc_array((size_t)count, sizeof *f->of, "batches");
    f->batches = sl_alloc_array((size_t)count, sizeof *f->batches, "batches");
    if (f->of == NULL || f->batches == NULL) return SLUICE_ERR_NO_MEMORY;
    for (f->count = 0; f->count < count; f->count++) {
        sl_batch_buffers *b = &f->of[f->count];
        sluice_status st = sl_batch_buffers_make(e->graph, b);
        if (st != SLUICE_OK) {
            sl_batch_buffers_free(b);
            return st;
        }
        f->batches[f->count] = sl_batch_of(b);
    }
    return SLUICE_OK;
}

static sluice_status fill_fit(const sluice_engine *e, sluice_data *d, int m, sl_batch_buffers *b)
{
    uint64_t index = e->step * sl_engine_micro_batches(e) + sl_engine_micro_index(e, m);
    return d->ops->fill(d, index, b->rows, b->fields, b->count);
}

static sluice_status fit_step(sluice_engine *e, sluice_data *d, fit_buffers *f, double *loss)
{
    double ignored;
    if (f->count == e->accumulation) {
        for (int m = 0; m < f->count; m++) SL_TRY(fill_fit(e, d, m, &f->of[m]));
        return sluice_train_step(e, f->batches, loss);
    }
    for (int m = 0; m < e->accumulation; m++) {
        SL_TRY(fill_fit(e, d, m, &f->of[0]));
        SL_TRY(sluice_forward(e, &f->batches[0], &ignored));
        SL_TRY(sluice_backward(e));
    }
    SL_TRY(sluice_step(e));
    *loss = e->loss;
    return SLUICE_OK;
}

sluice_status sluice_fit(sluice_engine *e, sluice_data *d, uint64_t steps, double *last_loss)
{
    fit_buffers f = { .count = 0 };
    SL_NEED_ENGINE(e);
    SL_NEED(d);
    SL_NEED(last_loss);
    SL_TRY(check_between_steps(e, "sluice_fit"));
    sluice_status st = make_fit(e, &f);
    for (uint64_t s = 0; st == SLUICE_OK && s < steps; s++) st = fit_step(e, d, &f, last_loss);
    free_fit(&f);
    if (st != SLUICE_OK) sl_engine_abandon_step(e);
    /* a gradient that is not finite is so on all ranks; anything else may have happened on this rank alone */
    return st == SLUICE_ERR_NUMBERS ? st : sl_ranks_failed(e->ranks, st);
}

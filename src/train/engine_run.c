/* engine_run.c: drives the segments of the plan: forward, backward, step, evaluation. */
#include <assert.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "core/half.h"
#include "train/engine_parts.h"

int sl_graph_inputs(const sluice_graph *g, int *values, int capacity)
{
    for (int i = 0; i < g->input_count && i < capacity; i++) values[i] = g->inputs[i];
    return g->input_count;
}

/* Of a batch that was checked. What it needs of sparse tables comes first. */
static sluice_status set_inputs(sluice_engine *e, const sluice_batch *batch, const char *call)
{
    SL_TRY(sl_engine_bring_rows(e, batch, call));
    for (int i = 0; i < batch->count; i++) {
        const sluice_array *a = &batch->arrays[i];
        int value = sl_graph_find_input(e->graph, a->name);
        SL_TRY(sl_exec_set_input(e->exec, value, sl_engine_input(e, value, a->data), a->bytes));
    }
    return SLUICE_OK;
}

/* Numbers of a large batch are looked at here as well: the host has nothing to do while the device is busy. */
void sl_engine_send(sluice_engine *e, const sluice_batch *batch)
{
    for (int i = 0; i < batch->count; i++) {
        const sluice_array *a = &batch->arrays[i];
        const int value = sl_graph_find_input(e->graph, a->name);
        if (value < 0 || sl_engine_input(e, value, a->data) != a->data) continue; /* rows of tables are not known yet */
        if (sl_exec_send_input(e->exec, value, a->data, a->bytes) != SLUICE_OK) return; /* the forward will tell */
        if (sl_engine_is_finite(e, value, a->data, a->bytes)) e->looked_at[value] = a->data;
    }
}

void sl_engine_forget_sent(sluice_engine *e)
{
    sl_exec_forget_sent(e->exec);
    for (int i = 0; i < e->graph->input_count; i++) e->looked_at[e->graph->inputs[i]] = NULL;
}

/* While the forward that takes them is under way: to look at all numbers of a large batch takes as long as some layers. */
static void watch_inputs(sluice_engine *e, const sluice_batch *batch)
{
    for (int i = 0; i < batch->count; i++) {
        const sluice_array *a = &batch->arrays[i];
        const int value = sl_graph_find_input(e->graph, a->name);
        if (e->looked_at[value] != a->data) sl_engine_watch_input(e, value, a->data, a->bytes);
        e->looked_at[value] = NULL;
    }
}

static sluice_status read_scalar(sluice_engine *e, int buffer, double *out)
{
    float value = 0;
    if (buffer < 0)
        return sl_fail(SLUICE_ERR_USAGE, "the graph has no loss: call sluice_set_loss before sluice_engine_create");
    SL_TRY(sl_exec_read_result(e->exec, buffer, &value, sizeof value));
    *out = (double)value;
    return SLUICE_OK;
}

sluice_status sl_engine_check_process(const sluice_engine *e, const char *call)
{
    if (e->process == getpid()) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_USAGE,
                   "%s: the engine is of process %lld, and this is one forked from it, %lld: its threads, files and "
                   "connections are not here; create the engine after the fork",
                   call, (long long)e->process, (long long)getpid());
}

sluice_status sl_engine_check_whole(const sluice_engine *e, const char *call)
{
    if (e->phase == SL_ENGINE_HALF_LOADED)
        return sl_fail(SLUICE_ERR_USAGE, "%s: loading weights failed halfway; load a whole file first", call);
    if (e->phase == SL_ENGINE_BROKEN)
        return sl_fail(SLUICE_ERR_USAGE,
                       "%s: an earlier call failed halfway; create the engine anew or load a checkpoint", call);
    return SLUICE_OK;
}

static sluice_status check_phase(const sluice_engine *e, sl_engine_phase wanted, const char *call)
{
    SL_TRY(sl_engine_check_whole(e, call));
    if (!e->plan->options.training)
        return sl_fail(SLUICE_ERR_USAGE, "%s: this engine was created for evaluation only", call);
    if (e->phase != wanted)
        return sl_fail(SLUICE_ERR_USAGE, "%s: %s", call,
                       wanted == SL_ENGINE_READY ? "call sluice_backward first" : "call sluice_forward first");
    return SLUICE_OK;
}

/* Work that fails halfway leaves the arenas in an unknown state, and the other ranks waiting for this one. */
static sluice_status check_work(sluice_engine *e, sluice_status st)
{
    if (st == SLUICE_OK) return st;
    e->phase = SL_ENGINE_BROKEN;
    return sl_ranks_failed(e->ranks, sl_exec_cause(e->exec, st));
}

static sluice_status run_segment(sluice_engine *e, sl_segment_kind segment)
{
    bool prompt = segment == SL_SEGMENT_UPDATE && e->plan->options.delayed && e->step < e->prompt;
    sluice_status st =
        prompt ? sl_exec_update_promptly(e->exec, &e->context) : sl_exec_run(e->exec, segment, &e->context);
    SL_TRY(check_work(e, st));
    if (e->segment_runs[segment]++ > 0) e->segment_seconds[segment] += sl_exec_seconds(e->exec, segment);
    return st;
}

static sluice_status check_forward(const sluice_engine *e, const char *call)
{
    SL_TRY(check_phase(e, SL_ENGINE_READY, call));
    if (e->micro >= e->accumulation)
        return sl_fail(SLUICE_ERR_USAGE, "%s: all %d micro-batches of the step are done; call sluice_step", call,
                       e->micro);
    return SLUICE_OK;
}

/* Of the steps of the micro-batch at hand, and after the last one of the update. */
static void hold_conditions(sluice_engine *e)
{
    const bool last = e->micro == e->accumulation - 1;
    if (e->micro == 0) e->speculation.now = sl_engine_may_speculate(e);
    sl_exec_hold(e->exec, (unsigned)SL_WHEN_PROMPT |
                              (e->speculation.now ? (unsigned)SL_WHEN_SPECULATING : (unsigned)SL_WHEN_NOT_SPECULATING) |
                              (last ? (unsigned)SL_WHEN_LAST_MICRO : 0));
}

/* When all is checked. */
static sluice_status run_forward(sluice_engine *e, const sluice_batch *batch, const char *call, double *loss)
{
    if (e->micro == 0) sl_engine_forget_rows(e);
    SL_TRY(set_inputs(e, batch, call));
    e->context.step = e->step + 1;
    e->context.micro = (uint32_t)sl_engine_micro_index(e, e->micro);
    e->context.seed_gradient = sl_engine_seed(e, e->context.micro);
    e->context.training = true;
    hold_conditions(e);
    SL_TRY(run_segment(e, SL_SEGMENT_FORWARD));
    watch_inputs(e, batch);
    SL_TRY(read_scalar(e, e->plan->loss_buffer, loss));
    e->losses[e->micro] = *loss;
    if (e->context.seed_gradient != 0) sl_engine_watch_loss(e, *loss); /* without a target it means nothing */
    e->phase = SL_ENGINE_FORWARD_DONE;
    return SLUICE_OK;
}

sluice_status sluice_forward(sluice_engine *e, const sluice_batch *batch, double *loss)
{
    SL_NEED_ENGINE(e);
    SL_NEED(batch);
    SL_NEED(loss);
    SL_TRY(check_forward(e, "sluice_forward"));
    SL_TRY(sl_engine_check_batch(e, batch, "sluice_forward"));
    SL_TRY(sl_engine_check_targets(e, batch, "sluice_forward"));
    return run_forward(e, batch, "sluice_forward", loss);
}

/* What the step's updates are given, which may be part of backward. */
static void set_scalars(sluice_engine *e)
{
    e->context.step = e->step + 1;
    sl_optim_scalars(e->optim, e->applied + 1, e->lr, e->momentum, &e->context);
}

/* What the micro-batch's forward left for running statistics. */
static sluice_status take_statistics(sluice_engine *e)
{
    return check_work(e, e->computes ? sl_exec_take_statistics(e->exec) : SLUICE_OK);
}

sluice_status sluice_backward(sluice_engine *e)
{
    SL_NEED_ENGINE(e);
    SL_TRY(check_phase(e, SL_ENGINE_FORWARD_DONE, "sluice_backward"));
    if (e->plan->options.early_updates || e->speculation.now) set_scalars(e);
    if (e->speculation.now) sl_engine_note_scalars(e);
    SL_TRY(run_segment(e, SL_SEGMENT_BACKWARD));
    SL_TRY(take_statistics(e)); /* while backward runs */
    e->phase = SL_ENGINE_READY;
    e->micro++;
    return SLUICE_OK;
}

/* Whether all micro-batches of the step are there. */
static sluice_status check_step(const sluice_engine *e)
{
    SL_TRY(check_phase(e, SL_ENGINE_READY, "sluice_step"));
    if (e->micro != e->accumulation)
        return sl_fail(SLUICE_ERR_USAGE,
                       "sluice_step: %d of %d micro-batches are done; run forward and backward for the rest first",
                       e->micro, e->accumulation);
    return SLUICE_OK;
}

/* What the update has made of the rows of sparse tables. */
static sluice_status keep_rows(sluice_engine *e)
{
    return check_work(e, sl_engine_keep_rows(e));
}

/* What was updated on speculation counts now: as it is, or after it was done once more with what the step turned out to
 * be. */
static sluice_status settle_speculation(sluice_engine *e, const sl_norm_result *norm)
{
    const bool right = sl_engine_judge_speculation(e, norm);
    if (!e->speculation.now) return SLUICE_OK;
    if (!right) SL_TRY(run_segment(e, SL_SEGMENT_REDO));
    sl_exec_commit(e->exec);
    return SLUICE_OK;
}

sluice_status sl_engine_step(sluice_engine *e, bool losses_finite)
{
    sl_norm_result norm;
    sluice_status st = SLUICE_OK;
    SL_TRY(check_step(e));
    set_scalars(e);
    if (e->computes && !losses_finite) e->context.loss_scale = (double)NAN;
    SL_TRY(run_segment(e, SL_SEGMENT_UPDATE));
    SL_TRY(sl_exec_read_result(e->exec, e->plan->norm_buffer, &norm, sizeof norm));
    SL_TRY(settle_speculation(e, &norm));
    e->micro = 0;
    e->weighed = false;
    /* an update with a gradient or a loss that is not finite has changed nothing */
    e->skipped = e->computes && !norm.finite;
    e->norm = e->skipped ? (double)NAN : norm.norm;
    e->used_scale = e->scaler.scale;
    if (e->skipped)
        st = sl_engine_skip_or_fail(e);
    else
        sl_loss_scale_update(&e->precision.loss_scale, &e->scaler, false);
    /* now for the next step */
    sl_engine_reset_watch(e);
    sl_engine_use_scale(e);
    if (st != SLUICE_OK) sl_exec_drop_statistics(e->exec);
    SL_TRY(st);
    if (!e->skipped) SL_TRY(keep_rows(e));
    sl_exec_keep_statistics(e->exec); /* of a step that is skipped too: its forward was good */
    e->step++;
    if (!e->skipped) e->applied++;
    ++*(e->skipped ? &e->overflowed : &e->updated);
    return SLUICE_OK;
}

/* Where updates are delayed, that of the step before is shown as at the end of any step. */
sluice_status sl_engine_pass_step(sluice_engine *e)
{
    if (e->plan->options.delayed) SL_TRY(check_work(e, sl_exec_publish(e->exec, &e->context)));
    e->weighed = false;
    e->skipped = true;
    e->norm = (double)NAN;
    e->used_scale = e->scaler.scale;
    e->step++;
    return SLUICE_OK;
}

/* All ranks learn all losses before the update: one that is not finite stops it on all of them. */
sluice_status sluice_step(sluice_engine *e)
{
    SL_NEED_ENGINE(e);
    SL_TRY(check_step(e));
    size_t count = (size_t)e->accumulation;
    double *all = e->losses + count;
    SL_TRY(sl_exec_cause(e->exec, e->ranks->comm->ops->exchange(e->ranks->comm, "losses of a step", e->losses,
                                                                count * sizeof *all, all)));
    e->loss = sl_engine_mean_loss(e, all, count);
    return sl_engine_step(e, isfinite(e->loss));
}

void sl_engine_abandon_step(sluice_engine *e)
{
    bool possible = e->phase == SL_ENGINE_READY || e->phase == SL_ENGINE_FORWARD_DONE;
    if (!possible || e->ranks->count > 1 || e->plan->options.early_updates) return;
    if (sl_exec_settle(e->exec) != SLUICE_OK) {
        e->phase = SL_ENGINE_BROKEN;
        return;
    }
    e->phase = SL_ENGINE_READY;
    e->micro = 0;
    e->weighed = false;
    sl_exec_drop_statistics(e->exec);
    sl_engine_reset_watch(e);
}

void sl_engine_set_accumulation(sluice_engine *e, int accumulation)
{
    assert(e->micro == 0 && accumulation >= 1 && accumulation <= e->plan->options.accumulation);
    e->accumulation = accumulation;
    e->micro_batches = (double)sl_engine_micro_batches(e);
}

uint64_t sl_engine_micro_batches(const sluice_engine *e)
{
    return (uint64_t)e->accumulation * (uint64_t)e->plan->options.rank_count;
}

uint64_t sl_engine_micro_index(const sluice_engine *e, int m)
{
    return (uint64_t)m * (uint64_t)e->plan->options.rank_count + (uint64_t)e->plan->options.rank;
}

sluice_status sluice_train_step(sluice_engine *e, const sluice_batch *batches, double *loss)
{
    double ignored;
    SL_NEED_ENGINE(e);
    SL_TRY(check_phase(e, SL_ENGINE_READY, "sluice_train_step"));
    SL_NEED(batches);
    SL_NEED(loss);
    if (e->micro != 0)
        return sl_fail(SLUICE_ERR_USAGE,
                       "sluice_train_step: %d of %d micro-batches of a step are done; finish it with sluice_forward, "
                       "sluice_backward and sluice_step",
                       e->micro, e->accumulation);
    size_t count = (size_t)e->accumulation;
    /* before the first one is computed: a step that has begun cannot be taken back */
    for (size_t i = 0; i < count; i++) SL_TRY(sl_engine_check_batch(e, &batches[i], "sluice_train_step"));
    SL_TRY(sl_engine_weigh_batches(e, batches, "sluice_train_step"));
    for (size_t i = 0; i < count; i++) {
        SL_TRY(run_forward(e, &batches[i], "sluice_train_step", &ignored));
        SL_TRY(sluice_backward(e));
    }
    SL_TRY(sluice_step(e));
    *loss = e->loss;
    return SLUICE_OK;
}

static sluice_status check_evaluates(const sluice_engine *e, const char *call)
{
    if (e->plan->options.evaluation) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_USAGE,
                   "%s: the engine was created without options.evaluation, so its plan has no memory for it", call);
}

/* Evaluation shares bytes with a step in progress, so it may only run between steps. */
static sluice_status run_evaluation(sluice_engine *e, const sluice_batch *batch, const char *call)
{
    SL_TRY(check_evaluates(e, call));
    SL_TRY(sl_engine_check_whole(e, call));
    if (e->phase != SL_ENGINE_READY || e->micro != 0)
        return sl_fail(SLUICE_ERR_USAGE, "%s: a training step is in progress; finish it with sluice_step first", call);
    SL_TRY(sl_engine_check_batch(e, batch, call));
    sl_engine_forget_rows(e);
    SL_TRY(set_inputs(e, batch, call));
    e->context.training = false;
    return run_segment(e, SL_SEGMENT_EVALUATE);
}

sluice_status sluice_evaluate(sluice_engine *e, const sluice_batch *batch, double *loss)
{
    double value;
    SL_NEED_ENGINE(e);
    SL_NEED(batch);
    SL_NEED(loss);
    SL_TRY(run_evaluation(e, batch, "sluice_evaluate"));
    SL_TRY(read_scalar(e, e->plan->eval_loss_buffer, &value));
    SL_TRY(sl_engine_check_loss(e, batch, "sluice_evaluate", value));
    *loss = value;
    return SLUICE_OK;
}

/* Makes floats of 16-bit numbers at the beginning of the same memory, from the last one on. */
static void widen(sluice_dtype type, int64_t count, float *values)
{
    const char *narrow = (const char *)values;
    uint16_t half;
    if (type != SLUICE_BF16 && type != SLUICE_F16) return;
    for (int64_t i = count - 1; i >= 0; i--) {
        memcpy(&half, narrow + (size_t)i * sizeof half, sizeof half);
        values[i] = type == SLUICE_BF16 ? sl_bf16_to_float(half) : sl_f16_to_float(half);
    }
}

sluice_status sluice_predict(sluice_engine *e, const sluice_batch *batch, float *out, size_t out_bytes)
{
    SL_NEED_ENGINE(e);
    SL_NEED(batch);
    SL_NEED(out);
    SL_TRY(check_evaluates(e, "sluice_predict"));
    int buffer = e->plan->output_buffer;
    if (buffer < 0) return sl_fail(SLUICE_ERR_USAGE, "sluice_predict: the graph has no output; call sluice_set_output");
    const sl_value *v = &e->graph->values[e->graph->output];
    int64_t count = sl_shape_elements(&v->shape);
    if ((uint64_t)count * sizeof *out != out_bytes)
        return sl_fail(SLUICE_ERR_USAGE, "sluice_predict: the output has %llu bytes, room for %zu was given",
                       (unsigned long long)count * sizeof *out, out_bytes);
    SL_TRY(run_evaluation(e, batch, "sluice_predict"));
    SL_TRY(sl_exec_read(e->exec, sl_plan_span(e->plan, (sl_piece){ buffer, 0, sl_value_bytes(v) }), out));
    widen(v->dtype, count, out);
    return sl_engine_check_output(e, batch, "sluice_predict", out, count);
}

sluice_status sl_engine_evaluate(sluice_engine *e, const sluice_batch *batch, double *loss, float *out)
{
    double value;
    SL_TRY(run_evaluation(e, batch, "sluice_evaluate"));
    SL_TRY(read_scalar(e, e->plan->eval_loss_buffer, &value));
    SL_TRY(sl_engine_check_loss(e, batch, "sluice_evaluate", value));
    if (out != NULL) {
        const sl_value *v = &e->graph->values[e->graph->output];
        sl_piece piece = { e->plan->output_buffer, 0, sl_value_bytes(v) };
        SL_TRY(sl_exec_read(e->exec, sl_plan_span(e->plan, piece), out));
        widen(v->dtype, sl_shape_elements(&v->shape), out);
    }
    *loss = value;
    return SLUICE_OK;
}

sluice_status sl_engine_decode(sluice_engine *e, const sluice_batch *batch, int64_t rows, int64_t wanted, float *out)
{
    const sl_value *v = &e->graph->values[e->graph->output];
    uint64_t row_bytes = sl_value_bytes(v) / (uint64_t)e->graph->row_room[SL_ROWS_WANTED];
    int64_t count = wanted * (sl_shape_elements(&v->shape) / e->graph->row_room[SL_ROWS_WANTED]);
    e->context.rows[SL_ROWS_GIVEN] = rows;
    e->context.rows[SL_ROWS_WANTED] = wanted > 0 ? wanted : 1; /* a kernel has something to do; nobody reads it */
    sluice_status st = run_evaluation(e, batch, "generation");
    memset(e->context.rows, 0, sizeof e->context.rows);
    if (st != SLUICE_OK || wanted == 0) return st;
    sl_piece piece = { e->plan->output_buffer, 0, (uint64_t)wanted * row_bytes };
    SL_TRY(sl_exec_read(e->exec, sl_plan_span(e->plan, piece), out));
    widen(v->dtype, count, out);
    return sl_engine_check_output(e, batch, "generation", out, count);
}

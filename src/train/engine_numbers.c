/* engine_numbers.c: what becomes of a step whose numbers are not finite, and what the reason was.
 *
 * The norm is the same on all ranks, so all of them come here at the same step. A step is skipped where the precision
 * says so: in fp16 while the loss scale can still fall, in bf16 where the losses are finite. Otherwise it fails, and
 * all ranks tell each other what they found, so that they give one message: the first array that was bad before
 * anything was computed, else the gradient that turned out so. Nothing here runs in a step that is fine, but for a look
 * at the inputs as they come in. */
#include <math.h>
#include <string.h>

#include "core/bytes.h"
#include "core/half.h"
#include "core/thread.h"
#include "ir/tile.h"
#include "train/engine.h"

/* Weights looked at in one go; on the stack. */
#define CHUNK 2048

/* ---- looking ---- */

/* Numbers that a task looks at. */
#define LOOK (1 << 18)

typedef struct look {
    const float *x;
    int64_t count;
    _Atomic bool bad;
} look;

/* An exponent of all ones carries into the top bit: a sum that compilers make with vectors, unlike a comparison. */
static bool all_finite(const float *x, int64_t count)
{
    uint32_t seen = 0;
    int64_t i = 0;
    for (; i + 16 <= count; i += 16)
        for (int k = 0; k < 16; k++) seen |= (sl_float_bits(x[i + k]) & 0x7f800000u) + 0x00800000u;
    for (; i < count; i++) seen |= (sl_float_bits(x[i]) & 0x7f800000u) + 0x00800000u;
    return (seen & 0x80000000u) == 0;
}

static void look_task(void *context, int64_t task, void *scratch)
{
    look *l = context;
    int64_t first = task * LOOK, left = l->count - first;
    (void)scratch;
    if (!all_finite(l->x + first, left < LOOK ? left : LOOK)) l->bad = true;
}

/* A batch of large images is looked at by all threads: one would take longer than the GPU takes for the forward. */
static bool is_finite(const sluice_engine *e, const float *x, int64_t count)
{
    look l = { .x = x, .count = count };
    if (count <= LOOK) return all_finite(x, count);
    sl_pool_run(sl_exec_pool(e->exec), look_task, &l, sl_ceil_div(count, LOOK));
    return !l.bad;
}

static int64_t first_bad(const float *x, int64_t count)
{
    int64_t i = 0;
    while (i < count && isfinite(x[i])) i++;
    return i;
}

static const char *name_of(double value)
{
    return isnan(value) ? "NaN" : "infinite";
}

bool sl_engine_is_finite(const sluice_engine *e, int value, const void *data, size_t bytes)
{
    return e->graph->values[value].dtype != SLUICE_F32 || is_finite(e, data, (int64_t)(bytes / sizeof(float)));
}

void sl_engine_watch_input(sluice_engine *e, int value, const void *data, size_t bytes)
{
    const int64_t count = (int64_t)(bytes / sizeof(float));
    const float *x = data;
    if (e->found.input >= 0 || sl_engine_is_finite(e, value, data, bytes)) return;
    e->found.input = value;
    e->found.input_micro = (int32_t)sl_engine_micro_index(e, e->micro);
    e->found.input_element = first_bad(x, count);
    e->found.input_value = x[e->found.input_element];
}

void sl_engine_watch_loss(sluice_engine *e, double loss)
{
    if (isfinite(loss) || e->found.loss_micro >= 0) return;
    e->found.loss_micro = (int32_t)sl_engine_micro_index(e, e->micro);
    e->found.loss = loss;
}

/* `what` of an evaluation is not finite: why, as far as the batch tells. */
static sluice_status fail_evaluation(const sluice_engine *e, const sluice_batch *batch, const char *call,
                                     const char *what)
{
    for (int i = 0; i < batch->count; i++) {
        const sluice_array *a = &batch->arrays[i];
        int64_t count = (int64_t)(a->bytes / sizeof(float));
        const float *x = a->data;
        if (e->graph->values[sl_graph_find_input(e->graph, a->name)].dtype != SLUICE_F32 || is_finite(e, x, count))
            continue;
        int64_t element = first_bad(x, count);
        return sl_fail(SLUICE_ERR_NUMBERS, "%s: %s: input \"%s\" is %s at element %lld; check the data", call, what,
                       a->name, name_of((double)x[element]), (long long)element);
    }
    return sl_fail(SLUICE_ERR_NUMBERS, "%s: %s, and every input is finite; check the weights", call, what);
}

sluice_status sl_engine_check_loss(const sluice_engine *e, const sluice_batch *batch, const char *call, double loss)
{
    const sluice_graph *g = e->graph;
    char what[256];
    if (isfinite(loss) || !e->computes) return SLUICE_OK;
    snprintf(what, sizeof what, "the loss (layer \"%.64s\") is %s",
             g->layers[g->nodes[g->values[g->loss].producer].layer].name, name_of(loss));
    return fail_evaluation(e, batch, call, what);
}

sluice_status sl_engine_check_output(const sluice_engine *e, const sluice_batch *batch, const char *call,
                                     const float *output, int64_t count)
{
    char what[128];
    if (!e->computes || all_finite(output, count)) return SLUICE_OK;
    int64_t element = first_bad(output, count);
    snprintf(what, sizeof what, "the output is %s at element %lld", name_of((double)output[element]),
             (long long)element);
    return fail_evaluation(e, batch, call, what);
}

void sl_engine_reset_watch(sluice_engine *e)
{
    e->found = (sl_found){ .loss_micro = -1, .input = -1, .weight = -1, .leaf_layer = -1 };
}

/* The first weight this rank owns that is not finite. What it does not own is left as it is in `chunk`: zero. */
static sluice_status find_bad_weight(sluice_engine *e)
{
    float chunk[CHUNK];
    for (int i = 0; i < e->graph->parameter_count; i++)
        for (int64_t first = 0; first < sl_parameter_elements(e->graph, i); first += CHUNK) {
            int64_t left = sl_parameter_elements(e->graph, i) - first, n = left < CHUNK ? left : CHUNK;
            memset(chunk, 0, sizeof chunk);
            SL_TRY(sl_exec_fetch(e->exec, i, -1, first, n, chunk));
            if (all_finite(chunk, n)) continue;
            e->found.weight = i;
            e->found.weight_element = first + first_bad(chunk, n);
            e->found.weight_value = chunk[e->found.weight_element - first];
            return SLUICE_OK;
        }
    return SLUICE_OK;
}

/* The first norm leaf, in graph order, that is not finite among those that this rank keeps of the gradient. */
static void find_bad_leaf(sluice_engine *e)
{
    e->found.leaf_layer = -1;
    for (int i = 0; i < e->graph->layer_count; i++) {
        const sl_layer_place *place = &e->plan->layers[i];
        if (place->gradient < 0 && place->contribution < 0) continue;
        sl_range kept = sl_plan_kept_leaves(e->plan, i);
        for (int64_t k = kept.first; k < kept.first + kept.count; k++) {
            double leaf = 0;
            sl_piece q = sl_plan_leaf_piece(e->plan, i, (sl_range){ k, 1 }, e->plan->leaves_buffer);
            if (sl_exec_read(e->exec, sl_plan_span(e->plan, q), &leaf) != SLUICE_OK || isfinite(leaf)) continue;
            e->found.leaf_layer = i;
            e->found.leaf = place->leaf_first + k;
            return;
        }
    }
}

/* ---- telling ---- */

static int owner_of(const sl_shards *s, int64_t element)
{
    for (int r = 0; r < s->rank_count; r++) {
        int64_t index = sl_shard_range_at(s, r, element);
        if (index < sl_shard_range_count(s, r) && sl_shard_range(s, r, index).first <= element) return r;
    }
    return 0;
}

/* A leaf may hold several small parameters: then the first and the last. */
static void describe_leaf(const sluice_engine *e, const sl_found *found, char *out, size_t bytes)
{
    const sluice_graph *g = e->graph;
    const sl_layer *layer = &g->layers[found->leaf_layer];
    const sl_layer_place *place = &e->plan->layers[found->leaf_layer];
    sl_range elements = { (found->leaf - place->leaf_first) * SL_CUT_ELEMENTS, SL_CUT_ELEMENTS };
    const char *first = NULL, *last = NULL;
    for (int i = 0; i < layer->parameter_count; i++) {
        int index = g->layer_parameters[layer->first_parameter + i];
        const sl_parameter *q = &g->parameters[index];
        if (sl_range_common((sl_range){ q->offset, q->count }, elements).count == 0) continue;
        last = sl_whole_name(g, index);
        if (first == NULL) first = last;
    }
    bool one = first == NULL || strcmp(first, last) == 0;
    snprintf(out, bytes, "the gradient of \"%s\"%s%s%s (layer \"%s\", rank %d) is not finite",
             first != NULL ? first : layer->name, one ? "" : " or another up to \"", one ? "" : last, one ? "" : "\"",
             layer->name, owner_of(&place->shards, elements.first));
}

/* The rank whose finding comes first by `key`, which is negative where there is none; -1: nobody has one. */
static int first_rank(const sluice_engine *e, int64_t (*key)(const sl_found *found))
{
    int best = -1;
    for (int r = 0; r < e->ranks->count; r++) {
        int64_t mine = key(&e->all_found[r]);
        if (mine >= 0 && (best < 0 || mine < key(&e->all_found[best]))) best = r;
    }
    return best;
}

static int64_t input_key(const sl_found *found)
{
    return found->input >= 0 ? found->input_micro : -1;
}

static int64_t weight_key(const sl_found *found)
{
    return found->weight;
}

static int64_t leaf_key(const sl_found *found)
{
    return found->leaf_layer >= 0 ? found->leaf : -1;
}

static int64_t loss_key(const sl_found *found)
{
    return found->loss_micro;
}

/* Writes what went wrong first; returns what to do about it. The order is that of causes: a bad input or weight makes
 * everything after it bad, and a gradient names its layer, which a loss does not. */
static const char *describe(sluice_engine *e, char *out, size_t bytes)
{
    const sluice_graph *g = e->graph;
    int input = first_rank(e, input_key), weight = first_rank(e, weight_key);
    int leaf = first_rank(e, leaf_key), loss = first_rank(e, loss_key);
    if (input >= 0) {
        const sl_found *found = &e->all_found[input];
        snprintf(out, bytes, "input \"%s\" of micro-batch %d (rank %d) is %s at element %lld",
                 g->values[found->input].name, found->input_micro, input, name_of(found->input_value),
                 (long long)found->input_element);
        return "check the data";
    }
    if (weight >= 0) {
        const sl_found *found = &e->all_found[weight];
        int64_t element = sl_parameter_whole_element(g, found->weight, found->weight_element);
        snprintf(out, bytes, "weight \"%s\" (layer \"%s\", rank %d) was %s before the step, at element %lld",
                 sl_whole_name(g, found->weight), g->layers[g->parameters[found->weight].layer].name, weight,
                 name_of(found->weight_value), (long long)element);
        return "load other weights, or resume from an earlier checkpoint";
    }
    if (leaf >= 0) {
        describe_leaf(e, &e->all_found[leaf], out, bytes);
    } else if (loss >= 0) {
        const sl_found *found = &e->all_found[loss];
        int producer = g->values[g->loss].producer;
        snprintf(out, bytes, "the loss of micro-batch %d (layer \"%s\", rank %d) is %s", found->loss_micro,
                 producer >= 0 ? g->layers[g->nodes[producer].layer].name : "", loss, name_of(found->loss));
    } else {
        snprintf(out, bytes, "the gradient is not finite");
    }
    return "lower the learning rate or gradient_clipping, or check the data";
}

sluice_status sl_engine_fail_numbers(sluice_engine *e, const char *why)
{
    char cause[512], losses[256] = ""; /* losses: "; the loss was not finite on rank 0, 2" */
    size_t used = 0;
    bool changed = e->plan->options.early_updates; /* what weights were before the step cannot be told */
    sluice_status st = changed ? SLUICE_OK : find_bad_weight(e);
    if (st != SLUICE_OK) return sl_ranks_failed(e->ranks, st);
    if (e->micro == 0) find_bad_leaf(e); /* the update has run: there are leaves */
    SL_TRY(
        e->ranks->comm->ops->exchange(e->ranks->comm, "what is not finite", &e->found, sizeof e->found, e->all_found));
    const char *advice = describe(e, cause, sizeof cause);
    for (int r = 0; r < e->ranks->count; r++)
        if (e->all_found[r].loss_micro >= 0 && used + 1 < sizeof losses)
            used += (size_t)snprintf(losses + used, sizeof losses - used, "%s%d",
                                     used == 0 ? "; the loss was not finite on rank " : ", ", r);
    return sl_fail(SLUICE_ERR_NUMBERS, "step %llu: %s%s%s; %s. To go on, %s%s", (unsigned long long)(e->step + 1),
                   cause, losses, why,
                   changed ? "some weights were already updated in this step" : "the weights are unchanged",
                   changed ? "resume from the newest checkpoint and " : "", advice);
}

/* ---- skipping a step ---- */

static sluice_status skip_in_fp16(sluice_engine *e)
{
    double before = e->scaler.scale;
    char why[128];
    if (!sl_loss_scale_update(&e->precision.loss_scale, &e->scaler, true)) {
        snprintf(why, sizeof why, "; the loss scale is at its minimum, %g", before);
        return sl_engine_fail_numbers(e, why);
    }
    if (e->ranks->rank != 0) return SLUICE_OK;
    if (e->scaler.scale != before)
        sl_log_write(&e->log, SLUICE_LOG_NOTE,
                     "step %llu overflowed and was skipped; the loss scale falls from %g to %g",
                     (unsigned long long)(e->step + 1), before, e->scaler.scale);
    else
        sl_log_write(&e->log, SLUICE_LOG_NOTE, "step %llu overflowed and was skipped; the loss scale stays %g",
                     (unsigned long long)(e->step + 1), before);
    return SLUICE_OK;
}

/* Losses that are finite everywhere show that weights and inputs are sound: the gradient alone overflowed. */
static sluice_status skip_in_bf16(sluice_engine *e)
{
    find_bad_leaf(e);
    SL_TRY(e->ranks->comm->ops->exchange(e->ranks->comm, "losses of a step that is not finite", &e->found,
                                         sizeof e->found, e->all_found));
    if (first_rank(e, loss_key) >= 0) return sl_engine_fail_numbers(e, "");
    char cause[512];
    describe(e, cause, sizeof cause);
    if (e->ranks->rank == 0)
        sl_log_write(&e->log, SLUICE_LOG_WARNING, "step %llu was skipped: %s", (unsigned long long)(e->step + 1),
                     cause);
    return SLUICE_OK;
}

sluice_status sl_engine_skip_or_fail(sluice_engine *e)
{
    if (e->graph->precision == SLUICE_F16) return skip_in_fp16(e);
    if (e->graph->precision == SLUICE_BF16 && e->precision.check_overflow) return skip_in_bf16(e);
    return sl_engine_fail_numbers(e, "");
}

/* A fixed scale, and bf16, do the same with the next gradients; a scale that falls would have come to an end of it. A run that
 * was interrupted ends like one that was not: what counts are the steps of all its parts. */
static sluice_status fail_skipped(const sluice_engine *e)
{
    const bool fp16 = e->graph->precision == SLUICE_F16;
    char scale[96] = "";
    if (fp16) snprintf(scale, sizeof scale, " at the fixed loss scale %g (fp16.loss_scale)", e->scaler.scale);
    return sl_fail(SLUICE_ERR_NUMBERS,
                   "all %llu steps overflowed%s and were skipped: nothing was trained, and the end of the run saves "
                   "nothing. %s",
                   (unsigned long long)e->step, scale,
                   fp16 ? "Leave fp16.loss_scale out, for a scale that adapts, or give a smaller one"
                        : "Look at the data, and train in fp32 for a few steps to see what overflows");
}

sluice_status sl_engine_judge_skips(const sluice_engine *e)
{
    const bool adapts = e->graph->precision == SLUICE_F16 && e->precision.loss_scale.fixed <= 0;
    if (e->overflowed > 0 && e->applied == 0 && !adapts) return fail_skipped(e);
    if (e->overflowed > e->updated && e->ranks->rank == 0)
        sl_log_write(&e->log, SLUICE_LOG_WARNING, "%llu of %llu steps overflowed and were skipped: %s was trained%s",
                     (unsigned long long)e->overflowed, (unsigned long long)(e->overflowed + e->updated),
                     e->updated == 0 ? "nothing" : "little",
                     adapts ? "; the loss scale was still falling: train longer, or lower fp16.initial_scale_power"
                            : "");
    return SLUICE_OK;
}

/* exec.c: a running engine's parameters and optimizer state as an sl_state. The only file here that knows the runtime.
 */
#include <stdlib.h>
#include <string.h>

#include "checkpoint/checkpoint.h"
#include "checkpoint/state.h"
#include "core/alloc.h"

/* What a tensor of the state is in the plan. */
typedef struct source {
    int parameter;
    int slot; /* -1: the parameter itself */
} source;

typedef struct exec_state {
    sl_state state;
    sl_exec *x;
    sl_state_tensor *tensors; /* owned */
    source *sources;          /* owned; parallel to tensors */
} exec_state;

static sl_span span_of(const exec_state *s, int64_t tensor, uint64_t first, uint64_t count)
{
    const sl_plan *plan = sl_exec_plan(s->x);
    source from = s->sources[tensor];
    sl_span span = from.slot < 0 ? sl_plan_parameter_span(plan, from.parameter)
                                 : sl_plan_state_span(plan, from.parameter, from.slot);
    return (sl_span){ span.tier, span.offset + first * sizeof(float), count * sizeof(float) };
}

static sluice_status read_tensor(void *user, int64_t tensor, uint64_t first, uint64_t count, float *out)
{
    exec_state *s = user;
    return sl_exec_read(s->x, span_of(s, tensor, first, count), out);
}

static sluice_status write_tensor(void *user, int64_t tensor, uint64_t first, uint64_t count, const float *data)
{
    exec_state *s = user;
    source to = s->sources[tensor];
    if (to.slot < 0) return sl_exec_write_parameter(s->x, to.parameter, (int64_t)first, (int64_t)count, data);
    return sl_exec_write(s->x, span_of(s, tensor, first, count), data);
}

static void add_tensor(exec_state *s, const sluice_graph *g, int parameter, int slot, const char *kind)
{
    const sl_parameter *p = &g->parameters[parameter];
    int64_t i = s->state.count++;
    s->tensors[i] = (sl_state_tensor){ p->name, kind, g->values[p->value].shape, (uint64_t)p->count };
    s->sources[i] = (source){ parameter, slot };
}

static int compare_parameters(const void *a, const void *b, void *user)
{
    const sluice_graph *g = user;
    return strcmp(g->parameters[*(const int *)a].name, g->parameters[*(const int *)b].name);
}

/* Weights in byte order of names, then the state of the trainable ones: a layout that no placement can change. */
static sluice_status list_tensors(exec_state *s, const sluice_graph *g, const sl_checkpoint_slots *slots)
{
    int count = g->parameter_count;
    int *order = sl_alloc_array((size_t)count, sizeof *order, "parameter order");
    if (order == NULL) return SLUICE_ERR_NO_MEMORY;
    for (int i = 0; i < count; i++) order[i] = i;
    if (count > 0) qsort_r(order, (size_t)count, sizeof *order, compare_parameters, (void *)g);
    for (int i = 0; i < count; i++) add_tensor(s, g, order[i], -1, SL_KIND_WEIGHT);
    for (int i = 0; i < count && slots != NULL; i++)
        for (int slot = 0; slot < slots->count && g->parameters[order[i]].trainable; slot++)
            add_tensor(s, g, order[i], slot, slots->names[slot]);
    sl_free(order);
    return SLUICE_OK;
}

static void free_state(exec_state *s)
{
    sl_free(s->tensors);
    sl_free(s->sources);
}

/* slots NULL: weights alone. */
static sluice_status make_state(sl_exec *x, const sl_checkpoint_slots *slots, exec_state *s)
{
    const sluice_graph *g = sl_exec_plan(x)->graph;
    size_t most = (size_t)g->parameter_count * (size_t)(1 + (slots != NULL ? slots->count : 0));
    *s = (exec_state){ .x = x };
    s->tensors = sl_alloc_array(most, sizeof *s->tensors, "checkpoint tensors");
    s->sources = sl_alloc_array(most, sizeof *s->sources, "checkpoint tensors");
    sluice_status st = s->tensors == NULL || s->sources == NULL ? SLUICE_ERR_NO_MEMORY : list_tensors(s, g, slots);
    if (st != SLUICE_OK) {
        free_state(s);
        return st;
    }
    s->state.tensors = s->tensors;
    s->state.read = read_tensor;
    s->state.write = write_tensor;
    s->state.user = s;
    return SLUICE_OK;
}

sluice_status sl_checkpoint_save(sl_exec *x, const sl_checkpoint_slots *slots, const sl_checkpoint_meta *meta,
                                 const char *folder, int keep, char *path)
{
    exec_state s;
    SL_TRY(make_state(x, slots, &s));
    sluice_status st = sl_state_save(&s.state, meta, folder, keep, path);
    free_state(&s);
    return st;
}

sluice_status sl_checkpoint_load(sl_exec *x, const sl_checkpoint_slots *slots, const char *folder,
                                 const char *model_sha256, const sl_log *log, sl_checkpoint_meta *meta)
{
    exec_state s;
    bool found;
    SL_TRY(make_state(x, slots, &s));
    sluice_status st = sl_state_load(&s.state, folder, model_sha256, false, log, meta, &found);
    free_state(&s);
    return st;
}

sluice_status sl_checkpoint_load_weights(sl_exec *x, const char *folder, uint64_t *step)
{
    exec_state s;
    sl_checkpoint_meta meta;
    bool found = false;
    SL_TRY(make_state(x, NULL, &s));
    sluice_status st = sl_state_load(&s.state, folder, NULL, true, NULL, &meta, &found);
    free_state(&s);
    if (st == SLUICE_OK) *step = found ? meta.step : 0;
    return st;
}

sluice_status sl_weights_save(sl_exec *x, const char *path)
{
    exec_state s;
    SL_TRY(make_state(x, NULL, &s));
    sluice_status st = sl_state_weights_save(&s.state, path);
    free_state(&s);
    return st;
}

sluice_status sl_weights_load(sl_exec *x, const char *path)
{
    exec_state s;
    SL_TRY(make_state(x, NULL, &s));
    sluice_status st = sl_state_weights_load(&s.state, path);
    free_state(&s);
    return st;
}

sluice_status sl_state_hash(sl_exec *x, const sl_checkpoint_slots *slots, double loss_scale, char weights[65],
                            char state[65])
{
    exec_state s;
    SL_TRY(make_state(x, slots, &s));
    sluice_status st = sl_state_sha256(&s.state, loss_scale, weights, state);
    free_state(&s);
    return st;
}

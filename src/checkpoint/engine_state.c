/* engine_state.c: a running engine's parameters and optimizer state as an sl_state. The only file here that knows the runtime.
 * Making one may fail on one rank alone, so that each call begins with an agreement.
 *
 * Tiles of a large parameter (ir/tile.h) are tensors of their own in a checkpoint: cuts belong to the model. In weights
 * files, hashes and the API they are presented as the whole they were cut from. */
#include <stdlib.h>
#include <string.h>

#include "checkpoint/adapter_folder.h"
#include "checkpoint/carry.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/model_folder.h"
#include "checkpoint/rounds.h"
#include "checkpoint/state.h"
#include "checkpoint/wholes.h"
#include "core/alloc.h"

/* What a tensor of the state is in the plan. */
typedef struct source {
    int parameter; /* or the first tile of a whole */
    int slot;      /* -1: the parameter itself; or as sl_exec_store has it */
    int whole;     /* index into exec_state.wholes; -1: the parameter was not cut, or tiles are wanted */
    /* A running statistic: number and name of it (sl_exec_fetch_running), and no parameter. All ranks keep all of it, and
     * rank 0 owns it. */
    bool is_running;
    int running, name;
} source;

typedef struct exec_state {
    sl_state state;
    sl_exec *x;
    sl_state_tensor *tensors; /* owned */
    source *sources;          /* owned; parallel to tensors */
    sl_wholes wholes;         /* owned */
} exec_state;

/* Ownership does not depend on the slot. */
static int64_t owned_count(void *user, int64_t tensor, int rank)
{
    const exec_state *s = user;
    source of = s->sources[tensor];
    if (of.is_running) return rank == 0;
    if (of.whole >= 0) return sl_wholes_owned_count(&s->wholes, of.whole, rank);
    return sl_plan_owned_count(sl_exec_plan(s->x), of.parameter, rank);
}

static sl_range owned(void *user, int64_t tensor, int rank, int64_t index)
{
    const exec_state *s = user;
    source of = s->sources[tensor];
    if (of.is_running) return (sl_range){ 0, (int64_t)s->tensors[tensor].elements };
    if (of.whole >= 0) return sl_wholes_owned(&s->wholes, of.whole, rank, index);
    return sl_plan_owned(sl_exec_plan(s->x), of.parameter, rank, index);
}

static bool is_whole(const sl_plan *plan, int buffer)
{
    return buffer >= 0 && !plan->buffers[buffer].shard;
}

/* Whether this rank keeps all of a tensor, not its shard alone. */
static bool keeps_all(const sl_plan *plan, source of)
{
    if (of.is_running) return true;
    if (plan->tables[of.parameter].home >= 0) return false;
    const sl_layer_place *l = &plan->layers[plan->graph->parameters[of.parameter].layer];
    if (of.slot >= 0) return is_whole(plan, l->slots[of.slot]);
    if (of.slot == SL_SLOT_MASTER) return is_whole(plan, l->master);
    return is_whole(plan, l->master) || is_whole(plan, l->home) || is_whole(plan, l->working);
}

static bool wants(void *user, int64_t tensor, sl_range range)
{
    const exec_state *s = user;
    const sl_state *state = &s->state;
    if (state->rank_count == 1 || keeps_all(sl_exec_plan(s->x), s->sources[tensor])) return true;
    int64_t i = sl_state_find_owned(state, tensor, state->rank, (uint64_t)range.first);
    if (i == owned_count(user, tensor, state->rank)) return false;
    return sl_range_common(range, owned(user, tensor, state->rank, i)).count > 0;
}

/* ---- Values ---- */

typedef sluice_status (*run_fn)(sl_exec *x, int parameter, int slot, int64_t first, int64_t count, void *data);

static sluice_status fetch_run(sl_exec *x, int parameter, int slot, int64_t first, int64_t count, void *data)
{
    return sl_exec_fetch(x, parameter, slot, first, count, data);
}

static sluice_status fetch_run_of_snapshot(sl_exec *x, int parameter, int slot, int64_t first, int64_t count,
                                           void *data)
{
    return sl_exec_fetch_snapshot(x, parameter, slot, first, count, data);
}

static sluice_status store_run(sl_exec *x, int parameter, int slot, int64_t first, int64_t count, void *data)
{
    return sl_exec_store(x, parameter, slot, first, count, data);
}

static sluice_status store_run_of_bf16(sl_exec *x, int parameter, int slot, int64_t first, int64_t count, void *data)
{
    (void)slot;
    return sl_exec_store_bf16(x, parameter, first, count, data);
}

/* Goes through a range of a tensor, of `each` bytes an element, in runs that lie in one parameter each. */
static sluice_status for_each_run(exec_state *s, int64_t tensor, uint64_t first, uint64_t count, void *data,
                                  size_t each, run_fn fn)
{
    source of = s->sources[tensor];
    if (of.whole < 0) return fn(s->x, of.parameter, of.slot, (int64_t)first, (int64_t)count, data);
    for (uint64_t done = 0; done < count;) {
        sl_tile_run run =
            sl_whole_run(sl_exec_plan(s->x)->graph, of.parameter, (int64_t)(first + done), (int64_t)(count - done));
        SL_TRY(fn(s->x, run.parameter, of.slot, run.element, run.count, (char *)data + done * each));
        done += (uint64_t)run.count;
    }
    return SLUICE_OK;
}

/* False: the tensor is no running statistic. What another rank owns is left alone. */
static bool read_running(const exec_state *s, int64_t tensor, uint64_t first, uint64_t count, bool snapshot, float *out)
{
    const source of = s->sources[tensor];
    if (of.is_running && s->state.rank == 0)
        sl_exec_fetch_running(s->x, snapshot, of.running, of.name, (int64_t)first, (int64_t)count, out);
    return of.is_running;
}

static sluice_status read_tensor(void *user, int64_t tensor, uint64_t first, uint64_t count, float *out)
{
    if (read_running(user, tensor, first, count, false, out)) return SLUICE_OK;
    return for_each_run(user, tensor, first, count, out, sizeof *out, fetch_run);
}

static sluice_status read_snapshot(void *user, int64_t tensor, uint64_t first, uint64_t count, float *out)
{
    if (read_running(user, tensor, first, count, true, out)) return SLUICE_OK;
    return for_each_run(user, tensor, first, count, out, sizeof *out, fetch_run_of_snapshot);
}

static sluice_status write_tensor(void *user, int64_t tensor, uint64_t first, uint64_t count, const float *data)
{
    const exec_state *s = user;
    const source of = s->sources[tensor];
    if (of.is_running) {
        sl_exec_store_running(s->x, of.running, of.name, (int64_t)first, (int64_t)count, data);
        return SLUICE_OK;
    }
    return for_each_run(user, tensor, first, count, (void *)data, sizeof *data, store_run);
}

static sluice_status write_bf16(void *user, int64_t tensor, uint64_t first, uint64_t count, const void *data)
{
    return for_each_run(user, tensor, first, count, (void *)data, sizeof(uint16_t), store_run_of_bf16);
}

/* Of a whole, every tile. */
static bool takes_bf16(void *user, int64_t tensor)
{
    const exec_state *s = user;
    source of = s->sources[tensor];
    if (of.is_running) return false;
    int end = of.whole < 0 ? of.parameter + 1 : sl_whole_end(sl_exec_plan(s->x)->graph, of.parameter);
    for (int p = of.parameter; p < end; p++)
        if (!sl_exec_takes_bf16(s->x, p)) return false;
    return of.slot == -1;
}

/* ---- Tensors ---- */

static sluice_status add_tensor(exec_state *s, int parameter, int slot, const char *kind, bool wholes)
{
    const sluice_graph *g = sl_exec_plan(s->x)->graph;
    const sl_parameter *p = &g->parameters[parameter];
    int64_t i = s->state.count++;
    s->sources[i] = (source){ .parameter = parameter, .slot = slot, .whole = -1 };
    s->tensors[i] = (sl_state_tensor){ .name = p->name,
                                       .kind = kind,
                                       .shape = *sl_parameter_shape(g, parameter),
                                       .elements = (uint64_t)sl_parameter_elements(g, parameter),
                                       .is_adapter = p->is_adapter,
                                       .is_fresh = p->is_fresh,
                                       .trained = p->trainable };
    if (strcmp(kind, SL_KIND_WEIGHT) == 0 && (wholes || p->whole == NULL)) {
        s->tensors[i].parts = p->parts;
        s->tensors[i].part_count = p->part_count;
    }
    if (!wholes || p->whole == NULL) return SLUICE_OK;
    s->tensors[i].name = p->whole;
    s->tensors[i].shape = *sl_whole_shape(g, parameter);
    s->tensors[i].elements = (uint64_t)sl_shape_elements(&s->tensors[i].shape);
    return sl_wholes_add(&s->wholes, sl_exec_plan(s->x), parameter, &s->sources[i].whole);
}

/* Running statistics, in graph order. */
static void add_running(exec_state *s)
{
    const sluice_graph *g = sl_exec_plan(s->x)->graph;
    for (int r = 0; r < g->running_count; r++)
        for (int name = 0; name < SL_RUNNING_NAMES; name++) {
            const int64_t i = s->state.count++, count = sl_exec_running_count(s->x, r, name);
            s->sources[i] = (source){ .parameter = -1, .slot = -1, .whole = -1, .is_running = true, r, name };
            s->tensors[i] = (sl_state_tensor){ .name = g->running[r].names[name],
                                               .kind = name == SL_NAME_BATCHES ? SL_KIND_COUNTER : SL_KIND_BUFFER,
                                               .shape = { .rank = 1, .dim = { count } },
                                               .elements = (uint64_t)count };
        }
}

static int compare_parameters(const void *a, const void *b, void *user)
{
    const sluice_graph *g = user;
    return strcmp(g->parameters[*(const int *)a].name, g->parameters[*(const int *)b].name);
}

static int compare_wholes(const void *a, const void *b, void *user)
{
    return strcmp(sl_whole_name(user, *(const int *)a), sl_whole_name(user, *(const int *)b));
}

/* The parameters to list: every one, or with `wholes` the first tile of each. */
static int list_parameters(const sluice_graph *g, bool wholes, int *order)
{
    int count = 0;
    for (int p = 0; p < g->parameter_count; p = wholes ? sl_whole_end(g, p) : p + 1) order[count++] = p;
    return count;
}

/* A checkpoint holds the weights that the next step reads beside those with all updates. */
static bool lists_visible(const exec_state *s, const sl_checkpoint_slots *slots, int parameter)
{
    const sl_plan *p = sl_exec_plan(s->x);
    return slots != NULL && p->options.delayed && p->graph->parameters[parameter].trainable;
}

/* The state of a parameter. */
static sluice_status add_state(exec_state *s, const sl_checkpoint_slots *slots, int parameter, bool wholes)
{
    if (!sl_exec_plan(s->x)->graph->parameters[parameter].trainable) return SLUICE_OK;
    for (int k = 0; k < slots->count; k++) SL_TRY(add_tensor(s, parameter, k, slots->names[k], wholes));
    if (!lists_visible(s, slots, parameter)) return SLUICE_OK;
    return add_tensor(s, parameter, SL_SLOT_VISIBLE, SL_KIND_VISIBLE, wholes);
}

/* Weights in byte order of names, then running statistics, then the state of the trainable ones: a layout that no
 * placement can change. */
static sluice_status list_tensors(exec_state *s, const sl_checkpoint_slots *slots, bool wholes)
{
    const sluice_graph *g = sl_exec_plan(s->x)->graph;
    int *order = sl_alloc_array((size_t)g->parameter_count, sizeof *order, "parameter order");
    if (order == NULL) return SLUICE_ERR_NO_MEMORY;
    int count = list_parameters(g, wholes, order);
    sluice_status st = SLUICE_OK;
    if (count > 0)
        qsort_r(order, (size_t)count, sizeof *order, wholes ? compare_wholes : compare_parameters, (void *)g);
    for (int i = 0; st == SLUICE_OK && i < count; i++)
        st = add_tensor(s, order[i], lists_visible(s, slots, order[i]) ? SL_SLOT_MASTER : -1, SL_KIND_WEIGHT, wholes);
    if (st == SLUICE_OK) add_running(s);
    for (int i = 0; slots != NULL && st == SLUICE_OK && i < count; i++) st = add_state(s, slots, order[i], wholes);
    sl_free(order);
    return st;
}

static void free_state(exec_state *s)
{
    sl_free(s->tensors);
    sl_free(s->sources);
    sl_wholes_free(&s->wholes);
}

static sluice_status allocate_tensors(exec_state *s, const sl_checkpoint_slots *slots, bool wholes)
{
    const sluice_graph *g = sl_exec_plan(s->x)->graph;
    size_t most = (size_t)g->parameter_count * (size_t)(1 + (slots != NULL ? slots->count + 1 : 0)) +
                  (size_t)g->running_count * SL_RUNNING_NAMES;
    s->tensors = sl_alloc_array(most, sizeof *s->tensors, "checkpoint tensors");
    s->sources = sl_alloc_array(most, sizeof *s->sources, "checkpoint tensors");
    return s->tensors == NULL || s->sources == NULL ? SLUICE_ERR_NO_MEMORY : list_tensors(s, slots, wholes);
}

static sluice_status settle_and_list(exec_state *s, const sl_checkpoint_slots *slots, bool wholes)
{
    SL_TRY(sl_exec_settle(s->x));
    return allocate_tensors(s, slots, wholes);
}

/* slots NULL: weights alone. s stays where it is. Nothing is under way afterwards, so that any thread may read and write
 * values. */
static sluice_status make_state(sl_exec *x, const sl_checkpoint_slots *slots, bool wholes, exec_state *s)
{
    const sl_plan_options *o = &sl_exec_plan(x)->options;
    *s = (exec_state){ .x = x };
    s->state = (sl_state){ .rank = o->rank, .rank_count = o->rank_count, .comm = sl_exec_comm(x) };
    s->state.vocabulary = sl_exec_plan(x)->graph->vocabulary;
    s->state.names = sl_exec_plan(x)->graph->file_names;
    s->state.pool = sl_exec_pool(x);
    s->state.progress = sl_exec_progress(x);
    s->state.stop = o->stop;
    sl_wholes_init(&s->wholes);
    sluice_status st = sl_agree(s->state.comm, "checkpoint tensors", settle_and_list(s, slots, wholes));
    if (st != SLUICE_OK) {
        free_state(s);
        return st;
    }
    s->state.tensors = s->tensors;
    s->state.owned_count = owned_count;
    s->state.owned = owned;
    s->state.wants = wants;
    s->state.read = read_tensor;
    s->state.write = write_tensor;
    s->state.takes_bf16 = takes_bf16;
    s->state.write_bf16 = write_bf16;
    s->state.user = s;
    return SLUICE_OK;
}

/* ---- Saves ---- */

struct sl_save {
    exec_state s;
    sl_saving *saving;
};

static sluice_status take_save(sl_save **out)
{
    *out = sl_alloc(sizeof **out, "checkpoint save");
    return *out != NULL ? SLUICE_OK : SLUICE_ERR_NO_MEMORY;
}

static sluice_status begin_save(sl_save *save, const sl_checkpoint_meta *meta, const char *folder, int keep,
                                bool background)
{
    sl_state *state = &save->s.state;
    if (background) {
        SL_TRY(sl_agree(state->comm, "checkpoint snapshot", sl_exec_snapshot(save->s.x)));
        state->read = read_snapshot;
    }
    return sl_state_save_begin(state, meta, folder, keep, background, &save->saving);
}

sluice_status sl_checkpoint_begin(sl_exec *x, const sl_checkpoint_slots *slots, const sl_checkpoint_meta *meta,
                                  const char *folder, int keep, bool background, sl_save **out)
{
    sl_save *save = NULL;
    sluice_status st = sl_agree(sl_exec_comm(x), "checkpoint begin", take_save(&save));
    if (st != SLUICE_OK) goto free_save;
    if ((st = make_state(x, slots, false, &save->s)) != SLUICE_OK) goto free_save;
    if ((st = begin_save(save, meta, folder, keep, background)) != SLUICE_OK) goto free_tensors;
    *out = save;
    return SLUICE_OK;
free_tensors:
    free_state(&save->s);
free_save:
    sl_free(save);
    return st;
}

bool sl_save_done(sl_save *save)
{
    return sl_saving_done(save->saving);
}

sluice_status sl_checkpoint_finish(sl_save *save, char *path)
{
    sluice_status st = sl_state_save_finish(save->saving, path);
    free_state(&save->s);
    sl_free(save);
    return st;
}

sluice_status sl_checkpoint_save(sl_exec *x, const sl_checkpoint_slots *slots, const sl_checkpoint_meta *meta,
                                 const char *folder, int keep, char *path)
{
    sl_save *save;
    SL_TRY(sl_checkpoint_begin(x, slots, meta, folder, keep, false, &save));
    return sl_checkpoint_finish(save, path);
}

/* ---- Everything else ---- */

sluice_status sl_checkpoint_load(sl_exec *x, const sl_checkpoint_slots *slots, const char *folder,
                                 const sl_identity *identity, const sl_log *log, sl_checkpoint_meta *meta)
{
    exec_state s;
    bool found;
    SL_TRY(make_state(x, slots, false, &s));
    sluice_status st = sl_state_load(&s.state, folder, identity, false, log, meta, &found);
    free_state(&s);
    return st;
}

sluice_status sl_checkpoint_load_weights(sl_exec *x, const char *folder, uint64_t *step)
{
    exec_state s;
    sl_checkpoint_meta meta;
    bool found = false;
    SL_TRY(make_state(x, NULL, false, &s));
    sluice_status st = sl_state_load(&s.state, folder, NULL, true, NULL, &meta, &found);
    free_state(&s);
    if (st == SLUICE_OK) *step = found ? meta.step : 0;
    return st;
}

sluice_status sl_weights_save(sl_exec *x, const char *path, sluice_dtype type)
{
    exec_state s;
    SL_TRY(make_state(x, NULL, true, &s));
    s.state.file_type = type;
    sluice_status st = sl_state_weights_save(&s.state, path);
    free_state(&s);
    return st;
}

sluice_status sl_folder_save(sl_exec *x, const char *path, sluice_dtype type, uint64_t shard_bytes,
                             const sl_model_files *others)
{
    exec_state s;
    SL_TRY(make_state(x, NULL, true, &s));
    s.state.file_type = type;
    s.state.file_prefix = others->prefix;
    sluice_status st = sl_state_folder_save(&s.state, path, shard_bytes, others);
    free_state(&s);
    return st;
}

sluice_status sl_adapter_save(sl_exec *x, const char *folder, const sl_adapter_config *c, const char *prefix,
                              const sl_model_files *others)
{
    exec_state s;
    SL_TRY(make_state(x, NULL, true, &s));
    s.state.file_prefix = prefix;
    sluice_status st = sl_state_adapter_save(&s.state, folder, c, others);
    free_state(&s);
    return st;
}

/* Leaves what was trained, all of which a file must hold then. */
static void keep_trained(exec_state *s)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < s->state.count; i++) {
        if (!s->tensors[i].trained) continue;
        s->sources[kept] = s->sources[i];
        s->tensors[kept] = s->tensors[i];
        s->tensors[kept].is_fresh = false;
        s->tensors[kept++].is_adapter = false;
    }
    s->state.count = kept;
}

sluice_status sl_adapter_load(sl_exec *x, const char *folder)
{
    exec_state s;
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/" SL_ADAPTER_WEIGHTS, folder) >= (int)sizeof path)
        return sl_fail(SLUICE_ERR_INPUT, "%.200s...: the path is too long", folder);
    SL_TRY(make_state(x, NULL, true, &s));
    keep_trained(&s);
    s.state.names = NULL; /* what files of whole models hold beside the weights */
    s.state.vocabulary = (sl_kept_vocabulary){ NULL, NULL };
    sluice_status st = sl_state_weights_load(&s.state, path);
    free_state(&s);
    return st;
}

sluice_status sl_weights_load(sl_exec *x, const char *path)
{
    exec_state s;
    SL_TRY(make_state(x, NULL, true, &s));
    sluice_status st = sl_state_weights_load(&s.state, path);
    free_state(&s);
    return st;
}

/* `parameter`: its first tile where it was cut. */
static int64_t find_weight(const exec_state *s, int parameter)
{
    int64_t i = 0;
    while (s->sources[i].parameter != parameter || s->sources[i].slot >= 0) i++;
    return i;
}

sluice_status sl_parameter_read(sl_exec *x, int parameter, float *out)
{
    exec_state s;
    SL_TRY(make_state(x, NULL, true, &s));
    int64_t tensor = find_weight(&s, parameter);
    sluice_status st = sl_state_read_all(&s.state, tensor, 0, s.tensors[tensor].elements, out);
    free_state(&s);
    return st;
}

sluice_status sl_state_hash(sl_exec *x, const sl_checkpoint_slots *slots, double loss_scale, char weights[65],
                            char state[65])
{
    exec_state s;
    SL_TRY(make_state(x, slots, true, &s));
    sluice_status st = sl_state_sha256(&s.state, loss_scale, weights, state);
    free_state(&s);
    return st;
}

/* ---- From one executor to another ---- */

sluice_status sl_carry_out(sl_exec *x, const sl_checkpoint_slots *slots, sl_carried **out)
{
    exec_state s;
    SL_TRY(make_state(x, slots, false, &s));
    sluice_status st = sl_state_carry_out(&s.state, out);
    free_state(&s);
    return st;
}

sluice_status sl_carry_in(sl_carried *c, sl_exec *x, const sl_checkpoint_slots *slots)
{
    exec_state s;
    SL_TRY(make_state(x, slots, false, &s));
    sluice_status st = sl_state_carry_in(c, &s.state);
    free_state(&s);
    return st;
}

sluice_status sl_carry_rate(sl_exec *x, const sl_checkpoint_slots *slots, double *bytes_per_second)
{
    exec_state s;
    SL_TRY(make_state(x, slots, false, &s));
    sluice_status st = sl_state_carry_rate(&s.state, bytes_per_second);
    free_state(&s);
    return st;
}

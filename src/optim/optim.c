/* optim.c: an optimizer becomes nodes of the graph, and every step becomes a handful of scalars.
 *
 * What an optimizer is lives in one row per kind: the update kernel it maps to, its state, its defaults. Everything
 * that depends on the step number (bias corrections, decay factors) is computed here in double and rounded once, so
 * that kernels of every backend and every instruction path work from the same floats. */
#include "optim/optim.h"

#include <assert.h>
#include <fnmatch.h>
#include <math.h>
#include <string.h>

#include "core/alloc.h"
#include "core/blocks8.h"
#include "core/bytes.h"
#include "ir/form.h"
#include "ir/tile.h"

/* Group 0 holds what no given group takes. */
#define DEFAULT_GROUP 0

typedef struct optim_group {
    double lr_scale, weight_decay;
} optim_group;

struct sl_optim {
    sl_arena arena; /* owns everything below */
    sluice_optimizer optimizer;
    double clip;
    int slots;
    optim_group groups[SL_MAX_GROUPS];
    int group_count;
    int *group_of; /* per parameter of the graph; -1 for frozen ones */
    int parameter_count;
    sl_update_rule *rules; /* per layer of the graph; segment_count 0 where nothing is trained */
};

/* ---- The kinds ---- */

typedef struct kind_row {
    const char *name;
    sl_update_kind update;
    const char *slots[SL_MAX_STATE_SLOTS]; /* PyTorch's names of the state tensors */
    bool has_momentum;                     /* the only slot exists only where momentum is not 0 */
    bool has_betas;                        /* reads beta1 and beta2 */
    bool has_amsgrad;                      /* a third slot on request */
    bool decoupled_decay;
    bool whole_parameters; /* needs norms of whole parameters: no compact states */
    int extra_bytes;       /* per element of f32, read once more by a second pass over memory; and the gradient: */
    bool reads_gradient_twice;
    sluice_optimizer defaults;
} kind_row;

/* Defaults are those of torch.optim (SGD, Adagrad, Adam, AdamW) and of deepspeed.ops (FusedLamb, FusedLion). LARS,
 * which neither has, takes its paper's momentum and trust coefficient; its decay is off like everyone's. */
#define COMMON                                                                                                         \
    .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8, .trust = 0.001, .min_trust = 0.01, .max_trust = 10.0

static const kind_row kinds[] = {
    [SLUICE_SGD] = { "SGD", SL_UPDATE_SGD, { "momentum_buffer" }, .has_momentum = true, .defaults = { COMMON } },
    [SLUICE_ADAGRAD] = { "Adagrad",
                         SL_UPDATE_ADAGRAD,
                         { "sum" },
                         .defaults = { .lr = 1e-2,
                                       .beta1 = 0.9,
                                       .beta2 = 0.999,
                                       .epsilon = 1e-10,
                                       .trust = 0.001,
                                       .min_trust = 0.01,
                                       .max_trust = 10.0 } },
    [SLUICE_ADAM] = { "Adam",
                      SL_UPDATE_ADAM,
                      { "exp_avg", "exp_avg_sq", "max_exp_avg_sq" },
                      .has_betas = true,
                      .has_amsgrad = true,
                      .defaults = { COMMON } },
    [SLUICE_ADAMW] = { "AdamW",
                       SL_UPDATE_ADAM,
                       { "exp_avg", "exp_avg_sq", "max_exp_avg_sq" },
                       .has_betas = true,
                       .has_amsgrad = true,
                       .decoupled_decay = true,
                       .defaults = { COMMON, .weight_decay = 0.01 } },
    [SLUICE_LAMB] = { "LAMB",
                      SL_UPDATE_LAMB,
                      { "exp_avg", "exp_avg_sq" },
                      .has_betas = true,
                      .whole_parameters = true,
                      .extra_bytes = 12,
                      .defaults = { COMMON } },
    [SLUICE_LARS] = { "LARS",
                      SL_UPDATE_LARS,
                      { "momentum_buffer" },
                      .has_momentum = true,
                      .whole_parameters = true,
                      .extra_bytes = 4,
                      .reads_gradient_twice = true,
                      .defaults = { COMMON, .momentum = 0.9 } },
    [SLUICE_LION] = { "Lion",
                      SL_UPDATE_LION,
                      { "exp_avg" },
                      .has_betas = true,
                      .decoupled_decay = true,
                      .defaults = { COMMON } },
};
#define KIND_COUNT ((int)(sizeof kinds / sizeof kinds[0]))

void sluice_optimizer_init(sluice_optimizer *o, sluice_optimizer_kind kind)
{
    *o = kinds[kind].defaults;
    o->size = sizeof *o;
    o->kind = kind;
}

static int kind_slots(const sluice_optimizer *o)
{
    const kind_row *k = &kinds[o->kind];
    if (k->has_momentum) return o->momentum != 0.0 ? 1 : 0;
    if (k->has_amsgrad) return o->amsgrad ? 3 : 2;
    int n = 0;
    while (n < SL_MAX_STATE_SLOTS && k->slots[n] != NULL) n++;
    return n;
}

/* ---- Checks ---- */

static sluice_status check_range(const char *kind, const char *what, double value, double low, double high)
{
    if (value >= low && value < high) return SLUICE_OK; /* false for NaN too */
    return sl_fail(SLUICE_ERR_USAGE, "optimizer %s: %s is %g; it must be in [%g, %g)", kind, what, value, low, high);
}

static sluice_status check_switches(const sluice_optimizer *o)
{
    const kind_row *k = &kinds[o->kind];
    if (o->amsgrad && !k->has_amsgrad)
        return sl_fail(SLUICE_ERR_USAGE, "optimizer %s has no amsgrad; use Adam or AdamW, or switch amsgrad off",
                       k->name);
    if (o->nesterov && !k->has_momentum)
        return sl_fail(SLUICE_ERR_USAGE, "optimizer %s has no Nesterov momentum; use SGD, or switch nesterov off",
                       k->name);
    if (o->nesterov && (o->momentum == 0.0 || o->dampening != 0.0))
        return sl_fail(SLUICE_ERR_USAGE, "optimizer %s: nesterov needs momentum above 0 and dampening 0, got %g and %g",
                       k->name, o->momentum, o->dampening);
    if (!(o->min_trust <= o->max_trust))
        return sl_fail(SLUICE_ERR_USAGE, "optimizer %s: min_trust %g is above max_trust %g", k->name, o->min_trust,
                       o->max_trust);
    return SLUICE_OK;
}

static sluice_status check_optimizer(const sluice_optimizer *o)
{
    if (o->size != sizeof *o)
        return sl_fail(SLUICE_ERR_USAGE,
                       "optimizer: size field is %zu, not %zu; fill the struct with sluice_optimizer_init", o->size,
                       sizeof *o);
    if ((int)o->kind < 0 || (int)o->kind >= KIND_COUNT)
        return sl_fail(SLUICE_ERR_USAGE, "optimizer: kind %d is unknown; kinds are 0 to %d", (int)o->kind,
                       KIND_COUNT - 1);
    const char *name = kinds[o->kind].name;
    const struct {
        const char *what;
        double value, high;
    } checks[] = {
        { "lr", o->lr, INFINITY },
        { "weight_decay", o->weight_decay, INFINITY },
        { "beta1", o->beta1, 1.0 },
        { "beta2", o->beta2, 1.0 },
        { "epsilon", o->epsilon, INFINITY },
        { "momentum", o->momentum, INFINITY },
        { "trust", o->trust, INFINITY },
        { "min_trust", o->min_trust, INFINITY },
        { "max_trust", o->max_trust, INFINITY },
    };
    for (size_t i = 0; i < sizeof checks / sizeof checks[0]; i++)
        SL_TRY(check_range(name, checks[i].what, checks[i].value, 0.0, checks[i].high));
    SL_TRY(check_range(name, "dampening", o->dampening, -INFINITY, INFINITY));
    return check_switches(o);
}

static sluice_status check_form(const sl_optim_options *options)
{
    sl_form form = options->state_form;
    sluice_optimizer_kind kind = options->optimizer.kind;
    if (form != SL_FORM_F32 && form != SL_FORM_BF16 && form != SL_FORM_BLOCKS8)
        return sl_fail(SLUICE_ERR_USAGE, "optimizer: states have no form %d; use fp32, bf16 or compact", (int)form);
    if (form == SL_FORM_F32 || sl_optim_allows_compact(kind)) return SLUICE_OK;
    return sl_fail(
        SLUICE_ERR_USAGE,
        "optimizer %s keeps its states in fp32, not in %s: it works with norms of whole parameters; use fp32 "
        "states, or SGD, Adagrad, Adam, AdamW or Lion",
        kinds[kind].name, sl_form_name(form));
}

/* ---- Groups ---- */

/* Patterns match the names of the model: a tile is taken with its whole. */
static bool group_takes(const sl_group_options *group, const sluice_graph *g, int p)
{
    if (strcmp(group->pattern, "no_decay") == 0) return g->parameters[p].is_norm_or_bias;
    return fnmatch(group->pattern, sl_whole_name(g, p), 0) == 0;
}

static sluice_status check_group(const sl_group_options *g, int number)
{
    if (g->pattern == NULL || g->pattern[0] == '\0')
        return sl_fail(SLUICE_ERR_USAGE, "optimizer group %d has no pattern; give a name pattern or \"no_decay\"",
                       number);
    if (!(g->lr_scale >= 0.0 && g->lr_scale < INFINITY))
        return sl_fail(SLUICE_ERR_USAGE, "optimizer group \"%s\": lr scale is %g; it must be 0 or more", g->pattern,
                       g->lr_scale);
    if (!(g->weight_decay < INFINITY))
        return sl_fail(SLUICE_ERR_USAGE, "optimizer group \"%s\": weight_decay is %g", g->pattern, g->weight_decay);
    return SLUICE_OK;
}

/* Gives group `index` its numbers and every parameter it takes that no earlier group has. */
static sluice_status fill_group(sl_optim *o, const sluice_graph *g, const sl_group_options *group, int index)
{
    int taken = 0, matched = 0;
    double preset_decay = strcmp(group->pattern, "no_decay") == 0 ? 0.0 : o->optimizer.weight_decay;
    o->groups[index] = (optim_group){ group->lr_scale, group->weight_decay < 0.0 ? preset_decay : group->weight_decay };
    for (int p = 0; p < g->parameter_count; p++) {
        if (o->group_of[p] < 0 || !group_takes(group, g, p)) continue;
        matched++;
        if (o->group_of[p] != DEFAULT_GROUP) continue;
        o->group_of[p] = index;
        taken++;
    }
    if (taken > 0) return SLUICE_OK;
    if (matched > 0)
        return sl_fail(
            SLUICE_ERR_USAGE,
            "optimizer group \"%s\" is empty: earlier groups took all %d parameters it matches; put it first",
            group->pattern, matched);
    return sl_fail(
        SLUICE_ERR_USAGE,
        "optimizer group \"%s\" matches no trainable parameter; patterns match whole names, as in \"*.bias\"",
        group->pattern);
}

static sluice_status make_groups(sl_optim *o, const sluice_graph *g, const sl_optim_options *options)
{
    if (options->group_count < 0 || options->group_count >= SL_MAX_GROUPS)
        return sl_fail(SLUICE_ERR_USAGE, "optimizer: %d groups; at most %d are possible", options->group_count,
                       SL_MAX_GROUPS - 1);
    o->parameter_count = g->parameter_count;
    o->group_of = sl_arena_array(&o->arena, (size_t)g->parameter_count, sizeof *o->group_of);
    if (o->group_of == NULL) return SLUICE_ERR_NO_MEMORY;
    for (int p = 0; p < g->parameter_count; p++) o->group_of[p] = g->parameters[p].trainable ? DEFAULT_GROUP : -1;
    o->groups[DEFAULT_GROUP] = (optim_group){ 1.0, o->optimizer.weight_decay };
    o->group_count = 1 + options->group_count;
    for (int i = 0; i < options->group_count; i++) {
        SL_TRY(check_group(&options->groups[i], i + 1));
        SL_TRY(fill_group(o, g, &options->groups[i], i + 1));
    }
    return SLUICE_OK;
}

/* ---- Nodes ---- */

/* The rule of one layer: its trainable parameters in the order of their offsets. */
static sluice_status make_rule(sl_optim *o, const sluice_graph *g, const sl_layer *layer, sl_update_rule *rule)
{
    const sluice_optimizer *opt = &o->optimizer;
    sl_update_segment *segments = sl_arena_array(&o->arena, (size_t)layer->parameter_count, sizeof *segments);
    if (segments == NULL) return SLUICE_ERR_NO_MEMORY;
    int count = 0;
    for (int i = 0; i < layer->parameter_count; i++) {
        int index = g->layer_parameters[layer->first_parameter + i];
        const sl_parameter *p = &g->parameters[index];
        if (p->trainable) segments[count++] = (sl_update_segment){ p->offset, p->count, o->group_of[index] };
    }
    *rule = (sl_update_rule){ .kind = kinds[opt->kind].update,
                              .slots = o->slots,
                              .layer = layer,
                              .nesterov = opt->nesterov,
                              .amsgrad = opt->amsgrad,
                              .decoupled_decay = kinds[opt->kind].decoupled_decay,
                              .segments = segments,
                              .segment_count = count };
    return SLUICE_OK;
}

static sluice_status make_rules(sl_optim *o, const sluice_graph *g)
{
    int trained = 0;
    uint64_t first = 0;
    o->rules = sl_arena_array(&o->arena, (size_t)g->layer_count, sizeof *o->rules);
    if (o->rules == NULL) return SLUICE_ERR_NO_MEMORY;
    for (int l = 0; l < g->layer_count; l++) {
        SL_TRY(make_rule(o, g, &g->layers[l], &o->rules[l]));
        o->rules[l].first_element = first;
        first += sl_align_up((uint64_t)g->layers[l].element_count, SL_CUT_ELEMENTS);
        trained += o->rules[l].segment_count;
    }
    if (trained == 0) return sl_fail(SLUICE_ERR_USAGE, "optimizer: the graph has no trainable parameter; unfreeze one");
    return SLUICE_OK;
}

static sluice_status append(sluice_graph *g, sl_op op, int layer, const sl_update_rule *rule)
{
    sl_node node = { .op = op, .phase = SL_PHASE_UPDATE, .layer = layer, .forward_of = -1 };
    char name[128];
    if (rule != NULL && op == SL_OP_UPDATE) node.attrs.update = rule;
    snprintf(name, sizeof name, "%s%s%s", sl_ops[op].name, layer >= 0 ? " " : "",
             layer >= 0 ? g->layers[layer].name : "");
    node.name = name;
    int index = sl_graph_add_node(g, &node);
    return index < 0 ? (sluice_status)-index : SLUICE_OK;
}

/* Leaves of every layer, then the norm, then every layer's update: an update needs the norm of all. */
static sluice_status append_nodes(sl_optim *o, sluice_graph *g)
{
    for (int l = 0; l < g->layer_count; l++)
        if (o->rules[l].segment_count > 0) SL_TRY(append(g, SL_OP_NORM_LEAVES, l, NULL));
    SL_TRY(append(g, SL_OP_NORM_FINISH, -1, NULL));
    for (int l = 0; l < g->layer_count; l++)
        if (o->rules[l].segment_count > 0) SL_TRY(append(g, SL_OP_UPDATE, l, &o->rules[l]));
    return SLUICE_OK;
}

static sluice_status build(sl_optim *o, sluice_graph *g, const sl_optim_options *options)
{
    SL_TRY(make_groups(o, g, options));
    SL_TRY(make_rules(o, g));
    return append_nodes(o, g);
}

sluice_status sl_optim_create(sluice_graph *g, const sl_optim_options *options, sl_optim **out)
{
    SL_TRY(check_optimizer(&options->optimizer));
    if (!(options->clip >= 0.0 && options->clip < INFINITY))
        return sl_fail(SLUICE_ERR_USAGE, "gradient clipping is %g; it must be 0 (none) or a positive norm",
                       options->clip);
    SL_TRY(check_form(options));
    assert(g->finished && g->backward_count > 0); /* our callers differentiate first */
    sl_optim *o = sl_alloc(sizeof *o, "optimizer");
    if (o == NULL) return SLUICE_ERR_NO_MEMORY;
    sl_arena_init(&o->arena, "optimizer");
    o->optimizer = options->optimizer;
    o->clip = options->clip;
    o->slots = kind_slots(&o->optimizer);
    int node_count = g->node_count;
    sluice_status st = build(o, g, options);
    if (st != SLUICE_OK) {
        g->node_count = node_count; /* the graph is as it was */
        sl_optim_destroy(o);
        return st;
    }
    *out = o;
    return SLUICE_OK;
}

void sl_optim_destroy(sl_optim *o)
{
    if (o == NULL) return;
    sl_arena_free(&o->arena);
    sl_free(o);
}

/* ---- Questions ---- */

int sl_optim_slots(const sl_optim *o)
{
    return o->slots;
}

const char *sl_optim_slot_name(const sl_optim *o, int slot)
{
    assert(slot >= 0 && slot < o->slots);
    return kinds[o->optimizer.kind].slots[slot];
}

int sl_optim_group_count(const sl_optim *o)
{
    return o->group_count;
}

int sl_optim_group_of(const sl_optim *o, int parameter)
{
    assert(parameter >= 0 && parameter < o->parameter_count);
    return o->group_of[parameter];
}

bool sl_optim_allows_compact(sluice_optimizer_kind kind)
{
    return !kinds[kind].whole_parameters;
}

double sl_optim_bytes_per_element(const sl_optim *o, sluice_dtype precision, sluice_dtype wire, sl_form state_form)
{
    const kind_row *k = &kinds[o->optimizer.kind];
    double gradient = (double)sl_dtype_bytes(wire), slot = (double)sl_form_element_bytes(state_form);
    if (state_form == SL_FORM_BLOCKS8) slot = 1.0 + (double)SL_BLOCKS8_HEADER / SL_CUT_ELEMENTS;
    /* gradient read; the master, whole or in halves, and every slot read and written; 16-bit weights of a separate
     * master written; what a second pass moves again */
    return (k->reads_gradient_twice ? 2 : 1) * gradient + 8.0 + (precision == SLUICE_F16 ? 2.0 : 0.0) +
           2.0 * slot * o->slots + k->extra_bytes;
}

/* ---- Scalars of a step ---- */

static void fill_scalars(const sluice_optimizer *o, const optim_group *group, uint64_t t, double lr,
                         sl_group_scalars *s)
{
    double bias1 = 1.0 - pow(o->beta1, (double)t), bias2 = 1.0 - pow(o->beta2, (double)t);
    *s = (sl_group_scalars){
        .lr = (float)lr,
        .weight_decay = (float)group->weight_decay,
        .beta1 = (float)o->beta1,
        .beta2 = (float)o->beta2,
        .epsilon = (float)o->epsilon,
        .momentum = (float)o->momentum,
        .dampening = (float)o->dampening,
        .one_minus_beta1 = (float)(1.0 - o->beta1),
        .one_minus_beta2 = (float)(1.0 - o->beta2),
        .step_size = (float)(lr / bias1),
        .bias2_sqrt = (float)sqrt(bias2),
        .decay_factor = (float)(1.0 - lr * group->weight_decay),
        .bias1 = (float)bias1,
        .bias2 = (float)bias2,
        .trust = (float)o->trust,
        .trust_min = (float)o->min_trust,
        .trust_max = (float)o->max_trust,
        .first_step = t == 1,
    };
}

void sl_optim_scalars(const sl_optim *o, uint64_t t, double lr, double momentum, sl_run_context *context)
{
    sluice_optimizer now = o->optimizer;
    if (momentum >= 0.0 && kinds[now.kind].has_betas) {
        now.beta1 = momentum;
        now.beta2 = SL_CYCLE_BETA2;
    }
    context->clip = o->clip;
    context->group_count = o->group_count;
    for (int i = 0; i < o->group_count; i++)
        fill_scalars(&now, &o->groups[i], t, lr * o->groups[i].lr_scale, &context->groups[i]);
}

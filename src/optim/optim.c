/* optim.c: an optimizer becomes nodes of the graph, and every step becomes a handful of scalars.
 *
 * What an optimizer is stands in one row: the update rules it runs, by its options, the names of its state, its
 * defaults. To add one: a value of sluice_optimizer_kind, a row here, and a row in ir/update_rule.h for each new rule.
 * Everything that depends on the step number (bias corrections, decay factors) is computed here in double and rounded once, so
 * that kernels of every backend and every instruction path work from the same floats. */
#include "optim/optim.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "core/alloc.h"
#include "core/blocks8.h"
#include "core/bytes.h"
#include "core/sized.h"
#include "ir/form.h"
#include "ir/pattern.h"
#include "ir/tile.h"

/* Group 0 holds what no given group takes. */
#define DEFAULT_GROUP 0

typedef struct optim_group {
    double lr_scale, weight_decay;
    bool lazy; /* of sparse tables, whose rule is that of SparseAdam */
} optim_group;

struct sl_optim {
    sl_arena arena; /* owns everything below */
    sluice_optimizer optimizer;
    double clip;
    const struct rule_choice *choice;  /* what its options ask for */
    optim_group groups[SL_MAX_GROUPS]; /* those that were given, then lazy ones with the numbers of some of them */
    int group_count;                   /* of the given ones and the default */
    int scalar_count;                  /* of all */
    int *group_of;                     /* per parameter of the graph; -1 for frozen ones */
    int *scalars_of;                   /* likewise: the group whose scalars its update takes, which may be a lazy one */
    int parameter_count;
    sl_update_rule *rules; /* per layer of the graph; segment_count 0 where nothing is trained */
};

/* ---- The optimizers ---- */

/* Options that decide which of its rules an optimizer runs. */
typedef enum { NO_OPTION, WITH_MOMENTUM, WITH_NESTEROV, WITH_AMSGRAD, WITH_CENTERED } rule_option;

/* What a rule without decay is for a sparse table, whose rows are updated in the steps that touch them: not allowed, the
 * same bits as for a dense one, or another rule that PyTorch has too. */
typedef enum { NOT_SPARSE, SPARSE_EXACT, SPARSE_LAZY } sparse_kind;

/* A rule (ir/update_rule.h) and PyTorch's names of its state slots, which checkpoints use. */
typedef struct rule_choice {
    sl_update_kind rule;
    const char *slots[SL_MAX_STATE_SLOTS];
    bool fp32_states; /* its state must be kept in fp32, whatever the optimizer's other rules allow */
    sparse_kind sparse;
} rule_choice;

typedef struct optimizer_row {
    const char *name; /* as in the configuration's optimizer.type, and in checkpoints */
    rule_option options[2];
    rule_choice rules[4]; /* bit i of the index: options[i] is on */
    bool has_betas;       /* reads beta1 and beta2: schedules may cycle them */
    bool corrects_rate;   /* the rate is lr / (1 - beta1^t): the first moments started at zero */
    bool compact_states;  /* the state may be kept in fewer than 32 bits */
    int extra_bytes;      /* per element of f32, read once more by a second pass over memory; and the gradient: */
    bool reads_gradient_twice;
    sluice_optimizer defaults;
} optimizer_row;

/* Defaults are those of torch.optim (SGD, Adagrad, Adam, AdamW, RMSprop) and of deepspeed.ops (FusedLamb, FusedLion). LARS,
 * which neither has, takes its paper's momentum and trust coefficient; its decay is off like everyone's. */
#define COMMON .beta1 = 0.9, .trust = 0.001, .min_trust = 0.01, .max_trust = 10.0
#define USUAL  COMMON, .beta2 = 0.999, .lr = 1e-3, .epsilon = 1e-8

static const optimizer_row optimizers[] = {
    [SLUICE_SGD] = { .name = "SGD",
                     .options = { WITH_MOMENTUM, WITH_NESTEROV },
                     .rules = { [0] = { .rule = SL_UPDATE_sgd_plain, .slots = { NULL }, .sparse = SPARSE_EXACT },
                                [1] = { .rule = SL_UPDATE_sgd_momentum, .slots = { "momentum_buffer" } },
                                [3] = { .rule = SL_UPDATE_sgd_nesterov, .slots = { "momentum_buffer" } } },
                     .compact_states = true,
                     .defaults = { USUAL } },
    [SLUICE_ADAGRAD] = { .name = "Adagrad",
                         .rules = { { .rule = SL_UPDATE_adagrad, .slots = { "sum" }, .sparse = SPARSE_EXACT } },
                         .compact_states = true,
                         .defaults = { COMMON, .beta2 = 0.999, .lr = 1e-2, .epsilon = 1e-10 } },
    [SLUICE_ADAM] = { .name = "Adam",
                      .options = { WITH_AMSGRAD },
                      .rules = { { .rule = SL_UPDATE_adam_l2,
                                   .slots = { "exp_avg", "exp_avg_sq" },
                                   .sparse = SPARSE_LAZY },
                                 { .rule = SL_UPDATE_adam_l2_amsgrad,
                                   .slots = { "exp_avg", "exp_avg_sq", "max_exp_avg_sq" } } },
                      .has_betas = true,
                      .corrects_rate = true,
                      .compact_states = true,
                      .defaults = { USUAL } },
    [SLUICE_ADAMW] = { .name = "AdamW",
                       .options = { WITH_AMSGRAD },
                       .rules = { { .rule = SL_UPDATE_adam_decoupled,
                                    .slots = { "exp_avg", "exp_avg_sq" },
                                    .sparse = SPARSE_LAZY },
                                  { .rule = SL_UPDATE_adam_decoupled_amsgrad,
                                    .slots = { "exp_avg", "exp_avg_sq", "max_exp_avg_sq" } } },
                       .has_betas = true,
                       .corrects_rate = true,
                       .compact_states = true,
                       .defaults = { USUAL, .weight_decay = 0.01 } },
    [SLUICE_LAMB] = { .name = "LAMB",
                      .rules = { { .rule = SL_UPDATE_lamb, .slots = { "exp_avg", "exp_avg_sq" } } },
                      .has_betas = true,
                      .corrects_rate = true,
                      .extra_bytes = 12,
                      .defaults = { USUAL } },
    [SLUICE_LARS] = { .name = "LARS",
                      .options = { WITH_MOMENTUM, WITH_NESTEROV },
                      .rules = { [0] = { .rule = SL_UPDATE_lars_plain, .slots = { NULL } },
                                 [1] = { .rule = SL_UPDATE_lars_momentum, .slots = { "momentum_buffer" } },
                                 [3] = { .rule = SL_UPDATE_lars_nesterov, .slots = { "momentum_buffer" } } },
                      .extra_bytes = 4,
                      .reads_gradient_twice = true,
                      .defaults = { USUAL, .momentum = 0.9 } },
    [SLUICE_LION] = { .name = "Lion",
                      .rules = { { .rule = SL_UPDATE_lion, .slots = { "exp_avg" } } },
                      .has_betas = true,
                      .compact_states = true,
                      .defaults = { USUAL } },
    /* centered: the variance is a small difference of two slots, which rounding at random would drown */
    [SLUICE_RMSPROP] = { .name = "RMSprop",
                         .options = { WITH_MOMENTUM, WITH_CENTERED },
                         .rules = { [0] = { .rule = SL_UPDATE_rmsprop, .slots = { "square_avg" } },
                                    [1] = { .rule = SL_UPDATE_rmsprop_momentum,
                                            .slots = { "square_avg", "momentum_buffer" } },
                                    [2] = { .rule = SL_UPDATE_rmsprop_centered,
                                            .slots = { "square_avg", "grad_avg" },
                                            .fp32_states = true },
                                    [3] = { .rule = SL_UPDATE_rmsprop_centered_momentum,
                                            .slots = { "square_avg", "momentum_buffer", "grad_avg" },
                                            .fp32_states = true } },
                         .compact_states = true,
                         .defaults = { COMMON, .beta2 = 0.99, .lr = 1e-2, .epsilon = 1e-8 } },
};
#define OPTIMIZER_COUNT ((int)(sizeof optimizers / sizeof optimizers[0]))

void sluice_optimizer_init_sized(sluice_optimizer *o, sluice_optimizer_kind kind, size_t size)
{
    bool known = (unsigned)kind < OPTIMIZER_COUNT;
    sluice_optimizer defaults = optimizers[known ? kind : SLUICE_SGD].defaults;
    defaults.kind = kind; /* one that is not known is refused where it is used */
    sl_sized_fill(o, size, &defaults, sizeof defaults);
}

int sl_optim_count(void)
{
    return OPTIMIZER_COUNT;
}

const char *sl_optim_name(sluice_optimizer_kind kind)
{
    return optimizers[kind].name;
}

bool sl_optim_allows_compact(sluice_optimizer_kind kind)
{
    return optimizers[kind].compact_states;
}

bool sl_optim_needs_whole_parameters(sluice_optimizer_kind kind)
{
    return sl_updates[optimizers[kind].rules[0].rule].whole_parameters; /* its other rules are of the same sort */
}

static bool has_option(const optimizer_row *row, rule_option option)
{
    return row->options[0] == option || row->options[1] == option;
}

static bool is_on(const sluice_optimizer *o, rule_option option)
{
    switch (option) {
    case WITH_MOMENTUM:
        return o->momentum != 0.0;
    case WITH_NESTEROV:
        return o->nesterov;
    case WITH_AMSGRAD:
        return o->amsgrad;
    case WITH_CENTERED:
        return o->centered;
    case NO_OPTION:
        break;
    }
    return false;
}

/* The rule that the optimizer's options ask for. */
static const rule_choice *choose_rule(const sluice_optimizer *o)
{
    const optimizer_row *row = &optimizers[o->kind];
    return &row->rules[is_on(o, row->options[0]) | is_on(o, row->options[1]) << 1];
}

/* ---- Checks ---- */

static sluice_status check_range(const char *kind, const char *what, double value, double low, double high)
{
    if (value >= low && value < high) return SLUICE_OK; /* false for NaN too */
    return sl_fail(SLUICE_ERR_USAGE, "optimizer %s: %s is %g; it must be in [%g, %g)", kind, what, value, low, high);
}

static sluice_status check_switches(const sluice_optimizer *o)
{
    const optimizer_row *k = &optimizers[o->kind];
    if (o->amsgrad && !has_option(k, WITH_AMSGRAD))
        return sl_fail(SLUICE_ERR_USAGE, "optimizer %s has no amsgrad; use Adam or AdamW, or switch amsgrad off",
                       k->name);
    if (o->centered && !has_option(k, WITH_CENTERED))
        return sl_fail(SLUICE_ERR_USAGE, "optimizer %s has no centered form; use RMSprop, or switch centered off",
                       k->name);
    if (o->nesterov && !has_option(k, WITH_NESTEROV))
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
    if ((int)o->kind < 0 || (int)o->kind >= OPTIMIZER_COUNT)
        return sl_fail(SLUICE_ERR_USAGE, "optimizer: kind %d is unknown; kinds are 0 to %d", (int)o->kind,
                       OPTIMIZER_COUNT - 1);
    const char *name = sl_optim_name(o->kind);
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

sl_form sl_optim_state_form(sluice_states states)
{
    static const sl_form forms[] = {
        [SLUICE_STATES_F32] = SL_FORM_F32,
        [SLUICE_STATES_BF16] = SL_FORM_BF16,
        [SLUICE_STATES_COMPACT] = SL_FORM_BLOCKS8,
    };
    return forms[states];
}

static sluice_status check_states(const sl_optim_options *options)
{
    sluice_states states = options->states;
    sluice_optimizer_kind kind = options->optimizer.kind;
    if (states < SLUICE_STATES_F32 || states > SLUICE_STATES_COMPACT)
        return sl_fail(SLUICE_ERR_USAGE, "optimizer: states is %d, which is not a sluice_states", (int)states);
    bool by_options = choose_rule(&options->optimizer)->fp32_states;
    if (states == SLUICE_STATES_F32 || (sl_optim_allows_compact(kind) && !by_options)) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_USAGE, "optimizer %s%s keeps its states in fp32, not in %s: use fp32 states or %s",
                   sl_optim_name(kind), by_options ? ", with the options it has here," : "",
                   sl_form_name(sl_optim_state_form(states)), by_options ? "other options" : "another optimizer");
}

/* ---- Groups ---- */

/* Whether the group takes the parameters: sl_graph_match's bits. A tile is taken with its whole. */
static void match_group(const sl_group_options *group, const sluice_graph *g, uint8_t *named)
{
    if (strcmp(group->pattern, "no_decay") != 0) {
        sl_graph_match(g, group->pattern, named);
        return;
    }
    for (int p = 0; p < g->parameter_count; p++) named[p] = g->parameters[p].is_norm_or_bias ? UINT8_MAX : 0;
}

/* What is trained has one rate and one decay. */
static sluice_status check_parts(const sl_group_options *group, const sluice_graph *g, int p, uint8_t named)
{
    char reason[4096];
    if (named == UINT8_MAX || sl_graph_is_whole(g, p, named)) return SLUICE_OK;
    sl_graph_explain_part(g, p, named, reason, sizeof reason);
    return sl_fail(SLUICE_ERR_USAGE, "optimizer group \"%.100s\": %s", group->pattern, reason);
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
    o->groups[index] = (optim_group){ .lr_scale = group->lr_scale,
                                      .weight_decay = group->weight_decay < 0.0 ? preset_decay : group->weight_decay };
    uint8_t *named = sl_arena_array(&o->arena, (size_t)g->parameter_count, sizeof *named);
    if (named == NULL) return SLUICE_ERR_NO_MEMORY;
    match_group(group, g, named);
    for (int p = 0; p < g->parameter_count; p++) {
        if (o->group_of[p] < 0 || named[p] == 0) continue;
        SL_TRY(check_parts(group, g, p, named[p]));
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
    o->groups[DEFAULT_GROUP] = (optim_group){ .lr_scale = 1.0, .weight_decay = o->optimizer.weight_decay };
    o->group_count = 1 + options->group_count;
    for (int i = 0; i < options->group_count; i++) {
        SL_TRY(check_group(&options->groups[i], i + 1));
        SL_TRY(fill_group(o, g, &options->groups[i], i + 1));
    }
    return SLUICE_OK;
}

/* ---- Sparse tables ---- */

static sluice_status check_sparse(const sl_optim *o, const sl_parameter *p, const optim_group *group,
                                  sluice_states states)
{
    const char *name = sl_optim_name(o->optimizer.kind);
    if (o->choice->sparse == NOT_SPARSE)
        return sl_fail(SLUICE_ERR_USAGE,
                       "optimizer %s, with the options it has here, changes rows of the sparse table \"%.64s\" that a "
                       "step does not touch; use SGD without momentum, Adagrad, Adam or AdamW without amsgrad, or a "
                       "dense table",
                       name, p->name);
    if (group->weight_decay != 0)
        return sl_fail(SLUICE_ERR_USAGE,
                       "optimizer %s: weight_decay %g would change rows of the sparse table \"%.64s\" that a step does "
                       "not touch; set it to 0, for the tables alone with an optimizer group, or use a dense table",
                       name, group->weight_decay, p->name);
    if (states == SLUICE_STATES_F32) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_USAGE, "the sparse table \"%.64s\" keeps its state in fp32, not in %s: use fp32 states",
                   p->name, sl_form_name(sl_optim_state_form(states)));
}

/* The lazy group with the numbers of a given one; a new one where there is none yet. -1: too many. */
static int lazy_group(sl_optim *o, int given)
{
    optim_group wanted = o->groups[given];
    wanted.lazy = true;
    for (int i = o->group_count; i < o->scalar_count; i++)
        if (o->groups[i].lr_scale == wanted.lr_scale) return i;
    if (o->scalar_count == SL_MAX_GROUPS) return -1;
    o->groups[o->scalar_count] = wanted;
    return o->scalar_count++;
}

/* Decay is 0 in all groups of tables, so that lazy ones differ in their rates alone. */
static sluice_status choose_scalars(sl_optim *o, const sluice_graph *g, const sl_optim_options *options)
{
    o->scalar_count = o->group_count;
    o->scalars_of = sl_arena_array(&o->arena, (size_t)g->parameter_count, sizeof *o->scalars_of);
    if (o->scalars_of == NULL) return SLUICE_ERR_NO_MEMORY;
    for (int p = 0; p < g->parameter_count; p++) {
        int given = o->scalars_of[p] = o->group_of[p];
        if (given < 0 || !g->parameters[p].is_sparse) continue;
        SL_TRY(check_sparse(o, &g->parameters[p], &o->groups[given], options->states));
        if (o->choice->sparse != SPARSE_LAZY) continue;
        o->scalars_of[p] = lazy_group(o, given);
        if (o->scalars_of[p] < 0)
            return sl_fail(SLUICE_ERR_USAGE,
                           "optimizer: %d groups, and those of sparse tables; at most %d are possible",
                           o->group_count - 1, SL_MAX_GROUPS - 1);
    }
    return SLUICE_OK;
}

/* ---- Nodes ---- */

static sl_update_segment segment_of(const sl_optim *o, const sluice_graph *g, int parameter)
{
    const sl_parameter *p = &g->parameters[parameter];
    const sl_shape *shape = &g->values[p->value].shape;
    int64_t rows = shape->rank > 1 ? shape->dim[0] : 1;
    return (sl_update_segment){ .offset = p->offset,
                                .count = p->count,
                                .group = o->scalars_of[parameter],
                                .rows = rows,
                                .columns = p->count / rows };
}

/* The rule of one layer: its trainable parameters in the order of their offsets. */
static sluice_status make_rule(sl_optim *o, const sluice_graph *g, const sl_layer *layer, sl_update_rule *rule)
{
    sl_update_segment *segments = sl_arena_array(&o->arena, (size_t)layer->parameter_count, sizeof *segments);
    if (segments == NULL) return SLUICE_ERR_NO_MEMORY;
    int count = 0;
    for (int i = 0; i < layer->parameter_count; i++) {
        int index = g->layer_parameters[layer->first_parameter + i];
        if (g->parameters[index].trainable) segments[count++] = segment_of(o, g, index);
    }
    *rule = (sl_update_rule){ .kind = o->choice->rule, .layer = layer, .segments = segments, .segment_count = count };
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
    SL_TRY(choose_scalars(o, g, options));
    SL_TRY(make_rules(o, g));
    return append_nodes(o, g);
}

sluice_status sl_optim_create(sluice_graph *g, const sl_optim_options *options, sl_optim **out)
{
    SL_TRY(check_optimizer(&options->optimizer));
    if (!(options->clip >= 0.0 && options->clip < INFINITY))
        return sl_fail(SLUICE_ERR_USAGE, "gradient clipping is %g; it must be 0 (none) or a positive norm",
                       options->clip);
    SL_TRY(check_states(options));
    assert(g->finished && g->backward_count > 0); /* our callers differentiate first */
    sl_optim *o = sl_alloc(sizeof *o, "optimizer");
    if (o == NULL) return SLUICE_ERR_NO_MEMORY;
    sl_arena_init(&o->arena, "optimizer");
    o->optimizer = options->optimizer;
    o->clip = options->clip;
    o->choice = choose_rule(&o->optimizer);
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
    return sl_updates[o->choice->rule].slots;
}

const char *sl_optim_slot_name(const sl_optim *o, int slot)
{
    assert(slot >= 0 && slot < sl_optim_slots(o));
    return o->choice->slots[slot];
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

double sl_optim_bytes_per_element(const sl_optim *o, sluice_dtype precision, sluice_dtype wire, sl_form state_form)
{
    const optimizer_row *row = &optimizers[o->optimizer.kind];
    double gradient = (double)sl_dtype_bytes(wire), slot = (double)sl_form_element_bytes(state_form);
    if (state_form == SL_FORM_BLOCKS8) slot = 1.0 + (double)SL_BLOCKS8_HEADER / SL_CUT_ELEMENTS;
    /* gradient read; the master, whole or in halves, and every slot read and written; 16-bit weights of a separate
     * master written; what a second pass moves again */
    return (row->reads_gradient_twice ? 2 : 1) * gradient + 8.0 + (precision == SLUICE_F16 ? 2.0 : 0.0) +
           2.0 * slot * sl_optim_slots(o) + row->extra_bytes;
}

/* ---- Scalars of a step ---- */

static void fill_scalars(const sluice_optimizer *o, const optim_group *group, uint64_t t, double lr,
                         sl_group_scalars *s)
{
    double bias1 = o->uncorrected ? 1 : 1.0 - pow(o->beta1, (double)t);
    double bias2 = o->uncorrected ? 1 : 1.0 - pow(o->beta2, (double)t);
    double rate = optimizers[o->kind].corrects_rate ? lr / bias1 : lr, bias2_sqrt = sqrt(bias2);
    if (group->lazy) { /* SparseAdam adds epsilon to the root as it is, and corrects the rate for both */
        rate *= bias2_sqrt;
        bias2_sqrt = 1;
    }
    *s = (sl_group_scalars){
        .rate = (float)rate,
        .weight_decay = (float)group->weight_decay,
        .beta1 = (float)o->beta1,
        .beta2 = (float)o->beta2,
        .epsilon = (float)o->epsilon,
        .momentum = (float)o->momentum,
        .dampening = (float)o->dampening,
        .one_minus_beta1 = (float)(1.0 - o->beta1),
        .one_minus_beta2 = (float)(1.0 - o->beta2),
        .bias2_sqrt = (float)bias2_sqrt,
        .decay_factor = (float)(1.0 - lr * group->weight_decay),
        .trust = (float)o->trust,
        .trust_min = (float)o->min_trust,
        .trust_max = (float)o->max_trust,
        .first_step = t == 1,
    };
}

void sl_optim_scalars(const sl_optim *o, uint64_t t, double lr, double momentum, sl_run_context *context)
{
    sluice_optimizer now = o->optimizer;
    if (momentum >= 0.0 && optimizers[now.kind].has_betas) {
        now.beta1 = momentum;
        now.beta2 = SL_CYCLE_BETA2;
    }
    context->clip = o->clip;
    context->group_count = o->scalar_count;
    for (int i = 0; i < o->scalar_count; i++)
        fill_scalars(&now, &o->groups[i], t, lr * o->groups[i].lr_scale, &context->groups[i]);
}

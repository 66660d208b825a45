/* group.c: which recomputed layers run again together.
 *
 * A group of consecutive layers keeps what its first layer reads and nothing between its layers. In backward all of it
 * runs forward again, with what backward needs of it kept until then, and its layers' backward follows. So a larger group
 * keeps less from forward to backward and needs more room while its turn lasts. It also takes longer: what the last node
 * of a layer makes need not run again where it is kept, and must where it is between two layers of a group.
 *
 * Bounds are found for a limit of bytes: at each group's turn what is kept for groups before it, what comes back or is
 * fetched for it, all that its layers save, the largest gradients of one of them, and gradients of parameters that wait for
 * the update are together within the limit; and so is what is kept when backward begins. Of all groupings within it, the fastest counts, by the seconds that are not computed twice, less
 * those of copies to the host that take longer than the group's forward. Both are found by dynamic programming over
 * positions. A placement has a number of SL_SAVING_GROUPS: 0 is every layer alone, SL_GROUP_STEPS the least limit for which
 * there is a grouping, and between them the limit falls by equal steps.
 *
 * All of this is an estimate, made from the graph and the rates alone, so that every rank comes to the same bounds. What a
 * placement needs and how long it takes is judged on its plan, as always. */
#include <limits.h>
#include <string.h>

#include "core/alloc.h"
#include "plan/passes.h"

#define MOST_LAYERS 64 /* of a group */
#define MOST_STATES 64 /* partial groupings that are remembered for each position */
/* Of very deep models fewer, so that the work grows with the depth alone. */
#define DEEP     256
#define FEW      16
#define HALVINGS 10 /* of the range in which the least limit is sought */

/* A grouping of the positions up to some position. */
typedef struct partial {
    bool used;
    uint64_t kept; /* bytes on the device */
    double gain;   /* seconds */
    int from, from_state;
} partial;

/* A group that begins at some position, as far as a position behind it. */
typedef struct reach {
    uint64_t needs; /* bytes beside what is kept for groups before it */
    uint64_t keeps; /* bytes that stay on the device for groups behind it */
    double gain;
} reach;

typedef struct sl_grouping {
    sl_layer_load *loads;
    uint64_t *kept_from; /* position -> bytes saved by it and all behind it; one more for none */
    int most_layers, most_states;
    /* Of the placement that is asked about, by position. */
    uint64_t *weights; /* bytes of parameters that are fetched for it */
    uint64_t *trail;   /* bytes of gradients of it and all behind it that wait on the device for the update */
    partial *partials; /* most_states for each position, and one position more */
    reach *reaches;    /* most_layers */
    int *bounds;       /* position -> the position that the group before it begins at */
    uint64_t *least;   /* position -> the fewest bytes that are kept up to there */
} sl_grouping;

/* ---- what layers cost ---- */

static int root_of(const sluice_graph *g, int value)
{
    return g->values[value].storage;
}

static void add_saved(sl_grouping *x, const sl_usage *u)
{
    const sluice_graph *g = u->graph;
    for (int v = 0; v < g->value_count; v++) {
        int position = u->owner[v] < 0 || g->values[v].storage != v ? -1 : u->position[u->owner[v]];
        uint64_t bytes = sl_value_bytes(&g->values[v]);
        if (position < 0 || g->values[v].kind == SL_VALUE_STATE) continue;
        if (u->needed_backward[v] || u->boundary[v]) x->loads[position].saved += bytes;
        if (!u->boundary[v]) continue;
        x->loads[position].outputs += bytes;
        for (int i = position + 1; i <= u->last_forward[v]; i++) x->loads[i].arrives += bytes;
    }
    for (int i = u->order_count - 1; i >= 0; i--) x->kept_from[i] = x->kept_from[i + 1] + x->loads[i].saved;
}

static bool is_gradient(const sl_usage *u, int value)
{
    const sl_value *v = value < 0 ? NULL : &u->graph->values[value];
    return v != NULL && v->parameter < 0 && v->kind != SL_VALUE_INPUT && v->kind != SL_VALUE_STATE &&
           u->owner[v->storage] < 0;
}

/* `last`: of each root the last backward node that reads or writes it. */
static void find_last_uses(const sl_usage *u, int *last)
{
    const sluice_graph *g = u->graph;
    for (int n = g->forward_count; n < g->forward_count + g->backward_count; n++) {
        const sl_node *node = &g->nodes[n];
        for (int k = 0; k < node->input_count; k++)
            if (is_gradient(u, node->inputs[k])) last[root_of(g, node->inputs[k])] = n;
        for (int k = 0; k < node->output_count; k++)
            if (is_gradient(u, node->outputs[k])) last[root_of(g, node->outputs[k])] = n;
    }
}

/* Walks backward's nodes, with the gradients that live after each. `last` is used up. */
static void add_working(sl_grouping *x, const sl_usage *u, int *last, bool *lives)
{
    const sluice_graph *g = u->graph;
    uint64_t live = 0;
    find_last_uses(u, last);
    for (int n = g->forward_count; n < g->forward_count + g->backward_count; n++) {
        const sl_node *node = &g->nodes[n];
        sl_layer_load *load = &x->loads[u->position[node->layer]];
        for (int k = 0; k < node->output_count; k++) {
            int r = is_gradient(u, node->outputs[k]) ? root_of(g, node->outputs[k]) : -1;
            if (r < 0 || lives[r]) continue;
            lives[r] = true;
            live += sl_value_bytes(&g->values[r]);
        }
        if (live > load->working) load->working = live;
        for (int k = 0; k < node->input_count + node->output_count; k++) {
            int value = k < node->input_count ? node->inputs[k] : node->outputs[k - node->input_count];
            int r = is_gradient(u, value) ? root_of(g, value) : -1;
            if (r < 0 || !lives[r] || last[r] != n) continue;
            lives[r] = false;
            live -= sl_value_bytes(&g->values[r]);
        }
    }
}

static void add_seconds(sl_grouping *x, const sl_plan *p, const sl_usage *u, bool *again, bool *wanted)
{
    const sluice_graph *g = p->graph;
    for (int i = 0; i < u->order_count; i++) {
        const sl_layer *layer = &g->layers[u->order[i]];
        sl_usage_mark_again(u, i, i, again, wanted);
        for (int n = layer->first_node; n < layer->first_node + layer->node_count; n++) {
            if (sl_ops[g->nodes[n].op].view) continue;
            double seconds = sl_plan_node_seconds(p, n);
            x->loads[i].forward += seconds;
            if (!again[n]) x->loads[i].spared += seconds;
            if (u->cheap[n]) x->loads[i].cheap += seconds;
        }
        for (int n = layer->first_backward; n < layer->first_backward + layer->backward_count; n++)
            x->loads[i].backward += sl_plan_node_seconds(p, n);
    }
}

/* ---- groups within a limit ---- */

/* The placement as far as groups are concerned: positions first .. end - 1 are recomputed, and all that positions before
 * `sent` make goes to the host. */
typedef struct question {
    const sl_plan *p;
    const sl_usage *u;
    sl_grouping *x;
    int first, end, sent;
} question;

/* Gradients stay from their layer's backward to the update where that needs all of them, unless something permanent holds
 * their sum. The mean of what ranks keep: bounds are the same for all of them. */
static uint64_t waiting_gradient(const sl_plan *p, const sl_usage *u, int layer)
{
    const sl_plan_options *o = &p->options;
    bool divided = o->rank_count > 1, updated_at_once = o->early_updates && !divided;
    if (u->last_gradient_node[layer] < 0 || p->layers[layer].state != SL_TIER_DEVICE || o->accumulation > 1) return 0;
    if (updated_at_once || (divided && o->stage <= 1)) return 0;
    return sl_plan_form_bytes(p, (sl_form)p->graph->wire, layer, false) / (uint64_t)o->rank_count;
}

static void find_burdens(const sl_plan *p, const sl_usage *u)
{
    sl_grouping *x = p->grouping;
    for (int i = u->order_count - 1; i >= 0; i--) {
        int layer = u->order[i];
        bool fetched = sl_cuts_parameters(p) || p->layers[layer].parameters != SL_TIER_DEVICE;
        x->weights[i] = fetched ? sl_plan_form_bytes(p, (sl_form)p->graph->precision, layer, false) : 0;
        x->trail[i] = x->trail[i + 1] + waiting_gradient(p, u, layer);
    }
}

static int smaller(int a, int b)
{
    return a < b ? a : b;
}

/* Bytes of outputs of positions first .. end - 1 that no layer from `end` on reads, but the one before does. */
static uint64_t ended(const question *q, int first, int end)
{
    const sl_groups *ends = &q->u->forward_ends;
    uint64_t bytes = 0;
    for (int i = ends->first[end - 1]; i < ends->first[end]; i++) {
        int r = ends->items[i], owner = q->u->owner[r] < 0 ? -1 : q->u->position[q->u->owner[r]];
        if (owner >= first && owner >= q->sent && owner < end - 1 && q->u->boundary[r])
            bytes += sl_value_bytes(&q->u->graph->values[r]);
    }
    return bytes;
}

static double copy_seconds(const question *q, uint64_t bytes)
{
    return bytes == 0 ? 0 : (double)bytes / q->p->machine.link_bytes_per_second[SL_LINK_TO_HOST];
}

/* x->reaches[k]: the group of k + 1 layers from `first` on. Returns how many there are within the limit beside `kept`
 * bytes: when the group begins, with all that it holds, and when it ends, with the gradients of all its layers. */
static int find_reaches(const question *q, int first, uint64_t kept, uint64_t limit)
{
    const sl_grouping *x = q->x;
    const sl_layer_load *loads = x->loads;
    int most = smaller(x->most_layers, q->end - first);
    uint64_t inside = first <= q->sent ? loads[first].arrives : 0, working = 0, keeps = 0;
    uint64_t at_end = inside + loads[first].saved + loads[first].working + x->weights[first] + x->trail[first];
    double forward = 0;
    for (int k = 0; k < most; k++) {
        const sl_layer_load *load = &loads[first + k];
        bool leaves = first + k < q->sent;
        inside += load->saved + x->weights[first + k];
        forward += load->forward;
        if (load->working > working) working = load->working;
        uint64_t at_begin = inside + working + x->trail[first + k + 1];
        uint64_t needs = at_begin > at_end ? at_begin : at_end;
        if (kept + needs > limit) return k;
        keeps += leaves ? 0 : load->outputs;
        keeps -= ended(q, first, first + k + 1);
        double late = leaves ? copy_seconds(q, load->outputs) - forward : 0;
        x->reaches[k] = (reach){ needs, keeps, load->spared - (late > 0 ? late : 0) };
    }
    return most;
}

/* What is kept of the positions behind the recomputed ones when backward begins. */
static uint64_t kept_behind(const question *q)
{
    return q->x->kept_from[q->end];
}

/* The fewest bytes kept up to each position, and the groups that leave them. False: no grouping is within the limit. */
static bool find_least_kept(const question *q, uint64_t limit)
{
    uint64_t *least = q->x->least;
    for (int i = q->first; i <= q->end; i++) least[i] = UINT64_MAX;
    least[q->first] = 0;
    for (int i = q->first; i < q->end; i++) {
        int count = least[i] == UINT64_MAX ? 0 : find_reaches(q, i, least[i], limit);
        for (int k = 0; k < count; k++) {
            uint64_t kept = least[i] + q->x->reaches[k].keeps;
            if (kept >= least[i + k + 1]) continue;
            least[i + k + 1] = kept;
            q->x->bounds[i + k + 1] = i;
        }
    }
    return least[q->end] != UINT64_MAX && least[q->end] + kept_behind(q) <= limit;
}

/* Remembers a partial grouping where it is better than the one of about as many bytes. */
static void remember(sl_grouping *x, int position, const partial *found, uint64_t limit)
{
    double share = limit == 0 ? 0 : (double)found->kept / (double)limit;
    int slot = smaller((int)(share * x->most_states), x->most_states - 1);
    partial *there = &x->partials[position * x->most_states + slot];
    bool better = !there->used || found->gain > there->gain;
    if (better || (found->gain == there->gain && found->kept < there->kept)) *there = *found;
}

/* The fastest grouping of each position and amount of kept bytes. */
static void find_partials(const question *q, uint64_t limit)
{
    sl_grouping *x = q->x;
    int states = x->most_states;
    memset(x->partials, 0, (size_t)(q->end + 1) * (size_t)states * sizeof *x->partials);
    x->partials[q->first * states] = (partial){ .used = true };
    for (int i = q->first; i < q->end; i++) {
        uint64_t least = UINT64_MAX;
        for (int s = 0; s < states; s++) {
            const partial *from = &x->partials[i * states + s];
            if (from->used && from->kept < least) least = from->kept;
        }
        int count = least == UINT64_MAX ? 0 : find_reaches(q, i, least, limit);
        for (int s = 0; s < states; s++) {
            const partial *from = &x->partials[i * states + s];
            for (int k = 0; from->used && k < count; k++) {
                const reach *r = &x->reaches[k];
                if (from->kept + r->needs > limit) break;
                partial to = { true, from->kept + r->keeps, from->gain + r->gain, i, s };
                if (to.kept <= limit) remember(x, i + k + 1, &to, limit);
            }
        }
    }
}

/* Bounds of the fastest grouping within the limit; where what is remembered has none, those that keep least. */
static void find_fastest(const question *q, uint64_t limit)
{
    sl_grouping *x = q->x;
    int best = -1, states = x->most_states;
    uint64_t behind = kept_behind(q);
    find_partials(q, limit);
    const partial *ends = &x->partials[q->end * states];
    for (int s = 0; s < states; s++)
        if (ends[s].used && ends[s].kept + behind <= limit && (best < 0 || ends[s].gain > ends[best].gain)) best = s;
    if (best < 0) {
        find_least_kept(q, limit);
        return;
    }
    for (int i = q->end, s = best; i > q->first;) {
        const partial *here = &x->partials[i * states + s];
        x->bounds[i] = here->from;
        i = here->from;
        s = here->from_state;
    }
}

/* ---- limits ---- */

static void stand_alone(const question *q)
{
    for (int i = q->first + 1; i <= q->end; i++) q->x->bounds[i] = i - 1;
}

/* The limit that every layer alone needs. */
static uint64_t limit_alone(const question *q)
{
    uint64_t kept = 0, limit = 0;
    for (int i = q->first; i < q->end; i++) {
        find_reaches(q, i, kept, UINT64_MAX);
        if (kept + q->x->reaches[0].needs > limit) limit = kept + q->x->reaches[0].needs;
        kept += q->x->reaches[0].keeps;
    }
    return kept + kept_behind(q) > limit ? kept + kept_behind(q) : limit;
}

static void divide_by_limit(const question *q, int step)
{
    uint64_t enough = limit_alone(q), too_little = 0, alone = enough;
    for (int i = 0; i < HALVINGS; i++) {
        uint64_t middle = too_little + (enough - too_little) / 2;
        if (find_least_kept(q, middle))
            enough = middle;
        else
            too_little = middle;
    }
    find_fastest(q, alone - (alone - enough) / SL_GROUP_STEPS * (uint64_t)step);
}

/* So many groups of as many layers each as can be. */
static void divide_equally(const question *q, int groups)
{
    const int count = q->end - q->first;
    groups = smaller(groups, count);
    for (int k = 0, end = q->first; k < groups; k++) {
        int begin = end;
        end = q->first + (int)((int64_t)(k + 1) * count / groups);
        q->x->bounds[end] = begin;
    }
}

/* ---- the whole ---- */

void sl_plan_group(sl_plan *p, const sl_usage *u, const sl_candidate *c)
{
    const int first = sl_first_recomputed(u, c);
    question q = { p, u, p->grouping, first, first + c->layers[SL_SAVING_RECOMPUTE], c->layers[SL_SAVING_OFFLOAD] };
    for (int i = 0; i < u->order_count; i++) {
        sl_layer_place *place = &p->layers[u->order[i]];
        place->group_first = place->group_last = i;
    }
    if (q.end - q.first < 2) return;
    find_burdens(p, u);
    if (p->options.checkpoints > 0)
        divide_equally(&q, p->options.checkpoints);
    else if (c->layers[SL_SAVING_GROUPS] > 0)
        divide_by_limit(&q, c->layers[SL_SAVING_GROUPS]);
    else
        stand_alone(&q);
    for (int end = q.end; end > q.first; end = q.x->bounds[end])
        for (int i = q.x->bounds[end]; i < end; i++) {
            p->layers[u->order[i]].group_first = q.x->bounds[end];
            p->layers[u->order[i]].group_last = end - 1;
        }
}

static sluice_status allocate(sl_grouping *x, int positions)
{
    size_t count = (size_t)positions + 2;
    x->most_layers = positions > DEEP ? FEW : MOST_LAYERS;
    x->most_states = positions > DEEP ? FEW : MOST_STATES;
    x->loads = sl_alloc_array(count, sizeof *x->loads, "plan: loads of layers");
    x->kept_from = sl_alloc_array(count, sizeof *x->kept_from, "plan: bytes kept behind layers");
    x->weights = sl_alloc_array(count, sizeof *x->weights, "plan: fetched parameters of layers");
    x->trail = sl_alloc_array(count, sizeof *x->trail, "plan: waiting gradients of layers");
    x->partials = sl_alloc_array(count * (size_t)x->most_states, sizeof *x->partials, "plan: partial groupings");
    x->reaches = sl_alloc_array((size_t)x->most_layers, sizeof *x->reaches, "plan: groups of layers");
    x->bounds = sl_alloc_array(count, sizeof *x->bounds, "plan: bounds of groups");
    x->least = sl_alloc_array(count, sizeof *x->least, "plan: fewest bytes kept");
    bool ok = x->loads && x->kept_from && x->weights && x->trail && x->partials && x->reaches && x->bounds && x->least;
    return ok ? SLUICE_OK : SLUICE_ERR_NO_MEMORY;
}

sluice_status sl_plan_weigh_layers(sl_plan *p, const sl_usage *u)
{
    size_t values = (size_t)p->graph->value_count + 1, nodes = (size_t)p->graph->node_count + 1;
    sl_grouping *x = p->grouping = sl_alloc(sizeof *x, "plan: grouping");
    if (x == NULL) return SLUICE_ERR_NO_MEMORY;
    SL_TRY(allocate(x, u->order_count));
    int *last = sl_alloc_array(values, sizeof *last, "plan: last uses of gradients");
    bool *lives = sl_alloc_array(values, sizeof *lives, "plan: live gradients");
    bool *wanted = sl_alloc_array(values, sizeof *wanted, "plan: values wanted again");
    bool *again = sl_alloc_array(nodes, sizeof *again, "plan: recomputed nodes");
    bool room = last != NULL && lives != NULL && wanted != NULL && again != NULL;
    if (room) {
        add_saved(x, u);
        add_working(x, u, last, lives);
        add_seconds(x, p, u, again, wanted);
    }
    void *scratch[] = { last, lives, wanted, again };
    for (size_t i = 0; i < sizeof scratch / sizeof scratch[0]; i++) sl_free(scratch[i]);
    return room ? SLUICE_OK : SLUICE_ERR_NO_MEMORY;
}

const sl_layer_load *sl_plan_loads(const sl_plan *p)
{
    return p->grouping->loads;
}

void sl_grouping_destroy(sl_grouping *x)
{
    if (x == NULL) return;
    void *owned[] = { x->loads, x->kept_from, x->weights, x->trail, x->partials, x->reaches, x->bounds, x->least };
    for (size_t i = 0; i < sizeof owned / sizeof owned[0]; i++) sl_free(owned[i]);
    sl_free(x);
}

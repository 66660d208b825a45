/* passes.h: what the passes of the planner share. Not for other folders. */
#ifndef SL_PLAN_PASSES_H
#define SL_PLAN_PASSES_H

#include "core/stop.h"
#include "plan/plan.h"

/* Numbers in groups: those of group k are items[first[k] .. first[k + 1]). */
typedef struct sl_groups {
    int *first, *items;
} sl_groups;

/* Facts of the graph and of the number of levels that no placement changes, so that a schedule is made without searching.
 * Values are named by their storage root. */
typedef struct sl_usage {
    const sluice_graph *graph;
    int *order; /* layers that have nodes, in forward order */
    int order_count;
    int *position;           /* layer -> index in order; -1 for layers without nodes */
    int *uses;               /* parameter layers that layer order[i] reads: uses[use_first[i] .. use_first[i+1]) */
    int *use_first;          /* order_count + 1 entries */
    int *owner;              /* root -> layer whose forward produces it; -1: inputs, parameters, gradients */
    bool *needed_backward;   /* root -> some backward node reads it */
    bool *boundary;          /* root -> read by a forward node of another layer, the loss, or of an op that says so */
    int *last_forward;       /* root -> position in order of the last layer whose forward reads or writes it */
    bool *cheap;             /* forward node -> it costs little to run again (find_cheap) */
    uint64_t *cheap_bytes;   /* layer -> bytes that need not be kept where its cheap nodes do */
    int *follows;            /* root -> the boundary that it is a small by-product of, kept where that is; -1: none */
    int loss;                /* its root; -1: none */
    int *last_gradient_node; /* layer -> last backward node that writes one of its parameter gradients; -1: frozen */
    int *last_use_node;      /* the same, or a later backward node that reads one of its parameters */
    int *leaves_node;        /* layer -> update node that computes its norm leaves; -1: none */
    int *update_node;        /* layer -> update node that updates it; -1: none */
    int64_t elements;        /* of all parameters */
    int level_count;         /* levels are runs of positions: sl_level_at */
    sl_groups level_uses;    /* level -> parameter layers that its layers read, increasing */
    sl_groups use_levels;    /* parameter layer -> levels that read it, increasing */
    sl_groups forward_ends;  /* position -> roots whose last forward use is there, increasing */
    sl_groups backward_ends; /* backward node, from 0 -> layers whose last_gradient_node or last_use_node it is */
} sl_usage;

/* `levels`: of the options; 0 or more than there are layers: one for each. */
sluice_status sl_usage_create(const sluice_graph *g, int levels, sl_usage **out);
void sl_usage_destroy(sl_usage *u);

/* The level of the layer at a position. Consecutive positions are on the same level or on consecutive ones. */
static inline int sl_level_at(const sl_usage *u, int position)
{
    return (int)((int64_t)position * u->level_count / u->order_count);
}

/* Layers are recomputed in groups of consecutive positions, many of one layer alone. Whether a value of a group that ends
 * with position `last` is kept from forward to backward: what layers behind it read, which its forward need not make
 * again, and what an op says is kept: numbers that ranks would have to exchange once more. */
static inline bool sl_survives(const sl_usage *u, int root, int last)
{
    const int r = u->follows[root] >= 0 ? u->follows[root] : root, producer = u->graph->values[r].producer;
    if (producer >= 0 && sl_ops[u->graph->nodes[producer].op].kept) return true;
    return u->boundary[r] && (u->last_forward[r] > last || r == u->loss);
}

/* Whether a value is dropped after forward where the cheap nodes of its layer run again. */
static inline bool sl_is_cheap(const sl_usage *u, int root)
{
    const int producer = u->graph->values[root].producer;
    return producer >= 0 && producer < u->graph->forward_count && u->cheap[producer] &&
           !sl_survives(u, root, u->position[u->owner[root]]);
}

/* Of a placement, the first position whose layer is recomputed: behind the offloaded ones, as far as there are others. What
 * leaves from the first layers on has the longest way to go, and comes back last. */
static inline int sl_first_recomputed(const sl_usage *u, const sl_candidate *c)
{
    const int others = u->order_count - 1 - c->layers[SL_SAVING_RECOMPUTE], offloaded = c->layers[SL_SAVING_OFFLOAD];
    return others < 0 ? 0 : offloaded < others ? offloaded : others;
}

/* again[n] of the forward nodes that must run again so that the backward of positions first .. last, a group, finds what it
 * needs. `wanted`: scratch, one for each value, false. */
void sl_usage_mark_again(const sl_usage *u, int first, int last, bool *again, bool *wanted);

sluice_status sl_plan_partition(sl_plan *p, const sl_usage *u);
/* Whether the options cut parameters only where the optimizer of the graph takes parts of them. */
bool sl_plan_may_cut(const sluice_graph *g, const sl_plan_options *o);
const char *sl_partition_name(sluice_partition rule);
/* How a layer's part, or of GATHER_VALUE the first output of `node`, is cut where elements of the whole are in `form`. */
sl_part_cut sl_plan_cut_of(const sl_plan *p, sl_step_kind kind, int layer, int node, sl_form form);
/* Numbers the leaves that the plan's rank keeps. Part of the schedule: place plans for several ranks in turn. */
void sl_plan_keep_leaves(sl_plan *p, const sl_usage *u);
/* Leaves or nodes of a layer that a rank sends in a GATHER_NORM. */
uint64_t sl_plan_norm_units(const sl_part_cut *part, int rank);
sluice_status sl_plan_place(sl_plan *p, const sl_usage *u);
/* In place of it: what any placement needs. The plan is of no use after that. */
sluice_status sl_plan_need_of(sl_plan *p, const sl_usage *u, sl_plan_need *out);
/* In place of it: the placement that was found for another rank of the same run, and with that for all. */
sluice_status sl_plan_place_as(sl_plan *p, const sl_usage *u, const sl_candidate *found);

static inline bool sl_is_recomputed(const sl_layer_place *place)
{
    return place->activations == SL_ACT_RECOMPUTE || place->activations == SL_ACT_RECOMPUTE_OFFLOAD;
}

/* What a layer costs, by itself. */
typedef struct sl_layer_load {
    uint64_t saved;   /* bytes that its backward, or other layers, read again */
    uint64_t outputs; /* of which other layers read */
    uint64_t arrives; /* bytes that it or later layers read and layers before it have made */
    uint64_t working; /* gradients that live at once in its backward, at most */
    double forward;   /* seconds */
    double spared;    /* of which need not be spent again where its outputs are kept */
    double cheap;     /* of its cheap nodes */
    double backward;
} sl_layer_load;

/* What layers need and cost, by which recomputed ones are grouped; once, before any placement. */
sluice_status sl_plan_weigh_layers(sl_plan *p, const sl_usage *u);
/* By position, once they are weighed. */
const sl_layer_load *sl_plan_loads(const sl_plan *p);

/* Of the layer at a position: its offloaded activations stay on the device until forward of position `until` has ended, and
 * come back when backward reaches position `from`. */
typedef struct sl_transit {
    int until, from;
} sl_transit;
/* Both for a placement, so that as little as can be waits for the link: transit.c. `prefetch`: positions that they come back
 * ahead at least. */
sluice_status sl_plan_transit(const sl_plan *p, const sl_usage *u, int prefetch, sl_transit *out);

struct sl_grouping;
void sl_grouping_destroy(struct sl_grouping *x);
#define SL_GROUP_STEPS 16 /* the most of SL_SAVING_GROUPS */
/* Sets the groups in layers[] of a candidate, whose tiers are set. */
void sl_plan_group(sl_plan *p, const sl_usage *u, const sl_candidate *c);
/* Seconds of a forward or backward node by itself. */
double sl_plan_node_seconds(const sl_plan *p, int node);
/* Sets layers[] from a candidate. */
void sl_place_apply(sl_plan *p, const sl_usage *u, const sl_candidate *c);
/* Rebuild the plan for the placement in layers[]. */
sluice_status sl_plan_schedule(sl_plan *p, const sl_usage *u, int prefetch);
sluice_status sl_plan_address(sl_plan *p);
/* In a fraction of the time, for comparing candidates of deep models: offsets are legal but looser, and a peak is over
 * its budget exactly where the address pass has it over, then by no more than there. */
sluice_status sl_plan_address_roughly(sl_plan *p);
/* The address pass, but of tiers that are over their budgets with any offsets, which are packed roughly. *exact: none is. */
sluice_status sl_plan_address_within(sl_plan *p, bool *exact);
struct sl_packing;
void sl_packing_destroy(struct sl_packing *x);
/* The peaks of the address pass alone; leaves offsets undefined. */
sluice_status sl_plan_measure(sl_plan *p);
/* Peaks that no offsets can be below, in a fraction of that time. */
sluice_status sl_plan_bound(sl_plan *p);
/* Whether the address pass would keep to the budget of each tier; leaves offsets and peaks undefined. */
sluice_status sl_plan_fits(sl_plan *p, bool *fits);
sluice_status sl_plan_waits(sl_plan *p);
sluice_status sl_plan_cost(sl_plan *p);
/* Seconds, busy and exposed times of every segment, from the seconds of the steps. */
sluice_status sl_plan_clock(sl_plan *p);

/* To be called in every loop over steps, buffers or layers that a deep model makes long. */
static inline sluice_status sl_plan_poll(const sl_plan *p)
{
    return sl_stop_poll(p->options.stop, "planning");
}

/* Growing the plan's arrays; negative or a status on failure. */
int sl_plan_add_buffer(sl_plan *p, const sl_buffer *buffer);
sluice_status sl_plan_add_step(sl_plan *p, const sl_step *step, const sl_piece *pieces);
sluice_status sl_plan_add_wait(sl_plan *p, int step);
sluice_status sl_plan_add_part(sl_plan *p, int layer);

static inline sl_piece sl_whole(const sl_plan *p, int buffer)
{
    return (sl_piece){ buffer, 0, buffer < 0 ? 0 : p->buffers[buffer].bytes };
}

/* What the stage divides among several ranks. */
static inline bool sl_cuts_state(const sl_plan *p)
{
    return p->options.rank_count > 1 && p->options.stage >= 1;
}

static inline bool sl_cuts_parameters(const sl_plan *p)
{
    return p->options.rank_count > 1 && p->options.stage >= 3;
}

/* How often a segment runs in a training step. */
static inline int sl_segment_repeats(const sl_plan *p, sl_segment_kind segment)
{
    if (segment == SL_SEGMENT_EVALUATE || segment == SL_SEGMENT_REDO) return 0;
    return segment == SL_SEGMENT_UPDATE ? 1 : p->options.accumulation;
}

static inline bool sl_is_collective(const sl_step *s)
{
    return s->kind == SL_STEP_GATHER || s->kind == SL_STEP_REDUCE_SCATTER || s->kind == SL_STEP_GATHER_NORM ||
           s->kind == SL_STEP_GATHER_VALUE;
}

/* The link that a copy step crosses. Plans have no copies within a tier: verify.c. */
static inline sl_link sl_copy_link(const sl_plan *p, const sl_step *s)
{
    const sl_piece *q = &p->pieces[s->first_piece];
    return sl_link_of(p->buffers[q[0].buffer].tier, p->buffers[q[1].buffer].tier);
}

static inline bool sl_buffer_takes_room(const sl_buffer *b)
{
    return b->bytes > 0 && b->last >= 0;
}

static inline int sl_step_operands(const sl_step *s)
{
    return s->input_count + s->output_count + s->workspace_count;
}

#endif

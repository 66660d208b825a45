/* cost.c: predicted time: the seconds of each step by itself, and with clock.c those of the whole.
 *
 * A kernel's work is flops or bytes (machine.h). Where the machine has measured points for the op, they say how long
 * that takes; otherwise the general rates do, and the slower of arithmetic and memory counts. The same holds for copies
 * and collectives, whose work is bytes. */
#include <string.h>

#include "core/alloc.h"
#include "core/bytes.h"
#include "ir/form.h"
#include "plan/passes.h"

static double copy_seconds(const sl_plan *p, const sl_step *s)
{
    const sl_machine *m = &p->machine;
    sl_link link = sl_copy_link(p, s);
    double bytes = (double)p->pieces[s->first_piece].bytes;
    bool in_memory = sl_tiers[sl_links[link].from].in_memory && sl_tiers[sl_links[link].to].in_memory;
    double latency = in_memory ? m->link_latency : m->disk_latency;
    if (m->copies[link].count > 0) return sl_rates_seconds(&m->copies[link], bytes, latency);
    return latency + bytes / m->link_bytes_per_second[link];
}

/* Bytes of a collective that this rank sends: its shard to every other rank, or of its contribution what others own. */
static uint64_t sent_bytes(const sl_plan *p, const sl_step *s)
{
    uint64_t bytes = 0, others = (uint64_t)p->options.rank_count - 1;
    for (int k = 0; k < s->output_count; k++) {
        const sl_part_cut part = sl_plan_part_cut(p, s, k);
        uint64_t own = (uint64_t)sl_shard_elements(part.shards, p->options.rank);
        if (s->kind == SL_STEP_REDUCE_SCATTER)
            bytes += ((uint64_t)part.shards->elements - own) * part.unit;
        else if (s->kind == SL_STEP_GATHER_NORM)
            bytes += sl_plan_norm_units(&part, p->options.rank) * part.unit * others;
        else
            bytes += own * part.unit * others;
    }
    return bytes;
}

static uint64_t received_norm_bytes(const sl_plan *p, const sl_step *s)
{
    uint64_t bytes = 0;
    for (int k = 0; k < s->output_count; k++) {
        sl_part_cut part = sl_plan_norm_cut(p, p->parts[s->first_part + k]);
        bytes += (uint64_t)(part.shards->elements - sl_shard_elements(part.shards, p->options.rank)) * part.unit /
                 (uint64_t)part.per;
    }
    return bytes;
}

static uint64_t received_bytes(const sl_plan *p, const sl_step *s)
{
    uint64_t bytes = 0, others = (uint64_t)p->options.rank_count - 1;
    if (s->kind == SL_STEP_GATHER_NORM) return received_norm_bytes(p, s);
    for (int k = 0; k < s->output_count; k++) {
        const sl_part_cut part = sl_plan_part_cut(p, s, k);
        uint64_t own = (uint64_t)sl_shard_elements(part.shards, p->options.rank);
        uint64_t units = s->kind == SL_STEP_REDUCE_SCATTER ? own * others : (uint64_t)part.shards->elements - own;
        bytes += units * part.unit;
    }
    return bytes;
}

static double collective_seconds(const sl_plan *p, const sl_step *s)
{
    const sl_machine *m = &p->machine;
    const sl_rates *rates = s->kind == SL_STEP_REDUCE_SCATTER ? &m->reduce : &m->gather;
    double bytes = (double)received_bytes(p, s);
    if (rates->count > 0) return sl_rates_seconds(rates, bytes, m->comm_latency);
    return m->comm_latency + bytes / m->comm_bytes_per_second;
}

/* What an update that does not work in place moves more where it brings old values to where the new ones are written. */
static double aside_bytes(const sl_plan *p, const sl_step *s)
{
    const sl_update_rule *rule = p->graph->nodes[s->node].attrs.update;
    double bytes = 0;
    if (sl_update_reads_aside(rule->kind, p->options.state_form)) return 0;
    for (int k = 0; s->input_count > 2 && k < s->output_count; k++)
        bytes += 2.0 * (double)p->pieces[s->first_piece + s->input_count + k].bytes;
    return bytes;
}

/* Kernels of the update phase work on pieces of flat buffers, which ranks share out; the others on whole values. */
static sl_cost kernel_cost(const sl_plan *p, const sl_step *s)
{
    const sluice_graph *g = p->graph;
    sl_piece weights = p->pieces[s->first_piece + s->input_count];
    if (s->op == SL_OP_UPDATE) {
        double elements = (double)weights.bytes / (double)sl_form_element_bytes(p->buffers[weights.buffer].form);
        return (sl_cost){ 0, elements * p->options.update_bytes_per_element + aside_bytes(p, s) };
    }
    if (s->node >= 0 && g->nodes[s->node].phase != SL_PHASE_UPDATE && sl_ops[s->op].cost != NULL)
        return sl_ops[s->op].cost(g, &g->nodes[s->node]);
    uint64_t bytes = 0;
    for (int k = 0; k < sl_step_operands(s); k++) bytes += p->pieces[s->first_piece + k].bytes;
    return (sl_cost){ 0, (double)bytes };
}

/* Of the general rates, what the kernel of a step on the device reaches. Heads between 64 and 128 wide are in between. */
static double kernel_share(const sl_plan *p, sl_op op, int node)
{
    const sl_machine *m = &p->machine;
    double share = m->share[op] > 0 ? m->share[op] : 1;
    bool attends = op == SL_OP_ATTENTION || op == SL_OP_ATTENTION_GRAD;
    if (!attends || m->narrow_heads <= 0 || node < 0) return share;
    double width = p->graph->nodes[node].attrs.attention.head_width, wide = (width - 64) / 64;
    wide = wide < 0 ? 0 : wide > 1 ? 1 : wide;
    return share * (m->narrow_heads + wide * (1 - m->narrow_heads));
}

/* At the general rates: the slower of arithmetic and memory. */
static double general_seconds(const sl_plan *p, sl_op op, int node, bool on_host, bool narrow, sl_cost cost)
{
    const sl_machine *m = &p->machine;
    bool attention = sl_ops[op].rate == SL_CLASS_ATTENTION;
    double flops_rate = sl_is_matrix_op(op) ? sl_machine_gemm_flops(m, narrow) : m->vector_flops;
    if (attention && m->attention_fraction > 0) flops_rate *= m->attention_fraction;
    double compute = cost.flops / flops_rate;
    double memory = cost.bytes / (on_host ? m->update_bytes_per_second : m->device_bytes_per_second);
    double seconds = compute > memory ? compute : memory;
    return on_host ? seconds : seconds / kernel_share(p, op, node);
}

/* A kernel of a GPU that was measured on so little work alone that it says how long a call takes, not how fast it is with
 * more. */
#define SMALL_CALL 10 /* latencies of a kernel */
static bool is_small_call(const sl_machine *m, const sl_rate_point *last, double work)
{
    return !m->kernels_take_turns && work > last->work && last->seconds < SMALL_CALL * m->kernel_latency;
}

/* By the measured points of the op; without any, at the general rates, and so is what is beyond points of small calls alone.
 * `node`: -1, or of the graph. */
static double work_seconds(const sl_plan *p, sl_op op, int node, bool on_host, sl_cost cost)
{
    const sl_machine *m = &p->machine;
    const bool narrow = node >= 0 && sl_machine_is_narrow(m, sl_node_type(p->graph, &p->graph->nodes[node]));
    const sl_rates *rates = op == SL_OP_UPDATE ? sl_machine_update_rates(m, on_host, p->options.state_form)
                            : on_host          ? sl_machine_host_rates(m, op)
                                               : sl_machine_kernel_rates(m, op, narrow);
    if (rates->count == 0) return m->kernel_latency + general_seconds(p, op, node, on_host, narrow, cost);
    const double work = sl_is_matrix_op(op) ? cost.flops : cost.bytes;
    const sl_rate_point *last = &rates->points[rates->count - 1];
    if (!is_small_call(m, last, work)) return sl_rates_seconds(rates, work, m->kernel_latency);
    const double beyond = 1 - last->work / work;
    return last->seconds + beyond * general_seconds(p, op, node, on_host, narrow, cost);
}

static double kernel_seconds(const sl_plan *p, const sl_step *s)
{
    return work_seconds(p, s->op, s->node, s->stream == SL_STREAM_UPDATE, kernel_cost(p, s));
}

double sl_plan_node_seconds(const sl_plan *p, int node)
{
    const sl_node *n = &p->graph->nodes[node];
    sl_cost cost = sl_ops[n->op].cost != NULL ? sl_ops[n->op].cost(p->graph, n) : (sl_cost){ 0, 0 };
    return work_seconds(p, n->op, node, false, cost);
}

/* Adds a step that runs `times` in a training step to the totals: what it moves or sends; or of a kernel its operands,
 * as if every use of a tensor had its own copy, beside the copies there really are. */
static void count_step(sl_plan *p, const sl_step *s, uint64_t times)
{
    sl_plan_totals *t = &p->totals;
    if (sl_is_collective(s)) {
        uint64_t *sums[] = { [SL_STEP_GATHER] = &t->comm_gather,
                             [SL_STEP_REDUCE_SCATTER] = &t->comm_reduce,
                             [SL_STEP_GATHER_NORM] = &t->comm_norm,
                             [SL_STEP_GATHER_VALUE] = &t->comm_gather };
        *sums[s->kind] += times * sent_bytes(p, s);
        return;
    }
    if (s->kind == SL_STEP_COPY) {
        t->copies += times;
        t->moved[sl_copy_link(p, s)] += times * p->pieces[s->first_piece].bytes;
        return;
    }
    t->copies_naive += times * (uint64_t)s->input_count;
    for (int k = 0; k < s->input_count; k++) t->copies_avoided_bytes += times * p->pieces[s->first_piece + k].bytes;
    if (s->kind == SL_STEP_COMPUTE && s->node >= 0 && !s->recomputed && sl_is_matrix_op(s->op))
        t->model_flops += (double)times * sl_ops[s->op].cost(p->graph, &p->graph->nodes[s->node]).flops;
}

/* Elements of a parameter that lie side by side in one of its tensors. A micro-batch brings new rows, which are not whole
 * units, to the next places; the rows come back from there at the end. */
static void add_run(const sl_plan *p, sl_form form, int64_t elements, bool trained, uint64_t *read, uint64_t *written)
{
    const uint64_t bytes = (uint64_t)elements * sl_form_element_bytes(form);
    const uint64_t chunks = (uint64_t)(elements / SL_HALVES_CHUNK), ends = 2 * SL_DISK_UNIT;
    const uint64_t brought = chunks + (uint64_t)p->options.accumulation;
    *read += brought * ends + (trained ? bytes + (chunks + 1) * ends : 0);
    *written += bytes + brought * ends;
}

static void add_tensor(const sl_plan *p, int parameter, int buffer, uint64_t *read, uint64_t *written)
{
    const sl_parameter *q = &p->graph->parameters[parameter];
    const sl_shards *s = &p->layers[q->layer].shards;
    const sl_range all = { q->offset, q->count };
    const int rank = p->options.rank;
    const bool trained = p->options.training && q->trainable;
    if (buffer < 0 || p->buffers[buffer].tier != SL_TIER_DISK) return;
    const sl_form form = p->buffers[buffer].form;
    if (!p->buffers[buffer].shard) {
        add_run(p, form, q->count, trained, read, written);
        return;
    }
    for (int64_t i = sl_shard_range_at(s, rank, q->offset); i < sl_shard_range_count(s, rank); i++) {
        sl_range r = sl_range_common(sl_shard_range(s, rank, i), all);
        if (r.count == 0) break;
        add_run(p, form, r.count, trained, read, written);
    }
}

void sl_plan_table_disk(const sl_plan *p, uint64_t *read, uint64_t *written)
{
    *read = *written = 0;
    for (int i = 0; i < p->graph->parameter_count; i++) {
        const sl_layer_place *place = &p->layers[p->graph->parameters[i].layer];
        if (p->tables[i].home < 0) continue;
        add_tensor(p, i, place->master, read, written);
        add_tensor(p, i, place->remainder, read, written);
        if (place->home != place->master) add_tensor(p, i, place->home, read, written);
        for (int k = 0; k < SL_MAX_STATE_SLOTS; k++) add_tensor(p, i, place->slots[k], read, written);
    }
}

/* How often the work of a step is done in a training step, of which its segment runs `repeats` times. */
static int times_done(const sl_step *s, int repeats)
{
    if (!sl_step_is_done(s, SL_WHEN_COMMON | SL_WHEN_LAST_MICRO)) return 0;
    return (s->when & SL_WHEN_LAST_MICRO) != 0 && repeats > 1 ? 1 : repeats;
}

sluice_status sl_plan_cost(sl_plan *p)
{
    sl_plan_totals *t = &p->totals;
    memset(t->moved, 0, sizeof t->moved);
    t->copies = t->copies_naive = t->copies_avoided_bytes = 0;
    t->comm_gather = t->comm_reduce = t->comm_norm = 0;
    t->step_seconds = t->model_flops = 0;
    for (int i = 0; i < p->step_count; i++) {
        sl_step *s = &p->steps[i];
        s->seconds = s->kind == SL_STEP_COPY ? copy_seconds(p, s)
                     : sl_is_collective(s)   ? collective_seconds(p, s)
                                             : kernel_seconds(p, s);
    }
    SL_TRY(sl_plan_clock(p));
    for (int k = 0; k < SL_SEGMENT_COUNT; k++) {
        const sl_segment *segment = &p->segments[k];
        int times = sl_segment_repeats(p, (sl_segment_kind)k);
        t->step_seconds += times * segment->seconds;
        for (int i = 0; times > 0 && i < segment->step_count; i++) {
            const sl_step *s = &p->steps[segment->first_step + i];
            count_step(p, s, (uint64_t)times_done(s, times));
        }
    }
    t->copies_naive += t->copies;
    return SLUICE_OK;
}

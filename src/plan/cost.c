/* cost.c: predicted time, by running the plan on clocks instead of a device.
 *
 * Each stream has a clock; a step starts when its stream is free and what it waits for is done. Where the compute
 * stream stands still, the time is charged to the stream it waited for: that is the exposed part, the rest of that
 * stream's work is hidden. */
#include <string.h>

#include "core/alloc.h"
#include "core/bytes.h"
#include "plan/internal.h"

void sl_machine_default(sl_machine *m)
{
    *m = (sl_machine){ .gemm_flops = 100e9,
                       .vector_flops = 10e9,
                       .device_bytes_per_second = 20e9,
                       .update_bytes_per_second = 15e9,
                       .link_bytes_per_second = { 8e9, 8e9 },
                       .comm_bytes_per_second = 4e9,
                       .comm_latency = 30e-6,
                       .link_latency = 2e-6,
                       .kernel_latency = 2e-6,
                       .copies_overlap = true };
}

static bool is_matrix_op(sl_op op)
{
    static const sl_op matrix[] = {
        SL_OP_LINEAR,    SL_OP_MATMUL,        SL_OP_LINEAR_GRAD_INPUT, SL_OP_LINEAR_GRAD_WEIGHT,
        SL_OP_ATTENTION, SL_OP_ATTENTION_GRAD
    };
    for (size_t i = 0; i < sizeof matrix / sizeof matrix[0]; i++)
        if (matrix[i] == op) return true;
    return false;
}

static uint64_t operand_bytes(const sl_plan *p, const sl_step *s)
{
    uint64_t bytes = 0;
    for (int k = 0; k < sl_step_operands(s); k++) bytes += p->pieces[s->first_piece + k].bytes;
    return bytes;
}

static double copy_seconds(const sl_plan *p, const sl_step *s)
{
    double rate = p->machine.link_bytes_per_second[s->stream == SL_STREAM_TO_HOST];
    return p->machine.link_latency + (double)p->pieces[s->first_piece].bytes / rate;
}

/* Bytes of a collective that this rank sends: its shard to every other rank, or of its contribution what others own. */
static uint64_t sent_bytes(const sl_plan *p, const sl_step *s)
{
    uint64_t bytes = 0, others = (uint64_t)p->options.rank_count - 1;
    for (int k = 0; k < s->output_count; k++) {
        const sl_shards *shards = &p->layers[p->parts[s->first_part + k]].shards;
        uint64_t own = (uint64_t)sl_shard_elements(shards, p->options.rank);
        if (s->kind == SL_STEP_GATHER) bytes += own * sizeof(float) * others;
        if (s->kind == SL_STEP_REDUCE_SCATTER) bytes += ((uint64_t)shards->elements - own) * sizeof(float);
        if (s->kind == SL_STEP_GATHER_NORM)
            bytes += sl_plan_own_leaves(shards, p->options.rank) * sizeof(double) * others;
    }
    return bytes;
}

static uint64_t received_bytes(const sl_plan *p, const sl_step *s)
{
    uint64_t bytes = 0, others = (uint64_t)p->options.rank_count - 1;
    for (int k = 0; k < s->output_count; k++) {
        const sl_shards *shards = &p->layers[p->parts[s->first_part + k]].shards;
        uint64_t own = (uint64_t)sl_shard_elements(shards, p->options.rank);
        bytes += s->kind == SL_STEP_REDUCE_SCATTER ? own * others : (uint64_t)shards->elements - own;
    }
    return s->kind == SL_STEP_GATHER_NORM ? bytes * sizeof(double) / SL_CUT_ELEMENTS : bytes * sizeof(float);
}

static double collective_seconds(const sl_plan *p, const sl_step *s)
{
    return p->machine.comm_latency + (double)received_bytes(p, s) / p->machine.comm_bytes_per_second;
}

static double kernel_seconds(const sl_plan *p, const sl_step *s)
{
    const sl_machine *m = &p->machine;
    double bytes_rate = s->stream == SL_STREAM_UPDATE ? m->update_bytes_per_second : m->device_bytes_per_second;
    if (s->op == SL_OP_UPDATE)
        return m->kernel_latency + (double)p->pieces[s->first_piece].bytes / sizeof(float) *
                                       p->options.update_bytes_per_element / bytes_rate;
    double flops = 0, bytes = (double)operand_bytes(p, s);
    if (s->node >= 0 && sl_ops[s->op].cost != NULL) {
        sl_cost c = sl_ops[s->op].cost(p->graph, &p->graph->nodes[s->node]);
        flops = c.flops;
        bytes = c.bytes;
    }
    double compute = flops / (is_matrix_op(s->op) ? m->gemm_flops : m->vector_flops), memory = bytes / bytes_rate;
    return m->kernel_latency + (compute > memory ? compute : memory);
}

static double step_seconds(const sl_plan *p, const sl_step *s)
{
    if (s->kind == SL_STEP_COPY) return copy_seconds(p, s);
    return sl_is_collective(s) ? collective_seconds(p, s) : kernel_seconds(p, s);
}

/* Compute stood still until `step` of another stream was done. */
static void expose(const sl_plan *p, sl_segment *segment, int step, double seconds)
{
    sl_stream stream = p->steps[step].stream;
    segment->exposed[stream] += seconds;
    if (seconds <= segment->longest[stream]) return;
    segment->longest[stream] = seconds;
    segment->longest_step[stream] = step;
}

/* When a step may start; *late gets the step that made it wait, or -1. */
static double start_of(const sl_plan *p, const sl_step *s, double clock, const double *finish, int *late)
{
    double start = clock;
    *late = -1;
    for (int k = 0; k < s->wait_count; k++) {
        int target = p->waits[s->first_wait + k];
        if (finish[target] <= start) continue;
        start = finish[target];
        *late = target;
    }
    return start;
}

/* One segment on the clocks. finish[] is per step of the whole plan. */
static void run_segment(sl_plan *p, sl_segment *segment, double *finish)
{
    double clock[SL_STREAM_COUNT] = { 0 }, end = 0;
    int last[SL_STREAM_COUNT] = { 0 };
    for (int i = segment->first_step; i < segment->first_step + segment->step_count; i++) {
        sl_step *s = &p->steps[i];
        int stream = p->machine.copies_overlap ? (int)s->stream : 0, late;
        double start = start_of(p, s, clock[stream], finish, &late);
        if (late >= 0 && s->stream == SL_STREAM_COMPUTE) expose(p, segment, late, start - clock[stream]);
        if (!p->machine.copies_overlap && s->stream != SL_STREAM_COMPUTE) expose(p, segment, i, s->seconds);
        finish[i] = clock[stream] = start + s->seconds;
        last[stream] = i;
        segment->busy[s->stream] += s->seconds;
        if (finish[i] > end) end = finish[i];
    }
    /* what runs on after the last kernel of the segment is exposed too */
    for (int k = 1; k < SL_STREAM_COUNT; k++)
        if (clock[k] == end && end > clock[SL_STREAM_COMPUTE])
            expose(p, segment, last[k], end - clock[SL_STREAM_COMPUTE]);
    segment->seconds = end;
}

static int repeats(const sl_plan *p, int segment)
{
    if (segment == SL_SEGMENT_EVALUATE) return 0;
    return segment == SL_SEGMENT_UPDATE ? 1 : p->options.accumulation;
}

/* Operand sizes as if every use of a tensor had its own copy, beside the copies there really are. */
static void count_copies(sl_plan *p, const sl_step *s, uint64_t times)
{
    sl_plan_totals *t = &p->totals;
    if (sl_is_collective(s)) {
        uint64_t *sums[] = { [SL_STEP_GATHER] = &t->comm_gather,
                             [SL_STEP_REDUCE_SCATTER] = &t->comm_reduce,
                             [SL_STEP_GATHER_NORM] = &t->comm_norm };
        *sums[s->kind] += times * sent_bytes(p, s);
        return;
    }
    uint64_t bytes = p->pieces[s->first_piece].bytes;
    if (s->kind == SL_STEP_COPY) {
        t->copies += times;
        if (s->stream == SL_STREAM_TO_DEVICE) t->moved_to_device += times * bytes;
        if (s->stream == SL_STREAM_TO_HOST) t->moved_to_host += times * bytes;
        return;
    }
    t->copies_naive += times * (uint64_t)s->input_count;
    for (int k = 0; k < s->input_count; k++) t->copies_avoided_bytes += times * p->pieces[s->first_piece + k].bytes;
}

static void count_steps(sl_plan *p)
{
    sl_plan_totals *t = &p->totals;
    t->moved_to_device = t->moved_to_host = t->copies = t->copies_naive = t->copies_avoided_bytes = 0;
    t->comm_gather = t->comm_reduce = t->comm_norm = 0;
    t->model_flops = 0;
    for (int k = 0; k < SL_SEGMENT_COUNT; k++) {
        uint64_t times = (uint64_t)repeats(p, k);
        for (int i = 0; times > 0 && i < p->segments[k].step_count; i++) {
            const sl_step *s = &p->steps[p->segments[k].first_step + i];
            count_copies(p, s, times);
            if (s->kind == SL_STEP_COMPUTE && s->node >= 0 && !s->recomputed && is_matrix_op(s->op))
                t->model_flops += (double)times * sl_ops[s->op].cost(p->graph, &p->graph->nodes[s->node]).flops;
        }
    }
    t->copies_naive += t->copies;
}

sluice_status sl_plan_cost(sl_plan *p)
{
    double *finish = sl_alloc_array((size_t)p->step_count + 1, sizeof *finish, "plan: finish times");
    p->totals.step_seconds = 0;
    if (finish == NULL) return SLUICE_ERR_NO_MEMORY;
    for (int i = 0; i < p->step_count; i++) p->steps[i].seconds = step_seconds(p, &p->steps[i]);
    for (int k = 0; k < SL_SEGMENT_COUNT; k++) {
        sl_segment *segment = &p->segments[k];
        memset(segment->busy, 0, sizeof segment->busy);
        memset(segment->exposed, 0, sizeof segment->exposed);
        memset(segment->longest, 0, sizeof segment->longest);
        for (int m = 0; m < SL_STREAM_COUNT; m++) segment->longest_step[m] = -1;
        run_segment(p, segment, finish);
        p->totals.step_seconds += repeats(p, k) * segment->seconds;
    }
    count_steps(p);
    sl_free(finish);
    return SLUICE_OK;
}

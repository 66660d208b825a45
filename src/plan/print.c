/* print.c: the plan for people: a table before anything runs, and the program step by step. */
#include <string.h>

#include "core/bytes.h"
#include "ir/form.h"
#include "plan/passes.h"

static const char *kind_names[SL_BUFFER_KIND_COUNT] = {
    [SL_BUFFER_PARAMETERS] = "parameters",
    [SL_BUFFER_GRADIENTS] = "gradients",
    [SL_BUFFER_STATE] = "optimizer state",
    [SL_BUFFER_ACTIVATION] = "activations",
    [SL_BUFFER_INPUT] = "inputs",
    [SL_BUFFER_CACHE] = "cache of attention",
    [SL_BUFFER_RUNNING] = "batch statistics",
    [SL_BUFFER_NORM] = "gradient norm",
    [SL_BUFFER_SNAPSHOT] = "copy for saving",
    [SL_BUFFER_TABLE] = "sparse tables",
    [SL_BUFFER_WORKSPACE] = "workspace of kernels",
    [SL_BUFFER_TWIN] = "speculation",
};

const char *sl_plan_buffer_name(sl_buffer_kind kind)
{
    return kind_names[kind];
}

/* Device and host are always shown, the disk where there is one. */
static bool shows(const sl_plan *p, int tier)
{
    return sl_tiers[tier].in_memory || p->options.budget[tier] > 0;
}

/* One column for each tier. */
static void row(const sl_plan *p, FILE *out, const char *name, const uint64_t bytes[SL_TIER_COUNT])
{
    char text[32];
    fprintf(out, "  %-22s", name);
    for (int t = 0; t < SL_TIER_COUNT; t++)
        if (shows(p, t)) fprintf(out, " %14s", sl_format_bytes(bytes[t], text, sizeof text));
    fprintf(out, "\n");
}

static void print_memory(const sl_plan *p, FILE *out)
{
    const sl_plan_totals *t = &p->totals;
    fprintf(out, "memory at the fullest moment");
    for (int i = 0; i < SL_TIER_COUNT; i++) /* the title reaches 4 characters into the first column */
        if (shows(p, i)) fprintf(out, " %*s", i == 0 ? 10 : 14, sl_tiers[i].name);
    fprintf(out, "\n");
    for (int k = 0; k < SL_BUFFER_KIND_COUNT; k++) {
        uint64_t bytes[SL_TIER_COUNT], all = 0;
        for (int i = 0; i < SL_TIER_COUNT; i++) all += bytes[i] = t->by_kind[i][k];
        if (all > 0) row(p, out, kind_names[k], bytes);
    }
    row(p, out, "alignment and gaps", t->fragmentation);
    row(p, out, "arena, reserved once", t->peak);
    row(p, out, "budget", p->options.budget);
    row(p, out, "without reuse", t->naive);
    char total[32], part[3][32];
    for (int k = 0; k < 3; k++) sl_format_bytes(p->options.overhead_of[k], part[k], sizeof part[k]);
    fprintf(out, "  outside the arenas     %14s (program %s, data %s, threads %s)\n",
            sl_format_bytes(p->options.overhead_bytes, total, sizeof total), part[0], part[1], part[2]);
    if (p->options.device_overhead > 0)
        fprintf(out, "  outside, on the device %14s (driver and libraries)\n",
                sl_format_bytes(p->options.device_overhead, total, sizeof total));
    if (p->options.memory_note[0] != '\0') fprintf(out, "memory: %s\n", p->options.memory_note);
}

static int layers_with(const sl_plan *p, bool (*has)(const sl_plan *, int))
{
    int n = 0;
    for (int i = 0; i < p->graph->layer_count; i++) n += has(p, i);
    return n;
}

static bool has_parameters(const sl_plan *p, int layer)
{
    return p->graph->layers[layer].element_count > 0;
}

static bool has_state(const sl_plan *p, int layer)
{
    return p->layers[layer].gradient >= 0;
}

static bool has_nodes(const sl_plan *p, int layer)
{
    return p->graph->layers[layer].node_count > 0;
}

static void place_line(FILE *out, const char *what, int moved, int all, const char *where, const char *otherwise)
{
    if (moved == 0)
        fprintf(out, "  %-22s %s\n", what, otherwise);
    else
        fprintf(out, "  %-22s %s in %d of %d layers\n", what, where, moved, all);
}

/* What the stage divides, and this rank's share of it. */
static void print_partition(const sl_plan *p, FILE *out)
{
    static const char *const divided[] = { "sums of gradients and saving", "optimizer state",
                                           "optimizer state and gradients",
                                           "optimizer state, gradients and parameters" };
    int64_t owned = 0, all = sl_graph_parameter_elements(p->graph);
    if (p->options.rank_count == 1) return;
    for (int i = 0; i < p->graph->parameter_count; i++)
        for (int64_t k = 0; k < sl_plan_owned_count(p, i, p->options.rank); k++)
            owned += sl_plan_owned(p, i, p->options.rank, k).count;
    fprintf(out, "partition by %s: %s divided over %d ranks\n", sl_partition_name(p->options.partition),
            divided[p->options.stage], p->options.rank_count);
    fprintf(out, "  rank %d owns %lld of %lld parameters (%.4g %%)\n", p->options.rank, (long long)owned,
            (long long)all, all > 0 ? 100.0 * (double)owned / (double)all : 0.0);
}

/* Below what has left the device. */
static void disk_line(const sl_plan *p, FILE *out, int count, bool (*has)(const sl_plan *p, int layer),
                      const char *there)
{
    if (count > 0) place_line(out, "", count, layers_with(p, has), there, "");
}

/* What is kept on the host of layers that are updated there; which of them need not wait for the norm; and what becomes of that. */
static void print_host_updates(const sl_plan *p, FILE *out)
{
    static const char label[] = "speculative updates";
    const sl_plan_totals *t = &p->totals;
    const sl_step_clock here = sl_plan_step_clock(p), *other = &p->placement.other.clock;
    const double gain = t->speculation_gain > 0 ? t->speculation_gain : 0;
    const bool speculates = t->speculating_layers > 0;
    char bytes[32];
    if (t->host_state_layers > 0)
        fprintf(out, "  %-22s %.4g bytes a parameter on the host\n", "", t->host_bytes_per_parameter);
    if (speculates)
        fprintf(out,
                "  %-22s of %d layer%s, %s more on the host; a step takes %.3g s less, and %.3g s more where it is "
                "redone\n",
                label, t->speculating_layers, t->speculating_layers == 1 ? "" : "s",
                sl_format_bytes(t->speculation_bytes, bytes, sizeof bytes), gain, t->redo_seconds);
    if (other->seconds > 0 && other->without < here.without)
        fprintf(out,
                "  %-22s %.4g s without it; where too many steps are clipped, the run goes on by a plan that takes "
                "%.4g s\n",
                "", here.without, other->without);
    else if (other->speculates && other->seconds < here.seconds)
        fprintf(out, "  %-22s %s%.4g s by another plan, by which the run goes on where few of its steps are clipped\n",
                speculates ? "" : label, speculates ? "" : "none at first; ", other->seconds);
}

static void print_places(const sl_plan *p, FILE *out)
{
    const sl_plan_totals *t = &p->totals;
    fprintf(out, "placement\n");
    place_line(out, "parameters", t->host_parameter_layers, layers_with(p, has_parameters),
               "on the host, staged for every use", "resident on the device");
    disk_line(p, out, t->disk_parameter_layers, has_parameters, "of these on disk, read for every use");
    if (t->host_parameter_layers > 0) fprintf(out, "  %-22s %d\n", "levels", p->level_count);
    if (!p->options.training) return;
    place_line(out, "optimizer state", t->host_state_layers, layers_with(p, has_state), "on the host, updated there",
               "resident on the device");
    disk_line(p, out, t->disk_state_layers, has_state, "of these on disk, read and written for every update");
    disk_line(p, out, t->disk_gradient_layers, has_state, "with gradients that wait on disk for their update");
    print_host_updates(p, out);
    place_line(out, "activations", t->recomputed_layers, layers_with(p, has_nodes), "recomputed",
               "kept from forward to backward");
    if (t->largest_group > 1)
        fprintf(out, "  %-22s in %d group%s of up to %d layers, each from one kept input\n", "", t->recomputed_groups,
                t->recomputed_groups == 1 ? "" : "s", t->largest_group);
    if (t->cheap_layers > 0)
        place_line(out, "", t->cheap_layers, layers_with(p, has_nodes), "norms, gates and the like recomputed", "");
    if (t->offloaded_layers > 0)
        place_line(out, "", t->offloaded_layers, layers_with(p, has_nodes), "sent to the host and back", "");
    disk_line(p, out, t->disk_activation_layers, has_nodes, "of these through it to the disk");
}

/* Bytes of the rows that a step brings at most, and takes back. */
static uint64_t row_bytes(const sl_plan *p, int parameter)
{
    return (uint64_t)p->graph->parameters[parameter].count * sizeof(float) * (uint64_t)p->tables[parameter].tensors;
}

/* The first tables one by one: they are often many and alike. */
static void print_tables(const sl_plan *p, FILE *out)
{
    enum { SHOWN = 4 };
    int count = 0;
    uint64_t kept = 0, brought = 0;
    char a[32], b[32];
    for (int i = 0; i < p->graph->parameter_count; i++) {
        const sl_parameter *q = &p->graph->parameters[i];
        if (p->tables[i].home < 0) continue;
        if (count++ == 0) fprintf(out, "sparse tables, on the host\n");
        kept += p->buffers[p->tables[i].home].bytes;
        brought += row_bytes(p, i);
        if (count <= SHOWN)
            fprintf(out, "  %-22s %lld rows of %lld, of which a step touches at most %lld\n", q->name,
                    (long long)q->table.dim[0], (long long)q->table.dim[1], (long long)(q->count / q->table.dim[1]));
    }
    if (count == 0) return;
    if (count > SHOWN) fprintf(out, "  and %d more\n", count - SHOWN);
    fprintf(out, "  %-22s %s on this rank; a step brings at most %s of it%s\n", "all rows and state",
            sl_format_bytes(kept, a, sizeof a), sl_format_bytes(brought, b, sizeof b),
            p->options.training ? ", and takes as much back" : "");
    uint64_t read, written;
    sl_plan_table_disk(p, &read, &written);
    if (read + written > 0)
        fprintf(out, "  %-22s at most %s read and %s written in a step, beside what is moved as planned\n",
                "on the disk", sl_format_bytes(read, a, sizeof a), sl_format_bytes(written, b, sizeof b));
}

/* Where sparse tables are, it goes by the batches how much of their rows is written. */
static void print_wear(const sl_plan *p, FILE *out)
{
    uint64_t read, written;
    const uint64_t planned = p->totals.moved[SL_LINK_DISK_WRITE];
    sl_plan_table_disk(p, &read, &written);
    if (planned + written > 0 && p->totals.step_seconds > 0)
        fprintf(out, "  at the expected speed %s%.4g TB are written to the disk in a day\n",
                written > 0 ? "at most " : "", (double)(planned + written) / p->totals.step_seconds * 86400 / 1e12);
}

static void print_moves(const sl_plan *p, FILE *out)
{
    const sl_plan_totals *t = &p->totals;
    char a[32], b[32];
    fprintf(out, "moved in a step\n  ");
    for (int k = 0; k < SL_LINK_COUNT; k++)
        if (shows(p, sl_links[k].from) && shows(p, sl_links[k].to))
            fprintf(out, "%s %s, ", sl_links[k].name, sl_format_bytes(t->moved[k], a, sizeof a));
    fprintf(out, "in %llu copies\n", (unsigned long long)t->copies);
    print_wear(p, out);
    if (p->options.rank_count > 1)
        fprintf(out, "  sent to other ranks: gathered %s, reduced %s\n", sl_format_bytes(t->comm_gather, a, sizeof a),
                sl_format_bytes(t->comm_reduce, b, sizeof b));
    fprintf(out, "  one copy per use of a tensor would be %llu copies; %s of copying avoided\n",
            (unsigned long long)t->copies_naive, sl_format_bytes(t->copies_avoided_bytes, a, sizeof a));
}

const char *sl_plan_stream_name(sl_stream stream)
{
    static const char *const names[SL_STREAM_COUNT] = {
        [SL_STREAM_COMPUTE] = "compute", [SL_STREAM_COMM] = "communication", [SL_STREAM_UPDATE] = "host update"
    };
    for (int k = 0; k < SL_LINK_COUNT; k++)
        if (sl_links[k].stream == stream) return sl_links[k].name;
    return names[stream];
}

const char *sl_plan_step_name(const sl_step *s)
{
    static const char *const names[] = { [SL_STEP_COPY] = "copy",
                                         [SL_STEP_GATHER] = "gather",
                                         [SL_STEP_REDUCE_SCATTER] = "reduce-scatter",
                                         [SL_STEP_GATHER_NORM] = "gather norm",
                                         [SL_STEP_GATHER_VALUE] = "gather statistics" };
    return sl_is_collective(s) || s->kind == SL_STEP_COPY ? names[s->kind] : sl_ops[s->op].name;
}

/* Why something is exposed: the longest wait for it in a step. */
static void print_longest(const sl_plan *p, int stream, FILE *out)
{
    static const char *const phases[] = { "forward", "backward", "update" };
    const sl_segment *worst = NULL;
    for (int i = 0; i <= SL_SEGMENT_UPDATE; i++)
        if (p->segments[i].longest_step[stream] >= 0 &&
            (worst == NULL || p->segments[i].longest[stream] > worst->longest[stream]))
            worst = &p->segments[i];
    if (worst == NULL) return;
    const sl_step *s = &p->steps[worst->longest_step[stream]];
    fprintf(out, "  %-14s longest wait %.3g s, in %s, for %s%s%s\n", "", worst->longest[stream],
            phases[worst - p->segments], sl_plan_step_name(s), s->layer >= 0 ? " of " : "",
            s->layer >= 0 ? p->graph->layers[s->layer].name : "");
}

static void print_time(const sl_plan *p, FILE *out)
{
    double k = p->options.accumulation;
    const sl_segment *s = p->segments;
    fprintf(out, "expected step: %.4g s (forward %.4g, backward %.4g, update %.4g)\n", p->totals.step_seconds,
            k * s[SL_SEGMENT_FORWARD].seconds, k * s[SL_SEGMENT_BACKWARD].seconds, s[SL_SEGMENT_UPDATE].seconds);
    for (int m = 0; m < SL_STREAM_COUNT; m++) {
        double busy = 0, exposed = 0;
        for (int i = 0; i < SL_SEGMENT_COUNT; i++) {
            int times = sl_segment_repeats(p, (sl_segment_kind)i);
            busy += times * s[i].busy[m];
            exposed += times * s[i].exposed[m];
        }
        if (busy <= 0) continue;
        if (m == SL_STREAM_COMPUTE)
            fprintf(out, "  %-14s %.4g s\n", sl_plan_stream_name((sl_stream)m), busy);
        else
            fprintf(out, "  %-14s %.4g s, of which %.4g s hidden behind compute and %.4g s exposed\n",
                    sl_plan_stream_name((sl_stream)m), busy, busy > exposed ? busy - exposed : 0.0, exposed);
        if (exposed > 0) print_longest(p, m, out);
    }
}

/* fp32 throughout goes without saying. */
static void print_precision(const sl_plan *p, FILE *out)
{
    static const char *const masters[] = { [SLUICE_F32] = "",
                                           [SLUICE_BF16] = " with 16 more bits to an exact fp32 master",
                                           [SLUICE_F16] = " with an fp32 master" };
    const sluice_graph *g = p->graph;
    bool plain = g->precision == SLUICE_F32 && g->wire == SLUICE_F32 && p->options.state_form == SL_FORM_F32;
    if (plain) return;
    fprintf(out, "precision: weights and activations %s%s", sl_dtype_name(g->precision),
            p->options.training ? masters[g->precision] : "");
    if (p->options.training)
        fprintf(out, ", gradients %s, moments %s", sl_dtype_name(g->wire), sl_form_name(p->options.state_form));
    fprintf(out, "\n");
}

/* That updates end with their step goes without saying. */
static void print_updates(const sl_plan *p, FILE *out)
{
    if (!p->options.delayed) return;
    fprintf(out,
            "updates: delayed by one step after the first %lld; what the next step reads is a copy of the weights, and "
            "updates on the host run beside that step\n",
            (long long)p->options.delay_warmup);
}

void sl_plan_print(const sl_plan *p, FILE *out)
{
    fprintf(out, "plan: %lld parameters in %d layers, %d rank%s, stage %d, %d micro-batch%s a step, %d operations\n",
            (long long)sl_graph_parameter_elements(p->graph), layers_with(p, has_nodes), p->options.rank_count,
            p->options.rank_count == 1 ? "" : "s", p->options.stage, p->options.accumulation,
            p->options.accumulation == 1 ? "" : "es", p->step_count);
    print_precision(p, out);
    print_updates(p, out);
    print_memory(p, out);
    print_partition(p, out);
    print_places(p, out);
    print_tables(p, out);
    if (!p->options.training) return;
    print_moves(p, out);
    print_time(p, out);
}

/* ---- the program ---- */

static const char *segment_names[SL_SEGMENT_COUNT] = { "forward", "backward", "update", "redo", "evaluate" };

const char *sl_plan_segment_name(sl_segment_kind segment)
{
    return segment_names[segment];
}

static void print_piece(const sl_plan *p, sl_piece q, FILE *out)
{
    sl_span s = sl_plan_span(p, q);
    if (q.buffer < 0)
        fprintf(out, " -");
    else
        fprintf(out, " %c[%llu+%llu]", sl_tiers[s.tier].letter, (unsigned long long)s.offset,
                (unsigned long long)s.bytes);
}

/* Of each condition, from bit 0 on. */
static const char *const conditions[] = { "the last micro-batch", "speculating", "not speculating", "delayed",
                                          "prompt" };

static void print_conditions(const sl_step *s, FILE *out)
{
    const char *between = "  when ";
    for (size_t k = 0; k < sizeof conditions / sizeof conditions[0]; k++) {
        if ((s->when >> k & 1u) == 0) continue;
        fprintf(out, "%s%s", between, conditions[k]);
        between = ", ";
    }
}

static void print_step(const sl_plan *p, int index, FILE *out)
{
    const sl_step *s = &p->steps[index];
    fprintf(out, "%6d  %-13s %-18s %-12s", index, sl_plan_stream_name(s->stream), sl_plan_step_name(s),
            s->layer >= 0 ? p->graph->layers[s->layer].name : "");
    for (int k = 0; k < s->input_count; k++) print_piece(p, p->pieces[s->first_piece + k], out);
    fprintf(out, " ->");
    for (int k = 0; k < s->output_count; k++) print_piece(p, p->pieces[s->first_piece + s->input_count + k], out);
    for (int k = 0; k < s->wait_count; k++)
        fprintf(out, "%s%d", k == 0 ? "  after " : ", ", p->waits[s->first_wait + k]);
    print_conditions(s, out);
    fprintf(out, "%s\n", s->recomputed ? "  (recomputed)" : "");
}

void sl_plan_print_steps(const sl_plan *p, FILE *out)
{
    for (int k = 0; k < SL_SEGMENT_COUNT; k++) {
        if (p->segments[k].step_count == 0) continue;
        fprintf(out, "%s\n", segment_names[k]);
        for (int i = 0; i < p->segments[k].step_count; i++) print_step(p, p->segments[k].first_step + i, out);
    }
}

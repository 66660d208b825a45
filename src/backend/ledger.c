/* ledger.c: see ledger.h. */
#include "backend/ledger.h"

#include <inttypes.h>

#include "backend/operand.h"
#include "core/bytes.h"
#include "core/norm_nodes.h"
#include "ir/form.h"

void sl_ledger_init(sl_ledger *l)
{
    *l = (sl_ledger){ .event_count = -1 };
}

void sl_ledger_stats(const sl_ledger *l, sl_device_stats *out)
{
    *out = l->stats;
    for (int t = 0; t < SL_TIER_COUNT; t++) out->observed_peak[t] = atomic_load(&l->observed_peak[t]);
}

sluice_status sl_ledger_reserve(sl_ledger *l, sl_tier tier, uint64_t bytes)
{
    if ((unsigned)tier >= SL_TIER_COUNT)
        return sl_fail(SLUICE_ERR_FAILED, "this backend has no arena on the %s tier (%" PRIu64 " bytes asked)",
                       sl_tier_name(tier), bytes);
    if (l->is_reserved[tier])
        return sl_fail(SLUICE_ERR_FAILED, "the %s arena is reserved already (%" PRIu64 " bytes)", sl_tier_name(tier),
                       l->reserved[tier]);
    l->reserved[tier] = bytes;
    l->is_reserved[tier] = true;
    return SLUICE_OK;
}

sluice_status sl_ledger_events(sl_ledger *l, int event_count)
{
    if (l->event_count >= 0) return sl_fail(SLUICE_ERR_FAILED, "the device has its %d events already", l->event_count);
    if (event_count < 0) return sl_fail(SLUICE_ERR_FAILED, "%d events asked", event_count);
    l->event_count = event_count;
    return SLUICE_OK;
}

sluice_status sl_ledger_stream(sl_stream stream)
{
    if ((unsigned)stream < SL_STREAM_COUNT) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_FAILED, "there is no stream %d", (int)stream);
}

/* `name` is a node's, or empty; `role` and `index` say which operand. */
static sluice_status check_span(const sl_ledger *l, const char *what, const char *name, const char *role, int index,
                                sl_span s)
{
    uint64_t end;
    uint64_t arena = (unsigned)s.tier < SL_TIER_COUNT ? l->reserved[s.tier] : 0;
    if (sl_add_u64(s.offset, s.bytes, &end) && end <= arena) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_FAILED,
                   "%s %s: %s %d is %" PRIu64 " bytes at offset %" PRIu64 " of the %s tier, whose arena has %" PRIu64
                   " bytes",
                   what, name, role, index, s.bytes, s.offset, sl_tier_name(s.tier), arena);
}

/* A kernel trusts the shape, so it must not say more than the span holds. Update ops go by the span alone. */
static sluice_status check_shape(const sl_call *c, const char *role, int index, sl_span s, const sl_shape *shape,
                                 sl_form form)
{
    if (shape == NULL || s.bytes == 0 || sl_ops[c->op].phase == SL_PHASE_UPDATE) return SLUICE_OK;
    uint64_t bytes = (uint64_t)sl_shape_elements(shape) * sl_form_element_bytes(form);
    if (bytes > 0 && bytes <= s.bytes) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_FAILED, "%s %s: %s %d needs %" PRIu64 " bytes, its span has %" PRIu64, sl_ops[c->op].name,
                   c->name ? c->name : "", role, index, bytes, s.bytes);
}

static sluice_status check_operand(const sl_ledger *l, const sl_call *c, bool output, int i)
{
    const char *role = output ? "output" : "input", *name = c->name ? c->name : "";
    const sl_span s = output ? c->outputs[i] : c->inputs[i];
    const sl_form form = output ? c->output_forms[i] : c->input_forms[i];
    if ((unsigned)form >= SL_FORM_COUNT)
        return sl_fail(SLUICE_ERR_FAILED, "%s %s: %s %d has no form %d", sl_ops[c->op].name, name, role, i, (int)form);
    SL_TRY(check_span(l, sl_ops[c->op].name, name, role, i, s));
    if (output && sl_has_output(c, i) != (s.bytes > 0))
        return sl_fail(SLUICE_ERR_FAILED, "%s %s: output %d has %s", sl_ops[c->op].name, name, i,
                       s.bytes > 0 ? "memory and no shape" : "a shape and no memory");
    return check_shape(c, role, i, s, output ? c->output_shapes[i] : c->input_shapes[i], form);
}

/* Which remainder of the master goes with weights of a form, as the kernel reads it. */
static bool remainder_fits(const sl_call *c)
{
    const sl_form weights = c->output_forms[0], remainder = c->output_forms[1];
    if (weights == SL_FORM_F32) return c->outputs[1].bytes == 0;
    return c->outputs[1].bytes > 0 && ((weights == SL_FORM_BF16 && remainder == SL_FORM_REMAINDER) ||
                                       (weights == SL_FORM_F16 && remainder == SL_FORM_F32));
}

static bool is_short(sl_span s, sl_form form, const sl_update_rule *r, int64_t first, int64_t elements)
{
    if (form == SL_FORM_BLOCKS8 && r->layer == NULL) return true;
    return s.bytes < sl_form_bytes(form, r->layer, first, elements);
}

/* The kernel goes by the weights' length, so gradient, remainder and state must be no shorter. */
static sluice_status check_run_lengths(const sl_call *c, const sl_update_rule *r, int64_t elements)
{
    const char *name = c->name ? c->name : "";
    if (c->first < 0 || c->first % SL_CUT_ELEMENTS != 0 || c->first > INT64_MAX - elements)
        return sl_fail(SLUICE_ERR_FAILED, "update %s: a run cannot begin at element %" PRId64, name, c->first);
    int slots = sl_updates[r->kind].slots;
    if (c->input_count < 2 || c->output_count < 2 + slots)
        return sl_fail(SLUICE_ERR_FAILED, "update %s: %d inputs and %d outputs, for %d states", name, c->input_count,
                       c->output_count, slots);
    if (elements > 0 && !remainder_fits(c))
        return sl_fail(SLUICE_ERR_FAILED,
                       "update %s: %s weights with %" PRIu64 " bytes of %s as the remainder of the master", name,
                       sl_form_name(c->output_forms[0]), c->outputs[1].bytes, sl_form_name(c->output_forms[1]));
    bool short_operand = c->inputs[1].bytes > 0 && c->inputs[1].bytes < sizeof(sl_norm_result);
    short_operand |= is_short(c->inputs[0], c->input_forms[0], r, c->first, elements);
    if (c->outputs[1].bytes > 0) short_operand |= is_short(c->outputs[1], c->output_forms[1], r, c->first, elements);
    for (int s = 2; s < 2 + slots; s++)
        short_operand |= is_short(c->outputs[s], c->output_forms[s], r, c->first, elements);
    for (int k = 0; k < c->input_count - 2 && k < 2 + slots; k++) /* what is read elsewhere than it is written */
        short_operand |= c->inputs[2 + k].bytes > 0 && c->inputs[2 + k].bytes != c->outputs[k].bytes;
    if (short_operand)
        return sl_fail(SLUICE_ERR_FAILED, "update %s: an operand is shorter than the weights' %" PRId64 " elements",
                       name, elements);
    return SLUICE_OK;
}

/* A parameter's norms cannot be had from a part of it. */
static sluice_status check_whole_segments(const sl_call *c, const sl_update_rule *r, int64_t elements)
{
    int64_t low = c->first, high = low + elements;
    for (int s = 0; s < r->segment_count; s++) {
        int64_t begin = r->segments[s].offset, end = begin + r->segments[s].count;
        if (begin >= high || end <= low || (begin >= low && end <= high)) continue;
        return sl_fail(SLUICE_ERR_FAILED,
                       "update %s: elements %" PRId64 " to %" PRId64 " of the layer cut the parameter at %" PRId64
                       " to %" PRId64 ", but LAMB and LARS need whole parameters: cut between layers only",
                       c->name ? c->name : "", low, high, begin, end);
    }
    return SLUICE_OK;
}

static sluice_status check_update(const sl_call *c)
{
    const sl_update_rule *r = c->attrs != NULL ? c->attrs->update : NULL;
    if (r == NULL) return sl_fail(SLUICE_ERR_FAILED, "update %s: there is no rule", c->name ? c->name : "");
    size_t each = sl_form_element_bytes(c->output_forms[0]);
    if (each == 0) return sl_fail(SLUICE_ERR_FAILED, "update %s: weights in blocks", c->name ? c->name : "");
    int64_t elements = (int64_t)(c->outputs[0].bytes / each);
    SL_TRY(check_run_lengths(c, r, elements));
    if (!sl_updates[r->kind].whole_parameters) return SLUICE_OK;
    return check_whole_segments(c, r, elements);
}

/* Where a run of leaves begins says how many nodes it makes, and the kernel goes by their number. */
static sluice_status check_nodes(const sl_call *c)
{
    int64_t leaves = sl_operand_elements(c, false, 0), nodes = sl_operand_elements(c, true, 0);
    int64_t first = c->first / SL_CUT_ELEMENTS;
    bool begins = c->first >= 0 && c->first % SL_CUT_ELEMENTS == 0;
    if (begins && nodes == sl_norm_node_count(first, first + leaves)) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_FAILED,
                   "%s %s: %" PRId64 " leaves from element %" PRId64 " on do not make %" PRId64 " sums of the tree",
                   sl_ops[c->op].name, c->name ? c->name : "", leaves, c->first, nodes);
}

static void count_span(sl_ledger *l, sl_span s)
{
    if (s.bytes == 0) return;
    _Atomic uint64_t *peak = &l->observed_peak[s.tier];
    uint64_t end = s.offset + s.bytes, seen = atomic_load_explicit(peak, memory_order_relaxed);
    while (end > seen && !atomic_compare_exchange_weak(peak, &seen, end)) continue; /* `seen` is read anew */
}

sluice_status sl_ledger_call(sl_ledger *l, sl_stream stream, const sl_call *c)
{
    SL_TRY(sl_ledger_stream(stream));
    if ((unsigned)c->op >= SL_OP_COUNT) return sl_fail(SLUICE_ERR_FAILED, "there is no operation %d", (int)c->op);
    if (c->input_count < 0 || c->input_count > SL_MAX_INPUTS || c->output_count < 0 || c->output_count > SL_MAX_OUTPUTS)
        return sl_fail(SLUICE_ERR_FAILED, "%s: %d inputs and %d outputs", sl_ops[c->op].name, c->input_count,
                       c->output_count);
    for (int i = 0; i < c->input_count; i++) SL_TRY(check_operand(l, c, false, i));
    for (int i = 0; i < c->output_count; i++) SL_TRY(check_operand(l, c, true, i));
    if (c->workspace.bytes > 0)
        SL_TRY(check_span(l, sl_ops[c->op].name, c->name ? c->name : "", "workspace", 0, c->workspace));
    if (c->op == SL_OP_UPDATE) SL_TRY(check_update(c));
    if (c->op == SL_OP_NORM_COMBINE) SL_TRY(check_nodes(c));
    count_span(l, c->workspace);
    for (int i = 0; i < c->input_count; i++) count_span(l, c->inputs[i]);
    for (int i = 0; i < c->output_count; i++) count_span(l, c->outputs[i]);
    l->stats.kernel_calls++;
    return SLUICE_OK;
}

static bool spans_overlap(sl_span a, sl_span b)
{
    return a.tier == b.tier && a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
}

sluice_status sl_ledger_copy(sl_ledger *l, sl_stream stream, sl_span dst, sl_span src)
{
    SL_TRY(sl_ledger_stream(stream));
    SL_TRY(check_span(l, "copy", "", "destination", 0, dst));
    SL_TRY(check_span(l, "copy", "", "source", 0, src));
    if (dst.bytes != src.bytes || spans_overlap(dst, src))
        return sl_fail(SLUICE_ERR_FAILED,
                       "copy of %" PRIu64 " bytes at %s offset %" PRIu64 " to %" PRIu64 " bytes at %s offset %" PRIu64
                       ": lengths must agree and spans be apart",
                       src.bytes, sl_tier_name(src.tier), src.offset, dst.bytes, sl_tier_name(dst.tier), dst.offset);
    count_span(l, dst);
    count_span(l, src);
    l->stats.copy_calls++;
    sl_link link = sl_link_of(src.tier, dst.tier);
    if (link < SL_LINK_COUNT) l->stats.moved[link] += src.bytes;
    return SLUICE_OK;
}

sluice_status sl_ledger_transfer(sl_ledger *l, const char *what, sl_span span)
{
    SL_TRY(check_span(l, what, "", "span", 0, span));
    count_span(l, span);
    return SLUICE_OK;
}

sluice_status sl_ledger_event(const sl_ledger *l, sl_stream stream, int event)
{
    SL_TRY(sl_ledger_stream(stream));
    if (event >= 0 && event < l->event_count) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_FAILED, "event %d of stream %d: the device has %d events", event, (int)stream,
                   l->event_count < 0 ? 0 : l->event_count);
}

/* update.c: one optimizer step over a layer's flat buffers.
 *
 * Each rule is written once, on sixteen lanes (update_rules.h); a sweep carries it over memory in a single pass that
 * reads the gradient and reads and writes the weight and the state (update_sweep.c). LAMB and LARS scale a parameter's
 * step by norms of the whole parameter and take two passes (update_two_pass.c).
 *
 * Forms. The arithmetic is f32 on masters, moments and gradients of any form. What 16-bit training with Adam has is
 * converted in registers; other combinations go block by block of 1,024 elements through f32 copies in the innermost
 * cache (update_stage.c), so that main memory is still passed over once. Moments in bf16 and BLOCKS8 are rounded at
 * random (core/rounding.h); a BLOCKS8 block is encoded when all its new values are known.
 *
 * Same bits everywhere: every operation is one IEEE operation per element, fused exactly where v16_fma is written,
 * divisions and square roots are exact, denormals are kept, and random bits hang on the element. Elementwise work does
 * not depend on cuts, and blocks and norms are cut by the index in the layer.
 *
 * Operands: in[0] gradient, in[1] sl_norm_result (absent: nothing is clipped or skipped), out[0] weights, out[1] the
 * master's remainder, out[2 ..] state slots, all of one form. in[2 ..], where given, are the values that the update reads
 * instead of the outputs', in their order and forms: they stay as they are. They are brought to the outputs some blocks
 * at a time and updated there in the caches; what Adam writes with moments in f32 goes past the caches instead, since
 * lines that are written whole need not be read first. All operands are a run of the layer's flat buffer that begins at element
 * `first`, a multiple of the cut; the whole layer has first = 0. The rule's segments are in order of offset, in elements
 * of the layer, and do not overlap; neighbours of one group are swept together. Element numbers below are the layer's;
 * only the functions that touch memory take them relative to their buffers. */
#include "backend/cpu/kernels/update.h"
#include "backend/cpu/kernels/update_pairs.h"

#include "ir/form.h"

/* Neighbouring segments of one group. */
typedef struct group_run {
    int group;
    int64_t first, end;
} group_run;

/* The part in [low, high) of the run that begins with segment *s, which moves behind it; false: there is none. */
static bool next_group_run(const sl_update_rule *r, int *s, int64_t low, int64_t high, group_run *out)
{
    const sl_update_segment *segments = r->segments;
    if (*s >= r->segment_count || segments[*s].offset >= high) return false;
    int group = segments[*s].group, next = *s + 1;
    int64_t end = segments[*s].offset + segments[*s].count;
    out->group = group;
    out->first = segments[*s].offset > low ? segments[*s].offset : low;
    for (; next < r->segment_count && end < high && segments[next].offset == end && segments[next].group == group;
         next++)
        end += segments[next].count;
    out->end = end < high ? end : high;
    *s = next;
    return true;
}

/* Elements [low, high) of the layer, neighbouring segments of one group at a time; b begins with element `origin`. */
static void sweep_runs(const update_job *job, const buffers *b, int64_t origin, int64_t low, int64_t high,
                       sweep_fn sweep)
{
    group_run run;
    int s = segment_behind(job->rule, low);
    while (next_group_run(job->rule, &s, low, high, &run)) {
        const sl_group_scalars *scalars = &job->context->groups[run.group];
        coefficients c;
        coefficients_fill(&c, scalars, job->factor, scalars->rate);
        sweep(b, run.first - origin, run.end - run.first, &c);
    }
}

/* Whether one run covers the place: then every value of its block is new. */
static bool is_covered(const update_job *job, const place *p)
{
    group_run run;
    int s = segment_behind(job->rule, p->low);
    return next_group_run(job->rule, &s, p->low, p->high, &run) && run.first == p->low && run.end == p->high;
}

/* ---- Blocks ---- */

static void update_staged(const update_job *job, const place *p, sweep_fn sweep, stage *s)
{
    const buffers b = KI(update_stage)(job, p, s);
    sweep_runs(job, &b, p->low, p->low, p->high, sweep);
    KI(update_unstage)(job, p, s);
}

static bool all_normal(const uint8_t *block, int64_t n)
{
    uint8_t least = UINT8_MAX;
    for (int64_t i = 0; i < n; i++) {
        uint8_t code = block[SL_BLOCKS8_HEADER + (size_t)i];
        least = code < least ? code : least;
    }
    return least >= 8;
}

/* In pairs, where the path and the block are made for it: b is of one group. */
static bool update_as_pairs(const update_job *job, const place *p, const buffers *b, pair_waiting *waiting, stage *s)
{
#if defined(SL_ISA_avx512)
    if (p->high - p->low != SL_CUT_ELEMENTS || b->read != SL_READ_BF16) return false;
    const sl_group_scalars *scalars =
        &job->context->groups[job->rule->segments[segment_behind(job->rule, p->low)].group];
    coefficients c;
    coefficients_fill(&c, scalars, job->factor, scalars->rate);
    if (!pair_update(b, &c, job->rule->kind == SL_UPDATE_adam_decoupled, waiting, s))
        KI(update_encode)(job->rule, b, SL_CUT_ELEMENTS, s);
    return true;
#else
    (void)job, (void)p, (void)b, (void)waiting, (void)s;
    return false;
#endif
}

/* Reads codes, leaves new values in the stage and encodes them. Only Adam with two slots comes here: slot 1 is its
 * second moments. */
static void update_codes(const update_job *job, const place *p, pair_waiting *waiting, stage *s)
{
    buffers b = KI(update_buffers)(job, p);
    for (int k = 0; k < job->slots; k++) {
        memcpy(&b.exponent[k], b.slot[k], sizeof b.exponent[k]);
        b.fresh[k] = s->slot[k];
    }
    if (update_as_pairs(job, p, &b, waiting, s)) return;
    pair_finish(waiting);
    bool normal = all_normal(b.slot[1], p->high - p->low);
    sweep_runs(job, &b, p->low, p->low, p->high, normal ? job->narrow.normal : job->narrow.direct);
    KI(update_encode)(job->rule, &b, p->high - p->low, s);
}

static void update_block(const update_job *job, const place *p, pair_waiting *waiting, stage *s)
{
    const sweeps *found = p->states == job->states ? &job->narrow : &job->wide;
    bool codes = p->states == SL_FORM_BLOCKS8;
    if (found->direct == NULL || (codes && !is_covered(job, p))) {
        pair_finish(waiting); /* its moments are in the stage */
        update_staged(job, p, found->plain, s);
    } else if (codes) {
        update_codes(job, p, waiting, s);
    } else {
        const buffers b = KI(update_buffers)(job, p);
        sweep_runs(job, &b, p->low, p->low, p->high, found->direct);
    }
}

/* The block from element `low` on, whose states begin `offset` bytes into the slots. */
static place block_at(const update_job *job, int64_t low, uint64_t offset)
{
    int64_t high = low + SL_CUT_ELEMENTS < job->end ? low + SL_CUT_ELEMENTS : job->end;
    sl_form states = job->states;
    if (states == SL_FORM_BLOCKS8 && sl_block_is_wide(job->rule->layer, low / SL_CUT_ELEMENTS)) states = SL_FORM_F32;
    return (place){ low, high, offset, states };
}

static uint64_t state_bytes(const place *p)
{
    uint64_t n = (uint64_t)(p->high - p->low);
    return p->states == SL_FORM_BLOCKS8 ? SL_BLOCKS8_HEADER + n : n * sl_form_element_bytes(p->states);
}

/* Elements [low, high) of the layer, from where the update reads to where it writes. f16 weights are only written. */
static void bring(const update_job *job, int64_t low, int64_t high)
{
    const sl_kernel_args *a = job->args;
    const sl_layer *layer = job->rule->layer;
    for (int k = 0; k < 2 + job->slots; k++) {
        const sl_form form = a->out[k].form;
        if (a->in[2 + k].data == NULL || a->out[k].data == NULL) continue;
        const size_t at = (size_t)sl_form_bytes(form, layer, job->begin, low - job->begin);
        memcpy((char *)a->out[k].data + at, (const char *)a->in[2 + k].data + at,
               (size_t)sl_form_bytes(form, layer, low, high - low));
    }
}

static void bring_task(void *context, int64_t task, void *scratch)
{
    const update_job *job = context;
    int64_t low = job->begin + task * TASK_ELEMENTS, high = low + TASK_ELEMENTS;
    (void)scratch;
    bring(job, low, high < job->end ? high : job->end);
}

static void update_part(const update_job *job, int64_t low, int64_t high, void *scratch)
{
    if (job->states == SL_FORM_F32 && job->narrow.direct != NULL) {
        sweep_runs(job, &job->b, job->begin, low, high, job->narrow.direct);
        return;
    }
    pair_waiting waiting = { .waits = false };
    uint64_t offset = sl_form_bytes(job->states, job->rule->layer, job->begin, low - job->begin);
    for (int64_t at = low; at < high; at += SL_CUT_ELEMENTS) {
        const place p = block_at(job, at, offset);
        update_block(job, &p, &waiting, scratch);
        offset += state_bytes(&p);
    }
    pair_finish(&waiting);
}

static void update_task(void *context, int64_t task, void *scratch)
{
    const update_job *job = context;
    int64_t low = job->begin + task * TASK_ELEMENTS, high = low + TASK_ELEMENTS;
    int64_t each = job->brings ? BROUGHT_ELEMENTS : TASK_ELEMENTS;
    if (high > job->end) high = job->end;
    if (job->streams) {
        sweep_runs(job, &job->b, job->begin, low, high, job->narrow.aside);
        lanes_fence();
        return;
    }
    for (int64_t at = low; at < high; at += each) {
        int64_t end = at + each < high ? at + each : high;
        if (job->brings) bring(job, at, end);
        update_part(job, at, end, scratch);
    }
}

/* A skipped step changes nothing. f16 weights may be a passing buffer that is copied on all the same, so they
 * are written as they are: the master, rounded. */
static void leave_out(const sl_kernel_args *a)
{
    static const sl_attrs none;
    if (a->out[0].form != SL_FORM_F16) return;
    sl_kernel_args cast = { .attrs = &none, .input_count = 1, .output_count = 1, .pool = a->pool };
    cast.in[0] = a->out[1];
    cast.out[0] = a->out[0];
    KI(cast)(&cast);
}

/* Every element of the run is written, and in whole lines. */
static bool may_stream(const update_job *job)
{
    const sl_update_rule *r = job->rule;
    const uintptr_t lines = 64;
    int64_t covered = job->begin;
    bool aligned = (uintptr_t)job->b.w % lines == 0 && (uintptr_t)job->b.rest % lines == 0;
    for (int s = 0; s < job->slots; s++) aligned &= (uintptr_t)job->b.slot[s] % lines == 0;
    for (int s = segment_behind(r, job->begin); s < r->segment_count && r->segments[s].offset <= covered; s++)
        covered = r->segments[s].offset + r->segments[s].count;
    return job->narrow.aside != NULL && aligned && covered >= job->end;
}

/* The values that are read where they are not written. */
static buffers old_buffers(const update_job *job)
{
    buffers b = job->b;
    b.w = job->args->in[2].data;
    b.rest = job->args->in[3].data;
    for (int s = 0; s < job->slots; s++) b.slot[s] = job->args->in[4 + s].data;
    return b;
}

/* Of a step that is not clipped, as norm_finish has it; without a loss scale 1. */
static float unclipped(double loss_scale)
{
    return loss_scale > 0 ? (float)(1.0 / loss_scale) : 1.0f;
}

void KI(update)(const sl_kernel_args *a)
{
    const sl_norm_result plain = { .factor = unclipped(a->context->loss_scale), .finite = 1 };
    const sl_norm_result *norm = a->in[1].data != NULL ? a->in[1].data : &plain;
    const sl_update_rule *rule = a->attrs->update;
    const int64_t tasks = sl_ceil_div(a->out[0].elements, TASK_ELEMENTS);
    if (tasks == 0) return;
    uint32_t words[SL_CUT_ELEMENTS + SL_LANES], pairs[SL_CUT_ELEMENTS]; /* sixteen are loaded where fewer are left */
    update_job job = { .rule = rule, .context = a->context, .factor = norm->factor };
    job.begin = a->first;
    job.end = a->first + a->out[0].elements;
    job.weights = a->out[0].form;
    job.slots = sl_updates[rule->kind].slots;
    job.states = job.slots > 0 ? a->out[2].form : SL_FORM_F32;
    job.args = a;
    job.brings = a->input_count > 2;
    if (job.brings && (!norm->finite || sl_updates[rule->kind].whole_parameters)) {
        sl_pool_run(a->pool, bring_task, &job, tasks); /* all at once */
        job.brings = false;
    }
    if (!norm->finite) {
        leave_out(a);
        return;
    }
    job.b.read = sl_read_of(a->in[0].form, a->wire);
    job.b.g = a->in[0].data;
    job.b.w = a->out[0].data;
    job.b.rest = a->out[1].data;
    for (int s = 0; s < job.slots; s++) job.b.slot[s] = a->out[2 + s].data;
    for (uint32_t i = 0; i < sizeof words / sizeof words[0] && job.states != SL_FORM_F32; i++)
        words[i] = sl_rounding_place(i);
    if (job.states == SL_FORM_BLOCKS8) pair_order(pairs, words);
    job.b.words = words;
    job.b.pairs = pairs;
    job.narrow = KI(update_sweeps)(rule, job.b.read, job.weights, job.states);
    job.wide = KI(update_sweeps)(rule, job.b.read, job.weights, SL_FORM_F32);
    job.streams = job.brings && may_stream(&job);
    if (job.streams) job.old = old_buffers(&job);
    job.b.from = &job.old;
    if (job.narrow.measure != NULL)
        KI(update_in_two_passes)(&job, a->pool);
    else
        sl_pool_run(a->pool, update_task, &job, tasks);
}

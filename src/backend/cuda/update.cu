/* update.cu: one optimizer step over a run of a layer's flat buffers, with the bits of backend/cpu/kernels/update.c.
 *
 * Every rule is one pass over memory that reads the gradient and reads and writes the master and the states
 * (update_kernel.cuh); LAMB and LARS take two (update_two_pass.cu). It is compiled for every rule and form of states
 * with the forms of gradient and weights looked up, and for what training with Adam mostly has with all forms known.
 *
 * Where groups change, and which blocks of compact states are f32, a launch is told in a table that travels with it; a
 * table too long for that is written to the workspace first, in launches that carry it. Factor and finite check are
 * read on the device. */
#include "backend/cuda/update_kernel.cuh"

extern "C" {
#include "ir/form.h"
}

/* ---- What a launch is told ---- */

inline namespace SL_KERNELS
{
/* Words of the table that one launch writes. */
constexpr int chunk_words = 256;
struct word_chunk {
    int64_t word[chunk_words];
};

__global__ void write_words(int64_t *to, const SL_GRID_CONSTANT word_chunk chunk, int count)
{
    if ((int)threadIdx.x < count) to[threadIdx.x] = chunk.word[threadIdx.x];
}

/* Takes the words of a table one after the other and puts them where they go. */
struct table_writer {
    int64_t *device; /* NULL: the table travels with the launch */
    void *stream;
    update_args *u;
    int count;
    word_chunk waiting;
};

void flush_words(table_writer *t)
{
    int waiting = t->count % chunk_words;
    if (waiting == 0) waiting = chunk_words;
    if (t->device == nullptr || t->count == 0) return;
    SL_LAUNCH(write_words, 1, chunk_words, 0, t->stream, t->device + (t->count - waiting), t->waiting, waiting);
}

void put_word(table_writer *t, int64_t word)
{
    if (t->device == nullptr) {
        t->u->words[t->count++] = word;
        return;
    }
    if (t->count > 0 && t->count % chunk_words == 0) flush_words(t);
    t->waiting.word[t->count++ % chunk_words] = word;
}

void put_run(table_writer *t, int64_t end, int group)
{
    put_word(t, end);
    put_word(t, group);
    t->u->run_count++;
}

/* Segments of the run [low, high) of the layer, and the gaps between them; with `merge`, neighbours of one group
 * together. */
void put_runs(table_writer *t, const sl_update_rule *r, int64_t low, int64_t high, bool merge)
{
    int64_t at = low;
    for (int s = 0; s < r->segment_count; s++) {
        const sl_update_segment *segment = &r->segments[s];
        int64_t end = segment->offset + segment->count < high ? segment->offset + segment->count : high;
        if (end <= at || segment->offset >= high) continue;
        if (segment->offset > at) put_run(t, segment->offset - low, -1);
        at = end;
        const sl_update_segment *next = s + 1 < r->segment_count ? segment + 1 : nullptr;
        bool goes_on = merge && next != nullptr && next->offset == end && end < high && next->group == segment->group;
        if (!goes_on) put_run(t, end - low, segment->group);
    }
    if (at < high) put_run(t, high - low, -1);
}

/* Wide blocks among the run's, counted from its first. */
void put_wide_blocks(table_writer *t, const sl_layer *layer, int64_t low, int64_t high)
{
    const sl_range blocks = { low / SL_CUT_ELEMENTS, sl_ceil_div(high - low, SL_CUT_ELEMENTS) };
    int64_t before = 0;
    for (int i = 0; i < layer->wide_block_runs; i++) {
        const sl_range wide = sl_range_common(layer->wide_blocks[i], blocks);
        if (wide.count <= 0) continue;
        put_word(t, wide.first - blocks.first);
        put_word(t, wide.first + wide.count - blocks.first);
        put_word(t, before);
        before += wide.count;
        t->u->wide_count++;
    }
}

/* Into the workspace where the layout has room for it there, else into *u. */
void fill_table(const sl_cuda_args *a, update_args *u, const sl_cuda_update_layout *layout, bool merge, bool blocks)
{
    const sl_update_rule *r = a->attrs->update;
    const int64_t high = a->first + u->count;
    table_writer t;
    t.device = layout->partials > layout->table ? (int64_t *)((char *)a->workspace + layout->table) : nullptr;
    t.stream = a->stream;
    t.u = u;
    t.count = 0;
    put_runs(&t, r, a->first, high, merge);
    if (blocks) put_wide_blocks(&t, r->layer, a->first, high);
    flush_words(&t);
    u->table = t.device;
}

coefficients coefficients_from(const sl_group_scalars *s)
{
    coefficients c;
    c.weight_decay = s->weight_decay;
    c.decay_factor = s->decay_factor;
    c.beta1 = s->beta1;
    c.one_minus_beta1 = s->one_minus_beta1;
    c.beta2 = s->beta2;
    c.one_minus_beta2 = s->one_minus_beta2;
    c.epsilon = s->epsilon;
    c.momentum = s->momentum;
    c.keep = s->first_step ? 0.0f : s->momentum;
    c.take = s->first_step ? 1.0f : 1.0f - s->dampening;
    c.inverse_bias2 = 1.0f / s->bias2_sqrt;
    c.rate = s->rate;
    return c;
}

/* What one vector access of four elements takes. */
bool fits_vectors(const sl_cuda_tensor *t)
{
    if (t->form == SL_FORM_BLOCKS8) return true; /* has a way of its own */
    return aligned_for(t->data, quad * sl_form_element_bytes(t->form));
}

void fill_operands(const sl_cuda_args *a, update_args *u)
{
    const sl_update_rule *r = a->attrs->update;
    u->g = a->in[0].data;
    u->norm = (const sl_norm_result *)a->in[1].data;
    u->w = a->out[0].data;
    u->rest = a->out[0].form != SL_FORM_F32 ? a->out[1].data : nullptr;
    u->count = a->out[0].elements;
    u->aligned = fits_vectors(&a->in[0]) && fits_vectors(&a->out[0]);
    if (u->rest != nullptr) u->aligned = u->aligned && fits_vectors(&a->out[1]);
    for (int s = 0; s < sl_updates[r->kind].slots; s++) {
        u->slot[s] = a->out[2 + s].data;
        u->aligned = u->aligned && fits_vectors(&a->out[2 + s]);
        if (sl_slot_is_signed(r->kind, s)) u->signed_slots |= 1u << s;
    }
}

void fill_numbers(const sl_cuda_args *a, update_args *u)
{
    const sl_update_rule *r = a->attrs->update;
    u->rounding = mix64(mix64(a->context->seed) + a->context->step);
    u->block = (r->first_element + (uint64_t)a->first) / SL_CUT_ELEMENTS;
    u->leaf = a->first / SL_CUT_ELEMENTS;
    for (int i = 0; i < a->context->group_count && i < SL_MAX_GROUPS; i++)
        u->group[i] = coefficients_from(&a->context->groups[i]);
}

/* ---- Which kernel ---- */

/* Of a rule, with the forms of gradient and weights looked up. A rule without state has f32 "states" alone. */
template <class Rule, int states> constexpr update_launch launch_with()
{
    if constexpr (Rule::slots > 0 || states == STATES_F32)
        return launch_any<Rule, states>;
    else
        return nullptr;
}

/* In the order of sl_update_kind, which is that of the rows. */
const struct rule_row {
    update_launch launch[STATES_COUNT];
} rule_rows[] = {
#define ELEMENTWISE(rule, slots_, squares)                                                                             \
    { { launch_with<rule, STATES_F32>(), launch_with<rule, STATES_BF16>(), launch_with<rule, STATES_BLOCKS8>() } },
#define WHOLE(rule, slots_, squares, measure) { { nullptr, nullptr, nullptr } }, /* update_two_pass.cu */
    SL_UPDATE_RULES(ELEMENTWISE, WHOLE)
#undef ELEMENTWISE
#undef WHOLE
};

#define SAME_SLOTS(rule, slots_, ...) static_assert(rule::slots == slots_, #rule ": update_rule.h has other slots");
SL_UPDATE_RULES(SAME_SLOTS, SAME_SLOTS)
#undef SAME_SLOTS

/* Adam's with all forms known. */
#define ADAM_FORMS(read, weights, states)                                                                              \
    {                                                                                                                  \
        read, weights, states,                                                                                         \
        {                                                                                                              \
            launch_update<adam_l2, read, weights, states>, launch_update<adam_decoupled, read, weights, states>        \
        }                                                                                                              \
    }
const struct adam_row {
    int read, weights, states;
    update_launch launch[2]; /* L2 decay, decoupled decay */
} adam_rows[] = {
    ADAM_FORMS(READ_F32, WEIGHTS_F32, STATES_F32),    ADAM_FORMS(READ_BF16, WEIGHTS_BF16, STATES_F32),
    ADAM_FORMS(READ_BF16, WEIGHTS_BF16, STATES_BF16), ADAM_FORMS(READ_BF16, WEIGHTS_BF16, STATES_BLOCKS8),
    ADAM_FORMS(READ_F16, WEIGHTS_F16, STATES_F32),
};

update_launch launch_of(sl_update_kind kind, const update_args *u, int states)
{
    const bool plain_adam = kind == SL_UPDATE_adam_l2 || kind == SL_UPDATE_adam_decoupled;
    for (const adam_row &row : adam_rows)
        if (plain_adam && row.read == u->read && row.weights == u->weights && row.states == states)
            return row.launch[kind == SL_UPDATE_adam_decoupled];
    return rule_rows[kind].launch[states];
}

/* -1: no form of states. */
int states_of(const sl_cuda_args *a)
{
    if (sl_updates[a->attrs->update->kind].slots == 0 || a->out[2].form == SL_FORM_F32) return STATES_F32;
    return a->out[2].form == SL_FORM_BF16 ? STATES_BF16 : a->out[2].form == SL_FORM_BLOCKS8 ? STATES_BLOCKS8 : -1;
}

/* Codes are read four at a time. */
bool blocks_fit(const sl_cuda_args *a)
{
    for (int s = 0; s < sl_updates[a->attrs->update->kind].slots; s++)
        if (a->out[2 + s].form == SL_FORM_BLOCKS8 && !aligned_for(a->out[2 + s].data, sizeof(int32_t))) return false;
    return true;
}
} // namespace SL_KERNELS

/* Operands: in[0] gradient, in[1] sl_norm_result, out[0] weights, out[1] the master's remainder, out[2 ..] state slots,
 * all of one form. */
extern "C" sluice_status sl_cuda_update(const sl_cuda_args *a)
{
    const sl_update_rule *r = a->attrs->update;
    const bool two_pass = sl_updates[r->kind].whole_parameters;
    const int states = states_of(a);
    if (a->out[0].elements == 0) return SLUICE_OK;
    SL_TRY(sl_check_workspace(SL_OP_UPDATE, a));
    if (states < 0 || (two_pass && states != STATES_F32) || !blocks_fit(a))
        return sl_fail(SLUICE_ERR_FAILED, "update %s: no such states (%s)", a->name != nullptr ? a->name : "?",
                       sl_form_name(a->out[2].form));
    const sl_cuda_update_layout layout = sl_cuda_update_layout_of(r);
    update_args u = {};
    fill_operands(a, &u);
    fill_numbers(a, &u);
    u.read = read_of(a->in[0].form, a->wire);
    u.weights = a->out[0].form == SL_FORM_BF16  ? WEIGHTS_BF16
                : a->out[0].form == SL_FORM_F16 ? WEIGHTS_F16
                                                : WEIGHTS_F32;
    fill_table(a, &u, &layout, !two_pass, states == STATES_BLOCKS8);
    if (two_pass)
        return sl_cuda_update_in_two_passes(a, &u, (double *)((char *)a->workspace + layout.partials),
                                            (float *)((char *)a->workspace + layout.rates));
    launch_of(r->kind, &u, states)(u, a->stream);
    return sl_launched(a);
}

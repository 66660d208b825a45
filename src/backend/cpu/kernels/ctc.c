/* ctc.c: connectionist temporal classification with its gradient.
 *
 * The states of a sequence of n labels are blank, label 0, blank, label 1, .., blank. A way through the frames stays in a
 * state, goes on to the next, or leaves out a blank between different labels. Both passes work on logarithms in f32,
 * sixteen states at a time, and give each frame's numbers relative to the largest: sums over many frames then lose nothing.
 * What was taken off is summed in double. The impossible is a large negative number, so that no infinities are subtracted.
 *
 * A sequence is one task: the order of its sums is fixed. */
#include "backend/cpu/kernels/rows.h"
#include "backend/cpu/kernels/sequence_size.h"

#define IMPOSSIBLE (-1e30f)
#define LEAD       SL_LANES /* impossible states before the first of a row */

typedef struct ctc_job {
    const sl_kernel_args *a;
    int64_t batch, frames, classes, most_labels, row; /* row: of states, in memory */
    int64_t frames_per_task;
    int32_t blank;
    bool zero_infinity;
    const int32_t *labels, *lengths;
    elem *dlogits; /* NULL: not wanted */
    double *nll;   /* of each sequence */
    float *lse;    /* of each frame */
    float *alpha;  /* [B,T,row] */
} ctc_job;

/* A sequence at work. Rows of states begin with the first state; LEAD floats before it, and those behind, are there. */
typedef struct ctc_sequence {
    const ctc_job *j;
    int64_t b, frames, labels, states;
    const int32_t *label;
    bool known;      /* all labels are classes, and not the blank */
    float *emission; /* log p of each state's class in the frame at hand */
    float *leap;     /* 0 where the state before last leads to this one, else IMPOSSIBLE */
    float *next, *beta;
    float *expected; /* [classes], zeros */
} ctc_sequence;

/* ---- frames ---- */

static int64_t length_of(const ctc_job *j, int64_t b)
{
    const int64_t n = j->lengths[b];
    return n < 0 ? 0 : sl_least(n, j->frames);
}

/* Frame f of all sequences, flat. */
static const elem *logits_at(const ctc_job *j, int64_t frame)
{
    return (const elem *)j->a->in[0].data + frame * j->classes;
}

static void lse_task(void *context, int64_t task, void *scratch)
{
    const ctc_job *j = context;
    const sl_slice r = sl_task_range(task, j->frames_per_task, j->batch * j->frames);
    (void)scratch;
    for (int64_t frame = r.begin; frame < r.end; frame++)
        if (frame % j->frames < length_of(j, frame / j->frames))
            j->lse[frame] = sl_row_lse(logits_at(j, frame), j->classes);
}

/* ---- states ---- */

static int32_t class_of(const ctc_sequence *q, int64_t state)
{
    return state % 2 == 0 ? q->j->blank : q->label[state / 2];
}

static void clear_row(const ctc_job *j, float *row)
{
    for (int64_t i = -LEAD; i < j->row - LEAD; i++) row[i] = IMPOSSIBLE;
}

static ctc_sequence open_sequence(const ctc_job *j, int64_t b, float *scratch)
{
    ctc_sequence q = { .j = j, .b = b, .frames = length_of(j, b), .label = j->labels + b * j->most_labels };
    q.known = true;
    while (q.labels < j->most_labels && q.label[q.labels] >= 0) {
        const int32_t label = q.label[q.labels++];
        q.known = q.known && label < j->classes && label != j->blank;
    }
    q.states = 2 * q.labels + 1;
    float *rows[4];
    for (int i = 0; i < 4; i++) clear_row(j, rows[i] = scratch + i * j->row + LEAD);
    q.emission = rows[0];
    q.leap = rows[1];
    q.next = rows[2];
    q.beta = rows[3];
    q.expected = scratch + 4 * j->row;
    for (int64_t s = 3; s < q.states; s += 2)
        if (q.label[s / 2] != q.label[s / 2 - 1]) q.leap[s] = 0.0f;
    return q;
}

static void set_emission(const ctc_sequence *q, int64_t f)
{
    const int64_t frame = q->b * q->j->frames + f;
    const elem *x = logits_at(q->j, frame);
    const float lse = q->j->lse[frame], blank = e1_get(x + q->j->blank) - lse;
    for (int64_t s = 0; s < q->states; s += 2) q->emission[s] = blank;
    for (int64_t s = 1; s < q->states; s += 2) q->emission[s] = e1_get(x + q->label[s / 2]) - lse;
}

/* log(e^a + e^b + e^c) */
SL_INLINE sl_v16 join(sl_v16 a, sl_v16 b, sl_v16 c)
{
    const sl_v16 top = v16_max(v16_max(a, b), c);
    const sl_v16 sum = v16_add(v16_add(v16_exp(v16_sub(a, top)), v16_exp(v16_sub(b, top))), v16_exp(v16_sub(c, top)));
    return v16_add(top, v16_log1p(v16_sub(sum, v16_set1(1.0f))));
}

/* Not below IMPOSSIBLE, where a logit is -infinity; NaN passes. */
SL_INLINE sl_v16 bounded(sl_v16 x)
{
    return v16_max(v16_set1(IMPOSSIBLE), x);
}

/* Takes the largest of a row off the row, and returns it. States behind the last stay impossible. */
static float take_top(const ctc_sequence *q, float *row)
{
    sl_v16 top = v16_set1(IMPOSSIBLE);
    for (int64_t s = 0; s < q->states; s += SL_LANES) top = v16_max(v16_load(row + s), top);
    const float most = v16_max_lane(top);
    for (int64_t s = 0; s < q->states; s += SL_LANES)
        v16_store(row + s, bounded(v16_sub(v16_load(row + s), v16_set1(most))));
    return most;
}

/* ---- forward: alpha ---- */

static float *alpha_at(const ctc_sequence *q, int64_t f)
{
    return q->j->alpha + (q->b * q->j->frames + f) * q->j->row + LEAD;
}

/* alpha of frame f, the frame's emission included. */
static void step_alpha(const ctc_sequence *q, int64_t f)
{
    float *to = alpha_at(q, f);
    clear_row(q->j, to);
    if (f == 0) {
        for (int64_t s = 0; s < 2 && s < q->states; s++) to[s] = q->emission[s];
        return;
    }
    const float *from = alpha_at(q, f - 1);
    for (int64_t s = 0; s < q->states; s += SL_LANES) {
        sl_v16 leap = v16_add(v16_load(from + s - 2), v16_load(q->leap + s));
        sl_v16 ways = join(v16_load(from + s), v16_load(from + s - 1), leap);
        v16_store(to + s, bounded(v16_add(ways, v16_load(q->emission + s))));
    }
}

/* -log of the probability of the labels; infinite where no way leads to the end. */
static double forward_pass(const ctc_sequence *q)
{
    double taken = 0.0;
    if (!q->known) return NAN;
    if (q->frames == 0) return q->labels == 0 ? 0.0 : INFINITY;
    for (int64_t f = 0; f < q->frames; f++) {
        const float lse = q->j->lse[q->b * q->j->frames + f];
        if (lse != lse) return NAN; /* which the largest of a row would pass over */
        set_emission(q, f);
        step_alpha(q, f);
        const float top = take_top(q, alpha_at(q, f));
        if (top <= IMPOSSIBLE / 2) return INFINITY;
        taken += (double)top;
    }
    const float *last = alpha_at(q, q->frames - 1) + q->states - 1;
    const sl_v16 none = v16_set1(IMPOSSIBLE), before = q->states > 1 ? v16_set1(last[-1]) : none;
    const float rest = v16_max_lane(join(v16_set1(*last), before, none));
    return rest <= IMPOSSIBLE / 2 ? INFINITY : -(taken + (double)rest);
}

/* ---- backward: beta, and what ways expect ---- */

/* beta of frame f, its emission not included: q->next has frame f + 1's with it. */
static void step_beta(const ctc_sequence *q, int64_t f)
{
    if (f == q->frames - 1) {
        q->beta[q->states - 1] = 0.0f;
        if (q->states > 1) q->beta[q->states - 2] = 0.0f;
        return;
    }
    for (int64_t s = 0; s < q->states; s += SL_LANES) {
        sl_v16 leap = v16_add(v16_load(q->next + s + 2), v16_load(q->leap + s + 2));
        v16_store(q->beta + s, bounded(join(v16_load(q->next + s), v16_load(q->next + s + 1), leap)));
    }
    for (int64_t s = q->states; s < q->j->row - LEAD; s++) q->beta[s] = IMPOSSIBLE;
    take_top(q, q->beta);
}

/* expected[class] = probability that the labels' ways are in a state of that class at frame f. */
static void expect(const ctc_sequence *q, int64_t f)
{
    float *both = alpha_at(q, f); /* alpha is used up */
    for (int64_t s = 0; s < q->states; s += SL_LANES)
        v16_store(both + s, bounded(v16_add(v16_load(both + s), v16_load(q->beta + s))));
    take_top(q, both);
    sl_v16 sum = v16_set1(0.0f);
    for (int64_t s = 0; s < q->states; s += SL_LANES) {
        sl_v16 e = v16_exp(v16_load(both + s));
        v16_store(both + s, e);
        sum = v16_add(sum, e);
    }
    const float factor = 1.0f / v16_sum(sum);
    for (int64_t s = 0; s < q->states; s++) q->expected[class_of(q, s)] += both[s] * factor;
}

/* dlogits = (softmax - expected) gradient */
static void write_gradient(const ctc_sequence *q, int64_t f, float gradient)
{
    const int64_t n = q->j->classes, frame = q->b * q->j->frames + f;
    const elem *x = logits_at(q->j, frame);
    elem *d = q->j->dlogits + frame * n;
    const sl_v16 lse = v16_set1(q->j->lse[frame]), g = v16_set1(gradient);
    for (int64_t i = 0; i < n; i += SL_LANES) {
        sl_v16 p = v16_exp(v16_sub(e16_get(x + i, n - i, 0.0f), lse));
        e16_put(d + i, v16_mul(v16_sub(p, v16_get(q->expected + i, n - i, 0.0f)), g), n - i);
    }
}

static void clear_expected(const ctc_sequence *q)
{
    for (int64_t s = 0; s < q->states; s++) q->expected[class_of(q, s)] = 0.0f;
}

static void backward_pass(const ctc_sequence *q, float gradient)
{
    memset(q->expected, 0, (size_t)q->j->classes * sizeof *q->expected);
    for (int64_t f = q->frames - 1; f >= 0; f--) {
        step_beta(q, f);
        set_emission(q, f);
        for (int64_t s = 0; s < q->states; s++) q->next[s] = q->beta[s] + q->emission[s];
        expect(q, f);
        write_gradient(q, f, gradient);
        clear_expected(q);
    }
}

/* Every element of the sequence's frames [first, end). */
static void fill_gradient(const ctc_sequence *q, int64_t first, int64_t end, float x)
{
    elem *d = q->j->dlogits + (q->b * q->j->frames + first) * q->j->classes;
    for (int64_t i = 0; i < (end - first) * q->j->classes; i++) e1_put(d + i, x);
}

/* ---- the whole ---- */

static double weight_of(const ctc_sequence *q)
{
    return 1.0 / ((double)(q->labels > 0 ? q->labels : 1) * (double)q->j->batch);
}

static void sequence_task(void *context, int64_t b, void *scratch)
{
    const ctc_job *j = context;
    const ctc_sequence q = open_sequence(j, b, scratch);
    double nll = forward_pass(&q);
    const bool passed_over = nll == INFINITY && j->zero_infinity;
    j->nll[b] = passed_over ? 0.0 : nll * weight_of(&q);
    if (j->dlogits == NULL) return;
    const bool finite = nll - nll == 0.0;
    if (finite)
        backward_pass(&q, (float)((double)j->a->context->seed_gradient * weight_of(&q)));
    else
        fill_gradient(&q, 0, q.frames, passed_over ? 0.0f : NAN);
    fill_gradient(&q, q.frames, j->frames, 0.0f);
}

/* logits[B,T,V], labels[B,S], lengths[B] -> loss, dlogits? */
void K(ctc_loss)(const sl_kernel_args *a)
{
    const sl_shape *x = a->in[0].shape;
    ctc_job j = { .a = a, .batch = x->dim[0], .frames = x->dim[1], .classes = x->dim[2] };
    j.most_labels = a->in[1].shape->dim[1];
    j.row = sl_ctc_row(j.most_labels);
    j.blank = a->attrs->ctc.blank;
    j.zero_infinity = a->attrs->ctc.zero_infinity;
    j.labels = a->in[1].data;
    j.lengths = a->in[2].data;
    j.dlogits = a->context->training && a->output_count > 1 ? a->out[1].data : NULL;
    j.nll = a->workspace;
    j.lse = (float *)(void *)(j.nll + j.batch);
    j.alpha = j.lse + j.batch * j.frames;
    j.frames_per_task = sl_items_per_task(j.classes);
    sl_pool_run(a->pool, lse_task, &j, sl_ceil_div(j.batch * j.frames, j.frames_per_task));
    sl_pool_run(a->pool, sequence_task, &j, j.batch);
    double loss = 0.0;
    for (int64_t b = 0; b < j.batch; b++) loss += j.nll[b];
    *(float *)a->out[0].data = (float)loss;
}

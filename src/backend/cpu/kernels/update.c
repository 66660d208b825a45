/* update.c: one optimizer step over a layer's flat buffers.
 *
 * Each rule is written once, on sixteen lanes, as what happens to one weight and its state given the unscaled, clipped
 * gradient; `sweep` carries it over memory in a single pass that reads the gradient and reads and writes the weight and
 * the state. LAMB and LARS scale a parameter's step by norms of the whole parameter and take two passes: the first
 * measures, the second applies.
 *
 * Same bits everywhere: every operation is one IEEE operation per element, fused exactly where v16_fma is written,
 * divisions and square roots are exact, and denormals are kept. Elementwise work does not depend on cuts; the norms of
 * LAMB and LARS are cut at multiples of 1,024 elements of the layer's flat buffer (leaf_norm.h), so shards can
 * reproduce them.
 *
 * Operands: in[0] gradient, in[1] sl_norm_result, out[0] weights, out[1 ..] state slots. They are a run of the layer's
 * flat buffer that begins at element `first`, a multiple of the cut; the whole layer has first = 0. The rule's segments
 * are in order of offset, in elements of the layer, and do not overlap; neighbours of one group are swept together.
 * Element numbers below are the layer's; only the functions that touch memory take them relative to the run. */
#include "backend/cpu/kernels/isa.h"
#include "backend/cpu/kernels/leaf_norm.h"

#define ALWAYS_INLINE static inline __attribute__((always_inline))

/* Elements per task, a multiple of the cut. */
#define TASK_ELEMENTS ((int64_t)32 * SL_CUT_ELEMENTS)
/* Pieces of parameters that one round of a two-pass rule handles; they live on the caller's stack. */
#define ROUND_PIECES 256

typedef struct buffers {
    const float *g;
    float *w;
    float *slot[SL_MAX_STATE_SLOTS];
} buffers;

/* A group's numbers of this step, in every lane. */
typedef struct coefficients {
    sl_v16 factor;                     /* unscale and clip */
    sl_v16 weight_decay, decay_factor; /* into the gradient; on the weight */
    sl_v16 beta1, one_minus_beta1, beta2, one_minus_beta2, epsilon;
    sl_v16 momentum;
    sl_v16 keep, take;    /* momentum' = keep * momentum + take * gradient; 0 and 1 on the first step */
    sl_v16 inverse_bias2; /* 1 / sqrt(bias_correction2) */
    sl_v16 rate;          /* what the direction is multiplied by: lr, lr / bias_correction1, or with trust */
} coefficients;

/* One weight and its state, sixteen times. */
typedef struct cell {
    sl_v16 w, s[SL_MAX_STATE_SLOTS];
} cell;

typedef void (*cell_fn)(const coefficients *c, sl_v16 g, cell *e);

static void coefficients_fill(coefficients *c, const sl_group_scalars *s, float factor, float rate)
{
    c->factor = v16_set1(factor);
    c->weight_decay = v16_set1(s->weight_decay);
    c->decay_factor = v16_set1(s->decay_factor);
    c->beta1 = v16_set1(s->beta1);
    c->one_minus_beta1 = v16_set1(s->one_minus_beta1);
    c->beta2 = v16_set1(s->beta2);
    c->one_minus_beta2 = v16_set1(s->one_minus_beta2);
    c->epsilon = v16_set1(s->epsilon);
    c->momentum = v16_set1(s->momentum);
    c->keep = v16_set1(s->first_step ? 0.0f : s->momentum);
    c->take = v16_set1(s->first_step ? 1.0f : 1.0f - s->dampening);
    c->inverse_bias2 = v16_set1(1.0f / s->bias2_sqrt);
    c->rate = v16_set1(rate);
}

/* ---- Rules ------------------------------------------------------------------------------------------------------ */

/* w - rate * x, fused. */
ALWAYS_INLINE sl_v16 descend(sl_v16 w, sl_v16 rate, sl_v16 x)
{
    return v16_fma(v16_neg(rate), x, w);
}

/* torch.optim.SGD: L2 decay joins the gradient; the first step's momentum is the gradient. */
ALWAYS_INLINE void sgd_plain(const coefficients *c, sl_v16 g, cell *e)
{
    e->w = descend(e->w, c->rate, v16_fma(c->weight_decay, e->w, g));
}

ALWAYS_INLINE void sgd_momentum(const coefficients *c, sl_v16 g, cell *e)
{
    sl_v16 d = v16_fma(c->weight_decay, e->w, g);
    e->s[0] = v16_fma(c->keep, e->s[0], v16_mul(c->take, d));
    e->w = descend(e->w, c->rate, e->s[0]);
}

ALWAYS_INLINE void sgd_nesterov(const coefficients *c, sl_v16 g, cell *e)
{
    sl_v16 d = v16_fma(c->weight_decay, e->w, g);
    e->s[0] = v16_fma(c->keep, e->s[0], v16_mul(c->take, d));
    e->w = descend(e->w, c->rate, v16_fma(c->momentum, e->s[0], d));
}

/* LARS as in its paper: the local rate scales gradient and decay before they enter the momentum. rate = lr * local
 * rate. */
ALWAYS_INLINE void lars_plain(const coefficients *c, sl_v16 g, cell *e)
{
    sgd_plain(c, g, e);
}

ALWAYS_INLINE void lars_momentum(const coefficients *c, sl_v16 g, cell *e)
{
    sl_v16 d = v16_mul(c->rate, v16_fma(c->weight_decay, e->w, g));
    e->s[0] = v16_fma(c->keep, e->s[0], v16_mul(c->take, d));
    e->w = v16_sub(e->w, e->s[0]);
}

ALWAYS_INLINE void lars_nesterov(const coefficients *c, sl_v16 g, cell *e)
{
    sl_v16 d = v16_mul(c->rate, v16_fma(c->weight_decay, e->w, g));
    e->s[0] = v16_fma(c->keep, e->s[0], v16_mul(c->take, d));
    e->w = v16_sub(e->w, v16_fma(c->momentum, e->s[0], d));
}

/* torch.optim.Adagrad without lr decay. */
ALWAYS_INLINE void adagrad(const coefficients *c, sl_v16 g, cell *e)
{
    sl_v16 d = v16_fma(c->weight_decay, e->w, g);
    e->s[0] = v16_fma(d, d, e->s[0]);
    e->w = descend(e->w, c->rate, v16_div(d, v16_add(v16_sqrt(e->s[0]), c->epsilon)));
}

ALWAYS_INLINE void moments(const coefficients *c, sl_v16 g, cell *e)
{
    e->s[0] = v16_fma(c->beta1, e->s[0], v16_mul(c->one_minus_beta1, g));
    e->s[1] = v16_fma(v16_mul(c->one_minus_beta2, g), g, v16_mul(c->beta2, e->s[1]));
}

/* torch.optim.Adam and AdamW. The division by sqrt(bias_correction2) is a product with its reciprocal, rounded once per
 * step. */
ALWAYS_INLINE void adam_cell(const coefficients *c, sl_v16 g, cell *e, bool decoupled, bool amsgrad)
{
    if (decoupled) e->w = v16_mul(e->w, c->decay_factor);
    if (!decoupled) g = v16_fma(c->weight_decay, e->w, g);
    moments(c, g, e);
    sl_v16 variance = e->s[1];
    if (amsgrad) variance = e->s[2] = v16_max(e->s[2], variance);
    sl_v16 denominator = v16_fma(v16_sqrt(variance), c->inverse_bias2, c->epsilon);
    e->w = descend(e->w, c->rate, v16_div(e->s[0], denominator));
}

ALWAYS_INLINE void adam_l2(const coefficients *c, sl_v16 g, cell *e)
{
    adam_cell(c, g, e, false, false);
}

ALWAYS_INLINE void adam_decoupled(const coefficients *c, sl_v16 g, cell *e)
{
    adam_cell(c, g, e, true, false);
}

ALWAYS_INLINE void adam_l2_amsgrad(const coefficients *c, sl_v16 g, cell *e)
{
    adam_cell(c, g, e, false, true);
}

ALWAYS_INLINE void adam_decoupled_amsgrad(const coefficients *c, sl_v16 g, cell *e)
{
    adam_cell(c, g, e, true, true);
}

/* Lion with decoupled decay: w moves by lr against the sign of the interpolated gradient. Zero has no sign and moves
 * nothing, as in the paper (DeepSpeed's CPU kernel would move such a weight down, its CUDA kernel up). */
ALWAYS_INLINE void lion(const coefficients *c, sl_v16 g, cell *e)
{
    sl_v16 d = v16_fma(c->beta1, e->s[0], v16_mul(c->one_minus_beta1, g));
    sl_v16 against_negative = v16_select_gt0(v16_neg(d), c->rate, v16_set1(0.0f));
    sl_v16 move = v16_select_gt0(d, v16_neg(c->rate), against_negative);
    e->w = v16_fma(e->w, c->decay_factor, move);
    e->s[0] = v16_fma(c->beta2, e->s[0], v16_mul(c->one_minus_beta2, g));
}

/* LAMB as DeepSpeed's FusedLamb: no bias correction inside the direction, epsilon outside the root, decay joins the
 * direction. */
ALWAYS_INLINE sl_v16 lamb_direction(const coefficients *c, const cell *e)
{
    sl_v16 adam = v16_div(e->s[0], v16_add(v16_sqrt(e->s[1]), c->epsilon));
    return v16_fma(c->weight_decay, e->w, adam);
}

/* Second pass: the moments are already this step's. */
ALWAYS_INLINE void lamb_apply(const coefficients *c, sl_v16 g, cell *e)
{
    (void)g;
    e->w = descend(e->w, c->rate, lamb_direction(c, e));
}

/* ---- One pass over memory -----------------------------------------------------------------------------------------
 */

/* Fewer than sixteen elements: a run's ragged start or end. */
ALWAYS_INLINE void sweep_part(const buffers *b, int64_t i, int64_t n, const coefficients *c, int slots, cell_fn rule)
{
    cell e;
    e.w = v16_load_part(b->w + i, n, 0.0f);
    for (int s = 0; s < slots; s++) e.s[s] = v16_load_part(b->slot[s] + i, n, 0.0f);
    rule(c, v16_mul(v16_load_part(b->g + i, n, 0.0f), c->factor), &e);
    v16_store_part(b->w + i, e.w, n);
    for (int s = 0; s < slots; s++) v16_store_part(b->slot[s] + i, e.s[s], n);
}

/* Elements [first, first + count) of the run. The body starts at a multiple of sixteen, so that its loads and stores
 * are whole cache lines. */
ALWAYS_INLINE void sweep(const buffers *buf, int64_t first, int64_t count, const coefficients *coeff, int slots,
                         cell_fn rule)
{
    const buffers b = *buf;
    const coefficients c = *coeff; /* a copy whose address does not escape: it stays in registers */
    int64_t end = first + count, head = -first & (SL_LANES - 1);
    if (head > count) head = count;
    if (head > 0) sweep_part(&b, first, head, &c, slots, rule);
    int64_t i = first + head;
    for (; i + SL_LANES <= end; i += SL_LANES) {
        cell e;
        e.w = v16_load(b.w + i);
        for (int s = 0; s < slots; s++) e.s[s] = v16_load(b.slot[s] + i);
        rule(&c, v16_mul(v16_load(b.g + i), c.factor), &e);
        v16_store(b.w + i, e.w);
        for (int s = 0; s < slots; s++) v16_store(b.slot[s] + i, e.s[s]);
    }
    if (i < end) sweep_part(&b, i, end - i, &c, slots, rule);
}

typedef void (*sweep_fn)(const buffers *b, int64_t first, int64_t count, const coefficients *c);

#define DEFINE_SWEEP(rule_, slots_)                                                                                    \
    static void sweep_##rule_(const buffers *b, int64_t first, int64_t count, const coefficients *c)                   \
    {                                                                                                                  \
        sweep(b, first, count, c, slots_, rule_);                                                                      \
    }
DEFINE_SWEEP(sgd_plain, 0)
DEFINE_SWEEP(sgd_momentum, 1)
DEFINE_SWEEP(sgd_nesterov, 1)
DEFINE_SWEEP(lars_plain, 0)
DEFINE_SWEEP(lars_momentum, 1)
DEFINE_SWEEP(lars_nesterov, 1)
DEFINE_SWEEP(adagrad, 1)
DEFINE_SWEEP(adam_l2, 2)
DEFINE_SWEEP(adam_decoupled, 2)
DEFINE_SWEEP(adam_l2_amsgrad, 3)
DEFINE_SWEEP(adam_decoupled_amsgrad, 3)
DEFINE_SWEEP(lion, 1)

/* The second pass of LAMB reads no gradient and writes only weights. */
static void sweep_lamb_apply(const buffers *b, int64_t first, int64_t count, const coefficients *coeff)
{
    const coefficients c = *coeff;
    int64_t i = first, end = first + count;
    for (; i < end; i += SL_LANES) {
        int64_t n = end - i < SL_LANES ? end - i : SL_LANES;
        cell e;
        bool whole = n == SL_LANES;
        e.w = whole ? v16_load(b->w + i) : v16_load_part(b->w + i, n, 0.0f);
        for (int s = 0; s < 2; s++) e.s[s] = whole ? v16_load(b->slot[s] + i) : v16_load_part(b->slot[s] + i, n, 0.0f);
        lamb_apply(&c, e.w, &e);
        if (whole) v16_store(b->w + i, e.w);
        if (!whole) v16_store_part(b->w + i, e.w, n);
    }
}

/* By kind and variant: momentum kinds 0 none, 1 momentum, 2 Nesterov; Adam bit 0 decoupled, bit 1 amsgrad. */
static const sweep_fn sweeps[SL_UPDATE_KIND_COUNT][4] = {
    [SL_UPDATE_SGD] = { sweep_sgd_plain, sweep_sgd_momentum, sweep_sgd_nesterov },
    [SL_UPDATE_LARS] = { sweep_lars_plain, sweep_lars_momentum, sweep_lars_nesterov },
    [SL_UPDATE_ADAGRAD] = { sweep_adagrad },
    [SL_UPDATE_ADAM] = { sweep_adam_l2, sweep_adam_decoupled, sweep_adam_l2_amsgrad, sweep_adam_decoupled_amsgrad },
    [SL_UPDATE_LAMB] = { sweep_lamb_apply },
    [SL_UPDATE_LION] = { sweep_lion },
};

static int variant_of(const sl_update_rule *r)
{
    if (r->kind == SL_UPDATE_SGD || r->kind == SL_UPDATE_LARS) return r->slots == 0 ? 0 : r->nesterov ? 2 : 1;
    if (r->kind == SL_UPDATE_ADAM) return (r->decoupled_decay ? 1 : 0) | (r->amsgrad ? 2 : 0);
    return 0;
}

typedef struct update_job {
    buffers b;
    const sl_update_rule *rule;
    const sl_group_scalars *groups;
    sweep_fn sweep;
    float factor;
    int64_t begin, end; /* the run: elements of the layer */
} update_job;

/* First segment that ends behind `element`; segment_count when there is none. */
static int segment_behind(const sl_update_rule *r, int64_t element)
{
    int low = 0, high = r->segment_count;
    while (low < high) {
        int mid = low + (high - low) / 2;
        if (r->segments[mid].offset + r->segments[mid].count > element)
            high = mid;
        else
            low = mid + 1;
    }
    return low;
}

/* Elements [low, high) of the layer, neighbouring segments of one group at a time. */
static void update_task(void *context, int64_t task, void *scratch)
{
    const update_job *job = context;
    const sl_update_segment *segments = job->rule->segments;
    int count = job->rule->segment_count;
    int64_t low = job->begin + task * TASK_ELEMENTS, high = low + TASK_ELEMENTS;
    (void)scratch;
    if (high > job->end) high = job->end;
    int s = segment_behind(job->rule, low);
    while (s < count && segments[s].offset < high) {
        int group = segments[s].group;
        int64_t first = segments[s].offset > low ? segments[s].offset : low;
        int64_t end = segments[s].offset + segments[s].count;
        for (s++; s < count && end < high && segments[s].offset == end && segments[s].group == group; s++)
            end += segments[s].count;
        const sl_group_scalars *scalars = &job->groups[group];
        bool adam = job->rule->kind == SL_UPDATE_ADAM;
        coefficients c;
        coefficients_fill(&c, scalars, job->factor, adam ? scalars->step_size : scalars->lr);
        job->sweep(&job->b, first - job->begin, (end < high ? end : high) - first, &c);
    }
}

/* ---- Two passes: LAMB and LARS ------------------------------------------------------------------------------------
 */

/* Part of one parameter inside one task's range of the flat buffer. */
typedef struct piece {
    int segment;
    int64_t first, count;
    double weight_square;    /* first pass: of its weights */
    double direction_square; /* first pass: LAMB of the direction, LARS of the gradient */
    float rate;              /* set between the passes */
} piece;

/* Measures elements [first, first + n) of the run, part of one leaf, and writes both sums of squares. */
typedef void (*measure_fn)(const buffers *b, int64_t first, int64_t n, const coefficients *c, double sums[2]);

/* LAMB's first pass renews the moments. */
static void measure_lamb(const buffers *b, int64_t first, int64_t count, const coefficients *coeff, double sums[2])
{
    const coefficients c = *coeff;
    sl_d16 weight = d16_zero(), direction = d16_zero();
    for (int64_t i = first, end = first + count; i < end; i += SL_LANES) {
        int64_t n = end - i < SL_LANES ? end - i : SL_LANES;
        bool whole = n == SL_LANES;
        cell e;
        e.w = whole ? v16_load(b->w + i) : v16_load_part(b->w + i, n, 0.0f);
        for (int s = 0; s < 2; s++) e.s[s] = whole ? v16_load(b->slot[s] + i) : v16_load_part(b->slot[s] + i, n, 0.0f);
        sl_v16 g = whole ? v16_load(b->g + i) : v16_load_part(b->g + i, n, 0.0f);
        moments(&c, v16_mul(g, c.factor), &e);
        sl_v16 d = lamb_direction(&c, &e);
        if (whole) {
            v16_store(b->slot[0] + i, e.s[0]);
            v16_store(b->slot[1] + i, e.s[1]);
        } else {
            float lanes[SL_LANES]; /* absent lanes may be 0/0 */
            v16_store(lanes, d);
            d = v16_load_part(lanes, n, 0.0f);
            v16_store_part(b->slot[0] + i, e.s[0], n);
            v16_store_part(b->slot[1] + i, e.s[1], n);
        }
        weight = d16_add_square(weight, e.w);
        direction = d16_add_square(direction, d);
    }
    sums[0] = d16_sum(weight);
    sums[1] = d16_sum(direction);
}

/* LARS measures the weights and the unscaled, clipped gradient. */
static void measure_lars(const buffers *b, int64_t first, int64_t count, const coefficients *coeff, double sums[2])
{
    const sl_v16 factor = coeff->factor;
    sl_d16 weight = d16_zero(), gradient = d16_zero();
    int64_t i = first, end = first + count;
    for (; i + SL_LANES <= end; i += SL_LANES) {
        weight = d16_add_square(weight, v16_load(b->w + i));
        gradient = d16_add_square(gradient, v16_mul(v16_load(b->g + i), factor));
    }
    if (i < end) {
        weight = d16_add_square(weight, v16_load_part(b->w + i, end - i, 0.0f));
        gradient = d16_add_square(gradient, v16_mul(v16_load_part(b->g + i, end - i, 0.0f), factor));
    }
    sums[0] = d16_sum(weight);
    sums[1] = d16_sum(gradient);
}

/* LAMB: |w| / |direction| within the bounds, 1 where either is zero; the step is lr * sqrt(bias2) / bias1. */
static float rate_lamb(const sl_group_scalars *s, double weight_square, double direction_square)
{
    float trust = 1.0f;
    if (weight_square != 0.0 && direction_square != 0.0) {
        trust = (float)(sqrt(weight_square) / sqrt(direction_square));
        if (trust > s->trust_max) trust = s->trust_max;
        if (trust < s->trust_min) trust = s->trust_min;
    }
    return s->step_size * s->bias2_sqrt * trust;
}

/* LARS: trust * |w| / (|g| + weight_decay * |w|), 1 where either norm is zero. */
static float rate_lars(const sl_group_scalars *s, double weight_square, double gradient_square)
{
    float local = 1.0f;
    double weight = sqrt(weight_square), gradient = sqrt(gradient_square);
    if (weight != 0.0 && gradient != 0.0)
        local = (float)((double)s->trust * weight / (gradient + (double)s->weight_decay * weight));
    return s->lr * local;
}

/* Rows without a measure take one pass. */
static const struct {
    measure_fn measure;
    float (*rate)(const sl_group_scalars *s, double weight_square, double other_square);
} two_pass[SL_UPDATE_KIND_COUNT] = {
    [SL_UPDATE_LAMB] = { measure_lamb, rate_lamb },
    [SL_UPDATE_LARS] = { measure_lars, rate_lars },
};

typedef struct two_pass_round {
    const update_job *job;
    piece *pieces;
    int count;
} two_pass_round;

/* Leaves of the piece hang in the tree at their index in the layer, so a piece's sum is a subtree of its parameter's.
 */
static void measure_task(void *context, int64_t task, void *scratch)
{
    const two_pass_round *round = context;
    const update_job *job = round->job;
    piece *p = &round->pieces[task];
    coefficients c;
    sl_leaf_tree weight, other;
    (void)scratch;
    memset(&weight, 0, sizeof weight);
    memset(&other, 0, sizeof other);
    coefficients_fill(&c, &job->groups[job->rule->segments[p->segment].group], job->factor, 0.0f);
    for (int64_t i = p->first, end = p->first + p->count; i < end;) {
        int64_t leaf = i / SL_CUT_ELEMENTS, stop = (leaf + 1) * SL_CUT_ELEMENTS;
        double sums[2];
        if (stop > end) stop = end;
        two_pass[job->rule->kind].measure(&job->b, i - job->begin, stop - i, &c, sums);
        sl_leaf_tree_add(&weight, leaf, sums[0]);
        sl_leaf_tree_add(&other, leaf, sums[1]);
        i = stop;
    }
    p->weight_square = sl_leaf_tree_sum(&weight);
    p->direction_square = sl_leaf_tree_sum(&other);
}

static void apply_task(void *context, int64_t task, void *scratch)
{
    const two_pass_round *round = context;
    const update_job *job = round->job;
    const piece *p = &round->pieces[task];
    coefficients c;
    (void)scratch;
    coefficients_fill(&c, &job->groups[job->rule->segments[p->segment].group], job->factor, p->rate);
    job->sweep(&job->b, p->first - job->begin, p->count, &c);
}

/* Pieces of segment `s` from element *from on (absolute), at most `room`; *from moves behind the last one. */
static int cut_segment(const sl_update_rule *r, int s, int64_t *from, piece *out, int room)
{
    int64_t end = r->segments[s].offset + r->segments[s].count;
    int made = 0;
    while (*from < end && made < room) {
        int64_t stop = (*from / TASK_ELEMENTS + 1) * TASK_ELEMENTS;
        if (stop > end) stop = end;
        out[made++] = (piece){ .segment = s, .first = *from, .count = stop - *from };
        *from = stop;
    }
    return made;
}

/* The rate of pieces[0 .. count), all of one segment whose earlier pieces are already in the trees. */
typedef struct segment_norms {
    sl_leaf_tree weight, other;
} segment_norms;

static void norms_add(segment_norms *n, const piece *pieces, int count)
{
    for (int i = 0; i < count; i++) {
        int64_t index = pieces[i].first / TASK_ELEMENTS;
        sl_leaf_tree_add(&n->weight, index, pieces[i].weight_square);
        sl_leaf_tree_add(&n->other, index, pieces[i].direction_square);
    }
}

static float norms_rate(const segment_norms *n, const update_job *job, int segment)
{
    const sl_group_scalars *s = &job->groups[job->rule->segments[segment].group];
    return two_pass[job->rule->kind].rate(s, sl_leaf_tree_sum(&n->weight), sl_leaf_tree_sum(&n->other));
}

/* A parameter of more pieces than a round holds: all rounds of the first pass, then all of the second. */
static void update_large_segment(const update_job *job, int segment, sl_pool *pool)
{
    piece pieces[ROUND_PIECES];
    two_pass_round round = { job, pieces, 0 };
    segment_norms norms;
    int64_t offset = job->rule->segments[segment].offset, from = offset;
    memset(&norms, 0, sizeof norms);
    while ((round.count = cut_segment(job->rule, segment, &from, pieces, ROUND_PIECES)) > 0) {
        sl_pool_run(pool, measure_task, &round, round.count);
        norms_add(&norms, pieces, round.count);
    }
    float rate = norms_rate(&norms, job, segment);
    from = offset;
    while ((round.count = cut_segment(job->rule, segment, &from, pieces, ROUND_PIECES)) > 0) {
        for (int i = 0; i < round.count; i++) pieces[i].rate = rate;
        sl_pool_run(pool, apply_task, &round, round.count);
    }
}

/* Sets every piece's rate; the pieces cover whole segments. */
static void round_set_rates(two_pass_round *round)
{
    for (int first = 0, next; first < round->count; first = next) {
        segment_norms norms;
        memset(&norms, 0, sizeof norms);
        for (next = first; next < round->count && round->pieces[next].segment == round->pieces[first].segment;) next++;
        norms_add(&norms, round->pieces + first, next - first);
        float rate = norms_rate(&norms, round->job, round->pieces[first].segment);
        for (int i = first; i < next; i++) round->pieces[i].rate = rate;
    }
}

/* As many whole segments before `stop` as fit in one round, both passes. Returns the segment behind them; `segment`
 * itself when not even that fits. */
static int update_small_segments(const update_job *job, int segment, int stop, sl_pool *pool)
{
    piece pieces[ROUND_PIECES];
    two_pass_round round = { job, pieces, 0 };
    for (; segment < stop; segment++) {
        int64_t from = job->rule->segments[segment].offset, end = from + job->rule->segments[segment].count;
        int made = cut_segment(job->rule, segment, &from, pieces + round.count, ROUND_PIECES - round.count);
        if (from < end) break;
        round.count += made;
    }
    if (round.count == 0) return segment;
    sl_pool_run(pool, measure_task, &round, round.count);
    round_set_rates(&round);
    sl_pool_run(pool, apply_task, &round, round.count);
    return segment;
}

/* The run holds its segments whole: the device has checked it. */
static void update_in_two_passes(const update_job *job, sl_pool *pool)
{
    int segment = segment_behind(job->rule, job->begin), stop = segment_behind(job->rule, job->end - 1);
    if (stop < job->rule->segment_count && job->rule->segments[stop].offset < job->end) stop++;
    while (segment < stop) {
        int next = update_small_segments(job, segment, stop, pool);
        if (next == segment) update_large_segment(job, next++, pool);
        segment = next;
    }
}

void K(update)(const sl_kernel_args *a)
{
    const sl_norm_result *norm = a->in[1].data;
    const sl_update_rule *rule = a->attrs->update;
    if (!norm->finite || a->out[0].elements == 0) return;
    update_job job = { .rule = rule, .groups = a->context->groups, .factor = norm->factor };
    job.begin = a->first;
    job.end = a->first + a->out[0].elements;
    job.b.g = a->in[0].data;
    job.b.w = a->out[0].data;
    for (int s = 0; s < rule->slots; s++) job.b.slot[s] = a->out[1 + s].data;
    job.sweep = sweeps[rule->kind][variant_of(rule)];
    if (two_pass[rule->kind].measure != NULL) {
        update_in_two_passes(&job, a->pool);
        return;
    }
    sl_pool_run(a->pool, update_task, &job, sl_ceil_div(a->out[0].elements, TASK_ELEMENTS));
}

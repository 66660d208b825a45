/* update_two_pass.c: LAMB and LARS, which scale a parameter's step by norms of the whole parameter: the first pass
 * measures, the second applies. The norms are cut at multiples of 1,024 elements of the layer's flat buffer
 * (leaf_norm.h), so shards can reproduce them. */
#include "backend/cpu/kernels/update.h"

/* Pieces of parameters that one round handles; they live on the caller's stack. */
#define ROUND_PIECES 256

/* Part of one parameter inside one task's range of the flat buffer. */
typedef struct piece {
    int segment;
    int64_t first, count;
    double weight_square;    /* first pass: of its weights */
    double direction_square; /* first pass: LAMB of the direction, LARS of the gradient */
    float rate;              /* set between the passes */
} piece;

/* LAMB: |w| / |direction| within the bounds, 1 where either is zero; the step is lr * sqrt(bias2) / bias1. */
static float rate_lamb(const sl_group_scalars *s, double weight_square, double direction_square)
{
    float trust = 1.0f;
    if (weight_square != 0.0 && direction_square != 0.0) {
        trust = (float)(sqrt(weight_square) / sqrt(direction_square));
        if (trust > s->trust_max) trust = s->trust_max;
        if (trust < s->trust_min) trust = s->trust_min;
    }
    return s->rate * s->bias2_sqrt * trust;
}

/* LARS: trust * |w| / (|g| + weight_decay * |w|), 1 where either norm is zero. */
static float rate_lars(const sl_group_scalars *s, double weight_square, double gradient_square)
{
    float local = 1.0f;
    double weight = sqrt(weight_square), gradient = sqrt(gradient_square);
    if (weight != 0.0 && gradient != 0.0)
        local = (float)((double)s->trust * weight / (gradient + (double)s->weight_decay * weight));
    return s->rate * local;
}

/* Squares of both norms -> what the direction is multiplied by. */
typedef float (*rate_fn)(const sl_group_scalars *s, double weight_square, double other_square);
static const rate_fn rates[SL_UPDATE_KIND_COUNT] = {
#define ELEMENTWISE(rule_, slots_, squares_)
#define WHOLE(rule_, slots_, squares_, norm_) [SL_UPDATE_##rule_] = rate_##norm_,
    SL_UPDATE_RULES(ELEMENTWISE, WHOLE)
};

typedef struct two_pass_round {
    const update_job *job;
    piece *pieces;
    int count;
} two_pass_round;

/* Elements [low, high) of the layer; states are f32 here. */
static place place_of(const update_job *job, int64_t low, int64_t high)
{
    return (place){ low, high, (uint64_t)(low - job->begin) * sizeof(float), SL_FORM_F32 };
}

/* Leaves of the piece hang in the tree at their index in the layer, so a piece's sum is a subtree of its
 * parameter's. */
static void measure_task(void *context, int64_t task, void *scratch)
{
    const two_pass_round *round = context;
    const update_job *job = round->job;
    piece *p = &round->pieces[task];
    coefficients c;
    sl_leaf_tree weight, other;
    memset(&weight, 0, sizeof weight);
    memset(&other, 0, sizeof other);
    coefficients_fill(&c, &job->context->groups[job->rule->segments[p->segment].group], job->factor, 0.0f);
    for (int64_t i = p->first, end = p->first + p->count; i < end;) {
        int64_t leaf = i / SL_CUT_ELEMENTS, stop = (leaf + 1) * SL_CUT_ELEMENTS;
        double sums[2];
        if (stop > end) stop = end;
        const place here = place_of(job, i, stop);
        const buffers b = KI(update_stage)(job, &here, scratch);
        job->narrow.measure(&b, 0, stop - i, &c, sums);
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
    coefficients_fill(&c, &job->context->groups[job->rule->segments[p->segment].group], job->factor, p->rate);
    if (job->narrow.direct != NULL) {
        job->narrow.direct(&job->b, p->first - job->begin, p->count, &c);
        return;
    }
    for (int64_t i = p->first, end = p->first + p->count; i < end;) {
        int64_t stop = (i / SL_CUT_ELEMENTS + 1) * SL_CUT_ELEMENTS;
        if (stop > end) stop = end;
        const place here = place_of(job, i, stop);
        const buffers b = KI(update_stage)(job, &here, scratch);
        job->narrow.plain(&b, 0, stop - i, &c);
        KI(update_unstage)(job, &here, scratch);
        i = stop;
    }
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
    const sl_group_scalars *s = &job->context->groups[job->rule->segments[segment].group];
    return rates[job->rule->kind](s, sl_leaf_tree_sum(&n->weight), sl_leaf_tree_sum(&n->other));
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

/* The device has checked that the run holds its segments whole. */
void KI(update_in_two_passes)(const update_job *job, sl_pool *pool)
{
    int segment = segment_behind(job->rule, job->begin), stop = segment_behind(job->rule, job->end - 1);
    if (stop < job->rule->segment_count && job->rule->segments[stop].offset < job->end) stop++;
    while (segment < stop) {
        int next = update_small_segments(job, segment, stop, pool);
        if (next == segment) update_large_segment(job, next++, pool);
        segment = next;
    }
}

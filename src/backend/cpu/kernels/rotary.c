/* rotary.c: rotary position embedding. Of a head's rotated dimensions, pairs (i, i + d/2) turn by the position times the
 * frequency of ir/rotary_table.h.
 *
 * Angles are taken in double: sine and cosine at every multiple of POSITIONS, and from there by turning on, position by
 * position, which is exact to a few double roundings over POSITIONS steps and far cheaper than new sines. So an angle
 * depends on its position alone, not on where in a row it stands. A task owns the rows of POSITIONS tokens: of every
 * sequence of the batch, which then share the angles, or of one where positions are given. */
#include "backend/cpu/kernels/elem.h"
#include "ir/rotary_table.h"

#define POSITIONS 16
#define PAIRS     256 /* pairs of a head that share a walk over the positions */

typedef struct rotary_job {
    const elem *x;
    const int32_t *positions; /* [batch, length]; NULL: 0, 1, .. in every sequence */
    elem *y;
    int64_t batch, length, row;
    int64_t heads, width; /* of a head */
    int64_t blocks;       /* of POSITIONS tokens in a sequence */
    sl_rotary_rule rule;
    bool inverse;
} rotary_job;

/* Pairs [first, first + count) of every head, at one position. Lies in the worker's scratch. */
typedef struct rotary_tables {
    int64_t first, count;
    int64_t position; /* of the angles; meaningless until one was started */
    double frequency[PAIRS];
    double cosine[PAIRS], sine[PAIRS];           /* of this position's angle */
    double step_cosine[PAIRS], step_sine[PAIRS]; /* of the angle between positions */
    float c[PAIRS], s[PAIRS];                    /* this position's, rounded; s negated for the inverse */
} rotary_tables;

_Static_assert(sizeof(rotary_tables) <= SL_SCRATCH_BYTES, "the tables must fit in a worker's scratch");

static void start_pairs(const rotary_job *j, rotary_tables *t, int64_t first)
{
    t->first = first;
    t->count = sl_least(PAIRS, j->rule.pairs - first);
    for (int64_t i = 0; i < t->count; i++) {
        t->frequency[i] = sl_rotary_frequency(&j->rule, first + i);
        t->step_cosine[i] = cos(t->frequency[i]);
        t->step_sine[i] = sin(t->frequency[i]);
    }
}

static void start_angles(rotary_tables *t, int64_t position)
{
    for (int64_t i = 0; i < t->count; i++) {
        t->cosine[i] = cos((double)position * t->frequency[i]);
        t->sine[i] = sin((double)position * t->frequency[i]);
    }
    t->position = position;
}

static void next_angles(rotary_tables *t)
{
    for (int64_t i = 0; i < t->count; i++) {
        double c = t->cosine[i], s = t->sine[i];
        t->cosine[i] = c * t->step_cosine[i] - s * t->step_sine[i];
        t->sine[i] = s * t->step_cosine[i] + c * t->step_sine[i];
    }
    t->position++;
}

static void round_angles(const rotary_job *j, rotary_tables *t)
{
    const double longer = j->rule.attention;
    for (int64_t i = 0; i < t->count; i++) {
        t->c[i] = (float)(longer * t->cosine[i]);
        t->s[i] = (float)(longer * (j->inverse ? -t->sine[i] : t->sine[i]));
    }
}

/* The tables at this position. `follows`: they were at some position of this walk before. */
static void go_to(const rotary_job *j, rotary_tables *t, int64_t position, bool follows)
{
    const int64_t start = position - (position % POSITIONS + POSITIONS) % POSITIONS; /* also below 0 */
    if (!follows || t->position < start || t->position > position) start_angles(t, start);
    while (t->position < position) next_angles(t);
    round_angles(j, t);
}

/* The tables' pairs of one head. Both halves are read before either is written: y may be x. */
static void rotate_head(const rotary_job *j, const rotary_tables *t, const elem *x, elem *y)
{
    const elem *x2 = x + j->rule.pairs;
    elem *y2 = y + j->rule.pairs;
    for (int64_t i = 0; i < t->count; i += SL_LANES) {
        int64_t left = t->count - i;
        sl_v16 c = v16_get(t->c + i, left, 0.0f), s = v16_get(t->s + i, left, 0.0f);
        sl_v16 a = e16_get(x + i, left, 0.0f), b = e16_get(x2 + i, left, 0.0f);
        e16_put(y + i, v16_sub(v16_mul(a, c), v16_mul(b, s)), left);
        e16_put(y2 + i, v16_add(v16_mul(b, c), v16_mul(a, s)), left);
    }
}

/* What no pair is of: the rest of every head, and what lies behind the heads. */
static void copy_rest(const rotary_job *j, const elem *x, elem *y)
{
    const int64_t turned = 2 * j->rule.pairs, behind = j->heads * j->width;
    for (int64_t h = 0; h < j->heads && turned < j->width; h++)
        memcpy(y + h * j->width + turned, x + h * j->width + turned, (size_t)(j->width - turned) * sizeof *y);
    memcpy(y + behind, x + behind, (size_t)(j->row - behind) * sizeof *y);
}

static void rotate_row(const rotary_job *j, const rotary_tables *t, int64_t row)
{
    const elem *x = j->x + row * j->row;
    elem *y = j->y + row * j->row;
    for (int64_t h = 0; h < j->heads; h++) rotate_head(j, t, x + h * j->width + t->first, y + h * j->width + t->first);
    if (x != y && t->first == 0) copy_rest(j, x, y);
}

/* Rows of the same positions in every sequence. */
static void shared_task(void *context, int64_t task, void *scratch)
{
    const rotary_job *j = context;
    const sl_slice r = sl_task_range(task, POSITIONS, j->length);
    rotary_tables *t = scratch;
    for (int64_t first = 0; first < j->rule.pairs; first += PAIRS) {
        start_pairs(j, t, first);
        for (int64_t position = r.begin; position < r.end; position++) {
            go_to(j, t, position, position > r.begin);
            for (int64_t b = 0; b < j->batch; b++) rotate_row(j, t, b * j->length + position);
        }
    }
}

/* Rows of one sequence, at the positions given. */
static void given_task(void *context, int64_t task, void *scratch)
{
    const rotary_job *j = context;
    const sl_slice r = sl_task_range(task % j->blocks, POSITIONS, j->length);
    const int64_t sequence = task / j->blocks * j->length;
    rotary_tables *t = scratch;
    for (int64_t first = 0; first < j->rule.pairs; first += PAIRS) {
        start_pairs(j, t, first);
        for (int64_t row = sequence + r.begin; row < sequence + r.end; row++) {
            go_to(j, t, j->positions[row], row > sequence + r.begin);
            rotate_row(j, t, row);
        }
    }
}

void K(rotary)(const sl_kernel_args *a)
{
    const sl_shape *shape = a->in[0].shape;
    rotary_job j = {
        .x = a->in[0].data,
        .positions = a->input_count > 1 ? a->in[1].data : NULL,
        .y = a->out[0].data,
        .batch = shape->dim[0],
        .length = shape->dim[1],
        .row = shape->dim[2],
        .heads = a->attrs->rotary.heads,
        .width = a->attrs->rotary.head_width,
        .rule = sl_rotary_rule_of(a->attrs, shape->dim[1]),
        .inverse = a->attrs->rotary.inverse,
    };
    j.blocks = sl_ceil_div(j.length, POSITIONS);
    sl_pool_run(a->pool, j.positions == NULL ? shared_task : given_task, &j,
                j.positions == NULL ? j.blocks : j.blocks * j.batch);
}

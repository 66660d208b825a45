/* rotary.c: rotary position embedding. Element pairs (i, i + D/2) of a head turn by position * base^(-2i/D).
 *
 * Angles are taken in double: sine and cosine once for the first position of a task, and from there by turning on,
 * position by position, which is exact to a few double roundings over POSITIONS steps and far cheaper than new sines. A
 * task owns its positions in every sequence of the batch. */
#include "backend/cpu/kernels/elem.h"

#define POSITIONS 16
#define PAIRS     256 /* pairs of a head that share a walk over the positions */

typedef struct rotary_job {
    const elem *x;
    elem *y;
    int64_t batch, length, row;
    int64_t heads, pairs;
    double base;
    bool inverse;
} rotary_job;

/* Pairs [first, first + count) of every head, at one position. Lies in the worker's scratch. */
typedef struct rotary_tables {
    int64_t first, count;
    double cosine[PAIRS], sine[PAIRS];           /* of this position's angle */
    double step_cosine[PAIRS], step_sine[PAIRS]; /* of the angle between positions */
    float c[PAIRS], s[PAIRS];                    /* this position's, rounded; s negated for the inverse */
} rotary_tables;

_Static_assert(sizeof(rotary_tables) <= SL_SCRATCH_BYTES, "the tables must fit in a worker's scratch");

static void start_angles(const rotary_job *j, rotary_tables *t, int64_t position)
{
    for (int64_t i = 0; i < t->count; i++) {
        double frequency = pow(j->base, -(double)(t->first + i) / (double)j->pairs);
        t->cosine[i] = cos((double)position * frequency);
        t->sine[i] = sin((double)position * frequency);
        t->step_cosine[i] = cos(frequency);
        t->step_sine[i] = sin(frequency);
    }
}

static void round_angles(const rotary_job *j, rotary_tables *t)
{
    for (int64_t i = 0; i < t->count; i++) {
        t->c[i] = (float)t->cosine[i];
        t->s[i] = (float)(j->inverse ? -t->sine[i] : t->sine[i]);
    }
}

static void next_angles(rotary_tables *t)
{
    for (int64_t i = 0; i < t->count; i++) {
        double c = t->cosine[i], s = t->sine[i];
        t->cosine[i] = c * t->step_cosine[i] - s * t->step_sine[i];
        t->sine[i] = s * t->step_cosine[i] + c * t->step_sine[i];
    }
}

/* The tables' pairs of one head. Both halves are read before either is written: y may be x. */
static void rotate_head(const rotary_job *j, const rotary_tables *t, const elem *x, elem *y)
{
    const elem *x2 = x + j->pairs;
    elem *y2 = y + j->pairs;
    for (int64_t i = 0; i < t->count; i += SL_LANES) {
        int64_t left = t->count - i;
        sl_v16 c = v16_get(t->c + i, left, 0.0f), s = v16_get(t->s + i, left, 0.0f);
        sl_v16 a = e16_get(x + i, left, 0.0f), b = e16_get(x2 + i, left, 0.0f);
        e16_put(y + i, v16_sub(v16_mul(a, c), v16_mul(b, s)), left);
        e16_put(y2 + i, v16_add(v16_mul(b, c), v16_mul(a, s)), left);
    }
}

static void rotate_position(const rotary_job *j, const rotary_tables *t, int64_t position)
{
    const int64_t rotated = j->heads * 2 * j->pairs;
    for (int64_t b = 0; b < j->batch; b++) {
        const elem *x = j->x + (b * j->length + position) * j->row;
        elem *y = j->y + (b * j->length + position) * j->row;
        for (int64_t h = 0; h < j->heads; h++) {
            int64_t at = h * 2 * j->pairs + t->first;
            rotate_head(j, t, x + at, y + at);
        }
        if (x != y && t->first == 0) memcpy(y + rotated, x + rotated, (size_t)(j->row - rotated) * sizeof *y);
    }
}

static void rotary_task(void *context, int64_t task, void *scratch)
{
    const rotary_job *j = context;
    const sl_slice r = sl_task_range(task, POSITIONS, j->length);
    rotary_tables *t = scratch;
    for (t->first = 0; t->first < j->pairs; t->first += PAIRS) {
        t->count = sl_least(PAIRS, j->pairs - t->first);
        start_angles(j, t, r.begin);
        for (int64_t position = r.begin; position < r.end; position++) {
            round_angles(j, t);
            rotate_position(j, t, position);
            next_angles(t);
        }
    }
}

void K(rotary)(const sl_kernel_args *a)
{
    const sl_shape *shape = a->in[0].shape;
    rotary_job j = {
        .x = a->in[0].data,
        .y = a->out[0].data,
        .batch = shape->dim[0],
        .length = shape->dim[1],
        .row = shape->dim[2],
        .heads = a->attrs->rotary.heads,
        .pairs = a->attrs->rotary.head_width / 2,
        .base = (double)a->attrs->rotary.base,
        .inverse = a->attrs->rotary.inverse,
    };
    sl_pool_run(a->pool, rotary_task, &j, sl_ceil_div(j.length, POSITIONS));
}

/* update.h: what the files of the update kernel share: the operands, the numbers of a group, and the work that one
 * sweep over memory does. The kernel itself is described in update.c. */
#ifndef SL_BACKEND_CPU_UPDATE_H
#define SL_BACKEND_CPU_UPDATE_H

#include "backend/cpu/kernels/isa.h"
#include "backend/cpu/kernels/leaf_norm.h"
#include "backend/cpu/kernels/update_lanes.h"

/* Elements per task, a multiple of the cut. */
#define TASK_ELEMENTS ((int64_t)32 * SL_CUT_ELEMENTS)
/* Of values that are read elsewhere than they are written: so many at a time, that lie in the second cache then. */
#define BROUGHT_ELEMENTS ((int64_t)4 * SL_CUT_ELEMENTS)

/* The operands of a run, a block of it, or what was made of them in scratch memory. Element numbers that go with it
 * count from where the pointers point. */
typedef struct buffers {
    sl_read read; /* how g lies */
    const void *g;
    void *w, *rest; /* rest: with 16-bit weights only */
    void *slot[SL_MAX_STATE_SLOTS];
    /* Slots rounded at random; the pointers then point to the start of a block. */
    sl_rounding_key key;                  /* core/rounding.h */
    const uint32_t *words;                /* of a block's places */
    const uint32_t *pairs;                /* the same in the order of update_pairs.h */
    int32_t exponent[SL_MAX_STATE_SLOTS]; /* BLOCKS8: of the block at slot[s] */
    const struct buffers *from;           /* of sweeps that do not work in place: where w, rest and slot are read */
    float *fresh[SL_MAX_STATE_SLOTS];     /* BLOCKS8: where the new values go; they are encoded when all are known */
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

static inline void coefficients_fill(coefficients *c, const sl_group_scalars *s, float factor, float rate)
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

/* Updates elements [first, first + count) of b, all of one group. */
typedef void (*sweep_fn)(const buffers *b, int64_t first, int64_t count, const coefficients *c);
/* Measures elements [first, first + count), part of one leaf, and writes both sums of squares; LAMB renews its
 * moments. */
typedef void (*measure_fn)(const buffers *b, int64_t first, int64_t count, const coefficients *c, double sums[2]);

typedef struct sweeps {
    sweep_fn plain; /* everything in f32 */
    /* On the operands as they lie; NULL: there is none for these forms, they are staged in f32 (update_stage.c). Where
     * slots are rounded at random the pointers point to the start of a block. */
    sweep_fn direct;
    sweep_fn normal;    /* BLOCKS8: direct, where no second moment's code is below 8 */
    measure_fn measure; /* LAMB and LARS */
    /* As direct, but reads b->from and writes b past the caches, to whole lines; NULL: there is none. */
    sweep_fn aside;
} sweeps;

sweeps KI(update_sweeps)(const sl_update_rule *rule, sl_read read, sl_form weights, sl_form states);

typedef struct update_job {
    const sl_update_rule *rule;
    int slots; /* of the rule */
    const sl_run_context *context;
    buffers b; /* of the whole run */
    sl_form weights, states;
    sweeps narrow, wide; /* for blocks whose states have the form `states`, and for those in f32 */
    float factor;
    int64_t begin, end; /* the run: elements of the layer */
    const sl_kernel_args *args;
    bool brings;  /* there are values to be read elsewhere: inputs from 2 on */
    bool streams; /* they are, and go past the caches */
    buffers old;  /* where they are */
} update_job;

/* Part of a block, and how its states lie. */
typedef struct place {
    int64_t low, high; /* elements of the layer */
    uint64_t offset;   /* bytes from the slots' start */
    sl_form states;
} place;

/* A block's operands in f32, in a worker's scratch memory. */
typedef struct stage {
    float g[SL_CUT_ELEMENTS], w[SL_CUT_ELEMENTS], slot[SL_MAX_STATE_SLOTS][SL_CUT_ELEMENTS];
} stage;

/* The operands of a place as they lie. */
buffers KI(update_buffers)(const update_job *job, const place *p);
/* The same in f32: in the stage, or where they lie if that is f32 already; and what was staged back to where it
 * lies. */
buffers KI(update_stage)(const update_job *job, const place *p, stage *s);
void KI(update_unstage)(const update_job *job, const place *p, stage *s);
/* Writes the slots of a whole BLOCKS8 block, b, of n elements from the new values in the stage, rounded at random. */
void KI(update_encode)(const sl_update_rule *rule, const buffers *b, int64_t n, stage *s);

/* Asks for the line `bytes` behind p. Encoding touches no memory but the caches; asking for the next block's operands
 * meanwhile keeps the memory busy. What is not there does no harm. */
ALWAYS_INLINE void ask_for(const void *p, size_t bytes)
{
    __builtin_prefetch((const void *)((uintptr_t)p + bytes));
}

ALWAYS_INLINE void ask_for_next(const buffers *b, size_t gradient_bytes, int64_t i)
{
    size_t ahead = (size_t)(i + SL_CUT_ELEMENTS);
    ask_for(b->g, ahead * gradient_bytes);
    ask_for(b->w, ahead * sizeof(uint16_t));
    ask_for(b->rest, ahead * sizeof(uint16_t));
    ask_for(b->slot[0], ahead + SL_BLOCKS8_HEADER);
    ask_for(b->slot[1], ahead + SL_BLOCKS8_HEADER);
}

/* First segment that ends behind `element`; segment_count when there is none. */
static inline int segment_behind(const sl_update_rule *r, int64_t element)
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

/* LAMB and LARS: the run holds its segments whole. */
void KI(update_in_two_passes)(const update_job *job, sl_pool *pool);

#endif

/* lr_schedule.c: the learning rate of every step.
 *
 * DeepSpeed builds a scheduler, which sets a first rate, and then calls scheduler.step() after each optimizer step. So
 * training step 1 runs at the constructor's rate and step s >= 2 at the rate of "last batch iteration" s - 2; below,
 * `last` is that number, and -1 at step 1. The formulas are DeepSpeed's lr_schedules.py, with its off-by-ones: the
 * numbers must agree, not please.
 *
 * Rates are pure functions of the step, but for reduction on plateau, whose four numbers are in sl_schedule_state. */
#include <math.h>

#include "optim/optim.h"

/* ReduceLROnPlateau leaves the rate alone when the change would be smaller than this. */
#define PLATEAU_EPSILON 1e-8
/* Marks a parameter that has no default. */
#define REQUIRED (-1.0)

static const double pi = 3.14159265358979323846;

typedef struct schedule_row {
    const char *name;
    double (*lr)(const sl_schedule_options *o, const sl_schedule_state *s, int64_t last);
    sluice_status (*check)(const sl_schedule_options *o);
} schedule_row;

/* ---- Warm-up ---- */

/* Share of the way up at `last` < warm-up steps, which DeepSpeed raises to at least 2. */
static double warmup_share(const sl_schedule_options *o, int64_t last, int64_t steps)
{
    if (o->warmup_linear) return (double)last / (double)steps;
    return 1.0 / log((double)steps) * log((double)last + 1.0);
}

static int64_t warmup_steps(const sl_schedule_options *o)
{
    return o->warmup_num_steps < 2 ? 2 : o->warmup_num_steps;
}

static double warmup_max(const sl_schedule_options *o)
{
    return o->warmup_max_lr < 0.0 ? o->base_lr : o->warmup_max_lr;
}

static double lr_warmup(const sl_schedule_options *o, const sl_schedule_state *s, int64_t last)
{
    int64_t steps = warmup_steps(o);
    (void)s;
    if (last < 0) return o->warmup_min_lr;
    double share = last < steps ? warmup_share(o, last, steps) : 1.0;
    return o->warmup_min_lr + (warmup_max(o) - o->warmup_min_lr) * share;
}

static double lr_warmup_decay(const sl_schedule_options *o, const sl_schedule_state *s, int64_t last)
{
    int64_t steps = warmup_steps(o);
    if (last < steps) return lr_warmup(o, s, last);
    double share = (double)(o->total_num_steps - last) / fmax(1.0, (double)(o->total_num_steps - steps));
    return o->warmup_min_lr + (warmup_max(o) - o->warmup_min_lr) * fmax(0.0, share);
}

static double lr_warmup_cosine(const sl_schedule_options *o, const sl_schedule_state *s, int64_t last)
{
    int64_t steps = warmup_steps(o);
    (void)s;
    if (last < 0) return 0.0;
    if (last < steps)
        return o->base_lr * (o->warmup_min_ratio + warmup_share(o, last, steps) * (1.0 - o->warmup_min_ratio));
    double decay_steps = fmax(1.0, (double)(o->total_num_steps - steps));
    double progress = fmin(1.0, (double)(last - steps + 1) / decay_steps);
    double cosine = (1.0 + cos(pi * progress)) / 2.0;
    return o->base_lr * fmax(0.0, o->cos_min_ratio + (1.0 - o->cos_min_ratio) * cosine);
}

/* ---- Range test and one cycle ---- */

static double lr_range_test(const sl_schedule_options *o, const sl_schedule_state *s, int64_t last)
{
    (void)s;
    double interval = (double)(last + 1) / (double)o->range_step_size;
    if (o->range_staircase) interval = floor(interval);
    return o->range_min_lr * (1.0 + o->range_step_rate * interval);
}

typedef struct cycle_shape {
    double first, second, total;
    int64_t first_stairs, second_stairs;
} cycle_shape;

static cycle_shape cycle_of(const sl_schedule_options *o)
{
    cycle_shape c;
    c.first = (double)o->cycle_first_step_size;
    c.second = o->cycle_second_step_size < 0 ? c.first : (double)o->cycle_second_step_size;
    c.total = c.first + c.second;
    c.first_stairs = o->cycle_first_stair_count;
    c.second_stairs = o->cycle_second_stair_count < 0 ? c.first_stairs : o->cycle_second_stair_count;
    return c;
}

/* Height in the cycle: 0 at its ends, 1 at the peak; in stairs where a half has them. */
static double cycle_height(const cycle_shape *c, int64_t last)
{
    double batch = (double)(last + 1), ratio = c->first / c->total;
    double cycle = floor(1.0 + batch / c->total);
    double x = 1.0 + batch / c->total - cycle;
    bool rising = x <= ratio;
    int64_t stairs = rising ? c->first_stairs : c->second_stairs;
    if (stairs <= 0) return rising ? x / ratio : (x - 1.0) / (ratio - 1.0);
    double within = fmod(batch, c->total);
    double position =
        within <= c->first ? within * (double)stairs / c->first : (c->total - within) * (double)stairs / c->second;
    return floor(position) / (double)stairs;
}

static double lr_one_cycle(const sl_schedule_options *o, const sl_schedule_state *s, int64_t last)
{
    cycle_shape c = cycle_of(o);
    (void)s;
    if (last < 0) return o->cycle_min_lr;
    if ((double)last < c.total) return o->cycle_min_lr + (o->cycle_max_lr - o->cycle_min_lr) * cycle_height(&c, last);
    if (o->decay_step_size == 0) return o->cycle_min_lr;
    double interval = ((double)last - c.total + 1.0) / (double)o->decay_step_size;
    return o->cycle_min_lr / (1.0 + o->decay_lr_rate * interval);
}

double sl_schedule_momentum(const sl_schedule_options *o, uint64_t step)
{
    if (o->kind != SL_SCHEDULE_ONE_CYCLE || !o->cycle_momentum) return -1.0;
    cycle_shape c = cycle_of(o);
    int64_t last = (int64_t)step - 2;
    if (last < 0)
        return o->cycle_min_mom; /* DeepSpeed's constructor starts at the low end, its cycle at the high one */
    if ((double)last < c.total)
        return o->cycle_max_mom - (o->cycle_max_mom - o->cycle_min_mom) * cycle_height(&c, last);
    if (o->decay_step_size == 0) return o->cycle_max_mom;
    double interval = ((double)last - c.total + 1.0) / (double)o->decay_step_size;
    return o->cycle_max_mom * (1.0 + o->decay_mom_rate * interval);
}

/* ---- Constant and plateau ---- */

static double lr_constant(const sl_schedule_options *o, const sl_schedule_state *s, int64_t last)
{
    (void)s, (void)last;
    return o->base_lr;
}

static double lr_plateau(const sl_schedule_options *o, const sl_schedule_state *s, int64_t last)
{
    (void)o, (void)last;
    return s->plateau_lr;
}

static void plateau_reduce(const sl_schedule_options *o, sl_schedule_state *s)
{
    double lr = fmax(s->plateau_lr * o->factor, o->min_lr);
    if (s->plateau_lr - lr > PLATEAU_EPSILON) s->plateau_lr = lr;
    s->plateau_cooldown = o->cooldown;
    s->plateau_bad = 0;
}

void sl_schedule_observe(const sl_schedule_options *o, sl_schedule_state *s, double loss)
{
    if (o->kind != SL_SCHEDULE_PLATEAU) return;
    double bar = o->threshold_absolute ? s->plateau_best - o->threshold : s->plateau_best * (1.0 - o->threshold);
    s->plateau_bad++;
    if (loss < bar) {
        s->plateau_best = loss;
        s->plateau_bad = 0;
    }
    if (s->plateau_cooldown > 0) {
        s->plateau_cooldown--;
        s->plateau_bad = 0;
    }
    if (s->plateau_bad > o->patience) plateau_reduce(o, s);
}

/* ---- Checks ---- */

static sluice_status bad(const char *schedule, const char *key, double value, const char *must)
{
    return sl_fail(SLUICE_ERR_USAGE, "scheduler %s: %s is %g; it must be %s", schedule, key, value, must);
}

static sluice_status check_finite(const char *schedule, const char *key, double value)
{
    return isfinite(value) ? SLUICE_OK : bad(schedule, key, value, "a finite number");
}

static sluice_status check_rate(const char *schedule, const char *key, double value)
{
    if (value == REQUIRED)
        return sl_fail(SLUICE_ERR_USAGE, "scheduler %s: %s is missing and has no default", schedule, key);
    return value >= 0.0 && isfinite(value) ? SLUICE_OK : bad(schedule, key, value, "0 or more");
}

static sluice_status check_steps(const char *schedule, const char *key, int64_t value)
{
    return value > 0 ? SLUICE_OK : bad(schedule, key, (double)value, "a positive number of steps");
}

static sluice_status check_warmup_common(const sl_schedule_options *o, const char *name, bool has_total)
{
    SL_TRY(check_rate(name, "warmup_min_lr", o->warmup_min_lr));
    SL_TRY(check_finite(name, "warmup_max_lr", o->warmup_max_lr));
    if (o->warmup_num_steps < 0) return bad(name, "warmup_num_steps", (double)o->warmup_num_steps, "0 or more");
    return has_total ? check_steps(name, "total_num_steps", o->total_num_steps) : SLUICE_OK;
}

static sluice_status check_warmup(const sl_schedule_options *o)
{
    return check_warmup_common(o, "WarmupLR", false);
}

static sluice_status check_warmup_decay(const sl_schedule_options *o)
{
    return check_warmup_common(o, "WarmupDecayLR", true);
}

static sluice_status check_warmup_cosine(const sl_schedule_options *o)
{
    SL_TRY(check_rate("WarmupCosineLR", "warmup_min_ratio", o->warmup_min_ratio));
    SL_TRY(check_rate("WarmupCosineLR", "cos_min_ratio", o->cos_min_ratio));
    return check_warmup_common(o, "WarmupCosineLR", true);
}

static sluice_status check_range_test(const sl_schedule_options *o)
{
    SL_TRY(check_rate("LRRangeTest", "lr_range_test_min_lr", o->range_min_lr));
    SL_TRY(check_finite("LRRangeTest", "lr_range_test_step_rate", o->range_step_rate));
    return check_steps("LRRangeTest", "lr_range_test_step_size", o->range_step_size);
}

static sluice_status check_one_cycle(const sl_schedule_options *o)
{
    const char *name = "OneCycle";
    SL_TRY(check_rate(name, "cycle_min_lr", o->cycle_min_lr));
    SL_TRY(check_rate(name, "cycle_max_lr", o->cycle_max_lr));
    SL_TRY(check_finite(name, "decay_lr_rate", o->decay_lr_rate));
    SL_TRY(check_finite(name, "decay_mom_rate", o->decay_mom_rate));
    SL_TRY(check_steps(name, "cycle_first_step_size", o->cycle_first_step_size));
    if (o->decay_step_size < 0) return bad(name, "decay_step_size", (double)o->decay_step_size, "0 (no decay) or more");
    if (!(o->cycle_min_mom >= 0.0 && o->cycle_min_mom < 1.0))
        return bad(name, "cycle_min_mom", o->cycle_min_mom, "in [0, 1)");
    if (!(o->cycle_max_mom >= 0.0 && o->cycle_max_mom < 1.0))
        return bad(name, "cycle_max_mom", o->cycle_max_mom, "in [0, 1)");
    return SLUICE_OK;
}

static sluice_status check_plateau(const sl_schedule_options *o)
{
    const char *name = "ReduceLROnPlateau";
    if (!(o->factor >= 0.0 && o->factor < 1.0)) return bad(name, "factor", o->factor, "in [0, 1)");
    SL_TRY(check_rate(name, "threshold", o->threshold));
    SL_TRY(check_rate(name, "min_lr", o->min_lr));
    if (o->patience < 0) return bad(name, "patience", (double)o->patience, "0 or more");
    if (o->cooldown < 0) return bad(name, "cooldown", (double)o->cooldown, "0 or more");
    return SLUICE_OK;
}

static sluice_status check_nothing(const sl_schedule_options *o)
{
    (void)o;
    return SLUICE_OK;
}

/* ---- The kinds ---- */

static const schedule_row rows[] = {
    [SL_SCHEDULE_CONSTANT] = { "constant", lr_constant, check_nothing },
    [SL_SCHEDULE_WARMUP] = { "WarmupLR", lr_warmup, check_warmup },
    [SL_SCHEDULE_WARMUP_DECAY] = { "WarmupDecayLR", lr_warmup_decay, check_warmup_decay },
    [SL_SCHEDULE_WARMUP_COSINE] = { "WarmupCosineLR", lr_warmup_cosine, check_warmup_cosine },
    [SL_SCHEDULE_ONE_CYCLE] = { "OneCycle", lr_one_cycle, check_one_cycle },
    [SL_SCHEDULE_RANGE_TEST] = { "LRRangeTest", lr_range_test, check_range_test },
    [SL_SCHEDULE_PLATEAU] = { "ReduceLROnPlateau", lr_plateau, check_plateau },
};

/* The defaults of the constructors. WarmupDecayLR alone has a rate of its own (0.001) where WarmupLR takes the
 * optimizer's. */
void sl_schedule_options_init(sl_schedule_options *o, sl_schedule_kind kind, double base_lr)
{
    *o = (sl_schedule_options){
        .kind = kind,
        .base_lr = base_lr,
        .warmup_max_lr = kind == SL_SCHEDULE_WARMUP_DECAY ? 0.001 : -1.0,
        .warmup_num_steps = 1000,
        .cos_min_ratio = 0.0001,
        .range_min_lr = 1e-3,
        .range_step_rate = 1.0,
        .range_step_size = 2000,
        .cycle_min_lr = REQUIRED,
        .cycle_max_lr = REQUIRED,
        .cycle_first_step_size = 2000,
        .cycle_second_step_size = -1,
        .cycle_second_stair_count = -1,
        .cycle_momentum = true,
        .cycle_min_mom = 0.8,
        .cycle_max_mom = 0.9,
        .factor = 0.1,
        .threshold = 1e-4,
        .patience = 10,
    };
}

void sl_schedule_place_warmup(sl_schedule_options *o, int64_t steps)
{
    if (o->warmup_ratio > 0 && steps > 0) o->warmup_num_steps = (int64_t)ceil(o->warmup_ratio * (double)steps);
}

sluice_status sl_schedule_check(const sl_schedule_options *o)
{
    SL_TRY(check_rate(rows[o->kind].name, "lr", o->base_lr));
    return rows[o->kind].check(o);
}

void sl_schedule_start(const sl_schedule_options *o, sl_schedule_state *s)
{
    *s = (sl_schedule_state){ .plateau_best = INFINITY, .plateau_lr = o->base_lr };
}

double sl_schedule_lr(const sl_schedule_options *o, const sl_schedule_state *s, uint64_t step)
{
    return rows[o->kind].lr(o, s, (int64_t)step - 2);
}

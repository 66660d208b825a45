/* job_settle.c: what is chosen by the memory there is: the rows of a micro-batch that nobody gave; and the configuration
 * printed as a run would have it.
 *
 * Each number of rows that may be chosen is planned as the run would plan it, with the best arrangement that it has. Of the
 * plans that fit, the one with the most rows is taken whose step is expected to take no longer than the others': more rows that
 * leave too little memory have to be paid with recomputation or transfers. All of them add up the same batch in a step. */
#include <inttypes.h>
#include <string.h>

#include "core/bytes.h"
#include "data/packing.h"
#include "machine/recall.h"
#include "train/job.h"
#include "train/run.h"

/* What makes fewer rows worth it. They are other mathematics: measured rates, which are never twice the same, must not decide
 * between what is about as fast. */
#define AS_FAST          1.02
#define AS_FAST_MEASURED 1.05

typedef struct plan_trial {
    int64_t rows;
    sl_auto_candidate best; /* of what can be done with so many */
    uint64_t budget;        /* of the device */
} plan_trial;

/* Data is not open yet: by what the settings say of it. */
static void expect_data(sl_settings *s, sl_job_purpose purpose)
{
    s->model.vocabulary = sl_job_vocabulary_number(s);
    s->model.packed = strcmp(s->data.type, "jsonl") == 0 && s->data.packing == SL_PACKING_DOCUMENTS;
    sl_job_fit_settings(s, purpose, (double)s->steps, s->data.validation > 0 || s->data.validation_path[0] != '\0');
}

/* What the engine chose; its plan as it is where it had nothing to choose. */
static void note_best(const sluice_engine *e, sl_auto_candidate *out)
{
    const sl_auto_result *found = &e->arrangements;
    *out = (sl_auto_candidate){ .fits = true, .seconds = e->plan->totals.step_seconds };
    sl_arrangement_clear(&out->arrangement);
    memcpy(out->peak, e->plan->totals.peak, sizeof out->peak);
    if (found->chosen >= 0) *out = found->tried[found->chosen];
}

static sluice_status plan_rows(const sl_job *j, const sl_engine_options *options, plan_trial *out)
{
    sluice_graph *graph = NULL;
    sluice_engine *engine = NULL;
    sl_model_info info;
    sluice_status st = sl_job_build_graph(j, &options->settings->model, true, &graph, &info);
    if (st == SLUICE_OK) st = sl_engine_create(graph, options, &engine);
    if (st == SLUICE_OK) {
        note_best(engine, &out->best);
        out->budget = engine->plan->options.budget[SL_TIER_DEVICE];
    }
    sluice_engine_destroy(engine);
    sluice_graph_destroy(graph);
    return st == SLUICE_ERR_NO_FIT ? SLUICE_OK : st;
}

/* Rates are of one graph: those of another number of rows are measured on their own. A rank that is alone cannot measure what
 * several do at once; then none of the choices is measured, so that like is compared with like. */
static bool measures_rows(const sl_machine_choice *choice, int ranks)
{
    return choice->measures && ranks == 1;
}

static double as_fast(const sluice_job_options *o, int ranks)
{
    const sl_machine_choice choice = sl_machine_choose(o->machine);
    return measures_rows(&choice, ranks) ? AS_FAST_MEASURED : AS_FAST;
}

/* As the engine of the job will plan, on a rank that is alone: whether something fits is no failure of the others'. */
static sluice_status try_rows(sl_job *j, const sluice_job_options *o, sl_job_purpose purpose, plan_trial *out)
{
    sl_settings s = j->settings;
    sl_machine_description machine;
    sl_ranks alone = { .comm = NULL };
    sl_batch_growth growth;
    const sl_machine_choice choice = sl_machine_choose(o->machine);
    bool described = false;
    s.optim.groups = s.groups;
    sl_config_choose_batch(out->rows, &s);
    expect_data(&s, purpose);
    s.plan.rank_count = purpose == SL_JOB_TRAIN ? j->ranks.count : sl_job_planned_ranks(o);
    SL_TRY(sl_job_let_grow(&s, s.plan.rank_count, &growth));
    if (purpose == SL_JOB_PLAN) SL_TRY(sl_job_describe_machine(o, &machine, &described));
    sluice_status st = sl_ranks_open(NULL, &alone);
    if (st == SLUICE_OK) {
        alone.local = purpose == SL_JOB_TRAIN ? j->ranks.local : described ? 1 : s.plan.rank_count;
        alone.local_rank = j->ranks.local_rank;
        alone.place = j->ranks.place;
        st = plan_rows(j,
                       &(sl_engine_options){ .training = true,
                                             .plan_only = true,
                                             .ranks = &alone,
                                             .machine = described ? &machine : NULL,
                                             .settings = &s,
                                             .brief = true,
                                             .measures = !described && measures_rows(&choice, s.plan.rank_count),
                                             .tuned = j->has_tuned ? &j->tuned : NULL,
                                             .stop = j->stop },
                       out);
    }
    sl_ranks_close(&alone);
    return st;
}

/* Whether the last one was worse than the one before: still fewer rows are not tried, as a plan of a large model in a small
 * memory takes seconds. */
static bool is_slower(const plan_trial *tried, int count, double margin)
{
    const plan_trial *last = &tried[count - 1];
    return count > 1 && last[-1].best.fits && last->best.seconds > margin * last[-1].best.seconds;
}

/* The most rows that fit and are as fast as any; the fewest where none fit. */
static const plan_trial *best_of(const plan_trial *tried, int count, double margin)
{
    double least = 0;
    for (int i = 0; i < count; i++)
        if (tried[i].best.fits && (least == 0 || tried[i].best.seconds < least)) least = tried[i].best.seconds;
    for (int i = 0; i < count; i++)
        if (tried[i].best.fits && tried[i].best.seconds <= margin * least) return &tried[i];
    return &tried[count - 1];
}

static void explain(const sl_settings *s, const plan_trial *tried, const plan_trial *best, char *why, size_t room)
{
    char memory[32];
    uint64_t told = s->plan.budget[SL_TIER_DEVICE];
    if (!best->best.fits) {
        snprintf(why, room, "not even the fewest rows fit");
        return;
    }
    sl_format_bytes(told > 0 ? told : best->budget, memory, sizeof memory);
    if (best == tried)
        snprintf(why, room, "the most within %d rows and %d tokens; it fits in %s", SL_BATCH_MOST_ROWS,
                 SL_BATCH_MOST_TOKENS, memory);
    else if (best[-1].best.fits)
        snprintf(why, room, "%" PRId64 " rows fit in %s too, but a step of them would be slower", best[-1].rows,
                 memory);
    else
        snprintf(why, room, "the largest that fits in %s", memory);
}

/* Whether so many rows are among the choices. */
static bool is_choice(const int64_t *choices, int count, int64_t rows)
{
    for (int i = 0; i < count; i++)
        if (choices[i] == rows) return true;
    return false;
}

/* Those that were not chosen. */
static void keep_trials(sl_job *j, const plan_trial *tried, int count, const plan_trial *best)
{
    j->row_count = 0;
    for (int i = 0; i < count; i++) {
        if (&tried[i] == best) continue;
        sl_auto_candidate *c = &j->rows[j->row_count++];
        *c = tried[i].best;
        if (!c->fits) sl_arrangement_clear(&c->arrangement);
        c->arrangement.values[SL_AXIS_MICRO_BATCH] = tried[i].rows;
    }
}

/* *rows 0: the model cannot be planned here; whoever needs the plan says why. What was measured before is taken where it
 * fits. */
static sluice_status choose_rows(sl_job *j, const sluice_job_options *o, sl_job_purpose purpose, uint64_t *rows,
                                 char *why, size_t room)
{
    int64_t choices[SL_BATCH_CHOICES], tuned = j->has_tuned ? j->tuned.values[SL_AXIS_MICRO_BATCH] : SL_AXIS_UNSET;
    plan_trial tried[SL_BATCH_CHOICES];
    int known = sl_job_vocabulary_number(&j->settings) > 0 ? sl_config_batch_choices(&j->settings, choices) : 0;
    int count = 0;
    double margin = as_fast(o, purpose == SL_JOB_TRAIN ? j->ranks.count : sl_job_planned_ranks(o));
    *rows = 0;
    if (is_choice(choices, known, tuned)) {
        plan_trial before = { .rows = tuned };
        if (try_rows(j, o, purpose, &before) == SLUICE_OK && before.best.fits) *rows = (uint64_t)tuned;
        snprintf(why, room, "as sluice tune measured");
        if (*rows > 0) return SLUICE_OK;
    }
    while (count < known && !is_slower(tried, count, margin)) {
        tried[count] = (plan_trial){ .rows = choices[count] };
        sluice_status st = try_rows(j, o, purpose, &tried[count++]);
        if (st == SLUICE_ERR_STOPPED) return st;
        if (st != SLUICE_OK) return SLUICE_OK;
    }
    if (count == 0) return SLUICE_OK;
    const plan_trial *best = best_of(tried, count, margin);
    explain(&j->settings, tried, best, why, room);
    keep_trials(j, tried, count, best);
    *rows = (uint64_t)best->rows;
    return SLUICE_OK;
}

/* What a run that goes on has had so far, whatever memory there is now. */
static uint64_t kept_rows(const sl_job *j, const sluice_job_options *o, char *why, size_t room)
{
    int64_t all = j->settings.model.batch * j->settings.plan.accumulation;
    if (!o->resume || j->settings.checkpoint.path[0] == '\0') return 0;
    uint64_t rows = sl_checkpoint_micro_batch(j->settings.checkpoint.path);
    if (rows == 0 || rows > (uint64_t)all || (uint64_t)all % rows != 0) return 0; /* refused when it is loaded */
    snprintf(why, room, "as the checkpoint has it");
    return rows;
}

sluice_status sl_job_choose_batch(sl_job *j, const sluice_job_options *o, sl_job_purpose purpose)
{
    char why[160] = "";
    uint64_t rows = 0, mine;
    if (!j->settings.given.open_batch || purpose == SL_JOB_GENERATE) return SLUICE_OK;
    if (purpose == SL_JOB_TRAIN)
        SL_TRY(sl_ranks_least(&j->ranks, "micro-batch of the checkpoint", kept_rows(j, o, why, sizeof why), &rows));
    if (rows == 0 && purpose != SL_JOB_EVALUATE) {
        SL_TRY(
            sl_ranks_agree(&j->ranks, "choosing the micro-batch", choose_rows(j, o, purpose, &mine, why, sizeof why)));
        SL_TRY(sl_ranks_least(&j->ranks, "micro-batches that fit", mine, &rows));
        if (rows < mine) snprintf(why, sizeof why, "the largest that fits on every rank");
    }
    if (rows > 0) sl_config_choose_batch((int64_t)rows, &j->settings);
    if (purpose != SL_JOB_EVALUATE) sl_config_tell_batch(&j->settings, rows > 0 ? why : NULL, &j->log);
    return SLUICE_OK;
}

void sl_job_list_arrangements(sl_job *j)
{
    sl_auto_result *all = &j->arrangements;
    *all = j->engine->arrangements;
    if (j->settings.given.open_batch)
        for (int i = 0; i < all->count; i++)
            all->tried[i].arrangement.values[SL_AXIS_MICRO_BATCH] = j->settings.model.batch;
    for (int i = 0; i < j->row_count && all->count < SL_AUTO_MOST; i++) all->tried[all->count++] = j->rows[i];
}

sluice_status sluice_job_config(const sluice_config *c, const sluice_job_options *given)
{
    sl_job j = { .data = NULL };
    sluice_job_options o;
    SL_TRY(sl_job_take_options(c, given, SL_JOB_PLAN, "sluice_job_config", &o));
    if (o.out == NULL) return sl_fail(SLUICE_ERR_USAGE, "sluice_job_config: options.out is NULL");
    j.stop = o.stop;
    j.log = (sl_log){ o.log, o.log_user, 0, 1 };
    sluice_status st = sl_ranks_open(NULL, &j.ranks);
    if (st == SLUICE_OK) st = sl_config_resolve(c, o.ranks, &j.log, &j.settings);
    if (st == SLUICE_OK) st = sl_job_choose_batch(&j, &o, SL_JOB_PLAN);
    if (st == SLUICE_OK) sl_settings_print(&j.settings, o.out);
    sl_ranks_close(&j.ranks);
    return st;
}

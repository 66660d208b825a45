/* job_tune.c: sluice tune: the best of what a search expects, measured with the engine that would train; and what a run takes of
 * that afterwards.
 *
 * Each candidate is a job of its own, opened as for training, whose first steps are computed and forgotten: nothing is written
 * but the result. The candidates come in one order and then in the other, so that a machine that becomes slower or faster
 * meanwhile favours none. */
#include "core/alloc.h"
#include "core/bytes.h"
#include "machine/recall.h"
#include "train/run.h"
#include "train/tuned_file.h"

#define USUAL_STEPS 6
#define USUAL_KEPT  4
#define MOST_STEPS  10000
#define MOST_KEPT   16
#define ROUNDS      2
#define FASTER      0.99 /* of the expected best's time: less is noise */
#define MATHEMATICS 0.95 /* other micro-batches give other bits, and have to be worth it */

/* ---- what a run takes ---- */

typedef struct tuned_note {
    int32_t taken, spare;
    sl_arrangement arrangement;
} tuned_note;

static bool path_of(const sl_settings *s, char path[PATH_MAX])
{
    return s->checkpoint.path[0] != '\0' &&
           snprintf(path, PATH_MAX, "%s/" SL_TUNED_FILE, s->checkpoint.path) < PATH_MAX;
}

/* What settings give stays as it is given. */
static void leave_given(const sl_settings *s, int ranks, sl_arrangement *a)
{
    sl_plan_options plan = s->plan;
    plan.rank_count = ranks;
    for (int axis = 0; axis < SL_AXIS_COUNT; axis++) {
        bool open = axis == SL_AXIS_MICRO_BATCH ? s->given.open_batch : sl_axis_is_open((sl_axis)axis, &plan);
        if (!open) a->values[axis] = SL_AXIS_UNSET;
    }
}

/* Rank 0 reads for all. */
static sluice_status read_tuned(const sl_job *j, int ranks, tuned_note *out)
{
    const sl_log notes = { j->log_to, j->log_user, 0, 1 };
    char path[PATH_MAX], what[160];
    sl_tuned t;
    sl_tuned_identity here;
    if (!path_of(&j->settings, path) || !sl_path_exists(path)) return SLUICE_OK;
    SL_TRY(sl_tuned_read(path, &t));
    SL_TRY(sl_tuned_identify(&j->settings, ranks, &here));
    const char *differs = sl_tuned_differs(&t.identity, &here);
    if (differs != NULL) {
        sl_log_write(&notes, SLUICE_LOG_NOTE, "%s was measured %s, and is ignored; sluice tune makes it anew", path,
                     differs);
        return SLUICE_OK;
    }
    leave_given(&j->settings, ranks, &t.arrangement);
    out->taken = 1;
    out->arrangement = t.arrangement;
    sl_log_write(&notes, SLUICE_LOG_NOTE, "tuned: %s, as %s says it was fastest here",
                 sl_arrangement_describe(&t.arrangement, what, sizeof what), path);
    return SLUICE_OK;
}

sluice_status sl_job_take_tuned(sl_job *j, const sluice_job_options *o, sl_job_purpose purpose)
{
    tuned_note note = { .taken = 0 };
    bool plans = purpose == SL_JOB_PLAN, described = plans && sl_machine_choose(o->machine).file != NULL;
    if ((purpose != SL_JOB_TRAIN && !plans) || j->rehearses || described) return SLUICE_OK;
    sl_comm *comm = j->ranks.comm;
    int ranks = plans ? sl_job_planned_ranks(o) : j->ranks.count;
    SL_TRY(sl_ranks_agree(&j->ranks, "reading " SL_TUNED_FILE,
                          j->ranks.rank == 0 ? read_tuned(j, ranks, &note) : SLUICE_OK));
    if (j->ranks.count > 1) SL_TRY(comm->ops->broadcast(comm, "tuned settings", 0, &note, sizeof note));
    j->has_tuned = note.taken != 0;
    j->tuned = note.arrangement;
    return SLUICE_OK;
}

/* ---- measuring ---- */

typedef struct tuning {
    const sluice_config *config;
    const sluice_job_options *options;
    sl_auto_result found; /* `tried` are those that are measured, the expected best first */
    double *seconds;      /* owned; of steps: `steps` of each candidate */
    int taken[MOST_KEPT]; /* how many of these there are so far */
    int steps, keep;
    sl_tuned_identity identity;
    char path[PATH_MAX]; /* of the result; "": nowhere */
    bool told;           /* this rank speaks for all */
    sl_log log;
} tuning;

/* Of a candidate so far: its fastest step, which other programs on the machine have disturbed least. */
static double measured_of(const tuning *t, int index)
{
    const double *steps = t->seconds + (size_t)index * (size_t)t->steps;
    double least = steps[0];
    for (int i = 1; i < t->taken[index]; i++)
        if (steps[i] < least) least = steps[i];
    return least;
}

/* Of the first job: what is worth measuring, and what the result holds for. */
static sluice_status list_candidates(tuning *t, const sl_job *j)
{
    int order[SL_AUTO_MOST];
    const sl_auto_result *all = &j->arrangements;
    t->told = j->ranks.rank == 0;
    sl_auto_order(all, order);
    t->found = (sl_auto_result){ .ranks = all->ranks, .plain = all->plain };
    for (int i = 0; i < all->count && t->found.count < t->keep; i++)
        if (all->tried[order[i]].fits) t->found.tried[t->found.count++] = all->tried[order[i]];
    t->seconds = sl_alloc_array((size_t)t->found.count * (size_t)t->steps, sizeof *t->seconds, "measured steps");
    return t->seconds != NULL ? SLUICE_OK : SLUICE_ERR_NO_MEMORY;
}

static sluice_status rehearse(tuning *t, sl_run *r, int index, int steps)
{
    if (t->seconds == NULL) SL_TRY(sl_ranks_agree(&r->job->ranks, "candidates", list_candidates(t, r->job)));
    if (!sl_arrangement_equal(&r->job->arrangements.tried[r->job->arrangements.chosen].arrangement,
                              &t->found.tried[index].arrangement))
        return sl_fail(SLUICE_ERR_NO_FIT, "the memory that was there when candidates were chosen is there no longer");
    double *to = t->seconds + (size_t)index * (size_t)t->steps + t->taken[index];
    SL_TRY(sl_run_rehearse(r, (uint64_t)steps, to));
    t->taken[index] += steps;
    return SLUICE_OK;
}

/* Opens a job for candidate `index`, and computes so many steps that count. The first job finds the candidates. */
static sluice_status measure(tuning *t, int index, int steps)
{
    sluice_job_options o = *t->options;
    sl_job j = { .data = NULL, .rehearses = true, .has_tuned = t->seconds != NULL };
    sl_run r = { .job = &j, .options = &o, .lock = { -1 } };
    o.event = NULL;
    o.plan_out = NULL;
    o.trace = NULL;
    o.resume = false;
    o.save_request = NULL;
    if (j.has_tuned) {
        j.tuned = t->found.tried[index].arrangement;
        o.log = NULL; /* the first job has said it all */
    }
    sluice_status st = sl_job_open(&j, t->config, &o, SL_JOB_TRAIN);
    if (st == SLUICE_OK) {
        st = rehearse(t, &r, index, steps);
        if (st != SLUICE_ERR_NUMBERS && st != SLUICE_ERR_STOPPED) sl_ranks_failed(&j.ranks, st);
    }
    sl_run_close(&r);
    return st;
}

static void tell_measured(const tuning *t, int index, int round)
{
    char name[128];
    const sl_auto_candidate *c = &t->found.tried[index];
    if (t->told)
        sl_log_write(&t->log, SLUICE_LOG_NOTE, "tune: round %d of %d: %s: %.4g s a step", round + 1, ROUNDS,
                     sl_arrangement_describe(&c->arrangement, name, sizeof name), measured_of(t, index));
}

static sluice_status measure_all(tuning *t)
{
    int first = (t->steps + 1) / ROUNDS;
    for (int round = 0; round < ROUNDS; round++) {
        int steps = round == 0 ? first : t->steps - first;
        for (int i = 0; (round == 0 && i == 0) || i < t->found.count; i++) {
            int index = round % 2 == 0 ? i : t->found.count - 1 - i;
            if (steps == 0) break;
            SL_TRY(measure(t, index, steps));
            tell_measured(t, index, round);
        }
    }
    for (int i = 0; i < t->found.count; i++) t->found.tried[i].measured = measured_of(t, i);
    return SLUICE_OK;
}

/* ---- the result ---- */

/* The expected best, unless another was clearly faster. */
static int winner_of(const sl_auto_result *found)
{
    int best = 0;
    int64_t rows = found->tried[0].arrangement.values[SL_AXIS_MICRO_BATCH];
    for (int i = 1; i < found->count; i++) {
        const sl_auto_candidate *c = &found->tried[i];
        double share = c->arrangement.values[SL_AXIS_MICRO_BATCH] == rows ? FASTER : MATHEMATICS;
        if (c->measured < share * found->tried[0].measured && c->measured < found->tried[best].measured) best = i;
    }
    return best;
}

static void print_table(const tuning *t, FILE *out)
{
    fprintf(out, "%-36s %12s %12s %12s %12s\n", "arrangement", "expected", "measured", "device", "host");
    for (int i = 0; i < t->found.count; i++) {
        const sl_auto_candidate *c = &t->found.tried[i];
        char name[128], device[32], host[32];
        double more = 100 * (c->measured / t->found.tried[t->found.chosen].measured - 1);
        fprintf(out, "%-36s %10.4g s %10.4g s %12s %12s  ", sl_arrangement_describe(&c->arrangement, name, sizeof name),
                c->seconds, c->measured, sl_format_bytes(c->peak[SL_TIER_DEVICE], device, sizeof device),
                sl_format_bytes(c->peak[SL_TIER_HOST], host, sizeof host));
        if (i == t->found.chosen)
            fputs("fastest\n", out);
        else
            fprintf(out, "%+.1f %%\n", more);
    }
    if (t->found.count == 1) fputs("there was nothing else to try\n", out);
}

static void print_keys(const sl_arrangement *a, FILE *out)
{
    bool any = false;
    fputs("to have it elsewhere:", out);
    for (int axis = 0; axis < SL_AXIS_COUNT; axis++) {
        if (a->values[axis] == SL_AXIS_UNSET) continue;
        fprintf(out, " --set %s=%lld", sl_axis_key((sl_axis)axis), (long long)a->values[axis]);
        any = true;
    }
    fputs(any ? "\n" : " leave everything on auto\n", out);
}

static sluice_status keep_result(const tuning *t)
{
    char folder[PATH_MAX];
    const sl_auto_candidate *c = &t->found.tried[t->found.chosen];
    const sl_tuned tuned = {
        .identity = t->identity, .arrangement = c->arrangement, .expected = c->seconds, .measured = c->measured
    };
    if (t->path[0] == '\0') return SLUICE_OK;
    SL_TRY(sl_path_parent(t->path, folder));
    SL_TRY(sl_dir_make(folder));
    return sl_tuned_write(t->path, &tuned);
}

/* Rank 0. */
static sluice_status report(tuning *t)
{
    const sluice_job_options *o = t->options;
    const sl_arrangement *best = &t->found.tried[t->found.chosen].arrangement;
    sl_candidate_list list;
    sluice_event e = { .kind = SLUICE_EVENT_TUNE, .ranks = t->found.ranks, .path = t->path };
    SL_TRY(keep_result(t));
    if (o->out != NULL && !o->json) {
        print_table(t, o->out);
        if (t->path[0] != '\0')
            fprintf(o->out, "kept in %s, from where train takes it\n", t->path);
        else
            fputs("checkpoint.path is not set, so that it is not kept\n", o->out);
        print_keys(best, o->out);
    }
    SL_TRY(sl_auto_to_event(&t->found, &list, &e));
    if (o->event != NULL) o->event(o->user, &e);
    sl_candidate_list_free(&list);
    return SLUICE_OK;
}

/* Before the first engine: that may bind this thread to some of the CPUs. */
static sluice_status identify(tuning *t)
{
    sl_settings s;
    int ranks = sluice_world_size(t->options->world);
    SL_TRY(sl_config_resolve(t->config, ranks, NULL, &s));
    if (!path_of(&s, t->path)) t->path[0] = '\0';
    return sl_tuned_identify(&s, ranks, &t->identity);
}

sluice_status sluice_job_tune(const sluice_config *c, const sluice_job_options *given)
{
    sluice_job_options o;
    SL_TRY(sl_job_take_options(c, given, SL_JOB_TRAIN, "sluice_job_tune", &o));
    tuning t = { .config = c,
                 .options = &o,
                 .steps = o.tune_steps > 0 ? o.tune_steps : USUAL_STEPS,
                 .keep = o.tune_keep > 0 ? o.tune_keep : USUAL_KEPT,
                 .log = { o.log, o.log_user, 0, 1 } };
    if (t.steps > MOST_STEPS || t.keep > MOST_KEPT)
        return sl_fail(SLUICE_ERR_USAGE, "sluice_job_tune: at most %d steps of %d candidates are measured", MOST_STEPS,
                       MOST_KEPT);
    SL_TRY(identify(&t));
    sluice_status st = measure_all(&t);
    if (st == SLUICE_OK) {
        t.found.chosen = winner_of(&t.found);
        if (t.told) st = report(&t);
    }
    sl_free(t.seconds);
    return st;
}

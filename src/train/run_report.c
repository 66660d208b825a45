/* run_report.c: what a run leaves of itself for people: the profile of one step in its folder, and with --report a page.
 *
 * Rank 0 does this, for itself. The profile is written before the first step with what the plan expects, and again when a
 * step was timed (trace_file.c says which). No run ends for want of one: where it cannot be written, the run warns once and
 * goes on. Only a lack of memory is what it is everywhere. */
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/output.h"
#include "core/thread.h"
#include "core/utf8.h"
#include "report/profile.h"
#include "report/report_run.h"
#include "train/run.h"

/* ---- the profile ---- */

bool sl_run_wants_profile(const sl_run *r)
{
    bool wanted = r->job->settings.checkpoint.path[0] != '\0' || r->options->report != NULL;
    return wanted && !r->job->rehearses && r->job->ranks.rank == 0 && !r->profile_failed;
}

bool sl_run_times_profile(const sl_run *r)
{
    return sl_run_wants_profile(r) && sl_profile_traces(r->job->engine->plan);
}

/* Every key with its value, as a JSON object; to be given to free. NULL: no memory. */
static char *print_settings(const sl_settings *s)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    if (out == NULL) return NULL;
    sl_settings_print(s, out);
    if (fclose(out) == 0) return text;
    free(text);
    return NULL;
}

static void name_device(const sluice_engine *e, const char *machine, char *out, size_t bytes)
{
    if (machine != NULL)
        snprintf(out, bytes, "%s described by %.60s", e->device.is_cuda ? "GPU" : "device", sl_show(machine).text);
    else if (e->device.is_cuda)
        snprintf(out, bytes, "%s", e->device.facts.name[0] != '\0' ? e->device.facts.name : "GPU");
    else
        snprintf(out, bytes, "CPU (%s)", sl_isa_name(e->isa));
}

sluice_status sl_job_profile(const sl_job *j, const sl_trace *trace, const char *machine, sl_text *out)
{
    const sluice_engine *e = j->engine;
    char device[96], why[160];
    char *settings = print_settings(&j->settings);
    name_device(e, machine, device, sizeof device);
    snprintf(why, sizeof why, "Nothing was timed: a step has %lld operations, and %lld are the most.",
             (long long)sl_trace_length(e->plan, e->plan->options.accumulation), (long long)SL_PROFILE_STEPS);
    const sl_profile_source s = { .plan = e->plan,
                                  .trace = trace,
                                  .device = device,
                                  .configuration = settings,
                                  .why_predicted = sl_profile_traces(e->plan) ? NULL : why,
                                  .threads = e->threads };
    sluice_status st = sl_profile_write(&s, out);
    free(settings);
    return st;
}

static sluice_status write_profile(sl_run *r, const sl_trace *trace)
{
    const char *folder = r->job->settings.checkpoint.path;
    char path[PATH_MAX];
    sl_text_free(&r->profile);
    r->profile = (sl_text){ .data = NULL };
    SL_TRY(sl_job_profile(r->job, trace, NULL, &r->profile));
    if (folder[0] == '\0') return SLUICE_OK;
    if (snprintf(path, sizeof path, "%s/" SL_PROFILE_NAME, folder) >= (int)sizeof path)
        return sl_fail(SLUICE_ERR_USAGE, "checkpoint.path is too long: use a shorter one");
    return sl_file_replace(path, r->profile.data, r->profile.bytes);
}

sluice_status sl_run_write_profile(sl_run *r, const sl_trace *trace)
{
    if (!sl_run_wants_profile(r)) return SLUICE_OK;
    double start = sl_now();
    sluice_status st = sl_run_excuse_profile(r, write_profile(r, trace));
    r->aside += sl_now() - start;
    return st;
}

sluice_status sl_run_excuse_profile(sl_run *r, sluice_status st)
{
    if (st == SLUICE_OK || st == SLUICE_ERR_NO_MEMORY) return st;
    r->profile_failed = true;
    sl_log_write(&r->job->log, SLUICE_LOG_WARNING, "the run goes on without a profile: %s", sluice_error());
    return SLUICE_OK;
}

/* ---- the page ---- */

/* A run that keeps a log has all of its starts there; one that does not has what was seen of it here. */
static sluice_status read_log(const sl_run *r, sl_run_record *out)
{
    const char *folder = r->job->settings.checkpoint.path;
    char path[PATH_MAX];
    *out = (sl_run_record){ .steps = NULL };
    if (folder[0] == '\0' || snprintf(path, sizeof path, "%s/" SL_JOURNAL_NAME, folder) >= (int)sizeof path ||
        !sl_path_exists(path))
        return SLUICE_OK;
    return sl_record_read(folder, out);
}

/* What the end of the run was, where its events do not tell. */
static sluice_status settle_outcome(sl_run_record *record, sluice_status ended, const char *message)
{
    if (ended == SLUICE_OK) return SLUICE_OK;
    record->outcome = ended == SLUICE_ERR_STOPPED ? SL_RUN_STOPPED : SL_RUN_FAILED;
    sl_free(record->why);
    record->why = sl_strdup(message, "why a run ended");
    return record->why != NULL ? SLUICE_OK : SLUICE_ERR_NO_MEMORY;
}

static sluice_status write_report(sl_run *r, sluice_status ended, const char *message)
{
    const sl_settings *s = &r->job->settings;
    sl_run_record logged, *record = r->record;
    char path[PATH_MAX];
    SL_TRY(sl_report_path(r->options->report, s->checkpoint.path, path, sizeof path));
    sluice_status st = read_log(r, &logged);
    uint64_t last = logged.step_count > 0 ? logged.steps[logged.step_count - 1].step : 0;
    if (st == SLUICE_OK && last > 0 && last == r->job->engine->step) record = &logged;
    record->target_steps = r->steps;
    if (st == SLUICE_OK) st = settle_outcome(record, ended, message);
    const char *name = s->checkpoint.path[0] != '\0' ? s->checkpoint.path : path;
    if (st == SLUICE_OK) st = sl_report_write(record, r->profile.bytes > 0 ? &r->profile : NULL, name, path);
    if (st == SLUICE_OK && r->options->plan_out != NULL) fprintf(r->options->plan_out, "report written to %s\n", path);
    sl_record_free(&logged);
    return st;
}

sluice_status sl_run_report(sl_run *r, sluice_status ended)
{
    char message[SL_MESSAGE_BYTES];
    if (r->options->report == NULL || r->record == NULL || r->job->engine == NULL) return ended;
    sl_error_copy(message);
    sluice_status st = write_report(r, ended, message);
    if (ended == SLUICE_OK) return st;
    if (st != SLUICE_OK) sl_log_write(&r->job->log, SLUICE_LOG_WARNING, "no report was written: %s", sluice_error());
    sl_error_record("%s", message);
    return ended;
}

sluice_status sl_run_begin_report(sl_run *r)
{
    const sl_job *j = r->job;
    if (r->options->report == NULL || j->ranks.rank != 0) return SLUICE_OK;
    r->record = sl_alloc(sizeof *r->record, "record of a run");
    if (r->record == NULL) return SLUICE_ERR_NO_MEMORY;
    r->record->outcome = SL_RUN_DEAD;
    return SLUICE_OK;
}

void sl_run_end_report(sl_run *r)
{
    if (r->record != NULL) sl_record_free(r->record);
    sl_free(r->record);
    sl_text_free(&r->profile);
}

sluice_status sl_job_report_plan(const sl_job *j, const sluice_job_options *o, const sluice_event *plan)
{
    sl_text profile = { .data = NULL };
    sl_run_record record = { .outcome = SL_RUN_PLANNED };
    char name[256];
    sluice_status st = sl_record_add_event(&record, plan);
    record.rate_is_samples = !(plan->tokens_per_second > 0);
    snprintf(name, sizeof name, "Plan: %s, %d rank%s", j->settings.model.type, j->engine->plan->options.rank_count,
             j->engine->plan->options.rank_count == 1 ? "" : "s");
    if (st == SLUICE_OK) st = sl_job_profile(j, NULL, o->machine, &profile);
    if (st == SLUICE_OK) st = sl_report_write(&record, &profile, name, o->report);
    sl_text_free(&profile);
    sl_record_free(&record);
    return st;
}

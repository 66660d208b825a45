/* run_watch.c: a run told to those who watch it: where its files go, and what their first lines say of it. */
#include <stdlib.h>
#include <string.h>

#include "core/cpu.h"
#include "core/quote.h"
#include "core/thread.h"
#include "format/json.h"
#include "machine/machine.h"
#include "train/run.h"

static void on_event(void *user, const sluice_event *event)
{
    sl_run *r = user;
    sl_monitor_event(r->monitor, event);
    if (r->caller.event != NULL) r->caller.event(r->caller.user, event);
}

static void on_message(void *user, sluice_log_level level, const char *line)
{
    sl_run *r = user;
    sl_monitor_message(r->monitor, level, line);
    if (r->caller.log != NULL) r->caller.log(r->caller.log_user, level, line);
}

sluice_status sl_run_begin_watch(sl_run *r, sluice_job_options *o)
{
    r->caller = *o;
    r->to_caller = (sl_log){ o->log, o->log_user, 0, 1 };
    o->event = on_event;
    o->user = r;
    o->log = on_message;
    o->log_user = r;
    return sluice_world_rank(o->world) == 0 ? sl_monitor_create(&r->to_caller, &r->monitor) : SLUICE_OK;
}

/* Whether a path goes up somewhere, or begins at the root. */
static bool leaves_folder(const char *path)
{
    if (path[0] == '/') return true;
    for (const char *part = path; part != NULL; part = strchr(part, '/') != NULL ? strchr(part, '/') + 1 : NULL)
        if (strncmp(part, "..", 2) == 0 && (part[2] == '/' || part[2] == '\0')) return true;
    return false;
}

/* output_path/job_name, as DeepSpeed has it. */
static sluice_status join(const char *key, const char *folder, const char *name, char out[PATH_MAX])
{
    if (leaves_folder(name))
        return sl_fail(
            SLUICE_ERR_USAGE,
            "%.*sjob_name: %s would leave output_path, in which it names a folder; give the place in output_path",
            (int)(strchr(key, '.') + 1 - key), key, sl_quote(name).text);
    const char *slash = folder[0] == '\0' || folder[strlen(folder) - 1] == '/' ? "" : "/";
    if (snprintf(out, PATH_MAX, "%s%s%s", folder, slash, name) < PATH_MAX && out[0] != '\0') return SLUICE_OK;
    return sl_fail(SLUICE_ERR_USAGE, "%s and its job_name make %s path; give another", key,
                   out[0] == '\0' ? "no" : "too long a");
}

sluice_status sl_watch_folders(const sl_settings *s, char tensorboard[PATH_MAX], char csv_monitor[PATH_MAX])
{
    tensorboard[0] = csv_monitor[0] = '\0';
    if (s->tensorboard.enabled || s->wandb || s->comet)
        SL_TRY(join("tensorboard.output_path", s->tensorboard.output_path, s->tensorboard.job_name, tensorboard));
    if (s->csv_monitor.enabled)
        SL_TRY(join("csv_monitor.output_path", s->csv_monitor.output_path, s->csv_monitor.job_name, csv_monitor));
    return SLUICE_OK;
}

/* Nobody is left in doubt about where what they asked for is. */
static void note_imports(const sl_run *r, const char *folder)
{
    const sl_settings *s = &r->job->settings;
    if (s->wandb)
        sl_log_write(
            &r->job->log, SLUICE_LOG_NOTE,
            "wandb.enabled: nothing is sent from here; TensorBoard's files are in %s, and `python -m sluice.send "
            "wandb %s` takes them to Weights & Biases",
            folder, folder);
    if (s->comet)
        sl_log_write(
            &r->job->log, SLUICE_LOG_NOTE,
            "comet.enabled: nothing is sent from here; TensorBoard's files are in %s, and `python -m sluice.send "
            "comet %s` takes them to Comet",
            folder, folder);
}

/* The settings as one line of JSON; NULL after a failure. Freed by sl_json_free_text. */
static char *configuration_text(const sl_settings *s)
{
    char *printed = NULL, *dense = NULL;
    size_t bytes = 0;
    json_t *parsed = NULL;
    FILE *f = open_memstream(&printed, &bytes);
    if (f == NULL) return NULL;
    sl_settings_print(s, f);
    if (fclose(f) == 0 && sl_json_parse(printed, bytes, "configuration", SLUICE_ERR_FAILED, &parsed) == SLUICE_OK)
        dense = json_dumps(parsed, JSON_COMPACT);
    json_decref(parsed);
    free(printed);
    return dense;
}

/* As text; NULL after a failure. Freed by free. */
static char *plan_text(const sl_run *r)
{
    char *printed = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&printed, &bytes);
    if (f == NULL) return NULL;
    sl_plan_print(r->job->engine->plan, f);
    if (fclose(f) == 0) return printed;
    free(printed);
    return NULL;
}

sluice_status sl_run_open_watch(sl_run *r)
{
    const sl_job *j = r->job;
    const sl_settings *s = &j->settings;
    char tensorboard[PATH_MAX], csv_monitor[PATH_MAX], cpu[128];
    SL_TRY(sl_watch_folders(s, tensorboard, csv_monitor));
    const sl_monitor_places places = { .run_folder = s->checkpoint.path[0] != '\0' ? s->checkpoint.path : NULL,
                                       .log_file = r->options->log_file,
                                       .tensorboard = tensorboard[0] != '\0' ? tensorboard : NULL,
                                       .csv_monitor = csv_monitor[0] != '\0' ? csv_monitor : NULL };
    char *configuration = configuration_text(s), *plan = places.tensorboard != NULL ? plan_text(r) : NULL;
    sl_cpu_model(cpu, sizeof cpu);
    const sl_monitor_about about = { .resume = r->options->resume,
                                     .ranks = j->ranks.count,
                                     .steps = r->steps,
                                     .metric = j->validates ? sl_metric_name(j->judge.best.metric) : "loss",
                                     .device = j->engine->device.is_cuda ? "cuda" : "cpu",
                                     .cpu = cpu,
                                     .cpus = sl_cpu_count(),
                                     .memory_bytes = sl_memory_available(),
                                     .configuration = configuration != NULL ? configuration : "{}",
                                     .plan = plan };
    sluice_status st = sl_monitor_open(r->monitor, &places, &about);
    if (st == SLUICE_OK && places.tensorboard != NULL) note_imports(r, tensorboard);
    sl_json_free_text(configuration);
    free(plan);
    return st;
}

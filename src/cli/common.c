/* common.c: messages, exit statuses, and the way from a command line to a job. */
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

int cli_usage(const char *format, ...)
{
    char text[4096], shown[4096];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    sluice_printable(text, shown, sizeof shown);
    fprintf(stderr, "sluice: %s\n", shown);
    return sluice_exit_status(SLUICE_ERR_USAGE);
}

int cli_report(sluice_status status)
{
    if (status != SLUICE_OK) fprintf(stderr, "sluice: %s\n", sluice_error());
    return sluice_exit_status(status);
}

int cli_finish_output(int status)
{
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout)) return status;
    fprintf(stderr, "sluice: standard output: %s\n", errno != 0 ? strerror(errno) : "write failed");
    /* a run that was stopped because nobody reads its output did not stop for a signal */
    return status == 0 || status == sluice_exit_status(SLUICE_ERR_STOPPED) ? sluice_exit_status(SLUICE_ERR_IO) : status;
}

void cli_log(void *user, sluice_log_level level, const char *line)
{
    const cli_arguments *a = user;
    if ((level == SLUICE_LOG_DETAIL && !a->notes) || (level == SLUICE_LOG_NOTE && a->quiet)) return;
    fprintf(stderr, "sluice: %s: %s\n", level == SLUICE_LOG_WARNING ? "warning" : "note", line);
}

int cli_launched_ranks(void)
{
    static const char *const variables[] = { "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS", "WORLD_SIZE" };
    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++) {
        const char *value = getenv(variables[i]);
        if (value != NULL && atoi(value) > 1) return atoi(value);
    }
    return 1;
}

/* As --set KEY=VALUE, for values of any text. NULL: the option was not given. */
static sluice_status set_text(sluice_config *config, const char *key, const char *value)
{
    char assignment[4096 + 32];
    if (value == NULL) return SLUICE_OK;
    snprintf(assignment, sizeof assignment, "%s=%.4096s", key, value);
    return sluice_config_set(config, assignment);
}

/* A folder, which one slash at the end says. */
static sluice_status set_folder(sluice_config *config, const char *key, const char *value)
{
    char assignment[4096 + 32];
    if (value == NULL) return SLUICE_OK;
    size_t length = strlen(value);
    while (length > 1 && value[length - 1] == '/') length--;
    snprintf(assignment, sizeof assignment, "%s=%.*s/", key, (int)(length < 4096 ? length : 4096), value);
    return sluice_config_set(config, assignment);
}

/* The options that stand for keys. A file of data that is named here says its type, whatever a configuration says of its own. */
static sluice_status set_options(sluice_config *config, const cli_arguments *a)
{
    sluice_status status = set_text(config, "model.path", a->model);
    if (status == SLUICE_OK) status = set_text(config, "data.path", a->data);
    if (status == SLUICE_OK && a->data != NULL) status = sluice_config_set(config, "data.type=null");
    if (status == SLUICE_OK && a->lora) status = sluice_config_set(config, "lora.enabled=true");
    if (status == SLUICE_OK) status = set_text(config, "lora.path", a->adapter);
    if (status == SLUICE_OK && a->gpu != NULL) status = sluice_config_set(config, "device=cuda");
    return status == SLUICE_OK ? set_folder(config, "save", a->save) : status;
}

sluice_status cli_make_config(const cli_arguments *a, sluice_config **out)
{
    sluice_config *config;
    sluice_status status = a->operand != NULL ? sluice_config_load(a->operand, &config) : sluice_config_create(&config);
    if (status != SLUICE_OK) return status;
    status = set_options(config, a);
    for (int i = 0; i < a->set_count && status == SLUICE_OK; i++) status = sluice_config_set(config, a->sets[i]);
    if (status == SLUICE_OK)
        *out = config;
    else
        sluice_config_destroy(config);
    return status;
}

int cli_load_config(const cli_arguments *a, sluice_config **out)
{
    return cli_report(cli_make_config(a, out));
}

void cli_job_options(const cli_arguments *a, sluice_job_options *out)
{
    sluice_job_options_init(out);
    out->resume = a->resume;
    out->json = a->json;
    out->out = stdout;
    out->log = cli_log;
    out->log_user = (void *)a;
    if (a->ranks > 0) out->ranks = (int)a->ranks;
    out->machine = a->machine;
    out->gpu = a->gpu;
    out->host = a->host;
    if (a->gpus > 0) out->gpus = (int)a->gpus;
    if (a->ram > 0) out->ram_bytes = (uint64_t)a->ram;
    out->trace = a->trace;
    out->report = a->report;
    out->log_file = a->log;
    if (a->weights != NULL) out->weights = a->weights;
    if (a->prompt != NULL) out->prompt = a->prompt;
    if (a->tokens >= 0) out->tokens = a->tokens;
    if (a->top_k >= 0) out->top_k = (int)a->top_k;
    if (a->temperature >= 0) out->temperature = a->temperature;
    if (a->top_p >= 0) out->top_p = a->top_p;
    if (a->min_p >= 0) out->min_p = a->min_p;
    if (a->repetition_penalty >= 0) out->repetition_penalty = a->repetition_penalty;
    if (a->seed >= 0) out->seed = a->seed;
    if (a->batch >= 0) out->batch = (int)a->batch;
    if (a->prompts != NULL) out->prompts = a->prompts;
    out->from_folder = (a->temperature < 0 ? SLUICE_FOLDER_TEMPERATURE : 0u) |
                       (a->top_k < 0 ? SLUICE_FOLDER_TOP_K : 0u) | (a->top_p < 0 ? SLUICE_FOLDER_TOP_P : 0u) |
                       (a->min_p < 0 ? SLUICE_FOLDER_MIN_P : 0u) |
                       (a->repetition_penalty < 0 ? SLUICE_FOLDER_REPETITION_PENALTY : 0u);
    out->chat = a->chat;
    out->system = a->system;
    out->template_name = a->template_name;
    out->in = stdin;
    out->best = a->best;
    out->predictions = a->predictions;
    out->replies = a->out;
    out->stops = a->stops;
    out->stop_count = a->stop_count;
    if (a->steps > 0) out->tune_steps = (int)a->steps;
    if (a->keep > 0) out->tune_keep = (int)a->keep;
}

/* How a job that only reads is told. */
typedef struct teller {
    const cli_arguments *arguments;
    cli_events events;
    cli_progress progress; /* on standard error: results are on standard output */
    char *refusal;         /* gets the verdict of a plan that does not fit; NULL: nobody asks */
    size_t refusal_bytes;
} teller;

/* Results as JSON; what takes its time, such as loading weights, as a line on a terminal. */
static void on_event(void *user, const sluice_event *event)
{
    teller *t = user;
    if (event->kind == SLUICE_EVENT_PLAN) cli_tell_of_planning(false);
    if (event->kind == SLUICE_EVENT_PLAN && !event->fits && t->refusal != NULL)
        snprintf(t->refusal, t->refusal_bytes, "%s", event->verdict);
    if (event->kind == SLUICE_EVENT_PHASE) {
        if (t->progress.line && !t->arguments->quiet) cli_progress_event(&t->progress, event);
    } else if (t->arguments->json) {
        cli_event_json(&t->events, event);
    }
}

static void on_log(void *user, sluice_log_level level, const char *line)
{
    teller *t = user;
    cli_progress_clear(&t->progress);
    cli_log((void *)(uintptr_t)t->arguments, level, line);
}

int cli_run_job(const cli_arguments *a, sluice_status (*job)(const sluice_config *c, const sluice_job_options *o),
                char *refusal, size_t bytes)
{
    sluice_config *config;
    sluice_job_options options;
    teller t = { .arguments = a, .events = { .out = stdout }, .refusal = refusal, .refusal_bytes = bytes };
    int exit_status = cli_load_config(a, &config);
    if (exit_status != 0) return exit_status;
    cli_catch_signals();
    cli_progress_start(&t.progress, stderr, 0);
    cli_job_options(a, &options);
    options.event = on_event;
    options.user = &t;
    options.log = on_log;
    options.log_user = &t;
    options.stop = cli_stop_flag();
    sluice_status status = job(config, &options);
    cli_progress_clear(&t.progress);
    cli_events_free(&t.events);
    sluice_config_destroy(config);
    return cli_report(status);
}

bool cli_float_type(const char *name, sluice_dtype *out)
{
    static const struct {
        const char *name;
        sluice_dtype type;
    } types[] = { { "fp32", SLUICE_F32 }, { "bf16", SLUICE_BF16 }, { "fp16", SLUICE_F16 } };
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (strcmp(name, types[i].name) == 0) {
            *out = types[i].type;
            return true;
        }
    return false;
}

/* cmd_status.c: sluice status: how runs are doing, from another terminal. One run in some lines, several as a table. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/cli.h"

typedef struct seen_run {
    char *folder; /* owned */
    sluice_run_status status;
} seen_run;

typedef struct seen_runs {
    seen_run *list; /* owned */
    size_t count;
    bool no_memory;
} seen_runs;

static void on_run(void *user, const char *folder, const sluice_run_status *status)
{
    seen_runs *s = user;
    seen_run *list = realloc(s->list, (s->count + 1) * sizeof *list);
    char *own = strdup(folder);
    if (list != NULL) s->list = list;
    if (list == NULL || own == NULL) {
        free(own);
        s->no_memory = true;
        return;
    }
    s->list[s->count++] = (seen_run){ own, *status };
}

/* ---- JSON ---- */

static void put_text(const char *name, const char *text)
{
    printf(",\"%s\":\"", name);
    for (const unsigned char *c = (const unsigned char *)text; *c != '\0'; c++) {
        if (*c == '"' || *c == '\\')
            printf("\\%c", *c);
        else if (*c < 0x20)
            printf("\\u%04x", *c);
        else
            putchar(*c);
    }
    putchar('"');
}

static void put_number(const char *name, double value)
{
    printf(isfinite(value) ? ",\"%s\":%.17g" : ",\"%s\":null", name, value);
}

static void put_count(const char *name, uint64_t value)
{
    printf(",\"%s\":%llu", name, (unsigned long long)value);
}

static void print_json(const seen_run *r)
{
    const sluice_run_status *s = &r->status;
    printf("{\"state\":\"%s\"", sluice_run_state_name(s->state));
    put_text("folder", r->folder);
    put_text("run", s->run);
    put_text("host", s->host);
    put_count("pid", (uint64_t)s->pid);
    put_count("ranks", (uint64_t)s->ranks);
    put_number("started", s->started);
    put_number("heard", s->heard);
    put_count("step", s->step);
    put_count("steps", s->steps);
    put_number("loss", s->loss);
    put_number("validation_loss", s->validation_loss);
    put_text("metric", s->metric);
    put_number("best", s->best);
    put_count("best_step", s->best_step);
    printf(",\"early\":%s", s->early ? "true" : "false");
    put_number("step_seconds", s->step_seconds);
    put_number("samples_per_second", s->samples_per_second);
    put_number("tokens_per_second", s->tokens_per_second);
    put_number("seconds_left", s->seconds_left);
    put_count("saved_step", s->saved_step);
    put_text("saved_path", s->saved_path);
    put_count("device_bytes", s->memory.device);
    put_count("host_bytes", s->memory.host);
    put_count("disk_bytes", s->memory.disk);
    put_count("resident_bytes", s->resident_bytes);
    put_text("warning", s->warning);
    put_text("message", s->message);
    put_count("exit_status", (uint64_t)s->exit_status);
    puts("}");
}

/* ---- one run ---- */

static double seconds_since(double then)
{
    double passed = difftime(time(NULL), 0) - then;
    return passed > 0 ? passed : 0;
}

static double share_of(const sluice_run_status *s)
{
    return s->steps > 0 ? 100 * (double)s->step / (double)s->steps : 0;
}

static void format_pace(const sluice_run_status *s, char *out, size_t bytes)
{
    bool tokens = isfinite(s->tokens_per_second);
    double rate = tokens ? s->tokens_per_second : s->samples_per_second;
    out[0] = '\0';
    if (isfinite(rate)) cli_format_rate(rate, tokens ? "tokens" : "samples", out, bytes);
}

static void print_state(const seen_run *r)
{
    const sluice_run_status *s = &r->status;
    char passed[32];
    printf("%s: %s%s", r->folder, sluice_run_state_name(s->state), s->early ? " early" : "");
    cli_format_seconds(seconds_since(s->state == SLUICE_RUN_RUNNING ? s->started : s->heard), passed, sizeof passed);
    if (s->state == SLUICE_RUN_RUNNING)
        printf(" for %s", passed);
    else
        printf(", last heard of %s ago", passed);
    printf(" (process %lld on %s, %d rank%s)\n", (long long)s->pid, s->host, s->ranks, s->ranks == 1 ? "" : "s");
}

static void print_progress(const sluice_run_status *s)
{
    char rate[48], left[32];
    printf("  step        %llu of %llu, %.1f%%", (unsigned long long)s->step, (unsigned long long)s->steps,
           share_of(s));
    format_pace(s, rate, sizeof rate);
    if (rate[0] != '\0') printf(", %s", rate);
    if (isfinite(s->seconds_left)) {
        cli_format_seconds(s->seconds_left, left, sizeof left);
        printf(", %s left", left);
    }
    putchar('\n');
    if (isfinite(s->loss)) printf("  loss        %.4f\n", s->loss);
    if (isfinite(s->validation_loss)) printf("  validation  loss %.4f", s->validation_loss);
    if (isfinite(s->validation_loss) && s->best_step > 0)
        printf("; best %s %.4g after step %llu", s->metric, s->best, (unsigned long long)s->best_step);
    if (isfinite(s->validation_loss)) putchar('\n');
}

static void print_memory(const sluice_run_status *s)
{
    char device[32], host[32], process[32];
    if (s->resident_bytes == 0) return;
    cli_format_size(s->memory.device, device, sizeof device);
    cli_format_size(s->memory.host, host, sizeof host);
    cli_format_size(s->resident_bytes, process, sizeof process);
    printf("  memory      device %s, host %s, process %s\n", device, host, process);
}

static void print_run(const seen_run *r)
{
    const sluice_run_status *s = &r->status;
    print_state(r);
    print_progress(s);
    print_memory(s);
    if (s->saved_step > 0)
        printf("  checkpoint  step %llu: %s\n", (unsigned long long)s->saved_step, s->saved_path);
    else
        printf("  checkpoint  none yet\n");
    if (s->warning[0] != '\0') printf("  warning     %s\n", s->warning);
    if (s->message[0] != '\0') printf("  %-10s  %s (exit status %d)\n", "ended", s->message, s->exit_status);
    if (s->state == SLUICE_RUN_DEAD) printf("  ended       killed, or its machine went down; continue with --resume\n");
}

/* ---- several ---- */

static void print_row(const seen_run *r, int width)
{
    const sluice_run_status *s = &r->status;
    char rate[48], left[32] = "", best[32] = "", steps[48], loss[32] = "", saved[32] = "";
    format_pace(s, rate, sizeof rate);
    if (isfinite(s->seconds_left)) cli_format_seconds(s->seconds_left, left, sizeof left);
    if (s->best_step > 0) snprintf(best, sizeof best, "%.4g", s->best);
    if (isfinite(s->loss)) snprintf(loss, sizeof loss, "%.4f", s->loss);
    if (s->saved_step > 0) snprintf(saved, sizeof saved, "%llu", (unsigned long long)s->saved_step);
    snprintf(steps, sizeof steps, "%llu/%llu", (unsigned long long)s->step, (unsigned long long)s->steps);
    printf("%-*s  %-8s  %13s  %5.1f%%  %9s  %9s  %16s  %9s  %9s\n", width, r->folder, sluice_run_state_name(s->state),
           steps, share_of(s), loss, best, rate, left, saved);
}

static void print_table(const seen_runs *s)
{
    int width = 3;
    for (size_t i = 0; i < s->count; i++) {
        int length = (int)strlen(s->list[i].folder);
        if (length > width) width = length;
    }
    printf("%-*s  %-8s  %13s  %6s  %9s  %9s  %16s  %9s  %9s\n", width, "run", "state", "step", "share", "loss", "best",
           "rate", "left", "saved");
    for (size_t i = 0; i < s->count; i++) print_row(&s->list[i], width);
}

/* ---- the command ---- */

/* 1 where a run failed or is dead, else 75 where one was stopped, else 0. */
static int exit_status_of(const seen_runs *s)
{
    int status = 0;
    for (size_t i = 0; i < s->count; i++) {
        sluice_run_state state = s->list[i].status.state;
        if (state == SLUICE_RUN_FAILED || state == SLUICE_RUN_DEAD) return sluice_exit_status(SLUICE_ERR_FAILED);
        if (state == SLUICE_RUN_STOPPED) status = sluice_exit_status(SLUICE_ERR_STOPPED);
    }
    return status;
}

static void print_runs(const seen_runs *s, bool json)
{
    for (size_t i = 0; i < s->count && json; i++) print_json(&s->list[i]);
    if (json || s->count == 0) return;
    if (s->count == 1)
        print_run(&s->list[0]);
    else
        print_table(s);
}

int cli_status(const cli_arguments *a)
{
    seen_runs seen = { .count = 0 };
    int failed = 0; /* of the last folder that could not be read; the others are shown all the same */
    for (int i = -1; i < a->operand_count; i++) {
        sluice_status status = sluice_runs_look(i < 0 ? a->operand : a->operands[i], on_run, &seen);
        if (status != SLUICE_OK) failed = cli_report(status);
    }
    if (seen.no_memory) failed = cli_usage("status: out of memory");
    print_runs(&seen, a->json);
    int status = failed != 0 ? failed : exit_status_of(&seen);
    for (size_t i = 0; i < seen.count; i++) free(seen.list[i].folder);
    free(seen.list);
    return status;
}

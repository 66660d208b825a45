/* csv_log.c: a table of the run: one row a step, the same columns in every run.
 *
 * What an evaluation finds belongs to the row of the step it came after, which was written before it: that row, the last of the
 * file, is then written again with its last columns filled. */
#include <math.h>
#include <string.h>

#include "monitor/sinks.h"

static const char columns[] =
    "time,run,step,steps,epoch,loss,lr,grad_norm,seconds,samples,tokens,targets,skipped,"
    "loss_scale,tokens_per_second,mfu,data_seconds,device_bytes,host_bytes,disk_bytes,"
    "resident_bytes,speculated,rolled_back,validation_loss,validation_accuracy,validation_metric,"
    "best\n";
/* For a row without an evaluation. */
static const char no_evaluation[] = ",,,,\n";

sluice_status sl_csv_log_open(sl_csv_log *l, const char *path)
{
    char first[sizeof columns];
    SL_TRY(sl_line_file_open(&l->file, path));
    if (l->file.end == 0) return sl_line_file_add(&l->file, columns, sizeof columns - 1);
    bool ours = l->file.end >= sizeof columns - 1;
    if (ours) SL_TRY(sl_file_pread(&l->file.file, first, sizeof columns - 1, 0));
    if (ours && memcmp(first, columns, sizeof columns - 1) == 0) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_USAGE, "%s is a file with other columns than a log of a run has; name another", path);
}

/* Nothing where there is no number: what a reader of tables takes for a missing value. */
static void add_number(sl_text *t, double value)
{
    if (isfinite(value))
        sl_text_add(t, ",%.9g", value);
    else
        sl_text_add(t, ",");
}

static void add_count(sl_text *t, uint64_t value)
{
    sl_text_add(t, ",%llu", (unsigned long long)value);
}

static void make_row(sl_text *t, const sl_run_stamp *stamp, const char *time, const sluice_event *e)
{
    t->bytes = 0;
    sl_text_add(t, "%s,%s", time, stamp->run);
    add_count(t, e->step);
    add_count(t, e->steps);
    add_number(t, e->epoch);
    add_number(t, e->loss);
    add_number(t, e->lr);
    add_number(t, e->gradient_norm);
    add_number(t, e->seconds);
    add_count(t, e->samples);
    add_count(t, e->tokens);
    add_count(t, e->targets);
    sl_text_add(t, e->skipped ? ",true" : ",false");
    add_number(t, e->loss_scale);
    add_number(t, e->tokens_per_second);
    add_number(t, e->mfu);
    add_number(t, e->data_seconds);
    add_count(t, e->memory.device);
    add_count(t, e->memory.host);
    add_count(t, e->memory.disk);
    add_count(t, e->resident_bytes);
    add_count(t, e->speculated);
    add_count(t, e->rolled_back);
}

static double judging_value(const sluice_event *e)
{
    for (int i = 0; i < e->metric_count; i++)
        if (e->judge != NULL && strcmp(e->metrics[i].name, e->judge) == 0) return e->metrics[i].value;
    return (double)NAN;
}

static sluice_status add_step(sl_csv_log *l, const sl_run_stamp *stamp, const char *time, const sluice_event *e)
{
    make_row(&l->row, stamp, time, e);
    l->line.bytes = 0;
    sl_text_add_bytes(&l->line, l->row.data, l->row.bytes);
    sl_text_add_bytes(&l->line, no_evaluation, sizeof no_evaluation - 1);
    SL_TRY(sl_text_status(&l->line));
    sluice_status st = sl_line_file_add(&l->file, l->line.data, l->line.bytes);
    if (st != SLUICE_OK) l->row.bytes = 0; /* the file's last row is another step's */
    return st;
}

/* The evaluation before the first step has no row. */
static sluice_status add_evaluation(sl_csv_log *l, const sluice_event *e)
{
    if (l->row.bytes == 0) return SLUICE_OK;
    size_t row = l->row.bytes;
    sl_text_add_bytes(&l->row, no_evaluation, sizeof no_evaluation - 1);
    l->line.bytes = 0;
    sl_text_add_bytes(&l->line, l->row.data, row);
    add_number(&l->line, e->loss);
    add_number(&l->line, e->accuracy);
    add_number(&l->line, judging_value(e));
    sl_text_add(&l->line, e->best ? ",true\n" : ",false\n");
    sluice_status st = sl_text_status(&l->line);
    if (st == SLUICE_OK) st = sl_line_file_replace(&l->file, l->line.data, l->line.bytes, l->row.data, l->row.bytes);
    l->row.bytes = 0;
    return st;
}

sluice_status sl_csv_log_event(sl_csv_log *l, const sl_run_stamp *stamp, const char *time, const sluice_event *e)
{
    if (e->kind == SLUICE_EVENT_STEP) return add_step(l, stamp, time, e);
    return e->kind == SLUICE_EVENT_EVAL ? add_evaluation(l, e) : SLUICE_OK;
}

void sl_csv_log_close(sl_csv_log *l)
{
    sl_line_file_close(&l->file);
    sl_text_free(&l->row);
    sl_text_free(&l->line);
}

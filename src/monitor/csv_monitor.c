/* csv_monitor.c: what DeepSpeed's csv_monitor writes: for each scalar a file of its own, the samples so far beside the value.
 *
 * A file is made when its scalar first has a value: loss_scale is there in fp16 only, as under DeepSpeed. */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "monitor/sinks.h"

static double loss_of(const sluice_event *e)
{
    return e->loss;
}

static double lr_of(const sluice_event *e)
{
    return e->lr;
}

static double scale_of(const sluice_event *e)
{
    return e->loss_scale != 1 ? e->loss_scale : (double)NAN;
}

const sl_deepspeed_scalar sl_deepspeed_scalars[SL_DEEPSPEED_SCALARS] = {
    { "Train/Samples/train_loss", "Train_Samples_train_loss.csv", "train_loss", loss_of },
    { "Train/Samples/lr", "Train_Samples_lr.csv", "lr", lr_of },
    { "Train/Samples/loss_scale", "Train_Samples_loss_scale.csv", "loss_scale", scale_of },
};

static sluice_status open_file(sl_csv_monitor *c, int i)
{
    char path[PATH_MAX], header[64];
    if (c->files[i].file.path != NULL) return SLUICE_OK;
    if (snprintf(path, sizeof path, "%s/%s", c->folder, sl_deepspeed_scalars[i].file) >= (int)sizeof path)
        return sl_fail(SLUICE_ERR_USAGE, "csv_monitor.output_path is too long: use a shorter one");
    SL_TRY(sl_line_file_open(&c->files[i], path));
    if (c->files[i].end > 0) return SLUICE_OK;
    int bytes = snprintf(header, sizeof header, "step,%s\n", sl_deepspeed_scalars[i].column);
    return sl_line_file_add(&c->files[i], header, (size_t)bytes);
}

/* The loss has a value in every run, so its file shows whether the folder takes files. */
sluice_status sl_csv_monitor_open(sl_csv_monitor *c, const char *folder)
{
    SL_TRY(sl_dir_make(folder));
    if (snprintf(c->folder, sizeof c->folder, "%s", folder) >= (int)sizeof c->folder)
        return sl_fail(SLUICE_ERR_USAGE, "csv_monitor.output_path is too long: use a shorter one");
    return open_file(c, 0);
}

sluice_status sl_csv_monitor_event(sl_csv_monitor *c, const sluice_event *e)
{
    char line[64];
    if (e->kind != SLUICE_EVENT_STEP) return SLUICE_OK;
    for (int i = 0; i < SL_DEEPSPEED_SCALARS; i++) {
        double value = sl_deepspeed_scalars[i].value(e);
        if (!isfinite(value)) continue;
        int bytes = snprintf(line, sizeof line, "%llu,%.9g\n", (unsigned long long)e->total_samples, value);
        SL_TRY(open_file(c, i));
        SL_TRY(sl_line_file_add(&c->files[i], line, (size_t)bytes));
    }
    return SLUICE_OK;
}

void sl_csv_monitor_close(sl_csv_monitor *c)
{
    for (int i = 0; i < SL_DEEPSPEED_SCALARS; i++) sl_line_file_close(&c->files[i]);
}

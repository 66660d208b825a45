/* tensorboard.c: events of a run as TensorBoard's: a file for every start of the run, which TensorBoard shows as one.
 *
 * All that a step has is one write, so that a killed run leaves all of its finished steps. Of the one that was being written it may
 * leave the beginning (monitor/line_file.h); TensorBoard takes that for the end of the file. */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "format/tfevents.h"
#include "monitor/sinks.h"

enum { MOST_SCALARS = 64, TAG_BYTES = 64 };

typedef struct scalar_list {
    sl_tf_scalar list[MOST_SCALARS];
    char tags[MOST_SCALARS][TAG_BYTES]; /* of those that are made up here */
    int count;
} scalar_list;

/* A value that is no number would hide the others in TensorBoard's picture. */
static void put(scalar_list *s, const char *tag, double value)
{
    if (isfinite(value) && s->count < MOST_SCALARS) s->list[s->count++] = (sl_tf_scalar){ tag, value };
}

static void put_gib(scalar_list *s, const char *tag, uint64_t bytes)
{
    if (bytes > 0) put(s, tag, (double)bytes / (double)(1 << 30));
}

static sluice_status flush(sl_tensorboard *t)
{
    SL_TRY(sl_text_status(&t->records));
    sluice_status st = sl_line_file_add(&t->file, t->records.data, t->records.bytes);
    t->records.bytes = 0;
    return st;
}

/* As other writers name them: TensorBoard knows event files by the middle of the name, and reads them in its order. */
static sluice_status open_file(sl_tensorboard *t, const char *folder, double seconds)
{
    char path[PATH_MAX], host[64] = "";
    if (gethostname(host, sizeof host - 1) != 0) strcpy(host, "localhost");
    for (int n = 0; n < 1000; n++) {
        int length = snprintf(path, sizeof path, "%s/events.out.tfevents.%010.0f.%s.%ld.%d", folder, floor(seconds),
                              host, (long)getpid(), n);
        if (length >= (int)sizeof path)
            return sl_fail(SLUICE_ERR_USAGE, "tensorboard.output_path is too long: use a shorter one");
        if (!sl_path_exists(path)) break;
    }
    return sl_line_file_open(&t->file, path);
}

/* Markdown takes lines that begin with four spaces as they are. */
static void put_text(sl_tensorboard *t, double seconds, const char *tag, const char *text)
{
    sl_text indented = { 0 };
    for (const char *line = text; *line != '\0';) {
        size_t bytes = strcspn(line, "\n");
        sl_text_add(&indented, "    ");
        sl_text_add_bytes(&indented, line, bytes);
        sl_text_add(&indented, "\n");
        line += bytes + (line[bytes] == '\n');
    }
    if (indented.data != NULL && !indented.failed) sl_tf_add_text(&t->records, seconds, 0, tag, indented.data);
    sl_text_free(&indented);
}

sluice_status sl_tensorboard_open(sl_tensorboard *t, const char *folder, double seconds, const char *configuration,
                                  const char *plan)
{
    SL_TRY(sl_dir_make(folder));
    SL_TRY(open_file(t, folder, seconds));
    sl_tf_add_version(&t->records, seconds);
    put_text(t, seconds, "configuration/text_summary", configuration);
    if (plan != NULL) put_text(t, seconds, "plan/text_summary", plan);
    return flush(t);
}

static void put_rates(scalar_list *s, const sluice_event *e)
{
    if (e->seconds > 0) put(s, "rate/samples_per_s", (double)e->samples / e->seconds);
    put(s, "rate/tokens_per_s", e->tokens_per_second);
    put(s, "rate/mfu", e->mfu);
    put(s, "time/step_s", e->seconds);
    put(s, "time/data_s", e->data_seconds);
}

static void add_step(sl_tensorboard *t, double seconds, const sluice_event *e)
{
    scalar_list s, deepspeed;
    s.count = deepspeed.count = 0;
    put(&s, "loss/train", e->loss);
    put(&s, "lr", e->lr);
    put(&s, "grad_norm", e->gradient_norm);
    put(&s, "epoch", e->epoch);
    if (e->loss_scale != 1) put(&s, "loss_scale", e->loss_scale);
    if (e->speculated > 0) {
        put(&s, "updates/speculated", (double)e->speculated);
        put(&s, "updates/rolled_back", (double)e->rolled_back);
    }
    put_rates(&s, e);
    put_gib(&s, "memory/device_GiB", e->memory.device);
    put_gib(&s, "memory/host_GiB", e->memory.host);
    put_gib(&s, "memory/disk_GiB", e->memory.disk);
    put_gib(&s, "memory/resident_GiB", e->resident_bytes);
    sl_tf_add_scalars(&t->records, seconds, (int64_t)e->step, s.list, s.count);
    /* DeepSpeed counts samples where others count steps */
    for (int i = 0; i < SL_DEEPSPEED_SCALARS; i++)
        put(&deepspeed, sl_deepspeed_scalars[i].tag, sl_deepspeed_scalars[i].value(e));
    sl_tf_add_scalars(&t->records, seconds, (int64_t)e->total_samples, deepspeed.list, deepspeed.count);
}

static void add_evaluation(sl_tensorboard *t, double seconds, const sluice_event *e)
{
    scalar_list s;
    s.count = 0;
    put(&s, "loss/validation", e->loss);
    for (int i = 0; i < e->metric_count && s.count < MOST_SCALARS; i++) {
        if (strcmp(e->metrics[i].name, "loss") == 0) continue;
        snprintf(s.tags[s.count], TAG_BYTES, "metrics/%s", e->metrics[i].name);
        put(&s, s.tags[s.count], e->metrics[i].value);
    }
    sl_tf_add_scalars(&t->records, seconds, (int64_t)e->step, s.list, s.count);
}

sluice_status sl_tensorboard_event(sl_tensorboard *t, double seconds, const sluice_event *e)
{
    if (e->kind == SLUICE_EVENT_STEP)
        add_step(t, seconds, e);
    else if (e->kind == SLUICE_EVENT_EVAL)
        add_evaluation(t, seconds, e);
    else
        return SLUICE_OK;
    return flush(t);
}

void sl_tensorboard_close(sl_tensorboard *t)
{
    sl_line_file_close(&t->file);
    sl_text_free(&t->records);
}

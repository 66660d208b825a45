/* config_notes.c: what a run is told about its configuration although nothing is wrong: values that "auto" stands for,
 * keys without effect, schedules that do not fit the run.
 *
 * What may change the result is a note or a warning of its own. Keys without effect fold into one line, and their
 * reasons are details (`--notes`). */
#include <string.h>

#include "config/config_rows.h"
#include "core/status.h"

/* ---- "auto" ---- */

static void print_value(const sl_option *row, const sl_config_value *value, char *out, size_t out_bytes)
{
    FILE *memory = fmemopen(out, out_bytes, "w");
    out[0] = '\0';
    if (memory == NULL) return;
    sl_config_value_print(row, value, memory);
    fclose(memory);
}

/* A value that Hugging Face's Trainer fills in from its arguments. Where ours is its default, nothing is surprising. */
static void note_auto(const sluice_config *c, const sl_option *row, int line, const sl_settings *s, const sl_log *log)
{
    char where[SL_WHERE_BYTES], taken[128];
    sl_config_value value, usual;
    sl_config_value_load(row, s, &value);
    sl_config_value_from_table(row, row->trainer_default, &usual);
    print_value(row, &value, taken, sizeof taken);
    sl_config_place(c, line, where, sizeof where);
    if (sl_config_value_equal(row, &value, &usual))
        sl_log_write(log, SLUICE_LOG_DETAIL,
                     "%s%s is \"auto\": %s is taken, which is also the default of the %s that "
                     "Hugging Face's Trainer fills in",
                     where, row->key, taken, row->trainer);
    else
        sl_log_write(log, SLUICE_LOG_NOTE,
                     "%s%s is \"auto\": %s is taken; Hugging Face's Trainer would fill in its %s (%s unless given), so "
                     "write the number you mean",
                     where, row->key, taken, row->trainer, row->trainer_default);
}

/* Both precisions are left to the Trainer's flags, which are not here. */
static void note_auto_precision(const sluice_config *c, const sl_settings *s, const sl_log *log)
{
    char where[SL_WHERE_BYTES];
    const char *const keys[] = { "fp16.enabled", "bf16.enabled" };
    if (s->precision.type != SLUICE_F32 || s->given.by_trainer) return;
    for (int i = 0; i < 2; i++) {
        const sl_option *row = sl_option_find(sl_config_rows, sl_config_row_count, keys[i]);
        int line = c->private_data->origins[row - sl_config_rows].auto_line;
        if (line == 0) continue;
        sl_log_write(
            log, SLUICE_LOG_NOTE,
            "%s%s is \"auto\": false is taken, so the run computes in fp32; Hugging Face's Trainer goes by its "
            "flags fp16 and bf16. Usual on GPUs: bf16.enabled=true, in less memory and time",
            sl_config_place(c, line, where, sizeof where), keys[i]);
        return;
    }
}

static void note_autos(const sluice_config *c, const sl_settings *s, const sl_log *log)
{
    for (size_t i = 0; i < sl_config_row_count; i++) {
        const sl_option *row = &sl_config_rows[i];
        int line = c->private_data->origins[i].auto_line;
        if (row->trainer != NULL && line != 0 && !sl_config_other_types(row, s)) note_auto(c, row, line, s, log);
    }
}

/* ---- The schedule and the optimizer ---- */

void sl_config_warn_of_warmup(const sl_settings *s, int64_t steps, const sl_log *log)
{
    const sl_schedule_options *o = &s->schedule;
    sl_schedule_state state = { 0 };
    bool warms =
        o->kind == SL_SCHEDULE_WARMUP || o->kind == SL_SCHEDULE_WARMUP_DECAY || o->kind == SL_SCHEDULE_WARMUP_COSINE;
    if (!warms || steps <= 0 || o->warmup_num_steps <= steps) return;
    sl_schedule_options run = *o;
    if (run.total_num_steps < 0) run.total_num_steps = steps;
    sl_schedule_start(&run, &state);
    sl_log_write(log, SLUICE_LOG_WARNING,
                 "scheduler.params.warmup_num_steps is %lld, but the run has %lld steps: it ends in the warm-up, at a "
                 "learning rate of %.3g instead of %.3g; set warmup_num_steps lower",
                 (long long)o->warmup_num_steps, (long long)steps, sl_schedule_lr(&run, &state, (uint64_t)steps),
                 o->kind == SL_SCHEDULE_WARMUP_COSINE ? o->base_lr : o->warmup_max_lr);
}

static void warn_of_dropout(const sl_settings *s, const char *key, double rate, const char *why, const sl_log *log)
{
    if (rate <= 0) return;
    sl_log_write(
        log, SLUICE_LOG_WARNING,
        "%.600s/config.json: %s is %g, which is not applied: %s; model.dropout, where it is given, stands for all "
        "dropout",
        s->path, key, rate, why);
}

void sl_config_tell_dropout(const sl_settings *s, const sl_log *log)
{
    const sl_model_config *m = &s->model.folder;
    const sl_model_options *o = &s->model;
    char others[96] = "";
    if (m->family == SL_DECODER_NONE || s->given.dropout) return;
    warn_of_dropout(s, sl_model_config_attention_key(m), m->attention_dropout,
                    "dropout on attention's weights is not built in", log);
    if (m->family != SL_DECODER_GPT2 && !sl_decoder_is_encoder(m->family)) {
        warn_of_dropout(s, sl_model_config_dropout_key(m), m->dropout, "this family has no dropout here", log);
        return;
    }
    if (o->embedding_dropout >= 0 && o->embedding_dropout != o->dropout)
        snprintf(others, sizeof others, ", %g behind the embedding", o->embedding_dropout);
    if (o->classifier_dropout >= 0 && o->classifier_dropout != o->dropout)
        snprintf(others + strlen(others), sizeof others - strlen(others), ", %g before the classifier",
                 o->classifier_dropout);
    if (o->dropout > 0 || others[0] != '\0')
        sl_log_write(log, SLUICE_LOG_NOTE, "dropout is %g%s (config.json of model.path)", o->dropout, others);
}

/* AdamW is decoupled whatever adam_w_mode says, in DeepSpeed too. */
static void note_decay_mode(const sluice_config *c, const sl_log *log)
{
    const sl_option *row = sl_option_find(sl_config_rows, sl_config_row_count, "optimizer.params.adam_w_mode");
    char where[SL_WHERE_BYTES];
    if (c->settings.optim.optimizer.kind != SLUICE_ADAMW || c->settings.given.adam_w_mode) return;
    sl_log_write(log, SLUICE_LOG_NOTE,
                 "%s%s: false has no effect with the type AdamW, whose weight decay is always decoupled; for L2 "
                 "regularisation write \"type\": \"Adam\"",
                 sl_config_where(c, row, where, sizeof where), row->key);
}

/* ---- Keys without effect ---- */

/* What the key of a row is called in a list: without its first section, or the section that a wildcard stands for. */
static void short_name(const sl_option *row, const sl_config_origin *origin, char *out, size_t out_bytes)
{
    bool section = sl_config_is_wildcard(row) && row->key[0] != '_';
    const char *key = section ? row->key : origin->key, *dot = strchr(key, '.');
    size_t length = strlen(key) - (section ? 2 : 0); /* ".*" */
    size_t start = dot != NULL && (size_t)(dot - key) < length ? (size_t)(dot - key) + 1 : 0;
    snprintf(out, out_bytes, "%.*s", (int)(length - start), key + start);
}

static bool has_no_effect(const sluice_config *c, size_t row)
{
    return sl_config_rows[row].fate == SL_KEY_NOTED && c->private_data->origins[row].line != 0;
}

static void note_without_effect(const sluice_config *c, size_t i, sluice_log_level level, const sl_log *log)
{
    const sl_config_origin *origin = &c->private_data->origins[i];
    char where[SL_WHERE_BYTES], more[48] = "";
    if (origin->count > 1) snprintf(more, sizeof more, " (and %d more like it)", origin->count - 1);
    sl_log_write(log, level, "%s%s%s has no effect: %s", sl_config_place(c, origin->line, where, sizeof where),
                 origin->key, more, sl_config_rows[i].note);
}

static void note_keys_without_effect(const sluice_config *c, const sl_log *log)
{
    char names[1024] = "", name[SL_KEY_BYTES];
    size_t used = 0, only = 0;
    int rows = 0, keys = 0;
    for (size_t i = 0; i < sl_config_row_count; i++) {
        if (!has_no_effect(c, i)) continue;
        rows++;
        keys += c->private_data->origins[i].count;
        only = i;
        short_name(&sl_config_rows[i], &c->private_data->origins[i], name, sizeof name);
        if (used + strlen(name) + 8 > sizeof names) continue;
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", used > 0 ? ", " : "", name);
    }
    if (rows == 1) {
        note_without_effect(c, only, SLUICE_LOG_NOTE, log);
        return;
    }
    if (rows == 0) return;
    sl_log_write(log, SLUICE_LOG_NOTE, "%s: %d keys have no effect here: %s; --notes shows why", c->path, keys, names);
    for (size_t i = 0; i < sl_config_row_count; i++)
        if (has_no_effect(c, i)) note_without_effect(c, i, SLUICE_LOG_DETAIL, log);
}

void sl_config_write_notes(const sluice_config *c, const sl_settings *s, const sl_log *training, const sl_log *log)
{
    if (log == NULL) return;
    note_auto_precision(c, s, log);
    if (training == NULL) return;
    /* sets of images, sentences, rows and sounds may have a part for it, which is known when they are opened */
    sl_sample_kind gives = sl_data_gives(s->data.type);
    bool may_have = s->data.validation_path[0] != '\0' || gives == SL_SAMPLES_IMAGES || gives == SL_SAMPLES_SENTENCES ||
                    gives == SL_SAMPLES_CLICKS || gives == SL_SAMPLES_SPEECH;
    if (s->evaluate.every > 0 && s->data.validation <= 0 && !may_have)
        sl_log_write(log, SLUICE_LOG_WARNING, "evaluate.every has nothing to evaluate on; set data.validation above 0");
    sl_config_warn_of_warmup(s, s->steps, log);
    note_autos(c, s, log);
    note_decay_mode(c, log);
    note_keys_without_effect(c, log);
}

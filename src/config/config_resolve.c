/* config_resolve.c: what needs more than one key: refusals, defaults by type, and what follows from what.
 *
 * Runs on a copy of the settings, so that a configuration can be resolved any number of times. Every message points at
 * the place of the value it is about. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "config/config_rows.h"
#include "core/sized.h"
#include "core/status.h"
#include "format/adapter_config.h"
#include "optim/loss_scale.h"

static const sl_option *row_of(const char *key)
{
    return sl_option_find(sl_config_rows, sl_config_row_count, key);
}

/* `c` is NULL where the settings come from options of the C API, which give every value. */
static bool given(const sluice_config *c, const char *key)
{
    return c == NULL || c->private_data->origins[row_of(key) - sl_config_rows].line != 0;
}

/* Fails about one key: "config.json:3: steps: ...", or "options.stage: ...". */
static sluice_status fail_key(const sluice_config *c, const char *key, const char *message)
{
    char where[SL_WHERE_BYTES];
    if (c == NULL) return sl_fail(SLUICE_ERR_USAGE, "options.%s: %s", row_of(key)->option, message);
    return sl_fail(SLUICE_ERR_USAGE, "%s%s: %s", sl_config_where(c, row_of(key), where, sizeof where), key, message);
}

/* ---- Refusals ---- */

static sluice_status refuse_row(const sluice_config *c, const sl_option *row)
{
    char where[SL_WHERE_BYTES];
    const sl_config_origin *origin = &c->private_data->origins[row - sl_config_rows];
    const char *value = origin->given;
    sl_config_where(c, row, where, sizeof where);
    if (row->fate == SL_KEY_REFUSED)
        return sl_fail(SLUICE_ERR_USAGE, "%s%s: %.200s is refused: %s", where, origin->key, value, row->note);
    if (row->type == SL_OPT_CHOICE) {
        char choices[600];
        sl_config_describe_type(row, choices, sizeof choices);
        return sl_fail(SLUICE_ERR_USAGE, "%s%s: %.200s is not built in yet; use %s", where, row->key, value, choices);
    }
    return sl_fail(SLUICE_ERR_USAGE, "%s%s: %.200s is not built in yet (\"%s\"); leave the key out", where, origin->key,
                   value, row->help);
}

static sluice_status refuse_unbuilt(const sluice_config *c)
{
    for (size_t i = 0; i < sl_config_row_count; i++) {
        const sl_option *row = &sl_config_rows[i];
        if (c->private_data->origins[i].refused) return refuse_row(c, row);
    }
    return SLUICE_OK;
}

/* ---- Parameters that depend on a type ---- */

static sluice_status refuse_parameter(const sluice_config *c, const sl_option *row, const sl_config_kind *kind)
{
    char where[SL_WHERE_BYTES], names[512];
    snprintf(names, sizeof names, "%s", kind->params);
    for (char *bar = names; (bar = strchr(bar, '|')) != NULL;) *bar = ' ';
    sl_config_where(c, row, where, sizeof where);
    if (names[0] == '\0')
        return sl_fail(SLUICE_ERR_USAGE, "%s%s: it has no meaning without a scheduler.type", where, row->key);
    return sl_fail(SLUICE_ERR_USAGE, "%s%s: %s has no such parameter; it has: %s", where, row->key, kind->name, names);
}

/* Refuses parameters of other types and fills in this type's own defaults. */
static sluice_status resolve_parameters(const sluice_config *c, const sl_config_family *family, int type,
                                        sl_settings *s)
{
    const sl_config_kind *kind = &family->kinds[type];
    for (size_t i = 0; i < sl_config_row_count; i++) {
        const sl_option *row = &sl_config_rows[i];
        const char *name = sl_config_param(family, row);
        char text[64];
        sl_config_value value;
        if (name == NULL) continue;
        const sl_config_origin *origin = &c->private_data->origins[i];
        bool is_given = origin->line != 0;
        /* the word itself asks for what the row calls auto, such as the optimizer's rate; a type's default does not */
        bool asks_auto = origin->auto_line != 0 &&
                         (strcmp(row->fallback, "auto") == 0 || (s->given.by_trainer && row->trainer != NULL));
        if (is_given && !sl_config_listed(kind->params, name)) return refuse_parameter(c, row, kind);
        if (is_given || asks_auto || sl_config_listed_value(kind->defaults, name, text, sizeof text) == NULL) continue;
        sl_config_value_from_table(row, text, &value);
        sl_config_value_store(row, &value, s);
    }
    return SLUICE_OK;
}

static sluice_status check_optimizer(const sluice_config *c, const sluice_optimizer *o)
{
    if (o->nesterov && (o->momentum <= 0 || o->dampening != 0))
        return fail_key(c, "optimizer.params.nesterov", "it needs a momentum above 0 and no dampening");
    if (o->min_trust > o->max_trust) return fail_key(c, "optimizer.params.min_coeff", "it is larger than max_coeff");
    return SLUICE_OK;
}

static sluice_status resolve_optimizer(const sluice_config *c, sl_settings *s)
{
    sluice_optimizer *o = &s->optim.optimizer;
    if ((int)o->kind < 0)
        return sl_fail(
            SLUICE_ERR_USAGE,
            "%s: optimizer.type is missing; write \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.001}}",
            c->path);
    o->size = sizeof *o;
    SL_TRY(resolve_parameters(c, &sl_config_optimizers, (int)o->kind, s));
    if (o->kind == SLUICE_ADAM && s->given.adam_w_mode) o->kind = SLUICE_ADAMW;
    if (o->kind == SLUICE_ADAMW) {
        s->given.adam_w_mode = true;
        if (s->given.torch_adam && !given(c, "optimizer.params.weight_decay")) o->weight_decay = 0.01;
    }
    return check_optimizer(c, o);
}

static sluice_status resolve_groups(const sluice_config *c, sl_settings *s)
{
    const struct sl_config_private *p = c->private_data;
    s->optim.group_count = p->group_count;
    for (int i = 0; i < p->group_count; i++) {
        const sl_config_group *g = &p->groups[i];
        if (g->lr >= 0 && s->optim.optimizer.lr == 0)
            return fail_key(c, "optimizer.groups", "a group has a rate of its own, but optimizer.params.lr is 0");
        s->groups[i] = (sl_group_options){ .pattern = g->pattern,
                                           .lr_scale = g->lr >= 0 ? g->lr / s->optim.optimizer.lr : 1,
                                           .weight_decay = g->weight_decay };
    }
    return SLUICE_OK;
}

/* Runs after the length is known: the schedule may follow it. */
static sluice_status resolve_schedule(const sluice_config *c, sl_settings *s)
{
    SL_TRY(resolve_parameters(c, &sl_config_schedules, (int)s->schedule.kind, s));
    s->schedule.base_lr = s->optim.optimizer.lr;
    if (s->schedule.warmup_max_lr < 0) s->schedule.warmup_max_lr = s->optim.optimizer.lr;
    if (s->schedule.total_num_steps < 0) s->schedule.total_num_steps = s->steps;
    if (s->schedule.kind == SL_SCHEDULE_ONE_CYCLE && (s->schedule.cycle_min_lr < 0 || s->schedule.cycle_max_lr < 0))
        return fail_key(c, "scheduler.type", "OneCycle needs params.cycle_min_lr and params.cycle_max_lr");
    if (s->schedule.kind == SL_SCHEDULE_PLATEAU && s->data.validation <= 0)
        return fail_key(c, "scheduler.type",
                        "ReduceLROnPlateau watches the validation loss; set data.validation above 0");
    sl_schedule_place_warmup(&s->schedule, s->schedule.total_num_steps);
    sl_schedule_options checked = s->schedule;
    if (checked.total_num_steps < 0)
        checked.total_num_steps = checked.warmup_num_steps + 1; /* counted later, from the epochs */
    return sl_schedule_check(&checked);
}

/* ---- Length and batch ---- */

static bool is_typed(const sluice_config *c, const char *key)
{
    return c->private_data->origins[row_of(key) - sl_config_rows].line == SL_ORIGIN_SET;
}

/* One in the file gives way to the other on the command line, which is newer. */
static sluice_status resolve_length(const sluice_config *c, const sl_log *training, sl_settings *s)
{
    bool typed_steps = is_typed(c, "steps"), typed_epochs = is_typed(c, "epochs");
    if (s->steps > 0 && s->epochs > 0) {
        if (typed_steps == typed_epochs)
            return fail_key(c, "epochs", "steps is given too; give one of them: --set epochs=null leaves these out");
        sl_log_write(training, SLUICE_LOG_NOTE, "%s of %s gives way to --set %s", typed_steps ? "epochs" : "steps",
                     c->path, typed_steps ? "steps" : "epochs");
        *(typed_steps ? &s->epochs : &s->steps) = -1;
    }
    if (s->steps < 0 && s->epochs < 0)
        return sl_fail(SLUICE_ERR_USAGE, "%s: the length of the run is missing; give \"steps\" or \"epochs\"", c->path);
    return SLUICE_OK;
}

/* What is judged needs evaluations, and what is kept a place. */
static sluice_status resolve_judging(const sluice_config *c, sl_settings *s)
{
    if (s->early_stopping.patience > 0 && s->evaluate.every == 0)
        return fail_key(c, "early_stopping.patience",
                        "evaluations are counted, and evaluate.every is 0: there is none before the last step");
    if (s->replan && (s->checkpoint.path[0] == '\0' || s->checkpoint.every == 0))
        return fail_key(c, "replan", "a new plan begins at a checkpoint; set checkpoint.path and checkpoint.every");
    if (s->save_best && s->save[0] == '\0') return fail_key(c, "save_best", "save is missing; name the file to write");
    if ((s->save_best || s->checkpoint.keep_best) && s->checkpoint.path[0] == '\0')
        return fail_key(c, s->save_best ? "save_best" : "checkpoint.keep_best",
                        "checkpoint.path is missing: the best step is kept as a checkpoint");
    s->checkpoint.keep_best = s->checkpoint.keep_best || s->save_best;
    return SLUICE_OK;
}

static const char *rank_word(int ranks)
{
    return ranks == 1 ? "rank" : "ranks";
}

static sluice_status fail_batch(const sluice_config *c, const sl_settings *s, const char *other, int64_t value,
                                int ranks)
{
    char where[SL_WHERE_BYTES];
    return sl_fail(SLUICE_ERR_USAGE, "%strain_batch_size: %lld does not divide by %s %lld x %d %s",
                   sl_config_where(c, row_of("train_batch_size"), where, sizeof where), (long long)s->train_batch_size,
                   other, (long long)value, ranks, rank_word(ranks));
}

/* A number of the batch that follows from the others is bounded as one that is given. */
static sluice_status check_derived(const sluice_config *c, const sl_settings *s, const char *key, int64_t value)
{
    char where[SL_WHERE_BYTES];
    if (value <= (int64_t)row_of(key)->max) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_USAGE, "%strain_batch_size: %lld makes %s %lld, which is at most %lld",
                   sl_config_where(c, row_of("train_batch_size"), where, sizeof where), (long long)s->train_batch_size,
                   key, (long long)value, (long long)row_of(key)->max);
}

/* The number of ranks that three given batch numbers were written for; 0: there is none. */
static int64_t batch_ranks(const sl_settings *s)
{
    int64_t product;
    if (s->train_batch_size <= 0 || s->model.batch <= 0 || s->plan.accumulation <= 0) return 0;
    if (__builtin_mul_overflow(s->model.batch, s->plan.accumulation, &product)) return 0;
    int64_t ranks = s->train_batch_size % product == 0 ? s->train_batch_size / product : 0;
    return ranks <= INT32_MAX ? ranks : 0;
}

static sluice_status check_batch_product(const sluice_config *c, const sl_settings *s, int ranks)
{
    char where[SL_WHERE_BYTES], fits[64] = "";
    if (batch_ranks(s) == ranks) return SLUICE_OK;
    if (batch_ranks(s) > 0) snprintf(fits, sizeof fits, "; it fits %lld ranks", (long long)batch_ranks(s));
    return sl_fail(SLUICE_ERR_USAGE,
                   "%strain_batch_size: %lld is not train_micro_batch_size_per_gpu %lld x gradient_accumulation_steps "
                   "%lld x %d %s%s",
                   sl_config_where(c, row_of("train_batch_size"), where, sizeof where), (long long)s->train_batch_size,
                   (long long)s->model.batch, (long long)s->plan.accumulation, ranks, rank_word(ranks), fits);
}

/* train_batch_size = micro-batch x accumulation x ranks; whatever is missing follows. */
static sluice_status resolve_batch(const sluice_config *c, int ranks, sl_settings *s)
{
    bool total = s->train_batch_size > 0, micro = s->model.batch > 0, accumulation = s->plan.accumulation > 0;
    int64_t product;
    if (!total && !micro)
        return sl_fail(SLUICE_ERR_USAGE,
                       "%s: the batch size is missing; give \"train_batch_size\" or \"train_micro_batch_size_per_gpu\"",
                       c->path);
    if (!accumulation) {
        s->plan.accumulation = 1;
        bool whole = !__builtin_mul_overflow(s->model.batch, ranks, &product);
        if (total && micro && (!whole || s->train_batch_size % product != 0))
            return fail_batch(c, s, "train_micro_batch_size_per_gpu", s->model.batch, ranks);
        if (total && micro) {
            int64_t steps = s->train_batch_size / product;
            SL_TRY(check_derived(c, s, "gradient_accumulation_steps", steps));
            s->plan.accumulation = (int)steps;
        }
    }
    if (!micro) {
        if (__builtin_mul_overflow((int64_t)s->plan.accumulation, ranks, &product) ||
            s->train_batch_size % product != 0)
            return fail_batch(c, s, "gradient_accumulation_steps", s->plan.accumulation, ranks);
        s->model.batch = s->train_batch_size / product;
        SL_TRY(check_derived(c, s, "train_micro_batch_size_per_gpu", s->model.batch));
    }
    if (!total && (__builtin_mul_overflow(s->model.batch, s->plan.accumulation, &product) ||
                   __builtin_mul_overflow(product, ranks, &s->train_batch_size)))
        return fail_key(c, "train_micro_batch_size_per_gpu", "the global batch is too large");
    return check_batch_product(c, s, ranks);
}

/* What it grows to is for the run to find: it depends on the ranks. */
static sluice_status check_growth(const sluice_config *c, const sl_settings *s)
{
    if (s->batch_growth.every == 0) return SLUICE_OK;
    if (s->batch_growth.limit < 0)
        return fail_key(c, "batch_growth.every",
                        "batch_growth.limit is missing: say how many samples a step may have at most");
    if (s->batch_growth.limit < s->train_batch_size)
        return fail_key(c, "batch_growth.limit", "it is less than train_batch_size, with which the run begins");
    return SLUICE_OK;
}

/* ---- Ranks ---- */

/* What a file says about the number of ranks, where nobody else does. */
static int ranks_written_for(const sl_settings *s)
{
    if (batch_ranks(s) > 0) return (int)batch_ranks(s);
    return s->given.weight_count > 0 ? s->given.weight_count : 1;
}

static sluice_status resolve_partition(const sluice_config *c, int ranks, sl_settings *s)
{
    char message[128];
    bool weighted = s->given.weight_count > 0;
    int64_t bucket = s->given.reduce_bucket;
    if ((int)s->plan.partition < 0)
        s->plan.partition = weighted                                                   ? SLUICE_PARTITION_WEIGHTED
                            : sl_optim_needs_whole_parameters(s->optim.optimizer.kind) ? SLUICE_PARTITION_OWNER
                                                                                       : SLUICE_PARTITION_LAYER;
    if (bucket < 0 || (s->given.allgather_bucket > 0 && s->given.allgather_bucket < bucket))
        bucket = s->given.allgather_bucket;
    if (bucket == 0) bucket = 1; /* as in DeepSpeed: nothing shares a collective */
    s->plan.bucket_bytes = bucket > 0 ? (uint64_t)bucket * (s->precision.wire == SLUICE_F32 ? 4 : 2) : 0;
    if (!weighted) return SLUICE_OK;
    if (s->plan.partition != SLUICE_PARTITION_WEIGHTED)
        return fail_key(c, "zero_optimization.partition_weights", "it needs zero_optimization.partition \"weighted\"");
    if (s->given.weight_count == ranks) return SLUICE_OK;
    snprintf(message, sizeof message, "it has %d numbers, and there %s %d %s", s->given.weight_count,
             ranks == 1 ? "is" : "are", ranks, rank_word(ranks));
    return fail_key(c, "zero_optimization.partition_weights", message);
}

/* ---- Precision ---- */

/* As DeepSpeed checks them: only where they count. */
static sluice_status check_loss_scale(const sluice_config *c, const sl_precision *p)
{
    if (p->type != SLUICE_F16 || p->loss_scale.fixed > 0) return SLUICE_OK;
    if (p->loss_scale.window < 1)
        return fail_key(c, "fp16.loss_scale_window", "it must be above 0 where the loss scale is dynamic");
    if (!(p->loss_scale.minimum > 0))
        return fail_key(c, "fp16.min_loss_scale", "it must be above 0 where the loss scale is dynamic");
    return SLUICE_OK;
}

/* Wire type and loss scale of a precision that is decided, and whether its moments can be kept so. `key`: the one that
 * decided about the moments. */
static sluice_status settle_precision(const sluice_config *c, const char *key, sl_settings *s)
{
    if ((int)s->precision.wire < 0) s->precision.wire = s->precision.type;
    if (!sl_optim_allows_compact(s->optim.optimizer.kind) && s->precision.states != SLUICE_STATES_F32)
        return fail_key(c, key, "LAMB and LARS keep their moments in fp32 only");
    return check_loss_scale(c, &s->precision);
}

static sluice_status resolve_precision(const sluice_config *c, sl_settings *s)
{
    bool by_section = s->given.bf16 && s->given.bf16_states, by_optimizer = !s->given.fp32_states;
    const char *key = by_section     ? "bf16.bf16_optimizer_states"
                      : by_optimizer ? "optimizer.params.fp32_optimizer_states"
                                     : "zero_optimization.states";
    if (s->given.fp16 && s->given.bf16)
        return fail_key(c, "fp16.enabled", "bf16.enabled is true too; a run has one precision, so switch one off");
    s->precision.type = s->given.fp16 ? SLUICE_F16 : s->given.bf16 ? SLUICE_BF16 : SLUICE_F32;
    if (by_section || by_optimizer) { /* DeepSpeed has two other names for bf16 moments */
        if (given(c, "zero_optimization.states") && s->precision.states != SLUICE_STATES_BF16)
            return fail_key(c, key, "it asks for bf16, zero_optimization.states for another type; give one of them");
        s->precision.states = SLUICE_STATES_BF16;
    }
    return settle_precision(c, key, s);
}

/* ---- Model and data ---- */

/* Whether `name` is one of "a, b, c". */
static bool named(const char *list, const char *name)
{
    size_t n = strlen(name);
    for (const char *at = list; n > 0 && (at = strstr(at, name)) != NULL; at += n)
        if ((at == list || at[-1] == ' ') && (at[n] == ',' || at[n] == '\0')) return true;
    return false;
}

static sluice_status check_name(const sluice_config *c, const char *key, const char *value, const char *names)
{
    char where[SL_WHERE_BYTES], hint[200];
    if (named(names, value)) return SLUICE_OK;
    sl_config_where(c, row_of(key), where, sizeof where);
    if (value[0] == '\0') return sl_fail(SLUICE_ERR_USAGE, "%s%s is missing; it is one of %s", where, key, names);
    sl_config_value_hint(key, value, names, hint, sizeof hint);
    return sl_fail(SLUICE_ERR_USAGE, "%s%s: \"%.100s\" is not one of %s%s%s", where, key, value, names,
                   hint[0] != '\0' ? "; " : "", hint);
}

/* One number that model and data must agree on; either may leave it to the other. */
static sluice_status agree(const sluice_config *c, const char *model_key, int64_t *model, const char *data_key,
                           int64_t *data)
{
    char where[SL_WHERE_BYTES];
    if (*model < 0) *model = *data;
    if (*data < 0) *data = *model;
    sl_config_where(c, row_of(model_key), where, sizeof where);
    if (*model < 0) return sl_fail(SLUICE_ERR_USAGE, "%s%s is missing", where, model_key);
    if (*model != *data)
        return sl_fail(SLUICE_ERR_USAGE, "%s%s: %lld does not match %s, which is %lld", where, model_key,
                       (long long)*model, data_key, (long long)*data);
    return SLUICE_OK;
}

static sluice_status resolve_table_data(const sluice_config *c, bool classification, sl_settings *s)
{
    const char *wanted = classification ? "cross_entropy" : "mse";
    if (!classification && s->model.outputs < 0 && s->data.outputs < 0) s->data.outputs = 1;
    SL_TRY(agree(c, "model.features", &s->model.features, "data.features", &s->data.features));
    SL_TRY(agree(c, "model.outputs", &s->model.outputs, "data.outputs", &s->data.outputs));
    if (s->model.loss[0] == '\0') s->model.loss = wanted;
    const bool labels = !classification && strcmp(s->model.loss, "bce") == 0;
    if (strcmp(s->model.loss, wanted) != 0 && !labels)
        return fail_key(c, "model.loss",
                        classification ? "classes need cross_entropy" : "numbers as targets need mse or bce");
    return SLUICE_OK;
}

/* Features and classes are known when the images are read. */
static sluice_status resolve_images(const sluice_config *c, sl_settings *s)
{
    if (s->data.outputs < 0) s->data.outputs = s->model.outputs;
    if (s->model.loss[0] == '\0') s->model.loss = "cross_entropy";
    if (strcmp(s->model.loss, "cross_entropy") != 0)
        return fail_key(c, "model.loss", "classes of images need cross_entropy");
    return SLUICE_OK;
}

/* The vocabulary is the tokenizer's; a number may be larger. */
static sluice_status resolve_encoded_text(const sluice_config *c, sl_settings *s)
{
    char *end = NULL;
    bool number = strtoll(s->given.vocabulary, &end, 10) > 0 && *end == '\0';
    if (s->data.unit >= 0 && s->data.unit != SL_TEXT_TOKENS)
        return fail_key(c, "data.unit", "data.tokenizer makes tokens of the text; leave one of them out");
    if (s->data.tokenizer[0] == '\0')
        return fail_key(c, "data.unit", "tokens need data.tokenizer, a folder with tokenizer.json");
    if (given(c, "model.vocabulary") && !number)
        return fail_key(c, "model.vocabulary",
                        "the tokens are those of data.tokenizer; give a number, or leave it out");
    s->data.unit = SL_TEXT_TOKENS;
    return SLUICE_OK;
}

static sluice_status resolve_text_data(const sluice_config *c, sl_settings *s)
{
    const char *vocabulary = s->given.vocabulary;
    if (s->data.tokenizer[0] != '\0' || s->data.unit == SL_TEXT_TOKENS) return resolve_encoded_text(c, s);
    bool characters = strcmp(vocabulary, "characters") == 0, bytes = strcmp(vocabulary, "bytes") == 0;
    char *end = NULL;
    long long count = strtoll(vocabulary, &end, 10);
    bool number = !characters && !bytes;
    if (number && (*end != '\0' || end == vocabulary || count < 1))
        return fail_key(c, "model.vocabulary", "it is \"bytes\", \"characters\" or a number of tokens");
    if (s->data.unit < 0) s->data.unit = characters ? SL_TEXT_CHARACTERS : SL_TEXT_BYTES;
    if ((characters && s->data.unit != SL_TEXT_CHARACTERS) || (bytes && s->data.unit != SL_TEXT_BYTES))
        return fail_key(c, "data.unit", "it does not match model.vocabulary");
    if (number && s->data.unit == SL_TEXT_BYTES && count < 256)
        return fail_key(c, "model.vocabulary", "bytes have 256 values; it is smaller than that");
    return SLUICE_OK;
}

/* As in BERT's own training. */
#define USUAL_MASKING 0.15

/* A model that guesses hidden tokens has them hidden by the data; any other reads them as they are. */
static sluice_status resolve_masking(const sluice_config *c, sl_settings *s)
{
    bool guesses = sl_model_guesses(&s->model), files = strcmp(s->data.type, "tokens") == 0;
    bool windows = files || strcmp(s->data.type, "text") == 0;
    if (s->data.masking < 0) s->data.masking = guesses && windows ? USUAL_MASKING : 0;
    if (guesses && windows && s->data.masking == 0)
        return fail_key(c, "data.masking", "0 leaves nothing to guess: a bert sees all tokens, also the next one");
    if (s->data.masking == 0) return SLUICE_OK;
    if (!guesses) return fail_key(c, "data.masking", "it is for model.type bert with model.head masked_language");
    if (!windows) return fail_key(c, "data.masking", "it hides tokens of data.type text and tokens");
    if (files && (s->data.mask_path[0] != '\0' || s->data.packing == SL_PACKING_DOCUMENTS))
        return fail_key(c, "data.masking", "data.mask_path and data.packing \"documents\" are for models that predict");
    if (s->data.tokenizer[0] == '\0') s->data.tokenizer = s->path;
    if (s->data.tokenizer[0] == '\0')
        return fail_key(c, "data.tokenizer",
                        "it is missing: tokens are hidden as its [MASK]; give a folder with tokenizer.json");
    return SLUICE_OK;
}

static sluice_status check_token_number(const sluice_config *c, const sl_settings *s)
{
    char *end = NULL;
    long long count = strtoll(s->given.vocabulary, &end, 10);
    if (*end == '\0' && count > 0) return SLUICE_OK;
    if (strcmp(s->data.type, "tokens") == 0)
        return fail_key(c, "model.vocabulary", "token files need a number, their tokenizer's, such as 50257 of GPT-2");
    return fail_key(c, "model.vocabulary", "random tokens need a number of different ones");
}

/* A model's folder has its tokenizer. */
static sluice_status check_jsonl(const sluice_config *c, sl_settings *s)
{
    if (s->data.tokenizer[0] == '\0') s->data.tokenizer = s->path;
    if (s->data.tokenizer[0] == '\0')
        return fail_key(c, "data.tokenizer", "it is missing; give a folder with tokenizer.json, or that file");
    s->data.chat_folder = s->adapter;
    return SLUICE_OK;
}

/* Sentences are encoded by the tokenizer of the model's folder, unless another is named. */
static sluice_status resolve_sentences(const sluice_config *c, sl_settings *s)
{
    if (strcmp(s->model.loss, "mse") == 0) return fail_key(c, "model.loss", "classes of sentences need cross_entropy");
    s->model.loss = "cross_entropy";
    return check_jsonl(c, s);
}

/* Columns and labels are known when the table is read; what a label is follows from what the model learns. */
static sluice_status resolve_rows(const sluice_config *c, sl_sample_kind reads, sl_settings *s)
{
    static const char *const losses[] = { "cross_entropy", "mse", "bce" }; /* by sl_target_choice */
    if (reads == SL_SAMPLES_CLICKS && s->data.target < 0) s->data.target = SL_TARGET_BINARY;
    if (reads == SL_SAMPLES_CLICKS && s->data.target != SL_TARGET_BINARY)
        return fail_key(c, "data.target", "a recommender learns a click or none; write \"binary\"");
    for (int i = 0; i < 3 && s->data.target < 0; i++)
        if (strcmp(s->model.loss, losses[i]) == 0) s->data.target = i;
    if (s->data.target < 0) s->data.target = SL_TARGET_CLASS;
    if (s->model.loss[0] == '\0') s->model.loss = losses[s->data.target];
    if (strcmp(s->model.loss, losses[s->data.target]) == 0) return SLUICE_OK;
    return fail_key(c, "model.loss", "data.target \"class\" needs cross_entropy, \"number\" mse, \"binary\" bce");
}

/* What is said is characters, and the loss is CTC's. The data set counts frames as the model makes them. */
static sluice_status resolve_speech(const sluice_config *c, sl_settings *s)
{
    if (s->model.loss[0] != '\0') return fail_key(c, "model.loss", "speech is learnt by CTC's loss; leave it out");
    s->data.unit = SL_TEXT_CHARACTERS;
    s->data.frame_stride = s->model.frame_stride;
    return SLUICE_OK;
}

/* A setting that an adapter's folder says, too: must agree where it is given. */
static sluice_status adopt_number(const sluice_config *c, const char *key, double theirs, double mine)
{
    char message[160];
    if (!given(c, key) || mine == theirs) return SLUICE_OK;
    snprintf(message, sizeof message, "the adapter of lora.path has %g; leave the key out", theirs);
    return fail_key(c, key, message);
}

/* The adapters of a folder are those of the model. */
static sluice_status adopt_adapter(const sluice_config *c, sl_settings *s)
{
    static const char *const lists[] = { "lora.targets", "lora.modules_to_save" };
    sl_adapter_config a;
    sl_weights_set *weights;
    if (s->adapter == NULL || s->adapter[0] == '\0') return SLUICE_OK;
    SL_TRY(sl_adapter_open(s->adapter, &c->private_data->arena, &a, &weights));
    sl_weights_set_close(weights); /* read again where there is a model to put them in */
    SL_TRY(adopt_number(c, "lora.rank", (double)a.rank, (double)s->model.lora.rank));
    SL_TRY(adopt_number(c, "lora.alpha", a.alpha, s->model.lora.alpha));
    SL_TRY(adopt_number(c, "lora.use_rslora", a.rank_stabilised, s->model.lora.rank_stabilised));
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++)
        if (given(c, lists[i])) return fail_key(c, lists[i], "lora.path says which modules; leave the key out");
    s->model.lora.rank = a.rank;
    s->model.lora.alpha = a.alpha;
    s->model.lora.rank_stabilised = a.rank_stabilised;
    if (!given(c, "lora.dropout")) s->model.lora.dropout = a.dropout;
    s->model.lora.targets = a.targets;
    s->model.lora.target_count = a.target_count;
    s->model.lora.whole = a.whole;
    s->model.lora.whole_count = a.whole_count;
    return SLUICE_OK;
}

static sluice_status check_adapters(const sluice_config *c, const sl_settings *s, bool language)
{
    if (s->model.lora.rank > 0 && !language) return fail_key(c, "lora.rank", "only language models can have adapters");
    if (s->model.lora.rank > 0 && s->model.lora.target_count == 0)
        return fail_key(c, "lora.rank", "lora.targets is missing; name the linears to adapt, such as [\"*\"]");
    if (s->model.lora.rank == 0 && s->model.lora.target_count > 0)
        return fail_key(c, "lora.targets", "lora.rank is 0; give the rank of the adapters, such as 8");
    return SLUICE_OK;
}

/* A model of numbers takes images as rows of them, and the numeric columns of a table. */
static sluice_status check_samples(const sluice_config *c, sl_sample_kind reads, sl_sample_kind gives,
                                   const sl_settings *s)
{
    char message[160];
    bool numbers = gives == SL_SAMPLES_IMAGES || gives == SL_SAMPLES_CLICKS;
    if (reads == gives || (reads == SL_SAMPLES_NUMBERS && numbers)) return SLUICE_OK;
    snprintf(message, sizeof message, "%.40s reads %s, and %.40s has %s", s->model.type, sl_sample_kind_name(reads),
             s->data.type, sl_sample_kind_name(gives));
    return fail_key(c, "data.type", message);
}

static sluice_status resolve_model_and_data(const sluice_config *c, sl_settings *s)
{
    SL_TRY(check_name(c, "model.type", s->model.type, sl_model_names()));
    SL_TRY(check_name(c, "data.type", s->data.type, sl_data_names()));
    bool language = sl_model_reads_tokens(s->model.type);
    sl_sample_kind gives = sl_data_gives(s->data.type);
    SL_TRY(check_samples(c, sl_model_reads(&s->model), gives, s));
    SL_TRY(adopt_adapter(c, s));
    SL_TRY(check_adapters(c, s, language));
    if (s->data.seed < 0) s->data.seed = s->seed;
    if (gives == SL_SAMPLES_TOKENS) {
        if (s->model.loss[0] != '\0' && strcmp(s->model.loss, "cross_entropy") != 0)
            return fail_key(c, "model.loss", "tokens need cross_entropy");
        s->model.loss = "cross_entropy";
        SL_TRY(resolve_masking(c, s));
        if (strcmp(s->data.type, "jsonl") == 0) return check_jsonl(c, s);
        return strcmp(s->data.type, "text") == 0 ? resolve_text_data(c, s) : check_token_number(c, s);
    }
    if (gives == SL_SAMPLES_IMAGES) return resolve_images(c, s);
    if (gives == SL_SAMPLES_SENTENCES) return resolve_sentences(c, s);
    if (gives == SL_SAMPLES_SPEECH) return resolve_speech(c, s);
    if (gives == SL_SAMPLES_CLICKS) return resolve_rows(c, sl_model_reads(&s->model), s);
    return resolve_table_data(c, strcmp(s->data.type, "classification") == 0, s);
}

/* ---- Memory ---- */

/* DeepSpeed's older and other names for the same settings. */
static void resolve_placement(const sluice_config *c, sl_settings *s)
{
    if (s->given.cpu_offload && s->plan.state == SLUICE_PLACE_AUTO) s->plan.state = SLUICE_PLACE_HOST;
    if (s->given.cpu_offload_param && s->plan.parameters == SLUICE_PLACE_AUTO) s->plan.parameters = SLUICE_PLACE_HOST;
    if (s->given.cpu_checkpointing && s->plan.offload_to == SLUICE_PLACE_AUTO) s->plan.offload_to = SLUICE_PLACE_HOST;
    s->plan.offload_checkpoints = s->plan.offload_to != SLUICE_PLACE_AUTO;
    if ((s->given.cpu_checkpointing || s->plan.checkpoints > 0) && !given(c, "activation_checkpointing.mode"))
        s->plan.activations = SLUICE_ACTIVATIONS_RECOMPUTE;
}

/* A setting that asks for the disk, and none that names one; NULL: there is none. */
static const char *asks_for_disk(const sl_settings *s)
{
    if (s->plan.state == SLUICE_PLACE_DISK) return "zero_optimization.offload_optimizer.device";
    if (s->plan.parameters == SLUICE_PLACE_DISK) return "zero_optimization.offload_param.device";
    return s->plan.offload_to == SLUICE_PLACE_DISK ? "activation_checkpointing.device" : NULL;
}

static sluice_status check_disk(const sluice_config *c, const sl_settings *s)
{
    char where[SL_WHERE_BYTES] = "";
    const char *key = asks_for_disk(s);
    if (key == NULL || (s->device.disk_path != NULL && s->device.disk_path[0] != '\0')) return SLUICE_OK;
    const sl_option *row = sl_option_find(sl_config_rows, sl_config_row_count, key);
    if (c != NULL) sl_config_where(c, row, where, sizeof where);
    return sl_fail(SLUICE_ERR_USAGE,
                   "%s%s is \"nvme\", but no folder is given for swap files; name one on a fast local disk with "
                   "memory.disk_path, or with nvme_path beside it",
                   where, key);
}

/* Whether `name`, of `bytes` bytes, is one of `list`, which colons separate. */
static bool is_listed(const char *list, const char *name, size_t bytes)
{
    for (; *list != '\0'; list += strcspn(list, ":"), list += *list == ':')
        if (strcspn(list, ":") == bytes && memcmp(list, name, bytes) == 0) return true;
    return false;
}

/* All folders that are named, each once. */
static sluice_status resolve_disk(const sluice_config *c, sl_settings *s)
{
    const char *named[] = { s->device.disk_path, s->given.state_path, s->given.parameter_path };
    size_t room = 1, used = 0;
    for (int i = 0; i < 3; i++) room += strlen(named[i]) + 1;
    char *all = sl_arena_alloc(&c->private_data->arena, room);
    if (all == NULL) return SLUICE_ERR_NO_MEMORY;
    for (int i = 0; i < 3; i++)
        for (const char *name = named[i]; *name != '\0';) {
            size_t bytes = strcspn(name, ":");
            if (bytes > 0 && !is_listed(all, name, bytes))
                used += (size_t)snprintf(all + used, room - used, "%s%.*s", used > 0 ? ":" : "", (int)bytes, name);
            name += bytes + (name[bytes] == ':');
        }
    s->device.disk_path = all;
    return check_disk(c, s);
}

/* ---- All of it ---- */

/* `training`: as sl_config_fill_bare. */
static sluice_status resolve(const sluice_config *c, int ranks, const sl_log *training, const sl_log *log,
                             sl_settings *out)
{
    sl_settings s = c->settings;
    if (ranks == 0) ranks = ranks_written_for(&s);
    SL_TRY(refuse_unbuilt(c));
    SL_TRY(sl_config_resolve_folder(c, log, &s));
    SL_TRY(sl_config_resolve_dropout(c, &s));
    SL_TRY(sl_config_fill_adapters(c, log, &s));
    sl_config_fill_data(c, log, &s);
    SL_TRY(sl_config_fill_bare(c, ranks, training, log, &s));
    SL_TRY(sl_config_resolve_images(c, log, &s));
    SL_TRY(resolve_length(c, training, &s));
    SL_TRY(resolve_judging(c, &s));
    SL_TRY(resolve_batch(c, ranks, &s));
    SL_TRY(check_growth(c, &s));
    SL_TRY(resolve_optimizer(c, &s));
    SL_TRY(resolve_groups(c, &s));
    SL_TRY(resolve_precision(c, &s));
    s.model.precision = s.precision.type;
    SL_TRY(resolve_partition(c, ranks, &s));
    SL_TRY(resolve_schedule(c, &s));
    SL_TRY(resolve_model_and_data(c, &s));
    resolve_placement(c, &s);
    SL_TRY(resolve_disk(c, &s));
    sl_config_write_notes(c, &s, training, log);
    *out = s;
    return SLUICE_OK;
}

sluice_status sl_config_resolve(const sluice_config *c, int ranks, const sl_log *log, sl_settings *out)
{
    return resolve(c, ranks, log, log, out);
}

sluice_status sl_config_resolve_use(const sluice_config *c, const sl_log *log, sl_settings *out)
{
    return resolve(c, 0, NULL, log, out);
}

sluice_status sluice_config_check(const sluice_config *c, sluice_log_fn log, void *log_user)
{
    sl_settings s;
    const sl_log to = { .fn = log, .user = log_user, .rank_count = 1 };
    if (c == NULL) return sl_fail(SLUICE_ERR_USAGE, "sluice_config_check: the configuration is NULL");
    SL_TRY(sl_config_resolve(c, 0, &to, &s));
    sl_config_tell_batch(&s, NULL, &to);
    return SLUICE_OK;
}

/* ---- The C API ---- */

void sluice_options_init_sized(sluice_options *o, size_t size)
{
    sluice_options defaults = { .accumulation_steps = 1,
                                .prefetch_layers = -1,
                                .state_ratio = 1,
                                .delay_warmup = 40,
                                .precision = SLUICE_F32,
                                .wire = SLUICE_I32,
                                .check_overflow = true };
    sl_loss_scale_init(&defaults.loss_scale);
    sluice_optimizer_init(&defaults.optimizer, SLUICE_ADAM);
    sl_sized_fill(o, size, &defaults, sizeof defaults);
}

static void set_defaults(sl_settings *s)
{
    *s = (sl_settings){ .seed = 0 };
    for (size_t i = 0; i < sl_config_row_count; i++) {
        sl_config_value value;
        if (sl_config_rows[i].fate != SL_KEY_HONOURED) continue;
        sl_config_value_default(&sl_config_rows[i], &value);
        sl_config_value_store(&sl_config_rows[i], &value, s);
    }
}

static bool is_float(sluice_dtype type)
{
    return type == SLUICE_F32 || type == SLUICE_BF16 || type == SLUICE_F16;
}

sluice_status sl_settings_from_options(const sluice_options *o, sl_settings *out)
{
    sl_settings s;
    set_defaults(&s);
    for (size_t i = 0; i < sl_config_row_count; i++) {
        sl_config_value value;
        if (sl_config_rows[i].option_bytes == 0) continue;
        SL_TRY(sl_config_value_from_option(&sl_config_rows[i], o, &value));
        sl_config_value_store(&sl_config_rows[i], &value, &s);
    }
    if (o->optimizer.size != sizeof o->optimizer)
        return sl_fail(SLUICE_ERR_USAGE, "options.optimizer.size is %zu: start from sluice_optimizer_init",
                       o->optimizer.size);
    /* what is no row's, or not in the form of its row: any 64 bits are a seed, two rows are one precision, two options
     * one mode of updates, pointers */
    if (!is_float(o->precision))
        return sl_fail(SLUICE_ERR_USAGE, "options.precision is %d, must be SLUICE_F32, SLUICE_BF16 or SLUICE_F16",
                       (int)o->precision);
    if (o->wire != SLUICE_I32 && !is_float(o->wire))
        return sl_fail(
            SLUICE_ERR_USAGE,
            "options.wire is %d, must be SLUICE_F32, SLUICE_BF16, SLUICE_F16, or SLUICE_I32 for the precision",
            (int)o->wire);
    s.from_options = true;
    s.seed = (int64_t)o->seed;
    s.given.fp16 = o->precision == SLUICE_F16;
    s.given.bf16 = o->precision == SLUICE_BF16;
    s.precision.type = o->precision;
    s.precision.wire = o->wire == SLUICE_I32 ? o->precision : o->wire;
    s.optim.optimizer.size = sizeof s.optim.optimizer;
    if (o->delayed_updates) s.plan.update = SL_UPDATE_MODE_DELAYED;
    s.plan.partition_weights = o->partition_weights;
    s.plan.evaluation = o->evaluation;
    s.plan.offload_checkpoints = o->offload_checkpoints || o->offload_place == SLUICE_PLACE_DISK;
    if (s.plan.offload_checkpoints && s.plan.offload_to == SLUICE_PLACE_AUTO) s.plan.offload_to = SLUICE_PLACE_HOST;
    if (s.device.disk_path == NULL) s.device.disk_path = "";
    SL_TRY(check_disk(NULL, &s));
    SL_TRY(check_optimizer(NULL, &s.optim.optimizer));
    SL_TRY(settle_precision(NULL, "zero_optimization.states", &s));
    *out = s;
    return SLUICE_OK;
}

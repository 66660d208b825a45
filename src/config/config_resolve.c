/* config_resolve.c: what needs more than one key: refusals, defaults by type, and what follows from what.
 *
 * Runs on a copy of the settings, so that a configuration can be resolved any number of times. Every message points at
 * the place of the value it is about. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "config/config_rows.h"
#include "core/status.h"

enum { OFFLOAD_CPU = 1 };                      /* choices of offload_*.device */
enum { MODE_AUTO = 0, MODE_RECOMPUTE = 2 };    /* choices of activation_checkpointing.mode */
enum { LOSS_MSE = 0, LOSS_CROSS_ENTROPY = 1 }; /* choices of model.loss */
enum { WIRE_FP32, WIRE_BF16, WIRE_FP16 };      /* choices of communication_data_type */
enum { UNIT_AUTO = 0, UNIT_BYTES = 1, UNIT_CHARACTERS = 2 };

static const sl_option *row_of(const char *key)
{
    return sl_option_find(sl_config_rows, sl_config_row_count, key);
}

static bool given(const sluice_config *c, const char *key)
{
    return c->private_data->origins[row_of(key) - sl_config_rows].line != 0;
}

/* Fails about one key: "config.json:3: steps: ...". */
static sluice_status fail_key(const sluice_config *c, const char *key, const char *message)
{
    char where[SL_WHERE_BYTES];
    return sl_fail(SLUICE_ERR_USAGE, "%s%s: %s", sl_config_where(c, row_of(key), where, sizeof where), key, message);
}

/* ---- Refusals ---- */

static sluice_status refuse_row(const sluice_config *c, const sl_option *row)
{
    char where[SL_WHERE_BYTES];
    const char *value = c->private_data->origins[row - sl_config_rows].given;
    sl_config_where(c, row, where, sizeof where);
    if (row->fate == SL_KEY_REFUSED)
        return sl_fail(SLUICE_ERR_USAGE, "%s%s: %.200s is refused: %s", where, row->key, value, row->note);
    if (row->type == SL_OPT_CHOICE) {
        char choices[600];
        sl_config_describe_type(row, choices, sizeof choices);
        return sl_fail(SLUICE_ERR_USAGE, "%s%s: %.200s is not built in yet; use %s", where, row->key, value, choices);
    }
    return sl_fail(SLUICE_ERR_USAGE, "%s%s: %.200s is not built in yet; leave the key out", where, row->key, value);
}

/* A choice that the table marks as known but not built in. */
static bool chose_unbuilt(const sl_option *row, const sl_settings *s)
{
    char name[64];
    bool built = true;
    sl_config_value value;
    if (row->fate != SL_KEY_HONOURED || row->type != SL_OPT_CHOICE) return false;
    sl_config_value_load(row, s, &value);
    return sl_config_choice(row, value.choice, name, sizeof name, &built) && !built;
}

static sluice_status refuse_unbuilt(const sluice_config *c)
{
    for (size_t i = 0; i < sl_config_row_count; i++) {
        const sl_option *row = &sl_config_rows[i];
        if (c->private_data->origins[i].refused || chose_unbuilt(row, &c->settings)) return refuse_row(c, row);
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
        bool is_given = c->private_data->origins[i].line != 0;
        if (is_given && !sl_config_listed(kind->params, name)) return refuse_parameter(c, row, kind);
        if (is_given || sl_config_listed_value(kind->defaults, name, text, sizeof text) == NULL) continue;
        sl_config_value_from_table(row, text, &value);
        sl_config_value_store(row, &value, s);
    }
    return SLUICE_OK;
}

static sluice_status resolve_optimizer(const sluice_config *c, sl_settings *s)
{
    if (s->optimizer.type < 0)
        return sl_fail(
            SLUICE_ERR_USAGE,
            "%s: optimizer.type is missing; write \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.001}}",
            c->path);
    SL_TRY(resolve_parameters(c, &sl_config_optimizers, s->optimizer.type, s));
    if (s->optimizer.type == SLUICE_ADAM && s->optimizer.adam_w_mode) s->optimizer.type = SLUICE_ADAMW;
    if (s->optimizer.type == SLUICE_ADAMW) {
        s->optimizer.adam_w_mode = true;
        if (s->optimizer.torch_adam && !given(c, "optimizer.params.weight_decay")) s->optimizer.weight_decay = 0.01;
    }
    if (s->optimizer.nesterov && (s->optimizer.momentum <= 0 || s->optimizer.dampening != 0))
        return fail_key(c, "optimizer.params.nesterov", "it needs a momentum above 0 and no dampening");
    if (s->optimizer.min_trust > s->optimizer.max_trust)
        return fail_key(c, "optimizer.params.min_coeff", "it is larger than max_coeff");
    return SLUICE_OK;
}

static sluice_status resolve_groups(const sluice_config *c, sl_settings *s)
{
    const struct sl_config_private *p = c->private_data;
    s->group_count = p->group_count;
    for (int i = 0; i < p->group_count; i++) {
        const sl_config_group *g = &p->groups[i];
        if (g->lr >= 0 && s->optimizer.lr == 0)
            return fail_key(c, "optimizer.groups", "a group has a rate of its own, but optimizer.params.lr is 0");
        s->groups[i] = (sl_group_options){ .pattern = g->pattern,
                                           .lr_scale = g->lr >= 0 ? g->lr / s->optimizer.lr : 1,
                                           .weight_decay = g->weight_decay };
    }
    return SLUICE_OK;
}

/* Runs after the length is known: the schedule may follow it. */
static sluice_status resolve_schedule(const sluice_config *c, sl_settings *s)
{
    SL_TRY(resolve_parameters(c, &sl_config_schedules, (int)s->schedule.kind, s));
    s->schedule.base_lr = s->optimizer.lr;
    s->schedule.warmup_linear = s->warmup_type == 1;
    s->schedule.threshold_absolute = s->threshold_mode == 1;
    if (s->schedule.warmup_max_lr < 0) s->schedule.warmup_max_lr = s->optimizer.lr;
    if (s->schedule.total_num_steps < 0) s->schedule.total_num_steps = s->steps;
    if (s->schedule.kind == SL_SCHEDULE_ONE_CYCLE && (s->schedule.cycle_min_lr < 0 || s->schedule.cycle_max_lr < 0))
        return fail_key(c, "scheduler.type", "OneCycle needs params.cycle_min_lr and params.cycle_max_lr");
    if (s->schedule.kind == SL_SCHEDULE_PLATEAU && s->data.validation <= 0)
        return fail_key(c, "scheduler.type",
                        "ReduceLROnPlateau watches the validation loss; set data.validation above 0");
    sl_schedule_options checked = s->schedule;
    if (checked.total_num_steps < 0)
        checked.total_num_steps = checked.warmup_num_steps + 1; /* counted later, from the epochs */
    return sl_schedule_check(&checked);
}

/* ---- Length and batch ---- */

static sluice_status resolve_length(const sluice_config *c, const sl_settings *s)
{
    if (s->steps > 0 && s->epochs > 0) return fail_key(c, "epochs", "steps is given too; give one of them");
    if (s->steps < 0 && s->epochs < 0)
        return sl_fail(SLUICE_ERR_USAGE, "%s: the length of the run is missing; give \"steps\" or \"epochs\"", c->path);
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

/* The number of ranks that three given batch numbers were written for; 0: there is none. */
static int64_t batch_ranks(const sl_settings *s)
{
    int64_t product;
    if (s->train_batch_size <= 0 || s->micro_batch <= 0 || s->accumulation <= 0) return 0;
    if (__builtin_mul_overflow(s->micro_batch, s->accumulation, &product)) return 0;
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
                   (long long)s->micro_batch, (long long)s->accumulation, ranks, rank_word(ranks), fits);
}

/* train_batch_size = micro-batch x accumulation x ranks; whatever is missing follows. */
static sluice_status resolve_batch(const sluice_config *c, int ranks, sl_settings *s)
{
    bool total = s->train_batch_size > 0, micro = s->micro_batch > 0, accumulation = s->accumulation > 0;
    int64_t product;
    if (!total && !micro)
        return sl_fail(SLUICE_ERR_USAGE,
                       "%s: the batch size is missing; give \"train_batch_size\" or \"train_micro_batch_size_per_gpu\"",
                       c->path);
    if (!accumulation) {
        s->accumulation = 1;
        bool whole = !__builtin_mul_overflow(s->micro_batch, ranks, &product);
        if (total && micro && (!whole || s->train_batch_size % product != 0))
            return fail_batch(c, s, "train_micro_batch_size_per_gpu", s->micro_batch, ranks);
        if (total && micro) s->accumulation = s->train_batch_size / product;
    }
    if (!micro) {
        if (__builtin_mul_overflow(s->accumulation, ranks, &product) || s->train_batch_size % product != 0)
            return fail_batch(c, s, "gradient_accumulation_steps", s->accumulation, ranks);
        s->micro_batch = s->train_batch_size / product;
    }
    if (!total && (__builtin_mul_overflow(s->micro_batch, s->accumulation, &product) ||
                   __builtin_mul_overflow(product, ranks, &s->train_batch_size)))
        return fail_key(c, "train_micro_batch_size_per_gpu", "the global batch is too large");
    return check_batch_product(c, s, ranks);
}

/* ---- Ranks ---- */

enum { PARTITION_LAYER, PARTITION_BLOCK, PARTITION_OWNER, PARTITION_WEIGHTED }; /* zero_optimization.partition */

/* What a file says about the number of ranks, where nobody else does. */
static int ranks_written_for(const sl_settings *s)
{
    if (batch_ranks(s) > 0) return (int)batch_ranks(s);
    return s->zero.weight_count > 0 ? s->zero.weight_count : 1;
}

static int automatic_partition(const sl_settings *s)
{
    if (s->zero.weight_count > 0) return PARTITION_WEIGHTED;
    bool whole = s->optimizer.type == SLUICE_LAMB || s->optimizer.type == SLUICE_LARS;
    return whole ? PARTITION_OWNER : PARTITION_LAYER;
}

static sluice_status resolve_partition(const sluice_config *c, int ranks, sl_settings *s)
{
    char message[128];
    if (s->zero.partition < 0) s->zero.partition = automatic_partition(s);
    int64_t bucket = s->zero.reduce_bucket;
    if (bucket < 0 || (s->zero.allgather_bucket > 0 && s->zero.allgather_bucket < bucket))
        bucket = s->zero.allgather_bucket;
    s->zero.bucket_bytes = bucket > 0 ? (uint64_t)bucket * (s->precision.wire == WIRE_FP32 ? 4 : 2) : 0;
    if (s->zero.weight_count == 0) return SLUICE_OK;
    if (s->zero.partition != PARTITION_WEIGHTED)
        return fail_key(c, "zero_optimization.partition_weights", "it needs zero_optimization.partition \"weighted\"");
    if (s->zero.weight_count == ranks) return SLUICE_OK;
    snprintf(message, sizeof message, "it has %d numbers, and there %s %d %s", s->zero.weight_count,
             ranks == 1 ? "is" : "are", ranks, rank_word(ranks));
    return fail_key(c, "zero_optimization.partition_weights", message);
}

/* ---- Precision ---- */

/* As DeepSpeed checks them: only where they count. */
static sluice_status check_loss_scale(const sluice_config *c, const sl_settings *s)
{
    if (!s->precision.fp16 || s->precision.loss_scale > 0) return SLUICE_OK;
    if (s->precision.scale_window < 1)
        return fail_key(c, "fp16.loss_scale_window", "it must be above 0 where the loss scale is adapted");
    if (s->precision.min_loss_scale < 1)
        return fail_key(c, "fp16.min_loss_scale", "it must be above 0 where the loss scale is adapted");
    return SLUICE_OK;
}

/* DeepSpeed has two other names for bf16 moments. */
static sluice_status resolve_states(const sluice_config *c, sl_settings *s)
{
    bool by_section = s->precision.bf16 && s->precision.bf16_states, by_optimizer = !s->optimizer.fp32_states;
    const char *key = by_section ? "bf16.bf16_optimizer_states" : "optimizer.params.fp32_optimizer_states";
    bool whole = s->optimizer.type == SLUICE_LAMB || s->optimizer.type == SLUICE_LARS;
    if (by_section || by_optimizer) {
        if (given(c, "zero_optimization.states") && s->zero.states != SLUICE_STATES_BF16)
            return fail_key(c, key, "it asks for bf16, zero_optimization.states for another type; give one of them");
        s->zero.states = SLUICE_STATES_BF16;
    } else {
        key = "zero_optimization.states";
    }
    if (whole && s->zero.states != SLUICE_STATES_F32)
        return fail_key(c, key, "LAMB and LARS keep their moments in fp32 only");
    return SLUICE_OK;
}

static sluice_status resolve_precision(const sluice_config *c, sl_settings *s)
{
    static const int as_type[] = { [SLUICE_F32] = WIRE_FP32, [SLUICE_BF16] = WIRE_BF16, [SLUICE_F16] = WIRE_FP16 };
    if (s->precision.fp16 && s->precision.bf16)
        return fail_key(c, "fp16.enabled", "bf16.enabled is true too; a run has one precision, so switch one off");
    s->precision.type = s->precision.fp16 ? SLUICE_F16 : s->precision.bf16 ? SLUICE_BF16 : SLUICE_F32;
    if (s->precision.wire < 0) s->precision.wire = as_type[s->precision.type];
    SL_TRY(check_loss_scale(c, s));
    return resolve_states(c, s);
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
    char where[SL_WHERE_BYTES];
    if (named(names, value)) return SLUICE_OK;
    sl_config_where(c, row_of(key), where, sizeof where);
    if (value[0] == '\0') return sl_fail(SLUICE_ERR_USAGE, "%s%s is missing; it is one of %s", where, key, names);
    return sl_fail(SLUICE_ERR_USAGE, "%s%s: \"%.100s\" is not one of %s", where, key, value, names);
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
    int wanted = classification ? LOSS_CROSS_ENTROPY : LOSS_MSE;
    if (!classification && s->model.outputs < 0 && s->data.outputs < 0) s->data.outputs = 1;
    SL_TRY(agree(c, "model.features", &s->model.features, "data.features", &s->data.features));
    SL_TRY(agree(c, "model.outputs", &s->model.outputs, "data.outputs", &s->data.outputs));
    if (s->model.loss < 0) s->model.loss = wanted;
    if (s->model.loss != wanted)
        return fail_key(c, "model.loss", classification ? "classes need cross_entropy" : "numbers as targets need mse");
    return SLUICE_OK;
}

static sluice_status resolve_text_data(const sluice_config *c, sl_settings *s)
{
    const char *vocabulary = s->model.vocabulary;
    bool characters = strcmp(vocabulary, "characters") == 0, bytes = strcmp(vocabulary, "bytes") == 0;
    char *end = NULL;
    long long count = strtoll(vocabulary, &end, 10);
    bool number = !characters && !bytes;
    if (s->data.path[0] == '\0') return fail_key(c, "data.path", "it is missing; give the text file");
    if (number && (*end != '\0' || end == vocabulary || count < 1))
        return fail_key(c, "model.vocabulary", "it is \"bytes\", \"characters\" or a number of tokens");
    if (s->data.unit == UNIT_AUTO) s->data.unit = characters ? UNIT_CHARACTERS : UNIT_BYTES;
    if ((characters && s->data.unit != UNIT_CHARACTERS) || (bytes && s->data.unit != UNIT_BYTES))
        return fail_key(c, "data.unit", "it does not match model.vocabulary");
    if (number && s->data.unit == UNIT_BYTES && count < 256)
        return fail_key(c, "model.vocabulary", "bytes have 256 values; it is smaller than that");
    return SLUICE_OK;
}

static sluice_status check_random_tokens(const sluice_config *c, const sl_settings *s)
{
    char *end = NULL;
    long long count = strtoll(s->model.vocabulary, &end, 10);
    if (*end == '\0' && count > 0) return SLUICE_OK;
    return fail_key(c, "model.vocabulary", "random tokens need a number of different ones");
}

static sluice_status check_adapters(const sluice_config *c, const sl_settings *s, bool language)
{
    if (s->lora.rank > 0 && !language) return fail_key(c, "lora.rank", "only gpt2 and llama can have adapters");
    if (s->lora.rank > 0 && s->lora.targets.count == 0)
        return fail_key(c, "lora.rank", "lora.targets is missing; name the linears to adapt, such as [\"*\"]");
    if (s->lora.rank == 0 && s->lora.targets.count > 0)
        return fail_key(c, "lora.targets", "lora.rank is 0; give the rank of the adapters, such as 8");
    return SLUICE_OK;
}

static sluice_status resolve_model_and_data(const sluice_config *c, sl_settings *s)
{
    SL_TRY(check_name(c, "model.type", s->model.type, sl_model_names()));
    SL_TRY(check_name(c, "data.type", s->data.type, "text, random_tokens, regression, classification"));
    bool random = strcmp(s->data.type, "random_tokens") == 0;
    bool language = sl_model_reads_tokens(s->model.type), text = random || strcmp(s->data.type, "text") == 0;
    char reads_text[64];
    snprintf(reads_text, sizeof reads_text, "%.40s reads tokens", s->model.type);
    if (language != text)
        return fail_key(c, "data.type", language ? reads_text : "text needs a language model, such as gpt2");
    SL_TRY(check_adapters(c, s, language));
    if (s->data.seed < 0) s->data.seed = s->seed;
    if (text) {
        if (s->model.loss == LOSS_MSE) return fail_key(c, "model.loss", "tokens need cross_entropy");
        s->model.loss = LOSS_CROSS_ENTROPY;
        return random ? check_random_tokens(c, s) : resolve_text_data(c, s);
    }
    return resolve_table_data(c, strcmp(s->data.type, "classification") == 0, s);
}

/* ---- Memory ---- */

/* DeepSpeed's older and other names for the same settings. */
static void resolve_placement(const sluice_config *c, sl_settings *s)
{
    if (s->zero.cpu_offload && s->zero.offload_optimizer < 0) s->zero.offload_optimizer = OFFLOAD_CPU;
    if (s->zero.cpu_offload_param && s->zero.offload_param < 0) s->zero.offload_param = OFFLOAD_CPU;
    if (s->activations.cpu_checkpointing) {
        s->activations.device = 1;
        if (!given(c, "activation_checkpointing.mode")) s->activations.mode = MODE_RECOMPUTE;
    }
    if (s->memory.levels < 0) s->memory.levels = 0;
}

/* ---- All of it ---- */

static void write_notes(const sluice_config *c, const sl_settings *s, const sl_log *log)
{
    if (log == NULL) return;
    if (s->evaluate.every > 0 && s->data.validation <= 0)
        sl_log_write(log, SLUICE_LOG_WARNING, "evaluate.every has nothing to evaluate on; set data.validation above 0");
    for (size_t i = 0; i < sl_config_row_count; i++) {
        const sl_option *row = &sl_config_rows[i];
        char where[SL_WHERE_BYTES];
        if (row->fate != SL_KEY_NOTED || c->private_data->origins[i].line == 0) continue;
        sl_log_write(log, SLUICE_LOG_NOTE, "%s%s has no effect: %s", sl_config_where(c, row, where, sizeof where),
                     row->key, row->note);
    }
}

sluice_status sl_config_resolve(const sluice_config *c, int ranks, const sl_log *log, sl_settings *out)
{
    sl_settings s = c->settings;
    if (ranks == 0) ranks = ranks_written_for(&s);
    SL_TRY(refuse_unbuilt(c));
    SL_TRY(resolve_length(c, &s));
    SL_TRY(resolve_batch(c, ranks, &s));
    SL_TRY(resolve_optimizer(c, &s));
    SL_TRY(resolve_groups(c, &s));
    SL_TRY(resolve_precision(c, &s));
    SL_TRY(resolve_partition(c, ranks, &s));
    SL_TRY(resolve_schedule(c, &s));
    SL_TRY(resolve_model_and_data(c, &s));
    resolve_placement(c, &s);
    write_notes(c, &s, log);
    *out = s;
    return SLUICE_OK;
}

sluice_status sluice_config_check(const sluice_config *c, sluice_log_fn log, void *log_user)
{
    sl_settings ignored;
    const sl_log to = { .fn = log, .user = log_user, .rank_count = 1 };
    if (c == NULL) return sl_fail(SLUICE_ERR_USAGE, "sluice_config_check: the configuration is NULL");
    return sl_config_resolve(c, 0, &to, &ignored);
}

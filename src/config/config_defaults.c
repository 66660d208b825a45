/* config_defaults.c: what is chosen where nobody said it: adapters by lora.enabled alone, the type of data by its file, and for
 * a configuration without a file (`sluice train --model FOLDER --data FILE --lora`) all that a file has to say.
 *
 * Every value chosen here is an ordinary setting: it is told once, it gives way to one that is typed, and
 * sluice_config_print writes it into a file that gives the same run. */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/config_rows.h"
#include "core/cpu.h"
#include "core/io.h"
#include "core/status.h"
#include "data/packing.h"

#define USUAL_RANK         16
#define USUAL_ADAPTER_LR   2e-4 /* of adapters, which start at nothing */
#define USUAL_WHOLE_LR     2e-5 /* of weights that know something already */
#define USUAL_WARMUP       0.03 /* share of the run */
#define USUAL_GLOBAL_ROWS  16
#define USUAL_MICRO_TOKENS 2048 /* where nobody asks the memory */
#define BY_TOKENS          "as many rows as have 2048 tokens, at most 8"

static const sl_option *row_of(const char *key)
{
    return sl_option_find(sl_config_rows, sl_config_row_count, key);
}

static bool is_given(const sluice_config *c, const char *key)
{
    return c->private_data->origins[row_of(key) - sl_config_rows].line != 0;
}

void sl_config_tell_chosen(const sl_log *log, const sl_settings *s, const char *key, const char *why)
{
    char text[512] = "";
    sl_config_value value;
    FILE *memory = fmemopen(text, sizeof text, "w");
    if (memory == NULL) return; /* the value counts all the same */
    sl_config_value_load(row_of(key), s, &value);
    sl_config_value_print(row_of(key), &value, memory);
    fclose(memory);
    sl_log_write(log, SLUICE_LOG_NOTE, "chosen: %s %s (%s)", key, text, why);
}

/* ---- Adapters ---- */

sluice_status sl_config_fill_adapters(const sluice_config *c, const sl_log *log, sl_settings *s)
{
    static const char *const all[] = { "*" };
    char where[SL_WHERE_BYTES];
    sl_model_options *m = &s->model;
    if (!s->given.lora || s->adapter[0] != '\0') return SLUICE_OK; /* a folder says what its adapters are */
    if (is_given(c, "lora.rank") && m->lora.rank == 0)
        return sl_fail(SLUICE_ERR_USAGE,
                       "%slora.rank: it is 0, and lora.enabled asks for adapters; leave one of them out",
                       sl_config_where(c, row_of("lora.rank"), where, sizeof where));
    if (m->lora.rank == 0) {
        m->lora.rank = USUAL_RANK;
        sl_config_tell_chosen(log, s, "lora.rank", "usual for adapters");
    }
    if (!is_given(c, "lora.alpha")) {
        m->lora.alpha = 2.0 * (double)m->lora.rank;
        sl_config_tell_chosen(log, s, "lora.alpha", "twice the rank");
    }
    if (m->lora.target_count == 0) {
        m->lora.targets = all;
        m->lora.target_count = 1;
        s->given.targets = "[\"*\"]";
        sl_config_tell_chosen(log, s, "lora.targets",
                              "every linear layer of the blocks; fused ones share one A, which is faster");
    }
    return SLUICE_OK;
}

/* ---- The type of the data ---- */

static bool ends_in(const char *path, const char *ending)
{
    size_t n = strlen(path), m = strlen(ending);
    return n > m && strcmp(path + n - m, ending) == 0;
}

/* Whether a file begins as JSON lines do: with an object. */
static bool begins_with_object(const char *path)
{
    char head[64];
    FILE *file = fopen(path, "rb");
    if (file == NULL) return false; /* whoever reads the data tells */
    size_t bytes = fread(head, 1, sizeof head - 1, file);
    fclose(file);
    head[bytes] = '\0';
    const char *at = head + strspn(head, " \t\r\n");
    if (*at == '[') at += 1 + strspn(at + 1, " \t\r\n");
    if (*at++ != '{') return false;
    return at[strspn(at, " \t\r\n")] == '"';
}

static const char *type_of_file(const char *path, const char **why)
{
    static const struct {
        const char *ending, *type;
    } endings[] = { { ".jsonl", "jsonl" },  { ".json", "jsonl" }, { ".jsonl.gz", "jsonl" }, { ".json.gz", "jsonl" },
                    { ".ndjson", "jsonl" }, { ".bin", "tokens" }, { ".npy", "tokens" },     { ".txt", "text" } };
    *why = "by the ending of data.path";
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++)
        if (ends_in(path, endings[i].ending)) return endings[i].type;
    bool json = begins_with_object(path);
    *why = json ? "data.path begins with a JSON object" : "data.path has no ending that says otherwise";
    return json ? "jsonl" : "text";
}

static bool has_tokenizer(const char *folder)
{
    static const char *const names[] = { "tokenizer.json", "vocab.json" };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[PATH_MAX];
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        if (sl_path_exists(path)) return true;
    }
    return false;
}

void sl_config_fill_data(const sluice_config *c, const sl_log *log, sl_settings *s)
{
    const char *why;
    if (s->data.type[0] != '\0' || s->data.path[0] == '\0') return;
    s->data.type = type_of_file(s->data.path, &why);
    sl_config_tell_chosen(log, s, "data.type", why);
    bool reads_text = strcmp(s->data.type, "tokens") != 0;
    if (!reads_text || s->path[0] == '\0' || s->data.tokenizer[0] != '\0' || is_given(c, "data.unit")) return;
    if (!has_tokenizer(s->path)) return;
    s->data.tokenizer = s->path;
    sl_config_tell_chosen(log, s, "data.tokenizer", "the model's own");
}

/* ---- Precision ---- */

/* Whether a job that leaves the device open may get a GPU: the driver is there. */
static bool may_have_gpu(const sl_settings *s)
{
    const char *wanted = getenv("SLUICE_DEVICE");
    if (s->device.kind != SLUICE_DEVICE_AUTO) return s->device.kind == SLUICE_DEVICE_CUDA;
    if (wanted != NULL && strcmp(wanted, "cpu") == 0) return false;
    return access("/dev/nvidiactl", F_OK) == 0 || access("/dev/dxg", F_OK) == 0;
}

/* GPUs, and CPUs with tiles, multiply bf16 several times faster than fp32; other CPUs convert it first. */
static void choose_precision(const sluice_config *c, bool has_data, const sl_log *log, sl_settings *s)
{
    sl_isa isa = SL_ISA_SCALAR;
    bool halves = s->model.folder.has_dtype && s->model.folder.dtype != SLUICE_F32;
    if (!has_data && !halves) return; /* a model that is only used keeps the precision it was written in */
    if (is_given(c, "bf16.enabled") || is_given(c, "fp16.enabled")) return;
    bool gpu = may_have_gpu(s);
    bool tiles = !gpu && sl_isa_choose(getenv("SLUICE_CPU"), &isa) == SLUICE_OK && isa == SL_ISA_AMX;
    s->given.bf16 = gpu || tiles;
    sl_config_tell_chosen(log, s, "bf16.enabled",
                          gpu     ? "fast on a GPU"
                          : tiles ? "this CPU multiplies bf16 on tiles"
                                  : "fp32: this CPU has no fast bf16");
}

/* ---- Batch and length ---- */

/* The most rows of a micro-batch of at most so many tokens that divide `rows` (0: any). */
static int64_t micro_rows(const sl_settings *s, int64_t tokens, int64_t rows)
{
    int64_t micro = SL_BATCH_MOST_ROWS;
    while (micro > 1 && (micro * s->model.context > tokens || (rows > 0 && rows % micro != 0))) micro /= 2;
    return micro;
}

int sl_config_batch_choices(const sl_settings *s, int64_t out[SL_BATCH_CHOICES])
{
    int count = 0;
    int64_t rows = s->model.batch * s->plan.accumulation;
    if (!s->given.open_batch) return 0;
    for (int64_t micro = micro_rows(s, SL_BATCH_MOST_TOKENS, rows); micro > 0; micro /= 2) out[count++] = micro;
    return count;
}

void sl_config_choose_batch(int64_t rows, sl_settings *s)
{
    s->plan.accumulation = (int)(s->model.batch * s->plan.accumulation / rows);
    s->model.batch = rows;
}

static void tell_accumulation(const sl_log *log, const sl_settings *s, int64_t rows)
{
    char why[48];
    snprintf(why, sizeof why, "%" PRId64 " rows a step", rows);
    sl_config_tell_chosen(log, s, "gradient_accumulation_steps", why);
}

void sl_config_tell_batch(const sl_settings *s, const char *why, const sl_log *log)
{
    if (!s->given.open_batch) return;
    sl_config_tell_chosen(log, s, "train_micro_batch_size_per_gpu", why != NULL ? why : BY_TOKENS);
    if (s->given.open_accumulation)
        tell_accumulation(log, s,
                          s->train_batch_size > 0 ? s->train_batch_size : s->model.batch * s->plan.accumulation);
}

/* The batch of a step is the same whatever the memory: only the size of its parts is left open. */
static void choose_batch(int ranks, const sl_log *log, sl_settings *s)
{
    bool total = s->train_batch_size > 0, accumulates = s->plan.accumulation > 0;
    int64_t global = USUAL_GLOBAL_ROWS;
    if (total && accumulates) return; /* the rest follows */
    if (s->model.batch > 0) {
        if (total || accumulates) return;
        int64_t rows = s->model.batch * ranks;
        s->plan.accumulation = rows < global ? (int)((global + rows - 1) / rows) : 1;
        tell_accumulation(log, s, rows * s->plan.accumulation);
    } else if (accumulates) {
        s->model.batch = micro_rows(s, USUAL_MICRO_TOKENS, 0);
        sl_config_tell_chosen(log, s, "train_micro_batch_size_per_gpu", BY_TOKENS);
    } else {
        int64_t rows = total ? s->train_batch_size / ranks : (global + ranks - 1) / ranks;
        s->model.batch = micro_rows(s, USUAL_MICRO_TOKENS, rows);
        if (!total) s->plan.accumulation = (int)(rows / s->model.batch);
        s->given.open_accumulation = !total;
        s->given.open_batch = true;
    }
}

static void choose_length(const sl_log *log, sl_settings *s)
{
    bool adapters = s->model.lora.rank > 0 || s->adapter[0] != '\0';
    if (s->steps >= 0 || s->epochs >= 0) return;
    s->epochs = adapters ? 3 : 2;
    sl_config_tell_chosen(log, s, "epochs", adapters ? "usual for adapters" : "usual for whole models");
}

/* ---- Optimizer and schedule ---- */

static void choose_rate(const sluice_config *c, const sl_log *log, sl_settings *s)
{
    bool adapters = s->model.lora.rank > 0 || s->adapter[0] != '\0';
    if ((int)s->optim.optimizer.kind >= 0) return;
    s->optim.optimizer.kind = SLUICE_ADAMW;
    sl_config_tell_chosen(log, s, "optimizer.type", "usual");
    if (is_given(c, "optimizer.params.lr")) return;
    s->optim.optimizer.lr = adapters ? USUAL_ADAPTER_LR : USUAL_WHOLE_LR;
    sl_config_tell_chosen(log, s, "optimizer.params.lr", adapters ? "usual for adapters" : "usual for whole models");
}

static void choose_schedule(const sluice_config *c, const sl_log *log, sl_settings *s)
{
    if (is_given(c, "scheduler.type")) return;
    s->schedule.kind = SL_SCHEDULE_WARMUP_COSINE;
    sl_config_tell_chosen(log, s, "scheduler.type", "falls along a cosine");
    if (!is_given(c, "scheduler.params.warmup_type")) s->schedule.warmup_linear = true;
    if (is_given(c, "scheduler.params.warmup_num_steps") || is_given(c, "scheduler.params.warmup_ratio")) return;
    s->schedule.warmup_ratio = USUAL_WARMUP;
    sl_config_tell_chosen(log, s, "scheduler.params.warmup_ratio", "share of the run, in a straight line");
}

/* ---- Results ---- */

/* The folder's own name, also where it was given as "." */
static const char *name_of_model(const char *path, char whole[PATH_MAX])
{
    if (realpath(path, whole) == NULL) return "model";
    const char *slash = strrchr(whole, '/');
    return slash != NULL && slash[1] != '\0' ? slash + 1 : "model";
}

static sluice_status choose_output(const sluice_config *c, const sl_log *log, sl_settings *s)
{
    char whole[PATH_MAX];
    bool adapters = s->model.lora.rank > 0 || s->adapter[0] != '\0';
    if (s->path[0] == '\0' || is_given(c, "save")) return SLUICE_OK;
    s->save =
        sl_arena_printf(&c->private_data->arena, "%s-%s/", name_of_model(s->path, whole), adapters ? "lora" : "tuned");
    if (s->save == NULL) return SLUICE_ERR_NO_MEMORY;
    s->given.chosen_save = true;
    sl_config_tell_chosen(log, s, "save", "beside you; --out names another");
    return SLUICE_OK;
}

/* Random tokens stand for data in a plan, and what is only for a run is not chosen. */
static void stand_in_for_data(const sl_log *log, sl_settings *s)
{
    s->data.type = "random_tokens";
    s->given.no_data = true;
    if (s->steps < 0 && s->epochs < 0) s->epochs = 1;
    sl_log_write(log, SLUICE_LOG_NOTE, "no data is named: random tokens stand for it, which serves planning alone");
}

/* What is "auto" in the file and would come from the arguments of Hugging Face's Trainer is what they are unless given; but
 * the batch, which memory decides here. */
static void take_trainer_values(const sluice_config *c, sl_settings *s)
{
    s->given.by_trainer = true;
    for (size_t i = 0; i < sl_config_row_count; i++) {
        const sl_option *row = &sl_config_rows[i];
        sl_config_value value;
        if (row->trainer == NULL || c->private_data->origins[i].auto_line == 0) continue;
        if (row == row_of("train_micro_batch_size_per_gpu") || row == row_of("gradient_accumulation_steps")) continue;
        sl_config_value_from_table(row, row->trainer_default, &value);
        sl_config_value_store(row, &value, s);
    }
}

/* A file made for DeepSpeed says neither how long the run is nor what becomes of its result, and leaves much on auto: its
 * users' programs know. With a model's folder and data beside it, it needs nothing else. */
static sluice_status fill_file(const sluice_config *c, int ranks, const sl_log *training, const sl_log *log,
                               sl_settings *s)
{
    const bool has_length = s->steps >= 0 || s->epochs >= 0, has_batch = s->train_batch_size > 0 || s->model.batch > 0;
    if (has_length && has_batch) return SLUICE_OK;
    take_trainer_values(c, s);
    if (c->private_data->origins[row_of("bf16.enabled") - sl_config_rows].auto_line != 0)
        choose_precision(c, true, log, s);
    if (!has_batch) choose_batch(ranks, training, s);
    choose_length(training, s);
    return choose_output(c, training, s);
}

sluice_status sl_config_fill_bare(const sluice_config *c, int ranks, const sl_log *training, const sl_log *log,
                                  sl_settings *s)
{
    bool has_data = s->data.path[0] != '\0'; /* otherwise nothing is learned that anybody keeps */
    if (!c->bare) return s->path[0] != '\0' && has_data ? fill_file(c, ranks, training, log, s) : SLUICE_OK;
    if (s->data.type[0] == '\0') stand_in_for_data(training, s);
    choose_rate(c, training, s);
    choose_schedule(c, training, s);
    choose_precision(c, has_data, log, s);
    choose_batch(ranks, training, s);
    choose_length(training, s);
    if (!has_data) return SLUICE_OK;
    if (strcmp(s->data.type, "jsonl") == 0 && !is_given(c, "data.packing")) {
        s->data.packing = SL_PACKING_DOCUMENTS;
        sl_config_tell_chosen(training, s, "data.packing", "several samples share a row and do not see each other");
    }
    SL_TRY(choose_output(c, training, s));
    if (s->checkpoint.path[0] == '\0')
        sl_log_write(
            training, SLUICE_LOG_NOTE,
            "no checkpoints are kept: --set checkpoint.path=FOLDER keeps them, and --resume continues from one");
    return SLUICE_OK;
}

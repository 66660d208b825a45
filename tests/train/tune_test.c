/* tune_test.c: training a part of a model: frozen parameters and adapters. Losses fall, what is frozen keeps its bits,
 * only what is trained has state, and neither placement nor ranks nor a stop in between changes a bit. */
#include <math.h>
#include <sys/mman.h>

#include "checkpoint/checkpoint.h"
#include "config/config.h"
#include "core/alloc.h"
#include "core/io.h"
#include "format/safetensors.h"
#include "support/config_words.h"
#include "test.h"

static char folder[4096];

#define LLAMA                                                                                                          \
    "{\"type\": \"llama\", \"layers\": 2, \"heads\": 4, \"kv_heads\": 2, \"width\": 32, \"feed_forward\": 48, "        \
    "\"context\": 16}"
#define QWEN3                                                                                                          \
    "{\"type\": \"qwen3\", \"layers\": 2, \"heads\": 4, \"kv_heads\": 2, \"head_width\": 8, \"width\": 32, "           \
    "\"feed_forward\": 48, \"context\": 16}"
#define GEMMA3                                                                                                         \
    "{\"type\": \"gemma3_text\", \"layers\": 2, \"heads\": 4, \"kv_heads\": 2, \"head_width\": 8, \"width\": 32, "     \
    "\"feed_forward\": 48, \"context\": 16}"
#define GPT2 "{\"type\": \"gpt2\", \"layers\": 2, \"heads\": 4, \"width\": 32, \"context\": 16}"
#define LORA "lora.rank=4 lora.targets=[\"*\"]"

#define PARTS "lora.rank=4 lora.targets=[\"q_proj\",\"v_proj\",\"up_proj\"] lora.modules_to_save=[\"norm\"]"

typedef struct outcome {
    double first_loss, last_loss;
    char weights[65], state[65];
    uint64_t optimizer_bytes, resumed;
    sluice_memory planned, observed;
    int steps;
} outcome;

static void on_event(void *user, const sluice_event *event)
{
    outcome *out = user;
    if (event->kind == SLUICE_EVENT_PLAN) {
        out->optimizer_bytes = event->state_optimizer;
        out->planned = event->peak;
    }
    if (event->kind == SLUICE_EVENT_RESUMED) out->resumed = event->step;
    if (event->kind == SLUICE_EVENT_STEP) {
        if (out->steps++ == 0) out->first_loss = event->loss;
        out->last_loss = event->loss;
    }
    if (event->kind != SLUICE_EVENT_END) return;
    out->observed = event->peak;
    memcpy(out->weights, event->weights_sha256, sizeof out->weights);
    memcpy(out->state, event->state_sha256, sizeof out->state);
}

static void write_text(void)
{
    char path[4200];
    snprintf(folder, sizeof folder, "%s", test_tmpdir());
    snprintf(path, sizeof path, "%s/input.txt", folder);
    FILE *f = fopen(path, "w");
    for (int i = 0; i < 400; i++) fprintf(f, "the quick brown fox jumps over the lazy dog; ");
    fclose(f);
}

static sluice_status load_config(const char *model, const char *assignments, int rank, sluice_config **out)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/config-%d.json", folder, rank);
    FILE *f = fopen(path, "w");
    fprintf(f,
            "{\"model\": %s, \"data\": {\"type\": \"text\", \"path\": \"%s/input.txt\", \"validation\": 0.1}, "
            "\"steps\": 6, \"train_batch_size\": 8, \"train_micro_batch_size_per_gpu\": 2, \"threads\": 1, "
            "\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.01}}}",
            model, folder);
    fclose(f);
    return config_load_words(path, assignments, out);
}

/* What to train, and on which ranks. */
typedef struct job {
    const char *model, *assignments;
    bool resume;
    outcome *out; /* of rank 0 */
} job;

static sluice_status train_on(void *user, sluice_world *world)
{
    const job *j = user;
    sluice_config *c;
    sluice_job_options o;
    SL_TRY(load_config(j->model, j->assignments, sluice_world_rank(world), &c));
    sluice_job_options_init(&o);
    o.world = world;
    o.resume = j->resume;
    if (sluice_world_rank(world) == 0) {
        o.event = on_event;
        o.user = j->out;
    }
    sluice_status st = sluice_job_train(c, &o);
    sluice_config_destroy(c);
    return st;
}

static sluice_status train(const char *model, const char *assignments, bool resume, outcome *out)
{
    job j = { model, assignments, resume, out };
    memset(out, 0, sizeof *out);
    return train_on(&j, NULL);
}

/* ---- what is frozen stays, what is not learns ---- */

static bool same_tensor(sl_st_file *a, sl_st_file *b, const char *name)
{
    const sl_st_tensor *x = sl_st_find(a, name), *y = sl_st_find(b, name);
    if (x == NULL || y == NULL || x->bytes != y->bytes) return false;
    void *p = malloc(x->bytes), *q = malloc(y->bytes);
    bool same = sl_st_read(a, x, 0, sl_st_elements(x), p) == SLUICE_OK &&
                sl_st_read(b, y, 0, sl_st_elements(y), q) == SLUICE_OK && memcmp(p, q, x->bytes) == 0;
    free(p);
    free(q);
    return same;
}

static sluice_status open_saved(const char *name, sl_st_file **out)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return sl_st_open(path, out);
}

/* A base, then adapters on it: every tensor of the base is in the second file with the same bits. */
static void check_adapters(const char *model, const char *adapter)
{
    outcome base, tuned;
    char words[9000];
    sl_st_file *before, *after;
    write_text();
    snprintf(words, sizeof words, "save=%s/base.safetensors", folder);
    REQUIRE_OK(train(model, words, false, &base));
    snprintf(words, sizeof words, LORA " load=%s/base.safetensors save=%s/tuned.safetensors", folder, folder);
    REQUIRE_OK(train(model, words, false, &tuned));
    CHECK(tuned.last_loss < tuned.first_loss - 0.01);
    CHECK(tuned.first_loss < base.first_loss - 0.1); /* it began where the base ended */
    REQUIRE_OK(open_saved("base.safetensors", &before));
    REQUIRE_OK(open_saved("tuned.safetensors", &after));
    for (int64_t i = 0; i < before->tensor_count; i++)
        if (!same_tensor(before, after, before->tensors[i].name))
            test_fail(__FILE__, __LINE__, "%s was changed", before->tensors[i].name);
    CHECK_EQ(after->tensor_count, before->tensor_count + 2 * 4 * 2);
    const sl_st_tensor *b = sl_st_find(after, adapter);
    REQUIRE(b != NULL);
    float value = 0;
    REQUIRE_OK(sl_st_read_f32(after, b, 3, 1, &value));
    CHECK(value != 0); /* it was zero before training */
    sl_st_close(before);
    sl_st_close(after);
}

TEST(adapters_learn_beside_weights_that_stay)
{
    check_adapters(LLAMA, "model.layers.1.self_attn.qkv_proj.lora_B.weight");
    check_adapters(GPT2, "h.0.mlp.c_fc.lora_B.weight");
}

TEST(a_llama_is_saved_in_the_parts_of_hugging_faces_files)
{
    outcome out;
    char words[4300];
    sl_st_file *f;
    write_text();
    snprintf(words, sizeof words, "save=%s/llama.safetensors", folder);
    REQUIRE_OK(train(LLAMA, words, false, &out));
    REQUIRE_OK(open_saved("llama.safetensors", &f));
    CHECK_EQ(f->tensor_count, 1 + 2 * 9 + 1);
    const sl_st_tensor *k = sl_st_find(f, "model.layers.0.self_attn.k_proj.weight");
    REQUIRE(k != NULL);
    CHECK(k->dim[0] == 16 && k->dim[1] == 32);
    CHECK(sl_st_find(f, "model.layers.1.mlp.up_proj.weight") != NULL);
    CHECK(sl_st_find(f, "model.layers.0.self_attn.qkv_proj.weight") == NULL);
    sl_st_close(f);
}

TEST(frozen_parameters_keep_their_bits_and_have_no_state)
{
    outcome whole, part;
    char words[9000];
    sl_st_file *before, *after;
    write_text();
    snprintf(words, sizeof words, "save=%s/base.safetensors", folder);
    REQUIRE_OK(train(GPT2, words, false, &whole));
    snprintf(words, sizeof words, "freeze=[\"wte.*\",\"h.0.*\"] load=%s/base.safetensors save=%s/part.safetensors",
             folder, folder);
    REQUIRE_OK(train(GPT2, words, false, &part));
    CHECK(part.last_loss < part.first_loss);
    REQUIRE_OK(open_saved("base.safetensors", &before));
    REQUIRE_OK(open_saved("part.safetensors", &after));
    for (int64_t i = 0; i < before->tensor_count; i++) {
        const char *name = before->tensors[i].name;
        bool frozen = strncmp(name, "wte.", 4) == 0 || strncmp(name, "h.0.", 4) == 0;
        if (same_tensor(before, after, name) != frozen)
            test_fail(__FILE__, __LINE__, "%s was%s changed", name, frozen ? "" : " not");
    }
    sl_st_close(before);
    sl_st_close(after);
    uint64_t block = 12 * 32 * 32 + 13 * 32, frozen = block + 256 * 32; /* elements */
    CHECK_EQ(whole.optimizer_bytes - part.optimizer_bytes, 2 * 4 * frozen);
}

/* A of 4 x in and B of out x 4 for each of four linears of two blocks; two moments of four bytes. */
TEST(only_adapters_have_state)
{
    outcome out;
    write_text();
    REQUIRE_OK(train(GPT2, LORA, false, &out));
    uint64_t elements = 2 * 4 * ((32 + 96) + (32 + 32) + (32 + 128) + (128 + 32));
    CHECK_EQ(out.optimizer_bytes, 2 * 4 * elements);
}

/* ---- the same bits ---- */

static const char *const places[] = {
    "zero_optimization.offload_optimizer.device=cpu zero_optimization.offload_param.device=cpu",
    "zero_optimization.stage=3 activation_checkpointing.mode=recompute",
    "zero_optimization.offload_param.device=cpu memory.levels=2 activation_checkpointing.mode=recompute",
    "threads=2 debug.guard=true",
};

static void check_places(const char *model, const char *tuning)
{
    outcome here, there;
    char words[1024];
    write_text();
    REQUIRE_OK(train(model, tuning, false, &here));
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        snprintf(words, sizeof words, "%s %s", tuning, places[i]);
        REQUIRE_OK(train(model, words, false, &there));
        CHECK_STR(there.weights, here.weights);
        CHECK_STR(there.state, here.state);
        CHECK_EQ(there.observed.device, there.planned.device);
        CHECK_EQ(there.observed.host, there.planned.host);
    }
}

TEST(placement_of_a_tuned_model_changes_no_bit)
{
    check_places(LLAMA, LORA);
    check_places(LLAMA, LORA " bf16.enabled=true lora.dropout=0.1");
    check_places(LLAMA, PARTS);
    check_places(LLAMA, PARTS " bf16.enabled=true lora.dropout=0.1 lora.use_rslora=true");
    check_places(GPT2, "freeze=[\"w?e.*\",\"h.1.*\"]");
}

/* Gradients pass through their norms of queries and keys, of which one, the other or neither is trained. */
TEST(placement_of_a_model_whose_head_norms_are_frozen_changes_no_bit)
{
    static const char *const frozen[] = {
        LORA,
        LORA " bf16.enabled=true",
        "freeze=[\"*q_norm*\",\"*k_norm*\"]",
        "freeze=[\"*k_norm*\"]",
        "freeze=[\"*layers.0.self_attn.q_norm*\",\"*embed*\"]",
    };
    for (size_t i = 0; i < sizeof frozen / sizeof frozen[0]; i++) {
        check_places(QWEN3, frozen[i]);
        check_places(GEMMA3, frozen[i]);
    }
}

static void check_stages(const char *model, const char *tuning)
{
    outcome one, *several = mmap(NULL, sizeof *several, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(several != MAP_FAILED); /* ranks are processes */
    write_text();
    REQUIRE_OK(train(model, tuning, false, &one));
    for (int stage = 0; stage <= 3; stage++) {
        char words[256];
        sluice_launch_options o;
        snprintf(words, sizeof words, "%s zero_optimization.stage=%d", tuning, stage);
        job j = { model, words, false, several };
        memset(several, 0, sizeof *several);
        sluice_launch_options_init(&o);
        o.ranks = 2;
        REQUIRE_OK(sluice_launch(&o, train_on, &j));
        CHECK_STR(several->weights, one.weights);
        CHECK_STR(several->state, one.state);
    }
    munmap(several, sizeof *several);
}

TEST(stages_and_ranks_of_a_tuned_model_change_no_bit)
{
    check_stages(LLAMA, LORA);
    check_stages(QWEN3, LORA);
    check_stages(GEMMA3, LORA);
    check_stages(LLAMA, PARTS);
}

TEST(a_tuned_model_goes_on_from_its_checkpoint)
{
    outcome whole, half;
    char words[9000];
    write_text();
    REQUIRE_OK(train(LLAMA, LORA, false, &whole));
    snprintf(words, sizeof words, LORA " steps=3 checkpoint.path=%s/run", folder);
    REQUIRE_OK(train(LLAMA, words, false, &half));
    snprintf(words, sizeof words, LORA " checkpoint.path=%s/run", folder);
    REQUIRE_OK(train(LLAMA, words, true, &half));
    CHECK_EQ(half.resumed, 3);
    CHECK_STR(half.weights, whole.weights);
    CHECK_STR(half.state, whole.state);
}

/* ---- what is refused ---- */

TEST(tuning_that_makes_no_sense_is_refused_by_name)
{
    static const struct {
        const char *assignments, *part;
    } rows[] = {
        { "freeze=[\"h.9.*\"]", "freeze: no parameter of this model is called like \"h.9.*\"" },
        { "freeze=[\"*\"]", "name every parameter, so nothing is left to train" },
        { "freeze=[3]", "freeze" },
        { "freeze=[\"\"]", "freeze: one of the patterns is empty" },
        { "lora.rank=4", "lora.targets is missing" },
        { "lora.targets=[\"*\"]", "lora.rank is 0" },
        { "lora.rank=4 lora.targets=[\"wte\"]", "\"wte\" names wte, which takes no adapter" },
        { "lora.rank=4 lora.targets=[\"*q_proj\"]", "no linear of this model is called like \"*q_proj\"" },
    };
    outcome out;
    write_text();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        CHECK_EQ(train(GPT2, rows[i].assignments, false, &out), SLUICE_ERR_USAGE);
        CHECK_CONTAINS(sluice_error(), rows[i].part);
    }
}

/* ---- folders of PEFT ---- */

static void on_eval(void *user, const sluice_event *event)
{
    if (event->kind == SLUICE_EVENT_EVAL) *(double *)user = event->loss;
}

static sluice_status evaluate(const char *model, const char *words, const char *weights, double *loss)
{
    sluice_config *c;
    sluice_job_options o;
    SL_TRY(load_config(model, words, 0, &c));
    sluice_job_options_init(&o);
    o.weights = weights;
    o.event = on_eval;
    o.user = loss;
    sluice_status st = sluice_job_eval(c, &o);
    sluice_config_destroy(c);
    return st;
}

/* Base and adapter, the adapter's own file of all weights, and base and adapter merged: one loss. */
static void check_peft(const char *model, const char *tuning, const char *tensor, int64_t rows, int64_t columns,
                       const char *targets)
{
    outcome out;
    char words[9000], tuned[4300], base[4300], adapter[4300], merged[4300];
    double whole = 0, parts = -1, joined = -1, before = -1;
    sl_st_file *f;
    write_text();
    snprintf(base, sizeof base, "%s/base", folder);
    snprintf(adapter, sizeof adapter, "%s/adapter", folder);
    snprintf(merged, sizeof merged, "%s/merged", folder);
    snprintf(tuned, sizeof tuned, "%s/tuned.safetensors", folder);
    snprintf(words, sizeof words, "save=%s/", base);
    REQUIRE_OK(train(model, words, false, &out));
    snprintf(words, sizeof words, "%s load=%s save=%s", tuning, base, tuned);
    REQUIRE_OK(train(model, words, false, &out));
    snprintf(words, sizeof words, "%s load=%s save=%s/", tuning, base, adapter);
    REQUIRE_OK(train(model, words, false, &out));

    snprintf(words, sizeof words, "%s/adapter/adapter_model.safetensors", folder);
    REQUIRE_OK(sl_st_open(words, &f));
    const sl_st_tensor *t = sl_st_find(f, tensor);
    REQUIRE(t != NULL);
    CHECK_EQ(t->dim[0], rows);
    CHECK_EQ(t->dim[1], columns);
    sl_st_close(f);
    char *config = NULL;
    size_t bytes = 0;
    snprintf(words, sizeof words, "%s/adapter/adapter_config.json", folder);
    REQUIRE_OK(sl_file_read_all(words, 4096, &config, &bytes));
    CHECK_CONTAINS(config, targets);
    sl_free(config);

    REQUIRE_OK(evaluate(model, tuning, tuned, &whole));
    REQUIRE_OK(evaluate(model, "", base, &before));
    CHECK(whole < before - 0.001);
    snprintf(words, sizeof words, "lora.path=%s load=%s", adapter, base);
    REQUIRE_OK(evaluate(model, words, NULL, &parts));
    CHECK_NEAR(parts, whole, 1e-6);
    REQUIRE_OK(sluice_merge(base, adapter, merged, SLUICE_I32, 0, NULL));
    REQUIRE_OK(evaluate(model, "", merged, &joined));
    CHECK_NEAR(joined, whole, 1e-5);
}

TEST(adapters_leave_and_come_back_as_folders_of_peft)
{
    check_peft(LLAMA, LORA, "base_model.model.model.layers.1.self_attn.k_proj.lora_B.weight", 16, 4,
               "\"q_proj\", \"k_proj\", \"v_proj\"");
    check_peft(LLAMA, PARTS, "base_model.model.model.layers.0.mlp.up_proj.lora_A.weight", 4, 32, "\"up_proj\"");
    check_peft(GPT2, LORA, "base_model.model.transformer.h.0.attn.c_attn.lora_B.weight", 96, 4, "\"c_attn\"");
    check_peft(GPT2, "lora.rank=4 lora.targets=[\"attn.c_proj\"]",
               "base_model.model.transformer.h.1.attn.c_proj.lora_A.weight", 4, 32, "[\"attn.c_proj\"]");
}

TEST(an_adapter_of_another_model_is_refused)
{
    outcome out;
    char words[9000], base[4300], adapter[4300], merged[4300];
    double loss;
    write_text();
    snprintf(base, sizeof base, "%s/base", folder);
    snprintf(adapter, sizeof adapter, "%s/adapter", folder);
    snprintf(merged, sizeof merged, "%s/merged", folder);
    snprintf(words, sizeof words, "save=%s/ steps=1", base);
    REQUIRE_OK(train(GPT2, words, false, &out));
    snprintf(words, sizeof words, LORA " save=%s/ steps=1", adapter);
    REQUIRE_OK(train(LLAMA, words, false, &out));
    CHECK_EQ(sluice_merge(base, adapter, merged, SLUICE_I32, 0, NULL), SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), "this adapter is of another one");
    snprintf(words, sizeof words, "lora.path=%s load=%s", adapter, base);
    CHECK_EQ(evaluate(GPT2, words, NULL, &loss), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "no linear of this model is called like");
    snprintf(words, sizeof words, "lora.path=%s lora.rank=9", adapter);
    CHECK_EQ(evaluate(LLAMA, words, NULL, &loss), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "the adapter of lora.path has 4");
    snprintf(words, sizeof words, "lora.path=%s", base);
    CHECK_EQ(evaluate(LLAMA, words, NULL, &loss), SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), "holds no adapter_config.json");
}

/* Replaces `from` in a file of the adapter by `to`, or its last number by one that is none. */
static bool edit(const char *path, const char *from, const char *to)
{
    char *text = NULL, *made = NULL;
    size_t bytes;
    if (sl_file_read_all(path, 1 << 20, &text, &bytes) != SLUICE_OK) return false;
    bool done = false;
    if (from == NULL) {
        const float bad = (float)NAN;
        memcpy(text + bytes - sizeof bad, &bad, sizeof bad);
        done = sl_file_write_all(path, text, bytes) == SLUICE_OK;
    } else {
        const char *at = strstr(text, from);
        if (at != NULL && asprintf(&made, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from)) > 0)
            done = sl_file_write_all(path, made, strlen(made)) == SLUICE_OK;
    }
    free(made);
    sl_free(text);
    return done;
}

/* Whoever uses an adapter opens it by one rule: its configuration and its tensors tell of the same modules. */
TEST(an_adapter_whose_files_disagree_is_refused_alike_by_all_who_use_it)
{
    static const struct {
        const char *from, *to, *message;
    } rows[] = {
        { "\"v_proj\"", "\"v_proj\", \"nope\"",
          "target_modules: adapter_model.safetensors has no tensor of a module called \"nope\"" },
        { "\"v_proj\"", "\"v_proj\", \"../../x\"", "no tensor of a module called \"../../x\"" },
        { "\"v_proj\"", "\"q_proj\"",
          ".v_proj.lora_A.weight\" is of no module that target_modules of adapter_config.json names" },
        { "\"modules_to_save\": null", "\"modules_to_save\": [\"lm_head\"]",
          "modules_to_save: adapter_model.safetensors has no tensor of a module called \"lm_head\"" },
        { "\"fan_in_fan_out\": false", "\"fan_in_fan_out\": true", NULL }, /* of the base, not of the adapter */
    };
    outcome out;
    char words[9000], config[4400], base[4300], adapter[4300], merged[4300];
    double loss, plain;
    write_text();
    snprintf(base, sizeof base, "%s/base", folder);
    snprintf(adapter, sizeof adapter, "%s/adapter", folder);
    snprintf(merged, sizeof merged, "%s/merged", folder);
    snprintf(config, sizeof config, "%s/adapter/adapter_config.json", folder);
    snprintf(words, sizeof words, "save=%s/ steps=1", base);
    REQUIRE_OK(train(LLAMA, words, false, &out));
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        snprintf(words, sizeof words, LORA " load=%s save=%s/ steps=1", base, adapter);
        REQUIRE_OK(train(LLAMA, words, false, &out));
        snprintf(words, sizeof words, "lora.path=%s load=%s steps=1", adapter, base);
        REQUIRE_OK(evaluate(LLAMA, words, NULL, &plain));
        REQUIRE(edit(config, rows[i].from, rows[i].to));
        sluice_status wanted = rows[i].message != NULL ? SLUICE_ERR_INPUT : SLUICE_OK;
        const char *message = rows[i].message != NULL ? rows[i].message : "";
        CHECK_EQ(sluice_merge(base, adapter, merged, SLUICE_I32, 0, NULL), wanted);
        CHECK_CONTAINS(sluice_error(), message);
        CHECK_EQ(evaluate(LLAMA, words, NULL, &loss), wanted);
        CHECK_CONTAINS(sluice_error(), message);
        CHECK_EQ(train(LLAMA, words, false, &out), wanted);
        CHECK_CONTAINS(sluice_error(), message);
        if (wanted == SLUICE_OK) CHECK_NEAR(loss, plain, 0);
    }
    REQUIRE_OK(evaluate(LLAMA, "", merged, &loss));
    CHECK_NEAR(loss, plain, 1e-5);
}

TEST(merging_refuses_values_that_are_not_finite_and_names_their_tensor)
{
    outcome out;
    char words[9000], path[4400], base[4300], adapter[4300], merged[4300];
    write_text();
    snprintf(base, sizeof base, "%s/base", folder);
    snprintf(adapter, sizeof adapter, "%s/adapter", folder);
    snprintf(merged, sizeof merged, "%s/merged", folder);
    snprintf(words, sizeof words, "save=%s/ steps=1", base);
    REQUIRE_OK(train(LLAMA, words, false, &out));
    snprintf(words, sizeof words, LORA " load=%s save=%s/ steps=1", base, adapter);
    REQUIRE_OK(train(LLAMA, words, false, &out));
    static const char *const files[] = { "adapter/adapter_model", "base/model" };
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s.safetensors", folder, files[i]);
        char *text = NULL;
        size_t bytes;
        REQUIRE_OK(sl_file_read_all(path, 1 << 20, &text, &bytes));
        REQUIRE(edit(path, NULL, NULL));
        CHECK_EQ(sluice_merge(base, adapter, merged, SLUICE_I32, 0, NULL), SLUICE_ERR_NUMBERS);
        CHECK_CONTAINS(sluice_error(), i == 0 ? "adapter_model.safetensors: tensor \"base_model.model.model.layers."
                                              : "/base: tensor \"");
        CHECK_CONTAINS(sluice_error(), " is nan, which is not finite");
        CHECK(!sl_path_exists(merged));
        REQUIRE_OK(sl_file_write_all(path, text, bytes));
        sl_free(text);
    }
    REQUIRE_OK(sluice_merge(base, adapter, merged, SLUICE_I32, 0, NULL));
}

/* ---- text ---- */

static void generate(const char *model, const char *words, const char *weights, char *text, size_t bytes)
{
    sluice_config *c;
    sluice_job_options o;
    REQUIRE_OK(load_config(model, words, 0, &c));
    sluice_job_options_init(&o);
    o.weights = weights;
    o.prompt = "the quick ";
    o.tokens = 12;
    o.temperature = 0;
    o.out = fmemopen(text, bytes, "w");
    sluice_status st = sluice_job_generate(c, &o);
    fclose(o.out);
    sluice_config_destroy(c);
    REQUIRE_OK(st);
}

TEST(a_tuned_llama_writes_text_and_is_evaluated)
{
    outcome out;
    char words[9000], weights[4200], text[256] = "";
    write_text();
    snprintf(weights, sizeof weights, "%s/tuned.safetensors", folder);
    snprintf(words, sizeof words, LORA " evaluate.every=3 steps=30 save=%s", weights);
    REQUIRE_OK(train(LLAMA, words, false, &out));
    generate(LLAMA, LORA, weights, text, sizeof text);
    CHECK_CONTAINS(text, "the quick ");
    CHECK(strlen(text) > strlen("the quick ") + 11);
}

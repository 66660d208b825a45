/* api_test.c: every call of the public header with every argument NULL, out of range or not finite gives a status and a
 * message, and never ends the process.
 *
 * The calls are generated when the test is built: calls.awk makes them of include/sluice.h and of good_calls, which has
 * one call of every function that succeeds. They run in child processes, so that one that crashes is named, and the
 * rest still run. What depends on the order of calls, and on fields of structs, is below. */
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sluice.h"
#include "test.h"

enum { PATH_BYTES = 4200, ROWS = 2, FEATURES = 8 };

/* What the arguments of good_calls are made of; new for each call but for what `kept` holds. */
typedef struct api_world {
    sluice_graph *g, *made_graph, *whole; /* whole: of api_new_engine's newest engine */
    sluice_value x, y, sequence, ids, positions, weight, bias, gain, head_gain, scalar, two[2];
    sluice_value images, kernel, conv_bias, gates, recurrent, recurrent_bias;
    int64_t dims[2], sixteen[1], six[SLUICE_MAX_RANK];
    sluice_dtype dtype;
    int rank;
    bool trained;
    const char *name;
    int order[2];
    sluice_init init;
    FILE *out;
    sluice_attention_options attention;
    sluice_conv_options conv;
    sluice_pool_options pool;
    sluice_optimizer optimizer;
    sluice_options options;
    sluice_launch_options launch;
    sluice_rotary_options rotary;
    sluice_batch_norm_options batch_norm;
    sluice_job_options job;
    sluice_tokenize_options tokenize;
    const char *tokenizer, *texts[1];
    sluice_world *world;
    sluice_engine *made_engine;
    sluice_data *made_data;
    sluice_config *config, *made_config;
    sluice_array array;
    sluice_batch batch;
    sluice_memory memory;
    sluice_event event;
    sluice_setting setting;
    float floats[ROWS * FEATURES];
    double loss;
    uint64_t step, counts[1];
    char weights_hash[65], state_hash[65], text[256];
    char save[PATH_BYTES], saved[PATH_BYTES], folder[PATH_BYTES], checkpoints[PATH_BYTES], config_path[PATH_BYTES],
        new_page[PATH_BYTES], model[PATH_BYTES], base[PATH_BYTES], adapter[PATH_BYTES], merged[PATH_BYTES];
} api_world;

typedef enum { MUST_SUCCEED, MUST_BE_REFUSED, MUST_SURVIVE } api_expected;
typedef enum { RETURNS_STATUS, RETURNS_VALUE, RETURNS_VOID, RETURNS_OTHER, BUILDS } api_returns;

typedef struct api_result {
    const char *name, *what; /* the function; the call in words */
    api_expected expected;
    int result;
} api_result;

typedef struct api_function {
    const char *name;
    api_returns returns;
    const char *fault; /* why there are no calls; NULL: there are */
    int variants;
    void (*call)(api_world *w, int variant, api_result *r);
} api_function;

/* Between a child and the test. */
typedef struct shared {
    int variant; /* begun */
    char what[512], failures[1 << 14];
} shared;
static shared *seen;

/* ---- arguments ---- */

static void api_log(void *user, sluice_log_level level, const char *line)
{
    (void)user;
    (void)level;
    (void)line;
}

static void api_found(void *user, const char *folder, const sluice_run_status *status)
{
    (void)user;
    (void)folder;
    (void)status;
}

static sluice_status api_body(void *user, sluice_world *world)
{
    (void)user;
    return sluice_world_size(world) == 1 ? SLUICE_OK : SLUICE_ERR_FAILED;
}

static sluice_status api_fill(void *user, uint64_t index, const char *const *names, void *const *buffers,
                              const size_t *bytes, int count)
{
    (void)user;
    (void)index;
    (void)names;
    for (int i = 0; i < count; i++) memset(buffers[i], 0, bytes[i]);
    return SLUICE_OK;
}

/* A whole model: root mean square norm of x, and its mean. */
static sluice_graph *api_model(api_world *w)
{
    sluice_graph *g = NULL;
    (void)w;
    if (sluice_graph_create(&g) != SLUICE_OK) return NULL;
    sluice_value x = sluice_input(g, "x", SLUICE_F32, 2, (int64_t[]){ ROWS, FEATURES });
    sluice_value gain = sluice_parameter(g, "gain", 1, (int64_t[]){ FEATURES }, (sluice_init){ SLUICE_INIT_ONE, 0 });
    sluice_value y = sluice_rms_norm(g, x, gain, 1e-5f);
    sluice_set_output(g, y);
    sluice_set_loss(g, sluice_mean(g, y));
    return g;
}

static sluice_engine *api_new_engine(api_world *w)
{
    sluice_engine *e = NULL;
    w->whole = api_model(w);
    sluice_engine_create(w->whole, &w->options, &e);
    return e;
}

/* Calls that are refused leave an engine as it was: one serves all calls of a function. */
static sluice_engine *api_engine(api_world *w)
{
    static sluice_engine *kept;
    if (kept == NULL) kept = api_new_engine(w);
    return kept;
}

static sluice_engine *api_after_forward(api_world *w)
{
    sluice_engine *e = api_new_engine(w);
    sluice_forward(e, &w->batch, &w->loss);
    return e;
}

static sluice_engine *api_after_backward(api_world *w)
{
    sluice_engine *e = api_after_forward(w);
    sluice_backward(e);
    return e;
}

static sluice_data *api_data(api_world *w)
{
    sluice_data *d = NULL;
    sluice_data_from_arrays(&w->array, 1, ROWS, false, 1, &d);
    return d;
}

static sluice_config *api_new_config(api_world *w)
{
    sluice_config *c = NULL;
    sluice_config_load(w->config_path, &c);
    return c;
}

static sluice_world *api_join(api_world *w)
{
    sluice_world *world = NULL;
    (void)w;
    sluice_world_join(1, &world);
    return world;
}

/* The message before a call, so that one that says nothing is noticed. */
static void api_begin(api_result *r)
{
    if (strcmp(r->name, "sluice_graph_create") == 0)
        sluice_graph_check(NULL);
    else
        sluice_graph_create(NULL);
    snprintf(seen->what, sizeof seen->what, "%s", r->what);
}

#include "api_calls.h"

static void name_files(api_world *w, const char *root)
{
    snprintf(w->save, sizeof w->save, "%s/made.safetensors", root);
    snprintf(w->saved, sizeof w->saved, "%s/saved.safetensors", root);
    snprintf(w->folder, sizeof w->folder, "%s/made-checkpoints", root);
    snprintf(w->checkpoints, sizeof w->checkpoints, "%s/checkpoints", root);
    snprintf(w->config_path, sizeof w->config_path, "%s/config.json", root);
    snprintf(w->new_page, sizeof w->new_page, "%s/page.html", root);
    snprintf(w->model, sizeof w->model, "%s/model.safetensors", root);
    snprintf(w->base, sizeof w->base, "%s/base/", root);
    snprintf(w->adapter, sizeof w->adapter, "%s/adapter/", root);
    snprintf(w->merged, sizeof w->merged, "%s/merged/", root);
}

static void build_graph(api_world *w)
{
    const sluice_init some = { SLUICE_INIT_NORMAL, 0.1f };
    int64_t row[] = { ROWS, FEATURES }, matrix[] = { 5, FEATURES }, three[] = { ROWS, 3, FEATURES };
    sluice_graph *g = NULL;
    sluice_graph_create(&g);
    w->g = g;
    w->x = sluice_input(g, "x", SLUICE_F32, 2, row);
    w->ids = sluice_input(g, "ids", SLUICE_I32, 1, row);
    w->sequence = sluice_input(g, "sequence", SLUICE_F32, 3, three);
    w->positions = sluice_input(g, "positions", SLUICE_I32, 2, three);
    w->weight = sluice_parameter(g, "weight", 2, matrix, some);
    w->bias = sluice_parameter(g, "bias", 1, matrix, some);
    w->gain = sluice_parameter(g, "gain", 1, &row[1], some);
    w->head_gain = sluice_parameter(g, "head_gain", 1, row, some);
    w->images = sluice_input(g, "images", SLUICE_F32, 4, (int64_t[]){ ROWS, 6, 5, 4 });
    w->kernel = sluice_parameter(g, "kernel", 4, (int64_t[]){ 3, 4, 2, 2 }, some);
    w->conv_bias = sluice_parameter(g, "conv_bias", 1, (int64_t[]){ 3 }, some);
    w->gates = sluice_input(g, "gates", SLUICE_F32, 3, (int64_t[]){ ROWS, 3, 12 });
    w->recurrent = sluice_parameter(g, "recurrent", 2, (int64_t[]){ 12, 4 }, some);
    w->recurrent_bias = sluice_parameter(g, "recurrent_bias", 1, (int64_t[]){ 12 }, some);
    w->y = sluice_relu(g, w->x);
    w->scalar = sluice_sum(g, w->y);
    w->two[0] = w->two[1] = w->x;
}

static void make_world(api_world *w, const char *root)
{
    *w = (api_world){ .dims = { 3, 4 }, .sixteen = { ROWS * FEATURES }, .order = { 1, 0 } };
    name_files(w, root);
    build_graph(w);
    w->out = fopen("/dev/null", "w");
    for (int i = 0; i < ROWS * FEATURES; i++) w->floats[i] = (float)i / 8 - 1;
    w->array = (sluice_array){ "x", w->floats, sizeof w->floats };
    w->batch = (sluice_batch){ &w->array, 1 };
    sluice_attention_options_init(&w->attention);
    w->attention.heads = 2;
    sluice_conv_options_init(&w->conv);
    sluice_pool_options_init(&w->pool);
    w->pool.kernel_h = w->pool.kernel_w = 2;
    sluice_options_init(&w->options);
    w->counts[0] = ROWS;
    w->event.kind = SLUICE_EVENT_RESUMED;
    w->options.threads = 1;
    w->options.evaluation = true;
    w->options.device_bytes = w->options.host_bytes = (uint64_t)1 << 24;
    sluice_launch_options_init(&w->launch);
    sluice_rotary_options_init(&w->rotary);
    sluice_batch_norm_options_init(&w->batch_norm);
    w->rotary.heads = 2, w->rotary.head_width = 4;
    w->launch.ranks = 1;
    sluice_job_options_init(&w->job);
    w->job.out = w->out;
    sluice_tokenize_options_init(&w->tokenize);
    w->tokenizer = SLUICE_SOURCE_DIR "/tests/fixtures/tokenizers/gpt2-v4.json";
    w->texts[0] = w->tokenizer; /* any text will do */
    w->tokenize.inputs = w->texts;
    w->tokenize.input_count = 1;
    w->tokenize.out = w->save;
    w->job.weights = w->model;
    w->job.tokens = 1;
    w->config = api_new_config(w);
}

static void free_world(api_world *w)
{
    sluice_graph_destroy(w->g);
    sluice_graph_destroy(w->whole);
    sluice_config_destroy(w->config);
    sluice_data_destroy(w->made_data);
    fclose(w->out);
}

/* A model's folder and an adapter of it. */
static bool train_folders(api_world *w)
{
    char assignment[PATH_BYTES + 16];
    snprintf(assignment, sizeof assignment, "save=%s", w->base);
    if (sluice_config_set(w->config, assignment) != SLUICE_OK || sluice_job_train(w->config, &w->job) != SLUICE_OK)
        return false;
    snprintf(assignment, sizeof assignment, "save=%s", w->adapter);
    return sluice_config_set(w->config, assignment) == SLUICE_OK &&
           sluice_config_set(w->config, "lora.rank=2") == SLUICE_OK &&
           sluice_config_set(w->config, "lora.targets=[\"*\"]") == SLUICE_OK &&
           sluice_job_train(w->config, &w->job) == SLUICE_OK;
}

/* As a run does that has come no further. */
static bool begin_journal(const char *folder)
{
    char path[PATH_BYTES + 16];
    snprintf(path, sizeof path, "%s/log.jsonl", folder);
    FILE *f = fopen(path, "w");
    if (f == NULL) return false;
    fputs("{\"event\":\"run\",\"time\":\"2026-01-01T00:00:00.000Z\",\"run\":\"1\"}\n", f);
    return fclose(f) == 0;
}

/* Files that calls read: a configuration, a model trained from it, weights and a checkpoint of api_model. */
static void make_files(const char *root)
{
    static api_world w;
    char path[PATH_BYTES];
    name_files(&w, root);
    snprintf(path, sizeof path, "%s/text", root);
    FILE *text = fopen(path, "w");
    FILE *config = fopen(w.config_path, "w");
    if (text == NULL || config == NULL) _exit(1);
    for (int i = 0; i < 40; i++) fputs("to be or not to be\n", text);
    fprintf(config,
            "{\"model\": {\"type\": \"gpt2\", \"layers\": 1, \"heads\": 1, \"width\": 8, \"context\": 8},\n"
            " \"data\": {\"type\": \"text\", \"path\": \"%s\"}, \"steps\": 1, \"train_batch_size\": 2,\n"
            " \"threads\": 1, \"device\": \"cpu\", \"memory\": {\"device\": \"64MiB\", \"host\": \"64MiB\"},\n"
            " \"optimizer\": {\"type\": \"SGD\"}, \"save\": \"%s\"}\n",
            path, w.model);
    fclose(text);
    fclose(config);
    make_world(&w, root);
    sluice_engine *e = api_new_engine(&w);
    if (sluice_train_step(e, &w.batch, &w.loss) != SLUICE_OK || sluice_save(e, w.saved) != SLUICE_OK ||
        sluice_checkpoint_save(e, w.checkpoints) != SLUICE_OK || sluice_job_train(w.config, &w.job) != SLUICE_OK ||
        !train_folders(&w) || !begin_journal(w.checkpoints)) {
        fprintf(stderr, "setting up: %s\n", sluice_error());
        _exit(1);
    }
    _exit(0);
}

/* ---- judging ---- */

static void note(const char *format, const char *what, const char *more)
{
    size_t used = strlen(seen->failures);
    snprintf(seen->failures + used, sizeof seen->failures - used, format, what, more);
}

static bool is_refused(const api_function *f, const api_world *w, const api_result *r)
{
    if (f->returns == RETURNS_STATUS) return r->result != SLUICE_OK;
    if (f->returns == RETURNS_VALUE && r->result != SLUICE_NONE) return false;
    /* builders: the graph keeps the error, where there is one */
    return strstr(r->what, "sluice_graph *g = NULL") != NULL || sluice_graph_check(w->g) != SLUICE_OK;
}

static void judge(const api_function *f, const api_world *w, const api_result *r, const char *before)
{
    char message[2048];
    bool judged = f->returns == RETURNS_STATUS || f->returns == RETURNS_VALUE || f->returns == BUILDS;
    snprintf(message, sizeof message, "%s", sluice_error());
    if (!judged || r->expected == MUST_SURVIVE) return;
    bool refused = is_refused(f, w, r);
    if (r->expected == MUST_SUCCEED && refused) note("%s is refused: %s\n", r->what, message);
    if (r->expected == MUST_SUCCEED) return;
    if (!refused)
        note("%s is accepted%s\n", r->what, "");
    else if (message[0] == '\0' || strcmp(message, before) == 0)
        note("%s is refused without a message%s\n", r->what, "");
}

/* The child: all calls of a function from `first` on. */
static void run_calls(const api_function *f, int first, const char *root)
{
    static api_world w;
    char before[2048];
    if (chdir(root) != 0) _exit(1); /* a path that is wrongly taken makes no file elsewhere */
    alarm(120);
    for (int v = first; v < f->variants; v++) {
        api_result r = { .name = f->name, .what = f->name };
        seen->variant = v;
        make_world(&w, root);
        api_begin(&r);
        snprintf(before, sizeof before, "%s", sluice_error());
        f->call(&w, v, &r);
        judge(f, &w, &r, before);
    }
    fflush(NULL);
    _exit(0);
}

/* How the child ended, where that was not well; "" where it was. */
static const char *ending(int status, char *out, size_t bytes)
{
    out[0] = '\0';
    if (WIFSIGNALED(status)) snprintf(out, bytes, "ended by signal %d", WTERMSIG(status));
    if (WIFEXITED(status) && WEXITSTATUS(status) != 0) snprintf(out, bytes, "exit status %d", WEXITSTATUS(status));
    return out;
}

static void check_function(const api_function *f, const char *root)
{
    char how[64];
    int first = 0, status = 0;
    CHECK_THAT(f->fault == NULL, "%s: %s", f->name, f->fault);
    while (first < f->variants) {
        memset(seen, 0, sizeof *seen);
        snprintf(seen->what, sizeof seen->what, "%s, before the first call", f->name);
        pid_t child = fork();
        if (child == 0) run_calls(f, first, root);
        waitpid(child, &status, 0);
        CHECK_THAT(seen->failures[0] == '\0', "%s", seen->failures);
        if (ending(status, how, sizeof how)[0] == '\0') return;
        CHECK_THAT(false, "%s: %s", seen->what, how);
        first = seen->variant + 1;
    }
}

static bool prepare(const char **root)
{
    int status = 1;
    *root = test_tmpdir();
    seen = mmap(NULL, sizeof *seen, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (seen == MAP_FAILED) return false;
    pid_t child = fork();
    if (child == 0) make_files(*root);
    waitpid(child, &status, 0);
    return status == 0;
}

TEST(every_public_call_with_a_bad_argument_gives_a_status_and_a_message)
{
    const char *root;
    size_t count = sizeof api_functions / sizeof api_functions[0];
    REQUIRE(prepare(&root));
    CHECK_EQ(count, API_DECLARED);
    for (size_t i = 0; i < count; i++) check_function(&api_functions[i], root);
}

/* ---- fields of structs ---- */

/* Creates and destroys; the status of creation. */
static sluice_status create_with(api_world *w, const sluice_options *o)
{
    sluice_engine *e = NULL;
    sluice_graph *g = api_model(w);
    sluice_status st = sluice_engine_create(g, o, &e);
    sluice_engine_destroy(e);
    sluice_graph_destroy(g);
    return st;
}

TEST(structs_that_no_init_function_filled_are_refused_by_name)
{
    static api_world w;
    const char *root;
    REQUIRE(prepare(&root));
    make_world(&w, root);
    const size_t sizes[] = { 0, 1, 8, (size_t)1 << 20 };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        sluice_options o = w.options;
        sluice_launch_options launch = w.launch;
        sluice_job_options job = w.job;
        o.size = launch.size = job.size = sizes[i];
        CHECK_EQ(create_with(&w, &o), SLUICE_ERR_USAGE);
        CHECK_CONTAINS(sluice_error(), "sluice_options.size");
        CHECK_EQ(sluice_launch(&launch, api_body, NULL), SLUICE_ERR_USAGE);
        CHECK_CONTAINS(sluice_error(), "sluice_launch_options.size");
        CHECK_EQ(sluice_job_plan(w.config, &job), SLUICE_ERR_USAGE);
        CHECK_CONTAINS(sluice_error(), "sluice_job_options.size");
        CHECK_EQ(sluice_job_train(w.config, &job), SLUICE_ERR_USAGE);
        CHECK_EQ(sluice_job_eval(w.config, &job), SLUICE_ERR_USAGE);
        CHECK_EQ(sluice_job_generate(w.config, &job), SLUICE_ERR_USAGE);
        CHECK_CONTAINS(sluice_error(), "sluice_job_options.size");
        o = w.options;
        o.optimizer.size = sizes[i];
        CHECK_EQ(create_with(&w, &o), SLUICE_ERR_USAGE);
        CHECK_CONTAINS(sluice_error(), "options.optimizer.size");
        sluice_attention_options attention = w.attention;
        sluice_graph *g;
        attention.size = sizes[i];
        REQUIRE_OK(sluice_graph_create(&g));
        CHECK_EQ(sluice_attention_with(g, 0, SLUICE_NONE, SLUICE_NONE, SLUICE_NONE, &attention), SLUICE_NONE);
        CHECK_EQ(sluice_graph_check(g), SLUICE_ERR_USAGE);
        CHECK_CONTAINS(sluice_error(), "sluice_attention_options.size");
        sluice_graph_destroy(g);
        sluice_conv_options conv = w.conv;
        conv.size = sizes[i];
        REQUIRE_OK(sluice_graph_create(&g));
        CHECK_EQ(sluice_conv2d(g, 0, 0, SLUICE_NONE, &conv), SLUICE_NONE);
        CHECK_EQ(sluice_graph_check(g), SLUICE_ERR_USAGE);
        CHECK_CONTAINS(sluice_error(), "sluice_conv_options.size");
        sluice_graph_destroy(g);
        sluice_pool_options pool = w.pool;
        pool.size = sizes[i];
        REQUIRE_OK(sluice_graph_create(&g));
        CHECK_EQ(sluice_max_pool2d(g, 0, &pool), SLUICE_NONE);
        CHECK_EQ(sluice_graph_check(g), SLUICE_ERR_USAGE);
        CHECK_CONTAINS(sluice_error(), "sluice_pool_options.size");
        sluice_graph_destroy(g);
    }
    CHECK_EQ(create_with(&w, NULL), SLUICE_OK);
    free_world(&w);
}

TEST(options_of_jobs_that_make_no_sense_are_refused_by_name)
{
    static api_world w;
    const char *root;
    REQUIRE(prepare(&root));
    make_world(&w, root);
    const sluice_job_options good = w.job;
    const double bad[] = { (double)NAN, (double)INFINITY, -1 };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        w.job = good;
        w.job.temperature = bad[i];
        CHECK_EQ(sluice_job_generate(w.config, &w.job), SLUICE_ERR_USAGE);
        CHECK_CONTAINS(sluice_error(), "options.temperature");
    }
    w.job = good;
    w.job.tokens = 0;
    CHECK_EQ(sluice_job_generate(w.config, &w.job), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "options.tokens is 0");
    w.job = good;
    w.job.top_k = -1;
    CHECK_EQ(sluice_job_generate(w.config, &w.job), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "options.top_k is -1");
    w.job = good;
    w.job.ranks = -2;
    CHECK_EQ(sluice_job_plan(w.config, &w.job), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "options.ranks is -2");
    w.job = good;
    w.job.out = NULL;
    CHECK_EQ(sluice_job_plan(w.config, &w.job), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "options.out is NULL");
    CHECK_EQ(sluice_job_generate(w.config, &w.job), SLUICE_ERR_USAGE);
    free_world(&w);
}

TEST(batches_that_are_not_what_the_graph_reads_are_refused_by_name)
{
    static api_world w;
    const char *root;
    REQUIRE(prepare(&root));
    make_world(&w, root);
    sluice_engine *e = api_new_engine(&w);
    REQUIRE(e != NULL);
    const struct {
        sluice_array arrays[2];
        int count;
        bool none;
        const char *message;
    } bad[] = {
        { .count = 1, .none = true, .message = "the batch has 1 arrays, and they are NULL" },
        { .count = -1, .message = "the batch has -1 arrays" },
        { .count = 0, .message = "0 of the graph's 1 inputs" },
        { { { NULL, w.floats, 64 } }, 1, false, "array 0 of the batch has no name" },
        { { { "x", NULL, 64 } }, 1, false, "the data of input \"x\" is NULL" },
        { { { "x", w.floats, 63 } }, 1, false, "input \"x\" holds 64 bytes, 63 were given" },
        { { { "z\n", w.floats, 64 } }, 1, false, "an array \"z\\u000a\"" },
        { { { "x", w.floats, 64 }, { "x", w.floats, 64 } }, 2, false, "input \"x\" twice" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        sluice_batch batch = { bad[i].none ? NULL : bad[i].arrays, bad[i].count };
        CHECK_EQ(sluice_train_step(e, &batch, &w.loss), SLUICE_ERR_USAGE);
        CHECK_CONTAINS(sluice_error(), bad[i].message);
        CHECK_EQ(sluice_forward(e, &batch, &w.loss), SLUICE_ERR_USAGE);
        CHECK_EQ(sluice_evaluate(e, &batch, &w.loss), SLUICE_ERR_USAGE);
        CHECK_EQ(sluice_predict(e, &batch, w.floats, sizeof w.floats), SLUICE_ERR_USAGE);
        CHECK_CONTAINS(sluice_error(), bad[i].message);
    }
    REQUIRE_OK(sluice_train_step(e, &w.batch, &w.loss));
    sluice_engine_destroy(e);
    free_world(&w);
}

TEST(a_prediction_of_an_engine_without_evaluation_says_so)
{
    static api_world w;
    const char *root;
    REQUIRE(prepare(&root));
    make_world(&w, root);
    w.options.evaluation = false;
    sluice_engine *e = api_new_engine(&w);
    REQUIRE(e != NULL);
    CHECK_EQ(sluice_predict(e, &w.batch, w.floats, sizeof w.floats), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "sluice_predict: the engine was created without options.evaluation");
    CHECK_EQ(sluice_evaluate(e, &w.batch, &w.loss), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "sluice_evaluate: the engine was created without options.evaluation");
    sluice_engine_destroy(e);
    free_world(&w);
}

/* ---- order ---- */

TEST(calls_in_the_middle_of_a_step_are_refused_and_the_step_can_be_finished)
{
    static api_world w;
    const char *root;
    uint64_t step;
    REQUIRE(prepare(&root));
    make_world(&w, root);
    w.options.accumulation_steps = 2;
    sluice_engine *e = api_new_engine(&w);
    REQUIRE(e != NULL);
    sluice_batch two[] = { w.batch, w.batch };
    w.made_data = api_data(&w);
    CHECK_EQ(sluice_backward(e), SLUICE_ERR_USAGE);
    CHECK_EQ(sluice_step(e), SLUICE_ERR_USAGE);
    REQUIRE_OK(sluice_forward(e, &w.batch, &w.loss));
    for (int after_backward = 0; after_backward < 2; after_backward++) {
        CHECK_EQ(sluice_step(e), SLUICE_ERR_USAGE);
        CHECK_EQ(sluice_train_step(e, two, &w.loss), SLUICE_ERR_USAGE);
        CHECK_EQ(sluice_fit(e, w.made_data, 1, &w.loss), SLUICE_ERR_USAGE);
        CHECK_CONTAINS(sluice_error(), "a training step is in progress");
        CHECK_EQ(sluice_evaluate(e, &w.batch, &w.loss), SLUICE_ERR_USAGE);
        CHECK_EQ(sluice_load(e, w.saved), SLUICE_ERR_USAGE);
        CHECK_EQ(sluice_checkpoint_save(e, w.folder), SLUICE_ERR_USAGE);
        CHECK_EQ(sluice_checkpoint_resume(e, w.checkpoints, &step), SLUICE_ERR_USAGE);
        CHECK_CONTAINS(sluice_error(), "a training step is in progress");
        if (after_backward == 0) REQUIRE_OK(sluice_backward(e));
    }
    REQUIRE_OK(sluice_forward(e, &w.batch, &w.loss));
    REQUIRE_OK(sluice_backward(e));
    CHECK_EQ(sluice_forward(e, &w.batch, &w.loss), SLUICE_ERR_USAGE);
    REQUIRE_OK(sluice_step(e));
    REQUIRE_OK(sluice_train_step(e, two, &w.loss));
    CHECK_EQ(sluice_step_count(e), 2);
    sluice_engine_destroy(e);
    free_world(&w);
}

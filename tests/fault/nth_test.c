/* Every allocation and every file call fails once, for every one there is: a clean status each time, nothing leaks, and
 * what was on disk before still loads.
 *
 * An "act" is one thing a user does with the library. It is done once to count its allocations (or calls), then once
 * for every one of them with that one failing, and with that one and all later ones failing. JSON documents are read by
 * a library that allocates by itself; here it asks us first, so that its allocations fail in turn like all others. */
#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/io.h"
#include "model/model.h"
#include "sluice.h"
#include "support/fault_program.h"
#include "test.h"

/* ---- acts ---- */

typedef struct fixture {
    char folder[1024], checkpoints[1100], weights_file[1100], config[1100];
    sluice_graph *graphs[2];
    sluice_engine *saver, *loader; /* of the same model; the loader has its first values */
    char first[65], saved[2][65];  /* weights of the loader, and of the saver after steps 1 and 2 */
} fixture;

typedef struct act {
    const char *name;
    sluice_status (*run)(fixture *f); /* leaves nothing behind but files and engines' values */
    void (*check)(fixture *f, sluice_status st);
} act;

static sluice_status build_engine(const sl_model_options *m, const sluice_options *o, sluice_graph **graph,
                                  sluice_engine **engine)
{
    sl_model_info info;
    sluice_status st = sluice_graph_create(graph);
    if (st != SLUICE_OK) return st;
    if ((st = sl_model_build(*graph, m, &info)) != SLUICE_OK) return st;
    return sluice_engine_create(*graph, o, engine);
}

static sluice_status build_and_destroy(const sl_model_options *m, const sluice_options *o)
{
    sluice_graph *g = NULL;
    sluice_engine *e = NULL;
    sluice_status st = build_engine(m, o, &g, &e);
    sluice_engine_destroy(e);
    sluice_graph_destroy(g);
    return st;
}

static const sl_model_options small_mlp = { .type = "mlp",
                                            .batch = 2,
                                            .features = 3,
                                            .outputs = 2,
                                            .hidden = { 5, 4 },
                                            .hidden_count = 2,
                                            .activation = "relu",
                                            .loss = "mse",
                                            .bias = true };
static const sl_model_options small_gpt = {
    .type = "gpt2", .batch = 2, .layers = 2, .heads = 2, .width = 8, .context = 4, .vocabulary = 11, .dropout = 0.1
};

static void small_options(sluice_options *o)
{
    sluice_options_init(o);
    sluice_optimizer_init(&o->optimizer, SLUICE_ADAMW);
    o->threads = 2;
    o->evaluation = true;
}

static sluice_status create_mlp(fixture *f)
{
    sluice_options o;
    (void)f;
    small_options(&o);
    return build_and_destroy(&small_mlp, &o);
}

static sluice_status create_gpt(fixture *f)
{
    sluice_options o;
    (void)f;
    small_options(&o);
    return build_and_destroy(&small_gpt, &o);
}

static sluice_status create_offloaded_gpt(fixture *f)
{
    sluice_options o;
    (void)f;
    small_options(&o);
    o.parameters = o.optimizer_state = SLUICE_PLACE_HOST;
    o.activations = SLUICE_ACTIVATIONS_RECOMPUTE;
    o.accumulation_steps = 2;
    o.guard = true;
    return build_and_destroy(&small_gpt, &o);
}

static sluice_status read_config(fixture *f)
{
    sluice_config *c = NULL;
    char text[64];
    sluice_status st = sluice_config_load(f->config, &c);
    if (st == SLUICE_OK) st = sluice_config_check(c, NULL, NULL);
    if (st == SLUICE_OK) st = sluice_config_get(c, "train_batch_size", text, sizeof text);
    sluice_config_destroy(c);
    return st;
}

static sluice_status run_job(fixture *f, sluice_status (*job)(const sluice_config *, const sluice_job_options *))
{
    sluice_config *c = NULL;
    sluice_job_options o;
    char trace[2200];
    snprintf(trace, sizeof trace, "%s/job.trace", f->folder);
    sluice_job_options_init(&o);
    o.resume = true;
    o.json = true;
    o.out = stdout;
    o.trace = trace;
    sluice_status st = sluice_config_load(f->config, &c);
    if (st == SLUICE_OK) st = job(c, &o);
    sluice_config_destroy(c);
    return st;
}

static sluice_status plan_job(fixture *f)
{
    return run_job(f, sluice_job_plan);
}

/* From nothing to the end, with a save on the way, one of the weights and a trace. */
static sluice_status train_job(fixture *f)
{
    char command[2200];
    snprintf(command, sizeof command, "rm -rf '%s/job' '%s/job.safetensors'", f->folder, f->folder);
    if (system(command) != 0) exit(99);
    return run_job(f, sluice_job_train);
}

static sluice_status save_checkpoint(fixture *f)
{
    return sluice_checkpoint_save(f->saver, f->checkpoints);
}

static sluice_status load_checkpoint(fixture *f)
{
    uint64_t step;
    return sluice_checkpoint_resume(f->loader, f->checkpoints, &step);
}

static sluice_status save_weights(fixture *f)
{
    return sluice_save(f->saver, f->weights_file);
}

static sluice_status load_weights(fixture *f)
{
    return sluice_load(f->loader, f->weights_file);
}

/* ---- what must hold after each ---- */

static void no_check(fixture *f, sluice_status st)
{
    (void)f;
    (void)st;
}

static void loader_hash(fixture *f, char weights[65])
{
    char state[65];
    if (sluice_hash(f->loader, weights, state) != SLUICE_OK) test_fail(__FILE__, __LINE__, "%s", sluice_error());
}

/* Gives the loader its first values back: kept in a file of its own. */
static void reset_loader(fixture *f)
{
    char path[1100];
    snprintf(path, sizeof path, "%s/first.safetensors", f->folder);
    REQUIRE_OK(sluice_load(f->loader, path));
}

/* One of the two saved steps loads, whole. */
static void check_checkpoint(fixture *f, sluice_status st)
{
    uint64_t step = 0;
    char weights[65] = "";
    REQUIRE_OK(sluice_checkpoint_resume(f->loader, f->checkpoints, &step));
    loader_hash(f, weights);
    REQUIRE(step == 1 || step == 2);
    CHECK_STR(weights, f->saved[step - 1]);
    if (st == SLUICE_OK) CHECK_EQ(step, 2);
    reset_loader(f);
}

static void check_weights_file(fixture *f, sluice_status st)
{
    char weights[65] = "";
    REQUIRE_OK(sluice_load(f->loader, f->weights_file));
    loader_hash(f, weights);
    CHECK(strcmp(weights, f->saved[0]) == 0 || strcmp(weights, f->saved[1]) == 0);
    if (st == SLUICE_OK) CHECK_STR(weights, f->saved[1]);
    reset_loader(f);
}

/* A failed load has changed nothing; a good one has loaded one of the two steps. */
static void check_loader(fixture *f, sluice_status st)
{
    char weights[65] = "";
    loader_hash(f, weights);
    if (st != SLUICE_OK) CHECK_STR(weights, f->first);
    if (st == SLUICE_OK) CHECK(strcmp(weights, f->saved[0]) == 0 || strcmp(weights, f->saved[1]) == 0);
    reset_loader(f);
}

/* A disk that fails halfway leaves some weights loaded and some not; the next load mends it. */
static void check_load_again(fixture *f, sluice_status st)
{
    char weights[65] = "";
    (void)st;
    REQUIRE_OK(sluice_load(f->loader, f->weights_file));
    loader_hash(f, weights);
    CHECK_STR(weights, f->saved[0]);
    reset_loader(f);
}

/* ---- the fixture ---- */

static const char job_config[] =
    "{\"model\": {\"type\": \"gpt2\", \"layers\": 1, \"heads\": 2, \"width\": 8, \"context\": 4, \"vocabulary\": "
    "\"characters\"},\n"
    " \"data\": {\"type\": \"text\", \"path\": \"%s/input.txt\", \"validation\": 0.2}, \"evaluate\": {\"batches\": 1}, "
    "\"steps\": 2,\n"
    " \"train_batch_size\": 2, \"threads\": 2, \"optimizer\": {\"type\": \"AdamW\", \"groups\": [{\"match\": "
    "\"no_decay\"}]},\n"
    " \"checkpoint\": {\"path\": \"%s/job\", \"every\": 1}, \"save\": \"%s/job.safetensors\"}\n";

/* One step of the saver on fixed data. */
static void train_saver(fixture *f)
{
    float x[6] = { 1, 2, 3, 4, 5, 6 }, target[4] = { 1, 0, 0, 1 };
    sluice_array arrays[] = { { "x", x, sizeof x }, { "target", target, sizeof target } };
    sluice_batch batch = { arrays, 2 };
    double loss;
    REQUIRE_OK(sluice_train_step(f->saver, &batch, &loss));
}

static void saver_hash(fixture *f, char weights[65])
{
    char state[65];
    REQUIRE_OK(sluice_hash(f->saver, weights, state));
}

/* The saver stands after step 2; step 1 and its weights are on disk. */
static void fixture_open(fixture *f)
{
    sluice_options o;
    char text[4096], path[1100];
    memset(f, 0, sizeof *f);
    memory_folder(f->folder);
    snprintf(f->checkpoints, sizeof f->checkpoints, "%s/run", f->folder);
    snprintf(f->weights_file, sizeof f->weights_file, "%s/w.safetensors", f->folder);
    snprintf(f->config, sizeof f->config, "%s/c.json", f->folder);
    snprintf(path, sizeof path, "%s/first.safetensors", f->folder);
    snprintf(text, sizeof text, job_config, f->folder, f->folder, f->folder);
    write_text(f->folder, "c.json", text);
    write_corpus(f->folder, 400);
    small_options(&o);
    o.threads = 1;
    REQUIRE_OK(build_engine(&small_mlp, &o, &f->graphs[0], &f->saver));
    REQUIRE_OK(build_engine(&small_mlp, &o, &f->graphs[1], &f->loader));
    REQUIRE_OK(sluice_save(f->loader, path));
    loader_hash(f, f->first);
    train_saver(f);
    saver_hash(f, f->saved[0]);
    REQUIRE_OK(sluice_checkpoint_save(f->saver, f->checkpoints));
    REQUIRE_OK(sluice_save(f->saver, f->weights_file));
    train_saver(f);
    saver_hash(f, f->saved[1]);
}

static void fixture_close(fixture *f)
{
    sluice_engine_destroy(f->saver);
    sluice_engine_destroy(f->loader);
    for (int i = 0; i < 2; i++) sluice_graph_destroy(f->graphs[i]);
}

/* ---- leaks ---- */

typedef struct holdings {
    uint64_t blocks, bytes;
    int files, threads;
} holdings;

static int entries(const char *folder)
{
    int n = 0;
    DIR *dir = opendir(folder);
    while (dir != NULL && readdir(dir) != NULL) n++;
    if (dir != NULL) closedir(dir);
    return n;
}

/* At rest no thread but this one is left. */
static holdings held_now(void)
{
    sl_alloc_stats s;
    sl_alloc_get_stats(&s);
    return (holdings){ s.live_count, s.live_bytes, entries("/proc/self/fd"), entries("/proc/self/task") };
}

/* A joined thread leaves the kernel's list a moment later. */
static void check_held(const act *a, int n, const holdings *before)
{
    holdings now = held_now();
    for (int i = 0; i < 1000 && now.threads > before->threads; i++) {
        usleep(1000);
        now = held_now();
    }
    if (now.blocks != before->blocks || now.bytes != before->bytes || now.files != before->files ||
        now.threads != before->threads)
        test_fail(__FILE__, __LINE__, "%s, failure %d: %lld blocks, %lld bytes, %d files, %d threads are left", a->name,
                  n, (long long)(now.blocks - before->blocks), (long long)(now.bytes - before->bytes),
                  now.files - before->files, now.threads - before->threads);
}

/* ---- allocations ---- */

/* Fails when its turn has come; what it gives is the C library's, whose leaks the sanitizer sees. */
static void *json_take(size_t bytes)
{
    void *turn = sl_alloc(1, "JSON");
    if (turn == NULL) return NULL;
    sl_free(turn);
    return malloc(bytes);
}

static int count_allocations(const act *a, fixture *f)
{
    sl_alloc_stats before, after;
    sl_alloc_get_stats(&before);
    sluice_status st = a->run(f);
    sl_alloc_get_stats(&after);
    if (st != SLUICE_OK) test_fail(__FILE__, __LINE__, "%s: %s", a->name, sluice_error());
    return (int)(after.total_count - before.total_count);
}

static void check_failed_allocation(const act *a, fixture *f, int n, bool persistent, const holdings *before)
{
    sl_alloc_fail_nth(n, persistent);
    sluice_status st = a->run(f);
    sl_alloc_fail_nth(0, 0);
    if (st != SLUICE_ERR_NO_MEMORY || strstr(sluice_error(), "memory") == NULL)
        test_fail(__FILE__, __LINE__, "%s, allocation %d%s: status %d, \"%s\"", a->name, n,
                  persistent ? " and later" : "", (int)st, sluice_error());
    a->check(f, st);
    check_held(a, n, before);
}

static void fail_each(const act *a, fixture *f, bool persistent)
{
    holdings before = held_now();
    int count = count_allocations(a, f);
    check_held(a, 0, &before); /* nor does success leak */
    reset_loader(f);
    CHECK(count > 3);
    for (int n = 1; n <= count && test_failures < 5; n++) check_failed_allocation(a, f, n, persistent, &before);
}

/* jansson takes part in the second round only: where memory is short for a moment while it grows a string, it drops a
 * character and goes on. */
static void fail_allocations(const act *a)
{
    fixture f;
    fixture_open(&f);
    if (test_failures == 0) fail_each(a, &f, false);
    json_set_alloc_funcs(json_take, free);
    if (test_failures == 0) fail_each(a, &f, true);
    fixture_close(&f);
    json_set_alloc_funcs(malloc, free);
}

#define ALLOCATION_TEST(test_, act_, check_)                                                                           \
    TEST(test_)                                                                                                        \
    {                                                                                                                  \
        fail_allocations(&(act){ #act_, act_, check_ });                                                               \
    }

ALLOCATION_TEST(a_failed_allocation_while_creating_an_mlp_leaks_nothing, create_mlp, no_check)
ALLOCATION_TEST(a_failed_allocation_while_creating_a_gpt_leaks_nothing, create_gpt, no_check)
ALLOCATION_TEST(a_failed_allocation_while_creating_an_offloaded_gpt_leaks_nothing, create_offloaded_gpt, no_check)
ALLOCATION_TEST(a_failed_allocation_while_reading_a_configuration_leaks_nothing, read_config, no_check)
ALLOCATION_TEST(a_failed_allocation_in_a_whole_plan_command_leaks_nothing, plan_job, no_check)
ALLOCATION_TEST(a_failed_allocation_in_a_whole_train_command_leaks_nothing, train_job, no_check)
ALLOCATION_TEST(a_failed_allocation_while_saving_a_checkpoint_keeps_the_old_one, save_checkpoint, check_checkpoint)
ALLOCATION_TEST(a_failed_allocation_while_loading_a_checkpoint_changes_nothing, load_checkpoint, check_loader)
ALLOCATION_TEST(a_failed_allocation_while_saving_weights_keeps_the_old_file, save_weights, check_weights_file)
ALLOCATION_TEST(a_failed_allocation_while_loading_weights_changes_nothing, load_weights, check_loader)

/* ---- file calls ---- */

typedef struct breaker {
    int calls, at, error;
    bool persistent;
    char call[16], path[256]; /* of the first that failed */
    char written[256];        /* the file that was written, or got its name, last before it */
} breaker;

static int break_call(void *user, const char *call, const char *path)
{
    breaker *b = user;
    b->calls++;
    bool writes = strcmp(call, "pwrite") == 0 || strcmp(call, "rename") == 0;
    if (writes && (b->at == 0 || b->calls < b->at)) snprintf(b->written, sizeof b->written, "%s", path);
    if (b->at == 0 || b->calls < b->at || (b->calls > b->at && !b->persistent)) return 0;
    if (b->calls == b->at) {
        snprintf(b->call, sizeof b->call, "%s", call);
        snprintf(b->path, sizeof b->path, "%s", path);
    }
    return b->error;
}

static sluice_status run_broken(const act *a, fixture *f, breaker *b)
{
    sl_io_set_hook(break_call, b);
    sluice_status st = a->run(f);
    sl_io_set_hook(NULL, NULL);
    return st;
}

/* A run whose profile cannot be written goes on: neither the file nor, after it got its name, its folder is synced. */
static bool is_profile(const breaker *b)
{
    const char *file = strstr(b->path, "/profile.json"), *before = strstr(b->written, "/profile.json");
    if (file != NULL) return true;
    return before != NULL && strncmp(b->path, b->written, (size_t)(before - b->written)) == 0 &&
           strlen(b->path) == (size_t)(before - b->written);
}

/* A run whose journal cannot be written goes on. */
static bool is_journal(const breaker *b)
{
    const char *slash = strrchr(b->path, '/');
    return slash != NULL && strcmp(slash, "/log.jsonl") == 0 && strcmp(b->call, "pwrite") == 0;
}

/* The lock of an output loses its name when that is in place; one that stays is the next writer's. */
static bool ends_a_lock(const breaker *b)
{
    size_t bytes = strlen(b->path);
    bool lock = bytes > 4 && strcmp(b->path + bytes - 4, ".tmp") == 0;
    return lock && (strcmp(b->call, "unlink") == 0 || strcmp(b->call, "flock") == 0) && strcmp(b->written, "") != 0;
}

/* What the machine says about itself is optional, what is there already is only looked at, and closing what was read
 * loses nothing. */
static bool harmless(const breaker *b)
{
    if (is_profile(b) || is_journal(b) || ends_a_lock(b)) return true;
    return strcmp(b->call, "stat") == 0 || strcmp(b->call, "close") == 0 || strncmp(b->path, "/proc/", 6) == 0 ||
           strncmp(b->path, "/sys/", 5) == 0 || strcmp(b->path, "lock") == 0;
}

static void check_broken_call(const act *a, fixture *f, breaker b, const holdings *before)
{
    sluice_status st = run_broken(a, f, &b);
    if (st != SLUICE_ERR_IO && !(st == SLUICE_OK && (harmless(&b) || a->check == check_loader)))
        test_fail(__FILE__, __LINE__, "%s, call %d (%s %s): status %d, \"%s\"", a->name, b.at, b.call, b.path, (int)st,
                  sluice_error());
    a->check(f, st);
    check_held(a, b.at, before);
}

/* Each call fails with EIO and with ENOSPC, once and from then on. A whole command takes a tenth of a second: of it, only
 * EIO once and ENOSPC from then on, where LONG is not set. */
static void fail_calls(const act *a)
{
    const int stride = a->run == train_job && getenv("LONG") == NULL ? 3 : 1;
    fixture f;
    breaker counter = { 0 };
    fixture_open(&f);
    CHECK_EQ(run_broken(a, &f, &counter), SLUICE_OK);
    reset_loader(&f);
    CHECK(counter.calls > 3);
    holdings before = held_now();
    for (int n = 1; n <= counter.calls && test_failures < 5; n++)
        for (int mode = 0; mode < 4; mode += stride)
            check_broken_call(a, &f, (breaker){ .at = n, .error = mode & 1 ? ENOSPC : EIO, .persistent = mode >= 2 },
                              &before);
    fixture_close(&f);
}

#define CALL_TEST(test_, act_, check_)                                                                                 \
    TEST(test_)                                                                                                        \
    {                                                                                                                  \
        fail_calls(&(act){ #act_, act_, check_ });                                                                     \
    }

CALL_TEST(a_failed_call_while_reading_a_configuration_is_an_error, read_config, no_check)
CALL_TEST(a_failed_call_in_a_whole_train_command_is_an_error, train_job, no_check)
CALL_TEST(a_failed_call_while_saving_a_checkpoint_keeps_the_old_one, save_checkpoint, check_checkpoint)
CALL_TEST(a_failed_call_while_loading_a_checkpoint_changes_nothing, load_checkpoint, check_loader)
CALL_TEST(a_failed_call_while_saving_weights_keeps_the_old_file, save_weights, check_weights_file)
CALL_TEST(a_failed_call_while_loading_weights_is_an_error_and_the_next_load_is_whole, load_weights, check_load_again)

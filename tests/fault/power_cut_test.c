/* power_cut_test.c: a power cut at any moment costs nothing that was said to be saved.
 *
 * A run is logged call by call (tests/support/log_files.c). Then, for every prefix of the log, states of the disk are
 * made that a file system may be left in which keeps only what was synced, and loses or reorders the rest
 * (crash_model.h). From each a checkpoint must load, whole, and not older than the newest one that had been announced.
 *
 * The same with one kind of sync taken out of the log must lose something: that proves that the test would see it. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/checkpoint.h"
#include "model/model.h"
#include "sluice.h"
#include "support/crash_model.h"
#include "support/fault_program.h"
#include "test.h"

enum { MAX_STEP = 16, STEPS = 8 };
#define LIBRARY SLUICE_BINARY_DIR "/log_files.so"

/* ---- recording ---- */

/* 5,313 parameters and two moments each: 16 blocks of 4 KiB a checkpoint. */
static const char config[] =
    "{\"model\": {\"type\": \"mlp\", \"features\": 8, \"hidden\": [128, 32]},\n"
    " \"data\": {\"type\": \"regression\", \"samples\": 40}, \"steps\": 8, \"train_batch_size\": 4,\n"
    " \"train_micro_batch_size_per_gpu\": 2, \"threads\": 1, \"optimizer\": {\"type\": \"AdamW\"},\n"
    " \"zero_optimization\": {\"stage\": 2}, \"memory\": {\"device\": \"16MiB\", \"host\": \"16MiB\"},\n"
    " \"checkpoint\": {\"path\": \"runs/a\", \"every\": 2, \"keep\": 2}, \"save\": \"w.safetensors\"}\n";

typedef struct recording {
    char folder[1024];
    uint8_t *log;
    size_t log_bytes;
    char *said; /* standard output of the run */
} recording;

static uint8_t *read_file(const char *folder, const char *name, size_t *bytes)
{
    char path[1200];
    struct stat info;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "rb");
    if (f == NULL || fstat(fileno(f), &info) != 0) exit(99);
    uint8_t *text = malloc((size_t)info.st_size + 1);
    *bytes = fread(text, 1, (size_t)info.st_size, f);
    text[*bytes] = '\0';
    fclose(f);
    return text;
}

/* Runs `sluice train c.json --json <arguments>` in folder/work and adds to the log. */
static bool run_logged(const char *folder, const char *arguments)
{
    char command[8192];
    snprintf(command, sizeof command,
             "cd '%s/work' && LD_PRELOAD=" LIBRARY
             " ASAN_OPTIONS=verify_asan_link_order=0 SLUICE_FILE_LOG=../log " SLUICE_BINARY_DIR
             "/sluice train c.json --json %s >> ../said 2> ../err",
             folder, arguments);
    return system(command) == 0;
}

/* A whole run; or, with `resumed`, one that stops in the middle and is resumed. */
static bool record(const char *arguments, bool resumed, recording *r)
{
    char work[1100], more[1024];
    size_t said;
    memory_folder(r->folder);
    snprintf(work, sizeof work, "%s/work", r->folder);
    if (mkdir(work, 0700) != 0) return false;
    write_text(work, "c.json", config);
    snprintf(more, sizeof more, "%s --set steps=%d --set save=", arguments, STEPS / 2 + 1);
    if (resumed && !run_logged(r->folder, more)) return false;
    snprintf(more, sizeof more, "%s --resume", arguments);
    if (!run_logged(r->folder, resumed ? more : arguments)) return false;
    r->log = read_file(r->folder, "log", &r->log_bytes);
    r->said = (char *)read_file(r->folder, "said", &said);
    return true;
}

static void forget_recording(recording *r)
{
    free(r->log);
    free(r->said);
}

/* ---- what a cut left ---- */

/* An engine of the model of the run, into which everything is loaded. */
typedef struct judge {
    sluice_graph *graph;
    sluice_engine *engine;
    char folder[1024];                  /* where states of the disk are made */
    char weights[MAX_STEP][65];         /* hashes of each step, of the first time it was loaded; "": not yet */
    char state[MAX_STEP][65], last[65]; /* last: weights that the run ended with */
} judge;

static sluice_status judge_create(judge *j)
{
    sl_model_options m = { .type = "mlp",
                           .batch = 2,
                           .features = 8,
                           .hidden = { 128, 32 },
                           .hidden_count = 2,
                           .outputs = 1,
                           .activation = "relu",
                           .loss = "mse",
                           .bias = true };
    sl_model_info info;
    sluice_options o;
    *j = (judge){ .engine = NULL };
    memory_folder(j->folder);
    strcat(j->folder, "/disk");
    sluice_options_init(&o);
    sluice_optimizer_init(&o.optimizer, SLUICE_ADAMW);
    o.accumulation_steps = 2;
    o.seed = 1;
    o.threads = 1;
    o.device_bytes = o.host_bytes = (uint64_t)1 << 24;
    SL_TRY(sluice_graph_create(&j->graph));
    SL_TRY(sl_model_build(j->graph, &m, &info));
    return sluice_engine_create(j->graph, &o, &j->engine);
}

static void judge_destroy(judge *j)
{
    sluice_engine_destroy(j->engine);
    sluice_graph_destroy(j->graph);
}

/* What had been announced when the power went. */
typedef struct announced {
    uint64_t step; /* of the newest checkpoint; 0: none */
    bool weights;  /* the run had ended, and with it written the weights */
} announced;

static announced read_announced(const char *said, uint64_t bytes)
{
    static const char saved[] = "{\"event\":\"saved\",\"step\":", end[] = "{\"event\":\"end\",\"steps\":";
    announced a = { 0, false };
    for (const char *line = said; *line != '\0' && (uint64_t)(line - said) < bytes; line++) {
        if (strncmp(line, saved, strlen(saved)) == 0) a.step = strtoull(line + strlen(saved), NULL, 10);
        a.weights |= strncmp(line, end, strlen(end)) == 0 && atoi(line + strlen(end)) == STEPS;
        line += strcspn(line, "\n");
        if (*line == '\0') break;
    }
    return a;
}

/* As a resuming run does it: leftovers are cleared away, the newest that verifies is loaded. */
static bool checkpoint_is_there(judge *j, announced a, char why[512])
{
    char folder[1100], weights[65], state[65];
    uint64_t step = 0;
    snprintf(folder, sizeof folder, "%s/runs/a", j->folder);
    snprintf(why, 512, "step %d is announced", (int)a.step);
    if (sl_checkpoint_clean(folder) != SLUICE_OK || sluice_checkpoint_resume(j->engine, folder, &step) != SLUICE_OK) {
        snprintf(why, 512, "step %d is announced, but: %.400s", (int)a.step, sluice_error());
        return false;
    }
    if (step < a.step || step >= MAX_STEP) {
        snprintf(why, 512, "step %d is announced, step %d is there", (int)a.step, (int)step);
        return false;
    }
    if (step == 0) return true;
    if (sluice_hash(j->engine, weights, state) != SLUICE_OK) return false;
    if (j->weights[step][0] == '\0') {
        memcpy(j->weights[step], weights, 65);
        memcpy(j->state[step], state, 65);
    }
    return strcmp(weights, j->weights[step]) == 0 && strcmp(state, j->state[step]) == 0;
}

/* Where the file has its name, it is whole. */
static bool weights_are_there(judge *j, announced a, char why[512])
{
    char path[1100], weights[65], state[65];
    snprintf(path, sizeof path, "%s/w.safetensors", j->folder);
    snprintf(why, 512, "the saved weights are gone");
    if (access(path, F_OK) != 0) return !a.weights;
    if (sluice_load(j->engine, path) != SLUICE_OK || sluice_hash(j->engine, weights, state) != SLUICE_OK) {
        snprintf(why, 512, "the saved weights: %.400s", sluice_error());
        return false;
    }
    return strcmp(weights, j->last) == 0;
}

/* ---- all prefixes ---- */

/* What is synced, by the name of the file or folder. */
typedef enum {
    DATA,
    MANIFEST,
    STEP_FOLDER,
    FOLDER,
    PARENTS,
    WEIGHTS,
    LATEST,
    PROFILE,
    OTHER,
    KINDS,
    NONE = KINDS
} sync_kind;
static const char *const kind_names[] = { "data",    "manifest", "step folder", "checkpoint folder",
                                          "parents", "weights",  "latest",      "profile",
                                          "other" };

static sync_kind kind_of(const char *name)
{
    static const struct {
        const char *start;
        sync_kind kind;
    } known[] = {
        { "rank-", DATA },          { "manifest.json", MANIFEST }, { "step-", STEP_FOLDER },     { "a", FOLDER },
        { ".", PARENTS },           { "runs", PARENTS },           { "w.safetensors", WEIGHTS }, { "latest", LATEST },
        { "profile.json", PROFILE }
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strncmp(name, known[i].start, strlen(known[i].start)) == 0) return known[i].kind;
    return OTHER;
}

typedef struct walk {
    const recording *r;
    judge *j;
    sync_kind dropped; /* NONE: all are there */
    int random_states; /* at each prefix, beside the fixed ones */
    const char *arguments;
    int resume_every; /* of so many states one is also resumed by the program; 0: none is */
    int prefixes, states, losses, lossy_prefixes, resumed;
    int syncs[KINDS]; /* in the log */
    char first_loss[1024];
} walk;

/* The run goes on from here to the bits it ends with when nothing happens. */
static bool program_goes_on(walk *w, char why[512])
{
    program p;
    char arguments[1024];
    snprintf(arguments, sizeof arguments, "train c.json --json --resume %s", w->arguments);
    write_text(w->j->folder, "c.json", config);
    int status = program_run(&p, w->j->folder, arguments);
    w->resumed++;
    snprintf(why, 512, "resuming ends with status %d: %.400s", status, program_error(&p));
    return status == 0 && strcmp(p.weights, w->j->last) == 0;
}

static void judge_state(walk *w, const crash_model *m, crash_chance chance, announced a, uint64_t *random)
{
    char why[512];
    if (!crash_write(m, chance, random, w->j->folder)) exit(99);
    w->states++;
    bool resume = w->resume_every > 0 && w->states % w->resume_every == 0;
    if (checkpoint_is_there(w->j, a, why) && weights_are_there(w->j, a, why) && (!resume || program_goes_on(w, why)))
        return;
    if (w->losses++ == 0)
        snprintf(w->first_loss, sizeof w->first_loss, "cut %d (data %d %%, names %d %%): %s", w->prefixes, chance.data,
                 chance.names, why);
}

/* Nothing unsynced is there, everything, only data, only names; then at random. */
static void judge_prefix(walk *w, const crash_model *m, announced a, uint64_t *random)
{
    static const crash_chance fixed[] = { { 0, 0, 0, 0 }, { 100, 100, 0, 0 }, { 100, 0, 0, 0 }, { 0, 100, 0, 0 } };
    int before = w->losses;
    for (size_t i = 0; i < sizeof fixed / sizeof fixed[0]; i++) judge_state(w, m, fixed[i], a, random);
    for (int i = 0; i < w->random_states; i++) {
        crash_chance c = { .data = (int)next_random(random, 101),
                           .names = (int)next_random(random, 101),
                           .in_order = next_random(random, 3) == 0,
                           .whole_length = next_random(random, 2) == 0 };
        judge_state(w, m, c, a, random);
    }
    w->prefixes++;
    w->lossy_prefixes += w->losses > before;
}

static bool is_dropped(walk *w, const crash_model *m, const file_log_record *r)
{
    if (r->kind != FILE_LOG_SYNC) return false;
    sync_kind kind = kind_of(crash_name_of(m, r->pid, r->fd));
    w->syncs[kind]++;
    return kind == w->dropped;
}

static void take_walk(walk *w)
{
    crash_model *m = crash_create();
    announced a = { 0, false };
    uint64_t random = 11;
    const uint8_t *at = w->r->log, *end = at + w->r->log_bytes;
    while (at < end) {
        file_log_record r;
        char path[512], to[512];
        memcpy(&r, at, sizeof r);
        at += sizeof r;
        snprintf(path, sizeof path, "%.*s", (int)r.path_bytes, (const char *)at);
        snprintf(to, sizeof to, "%.*s", (int)r.to_bytes, (const char *)at + r.path_bytes);
        const uint8_t *data = at + r.path_bytes + r.to_bytes;
        at = data + r.data_bytes;
        if (r.kind == FILE_LOG_SAID) a = read_announced(w->r->said, r.offset);
        if (!is_dropped(w, m, &r) && !crash_apply(m, &r, path, to, data)) {
            test_fail(__FILE__, __LINE__, "%s", crash_error(m));
            break;
        }
        bool changes = r.kind != FILE_LOG_CLOSE && (r.kind != FILE_LOG_OPEN || (r.flags & O_CREAT) != 0);
        if (changes) judge_prefix(w, m, a, &random);
    }
    crash_destroy(m);
}

/* ---- the tests ---- */

static void last_weights(const recording *r, judge *j)
{
    static const char key[] = "\"weights_sha256\":\"";
    for (const char *at = r->said; (at = strstr(at, key)) != NULL;)
        snprintf(j->last, sizeof j->last, "%.64s", at += strlen(key));
}

/* Of so many states one is also resumed by the program; with LONG. */
enum { RESUME_EVERY = 97, LONG_RESUME_EVERY = 271, LONG_RESUME_EVERY_ON_DISK = 61 };

static void cut_everywhere(const char *arguments, bool resumed, int long_resume_every)
{
    recording r;
    judge j;
    bool many = getenv("LONG") != NULL;
    walk w = { .r = &r, .j = &j, .dropped = NONE, .arguments = arguments };
    w.random_states = many ? 64 : 2;
    w.resume_every = many ? long_resume_every : RESUME_EVERY;
    REQUIRE_OK(judge_create(&j));
    REQUIRE(record(arguments, resumed, &r));
    last_weights(&r, &j);
    CHECK_EQ(read_announced(r.said, UINT64_MAX).step, STEPS);
    take_walk(&w);
    printf("train %s%s: %d cuts, %d states of the disk, %d of them resumed by the program; %d losses\n", arguments,
           resumed ? ", stopped and resumed" : "", w.prefixes, w.states, w.resumed, w.losses);
    if (w.losses > 0)
        test_fail(__FILE__, __LINE__, "%d of %d states lost something: %s", w.losses, w.states, w.first_loss);
    forget_recording(&r);
    judge_destroy(&j);
}

TEST(a_power_cut_at_any_moment_loses_nothing_that_was_announced)
{
    cut_everywhere("--ranks 1", false, LONG_RESUME_EVERY);
}

TEST(a_power_cut_of_two_ranks_loses_nothing_that_was_announced)
{
    cut_everywhere("--ranks 2", false, LONG_RESUME_EVERY);
}

TEST(a_power_cut_while_saving_beside_training_loses_nothing_that_was_announced)
{
    cut_everywhere("--ranks 2 --set checkpoint.background=true", false, LONG_RESUME_EVERY);
}

TEST(a_power_cut_of_a_resumed_run_loses_nothing_that_was_announced)
{
    cut_everywhere("--ranks 2", true, LONG_RESUME_EVERY);
}

/* Swap files have no names: what a cut leaves of them is nothing, and nothing of them is needed. */
static void cut_with_swap_files(const char *arguments)
{
    char all[1024], disk[512];
    snprintf(disk, sizeof disk, "%s", test_tmpdir());
    snprintf(all, sizeof all, "%s --set memory.disk_path=%s", arguments, disk);
    cut_everywhere(all, false, LONG_RESUME_EVERY_ON_DISK);
    CHECK_EQ(rmdir(disk), 0); /* nothing is left there */
}

TEST(a_power_cut_of_a_run_with_swap_files_loses_nothing_that_was_announced)
{
    cut_with_swap_files("--ranks 1 --set zero_optimization.offload_optimizer.device=nvme --set "
                        "zero_optimization.offload_param.device=nvme");
}

TEST(a_power_cut_of_ranks_with_swap_files_and_speculative_updates_loses_nothing_that_was_announced)
{
    cut_with_swap_files("--ranks 2 --set zero_optimization.offload_optimizer.device=cpu --set "
                        "zero_optimization.update=speculative --set activation_checkpointing.mode=offload --set "
                        "activation_checkpointing.device=nvme");
}

/* Every sync but that of `latest`, which nothing is loaded by, is needed. */
TEST(each_kind_of_sync_left_out_would_be_seen)
{
    recording r;
    judge j;
    REQUIRE_OK(judge_create(&j));
    REQUIRE(record("--ranks 2", false, &r));
    last_weights(&r, &j);
    walk all = { .r = &r, .j = &j, .dropped = NONE };
    take_walk(&all); /* also learns the hashes of whole checkpoints */
    CHECK_EQ(all.losses, 0);
    CHECK_EQ(all.syncs[OTHER], 0);
    for (int kind = 0; kind < OTHER; kind++) {
        walk w = { .r = &r, .j = &j, .dropped = (sync_kind)kind, .random_states = 1 };
        take_walk(&w);
        printf("without the %2d syncs of the %-17s: %3d of %3d states lose something, at %3d of %3d cuts\n",
               w.syncs[kind], kind_names[kind], w.losses, w.states, w.lossy_prefixes, w.prefixes);
        CHECK(w.syncs[kind] > 0);
        CHECK(kind == LATEST || kind == PROFILE ? w.losses == 0 : w.losses > 0); /* nothing is read from these two */
    }
    forget_recording(&r);
    judge_destroy(&j);
}

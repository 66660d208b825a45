/* matrix.c: see matrix.h. */
#include "support/matrix.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "config/config.h"
#include "core/bytes.h"
#include "test.h"
#include "train/job.h"

#define GPU_OVERHEAD 768 /* MiB that are taken off for CUDA's own */

enum { GLOBAL_MICRO = 4, MAX_RANKS = 4, BLOCK = 2048 };

/* Some steps of each are clipped, and of all but the last some are not. */
const subject matrix_subjects[MATRIX_SUBJECTS] = {
    [MATRIX_GPT] = { "gpt2",
                     "{\"type\": \"gpt2\", \"layers\": 4, \"heads\": 2, \"width\": 32, \"context\": 16,"
                     " \"vocabulary\": \"bytes\", \"dropout\": 0.1}",
                     "{\"type\": \"text\", \"path\": \"%s/text\", \"validation\": 0}", "64", 20, 1, 1.8, 17, NULL },
    [MATRIX_BERT] = { "bert",
                      "{\"type\": \"bert\", \"layers\": 3, \"heads\": 2, \"width\": 32, \"context\": 16,"
                      " \"vocabulary\": \"1366\", \"dropout\": 0.1}",
                      "{\"type\": \"text\", \"path\": \"%s/text\", \"validation\": 0, \"tokenizer\": "
                      "\"" SLUICE_SOURCE_DIR "/tests/fixtures/tokenizers/bert-uncased.json\"}",
                      "64", 8, 2, 2.3, 17, NULL },
    [MATRIX_CLASSIFIER] = { "bert with a classifier",
                            "{\"type\": \"bert\", \"head\": \"classifier\", \"layers\": 2, \"heads\": 2, \"width\": 32,"
                            " \"context\": 24, \"vocabulary\": \"1366\", \"dropout\": 0.1}",
                            "{\"type\": \"glue\", \"path\": \"%s/pairs.tsv\", \"tokenizer\": \"" SLUICE_SOURCE_DIR
                            "/tests/fixtures/tokenizers/bert-uncased.json\"}",
                            "64", 8, 2, 0.6, 17, NULL },
    [MATRIX_RECOMMENDER] = { "recommender",
                             "{\"type\": \"recommender\", \"embedding\": 8, \"bottom\": [48], \"top\": [96, 64]}",
                             "{\"type\": \"table\", \"path\": \"%s/clicks.csv\", \"hash_buckets\": 300}", "64", 8, 4,
                             0.6, 17, NULL },
    [MATRIX_RESNET] = { "resnet", "{\"type\": \"resnet\", \"depth\": 18, \"stem\": \"cifar\"}",
                        "{\"type\": \"random_images\", \"image_size\": 8, \"outputs\": 4, \"samples\": 40}", "1024", 2,
                        4, 50, 6, NULL },
    [MATRIX_DELAYED] = { "gpt2 with delayed updates",
                         "{\"type\": \"gpt2\", \"layers\": 4, \"heads\": 2, \"width\": 32, \"context\": 16,"
                         " \"vocabulary\": \"bytes\", \"dropout\": 0.1}",
                         "{\"type\": \"text\", \"path\": \"%s/text\", \"validation\": 0}", "64", 12, 1, 1.8, 17,
                         "\"update\": \"delayed\", \"delay_warmup\": 4" },
};

typedef struct factor {
    int values[4], count;
} factor;

static const factor factors[] = {
    { { 1, 2, 4 }, 3 }, { { 0, 1, 2, 3 }, 4 }, { { 0, 1, 2, 3 }, 4 }, { { 0, 1, 2 }, 3 }, { { 0, 1 }, 2 }
};
enum { FACTORS = sizeof factors / sizeof factors[0] };

static const char *const offload_names[] = { "nothing", "optimizer", "optimizer, parameters", "half the optimizer" };
static const char *const partition_names[] = { "layer", "block", "owner" };

const mode matrix_modes[MATRIX_MODES] = {
    { "fp32", { NULL }, 4, 4, 0, false, false },
    { "bf16", { "bf16.enabled=true", NULL }, 2, 2, 2, false, false },
    { "fp16", { "fp16={\"enabled\":true,\"loss_scale_window\":3,\"hysteresis\":1}", NULL }, 2, 2, 4, true, false },
    { "compact", { "bf16.enabled=true", "zero_optimization.states=compact", NULL }, 2, 2, 2, false, true },
};

/* ---- one run ---- */

static const char config_text[] =
    "{ \"model\": %s,\n"
    "  \"data\": %s,\n"
    "  \"steps\": %d, \"seed\": 5, \"threads\": 1, \"train_batch_size\": %d, \"train_micro_batch_size_per_gpu\": %d,\n"
    "  \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 3e-3, \"weight_decay\": 0.1}},\n"
    "  \"gradient_clipping\": %g, \"timeout_seconds\": 60, \"debug\": {\"guard\": true, \"small_norm_nodes\": true},\n"
    "  \"zero_optimization\": {%s}, \"memory\": {\"host\": \"%sMiB\"} }\n";

static FILE *create(const char *folder, const char *name)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return fopen(path, "w");
}

/* A text, pairs of sentences with a class, and a table of clicks. */
static bool write_data(const char *folder)
{
    FILE *text = create(folder, "text"), *pairs = create(folder, "pairs.tsv"), *clicks = create(folder, "clicks.csv");
    if (text == NULL || pairs == NULL || clicks == NULL) return false;
    fputs("label\tsentence1\tsentence2\n", pairs);
    fputs("label,hour,price,user,item,site\n", clicks);
    for (int i = 0; i < 400; i++) {
        fprintf(text, "line %d: the %d of %d\n", i, i * i % 97, i % 13);
        fprintf(pairs, "%d\tthe %d of one day%s\tin %d ways\n", i * i % 7 % 2, i, i % 3 == 0 ? " and of another" : "",
                i % 9);
        fprintf(clicks, "%d,%d,%d.5,u%d,i%d,s%d\n", i * i % 11 % 2, i % 24, i * 7 % 31, i % 50, i * i % 83, i % 5);
    }
    return fclose(text) == 0 && fclose(pairs) == 0 && fclose(clicks) == 0;
}

static bool write_inputs(const char *folder, const subject *b)
{
    char data[8400];
    if (!write_data(folder)) return false;
    snprintf(data, sizeof data, b->data, folder);
    FILE *f = create(folder, "config.json");
    if (f == NULL) return false;
    fprintf(f, config_text, b->model, data, b->steps, GLOBAL_MICRO * b->micro, b->micro, b->clip,
            b->update != NULL ? b->update : "\"update\": \"sync\"", b->memory);
    return fclose(f) == 0;
}

static const subject *subject_of(const run_request *q)
{
    return q->subject != NULL ? q->subject : &matrix_subjects[MATRIX_GPT];
}

static sluice_status configure(const run_request *q, sluice_config **out)
{
    static const char *const offloads[][2] = {
        { "none", "none" }, { "cpu", "none" }, { "cpu", "cpu" }, { "cpu", "none" }
    };
    char path[4200], set[10][128];
    snprintf(path, sizeof path, "%s/config.json", q->folder);
    SL_TRY(sluice_config_load(path, out));
    snprintf(set[0], sizeof set[0], "zero_optimization.stage=%d", q->s.stage);
    snprintf(set[1], sizeof set[1], "zero_optimization.partition=%s", partition_names[q->s.partition]);
    snprintf(set[2], sizeof set[2], "zero_optimization.partition_block=%d", BLOCK);
    snprintf(set[3], sizeof set[3], "zero_optimization.offload_optimizer.device=%s", offloads[q->s.offload][0]);
    snprintf(set[4], sizeof set[4], "zero_optimization.offload_param.device=%s", offloads[q->s.offload][1]);
    snprintf(set[5], sizeof set[5], "zero_optimization.offload_optimizer.ratio=%s",
             q->s.offload == HALF ? "0.5" : "1.0");
    snprintf(set[6], sizeof set[6], "activation_checkpointing.mode=%s", q->s.recompute ? "recompute" : "none");
    snprintf(set[7], sizeof set[7], "device=%s", q->device);
    snprintf(set[8], sizeof set[8], "memory.device=%dMiB",
             atoi(subject_of(q)->memory) + (strcmp(q->device, "cuda") == 0 ? GPU_OVERHEAD : 0));
    snprintf(set[9], sizeof set[9], "%s", q->extra != NULL ? q->extra : "seed=5");
    for (int i = 0; i < 10; i++) SL_TRY(sluice_config_set(*out, set[i]));
    for (int i = 0; q->mode->sets[i] != NULL; i++) SL_TRY(sluice_config_set(*out, q->mode->sets[i]));
    for (int i = 0; i < 3 && q->also[i] != NULL; i++) SL_TRY(sluice_config_set(*out, q->also[i]));
    snprintf(set[0], sizeof set[0], "fp16.initial_scale_power=%d", subject_of(q)->scale_power);
    return q->mode->skips ? sluice_config_set(*out, set[0]) : SLUICE_OK;
}

static void on_event(void *user, const sluice_event *e)
{
    const run_request *q = user;
    outcome *o = q->out;
    if (e->kind == SLUICE_EVENT_PLAN) o->plan = *e;
    if (e->kind == SLUICE_EVENT_STEP) {
        const struct timespec pause = { 0, 3000000 }; /* what is still under way goes on between steps, and counts */
        o->skipped += e->skipped, o->clipped += e->gradient_norm > subject_of(q)->clip;
        nanosleep(&pause, NULL);
        if (q->kill_at > 0 && e->step == (uint64_t)q->kill_at) raise(SIGKILL);
    }
    if (e->kind != SLUICE_EVENT_END) return;
    o->end = *e;
    snprintf(o->weights, sizeof o->weights, "%s", e->weights_sha256);
    snprintf(o->state, sizeof o->state, "%s", e->state_sha256);
}

static sluice_status rank_main(void *user, sluice_world *world)
{
    const run_request *q = user;
    sluice_config *config = NULL;
    sluice_job_options options;
    sluice_job_options_init(&options);
    options.event = on_event;
    options.user = user;
    options.world = world;
    options.resume = q->resume;
    sluice_status st = configure(q, &config);
    if (st == SLUICE_OK) st = sluice_job_train(config, &options);
    if (config != NULL) sluice_config_destroy(config);
    return st;
}

sluice_status matrix_run(const run_request *q)
{
    sluice_launch_options launch;
    sluice_launch_options_init(&launch);
    launch.ranks = q->s.ranks;
    memset(q->out, 0, sizeof *q->out);
    return sluice_launch(&launch, rank_main, (void *)q);
}

/* ---- the formulas ---- */

static bool read_model(model *m)
{
    sluice_graph *g = NULL;
    sl_model_info info;
    sl_model_options o = { .type = "gpt2",
                           .batch = 1,
                           .layers = 4,
                           .heads = 2,
                           .width = 32,
                           .context = 16,
                           .vocabulary = 256,
                           .dropout = 0.1,
                           .norm_epsilon = 1e-5 };
    *m = (model){ .last = -1, .tied = -1 };
    bool ok = sluice_graph_create(&g) == SLUICE_OK && sl_model_build(g, &o, &info) == SLUICE_OK &&
              sl_graph_finish(g) == SLUICE_OK && g->layer_count <= MATRIX_MAX_LAYERS;
    for (int i = 0; ok && i < g->layer_count; i++) {
        m->size[i] = g->layers[i].element_count;
        m->all += m->size[i];
        if (m->size[i] > 0 && g->layers[i].node_count == 0) m->tied = i;
        if (m->size[i] > 0 && g->layers[i].node_count > 0) m->last = i;
    }
    m->layers = ok ? g->layer_count : 0;
    sluice_graph_destroy(g);
    return ok;
}

/* owned[layer][rank]: cut at 1,024 elements; `layer` and the tail of `block` give the odd leaves to who has least. */
static void cut_even(int64_t rest, int ranks, const int64_t *load, int64_t *share)
{
    int64_t leaves = (rest + 1023) / 1024, given = 0, sorted[MAX_RANKS];
    bool more[MAX_RANKS] = { false };
    for (int r = 0; r < ranks; r++) sorted[r] = load[r];
    for (int64_t k = 0; k < leaves % ranks; k++) {
        int least = -1;
        for (int r = 0; r < ranks; r++)
            if (!more[r] && (least < 0 || sorted[r] < sorted[least])) least = r;
        more[least] = true;
    }
    for (int r = 0; r < ranks; r++) {
        share[r] = (leaves / ranks + more[r]) * 1024;
        if (given + share[r] > rest) share[r] = rest - given;
        given += share[r];
    }
}

static void cut_model(const model *m, const setting *s, int64_t owned[MATRIX_MAX_LAYERS][MAX_RANKS])
{
    int64_t load[MAX_RANKS] = { 0 };
    bool done[MATRIX_MAX_LAYERS] = { false };
    for (int k = 0; k < m->layers; k++) {
        int i = k, least = 0;
        if (s->partition == 2) { /* owner: the largest layer that is left, to who has least */
            i = -1;
            for (int c = 0; c < m->layers; c++)
                if (!done[c] && (i < 0 || m->size[c] > m->size[i])) i = c;
            done[i] = true;
        }
        int64_t rounds = s->partition == 1 ? m->size[i] / (BLOCK * s->ranks) : 0, share[MAX_RANKS] = { 0 };
        for (int r = 1; r < s->ranks; r++)
            if (load[r] < load[least]) least = r;
        if (s->partition == 2)
            share[least] = m->size[i];
        else
            cut_even(m->size[i] - rounds * BLOCK * s->ranks, s->ranks, load, share);
        for (int r = 0; r < s->ranks; r++) load[r] += owned[i][r] = share[r] + rounds * BLOCK;
    }
}

typedef struct numbers {
    uint64_t parameters, gradients, optimizer, to_device, to_host, gather, reduce;
} numbers;

/* Layers whose state is on the host: all, or from the last one up until half of the elements are there. */
static void host_layers(const model *m, const setting *s, bool *host)
{
    int64_t taken = 0;
    for (int i = m->layers - 1; i >= 0; i--) {
        host[i] = s->offload != NOTHING && (s->offload != HALF || (double)taken < 0.5 * (double)m->all);
        if (host[i]) taken += m->size[i];
    }
}

/* One layer's part in what one rank keeps on its device: weight, gradient, the rest of the master and 8 bytes of
 * moments. Sums over several micro-batches of a rank are 4 bytes of each element it owns: at stages 0 and 1 beside the
 * whole gradient, otherwise instead of it. An update on the host keeps only such sums on the device. */
static void add_kept(const mode *w, const setting *s, int64_t size, int64_t shard, bool host, numbers *n)
{
    bool several = s->ranks > 1, summed = GLOBAL_MICRO / s->ranks > 1;
    uint64_t all = (uint64_t)size, own = several ? (uint64_t)shard : all, sums = summed ? 4 * own : 0;
    if (s->offload != OPTIMIZER_AND_PARAMETERS) n->parameters += w->weight * (several && s->stage == 3 ? own : all);
    if (host) {
        n->gradients += sums;
        return;
    }
    n->optimizer += (w->rest + 8) * (several && s->stage >= 1 ? own : all);
    n->gradients += several && s->stage <= 1 ? w->gradient * all + sums : summed ? sums : w->gradient * own;
}

static void expect_kept(const mode *w, const model *m, const setting *s, numbers *n)
{
    int64_t owned[MATRIX_MAX_LAYERS][MAX_RANKS] = { { 0 } };
    bool host[MATRIX_MAX_LAYERS];
    cut_model(m, s, owned);
    host_layers(m, s, host);
    for (int r = 0; r < s->ranks; r++) {
        numbers one = { 0 };
        for (int i = 0; i < m->layers; i++) add_kept(w, s, m->size[i], owned[i][r], host[i], &one);
        if (one.parameters > n->parameters) n->parameters = one.parameters;
        if (one.gradients > n->gradients) n->gradients = one.gradients;
        if (one.optimizer > n->optimizer) n->optimizer = one.optimizer;
    }
}

/* How often a layer is fetched: for forward and for backward, the last one once, the tied one for each use. */
static uint64_t uses_of(const model *m, int layer)
{
    return layer == m->tied ? 3 : layer == m->last ? 1 : 2;
}

/* Sums over ranks of what a step sends and moves. */
static void expect_moved(const mode *w, const model *m, const setting *s, numbers *n)
{
    uint64_t ranks = (uint64_t)s->ranks, micro = GLOBAL_MICRO / ranks, copies = s->stage == 0 ? ranks : 1;
    uint64_t fetched = 0, on_host = 0, all = (uint64_t)m->all;
    bool host[MATRIX_MAX_LAYERS];
    host_layers(m, s, host);
    for (int i = 0; i < m->layers; i++) {
        fetched += uses_of(m, i) * (uint64_t)m->size[i] * w->weight;
        if (host[i]) on_host += (uint64_t)m->size[i];
    }
    n->reduce = micro * w->gradient * all * (ranks - 1);
    n->gather =
        s->stage == 3 ? micro * fetched * (ranks - 1) : (s->stage == 0 ? w->gradient : w->weight) * all * (ranks - 1);
    n->to_host = copies * w->gradient * on_host;
    n->to_device = s->offload == OPTIMIZER_AND_PARAMETERS ? micro * fetched * (s->stage == 3 ? 1 : ranks)
                                                          : copies * w->weight * on_host;
    if (on_host > 0) n->to_host += ranks * sizeof(sl_norm_result); /* put together on the device */
}

/* Sums that leaves [first, end) make: those below the node of `leaves` leaves from `low` on that hold nothing else, as
 * large as they come. */
static uint64_t nodes_of(int64_t low, int64_t leaves, int64_t first, int64_t end)
{
    if (low + leaves <= first || low >= end) return 0;
    if (low >= first && low + leaves <= end) return 1;
    return nodes_of(low, leaves / 2, first, end) + nodes_of(low + leaves / 2, leaves / 2, first, end);
}

/* Bytes of what ranks tell each other of the norm: 8 for each leaf of a layer, or where each rank has one run of them
 * 16 for each sum. `before`: leaves of the layers before. */
static uint64_t norm_bytes(const setting *s, int64_t before, int64_t size, const int64_t *owned)
{
    uint64_t nodes = 0;
    if (s->stage == 0) return 0;
    if (s->partition == 1) return 8 * (((uint64_t)size + 1023) / 1024);
    for (int r = 0; r < s->ranks; before += (owned[r] + 1023) / 1024, r++)
        nodes += nodes_of(0, 4096, before, before + (owned[r] + 1023) / 1024);
    return 16 * nodes;
}

/* Sums over ranks of one layer's way through the host where ranks meet there alone: each rank's part of a collective
 * goes down, and what came of it goes up again to whoever gets it. */
static void add_staged(const mode *w, const setting *s, uint64_t size, bool host, numbers *n)
{
    uint64_t ranks = (uint64_t)s->ranks, micro = GLOBAL_MICRO / ranks;
    uint64_t gradient = w->gradient * size;
    bool in_place = micro == 1 && s->stage <= 1 && !host; /* the sum replaces the whole gradient that is kept */
    n->to_host += micro * ranks * gradient;
    if (micro > 1) n->to_host += micro * 4 * size; /* sums go on from micro-batch to micro-batch */
    n->to_device += micro > 1 ? micro * 4 * size : in_place ? ranks * gradient : gradient;
    if (s->stage == 0) n->to_host += gradient, n->to_device += ranks * gradient;
    if ((s->stage != 1 && s->stage != 2) || s->offload == OPTIMIZER_AND_PARAMETERS) return;
    n->to_host += w->weight * size, n->to_device += ranks * w->weight * size; /* the new weights */
}

static void expect_staged(const mode *w, const model *m, const setting *s, numbers *n)
{
    uint64_t ranks = (uint64_t)s->ranks, micro = GLOBAL_MICRO / ranks, fetched = 0;
    int64_t owned[MATRIX_MAX_LAYERS][MAX_RANKS] = { { 0 } }, leaves = 0;
    bool host[MATRIX_MAX_LAYERS];
    if (s->ranks == 1) return;
    host_layers(m, s, host);
    cut_model(m, s, owned);
    for (int i = 0; i < m->layers; leaves += (m->size[i] + 1023) / 1024, i++) {
        uint64_t norm = norm_bytes(s, leaves, m->size[i], owned[i]);
        fetched += uses_of(m, i) * (uint64_t)m->size[i] * w->weight;
        add_staged(w, s, (uint64_t)m->size[i], host[i], n);
        n->to_host += norm, n->to_device += ranks * norm;
    }
    if (s->stage == 3) n->to_host += micro * fetched, n->to_device += micro * ranks * fetched;
}

/* ---- a run and its formulas ---- */

static void check_number(const char *what, const mode *w, const setting *s, uint64_t got, uint64_t expected)
{
    if (got == expected) return;
    test_fail(__FILE__, __LINE__,
              "%s, %d ranks, stage %d, on the host: %s, partition %s, recompute %d: %s is %llu, not %llu", w->name,
              s->ranks, s->stage, offload_names[s->offload], partition_names[s->partition], s->recompute, what,
              (unsigned long long)got, (unsigned long long)expected);
}

static void check_event(const mode *w, const setting *s, const numbers *n, const sluice_event *e, bool counted)
{
    check_number(counted ? "counted gather" : "gather", w, s, e->comm_gather, n->gather);
    check_number(counted ? "counted reduce" : "reduce", w, s, e->comm_reduce, n->reduce);
    check_number(counted ? "counted to device" : "to device", w, s, e->moved_to_device, n->to_device);
    check_number(counted ? "counted to host" : "to host", w, s, e->moved_to_host, n->to_host);
}

static void check_plan(const mode *w, const setting *s, const numbers *n, const sluice_event *plan)
{
    check_number("parameters kept", w, s, plan->state_parameters, n->parameters);
    check_number("gradients kept", w, s, plan->state_gradients, n->gradients);
    if (!w->compact) check_number("optimizer state kept", w, s, plan->state_optimizer, n->optimizer);
    check_event(w, s, n, plan, false);
}

static void expect_all(const mode *w, const model *m, const setting *s, bool on_gpu, numbers *n)
{
    *n = (numbers){ 0 };
    expect_kept(w, m, s, n);
    expect_moved(w, m, s, n);
    if (on_gpu) expect_staged(w, m, s, n);
}

/* What was counted is what was planned. */
static void planned_numbers(const sluice_event *plan, numbers *n)
{
    *n = (numbers){ .gather = plan->comm_gather,
                    .reduce = plan->comm_reduce,
                    .to_device = plan->moved_to_device,
                    .to_host = plan->moved_to_host };
}

static void check_run(const campaign *c, const mode *w, const setting *s)
{
    const outcome *o = c->out;
    bool gpt = c->subject == &matrix_subjects[MATRIX_GPT];
    int steps = c->subject->steps;
    numbers n;
    if (gpt) {
        expect_all(w, &c->m, s, strcmp(c->device, "cuda") == 0, &n);
        check_plan(w, s, &n, &o->plan);
        CHECK(w->skips ? o->skipped > 0 && o->skipped < steps / 2 : o->skipped == 0);
    } else {
        planned_numbers(&o->plan, &n);
    }
    check_event(w, s, &n, &o->end, true);
    check_number("device peak", w, s, o->end.peak.device, o->plan.peak.device);
    check_number("host peak", w, s, o->end.peak.host, o->plan.peak.host);
    CHECK_EQ(o->end.steps, steps);
    CHECK(o->skipped < steps);
    bool both = steps < 8 || o->clipped < steps; /* few steps need not show both */
    CHECK_THAT(o->clipped > 0 && both, "%s: %d of %d steps are clipped", c->subject->name, o->clipped, steps);
}

static void print_row(FILE *table, const mode *w, const setting *s, const outcome *o)
{
    if (table == NULL) return;
    fprintf(table, "| %s | %d | %d | %s | %s | %s | %.8s | %.8s | %llu | %llu | %llu | %llu |\n", w->name, s->ranks,
            s->stage, offload_names[s->offload], partition_names[s->partition], s->recompute ? "yes" : "no", o->weights,
            o->state, (unsigned long long)o->end.peak.device, (unsigned long long)o->end.peak.host,
            (unsigned long long)(o->end.comm_gather + o->end.comm_reduce),
            (unsigned long long)(o->end.moved_to_device + o->end.moved_to_host));
}

static void run_one(campaign *c, int k, const setting *s)
{
    const mode *w = &matrix_modes[k];
    run_request q = { *s, w, c->folder, NULL, c->device, c->out, c->subject, { NULL }, false, 0 };
    sluice_status st = matrix_run(&q);
    if (st != SLUICE_OK) {
        test_fail(__FILE__, __LINE__, "%s, %s, %d ranks, stage %d, on the host: %s, partition %s, recompute %d: %s",
                  c->subject->name, w->name, s->ranks, s->stage, offload_names[s->offload],
                  partition_names[s->partition], s->recompute, sluice_error());
        return;
    }
    if (c->runs[k]++ == 0) {
        memcpy(c->weights[k], c->out->weights, sizeof c->weights[k]);
        memcpy(c->state[k], c->out->state, sizeof c->state[k]);
    }
    CHECK_STR(c->out->weights, c->weights[k]);
    CHECK_STR(c->out->state, c->state[k]);
    check_run(c, w, s);
    print_row(c->table, w, s, c->out);
}

/* ---- which settings ---- */

enum { ALL = 3 * 4 * 4 * 3 * 2 };

static void setting_of(int index, int v[FACTORS])
{
    for (int f = FACTORS - 1; f >= 0; f--) {
        v[f] = index % factors[f].count;
        index /= factors[f].count;
    }
}

static setting make_setting(const int v[FACTORS])
{
    return (setting){ factors[0].values[v[0]], factors[1].values[v[1]], factors[2].values[v[2]],
                      factors[3].values[v[3]], factors[4].values[v[4]] };
}

typedef bool pair_table[FACTORS][4][FACTORS][4];

/* Pairs of values of two factors that a setting would be the first to show. */
static int new_pairs(const int v[FACTORS], pair_table seen, bool mark)
{
    int n = 0;
    for (int a = 0; a < FACTORS; a++)
        for (int b = a + 1; b < FACTORS; b++) {
            n += !seen[a][v[a]][b][v[b]];
            if (mark) seen[a][v[a]][b][v[b]] = true;
        }
    return n;
}

/* Index of the setting that shows most new pairs, or -1 when all are shown. */
static int next_of_cover(pair_table seen)
{
    int best = -1, most = 0, v[FACTORS];
    for (int i = 0; i < ALL; i++) {
        setting_of(i, v);
        int n = new_pairs(v, seen, false);
        if (n > most) most = n, best = i;
    }
    return best;
}

bool matrix_start(campaign *c, const char *device)
{
    return matrix_start_with(c, device, MATRIX_GPT);
}

bool matrix_start_with(campaign *c, const char *device, matrix_subject which)
{
    return matrix_start_of(c, device, &matrix_subjects[which]);
}

bool matrix_start_of(campaign *c, const char *device, const subject *s)
{
    *c = (campaign){ .device = device, .subject = s };
    snprintf(c->folder, sizeof c->folder, "%s", test_tmpdir());
    c->out = mmap(NULL, sizeof *c->out, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return c->out != MAP_FAILED && write_inputs(c->folder, c->subject) && read_model(&c->m);
}

void matrix_end(campaign *c)
{
    if (c->table != NULL) fclose(c->table);
    munmap(c->out, sizeof *c->out);
}

void matrix_run_all(campaign *c, int k)
{
    int v[FACTORS];
    for (int i = 0; i < ALL; i++) {
        setting_of(i, v);
        setting s = make_setting(v);
        run_one(c, k, &s);
    }
    CHECK_EQ(c->runs[k], ALL);
}

void matrix_run_cover(campaign *c, int k)
{
    pair_table seen = { { { { false } } } };
    int v[FACTORS];
    for (int i; (i = next_of_cover(seen)) >= 0;) {
        setting_of(i, v);
        new_pairs(v, seen, true);
        setting s = make_setting(v);
        run_one(c, k, &s);
    }
    CHECK(c->runs[k] >= 16 && c->runs[k] <= 40);
}

void matrix_run_some(campaign *c, int k, const setting *settings, int count)
{
    for (int i = 0; i < count; i++) run_one(c, k, &settings[i]);
    CHECK_EQ(c->runs[k], count);
}

/* ---- plans for a GPU ---- */

/* Rates do not matter: every setting says where things are. */
static const char machine_text[] =
    "{\"sluice_machine\": 1, \"cuda\": true, \"shared_memory\": false, \"copies_overlap\": true, \"gemm_flops\": "
    "1e13,\n"
    " \"vector_flops\": 1e13, \"device_bytes_per_second\": 1e12, \"update_bytes_per_second\": 1e11,\n"
    " \"to_device_bytes_per_second\": 5e10, \"to_host_bytes_per_second\": 5e10, \"comm_bytes_per_second\": 1e10,\n"
    " \"link_latency\": 1e-5, \"kernel_latency\": 3e-6, \"comm_latency\": 1e-5,\n"
    " \"device_bytes\": \"16GiB\", \"host_bytes\": \"64GiB\"}\n";

static sluice_status plan_one(const run_request *q, const char *machine)
{
    sluice_config *config = NULL;
    sluice_job_options options;
    sluice_job_options_init(&options);
    options.event = on_event;
    options.user = (void *)q;
    options.json = true;
    options.out = stdout;
    options.ranks = q->s.ranks;
    options.machine = machine;
    sluice_status st = configure(q, &config);
    if (st == SLUICE_OK) st = sluice_job_plan(config, &options);
    if (config != NULL) sluice_config_destroy(config);
    return st;
}

void matrix_plan_for_gpu(campaign *c, int k)
{
    char machine[4200];
    int v[FACTORS], stride = getenv("LONG") != NULL ? 1 : 7; /* 7 shares no factor with the counts of values */
    snprintf(machine, sizeof machine, "%s/machine.json", c->folder);
    FILE *f = fopen(machine, "w");
    REQUIRE(f != NULL);
    fputs(machine_text, f);
    fclose(f);
    for (int i = 0; i < ALL; i += stride) {
        setting_of(i, v);
        run_request q = {
            make_setting(v), &matrix_modes[k], c->folder, NULL, "cuda", c->out, NULL, { NULL }, false, 0
        };
        numbers n;
        REQUIRE_OK(plan_one(&q, machine));
        expect_all(q.mode, &c->m, &q.s, true, &n);
        check_plan(q.mode, &q.s, &n, &c->out->plan);
    }
}

/* matrix_test.c: the same bits, whatever is divided, moved or recomputed.
 *
 * One small transformer is trained for 20 steps of 4 micro-batches on {1, 2, 4} ranks x stage {0 .. 3} x what is on the
 * host x partition rule x recomputation, in fp32, bf16, fp16 with a loss scale that overflows now and then, and bf16
 * with compact moments. Every run of a precision must end with the same two hashes, and prove that it did what it says:
 * bytes kept, sent and moved equal the formulas below, which know nothing of the planner, and the observed peak is the
 * predicted one. A pairwise cover runs always, all 288 of each with LONG=1, which then also prints the tables of
 * docs/exactness.md to the file named by MATRIX_TABLE. */
#include <sys/mman.h>

#include "core/bytes.h"
#include "sluice.h"
#include "test.h"
#include "train/config.h"
#include "train/job.h"

#define CLIP 1.8 /* some steps are above it, some below */

enum { STEPS = 20, GLOBAL_MICRO = 4, MAX_LAYERS = 16, MAX_RANKS = 4, BLOCK = 2048 };

typedef enum { NOTHING, OPTIMIZER, OPTIMIZER_AND_PARAMETERS, HALF } offload;

typedef struct setting {
    int ranks, stage, offload, partition, recompute;
} setting;

typedef struct factor {
    int values[4], count;
} factor;

static const factor factors[] = {
    { { 1, 2, 4 }, 3 }, { { 0, 1, 2, 3 }, 4 }, { { 0, 1, 2, 3 }, 4 }, { { 0, 1, 2 }, 3 }, { { 0, 1 }, 2 }
};
enum { FACTORS = sizeof factors / sizeof factors[0] };

static const char *const offload_names[] = { "nothing", "optimizer", "optimizer, parameters", "half the optimizer" };
static const char *const partition_names[] = { "layer", "block", "owner" };

/* A precision: how it is asked for, and the bytes an element then takes. */
typedef struct mode {
    const char *name;
    const char *sets[4];             /* NULL ends them */
    uint64_t weight, gradient, rest; /* rest: what the weight lacks of its fp32 master */
    bool skips;                      /* some steps overflow */
    bool compact;                    /* moments take less than 8 bytes, by blocks */
} mode;

static const mode modes[] = {
    { "fp32", { NULL }, 4, 4, 0, false, false },
    { "bf16", { "bf16.enabled=true", NULL }, 2, 2, 2, false, false },
    { "fp16",
      { "fp16={\"enabled\":true,\"initial_scale_power\":17,\"loss_scale_window\":3,\"hysteresis\":1}", NULL },
      2,
      2,
      4,
      true,
      false },
    { "compact", { "bf16.enabled=true", "zero_optimization.states=compact", NULL }, 2, 2, 2, false, true },
};
enum { MODES = sizeof modes / sizeof modes[0] };

/* What rank 0 of a run told, in memory shared with the parent. */
typedef struct outcome {
    sluice_event plan, end;
    char weights[65], state[65];
    int skipped, clipped; /* steps */
} outcome;

/* ---- one run ---- */

static const char config_text[] =
    "{ \"model\": {\"type\": \"gpt2\", \"layers\": 4, \"heads\": 2, \"width\": 32, \"context\": 16,"
    " \"vocabulary\": \"bytes\", \"dropout\": 0.1},\n"
    "  \"data\": {\"type\": \"text\", \"path\": \"%s/text\", \"validation\": 0},\n"
    "  \"steps\": %d, \"seed\": 5, \"threads\": 1, \"train_batch_size\": %d, \"train_micro_batch_size_per_gpu\": 1,\n"
    "  \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 3e-3, \"weight_decay\": 0.1}},\n"
    "  \"gradient_clipping\": %g, \"timeout_seconds\": 60, \"debug\": {\"guard\": true},\n"
    "  \"memory\": {\"device\": \"64MiB\", \"host\": \"64MiB\"} }\n";

static bool write_inputs(const char *folder)
{
    char path[4096], config[2048];
    snprintf(path, sizeof path, "%s/text", folder);
    FILE *f = fopen(path, "w");
    if (f == NULL) return false;
    for (int i = 0; i < 400; i++) fprintf(f, "line %d: the %d of %d\n", i, i * i % 97, i % 13);
    fclose(f);
    snprintf(path, sizeof path, "%s/config.json", folder);
    snprintf(config, sizeof config, config_text, folder, STEPS, GLOBAL_MICRO, CLIP);
    f = fopen(path, "w");
    if (f == NULL) return false;
    fputs(config, f);
    return fclose(f) == 0;
}

typedef struct run_request {
    setting s;
    const mode *mode;
    const char *folder, *extra; /* extra: one more assignment, or NULL */
    outcome *out;
} run_request;

static sluice_status configure(const run_request *q, sluice_config **out)
{
    static const char *const offloads[][2] = {
        { "none", "none" }, { "cpu", "none" }, { "cpu", "cpu" }, { "cpu", "none" }
    };
    char path[4096], set[8][128];
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
    snprintf(set[7], sizeof set[7], "%s", q->extra != NULL ? q->extra : "seed=5");
    for (int i = 0; i < 8; i++) SL_TRY(sluice_config_set(*out, set[i]));
    for (int i = 0; q->mode->sets[i] != NULL; i++) SL_TRY(sluice_config_set(*out, q->mode->sets[i]));
    return SLUICE_OK;
}

static void on_event(void *user, const sluice_event *e)
{
    outcome *o = user;
    if (e->kind == SLUICE_EVENT_PLAN) o->plan = *e;
    if (e->kind == SLUICE_EVENT_STEP) o->skipped += e->skipped, o->clipped += e->gradient_norm > CLIP;
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
    options.user = q->out;
    options.world = world;
    sluice_status st = configure(q, &config);
    if (st == SLUICE_OK) st = sluice_job_train(config, &options);
    if (config != NULL) sluice_config_destroy(config);
    return st;
}

static sluice_status run(const run_request *q)
{
    sluice_launch_options launch;
    sluice_launch_options_init(&launch);
    launch.ranks = q->s.ranks;
    memset(q->out, 0, sizeof *q->out);
    return sluice_launch(&launch, rank_main, (void *)q);
}

/* ---- the formulas ---- */

typedef struct model {
    int layers, last, tied; /* last: read by the last layer of forward alone */
    int64_t size[MAX_LAYERS];
    int64_t all;
} model;

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
              sl_graph_finish(g) == SLUICE_OK && g->layer_count <= MAX_LAYERS;
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

static void cut_model(const model *m, const setting *s, int64_t owned[MAX_LAYERS][MAX_RANKS])
{
    int64_t load[MAX_RANKS] = { 0 };
    bool done[MAX_LAYERS] = { false };
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
    int64_t owned[MAX_LAYERS][MAX_RANKS] = { { 0 } };
    bool host[MAX_LAYERS];
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

/* Sums over ranks of what a step sends and moves. A layer is fetched for forward and for backward, the last one once,
 * the tied one for each use. */
static void expect_moved(const mode *w, const model *m, const setting *s, numbers *n)
{
    uint64_t ranks = (uint64_t)s->ranks, micro = GLOBAL_MICRO / ranks, copies = s->stage == 0 ? ranks : 1;
    uint64_t fetched = 0, on_host = 0, all = (uint64_t)m->all;
    bool host[MAX_LAYERS];
    host_layers(m, s, host);
    for (int i = 0; i < m->layers; i++) {
        fetched += (uint64_t)m->size[i] * w->weight * (i == m->tied ? 3 : i == m->last ? 1 : 2);
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

/* ---- a run and its formulas ---- */

static void check_number(const char *what, const mode *w, const setting *s, uint64_t got, uint64_t expected)
{
    if (got == expected) return;
    test_fail(__FILE__, __LINE__,
              "%s, %d ranks, stage %d, on the host: %s, partition %s, recompute %d: %s is %llu, not %llu", w->name,
              s->ranks, s->stage, offload_names[s->offload], partition_names[s->partition], s->recompute, what,
              (unsigned long long)got, (unsigned long long)expected);
}

static void check_numbers(const mode *w, const setting *s, const model *m, const outcome *o)
{
    numbers n = { 0 };
    expect_kept(w, m, s, &n);
    expect_moved(w, m, s, &n);
    check_number("parameters kept", w, s, o->plan.state_parameters, n.parameters);
    check_number("gradients kept", w, s, o->plan.state_gradients, n.gradients);
    if (!w->compact) check_number("optimizer state kept", w, s, o->plan.state_optimizer, n.optimizer);
    const sluice_event *events[] = { &o->plan, &o->end };
    for (int k = 0; k < 2; k++) {
        check_number(k ? "counted gather" : "gather", w, s, events[k]->comm_gather, n.gather);
        check_number(k ? "counted reduce" : "reduce", w, s, events[k]->comm_reduce, n.reduce);
        check_number(k ? "counted to device" : "to device", w, s, events[k]->moved_to_device, n.to_device);
        check_number(k ? "counted to host" : "to host", w, s, events[k]->moved_to_host, n.to_host);
    }
    check_number("device peak", w, s, o->end.peak.device, o->plan.peak.device);
    check_number("host peak", w, s, o->end.peak.host, o->plan.peak.host);
    CHECK_EQ(o->end.steps, STEPS);
    CHECK(w->skips ? o->skipped > 0 && o->skipped < STEPS / 2 : o->skipped == 0);
    CHECK(o->clipped > 0 && o->clipped < STEPS);
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

typedef struct campaign {
    const char *folder;
    outcome *out;
    model m;
    char weights[MODES][65], state[MODES][65]; /* of the first run of each */
    int runs[MODES];
    FILE *table;
} campaign;

static void run_one(campaign *c, int k, const setting *s)
{
    const mode *w = &modes[k];
    run_request q = { *s, w, c->folder, NULL, c->out };
    sluice_status st = run(&q);
    if (st != SLUICE_OK) {
        test_fail(__FILE__, __LINE__, "%s, %d ranks, stage %d, on the host: %s, partition %s, recompute %d: %s",
                  w->name, s->ranks, s->stage, offload_names[s->offload], partition_names[s->partition], s->recompute,
                  sluice_error());
        return;
    }
    if (c->runs[k]++ == 0) {
        memcpy(c->weights[k], c->out->weights, sizeof c->weights[k]);
        memcpy(c->state[k], c->out->state, sizeof c->state[k]);
    }
    CHECK_STR(c->out->weights, c->weights[k]);
    CHECK_STR(c->out->state, c->state[k]);
    check_numbers(w, s, &c->m, c->out);
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

static bool start_campaign(campaign *c)
{
    *c = (campaign){ .folder = test_tmpdir() };
    c->out = mmap(NULL, sizeof *c->out, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return c->out != MAP_FAILED && write_inputs(c->folder) && read_model(&c->m);
}

static void end_campaign(campaign *c)
{
    if (c->table != NULL) fclose(c->table);
    munmap(c->out, sizeof *c->out);
}

static void run_all(campaign *c, int k)
{
    int v[FACTORS];
    for (int i = 0; i < ALL; i++) {
        setting_of(i, v);
        setting s = make_setting(v);
        run_one(c, k, &s);
    }
    CHECK_EQ(c->runs[k], ALL);
}

static void run_cover(campaign *c, int k)
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

TEST(every_way_to_divide_move_and_recompute_gives_the_same_bits)
{
    campaign c;
    REQUIRE(start_campaign(&c));
    if (getenv("MATRIX_TABLE") != NULL) c.table = fopen(getenv("MATRIX_TABLE"), "w");
    for (int k = 0; k < MODES; k++) {
        if (getenv("LONG") != NULL)
            run_all(&c, k);
        else
            run_cover(&c, k);
        for (int other = 0; other < k; other++) CHECK(strcmp(c.weights[k], c.weights[other]) != 0);
    }
    end_campaign(&c);
}

/* The hashes see a single weight that is off by one bit: weights of one run, once as they are and once with a bit
 * turned in the last value of the file. */
TEST(one_perturbed_weight_gives_other_hashes)
{
    campaign c;
    char set[256], path[4096];
    char weights[2][65];
    REQUIRE(start_campaign(&c));
    snprintf(set, sizeof set, "save=%s/w.safetensors", c.folder);
    run_request q = { { 2, 2, NOTHING, 0, 0 }, &modes[0], c.folder, set, c.out };
    REQUIRE_OK(run(&q));
    snprintf(path, sizeof path, "%s/w.safetensors", c.folder);
    snprintf(set, sizeof set, "load=%s/w.safetensors", c.folder);
    for (int k = 0; k < 2; k++) {
        FILE *f = fopen(path, "r+b");
        REQUIRE(f != NULL && fseek(f, -4, SEEK_END) == 0);
        int low = fgetc(f);
        REQUIRE(fseek(f, -4, SEEK_END) == 0 && (k == 0 || fputc(low ^ 1, f) != EOF));
        REQUIRE(fclose(f) == 0);
        REQUIRE_OK(run(&q));
        memcpy(weights[k], c.out->weights, sizeof weights[k]);
    }
    CHECK(strcmp(weights[0], weights[1]) != 0);
    end_campaign(&c);
}

/* Tiles belong to the model, so they have hashes of their own; over ranks and stages these stay the same too. */
TEST(a_tiled_model_has_the_same_bits_on_any_number_of_ranks)
{
    campaign c;
    char weights[65];
    const setting settings[] = {
        { 1, 0, NOTHING, 0, 0 }, { 2, 3, OPTIMIZER_AND_PARAMETERS, 1, 1 }, { 4, 1, HALF, 2, 0 }, { 2, 2, NOTHING, 0, 0 }
    };
    REQUIRE(start_campaign(&c));
    for (int i = 0; i < 4; i++) {
        run_request q = { settings[i], &modes[0], c.folder, "memory.tile_bytes=6000", c.out };
        REQUIRE_OK(run(&q));
        if (i == 0) memcpy(weights, c.out->weights, sizeof weights);
        CHECK_STR(c.out->weights, weights);
        CHECK_EQ(c.out->end.peak.device, c.out->plan.peak.device);
    }
    end_campaign(&c);
}

/* LAMB scales each parameter's step by norms of the whole parameter: whole layers to ranks, and the bits stay. */
TEST(an_optimizer_with_norms_of_its_own_has_the_same_bits_on_any_number_of_ranks)
{
    campaign c;
    char weights[65];
    const setting settings[] = { { 1, 0, NOTHING, 2, 0 }, { 2, 2, NOTHING, 2, 0 }, { 4, 3, OPTIMIZER, 2, 1 } };
    REQUIRE(start_campaign(&c));
    for (int i = 0; i < 3; i++) {
        run_request q = { settings[i], &modes[0], c.folder, "optimizer={\"type\":\"LAMB\",\"params\":{\"lr\":0.01}}",
                          c.out };
        REQUIRE_OK(run(&q));
        if (i == 0) memcpy(weights, c.out->weights, sizeof weights);
        CHECK_STR(c.out->weights, weights);
    }
    end_campaign(&c);
}

/* targets_test.c: micro-batches weigh by their valid targets: a step learns from the mean over the targets of all its
 * micro-batches, however they are cut, on any number of ranks. */
#include <sys/mman.h>

#include "core/status.h"
#include "support/random_model.h"
#include "test.h"
#include "train/engine.h"

enum { ROWS = 8, CONTEXT = 4, VOCABULARY = 7, WIDTH = 5, TOKENS = ROWS * CONTEXT, PARTS = 4, MOST_PARTS = 8 };

/* How the loss is computed. */
enum { PLAIN, FUSED, HALVED, KINDS };

/* The samples of one step. */
typedef struct samples {
    int32_t ids[TOKENS], targets[TOKENS];
} samples;

/* Ids of rows in a fixed order; targets where `valid` of the row has a bit. */
static void make_samples(const uint8_t valid[ROWS], samples *s)
{
    for (int i = 0; i < TOKENS; i++) {
        bool counts = (valid[i / CONTEXT] >> (i % CONTEXT) & 1) != 0;
        s->ids[i] = (i * 5 + i / 3) % VOCABULARY;
        s->targets[i] = counts ? (i * 3 + 1) % VOCABULARY : -1;
    }
}

/* Micro-batches of two rows with 3, 8, 0 and 1 targets. */
static const uint8_t uneven[ROWS] = { 0x1, 0x6, 0xf, 0xf, 0x0, 0x0, 0x0, 0x8 };
static const uint8_t whole[ROWS] = { 0xf, 0xf, 0xf, 0xf, 0xf, 0xf, 0xf, 0xf };
/* Three in every two rows. */
static const uint8_t even[ROWS] = { 0x3, 0x1, 0x0, 0x7, 0x5, 0x8, 0x9, 0x2 };

static sluice_status make_graph(int kind, int64_t rows, sluice_graph **out)
{
    const sluice_init some = { SLUICE_INIT_NORMAL, 0.5f };
    SL_TRY(sluice_graph_create(out));
    sluice_graph *g = *out;
    sluice_value ids = sluice_input(g, "ids", SLUICE_I32, 2, (int64_t[]){ rows, CONTEXT });
    sluice_value targets = sluice_input(g, "targets", SLUICE_I32, 2, (int64_t[]){ rows, CONTEXT });
    sluice_layer(g, "table");
    sluice_value table = sluice_parameter(g, "table", 2, (int64_t[]){ VOCABULARY, WIDTH }, some);
    sluice_value x = sluice_embedding(g, ids, table);
    sluice_layer(g, "head");
    sluice_value head = sluice_parameter(g, "head", 2, (int64_t[]){ VOCABULARY, WIDTH }, some);
    sluice_value loss = kind == PLAIN
                            ? sluice_cross_entropy(g, sluice_linear_with(g, x, head, SLUICE_NONE, false), targets, -1)
                            : sluice_linear_cross_entropy(g, x, head, targets, -1);
    if (kind == HALVED) loss = sluice_scale(g, loss, 0.5f);
    sluice_set_loss(g, loss);
    return sluice_graph_check(g);
}

typedef struct fixture {
    sluice_graph *g;
    sluice_engine *e;
    const samples *s;
    sluice_array arrays[MOST_PARTS][2];
    sluice_batch batches[MOST_PARTS]; /* this rank's */
} fixture;

static void small_options(sluice_options *o)
{
    sluice_options_init(o);
    sluice_optimizer_init(&o->optimizer, SLUICE_SGD);
    o->optimizer.lr = 0.5;
    o->seed = 3;
    o->threads = 1;
    o->accumulation_steps = PARTS;
    o->device_bytes = o->host_bytes = (uint64_t)1 << 24;
}

/* The samples cut into equal micro-batches, of which this rank has every N-th. */
static sluice_status open_fixture(int kind, const sluice_options *o, const samples *s, fixture *f)
{
    int ranks = sluice_world_size(o->world), parts = o->accumulation_steps * ranks, rows = ROWS / parts;
    *f = (fixture){ .s = s };
    for (int m = 0; m < o->accumulation_steps; m++) {
        size_t first = (size_t)(m * ranks + sluice_world_rank(o->world)) * (size_t)rows * CONTEXT;
        size_t bytes = (size_t)rows * CONTEXT * sizeof(int32_t);
        f->arrays[m][0] = (sluice_array){ "ids", s->ids + first, bytes };
        f->arrays[m][1] = (sluice_array){ "targets", s->targets + first, bytes };
        f->batches[m] = (sluice_batch){ f->arrays[m], 2 };
    }
    SL_TRY(make_graph(kind, rows, &f->g));
    return sluice_engine_create(f->g, o, &f->e);
}

static void close_fixture(fixture *f)
{
    sluice_engine_destroy(f->e);
    sluice_graph_destroy(f->g);
}

typedef struct weights {
    float table[VOCABULARY * WIDTH], head[VOCABULARY * WIDTH];
} weights;

static void get_weights(sluice_engine *e, weights *w)
{
    CHECK_EQ(sluice_get_parameter(e, "table", w->table, sizeof w->table), SLUICE_OK);
    CHECK_EQ(sluice_get_parameter(e, "head", w->head, sizeof w->head), SLUICE_OK);
}

/* ---- the mean over all targets, in double ---- */

/* Softmax of the logits of one token; returns its loss. */
static double token_loss(const weights *w, int32_t id, int32_t target, double p[VOCABULARY])
{
    double sum = 0;
    for (int v = 0; v < VOCABULARY; v++) {
        double z = 0;
        for (int i = 0; i < WIDTH; i++) z += (double)w->table[id * WIDTH + i] * (double)w->head[v * WIDTH + i];
        p[v] = exp(z);
        sum += p[v];
    }
    for (int v = 0; v < VOCABULARY; v++) p[v] /= sum;
    return -log(p[target]);
}

/* One step of gradient descent; returns the mean loss. */
static double descend(weights *w, const samples *s, double lr)
{
    weights before = *w;
    double p[VOCABULARY], loss = 0, count = 0;
    for (int i = 0; i < TOKENS; i++) count += s->targets[i] >= 0;
    for (int i = 0; i < TOKENS; i++) {
        int32_t id = s->ids[i], target = s->targets[i];
        if (target < 0) continue;
        loss += token_loss(&before, id, target, p) / count;
        p[target] -= 1;
        for (int v = 0; v < VOCABULARY; v++)
            for (int k = 0; k < WIDTH; k++) {
                w->head[v * WIDTH + k] -= (float)(lr * p[v] * (double)before.table[id * WIDTH + k] / count);
                w->table[id * WIDTH + k] -= (float)(lr * p[v] * (double)before.head[v * WIDTH + k] / count);
            }
    }
    return loss;
}

static double distance(const weights *a, const weights *b)
{
    double most = 0;
    for (int i = 0; i < VOCABULARY * WIDTH; i++) {
        most = fmax(most, fabs((double)a->table[i] - (double)b->table[i]));
        most = fmax(most, fabs((double)a->head[i] - (double)b->head[i]));
    }
    return most;
}

static void check_step(int kind, int parts, const samples *s)
{
    sluice_options o;
    fixture f;
    weights w, expected;
    double loss = 0, factor = kind == HALVED ? 0.5 : 1;
    small_options(&o);
    o.accumulation_steps = parts;
    CHECK_EQ(open_fixture(kind, &o, s, &f), SLUICE_OK);
    get_weights(f.e, &expected);
    double mean = descend(&expected, s, o.optimizer.lr * factor);
    CHECK_EQ(sluice_train_step(f.e, f.batches, &loss), SLUICE_OK);
    get_weights(f.e, &w);
    CHECK_THAT(distance(&w, &expected) < 1e-6, "kind %d in %d parts: weights differ by %g", kind, parts,
               distance(&w, &expected));
    CHECK_NEAR(loss, factor * mean, 1e-6);
    close_fixture(&f);
}

TEST(a_step_learns_from_the_mean_over_the_targets_of_all_its_micro_batches)
{
    samples s;
    make_samples(uneven, &s);
    for (int kind = 0; kind < KINDS; kind++)
        for (int parts = 1; parts <= ROWS; parts *= 2) check_step(kind, parts, &s);
}

/* ---- what the bits are ---- */

typedef struct hashes {
    char weights[65], state[65];
    double loss;
    uint64_t skipped;
} hashes;

static sluice_status take_hashes(sluice_engine *e, hashes *h)
{
    h->skipped = sluice_skipped_steps(e);
    return sluice_hash(e, h->weights, h->state);
}

/* Two steps by forward and backward, told or not. */
static void step_by_step(int kind, const sluice_options *o, const samples *s, bool told, hashes *h)
{
    fixture f;
    double loss;
    uint64_t counts[MOST_PARTS] = { 0 };
    CHECK_EQ(open_fixture(kind, o, s, &f), SLUICE_OK);
    for (int i = 0; i < TOKENS; i++) counts[i / (TOKENS / o->accumulation_steps)] += s->targets[i] >= 0;
    for (int step = 0; step < 2; step++) {
        if (told) CHECK_EQ(sluice_set_targets(f.e, counts), SLUICE_OK);
        for (int m = 0; m < o->accumulation_steps; m++) {
            CHECK_EQ(sluice_forward(f.e, &f.batches[m], &loss), SLUICE_OK);
            CHECK_EQ(sluice_backward(f.e), SLUICE_OK);
        }
        CHECK_EQ(sluice_step(f.e), SLUICE_OK);
    }
    CHECK_EQ(take_hashes(f.e, h), SLUICE_OK);
    close_fixture(&f);
}

static void whole_steps(int kind, const sluice_options *o, const samples *s, hashes *h)
{
    fixture f;
    CHECK_EQ(open_fixture(kind, o, s, &f), SLUICE_OK);
    for (int step = 0; step < 2; step++) CHECK_EQ(sluice_train_step(f.e, f.batches, &h->loss), SLUICE_OK);
    CHECK_EQ(take_hashes(f.e, h), SLUICE_OK);
    close_fixture(&f);
}

/* A scale that is no power of two and parts that do not divide it: every other way to round shows. */
TEST(equal_counts_give_the_bits_of_equal_weights)
{
    sluice_options o;
    hashes told = { .loss = 0 }, untold = { .loss = 0 }, by_itself = { .loss = 0 };
    samples s;
    small_options(&o);
    o.precision = SLUICE_F16;
    o.loss_scale.fixed = 1000.1;
    make_samples(whole, &s);
    for (int kind = 0; kind < KINDS; kind++) {
        step_by_step(kind, &o, &s, true, &told);
        step_by_step(kind, &o, &s, false, &untold);
        whole_steps(kind, &o, &s, &by_itself);
        CHECK_STR(told.weights, untold.weights);
        CHECK_STR(by_itself.weights, untold.weights);
    }
}

TEST(seeds_are_quotients_rounded_once)
{
    static const uint64_t counts[PARTS] = { 3, 8, 0, 1 }, same[PARTS] = { 3, 3, 3, 3 };
    sluice_options o;
    fixture f;
    samples s;
    small_options(&o);
    make_samples(uneven, &s);
    CHECK_EQ(open_fixture(PLAIN, &o, &s, &f), SLUICE_OK);
    CHECK_EQ(sluice_set_targets(f.e, counts), SLUICE_OK);
    CHECK_EQ(sluice_forward(f.e, &f.batches[0], &(double){ 0 }), SLUICE_OK);
    CHECK(f.e->context.seed_gradient == (float)(3.0 / 12.0));
    CHECK(sl_engine_mean_loss(f.e, (double[]){ 1, 2, (double)NAN, 4 }, PARTS) == (3 * 1 + 8 * 2 + 1 * 4) / 12.0);
    CHECK_EQ(sluice_backward(f.e), SLUICE_OK);
    CHECK_EQ(sluice_forward(f.e, &f.batches[1], &(double){ 0 }), SLUICE_OK);
    CHECK(f.e->context.seed_gradient == (float)(8.0 / 12.0));
    CHECK_EQ(sluice_backward(f.e), SLUICE_OK);
    CHECK_EQ(sluice_forward(f.e, &f.batches[2], &(double){ 0 }), SLUICE_OK);
    CHECK(f.e->context.seed_gradient == 0.0f);
    sl_engine_abandon_step(f.e);
    close_fixture(&f);
    make_samples(even, &s);
    CHECK_EQ(open_fixture(PLAIN, &o, &s, &f), SLUICE_OK);
    CHECK_EQ(sluice_set_targets(f.e, same), SLUICE_OK);
    CHECK_EQ(sluice_forward(f.e, &f.batches[0], &(double){ 0 }), SLUICE_OK);
    CHECK(f.e->context.seed_gradient == 0.25f);
    close_fixture(&f);
}

/* Of 49 parts the quotient of counts is no 49th of the scale, and for this scale the two round to different floats. */
TEST(equal_counts_seed_with_the_scale_divided_by_the_parts)
{
    enum { MANY = 49 };
    const double scale = MANY * (2 - 1.0 / (1 << 24));
    uint64_t counts[MANY];
    sluice_options o;
    fixture f = { .g = NULL };
    samples s;
    double loss;
    small_options(&o);
    o.precision = SLUICE_F16;
    o.loss_scale.fixed = scale;
    o.accumulation_steps = MANY;
    make_samples(whole, &s);
    for (int i = 0; i < MANY; i++) counts[i] = CONTEXT;
    f.arrays[0][0] = (sluice_array){ "ids", s.ids, CONTEXT * sizeof(int32_t) };
    f.arrays[0][1] = (sluice_array){ "targets", s.targets, CONTEXT * sizeof(int32_t) };
    f.batches[0] = (sluice_batch){ f.arrays[0], 2 };
    CHECK_EQ(make_graph(PLAIN, 1, &f.g), SLUICE_OK);
    CHECK_EQ(sluice_engine_create(f.g, &o, &f.e), SLUICE_OK);
    CHECK_EQ(sluice_set_targets(f.e, counts), SLUICE_OK);
    CHECK_EQ(sluice_forward(f.e, &f.batches[0], &loss), SLUICE_OK);
    CHECK((float)(scale / MANY) != (float)(scale * (1.0 / MANY)));
    CHECK(f.e->context.seed_gradient == (float)(scale / MANY));
    close_fixture(&f);
}

TEST(telling_a_step_and_having_it_count_are_the_same)
{
    sluice_options o;
    hashes told = { .loss = 0 }, by_itself = { .loss = 0 };
    samples s;
    small_options(&o);
    make_samples(uneven, &s);
    for (int kind = 0; kind < KINDS; kind++) {
        step_by_step(kind, &o, &s, true, &told);
        whole_steps(kind, &o, &s, &by_itself);
        CHECK_STR(told.weights, by_itself.weights);
    }
}

/* The same weights as a step of the first half alone, which has every target; in fp16, where a NaN would skip steps. */
TEST(a_micro_batch_without_targets_contributes_nothing)
{
    static const uint8_t half[ROWS] = { 0xf, 0xf, 0xf, 0xf, 0, 0, 0, 0 };
    static const sluice_dtype precisions[] = { SLUICE_F32, SLUICE_BF16, SLUICE_F16 };
    samples s;
    make_samples(half, &s);
    for (int kind = 0; kind < KINDS; kind++)
        for (int p = 0; p < 3; p++) {
            sluice_options o;
            fixture f;
            hashes both = { .loss = 0 }, alone = { .loss = 0 };
            small_options(&o);
            o.precision = precisions[p];
            o.loss_scale.initial_power = 4;
            o.accumulation_steps = 2;
            whole_steps(kind, &o, &s, &both);
            /* a graph of the same batch size, in which the second micro-batch does not exist */
            CHECK_EQ(open_fixture(kind, &o, &s, &f), SLUICE_OK);
            close_fixture(&f);
            o.accumulation_steps = 1;
            f = (fixture){ .s = &s };
            f.arrays[0][0] = (sluice_array){ "ids", s.ids, sizeof s.ids / 2 };
            f.arrays[0][1] = (sluice_array){ "targets", s.targets, sizeof s.targets / 2 };
            f.batches[0] = (sluice_batch){ f.arrays[0], 2 };
            CHECK_EQ(make_graph(kind, ROWS / 2, &f.g), SLUICE_OK);
            CHECK_EQ(sluice_engine_create(f.g, &o, &f.e), SLUICE_OK);
            for (int step = 0; step < 2; step++) CHECK_EQ(sluice_train_step(f.e, f.batches, &alone.loss), SLUICE_OK);
            CHECK_EQ(take_hashes(f.e, &alone), SLUICE_OK);
            CHECK_STR(both.weights, alone.weights);
            CHECK_EQ(both.skipped, 0);
            CHECK(both.loss == alone.loss);
            close_fixture(&f);
        }
}

/* ---- ranks ---- */

typedef struct scenario {
    sluice_options options;
    samples s;
    hashes *out; /* shared with the ranks */
} scenario;

/* Steps with the samples, then with as many targets in every micro-batch. */
static sluice_status rank_body(void *user, sluice_world *world)
{
    const scenario *c = user;
    sluice_options o = c->options;
    fixture f;
    hashes h = { .loss = 0 };
    o.world = world;
    o.accumulation_steps = PARTS / sluice_world_size(world);
    sluice_status st = open_fixture(FUSED, &o, &c->s, &f);
    for (int step = 0; st == SLUICE_OK && step < 4; step++) st = sluice_train_step(f.e, f.batches, &h.loss);
    if (st == SLUICE_OK) st = take_hashes(f.e, &h);
    if (st == SLUICE_OK && sluice_world_rank(world) == 0) *c->out = h;
    close_fixture(&f);
    return st;
}

static void run_ranks(scenario *c, int ranks, int stage)
{
    sluice_launch_options l;
    sluice_launch_options_init(&l);
    l.ranks = ranks;
    c->options.stage = stage;
    memset(c->out, 0, sizeof *c->out);
    if (sluice_launch(&l, rank_body, c) != SLUICE_OK)
        test_fail(__FILE__, __LINE__, "%d ranks, stage %d: %s", ranks, stage, sluice_error());
}

TEST(ranks_and_stages_give_one_hash_with_unequal_micro_batches)
{
    static const sluice_dtype precisions[] = { SLUICE_F32, SLUICE_BF16, SLUICE_F16 };
    static const int runs[][2] = { { 2, 0 }, { 4, 1 }, { 2, 2 }, { 4, 3 }, { 2, 3 } };
    scenario c = { .out = mmap(NULL, sizeof(hashes), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0) };
    CHECK(c.out != MAP_FAILED);
    make_samples(uneven, &c.s);
    for (int p = 0; p < 3; p++) {
        small_options(&c.options);
        sluice_optimizer_init(&c.options.optimizer, SLUICE_ADAMW);
        c.options.precision = precisions[p];
        c.options.loss_scale.initial_power = 19; /* the first steps overflow */
        c.options.loss_scale.hysteresis = 1;
        run_ranks(&c, 1, 0);
        hashes one = *c.out;
        CHECK((one.skipped > 0) == (precisions[p] == SLUICE_F16));
        CHECK(one.skipped < 4);
        for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
            run_ranks(&c, runs[i][0], runs[i][1]);
            CHECK_STR(c.out->weights, one.weights);
            CHECK_STR(c.out->state, one.state);
            CHECK(c.out->loss == one.loss);
            CHECK_EQ(c.out->skipped, one.skipped);
        }
    }
    munmap(c.out, sizeof(hashes));
}

/* ---- data sets of the user's own ---- */

TEST(fitting_weighs_micro_batches_of_arrays_and_of_callbacks)
{
    sluice_options o;
    fixture f;
    samples s;
    hashes steps = { .loss = 0 }, fitted = { .loss = 0 };
    sluice_data *data;
    small_options(&o);
    make_samples(uneven, &s);
    whole_steps(FUSED, &o, &s, &steps);
    CHECK_EQ(open_fixture(FUSED, &o, &s, &f), SLUICE_OK);
    const sluice_array arrays[2] = { { "ids", s.ids, sizeof s.ids }, { "targets", s.targets, sizeof s.targets } };
    CHECK_EQ(sluice_data_from_arrays(arrays, 2, ROWS, false, 1, &data), SLUICE_OK);
    CHECK_EQ(sluice_fit(f.e, data, 2, &fitted.loss), SLUICE_OK);
    CHECK_EQ(take_hashes(f.e, &fitted), SLUICE_OK);
    CHECK_STR(fitted.weights, steps.weights);
    CHECK(fitted.loss == steps.loss);
    sluice_data_destroy(data);
    close_fixture(&f);
}

/* ---- refusals ---- */

TEST(a_step_that_must_be_told_says_so_and_nothing_changes)
{
    sluice_options o;
    fixture f;
    samples s;
    hashes before = { .loss = 0 }, after = { .loss = 0 };
    double loss = 0;
    small_options(&o);
    make_samples(even, &s);
    CHECK_EQ(open_fixture(FUSED, &o, &s, &f), SLUICE_OK);
    CHECK_EQ(take_hashes(f.e, &before), SLUICE_OK);
    CHECK_EQ(sluice_forward(f.e, &f.batches[0], &loss), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "3 of the micro-batch's 8 targets count");
    CHECK_CONTAINS(sluice_error(), "sluice_set_targets");
    CHECK_EQ(sluice_set_targets(f.e, (uint64_t[]){ 3, 3, 4, 3 }), SLUICE_OK);
    CHECK_EQ(sluice_train_step(f.e, f.batches, &loss), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "micro-batch 2 of step 1 has 3 targets in input \"targets\", and 4 were announced");
    CHECK_EQ(sluice_set_targets(f.e, (uint64_t[]){ 2, 3, 3, 3 }), SLUICE_OK);
    CHECK_EQ(sluice_forward(f.e, &f.batches[0], &loss), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "2 were announced");
    CHECK_EQ(sluice_set_targets(f.e, (uint64_t[]){ UINT64_MAX, 3, 3, 3 }), SLUICE_ERR_USAGE);
    CHECK_EQ(sluice_set_targets(f.e, (uint64_t[]){ 0, 0, 0, 0 }), SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), "none of the 4 micro-batches of step 1 has a target");
    CHECK_EQ(take_hashes(f.e, &after), SLUICE_OK);
    CHECK_STR(after.weights, before.weights);
    /* and it can still be done right */
    CHECK_EQ(sluice_set_targets(f.e, (uint64_t[]){ 3, 3, 3, 3 }), SLUICE_OK);
    CHECK_EQ(sluice_forward(f.e, &f.batches[0], &loss), SLUICE_OK);
    CHECK_EQ(sluice_set_targets(f.e, (uint64_t[]){ 3, 3, 3, 3 }), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "a step is in progress");
    close_fixture(&f);
}

TEST(a_step_without_any_target_is_refused_before_it_begins)
{
    static const uint8_t nothing[ROWS] = { 0 };
    for (int parts = 1; parts <= PARTS; parts *= 4) {
        sluice_options o;
        fixture f;
        samples s;
        double loss = 0;
        small_options(&o);
        o.accumulation_steps = parts;
        make_samples(nothing, &s);
        CHECK_EQ(open_fixture(FUSED, &o, &s, &f), SLUICE_OK);
        CHECK_EQ(sluice_train_step(f.e, f.batches, &loss), SLUICE_ERR_INPUT);
        CHECK_CONTAINS(sluice_error(), "nothing to learn from");
        if (parts == 1) CHECK_EQ(sluice_forward(f.e, &f.batches[0], &loss), SLUICE_ERR_INPUT);
        CHECK_EQ(sluice_step_count(f.e), 0);
        close_fixture(&f);
    }
}

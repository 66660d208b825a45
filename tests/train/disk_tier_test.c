/* disk_tier_test.c: what lives in swap files. The same bits as with everything resident, in every precision, on one rank and
 * on several; peaks of three tiers and what is read and written as the plan says, and as formulas do that know nothing of
 * it; a model whose states are several times the host's memory; a disk that fails. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/io.h"
#include "core/status.h"
#include "ir/span.h"
#include "support/matrix.h"
#include "test.h"

enum { STEPS = 6, MICRO = 4, SETS = 16 };

typedef struct way {
    int ranks;
    bool resume;
    int fail_after;         /* requests of the swap store until one fails; 0: none does */
    const char *sets[SETS]; /* NULL ends them */
} way;

typedef struct request {
    const campaign *c;
    const mode *mode;
    const way *way;
} request;

static void on_event(void *user, const sluice_event *e)
{
    outcome *o = ((const request *)user)->c->out;
    if (e->kind == SLUICE_EVENT_PLAN) o->plan = *e;
    if (e->kind != SLUICE_EVENT_END) return;
    o->end = *e;
    snprintf(o->weights, sizeof o->weights, "%s", e->weights_sha256);
    snprintf(o->state, sizeof o->state, "%s", e->state_sha256);
}

static int requests_left;

static int fail_later(void *user, const char *call, const char *path)
{
    (void)user, (void)path;
    return strncmp(call, "swap_", 5) == 0 && --requests_left == 0 ? EIO : 0;
}

static sluice_status configure(const request *q, sluice_config **out)
{
    char path[4200], set[4300];
    snprintf(path, sizeof path, "%s/config.json", q->c->folder);
    SL_TRY(sluice_config_load(path, out));
    snprintf(set, sizeof set, "steps=%d", STEPS);
    SL_TRY(sluice_config_set(*out, set));
    for (int i = 0; q->mode->sets[i] != NULL; i++) SL_TRY(sluice_config_set(*out, q->mode->sets[i]));
    if (q->mode->skips) SL_TRY(sluice_config_set(*out, "fp16.initial_scale_power=12"));
    for (int i = 0; i < SETS && q->way->sets[i] != NULL; i++) {
        snprintf(set, sizeof set, q->way->sets[i], q->c->folder);
        SL_TRY(sluice_config_set(*out, set));
    }
    return SLUICE_OK;
}

static sluice_status rank_main(void *user, sluice_world *world)
{
    const request *q = user;
    sluice_config *config = NULL;
    sluice_job_options options;
    sluice_job_options_init(&options);
    options.event = on_event;
    options.user = user;
    options.world = world;
    options.resume = q->way->resume;
    requests_left = q->way->fail_after;
    if (requests_left > 0) sl_io_set_hook(fail_later, NULL);
    sluice_status st = configure(q, &config);
    if (st == SLUICE_OK) st = sluice_job_train(config, &options);
    sl_io_set_hook(NULL, NULL);
    if (config != NULL) sluice_config_destroy(config);
    return st;
}

static sluice_status train(const campaign *c, const mode *m, const way *w)
{
    sluice_launch_options launch;
    request q = { c, m, w };
    sluice_launch_options_init(&launch);
    launch.ranks = w->ranks;
    memset(c->out, 0, sizeof *c->out);
    return sluice_launch(&launch, rank_main, &q);
}

/* ---- the same bits ---- */

#define STATE_ON_DISK       "zero_optimization.offload_optimizer={\"device\":\"nvme\",\"nvme_path\":\"%s\"}"
#define PARAMETERS_ON_DISK  "zero_optimization.offload_param.device=nvme"
#define ACTIVATIONS_ON_DISK "activation_checkpointing={\"mode\":\"offload\",\"device\":\"nvme\"}"

static const way resident = { 1, false, 0, { "zero_optimization.offload_optimizer.device=none" } };
static const way ways[] = {
    { 1, false, 0, { STATE_ON_DISK } },
    { 1, false, 0, { STATE_ON_DISK, PARAMETERS_ON_DISK, "memory.disk_chunk=2048" } },
    { 1, false, 0, { STATE_ON_DISK, PARAMETERS_ON_DISK, ACTIVATIONS_ON_DISK } },
    { 2, false, 0, { STATE_ON_DISK, "zero_optimization.stage=1", "memory.disk_chunk=4096" } },
    { 2, false, 0, { STATE_ON_DISK, PARAMETERS_ON_DISK, "zero_optimization.stage=2" } },
    { 2, false, 0, { STATE_ON_DISK, PARAMETERS_ON_DISK, ACTIVATIONS_ON_DISK, "zero_optimization.stage=0" } },
    { 4, false, 0, { STATE_ON_DISK, PARAMETERS_ON_DISK, ACTIVATIONS_ON_DISK, "zero_optimization.stage=3" } },
    { 1, false, 0, { "memory.disk_path=%s", PARAMETERS_ON_DISK, "zero_optimization.offload_optimizer.device=none" } },
    { 2,
      false,
      0,
      { "memory.disk_path=%s", PARAMETERS_ON_DISK, "zero_optimization.offload_optimizer.device=cpu",
        "activation_checkpointing={\"mode\":\"recompute\",\"device\":\"nvme\"}" } },
};

static void check_counted(const outcome *o, const char *precision, size_t index)
{
    const sluice_event *p = &o->plan, *e = &o->end;
    const struct {
        const char *what;
        uint64_t planned, counted;
    } rows[] = {
        { "device", p->peak.device, e->peak.device },
        { "host", p->peak.host, e->peak.host },
        { "disk", p->peak.disk, e->peak.disk },
        { "to device", p->moved_to_device, e->moved_to_device },
        { "to host", p->moved_to_host, e->moved_to_host },
        { "disk read", p->moved_disk_read, e->moved_disk_read },
        { "disk write", p->moved_disk_write, e->moved_disk_write },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        CHECK_THAT(rows[i].planned == rows[i].counted, "%s, way %zu: %s: planned %llu, counted %llu", precision, index,
                   rows[i].what, (unsigned long long)rows[i].planned, (unsigned long long)rows[i].counted);
    CHECK(p->moved_disk_read > 0 && p->peak.disk > 0);
}

TEST(what_lives_on_the_disk_leaves_every_precision_its_bits)
{
    campaign c;
    REQUIRE(matrix_start(&c, "cpu"));
    for (int k = 0; k < MATRIX_MODES; k++) {
        char weights[65], state[65];
        REQUIRE_OK(train(&c, &matrix_modes[k], &resident));
        memcpy(weights, c.out->weights, sizeof weights);
        memcpy(state, c.out->state, sizeof state);
        for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
            sluice_status st = train(&c, &matrix_modes[k], &ways[i]);
            CHECK_THAT(st == SLUICE_OK, "%s, way %zu: %s", matrix_modes[k].name, i, sluice_error());
            if (st != SLUICE_OK) continue;
            CHECK_STR(c.out->weights, weights);
            CHECK_STR(c.out->state, state);
            check_counted(c.out, matrix_modes[k].name, i);
        }
    }
    matrix_end(&c);
}

/* ---- formulas ---- */

static uint64_t in_units(int64_t elements, uint64_t each)
{
    return ((uint64_t)elements * each + SL_DISK_UNIT - 1) / SL_DISK_UNIT * SL_DISK_UNIT;
}

/* One rank. The rest of the master and two moments of each layer are read and written once a step. Parameters are read for
 * forward and backward of each micro-batch, those of the last level once, the tied embedding for each use; once more for the
 * update, unless they are fp16, whose master is in the state; and written once. */
static void expect_traffic(const mode *w, const model *m, bool parameters, uint64_t *read, uint64_t *written)
{
    *read = *written = 0;
    for (int i = 0; i < m->layers; i++) {
        uint64_t state = 2 * in_units(m->size[i], 4) + (w->rest > 0 ? in_units(m->size[i], w->rest) : 0);
        uint64_t weights = in_units(m->size[i], w->weight), uses = i == m->tied ? 3 : i == m->last ? 1 : 2;
        *read += state;
        *written += state;
        if (!parameters) continue;
        *read += uses * MICRO * weights + (w->rest == 4 ? 0 : weights);
        *written += weights;
    }
}

TEST(a_step_reads_and_writes_what_the_formulas_say)
{
    campaign c;
    REQUIRE(matrix_start(&c, "cpu"));
    for (int k = 0; k < MATRIX_MODES; k++)
        for (int parameters = 0; parameters < 2; parameters++) {
            uint64_t read, written;
            if (matrix_modes[k].compact) continue; /* whose moments differ from block to block */
            REQUIRE_OK(train(&c, &matrix_modes[k], &ways[parameters]));
            expect_traffic(&matrix_modes[k], &c.m, parameters == 1, &read, &written);
            CHECK_EQ(c.out->end.moved_disk_read, read);
            CHECK_EQ(c.out->end.moved_disk_write, written);
        }
    matrix_end(&c);
}

/* ---- more than memory ---- */

/* 12 bytes of each of 838,400 parameters in bf16 are 9.6 MiB: four times what the host has. */
TEST(a_model_whose_states_are_four_times_the_host_trains_on_the_disk)
{
    static const way small = { 1,
                               false,
                               0,
                               { "model.layers=4", "model.width=128", "model.context=64", "memory.device=10MiB",
                                 "memory.host=2400KiB", "memory.disk_path=%s", "train_batch_size=4" } };
    static const way large = { 1,
                               false,
                               0,
                               { "model.layers=4", "model.width=128", "model.context=64", "memory.device=200MiB",
                                 "memory.host=200MiB", "train_batch_size=4" } };
    campaign c;
    char weights[65];
    REQUIRE(matrix_start(&c, "cpu"));
    REQUIRE_OK(train(&c, &matrix_modes[1], &large));
    CHECK_EQ(c.out->plan.peak.disk, 0);
    memcpy(weights, c.out->weights, sizeof weights);
    REQUIRE_OK(train(&c, &matrix_modes[1], &small));
    CHECK_STR(c.out->weights, weights);
    check_counted(c.out, "bf16", 0);
    CHECK(c.out->plan.peak.disk > c.out->plan.peak.host);
    matrix_end(&c);
}

/* ---- refusals ---- */

TEST(the_bytes_that_the_disk_lacks_are_told_to_the_byte)
{
    campaign c;
    char disk[64];
    unsigned long long needs = 0;
    way w = { 1, false, 0, { STATE_ON_DISK, "memory.disk=8KiB" } };
    REQUIRE(matrix_start(&c, "cpu"));
    CHECK_EQ(train(&c, &matrix_modes[0], &w), SLUICE_ERR_NO_FIT);
    const char *told = strstr(sluice_error(), "memory.disk has 8192 bytes (8.00 KiB), needs ");
    REQUIRE(told != NULL && sscanf(strstr(told, "needs "), "needs %llu", &needs) == 1);
    w.sets[1] = disk;
    snprintf(disk, sizeof disk, "memory.disk=%llu", needs);
    CHECK_EQ(train(&c, &matrix_modes[0], &w), SLUICE_OK);
    snprintf(disk, sizeof disk, "memory.disk=%llu", needs - 1);
    CHECK_EQ(train(&c, &matrix_modes[0], &w), SLUICE_ERR_NO_FIT);
    matrix_end(&c);
}

TEST(a_folder_that_is_not_there_is_one_message_before_the_first_step)
{
    static const way w = { 1,
                           false,
                           0,
                           { "zero_optimization.offload_optimizer={\"device\":\"nvme\",\"nvme_path\":"
                             "\"%s/nowhere\"}" } };
    campaign c;
    REQUIRE(matrix_start(&c, "cpu"));
    CHECK_EQ(train(&c, &matrix_modes[0], &w), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "/nowhere");
    matrix_end(&c);
}

/* ---- checkpoints, and a disk that fails ---- */

#define KEPT "checkpoint={\"path\":\"%s/kept\",\"every\":2}"

TEST(a_run_on_the_disk_resumes_anywhere_and_a_resident_one_on_the_disk)
{
    static const way whole = { 1, false, 0, { "zero_optimization.offload_optimizer.device=none" } };
    static const way pairs[2][2] = {
        { { 2, false, 0, { STATE_ON_DISK, PARAMETERS_ON_DISK, KEPT, "steps=4" } },
          { 1, true, 0, { "zero_optimization.offload_optimizer.device=none", KEPT } } },
        { { 1, false, 0, { "zero_optimization.offload_optimizer.device=none", KEPT, "steps=4" } },
          { 2, true, 0, { STATE_ON_DISK, PARAMETERS_ON_DISK, KEPT } } },
    };
    for (int k = 1; k < MATRIX_MODES; k++)
        for (int i = 0; i < 2; i++) {
            campaign c;
            char weights[65], state[65];
            REQUIRE(matrix_start(&c, "cpu"));
            REQUIRE_OK(train(&c, &matrix_modes[k], &whole));
            memcpy(weights, c.out->weights, sizeof weights);
            memcpy(state, c.out->state, sizeof state);
            REQUIRE_OK(train(&c, &matrix_modes[k], &pairs[i][0]));
            REQUIRE_OK(train(&c, &matrix_modes[k], &pairs[i][1]));
            CHECK_STR(c.out->weights, weights);
            CHECK_STR(c.out->state, state);
            matrix_end(&c);
        }
}

TEST(a_disk_that_fails_ends_the_run_and_the_newest_checkpoint_resumes)
{
    static const way whole = { 1, false, 0, { STATE_ON_DISK } };
    way failing = { 1, false, 0, { STATE_ON_DISK, PARAMETERS_ON_DISK, KEPT } };
    static const way after = { 1, true, 0, { STATE_ON_DISK, PARAMETERS_ON_DISK, KEPT } };
    static const int counts[] = { 20, 400, 900, 1500 };
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        campaign c;
        char weights[65];
        REQUIRE(matrix_start(&c, "cpu"));
        REQUIRE_OK(train(&c, &matrix_modes[1], &whole));
        memcpy(weights, c.out->weights, sizeof weights);
        failing.fail_after = counts[i];
        CHECK_EQ(train(&c, &matrix_modes[1], &failing), SLUICE_ERR_IO);
        CHECK_CONTAINS(sluice_error(), "swap file");
        CHECK_CONTAINS(sluice_error(), " of layer ");
        REQUIRE_OK(train(&c, &matrix_modes[1], &after));
        CHECK_STR(c.out->weights, weights);
        matrix_end(&c);
    }
}

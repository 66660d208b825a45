/* auto_search_test.c: what is on "auto" is found by expected time: given settings stay, every rank comes to the same answer, and
 * what does not fit is never chosen. */
#include "core/status.h"
#include "support/random_model.h"
#include "test.h"
#include "train/engine.h"
#include "train/tuned_file.h"

#define MODEL_SEED 4212 /* a transformer of five blocks with a tied embedding */
#define ROOMY      ((uint64_t)1 << 28)

typedef struct planned {
    sluice_graph *graph;
    sluice_engine *engine;
} planned;

static void base_options(sluice_options *o)
{
    sluice_options_init(o);
    sluice_optimizer_init(&o->optimizer, SLUICE_ADAMW);
    o->threads = 1;
    o->stage = -1;
    o->device_bytes = o->host_bytes = ROOMY;
}

/* The plan of one of several ranks, without the others. */
static sluice_status plan_rank(const sluice_options *o, int rank, int ranks, const sl_arrangement *tuned, planned *out)
{
    random_state r = { MODEL_SEED };
    sl_settings s;
    *out = (planned){ NULL, NULL };
    SL_TRY(sl_settings_from_options(o, &s));
    s.plan.rank = rank;
    s.plan.rank_count = ranks;
    SL_TRY(random_graph(&r, &out->graph));
    const sl_engine_options e = { .training = true, .plan_only = true, .settings = &s, .tuned = tuned };
    return sl_engine_create(out->graph, &e, &out->engine);
}

static void forget(planned *p)
{
    sluice_engine_destroy(p->engine);
    sluice_graph_destroy(p->graph);
}

static const sl_auto_candidate *chosen_of(const planned *p)
{
    const sl_auto_result *found = &p->engine->arrangements;
    return &found->tried[found->chosen];
}

TEST(every_rank_and_every_search_comes_to_the_same_arrangement)
{
    sluice_options o;
    planned first, other;
    base_options(&o);
    o.partition = SLUICE_PARTITION_OWNER; /* ranks own different amounts */
    REQUIRE_OK(plan_rank(&o, 0, 3, NULL, &first));
    CHECK(first.engine->arrangements.count > 4);
    for (int rank = 0; rank < 3; rank++) {
        REQUIRE_OK(plan_rank(&o, rank, 3, NULL, &other));
        CHECK_EQ(other.engine->arrangements.count, first.engine->arrangements.count);
        CHECK_EQ(other.engine->arrangements.chosen, first.engine->arrangements.chosen);
        for (int i = 0; i < first.engine->arrangements.count; i++) {
            const sl_auto_candidate *a = &first.engine->arrangements.tried[i],
                                    *b = &other.engine->arrangements.tried[i];
            CHECK(sl_arrangement_equal(&a->arrangement, &b->arrangement));
            CHECK(a->seconds == b->seconds);
        }
        CHECK_EQ(other.engine->plan->options.rank, rank);
        CHECK_EQ(other.engine->plan->options.stage, first.engine->plan->options.stage);
        CHECK_EQ(sl_plan_fingerprint(other.engine->plan), sl_plan_fingerprint(first.engine->plan));
        forget(&other);
    }
    forget(&first);
}

TEST(the_shortest_expected_step_is_chosen_or_a_lower_stage_that_is_as_fast)
{
    sluice_options o;
    planned p;
    base_options(&o);
    for (int ranks = 2; ranks <= 4; ranks += 2) {
        REQUIRE_OK(plan_rank(&o, 0, ranks, NULL, &p));
        const sl_auto_result *found = &p.engine->arrangements;
        const sl_auto_candidate *best = chosen_of(&p);
        for (int i = 0; i < found->count; i++) {
            const sl_auto_candidate *c = &found->tried[i];
            if (!c->fits) continue;
            CHECK(best->seconds <= 1.02 * c->seconds);
            const int64_t stage = c->arrangement.values[SL_AXIS_STAGE],
                          chosen = best->arrangement.values[SL_AXIS_STAGE];
            if (stage < chosen) CHECK(c->seconds > best->seconds);
            if (stage == chosen) CHECK(0.99 * best->seconds <= c->seconds);
        }
        CHECK_NEAR(p.engine->plan->totals.step_seconds, best->seconds, 0.05 * best->seconds);
        forget(&p);
    }
}

TEST(given_settings_are_constraints_of_the_search)
{
    sluice_options o;
    planned p;
    for (int stage = 0; stage <= 3; stage++) {
        base_options(&o);
        o.stage = stage;
        o.prefetch_layers = 3;
        o.levels = 2;
        REQUIRE_OK(plan_rank(&o, 0, 2, NULL, &p));
        CHECK_EQ(p.engine->plan->options.stage, stage);
        CHECK_EQ(p.engine->plan->options.prefetch, 3);
        CHECK_EQ(p.engine->plan->options.levels, 2);
        for (int i = 0; i < p.engine->arrangements.count; i++) {
            const int64_t *values = p.engine->arrangements.tried[i].arrangement.values;
            CHECK_EQ(values[SL_AXIS_STAGE], SL_AXIS_UNSET);
            CHECK_EQ(values[SL_AXIS_LEVELS], SL_AXIS_UNSET);
            CHECK_EQ(values[SL_AXIS_PREFETCH], SL_AXIS_UNSET);
        }
        forget(&p);
    }
}

/* Nothing may be saved but by dividing. */
static void divide_only(sluice_options *o)
{
    o->parameters = o->optimizer_state = SLUICE_PLACE_DEVICE;
    o->activations = SLUICE_ACTIVATIONS_KEEP;
}

static uint64_t peak_at(int stage)
{
    sluice_options o;
    planned p;
    base_options(&o);
    divide_only(&o);
    o.stage = stage;
    uint64_t peak = plan_rank(&o, 0, 4, NULL, &p) == SLUICE_OK ? p.engine->plan->totals.peak[SL_TIER_DEVICE] : 0;
    forget(&p);
    return peak;
}

TEST(what_does_not_fit_is_never_chosen)
{
    sluice_options o;
    planned p;
    uint64_t whole = peak_at(0), divided = peak_at(3);
    CHECK(divided > 0 && divided < whole);
    base_options(&o);
    divide_only(&o);
    o.device_bytes = divided + (whole - divided) / 8;
    REQUIRE_OK(plan_rank(&o, 0, 4, NULL, &p));
    CHECK(p.engine->plan->options.stage > 0);
    CHECK(p.engine->plan->totals.peak[SL_TIER_DEVICE] <= o.device_bytes);
    const sl_auto_candidate *none = &p.engine->arrangements.tried[0];
    CHECK_EQ(none->arrangement.values[SL_AXIS_STAGE], 0);
    CHECK(!none->fits);
    CHECK(none->lacks > 0);
    forget(&p);
    o.device_bytes = divided / 4;
    CHECK_EQ(plan_rank(&o, 0, 4, NULL, &p), SLUICE_ERR_NO_FIT);
    CHECK_CONTAINS(sluice_error(), "memory.device");
    forget(&p);
}

TEST(what_was_measured_is_taken_where_it_fits_and_sought_anew_where_not)
{
    sluice_options o;
    planned p;
    sl_arrangement tuned;
    sl_arrangement_clear(&tuned);
    tuned.values[SL_AXIS_STAGE] = 0;
    tuned.values[SL_AXIS_BUCKET] = 4096;
    base_options(&o);
    divide_only(&o);
    REQUIRE_OK(plan_rank(&o, 0, 4, &tuned, &p));
    CHECK(p.engine->arrangements.tuned);
    CHECK_EQ(p.engine->arrangements.count, 1);
    CHECK_EQ(p.engine->plan->options.stage, 0);
    CHECK_EQ(p.engine->plan->options.bucket_bytes, 4 * 4096);
    forget(&p);
    o.device_bytes = peak_at(3) + (peak_at(0) - peak_at(3)) / 8;
    REQUIRE_OK(plan_rank(&o, 0, 4, &tuned, &p));
    CHECK(!p.engine->arrangements.tuned);
    CHECK(p.engine->plan->options.stage > 0);
    forget(&p);
}

TEST(one_rank_with_room_for_everything_is_told_that_plain_training_is_best)
{
    sluice_options o;
    planned p;
    char *text = NULL;
    size_t bytes = 0;
    base_options(&o);
    REQUIRE_OK(plan_rank(&o, 0, 1, NULL, &p));
    CHECK(p.engine->arrangements.plain);
    CHECK_EQ(p.engine->plan->options.stage, 0);
    FILE *out = open_memstream(&text, &bytes);
    sl_auto_print(&p.engine->arrangements, 3, out);
    fclose(out);
    CHECK_CONTAINS(text, "plain training is best");
    free(text);
    forget(&p);
    o.optimizer_state = SLUICE_PLACE_HOST;
    REQUIRE_OK(plan_rank(&o, 0, 1, NULL, &p));
    CHECK(!p.engine->arrangements.plain);
    forget(&p);
}

TEST(every_axis_has_a_key_that_finds_it_and_is_a_key_of_the_configuration)
{
    for (int axis = 0; axis < SL_AXIS_COUNT; axis++) {
        sluice_config *c;
        char value[64];
        CHECK_EQ((int)sl_axis_find(sl_axis_key((sl_axis)axis)), axis);
        REQUIRE_OK(sluice_config_create(&c));
        CHECK(strlen(sl_axis_key((sl_axis)axis)) < sizeof value);
        snprintf(value, sizeof value, "%s=1", sl_axis_key((sl_axis)axis));
        CHECK_EQ(sluice_config_set(c, value), SLUICE_OK);
        sluice_config_destroy(c);
    }
    CHECK_EQ(sl_axis_find("memory.device"), SL_AXIS_COUNT);
}

TEST(a_tuned_file_reads_back_and_damage_is_named)
{
    static const char *const damage[] = {
        "",
        "{",
        "[1]",
        "{\"sluice_tuned\": 2}",
        "{\"sluice_tuned\": 1, \"machine\": 3}",
        "{\"sluice_tuned\": 1, \"machine\": \"m\", \"model\": \"zz\", \"ranks\": 1}",
        "{\"sluice_tuned\": 1, \"machine\": \"m\", \"model\": \"0123456789abcdef\", \"ranks\": 0}",
        "{\"sluice_tuned\": 1, \"machine\": \"m\", \"model\": \"0123456789abcdef\", \"ranks\": 1, \"settings\": "
        "{\"memory.device\": 1}, \"step_seconds\": {\"expected\": 1, \"measured\": 1}}",
        "{\"sluice_tuned\": 1, \"machine\": \"m\", \"model\": \"0123456789abcdef\", \"ranks\": 1, \"settings\": "
        "{\"zero_optimization.stage\": 4}, \"step_seconds\": {\"expected\": 1, \"measured\": 1}}",
        "{\"sluice_tuned\": 1, \"machine\": \"m\", \"model\": \"0123456789abcdef\", \"ranks\": 1, \"settings\": {}}",
    };
    char path[4200];
    sl_tuned back, t = { .identity = { "a \"CPU\"", 0x1122334455667788u, 2 }, .expected = 0.25, .measured = 0.125 };
    snprintf(path, sizeof path, "%s/" SL_TUNED_FILE, test_tmpdir());
    sl_arrangement_clear(&t.arrangement);
    t.arrangement.values[SL_AXIS_STAGE] = 3;
    t.arrangement.values[SL_AXIS_PREFETCH] = 0;
    REQUIRE_OK(sl_tuned_write(path, &t));
    REQUIRE_OK(sl_tuned_read(path, &back));
    CHECK(sl_tuned_differs(&back.identity, &t.identity) == NULL);
    CHECK(sl_arrangement_equal(&back.arrangement, &t.arrangement));
    CHECK(back.expected == 0.25 && back.measured == 0.125);
    back.identity.ranks = 3;
    CHECK_CONTAINS(sl_tuned_differs(&back.identity, &t.identity), "ranks");
    for (size_t i = 0; i < sizeof damage / sizeof damage[0]; i++) {
        FILE *f = fopen(path, "w");
        fputs(damage[i], f);
        fclose(f);
        CHECK_EQ(sl_tuned_read(path, &back), SLUICE_ERR_INPUT);
        CHECK_CONTAINS(sluice_error(), SL_TUNED_FILE);
        CHECK_CONTAINS(sluice_error(), "sluice tune");
    }
}

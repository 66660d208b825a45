/* batch_growth_cli_test.c: a batch that grows: the same bits however the run is spread or interrupted, and no sample twice. */
#include <jansson.h>

#include "support/run.h"
#include "test.h"

#define CONFIG                                                                                                         \
    "{\"model\": {\"type\": \"mlp\", \"features\": 8, \"hidden\": [16], \"outputs\": 3, \"activation\": \"relu\","     \
    "\"loss\": \"cross_entropy\"}, \"data\": {\"type\": \"classification\", \"samples\": 600}, \"steps\": 14,"         \
    "\"seed\": 3, \"train_batch_size\": 16, \"train_micro_batch_size_per_gpu\": 8, \"threads\": 1,"                    \
    "\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.02}}, \"checkpoint\": {\"path\": \"runs\"}}"
#define GROWS "--set batch_growth.every=4 --set batch_growth.limit=70 "

static void prepare(char folder[4096])
{
    snprintf(folder, 4096, "%s", test_tmpdir());
    run_write(folder, "g.json", CONFIG);
}

/* Output of a run that must succeed; the caller's. */
static char *train(const char *folder, const char *arguments)
{
    char command[512];
    snprintf(command, sizeof command, "train g.json --json %s", arguments);
    run_result r = run_sluice(folder, command);
    CHECK_THAT(r.status == 0, "%s: status %d, %s", arguments, r.status, r.error);
    char *out = strdup(r.out);
    run_free(&r);
    return out;
}

/* The hash of the weights at the end, in `out`. */
static const char *hash_of(const char *folder, const char *arguments, char out[65])
{
    char *text = train(folder, arguments);
    const char *hash = strstr(text, "\"weights_sha256\":\"");
    snprintf(out, 65, "%.64s", hash != NULL ? hash + strlen("\"weights_sha256\":\"") : "none");
    free(text);
    return out;
}

TEST(a_batch_that_grows_gives_the_same_bits_on_any_ranks_stages_and_after_interruptions)
{
    char folder[4096], through[65], other[65];
    prepare(folder);
    hash_of(folder, GROWS, through);
    CHECK_STR(hash_of(folder, GROWS "--set checkpoint.path=b --ranks 2 --set zero_optimization.stage=3", other),
              through);
    CHECK_STR(hash_of(folder,
                      GROWS "--set checkpoint.path=d --set zero_optimization.offload_optimizer.device=cpu "
                            "--set zero_optimization.stage=2 --ranks 2",
                      other),
              through);
    /* inside a stage, and between two */
    hash_of(folder, GROWS "--set checkpoint.path=e --set steps=6", other);
    CHECK(strcmp(other, through) != 0);
    hash_of(folder, GROWS "--set checkpoint.path=e --set steps=8 --resume --ranks 2", other);
    CHECK_STR(hash_of(folder, GROWS "--set checkpoint.path=e --resume", other), through);
    /* before it grows it is a run like any other */
    char plain[65];
    hash_of(folder, "--set checkpoint.path=f --set steps=4", plain);
    CHECK_STR(hash_of(folder, GROWS "--set checkpoint.path=h --set steps=4", other), plain);
}

enum { MICRO = 2 * 4 + 4 * 4 + 8 * 6 };

/* Losses of the steps of a run, and the samples in each. Returns how many there were. */
static int losses_of(const char *text, double *losses, json_int_t *samples, int most)
{
    int count = 0;
    for (const char *line = text; line != NULL && *line != '\0'; line = strchr(line, '\n') + 1) {
        if (strncmp(line, "{\"event\":\"step\"", 15) == 0 && count < most) {
            json_t *json = json_loads(line, JSON_DISABLE_EOF_CHECK, NULL);
            losses[count] = json_number_value(json_object_get(json, "loss"));
            samples[count++] = json_integer_value(json_object_get(json, "samples"));
            json_decref(json);
        }
        if (strchr(line, '\n') == NULL) break;
    }
    return count;
}

/* Weights that stay tell which micro-batches a step had: its loss is their mean. */
TEST(a_batch_that_grows_takes_the_data_in_order_without_a_gap_and_its_loss_is_the_mean_over_it)
{
    char folder[4096];
    double single[MICRO], grown[14];
    json_int_t of_single[MICRO], of_grown[14];
    prepare(folder);
    char *one = train(folder, "--set optimizer.params.lr=0 --set train_batch_size=8 --set steps=72 "
                              "--set 'checkpoint.path=\"\"'");
    char *all = train(folder, GROWS "--set optimizer.params.lr=0 --set 'checkpoint.path=\"\"' --ranks 2");
    REQUIRE(losses_of(one, single, of_single, MICRO) == MICRO && losses_of(all, grown, of_grown, 14) == 14);
    int place = 0;
    for (int s = 0; s < 14; s++) {
        int count = s < 4 ? 2 : s < 8 ? 4 : 8;
        double sum = 0;
        for (int i = 0; i < count; i++) sum += single[place++];
        CHECK_EQ(of_grown[s], 8 * count);
        CHECK_NEAR(grown[s], sum / count, 1e-12);
    }
    free(one);
    free(all);
}

TEST(a_batch_that_grows_needs_a_limit_and_keeps_its_rule_on_resume)
{
    static const struct {
        const char *arguments, *says;
    } wrong[] = {
        { "--set batch_growth.every=4", "batch_growth.limit is missing" },
        { "--set batch_growth.every=4 --set batch_growth.limit=15", "less than train_batch_size" },
        { "--set batch_growth.every=4 --set batch_growth.limit=1000000000000", "at most 1000000 are allowed" },
        { "--set batch_growth.every=4 --set batch_growth.limit=70 --set batch_growth.factor=1", "batch_growth.factor" },
        { "--resume --set batch_growth.every=5 --set batch_growth.limit=70", "batch_growth.every is 5" },
        { "--resume", "batch_growth.every is 0" },
    };
    char folder[4096];
    prepare(folder);
    run_must(folder, "train g.json --quiet --set steps=6 " GROWS);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        char command[256];
        snprintf(command, sizeof command, "train g.json --quiet %s", wrong[i].arguments);
        run_result r = run_sluice(folder, command);
        CHECK_THAT(r.status == 2, "%s: status %d", wrong[i].arguments, r.status);
        CHECK_CONTAINS(r.error, wrong[i].says);
        run_free(&r);
    }
    run_result r = run_sluice(folder, "plan g.json --ranks 2 " GROWS);
    CHECK_CONTAINS(r.out, "grows from 16 to 64 samples, times 2 every 4 steps");
    CHECK_CONTAINS(r.out, "4 micro-batches a step");
    run_free(&r);
}

TEST(epochs_of_a_batch_that_grows_are_counted_by_samples)
{
    char folder[4096];
    prepare(folder);
    run_write(
        folder, "g.json",
        "{\"model\": {\"type\": \"linear\", \"features\": 4}, \"data\": {\"type\": \"regression\", \"samples\": 96},"
        "\"epochs\": 3, \"train_batch_size\": 8, \"threads\": 1, \"optimizer\": {\"type\": \"AdamW\"},"
        "\"batch_growth\": {\"every\": 4, \"factor\": 2, \"limit\": 32}}");
    /* 4 x 8 + 4 x 16 = 96, then 32 a step */
    char *out = train(folder, "");
    CHECK_CONTAINS(out, "{\"event\":\"epoch\",\"step\":8,\"epoch\":1,");
    CHECK_CONTAINS(out, "{\"event\":\"epoch\",\"step\":11,\"epoch\":2,");
    CHECK_CONTAINS(out, "{\"event\":\"epoch\",\"step\":14,\"epoch\":3,");
    CHECK_CONTAINS(out, "{\"event\":\"end\",\"steps\":14,");
    free(out);
}

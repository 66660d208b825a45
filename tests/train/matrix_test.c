/* matrix_test.c: the same bits, whatever is divided, moved or recomputed (support/matrix.h).
 *
 * Of the GPT 20 steps of 4 micro-batches in fp32, bf16, fp16 with a loss scale that overflows now and then, and bf16 with compact
 * moments. A pairwise cover of the settings runs always, all 288 of each with LONG=1, which then also writes the rows
 * of docs/results/exactness-matrix.csv, as Markdown, to the file named by MATRIX_TABLE. */
#include "support/matrix.h"
#include "test.h"

TEST(every_way_to_divide_move_and_recompute_gives_the_same_bits)
{
    campaign c;
    REQUIRE(matrix_start(&c, "cpu"));
    if (getenv("MATRIX_TABLE") != NULL) c.table = fopen(getenv("MATRIX_TABLE"), "w");
    for (int k = 0; k < MATRIX_MODES; k++) {
        if (getenv("LONG") != NULL)
            matrix_run_all(&c, k);
        else
            matrix_run_cover(&c, k);
        for (int other = 0; other < k; other++) CHECK(strcmp(c.weights[k], c.weights[other]) != 0);
    }
    matrix_end(&c);
}

/* The other models: the cover of each in every precision, or with LONG=1 all settings. */
static void run_subject(matrix_subject which)
{
    campaign c;
    REQUIRE(matrix_start_with(&c, "cpu", which));
    for (int k = 0; k < MATRIX_MODES; k++) {
        if (getenv("LONG") != NULL)
            matrix_run_all(&c, k);
        else
            matrix_run_cover(&c, k);
        for (int other = 0; other < k; other++) CHECK(strcmp(c.state[k], c.state[other]) != 0);
    }
    matrix_end(&c);
}

TEST(every_way_to_train_a_bert_gives_the_same_bits)
{
    run_subject(MATRIX_BERT);
}

TEST(every_way_to_train_a_bert_that_classifies_gives_the_same_bits)
{
    run_subject(MATRIX_CLASSIFIER);
}

TEST(every_way_to_train_a_recommender_gives_the_same_bits)
{
    run_subject(MATRIX_RECOMMENDER);
}

/* 11 million parameters: few settings, and the cover with LONG=1. */
TEST(every_way_to_train_a_residual_network_gives_the_same_bits)
{
    static const setting few[] = { { 1, 0, NOTHING, 0, 0 },
                                   { 2, 3, OPTIMIZER_AND_PARAMETERS, 1, 1 },
                                   { 4, 2, HALF, 2, 0 } };
    campaign c;
    REQUIRE(matrix_start_with(&c, "cpu", MATRIX_RESNET));
    for (int k = 0; k < MATRIX_MODES; k++)
        if (getenv("LONG") != NULL)
            matrix_run_cover(&c, k);
        else if (k < 2)
            matrix_run_some(&c, k, few, 3);
    matrix_end(&c);
}

/* Ranks on a GPU meet on the host alone: what passes through it is in the formulas too. */
TEST(plans_for_a_gpu_say_every_byte_that_passes_through_the_host)
{
    campaign c;
    REQUIRE(matrix_start(&c, "cuda"));
    for (int k = 0; k < MATRIX_MODES; k++) matrix_plan_for_gpu(&c, k);
    matrix_end(&c);
}

/* The hashes see a single weight that is off by one bit: weights of one run, once as they are and once with a bit
 * turned in the last value of the file. */
TEST(one_perturbed_weight_gives_other_hashes)
{
    campaign c;
    char set[4200], path[4200];
    char weights[2][65];
    REQUIRE(matrix_start(&c, "cpu"));
    snprintf(set, sizeof set, "save=%s/w.safetensors", c.folder);
    run_request q = {
        { 2, 2, NOTHING, 0, 0 }, &matrix_modes[0], c.folder, set, c.device, c.out, NULL, { NULL }, false, 0
    };
    REQUIRE_OK(matrix_run(&q));
    snprintf(path, sizeof path, "%s/w.safetensors", c.folder);
    snprintf(set, sizeof set, "load=%s/w.safetensors", c.folder);
    for (int k = 0; k < 2; k++) {
        FILE *f = fopen(path, "r+b");
        REQUIRE(f != NULL && fseek(f, -4, SEEK_END) == 0);
        int low = fgetc(f);
        REQUIRE(fseek(f, -4, SEEK_END) == 0 && (k == 0 || fputc(low ^ 1, f) != EOF));
        REQUIRE(fclose(f) == 0);
        REQUIRE_OK(matrix_run(&q));
        memcpy(weights[k], c.out->weights, sizeof weights[k]);
    }
    CHECK(strcmp(weights[0], weights[1]) != 0);
    matrix_end(&c);
}

/* Tiles belong to the model, so they have hashes of their own; over ranks and stages these stay the same too. */
TEST(a_tiled_model_has_the_same_bits_on_any_number_of_ranks)
{
    campaign c;
    char weights[65];
    const setting settings[] = {
        { 1, 0, NOTHING, 0, 0 }, { 2, 3, OPTIMIZER_AND_PARAMETERS, 1, 1 }, { 4, 1, HALF, 2, 0 }, { 2, 2, NOTHING, 0, 0 }
    };
    REQUIRE(matrix_start(&c, "cpu"));
    for (int i = 0; i < 4; i++) {
        run_request q = {
            settings[i], &matrix_modes[0], c.folder, "memory.tile_bytes=6000", c.device, c.out, NULL, { NULL }, false, 0
        };
        REQUIRE_OK(matrix_run(&q));
        if (i == 0) memcpy(weights, c.out->weights, sizeof weights);
        CHECK_STR(c.out->weights, weights);
        CHECK_EQ(c.out->end.peak.device, c.out->plan.peak.device);
    }
    matrix_end(&c);
}

/* LAMB scales each parameter's step by norms of the whole parameter: whole layers to ranks, and the bits stay. */
TEST(an_optimizer_with_norms_of_its_own_has_the_same_bits_on_any_number_of_ranks)
{
    campaign c;
    char weights[65];
    const setting settings[] = { { 1, 0, NOTHING, 2, 0 }, { 2, 2, NOTHING, 2, 0 }, { 4, 3, OPTIMIZER, 2, 1 } };
    REQUIRE(matrix_start(&c, "cpu"));
    for (int i = 0; i < 3; i++) {
        run_request q = { settings[i], &matrix_modes[0],
                          c.folder,    "optimizer={\"type\":\"LAMB\",\"params\":{\"lr\":0.01}}",
                          c.device,    c.out,
                          NULL,        { NULL },
                          false,       0 };
        REQUIRE_OK(matrix_run(&q));
        if (i == 0) memcpy(weights, c.out->weights, sizeof weights);
        CHECK_STR(c.out->weights, weights);
    }
    matrix_end(&c);
}

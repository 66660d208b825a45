/* metrics_test.c: every metric against scikit-learn's numbers or numbers made by hand, and the same for any order, batch and
 * number of ranks. */
#include "train/metrics.h"

#include <sys/mman.h>

#include "core/alloc.h"
#include "fixtures/metrics/metric_cases.h"
#include "test.h"
#include "train/edit_distance.h"

#define CLOSE 1e-12

static sl_metrics *collection(sl_metric_shape shape)
{
    sl_metrics *m = NULL;
    if (sl_metrics_create(&shape, &m) != SLUICE_OK) test_fail(__FILE__, __LINE__, "no metrics: %s", sluice_error());
    return m;
}

/* Samples i, i + step, ... of a case. */
static void add_classes(sl_metrics *m, const float *logits, const int32_t *targets, int classes, int first, int step)
{
    for (int i = first; i < CASE_SAMPLES; i += step) sl_metrics_add_class(m, logits + i * classes, targets[i]);
}

static void share_alone(sl_metrics *m)
{
    sl_ranks alone = { .count = 1 };
    CHECK(sl_metrics_share(m, &alone) == SLUICE_OK);
}

TEST(metrics_of_several_classes_are_those_of_scikit_learn)
{
    sl_metrics *m = collection((sl_metric_shape){ SL_JUDGED_CLASSES, .classes = 5 });
    REQUIRE(m != NULL);
    add_classes(m, many_logits, many_targets, 5, 0, 1);
    sl_metrics_add_class(m, many_logits, -1); /* padding */
    share_alone(m);
    CHECK_NEAR(sl_metrics_value(m, SL_METRIC_ACCURACY), many_accuracy, CLOSE);
    CHECK_NEAR(sl_metrics_value(m, SL_METRIC_LOG_LOSS), many_log_loss, CLOSE);
    CHECK_NEAR(sl_metrics_value(m, SL_METRIC_PRECISION_MACRO), many_precision_macro, CLOSE);
    CHECK_NEAR(sl_metrics_value(m, SL_METRIC_RECALL_MACRO), many_recall_macro, CLOSE);
    CHECK_NEAR(sl_metrics_value(m, SL_METRIC_F1_MACRO), many_f1_macro, CLOSE);
    CHECK_NEAR(sl_metrics_value(m, SL_METRIC_F1), many_f1_macro, CLOSE);
    CHECK(isnan(sl_metrics_value(m, SL_METRIC_AUC)));
    CHECK(isnan(sl_metrics_value(m, SL_METRIC_MAE)));
    for (int i = 0; i < 5; i++) {
        sluice_class_score c = sl_metrics_class(m, i);
        CHECK_NEAR(c.precision, many_precision_each[i], CLOSE);
        CHECK_NEAR(c.recall, many_recall_each[i], CLOSE);
        CHECK_NEAR(c.f1, many_f1_each[i], CLOSE);
    }
    REQUIRE(sl_metrics_confusion(m) != NULL);
    for (int i = 0; i < 25; i++) CHECK_EQ(sl_metrics_confusion(m)[i], many_confusion[i]);
    sl_metrics_destroy(m);
}

TEST(metrics_of_two_classes_are_those_of_the_positive_one_and_auc_counts_equal_scores_half)
{
    sl_metrics *m = collection((sl_metric_shape){ SL_JUDGED_CLASSES, .classes = 2, .scores = CASE_SAMPLES });
    REQUIRE(m != NULL);
    add_classes(m, two_logits, two_targets, 2, 0, 1);
    share_alone(m);
    CHECK_NEAR(sl_metrics_value(m, SL_METRIC_PRECISION), two_precision, CLOSE);
    CHECK_NEAR(sl_metrics_value(m, SL_METRIC_RECALL), two_recall, CLOSE);
    CHECK_NEAR(sl_metrics_value(m, SL_METRIC_F1), two_f1, CLOSE);
    CHECK_NEAR(sl_metrics_value(m, SL_METRIC_F1_MACRO), two_f1_macro, CLOSE);
    CHECK_NEAR(sl_metrics_value(m, SL_METRIC_PRECISION_MACRO), two_precision_macro, CLOSE);
    CHECK_NEAR(sl_metrics_value(m, SL_METRIC_RECALL_MACRO), two_recall_macro, CLOSE);
    CHECK_NEAR(sl_metrics_value(m, SL_METRIC_ACCURACY), two_accuracy, CLOSE);
    CHECK_NEAR(sl_metrics_value(m, SL_METRIC_LOG_LOSS), two_log_loss, CLOSE);
    CHECK_NEAR(sl_metrics_value(m, SL_METRIC_AUC), two_auc, CLOSE);
    CHECK_NEAR(sl_metrics_class(m, 0).precision, two_precision_each[0], CLOSE);
    CHECK_NEAR(sl_metrics_class(m, 0).recall, two_recall_each[0], CLOSE);
    CHECK_NEAR(sl_metrics_class(m, 1).f1, two_f1_each[1], CLOSE);
    for (int i = 0; i < 4; i++) CHECK_EQ(sl_metrics_confusion(m)[i], two_confusion[i]);
    sl_metrics_destroy(m);
}

/* The same samples as logits of one output. */
TEST(a_binary_score_is_judged_as_two_classes_are)
{
    sl_metrics *m = collection((sl_metric_shape){ SL_JUDGED_BINARY, .scores = CASE_SAMPLES });
    REQUIRE(m != NULL);
    for (int i = 0; i < CASE_SAMPLES; i++)
        sl_metrics_add_binary(m, two_logits[2 * i + 1] - two_logits[2 * i], (float)two_targets[i]);
    sl_metrics_add_binary(m, -800, 0); /* certain and right: no overflow, no loss */
    share_alone(m);
    CHECK_NEAR(sl_metrics_value(m, SL_METRIC_LOG_LOSS), two_log_loss * CASE_SAMPLES / (CASE_SAMPLES + 1), CLOSE);
    CHECK_NEAR(sl_metrics_value(m, SL_METRIC_PRECISION), two_precision, CLOSE);
    CHECK_NEAR(sl_metrics_value(m, SL_METRIC_RECALL), two_recall, CLOSE);
    CHECK(isnan(sl_metrics_value(m, SL_METRIC_AUC))); /* a score more than there is room for */
    sl_metrics_reset(m);
    for (int i = 0; i < CASE_SAMPLES; i++)
        sl_metrics_add_binary(m, two_logits[2 * i + 1] - two_logits[2 * i], (float)two_targets[i]);
    share_alone(m);
    CHECK_NEAR(sl_metrics_value(m, SL_METRIC_AUC), two_auc, CLOSE);
    sl_metrics_destroy(m);
}

TEST(errors_of_values_and_r2_are_those_of_scikit_learn_also_far_from_zero)
{
    sl_metrics *m = collection((sl_metric_shape){ SL_JUDGED_VALUES, .outputs = 3 });
    REQUIRE(m != NULL);
    for (int i = 0; i < CASE_SAMPLES; i++) sl_metrics_add_values(m, value_values + 3 * i, value_targets + 3 * i);
    share_alone(m);
    CHECK_NEAR(sl_metrics_value(m, SL_METRIC_MAE), value_mae, CLOSE);
    CHECK_NEAR(sl_metrics_value(m, SL_METRIC_RMSE), value_rmse, CLOSE);
    CHECK_NEAR(sl_metrics_value(m, SL_METRIC_R2), value_r2, 1e-11);
    CHECK(isnan(sl_metrics_value(m, SL_METRIC_ACCURACY)));
    sl_metrics_destroy(m);
}

TEST(r2_of_targets_that_do_not_vary_is_one_for_a_perfect_model_and_zero_for_others)
{
    sl_metrics *m = collection((sl_metric_shape){ SL_JUDGED_VALUES, .outputs = 1 });
    REQUIRE(m != NULL);
    for (int i = 0; i < 7; i++) sl_metrics_add_values(m, (float[]){ 0.1F }, (float[]){ 0.1F });
    CHECK_NEAR(sl_metrics_value(m, SL_METRIC_R2), 1, 0);
    sl_metrics_add_values(m, (float[]){ 0.2F }, (float[]){ 0.1F });
    CHECK_NEAR(sl_metrics_value(m, SL_METRIC_R2), 0, 0);
    sl_metrics_reset(m);
    sl_metrics_add_values(m, (float[]){ 0.2F }, (float[]){ 0.1F });
    CHECK(isnan(sl_metrics_value(m, SL_METRIC_R2)));
    sl_metrics_destroy(m);
}

TEST(classes_that_are_neither_there_nor_found_do_not_count_in_means_over_classes)
{
    sl_metrics *m = collection((sl_metric_shape){ SL_JUDGED_CLASSES, .classes = 4 });
    REQUIRE(m != NULL);
    CHECK(isnan(sl_metrics_value(m, SL_METRIC_F1)));
    sl_metrics_add_class(m, (float[]){ 1, 0, 0, 0 }, 0); /* right */
    sl_metrics_add_class(m, (float[]){ 1, 0, 0, 0 }, 1); /* 0 for a 1 */
    CHECK_NEAR(sl_metrics_value(m, SL_METRIC_RECALL_MACRO), 0.5, CLOSE);
    CHECK_NEAR(sl_metrics_value(m, SL_METRIC_PRECISION_MACRO), 0.25, CLOSE);
    CHECK_NEAR(sl_metrics_value(m, SL_METRIC_F1_MACRO), 1.0 / 3, CLOSE);
    sl_metrics_destroy(m);
}

TEST(auc_is_not_known_where_all_samples_are_of_one_class_and_one_half_where_all_scores_are_equal)
{
    sl_metrics *m = collection((sl_metric_shape){ SL_JUDGED_CLASSES, .classes = 2, .scores = 4 });
    REQUIRE(m != NULL);
    for (int i = 0; i < 3; i++) sl_metrics_add_class(m, (float[]){ 0, (float)i }, 1);
    share_alone(m);
    CHECK(isnan(sl_metrics_value(m, SL_METRIC_AUC)));
    sl_metrics_reset(m);
    for (int i = 0; i < 4; i++) sl_metrics_add_class(m, (float[]){ 0, 1 }, i % 2);
    share_alone(m);
    CHECK_NEAR(sl_metrics_value(m, SL_METRIC_AUC), 0.5, 0);
    sl_metrics_destroy(m);
}

TEST(metrics_of_tokens_follow_from_the_loss_and_the_bytes)
{
    sl_metrics *m = collection((sl_metric_shape){ SL_JUDGED_TOKENS, .classes = 3 });
    REQUIRE(m != NULL);
    sl_metrics_add_token(m, (float[]){ 1, 2, 0 }, 3, 1);
    sl_metrics_add_token(m, (float[]){ 1, 2, 0 }, 3, 0);
    sl_metrics_add_token(m, (float[]){ 1, 1, 0 }, 3, 0); /* the first of equal ones */
    sl_metrics_add_token(m, (float[]){ 1, 2, 0 }, 3, -1);
    sl_metrics_set_loss(m, 3 * log(4.0), 3, 6);
    share_alone(m);
    CHECK_NEAR(sl_metrics_value(m, SL_METRIC_LOSS), log(4.0), CLOSE);
    CHECK_NEAR(sl_metrics_value(m, SL_METRIC_PERPLEXITY), 4, CLOSE);
    CHECK_NEAR(sl_metrics_value(m, SL_METRIC_BITS_PER_BYTE), 1, CLOSE);
    CHECK_NEAR(sl_metrics_value(m, SL_METRIC_TOKEN_ACCURACY), 2.0 / 3, CLOSE);
    CHECK(isnan(sl_metrics_value(m, SL_METRIC_ACCURACY)));
    sl_metrics_set_loss(m, 1, 1, (double)NAN);
    CHECK(isnan(sl_metrics_value(m, SL_METRIC_BITS_PER_BYTE)));
    sl_metrics_destroy(m);
}

/* ---- transcripts ---- */

static int64_t labels_of(const char *text, int32_t *out)
{
    int64_t n = 0;
    for (; text[n] != '\0'; n++) out[n] = text[n];
    return n;
}

static int64_t distance(const char *a, const char *b)
{
    int32_t left[64], right[64];
    int64_t n = labels_of(a, left), k = labels_of(b, right), found = -1;
    CHECK(sl_label_distance(left, n, right, k, &found) == SLUICE_OK);
    return found;
}

TEST(the_distance_of_two_sequences_is_the_least_number_of_changes)
{
    CHECK_EQ(distance("", ""), 0);
    CHECK_EQ(distance("abc", ""), 3);
    CHECK_EQ(distance("", "ab"), 2);
    CHECK_EQ(distance("kitten", "sitting"), 3);
    CHECK_EQ(distance("sitting", "kitten"), 3);
    CHECK_EQ(distance("intention", "execution"), 5);
    CHECK_EQ(distance("abcdef", "bcdefa"), 2);
}

static void add_transcript(sl_metrics *m, const char *said, const char *heard, int32_t space)
{
    int32_t left[64], right[64];
    int64_t n = labels_of(said, left), k = labels_of(heard, right);
    CHECK(sl_metrics_add_transcript(m, left, n, right, k, space) == SLUICE_OK);
}

TEST(error_rates_of_transcripts_are_changes_over_labels_and_words_of_what_was_said)
{
    sl_metrics *m = collection((sl_metric_shape){ .judged = SL_JUDGED_TRANSCRIPTS });
    REQUIRE(m != NULL);
    CHECK(isnan(sl_metrics_value(m, SL_METRIC_WER)));
    add_transcript(m, "one two three", "one too three", ' '); /* 1 of 3 words, 1 of 13 labels */
    add_transcript(m, " four  five ", "four five six", ' ');  /* 1 word too many of 2; 5 changes of 12 labels */
    CHECK_NEAR(sl_metrics_value(m, SL_METRIC_WER), 2.0 / 5, CLOSE);
    CHECK_NEAR(sl_metrics_value(m, SL_METRIC_CER), (1.0 + 5) / 25, CLOSE);
    sl_metrics_reset(m);
    add_transcript(m, "abcd", "abd", -1); /* every label is a word */
    CHECK_NEAR(sl_metrics_value(m, SL_METRIC_WER), 0.25, CLOSE);
    sl_metrics_destroy(m);
}

/* ---- any order, any number of ranks ---- */

typedef struct shared_values {
    double auc[4], log_loss[4], f1[4], r2[4];
} shared_values;

typedef struct dealt {
    shared_values *out;
} dealt;

/* Each rank has every n-th sample. */
static sluice_status collect_share(void *user, sluice_world *world)
{
    const dealt *d = user;
    sl_ranks ranks;
    sl_metrics *classes = collection((sl_metric_shape){ SL_JUDGED_CLASSES, .classes = 2, .scores = CASE_SAMPLES });
    sl_metrics *values = collection((sl_metric_shape){ SL_JUDGED_VALUES, .outputs = 3 });
    if (classes == NULL || values == NULL) return SLUICE_ERR_NO_MEMORY;
    sluice_status st = sl_ranks_open(world, &ranks);
    if (st != SLUICE_OK) return st;
    add_classes(classes, two_logits, two_targets, 2, ranks.rank, ranks.count);
    for (int i = ranks.rank; i < CASE_SAMPLES; i += ranks.count)
        sl_metrics_add_values(values, value_values + 3 * i, value_targets + 3 * i);
    st = sl_metrics_share(classes, &ranks);
    if (st == SLUICE_OK) st = sl_metrics_share(values, &ranks);
    d->out->auc[ranks.rank] = sl_metrics_value(classes, SL_METRIC_AUC);
    d->out->log_loss[ranks.rank] = sl_metrics_value(classes, SL_METRIC_LOG_LOSS);
    d->out->f1[ranks.rank] = sl_metrics_value(classes, SL_METRIC_F1_MACRO);
    d->out->r2[ranks.rank] = sl_metrics_value(values, SL_METRIC_R2);
    sl_metrics_destroy(classes);
    sl_metrics_destroy(values);
    sl_ranks_close(&ranks);
    return st;
}

TEST(every_rank_has_the_same_values_as_one_that_saw_all_samples)
{
    shared_values *out = mmap(NULL, sizeof *out, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(out != MAP_FAILED);
    for (int n = 1; n <= 4; n++) {
        dealt d = { out };
        sluice_launch_options o;
        sluice_launch_options_init(&o);
        o.ranks = n;
        o.timeout_seconds = 20;
        REQUIRE_OK(sluice_launch(&o, collect_share, &d));
        for (int r = 0; r < n; r++) {
            CHECK_NEAR(out->auc[r], two_auc, CLOSE);
            CHECK_NEAR(out->log_loss[r], two_log_loss, CLOSE);
            CHECK_NEAR(out->f1[r], two_f1_macro, CLOSE);
            CHECK_NEAR(out->r2[r], value_r2, 1e-11);
        }
    }
    munmap(out, sizeof *out);
}

TEST(metrics_are_the_same_to_the_last_bit_in_any_order_of_samples)
{
    double seen[2][2];
    for (int backwards = 0; backwards < 2; backwards++) {
        sl_metrics *m = collection((sl_metric_shape){ SL_JUDGED_VALUES, .outputs = 3 });
        REQUIRE(m != NULL);
        for (int i = 0; i < CASE_SAMPLES; i++) {
            int k = backwards ? CASE_SAMPLES - 1 - i : i;
            sl_metrics_add_values(m, value_values + 3 * k, value_targets + 3 * k);
        }
        seen[backwards][0] = sl_metrics_value(m, SL_METRIC_RMSE);
        seen[backwards][1] = sl_metrics_value(m, SL_METRIC_R2);
        sl_metrics_destroy(m);
    }
    CHECK_NEAR(seen[0][0], seen[1][0], 0);
    CHECK_NEAR(seen[0][1], seen[1][1], 0);
}

TEST(a_metric_that_a_model_cannot_have_is_not_in_its_list)
{
    char list[512];
    sl_metric_shape two = { SL_JUDGED_CLASSES, .classes = 2 }, three = { SL_JUDGED_CLASSES, .classes = 3 };
    CHECK(sl_metric_applies(SL_METRIC_AUC, &two));
    CHECK(!sl_metric_applies(SL_METRIC_AUC, &three));
    CHECK_STR(sl_metric_list(&(sl_metric_shape){ SL_JUDGED_VALUES, .outputs = 1 }, list, sizeof list),
              "loss, mae, rmse, r2");
    CHECK(!sl_metric_higher(SL_METRIC_LOSS) && sl_metric_higher(SL_METRIC_F1));
}

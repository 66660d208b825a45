/* predictions_test.c: rows of predictions, with names of classes that need quoting, and of binary scores. */
#include "train/predictions.h"

#include "support/run.h"
#include "test.h"

static const char *name_of(const void *user, int64_t class_index)
{
    static const char *const names[] = { "cat", "dog, small", "a \"fox\"" };
    (void)user;
    return class_index < 3 ? names[class_index] : NULL;
}

/* What the file holds then; the caller's. */
static char *written(const char *name, const sl_metric_shape *shape, sl_class_names names, int64_t count,
                     const float *predictions, const void *targets)
{
    char path[4096];
    sl_prediction_file *f = NULL;
    snprintf(path, sizeof path, "%s/%s", test_tmpdir(), name);
    if (sl_prediction_file_begin(path, shape, 1, names, &f) != SLUICE_OK)
        test_fail(__FILE__, __LINE__, "%s", sluice_error());
    else if (sl_prediction_file_add(f, 0, count, predictions, targets) != SLUICE_OK ||
             sl_prediction_file_finish(f) != SLUICE_OK)
        test_fail(__FILE__, __LINE__, "%s", sluice_error());
    sl_prediction_file_free(f);
    return run_read(path);
}

TEST(names_of_classes_stand_in_columns_of_their_own_quoted_where_they_must_be)
{
    const sl_metric_shape shape = { SL_JUDGED_CLASSES, .classes = 4 };
    const float logits[] = { 0, 0, 0, -100, 100, 0, 0, 0 };
    const int32_t targets[] = { 2, 1 };
    char *csv = written("p.csv", &shape, (sl_class_names){ name_of, NULL }, 2, logits, targets);
    CHECK_STR(csv, "index,target,predicted,probability,target_name,predicted_name\n"
                   "0,2,0,0.333333333,\"a \"\"fox\"\"\",cat\n"
                   "1,1,0,1,\"dog, small\",cat\n");
    free(csv);
    char *json = written("p.jsonl", &shape, (sl_class_names){ name_of, NULL }, 1, logits, targets);
    CHECK_STR(json, "{\"index\": 0, \"target\": 2, \"predicted\": 0, \"probability\": 0.333333333, "
                    "\"target_name\": \"a \\\"fox\\\"\", \"predicted_name\": \"cat\"}\n");
    free(json);
}

TEST(a_binary_score_is_written_as_the_class_it_speaks_for)
{
    const sl_metric_shape shape = { .judged = SL_JUDGED_BINARY };
    const float logits[] = { 2, -2, 0 }, targets[] = { 1, 1, 0 };
    char *csv = written("b.csv", &shape, (sl_class_names){ NULL, NULL }, 3, logits, targets);
    CHECK_STR(csv, "index,target,predicted,probability\n0,1,1,0.880797078\n1,1,0,0.880797078\n2,0,0,0.5\n");
    free(csv);
}

TEST(transcripts_are_written_as_the_text_that_their_labels_are)
{
    static const char *const names[] = { "said.csv", "said.jsonl" };
    static const char *const wanted[] = {
        "index,target,predicted\n7,catcat,\"dog, smalla \"\"fox\"\"\"\n8,,cat\n",
        "{\"index\": 7, \"target\": \"catcat\", \"predicted\": \"dog, smalla "
        "\\\"fox\\\"\"}\n{\"index\": 8, \"target\": \"\", \"predicted\": \"cat\"}\n"
    };
    const sl_metric_shape shape = { .judged = SL_JUDGED_TRANSCRIPTS };
    const int32_t labels[] = { 0, 0, 1, 2 };
    for (int i = 0; i < 2; i++) {
        char path[4200];
        sl_prediction_file *f = NULL;
        snprintf(path, sizeof path, "%s/%s", test_tmpdir(), names[i]);
        REQUIRE_OK(sl_prediction_file_begin(path, &shape, 4, (sl_class_names){ name_of, NULL }, &f));
        REQUIRE_OK(
            sl_prediction_file_add_transcript(f, 7, (sl_transcript){ labels, 2 }, (sl_transcript){ labels + 2, 2 }));
        REQUIRE_OK(sl_prediction_file_add_transcript(f, 8, (sl_transcript){ labels, 0 }, (sl_transcript){ labels, 1 }));
        REQUIRE_OK(sl_prediction_file_finish(f));
        sl_prediction_file_free(f);
        char *text = run_read(path);
        CHECK_STR(text, wanted[i]);
        free(text);
    }
}

TEST(predictions_of_sequences_are_refused)
{
    char path[4096];
    sl_prediction_file *f = NULL;
    snprintf(path, sizeof path, "%s/t.csv", test_tmpdir());
    CHECK(sl_prediction_file_begin(path, &(sl_metric_shape){ .judged = SL_JUDGED_TOKENS }, 16,
                                   (sl_class_names){ NULL, NULL }, &f) == SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "is a sequence or has several classes");
}

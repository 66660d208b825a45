/* evaluate_cli_test.c: what evaluation tells and writes, when it ends a run, and which checkpoint it keeps. */
#include <jansson.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/run.h"
#include "test.h"

#define CLASSES_CONFIG                                                                                                 \
    "{\"model\": {\"type\": \"mlp\", \"features\": 8, \"hidden\": [16], \"outputs\": %d, \"activation\": \"relu\","    \
    "\"loss\": \"cross_entropy\"}, \"data\": {\"type\": \"classification\", \"samples\": 600, \"validation\": 0.25},"  \
    "\"steps\": 60, \"seed\": 3, \"train_batch_size\": 16, \"train_micro_batch_size_per_gpu\": 8,"                     \
    "\"evaluate\": {\"every\": 5}, \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.02}}, \"threads\": 1,"  \
    "\"checkpoint\": {\"path\": \"runs\", \"keep\": 2, \"every\": 10}, \"save\": \"m.safetensors\"}"
#define VALUES_CONFIG                                                                                                  \
    "{\"model\": {\"type\": \"linear\", \"features\": 4, \"outputs\": 2}, \"data\": {\"type\": \"regression\","        \
    "\"samples\": 200, \"validation\": 0.2}, \"steps\": 30, \"train_micro_batch_size_per_gpu\": 8,"                    \
    "\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.05}}, \"threads\": 1, \"save\": \"m.safetensors\"}"
#define STOPS    "--set early_stopping.patience=3 --set evaluate.metric=f1 "
#define SAMPLES  150
#define MOST_ROW 256

static void prepare(char folder[4096], int classes)
{
    char text[2048];
    snprintf(folder, 4096, "%s", test_tmpdir());
    snprintf(text, sizeof text, CLASSES_CONFIG, classes);
    run_write(folder, "c.json", text);
}

static json_t *parse(const char *line)
{
    json_error_t error;
    json_t *json = json_loads(line, 0, &error);
    if (json == NULL) test_fail(__FILE__, __LINE__, "no JSON: %s in %.200s", error.text, line);
    return json;
}

/* The one event of `sluice eval --json <arguments>`; the caller's. */
static json_t *evaluate(const char *folder, const char *arguments)
{
    char command[1024];
    snprintf(command, sizeof command, "eval c.json --json %s", arguments);
    run_result r = run_sluice(folder, command);
    if (r.status != 0) test_fail(__FILE__, __LINE__, "%s: %s", command, r.error);
    json_t *json = r.status == 0 ? parse(r.out) : NULL;
    run_free(&r);
    return json;
}

static double number(const json_t *json, const char *key)
{
    const json_t *value = json_object_get(json, key);
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

static double metric(const json_t *event, const char *name)
{
    return number(json_object_get(event, "metrics"), name);
}

static json_int_t cell(const json_t *event, size_t target, size_t predicted)
{
    return json_integer_value(json_array_get(json_array_get(json_object_get(event, "confusion"), target), predicted));
}

/* ---- what eval tells ---- */

TEST(eval_tells_every_metric_with_a_report_of_classes_that_agrees_with_its_confusion_matrix)
{
    char folder[4096];
    prepare(folder, 3);
    run_must(folder, "train c.json --quiet");
    json_t *e = evaluate(folder, "");
    REQUIRE(e != NULL);
    json_int_t all = 0, right = 0;
    for (size_t i = 0; i < 3; i++) {
        json_int_t row = 0, column = 0;
        const json_t *c = json_array_get(json_object_get(e, "classes"), i);
        for (size_t k = 0; k < 3; k++) {
            row += cell(e, i, k);
            column += cell(e, k, i);
        }
        CHECK_EQ(json_integer_value(json_object_get(c, "support")), row);
        CHECK_NEAR(number(c, "recall"), (double)cell(e, i, i) / (double)row, 1e-12);
        CHECK_NEAR(number(c, "precision"), (double)cell(e, i, i) / (double)column, 1e-12);
        all += row;
        right += cell(e, i, i);
    }
    CHECK_EQ(all, SAMPLES);
    CHECK_NEAR(metric(e, "accuracy"), (double)right / SAMPLES, 1e-12);
    CHECK_NEAR(number(e, "accuracy"), (double)right / SAMPLES, 1e-12);
    CHECK_NEAR(metric(e, "log_loss"), metric(e, "loss"), 1e-6);
    CHECK(json_object_get(json_object_get(e, "metrics"), "auc") == NULL);
    json_decref(e);
    run_result r = run_sluice(folder, "eval c.json");
    CHECK_CONTAINS(r.out, "mean over classes");
    CHECK_CONTAINS(r.out, "confusion matrix");
    run_free(&r);
    r = run_sluice(folder, "eval c.json --set 'evaluate.metrics=[\"recall_macro\"]'");
    CHECK_CONTAINS(r.out, "recall_macro");
    CHECK(strstr(r.out, "log_loss") == NULL);
    run_free(&r);
}

TEST(metrics_do_not_depend_on_the_size_of_batches)
{
    static const char *const exact[] = { "accuracy", "f1", "precision_macro", "recall", "auc", "log_loss" };
    char folder[4096];
    prepare(folder, 2);
    run_must(folder, "train c.json --quiet");
    json_t *a = evaluate(folder, "");
    json_t *b = evaluate(folder, "--set train_micro_batch_size_per_gpu=7 --set train_batch_size=7");
    REQUIRE(a != NULL && b != NULL);
    for (size_t i = 0; i < sizeof exact / sizeof exact[0]; i++)
        CHECK_NEAR(metric(a, exact[i]), metric(b, exact[i]), i < 5 ? 0 : 1e-7); /* logits of other GEMMs */
    CHECK(isfinite(metric(a, "auc")));
    json_decref(a);
    json_decref(b);
}

/* Lines of a text that contain `part`; the caller's. */
static char *lines_with(const char *text, const char *part)
{
    char *out = calloc(strlen(text) + 1, 1);
    for (const char *line = text, *end; out != NULL && *line != '\0'; line = end) {
        end = strchr(line, '\n');
        end = end != NULL ? end + 1 : line + strlen(line);
        char *found = strstr(line, part);
        if (found != NULL && found < end) strncat(out, line, (size_t)(end - line));
    }
    return out;
}

TEST(evaluations_of_a_run_tell_the_same_on_any_number_of_ranks)
{
    char folder[4096], *told[2];
    prepare(folder, 2);
    for (int i = 0; i < 2; i++) {
        run_result r = run_sluice(folder, i == 0 ? "train c.json --json --set 'evaluate.metrics=[\"auc\",\"f1\"]' "
                                                   "--set 'checkpoint.path=\"\"'"
                                                 : "train c.json --json --set 'evaluate.metrics=[\"auc\",\"f1\"]' "
                                                   "--set 'checkpoint.path=\"\"' --ranks 2");
        CHECK_EQ(r.status, 0);
        told[i] = lines_with(r.out, "\"event\":\"eval\"");
        run_free(&r);
    }
    REQUIRE(told[0] != NULL && told[1] != NULL);
    CHECK_CONTAINS(told[0], "\"auc\":0.");
    CHECK_STR(told[0], told[1]);
    free(told[0]);
    free(told[1]);
}

/* ---- predictions ---- */

static double area(const double *score, const int *target, int count)
{
    double pairs = 0, right = 0;
    for (int i = 0; i < count; i++)
        for (int k = 0; k < count; k++) {
            if (target[i] != 1 || target[k] != 0) continue;
            pairs++;
            right += score[i] > score[k] ? 1 : score[i] == score[k] ? 0.5 : 0;
        }
    return right / pairs;
}

TEST(predictions_are_a_row_for_every_sample_from_which_the_metrics_follow)
{
    char folder[4096], path[4200], row[MOST_ROW];
    double score[SAMPLES], probability;
    int target[SAMPLES], index, predicted, right = 0, count = 0;
    prepare(folder, 2);
    run_must(folder, "train c.json --quiet");
    json_t *e = evaluate(folder, "--predictions p.csv");
    REQUIRE(e != NULL);
    snprintf(path, sizeof path, "%s/p.csv", folder);
    FILE *f = fopen(path, "r");
    REQUIRE(f != NULL);
    CHECK(fgets(row, sizeof row, f) != NULL);
    CHECK_STR(row, "index,target,predicted,probability\n");
    for (; count < SAMPLES && fgets(row, sizeof row, f) != NULL; count++) {
        REQUIRE(sscanf(row, "%d,%d,%d,%lf", &index, &target[count], &predicted, &probability) == 4);
        CHECK_EQ(index, count);
        CHECK(probability >= 0.5 && probability <= 1);
        right += predicted == target[count];
        score[count] = predicted == 1 ? probability : 1 - probability;
    }
    CHECK(fgets(row, sizeof row, f) == NULL);
    fclose(f);
    CHECK_EQ(count, SAMPLES);
    CHECK_NEAR(metric(e, "accuracy"), (double)right / SAMPLES, 1e-12);
    CHECK_NEAR(metric(e, "auc"), area(score, target, SAMPLES), 1e-3); /* nine digits may make scores equal */
    json_decref(e);
}

TEST(predictions_of_values_are_numbers_as_rows_or_as_lines_of_json)
{
    char folder[4096], path[4200], row[MOST_ROW];
    double t[2], y[2], error = 0;
    int index, count = 0;
    snprintf(folder, sizeof folder, "%s", test_tmpdir());
    run_write(folder, "c.json", VALUES_CONFIG);
    run_must(folder, "train c.json --quiet");
    json_t *e = evaluate(folder, "--predictions p.csv");
    json_t *again = evaluate(folder, "--predictions p.jsonl");
    REQUIRE(e != NULL && again != NULL);
    snprintf(path, sizeof path, "%s/p.csv", folder);
    FILE *f = fopen(path, "r");
    REQUIRE(f != NULL);
    CHECK(fgets(row, sizeof row, f) != NULL);
    CHECK_STR(row, "index,target_0,target_1,prediction_0,prediction_1\n");
    for (; fgets(row, sizeof row, f) != NULL; count++) {
        REQUIRE(sscanf(row, "%d,%lf,%lf,%lf,%lf", &index, &t[0], &t[1], &y[0], &y[1]) == 5);
        error += fabs(t[0] - y[0]) + fabs(t[1] - y[1]);
    }
    fclose(f);
    CHECK_EQ(count, 40);
    CHECK_NEAR(metric(e, "mae"), error / 80, 1e-7);
    CHECK_NEAR(metric(e, "rmse"), sqrt(metric(e, "loss")), 1e-9);
    CHECK(metric(e, "r2") > 0.5);
    snprintf(path, sizeof path, "%s/p.jsonl", folder);
    char *lines = run_read(path);
    char *end = strchr(lines, '\n');
    REQUIRE(end != NULL);
    *end = '\0';
    json_t *first = parse(lines);
    CHECK_EQ(json_integer_value(json_object_get(first, "index")), 0);
    CHECK_EQ(json_array_size(json_object_get(first, "prediction")), 2);
    json_decref(first);
    free(lines);
    json_decref(e);
    json_decref(again);
}

TEST(a_file_of_predictions_is_written_whole_or_not_at_all_and_over_nothing_that_is_read)
{
    static const struct {
        const char *arguments, *says;
        int status;
    } wrong[] = {
        { "--predictions p.txt", "ends neither in .csv nor in .jsonl", 2 },
        { "--predictions there.csv --weights none.safetensors", "none.safetensors", 4 },
        { "--predictions config.csv", "would replace the configuration", 2 },
        { "--predictions pipe.csv", "named pipe", 2 },
        { "--predictions none/p.csv", "none/p.csv", 6 },
    };
    char folder[4096], path[4200];
    prepare(folder, 3);
    run_must(folder, "train c.json --quiet");
    run_write(folder, "there.csv", "as it was\n");
    snprintf(path, sizeof path, "%s/config.csv", folder);
    REQUIRE(symlink("c.json", path) == 0);
    snprintf(path, sizeof path, "%s/pipe.csv", folder);
    REQUIRE(mkfifo(path, 0600) == 0);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        char command[256];
        snprintf(command, sizeof command, "eval c.json %s", wrong[i].arguments);
        run_result r = run_sluice(folder, command);
        CHECK_THAT(r.status == wrong[i].status, "%s: status %d: %s", wrong[i].arguments, r.status, r.error);
        CHECK_CONTAINS(r.error, wrong[i].says);
        run_free(&r);
    }
    snprintf(path, sizeof path, "%s/there.csv", folder);
    char *text = run_read(path);
    CHECK_STR(text, "as it was\n");
    free(text);
    snprintf(path, sizeof path, "%s/there.csv.tmp", folder);
    CHECK(access(path, F_OK) != 0);
}

/* ---- ending early, keeping the best ---- */

/* Of `sluice train c.json --json <arguments>`: the lines with `part`; the caller's. */
static char *train(const char *folder, const char *arguments, const char *part)
{
    char command[1024];
    snprintf(command, sizeof command, "train c.json --json %s", arguments);
    run_result r = run_sluice(folder, command);
    if (r.status != 0) test_fail(__FILE__, __LINE__, "%s: status %d, %s", command, r.status, r.error);
    char *lines = lines_with(r.out, part);
    run_free(&r);
    return lines;
}

static void check_ending(const char *folder, const char *arguments, const char *event, const char *weights)
{
    char *told = train(folder, arguments, "\"event\":\"e");
    CHECK_THAT(strstr(told, event) != NULL, "%s: %s is not in %s", arguments, event, told);
    CHECK_THAT(strstr(told, weights) != NULL, "%s: %s is not in %s", arguments, weights, told);
    free(told);
}

/* The event and the hash of the run that goes through: "" where there is none. */
static void run_through(const char *folder, char event[512], char weights[128])
{
    char *told = train(folder, STOPS, "\"event\":\"e");
    const char *stop = strstr(told, "{\"event\":\"early_stop\""), *hash = strstr(told, "\"weights_sha256\"");
    snprintf(event, 512, "%.*s", stop != NULL ? (int)strcspn(stop, "\n") : 0, stop != NULL ? stop : "");
    snprintf(weights, 128, "%.*s", 83, hash != NULL ? hash : "");
    free(told);
}

TEST(a_run_ends_when_evaluations_bring_nothing_better_at_the_same_step_however_often_it_was_interrupted)
{
    char folder[4096], event[512], weights[128];
    prepare(folder, 3);
    run_through(folder, event, weights);
    REQUIRE(event[0] != '\0' && weights[0] != '\0');
    CHECK_CONTAINS(event, "\"step\":30,\"metric\":\"f1\"");
    CHECK_CONTAINS(event, "\"best_step\":15,\"evaluations\":3");
    /* two evaluations after the best; the one at step 27, the last of a part, would not be there in a run that goes through */
    free(train(folder, STOPS "--set checkpoint.path=b --set steps=22", "end"));
    free(train(folder, STOPS "--set checkpoint.path=b --set steps=27 --resume", "end"));
    check_ending(folder, STOPS "--set checkpoint.path=b --resume", event, weights);
    /* a run that has ended stays so; with more patience it goes on */
    check_ending(folder, STOPS "--set checkpoint.path=b --resume", event, weights);
    char *told =
        train(folder, STOPS "--set checkpoint.path=b --resume --set early_stopping.patience=100", "\"event\":\"end\"");
    CHECK_CONTAINS(told, "\"steps\":60");
    free(told);
    check_ending(folder, STOPS "--set checkpoint.path=d --ranks 2 --set zero_optimization.stage=2", event, weights);
}

TEST(another_metric_mode_and_least_change_end_a_run_elsewhere)
{
    char folder[4096];
    prepare(folder, 3);
    char *told = train(folder,
                       "--set early_stopping.patience=2 --set early_stopping.metric=loss --set early_stopping.mode=max "
                       "--set checkpoint.path=a",
                       "early_stop");
    CHECK_CONTAINS(told, "\"step\":15,\"metric\":\"loss\"");
    CHECK_CONTAINS(told, "\"best_step\":5,");
    free(told);
    told = train(folder, "--set early_stopping.patience=2 --set early_stopping.min_delta=10 --set checkpoint.path=b",
                 "early_stop");
    CHECK_CONTAINS(told, "\"step\":15,\"metric\":\"loss\"");
    free(told);
    run_result r = run_sluice(folder, "train c.json --set checkpoint.path=d " STOPS);
    CHECK_EQ(r.status, 0);
    CHECK_CONTAINS(r.out, "stopped early after step 30: 3 evaluations brought no better f1 than 0.88");
    run_free(&r);
}

static bool is_there(const char *folder, const char *name)
{
    char path[4300];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return access(path, F_OK) == 0;
}

static void check_link(const char *folder, const char *to)
{
    char path[4300], now[64] = "";
    snprintf(path, sizeof path, "%s/runs/best", folder);
    CHECK(readlink(path, now, sizeof now - 1) > 0);
    CHECK_STR(now, to);
}

TEST(the_best_checkpoint_is_kept_named_evaluated_exported_and_saved)
{
    char folder[4096], path[4300];
    prepare(folder, 3);
    run_must(folder, "train c.json --quiet " STOPS "--set save_best=true");
    check_link(folder, "step-15");
    CHECK(is_there(folder, "runs/step-15") && is_there(folder, "runs/step-20") && is_there(folder, "runs/step-30"));
    CHECK(!is_there(folder, "runs/step-10") && !is_there(folder, "runs/step-5"));
    json_t *best = evaluate(folder, "--best"), *saved = evaluate(folder, "--weights m.safetensors");
    json_t *newest = evaluate(folder, "");
    REQUIRE(best != NULL && saved != NULL && newest != NULL);
    CHECK_EQ(json_integer_value(json_object_get(best, "step")), 15);
    CHECK_NEAR(metric(best, "f1"), metric(saved, "f1"), 0);
    CHECK_NEAR(metric(best, "loss"), metric(saved, "loss"), 0);
    CHECK(metric(newest, "f1") < metric(best, "f1"));
    json_decref(best);
    json_decref(saved);
    json_decref(newest);
    run_must(folder, "export runs --best --out e.safetensors");
    run_must(folder, "verify runs/best");
    snprintf(path, sizeof path, "cd %s && cmp e.safetensors m.safetensors", folder);
    CHECK_EQ(system(path), 0);
}

/* Killed between the commit of a better step and its name: the link leads to the one before. */
TEST(a_resumed_run_names_the_best_checkpoint_anew_and_still_keeps_it)
{
    char folder[4096], path[4300];
    prepare(folder, 3);
    run_must(folder, "train c.json --quiet --set checkpoint.keep_best=true --set evaluate.metric=f1 --set steps=20");
    check_link(folder, "step-15");
    snprintf(path, sizeof path, "%s/runs/best", folder);
    REQUIRE(unlink(path) == 0 && symlink("step-10", path) == 0);
    run_must(folder, "train c.json --quiet --set checkpoint.keep_best=true --set evaluate.metric=f1 --set steps=25 "
                     "--set checkpoint.keep=1 --resume");
    check_link(folder, "step-15");
    CHECK(is_there(folder, "runs/step-15") && is_there(folder, "runs/step-25"));
    CHECK(!is_there(folder, "runs/step-20"));
}

TEST(settings_that_cannot_be_judged_by_are_refused_with_what_to_do)
{
    static const struct {
        const char *arguments, *says;
    } wrong[] = {
        { "--set evaluate.metric=mae", "evaluate.metric: this model has no mae; it has loss, accuracy" },
        { "--set evaluate.metric=auc", "this model has no auc" },
        { "--set 'evaluate.metrics=[\"r2\"]'", "evaluate.metrics: this model has no r2" },
        { "--set 'evaluate.metrics=[\"f2\"]'", "evaluate.metrics" },
        { "--set 'evaluate.metrics=[\"auto\"]'", "is no metric" },
        { "--set early_stopping.patience=2 --set evaluate.every=0", "evaluate.every is 0" },
        { "--set early_stopping.patience=2 --set data.validation=0", "no validation data" },
        { "--set early_stopping.mode=best", "early_stopping.mode" },
        { "--set checkpoint.keep_best=true --set 'checkpoint.path=\"\"'", "checkpoint.path is missing" },
        { "--set save_best=true --set 'save=\"\"'", "save is missing" },
    };
    char folder[4096];
    prepare(folder, 3);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        char command[512];
        snprintf(command, sizeof command, "train c.json --quiet %s", wrong[i].arguments);
        run_result r = run_sluice(folder, command);
        CHECK_THAT(r.status == 2, "%s: status %d", wrong[i].arguments, r.status);
        CHECK_CONTAINS(r.error, wrong[i].says);
        run_free(&r);
    }
    run_result r = run_sluice(folder, "eval c.json --best");
    CHECK_EQ(r.status, 4);
    CHECK_CONTAINS(r.error, "no best checkpoint");
    run_free(&r);
}

TEST(a_file_that_is_called_as_the_link_to_the_best_checkpoint_is_refused_before_the_first_step)
{
    char folder[4096], path[4300];
    prepare(folder, 3);
    snprintf(path, sizeof path, "%s/runs", folder);
    REQUIRE(mkdir(path, 0777) == 0);
    run_write(folder, "runs/best", "somebody's\n");
    run_result r = run_sluice(folder, "train c.json --json --set checkpoint.keep_best=true");
    CHECK_EQ(r.status, 2);
    CHECK_CONTAINS(r.error, "runs/best, which will be a link to the best checkpoint, is a");
    CHECK(strstr(r.out, "\"event\":\"step\"") == NULL);
    run_free(&r);
    snprintf(path, sizeof path, "%s/runs/best", folder);
    char *text = run_read(path);
    CHECK_STR(text, "somebody's\n");
    free(text);
}

/* The loss of a step over all samples, with weights that stay, is that of an evaluation, whatever its batches and their
 * padding. */
TEST(a_model_of_binary_scores_is_judged_by_its_own_loss_and_as_two_classes)
{
    char folder[4096];
    snprintf(folder, sizeof folder, "%s", test_tmpdir());
    run_write(folder, "c.json",
              "{\"model\": {\"type\": \"mlp\", \"features\": 4, \"hidden\": [8], \"outputs\": 1, \"loss\": \"bce\"},"
              "\"data\": {\"type\": \"regression\", \"samples\": 40}, \"steps\": 1, \"train_batch_size\": 40,"
              "\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0}}, \"threads\": 1,"
              "\"save\": \"m.safetensors\"}");
    run_result r = run_sluice(folder, "train c.json --json");
    CHECK_EQ(r.status, 0);
    const char *step = strstr(r.out, "{\"event\":\"step\"");
    REQUIRE(step != NULL);
    double loss = strtod(strstr(step, "\"loss\":") + strlen("\"loss\":"), NULL);
    run_free(&r);
    json_t *e = evaluate(folder, "--set train_batch_size=7 --set train_micro_batch_size_per_gpu=7");
    REQUIRE(e != NULL);
    CHECK_NEAR(metric(e, "loss"), loss, 1e-6);
    CHECK_EQ(json_integer_value(json_object_get(e, "samples")), 40);
    CHECK_EQ(cell(e, 0, 0) + cell(e, 0, 1) + cell(e, 1, 0) + cell(e, 1, 1), 40);
    CHECK(metric(e, "auc") >= 0 && metric(e, "auc") <= 1);
    json_decref(e);
}

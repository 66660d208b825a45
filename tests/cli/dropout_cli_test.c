/* dropout_cli_test.c: a folder's dropout is applied as its config.json says, unless it is typed; what is not applied is always told,
 * and what is saved says what was. */
#include <jansson.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/plain_files.h"
#include "support/run.h"
#include "test.h"

#define FAMILIES SLUICE_SOURCE_DIR "/tests/fixtures/families/"

/* root/model: a recorded folder whose config.json says these numbers. */
static const char *prepare(const char *family, const char *const *keys, const double *values, int count)
{
    static char root[1024];
    char path[1200];
    snprintf(root, sizeof root, "%.1000s", test_tmpdir());
    if (mkdir(at(root, "model"), 0777) != 0) exit(99);
    snprintf(path, sizeof path, FAMILIES "%s/model.safetensors", family);
    if (symlink(path, at(root, "model/model.safetensors")) != 0) exit(99);
    snprintf(path, sizeof path, FAMILIES "%s/config.json", family);
    json_t *config = json_load_file(path, 0, NULL);
    for (int i = 0; i < count; i++) json_object_set_new(config, keys[i], json_real(values[i]));
    if (json_dump_file(config, at(root, "model/config.json"), JSON_INDENT(2)) != 0) exit(99);
    json_decref(config);
    run_write(root, "config.json",
              "{\"model\": {\"path\": \"model\", \"context\": 12}, \"data\": {\"type\": \"random_tokens\", "
              "\"samples\": 16}, \"steps\": 3, \"threads\": 1, \"train_batch_size\": 4, \"optimizer\": {\"type\": "
              "\"AdamW\", \"params\": {\"lr\": 0.01}}}");
    return root;
}

static const char *gpt2(double stream, double embedding, double attention)
{
    return prepare("gpt2", (const char *const[]){ "resid_pdrop", "embd_pdrop", "attn_pdrop" },
                   (const double[]){ stream, embedding, attention }, 3);
}

static void hash_of(const char *root, const char *arguments, char hash[RUN_HASHES])
{
    run_hashes(root, arguments, hash);
    CHECK(strlen(hash) > 100);
}

TEST(a_folders_dropout_is_applied_as_if_it_had_been_typed)
{
    char folder[RUN_HASHES], typed[RUN_HASHES], none[RUN_HASHES], one[RUN_HASHES], ranks[RUN_HASHES];
    const char *root = gpt2(0.2, 0.4, 0);
    hash_of(root, "", folder);
    hash_of(root, "--set model.dropout=0.2 --set model.embedding_dropout=0.4", typed);
    CHECK_STR(folder, typed);
    hash_of(root, "--set model.dropout=0", none);
    CHECK(strcmp(folder, none) != 0);
    hash_of(root, "--set model.dropout=0.2", one); /* stands for all of it */
    CHECK(strcmp(folder, one) != 0 && strcmp(none, one) != 0);
    hash_of(root,
            "--ranks 2 --set train_micro_batch_size_per_gpu=2 --set zero_optimization.stage=3 --set "
            "activation_checkpointing.mode=recompute",
            ranks);
    hash_of(root, "--set train_micro_batch_size_per_gpu=2", typed);
    CHECK_STR(ranks, typed);
}

static void check_told(const char *root, const char *arguments, const char *said, const char *unsaid)
{
    run_result r = run_sluice(root, arguments);
    CHECK_THAT(r.status == 0, "%s: %d: %s", arguments, r.status, r.error);
    if (said != NULL) CHECK_CONTAINS(r.error, said);
    if (unsaid != NULL) CHECK_THAT(strstr(r.error, unsaid) == NULL, "%s: %s", arguments, r.error);
    run_free(&r);
}

TEST(dropout_that_is_not_applied_is_told_even_when_quiet)
{
    const char *root = gpt2(0.2, 0.4, 0.1);
    check_told(
        root, "train config.json --quiet",
        "warning: model/config.json: attn_pdrop is 0.1, which is not applied: dropout on attention's weights is not "
        "built in",
        NULL);
    check_told(root, "train config.json", "dropout is 0.2, 0.4 behind the embedding (config.json of model.path)", NULL);
    check_told(root, "train config.json --set model.dropout=0.2", NULL, "attn_pdrop");
    root = gpt2(0, 0, 0);
    check_told(root, "train config.json", NULL, "dropout");
    root = prepare("llama", (const char *const[]){ "attention_dropout" }, (const double[]){ 0.25 }, 1);
    check_told(root, "train config.json --quiet", "model/config.json: attention_dropout is 0.25, which is not applied",
               NULL);
    root = prepare("phi3-partial-window", (const char *const[]){ "resid_pdrop" }, (const double[]){ 0.3 }, 1);
    check_told(root, "train config.json --quiet",
               "model/config.json: resid_pdrop is 0.3, which is not applied: this family has no dropout here", NULL);
}

TEST(a_saved_folder_says_which_dropout_was_applied)
{
    const char *root = gpt2(0.2, 0.4, 0.1);
    run_must(root, "train config.json --quiet --set save=as-it-says/");
    char *text = run_read(at(root, "as-it-says/config.json"));
    CHECK_CONTAINS(text, "\"resid_pdrop\": 0.2");
    CHECK_CONTAINS(text, "\"embd_pdrop\": 0.4");
    CHECK_CONTAINS(text, "\"attn_pdrop\": 0.1");
    free(text);
    run_must(root, "train config.json --quiet --set save=by-hand/ --set model.dropout=0.3");
    text = run_read(at(root, "by-hand/config.json"));
    CHECK_CONTAINS(text, "\"resid_pdrop\": 0.3");
    CHECK_CONTAINS(text, "\"embd_pdrop\": 0.3");
    free(text);
}

TEST(evaluation_drops_nothing)
{
    const char *root = gpt2(0.9, 0.9, 0);
    run_result with = run_sluice(root, "eval config.json --json --quiet --set data.validation=0.5");
    run_result without =
        run_sluice(root, "eval config.json --json --quiet --set data.validation=0.5 --set model.dropout=0");
    CHECK_EQ(with.status, 0);
    CHECK_CONTAINS(with.out, "\"loss\"");
    CHECK_STR(with.out, without.out);
    run_free(&with);
    run_free(&without);
}

TEST(rates_of_places_that_a_family_has_not_are_refused)
{
    const char *root = prepare("llama", NULL, NULL, 0);
    run_result r = run_sluice(root, "train config.json --set model.embedding_dropout=0.1");
    CHECK_EQ(r.status, 2);
    CHECK_CONTAINS(r.error, "model.embedding_dropout has no meaning for model.type llama");
    run_free(&r);
    root = gpt2(0, 0, 0);
    r = run_sluice(root, "train config.json --set model.classifier_dropout=0.1");
    CHECK_EQ(r.status, 2);
    CHECK_CONTAINS(r.error, "model.classifier_dropout has no meaning for model.type gpt2");
    run_free(&r);
}

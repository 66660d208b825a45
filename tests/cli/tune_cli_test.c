/* tune_cli_test.c: sluice tune through the program: what it measures, keeps and leaves alone, and what train makes of it. */
#include <sys/stat.h>
#include <unistd.h>

#include "support/run.h"
#include "test.h"

#define TUNED                                                                                                          \
    ", \"train_micro_batch_size_per_gpu\": 1, \"checkpoint\": {\"path\": \"runs\"}, \"timeout_seconds\": 30, "         \
    "\"device\": \"cpu\""

static void hash_of(const char *text, char out[65])
{
    const char *at = strstr(text, "\"weights_sha256\":\"");
    snprintf(out, 65, "%s", at != NULL ? at + strlen("\"weights_sha256\":\"") : "");
}

TEST(auto_and_every_stage_by_hand_end_in_the_same_bits)
{
    char folder[4096], first[65], hash[65];
    snprintf(folder, sizeof folder, "%s", test_tmpdir());
    run_write_config(folder, "c.json", ", \"train_micro_batch_size_per_gpu\": 1, \"timeout_seconds\": 30");
    run_result r = run_sluice(folder, "train c.json --json --ranks 2");
    CHECK_EQ(r.status, 0);
    CHECK_CONTAINS(r.out, "\"candidates\":[{\"settings\":{\"zero_optimization.stage\": ");
    hash_of(r.out, first);
    CHECK_EQ(strlen(first), 64);
    run_free(&r);
    for (int stage = 0; stage <= 3; stage++) {
        char arguments[128];
        snprintf(arguments, sizeof arguments, "train c.json --json --ranks 2 --set zero_optimization.stage=%d", stage);
        r = run_sluice(folder, arguments);
        CHECK_EQ(r.status, 0);
        snprintf(arguments, sizeof arguments, "\"stage\":%d,", stage);
        CHECK_CONTAINS(r.out, arguments);
        hash_of(r.out, hash);
        CHECK_STR(hash, first);
        run_free(&r);
    }
}

TEST(tune_measures_keeps_the_fastest_and_train_takes_it)
{
    char folder[4096], path[4200], hash[65], plain[65];
    snprintf(folder, sizeof folder, "%s", test_tmpdir());
    run_write_config(folder, "c.json", TUNED);
    run_result r = run_sluice(folder, "train c.json --json --set checkpoint.path=\"other\"");
    hash_of(r.out, plain);
    run_free(&r);
    r = run_sluice(folder, "tune c.json --ranks 2 --steps 2 --keep 3");
    CHECK_EQ(r.status, 0);
    CHECK_CONTAINS(r.out, "expected     measured");
    CHECK_CONTAINS(r.out, "fastest");
    CHECK_CONTAINS(r.out, "kept in runs/tuned.json");
    run_free(&r);
    snprintf(path, sizeof path, "%s/runs/tuned.json", folder);
    char *kept = run_read(path);
    CHECK_CONTAINS(kept, "\"settings\": {\"zero_optimization.stage\": ");
    free(kept);
    r = run_sluice(folder, "train c.json --json --ranks 2");
    CHECK_EQ(r.status, 0);
    CHECK_CONTAINS(r.error, "note: tuned: stage ");
    hash_of(r.out, hash);
    CHECK_STR(hash, plain);
    run_free(&r);
}

TEST(tune_writes_nothing_but_its_result)
{
    char folder[4096], path[4200];
    snprintf(folder, sizeof folder, "%s", test_tmpdir());
    run_write_config(folder, "c.json", TUNED ", \"save\": \"model.safetensors\"");
    snprintf(path, sizeof path, "%s/runs", folder);
    REQUIRE(mkdir(path, 0777) == 0);
    run_write(folder, "runs/profile.json", "of a run");
    run_result r = run_sluice(folder, "tune c.json --steps 2 --json");
    CHECK_EQ(r.status, 0);
    CHECK_THAT(strstr(r.error, "profile") == NULL, "%s", r.error);
    CHECK_CONTAINS(r.out, "{\"event\":\"tune\",\"ranks\":1,\"path\":\"runs/tuned.json\",\"candidates\":[{");
    CHECK_CONTAINS(r.out, "\"measured_seconds\":");
    run_free(&r);
    snprintf(path, sizeof path, "%s/runs/profile.json", folder);
    char *profile = run_read(path);
    CHECK_STR(profile, "of a run");
    free(profile);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    CHECK(access(path, F_OK) != 0);
    r = run_sluice(folder, "tune c.json --steps 2 --set checkpoint.path=\"\"");
    CHECK_EQ(r.status, 0);
    CHECK_CONTAINS(r.out, "checkpoint.path is not set");
    run_free(&r);
}

TEST(a_tuned_file_of_something_else_is_ignored_and_a_damaged_one_refused)
{
    char folder[4096];
    snprintf(folder, sizeof folder, "%s", test_tmpdir());
    run_write_config(folder, "c.json", TUNED);
    run_must(folder, "tune c.json --ranks 2 --steps 2 --keep 2");
    run_result r = run_sluice(folder, "plan c.json --ranks 4 --set train_batch_size=4");
    CHECK_EQ(r.status, 0);
    CHECK_CONTAINS(r.error, "another number of ranks, and is ignored");
    run_free(&r);
    r = run_sluice(folder, "plan c.json --ranks 2 --set model.hidden=[9]");
    CHECK_EQ(r.status, 0);
    CHECK_CONTAINS(r.error, "another model or other settings, and is ignored");
    run_free(&r);
    r = run_sluice(folder, "plan c.json --ranks 2 --set zero_optimization.stage=3");
    CHECK_EQ(r.status, 0);
    CHECK_CONTAINS(r.out, "2 ranks, stage 3"); /* what is given stays */
    run_free(&r);
    run_write(folder, "runs/tuned.json", "{\"sluice_tuned\": 1,");
    r = run_sluice(folder, "train c.json --ranks 2");
    CHECK_EQ(r.status, 4);
    CHECK_CONTAINS(r.error, "runs/tuned.json");
    CHECK_CONTAINS(r.error, "make it anew with sluice tune");
    CHECK(strchr(r.error, '\n') != NULL && strchr(strchr(r.error, '\n') + 1, '\n') == NULL); /* one message */
    run_free(&r);
}

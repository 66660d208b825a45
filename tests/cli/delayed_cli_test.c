/* delayed_cli_test.c: runs with delayed updates, and what the other commands make of their checkpoints. */
#include "support/run.h"
#include "test.h"

#define DELAYED ", \"zero_optimization\": {\"update\": \"delayed\", \"delay_warmup\": 2}"

/* Everything that reads weights gets those with all updates, as `save` wrote them. */
TEST(a_checkpoint_with_a_delayed_update_in_flight_is_inspected_verified_and_exported)
{
    char folder[4200], command[9000];
    snprintf(folder, sizeof folder, "%s", test_tmpdir());
    run_write_config(folder, "c.json",
                     DELAYED ", \"checkpoint\": {\"path\": \"run\"}, \"save\": \"saved.safetensors\"");
    run_must(folder, "train c.json > train.txt");
    run_must(folder, "verify run > verified.txt");
    run_must(folder, "export run --out exported.safetensors > export.txt");
    run_must(folder, "eval c.json > eval.txt");
    run_result inspected = run_sluice(folder, "inspect run/step-5");
    CHECK_EQ(inspected.status, 0);
    CHECK_CONTAINS(inspected.out, "visible    \"fc1.weight\"");
    run_free(&inspected);
    snprintf(command, sizeof command, "cmp '%s/saved.safetensors' '%s/exported.safetensors'", folder, folder);
    CHECK_EQ(system(command), 0);
}

TEST(a_plan_tells_that_updates_are_delayed)
{
    char path[4200];
    snprintf(path, sizeof path, "%s", test_tmpdir());
    run_write_config(path, "c.json", DELAYED);
    run_result r = run_sluice(path, "plan c.json");
    CHECK_EQ(r.status, 0);
    CHECK_CONTAINS(r.out, "updates: delayed by one step after the first 2");
    run_free(&r);
}

/* threads_test.c: threads that take most of the memory are named as the cause. */
#include "core/thread.h"
#include "machine/machine.h"
#include "sluice.h"
#include "test.h"

static sluice_status plan_with(int threads)
{
    char path[4200], assignment[32];
    sluice_config *c;
    sluice_job_options o;
    snprintf(path, sizeof path, "%s/a.json", test_tmpdir());
    FILE *f = fopen(path, "w"), *out = fopen("/dev/null", "w");
    fputs("{\"model\": {\"type\": \"mlp\", \"features\": 4}, \"data\": {\"type\": \"regression\"}, \"steps\": 1, "
          "\"train_batch_size\": 4, \"optimizer\": {\"type\": \"SGD\"}}",
          f);
    fclose(f);
    snprintf(assignment, sizeof assignment, "threads=%d", threads);
    sluice_job_options_init(&o);
    o.out = out;
    sluice_status st = sluice_config_load(path, &c);
    if (st == SLUICE_OK) st = sluice_config_set(c, assignment);
    if (st == SLUICE_OK) st = sluice_job_plan(c, &o);
    sluice_config_destroy(c);
    fclose(out);
    return st;
}

/* The most that are allowed: too many for some machines, and not for others. Half of the memory is the bound; near it
 * the answer is the machine's. */
TEST(threads_that_take_the_memory_are_named)
{
    double share = (double)sl_pool_overhead_bytes(SL_MAX_THREADS) / (double)sl_memory_available();
    sluice_status st = plan_with(SL_MAX_THREADS);
    CHECK(st == SLUICE_OK ? share < 0.55 : share > 0.45);
    if (st == SLUICE_OK) return;
    CHECK_EQ(st, SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "threads: 4096 threads take ");
    CHECK_CONTAINS(sluice_error(), " of scratch memory, and a rank has ");
}

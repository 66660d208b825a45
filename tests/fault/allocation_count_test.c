/* No allocation happens in a step: twice the steps, the same number of requests for memory, seen from outside the
 * program. */
#include <unistd.h>

#include "support/fault_program.h"
#include "support/sanitized.h"
#include "test.h"

#define LIBRARY SLUICE_BINARY_DIR "/count_alloc.so"

/* Two threads, so that the pool's hand-over is part of what is counted. */
static const char config[] =
    "{\"model\": {\"type\": \"gpt2\", \"layers\": 2, \"heads\": 2, \"width\": 32, \"context\": 16, \"dropout\": 0.1},\n"
    " \"data\": {\"type\": \"text\", \"path\": \"input.txt\", \"validation\": 0.1}, \"evaluate\": {\"batches\": 2},\n"
    " \"steps\": 100, \"train_batch_size\": 4, \"threads\": 2, \"optimizer\": {\"type\": \"AdamW\"},\n"
    " \"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"warmup_num_steps\": 50}}}\n";

/* Runs `steps` steps and reads the counts; also hands back the plan's events. */
static bool count(const char *folder, int steps, const char *settings, char out[512], program *p)
{
    char arguments[1024], path[1100];
    snprintf(path, sizeof path, "%s/counts", folder);
    unlink(path);
    snprintf(arguments, sizeof arguments, "train c.json --json --set steps=%d%s", steps, settings);
    setenv("SLUICE_ALLOC_COUNTS", path, 1);
    setenv("LD_PRELOAD", LIBRARY, 1);
    int status = program_run(p, folder, arguments);
    unsetenv("LD_PRELOAD");
    unsetenv("SLUICE_ALLOC_COUNTS");
    CHECK_EQ(status, 0);
    CHECK_EQ(p->step, steps);
    FILE *f = fopen(path, "r");
    size_t n = f != NULL ? fread(out, 1, 511, f) : 0;
    out[n] = '\0';
    if (f != NULL) fclose(f);
    return n > 0;
}

static void check_equal(const char *settings, bool staged)
{
    char folder[1024], few[512], many[512];
    program p;
    memory_folder(folder);
    write_text(folder, "c.json", config);
    write_corpus(folder, 20000);
    REQUIRE(count(folder, 100, settings, few, &p));
    REQUIRE(count(folder, 200, settings, many, &p));
    CHECK_STR(many, few);
    CHECK(strstr(few, "posix_memalign 0 ") == NULL); /* the library was really there */
    CHECK_EQ(p.host_bytes > 0, staged);
}

TEST(a_step_allocates_nothing)
{
    if (SANITIZED) SKIP(plain_build, "a preload library cannot stand before the address sanitizer's");
    check_equal("", false);
}

TEST(a_step_with_parameters_on_the_host_allocates_nothing)
{
    if (SANITIZED) SKIP(plain_build, "a preload library cannot stand before the address sanitizer's");
    check_equal(" --set memory.device=320KiB", true);
}

TEST(a_step_of_several_micro_batches_allocates_nothing)
{
    if (SANITIZED) SKIP(plain_build, "a preload library cannot stand before the address sanitizer's");
    check_equal(" --set gradient_accumulation_steps=2 --set activation_checkpointing.mode=recompute", false);
}

static unsigned long long count_of(const char *counts, const char *name)
{
    const char *at = strstr(counts, name);
    return at != NULL ? strtoull(at + strlen(name), NULL, 10) : 0;
}

/* The counter's own test: a program that allocates once an event has exactly as many more as it has more events. */
TEST(one_allocation_a_step_would_be_seen)
{
    char folder[1024], few[512], many[512];
    program p;
    if (SANITIZED) SKIP(plain_build, "a preload library cannot stand before the address sanitizer's");
    memory_folder(folder);
    write_text(folder, "c.json", config);
    write_corpus(folder, 20000);
    setenv("SLUICE_ALLOC_PER_FLUSH", "1", 1);
    bool counted = count(folder, 20, "", few, &p);
    int events = p.events;
    counted = counted && count(folder, 40, "", many, &p);
    unsetenv("SLUICE_ALLOC_PER_FLUSH");
    REQUIRE(counted);
    CHECK(p.events >= events + 20);
    CHECK_EQ(count_of(many, "malloc ") - count_of(few, "malloc "), p.events - events);
}

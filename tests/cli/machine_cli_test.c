/* machine_cli_test.c: rates from a file: they decide what is expected, never what is computed. */
#include "support/run.h"
#include "test.h"

#define GENERAL                                                                                                        \
    "{\"sluice_machine\": 1, \"gemm_flops\": 1e9, \"vector_flops\": 1e9, \"device_bytes_per_second\": 1e9,"            \
    "\"update_bytes_per_second\": 1e9, \"to_device_bytes_per_second\": 1e9, \"to_host_bytes_per_second\": 1e9,"        \
    "\"comm_bytes_per_second\": 1e9, \"link_latency\": 0, \"kernel_latency\": 0, \"comm_latency\": 0,"                 \
    "\"device_bytes\": \"4GiB\", \"host_bytes\": \"4GiB\", \"shared_memory\": true, \"copies_overlap\": true"
/* a second for each floating-point operation */
#define SLOW ", \"kernels\": {\"linear\": [[1, 1]]}"

static void new_folder(char folder[4096])
{
    snprintf(folder, 4096, "%s", test_tmpdir());
}

static void field(const char *text, const char *name, char out[256])
{
    const char *at = strstr(text, name);
    out[0] = '\0';
    if (at != NULL) snprintf(out, 256, "%.*s", (int)strcspn(at + strlen(name), "\",}"), at + strlen(name));
}

TEST(plan_and_train_expect_what_the_rates_of_the_file_say)
{
    char folder[4096], planned[256], trained[256], usual[256], slow_hash[256], usual_hash[256];
    new_folder(folder);
    run_write_config(folder, "a.json", "");
    run_write(folder, "slow.json", GENERAL SLOW "}");
    run_result plan = run_sluice(folder, "plan a.json --json --machine slow.json"),
               slow = run_sluice(folder, "train a.json --json --machine slow.json"),
               plain = run_sluice(folder, "train a.json --json");
    CHECK_EQ(plan.status, 0);
    CHECK_EQ(slow.status, 0);
    CHECK_STR(slow.error, "");
    field(plan.out, "\"step_seconds\":", planned);
    field(slow.out, "\"step_seconds\":", trained);
    field(plain.out, "\"step_seconds\":", usual);
    CHECK_STR(trained, planned);
    CHECK(atof(trained) > 10 && atof(usual) < 1);
    field(slow.out, "\"weights_sha256\":\"", slow_hash);
    field(plain.out, "\"weights_sha256\":\"", usual_hash);
    CHECK_EQ(strlen(usual_hash), 64);
    CHECK_STR(slow_hash, usual_hash);
    run_free(&plan);
    run_free(&slow);
    run_free(&plain);
}

TEST(rates_measured_with_other_ranks_are_warned_of)
{
    char folder[4096];
    new_folder(folder);
    run_write_config(folder, "a.json", "");
    run_write(folder, "two.json", GENERAL ", \"measured_ranks\": 2, \"measured_threads\": 1}");
    run_result alone = run_sluice(folder, "train a.json --quiet --machine two.json"),
               planned = run_sluice(folder, "plan a.json --ranks 2 --quiet --machine two.json");
    CHECK_EQ(alone.status, 0);
    CHECK_CONTAINS(alone.error, "warning: the rates were measured with 2 rank(s)");
    CHECK_CONTAINS(alone.error, "devices --measure --ranks 1");
    CHECK_EQ(planned.status, 0);
    CHECK_STR(planned.error, "");
    run_free(&alone);
    run_free(&planned);
}

/* More than any machine has. */
#define ABOVE "--set memory.device=2048TiB --set memory.host=4096TiB"

static int lines_of(const char *text)
{
    int lines = 0;
    for (; *text != '\0'; text++) lines += *text == '\n';
    return lines;
}

TEST(a_plan_for_more_memory_than_this_machine_has_is_made_as_told_and_says_so)
{
    char folder[4096];
    new_folder(folder);
    run_write_config(folder, "a.json", "");
    run_write(folder, "small.json", GENERAL "}");
    run_result here = run_sluice(folder, "plan a.json " ABOVE),
               there = run_sluice(folder, "plan a.json --ranks 2 --machine small.json " ABOVE);
    CHECK_EQ(here.status, 0);
    CHECK_CONTAINS(here.out, "2048.00 TiB    4096.00 TiB");
    CHECK_CONTAINS(here.error, "warning: memory.device and memory.host are together 6144.00 TiB");
    CHECK_CONTAINS(here.error, "planned as told, but train here would refuse");
    CHECK_EQ(lines_of(here.error), 1);
    CHECK_EQ(there.status, 0);
    CHECK_CONTAINS(there.out, "2048.00 TiB    4096.00 TiB");
    CHECK_CONTAINS(there.error, "but the described machine has only 3.");
    CHECK_EQ(lines_of(there.error), 1);
    run_free(&here);
    run_free(&there);
}

/* The number behind `text`; 0 where it is not there. */
static unsigned long long number_behind(const char *said, const char *text)
{
    unsigned long long n = 0;
    const char *at = strstr(said, text);
    const char *bytes = at != NULL ? strchr(at + strlen(text), '(') : NULL;
    if (bytes != NULL) sscanf(bytes, "(%llu bytes)", &n);
    return n;
}

TEST(a_run_that_is_told_of_more_memory_than_there_is_is_refused_with_both_numbers)
{
    char folder[4096], arguments[256];
    new_folder(folder);
    run_write_config(folder, "a.json", "");
    run_result alone = run_sluice(folder, "train a.json --set memory.host=4096TiB"),
               two = run_sluice(folder, "train a.json --ranks 2 --set memory.device=2048TiB");
    unsigned long long room = number_behind(alone.error, " has only ");
    CHECK_EQ(alone.status, 3);
    CHECK_CONTAINS(alone.error, "does not fit: memory.host is 4096.00 TiB (4503599627370496 bytes), but ");
    CHECK_CONTAINS(alone.error, "Lower memory.host, or leave it out");
    CHECK(room > 0);
    CHECK_EQ(two.status, 3);
    CHECK_CONTAINS(two.error, "memory.device is 2048.00 TiB");
    CHECK_CONTAINS(two.error, "free for each of 2 ranks");
    CHECK(number_behind(two.error, " has only ") < room * 3 / 4);
    CHECK_EQ(lines_of(alone.error) + lines_of(two.error), 2);
    run_free(&alone);
    run_free(&two);
    /* each of them is there, both are not: without a GPU all is RAM */
    snprintf(arguments, sizeof arguments,
             "train a.json --set device=cpu --set memory.device=%llu --set memory.host=%llu", room / 10 * 7,
             room / 10 * 7);
    run_result both = run_sluice(folder, arguments);
    CHECK_EQ(both.status, 3);
    CHECK_CONTAINS(both.error, "memory.device and memory.host are together ");
    run_free(&both);
}

TEST(a_file_that_is_no_machine_stops_all_ranks_of_a_run)
{
    char folder[4096];
    new_folder(folder);
    run_write_config(folder, "a.json", "");
    run_write(folder, "bad.json", GENERAL ",\n\"kernels\": {\"linear\": 1}}");
    run_result r = run_sluice(folder, "train a.json --ranks 2 --machine bad.json");
    CHECK_EQ(r.status, 4);
    CHECK_CONTAINS(r.error, "bad.json:2: kernels.linear must be a list");
    run_free(&r);
}

TEST(ranks_of_devices_need_a_measurement)
{
    char folder[4096];
    new_folder(folder);
    run_result r = run_sluice(folder, "devices --ranks 2");
    CHECK_EQ(r.status, 2);
    CHECK_CONTAINS(r.error, "--measure");
    run_free(&r);
}

TEST(the_device_to_measure_is_one_there_is)
{
    char folder[4096];
    new_folder(folder);
    run_result alone = run_sluice(folder, "devices --device cpu"),
               misspelt = run_sluice(folder, "devices --measure --device gpu");
    CHECK_EQ(alone.status, 2);
    CHECK_CONTAINS(alone.error, "--measure");
    CHECK_EQ(misspelt.status, 2);
    CHECK_CONTAINS(misspelt.error, "give auto, cpu or cuda");
    run_free(&alone);
    run_free(&misspelt);
}

/* A plugin that cannot be loaded stands for a machine without CUDA. */
TEST(devices_says_why_there_is_no_gpu)
{
    char folder[4096];
    new_folder(folder);
    run_write(folder, "libsluice_cuda.so", "");
    setenv("SLUICE_PLUGINS", folder, 1);
    run_result r = run_sluice(folder, "devices"), asked = run_sluice(folder, "devices --measure --device cuda");
    unsetenv("SLUICE_PLUGINS");
    CHECK_EQ(r.status, 0);
    CHECK_STR(r.error, "");
    CHECK_CONTAINS(r.out, "gpu: none: the CUDA part of sluice is not here");
    CHECK_CONTAINS(r.out, "loaded at run time where present: cuda, nccl, mpi");
    CHECK_EQ(asked.status, 2);
    CHECK_CONTAINS(asked.error, "the CUDA part of sluice is not here");
    run_free(&r);
    run_free(&asked);
}

TEST(devices_says_what_is_used_and_what_there_is)
{
    char folder[4096];
    new_folder(folder);
    run_result r = run_sluice(folder, "devices");
    CHECK_EQ(r.status, 0);
    CHECK_CONTAINS(r.out, "instruction path");
    CHECK_CONTAINS(r.out, "(available: scalar");
    CHECK_CONTAINS(r.out, "huge pages");
    CHECK_CONTAINS(r.out, "for arenas that ranks share: ");
    CHECK_CONTAINS(r.out, "NUMA");
    CHECK_CONTAINS(r.out, "hwloc");
    CHECK_CONTAINS(r.out, "io_uring");
    run_free(&r);
}

TEST(devices_measures_the_disk_of_a_folder_and_remembers_it)
{
    char folder[4096];
    new_folder(folder);
    setenv("XDG_CACHE_HOME", folder, 1);
    run_result before = run_sluice(folder, "devices"), measured = run_sluice(folder, "devices --measure ."),
               after = run_sluice(folder, "devices"), missing = run_sluice(folder, "devices --measure nowhere"),
               alone = run_sluice(folder, "devices ."), too_much = run_sluice(folder, "devices --measure . --ranks 2");
    unsetenv("XDG_CACHE_HOME");
    CHECK(strstr(before.out, "disk: ") == NULL);
    CHECK_EQ(measured.status, 0);
    CHECK_CONTAINS(measured.out, "disk: .\n  alone                reads ");
    CHECK_CONTAINS(measured.out, "  both at once         reads ");
    CHECK_CONTAINS(measured.out, ", kept in ");
    CHECK_CONTAINS(after.out, "disk: ");
    CHECK_CONTAINS(after.out, "  measured before, for 1 rank; ");
    CHECK_EQ(missing.status, 2);
    CHECK_CONTAINS(missing.error, "nowhere");
    CHECK_EQ(alone.status, 2);
    CHECK_CONTAINS(alone.error, "--measure");
    CHECK_EQ(too_much.status, 2);
    CHECK_CONTAINS(too_much.error, "leave out --machine, --device and --ranks");
    run_result *all[] = { &before, &measured, &after, &missing, &alone, &too_much };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) run_free(all[i]);
}

/* A GPU that is described, so that plans for it are made anywhere: memory for a part of the model below. */
#define CARD                                                                                                           \
    "{\"sluice_machine\": 1, \"gemm_flops\": 5e13, \"gemm_16bit_flops\": 7e14, \"vector_flops\": 5e13,"                \
    "\"device_bytes_per_second\": 3.8e12, \"update_bytes_per_second\": 1.3e11, \"to_device_bytes_per_second\": "       \
    "5.5e10,"                                                                                                          \
    "\"to_host_bytes_per_second\": 5.5e10, \"comm_bytes_per_second\": 1e10, \"link_latency\": 4e-6,"                   \
    "\"kernel_latency\": 3e-6, \"comm_latency\": 3e-5, \"device_bytes\": \"141GiB\", \"host_bytes\": \"125GiB\","      \
    "\"shared_memory\": false, \"copies_overlap\": true, \"cuda\": true, \"kernels_take_turns\": false}"
#define LLAMA_1B                                                                                                       \
    "{\"model\": {\"type\": \"llama\", \"layers\": 16, \"heads\": 32, \"kv_heads\": 8, \"width\": 2048,"               \
    "\"feed_forward\": 8192, \"context\": 2048, \"vocabulary\": \"128256\"}, \"data\": {\"type\": \"random_tokens\","  \
    "\"samples\": 1000}, \"steps\": 3, \"train_micro_batch_size_per_gpu\": 8, \"bf16\": {\"enabled\": true},"          \
    "\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 3e-4}}, \"gradient_clipping\": 1, \"device\": "         \
    "\"cuda\"}"

static double expected_seconds(const char *folder, int gigabytes, const char *told)
{
    char command[512], seconds[256];
    snprintf(command, sizeof command, "plan a.json --json --machine card.json --set memory.device=%dGiB %s", gigabytes,
             told);
    run_result r = run_sluice(folder, command);
    CHECK_EQ(r.status, 0);
    field(r.out, "\"step_seconds\":", seconds);
    run_free(&r);
    return atof(seconds);
}

/* Where memory is tight, sending activations away needs room of its own: a search that only adds measures ends far
 * from what recomputation alone gives. */
TEST(a_plan_that_chooses_is_as_fast_as_one_that_is_told_what_to_do)
{
    static const char *const told[] = { "--set activation_checkpointing.mode=recompute",
                                        "--set zero_optimization.offload_optimizer.device=cpu" };
    char folder[4096];
    new_folder(folder);
    run_write(folder, "card.json", CARD);
    run_write(folder, "a.json", LLAMA_1B);
    for (int gigabytes = 8; gigabytes <= 16; gigabytes += 4) {
        double chosen = expected_seconds(folder, gigabytes, "");
        for (int i = 0; i < 2; i++) {
            double other = expected_seconds(folder, gigabytes, told[i]);
            if (!(chosen > 0 && chosen <= 1.01 * other))
                test_fail(__FILE__, __LINE__, "%d GiB: %g s, and %g with %s", gigabytes, chosen, other, told[i]);
        }
    }
}

/* Where recomputation alone fits, too, a mix may be faster. */
TEST(a_plan_with_more_memory_is_not_slower)
{
    char folder[4096];
    double before = 0;
    new_folder(folder);
    run_write(folder, "card.json", CARD);
    run_write(folder, "a.json", LLAMA_1B);
    for (int gigabytes = 14; gigabytes <= 26; gigabytes += 4) {
        double seconds =
            expected_seconds(folder, gigabytes, "--set gradient_clipping=0 --set bf16.check_grad_overflow=false");
        if (before > 0 && seconds > 1.005 * before)
            test_fail(__FILE__, __LINE__, "%d GiB: %g s, and %g in 4 less", gigabytes, seconds, before);
        before = seconds;
    }
}

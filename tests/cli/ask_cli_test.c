/* ask_cli_test.c: does it fit, how fast, how long: plans for machines and models by name, the verdict, what could be chosen
 * otherwise. */
#include <stdlib.h>

#include "support/run.h"
#include "test.h"

static char *first_line(char *text)
{
    text[strcspn(text, "\n")] = '\0';
    return text;
}

static int count_of(const char *text, const char *part)
{
    int count = 0;
    for (const char *at = text; (at = strstr(at, part)) != NULL; at += strlen(part)) count++;
    return count;
}

TEST(a_model_and_a_gpu_by_name_are_enough_for_a_plan)
{
    run_result r = run_sluice(test_tmpdir(), "plan --model GPT2-XL --gpu 'GeForce RTX 4090' --ram 64GiB --quiet"),
               json = run_sluice(test_tmpdir(), "plan --model gpt2-xl --gpu rtx4090 --ram 64GiB --json --quiet");
    CHECK_EQ(r.status, 0);
    CHECK_CONTAINS(r.out, "plan: 1557611200 parameters");
    CHECK_CONTAINS(r.out, "precision: weights and activations bf16");
    CHECK(strncmp(first_line(r.out), "fits: ", 6) == 0);
    CHECK_CONTAINS(r.out, " GiB of 23.99 on the GPU, ");
    CHECK_CONTAINS(r.out, " GiB of 64 RAM; ");
    CHECK_CONTAINS(r.out, " tokens/s, limited by the ");
    CHECK_CONTAINS(r.out, "; 1,000 steps take ");
    CHECK_EQ(json.status, 0);
    CHECK_CONTAINS(json.out, "\"fits\":true,\"needs_bytes\":{\"device\":");
    CHECK_CONTAINS(json.out,
                   "\"has_bytes\":{\"device\":25757220864,\"host\":68719476736,\"disk\":0},\"limited_by\":\"the ");
    CHECK_CONTAINS(json.out, "\"verdict\":\"fits: ");
    run_free(&r);
    run_free(&json);
}

/* As shops and data sheets say it. */
TEST(ram_may_be_told_in_units_of_a_thousand)
{
    run_result r = run_sluice(test_tmpdir(), "plan --model gpt2-xl --gpu rtx4090 --ram 64GB --json --quiet"),
               bad = run_sluice(test_tmpdir(), "plan --model gpt2-xl --gpu rtx4090 --ram 64XB --quiet");
    CHECK_EQ(r.status, 0);
    CHECK_CONTAINS(r.out, "\"host\":64000000000,");
    CHECK_EQ(bad.status, 2);
    CHECK_CONTAINS(bad.error, "--ram: \"64XB\" is not a size");
    run_free(&r);
    run_free(&bad);
}

TEST(a_configuration_is_planned_for_a_gpu_that_is_not_here)
{
    char folder[4096];
    snprintf(folder, sizeof folder, "%s", test_tmpdir());
    run_write_config(folder, "a.json", "");
    run_result one = run_sluice(folder, "plan a.json --gpu h100"),
               four = run_sluice(folder, "plan a.json --gpu h100 --gpus 4 --set train_batch_size=16"),
               here = run_sluice(folder, "plan a.json");
    CHECK_EQ(one.status, 0);
    CHECK_CONTAINS(one.out, " of 79.65 on the GPU");
    CHECK_EQ(four.status, 0);
    CHECK_CONTAINS(four.out, "on each of 4 GPUs");
    CHECK_CONTAINS(four.out, " 4 ranks");
    CHECK_EQ(here.status, 0);
    CHECK(strncmp(here.out, "fits: ", 6) == 0);
    CHECK_CONTAINS(here.out, "limited by the CPU");
    run_free(&one);
    run_free(&four);
    run_free(&here);
}

TEST(what_does_not_fit_says_so_first_and_what_would_help)
{
    run_result r = run_sluice(test_tmpdir(), "plan --model llama-3.2-1b --gpu rtx3060 --ram 8GiB --quiet"),
               json = run_sluice(test_tmpdir(), "plan --model llama-3.2-1b --gpu rtx3060 --ram 8GiB --quiet --json");
    CHECK_EQ(r.status, 3);
    CHECK(strncmp(r.out, "does not fit: about ", 20) == 0);
    CHECK_CONTAINS(r.out, "; what would help: --lora (");
    CHECK_CONTAINS(r.out, "--ram 16GiB (");
    CHECK_CONTAINS(r.error, "does not fit");
    CHECK_EQ(json.status, 3);
    CHECK_CONTAINS(json.out, "\"fits\":false");
    CHECK_CONTAINS(json.out, "\"verdict\":\"does not fit: ");
    run_free(&r);
    run_free(&json);
}

TEST(every_choice_is_planned_and_the_best_is_marked)
{
    run_result r = run_sluice(test_tmpdir(), "plan --model gpt2 --gpu rtx3060 --ram 16GiB --quiet --what-if"),
               json = run_sluice(test_tmpdir(), "plan --model gpt2 --gpu rtx3060 --ram 16GiB --quiet --what-if --json"),
               lora = run_sluice(test_tmpdir(), "plan --model gpt2 --gpu rtx3060 --lora --json --quiet "
                                                "--set train_micro_batch_size_per_gpu=8");
    static const char *const rows[] = { "  as asked",
                                        "  --lora",
                                        "compact optimizer states",
                                        "no clipping",
                                        "  --ram 32GiB",
                                        "  --ram 8GiB",
                                        "  --gpus 2, ZeRO stage 3",
                                        "micro-batches of 8",
                                        "  with a disk (memory.disk_path)" };
    char *best = strstr(json.out, "\"best\":true");
    CHECK_EQ(r.status, 0);
    const char *table = strstr(r.out, "\nwhat if ");
    CHECK(table != NULL);
    for (size_t i = 0; table != NULL && i < sizeof rows / sizeof rows[0]; i++)
        CHECK_THAT(strstr(table, rows[i] + strspn(rows[i], " ")) != NULL, "no row of \"%s\"", rows[i]);
    if (table != NULL) CHECK_EQ(count_of(table, "\n* "), 2); /* the best, and what the mark means */
    CHECK_EQ(count_of(json.out, "\"event\":\"what_if\""), 15);
    CHECK_EQ(count_of(json.out, "\"best\":true"), 1);
    CHECK(best != NULL);
    CHECK_EQ(lora.status, 0);
    run_free(&r);
    run_free(&json);
    run_free(&lora);
}

/* Who has named a disk is asked about it by every row; what is on it is told. */
TEST(what_if_tells_bytes_of_a_disk)
{
    run_result r = run_sluice(test_tmpdir(), "plan --model gpt2 --gpu rtx3060 --ram 2GiB --json --quiet --what-if "
                                             "--set memory.disk_path=. --set memory.disk=8GiB "
                                             "--set zero_optimization.offload_optimizer.device=nvme "
                                             "--set train_micro_batch_size_per_gpu=1");
    CHECK_EQ(r.status, 0);
    CHECK(strstr(r.out, "with a disk") == NULL);
    const char *asked = strstr(r.out, "\"choice\":\"as asked\"");
    double disk = 0;
    const char *at = asked != NULL ? strstr(asked, "\"disk\":") : NULL;
    if (at != NULL) sscanf(at, "\"disk\":%lf", &disk);
    CHECK(disk > 1e9); /* f32 moments and the rest of the master weights of 124 million parameters */
    run_free(&r);
}

TEST(names_are_listed)
{
    run_result gpus = run_sluice(test_tmpdir(), "plan --gpu list"), all = run_sluice(test_tmpdir(), "devices --known");
    CHECK_EQ(gpus.status, 0);
    CHECK_CONTAINS(gpus.out, "rtx-4090");
    CHECK_CONTAINS(gpus.out, "dgx-h100");
    CHECK_CONTAINS(gpus.out, "desktop-ddr5");
    CHECK_EQ(all.status, 0);
    CHECK_CONTAINS(all.out, "llama-3.1-8b");
    CHECK(strstr(all.out, gpus.out) == all.out);
    run_free(&gpus);
    run_free(&all);
}

TEST(mistakes_in_names_are_told_with_the_nearest)
{
    static const struct {
        const char *arguments;
        int status;
        const char *message;
    } cases[] = {
        { "plan --model gpt2 --gpu rtx409", 2, "no GPU or machine is known as \"rtx409\"; near it: rtx-4090" },
        { "plan --model gtp2-xl --gpu h100", 4, "near it: gpt2-xl" },
        { "plan --model gpt2 --ram 64GiB", 2, "--ram says more of --gpu; give both" },
        { "plan --model gpt2 --gpu h100 --gpus 2 --ranks 4", 2, "every GPU is a rank" },
        { "plan --model gpt2 --gpu h100 --machine x.json", 2, "--gpu and --machine are given" },
        { "plan --model gpt2 --gpu h100 --host toaster", 2, "no host is known as \"toaster\"" },
        { "train --model gpt2 --data x.txt", 2, "is the name of a published model, which is enough for a plan" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        run_result r = run_sluice(test_tmpdir(), cases[i].arguments);
        CHECK_EQ(r.status, cases[i].status);
        CHECK_CONTAINS(r.error, cases[i].message);
        run_free(&r);
    }
}

TEST(devices_ends_with_the_largest_model_that_fits)
{
    run_result r = run_sluice(test_tmpdir(), "devices");
    const char *line = strstr(r.out, "largest model that fits here: ");
    double all = 0, adapters = 0;
    CHECK_EQ(r.status, 0);
    CHECK(line != NULL && strchr(line, '\n') != NULL && strchr(line, '\n')[1] == '\0');
    if (line != NULL) sscanf(line, "largest model that fits here: %lfB", &all);
    if (line != NULL && strstr(line, "AdamW; ") != NULL) sscanf(strstr(line, "AdamW; ") + 7, "%lfB", &adapters);
    CHECK(all > 0 && adapters > 2 * all);
    run_free(&r);
}

/* docs/machines.md has every line that bench/known prints. */
TEST(the_tables_of_the_page_are_what_plans_predict)
{
    char command[2048], line[512];
    int rows = 0;
    char *page = run_read(SLUICE_SOURCE_DIR "/docs/machines.md");
    snprintf(command, sizeof command, "%s/bench/known %s", SLUICE_SOURCE_DIR, SLUICE_BINARY_DIR);
    FILE *pipe = popen(command, "r");
    REQUIRE(pipe != NULL);
    while (fgets(line, sizeof line, pipe) != NULL) {
        CHECK_THAT(strstr(page, line) != NULL, "docs/machines.md has no line \"%s\": run bench/known build", line);
        rows += line[0] == '|';
    }
    CHECK_EQ(pclose(pipe), 0);
    CHECK(rows > 30);
    free(page);
}

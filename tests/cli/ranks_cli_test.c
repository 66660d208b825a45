/* ranks_cli_test.c: several ranks through the program: one output, one result, one message, whatever befalls a rank. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/run.h"
#include "test.h"

/* Four micro-batches a step, on one, two or four ranks. */
#define FOUR ", \"train_micro_batch_size_per_gpu\": 1, \"timeout_seconds\": 30"

static void new_folder(char folder[4096])
{
    snprintf(folder, 4096, "%s", test_tmpdir());
}

/* How often `part` stands in a text. */
static int count(const char *text, const char *part)
{
    int n = 0;
    for (; (text = strstr(text, part)) != NULL; text += strlen(part)) n++;
    return n;
}

/* What stands behind `name` up to `end`; "" where it is absent. */
static void field(const char *text, const char *name, const char *end, char out[256])
{
    const char *at = strstr(text, name);
    out[0] = '\0';
    if (at != NULL) snprintf(out, 256, "%.*s", (int)strcspn(at + strlen(name), end), at + strlen(name));
}

TEST(ranks_print_one_output_and_end_with_the_weights_of_one_rank)
{
    char folder[4096], one_hash[256], hash[256];
    new_folder(folder);
    run_write_config(folder, "b.json", FOUR);
    run_result one = run_sluice(folder, "train b.json --json --set data.validation=0.3");
    field(one.out, "\"weights_sha256\":\"", "\"", one_hash);
    CHECK_EQ(strlen(one_hash), 64);
    for (int ranks = 2; ranks <= 4; ranks += 2) {
        char arguments[256], loss[2][256];
        snprintf(arguments, sizeof arguments,
                 "train b.json --json --ranks %d --set data.validation=0.3 --set zero_optimization.stage=%d", ranks,
                 ranks - 1);
        run_result r = run_sluice(folder, arguments);
        CHECK_EQ(r.status, 0);
        CHECK_STR(r.error, "");
        CHECK_EQ(count(r.out, "\"event\":\"plan\""), 1);
        CHECK_EQ(count(r.out, "\"event\":\"step\""), 5);
        CHECK_EQ(count(r.out, "\"event\":\"eval\""), count(one.out, "\"event\":\"eval\""));
        CHECK_EQ(count(r.out, "\"event\":\"end\""), 1);
        field(r.out, "\"weights_sha256\":\"", "\"", hash);
        CHECK_STR(hash, one_hash);
        field(one.out, "\"event\":\"eval\",", "}", loss[0]);
        field(r.out, "\"event\":\"eval\",", "}", loss[1]);
        CHECK_CONTAINS(loss[0], "loss");
        CHECK_STR(loss[1], loss[0]);
        run_free(&r);
    }
    run_free(&one);
}

TEST(what_ranks_send_is_what_the_plan_said)
{
    char folder[4096], predicted[256], counted[256], planned[256];
    new_folder(folder);
    run_write_config(folder, "a.json", FOUR ", \"zero_optimization\": {\"stage\": 2}");
    run_result r = run_sluice(folder, "train a.json --json --ranks 2"),
               plan = run_sluice(folder, "plan a.json --json --ranks 2");
    CHECK_EQ(r.status, 0);
    CHECK_EQ(plan.status, 0);
    field(r.out, "\"comm_bytes\":{", "}", predicted);
    field(strstr(r.out, "\"event\":\"end\"") != NULL ? strstr(r.out, "\"event\":\"end\"") : "", "\"comm_bytes\":{", "}",
          counted);
    field(plan.out, "\"comm_bytes\":{", "}", planned);
    CHECK(strlen(predicted) > 0);
    CHECK_STR(counted, predicted);
    CHECK_STR(planned, predicted);
    run_free(&r);
    run_free(&plan);
}

TEST(a_plan_can_be_made_for_more_ranks_than_there_are)
{
    char folder[4096];
    new_folder(folder);
    run_write_config(folder, "a.json", ", \"zero_optimization\": {\"stage\": 3}");
    run_result json = run_sluice(folder, "plan a.json --json --ranks 64 --set train_batch_size=128"),
               text = run_sluice(folder, "plan a.json --ranks 64 --set train_batch_size=128");
    CHECK_EQ(json.status, 0);
    CHECK_CONTAINS(json.out, "\"ranks\":64,\"stage\":3");
    CHECK_EQ(text.status, 0);
    CHECK_CONTAINS(text.out, "64 ranks");
    run_free(&json);
    run_free(&text);
}

TEST(a_measured_machine_can_be_planned_for)
{
    char folder[4096], path[4400];
    new_folder(folder);
    run_write_config(folder, "a.json", "");
    run_result measured = run_sluice(folder, "devices --measure --machine here.json"),
               plan = run_sluice(folder, "plan a.json --json --machine here.json");
    CHECK_EQ(measured.status, 0);
    CHECK_EQ(plan.status, 0);
    snprintf(path, sizeof path, "%s/here.json", folder);
    char *file = run_read(path), *size = strstr(file, "\"device_bytes\": ");
    REQUIRE(size != NULL);
    size += strlen("\"device_bytes\": ");
    memset(size, ' ', strcspn(size, ","));
    memcpy(size, "1048576", 7); /* a machine with a megabyte */
    run_write(folder, "small.json", file);
    run_result small = run_sluice(folder, "plan a.json --json --machine small.json");
    CHECK_EQ(small.status, 3);
    free(file);
    run_free(&measured);
    run_free(&plan);
    run_free(&small);
}

TEST(an_exported_checkpoint_has_the_weights_of_the_run)
{
    char folder[4096];
    new_folder(folder);
    run_write_config(folder, "a.json", FOUR ", \"checkpoint\": {\"path\": \"run\"}, \"save\": \"saved.safetensors\"");
    run_result train = run_sluice(folder, "train a.json --quiet --ranks 2 --set zero_optimization.stage=1"),
               export = run_sluice(folder, "export run -o out.safetensors"),
               shards = run_sluice(folder, "export run/step-5 --out part.safetensors --shard-size 64 --quiet"),
               saved = run_sluice(folder, "eval a.json --weights saved.safetensors"),
               exported = run_sluice(folder, "eval a.json --weights out.safetensors");
    CHECK_EQ(train.status, 0);
    CHECK_EQ(export.status, 0);
    CHECK_CONTAINS(export.out, "out.safetensors");
    CHECK_EQ(shards.status, 0);
    CHECK_STR(shards.out, "");
    CHECK_EQ(exported.status, 0);
    CHECK_CONTAINS(saved.out, "loss");
    CHECK_CONTAINS(exported.out, "weights of out.safetensors");
    saved.out[strcspn(saved.out, ",")] = exported.out[strcspn(exported.out, ",")] = '\0'; /* up to the loss */
    CHECK_STR(exported.out, saved.out);
    run_free(&train);
    run_free(&export);
    run_free(&shards);
    run_free(&saved);
    run_free(&exported);
}

TEST(a_16_bit_export_has_the_bytes_of_a_16_bit_save_and_can_be_evaluated)
{
    char folder[4096];
    new_folder(folder);
    run_write_config(folder, "a.json",
                     FOUR ", \"checkpoint\": {\"path\": \"run\"}, \"save\": \"saved.safetensors\", \"save_dtype\": "
                          "\"bf16\", \"bf16\": {\"enabled\": true}");
    run_result train = run_sluice(folder, "train a.json --quiet --ranks 2 --set zero_optimization.stage=3"),
               same = run_sluice(folder, "export run -o out.safetensors --dtype bf16 && cmp out.safetensors "
                                         "saved.safetensors"),
               inspect = run_sluice(folder, "inspect out.safetensors"),
               eval = run_sluice(folder, "eval a.json --weights out.safetensors --set bf16.enabled=false");
    CHECK_EQ(train.status, 0);
    CHECK_EQ(same.status, 0);
    CHECK_CONTAINS(inspect.out, "BF16");
    CHECK_EQ(eval.status, 0);
    run_free(&train);
    run_free(&same);
    run_free(&inspect);
    run_free(&eval);
}

TEST(a_launcher_decides_the_number_of_ranks)
{
    char folder[4096];
    new_folder(folder);
    run_write_config(folder, "a.json", "");
    setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
    run_result train = run_sluice(folder, "train a.json --ranks 2"), eval = run_sluice(folder, "eval a.json");
    unsetenv("OMPI_COMM_WORLD_SIZE");
    CHECK_EQ(train.status, 2);
    CHECK_CONTAINS(train.error, "--ranks: the ranks were started by a launcher");
    CHECK_EQ(eval.status, 2);
    CHECK_CONTAINS(eval.error, "one of 2 ranks");
    run_free(&train);
    run_free(&eval);
}

/* ---- while it runs ---- */

/* Waits until the program's output has `part` at least `times` times; false when it has ended without. */
static bool wait_for(const char *folder, pid_t child, const char *part, int times)
{
    char path[4400];
    snprintf(path, sizeof path, "%s/out", folder);
    for (bool ended = false;; usleep(10000)) {
        siginfo_t state = { .si_pid = 0 };
        bool last_look = ended;
        char *text = run_read(path);
        bool found = count(text, part) >= times;
        free(text);
        if (found || last_look) return found;
        ended = waitid(P_PID, (id_t)child, &state, WEXITED | WNOHANG | WNOWAIT) != 0 || state.si_pid == child;
    }
}

/* The process of rank `index`: ranks are started in order. 0: there is none. */
static pid_t rank_process(pid_t parent, int index)
{
    char path[128];
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)parent, (int)parent);
    char *text = run_read(path), *at = text;
    long pid = 0;
    for (int i = 0; i <= index; i++) pid = strtol(at, &at, 10);
    free(text);
    return (pid_t)pid;
}

#define LONG                                                                                                           \
    FOUR ", \"checkpoint\": {\"path\": \"run\", \"every\": 50, \"background\": true}, \"zero_optimization\": "         \
         "{\"stage\": 2}"

TEST(sigterm_stops_all_ranks_after_one_save)
{
    char folder[4096];
    new_folder(folder);
    run_write_config(folder, "a.json", FOUR ", \"checkpoint\": {\"path\": \"run\"}");
    pid_t child = run_start(folder, "train a.json --json --ranks 2 --set steps=100000000");
    CHECK(wait_for(folder, child, "\"event\":\"step\"", 1));
    kill(child, SIGUSR1);
    CHECK(wait_for(folder, child, "\"event\":\"saved\"", 1));
    kill(child, SIGTERM);
    run_result r = run_wait(folder, child);
    CHECK_EQ(r.status, 75);
    CHECK_CONTAINS(r.error, "sluice: stopped by a signal after step ");
    CHECK_EQ(count(r.error, "\n"), 1);
    CHECK_EQ(count(r.out, "\"event\":\"saved\""), 2);
    run_free(&r);
}

TEST(a_rank_that_is_killed_is_named_with_exit_5)
{
    char folder[4096];
    new_folder(folder);
    run_write_config(folder, "a.json", LONG);
    pid_t child = run_start(folder, "train a.json --json --ranks 2 --set steps=100000000");
    CHECK(wait_for(folder, child, "\"event\":\"step\"", 1));
    pid_t rank = rank_process(child, 1);
    REQUIRE(rank > 0);
    kill(rank, SIGKILL);
    run_result r = run_wait(folder, child);
    CHECK_EQ(r.status, 5);
    CHECK_CONTAINS(r.error, "rank 1 was killed by signal 9");
    CHECK_EQ(count(r.error, "\n"), 1);
    run_free(&r);
}

TEST(a_lost_rank_costs_a_restart_where_restarts_are_allowed)
{
    char folder[4096];
    new_folder(folder);
    run_write_config(folder, "a.json", LONG);
    pid_t child = run_start(folder, "train a.json --json --ranks 2 --max-restarts 1 --set steps=100000000");
    CHECK(wait_for(folder, child, "\"event\":\"saved\"", 1));
    pid_t rank = rank_process(child, 1);
    REQUIRE(rank > 0);
    kill(rank, SIGKILL);
    CHECK(wait_for(folder, child, "\"event\":\"resumed\"", 1));
    CHECK(wait_for(folder, child, "\"event\":\"plan\"", 2));
    rank = rank_process(child, 0);
    REQUIRE(rank > 0);
    kill(rank, SIGKILL);
    run_result r = run_wait(folder, child);
    CHECK_EQ(r.status, 5);
    CHECK_CONTAINS(r.error, "restart 1 of 1 from the newest checkpoint");
    CHECK_CONTAINS(r.error, "rank 0 was killed by signal 9");
    CHECK_EQ(count(r.error, "\n"), 2);
    run_free(&r);
}

TEST(a_background_checkpoint_is_announced_when_it_is_whole)
{
    char folder[4096];
    new_folder(folder);
    run_write_config(folder, "a.json",
                     FOUR ", \"checkpoint\": {\"path\": \"run\", \"every\": 2, \"background\": true}");
    run_result r = run_sluice(folder, "train a.json --json --ranks 2"), verify = run_sluice(folder, "verify run");
    CHECK_EQ(r.status, 0);
    CHECK_EQ(count(r.out, "\"event\":\"saved\""), 3);
    CHECK_EQ(verify.status, 0);
    CHECK_EQ(count(verify.out, "every checksum matches"), 2);
    run_free(&r);
    run_free(&verify);
}

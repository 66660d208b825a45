/* trace_cli_test.c: train --trace: a file that viewers read, with all that was run in it. */
#include <jansson.h>
#include <unistd.h>

#include "support/run.h"
#include "test.h"

static void new_folder(char folder[4096])
{
    snprintf(folder, 4096, "%s", test_tmpdir());
}

/* NULL after a reported failure. */
static json_t *read_trace(const char *folder, const char *name)
{
    char path[4200];
    json_error_t error;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    if (root == NULL) test_fail(__FILE__, __LINE__, "%s: line %d: %s", name, error.line, error.text);
    return root;
}

static double number(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

static const char *text(const json_t *object, const char *key)
{
    const char *value = json_string_value(json_object_get(object, key));
    return value != NULL ? value : "";
}

/* Events of kind `ph` of a process, and of them those of `thread` (0: all) whose name begins with `name`. */
static int count_events(const json_t *root, const char *ph, int process, int thread, const char *name)
{
    size_t i;
    json_t *event;
    int n = 0;
    json_array_foreach(json_object_get(root, "traceEvents"), i, event)
    {
        if (strcmp(text(event, "ph"), ph) != 0 || (int)number(event, "pid") != process) continue;
        if (thread != 0 && (int)number(event, "tid") != thread) continue;
        n += strncmp(text(event, "name"), name, strlen(name)) == 0;
    }
    return n;
}

/* Events of one thread of one process follow each other. */
static void check_threads(const json_t *root)
{
    double end[3][16] = { 0 };
    size_t i;
    json_t *event;
    json_array_foreach(json_object_get(root, "traceEvents"), i, event)
    {
        if (strcmp(text(event, "ph"), "X") != 0) continue;
        int process = (int)number(event, "pid"), thread = (int)number(event, "tid");
        REQUIRE(process >= 1 && process <= 2 && thread >= 1 && thread < 16);
        CHECK(number(event, "dur") >= 0);
        CHECK(number(event, "ts") >= end[process][thread] - 1e-6);
        end[process][thread] = number(event, "ts") + number(event, "dur");
    }
}

static void check_summary(const json_t *root, int step, bool followed)
{
    const json_t *other = json_object_get(root, "otherData");
    const json_t *seconds = json_object_get(other, "step_seconds");
    const json_t *compute = json_object_get(json_object_get(other, "streams"), "compute");
    CHECK_NEAR(number(other, "training_step"), step, 0);
    CHECK_EQ(strstr(text(other, "covers"), "first forward of the next") != NULL, followed);
    CHECK(number(seconds, "predicted") > 0 && number(seconds, "measured") > 0);
    CHECK(number(other, "planned_step_seconds") > 0);
    CHECK(number(json_object_get(compute, "busy_seconds"), "predicted") > 0);
    CHECK(number(json_object_get(compute, "busy_seconds"), "measured") > 0);
    CHECK(json_object_get(compute, "exposed_seconds") != NULL);
}

static void field(const char *all, const char *name, char out[256])
{
    const char *at = strstr(all, name);
    out[0] = '\0';
    if (at != NULL) snprintf(out, 256, "%.*s", (int)strcspn(at + strlen(name), "\",}"), at + strlen(name));
}

#define OFFLOADED                                                                                                      \
    ", \"zero_optimization\": {\"offload_param\": {\"device\": \"cpu\"}, \"offload_optimizer\": {\"device\": "         \
    "\"cpu\"}}"

TEST(a_traced_run_writes_the_third_step_and_the_forward_that_follows)
{
    char folder[4096];
    new_folder(folder);
    run_write_config(folder, "a.json", OFFLOADED);
    run_result r = run_sluice(folder, "train a.json --trace t.json");
    CHECK_EQ(r.status, 0);
    CHECK_STR(r.error, "");
    CHECK_CONTAINS(r.out, "trace of step 3 written to t.json: open it in Perfetto");
    json_t *root = read_trace(folder, "t.json");
    REQUIRE(root != NULL);
    check_threads(root);
    check_summary(root, 3, true);
    CHECK(count_events(root, "X", 1, 0, "") > 20);
    CHECK_EQ(count_events(root, "X", 1, 0, ""), count_events(root, "X", 2, 0, ""));
    CHECK_EQ(count_events(root, "X", 1, 1, "linear fc1"), 2); /* of this step and of the next */
    CHECK_EQ(count_events(root, "M", 1, 0, "thread_name"), 4);
    CHECK(count_events(root, "X", 1, 2, "copy of parameters ") > 0);
    CHECK(count_events(root, "X", 1, 3, "copy of gradients ") > 0);
    CHECK(count_events(root, "X", 1, 5, "update") > 0);
    json_decref(root);
    run_free(&r);
}

/* What runs again says so, and with which layers together. */
TEST(a_trace_names_the_layers_that_run_again_together)
{
    char folder[4096];
    int again = 0;
    size_t i;
    json_t *event;
    new_folder(folder);
    run_write_config(folder, "a.json", "");
    run_result r = run_sluice(folder, "train a.json --trace t.json --set model.hidden=[8,8] "
                                      "--set activation_checkpointing.number_checkpoints=1");
    CHECK_EQ(r.status, 0);
    CHECK_CONTAINS(r.out, "in 1 group of up to 2 layers, each from one kept input");
    json_t *root = read_trace(folder, "t.json");
    REQUIRE(root != NULL);
    json_array_foreach(json_object_get(root, "traceEvents"), i, event)
    {
        const json_t *arguments = json_object_get(event, "args");
        bool recomputed = json_is_true(json_object_get(arguments, "recomputed"));
        CHECK_STR(text(arguments, "group"), recomputed ? "fc1 to fc2" : "");
        again += recomputed;
    }
    CHECK(again > 0);
    json_decref(root);
    run_free(&r);
}

TEST(tracing_leaves_the_hashes_of_a_run_alone)
{
    char folder[4096], plain_hash[256], traced_hash[256];
    new_folder(folder);
    run_write_config(folder, "a.json", OFFLOADED);
    run_result plain = run_sluice(folder, "train a.json --json"),
               traced = run_sluice(folder, "train a.json --json --trace t.json");
    CHECK_EQ(traced.status, 0);
    field(plain.out, "\"weights_sha256\":\"", plain_hash);
    field(traced.out, "\"weights_sha256\":\"", traced_hash);
    CHECK_EQ(strlen(plain_hash), 64);
    CHECK_STR(traced_hash, plain_hash);
    CHECK(strstr(traced.out, "Perfetto") == NULL);
    run_free(&plain);
    run_free(&traced);
}

TEST(where_nothing_follows_the_trace_ends_with_its_step)
{
    static const struct {
        const char *arguments;
        int step;
    } cases[] = {
        { "train a.json --quiet --trace t.json --set steps=1", 1 },
        { "train a.json --quiet --trace t.json --set steps=2", 2 },
        { "train a.json --quiet --trace t.json --set checkpoint.path=c --set checkpoint.every=3", 3 },
    };
    char folder[4096];
    new_folder(folder);
    run_write_config(folder, "a.json", "");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        run_result r = run_sluice(folder, cases[i].arguments);
        CHECK_EQ(r.status, 0);
        json_t *root = read_trace(folder, "t.json");
        REQUIRE(root != NULL);
        check_summary(root, cases[i].step, false);
        CHECK(count_events(root, "X", 1, 0, "") > 0);
        json_decref(root);
        run_free(&r);
    }
}

TEST(every_rank_writes_a_trace_of_its_own)
{
    char folder[4096];
    new_folder(folder);
    run_write_config(folder, "a.json", ", \"zero_optimization\": {\"stage\": 3}");
    run_result r = run_sluice(folder, "train a.json --ranks 2 --trace t.json");
    CHECK_EQ(r.status, 0);
    CHECK_CONTAINS(r.out, "written to t.json and t.json.rank1: open");
    for (int rank = 0; rank < 2; rank++) {
        json_t *root = read_trace(folder, rank == 0 ? "t.json" : "t.json.rank1");
        REQUIRE(root != NULL);
        check_threads(root);
        check_summary(root, 3, true);
        CHECK_NEAR(number(json_object_get(root, "otherData"), "rank"), rank, 0);
        CHECK(count_events(root, "X", 1, 4, "gather") > 0);
        CHECK(count_events(root, "X", 1, 4, "reduce-scatter") > 0);
        json_decref(root);
    }
    run_free(&r);
}

TEST(a_trace_that_cannot_be_written_is_refused_before_the_run)
{
    char folder[4096];
    new_folder(folder);
    run_write_config(folder, "a.json", ", \"save\": \"w.safetensors\"");
    run_result r = run_sluice(folder, "train a.json --trace missing/t.json");
    char path[4200];
    CHECK_EQ(r.status, 6);
    CHECK_CONTAINS(r.error, "missing/t.json");
    CHECK_STR(r.out, "");
    snprintf(path, sizeof path, "%s/w.safetensors", folder);
    CHECK(access(path, F_OK) != 0);
    run_free(&r);
}

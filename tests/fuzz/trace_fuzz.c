/* trace_fuzz.c: a trace as it is written, read by a JSON parser that is not ours: whatever layers are called and whatever
 * clocks say, viewers can open it. */
#include <jansson.h>
#include <string.h>

#include "support/fuzz/fuzz.h"
#include "train/run.h"

enum { STEPS = 4 };

typedef struct bytes_left {
    const uint8_t *data;
    size_t bytes;
} bytes_left;

static void take(bytes_left *from, void *out, size_t bytes)
{
    size_t there = bytes < from->bytes ? bytes : from->bytes;
    memset(out, 0, bytes);
    if (there > 0) memcpy(out, from->data, there);
    from->data += there;
    from->bytes -= there;
}

/* A string of the length that the first byte says. */
static void take_name(bytes_left *from, char out[256])
{
    uint8_t length;
    take(from, &length, 1);
    take(from, out, length);
    out[length] = '\0';
}

static void check_file(const char *path)
{
    json_error_t error;
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    if (root == NULL) fprintf(stderr, "%d:%d: %s\n", error.line, error.column, error.text);
    FUZZ_CHECK(root != NULL);
    FUZZ_CHECK(json_array_size(json_object_get(root, "traceEvents")) >= (size_t)2 * STEPS);
    json_decref(root);
}

void fuzz_trace(const uint8_t *data, size_t bytes)
{
    bytes_left from = { data, bytes };
    char layer[256], node[256], path[160];
    take_name(&from, layer);
    take_name(&from, node);
    sl_layer layers[1] = { { .name = layer } };
    sl_node nodes[1] = { { .op = SL_OP_LINEAR, .name = node } };
    sluice_graph graph = { .layers = layers, .layer_count = 1, .nodes = nodes, .node_count = 1 };
    sl_step steps[STEPS];
    sl_traced_step traced[STEPS];
    for (int i = 0; i < STEPS; i++) {
        steps[i] =
            (sl_step){ .kind = SL_STEP_COMPUTE, .op = SL_OP_LINEAR, .stream = (sl_stream)(i % 2), .node = i % 2 - 1 };
        steps[i].layer = i / 2 - 1;
        traced[i] = (sl_traced_step){ .run = 0, .step = i };
        take(&from, &traced[i].measured, sizeof traced[i].measured);
        take(&from, &traced[i].expected, sizeof traced[i].expected);
    }
    sl_traced_run run = { .step = 1 };
    sl_plan plan = { .graph = &graph, .steps = steps, .step_count = STEPS, .options.rank_count = 1 };
    take(&from, &plan.totals.step_seconds, sizeof plan.totals.step_seconds);
    sl_trace trace = { .plan = &plan, .runs = &run, .run_count = 1, .steps = traced, .step_count = STEPS };
    snprintf(path, sizeof path, "%s/trace.json", fuzz_folder());
    if (fuzz_accepted(sl_trace_write(&trace, path, 0))) check_file(path);
}

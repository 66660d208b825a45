/* gpu_generate_test.c: generation on a GPU: the text that transformers wrote on a CPU, whole and with weights that stream from
 * the host. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "support/gpu.h"
#include "support/run.h"
#include "test.h"

#define FIXTURES SLUICE_SOURCE_DIR "/tests/fixtures/generate"

/* How many of the recorded texts `sluice generate` writes; -1: it failed. */
static int texts_that_agree(const char *family, const char *extra)
{
    char arguments[12000], path[4096];
    int agree = 0;
    snprintf(path, sizeof path, FIXTURES "/%s/greedy.jsonl", family);
    snprintf(arguments, sizeof arguments,
             "generate --quiet --model " FIXTURES "/%s --prompts " FIXTURES
             "/%s/prompts.jsonl --tokens 200 --temperature 0 --set model.context=300 %s",
             family, family, extra);
    run_result r = run_sluice(test_tmpdir(), arguments);
    char *recorded = run_read(path), *want = recorded, *got = r.out;
    for (char *a, *b; r.status == 0 && (a = strsep(&want, "\n")) != NULL && (b = strsep(&got, "\n")) != NULL;) {
        json_t *x = json_loads(a, JSON_ALLOW_NUL, NULL), *y = json_loads(b, JSON_ALLOW_NUL, NULL);
        agree += x != NULL && y != NULL && json_equal(json_object_get(x, "text"), json_object_get(y, "text"));
        json_decref(x);
        json_decref(y);
    }
    if (r.status != 0) fprintf(stderr, "%s", r.error);
    if (r.status != 0) agree = -1;
    free(recorded);
    run_free(&r);
    return agree;
}

TEST(greedy_text_on_a_gpu_is_that_of_transformers)
{
    char extra[64];
    if (gpu_device() == NULL) SKIP(gpu, NO_GPU);
    snprintf(extra, sizeof extra, "--set device=%s", gpu_device());
    CHECK_EQ(texts_that_agree("gpt2", extra), 3);
    CHECK_EQ(texts_that_agree("llama", extra), 3);
}

TEST(weights_stream_to_a_gpu_and_the_text_is_the_same)
{
    char extra[160];
    if (gpu_device() == NULL) SKIP(gpu, NO_GPU);
    snprintf(extra, sizeof extra, "--set device=%s --set zero_optimization.offload_param.device=cpu", gpu_device());
    CHECK_EQ(texts_that_agree("gpt2", extra), 3);
    CHECK_EQ(texts_that_agree("llama", extra), 3);
}

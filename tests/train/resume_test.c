/* resume_test.c: what a resumed run may change, and what it must keep. */
#include "checkpoint/manifest.h"
#include "config/config.h"
#include "core/alloc.h"
#include "core/output.h"
#include "support/config_words.h"
#include "test.h"

static char folder[4096];

/* Trains with `assignments` ("a=1 b=2") over a fixed configuration; *weights gets the final hash where it is not
 * NULL. */
typedef struct last_event {
    char weights[65];
    uint64_t resumed;
    char warning[512];
} last_event;

static void on_log(void *user, sluice_log_level level, const char *line)
{
    last_event *last = user;
    if (level == SLUICE_LOG_WARNING) snprintf(last->warning, sizeof last->warning, "%s", line);
}

static void on_event(void *user, const sluice_event *event)
{
    last_event *last = user;
    if (event->kind == SLUICE_EVENT_RESUMED) last->resumed = event->step;
    if (event->kind == SLUICE_EVENT_END) memcpy(last->weights, event->weights_sha256, sizeof last->weights);
}

static sluice_status train(const char *assignments, bool resume, last_event *last)
{
    char path[4200];
    sluice_config *c;
    sluice_job_options o;
    snprintf(path, sizeof path, "%s/config.json", folder);
    FILE *f = fopen(path, "w");
    fprintf(f,
            "{\"model\": {\"type\": \"mlp\", \"features\": 4, \"hidden\": [8]}, \"data\": {\"type\": \"regression\", "
            "\"samples\": 40}, \"steps\": 4, \"train_batch_size\": 8, \"train_micro_batch_size_per_gpu\": 2, "
            "\"threads\": 1, \"optimizer\": {\"type\": \"SGD\", \"params\": {\"momentum\": 0.9}}, "
            "\"checkpoint\": {\"path\": \"%s/run\", \"keep\": 9}}",
            folder);
    fclose(f);
    *last = (last_event){ .resumed = 0 };
    SL_TRY(config_load_words(path, assignments, &c));
    sluice_job_options_init(&o);
    o.resume = resume;
    o.event = on_event;
    o.user = last;
    o.log = on_log;
    o.log_user = last;
    sluice_status st = sluice_job_train(c, &o);
    sluice_config_destroy(c);
    return st;
}

static sluice_status first_half(void)
{
    last_event ignored;
    snprintf(folder, sizeof folder, "%s", test_tmpdir());
    return train("steps=2", false, &ignored);
}

TEST(a_resumed_run_must_keep_what_decides_its_bits)
{
    static const struct {
        const char *assignments, *part;
    } rows[] = {
        { "seed=2", "seed is 2" },
        { "train_micro_batch_size_per_gpu=4", "train_micro_batch_size_per_gpu is 4, the checkpoint was made with 2" },
        { "train_batch_size=4", "train_batch_size is 4, the checkpoint was made with" },
        { "optimizer.type=LARS", "optimizer.type is \"LARS\", the checkpoint was made with \"SGD\"" },
        { "optimizer.type=Lion optimizer.params.momentum=null optimizer.params.betas=[0.9,0.99] steps=5",
          "optimizer.type is \"Lion\", the checkpoint was made with \"SGD\"" },
        { "model.hidden=[9]", "model.hidden is [9], the checkpoint was made with [" },
        { "bf16.enabled=true communication_data_type=fp32",
          "bf16.enabled is true, the checkpoint was made with false: a resumed run must keep it" },
        { "fp16.enabled=true communication_data_type=fp32",
          "fp16.enabled is true, the checkpoint was made with false" },
        { "communication_data_type=bf16",
          "communication_data_type is \"bf16\", the checkpoint was made with \"fp32\"" },
        { "zero_optimization.states=compact",
          "zero_optimization.states is \"compact\", the checkpoint was made with \"fp32\"" },
    };
    last_event last;
    REQUIRE_OK(first_half());
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        CHECK(train(rows[i].assignments, true, &last) != SLUICE_OK);
        CHECK_CONTAINS(sluice_error(), rows[i].part);
        CHECK_EQ(last.resumed, 0);
    }
}

TEST(a_resumed_run_may_change_where_things_live_and_when_they_are_saved)
{
    static const char *const rows[] = {
        "zero_optimization.stage=3",
        "zero_optimization.partition=block",
        "zero_optimization.offload_optimizer.device=cpu zero_optimization.offload_param.device=cpu",
        "memory.device=64KiB memory.levels=2",
        "activation_checkpointing.mode=recompute",
        "checkpoint.every=1 checkpoint.background=true",
        "threads=2 timeout_seconds=5",
    };
    last_event whole, last;
    char whole_weights[65];
    snprintf(folder, sizeof folder, "%s", test_tmpdir());
    REQUIRE_OK(train("", false, &whole));
    memcpy(whole_weights, whole.weights, sizeof whole_weights);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        REQUIRE_OK(first_half());
        REQUIRE_OK(train(rows[i], true, &last));
        CHECK_EQ(last.resumed, 2);
        CHECK_STR(last.weights, whole_weights);
    }
}

/* The manifest with [from, to) of its text replaced, and sealed again. */
static void rewrite_manifest(const char *from, const char *to, const char *by)
{
    char path[4200], *text;
    size_t bytes;
    sl_text old = { .data = NULL };
    snprintf(path, sizeof path, "%s/run/step-2/manifest.json", folder);
    REQUIRE_OK(sl_file_read_all(path, 1 << 20, &text, &bytes));
    char *begin = strstr(text, from), *end = begin != NULL ? strstr(begin + strlen(from), to) : NULL;
    char *seal = strrchr(text, ','); /* the last line is the checksum */
    REQUIRE(end != NULL && seal != NULL && seal > end);
    sl_text_add_bytes(&old, text, (size_t)(begin - text));
    sl_text_add(&old, "%s", by);
    sl_text_add_bytes(&old, end, (size_t)(seal + strlen(",\n") - end));
    sl_manifest_seal(&old);
    REQUIRE_OK(sl_text_status(&old));
    REQUIRE_OK(sl_file_replace(path, old.data, old.bytes));
    sl_text_free(&old);
    sl_free(text);
}

/* As an older version wrote it: without the fields that were added later. */
TEST(a_checkpoint_of_an_older_version_is_still_continued)
{
    last_event last;
    char member[128], sha256[65];
    sluice_graph *g;
    sl_model_info info;
    REQUIRE_OK(first_half());
    REQUIRE_OK(sluice_graph_create(&g));
    const sl_model_options m = { .type = "mlp",
                                 .batch = 2,
                                 .features = 4,
                                 .hidden = { 8 },
                                 .hidden_count = 1,
                                 .outputs = 1,
                                 .activation = "relu",
                                 .bias = true };
    REQUIRE_OK(sl_model_build(g, &m, &info));
    REQUIRE_OK(sl_graph_finish(g));
    sl_graph_identity_v1(g, sha256);
    sluice_graph_destroy(g);
    snprintf(member, sizeof member, "\"model_sha256\": \"%s\"", sha256);
    rewrite_manifest("\"model_sha256\": \"", ",", member);
    rewrite_manifest(", \"identity\"", "}", "");
    CHECK(train("seed=2", true, &last) != SLUICE_OK);
    CHECK_CONTAINS(sluice_error(), "seed is 2, the checkpoint was made with");
    REQUIRE_OK(train("", true, &last));
    CHECK_EQ(last.resumed, 2);
}

TEST(a_run_that_continues_with_other_kernels_says_so)
{
    static const struct {
        const char *kernels;
        bool warned;
    } rows[] = {
        { "cpu-scalar-1", false }, { "cpu-amx-1", false }, /* their products of bf16 are others, those of f32 not */
        { "cpu-scalar-7", true },  { "cuda-sm90-1", true }, { "", false },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char member[128];
        last_event last;
        REQUIRE_OK(first_half());
        snprintf(member, sizeof member, "\"kernels\": \"%s\"", rows[i].kernels);
        rewrite_manifest("\"kernels\": \"", ",", member);
        REQUIRE_OK(train("", true, &last));
        CHECK_EQ(last.resumed, 2);
        CHECK_EQ(strstr(last.warning, "other kernels") != NULL, rows[i].warned);
    }
}

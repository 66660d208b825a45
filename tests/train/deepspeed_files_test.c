/* deepspeed_files_test.c: configurations in DeepSpeed's format, as people have them, are planned once model, data, length
 * and batch are added; those that ask for what is not there are refused with the reason. */
#include <dirent.h>
#include <stdlib.h>

#include "sluice.h"
#include "test.h"

#define FILES SLUICE_SOURCE_DIR "/tests/config/deepspeed/"

/* What a user adds to a file of DeepSpeed. The batch of the file is for other machines. */
static const char *const additions[] = {
    "model.type=gpt2",
    "model.layers=2",
    "model.heads=2",
    "model.width=16",
    "model.context=8",
    "model.vocabulary=64",
    "data.type=random_tokens",
    "data.samples=64",
    "steps=2000",
    "train_batch_size=auto",
    "train_micro_batch_size_per_gpu=2",
    "gradient_accumulation_steps=auto",
    "threads=1",
};

static const struct {
    const char *file, *reason;
} refused[] = {
    { "refused-deepcompile", "compile.deepcompile: true is refused: it rewrites a program that PyTorch has traced" },
    { "refused-quantize-training", "quantize_training.enabled: true is refused: training with weights of fewer and" },
    { "refused-tensor-parallel-commented", "tensor_parallel.autotp_size: 2 is not built in yet (\"Slice matrices" },
    { "refused-sequence-parallel", "sequence_parallel.enabled: true is not built in yet (\"Cut sequences over ranks" },
    { "refused-fp8", "fp8.enabled: true is not built in yet (\"Compute in 8 bits" },
    { "refused-quantized-gradients", "zero_quantized_gradients: true is not built in yet (\"Send gradients in 4 bits" },
    { "refused-autotuning", "autotuning.enabled: true is not built in yet (\"Search settings by trial runs" },
    { "refused-bf16-accumulation", "grad_accum_dtype: \"bf16\" is refused: contributions are always summed in fp32" },
    { "refused-onebit-adam", "optimizer.type: \"OnebitAdam\" is not built in yet; use one of SGD" },
    { "refused-sparse-attention", "sparse_attention.mode: \"fixed\" is not built in yet (\"Attention over chosen" },
    { "refused-layer-drop", "progressive_layer_drop.enabled: true is not built in yet (\"Leave layers out" },
    { "refused-curriculum", "curriculum_learning.enabled: true is not built in yet (\"Samples of growing length" },
    { "refused-compression", "compression_training.weight_quantization: {" },
    { "refused-data-efficiency", "data_efficiency.enabled: true is not built in yet (\"Sample and route data" },
    { "refused-zenflow", "zero_optimization.zenflow.topk_ratio: 0.1 is not built in yet (\"ZenFlow" },
    { "refused-expert-parallel", "expert_parallel.enabled: true is not built in yet (\"Spread experts over ranks" },
    { "refused-profiler", "flops_profiler.enabled: true is not built in yet (\"Print operations by module" },
    { "refused-max-grad-norm", "optimizer.params.max_grad_norm: 1.0 is refused: write gradient_clipping instead" },
};
enum { REFUSED_COUNT = sizeof refused / sizeof refused[0], PLANNED_COUNT = 53 };

static const char *reason_of(const char *file)
{
    for (int i = 0; i < REFUSED_COUNT; i++) {
        size_t n = strlen(refused[i].file);
        if (strncmp(file, refused[i].file, n) == 0 && strcmp(file + n, ".json") == 0) return refused[i].reason;
    }
    return NULL;
}

static bool has_optimizer(const char *path)
{
    char text[8192];
    FILE *f = fopen(path, "r");
    size_t bytes = f != NULL ? fread(text, 1, sizeof text - 1, f) : 0;
    if (f != NULL) fclose(f);
    text[bytes] = '\0';
    return strstr(text, "\"optimizer\":") != NULL;
}

static sluice_status plan_file(const char *path, FILE *out)
{
    sluice_config *c;
    sluice_job_options o;
    sluice_status st = sluice_config_load(path, &c);
    if (st != SLUICE_OK) return st;
    if (!has_optimizer(path)) st = sluice_config_set(c, "optimizer.type=AdamW");
    for (size_t i = 0; i < sizeof additions / sizeof additions[0] && st == SLUICE_OK; i++)
        st = sluice_config_set(c, additions[i]);
    sluice_job_options_init(&o);
    o.out = out;
    if (st == SLUICE_OK) st = sluice_job_plan(c, &o);
    sluice_config_destroy(c);
    return st;
}

/* One file: planned, or refused with its reason. Returns whether it was planned. */
static bool check_file(const char *name, FILE *out)
{
    char path[4096];
    const char *reason = reason_of(name);
    snprintf(path, sizeof path, FILES "%s", name);
    sluice_status st = plan_file(path, out);
    if (reason == NULL) {
        CHECK_THAT(st == SLUICE_OK, "%s: %s", name, sluice_error());
        return st == SLUICE_OK;
    }
    CHECK_THAT(st == SLUICE_ERR_USAGE && strstr(sluice_error(), reason) != NULL, "%s: status %d, \"%s\" lacks \"%s\"",
               name, (int)st, sluice_error(), reason);
    return st == SLUICE_OK;
}

TEST(files_of_deepspeed_are_planned_or_refused_with_the_reason)
{
    DIR *folder = opendir(FILES);
    FILE *out = fopen("/dev/null", "w");
    int files = 0, planned = 0;
    REQUIRE(folder != NULL && out != NULL);
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        if (strstr(entry->d_name, ".json") == NULL) continue;
        files++;
        planned += check_file(entry->d_name, out);
    }
    closedir(folder);
    fclose(out);
    printf("DeepSpeed files: %d of %d planned, %d refused with the reason\n", planned, files, files - planned);
    CHECK_EQ(planned, PLANNED_COUNT);
    CHECK_EQ(files, PLANNED_COUNT + REFUSED_COUNT);
}

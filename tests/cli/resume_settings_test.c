/* resume_settings_test.c: settings that change on --resume are refused with the key and both values, or pass, as their
 * rows say (docs/resume.md). */
#include "support/plain_files.h"
#include "support/run.h"
#include "test.h"

/* Trains two steps and keeps the checkpoint; every case continues from a copy of it. */
static void make_run(char folder[4096])
{
    snprintf(folder, 4096, "%s", test_tmpdir());
    run_write(folder, "a.json",
              "{\"model\": {\"type\": \"llama\", \"layers\": 2, \"heads\": 2, \"width\": 16, \"context\": 8,\n"
              "  \"feed_forward\": 32, \"vocabulary\": \"20\"},\n"
              " \"data\": {\"type\": \"random_tokens\", \"samples\": 64, \"validation\": 0.25},\n"
              " \"lora\": {\"rank\": 2, \"targets\": [\"*\"]},\n"
              " \"steps\": 2, \"train_batch_size\": 4, \"train_micro_batch_size_per_gpu\": 2, \"threads\": 1,\n"
              " \"optimizer\": {\"type\": \"AdamW\"}, \"checkpoint\": {\"path\": \"run\", \"every\": 2}}\n");
    run_result r = run_sluice(folder, "train a.json --quiet");
    CHECK_EQ(r.status, 0);
    run_free(&r);
}

static run_result resume(const char *folder, const char *settings)
{
    char arguments[1024], command[8400];
    snprintf(command, sizeof command, "rm -rf '%s/again' && cp -r '%s/run' '%s/again'", folder, folder, folder);
    CHECK_EQ(system(command), 0);
    snprintf(arguments, sizeof arguments, "train a.json --quiet --resume --set steps=3 --set checkpoint.path=again %s",
             settings);
    return run_sluice(folder, arguments);
}

TEST(settings_of_a_runs_identity_are_refused_on_resume_with_both_values)
{
    static const struct {
        const char *set, *message;
    } cases[] = {
        { "--set seed=2", "seed is 2, the checkpoint was made with 1" },
        { "--set model.type=gpt2", "model.type is \"gpt2\", the checkpoint was made with \"llama\"" },
        { "--set model.layers=3", "model.layers is 3, the checkpoint was made with 2" },
        { "--set model.heads=4", "model.heads is 4, the checkpoint was made with 2" },
        { "--set model.kv_heads=1", "model.kv_heads is 1, the checkpoint was made with \"auto\"" },
        { "--set model.context=4", "model.context is 4, the checkpoint was made with 8" },
        { "--set model.width=32", "model.width is 32, the checkpoint was made with 16" },
        { "--set model.feed_forward=48", "model.feed_forward is 48, the checkpoint was made with 32" },
        { "--set model.vocabulary=21", "model.vocabulary is \"21\", the checkpoint was made with \"20\"" },
        { "--set model.tie_word_embeddings=false",
          "model.tie_word_embeddings is false, the checkpoint was made with true" },
        { "--set model.rope_theta=10000", "model.rope_theta is 10000, the checkpoint was made with 500000" },
        { "--set model.norm_epsilon=1e-6", "model.norm_epsilon is 1e-06, the checkpoint was made with 1e-05" },
        { "--set lora.alpha=8", "lora.alpha is 8, the checkpoint was made with \"auto\"" },
        { "--set lora.rank=4", "lora.rank is 4, the checkpoint was made with 2" },
        { "--set 'lora.targets=[\"*q*\"]'", "lora.targets is [\"*q*\"], the checkpoint was made with [\"*\"]" },
        { "--set data.validation=0.5", "data.validation is 0.5, the checkpoint was made with 0.25" },
        { "--set data.samples=32", "data.samples is 32, the checkpoint was made with 64" },
        { "--set data.seed=9", "data.seed is 9, the checkpoint was made with 1" },
        { "--set data.shuffle=false", "data.shuffle is false, the checkpoint was made with true" },
        { "--set train_batch_size=8", "train_batch_size is 8, the checkpoint was made with 4" },
        { "--set train_micro_batch_size_per_gpu=1",
          "train_micro_batch_size_per_gpu is 1, the checkpoint was made with 2" },
        { "--set optimizer.type=Lion", "optimizer.type is \"Lion\", the checkpoint was made with \"AdamW\"" },
        { "--set optimizer.params.adam_w_mode=false --set optimizer.type=Adam",
          "optimizer.type is \"Adam\", the checkpoint was made with \"AdamW\"" },
        { "--set optimizer.params.amsgrad=true",
          "optimizer.params.amsgrad is true, the checkpoint was made with false" },
        { "--set bf16.enabled=true", "the checkpoint was made with" },
        { "--set fp16.enabled=true", "the checkpoint was made with" },
        { "--set communication_data_type=bf16",
          "communication_data_type is \"bf16\", the checkpoint was made with \"fp32\"" },
        { "--set zero_optimization.states=compact",
          "zero_optimization.states is \"compact\", the checkpoint was made with \"fp32\"" },
        { "--set tf32=true", "tf32 is true, the checkpoint was made with false" },
        { "--set memory.tile_bytes=1024", "memory.tile_bytes is 1024, the checkpoint was made with \"auto\"" },
    };
    char folder[4096];
    make_run(folder);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        run_result r = resume(folder, cases[i].set);
        if (r.status != 2) test_fail(__FILE__, __LINE__, "%s: status %d: %s", cases[i].set, r.status, r.error);
        CHECK_CONTAINS(r.error, cases[i].message);
        run_free(&r);
    }
}

TEST(settings_that_may_change_pass_on_resume)
{
    static const char *const cases[] = {
        "--set optimizer.params.lr=0.01",
        "--set 'optimizer.params.betas=[0.8, 0.9]'",
        "--set optimizer.params.weight_decay=0.1",
        "--set gradient_clipping=0.5",
        "--set scheduler.type=WarmupLR --set scheduler.params.warmup_num_steps=2",
        "--set lora.dropout=0.1", /* nodes of dropout do not make another model */
        "--set zero_optimization.stage=2 --ranks 2",
        "--set zero_optimization.offload_optimizer.device=cpu",
        "--set zero_optimization.offload_param.device=cpu",
        "--set activation_checkpointing.mode=recompute",
        "--set memory.device=8MiB --set memory.levels=2",
        "--set threads=2",
        "--set gradient_accumulation_steps=2",
        "--set evaluate.every=1",
        "--set checkpoint.keep=1",
        "--set save=weights.safetensors",
        "--set model.feed_forward=32 --set model.kv_heads=2", /* a default, written out */
    };
    char folder[4096];
    make_run(folder);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        run_result r = resume(folder, cases[i]);
        if (r.status != 0) test_fail(__FILE__, __LINE__, "%s: status %d: %s", cases[i], r.status, r.error);
        CHECK_STR(r.error, "");
        run_free(&r);
    }
}

/* No setting says them: the refusal names them as the graph does, also where one side has none. */
TEST(attributes_that_only_config_json_says_are_refused_on_resume_with_both_values)
{
    char folder[1024], command[2048];
    snprintf(folder, sizeof folder, "%.1000s", test_tmpdir());
    run_write(
        folder, "a.json",
        "{\"model\": {\"type\": \"gemma2\", \"layers\": 2, \"heads\": 2, \"width\": 16, \"context\": 8,\n"
        " \"feed_forward\": 32, \"vocabulary\": \"20\"}, \"data\": {\"type\": \"random_tokens\", \"samples\": 64},\n"
        " \"steps\": 2, \"train_batch_size\": 4, \"threads\": 1, \"optimizer\": {\"type\": \"AdamW\"},\n"
        " \"save\": \"m/\"}\n");
    run_must(folder, "train a.json --quiet");
    run_write(folder, "b.json",
              "{\"model\": {\"path\": \"m\"}, \"data\": {\"type\": \"random_tokens\", \"samples\": 64},\n"
              " \"steps\": 2, \"train_batch_size\": 4, \"threads\": 1, \"optimizer\": {\"type\": \"AdamW\"},\n"
              " \"checkpoint\": {\"path\": \"with\"}}\n");
    run_must(folder, "train b.json --quiet");
    snprintf(command, sizeof command,
             "sed -i 's/\"final_logit_softcapping\": 30.0/\"final_logit_softcapping\": null/' '%s'",
             at(folder, "m/config.json"));
    CHECK_EQ(system(command), 0);
    run_result r = run_sluice(folder, "train b.json --quiet --resume --set steps=3");
    CHECK_EQ(r.status, 2);
    CHECK_CONTAINS(r.error, "softcap is 0, the checkpoint was made with 30");
    run_free(&r);
    run_must(folder, "train b.json --quiet --set checkpoint.path=without");
    snprintf(command, sizeof command,
             "sed -i 's/\"final_logit_softcapping\": null/\"final_logit_softcapping\": 30.0/' '%s'",
             at(folder, "m/config.json"));
    CHECK_EQ(system(command), 0);
    r = run_sluice(folder, "train b.json --quiet --resume --set steps=3 --set checkpoint.path=without");
    CHECK_EQ(r.status, 2);
    CHECK_CONTAINS(r.error, "softcap is 30, the checkpoint was made with 0");
    run_free(&r);
    run_must(folder, "train b.json --quiet --resume --set steps=3");
}

/* GPT-2 has dropout in its blocks: switching it on or off changes the nodes, but not what a checkpoint holds. */
TEST(dropout_may_change_on_resume)
{
    char folder[4096];
    snprintf(folder, sizeof folder, "%s", test_tmpdir());
    run_write(folder, "a.json",
              "{\"model\": {\"type\": \"gpt2\", \"layers\": 1, \"heads\": 2, \"width\": 16, \"context\": 8, "
              "\"vocabulary\": \"20\"}, \"data\": {\"type\": \"random_tokens\", \"samples\": 64}, \"steps\": 2, "
              "\"train_batch_size\": 4, \"threads\": 1, \"optimizer\": {\"type\": \"AdamW\"}, "
              "\"checkpoint\": {\"path\": \"run\"}}");
    static const char *const runs[] = { "train a.json --quiet",
                                        "train a.json --quiet --resume --set steps=3 --set model.dropout=0.1",
                                        "train a.json --quiet --resume --set steps=4" };
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
        run_result r = run_sluice(folder, runs[i]);
        CHECK_THAT(r.status == 0 && r.error[0] == '\0', "%s: status %d: %s", runs[i], r.status, r.error);
        run_free(&r);
    }
}

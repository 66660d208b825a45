/* wrong_file_test.c: files and folders that are not what a command takes: every command says what they are and what to do. */
#include <sys/stat.h>

#include "support/run.h"
#include "test.h"

static void write_raw(const char *folder, const char *name, const char *bytes, size_t count)
{
    char path[4400];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    if (f == NULL || fwrite(bytes, 1, count, f) != count || fclose(f) != 0) test_fail(__FILE__, __LINE__, "%s", path);
}

static void make_folder(const char *folder, const char *name)
{
    char path[4400];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    CHECK_EQ(mkdir(path, 0777), 0);
}

static void prepare(char folder[4096])
{
    static const char zip[] =
        "PK\003\004\024\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000"
        "\000\000\020\000\000\000archive/data.pkl";
    static const char pickle[] = "\200\002}q\000X\001\000\000\000aq\001K\001s.";
    snprintf(folder, 4096, "%s", test_tmpdir());
    run_write_config(folder, "good.json",
                     ", \"checkpoint\": {\"path\": \"run\", \"every\": 1}, \"save\": \"w.safetensors\"");
    write_raw(folder, "model.bin", zip, sizeof zip - 1);
    write_raw(folder, "old.pt", pickle, sizeof pickle - 1);
    run_write(folder, "pointer.safetensors", "version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 5\n");
    run_write(folder, "model.safetensors.index.json", "{\"metadata\": {}, \"weight_map\": {\"a\": \"b\"}}");
    run_write(folder, "list.json", "{\"metadata\": {}, \"weight_map\": {\"a\": \"b\"}}");
    run_write(folder, "page.safetensors", "<!DOCTYPE html><html></html>");
    write_raw(folder, "m.gguf", "GGUF\003\000\000\000\000\000\000\000", 12);
    write_raw(folder, "a.npz", "PK\003\004..........................a.npy", 35);
    make_folder(folder, "empty");
    make_folder(folder, "hub");
    run_write(folder, "hub/other.safetensors", "x");
    run_write(folder, "hub/config.json", "{}");
    make_folder(folder, "pickles");
    run_write(folder, "pickles/pytorch_model.bin", "x");
    run_write(folder, "pickles/config.json", "{}");
    make_folder(folder, "weightless");
    run_write(folder, "weightless/config.json", "{}");
    make_folder(folder, "shards");
    run_write(folder, "shards/model-00001-of-00002.safetensors", "x");
    run_write(folder, "shards/model.safetensors.index.json", "{}");
    run_result r = run_sluice(folder, "train good.json --quiet");
    CHECK_EQ(r.status, 0);
    run_free(&r);
}

TEST(every_command_says_what_a_wrong_file_is)
{
    static const struct {
        const char *file, *what, *advice;
    } files[] = {
        { "model.bin", "model.bin is a PyTorch pickle", "safetensors.torch.save_file" },
        { "old.pt", "old.pt is a Python pickle (torch.save)", "safetensors.torch.save_file" },
        { "pointer.safetensors", "is a Git LFS pointer, not the file itself", "git lfs pull" },
        { "model.safetensors.index.json", "model.safetensors.index.json: b is missing", "tensor \"a\"" },
        { "list.json", "is the index of weights in several files", "a name that ends in .index.json" },
        { "page.safetensors", "is a web page (HTML)", "download failed" },
        { "m.gguf", "is a GGUF file", "the .safetensors it was made from" },
        { "a.npz", "is a NumPy archive", "safetensors.numpy" },
        { "run/latest", "is a text that names the newest checkpoint of its folder", "give the folder" },
    };
    static const char *const commands[] = { "inspect %s", "verify %s", "export %s --out out.safetensors",
                                            "train good.json --set checkpoint.path= --set load=%s",
                                            "eval good.json --weights %s" };
    char folder[4096];
    prepare(folder);
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        for (size_t k = 0; k < sizeof commands / sizeof commands[0]; k++) {
            char arguments[512];
            snprintf(arguments, sizeof arguments, commands[k], files[i].file);
            run_result r = run_sluice(folder, arguments);
            CHECK_EQ(r.status, 4);
            CHECK_CONTAINS(r.error, files[i].what);
            CHECK_CONTAINS(r.error, files[i].advice);
            run_free(&r);
        }
}

TEST(a_folder_without_checkpoints_is_refused_with_what_it_holds)
{
    static const struct {
        const char *arguments, *part, *second_part;
    } rows[] = {
        { "inspect empty", "empty holds no checkpoint", "step-N" },
        { "inspect --json empty", "empty holds no checkpoint", "step-N" },
        { "verify empty", "empty holds no checkpoint", "step-N" },
        { "export empty --out o.safetensors", "empty holds no checkpoint", "step-N" },
        { "export nowhere --out o.safetensors", "nowhere: there is no such file or folder", "nowhere" },
        { "inspect hub", "hub holds no checkpoint, but \"other.safetensors\"", "name that" },
        { "inspect shards", "shards/model.safetensors.index.json is no index of weights", "no weight_map" },
        { "eval good.json --weights hub", "hub holds no checkpoint, but \"other.safetensors\"", "name that" },
        { "eval good.json --weights pickles", "pickles holds no checkpoint, but \"pytorch_model.bin\"",
          "let transformers write model.safetensors" },
        { "eval good.json --weights weightless", "weightless is the folder of a model without its weights",
          "neither model.safetensors nor model.safetensors.index.json" },
        { "export weightless --out o.safetensors", "weightless is the folder of a model without its weights", "copy" },
        { "eval good.json --weights run", "run holds checkpoints, not a weights file", "sluice export run --out FILE" },
        { "eval good.json --weights run/step-5", "run/step-5 holds checkpoints", "sluice export" },
        { "export w.safetensors --out o.safetensors", "w.safetensors is a weights file already", "step-N" },
    };
    char folder[4096];
    prepare(folder);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        run_result r = run_sluice(folder, rows[i].arguments);
        CHECK_EQ(r.status, 4);
        CHECK_STR(r.out, "");
        CHECK_CONTAINS(r.error, rows[i].part);
        CHECK_CONTAINS(r.error, rows[i].second_part);
        run_free(&r);
    }
    run_result good = run_sluice(folder, "inspect run");
    CHECK_EQ(good.status, 0);
    CHECK_CONTAINS(good.out, "run: folder of checkpoints, newest first");
    run_free(&good);
}

TEST(one_tensor_is_not_called_tensors)
{
    static const char header[] = "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}";
    char folder[4096], file[128] = { sizeof header - 1 };
    snprintf(folder, sizeof folder, "%s", test_tmpdir());
    memcpy(file + 8, header, sizeof header - 1);
    write_raw(folder, "one.safetensors", file, 8 + sizeof header - 1 + 4);
    run_result r = run_sluice(folder, "inspect one.safetensors");
    CHECK_EQ(r.status, 0);
    CHECK_CONTAINS(r.out, "safetensors, 1 tensor, 1 element, 4 B");
    run_free(&r);
    r = run_sluice(folder, "verify one.safetensors");
    CHECK_CONTAINS(r.out, "ok: 1 tensor;");
    run_free(&r);
}

TEST(a_file_that_is_no_configuration_is_told_what_it_is)
{
    static const struct {
        const char *name, *text, *arguments, *says;
    } rows[] = {
        { "hub/config.json", "{\"model_type\": \"llama\", \"big\": 1000000000000000019884624838656}",
          "plan hub/config.json",
          "hub/config.json describes a model, and a run's configuration is expected; give the model's folder: --model "
          "hub\n" },
        { "adapter_config.json", "{\"peft_type\": \"LORA\"}", "plan adapter_config.json",
          "describes an adapter, and a run's configuration is expected; give the adapter's folder: --adapter .\n" },
        { "b.jsonl", "{\"messages\": []}\n{\"messages\": []}\n", "train --model hub --data a.jsonl b.jsonl",
          "b.jsonl holds samples, and a run's configuration is expected. --data takes one file: join several with "
          "cat" },
        { "run.yaml", "model: {}\n", "plan run.yaml", "run.yaml is YAML, and a configuration is JSON: python3 -c" },
        { "run", "# a comment\n\nmodel:\n  type: gpt2\n", "plan run", "run is YAML, and a configuration is JSON" },
        /* a configuration with a mistake in it stays one */
        { "c.json", "{\"model\": {}, \"model_type\": \"llama\"}", "plan c.json",
          "c.json:1: unknown key \"model_type\": sluice calls it model.type\n" },
        { "d.json", "{\"steps\": 1, }", "plan d.json", "d.json: line 1, column 14: " },
        { "e.txt", "some words: and more of them", "plan e.txt", "e.txt: line 1, column 1: expected a value\n" },
    };
    char folder[4096];
    snprintf(folder, sizeof folder, "%s", test_tmpdir());
    make_folder(folder, "hub");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        run_write(folder, rows[i].name, rows[i].text);
        run_result r = run_sluice(folder, rows[i].arguments);
        CHECK_THAT(r.status == 2, "%s: %d", rows[i].arguments, r.status);
        CHECK_CONTAINS(r.error, rows[i].says);
        run_free(&r);
    }
}

TEST(a_name_on_a_hub_is_answered_with_how_to_fetch_it)
{
    static const char *const commands[] = { "plan --model some-owner/no.model-7B --data x.txt",
                                            "train --model meta-llama/Llama-3.1-8B --data x.txt",
                                            "train good.json --set load=some-owner/no.model-7B",
                                            "eval good.json --weights some-owner/no.model-7B" };
    static const char *const paths[] = { "train good.json --set load=./owner/model", "train good.json --set load=a/b/c",
                                         "train good.json --set load=model" };
    char folder[4096];
    snprintf(folder, sizeof folder, "%s", test_tmpdir());
    run_write_config(folder, "good.json", "");
    run_write(folder, "x.txt", "words");
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        run_result r = run_sluice(folder, commands[i]);
        CHECK_THAT(r.status == 2 || r.status == 4, "%s: %d", commands[i], r.status);
        CHECK_CONTAINS(r.error, "; sluice downloads nothing: if it is a model on a hub, `hf download ");
        CHECK_CONTAINS(r.error, " --local-dir FOLDER` fetches it");
        run_free(&r);
    }
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        run_result r = run_sluice(folder, paths[i]);
        CHECK_EQ(r.status, 4);
        CHECK_THAT(strstr(r.error, "hub") == NULL, "%s: %s", paths[i], r.error);
        run_free(&r);
    }
}

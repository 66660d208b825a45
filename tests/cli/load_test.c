/* load_test.c: weights files that almost fit a model are refused, with what they look like and which setting is meant. */
#include "format/safetensors.h"
#include "support/run.h"
#include "test.h"

#define REST                                                                                                           \
    " \"data\": {\"type\": \"random_tokens\", \"samples\": 16}, \"steps\": 1, \"seed\": 3, \"train_batch_size\": 2,\n" \
    " \"threads\": 1, \"optimizer\": {\"type\": \"SGD\", \"params\": {\"lr\": 0.5}}}\n"

/* llama.json, gpt2.json, and weights: untied, tied, gpt2, lora (of a Llama). */
static void prepare(char folder[4096])
{
    snprintf(folder, 4096, "%s", test_tmpdir());
    run_write(folder, "llama.json",
              "{\"model\": {\"type\": \"llama\", \"layers\": 2, \"heads\": 2, \"width\": 16, \"context\": 8,\n"
              "  \"feed_forward\": 32, \"vocabulary\": \"20\"},\n" REST);
    run_write(folder, "gpt2.json",
              "{\"model\": {\"type\": \"gpt2\", \"layers\": 2, \"heads\": 2, \"width\": 16, \"context\": 8, "
              "\"vocabulary\": \"20\"},\n" REST);
    run_must(folder, "train llama.json --quiet --set save=untied.safetensors --set model.tie_word_embeddings=false");
    run_must(folder, "train llama.json --quiet --set save=tied.safetensors");
    run_must(folder, "train gpt2.json --quiet --set save=gpt2.safetensors");
    run_must(folder,
             "train llama.json --quiet --set save=lora.safetensors --set lora.rank=2 --set 'lora.targets=[\"*\"]'");
}

/* Copies a weights file with a prefix before (or, where it begins with '-', taken from) its names, and with `extra` as a
 * tensor that has the values of `of`, or zeros where `of` is NULL. */
static void rewrite(const char *folder, const char *from, const char *to, const char *prefix, const char *extra,
                    const char *of)
{
    static char names[256][128];
    sl_st_tensor tensors[256];
    char path[4400], *buffer = calloc(1, 1 << 20);
    sl_st_file *f;
    sl_st_writer *w;
    snprintf(path, sizeof path, "%s/%s", folder, from);
    REQUIRE_OK(sl_st_open(path, &f));
    int count = (int)f->tensor_count;
    const sl_st_tensor *source = of != NULL ? sl_st_find(f, of) : f->by_name[0];
    for (int i = 0; i < count; i++) {
        bool cut = prefix[0] == '-' && strncmp(f->tensors[i].name, prefix + 1, strlen(prefix + 1)) == 0;
        tensors[i] = f->tensors[i];
        tensors[i].name = names[i];
        snprintf(names[i], sizeof names[i], "%s%s", prefix[0] == '-' ? "" : prefix,
                 f->tensors[i].name + (cut ? strlen(prefix + 1) : 0));
    }
    if (extra != NULL) {
        tensors[count] = *source;
        tensors[count].name = extra;
    }
    snprintf(path, sizeof path, "%s/%s", folder, to);
    REQUIRE_OK(sl_st_write_begin(path, tensors, count + (extra != NULL), NULL, 0, &w));
    for (int i = 0; i < count; i++) {
        REQUIRE_OK(sl_st_read(f, &f->tensors[i], 0, sl_st_elements(&f->tensors[i]), buffer));
        REQUIRE_OK(sl_st_write_data(w, buffer, f->tensors[i].bytes));
    }
    memset(buffer, 0, 1 << 20);
    if (of != NULL) REQUIRE_OK(sl_st_read(f, source, 0, sl_st_elements(source), buffer));
    if (extra != NULL) REQUIRE_OK(sl_st_write_data(w, buffer, source->bytes));
    REQUIRE_OK(sl_st_write_finish(w));
    sl_st_close(f);
    free(buffer);
}

static void check_refused(const char *folder, const char *arguments, const char *part, const char *second_part)
{
    run_result r = run_sluice(folder, arguments);
    CHECK_EQ(r.status, 4);
    CHECK_CONTAINS(r.error, part);
    CHECK_CONTAINS(r.error, second_part);
    run_free(&r);
}

TEST(a_head_of_its_own_is_not_dropped_where_the_model_ties_it_to_the_embedding)
{
    char folder[4096];
    prepare(folder);
    check_refused(folder, "eval llama.json --weights untied.safetensors",
                  "\"lm_head.weight\" differs from \"model.embed_tokens.weight\"",
                  "set model.tie_word_embeddings to false");
    check_refused(folder, "train llama.json --set load=untied.safetensors", "lm_head.weight",
                  "set model.tie_word_embeddings to false");
    check_refused(folder, "train llama.json --ranks 2 --set load=untied.safetensors", "lm_head.weight",
                  "set model.tie_word_embeddings to false");
    run_must(folder, "eval llama.json --weights untied.safetensors --set model.tie_word_embeddings=false");
    rewrite(folder, "tied.safetensors", "same.safetensors", "", "lm_head.weight", "model.embed_tokens.weight");
    run_must(folder, "eval llama.json --weights same.safetensors");
    run_must(folder, "train llama.json --quiet --ranks 2 --set load=same.safetensors");
    check_refused(folder, "eval llama.json --weights tied.safetensors --set model.tie_word_embeddings=false",
                  "it lacks 1 tensor of the model: \"lm_head.weight\"", "set model.tie_word_embeddings to true");
    rewrite(folder, "gpt2.safetensors", "head.safetensors", "", "lm_head.weight", "wte.weight");
    run_must(folder, "eval gpt2.json --weights head.safetensors");
}

TEST(a_file_of_another_model_is_refused_with_what_it_looks_like)
{
    static const struct {
        const char *from, *to, *prefix, *extra, *arguments, *part, *second_part;
    } rows[] = {
        { NULL, NULL, NULL, NULL, "eval llama.json --weights gpt2.safetensors", "and 15 more",
          "It looks like a GPT-2" },
        { NULL, NULL, NULL, NULL, "eval gpt2.json --weights tied.safetensors", "it holds 20 tensors",
          "It looks like a Llama or Mistral" },
        { NULL, NULL, NULL, NULL, "eval llama.json --weights lora.safetensors", "lora_A.weight",
          "set lora.rank and lora.targets" },
        { NULL, NULL, NULL, NULL, "eval llama.json --weights tied.safetensors --set model.layers=3",
          "it lacks 9 tensors of the model: \"model.layers.2.", "compare model.layers" },
        { NULL, NULL, NULL, NULL, "eval llama.json --weights tied.safetensors --set model.layers=1",
          "it holds 9 tensors the model does not have: \"model.layers.1.", "compare model.layers" },
        { "gpt2.safetensors", "prefixed.safetensors", "transformer.", "wpe.weight",
          "eval gpt2.json --weights prefixed.safetensors", "it lacks 27 tensors of the model",
          "Some of its names have \"transformer.\" before those of this model" },
        { "tied.safetensors", "bare.safetensors", "-model.", "model.norm.weight",
          "eval llama.json --weights bare.safetensors", "it lacks 19 tensors of the model",
          "Some of its names lack the \"model.\" before those of this model" },
        { "tied.safetensors", "qwen.safetensors", "", "model.layers.0.self_attn.q_proj.bias",
          "eval llama.json --weights qwen.safetensors", "it holds 1 tensor the model does not have", "Qwen2" },
        { "tied.safetensors", "bert.safetensors", "", "bert.encoder.layer.0.attention.self.query.weight",
          "eval llama.json --weights bert.safetensors", "it holds 1 tensor the model does not have", "a BERT" },
        { "tied.safetensors", "model-00001-of-00002.safetensors", "", "x",
          "eval llama.json --weights model-00001-of-00002.safetensors", "it holds 1 tensor", "one of several files" },
        { "tied.safetensors", "more.safetensors", "", "x", "train llama.json --set load=more.safetensors",
          "it holds 1 tensor the model does not have: \"x\"", "does not fit this model" },
    };
    char folder[4096];
    prepare(folder);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (rows[i].from != NULL) rewrite(folder, rows[i].from, rows[i].to, rows[i].prefix, rows[i].extra, NULL);
        check_refused(folder, rows[i].arguments, rows[i].part, rows[i].second_part);
    }
}

/* Programs put prefixes before names, one inside the other, or leave them out; a head never bears the model's own. */
TEST(a_prefix_that_all_names_have_or_lack_does_not_matter)
{
    static const struct {
        const char *from, *prefix, *extra, *of, *config;
    } rows[] = {
        { "gpt2.safetensors", "transformer.", "lm_head.weight", "wte.weight", "gpt2.json" },
        { "gpt2.safetensors", "transformer.", "transformer.h.0.attn.bias", NULL, "gpt2.json" },
        { "gpt2.safetensors", "base_model.model.transformer.", NULL, NULL, "gpt2.json" },
        { "gpt2.safetensors", "module.", "module.lm_head.weight", "wte.weight", "gpt2.json" },
        { "tied.safetensors", "-model.", NULL, NULL, "llama.json" },
        { "tied.safetensors", "-model.", "lm_head.weight", "model.embed_tokens.weight", "llama.json" },
        { "tied.safetensors", "_orig_mod.", NULL, NULL, "llama.json" },
        { "untied.safetensors", "base_model.model.", NULL, NULL, "llama.json --set model.tie_word_embeddings=false" },
        { "untied.safetensors", "-model.", NULL, NULL, "llama.json --set model.tie_word_embeddings=false" },
    };
    char folder[4096], arguments[256];
    prepare(folder);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        rewrite(folder, rows[i].from, "renamed.safetensors", rows[i].prefix, rows[i].extra, rows[i].of);
        snprintf(arguments, sizeof arguments, "eval %s --weights %s", rows[i].config, rows[i].from);
        run_result plain = run_sluice(folder, arguments);
        snprintf(arguments, sizeof arguments, "eval %s --weights renamed.safetensors", rows[i].config);
        run_result renamed = run_sluice(folder, arguments);
        CHECK_EQ(renamed.status, 0);
        CHECK_STR(renamed.error, "");
        *strchrnul(plain.out, ';') = *strchrnul(renamed.out, ';') = '\0'; /* the name of the weights follows */
        CHECK_STR(renamed.out, plain.out);
        run_free(&plain);
        run_free(&renamed);
    }
}

TEST(buffers_that_published_files_hold_and_adapters_that_they_lack_do_not_matter)
{
    char folder[4096];
    prepare(folder);
    rewrite(folder, "tied.safetensors", "old.safetensors", "", "model.layers.0.self_attn.rotary_emb.inv_freq", NULL);
    run_must(folder, "eval llama.json --weights old.safetensors");
    rewrite(folder, "gpt2.safetensors", "mask.safetensors", "", "h.0.attn.bias", NULL);
    run_must(folder, "eval gpt2.json --weights mask.safetensors");
    run_must(folder,
             "train llama.json --quiet --set load=tied.safetensors --set lora.rank=2 --set 'lora.targets=[\"*\"]'");
    run_must(folder, "train llama.json --quiet --set load=tied.safetensors --set 'freeze=[\"model.embed*\"]'");
    run_must(folder, "eval llama.json --weights lora.safetensors --set lora.rank=2 --set 'lora.targets=[\"*\"]'");
}

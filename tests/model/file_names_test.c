/* file_names_test.c: parameters are frozen, grouped and begun anew by the names that files of transformers have for them. */
#include <dirent.h>

#include "format/weights_set.h"
#include "model/model.h"
#include "optim/optim.h"
#include "support/network_run.h"
#include "test.h"

#define FIXTURES SLUICE_SOURCE_DIR "/tests/fixtures/"

/* The model of a recorded folder. */
static sl_model_options model_of(const char *folder)
{
    sl_model_options o;
    network_run r = { .folder = folder };
    char path[1100];
    snprintf(path, sizeof path, "%s/network.json", folder);
    r.spec = json_load_file(path, 0, NULL);
    if (r.spec != NULL) {
        if (network_describe(&r) != SLUICE_OK) exit(99);
        o = r.m;
        o.head = o.head != NULL ? "classifier" : NULL; /* texts go with the description; of heads there is this one */
        o.stem = NULL;
        json_decref(r.spec);
    } else {
        o = (sl_model_options){ .batch = 2, .context = 14 };
        if (sl_model_config_read(folder, &o.folder, NULL) != SLUICE_OK) exit(99);
        o.vocabulary = o.folder.vocabulary;
    }
    o.type = sl_decoder_name(o.folder.family);
    if (o.folder.family == SL_DECODER_VIT) o.outputs = o.folder.classes;
    return o;
}

static sluice_status build(const sl_model_options *o, sluice_graph **out)
{
    sl_model_info info;
    if (sluice_graph_create(out) != SLUICE_OK) exit(99);
    return sl_model_build(*out, o, &info);
}

static int count_trained(const sluice_graph *g)
{
    int n = 0;
    for (int p = 0; p < g->parameter_count; p++) n += g->parameters[p].trainable;
    return n;
}

/* Parameters that are trained with these patterns in `freeze`; -1: they are refused. */
static int trained_with(const sl_model_options *model, const char *const *patterns, int count)
{
    sl_model_options o = *model;
    sluice_graph *g;
    o.freeze = patterns;
    o.freeze_count = count;
    int trained = build(&o, &g) == SLUICE_OK ? count_trained(g) : -1;
    sluice_graph_destroy(g);
    return trained;
}

/* A part of a fused parameter is refused, with a pattern for all of it. */
static void check_part(const sl_model_options *o, const char *name, int all)
{
    char message[SL_MESSAGE_BYTES], pattern[300] = "";
    const char *const advised = pattern;
    sl_error_copy(message);
    CHECK_CONTAINS(message, name);
    const char *at = strstr(message, "(\"*.");
    CHECK_THAT(at != NULL && sscanf(at, "(\"%299[^\"]", pattern) == 1, "%s: %s", name, message);
    CHECK_THAT(trained_with(o, &advised, 1) < all, "%s does not help: %s", pattern, message);
}

/* Every name of the folder's files stands literally in `freeze`; all of them together freeze everything. */
static void check_names(const char *folder)
{
    const char *names[256];
    int count = 0;
    sl_weights_set *s;
    sl_model_options o = model_of(folder);
    REQUIRE_OK(sl_weights_set_open(folder, &s));
    const int all = trained_with(&o, NULL, 0);
    for (int64_t t = 0; t < s->tensor_count; t++) {
        const char *name = s->tensors[t].name;
        int trained = trained_with(&o, &name, 1);
        if (trained < 0) check_part(&o, name, all);
        CHECK_THAT(trained < all, "%s: freezing %s freezes nothing", folder, name);
        REQUIRE(count < 256);
        names[count++] = name;
    }
    CHECK_EQ(trained_with(&o, names, count), 0);
    sl_weights_set_close(s);
}

TEST(every_name_that_a_folder_of_any_family_has_can_be_frozen)
{
    static const char *const networks[] = { "networks/bert", "networks/bert-classifier", "networks/vit",
                                            "networks/vit-grey" };
    char path[1100];
    int folders = 0;
    DIR *d = opendir(FIXTURES "families");
    REQUIRE(d != NULL);
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        if (e->d_name[0] == '.') continue;
        snprintf(path, sizeof path, FIXTURES "families/%.200s", e->d_name);
        check_names(path);
        folders++;
    }
    closedir(d);
    CHECK(folders > 10);
    for (size_t i = 0; i < sizeof networks / sizeof networks[0]; i++) {
        snprintf(path, sizeof path, FIXTURES "%s", networks[i]);
        check_names(path);
    }
}

static bool is_trained(const sluice_graph *g, const char *name)
{
    return g->parameters[sl_graph_find_parameter(g, name)].trainable;
}

/* Patterns of parts, together all of them, with whatever prefix files may have. */
TEST(parts_that_are_all_named_are_the_fused_parameter)
{
    static const char *const lists[][3] = {
        { "*.[qkv]_proj.weight" },
        { "*.q_proj.weight", "*.k_proj.weight", "*.v_proj.weight" },
        { "layers.*.self_attn.[qkv]_proj.weight" },
        { "base_model.model.model.layers.*.self_attn.[qkv]_proj.weight" },
        { "*.qkv_proj.weight" },
    };
    sl_model_options o = model_of(FIXTURES "families/llama");
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        sluice_graph *g;
        o.freeze = lists[i];
        for (o.freeze_count = 0; o.freeze_count < 3 && lists[i][o.freeze_count] != NULL;) o.freeze_count++;
        REQUIRE_OK(build(&o, &g));
        CHECK_THAT(!is_trained(g, "model.layers.1.self_attn.qkv_proj.weight"), "%s", lists[i][0]);
        CHECK_EQ(count_trained(g), g->parameter_count - 2);
        sluice_graph_destroy(g);
    }
}

/* A pattern that happens to fit the fused name, too, means the part. */
TEST(a_part_alone_is_refused_with_the_names_of_what_it_is_part_of)
{
    static const struct {
        const char *folder, *pattern, *says;
    } cases[] = {
        { FIXTURES "families/llama", "*.q_proj.weight",
          "freeze: model.layers.0.self_attn.q_proj.weight is named and model.layers.0.self_attn.k_proj.weight is not, "
          "and "
          "here both are parts of one parameter, model.layers.0.self_attn.qkv_proj.weight; name all of its parts, or "
          "it "
          "(\"*.qkv_proj.weight\")" },
        { FIXTURES "families/qwen2", "*.mlp.up*", "(\"*.gate_up_proj.weight\")" },
        { FIXTURES "families/llama", "*gate*", "model.layers.0.mlp.up_proj.weight is not" },
        { FIXTURES "networks/vit", "*.attention.attention.query.*", "(\"*.qkv.weight\")" },
        { FIXTURES "families/llama", "*.z_proj.weight",
          "freeze: no parameter of this model is called like \"*.z_proj.weight\"; `sluice inspect` lists" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sl_model_options o = model_of(cases[i].folder);
        CHECK_EQ(trained_with(&o, &cases[i].pattern, 1), -1);
        CHECK_CONTAINS(sluice_error(), cases[i].says);
    }
    sl_model_options o = model_of(FIXTURES "families/llama");
    sluice_graph *g;
    o.fresh = (const char *const[]){ "*.k_proj.weight" };
    o.fresh_count = 1;
    CHECK_EQ(build(&o, &g), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "new_parameters: model.layers.0.self_attn.k_proj.weight is named");
    sluice_graph_destroy(g);
}

/* What adapters have frozen already may be named in part. */
TEST(a_part_of_what_is_frozen_by_adapters_may_be_frozen)
{
    sl_model_options o = model_of(FIXTURES "families/llama");
    o.lora.rank = 2;
    o.lora.targets = (const char *const[]){ "*.o_proj" };
    o.lora.target_count = 1;
    const int all = trained_with(&o, NULL, 0);
    CHECK_EQ(all, 4);
    CHECK_EQ(trained_with(&o, (const char *const[]){ "*.q_proj.weight" }, 1), all);
    CHECK_EQ(trained_with(&o, (const char *const[]){ "*.0.*lora_A*" }, 1), all - 1);
}

static sluice_status group(const char *folder, const char *pattern, const char *parameter, int *found)
{
    const sl_group_options groups[] = { { pattern, 0.5, -1 } };
    sl_optim_options options = { .optimizer = { .size = sizeof(sluice_optimizer) },
                                 .groups = groups,
                                 .group_count = 1 };
    sl_model_options o = model_of(folder);
    sl_optim *optim = NULL;
    sluice_graph *g;
    sluice_optimizer_init(&options.optimizer, SLUICE_ADAMW);
    sluice_status st = build(&o, &g);
    if (st == SLUICE_OK) st = sl_graph_differentiate(g);
    if (st == SLUICE_OK) st = sl_optim_create(g, &options, &optim);
    if (st == SLUICE_OK) *found = sl_optim_group_of(optim, sl_graph_find_parameter(g, parameter));
    sl_optim_destroy(optim);
    sluice_graph_destroy(g);
    return st;
}

TEST(groups_of_the_optimizer_take_names_of_files_too)
{
    static const char *const fused = "model.layers.1.self_attn.qkv_proj.weight";
    int found = -1;
    REQUIRE_OK(group(FIXTURES "families/llama", "*.[qkv]_proj.weight", fused, &found));
    CHECK_EQ(found, 1);
    REQUIRE_OK(group(FIXTURES "families/llama", "*.qkv_proj.weight", fused, &found));
    CHECK_EQ(found, 1);
    REQUIRE_OK(group(FIXTURES "families/llama", "*.o_proj.weight", fused, &found));
    CHECK_EQ(found, 0);
    REQUIRE_OK(group(FIXTURES "families/gpt2", "transformer.h.0.*", "h.0.ln_1.weight", &found));
    CHECK_EQ(found, 1);
    CHECK_EQ(group(FIXTURES "families/llama", "*.v_proj.weight", fused, &found), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(),
                   "optimizer group \"*.v_proj.weight\": model.layers.0.self_attn.v_proj.weight is named");
}

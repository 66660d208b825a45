/* config.json: what files of every family mean, in the forms of both versions of transformers; what is refused, and by
 * which name; what is written of it. */
#include <stdlib.h>

#include "core/alloc.h"
#include "core/io.h"
#include "format/json.h"
#include "format/model_config.h"
#include "test.h"

#define SIZES                                                                                                          \
    "\"hidden_size\": 64, \"num_hidden_layers\": 4, \"num_attention_heads\": 4, \"intermediate_size\": 96, "           \
    "\"vocab_size\": 100, \"max_position_embeddings\": 128"
#define OF(type_, more_) "{\"model_type\": \"" type_ "\", " SIZES more_ "}"
#define GPT2(more_)                                                                                                    \
    "{\"model_type\": \"gpt2\", \"n_embd\": 64, \"n_layer\": 2, \"n_head\": 4, \"n_positions\": 32, \"vocab_size\": "  \
    "50257" more_ "}"

static sluice_status parse(const char *text, sl_model_config *out)
{
    return sl_model_config_parse(text, strlen(text), "dir/config.json", out);
}

static sl_model_config read_good(const char *text)
{
    sl_model_config c = { .family = SL_DECODER_NONE };
    CHECK_THAT(parse(text, &c) == SLUICE_OK, "%s: %s", text, sluice_error());
    return c;
}

TEST(absent_keys_mean_what_the_family_means)
{
    static const struct {
        const char *text;
        sl_decoder family;
        int64_t kv_heads, head_width, window;
        double epsilon, theta;
        sl_activation activation;
        bool tied;
    } files[] = {
        { GPT2(""), SL_DECODER_GPT2, 4, 16, 0, 1e-5, 0, SL_ACTIVATION_GELU_TANH, true },
        { OF("llama", ""), SL_DECODER_LLAMA, 4, 16, 0, 1e-6, 1e4, SL_ACTIVATION_SILU, false },
        { OF("mistral", ", \"num_key_value_heads\": 2"), SL_DECODER_MISTRAL, 2, 16, 4096, 1e-6, 1e4, SL_ACTIVATION_SILU,
          false },
        { OF("qwen2", ", \"num_key_value_heads\": 2"), SL_DECODER_QWEN2, 2, 16, 0, 1e-6, 1e4, SL_ACTIVATION_SILU,
          false },
        { OF("qwen3", ", \"num_key_value_heads\": 2"), SL_DECODER_QWEN3, 2, 128, 0, 1e-6, 1e4, SL_ACTIVATION_SILU,
          false },
        { OF("phi3", ""), SL_DECODER_PHI3, 4, 16, 0, 1e-5, 1e4, SL_ACTIVATION_SILU, false },
        { OF("gemma", ", \"num_key_value_heads\": 1"), SL_DECODER_GEMMA, 1, 256, 0, 1e-6, 1e4, SL_ACTIVATION_GELU_TANH,
          true },
        { OF("gemma2", ""), SL_DECODER_GEMMA2, 4, 256, 4096, 1e-6, 1e4, SL_ACTIVATION_GELU_TANH, true },
        { OF("gemma3_text", ""), SL_DECODER_GEMMA3, 4, 256, 4096, 1e-6, 1e6, SL_ACTIVATION_GELU_TANH, true },
        { OF("bert", ""), SL_DECODER_BERT, 4, 16, 0, 1e-12, 0, SL_ACTIVATION_GELU, true },
        { OF("vit", ""), SL_DECODER_VIT, 4, 16, 0, 1e-12, 0, SL_ACTIVATION_GELU, false },
    };
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        sl_model_config c = read_good(files[i].text);
        CHECK_EQ(c.family, files[i].family);
        CHECK_EQ(c.kv_heads, files[i].kv_heads);
        CHECK_EQ(c.head_width, files[i].head_width);
        CHECK_EQ(c.window, files[i].window);
        CHECK_NEAR(c.norm_epsilon, files[i].epsilon, 0);
        CHECK_NEAR(c.rope.theta, files[i].theta, 0);
        CHECK_EQ(c.activation, files[i].activation);
        CHECK_EQ(c.tied, files[i].tied);
    }
}

TEST(key_value_heads_that_are_absent_are_not_those_that_are_null)
{
    sl_model_config c;
    CHECK_EQ(parse(OF("qwen2", ""), &c), SLUICE_ERR_INPUT); /* absent: 32 */
    CHECK_CONTAINS(sluice_error(), "num_key_value_heads: 32 (what a file means that leaves it out) does not divide");
    c = read_good(OF("qwen2", ", \"num_key_value_heads\": null"));
    CHECK_EQ(c.kv_heads, 4);
    c = read_good(OF("mistral", ", \"num_key_value_heads\": 4, \"sliding_window\": null"));
    CHECK_EQ(c.window, 0);
    c = read_good(OF("gemma2", ", \"attn_logit_softcapping\": null"));
    CHECK_NEAR(c.attention_soft_cap, 0, 0);
    CHECK_NEAR(c.logit_soft_cap, 30, 0);
}

TEST(both_forms_of_rotary_positions_are_read)
{
    sl_model_config old =
        read_good(OF("llama", ", \"rope_theta\": 500000.0, \"rope_scaling\": {\"type\": \"llama3\", \"factor\": 8, "
                              "\"low_freq_factor\": 1, \"high_freq_factor\": 4, \"original_max_position_embeddings\": "
                              "64}"));
    sl_model_config new = read_good(
        OF("llama", ", \"rope_parameters\": {\"rope_type\": \"llama3\", \"rope_theta\": 500000, \"factor\": 8.0, "
                    "\"low_freq_factor\": 1.0, \"high_freq_factor\": 4.0, \"original_max_position_embeddings\": 64}"));
    CHECK_EQ(old.rope.type, SL_ROPE_LLAMA3);
    CHECK_NEAR(old.rope.theta, 500000, 0);
    CHECK_EQ(old.rope.original_context, 64);
    CHECK(memcmp(&old.rope, &new.rope, sizeof old.rope) == 0);
    /* rope_scaling beats rope_parameters; without a length of its own, the model's counts */
    sl_model_config yarn = read_good(
        OF("qwen2", ", \"num_key_value_heads\": 2, \"rope_theta\": 77.0, \"rope_scaling\": {\"rope_type\": \"yarn\", "
                    "\"factor\": 4.0}, \"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 77.0}"));
    CHECK_EQ(yarn.rope.type, SL_ROPE_YARN);
    CHECK_NEAR(yarn.rope.theta, 77, 0);
    CHECK_EQ(yarn.rope.original_context, 128);
    CHECK_NEAR(yarn.rope.beta_fast, 32, 0);
    CHECK(yarn.rope.whole_steps);
}

TEST(gemma_3_has_positions_of_two_kinds)
{
    sl_model_config old =
        read_good(OF("gemma3_text", ", \"rope_theta\": 5e5, \"rope_local_base_freq\": 2e4, "
                                    "\"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 8.0}"));
    sl_model_config new = read_good(
        OF("gemma3_text", ", \"rope_parameters\": {\"sliding_attention\": {\"rope_theta\": 2e4, \"rope_type\": "
                          "\"default\"}, \"full_attention\": {\"rope_type\": \"linear\", \"factor\": 8.0, "
                          "\"rope_theta\": 500000.0}}"));
    CHECK_EQ(old.rope.type, SL_ROPE_LINEAR);
    CHECK_EQ(old.local_rope.type, SL_ROPE_DEFAULT);
    CHECK_NEAR(old.rope.theta, 5e5, 0);
    CHECK_NEAR(old.local_rope.theta, 2e4, 0);
    CHECK(memcmp(&old.rope, &new.rope, sizeof old.rope) == 0);
    CHECK(memcmp(&old.local_rope, &new.local_rope, sizeof old.rope) == 0);
}

/* "SFSF" for layers with and without the window. */
static void check_layers(const char *text, const char *wanted)
{
    char found[8] = "";
    sl_model_config c = read_good(text);
    for (int64_t i = 0; i < 4; i++) found[i] = sl_model_config_slides(&c, i) ? 'S' : 'F';
    CHECK_STR(found, wanted);
}

TEST(windows_follow_the_rule_of_the_family_or_a_list)
{
    check_layers(OF("mistral", ", \"num_key_value_heads\": 4, \"sliding_window\": 16"), "SSSS");
    check_layers(OF("mistral", ", \"num_key_value_heads\": 4, \"sliding_window\": null"), "FFFF");
    check_layers(OF("phi3", ", \"sliding_window\": 16"), "SSSS");
    check_layers(OF("qwen2", ", \"num_key_value_heads\": 4, \"sliding_window\": 16, \"max_window_layers\": 2"), "FFFF");
    check_layers(OF("qwen3", ", \"num_key_value_heads\": 4, \"sliding_window\": 16, \"max_window_layers\": 2, "
                             "\"use_sliding_window\": true"),
                 "FFSS");
    check_layers(OF("gemma2", ", \"sliding_window\": 16"), "SFSF");
    check_layers(OF("gemma3_text", ", \"sliding_window\": 16, \"sliding_window_pattern\": 3"), "SSFS");
    check_layers(OF("gemma3_text", ", \"sliding_window\": 16, \"layer_types\": [\"full_attention\", "
                                   "\"sliding_attention\", \"full_attention\", \"full_attention\"]"),
                 "FSFF");
}

TEST(gelu_of_gemma_is_the_form_with_tanh)
{
    sl_model_config c = read_good(OF("gemma", ", \"num_key_value_heads\": 1, \"hidden_act\": \"gelu\""));
    CHECK_EQ(c.activation, SL_ACTIVATION_GELU_TANH);
    c = read_good(GPT2(", \"activation_function\": \"gelu\""));
    CHECK_EQ(c.activation, SL_ACTIVATION_GELU);
}

TEST(what_is_not_built_in_or_contradicts_itself_is_refused_by_name)
{
    static const struct {
        const char *text, *message;
    } bad[] = {
        { "[]", "a config.json is an object" },
        { "{}", "dir/config.json: model_type is missing" },
        { "{\"model_type\": \"roberta\"}", "dir/config.json:1: model_type: the family \"roberta\" is not built in" },
        { "{\"model_type\": \"bert\"}", "hidden_size is missing: the width of the residual stream" },
        { OF("bert", ", \"position_embedding_type\": \"relative_key\""),
          "position_embedding_type: \"relative_key\" is not built in" },
        { OF("bert", ", \"is_decoder\": true"), "is_decoder: a causal bert is not built in" },
        { OF("bert", ", \"tie_word_embeddings\": false"), "tie_word_embeddings: a head with weights of its own" },
        { OF("bert", ", \"hidden_act\": \"mish\""), "hidden_act: the activation \"mish\"" },
        { OF("bert", ", \"architectures\": [\"BertForQuestionAnswering\"]"), "architectures: " },
        { OF("bert", ", \"architectures\": [\"BertForSequenceClassification\"], \"id2label\": {\"0\": \"a\"}"),
          "id2label: a head with one output" },
        { OF("vit", ", \"qkv_bias\": false"), "qkv_bias: queries, keys and values without biases" },
        { OF("vit", ", \"image_size\": 30"), "patch_size: 16 does not divide image_size, which is 30" },
        { OF("vit", ", \"num_channels\": 0"), "num_channels: 0 is no whole number" },
        { "{\"model_type\": \"gemma3\"}", "gemma3_text" },
        { "{\"model_type\": 3}", "the family 3 is not built in" },
        { "{\"model_type\": \"llama\"}", "hidden_size is missing: the width of the residual stream" },
        { OF("llama", ",\n\"quantization_config\": {\"bits\": 4}"), "dir/config.json:2: quantization_config: " },
        { OF("llama", ", \"auto_map\": {\"AutoModel\": \"x.Y\"}"), "auto_map: " },
        { OF("llama", ", \"num_local_experts\": 8"), "num_local_experts: a mixture of experts" },
        { OF("llama", ", \"vision_config\": {\"a\": 1}"), "vision_config: " },
        { OF("llama", ", \"architectures\": [\"LlamaForSequenceClassification\"]"), "architectures: " },
        { OF("llama", ", \"hidden_act\": \"gelu\""), "hidden_act: the activation \"gelu\" is not built in for llama" },
        { OF("llama", ", \"hidden_act\": 3"), "hidden_act: " },
        { OF("llama", ", \"num_key_value_heads\": 3"), "num_key_value_heads: 3 does not divide num_attention_heads" },
        { OF("llama", ", \"num_key_value_heads\": 8"), "num_key_value_heads: 8 does not divide" },
        { OF("llama", ", \"head_dim\": 15"), "head_dim: 15 elements of a head would turn" },
        { OF("llama", ", \"head_dim\": \"16\""), "head_dim: \"16\" is no whole number" },
        { OF("llama", ", \"head_dim\": 1000000000"), "are more than can be computed" },
        { OF("llama", ", \"rms_norm_eps\": -1"), "rms_norm_eps: -1 is no number" },
        { OF("llama", ", \"tie_word_embeddings\": null"), "tie_word_embeddings: it is null" },
        { OF("llama", ", \"tie_word_embeddings\": 1"), "tie_word_embeddings: 1 is neither true nor false" },
        { OF("llama", ", \"sliding_window\": 16"), "sliding_window: llama has no windows" },
        { OF("llama", ", \"partial_rotary_factor\": 0.5"), "partial_rotary_factor: 0.5" },
        { OF("llama", ", \"rope_scaling\": 3"), "rope_scaling: 3 is no object" },
        { OF("llama", ", \"rope_scaling\": {\"type\": \"longrope\"}"), "rope_scaling.type: positions of the type" },
        { OF("llama", ", \"rope_scaling\": {\"rope_type\": \"linear\"}"), "rope_scaling: factor is missing" },
        { OF("llama", ", \"rope_scaling\": {\"rope_type\": \"linear\", \"type\": \"yarn\", \"factor\": 2}"),
          "leave one of them out" },
        { OF("llama", ", \"rope_scaling\": {\"rope_type\": \"default\", \"mrope_section\": [1]}"), "mrope_section" },
        { OF("llama", ", \"rope_theta\": 5e5, \"rope_parameters\": {\"rope_theta\": 1e4, \"rope_type\": \"default\"}"),
          "rope_theta: it is 500000, and rope_parameters.rope_theta is 10000; they must agree" },
        { OF("llama", ", \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 4, "
                      "\"high_freq_factor\": 4}"),
          "high_freq_factor 4 is not above" },
        { OF("phi3", ", \"rope_scaling\": {\"type\": \"yarn\", \"factor\": 8}"), "are not built in for phi3" },
        { OF("phi3", ", \"partial_rotary_factor\": 0.2"), "3 elements of a head would turn" },
        { OF("gemma3_text", ", \"rope_parameters\": {\"rope_theta\": 1e4}"), "neither full_attention nor" },
        { OF("gemma3_text", ", \"use_bidirectional_attention\": true"), "use_bidirectional_attention: " },
        { OF("gemma3_text", ", \"attn_logit_softcapping\": 50.0"), "attn_logit_softcapping: of gemma3_text" },
        { OF("gemma2", ", \"sliding_window\": null"), "sliding_window: it is null" },
        { OF("gemma2", ", \"head_dim\": null"), "head_dim: it is null" },
        { OF("gemma2", ", \"layer_types\": [\"full_attention\"]"), "layer_types: it has 1 entries, and there are 4" },
        { OF("gemma2", ", \"layer_types\": [1, 2, 3, 4]"), "layer_types.0: layers of the type 1" },
        { OF("gemma2", ", \"layer_types\": [\"full_attention\", \"chunked_attention\", \"full_attention\", "
                       "\"full_attention\"]"),
          "layer_types.1: layers of the type \"chunked_attention\"" },
        { OF("qwen3", ", \"num_key_value_heads\": 4, \"layer_types\": [\"sliding_attention\", \"full_attention\", "
                      "\"full_attention\", \"full_attention\"]"),
          "sliding_attention without a window" },
        { OF("mistral", ", \"num_key_value_heads\": 4, \"layer_types\": [\"full_attention\", \"full_attention\", "
                        "\"full_attention\", \"full_attention\"]"),
          "layer_types.0: mistral has the same attention in all layers" },
        { GPT2(", \"scale_attn_by_inverse_layer_idx\": true"), "scale_attn_by_inverse_layer_idx: " },
        { GPT2(", \"activation_function\": \"mish\""), "activation_function: the activation \"mish\"" },
        { GPT2(", \"n_inner\": 0"), "n_inner: 0 is no whole number" },
        { GPT2(", \"eos_token_id\": \"x\""), "eos_token_id: " },
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        sl_model_config c;
        CHECK_THAT(parse(bad[i].text, &c) == SLUICE_ERR_INPUT, "accepted: %s", bad[i].text);
        CHECK_CONTAINS(sluice_error(), bad[i].message);
        CHECK_CONTAINS(sluice_error(), "dir/config.json");
    }
}

TEST(keys_that_ask_for_nothing_are_harmless)
{
    read_good(OF("llama",
                 ", \"quantization_config\": null, \"num_experts\": 0, \"auto_map\": {}, \"pruned_heads\": {}, "
                 "\"is_encoder_decoder\": false, \"something\": {\"of\": [\"ours\"]}, \"architectures\": "
                 "[\"LlamaModel\"]"));
}

/* ---- Writing ---- */

static json_t *written(const sl_model_config *c, const char *kept, sl_model_config *again)
{
    sl_text text = { .data = NULL };
    json_t *root = NULL;
    CHECK_THAT(sl_model_config_write(c, kept, &text) == SLUICE_OK, "%s", sluice_error());
    CHECK_THAT(sl_model_config_parse(text.data, text.bytes, "written", again) == SLUICE_OK, "%s\n%s", sluice_error(),
               text.data);
    CHECK_EQ(sl_json_parse(text.data, text.bytes, "written", SLUICE_ERR_INPUT, &root), SLUICE_OK);
    sl_text_free(&text);
    return root;
}

TEST(what_is_written_says_the_same_in_both_forms)
{
    static const char *const files[] = {
        GPT2(", \"n_inner\": 100"),
        OF("llama", ", \"rope_theta\": 5e5, \"attention_bias\": true, \"head_dim\": 8"),
        OF("mistral", ", \"num_key_value_heads\": 2, \"sliding_window\": 16"),
        OF("qwen2", ", \"num_key_value_heads\": 2, \"sliding_window\": 16, \"use_sliding_window\": true, "
                    "\"max_window_layers\": 1, \"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4, \"truncate\": "
                    "false}"),
        OF("qwen3", ", \"num_key_value_heads\": 2, \"eos_token_id\": [7, 8]"),
        OF("phi3", ", \"partial_rotary_factor\": 0.5"),
        OF("gemma", ", \"num_key_value_heads\": 1"),
        OF("gemma2", ", \"query_pre_attn_scalar\": 144, \"dtype\": \"bfloat16\""),
        OF("gemma3_text", ", \"rope_local_base_freq\": 123.0, \"sliding_window\": 8, \"sliding_window_pattern\": 2"),
        OF("bert", ", \"type_vocab_size\": 3, \"hidden_act\": \"relu\", \"pad_token_id\": 0"),
        OF("bert", ", \"architectures\": [\"BertForSequenceClassification\"], \"num_labels\": 5"),
        OF("vit", ", \"image_size\": 64, \"patch_size\": 8, \"num_channels\": 1, \"architectures\": "
                  "[\"ViTForImageClassification\"], \"id2label\": {\"0\": \"cat\", \"1\": \"dog\", \"2\": \"cow\"}"),
    };
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        sl_model_config c = read_good(files[i]), alone, over;
        json_t *a = written(&c, NULL, &alone), *b = written(&c, files[i], &over);
        c.slide_rule = alone.slide_rule = over.slide_rule; /* a list may say what a rule said */
        c.slide_number = alone.slide_number = over.slide_number;
        memcpy(c.slide_list, over.slide_list, sizeof c.slide_list);
        memcpy(alone.slide_list, over.slide_list, sizeof c.slide_list);
        CHECK_THAT(memcmp(&c, &over, sizeof c) == 0, "written over: %s", files[i]);
        alone.bos = c.bos, alone.pad = c.pad;
        CHECK_THAT(memcmp(&c, &alone, sizeof c) == 0, "written alone: %s", files[i]);
        CHECK(json_array_size(json_object_get(a, "architectures")) == 1);
        if (c.family == SL_DECODER_GPT2) {
            CHECK_EQ(json_integer_value(json_object_get(a, "n_ctx")), 32);
        } else if (sl_decoder_is_encoder(c.family)) {
            CHECK_EQ(json_object_size(json_object_get(a, "id2label")), c.classes);
            CHECK(json_object_get(a, "rope_parameters") == NULL);
        } else {
            CHECK(json_is_real(json_object_get(a, "rope_theta")));
            CHECK(json_is_object(json_object_get(a, "rope_parameters")));
            CHECK(json_object_get(a, "rope_scaling") != NULL);
        }
        json_decref(a);
        json_decref(b);
    }
}

TEST(a_kept_file_stays_but_for_what_is_new)
{
    static const char kept[] =
        OF("llama", ", \"architectures\": [\"LlamaForCausalLM\"], \"of_another\": {\"x\": [1, 2.5, \"\xc3\xa9\"]}, "
                    "\"rms_norm_eps\": 1e-05, \"transformers_version\": \"4.40\", \"torch_dtype\": \"float32\"");
    sl_text text = { .data = NULL };
    sl_model_config c = read_good(kept);
    c.vocabulary = 104;
    c.dtype = SLUICE_BF16;
    REQUIRE_OK(sl_model_config_write(&c, kept, &text));
    CHECK_CONTAINS(text.data, "{\n  \"model_type\": \"llama\",\n  \"hidden_size\": 64,");
    CHECK_CONTAINS(text.data, "\"vocab_size\": 104");
    CHECK_CONTAINS(text.data, "\"of_another\": {\n    \"x\": [\n      1,\n      2.5,\n      \"\xc3\xa9\"\n    ]\n  }");
    CHECK_CONTAINS(text.data, "\"rms_norm_eps\": 1e-05");
    CHECK_CONTAINS(text.data, "\"torch_dtype\": \"bfloat16\"");
    CHECK_CONTAINS(text.data, "\"dtype\": \"bfloat16\"");
    CHECK_CONTAINS(text.data, "\"rope_theta\": 10000.0");
    CHECK(strstr(text.data, "head_dim") == NULL); /* absent there, and what it means is right */
    sl_text_free(&text);
    c.family = SL_DECODER_MISTRAL;
    CHECK_EQ(sl_model_config_write(&c, kept, &text), SLUICE_ERR_INPUT);
    sl_text_free(&text);
}

TEST(classes_are_written_for_the_head_there_is)
{
    static const char kept[] = OF("bert", ", \"architectures\": [\"BertForSequenceClassification\"], "
                                          "\"id2label\": {\"0\": \"no\", \"1\": \"yes\"}, \"num_labels\": 2");
    sl_text text = { .data = NULL };
    sl_model_config c = read_good(kept);
    REQUIRE_OK(sl_model_config_write(&c, kept, &text));
    CHECK_CONTAINS(text.data, "\"1\": \"yes\"");
    sl_text_free(&text);
    c.classes = 0; /* a head that guesses tokens: no list of classes, which would be read as a head without outputs */
    REQUIRE_OK(sl_model_config_write(&c, kept, &text));
    CHECK_CONTAINS(text.data, "BertForMaskedLM");
    CHECK(strstr(text.data, "label") == NULL);
    sl_text_free(&text);
    c.classes = 3;
    REQUIRE_OK(sl_model_config_write(&c, kept, &text));
    CHECK_CONTAINS(text.data, "\"2\": \"LABEL_2\"");
    CHECK(strstr(text.data, "yes") == NULL && strstr(text.data, "num_labels") == NULL);
    sl_text_free(&text);
}

TEST(a_folder_without_config_is_bad_input)
{
    sl_model_config c;
    CHECK_EQ(sl_model_config_read("/nonexistent-folder", &c, NULL), SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), "/nonexistent-folder/config.json");
}

/* adapter_config_test.c: adapter_config.json: what PEFT writes is read, what would be computed wrongly is refused. */
#include "format/adapter_config.h"

#include "test.h"

static sl_arena arena;

static sluice_status parse(const char *text, sl_adapter_config *out)
{
    sl_arena_free(&arena);
    sl_arena_init(&arena, "adapter");
    return sl_adapter_config_parse(text, strlen(text), "adapter_config.json", &arena, out);
}

TEST(a_short_adapter_config_has_the_defaults_of_peft)
{
    sl_adapter_config c;
    REQUIRE_OK(parse("{\"peft_type\": \"LORA\", \"target_modules\": [\"q_proj\", \"v_proj\"]}", &c));
    CHECK_EQ(c.rank, 8);
    CHECK_NEAR(c.alpha, 8, 0);
    CHECK_NEAR(sl_adapter_scale(&c), 1, 0);
    CHECK_EQ(c.target_count, 2);
    CHECK_STR(c.targets[1], "v_proj");
    CHECK_EQ(c.whole_count, 0);
    CHECK_STR(c.base, "");
}

TEST(an_adapter_config_is_written_and_read_again)
{
    static const char *const targets[] = { "c_attn", "mlp.c_proj" }, *const whole[] = { "lm_head" };
    sl_adapter_config c = { 16, 24, 0.25, true, true, true, "folder \"x\"", targets, 2, whole, 1 }, again;
    sl_text text = { .data = NULL };
    REQUIRE_OK(sl_adapter_config_write(&c, &text));
    REQUIRE_OK(parse(text.data, &again));
    CHECK_EQ(again.rank, 16);
    CHECK_NEAR(again.alpha, 24, 0);
    CHECK_NEAR(again.dropout, 0.25, 0);
    CHECK(again.rank_stabilised && again.in_out && again.causal);
    CHECK_NEAR(sl_adapter_scale(&again), 6, 0);
    CHECK_STR(again.base, "folder \"x\"");
    CHECK_STR(again.targets[1], "mlp.c_proj");
    CHECK_STR(again.whole[0], "lm_head");
    CHECK_CONTAINS(text.data, "\"task_type\": \"CAUSAL_LM\"");
    sl_text_free(&text);
    c.causal = false;
    REQUIRE_OK(sl_adapter_config_write(&c, &text));
    CHECK_CONTAINS(text.data, "\"task_type\": null");
    REQUIRE_OK(parse(text.data, &again));
    CHECK(!again.causal);
    sl_text_free(&text);
}

TEST(an_adapter_config_that_is_not_understood_is_refused_by_name)
{
#define LORA "{\"peft_type\": \"LORA\", \"target_modules\": [\"q_proj\"], "
    static const struct {
        const char *text, *part;
    } rows[] = {
        { "[]", "holds no object" },
        { "{", "adapter_config.json" },
        { "{\"target_modules\": [\"q\"]}", "peft_type: it is missing" },
        { "{\"peft_type\": \"IA3\"}", "peft_type: LoRA is the only kind" },
        { "{\"peft_type\": \"LORA\"}", "target_modules: it names no modules" },
        { "{\"peft_type\": \"LORA\", \"target_modules\": []}", "target_modules: it names no modules" },
        { "{\"peft_type\": \"LORA\", \"target_modules\": \".*q\"}", "regular expressions are not built in" },
        { "{\"peft_type\": \"LORA\", \"target_modules\": [3]}", "target_modules: an entry is no name" },
        { LORA "\"r\": 0}", "r is no number from 1" },
        { LORA "\"r\": 2.5}", "r: it is no whole number" },
        { LORA "\"lora_alpha\": \"8\"}", "lora_alpha is no number" },
        { LORA "\"use_rslora\": 1}", "use_rslora: it is neither" },
        { LORA "\"use_dora\": true}", "use_dora: DoRA is not built in" },
        { LORA "\"bias\": \"all\"}", "bias: biases that are trained" },
        { LORA "\"rank_pattern\": {\"q\": 4}}", "rank_pattern: ranks that differ" },
        { LORA "\"layers_to_transform\": [1]}", "layers_to_transform: adapters on some layers" },
        { LORA "\"init_lora_weights\": \"pissa\"}", "init_lora_weights: this way to begin changes" },
        { LORA "\"trainable_token_indices\": [5]}", "trainable_token_indices" },
    };
    sl_adapter_config c;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        CHECK_EQ(parse(rows[i].text, &c), SLUICE_ERR_INPUT);
        CHECK_CONTAINS(sluice_error(), rows[i].part);
    }
    REQUIRE_OK(parse(LORA "\"rank_pattern\": {}, \"use_dora\": false, \"exclude_modules\": null, \"new_key\": 7}", &c));
    sl_arena_free(&arena);
}

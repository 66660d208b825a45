/* run_identity_test.c: which checkpoints a run continues, by the lines that both keep. */
#include "checkpoint/checkpoint.h"
#include "test.h"

static bool is_model(const char *key)
{
    return strncmp(key, "model.", 6) == 0;
}

static sluice_status check(const char *here, const char *there, bool same_model)
{
    sl_identity mine = { .model_sha256 = "a", .old_model_sha256 = "old", .is_model = is_model };
    sl_checkpoint_meta meta = { .step = 1 };
    snprintf(mine.lines, sizeof mine.lines, "%s", here);
    snprintf(meta.identity, sizeof meta.identity, "%s", there);
    snprintf(meta.model_sha256, sizeof meta.model_sha256, "%s", same_model ? "a" : "b");
    return sl_identity_check_lines(&mine, &meta);
}

TEST(another_value_of_a_line_is_refused_with_the_key_and_both_values)
{
    CHECK_EQ(check("a: 1\nseed: 2\n", "a: 1\nseed: 2\n", true), SLUICE_OK);
    CHECK_EQ(check("a: 1\nseed: 23\n", "a: 1\nseed: 2\n", true), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "seed is 23, the checkpoint was made with 2: a resumed run must keep it");
    CHECK_EQ(check("seed: 2", "seed: 23", true), SLUICE_ERR_USAGE); /* without a last newline */
}

TEST(lines_that_one_side_lacks_are_not_compared)
{
    CHECK_EQ(check("a: 1\n", "a: 1\nnew: 2\n", true), SLUICE_OK);
    CHECK_EQ(check("a: 1\nnew: 2\n", "a: 1\n", true), SLUICE_OK);
    CHECK_EQ(check("a.b: 1\n", "a: 2\n", true), SLUICE_OK); /* a key is a whole key */
}

TEST(lines_about_the_model_count_where_the_model_is_another)
{
    CHECK_EQ(check("model.kv_heads: 2\n", "model.kv_heads: \"auto\"\n", true), SLUICE_OK);
    CHECK_EQ(check("model.kv_heads: 2\n", "model.kv_heads: \"auto\"\n", false), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "model.kv_heads is 2, the checkpoint was made with \"auto\"");
}

/* An attribute that is zero everywhere has no line: with another model, the op's other lines tell that it is there and zero. */
TEST(an_attribute_that_one_side_leaves_at_zero_is_refused_with_both_values)
{
    CHECK_EQ(check("attention.heads: 2\n", "attention.heads: 2\nattention.window: 512 0\n", false), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(),
                   "attention.window is 0, the checkpoint was made with 512 0: a resumed run must keep it");
    CHECK_EQ(check("attention.heads: 2\nattention.window: 512\n", "attention.heads: 2\n", false), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "attention.window is 512, the checkpoint was made with 0");
    CHECK_EQ(check("rotary.base: 5\n", "rotary.base: 5\nrotary.fractional: true\n", false), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "rotary.fractional is false, the checkpoint was made with true");
    /* the same model; no attention on the other side; a line that is always written */
    CHECK_EQ(check("attention.heads: 2\n", "attention.heads: 2\nattention.window: 512\n", true), SLUICE_OK);
    CHECK_EQ(check("rotary.base: 5\n", "attention.window: 512\n", false), SLUICE_OK);
    CHECK_EQ(check("attention.heads: 2\n", "attention.heads: 2\nattention.causal: true\n", false), SLUICE_OK);
}

TEST(a_checkpoint_without_lines_is_compared_by_the_fields_of_older_versions)
{
    sl_identity mine = { .old_model_sha256 = "old",
                         .lines = "seed: 1\noptimizer.type: \"AdamW\"\nbf16.enabled: false\n" };
    sl_checkpoint_meta meta = {
        .seed = 1, .optimizer = "AdamW", .precision = "fp32", .wire = "fp32", .states = "fp32", .model_sha256 = "old"
    };
    CHECK(sl_identity_same_model(&mine, &meta));
    CHECK_EQ(sl_identity_check_lines(&mine, &meta), SLUICE_OK);
    strcpy(meta.optimizer, "SGD");
    CHECK_EQ(sl_identity_check_lines(&mine, &meta), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "optimizer.type is \"AdamW\", the checkpoint was made with \"SGD\"");
    strcpy(meta.optimizer, "");
    strcpy(meta.precision, "bf16");
    CHECK_EQ(sl_identity_check_lines(&mine, &meta), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "bf16.enabled is false, the checkpoint was made with true");
}

/* sampler_test.c: the rules by which a token is chosen, each alone and in their order, on cases made by hand. */
#include <math.h>
#include <string.h>

#include "test.h"
#include "train/sampler.h"

static const sl_sampling plain = { .seed = 1, .temperature = 1, .top_p = 1, .repetition_penalty = 1 };

/* Ids that are left, as text: "0 3 5". */
static const char *left(const sl_sampling *o, const float *logits, int64_t count, const sl_seen *seen)
{
    static char text[256];
    const sl_candidate_token *c;
    sl_sampler *s;
    text[0] = '\0';
    if (sl_sampler_create(o, count, &s) != SLUICE_OK) return "no sampler";
    int64_t n = sl_sampler_candidates(s, logits, seen, &c);
    for (int64_t i = 0; i < n; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%d", i > 0 ? " " : "", c[i].id);
    sl_sampler_destroy(s);
    return text;
}

TEST(temperature_zero_takes_the_most_likely_token_and_of_equal_ones_the_lowest_id)
{
    sl_sampling o = plain;
    o.temperature = 0;
    CHECK_STR(left(&o, (float[]){ 1, 3, 2, 3 }, 4, NULL), "1");
}

TEST(top_k_keeps_tokens_that_are_as_likely_as_the_last_one)
{
    sl_sampling o = plain;
    o.top_k = 2;
    CHECK_STR(left(&o, (float[]){ 5, 1, 3, 3, 2 }, 5, NULL), "0 2 3");
    o.top_k = 1;
    CHECK_STR(left(&o, (float[]){ 5, 1, 3, 3, 2 }, 5, NULL), "0");
    o.top_k = 9;
    CHECK_STR(left(&o, (float[]){ 5, 1, 3, 3, 2 }, 5, NULL), "0 1 2 3 4");
}

TEST(top_p_keeps_the_token_that_crosses_it_and_one_at_least)
{
    float logits[4] = { logf(0.4f), logf(0.3f), logf(0.2f), logf(0.1f) };
    sl_sampling o = plain;
    o.top_p = 0.65;
    CHECK_STR(left(&o, logits, 4, NULL), "0 1");
    o.top_p = 0.75;
    CHECK_STR(left(&o, logits, 4, NULL), "0 1 2");
    o.top_p = 1e-9;
    CHECK_STR(left(&o, logits, 4, NULL), "0");
}

TEST(min_p_is_a_share_of_the_likeliest_and_equal_ones_stay)
{
    float logits[3] = { 0, logf(0.5f), logf(0.25f) };
    sl_sampling o = plain;
    o.min_p = 0.4;
    CHECK_STR(left(&o, logits, 3, NULL), "0 1");
    o.min_p = 1;
    CHECK_STR(left(&o, (float[]){ 2, 2, 1 }, 3, NULL), "0 1");
}

TEST(the_repetition_penalty_is_taken_once_for_each_token_that_was_there)
{
    sl_sampling o = plain;
    sl_seen seen;
    const sl_candidate_token *c;
    sl_sampler *s;
    o.repetition_penalty = 2;
    REQUIRE_OK(sl_seen_create(&seen, 70));
    sl_seen_add(&seen, 0);
    sl_seen_add(&seen, 0);
    sl_seen_add(&seen, 68);
    float logits[70] = { [0] = 3, [1] = 3, [68] = -3, [69] = -3 };
    REQUIRE_OK(sl_sampler_create(&o, 70, &s));
    CHECK_EQ(sl_sampler_candidates(s, logits, &seen, &c), 70);
    CHECK_NEAR(c[0].logit, 1.5, 0);
    CHECK_NEAR(c[1].logit, 3, 0);
    CHECK_NEAR(c[68].logit, -6, 0);
    CHECK_NEAR(c[69].logit, -3, 0);
    sl_sampler_destroy(s);
    sl_seen_free(&seen);
}

TEST(temperature_comes_before_top_p)
{
    float logits[3] = { logf(0.5f), logf(0.3f), logf(0.2f) };
    sl_sampling o = plain;
    o.top_p = 0.6;
    CHECK_STR(left(&o, logits, 3, NULL), "0 1");
    o.temperature = 0.25; /* 0.5^4 : 0.3^4 : 0.2^4 is 0.87 : 0.11 : 0.02 */
    CHECK_STR(left(&o, logits, 3, NULL), "0");
}

/* Draws follow the probabilities, and depend on the seed, the sequence and the number of the token alone. */
TEST(draws_follow_the_probabilities_and_are_repeatable)
{
    enum { DRAWS = 20000 };
    float logits[3] = { logf(0.6f), logf(0.3f), logf(0.1f) };
    int counts[3] = { 0 }, differs = 0;
    sl_sampler *s;
    REQUIRE_OK(sl_sampler_create(&plain, 3, &s));
    for (uint64_t i = 0; i < DRAWS; i++) {
        int32_t id = sl_sampler_draw(s, logits, NULL, i, 0);
        counts[id]++;
        CHECK_EQ(sl_sampler_draw(s, logits, NULL, i, 0), id);
        differs += sl_sampler_draw(s, logits, NULL, i, 1) != id;
    }
    CHECK_NEAR(counts[0] / (double)DRAWS, 0.6, 0.015);
    CHECK_NEAR(counts[1] / (double)DRAWS, 0.3, 0.015);
    CHECK(differs > DRAWS / 4);
    sl_sampler_destroy(s);
}

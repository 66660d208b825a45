/* rotary_table_test.c: frequencies and attention factors of rotary embeddings against recorded ones of transformers 5.22.2
 * (modeling_rope_utils, in fp32): every fourth frequency and the last. tests/referees/families.py compares whole models. */
#include "ir/rotary_table.h"
#include "test.h"

enum { MOST = 17 };

typedef struct recorded {
    sluice_rotary_options options;
    int64_t length;
    double attention;
    double last;            /* the last frequency */
    double frequency[MOST]; /* of pairs 0, 4, 8, ..; 0 ends them */
} recorded;

#define OPTIONS(width, base_, ...)                                                                                     \
    {                                                                                                                  \
        .size = sizeof(sluice_rotary_options), .heads = 2, .head_width = (width), .base = (base_), __VA_ARGS__         \
    }
#define SCALED(kind) .scaling = SLUICE_ROTARY_##kind

static const recorded tables[] = {
    { OPTIONS(64, 1e4f, .rotated = 0),
      0,
      1,
      0.00013335215,
      { 1, 0.316227764, 0.100000001, 0.0316227786, 0.00999999978, 0.00316227786, 0.00100000005, 0.000316227786 } },
    { OPTIONS(80, 5e5f, .rotated = 32), 0, 1, 4.54167048e-06, { 1, 0.0376060307, 0.00141421345, 5.31829573e-05 } },
    { OPTIONS(64, 1e4f, SCALED(LINEAR), .factor = 4),
      0,
      1,
      3.33380376e-05,
      { 0.25, 0.079056941, 0.0250000004, 0.00790569466, 0.00249999994, 0.000790569466, 0.000250000012,
        7.90569466e-05 } },
    { OPTIONS(64, 1e4f, SCALED(DYNAMIC), .factor = 2, .context = 2048),
      2048,
      1,
      0.00013335215,
      { 1, 0.316227764, 0.100000001, 0.0316227786, 0.00999999978, 0.00316227786, 0.00100000005, 0.000316227786 } },
    { OPTIONS(64, 1e4f, SCALED(DYNAMIC), .factor = 2, .context = 2048),
      3000,
      1,
      6.91055684e-05,
      { 1, 0.29051125, 0.0843967944, 0.0245182198, 0.00712281885, 0.00206925906, 0.000601143052, 0.00017463883 } },
    /* as Llama 3.1 and, with another width and factor, 3.2 */
    { OPTIONS(128, 5e5f, SCALED(LLAMA3), .factor = 8, .context = 8192),
      0,
      1,
      3.06892588e-07,
      { 1, 0.440366626, 0.193922758, 0.0853971019, 0.0376060307, 0.0165604409, 0.00729266508, 0.00321144611,
        0.000524846022, 7.78465546e-05, 3.42810235e-05, 1.50962178e-05, 6.64786967e-06, 2.92749974e-06, 1.28917316e-06,
        5.6770881e-07 } },
    { OPTIONS(64, 5e5f, SCALED(LLAMA3), .factor = 32, .context = 8192, .low = 1, .high = 4),
      0,
      1,
      9.41830649e-08,
      { 1, 0.193922758, 0.0376060307, 0.00729266508, 0.000429556705, 8.57025589e-06, 1.66196742e-06, 3.22293289e-07 } },
    { OPTIONS(128, 1e6f, SCALED(YARN), .factor = 4, .context = 32768),
      0,
      1.13862944,
      3.10234441e-07,
      { 1, 0.421696514, 0.177827939, 0.0749894157, 0.0316227786, 0.0133352149, 0.00537532149, 0.00184827659,
        0.000602941145, 0.000179841154, 4.44569851e-05, 1.87473561e-05, 7.90569356e-06, 3.33380353e-06, 1.40585337e-06,
        5.92843435e-07 } },
    { OPTIONS(64, 1e4f, SCALED(YARN), .factor = 16, .context = 4096, .low = 2, .high = 24, .attention_factor = 1.3f),
      0,
      1.3,
      8.3345094e-06,
      { 1, 0.316227764, 0.100000001, 0.0286581423, 0.00531250006, 0.000494105974, 6.2500003e-05, 1.97642366e-05 } },
    { OPTIONS(64, 1e4f, SCALED(YARN), .factor = 40, .context = 4096, .mscale = 1, .mscale_all_dim = 0.5f),
      0,
      1.15572199,
      3.33380353e-06,
      { 1, 0.316227764, 0.100000001, 0.0268793609, 0.00550000044, 0.000790569407, 2.49999994e-05, 7.90569447e-06 } },
    { OPTIONS(96, 1e4f, SCALED(YARN), .rotated = 48, .factor = 8, .context = 1024, .fractional = true),
      0,
      1.20794415,
      1.83474949e-05,
      { 1, 0.215443447, 0.0295145437, 0.00248313369, 0.000269304292, 5.80198684e-05 } },
};

static void check_frequency(size_t table, double got, double expected, int64_t pair)
{
    CHECK_THAT(fabs(got - expected) <= 4e-7 * expected, "table %d: pair %lld turns by %.9g, recorded is %.9g",
               (int)table, (long long)pair, got, expected);
}

TEST(frequencies_and_attention_factors_are_those_of_transformers)
{
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++) {
        const recorded *r = &tables[t];
        sl_attrs attrs;
        REQUIRE_OK(sl_rotary_attrs(&r->options, &attrs));
        sl_rotary_rule rule = sl_rotary_rule_of(&attrs, r->length);
        int64_t pair = 0;
        for (int k = 0; r->frequency[k] > 0; k++, pair += 4)
            check_frequency(t, sl_rotary_frequency(&rule, pair), r->frequency[k], pair);
        CHECK_EQ(rule.pairs, pair);
        check_frequency(t, sl_rotary_frequency(&rule, pair - 1), r->last, pair - 1);
        CHECK_NEAR(rule.attention, r->attention, 1e-7 * r->attention);
    }
}

/* Numbers that a scaling does not read make no other model. */
TEST(one_embedding_has_one_set_of_attributes)
{
    sluice_rotary_options plain = OPTIONS(16, 1e4f, .rotated = 0), same = plain;
    sl_attrs a, b;
    same.rotated = 16, same.factor = 3, same.context = 9, same.low = 2, same.high = 5, same.attention_factor = 1;
    same.mscale = 2, same.fractional = true;
    REQUIRE_OK(sl_rotary_attrs(&plain, &a));
    REQUIRE_OK(sl_rotary_attrs(&same, &b));
    for (int k = 0; k < sl_ops[SL_OP_ROTARY].attributes->count; k++) {
        const sl_attribute *at = &sl_ops[SL_OP_ROTARY].attributes->rows[k];
        CHECK_EQ(sl_attribute_bits(&a, at, 0), sl_attribute_bits(&b, at, 0));
        if (at->if_set) CHECK(!sl_attribute_there(&a, at));
    }
}

TEST(options_of_an_older_caller_keep_what_they_lack_at_its_default)
{
    sluice_rotary_options old = OPTIONS(16, 500.0f, SCALED(YARN), .factor = 3, .context = 9);
    sl_attrs a;
    old.size = offsetof(sluice_rotary_options, scaling);
    REQUIRE_OK(sl_rotary_attrs(&old, &a));
    CHECK_EQ(a.rotary.scaling, SLUICE_ROTARY_DEFAULT);
    CHECK_NEAR(a.rotary.base, 500, 0);
    old.size = 3;
    CHECK_EQ(sl_rotary_attrs(&old, &a), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "sluice_rotary_options_init");
}

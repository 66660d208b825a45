/* random_tokens_test.c: tokens of the vocabulary, targets one further, the same for the same seed. */
#include "data/data.h"
#include "test.h"

enum { CONTEXT = 16, VOCABULARY = 300, ROWS = 8 };

typedef struct batch {
    int32_t tokens[ROWS * CONTEXT], targets[ROWS * CONTEXT];
} batch;

static sluice_status fill(uint64_t seed, uint64_t index, batch *b)
{
    sluice_data *d;
    sl_data_field fields[] = { { "tokens", SLUICE_I32, CONTEXT, b->tokens },
                               { "targets", SLUICE_I32, CONTEXT, b->targets } };
    SL_TRY(sl_data_random_tokens(1000, CONTEXT, VOCABULARY, 0.1, seed, &d));
    sluice_status st = d->ops->fill(d, index, ROWS, fields, 2);
    sluice_data_destroy(d);
    return st;
}

TEST(random_tokens_are_of_the_vocabulary_and_targets_are_the_next_ones)
{
    batch b;
    int seen = 0;
    REQUIRE_OK(fill(3, 5, &b));
    for (int r = 0; r < ROWS; r++)
        for (int i = 0; i < CONTEXT; i++) {
            int32_t id = b.tokens[r * CONTEXT + i];
            CHECK(id >= 0 && id < VOCABULARY);
            seen += id >= 256;
            if (i + 1 < CONTEXT) CHECK_EQ(b.targets[r * CONTEXT + i], b.tokens[r * CONTEXT + i + 1]);
        }
    CHECK(seen > 0);
}

TEST(random_tokens_depend_on_seed_and_batch_alone)
{
    batch a, b;
    REQUIRE_OK(fill(3, 5, &a));
    REQUIRE_OK(fill(3, 5, &b));
    CHECK(memcmp(&a, &b, sizeof a) == 0);
    REQUIRE_OK(fill(3, 6, &b));
    CHECK(memcmp(&a, &b, sizeof a) != 0);
    REQUIRE_OK(fill(4, 5, &b));
    CHECK(memcmp(&a, &b, sizeof a) != 0);
}

TEST(random_tokens_without_samples_or_vocabulary_are_refused)
{
    sluice_data *d = NULL;
    CHECK_EQ(sl_data_random_tokens(0, CONTEXT, VOCABULARY, 0, 1, &d), SLUICE_ERR_USAGE);
    CHECK_EQ(sl_data_random_tokens(10, CONTEXT, 0, 0, 1, &d), SLUICE_ERR_USAGE);
    CHECK(d == NULL);
}

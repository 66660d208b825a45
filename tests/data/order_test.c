/* order_test.c: what comes out of a data set depends on the micro-batch index alone. */
#include "data/data.h"
#include "test.h"

enum { SAMPLES = 10007, ROWS = 32, EPOCHS = 3 };

static int32_t number[SAMPLES];

/* Rows that are their own sample number. */
static sluice_data *numbered_rows(bool shuffle, uint64_t seed)
{
    sluice_data *d = NULL;
    for (int32_t i = 0; i < SAMPLES; i++) number[i] = i;
    sluice_array a = { "id", number, sizeof number };
    if (sluice_data_from_arrays(&a, 1, SAMPLES, shuffle, seed, &d) != SLUICE_OK) return NULL;
    return d;
}

static void draw(sluice_data *d, uint64_t index, int64_t rows, int32_t *out)
{
    sl_data_field f = { "id", SLUICE_I32, 1, out };
    CHECK_EQ(d->ops->fill(d, index, rows, &f, 1), SLUICE_OK);
}

TEST(every_sample_comes_once_in_each_of_three_epochs)
{
    static uint8_t seen[EPOCHS][SAMPLES];
    static int32_t first_order[SAMPLES];
    int same = 0;
    int32_t rows[ROWS];
    sluice_data *d = numbered_rows(true, 7);
    REQUIRE(d != NULL);
    memset(seen, 0, sizeof seen);
    /* 10,007 is prime, so batches straddle the epochs. */
    for (uint64_t s = 0; s < EPOCHS * SAMPLES; s++) {
        if (s % ROWS == 0) draw(d, s / ROWS, ROWS, rows);
        int32_t id = rows[s % ROWS];
        REQUIRE(id >= 0 && id < SAMPLES);
        seen[s / SAMPLES][id]++;
        if (s < SAMPLES) first_order[s] = id;
        same += s >= SAMPLES && first_order[s % SAMPLES] == id;
    }
    for (int e = 0; e < EPOCHS; e++)
        for (int i = 0; i < SAMPLES; i++) CHECK_EQ(seen[e][i], 1);
    CHECK(same < 50); /* each epoch has an order of its own; two random ones agree in about one place */
    sluice_data_destroy(d);
}

TEST(a_batch_does_not_depend_on_what_was_drawn_before)
{
    int32_t in_order[4][ROWS], alone[ROWS];
    sluice_data *d = numbered_rows(true, 7), *fresh = numbered_rows(true, 7);
    REQUIRE(d != NULL && fresh != NULL);
    for (int i = 0; i < 4; i++) draw(d, (uint64_t)(310 + i), ROWS, in_order[i]);
    for (int i = 3; i >= 0; i--) {
        draw(fresh, (uint64_t)(310 + i), ROWS, alone);
        CHECK(memcmp(alone, in_order[i], sizeof alone) == 0);
    }
    sluice_data_destroy(d);
    sluice_data_destroy(fresh);
}

TEST(two_half_batches_are_one_batch)
{
    int32_t whole[ROWS], halves[ROWS];
    sluice_data *d = numbered_rows(true, 1);
    REQUIRE(d != NULL);
    draw(d, 312, ROWS, whole);
    draw(d, 624, ROWS / 2, halves);
    draw(d, 625, ROWS / 2, halves + ROWS / 2);
    CHECK(memcmp(whole, halves, sizeof whole) == 0);
    sluice_data_destroy(d);
}

TEST(another_seed_gives_another_order)
{
    int32_t a[ROWS], b[ROWS];
    sluice_data *d = numbered_rows(true, 1), *other = numbered_rows(true, 2);
    REQUIRE(d != NULL && other != NULL);
    draw(d, 0, ROWS, a);
    draw(other, 0, ROWS, b);
    CHECK(memcmp(a, b, sizeof a) != 0);
    sluice_data_destroy(d);
    sluice_data_destroy(other);
}

TEST(without_shuffling_rows_come_in_order_and_wrap)
{
    int32_t rows[ROWS];
    sluice_data *d = numbered_rows(false, 0);
    REQUIRE(d != NULL);
    draw(d, SAMPLES / ROWS, ROWS, rows);
    for (int i = 0; i < ROWS; i++) CHECK_EQ(rows[i], (SAMPLES / ROWS * ROWS + i) % SAMPLES);
    sluice_data_destroy(d);
}

TEST(an_index_past_two_to_the_64_samples_is_refused)
{
    int32_t rows[ROWS];
    sl_data_field f = { "id", SLUICE_I32, 1, rows };
    sluice_data *d = numbered_rows(true, 0);
    REQUIRE(d != NULL);
    CHECK_EQ(d->ops->fill(d, UINT64_MAX / ROWS - 1, ROWS, &f, 1), SLUICE_OK);
    CHECK_EQ(d->ops->fill(d, UINT64_MAX / ROWS + 1, ROWS, &f, 1), SLUICE_ERR_USAGE);
    sluice_data_destroy(d);
}

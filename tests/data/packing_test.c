/* packing_test.c: rows of documents: nothing lost, nothing twice, no room wasted that best fit does not waste. */
#include "data/packing.h"

#include <string.h>

#include "core/alloc.h"
#include "core/rng.h"
#include "test.h"

enum { DOCUMENTS = 3000, CAPACITY = 257 };

/* Many short, a few long, as conversations are. */
static void make_lengths(int32_t *lengths, int64_t count, int64_t capacity, uint64_t seed)
{
    sl_rng r = sl_rng_stream(seed, SL_RNG_DATA, 0, 0, 9);
    for (int64_t i = 0; i < count; i++) {
        int64_t most = sl_rng_below(&r, (uint64_t)(2 * i), 4) == 0 ? capacity : capacity / 4;
        lengths[i] = (int32_t)(1 + sl_rng_below(&r, (uint64_t)(2 * i + 1), (uint64_t)most));
    }
}

/* The definition, in the plainest form: longest first, into the fullest row that takes it, a new one where none does. */
static int64_t plain_best_fit(const int32_t *lengths, int64_t count, int64_t capacity)
{
    static int64_t room[DOCUMENTS];
    int64_t rows = 0;
    for (int64_t length = capacity; length > 0; length--)
        for (int64_t i = 0; i < count; i++) {
            if (lengths[i] != length) continue;
            int64_t best = -1;
            for (int64_t r = 0; r < rows; r++)
                if (room[r] >= length && (best < 0 || room[r] < room[best])) best = r;
            if (best < 0) {
                room[rows] = capacity;
                best = rows++;
            }
            room[best] -= length;
        }
    return rows;
}

TEST(rows_are_those_of_best_fit_decreasing_and_hold_every_document_once_an_epoch)
{
    static int32_t lengths[DOCUMENTS];
    static uint8_t seen[DOCUMENTS];
    sl_packed_rows p;
    make_lengths(lengths, DOCUMENTS, CAPACITY, 3);
    REQUIRE_OK(sl_packing_make(lengths, DOCUMENTS, CAPACITY, true, &p));
    CHECK_EQ(p.rows, plain_best_fit(lengths, DOCUMENTS, CAPACITY));
    for (uint64_t epoch = 0; epoch < 3; epoch++) {
        memset(seen, 0, sizeof seen);
        for (int64_t row = 0; row < p.rows; row++) {
            int64_t sum = 0;
            for (int64_t k = 0; k < sl_packing_row_documents(&p, row); k++) {
                int64_t document = sl_packing_document(&p, row, k, 11, true, epoch);
                REQUIRE(document >= 0 && document < DOCUMENTS);
                seen[document]++;
                sum += lengths[document];
            }
            CHECK_THAT(sum <= CAPACITY, "row %lld of epoch %d holds %lld", (long long)row, (int)epoch, (long long)sum);
        }
        for (int i = 0; i < DOCUMENTS; i++)
            CHECK_THAT(seen[i] == 1, "document %d is %d times in epoch %d", i, seen[i], (int)epoch);
    }
    sl_packing_free(&p);
}

TEST(another_epoch_and_another_seed_put_other_documents_together)
{
    static int32_t lengths[DOCUMENTS];
    sl_packed_rows p;
    int64_t by_epoch = 0, by_seed = 0, same = 0;
    make_lengths(lengths, DOCUMENTS, CAPACITY, 3);
    REQUIRE_OK(sl_packing_make(lengths, DOCUMENTS, CAPACITY, true, &p));
    for (int64_t row = 0; row < p.rows; row++) {
        int64_t first = sl_packing_document(&p, row, 0, 11, true, 0);
        by_epoch += sl_packing_document(&p, row, 0, 11, true, 1) != first;
        by_seed += sl_packing_document(&p, row, 0, 12, true, 0) != first;
        same += sl_packing_document(&p, row, 0, 11, true, 0) == first;
    }
    CHECK(by_epoch > p.rows / 2);
    CHECK(by_seed > p.rows / 2);
    CHECK_EQ(same, p.rows);
    sl_packing_free(&p);
}

TEST(documents_of_one_length_and_single_documents_are_packed)
{
    static int32_t lengths[DOCUMENTS];
    sl_packed_rows p;
    for (int i = 0; i < DOCUMENTS; i++) lengths[i] = 64;
    REQUIRE_OK(sl_packing_make(lengths, DOCUMENTS, 256, true, &p));
    CHECK_EQ(p.rows, DOCUMENTS / 4);
    sl_packing_free(&p);
    REQUIRE_OK(sl_packing_make(lengths, 1, 64, true, &p));
    CHECK_EQ(p.rows, 1);
    CHECK_EQ(sl_packing_document(&p, 0, 0, 1, true, 5), 0);
    sl_packing_free(&p);
    REQUIRE_OK(sl_packing_make(lengths, 0, 64, true, &p));
    CHECK_EQ(p.rows, 0);
    sl_packing_free(&p);
}

TEST(without_packing_every_document_has_a_row)
{
    const int32_t lengths[] = { 5, 1, 3 };
    sl_packed_rows p;
    REQUIRE_OK(sl_packing_make(lengths, 3, 8, false, &p));
    CHECK_EQ(p.rows, 3);
    for (int64_t row = 0; row < 3; row++) {
        CHECK_EQ(sl_packing_row_documents(&p, row), 1);
        CHECK_EQ(sl_packing_document(&p, row, 0, 1, true, 4), row);
    }
    sl_packing_free(&p);
}

/* Rooms of every size, with a bitmap of many words: long contexts. */
TEST(a_million_documents_of_a_long_context_are_packed_at_once)
{
    enum { MANY = 1000000, LONG = 131072 };
    int32_t *lengths = sl_alloc_array(MANY, sizeof *lengths, "lengths");
    sl_packed_rows p;
    int64_t sum = 0;
    REQUIRE(lengths != NULL);
    make_lengths(lengths, MANY, LONG, 8);
    for (int i = 0; i < MANY; i++) sum += lengths[i];
    REQUIRE_OK(sl_packing_make(lengths, MANY, LONG, true, &p));
    CHECK(p.rows >= (sum + LONG - 1) / LONG);
    CHECK_THAT(p.rows <= (sum + LONG - 1) / LONG + 10, "%lld rows for %lld positions", (long long)p.rows,
               (long long)sum);
    sl_packing_free(&p);
    sl_free(lengths);
}
